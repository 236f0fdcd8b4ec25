package library

import (
	"context"
	"encoding/json"
	"fmt"
	"interop/wire"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

const noRoom = "Too much is held for clients at the moment"

// sized is a server whose method "sized" returns a text of so many bytes, in the way that "as" says. Its method "late" does so only when the
// request is cancelled.
func sized() (server *wire.Server, served *atomic.Int32) {
	served = new(atomic.Int32)
	result := func(_ context.Context, x *wire.Exchange) (any, error) {
		served.Add(1)
		var p struct {
			Size int    `json:"size"`
			As   string `json:"as,omitempty"`
		}
		if err := x.Bind(&p); err != nil {
			return nil, err
		}
		text := strings.Repeat("x", p.Size)
		switch p.As {
		case "tool":
			return wire.ToolResult{Content: []wire.Content{wire.TextContent(text)}}, nil
		case "resource":
			return wire.ReadResourceResult{Contents: []wire.ResourceContents{{URI: "file:///x", Text: text}}}, nil
		case "prompt":
			return wire.PromptResult{Messages: []wire.PromptMessage{{Role: "user", Content: wire.TextContent(text)}}}, nil
		case "raw":
			return json.RawMessage(`{"text":"` + text + `"}`), nil
		}
		return map[string]string{"text": text}, nil
	}
	return &wire.Server{Methods: map[string]wire.HandlerFunc{"sized": result, "late": func(ctx context.Context, x *wire.Exchange) (any, error) {
		<-ctx.Done()
		return result(ctx, x)
	}}}, served
}

func sizedCall(id, size int, as string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"sized","params":{"size":%d,"as":%q}}`, id, size, as)
}

// outcomes counts the responses to each id, and those that are errors for want of room.
func outcomes(t *testing.T, payloads ...[]byte) (times map[string]int, refused int) {
	times = map[string]int{}
	for _, payload := range payloads {
		for _, m := range wire.Decode(payload).Messages {
			times[m.ID.String()]++
			switch {
			case m.Kind() != wire.Response:
				t.Errorf("no response: %.200s", payload)
			case m.Error != nil && m.Error.Message != noRoom:
				t.Error(m.Error)
			case m.Error != nil:
				refused++
			}
		}
	}
	return times, refused
}

// A client of HTTP+SSE that does not read its stream is sent few large responses, and an error for each of the others. When it reads again, it
// finds one response to each request. Then there is room again.
func TestSSEUnreadResponses(t *testing.T) {
	const calls, size = 60, 512 << 10
	for _, as := range []string{"tool", "resource", "prompt", "raw", "map"} {
		t.Run(as, func(t *testing.T) {
			server, _ := sized()
			h := &wire.SSEHandler{Handler: server, Guard: wire.Guard{MaxHeld: 8 << 20, MaxBody: 512 << 10}}
			defer h.Close()
			c := serveWeb(t, h)
			in := c.events(c.send("GET", ""))
			c.url = strings.TrimSuffix(c.url, "/mcp") + string(c.next(in).Data)
			post := func(body string) {
				if status, text, _ := c.do("POST", body); status != 202 {
					t.Fatal(status, text)
				}
			}
			post(initializeLine("2024-11-05"))
			c.next(in)
			for id := range calls {
				post(sizedCall(id, size, as))
			}
			var responses [][]byte
			for range calls {
				responses = append(responses, c.next(in).Data)
			}
			times, refused := outcomes(t, responses...)
			if len(times) != calls {
				t.Errorf("%d of %d requests are answered", len(times), calls)
			}
			if refused < calls/2 || refused == calls {
				t.Errorf("%d of %d are refused", refused, calls)
			}
			for id := range 10 { // one after the other: the room is given back each time
				post(sizedCall(id, size, as))
				if e := c.next(in); len(e.Data) < size || e.Type != "message" {
					t.Fatalf("a response when all is read: %s %.200s", e.Type, e.Data)
				}
			}
		})
	}
}

// When one response of a batch has found no room, the requests of the batch that have not begun are not served. Each is answered once, over
// Streamable HTTP and over HTTP+SSE.
func TestBatchWithoutRoom(t *testing.T) {
	const calls, size = 1000, 1 << 20
	var batch []string
	for id := range calls {
		batch = append(batch, sizedCall(id, size, "tool"))
	}
	body := "[" + strings.Join(batch, ",") + "]"
	check := func(t *testing.T, served int32, payload []byte) {
		times, refused := outcomes(t, payload)
		if len(times) != calls || refused == 0 || refused == calls {
			t.Errorf("%d of %d requests are answered, %d with an error", len(times), calls, refused)
		}
		if served > 100 { // 16 at once
			t.Errorf("%d requests are served", served)
		}
	}
	guard := wire.Guard{MaxHeld: 16 << 20, MaxBody: 1 << 20}
	t.Run("HTTP", func(t *testing.T) {
		server, served := sized()
		h := newHandler(t, server)
		h.Guard = guard
		c := serveWeb(t, h).open("2025-03-26", "{}")
		_, text, _ := c.do("POST", body, "Accept: application/json")
		check(t, served.Load(), []byte(text))
		if status, text, _ := c.do("POST", sizedCall(1, size, "tool")); status != http.StatusOK || len(text) < size {
			t.Errorf("after the batch: %d %.200s", status, text)
		}
	})
	t.Run("SSE", func(t *testing.T) {
		server, served := sized()
		h := &wire.SSEHandler{Handler: server, Guard: guard}
		defer h.Close()
		c := serveWeb(t, h)
		in := c.events(c.send("GET", ""))
		c.url = strings.TrimSuffix(c.url, "/mcp") + string(c.next(in).Data)
		c.do("POST", initializeLine("2025-03-26"))
		c.next(in)
		c.do("POST", body)
		check(t, served.Load(), c.next(in).Data)
		c.do("POST", sizedCall(1, size, "tool"))
		if e := c.next(in); len(e.Data) < size {
			t.Errorf("after the batch: %.200s", e.Data)
		}
	})
}

// A small response waits for room. A large one is refused at once, because to wait would save no memory. What was taken for the response to a
// request that is cancelled is given back.
func TestResponsesWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, served := sized()
		release := make(chan struct{})
		server.Methods["hold"] = func(context.Context, *wire.Exchange) (any, error) { <-release; return nil, nil }
		h := &wire.StreamableHandler{Handler: server, Sessions: &wire.Sessions{}, Guard: wire.Guard{MaxHeld: 2 << 20, MaxBody: 256 << 10}}
		defer h.Close()
		session := openSession(h, "2025-11-25")
		for id := range 20 {
			late := visit(h, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"late","params":{"size":300000,"as":"tool"}}`, id), session)
			synctest.Wait()
			visit(h, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, id), session).answered()
			if late.answered(); served.Load() != int32(id+1) || late.Body.Len() > 0 {
				t.Fatalf("a cancelled request: %d %.200s", late.Code, late.Body)
			}
		}
		if v := visit(h, "POST", sizedCall(1, 300_000, "tool"), session).answered(); v.Code != 200 || v.Body.Len() < 300_000 {
			t.Errorf("after 20 cancelled requests: %d %.200s", v.Code, v.Body)
		}
		for id, size := range []int{200 << 10, 200 << 10, 60_000} { // together almost all that one caller may hold
			body := fmt.Sprintf(`{"jsonrpc":"2.0","id":"held %d","method":"hold","params":{"text":"%s"}}`, id, strings.Repeat("x", size))
			visit(h, "POST", body, session)
			synctest.Wait() // until the body is read
		}
		began := time.Now()
		for _, as := range []string{"tool", "raw", "map"} {
			v := visit(h, "POST", sizedCall(2, 70_000, as), session).answered()
			if v.Code != 503 || !strings.Contains(v.Body.String(), noRoom) || time.Since(began) > 0 {
				t.Errorf("a large response: %d %.200s after %v", v.Code, v.Body, time.Since(began))
			}
		}
		if v := visit(h, "POST", sizedCall(3, 60_000, "tool"), session, "Accept: application/json").answered(); v.Code != 503 || time.Since(began) != 5*time.Second {
			t.Errorf("a small response: %d %.200s after %v", v.Code, v.Body, time.Since(began))
		}
		small := visit(h, "POST", sizedCall(4, 60_000, "tool"), session)
		time.Sleep(time.Second)
		close(release)
		if v := small.answered(); v.Code != 200 || v.Body.Len() < 60_000 {
			t.Errorf("a small response for which there is room in time: %d %.200s", v.Code, v.Body)
		}
	})
}

// conversation is one of HTTP+SSE without a network.
type conversation struct {
	h    http.Handler
	name string
	user string
	get  visitor
}

// converseSSE begins a conversation. The handler's NewID must return this name.
func converseSSE(h http.Handler, name, user string) conversation {
	c := conversation{h, name, user, visit(h, "GET", "", "Authorization: "+user)}
	synctest.Wait()
	return c
}

// posts returns the status of a POST.
func (c conversation) posts(body string) int {
	r := request(context.Background(), "POST", body, "Authorization: "+c.user)
	r.URL.RawQuery = "session=" + c.name
	w := httptest.NewRecorder()
	c.h.ServeHTTP(w, r)
	synctest.Wait()
	return w.Code
}

// waiting is a server whose method "wait" returns when the channel is closed, or its request is cancelled.
func waiting() (server *wire.Server, release chan struct{}) {
	release = make(chan struct{})
	return &wire.Server{Methods: map[string]wire.HandlerFunc{"wait": func(ctx context.Context, _ *wire.Exchange) (any, error) {
		select {
		case <-release:
		case <-ctx.Done():
		}
		return nil, nil
	}}}, release
}

// named returns a function that returns a, b, and so on.
func named() func() string {
	var n atomic.Int32
	return func() string { return string(rune('a' - 1 + n.Add(1))) }
}

// The requests of all conversations of HTTP+SSE together are bounded, those of a batch and what is no message included. Of the last quarter, one
// conversation gets no more than is left. A place is given back when the request is answered, or cancelled, or when its conversation is over; what
// is not answered needs none.
func TestSSERequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, release := waiting()
		h := &wire.SSEHandler{Handler: server, MaxRequests: 8, NewID: named()}
		defer h.Close()
		var conversations []conversation
		for _, name := range []string{"a", "b", "c", "d"} {
			c := converseSSE(h, name, "")
			if status := c.posts(initializeLine("2025-03-26")); status != 202 {
				t.Fatal(status)
			}
			conversations = append(conversations, c)
		}
		a, b, c, d := conversations[0], conversations[1], conversations[2], conversations[3]
		call := func(id int) string { return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"wait"}`, id) }
		expect := func(want int, c conversation, body string) {
			t.Helper()
			if status := c.posts(body); status != want {
				t.Errorf("%s %.100s: %d, not %d", c.name, body, status, want)
			}
		}
		fill := func() {
			t.Helper()
			expect(202, a, call(1))
			expect(202, a, "["+call(2)+","+call(3)+","+call(4)+"]")
			expect(503, a, "["+strings.Repeat(call(5)+",", 8)+call(5)+"]")
			expect(202, a, call(5))
			expect(202, a, call(6))
			expect(503, a, call(7)) // of the last two places a conversation with six gets none
			expect(503, a, `{"jsonrpc":"2.0","id":"no message"}`)
			expect(202, b, call(1))
			expect(503, b, call(2))
			expect(202, c, call(1))
			expect(503, d, call(1))
			expect(503, a, `[5]`)
			expect(404, conversation{h: h, name: "unknown"}, call(1))
			expect(202, a, `{"jsonrpc":"2.0","id":99,"result":{}}`)
			expect(202, a, `{"jsonrpc":"2.0","method":"notifications/x"}`)
		}
		fill()
		expect(202, c, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)
		expect(202, d, call(1))
		b.get.leave()
		d.get.leave()
		synctest.Wait()
		expect(202, c, call(2))
		close(release)
		synctest.Wait()
		for range 20 {
			expect(202, a, `{"jsonrpc":"2.0","id":"no message"}`)
			expect(202, a, ping)
		}
	})
}

// users has a user for each value of Authorization.
var users = wire.Guard{Authenticate: func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }}

// opens returns the line of the header that names a new session of a user, if there is one, and the status.
func opens(h http.Handler, user string) (line string, status int) {
	v := visit(h, "POST", initializeLine("2025-11-25"), "Authorization: "+user).answered()
	return "Mcp-Session-Id: " + v.Header().Get("Mcp-Session-Id"), v.Code
}

// uses returns the status of a ping in a session.
func uses(h http.Handler, user, line string) (status int) {
	return visit(h, "POST", ping, line, "Authorization: "+user).answered().Code
}

// Of the last quarter of the sessions, a user gets no more than is left. A user who has more gets the place of an own session, if that was not
// used, or not for a minute. Sessions of others do not end for that.
func TestSessionsOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &wire.StreamableHandler{Handler: newDemo(), Sessions: &wire.Sessions{Max: 16}, Guard: users}
		defer h.Close()
		open := func(user string, want int) (line string) {
			t.Helper()
			line, status := opens(h, user)
			if status != want {
				t.Fatalf("a session of %s: %d, not %d", user, status, want)
			}
			return line
		}
		early := open("alice", 200) // is not used
		time.Sleep(time.Second)
		var bobs []string
		for range 16 {
			line, status := opens(h, "bob")
			if status == 503 {
				break
			}
			uses(h, "bob", line)
			bobs = append(bobs, line)
			time.Sleep(time.Second)
		}
		if len(bobs) != 11 { // which leave four
			t.Fatalf("bob has %d sessions", len(bobs))
		}
		late := open("alice", 200)
		carols := open("carol", 200)
		open("bob", 503)
		if status := uses(h, "alice", early) + uses(h, "alice", late); status != 400 {
			t.Error("the sessions of alice have ended")
		}
		time.Sleep(55 * time.Second)
		for _, line := range bobs[1:] { // the second one is not used for the longest time now
			if line != bobs[1] {
				uses(h, "bob", line)
			}
		}
		uses(h, "bob", bobs[0])
		time.Sleep(10 * time.Second)
		fresh := open("bob", 200)
		for line, want := range map[string]int{bobs[0]: 200, bobs[1]: 404, bobs[2]: 200, fresh: 200} {
			if status := uses(h, "bob", line); status != want {
				t.Errorf("%s: %d, not %d", line, status, want)
			}
		}
		open("bob", 503)
		open("dave", 200)
		open("erin", 200)  // the last place
		open("frank", 200) // a user without a session gets the place of one that was not used
		if status := uses(h, "carol", carols); status != 404 {
			t.Errorf("the oldest session that was not used: %d", status)
		}
		if uses(h, "alice", early) != 200 || uses(h, "alice", late) != 200 {
			t.Error("a session that was used has ended")
		}
		if n := h.Sessions.Len(); n != 16 {
			t.Errorf("%d sessions", n)
		}
	})
}

// When the table is full, the session makes room that was not used for the longest time, if that is a minute or more. One with an open stream is
// in use.
func TestIdleSessionMakesRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &wire.StreamableHandler{Handler: newDemo(), Sessions: &wire.Sessions{Max: 4}}
		defer h.Close()
		var lines []string
		for range 4 {
			line, _ := opens(h, "")
			uses(h, "", line)
			lines = append(lines, line)
			time.Sleep(time.Second)
		}
		stream := visit(h, "GET", "", lines[0])
		defer stream.leave()
		uses(h, "", lines[1])
		time.Sleep(57 * time.Second)
		if _, status := opens(h, ""); status != 503 {
			t.Errorf("before a minute: %d", status)
		}
		time.Sleep(time.Second)
		fresh, status := opens(h, "")
		if status != 200 {
			t.Errorf("after a minute: %d", status)
		}
		for i, want := range []int{200, 200, 404, 200} {
			if status := uses(h, "", lines[i]); status != want {
				t.Errorf("session %d: %d, not %d", i, status, want)
			}
		}
		if uses(h, "", fresh) != 200 {
			t.Error("the new session has ended")
		}
	})
}

// Of the last quarter of the conversations of HTTP+SSE, a user gets no more than is left, until one of them is over.
func TestConversationsOfUsers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &wire.SSEHandler{Handler: newDemo(), Max: 8, Guard: users}
		defer h.Close()
		expect := func(user string, want int) conversation {
			t.Helper()
			c := converseSSE(h, "", user)
			if c.get.Code != want {
				t.Errorf("a conversation of %s: %d, not %d", user, c.get.Code, want)
			}
			return c
		}
		first := expect("bob", 200)
		for range 5 {
			expect("bob", 200)
		}
		expect("bob", 503)
		expect("alice", 200)
		first.get.leave()
		synctest.Wait()
		expect("bob", 503) // of two that are left, a user with five gets none
		expect("carol", 200)
		expect("dave", 200)
		expect("erin", 503)
	})
}

// What a client announces costs no memory before it comes: the buffer that waits for the first byte of a body is small.
func TestAnnouncedBody(t *testing.T) {
	for name, h := range map[string]http.Handler{"HTTP": newHandler(t, newDemo()), "SSE": &wire.SSEHandler{Handler: newDemo()}} {
		for _, size := range []int64{-1, 1, 4 << 10, 16 << 10, 4 << 20} {
			buffer := -1
			r := request(t.Context(), "POST", "")
			r.ContentLength = size
			r.Body = io.NopCloser(readerFunc(func(b []byte) (int, error) {
				buffer = max(buffer, len(b))
				return 0, io.ErrUnexpectedEOF
			}))
			h.ServeHTTP(httptest.NewRecorder(), r)
			if buffer < 0 || buffer > 5<<10 {
				t.Errorf("%s: a buffer of %d bytes for an announced body of %d", name, buffer, size)
			}
		}
	}
}

// A body for which there is no room waits for five seconds. Then the request is refused.
func TestBodyWithoutRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
		wire.AddTool(server, wire.Tool{Name: "n"}, func(ctx context.Context, _ *wire.Exchange, _ struct{}) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		h := &wire.StreamableHandler{Handler: server, Guard: wire.Guard{MaxHeld: 1 << 20, MaxBody: 128 << 10}}
		defer h.Close()
		call := modernRequest("tools/call", `"name":"n","x":"`+strings.Repeat("x", 100_000)+`"`)
		var visitors []visitor
		for range 30 {
			visitors = append(visitors, visit(h, "POST", call, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: n"))
			synctest.Wait()
		}
		time.Sleep(10 * time.Second)
		refused := 0
		for _, v := range visitors {
			select {
			case <-v.done:
				if v.Code != 503 || !strings.Contains(v.Body.String(), "Too much is held") {
					t.Errorf("%d %s", v.Code, v.Body)
				}
				refused++
			default:
			}
			v.leave()
		}
		if refused < 10 || refused > 29 {
			t.Errorf("%d of 30 were refused", refused)
		}
	})
}
