package main

// Streamable HTTP. Every message of the client is a POST to one URL, and the answer to a request comes back as that POST's response: as
// JSON, or as a stream of events if there is something to say before it. In the legacy era there are sessions, a GET for what the server
// has to say of its own accord, and a GET that continues a stream that was cut off.
//
//	> POST /mcp                                              > POST /mcp
//	> Accept: application/json, text/event-stream            > Mcp-Session-Id: K7VY…
//	> Content-Type: application/json                         > MCP-Protocol-Version: 2025-11-25
//	>                                                        >
//	> {"jsonrpc":"2.0","id":1,"method":"initialize",…}       > {"jsonrpc":"2.0","id":2,"method":"tools/call",…}
//	< 200                                                    < 200
//	< Content-Type: application/json                         < Content-Type: text/event-stream
//	< Mcp-Session-Id: K7VY…                                  <
//	<                                                        < id: 5d1f03aa.1/0
//	< {"jsonrpc":"2.0","id":1,"result":{…}}                  < data:
//	                                                         <
//	> GET /mcp                                               < id: 5d1f03aa.1/1
//	> Mcp-Session-Id: K7VY…                                  < data: {"jsonrpc":"2.0","method":"notifications/progress",…}
//	> Last-Event-ID: 5d1f03aa.1/1                            <
//	< 200, and what follows that event                       (the connection breaks)
//
// Implements 2025-03-26, 2025-06-18 and 2025-11-25 basic/transports#streamable-http. A handler runs on the goroutine that net/http has for
// its POST; if the response becomes a stream, one more goroutine writes it, and is joined before that POST is over. A reply's mutex guards
// what has been decided about its response, a StreamableHandler's how many requests are being answered.
// Copy with jsonrpc.go, sse.go and session.go.

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"
)

const (
	maxRunning = 16 * maxInFlight // requests of one handler at once
	undecided  = time.Second      // before a response without an answer becomes a stream
)

// StreamableHandler is an http.Handler; mount it at one path, with and without a final slash. Set the fields before the first request;
// Handler is required. A handler sees the request's header, and who has sent it, in its Exchange. 2026-07-28 is not served here yet: a
// request that declares it gets -32022. http.Server's time-outs do the streams no harm; http.TimeoutHandler does, because nothing can be
// flushed through it. 2025-11-25 basic/transports#streamable-http: "The server MUST provide a single HTTP endpoint path (hereafter
// referred to as the MCP endpoint) that supports both POST and GET methods."
type StreamableHandler struct {
	Handler  Handler
	Sessions *Sessions // nil: none. Then each POST stands alone, GET and DELETE are refused, and nobody can be asked
	Versions []string  // versions to offer, newest first: those that the Server has; nil: all
	Guard

	once     sync.Once
	versions []string        // of Versions, those that are served
	ending   chan struct{}   // closed when the handler winds down
	life     context.Context // of what is done without a session
	end      context.CancelFunc

	mu      sync.Mutex // guards the fields below
	open    int        // HTTP requests being answered
	running int        // JSON-RPC requests being run
	closing bool
	idle    chan struct{} // closed when the last HTTP request has been answered after closing
}

// ServeHTTP answers one request of a client.
func (h *StreamableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.prepare)
	principal, ok := h.admit(w, r)
	if !ok {
		return
	}
	if !h.enter() {
		h.busy(w, r, ID{}, "The server is shutting down")
		return
	}
	defer h.leave()
	sessions := h.Sessions != nil && len(h.versions) > 0 && !declaresModern(r)
	switch {
	case r.Method == http.MethodPost:
		h.post(w, r, principal)
	case r.Method == http.MethodGet && sessions && canStream(w):
		h.get(w, r, principal)
	case r.Method == http.MethodDelete && sessions:
		h.delete(w, r, principal)
	default: // 2025-11-25 basic/transports#listening-for-messages-from-the-server: GET is answered with a stream, "or else return HTTP 405"
		w.Header().Set("Allow", "POST")
		if sessions {
			w.Header().Set("Allow", "GET, POST, DELETE")
		}
		h.refuse(w, r, http.StatusMethodNotAllowed, ID{}, CodeInvalidRequest, "Method not allowed")
	}
}

// declaresModern tells whether a request is of the era without sessions, GET and DELETE.
func declaresModern(r *http.Request) bool {
	return revision(r.Header.Get("Mcp-Protocol-Version")).Modern
}

func (h *StreamableHandler) prepare() {
	h.ending, h.idle = make(chan struct{}), make(chan struct{})
	h.life, h.end = context.WithCancel(context.Background())
	h.versions = legacy(h.Versions)
	if h.Sessions != nil {
		h.Sessions.Log, h.Sessions.keepAlive = cmp.Or(h.Sessions.Log, h.Log), h.silence()
	}
}

// enter counts what Close waits for; false means that it no longer does.
func (h *StreamableHandler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.closing {
		h.open++
	}
	return !h.closing
}

func (h *StreamableHandler) leave() {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open--; h.closing && h.open == 0 {
		close(h.idle)
	}
}

// begin counts requests that are to be run, up to a bound. What is no request is never kept waiting by those that are: an answer, or
// a cancellation, may be what they wait for.
func (h *StreamableHandler) begin(n int) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if n > 0 && h.running+n > maxRunning {
		return false
	}
	h.running += n
	return true
}

// Close winds down: new requests are refused, streams of no request end, questions to clients fail, and requests being answered have three
// seconds, then their contexts end. It ends all sessions when all are answered, returns at the latest four seconds after the call, and may
// be called again. Run it beside http.Server.Shutdown, which waits for streams that would never end, and wait for both.
func (h *StreamableHandler) Close() {
	h.once.Do(h.prepare)
	h.mu.Lock()
	if !h.closing {
		h.closing = true
		close(h.ending)
		if h.open == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()
	sessions := cmp.Or(h.Sessions, new(Sessions))
	for _, s := range sessions.All() {
		s.unlisten()
		s.Peer.fail(fmt.Errorf("%w: %w", ErrClosed, ErrSessionClosed)) // its answers will not be let in
	}
	closedWithin(hurry, h.idle)
	h.end()
	for _, s := range sessions.All() {
		s.Peer.end(ErrSessionClosed)
	}
	closedWithin(lastWord, h.idle)
	sessions.Close()
}

// closedWithin waits for a channel to be closed, no longer than d.
func closedWithin(d time.Duration, done <-chan struct{}) {
	select {
	case <-done:
	case <-time.After(d):
	}
}

func (h *StreamableHandler) busy(w http.ResponseWriter, r *http.Request, id ID, reason string) {
	w.Header().Set("Retry-After", "5")
	h.refuse(w, r, http.StatusServiceUnavailable, id, CodeInternalError, reason)
}

// ---- What every request says of itself ----

// declared returns the version that a request's header names, "" if none does. If ok is false, the request has been refused: 2025-11-25
// basic/transports#protocol-version-header, "If the server receives a request with an invalid or unsupported MCP-Protocol-Version, it MUST
// respond with 400 Bad Request." In a session that session's own version stays in force; the header need only be one we speak.
func (h *StreamableHandler) declared(w http.ResponseWriter, r *http.Request, id ID) (version string, ok bool) {
	lines := r.Header["Mcp-Protocol-Version"]
	switch {
	case len(lines) == 0:
		return "", true
	case len(lines) > 1:
		h.refuse(w, r, http.StatusBadRequest, id, CodeHeaderMismatch, "More than one MCP-Protocol-Version")
		return "", false
	case !slices.Contains(h.versions, lines[0]):
		h.unsupported(w, r, id, lines[0])
		return "", false
	}
	return lines[0], true
}

func (h *StreamableHandler) unsupported(w http.ResponseWriter, r *http.Request, id ID, version string) {
	version = fmt.Sprintf("%.200s", version)
	h.log().Info("refused", "status", http.StatusBadRequest, "reason", "unsupported version", "version", version, "from", r.RemoteAddr)
	writeJSON(w, http.StatusBadRequest, Payload{Messages: []*Message{NewResponse(id, nil, unsupported(h.versions, version))}})
}

// session returns the session that a request names; release it. If it returns nil, the request has been refused: 400 if it names none, 404
// if there is no such session, or it is another principal's. 2025-11-25 basic/transports#session-management: after a session has ended the
// server "MUST respond to requests containing that session ID with HTTP 404 Not Found."
func (h *StreamableHandler) session(w http.ResponseWriter, r *http.Request, id ID, principal string) *Session {
	names := r.Header["Mcp-Session-Id"]
	switch {
	case len(names) == 0 || names[0] == "":
		h.refuse(w, r, http.StatusBadRequest, id, CodeInvalidRequest, "Mcp-Session-Id is required")
		return nil
	case len(names) > 1:
		h.refuse(w, r, http.StatusBadRequest, id, CodeHeaderMismatch, "More than one Mcp-Session-Id")
		return nil
	}
	s := h.Sessions.get(names[0], principal)
	if s == nil {
		h.refuse(w, r, http.StatusNotFound, id, CodeInvalidRequest, "Session not found")
	}
	return s
}

// ---- POST ----

// post dispatches what a POST holds.
func (h *StreamableHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	if !h.isJSON(w, r) {
		return
	}
	rep := &reply{w: w, r: r, silence: h.silence(),
		json: accepts(r.Header["Accept"], "application/json"), stream: accepts(r.Header["Accept"], "text/event-stream")}
	if !rep.json && !rep.stream {
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, CodeInvalidRequest, "Accept must allow application/json or text/event-stream")
		return
	}
	rep.stream = rep.stream && canStream(w)
	in, ok := h.read(w, r)
	if !ok {
		return
	}
	m := in.Messages[0]
	handshake := m.Kind() == Request && m.Method == "initialize" && !in.Batch
	switch {
	case m.Kind() == Invalid && m.Error.Code == CodeParseError: // no message at all, so no session and no version matter
		writeJSON(w, http.StatusBadRequest, in)
	case m.Kind() == Request && !in.Batch && !h.agrees(w, r, m): // it has been refused
	case declaresModern(r) && !handshake: // such a message names no session
		h.unsupported(w, r, in.id(), r.Header.Get("Mcp-Protocol-Version"))
	case h.Sessions == nil:
		h.alone(rep, in, principal, handshake)
	case handshake: // with a session header, too: it starts anew
		h.initialize(rep, in, principal)
	default:
		h.inSession(rep, in, principal)
	}
}

// agrees checks the version that a request declares in its _meta, if it does: the header must say the same.
func (h *StreamableHandler) agrees(w http.ResponseWriter, r *http.Request, m *Message) bool {
	lines := r.Header["Mcp-Protocol-Version"]
	switch meta, declares, _ := m.Meta(); {
	case declares && len(lines) == 1 && lines[0] != meta.ProtocolVersion:
		h.refuse(w, r, http.StatusBadRequest, m.ID, CodeHeaderMismatch, "MCP-Protocol-Version is not the version in _meta")
		return false
	case declares && !slices.Contains(h.versions, meta.ProtocolVersion):
		h.unsupported(w, r, m.ID, meta.ProtocolVersion)
		return false
	}
	return true
}

// initialize opens a session, if the handshake succeeds. It is not refused for its version header, which would make it impossible to agree
// on one. Its answer is JSON even if it takes long: its header is to carry the id.
func (h *StreamableHandler) initialize(rep *reply, in Payload, principal string) {
	s := h.Sessions.create(principal)
	opened := false
	defer func() {
		if s.release(); !opened {
			s.shut(ErrSessionClosed)
		}
	}()
	rep.plain = true
	rep.opens = func(answer *Message) bool {
		if answer.Error != nil {
			return true
		}
		if err := h.Sessions.add(s); err != nil {
			h.busy(rep.w, rep.r, answer.ID, err.Error())
			return false
		}
		opened = true
		rep.w.Header().Set("Mcp-Session-Id", s.ID)
		return true
	}
	h.dispatch(h.life, rep, s.Peer, in, Exchange{Peer: s.Peer, Principal: principal}) // the session is not in the table yet
}

// inSession dispatches what belongs to a session.
func (h *StreamableHandler) inSession(rep *reply, in Payload, principal string) {
	id := in.id()
	rep.session = h.session(rep.w, rep.r, id, principal)
	if rep.session == nil {
		return
	}
	rep.release = sync.OnceFunc(rep.session.release)
	defer rep.release()
	if _, ok := h.declared(rep.w, rep.r, id); !ok {
		return
	}
	h.dispatch(context.Background(), rep, rep.session.Peer, in, Exchange{Peer: rep.session.Peer, Principal: principal})
}

// alone dispatches where there are no sessions: nothing is known of the client but this request. If it leaves, nothing can be delivered and
// nobody could ever cancel, so the work ends.
func (h *StreamableHandler) alone(rep *reply, in Payload, principal string, handshake bool) {
	var rev Revision
	if rep.plain = handshake; !handshake {
		version, ok := h.declared(rep.w, rep.r, in.id())
		if !ok {
			return
		}
		rev = revision(cmp.Or(version, assumedVersion))
	}
	p := newPeer(h.life, func(context.Context, *Message) error { return errNobody }, h.Log)
	defer p.end(nil)
	defer context.AfterFunc(rep.r.Context(), func() { p.end(nil) })()
	h.dispatch(p.ctx, rep, p, in, Exchange{Revision: rev, Principal: principal})
}

// requests returns how many there are.
func (in Payload) requests() (n int) {
	for _, m := range in.Messages {
		if m.Kind() == Request {
			n++
		}
	}
	return n
}

// id returns what a refusal of the whole payload is to name: the id of a request, or of what might have been one.
func (in Payload) id() ID {
	if m := in.Messages[0]; !in.Batch && m.Kind() != Response {
		return m.ID
	}
	return ID{}
}

// dispatch lets a peer take in a payload, and answers. The work goes on if the client leaves: 2025-11-25
// basic/transports#sending-messages-to-the-server, "Disconnection SHOULD NOT be interpreted as the client cancelling its request." So ctx is
// not the request's. A session passes Background: its Peer cancels what it serves when it ends, and a context derived from the Peer's
// would cost each session memory.
func (h *StreamableHandler) dispatch(ctx context.Context, rep *reply, p *Peer, in Payload, base Exchange) {
	base.Header, base.Ending = rep.r.Header, h.ending
	base.outlet, base.disconnect = rep.send, rep.disconnect
	requests := in.requests()
	if !h.begin(requests) {
		h.busy(rep.w, rep.r, in.id(), errBusy.Message)
		return
	}
	defer h.begin(-requests)
	answer := p.Dispatch(ctx, h.Handler, in, base)
	damaged := slices.IndexFunc(in.Messages, func(m *Message) bool { return m.local != nil })
	switch {
	case answer != nil:
		rep.batch = answer.Batch
		rep.refused = len(answer.work) == 0
		defer answer.Written()
		defer rep.finish()
		rep.commitLate()
		answer.Emit(rep.answer)
	case damaged >= 0: // a response: whoever waited for it knows by now. What cannot be accepted "MUST return an HTTP error status code"
		h.refuse(rep.w, rep.r, http.StatusBadRequest, ID{}, CodeInvalidRequest, in.Messages[damaged].local.Error())
	case requests > 0: // the session has ended meanwhile
		h.refuse(rep.w, rep.r, http.StatusNotFound, in.id(), CodeInvalidRequest, "Session not found")
	default: // 2025-11-25 basic/transports#sending-messages-to-the-server: "the server MUST return HTTP status code 202 Accepted with no body"
		accepted(rep.w)
	}
}

// accepted answers with 202, even if it has taken longer than a server's WriteTimeout.
func accepted(w http.ResponseWriter) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(stall))
	w.WriteHeader(http.StatusAccepted)
}

// status is that of a response which is one error. Only what makes the request itself wrong shows in it; legacy clients take other
// statuses for failures of the transport.
func status(m *Message) int {
	switch {
	case m.Error == nil:
		return http.StatusOK
	case m.Error == errBusy:
		return http.StatusServiceUnavailable
	}
	switch m.Error.Code {
	case CodeParseError, CodeInvalidRequest, CodeHeaderMismatch, CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// ---- The reply: JSON, or a stream ----

// reply is the response to a POST that must be answered. What it becomes is decided as late as possible: a stream when there is something to
// say before the answer or a second has passed, else JSON.
type reply struct {
	w            http.ResponseWriter
	r            *http.Request
	session      *Session // nil: none
	json, stream bool     // what the client accepts
	plain        bool     // it becomes no Stream: there is nothing to say but the answer
	batch        bool
	refused      bool                // nothing of it is run
	release      func()              // of the session, once
	opens        func(*Message) bool // called with the answer before it is written; false: it has answered otherwise. nil: nothing to do
	silence      time.Duration
	late         *time.Timer // commits after a second; nil: never

	mu       sync.Mutex    // guards the fields below
	answers  []*Message    // that came before it was decided
	size     int           // their bytes, about
	events   *Stream       // nil: not decided
	followed chan struct{} // closed when nobody writes the stream to this response any more
	done     bool
}

// commitLate makes the response a stream if there is no answer within a second, or as long as a stream may be silent, so that the client and
// all between know that somebody is at work.
func (rep *reply) commitLate() {
	if rep.plain || rep.refused {
		return
	}
	wait := undecided
	if rep.silence > 0 {
		wait = min(wait, rep.silence)
	}
	rep.late = time.AfterFunc(wait, func() {
		if rep.stream {
			rep.commit()
			return
		}
		rep.mu.Lock()
		defer rep.mu.Unlock()
		if !rep.done { // it will be JSON, however long it takes: not a server's WriteTimeout must end it, but if the client leaves it is for nobody
			_ = http.NewResponseController(rep.w).SetWriteDeadline(time.Time{})
			if rep.release != nil {
				context.AfterFunc(rep.r.Context(), rep.release)
			}
		}
	})
}

// send sends what belongs to the request and precedes its answer.
func (rep *reply) send(ctx context.Context, m *Message) error {
	if !rep.stream || rep.plain {
		if m.Kind() == Request {
			return ErrNoServerRequests
		}
		return nil // a client that takes only JSON can do without
	}
	events := rep.commit()
	switch {
	case events == nil:
		return ErrAnswered
	case rep.session == nil:
		return events.Send(ctx, m.encode())
	}
	return rep.session.sendOn(ctx, events, m)
}

// commit makes the response a stream, if that is not decided yet, and returns it; nil when the reply is finished.
func (rep *reply) commit() *Stream {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	if rep.events != nil || rep.done {
		return rep.events
	}
	if rep.session != nil {
		rep.events = rep.session.open(rep.release) // work for nobody does not keep the session
	} else {
		rep.events = NewStream("", 0)
		rep.events.keepAlive = rep.silence
	}
	f := rep.events.open(rep.answers)
	rep.answers = nil
	rep.followed = make(chan struct{})
	go func() { // joined by finish
		defer close(rep.followed)
		rep.events.run(f, rep.w, rep.r, true)
		rep.mu.Lock()
		done := rep.done
		rep.mu.Unlock()
		if !done && rep.r.Context().Err() == nil { // Disconnect, a takeover, the session's end: the handler runs on
			letGo(rep.w, rep.r)
		}
	}()
	return rep.events
}

// disconnect makes the response a stream and lets go of it.
func (rep *reply) disconnect(retry time.Duration) {
	if !rep.stream || rep.plain || rep.session == nil || !rep.session.polls() {
		return
	}
	rep.mu.Lock()
	if rep.events == nil && !rep.done && rep.r.ProtoMajor == 1 {
		rep.w.Header().Set("Connection", "close") // for letGo
	}
	rep.mu.Unlock()
	if events := rep.commit(); events != nil {
		events.Disconnect(retry)
	}
}

// answer takes in a response.
func (rep *reply) answer(m *Message) {
	rep.mu.Lock()
	events := rep.events
	if events == nil {
		rep.answers = append(rep.answers, m)
		rep.size += m.size()
	}
	large := len(rep.answers) > 1 && rep.size > maxLog
	rep.mu.Unlock()
	if events == nil && large && rep.stream && !rep.plain {
		rep.commit() // rather than to gather them all
	}
	if events != nil {
		_ = events.Send(context.Background(), m.encode()) // if nobody can ever read it, there is no one to tell
	}
}

// finish writes what has not been written, and waits until all is.
func (rep *reply) finish() {
	rep.mu.Lock()
	rep.done = true
	rep.mu.Unlock()
	if rep.late != nil {
		rep.late.Stop()
	}
	switch { // from here on commit changes nothing, so no lock is needed
	case rep.events != nil:
		rep.events.End()
		if <-rep.followed; rep.session != nil {
			rep.session.retire(rep.events)
		}
	case len(rep.answers) == 0 && rep.stream: // all requests were cancelled
		newEventWriter(rep.w)
	case len(rep.answers) == 0: // there is nothing to say in JSON, and its client should have accepted both
		accepted(rep.w)
	case rep.opens == nil || rep.opens(rep.answers[0]):
		rep.write()
	}
}

// write writes a response that consists of nothing but the answer, as JSON unless the client accepts only events.
func (rep *reply) write() {
	out, code := Payload{Messages: rep.answers, Batch: rep.batch}, http.StatusOK
	if !rep.batch {
		code = status(out.Messages[0])
	} else if rep.refused {
		code = http.StatusBadRequest
	}
	if code == http.StatusServiceUnavailable {
		rep.w.Header().Set("Retry-After", "5")
	}
	if rep.json || code != http.StatusOK {
		writeJSON(rep.w, code, out)
		return
	}
	events := newEventWriter(rep.w)
	for _, m := range out.Messages {
		_ = events.write(Event{Data: m.encode()}.Append(nil))
	}
}

// letGo ends a response while its handler still runs, so that the client need not hold the connection. net/http would end it only then.
func letGo(w http.ResponseWriter, r *http.Request) {
	rc := http.NewResponseController(w)
	conn, out, err := rc.Hijack()
	if err != nil { // HTTP/2: resets the stream
		_ = rc.SetWriteDeadline(time.Now())
		return
	}
	_ = conn.SetDeadline(time.Now().Add(lastWord))
	if w.Header().Get("Connection") == "close" && r.ProtoAtLeast(1, 1) {
		_, _ = out.WriteString("0\r\n\r\n") // the last chunk: a response that is complete
		_ = out.Flush()
	} // otherwise it is cut: after a complete response the client might send its next request just when we close
	_ = conn.Close()
}

// ---- GET and DELETE ----

// get opens the stream of what belongs to no request, or continues one that was cut off. 2025-11-25
// basic/transports#resumability-and-redelivery: "The server MUST NOT replay messages that would have been delivered on a different stream."
func (h *StreamableHandler) get(w http.ResponseWriter, r *http.Request, principal string) {
	if _, ok := h.declared(w, r, ID{}); !ok {
		return
	}
	if !accepts(r.Header["Accept"], "text/event-stream") { // which it "MUST include"; 405 would say that there is no stream
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, CodeInvalidRequest, "Accept must allow text/event-stream")
		return
	}
	s := h.session(w, r, ID{}, principal)
	if s == nil {
		return
	}
	defer s.release()
	after := r.Header.Get("Last-Event-ID")
	var events *Stream
	if after == "" {
		events = s.listen()
	} else {
		events = s.find(after)
	}
	if events == nil || events.Follow(w, r, after) != nil { // not 404, which would end the client's session
		h.refuse(w, r, http.StatusBadRequest, ID{}, CodeInvalidRequest, "Last-Event-ID is unknown, or no longer kept")
	}
}

// delete ends a session.
func (h *StreamableHandler) delete(w http.ResponseWriter, r *http.Request, principal string) {
	if _, ok := h.declared(w, r, ID{}); !ok {
		return
	}
	s := h.session(w, r, ID{}, principal)
	if s == nil {
		return
	}
	defer s.release()
	h.Sessions.Delete(s, ErrSessionDeleted)
	w.WriteHeader(http.StatusNoContent)
}
