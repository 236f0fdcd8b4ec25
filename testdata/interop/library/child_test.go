package library

import (
	"bytes"
	"errors"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"interop/shared"
	"interop/wire"
)

// ---- Servers that a client starts, and their end ----

// sh is a child that runs a script, with a message as its first argument.
func sh(script string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", script, "sh", `{"jsonrpc":"2.0","method":"notifications/hello"}`}, args...)...)
}

const grace = 300 * time.Millisecond

// child starts a child, and returns the Conn to it.
func child(t *testing.T, grace time.Duration, cmd *exec.Cmd) wire.Conn {
	t.Helper()
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: grace}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	})
	return conn
}

// hello reads the first message of a child.
func hello(t *testing.T, conn wire.Conn) *wire.Message {
	t.Helper()
	in, err := conn.Read()
	if err != nil || in.Messages[0].Kind() != wire.Notification {
		t.Fatal(in, err)
	}
	return in.Messages[0]
}

// leavesDeaf is the script of a child whose own child ignores SIGTERM, and lives on when it ends.
const leavesDeaf = `trap "" TERM; sleep 600 & trap - TERM; echo "$1"; cat`

// Each kind of child is gone, and reaped, when Close returns. Close ends its standard input, then sends SIGTERM, then SIGKILL.
func TestCloseEndsChild(t *testing.T) {
	for _, row := range []struct{ name, script, signal string }{
		{"exits at EOF", `echo "$1"; cat`, ""},
		{"ignores EOF", `echo "$1"; exec sleep 60`, "terminated"},
		{"ignores SIGTERM", `trap "" TERM; echo "$1"; sleep 60`, "killed"},
		{"leaves a grandchild", `sleep 60 & echo "$1"; cat`, ""}, // that is told to end, too
		{"leaves a deaf grandchild", leavesDeaf, ""},
	} {
		cmd := sh(row.script)
		conn := child(t, grace, cmd)
		hello(t, conn)
		began := time.Now()
		if err := conn.Close(); err != nil || time.Since(began) > 30*time.Second { // not after the 60 s of the sleep
			t.Errorf("%s: %v after %v", row.name, err, time.Since(began))
		}
		if state := cmd.ProcessState; state == nil || !strings.Contains(state.String(), row.signal) {
			t.Errorf("%s: ended with %v", row.name, state)
		}
		if _, err := conn.Read(); err == nil {
			t.Errorf("%s: Read after Close", row.name)
		}
		shared.WaitFor(t, func() bool { return !shared.GroupAlive(cmd.Process.Pid) })
	}
}

// A child that dies fails the waiting call, and the next, with its exit status and the last of its stderr.
func TestChildDies(t *testing.T) {
	p := wire.Open(t.Context(), child(t, time.Second, sh(`read request; echo "out of cheese" >&2; exit 3`)), nil, nil)
	defer p.Close()
	for range 2 {
		err := p.Call(t.Context(), "m", nil, nil)
		var exit *exec.ExitError
		if !errors.Is(err, wire.ErrClosed) || !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "out of cheese") {
			t.Error(err)
		}
	}
}

// Twenty children, started and closed, leave nothing behind: no process, goroutine or descriptor. Nor does a command that cannot be started.
func TestChildLeaks(t *testing.T) {
	shared.CheckLeaks(t)
	files := 0
	for n := range 21 {
		if n == 1 { // the first child may leave open what the runtime needs for pipes
			files = shared.OpenFiles()
		}
		wire.Open(t.Context(), child(t, time.Second, sh("cat >/dev/null")), nil, nil).Close()
		missing := wire.CommandDialer{Command: func() *exec.Cmd { return exec.Command("/no/such/server") }}
		if _, err := missing.Dial(t.Context()); err == nil {
			t.Error("it was started")
		}
	}
	shared.WaitFor(t, func() bool { return shared.OpenFiles() <= files }) // Close and the end of the Peer's context both close the Conn; one may be a moment later
}

// What a child wrote before it ended is read, however slowly.
func TestChildIsReadToTheEnd(t *testing.T) {
	conn := child(t, grace, sh(`i=0; while [ $i -lt 500 ]; do echo "$1"; i=$((i+1)); done`))
	hello(t, conn)
	time.Sleep(time.Second) // the child has ended, and Grace is over
	n := 1
	for _, err := conn.Read(); err == nil; _, err = conn.Read() {
		n++
	}
	if n != 500 {
		t.Errorf("%d of 500 lines", n)
	}
}

// A child that ends by itself leaves nothing of its group, either, though nobody calls Close.
func TestChildEndsWithItsGroup(t *testing.T) {
	cmd := sh(leavesDeaf)
	conn := child(t, grace, cmd)
	hello(t, conn)
	if !shared.GroupAlive(cmd.Process.Pid) {
		t.Error("the child has no group of its own")
	}
	_ = cmd.Process.Kill()
	for _, err := conn.Read(); err == nil; {
		_, err = conn.Read()
	}
	shared.WaitFor(t, func() bool { return !shared.GroupAlive(cmd.Process.Pid) })
}

// A process that has left the group, and has the pipes of the child, is left alone. It holds up neither Write, which tells the end of the child,
// nor Close, which ends Read.
func TestChildLeavesDaemon(t *testing.T) {
	conn := child(t, grace, sh(`setsid sleep 60 & echo "{\"jsonrpc\":\"2.0\",\"method\":\"$!\"}"; read line; exit 3`))
	said := hello(t, conn)
	pid, _ := strconv.Atoi(said.Method)
	daemon, _ := os.FindProcess(pid)
	defer daemon.Kill()
	read := make(chan error)
	go func() {
		_, err := conn.Read()
		read <- err
	}()
	var err error
	for err == nil {
		err = conn.Write(t.Context(), wire.Payload{Messages: []*wire.Message{said}})
		time.Sleep(time.Millisecond)
	}
	if !errors.Is(err, wire.ErrClosed) || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
	if err := <-read; err == nil || daemon.Signal(syscall.Signal(0)) != nil {
		t.Error("the daemon was ended:", err)
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

// A Stderr that fails does not stop the child: what it writes there is still read, and thrown away.
func TestChildStderrFails(t *testing.T) {
	cmd := sh(`head -c 1000000 /dev/zero >&2; echo "$1"; cat`)
	cmd.Stderr = failingWriter{}
	hello(t, child(t, grace, cmd))
}

// A Stderr that blocks holds up neither the end of the child nor Close.
func TestChildStderrBlocks(t *testing.T) {
	taken, blocked := io.Pipe() // nobody reads it
	defer taken.Close()
	cmd := sh(`echo trouble >&2; exit 3`)
	cmd.Stderr = blocked
	conn := child(t, grace, cmd)
	if _, err := conn.Read(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// What the child writes to stderr until it ends has reached the writer when Close returns.
func TestCloseWaitsForStderr(t *testing.T) {
	var stderr bytes.Buffer
	cmd := sh(`read line; i=0; while [ $i -lt 1000 ]; do echo "line $i" >&2; i=$((i+1)); done`)
	cmd.Stderr = &stderr
	if err := child(t, 10*time.Second, cmd).Close(); err != nil {
		t.Error(err)
	}
	if text := stderr.String(); strings.Count(text, "\n") != 1000 || !strings.HasSuffix(text, "line 999\n") {
		t.Errorf("%d lines, the last %q", strings.Count(text, "\n"), text[max(0, len(text)-20):])
	}
}

// A maxLine of 0 is 4 MiB, and a grace of 0 is two seconds.
func TestZerosAreDefaults(t *testing.T) {
	line := strings.Repeat(" ", 4<<20-len(ping)) + ping
	for want, line := range map[string]bool{line: false, " " + line: true} {
		in, err := wire.NewLineConn(strings.NewReader(want), nil, 0, func() error { return nil }).Read()
		if err != nil || errors.Is(in.Lost, wire.ErrTooLarge) != line {
			t.Errorf("%d bytes: %v", len(want), err)
		}
	}
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return exec.Command("sh", "-c", "cat >/dev/null; sleep 0.3; echo '"+ping+"'") }}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() { _, err := conn.Read(); read <- err }()
	go conn.Close()
	if err := <-read; err != nil {
		t.Error("the command had no time to end:", err)
	}
	_ = conn.Close()
}
