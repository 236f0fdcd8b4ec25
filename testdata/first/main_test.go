// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
)

// missing are the members of the lessons' messages that this server does not send, and serverInfo, which is its own. README.md
// names each of them.
var missing = []string{"completions", "logging", "prompts", "resources", "serverInfo", "instructions", "_meta"}

// The first lesson on stdio: each line of the client goes in, and what comes out is what the lesson has from the server.
func TestFirstLesson(t *testing.T) {
	in, want := "", []any(nil)
	for _, s := range sections(t, "../01-stdio-handshake.md") {
		switch s.who {
		case "client":
			in += s.text
		case "server":
			want = append(want, values(t, s.text)...)
		}
	}
	var out strings.Builder
	if err := serveLines(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if got := values(t, out.String()); len(want) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// The first half of the first lesson over HTTP: initialize, and the notification that follows it. The server opens no session.
func TestFirstHTTPLesson(t *testing.T) {
	recorder := httptest.NewRecorder()
	played := 0
	for _, s := range sections(t, "../05-http-session.md") {
		if s.letter == "" || s.letter > "B" {
			continue
		}
		first, header, body := s.parts()
		if s.who == "client" {
			method, path, _ := strings.Cut(first, " ")
			recorder = httptest.NewRecorder()
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header = header
			servePost(recorder, r)
			continue
		}
		if got := recorder.Header().Get("Content-Type"); recorder.Result().Status[:3] != first || got != header.Get("Content-Type") {
			t.Errorf("%s: %s, %q", s.letter, recorder.Result().Status, got)
		}
		got, want := values(t, recorder.Body.String()), values(t, body)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%v\nwant\n%v", s.letter, got, want)
		}
		played++
	}
	if played != 2 {
		t.Errorf("%d exchanges", played)
	}
}

// What else the comments promise.
func TestAnswers(t *testing.T) {
	for text, want := range map[string]string{
		`not json`: `"error":{"code":-32700`,
		`[]`:       `"error":{"code":-32600`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                                                           `"error":{"code":-32600`,
		`{"jsonrpc":"2.0","id":"a","method":"no/such"}`:                                                         `"id":"a","error":{"code":-32601`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`:                                               `"id":9007199254740993,"result":{}`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call"}`:                                                        `"error":{"code":-32602,"message":"Unknown tool: "`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get-weather","arguments":{"city":5}}}`: `"isError":true`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get-weather"}}`:                        `"isError":true`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`:                                                                  `null`,
		`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"get-weather","arguments":{"city":"Oslo"}}}`:   `null`,
		`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2024-11-05"}}`:              `"protocolVersion":"2025-11-25"`,
		`{"jsonrpc":"2.0","id":1,"method":"tools/list"}`:                                                        `"name":"get-weather"`,
	} {
		got, err := json.Marshal(answer([]byte(text)))
		if err != nil || !strings.Contains(string(got), want) {
			t.Errorf("%s: %s, %v, want %s", text, got, err, want)
		}
	}
	for want, r := range map[int]struct{ method, field, value, body string }{
		400: {"POST", "MCP-Protocol-Version", "2026-07-28", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		403: {"POST", "Origin", "https://example.com", `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
		405: {"GET", "Accept", "text/event-stream", ""},
	} {
		recorder, req := httptest.NewRecorder(), httptest.NewRequest(r.method, "/mcp", strings.NewReader(r.body))
		req.Header.Set(r.field, r.value)
		if servePost(recorder, req); recorder.Code != want {
			t.Errorf("%+v: %d", r, recorder.Code)
		}
	}
}

// A body that is too large, or that is cut, gets 400, and the text says which of the two it was.
func TestBodies(t *testing.T) {
	for reason, body := range map[string]io.Reader{
		"too large":      strings.NewReader(strings.Repeat("a", maxSize+1)),
		"unexpected EOF": iotest.ErrReader(io.ErrUnexpectedEOF),
	} {
		recorder := httptest.NewRecorder()
		servePost(recorder, httptest.NewRequest("POST", "/mcp", body))
		if recorder.Code != 400 || !strings.Contains(recorder.Body.String(), reason) {
			t.Errorf("%s: %d %s", reason, recorder.Code, recorder.Body)
		}
	}
}

// A server with the second tool of README.md, put where README.md says, has both tools.
func TestAnotherTool(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(readme), -1)
	if len(blocks) != 2 {
		t.Fatalf("%d blocks of Go", len(blocks))
	}
	tool, dispatch := blocks[0][1], blocks[1][1]
	changed := string(source)
	for place, text := range map[string]string{
		"[]any{weatherTool}":                              "[]any{weatherTool, greetTool}",
		"\terr := json.Unmarshal(params, &call)\n":        "\terr := json.Unmarshal(params, &call)\n" + dispatch,
		"// callTool calls the tool. A wrong name is an ": tool + "\n// callTool calls the tool. A wrong name is an ",
	} {
		if strings.Count(changed, place) != 1 {
			t.Errorf("main.go has %d of %q", strings.Count(changed, place), place)
		}
		changed = strings.Replace(changed, place, text, 1)
	}
	file := filepath.Join(t.TempDir(), "main.go")
	if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
		t.Fatal(err)
	}
	server := exec.Command("go", "run", file)
	server.Stdin = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"tools/list"}
{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}
{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"greet","arguments":{"name":5}}}
{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"get-weather","arguments":{"city":"Oslo"}}}
`)
	out, err := server.Output()
	for i, want := range []string{`"name":"greet"`, `"text":"Hello, Ada"`, `"isError":true`, `Oslo is 18°C`} {
		if lines := strings.Split(string(out), "\n"); err != nil || len(lines) != 5 || !strings.Contains(lines[i], want) {
			t.Errorf("%s does not have %s: %v", out, want, err)
		}
	}
}

// The program can be read in ten minutes, and README.md names what it leaves out of the lessons' messages.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 200 {
		t.Errorf("main.go has %d lines", n)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range append([]string{"Mcp-Session-Id"}, missing...) {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}

// ---- Reading a lesson ----

// section is what a side says in a lesson without a break.
type section struct {
	who    string // client, server or handshake
	letter string // of the exchange over HTTP; "": there is none. Behind handshake: the rest of the line
	text   string
}

// A line that is played is indented: "A> " begins what the client says in exchange A, "A< " what the server says. On stdio there is no letter.
var notation = regexp.MustCompile(`^    (?:([A-Z]?)([<>])(?: (.*))?|handshake (.*))$`)

// sections returns what a lesson plays. A line in parentheses is a section of its own.
func sections(t *testing.T, file string) (list []section) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	isMore := false // the line before belongs to the last section
	for line := range strings.Lines(string(text)) {
		m := notation.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			isMore = false
			continue
		}
		s := section{map[string]string{">": "client", "<": "server", "": "handshake"}[m[2]], m[1] + m[4], m[3] + "\n"}
		if last := len(list) - 1; isMore && s.who == list[last].who && s.letter == list[last].letter && m[3] != "(ends)" {
			list[last].text += s.text
			continue
		}
		list, isMore = append(list, s), true
	}
	return list
}

// parts takes a section over HTTP apart: its first line, its header, and its body.
func (s section) parts() (first string, header http.Header, body string) {
	head, body, _ := strings.Cut(s.text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	header = http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	return lines[0], header, body
}

// values reads one JSON value from each line, and leaves out the members with the names that are missing, on each level.
func values(t *testing.T, lines string) (list []any) {
	for line := range strings.Lines(lines) {
		var value any
		if err := json.Unmarshal([]byte(line), &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, without(value))
	}
	return list
}

func without(value any) any {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			without(element)
		}
	case map[string]any:
		for _, name := range missing {
			delete(value, name)
		}
		for _, member := range value {
			without(member)
		}
	}
	return value
}
