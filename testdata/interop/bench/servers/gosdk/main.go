// Gosdk is a server made with the Go SDK that has the tools of the demo which
// are measured. Answers are events at /mcp, which is its default, and JSON at
// /json; at /stateless and /stateless-json there are no sessions, which
// 2026-07-28 requires there.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const stall = 30 * time.Second

func main() {
	addr := flag.String("http", "", "serve HTTP at `address` instead of stdio")
	flag.Parse()
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "echo"}, echo)
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, count)
	if *addr == "" {
		if err := s.Run(context.Background(), &mcp.StdioTransport{}); err != nil {
			log.Fatal(err)
		}
		return
	}
	listener, err := net.Listen("tcp", *addr)
	if err != nil {
		log.Fatal(err)
	}
	get := func(*http.Request) *mcp.Server { return s }
	mux := http.NewServeMux()
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(get, nil))
	mux.Handle("/json", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true}))
	mux.Handle("/stateless", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}))
	mux.Handle("/stateless-json", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true, JSONResponse: true}))
	server := &http.Server{Handler: mux, ReadTimeout: stall, WriteTimeout: stall, IdleTimeout: 4 * stall, MaxHeaderBytes: 64 << 10}
	fmt.Fprintf(os.Stderr, "gosdk: listening on http://%s/mcp\n", listener.Addr())
	log.Fatal(server.Serve(listener))
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
