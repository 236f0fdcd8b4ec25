// Gosdk calls with the client of the Go SDK.
package main

import (
	"context"
	"fmt"
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
	probe.Calls(func(n int) error {
		text := fmt.Sprint("call ", n)
		result, err := session.CallTool(ctx, &mcp.CallToolParams{Name: "echo", Arguments: map[string]any{"text": text}})
		if err != nil {
			return err
		}
		if content, ok := result.Content[0].(*mcp.TextContent); !ok || content.Text != text {
			return fmt.Errorf("%q is answered with %v", text, content)
		}
		return nil
	})
}
