package interop

//lint:file-ignore SA1019 mcp-go marks sessions, and what keeps it to the handshake, as deprecated

import (
	"context"
	"errors"
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
	*guest
	acknowledged bool // a subscription is; guarded by mu
}

// Elicit makes it an elicitation handler.
func (c *mcpGo) Elicit(context.Context, mark3labs.ElicitationRequest) (*mark3labs.ElicitationResult, error) {
	return &mark3labs.ElicitationResult{ElicitationResponse: mark3labs.ElicitationResponse{
		Action: mark3labs.ElicitationResponseActionAccept, Content: map[string]any{"name": "Ada"}}}, nil
}

// meetMCPGo begins a session. Unless it is kept to an older version, mcp-go is modern. Over HTTP+SSE it takes no requests, and would not even
// refuse them; nor does it tell there what it cancels.
func meetMCPGo(t *testing.T, to target, version string) (peer, error) {
	c := &mcpGo{guest: newGuest(t, to, 2*time.Second)} // then it sends SIGTERM
	quiet, plain := slog.New(slog.DiscardHandler), &http.Client{Transport: c}
	options := []client.ClientOption{client.WithElicitationHandler(c)}
	isLegacy := version != "" && version != "2026-07-28"
	if isLegacy {
		options = append(options, client.WithProtocolVersion(version))
	}
	var way transport.Interface
	var err error
	switch to.transport() {
	case "sse":
		way, err = transport.NewSSE(to[0], transport.WithHTTPClient(plain), transport.WithSSELogger(quiet))
		options, c.leavesOut = nil, []string{"elicitation", "cancellation"}
	case "http":
		streamable := []transport.StreamableHTTPCOption{transport.WithHTTPBasicClient(plain), transport.WithHTTPLogger(quiet)}
		if isLegacy { // it has a stream to listen on
			streamable = append(streamable, transport.WithContinuousListening())
		}
		way, err = transport.NewStreamableHTTP(to[0], streamable...)
	default:
		way = transport.NewStdioWithOptions(to[0], nil, to[1:], transport.WithCommandLogger(quiet),
			transport.WithCommandFunc(func(ctx context.Context, _ string, _ []string, _ []string) (*exec.Cmd, error) {
				return c.start(ctx), nil
			}))
	}
	if err != nil {
		return nil, err
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
		return nil, err
	}
	init := mark3labs.InitializeRequest{}
	init.Params.ClientInfo = mark3labs.Implementation{Name: "interop", Version: "1"}
	result, err := c.Initialize(c.ctx, init)
	if err == nil && result.ServerInfo.Name != "mcpwire" {
		t.Errorf("%+v", result)
	}
	return c, err
}

func (c *mcpGo) version() string { return c.ProtocolVersion() }

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

// shows: the fields that mcp-go writes are those that the specification wants.
func (c *mcpGo) shows(t *testing.T, rev revision) {
	if !rev.modern || c.to.transport() != "http" {
		return
	}
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
		c.sent(t, field[0], field[1])
	}
}
