//go:build unix

// Attacked is the server that TestAttack attacks: package wire over net/http, with the bounds that it has by default, and with the time-outs
// of mcpwire. At /sse it speaks HTTP+SSE, and at any other path Streamable HTTP. It writes two addresses on one line, its own and that of its debug listener, and ends with its standard input.
//
//	echo {text, repeat} returns the text, several times in a row
//	late {text, repeat} does the same after three seconds
//	count {n, delayMs}  counts to n, with a pause before each step, and reports each
//	large {}            returns 60 MB of text, which are in memory once, however many calls there are
//
// The debug listener has net/http/pprof, and /calls: how many calls of count have begun, and how many are running.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	_ "net/http/pprof"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"interop/wire" // go run ./copywire
)

const ioTimeout = 30 * time.Second // as in main.go

var (
	large          = largeResult()
	begun, running atomic.Int64 // calls of count
)

func main() {
	tools := &wire.Server{
		Info:         wire.Implementation{Name: "attacked", Version: "1"},
		Capabilities: map[string]any{"tools": struct{}{}},
		Methods:      map[string]wire.HandlerFunc{"tools/call": call},
	}
	handler := http.NewServeMux()
	handler.Handle("/", &wire.StreamableHandler{Sessions: &wire.Sessions{Keep: 4 << 20}, Handler: tools})
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

// largeResult returns a result that is not in the heap. There, the garbage collector would let the memory grow by as much again.
func largeResult() json.RawMessage {
	const size = 60_000_000
	const before, after = `{"content":[{"type":"text","text":"`, `"}]}`
	memory, err := syscall.Mmap(-1, 0, len(before)+size+len(after), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		log.Fatal(err)
	}
	copy(memory, before)
	for i := range size {
		memory[len(before)+i] = 'x'
	}
	copy(memory[len(before)+size:], after)
	return memory
}

// call serves tools/call.
func call(ctx context.Context, x *wire.Exchange) (any, error) {
	var params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}
	if err := x.Bind(&params); err != nil {
		return nil, err
	}
	switch params.Name {
	case "echo", "late":
		if params.Name == "late" {
			time.Sleep(3 * time.Second)
		}
		var args struct {
			Text   string `json:"text"`
			Repeat int    `json:"repeat,omitempty"`
		}
		if err := wire.Bind(params.Arguments, &args); err != nil {
			return nil, err
		}
		return wire.ToolResult{Content: []wire.Content{wire.TextContent(strings.Repeat(args.Text, max(args.Repeat, 1)))}}, nil
	case "count":
		var args struct {
			N       int `json:"n"`
			DelayMs int `json:"delayMs,omitempty"`
		}
		if err := wire.Bind(params.Arguments, &args); err != nil {
			return nil, err
		}
		return count(ctx, x, args.N, time.Duration(args.DelayMs)*time.Millisecond)
	case "large":
		return large, nil
	}
	return nil, &wire.Error{Code: wire.CodeInvalidParams, Message: "Unknown tool: " + params.Name}
}

func count(ctx context.Context, x *wire.Exchange, n int, delay time.Duration) (any, error) {
	begun.Add(1)
	running.Add(1)
	defer running.Add(-1)
	for i := 1; i <= n; i++ {
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if err := x.Progress(ctx, float64(i), float64(n)); err != nil {
			return nil, err
		}
	}
	return wire.ToolResult{Content: []wire.Content{wire.TextContent("counted to " + strconv.Itoa(n))}}, nil
}
