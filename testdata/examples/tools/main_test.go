// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"net"
	"testing"

	"example.com/mine/mcp"
)

// How to test a tool: a client calls it through a pipe in memory.
func TestAdd(t *testing.T) {
	ours, theirs := mcp.Pipe()
	go mcp.Serve(t.Context(), theirs, newServer(), nil)
	client := connect(t, func(context.Context) (mcp.Conn, error) { return ours, nil })

	result := callTool(t, client, "add", map[string]any{"a": 1, "b": 2})
	if got := string(result.StructuredContent); got != `{"sum":3}` {
		t.Error(got)
	}
	result = callTool(t, client, "add", map[string]any{"a": 1})
	if got := result.Text(); !result.IsError || got != "Missing required argument: 'b'" {
		t.Error(got)
	}
}

// The same over a Unix socket. Each connection is a conversation, and its messages are lines. A TCP
// connection works in the same way.
func TestUnixSocket(t *testing.T) {
	t.Chdir(t.TempDir()) // the path of a socket must be short
	listener, err := net.Listen("unix", "mcp.sock")
	if err != nil {
		t.Skip(err)
	}
	defer listener.Close()
	server := newServer()
	go func() {
		for {
			c, err := listener.Accept()
			if err != nil {
				return // the listener is closed
			}
			go mcp.Serve(t.Context(), mcp.NewLineConn(c, c, 0, c.Close), server, nil)
		}
	}()
	for range 2 {
		client := connect(t, func(ctx context.Context) (mcp.Conn, error) {
			c, err := new(net.Dialer).DialContext(ctx, "unix", "mcp.sock")
			if err != nil {
				return nil, err
			}
			return mcp.NewLineConn(c, c, 0, c.Close), nil
		})
		result := callTool(t, client, "greet", map[string]any{"name": "Ada"})
		if result.IsError {
			t.Error(result.Text())
		}
	}
}

// connect returns a client. It ends with the test.
func connect(t *testing.T, dial mcp.DialerFunc) *mcp.Client {
	client := &mcp.Client{Info: mcp.Implementation{Name: "test", Version: "1"}}
	t.Cleanup(func() { _ = client.Close() })
	if err := client.Connect(t.Context(), dial); err != nil {
		t.Fatal(err)
	}
	return client
}

func callTool(t *testing.T, client *mcp.Client, name string, arguments any) (result mcp.ToolResult) {
	t.Helper()
	params := mcp.CallToolParams{Name: name, Arguments: arguments}
	if err := client.Call(t.Context(), "tools/call", params, &result); err != nil {
		t.Fatal(err)
	}
	return result
}
