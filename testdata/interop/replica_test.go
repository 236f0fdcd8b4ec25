package interop

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
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// ---- Two replicas, and nginx before them ----

// replicated are two replicas behind nginx, as replicas.conf has it. Its own URLs are those of nginx.
type replicated struct {
	daemon
	a, b *process
}

const (
	sharedKey     = "known to both"
	publicName    = "mcp.example.com" // under which clients know the server
	legacyVersion = "2025-11-25"
)

func replicate(t *testing.T, flags ...string) *replicated {
	t.Helper()
	find(t, "nginx", "/usr/sbin/nginx") // or there is no need to start anything
	c := &replicated{a: replica(t, "a", "127.0.0.1:0", flags...), b: replica(t, "b", "127.0.0.1:0", flags...)}
	for _, p := range []*process{c.a, c.b} {
		if p.base == "" {
			t.Fatalf("a replica does not listen: %q", p.stderr)
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
	return launch(t, addr, append([]string{"-replica", name, "-state-key", sharedKey, "-allow-host", publicName}, flags...)...)
}

func (p *process) addr() string { return strings.TrimPrefix(p.base, "http://") }

// Every call has a name of its own in its _meta, so that the traces tell where it has been.
const callKey = "com.example/call"

var callName = regexp.MustCompile(`"` + regexp.QuoteMeta(callKey) + `":"([^"]+)"`)

// calls returns how often each call has come to a replica.
func (p *process) calls() map[string]int {
	count := map[string]int{}
	for _, m := range callName.FindAllStringSubmatch(p.stderr.String(), -1) {
		count[m[1]]++
	}
	return count
}

// ---- A client ----

// caller is a client made of net/http: modern, or one of a session, or one of 2025-11-25 without a session.
type caller struct {
	url, name, session string
	host               string // "": the public name
	modern             bool

	count int // of requests
}

// step is one request of a tool, and what else its params have.
type step struct {
	call   string // its name in the traces
	tool   string
	args   map[string]any
	more   map[string]any
	accept string    // "": both kinds of answers
	begun  chan bool // told of each progress, if there is room
}

// answer is what comes back.
type answer struct {
	result
	steps []int // that progress has told of
}

type result struct {
	ResultType    string
	RequestState  string
	InputRequests map[string]json.RawMessage
	Content       []struct{ Text string }
	IsError       bool
}

// httpFault is an answer of HTTP that is no success, and rpcFault a JSON-RPC error in one that is.
type httpFault struct {
	status int
	kind   string
	text   string
}

func (e *httpFault) Error() string {
	return fmt.Sprintf("HTTP %d %s: %.200q", e.status, e.kind, e.text)
}

type rpcFault struct {
	Code    int
	Message string
}

func (e *rpcFault) Error() string { return fmt.Sprintf("error %d: %s", e.Code, e.Message) }

// errNoAnswer is a stream that has ended in good order without a response; the one that was cut off ends with io.ErrUnexpectedEOF.
var errNoAnswer = errors.New("the stream has no response")

// send makes one request of HTTP, with the header that the era wants.
func (c *caller) send(ctx context.Context, method, accept string, header map[string]string, content any) (*http.Response, error) {
	var body io.Reader
	if content != nil {
		text, err := json.Marshal(content)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url, body)
	if err != nil {
		return nil, err
	}
	req.Host = cmp.Or(c.host, publicName)
	req.Header.Set("Accept", cmp.Or(accept, "application/json, text/event-stream"))
	req.Header.Set("Content-Type", "application/json")
	if c.modern {
		req.Header.Set("MCP-Protocol-Version", "2026-07-28")
	}
	if c.session != "" {
		req.Header.Set("MCP-Protocol-Version", legacyVersion)
		req.Header.Set("Mcp-Session-Id", c.session)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil || resp.StatusCode/100 == 2 {
		return resp, err
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return nil, &httpFault{resp.StatusCode, resp.Header.Get("Content-Type"), string(text)}
}

// try calls a tool, once.
func (c *caller) try(ctx context.Context, s step) (answer, error) {
	c.count++
	id := c.name + "/" + strconv.Itoa(c.count)
	meta := map[string]any{callKey: cmp.Or(s.call, id), "progressToken": id}
	header := map[string]string{}
	if c.modern {
		meta["io.modelcontextprotocol/protocolVersion"] = "2026-07-28"
		meta["io.modelcontextprotocol/clientCapabilities"] = map[string]any{"elicitation": struct{}{}}
		header["Mcp-Method"], header["Mcp-Name"] = "tools/call", s.tool
		if unit, ok := s.args["unit"].(string); ok {
			header["Mcp-Param-Unit"] = unit
		}
	}
	params := map[string]any{"name": s.tool, "arguments": s.args, "_meta": meta}
	maps.Copy(params, s.more)
	resp, err := c.send(ctx, "POST", s.accept, header, map[string]any{"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params})
	if err != nil {
		return answer{}, err
	}
	defer resp.Body.Close()
	return c.read(ctx, resp, id, s.begun)
}

// read reads what comes back: JSON, or events up to their end. A question is answered on the way.
func (c *caller) read(ctx context.Context, resp *http.Response, id string, begun chan bool) (a answer, err error) {
	err = errNoAnswer
	take := func(text []byte) error {
		var m struct {
			ID     any
			Method string
			Params struct{ Progress int }
			Result *result
			Error  *rpcFault
		}
		if err := json.Unmarshal(text, &m); err != nil {
			return fmt.Errorf("%w in %.200q", err, text)
		}
		switch {
		case m.Method == "notifications/progress":
			a.steps = append(a.steps, m.Params.Progress)
			select {
			case begun <- true:
			default:
			}
		case m.Method == "elicitation/create":
			resp, err := c.send(ctx, "POST", "", nil, map[string]any{"jsonrpc": "2.0", "id": m.ID, "result": ada})
			if err != nil {
				return err
			}
			resp.Body.Close()
		case m.ID == id && m.Result != nil:
			a.result, err = *m.Result, nil
		case m.ID == id && m.Error != nil:
			err = m.Error
		default:
			return fmt.Errorf("unexpected %.200q", text)
		}
		return nil
	}
	if resp.Header.Get("Content-Type") == "application/json" {
		text, err2 := io.ReadAll(resp.Body)
		return a, cmp.Or(err2, take(text), err)
	}
	for in := bufio.NewReader(resp.Body); ; {
		line, end := in.ReadBytes('\n')
		if end == io.EOF {
			return a, err
		}
		if end != nil {
			return a, end
		}
		if text, ok := bytes.CutPrefix(line, []byte("data: ")); ok {
			if err := take(text); err != nil {
				return a, err
			}
		}
	}
}

// ada is how all questions are answered here.
var ada = map[string]any{"action": "accept", "content": map[string]any{"name": "Ada"}}

// call calls a tool, and answers what the server wants to know before.
func (c *caller) call(ctx context.Context, s step) (answer, error) {
	a, err := c.try(ctx, s)
	if err != nil || a.ResultType != "input_required" {
		return a, err
	}
	if len(a.InputRequests) != 1 {
		return a, fmt.Errorf("%d questions", len(a.InputRequests))
	}
	s.more = map[string]any{"inputResponses": map[string]any{}}
	for key := range a.InputRequests {
		s.more["inputResponses"] = map[string]any{key: ada}
	}
	if a.RequestState != "" {
		s.more["requestState"] = a.RequestState
	}
	s.call += again
	return c.try(ctx, s)
}

const again = "/again" // ends the name of a second round

// text returns the text of a result.
func (a answer) text() string {
	if len(a.Content) != 1 || a.IsError {
		return fmt.Sprintf("%+v", a.result)
	}
	return a.Content[0].Text
}

// open initializes a session, and returns a client of it.
func (r *replicated) open(ctx context.Context, name string) (*caller, error) {
	c := &caller{url: r.mcp, name: name}
	params := map[string]any{"protocolVersion": legacyVersion, "capabilities": map[string]any{"elicitation": struct{}{}},
		"clientInfo": map[string]any{"name": name, "version": "1"}}
	resp, err := c.send(ctx, "POST", "", nil, map[string]any{"jsonrpc": "2.0", "id": name, "method": "initialize", "params": params})
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if _, err := c.read(ctx, resp, name, nil); err != nil {
		return nil, err
	}
	c.session = resp.Header.Get("Mcp-Session-Id")
	resp, err = c.send(ctx, "POST", "", nil, map[string]any{"jsonrpc": "2.0", "method": "notifications/initialized"})
	if err != nil {
		return nil, err
	}
	resp.Body.Close()
	return c, nil
}

// openOn opens sessions until there is one on a replica.
func (r *replicated) openOn(t *testing.T, replica, name string) *caller {
	t.Helper()
	for range 10 {
		c, err := r.open(t.Context(), name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(c.session, replica+"-") {
			return c
		}
	}
	t.Fatalf("no session comes to %s", replica)
	return nil
}

// sdk connects the Go SDK's client, in 2026-07-28 or, with a replica's name, with a session there.
func (r *replicated) sdk(t *testing.T, replica string) *sdkClient {
	t.Helper()
	for range 10 {
		c, version := newSDKClient(t), ""
		if replica != "" {
			version = legacyVersion
		}
		c.connect(t, &mcp.StreamableClientTransport{Endpoint: r.mcp}, version)
		if id, _, ok := strings.Cut(c.ID(), "-"); ok == (replica != "") && id == replica {
			for _, err := range c.Tools(c.ctx, nil) { // so that it knows which arguments belong into the header
				if err != nil {
					t.Fatal(err)
				}
			}
			return c
		}
	}
	t.Fatalf("no session comes to %q", replica)
	return nil
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
		{"routes", replicaRoutes},
		{"stateless", replicaStateless},
		{"SIGTERM", func(t *testing.T) { replicaStop(t, syscall.SIGTERM) }},
		{"SIGKILL", func(t *testing.T) { replicaStop(t, os.Kill) }},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t)
		})
	}
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

// replicaCalls has a thousand calls of ten clients at once.
func replicaCalls(t *testing.T) {
	r := replicate(t)
	type client struct {
		name, home string // where its session is; "": modern
		call       func(s step) (text string, err error)
	}
	var clients []client
	var ours, steps sync.Map // sdkClient by name; and their progress that is to come
	raw := func(c *caller, home string) {
		clients = append(clients, client{c.name, home, func(s step) (string, error) {
			a, err := c.call(t.Context(), s)
			if s.tool == "count" && !slices.Equal(a.steps, []int{1, 2, 3, 4, 5, 6, 7}) && err == nil {
				err = fmt.Errorf("progress %v", a.steps)
			}
			return a.text(), err
		}})
	}
	sdk := func(name, home string) {
		c, counted := r.sdk(t, home), 0
		ours.Store(name, c)
		clients = append(clients, client{name, home, func(s step) (string, error) {
			params := &mcp.CallToolParams{Meta: mcp.Meta{callKey: s.call}, Name: s.tool, Arguments: s.args}
			if s.tool == "count" {
				params.SetProgressToken(s.call)
				counted += countTo
				steps.Store(name, counted)
			}
			result, err := c.CallTool(c.ctx, params)
			if err != nil || len(result.Content) != 1 || result.IsError {
				return fmt.Sprintf("%+v", result), err
			}
			return result.Content[0].(*mcp.TextContent).Text, nil
		}})
	}
	for _, name := range []string{"modern-1", "modern-2", "modern-3", "modern-4"} {
		raw(&caller{url: r.mcp, name: name, modern: true}, "")
	}
	sdk("modern-sdk-1", "")
	sdk("modern-sdk-2", "")
	for _, home := range []string{"a", "b"} {
		raw(r.openOn(t, home, "legacy-"+home), home)
		sdk("legacy-sdk-"+home, home)
	}
	const each = 100
	var all sync.WaitGroup
	for _, c := range clients {
		all.Go(func() {
			for n := range each {
				s, want := work(n, c.name)
				if text, err := c.call(s); err != nil || text != want {
					t.Errorf("%s %s: got %.200q, %v, want %.200q", s.call, s.tool, text, err, want)
				}
			}
		})
	}
	all.Wait()
	ours.Range(func(name, c any) bool {
		want, _ := steps.Load(name)
		c.(*sdkClient).eventually(t, fmt.Sprintf("%v steps of %s", want, name), func() bool { return len(c.(*sdkClient).progress) == want })
		return true
	})

	// The traces come through pipes, and may be late.
	rounds := func(c client, n int) int { // of HTTP requests with this name
		if s, _ := work(n, c.name); s.tool == "ask" && strings.HasPrefix(c.name, "modern-sdk") {
			return 2
		}
		return 1
	}
	var a, b map[string]int
	eventually(t, "all calls are in the traces", func() bool {
		a, b = r.a.calls(), r.b.calls()
		for _, c := range clients {
			for n := range each {
				s, _ := work(n, c.name)
				if a[s.call]+b[s.call] < rounds(c, n) {
					return false
				}
			}
		}
		return true
	})
	onA, onB, apart, together := 0, 0, 0, 0
	for _, c := range clients {
		ownA, ownB := 0, 0
		for n := range each {
			s, _ := work(n, c.name)
			ownA, ownB = ownA+a[s.call], ownB+b[s.call]
			if got, want := a[s.call]+b[s.call], rounds(c, n); got != want {
				t.Errorf("%s has come %d times, not %d", s.call, got, want)
			}
			first, second := a[s.call], a[s.call+again]
			if s.tool != "ask" || c.home != "" {
				continue
			}
			if strings.HasPrefix(c.name, "modern-sdk") && first == 1 || !strings.HasPrefix(c.name, "modern-sdk") && first != second {
				apart++
			} else {
				together++
			}
		}
		switch {
		case c.home == "" && (ownA == 0 || ownB == 0), c.home == "a" && ownB > 0, c.home == "b" && ownA > 0:
			t.Errorf("%s, at home on %q: %d calls came to a, %d to b", c.name, c.home, ownA, ownB)
		}
		onA, onB = onA+ownA, onB+ownB
	}
	if apart == 0 {
		t.Error("no question was answered to the other replica")
	}
	t.Logf("%d calls: %d came to a, %d to b; of the questions %d were answered to the other replica, %d to the same",
		each*len(clients), onA, onB, apart, together)
	for _, p := range []*process{r.a, r.b} {
		if trace := p.stderr.String(); regexp.MustCompile(`(?m)^[45]\d\d$`).MatchString(trace) {
			t.Errorf("%v has refused something", p.cmd)
		}
	}
}

// replicaRoutes looks at single ways through nginx, with nobody else there.
func replicaRoutes(t *testing.T) {
	r := replicate(t)
	modern := &caller{url: r.mcp, name: "modern", modern: true}

	// Nobody else is there, so the rounds alternate.
	t.Run("rounds", func(t *testing.T) {
		for n := range 5 {
			name := fmt.Sprintf("ask-%d", n)
			if a, err := modern.call(t.Context(), step{call: name, tool: "ask", args: map[string]any{}}); err != nil || a.text() != "Hello, Ada" {
				t.Errorf("%s: %+v, %v", name, a, err)
			}
			eventually(t, name+" has been on both", func() bool {
				a, b := r.a.calls(), r.b.calls()
				return a[name] == 1 && b[name+again] == 1 || b[name] == 1 && a[name+again] == 1
			})
		}
	})

	t.Run("unknown sessions", func(t *testing.T) {
		for _, session := range []string{"a-NOBODY", "b-NOBODY", "c-NOBODY", "a", "-", "A-NOBODY"} {
			_, err := (&caller{url: r.mcp, name: "stranger", session: session}).try(t.Context(), step{tool: "echo"})
			wantStatus(t, session, err, 404, "Session not found")
		}
	})

	// It passes nginx, and is let in or not by the replica.
	t.Run("host", func(t *testing.T) {
		for host, want := range map[string]int{publicName: 200, "localhost": 200, "evil.example": 403} {
			guest := &caller{url: r.mcp, name: "guest of " + host, host: host, modern: true}
			_, err := guest.try(t.Context(), step{tool: "echo", args: map[string]any{"text": "knock, knock"}})
			if want != 200 {
				wantStatus(t, host, err, want, "Host not allowed")
			} else if err != nil {
				t.Errorf("%s: %v", host, err)
			}
		}
	})

	// A change is told to those who are connected to the replica where it has happened, and the notes of the demo are in one replica.
	t.Run("not shared", func(t *testing.T) {
		there, here := visitOn(t, r, "a"), visitOn(t, r, "b")
		for _, note := range []string{"there", "here"} {
			expect(t, here.call(t, "resources/subscribe", `{"uri":"note:///`+note+`"}`), `{"result":{}}`)
		}
		stream := here.listen(t, "")
		there.setNote(t, "there")
		here.setNote(t, "here")
		stream.next(t, "notifications/resources/list_changed")
		stream.next(t, `"uri":"note:///here"`)
		expect(t, there.call(t, "resources/read", `{"uri":"note:///there"}`), `{"result":{}}`)
		expect(t, here.call(t, "resources/read", `{"uri":"note:///there"}`), `{"error":{"code":-32002}}`)
	})

	// The transport of 2024-11-05 has its session in the query.
	t.Run("HTTP+SSE", func(t *testing.T) {
		seen := map[string]bool{}
		for range 10 {
			v := &visitor{url: r.sse}
			stream := v.listen(t, "")
			endpoint := stream.next(t, "/sse?session=")
			v.url = r.base + endpoint.data
			seen[strings.TrimPrefix(endpoint.data, "/sse?session=")[:2]] = true
			post := func(method, params string) {
				if resp := v.do(t, "POST", nil, v.request(method, params)); resp.StatusCode != 202 {
					t.Fatalf("%s: %s %s", method, resp.Status, body(t, resp))
				}
			}
			post("initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"visitor","version":"1"}}`)
			stream.next(t, `"protocolVersion":"2024-11-05"`)
			for range 3 {
				post("tools/call", `{"name":"count","arguments":{"n":3}}`)
				stream.next(t, `"counted to 3"`)
			}
			if len(seen) == 2 {
				break
			}
		}
		if !seen["a-"] || !seen["b-"] || len(seen) != 2 {
			t.Errorf("sessions %v", seen)
		}
	})
}

// visitOn opens sessions until there is one on a replica.
func visitOn(t *testing.T, r *replicated, replica string) *visitor {
	t.Helper()
	for range 10 {
		if v := visit(t, r.mcp); strings.HasPrefix(v.session, replica+"-") {
			return v
		}
	}
	t.Fatalf("no session comes to %s", replica)
	return nil
}

// replicaStateless: with -stateless there are no sessions, and clients of the older revisions need none.
func replicaStateless(t *testing.T) {
	r := replicate(t, "-stateless")
	c, err := r.open(t.Context(), "legacy")
	if err != nil {
		t.Fatal(err)
	}
	if c.session != "" {
		t.Errorf("session %q", c.session)
	}
	for n := range 10 {
		if n%5 == 3 { // a question
			continue
		}
		s, want := work(n, "legacy")
		if a, err := c.call(t.Context(), s); err != nil || a.text() != want {
			t.Errorf("%s: got %.200q, %v, want %.200q", s.call, a.text(), err, want)
		}
	}
	eventually(t, "both have answered", func() bool { return len(r.a.calls()) > 0 && len(r.b.calls()) > 0 })
}

// echo makes a call that has to succeed.
func echo(t *testing.T, c *caller) {
	t.Helper()
	if a, err := c.try(t.Context(), step{tool: "echo", args: map[string]any{"text": "still here"}}); err != nil || a.text() != "still here" {
		t.Errorf("%s: %+v, %v", c.name, a, err)
	}
}

// wantStatus checks that something was refused by HTTP.
func wantStatus(t *testing.T, what string, err error, status int, text string) {
	t.Helper()
	if r := (*httpFault)(nil); !errors.As(err, &r) || r.status != status || !strings.Contains(r.text, text) {
		t.Errorf("%s: got %v, want HTTP %d with %s", what, err, status, text)
	}
}

// ending is how a call ends.
type ending struct {
	call string
	answer
	err error
}

// begin starts a call that is to run on a replica, and returns once it does. A call that comes to the other one is given up.
func (r *replicated) begin(t *testing.T, c *caller, on *process, s step, streaming bool) <-chan ending {
	t.Helper()
	for n := range 10 {
		ctx, cancel := context.WithCancel(t.Context())
		s.call, s.begun = fmt.Sprintf("%s-%d", c.name, n), make(chan bool, 1)
		done := make(chan ending, 1)
		go func() {
			defer cancel()
			a, err := c.try(ctx, s)
			done <- ending{s.call, a, err}
		}()
		here := false
		eventually(t, s.call+" has come somewhere", func() bool {
			here = on.calls()[s.call] > 0
			return here || r.a.calls()[s.call]+r.b.calls()[s.call] > 0
		})
		if !here {
			cancel()
			<-done
			r.skip(t, n)
			continue
		}
		if streaming {
			select {
			case <-s.begun:
			case o := <-done:
				t.Fatalf("%s is over: %v", s.call, o.err)
			}
		}
		return done
	}
	t.Fatalf("no call of %s comes to %s", c.name, on.base)
	return nil
}

// skip lets another call take its turn, now and then: a client that makes two requests for one call would always come to the same replica.
func (r *replicated) skip(t *testing.T, n int) {
	t.Helper()
	if n%2 == 1 {
		echo(t, &caller{url: r.mcp, name: "skip", modern: true})
	}
}

// replicaStop stops one of two replicas under load. What runs there fails, with what can be told from a result; sessions that were there
// are gone; the other replica takes over everything else, and its own clients notice nothing.
func replicaStop(t *testing.T, signal os.Signal) {
	r := replicate(t)
	endless := map[string]any{"n": 1000, "delayMs": 100}
	graceful := signal != os.Kill

	// Who is there.
	lost, kept := r.openOn(t, "a", "lost"), r.openOn(t, "b", "kept")
	sdkLost, sdkKept, sdkModern := r.sdk(t, "a"), r.sdk(t, "b"), r.sdk(t, "") // the official SDK, which calls again afterwards

	// What is in flight.
	silent := r.begin(t, &caller{url: r.mcp, name: "silent", modern: true}, r.a,
		step{tool: "count", args: map[string]any{"n": 1, "delayMs": 600_000}, accept: "application/json"}, false)
	streaming := r.begin(t, &caller{url: r.mcp, name: "streaming", modern: true}, r.a, step{tool: "count", args: endless}, true)
	inSession := r.begin(t, &caller{url: r.mcp, name: "in a session", session: lost.session}, r.a, step{tool: "count", args: endless}, true)
	second, long := map[string]any{"n": 10, "delayMs": 100}, map[string]any{"n": 10, "delayMs": 100}
	var short <-chan ending
	if graceful { // it finishes what takes no more than three seconds
		short = r.begin(t, &caller{url: r.mcp, name: "short", modern: true}, r.a, step{tool: "count", args: second}, true)
		long["n"] = 50
	}
	undisturbed := r.begin(t, &caller{url: r.mcp, name: "undisturbed", session: kept.session}, r.b, step{tool: "count", args: long}, true)

	// And who goes on all the time. The modern client repeats what has failed.
	over := make(chan struct{})
	var busy sync.WaitGroup
	busy.Go(func() {
		for c := (&caller{url: r.mcp, name: "busy in a session", session: kept.session}); !closed(over); time.Sleep(5 * time.Millisecond) {
			echo(t, c)
		}
	})
	var failures []error
	calls := 0
	busy.Go(func() {
		for c := (&caller{url: r.mcp, name: "busy", modern: true}); !closed(over); time.Sleep(5 * time.Millisecond) {
			for tries := 0; ; tries++ {
				a, err := c.try(t.Context(), step{tool: "echo", args: map[string]any{"text": "again"}})
				calls++
				if err == nil && a.text() != "again" || err != nil && (!mayFail(err) || tries == 3) {
					t.Errorf("busy, tried %d times: %+v, %v", tries+1, a, err)
				}
				if err == nil || tries == 3 {
					break
				}
				failures = append(failures, err)
			}
		}
	})
	r.a.stop(signal)
	for range 20 {
		echo(t, kept)
	}
	close(over)
	busy.Wait()
	t.Logf("busy: %d calls, failures %q", calls, failures)

	// What was in flight there.
	inFlight := map[string]<-chan ending{"silent": silent, "streaming": streaming, "in a session": inSession}
	if graceful {
		inFlight["short"] = short
	}
	for name, done := range inFlight {
		o := <-done
		t.Logf("%s: %d steps, %v", name, len(o.steps), o.err)
		if a, b := r.a.calls()[o.call], r.b.calls()[o.call]; a != 1 || b != 0 {
			t.Errorf("%s has come %d times to a and %d times to b", o.call, a, b)
		}
		wire := (*rpcFault)(nil)
		switch {
		case name == "short":
			if o.err != nil || o.text() != "counted to 10" {
				t.Errorf("short: %+v, %v", o.answer, o.err)
			}
		case graceful && name == "silent":
			wantStatus(t, name, o.err, 503, "Stopped: ")
		case graceful:
			if !errors.As(o.err, &wire) || wire.Code != -32603 {
				t.Errorf("%s: got %v, want -32603", name, o.err)
			}
		case name == "silent":
			wantStatus(t, name, o.err, 502, "Bad Gateway")
		case !errors.Is(o.err, io.ErrUnexpectedEOF):
			t.Errorf("%s: got %v, want the end in the middle", name, o.err)
		}
	}
	if o := <-undisturbed; o.err != nil || o.text() != fmt.Sprintf("counted to %d", long["n"]) || len(o.steps) != long["n"] {
		t.Errorf("undisturbed: %+v, %v", o.answer, o.err)
	}

	// Repeated, it succeeds: with the same client, but for sessions that were there.
	brief := step{tool: "count", args: map[string]any{"n": countTo}}
	if a, err := (&caller{url: r.mcp, name: "repeated", modern: true}).try(t.Context(), brief); err != nil || len(a.steps) != countTo {
		t.Errorf("%+v, %v", a, err)
	}
	if got := sdkModern.text(t, &mcp.CallToolParams{Name: "count", Arguments: brief.args}); got != "counted to 7" {
		t.Errorf("got %q", got)
	}
	_, err := lost.try(t.Context(), brief)
	wantStatus(t, "a call in a session that is lost", err, 404, "Session not found")
	_, err = lost.send(t.Context(), "GET", "text/event-stream", nil, nil)
	wantStatus(t, "a stream of it", err, 404, "Session not found")
	_, err = lost.send(t.Context(), "GET", "text/event-stream", map[string]string{"Last-Event-ID": "5d1f03aa.1/1"}, nil)
	wantStatus(t, "resuming one", err, 404, "Session not found")
	_, err = lost.send(t.Context(), "DELETE", "", nil, nil)
	wantStatus(t, "its end", err, 404, "Session not found")
	_, err = sdkLost.CallTool(sdkLost.ctx, &mcp.CallToolParams{Name: "count", Arguments: brief.args})
	if err == nil || !strings.Contains(err.Error(), "session not found") { // of its call, or of its stream before
		t.Errorf("the SDK calls in a session that is lost: %v", err)
	}
	found, err := r.open(t.Context(), "found")
	if err != nil || !strings.HasPrefix(found.session, "b-") {
		t.Fatalf("initialized again: %+v, %v", found, err)
	}
	for n := range 5 {
		s, want := work(n, "found")
		if a, err := found.call(t.Context(), s); err != nil || a.text() != want {
			t.Errorf("%s: got %.200q, %v, want %.200q", s.call, a.text(), err, want)
		}
	}
	r.sdk(t, "b")
	echo(t, kept)
	if got := sdkKept.text(t, &mcp.CallToolParams{Name: "ask"}); got != "Hello, Ada" {
		t.Errorf("got %q", got)
	}

	// It comes back, at the same address, and has work again.
	addr := r.a.addr()
	eventually(t, "the replica listens again", func() bool {
		r.a = replica(t, "a", addr)
		return r.a.base != ""
	})
	eventually(t, "it has work again", func() bool {
		echo(t, &caller{url: r.mcp, name: "returned", modern: true})
		return len(r.a.calls()) > 0
	})
	_, err = lost.try(t.Context(), brief)
	wantStatus(t, "a call in a session that is still lost", err, 404, "Session not found")
	echo(t, r.openOn(t, "a", "new"))
	echo(t, kept)
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// mayFail tells whether a call has failed in one of the ways in which it may when its replica is stopped.
func mayFail(err error) bool {
	r, wire := (*httpFault)(nil), (*rpcFault)(nil)
	return errors.As(err, &r) && (r.status == 502 || r.status == 503) ||
		errors.As(err, &wire) && wire.Code == -32603 || errors.Is(err, io.ErrUnexpectedEOF)
}
