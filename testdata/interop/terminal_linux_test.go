package interop

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// Here the program is started as a person starts it, at a terminal.

// terminal is a pseudo-terminal, and what the program has printed on it.
type terminal struct {
	keyboard *os.File
	program  *os.File // the end that the program has

	mu      sync.Mutex
	printed bytes.Buffer
	ended   chan struct{} // closed when nobody can print any more
}

// openTerminal opens a pseudo-terminal, as pts(4) says.
func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
	if err != nil {
		t.Skip("no terminal:", err)
	}
	var unlock, number int32
	control := func(request uintptr, value *int32) {
		if _, _, e := syscall.Syscall(syscall.SYS_IOCTL, master.Fd(), request, uintptr(unsafe.Pointer(value))); e != 0 {
			t.Fatal(e)
		}
	}
	control(syscall.TIOCSPTLCK, &unlock)
	control(syscall.TIOCGPTN, &number)
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	term := &terminal{keyboard: master, program: slave, ended: make(chan struct{})}
	go func() {
		defer close(term.ended)
		b := make([]byte, 4096)
		for {
			n, err := master.Read(b) // EIO when the last process has closed its end
			term.mu.Lock()
			term.printed.Write(b[:n])
			term.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	t.Cleanup(func() { slave.Close(); master.Close(); <-term.ended })
	return term
}

// text returns what was printed up to now. A terminal prints \r\n for a \n.
func (term *terminal) text() string {
	term.mu.Lock()
	defer term.mu.Unlock()
	return strings.ReplaceAll(term.printed.String(), "\r\n", "\n")
}

// shown returns what a user sees: a line that was erased is gone.
func (term *terminal) shown() string {
	return regexp.MustCompile(`[^\n]*\r\x1b\[K`).ReplaceAllString(term.text(), "")
}

// rest waits until the command has ended, and returns what a user sees.
func (term *terminal) rest(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	ends(t, cmd)
	term.program.Close()
	select {
	case <-term.ended:
	case <-time.After(limit / 3):
		t.Error("the terminal is still in use")
	}
	return term.shown()
}

// start starts a command of which stdin, stdout and stderr are the terminal, unless they are set.
func (term *terminal) start(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	cmd.Env = append(os.Environ(), "TERM=xterm")
	if cmd.Stdin == nil {
		cmd.Stdin = term.program
	}
	if cmd.Stdout == nil {
		cmd.Stdout = term.program
	}
	if cmd.Stderr == nil {
		cmd.Stderr = term.program
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill() })
}

// A user who starts the server at a terminal is told what it waits for, and what to try. That line works. A client at a pipe is told nothing,
// even if stderr is a terminal.
func TestServeAtTerminal(t *testing.T) {
	term := openTerminal(t)
	cmd := exec.Command(mcpwire)
	term.start(t, cmd)
	try := regexp.MustCompile(`(?m)^Try to type a message: +(\{.*\})$`)
	eventually(t, "the hint", func() bool { return strings.Contains(term.text(), "mcpwire -h ") })
	line := try.FindStringSubmatch(term.text())
	if line == nil {
		t.Fatal(term.text())
	}
	fmt.Fprintln(term.keyboard, line[1])
	eventually(t, "the answer", func() bool { return strings.Contains(term.text(), "\n"+pong+"\n") })
	term.keyboard.Write([]byte{4}) // Ctrl-D
	term.rest(t, cmd)

	term = openTerminal(t)
	cmd = exec.Command(mcpwire)
	cmd.Stdin = strings.NewReader(ping + "\n")
	term.start(t, cmd)
	if got := term.rest(t, cmd); got != pong+"\n" {
		t.Errorf("at a pipe: %q", got)
	}
}

// A user who starts call -i at a terminal is told what to type.
func TestLinesAtTerminal(t *testing.T) {
	term := openTerminal(t)
	cmd := exec.Command(mcpwire, "call", "-i", "-protocol", "2025-11-25", mcpwire)
	term.start(t, cmd)
	eventually(t, "the hint", func() bool { return strings.Contains(term.text(), "mcpwire: connected; type METHOD [PARAMS]") })
	fmt.Fprintln(term.keyboard, "ping")
	eventually(t, "the answer", func() bool { return strings.Contains(term.text(), "\n{}\n") })
	term.keyboard.Write([]byte{4})
	term.rest(t, cmd)
}
