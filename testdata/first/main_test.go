// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"mcpwire/testdata/lesson"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// missing are the members of the lessons' messages that this server does not send, and serverInfo, which is its own. README.md
// names each of them.
var missing = []string{"completions", "logging", "prompts", "resources", "serverInfo", "instructions", "_meta"}

// The first lesson on stdio: each line of the client goes in, and what comes out is what the lesson has from the server.
func TestFirstLesson(t *testing.T) {
	in, want := "", []any(nil)
	for _, s := range lesson.Sections(t, "../01-stdio-handshake.txtar") {
		switch s.Who {
		case "client":
			in += s.Text
		case "server":
			want = append(want, lesson.Values(t, s.Text, missing)...)
		}
	}
	var out strings.Builder
	if err := serveLines(strings.NewReader(in), &out); err != nil {
		t.Fatal(err)
	}
	if got := lesson.Values(t, out.String(), missing); len(want) != 2 || !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
}

// The first half of the first lesson over HTTP: initialize, and the notification that follows it. The server opens no session.
func TestFirstHTTPLesson(t *testing.T) {
	recorder := httptest.NewRecorder()
	played := 0
	for _, s := range lesson.Sections(t, "../05-http-session.txtar") {
		if s.Letter == "" || s.Letter > "B" {
			continue
		}
		first, header, body := s.HTTP()
		if s.Who == "client" {
			method, path, _ := strings.Cut(first, " ")
			recorder = httptest.NewRecorder()
			r := httptest.NewRequest(method, path, strings.NewReader(body))
			r.Header = header
			servePost(recorder, r)
			continue
		}
		if got := recorder.Header().Get("Content-Type"); recorder.Result().Status[:3] != first || got != header.Get("Content-Type") {
			t.Errorf("%s: %s, %q", s.Letter, recorder.Result().Status, got)
		}
		got, want := lesson.Values(t, recorder.Body.String(), missing), lesson.Values(t, body, missing)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got\n%v\nwant\n%v", s.Letter, got, want)
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

// A body that cannot be read gets 400.
func TestBodies(t *testing.T) { lesson.CheckBodies(t, http.HandlerFunc(servePost), maxSize) }

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
