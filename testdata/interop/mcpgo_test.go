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
	"strings"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/client/transport"
	mark3labs "github.com/mark3labs/mcp-go/mcp"
)

// mcpGo is the client of mcp-go.
type mcpGo struct {
	*client.Client
	guest
	way          *recorder    // over HTTP only
	server       *exec.Cmd    // over stdio only
	stderr       bytes.Buffer // to be read once the server has ended
	acknowledged bool         // a subscription is; guarded by mu
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
	return &mcpGo{guest: guest{ctx: ctx}, way: &recorder{sink: io.Discard}}
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
		switch said := n.Params.AdditionalFields; n.Method {
		case "notifications/progress":
			c.progress = append(c.progress, said["progress"].(float64))
		case "notifications/resources/updated":
			c.updated = append(c.updated, said["uri"].(string))
		case "notifications/resources/list_changed":
			c.listChanged++
		case "notifications/subscriptions/acknowledged":
			c.acknowledged = true
		}
	})
	if err := c.Start(c.ctx); err != nil {
		t.Fatal(err)
	}
	init := mark3labs.InitializeRequest{}
	init.Params.ClientInfo = mark3labs.Implementation{Name: "interop", Version: "1"}
	return c.Initialize(c.ctx, init)
}

func (c *mcpGo) tools() (names []string, err error) {
	list, err := c.ListTools(c.ctx, mark3labs.ListToolsRequest{})
	if err != nil {
		return nil, err
	}
	for _, tool := range list.Tools {
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c *mcpGo) call(ctx context.Context, tool string, arguments map[string]any) (text string, isError bool, err error) {
	req := mark3labs.CallToolRequest{}
	req.Params = mark3labs.CallToolParams{Name: tool, Arguments: arguments, Meta: &mark3labs.Meta{ProgressToken: "token"}}
	result, err := c.CallTool(ctx, req)
	if err != nil || len(result.Content) != 1 {
		return "", false, err
	}
	return result.Content[0].(mark3labs.TextContent).Text, result.IsError, nil
}

func (c *mcpGo) read(uri string) (text string, err error) {
	result, err := c.ReadResource(c.ctx, mark3labs.ReadResourceRequest{Params: mark3labs.ReadResourceParams{URI: uri}})
	if err != nil || len(result.Contents) != 1 {
		return "", err
	}
	return result.Contents[0].(mark3labs.TextResourceContents).Text, nil
}

func (c *mcpGo) prompt(name, argument string) (messages int, err error) {
	result, err := c.GetPrompt(c.ctx, mark3labs.GetPromptRequest{
		Params: mark3labs.GetPromptParams{Name: name, Arguments: map[string]string{"name": argument}}})
	if err != nil {
		return 0, err
	}
	return len(result.Messages), nil
}

func (c *mcpGo) subscribe(t *testing.T, uri string) (end func()) {
	t.Helper()
	if c.ProtocolVersion() == "2026-07-28" {
		end, err := c.ListenAsync(c.ctx, mark3labs.SubscriptionFilter{ResourcesListChanged: true, ResourceSubscriptions: []string{uri}},
			func(err error) { t.Errorf("listening: %v", err) })
		if err != nil {
			t.Fatal(err)
		}
		c.eventually(t, "an acknowledgement", func() bool { return c.acknowledged })
		return end
	}
	if err := c.Subscribe(c.ctx, mark3labs.SubscribeRequest{Params: mark3labs.SubscribeParams{URI: uri}}); err != nil {
		t.Fatal(err)
	}
	return func() {
		if err := c.Unsubscribe(c.ctx, mark3labs.UnsubscribeRequest{Params: mark3labs.UnsubscribeParams{URI: uri}}); err != nil {
			t.Error(err)
		}
	}
}

// fault: of an error mcp-go shows the kind and the message, not the data.
func (c *mcpGo) fault(err error) (code int64, text string) {
	switch {
	case errors.Is(err, mark3labs.ErrInvalidParams):
		return mark3labs.INVALID_PARAMS, ""
	case errors.Is(err, mark3labs.ErrResourceNotFound):
		return mark3labs.RESOURCE_NOT_FOUND, ""
	}
	return 0, ""
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
	c.note = note
	for _, step := range peerSteps {
		if way.kind == "sse" && (step.name == "elicitation" || step.name == "cancellation") {
			continue // it cannot be asked there, and does not tell what it cancels
		}
		step.run(t, c, way.rev)
	}
	if way.kind == "http" && way.rev.modern {
		mcpGoHeader(t, c)
	}
	mcpGoClose(t, c, way)
}

// mcpGoHeader: the fields that mcp-go writes are those that the specification wants.
func mcpGoHeader(t *testing.T, c *mcpGo) {
	for unit, isUnit := range map[string]bool{"fahrenheit": true, "réaumur": false} {
		if text, isError, err := c.call(c.ctx, "get-weather", map[string]any{"city": "Oslo", "unit": unit}); err != nil || isError == isUnit {
			t.Errorf("%s: %s, %v", unit, text, err)
		}
	}
	if _, err := c.read("note:///naïve"); err == nil || !strings.Contains(err.Error(), "Resource not found") {
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
		if names, err := c.tools(); err != nil || len(names) != 5 {
			t.Errorf("%q, %v", names, err)
		}
		return result.ProtocolVersion, ""
	}
}
