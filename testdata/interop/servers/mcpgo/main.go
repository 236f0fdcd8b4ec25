// Mcpgo is a server made with mcp-go: over stdio, or with an address as its argument over HTTP, at /mcp and /sse.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"
)

func main() {
	s := newServer()
	if len(os.Args) == 1 {
		log.Fatal(server.ServeStdio(s))
	}
	listener, err := net.Listen("tcp", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	mux, sse := http.NewServeMux(), server.NewSSEServer(s)
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	mux.Handle("/sse", sse.SSEHandler())
	mux.Handle("/message", sse.MessageHandler())
	log.Printf("listening at http://%v", listener.Addr())
	log.Fatal(http.Serve(listener, mux))
}

func newServer() *server.MCPServer {
	s := server.NewMCPServer("mcpgo", "1.0.0", server.WithToolCapabilities(true), server.WithResourceCapabilities(false, true),
		server.WithPromptCapabilities(false), server.WithElicitation())
	s.AddTool(mcp.NewTool("count", mcp.WithNumber("n", mcp.Required())), count(s))
	s.AddTool(mcp.NewTool("greet"), greet)
	s.AddTool(mcp.NewTool("publish"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		addResource(s, "test://news")
		time.Sleep(100 * time.Millisecond)
		return mcp.NewToolResultText("published"), nil
	})
	s.AddTool(mcp.NewTool("wait"), wait(s))
	s.AddTool(mcp.NewTool("waited"), func(context.Context, mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		select {
		case <-cancelled:
			return mcp.NewToolResultText("the call was cancelled"), nil
		case <-time.After(5 * time.Second):
			return mcp.NewToolResultText("no call was cancelled"), nil
		}
	})
	addResource(s, "test://welcome")
	s.AddPrompt(mcp.NewPrompt("hello"), func(context.Context, mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
		hello := mcp.NewPromptMessage(mcp.RoleUser, mcp.NewTextContent("Say hello."))
		return mcp.NewGetPromptResult("", []mcp.PromptMessage{hello}), nil
	})
	return s
}

func addResource(s *server.MCPServer, uri string) {
	s.AddResource(mcp.NewResource(uri, uri, mcp.WithMIMEType("text/plain")),
		func(context.Context, mcp.ReadResourceRequest) ([]mcp.ResourceContents, error) {
			return []mcp.ResourceContents{mcp.TextResourceContents{URI: uri, MIMEType: "text/plain", Text: "Welcome!"}}, nil
		})
}

var cancelled = make(chan struct{}, 100) // one for each call of wait

// wait waits until it is cancelled.
func wait(s *server.MCPServer) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		if _, err := count(s)(ctx, req); err != nil { // over HTTP the answer has begun with that
			return nil, err
		}
		<-ctx.Done()
		cancelled <- struct{}{}
		return nil, ctx.Err()
	}
}

// count makes n steps, and tells of each.
func count(s *server.MCPServer) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n := req.GetInt("n", 0)
		for i := 1; i <= n && req.Params.Meta != nil && req.Params.Meta.ProgressToken != nil; i++ {
			if err := s.SendNotificationToClient(ctx, "notifications/progress",
				map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": i, "total": n}); err != nil {
				return nil, err
			}
		}
		time.Sleep(50 * time.Millisecond) // the result is sent from another goroutine than the notifications, and may overtake them
		return mcp.NewToolResultText(fmt.Sprintf("counted to %d", n)), nil
	}
}

// greet asks for a name: with input_required in 2026-07-28, before it with a request, which mcp-go makes of the same.
func greet(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	answer := server.ElicitationResponse(req.Params.InputResponses, "name")
	if answer == nil {
		properties := map[string]any{"name": map[string]any{"type": "string"}}
		form := map[string]any{"type": "object", "properties": properties, "required": []string{"name"}}
		question := mcp.ElicitationParams{Message: "Your name?", RequestedSchema: form}
		return server.NewInputRequestBuilder("asked").Elicit("name", question).ToolResult(), nil
	}
	return mcp.NewToolResultText(fmt.Sprintf("%s %v", answer.Action, answer.Content)), nil
}
