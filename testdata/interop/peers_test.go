package interop

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/jsonrpc"
)

// Here a session is the same for each client that others wrote in Go.

// peer is such a client, connected to a server of ours.
type peer interface {
	self() *guest
	tools() ([]string, error)
	call(ctx context.Context, tool string, arguments map[string]any) (text string, isError bool, err error) // with a progress token
	read(uri string) (text string, err error)
	prompt(name, argument string) (messages int, err error)
	subscribe(t *testing.T, uri string) (end func()) // to a resource, and to the list of them
	fault(err error) (code int64, text string)       // of JSON-RPC; text "": the client does not show it
}

// guest is what all of them have: a note to set, and what they have heard so far.
type guest struct {
	ctx  context.Context
	note string

	mu          sync.Mutex // guards the fields below
	progress    []float64
	logged      []string
	updated     []string
	listChanged int
}

func (g *guest) self() *guest { return g }

// hear notes something.
func (g *guest) hear(f func()) {
	g.mu.Lock()
	defer g.mu.Unlock()
	f()
}

// eventually waits for what a notification brings about: they are handled in their own time, beside the calls.
func (g *guest) eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	eventually(t, what, func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		return reached()
	})
}

// answers calls a tool that has to answer with this text.
func answers(t *testing.T, p peer, want, tool string, arguments map[string]any) {
	t.Helper()
	if got, isError, err := p.call(p.self().ctx, tool, arguments); got != want || isError || err != nil {
		t.Fatalf("%s: got %q, isError %v, %v, want %q", tool, got, isError, err, want)
	}
}

// refuses checks that an error has this code and, if it shows a text, this text.
func refuses(t *testing.T, p peer, err error, code int64, want string) {
	t.Helper()
	if got, said := p.fault(err); got != code || said != "" && !strings.Contains(said, want) {
		t.Errorf("got %v, want code %d with %s", err, code, want)
	}
}

// peerSteps are what a session does on every transport, in this order.
var peerSteps = []struct {
	name string
	run  func(*testing.T, peer, revision)
}{
	{"tools", peerTools},
	{"resources", peerResources},
	{"prompts", peerPrompts},
	{"progress", peerProgress},
	{"elicitation", peerElicitation},
	{"subscription", peerSubscription},
	{"cancellation", peerCancellation},
}

func peerTools(t *testing.T, p peer, _ revision) {
	names, err := p.tools()
	if want := []string{"ask", "count", "echo", "get-weather", "set-note"}; err != nil || !slices.Equal(names, want) {
		t.Errorf("got %q, %v, want %q", names, err, want)
	}
	answers(t, p, "Current temperature in Oslo is 18°C", "get-weather", map[string]any{"city": "Oslo"})
	_, _, err = p.call(p.self().ctx, "get-weather", map[string]any{})
	refuses(t, p, err, jsonrpc.CodeInvalidParams, "Missing required argument: 'city'")
	_, _, err = p.call(p.self().ctx, "no-such-tool", map[string]any{})
	refuses(t, p, err, jsonrpc.CodeInvalidParams, "Unknown tool: no-such-tool")
}

func peerResources(t *testing.T, p peer, rev revision) {
	if got, err := p.read("note:///welcome"); got != "This note is served by mcpwire." {
		t.Errorf("got %q, %v", got, err)
	}
	notFound := int64(-32002)
	if rev.modern {
		notFound = jsonrpc.CodeInvalidParams
	}
	_, err := p.read("note:///nothing")
	refuses(t, p, err, notFound, "note:///nothing")
}

func peerPrompts(t *testing.T, p peer, _ revision) {
	if messages, err := p.prompt("summarize-note", "welcome"); messages != 2 || err != nil {
		t.Errorf("%d messages, %v", messages, err)
	}
}

func peerProgress(t *testing.T, p peer, _ revision) {
	answers(t, p, "counted to 50", "count", map[string]any{"n": 50})
	var want []float64
	for n := range 50 {
		want = append(want, float64(n+1))
	}
	p.self().eventually(t, "fifty steps in order", func() bool { return slices.Equal(p.self().progress, want) })
}

// peerElicitation: in revisions older than elicitation nobody is asked, although the capability is declared.
func peerElicitation(t *testing.T, p peer, rev revision) {
	text, isError, err := p.call(p.self().ctx, "ask", map[string]any{})
	if isError == rev.asks || rev.asks && text != "Hello, Ada" || err != nil {
		t.Errorf("got %q, isError %v, %v", text, isError, err)
	}
}

// peerSubscription: a legacy client hears of a changed list without asking.
func peerSubscription(t *testing.T, p peer, _ revision) {
	g := p.self()
	uri := "note:///" + g.note
	end := p.subscribe(t, uri)
	before := 0
	g.hear(func() { before = g.listChanged })
	answers(t, p, "Noted as "+uri, "set-note", map[string]any{"name": g.note, "text": "rain"})
	g.eventually(t, "the list of resources has changed", func() bool { return g.listChanged > before })
	g.eventually(t, "the note was updated", func() bool { return slices.Equal(g.updated, []string{uri}) })
	end()
}

// peerCancellation: the caller is free at once, the server stops, and the session goes on.
func peerCancellation(t *testing.T, p peer, _ revision) {
	g := p.self()
	g.hear(func() { g.progress = nil })
	ctx, cancel := context.WithCancel(g.ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, _, err := p.call(ctx, "count", map[string]any{"n": 1000, "delayMs": 100})
		ended <- err
	}()
	g.eventually(t, "a first step", func() bool { return len(g.progress) > 0 })
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want that it was cancelled", err)
		}
	case <-time.After(limit / 4): // to the end it would be 100 s
		t.Fatal("the call goes on")
	}
	for before, steps := -1, 0; steps != before; time.Sleep(500 * time.Millisecond) { // until half a second has passed without another one
		before = steps
		if g.hear(func() { steps = len(g.progress) }); steps > 100 {
			t.Fatal("the server goes on")
		}
	}
	answers(t, p, "still here", "echo", map[string]any{"text": "still here"})
}
