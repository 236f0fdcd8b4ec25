// Package library tests the library as a program uses it that has copied the files: through exported names alone, over real connections,
// with many combinations or many at once. What a single exchange shows is in the golden files of ../../cases.
package library

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"interop/shared"
	"interop/wire"
	"io"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"
)

// readEvents reads all events, and the error that ends them.
func readEvents(r io.Reader, limit int) (events []wire.Event, err error) {
	for e, err := range wire.ReadEvents(r, limit) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// everything declares all that MCP has.
var everything = map[string]any{"completions": struct{}{}, "logging": struct{}{}, "prompts": struct{}{}, "tools": struct{}{},
	"resources": map[string]bool{"subscribe": true}}

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

const saysOK = `{"jsonrpc":"2.0","id":1,"result":{}}`

func modernRequest(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + strings.TrimPrefix(params+","+shared.ModernMeta, ",") + `}}`
}

// modernLines returns the lines that a modern request needs.
func modernLines(method string, name ...string) []string {
	lines := []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	for _, name := range name {
		lines = append(lines, "Mcp-Name: "+name)
	}
	return lines
}

// say answers with a status and a body: JSON if it looks like that, events, or text. ID in it is replaced by that of m.
func say(w http.ResponseWriter, m *wire.Message, status int, body string) {
	kind := "text/plain"
	if strings.HasPrefix(body, "{") {
		kind = "application/json"
	} else if strings.HasSuffix(body, "\n\n") {
		kind = "text/event-stream"
	}
	if m != nil && m.ID != (wire.ID{}) {
		body = strings.ReplaceAll(body, "ID", m.ID.String())
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	_ = http.NewResponseController(w).Flush()
}

const (
	legacyHello = `{"jsonrpc":"2.0","id":ID,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"s","version":"1"}}}`
	modernHello = `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}}`
	emptyResult = `{"jsonrpc":"2.0","id":ID,"result":{}}`
)

// played is an http.RoundTripper that a function plays; with status 0 there is no server.
type played func(r *http.Request, m *wire.Message) (status int, body string)

func (f played) RoundTrip(r *http.Request) (*http.Response, error) {
	var m *wire.Message
	if r.Body != nil {
		body, _ := io.ReadAll(r.Body)
		m = wire.Decode(body).Messages[0]
	}
	status, body := f(r, m)
	if status == 0 {
		return nil, errors.New("connection refused")
	}
	w := httptest.NewRecorder()
	say(w, m, status, body)
	resp := w.Result()
	if resp.Request = r; m != nil && m.Method == "initialize" {
		resp.Header.Set("Mcp-Session-Id", "s")
	}
	return resp, nil
}

// dialled returns what connects a Client to the network that is given.
func dialled(network http.RoundTripper) wire.Dialer {
	return wire.HTTPDialer{Client: &http.Client{Transport: network}, URL: "http://127.0.0.1:8080/mcp", MaxMessage: testLimit}
}

// bubbleNet serves h on a network in memory, so that the two can talk in a synctest bubble.
func bubbleNet(t *testing.T, h http.Handler) *http.Transport {
	network := newMemoryNet()
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(network) }()
	transport := &http.Transport{DialContext: network.dial}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return transport
}

// memoryNet is a network of one listener, in memory; its connections come to a loopback address.
type memoryNet struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
}

func newMemoryNet() *memoryNet {
	n := &memoryNet{conns: make(chan net.Conn), closed: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

func (n *memoryNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *memoryNet) Close() error { n.close(); return nil }

func (n *memoryNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

type memoryConn struct {
	net.Conn
	addr net.Addr
}

func (c memoryConn) LocalAddr() net.Addr { return c.addr }

func (c memoryConn) RemoteAddr() net.Addr { return c.addr }

func (n *memoryNet) dial(context.Context, string, string) (net.Conn, error) {
	here, there := net.Pipe()
	select {
	case n.conns <- memoryConn{there, n.Addr()}:
		return here, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

const testLimit = 4 << 20

// converse gives lines to a handler, over a line Conn that ends after them, and returns the lines that it answers.
func converse(t *testing.T, h wire.Handler, lines ...string) []string {
	t.Helper()
	out, err := serveLines(t, h, nil, lines...)
	if err != nil {
		t.Error(err)
	}
	return out
}

// serveLines does the same with a log, and returns the error, too.
func serveLines(t *testing.T, h wire.Handler, log *slog.Logger, lines ...string) ([]string, error) {
	t.Helper()
	shared.CheckLeaks(t)
	var out lockedBuffer
	in := strings.NewReader(strings.Join(lines, "\n"))
	err := wire.Serve(t.Context(), wire.NewLineConn(in, &out, testLimit, func() error { return nil }), h, log)
	if out.String() == "" {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), err
}

// wireEnd is the far end of a bytePipe, where a test reads and writes lines itself.
type wireEnd struct {
	r    *bufio.Reader
	file *os.File
	w    *os.File
}

func (e *wireEnd) Read(b []byte) (int, error) { return e.r.Read(b) }

func (e *wireEnd) Write(b []byte) (int, error) { return e.w.Write(b) }

func (e *wireEnd) Close() error { return errors.Join(e.w.Close(), e.file.Close()) }

// bytePipe returns a line Conn and the other end of its bytes.
func bytePipe(t *testing.T) (wire.Conn, *wireEnd) {
	t.Helper()
	shared.CheckLeaks(t)
	r, theirW, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirR, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	theirs := &wireEnd{bufio.NewReader(theirR), theirR, theirW}
	ours := wire.NewLineConn(r, w, testLimit, func() error { return errors.Join(r.Close(), w.Close()) })
	t.Cleanup(func() { theirs.Close(); ours.Close() })
	return ours, theirs
}

// readLine returns the next line, or an empty one after ten seconds.
func readLine(t *testing.T, r io.Reader) string {
	t.Helper()
	end := r.(*wireEnd)
	_ = end.file.SetReadDeadline(time.Now().Add(time.Minute))
	line, err := end.r.ReadString('\n')
	if err != nil {
		t.Errorf("no line: %v", err)
	}
	return strings.TrimSuffix(line, "\n")
}

// connect connects a client to a server in memory.
func connect(t *testing.T, server wire.Handler, c *wire.Client) *wire.Client {
	t.Helper()
	shared.CheckLeaks(t)
	a, b := wire.Pipe()
	served := make(chan error, 1)
	go func() { served <- wire.Serve(context.Background(), a, server, nil) }()
	c.Info = wire.Implementation{Name: "t", Version: "0"}
	if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return b, nil })); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// web is a client of raw requests to one URL. Its header goes with each.
type web struct {
	testing.TB
	url    string
	client *http.Client
	header http.Header

	handler *wire.StreamableHandler // that is there, if it is one
}

// serveWeb serves a handler on a loopback port until the test ends, and returns a client for its URL.
func serveWeb(t testing.TB, h http.Handler) *web {
	server := httptest.NewServer(h)
	c := newWeb(t, server)
	c.handler, _ = h.(*wire.StreamableHandler)
	t.Cleanup(func() {
		if c.handler != nil {
			c.handler.Close() // or the server would wait for its streams
		}
		server.CloseClientConnections()
		server.Close()
	})
	return c
}

func newWeb(t testing.TB, server *httptest.Server) *web {
	c := &web{TB: t, url: server.URL + "/mcp", client: server.Client(), header: http.Header{}}
	c.header.Set("Accept", "application/json, text/event-stream")
	c.header.Set("Content-Type", "application/json")
	return c
}

// newHandler returns a handler as the demo has it, with sessions named session-1 and so on.
func newHandler(t testing.TB, h wire.Handler) *wire.StreamableHandler {
	sessions := &wire.Sessions{Keep: 4 << 20}
	var named sync.Mutex
	n := 0
	sessions.NewID = func() string {
		named.Lock()
		defer named.Unlock()
		n++
		return fmt.Sprint("session-", n)
	}
	handler := &wire.StreamableHandler{Handler: h, Sessions: sessions}
	t.Cleanup(handler.Close)
	return handler
}

// send sends a request. Lines are further header fields; one without a value takes the field away.
func (c *web) send(method, body string, lines ...string) *http.Response {
	c.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	c.Cleanup(cancel)
	return c.sendContext(ctx, method, body, lines...)
}

func (c *web) sendContext(ctx context.Context, method, body string, lines ...string) *http.Response {
	c.Helper()
	r, err := http.NewRequestWithContext(ctx, method, c.url, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header = c.header.Clone()
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ":")
		if value == "" {
			r.Header.Del(name)
		} else if strings.EqualFold(name, "Host") {
			r.Host = strings.TrimSpace(value)
		} else {
			r.Header.Del(name)
			r.Header[name] = []string{strings.TrimSpace(value)} // spelt as it is here
		}
	}
	resp, err := c.client.Do(r)
	if err != nil {
		c.Fatal(err)
	}
	c.Cleanup(func() { resp.Body.Close() })
	return resp
}

// do sends a request and returns what is answered.
func (c *web) do(method, body string, lines ...string) (status int, text string, header http.Header) {
	c.Helper()
	resp := c.send(method, body, lines...)
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		c.Error(err)
	}
	return resp.StatusCode, string(b), resp.Header
}

// open initializes a session, and puts its id into the header of what follows.
func (c *web) open(version, capabilities string) *web {
	c.Helper()
	c.header.Del("Mcp-Session-Id")
	status, text, header := c.do("POST", strings.Replace(shared.InitializeLine(version), `"capabilities":{}`, `"capabilities":`+capabilities, 1))
	id := header.Get("Mcp-Session-Id")
	if status != 200 || id == "" {
		c.Fatal(status, text)
	}
	c.header.Set("Mcp-Session-Id", id)
	if status, text, _ := c.do("POST", `{"jsonrpc":"2.0","method":"notifications/initialized"}`); status != 202 || text != "" {
		c.Fatal(status, text)
	}
	return c
}

// visitor is a request to a handler without a network, and what is answered.
type visitor struct {
	*httptest.ResponseRecorder
	leave func()
	done  chan struct{} // closed when it is answered
}

// visit begins a request. Lines are fields of the header.
func visit(h http.Handler, method, body string, lines ...string) visitor {
	ctx, cancel := context.WithCancel(context.Background())
	v := visitor{httptest.NewRecorder(), cancel, make(chan struct{})}
	r := httptest.NewRequestWithContext(ctx, method, "/", strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, ": "); value != "" {
			r.Header.Set(name, value)
		}
	}
	go func() {
		defer close(v.done)
		h.ServeHTTP(v, r)
	}()
	return v
}

// answered waits for the end of the response.
func (v visitor) answered() visitor { <-v.done; return v }

// openSession returns the line of the header that names a new session, if the handler has sessions.
func openSession(h http.Handler, version string) string {
	return "Mcp-Session-Id: " + visit(h, "POST", shared.InitializeLine(version)).answered().Header().Get("Mcp-Session-Id")
}

// events reads a response as a stream.
func (c *web) events(resp *http.Response) *eventReader {
	c.Helper()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		c.Fatalf("no stream but %d %s", resp.StatusCode, b)
	}
	next, stop := iter.Pull2(wire.ReadEvents(resp.Body, 16<<20))
	c.Cleanup(func() {
		resp.Body.Close()
		stop()
	})
	return &eventReader{next}
}

// next returns the next event that holds something.
func (c *web) next(in *eventReader) wire.Event {
	c.Helper()
	for {
		e, err := in.next()
		if err != nil {
			c.Fatal(err)
		}
		if len(e.Data) > 0 {
			return e
		}
	}
}

// eventReader reads the events of a stream one by one.
type eventReader struct {
	pull func() (wire.Event, error, bool)
}

// next returns the next event, or the error that ends the stream: io.EOF at its end.
func (in *eventReader) next() (wire.Event, error) {
	e, err, ok := in.pull()
	if !ok {
		return e, io.EOF
	}
	return e, err
}

// text returns the string at a path of members, "" if there is none.
func text(object []byte, path ...string) string {
	var s string
	_ = json.Unmarshal(value(object, path...), &s)
	return s
}

// value returns the JSON at a path of members, nil if there is none.
func value(object []byte, path ...string) json.RawMessage {
	for _, name := range path {
		var members map[string]json.RawMessage
		_ = json.Unmarshal(object, &members)
		object = members[name]
	}
	return object
}

// listener is a pipe to a Server that has acknowledged a subscription.
type listener struct {
	*wireEnd
	served chan error
}

func listenTo(t *testing.T, server wire.Handler, filter string) *listener {
	t.Helper()
	ours, theirs := bytePipe(t)
	l := &listener{theirs, make(chan error, 1)}
	go func() { l.served <- wire.Serve(t.Context(), ours, server, nil) }()
	fmt.Fprintln(l, modernRequest("subscriptions/listen", `"notifications":`+filter))
	if line := l.next(t); !strings.Contains(line, "acknowledged") {
		t.Fatal(line)
	}
	return l
}

func (l *listener) next(t *testing.T) string { t.Helper(); return readLine(t, l.wireEnd) }

// ends closes the pipe, and returns what comes before the result and the cancellation that end the subscription.
func (l *listener) ends(t *testing.T) (lines []string) {
	t.Helper()
	l.w.Close()
	for {
		line := l.next(t)
		if strings.Contains(line, `"id":1,"result"`) || line == "" {
			break
		}
		lines = append(lines, line)
	}
	if line := l.next(t); line != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"requestId":1}}` {
		t.Error(line)
	}
	if err := <-l.served; err != nil {
		t.Error(err)
	}
	return lines
}

// respondTo returns a stream of events that begins with a text, and ends only with the request.
func respondTo(r *http.Request, text string) *http.Response {
	in, out := io.Pipe()
	go io.WriteString(out, text)
	context.AfterFunc(r.Context(), func() { out.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in, Request: r}
}

// another returns a client of the same server without a session.
func (c *web) another() *web {
	other := *c
	other.header = c.header.Clone()
	other.header.Del("Mcp-Session-Id")
	return &other
}

// modern returns a client of the same server that speaks 2026-07-28.
func (c *web) modern() *web {
	other := c.another()
	other.header.Set("Mcp-Protocol-Version", "2026-07-28")
	return other
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// answerTo returns the line that answers the request id, "" if there is none: answers may overtake each other.
func answerTo(lines []string, id string) string {
	for _, line := range lines {
		if strings.HasPrefix(line, `{"jsonrpc":"2.0","id":`+id+`,`) {
			return line
		}
	}
	return ""
}
