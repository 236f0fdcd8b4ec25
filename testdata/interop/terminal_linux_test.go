package interop

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"interop/shared"

	"github.com/creack/pty"
)

// Here the program is started as a person starts it, at a terminal.

// terminal is a pseudo-terminal, and what the program has printed on it.
type terminal struct {
	keyboard *os.File
	program  *os.File // the end that the program has
	cmd      *exec.Cmd
	printed  shared.Output
	ended    chan struct{} // closed when nobody can print any more
}

// openTerminal opens a pseudo-terminal.
func openTerminal(t *testing.T) *terminal {
	t.Helper()
	master, slave, err := pty.Open()
	if err != nil {
		t.Skip("no terminal:", err)
	}
	term := &terminal{keyboard: master, program: slave, ended: make(chan struct{})}
	go func() {
		defer close(term.ended)
		io.Copy(&term.printed, master) // to EIO, when the last process has closed its end
	}()
	t.Cleanup(func() { slave.Close(); master.Close(); <-term.ended })
	return term
}

// text returns what was printed up to now. A terminal prints \r\n for a \n.
func (term *terminal) text() string {
	return strings.ReplaceAll(term.printed.String(), "\r\n", "\n")
}

// shown returns what a user sees: a line that was erased is gone.
func (term *terminal) shown() string {
	return regexp.MustCompile(`[^\n]*\r\x1b\[K`).ReplaceAllString(term.text(), "")
}

// rest waits until the command has ended, and returns what a user sees.
func (term *terminal) rest(t *testing.T) string {
	t.Helper()
	exits(t, term.cmd, 0, limit/3)
	term.program.Close()
	select {
	case <-term.ended:
	case <-time.After(limit / 3):
		t.Error("the terminal is still in use")
	}
	return term.shown()
}

// atTerminal starts mcpwire at a terminal. stdin is the terminal, too, if it is nil.
func atTerminal(t *testing.T, stdin io.Reader, args ...string) *terminal {
	t.Helper()
	term := openTerminal(t)
	term.cmd = exec.Command(mcpwire, args...)
	term.cmd.Env = append(os.Environ(), "TERM=xterm")
	term.cmd.Stdin, term.cmd.Stdout, term.cmd.Stderr = term.program, term.program, term.program
	if stdin != nil {
		term.cmd.Stdin = stdin
	}
	if err := term.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { term.cmd.Process.Kill() })
	return term
}

// greets is a server in the shell that answers initialize. Its next line is for a call with the id 2.
const greets = `read -r line; printf '%s\n' '{"jsonrpc":"2.0","id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"x","version":"1"}}}'
read -r line; read -r line
`

// Somebody may type messages at a terminal. A client at a pipe is told nothing else, even if stderr is a terminal.
func TestServeAtTerminal(t *testing.T) {
	term := atTerminal(t, nil)
	fmt.Fprintln(term.keyboard, ping)
	eventually(t, "the answer", func() bool { return strings.Contains(term.text(), "\n"+pong+"\n") })
	term.keyboard.Write([]byte{4}) // Ctrl-D
	term.rest(t)

	term = atTerminal(t, strings.NewReader(ping+"\n"))
	if got := term.rest(t); got != pong+"\n" {
		t.Errorf("at a pipe: %q", got)
	}
}

// A user fills in a form. What has not the type of a field is asked for again, and at last whether to send it.
func TestFormAtTerminal(t *testing.T) {
	const form = `{"type":"object","required":["name"],"properties":{"name":{"type":"string"},"age":{"type":"integer"},"ok":{"type":"boolean"},` +
		`"plain":{"type":"string","enum":["a","1"]},"many":{"type":"array","items":{"type":"string","enum":["x","y","z"]}},"left":{"type":"string"}}}`
	server := greets + `printf '%s\n' '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who are you?","requestedSchema":` + form + `}}'
read -r line; printf '{"jsonrpc":"2.0","id":2,"result":{"got":%s}}\n' "$line"; cat >/dev/null`
	for send, want := range map[string]string{
		"y": `{"action":"accept","content":{"name":"36","age":36,"ok":true,"plain":"1","many":["x","z"]}}`,
		"n": `{"action":"decline"}`,
	} {
		term := atTerminal(t, nil, "call", "-protocol", "2025-11-25", "-method", "m", "sh", "-c", server)
		seen := 0
		for _, step := range [][2]string{ // a prompt, and what is typed
			{"Who are you? required: [\"name\"]\nname {", "36"}, {"\nage {", "old"}, {"\nage: ", "36"}, {"\nok {", "true"},
			{"\nplain {", "1"}, {"\nmany {", `["x","z"]`}, {"\nleft {", ""}, {"send this? (y or n): ", send},
		} {
			eventually(t, step[0], func() bool { return strings.Contains(term.text()[seen:], step[0]) })
			seen = len(term.text()) - 1
			fmt.Fprintln(term.keyboard, step[1])
		}
		shown := term.rest(t)
		result := regexp.MustCompile(`"result":(\{"action".*\})\}\}\n`).FindStringSubmatch(shown)
		if result == nil {
			t.Fatal(shown)
		}
		expect(t, result[1], want)
	}
}

// A result cannot act on a terminal. Anywhere else it comes byte for byte.
func TestResultAtTerminal(t *testing.T) {
	const result = "{\"c1\":\"\u009b2J\",\"bidi\":\"\u202eevil\u2066\",\"del\":\"\x7f\",\"plain\":\"é 漢 <&> \\u001b\"}"
	const visible = "{\"c1\":\"\ufffd2J\",\"bidi\":\"\ufffdevil\ufffd\",\"del\":\"\ufffd\",\"plain\":\"é 漢 <&> \\u001b\"}"
	server := greets + `printf '%s\n' '{"jsonrpc":"2.0","id":2,"result":` + result + `}'
cat >/dev/null`
	args := []string{"call", "-protocol", "2025-11-25", "-method", "m", "sh", "-c", server}
	if got := atTerminal(t, nil, args...).rest(t); got != visible+"\n" {
		t.Errorf("at a terminal: %q", got)
	}
	if got := run(t, nil, "", append([]string{mcpwire}, args...)...).stdout; got != result+"\n" {
		t.Errorf("at a pipe: %q", got)
	}
}
