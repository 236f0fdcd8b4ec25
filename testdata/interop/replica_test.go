package interop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"interop/wire" // go run ./copywire
)

// ---- Two replicas, and nginx before them ----

// replicated are two replicas behind nginx, as replicas.conf has it. Its own URLs are those of nginx.
type replicated struct {
	daemon
	a, b *process
}

const (
	publicName    = "mcp.example.com" // under which clients know the server
	legacyVersion = "2025-11-25"
	modernVersion = "2026-07-28"
)

func replicate(t *testing.T, flags ...string) *replicated {
	t.Helper()
	find(t, "nginx", "/usr/sbin/nginx") // or there is no need to start anything
	c := &replicated{a: replica(t, "a", "127.0.0.1:0", flags...), b: replica(t, "b", "127.0.0.1:0", flags...)}
	for _, p := range []*process{c.a, c.b} {
		if p.base == "" {
			t.Fatalf("a replica does not listen: %q", &p.output)
		}
	}
	dir := t.TempDir()
	t.Cleanup(func() { // after nginx has ended
		text, _ := os.ReadFile(filepath.Join(dir, "access.log"))
		t.Logf("access.log\n%s", text)
	})
	c.daemon = nginx(t, dir, "replicas.conf", "127.0.0.1:8080", "127.0.0.1:8081", c.a.addr(), "127.0.0.1:8082", c.b.addr())
	return c
}

// replica starts one. If the address has been taken it has no base.
func replica(t *testing.T, name, addr string, flags ...string) *process {
	t.Helper()
	return launch(t, addr, append([]string{"-replica", name, "-state-key", "known to both", "-allow-host", publicName}, flags...)...)
}

func (p *process) addr() string { return strings.TrimPrefix(p.base, "http://") }

// Every call has a name of its own in its _meta, so that the traces tell where it has been.
const callKey = "com.example/call"

var callName = regexp.MustCompile(`"` + regexp.QuoteMeta(callKey) + `":"([^"]+)"`)

// calls returns how often each call has come to a replica. A question makes two requests of a modern call.
func (p *process) calls() map[string]int {
	count := map[string]int{}
	for _, m := range callName.FindAllStringSubmatch(p.output.String(), -1) {
		count[m[1]]++
	}
	return count
}

// ---- Clients ----

// replicaClient is a client of ours, or the Go SDK's, under the public name of the server.
type replicaClient struct {
	*guest
	name string
	home string // the replica where its session is at first; "": it has none
	call func(ctx context.Context, s step) (text string, steps int, err error)
}

// step is one call.
type step struct {
	call  string // its name in the traces
	tool  string
	args  map[string]any
	begun chan bool // is told of each progress, if there is room; nil: nobody is
}

// at returns the name of the replica where the session is, that was used last.
func (c *replicaClient) at() (replica string) {
	c.hear(func() { replica, _, _ = strings.Cut(c.session, "-") })
	return replica
}

// ours connects a client of ours: modern, or with a session on the replica home.
func (r *replicated) ours(t *testing.T, name, home string) *replicaClient {
	t.Helper()
	return r.connect(t, name, home, func(g *guest, version string) (*replicaClient, error) {
		c := &wire.Client{Info: wire.Implementation{Name: name, Version: "1"}, Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{
			"elicitation/create": func(context.Context, *wire.Exchange) (any, error) {
				return wire.ElicitResult{Action: "accept", Content: json.RawMessage(`{"name":"Ada"}`)}, nil
			}}}
		err := c.Connect(t.Context(), &wire.HTTPDialer{URL: r.mcp, Client: &http.Client{Transport: g}})
		if err == nil {
			err = c.Call(t.Context(), "tools/list", nil, nil) // so that it knows which arguments belong into the header
		}
		t.Cleanup(func() { c.Close() })
		return &replicaClient{g, name, home, func(ctx context.Context, s step) (string, int, error) {
			var result wire.ToolResult
			steps := 0
			params := map[string]any{"name": s.tool, "arguments": s.args, "_meta": map[string]any{callKey: s.call}}
			err := c.CallWithProgress(ctx, "tools/call", params, &result, func(p wire.ProgressParams) {
				steps++
				select {
				case s.begun <- true:
				default:
				}
			})
			return result.Text(), steps, err
		}}, err
	})
}

// sdk connects the Go SDK's client, in 2026-07-28 or, with a replica's name, with a session there.
func (r *replicated) sdk(t *testing.T, name, home string) *replicaClient {
	t.Helper()
	return r.connect(t, name, home, func(g *guest, version string) (*replicaClient, error) {
		c, err := connectSDK(t, g, version)
		if err == nil {
			_, err = c.tools() // so that it knows which arguments belong into the header
		}
		return &replicaClient{g, name, home, func(ctx context.Context, s step) (string, int, error) {
			result, err := c.CallTool(ctx, &mcp.CallToolParams{Meta: mcp.Meta{callKey: s.call}, Name: s.tool, Arguments: s.args})
			if err != nil || len(result.Content) != 1 {
				return fmt.Sprintf("%+v", result), 0, err
			}
			return result.Content[0].(*mcp.TextContent).Text, -1, nil
		}}, err
	})
}

// connect connects a client: modern, or again and again until it has a session on the replica home.
func (r *replicated) connect(t *testing.T, name, home string, dial func(g *guest, version string) (*replicaClient, error)) *replicaClient {
	t.Helper()
	version := modernVersion
	if home != "" {
		version = legacyVersion
	}
	for range 10 {
		g := newGuest(t, target{r.mcp}, 0)
		g.host = publicName
		c, err := dial(g, version)
		if err != nil {
			t.Fatal(err)
		}
		if c.at() == home {
			return c
		}
	}
	t.Fatalf("no session of %s comes to %q", name, home)
	return nil
}

// work is the n-th of the calls that a client does: the tool, its arguments and what it answers.
func work(n int, name string) (s step, want string) {
	s = step{call: fmt.Sprintf("%s-%d", name, n)}
	switch n % 5 {
	case 0:
		s.tool, s.args, want = "echo", map[string]any{"text": s.call}, s.call
	case 1:
		s.tool, s.args = "get-weather", map[string]any{"city": s.call, "unit": "fahrenheit"}
		want = "Current temperature in " + s.call + " is 64°F"
	case 2:
		s.tool, s.args, want = "count", map[string]any{"n": countTo}, fmt.Sprintf("counted to %d", countTo)
	case 3:
		s.tool, s.args, want = "ask", map[string]any{}, "Hello, Ada"
	case 4:
		s.tool, s.args, want = "echo", map[string]any{"text": "añ€😀", "repeat": 5000}, strings.Repeat("añ€😀", 5000)
	}
	return s, want
}

const countTo = 7

// works does some of that, which has to succeed.
func (c *replicaClient) works(t *testing.T, from, to int) {
	t.Helper()
	for n := from; n < to; n++ {
		s, want := work(n, c.name)
		text, steps, err := c.call(t.Context(), s)
		if err != nil || text != want || s.tool == "count" && steps >= 0 && steps != countTo {
			t.Errorf("%s %s: got %.200q, %d steps, %v, want %.200q", s.call, s.tool, text, steps, err, want)
		}
	}
}

// ---- The tests ----

// TestReplica: two replicas are one server to their clients, as long as both live, and for all but those that lose their session when one
// does not.
func TestReplica(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"calls", replicaCalls},
		{"HTTP+SSE", replicaSSE},
		{"SIGTERM", func(t *testing.T) { replicaStop(t, syscall.SIGTERM) }},
		{"SIGKILL", func(t *testing.T) { replicaStop(t, os.Kill) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
}

// replicaCalls has hundreds of calls of ten clients at once. Each comes once; those of a session come to its replica, and those of a modern
// client to both, so that questions of one replica are answered to the other.
func replicaCalls(t *testing.T) {
	r := replicate(t)
	clients := []*replicaClient{r.sdk(t, "modern-sdk-1", ""), r.sdk(t, "modern-sdk-2", "")}
	for _, name := range []string{"modern-1", "modern-2", "modern-3", "modern-4"} {
		clients = append(clients, r.ours(t, name, ""))
	}
	for _, home := range []string{"a", "b"} {
		clients = append(clients, r.ours(t, "legacy-"+home, home), r.sdk(t, "legacy-sdk-"+home, home))
	}
	const each = 50
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() { c.works(t, 0, each) })
	}
	all.Wait()

	want := map[string]int{} // requests of each call
	for _, c := range clients {
		for n := range each {
			s, _ := work(n, c.name)
			want[s.call] = 1
			if s.tool == "ask" && c.home == "" {
				want[s.call] = 2
			}
		}
	}
	var a, b map[string]int
	eventually(t, "each call is in the traces as often as it has to", func() bool { // which come through pipes, and may be late
		a, b = r.a.calls(), r.b.calls()
		both := maps.Clone(a)
		for call, n := range b {
			both[call] += n
		}
		return maps.Equal(both, want)
	})
	apart := 0
	for _, c := range clients {
		onA, onB := 0, 0
		for n := range each {
			s, _ := work(n, c.name)
			onA, onB = onA+a[s.call], onB+b[s.call]
			if s.tool == "ask" && a[s.call] == 1 && b[s.call] == 1 {
				apart++
			}
		}
		switch {
		case c.home == "" && (onA == 0 || onB == 0), c.home == "a" && onB > 0, c.home == "b" && onA > 0:
			t.Errorf("%s, at home on %q: %d calls came to a, %d to b", c.name, c.home, onA, onB)
		}
	}
	if t.Logf("%d questions were answered to the other replica", apart); apart == 0 {
		t.Error("none was")
	}
	for _, p := range []*process{r.a, r.b} {
		if trace := p.output.String(); regexp.MustCompile(`(?m)^[45]\d\d$`).MatchString(trace) {
			t.Errorf("%v has refused something", p.cmd)
		}
	}
}

// replicaSSE: the transport of 2024-11-05 has its session in the query.
func replicaSSE(t *testing.T) {
	r := replicate(t)
	seen := map[string]bool{}
	for range 10 {
		v, stream := converse(t, r.daemon)
		_, id, _ := strings.Cut(v.url, "/sse?session=")
		seen[id[:2]] = true
		for range 3 {
			v.post(t, "tools/call", `{"name":"count","arguments":{"n":3}}`)
			stream.next(t, `"counted to 3"`)
		}
		if len(seen) == 2 {
			break
		}
	}
	if !seen["a-"] || !seen["b-"] || len(seen) != 2 {
		t.Errorf("sessions %v", seen)
	}
}

// lostSession checks that each request of a session gets 404, which tells a client to initialize again.
func lostSession(t *testing.T, r *replicated, session string) {
	t.Helper()
	v := &visitor{url: r.mcp, session: session, version: legacyVersion}
	for what, resp := range map[string]*http.Response{
		"a call":     v.do(t, "POST", nil, v.request("tools/call", `{"name":"count","arguments":{"n":1}}`)),
		"a stream":   v.do(t, "GET", nil, ""),
		"resuming":   v.do(t, "GET", map[string]string{"Last-Event-ID": "5d1f03aa.1/1"}, ""),
		"its DELETE": v.do(t, "DELETE", nil, ""),
	} {
		if text := body(t, resp); resp.StatusCode != 404 || !strings.Contains(text, "Session not found") {
			t.Errorf("%s in the session %s: %s %s", what, session, resp.Status, text)
		}
	}
}

// ending is how a call ends.
type ending struct {
	call, text string
	steps      int
	err        error
}

// begin starts a call that is to run on a replica, and returns once it does. A call that comes to the other one is given up.
func (r *replicated) begin(t *testing.T, c *replicaClient, on *process, name string, n, delayMs int) <-chan ending {
	t.Helper()
	for try := range 20 {
		ctx, cancel := context.WithCancel(t.Context())
		s := step{call: fmt.Sprintf("%s-%d", name, try), tool: "count", args: map[string]any{"n": n, "delayMs": delayMs}, begun: make(chan bool, 1)}
		done := make(chan ending, 1)
		go func() {
			defer cancel()
			text, steps, err := c.call(ctx, s)
			done <- ending{s.call, text, steps, err}
		}()
		here := false
		eventually(t, s.call+" has come somewhere", func() bool {
			here = on.calls()[s.call] > 0
			return here || r.a.calls()[s.call]+r.b.calls()[s.call] > 0
		})
		if here && delayMs < 1000 {
			select {
			case <-s.begun:
			case o := <-done:
				t.Fatalf("%s is over: %v", s.call, o.err)
			}
		}
		if here {
			return done
		}
		cancel()
		<-done
	}
	t.Fatalf("no call of %s comes to %s", name, on.base)
	return nil
}

// replicaStop stops one of two replicas under load. What runs there fails, for a reason; sessions that were there are gone, and their clients
// begin others; the other replica takes over everything else, and its own clients notice nothing.
func replicaStop(t *testing.T, signal os.Signal) {
	r := replicate(t)
	graceful := signal != os.Kill
	modern, lost, kept := r.ours(t, "modern", ""), r.ours(t, "lost", "a"), r.ours(t, "kept", "b")
	sdkLost, sdkKept := r.sdk(t, "sdk-lost", "a"), r.sdk(t, "sdk-kept", "b")

	// What is in flight.
	inFlight := map[string]<-chan ending{
		"silent":       r.begin(t, modern, r.a, "silent", 1, 600_000),
		"streaming":    r.begin(t, modern, r.a, "streaming", 1000, 100),
		"in a session": r.begin(t, lost, r.a, "in a session", 1000, 100),
	}
	if graceful { // it finishes what takes no more than three seconds
		inFlight["short"] = r.begin(t, modern, r.a, "short", 10, 100)
	}

	// And who goes on all the time. The modern client repeats what has failed.
	over := make(chan struct{})
	var busy sync.WaitGroup
	everyFewMs := func(do func(n int)) {
		busy.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
					do(n)
				}
			}
		})
	}
	everyFewMs(func(n int) { kept.works(t, 5*n, 5*n+1) })
	var failures []error
	everyFewMs(func(int) {
		for tries := 0; ; tries++ {
			_, _, err := modern.call(t.Context(), step{tool: "echo", args: map[string]any{"text": "again"}})
			if err == nil {
				return
			}
			failures = append(failures, err)
			if !mayFail(err) || tries == 3 {
				t.Errorf("busy, tried %d times: %v", tries+1, err)
				return
			}
		}
	})
	r.a.stop(signal)
	kept.works(t, 0, 20)
	close(over)
	busy.Wait()
	t.Logf("failures %q", failures)
	for name, done := range inFlight {
		o := <-done
		t.Logf("%s: %d steps, %v", name, o.steps, o.err)
		if a, b := r.a.calls()[o.call], r.b.calls()[o.call]; a != 1 || b != 0 {
			t.Errorf("%s has come %d times to a and %d times to b", o.call, a, b)
		}
		if name == "short" {
			if o.err != nil || o.text != "counted to 10" || o.steps != 10 {
				t.Errorf("short: %+v", o)
			}
		} else if !mayFail(o.err) {
			t.Errorf("%s: %+v", name, o)
		}
	}

	// Repeated, it succeeds; a client of ours whose session is lost begins another by itself, and the SDK's says so.
	modern.works(t, 100, 105)
	gone := lost.session
	lostSession(t, r, gone)
	lost.works(t, 100, 105)
	if at := lost.at(); at != "b" {
		t.Errorf("the session that was lost is on %q now", at)
	}
	_, _, err := sdkLost.call(t.Context(), step{tool: "count", args: map[string]any{"n": 1}})
	if err == nil || !strings.Contains(err.Error(), "session not found") { // of its call, or of its stream before
		t.Errorf("the SDK calls in a session that is lost: %v", err)
	}
	sdkKept.works(t, 100, 105)
	kept.works(t, 100, 105)

	// It comes back, at the same address, and has work again.
	addr := r.a.addr()
	eventually(t, "the replica listens again", func() bool {
		r.a = replica(t, "a", addr)
		return r.a.base != ""
	})
	eventually(t, "it has work again", func() bool {
		modern.works(t, 200, 201)
		return len(r.a.calls()) > 0
	})
	lostSession(t, r, gone)
	r.ours(t, "again", "a").works(t, 0, 5)
	if kept.works(t, 200, 205); kept.at() != "b" {
		t.Error("the session on the other replica has moved")
	}
}

// mayFail tells whether a call has failed in one of the ways in which it may when its replica is stopped: with a status or an error of the
// server, or of nginx, or because its stream or its session has ended.
func mayFail(err error) bool {
	status, stopped := (*wire.HTTPError)(nil), (*wire.Error)(nil)
	return errors.As(err, &status) && (status.Status == 502 || status.Status == 503) ||
		errors.As(err, &stopped) && stopped.Code == wire.CodeInternalError ||
		errors.Is(err, io.EOF) || errors.Is(err, wire.ErrSessionEnded) || errors.Is(err, io.ErrUnexpectedEOF)
}
