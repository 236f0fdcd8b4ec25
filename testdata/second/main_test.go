// SPDX-License-Identifier: 0BSD

package main

import (
	"mcpwire/testdata/lesson"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
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
			if n := (&lesson.Player{Handler: newServer(), Missing: missing, EventID: ours}).Play(t, "../"+name+".txtar"); n < 2 {
				t.Errorf("%d responses", n)
			}
		})
	}
}

// ours returns the id of an event as this server has it. Those of the lessons name the session, too: 84097828.1/0.
func ours(id string) string {
	_, id, _ = strings.Cut(id, ".")
	return id
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

// A call that is cancelled has no answer, and its stream ends. So do all streams when the client ends the session. An id is free again after its call.
func TestEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		header := newSession(srv, `{"elicitation":{}}`)
		ended := make(chan string)
		begin := func(method, body string) {
			go func() { ended <- exchange(srv, method, header, body).Body.String() }()
			synctest.Wait()
		}
		begin("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"ask"}}`)
		if w := exchange(srv, "POST", header, `{"jsonrpc":"2.0","id":1,"method":"ping"}`); w.Code != 400 {
			t.Errorf("%d for an id that is in use", w.Code)
		}
		exchange(srv, "POST", header, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		if got := <-ended; !strings.Contains(got, "elicitation/create") || strings.Contains(got, "result") {
			t.Error(got)
		}
		begin("GET", "")
		begin("POST", `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"count","arguments":{"n":5}}}`)
		if w := exchange(srv, "DELETE", header, ""); w.Code != 200 {
			t.Error(w.Code)
		}
		for range 2 {
			if got := <-ended; strings.Contains(got, "result") {
				t.Error(got)
			}
		}
		time.Sleep(time.Minute) // the goroutines of both calls have ended, or the test hangs
	})
}

// The file about the wire is not longer than README.md says, and README.md names what it leaves out of the lessons' messages.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 535 {
		t.Errorf("main.go has %d lines", n)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range missing {
		if !slices.Contains(regexp.MustCompile("`[^`\n]+`").FindAllString(string(readme), -1), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
