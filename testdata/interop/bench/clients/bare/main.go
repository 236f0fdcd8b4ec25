// Bare is the floor of what a client costs: a request encoded, posted with
// net/http, and its answer decoded.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"interop/bench/probe"
)

const version = "2025-11-25"

type client struct{ url, session string }

func main() {
	c := client{url: os.Args[1]}
	params := map[string]any{"protocolVersion": version, "capabilities": struct{}{}, "clientInfo": map[string]any{"name": "bare", "version": "1.0.0"}}
	if err := c.call(0, "initialize", params, nil); err != nil {
		log.Fatal(err)
	}
	probe.Calls(func(n int) error {
		text := fmt.Sprint("call ", n)
		var result struct{ Content []struct{ Text string } }
		err := c.call(n+1, "tools/call", map[string]any{"name": "echo", "arguments": map[string]any{"text": text}}, &result)
		if err == nil && (len(result.Content) != 1 || result.Content[0].Text != text) {
			err = fmt.Errorf("%q is answered with %v", text, result)
		}
		return err
	})
}

type request struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

func (c *client) call(id int, method string, params, result any) error {
	body, err := json.Marshal(request{"2.0", id, method, params})
	if err != nil {
		return err
	}
	r, err := http.NewRequest(http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if c.session != "" {
		r.Header.Set("Mcp-Session-Id", c.session)
		r.Header.Set("Mcp-Protocol-Version", version)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", method, resp.Status)
	}
	if id := resp.Header.Get("Mcp-Session-Id"); id != "" {
		c.session = id
	}
	if body, err = io.ReadAll(resp.Body); err != nil {
		return err
	}
	return json.Unmarshal(body, &struct {
		ID     int
		Result any
	}{Result: result})
}
