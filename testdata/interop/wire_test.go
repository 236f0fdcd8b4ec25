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

// tap is a proxy before a server, which keeps what passes.
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
	status int
}

// what names the message: its method, and what it calls.
func (x exchange) what() string {
	if x.message.Method == "" {
		return "response"
	}
	return strings.TrimSpace(x.message.Method + " " + x.message.Params.Name)
}

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
	x := exchange{verb: req.Method, path: req.URL.Path, header: req.Header.Clone()}
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
	if p.before != nil {
		p.before(p, req, x.what())
	}
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.passed[i].status = resp.StatusCode
	if p.cut != "" {
		resp.Body = &scissors{ReadCloser: resp.Body, p: p}
	}
	return resp, nil
}

// listens waits for the standalone stream, or that of a conversation.
func (p *tap) listens(t *testing.T) {
	eventually(t, "a stream", func() bool {
		passed, _ := p.seen()
		return slices.ContainsFunc(passed, func(x exchange) bool { return x.verb == "GET" && x.status == 200 })
	})
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

// An answer is resumed that the server has stopped with leave, or that was cut off; and the call is not made twice.
func TestWireResumed(t *testing.T) {
	t.Parallel()
	const steps = `^[^\n]*"progress":1\b[^\n]*\n[^\n]*"progress":2\b[^\n]*\n[^\n]*"progress":3\b[^\n]*$`
	sdk, everything := startGo(t, goSDKServer, "")+"/mcp", startEverything(t, "streamableHttp")+"/mcp"
	for _, test := range []struct {
		name, url, cut string
		tool, params   string
		want, notes    string
		hold           time.Duration // on the way to the server, before it is resumed
	}{
		{name: "by the server", url: sdk, tool: "count", params: `{"name":"count","arguments":{"n":1,"delayMs":100,"poll":true}}`,
			want: "counted to 1", notes: `^[^\n]*"progress":1\b[^\n]*$`},
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
			flags := []string{"-method", "tools/call", "-params", test.params}
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
			resumed := 0
			for _, x := range passed {
				if x.header.Get("Last-Event-ID") != "" && x.verb == "GET" && x.status == 200 {
					resumed++
				}
			}
			if resumed != 1 {
				t.Errorf("resumed %d times", resumed)
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
	return newTap(t, startGo(t, p.program, "")+p.path, "", before), p.flags
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
		out := call(t, []string{"-i"}, strings.Join([]string{
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
			out := call(t, append(flags[:len(flags):len(flags)], "-i", "-timeout", "2s"), stdin, p.url)
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
