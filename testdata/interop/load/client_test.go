//go:build linux

package load

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"interop/shared"
	"interop/wire" // go run ./copywire
)

// TestFarBehind cuts a client off far behind what its server sends. It comes back when the call has ended, and gets the answer: of the progress
// some may be missing.
func TestFarBehind(t *testing.T) {
	for _, row := range []struct{ n, at int }{{1000, 20_000}, {100_000, 100_000}, {100_000, 1_000_000}} { // reports; bytes that the client reads
		t.Run(fmt.Sprintf("%d, cut at %d bytes", row.n, row.at), func(t *testing.T) { farBehind(t, row.n, row.at) })
	}
}

func farBehind(t *testing.T, n, at int) {
	sent := atomic.Int32{}
	server := &wire.Server{}
	wire.AddTool(server, wire.Tool{Name: "count"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		for i := range n {
			if err := x.Progress(ctx, float64(i+1), float64(n), ""); err != nil {
				return nil, err
			}
			sent.Add(1)
		}
		return "counted", nil
	})
	web := httptest.NewServer(&wire.StreamableHandler{Handler: server, Sessions: &wire.Sessions{Keep: 4 << 20}})
	defer web.Close()
	client := &wire.Client{Versions: []string{legacy}}
	cuts := &cutter{at: int64(at), resume: func() {
		for int(sent.Load()) < n {
			time.Sleep(time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // for the answer
	}}
	if err := client.Connect(t.Context(), &wire.HTTPDialer{URL: web.URL, Client: &http.Client{Transport: cuts}}); err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var result wire.ToolResult
	reports, last := 0, 0.0
	err := client.CallWithProgress(t.Context(), "tools/call", wire.CallToolParams{Name: "count"}, &result, func(p wire.ProgressParams) {
		if reports++; p.Progress <= last {
			t.Errorf("%v after %v", p.Progress, last)
		}
		last = p.Progress
	})
	if err != nil || result.Text() != "counted" || int(last) != n || cuts.n.Load() != 1 {
		t.Errorf("%v %v; %d reports, the last %v; %d cuts", result, err, reports, last, cuts.n.Load())
	}
	t.Logf("%d reports of %d", reports, n)
}

// cutter cuts the first stream of a POST off after some bytes.
type cutter struct {
	n      atomic.Int32
	at     int64
	resume func() // waits, before the client comes back
}

// RoundTrip sends a request.
func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header["Last-Event-Id"] != nil {
		c.resume()
	}
	response, err := http.DefaultTransport.RoundTrip(r)
	isStream := err == nil && response.Header.Get("Content-Type") == "text/event-stream"
	if isStream && r.Method == http.MethodPost && c.n.Add(1) == 1 {
		response.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(response.Body, c.at), response.Body}
	}
	return response, err
}

// TestHostileServer has a client in a process of its own list what a server offers that wants to fill its memory. The list fails, or ends.
func TestHostileServer(t *testing.T) {
	if url := os.Getenv("HOSTILE"); url != "" {
		client := &wire.Client{}
		err := client.Connect(t.Context(), &wire.HTTPDialer{URL: url})
		if err == nil {
			_, err = wire.List[wire.Tool](t.Context(), client, "tools/list", "tools")
		}
		t.Log(err)
		return
	}
	if shared.HasRaceDetector() {
		t.Skip("memory is measured")
	}
	many := func(size int, text string) string { return text + strings.Repeat(","+text, size/(len(text)+1)) }
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	var marks []string
	for i := range 10_000 {
		marks = append(marks, fmt.Sprintf(`"p%d":{"type":"string","x-mcp-header":"H%[1]d"}`, i))
	}
	marked := `{"name":"x","inputSchema":{"type":"object","properties":{` + strings.Repeat(`"a":{"properties":{`, 60) + strings.Join(marks, ",") + strings.Repeat("}}", 60) + `}}}`
	for name, members := range map[string]string{
		"60 MB":              `"tools":[` + many(60<<20, `{"name":"x","inputSchema":{"type":"object"}}`) + `]`,
		"15 MB of objects":   `"tools":[` + many(15<<20, `{}`) + `]`,
		"15 MB of a schema":  `"tools":[{"name":"x","inputSchema":{"x-mcp-header":"a","a":[` + many(15<<20, `[]`) + `]}}]`,
		"marks of headers":   `"tools":[` + many(3<<20, marked) + `]`,
		"pages of 1 MB":      `"tools":[{"name":` + long + `}],"nextCursor":"%d"`,
		"pages of nothing":   `"tools":[],"nextCursor":"%d"`,
		"the same page":      `"tools":[{"name":` + long + `}],"nextCursor":"x"`,
		"a cursor of 1 MB":   `"tools":[],"nextCursor":"%d` + long[1:],
		"events without end": "",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pages := atomic.Int32{}
			web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				answer := `"supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}`
				w.Header().Set("Content-Type", "application/json")
				if strings.Contains(string(body), "tools/list") {
					answer = strings.Replace(members, "%d", fmt.Sprint(pages.Add(1)), 1)
				}
				if answer == "" {
					w.Header().Set("Content-Type", "text/event-stream")
					_, _ = io.Copy(w, io.LimitReader(endlessEvent{}, 1<<30))
					return
				}
				_, id, _ := strings.Cut(string(body), `"id":`)
				id, _, _ = strings.Cut(id, ",")
				fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete",%s}}`, id, answer)
			}))
			defer web.Close()
			client := exec.Command(os.Args[0], "-test.run", "^TestHostileServer$", "-test.v")
			client.Env = append(os.Environ(), "HOSTILE="+web.URL)
			late := time.AfterFunc(time.Minute, func() { _ = client.Process.Kill() })
			out, err := client.CombinedOutput()
			if !late.Stop() || err != nil {
				t.Errorf("%v\n%.2000s", err, out)
			}
			most := int(client.ProcessState.SysUsage().(*syscall.Rusage).Maxrss) >> 10
			t.Logf("%d MB, %d pages: %.300s", most, pages.Load(), out)
			if most > 900 {
				t.Errorf("the client needs %d MB", most)
			}
		})
	}
}

type endlessEvent struct{}

func (endlessEvent) Read(p []byte) (int, error) {
	return copy(p, "data: xxxxxxxxxxxxxxxxxxxxxxxxxx\n"), nil
}
