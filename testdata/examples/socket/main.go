// SPDX-License-Identifier: 0BSD

// Both ends of a Unix socket: the server has any number of clients. A TCP listener is
// served in the same way. It needs:
//
//	go run ./testdata/take -to ../mine/mcp Serve NewLineConn Server AddTool Client Client.Connect Client.Call Client.Close DialerFunc CallToolParams ToolResult.Text
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"

	"example.com/mine/mcp"
)

// serve serves each connection of a listener, until the listener is closed and all
// clients have hung up. When ctx ends, so do the conversations.
func serve(ctx context.Context, listener net.Listener, server *mcp.Server) error {
	var conversations sync.WaitGroup
	defer conversations.Wait()
	for {
		conn, err := listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return nil
		}
		if err != nil {
			return err
		}
		conversations.Go(func() {
			defer conn.Close()
			lines := mcp.NewLineConn(conn, conn, 0, conn.Close)
			if err := mcp.Serve(ctx, lines, server, slog.Default()); err != nil {
				slog.Warn("a conversation has failed", "error", err)
			}
		})
	}
}

// dial returns the Dialer of a client.
func dial(path string) mcp.Dialer {
	return mcp.DialerFunc(func(ctx context.Context) (mcp.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "unix", path)
		if err != nil {
			return nil, err
		}
		return mcp.NewLineConn(conn, conn, 0, conn.Close), nil
	})
}

func main() {
	folder, err := os.MkdirTemp("", "mcp") // only this user may enter it
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "socket")
	listener, err := net.Listen("unix", path)
	if err != nil {
		log.Fatal(err)
	}
	server := &mcp.Server{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	mcp.AddTool(server, mcp.Tool{Name: "time"}, func(context.Context, *mcp.Exchange, struct{}) (any, error) { return "noon", nil })
	var serving sync.WaitGroup
	serving.Go(func() {
		if err := serve(context.Background(), listener, server); err != nil {
			log.Print(err)
		}
	})
	if err := call(path); err != nil {
		log.Print(err)
	}
	listener.Close()
	serving.Wait()
}

func call(path string) error {
	client := &mcp.Client{Info: mcp.Implementation{Name: "mine", Version: "1"}}
	defer client.Close()
	ctx := context.Background()
	if err := client.Connect(ctx, dial(path)); err != nil {
		return err
	}
	var result mcp.ToolResult
	if err := client.Call(ctx, "tools/call", mcp.CallToolParams{Name: "time"}, &result); err != nil {
		return err
	}
	fmt.Println(result.Text())
	return nil
}
