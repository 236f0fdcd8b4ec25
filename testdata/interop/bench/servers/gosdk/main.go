// Gosdk is a server made with the Go SDK that has the tools of the demo which
// are measured. Answers are events at /mcp, which is its default, and JSON at
// /json; at /stateless there are no sessions, without which it does not serve
// 2026-07-28.
package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"interop/bench/servers/web"
)

func main() {
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, count)
	get := func(*http.Request) *mcp.Server { return s }
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(get, nil))
	mux.Handle("/json", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true}))
	mux.Handle("/stateless", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	web.Serve("gosdk", mux, func(ctx context.Context) error { return s.Run(ctx, &mcp.StdioTransport{}) })
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

type echoing struct {
	Text string `json:"text"`
}

func echo(_ context.Context, _ *mcp.CallToolRequest, args echoing) (*mcp.CallToolResult, any, error) {
	return text("%s", args.Text), nil, nil
}

type counting struct {
	N       int `json:"n"`
	DelayMS int `json:"delayMs,omitempty"`
}

func count(ctx context.Context, req *mcp.CallToolRequest, args counting) (*mcp.CallToolResult, any, error) {
	for i := range args.N {
		time.Sleep(time.Duration(args.DelayMS) * time.Millisecond)
		if err := req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1), Total: float64(args.N)}); err != nil {
			return nil, nil, err
		}
	}
	return text("counted to %d", args.N), nil, nil
}
