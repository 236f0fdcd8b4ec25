//go:build unix

package main

// The load is as cheap as it can be, and the same for all: requests are prepared as bytes, in which only the id changes. Each answer is
// looked at.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"

	legacyParams = `"protocolVersion":"` + legacyVersion + `","capabilities":{},"clientInfo":{"name":"bench","version":"1.0.0"}`
	modernMeta   = `"io.modelcontextprotocol/protocolVersion":"` + modernVersion + `",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"bench","version":"1.0.0"},"io.modelcontextprotocol/clientCapabilities":{}`
)

// load is what a program is put under.
type load interface {
	run(until time.Time) (ops int, err error) // calls until then, and returns how many operations that were
	settle() error                            // undoes what is left over, outside of what is measured
	close()
}

// nothing is left over.
type nothing struct{}

func (nothing) settle() error { return nil }
func (nothing) close()        {}

// call is a request that is made again and again, each time with another id.
type call struct {
	raw   []byte
	id    []byte // its digits, in raw
	ops   int    // that one call counts for
	check func(answer []byte) error
}

const firstID = "100000000" // all have as many digits

func newCall(raw string, ops int, check func([]byte) error) *call {
	c := &call{raw: []byte(raw), ops: ops, check: check}
	at := bytes.Index(c.raw, []byte(`"id":`+firstID)) + len(`"id":`)
	c.id = c.raw[at : at+len(firstID)]
	return c
}

// next counts up the id.
func (c *call) next() {
	for i := len(c.id) - 1; ; i-- {
		if c.id[i] < '9' {
			c.id[i]++
			return
		}
		c.id[i] = '0'
	}
}

// answered checks an answer to the call as it stands.
func (c *call) answered(answer []byte) error {
	if !bytes.Contains(answer, append([]byte(`"id":`), c.id...)) {
		return fmt.Errorf("not the answer to %s: %.300q", c.id, answer)
	}
	return c.check(answer)
}

// saying checks that a text is in an answer, in the only place where a text is.
func saying(text string) func([]byte) error {
	want := []byte(`"text":"` + text + `"`)
	return func(answer []byte) error {
		at := bytes.Index(answer, want[:len(`"text":"`)])
		if at < 0 || !bytes.HasPrefix(answer[at:], want) {
			return fmt.Errorf("%.300q is not what %.80q is answered with", answer, text)
		}
		return nil
	}
}

// counting checks that each step of n is in an answer, in order, and then the result.
func counting(n int, mayLose bool) func([]byte) error {
	result := saying(fmt.Sprint("counted to ", n))
	return func(answer []byte) error {
		rest := answer
		for i := 1; i <= n; i++ {
			step := append(strconv.AppendInt([]byte(`"progress":`), int64(i), 10), ',')
			_, after, found := bytes.Cut(rest, step)
			if !found { // it is the last member
				step[len(step)-1] = '}'
				_, after, found = bytes.Cut(rest, step)
			}
			if found {
				rest = after
			} else if !mayLose {
				return fmt.Errorf("step %d of %d is lost, or not in order", i, n)
			}
		}
		return result(rest)
	}
}

// ---- HTTP ----

// webConn is a connection that is kept alive.
type webConn struct {
	net.Conn
	in   *bufio.Reader
	body []byte // of the last response

	calls []*call // made in turn
	turn  int
}

func dial(addr string) (*webConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &webConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
}

// head is what matters of a response's.
type head struct {
	status  int
	length  int // -1: chunked
	session string
}

func (c *webConn) readHead() (h head, err error) {
	line, err := c.in.ReadSlice('\n')
	if err != nil {
		return h, err
	}
	if h.status, err = strconv.Atoi(string(line[len("HTTP/1.1 "):][:3])); err != nil {
		return h, err
	}
	for {
		if line, err = c.in.ReadSlice('\n'); err != nil {
			return h, err
		}
		name, value, _ := bytes.Cut(bytes.TrimSpace(line), []byte(": "))
		switch {
		case len(name) == 0:
			return h, nil
		case bytes.EqualFold(name, []byte("Content-Length")):
			if h.length, err = strconv.Atoi(string(value)); err != nil {
				return h, err
			}
		case bytes.EqualFold(name, []byte("Transfer-Encoding")):
			h.length = -1
		case bytes.EqualFold(name, []byte("Mcp-Session-Id")):
			h.session = string(value)
		}
	}
}

func (c *webConn) readBody(length int) error {
	c.body = c.body[:0]
	if length >= 0 {
		return c.take(length)
	}
	for {
		line, err := c.in.ReadSlice('\n')
		if err != nil {
			return err
		}
		size, err := strconv.ParseInt(string(bytes.TrimSpace(line)), 16, 32)
		if err != nil {
			return err
		}
		if err := c.take(int(size)); err != nil {
			return err
		}
		if _, err := c.in.Discard(len("\r\n")); err != nil || size == 0 {
			return err
		}
	}
}

// take adds n bytes to the body.
func (c *webConn) take(n int) error {
	end := len(c.body)
	if cap(c.body) < end+n {
		c.body = append(make([]byte, 0, 2*(end+n)), c.body...)
	}
	c.body = c.body[:end+n]
	_, err := io.ReadFull(c.in, c.body[end:])
	return err
}

// exchange sends a request and reads its response.
func (c *webConn) exchange(raw []byte) (h head, err error) {
	c.SetDeadline(time.Now().Add(patience))
	if _, err := c.Write(raw); err != nil {
		return h, err
	}
	if h, err = c.readHead(); err == nil {
		err = c.readBody(h.length)
	}
	return h, err
}

// one makes the next call.
func (c *webConn) one() (*call, head, error) {
	x := c.calls[c.turn%len(c.calls)]
	c.turn++
	x.next()
	h, err := c.exchange(x.raw)
	if err == nil && h.status != 200 {
		err = fmt.Errorf("status %d: %.300q", h.status, c.body)
	}
	if err == nil {
		err = x.answered(c.body)
	}
	return x, h, err
}

// post builds a request. Headers are lines that each end with \r\n.
func post(path, headers, body string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"+
		"Accept: application/json, text/event-stream\r\n%sContent-Length: %d\r\n\r\n%s", path, headers, len(body), body)
}

// inSessionHeaders are those of a legacy request.
func inSessionHeaders(session string) string {
	if session == "" {
		return "Mcp-Protocol-Version: " + legacyVersion + "\r\n"
	}
	return "Mcp-Session-Id: " + session + "\r\nMcp-Protocol-Version: " + legacyVersion + "\r\n"
}

// initialize begins a session and returns its id.
func (c *webConn) initialize(path string) (session string, err error) {
	h, err := c.exchange([]byte(post(path, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+legacyParams+`}}`)))
	if err != nil || h.status != 200 {
		return "", fmt.Errorf("initialize: %v, status %d: %.300q", err, h.status, c.body)
	}
	session = h.session
	h, err = c.exchange([]byte(post(path, inSessionHeaders(session), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
	if err != nil || h.status != 202 {
		return "", fmt.Errorf("initialized: %v, status %d: %.300q", err, h.status, c.body)
	}
	return session, nil
}

// toolCall is the body of a call in either era.
func toolCall(modern bool, tool, arguments, meta string) string {
	if modern {
		meta = strings.TrimSuffix(modernMeta+","+meta, ",")
	}
	if meta != "" {
		meta = `,"_meta":{` + meta + `}`
	}
	return `{"jsonrpc":"2.0","id":` + firstID + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":{` + arguments + `}` + meta + `}}`
}

// webLoad is a number of connections, each with a call after the other.
type webLoad struct {
	nothing
	conns []*webConn
}

// web starts a server under connections that make one call again and again.
func (p *program) web(k kind, connections int, body string, ops int, check func([]byte) error) (*side, error) {
	c, err := p.serve()
	if err != nil {
		return nil, err
	}
	l := &webLoad{}
	for range connections {
		conn, err := dial(c.addr)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, conn)
		headers := "Mcp-Protocol-Version: " + modernVersion + "\r\nMcp-Method: tools/call\r\nMcp-Name: echo\r\n"
		if k != modern {
			session, err := conn.initialize(p.path(k))
			if err != nil {
				return nil, err
			}
			headers = inSessionHeaders(session)
		}
		conn.calls = []*call{newCall(post(p.path(k), headers, body), ops, check)}
	}
	return &side{child: c, load: l}, nil
}

// many starts a server under calls in so many sessions, in turn, over some connections.
func (p *program) many(sessions int) (*side, error) {
	c, err := p.serve()
	if err != nil {
		return nil, err
	}
	ids, err := c.open(sessions)
	if err != nil {
		return nil, err
	}
	const connections = 16
	l := &webLoad{}
	for i := range connections {
		conn, err := dial(c.addr)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, conn)
		for at := range max(sessions/connections, 1) {
			id := ids[(at*connections+i)%len(ids)]
			x := newCall(post(p.path(inSession), inSessionHeaders(id), toolCall(false, "echo", `"text":"hello"`, "")), 1, saying("hello"))
			copy(x.id[1:], fmt.Sprintf("%02d", i)) // apart from those of other connections
			conn.calls = append(conn.calls, x)
		}
	}
	return &side{child: c, load: l}, nil
}

// open begins n sessions at a server.
func (c *child) open(n int) (sessions []string, err error) {
	conn, err := dial(c.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for range n {
		session, err := conn.initialize(c.path(inSession))
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, session)
	}
	return sessions, nil
}

func (l *webLoad) close() {
	for _, c := range l.conns {
		c.Close()
	}
}

func (l *webLoad) run(until time.Time) (ops int, err error) {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, c := range l.conns {
		all.Go(func() {
			n := 0
			var failed error
			for failed == nil && time.Now().Before(until) {
				var x *call
				x, _, failed = c.one()
				n += x.ops
			}
			mu.Lock()
			defer mu.Unlock()
			ops, err = ops+n, errors.Join(err, failed)
		})
	}
	all.Wait()
	return ops, err
}

// initializing begins sessions, which are ended between the slices.
type initializing struct {
	*webLoad
	path     string
	sessions []string
}

func newInitializing(addr, path string) (*initializing, error) {
	c, err := dial(addr)
	if err != nil {
		return nil, err
	}
	body := `{"jsonrpc":"2.0","id":` + firstID + `,"method":"initialize","params":{` + legacyParams + `}}`
	c.calls = []*call{newCall(post(path, "", body), 1, func(answer []byte) error {
		if !bytes.Contains(answer, []byte(`"serverInfo"`)) {
			return fmt.Errorf("%.300q does not answer initialize", answer)
		}
		return nil
	})}
	return &initializing{webLoad: &webLoad{conns: []*webConn{c}}, path: path}, nil
}

func (l *initializing) run(until time.Time) (ops int, err error) {
	for ; time.Now().Before(until); ops++ {
		_, h, err := l.conns[0].one()
		if err != nil {
			return ops, err
		}
		l.sessions = append(l.sessions, h.session)
	}
	return ops, nil
}

func (l *initializing) settle() error {
	for _, id := range l.sessions {
		if _, err := l.conns[0].exchange([]byte("DELETE " + l.path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + inSessionHeaders(id) + "\r\n")); err != nil {
			return err
		}
	}
	l.sessions = nil
	return nil
}

// ---- stdio ----

// lineLoad writes lines to a child and reads as many, with so many under way.
type lineLoad struct {
	nothing
	child *child
	call  *call
	ahead int

	number  int64          // of the last request
	pending map[int64]bool // requests under way
	out     []byte
}

func newLineLoad(c *child, ahead int) (*lineLoad, error) {
	fmt.Fprintf(c.stdin, "%s\n", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+legacyParams+`}}`)
	line, err := c.stdout.ReadSlice('\n')
	if err != nil || !bytes.Contains(line, []byte(`"serverInfo"`)) {
		return nil, fmt.Errorf("%s: initialize: %w: %.300q", c.name, err, line)
	}
	fmt.Fprintf(c.stdin, "%s\n", `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	number, _ := strconv.ParseInt(firstID, 10, 64)
	x := newCall(toolCall(false, "echo", `"text":"hello"`, "")+"\n", 1, saying("hello"))
	return &lineLoad{child: c, call: x, ahead: ahead, number: number, pending: map[int64]bool{}}, nil
}

// send writes n requests at once.
func (l *lineLoad) send(n int) error {
	l.out = l.out[:0]
	for range n {
		l.call.next()
		l.number++
		l.pending[l.number] = true
		l.out = append(l.out, l.call.raw...)
	}
	_, err := l.child.stdin.Write(l.out)
	return err
}

// receive reads one answer, to whichever request.
func (l *lineLoad) receive() error {
	line, err := l.child.stdout.ReadSlice('\n')
	if err != nil {
		return err
	}
	_, rest, _ := bytes.Cut(line, []byte(`"id":`))
	digits := rest[:min(len(rest), len(firstID))]
	number, err := strconv.ParseInt(string(digits), 10, 64)
	if err != nil || !l.pending[number] {
		return fmt.Errorf("nothing that was asked: %.300q", line)
	}
	delete(l.pending, number)
	return l.call.check(line)
}

// run keeps requests under way: whenever half of them are answered, as many follow.
func (l *lineLoad) run(until time.Time) (ops int, err error) {
	batch := max(l.ahead/2, 1)
	for sent := 0; ; {
		for more := time.Now().Before(until); more && sent+batch <= l.ahead; sent += batch {
			if err := l.send(batch); err != nil {
				return ops, err
			}
		}
		if sent == 0 {
			return ops, nil
		}
		for range batch {
			if err := l.receive(); err != nil {
				return ops, err
			}
		}
		ops, sent = ops+batch, sent-batch
	}
}

// ---- Clients ----

// clientLoad has a child call by itself.
type clientLoad struct {
	nothing
	child *child
}

func (l clientLoad) run(until time.Time) (ops int, err error) {
	fmt.Fprintln(l.child.stdin, time.Until(until))
	line, err := l.child.stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, l.child.said())
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
