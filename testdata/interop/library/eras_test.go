package library

import (
	"context"
	"encoding/json"
	"interop/wire"
	"strings"
	"sync/atomic"
	"testing"
)

// A call whose question has been answered is not begun anew when the connection ends just then: nobody is asked twice.
func TestClientAsksOnce(t *testing.T) {
	server := &wire.Server{Capabilities: everything, Methods: map[string]wire.HandlerFunc{"tools/call": func(_ context.Context, x *wire.Exchange) (any, error) {
		if x.Inputs() != nil {
			return wire.ToolResult{Content: []wire.Content{}}, nil
		}
		return wire.InputRequired{Requests: map[string]wire.InputRequest{"name": {Method: "elicitation/create", Params: json.RawMessage(`{"message":"Who?","requestedSchema":{"type":"object","properties":{}}}`)}}}, nil
	}}}
	for range 100 {
		var asked atomic.Int64
		there := make(chan wire.Conn, 8)
		client := &wire.Client{Info: wire.Implementation{Name: "x", Version: "1"}, Capabilities: map[string]any{"elicitation": struct{}{}},
			Handler: wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
				if x.Request.Kind() == wire.Request && asked.Add(1) == 1 {
					(<-there).Close()
				}
				return json.RawMessage(`{"action":"accept","content":{}}`), nil
			})}
		if err := client.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) {
			ours, theirs := wire.Pipe()
			there <- theirs
			go wire.Serve(context.Background(), theirs, server, nil)
			return ours, nil
		})); err != nil {
			t.Fatal(err)
		}
		_ = client.Call(t.Context(), "tools/call", map[string]any{"name": "g"}, nil)
		client.Close()
		if n := asked.Load(); n != 1 {
			t.Fatal(n)
		}
	}
}

// The compatibility matrix of 2026-07-28 basic/versioning, with our own two ends.
func TestEras(t *testing.T) {
	eras := map[string][]string{"modern": {"2026-07-28"}, "legacy": {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}, "dual": nil}
	want := map[string]string{
		"modern modern": "2026-07-28", "modern legacy": "", "modern dual": "2026-07-28",
		"legacy modern": "", "legacy legacy": "2025-11-25", "legacy dual": "2025-11-25",
		"dual modern": "2026-07-28", "dual legacy": "2025-11-25", "dual dual": "2026-07-28",
	}
	for transport, dial := range map[string]func(*wire.Server) wire.Dialer{"stdio": func(d *wire.Server) wire.Dialer {
		a, b := wire.Pipe()
		t.Cleanup(func() { b.Close() })
		go wire.Serve(t.Context(), a, d, nil)
		return wire.DialerFunc(func(context.Context) (wire.Conn, error) { return b, nil })
	}, "HTTP": func(d *wire.Server) wire.Dialer {
		h := newHandler(t, d)
		h.Versions = d.Versions
		return wire.HTTPDialer{URL: serveWeb(t, h).url, MaxMessage: testLimit}
	}} {
		for pair, version := range want {
			client, server, _ := strings.Cut(pair, " ")
			demo := newDemo()
			demo.Versions = eras[server]
			c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Versions: eras[client]}
			err := c.Connect(t.Context(), dial(demo))
			if got := c.Server().Version; got != version || (err == nil) != (got != "") {
				t.Errorf("%s, %s: %q, %v", transport, pair, got, err)
			}
			if err == nil {
				err = c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"echo","arguments":{"text":"x"}}`), nil)
			} else if server != "modern" || strings.Contains(err.Error(), "2026-07-28") { // which says what it speaks
				err = nil
			}
			if err != nil {
				t.Errorf("%s, %s: %v", transport, pair, err)
			}
			c.Close()
		}
	}
}
