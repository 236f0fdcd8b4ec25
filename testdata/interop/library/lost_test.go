package library

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"interop/wire"
)

// asks is a server with a tool that asks the client's model, and says how that went.
func asks() *wire.Server {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	wire.AddTool(server, wire.Tool{Name: "ask"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		var answer struct {
			Model string `json:"model"`
		}
		err := x.Call(ctx, "sampling/createMessage", map[string]any{"messages": []any{}, "maxTokens": 1}, &answer)
		return answer.Model, err
	})
	return server
}

// answersLarge is a client whose model answers with 2 MiB.
func answersLarge() *wire.Client {
	return &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, Versions: []string{"2025-11-25"}, Handlers: map[string]wire.HandlerFunc{
		"sampling/createMessage": func(context.Context, *wire.Exchange) (any, error) {
			return map[string]any{"role": "assistant", "model": "m", "content": wire.TextContent(strings.Repeat("x", 2<<20))}, nil
		},
	}}
}

// streamsOf are both ends of a byte stream, as a server and a client would have them on stdio.
func streamsOf(serverLine, clientLine int) (server, client wire.Conn) {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	closeAll := func() error {
		return errors.Join(fromClient.Close(), toServer.Close(), fromServer.Close(), toClient.Close())
	}
	return wire.NewLineConn(fromClient, toClient, serverLine, closeAll), wire.NewLineConn(fromServer, toServer, clientLine, closeAll)
}

// A client's answer that is larger than the server allows ends the question at once: on stdio by its id, over HTTP by an error that the client
// sends in its place.
func TestAnswerTooLargeForServer(t *testing.T) {
	serverEnd, clientEnd := streamsOf(1<<20, 0)
	go func() { _ = wire.Serve(t.Context(), serverEnd, asks(), nil) }()
	sessions := &wire.Sessions{}
	handler := &wire.StreamableHandler{Handler: asks(), Sessions: sessions, Guard: wire.Guard{MaxBody: 1 << 20}}
	t.Cleanup(handler.Close)
	for name, row := range map[string]struct {
		dialer wire.Dialer
		reason string
	}{
		"stdio": {wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil }), "message too large"},
		"HTTP":  {wire.HTTPDialer{Client: &http.Client{Transport: bubbleNet(t, handler)}, URL: "http://127.0.0.1:8080/mcp"}, "the result could not be sent: "},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		c := answersLarge()
		if err := c.Connect(ctx, row.dialer); err != nil {
			t.Fatal(name, err)
		}
		defer c.Close()
		var result wire.ToolResult
		err := c.Call(ctx, "tools/call", map[string]any{"name": "ask"}, &result)
		if said := fmt.Sprint(result.Text(), err); !strings.Contains(said, row.reason) || ctx.Err() != nil {
			t.Errorf("%s: %s", name, said)
		}
	}
}

// An answer that is too large costs its own call, and no other that waits.
func TestLargeAnswerCostsOneCall(t *testing.T) {
	serverEnd, clientEnd := streamsOf(0, 1<<20)
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	largeIsRefused := make(chan struct{})
	wire.AddTool(server, wire.Tool{Name: "large"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return strings.Repeat("x", 2<<20), nil })
	wire.AddTool(server, wire.Tool{Name: "small"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { <-largeIsRefused; return "done", nil })
	go func() { _ = wire.Serve(t.Context(), serverEnd, server, nil) }()
	c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}}
	if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil })); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	small := make(chan error, 1)
	go func() { small <- c.Call(t.Context(), "tools/call", map[string]any{"name": "small"}, nil) }()
	if err := c.Call(t.Context(), "tools/call", map[string]any{"name": "large"}, nil); !errors.Is(err, wire.ErrTooLarge) {
		t.Error(err)
	}
	close(largeIsRefused)
	if err := <-small; err != nil {
		t.Error(err)
	}
}

// A batch that is too long may hold the answer to any question, so the server's questions end as well.
func TestLongBatchEndsQuestions(t *testing.T) {
	const asked = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`
	long := "[" + strings.Repeat(`{"jsonrpc":"2.0","method":"notifications/x"},`, 1024) + `{"jsonrpc":"2.0","id":1,"result":{"model":"m"}}]`
	r, w := io.Pipe()
	fromServer, toClient := io.Pipe()
	conn := wire.NewLineConn(r, toClient, 0, func() error { return errors.Join(r.Close(), toClient.Close()) })
	go func() { _ = wire.Serve(t.Context(), conn, asks(), nil) }()
	defer w.Close()
	lines := bufio.NewScanner(fromServer)
	for _, step := range [][2]string{
		{strings.Replace(initializeLine("2025-03-26"), `"capabilities":{}`, `"capabilities":{"sampling":{}}`, 1), `"protocolVersion"`},
		{asked, `"method":"sampling/createMessage"`},
	} {
		if _, err := io.WriteString(w, step[0]+"\n"); err != nil {
			t.Fatal(err)
		}
		if !lines.Scan() || !strings.Contains(lines.Text(), step[1]) {
			t.Fatalf("%s\nwant %s", lines.Text(), step[1])
		}
	}
	if _, err := io.WriteString(w, long+"\n"); err != nil {
		t.Fatal(err)
	}
	said := ""
	for range 2 { // in any order
		lines.Scan()
		said += lines.Text() + "\n"
	}
	if !strings.Contains(said, "a batch has 1 to 1024 messages") || !strings.Contains(said, `"id":2,"result":{`) || !strings.Contains(said, `"isError":true`) {
		t.Error(said)
	}
}

// A modern request has no Peer. A handler that uses it gets an error, and does not end the request with a panic.
func TestModernRequestHasNoPeer(t *testing.T) {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	wire.AddTool(server, wire.Tool{Name: "n"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		if x.Peer != nil {
			t.Error("a modern request has a Peer")
		}
		<-x.Peer.Context().Done()
		for _, err := range []error{
			x.Peer.Notify(ctx, "notifications/x", nil), x.Peer.Call(ctx, "ping", nil, nil), x.Call(ctx, "ping", nil, nil), context.Cause(x.Peer.Context()),
		} {
			if err != wire.ErrNoServerRequests {
				t.Error(err)
			}
		}
		return "done", nil
	})
	if out := answered(t, server, "2026-07-28", "tools/call", `"name":"n"`); !strings.Contains(out, "done") {
		t.Error(out)
	}
}

// A handler that reports progress before it asks reports it again when it has the answer. In both eras that is no mistake, and what does not rise
// is not sent.
func TestProgressBeforeQuestion(t *testing.T) {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	wire.AddTool(server, wire.Tool{Name: "n"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		if err := x.Progress(ctx, 1, 2); err != nil {
			return nil, err
		}
		var answer wire.ElicitResult
		if !x.Input("name", &answer) {
			return wire.InputRequired{Requests: map[string]wire.InputRequest{"name": {
				Method: "elicitation/create", Params: json.RawMessage(`{"message":"?","requestedSchema":{"type":"object","properties":{}}}`),
			}}}, nil
		}
		return answer.Action, x.Progress(ctx, 2, 2)
	})
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		serverEnd, clientEnd := wire.Pipe()
		go func() { _ = wire.Serve(t.Context(), serverEnd, server, nil) }()
		c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{
			"elicitation/create": func(context.Context, *wire.Exchange) (any, error) { return wire.ElicitResult{Action: "decline"}, nil },
		}}
		if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil })); err != nil {
			t.Fatal(err)
		}
		var last float64
		var result wire.ToolResult
		err := c.CallWithProgress(t.Context(), "tools/call", map[string]any{"name": "n"}, &result, func(p wire.ProgressParams) { last = p.Progress })
		if err != nil || result.Text() != "decline" || last != 2 {
			t.Errorf("%s: %+v, %v, progress %v", version, result, err, last)
		}
		c.Close()
	}
}

// Of a line that is too large, only the beginning is kept. An id that the end of that may have cut off, or that comes twice, is not used.
func TestIDOfSkippedLine(t *testing.T) {
	const kept = 4 << 10
	pad := func(before, after string) string { // the kept part ends with before
		return before[:1] + `"x":"` + strings.Repeat("x", kept-len(before)-len(`"x":"",`)) + `",` + before[1:] + after
	}
	for name, row := range map[string]struct{ line, want string }{
		"whole":     {`{"id":1,"method":"m","params":{"y":"`, `{"jsonrpc":"2.0","id":1,"error"`},
		"cut off":   {pad(`{"method":"m","id":123`, `456,"params":{"y":"`), `{"jsonrpc":"2.0","error"`},
		"twice":     {`{"id":1,"id":2,"method":"m","params":{"y":"`, `{"jsonrpc":"2.0","error"`},
		"no object": {`[{"id":1,"method":"m","params":{"y":"`, `{"jsonrpc":"2.0","error"`},
		"after":     {pad(`{"method":"m","params":{"y":"`, ``), `{"jsonrpc":"2.0","error"`},
	} {
		r, w := io.Pipe()
		fromServer, toClient := io.Pipe()
		conn := wire.NewLineConn(r, toClient, 64<<10, func() error { return errors.Join(r.Close(), toClient.Close()) })
		go func() { _ = wire.Serve(t.Context(), conn, asks(), nil) }()
		go func() { _, _ = io.WriteString(w, row.line+strings.Repeat("y", 128<<10)+"\"}}\n") }()
		lines := bufio.NewScanner(fromServer)
		if !lines.Scan() || !strings.HasPrefix(lines.Text(), row.want) {
			t.Errorf("%s: %s, want %s", name, lines.Text(), row.want)
		}
		w.Close()
	}
}

// A server on a byte stream holds 128 MiB of requests at most. It says so to those that come meanwhile.
func TestServerOnStreamHoldsLittle(t *testing.T) {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	wire.AddTool(server, wire.Tool{Name: "wait"}, func(ctx context.Context, _ *wire.Exchange, _ struct{}) (any, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	})
	r, w := io.Pipe()
	fromServer, toClient := io.Pipe()
	conn := wire.NewLineConn(r, toClient, 0, func() error { return errors.Join(r.Close(), toClient.Close()) })
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan struct{})
	go func() {
		_ = wire.Serve(ctx, conn, server, nil)
		close(served)
	}()
	const calls, size = 40, 4<<20 - 200 // 160 MiB
	go func() {
		_, _ = io.WriteString(w, initializeLine("2025-11-25")+"\n")
		text := strings.Repeat("x", size)
		for id := range calls {
			_, _ = fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","x":"%s"}}`+"\n", id+1, text)
		}
	}()
	lines := bufio.NewScanner(fromServer)
	lines.Scan() // the answer to initialize
	for range calls - 128/4 - 1 {
		if !lines.Scan() || !strings.Contains(lines.Text(), "Too many requests in flight") {
			t.Fatal(lines.Text())
		}
	}
	cancel()
	r.Close()
	toClient.Close()
	<-served
}

// A handler that ends its goroutine costs its caller an error, and not the response.
func TestGoexitOverHTTP(t *testing.T) {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	wire.AddTool(server, wire.Tool{Name: "n"}, func(context.Context, *wire.Exchange, struct{}) (any, error) {
		runtime.Goexit()
		return nil, nil
	})
	c := serveWeb(t, newHandler(t, server)).open("2025-11-25", `{}`)
	if status, text, _ := c.do("POST", toolCall(1, "n", `{}`)); status != 200 || !strings.Contains(text, `"id":1,"error":{"code":-32603`) {
		t.Errorf("%d %s", status, text)
	}
}

// An integer is one by its digits.
func TestIntegersByDigits(t *testing.T) {
	for text, want := range map[string]int64{
		"3": 3, "3.0": 3, "30e-1": 3, "0.3e1": 3, "-3.000": -3, "3E+0": 3, "0e5": 0, "-0.0": 0, "9007199254740993.0": 9007199254740993,
		"1e18": 1e18, "9.223372036854775807e18": 9223372036854775807, "0.5": -1, "1e-400": -1, "1e-999999999": -1,
		"1.00000000000000000001": -1, "5e-324": -1, "1e19": -1, "1e999999999999": -1, "9223372036854775808": -1,
	} {
		var v struct {
			N int64 `json:"n"`
		}
		err := wire.Bind(json.RawMessage(`{"n":`+text+`}`), &v)
		if (err != nil) != (want == -1) || err == nil && v.N != want {
			t.Errorf("%s: %d, %v, want %d", text, v.N, err, want)
		}
	}
}
