package soak

import (
	"context"
	"errors"
	"fmt"
	"interop/shared"
	"maps"
	"math/rand/v2"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- Those who behave well ----

// soakClient is one of them: it makes one call after the other, and listens to a note of its own.
type soakClient struct {
	*soak
	*wire.Client
	name, way string // "direct", "proxy", "stdio", or "bridge": mcpwire bridge stands in front of the server
	rev       wire.Revision
	lot       *rand.Rand
	child     *exec.Cmd // of stdio, or the bridge: the last one
	level     string    // of logging, in the modern era

	dying      atomic.Bool // it has been killed
	subscribed atomic.Bool // the listener has heard something
	updated    chan struct{}
	quiet      func()       // ends the listener
	open       atomic.Int32 // connections
	begun      atomic.Int32 // calls whose first progress has come

	mine   sync.Mutex // guards the fields below
	keys   int
	last   string // key
	logged int
}

// clients returns them, not connected: half of them are behind the proxy, an eighth are on stdio, and an eighth behind a bridge.
func (s *soak) clients(n int) (list []*soakClient) {
	ways := []string{"direct", "proxy", "bridge", "proxy", "direct", "proxy", "stdio", "proxy"}
	for i := range n {
		list = append(list, s.client(ways[i%len(ways)], wire.Revisions[i%len(wire.Revisions)]))
	}
	return list
}

func (s *soak) client(way string, rev wire.Revision) *soakClient {
	return &soakClient{soak: s, way: way, rev: rev, lot: s.draw(), updated: make(chan struct{}, 1),
		name: fmt.Sprintf("%s-%s-%d", rev.Version, way, s.lots.Load())}
}

// connect begins as a new client. Behind the proxy it may fail: then the next call tries again.
func (c *soakClient) connect() {
	c.Client = &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Versions: []string{c.rev.Version}, Handler: wire.HandlerFunc(c.hear),
		Capabilities: map[string]any{"elicitation": struct{}{}}, ProbeTimeout: tooLong}
	addr := c.addr
	if c.way == "proxy" {
		addr = c.proxy.Addr().String()
	}
	url, isOld := "http://"+addr+"/mcp", !c.rev.Resume && !c.rev.Modern // the revision before Streamable HTTP
	if isOld {
		url = "http://" + addr + "/sse"
	}
	dials := []wire.Dialer{c.audited(wire.HTTPDialer{Client: c.web, URL: url, MaxMessage: maxMessage})}
	switch {
	case c.way == "stdio":
		dials[0] = c.audited(c.dialChild(func() *exec.Cmd { return recorded(c.record) }))
	case c.way == "bridge":
		dials[0] = c.audited(c.dialChild(func() *exec.Cmd { return program("bridge", url) }))
	case isOld && c.way == "direct": // it finds out what is there
		dials = append(dials, c.audited(wire.SSEDialer{Client: c.web, URL: url, MaxMessage: maxMessage}))
	case isOld:
		dials[0] = c.audited(wire.SSEDialer{Client: c.web, URL: url, MaxMessage: maxMessage})
	}
	ctx, cancel := context.WithTimeout(c.Context(), tooLong)
	defer cancel()
	life, _ := c.state()
	if err := c.Connect(ctx, dials...); err != nil && !c.mayFail(err, life) {
		c.fault("not connected", "%s: %v", c.name, err)
	}
	ctx, stop := context.WithCancel(c.Context())
	var listener sync.WaitGroup
	listener.Go(func() { c.listen(ctx) })
	c.quiet = func() { stop(); listener.Wait(); c.subscribed.Store(false) }
}

// dialChild returns what starts a child for each connection, until the server has been told to stop.
func (c *soakClient) dialChild(command func() *exec.Cmd) wire.Dialer {
	return wire.DialerFunc(func(ctx context.Context) (wire.Conn, error) {
		if c.over.Load() {
			return nil, wire.ErrClosed
		}
		child := command()
		c.child = child
		return wire.CommandDialer{Command: func() *exec.Cmd { return child }, Grace: 5 * time.Second, MaxLine: maxMessage}.Dial(ctx)
	})
}

func (c *soakClient) leave() {
	c.quiet()
	c.Close()
}

// behave does one thing after the other.
func (c *soakClient) behave() {
	for c.rest(time.Duration(c.lot.Int64N(int64(200 * time.Millisecond)))) {
		n := c.lot.IntN(200)
		for _, act := range soakActs {
			if n -= act.share; n < 0 {
				act.do(c)
				break
			}
		}
	}
	c.leave()
}

// soakActs are what a client does, and how often.
var soakActs = []struct {
	share int // of 200
	do    func(*soakClient)
}{
	{90, (*soakClient).echo},
	{10, (*soakClient).echoAtOnce},
	{40, (*soakClient).countUp},
	{15, (*soakClient).greet},
	{15, (*soakClient).note},
	{10, (*soakClient).log},
	{15, (*soakClient).cancel},
	{4, (*soakClient).renew},
	{1, (*soakClient).kill},
}

func (c *soakClient) echo() {
	key, n := c.key(), 1
	if c.lot.IntN(10) == 0 {
		n = 1 + c.lot.IntN(10_000)
	}
	_ = c.call(c.Context(), key, "echo", strings.Repeat(key, n), map[string]any{"repeat": n})
}

func (c *soakClient) echoOnce() {
	key := c.key()
	_ = c.call(c.Context(), key, "echo", key, nil)
}

func (c *soakClient) echoAtOnce() {
	var all sync.WaitGroup
	for range 5 {
		all.Go(c.echoOnce)
	}
	all.Wait()
}

func (c *soakClient) countUp() { _ = c.countTo(c.Context(), 1+c.lot.IntN(40), c.lot.IntN(20)) }

// countTo makes a call with progress: all of it comes, once and in order, or the call fails.
func (c *soakClient) countTo(ctx context.Context, n, ms int) error {
	key := c.key()
	var seen atomic.Int32 // it may rise once more when a call that was cancelled has returned
	report := func(p wire.ProgressParams) {
		step := seen.Add(1)
		if p.Progress != float64(step) {
			c.fault("wrong", "%s: progress %v, want step %d", key, p.Progress, step)
		}
		if step == 1 {
			c.begun.Add(1)
		}
	}
	err := c.callWith(ctx, report, key, "count", fmt.Sprintf("counted to %d", n), map[string]any{"n": n, "delayMs": ms})
	steps := int(seen.Load())
	if err == nil && steps != n {
		c.fault("wrong", "%s: %d steps of %d", key, steps, n)
	}
	if err != nil && ctx.Err() == nil && c.way == "proxy" && c.rev.Resume && steps > 0 {
		c.fault("not resumed", "%s: after step %d of %d: %v", key, steps, n, err)
	}
	return err
}

func (c *soakClient) greet() {
	if key := c.key(); c.rev.Elicitation {
		_ = c.call(c.Context(), key, "ask", "Hello, "+key, nil)
	}
}

// note changes the client's note. It hears of that, if it has heard of the subscription's before.
func (c *soakClient) note() {
	select {
	case <-c.updated:
	default:
	}
	sure, key := c.subscribed.Load() && c.way != "proxy", c.key()
	if c.call(c.Context(), key, "set-note", "Noted as "+"note:///"+c.name, map[string]any{"name": c.name}) != nil {
		return
	}
	wait := 300 * time.Millisecond
	if sure {
		wait = tooLong
	}
	select {
	case <-c.updated:
		c.subscribed.Store(true)
		c.count("updates heard")
	case <-time.After(wait):
		if sure {
			c.fault("no update", "%s", key)
		}
		c.count("updates not heard")
	}
}

// listen subscribes to the note, again and again if it must.
func (c *soakClient) listen(ctx context.Context) {
	for {
		life, _ := c.state()
		err := c.Listen(ctx, wire.ListenFilter{ResourceSubscriptions: []string{"note:///" + c.name}})
		c.subscribed.Store(false)
		if !sleep(ctx, 50*time.Millisecond) {
			return
		}
		if !c.mayFail(err, life) {
			c.fault("subscription lost", "%s: %v", c.name, err)
		}
		c.count("subscriptions lost")
	}
}

// log has the steps of a count logged.
func (c *soakClient) log() {
	if !c.rev.Modern && c.Call(c.Context(), "logging/setLevel", map[string]any{"level": "debug"}, nil) != nil {
		return
	}
	c.mine.Lock()
	c.logged, c.level = 0, "debug"
	c.mine.Unlock()
	err := c.countTo(c.Context(), 5, 1)
	c.mine.Lock()
	if c.level = ""; err == nil && c.logged != 5 && c.way != "proxy" {
		c.fault("not logged", "%s: %d steps of 5", c.name, c.logged)
	}
	c.mine.Unlock()
	if !c.rev.Modern {
		_ = c.Call(c.Context(), "logging/setLevel", map[string]any{"level": "error"}, nil)
	}
}

func (c *soakClient) cancel() {
	ctx, cancel := context.WithCancel(c.Context()) // a deadline may be over for a socket a little before it is for ctx
	defer time.AfterFunc(time.Duration(c.lot.Int64N(int64(200*time.Millisecond))), cancel).Stop()
	_ = c.countTo(ctx, 100, 10)
	cancel()
}

func (c *soakClient) renew() {
	c.leave()
	c.connect()
}

// kill kills the server, if it is the client's own, or the bridge, in the middle of a call.
func (c *soakClient) kill() {
	if c.way != "stdio" && c.way != "bridge" {
		return
	}
	c.dying.Store(true)
	var running sync.WaitGroup
	running.Go(func() { _ = c.countTo(c.Context(), 20, 20) })
	time.Sleep(time.Duration(c.lot.Int64N(int64(300 * time.Millisecond))))
	_ = c.child.Process.Kill()
	running.Wait()
	c.quiet()
	c.dying.Store(false)
	c.renew()
}

// ---- Their calls ----

// key names a call.
func (c *soakClient) key() string {
	c.mine.Lock()
	defer c.mine.Unlock()
	c.keys++
	c.last = fmt.Sprintf("%s-%d", c.name, c.keys)
	return c.last
}

// hear takes in what the server says, and answers what it asks.
func (c *soakClient) hear(_ context.Context, x *wire.Exchange) (any, error) {
	c.mine.Lock()
	defer c.mine.Unlock()
	switch x.Request.Method {
	case "notifications/message": // a call that was cancelled may not know it yet
		var p struct {
			Data string `json:"data"`
		}
		if err := x.Bind(&p); err != nil {
			c.fault("wrong", "%v: %s", err, x.Request.Params)
		}
		if strings.HasSuffix(p.Data, " of 5") {
			c.logged++
		}
	case "notifications/resources/updated":
		select {
		case c.updated <- struct{}{}:
		default:
		}
	case "elicitation/create":
		return map[string]any{"action": "accept", "content": map[string]any{"name": c.last}}, nil
	}
	return nil, nil
}

// call makes a call. It ends in the right answer, or as it may.
func (c *soakClient) call(given context.Context, key, tool, want string, args map[string]any) error {
	return c.callWith(given, func(wire.ProgressParams) {}, key, tool, want, args)
}

func (c *soakClient) callWith(given context.Context, report func(wire.ProgressParams), key, tool, want string, args map[string]any) error {
	ctx, cancel := context.WithTimeout(given, 2*tooLong)
	defer cancel()
	meta := map[string]any{}
	c.mine.Lock()
	if c.rev.Modern && c.level != "" {
		meta["io.modelcontextprotocol/logLevel"] = c.level
	}
	c.mine.Unlock()
	all := map[string]any{"key": key, "text": key}
	maps.Copy(all, args)
	var result struct {
		Content []struct{ Text string }
		IsError bool
	}
	began := time.Now()
	life, over := c.state()
	err := c.CallWithProgress(ctx, "tools/call", map[string]any{"name": tool, "arguments": all, "_meta": meta}, &result, report)
	c.count("calls sent")
	switch {
	case err == nil && !result.IsError && len(result.Content) == 1 && result.Content[0].Text == want:
		c.count("calls answered")
		return nil
	case err == nil:
		c.fault("wrong", "%s: %.200v, not %.200s", key, result, want)
		err = errors.New("wrong")
	case given.Err() != nil:
		c.count("calls cancelled")
	case c.mayFail(err, life):
		c.count("calls failed, " + c.way + ": " + failure(err))
		if _, now := c.state(); life > 0 && len(now) > len(over) && time.Since(now[len(over)]) > soonFailed {
			c.fault("late", "%s: %v after its server had ended: %v", key, time.Since(now[len(over)]), err)
		}
	default:
		c.fault("lost", "%s: after %v: %v", key, time.Since(began), err)
	}
	return err
}

const (
	soonFailed = 5 * time.Second  // after its server has ended
	tooLong    = 30 * time.Second // for any call
)

// mayFail tells whether an error is one that there was a reason for, such as that the server has ended since that life of it, or was not there.
func (c *soakClient) mayFail(err error, life int) bool {
	kind := failure(err)
	now, _ := c.state()
	hasEnded := c.over.Load() || life == 0 || life != now
	return kind != "" && (hasEnded || kind != "stopped" && (c.way == "proxy" || c.dying.Load()))
}

// audited counts the answers that come a second time, or to nothing.
func (c *soakClient) audited(dial wire.Dialer) wire.Dialer {
	dial = shared.Counted(dial, &c.open)
	return wire.DialerFunc(func(ctx context.Context) (wire.Conn, error) {
		conn, err := dial.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &auditedConn{Conn: conn, soak: c.soak, asked: map[wire.ID]bool{}}, nil
	})
}

type auditedConn struct {
	wire.Conn
	*soak

	mine  sync.Mutex // guards the field below
	asked map[wire.ID]bool
}

func (c *auditedConn) Write(ctx context.Context, p wire.Payload) error {
	c.mine.Lock()
	for _, m := range p.Messages {
		if m.Kind() == wire.Request {
			c.asked[m.ID] = true
		}
	}
	c.mine.Unlock()
	return c.Conn.Write(ctx, p)
}

func (c *auditedConn) Read() (wire.Payload, error) {
	p, err := c.Conn.Read()
	c.mine.Lock()
	defer c.mine.Unlock()
	for _, m := range p.Messages {
		if m.Kind() == wire.Response && m.ID != (wire.ID{}) {
			if !c.asked[m.ID] {
				c.fault("answered twice", "%s", p.Append(nil))
			}
			delete(c.asked, m.ID)
		}
	}
	return p, err
}
