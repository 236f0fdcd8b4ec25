package interop

import (
	"math/rand/v2"
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
