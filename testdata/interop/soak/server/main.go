// Server is what TestSoak calls: package wire over net/http at an address, or on standard input and output if there is none. It appends a line to
// the file MCPWIRE_RECORD for each call, before it does anything else: the key of the call.
//
//	count {key, n, ms, poll}  counts to n, waits before each step, and reports it
//	ask {key}                 asks the user for a name, and greets
//
// Over HTTP it answers each line of its standard input with what it uses: bytes of heap, goroutines and descriptors. There may be 500 sessions.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"syscall"
	"time"

	"interop/wire" // go run ./copywire
)

func main() {
	record, err := os.OpenFile(os.Getenv("MCPWIRE_RECORD"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		log.Fatal(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	server := newServer(record)
	if len(os.Args) == 1 {
		err = wire.Serve(ctx, wire.StdioConn(0), server, nil)
	} else {
		err = serveHTTP(ctx, os.Args[1], server)
	}
	if err != nil && ctx.Err() == nil {
		log.Fatal(err)
	}
}

func serveHTTP(ctx context.Context, addr string, handler *wire.Server) error {
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		return err
	}
	streamable := &wire.StreamableHandler{Handler: handler, Sessions: &wire.Sessions{Keep: 1 << 20, IdleTimeout: 10 * time.Second, Max: 500}}
	sse := &wire.SSEHandler{Handler: handler}
	mux := http.NewServeMux()
	mux.Handle("/mcp", streamable)
	mux.Handle("/sse", sse)
	server := &http.Server{Handler: mux}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		<-ctx.Done()
		soon, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		streamable.Close()
		sse.Close()
		if server.Shutdown(soon) != nil { // what runs on without a session has had its time
			server.Close()
		}
	}()
	go tellUsage()
	fmt.Println(listener.Addr())
	err = server.Serve(listener)
	if errors.Is(err, http.ErrServerClosed) {
		<-ended
		return nil
	}
	return err
}

func tellUsage() {
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		files, _ := os.ReadDir("/proc/self/fd")
		runtime.GC()
		runtime.GC() // for what is in pools
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		fmt.Println(m.HeapAlloc, runtime.NumGoroutine(), len(files))
	}
	os.Exit(1) // the test has ended
}

type countArguments struct {
	Key  string `json:"key"`
	N    int    `json:"n"`
	Ms   int    `json:"ms,omitempty"`
	Poll bool   `json:"poll,omitempty"`
}

type askArguments struct {
	Key string `json:"key"`
}

func newServer(record *os.File) *wire.Server {
	s := &wire.Server{Info: wire.Implementation{Name: "soak", Version: "1"}}
	wire.AddTool(s, wire.Tool{Name: "count"}, func(ctx context.Context, x *wire.Exchange, a countArguments) (any, error) {
		fmt.Fprintln(record, a.Key) // one write, which a kill cannot cut
		if a.Poll {
			x.Disconnect(50 * time.Millisecond)
		}
		for i := range a.N {
			select {
			case <-time.After(time.Duration(a.Ms) * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if err := x.Progress(ctx, float64(i+1), float64(a.N), ""); err != nil {
				return nil, err
			}
		}
		return fmt.Sprintf("%s: counted to %d", a.Key, a.N), nil
	})
	wire.AddTool(s, wire.Tool{Name: "ask"}, func(_ context.Context, x *wire.Exchange, a askArguments) (any, error) {
		var answer wire.ElicitResult
		if !x.Input("name", &answer) {
			fmt.Fprintln(record, a.Key)
			schema := json.RawMessage(`{"type":"object","properties":{"name":{"type":"string"}}}`)
			return wire.InputRequired{State: a.Key, Requests: map[string]wire.InputRequest{"name": {
				Method: "elicitation/create", Params: wire.ElicitParams{Message: a.Key, RequestedSchema: schema}}}}, nil
		}
		fmt.Fprintln(record, a.Key, "answered")
		if x.State() != a.Key {
			return nil, fmt.Errorf("the state is %q", x.State())
		}
		return a.Key + ": hello, " + string(answer.Content), nil
	})
	return s
}
