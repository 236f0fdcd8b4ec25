// SPDX-License-Identifier: 0BSD

// A server whose tool is tested: see main_test.go. It needs:
//
//	go run ./testdata/take -to ../mine/mcp stdio-server http-server client Pipe DialerFunc
package main

import (
	"context"
	"encoding/json"
	"errors"
	"log"
	"log/slog"
	"os"

	"example.com/mine/mcp"
)

type greetArguments struct {
	Name string `json:"name"`
}

func greet(ctx context.Context, x *mcp.Exchange, args greetArguments) (any, error) {
	if args.Name == "" {
		return nil, errors.New("'name' must not be empty")
	}
	return "Hello, " + args.Name, nil
}

func newServer() *mcp.Server {
	server := &mcp.Server{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	mcp.AddTool(server, mcp.Tool{
		Name:        "greet",
		InputSchema: json.RawMessage(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}`),
	}, greet)
	return server
}

func main() {
	conn := mcp.StdioConn(0)
	os.Stdout = os.Stderr // from here on, a fmt.Println of a tool does not spoil the messages
	if err := mcp.Serve(context.Background(), conn, newServer(), slog.Default()); err != nil {
		log.Fatal(err)
	}
}
