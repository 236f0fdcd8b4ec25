package soak

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// ---- The program as a process: its standard input, and signals ----

// program returns the command for the program.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(mcpwire, args...)
	cmd.Env = append(os.Environ(), raceOptions)
	return cmd
}

// 201 answers to 201 requests whose input has ended already, and exit 0, forty times, whether it was a pipe or a file.
func TestEndOfInput(t *testing.T) {
	said := initializeLine("2025-11-25")
	for i := range 200 {
		said += fmt.Sprintf("\n"+`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"count","arguments":{"n":%d,"delayMs":%d}}}`, i, i%2, i%5)
	}
	file, _ := os.Create(filepath.Join(t.TempDir(), "said"))
	defer file.Close()
	_, _ = file.WriteString(said)
	for i := range 40 {
		_, _ = file.Seek(0, io.SeekStart)
		cmd := program()
		if cmd.Stdin = file; i%2 == 0 {
			cmd.Stdin = strings.NewReader(said)
		}
		out, err := cmd.Output()
		if lines := bytes.Count(out, []byte("\n")); lines != 201 || err != nil {
			t.Fatalf("%d answers, %v", lines, err)
		}
	}
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
				cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", `"$0" "stops blocking"; exec "$1"`, children, mcpwire}
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			fmt.Fprintln(w, initializeLine("2025-11-25"))
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
			if alive := groupAlive(pid); alive != row.left {
				t.Errorf("call ended with %v; the command is alive: %v", err, alive)
			}
			if group, err := os.FindProcess(-pid); err == nil {
				_ = group.Kill()
			}
		})
	}
}
