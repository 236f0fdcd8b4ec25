// Mcpgo calls with the client of mcp-go.
package main

import (
	"context"
	"log"
	"os"

	"github.com/mark3labs/mcp-go/client"
	"github.com/mark3labs/mcp-go/mcp"

	"interop/bench/probe"
)

func main() {
	ctx := context.Background()
	c, err := client.NewStreamableHttpClient(os.Args[1])
	if err == nil {
		err = c.Start(ctx)
	}
	if err == nil {
		var hello mcp.InitializeRequest
		hello.Params.ProtocolVersion = "2025-11-25"
		hello.Params.ClientInfo = mcp.Implementation{Name: "mcpgo", Version: "1.0.0"}
		_, err = c.Initialize(ctx, hello)
	}
	if err != nil {
		log.Fatal(err)
	}
	probe.Calls(func(text string) (string, error) {
		var call mcp.CallToolRequest
		call.Params.Name, call.Params.Arguments = "echo", map[string]any{"text": text}
		result, err := c.CallTool(ctx, call)
		if err != nil {
			return "", err
		}
		return result.Content[0].(mcp.TextContent).Text, nil
	})
}
