package library

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"interop/wire"
)

// newDemo returns a server with the three tools that the tests call: echo, count with progress, and ask.
func newDemo() *wire.Server {
	tools := map[string]wire.HandlerFunc{"echo": echo, "count": count, "ask": ask}
	server := &wire.Server{
		Info:         wire.Implementation{Name: "demo", Version: "1"},
		Capabilities: map[string]any{"tools": struct{}{}, "resources": map[string]bool{"listChanged": true, "subscribe": true}, "logging": struct{}{}},
		Methods: map[string]wire.HandlerFunc{
			"tools/list": func(context.Context, *wire.Exchange) (any, error) {
				schema := json.RawMessage(`{"type":"object"}`)
				return map[string]any{"tools": []map[string]any{{"name": "echo", "inputSchema": schema}, {"name": "count", "inputSchema": schema}, {"name": "ask", "inputSchema": schema}}}, nil
			},
			"tools/call": func(ctx context.Context, x *wire.Exchange) (any, error) {
				var call struct {
					Name string `json:"name"`
				}
				if err := x.Bind(&call); err != nil {
					return nil, err
				}
				if tool := tools[call.Name]; tool != nil {
					return tool(ctx, x)
				}
				return nil, &wire.Error{Code: wire.CodeInvalidParams, Message: "Unknown tool: " + call.Name}
			},
		},
	}
	server.OfferLogging()
	server.AnnounceChanges()
	return server
}

// echo repeats a text.
func echo(_ context.Context, x *wire.Exchange) (any, error) {
	arguments := value(x.Request.Params, "arguments")
	repeat := 1
	_ = json.Unmarshal(value(arguments, "repeat"), &repeat)
	return wire.ToolResult{Content: []wire.Content{wire.TextContent(strings.Repeat(text(arguments, "text"), repeat))}}, nil
}

// count counts to n, and reports progress after each delay.
func count(ctx context.Context, x *wire.Exchange) (any, error) {
	var arguments struct{ N, DelayMs int }
	_ = json.Unmarshal(value(x.Request.Params, "arguments"), &arguments)
	for i := range arguments.N {
		select {
		case <-time.After(time.Duration(arguments.DelayMs) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := x.Progress(ctx, float64(i+1), float64(arguments.N)); err != nil {
			return nil, err
		}
	}
	return wire.ToolResult{Content: []wire.Content{wire.TextContent(fmt.Sprint("counted to ", arguments.N))}}, nil
}

// ask asks the user for a name.
func ask(_ context.Context, x *wire.Exchange) (any, error) {
	if answer, ok := x.Inputs()["name"]; ok {
		return wire.ToolResult{Content: []wire.Content{wire.TextContent("Hello, " + text(answer, "content", "name"))}}, nil
	}
	form := json.RawMessage(`{"message":"Who?","requestedSchema":{"type":"object","properties":{"name":{"type":"string"}}}}`)
	return wire.InputRequired{Requests: map[string]wire.InputRequest{"name": {Method: "elicitation/create", Params: form}}}, nil
}
