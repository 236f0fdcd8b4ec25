// Package load shows what many clients cost a server, and that those which attack it cost nobody else much. The server is package wire over
// net/http, in this process, and in another one where it is attacked.
package load

import (
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
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
	server := &wire.Server{Info: wire.Implementation{Name: "load", Version: "1"}, Capabilities: map[string]any{"resources": map[string]any{"listChanged": true}},
		Methods: map[string]wire.HandlerFunc{}}
	server.AnnounceChanges()
	return server
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

// open begins a session, and returns its id.
func open(t *testing.T, c *http.Client, url string) (session string) {
	t.Helper()
	for _, body := range []string{hello, ready} {
		resp := do(t, c, "POST", url, session, body)
		_, _ = io.Copy(io.Discard, resp.Body)
		resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatal(resp.Status)
		}
		if body == hello {
			session = resp.Header.Get("Mcp-Session-Id")
		}
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

// What an idle session costs: less than a KiB, and no goroutine. There may be 10,000, unless the program says otherwise.
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
	if w := post(hello, ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one session more than the bound: %d %s", w.Code, w.Body)
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
