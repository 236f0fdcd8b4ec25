package interop

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"interop/shared"
)

// daemon is an mcpwire that serves over HTTP.
type daemon struct{ base, mcp, sse string } // its URL, and those of the two transports

func (d daemon) url(transport string) string {
	if transport == "sse" {
		return d.sse
	}
	return d.mcp
}

// ourServer returns the command of an mcpwire, or the URL of one that it starts.
func ourServer(t *testing.T, transport string, flags ...string) target {
	t.Helper()
	if transport == "stdio" {
		return append(target{mcpwire}, flags...)
	}
	return target{serve(t, flags...).url(transport)}
}

// serve starts one on a free port. When the test is over, it has to end by itself, whatever is still open.
func serve(t *testing.T, flags ...string) daemon {
	t.Helper()
	p := launch(t, "127.0.0.1:0", flags...)
	if p.base == "" {
		t.Fatalf("the first line says not where it listens: %q", p.output.String())
	}
	return p.daemon
}

// process is a command that runs until a test is over, or stops it.
type process struct {
	daemon // of an mcpwire; empty if it did not come to listen
	cmd    *exec.Cmd
	output shared.Output
	ended  chan struct{}
	stop   func(os.Signal) // the first one counts
}

// background starts one. It has to end by itself at a signal, whatever is still open.
func background(t *testing.T, cmd *exec.Cmd) *process {
	t.Helper()
	p := &process{cmd: cmd, ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &p.output, &p.output
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		cmd.Wait()
	}()
	var once sync.Once
	p.stop = func(signal os.Signal) {
		once.Do(func() {
			cmd.Process.Signal(signal)
			defer time.AfterFunc(limit, func() {
				t.Error("it does not end:", cmd)
				cmd.Process.Kill()
			}).Stop()
			<-p.ended
		})
	}
	t.Cleanup(func() {
		p.stop(syscall.SIGTERM)
		t.Logf("%v\n%s", cmd, regexp.MustCompile(`(?m)^(.{1000}).+$`).ReplaceAllString(p.output.String(), "$1…"))
	})
	return p
}

// hasEnded waits for a moment, and tells whether the process has ended.
func (p *process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	case <-time.After(5 * time.Millisecond):
		return false
	}
}

// launch starts an mcpwire at an address.
func launch(t *testing.T, addr string, flags ...string) (p *process) {
	t.Helper()
	t.Cleanup(func() { // after it has ended
		if p == nil || p.base == "" {
			return
		}
		if state := p.cmd.ProcessState; !state.Success() && state.String() != "signal: killed" {
			t.Errorf("the server's end: %v", state)
		}
	})
	p = background(t, exec.Command(mcpwire, append([]string{"-http", addr, "-trace"}, flags...)...))
	eventually(t, "its first line", func() bool { return strings.Contains(p.output.String(), "\n") || p.hasEnded() })
	if base := regexp.MustCompile(`^.*(http://127\.0\.0\.1:\d+)`).FindStringSubmatch(p.output.String()); base != nil {
		p.daemon = daemon{base[1], base[1] + "/mcp", base[1] + "/sse"}
	}
	return p
}

// ---- A client made of net/http alone, for what the others do not show: statuses, event ids, and when something arrives ----

type visitor struct {
	url              string
	session, version string       // once there is a session
	id               atomic.Int64 // of the last request
}

// visit opens a session of 2025-11-25.
func visit(t *testing.T, url string) *visitor {
	t.Helper()
	v := &visitor{url: url}
	const params = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"visitor","version":"1"}}`
	resp := v.do(t, "POST", nil, v.request("initialize", params))
	v.session, v.version = resp.Header.Get("Mcp-Session-Id"), "2025-11-25"
	expect(t, body(t, resp), `{"result":{"protocolVersion":"2025-11-25","serverInfo":{"name":"mcpwire"}}}`)
	if v.session == "" {
		t.Fatal("no session")
	}
	resp = v.do(t, "POST", nil, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	if text := body(t, resp); resp.StatusCode != 202 || text != "" {
		t.Errorf("notifications/initialized: %s, %q", resp.Status, text)
	}
	return v
}

func (v *visitor) request(method, params string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":%s}`, v.id.Add(1), method, params)
}

// do sends one HTTP request. Its answer may be read for a while, but not without end.
func (v *visitor) do(t *testing.T, method string, header map[string]string, content string) *http.Response {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	req, err := http.NewRequestWithContext(ctx, method, v.url, strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/event-stream")
	if method == "POST" {
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set("Content-Type", "application/json")
	}
	if v.session != "" {
		req.Header.Set("Mcp-Session-Id", v.session)
	}
	if v.version != "" {
		req.Header.Set("MCP-Protocol-Version", v.version)
	}
	for name, value := range header {
		req.Header.Set(name, value)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { resp.Body.Close() })
	return resp
}

func body(t *testing.T, resp *http.Response) string {
	t.Helper()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// call returns the response to a request, as JSON: the answer may be that, or events that end with it.
func (v *visitor) call(t *testing.T, method, params string) string {
	t.Helper()
	resp := v.do(t, "POST", nil, v.request(method, params))
	if resp.StatusCode != 200 {
		t.Fatalf("%s: %s %s", method, resp.Status, body(t, resp))
	}
	if resp.Header.Get("Content-Type") != "text/event-stream" {
		return body(t, resp)
	}
	last := ""
	for e := range read(t, resp).events {
		last = e.data
	}
	return last
}

// post sends a request in a conversation of HTTP+SSE, which is answered on its stream.
func (v *visitor) post(t *testing.T, method, params string) {
	t.Helper()
	if resp := v.do(t, "POST", nil, v.request(method, params)); resp.StatusCode != 202 {
		t.Fatalf("%s: %s %s", method, resp.Status, body(t, resp))
	}
}

// converse begins a conversation of HTTP+SSE. The URL of the visitor is the one that the server has announced: an absolute path, as a full URL
// would name what nginx hides.
func converse(t *testing.T, server daemon) (*visitor, *stream) {
	t.Helper()
	v := &visitor{url: server.sse}
	stream := v.listen(t, "")
	endpoint := stream.next(t, "/")
	if endpoint.name != "endpoint" {
		t.Fatalf("got %+v, want the endpoint", endpoint)
	}
	v.url = server.base + endpoint.data
	v.post(t, "initialize", `{"protocolVersion":"2024-11-05","capabilities":{},"clientInfo":{"name":"visitor","version":"1"}}`)
	stream.next(t, `"protocolVersion":"2024-11-05"`)
	v.do(t, "POST", nil, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return v, stream
}

// setNote changes a note: that is how a session comes to hear something.
func (v *visitor) setNote(t *testing.T, name string) {
	t.Helper()
	expect(t, v.call(t, "tools/call", `{"name":"set-note","arguments":{"name":"`+name+`","text":"rain"}}`),
		`{"result":{"content":[{"type":"text"}]}}`)
}

// listen opens the standalone stream, or resumes one after an event.
func (v *visitor) listen(t *testing.T, after string) *stream {
	t.Helper()
	header := map[string]string{}
	if after != "" {
		header["Last-Event-ID"] = after
	}
	resp := v.do(t, "GET", header, "")
	if resp.StatusCode != 200 {
		t.Fatalf("GET after %q: %s %s", after, resp.Status, body(t, resp))
	}
	return read(t, resp)
}

// gone waits until a URL, or the session there, is unknown.
func gone(t *testing.T, url, session string) {
	t.Helper()
	v := &visitor{url: url, session: session}
	eventually(t, "404 for a session that has ended", func() bool {
		resp := v.do(t, "POST", nil, v.request("ping", "{}"))
		resp.Body.Close()
		return resp.StatusCode == 404
	})
}

// stream is a response of server-sent events while it is read.
type stream struct {
	events   chan event    // closed at the end
	comments chan struct{} // one for each
	end      error         // how it ended
}

type event struct {
	id, name, data string
	at             time.Time
}

func read(t *testing.T, resp *http.Response) *stream {
	t.Helper()
	if kind := resp.Header.Get("Content-Type"); kind != "text/event-stream" {
		t.Fatalf("got %s, want events", kind)
	}
	s := &stream{events: make(chan event, 1000), comments: make(chan struct{}, 1000)}
	go func() {
		defer close(s.events)
		var e event
		for r := bufio.NewReader(resp.Body); ; {
			line, err := r.ReadString('\n')
			if err != nil {
				s.end = err
				return
			}
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ":")
			value = strings.TrimPrefix(value, " ")
			switch {
			case line == "\n" && e != event{}:
				e.at = time.Now()
				s.events <- e
				e = event{}
			case name == "" && line != "\n":
				s.comments <- struct{}{}
			case name == "id":
				e.id = value
			case name == "event":
				e.name = value
			case name == "data":
				e.data += value
			}
		}
	}()
	return s
}

// next waits for an event. Those without data, which are there for their id, are no messages: it passes them over, unless asked for any.
func (s *stream) next(t *testing.T, data string) event {
	t.Helper()
	late := time.After(limit / 2)
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				t.Fatalf("the stream ended (%v), want %q", s.end, data)
			}
			if e.data == "" && data != "" {
				continue
			}
			if !strings.Contains(e.data, data) {
				t.Fatalf("got %q, want %q", e.data, data)
			}
			return e
		case <-late:
			t.Fatalf("nothing comes, want %q", data)
		}
	}
}

// silence waits for some comments, with no message between them.
func (s *stream) silence(t *testing.T, comments int) {
	t.Helper()
	late := time.After(limit / 2)
	for comments > 0 {
		select {
		case <-s.comments:
			comments--
		case e, ok := <-s.events:
			if !ok {
				t.Fatalf("the stream ended (%v), want %d more comments", s.end, comments)
			}
			if e.data != "" {
				t.Fatalf("got %q, want silence", e.data)
			}
		case <-late:
			t.Fatalf("nothing comes, want %d more comments", comments)
		}
	}
}

// progress returns which step a notification tells of, or 0.
func progress(e event) int {
	var m struct {
		Method string
		Params struct{ Progress int }
	}
	if json.Unmarshal([]byte(e.data), &m) != nil || m.Method != "notifications/progress" {
		return 0
	}
	return m.Params.Progress
}
