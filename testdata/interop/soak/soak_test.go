// Package soak has what is too long, or needs too many processes, for the tests of the library: servers that are killed and started again,
// servers under abuse, and servers that are stopped under load. The clients are package wire, the copy of the library. The
// server is mcpwire as it is built, with record.go.txt added, which tells what it uses and which calls ran.
//
//	go run ./copywire                                          in testdata/interop, first
//	go test -count=1 ./soak                                    each for a few seconds
//	MCPWIRE_RESTARTS=10m go test -count=1 -timeout 1h -run TestClientRestarts -v ./soak
//	MCPWIRE_SOAK=30m go test -count=1 -timeout 1h -run 'TestSoak|TestStopUnderLoad' -v ./soak
//
// With -race the servers are built with the race detector, too, and end at the first race.
package soak

import (
	"context"
	"errors"
	"fmt"
	"interop/shared"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// TestSoak has a server abused in every way at once, while 64 well-behaved clients, of all revisions and transports, make sure that each of
// their calls is answered once, and right. Half of them are behind a proxy that delays, splits, stalls and cuts what passes through it: a
// call of theirs may fail, but soon, for a reason, and only if it could not be resumed. An eighth of the clients start mcpwire bridge, which calls
// the server for them: their calls must not fail. In the end the server is to be as it was at first. MCPWIRE_SOAK says how long it takes: 30m
// is for a test by hand. Each client, abuser and connection of the proxy draws lots of its own, from a seed that is logged: MCPWIRE_SEED repeats
// them. What a single request may do wrong is in the golden files, and FuzzHTTP makes it up.

// soak is a server under abuse, and what is counted.
type soak struct {
	*mortal
	seed      uint64
	long      bool
	proxy     *badProxy
	web       *http.Client // of the well-behaved clients
	transport *http.Transport
	ctx       context.Context // until it is time to halt
	halt      context.CancelFunc
	abused    atomic.Bool
	over      atomic.Bool   // the server has been told to stop
	lots      atomic.Uint64 // how many have begun to draw

	mu     sync.Mutex // guards the field below
	counts map[string]int
}

func newSoak(t *testing.T, length time.Duration, flags ...string) *soak {
	s := &soak{mortal: newMortal(t), seed: rand.Uint64(), long: length >= 10*time.Second,
		counts: map[string]int{"FAULT: lost": 0, "FAULT: answered twice": 0, "FAULT: wrong": 0}}
	if text := os.Getenv("MCPWIRE_SEED"); text != "" {
		s.seed, _ = strconv.ParseUint(text, 10, 64)
	}
	t.Logf("MCPWIRE_SEED=%d", s.seed)
	s.transport, s.flags = http.DefaultTransport.(*http.Transport).Clone(), flags
	s.transport.MaxIdleConnsPerHost = 100
	s.web = &http.Client{Transport: shared.RoundTrip(func(r *http.Request) (*http.Response, error) {
		if r.Header["Last-Event-Id"] != nil {
			s.count("streams resumed")
		}
		return s.transport.RoundTrip(r)
	})}
	s.ctx, s.halt = context.WithCancel(t.Context())
	return s
}

func (s *soak) draw() *rand.Rand { return rand.New(rand.NewPCG(s.seed, s.lots.Add(1))) }

func (s *soak) count(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

// fault counts what must not be.
func (s *soak) fault(what, format string, args ...any) {
	s.count("FAULT: " + what)
	s.Errorf(what+": "+format, args...)
}

// rest waits, unless it is time to halt.
func (s *soak) rest(d time.Duration) bool { return sleep(s.ctx, d) }

func TestSoak(t *testing.T) {
	length := lengthOf(t, "MCPWIRE_SOAK")
	shared.CheckLeaks(t)
	s := newSoak(t, length, "-session-ttl", "20s", "-max-body", "1048576", "-watch")
	s.start()
	s.proxy = newBadProxy(s)
	clients := s.clients(64)
	for _, c := range clients[:10] { // to warm up: of each kind
		c.connect()
		c.echo()
		c.leave()
	}
	here, there := settled(s.transport), s.settled()

	var callers, abusers sync.WaitGroup
	for _, c := range clients {
		callers.Go(c.connect)
	}
	callers.Wait()
	for _, c := range clients {
		callers.Go(c.behave)
	}
	s.rest(length / 5)
	s.abused.Store(true)
	for _, kind := range abuses {
		abusers.Go((&abuser{soak: s, kind: kind, lot: s.draw()}).run)
	}
	var heaps []int
	for began, pause := time.Now(), min(max(length/150, 200*time.Millisecond), 5*time.Second); time.Since(began) < length*4/5; {
		heaps = append(heaps, s.uses()[0])
		s.rest(pause)
	}
	s.halt()
	callers.Wait()
	abusers.Wait()
	s.ctx = s.Context() // the rest is done without abuse
	s.transport.CloseIdleConnections()
	s.proxy.Close()
	then := s.uses()
	for range 600 {
		if then.within(there) {
			break
		}
		time.Sleep(100 * time.Millisecond)
		then = s.uses()
	}
	t.Logf("the server at first: %v; at the end: %v", there, then)
	if !then.within(there) {
		t.Error("it is not as it was")
	}
	if now := settled(s.transport); now[0] > here[0] || now[1] > here[1] {
		t.Errorf("%d goroutines and %d files here at the end, %d and %d at first", now[0], now[1], here[0], here[1])
	}
	s.compare()
	s.report(heaps, length)
	s.stop(syscall.SIGTERM)
}

// Servers are told to stop while clients of all kinds call and listen, and others half ask, or do not read. Over HTTP what runs and is soon
// done gets its answer; on stdio it is cancelled, and gets an error. Every other call fails, every connection ends, and so does the process,
// by itself.
func TestStopUnderLoad(t *testing.T) {
	for range 1 + min(lengthOf(t, "MCPWIRE_SOAK")/(30*time.Second), 20) {
		stopUnderLoad(t)
	}
}

func stopUnderLoad(t *testing.T) {
	shared.CheckLeaks(t)
	s := newSoak(t, 0, "-watch")
	s.start()
	clients := s.clients(32)
	var callers sync.WaitGroup
	for _, c := range clients {
		if c.way == "proxy" {
			c.way = "direct"
		}
		c.connect()
	}
	var held []*heldConn
	for _, act := range []func(*abuser){(*abuser).sendSlowly, (*abuser).readNothing, (*abuser).floodStreams, (*abuser).watchNothing} {
		a := &abuser{soak: s, kind: abuse{name: "idle"}, lot: s.draw(), web: s.web}
		act(a)
		held = append(held, a.held...)
	}
	for _, c := range clients {
		callers.Go(func() {
			if err := c.countTo(t.Context(), 5, 100); err != nil && (c.way == "direct" || failure(err) != "stopped") {
				c.fault("promised", "%s: %v", c.name, err)
			}
		})
		callers.Go(func() { _ = c.countTo(t.Context(), 1000, 100) })
		callers.Go(func() {
			for key := c.key(); c.call(t.Context(), key, "echo", key, nil) == nil; {
				key = c.key()
			}
		})
	}
	for _, c := range clients {
		shared.WaitFor(t, func() bool { return c.begun.Load() == 2 })
	}

	began := time.Now()
	s.over.Store(true)
	for _, c := range clients {
		if c.way == "stdio" {
			_ = c.child.Process.Signal(syscall.SIGTERM)
		}
	}
	server := s.cmd.Process
	late := time.AfterFunc(time.Minute, func() { _ = server.Kill() }) // it has five seconds, and a busy machine takes longer
	defer late.Stop()
	s.stop(syscall.SIGTERM)
	t.Logf("the server has stopped after %v", time.Since(began))
	callers.Wait()
	t.Logf("all calls have ended after %v", time.Since(began))
	for _, c := range held {
		if _, err := io.Copy(io.Discard, c); errors.Is(err, os.ErrDeadlineExceeded) {
			s.fault("open", "a connection to a server that has stopped")
		}
		c.Close()
	}
	for _, c := range clients {
		if c.leave(); c.way == "stdio" && c.child.ProcessState.ExitCode() != 0 {
			s.fault("exit", "%s: %v", c.name, c.child.ProcessState)
		}
	}
	s.transport.CloseIdleConnections()
	s.halt()
	s.compare()
	s.tell()
}

// settled returns what the server uses, once that no longer changes.
func (s *soak) settled() (u usage) {
	for same := 0; same < 5; same++ {
		time.Sleep(50 * time.Millisecond)
		now := s.uses()
		if !now.within(u) || !u.within(now) {
			same = 0
		}
		u = now
	}
	return u
}

// within tells whether there are no more goroutines and files than at first.
func (u usage) within(base usage) bool { return u[1] <= base[1] && u[2] <= base[2] }

func (u usage) String() string {
	return fmt.Sprintf("heap %.1f MB, %d goroutines, %d files", float64(u[0])/1e6, u[1], u[2])
}

// tell logs what was counted.
func (s *soak) tell() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		s.Logf("%7d %s", s.counts[what], what)
	}
}

// report logs the figures. In a few seconds memory does not settle.
func (s *soak) report(heaps []int, length time.Duration) {
	s.tell()
	var medians []int
	for third := range slices.Chunk(heaps, (len(heaps)+2)/3) {
		slices.Sort(third)
		medians = append(medians, third[len(third)/2])
	}
	s.Logf("bytes of heap in each third of the abuse: %d", medians)
	if length >= time.Minute && medians[2] > medians[1]*11/10 {
		s.Error("the heap grows")
	}
}
