//go:build unix

package main

// Benchmarks of what the table does not have, for the floor and for mcpwire:
//
//	go test -run '^$' -bench . ./bench

import (
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// forEach serves HTTP with the floor and with mcpwire.
func forEach(b *testing.B, run func(b *testing.B, c *child)) {
	root, err := filepath.Abs("..")
	if err != nil {
		b.Fatal(err)
	}
	out := b.TempDir()
	for _, p := range programs()[:2] {
		if err := p.build(root, out); err != nil {
			b.Fatal(err)
		}
		b.Run(p.name, func(b *testing.B) {
			c, err := p.serve("-max-sessions", "1000000")
			if err != nil {
				b.Fatal(err)
			}
			defer c.stop()
			run(b, c)
		})
	}
}

// measure reports the processor time of a child for each of n operations in a
// turn.
func measure(b *testing.B, c *child, n int, turn func() error) {
	before, err := c.cpu()
	if err != nil {
		b.Fatal(err)
	}
	b.ResetTimer()
	for range b.N {
		if err := turn(); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
	after, err := c.cpu()
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(after-before)/float64(b.N*n), "cpu-ns/op")
}

// BenchmarkListen announces a change to 1,000 subscriptions. What counts is the
// server's processor time for each event that arrives.
func BenchmarkListen(b *testing.B) {
	const n = 1000
	forEach(b, func(b *testing.B, c *child) {
		arrived := make(chan string, n)
		await := func(method string) error {
			for range n {
				select {
				case data := <-arrived:
					if !strings.Contains(data, method) {
						return fmt.Errorf("not %s: %s", method, data)
					}
				case <-time.After(patience):
					return fmt.Errorf("%s does not arrive", method)
				}
			}
			return nil
		}
		for id := range n {
			listen(b, c.addr, id, arrived)
		}
		if err := await("notifications/subscriptions/acknowledged"); err != nil {
			b.Fatal(err)
		}
		conn, err := dial(c.addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		headers := "Mcp-Protocol-Version: " + modernVersion + "\r\nMcp-Method: tools/call\r\nMcp-Name: set-note\r\n"
		conn.calls = []*call{newCall(post("/mcp", headers, toolCall(true, "set-note", `"name":"todo","text":"x"`, "")), 1, func([]byte) error { return nil })}
		measure(b, c, n, func() error {
			if _, _, err := conn.one(); err != nil {
				return err
			}
			return await("notifications/resources/updated")
		})
	})
}

// listen subscribes to a note, and hands on the data of each event.
func listen(b *testing.B, addr string, id int, arrived chan<- string) {
	body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"subscriptions/listen","params":{"notifications":{"resourceSubscriptions":["note:///todo"]},"_meta":{%s}}}`, id, modernMeta)
	r, err := http.NewRequestWithContext(b.Context(), "POST", "http://"+addr+"/mcp", strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header = http.Header{"Accept": {"application/json, text/event-stream"}, "Content-Type": {"application/json"},
		"Mcp-Protocol-Version": {modernVersion}, "Mcp-Method": {"subscriptions/listen"}}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { resp.Body.Close() })
	go func() {
		for e, err := range wire.ReadEvents(resp.Body, 1<<20) {
			if err != nil {
				return
			}
			if len(e.Data) > 0 {
				arrived <- string(e.Data)
			}
		}
	}()
}

// BenchmarkCrowd makes a call while there are 10,000 sessions and 2,000 idle
// streams. The floor has no sessions.
func BenchmarkCrowd(b *testing.B) {
	forEach(b, func(b *testing.B, c *child) {
		sessions, err := c.open(10_000)
		if err != nil {
			b.Fatal(err)
		}
		for _, id := range sessions[:2000] {
			stream, err := openStream(c.addr, "/mcp", id)
			if err != nil {
				b.Fatal(err)
			}
			defer stream.Close()
		}
		conn, err := dial(c.addr)
		if err != nil {
			b.Fatal(err)
		}
		defer conn.Close()
		body := toolCall(false, "echo", `"text":"hello"`, "")
		conn.calls = []*call{newCall(post("/mcp", inSessionHeaders(sessions[0]), body), 1, saying("hello"))}
		measure(b, c, 1, func() error {
			_, _, err := conn.one()
			return err
		})
	})
}
