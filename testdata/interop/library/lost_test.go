package library

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"interop/wire"
)

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
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "ask"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		return nil, x.Call(ctx, "sampling/createMessage", map[string]any{"messages": []any{}, "maxTokens": 1}, nil)
	})
	large := func(context.Context, *wire.Exchange) (any, error) {
		return wire.SamplingResult{Role: "assistant", Model: "m", Content: wire.Contents{wire.TextContent(strings.Repeat("x", 2<<20))}}, nil
	}
	serverEnd, clientEnd := streamsOf(1<<20, 0)
	go func() { _ = wire.Serve(t.Context(), serverEnd, server, nil) }()
	handler := newHandler(t, server)
	handler.MaxBody = 1 << 20
	for reason, to := range map[string]wire.Dialer{
		"message too large":             wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil }),
		"the result could not be sent:": wire.HTTPDialer{URL: serveWeb(t, handler).url},
	} {
		c := dial(t, to, &wire.Client{Versions: []string{"2025-11-25"}, Handlers: map[string]wire.HandlerFunc{"sampling/createMessage": large}})
		if text, err := callTool(t, c, "ask"); !strings.Contains(fmt.Sprint(text, err), reason) {
			t.Errorf("%s, %v, want %s", text, err, reason)
		}
	}
}

// An answer that is too large costs its own call, and no other that waits.
func TestLargeAnswerCostsOneCall(t *testing.T) {
	serverEnd, clientEnd := streamsOf(0, 1<<20)
	server := newServer()
	largeIsRefused := make(chan struct{})
	wire.AddTool(server, wire.Tool{Name: "large"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return strings.Repeat("x", 2<<20), nil })
	wire.AddTool(server, wire.Tool{Name: "small"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { <-largeIsRefused; return "done", nil })
	go func() { _ = wire.Serve(t.Context(), serverEnd, server, nil) }()
	c := dial(t, wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil }), &wire.Client{})
	small := make(chan error, 1)
	go func() {
		_, err := callTool(t, c, "small")
		small <- err
	}()
	if _, err := callTool(t, c, "large"); !errors.Is(err, wire.ErrTooLarge) {
		t.Error(err)
	}
	close(largeIsRefused)
	if err := <-small; err != nil {
		t.Error(err)
	}
}

// A modern request has no Peer. A handler that uses it gets an error, and does not end the request with a panic.
func TestModernRequestHasNoPeer(t *testing.T) {
	server := newServer()
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
