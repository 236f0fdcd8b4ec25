package library

import (
	"context"
	"errors"
	"interop/shared"
	"net/http"
	"strings"
	"testing"

	"interop/wire"
)

// These tests are for rules that no golden file shows.

// Only a request repeats arguments in its header: for a notification HeaderParams is not asked.
func TestNotificationNeedsNoHeaderParams(t *testing.T) {
	h := &wire.StreamableHandler{Handler: newDemo(), HeaderParams: func(string) []wire.HeaderParam {
		return []wire.HeaderParam{{Name: "City", Path: []string{"city"}}}
	}}
	defer h.Close()
	const params = `"name":"echo","arguments":{"city":"Bern"}`
	lines := modernLines("tools/call", "echo")
	if w := visit(h, "POST", modernRequest("tools/call", params), lines...).answered(); w.Code != 400 || !strings.Contains(w.Body.String(), "Mcp-Param-City is missing") {
		t.Errorf("a request: %d %s", w.Code, w.Body)
	}
	if w := visit(h, "POST", `{"jsonrpc":"2.0","method":"tools/call","params":{`+params+`}}`, lines...).answered(); w.Code != 202 {
		t.Errorf("a notification: %d %s", w.Code, w.Body)
	}
}

// A Write that Close ends says so, and not that a context was cancelled.
func TestSSEWriteEndsWithClose(t *testing.T) {
	posting := make(chan struct{})
	network := shared.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return respondTo(r, "event: endpoint\ndata: /post\n\n"), nil
		}
		close(posting)
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	conn, err := wire.SSEDialer{URL: "http://odd.example/sse", Client: &http.Client{Transport: network}}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	written := make(chan error, 1)
	go func() { written <- conn.Write(context.Background(), wire.Decode([]byte(ping))) }()
	<-posting
	_ = conn.Close()
	if err := <-written; !errors.Is(err, wire.ErrClosed) {
		t.Error(err)
	}
}

// The error of a redirect shows where it leads, but not the query, which may hold a key.
func TestRedirectShowsNoQuery(t *testing.T) {
	err := &wire.HTTPError{Status: 301, Header: http.Header{"Location": {"https://example.com/mcp?key=secret"}}}
	if want := `HTTP 301 Moved Permanently: not followed to "https://example.com/mcp"`; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
