package interop

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// Here mcpwire call meets servers through a proxy, which sees what a client shows to nobody else, and makes trouble.

// tap is a proxy before a server, which keeps what passes, and lets pass what brings a token.
type tap struct {
	url    string
	before func(p *tap, req *http.Request, what string) // unless nil: is called for what passes, before it does

	mu     sync.Mutex // guards the fields below
	passed []exchange
	cut    string // the next answer that has this is cut off behind the event with it; "": none
}

// exchange is one request and how it was answered.
type exchange struct {
	verb, path string
	header     http.Header
	message    struct {
		Method string // "": a response, or no message
		Params struct{ Name string }
	}
	status  int
	session string // as the answer has it
	at      time.Time
}

// what names the message: its method, and what it calls.
func (x exchange) what() string {
	if x.message.Method == "" {
		return "response"
	}
	return strings.TrimSpace(x.message.Method + " " + x.message.Params.Name)
}

const token = "Bearer sesame"

// newTap puts one before a URL.
func newTap(t *testing.T, server, cut string, before func(p *tap, req *http.Request, what string)) *tap {
	t.Helper()
	target, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	path := target.Path
	target.Path = "" // the endpoint of HTTP+SSE is another one
	p := &tap{cut: cut, before: before}
	front := httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: p,
		ErrorLog:  log.New(io.Discard, "", 0), // of what is cut
	})
	t.Cleanup(func() {
		front.CloseClientConnections()
		front.Close()
		for _, x := range p.passed {
			t.Logf("%s %s %s %d %v", x.verb, x.path, x.what(), x.status, x.header)
		}
	})
	p.url = front.URL + path
	return p
}

func (p *tap) RoundTrip(req *http.Request) (*http.Response, error) {
	x := exchange{verb: req.Method, path: req.URL.Path, header: req.Header.Clone(), at: time.Now()}
	if req.Body != nil {
		content, err := io.ReadAll(req.Body)
		if err != nil {
			return nil, err
		}
		json.Unmarshal(content, &x.message)
		req.Body = io.NopCloser(bytes.NewReader(content))
	}
	p.mu.Lock()
	i := len(p.passed)
	p.passed = append(p.passed, x)
	p.mu.Unlock()
	resp := &http.Response{StatusCode: 401, Header: http.Header{"Www-Authenticate": {"Bearer"}}, Body: http.NoBody, Request: req}
	if x.header.Get("Authorization") == token {
		if p.before != nil {
			p.before(p, req, x.what())
		}
		var err error
		if resp, err = http.DefaultTransport.RoundTrip(req); err != nil {
			return nil, err
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[i].status, p.passed[i].session = resp.StatusCode, resp.Header.Get("Mcp-Session-Id")
	if p.cut != "" {
		resp.Body = &scissors{ReadCloser: resp.Body, p: p}
	}
	return resp, nil
}

// listens waits for the standalone stream, or that of a conversation.
func (p *tap) listens(t *testing.T) {
	for begun := time.Now(); time.Since(begun) < limit/4; time.Sleep(5 * time.Millisecond) {
		passed, _ := p.seen()
		if slices.ContainsFunc(passed, func(x exchange) bool { return x.verb == "GET" && x.status == 200 }) {
			return
		}
	}
	t.Error("there is no stream")
}

// seen returns what has passed: all of it, and the messages alone.
func (p *tap) seen() (all []exchange, messages []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, x := range p.passed {
		if x.verb == "POST" {
			messages = append(messages, x.what())
		}
	}
	return slices.Clone(p.passed), messages
}

// scissors cut off an answer, as if the connection were lost.
type scissors struct {
	io.ReadCloser
	p    *tap
	seen []byte
	lost bool
}

func (s *scissors) Read(b []byte) (int, error) {
	if s.lost {
		return 0, io.ErrUnexpectedEOF
	}
	n, err := s.ReadCloser.Read(b)
	before := len(s.seen)
	s.seen = append(s.seen, b[:n]...)
	s.p.mu.Lock()
	defer s.p.mu.Unlock()
	if s.p.cut == "" {
		return n, err
	}
	if _, rest, found := bytes.Cut(s.seen, []byte(s.p.cut)); found {
		if end := bytes.Index(rest, []byte("\n\n")); end >= 0 {
			s.p.cut, s.lost = "", true
			return len(s.seen) - len(rest) + end + 2 - before, nil
		}
	}
	return n, err
}

// TestWire looks at what mcpwire call sends to a server that wants a token.
func TestWire(t *testing.T) {
	t.Parallel()
	sdk, everything, mcpGo := startGo(t, goSDKServer, ""), startGo(t, everythingServer, "-http="), startGo(t, mcpGoServer, "")
	const greet = `tools/call {"name":"greet","arguments":{}}`
	handshake := []string{"initialize", "notifications/initialized", "tools/call greet", "response", "resources/read"}
	for _, test := range []struct {
		name, url string
		flags     []string
		line      string
		messages  []string
		check     func(t *testing.T, passed []exchange)
	}{
		{"sessions", sdk + "/mcp", nil, greet, append([]string{"server/discover"}, handshake...), inSession("2025-11-25")},
		{"sessions, pinned", sdk + "/mcp", []string{"-protocol", "2025-06-18"}, greet, handshake, inSession("2025-06-18")},
		{"sessions, mcp-go", mcpGo + "/mcp", []string{"-protocol", "2025-03-26"}, greet, handshake, inSession("2025-03-26")},
		{"modern", everything, nil, `tools/call {"name":"test_input_required_result_elicitation","arguments":{}}`,
			[]string{"server/discover", "tools/call test_input_required_result_elicitation",
				"tools/call test_input_required_result_elicitation", "resources/read"}, alone},
		{"modern, mcp-go", mcpGo + "/mcp", nil, greet,
			[]string{"server/discover", "tools/call greet", "tools/call greet", "resources/read"}, alone},
		{"HTTP+SSE", sdk + "/sse", nil, greet, append([]string{"server/discover", "initialize"}, handshake...), onStream},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newTap(t, test.url, "", nil)
			flags := append([]string{"-i", "-answer", `{"name":"Ada"}`, "-header", "Authorization: " + token}, test.flags...)
			uri := "test://welcome"
			if test.url == everything {
				uri = "test://static-text"
			}
			out := call(t, flags, test.line+"\nresources/read {\"uri\":\""+uri+"\"}\n", p.url)
			if out.exit != 0 || strings.Count(out.stdout, "\n") != 2 {
				t.Errorf("exit %d, stdout %q", out.exit, out.stdout)
			}
			passed, messages := p.seen()
			if !slices.Equal(messages, test.messages) {
				t.Errorf("got  %q\nwant %q", messages, test.messages)
			}
			test.check(t, passed)
		})
	}
}

// accepts checks what a request says that it brings and takes.
func (x exchange) accepts(t *testing.T) {
	t.Helper()
	accept := x.header.Get("Accept")
	if x.verb == "GET" && accept != "text/event-stream" || x.verb == "POST" && (x.header.Get("Content-Type") != "application/json" ||
		!strings.Contains(accept, "application/json") || !strings.Contains(accept, "text/event-stream")) {
		t.Errorf("%s %s: %q", x.verb, x.what(), x.header)
	}
}

// inSession checks requests of a session: all but the first name it and the version, and one at the end ends it.
func inSession(version string) func(*testing.T, []exchange) {
	return func(t *testing.T, passed []exchange) {
		session, listens, ended := "", 0, false
		for _, x := range passed {
			x.accepts(t)
			if x.what() == "server/discover" {
				continue
			}
			want := []string{version}
			if x.what() == "initialize" || version < "2025-06-18" {
				want = nil
			}
			if got := x.header.Get("Mcp-Session-Id"); got != session {
				t.Errorf("%s %s in session %q, want %q", x.verb, x.what(), got, session)
			}
			if got := x.header.Values("Mcp-Protocol-Version"); !slices.Equal(got, want) {
				t.Errorf("%s %s with version %q, want %q", x.verb, x.what(), got, want)
			}
			if x.what() == "initialize" {
				session = x.session
			}
			if x.verb == "GET" { // beside the others, and maybe late
				listens++
				continue
			}
			if ended || x.verb == "DELETE" && x.status/100 != 2 {
				t.Errorf("%s %s: %d, ended: %v", x.verb, x.what(), x.status, ended)
			}
			ended = x.verb == "DELETE"
		}
		if session == "" || listens > 1 || !ended {
			t.Errorf("session %q, listens %d times, ended: %v", session, listens, ended)
		}
	}
}

// alone checks requests of 2026-07-28, of which each says all.
func alone(t *testing.T, passed []exchange) {
	for _, x := range passed {
		x.accepts(t)
		name := x.message.Params.Name
		if x.verb != "POST" || x.status != 200 || x.header.Get("Mcp-Session-Id") != "" ||
			x.header.Get("Mcp-Protocol-Version") != "2026-07-28" || x.header.Get("Mcp-Method") != x.message.Method ||
			name != "" && x.header.Get("Mcp-Name") != name {
			t.Errorf("%s %s: %d, %q", x.verb, x.what(), x.status, x.header)
		}
	}
}

// onStream checks a session of HTTP+SSE: what is posted before its stream is refused, and what is posted after it taken.
func onStream(t *testing.T, passed []exchange) {
	status, streams := 400, 0
	for _, x := range passed {
		if x.status == 0 && x.what() == "response" { // the program has ended before the status came; what it printed shows that the server has the answer
			x.status = status
		}
		if x.verb == "GET" {
			x.accepts(t)
			status, streams = 202, streams+1
		} else if x.verb != "POST" || x.status != status || x.header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s %s: %d, want %d", x.verb, x.what(), x.status, status)
		}
	}
	if streams != 1 {
		t.Errorf("%d streams", streams)
	}
}

// Without its token the client is refused once, and draws no conclusions from that.
func TestWireRefused(t *testing.T) {
	t.Parallel()
	base := startGo(t, goSDKServer, "")
	for _, path := range []string{"/mcp", "/sse"} {
		t.Run(path, func(t *testing.T) {
			t.Parallel()
			p := newTap(t, base+path, "", nil)
			out := call(t, []string{"-method", "tools/list", "-header", "Authorization: Bearer barley"}, "", p.url)
			if out.exit != 1 || out.stdout != "" || !regexp.MustCompile(`(?m)^mcpwire: .*401`).MatchString(out.stderr) {
				t.Errorf("exit %d, stdout %q", out.exit, out.stdout)
			}
			if _, messages := p.seen(); !slices.Equal(messages, []string{"server/discover"}) {
				t.Errorf("got %q", messages)
			}
		})
	}
}

// An answer is resumed that the server has stopped with leave, or that was cut off; and the call is not made twice.
func TestWireResumed(t *testing.T) {
	t.Parallel()
	const steps = `^[^\n]*"progress":1\b[^\n]*\n[^\n]*"progress":2\b[^\n]*\n[^\n]*"progress":3\b[^\n]*$`
	sdk, everything := startGo(t, goSDKServer, "")+"/mcp", startEverything(t, "streamableHttp")+"/mcp"
	for _, test := range []struct {
		name, url, cut string
		tool, params   string
		want, notes    string
		wait           time.Duration // before it is resumed
		hold           time.Duration // on the way to the server
	}{
		{name: "by the server", url: sdk, tool: "hang-up", params: `{"name":"hang-up","arguments":{}}`,
			want: "well resumed", notes: `^$`, wait: 600 * time.Millisecond},
		{name: "cut off", url: sdk, cut: `"progress":2`, tool: "count", params: `{"name":"count","arguments":{"n":3}}`,
			want: "counted to 3", notes: steps},
		{name: "cut off, server-everything", url: everything, cut: `"progress":2`, tool: "trigger-long-running-operation",
			params: `{"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":3}}`,
			want:   "Long running operation completed. Duration: 1 seconds, Steps: 3.", notes: steps,
			hold: 2 * time.Second}, // as the server forgets what comes after the stream is resumed
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newTap(t, test.url, test.cut, func(_ *tap, req *http.Request, _ string) {
				if req.Header.Get("Last-Event-ID") != "" {
					time.Sleep(test.hold)
				}
			})
			flags := []string{"-header", "Authorization: " + token, "-method", "tools/call", "-params", test.params}
			out := call(t, flags, "", p.url)
			out.check(t, 0, `{"content":[{"type":"text","text":"`+test.want+`"}]}`, "")
			var shown []string // of progress: server-everything also tells, if it is heard in time, that the list of tools has changed
			for _, line := range notification.FindAllString(out.stderr, -1) {
				if step, ok := strings.CutPrefix(line, "notifications/progress "); ok {
					shown = append(shown, step)
				}
			}
			if !regexp.MustCompile(test.notes).MatchString(strings.Join(shown, "\n")) {
				t.Errorf("progress %q\nwant %q", shown, test.notes)
			}
			passed, messages := p.seen()
			if !slices.Equal(messages, []string{"server/discover", "initialize", "notifications/initialized", "tools/call " + test.tool}) {
				t.Errorf("got %q", messages)
			}
			var asked time.Time
			resumed := 0
			for _, x := range passed {
				if x.message.Method == "tools/call" {
					asked = x.at
				}
				if x.header.Get("Last-Event-ID") == "" {
					continue
				}
				resumed++
				if x.verb != "GET" || x.status != 200 || x.at.Sub(asked) < test.wait {
					t.Errorf("resumed by %s after %v: %d", x.verb, x.at.Sub(asked), x.status)
				}
			}
			if resumed != 1 {
				t.Errorf("resumed %d times", resumed)
			}
		})
	}
}

// Where an answer cannot be resumed the call fails. Whether it was carried out nobody knows, so it is not made again.
func TestWireInterrupted(t *testing.T) {
	t.Parallel()
	const counts = `{"name":"count","arguments":{"n":3}}`
	const progress = `{"name":"test_tool_with_progress","arguments":{}}`
	for _, test := range []struct {
		name, url   string
		cut, params string
	}{
		{"Go SDK, modern", startGo(t, everythingServer, "-http="), `"progress":50`, progress},
		{"Go SDK, sessions", startGo(t, everythingServer, "-http=", "-stateless=false"), `"progress":50`, progress},
		{"Go SDK, HTTP+SSE", startGo(t, goSDKServer, "") + "/sse", `"progress":2`, counts},
		{"mcp-go, modern", startGo(t, mcpGoServer, "") + "/mcp", `"progress":2`, counts},
		{"mcp-go, HTTP+SSE", startGo(t, mcpGoServer, "") + "/sse", `"progress":2`, counts},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			p := newTap(t, test.url, test.cut, nil)
			flags := []string{"-header", "Authorization: " + token, "-method", "tools/call", "-params", test.params}
			out := call(t, flags, "", p.url)
			if out.exit != 1 || out.stdout != "" || !regexp.MustCompile(`(?m)^mcpwire: tools/call: .`).MatchString(out.stderr) {
				t.Errorf("exit %d, stdout %q", out.exit, out.stdout)
			}
			_, messages := p.seen()
			calls := 0
			for _, message := range messages {
				if strings.HasPrefix(message, "tools/call ") {
					calls++
				}
			}
			if shown := notification.FindAllString(out.stderr, -1); calls != 1 || len(shown) != 2 {
				t.Errorf("called %d times, heard %q", calls, shown)
			}
		})
	}
}

// place is where one of our two programs is to be found.
type place struct {
	name, program, path string
	flags               []string
}

func places() []place {
	pinned := []string{"-protocol", "2025-11-25"} // without it mcp-go speaks 2026-07-28
	return []place{
		{"Go SDK", goSDKServer, "/mcp", nil},
		{"Go SDK, JSON", goSDKServer, "/json", nil},
		{"Go SDK, HTTP+SSE", goSDKServer, "/sse", nil},
		{"mcp-go", mcpGoServer, "/mcp", pinned},
		{"mcp-go, HTTP+SSE", mcpGoServer, "/sse", nil},
	}
}

func (p place) tap(t *testing.T, before func(p *tap, req *http.Request, what string)) (proxy *tap, flags []string) {
	return newTap(t, startGo(t, p.program, "")+p.path, "", before), append([]string{"-header", "Authorization: " + token}, p.flags...)
}

// What belongs to no call is heard, too: on the standalone stream, or that of the conversation.
func TestWireChanges(t *testing.T) {
	t.Parallel()
	for _, place := range places() {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			p, flags := place.tap(t, func(p *tap, _ *http.Request, what string) {
				if what == "tools/call publish" {
					p.listens(t)
				}
			})
			runCallTests(t, []string{p.url}, []callTest{{name: "publish", flags: flags,
				method: "tools/call", params: `{"name":"publish","arguments":{}}`,
				want: `{"content":[{"text":"published"}]}`, notes: `^notifications/resources/list_changed\b[^\n]*$`}})
		})
	}
	t.Run("server-everything", func(t *testing.T) {
		t.Parallel()
		p := newTap(t, startEverything(t, "streamableHttp")+"/mcp", "", func(p *tap, _ *http.Request, what string) {
			if what == "tools/call toggle-subscriber-updates" {
				p.listens(t)
			}
		})
		out := call(t, []string{"-i", "-header", "Authorization: " + token}, strings.Join([]string{
			`resources/subscribe {"uri":"demo://resource/dynamic/text/1"}`,
			`tools/call {"name":"toggle-subscriber-updates","arguments":{}}`,
			`tools/call {"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":1}}`,
		}, "\n"), p.url)
		if out.exit != 0 || !strings.Contains(out.stderr, `notifications/resources/updated {"uri":"demo://resource/dynamic/text/1"}`+"\n") {
			t.Errorf("exit %d, or nothing heard", out.exit)
		}
	})
}

// What is not waited for any more is cancelled, and the server hears of it: as a message, or as its stream is closed.
func TestWireCancelled(t *testing.T) {
	t.Parallel()
	for _, place := range append(places(), place{"mcp-go, modern", mcpGoServer, "/mcp", nil}) {
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			p, flags := place.tap(t, nil)
			const stdin = `tools/call {"name":"wait","arguments":{"n":1}}` + "\n" + `tools/call {"name":"waited","arguments":{}}`
			out := call(t, append(flags, "-i", "-timeout", "2s"), stdin, p.url)
			out.check(t, 1, `{"content":[{"text":"the call was cancelled"}]}`, "")
			_, messages := p.seen()
			if told := slices.Contains(messages, "notifications/cancelled"); told != (place.name != "mcp-go, modern") {
				t.Errorf("got %q", messages)
			}
		})
	}
}

// A session that the server does not know any more is begun anew, and the call made in it.
func TestWireSessionLost(t *testing.T) {
	t.Parallel()
	for _, place := range places() {
		if place.path == "/sse" {
			continue
		}
		t.Run(place.name, func(t *testing.T) {
			t.Parallel()
			var once sync.Once
			p, flags := place.tap(t, func(_ *tap, req *http.Request, what string) {
				if what == "tools/call no-such-tool" {
					once.Do(func() { end(t, req) })
				}
			})
			out := call(t, append(flags, "-i"), strings.Join(countLines, "\n"), p.url)
			if out.exit != 1 || strings.Count(out.stdout, "\n") != 2 || !regexp.MustCompile(`(?m)^mcpwire: .*\(-32602\)$`).MatchString(out.stderr) {
				t.Errorf("exit %d, stdout %q", out.exit, out.stdout)
			}
			_, messages := p.seen()
			session := []string{"initialize", "notifications/initialized"}
			want := slices.Concat(session, []string{"tools/call count", "tools/call no-such-tool"}, session,
				[]string{"tools/call no-such-tool", "tools/call count"})
			if messages = slices.DeleteFunc(messages, func(m string) bool { return m == "server/discover" }); !slices.Equal(messages, want) {
				t.Errorf("got  %q\nwant %q", messages, want)
			}
		})
	}
}

// server-everything says 400 then, which may mean anything: the call fails, and so does the next.
func TestWireSessionLostUnsaid(t *testing.T) {
	t.Parallel()
	var once sync.Once
	p := newTap(t, startEverything(t, "streamableHttp")+"/mcp", "", func(_ *tap, req *http.Request, what string) {
		if what == "tools/call echo" {
			once.Do(func() { end(t, req) })
		}
	})
	const line = `tools/call {"name":"echo","arguments":{"message":"hello"}}` + "\n"
	out := call(t, []string{"-i", "-header", "Authorization: " + token}, line+line, p.url)
	refused := regexp.MustCompile(`(?m)^mcpwire: tools/call: HTTP 400 .*No valid session ID provided \(-32000\)$`)
	if n := len(refused.FindAllString(out.stderr, -1)); out.exit != 1 || out.stdout != "" || n != 2 {
		t.Errorf("exit %d, stdout %q, refused %d times", out.exit, out.stdout, n)
	}
}

// end ends the session of a request, as somebody else than the client.
func end(t *testing.T, of *http.Request) {
	req, err := http.NewRequest("DELETE", of.URL.String(), nil)
	if err != nil {
		t.Error(err)
		return
	}
	req.Header = of.Header.Clone()
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil || resp.StatusCode/100 != 2 {
		t.Error(resp, err)
		return
	}
	resp.Body.Close()
}
