// SPDX-License-Identifier: 0BSD
// http.go of mcpwire 0.3.0, an implementation of the Model Context Protocol that you copy.

package main

// Streamable HTTP: one URL for both eras. A POST carries a message of the client, and its response
// what belongs to it.
//
//	ServeHTTP ─► admit ─► post ─► era ┬ modern ─► the header ─► Handler, while the client waits
//	                                  └ legacy ─► the session ─► Handler, on a goroutine of its own
//
// How a POST is answered:
//
//	refused (header, version, session, no message)   4xx, JSON      no handler runs
//	only notifications or responses                  202, empty
//	initialize                                       200, JSON      + Mcp-Session-Id
//	a request: what comes first?       Accept: both     only JSON     only event-stream
//	    the answer                     JSON             JSON          stream
//	    progress, a log message        stream           dropped       stream
//	    a question to the client       stream           fails         stream
//	    a second of silence            stream           keeps waiting stream
//
// What a cut does:
//
//	The connection breaks  2026-07-28      2025-11-25, in a session
//	    the handler        is cancelled    goes on: the session owns it
//	    what it sends      goes nowhere    is kept: at most Sessions.Keep bytes for each stream, 40 MiB
//	                                       in all, for at least 5 minutes after the answer
//	    the client         gets an error   GET + Last-Event-ID: the rest, then what comes
//	    no event id yet    gets an error   gets an error; the call runs to its end, but nobody can get the answer
//
// What to read first: see "The five files" in testdata/README.md of mcpwire.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"mime"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"
)

// ---- The server ----

// StreamableHandler serves Streamable HTTP, on one path of a mux. Set the fields before use.
type StreamableHandler struct {
	Handler     Handler   // a *Server, or a struct with one embedded, whose Versions and HeaderParams count
	Sessions    *Sessions // nil: there are none, and each legacy POST stands alone
	MaxRequests int       // that run at once; 0: 3,072
	Guard
	limits

	setup  sync.Once
	ending context.Context // ends when Close begins
	end    context.CancelFunc
}

// closeGrace is how long requests may finish when the server closes.
const closeGrace = 2 * time.Second

func (h *StreamableHandler) init() {
	h.setup.Do(func() { h.ending, h.end = context.WithCancel(context.Background()) })
}

// Close ends all streams and sessions. Requests that run have two seconds to finish.
func (h *StreamableHandler) Close() {
	h.init()
	h.end()
	for until := time.Now().Add(closeGrace); h.running.Load() > 0 && time.Now().Before(until); {
		time.Sleep(10 * time.Millisecond)
	}
	if h.Sessions != nil {
		h.Sessions.Close()
	}
}

// ServeHTTP serves a request of HTTP: POST in both eras, GET and DELETE in a session. It may be
// wrapped by a middleware whose ResponseWriter has a method Unwrap: see http.ResponseController.
func (h *StreamableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.init()
	principal, ok := h.admit(w, r)
	if !ok {
		return
	}
	version, versions := r.Header.Get("Mcp-Protocol-Version"), h.server().Versions
	switch {
	case r.Method == http.MethodPost:
		h.post(w, r, principal)
	case r.Method != http.MethodGet && r.Method != http.MethodDelete:
		refuseMethod(w, "GET, POST, DELETE")
	case h.Sessions == nil || revision(version).Modern || len(offered(versions, isLegacy)) == 0:
		refuseMethod(w, "POST")
	case version != "" && !slices.Contains(offered(versions, isAny), version):
		reject(w, http.StatusBadRequest, ID{}, unsupported(version, versions))
	case r.Method == http.MethodGet && !accepts(r, "text/event-stream"):
		refuse(w, http.StatusNotAcceptable, "Accept must allow text/event-stream")
	default:
		if s := h.useSession(w, r, principal); s != nil {
			h.serveSession(w, r, s)
		}
	}
}

// server returns the Server that the Handler is, or embeds. Of another Handler nothing is known: an empty Server
// stands for it, which has all versions.
func (h *StreamableHandler) server() *Server {
	if known, ok := h.Handler.(interface{ embeddedServer() *Server }); ok {
		return known.embeddedServer()
	}
	return &Server{}
}

func (s *Server) embeddedServer() *Server { return s }

// post serves a POST. A modern request, and one without a session, ends with its connection. A
// request in a session runs on.
func (h *StreamableHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	in, release, ok := h.read(w, r, &h.Guard, h.MaxRequests)
	if !ok {
		return
	}
	base := Exchange{Principal: principal, Header: r.Header, Ending: h.ending.Done()}
	rev, isModern, err := h.era(in, r.Header)
	switch {
	case err != nil:
		defer release() // the answer repeats a part of the body
		id := ID{}
		if hasRequest(in) && !in.Batch {
			id = in.Messages[0].ID
		}
		reject(w, http.StatusBadRequest, id, err)
	case isModern || h.Sessions == nil:
		defer release()
		h.postAlone(w, r, in, rev, base)
	case hasRequest(in) && !in.Batch && in.Messages[0].Method == "initialize":
		defer release()
		h.initialize(w, in, base)
	default:
		h.postInSession(w, r, in, base, release)
	}
}

// era finds out which revision a payload belongs to; the zero Revision: a legacy one that it does
// not name. Both the header and _meta may name the version:
//
//	they differ                    an error
//	it is unknown                  an error; but initialize negotiates
//	it is modern                   the modern era: more has to be right
//	it is legacy                   the legacy era
//	it is not named                the legacy era, in a session, for initialize, and if a revision without
//	                               this header is served, or no modern one; otherwise an error
//
// A batch can name the version only in the header.
func (h *StreamableHandler) era(in Payload, header http.Header) (rev Revision, isModern bool, err error) {
	version, versions := header.Get("Mcp-Protocol-Version"), h.server().Versions
	m, meta := in.Messages[0], Meta{}
	if !in.Batch && (m.Kind() == KindRequest || m.Kind() == KindNotification) {
		meta, err = m.Meta()
	}
	named := cmp.Or(meta.ProtocolVersion, version)
	rev = revision(named)
	all, legacy := offered(versions, isAny), offered(versions, isLegacy)
	isModern = rev.Modern || len(legacy) == 0
	negotiates := !in.Batch && m.Method == "initialize" && meta.ProtocolVersion == ""
	headless := offered(versions, func(r Revision) bool { return !r.VersionHeader })
	switch {
	case in.Batch && isModern:
		return rev, isModern, invalidRequest("a batch, which this version does not have")
	case !in.Batch && (m.Kind() == KindInvalid || m.Error == errDamaged):
		return rev, isModern, m.Error
	case meta.ProtocolVersion != "" && version != "" && meta.ProtocolVersion != version:
		return rev, isModern, mismatch("MCP-Protocol-Version is not the version of the body")
	case named != "" && !negotiates && !slices.Contains(all, named):
		return rev, isModern, unsupported(named, versions)
	case !isModern && (named != "" || negotiates || h.Sessions != nil || len(headless) > 0 || len(legacy) == len(all)):
		return rev, isModern, nil // a Server tells what is wrong with a legacy _meta
	case m.Kind() == KindResponse:
		return rev, isModern, invalidRequest("a response: this server asks nothing")
	case version == "":
		return rev, isModern, withVersions(mismatch("MCP-Protocol-Version is missing"), versions)
	}
	if err == nil && m.Kind() == KindRequest {
		err = checkModern(meta, versions)
	}
	if err == nil {
		err = h.checkHeader(header, m)
	}
	return rev, isModern, err
}

// postAlone serves a POST that needs nothing else: with a Peer and a stream of its own.
func (h *StreamableHandler) postAlone(w http.ResponseWriter, r *http.Request, in Payload, rev Revision, base Exchange) {
	if isListen(in) && !accepts(r, "text/event-stream") {
		refuse(w, http.StatusNotAcceptable, "Accept must allow text/event-stream")
		return
	}
	p := newPeer(r.Context(), h.Handler, h.Log)
	defer p.cancel(nil)
	stop := context.AfterFunc(h.ending, func() { time.AfterFunc(closeGrace, func() { p.cancel(nil) }) })
	defer stop()
	rev = cmp.Or(rev, revision("2025-03-26")) // 2025-11-25 basic/transports#protocol-version-header: "SHOULD assume"
	p.Value.Store(agreement{revision: rev, stateless: true})
	p.AllowBatches.Store(rev.Batches)
	st := h.newStream(r)
	p.via, p.held, base.Peer, base.via = st, &h.held, p, st
	work := p.register(p.ctx, in, base)
	if !hasRequest(in) {
		work.run()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	st.lend(w)
	work.answer(st, rev.Modern)
}

// answer runs the handlers, and gives the responses to a stream.
func (w work) answer(st *stream, isModern bool) {
	out := w.run()
	defer w.peer.held.Add(-out.held)
	st.answer(out, statusOf(out, isModern))
}

// statusOf returns the HTTP status of an answer.
func statusOf(p Payload, isModern bool) int {
	if p.Batch || len(p.Messages) == 0 || p.Messages[0].Error == nil {
		return http.StatusOK
	}
	fault := p.Messages[0].Error
	switch {
	case fault == errTooMuch:
		return http.StatusServiceUnavailable
	case isModern && fault.Code == CodeMethodNotFound:
		return http.StatusNotFound
	case fault.Code == CodeInvalidRequest, isModern && fault.isOfModernServers():
		return http.StatusBadRequest
	}
	return http.StatusOK
}

func (h *StreamableHandler) newStream(r *http.Request) *stream {
	isJSON, isStream := accepts(r, "application/json"), accepts(r, "text/event-stream")
	return &stream{table: h.Sessions, keepAlive: h.silence(), jsonOnly: !isStream, eventsOnly: !isJSON}
}

// initialize opens a session. The header of the response names it, and all further requests of the
// client repeat that name (2025-11-25 basic/transports#session-management).
func (h *StreamableHandler) initialize(w http.ResponseWriter, in Payload, base Exchange) {
	s := h.Sessions.open(h.Handler, &h.Guard, &h.held, base.Principal)
	if s == nil {
		refuse(w, http.StatusServiceUnavailable, "Too many sessions")
		return
	}
	base.Peer, base.via = s.Peer, s.standalone
	out := s.register(s.ctx, in, base).run()
	defer h.held.Add(-out.held)
	h.Sessions.endUse(s)
	h.Sessions.addStream(s, s.standalone)
	if out.Messages[0].Error != nil {
		h.Sessions.remove(s, ErrClosed)
	} else {
		w.Header().Set("Mcp-Session-Id", s.id)
	}
	writeJSON(w, http.StatusOK, out)
}

// useSession returns the session that a request names, and makes it busy. If there is none, it
// answers the request.
func (h *StreamableHandler) useSession(w http.ResponseWriter, r *http.Request, principal string) *session {
	id := r.Header.Get("Mcp-Session-Id")
	s := h.Sessions.startUse(id, principal)
	if id == "" {
		refuse(w, http.StatusBadRequest, "Mcp-Session-Id is missing")
	} else if s == nil {
		refuse(w, http.StatusNotFound, "Session not found")
	}
	return s
}

// postInSession serves what a legacy client has sent in a session. It lends the response to the stream of
// the call, and waits until that gives it back: see "A stream of the server" in sse.go.
func (h *StreamableHandler) postInSession(w http.ResponseWriter, r *http.Request, in Payload, x Exchange, done func()) {
	s := h.useSession(w, r, x.Principal)
	if s == nil {
		done()
		return
	}
	defer h.Sessions.endUse(s)
	x.Peer, x.via = s.Peer, s.standalone
	if !hasRequest(in) {
		defer done()
		s.register(s.ctx, in, x).run()
		w.WriteHeader(http.StatusAccepted)
		return
	}
	st := h.newStream(r)
	h.Sessions.addStream(s, st)
	x.via, x.canAsk = st, true
	work := s.register(s.ctx, in, x)
	lending := h.Sessions.takeOver(r.Context(), st)
	back := st.lend(w)
	go func() { // ends with the handlers; the session cancels them
		defer done()
		defer h.Sessions.endCall(s, st)
		work.answer(st, false)
	}()
	st.wait(lending, w, back)
}

// serveSession serves a DELETE, which ends the session, and a GET: the stream that belongs to no
// request, or the rest of one that broke (2025-11-25 basic/transports#resumability-and-redelivery).
func (h *StreamableHandler) serveSession(w http.ResponseWriter, r *http.Request, s *session) {
	defer h.Sessions.endUse(s)
	if r.Method == http.MethodDelete {
		h.Sessions.remove(s, errors.New("the client has ended the session"))
		return
	}
	st, n := s.standalone, -1
	if id := r.Header.Get("Last-Event-Id"); id != "" {
		st, n = h.Sessions.findStream(s, id)
	}
	if st != nil {
		lending := h.Sessions.takeOver(r.Context(), st)
		if back, ok := st.resume(w, []byte(":\n\n"), n); ok { // a comment sends the head at once
			st.wait(lending, w, back)
			return
		}
	}
	refuse(w, http.StatusBadRequest, "There is no such event, or what follows it is not kept any more")
}

// hasRequest reports whether something in a payload is to be answered.
func hasRequest(in Payload) bool {
	return slices.ContainsFunc(in.Messages, func(m *Message) bool {
		return m.Kind() == KindRequest || m.Kind() == KindInvalid
	})
}

// isListen reports whether a payload opens a subscription.
func isListen(in Payload) bool { return !in.Batch && in.Messages[0].Method == "subscriptions/listen" }

// needsPlace reports whether a payload counts among the requests that run at once: initialize must
// always be possible, and a subscription waits, without an end of its own.
func needsPlace(in Payload) bool {
	return hasRequest(in) && (in.Batch || in.Messages[0].Method != "initialize" && !isListen(in))
}

// ---- What the header repeats, in the modern era ----

func mismatch(reason string) *Error {
	return &Error{Code: CodeHeaderMismatch, Message: "Header mismatch: " + reason}
}

// nameMember says which of the params Mcp-Name repeats.
var nameMember = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// checkHeader compares the header with the body: a proxy may have let the request pass because of
// what the header says (2026-07-28 basic/transports/streamable-http#server-validation).
func (h *StreamableHandler) checkHeader(header http.Header, m *Message) error {
	lines := header["Mcp-Method"]
	switch {
	case len(lines) == 0 && m.Kind() == KindNotification:
		return nil
	case len(lines) != 1 || lines[0] != m.Method:
		return mismatch("Mcp-Method does not repeat the method")
	}
	if key := nameMember[m.Method]; key != "" && !repeats(header["Mcp-Name"], member(m.Params, key)) {
		return mismatch("Mcp-Name does not repeat '" + key + "'")
	}
	if m.Method != "tools/call" {
		return nil
	}
	for _, p := range h.server().HeaderParams(textOf(member(m.Params, "name"))) {
		value, err := p.find(member(m.Params, "arguments"))
		if err != nil {
			return mismatch(err.Error())
		}
		lines := header[http.CanonicalHeaderKey("Mcp-Param-"+p.Name)]
		if (value != nil || len(lines) > 0) && !repeats(lines, value) {
			return mismatch("Mcp-Param-" + p.Name + " does not repeat the argument")
		}
	}
	return nil
}

// find returns the argument; nil: there is none. It is an error if a name on the way stands twice,
// in whatever case: the tool could take the other one.
func (p HeaderParam) find(arguments json.RawMessage) (json.RawMessage, error) {
	for _, name := range p.Path {
		var found json.RawMessage
		for n, value := range Each(arguments) {
			if !strings.EqualFold(n, name) {
				continue
			}
			if found != nil {
				return nil, fmt.Errorf("two arguments '%s'", name)
			}
			found = value
		}
		arguments = found
	}
	if isAbsent(arguments) {
		return nil, nil
	}
	return arguments, nil
}

// repeats reports whether there is one line, and it repeats a value of the body. Numbers are
// compared as such: 42 and 42.0 are one.
func repeats(lines []string, value json.RawMessage) bool {
	if len(lines) != 1 || value == nil {
		return false
	}
	text, ok := decodeHeader(lines[0])
	if !ok || text == textOf(value) {
		return ok
	}
	a, errA := strconv.ParseFloat(text, 64)
	b, errB := strconv.ParseFloat(string(value), 64)
	isExact := a == b && math.Abs(a) < 1<<53 // beyond that, two integers may be one float
	return isExact && errA == nil && errB == nil && json.Valid([]byte(text))
}

const base64Prefix, base64Suffix = "=?base64?", "?="

// isPlain reports whether a text consists of the characters that a header carries as they are.
func isPlain(text string) bool {
	return strings.IndexFunc(text, func(r rune) bool { return r < ' ' && r != '\t' || r > '~' }) < 0
}

// decodeHeader returns what a line stands for: a text that is not plain ASCII comes as Base64.
func decodeHeader(line string) (text string, ok bool) {
	encoded, isEncoded := strings.CutPrefix(line, base64Prefix)
	encoded, isComplete := strings.CutSuffix(encoded, base64Suffix)
	if !isEncoded || !isComplete {
		return line, isPlain(line)
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return string(decoded), err == nil
}

// encodeHeader is the reverse of decodeHeader.
func encodeHeader(text string) string {
	if isPlain(text) && strings.TrimSpace(text) == text && !strings.HasPrefix(text, base64Prefix) {
		return text
	}
	return base64Prefix + base64.StdEncoding.EncodeToString([]byte(text)) + base64Suffix
}

// ---- The client ----

// HTTPDialer reaches a server over Streamable HTTP, in either era. Use a pointer to it: it learns
// from each list of tools which arguments the header repeats.
type HTTPDialer struct {
	URL        string
	Header     http.Header  // sent with every request
	Client     *http.Client // nil: http.DefaultClient
	MaxMessage int          // bytes; 0: 16 MiB
	Log        *slog.Logger // nil: silent

	marked sync.Map // by name of the tool: []HeaderParam
}

// httpConn is a conversation over HTTP, of both transports. Its only goroutine reads the standalone
// stream, and ends with Close.
type httpConn struct {
	url    string
	isOld  bool        // HTTP+SSE: answers come on the stream that Dial has opened
	dialer *HTTPDialer // nil: HTTP+SSE
	client *http.Client
	always http.Header  // sent with every request
	max    int          // bytes of a message
	in     chan Payload // to Read

	ctx         context.Context // ends with Close
	cancel      context.CancelCauseFunc
	reading     context.Context // ends with ctx, or when the session is lost: requests in flight may still learn that
	stopReading context.CancelCauseFunc

	mu      sync.Mutex // guards the fields below
	version string     // "": as long as initialize has no answer
	session string
}

func newHTTPConn(client *http.Client, always http.Header, maxMessage int) *httpConn {
	own := *cmp.Or(client, http.DefaultClient)
	own.CheckRedirect, own.Timeout = checkRedirect, 0 // a Timeout would end streams
	c := &httpConn{client: &own, always: always, max: cmp.Or(maxMessage, clientMaxMessage), in: make(chan Payload)}
	c.ctx, c.cancel = context.WithCancelCause(context.Background())
	c.reading, c.stopReading = context.WithCancelCause(c.ctx)
	return c
}

// Dial returns a Conn. Nothing is sent before the first message.
func (d *HTTPDialer) Dial(context.Context) (Conn, error) {
	c := newHTTPConn(d.Client, d.Header, d.MaxMessage)
	c.url, c.dialer = d.URL, d
	return c, nil
}

// Write posts a payload. If it is a request, Write reads the response, too.
func (c *httpConn) Write(ctx context.Context, p Payload) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(c.ctx, func() { cancel(context.Cause(c.ctx)) })() // it returns a function that stops it
	m := p.Messages[0]
	c.prepare(m)
	header, rev := c.header()
	// This comes after header, which may lack a session that was just lost.
	if err := cmp.Or(context.Cause(ctx), context.Cause(c.reading)); err != nil {
		return fmt.Errorf("%w: %w", errUnread, err)
	}
	switch {
	case c.isOld && m.Method == "server/discover":
		return MethodNotFound(m.Method) // this transport has no modern era
	case rev.Modern && m.Method == "notifications/cancelled":
		return nil // closing the connection has cancelled the request
	case !c.isOld && m.Method == "notifications/cancelled":
		time.Sleep(100 * time.Millisecond) // or it may overtake the request, and cancel nothing
	case rev.Modern:
		c.dialer.repeat(header, m)
	}
	header.Set("Accept", "application/json, text/event-stream")
	header.Set("Content-Type", "application/json")
	isHarmless := m.Kind() == KindResponse || methods[m.Method].serve != nil && m.Method != "tools/call"
	if isHarmless || m.Method == "notifications/initialized" || m.Method == "notifications/cancelled" {
		// With this key, net/http sends the request once more if a connection that was used before breaks.
		// Because the value is nil, the header is not sent.
		header["Idempotency-Key"] = nil
	}
	response, err := c.do(ctx, http.MethodPost, header, p.Append(nil))
	if err != nil {
		return c.checkSession(header, m, err)
	}
	switch {
	case c.isOld:
	case m.Kind() == KindRequest && !p.Batch:
		lost := func() { cancel(context.Cause(c.reading)) } // what the server has read is lost with its session
		defer context.AfterFunc(c.reading, lost)()
		return c.follow(ctx, response, m)
	case m.Method == "notifications/initialized":
		go c.listen()
	}
	return response.Body.Close()
}

// prepare notes what the era of a message changes.
func (c *httpConn) prepare(m *Message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	named := textOf(member(member(m.Params, "_meta"), metaVersion))
	switch {
	case m.Method == "initialize":
		c.version, c.session = "", ""
	case named != "" && !c.isOld && (c.version == "" || revision(c.version).Modern): // a session keeps its version
		c.version = named
	}
}

// repeat repeats in the header what a modern request says in its body.
func (d *HTTPDialer) repeat(header http.Header, m *Message) {
	header.Set("Mcp-Method", m.Method)
	if key := nameMember[m.Method]; key != "" {
		header.Set("Mcp-Name", encodeHeader(textOf(member(m.Params, key))))
	}
	if m.Method != "tools/call" {
		return
	}
	marked, _ := d.marked.Load(textOf(member(m.Params, "name")))
	params, _ := marked.([]HeaderParam)
	for _, p := range params {
		value, err := p.find(member(m.Params, "arguments"))
		if err == nil && value != nil && value[0] != '{' && value[0] != '[' {
			header.Set("Mcp-Param-"+p.Name, encodeHeader(textOf(value)))
		}
	}
}

// learn reads the result of tools/list. It returns the result without the tools whose marks are
// wrong, because their calls would be refused.
func (d *HTTPDialer) learn(request *Message, result json.RawMessage) json.RawMessage {
	if isAbsent(member(request.Params, "cursor")) { // a list begins anew
		d.marked.Clear()
	}
	tools := []json.RawMessage{}
	for _, tool := range Each(member(result, "tools")) {
		name := textOf(member(tool, "name"))
		marked, err := ReadHeaderParams(member(tool, "inputSchema"))
		if err != nil {
			cmp.Or(d.Log, silent).Warn("left out a tool", "name", name, "reason", err)
			continue
		}
		d.marked.Store(name, marked)
		tools = append(tools, tool)
	}
	text, _ := encode(map[string]any{"tools": tools}) // they are JSON
	return merge(result, text)
}

// aboutCalls are the codes of errors that speak of a call, and not of its session.
var aboutCalls = []int{CodeMethodNotFound, CodeInvalidParams, CodeResourceNotFound}

// checkSession finds out whether a 404 means that the session has ended
// (2025-11-25 basic/transports#session-management). Then nothing more is read here, and there is
// nothing to DELETE. A 404 with an answer to m is that answer, unless its error may mean the session.
func (c *httpConn) checkSession(header http.Header, m *Message, err error) error {
	refusal, ok := errors.AsType[*HTTPError](err)
	if !ok || refusal.Status != http.StatusNotFound || header.Get("Mcp-Session-Id") == "" {
		return err
	}
	answer := refusal.answer
	isAnswer := answer != nil && m != nil && answer.ID == m.ID && answer.ID != (ID{})
	if isAnswer && (answer.Error == nil || slices.Contains(aboutCalls, answer.Error.Code)) {
		return err
	}
	err = fmt.Errorf("%w: %w", ErrSessionEnded, err)
	c.stopReading(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session = ""
	// Who answers m with an internal error may have run it. Otherwise m was refused, not read.
	if m != nil && !(isAnswer && answer.Error.Code == CodeInternalError) {
		err = fmt.Errorf("%w: %w", errUnread, err)
	}
	return err
}

// position is how far a stream was read, over all responses that carry it.
type position struct {
	lastID   string
	retry    time.Duration // what the server has asked for; 0: nothing
	quiet    int           // responses in a row that brought no message
	failures int           // requests in a row that failed
}

// firstPause is how long the client waits before it continues a broken stream; then it doubles.
const firstPause = 100 * time.Millisecond

// pause returns how long to wait before the next request.
func (at *position) pause() time.Duration {
	growing := firstPause << min(max(at.quiet+at.failures-1, 0), 8)
	if at.failures == 0 && at.retry > 0 {
		growing = firstPause
	}
	return max(growing, min(at.retry, time.Hour))
}

// follow reads the response to a request, up to the answer. m is nil for the standalone stream.
func (c *httpConn) follow(ctx context.Context, response *http.Response, m *Message) error {
	if !isStream(response) {
		return c.readJSON(ctx, response, m)
	}
	at := position{}
	for {
		isDone, err := c.readStream(ctx, response, m, &at)
		if !isDone {
			response, err = c.resume(ctx, &at, m == nil, err)
		}
		if isDone || err != nil {
			return err
		}
	}
}

// readJSON reads a response that is JSON.
func (c *httpConn) readJSON(ctx context.Context, response *http.Response, m *Message) error {
	defer response.Body.Close()
	if mediaType(response.Header) != "application/json" {
		return newHTTPError(response)
	}
	body, err := io.ReadAll(http.MaxBytesReader(nil, response.Body, int64(c.max)))
	if err != nil {
		return err
	}
	isAnswer, err := c.accept(ctx, Decode(body), response.Header, m)
	if err == nil && !isAnswer {
		err = &HTTPError{Status: response.StatusCode, Header: response.Header, Body: body[:min(len(body), 1000)]}
	}
	return err
}

// readStream reads events, up to the end of the connection, or up to the answer: then it returns true.
func (c *httpConn) readStream(ctx context.Context, response *http.Response, m *Message, at *position) (bool, error) {
	defer response.Body.Close() // before the next GET: the server may be writing to it
	for e, err := range ReadEvents(response.Body, c.max) {
		if err != nil {
			return errors.Is(err, bufio.ErrTooLong), err // it would come again
		}
		if e.hasID && !strings.ContainsFunc(e.ID, unicode.IsControl) { // such an id could not be sent back
			at.lastID = e.ID
		}
		at.retry = cmp.Or(e.Retry, at.retry)
		if len(e.Data) == 0 || e.Type != "" && e.Type != "message" {
			continue
		}
		at.quiet = 0
		if isDone, err := c.accept(ctx, Decode(e.Data), response.Header, m); isDone || err != nil {
			readSoon(response.Body, 50*time.Millisecond) // to its end: then its connection can be used again
			return true, err
		}
	}
	return false, fmt.Errorf("the stream has ended before the answer: %w", io.ErrUnexpectedEOF)
}

// accept hands on what has come. It returns true if the answer to m is among it. An error without
// an id is an answer, too: the server could not read the id.
func (c *httpConn) accept(ctx context.Context, in Payload, header http.Header, m *Message) (isAnswer bool, err error) {
	for _, got := range in.Messages {
		c.agree(got.Result, header)
		hasNoID := got.ID == ID{} && got.Error != nil
		if m == nil || got.Kind() != KindResponse || got.ID.key() != m.ID.key() && !hasNoID {
			continue
		}
		got.ID, isAnswer = m.ID, true
		if m.Method == "tools/list" && got.Result != nil {
			if _, rev := c.header(); rev.Modern {
				got.Result = c.dialer.learn(m, got.Result)
			}
		}
	}
	return isAnswer, c.hand(ctx, in)
}

// agree notes what the answer to initialize says.
func (c *httpConn) agree(result json.RawMessage, header http.Header) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.version == "" {
		c.version, c.session = textOf(member(result, "protocolVersion")), header.Get("Mcp-Session-Id")
	}
}

// resume asks for the rest of a stream with a GET, five times if that fails. A server that is there
// and does not have the stream is believed. The standalone stream is never given up, and begins anew
// when its last event is not known any more.
func (c *httpConn) resume(ctx context.Context, at *position, isStandalone bool, cut error) (*http.Response, error) {
	header, rev := c.header()
	canResume, failed := at.lastID != "" && !rev.Modern, cut
	for isStandalone || canResume && at.failures < 5 {
		select {
		case <-time.After(at.pause()):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		response, err := c.get(ctx, at.lastID)
		if err == nil {
			at.failures = 0
			at.quiet++
			return response, nil
		}
		at.failures++
		failed = fmt.Errorf("%w; then: %w", cut, err)
		_, status := reasons(err)
		mayPass := status == 0 || status == 409 || status == 429 || status/100 == 5
		switch {
		case status == 404 || status == 405 || !isStandalone && !mayPass:
			return nil, c.checkSession(header, nil, failed)
		case status == 400:
			at.lastID = "" // it is not known any more
		}
	}
	return nil, failed
}

// get opens a stream.
func (c *httpConn) get(ctx context.Context, lastID string) (*http.Response, error) {
	header, _ := c.header()
	header.Set("Accept", "text/event-stream")
	if lastID != "" {
		header.Set("Last-Event-Id", lastID)
	}
	response, err := c.do(ctx, http.MethodGet, header, nil)
	if err != nil || isStream(response) {
		return response, err
	}
	return nil, newHTTPError(response)
}

// listen reads what belongs to no request, if the server has a stream for that
// (2025-11-25 basic/transports#listening-for-messages-from-the-server). A 404 means a lost session
// only if there was a stream before.
func (c *httpConn) listen() {
	response, err := c.get(c.reading, "")
	if _, status := reasons(err); err != nil && status != 404 && status != 405 {
		response, err = c.resume(c.reading, &position{failures: 1}, true, err)
	}
	if err == nil {
		err = c.follow(c.reading, response, nil) // a lost session ends the Conn
	}
	if errors.Is(err, bufio.ErrTooLong) {
		cmp.Or(c.dialer.Log, silent).Warn("what belongs to no request is not read any more", "reason", err)
	}
}

// Close hangs up, and ends the session.
func (c *httpConn) Close() error {
	isFirst := c.ctx.Err() == nil
	c.cancel(ErrClosed)
	header, _ := c.header()
	if !isFirst || header.Get("Mcp-Session-Id") == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	if response, err := c.do(ctx, http.MethodDelete, header, nil); err == nil { // a server may refuse that
		response.Body.Close()
	}
	return nil
}

// ---- What both transports of the client need ----

// HTTPError is the answer of a server that is no answer to the message.
type HTTPError struct {
	Status int
	Header http.Header
	Body   []byte   // the beginning
	answer *Message // what the body says; nil: it is no response of JSON-RPC
}

// Error returns the status, and what the server says.
func (e *HTTPError) Error() string {
	text := fmt.Sprintf("HTTP %d %s", e.Status, http.StatusText(e.Status))
	if fault := e.Unwrap(); fault != nil {
		return text + ": " + fault.Error()
	}
	kind := cmp.Or(e.Header.Get("Content-Type"), "no type")
	return fmt.Sprintf("%s (%s): %.300s", text, kind, bytes.TrimSpace(e.Body))
}

// StatusCode returns the status.
func (e *HTTPError) StatusCode() int { return e.Status }

// Unwrap returns the *Error that the body holds.
func (e *HTTPError) Unwrap() error {
	if e.answer == nil || e.answer.Error == nil {
		return nil
	}
	return e.answer.Error
}

// newHTTPError reads the body of a response that is no answer, and closes it.
func newHTTPError(response *http.Response) *HTTPError {
	defer response.Body.Close()
	body := readSoon(response.Body, time.Second)
	e := &HTTPError{Status: response.StatusCode, Header: response.Header, Body: body}
	if in := Decode(body); len(in.Messages) == 1 && in.Messages[0].Kind() == KindResponse {
		e.answer = in.Messages[0]
	}
	return e
}

// readSoon reads at most 64 KiB of a body, which may have no end, as long as limit allows.
func readSoon(body io.ReadCloser, limit time.Duration) []byte {
	timer := time.AfterFunc(limit, func() { body.Close() })
	defer timer.Stop()
	text, _ := io.ReadAll(io.LimitReader(body, 64<<10))
	return text
}

// checkRedirect follows five redirects within the origin, with the same method. A credential must not
// go elsewhere.
func checkRedirect(r *http.Request, via []*http.Request) error {
	first := via[0]
	isSame := r.Method == first.Method && r.URL.Scheme == first.URL.Scheme && r.URL.Host == first.URL.Host
	if !isSame || len(via) > 5 {
		return http.ErrUseLastResponse
	}
	return nil
}

// header returns what each request of HTTP says, and the revision that is spoken.
func (c *httpConn) header() (header http.Header, rev Revision) {
	c.mu.Lock()
	defer c.mu.Unlock()
	header, rev = http.Header{}, revision(c.version)
	maps.Copy(header, c.always)
	if rev.VersionHeader {
		header.Set("Mcp-Protocol-Version", c.version)
	}
	if c.session != "" {
		header.Set("Mcp-Session-Id", c.session)
	}
	return header, rev
}

// Read returns what has come on any connection.
func (c *httpConn) Read() (Payload, error) {
	select {
	case p := <-c.in:
		return p, nil
	case <-c.reading.Done():
		return Payload{}, context.Cause(c.reading)
	}
}

// hand gives a payload to Read.
func (c *httpConn) hand(ctx context.Context, p Payload) error {
	select {
	case c.in <- p:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// do makes a request of HTTP. A status other than 2xx is an *HTTPError.
func (c *httpConn) do(ctx context.Context, method string, header http.Header, b []byte) (*http.Response, error) {
	r, err := http.NewRequestWithContext(ctx, method, c.url, bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	r.Header = header
	response, err := c.client.Do(r)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	if response.StatusCode/100 == 2 {
		return response, nil
	}
	return nil, newHTTPError(response)
}

// isStream reports whether a response is an event stream.
func isStream(response *http.Response) bool { return mediaType(response.Header) == "text/event-stream" }

// ---- Who may send a request ----

// Guard checks each HTTP request, before anything of its body is read. The zero value protects a server
// on a loopback address from the pages of other sites (2025-11-25 basic/transports#security-warning).
type Guard struct {
	// Origins are let in besides those of loopback hosts, and only their pages get CORS headers.
	Origins []string
	// Hosts are values of Host that are let in besides loopback names, if the connection came to a
	// loopback address. A value without a port stands for all ports.
	Hosts []string
	// Authenticate returns the user who has sent the request. An *AuthError says how the request is
	// answered; any other error is a 401, and so is a user without a name, as an unknown key of a map
	// gives it. nil: everybody is let in, as "".
	Authenticate func(*http.Request) (principal string, err error)
	MaxBody      int64 // bytes of a POST; 0: 4 MiB
	// KeepAlive is how long a stream is silent before a comment is sent; 0: 15 s. Negative: none is sent, and
	// a client that has gone without a word may not be noticed.
	KeepAlive time.Duration
	Log       *slog.Logger // nil: silent
}

// AuthError is an error of Guard.Authenticate.
type AuthError struct {
	Status    int    // 0: 401
	Challenge string // the value of WWW-Authenticate; "": Bearer
}

func (e *AuthError) Error() string { return "not authorized: " + e.Challenge }

// admit makes the checks. If it returns false, it has answered the request.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request) (principal string, ok bool) {
	origins := r.Header["Origin"]
	isListed := len(origins) == 1 && containsFold(g.Origins, origins[0])
	isPreflight := r.Method == http.MethodOptions && r.Header["Access-Control-Request-Method"] != nil
	switch {
	case len(origins) > 0 && !isListed && (len(origins) > 1 || isPreflight || !isLoopbackOrigin(origins[0])):
		refuse(w, http.StatusForbidden, fmt.Sprintf("Origin not allowed: %.100q", origins[0]))
		return "", false
	case !g.allowsHost(r):
		refuse(w, http.StatusForbidden, fmt.Sprintf("Host not allowed: %.100q", r.Host))
		return "", false
	case isListed:
		w.Header().Add("Vary", "Origin")
		w.Header().Set("Access-Control-Allow-Origin", origins[0])
		w.Header().Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
	}
	if isListed && r.Method == http.MethodOptions { // before Authenticate: a preflight carries no credentials
		w.Header()["Access-Control-Allow-Headers"] = r.Header["Access-Control-Request-Headers"]
		w.Header().Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
		w.WriteHeader(http.StatusNoContent)
		return "", false
	}
	for _, name := range onlyOnce {
		if len(r.Header[name]) > 1 {
			refuse(w, http.StatusBadRequest, "More than one "+name)
			return "", false
		}
	}
	if g.Authenticate == nil {
		return "", true
	}
	principal, err := g.Authenticate(r)
	if err == nil && principal != "" {
		return principal, true
	}
	fault, _ := errors.AsType[*AuthError](err)
	fault = cmp.Or(fault, &AuthError{})
	w.Header().Set("WWW-Authenticate", cmp.Or(fault.Challenge, "Bearer"))
	refuse(w, cmp.Or(fault.Status, http.StatusUnauthorized), "Not authorized")
	return "", false
}

// onlyOnce are fields that must not stand twice: a proxy may have checked the other line.
var onlyOnce = []string{
	"Authorization", "Content-Type", "Content-Encoding", "Mcp-Session-Id", "Last-Event-Id", "Mcp-Protocol-Version",
}

func isLoopbackOrigin(origin string) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	return (scheme == "http" || scheme == "https") && isAllowedHost(host, nil)
}

// allowsHost protects a server on a loopback address from DNS rebinding: a page of evil.example
// that has its own name resolved to 127.0.0.1.
func (g *Guard) allowsHost(r *http.Request) bool {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return local == nil || !local.IP.IsLoopback() || isAllowedHost(r.Host, g.Hosts)
}

// isAllowedHost reports whether host is a loopback name or one of listed, with or without a port.
func isAllowedHost(host string, listed []string) bool {
	u, err := url.Parse("http://" + host)
	if err != nil || u.Host != host {
		return false
	}
	name := strings.TrimSuffix(host, ":"+u.Port())
	if strings.EqualFold(name, "localhost") || net.ParseIP(u.Hostname()).IsLoopback() {
		return true
	}
	return containsFold(listed, host) || containsFold(listed, name)
}

func containsFold(list []string, text string) bool {
	return slices.ContainsFunc(list, func(l string) bool { return strings.EqualFold(l, text) })
}

// silence returns how long a stream is silent before a comment is sent.
func (g *Guard) silence() time.Duration {
	if g.KeepAlive < 0 {
		return math.MaxInt64 // 292 years
	}
	return cmp.Or(g.KeepAlive, 15*time.Second)
}

// ---- Bodies, and short answers ----

// limits counts what a handler has in use.
type limits struct {
	running atomic.Int64 // requests
	held    atomic.Int64 // bytes of bodies above 4 KiB, and of results until they are written
}

// read reads the payload of a POST. If it returns true, the caller calls release when the payload
// is not in use any more; otherwise read has answered the request.
func (l *limits) read(w http.ResponseWriter, r *http.Request, g *Guard, most int) (p Payload, release func(), ok bool) {
	body, held, status := l.readBody(r, g)
	p = Decode(body)
	places := int64(0)
	switch {
	case status != http.StatusOK:
	case isListen(p) && len(body) > 2*maxSubscribed: // it stays in memory as long as the subscription
		status = http.StatusRequestEntityTooLarge
	case needsPlace(p):
		places = 1
		if l.running.Add(places) > int64(cmp.Or(most, 3072)) {
			status = http.StatusServiceUnavailable
		}
	}
	release = func() {
		l.running.Add(-places)
		l.held.Add(-held)
	}
	if status != http.StatusOK {
		release()
		refuse(w, status, bodyRefusals[status])
	}
	return p, release, status == http.StatusOK
}

var bodyRefusals = map[int]string{
	http.StatusBadRequest:            "The message is broken off",
	http.StatusNotAcceptable:         "Accept must allow application/json or text/event-stream",
	http.StatusRequestEntityTooLarge: "The message is too large",
	http.StatusUnsupportedMediaType:  "Content-Type must be application/json, without a Content-Encoding",
	http.StatusServiceUnavailable:    "Too much at once",
}

// readBody reads a body. Of a large one, the bytes count as held when they have come, not when
// they were announced: an announcement costs the client nothing.
func (l *limits) readBody(r *http.Request, g *Guard) (body []byte, held int64, status int) {
	maxBody := cmp.Or(g.MaxBody, defaultMaxMessage)
	switch {
	case mediaType(r.Header) != "application/json" || r.Header.Get("Content-Encoding") != "":
		return nil, 0, http.StatusUnsupportedMediaType
	case !accepts(r, "application/json") && !accepts(r, "text/event-stream"):
		return nil, 0, http.StatusNotAcceptable
	case r.ContentLength > maxBody: // so that nobody sends it
		return nil, 0, http.StatusRequestEntityTooLarge
	}
	var b bytes.Buffer
	for part := int64(4 << 10); ; part = 64 << 10 {
		n, err := io.CopyN(&b, r.Body, part)
		if b.Len() > 4<<10 {
			held += 2 * n // arguments are copied once
			l.held.Add(2 * n)
		}
		switch {
		case int64(b.Len()) > maxBody:
			return nil, held, http.StatusRequestEntityTooLarge
		case held > 0 && l.held.Load() > max(maxHeld, 4*maxBody):
			return nil, held, http.StatusServiceUnavailable
		case err == io.EOF:
			return b.Bytes(), held, http.StatusOK
		case err != nil:
			return nil, held, http.StatusBadRequest
		}
	}
}

// mediaType returns the type of a body, without its parameters, which may be malformed.
func mediaType(header http.Header) string {
	kind, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // "" is no media type
	return kind
}

// accepts reports whether a client takes a media type. Weights do not count.
func accepts(r *http.Request, kind string) bool {
	lines := r.Header["Accept"]
	group, _, _ := strings.Cut(kind, "/")
	for part := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		name, _, _ := strings.Cut(part, ";")
		name = strings.TrimSpace(name)
		if strings.EqualFold(name, kind) || name == "*/*" || strings.EqualFold(name, group+"/*") {
			return true
		}
	}
	return len(lines) == 0
}

// refuse answers a request with a status, and an error of JSON-RPC.
func refuse(w http.ResponseWriter, status int, reason string) {
	reject(w, status, ID{}, &Error{Code: CodeInvalidRequest, Message: reason})
}

func refuseMethod(w http.ResponseWriter, methods string) {
	w.Header().Set("Allow", methods)
	refuse(w, http.StatusMethodNotAllowed, "Method not allowed")
}

func reject(w http.ResponseWriter, status int, id ID, err error) {
	writeJSON(w, status, payload(NewResponse(id, nil, err)))
}

func writeJSON(w http.ResponseWriter, status int, p Payload) {
	text := p.Append(make([]byte, 0, p.held/2+200))
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(text)))
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(writeDeadline(len(text))) // for a client that does not read
	w.WriteHeader(status)
	_, _ = w.Write(text) // if that fails, the client has gone
	_ = controller.SetWriteDeadline(time.Time{})
}
