package interop

//lint:file-ignore SA1019 mcp-go marks sessions, and what keeps it to the handshake, as deprecated

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mark3labs "github.com/mark3labs/mcp-go/mcp"
)

// mcpGo is the client of mcp-go, and what it has heard.
type mcpGo struct {
	*client.Client
	ctx context.Context
	way *recorder // over HTTP only

	server *exec.Cmd    // over stdio only
	stderr bytes.Buffer // to be read once the server has ended

	mu    sync.Mutex // guards heard
	heard []mark3labs.JSONRPCNotification
}

// mcpGoWay is how it meets a server. Over HTTP, and over stdio, it is modern unless it is kept to an older revision.
type mcpGoWay struct {
	kind string // "stdio", "http" or "sse"
	rev  revision
}

// Elicit makes it an elicitation handler.
func (c *mcpGo) Elicit(context.Context, mark3labs.ElicitationRequest) (*mark3labs.ElicitationResult, error) {
	return &mark3labs.ElicitationResult{ElicitationResponse: mark3labs.ElicitationResponse{
		Action: mark3labs.ElicitationResponseActionAccept, Content: map[string]any{"name": "Ada"}}}, nil
}

func newMCPGo(t *testing.T) *mcpGo {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return &mcpGo{ctx: ctx, way: &recorder{sink: io.Discard}}
}

// meet begins, in whichever era comes of it. Over HTTP+SSE mcp-go takes no requests, and would not even refuse them.
func (c *mcpGo) meet(t *testing.T, to target, options ...client.ClientOption) (*mark3labs.InitializeResult, error) {
	t.Helper()
	quiet, plain := slog.New(slog.DiscardHandler), &http.Client{Transport: c.way}
	var way transport.Interface
	var err error
	switch {
	case to.isURL() && strings.HasSuffix(to[0], "/sse"):
		way, err = transport.NewSSE(to[0], transport.WithHTTPClient(plain), transport.WithSSELogger(quiet))
	case to.isURL():
		streamable := []transport.StreamableHTTPCOption{transport.WithHTTPBasicClient(plain), transport.WithHTTPLogger(quiet)}
		if len(options) > 1 { // a legacy client has a stream to listen on
			streamable = append(streamable, transport.WithContinuousListening())
		}
		way, err = transport.NewStreamableHTTP(to[0], streamable...)
	default:
		way = transport.NewStdioWithOptions(to[0], nil, to[1:], transport.WithCommandLogger(quiet),
			transport.WithCommandFunc(func(ctx context.Context, command string, _ []string, args []string) (*exec.Cmd, error) {
				c.server = exec.CommandContext(ctx, command, args...)
				c.server.Stderr = &c.stderr
				return c.server, nil
			}))
	}
	if err != nil {
		t.Fatal(err)
	}
	c.Client = client.NewClient(way, options...)
	t.Cleanup(func() { c.Close() })
	c.OnNotification(func(n mark3labs.JSONRPCNotification) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.heard = append(c.heard, n)
	})
	if err := c.Start(c.ctx); err != nil {
		t.Fatal(err)
	}
	init := mark3labs.InitializeRequest{}
	init.Params.ClientInfo = mark3labs.Implementation{Name: "interop", Version: "1"}
	return c.Initialize(c.ctx, init)
}

// text calls a tool that has to answer with one text, and maybe with progress.
func (c *mcpGo) text(t *testing.T, name string, arguments map[string]any) string {
	t.Helper()
	result, err := c.call(c.ctx, name, arguments)
	if err != nil || len(result.Content) != 1 {
		t.Fatalf("%s: %+v, %v", name, result, err)
	}
	return result.Content[0].(mark3labs.TextContent).Text
}

func (c *mcpGo) call(ctx context.Context, name string, arguments map[string]any) (*mark3labs.CallToolResult, error) {
	req := mark3labs.CallToolRequest{}
	req.Params = mark3labs.CallToolParams{Name: name, Arguments: arguments, Meta: &mark3labs.Meta{ProgressToken: "token"}}
	return c.CallTool(ctx, req)
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

// TestMCPGo is a whole session over each transport, in the revisions that mcp-go speaks there.
func TestMCPGo(t *testing.T) {
	t.Parallel()
	ways := []mcpGoWay{{"http", revisions[1]}, {"sse", revisions[1]}}
	for _, rev := range revisions {
		ways = append(ways, mcpGoWay{"stdio", rev})
	}
	for _, way := range ways {
		t.Run(way.kind+"/"+way.rev.version, func(t *testing.T) {
			t.Parallel()
			to := target{mcpwire}
			if way.kind != "stdio" {
				to = target{serve(t).url(way.kind)}
			}
			mcpGoSession(t, way, to, "today")
		})
	}
}

func mcpGoSession(t *testing.T, way mcpGoWay, to target, note string) {
	c := newMCPGo(t)
	options := []client.ClientOption{client.WithElicitationHandler(c)}
	if way.kind == "sse" {
		options = nil
	} else if !way.rev.modern {
		options = append(options, client.WithProtocolVersion(way.rev.version))
	}
	result, err := c.meet(t, to, options...)
	if err != nil {
		t.Fatal(err)
	}
	if result.ServerInfo.Name != "mcpwire" || result.ProtocolVersion != way.rev.version {
		t.Errorf("%+v", result)
	}
	if way.kind != "stdio" && !way.rev.modern {
		eventually(t, "a stream to listen on", func() bool { return c.way.had("GET 200 OK") })
	}
	mcpGoOffers(t, c)
	mcpGoProgress(t, c)
	if way.kind != "sse" { // where it cannot be asked, and does not tell what it cancels
		mcpGoElicitation(t, c, way.rev)
		mcpGoCancellation(t, c)
	}
	mcpGoSubscription(t, c, note)
	if way.kind == "http" && way.rev.modern {
		mcpGoHeader(t, c)
	}
	mcpGoClose(t, c, way)
}

// mcpGoOffers: of an error mcp-go shows the kind and the message, not the data.
func mcpGoOffers(t *testing.T, c *mcpGo) {
	list, err := c.ListTools(c.ctx, mark3labs.ListToolsRequest{})
	if err != nil || len(list.Tools) != 5 {
		t.Errorf("%+v, %v", list, err)
	}
	if got, want := c.text(t, "get-weather", map[string]any{"city": "Oslo"}), "Current temperature in Oslo is 18°C"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err = c.call(c.ctx, "get-weather", map[string]any{})
	if !errors.Is(err, mark3labs.ErrInvalidParams) || err.Error() != "invalid params: Invalid params" {
		t.Errorf("a missing argument: %v", err)
	}
	read, err := c.ReadResource(c.ctx, mark3labs.ReadResourceRequest{Params: mark3labs.ReadResourceParams{URI: "note:///welcome"}})
	if err != nil || len(read.Contents) != 1 {
		t.Fatalf("%+v, %v", read, err)
	}
	if note, ok := read.Contents[0].(mark3labs.TextResourceContents); !ok || note.Text != "This note is served by mcpwire." {
		t.Errorf("%+v", read.Contents[0])
	}
	prompt, err := c.GetPrompt(c.ctx, mark3labs.GetPromptRequest{
		Params: mark3labs.GetPromptParams{Name: "summarize-note", Arguments: map[string]string{"name": "welcome"}}})
	if err != nil || len(prompt.Messages) != 2 {
		t.Errorf("%+v, %v", prompt, err)
	}
	if got := c.text(t, "echo", map[string]any{"text": "añ€😀", "repeat": 100_000}); got != strings.Repeat("añ€😀", 100_000) {
		t.Errorf("1 MB came back as %d bytes", len(got))
	}
}

// mcpGoProgress: mcp-go handles notifications as it reads them, so those before a result are there when the call returns.
func mcpGoProgress(t *testing.T, c *mcpGo) {
	c.heard = nil
	if got := c.text(t, "count", map[string]any{"n": 50}); got != "counted to 50" {
		t.Errorf("got %q", got)
	}
	steps := c.all("notifications/progress", "progress")
	var want []any
	for n := range 50 {
		want = append(want, float64(n+1))
	}
	if !slices.Equal(steps, want) {
		t.Errorf("progress %v", steps)
	}
}

// mcpGoElicitation: in revisions older than elicitation nobody is asked, although the capability is declared.
func mcpGoElicitation(t *testing.T, c *mcpGo, rev revision) {
	result, err := c.call(c.ctx, "ask", map[string]any{})
	if err != nil || result.IsError == rev.asks || len(result.Content) != 1 {
		t.Fatalf("%+v, %v", result, err)
	}
	if got := result.Content[0].(mark3labs.TextContent).Text; rev.asks && got != "Hello, Ada" {
		t.Errorf("got %q", got)
	}
}

func mcpGoCancellation(t *testing.T, c *mcpGo) {
	c.mu.Lock()
	c.heard = nil
	c.mu.Unlock()
	steps := func() int { return len(c.all("notifications/progress", "progress")) }
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := c.call(ctx, "count", map[string]any{"n": 1000, "delayMs": 100})
		ended <- err
	}()
	eventually(t, "a first step", func() bool { return steps() > 0 })
	cancel()
	wasCancelled(t, ended)
	subsides(t, steps)
}

// mcpGoSubscription asks for updates of a note, and for changes of the list, of which a legacy client hears anyway.
func mcpGoSubscription(t *testing.T, c *mcpGo, note string) {
	uri := "note:///" + note
	stop := func() {
		if err := c.Unsubscribe(c.ctx, mark3labs.UnsubscribeRequest{Params: mark3labs.UnsubscribeParams{URI: uri}}); err != nil {
			t.Error(err)
		}
	}
	if c.ProtocolVersion() == "2026-07-28" {
		var err error
		stop, err = c.ListenAsync(c.ctx, mark3labs.SubscriptionFilter{ResourcesListChanged: true, ResourceSubscriptions: []string{uri}},
			func(err error) { t.Errorf("listening: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "an acknowledgement", func() bool { return len(c.all("notifications/subscriptions/acknowledged", "")) > 0 })
	} else if err := c.Subscribe(c.ctx, mark3labs.SubscribeRequest{Params: mark3labs.SubscribeParams{URI: uri}}); err != nil {
		t.Fatal(err)
	}
	c.text(t, "set-note", map[string]any{"name": note, "text": "rain"})
	eventually(t, "the list has changed", func() bool { return len(c.all("notifications/resources/list_changed", "")) > 0 })
	eventually(t, "the note was updated", func() bool {
		return slices.Equal(c.all("notifications/resources/updated", "uri"), []any{uri})
	})
	stop()
	if got := c.text(t, "echo", map[string]any{"text": "still here"}); got != "still here" {
		t.Errorf("got %q", got)
	}
}

// mcpGoHeader: the fields that mcp-go writes are those that the specification wants.
func mcpGoHeader(t *testing.T, c *mcpGo) {
	for unit, isUnit := range map[string]bool{"fahrenheit": true, "réaumur": false} {
		if result, err := c.call(c.ctx, "get-weather", map[string]any{"city": "Oslo", "unit": unit}); err != nil || result.IsError == isUnit {
			t.Errorf("%s: %+v, %v", unit, result, err)
		}
	}
	read := mark3labs.ReadResourceRequest{Params: mark3labs.ReadResourceParams{URI: "note:///naïve"}}
	if _, err := c.ReadResource(c.ctx, read); err == nil || !strings.Contains(err.Error(), "Resource not found") {
		t.Errorf("a resource whose name is no URI: %v", err)
	}
	for _, field := range [][2]string{{"Mcp-Param-Unit", "fahrenheit"}, {"Mcp-Param-Unit", "=?base64?csOpYXVtdXI=?="},
		{"Mcp-Name", "=?base64?bm90ZTovLy9uYcOvdmU=?="}} {
		if !c.way.sent(field[0], field[1]) {
			t.Errorf("no %s: %s", field[0], field[1])
		}
	}
}

// mcpGoClose: over stdio, end of input ends the server, with exit status 0 and nothing to complain about.
func mcpGoClose(t *testing.T, c *mcpGo, way mcpGoWay) {
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	switch {
	case way.kind != "stdio" && way.rev.modern:
		c.way.sessionless(t)
	case way.kind != "stdio":
		c.way.ended(t, way.kind)
	default:
		if took := time.Since(start); took > 2*time.Second { // by then mcp-go sends SIGTERM
			t.Errorf("it took %v", took)
		}
		if state := c.server.ProcessState; state == nil || !state.Success() || c.stderr.Len() > 0 {
			t.Errorf("%v, stderr %q", state, &c.stderr)
		}
	}
}

// byMCPGo is for the matrix.
func byMCPGo(options ...client.ClientOption) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (version, failure string) {
		c := newMCPGo(t)
		result, err := c.meet(t, to, options...)
		if err != nil {
			t.Log(err)
			return "", err.Error()
		}
		if list, err := c.ListTools(c.ctx, mark3labs.ListToolsRequest{}); err != nil || len(list.Tools) != 5 {
			t.Errorf("%+v, %v", list, err)
		}
		return result.ProtocolVersion, ""
	}
}
