package library

import (
	"context"
	"fmt"
	"time"

	"interop/wire"
)

// newDemo returns a server with the tools that the tests call: echo, which repeats a text, and count, which reports progress after each delay.
func newDemo() *wire.Server {
	server := newServer()
	server.Capabilities = map[string]any{"resources": map[string]bool{"listChanged": true, "subscribe": true}}
	server.Methods = map[string]wire.HandlerFunc{}
	server.OfferLogging()
	wire.AddTool(server, wire.Tool{Name: "echo"}, func(_ context.Context, _ *wire.Exchange, a struct {
		Text string `json:"text"`
	}) (any, error) {
		return a.Text, nil
	})
	wire.AddTool(server, wire.Tool{Name: "count"}, func(ctx context.Context, x *wire.Exchange, a struct {
		N       int `json:"n"`
		DelayMs int `json:"delayMs,omitempty"`
	}) (any, error) {
		for i := range a.N {
			select {
			case <-time.After(time.Duration(a.DelayMs) * time.Millisecond):
			case <-ctx.Done():
				return nil, ctx.Err()
			}
			if err := x.Progress(ctx, float64(i+1), float64(a.N)); err != nil {
				return nil, err
			}
		}
		return fmt.Sprint("counted to ", a.N), nil
	})
	return server
}
