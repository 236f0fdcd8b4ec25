package soak

import (
	"interop/shared"
	"math/rand/v2"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// A server that is killed or stopped, and started again, over and over, while clients of all revisions call it all the time. What was in
// flight may fail, soon and for a reason that says so; once the server listens, the next call works by itself. No call runs twice, and nothing
// is left behind. MCPWIRE_RESTARTS says how long it takes: 10m is for a test by hand, with some 50 restarts.
func TestClientRestarts(t *testing.T) {
	length := lengthOf(t, "MCPWIRE_RESTARTS")
	shared.CheckLeaks(t)
	s := newSoak(t, length)
	files := shared.OpenFiles() // after the first use of the network, which leaves some open
	s.start()
	var clients []*soakClient
	for _, rev := range wire.Revisions {
		c := s.client("direct", rev)
		c.connect()
		clients = append(clients, c)
	}
	before := settled(s.transport)

	var callers sync.WaitGroup
	stop := sync.OnceFunc(func() { s.halt(); callers.Wait() })
	defer stop()
	for _, c := range clients {
		for i := range 4 {
			callers.Go(func() { c.callOften(i%2 == 1) })
		}
	}
	signals := []os.Signal{os.Kill, syscall.SIGTERM}
	pause := max(length/75, 600*time.Millisecond)
	for began := time.Now(); time.Since(began) < length; {
		time.Sleep(pause/2 + rand.N(pause))
		s.stop(signals[s.lives%2])
		time.Sleep(rand.N(min(pause, 2*time.Second)))
		s.start()
		var all sync.WaitGroup
		for _, c := range clients {
			all.Go(c.echoOnce)
		}
		all.Wait()
	}
	stop()

	for _, c := range clients {
		_ = c.countTo(t.Context(), 2, 1)
	}
	after := settled(s.transport)
	if after[0] > before[0] || after[1] > before[1] {
		t.Errorf("%d goroutines and %d files at the end, %d and %d at first", after[0], after[1], before[0], before[1])
	}
	for _, c := range clients {
		if n := c.open.Load(); n != 1 {
			t.Errorf("%s: %d connections are open", c.name, n)
		}
		if c.begun.Load() == 0 {
			t.Errorf("%s: there were no streams", c.name)
		}
		c.leave()
	}
	s.over.Store(true)
	s.stop(syscall.SIGTERM)
	s.transport.CloseIdleConnections()
	shared.WaitFor(t, func() bool { return shared.OpenFiles() <= files })
	s.compare()
	s.tell()
	t.Logf("%d restarts; goroutines and files %v at first, %v at the end", s.lives-1, before, after)
}

// callOften calls until it is time to halt. A slow call is a stream; a few of them are too long for the server to finish when it is stopped.
func (c *soakClient) callOften(slow bool) {
	for c.rest(rand.N(120 * time.Millisecond)) {
		switch {
		case !slow:
			c.echoOnce()
		case c.long && rand.N(100) == 0:
			_ = c.countTo(c.Context(), 50, 100)
		default:
			_ = c.countTo(c.Context(), 4, 50)
		}
	}
}
