//go:build unix

// Attacked is the server that TestAttack attacks: package wire over net/http, with the bounds that it has by default, and with the time-outs
// of mcpwire. At /sse it speaks HTTP+SSE, and at any other path Streamable HTTP. It writes two addresses on one line, its own and that of its debug listener, and ends with its standard input.
//
//	echo {text}         returns the text
//	large {}            returns 4 MB of text, which are in memory once, however many calls there are
//	late {}             does the same after three seconds
//	count {n, delayMs}  counts to n, with a pause before each step, and reports each
//
// The debug listener has net/http/pprof, and /calls: how many calls of count have begun, and how many are running.
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"time"

	"interop/wire" // go run ./copywire
)

const ioTimeout = 30 * time.Second // as in main.go

var begun, running atomic.Int64 // calls of count

func main() {
	idle, _ := time.ParseDuration(os.Getenv("ATTACKED_IDLE")) // "": what it is by default
	tools := newServer()
	handler := http.NewServeMux()
	handler.Handle("/", &wire.StreamableHandler{Sessions: &wire.Sessions{Keep: 4 << 20, IdleTimeout: idle}, Handler: tools})
	handler.Handle("/sse", &wire.SSEHandler{Handler: tools})
	http.HandleFunc("/calls", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintln(w, begun.Load(), running.Load()) })
	// Whether a connection can be accepted is measured from outside. The log would only say it again.
	server := &http.Server{Handler: handler, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: 4 * ioTimeout,
		MaxHeaderBytes: 64 << 10, ErrorLog: log.New(io.Discard, "", 0)}
	listener, debugListener := listen(), listen()
	go func() { log.Fatal(http.Serve(debugListener, nil)) }()
	go func() { log.Fatal(server.Serve(listener)) }()
	debug.FreeOSMemory() // what is measured begins here
	fmt.Println(listener.Addr(), debugListener.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
}

func listen() net.Listener {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	return listener
}

type echoArguments struct {
	Text string `json:"text"`
}

type countArguments struct {
	N       int `json:"n"`
	DelayMs int `json:"delayMs,omitempty"`
}

func newServer() *wire.Server {
	s := &wire.Server{Info: wire.Implementation{Name: "attacked", Version: "1"}}
	wire.AddTool(s, wire.Tool{Name: "echo"}, func(_ context.Context, _ *wire.Exchange, a echoArguments) (any, error) { return a.Text, nil })
	wire.AddTool(s, wire.Tool{Name: "large"}, large)
	wire.AddTool(s, wire.Tool{Name: "late"}, func(ctx context.Context, x *wire.Exchange, a struct{}) (any, error) {
		time.Sleep(3 * time.Second)
		return large(ctx, x, a)
	})
	wire.AddTool(s, wire.Tool{Name: "count"}, count)
	return s
}

var largeText = strings.Repeat("x", 4_000_000)

func large(context.Context, *wire.Exchange, struct{}) (any, error) { return largeText, nil }

func count(ctx context.Context, x *wire.Exchange, a countArguments) (any, error) {
	begun.Add(1)
	running.Add(1)
	defer running.Add(-1)
	for i := range a.N {
		select {
		case <-time.After(time.Duration(a.DelayMs) * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := x.Progress(ctx, float64(i+1), float64(a.N), ""); err != nil {
			return nil, err
		}
	}
	return fmt.Sprintf("counted to %d", a.N), nil
}
