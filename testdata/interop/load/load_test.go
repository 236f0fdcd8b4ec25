// Package load shows what many clients cost a server, and that one which does not read costs nobody else. The server is package wire over
// net/http, in this process.
package load

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

const (
	hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"load","version":"1"}}}`
	ready = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	ping  = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
)

func newServer() *wire.Server {
	return &wire.Server{Info: wire.Implementation{Name: "load", Version: "1"}, Capabilities: map[string]any{"resources": map[string]any{"listChanged": true}},
		Methods: map[string]wire.HandlerFunc{}}
}

// do sends a request of a session, or of none.
func do(t *testing.T, c *http.Client, method, url, session, body string) *http.Response {
	t.Helper()
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	resp, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// quick is do for what is answered at once.
func quick(t *testing.T, c *http.Client, method, url, session, body string) *http.Response {
	t.Helper()
	resp := do(t, c, method, url, session, body)
	_, _ = io.Copy(io.Discard, resp.Body)
	resp.Body.Close()
	return resp
}

// open begins a session, and returns its id.
func open(t *testing.T, c *http.Client, url string) string {
	t.Helper()
	session := quick(t, c, "POST", url, "", hello).Header.Get("Mcp-Session-Id")
	if resp := quick(t, c, "POST", url, session, ready); session == "" || resp.StatusCode != 202 {
		t.Fatal(session, resp.Status)
	}
	return session
}

// inUse returns the bytes of heap and stacks in use, and the goroutines.
func inUse() (bytes, goroutines int) {
	for range 3 {
		runtime.GC()
		time.Sleep(10 * time.Millisecond)
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc + m.StackInuse), runtime.NumGoroutine()
}

// What an idle session costs: less than a KiB, and no goroutine.
func TestManySessions(t *testing.T) {
	h := &wire.StreamableHandler{Handler: newServer(), Sessions: &wire.Sessions{}}
	defer h.Close()
	post := func(body, id string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("POST", "/mcp", strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		r.Header.Set("Mcp-Session-Id", id)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		return w
	}
	before, base := inUse()
	const n = 10_000
	for range n {
		if w := post(ready, post(hello, "").Header().Get("Mcp-Session-Id")); w.Code != 202 {
			t.Fatal(w.Code)
		}
	}
	after, goroutines := inUse()
	t.Logf("%d bytes for each idle session", (after-before)/n)
	if (after-before)/n > 1024 || goroutines > base+2 {
		t.Errorf("%d bytes for each idle session, %d goroutines more", (after-before)/n, goroutines-base)
	}
}

// What an idle stream costs over what net/http needs for any stream: next to nothing, and no goroutine.
func TestManyStreams(t *testing.T) {
	const n = 300
	measure := func(h http.Handler, begin func(c *http.Client, url string)) (bytes, goroutines int) {
		server := httptest.NewServer(h)
		heap, base := inUse()
		for range n {
			begin(server.Client(), server.URL)
		}
		heap2, now := inUse()
		server.CloseClientConnections()
		if ours, ok := h.(*wire.StreamableHandler); ok {
			ours.Close()
		}
		server.Close()
		return heap2 - heap, now - base
	}
	bare, bareGoroutines := measure(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.WriteHeader(200)
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}), func(c *http.Client, url string) { do(t, c, "GET", url, "", "") })
	handler := func() http.Handler {
		return &wire.StreamableHandler{Handler: newServer(), Sessions: &wire.Sessions{}}
	}
	sessions, _ := measure(handler(), func(c *http.Client, url string) { open(t, c, url) })
	both, goroutines := measure(handler(), func(c *http.Client, url string) { do(t, c, "GET", url, open(t, c, url), "") })
	t.Logf("%d bytes for each idle stream, net/http and its client included; bare %d", (both-sessions)/n, bare/n)
	if float64(both-sessions) > 1.2*float64(bare) || goroutines > bareGoroutines+10 {
		t.Errorf("%d bytes, bare %d; %d goroutines, bare %d", both-sessions, bare, goroutines, bareGoroutines)
	}
}

// A thousand clients that never say goodbye leave nothing behind. The one that listens stays, and hears what changes.
func TestSessionsEnd(t *testing.T) {
	demo := newServer()
	h := &wire.StreamableHandler{Handler: demo, Sessions: &wire.Sessions{IdleTimeout: 50 * time.Millisecond}}
	server := httptest.NewServer(h)
	defer server.Close()
	defer h.Close()
	session := open(t, server.Client(), server.URL)
	stream := do(t, server.Client(), "GET", server.URL, session, "")
	for stream.StatusCode == 404 { // on a busy machine, the session is over before the GET has come
		stream.Body.Close()
		session = open(t, server.Client(), server.URL)
		stream = do(t, server.Client(), "GET", server.URL, session, "")
	}
	defer stream.Body.Close()
	before, base := inUse()
	for range 1000 {
		quick(t, server.Client(), "POST", server.URL, "", hello)
	}
	for began := time.Now(); h.Sessions.Len() > 1; time.Sleep(10 * time.Millisecond) {
		if time.Since(began) > time.Minute {
			t.Fatal(h.Sessions.Len(), "sessions")
		}
	}
	if after, goroutines := inUse(); goroutines > base+5 || after-before > 1<<20 {
		t.Errorf("%d goroutines and %d bytes more", goroutines-base, after-before)
	}
	demo.Publish("notifications/resources/list_changed", nil)
	in := bufio.NewReader(stream.Body)
	for line := ""; !strings.Contains(line, "list_changed"); {
		var err error
		if line, err = in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	if resp := quick(t, server.Client(), "DELETE", server.URL, session, ""); resp.StatusCode != 200 {
		t.Error(resp.Status)
	}
	if _, err := io.ReadAll(in); err != nil {
		t.Error("the stream goes on after DELETE:", err)
	}
}

// A client that does not read its stream delays neither its own other calls nor anybody else. What it is told waits in the handler, so that
// little of it is held.
func TestStalledReader(t *testing.T) {
	var sent atomic.Int64
	s := newServer()
	s.Methods["talk"] = func(ctx context.Context, x *wire.Exchange) (any, error) {
		for x.Notify(ctx, "notifications/x", map[string]string{"text": strings.Repeat("x", 10_000)}) == nil {
			sent.Add(1)
		}
		return nil, ctx.Err()
	}
	h := &wire.StreamableHandler{Handler: s, Sessions: &wire.Sessions{Keep: 4 << 20}}
	server := httptest.NewServer(h)
	defer server.Close()
	defer h.Close()
	session := open(t, server.Client(), server.URL)
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	before, _ := inUse()
	const talk = `{"jsonrpc":"2.0","id":3,"method":"talk"}`
	fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nMcp-Session-Id: %s\r\nContent-Length: %d\r\n\r\n%s", session, len(talk), talk)
	for last := int64(-1); last != sent.Load(); time.Sleep(200 * time.Millisecond) { // until it waits
		last = sent.Load()
	}
	for range 20 {
		if resp := quick(t, server.Client(), "POST", server.URL, session, ping); resp.StatusCode != 200 {
			t.Fatal(resp.Status)
		}
	}
	if after, _ := inUse(); sent.Load() == 0 || after-before > 8<<20 {
		t.Errorf("%d messages, %d bytes more", sent.Load(), after-before)
	}
	quick(t, server.Client(), "DELETE", server.URL, session, "")
}
