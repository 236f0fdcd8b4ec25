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
	"net/http"
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
	close()
}

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
	call *call  // made again and again
}

func dial(addr string) (*webConn, error) {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	return &webConn{Conn: conn, in: bufio.NewReaderSize(conn, 64<<10)}, nil
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
	c.body, err = io.ReadAll(resp.Body)
	return resp, err
}

// one makes the next call.
func (c *webConn) one() error {
	c.call.next()
	resp, err := c.exchange(c.call.raw)
	if err == nil && resp.StatusCode != 200 {
		err = fmt.Errorf("%s: %.300q", resp.Status, c.body)
	}
	if err == nil {
		err = c.call.answered(c.body)
	}
	return err
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
	resp, err := c.exchange([]byte(post(path, "", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+legacyParams+`}}`)))
	if err != nil || resp.StatusCode != 200 {
		return "", fmt.Errorf("initialize: %v: %.300q", err, c.body)
	}
	session = resp.Header.Get("Mcp-Session-Id")
	resp, err = c.exchange([]byte(post(path, inSessionHeaders(session), `{"jsonrpc":"2.0","method":"notifications/initialized"}`)))
	if err != nil || resp.StatusCode != 202 {
		return "", fmt.Errorf("initialized: %v: %.300q", err, c.body)
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
type webLoad struct{ conns []*webConn }

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
		conn.call = newCall(post(p.path(k), headers, body), ops, check)
	}
	return &side{child: c, load: l}, nil
}

// open begins n sessions at a server.
func (c *child) open(n int) error {
	conn, err := dial(c.addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	for range n {
		if _, err := conn.initialize(c.path(inSession)); err != nil {
			return err
		}
	}
	return nil
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
				failed = c.one()
				n += c.call.ops
			}
			mu.Lock()
			defer mu.Unlock()
			ops, err = ops+n, errors.Join(err, failed)
		})
	}
	all.Wait()
	return ops, err
}

// ---- stdio ----

// lineLoad writes lines to a child and reads as many, with so many under way.
type lineLoad struct {
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

func (*lineLoad) close() {}

// ---- Clients ----

// clientLoad has a child call by itself.
type clientLoad struct{ child *child }

func (clientLoad) close() {}

func (l clientLoad) run(until time.Time) (ops int, err error) {
	fmt.Fprintln(l.child.stdin, time.Until(until))
	line, err := l.child.stdout.ReadString('\n')
	if err != nil {
		return 0, fmt.Errorf("%w\n%s", err, l.child.said())
	}
	return strconv.Atoi(strings.TrimSpace(line))
}
