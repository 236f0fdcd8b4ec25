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

// A user who starts the server at a terminal is told what it waits for, and what to try. That line works. A client at a pipe is told nothing,
// even if stderr is a terminal.
func TestServeAtTerminal(t *testing.T) {
	term := atTerminal(t, nil)
	try := regexp.MustCompile(`(?m)such as (\{.*\});`)
	eventually(t, "the hint", func() bool { return strings.Contains(term.text(), "mcpwire -h ") })
	line := try.FindStringSubmatch(term.text())
	if line == nil {
		t.Fatal(term.text())
	}
	fmt.Fprintln(term.keyboard, line[1])
	eventually(t, "the answer", func() bool { return strings.Contains(term.text(), "\n"+pong+"\n") })
	term.keyboard.Write([]byte{4}) // Ctrl-D
	term.rest(t)

	term = atTerminal(t, strings.NewReader(ping+"\n"))
	if got := term.rest(t); got != pong+"\n" {
		t.Errorf("at a pipe: %q", got)
	}
}

// A user who starts call -i at a terminal is told what to type.
func TestLinesAtTerminal(t *testing.T) {
	term := atTerminal(t, nil, "call", "-i", "-protocol", "2025-11-25", mcpwire)
	eventually(t, "the hint", func() bool { return strings.Contains(term.text(), "mcpwire: connected; type METHOD [PARAMS]") })
	fmt.Fprintln(term.keyboard, "ping")
	eventually(t, "the answer", func() bool { return strings.Contains(term.text(), "\n{}\n") })
	term.keyboard.Write([]byte{4})
	term.rest(t)
}

// At a terminal progress is one line, which changes and is erased in the end. What else is printed is not lost for it. With -trace each
// notification is a line, as where stderr is no terminal (case command-line/progress).
func TestProgressAtTerminal(t *testing.T) {
	count := []string{"-tool", "count", "-arg", "n=5", "-arg", "delayMs=20", mcpwire}
	const result = `\{.*"counted to 5".*\}\n`
	t.Run("a line", func(t *testing.T) {
		term := atTerminal(t, nil, append([]string{"call"}, count...)...)
		shown := term.rest(t)
		if text := term.text(); !strings.Contains(text, "\r\x1b[K1 of 5 (20%)\r\x1b[K2 of 5 (40%)") || !regexp.MustCompile("^"+result+"$").MatchString(shown) {
			t.Errorf("%q shows %q", text, shown)
		}
	})
	t.Run("with the lines of the server", func(t *testing.T) {
		server := `"$0" | while read -r line; do echo "$line"; echo "a line" >&2; done`
		term := atTerminal(t, nil, append(append([]string{"call"}, count[:len(count)-1]...), "sh", "-c", server, mcpwire)...)
		shown := term.rest(t)
		if strings.Count(shown, "a line\n") != strings.Count(shown, "\n")-1 || strings.Count(shown, "a line\n") < 8 || strings.Contains(shown, " of 5") {
			t.Errorf("%q shows %q", term.text(), shown)
		}
	})
	t.Run("-trace", func(t *testing.T) {
		term := atTerminal(t, nil, append([]string{"call", "-trace"}, count...)...)
		if shown := term.rest(t); strings.Contains(term.text(), "\x1b") || strings.Count(shown, "\nnotifications/progress {") != 5 {
			t.Errorf("%q", shown)
		}
	})
}

// What a server says in its progress does nothing to the terminal, and fits on a line. A form that waits for an answer is not erased.
func TestProgressIsOneLine(t *testing.T) {
	server := greets + `printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":0.5,"message":"a\nb\u001b[2J` + strings.Repeat("x", 200) + `"}}'
printf '%s\n' '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}}'
sleep 0.5
printf '%s\n' '{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1}}'
read -r line; printf '%s\n' '{"jsonrpc":"2.0","id":2,"result":{"done":true}}'
cat >/dev/null`
	term := atTerminal(t, nil, "call", "-protocol", "2025-11-25", "-method", "m", "sh", "-c", server)
	eventually(t, "the form and progress", func() bool { return strings.Contains(term.text(), `"progress":1}`) })
	fmt.Fprintln(term.keyboard, "Ada")
	shown := term.rest(t)
	status := regexp.MustCompile(`\r\x1b\[K(0\.5 [^\r]*)\r\x1b\[K`).FindStringSubmatch(term.text())
	if status == nil || !strings.HasPrefix(status[1], "0.5 a b\ufffd[2Jxxx") || len([]rune(status[1])) > 80 {
		t.Errorf("the line is %q", status)
	}
	if want := regexp.MustCompile(`^Who\?\n\(.*\)\nname \(string\): notifications/progress`); !want.MatchString(shown) || !strings.HasSuffix(shown, "\n{\"done\":true}\n") {
		t.Errorf("%q, want %q", shown, want)
	}
}

// A user fills in a form with every kind of field. The prompt says what is wanted, and what does not fit is asked for again.
func TestFormAtTerminal(t *testing.T) {
	const form = `{"type":"object","required":["name","age"],"properties":{"name":{"type":"string","title":"Your name"},` +
		`"mail":{"type":"string","description":"Where to write"},"age":{"type":"integer"},"weight":{"type":"number","default":7.5},"ok":{"type":"boolean","default":false},` +
		`"plain":{"type":"string","enum":["a","b"],"default":"a"},` +
		`"titled":{"type":"string","oneOf":[{"const":"1","title":"One"},{"const":"2","title":"Two"}]},"many":{"type":"array","items":{"type":"string","enum":["x","y","z"]}}}}`
	server := greets + `printf '%s\n' '{"jsonrpc":"2.0","id":"q","method":"elicitation/create","params":{"message":"Who are you?","requestedSchema":` + form + `}}'
read -r line; printf '{"jsonrpc":"2.0","id":2,"result":{"got":%s}}\n' "$line"; cat >/dev/null`
	answer := func(steps [][2]string) string {
		t.Helper()
		term := atTerminal(t, nil, "call", "-protocol", "2025-11-25", "-method", "m", "sh", "-c", server)
		seen := 0
		for _, step := range steps { // a prompt, and what is typed
			eventually(t, step[0], func() bool { return strings.Contains(term.text()[seen:], step[0]) })
			seen = len(term.text())
			fmt.Fprintln(term.keyboard, step[1])
		}
		shown := term.rest(t)
		result := regexp.MustCompile(`"result":(\{"action".*\})\}\}\n`).FindStringSubmatch(shown)
		if result == nil {
			t.Fatal(shown)
		}
		return result[1]
	}
	got := answer([][2]string{
		{"Who are you?\n(an empty line takes the default, or leaves a field out; /decline declines, /cancel or Ctrl-D cancels)\nname, Your name (string, required): ", ""},
		{"name is required\nname, ", "Ada"},
		{"mail, Where to write (string): ", "ada@example.com"},
		{"age (integer, required): ", "3.5"},
		{"age must be integer, not \"3.5\"\n", "36"},
		{"weight (number, default 7.5): ", "much"},
		{"weight must be number, not \"much\"\n", ""},
		{"ok (y or n, default false): ", "perhaps"},
		{"ok must be boolean, not \"perhaps\": write true or false, or y or n\n", "yes"},
		{`plain (one of "a"|"b", default "a"): `, "c"},
		{`plain must be "a"|"b", not "c"`, "b"},
		{`titled (one of "1"=One|"2"=Two): `, "3"},
		{`titled must be "1"|"2", not "3"`, "Two"},
		{`many (array of "x"|"y"|"z"): `, "x"},
		{`many must be array of "x"|"y"|"z", not "x": write JSON`, `["w"]`},
		{`many has an item that must be "x"|"y"|"z", not "w"`, `["x","z"]`},
	})
	expect(t, got, `{"action":"accept","content":{"name":"Ada","mail":"ada@example.com","age":36,"weight":7.5,"ok":true,"plain":"b","titled":"2","many":["x","z"]}}`)
	expect(t, answer([][2]string{{"required): ", "/decline"}}), `{"action":"decline"}`)
	expect(t, answer([][2]string{{"required): ", "Ada"}, {"(string): ", "/cancel"}}), `{"action":"cancel"}`)
}

// A result cannot act on a terminal, and is the same JSON as before. Anywhere else it comes byte for byte.
func TestResultAtTerminal(t *testing.T) {
	const result = "{\"c1\":\"\u009b2J\",\"bidi\":\"\u202eevil\u2066\",\"del\":\"\x7f\",\"plain\":\"é 漢 <&> \\u001b\"}"
	const visible = `{"c1":"\u009b2J","bidi":"\u202eevil\u2066","del":"\u007f","plain":"é 漢 <&> \u001b"}`
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
