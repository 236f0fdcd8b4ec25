// SPDX-License-Identifier: 0BSD
// http.go of mcpwire 0.3.0, which is made to be copied.

package main

// Streamable HTTP. The client sends each message as a POST to one URL. If the message is a
// request, the response to the POST carries the answer, as JSON or as a stream of events. It is
// a stream if the server sends something before the answer, or if the answer takes longer than
// a second. The legacy era, up to 2025-11-25, also has sessions. In a session, a GET opens the
// standalone stream, for messages that belong to no request. A GET with Last-Event-ID continues
// a stream that was cut:
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
//	                                                         <    (an id alone: from now on the client can continue)
//	                                                         < id: 5d1f03aa.1/1
//	                                                         < data: {"jsonrpc":"2.0","method":"notifications/progress",…}
//	                                                         <
//	                                                         (the connection breaks)
//	                                                         > GET /mcp
//	                                                         > Mcp-Session-Id: K7VY…
//	                                                         > Last-Event-ID: 5d1f03aa.1/1
//	                                                         < 200, and what follows that event
//
// The modern era, 2026-07-28, has neither sessions nor GET. The header of a request repeats
// some of its body, so that a proxy need not read the body. The server remembers nothing, and a
// client cancels its request by closing the connection:
//
//	> POST /mcp
//	> Accept: application/json, text/event-stream
//	> Content-Type: application/json
//	> MCP-Protocol-Version: 2026-07-28
//	> Mcp-Method: tools/call
//	> Mcp-Name: get-weather
//	>
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"get-weather",…,"_meta":{…}}}
//	< 200
//	< Content-Type: application/json
//	<
//	< {"jsonrpc":"2.0","id":1,"result":{"resultType":"complete",…}}
//
// On a first reading, read to the banner "The header of legacy requests": 581 lines. The head
// of sse.go has the words, such as response and handler. On a second reading, the client begins
// at the banner "The client".
//
// Source: 2025-03-26, 2025-06-18 and 2025-11-25 basic/transports#streamable-http; 2026-07-28
// basic/transports/streamable-http. Copy this file with jsonrpc.go, session.go and sse.go. To
// see it work, read lessons 05, 06 and 12 of the course: testdata/README.md.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	mathrand "math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ==== The server ====

const decideAfter = time.Second // how long a response waits for the answer before it becomes a stream

// StreamableHandler is an http.Handler for Streamable HTTP. Mount it at one path. Set the
// fields before the first request. The era is decided for each request, so clients of all
// revisions use the same path.
//
//	http.Handle("/mcp", &StreamableHandler{Handler: server, Sessions: &Sessions{Keep: 1 << 20}})
//	log.Fatal(http.ListenAndServe("127.0.0.1:8080", nil))
//
// 2025-11-25 basic/transports#streamable-http: "The server MUST provide a single HTTP endpoint
// path (hereafter referred to as the MCP endpoint) that supports both POST and GET methods".
// 2026-07-28 has only POST.
//
// The Exchange of a request has the header of its POST, and the principal. The context of its
// handler has the values that middleware has put into the context of the POST. In a session, a
// client that has gone cancels nothing. So the handler may run on after ServeHTTP has returned,
// and middleware must not close what a handler uses. Guard says more about middleware, and
// which time-outs the http.Server should have.
type StreamableHandler struct {
	Handler Handler // required: a *Server, or a Handler that calls one; nil: ServeHTTP panics
	// Sessions is the table of sessions of the legacy era. If it is nil, there are none: each
	// POST stands alone, GET and DELETE are refused, and no legacy client can be asked.
	Sessions *Sessions
	// Versions are the versions to offer, newest first. Empty: those of Handler, if it is a
	// Server or embeds one; otherwise all.
	Versions []string
	// HeaderParams returns the arguments of a tool that modern clients repeat in their header.
	// ReadHeaderParams finds them in the inputSchema of the tool. HeaderParams is called for
	// each modern tools/call, by several goroutines. nil: the method HeaderParams of Handler,
	// if it has one, as a Server does. Otherwise the fields of such arguments are not checked.
	HeaderParams func(tool string) []HeaderParam
	// MaxRequests is how many requests of all clients may run at once. Subscriptions and
	// initialize do not count. Requests without a session get at most three quarters of these
	// places. A request that gets no place is answered with 503. 0: 3,072.
	MaxRequests int
	Guard

	service            // of sse.go, which SSEHandler embeds, too: makes streams, runs handlers, counts for Close
	versions  []string // prepare sets it: Versions, or those of the Handler, or all
	legacy    []string // those of them that begin with initialize
	listening counter  // of subscriptions
}

// ServeHTTP answers one request of a client.
func (h *StreamableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Handler == nil {
		panic("StreamableHandler.Handler is nil")
	}
	h.once.Do(h.prepare)
	principal, ok := h.admit(w, r) // the Guard: Origin, Host, user
	if !ok {
		return
	}
	group := &h.requests // POSTs and DELETEs: Close waits for them first, and for the GETs last
	if r.Method == http.MethodGet {
		group = &h.gets
	}
	if !h.enter(group) { // Close was called
		h.refuse(w, r, http.StatusServiceUnavailable, ID{}, "The server is shutting down")
		return
	}
	defer group.Done()
	mayUseSession := h.Sessions != nil && len(h.legacy) > 0 && !revision(r.Header.Get("Mcp-Protocol-Version")).Modern
	switch {
	case r.Method == http.MethodPost:
		h.post(w, r, principal)
	case mayUseSession && r.Method == http.MethodGet:
		h.get(w, r, principal)
	case mayUseSession && r.Method == http.MethodDelete:
		h.delete(w, r, principal)
	default:
		// 2026-07-28 basic/transports/streamable-http#earlier-streamable-http-revisions:
		// "respond with 405 Method Not Allowed"
		w.Header().Set("Allow", "POST")
		if mayUseSession {
			w.Header().Set("Allow", "GET, POST, DELETE")
		}
		h.refuse(w, r, http.StatusMethodNotAllowed, ID{}, "Method not allowed")
	}
}

// ---- What becomes of a message: where it goes, and what a cut does to a call ----
//
// Where the server sends a message that is not an answer, if it belongs to a request:
//
//	in a session                  the stream of the POST
//	in the modern era             the stream of the POST; a question is the result of the call
//	legacy, without a session     the stream of the POST; a question fails
//
// And if it belongs to none:
//
//	in a session                  the standalone stream. Without a GET the message is refused: Notify and
//	                              Call return an error. After a cut it is kept, if events are kept, and
//	                              the client may have read an id
//	in the modern era             Server.Publish sends it on the stream of each subscriptions/listen
//	legacy, without a session     it is dropped: x.Peer is nil
//
// What becomes of a call when its connection breaks, at the server:
//
//   - In a session, the handler continues. Its answer is kept on three conditions: the response was
//     a stream before the answer came, Sessions.Keep allows it, and the client may have read an
//     event id. Otherwise the answer is dropped.
//   - Without a session, and in the modern era, the handler is cancelled: its context ends. Its
//     answer is dropped.
//
// And at our client:
//
//   - It continues the stream with a GET, if it has read an event id, and if streams can be
//     continued in that revision. If they cannot, or if eight GETs in a row bring nothing, the
//     call fails with ErrInterrupted.
//   - If no byte of the response has come, the call fails with the error of net/http. Nobody knows
//     whether it has run.

// ---- POST ----

// incoming is a POST while it is answered. The server of testdata/second does the same in post
// and call.respond, in a simpler way. The goroutine of ServeHTTP is the only one that writes
// the response. The handlers run on a goroutine of their own, because they may continue when
// the client has gone:
//
//	goroutine of ServeHTTP                    goroutine of the handlers
//	1 post reads the payload
//	2 route decides about era and session
//	3 handOn calls Peer.dispatch ───────────► 4 answerOn calls the Handler
//	5 respond waits for one of these:           what it sends, and the answers last,
//	  - the handlers have returned              go to the Stream of the response
//	  - a message comes before the answer
//	  - a second has passed
//	  - the client has gone
//	6 decide chooses: only a status, JSON, or a response that follows the Stream
type incoming struct {
	h       *StreamableHandler
	w       http.ResponseWriter
	r       *http.Request
	payload Payload

	// What decides about the response.
	acceptsJSON bool      // the client accepts JSON
	mayStream   bool      // the response may become a stream
	isBatch     bool      // the answers form one array
	revision    Revision  // in force for a request without a session; zero in a session, whose Peer knows it
	session     *Session  // nil: there is none, so a client that leaves cancels its requests
	stream      *Stream   // of the response
	follower    *follower // the response, for the stream
	opened      bool      // initialize has opened the session

	// What is given back when the handlers have returned.
	requests    int      // how many messages get an answer: requests, and Invalid ones
	places      *counter // counts the requests while they run; nil: they are not counted
	whenHandled func()   // runs then; nil: nothing does
}

// post reads a payload, and answers it.
func (h *StreamableHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	payload, ok := h.readPayload(w, r, &h.used)
	if !ok {
		return
	}
	in := &incoming{h: h, w: w, r: r, payload: payload}
	defer func() { in.payload.used.release() }() // if it is refused; otherwise handOn has passed it on, and in.payload is empty
	in.acceptsJSON = accepts(r.Header["Accept"], "application/json")
	acceptsStream := accepts(r.Header["Accept"], "text/event-stream")
	if !in.acceptsJSON && !acceptsStream {
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, "Accept must allow application/json or text/event-stream")
		return
	}
	// If middleware hides Flush, the response cannot be a stream. canStream also logs that.
	in.mayStream = acceptsStream && h.canStream(w, &h.noStreams)
	in.route(Exchange{handler: h.Handler, Principal: principal})
}

// route decides about the era and the session of a payload. Each message gets a copy of base. A
// request names its version in its _meta, else in its header. The first line that fits counts:
//
//	  the payload                                               what becomes of it
//	1 is not JSON                                               400, whatever its session and version
//	2 has more than one MCP-Protocol-Version                    400
//	3 names a modern version, and a modern one is offered       checkModern
//	4 names no version, and only modern ones are offered        checkModern, which says what is missing
//	5 names a version that does not fit: see whyNotLegacy       400
//	6 is anything else, and there are no sessions               legacyWithoutSession, which checks the header
//	7 is an initialize                                          initialize, which opens a new session
//	8 is anything else                                          inSession, which checks the header, too
//
// 2026-07-28 basic/versioning#compatibility-matrix: "A request carrying modern per-request
// _meta is served statelessly according to this revision." and "An initialize request selects
// legacy semantics, scoped to […] the session".
func (in *incoming) route(base Exchange) {
	h, m := in.h, in.payload.Messages[0]
	inMeta := ""
	if m.Kind() == Request && !in.payload.Batch {
		meta, _ := m.Meta()
		inMeta = meta.ProtocolVersion
	}
	inHeader := in.r.Header["Mcp-Protocol-Version"]
	version := cmp.Or(inMeta, in.r.Header.Get("Mcp-Protocol-Version"))
	isInitialize := in.payload.hasRequest("initialize") && !in.payload.Batch
	legacyFault := h.whyNotLegacy(inHeader, inMeta, isInitialize)
	switch {
	case m.Kind() == Invalid && m.Error.Code == CodeParseError: // 1
		writeJSON(in.w, http.StatusBadRequest, in.payload)
	case len(inHeader) > 1: // 2
		in.reject(http.StatusBadRequest, mismatch("More than one MCP-Protocol-Version"))
	case revision(version).Modern && h.hasModern(), version == "" && len(h.legacy) == 0: // 3, 4
		in.checkModern(base)
	case legacyFault != nil: // 5
		in.reject(http.StatusBadRequest, legacyFault)
	case h.Sessions == nil: // 6
		in.legacyWithoutSession(base, isInitialize)
	case isInitialize: // 7
		in.initialize(base)
	default: // 8
		in.inSession(base)
	}
}

// initialize makes a session, and opens it if the handshake succeeds. The header may name any
// version that is not modern: the client asks for a version in the params, and the answer says
// which one we speak. The response is always JSON, because its header has the id of the
// session, and the session opens only when the handler has succeeded.
func (in *incoming) initialize(base Exchange) {
	// The session is there, but not in the table: no other request can find it, and Close
	// cannot either.
	s := in.h.Sessions.create(base.Principal)
	defer s.release() // this POST does not use the session any more
	stop := context.AfterFunc(in.h.life, func() { s.Peer.endContexts(ErrSessionClosed) })
	// When the handler has returned, a session that was not opened ends.
	in.whenHandled = func() {
		stop()
		if !in.opened {
			in.h.Sessions.Delete(s, ErrSessionClosed)
		}
	}
	// openSession calls the Handler. If it succeeds, the session is put into the table.
	in.session, in.mayStream = s, false
	base.Peer, base.handler = s.Peer, HandlerFunc(in.openSession)
	in.handOn(context.WithoutCancel(in.r.Context()), s.Peer, base)
}

// inSession dispatches a payload in a session. The handlers continue if the client leaves:
// 2025-11-25 basic/transports#sending-messages-to-the-server, "Disconnection SHOULD NOT be
// interpreted as the client cancelling its request." So their context has the values of the
// context of the POST, but does not end with it. When a session ends, its Peer cancels the
// requests that it serves.
func (in *incoming) inSession(base Exchange) {
	// session finds the one that the header names, or refuses the request with 400 or 404.
	s := in.h.session(in.w, in.r, idOf(in.payload), base.Principal)
	if s == nil {
		return
	}
	defer s.release()
	in.session = s
	base.Peer = s.Peer
	in.handOn(context.WithoutCancel(in.r.Context()), s.Peer, base)
}

// checkModern checks a message of the modern era, and dispatches it. A subscription stays open,
// so its response must be a stream.
func (in *incoming) checkModern(base Exchange) {
	fault := in.h.validate(in.r.Header, in.payload) // compares the header with the body
	isSubscription := in.payload.hasRequest("subscriptions/listen")
	switch {
	case fault != nil:
		in.reject(http.StatusBadRequest, fault)
	case isSubscription && !canFlush(in.w):
		in.refuse(http.StatusInternalServerError, noFlush)
	case isSubscription && !in.mayStream:
		in.refuse(http.StatusNotAcceptable, "A subscription is a stream: Accept must allow text/event-stream")
	default:
		base.facts().revision = revision(in.r.Header.Get("Mcp-Protocol-Version"))
		in.withoutSession(base)
	}
}

// statelessProtocol is for requests that stand alone. Nothing is stored in it, so all share it.
var statelessProtocol = new(mcpProtocol)

// withoutSession dispatches a payload that belongs to no session. The server knows nothing of
// the client but this request. So base.Peer stays nil: the handlers have nobody to call. If the
// client leaves, nothing can be delivered to it, so the handlers end. 2026-07-28
// basic/patterns/cancellation#transport-specific-cancellation: "The server MUST treat a client
// disconnect as cancellation of that request."
func (in *incoming) withoutSession(base Exchange) {
	toNobody := func(context.Context, *Message) error { return errNobody }    // for what belongs to no request
	p := newPeer(in.r.Context(), toNobody, statelessProtocol, in.h.Log)       // net/http ends this context when the client leaves
	stop := context.AfterFunc(in.h.life, func() { p.endContexts(ErrClosed) }) // for Close
	in.whenHandled = func() { stop() }
	in.handOn(p.ctx, p, base)
}

// handOn lets a Peer take in the payload, starts the handlers, and writes the response.
func (in *incoming) handOn(ctx context.Context, p *Peer, base Exchange) {
	// What the handlers send goes to the stream. The response is its follower, which has
	// written nothing yet.
	in.stream = in.h.newStream(in.session)        // in a session it keeps events, if the revision can resume
	in.stream.buffer.countsAll = in.payload.Batch // small answers, too: those of a batch are written together
	in.follower = &follower{w: in.w}
	in.stream.follower = in.follower
	in.revision = base.facts().revision
	base.Header, base.Ending = in.r.Header, in.h.open.Done() // open ends when Close begins
	base.send = answersOnly                                  // without a stream, what precedes the answer is dropped
	if in.mayStream {
		base.send = in.stream.send
		base.facts().disconnect = in.stream.disconnect // for Exchange.Disconnect
	}
	in.h.countResults(&base, in.payload) // their bytes
	// Each request needs a place.
	if !in.takePlaces() { // it has answered
		in.handled()
		return
	}
	// The Peer notes the requests, and takes in JSON-RPC responses. Here it also calls the
	// handlers of notifications. The payload is the Peer's now: the memory of each message is
	// free when it is handled.
	payload := in.payload
	in.payload = Payload{}
	responder := p.dispatch(ctx, payload, base)
	if responder == nil {
		in.handled()
		in.acknowledge(payload) // with 202, if nothing is wrong
		return
	}
	in.isBatch = responder.asArray
	// The handlers run on a goroutine of their own. answerOn sends their answers on the stream,
	// which ends with the last one.
	in.h.run(func() {
		defer in.stream.end()
		defer in.handled()
		in.h.answerOn(in.stream, responder)
	})
	// This goroutine writes the response.
	in.respond()
}

// ---- The response to a POST: JSON, or a stream ----

// respond writes the response. It returns when the response is over, which may be long before
// the handlers return: the connection breaks, a handler calls Disconnect, or another response
// follows the stream.
//
// After a second the response becomes a stream. So a proxy that cuts silent connections sees
// something, and in a session the client can continue after a cut. A client that accepts no
// stream waits for its JSON, however long that takes.
func (in *incoming) respond() {
	timer := time.NewTimer(decideAfter)
	defer timer.Stop()
	isLate := false
	gone := in.r.Context().Done()
	for {
		write, changed := in.decide(isLate)
		if write != nil {
			write()
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			isLate = true
			clearDeadlines(in.w) // the time-outs of the server must not end the response
		case <-gone:
			gone = nil // it may be only a deadline of middleware: the loop goes on, and does not watch it any more
		}
	}
}

// decide chooses what the response is, and returns the function that writes it. If it cannot
// choose yet, write is nil, and changed is closed when it can be asked again. The first line
// that fits counts:
//
//	1  the client has gone                                       only a status
//
// While the handlers run:
//
//	2  a stream is allowed, and there is more than answers       a stream
//	3  a stream is allowed, and a second has passed              a stream
//	4  anything else                                             it is not decided yet
//
// When they have returned:
//
//	5  a stream is not allowed                                   JSON; 202 if all requests were cancelled
//	6  there is more than answers                                a stream
//	7  the status is not 200                                     JSON
//	8  there is an answer, and JSON is accepted                  JSON
//	9  JSON is not accepted, or all requests were cancelled      a stream
//
// There is more than answers if the handlers have sent another message, or have called
// Disconnect.
func (in *incoming) decide(isLate bool) (write func(), changed <-chan struct{}) {
	s := in.stream
	s.mu.Lock()
	defer s.mu.Unlock()
	hasGone := in.r.Context().Err() == context.Canceled // after a deadline of middleware, the client is still there
	hasEnded := !s.endTime.IsZero()
	onlyAnswers := in.onlyAnswers()
	switch {
	case hasGone: // 1
		return in.writeNothing, nil
	case !hasEnded && in.mayStream && (!onlyAnswers || isLate): // 2, 3
		return in.writeStream, nil
	case !hasEnded: // 4
		return nil, s.whenChanged()
	case !in.mayStream: // 5
		return in.writeAnswers, nil
	case !onlyAnswers: // 6
		return in.writeStream, nil
	case in.status() != http.StatusOK: // 7
		return in.writeAnswers, nil
	case in.acceptsJSON && len(s.buffer.events) > 0: // 8
		return in.writeAnswers, nil
	}
	return in.writeStream, nil // 9
}

// onlyAnswers reports whether nothing was sent but answers. The caller holds the mutex of the
// stream.
func (in *incoming) onlyAnswers() bool {
	return in.follower.farewell == nil && in.stream.buffer.onlyAnswers()
}

// writeStream writes a response that follows the stream. If it has only answers, and they are
// all there, nothing is kept, as with JSON.
func (in *incoming) writeStream() {
	s := in.stream
	s.mu.Lock()
	hasEnded := !s.endTime.IsZero()
	switch {
	case hasEnded && in.onlyAnswers():
		s.buffer.keep = 0
	case in.session != nil:
		in.session.addStream(s) // it ends with the session, and a GET can continue it
	}
	s.beginAt(0, true)
	isInSession := s.id != ""
	s.mu.Unlock()
	if hasEnded && isInSession {
		in.h.Sessions.enlist(s) // when the stream ended it was in no session, so end has not done that
	}
	in.h.follow(s, in.follower, in.r, &in.h.Guard) // serveFollower
}

// writeNothing ends the response to a client that has gone. 2026-07-28
// basic/transports/streamable-http#cancellation: the server "MUST NOT send any further messages
// for it". A client that has closed only its own half of the connection still reads. The status
// tells it that this is no answer.
func (in *incoming) writeNothing() {
	in.abandon()
	in.w.WriteHeader(statusClientGone)
}

// writeAnswers writes a response that consists of the answers alone. The stream has ended, so
// it does not change any more.
func (in *incoming) writeAnswers() {
	events := in.stream.buffer.events
	defer in.abandon()
	if in.opened {
		in.w.Header().Set("Mcp-Session-Id", in.session.ID)
	}
	if len(events) == 0 { // all requests were cancelled, and there is nothing to say in JSON
		accepted(in.w)
		return
	}
	writeParts(in.w, in.status(), in.parts(events))
}

// ---- GET ----

// get answers a GET, which opens the standalone stream or continues a stream that was cut.
// 2025-11-25 basic/transports#resumability-and-redelivery: "The server MUST NOT replay messages
// that would have been delivered on a different stream."
func (h *StreamableHandler) get(w http.ResponseWriter, r *http.Request, principal string) {
	if !h.canStream(w, &h.noStreams) {
		w.Header().Set("Allow", "POST, DELETE")
		h.refuse(w, r, http.StatusMethodNotAllowed, ID{}, noFlush)
		return
	}
	s := h.session(w, r, ID{}, principal)
	if s == nil {
		return
	}
	defer s.release()
	if !accepts(r.Header["Accept"], "text/event-stream") {
		// 2025-11-25: the client "MUST include" text/event-stream in Accept. A 405 would say
		// that there is no stream.
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, "Accept must allow text/event-stream")
		return
	}
	after := r.Header.Get("Last-Event-ID")
	var stream *Stream
	if after == "" {
		stream = h.standalone(s) // the first GET makes it
	} else {
		stream = s.find(after)
	}
	if stream != nil {
		if f, err := stream.attach(w, after); err == nil {
			h.follow(stream, f, r, &h.Guard)
			return
		}
	}
	// A 404 would end the session for the client.
	h.refuse(w, r, http.StatusBadRequest, ID{}, "Last-Event-ID is unknown, or no longer kept")
}

// ---- The header of legacy requests ----

// whyNotLegacy returns the error for a payload that cannot be served as a legacy one, because
// of the version that it names; nil: it can be served. An initialize may name any version that
// is not modern in its header, because its answer says which one we speak.
func (h *StreamableHandler) whyNotLegacy(inHeader []string, inMeta string, isInitialize bool) *Error {
	named := inMeta
	if inMeta == "" && len(inHeader) > 0 {
		named = inHeader[0]
	}
	switch {
	case revision(named).Modern && !(isInitialize && inMeta == ""): // no modern version is offered
		return versionError(h.versions, named)
	case inMeta != "" && len(inHeader) > 0 && inHeader[0] != inMeta:
		return mismatch("MCP-Protocol-Version is not the version in _meta")
	case inMeta != "" && !slices.Contains(h.versions, inMeta), len(h.legacy) == 0:
		return versionError(h.versions, named)
	}
	return nil
}

// checkVersion returns what is wrong with the version in the header of a legacy request; nil:
// nothing is wrong, or the header names none. 2025-11-25
// basic/transports#protocol-version-header: "If the server receives a request with an invalid
// or unsupported MCP-Protocol-Version, it MUST respond with 400 Bad Request." In a session the
// version of the session stays in force, and the header may name any version that we speak.
func (h *StreamableHandler) checkVersion(r *http.Request) *Error {
	switch named := r.Header["Mcp-Protocol-Version"]; {
	case len(named) > 1:
		return mismatch("More than one MCP-Protocol-Version")
	case len(named) == 1 && !slices.Contains(h.legacy, named[0]):
		return versionError(h.versions, named[0])
	}
	return nil
}

// answersOnly is for clients that accept no stream. What precedes the answer is dropped.
func answersOnly(_ context.Context, m *Message) error {
	if m.Kind() == Request {
		return ErrNoServerRequests
	}
	return nil
}

// acknowledge answers a POST for which no handler of a request runs. The POST has only
// notifications or JSON-RPC responses, or its requests have come too late.
func (in *incoming) acknowledge(payload Payload) {
	damaged := slices.IndexFunc(payload.Messages, func(m *Message) bool { return m.unusable != nil })
	id := idOf(payload)
	switch {
	case damaged >= 0: // a JSON-RPC response that cannot be used: the call that has waited for it has failed
		in.h.refuse(in.w, in.r, http.StatusBadRequest, id, payload.Messages[damaged].unusable.Error())
	case in.requests > 0 && in.h.open.Err() != nil: // Close was called meanwhile
		in.h.refuse(in.w, in.r, http.StatusServiceUnavailable, id, "The server is shutting down")
	case in.requests > 0: // the session has ended meanwhile
		in.h.gone(in.w, in.r)
	default:
		// 2025-11-25 basic/transports#sending-messages-to-the-server: "the server MUST return
		// HTTP status code 202 Accepted with no body"
		accepted(in.w)
	}
}

// refuse answers with a status, and with an error that has the reason.
func (in *incoming) refuse(status int, reason string) {
	in.h.refuse(in.w, in.r, status, idOf(in.payload), reason)
}

// reject does what refuse does, with an Error of the caller.
func (in *incoming) reject(status int, fault *Error) {
	in.h.rejectInEra(in.w, in.r, status, idOf(in.payload), fault)
}

// rejectInEra answers with an error. A server that offers no modern version must not send the
// codes that only modern servers have. 2026-07-28
// basic/transports/streamable-http#backward-compatibility: a client that gets one goes on
// "rather than falling back" to initialize. The code in their place is one that a handler may
// answer with, too. So the error has no id, which tells the client that no handler has read its
// request. 2025-11-25 basic/transports#sending-messages-to-the-server: "error response that has
// no id".
func (h *StreamableHandler) rejectInEra(w http.ResponseWriter, r *http.Request, status int, id ID, fault *Error) {
	if !h.hasModern() && slices.Contains(modernCodes, fault.Code) {
		id, fault = ID{}, &Error{Code: CodeInvalidRequest, Message: fault.Message, Data: fault.Data}
	}
	h.Guard.reject(w, r, status, id, fault)
}

// hasModern reports whether a modern version is on offer.
func (h *StreamableHandler) hasModern() bool { return len(h.legacy) < len(h.versions) }

// session returns the session that a request names. The caller releases it. If session returns
// nil, it has refused the request: with 400 if the request names no session, with 404 if there
// is no such session, or if it belongs to another principal. 2025-11-25
// basic/transports#session-management: after a session has ended the server "MUST respond to
// requests containing that session ID with HTTP 404 Not Found."
func (h *StreamableHandler) session(w http.ResponseWriter, r *http.Request, id ID, principal string) *Session {
	names := r.Header["Mcp-Session-Id"]
	switch {
	case len(names) == 0 || names[0] == "":
		h.refuse(w, r, http.StatusBadRequest, id, "Mcp-Session-Id is required")
		return nil
	case len(names) > 1:
		h.rejectInEra(w, r, http.StatusBadRequest, id, mismatch("More than one Mcp-Session-Id"))
		return nil
	}
	s := h.Sessions.get(names[0], principal)
	if s == nil {
		h.gone(w, r)
	} else if fault := h.checkVersion(r); fault != nil {
		h.rejectInEra(w, r, http.StatusBadRequest, id, fault)
		s.release()
		return nil
	}
	return s
}

// openSession is the Handler for initialize. It calls that of the program, and opens the
// session if it succeeds.
func (in *incoming) openSession(ctx context.Context, x *Exchange) (any, error) {
	result, err := in.h.Handler.Handle(ctx, x)
	if err != nil {
		return nil, err
	}
	agreed, err := marshalObject(result) // a result that cannot be encoded is an error, and opens nothing
	if err != nil {
		return nil, err
	}
	if err := in.h.Sessions.add(in.session); err != nil {
		in.h.log().Warn("no session", "reason", err)
		return nil, errNoRoom
	}
	in.opened = true
	return encoded(agreed), nil
}

var errNoRoom = &Error{Code: CodeInternalError, Message: "No more sessions"}

// delete answers a DELETE, which ends the session.
func (h *StreamableHandler) delete(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.session(w, r, ID{}, principal)
	if s == nil {
		return
	}
	defer s.release()
	h.Sessions.Delete(s, ErrSessionDeleted)
	w.WriteHeader(http.StatusOK) // some proxies cannot pass a 204 on
}

// gone answers a request in a session that does not exist. The body is no message: some clients
// would take a message for the answer to their call, and would not open another session.
func (h *StreamableHandler) gone(w http.ResponseWriter, r *http.Request) {
	h.log().Info("refused", "status", http.StatusNotFound, "reason", "session not found", "method", brief(r.Method), "path", brief(r.URL.Path), "from", r.RemoteAddr)
	http.Error(w, "Session not found", http.StatusNotFound)
}

// assumedVersion is in force where neither a session nor a header names another. 2025-11-25
// basic/transports#protocol-version-header: without the header "the server SHOULD assume
// protocol version 2025-03-26".
const assumedVersion = "2025-03-26"

// legacyWithoutSession dispatches a legacy payload if there are no sessions.
func (in *incoming) legacyWithoutSession(base Exchange, isInitialize bool) {
	version := in.r.Header.Get("Mcp-Protocol-Version")
	fault := in.h.checkVersion(in.r)
	if version == "" && !slices.Contains(in.h.legacy, assumedVersion) {
		// 2026-07-28 basic/transports/streamable-http#protocol-version-header: a server that
		// serves no client older than 2025-06-18 "MUST reject a request without the header".
		fault = cmp.Or(fault, mismatch("MCP-Protocol-Version is missing"))
	}
	if fault != nil && !isInitialize {
		in.reject(http.StatusBadRequest, fault)
		return
	}
	if !isInitialize { // it says in its params which version it wants
		base.facts().revision = revision(cmp.Or(version, assumedVersion))
	}
	in.withoutSession(base)
}

// ---- The headers of modern requests ----
//
// A modern request repeats in its header what its body says. So a proxy can route it, or refuse
// it, without reading the body:
//
//	in the header                              in the body
//	> Mcp-Method: tools/call                   {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{
//	> Mcp-Name: get-weather                      "name":"get-weather",
//	> Mcp-Param-City: =?base64?WsO8cmljaA==?=    "arguments":{"city":"Zürich"},
//	> MCP-Protocol-Version: 2026-07-28           "_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",…}}}
//
// An argument is repeated if the inputSchema of the tool marks it, as in
// {"type":"string","x-mcp-header":"City"}. The server checks that header and body agree.
// Otherwise a client could show one request to a proxy, and another one to us.

// validate checks what all modern messages have in common, always in the same order. It returns
// what is wrong; nil: nothing is. The Server checks the params later. 2026-07-28
// basic/transports/streamable-http#sending-messages: "The body of the HTTP POST MUST be a
// single JSON-RPC request or notification. The client MUST NOT send JSON-RPC responses."
func (h *StreamableHandler) validate(header http.Header, in Payload) *Error {
	m := in.Messages[0]
	if in.Batch || m.Kind() == Response {
		return invalidRequest("one request or notification in a POST")
	}
	if m.Kind() == Invalid {
		return m.Error
	}
	version, fault := h.declaredVersion(header, m)
	if fault != nil {
		return fault
	}
	if fault := checkPlain(header, "Mcp-Protocol-Version", version); fault != nil {
		return fault
	}
	name, fault := checkNames(header, m)
	if fault != nil {
		return fault
	}
	if !slices.Contains(h.versions, version) {
		return versionError(h.versions, version)
	}
	if m.Method == "tools/call" && m.Kind() == Request && h.HeaderParams != nil {
		return checkParams(header, m.Params, h.HeaderParams(name))
	}
	return nil
}

// declaredVersion returns the version that a message declares in its _meta. A request must
// declare it, and the client's capabilities, too. For a notification the header is enough:
// "header requirements for notification POSTs are not defined by this revision".
func (h *StreamableHandler) declaredVersion(header http.Header, m *Message) (version string, fault *Error) {
	inHeader := header.Get("Mcp-Protocol-Version")
	meta, err := m.Meta()
	fault, _ = errors.AsType[*Error](err)
	switch {
	case inHeader == "" && meta.ProtocolVersion == "": // on a server with a legacy era, such a message is legacy
		return "", errorWithVersions(h.versions, CodeHeaderMismatch, "Header mismatch: MCP-Protocol-Version is missing")
	case m.Kind() == Notification:
		return cmp.Or(meta.ProtocolVersion, inHeader), nil
	case fault != nil:
		return "", fault
	case meta.ProtocolVersion == "":
		return "", missingMeta(h.versions, metaVersion)
	case meta.ClientCapabilities == nil:
		return "", missingMeta(h.versions, metaCapabilities)
	}
	return meta.ProtocolVersion, nil
}

// mismatch returns the error for a header that is missing, malformed, or not what the body
// says.
func mismatch(format string, args ...any) *Error {
	return &Error{Code: CodeHeaderMismatch, Message: "Header mismatch: " + fmt.Sprintf(format, args...)}
}

// nameParams has the methods whose requests carry Mcp-Name. The value is the name of the member
// of params that Mcp-Name repeats.
var nameParams = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// checkNames checks Mcp-Method and Mcp-Name. It returns the name of the tool or the prompt, or
// the URI of the resource; "": the method has none. A notification needs neither field; if it
// has an Mcp-Method, that is checked. 2026-07-28
// basic/transports/streamable-http#server-validation: a server "MUST reject requests where the
// values specified in the headers do not match the corresponding values in the request body."
func checkNames(header http.Header, m *Message) (name string, fault *Error) {
	if m.Kind() == Request || header["Mcp-Method"] != nil {
		if fault := checkPlain(header, "Mcp-Method", m.Method); fault != nil {
			return "", fault
		}
	}
	if len(header["Mcp-Name"]) > 1 { // for all methods: a proxy may not know which of them have a name
		return "", mismatch("more than one Mcp-Name")
	}
	source := nameParams[m.Method]
	if source == "" || m.Kind() == Notification {
		return "", nil
	}
	value, fault := exactMember(m.Params, source)
	if fault != nil {
		return "", fault
	}
	if len(value) == 0 || value[0] != '"' {
		return "", mismatch("the body has no %s", source)
	}
	return unquote(value), checkRepeated(header, "Mcp-Name", value, source)
}

// exactMember returns the value of one member of an object; nil: there is none. It returns an
// error if the member appears twice, or if another one differs from it only in case. Of such
// members encoding/json takes the last, so a Handler that uses it would read another value than
// the one that was checked.
func exactMember(object json.RawMessage, name string) (value json.RawMessage, fault *Error) {
	if len(object) == 0 || object[0] != '{' {
		return nil, nil
	}
	for other, otherValue := range Each(object) {
		if !bytes.EqualFold(other, []byte(name)) {
			continue
		}
		if string(other) != name || value != nil {
			return nil, mismatch("'%s' is there twice, or in another case", name)
		}
		value = otherValue
	}
	return value, nil
}

// checkPlain checks a field that is never encoded.
func checkPlain(header http.Header, name, want string) *Error {
	text, fault := rawField(header, name)
	if fault != nil {
		return fault
	}
	if text != want {
		return mismatch("%s is %.100q, in the body it is %.100q", name, text, want)
	}
	return nil
}

// rawField returns the value of a field, as it was sent. It returns an error if the field is
// missing or is sent twice, and for characters that a field must not have. 2026-07-28
// basic/transports/streamable-http#value-encoding: it consists of "visible ASCII characters
// (0x21-0x7E), space (0x20), and horizontal tab (0x09)".
func rawField(header http.Header, name string) (string, *Error) {
	lines := header[name]
	if len(lines) == 0 {
		return "", mismatch("%s is missing", name)
	}
	if len(lines) > 1 {
		return "", mismatch("more than one %s", name)
	}
	isForbidden := func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }
	if strings.ContainsFunc(lines[0], isForbidden) {
		return "", mismatch("%s has characters that a header must not have", name)
	}
	return lines[0], nil
}

// decodedField returns the value of a field that may be encoded. A value with only one of the
// two markers is not. 2026-07-28 basic/transports/streamable-http#value-encoding:
// "=?base64?{Base64EncodedValue}?=".
func decodedField(header http.Header, name string) (string, *Error) {
	text, fault := rawField(header, name)
	if fault != nil {
		return "", fault
	}
	afterMarker, begins := strings.CutPrefix(text, "=?base64?")
	encodedText, ends := strings.CutSuffix(afterMarker, "?=")
	if !begins || !ends {
		return text, nil
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(encodedText)
	if err != nil {
		return "", mismatch("%s is not Base64", name)
	}
	return string(decoded), nil
}

// checkParams checks the fields that repeat arguments. An argument that is missing or null must
// have no field. 2026-07-28
// basic/transports/streamable-http#server-behavior-for-custom-headers: servers must "validate
// that encoded header values, after decoding if Base64-encoded, match the corresponding values
// in the request body."
func checkParams(header http.Header, params json.RawMessage, marked []HeaderParam) *Error {
	for _, p := range marked {
		value, fault := argumentAt(params, p.Path)
		if fault != nil {
			return fault
		}
		name := http.CanonicalHeaderKey("Mcp-Param-" + p.Name)
		if fault := checkRepeated(header, name, value, "argument"); fault != nil {
			return fault
		}
	}
	return nil
}

// argumentAt returns the argument to which a path leads; nil: there is none.
func argumentAt(params json.RawMessage, path []string) (json.RawMessage, *Error) {
	value, fault := exactMember(params, "arguments")
	for _, name := range path {
		if fault != nil {
			break
		}
		value, fault = exactMember(value, name)
	}
	return value, fault
}

// checkRepeated checks a field that repeats a value of the body, and that may be encoded. kind
// is what the error calls the value, such as "argument".
func checkRepeated(header http.Header, name string, value json.RawMessage, kind string) *Error {
	inBody := value != nil && string(value) != "null"
	if !inBody && header[name] == nil {
		return nil
	}
	if !inBody {
		return mismatch("%s has no %s", name, kind)
	}
	text, fault := decodedField(header, name)
	if fault != nil {
		return fault
	}
	if !isSameValue(text, value) {
		return mismatch("%s is %.100q, not the %s in the body", name, text, kind)
	}
	return nil
}

// isSameValue reports whether the text of a field stands for a JSON value: a string without its
// quotes, true or false, or an integer, of which 42 and 42.0 are two spellings. No field stands
// for an array, an object, or a number with a fraction.
func isSameValue(text string, value json.RawMessage) bool {
	switch value[0] {
	case '"':
		return unquote(value) == text
	case 't', 'f':
		return string(value) == text
	}
	inHeader, headerOK := integerIn(text)
	inBody, bodyOK := integerIn(string(value))
	return headerOK && bodyOK && inHeader == inBody
}

// integerIn reads a JSON number that is an integer within ±(2^53-1).
func integerIn(text string) (n int64, ok bool) {
	if !json.Valid([]byte(text)) {
		return 0, false
	}
	n, ok = parseInteger(text)
	isInRange := -1<<53 < n && n < 1<<53
	return n, ok && isInRange
}

// HeaderParams returns the marked arguments of a tool that was added with AddTool. It is for
// StreamableHandler.HeaderParams. A tool whose marks are invalid has none: modern clients leave
// such a tool out.
func (s *Server) HeaderParams(tool string) []HeaderParam {
	t, ok := find(s, &s.tools, tool)
	if !ok {
		return nil
	}
	t.use.readMarks.Do(func() { t.use.marked, _ = ReadHeaderParams(t.use.inputSchema) })
	return t.use.marked
}

// abandon drops what the stream has, and ends its follower.
func (in *incoming) abandon() {
	in.stream.forget()
	in.stream.detach(in.follower)
}

// ---- The status and the body of a response to a POST ----

// parts returns the body of a response in JSON: the only answer, or an array of all answers.
func (in *incoming) parts(events []sentEvent) (parts [][]byte) {
	if in.isBatch {
		parts = append(parts, []byte("["))
	}
	for i, e := range events {
		if i > 0 {
			parts = append(parts, []byte(","))
		}
		parts = append(parts, e.parts()...)
	}
	if in.isBatch {
		parts = append(parts, []byte("]"))
	}
	return parts
}

// statusClientGone is for logs: nginx, too, notes it for a client that has gone.
const statusClientGone = 499

// status returns the status of a response that consists of one answer. The stream has ended, so
// it does not change any more.
func (in *incoming) status() int {
	events := in.stream.buffer.events
	if len(events) != 1 {
		return http.StatusOK
	}
	return status(events[0].fault, in.revision.Modern)
}

// status returns the HTTP status of a response that holds one answer; fault nil: a result. If
// the server has no room, it is 503. If the message or its header is wrong, it is 400. For the
// error of a method it is 200: a legacy client takes another status for a failure of the
// transport, and 404 for the end of its session. The modern era also has 400 for
// CodeMissingCapability, and 404 for an unknown method: 2026-07-28
// basic/transports/streamable-http#protocol-version-header, "If the server does not implement
// the requested RPC method, it MUST respond with 404 Not Found".
func status(fault *Error, modern bool) int {
	if fault == nil {
		return http.StatusOK
	}
	switch fault {
	case errBusy, errListeners, errNoRoom: // nothing has run, so the client may try again
		return http.StatusServiceUnavailable
	}
	switch code := fault.Code; {
	case modern && code == CodeMethodNotFound:
		return http.StatusNotFound
	case modern && code == CodeMissingCapability,
		code == CodeParseError, code == CodeInvalidRequest, code == CodeHeaderMismatch, code == CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// ---- Marks in the schemas of tools ----

const (
	maxSchema = 1 << 20 // bytes
	maxParams = 128     // marks in one schema
	maxNested = 64      // levels of properties; without this bound, the paths of all marks could need much memory
)

// ReadHeaderParams returns the arguments that an inputSchema marks with x-mcp-header. It
// returns an error if a mark is invalid, and if the schema is not an object, is larger than 1
// MiB, has more than 128 marks, or nests properties more than 64 levels deep.
//
// 2026-07-28 basic/transports/streamable-http#schema-extension: the value of a mark is a token.
// No two marks in a schema may have the same one, without regard to case. The argument is a
// string, an integer or a boolean. It is reached through "properties" alone:
//
//	{"properties":{"place":{"properties":{"city":{"type":"string","x-mcp-header":"City"}}}}}
//	HeaderParam{Name: "City", Path: []string{"place", "city"}}
//
// The arguments are in the order of their paths.
func ReadHeaderParams(schema json.RawMessage) (marked []HeaderParam, err error) {
	if len(schema) > maxSchema {
		return nil, fmt.Errorf("the schema has more than %d bytes", maxSchema)
	}
	var root map[string]any
	decoder := json.NewDecoder(bytes.NewReader(schema))
	decoder.UseNumber() // one that is too large for a float64 is no error here
	if !json.Valid(schema) || decoder.Decode(&root) != nil || root == nil {
		return nil, errors.New("the schema is not an object")
	}
	var r markReader
	r.readSchema(root, []string{})
	if r.err != nil {
		return nil, r.err
	}
	return r.marked, nil
}

// markReader collects the marks of a schema. A path has the names of the properties that lead
// to a schema from the root. A schema below other keywords, such as items or oneOf, has the
// path nil, and nothing in it may be marked.
type markReader struct {
	marked []HeaderParam
	err    error // why the schema is invalid
}

// readSchema reads a schema, or what may hold schemas: the array of oneOf, the object of $defs.
func (r *markReader) readSchema(value any, path []string) {
	list, _ := value.([]any)
	for _, element := range list {
		r.readSchema(element, nil)
	}
	schema, _ := value.(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(schema)) {
		_, isText := schema[name].(string)
		switch name {
		case "x-mcp-header":
			if path != nil || isText { // otherwise it may be a schema of that name, in $defs for instance
				r.addMark(schema, path)
			}
		case "default", "const", "enum", "examples": // hold data, but no schemas
		case "properties":
			r.readProperties(schema[name], path)
		default:
			r.readSchema(schema[name], nil)
		}
	}
}

// readProperties reads the schemas of properties. path is that of the schema around them.
func (r *markReader) readProperties(value any, path []string) {
	properties, _ := value.(map[string]any)
	if len(properties) > 0 && len(path) == maxNested {
		r.err = cmp.Or(r.err, fmt.Errorf("properties are nested deeper than %d levels", maxNested))
		return
	}
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		var below []string
		if path != nil {
			below = append(slices.Clip(path), name) // a copy: properties side by side must not share memory
		}
		r.readSchema(properties[name], below)
	}
}

// addMark adds the mark of a schema, or notes why it is invalid.
func (r *markReader) addMark(schema map[string]any, path []string) {
	name, _ := schema["x-mcp-header"].(string)
	isTwice := slices.ContainsFunc(r.marked, func(p HeaderParam) bool { return strings.EqualFold(p.Name, name) })
	switch {
	case r.err != nil:
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		text, _ := marshal(schema["x-mcp-header"])
		r.err = fmt.Errorf("x-mcp-header must be a token, not %.100s", text)
	case len(path) == 0:
		r.err = fmt.Errorf("x-mcp-header %.100q marks what is not reached through properties alone", name)
	case schema["type"] != "string" && schema["type"] != "integer" && schema["type"] != "boolean":
		r.err = fmt.Errorf("x-mcp-header %.100q marks an argument that is not a string, integer or boolean", name)
	case isTwice:
		r.err = fmt.Errorf("x-mcp-header %.100q is there twice", name)
	case len(r.marked) == maxParams:
		r.err = fmt.Errorf("x-mcp-header is there more than %d times", maxParams)
	default:
		r.marked = append(r.marked, HeaderParam{Name: name, Path: path})
	}
}

// isToken reports whether c may be part of a token. RFC 9110, section 5.6.2.
func isToken(c rune) bool {
	isDigit := '0' <= c && c <= '9'
	isLetter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
	return isDigit || isLetter || strings.ContainsRune("!#$%&'*+-.^_`|~", c)
}

// ---- The beginning and the end of a StreamableHandler ----

func (h *StreamableHandler) prepare() {
	h.service.prepare(&h.Guard, h.MaxRequests)
	h.listening.limit = maxListeners
	h.versions = versionsOrAll(h.Versions)
	if server, ok := h.Handler.(interface{ offered() []string }); ok && len(h.Versions) == 0 {
		h.versions = server.offered()
	}
	h.legacy = legacyOf(h.versions)
	if server, ok := h.Handler.(interface{ HeaderParams(string) []HeaderParam }); ok && h.HeaderParams == nil {
		h.HeaderParams = server.HeaderParams
	}
	if h.Sessions != nil {
		h.Sessions.Log = cmp.Or(h.Sessions.Log, h.Log)
		h.Sessions.wasFull = h.wasFull
	}
}

// Close ends the StreamableHandler. New requests are refused, and questions to clients fail.
// Requests that are being served have three seconds; then their contexts end. When all are
// answered, the sessions end, and with them their standalone streams. Close returns four
// seconds after the call at the latest. It may be called more than once.
//
// Call Close at the same time as http.Server.Shutdown, and wait for both: without Close,
// Shutdown would wait for streams that do not end. Give Shutdown a context of about five
// seconds, and then call http.Server.Close: Shutdown also waits for the rest of a body, which a
// client may never send. A test in a bubble of synctest must call Close, because goroutines of
// the handler wait a second for further requests.
func (h *StreamableHandler) Close() {
	h.once.Do(h.prepare)
	h.close(cmp.Or(h.Sessions, new(Sessions)))
}

// ==== The client ====
//
// What can become of a POST, from Write on. All of this is on the goroutine that has called
// Write, except readStream:
//
//	send ──┬─ no response ──────────────────→ Write fails. An answer to the server is sent again
//	       ├─ 404, and the session was known → Write fails with ErrSessionEnded, and so do all streams
//	       ├─ no status of 2xx ─────────────→ Write fails with an HTTPError
//	       ├─ 2xx, and no request was sent ─→ Write is done
//	       ├─ JSON ─────────────────────────→ Read gets it. Write fails if the answer is not in it
//	       ├─ a stream of events ───────────→ Write is done, and readStream reads the stream
//	       └─ anything else ────────────────→ Write fails with an HTTPError
//
// What can become of a stream, on the goroutine of readStream:
//
//	the response ───→ readEvents ──────────→ Read gets each message
//	to a POST          ^    │ the response has ended
//	                   │    ├─ the answer has come ─────────────────→ done
//	                   │    ├─ there is no id to continue from ─────→ lost: the call fails with ErrInterrupted
//	               200 │    v
//	the standalone     │   pause ←─────────────────────┐
//	stream begins      │    v                          │ no response, 429 or 5xx;
//	here, without ─────┴── GET with Last-Event-ID ─────┤ it counts as a failure, as a cut does
//	a pause                 ├─ 404, and the session was known ──────→ lost: all streams fail with ErrSessionEnded
//	                        └─ any other status, too many failures ─→ lost
//
// All of this ends when the call is cancelled, when the session ends, and with Close. If the
// standalone stream is lost, that is reported, and calls still work.

const (
	deleteTimeout = 700 * time.Millisecond // for the DELETE at the end
	readAhead     = 2                      // payloads that have come and are not yet read
	maxRepeatedID = 4 << 10                // bytes of an event id, or of a session id, that the client repeats
)

// HTTPDialer is a Dialer for Streamable HTTP, of any revision. Dial itself sends nothing.
//
// The Conn acts on some of the messages that it carries:
//
//	message                     what the Conn does
//	initialize                  notes the revision and the session; Close ends the session with DELETE
//	notifications/initialized   opens the standalone stream
//	notifications/cancelled     closes the response to the request; in the modern era, does not send the message
//	any modern request          repeats version, method and name in the header
//	tools/call (modern)         repeats the marked arguments in the header: see ToolMarks
//
// Write returns when the server has taken the payload. For a payload without a request it waits
// at most 30 seconds. If the server refuses the payload, the error is an *HTTPError. If the
// server does not know the session any more, the error wraps ErrSessionEnded and ErrNotSent. If
// the network fails, Write sends the answer to a request of the server again each second,
// within the 30 seconds. A batch may hold only such answers.
//
// If the stream with the answer to a call is cut, the Conn continues the stream where the
// revision and the server allow that. It never sends the call again. The call fails with
// ErrInterrupted if the stream cannot be continued, or after eight GETs that have brought
// nothing new. The pauses before these GETs add up to 23 seconds, or to eight times the retry
// that the server has set. If a message of the server is too large, the call fails with
// ErrTooLarge.
type HTTPDialer struct {
	URL string // required: where the server has its endpoint
	// Client sends the requests. nil: each Conn has an http.Client of its own. The Timeout of
	// the Client is ignored, because it would end the streams. A redirect is followed only if
	// its status is 307 or 308 and it stays within the origin, and at most ten times in a row.
	// Proxies, TLS and credentials belong to the Transport of the Client, as in WithHeader.
	Client     *http.Client
	MaxMessage int // the most bytes that a message of the server may have; 0: 64 MiB
}

// Dial returns a Conn. It does not connect yet: the first Write does.
func (d HTTPDialer) Dial(context.Context) (Conn, error) {
	return &httpConn{
		poster:     newPoster(d.Client),
		url:        d.URL,
		maxMessage: cmp.Or(d.MaxMessage, defaultMessage),
		inbox:      make(chan Payload, readAhead),
		closed:     make(chan struct{}),
	}, nil
}

// httpConn is the Conn of a client of Streamable HTTP. Each Write is a POST. What the responses
// bring goes through inbox to Read.
type httpConn struct {
	poster     // revision is that of the last request in the modern era
	url        string
	maxMessage int
	inbox      chan Payload  // has room for readAhead
	closed     chan struct{} // closed by Close
	closeOnce  sync.Once
	streams    sync.WaitGroup // goroutines of readStream; Go while holding mu, and not after Close
	session    string         // the id; "": there is none. The mutex of poster guards it
}

// Read returns what has come next.
func (c *httpConn) Read() (Payload, error) {
	select {
	case next := <-c.inbox:
		return next, nil
	case <-c.closed:
		return Payload{}, io.EOF
	}
}

// Write POSTs a payload, and waits for the status. A response in JSON is read before Write
// returns. A stream has a goroutine of its own.
func (c *httpConn) Write(ctx context.Context, out Payload) error {
	if out.Batch && (len(out.Messages) == 0 || out.Messages[0].Kind() != Response) {
		return errors.New("only answers are sent as a batch")
	}
	first := out.Messages[0]
	if first.Method == "notifications/cancelled" && c.cancelPost(first) {
		return nil
	}
	p, err := c.newPost(ctx, out)
	if err != nil {
		return err
	}
	c.join(p)
	if first.Method == "notifications/initialized" && !p.revision.Modern {
		c.openStandalone() // now, so that it is there for the first call
	}
	return c.sendAndFinish(ctx, p, c.sendPost)
}

// cancelPost ends the post of a request that is cancelled. It returns true if nothing must be
// sent: in the modern era the end of the response is the signal. 2026-07-28
// basic/transports/streamable-http#cancellation.
func (c *httpConn) cancelPost(cancelled *Message) (isModern bool) {
	var params CancelledParams
	_ = Bind(cancelled.Params, &params)
	id, _ := parseID(params.RequestID)
	c.mu.Lock()
	defer c.mu.Unlock()
	for p := range c.posts {
		if p.request != (ID{}) && p.request == id {
			p.cancel(context.Canceled)
		}
	}
	return c.revision.Modern
}

// join notes in which revision and session a post is sent. A modern request says its revision,
// which counts from then on. initialize begins anew: 2025-11-25
// basic/transports#session-management, "without a session ID attached".
func (c *httpConn) join(p *clientPost) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range p.payload.Messages {
		meta, _ := m.Meta()
		isAgreed := c.revision.Version != "" && !c.revision.Modern
		switch {
		case meta.ProtocolVersion != "" && !isAgreed: // in a session, a caller may pass on the _meta of another client
			c.revision = revision(meta.ProtocolVersion)
		case m.Method == "initialize":
			c.revision, c.session = Revision{}, ""
		}
	}
	p.revision, p.session = c.revision, c.session
}

// sendPost sends a POST, and takes in the response. If the network fails, it sends the answer
// to a request of the server again each second, because the server waits for it. If the server
// has it already, a second one does no harm.
func (c *httpConn) sendPost(p *clientPost) (isStream bool, err error) {
	isResponse := p.payload.Messages[0].Kind() == Response
	for {
		resp, err := c.doFor(p, http.MethodPost, "")
		switch {
		case err == nil:
			return c.receive(p, resp)
		case !isResponse || !sleep(p.ctx, time.Second):
			return false, err
		}
	}
}

// receive takes in the response to a POST, and closes its body unless it is a stream.
func (c *httpConn) receive(p *clientPost, resp *http.Response) (isStream bool, err error) {
	defer func() {
		if !isStream {
			resp.Body.Close()
		}
	}()
	if resp.StatusCode/100 != 2 {
		fault := httpError(resp)
		if ended := c.sessionEnded(p, fault); ended != nil {
			return false, markedError{ended, ErrNotSent}
		}
		return false, fault
	}
	if p.isDone() { // any 2xx means that the payload was taken
		c.drain(resp)
		return false, nil
	}
	if p.payload.Messages[0].Method == "initialize" {
		if err := c.beginSession(p, resp.Header.Get("Mcp-Session-Id")); err != nil {
			return false, err
		}
	}
	contentType := resp.Header.Get("Content-Type")
	switch {
	case isMedia(contentType, "application/json"):
		return false, c.readJSON(p, resp)
	case isMedia(contentType, "text/event-stream"):
		return c.startStream(&clientStream{clientPost: p, wasOpen: true}, resp)
	}
	return false, fmt.Errorf("a request is answered by JSON or events, not %.100q: %w", contentType, httpError(resp))
}

// beginSession notes the session that a server has begun; "": it has begun none. 2025-11-25
// basic/transports#session-management: the id "MUST only contain visible ASCII characters".
func (c *httpConn) beginSession(p *clientPost, id string) error {
	isInvisible := func(char rune) bool { return char < '!' || char > '~' }
	if len(id) > maxRepeatedID || strings.ContainsFunc(id, isInvisible) {
		return fmt.Errorf("the server's session id is not one: %.100q", id)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.session, p.session = id, id
	return nil
}

// sessionEnded returns an error that wraps ErrSessionEnded if a response means that the server
// does not know the session any more. 2025-11-25 basic/transports#session-management: such a
// server answers with 404. Then all streams of the session fail, and nothing more is sent in
// it.
//
// A post that waits for its status does not fail yet. It gets a 404 of its own, which proves
// that the server has not read its request.
func (c *httpConn) sessionEnded(p *clientPost, fault *HTTPError) error {
	if p.session == "" || fault.Status != http.StatusNotFound || fault.answers(p.request) {
		return nil
	}
	err := fmt.Errorf("%w: %w", ErrSessionEnded, fault)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == p.session { // no other session has begun meanwhile
		c.endErr = err
		for other, isStream := range c.posts {
			if isStream {
				other.cancel(err)
			}
		}
	}
	return err
}

// answers reports whether an error with status 404 is about the method or the params of a
// request, and not about the session. "Method not found" is never about a session.
func (e *HTTPError) answers(id ID) bool {
	code := codeOf(e)
	isAboutParams := code == CodeInvalidParams || code == CodeResourceNotFound
	return code == CodeMethodNotFound || isAboutParams && e.id == id && id != ID{}
}

// readJSON reads a response that is not a stream.
func (c *httpConn) readJSON(p *clientPost, resp *http.Response) error {
	body, err := readBody(resp.Body, -1, int64(c.maxMessage))
	switch {
	case err == ErrTooLarge:
		return err
	case err != nil:
		return interrupted(err)
	}
	in := Decode(body)
	if in.Batch || in.Messages[0].Kind() != Invalid {
		c.deliver(p, in)
	}
	if p.isDone() {
		return nil
	}
	beginning := bytes.Clone(body[:min(len(body), maxErrorBody)])
	return fmt.Errorf("the body does not hold the answer: %w", &HTTPError{Status: resp.StatusCode, Header: resp.Header, Body: beginning})
}

// deliver passes a payload that a post has brought to Read, unless the post is over.
func (c *httpConn) deliver(p *clientPost, in Payload) {
	for _, m := range in.Messages {
		if m.Kind() == Response && m.ID == (ID{}) { // an error without an id; p has only one request that it can be about
			m.ID = p.request
		}
	}
	if p.request != (ID{}) && p.payload.Messages[0].Method == "initialize" {
		c.noteRevision(in)
	}
	select {
	case c.inbox <- in:
	case <-p.ctx.Done():
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for other := range c.posts {
		if other.isDone() || !hasResponseTo(in, other.request) {
			continue
		}
		other.answered.Store(true)
		if other != p { // the server has answered on p, and other may stay open for ever
			other.cancel(context.Canceled)
		}
	}
}

// ---- The header of a client's request ----

// doFor sends one HTTP request for a post: its POST, or a GET for its stream, or the DELETE of
// its session. lastEventID is for a GET; "": the stream has no id to go on from.
//
// 2025-11-25 basic/transports#protocol-version-header: after initialize, the version is "on all
// subsequent requests".
func (c *httpConn) doFor(p *clientPost, method, lastEventID string) (*http.Response, error) {
	h := http.Header{}
	var body []byte
	switch method {
	case http.MethodPost:
		h["Accept"] = []string{"application/json, text/event-stream"}
		h["Content-Type"] = []string{"application/json"}
		body = p.payload.Append(nil)
	case http.MethodGet:
		h["Accept"] = []string{"text/event-stream"}
	}
	if p.session != "" {
		h["Mcp-Session-Id"] = []string{p.session}
	}
	if lastEventID != "" {
		h["Last-Event-Id"] = []string{lastEventID}
	}
	if p.revision.VersionHeader {
		h["Mcp-Protocol-Version"] = []string{p.revision.Version}
	}
	if p.revision.Modern && method == http.MethodPost {
		repeatInHeader(p.ctx, h, p.payload.Messages[0])
	}
	return c.do(p.ctx, method, c.url, h, body)
}

// repeatInHeader repeats what a modern message says in its body. ctx is that of Write.
// 2026-07-28 basic/transports/streamable-http#standard-request-headers.
func repeatInHeader(ctx context.Context, h http.Header, m *Message) {
	h["Mcp-Method"] = []string{m.Method}
	name := unquote(lookup(m.Params, nameParams[m.Method]))
	if nameParams[m.Method] != "" {
		h["Mcp-Name"] = []string{headerValue(name)}
	}
	marked := marksIn(ctx, name, ReadHeaderParams)
	if m.Method == "tools/call" {
		mirror(h, marked, lookup(m.Params, "arguments"))
	}
}

// mirror repeats the marked arguments of a call in the header. 2026-07-28
// basic/transports/streamable-http#custom-headers-from-tool-parameters.
func mirror(h http.Header, marked []HeaderParam, arguments json.RawMessage) {
	for _, param := range marked {
		text, ok := argumentValue(lookup(arguments, param.Path...))
		if ok {
			h[http.CanonicalHeaderKey("Mcp-Param-"+param.Name)] = []string{text}
		}
	}
}

// argumentValue returns the value of the field that repeats an argument. An argument that is
// missing, null, an object or an array has no field.
func argumentValue(argument json.RawMessage) (text string, ok bool) {
	if len(argument) == 0 || string(argument) == "null" {
		return "", false
	}
	switch argument[0] {
	case '"':
		return headerValue(unquote(argument)), true
	case '{', '[':
		return "", false
	}
	n, isInteger := integerIn(string(argument))
	if isInteger { // 42.0 is the same number as 42
		return strconv.FormatInt(n, 10), true
	}
	return string(argument), true
}

// headerValue returns a text as the value of a field: as it is, if a field can hold it, or else
// in Base64. A text that looks as if it were encoded is encoded, too. 2026-07-28
// basic/transports/streamable-http#value-encoding.
func headerValue(text string) string {
	const prefix, suffix = "=?base64?", "?="
	isTrimmed := strings.Trim(text, " \t") == text
	isPrintable := !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' })
	looksEncoded := strings.HasPrefix(text, prefix) && strings.HasSuffix(text, suffix)
	if isTrimmed && isPrintable && !looksEncoded {
		return text
	}
	return prefix + base64.StdEncoding.EncodeToString([]byte(text)) + suffix
}

// ---- The streams of a client ----

// These constants say how a stream that was cut is continued. A failure is a cut, or a GET that
// does not continue the stream.
const (
	maxFailures = 8               // in a row, before the client gives up: 23 seconds if retry is not set
	firstPause  = time.Second / 4 // after one failure, and twice as long after each further one
	maxPause    = 5 * time.Second // the most that this grows to

	// longStream is how long a response must last, so that its end is no failure: proxies cut
	// streams on which nothing is sent.
	longStream = 30 * time.Second
)

// clientStream is a stream of events: the response to a post, and the GETs that continue it.
// The standalone stream is that of a post without a payload, which is not sent.
type clientStream struct {
	*clientPost
	wasOpen     bool          // a response has carried it
	lastEventID string        // of the last event; "": it had none that a header can repeat
	retry       time.Duration // that the server has set; 0: none
	failures    int           // in a row
}

// isStandalone reports whether s is the standalone stream.
func (s *clientStream) isStandalone() bool { return s.payload.Messages == nil }

// isDone reports whether no answer is waited for any more. The standalone stream is never done.
func (s *clientStream) isDone() bool { return !s.isStandalone() && s.clientPost.isDone() }

// openStandalone opens the standalone stream, unless the Conn has ended.
func (c *httpConn) openStandalone() {
	p, err := c.newPost(context.Background(), Payload{})
	if err == nil {
		c.join(p)
		_, _ = c.startStream(&clientStream{clientPost: p}, nil)
	}
}

// startStream starts the goroutine of a stream. resp is its first response; nil: there is none
// yet. If the answer has come on another stream, nothing is started. If the Conn has ended,
// startStream returns why.
func (c *httpConn) startStream(s *clientStream, resp *http.Response) (started bool, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil || s.isDone() {
		return false, c.endErr
	}
	c.posts[s.clientPost] = true
	c.streams.Go(func() { c.readStream(s, resp) }) // until s is done or lost
	return true, nil
}

// readStream is the goroutine of a stream. If the stream is lost, it passes the reason to Read,
// unless that is Close.
func (c *httpConn) readStream(s *clientStream, resp *http.Response) {
	defer c.finish(s.clientPost)
	err := c.readToEnd(s, resp)
	err = cmp.Or(context.Cause(s.ctx), err)
	if s.isDone() || errors.Is(err, ErrClosed) || errors.Is(err, context.Canceled) { // no call waits for the answer
		return
	}
	last := newLost(s.request, err)
	if s.isStandalone() {
		if err != errNoStream {
			err = markedError{fmt.Errorf("nothing is heard from the server but answers: %w", err), errNoStream}
		}
		last = Payload{Report: err}
	}
	select {
	case c.inbox <- last:
	case <-c.closed:
	}
}

// readToEnd reads a stream, and continues it each time it is cut. It returns when the stream is
// done, and when it is lost.
func (c *httpConn) readToEnd(s *clientStream, resp *http.Response) (err error) {
	if resp == nil {
		resp, err = c.reconnect(s, nil)
	}
	for err == nil {
		cut := c.readEvents(s, resp)
		canContinue := s.isStandalone() || s.lastEventID != "" && s.revision.Resume
		switch {
		case s.isDone() || s.ctx.Err() != nil:
			return cut
		case cut == ErrTooLarge || !canContinue:
			return interrupted(cut)
		}
		resp, err = c.reconnect(s, cut)
	}
	return err
}

// readEvents delivers what the events of one HTTP response hold. It returns the error with
// which the response has ended. When the JSON-RPC response has come, the end should be near.
// readEvents waits for it no longer than drainTimeout, so that the connection can be used
// again.
func (c *httpConn) readEvents(s *clientStream, resp *http.Response) error {
	defer resp.Body.Close()
	began := time.Now()
	events := newEventReader(resp.Body, c.maxMessage)
	events.id = s.lastEventID
	isAlive, gotMessage := false, false
	for {
		e, err := events.next()
		if err != nil {
			s.noteResponse(isAlive, gotMessage || time.Since(began) > longStream)
			return err
		}
		isNew := s.noteEvent(e)
		isAlive = isAlive || isNew || e.Retry > 0
		if !e.isMessage() {
			continue
		}
		in := Decode(e.Data)
		gotMessage = gotMessage || isNew && in.Messages[0].Kind() != Invalid
		wasDone := s.isDone()
		c.deliver(s.clientPost, in)
		if !wasDone && s.isDone() {
			defer time.AfterFunc(drainTimeout, func() { resp.Body.Close() }).Stop()
		}
	}
}

// noteEvent notes what an event says about the next GET. It returns false if e is the event
// after which the stream was continued: some servers send it once more.
func (s *clientStream) noteEvent(e Event) (isNew bool) {
	isNew = e.ID == "" || e.ID != s.lastEventID
	if e.Retry > 0 {
		s.retry = e.Retry
	}
	s.lastEventID = e.ID
	isControl := func(char rune) bool { return char < ' ' || char == 0x7f }
	if len(e.ID) > maxRepeatedID || strings.ContainsFunc(e.ID, isControl) { // no header can repeat it
		s.lastEventID = ""
	}
	return isNew
}

// noteResponse counts failures anew after a useful response: one that has brought a new
// message, or has lasted long. If the response has brought only a new id or a retry, the server
// makes the client poll: then at least one more GET is sent, however many have failed. This is
// not for the standalone stream, because it would be polled without end.
func (s *clientStream) noteResponse(isAlive, wasUseful bool) {
	switch {
	case wasUseful:
		s.failures = 0
	case isAlive && !s.isStandalone():
		s.failures = min(s.failures, maxFailures-1)
	}
}

// reconnect sends GETs, with a pause before each, until one continues the stream, or too many
// have failed. cut is the error that has ended the response before; nil: the standalone stream
// begins. 2025-11-25 basic/transports#resumability-and-redelivery.
func (c *httpConn) reconnect(s *clientStream, cut error) (*http.Response, error) {
	for {
		if cut != nil {
			s.failures++
			if s.failures > maxFailures {
				return nil, interrupted(cut)
			}
			if !sleep(s.ctx, s.pause()) {
				return nil, context.Cause(s.ctx)
			}
		}
		resp, err := c.doFor(s.clientPost, http.MethodGet, s.lastEventID)
		if err != nil { // the server may be starting again
			cut = err
			continue
		}
		mayRetry, err := c.checkStream(s, resp)
		if !mayRetry {
			return resp, err
		}
		cut = err
	}
}

// checkStream returns an error if the response to a GET does not continue the stream. mayRetry
// means that the response to the next GET may.
func (c *httpConn) checkStream(s *clientStream, resp *http.Response) (mayRetry bool, err error) {
	if resp.StatusCode == http.StatusOK && isMedia(resp.Header.Get("Content-Type"), "text/event-stream") {
		s.wasOpen = true
		return false, nil
	}
	fault := httpError(resp)
	resp.Body.Close()
	switch {
	case !s.wasOpen && fault.Status == http.StatusMethodNotAllowed: // the specification allows that
		return false, errNoStream
	case !s.wasOpen: // 404 is not the end of the session: some servers answer any GET with it
		return false, fault
	case fault.Status == http.StatusTooManyRequests || fault.Status >= 500:
		return true, fault
	}
	ended := c.sessionEnded(s.clientPost, fault)
	return false, cmp.Or(ended, interrupted(fault))
}

// interrupted returns the error of a stream that is not continued. reason is why; io.EOF: the
// response has just ended.
func interrupted(reason error) error {
	if reason == nil || reason == io.EOF {
		return ErrInterrupted
	}
	return fmt.Errorf("%w: %w", ErrInterrupted, reason)
}

// pause returns how long to wait before the next GET: retry, if the server has set a second or
// more, and else firstPause, which doubles with each further failure up to maxPause. It is
// never shorter than retry: 2025-11-25 basic/transports#sending-messages-to-the-server, the
// client "MUST respect the retry field, waiting the given number of milliseconds". Up to an
// eighth more is random, so that not all clients send their GETs at the same moment.
func (s *clientStream) pause() time.Duration {
	pause := s.retry
	if pause < time.Second {
		pause = max(pause, min(firstPause<<(s.failures-1), maxPause))
	}
	return pause + mathrand.N(pause/8)
}

// sleep waits for d. It returns false if ctx ends before that.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// ---- The end of a client ----

// Close ends all streams, and the session.
func (c *httpConn) Close() error {
	c.closeOnce.Do(func() {
		before := c.failAll()
		close(c.closed)
		last := new(clientPost)
		c.join(last)
		if last.session != "" && before == nil {
			c.deleteSession(last)
		}
		doneWithin(graceAtEnd, &c.streams)
		c.closeIdle()
	})
	return nil
}

// deleteSession tells the server that the session has ended. 2025-11-25
// basic/transports#session-management: a client "SHOULD send an HTTP DELETE". The status does
// not matter: a server may answer with 405, and end the session by itself.
func (c *httpConn) deleteSession(last *clientPost) {
	ctx, cancel := context.WithTimeout(context.Background(), deleteTimeout)
	defer cancel()
	last.ctx = ctx
	resp, err := c.doFor(last, http.MethodDelete, "")
	if err == nil {
		resp.Body.Close()
	}
}

// ==== Bounds and protection ====

// What bounds a StreamableHandler. Where a field is named, it sets the bound. The others are
// constants of this package, and each has its reason beside it:
//
//	what                            default  set by or constant    beyond it
//	bytes of a POST                 4 MiB    Guard.MaxBody         413
//	header fields of a request      256      maxFields             431
//	… their bytes                   16 KiB   maxHeader             431
//	bytes in use                    64 MiB   Guard.MaxHeld         503; progress is dropped, an answer becomes an error
//	requests at once                3,072    MaxRequests           503
//	… of these, without a session   2,304    3/4 of MaxRequests    503
//	requests of a session           1,024    maxInFlight           503, or an error in a batch
//	messages of a batch             1,024    maxInFlight           400
//	subscriptions                   4,096    maxListeners          503
//	sessions                        10,000   Sessions.Max          503
//	how long a session is idle      30 min   Sessions.IdleTimeout  it ends; 404
//	… if only initialize has come   1 min    minSilence            it ends; 404
//	bytes that a stream keeps       0        Sessions.Keep         the oldest go
//	bytes that all streams keep     40 MiB   maxKept               the oldest of the same stream go, or the new ones are not kept
//	… while ended streams are kept  30 MiB   3/4 of maxKept        the oldest ended stream goes; 400
//	ended streams                   20,000   maxEnded              the oldest goes; 400
//	… how long they are kept        5 min    keepEnded             400
//	bytes of all subscriptions      32 MiB   maxRemembered         503, or an error
//	unwritten bytes of a stream     8 KiB    maxUnwritten          the sender waits
//	one write                       30 s     stall                 the connection is closed; 1 s more for each 64 KiB
//	silence of a stream             15 s     Guard.KeepAlive       a comment is sent
//
// When requests or bytes are at their bound, the server also cancels the calls of sessions
// whose clients have gone for more than a minute. Bodies, results and events of up to 4 KiB are
// not counted, so small calls still work when large ones use all bytes. One user can take all
// there is, unless the program or its proxy limits each user.
//
// SSEHandler has bounds of its own: a Guard, MaxRequests, and Max, which is how many
// conversations there may be at once.

// ---- Places ----

// handled gives back what was taken for the payload, when its handlers have returned.
func (in *incoming) handled() {
	in.places.give(in.requests)
	if in.whenHandled != nil {
		in.whenHandled()
	}
}

// takePlaces takes a place for each request of a payload. If there is none, it answers, and
// returns false. JSON-RPC responses and notifications need no place: the calls that have all
// places may be waiting for them. initialize needs none either, because the client may need its
// session to get a place. Requests without a session leave a quarter of the places to those in
// one.
func (in *incoming) takePlaces() (ok bool) {
	in.requests = answersIn(in.payload)
	places, spare, reason := &in.h.running, int64(0), errBusy
	switch {
	case in.requests == 0, in.payload.hasRequest("initialize") && !in.payload.Batch:
		return true
	case in.revision.Modern && in.payload.hasRequest("subscriptions/listen"): // it lasts
		places, reason = &in.h.listening, errListeners
	case in.session == nil:
		spare = places.limit / 4
	}
	if !places.takeBut(in.requests, spare) {
		in.reject(http.StatusServiceUnavailable, reason)
		return false
	}
	in.places = places
	return true
}
