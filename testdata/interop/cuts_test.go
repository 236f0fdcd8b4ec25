package interop

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"
	"time"
)

// A stream of 1,000 events a second is cut at random times, and continued by GET each time: each event comes once, in order, and the response
// after them.
func TestStreamCutAtRandom(t *testing.T) {
	v := visit(t, serve(t).mcp)
	resp := v.do(t, "POST", nil, v.request("tools/call", `{"name":"count","arguments":{"n":1000,"delayMs":1},"_meta":{"progressToken":"t"}}`))
	seen, cuts, last := 0, 0, ""
	for seen < 1001 {
		var cut *time.Timer
		for e := range read(t, resp).events {
			if cut == nil { // not before there is an id to come back with
				cut = time.AfterFunc(time.Duration(5+rand.IntN(40))*time.Millisecond, func() { resp.Body.Close() })
			}
			if last = e.id; e.data == "" {
				continue
			}
			if seen++; seen <= 1000 && progress(e) != seen {
				t.Fatalf("event %d is %s", seen, e.data)
			}
		}
		if cut != nil {
			cut.Stop()
		}
		if cuts++; seen < 1001 {
			if resp = v.do(t, "GET", map[string]string{"Last-Event-ID": last}, ""); resp.StatusCode != 200 {
				t.Fatalf("GET after %s: %s %s", last, resp.Status, body(t, resp))
			}
		}
	}
	if seen != 1001 || cuts < 10 {
		t.Errorf("%d events, %d cuts", seen, cuts)
	}
}

// A client that is cut off far behind what the server has sent comes back, and gets the result of its call: progress that it has missed may be
// gone, but only that.
func TestStreamCutFarBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("sends 100,000 events several times, and waits for eight seconds")
	}
	server := serve(t, "-trace=false") // which would be a gigabyte
	for _, row := range []struct {
		events, delay int
		at            int           // bytes that the client reads
		pause         time.Duration // before it comes back
	}{
		{1000, 0, 20_000, 0}, {1000, 0, 100_000, 0}, {20_000, 0, 20_000, 0}, {20_000, 0, 100_000, 0}, {20_000, 0, 1_000_000, 0},
		{100_000, 0, 20_000, 0}, {100_000, 0, 100_000, 0}, {100_000, 0, 1_000_000, 0}, {100_000, 0, 100_000, 7 * time.Second}, {1000, 10, 20_000, 8 * time.Second},
	} {
		t.Run(fmt.Sprintf("%d events, %d ms apart, cut at %d bytes, %v later", row.events, row.delay, row.at, row.pause), func(t *testing.T) {
			t.Parallel()
			for range 4 {
				v := visit(t, server.mcp)
				call := v.request("tools/call", fmt.Sprintf(`{"name":"count","arguments":{"n":%d,"delayMs":%d},"_meta":{"progressToken":"t"}}`, row.events, row.delay))
				resp := v.do(t, "POST", nil, call)
				part, err := io.ReadAll(io.LimitReader(resp.Body, int64(row.at)))
				resp.Body.Close()
				if err != nil || len(part) < row.at {
					t.Fatalf("%d bytes, %v", len(part), err)
				}
				whole := part[:bytes.LastIndex(part, []byte("\n\n"))] // the last event may be cut
				ids := regexp.MustCompile(`(?m)^id: (.*)$`).FindAllSubmatch(whole, -1)
				last := string(ids[len(ids)-1][1])
				seen := len(ids) - 1 // the first one has no data
				time.Sleep(row.pause)
				resp = v.do(t, "GET", map[string]string{"Last-Event-ID": last}, "")
				if resp.StatusCode != 200 {
					t.Fatalf("GET after %s: %s %s", last, resp.Status, body(t, resp))
				}
				results := 0
				for e := range read(t, resp).events {
					switch {
					case strings.Contains(e.data, "counted to"):
						results++
					case e.data != "":
						if n := progress(e); n <= seen || results > 0 {
							t.Fatalf("progress %d after %d, results: %d", n, seen, results)
						} else {
							seen = n
						}
					}
				}
				if results != 1 {
					t.Fatalf("%d results", results)
				}
				v.do(t, "DELETE", nil, "").Body.Close() // what all sessions keep is bounded together: 16 sessions that have missed 4 MiB are the most
			}
		})
	}
}
