package interop

import (
	"bytes"
	"fmt"
	"io"
	"regexp"
	"strings"
	"testing"
)

// A client that is cut off far behind what the server has sent comes back, and gets the result of its call: progress that it has missed may be
// gone, but only that.
func TestStreamCutFarBehind(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("sends 100,000 events several times")
	}
	server := serve(t, "-trace=false") // which would be a gigabyte
	for _, row := range []struct {
		events int
		at     int // bytes that the client reads
	}{{1000, 20_000}, {20_000, 100_000}, {100_000, 100_000}, {100_000, 1_000_000}} {
		t.Run(fmt.Sprintf("%d events, cut at %d bytes", row.events, row.at), func(t *testing.T) {
			t.Parallel()
			for range 2 {
				v := visit(t, server.mcp)
				call := v.request("tools/call", fmt.Sprintf(`{"name":"count","arguments":{"n":%d},"_meta":{"progressToken":"t"}}`, row.events))
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
				results := 0
				for e := range v.listen(t, last).events {
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
