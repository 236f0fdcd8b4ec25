// Package library tests the library as a program uses it that has copied the files: through exported names alone, over real connections,
// with many combinations or many at once. What a single exchange shows is in the golden files of ../../cases.
package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"interop/shared"
	"interop/wire"
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
	if m.ID != (wire.ID{}) {
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
	m := new(wire.Message) // that of a GET or a DELETE
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
	if resp.Request = r; m.Method == "initialize" {
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
	network := make(memoryNet)
	server := &http.Server{Handler: h, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = server.Serve(network) }()
	transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) {
		here, there := net.Pipe()
		network <- there
		return here, nil
	}}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = server.Close()
	})
	return transport
}

// memoryNet is a net.Listener of connections in memory.
type memoryNet chan net.Conn

func (n memoryNet) Accept() (net.Conn, error) {
	if conn, ok := <-n; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (n memoryNet) Close() error { close(n); return nil }

func (n memoryNet) Addr() net.Addr { return &net.TCPAddr{} }

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
	var out shared.Output
	in := strings.NewReader(strings.Join(lines, "\n"))
	err := wire.Serve(t.Context(), wire.NewLineConn(in, &out, testLimit, func() error { return nil }), h, log)
	if out.String() == "" {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n"), err
}

// pipeTo returns a Dialer that connects to a handler in memory. The test ends when the handler's ends do.
func pipeTo(t *testing.T, h wire.Handler) wire.Dialer {
	var serving sync.WaitGroup
	t.Cleanup(serving.Wait)
	return wire.DialerFunc(func(context.Context) (wire.Conn, error) {
		ours, theirs := wire.Pipe()
		serving.Go(func() {
			if err := wire.Serve(context.Background(), theirs, h, nil); err != nil {
				t.Error(err)
			}
		})
		return ours, nil
	})
}

// dial connects a Client that is given, and closes it when the test ends.
func dial(t *testing.T, to wire.Dialer, c *wire.Client) *wire.Client {
	t.Helper()
	c.Info = shared.Me
	t.Cleanup(func() { _ = c.Close() })
	if err := c.Connect(t.Context(), to); err != nil {
		t.Fatal(err)
	}
	return c
}

// connect connects a Client to a handler in memory.
func connect(t *testing.T, h wire.Handler, c *wire.Client) *wire.Client {
	t.Helper()
	return dial(t, pipeTo(t, h), c)
}

// callTool calls a tool, and returns the text of its result.
func callTool(t *testing.T, c *wire.Client, name string) (string, error) {
	var result wire.ToolResult
	err := c.Call(t.Context(), "tools/call", wire.CallToolParams{Name: name}, &result)
	return result.Text(), err
}

// web is a client of raw requests to one URL. Its header goes with each.
type web struct {
	testing.TB
	url    string
	client *http.Client
	header http.Header
}

// serveWeb serves a handler on a loopback port until the test ends, and returns a client for its URL.
func serveWeb(t testing.TB, h http.Handler) *web {
	server := httptest.NewServer(h)
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return newWeb(t, server)
}

func newWeb(t testing.TB, server *httptest.Server) *web {
	header := http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"}}
	return &web{t, server.URL + "/mcp", server.Client(), header}
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

// send sends a request. Lines are further header fields.
func (c *web) send(method, body string, lines ...string) *http.Response {
	c.Helper()
	r, err := http.NewRequest(method, c.url, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header = c.header.Clone()
	for _, line := range lines {
		name, value, _ := strings.Cut(line, ": ")
		r.Header.Set(name, value)
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

// open initializes a session of 2025-11-25, and puts its id into the header of what follows.
func (c *web) open() *web {
	c.Helper()
	status, text, header := c.do("POST", shared.InitializeLine("2025-11-25"))
	c.header.Set("Mcp-Session-Id", header.Get("Mcp-Session-Id"))
	if status != 200 || header.Get("Mcp-Session-Id") == "" {
		c.Fatal(status, text)
	}
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

// events returns a function that returns the next event of a response that holds something.
func (c *web) events(resp *http.Response) (next func() wire.Event) {
	c.Helper()
	if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
		b, _ := io.ReadAll(resp.Body)
		c.Fatalf("no stream but %d %s", resp.StatusCode, b)
	}
	pull, stop := iter.Pull2(wire.ReadEvents(resp.Body, 16<<20))
	c.Cleanup(stop)
	return func() wire.Event {
		c.Helper()
		for {
			e, err, ok := pull()
			if !ok || err != nil {
				c.Fatal("the stream ends: ", err)
			}
			if len(e.Data) > 0 {
				return e
			}
		}
	}
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

// respondTo returns a stream of events that begins with a text, and ends only with the request.
func respondTo(r *http.Request, text string) *http.Response {
	in, out := io.Pipe()
	go io.WriteString(out, text)
	context.AfterFunc(r.Context(), func() { out.CloseWithError(r.Context().Err()) })
	return &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {"text/event-stream"}}, Body: in, Request: r}
}

// panics checks what the panic of a mistake says.
func panics(t *testing.T, want string, mistake func()) {
	t.Helper()
	defer func() {
		if reason := fmt.Sprint(recover()); !strings.Contains(reason, want) {
			t.Errorf("%s, want %s", reason, want)
		}
	}()
	mistake()
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

// newDemo returns a server with the tools that the tests call: echo, which repeats a text, and count, which reports progress after each delay.
func newDemo() *wire.Server {
	server := newServer()
	server.Capabilities = map[string]any{"resources": map[string]bool{"listChanged": true, "subscribe": true}}
	server.Methods = map[string]wire.HandlerFunc{}
	server.OfferLogging()
	wire.AddTool(server, wire.Tool{Name: "echo"}, func(_ context.Context, _ *wire.Exchange, a struct {
		Text string `json:"text"`
	}) (any, error) {
		return a.Text, nil
	})
	wire.AddTool(server, wire.Tool{Name: "count"}, func(ctx context.Context, x *wire.Exchange, a struct {
		N       int `json:"n"`
		DelayMs int `json:"delayMs,omitempty"`
	}) (any, error) {
		for i := range a.N {
			select {
			case <-time.After(time.Duration(a.DelayMs) * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if err := x.Progress(ctx, float64(i+1), float64(a.N)); err != nil {
				return nil, err
			}
		}
		return fmt.Sprint("counted to ", a.N), nil
	})
	return server
}
