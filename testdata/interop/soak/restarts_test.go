package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"interop/shared"
	"math/rand/v2"
	"net/http"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// A server that is killed or stopped, and started again, over and over, while clients call it all the time. What was in flight may fail,
// soon and for a reason that says so; once the server listens, the next call works by itself. No call runs twice, and nothing is left
// behind. MCPWIRE_RESTARTS says how long it takes: 10m is for a test by hand, with some 50 restarts.
func TestClientRestarts(t *testing.T) {
	length := lengthOf(t, "MCPWIRE_RESTARTS")
	shared.CheckLeaks(t)
	s := newMortal(t)
	files := shared.OpenFiles() // after the first use of the network, which leaves some open
	s.start()
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 100
	clients := map[string]*restartedClient{}
	for name, c := range map[string]*wire.Client{
		"modern":  {Info: shared.Me, Versions: []string{"2026-07-28"}},
		"session": {Info: shared.Me, Versions: []string{"2025-11-25"}},
		"sse":     {Info: shared.Me}, // it finds out what is there
	} {
		clients[name] = s.connect(&http.Client{Transport: transport}, name, c)
	}
	before := settled(transport)

	pause := max(length/75, 600*time.Millisecond)
	halt := make(chan struct{})
	var callers sync.WaitGroup
	stop := sync.OnceFunc(func() { close(halt); callers.Wait() })
	defer stop()
	for _, c := range clients {
		for i := range 4 {
			callers.Go(func() { c.callOften(halt, i%2 == 1, length >= 15*time.Second) })
		}
	}
	signals := []os.Signal{os.Kill, syscall.SIGTERM}
	for began := time.Now(); time.Since(began) < length; {
		time.Sleep(pause/2 + rand.N(pause))
		s.stop(signals[s.lives%2])
		time.Sleep(rand.N(min(pause, 2*time.Second)))
		s.start()
		var wg sync.WaitGroup
		for _, c := range clients {
			wg.Go(func() { c.call("echo", 0, 0) })
		}
		wg.Wait()
	}
	stop()

	for _, c := range clients {
		c.call("count", 2, 1)
	}
	after := settled(transport)
	if after[0] > before[0] || after[1] > before[1] {
		t.Errorf("%d goroutines and %d files at the end, %d and %d at first", after[0], after[1], before[0], before[1])
	}
	for name, c := range clients {
		if n := c.open.Load(); n != 1 {
			t.Errorf("%s: %d connections are open", name, n)
		}
		c.Close()
	}
	s.stop(syscall.SIGTERM)
	transport.CloseIdleConnections()
	shared.WaitFor(t, func() bool { return shared.OpenFiles() <= files })
	s.compare()
	for name, c := range clients {
		t.Logf("%s: %d calls, %d progress events", name, c.calls.Load(), c.progress.Load())
		if c.progress.Load() == 0 {
			t.Errorf("%s: there were no streams", name)
		}
	}
	t.Logf("%d restarts; goroutines and files %v at first, %v at the end", s.lives-1, before, after)
}

// restartedClient is a client of a mortal, and what has become of its calls.
type restartedClient struct {
	*wire.Client
	server   *mortal
	name     string
	calls    atomic.Int64
	progress atomic.Int64
	open     atomic.Int32 // connections
}

func (s *mortal) connect(client *http.Client, name string, c *wire.Client) *restartedClient {
	r := &restartedClient{Client: c, server: s, name: name}
	path := map[string]string{"sse": "/sse"}[name]
	target := "http://" + s.addr + cmp.Or(path, "/mcp")
	c.Info = wire.Implementation{Name: "t", Version: "0"}
	c.Handler = wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
		if x.Request.Method == "notifications/progress" {
			r.progress.Add(1)
		}
		return nil, nil
	})
	streamable, old := shared.Counted(wire.HTTPDialer{Client: client, URL: target, MaxMessage: maxMessage}, &r.open), shared.Counted(wire.SSEDialer{Client: client, URL: target, MaxMessage: maxMessage}, &r.open)
	if err := c.Connect(s.Context(), streamable, old); err != nil {
		s.Fatal(name, err)
	}
	s.Cleanup(func() { c.Close() })
	r.call("count", 2, 1)
	return r
}

// callOften calls until it is told to end. A slow call is a stream; a few of them are too long for the server to finish when it is stopped.
func (r *restartedClient) callOften(halt <-chan struct{}, slow, long bool) {
	for {
		select {
		case <-halt:
			return
		case <-time.After(rand.N(120 * time.Millisecond)):
		}
		switch {
		case !slow:
			r.call("echo", 0, 0)
		case long && rand.N(100) == 0:
			r.call("count", 50, 100)
		default:
			r.call("count", 4, 50)
		}
	}
}

const (
	soonFailed = 5 * time.Second  // after its server has ended
	tooLong    = 30 * time.Second // for any call
)

// call makes one call, and sees to it that it fails only as it may: if its server was or went down, for that reason, and soon.
func (r *restartedClient) call(tool string, n, ms int) {
	ctx, cancel := context.WithTimeout(r.server.Context(), tooLong)
	defer cancel()
	key := fmt.Sprintf("%s-%d", r.name, r.calls.Add(1))
	up, over := r.server.state()
	began := time.Now()
	var raw json.RawMessage
	err := r.Call(ctx, "tools/call", map[string]any{"name": tool, "arguments": map[string]any{"key": key, "text": key, "n": n, "delayMs": ms},
		"_meta": map[string]any{"progressToken": key}}, &raw)
	upThen, overThen := r.server.state()
	life := len(over) // from 0: that in which it ran, unless it was told to end before
	took := time.Since(began)
	var late time.Duration
	if up > 0 && len(overThen) > life {
		late = time.Since(overThen[life])
	}
	kind := failure(err)
	switch {
	case err == nil && !strings.Contains(string(raw), map[string]string{"echo": key, "count": fmt.Sprintf("counted to %d", n)}[tool]):
		r.server.Errorf("%s: the answer is %s", key, raw)
	case err == nil:
	case up > 0 && up == upThen:
		r.server.Errorf("%s: failed after %v, though the server was there, in life %d: %v", key, took, up, err)
	case kind == "":
		r.server.Errorf("%s: failed after %v in life %d: %v", key, took, up, err)
	case late > soonFailed:
		r.server.Errorf("%s: failed %v after its server had ended: %v", key, late, err)
	}
}
