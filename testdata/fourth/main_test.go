// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"mcpwire/testdata/lesson"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
)

// missing are the members of the lessons' messages that this server does not send, and those of which it has its own. README.md names each of them.
var missing = []string{"completions", "logging", "prompts", "instructions", "com.example.mcpwire/tool", "io.modelcontextprotocol/serverInfo",
	"supportedVersions", "supported", "message"}

// The modern road over HTTP: what the clients of these lessons send goes in, and what comes out is what the lessons have.
func TestLessons(t *testing.T) {
	for _, name := range []string{"12-http-modern-call", "13-http-subscription", "34-http-modern-status", "35-http-modern-input-required"} {
		t.Run(name, func(t *testing.T) {
			if n := (&lesson.Player{Handler: newServer(), Missing: missing}).Play(t, "../"+name+".txtar"); n < 3 {
				t.Errorf("%d responses", n)
			}
		})
	}
}

const meta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// newRequest returns a modern request. params are without _meta.
func newRequest(method, name, params string) (header map[string]string, body string) {
	if params != "" {
		params += ","
	}
	return map[string]string{"MCP-Protocol-Version": revision, "Mcp-Method": method, "Mcp-Name": name},
		`{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + meta + `}}`
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

// What else the comments promise of single requests.
func TestAnswers(t *testing.T) {
	srv := newServer()
	call := func(method, name, params string, status int, want string) {
		t.Helper()
		header, body := newRequest(method, name, params)
		if w := exchange(srv, "POST", header, body); w.Code != status || !strings.Contains(w.Body.String(), want) {
			t.Errorf("%s %s: %d %s", method, params, w.Code, w.Body)
		}
	}
	call("tools/list", "", "", 200, `"ttlMs":0`)
	call("tools/call", "no", `"name":"no"`, 200, `"code":-32602`)
	call("tools/call", "echo", `"name":"echo"`, 200, `"isError":true`)
	call("tools/call", "echo", `"name":"echo","arguments":{"text":5}`, 200, `"isError":true`)
	call("tools/call", "count", `"name":"count","arguments":{"n":1001}`, 200, `"isError":true`)
	call("tools/call", "count", `"name":"echo"`, 400, `"code":-32020`)
	for _, name := range []string{"=?base64?ZWNobw==!!?=", "=?base64?ZWNobw==", "=?base64?ZWNobx==?="} { // mostly echo
		call("tools/call", name, `"name":"echo"`, 400, `"code":-32020`)
	}
	call("tools/call", "set-note", `"name":"set-note","arguments":{"name":"ä","text":"x"}`, 200, `note:///ä`)
	call("resources/list", "", "", 200, `"uri":"note:///ä"`)
	call("resources/read", "=?base64?bm90ZTovLy/DpA==?=", `"uri":"note:///ä"`, 200, `"text":"x"`)
	call("resources/read", "ä", `"uri":"ä"`, 200, `"code":-32602`)
	call("resources/read", "note:///b", `"uri":"note:///b"`, 200, `"code":-32602`)

	header, body := newRequest("tools/list", "", "")
	for _, row := range []struct {
		method, field, value, body string
		status                     int
		want                       string
	}{
		{"POST", "X", "", `not json`, 400, `"code":-32700`},
		{"POST", "X", "", `[]`, 400, `"code":-32600`},
		{"POST", "X", "", `{"jsonrpc":"2.0","id":null,"method":"tools/list"}`, 400, `"code":-32600`},
		{"POST", "X", "", `{"jsonrpc":"2.0","id":1,"result":{}}`, 400, `"code":-32600`},
		{"POST", "X", "", `{"jsonrpc":"2.0","method":"notifications/x"}`, 202, ``},
		{"POST", "X", "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}`, 400, `"supported":["2026-07-28"]`},
		{"POST", "Mcp-Method", "tools/call", body, 400, `"code":-32020`},
		{"POST", "MCP-Protocol-Version", "2025-11-25", body, 400, `"code":-32020`},
		{"POST", "Origin", "https://example.com", body, 403, ``},
		{"GET", "X", "", ``, 405, ``},
	} {
		changed := map[string]string{row.field: row.value}
		for name, value := range header {
			if changed[name] == "" {
				changed[name] = value
			}
		}
		if w := exchange(srv, row.method, changed, row.body); w.Code != row.status || !strings.Contains(w.Body.String(), row.want) {
			t.Errorf("%s %s %s: %d %s", row.field, row.value, row.body, w.Code, w.Body)
		}
	}
}

// A body that cannot be read gets 400.
func TestBodies(t *testing.T) { lesson.CheckBodies(t, newServer(), maxSize) }

// A client that reads too slowly loses its subscription, and is told so by the result. Nothing remains of it.
func TestSlowSubscriber(t *testing.T) {
	srv := newServer()
	slow := &subscription{wanted{}, make(chan announcement, maxQueue)}
	srv.subscriptions[slow] = true
	for range maxQueue + 2 {
		srv.announce(slow, "notifications/resources/list_changed", object{})
	}
	for range slow.queue { // until it is closed
	}
	if len(srv.subscriptions) != 0 {
		t.Error("the subscription is still there")
	}

	synctest.Test(t, func(t *testing.T) {
		header, body := newRequest("subscriptions/listen", "", `"notifications":{"resourcesListChanged":true}`)
		ended := make(chan string)
		go func() { ended <- exchange(srv, "POST", header, body).Body.String() }()
		synctest.Wait()
		srv.mu.Lock()
		for s := range srv.subscriptions { // as announce does
			delete(srv.subscriptions, s)
			close(s.queue)
		}
		srv.mu.Unlock()
		if got := <-ended; !strings.Contains(got, `"result":{"_meta":{"io.modelcontextprotocol/serverInfo"`) || strings.Count(got, `subscriptionId":1`) != 2 {
			t.Error(got)
		}
	})
}

// A client that closes the connection cancels its call, or ends its subscription. A subscription hears what it has asked for, and nothing else.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		srv := newServer()
		begin := func(method, name, params string) (ended <-chan string, hangUp func()) {
			header, body := newRequest(method, name, params)
			ctx, cancel := context.WithCancel(context.Background())
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, "POST", "/mcp", strings.NewReader(body))
			for field, value := range header {
				r.Header.Set(field, value)
			}
			done := make(chan string, 1)
			go func() { srv.ServeHTTP(w, r); done <- w.Body.String() }()
			synctest.Wait()
			return done, cancel
		}
		counts, hangUp := begin("tools/call", "count", `"name":"count","arguments":{"n":1000}`)
		hangUp()
		if got := <-counts; strings.Contains(got, "counted") {
			t.Error(got)
		}
		hears, leave := begin("subscriptions/listen", "", `"notifications":{"resourcesListChanged":true}`)
		watches, leaveToo := begin("subscriptions/listen", "", `"notifications":{"resourceSubscriptions":["note:///a"]}`)
		for _, name := range []string{"a", "a", "b"} {
			<-first(begin("tools/call", "set-note", `"name":"set-note","arguments":{"name":"`+name+`","text":"x"}`))
		}
		leave()
		leaveToo()
		if a, b := <-hears, <-watches; strings.Count(a, "list_changed") != 2 || strings.Contains(a, "updated") ||
			strings.Count(b, `resources/updated`) != 2 || strings.Contains(b, "list_changed") {
			t.Errorf("%s\n%s", a, b)
		}
		if len(srv.subscriptions) != 0 {
			t.Errorf("%d subscriptions are left", len(srv.subscriptions))
		}
	})
}

func first(ended <-chan string, _ func()) <-chan string { return ended }

// A server with the tool of README.md, put where README.md says, has that tool, with its progress.
func TestAnotherTool(t *testing.T) { lesson.AnotherTool(t) }

// The file about the wire is not longer than README.md says, and README.md names what it leaves out of the lessons' messages.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(string(source), "\n"); n > 420 {
		t.Errorf("main.go has %d lines", n)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for name := range slices.Values(missing) {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
