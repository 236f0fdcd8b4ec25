// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// missing are the members of the lessons' messages that this server does not send, and serverInfo, which is its own. README.md
// names each of them.
var missing = []string{"completions", "logging", "prompts", "subscribe", "serverInfo", "instructions", "_meta"}

// The road over HTTP in a session: what the clients of these lessons send goes in, and what comes out is what the lessons have.
func TestLessons(t *testing.T) {
	for _, name := range []string{"05-http-session", "06-http-event-stream", "07-http-question-to-the-user", "08-http-get-stream", "09-http-resume"} {
		t.Run(name, func(t *testing.T) {
			if n := (&player{handler: newServer(), missing: missing}).play(t, "../"+name+".md"); n < 2 {
				t.Errorf("%d responses", n)
			}
		})
	}
}

// exchange gives the server a request, and returns the response when it is complete.
func exchange(srv *server, method string, header map[string]string, body string) *httptest.ResponseRecorder {
	w, r := httptest.NewRecorder(), httptest.NewRequest(method, "/mcp", strings.NewReader(body))
	for name, value := range header {
		r.Header.Set(name, value)
	}
	srv.ServeHTTP(w, r)
	return w
}

// newSession returns the header for requests in a new session.
func newSession(srv *server, capabilities string) map[string]string {
	w := exchange(srv, "POST", nil, `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":`+capabilities+`}}`)
	return map[string]string{"Mcp-Session-Id": w.Header().Get("Mcp-Session-Id"), "MCP-Protocol-Version": revision}
}

// What else the comments promise of single requests.
func TestAnswers(t *testing.T) {
	srv := newServer()
	inSession := newSession(srv, "{}")
	for _, row := range []struct {
		method string
		header map[string]string
		body   string
		status int
		want   string
	}{
		{"POST", inSession, `not json`, 400, `"code":-32700`},
		{"POST", inSession, `[]`, 400, `"code":-32600`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":null,"method":"ping"}`, 400, `"code":-32600`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":{"a":1},"method":"ping"}`, 400, `"code":-32600`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"ping","params":{"a":"` + strings.Repeat("a", maxSize) + `"}}`, 400, `request body too large`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1}`, 202, ``},
		{"POST", inSession, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":9}}`, 202, ``},
		{"POST", inSession, `{"jsonrpc":"2.0","id":"a","method":"no/such"}`, 200, `"id":"a","error":{"code":-32601`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`, 200, `"id":9007199254740993,"result":{}`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, 200, `"name":"set-note"`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"no"}}`, 200, `"code":-32602`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}`, 200, `"isError":true`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":5}}}`, 200, `"isError":true`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{"n":1001}}}`, 200, `"isError":true`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`, 200, `the client cannot ask`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"set-note","arguments":{"name":"n","text":"x"}}}`, 200, `note:///n`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"resources/list"}`, 200, `"uri":"note:///n"`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"note:///n"}}`, 200, `"text":"x"`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"resources/read"}`, 200, `"code":-32002`},
		{"POST", inSession, `{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"n"}}`, 200, `"code":-32002`},
		{"POST", nil, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, 200, `"code":-32602`},
		{"POST", nil, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, 400, `Mcp-Session-Id is missing`},
		{"GET", map[string]string{"Mcp-Session-Id": "none"}, ``, 404, `Session not found`},
		{"GET", map[string]string{"Mcp-Session-Id": inSession["Mcp-Session-Id"], "Last-Event-ID": "0/1x"}, ``, 400, `no such event`},
		{"GET", map[string]string{"Mcp-Session-Id": inSession["Mcp-Session-Id"], "Last-Event-ID": "1/9"}, ``, 400, `no such event`},
		{"GET", map[string]string{"Mcp-Session-Id": inSession["Mcp-Session-Id"], "Last-Event-ID": "-1/0"}, ``, 400, `no such event`},
		{"GET", map[string]string{"Mcp-Session-Id": inSession["Mcp-Session-Id"], "Last-Event-ID": "0/-1"}, ``, 400, `no such event`},
		{"GET", map[string]string{"Origin": "https://example.com"}, ``, 403, ``},
		{"PUT", inSession, ``, 405, ``},
		{"POST", map[string]string{"MCP-Protocol-Version": "2026-07-28"}, ``, 400, revision},
	} {
		w := exchange(srv, row.method, row.header, row.body)
		if w.Code != row.status || !strings.Contains(w.Body.String(), row.want) {
			t.Errorf("%s %s: %d %s", row.method, row.body, w.Code, w.Body)
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
		newServer().ServeHTTP(recorder, httptest.NewRequest("POST", "/mcp", body))
		if recorder.Code != 400 || !strings.Contains(recorder.Body.String(), reason) {
			t.Errorf("%s: %d %s", reason, recorder.Code, recorder.Body)
		}
	}
}

// exchanges are requests that run at the same time, in a bubble of package synctest.
type exchanges struct {
	srv    *server
	header map[string]string // of one session
}

// begin gives the server a request. The response is sent to ended when it is complete; hangUp breaks the connection.
func (x exchanges) begin(method, lastID, body string) (ended <-chan string, hangUp func()) {
	ctx, cancel := context.WithCancel(context.Background())
	w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, method, "/mcp", strings.NewReader(body))
	for name, value := range x.header {
		r.Header.Set(name, value)
	}
	if lastID != "" {
		r.Header.Set("Last-Event-ID", lastID)
	}
	done := make(chan string, 1)
	go func() {
		x.srv.ServeHTTP(w, r)
		done <- w.Body.String()
	}()
	synctest.Wait()
	return done, cancel
}

// callOf returns the request for a call with progress.
func callOf(id, tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `,"_meta":{"progressToken":"t"}}}`
}

func inBubble(t *testing.T, f func(t *testing.T, x exchanges)) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		x := exchanges{srv, newSession(srv, `{"elicitation":{}}`)}
		f(t, x)
		exchange(srv, "DELETE", x.header, "") // all goroutines end, or synctest complains
	})
}

// A call that is cancelled has no answer, and its stream ends. So do all streams when the client ends the session. An id is free again after its call.
func TestEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, x exchanges) {
		asks, _ := x.begin("POST", "", callOf("1", "ask", "{}"))
		if w := exchange(x.srv, "POST", x.header, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); w.Code != 400 {
			t.Errorf("%d for an id that is in use", w.Code)
		}
		exchange(x.srv, "POST", x.header, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if got := <-asks; !strings.Contains(got, "elicitation/create") || strings.Contains(got, "result") {
			t.Error(got)
		}
		silent, _ := x.begin("POST", "", callOf("1", "count", `{"n":3}`))
		exchange(x.srv, "POST", x.header, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if got := <-silent; got != "" { // no id, so the client does not come back
			t.Error(got)
		}
		declined, _ := x.begin("POST", "", callOf("1", "ask", "{}"))
		for range 3 { // the second and third answer are to nothing
			exchange(x.srv, "POST", x.header, `{"jsonrpc":"2.0","id":2,"result":{"action":"decline"}}`)
		}
		if got := <-declined; !strings.Contains(got, "has given no name") {
			t.Error(got)
		}
		hears, _ := x.begin("GET", "", "")
		counts, _ := x.begin("POST", "", callOf("1", "count", `{"n":5}`))
		if w := exchange(x.srv, "DELETE", x.header, ""); w.Code != 200 {
			t.Error(w.Code)
		}
		for _, ended := range []<-chan string{hears, counts} {
			if got := <-ended; strings.Contains(got, "result") {
				t.Error(got)
			}
		}
	})
}

// A response that takes over a stream ends the one before it. No message is lost, and none comes on both.
func TestTakeOver(t *testing.T) {
	inBubble(t, func(t *testing.T, x exchanges) {
		first, _ := x.begin("POST", "", callOf("1", "count", `{"n":4}`))
		time.Sleep(500 * time.Millisecond) // two steps
		second, _ := x.begin("GET", "1/2", "")
		if got := <-first; !strings.Contains(got, "id: 1/2") || strings.Contains(got, "id: 1/3") {
			t.Error(got)
		}
		if got := <-second; strings.Contains(got, "id: 1/2") || strings.Count(got, "id: 1/") != 3 || strings.Count(got, `"result"`) != 1 {
			t.Error(got)
		}
	})
}

// If a call says nothing for a second, its response becomes a stream, so that the client knows an id. After a cut the call continues.
func TestLateAnswer(t *testing.T) {
	inBubble(t, func(t *testing.T, x exchanges) {
		late, hangUp := x.begin("POST", "", strings.Replace(callOf("1", "count", `{"n":10}`), `,"_meta":{"progressToken":"t"}`, "", 1))
		time.Sleep(1500 * time.Millisecond)
		hangUp()
		if got := <-late; got != "id: 1/0\ndata:\n\n" {
			t.Errorf("%q", got)
		}
		rest, _ := x.begin("GET", "1/0", "")
		if got := <-rest; !strings.HasPrefix(got, "id: 1/1\ndata: ") || !strings.Contains(got, "counted to 10") {
			t.Errorf("%q", got)
		}
	})
}

// All sessions are told of a new note, once. What comes while a GET is cut off is there for the next one, and what comes before the first is not.
func TestAnnouncements(t *testing.T) {
	inBubble(t, func(t *testing.T, x exchanges) {
		y := exchanges{x.srv, newSession(x.srv, "{}")}
		write := func(name string) {
			exchange(x.srv, "POST", x.header, callOf("1", "set-note", `{"name":"`+name+`","text":"x"}`))
			synctest.Wait()
		}
		write("before")
		first, hangUp := x.begin("GET", "", "")
		other, _ := y.begin("GET", "", "")
		write("a")
		write("a")
		hangUp()
		if got := <-first; strings.Count(got, "list_changed") != 1 || !strings.HasPrefix(got, "id: 0/1\ndata:\n\nid: 0/2\n") {
			t.Errorf("%q", got)
		}
		write("b")
		second, _ := x.begin("GET", "", "")
		for _, session := range []exchanges{x, y} {
			exchange(x.srv, "DELETE", session.header, "")
		}
		if got := <-second; !strings.HasPrefix(got, "id: 0/2\ndata:\n\nid: 0/3\n") {
			t.Errorf("%q", got)
		}
		if got := <-other; strings.Count(got, "list_changed") != 2 {
			t.Errorf("%q", got)
		}
	})
}

// A tool that panics fails alone.
func TestPanic(t *testing.T) {
	defer func(all []tool) { tools = all }(tools)
	tools = append(slices.Clone(tools), tool{Name: "panic", run: func(*call, json.RawMessage) (string, error) { panic("boom") }})
	srv := newServer()
	if w := exchange(srv, "POST", newSession(srv, "{}"), callOf("1", "panic", "{}")); !strings.Contains(w.Body.String(), `"id":1,"error":{"code":-32603`) {
		t.Error(w.Body)
	}
}

// A copy of the server with the tool of README.md, put where README.md says, does what README.md shows below it.
func TestAnotherTool(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	readme := readFile(t, "README.md")
	_, readme, _ = strings.Cut(readme, "\n## Another tool\n")
	tool := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(readme)
	shown := regexp.MustCompile(`(?m)^    \$ go run \. (call .*) http://\S+\n    (.*)\n`).FindStringSubmatch(readme)
	if tool == nil || shown == nil {
		t.Fatal("README.md shows no tool, or no call of it")
	}
	mine, source := t.TempDir(), readFile(t, "tools.go")
	for place, text := range map[string]string{
		"\nfunc echo(":     "\n" + tool[1] + "\nfunc echo(",
		", setNote},\n}\n": ", setNote},\n\trepeatTool,\n}\n",
	} {
		if strings.Count(source, place) != 1 {
			t.Errorf("tools.go has %d of %q", strings.Count(source, place), place)
		}
		source = strings.Replace(source, place, text, 1)
	}
	for name, text := range map[string]string{"go.mod": "module example.com/mine\n\ngo 1.26\n", "main.go": readFile(t, "main.go"), "tools.go": source} {
		if err := os.WriteFile(filepath.Join(mine, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goCommand(t, mine, "vet", ".")
	goCommand(t, mine, "build", "-o", "server", ".")
	url := "http://" + serve(t, filepath.Join(mine, "server")) + "/mcp"
	if got := goCommand(t, ".", append(strings.Fields("run ../.. "+shown[1]), url)...); got != shown[2]+"\n" {
		t.Errorf("got %q, want %q", got, shown[2])
	}
}

func readFile(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// goCommand runs the go command, and returns what it prints to standard output.
func goCommand(t *testing.T, folder string, args ...string) (printed string) {
	var stderr strings.Builder
	command := exec.Command("go", args...)
	command.Dir, command.Env, command.Stderr = folder, append(os.Environ(), "GOWORK=off"), &stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("go %v: %v: %s", args, err, &stderr)
	}
	return string(out)
}

// serve starts a server, and returns its address when it listens. The server ends with the test.
func serve(t *testing.T, program string) (address string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = listener.Addr().String() // free again when the listener is closed
	listener.Close()
	server := exec.Command(program, "-http", address)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// The file about the wire is not longer than README.md says, and README.md names what it leaves out of the lessons' messages.
func TestReadme(t *testing.T) {
	if n := strings.Count(readFile(t, "main.go"), "\n"); n > 580 {
		t.Errorf("main.go has %d lines", n)
	}
	named := regexp.MustCompile("`[^`\n]+`").FindAllString(readFile(t, "README.md"), -1)
	for _, name := range missing {
		if !slices.Contains(named, "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
