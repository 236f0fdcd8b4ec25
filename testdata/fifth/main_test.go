// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mcpwire/testdata/lesson"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

func init() { patience, pause = time.Minute, time.Millisecond }

// ---- The lessons ----

// own are the members of the client's messages that are its own, and those that it always sends, and the lessons do not. README.md names each of them.
var own, always = []string{"clientInfo", "io.modelcontextprotocol/clientInfo"}, []string{"progressToken", "arguments"}

// The server's side of lessons: what the client sends is what the client of the lesson sends.
func TestLessons(t *testing.T) {
	for _, row := range []struct {
		name, until, answer string
		run                 func(c *client) error
		want                string
	}{
		{"05-http-session", "D", "", calls("echo", `{"text":"hello"}`), "hello\n"},
		{"06-http-event-stream", "C", "", calls("count", `{"n":2}`), "1 of 2\n2 of 2\ncounted to 2\n"},
		{"07-http-question-to-the-user", "D", `{"name":"Ada"}`, calls("ask", `{}`), "Hello, Ada\n"},
		{"09-http-resume", "D", "", calls("count", `{"n":2}`), "1 of 2\n2 of 2\ncounted to 2\n"},
		{"12-http-modern-call", "C", "", calls("echo", `{"text":"hello"}`, "count", `{"n":2}`), "hello\n1 of 2\n2 of 2\ncounted to 2\n"},
		{"15-http-which-era", "B", "", (*client).connect, `the server speaks "2025-06-18", and this client does not`},
		{"35-http-modern-input-required", "B", `{"name":"Ada"}`, calls("ask", `{}`), "Hello, Ada\n"},
	} {
		t.Run(row.name, func(t *testing.T) {
			s := newStage(t, row.name, row.until)
			host := httptest.NewServer(s)
			defer host.Close()
			var out strings.Builder
			c := newClient(host.URL+"/mcp", row.answer, &out)
			if err := row.run(c); err != nil {
				out.WriteString(err.Error())
			}
			if c.http.Timeout != 0 {
				t.Errorf("a call may take no longer than %v", c.http.Timeout)
			}
			c.end()
			if out.String() != row.want {
				t.Errorf("printed %q, want %q", out.String(), row.want)
			}
			if s.next != len(s.sections) {
				t.Errorf("%d of %d sections were played", s.next, len(s.sections))
			}
		})
	}
}

// calls returns a function that connects a client, and calls tools: names and arguments.
func calls(list ...string) func(*client) error {
	return func(c *client) error {
		err := c.connect()
		for pair := range slices.Chunk(list, 2) {
			if err == nil {
				err = c.run(pair[0], json.RawMessage(pair[1]))
			}
		}
		return err
	}
}

// A stage plays the server of a lesson. It compares each request with the lesson's next one, and answers as the lesson does.
type stage struct {
	t            *testing.T
	capabilities string           // of the handshake that the lesson leaves out; "": it leaves out none
	sections     []lesson.Section // of client and server
	played       []chan struct{}  // closed when a section is over

	mu   sync.Mutex // guards the fields below
	next int        // the first section that nobody plays yet
	ids  []string   // the id of each request in the lesson, and what the client has instead
}

func newStage(t *testing.T, name, until string) *stage {
	s := &stage{t: t}
	for _, section := range lesson.Sections(t, "../"+name+".txtar") {
		switch {
		case section.Who == "handshake":
			s.capabilities = strings.TrimSpace(strings.TrimPrefix(section.Letter, legacy))
			if s.capabilities == "" {
				s.capabilities = "{}"
			}
		case section.Who != "note" && section.Letter <= until:
			s.sections = append(s.sections, section)
			s.played = append(s.played, make(chan struct{}))
		}
	}
	return s
}

func (s *stage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	var m message
	_ = json.Unmarshal(body, &m) // a GET has none
	s.mu.Lock()
	begin := s.next
	if s.isLeftOut(w, r, m) {
		s.mu.Unlock()
		return
	}
	asked := s.sections[begin]
	for s.next++; s.next < len(s.sections) && (s.sections[s.next].Who == "server" || s.sections[s.next].Text[0] == '('); s.next++ {
	}
	s.compare(asked, r, m, string(body))
	ids := strings.NewReplacer(s.ids...)
	s.mu.Unlock()
	close(s.played[begin])
	for i := begin + 1; i < len(s.sections); i++ {
		section := s.sections[i]
		if section.Letter != asked.Letter {
			continue
		}
		select {
		case <-s.played[i-1]:
		case <-r.Context().Done():
			s.t.Errorf("%s: the client has gone", section.Letter)
			return
		}
		if section.Who == "server" {
			answer(w, ids.Replace(section.Text))
		}
		close(s.played[i])
		if section.Who == "client" { // "(the connection breaks)"
			panic(http.ErrAbortHandler)
		}
	}
}

// isLeftOut answers what the lesson leaves out: the search for the era, the handshake, and the end of the session.
func (s *stage) isLeftOut(w http.ResponseWriter, r *http.Request, m message) bool {
	isNext := func(text string) bool {
		return s.next < len(s.sections) && strings.Contains(s.sections[s.next].Text, text)
	}
	switch {
	case m.Method == "server/discover" && isNext(modern):
		if isNext(m.Method) {
			return false
		}
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":[%q]}}`, m.ID, modern)
	case m.Method == "server/discover":
		http.Error(w, "Mcp-Session-Id is missing", http.StatusBadRequest)
	case m.Method == "initialize" && s.capabilities != "":
		if !strings.Contains(string(m.Params), `"capabilities":`+s.capabilities) {
			s.t.Errorf("%s instead of %s", m.Params, s.capabilities)
		}
		w.Header().Set("Mcp-Session-Id", "session-1")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":%q}}`, m.ID, legacy)
	case m.Method == "notifications/initialized" && s.capabilities != "":
		w.WriteHeader(http.StatusAccepted)
	case r.Method == http.MethodDelete && !isNext(r.Method):
	case s.next == len(s.sections):
		s.t.Errorf("after the lesson: %s %s", r.Method, m.Method)
	default:
		return false
	}
	return true
}

// compare compares a request with the lesson's.
func (s *stage) compare(asked lesson.Section, r *http.Request, m message, body string) {
	first, header, text := asked.HTTP()
	if got := r.Method + " " + r.URL.Path; got != first {
		s.t.Errorf("%s: %s instead of %s", asked.Letter, got, first)
	}
	for _, name := range []string{"Accept", "Content-Type", "Mcp-Protocol-Version", "Mcp-Session-Id", "Mcp-Method", "Mcp-Name", "Last-Event-Id"} {
		if got, want := r.Header.Get(name), header.Get(name); got != want {
			s.t.Errorf("%s: %s is %q instead of %q", asked.Letter, name, got, want)
		}
	}
	missing := slices.Clone(own)
	for _, name := range always {
		if !strings.Contains(text, `"`+name+`"`) {
			missing = append(missing, name)
		}
	}
	if !strings.Contains(text, `"_meta":`) && m.Method == "tools/call" { // it would hold the progressToken
		missing = append(missing, "_meta")
	}
	if m.Method != "" && m.ID != nil {
		missing = append(missing, "id")
		var theirs message
		_ = json.Unmarshal([]byte(text), &theirs)
		s.ids = append(s.ids, fmt.Sprintf(`"id":%s,"result"`, theirs.ID), fmt.Sprintf(`"id":%s,"result"`, m.ID))
	}
	if got, want := lesson.Values(s.t, body, missing), lesson.Values(s.t, text, missing); !reflect.DeepEqual(got, want) {
		s.t.Errorf("%s: got\n%v\nwant\n%v", asked.Letter, got, want)
	}
}

// answer writes what a lesson has: a status and a header, if it begins with them, and a text.
func answer(w http.ResponseWriter, text string) {
	if text[0] >= '1' && text[0] <= '9' {
		status, header, body := lesson.Section{Text: text}.HTTP()
		for name := range header {
			w.Header().Set(name, header.Get(name))
		}
		code := 0
		fmt.Sscan(status, &code)
		w.WriteHeader(code)
		text = body
	}
	io.WriteString(w, text)
	w.(http.Flusher).Flush()
}

// ---- What else the comments promise ----

// The table above next.
func TestNext(t *testing.T) {
	fault := func(status, code int, data string) error {
		return &failure{Status: status, Code: code, Data: json.RawMessage(data)}
	}
	for _, row := range []struct {
		versions []string
		err      error
		want     string
	}{
		{[]string{legacy, modern}, nil, modern},
		{[]string{"2025-06-18", legacy}, nil, legacy},
		{[]string{"2099-01-01"}, nil, ""},
		{nil, nil, ""},
		{nil, fault(400, unsupportedVersion, `{"supported":["2099-01-01","2025-11-25"]}`), legacy},
		{nil, fault(400, unsupportedVersion, `{"supported":["2026-07-28"]}`), ""},
		{nil, fault(400, unsupportedVersion, `"none"`), ""},
		{nil, fault(400, unsupportedVersion, ``), ""},
		{nil, fault(400, missingCapability, ``), modern},
		{nil, fault(400, headerMismatch, ``), ""},
		{nil, fault(301, 0, ``), ""},
		{nil, fault(401, 0, ``), ""},
		{nil, fault(403, -32000, ``), ""},
		{nil, fault(408, 0, ``), ""},
		{nil, fault(429, 0, ``), ""},
		{nil, fault(502, 0, ``), ""},
		{nil, &net.OpError{Op: "dial", Err: os.ErrNotExist}, ""},
		{nil, fault(404, 0, ``), legacy},
		{nil, fault(400, -32600, ``), legacy},
		{nil, fault(200, -32601, ``), legacy},
		{nil, fault(200, 0, ``), legacy},
		{nil, fmt.Errorf("wrapped: %w", context.DeadlineExceeded), legacy},
	} {
		if got := next(row.versions, row.err); got != row.want {
			t.Errorf("%q, %#v: %q instead of %q", row.versions, row.err, got, row.want)
		}
	}
}

// Each event holds what the specification of event streams says.
func TestReadEvent(t *testing.T) {
	for text, want := range map[string]string{
		"id: 1\ndata: {}\n\n":                       "1={}",
		"id:1\r\ndata:{}\r\n\r\n":                   "1={}",
		": comment\n\nid: a b\ndata:\n\ndata: {}\n": "= a b=",
		"event: message\ndata: {\ndata: }\n\n\n":    "={\n} =",
		"retry: 1500\nid: 1\n\nretry: soon\n\n":     "1=+1.5s =",
		"data":                                      "",
		"nonsense\n\n":                              "=",
	} {
		var got []string
		lines := bufio.NewScanner(strings.NewReader(text))
		for {
			e, err := readEvent(lines)
			if err != nil {
				if err != io.ErrUnexpectedEOF {
					t.Errorf("%q: %v", text, err)
				}
				break
			}
			one := e.id + "=" + string(e.data)
			if e.retry != 0 {
				one += "+" + e.retry.String()
			}
			got = append(got, one)
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q: %q instead of %q", text, got, want)
		}
	}
	lines := bufio.NewScanner(strings.NewReader(strings.Repeat("data: "+strings.Repeat("x", 1<<16-100)+"\n", 65)))
	if _, err := readEvent(lines); err != bufio.ErrTooLong {
		t.Errorf("%v after an event of more than %d bytes", err, maxSize)
	}
}

// A server is written as a function, which gets one request after another, and a message if it is a POST.
type server func(w http.ResponseWriter, r *http.Request, m message)

// use calls a tool of a server, and returns what the program prints, the error included.
func (s server) use(t *testing.T, answer string) string {
	t.Helper()
	var mu sync.Mutex
	host := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		var m message
		_ = json.NewDecoder(r.Body).Decode(&m)
		s(w, r, m)
	}))
	defer host.Close()
	var out strings.Builder
	c := newClient(host.URL, answer, &out)
	err := c.connect()
	if err == nil {
		err = c.run("tool", json.RawMessage(`{}`))
	}
	c.end()
	if err != nil {
		out.WriteString(err.Error())
	}
	return strings.ReplaceAll(out.String(), host.URL, "URL")
}

// modernServer finds the era, and leaves the calls to f. legacyServer does it with a session.
func modernServer(f server) server {
	return func(w http.ResponseWriter, r *http.Request, m message) {
		if m.Method == "server/discover" {
			respond(w, m, `{"supportedVersions":["2026-07-28"]}`)
			return
		}
		f(w, r, m)
	}
}

func legacyServer(f server) server {
	return func(w http.ResponseWriter, r *http.Request, m message) {
		switch m.Method {
		case "server/discover":
			w.WriteHeader(http.StatusNotFound)
		case "initialize":
			w.Header().Set("Mcp-Session-Id", "s")
			stream(w, "event: message\ndata: ") // the servers of others do that
			respond(w, m, `{"protocolVersion":"2025-11-25"}`)
			io.WriteString(w, "\n\n")
		case "notifications/initialized":
			w.WriteHeader(http.StatusAccepted)
		default:
			f(w, r, m)
		}
	}
}

func respond(w io.Writer, m message, result string) {
	fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":%s}`, m.ID, result)
}

func stream(w http.ResponseWriter, events string) {
	w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
	io.WriteString(w, events)
}

const report = `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":0.5,"message":"half"}}` + "\n\n"

// In the modern era a cut is an error: nothing is fetched, and the call is not made again.
func TestModernCut(t *testing.T) {
	calls := 0
	got := modernServer(func(w http.ResponseWriter, r *http.Request, m message) {
		calls++
		stream(w, "id: 1\n"+report)
	}).use(t, "")
	if want := "0.5 of ? half\nthe stream has ended before the answer: unexpected EOF"; got != want || calls != 1 {
		t.Errorf("%q, %d calls", got, calls)
	}
}

// In a session the client comes back until there is nothing new, or the server refuses.
func TestResume(t *testing.T) {
	for name, row := range map[string]struct {
		get        func(w http.ResponseWriter, n int)
		want, last string
		gets, more int // more: how many net/http may add by itself
	}{
		"nothing new":    {func(w http.ResponseWriter, n int) { stream(w, "id: 2\n\n: no id\n\n") }, "unexpected EOF", "2", maxTries, 0},
		"no connection":  {func(w http.ResponseWriter, n int) { panic(http.ErrAbortHandler) }, `Get "URL": EOF`, "1", maxTries, 1},
		"no such stream": {func(w http.ResponseWriter, n int) { w.WriteHeader(405) }, "HTTP 405: ", "1", 1, 0},
		"no stream":      {func(w http.ResponseWriter, n int) { w.WriteHeader(200) }, "HTTP 200: the response is no stream", "1", 1, 0},
		"too large":      {func(w http.ResponseWriter, n int) { stream(w, "data: "+strings.Repeat("x", maxSize+1)+"\n") }, "bufio.Scanner: token too long", "1", 1, 0},
		"something each time": {func(w http.ResponseWriter, n int) {
			if n < 20 {
				stream(w, "id: x\n"+report)
			}
		}, "HTTP 200: the response is no stream", "x", 20, 0},
	} {
		t.Run(name, func(t *testing.T) {
			gets, last, ended := 0, "", ""
			got := legacyServer(func(w http.ResponseWriter, r *http.Request, m message) {
				switch r.Method {
				case "POST":
					stream(w, "retry: 2\nid: 1\ndata:\n\n")
				case "GET":
					gets, last = gets+1, r.Header.Get("Last-Event-ID")
					row.get(w, gets)
				case "DELETE":
					ended = r.Header.Get("Mcp-Session-Id")
				}
			}).use(t, "")
			if !strings.HasSuffix(got, "the stream has ended before the answer: "+row.want) || gets < row.gets || gets > row.gets+row.more || last != row.last || ended != "s" {
				t.Errorf("%q, %d times, the last one after %q; ended %q", got, gets, last, ended)
			}
		})
	}
}

// A server may ask for what this client does not serve.
func TestRequestsOfTheServer(t *testing.T) {
	var replies []string
	legacyServer(func(w http.ResponseWriter, r *http.Request, m message) {
		switch {
		case m.Method != "":
			stream(w, `data: {"jsonrpc":"2.0","id":"another","result":{}}`+"\n\n")
			for i, method := range []string{"ping", "roots/list", "elicitation/create"} {
				fmt.Fprintf(w, "data: {\"jsonrpc\":\"2.0\",\"id\":\"%d\",\"method\":%q}\n\n", i, method)
			}
			io.WriteString(w, "data: ")
			respond(w, m, `{"content":[]}`)
			io.WriteString(w, "\n\n")
		case r.Method == "POST":
			text := string(m.ID) + string(m.Result)
			if m.Error != nil {
				text += fmt.Sprint(m.Error.Code)
			}
			replies = append(replies, text)
			w.WriteHeader(http.StatusAccepted)
		}
	}).use(t, "")
	if want := []string{`"0"{}`, `"1"-32601`, `"2"{"action":"decline"}`}; !slices.Equal(replies, want) {
		t.Errorf("%q", replies)
	}
}

// A server may be slow, wrong or hostile. The client ends, says why, and accepts nothing that its user has not seen.
func TestMistrust(t *testing.T) {
	const done = `data: {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"done"}]}}` + "\n\n"
	gets, replies := 0, ""
	for name, row := range map[string]struct {
		calls server // of a legacy session
		want  string
	}{
		"an error without an id": {func(w http.ResponseWriter, _ *http.Request, _ message) {
			stream(w, `data: {"jsonrpc":"2.0","error":{"code":-32600,"message":"the reason"}}`+"\n\n")
		}, "the reason"},
		"the error of another request": {func(w http.ResponseWriter, _ *http.Request, _ message) {
			io.WriteString(w, `{"jsonrpc":"2.0","id":99,"error":{"code":-1,"message":"another"}}`)
		}, "the response holds no answer"},
		"a GET that is refused once": {func(w http.ResponseWriter, r *http.Request, m message) {
			switch gets += map[string]int{"GET": 1}[r.Method]; {
			case m.Method == "tools/call":
				stream(w, "retry: 99999999999\nid: 1\n\n") // nobody waits so long
			case gets == 1:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				stream(w, done)
			}
		}, "done"},
		"text that controls the terminal": {func(w http.ResponseWriter, _ *http.Request, _ message) {
			stream(w, `data: {"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1,"message":"\u001b[2J"}}`+"\n\n"+strings.Replace(done, "done", `\u202edone`, 1))
		}, "\ufffd[2J"},
		"a page instead of a form": {func(w http.ResponseWriter, r *http.Request, m message) {
			if m.Method != "" {
				stream(w, `data: {"jsonrpc":"2.0","id":3,"method":"elicitation/create","params":{"mode":"url","url":"https://example.com","message":"?"}}`+"\n\n"+done)
				return
			}
			replies += string(m.Result)
			w.WriteHeader(http.StatusAccepted)
		}, "done"},
	} {
		got := legacyServer(row.calls).use(t, `{"name":"Ada"}`)
		if !strings.Contains(got, row.want) || strings.ContainsAny(got, "\x1b\u202e") {
			t.Errorf("%s: %q", name, got)
		}
	}
	if replies != `{"action":"decline"}` {
		t.Errorf("the page: %s", replies)
	}
}

// A modern server sends no requests. If one does, the client does not serve it.
func TestModernStream(t *testing.T) {
	posts := 0
	got := modernServer(func(w http.ResponseWriter, r *http.Request, m message) {
		posts++
		stream(w, `data: {"jsonrpc":"2.0","id":1,"method":"elicitation/create"}`+"\n\n"+report+"data: ")
		respond(w, m, `{"content":[{"type":"text","text":"done"}]}`)
		io.WriteString(w, "\n\n")
	}).use(t, `{}`)
	if got != "0.5 of ? half\ndone\n" || posts != 1 {
		t.Errorf("%q, %d posts", got, posts)
	}
}

// The client waits as long as the server wants before it comes back.
func TestRetry(t *testing.T) {
	begin := time.Now()
	got := legacyServer(func(w http.ResponseWriter, r *http.Request, m message) {
		if r.Method == "POST" {
			stream(w, "retry: 30\nid: 1\n\n")
		} else {
			stream(w, `data: {"jsonrpc":"2.0","id":3,"result":{"content":[{"type":"text","text":"done"}]}}`+"\n\n")
		}
	}).use(t, "")
	if waited := time.Since(begin); got != "done\n" || waited < 30*time.Millisecond {
		t.Errorf("%q after %v", got, waited)
	}
}

// The answers and the state of a modern call are those of the last round. A server cannot ask for ever.
func TestInputRequired(t *testing.T) {
	calls := 0
	got := modernServer(func(w http.ResponseWriter, r *http.Request, m message) {
		var params map[string]json.RawMessage
		_ = json.Unmarshal(m.Params, &params)
		answers, state := "", ""
		if calls > 0 {
			answers = fmt.Sprintf(`{"%d":{"action":"accept","content":{"a":1}}}`, calls)
		}
		if calls%2 == 1 {
			state = fmt.Sprintf(`"state %d"`, calls)
		}
		if string(params["inputResponses"]) != answers || string(params["requestState"]) != state {
			t.Errorf("call %d: %s", calls, m.Params)
		}
		calls++
		if state = ""; calls%2 == 1 {
			state = fmt.Sprintf(`,"requestState":"state %d"`, calls)
		}
		respond(w, m, fmt.Sprintf(`{"resultType":"input_required","inputRequests":{"%d":{"method":"elicitation/create"}}%s}`, calls, state))
	}).use(t, `{"a":1}`)
	if got != "the server has asked 10 times for input" || calls != maxRounds {
		t.Errorf("%q after %d calls", got, calls)
	}
	got = modernServer(func(w http.ResponseWriter, r *http.Request, m message) {
		respond(w, m, `{"resultType":"input_required","inputRequests":{"k":{"method":"roots/list"}}}`)
	}).use(t, "")
	if got != "the server asks for roots/list" {
		t.Error(got)
	}
}

// What a call returns, and what it fails with.
func TestAnswers(t *testing.T) {
	for want, body := range map[string]string{ // the id of the call is 2
		"one\n(image)\n":                         `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"one"},{"type":"image"}]}}`,
		"\ufffd[2J\n":                            `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"\u001b[2J"}]}}`,
		"no good":                                `{"jsonrpc":"2.0","id":2,"result":{"content":[{"type":"text","text":"no good"}],"isError":true}}`,
		"error -32602: Unknown tool: tool":       `{"jsonrpc":"2.0","id":2,"error":{"code":-32602,"message":"Unknown tool: tool"}}`,
		"HTTP 200: the response holds no answer": `{"jsonrpc":"2.0","id":3,"result":{}}`,
		"HTTP 200: the response holds no result of tools/call": `{"jsonrpc":"2.0","id":2,"result":[]}`,
		`the result has the unknown type "later"`:              `{"jsonrpc":"2.0","id":2,"result":{"resultType":"later"}}`,
		"http: request body too large":                         strings.Repeat(" ", maxSize) + `{}`,
	} {
		if got := modernServer(func(w http.ResponseWriter, r *http.Request, m message) { io.WriteString(w, body) }).use(t, ""); got != want {
			t.Errorf("%q instead of %q", got, want)
		}
	}
}

// What is no MCP server.
func TestNoServer(t *testing.T) {
	if got := server(func(w http.ResponseWriter, r *http.Request, m message) { http.Error(w, "no such page", 404) }).use(t, ""); got != "HTTP 404: no such page" {
		t.Error(got)
	}
	if got := server(func(w http.ResponseWriter, r *http.Request, m message) { io.WriteString(w, "<html>") }).use(t, ""); got != "HTTP 200: the response holds no answer" {
		t.Error(got)
	}
	requests := 0
	if got := server(func(w http.ResponseWriter, r *http.Request, m message) {
		requests++
		http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
	}).use(t, ""); got != "HTTP 307: " || requests != 1 {
		t.Error(got, requests)
	}
	if err := newClient("http://"+lesson.FreeAddress(t), "", io.Discard).connect(); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Error(err)
	}
}

// A server that does not answer server/discover, or not to its end, gets initialize.
func TestSilence(t *testing.T) {
	defer func(before time.Duration) { patience = before }(patience)
	patience = 20 * time.Millisecond
	for _, begin := range []string{"", "application/json", "text/event-stream"} {
		got := server(func(w http.ResponseWriter, r *http.Request, m message) {
			switch m.Method {
			case "server/discover":
				if begin != "" {
					w.Header().Set("Content-Type", begin)
					w.(http.Flusher).Flush()
				}
				<-r.Context().Done()
			case "initialize":
				respond(w, m, `{"protocolVersion":"2024-11-05"}`)
			}
		}).use(t, "")
		if got != `the server speaks "2024-11-05", and this client does not` {
			t.Errorf("%q: %s", begin, got)
		}
	}
}

// The client works with the third server of the course, a program of its own.
func TestThird(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	third := filepath.Join(t.TempDir(), "third")
	if out, err := exec.Command("go", "build", "-o", third, "../third").CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	address := lesson.Serve(t, third)
	for _, row := range []struct{ answer, tool, arguments, want string }{
		{"", "count", `{"n":2}`, "1 of 2\n2 of 2\ncounted to 2\n"},
		{`{"name":"Ada"}`, "ask", `{}`, "Hello, Ada\n"},
		{"", "ask", `{}`, "the client cannot ask its user"},
		{"", "no", `{}`, "error -32602: Unknown tool: no"},
	} {
		var out strings.Builder
		c := newClient("http://"+address+"/mcp", row.answer, &out)
		if err := calls(row.tool, row.arguments)(c); err != nil {
			out.WriteString(err.Error())
		}
		c.end()
		if out.String() != row.want {
			t.Errorf("%s: %q instead of %q", row.tool, out.String(), row.want)
		}
	}
}

// The files are not longer than README.md says, and README.md names what the client's messages have and the lessons' do not.
func TestReadme(t *testing.T) {
	for name, most := range map[string]int{"main.go": 305, "http.go": 270} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), "\n"); n > most {
			t.Errorf("%s has %d lines", name, n)
		}
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Concat(own[:1], always) {
		if !strings.Contains(string(readme), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
}
