package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- Servers that a client starts: what main_test.go does not show of their end ----

// child returns the command for a child process that plays a role.
func child(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(children, append([]string{role}, args...)...)
	cmd.Env = append(os.Environ(), raceOptions)
	return cmd
}

// A hundred children, started and closed, leave nothing behind: no process, goroutine or descriptor.
func TestChildLeaks(t *testing.T) {
	rounds := 100
	if testing.Short() {
		rounds = 5
	}
	checkLeaks(t)
	files := openFiles()
	for range rounds {
		conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return child("exits at EOF") }, Grace: time.Second, MaxLine: maxMessage}.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		p := wire.Open(t.Context(), conn, nil, nil)
		p.Close()
	}
	waitFor(t, func() bool { return openFiles() <= files }) // Close and the end of the Peer's context both close the Conn; one may be a moment later
}

// What a child wrote before it ended is read, however slowly.
func TestChildIsReadToTheEnd(t *testing.T) {
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return child("writes and exits") }, Grace: time.Second, MaxLine: maxMessage}.Dial(t.Context())
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

// Noise on stdout is skipped, and 1 MiB on stderr does not block the child; arguments arrive as they are.
func TestChildNoise(t *testing.T) {
	var logged log
	c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Log: slog.New(slog.NewTextHandler(&logged, nil))}
	if err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd { return child("is noisy", "a b", `"`, "$HOME", "") }, Grace: time.Second, MaxLine: maxMessage}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var result struct{ Args []string }
	if err := c.Call(t.Context(), "args", nil, &result); err != nil || !slices.Equal(result.Args, []string{"a b", `"`, "$HOME", ""}) {
		t.Errorf("%q, %v", result.Args, err)
	}
	if strings.Count(logged.String(), "dropped") != 1 {
		t.Error(logged.String())
	}
}

// Old servers that take the probe badly, as real processes: each is reached with initialize, one that dies is started again.
func TestClientProbesChildren(t *testing.T) {
	for role, starts := range map[string]int32{"dies of the probe": 2, "refuses the probe and exits": 2, "is silent at the probe": 1, "refuses the probe with -32600": 1, "answers the probe oddly": 1} {
		var started atomic.Int32
		c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, ProbeTimeout: 200 * time.Millisecond}
		if role == "dies of the probe" {
			c.ProbeTimeout = 10 * time.Second
		}
		err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd { started.Add(1); return child(role) }, Grace: time.Second, MaxLine: maxMessage})
		if err != nil || c.Server().Version != "2025-06-18" || started.Load() != starts {
			t.Errorf("%s: %v, %q after %d starts", role, err, c.Server().Version, started.Load())
		}
		if err := c.Call(t.Context(), "ping", nil, nil); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		c.Close()
	}
}

// A child that ends by itself leaves nothing of its group, either, though nobody calls Close.
func TestChildEndsWithItsGroup(t *testing.T) {
	cmd := sh(leavesDeaf)
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: 300 * time.Millisecond, MaxLine: maxMessage}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Process.Kill()
	for err == nil {
		_, err = conn.Read()
	}
	waitFor(t, func() bool { return !groupAlive(cmd.Process.Pid) })
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}

// A process that has left the group, and has the pipes of the child, is left alone. It holds up neither Write, which tells the end of the child,
// nor Close, which ends Read.
func TestChildLeavesDaemon(t *testing.T) {
	cmd := sh(`setsid sleep 60 & echo "{\"jsonrpc\":\"2.0\",\"method\":\"$!\"}"; read line; exit 3`)
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: 300 * time.Millisecond, MaxLine: maxMessage}.Dial(t.Context())
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

// A Stderr that blocks holds up neither the end of the child nor Close.
func TestChildStderrBlocks(t *testing.T) {
	taken, blocked := io.Pipe() // nobody reads it
	defer taken.Close()
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd {
		cmd := sh(`echo trouble >&2; exit 3`)
		cmd.Stderr = blocked
		return cmd
	}, Grace: time.Second, MaxLine: maxMessage}.Dial(t.Context())
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

// When the server is gone, the calls that wait fail, and the next one, or twenty at once, start it again, once.
func TestClientReconnects(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		var started atomic.Int32
		var last atomic.Pointer[exec.Cmd]
		c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Versions: []string{version}}
		list := func() {
			if err := c.Call(t.Context(), "tools/list", nil, nil); err != nil {
				t.Error(err)
			}
		}
		err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd {
			started.Add(1)
			last.Store(program())
			return last.Load()
		}, Grace: time.Second, MaxLine: maxMessage})
		if err != nil {
			t.Fatal(err)
		}
		slow := make(chan error)
		go func() {
			slow <- c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"count","arguments":{"n":1,"delayMs":60000}}`), nil)
		}()
		list()
		_ = last.Load().Process.Kill()
		if err := <-slow; !errors.Is(err, wire.ErrClosed) || !strings.Contains(err.Error(), "killed") {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(list)
		}
		if wg.Wait(); started.Load() != 2 {
			t.Errorf("%s: started %d times", version, started.Load())
		}
		c.Close()
	}
}

// sh is a child that runs a script, with a message as its first argument.
func sh(script string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", script, "sh", `{"jsonrpc":"2.0","method":"notifications/hello"}`}, args...)...)
}

// leavesDeaf is the script of a child whose own child ignores SIGTERM, and lives on when it ends.
const leavesDeaf = `trap "" TERM; sleep 60 & trap - TERM; echo "$1"; cat`

// groupAlive reports whether a process of the group runs; one that is dead but not yet reaped by its new parent does not count.
func groupAlive(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	alive := regexp.MustCompile(fmt.Sprintf(`\) [^Z] [0-9]+ %d `, pgid))
	return slices.ContainsFunc(stats, func(path string) bool {
		stat, _ := os.ReadFile(path)
		return alive.Match(stat)
	})
}
