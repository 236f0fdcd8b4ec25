// SPDX-License-Identifier: 0BSD

// A server with two tools, on standard input and output. The package mcp is a copy of
// jsonrpc.go, stdio.go and session.go: see "Copy it" in README.md of mcpwire.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strings"
	"sync"

	"example.com/mine/mcp" // the copy
)

func main() {
	conn := mcp.StdioConn(0)
	os.Stdout = os.Stderr                                                     // from here on, a fmt.Println of a tool does not spoil the messages
	err := mcp.Serve(context.Background(), conn, newServer(), slog.Default()) // until the client hangs up
	if err != nil {
		log.Fatal(err)
	}
}

// newServer returns the server. One is enough for any number of clients.
func newServer() *mcp.Server {
	server := &mcp.Server{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	mcp.AddTool(server, mcp.Tool{Name: "add", Description: "Adds two numbers.", InputSchema: addSchema}, add)
	mcp.AddTool(server, mcp.Tool{Name: "greet", Description: "Greets somebody.", InputSchema: greetSchema}, greet)
	return server
}

// The first tool. Its schema tells the client which arguments there are. The server reads them into
// the struct. If one is missing, or of another type, the model gets an error, and add is not called.
// What add returns is encoded as JSON: for programs as structuredContent, and for the model as text.

var addSchema = json.RawMessage(`{"type":"object","required":["a","b"],"properties":{"a":{"type":"number"},"b":{"type":"number"}}}`)

type addArguments struct {
	A float64 `json:"a"`
	B float64 `json:"b"`
}

func add(ctx context.Context, x *mcp.Exchange, args addArguments) (any, error) {
	return map[string]float64{"sum": args.A + args.B}, nil
}

// The second tool has an argument that may be missing, reports progress, and remembers something.

var greetSchema = json.RawMessage(`{"type":"object","required":["name"],
	"properties":{"name":{"type":"string"},"times":{"type":"integer","minimum":1,"maximum":10}}}`)

type greetArguments struct {
	Name  string `json:"name"`            // required
	Times *int   `json:"times,omitempty"` // nil: the client has not sent it
}

// greetings counts what all calls have done. Calls run at the same time, on standard input
// and output, too: the next request may be read before this one is answered. So what they
// share needs a mutex.
var greetings struct {
	mu    sync.Mutex // guards count
	count int
}

// countGreetings counts n more, and returns how many there were. The mutex is held for a
// moment only, and never while a message is sent: that waits for the client.
func countGreetings(n int) int {
	greetings.mu.Lock()
	defer greetings.mu.Unlock()
	greetings.count += n
	return greetings.count
}

func greet(ctx context.Context, x *mcp.Exchange, args greetArguments) (any, error) {
	times := 1
	if args.Times != nil {
		times = *args.Times
	}
	if times < 1 || times > 10 {
		return nil, errors.New("'times' must be from 1 to 10") // the model reads this, and can do better
	}
	var text strings.Builder
	for i := range times {
		text.WriteString("Hello, " + args.Name + "!\n")
		if err := x.Progress(ctx, float64(i+1), float64(times), ""); err != nil {
			return nil, err // the client has cancelled the call, for instance
		}
	}
	return fmt.Sprintf("%sGreetings so far: %d", text.String(), countGreetings(times)), nil
}
