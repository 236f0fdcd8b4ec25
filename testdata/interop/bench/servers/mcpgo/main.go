// Mcpgo is a server made with mcp-go that has the tools of the demo which are
// measured. It has sessions at /mcp, as the demo has, and none at /stateless.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/mark3labs/mcp-go/mcp"
	"github.com/mark3labs/mcp-go/server"

	"interop/bench/servers/web"
)

func main() {
	s := server.NewMCPServer("mcpgo", "1.0.0", server.WithToolCapabilities(true))
	s.AddTool(mcp.NewTool("echo", mcp.WithString("text", mcp.Required())), echo)
	s.AddTool(mcp.NewTool("count", mcp.WithNumber("n", mcp.Required()), mcp.WithNumber("delayMs")), count(s))
	mux := http.NewServeMux()
	mux.Handle("/mcp", server.NewStreamableHTTPServer(s, server.WithStateful(true)))
	mux.Handle("/stateless", server.NewStreamableHTTPServer(s, server.WithStateLess(true)))
	web.Serve("mcpgo", mux, func(ctx context.Context) error { return server.NewStdioServer(s).Listen(ctx, os.Stdin, os.Stdout) })
}

func echo(_ context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
	return mcp.NewToolResultText(req.GetString("text", "")), nil
}

func count(s *server.MCPServer) server.ToolHandlerFunc {
	return func(ctx context.Context, req mcp.CallToolRequest) (*mcp.CallToolResult, error) {
		n, delay := req.GetInt("n", 0), time.Duration(req.GetInt("delayMs", 0))*time.Millisecond
		for i := 1; i <= n; i++ {
			time.Sleep(delay)
			params := map[string]any{"progressToken": req.Params.Meta.ProgressToken, "progress": i, "total": n}
			err := s.SendNotificationToClient(ctx, "notifications/progress", params)
			for errors.Is(err, server.ErrNotificationChannelBlocked) { // its queue of 100 is full: the tool has to wait
				time.Sleep(100 * time.Microsecond)
				err = s.SendNotificationToClient(ctx, "notifications/progress", params)
			}
			if err != nil {
				return nil, err
			}
		}
		time.Sleep(5 * time.Millisecond) // the result may overtake notifications, which then are lost
		return mcp.NewToolResultText(fmt.Sprintf("counted to %d", n)), nil
	}
}
