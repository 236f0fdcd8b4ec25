package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"interop/wire"
)

// These tests are for rules that no golden file shows.

// A large json.RawMessage becomes a result without a copy. A small one is copied, and the copy has no white space.
func TestLargeRawMessageIsNotCopied(t *testing.T) {
	large := json.RawMessage(`{ "pad": "` + strings.Repeat("x", 70_000) + `" }`)
	if m := wire.NewResponse(wire.NumberID(1), large, nil); len(m.Result) == 0 || &m.Result[0] != &large[0] {
		t.Errorf("%.50s is a copy", m.Result)
	}
	if m := wire.NewResponse(wire.NumberID(1), json.RawMessage(`{ "pad": "x" }`), nil); string(m.Result) != `{"pad":"x"}` {
		t.Errorf("%s", m.Result)
	}
}

// Only a request repeats arguments in its header: for a notification HeaderParams is not asked.
func TestNotificationNeedsNoHeaderParams(t *testing.T) {
	h := &wire.StreamableHandler{Handler: newDemo(), HeaderParams: func(string) []wire.HeaderParam {
		return []wire.HeaderParam{{Name: "City", Path: []string{"city"}}}
	}}
	defer h.Close()
	const params = `"name":"echo","arguments":{"city":"Bern"}`
	lines := append(modernLines("tools/call", "echo"), "Accept: application/json, text/event-stream")
	if w := posted(t.Context(), h, modernRequest("tools/call", params), lines...); w.Code != 400 || !strings.Contains(w.Body.String(), "Mcp-Param-City is missing") {
		t.Errorf("a request: %d %s", w.Code, w.Body)
	}
	if w := posted(t.Context(), h, `{"jsonrpc":"2.0","method":"tools/call","params":{`+params+`}}`, lines...); w.Code != 202 {
		t.Errorf("a notification: %d %s", w.Code, w.Body)
	}
}

// unflushed hides all that net/http can do.
type unflushed struct{ http.ResponseWriter }

// Where nothing can stream, a GET is refused. A DELETE needs no stream.
func TestDeleteWhereNothingStreams(t *testing.T) {
	h := newHandler(t, newDemo())
	behind := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(unflushed{w}, r) })
	session := openSession(h, "2025-11-25")
	if v := visit(behind, "GET", "", session).answered(); v.Code != 405 || v.Header().Get("Allow") != "POST, DELETE" {
		t.Errorf("GET: %d %s", v.Code, v.Body)
	}
	if v := visit(behind, "DELETE", "", session).answered(); v.Code != 200 || h.Sessions.Len() != 0 {
		t.Errorf("DELETE: %d %s", v.Code, v.Body)
	}
}

// A Write that Close ends says so, and not that a context was cancelled.
func TestSSEWriteEndsWithClose(t *testing.T) {
	posting := make(chan struct{})
	network := roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Method == http.MethodGet {
			return respondTo(r, 200, "text/event-stream", "event: endpoint\ndata: /post\n\n", true), nil
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

// When a call over HTTP has its answer, the connection does not hold the request any more.
func TestPostsAreLetGo(t *testing.T) {
	conn, err := dialled(played(func(*http.Request, *wire.Message) (int, string) { return 200, emptyResult })).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go func() {
		for {
			if _, err := conn.Read(); err != nil {
				return
			}
		}
	}()
	var sent []weak.Pointer[wire.Message]
	for n := range 20 {
		m, _ := wire.NewRequest(wire.NumberID(int64(n)), "m", map[string]string{"pad": "x"})
		sent = append(sent, weak.Make(m))
		if err := conn.Write(t.Context(), wire.Payload{Messages: []*wire.Message{m}}); err != nil {
			t.Fatal(err)
		}
	}
	runtime.GC()
	held := 0
	for _, m := range sent {
		if m.Value() != nil {
			held++
		}
	}
	if held > 2 { // the last ones may be on a stack
		t.Errorf("%d requests of 20 are held", held)
	}
}

// brokenConn is a Conn that cannot write.
type brokenConn struct{ *textConn }

func (c brokenConn) Write(context.Context, wire.Payload) error { return errors.New("broken") }

// A conversation that ends because an answer cannot be written says so.
func TestServeSaysWhatCannotBeWritten(t *testing.T) {
	conn := brokenConn{newTextConn()}
	served := make(chan error, 1)
	handler := wire.HandlerFunc(func(context.Context, *wire.Exchange) (any, error) { return nil, nil })
	go func() { served <- wire.ServeConn(context.Background(), conn, handler, nil) }()
	conn.in <- []byte(ping)
	if err := <-served; err == nil || !strings.Contains(err.Error(), "write: broken") {
		t.Error(err)
	}
}

// The first and the last character that the id of a session may have are sent back.
func TestSessionIDAtTheEdges(t *testing.T) {
	const id = "!~"
	var repeated atomic.Bool
	server := sessionAt(": nothing\n\n", nil)
	network := roundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Header.Get("Mcp-Session-Id") == id {
			repeated.Store(true)
		}
		resp, err := server(r)
		if err == nil {
			resp.Header.Set("Mcp-Session-Id", id)
		}
		return resp, err
	})
	_ = connectTo(t, network, &wire.Client{Versions: []string{"2025-11-25"}}).Close()
	if !repeated.Load() {
		t.Error("the id is not repeated")
	}
}

// To make room for a request, one of the calls that have run for a minute is stopped here: the oldest of those whose clients have gone,
// although there are calls that are older, and a caller that has more of them.
func TestWhichCallMakesRoom(t *testing.T) {
	for range 8 { // the calls are looked at in any order
		synctest.Test(t, func(t *testing.T) {
			demo := newDemo()
			var stopped atomic.Value
			var count atomic.Int32
			demo.Methods["wait"] = func(ctx context.Context, x *wire.Exchange) (any, error) {
				<-ctx.Done()
				if count.Add(1) == 1 {
					stopped.Store(x.Request.ID.String())
				}
				return nil, ctx.Err()
			}
			h := &wire.StreamableHandler{Handler: demo, Sessions: &wire.Sessions{}, MaxRequests: 8}
			defer h.Close()
			call := func(session, id string) visitor {
				v := visit(h, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","method":"wait"}`, id), session, "Accept: application/json")
				time.Sleep(time.Second)
				return v
			}
			patient, leaving, other := openSession(h, "2025-11-25"), openSession(h, "2025-11-25"), openSession(h, "2025-11-25")
			for n := range 4 {
				call(patient, fmt.Sprint("patient ", n))
			}
			for _, id := range []string{"gone", "gone, too"} {
				call(leaving, id).leave()
			}
			call(other, "gone, and from another session").leave()
			time.Sleep(2 * time.Minute)
			visit(h, "POST", ping, openSession(h, "2025-11-25")).answered()
			synctest.Wait()
			if n, first := count.Load(), stopped.Load(); n != 1 || first != `"gone"` {
				t.Errorf("%d calls are stopped, the first is %v", n, first)
			}
		})
	}
}

// In the legacy era there is no subscriptions/listen, however large it is.
func TestLegacyListen(t *testing.T) {
	for _, text := range []string{"x", strings.Repeat("x", 1<<20)} {
		if out := answered(t, newServer(), "2025-11-25", "subscriptions/listen", `"x":"`+text+`"`); !strings.Contains(out, "-32601") {
			t.Errorf("%d bytes: %s", len(text), out)
		}
	}
}

// What a log has of a peer's text is short.
func TestLogIsShort(t *testing.T) {
	var text lockedBuffer
	log := slog.New(slog.NewTextHandler(&text, &slog.HandlerOptions{Level: slog.LevelDebug}))
	_, err := serveLines(t, newServer(), log, initializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":"`+strings.Repeat("y", 1000)+`","result":{}}`)
	logged := text.String()
	if n := strings.Count(logged, "y"); err != nil || n < 400 || n > 510 {
		t.Errorf("%d of 1000, %v: %s", n, err, logged)
	}
}

// The error of a redirect shows where it leads, but not the query, which may hold a key.
func TestRedirectShowsNoQuery(t *testing.T) {
	err := &wire.HTTPError{Status: 301, Header: http.Header{"Location": {"https://example.com/mcp?key=secret"}}}
	if want := `HTTP 301 Moved Permanently: not followed to "https://example.com/mcp"`; err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
