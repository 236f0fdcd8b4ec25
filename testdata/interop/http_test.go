package interop

//lint:file-ignore SA1019 sessions are deprecated in 2026-07-28, and with them what mcp-go has for them

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mark3labs "github.com/mark3labs/mcp-go/mcp"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// handshake are the versions with sessions, newest first. Most tests here are about these alone; eras_test.go has what is newer.
const handshake = "2025-11-25,2025-06-18,2025-03-26,2024-11-05"

// transports are those over HTTP, as the Inspector calls them.
var transports = []string{"http", "sse"}

func (d daemon) url(transport string) string {
	if transport == "sse" {
		return d.sse
	}
	return d.mcp
}

// recorder is a client's way to the server.
type recorder struct {
	sink io.Writer // takes what comes back

	mu                sync.Mutex // guards the fields below
	exchanges         []string   // method and status, and whether it resumes a stream
	headers           []http.Header
	session, endpoint string // the last that was sent; the last that was posted to
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	exchange := req.Method + " " + resp.Status
	if req.Header.Get("Last-Event-ID") != "" {
		exchange += ", resumed"
	}
	r.exchanges = append(r.exchanges, exchange)
	r.headers = append(r.headers, req.Header.Clone())
	if req.Method == "POST" {
		r.endpoint = req.URL.String()
	}
	if session := req.Header.Get("Mcp-Session-Id"); session != "" {
		r.session = session
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, r.sink), resp.Body}
	return resp, nil
}

func (r *recorder) had(exchange string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.exchanges, exchange)
}

// sent reports whether a field has been sent with a value.
func (r *recorder) sent(name, value string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.headers, func(h http.Header) bool { return slices.Contains(h.Values(name), value) })
}

// ended checks that closing a client was the end of its session. Over HTTP+SSE the stream is the session.
func (r *recorder) ended(t *testing.T, transport string) {
	t.Helper()
	if transport == "http" && !r.had("DELETE 200 OK") {
		t.Errorf("no DELETE, or not answered: %q", r.exchanges)
	}
	gone(t, r.endpoint, r.session)
}

// ---- MCP Inspector ----

// Over HTTP+SSE there is no other era than legacy.
func TestInspectorHTTP(t *testing.T) {
	t.Parallel()
	server := serve(t, "-versions", handshake)
	for _, test := range []struct {
		name   string
		flags  []string
		exit   int
		stdout string
		stderr string
	}{
		{name: "initialize", flags: []string{"--method", "initialize"},
			stdout: `{"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"mcpwire","title":"mcpwire demo"}}}`},
		{name: "tools", flags: []string{"--method", "tools/list", "--strict"},
			stdout: `{"result":{"tools":[{"name":"ask"},{"name":"count"},{"name":"echo"},{"name":"get-weather"},{"name":"set-note"}]}}`},
		{name: "a tool", flags: []string{"--method", "tools/call", "--tool-name", "get-weather", "--tool-arg", "city=Oslo"},
			stdout: `{"result":{"content":[{"type":"text","text":"Current temperature in Oslo is 18°C"}]}}`},
		{name: "a resource", flags: []string{"--method", "resources/read", "--uri", "note:///welcome"},
			stdout: `{"result":{"contents":[{"uri":"note:///welcome","mimeType":"text/plain","text":"This note is served by mcpwire."}]}}`},
		{name: "a prompt", flags: []string{"--method", "prompts/get", "--prompt-name", "summarize-note", "--prompt-args", "name=welcome"},
			stdout: `{"result":{"messages":[{"role":"user","content":{"type":"resource"}},{"role":"user","content":{"type":"text"}}]}}`},
		{name: "a log level", flags: []string{"--method", "logging/setLevel", "--log-level", "debug"}, stdout: `{"result":{}}`},
		{name: "missing argument", flags: []string{"--method", "tools/call", "--tool-name", "get-weather"},
			exit: 1, stderr: `{"error":{"message":"Invalid params"}}`},
		{name: "unknown resource", flags: []string{"--method", "resources/read", "--uri", "note:///nothing"},
			exit: 1, stderr: `{"error":{"message":"Resource not found"}}`},
		{name: "a question", flags: []string{"--method", "tools/call", "--tool-name", "ask"}, // which it does not offer to answer
			exit: 5, stdout: `{"result":{"isError":true}}`},
		{name: "modern or nothing", flags: []string{"--protocol-era", "modern", "--method", "tools/list"}, exit: 1, stderr: `{"error":{}}`},
		{name: "found out", flags: []string{"--protocol-era", "auto", "--method", "initialize"},
			stdout: `{"result":{"protocolVersion":"2025-11-25"}}`},
	} {
		for _, transport := range transports {
			t.Run(transport+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				out := inspectTarget(t, []string{server.url(transport), "--transport", transport}, test.flags)
				out.check(t, test.exit, test.stdout, test.stderr)
			})
		}
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		out := inspectTarget(t, []string{server.base + "/nothing", "--transport", "http"}, []string{"--method", "tools/list"})
		if out.exit == 0 {
			t.Error("exit 0")
		}
		expect(t, out.stderr, `{"error":{}}`)
	})
}

func TestInspectorToken(t *testing.T) {
	t.Parallel()
	server := serve(t, "-versions", handshake, "-token", "sesame")
	for _, transport := range transports {
		for _, token := range []string{"", "sesame", "barley"} {
			t.Run(transport+"/token "+strconv.Quote(token), func(t *testing.T) {
				t.Parallel()
				flags := []string{"--method", "tools/list"}
				if token != "" {
					flags = append(flags, "--header", "Authorization: Bearer "+token)
				}
				out := inspectTarget(t, []string{server.url(transport), "--transport", transport}, flags)
				if (out.exit == 0) != (token == "sesame") {
					t.Errorf("exit %d", out.exit)
				}
			})
		}
	}
}

// ---- TypeScript SDK ----

func typeScript(t *testing.T, args ...string) outcome {
	t.Helper()
	node := script(t, "@modelcontextprotocol/sdk/dist/esm/client/index.js")[0]
	out := run(t, nil, "", append([]string{node, "ts1.mjs"}, args...)...)
	if out.exit != 0 {
		t.Fatalf("exit %d", out.exit)
	}
	return out
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions[1:] {
		for _, transport := range transports {
			t.Run(rev.version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				server := serve(t, "-versions", rev.version)
				out := typeScript(t, transport, server.url(transport))
				asked := `"Hello, Ada"`
				if !rev.asks {
					asked = `"an error"`
				}
				deleted := "null"
				if transport == "http" {
					deleted = "200"
				}
				expect(t, out.stdout, `{"server":"mcpwire","version":"`+rev.version+`","tools":["ask","count","echo","get-weather","set-note"],
					"weather":"Current temperature in Oslo is 18°C","missing":[-32602,"Missing required argument: 'city'"],"echo":true,
					"note":"This note is served by mcpwire.","prompt":2,"counted":"counted to 50","inOrder":true,"asked":`+asked+`,
					"cancelled":"McpError: MCP error -32001: enough","went":"on","late":0,
					"listChanged":1,"updated":["note:///today"],"deleted":`+deleted+`,"after":404,"errors":[]}`)
			})
		}
	}
}

// ---- Go SDK ----

// TestSDKClientHTTP is a whole session over each transport in each revision.
func TestSDKClientHTTP(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions[1:] {
		for _, transport := range transports {
			t.Run(rev.version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				server := serve(t, "-versions", rev.version)
				c := newSDKClient(t)
				way := &recorder{sink: c}
				if transport == "http" {
					c.connect(t, &mcp.StreamableClientTransport{Endpoint: server.mcp, HTTPClient: &http.Client{Transport: way}}, "")
				} else {
					c.connect(t, &mcp.SSEClientTransport{Endpoint: server.sse, HTTPClient: &http.Client{Transport: way}}, "")
				}
				if !way.had("GET 200 OK") { // before anything is published
					t.Fatal("no stream")
				}
				for _, step := range sdkSteps {
					t.Run(step.name, func(t *testing.T) { step.run(t, c, rev) })
				}
				t.Run("close", func(t *testing.T) {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					way.ended(t, transport)
				})
			})
		}
	}
}

// ---- Without sessions ----

// TestStateless: clients that expect a session do without. They are told that there is no stream to listen on, and have nothing to end.
func TestStateless(t *testing.T) {
	t.Parallel()
	server := serve(t, "-versions", handshake, "-stateless")
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		c := newSDKClient(t)
		way := &recorder{sink: c}
		c.connect(t, &mcp.StreamableClientTransport{Endpoint: server.mcp, HTTPClient: &http.Client{Transport: way}}, "")
		has := c.InitializeResult().Capabilities
		if has.Tools == nil || has.Logging != nil || has.Resources.Subscribe || has.Resources.ListChanged {
			t.Errorf("capabilities %+v, %+v", has, has.Resources)
		}
		rev := revision{version: "2025-11-25", titles: true} // in which nobody can be asked
		sdkTools(t, c, rev)
		sdkResources(t, c, rev)
		sdkPrompts(t, c, rev)
		sdkCompletion(t, c, rev)
		sdkProgress(t, c, rev)
		sdkElicitation(t, c, rev)
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if way.session != "" || !way.had("GET 405 Method Not Allowed") || way.had("DELETE 405 Method Not Allowed") {
			t.Errorf("session %q, exchanges %q", way.session, way.exchanges)
		}
	})
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		out := typeScript(t, "http", server.mcp, "5", "10")
		expect(t, out.stdout, `{"counted":"counted to 5","steps":[1,2,3,4,5],"session":false,"listens":405,"resumed":false}`)
	})
}

// ---- mcp-go ----

// mcpGo is the client of mcp-go, and what it has heard.
type mcpGo struct {
	*client.Client
	ctx context.Context
	way *recorder

	server *exec.Cmd    // over stdio only
	stderr bytes.Buffer // to be read once the server has ended

	mu    sync.Mutex // guards heard
	heard []mark3labs.JSONRPCNotification
}

// Elicit makes it an elicitation handler.
func (c *mcpGo) Elicit(context.Context, mark3labs.ElicitationRequest) (*mark3labs.ElicitationResult, error) {
	return &mark3labs.ElicitationResult{ElicitationResponse: mark3labs.ElicitationResponse{
		Action: mark3labs.ElicitationResponseActionAccept, Content: map[string]any{"name": "Ada"}}}, nil
}

func dialMCPGo(t *testing.T, kind string, server daemon) *mcpGo {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	c := &mcpGo{ctx: ctx, way: &recorder{sink: io.Discard}}
	plain, quiet := &http.Client{Transport: c.way}, slog.New(slog.DiscardHandler)
	var err error
	if kind == "http" {
		var way *transport.StreamableHTTP
		way, err = transport.NewStreamableHTTP(server.mcp,
			transport.WithContinuousListening(), transport.WithHTTPBasicClient(plain), transport.WithHTTPLogger(quiet))
		c.Client = client.NewClient(way, client.WithElicitationHandler(c))
	} else { // no elicitation: over HTTP+SSE it takes no requests, and would not even refuse them
		c.Client, err = client.NewSSEMCPClient(server.sse, client.WithHTTPClient(plain), transport.WithSSELogger(quiet))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	c.OnNotification(func(n mark3labs.JSONRPCNotification) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heard = append(c.heard, n)
	})
	if err := c.Start(ctx); err != nil {
		t.Fatal(err)
	}
	init := mark3labs.InitializeRequest{}
	init.Params.ClientInfo = mark3labs.Implementation{Name: "interop", Version: "1"}
	result, err := c.Initialize(ctx, init)
	if err != nil {
		t.Fatal(err)
	}
	if result.ServerInfo.Name != "mcpwire" || result.ProtocolVersion != "2025-11-25" {
		t.Errorf("%+v", result)
	}
	eventually(t, "a stream to listen on", func() bool { return c.way.had("GET 200 OK") })
	return c
}

// text calls a tool that has to answer with one text, and maybe with progress.
func (c *mcpGo) text(t *testing.T, name string, arguments map[string]any) string {
	t.Helper()
	req := mark3labs.CallToolRequest{}
	req.Params = mark3labs.CallToolParams{Name: name, Arguments: arguments, Meta: &mark3labs.Meta{ProgressToken: "token"}}
	result, err := c.CallTool(c.ctx, req)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(result.Content) != 1 {
		t.Fatalf("%s: %+v", name, result)
	}
	return result.Content[0].(mark3labs.TextContent).Text
}

// all returns one parameter of all notifications of a kind, in the order in which they came.
func (c *mcpGo) all(method, param string) []any {
	c.mu.Lock()
	defer c.mu.Unlock()
	var values []any
	for _, n := range c.heard {
		if n.Method == method {
			values = append(values, n.Params.AdditionalFields[param])
		}
	}
	return values
}

// counts has fifty steps told. mcp-go handles notifications as it reads them: those before a result are there when the call returns.
func (c *mcpGo) counts(t *testing.T) {
	t.Helper()
	if got := c.text(t, "count", map[string]any{"n": 50}); got != "counted to 50" {
		t.Errorf("got %q", got)
	}
	steps := c.all("notifications/progress", "progress")
	if len(steps) != 50 {
		t.Errorf("%d steps", len(steps))
	}
	for i, step := range steps {
		if step != float64(i+1) {
			t.Errorf("progress %v", steps)
			break
		}
	}
}

// subscribe asks for updates of a note and for changes of the list, of which a legacy client hears anyway.
func (c *mcpGo) subscribe(t *testing.T, note string) (stop func()) {
	t.Helper()
	uri := "note:///" + note
	if c.ProtocolVersion() != "2026-07-28" {
		if err := c.Subscribe(c.ctx, mark3labs.SubscribeRequest{Params: mark3labs.SubscribeParams{URI: uri}}); err != nil {
			t.Fatal(err)
		}
		return func() {
			if err := c.Unsubscribe(c.ctx, mark3labs.UnsubscribeRequest{Params: mark3labs.UnsubscribeParams{URI: uri}}); err != nil {
				t.Error(err)
			}
		}
	}
	stop, err := c.ListenAsync(c.ctx, mark3labs.SubscriptionFilter{ResourcesListChanged: true, ResourceSubscriptions: []string{uri}},
		func(err error) { t.Errorf("listening: %v", err) })
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "an acknowledgement", func() bool { return len(c.all("notifications/subscriptions/acknowledged", "")) > 0 })
	return stop
}

func TestMCPGo(t *testing.T) {
	t.Parallel()
	for _, kind := range transports {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			server := serve(t, "-versions", handshake)
			c, other := dialMCPGo(t, kind, server), dialMCPGo(t, kind, server)
			list, err := c.ListTools(c.ctx, mark3labs.ListToolsRequest{})
			if err != nil || len(list.Tools) != 5 {
				t.Errorf("%+v, %v", list, err)
			}
			if got, want := c.text(t, "get-weather", map[string]any{"city": "Oslo"}), "Current temperature in Oslo is 18°C"; got != want {
				t.Errorf("got %q, want %q", got, want)
			}
			if _, err := c.CallTool(c.ctx, mark3labs.CallToolRequest{}); err == nil || !strings.Contains(err.Error(), "Invalid params") {
				t.Errorf("a call without a name: %v", err)
			}
			if got := c.text(t, "echo", map[string]any{"text": "añ€😀", "repeat": 100_000}); got != strings.Repeat("añ€😀", 100_000) {
				t.Errorf("1 MB came back as %d bytes", len(got))
			}

			c.counts(t)
			if kind == "http" {
				if got := c.text(t, "ask", map[string]any{}); got != "Hello, Ada" {
					t.Errorf("got %q", got)
				}
			}

			c.subscribe(t, "today")
			other.text(t, "set-note", map[string]any{"name": "today", "text": "rain"})
			for _, c := range []*mcpGo{c, other} {
				eventually(t, "the list has changed", func() bool { return len(c.all("notifications/resources/list_changed", "")) == 1 })
			}
			eventually(t, "the note was updated", func() bool {
				return slices.Equal(c.all("notifications/resources/updated", "uri"), []any{"note:///today"})
			})
			if updated := other.all("notifications/resources/updated", "uri"); updated != nil {
				t.Errorf("one that has not subscribed heard of %v", updated)
			}

			if err := c.Close(); err != nil {
				t.Error(err)
			}
			c.way.ended(t, kind)
			if got := other.text(t, "echo", map[string]any{"text": "still here"}); got != "still here" {
				t.Errorf("got %q", got)
			}
		})
	}
}
