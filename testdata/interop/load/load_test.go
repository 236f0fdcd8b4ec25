// Package load shows what many clients cost a server, and that those which attack it cost nobody else much. The server is package wire over
// net/http, in this process, and in another one where it is attacked.
package load

import (
	"bytes"
	"fmt"
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

	onlyJSON   = "application/json"
	onlyEvents = "text/event-stream"
	both       = onlyJSON + ", " + onlyEvents
	legacy     = "2025-11-25"
	modern     = "2026-07-28"
)

func newServer() *wire.Server {
	return &wire.Server{Info: wire.Implementation{Name: "load", Version: "1"}, Capabilities: map[string]any{"resources": map[string]any{"listChanged": true}}, Announce: []string{"resources"}}
}

// client is a client of a server at a URL.
type client struct {
	*testing.T
	web *http.Client
	url string
}

// send sends a request of a session, or of none.
func (c client) send(method, body, session, accept string, more ...string) (*http.Response, error) {
	r, err := http.NewRequest(method, c.url, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", accept)
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
	}
	for line := range strings.SplitSeq(strings.Join(more, ""), "\r\n") {
		if name, value, ok := strings.Cut(line, ": "); ok {
			r.Header.Set(name, value)
		}
	}
	return c.web.Do(r)
}

// ask sends a request, and returns the response. Any status but 2xx is an error.
func (c client) ask(method, body, session, accept string, more ...string) (http.Header, string, error) {
	resp, err := c.send(method, body, session, accept, more...)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %.200s", resp.Status, bytes.TrimSpace(text))
	}
	return resp.Header, string(text), err
}

// open opens a session, and returns its id.
func (c client) open(version string) string {
	c.Helper()
	header, _, err := c.ask("POST", strings.Replace(hello, "2025-11-25", version, 1), "", both)
	id := header.Get("Mcp-Session-Id")
	if err != nil || id == "" {
		c.Fatalf("no session: %v", err)
	}
	if _, _, err := c.ask("POST", ready, id, both); err != nil {
		c.Fatal(err)
	}
	return id
}

// listen begins a stream, which is not read.
func (c client) listen(session string) {
	c.Helper()
	if _, err := c.send("GET", "", session, both); err != nil {
		c.Fatal(err)
	}
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

// What an idle session costs: a few KiB at most, and no goroutine. There may be 10,000, unless the program says otherwise.
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
	if (after-before)/n > 2500 || goroutines > base+2 {
		t.Errorf("%d bytes for each idle session, %d goroutines more", (after-before)/n, goroutines-base)
	}
	if w := post(hello, ""); w.Code != http.StatusServiceUnavailable {
		t.Errorf("one session more than the bound: %d %s", w.Code, w.Body)
	}
}

// What an idle stream costs over what net/http needs for any stream: next to nothing, and no goroutine.
func TestManyStreams(t *testing.T) {
	const n = 300
	measure := func(h http.Handler, begin func(c client)) (bytes, goroutines int) {
		server := httptest.NewServer(h)
		heap, base := inUse()
		for range n {
			begin(client{t, server.Client(), server.URL})
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
	}), func(c client) { c.listen("") })
	handler := func() http.Handler {
		return &wire.StreamableHandler{Handler: newServer(), Sessions: &wire.Sessions{}}
	}
	sessions, _ := measure(handler(), func(c client) { c.open(legacy) })
	streams, goroutines := measure(handler(), func(c client) { c.listen(c.open(legacy)) })
	t.Logf("%d bytes for each idle stream, net/http and its client included; bare %d", (streams-sessions)/n, bare/n)
	if float64(streams-sessions) > 1.2*float64(bare) || goroutines > bareGoroutines+10 {
		t.Errorf("%d bytes, bare %d; %d goroutines, bare %d", streams-sessions, bare, goroutines, bareGoroutines)
	}
}
