package interop

//lint:file-ignore SA1019 logging is deprecated in 2026-07-28, but in the protocol, and so to be tested

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkClient is the Go SDK's client, connected to a server of ours.
type sdkClient struct {
	*mcp.ClientSession
	*guest
}

// meetSDK begins a session. The SDK always tries server/discover first, unless it is told to speak an older version.
func meetSDK(t *testing.T, to target, version string) (peer, error) {
	return connectSDK(t, newGuest(t, to, 4*time.Second), version) // after 5 s it sends SIGTERM
}

func connectSDK(t *testing.T, g *guest, version string) (*sdkClient, error) {
	c, to := &sdkClient{guest: g}, g.to
	var way mcp.Transport
	switch to.transport() {
	case "http":
		way = &mcp.StreamableClientTransport{Endpoint: to[0], HTTPClient: &http.Client{Transport: c}}
	case "sse":
		way = &mcp.SSEClientTransport{Endpoint: to[0], HTTPClient: &http.Client{Transport: c}}
	default:
		way = &mcp.LoggingTransport{Transport: &mcp.CommandTransport{Command: c.start(c.ctx)}, Writer: c}
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			c.hear(func() { c.progress = append(c.progress, r.Params.Progress) })
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			c.hear(func() { c.logged = append(c.logged, string(r.Params.Level)+": "+r.Params.Data.(string)) })
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			c.hear(func() { c.updated = append(c.updated, r.Params.URI) })
		},
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {
			c.hear(func() { c.listChanged++ })
		},
	})
	session, err := client.Connect(c.ctx, way, &mcp.ClientSessionOptions{ProtocolVersion: version})
	if err != nil {
		return nil, err
	}
	c.ClientSession = session
	t.Cleanup(func() { session.Close() })
	return c, nil
}

// dialSDK is for tests of this client alone.
func dialSDK(t *testing.T, to target, version string) *sdkClient {
	t.Helper()
	c, err := connectSDK(t, newGuest(t, to, 4*time.Second), version)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func (c *sdkClient) version() string { return c.InitializeResult().ProtocolVersion }

// acknowledged waits until the server has confirmed a subscription. The SDK does not wait for it, and shows it to nobody.
func (c *sdkClient) acknowledged(t *testing.T, what string) {
	t.Helper()
	line := regexp.MustCompile(`"notifications/subscriptions/acknowledged".*` + regexp.QuoteMeta(what))
	c.eventually(t, "an acknowledgement of "+what, func() bool { return line.Match(c.wire.Bytes()) })
}

// text calls a tool that has to answer with one text.
func (c *sdkClient) text(t *testing.T, params *mcp.CallToolParams) string {
	t.Helper()
	result, err := c.CallTool(c.ctx, params)
	if err != nil {
		t.Fatalf("%s: %v", params.Name, err)
	}
	if len(result.Content) != 1 || result.IsError {
		t.Fatalf("%s: isError %v, %d content items", params.Name, result.IsError, len(result.Content))
	}
	return result.Content[0].(*mcp.TextContent).Text
}

func (c *sdkClient) tools() (names []string, err error) {
	for tool, err := range c.Tools(c.ctx, nil) {
		if err != nil {
			return nil, err
		}
		names = append(names, tool.Name)
	}
	return names, nil
}

func (c *sdkClient) call(ctx context.Context, tool string, arguments map[string]any) (text string, isError bool, err error) {
	params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: tool, Arguments: arguments}
	params.SetProgressToken("token")
	result, err := c.CallTool(ctx, params)
	if err != nil || len(result.Content) != 1 {
		return "", false, err
	}
	return result.Content[0].(*mcp.TextContent).Text, result.IsError, nil
}

func (c *sdkClient) read(uri string) (text string, err error) {
	result, err := c.ReadResource(c.ctx, &mcp.ReadResourceParams{URI: uri})
	if err != nil || len(result.Contents) != 1 {
		return "", err
	}
	return result.Contents[0].Text, nil
}

func (c *sdkClient) prompt(name, argument string) (messages int, err error) {
	result, err := c.GetPrompt(c.ctx, &mcp.GetPromptParams{Name: name, Arguments: map[string]string{"name": argument}})
	if err != nil {
		return 0, err
	}
	return len(result.Messages), nil
}

// subscribe waits in the modern era. When it connected, the SDK has opened a subscription to the list, as there is a handler for it.
func (c *sdkClient) subscribe(t *testing.T, uri string) (end func()) {
	t.Helper()
	if err := c.Subscribe(c.ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	if c.InitializeResult().ProtocolVersion == "2026-07-28" {
		c.acknowledged(t, `"resourcesListChanged":true`)
		c.acknowledged(t, `"resourceSubscriptions":["`+uri+`"]`)
	}
	return func() {
		if err := c.Unsubscribe(c.ctx, &mcp.UnsubscribeParams{URI: uri}); err != nil {
			t.Error(err)
		}
	}
}

func (c *sdkClient) fault(err error) (code int64, text string) {
	if fault, ok := errors.AsType[*jsonrpc.Error](err); ok {
		return fault.Code, fault.Message + " " + string(fault.Data)
	}
	return 0, ""
}

func (c *sdkClient) shows(t *testing.T, rev revision) {
	t.Run("offers", func(t *testing.T) { sdkOffers(t, c, rev) })
	t.Run("logging", func(t *testing.T) { sdkLogging(t, c, rev) })
	if rev.modern && c.to.transport() == "http" {
		t.Run("header", func(t *testing.T) { sdkHeader(t, c) })
	}
}

// sdkOffers looks at what only this client shows.
func sdkOffers(t *testing.T, c *sdkClient, rev revision) {
	result := c.InitializeResult()
	if result.ProtocolVersion != rev.version || result.ServerInfo.Name != "mcpwire" || result.ServerInfo.Title == "" {
		t.Errorf("%s, server %+v", result.ProtocolVersion, result.ServerInfo)
	}
	if has := result.Capabilities; has.Tools == nil || has.Prompts == nil || has.Logging == nil || !has.Resources.Subscribe {
		t.Errorf("capabilities %+v", has)
	}
	if err := c.Ping(c.ctx, nil); (err == nil) == rev.modern { // 2026-07-28 has no ping
		t.Errorf("ping: %v", err)
	}
	for tool, err := range c.Tools(c.ctx, nil) {
		if err != nil || tool.Title == "" {
			t.Errorf("%+v, %v", tool, err)
		}
	}
	list, err := c.ListResources(c.ctx, nil)
	if err != nil || !slices.ContainsFunc(list.Resources, func(r *mcp.Resource) bool { return r.URI == "note:///welcome" }) {
		t.Errorf("%+v, %v", list, err)
	}
	templates, err := c.ListResourceTemplates(c.ctx, nil)
	if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != "note:///{name}" {
		t.Errorf("templates %+v, %v", templates, err)
	}
	for _, ref := range []*mcp.CompleteReference{
		{Type: "ref/prompt", Name: "summarize-note"},
		{Type: "ref/resource", URI: "note:///{name}"},
	} {
		result, err := c.Complete(c.ctx, &mcp.CompleteParams{Ref: ref, Argument: mcp.CompleteParamsArgument{Name: "name", Value: "wel"}})
		if err != nil || !slices.Equal(result.Completion.Values, []string{"welcome"}) {
			t.Errorf("%s: %+v, %v", ref.Type, result, err)
		}
	}
}

// sdkLogging: a legacy client sets the level for the session, a modern one asks with each request. Without, nothing is to be heard.
func sdkLogging(t *testing.T, c *sdkClient, rev revision) {
	params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: "count", Arguments: map[string]any{"n": 2}}
	if rev.modern {
		c.text(t, params)
		params.Meta["io.modelcontextprotocol/logLevel"] = "debug"
	} else if err := c.SetLoggingLevel(c.ctx, &mcp.SetLoggingLevelParams{Level: "debug"}); err != nil {
		t.Fatal(err)
	}
	c.text(t, params)
	c.eventually(t, "two log messages", func() bool { return len(c.logged) >= 2 })
	c.mu.Lock()
	defer c.mu.Unlock()
	if want := []string{"debug: step 1 of 2", "debug: step 2 of 2"}; !slices.Equal(c.logged, want) {
		t.Errorf("got %q, want %q", c.logged, want)
	}
}

// sdkHeader: the SDK has listed the tools before, and knows which argument belongs in the header. It encodes that where it has to, but not
// the name of what is called, and is refused. For an argument that is refused as such its field was right.
func sdkHeader(t *testing.T, c *sdkClient) {
	weather := func(unit string) *mcp.CallToolParams {
		return &mcp.CallToolParams{Name: "get-weather", Arguments: map[string]any{"city": "Oslo", "unit": unit}}
	}
	if got, want := c.text(t, weather("fahrenheit")), "Current temperature in Oslo is 64°F"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if result, err := c.CallTool(c.ctx, weather("réaumur")); err != nil || !result.IsError {
		t.Errorf("a unit that is none: %+v, %v", result, err)
	}
	for _, unit := range []string{"fahrenheit", "=?base64?csOpYXVtdXI=?="} {
		c.sent(t, "Mcp-Param-Unit", unit)
	}
	for _, name := range []string{"naïve", " padded ", "=?base64?bm90ZQ==?="} {
		_, err := c.ReadResource(c.ctx, &mcp.ReadResourceParams{URI: name})
		refuses(t, c, err, headerMismatch, "")
		_, err = c.CallTool(c.ctx, &mcp.CallToolParams{Name: name})
		refuses(t, c, err, headerMismatch, "")
		_, err = c.GetPrompt(c.ctx, &mcp.GetPromptParams{Name: name})
		refuses(t, c, err, headerMismatch, "")
	}
}
