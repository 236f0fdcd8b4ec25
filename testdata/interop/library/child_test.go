package library

import (
	"errors"
	"interop/shared"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- Servers that a client starts, and their end ----

// sh is a child that runs a script, with a message as its first argument.
func sh(script string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", script, "sh", `{"jsonrpc":"2.0","method":"notifications/hello"}`}, args...)...)
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
		conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: 300 * time.Millisecond, MaxLine: testLimit}.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if in, err := conn.Read(); err != nil || in.Messages[0].Method != "notifications/hello" {
			t.Fatal(row.name, err)
		}
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
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return sh(`read request; echo "out of cheese" >&2; exit 3`) }, Grace: time.Second, MaxLine: testLimit}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	p := wire.Open(t.Context(), conn, nil, nil)
	defer p.Close()
	for range 2 {
		err = p.Call(t.Context(), "m", nil, nil)
		var exit *exec.ExitError
		if !errors.Is(err, wire.ErrClosed) || !errors.As(err, &exit) || exit.ExitCode() != 3 || !strings.Contains(err.Error(), "out of cheese") {
			t.Error(err)
		}
	}
}

// A command that cannot be started is an error, and leaves nothing open.
func TestChildMissing(t *testing.T) {
	files := shared.OpenFiles()
	if _, err := (wire.CommandDialer{Command: func() *exec.Cmd { return exec.Command("/no/such/server") }, Grace: time.Second, MaxLine: testLimit}).Dial(t.Context()); err == nil {
		t.Error("it was started")
	}
	if now := shared.OpenFiles(); now != files {
		t.Errorf("%d open files, %d before", now, files)
	}
}

// Twenty children, started and closed, leave nothing behind: no process, goroutine or descriptor.
func TestChildLeaks(t *testing.T) {
	shared.CheckLeaks(t)
	files := 0
	for n := range 21 {
		if n == 1 { // the first child may leave open what the runtime needs for pipes
			files = shared.OpenFiles()
		}
		conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return sh("cat >/dev/null") }, Grace: time.Second, MaxLine: testLimit}.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := wire.Open(t.Context(), conn, nil, nil)
		p.Close()
	}
	shared.WaitFor(t, func() bool { return shared.OpenFiles() <= files }) // Close and the end of the Peer's context both close the Conn; one may be a moment later
}

// What a child wrote before it ended is read, however slowly.
func TestChildIsReadToTheEnd(t *testing.T) {
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return sh(`i=0; while [ $i -lt 500 ]; do echo "$1"; i=$((i+1)); done`) }, Grace: time.Second, MaxLine: testLimit}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for ; ; n++ {
		if _, err := conn.Read(); err != nil {
			break
		}
		if n == 0 {
			time.Sleep(1500 * time.Millisecond) // the child has ended, and Grace is over
		}
	}
	if n != 500 {
		t.Errorf("%d of 500 lines", n)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// A child that ends by itself leaves nothing of its group, either, though nobody calls Close.
func TestChildEndsWithItsGroup(t *testing.T) {
	cmd := sh(leavesDeaf)
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: 300 * time.Millisecond, MaxLine: testLimit}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(); err != nil {
		t.Fatal(err)
	}
	if !shared.GroupAlive(cmd.Process.Pid) {
		t.Error("the child has no group of its own")
	}
	_ = cmd.Process.Kill()
	for err == nil {
		_, err = conn.Read()
	}
	shared.WaitFor(t, func() bool { return !shared.GroupAlive(cmd.Process.Pid) })
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// A process that has left the group, and has the pipes of the child, is left alone. It holds up neither Write, which tells the end of the child,
// nor Close, which ends Read.
func TestChildLeavesDaemon(t *testing.T) {
	cmd := sh(`setsid sleep 60 & echo "{\"jsonrpc\":\"2.0\",\"method\":\"$!\"}"; read line; exit 3`)
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: 300 * time.Millisecond, MaxLine: testLimit}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	in, err := conn.Read()
	if err != nil {
		t.Fatal(err)
	}
	pid, _ := strconv.Atoi(in.Messages[0].Method)
	daemon, _ := os.FindProcess(pid)
	defer daemon.Kill()
	read := make(chan error)
	go func() {
		_, err := conn.Read()
		read <- err
	}()
	for err == nil {
		err = conn.Write(t.Context(), in)
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
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if in, err := conn.Read(); err != nil || in.Messages[0].Method != "notifications/hello" {
		t.Error(in, err)
	}
}

// A Stderr that blocks holds up neither the end of the child nor Close.
func TestChildStderrBlocks(t *testing.T) {
	taken, blocked := io.Pipe() // nobody reads it
	defer taken.Close()
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd {
		cmd := sh(`echo trouble >&2; exit 3`)
		cmd.Stderr = blocked
		return cmd
	}, Grace: time.Second, MaxLine: testLimit}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(); err == nil || !strings.Contains(err.Error(), "exit status 3") {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
