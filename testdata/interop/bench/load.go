//go:build unix

package main

// The load is cheap, and the same for all: requests are prepared as bytes, in which only the id changes. Each answer is looked at.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"

	firstID        = 100_000_000 // all have as many digits
	initializeCall = `{"jsonrpc":"2.0","id":100000000,"method":"initialize","params":{"protocolVersion":"` + legacyVersion + `",` +
		`"capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}}}`
	initialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
)

// toolCall is the body of a call.
func toolCall(k kind, tool, arguments string) string {
	meta := map[kind]string{
		events: `,"_meta":{"progressToken":"token"}`,
		modern: `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `","io.modelcontextprotocol/clientCapabilities":{},` +
			`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"}}`,
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"%s","arguments":{%s}%s}}`, firstID, tool, arguments, meta[k])
}

// call is a request that is made again and again, each time with another id.
type call struct {
	before, after string // the id
	number        int    // the last one
	ops           int    // that one call counts for
	check         func(answer []byte) error
}

// newCall makes a call of a request that has the first id.
func newCall(raw string, ops int, check func([]byte) error) *call {
	before, after, _ := strings.Cut(raw, strconv.Itoa(firstID))
	return &call{before, after, firstID, ops, check}
}

// next returns the request with the next id.
func (c *call) next() []byte {
	c.number++
	return []byte(c.before + strconv.Itoa(c.number) + c.after)
}

// answered checks an answer to the last request.
func (c *call) answered(answer []byte) error {
	if !bytes.Contains(answer, fmt.Appendf(nil, `"id":%d`, c.number)) {
		return fmt.Errorf("not the answer to %d: %.300q", c.number, answer)
	}
	return c.check(answer)
}

func containing(text string) func([]byte) error {
	want := []byte(text)
	return func(answer []byte) error {
		if !bytes.Contains(answer, want) {
			return fmt.Errorf("no %.80s in %.300q", text, answer)
		}
		return nil
	}
}

// saying checks that a text is in an answer.
func saying(text string) func([]byte) error { return containing(`"text":"` + text + `"`) }

var step = regexp.MustCompile(`"progress":(\d+)`)

// counting checks that each step of n is in an answer, in order, and then the result.
func counting(n int, mayLose bool) func([]byte) error {
	result := saying(fmt.Sprint("counted to ", n))
	return func(answer []byte) error {
		last, end := 0, 0
		for _, at := range step.FindAllSubmatchIndex(answer, -1) {
			i, _ := strconv.Atoi(string(answer[at[2]:at[3]]))
			if i <= last || i != last+1 && !mayLose {
				return fmt.Errorf("step %d follows %d", i, last)
			}
			last, end = i, at[1]
		}
		if last != n && !mayLose {
			return fmt.Errorf("%d is the last step of %d", last, n)
		}
		return result(answer[end:])
	}
}

// ---- HTTP ----

// webConn is a connection that is kept alive.
type webConn struct {
	net.Conn
	in    *bufio.Reader
	body  bytes.Buffer // of the last response
	calls []*call      // made in turn
}

func (c *child) dial() *webConn {
	conn := must(net.Dial("tcp", c.addr))
	c.conns = append(c.conns, conn)
	return &webConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}
}

// exchange sends a request and reads its response.
func (c *webConn) exchange(raw []byte) (*http.Response, error) {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(raw); err != nil {
		return nil, err
	}
	resp, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return nil, err
	}
	c.body.Reset()
	_, err = c.body.ReadFrom(resp.Body)
	return resp, err
}

// do makes a call. It returns the id of the session that this has begun.
func (c *webConn) do(x *call) (session string, err error) {
	resp, err := c.exchange(x.next())
	if err != nil {
		return "", err
	}
	if resp.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %.300q", resp.Status, c.body.Bytes())
	}
	return resp.Header.Get("Mcp-Session-Id"), x.answered(c.body.Bytes())
}

// run makes calls until then, and tells how many operations those were.
func (c *webConn) run(until time.Time) (ops int, err error) {
	for turn := 0; err == nil && time.Now().Before(until); turn++ {
		x := c.calls[turn%len(c.calls)]
		_, err = c.do(x)
		ops += x.ops
	}
	return ops, err
}

// post builds a request. More headers are lines that each end with \r\n.
func post(path, more, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", path, more, len(body), body)
}

// headers are those of a request, in a session if there is one.
func headers(k kind, session string) string {
	switch {
	case k == modern:
		return "Mcp-Protocol-Version: " + modernVersion + "\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
	case session == "":
		return "Mcp-Protocol-Version: " + legacyVersion + "\r\n"
	}
	return "Mcp-Session-Id: " + session + "\r\nMcp-Protocol-Version: " + legacyVersion + "\r\n"
}

// open begins n sessions at a server.
func (c *child) open(path string, n int) (sessions []string) {
	conn := c.dial()
	hello := newCall(post(path, "", initializeCall), 1, containing(`"serverInfo"`))
	for range n {
		session := must(conn.do(hello))
		resp := must(conn.exchange([]byte(post(path, headers(inSession, session), initialized))))
		if resp.StatusCode != http.StatusAccepted {
			panic(fmt.Errorf("%s: initialized: %s: %.300q", c.name, resp.Status, conn.body.Bytes()))
		}
		sessions = append(sessions, session)
	}
	return sessions
}

// web starts a server under connections, over which one call is made again and again, in each session in turn.
func (b *bench) web(p *program, k kind, connections, sessions int, body string, ops int, check func([]byte) error) side {
	c := p.serve()
	ids := []string{""}
	if k != modern {
		ids = c.open(p.path(k), sessions)
	}
	var conns []*webConn
	for i := range connections {
		conn := c.dial()
		for at := range max(len(ids)/connections, 1) {
			id := ids[(at*connections+i)%len(ids)]
			x := newCall(post(p.path(k), headers(k, id), body), ops, check)
			x.number += i * 1_000_000 // apart from those of other connections
			conn.calls = append(conn.calls, x)
		}
		conns = append(conns, conn)
	}
	return c.under(b.slice, func(until time.Time) (ops int, err error) {
		var mu sync.Mutex
		var all sync.WaitGroup
		for _, conn := range conns {
			all.Go(func() {
				n, failed := conn.run(until)
				mu.Lock()
				defer mu.Unlock()
				ops, err = ops+n, errors.Join(err, failed)
			})
		}
		all.Wait()
		return ops, err
	}, nothing)
}

// ---- stdio ----

// lineLoad writes lines to a child and reads as many.
type lineLoad struct {
	*child
	*call
	pending map[int]bool // ids of requests under way
}

// send writes n requests at once.
func (l *lineLoad) send(n int) error {
	var all []byte
	for range n {
		all = append(all, l.next()...)
		l.pending[l.number] = true
	}
	_, err := l.stdin.Write(all)
	return err
}

// receive reads n answers, in any order.
func (l *lineLoad) receive(n int) error {
	for range n {
		line, err := l.stdout.ReadSlice('\n')
		if err != nil {
			return err
		}
		_, rest, _ := bytes.Cut(line, []byte(`"id":`))
		id, _ := strconv.Atoi(string(rest[:min(len(rest), len("100000000"))]))
		if !l.pending[id] {
			return fmt.Errorf("nothing that was asked: %.300q", line)
		}
		delete(l.pending, id)
		if err := l.check(line); err != nil {
			return err
		}
	}
	return nil
}

// lines keeps so many requests under way over stdio: whenever half of them are answered, as many follow.
func lines(ahead int) func(*bench, *program) side {
	return func(b *bench, p *program) side {
		c := p.start(p.server)
		fmt.Fprintln(c.stdin, initializeCall)
		check(containing(`"serverInfo"`)([]byte(must(c.stdout.ReadString('\n')))))
		fmt.Fprintln(c.stdin, initialized)
		l := &lineLoad{c, newCall(toolCall(inSession, "echo", `"text":"hello"`)+"\n", 1, saying("hello")), map[int]bool{}}
		half := max(ahead/2, 1)
		return c.under(b.slice, func(until time.Time) (ops int, err error) {
			err = l.send(ahead - half)
			for ; err == nil && time.Now().Before(until); ops += half {
				err = errors.Join(l.send(half), l.receive(half))
			}
			return ops + ahead - half, errors.Join(err, l.receive(ahead-half))
		}, nothing)
	}
}
