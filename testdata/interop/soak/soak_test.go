// Package soak lets clients of all revisions and transports call one server for long, while their streams are cut, their sessions end, and the
// server is killed and started again. Both ends are package wire, the copy of the library; the server is a process of its own (server).
//
//	go run ./copywire                                                  in testdata/interop, first
//	MCPWIRE_SOAK=15m go test -race -count=1 -timeout 1h -v ./soak      without MCPWIRE_SOAK: 5 s
//
// With -race the server has the race detector, too, and ends at the first race.
package soak

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"interop/shared"
	"interop/wire" // go run ./copywire
)

var program string // server

func TestMain(m *testing.M) {
	os.Exit(shared.Main(m, "..", func(dir string) error {
		program = filepath.Join(dir, "server")
		return shared.Go(".", "build", "-race="+strconv.FormatBool(shared.HasRaceDetector()), "-buildvcs=false", "-o", program, "./server")
	}))
}

// soak is one server, which has several lives, and what was counted.
type soak struct {
	*testing.T
	addr, record string
	cmd          *exec.Cmd
	asks         io.Writer     // to be told what the server uses
	tells        *bufio.Reader // what it uses
	ctx          context.Context
	life         atomic.Int64 // odd: the server listens
	keys         atomic.Int64
	born         int64 // the keys there were when the server began its life

	mu     sync.Mutex // guards counts
	counts map[string]int
}

// TestSoak ends well if no call was lost, no message came twice or out of order, no call ran twice, and client and server are in the end what
// they were at first. What is allowed to fail: a call while its server dies, and one that was cut off in a revision that cannot resume.
func TestSoak(t *testing.T) {
	length, err := time.ParseDuration(cmp.Or(os.Getenv("MCPWIRE_SOAK"), "5s"))
	if err != nil {
		t.Fatal(err)
	}
	checkLeaks(t)
	ctx, halt := context.WithCancel(t.Context())
	s := &soak{T: t, record: filepath.Join(t.TempDir(), "record"), addr: "127.0.0.1:0", ctx: ctx,
		counts: map[string]int{"FAULT: lost": 0, "FAULT: doubled": 0, "FAULT: wrong": 0}}
	s.start()
	defer func() { _ = s.cmd.Process.Kill() }()
	clients := s.clients(48)
	for _, c := range clients { // both processes get to know what they do
		c.connect()
		c.count(2, 0, false)
		c.leave()
	}
	base, here := s.settled([3]int{}, 0), openFiles()

	var running sync.WaitGroup
	for _, c := range clients {
		running.Go(c.behave)
	}
	pause := min(max(length/6, time.Second), time.Minute)
	for began := time.Now(); time.Since(began) < length-pause; {
		time.Sleep(pause/2 + rand.N(pause))
		s.stop([]os.Signal{syscall.SIGKILL, syscall.SIGTERM}[rand.IntN(2)])
		time.Sleep(rand.N(time.Second))
		s.start()
	}
	time.Sleep(pause)
	halt()
	running.Wait()

	// A stream that has ended is forgotten, with all it has kept; but for five minutes its place in a list stays, if its session
	// ends before. That is 300 bytes for each call of this life: a stream that keeps its events would be ten times that.
	more := 2<<20 + 300*int(s.keys.Load()-s.born)
	end := s.settled(base, more)
	t.Logf("bytes of heap, goroutines and descriptors of the server: %d at first, %d in the end", base, end)
	if end[0] > base[0]+more || end[1] > base[1] || end[2] > base[2] {
		t.Error("the server is not as it was")
	}
	waitFor(t, func() bool { return openFiles() <= here })
	time.Sleep(11 * time.Second) // the sessions of clients that have vanished end when they were idle for ten
	s.fillSessions()
	s.stop(syscall.SIGTERM)
	s.checkRecord()
	for _, what := range slices.Sorted(maps.Keys(s.counts)) {
		t.Logf("%7d %s", s.counts[what], what)
	}
}

func (s *soak) note(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.counts[what]++
}

func (s *soak) fault(what, format string, args ...any) {
	s.note("FAULT: " + what)
	s.Errorf(what+": "+format, args...)
}

// ---- The server ----

// start returns when the server listens, at the same address as before.
func (s *soak) start() {
	s.cmd = exec.Command(program, s.addr)
	s.cmd.Env = append(os.Environ(), "MCPWIRE_RECORD="+s.record, "GORACE=halt_on_error=1 atexit_sleep_ms=0")
	s.cmd.Stderr = os.Stderr
	in, err := s.cmd.StdinPipe()
	out, err2 := s.cmd.StdoutPipe()
	if err := errors.Join(err, err2, s.cmd.Start()); err != nil {
		s.Fatal(err)
	}
	s.asks, s.tells = in, bufio.NewReader(out)
	addr := ""
	if _, err := fmt.Fscanln(s.tells, &addr); err != nil {
		s.Fatal("the server does not listen: ", err)
	}
	if s.life.Load() == 0 {
		s.addr = addr
	}
	s.born = s.keys.Load()
	s.life.Add(1)
}

func (s *soak) stop(how os.Signal) {
	s.life.Add(1)
	s.note("server: " + how.String())
	_ = s.cmd.Process.Signal(how)
	late := time.AfterFunc(15*time.Second, func() {
		s.fault("not stopped", "%v", how)
		_ = s.cmd.Process.Kill()
	})
	if err := s.cmd.Wait(); err != nil && how != syscall.SIGKILL && late.Stop() {
		s.Errorf("after %v: %v", how, err)
	}
	late.Stop()
}

// settled returns what the server uses: once that is what is wanted, with more bytes of heap, or otherwise after a while.
func (s *soak) settled(wanted [3]int, more int) (u [3]int) {
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		before := u
		if _, err := fmt.Fprintln(s.asks); err != nil {
			s.Fatal(err)
		}
		if _, err := fmt.Fscanln(s.tells, &u[0], &u[1], &u[2]); err != nil {
			s.Fatal(err)
		}
		isDone := u[1] <= wanted[1] && u[2] <= wanted[2] && u[0] <= wanted[0]+more
		if isDone || wanted == [3]int{} && before[1] == u[1] && before[2] == u[2] {
			return u
		}
	}
	return u
}

// fillSessions opens as many sessions as there may be: that succeeds if none is left.
func (s *soak) fillSessions() {
	const hello = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	web := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	for i := range 500 {
		response, err := web.Post("http://"+s.addr+"/mcp", "application/json", strings.NewReader(hello))
		if err != nil {
			s.Fatal(err)
		}
		response.Body.Close()
		if response.StatusCode != http.StatusOK {
			s.Errorf("%d sessions are left", 500-i)
			return
		}
	}
}

// checkRecord finds the calls that ran twice.
func (s *soak) checkRecord() {
	text, err := os.ReadFile(s.record)
	if err != nil {
		s.Fatal(err)
	}
	ran := map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if ran[line] {
			s.fault("doubled", "%s has run twice", strings.TrimSpace(line))
		}
		ran[line] = true
	}
	s.Logf("%d calls ran", len(ran))
}

// ---- The clients ----

// client makes one call after another.
type client struct {
	*soak
	*wire.Client
	version, way string // "http", "sse" or "stdio"
	link         *link
	child        atomic.Int64 // of stdio: its process
	lastCut      atomic.Int64 // when a stream was cut off, or the child killed
}

// link is the way of one wire.Client to the server: an http.RoundTripper that cuts streams off.
type link struct {
	*client
	transport   *http.Transport
	hasVanished atomic.Bool // the client does not even say goodbye
}

func (s *soak) clients(n int) (list []*client) {
	for i := range n {
		c := &client{soak: s, version: wire.Revisions[i%len(wire.Revisions)].Version, way: "http"}
		if i%7 == 3 {
			c.way = "stdio"
		} else if c.version == "2024-11-05" {
			c.way = "sse"
		}
		list = append(list, c)
	}
	return list
}

func (c *client) connect() {
	c.link = &link{client: c, transport: &http.Transport{IdleConnTimeout: time.Second}}
	c.Client = &wire.Client{Info: wire.Implementation{Name: "soak", Version: "1"}, Versions: []string{c.version},
		Handlers: map[string]wire.HandlerFunc{"elicitation/create": func(_ context.Context, x *wire.Exchange) (any, error) {
			var question wire.ElicitParams
			err := x.Bind(&question)
			return wire.ElicitResult{Action: "accept", Content: json.RawMessage(strconv.Quote(question.Message))}, err
		}}}
	var dial wire.Dialer
	web := &http.Client{Transport: c.link}
	switch c.way {
	case "http":
		dial = &wire.HTTPDialer{URL: "http://" + c.addr + "/mcp", Client: web}
	case "sse":
		dial = wire.SSEDialer{URL: "http://" + c.addr + "/sse", Client: web}
	default:
		dial = wire.DialerFunc(func(ctx context.Context) (wire.Conn, error) {
			child := exec.Command(program)
			child.Env = append(os.Environ(), "MCPWIRE_RECORD="+c.record)
			conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return child }}.Dial(ctx)
			if err == nil {
				c.child.Store(int64(child.Process.Pid))
			}
			return conn, err
		})
	}
	life, began := c.life.Load(), time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := c.Connect(ctx, auditDialer{dial, c}); err != nil && !c.mayFail(life, began) {
		c.fault("lost", "%s over %s does not connect: %v", c.version, c.way, err)
	}
}

func (c *client) leave() {
	c.Close()
	c.link.transport.CloseIdleConnections()
}

// mayFail reports whether something has happened since then after which a call may fail.
func (c *client) mayFail(life int64, began time.Time) bool {
	wasCut := c.lastCut.Load() > began.Add(-time.Second).UnixNano() // it may have been noticed later, on a slow machine
	if c.way == "stdio" {
		return wasCut
	}
	canResume := c.way == "http" && c.version != "2026-07-28"
	return life%2 == 0 || c.life.Load() != life || !canResume && wasCut
}

func (c *client) behave() {
	c.connect()
	for c.ctx.Err() == nil {
		var calls sync.WaitGroup
		for range 1 + rand.IntN(4) {
			calls.Go(func() {
				switch lot := rand.IntN(10); {
				case lot == 0:
					c.cancelled()
				case lot <= 2 && c.version >= "2025-06-18":
					c.ask()
				default:
					c.count(rand.IntN(40), rand.IntN(4), rand.IntN(20) == 0)
				}
			})
		}
		calls.Wait()
		if rand.IntN(8) == 0 { // leaves in the middle of a call, and begins as a new client
			calls.Go(c.cancelled)
			time.Sleep(rand.N(20 * time.Millisecond))
			switch {
			case c.way == "stdio" && rand.IntN(2) == 0:
				c.lastCut.Store(time.Now().UnixNano())
				if pid := int(c.child.Swap(0)); pid > 0 {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					c.note("kills of a child")
				}
			case rand.IntN(3) == 0:
				c.link.hasVanished.Store(true)
				c.note("clients that vanish")
			}
			c.leave()
			calls.Wait()
			c.connect()
		}
	}
	c.leave()
}

// call returns the text of a result. A failure that must not be is counted here.
func (c *client) call(ctx context.Context, tool, key string, arguments map[string]any, report func(wire.ProgressParams)) (text string, ok bool) {
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	life, began := c.life.Load(), time.Now()
	arguments["key"] = key
	var result wire.ToolResult
	err := c.CallWithProgress(ctx, "tools/call", wire.CallToolParams{Name: tool, Arguments: arguments}, &result, report)
	c.note("calls of " + tool)
	switch {
	case err == nil && !result.IsError:
		return result.Text(), true
	case errors.Is(ctx.Err(), context.Canceled), errors.Is(err, wire.ErrClosed), c.link.hasVanished.Load():
		c.note("calls that were cancelled")
	case c.mayFail(life, began) && ctx.Err() == nil:
		c.note("calls that failed with their server or connection")
		time.Sleep(50 * time.Millisecond)
	default:
		c.fault("lost", "%s of %s over %s: %v %v", key, c.version, c.way, err, result.Content)
	}
	return "", false
}

func (c *client) key() string { return strconv.FormatInt(c.keys.Add(1), 10) }

// count finds each step once, in its order, and then the answer.
func (c *client) count(n, ms int, poll bool) {
	key, next := c.key(), 1
	text, ok := c.call(context.Background(), "count", key, map[string]any{"n": n, "ms": ms, "poll": poll}, func(p wire.ProgressParams) {
		if p.Progress != float64(next) {
			c.fault("wrong", "%s of %s over %s: step %v comes for %d of %d", key, c.version, c.way, p.Progress, next, n)
		}
		next++
	})
	if ok && (next != n+1 || text != fmt.Sprintf("%s: counted to %d", key, n)) {
		c.fault("wrong", "%s of %s over %s: %d of %d steps, and %q", key, c.version, c.way, next-1, n, text)
	}
}

func (c *client) ask() {
	key := c.key()
	if text, ok := c.call(context.Background(), "ask", key, map[string]any{}, nil); ok && text != key+": hello, "+strconv.Quote(key) {
		c.fault("wrong", "%s: %q", key, text)
	}
}

// cancelled begins a call that would take a minute.
func (c *client) cancelled() {
	ctx, cancel := context.WithCancel(context.Background())
	defer time.AfterFunc(rand.N(50*time.Millisecond), cancel).Stop()
	c.call(ctx, "count", c.key(), map[string]any{"n": 1000, "ms": 60}, func(wire.ProgressParams) {})
	cancel()
}

// ---- What happens on the way ----

var errCut = errors.New("the test cuts the stream off")

// RoundTrip cuts every other stream off, somewhere behind its first event.
func (c *link) RoundTrip(r *http.Request) (*http.Response, error) {
	if c.hasVanished.Load() {
		return nil, errCut
	}
	if r.Header["Last-Event-Id"] != nil {
		c.note("streams resumed")
	}
	response, err := c.transport.RoundTrip(r)
	if err == nil && response.Header.Get("Content-Type") == "text/event-stream" && rand.IntN(2) == 0 {
		response.Body = &cutBody{ReadCloser: response.Body, left: rand.IntN(4000), client: c.client}
	}
	return response, err
}

type cutBody struct {
	io.ReadCloser
	left     int // bytes after the first event
	hasEvent bool
	*client
}

func (b *cutBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), 1+rand.IntN(1000))])
	switch isEvent := bytes.Contains(p[:n], []byte("\n\n")) && bytes.Contains(p[:n], []byte("id:")); {
	case err == nil && b.left < 0:
		b.lastCut.Store(time.Now().UnixNano())
		b.note("cuts")
		b.ReadCloser.Close()
		return 0, errCut
	case b.hasEvent || b.way == "sse" || b.version == "2026-07-28":
		b.left -= n
	case isEvent: // what comes after it can be resumed
		b.hasEvent = true
	}
	return n, err
}

// auditDialer finds responses that come twice, or to nothing.
type auditDialer struct {
	wire.Dialer
	*client
}

func (d auditDialer) Dial(ctx context.Context) (wire.Conn, error) {
	conn, err := d.Dialer.Dial(ctx)
	return &auditConn{Conn: conn, client: d.client, asked: map[wire.ID]bool{}}, err
}

type auditConn struct {
	wire.Conn
	*client
	mu    sync.Mutex // guards asked
	asked map[wire.ID]bool
}

func (a *auditConn) Write(ctx context.Context, p wire.Payload) error {
	a.mu.Lock()
	for _, m := range p.Messages {
		if m.Kind() == wire.KindRequest {
			a.asked[m.ID] = true
		}
	}
	a.mu.Unlock()
	return a.Conn.Write(ctx, p)
}

func (a *auditConn) Read() (wire.Payload, error) {
	p, err := a.Conn.Read()
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, m := range p.Messages {
		if m.Kind() != wire.KindResponse || m.ID == (wire.ID{}) {
			continue
		}
		if !a.asked[m.ID] {
			a.fault("doubled", "%s", p.Append(nil))
		}
		delete(a.asked, m.ID)
	}
	return p, err
}

func (a *auditConn) Close() error { return a.Conn.Close() }

// ---- What is left over ----

// waitFor waits for a condition that another goroutine brings about.
func waitFor(t *testing.T, condition func() bool) {
	t.Helper()
	for range 12_000 { // a minute
		if condition() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not happen")
}

// checkLeaks fails the test if there are more goroutines at its end than now.
func checkLeaks(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 500 {
			if runtime.NumGoroutine() <= base {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d at first\n%s", runtime.NumGoroutine(), base, stacks[:runtime.Stack(stacks, true)])
	})
}

// openFiles counts this process's descriptors, where that can be done.
func openFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}
