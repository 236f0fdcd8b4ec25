// Children is a server that behaves oddly, on standard input and output, in
// the way that its first argument names. It is made of package wire, a copy of
// the library: go run ./copywire first.
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"

	"interop/wire" // go run ./copywire
)

const maxMessage = 4 << 20

var roles = map[string]func(){
	"stops blocking": func() { // what it shares as its standard input
		_ = syscall.SetNonblock(syscall.Stdin, true)
	},
	"is noisy": func() {
		fmt.Print("starting...\n\n")
		fmt.Fprint(os.Stderr, strings.Repeat("noise\n", 1<<20/6))
		serve(func(context.Context) error {
			return &wire.Error{Code: wire.CodeMethodNotFound, Message: "Method not found: server/discover"}
		})
	},
	"dies of the probe": func() {
		serve(func(context.Context) error { os.Exit(1); return nil })
	},
	"refuses the probe and exits": func() {
		in := bufio.NewReader(os.Stdin)
		line, _ := in.ReadString('\n')
		if strings.Contains(line, "server/discover") {
			fmt.Println(`{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"not initialized"}}`)
			os.Exit(1)
		}
		rest := io.MultiReader(strings.NewReader(line), in)
		_ = wire.Serve(context.Background(), wire.NewLineConn(rest, os.Stdout, maxMessage, os.Stdin.Close), old(), nil)
	},
	"is silent at the probe": func() {
		serve(func(ctx context.Context) error { <-ctx.Done(); return nil })
	},
	"refuses the probe with -32600": func() {
		serve(func(context.Context) error {
			return &wire.Error{Code: wire.CodeInvalidRequest, Message: "not initialized"}
		})
	},
	"answers the probe oddly": func() {
		serve(func(context.Context) error { return nil })
	},
}

func main() {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "there is no such role")
		os.Exit(2)
	}
	roles[os.Args[1]]()
}

// old returns a server that knows nothing of server/discover. Its one method
// returns the arguments of the process.
func old() *wire.Server {
	return &wire.Server{
		Info:     wire.Implementation{Name: "old", Version: "0"},
		Versions: []string{"2025-06-18", "2025-03-26"},
		Methods: map[string]wire.HandlerFunc{"args": func(context.Context, *wire.Exchange) (any, error) {
			return map[string]any{"args": os.Args[2:]}, nil
		}},
	}
}

// serve serves it. A probe for the modern era is answered by a function.
func serve(probe func(ctx context.Context) error) {
	server := old()
	_ = wire.Serve(context.Background(), wire.StdioConn(maxMessage), wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		if x.Request.Method == "server/discover" {
			return nil, probe(ctx)
		}
		return server.Handle(ctx, x)
	}), nil)
}
