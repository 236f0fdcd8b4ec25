package soak

import (
	"bufio"
	"fmt"
	"interop/shared"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ---- The program as a process: its standard input, and signals ----

// program returns the command for the program.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(mcpwire, args...)
	cmd.Env = append(os.Environ(), raceOptions)
	return cmd
}

// A standard input that others have after us is as it was when we are gone, however we end: it blocks, or does not block.
func TestStandardInputIsRestored(t *testing.T) {
	if _, err := os.Stat("/proc/self/fdinfo/0"); err != nil {
		t.Skip("the flags of a descriptor cannot be read here:", err)
	}
	flags := func(pid int) (n int) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/0", pid))
		_, after, _ := strings.Cut(string(text), "flags:")
		_, _ = fmt.Sscanf(after, "%o", &n)
		return n & syscall.O_NONBLOCK
	}
	for _, how := range []string{"end of input", "signal"} {
		for _, before := range []int{0, syscall.O_NONBLOCK} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			other := exec.Command("sleep", "60") // shares the input with the server, as the shell does
			other.Stdin = r
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			cmd := program()
			cmd.Stdin = r
			out, _ := cmd.StdoutPipe()
			if before != 0 { // by another program, before it
				cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `SOAK_CHILD=1 "$0"; exec "$1"`, os.Args[0], mcpwire}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(w, shared.InitializeLine("2025-11-25"))
			if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
				t.Errorf("%s, %o: %q, %v", how, before, line, err)
			}
			if how == "signal" {
				_ = cmd.Process.Signal(syscall.SIGTERM)
			} else {
				w.Close()
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("%s, %o: %v", how, before, err)
			}
			if after := flags(other.Process.Pid); after != before {
				t.Errorf("%s: the flag was %o, and is %o", how, before, after)
			}
			_ = other.Process.Kill()
			_ = other.Wait()
			r.Close()
			w.Close()
		}
	}
}

// While call shuts a command down, a second signal does not keep it from that, unless it is the interrupt of a user who does not want to wait.
func TestCallShutsDownThoughSignalled(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here")
	}
	for _, row := range []struct {
		first, second os.Signal
		left          bool
	}{
		{syscall.SIGHUP, syscall.SIGTERM, false}, // the end of a login session
		{syscall.SIGTERM, syscall.SIGHUP, false},
		{syscall.SIGTERM, syscall.SIGTERM, false},
		{os.Interrupt, syscall.SIGTERM, false},
		{syscall.SIGHUP, os.Interrupt, true},
		{os.Interrupt, os.Interrupt, true},
	} {
		t.Run(fmt.Sprintf("%v, %v", row.first, row.second), func(t *testing.T) {
			t.Parallel() // each takes the grace
			cmd := program("call", "sh", "-c", `echo $$ >&2; cat >/dev/null; echo end of input >&2; exec sleep 60`)
			stderr, err := cmd.StderrPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			said := bufio.NewReader(stderr)
			var pid int
			if _, err := fmt.Fscanln(said, &pid); err != nil {
				t.Fatal(err)
			}
			_ = cmd.Process.Signal(row.first)
			for line := ""; line != "end of input\n"; {
				if line, err = said.ReadString('\n'); err != nil {
					t.Fatal(err)
				}
			}
			_ = cmd.Process.Signal(row.second)
			err = cmd.Wait()
			if alive := shared.GroupAlive(pid); alive != row.left {
				t.Errorf("call ended with %v; the command is alive: %v", err, alive)
			}
			if group, err := os.FindProcess(-pid); err == nil {
				_ = group.Kill()
			}
		})
	}
}

// One socket as stdin and stdout, as inetd has it: answers larger than its buffer arrive whole.
func TestServeOnOneSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	file, err := accepted.(*net.UnixConn).File()
	accepted.Close()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(mcpwire)
	cmd.Stdin, cmd.Stdout = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	fmt.Fprintf(client, "%s\n%s\n", shared.InitializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","repeat":4000000}}}`)
	time.Sleep(50 * time.Millisecond) // let it fill the buffer
	r := bufio.NewReader(client)
	_, _ = r.ReadString('\n')
	if line, err := r.ReadString('\n'); len(line) < 4_000_000 || err != nil {
		t.Errorf("%d bytes, %v", len(line), err)
	}
	_ = client.(*net.UnixConn).CloseWrite()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// SIGTERM, SIGINT and a closed stdout end the server quickly, with exit 0, even while it is busy.
func TestServeStops(t *testing.T) {
	for _, how := range []string{"terminated", "interrupt", "stdout"} {
		for _, busy := range []bool{false, true} {
			cmd := exec.Command(mcpwire)
			cmd.Env = append(os.Environ(), raceOptions)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(out)
			fmt.Fprintln(in, shared.InitializeLine("2025-11-25"))
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if busy {
				fmt.Fprintln(in, shared.ToolCall(2, "count", `{"n":100,"delayMs":50}`))
				_, _ = r.ReadString('\n')
			}
			began := time.Now()
			switch how {
			case "terminated":
				_ = cmd.Process.Signal(syscall.SIGTERM)
			case "interrupt":
				_ = cmd.Process.Signal(os.Interrupt)
			case "stdout":
				out.Close()
				fmt.Fprintln(in, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
			}
			if how != "stdout" {
				_, _ = io.Copy(io.Discard, r)
			}
			if err := cmd.Wait(); err != nil || time.Since(began) > 4*time.Second {
				t.Errorf("%s, busy %v: %v after %v", how, busy, err, time.Since(began))
			}
			in.Close()
		}
	}
}
