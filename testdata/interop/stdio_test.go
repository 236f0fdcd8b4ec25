package interop

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	mark3labs "github.com/mark3labs/mcp-go/mcp"
)

// ---- TypeScript SDK ----

// TestTypeScriptStdio: without flags mcpwire speaks the newest revision of the client.
func TestTypeScriptStdio(t *testing.T) {
	t.Parallel()
	out := typeScript(t, "stdio", mcpwire)
	expect(t, out.stdout, `{"server":"mcpwire","version":"2025-11-25","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
		"weather":"Current temperature in Oslo is 18°C","missing":[-32602,"Missing required argument: 'city'"],"echo":true,
		"note":"This note is served by mcpwire.","prompt":2,"counted":"counted to 50","inOrder":true,"asked":"Hello, Ada",
		"cancelled":"McpError: MCP error -32001: enough","went":"on","late":0,"listChanged":1,"updated":["note:///today"],
		"servers":[{"exit":0,"signalled":false}]}`)
	if out.stderr != "" {
		t.Errorf("stderr %q", out.stderr)
	}
}

// TestTypeScript2Stdio: unless it is legacy, the client asks a server of its own for the era, and ends it with a signal.
func TestTypeScript2Stdio(t *testing.T) {
	t.Parallel()
	const session, probe = `{"exit":0,"signalled":false}`, `{"exit":0,"signalled":true}`
	const legacy = `"era":"legacy","version":"2025-11-25","rounds":["elicitation/create","result"],"servers":[` + session + `]`
	const modern = `"era":"modern","version":"2026-07-28","rounds":["input_required","complete"],"servers":[` + probe + `,` + session + `],
		"honoured":{"resourcesListChanged":true,"resourceSubscriptions":["note:///today"]},"closed":"local"`
	for _, test := range []struct{ mode, want string }{
		{"legacy", legacy},
		{"auto", modern},
		{"2026-07-28", modern},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			out := typeScript2(t, test.mode, "session", "stdio", mcpwire, "today")
			out.check(t, 0, `{"server":"mcpwire","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
				"weather":"Current temperature in Oslo is 64°F","missing":[-32602,"Missing required argument: 'city'"],"unknown":-32602,
				"echo":true,"note":"This note is served by mcpwire.","prompt":2,"completion":["welcome"],"counted":"counted to 50",
				"inOrder":true,"asked":"Hello, Ada","cancelled":"SdkError: enough","steps":1,"went":"on","late":0,
				"heard":["list changed","note:///today"],"updates":1,"after":"still here",`+test.want+`}`, "")
			if out.stderr != "" {
				t.Errorf("stderr %q", out.stderr)
			}
		})
	}
}

// ---- mcp-go ----

// TestMCPGoStdio: unless it is kept to an older revision, mcp-go begins with server/discover.
func TestMCPGoStdio(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions {
		t.Run(rev.version, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			c := &mcpGo{ctx: ctx}
			options := []client.ClientOption{client.WithElicitationHandler(c)}
			if !rev.modern {
				options = append(options, client.WithProtocolVersion(rev.version))
			}
			result, err := c.meet(t, target{mcpwire}, options...)
			if err != nil {
				t.Fatal(err)
			}
			if result.ServerInfo.Name != "mcpwire" || result.ProtocolVersion != rev.version {
				t.Errorf("%+v", result)
			}
			mcpGoOffers(t, c)
			c.counts(t)
			mcpGoElicitation(t, c, rev)
			mcpGoCancellation(t, c)
			mcpGoSubscription(t, c)
			mcpGoClose(t, c)
		})
	}
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
	missing := mark3labs.CallToolRequest{Params: mark3labs.CallToolParams{Name: "get-weather", Arguments: map[string]any{}}}
	_, err = c.CallTool(c.ctx, missing)
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
}

// mcpGoElicitation: in revisions older than elicitation nobody is asked, although the capability is declared.
func mcpGoElicitation(t *testing.T, c *mcpGo, rev revision) {
	result, err := c.CallTool(c.ctx, mark3labs.CallToolRequest{Params: mark3labs.CallToolParams{Name: "ask", Arguments: map[string]any{}}})
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
		req := mark3labs.CallToolRequest{}
		req.Params = mark3labs.CallToolParams{Name: "count", Arguments: map[string]any{"n": 1000, "delayMs": 100},
			Meta: &mark3labs.Meta{ProgressToken: "never finished"}}
		_, err := c.CallTool(ctx, req)
		ended <- err
	}()
	eventually(t, "a first step", func() bool { return steps() > 0 })
	cancel()
	wasCancelled(t, ended)
	subsides(t, steps)
}

func mcpGoSubscription(t *testing.T, c *mcpGo) {
	stop := c.subscribe(t, "today")
	c.text(t, "set-note", map[string]any{"name": "today", "text": "rain"})
	eventually(t, "the list has changed", func() bool { return len(c.all("notifications/resources/list_changed", "")) == 1 })
	eventually(t, "the note was updated", func() bool {
		return slices.Equal(c.all("notifications/resources/updated", "uri"), []any{"note:///today"})
	})
	stop()
	if got := c.text(t, "echo", map[string]any{"text": "still here"}); got != "still here" {
		t.Errorf("got %q", got)
	}
}

// mcpGoClose: end of input ends the server, with exit status 0 and nothing to complain about.
func mcpGoClose(t *testing.T, c *mcpGo) {
	start := time.Now()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
	if took := time.Since(start); took > 2*time.Second { // by then mcp-go sends SIGTERM
		t.Errorf("it took %v", took)
	}
	if state := c.server.ProcessState; state == nil || !state.Success() || c.stderr.Len() > 0 {
		t.Errorf("%v, stderr %q", state, &c.stderr)
	}
}
