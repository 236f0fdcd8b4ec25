package interop

//lint:file-ignore SA1019 logging is deprecated in 2026-07-28, and what tells whether it is there

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Here a session is the same for each client that others wrote in Go.

// peer is such a client, connected to a server of ours.
type peer interface {
	self() *guest
	Close() error
	version() string
	tools() ([]string, error)
	call(ctx context.Context, tool string, arguments map[string]any) (text string, isError bool, err error) // with a progress token
	read(uri string) (text string, err error)
	prompt(name, argument string) (messages int, err error)
	subscribe(t *testing.T, uri string) (end func()) // to a resource, and to the list of them
	fault(err error) (code int64, text string)       // of JSON-RPC; text "": the client does not show it
	shows(t *testing.T, rev revision)                // does what no other client shows
}

// meetFunc connects a client to a server, kept to a version, or in whichever comes of it: "".
type meetFunc func(t *testing.T, to target, version string) (peer, error)

// target is a server: at a URL, or a command to be started.
type target []string

func (to target) transport() string {
	switch {
	case !strings.HasPrefix(to[0], "http"):
		return "stdio"
	case strings.HasSuffix(to[0], "/sse"):
		return "sse"
	}
	return "http"
}

// guest is what all of them have: a way to the server, a note to set, and what they have heard so far.
type guest struct {
	ctx       context.Context
	to        target
	patience  time.Duration // in which a server on stdio has to end by itself
	leavesOut []string      // steps that the client has no way to do
	note      string
	host      string       // the name of the server; "": that of its URL
	server    *exec.Cmd    // over stdio only
	stderr    bytes.Buffer // of the server, to be read once it has ended

	mu                sync.Mutex   // guards the fields below
	wire              bytes.Buffer // all messages that come, but for those over stdio to a client that does not show them
	exchanges         []string     // over HTTP: method and status, and whether it resumes a stream
	headers           []http.Header
	session, endpoint string // the last that was sent; the last that was posted to
	progress          []float64
	logged            []string
	updated           []string
	listChanged       int
}

func newGuest(t *testing.T, to target, patience time.Duration) *guest {
	ctx, cancel := context.WithTimeout(context.Background(), 4*limit)
	g := &guest{ctx: ctx, to: to, patience: patience, note: "today"}
	t.Cleanup(func() {
		cancel()
		g.hear(func() { t.Logf("%q\n%s-- stderr --\n%s", to, &g.wire, &g.stderr) })
	})
	return g
}

func (g *guest) self() *guest { return g }

// hear notes something.
func (g *guest) hear(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// Write takes the messages that pass, one at a time.
func (g *guest) Write(line []byte) (n int, err error) {
	g.hear(func() { n, err = g.wire.Write(line) })
	return n, err
}

// start returns the command of the server, for a client that has it run.
func (g *guest) start(ctx context.Context) *exec.Cmd {
	g.server = exec.CommandContext(ctx, g.to[0], g.to[1:]...)
	g.server.Stderr = &g.stderr
	return g.server
}

// RoundTrip makes it the client's way to the server.
func (g *guest) RoundTrip(req *http.Request) (*http.Response, error) {
	if g.host != "" {
		req = req.Clone(req.Context())
		req.Host = g.host
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	exchange := req.Method + " " + resp.Status
	if req.Header.Get("Last-Event-ID") != "" {
		exchange += ", resumed"
	}
	g.exchanges = append(g.exchanges, exchange)
	g.headers = append(g.headers, req.Header.Clone())
	if req.Method == "POST" {
		g.endpoint = req.URL.String()
	}
	if session := req.Header.Get("Mcp-Session-Id"); session != "" {
		g.session = session
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, g), resp.Body}
	return resp, nil
}

func (g *guest) had(exchange string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Contains(g.exchanges, exchange)
}

// sent checks that a field has been sent with a value.
func (g *guest) sent(t *testing.T, name, value string) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	if !slices.ContainsFunc(g.headers, func(h http.Header) bool { return slices.Contains(h.Values(name), value) }) {
		t.Errorf("no %s: %s", name, value)
	}
}

// sessionless checks that a client has only posted, and that nobody has given it a session.
func (g *guest) sessionless(t *testing.T) {
	t.Helper()
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, exchange := range g.exchanges {
		if !strings.HasPrefix(exchange, "POST ") {
			t.Errorf("a modern client: %s", exchange)
		}
	}
	if g.session != "" {
		t.Errorf("session %q", g.session)
	}
}

// eventually waits for what a notification brings about: they are handled in their own time, beside the calls.
func (g *guest) eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return reached()
	})
}

// answers calls a tool that has to answer with this text.
func answers(t *testing.T, p peer, want, tool string, arguments map[string]any) {
	t.Helper()
	if got, isError, err := p.call(p.self().ctx, tool, arguments); got != want || isError || err != nil {
		t.Fatalf("%s: got %q, isError %v, %v, want %q", tool, got, isError, err, want)
	}
}

// refuses checks that an error has this code and, if it shows a text, this text.
func refuses(t *testing.T, p peer, err error, code int64, want string) {
	t.Helper()
	if got, said := p.fault(err); got != code || said != "" && !strings.Contains(said, want) {
		t.Errorf("got %v, want code %d with %s", err, code, want)
	}
}

// meet connects a client, which has to come to speak a revision.
func meet(t *testing.T, client meetFunc, to target, version string, rev revision) peer {
	t.Helper()
	p, err := client(t, to, version)
	if err != nil {
		t.Fatal(err)
	}
	if got := p.version(); got != rev.version {
		t.Fatalf("got %s, want %s", got, rev.version)
	}
	return p
}

// session does all that there is to do.
func session(t *testing.T, p peer, rev revision) {
	g := p.self()
	if g.to.transport() != "stdio" && !rev.modern { // before anything is published
		eventually(t, "a stream to listen on", func() bool { return g.had("GET 200 OK") })
	}
	for _, step := range peerSteps {
		if !slices.Contains(g.leavesOut, step.name) {
			t.Run(step.name, func(t *testing.T) { step.run(t, p, rev) })
		}
	}
	p.shows(t, rev)
}

// leave closes a client. Over stdio the end of its input ends the server, with exit status 0, and with nothing to complain about. Over HTTP
// that is the end of the session, unless the client is modern, and has had none. Over HTTP+SSE the stream is the session.
func leave(t *testing.T, p peer, rev revision) {
	t.Helper()
	g, start := p.self(), time.Now()
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	if g.to.transport() == "stdio" {
		if took := time.Since(start); took > g.patience {
			t.Errorf("it took %v", took)
		}
		if state := g.server.ProcessState; state == nil || !state.Success() || g.stderr.Len() > 0 {
			t.Errorf("%v, stderr %q", state, &g.stderr)
		}
		return
	}
	if rev.modern {
		g.sessionless(t)
		return
	}
	if g.to.transport() == "http" && !g.had("DELETE 200 OK") {
		t.Errorf("no DELETE, or not answered: %q", g.exchanges)
	}
	gone(t, g.endpoint, g.session)
}

// TestGoClients: each client has a whole session over each transport, in the revisions that it speaks there. Either the server is kept to
// one, and the client finds it out, or the client is.
func TestGoClients(t *testing.T) {
	t.Parallel()
	legacy := revisions[1:]
	for _, test := range []struct {
		name, transport string
		client          meetFunc
		isKept          bool // to the revision, rather than the server
		revisions       []revision
	}{
		{"Go SDK", "stdio", meetSDK, false, revisions},
		{"Go SDK", "http", meetSDK, false, legacy},
		{"Go SDK", "sse", meetSDK, false, legacy},
		{"mcp-go", "stdio", meetMCPGo, true, revisions},
		{"mcp-go", "http", meetMCPGo, true, legacy[:1]},
		{"mcp-go", "sse", meetMCPGo, true, legacy[:1]},
	} {
		for _, rev := range test.revisions {
			t.Run(test.name+"/"+test.transport+"/"+rev.version, func(t *testing.T) {
				t.Parallel()
				var flags []string
				version := rev.version
				if !test.isKept {
					flags, version = []string{"-versions", rev.version}, ""
				}
				p := meet(t, test.client, ourServer(t, test.transport, flags...), version, rev)
				session(t, p, rev)
				leave(t, p, rev)
			})
		}
	}
}

// TestStateless: clients that expect a session do without. They are told that there is no stream to listen on, and have nothing to end.
func TestStateless(t *testing.T) {
	t.Parallel()
	server := serve(t, "-versions", handshake, "-stateless")
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		c := dialSDK(t, target{server.mcp}, "")
		has := c.InitializeResult().Capabilities
		if has.Tools == nil || has.Logging != nil || has.Resources.Subscribe || has.Resources.ListChanged {
			t.Errorf("capabilities %+v, %+v", has, has.Resources)
		}
		rev := revision{version: "2025-11-25"} // in which nobody can be asked
		for _, step := range peerSteps[:5] {   // without a subscription, and what cannot be cancelled
			step.run(t, c, rev)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if c.session != "" || !c.had("GET 405 Method Not Allowed") || c.had("DELETE 405 Method Not Allowed") {
			t.Errorf("session %q, exchanges %q", c.session, c.exchanges)
		}
	})
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		out := typeScript1(t, target{server.mcp}, "5", "10")
		expect(t, out.stdout, `{"counted":"counted to 5","steps":[1,2,3,4,5],"session":false,"listens":405,"resumed":false}`)
	})
}

// peerSteps are what a session does on every transport, in this order.
var peerSteps = []struct {
	name string
	run  func(*testing.T, peer, revision)
}{
	{"tools", peerTools},
	{"resources", peerResources},
	{"prompts", peerPrompts},
	{"progress", peerProgress},
	{"elicitation", peerElicitation},
	{"subscription", peerSubscription},
	{"cancellation", peerCancellation},
}

func peerTools(t *testing.T, p peer, _ revision) {
	names, err := p.tools()
	if want := []string{"ask", "count", "echo", "get-weather", "set-note"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, err, want)
	}
	answers(t, p, "Current temperature in Oslo is 18°C", "get-weather", map[string]any{"city": "Oslo"})
	_, _, err = p.call(p.self().ctx, "get-weather", map[string]any{})
	refuses(t, p, err, jsonrpc.CodeInvalidParams, "Missing required argument: 'city'")
	_, _, err = p.call(p.self().ctx, "no-such-tool", map[string]any{})
	refuses(t, p, err, jsonrpc.CodeInvalidParams, "Unknown tool: no-such-tool")
}

func peerResources(t *testing.T, p peer, rev revision) {
	if got, err := p.read("note:///welcome"); got != "This note is served by mcpwire." {
		t.Errorf("got %q, %v", got, err)
	}
	notFound := int64(-32002)
	if rev.modern {
		notFound = jsonrpc.CodeInvalidParams
	}
	_, err := p.read("note:///nothing")
	refuses(t, p, err, notFound, "note:///nothing")
}

func peerPrompts(t *testing.T, p peer, _ revision) {
	if messages, err := p.prompt("summarize-note", "welcome"); messages != 2 || err != nil {
		t.Errorf("%d messages, %v", messages, err)
	}
}

func peerProgress(t *testing.T, p peer, _ revision) {
	answers(t, p, "counted to 50", "count", map[string]any{"n": 50})
	var want []float64
	for n := range 50 {
		want = append(want, float64(n+1))
	}
	g := p.self()
	g.eventually(t, "fifty steps in order", func() bool { return slices.Equal(g.progress, want) })
	g.hear(func() { // a client may handle them beside the result; in which order they came is to be seen here
		wire := g.wire.String()
		if strings.LastIndex(wire, `"notifications/progress"`) > strings.Index(wire, "counted to 50") {
			t.Error("progress after the result")
		}
	})
}

// peerElicitation: in revisions older than elicitation nobody is asked, although the capability is declared.
func peerElicitation(t *testing.T, p peer, rev revision) {
	text, isError, err := p.call(p.self().ctx, "ask", map[string]any{})
	if isError == rev.asks || rev.asks && text != "Hello, Ada" || err != nil {
		t.Errorf("got %q, isError %v, %v", text, isError, err)
	}
}

// peerSubscription: a legacy client hears of a changed list without asking.
func peerSubscription(t *testing.T, p peer, _ revision) {
	g := p.self()
	uri := "note:///" + g.note
	end := p.subscribe(t, uri)
	before := 0
	g.hear(func() { before = g.listChanged })
	answers(t, p, "Noted as "+uri, "set-note", map[string]any{"name": g.note, "text": "rain"})
	g.eventually(t, "the list of resources has changed", func() bool { return g.listChanged > before })
	g.eventually(t, "the note was updated", func() bool { return slices.Equal(g.updated, []string{uri}) })
	end()
}

// peerCancellation: the caller is free at once, the server stops, and the session goes on.
func peerCancellation(t *testing.T, p peer, _ revision) {
	g := p.self()
	g.hear(func() { g.progress = nil })
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := p.call(ctx, "count", map[string]any{"n": 1000, "delayMs": 100})
		ended <- err
	}()
	g.eventually(t, "a first step", func() bool { return len(g.progress) > 0 })
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
	case <-time.After(limit / 4): // to the end it would be 100 s
		t.Fatal("the call goes on")
	}
	for before, steps := -1, 0; steps != before; time.Sleep(500 * time.Millisecond) { // until half a second has passed without another one
		before = steps
		if g.hear(func() { steps = len(g.progress) }); steps > 100 {
			t.Fatal("the server goes on")
		}
	}
	answers(t, p, "still here", "echo", map[string]any{"text": "still here"})
}
