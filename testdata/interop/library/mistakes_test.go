package library

import (
	"context"
	"fmt"
	"interop/wire"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Capabilities that cannot be encoded are a mistake of the program. The client does not connect, and the server says so in each answer.
func TestCapabilitiesThatCannotBeEncoded(t *testing.T) {
	bad := map[string]any{"roots": make(chan int)}
	ours, theirs := wire.Pipe()
	c := &wire.Client{Capabilities: bad}
	for _, err := range []error{c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return ours, nil })), c.Call(t.Context(), "m", nil, nil)} {
		if err == nil || !strings.Contains(err.Error(), "Client.Capabilities: json: unsupported type: chan int") {
			t.Error(err)
		}
	}
	_ = c.Close()
	_ = theirs.Close()
	server := &wire.Server{Capabilities: bad, Methods: map[string]wire.HandlerFunc{"m": func(context.Context, *wire.Exchange) (any, error) { return nil, nil }}}
	const says = `"error":{"code":-32603,"message":"Server.Capabilities: json: unsupported type: chan int"}}`
	out := converse(t, server, initializeLine("2025-11-25"), modernRequest("server/discover", ""), modernRequest("m", ""))
	if len(out) != 3 {
		t.Error(out)
	}
	for _, line := range out {
		if !strings.HasSuffix(line, says) {
			t.Error(line)
		}
	}
}

// A subscription that ends while another one is being made is forgotten: the next one of the same resource is sent.
func TestListenForgetsWhatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []string
		server := newDemo()
		h := wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
			if strings.HasPrefix(x.Request.Method, "resources/") {
				var p wire.ResourceParams
				_ = x.Bind(&p)
				mu.Lock()
				sent = append(sent, fmt.Sprint(strings.TrimPrefix(x.Request.Method, "resources/"), " ", p.URI))
				mu.Unlock()
				if p.URI == "note:///slow" {
					time.Sleep(time.Minute)
				}
			}
			return server.Handle(ctx, x)
		})
		ours, theirs := wire.Pipe()
		go wire.Serve(context.Background(), theirs, h, nil)
		c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, Versions: []string{"2025-11-25"}}
		if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return ours, nil })); err != nil {
			t.Fatal(err)
		}
		listen := func(uri string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Listen(ctx, wire.ListenFilter{ResourceSubscriptions: []string{uri}}) }()
			synctest.Wait()
			return func() { cancel(); <-ended }
		}
		first := listen("note:///a")
		slow := listen("note:///slow")
		first() // the slow one has the turn
		time.Sleep(2 * time.Minute)
		again := listen("note:///a")
		again()
		slow()
		c.Close()
		time.Sleep(time.Minute) // until the server has ended, too
		mu.Lock()
		defer mu.Unlock()
		want := []string{"subscribe note:///a", "subscribe note:///slow", "subscribe note:///a", "unsubscribe note:///a", "unsubscribe note:///slow"}
		if !slices.Equal(sent, want) {
			t.Errorf("%q, want %q", sent, want)
		}
	})
}
