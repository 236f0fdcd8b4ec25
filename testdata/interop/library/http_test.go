package library

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"interop/shared"
	"interop/wire"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// A stream of 200 events, cut after each of them in turn and resumed by GET: each event once, in order, the result included.
func TestHTTPResume(t *testing.T) {
	shared.CheckLeaks(t)
	c := serveWeb(t, newHandler(t, newDemo())).open()
	step, ids := 1, map[string]bool{}
	if testing.Short() {
		step = 11
	}
	for cut := 0; cut <= 201; cut += step {
		last, n, resp := "", 0, c.send("POST", shared.ToolCall(cut, "count", `{"n":200}`))
		for _, most := range []int{cut, -1, -1} {
			for e, err := range wire.ReadEvents(resp.Body, testLimit) {
				if err != nil || ids[e.ID] {
					t.Fatalf("cut after %d: %v, or the same id twice in a session: %s", cut, err, e.ID)
				}
				if last, ids[e.ID] = e.ID, true; len(e.Data) > 0 {
					n++
				}
				if want := fmt.Sprintf(`"progress":%d,`, n); len(e.Data) > 0 && !strings.Contains(string(e.Data), want) && !(n == 201 && strings.Contains(string(e.Data), "counted to 200")) {
					t.Fatalf("cut after %d: event %d is %s", cut, n, e.Data)
				}
				if n == most {
					break
				}
			}
			resp.Body.Close()
			resp = c.send("GET", "", "Last-Event-ID: "+last)
		}
		if n != 201 {
			t.Fatalf("cut after %d: %d events", cut, n)
		}
	}
}

// The server ends the response, over HTTP/1.1 and HTTP/2, before it has said something and after. The client comes
// back, and finds the rest. Each response is complete.
func TestHTTPPolling(t *testing.T) {
	shared.CheckLeaks(t)
	for _, row := range []struct{ http2, talks bool }{{false, true}, {false, false}, {true, true}, {true, false}} {
		release, demo := make(chan struct{}), newDemo()
		demo.Methods["x"] = func(ctx context.Context, x *wire.Exchange) (any, error) {
			if row.talks {
				_ = x.Notify(ctx, "notifications/message", nil)
			}
			x.Disconnect(250 * time.Millisecond)
			<-release
			return nil, nil
		}
		server := httptest.NewUnstartedServer(newHandler(t, demo))
		if server.EnableHTTP2 = row.http2; row.http2 {
			server.StartTLS()
		} else {
			server.Start()
		}
		c := newWeb(t, server).open()
		resp := c.send("POST", `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		events, err := readEvents(resp.Body, 1000)
		last := events[len(events)-1]
		if (resp.ProtoMajor == 2) != row.http2 || last.Retry != 250*time.Millisecond || err != nil {
			t.Fatal(resp.Proto, events, err)
		}
		back := c.events(c.send("GET", "", "Last-Event-ID: "+last.ID))
		close(release)
		e := back()
		if _, text, _ := c.do("POST", ping); string(e.Data) != saysOK || text != saysOK { // and the connection pool is in order
			t.Error(e, text)
		}
		c.client.CloseIdleConnections()
		server.Close()
	}
}

// What runs without a session ends with the connection: nobody can come back for it.
func TestHTTPAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan struct{})
		h := &wire.StreamableHandler{Handler: wire.HandlerFunc(func(ctx context.Context, _ *wire.Exchange) (any, error) {
			<-ctx.Done()
			close(ended)
			return nil, nil
		})}
		defer h.Close()
		v := visit(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"x"}`)
		time.Sleep(time.Minute)
		select {
		case <-ended:
			t.Error("it ends while the client is there")
		default:
		}
		v.leave()
		<-ended
	})
}

// A client that closes its sending half looks like one that has gone. It gets no empty 200, but a status without a body, and nothing that
// the handler says later.
func TestHTTPModernHalfClosed(t *testing.T) {
	shared.CheckLeaks(t)
	h := newHandler(t, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		if x.Request.Method == "talk" {
			_ = x.Notify(ctx, "notifications/message", nil)
		}
		<-ctx.Done()
		for range 10 {
			_ = x.Notify(context.Background(), "notifications/late", nil)
		}
		return nil, nil
	}))
	plain := httptest.NewServer(h)
	defer plain.Close()
	behind := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(flushOnly{w}, r) }))
	defer behind.Close()
	for n := range 100 {
		method, server := []string{"talk", "quiet"}[n%2], []*httptest.Server{plain, behind}[n/2%2]
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		body := modernRequest(method, "")
		fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n%s\r\nContent-Length: %d\r\n\r\n%s", strings.Join(modernLines(method), "\r\n"), len(body), body)
		in := bufio.NewReader(conn)
		for line := ""; method == "talk" && !strings.Contains(line, "notifications/message"); {
			if line, err = in.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
		}
		_ = conn.(*net.TCPConn).CloseWrite()
		rest, _ := io.ReadAll(in)
		if isStatus := bytes.HasPrefix(rest, []byte("HTTP/1.1 499 ")); isStatus != (method == "quiet") || bytes.Contains(rest, []byte("jsonrpc")) {
			t.Errorf("%s: %s", method, rest)
		}
		conn.Close()
	}
}

// flushOnly hides all that net/http can do, but for flushing.
type flushOnly struct{ http.ResponseWriter }

func (w flushOnly) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// Close may be called by anyone, at any time, as by net/http when a server is shut down.
func TestHTTPShutdown(t *testing.T) {
	shared.CheckLeaks(t)
	h := newHandler(t, newDemo())
	server := httptest.NewServer(h)
	defer server.Close()
	server.Config.RegisterOnShutdown(h.Close)
	idle := newWeb(t, server).open().send("GET", "")
	var closing sync.WaitGroup
	for range 4 {
		closing.Go(h.Close)
	}
	if err := server.Config.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadAll(idle.Body); err != nil {
		t.Error(err)
	}
	closing.Wait()
	new(wire.StreamableHandler).Close()
	new(wire.SSEHandler).Close()
}

// wrapped hides all that a ResponseWriter can do behind Unwrap, as middleware does.
type wrapped struct{ w http.ResponseWriter }

func (w wrapped) Header() http.Header { return w.w.Header() }

func (w wrapped) Write(b []byte) (int, error) { return w.w.Write(b) }

func (w wrapped) WriteHeader(status int) { w.w.WriteHeader(status) }

func (w wrapped) Unwrap() http.ResponseWriter { return w.w }

// A server's time-outs end no request that takes longer: not a notification, nor an answer as JSON, nor a stream whose events come at once
// through middleware that can be unwrapped.
func TestHTTPTimeouts(t *testing.T) {
	demo := newDemo()
	demo.Methods["notifications/slow"] = func(context.Context, *wire.Exchange) (any, error) {
		time.Sleep(200 * time.Millisecond)
		return nil, nil
	}
	h := newHandler(t, demo)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { h.ServeHTTP(wrapped{w}, r) }))
	server.Config.WriteTimeout, server.Config.ReadTimeout = 100*time.Millisecond, 100*time.Millisecond
	server.Start()
	defer server.Close()
	defer h.Close()
	c := newWeb(t, server).open()
	idle := c.events(c.send("GET", "")) // the header comes though there is nothing to say
	counting := c.events(c.send("POST", shared.ToolCall(2, "count", `{"n":3,"delayMs":100}`)))
	for n := 1; n <= 3; n++ {
		if e := counting(); !strings.Contains(string(e.Data), fmt.Sprintf(`"progress":%d,`, n)) {
			t.Fatal(e)
		}
	}
	counting()
	demo.Publish("notifications/resources/list_changed", nil)
	idle()
	for body, want := range map[string]int{`{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"count","arguments":{"n":1,"delayMs":200}}}`: 200, `{"jsonrpc":"2.0","method":"notifications/slow"}`: 202} {
		if status, text, _ := c.do("POST", body); status != want || status == 200 && !strings.Contains(text, "counted") {
			t.Error(body, status, text)
		}
	}
}

// Ids of sessions are long, of visible ASCII, and tell nothing about each other.
func TestSessionIDs(t *testing.T) {
	h := &wire.StreamableHandler{Handler: newDemo(), Sessions: &wire.Sessions{}}
	defer h.Close()
	seen := map[string]bool{}
	for range 100 {
		id := visit(h, "POST", shared.InitializeLine("2025-11-25")).answered().Header().Get("Mcp-Session-Id")
		if !regexp.MustCompile("^[!-~]{26,}$").MatchString(id) || seen[id[:10]] || seen[id[len(id)-10:]] {
			t.Fatal(id)
		}
		seen[id[:10]], seen[id[len(id)-10:]] = true, true
	}
}

// A deadline that middleware has set is no client that has left: it is told.
func TestHTTPModernTimeLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			ctx, cancel := context.WithTimeout(r.Context(), 50*time.Millisecond)
			defer cancel()
			h.ServeHTTP(w, r.WithContext(ctx))
		})
		call := modernRequest("tools/call", `"name":"count","arguments":{"n":1,"delayMs":600000}`)
		w := visit(limited, "POST", call, modernLines("tools/call", "count")...).answered()
		if w.Code != 200 || !strings.Contains(w.Body.String(), "Stopped: the server or the session ends") {
			t.Error(w)
		}
	})
}

// A handler has so many subscriptions at once, whoever answers them. Beyond that they are refused, until one ends.
func TestHTTPListenBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, wire.HandlerFunc(func(ctx context.Context, _ *wire.Exchange) (any, error) { <-ctx.Done(); return nil, ctx.Err() }))
		body, lines := modernRequest("subscriptions/listen", `"notifications":{}`), modernLines("subscriptions/listen")
		var all []visitor
		for range 4096 {
			all = append(all, visit(h, "POST", body, lines...))
		}
		synctest.Wait()
		w := visit(h, "POST", body, lines...)
		synctest.Wait()
		if w.Code != 503 || w.Header().Get("Retry-After") == "" || !strings.Contains(w.Body.String(), `"id":1,"error":{"code":-32603,"message":"Too many subscriptions"`) {
			t.Error(w)
		}
		for _, v := range all {
			v.leave()
		}
		synctest.Wait()
		again := visit(h, "POST", body, lines...)
		synctest.Wait()
		if strings.Contains(again.Body.String(), "Too many") {
			t.Error(again)
		}
		again.leave()
	})
}

// A conversation of 2024-11-05 whose server stops: what is soon done is answered, and a handler that does not end is not waited for.
func TestSSEStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := &wire.SSEHandler{Handler: &wire.Server{Methods: map[string]wire.HandlerFunc{
			"soon":     func(context.Context, *wire.Exchange) (any, error) { time.Sleep(3 * time.Second); return nil, nil },
			"stubborn": func(context.Context, *wire.Exchange) (any, error) { <-release; return nil, nil },
		}}}
		network := &http.Client{Transport: bubbleNet(t, h)}
		c := dial(t, wire.SSEDialer{Client: network, URL: "http://127.0.0.1:8080/sse"}, &wire.Client{})
		soon, stubborn := make(chan error, 1), make(chan error, 1)
		go func() { soon <- c.Call(t.Context(), "soon", nil, nil) }()
		go func() { stubborn <- c.Call(t.Context(), "stubborn", nil, nil) }()
		time.Sleep(time.Second / 2) // both run
		began := time.Now()
		h.Close()
		if took := time.Since(began); took < 3*time.Second || took > 5*time.Second {
			t.Errorf("Close returns after %v", took)
		}
		if err := <-soon; err != nil {
			t.Error("what is soon done:", err)
		}
		close(release)
		if err := <-stubborn; err == nil {
			t.Error("it succeeds after Close")
		}
	})
}

// An event is bounded, a stream is not. How a stream is read is in testdata/cases/event-streams.txtar.
func TestReadEventsBounds(t *testing.T) {
	for in, want := range map[string]error{
		"data: " + strings.Repeat("x", 99) + "\n\n":      nil,
		"data: " + strings.Repeat("x", 101) + "\n\n":     wire.ErrTooLarge,
		strings.Repeat("data: x\n", 51) + "\n":           wire.ErrTooLarge,
		strings.Repeat("data: x\n\n", 5000):              nil,
		strings.Repeat(": 012345678901234567890\n", 100): nil,
		strings.Repeat("data\n", 120) + "\n":             wire.ErrTooLarge,
		strings.Repeat("y", 120) + "\n\n":                wire.ErrTooLarge,
	} {
		if _, err := readEvents(strings.NewReader(in), 100+len("data: ")); err != want {
			t.Errorf("%.40q: %v", in, err)
		}
	}
	big := strings.Repeat("0123456789", 5<<20/10)
	if events, err := readEvents(strings.NewReader("data: "+big+"\r\n\r\n"), 6<<20); err != nil || string(events[0].Data) != big {
		t.Error("a line of 5 MiB", err)
	}
}

// A client that leaves while initialize is slow ends the response on another goroutine than the one that writes the session's id into the header.
func TestClientLeavesSlowInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newServer()
		h := newHandler(t, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
			time.Sleep(200 * time.Millisecond)
			return server.Handle(ctx, x)
		}))
		for range 3 {
			v := visit(h, "POST", shared.InitializeLine("2025-11-25"))
			time.Sleep(199 * time.Millisecond)
			v.leave()
			v.answered()
		}
		if v := visit(h, "POST", shared.InitializeLine("2025-11-25")).answered(); v.Code != 200 {
			t.Error(v.Code, v.Body)
		}
	})
}
