package soak

import (
	"errors"
	"fmt"
	"interop/shared"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
)

// ---- Those who do not ----

// abuser does one kind of abuse, over and over.
type abuser struct {
	*soak
	kind abuse
	lot  *rand.Rand
	web  *http.Client
	held []*heldConn
}

type abuse struct {
	name  string
	every time.Duration
	act   func(*abuser)
}

var abuses = []abuse{
	{"cuts", 10 * time.Millisecond, (*abuser).cut},
	{"half-open connections", time.Second, (*abuser).sendSlowly},
	{"slow readers", 500 * time.Millisecond, (*abuser).readNothing},
	{"session flood", time.Second, (*abuser).floodSessions},
	{"stream flood", 500 * time.Millisecond, (*abuser).floodStreams},
	{"ended calls", 100 * time.Millisecond, (*abuser).endCalls},
	{"pages that do not read", 500 * time.Millisecond, (*abuser).watchNothing},
}

func (a *abuser) run() {
	transport := &http.Transport{MaxIdleConnsPerHost: 10}
	a.web = &http.Client{Transport: transport, Timeout: tooLong}
	for a.rest(time.Duration(a.lot.Int64N(2 * int64(a.kind.every)))) {
		a.kind.act(a)
	}
	a.drop(len(a.held))
	transport.CloseIdleConnections()
}

// heldConn is a connection that is kept open.
type heldConn struct {
	net.Conn
	unsent string
}

// dial returns a raw connection, nil if there is none to be had.
func (a *abuser) dial() *heldConn {
	conn, err := (&net.Dialer{Timeout: tooLong}).DialContext(a.ctx, "tcp", a.addr)
	if err != nil {
		a.count(a.kind.name + ": no connection")
		return nil
	}
	_ = conn.SetDeadline(time.Now().Add(tooLong))
	a.count(a.kind.name + ": connections")
	return &heldConn{Conn: conn}
}

// say opens a connection for one request, or the beginning of one.
func (a *abuser) say(text string) *heldConn {
	c := a.dial()
	if c != nil {
		_, _ = io.WriteString(c, text)
	}
	return c
}

// close ends a connection in one way or the other.
func (a *abuser) close(c *heldConn) {
	if a.lot.IntN(2) == 0 {
		_ = c.Conn.(*net.TCPConn).SetLinger(0)
	}
	c.Close()
}

// hold keeps n connections open, fewer in a short run; a few are replaced each time.
func (a *abuser) hold(n int, begin func() *heldConn) {
	if !a.long {
		n = max(n/10, 2)
	}
	a.drop(len(a.held) * a.lot.IntN(6) / 100)
	if len(a.held) >= n {
		a.drop(1)
	}
	for len(a.held) < n && a.ctx.Err() == nil {
		c := begin()
		if c == nil {
			return
		}
		a.held = append(a.held, c)
	}
}

func (a *abuser) drop(n int) {
	for range n {
		i := a.lot.IntN(len(a.held))
		a.close(a.held[i])
		a.held = slices.Delete(a.held, i, i+1)
	}
}

// text returns the bytes of a POST.
func (a *abuser) text(header, body string) string {
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: %s\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s",
		a.addr, header, len(body), body)
}

const modernHeader = "Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: %s\r\n"

// modern returns the bytes of a modern tools/call.
func (a *abuser) modern(tool, arguments string) string {
	return a.text(fmt.Sprintf(modernHeader+"Mcp-Name: %s\r\n", "tools/call", tool),
		fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,`, tool, arguments)+
			strings.Replace(shared.ModernMeta, "{", `{"progressToken":1,`, 1)+`}}`)
}

// call returns that, or the same in a new session.
func (a *abuser) call(tool, arguments string) string {
	if a.lot.IntN(2) == 0 {
		return a.modern(tool, arguments)
	}
	return a.text("Mcp-Session-Id: "+a.open("2025-11-25")+"\r\n", shared.ToolCall(1, tool, arguments))
}

// do sends a whole request, and counts how it is answered: never as if it were the server's fault.
func (a *abuser) do(method, session string, body io.Reader) (header http.Header) {
	r, _ := http.NewRequestWithContext(a.ctx, method, "http://"+a.addr+"/mcp", body)
	r.Header = http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}}
	if session != "" {
		r.Header["Mcp-Session-Id"] = []string{session}
	}
	resp, err := a.web.Do(r)
	if err != nil {
		a.count(a.kind.name + ": broken off")
		return nil
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	a.count(fmt.Sprintf("%s: %s %d", a.kind.name, method, resp.StatusCode))
	if resp.StatusCode >= 500 && (resp.StatusCode != 503 || resp.Header.Get("Retry-After") == "") {
		a.fault("failure of the server", "%s: %s: %s", a.kind.name, method, resp.Status)
	}
	return resp.Header
}

// open opens a session, and returns its id.
func (a *abuser) open(version string) string {
	header := a.do("POST", "", strings.NewReader(shared.InitializeLine(version)))
	return header.Get("Mcp-Session-Id")
}

// cut breaks a connection off in the middle of a request, or of the response.
func (a *abuser) cut() {
	text := a.call("count", `{"n":200,"delayMs":2}`)
	n := a.lot.IntN(2*len(text) + 1)
	c := a.say(text[:min(n, len(text))])
	if c == nil {
		return
	}
	if n >= len(text) {
		_, _ = io.CopyN(io.Discard, c, a.lot.Int64N(3000))
	}
	a.close(c)
}

// sendSlowly holds connections on which a part of a request has come, or nothing; the rest comes by one byte a second.
func (a *abuser) sendSlowly() {
	a.held = slices.DeleteFunc(a.held, func(c *heldConn) bool {
		if c.unsent == "" {
			return false
		}
		_, err := io.WriteString(c, c.unsent[:1])
		c.unsent = c.unsent[1:]
		return err != nil && c.Close() == nil // the server has lost patience
	})
	a.hold(3000, func() *heldConn {
		text := a.modern("echo", `{"text":"slow"}`)
		n := a.lot.IntN(len(text))
		c := a.say(text[:n])
		if c != nil {
			c.unsent = text[n:]
		}
		return c
	})
}

// readNothing asks for much, and reads none of it.
func (a *abuser) readNothing() {
	a.hold(20, func() *heldConn {
		if a.lot.IntN(4) > 0 {
			return a.say(a.call("echo", `{"text":"0123456789","repeat":100000}`))
		}
		return a.say(a.call("count", `{"n":30000}`))
	})
}

func (a *abuser) floodSessions() {
	for range 50 {
		a.open("2025-06-18")
	}
}

// floodStreams opens subscriptions, and conversations of 2024-11-05.
func (a *abuser) floodStreams() {
	listen := a.text(fmt.Sprintf(modernHeader, "subscriptions/listen"),
		`{"jsonrpc":"2.0","id":1,"method":"subscriptions/listen","params":{"notifications":{"resourcesListChanged":true},`+shared.ModernMeta+`}}`)
	pipe := "GET /sse HTTP/1.1\r\nHost: " + a.addr + "\r\nAccept: text/event-stream\r\n\r\n"
	a.hold(800, func() *heldConn { return a.say([]string{listen, pipe}[a.lot.IntN(2)]) })
}

// watchNothing opens GET /watch, as a page does, and reads none of what clients and the server say.
func (a *abuser) watchNothing() {
	a.hold(4, func() *heldConn {
		return a.say("GET /watch HTTP/1.1\r\nHost: " + a.addr + "\r\nAccept: text/event-stream\r\n\r\n")
	})
}

// endCalls makes many calls in a session, some with the same id; then it cancels them, and others that there are not, or ends the session.
// Either way their responses end.
func (a *abuser) endCalls() {
	id := a.open("2025-11-25")
	var conns []*heldConn
	for range 10 {
		call := shared.ToolCall(a.lot.IntN(20), "count", `{"n":6000,"delayMs":10}`)
		if c := a.say(a.text("Mcp-Session-Id: "+id+"\r\nConnection: close\r\n", call)); c != nil {
			conns = append(conns, c)
			_, _ = c.Read(make([]byte, 1)) // it has begun
		}
	}
	ended := true
	if a.lot.IntN(2) == 0 {
		ended = a.do("DELETE", id, nil) != nil
	} else {
		for i := range 20 {
			answered := a.do("POST", id, strings.NewReader(fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i)))
			ended = ended && answered != nil
		}
	}
	for _, c := range conns {
		if !ended { // it is time to halt
			a.close(c)
			continue
		}
		_ = c.SetDeadline(time.Now().Add(tooLong)) // from now on: to begin ten calls and to end them may have taken long
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			a.fault("not ended", "a call that was cancelled, or whose session was deleted")
		}
		c.Close()
	}
}
