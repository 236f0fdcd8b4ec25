// SPDX-License-Identifier: 0BSD

package main

// Most of what is tested stands in testdata, as text: lessons, and cases. They are conversations of
// a client and a server, and the first half of this file plays them. The second half tests what a
// conversation cannot show.
//
//	The player
//	  Pages                     TestLessons, TestCases; from a page to the steps of a conversation
//	  Playing                   each step is said to the tested end, or heard from it
//	  HTTP, as a page has it    what a page leaves out, and its short forms
//	  The server is tested      the page has the client's part
//	  The client is tested      the page has the server's part
//	Beside the pages
//	  Ways to a server          a network in memory, and helpers of the tests below
//	  Calls                     many at once, on each transport; what is not for the wire
//	  Streams                   cut anywhere, not read, too long to be kept
//	  Sessions                  how they end; what two requests change at once
//	  HTTP                      how much at once; whose session it is; what a header repeats
//	  What a server offers      lists, tools; other ends that send too much
//	  Processes                 a child, and a pipe to it that is full
//	  The program               its command line, its trace, its page
//	  Fuzz targets
//
// How a page is played, here one of a server. If the client is tested, its part is heard, and the
// server's is said:
//
//	the page                 the player               a bubble of testing/synctest
//	                                                ┌──────────────────────────────┐
//	    > {…,"id":1,…}  ───►  a step  ──── say ───────► exchange ───► the server   │
//	                                                │      │          that the     │
//	    < {…,"id":1,…}  ◄──►  a step  ◄─── hear ─────── unheard ◄──── program runs │
//	          compare                               └──────────────────────────────┘
//
// In a bubble, time is not real. synctest.Wait returns when each goroutine waits for something: the
// tested end has then said all that it has to say. And when all wait, the clock jumps to the next
// timer: an hour costs nothing, and that something takes one second is exact.
//
//	go test -race .                                       all of it
//	go test -run 'TestCases/http-requests/not_JSON' .     one case
//	go test -run 'TestLessons|TestCases' -update .        rewrites what the tested end says
//	go test -run '^$' -fuzz FuzzPost -fuzztime 1m .

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
)

// ==== Pages ====
//
// A page is a lesson, or has cases, each under a heading. What is played stands in the lines that are indented:
// testdata/cases/README.md has the notation.

var update = flag.Bool("update", false, "rewrite what the tested end says in testdata")

// Each lesson is one conversation, and so is each case.
func TestLessons(t *testing.T) { playPages(t, "testdata/[0-9]*.md", 38) }
func TestCases(t *testing.T)   { playPages(t, "testdata/cases/[a-z]*.md", 50) }

// playPages plays the pages whose names match a pattern. There are at least so many.
func playPages(t *testing.T, pattern string, least int) {
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) < least {
		t.Fatalf("%d pages, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".md"), func(t *testing.T) { playPage(t, file) })
	}
}

// playPage plays the conversations of a page. With -update it writes the page anew.
func playPage(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(strings.TrimSuffix(string(text), "\n"), "\n## ")
	head := conversationOf("", strings.Split(parts[0], "\n"), nil)
	lines := head.lines
	if len(parts) == 1 {
		lines = head.play(t)
	}
	for _, part := range parts[1:] {
		title, _, _ := strings.Cut(part, "\n")
		c := conversationOf(title, strings.Split("## "+part, "\n"), head.flags)
		played := c.lines // they stay as they are if -run leaves this case out
		t.Run(title, func(t *testing.T) { played = c.play(t) })
		lines = append(lines, played...)
	}
	if *update {
		if err := os.WriteFile(file, []byte(strings.Join(lines, "\n")+"\n"), 0o644); err != nil {
			t.Error(err)
		}
	}
}

type conversation struct {
	title   string   // of a case; a lesson has none
	flags   []string // the words after "$ mcpwire"
	version string   // of the handshake, if there is one
	lines   []string // of the page
	steps   []*step
}

// A step is what one side says in an exchange without a break, or what an application does or gets.
type step struct {
	from, to int           // its lines in the page
	isHidden bool          // it is in no line of the page
	isLast   bool          // at most (ends) comes after it in its exchange
	pause    time.Duration // that passes before it
	letter   string        // of its exchange over HTTP
	verb     string        // > or <, or a word
	text     string        // what is said, as it travels; or what stands behind the word
}

// pauseLine and playedLine match the lines that are played.
var (
	pauseLine  = regexp.MustCompile(`^    \((\S+) later\)$`)
	playedLine = regexp.MustCompile(`^    ([A-Z?]?)([<>]|handshake|handler|tool|call|list|cancel|close|` +
		`result|error|heard|\$ mcpwire)(?: (.*))?$`)
)

// stepOf returns the step that stands in a line, or nil: the line is for people.
func stepOf(line string) *step {
	if found := pauseLine.FindStringSubmatch(line); found != nil {
		pause, _ := time.ParseDuration(found[1]) // 0 if it is none, and the test fails
		return &step{verb: "pause", pause: pause}
	}
	if found := playedLine.FindStringSubmatch(line); found != nil {
		return &step{letter: found[1], verb: found[2], text: unescape(found[3] + "\n")}
	}
	return nil
}

// conversationOf finds the conversation in the lines of a page.
func conversationOf(title string, lines, flags []string) *conversation {
	c := &conversation{title: title, lines: lines, flags: flags}
	c.addSteps(lines)
	c.addOpening()
	isSeen := map[string]bool{}
	for _, s := range slices.Backward(c.steps) {
		s.isLast = !isSeen[s.letter]
		isSeen[s.letter] = isSeen[s.letter] || s.text != "(ends)\n"
	}
	return c
}

// addSteps adds the steps that stand in lines. Neighbours may be one step.
func (c *conversation) addSteps(lines []string) {
	var last *step // of the line before; nil: there is none
	for i, line := range lines {
		s := stepOf(line)
		switch {
		case s == nil:
			last = nil
			continue
		case s.verb == "$ mcpwire":
			c.flags, last = strings.Fields(s.text), nil
			continue
		case last != nil && last.verb == "pause":
			last.letter, last.verb, last.text = s.letter, s.verb, s.text
		case last != nil && last.isContinuedBy(s):
			last.text += s.text
		default:
			s.from, last = i, s
			c.steps = append(c.steps, s)
		}
		last.to = i + 1
	}
}

// isContinuedBy reports whether the next step is one with this: the same side says more.
func (s *step) isContinuedBy(next *step) bool {
	isSaid := s.verb == "<" || s.verb == ">"
	return isSaid && s.verb == next.verb && s.letter == next.letter && !s.isDirection() && !next.isDirection()
}

// isDirection reports whether this is no message: (ends), (breaks), (hangs up) and so on.
func (s *step) isDirection() bool { return strings.HasPrefix(s.text, "(") }

// addOpening adds the steps that open the conversation, where the page leaves them out: "handshake VERSION
// CAPABILITIES" stands for a handshake, and a Client that is modern finds out that its server is, too.
func (c *conversation) addOpening() {
	title, at, first, capabilities := "server/discover", 0, 0, "" // at: a line; first: a step
	i := slices.IndexFunc(c.steps, func(s *step) bool { return s.verb == "handshake" })
	switch {
	case i >= 0:
		title, at, first = "handshake", c.steps[i].to, i+1
		c.version, capabilities, _ = strings.Cut(strings.TrimSpace(c.steps[i].text), " ")
	case !c.isOurClient() || c.overSSE() || c.clientSays(`"server/discover"|"method":"initialize"`):
		return
	}
	if c.overHTTP() {
		title += " over HTTP"
	}
	page, _ := os.ReadFile("testdata/cases/client-openings.md") // if it is not there, hardly a case is as it was
	_, text, _ := strings.Cut(string(page), "\n## "+title+"\n")
	text, _, _ = strings.Cut(text, "\n## ")
	text = strings.NewReplacer("2025-11-25", c.version,
		`"capabilities":{},"clientInfo"`, `"capabilities":`+cmp.Or(capabilities, "{}")+`,"clientInfo"`).Replace(text)
	var opening conversation
	opening.addSteps(strings.Split(text, "\n"))
	for _, s := range opening.steps {
		s.from, s.to, s.isHidden = at, at, true
	}
	c.steps = slices.Insert(c.steps, first, opening.steps...)
}

// isOurClient reports whether the Client is tested, and not the server.
func (c *conversation) isOurClient() bool { return len(c.flags) > 0 && c.flags[0] == "call" }

// overHTTP reports whether the client makes requests, and does not write to a pipe.
func (c *conversation) overHTTP() bool { return c.clientSays(`^[A-Z]+ (/|http)`) }

// overSSE reports whether it uses the transport of 2024-11-05.
func (c *conversation) overSSE() bool { return c.clientSays(`^[A-Z]+ /sse`) }

// clientSays reports whether the client says something like this in the page.
func (c *conversation) clientSays(pattern string) bool {
	said := regexp.MustCompile(pattern)
	return slices.ContainsFunc(c.steps, func(s *step) bool { return s.verb == ">" && said.MatchString(s.text) })
}

// student is the _meta of a request of 2026-07-28, and icon the picture of the demo.
const (
	student = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",` +
		`"io.modelcontextprotocol/clientInfo":{"name":"student","version":"1.0"},` +
		`"io.modelcontextprotocol/clientCapabilities":{}}`
	icon = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJ" +
		"RU5ErkJggg=="
)

var (
	longWords  = strings.NewReplacer("«modern»", student, "«icon»", icon, "«»\n", "")
	shortWords = strings.NewReplacer(student, "«modern»", icon, "«icon»")
	escape     = regexp.MustCompile(`«([0-9a-f ]+|[^«»]*×[0-9]+)»`)
)

// unescape writes out what stands between « and »: «0d 0a» are bytes, «x×1000» is 1000 times x. «» at the end of a line
// joins it with the next.
func unescape(text string) string {
	return escape.ReplaceAllStringFunc(longWords.Replace(text), func(found string) string {
		inner := strings.Trim(found, "«»")
		if repeated, count, ok := strings.Cut(inner, "×"); ok {
			n, _ := strconv.Atoi(count) // it is a number
			return strings.Repeat(repeated, n)
		}
		raw, _ := hex.DecodeString(strings.ReplaceAll(inner, " ", "")) // it is hexadecimal
		return string(raw)
	})
}

// ==== Playing ====

// player plays the end that is not tested.
type player struct {
	t      *testing.T
	c      *conversation
	tested string // the verb of the tested end: > or <

	mu        sync.Mutex           // guards the fields below, what is heard in exchanges, and the fields of a clientEnd
	exchanges map[string]*exchange // by their letters
	changed   chan struct{}        // holds something when the tested end has done something
	sessions  []string             // their ids, in the order in which they were seen
}

// An end is tested: the server, or the client.
type end interface {
	say(s *step)           // says a step to it, or has its application do something
	hear(s *step) []string // returns what it says, or what its application gets, as lines of a page
	rest() []string        // ends it, and returns what it has said or done that no step shows
}

// play plays a conversation in a bubble. It returns the lines of the page, with what the tested end says.
func (c *conversation) play(t *testing.T) (lines []string) {
	synctest.Test(t, func(t *testing.T) {
		p := &player{t: t, c: c, tested: "<", exchanges: map[string]*exchange{}, changed: make(chan struct{}, 1)}
		if c.isOurClient() {
			p.tested = ">"
			lines = p.play(newClientEnd(p))
		} else {
			lines = p.play(newServerEnd(p))
		}
	})
	return lines
}

// play goes through the steps: what is not heard is said.
func (p *player) play(tested end) (lines []string) {
	at := 0 // the first line that is not in lines
	for _, s := range p.c.steps {
		lines, at = append(lines, p.c.lines[at:s.from]...), s.to
		isOutcome := s.verb == "result" || s.verb == "error" || s.verb == "heard"
		if isOutcome || s.verb == p.tested && s.text != "(breaks)\n" { // the network breaks, and not the tested end
			lines = append(lines, p.compare(s, tested.hear(s))...)
			continue
		}
		time.Sleep(s.pause)
		tested.say(s)
		synctest.Wait()
		lines = append(lines, p.c.lines[s.from:s.to]...)
	}
	if rest := tested.rest(); len(rest) > 0 {
		p.complain("and beside\n%s", strings.Join(rest, "\n"))
		lines = append(lines, rest...)
	}
	return append(lines, p.c.lines[at:]...)
}

// compare compares what was heard with the page, and returns it as the page shall have it. What a handshake brings is
// in no page.
func (p *player) compare(s *step, heard []string) []string {
	inPage := p.c.lines[s.from:s.to]
	got := strings.Join(heard, "\n")
	want := strings.TrimSuffix(unescape(strings.Join(inPage, "\n")+"\n"), "\n")
	if s.isHidden || got == want {
		return inPage
	}
	p.complain("line %d: got\n%s\nwant\n%s", s.from+1, got, want)
	return strings.Split(shortWords.Replace(got), "\n")
}

// complain fails the test. With -update it does nothing.
func (p *player) complain(format string, args ...any) {
	if !*update {
		p.t.Errorf(format, args...)
	}
}

// change changes what mu guards, and wakes await.
func (p *player) change(change func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	change()
	select {
	case p.changed <- struct{}{}:
	default: // it is told already
	}
}

// await waits until something has happened. If that takes time, it returns a line that says so.
func (p *player) await(hasHappened func() bool) (later []string) {
	began, never := time.Now(), time.After(2*time.Hour)
	for {
		synctest.Wait()
		p.mu.Lock()
		isDone := hasHappened()
		p.mu.Unlock()
		took := time.Since(began)
		switch {
		case isDone && took > 0:
			return []string{fmt.Sprintf("(%v later)", took)}
		case isDone:
			return nil
		}
		select {
		case <-p.changed:
		case <-never:
			return []string{"(nothing)"}
		}
	}
}

// exchange is a pipe, or a request and its response.
type exchange struct {
	p        *player
	say      func(text string) // says something to the tested end
	unheard  []byte            // what the tested end has said, and no step has heard yet
	isOver   bool              // it says nothing more here
	isStream bool              // the response is an event stream
}

// Write is how the tested end says something. A comment that only sends the header is no news.
func (x *exchange) Write(text []byte) (n int, err error) {
	x.p.change(func() {
		if x.isOver {
			err = io.ErrClosedPipe
			return
		}
		n = len(text)
		x.unheard = append(x.unheard, bytes.TrimPrefix(text, []byte(":\n\n"))...)
	})
	return n, err
}

// end says that the tested end says nothing more.
func (x *exchange) end() { x.p.change(func() { x.isOver = true }) }

// hasLine reports whether there is a line that is not heard. The caller holds mu.
func (x *exchange) hasLine() bool {
	return bytes.Contains(x.unheard, []byte("\n")) || x.isOver && len(x.unheard) > 0
}

// take takes what is not heard yet, at most max lines.
func (x *exchange) take(max int) (lines []string) {
	x.p.mu.Lock()
	defer x.p.mu.Unlock()
	for len(lines) < max && x.hasLine() {
		line, rest, _ := bytes.Cut(x.unheard, []byte("\n"))
		lines, x.unheard = append(lines, x.p.named(string(line))), rest
	}
	return lines
}

// hear waits until something is said, and returns as many lines as the step has. The last step gets all that was said
// until then, so that nothing is missing in an update.
func (x *exchange) hear(s *step) []string {
	isEnd := s.text == "(ends)\n"
	most := strings.Count(longForm(s.text), "\n")
	if s.isLast || isEnd {
		most = math.MaxInt
	}
	later := x.p.await(func() bool { return x.isOver || !isEnd && x.hasLine() })
	said := x.take(most)
	if longForm(s.text) != s.text {
		said = shortForm(said)
	}
	if isEnd && x.isOver {
		said = append(said, "(ends)")
	}
	return s.inPage(append(later, said...))
}

// inPage returns lines as they stand in a page.
func (s *step) inPage(lines []string) (indented []string) {
	for _, line := range lines {
		if !strings.HasSuffix(line, " later)") {
			line = strings.TrimSuffix(s.letter+s.verb+" "+line, " ")
		}
		indented = append(indented, "    "+line)
	}
	return indented
}

var sessionID = regexp.MustCompile(`\b[A-Z2-7]{26}\b`)

// named replaces the ids of sessions by session-1, session-2 and so on. The caller holds mu, or is alone.
func (p *player) named(text string) string {
	return sessionID.ReplaceAllStringFunc(text, func(id string) string {
		if !slices.Contains(p.sessions, id) {
			p.sessions = append(p.sessions, id)
		}
		return fmt.Sprintf("session-%d", slices.Index(p.sessions, id)+1)
	})
}

// unnamed is the reverse.
func (p *player) unnamed(text string) string {
	for i, id := range p.sessions {
		text = strings.ReplaceAll(text, fmt.Sprintf("session-%d", i+1), id)
	}
	return text
}

// ==== HTTP, as a page has it ====

// shortStream and shortMessage match "200 text/event-stream" and "200 {…}".
var (
	shortStream  = regexp.MustCompile(`^(\d{3}) text/event-stream\n`)
	shortMessage = regexp.MustCompile(`^(\d{3}) ([{\[].*)\n`)
)

// longForm writes out a response in short. Another text stays as it is.
func longForm(text string) string {
	text = shortStream.ReplaceAllString(text, "$1\nContent-Type: text/event-stream\n\n")
	return shortMessage.ReplaceAllString(text, "$1\nContent-Type: application/json\n\n$2\n")
}

// shortForm is the reverse.
func shortForm(lines []string) []string {
	switch {
	case len(lines) > 2 && lines[1] == "Content-Type: text/event-stream" && lines[2] == "":
		return slices.Concat([]string{lines[0] + " text/event-stream"}, lines[3:])
	case len(lines) == 4 && lines[1] == "Content-Type: application/json":
		return []string{lines[0] + " " + lines[3]}
	}
	return lines
}

// split splits a request or a response. A request in short has its body in the first line. A field without a value has
// none in header, but its name is there.
func split(text string) (first string, header http.Header, body string) {
	head, body, _ := strings.Cut(text, "\n\n")
	first, fields, _ := strings.Cut(strings.TrimSuffix(head, "\n"), "\n")
	if parts := strings.SplitN(first, " ", 3); len(parts) == 3 {
		first, body = parts[0]+" "+parts[1], parts[2]
	}
	header = http.Header{}
	for field := range strings.Lines(fields) {
		name, value, _ := strings.Cut(strings.TrimSuffix(field, "\n"), ":")
		name = http.CanonicalHeaderKey(name)
		if value == "" {
			header[name] = nil
		} else {
			header[name] = append(header[name], strings.TrimPrefix(value, " "))
		}
	}
	return first, header, body
}

// messageIn returns the first message of a text, or one that is invalid.
func messageIn(text string) *Message {
	if found := Decode([]byte(text)).Messages; len(found) > 0 {
		return found[0]
	}
	return &Message{Invalid: true}
}

// usual returns the fields that a case leaves out of a request, as each client sends them. A lesson leaves out nothing.
func (c *conversation) usual(s *step, request, body string) http.Header {
	header := http.Header{}
	if c.title == "" && !s.isHidden {
		return header
	}
	method, path, _ := strings.Cut(request, " ")
	isOld := strings.HasPrefix(path, "/sse?") // 2024-11-05 says nothing of Accept in a POST, but our Client sends it
	switch {
	case method == http.MethodPost && isOld && !c.isOurClient():
		header.Set("Content-Type", "application/json")
	case method == http.MethodPost:
		header.Set("Content-Type", "application/json")
		header.Set("Accept", "application/json, text/event-stream")
	case method == http.MethodGet:
		header.Set("Accept", "text/event-stream")
	}
	m := messageIn(body)
	modern := textOf(member(member(m.Params, "_meta"), metaVersion))
	switch {
	case c.version != "" && m.Method != "initialize" && m.Method != "server/discover":
		header.Set("Mcp-Session-Id", "session-1")
		if revision(c.version).VersionHeader {
			header.Set("Mcp-Protocol-Version", c.version)
		}
	case modern != "":
		header.Set("Mcp-Protocol-Version", modern)
		header.Set("Mcp-Method", m.Method)
		if name := textOf(member(m.Params, nameMember[m.Method])); name != "" {
			header.Set("Mcp-Name", name)
		}
	}
	return header
}

// unshown are fields that a page need not show.
var unshown = []string{"Cache-Control", "X-Accel-Buffering", "Content-Length", "Vary", "Access-Control-Expose-Headers",
	"Referer"}

// shown returns the lines of a header that belong into a page: what is unusual, and what the page shows of this side of
// this exchange. "NAME:" says that there is no such field.
func (c *conversation) shown(header, usual http.Header, letter, verb string) (lines []string) {
	inPage := http.Header{}
	isHere := func(s *step) bool { return s.letter == letter && s.verb == verb }
	if i := slices.IndexFunc(c.steps, isHere); i >= 0 {
		_, inPage, _ = split(longForm(c.steps[i].text))
	}
	names := maps.Clone(inPage)
	maps.Copy(names, usual)
	maps.Copy(names, header)
	for _, name := range slices.Sorted(maps.Keys(names)) {
		_, isInPage := inPage[name]
		isUsual := slices.Contains(unshown, name) || slices.Equal(header[name], usual[name])
		if isInPage || !isUsual {
			for _, value := range header[name] {
				lines = append(lines, name+": "+value)
			}
			if len(header[name]) == 0 {
				lines = append(lines, name+":")
			}
		}
	}
	return lines
}

// ==== The server is tested ====

// serverEnd is the server of the program: the demo on a pipe, or its two handlers behind a mux.
type serverEnd struct {
	p    *player
	demo *demo
	mcp  *StreamableHandler
	sse  *SSEHandler
	mux  http.Handler
}

// newServerEnd starts the server with the flags of the page.
func newServerEnd(p *player) end {
	var o options
	if err := o.parse("", p.c.flags); err != nil {
		p.t.Fatal(err)
	}
	e := &serverEnd{p: p, demo: newDemo()}
	e.demo.Versions = o.versions
	e.mcp, e.sse, e.mux = o.handlers(e.demo, nil)
	if p.c.overHTTP() {
		return e
	}
	in, out := io.Pipe()
	x := &exchange{p: p, say: writerTo(out)}
	p.exchanges[""] = x
	go func() { // ends when the player closes the pipe
		if err := Serve(p.t.Context(), NewLineConn(in, x, o.maxBody, in.Close), e.demo, nil); err != nil {
			p.t.Error(err)
		}
		x.end()
	}()
	return e
}

// writerTo returns what says something on a pipe, or closes it.
func writerTo(out *io.PipeWriter) func(text string) {
	return func(text string) {
		if text == "(hangs up)\n" {
			out.Close()
		}
		_, _ = io.WriteString(out, text) // nobody may read
	}
}

// say says something as the client, gives the server a method, or stops it.
func (e *serverEnd) say(s *step) {
	x := e.p.exchanges[s.letter]
	switch {
	case s.verb == "handler":
		e.setHandler(s.text)
	case s.verb == "tool":
		run := func(context.Context, *Exchange, map[string]any) (any, error) { return "it has run", nil }
		AddTool(e.demo.Server, Tool{Name: "tool", InputSchema: json.RawMessage(s.text)}, run)
	case s.verb == "close":
		go e.mcp.Close()
		go e.sse.Close()
	case s.verb == ">" && x == nil:
		e.begin(s)
	case s.verb != "handshake" && s.verb != "pause" && x != nil: // a line on a pipe; (hangs up), (breaks)
		x.say(s.text)
	}
}

// setHandler gives the server a method: "METHOD result JSON", "METHOD error JSON" or "METHOD asks JSON".
func (e *serverEnd) setHandler(text string) {
	words := strings.SplitN(strings.TrimSpace(text), " ", 3)
	method, verb, value := words[0], words[1], words[2]
	var result any
	var err error
	switch verb {
	case "result":
		result = json.RawMessage(value)
	case "asks":
		var need InputRequired
		err = json.Unmarshal([]byte(value), &need.Requests)
		result = need
	case "error":
		var fault Error
		if err = &fault; json.Unmarshal([]byte(value), &fault) != nil {
			err = errors.New(value)
		}
	}
	e.demo.Methods[method] = func(context.Context, *Exchange) (any, error) { return result, err }
}

// begin makes the request of a step. Its response comes into a new exchange.
func (e *serverEnd) begin(s *step) {
	ctx, cancel := context.WithCancel(e.p.t.Context())
	x := &exchange{p: e.p}
	x.say = func(direction string) { // (hangs up) or (breaks)
		x.end()
		if direction == "(breaks)\n" {
			x.unheard = nil // the network has lost it
		}
		cancel()
	}
	e.p.exchanges[s.letter] = x
	r := e.request(ctx, s)
	go func() {
		defer x.end()
		response, err := direct{e.mux}.RoundTrip(r)
		if err != nil {
			return // the client has gone
		}
		x.isStream = isStream(response)
		fmt.Fprintln(x, response.StatusCode)
		for _, field := range e.p.c.shown(response.Header, nil, s.letter, "<") {
			fmt.Fprintln(x, field)
		}
		body := bufio.NewReader(response.Body)
		if _, err := body.Peek(1); err == nil {
			fmt.Fprintln(x) // the empty line before a body
		}
		_, _ = io.Copy(x, body) // until the server ends it, or the client goes
	}()
}

// request returns the request that a step shows, with what the page leaves out.
func (e *serverEnd) request(ctx context.Context, s *step) *http.Request {
	first, header, body := split(e.p.unnamed(s.text))
	method, path, _ := strings.Cut(first, " ")
	body = strings.TrimSuffix(body, "\n")
	// Guard wants to know at which address the request has arrived.
	ctx = context.WithValue(ctx, http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080})
	r, err := http.NewRequestWithContext(ctx, method, "http://127.0.0.1:8080"+path, strings.NewReader(body))
	if err != nil {
		e.p.t.Fatal(err)
	}
	r.Header = e.p.c.usual(s, first, body)
	maps.Copy(r.Header, header)
	for _, values := range r.Header {
		for i, value := range values { // none: the page says that there is no such field
			values[i] = e.p.unnamed(value)
		}
	}
	r.Host = cmp.Or(r.Header.Get("Host"), r.Host)
	return r
}

// hear returns what the server says in an exchange.
func (e *serverEnd) hear(s *step) []string {
	if x := e.p.exchanges[s.letter]; x != nil {
		return x.hear(s)
	}
	return s.inPage([]string{"(nothing)"})
}

// rest ends all exchanges, and the server.
func (e *serverEnd) rest() (lines []string) {
	synctest.Wait()
	if x := e.p.exchanges[""]; x != nil {
		x.say("(hangs up)\n")
		e.p.await(func() bool { return x.isOver })
	}
	for _, letter := range slices.Sorted(maps.Keys(e.p.exchanges)) {
		x, s := e.p.exchanges[letter], &step{letter: letter, verb: "<"}
		lines = append(lines, s.inPage(shortForm(x.take(math.MaxInt)))...)
		isEnd := func(s *step) bool { return s.letter == letter && s.isDirection() }
		if x.isOver && x.isStream && !slices.ContainsFunc(e.p.c.steps, isEnd) {
			lines = append(lines, s.inPage([]string{"(ends)"})...)
		}
		x.say("")
	}
	e.mcp.Close()
	e.sse.Close()
	time.Sleep(24 * time.Hour) // for timers: a bubble ends when no goroutine is left
	return lines
}

// ==== The client is tested ====

// clientEnd is a Client with its application, and the server that the page plays.
type clientEnd struct {
	p       *player
	ctx     context.Context // of all calls
	cancel  context.CancelFunc
	client  Client
	answers map[string][]*Message // of the user, by the id of the question; "modern": in the modern era
	calls   []*appCall            // what the application waits for, or has got, and no step has shown
	notes   []string              // the notifications that no step has shown
	waiting []*request            // those that no step has shown
}

// appCall is a call of the application.
type appCall struct {
	ctx     context.Context
	cancel  context.CancelFunc
	outcome string // as a page has it; "": it runs
}

// newClientEnd makes a Client, and has it connect to what the page plays.
func newClientEnd(p *player) end {
	e := &clientEnd{p: p, answers: map[string][]*Message{}}
	e.ctx, e.cancel = context.WithCancel(p.t.Context())
	e.client = Client{Info: Implementation{Name: "student", Version: "1.0"}, Handler: HandlerFunc(e.handle)}
	if flags := p.c.flags; len(flags) > 1 {
		e.client.Versions = flags[2:] // call -protocol VERSION
	}
	for _, s := range p.c.steps {
		if _, text, ok := strings.Cut(s.text, `{"jsonrpc"`); ok && s.verb == ">" {
			e.learn(messageIn(`{"jsonrpc"` + text))
		}
	}
	connecting := e.newCall()
	dials := e.dialers()
	go func() {
		if err := e.client.Connect(connecting.ctx, dials...); err != nil {
			e.finish(connecting, nil, err)
			return
		}
		isThis := func(c *appCall) bool { return c == connecting }
		p.change(func() { e.calls = slices.DeleteFunc(e.calls, isThis) }) // no step shows it
	}()
	synctest.Wait()
	return e
}

// learn learns from a message of the page which version the Client offers, what it declares, and what its user answers.
func (e *clientEnd) learn(m *Message) {
	declared := member(member(m.Params, "_meta"), metaCapabilities)
	if m.Method == "initialize" {
		declared = member(m.Params, "capabilities")
		if !e.p.c.clientSays("server/discover") {
			e.client.Versions = []string{textOf(member(m.Params, "protocolVersion"))}
		}
	}
	_ = json.Unmarshal(declared, &e.client.Capabilities) // it need not be there
	for _, answer := range Each(member(m.Params, "inputResponses")) {
		e.answers["modern"] = append(e.answers["modern"], &Message{Result: answer})
	}
	if m.Kind() == KindResponse {
		e.answers[m.ID.String()] = append(e.answers[m.ID.String()], m)
	}
}

// dialers returns the ways to the server that the page plays: a pipe, HTTP+SSE alone, or a URL behind which there may be
// either transport.
func (e *clientEnd) dialers() []Dialer {
	url, web := "http://127.0.0.1:8080/mcp", &http.Client{Transport: direct{e}}
	if e.p.c.overSSE() {
		url = "http://127.0.0.1:8080/sse"
	}
	old := SSEDialer{URL: url, Client: web, MaxMessage: 4 << 20}
	switch {
	case !e.p.c.overHTTP():
		return []Dialer{DialerFunc(e.dial)}
	case e.p.c.overSSE() && !e.p.c.clientSays(`^POST /sse\b[^?]`):
		return []Dialer{old}
	}
	return []Dialer{&HTTPDialer{URL: url, Client: web, MaxMessage: 4 << 20}, old}
}

// ---- The application ----

// handle is the Handler of the Client. It remembers a notification, and answers a question as the page does, or never.
func (e *clientEnd) handle(ctx context.Context, x *Exchange) (any, error) {
	if x.Request.Kind() == KindNotification {
		note := strings.TrimSpace(x.Request.Method + " " + string(x.Request.Params))
		e.p.change(func() { e.notes = append(e.notes, note) })
		return nil, nil
	}
	id := x.Request.ID.String()
	if x.Revision().Modern {
		id = "modern"
	}
	var answer *Message
	e.p.change(func() {
		if answers := e.answers[id]; len(answers) > 0 {
			answer, e.answers[id] = answers[0], answers[1:]
		}
	})
	switch {
	case answer == nil:
		<-ctx.Done()
		return nil, ctx.Err()
	case answer.Error != nil:
		return nil, answer.Error
	}
	return answer.Result, nil
}

// newCall adds a call of the application.
func (e *clientEnd) newCall() *appCall {
	c := &appCall{}
	c.ctx, c.cancel = context.WithCancel(e.ctx)
	e.p.change(func() { e.calls = append(e.calls, c) })
	return c
}

// finish remembers the outcome of a call.
func (e *clientEnd) finish(c *appCall, result json.RawMessage, err error) {
	outcome := strings.TrimSpace("result " + string(result))
	if err != nil {
		outcome = "error " + strings.ReplaceAll(err.Error(), "\n", " / ")
	}
	e.p.change(func() { c.outcome = outcome })
}

// say says something as the server, or does something as the application.
func (e *clientEnd) say(s *step) {
	switch s.verb {
	case "<":
		if x := e.p.exchanges[s.letter]; x != nil {
			x.say(s.text)
		} else {
			e.p.complain("nothing waits for %s< %s", s.letter, s.text)
		}
	case "cancel": // the oldest call that runs
		if i := slices.IndexFunc(e.calls, func(c *appCall) bool { return c.outcome == "" }); i >= 0 {
			e.calls[i].cancel()
		}
	case "call", "list", "close":
		c := e.newCall()
		go func() {
			result, err := e.perform(c.ctx, s)
			e.finish(c, result, err)
		}()
	}
}

// perform does what a step of the application says.
func (e *clientEnd) perform(ctx context.Context, s *step) (result json.RawMessage, err error) {
	method, params, hasParams := strings.Cut(strings.TrimSpace(s.text), " ")
	switch {
	case s.verb == "close":
		err = e.client.Close()
	case s.verb == "list":
		var items []json.RawMessage
		if items, err = List[json.RawMessage](ctx, &e.client, method, params); err == nil {
			result, err = json.Marshal(items)
		}
	case method == "subscriptions/listen":
		var filter ListenFilter
		if err = json.Unmarshal([]byte(params), &filter); err == nil {
			err = e.client.Listen(ctx, filter)
		}
	case hasParams:
		err = e.client.Call(ctx, method, json.RawMessage(params), &result)
	default:
		err = e.client.Call(ctx, method, nil, &result)
	}
	return result, err
}

// hear returns what the Client says, or what its application gets.
func (e *clientEnd) hear(s *step) []string {
	x := e.p.exchanges[s.letter]
	switch {
	case s.verb == "heard" && len(e.notes) > 0:
		note := e.notes[0]
		e.notes = e.notes[1:]
		return []string{"    heard " + note}
	case s.verb == "heard":
		return []string{"    heard none"}
	case s.verb != ">":
		return e.nextOutcome()
	case s.letter == "" && x != nil:
		return x.hear(s)
	case s.isDirection() && x != nil: // (hangs up)
		later := e.p.await(func() bool { return x.isOver })
		return s.inPage(append(later, strings.TrimSpace(s.text)))
	}
	return e.nextRequest(s)
}

// nextOutcome returns that of the oldest call that no step has shown.
func (e *clientEnd) nextOutcome() []string {
	if len(e.calls) == 0 {
		return []string{"    (nobody calls)"}
	}
	c := e.calls[0]
	later := e.p.await(func() bool { return c.outcome != "" })
	e.calls = slices.DeleteFunc(e.calls, func(other *appCall) bool { return other == c })
	return append((&step{}).inPage(later), "    "+cmp.Or(c.outcome, "(the call does not return)"))
}

// rest closes the Client.
func (e *clientEnd) rest() (lines []string) {
	synctest.Wait()
	for _, c := range e.calls {
		if c.outcome != "" && c.outcome != "result" {
			lines = append(lines, "    "+c.outcome)
		}
	}
	go e.client.Close()
	synctest.Wait()
	for _, x := range e.waiting {
		s := &step{letter: "?", verb: ">"}
		lines = append(lines, s.inPage(e.text(x, s))...)
		x.say("404\n")
	}
	e.cancel()
	if x := e.p.exchanges[""]; x != nil {
		lines = append(lines, (&step{verb: ">"}).inPage(x.take(math.MaxInt))...)
	}
	for _, x := range e.p.exchanges {
		x.end()
		x.say("(hangs up)\n")
	}
	time.Sleep(3 * time.Hour) // for timers: a bubble ends when no goroutine is left
	return lines
}

// ---- Its network ----

// dial starts a server on a pipe, which the page plays. It may be the second one, in place of the first.
func (e *clientEnd) dial(context.Context) (Conn, error) {
	x := e.p.exchanges[""]
	if x == nil {
		x = &exchange{p: e.p}
		e.p.exchanges[""] = x
	} else {
		e.p.change(func() { x.unheard, x.isOver = append(x.unheard, "(starts again)\n"...), false })
	}
	in, out := io.Pipe()
	x.say = writerTo(out)
	return NewLineConn(in, x, 4<<20, func() error { x.end(); return in.Close() }), nil
}

// request is a request of the Client.
type request struct {
	*exchange
	http   *http.Request
	sent   string      // its body
	texts  chan string // what the page says in the response
	goesOn bool        // until the Client hangs up
}

// ServeHTTP is the server that the page plays.
func (e *clientEnd) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	sent, _ := io.ReadAll(r.Body) // it is in memory
	x := &request{exchange: &exchange{p: e.p}, http: r, sent: string(sent), texts: make(chan string, 1000)}
	x.say = func(text string) { x.texts <- text }
	if text := e.answerBeside(x); text != "" {
		x.say(text)
	} else {
		e.p.change(func() { e.waiting = append(e.waiting, x) })
	}
	for hasBegun, goesOn := false, true; goesOn; hasBegun = true {
		select {
		case text := <-x.texts:
			goesOn = x.respond(w, text, hasBegun)
		case <-r.Context().Done(): // the Client hangs up
			x.end()
			return
		}
	}
}

// respond begins the response, goes on with it, or ends it. It is complete at once if it is no stream, and the Client
// does not hang up on it.
func (x *request) respond(w http.ResponseWriter, text string, hasBegun bool) (goesOn bool) {
	switch {
	case text == "(breaks)\n":
		panic(http.ErrAbortHandler)
	case strings.HasPrefix(text, "("): // (ends); (hangs up), when all is over
		return false
	case hasBegun:
		_, _ = io.WriteString(w, text) // the Client may have gone
		return true
	}
	first, header, body := split(longForm(text))
	status, _ := strconv.Atoi(first) // 0 if it is none, and the test fails
	maps.Copy(w.Header(), header)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, body)
	return x.goesOn || header.Get("Content-Type") == "text/event-stream"
}

// answerBeside returns the answer to a request that the page leaves out, as it is the same each time. "": the page
// shows it.
func (e *clientEnd) answerBeside(x *request) string {
	isShown := slices.ContainsFunc(e.p.c.steps, func(s *step) bool { return s.verb == ">" && x.is(s) })
	switch {
	case x.http.Method == http.MethodDelete && !isShown:
		return "204\n"
	case x.http.Method == http.MethodGet && x.http.Header["Last-Event-Id"] == nil && !isShown:
		return "405\n"
	}
	return ""
}

// nextRequest waits for the request that a step shows, and begins its exchange. If it does not come, another one that
// waits is taken in its place, so that an update shows it.
func (e *clientEnd) nextRequest(s *step) []string {
	isThis := func(x *request) bool { return x.is(s) }
	later := e.p.await(func() bool { return slices.ContainsFunc(e.waiting, isThis) })
	if len(e.waiting) == 0 {
		return s.inPage(later)
	}
	i := max(0, slices.IndexFunc(e.waiting, isThis))
	x := e.waiting[i]
	e.waiting = slices.Delete(e.waiting, i, i+1)
	e.p.exchanges[s.letter] = x.exchange
	hangsUp := func(o *step) bool { return o.letter == s.letter && o.text == "(hangs up)\n" }
	x.goesOn = slices.ContainsFunc(e.p.c.steps, hangsUp)
	return s.inPage(append(later, e.text(x, s)...))
}

// is reports whether a request is the one that a step shows, whatever the details.
func (x *request) is(s *step) bool {
	first, header, body := split(s.text)
	ours, theirs := messageIn(x.sent), messageIn(body)
	isResuming, isShownResuming := x.http.Header["Last-Event-Id"] != nil, header["Last-Event-Id"] != nil
	return strings.HasPrefix(first, x.http.Method+" ") && isResuming == isShownResuming &&
		ours.Method == theirs.Method && ours.ID == theirs.ID
}

// text returns a request as it stands in a page.
func (e *clientEnd) text(x *request, s *step) []string {
	first := x.http.Method + " " + strings.TrimPrefix(x.http.URL.String(), "http://127.0.0.1:8080")
	lines := append([]string{first}, e.p.c.shown(x.http.Header, e.p.c.usual(s, first, x.sent), s.letter, ">")...)
	switch {
	case x.sent == "":
		return lines
	case len(lines) == 1:
		return []string{first + " " + x.sent}
	}
	return append(lines, "", x.sent)
}

// ==== Ways to a server ====

// inMemory returns how a client reaches a handler over HTTP, without a network.
func inMemory(h http.Handler) *http.Client {
	return &http.Client{Transport: direct{h}, Timeout: 20 * time.Millisecond} // for whole responses: it is ignored
}

// direct is a network with a handler at its end. There is no other in a bubble.
type direct struct{ http.Handler }

// RoundTrip has the handler serve a request, and returns its response when that begins.
func (d direct) RoundTrip(r *http.Request) (*http.Response, error) {
	x := &crossing{header: http.Header{}, begun: make(chan struct{}), parts: make(chan []byte, 10000), end: io.EOF}
	x.open, x.hangUp = context.WithCancel(r.Context())
	in := r.Clone(x.open)
	in.RequestURI = r.URL.RequestURI()
	go x.serve(d.Handler, in)
	select {
	case <-x.begun:
		if x.status == 0 {
			return nil, x.end
		}
		return &http.Response{StatusCode: x.status, Header: x.header.Clone(), Body: x, Request: r}, nil
	case <-x.open.Done():
		return nil, context.Cause(x.open)
	}
}

// crossing is the ResponseWriter of a handler, and the body that its client reads. A write does not wait for the
// client: a stream holds its lock meanwhile, and a bubble's time stands still while anybody waits for a lock.
type crossing struct {
	header http.Header
	status int // 0: the network breaks before there is one
	once   sync.Once
	begun  chan struct{}   // closed when the header is there
	parts  chan []byte     // of the body; closed: it ends
	end    error           // how it ends
	unread []byte          // of the last part
	open   context.Context // until the client hangs up
	hangUp context.CancelFunc
}

// serve runs a handler. That it panics means that the network breaks.
func (x *crossing) serve(h http.Handler, r *http.Request) {
	defer close(x.parts)
	defer func() {
		if fault := recover(); fault == http.ErrAbortHandler {
			x.end = io.ErrUnexpectedEOF
			x.WriteHeader(0)
		} else if fault != nil {
			panic(fault)
		}
	}()
	h.ServeHTTP(x, r)
	x.Flush()
}

func (x *crossing) Header() http.Header              { return x.header }
func (x *crossing) SetWriteDeadline(time.Time) error { return nil }
func (x *crossing) Flush()                           { x.WriteHeader(http.StatusOK) }
func (x *crossing) WriteHeader(status int)           { x.once.Do(func() { x.status = status; close(x.begun) }) }

func (x *crossing) Write(text []byte) (int, error) {
	x.Flush()
	if x.open.Err() == nil {
		x.parts <- bytes.Clone(text)
	}
	return len(text), context.Cause(x.open)
}

// Read reads what has come. When the client hangs up, it returns.
func (x *crossing) Read(text []byte) (n int, err error) {
	for len(x.unread) == 0 {
		select {
		case part, isOpen := <-x.parts:
			if !isOpen {
				return 0, x.end
			}
			x.unread = part
		case <-x.open.Done():
			return 0, context.Cause(x.open)
		}
	}
	n = copy(text, x.unread)
	x.unread = x.unread[n:]
	return n, nil
}

// Close hangs up.
func (x *crossing) Close() error {
	x.hangUp()
	return nil
}

// piped returns how a client reaches a handler on a pipe.
func piped(t *testing.T, h Handler, log *slog.Logger) Dialer {
	return DialerFunc(func(context.Context) (Conn, error) {
		ours, theirs := Pipe()
		go func() { _ = Serve(t.Context(), theirs, h, log) }() // it ends with the pipe
		return ours, nil
	})
}

// connected returns a Client that has reached a server, and is closed at the end of the test. Its user is Ada.
func connected(t *testing.T, dial Dialer, versions ...string) *Client {
	c := &Client{Info: Implementation{Name: "test", Version: "1"}, Versions: versions}
	c.Handlers = map[string]HandlerFunc{"elicitation/create": func(context.Context, *Exchange) (any, error) {
		return ElicitResult{Action: "accept", Content: json.RawMessage(`{"name":"Ada"}`)}, nil
	}}
	if err := c.Connect(t.Context(), dial); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c
}

// serving returns a handler with sessions, whose streams keep so many bytes each. It is closed at the end of the test.
func serving(t *testing.T, handler Handler, keep int) *StreamableHandler {
	h := &StreamableHandler{Handler: handler, Sessions: &Sessions{Keep: keep}}
	t.Cleanup(h.Close)
	return h
}

// httpRequest returns a request for a handler. A field of the header is "NAME: VALUE".
func httpRequest(ctx context.Context, method, body string, fields ...string) *http.Request {
	r := httptest.NewRequestWithContext(ctx, method, "/", strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for _, field := range fields {
		name, value, _ := strings.Cut(field, ": ")
		r.Header.Add(name, value)
	}
	return r
}

// send makes a request to a handler, and waits for the end of the response.
func send(h http.Handler, method, body string, fields ...string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httpRequest(context.Background(), method, body, fields...))
	return w
}

// post makes a POST.
func post(h http.Handler, body string, fields ...string) *httptest.ResponseRecorder {
	return send(h, http.MethodPost, body, fields...)
}

// resume continues the first stream of a session from its beginning.
func resume(h http.Handler, session string) *httptest.ResponseRecorder {
	return send(h, http.MethodGet, "", session, "Last-Event-Id: 1/0")
}

// open opens a session, and returns the field of the header that names it.
func open(h http.Handler, fields ...string) string {
	const initialize = `{"jsonrpc":"2.0","id":1,"method":"initialize",` +
		`"params":{"protocolVersion":"2025-11-25","capabilities":{}}}`
	return "Mcp-Session-Id: " + post(h, initialize, fields...).Header().Get("Mcp-Session-Id")
}

// countInSession is a call in a session that reports each step.
func countInSession(id, n, delayMs int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"count",`+
		`"arguments":{"n":%d,"delayMs":%d},"_meta":{"progressToken":1}}}`, id, n, delayMs)
}

// postCall calls a tool in 2026-07-28.
func postCall(h http.Handler, tool, arguments string, fields ...string) *httptest.ResponseRecorder {
	fields = append(fields, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: "+tool)
	params := `{"name":"` + tool + `","arguments":` + arguments + `,` + student + `}`
	return post(h, `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":`+params+`}`, fields...)
}

// count is a call of count by a Client.
func count(n, delayMs int) CallToolParams {
	return CallToolParams{Name: "count", Arguments: map[string]int{"n": n, "delayMs": delayMs}}
}

// ==== Calls ====

// Many calls at once, on each way to talk to the demo, with reports, questions, notifications and cancellations: each
// gets what is its own, and nothing more after its answer, whatever its handler has left behind. Progress that does not
// rise is not sent. A handler whose call is cancelled ends, however early that is. One of a question that panics fails
// the call. Nothing is kept in the end.
func TestCallsAtOnce(t *testing.T) {
	for _, way := range []struct{ transport, version string }{
		{"pipe", "2026-07-28"}, {"pipe", "2025-11-25"}, {"HTTP", "2026-07-28"}, {"HTTP", "2025-11-25"},
		{"HTTP without Flush", "2025-11-25"}, {"HTTP+SSE behind a prefix", "2025-06-18"}, {"bridge", "2025-11-25"},
	} {
		bubble := func(t *testing.T) {
			d, told := newDemo(), new(atomic.Int64)
			d.Methods["notifications/mine"] = func(context.Context, *Exchange) (any, error) {
				told.Add(1)
				return nil, nil
			}
			mcp, sse := serving(t, d, 1<<20), &SSEHandler{Handler: d}
			t.Cleanup(sse.Close)
			c := connected(t, dialerOf(t, way.transport, d, mcp, sse), way.version)
			callAtOnce(t, c, d)
			c.Close()
			mcp.Sessions.Close()
			if synctest.Wait(); mcp.Sessions.kept.Load() != 0 || told.Load() != 20 {
				t.Error(mcp.Sessions.kept.Load(), "bytes are kept,", told.Load(), "have been told")
			}
		}
		t.Run(way.transport+" "+way.version, func(t *testing.T) { synctest.Test(t, bubble) })
	}
}

// A bridge between two ends that write by hand. What the server writes in its own way finds its call, what is no message
// is not answered, batches pass, and a question of the server gets an id of the bridge. A notification that the server
// does not read is given up, and what comes after it passes on the same connection: a new one would begin with
// initialize.
func TestBridgeByHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		near, client := net.Pipe()
		far, server := net.Pipe()
		dial := func(context.Context) (Conn, error) { return NewLineConn(far, far, 0, far.Close), nil }
		b := &bridged{options: &options{target: []string{"http://localhost/"}}, ways: []Dialer{DialerFunc(dial)}}
		b.client = NewLineConn(near, near, 0, near.Close)
		go func() { _ = Serve(t.Context(), b.client, HandlerFunc(b.toServer), nil) }() // ends with the pipe
		for _, end := range []net.Conn{client, server} {
			_ = end.SetDeadline(time.Now().Add(time.Hour)) // a pipe has deadlines
			defer end.Close()
		}
		toClient, toServer, began := bufio.NewScanner(client), bufio.NewScanner(server), time.Now()
		for _, step := range []struct {
			from net.Conn
			line string
			to   *bufio.Scanner // nil: nobody gets this line
			want string         // "": the same
		}{
			{client, `{"jsonrpc":"2.0","id":"é/","method":"initialize","params":{}}`, toServer, ""},
			{server, `{"jsonrpc":"2.0","id":"\u00e9\/","result":{"protocolVersion":"2025-03-26"}}`, toClient,
				`{"jsonrpc":"2.0","id":"é/","result":{"protocolVersion":"2025-03-26"}}`},
			{server, "Listening on port 8080", nil, ""},
			{server, `{"jsonrpc":"2.0","id":0,"method":"ping"}`, toClient, `{"jsonrpc":"2.0","id":1,"method":"ping"}`},
			{client, `{"jsonrpc":"2.0","id":1,"result":{}}`, toServer, `{"jsonrpc":"2.0","id":0,"result":{}}`},
			{client, `[{"jsonrpc":"2.0","id":2,"method":"ping"}]`, toServer, `{"jsonrpc":"2.0","id":2,"method":"ping"}`},
			{server, `[{"jsonrpc":"2.0","id":2,"result":{}}]`, toClient, `[{"jsonrpc":"2.0","id":2,"result":{}}]`},
			{client, `{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}`, nil, ""},
			{client, `{"jsonrpc":"2.0","id":3,"method":"ping"}`, toServer, ""},
		} {
			fmt.Fprintln(step.from, step.line)
			if step.to == nil {
				continue
			}
			if !step.to.Scan() || step.to.Text() != cmp.Or(step.want, step.line) {
				t.Fatalf("%s\ngot %s", step.line, step.to.Text())
			}
		}
		if spent := time.Since(began); spent != 10*time.Second {
			t.Error("the notification was given up after", spent)
		}
	})
}

// dialerOf returns a way of TestCallsAtOnce.
func dialerOf(t *testing.T, transport string, d *demo, mcp, sse http.Handler) Dialer {
	switch transport {
	case "HTTP":
		return &HTTPDialer{URL: "http://localhost/", Client: inMemory(mcp)}
	case "HTTP without Flush": // as some middleware has it
		hiding := func(w http.ResponseWriter, r *http.Request) { mcp.ServeHTTP(struct{ http.ResponseWriter }{w}, r) }
		return &HTTPDialer{URL: "http://localhost/", Client: inMemory(http.HandlerFunc(hiding))}
	case "HTTP+SSE behind a prefix": // the endpoint is named as the client sees it
		return SSEDialer{URL: "http://localhost/api/sse?key=1", Client: inMemory(http.StripPrefix("/api", sse))}
	case "bridge": // it finds that there is no Streamable HTTP
		ours, theirs := Pipe()
		old := SSEDialer{URL: "http://localhost/", Client: inMemory(sse)}
		b := &bridged{options: &options{target: []string{old.URL}}, client: theirs, end: func(error) {}}
		b.ways = []Dialer{&HTTPDialer{URL: old.URL, Client: old.Client}, old}
		go func() { _ = Serve(t.Context(), theirs, HandlerFunc(b.toServer), nil) }() // ends with the pipe
		t.Cleanup(func() { b.server.Close() })
		return DialerFunc(func(context.Context) (Conn, error) { return ours, nil })
	}
	return piped(t, d, nil)
}

// callAtOnce makes the calls of TestCallsAtOnce.
func callAtOnce(t *testing.T, c *Client, d *demo) {
	var waiting atomic.Int64
	AddTool(d.Server, Tool{Name: "wait"}, func(ctx context.Context, _ *Exchange, _ struct{}) (any, error) {
		waiting.Add(1)
		defer waiting.Add(-1)
		<-ctx.Done()
		return nil, ctx.Err()
	})
	AddTool(d.Server, Tool{Name: "report"}, func(ctx context.Context, x *Exchange, _ struct{}) (any, error) {
		for _, progress := range []float64{0, 1, 3, 2, 3, 4} {
			if err := x.Progress(ctx, progress, 0, ""); err != nil {
				return nil, err
			}
		}
		time.AfterFunc(time.Second, func() { _ = x.Progress(context.WithoutCancel(ctx), 5, 0, "") }) // too late
		return "done", nil
	})
	var calls sync.WaitGroup
	for i := range 20 {
		calls.Go(func() {
			var result ToolResult
			seen := 0
			report := func(ProgressParams) { seen++ }
			err := c.CallWithProgress(t.Context(), "tools/call", count(i, 3), &result, report)
			if err != nil || result.Text() != fmt.Sprint("counted to ", i) || seen != i {
				t.Errorf("%d: %v, %v, %d reports", i, result, err, seen)
			}
		})
		calls.Go(func() {
			if result, err := c.CallTool(t.Context(), "ask", nil); err != nil || result.Text() != "Hello, Ada" {
				t.Error(result, err)
			}
			if err := c.Notify(t.Context(), "notifications/mine", nil); err != nil {
				t.Error(err)
			}
		})
		calls.Go(func() {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			if _, err := c.CallTool(ctx, "wait", nil); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		})
	}
	calls.Wait()
	if synctest.Wait(); waiting.Load() != 0 {
		t.Error(waiting.Load(), "handlers wait on")
	}
	c.Handlers["elicitation/create"] = func(context.Context, *Exchange) (any, error) { panic("?") }
	if result, err := c.CallTool(t.Context(), "ask", nil); err == nil && !result.IsError {
		t.Error(result)
	}
	var heard []string
	c.Handler = HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
		heard = append(heard, string(member(x.Request.Params, "progress")))
		return nil, nil
	})
	report := CallToolParams{Name: "report"}
	err := c.CallWithProgress(t.Context(), "tools/call", report, nil, func(ProgressParams) {})
	if time.Sleep(2 * time.Second); err != nil || !slices.Equal(heard, []string{"0", "1", "3", "4"}) {
		t.Error(heard, err)
	}
}

// What a handler says or does that is not for the wire costs only its request, and is logged.
func TestInternalErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		damaged := &Error{Code: 1, Message: "no", Data: json.RawMessage("disk full")}
		s := &Server{Methods: map[string]HandlerFunc{
			"plain":   func(context.Context, *Exchange) (any, error) { return nil, errors.New("disk full") },
			"panic":   func(context.Context, *Exchange) (any, error) { panic("disk full") },
			"damaged": func(context.Context, *Exchange) (any, error) { return nil, damaged },
		}}
		c := connected(t, piped(t, s, slog.New(slog.NewTextHandler(&log, nil))))
		for method := range s.Methods {
			fault, ok := errors.AsType[*Error](c.Call(t.Context(), method, nil, nil))
			if !ok || fault.Code != CodeInternalError || fault.Message != "Internal error" || fault.Data != nil {
				t.Error(method, fault)
			}
		}
		if synctest.Wait(); strings.Count(log.String(), "disk full") < 2 {
			t.Errorf("logged: %s", &log)
		}
	})
}

// Before Connect, and after the context of Open, nothing hangs or panics.
func TestUnconnected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := new(Client)
		if err := c.Call(t.Context(), "ping", nil, nil); err == nil {
			t.Error("a call before Connect")
		}
		if c.Connect(t.Context()) == nil || c.Call(t.Context(), "ping", nil, nil) == nil {
			t.Error("no way to connect")
		}
		ours, _ := Pipe()
		ctx, cancel := context.WithCancel(t.Context())
		p := Open(ctx, ours, &Server{}, nil)
		cancel()
		if err := p.Call(t.Context(), "x", nil, nil); err == nil {
			t.Error("a call after the context of Open")
		}
	})
}

// ==== Streams ====

// cutter is a network that breaks the first event stream of a POST after so many bytes.
type cutter struct {
	http.RoundTripper
	after int64
	isCut bool
}

func (c *cutter) RoundTrip(r *http.Request) (*http.Response, error) {
	response, err := c.RoundTripper.RoundTrip(r)
	if err == nil && r.Method == http.MethodPost && isStream(response) && !c.isCut {
		c.isCut = true
		type reader struct {
			io.Reader
			io.Closer
		}
		broken := io.MultiReader(io.LimitReader(response.Body, c.after), iotest.ErrReader(io.ErrUnexpectedEOF))
		response.Body = reader{broken, response.Body}
	}
	return response, err
}

// A stream is cut after each of its bytes: the client misses nothing, and hears nothing twice.
func TestCutAtEachByte(t *testing.T) {
	for after := int64(15); after < 460; after++ { // before the first id, nothing can be continued
		synctest.Test(t, func(t *testing.T) {
			web := inMemory(serving(t, newDemo(), 1<<20))
			web.Transport = &cutter{RoundTripper: web.Transport, after: after}
			c := connected(t, &HTTPDialer{URL: "http://localhost/", Client: web}, "2025-11-25")
			var result ToolResult
			var seen []float64
			report := func(p ProgressParams) { seen = append(seen, p.Progress) }
			err := c.CallWithProgress(t.Context(), "tools/call", count(3, 5), &result, report)
			if err != nil || result.Text() != "counted to 3" || !slices.Equal(seen, []float64{1, 2, 3}) {
				t.Fatal(after, result, err, seen)
			}
		})
	}
}

// recorder is a response that records its write deadlines. Before each write it calls a function, which may be that of a
// client that does not read.
type recorder struct {
	*httptest.ResponseRecorder
	deadlines chan time.Time
	before    func() error // the error of the write
}

func newRecorder(before func() error) *recorder {
	return &recorder{httptest.NewRecorder(), make(chan time.Time, 1000), before}
}

func (w *recorder) Flush()                             {}
func (w *recorder) SetWriteDeadline(t time.Time) error { w.deadlines <- t; return nil }

func (w *recorder) Write(text []byte) (int, error) {
	if err := w.before(); err != nil {
		return 0, err
	}
	return w.ResponseRecorder.Write(text)
}

// A client that does not read is given up after 30 seconds, and what it has missed is kept for it. A write has a
// deadline, and the silence after it has none: HTTP/2 would reset the stream.
func TestSlowReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serving(t, newDemo(), 1<<20)
		h.KeepAlive = -1
		session := open(h)
		// Its writes fail at once: a bubble's time stands still while a stream holds its lock.
		slow := newRecorder(func() error { return os.ErrDeadlineExceeded })
		h.ServeHTTP(slow, httpRequest(t.Context(), http.MethodPost, countInSession(2, 3, 0), session))
		if left := time.Until(<-slow.deadlines); left.Round(time.Second) != 30*time.Second {
			t.Error("a write may take", left)
		}
		w := resume(h, session)
		if strings.Count(w.Body.String(), `"progress":`) != 3 || !strings.Contains(w.Body.String(), "counted to 3") {
			t.Error(w.Code, w.Body)
		}
		silent := newRecorder(func() error { return nil })
		go h.ServeHTTP(silent, httpRequest(t.Context(), http.MethodGet, "", session))
		synctest.Wait()
		last := <-silent.deadlines
		for len(silent.deadlines) > 0 {
			last = <-silent.deadlines
		}
		if !last.IsZero() {
			t.Error("silence may last until", last)
		}
	})
}

// Who comes back takes over at once, even if a write to the older response is stalled.
func TestNewerReader(t *testing.T) {
	h := serving(t, newDemo(), 1<<20)
	session, stalled := open(h), make(chan struct{})
	var old *recorder
	old = newRecorder(func() error {
		close(stalled)
		for deadline := (time.Time{}); deadline.IsZero() || time.Until(deadline) > 0; {
			select {
			case deadline = <-old.deadlines:
			case <-time.After(5 * time.Second): // so that the test ends
				t.Error("the older response is not taken back")
				return os.ErrDeadlineExceeded
			}
		}
		return os.ErrDeadlineExceeded
	})
	go h.ServeHTTP(old, httpRequest(t.Context(), http.MethodPost, countInSession(2, 3, 0), session))
	<-stalled
	if w := resume(h, session); !strings.Contains(w.Body.String(), "counted to 3") {
		t.Error(w.Code, w.Body)
	}
}

// Of a stream that is too long to be kept, the oldest events go, and are freed though their array lives on. However
// much others keep, each stream keeps a little.
func TestKeptEvents(t *testing.T) {
	for _, test := range []struct{ others, kept int }{{0, 20_000}, {maxAllKept, leastKept}} { // bytes
		st := &stream{table: &Sessions{Keep: 20_000}, resumable: true, state: streamAway}
		st.kept = make([]keptEvent, 0, 100)
		array := st.kept[:100]
		st.table.kept.Store(int64(test.others))
		for range 100 {
			text := json.RawMessage(`"` + strings.Repeat("x", 400) + `"`)
			if err := st.send(t.Context(), &Message{Method: "notifications/mine", Params: text}); err != nil {
				t.Fatal(err)
			}
		}
		isRight := st.size <= test.kept && st.size > test.kept-600
		if !isRight || st.table.kept.Load() != int64(test.others+st.size) {
			t.Error(test, len(st.kept), "events are kept:", st.size, st.table.kept.Load())
		}
		isHere := func(e keptEvent) bool { return e.text != nil }
		if slices.ContainsFunc(array[:100-len(st.kept)], isHere) {
			t.Error(test, "an event is there that is not kept")
		}
	}
}

// ==== Sessions ====

// Calls, clients that come back while the answer is written, and the end of their session, at any moment: each call is
// answered, and nothing stays behind.
func TestSessionsEnd(t *testing.T) {
	answered := regexp.MustCompile("counted to 3|The session has ended")
	synctest.Test(t, func(t *testing.T) {
		h := serving(t, newDemo(), 1<<20)
		var calls sync.WaitGroup
		for i := range 50 {
			session := open(h)
			isContinued := i%2 == 0 // another request takes one of the calls over
			for id := range 4 {
				calls.Go(func() {
					w := post(h, countInSession(id, 3, 10), session)
					isAnswered := w.Code == http.StatusNotFound || answered.MatchString(w.Body.String())
					isLeft := isContinued && !strings.Contains(w.Body.String(), `"id":`)
					if !isAnswered && !isLeft {
						t.Error(w.Code, w.Body)
					}
				})
			}
			if isContinued {
				calls.Go(func() { resume(h, session) })
			}
			calls.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				send(h, http.MethodDelete, "", session)
			})
		}
		calls.Wait()
		if synctest.Wait(); h.Sessions.kept.Load() != 0 {
			t.Error(h.Sessions.kept.Load(), "bytes are kept")
		}
	})
}

// Ids of sessions are long, of visible ASCII, and tell nothing of each other.
func TestSessionIDs(t *testing.T) {
	h, isTaken := serving(t, newDemo(), 0), map[string]bool{}
	for range 50 {
		_, id, _ := strings.Cut(open(h), ": ")
		begin, end := id[:len(id)/2], id[len(id)/2:]
		if !regexp.MustCompile("^[!-~]{26,}$").MatchString(id) || isTaken[begin] || isTaken[end] {
			t.Error(id)
		}
		isTaken[begin], isTaken[end] = true, true
	}
}

// A session that is deleted between two steps of a request leaves nothing behind.
func TestSessionEndsBetween(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serving(t, newDemo(), 1<<20)
		_, id, _ := strings.Cut(open(h), ": ")
		s := h.Sessions.startUse(id, "")
		h.Sessions.remove(s, ErrSessionEnded)
		st := &stream{table: h.Sessions}
		h.Sessions.addStream(s, st)
		st.add(payload(&Message{Method: "m"}))
		if h.Sessions.endCall(s, st); len(h.Sessions.ended) > 0 || h.Sessions.kept.Load() > 0 {
			t.Error("its stream is kept")
		}
		if h.Sessions.endUse(s); s.idle.Stop() {
			t.Error("it waits for its end")
		}
	})
}

// A GET for what is not kept any more is refused, and takes nothing away from who reads the stream.
func TestRefusedResume(t *testing.T) {
	h := serving(t, newDemo(), 1)
	session := open(h)
	s := h.Sessions.startUse(strings.TrimPrefix(session, "Mcp-Session-Id: "), "")
	st, lending := &stream{table: h.Sessions, keepAlive: time.Hour}, context.Background()
	h.Sessions.addStream(s, st)
	lending = h.Sessions.takeOver(lending, st)
	st.lend(httptest.NewRecorder())
	st.send(t.Context(), &Message{Method: "m"})
	if w := resume(h, session); w.Code != http.StatusBadRequest || lending.Err() != nil {
		t.Error(w.Code, w.Body, lending.Err())
	}
}

// A session is not idle while its initialize runs, which may take longer than an idle session has.
func TestSlowInitialize(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := serving(t, HandlerFunc(func(context.Context, *Exchange) (any, error) {
			time.Sleep(2 * time.Minute)
			return struct{}{}, nil
		}), 0)
		id := open(h)
		time.Sleep(59 * time.Second)
		if w := send(h, http.MethodDelete, "", id); id == "Mcp-Session-Id: " || w.Code != http.StatusOK {
			t.Error(id, w.Code, w.Body)
		}
	})
}

// Sessions may end while they are opened.
func TestSessionsEndEarly(t *testing.T) {
	for range 50 {
		var opening sync.WaitGroup
		h := serving(t, newDemo(), 1<<20)
		for range 8 {
			opening.Go(func() { open(h) })
		}
		h.Sessions.Close()
		if opening.Wait(); len(h.Sessions.byID) > 0 {
			t.Fatal("a session is left")
		}
	}
}

// When all streams together keep too much, or there are too many, the streams that ended first go.
func TestOldestStreamsGo(t *testing.T) {
	h := serving(t, newDemo(), 1<<20)
	_, id, _ := strings.Cut(open(h), ": ")
	s := h.Sessions.startUse(id, "")
	ended := func() *stream {
		st := &stream{table: h.Sessions}
		h.Sessions.addStream(s, st)
		st.add(payload(&Message{Method: "m"}))
		h.Sessions.endCall(s, st)
		return st
	}
	h.Sessions.Keep = 1
	if ended(); len(h.Sessions.ended) > 0 {
		t.Error("a stream that keeps nothing takes the place of another")
	}
	h.Sessions.Keep = 1 << 20
	h.Sessions.kept.Store(maxAllKept)
	if first, second := ended(), ended(); len(first.kept) > 0 || len(second.kept) == 0 {
		t.Error("the oldest stream is kept, or the newest is not")
	}
	h.Sessions.kept.Store(0)
	for range maxEnded + 10 {
		ended()
	}
	if n := len(h.Sessions.ended); n > maxEnded+1 {
		t.Error(n, "streams are kept")
	}
}

// Two requests that change what was agreed on with a client do not undo each other's change.
func TestAgreement(t *testing.T) {
	s, p, isReady := &Server{}, &Peer{}, make(chan struct{})
	s.changeAgreement(p, func(a *agreement) {
		go func() {
			s.changeAgreement(p, func(a *agreement) { a.isReady = true })
			close(isReady)
		}()
		select {
		case <-isReady: // it has not waited for us, so we undo it
		case <-time.After(20 * time.Millisecond):
		}
		a.meta.LogLevel = new("info")
	})
	<-isReady
	if agreed := agreementOf(p); !agreed.isReady || agreed.meta.LogLevel == nil {
		t.Errorf("%+v", agreed)
	}
}

// ==== HTTP ====

// More requests at once than may be are refused, of a handler and of a peer.
func TestRequestsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &StreamableHandler{Handler: newDemo(), MaxRequests: 2}
		for range 2 {
			go post(h, countInSession(1, 1, 100))
		}
		if synctest.Wait(); post(h, countInSession(1, 1, 100)).Code != http.StatusServiceUnavailable {
			t.Error("a third request")
		}
		c := connected(t, piped(t, newDemo(), nil), "2025-11-25")
		for range 1024 {
			go c.CallTool(t.Context(), "count", count(1, 60000).Arguments)
		}
		time.Sleep(10 * time.Second) // each takes a millisecond to begin
		if c.Call(t.Context(), "prompts/list", nil, nil) == nil {
			t.Error("one request too many")
		}
		c.Close()
	})
}

// A body that is too large is refused: unread, if that was announced.
func TestBodyTooLarge(t *testing.T) {
	h := &StreamableHandler{Handler: newDemo(), Guard: Guard{MaxBody: 1000}}
	for _, announced := range []int64{-1, 1001} {
		w, r := httptest.NewRecorder(), httpRequest(t.Context(), http.MethodPost, "")
		body := strings.NewReader(strings.Repeat(" ", 1001))
		r.ContentLength, r.Body = announced, io.NopCloser(body)
		h.ServeHTTP(w, r)
		if isUnread := body.Len() == 1001; w.Code != http.StatusRequestEntityTooLarge || isUnread != (announced > 0) {
			t.Error(announced, w.Code, w.Body, body.Len())
		}
	}
}

// Bytes in use are counted when they have come, and until their answer is written: also one that repeats a long id.
func TestBytesInUse(t *testing.T) {
	d := newDemo()
	h := &StreamableHandler{Handler: d}
	type text struct {
		Text string `json:"text"`
	}
	AddTool(d.Server, Tool{Name: "used"}, func(context.Context, *Exchange, text) (any, error) {
		return fmt.Sprint(h.held.Load()), nil
	})
	w := postCall(h, "used", `{"text":"`+strings.Repeat("x", 1<<20)+`"}`)
	if !regexp.MustCompile(`"text":"2[0-9]{6}"`).MatchString(w.Body.String()) || h.held.Load() != 0 {
		t.Error(h.held.Load(), w.Body)
	}
	var held int64 // while the refusal is written
	refused := newRecorder(func() error { held = h.held.Load(); return nil })
	long := `{"jsonrpc":"2.0","id":"` + strings.Repeat("x", 1<<20) + `","method":"ping"}`
	h.ServeHTTP(refused, httpRequest(t.Context(), http.MethodPost, long, "Mcp-Protocol-Version: 1999-01-01"))
	if refused.Code != http.StatusBadRequest || held < 1<<20 || h.held.Load() != 0 {
		t.Error(refused.Code, held, h.held.Load())
	}
}

// Where too many bytes are in use, or in results that wait to be encoded, small messages are served, and large ones
// refused: those that come, and those that are the answer.
func TestTooManyBytes(t *testing.T) {
	defer unencoded.Store(0)
	for _, test := range []struct {
		held, unencoded      int64
		text, repeat, status int
	}{
		{maxHeld, 0, 10, 1, 200}, {maxHeld, 0, 3000, 1, 200}, {maxHeld, 0, 5000, 1, 503}, {maxHeld, 0, 3000, 20, 503},
		{0, maxHeld, 1, 1000, 200}, {0, maxHeld, 1, 100_000, 503},
	} {
		h := &StreamableHandler{Handler: newDemo()}
		h.held.Store(test.held)
		unencoded.Store(test.unencoded)
		w := postCall(h, "echo", fmt.Sprintf(`{"text":"%s","repeat":%d}`, strings.Repeat("x", test.text), test.repeat))
		if w.Code != test.status || h.held.Load() != test.held || unencoded.Load() != test.unencoded {
			t.Error(test, w.Code, h.held.Load()-test.held, unencoded.Load())
		}
	}
}

// The answer to a question counts as long as its call runs.
func TestHeldAnswers(t *testing.T) {
	s := &Server{}
	AddTool(s, Tool{Name: "ask"}, func(_ context.Context, x *Exchange, _ struct{}) (any, error) {
		if x.Inputs() == nil {
			return InputRequired{Requests: map[string]InputRequest{"name": nameQuestion}}, nil
		}
		return fmt.Sprint(x.Peer.held.Load()), nil
	})
	result, err := connected(t, piped(t, s, nil), "2025-11-25").CallTool(t.Context(), "ask", nil)
	if err != nil || result.Text() == "0" {
		t.Error(result, err)
	}
}

// However often a client says that it is ready, one subscriber is kept of it.
func TestReadyAgain(t *testing.T) {
	s, p := &Server{}, newPeer(t.Context(), nil, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 50_000 {
		s.changeAgreement(p, func(a *agreement) { a.revision, a.isReady = revision("2025-11-25"), false })
		s.setReady(p)
	}
	runtime.GC()
	runtime.ReadMemStats(&after)
	if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); len(s.subscribers) != 1 || grown > 2<<20 {
		t.Error(len(s.subscribers), "subscribers,", grown, "bytes more")
	}
	p.cancel(nil) // and if it ends while it says so, nothing is left
	s.addSubscriber(p, &subscriber{})
	s.changeAgreement(p, func(a *agreement) { a.isReady = false })
	if s.setReady(p); len(s.subscribers) > 0 {
		t.Error("a subscriber whose client has gone is left")
	}
}

// Who is not let in is told why, and a session belongs to the user who has opened it.
func TestAuthentication(t *testing.T) {
	h := serving(t, newDemo(), 0)
	const forbidden = `Bearer error="insufficient_scope", scope="write"`
	h.Authenticate = func(r *http.Request) (string, error) {
		switch name := r.Header.Get("Authorization"); name {
		case "":
			return "", errors.New("who are you?")
		case "Nobody": // as an unknown key of a map would give it
			return "", nil
		case "Eve":
			return "", &AuthError{Status: http.StatusForbidden, Challenge: forbidden}
		default:
			return name, nil
		}
	}
	session := open(h, "Authorization: Ada")
	for user, want := range map[string]string{
		"Ada": "200 ", "Bob": "404 ", "": "401 Bearer", "Nobody": "401 Bearer", "Eve": "403 " + forbidden,
	} {
		w := post(h, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, session, "Authorization: "+user)
		if got := fmt.Sprint(w.Code, " ", w.Header().Get("WWW-Authenticate")); got != want {
			t.Errorf("%q: %s", user, got)
		}
	}
}

// A header of ours travels with each request. net/http may repeat a request that was lost, but never one that calls a
// tool, or that tells something of its own: an Idempotency-Key without a value, which it does not send, tells it so.
func TestRequestHeader(t *testing.T) {
	h, isRepeatable := serving(t, newDemo(), 0), map[string]bool{}
	web := inMemory(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, isRepeatable[r.Header.Get("Mcp-Method")] = r.Header["Idempotency-Key"]
		if r.Header.Get("Authorization") != "Bearer secret" {
			t.Error(r.Method, r.Header)
		}
		h.ServeHTTP(w, r)
	}))
	dialer := &HTTPDialer{URL: "http://localhost/", Client: web}
	dialer.Header = http.Header{"Authorization": {"Bearer secret"}}
	c := connected(t, dialer, "2026-07-28")
	_, err := c.CallTool(t.Context(), "echo", map[string]string{"text": "x"})
	err = errors.Join(err, c.Call(t.Context(), "tools/list", nil, nil), c.Notify(t.Context(), "notifications/mine", nil))
	if err != nil {
		t.Error(err)
	}
	if isRepeatable["tools/call"] || isRepeatable["notifications/mine"] || !isRepeatable["tools/list"] {
		t.Error(isRepeatable)
	}
}

// A client answers no more than a thousand questions of one call, and none twice: a server could fill its memory.
func TestTooManyQuestions(t *testing.T) {
	const question = `:{"method":"elicitation/create"}`
	many := `"0"` + question
	for i := range maxQuestions {
		many += fmt.Sprintf(`,"%d"%s`, i+1, question)
	}
	for _, questions := range []string{many, `"a"` + question + `,"a"` + question} {
		s := &Server{Methods: map[string]HandlerFunc{"m": func(context.Context, *Exchange) (any, error) {
			return json.RawMessage(`{"resultType":"input_required","inputRequests":{` + questions + `}}`), nil
		}}}
		err := connected(t, piped(t, s, nil)).Call(t.Context(), "m", nil, nil)
		if err == nil || !strings.Contains(err.Error(), "more than 1000 questions at once, or one twice") {
			t.Errorf("%.100s: %v", questions, err)
		}
	}
}

// A requestState is good for the call that it was made for, at the same server, for the same user, for an hour.
func TestStateIsBound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		ask := func(_ context.Context, x *Exchange, _ map[string]any) (any, error) {
			if x.State() == "" {
				return InputRequired{State: "approved"}, nil
			}
			return x.State(), nil
		}
		AddTool(s, Tool{Name: "read"}, ask)
		AddTool(s, Tool{Name: "delete"}, ask)
		h := &StreamableHandler{Handler: s}
		h.Authenticate = func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
		call := func(user, tool, arguments, state string) string {
			return postCall(h, tool, arguments+state, "Authorization: "+user).Body.String()
		}
		state := regexp.MustCompile(`,"requestState":"[^"]+"`).FindString(call("Ada", "read", `{"n":1}`, ""))
		for _, test := range []struct {
			server, user, tool, arguments string
			later                         time.Duration
			isGood                        bool
		}{
			{"", "Ada", "read", `{"n":1}`, 0, true},
			{"another", "Ada", "read", `{"n":1}`, 0, false},
			{"", "Ada", "read", `{"n":1000000}`, 0, false},
			{"", "Ada", "delete", `{"n":1}`, 0, false},
			{"", "Grace", "read", `{"n":1}`, 0, false},
			{"", "Ada", "read", `{"n":1}`, 59 * time.Minute, true},
			{"", "Ada", "read", `{"n":1}`, 2 * time.Minute, false},
		} {
			time.Sleep(test.later)
			s.Info.Name = test.server
			got := call(test.user, test.tool, test.arguments, state)
			if strings.Contains(got, `"text":"approved"`) != test.isGood {
				t.Errorf("%v: %s", test, got)
			}
		}
	})
}

// ==== What a server offers ====

// A cursor still fits when tools come and go: what is there all the time is listed once.
func TestCursorsAreStable(t *testing.T) {
	s, added := &Server{}, 0
	add := func(name string) {
		AddTool(s, Tool{Name: name}, func(context.Context, *Exchange, struct{}) (any, error) { return nil, nil })
	}
	for i := range 120 {
		add(fmt.Sprintf("tool-%03d", i))
	}
	changing := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		result, err := s.Handle(ctx, x)
		if added++; x.Request.Method == "tools/list" {
			add(fmt.Sprintf("tool-000-%d", added)) // before the cursor
			s.RemoveTool("tool-049")               // to which it refers
		}
		return result, err
	})
	tools, err := List[Tool](t.Context(), connected(t, piped(t, changing, nil)), "tools/list", "tools")
	if err != nil || len(tools) != 120 || tools[119].Name != "tool-119" {
		t.Error(len(tools), err)
	}
}

// A subscription is for what it has asked for, and never for log messages and progress. While a client reads nothing, few
// news wait for it: the newest about each list and resource.
func TestNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, reads, got := &Server{}, make(chan struct{}), []string{}
		all := ListenFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true}
		all.ResourceSubscriptions = []string{"a:b"}
		s.addSubscriber("all", &subscriber{filter: all, send: func(m *Message) error {
			<-reads
			got = append(got, fmt.Sprintf("%s %s", m.Method, member(m.Params, "n")))
			return nil
		}})
		s.addSubscriber("none", &subscriber{send: func(m *Message) error { t.Error(m.Method); return nil }})
		kinds := []string{"tools/list_changed", "prompts/list_changed", "resources/list_changed", "resources/updated"}
		for n := range 100 {
			for _, kind := range append(kinds, "message", "progress") {
				s.Publish("notifications/"+kind, map[string]any{"n": n, "uri": "a:b"})
			}
			synctest.Wait()
		}
		close(reads)
		synctest.Wait()
		want := []string{"notifications/tools/list_changed 0"}
		for _, kind := range kinds {
			want = append(want, "notifications/"+kind+" 99")
		}
		if !slices.Equal(got, want) {
			t.Error(got)
		}
	})
}

// What is taken away is no longer offered. A server that announces changes of a list has that list, even if it is empty
// just now.
func TestRemove(t *testing.T) {
	d := newDemo()
	d.Announce = append(d.Announce, "prompts")
	d.RemoveTool("echo")
	d.RemovePrompt("summarize-note")
	d.RemoveResource("note:///welcome")
	d.RemoveResourceTemplate("note:///{name}")
	c := connected(t, piped(t, d, nil), "2025-11-25")
	for method, gone := range map[string]string{"tools/list": `"echo"`, "prompts/list": "summarize-note",
		"resources/list": "note:///welcome", "resources/templates/list": "note:///{name}"} {
		var result json.RawMessage
		if err := c.Call(t.Context(), method, nil, &result); err != nil || bytes.Contains(result, []byte(gone)) {
			t.Errorf("%s: %s, %v", method, result, err)
		}
	}
	if declared := c.Server().Capabilities; !bytes.Contains(declared, []byte(`"prompts":{"listChanged":true}`)) {
		t.Errorf("%s", declared)
	}
}

// What a tool returns, as it travels: bytes are Base64, an object is there as text, too, and what is no object is an
// error. The arguments may be a struct without tags.
func TestContents(t *testing.T) {
	all := []Content{TextContent(""), {Type: "image", Data: []byte{1, 2, 3}, MimeType: "image/png"},
		{Type: "resource_link", URI: "a:b", Name: "b"},
		{Type: "resource", Resource: &ResourceContents{URI: "a:c", MimeType: "x/y", Blob: []byte{0}}}}
	const wire = `[{"type":"text","text":""},{"type":"image","data":"AQID","mimeType":"image/png"},` +
		`{"type":"resource_link","uri":"a:b","name":"b"},` +
		`{"type":"resource","resource":{"uri":"a:c","mimeType":"x/y","blob":"AA=="}}]`
	type arguments struct {
		A int
		B string `json:"-"`
		_ int
	}
	for _, test := range []struct {
		returned any
		want     string // "": an error
	}{
		{ToolResult{Content: all}, `{"content":` + wire + `}`},
		{&ToolResult{IsError: true}, `{"content":[],"isError":true}`},
		{map[string]int{"n": 1}, `{"content":[{"type":"text","text":"{\"n\":1}"}],"structuredContent":{"n":1}}`},
		{TextContent("a"), `{"content":[{"type":"text","text":"a"}]}`},
		{"a", `{"content":[{"type":"text","text":"a"}]}`},
		{nil, `{"content":[]}`},
		{[]string{"a"}, ""},
	} {
		s := &Server{}
		AddTool(s, Tool{Name: "t"}, func(_ context.Context, _ *Exchange, args arguments) (any, error) {
			if args.B != "" {
				t.Error("a field that has no name is set")
			}
			return test.returned, nil
		})
		c := connected(t, piped(t, s, nil), "2025-11-25")
		var got json.RawMessage
		err := c.Call(t.Context(), "tools/call", CallToolParams{Name: "t", Arguments: map[string]any{"A": 1, "-": "b"}}, &got)
		if string(got) != test.want || (err != nil) != (test.want == "") {
			t.Errorf("%v: %s, %v", test.returned, got, err)
		}
	}
	var read []Content
	if err := json.Unmarshal([]byte(wire), &read); err != nil || !reflect.DeepEqual(read, all) {
		t.Error(read, err)
	}
}

// A schema that no client could use is refused when it is offered.
func TestWrongSchema(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a schema that is no JSON is taken")
		}
	}()
	tool := Tool{Name: "bad", InputSchema: json.RawMessage("{")}
	AddTool(&Server{}, tool, func(context.Context, *Exchange, struct{}) (any, error) { return nil, nil })
}

// A schema without end is not read to its end: what follows the hundredth mark makes it wrong.
func TestTooManyMarks(t *testing.T) {
	properties := ""
	for n := range maxMarks + 1 {
		properties += fmt.Sprintf(`,"%d":{"type":"string","x-mcp-header":"P%d"}`, n, n)
		found, err := ReadHeaderParams(json.RawMessage(`{"properties":{` + properties[1:] + `}}`))
		if isTooMany := n == maxMarks; (err != nil) != isTooMany || !isTooMany && len(found) != n+1 {
			t.Error(n+1, len(found), err)
		}
	}
}

// A server that logs by itself learns the level from Meta, and Log sends nothing.
func TestOwnLogging(t *testing.T) {
	s := &Server{Capabilities: map[string]any{"logging": struct{}{}}}
	AddTool(s, Tool{Name: "level"}, func(ctx context.Context, x *Exchange, _ struct{}) (any, error) {
		return fmt.Sprintf("level %q", *cmp.Or(x.Meta().LogLevel, new("none"))), x.Log(ctx, "error", "x")
	})
	h := serving(t, s, 0)
	session := open(h)
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"level",`
	legacy, modern := call+`"arguments":{}}}`, call+strings.Replace(student, `{"io`, `{"io.modelcontextprotocol/logLevel":"debug","io`, 1)+`}}`
	first := post(h, legacy, session).Body.String()
	post(h, `{"jsonrpc":"2.0","id":2,"method":"logging/setLevel","params":{"level":"error"}}`, session)
	second := post(h, legacy, session).Body.String()
	third := post(h, modern, "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: level").Body.String()
	for want, got := range map[string]string{"none": first, "error": second, "debug": third} {
		if !strings.HasPrefix(got, "{") || !strings.Contains(got, `level \"`+want) {
			t.Errorf("%s: %s", want, got)
		}
	}
}

// What comes after the end of a conversation is not served any more.
func TestServeAfterEnd(t *testing.T) {
	p := newPeer(context.Background(), HandlerFunc(func(context.Context, *Exchange) (any, error) {
		t.Error("it is served")
		return nil, nil
	}), nil)
	p.slots = make(chan struct{}, 1)
	p.end(ErrClosed)
	for range 50 {
		p.serve(payload(&Message{Method: "notifications/m"}))
	}
}

// What changes while a subscription is acknowledged comes after the acknowledgement.
func TestChangeWhileAcknowledged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{Announce: []string{"tools"}}
		ctx, end := context.WithCancel(t.Context())
		var sent []string
		via := sending(func(m *Message) {
			if sent = append(sent, m.Method); len(sent) == 1 {
				s.announceList("tools")
			}
		})
		x := &Exchange{Request: &Message{ID: NumberID(1)}, via: via, ctx: ctx}
		go s.listen(ctx, x, ListenParams{ListenFilter{ToolsListChanged: true}})
		synctest.Wait()
		if end(); len(sent) != 2 || sent[1] != "notifications/tools/list_changed" {
			t.Error(sent)
		}
	})
}

// sending is what an Exchange sends its messages through.
type sending func(m *Message)

func (send sending) send(_ context.Context, m *Message) error {
	send(m)
	return nil
}

// A blob that is empty is still a blob, and a wrong escape is no value of a template.
func TestEmptyResources(t *testing.T) {
	if text, err := encode(ResourceContents{URI: "x:y", Blob: []byte{}}); string(text) != `{"uri":"x:y","blob":""}` {
		t.Error(string(text), err)
	}
	s := &Server{}
	read := func(context.Context, *Exchange, string, map[string]string) (any, error) { return "x", nil }
	s.AddResourceTemplate(ResourceTemplate{URITemplate: "x:///{a}", Name: "x"}, read)
	params := map[string]string{"uri": "x:///%zz"}
	if err := connected(t, piped(t, s, nil)).Call(t.Context(), "resources/read", params, nil); err == nil {
		t.Error("x:///%zz fits")
	}
}

// A URI that fits a template in many ways costs no more work than its bytes. To try them all would not end in time for
// go test.
func TestHardURI(t *testing.T) {
	s := &Server{}
	read := func(context.Context, *Exchange, string, map[string]string) (any, error) { return "x", nil }
	s.AddResourceTemplate(ResourceTemplate{URITemplate: "x:///{a}-{b}-{c}.", Name: "x"}, read)
	params := map[string]string{"uri": "x:///" + strings.Repeat("-", 100_000)}
	fault, ok := errors.AsType[*Error](connected(t, piped(t, s, nil)).Call(t.Context(), "resources/read", params, nil))
	if !ok || fault.Code != CodeInvalidParams {
		t.Error(fault)
	}
}

// A cancellation finds a request that was read before it, even if it takes long to register that: here behind so many
// notifications that the next reader has begun meanwhile.
func TestCancellationInTime(t *testing.T) {
	ctx, end := context.WithTimeout(t.Context(), 5*time.Second) // so that the test ends
	defer end()
	p := newPeer(ctx, HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		if x.Request.Method == "wait" {
			<-ctx.Done()
			if context.Cause(ctx) != errCancelled {
				t.Error("the cancellation was lost")
			}
		}
		return nil, nil
	}), nil)
	p.AllowBatches.Store(true)
	batch := Payload{Batch: true, Messages: slices.Repeat([]*Message{{Method: "x"}}, 100_000)}
	batch.Messages = append(batch.Messages, &Message{ID: NumberID(1), Method: "wait"})
	cancelled := &Message{Method: "notifications/cancelled", Params: json.RawMessage(`{"requestId":1}`)}
	p.start(&script{[]Payload{batch, payload(cancelled)}})
	<-p.reading.Done()
	for range cap(p.slots) { // until all has been served
		p.slots <- struct{}{}
	}
}

// script is a Conn on which the other end says what is in it.
type script struct{ says []Payload }

func (s *script) Read() (p Payload, err error) {
	if len(s.says) == 0 {
		return p, io.EOF
	}
	p, s.says = s.says[0], s.says[1:]
	return p, nil
}

func (s *script) Write(context.Context, Payload) error { return nil }
func (s *script) Close() error                         { return nil }

// A call whose context has ended is not sent, so it is not cancelled either. The connection stays as it is.
func TestCallThatIsNotSent(t *testing.T) {
	for _, version := range []string{"2026-07-28", "2025-11-25"} {
		for _, transport := range []string{"pipe", "HTTP"} {
			synctest.Test(t, func(t *testing.T) {
				d, conn := newDemo(), &noted{}
				dial := dialerOf(t, transport, d, serving(t, d, 0), nil)
				c := connected(t, DialerFunc(func(ctx context.Context) (_ Conn, err error) {
					conn.Conn, err = dial.Dial(ctx)
					return conn, err
				}), version)
				ended, end := context.WithCancel(t.Context())
				end()
				conn.methods = nil
				err1, err2 := c.Call(ended, "prompts/list", nil, nil), c.Notify(ended, "notifications/x", nil)
				err3 := c.Call(t.Context(), "tools/list", nil, nil)
				isWrong := slices.Contains(conn.methods, "notifications/cancelled") ||
					slices.Contains(conn.methods, "initialize")
				if err1 != context.Canceled || !errors.Is(err2, context.Canceled) || err3 != nil || isWrong {
					t.Error(version, transport, err1, err2, err3, conn.methods)
				}
			})
		}
	}
}

// noted is a Conn that notes the methods of what is written.
type noted struct {
	Conn
	methods []string
}

func (c *noted) Write(ctx context.Context, p Payload) error {
	c.methods = append(c.methods, p.Messages[0].Method)
	return c.Conn.Write(ctx, p)
}

// An other end that sends and does not read is not read either, in the end.
func TestPeerDoesNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := Pipe()
		p := Open(t.Context(), theirs, &Server{}, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		sent := 0
		for ours.Write(ctx, payload(&Message{ID: NumberID(int64(sent)), Method: "ping"})) == nil {
			sent++
		}
		if sent < maxServing || sent > 4*maxServing {
			t.Error(sent, "requests were read")
		}
		p.Close()
	})
}

// ==== Processes ====

// TestMain lets this program be mcpwire, as the child of a test.
func TestMain(m *testing.M) {
	if os.Getenv("MCPWIRE_CHILD") != "" {
		main()
	}
	os.Exit(m.Run())
}

// mcpwire returns a command that starts this program as mcpwire.
func mcpwire(args ...string) *exec.Cmd {
	command := exec.Command(os.Args[0], args...)
	command.Env = append(os.Environ(), "MCPWIRE_CHILD=yes")
	return command
}

// A Client starts a command, and ends it.
func TestChild(t *testing.T) {
	c := connected(t, CommandDialer{Command: func() *exec.Cmd { return mcpwire() }})
	result, err := c.CallTool(t.Context(), "count", count(2, 0).Arguments)
	if err != nil || result.Text() != "counted to 2" {
		t.Error(result, err)
	}
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// A child that does not end by itself is killed. The attributes that its owner has set stay as they are.
func TestDeafChild(t *testing.T) {
	const deaf = `trap "" TERM; echo '{"jsonrpc":"2.0","method":"ready"}'; while true; do sleep 1; done`
	own, command := &syscall.SysProcAttr{}, exec.Command("sh", "-c", deaf)
	command.SysProcAttr = own
	dialer := CommandDialer{Command: func() *exec.Cmd { return command }, Grace: 100 * time.Millisecond}
	conn, err := dialer.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Read(); err != nil { // what it says when it ignores the signal
		t.Error(err)
	}
	if err := conn.Close(); err != nil || command.SysProcAttr != own {
		t.Error("closed: ", err)
	}
	if _, err := conn.Read(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
}

// ==== The program ====

// The program at a command line: flags, exit statuses, what is printed. SELF is this program. What stands in
// MCPWIRE_TOKEN is never printed.
func TestProgram(t *testing.T) {
	const ping = `{"jsonrpc":"2.0","id":"p","method":"ping","params":{` + student + `}}` + "\n"
	const typed = "\ufefftools/call\t{\"name\":\"echo\",\"arguments\":{\"text\":\"hi\"}}\nnope\nnope [1]\n\nprompts/list\n"
	for _, test := range []struct {
		args, stdin string
		status      int
		want        string
	}{
		{"-h", "", 0, `(?s)^usage: mcpwire .*  -versions list\n`},
		{"call -h", "", 0, `  -sampling-answer text\n`},
		{"-version", "", 0, `^mcpwire \d`},
		{"-nonsense", "", 2, `^mcpwire: flag provided but not defined: -nonsense \(-h for help\)\n$`},
		{"cal SELF", "", 2, `only call and bridge`},
		{"-http :0 -token=", "", 2, `-token: it must be as -h says`},
		{"-token x", "", 2, `without -http there is no -token`},
		{"-http 192.0.2.1:0 -watch", "", 2, `-watch needs -token`}, // MCPWIRE_TOKEN gives none here
		{"-http :0 -max-body 0", "", 2, `-max-body and -max-sessions must be more than 0`},
		{"-http :0 -versions 2025-11-25,2025-11-26", "", 2, `the versions are 2026-07-28, `},
		{"-http ::1:7809", "", 2, `-http: it must be as -h says`},
		{"-http 192.0.2.1:0", "", 1, `^mcpwire: listen tcp 192.0.2.1:0: `},
		{"-trace", ping, 0, `(?s)    > {"jsonrpc":"2.0","id":"p","method":"ping".*    < {"jsonrpc":"2.0","id":"p","error":{"code":-32601`},
		{"call", "", 2, `the server is missing`},
		{"call -params [] SELF", "", 2, `-params -method`},
		{"call -method x -params {1} SELF", "", 2, `-params and -answer are objects`},
		{"call http://127.0.0.1:1/mcp -json", "", 2, `flags go before it`},
		{"call http://127.0.0.1:1/mcp?key=s3cret", "", 1, `"http://127.0.0.1:1/mcp\?…": .*refused`},
		{"call no-such-command", "", 1, `executable file not found`},
		{"call -timeout 300ms sleep 5", "", 1, `deadline exceeded`},
		{"call SELF", "", 0, `(?s)transport +stdio\nrevision +2026-07-28\n.*\ntools +ask: Asks the user for a name, and greets.\n +count: `},
		{"call -json -protocol 2025-06-18 SELF", "", 0, `^{"transport":"stdio","revision":"2025-06-18",.*"tools":\[{"name":"ask"`},
		{"call -method nope SELF", "", 1, `mcpwire: nope: Method not found: nope \(-32601\)`},
		{"call -tool echo -arg text=5 -arg repeat=2 SELF", "", 0, `"text":"55"`},
		{"call -tool echo -arg text=@go.mod SELF", "", 0, `"text":"module mcpwire\\n`},
		{"call -tool echo -arg text=@@x SELF", "", 0, `"text":"@x"`},
		{"call -tool echo -arg text=x -arg repeat=two SELF", "", 2, `the argument 'repeat' must be JSON of the type "integer", not "two"`},
		{"call -tool nope SELF", "", 2, `the server has no tool nope`},
		{"call -tool get-weather -arg city=Oslo -arg unit=kelvin SELF", "", 3, `"isError":true`},
		{`call -tool ask -answer {"name":"Ada"} SELF`, "", 0, `Hello, Ada`},
		{"call -tool ask SELF", "", 3, `(?s)declined, because -answer is not given: What is your name\?.*the user chose decline`},
		{"call -i SELF", typed, 1, `(?s)"hi".*nope: .*no JSON object: .*"prompts"`},
		{"call -i -timeout 1m SELF", strings.Repeat("x", 9<<20) + " [1]", 1, `^mcpwire: x{1000}`}, // an error of 9 MiB
		{"bridge SELF", ping, 0, `{"jsonrpc":"2.0","id":"p","error":{"code":-32601,`},
		{"bridge http://127.0.0.1:1/mcp?key=s3cret", ping, 0, `"id":"p","error":{"code":-32603,"message":"mcpwire bridge: .*refused"}`},
		{"bridge false", ping, 1, `the server has hung up`},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Parallel()
			command := mcpwire(strings.Fields(strings.ReplaceAll(test.args, "SELF", os.Args[0]))...)
			if !strings.HasSuffix(test.args, "-watch") {
				command.Env = append(command.Env, "MCPWIRE_TOKEN=s3cret")
			}
			command.Stdin = strings.NewReader(test.stdin)
			printed, err := command.CombinedOutput()
			isRight := regexp.MustCompile(test.want).Match(printed) && !bytes.Contains(printed, []byte("s3cret"))
			if status := command.ProcessState.ExitCode(); status != test.status || !isRight {
				t.Errorf("exit %d, %v:\n%s", status, err, printed)
			}
		})
	}
}

// A server binds to this machine alone, and ends with a signal.
func TestProgramOverHTTP(t *testing.T) {
	server := mcpwire("-http", ":0")
	stderr, err := server.StderrPipe()
	if err = errors.Join(err, server.Start()); err != nil {
		t.Fatal(err)
	}
	said, _ := bufio.NewReader(stderr).ReadString('\n')
	if !strings.HasPrefix(said, "mcpwire: listening on http://127.0.0.1:") {
		t.Error(said)
	}
	_ = server.Process.Signal(syscall.SIGTERM) // if that fails, it does not end
	if err := server.Wait(); err != nil {
		t.Error(err)
	}
}

// A trace hides the query of each request, whatever its method and its path are, and changes no message.
func TestTraceHidesQueries(t *testing.T) {
	x := &trail{tap: &tap{}}
	for _, line := range []string{"GET /mcp", "GET /[mcp]", "get /mcp", "M-SEARCH /mcp", "a.b!#$%&'*+^_`|~1 /mcp",
		"GET x:{\"", "PUT *"} {
		if got := x.hide(line+"?key=s3cret&a=?", ">"); got != line+"?…" {
			t.Errorf("%s?key=s3cret is shown as %s", line, got)
		}
	}
	for _, line := range []string{`{"a": "b?c"}`, `["a", "b?c"]`, `"a ?b"`, `}, {"a":"b?c"}`, `], "a?b"`, `  "a": "b?c"`,
		`null, "a?b"`, `data: {"a": "b?c"}`, `data: ["a ?b"]`, `Accept: text/html; a?b`} {
		if got := x.hide(line, ">"); got != line {
			t.Errorf("%s is shown as %s", line, got)
		}
	}
}

// Whatever a trace is shown, it keeps little: 20,000 names of sessions, none for a long id, and 4 MiB of a line.
func TestTraceIsBounded(t *testing.T) {
	x := &trail{tap: &tap{}}
	isNamed := func(id string) bool { return x.hide("Mcp-Session-Id: "+id, "<") != "Mcp-Session-Id: …" }
	if isNamed(strings.Repeat("x", 200)) {
		t.Error("a long id has a name")
	}
	for i := range 20_001 {
		if isNamed(strconv.Itoa(i)) != (i < 20_000) {
			t.Error(i, "has a name, or none")
		}
	}
	for range 6 {
		if x.showBody(make([]byte, 1<<20), false); len(x.rest) > 4<<20 {
			t.Error(len(x.rest), "bytes of a line are kept")
		}
	}
}

// The page has the lessons, and no secret. No script of others runs in it.
func TestPage(t *testing.T) {
	o := options{watch: true, token: "s3cret", tap: &tap{}}
	_, _, mux := o.handlers(newDemo(), nil)
	w := send(mux, http.MethodGet, "")
	text, policy := w.Body.String(), w.Header().Get("Content-Security-Policy")
	if !strings.Contains(text, "A client starts a server, introduces itself") || strings.Contains(text, "s3cret") {
		t.Errorf("%.1000s", text)
	}
	if policy == "" || strings.Contains(policy, "unsafe") {
		t.Error(policy)
	}
}

// What the client of the command line refuses to be asked.
func TestAnswersOfCall(t *testing.T) {
	c := &caller{options: &options{content: "{}"}}
	for params, handle := range map[string]HandlerFunc{
		`{"mode":"url","message":"?"}`: c.elicit, `{"tools":[]}`: c.answerSampling, `{"toolChoice":{}}`: c.answerSampling} {
		result, err := handle(t.Context(), &Exchange{Request: &Message{Params: json.RawMessage(params)}})
		if fault, _ := reasons(err); fault == nil || fault.Code != CodeInvalidParams {
			t.Error(params, result, err)
		}
	}
}

// At a terminal it prints nothing of a server that a terminal may act on, but a program reads JSON as it came.
func TestPrintedByCall(t *testing.T) {
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	d := newDemo()
	d.Instructions = "a\u009b2J\u202eb" // JSON writes these as they are
	for isSeen, want := range map[bool]string{true: "a\ufffd2J\ufffdb", false: d.Instructions} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		os.Stdout = w
		c := &caller{options: &options{tap: &tap{}, json: true, timeout: time.Minute}, isSeen: isSeen}
		if err = c.Connect(t.Context(), piped(t, d, nil)); err == nil {
			err = errors.Join(c.summarize(t.Context()), c.Close(), w.Close())
		}
		if printed, _ := io.ReadAll(r); err != nil || !strings.Contains(string(printed), `"instructions":"`+want+`"`) {
			t.Errorf("%v: %q, %v", isSeen, printed, err)
		}
	}
}

// Its time-out: progress starts it again, but a call takes at most ten times as long. It leaves no timer behind.
func TestTimeoutOfCall(t *testing.T) {
	for _, test := range []struct {
		n, delayMs int
		want       string
	}{{1, 1100, "no answer within 1s"}, {6, 900, "<nil>"}, {90, 900, "not finished within 10s"}} {
		synctest.Test(t, func(t *testing.T) {
			c := &caller{options: &options{timeout: time.Second}}
			if err := c.Connect(t.Context(), piped(t, newDemo(), nil)); err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			ctx, cancel := c.limit(t.Context())
			err := c.CallWithProgress(ctx, "tools/call", count(test.n, test.delayMs), nil, c.extend)
			if fmt.Sprint(err) != test.want {
				t.Error(test, err)
			}
			if cancel(); c.idle.Load().Stop() || c.whole.Load().Stop() {
				t.Error(test, "a timer runs after the call")
			}
		})
	}
}

// How it reads an argument: what is no string must be JSON of the type that the schema names. No $ref leads to the
// network.
func TestArgumentsOfCall(t *testing.T) {
	schema := json.RawMessage(`{"properties":{"s":{"type":["string","null"]},
		"i":{"anyOf":[{"type":"null"},{"$ref":"#/$defs/i"}]},
		"e":{"enum":["a"]},"net":{"$ref":"http://127.0.0.1:1/x"}},"$defs":{"i":{"type":"integer"}}}`)
	for _, test := range []struct{ name, text, want string }{
		{"s", "5", `"5"`}, {"i", "5", "5"}, {"i", "x", ""}, {"e", "1", `"1"`},
		{"net", "1", "1"}, {"net", "x", `"x"`}, {"other", `{"a":1}`, `{"a":1}`},
	} {
		got, err := typed(test.text, property(schema, test.name))
		if isRefused := test.want == ""; string(got) != test.want || (err != nil) != isRefused {
			t.Error(test, string(got), err)
		}
	}
}

// What nobody reads is dropped, and a Write never waits.
func TestStderr(t *testing.T) {
	r, w := io.Pipe() // nobody reads
	defer r.Close()
	s := newSpool(w)
	for range 5000 {
		if n, err := s.Write(make([]byte, 10_000)); n != 10_000 || err != nil {
			t.Fatal(n, err)
		}
	}
	if held := s.waiting.Load(); held > 9<<20 {
		t.Error(held, "bytes are held")
	}
}

// ==== Fuzz targets ====

// What is decoded can be encoded, and is the same again.
func FuzzDecode(f *testing.F) {
	for _, text := range []string{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"\u0000"}}`, `[{"jsonrpc":"2.0","id":"x","result":{}},5]`,
		`{"jsonrpc":"2.0","id":1e5,"method":"m"}`, `{"jsonrpc":"2.0","id":2,"error":{"code":1,"message":"é","data":[1]}}`,
		"\xff", "[]", `{"id":1,"id":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, m := range Decode(text).Messages {
			if m.Kind() == KindInvalid { // there is a reason
				m = NewResponse(m.ID, nil, m.Error)
			}
			first := m.append(nil)
			if again := messageIn(string(first)); again.Kind() != m.Kind() || !bytes.Equal(again.append(nil), first) {
				t.Errorf("%s is not %s", again.append(nil), first)
			}
		}
	})
}

// eventsIn writes out the events of a stream.
func eventsIn(r io.Reader) (text string) {
	for e, err := range ReadEvents(r, 10) {
		if err != nil {
			return text + err.Error()
		}
		text += fmt.Sprintf("%s %q %q %v;", e.Type, e.ID, e.Data, e.Retry)
	}
	return text
}

// A stream is the same in one piece and byte by byte, and no event is larger than 10 bytes.
func FuzzReadEvents(f *testing.F) {
	for _, in := range []string{
		"data: a\n\n", "data: 12345678901\n\n", "\ufeffdata:a\r\rdata: b\r\n\r\n", "data: a\ndata:\ndata:  b\n\n",
		"event: x\nid: 7\nretry: 3000\n: comment\nother: y\ndata\n\n", "id: a\x00b\nretry: 5e3\nretry: -1\ndata: x\n\n",
	} {
		f.Add([]byte(in))
	}
	f.Fuzz(func(t *testing.T, in []byte) {
		whole, pieces := eventsIn(bytes.NewReader(in)), eventsIn(iotest.OneByteReader(bytes.NewReader(in)))
		if whole != pieces {
			t.Errorf("%s\n%s", whole, pieces)
		}
	})
}

// Whatever is posted, without sessions, in a session or without its id, the answer is one of MCP, and the server lives
// on.
func FuzzPost(f *testing.F) {
	for _, version := range []string{"", "2025-11-25", "2026-07-28"} {
		for _, body := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]`,
			`{"jsonrpc":"2.0","method":"x"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x"},` + student + `}}`,
		} {
			for session := range 3 {
				f.Add(version, "tools/call", "echo", []byte(body), byte(session))
			}
		}
	}
	alone := &StreamableHandler{Handler: newDemo()}
	withSessions := &StreamableHandler{Handler: newDemo(), Sessions: &Sessions{}}
	id := strings.TrimPrefix(open(withSessions), "Mcp-Session-Id: ")
	f.Fuzz(func(t *testing.T, version, method, name string, body []byte, session byte) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		h, w, r := withSessions, httptest.NewRecorder(), httpRequest(ctx, http.MethodPost, string(body))
		r.Header["Mcp-Protocol-Version"] = []string{version}
		r.Header["Mcp-Method"], r.Header["Mcp-Name"] = []string{method}, []string{name}
		switch session {
		case 0:
			h = alone
		case 1:
			r.Header["Mcp-Session-Id"] = []string{id}
		}
		h.ServeHTTP(w, r)
		text := w.Body.Bytes()
		switch {
		case w.Code == http.StatusOK && w.Header().Get("Content-Type") == "text/event-stream":
			for e, err := range ReadEvents(bytes.NewReader(text), 8<<20) {
				if err != nil || len(e.Data) > 0 && !json.Valid(e.Data) {
					t.Errorf("%v %s", err, e.Data)
				}
			}
		case w.Code == http.StatusAccepted && len(text) > 0, w.Code != http.StatusAccepted && !json.Valid(text):
			t.Errorf("%d %s", w.Code, text)
		}
	})
}
