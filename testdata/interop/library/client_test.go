package library

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"interop/shared"
	"interop/wire"
)

// Calls whose answers come at the moment that another call finds the session gone: each has its answer or the reason, and none waits for
// ever.
func TestClientAnswersAsSessionEnds(t *testing.T) {
	shared.CheckLeaks(t)
	for range 20 {
		gate := make(chan struct{})
		var begun sync.WaitGroup
		begun.Add(20)
		var sessions atomic.Int32
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			m := wire.Decode(body).Messages[0]
			switch {
			case r.Method != "POST":
				w.WriteHeader(405)
			case m.Method == "initialize":
				w.Header().Set("Mcp-Session-Id", fmt.Sprint("s", sessions.Add(1)))
				say(w, m, 200, legacyHello)
			case m.Method == "slow":
				say(w, m, 200, ": working\n\n")
				begun.Done()
				<-gate
				_, _ = io.WriteString(w, strings.ReplaceAll("data: "+emptyResult+"\n\n", "ID", m.ID.String()))
			case m.Method == "quick" && r.Header.Get("Mcp-Session-Id") == "s1":
				close(gate)
				w.WriteHeader(404)
			default:
				say(w, m, 200, emptyResult)
			}
		}))
		c := dial(t, wire.HTTPDialer{URL: s.URL}, &wire.Client{Versions: []string{"2025-11-25"}})
		ended := make(chan error, 21)
		call := func(method string) { ended <- c.Call(context.Background(), method, nil, nil) }
		for range 20 {
			go call("slow")
		}
		begun.Wait()
		go call("quick")
		for range 21 {
			select {
			case err := <-ended:
				if err != nil && !errors.Is(err, wire.ErrSessionEnded) {
					t.Error(err)
				}
			case <-time.After(5 * time.Second):
				t.Fatal("a call waits for ever")
			}
		}
		c.Close()
		s.CloseClientConnections()
		s.Close()
	}
}

// slowConn is a Conn that takes a moment to close.
type slowConn struct{ wire.Conn }

func (c slowConn) Close() error {
	time.Sleep(100 * time.Millisecond)
	return c.Conn.Close()
}

// Sessions are lost in the handshake, and then each second while nobody calls. What a lost connection has still to say does not count
// against the one that is made in its place, and it is closed, not kept.
func TestClientDropsConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sessions := 0
		var open atomic.Int32
		lossy := dialled(played(func(r *http.Request, m *wire.Message) (int, string) {
			switch {
			case m.Method == "initialize":
				sessions++
				return 200, legacyHello
			case m.Method == "notifications/initialized" && sessions == 1:
				time.Sleep(time.Second)
				return 404, ""
			case m.Method != "":
				return 200, emptyResult
			case r.Header.Get("Last-Event-Id") == "":
				return 200, "id: 1\nretry: 500\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n"
			}
			return 404, ""
		}))
		c := &wire.Client{Info: shared.Me, Versions: []string{"2025-11-25"}}
		err := c.Connect(t.Context(), shared.Counted(wire.DialerFunc(func(ctx context.Context) (wire.Conn, error) {
			conn, err := lossy.Dial(ctx)
			return slowConn{conn}, err
		}), &open))
		for range 10 {
			err = cmp.Or(err, c.Call(t.Context(), "m", nil, nil))
			time.Sleep(2 * time.Second)
		}
		synctest.Wait()
		if err != nil || open.Load() != 0 || sessions != 11 {
			t.Errorf("%v: %d connections after %d sessions", err, open.Load(), sessions)
		}
		c.Close()
	})
}

// brokenBody is the body of a response whose connection breaks after so many bytes.
type brokenBody struct {
	io.ReadCloser
	left int
}

func (b *brokenBody) Read(p []byte) (int, error) {
	if b.left <= 0 {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left)])
	b.left -= n
	return n, err
}

// A call with 200 steps of progress whose connection breaks after any number of bytes, many times over: each step arrives once, in order,
// and so does the result. The call is POSTed once.
func TestClientResumes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		network := bubbleNet(t, h)
		posts, gets := 0, 0
		cutting := shared.RoundTrip(func(r *http.Request) (*http.Response, error) {
			resp, err := network.RoundTrip(r)
			switch {
			case err != nil || resp.Header.Get("Content-Type") != "text/event-stream":
				return resp, err
			case r.Method == "POST":
				posts++
			case r.Header.Get("Last-Event-Id") != "":
				gets++
			default:
				return resp, nil
			}
			resp.Body = &brokenBody{resp.Body, 60 + rand.N(4000)} // the id of the priming event comes through
			return resp, nil
		})
		var steps []string
		var log shared.Output
		c := dial(t, dialled(cutting), &wire.Client{Log: slog.New(slog.NewTextHandler(&log, nil)), Versions: []string{"2025-11-25"}})
		err := c.CallWithProgress(t.Context(), "tools/call", json.RawMessage(`{"name":"count","arguments":{"n":200,"delayMs":1}}`), nil, func(p wire.ProgressParams) {
			steps = append(steps, fmt.Sprint(p.Progress))
		})
		if err != nil || !slices.Equal(steps, shared.Numbers(1, 201)) || posts != 1 || gets < 5 {
			t.Errorf("%v: %d steps, %v; %d streams, continued %d times", err, len(steps), steps, posts, gets)
		}
		c.Close()
		h.Close()
		if log.String() != "" { // also of the events that only give an id
			t.Error(log.String())
		}
	})
}

// Authorization plugs in as a Transport: it sees each request, and what a 401 asks for. Without one the error says it.
func TestClientAuthorization(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		valid := "one"
		h.Authenticate = func(r *http.Request) (string, error) {
			if r.Header.Get("Authorization") != "Bearer "+valid {
				return "", &wire.AuthError{Status: 401, Challenge: `Basic realm="old", Bearer resource_metadata="https://x.example/a?b=\"c\"", scope="mcp:read mcp:write", error=invalid_token`}
			}
			return "u", nil
		}
		network := bubbleNet(t, h)
		var token atomic.Value
		token.Store("")
		auth := shared.RoundTrip(func(r *http.Request) (*http.Response, error) { // as a client of OAuth would
			for again := false; ; again = true {
				attempt := r.Clone(r.Context())
				if r.GetBody != nil {
					attempt.Body, _ = r.GetBody()
				}
				attempt.Header.Set("Authorization", "Bearer "+token.Load().(string))
				resp, err := network.RoundTrip(attempt)
				if err != nil || resp.StatusCode != 401 || again {
					return resp, err
				}
				resp.Body.Close()
				token.Store(valid)
			}
		})
		var fault *wire.HTTPError
		client := &wire.Client{Info: shared.Me, Versions: []string{"2025-11-25"}}
		if err := client.Connect(t.Context(), dialled(network)); !errors.As(err, &fault) || fault.Status != 401 {
			t.Fatal(err)
		}
		want := map[string]string{"resource_metadata": `https://x.example/a?b="c"`, "scope": "mcp:read mcp:write", "error": "invalid_token"}
		if got := fault.Challenge("bearer"); !maps.Equal(got, want) {
			t.Error(got)
		}
		dial(t, dialled(auth), client)
		synctest.Wait()
		valid = "two" // the old one has expired
		if err := client.Call(t.Context(), "tools/list", nil, nil); err != nil || token.Load() != "two" {
			t.Error(err, token.Load())
		}
	})
}

// The same over TLS and HTTP/2, where all is in one connection: calls, streams, a cancellation, a session that the server closes, and the end.
func TestClientHTTP2(t *testing.T) {
	shared.CheckLeaks(t)
	h := newHandler(t, newDemo())
	var running atomic.Int32 // POSTs
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == "POST" {
			running.Add(1)
			defer running.Add(-1)
		}
		h.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := dial(t, wire.HTTPDialer{Client: server.Client(), URL: server.URL}, &wire.Client{Versions: []string{version}})
		ctx, cancel := context.WithCancel(t.Context())
		steps := 0
		count := func(n, delayMs int) error {
			params := wire.CallToolParams{Name: "count", Arguments: map[string]int{"n": n, "delayMs": delayMs}}
			return c.CallWithProgress(ctx, "tools/call", params, nil, func(wire.ProgressParams) {
				if steps++; steps == 11 {
					cancel()
				}
			})
		}
		if err := count(10, 0); err != nil || steps != 10 {
			t.Error(version, err, steps)
		}
		if err := count(1000, 100); err != context.Canceled {
			t.Error(version, err)
		}
		shared.WaitFor(t, func() bool { return running.Load() == 0 })
		for _, s := range h.Sessions.All() { // the next call begins another
			_ = s.Close()
		}
		if err := c.Call(t.Context(), "tools/list", nil, nil); err != nil {
			t.Error(version, err)
		}
		began := time.Now()
		if err := c.Close(); err != nil || time.Since(began) > time.Second || h.Sessions.Len() != 0 {
			t.Error(version, err, time.Since(began), h.Sessions.Len())
		}
	}
}

// A call ends with its context though nobody takes what has come before its answer.
func TestClientHandlerStuck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		posts := played(func(r *http.Request, m *wire.Message) (status int, body string) {
			switch m.Method {
			case "initialize":
				return 200, legacyHello
			case "tools/call":
				<-r.Context().Done()
				return 0, ""
			}
			return 202, ""
		})
		network := shared.RoundTrip(func(r *http.Request) (*http.Response, error) {
			if r.Method == http.MethodGet {
				return respondTo(r, strings.Repeat("data: {\"jsonrpc\":\"2.0\",\"method\":\"n\"}\n\n", 64)), nil
			}
			return posts.RoundTrip(r)
		})
		stuck := make(chan bool)
		c := dial(t, dialled(network), &wire.Client{Versions: []string{"2025-11-25"}, Handler: wire.HandlerFunc(func(context.Context, *wire.Exchange) (any, error) { <-stuck; return nil, nil })})
		synctest.Wait() // the queue is full
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		err := c.Call(ctx, "tools/call", map[string]any{"name": "odd"}, nil)
		if took := time.Since(began); !errors.Is(err, context.DeadlineExceeded) || took > 2*time.Second {
			t.Errorf("%v after %v", err, took)
		}
		close(stuck)
	})
}

func TestChallenge(t *testing.T) {
	for header, want := range map[string]string{
		`Bearer`:                "map[]",
		`bearer A=b`:            "map[a:b]",
		`Bearer a="1, 2", b=3`:  "map[a:1, 2 b:3]",
		`Bearer a = "x" , b= y`: "map[a:x b:y]",
		`Bearer a="\"\\"`:       `map[a:"\]`,
		`Basic realm="Bearer x=1", Bearer scope=y`: "map[scope:y]",
		`Bearer scope=y, Basic realm="x"`:          "map[scope:y]",
		`Negotiate abc==, Bearer scope=y`:          "map[scope:y]",
		`Bearer scope=1, scope=2`:                  "map[scope:1]",
		`Bearer a="no end`:                         "map[a:no end]",
		`"", Bearer a=1`:                           "map[a:1]",
		`Basic realm=x`:                            "map[]",
		strings.Repeat("a ", 5<<20) + "Bearer a=1": "map[]", // as long as a header may be: it is not looked at to the end
		``: "map[]",
	} {
		e := &wire.HTTPError{Header: http.Header{"Www-Authenticate": {header}}}
		if got := e.Challenge("Bearer"); fmt.Sprint(got) != want {
			t.Errorf("%s: %v, want %s", header, got, want)
		}
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

// The compatibility matrix of 2026-07-28 basic/versioning, with our own two ends.
func TestEras(t *testing.T) {
	eras := map[string][]string{"modern": {"2026-07-28"}, "legacy": {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}, "dual": {}} // an empty list stands for all, as nil does
	want := map[string]string{
		"modern modern": "2026-07-28", "modern legacy": "", "modern dual": "2026-07-28",
		"legacy modern": "", "legacy legacy": "2025-11-25", "legacy dual": "2025-11-25",
		"dual modern": "2026-07-28", "dual legacy": "2025-11-25", "dual dual": "2026-07-28",
	}
	for transport, dialer := range map[string]func(*wire.Server) wire.Dialer{"stdio": func(d *wire.Server) wire.Dialer {
		return pipeTo(t, d)
	}, "HTTP": func(d *wire.Server) wire.Dialer {
		h := newHandler(t, d)
		h.Versions = d.Versions
		return wire.HTTPDialer{Client: wire.WithHeader(nil, nil), URL: serveWeb(t, h).url} // no Client is that of net/http
	}} {
		for pair, version := range want {
			client, server, _ := strings.Cut(pair, " ")
			demo := newDemo()
			demo.Versions = eras[server]
			c := &wire.Client{Info: shared.Me, Versions: eras[client]}
			err := c.Connect(t.Context(), dialer(demo))
			if got := c.Server().Version; got != version || (err == nil) != (got != "") {
				t.Errorf("%s, %s: %q, %v", transport, pair, got, err)
			}
			if err == nil {
				err = c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"echo","arguments":{"text":"x"}}`), nil)
			} else if server != "modern" || strings.Contains(err.Error(), "2026-07-28") { // which says what it speaks
				err = nil
			}
			if err != nil {
				t.Errorf("%s, %s: %v", transport, pair, err)
			}
			c.Close()
		}
	}
}

// When a call has its answer, nobody is told of its progress any more.
func TestProgressAfterAnswer(t *testing.T) {
	var token json.RawMessage
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{
		"slow": func(ctx context.Context, x *wire.Exchange) (any, error) {
			token = value(x.Request.Params, "_meta", "progressToken")
			return nil, x.Progress(ctx, 1, 0)
		},
		"late": func(ctx context.Context, x *wire.Exchange) (any, error) {
			return nil, x.Notify(ctx, "notifications/progress", map[string]any{"progressToken": token, "progress": 2})
		},
	}}
	c := connect(t, server, &wire.Client{Versions: []string{"2025-11-25"}})
	var told []float64
	err := c.CallWithProgress(t.Context(), "slow", nil, nil, func(p wire.ProgressParams) { told = append(told, p.Progress) })
	for range 2 { // what comes before the answer is handled before it
		err = errors.Join(err, c.Call(t.Context(), "late", nil, nil))
	}
	if err != nil || fmt.Sprint(told) != "[1]" {
		t.Error(told, err)
	}
}

// A server whose list of tools has no end does not keep the client for ever: it reads a thousand pages.
func TestListWithoutEnd(t *testing.T) {
	pages := 0
	network := played(func(_ *http.Request, m *wire.Message) (int, string) {
		switch m.Method {
		case "server/discover":
			return 200, modernHello
		case "tools/list":
			pages++
			return 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","tools":[],"nextCursor":"%d"}}`, pages)
		}
		return 400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"x"}}`
	})
	c := dial(t, dialled(network), &wire.Client{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Call(ctx, "tools/call", map[string]any{"name": "n"}, nil); err == nil || ctx.Err() != nil || pages < 2 || pages > 1000 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

// What is remembered of one client is bounded: here the URIs that it watches.
func TestRememberedIsBounded(t *testing.T) {
	const size, calls, most = 1000, 100, 64 << 10
	lines := []string{shared.InitializeLine("2025-11-25")}
	for i := range calls {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"a:%d%s"}}`, i, i, strings.Repeat("b", size)))
	}
	refused := strings.Count(strings.Join(converse(t, newDemo(), lines...), ""), `"error"`)
	if refused == calls || (calls-refused)*size > most {
		t.Errorf("%d of %d subscriptions are refused", refused, calls)
	}
}
