// Mcpwire calls with the Client of package wire, a copy of the library.
package main

import (
	"context"
	"log"
	"net/http"
	"os"

	"interop/bench/probe"
	"interop/wire" // go run ./copywire
)

func main() {
	ctx := context.Background()
	c := &wire.Client{Info: wire.Implementation{Name: "mcpwire", Version: "1.0.0"}}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if err := c.Connect(ctx, &wire.HTTPDialer{Client: &http.Client{Transport: transport}, URL: os.Args[1], MaxMessage: 4 << 20}); err != nil {
		log.Fatal(err)
	}
	probe.Calls(func(text string) (string, error) {
		var result struct{ Content []struct{ Text string } }
		err := c.Call(ctx, "tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"text": text}}, &result)
		if err != nil {
			return "", err
		}
		return result.Content[0].Text, nil
	})
}
