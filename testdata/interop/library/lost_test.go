package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
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
		c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{
			"elicitation/create": func(context.Context, *wire.Exchange) (any, error) { return wire.ElicitResult{Action: "decline"}, nil },
		}}
		if err := c.Connect(t.Context(), pipeTo(server)); err != nil {
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
