// Gosdk is a server made with the Go SDK, for what its own example has no flags for: HTTP+SSE at /sse, Streamable HTTP with JSON instead of
// events at /json, with events that can be resumed at /mcp, and without sessions at /stateless. Its argument is the address; after that,
// "lessons" is for tools and resources as the lessons of mcpwire have them.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

func main() {
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	s := newServer()
	if len(os.Args) > 2 && os.Args[2] == "lessons" {
		s = newLessons()
	}
	get := func(*http.Request) *mcp.Server { return s }
	mux := http.NewServeMux()
	mux.Handle("/sse", mcp.NewSSEHandler(get, nil))
	mux.Handle("/json", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{JSONResponse: true}))
	mux.Handle("/mcp", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{EventStore: mcp.NewMemoryEventStore(nil)}))
	mux.Handle("/stateless", mcp.NewStreamableHTTPHandler(get, &mcp.StreamableHTTPOptions{Stateless: true}))
	log.Printf("listening at http://%v", listener.Addr())
	log.Fatal(http.Serve(listener, mux))
}

func newServer() *mcp.Server {
	s := mcp.NewServer(&mcp.Implementation{Name: "gosdk", Version: "1.0.0"}, nil)
	mcp.AddTool(s, &mcp.Tool{Name: "count"}, count)
	mcp.AddTool(s, &mcp.Tool{Name: "greet"}, greet)
	mcp.AddTool(s, &mcp.Tool{Name: "publish"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		addResource(s, "test://news")
		time.Sleep(100 * time.Millisecond)
		return text("published"), nil, nil
	})
	mcp.AddTool(s, &mcp.Tool{Name: "wait"}, wait)
	mcp.AddTool(s, &mcp.Tool{Name: "waited"}, func(context.Context, *mcp.CallToolRequest, any) (*mcp.CallToolResult, any, error) {
		select {
		case <-cancelled:
			return text("the call was cancelled"), nil, nil
		case <-time.After(5 * time.Second):
			return text("no call was cancelled"), nil, nil
		}
	})
	addResource(s, "test://welcome")
	return s
}

func addResource(s *mcp.Server, uri string) {
	s.AddResource(&mcp.Resource{Name: uri, URI: uri, MIMEType: "text/plain"},
		func(context.Context, *mcp.ReadResourceRequest) (*mcp.ReadResourceResult, error) {
			return &mcp.ReadResourceResult{Contents: []*mcp.ResourceContents{{URI: uri, MIMEType: "text/plain", Text: "Welcome!"}}}, nil
		})
}

var cancelled = make(chan struct{}, 100) // one for each call of wait

// wait waits until it is cancelled.
func wait(ctx context.Context, req *mcp.CallToolRequest, args counting) (*mcp.CallToolResult, any, error) {
	if _, _, err := count(ctx, req, args); err != nil { // over HTTP the answer has begun with that
		return nil, nil, err
	}
	<-ctx.Done()
	cancelled <- struct{}{}
	return nil, nil, ctx.Err()
}

func text(format string, args ...any) *mcp.CallToolResult {
	return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: fmt.Sprintf(format, args...)}}}
}

type counting struct {
	N       int  `json:"n"`
	DelayMs int  `json:"delayMs,omitempty"`
	Poll    bool `json:"poll,omitempty"`
}

// count makes n steps, with time between them, and without a connection meanwhile if that is asked for. It tells of each, if there is a way
// to: with JSON for an answer it is the standalone stream.
func count(ctx context.Context, req *mcp.CallToolRequest, args counting) (*mcp.CallToolResult, any, error) {
	if args.Poll && req.Extra.CloseSSEStream != nil {
		req.Extra.CloseSSEStream(mcp.CloseSSEStreamArgs{RetryAfter: time.Second})
	}
	for i := range args.N {
		time.Sleep(time.Duration(args.DelayMs) * time.Millisecond)
		_ = req.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: req.Params.GetProgressToken(), Progress: float64(i + 1), Total: float64(args.N)})
	}
	return text("counted to %d", args.N), nil, nil
}

// greet asks for a name with a request.
func greet(ctx context.Context, req *mcp.CallToolRequest, _ any) (*mcp.CallToolResult, any, error) {
	properties := map[string]any{"name": map[string]any{"type": "string"}}
	form := map[string]any{"type": "object", "properties": properties, "required": []string{"name"}}
	answer, err := req.Session.Elicit(ctx, &mcp.ElicitParams{Message: "Your name?", RequestedSchema: form})
	if err != nil {
		return nil, nil, err
	}
	return text("%s %v", answer.Action, answer.Content), nil, nil
}
