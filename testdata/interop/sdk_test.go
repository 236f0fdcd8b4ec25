package interop

//lint:file-ignore SA1019 logging is deprecated in 2026-07-28, but in the protocol, and so to be tested

import (
	"bytes"
	"context"
	"errors"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// sdkClient is the Go SDK's client, connected to a server of ours, and what it has heard so far.
type sdkClient struct {
	*mcp.ClientSession
	ctx    context.Context
	server *exec.Cmd    // over stdio only
	stderr bytes.Buffer // to be read once the server has ended
	note   string       // the note that it sets
	others bool         // there are others, who set notes, too

	mu          sync.Mutex // guards the fields below
	wire        bytes.Buffer
	progress    []float64
	logged      []string
	updated     []string
	listChanged int
}

// Write takes the messages that pass, one at a time, as mcp.LoggingTransport writes them.
func (c *sdkClient) Write(line []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wire.Write(line)
}

// dial starts a server and connects to it over stdio.
func dial(t *testing.T, versions, wanted string) *sdkClient {
	t.Helper()
	c := newSDKClient(t)
	c.server = exec.CommandContext(c.ctx, mcpwire, "-versions", versions)
	c.server.Stderr = &c.stderr
	c.connect(t, &mcp.LoggingTransport{Transport: &mcp.CommandTransport{Command: c.server}, Writer: c}, wanted)
	return c
}

func newSDKClient(t *testing.T) *sdkClient {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	c := &sdkClient{ctx: ctx, note: "today"}
	t.Cleanup(func() {
		if c.ClientSession != nil {
			c.Close()
		}
		cancel()
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.server != nil {
			t.Logf("%v\n%s-- stderr --\n%s", c.server, &c.wire, &c.stderr)
		}
	})
	return c
}

// connect begins the session. The SDK always tries server/discover first, unless it is told to speak an older version.
func (c *sdkClient) connect(t *testing.T, transport mcp.Transport, wanted string) {
	t.Helper()
	note := func(f func()) {
		c.mu.Lock()
		defer c.mu.Unlock()
		f()
	}
	client := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, &mcp.ClientOptions{
		ElicitationHandler: func(context.Context, *mcp.ElicitRequest) (*mcp.ElicitResult, error) {
			return &mcp.ElicitResult{Action: "accept", Content: map[string]any{"name": "Ada"}}, nil
		},
		ProgressNotificationHandler: func(_ context.Context, r *mcp.ProgressNotificationClientRequest) {
			note(func() { c.progress = append(c.progress, r.Params.Progress) })
		},
		LoggingMessageHandler: func(_ context.Context, r *mcp.LoggingMessageRequest) {
			note(func() { c.logged = append(c.logged, string(r.Params.Level)+": "+r.Params.Data.(string)) })
		},
		ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
			note(func() { c.updated = append(c.updated, r.Params.URI) })
		},
		ResourceListChangedHandler: func(context.Context, *mcp.ResourceListChangedRequest) {
			note(func() { c.listChanged++ })
		},
	})
	session, err := client.Connect(c.ctx, transport, &mcp.ClientSessionOptions{ProtocolVersion: wanted})
	if err != nil {
		t.Fatal(err)
	}
	c.ClientSession = session
}

// eventually waits for what a notification brings about: they are handled in their own time, beside the calls.
func (c *sdkClient) eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return reached()
	})
}

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

// failed checks that a call came back with this JSON-RPC error, and that its message or its data has this text.
func failed(t *testing.T, err error, code int64, text string) {
	t.Helper()
	wire := (*jsonrpc.Error)(nil)
	if !errors.As(err, &wire) || wire.Code != code || !strings.Contains(wire.Message+" "+string(wire.Data), text) {
		t.Errorf("got %v, want code %d with %s", err, code, text)
	}
}

// TestSDKClient is a whole session over stdio in each revision.
func TestSDKClient(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions {
		t.Run(rev.version, func(t *testing.T) {
			t.Parallel()
			c := dial(t, rev.version, "")
			for _, step := range sdkSteps {
				t.Run(step.name, func(t *testing.T) { step.run(t, c, rev) })
			}
			t.Run("close", func(t *testing.T) { sdkClose(t, c, rev) })
		})
	}
}

// sdkSteps are what a session does on every transport, in this order.
var sdkSteps = []struct {
	name string
	run  func(*testing.T, *sdkClient, revision)
}{
	{"introduction", sdkIntroduction},
	{"tools", sdkTools},
	{"resources", sdkResources},
	{"prompts", sdkPrompts},
	{"completion", sdkCompletion},
	{"progress", sdkProgress},
	{"logging", sdkLogging},
	{"elicitation", sdkElicitation},
	{"subscription", sdkSubscription},
	{"cancellation", sdkCancellation},
}

func sdkIntroduction(t *testing.T, c *sdkClient, rev revision) {
	result := c.InitializeResult()
	if result.ProtocolVersion != rev.version || result.ServerInfo.Name != "mcpwire" || (result.ServerInfo.Title != "") != rev.titles {
		t.Errorf("%s, server %+v", result.ProtocolVersion, result.ServerInfo)
	}
	if has := result.Capabilities; has.Tools == nil || has.Prompts == nil || has.Logging == nil || !has.Resources.Subscribe {
		t.Errorf("capabilities %+v", has)
	}
	if err := c.Ping(c.ctx, nil); (err == nil) == rev.modern { // 2026-07-28 has no ping
		t.Errorf("ping: %v", err)
	}
}

func sdkTools(t *testing.T, c *sdkClient, rev revision) {
	var names []string
	for tool, err := range c.Tools(c.ctx, nil) {
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, tool.Name)
		if (tool.Title != "") != rev.titles {
			t.Errorf("%s: title %q", tool.Name, tool.Title)
		}
	}
	if want := []string{"ask", "count", "echo", "get-weather", "set-note"}; !slices.Equal(names, want) {
		t.Errorf("got %q, want %q", names, want)
	}
	weather := &mcp.CallToolParams{Name: "get-weather", Arguments: map[string]any{"city": "Oslo"}}
	if got, want := c.text(t, weather), "Current temperature in Oslo is 18°C"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	_, err := c.CallTool(c.ctx, &mcp.CallToolParams{Name: "get-weather"})
	failed(t, err, jsonrpc.CodeInvalidParams, "Missing required argument: 'city'")
	_, err = c.CallTool(c.ctx, &mcp.CallToolParams{Name: "no-such-tool"})
	failed(t, err, jsonrpc.CodeInvalidParams, "Unknown tool: no-such-tool")
}

func sdkResources(t *testing.T, c *sdkClient, rev revision) {
	list, err := c.ListResources(c.ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	welcome := func(r *mcp.Resource) bool { return r.URI == "note:///welcome" }
	if !slices.ContainsFunc(list.Resources, welcome) || len(list.Resources) > 1 && !c.others {
		t.Errorf("list %+v", list)
	}
	templates, err := c.ListResourceTemplates(c.ctx, nil)
	if err != nil || len(templates.ResourceTemplates) != 1 || templates.ResourceTemplates[0].URITemplate != "note:///{name}" {
		t.Errorf("templates %+v, %v", templates, err)
	}
	read, err := c.ReadResource(c.ctx, &mcp.ReadResourceParams{URI: "note:///welcome"})
	if err != nil || len(read.Contents) != 1 || read.Contents[0].Text != "This note is served by mcpwire." {
		t.Errorf("read %+v, %v", read, err)
	}
	_, err = c.ReadResource(c.ctx, &mcp.ReadResourceParams{URI: "note:///nothing"})
	notFound := int64(-32002)
	if rev.modern {
		notFound = jsonrpc.CodeInvalidParams
	}
	failed(t, err, notFound, "note:///nothing")
}

func sdkPrompts(t *testing.T, c *sdkClient, _ revision) {
	list, err := c.ListPrompts(c.ctx, nil)
	if err != nil || len(list.Prompts) != 1 || list.Prompts[0].Name != "summarize-note" {
		t.Errorf("list %+v, %v", list, err)
	}
	prompt, err := c.GetPrompt(c.ctx, &mcp.GetPromptParams{Name: "summarize-note", Arguments: map[string]string{"name": "welcome"}})
	if err != nil || len(prompt.Messages) != 2 {
		t.Fatalf("prompt %+v, %v", prompt, err)
	}
	note, ok := prompt.Messages[0].Content.(*mcp.EmbeddedResource)
	if !ok || note.Resource.Text != "This note is served by mcpwire." {
		t.Errorf("embedded %+v", prompt.Messages[0].Content)
	}
}

func sdkCompletion(t *testing.T, c *sdkClient, _ revision) {
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

func sdkProgress(t *testing.T, c *sdkClient, _ revision) {
	c.mu.Lock()
	before := c.wire.Len()
	c.mu.Unlock()
	params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: "count", Arguments: map[string]any{"n": 50}}
	params.SetProgressToken("fifty steps")
	if got := c.text(t, params); got != "counted to 50" {
		t.Errorf("got %q", got)
	}
	c.eventually(t, "fifty progress notifications", func() bool { return len(c.progress) == 50 })
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, progress := range c.progress {
		if progress != float64(i+1) {
			t.Errorf("progress %v", c.progress)
			break
		}
	}
	wire := c.wire.String()[before:] // the SDK handles notifications beside the result; in which order they came is to be seen here
	if last, result := strings.LastIndex(wire, `"notifications/progress"`), strings.Index(wire, "counted to 50"); last > result {
		t.Error("progress after the result")
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

// sdkElicitation: in revisions older than elicitation nobody is asked, although the SDK has declared the capability.
func sdkElicitation(t *testing.T, c *sdkClient, rev revision) {
	if !rev.asks {
		result, err := c.CallTool(c.ctx, &mcp.CallToolParams{Name: "ask"})
		if err != nil || !result.IsError {
			t.Errorf("got %+v, %v, want isError", result, err)
		}
		return
	}
	if got := c.text(t, &mcp.CallToolParams{Name: "ask"}); got != "Hello, Ada" {
		t.Errorf("got %q", got)
	}
}

// sdkSubscription: resources/subscribe, or subscriptions/listen. A legacy client hears of a changed list without asking; for a modern one
// the SDK has opened a subscription when it connected, as there is a handler for it.
func sdkSubscription(t *testing.T, c *sdkClient, rev revision) {
	set := &mcp.CallToolParams{Name: "set-note", Arguments: map[string]any{"name": c.note, "text": "rain"}}
	uri := "note:///" + c.note
	if rev.modern {
		c.acknowledged(t, `"resourcesListChanged":true`)
	}
	c.mu.Lock()
	before := c.listChanged
	c.mu.Unlock()
	c.text(t, set)
	c.eventually(t, "the list of resources has changed", func() bool {
		return c.listChanged == before+1 || c.listChanged > before && c.others
	})
	if err := c.Subscribe(c.ctx, &mcp.SubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
	if rev.modern {
		c.acknowledged(t, `"resourceSubscriptions":["`+uri+`"]`)
	}
	c.text(t, set)
	c.eventually(t, "the note was updated", func() bool { return slices.Equal(c.updated, []string{uri}) })
	if err := c.Unsubscribe(c.ctx, &mcp.UnsubscribeParams{URI: uri}); err != nil {
		t.Fatal(err)
	}
}

// sdkCancellation: the caller is free at once, the server stops, and the session goes on.
func sdkCancellation(t *testing.T, c *sdkClient, _ revision) {
	c.mu.Lock()
	c.progress = nil
	c.mu.Unlock()
	ctx, cancel := context.WithCancel(c.ctx)
	defer cancel()
	params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: "count", Arguments: map[string]any{"n": 1000, "delayMs": 100}}
	params.SetProgressToken("never finished")
	ended := make(chan error, 1)
	go func() {
		_, err := c.CallTool(ctx, params)
		ended <- err
	}()
	c.eventually(t, "a first step", func() bool { return len(c.progress) > 0 })
	cancel()
	wasCancelled(t, ended)
	subsides(t, func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.progress)
	})
	if got := c.text(t, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": "still here"}}); got != "still here" {
		t.Errorf("got %q", got)
	}
}

// subsides waits until half a second has passed without another step.
func subsides(t *testing.T, steps func() int) {
	t.Helper()
	for before := -1; steps() != before; time.Sleep(500 * time.Millisecond) {
		if before = steps(); before > 100 {
			t.Fatal("the server goes on")
		}
	}
}

// wasCancelled waits for the end of a call that was cancelled.
func wasCancelled(t *testing.T, ended <-chan error) {
	t.Helper()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
	case <-time.After(limit / 4): // to the end it would be 100 s
		t.Fatal("the call goes on")
	}
}

// sdkClose: end of input ends the server, with exit status 0 and nothing to complain about.
func sdkClose(t *testing.T, c *sdkClient, _ revision) {
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 4*time.Second { // after 5 s the SDK sends SIGTERM
		t.Errorf("it took %v", took)
	}
	if !c.server.ProcessState.Success() || c.stderr.Len() > 0 {
		t.Errorf("%v, stderr %q", c.server.ProcessState, &c.stderr)
	}
}
