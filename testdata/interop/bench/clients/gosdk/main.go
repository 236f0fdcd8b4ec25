// Gosdk calls with the client of the Go SDK.
package main

import (
	"context"
	"log"
	"os"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"interop/bench/probe"
)

func main() {
	ctx := context.Background()
	client := mcp.NewClient(&mcp.Implementation{Name: "gosdk", Version: "1.0.0"}, nil)
	session, err := client.Connect(ctx, &mcp.StreamableClientTransport{Endpoint: os.Args[1]}, nil)
	if err != nil {
		log.Fatal(err)
	}
	probe.Calls(func(text string) (string, error) {
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
		if err != nil {
			return "", err
		}
		return result.Content[0].(*mcp.TextContent).Text, nil
	})
}
