package main

// Streamable HTTP. Every message of the client is a POST to one URL, and the
// answer to a request comes back as that POST's response: as JSON, or as a
// stream of events if there is something to say before it. In the legacy era
// there are sessions, a GET for what the server has to say of its own accord,
// and a GET that continues a stream that was cut off:
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
// The modern era has none of that. A request says in its header, for whoever
// stands between, what its body says as well; nothing is remembered, and the
// client that hangs up cancels:
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
// Implements 2025-03-26, 2025-06-18 and 2025-11-25
// basic/transports#streamable-http, 2026-07-28
// basic/transports/streamable-http. A handler runs on the goroutine that
// net/http has for its POST, those of a batch on one each; if the response
// becomes a stream, one more goroutine writes it, and is joined before that
// POST is over; one timer looks after all that have waited for a second. A
// client has one goroutine for each response that is a stream, until that has
// ended or the Conn is closed. A reply's mutex guards what has been decided
// about its response, and is held while its Stream is made; a lateness's who
// waits, a StreamableHandler's whether it is open, an httpConn's what it has
// learnt. Copy with jsonrpc.go, sse.go and session.go.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"math/big"
	mathrand "math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxRunning = 16 * maxInFlight // requests of one handler at once
	decideIn   = time.Second      // before a response without an answer becomes a stream
)

// StreamableHandler is an http.Handler; mount it at one path, with and without
// a final slash. Set the fields before the first request; Handler is required.
// A handler sees the request's header, and who has sent it, in its Exchange,
// and what middleware has put into the request's context in its own.
// The era is decided for each request, so clients of all revisions use the same
// path. http.Server's time-outs, if they are two seconds or more, do the
// streams no harm. Middleware that wraps the http.ResponseWriter must have an
// Unwrap or a Flush method. Behind any other, as behind http.TimeoutHandler,
// nothing can be flushed, so nothing streams: a call is answered without its
// progress, and a GET is refused. The log warns of that once. That a client has
// gone is known from net/http, which no longer looks once a byte follows the
// request. 2025-11-25
// basic/transports#streamable-http: "The server MUST provide a single HTTP
// endpoint path (hereafter referred to as the MCP endpoint) that supports both
// POST and GET methods"; of 2026-07-28 only POST is left.
type StreamableHandler struct {
	Handler Handler // required: a *Server, or what wraps one
	// Sessions are those of the legacy era. nil: none. Then each POST stands
	// alone, GET and DELETE are refused, and no legacy client can be asked.
	Sessions *Sessions
	Versions []string // versions to offer, newest first: those that the Server has; nil: all
	// HeaderParams returns the arguments of a tool that modern clients repeat
	// in their header, as ReadHeaderParams finds them in the inputSchema that
	// was listed; it is called for each of their tools/call, by many
	// goroutines. nil: no tool has any.
	HeaderParams func(tool string) []HeaderParam
	Guard

	once     sync.Once
	versions []string        // that are offered
	legacy   []string        // of these, the ones with a handshake
	open     context.Context // ends when the handler winds down
	windDown context.CancelFunc
	life     context.Context // ends when it stops what still runs then
	stop     context.CancelFunc

	late    lateness
	running atomic.Int64 // JSON-RPC requests being run
	lasting atomic.Int64 // subscriptions
	warned  atomic.Bool  // that nothing can stream

	mu  sync.Mutex     // guards the field below
	all sync.WaitGroup // HTTP requests being answered; Add while it is open
}

// ServeHTTP answers one request of a client.
func (h *StreamableHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h.once.Do(h.prepare)
	principal, ok := h.admit(w, r)
	if !ok {
		return
	}
	if !h.enter() {
		h.refuse(w, r, http.StatusServiceUnavailable, ID{}, "The server is shutting down")
		return
	}
	defer h.all.Done()
	sessions := h.Sessions != nil && len(h.legacy) > 0 && !revision(r.Header.Get("Mcp-Protocol-Version")).Modern
	switch {
	case r.Method == http.MethodPost:
		h.post(w, r, principal)
	case sessions && r.Method == http.MethodGet && !h.canStream(w, &h.warned):
		w.Header().Set("Allow", "POST, DELETE")
		h.refuse(w, r, http.StatusMethodNotAllowed, ID{}, noFlush)
	case sessions && (r.Method == http.MethodGet || r.Method == http.MethodDelete):
		h.getOrDelete(w, r, principal)
	default:
		// 2026-07-28
		// basic/transports/streamable-http#earlier-streamable-http-revisions:
		// "respond with 405 Method Not Allowed"
		w.Header().Set("Allow", "POST")
		if sessions {
			w.Header().Set("Allow", "GET, POST, DELETE")
		}
		h.refuse(w, r, http.StatusMethodNotAllowed, ID{}, "Method not allowed")
	}
}

func (h *StreamableHandler) prepare() {
	h.open, h.windDown = context.WithCancel(context.Background())
	h.life, h.stop = context.WithCancel(context.Background())
	h.late.wait, h.late.waiting = decideIn, map[*reply]time.Time{}
	if silence := h.silence(); silence > 0 {
		// A refusal needs some time to get its status.
		h.late.wait = max(min(decideIn, silence), 10*time.Millisecond)
	}
	h.versions, h.legacy = orAll(h.Versions), legacyOf(h.Versions)
	if h.Sessions != nil {
		h.Sessions.Log, h.Sessions.keepAlive = cmp.Or(h.Sessions.Log, h.Log), h.silence()
	}
}

// enter counts what Close waits for; false means that it no longer does.
func (h *StreamableHandler) enter() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Err() == nil {
		h.all.Add(1)
	}
	return h.open.Err() == nil
}

// Close winds down: new requests are refused, streams of no request end,
// questions to clients fail, and requests being answered have three seconds,
// then their contexts end. It ends all sessions when all are answered, returns
// at the latest four seconds after the call, and may be called again. Run it
// beside http.Server.Shutdown, which waits for streams that would never end,
// and wait for both.
func (h *StreamableHandler) Close() {
	h.once.Do(h.prepare)
	h.mu.Lock()
	h.windDown()
	h.mu.Unlock()
	sessions := cmp.Or(h.Sessions, new(Sessions))
	for _, s := range sessions.All() {
		s.listen().End()
		// Its answers will not be let in any more.
		s.Peer.refuseCalls(fmt.Errorf("%w: %w", ErrClosed, ErrSessionClosed))
	}
	doneWithin(graceAfterStop, &h.all)
	h.stop()
	for _, s := range sessions.All() {
		s.Peer.endContexts(ErrSessionClosed)
	}
	doneWithin(graceAtEnd, &h.all)
	sessions.Close()
}

// ---- Sessions: what a legacy server remembers about its HTTP clients ----

const (
	maxEnded  = 16              // ended streams that a session keeps, so that they can be resumed
	maxKept   = 4 << 20         // bytes of the ended streams of one session
	endedLife = 5 * time.Minute // how long an ended stream is kept
	maxHeld   = 256 << 20       // bytes of the ended streams of all sessions; a session beyond it drops its own
)

// Sessions is the table of sessions of one StreamableHandler. Set the fields
// before the first request. With the zero Sessions streams cannot be resumed: set
// Keep. To keep state of your own for a session, use Exchange.Peer as the key, and
// drop the state when Peer.Context ends.
//
// 2025-11-25 basic/transports#session-management: an id "SHOULD be globally unique
// and cryptographically secure" and "MUST only contain visible ASCII characters".
// Sessions does not check what NewID returns.
type Sessions struct {
	NewID func() string // nil: 130 random bits
	// Keep is the number of events that each stream keeps for a client whose
	// connection breaks. 0: none, and events have no ids.
	Keep int
	// IdleTimeout is how long a session lives without a request, an open stream
	// or running work. 0: 30 minutes; negative: for ever.
	IdleTimeout time.Duration
	Max         int // sessions at once; 0: 10,000
	// Opened is called before initialize is answered, and must not block. The
	// session is in the table by then, so it may end meanwhile. nil: not wanted.
	Opened func(*Session)
	// Ended is called on the goroutine that ends the session: that of a request,
	// a timer or Close. context.Cause of Session.Context is the reason. nil: not
	// wanted.
	Ended func(*Session)
	Log   *slog.Logger // nil: that of the handler

	keepAlive time.Duration // of streams

	mu       sync.Mutex // guards the fields below, and those of each Session
	byID     map[string]*Session
	held     int64 // bytes of ended streams
	sweeping bool  // a timer is set
	closed   bool
}

// Session is a legacy HTTP client as the server remembers it from one request to
// the next: a Peer with an id, and its streams.
type Session struct {
	*Peer
	ID string
	// Owner is the principal that has opened the session. A request needs both: the
	// ID and this principal. Without authentication it is "", and the ID is the
	// only secret.
	Owner string

	table *Sessions

	// The table's mutex guards the fields below.
	busy       int                // requests that are being answered, and responses that follow a stream
	since      time.Time          // when busy became 0
	standalone *Stream            // for messages that belong to no request; nil: the client has not asked for it
	streams    map[string]*Stream // standalone and those of requests, by id
	ended      []*Stream          // those of requests that have ended, oldest first
	kept       int64              // bytes of these
	lastStream int
}

// The reasons why a session has ended.
var (
	ErrSessionDeleted = errors.New("deleted by the client")
	ErrSessionIdle    = errors.New("idle for too long")
	ErrSessionClosed  = errors.New("closed by the server")
)

// create returns a session that is not yet in the table. It counts as busy. When
// initialize has succeeded, add the session; otherwise Delete it.
func (ss *Sessions) create(owner string) *Session {
	id := rand.Text()
	if ss.NewID != nil {
		id = ss.NewID()
	}
	s := &Session{ID: id, Owner: owner, table: ss, busy: 1}
	s.Peer = newPeer(context.Background(), s.send, new(mcpProtocol), ss.Log)
	return s
}

// add puts a session into the table. It returns an error if the table is full.
func (ss *Sessions) add(s *Session) error {
	if err := ss.insert(s); err != nil {
		return err
	}
	if ss.Opened != nil {
		ss.Opened(s)
	}
	return nil
}

func (ss *Sessions) insert(s *Session) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	switch {
	case ss.closed:
		return ErrSessionClosed
	case len(ss.byID) >= cmp.Or(ss.Max, 10_000):
		return errors.New("too many sessions")
	case ss.byID[s.ID] != nil:
		return errors.New("NewID has repeated an id")
	case ss.byID == nil:
		ss.byID = map[string]*Session{}
	}
	ss.byID[s.ID] = s
	if !ss.sweeping {
		ss.sweepLater()
	}
	return nil
}

// get returns the session with this id and owner; nil: there is none. The session
// counts as busy until release.
func (ss *Sessions) get(id, owner string) *Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s == nil || s.Owner != owner || s.idle() {
		return nil
	}
	s.busy++
	return s
}

// release undoes what create or get has added to busy.
func (s *Session) release() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.busy--
	s.since = time.Now()
}

// idle reports whether the session has not been busy for too long. The caller
// holds the table's mutex.
func (s *Session) idle() bool { return s.busy == 0 && time.Since(s.since) >= s.table.ttl() }

// Len returns how many sessions there are.
func (ss *Sessions) Len() int { return len(ss.All()) }

// Delete ends a session: its streams and the contexts of its handlers end, and
// its waiting calls fail. why is the reason. Delete may be called more than once.
func (ss *Sessions) Delete(s *Session, why error) {
	ss.mu.Lock()
	known := ss.byID[s.ID] == s
	if known {
		delete(ss.byID, s.ID)
	}
	s.prune()
	streams := slices.Collect(maps.Values(s.streams))
	ss.mu.Unlock()
	s.Peer.refuseCalls(fmt.Errorf("%w: the session was %w", ErrClosed, why))
	s.Peer.endContexts(why)
	for _, stream := range streams {
		stream.End()
	}
	if !known {
		return
	}
	s.log.Info("session ended", "session", s.tag(), "reason", why)
	if ss.Ended != nil {
		ss.Ended(s)
	}
}

// Close ends all sessions. After that, no session can be added.
func (ss *Sessions) Close() {
	ss.mu.Lock()
	ss.closed = true
	ss.mu.Unlock()
	for _, s := range ss.All() {
		ss.Delete(s, ErrSessionClosed)
	}
}

// All returns all sessions, in no order.
func (ss *Sessions) All() []*Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(maps.Values(ss.byID))
}

// ttl returns how long a session may be idle.
func (ss *Sessions) ttl() time.Duration {
	if ss.IdleTimeout < 0 {
		return math.MaxInt64
	}
	return cmp.Or(ss.IdleTimeout, 30*time.Minute)
}

// sweepLater sets the timer. An idle session lives a quarter longer than
// IdleTimeout at most. The caller holds mu.
func (ss *Sessions) sweepLater() {
	ss.sweeping = true
	time.AfterFunc(min(ss.ttl()/4+time.Millisecond, time.Minute), ss.sweepIdle)
}

// sweepIdle ends the sessions that have been idle for too long. As long as there
// are sessions, it sets the timer again. If a stream has had no response for so
// long, its client counts as gone: otherwise the request behind the stream would
// keep the session busy for ever.
func (ss *Sessions) sweepIdle() {
	since := time.Now().Add(-ss.ttl())
	for _, s := range ss.All() {
		ss.mu.Lock()
		s.prune()
		streams, idle := slices.Collect(maps.Values(s.streams)), s.idle()
		ss.mu.Unlock()
		for _, stream := range streams {
			if stream.abandoned(since) {
				stream.lost()
			}
		}
		if idle { // and get does not return it any more
			ss.Delete(s, ErrSessionIdle)
		}
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.sweeping = false
	if len(ss.byID) > 0 {
		ss.sweepLater()
	}
}

// Close ends the session.
func (s *Session) Close() error {
	s.table.Delete(s, ErrSessionClosed)
	return nil
}

// tag returns the text with which the ids of all events of the session begin. It
// does not reveal the session's id. An event id with another tag is refused.
func (s *Session) tag() string {
	sum := sha256.Sum256([]byte(s.ID))
	return hex.EncodeToString(sum[:4])
}

// newStream makes a stream of the kind that the session's revision has. lost is
// called when the client cannot read the stream any more. The caller holds the
// table's mutex.
func (s *Session) newStream(number int, lost func()) *Stream {
	rev, _ := s.remembered()
	keep := 0
	if rev.Resume {
		keep = s.table.Keep
	}
	stream := NewStream(s.tag()+"."+strconv.Itoa(number), keep)
	stream.prime, stream.keepAlive = rev.Prime, s.table.keepAlive
	stream.lost = func() {
		s.Peer.failCalls(stream, errNobody)
		lost()
	}
	if s.streams == nil {
		s.streams = map[string]*Stream{}
	}
	s.streams[stream.id] = stream
	if s.over() {
		stream.End()
	}
	return stream
}

// polls reports whether the server may end a response before its stream ends.
func (s *Session) polls() bool {
	rev, _ := s.remembered()
	return rev.Prime && s.table.Keep > 0
}

// open returns a new stream for a request. When it has ended, retire it.
func (s *Session) open(lost func()) *Stream {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.lastStream++
	return s.newStream(s.lastStream, lost)
}

// listen returns the stream for messages that belong to no request. A session has
// one of these, and a newer GET takes it over. 2025-11-25
// basic/transports#multiple-connections: the server "MUST NOT broadcast the same
// message across multiple streams."
func (s *Session) listen() *Stream {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.standalone == nil {
		s.standalone = s.newStream(0, func() {})
	}
	return s.standalone
}

// find returns the stream to which an event id belongs; nil: there is none.
func (s *Session) find(event string) *Stream {
	id, _, _ := strings.Cut(event, "/")
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.streams[id]
}

// send sends a message that belongs to no request.
func (s *Session) send(ctx context.Context, m *Message) error {
	s.table.mu.Lock()
	stream := s.standalone
	s.table.mu.Unlock()
	if stream == nil {
		return errNobody
	}
	return s.sendOn(ctx, stream, m)
}

// sendOn sends a message as an event of a stream.
func (s *Session) sendOn(ctx context.Context, stream *Stream, m *Message) error {
	if m.Kind() == Request {
		s.Peer.sentOn(m.ID, stream)
	}
	return stream.send(ctx, m)
}

// retire moves a request's stream that has ended to ended, if the client may resume
// it. Otherwise it is dropped.
func (s *Session) retire(stream *Stream) {
	size, resumable := stream.holds()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if !resumable {
		delete(s.streams, stream.id)
		return
	}
	s.ended = append(s.ended, stream)
	s.kept += size
	s.table.held += size
	s.prune()
}

// prune drops ended streams, the oldest first: those beyond the bounds, those that
// have had no response for too long, and all when the session has ended. The
// caller holds the table's mutex.
func (s *Session) prune() {
	most, since := maxEnded, time.Now().Add(-endedLife)
	if s.over() || s.table.held > maxHeld {
		most = 0
	}
	for len(s.ended) > 0 && (len(s.ended) > most || s.kept > maxKept || s.ended[0].abandoned(since)) {
		size, _ := s.ended[0].holds()
		s.kept -= size
		s.table.held -= size
		delete(s.streams, s.ended[0].id)
		s.ended = slices.Delete(s.ended, 0, 1)
	}
}

// over reports whether the session has ended. The caller holds the table's mutex.
func (s *Session) over() bool { return s.table.byID[s.ID] != s }

// ---- What every legacy request says of itself ----

// checkVersion tells what is wrong with the version that a legacy request's
// header names, if it names one. 2025-11-25
// basic/transports#protocol-version-header: "If the server receives a request
// with an invalid or unsupported MCP-Protocol-Version, it MUST respond with 400
// Bad Request." In a session that session's own version stays in force; the
// header need only be one we speak.
func (h *StreamableHandler) checkVersion(r *http.Request) *Error {
	switch lines := r.Header["Mcp-Protocol-Version"]; {
	case len(lines) > 1:
		return mismatch("More than one MCP-Protocol-Version")
	case len(lines) == 1 && !slices.Contains(h.legacy, lines[0]):
		return versionError(h.versions, lines[0])
	}
	return nil
}

// reject answers with an error. A server without a modern version has none of
// the codes that only modern servers have: 2026-07-28
// basic/transports/streamable-http#backward-compatibility, a client that gets
// one goes on "rather than falling back" to initialize. Such a refusal names no
// request, so a client knows that nobody has read its call (2025-11-25
// basic/transports#sending-messages-to-the-server: "error response that has
// no id").
func (h *StreamableHandler) reject(w http.ResponseWriter, r *http.Request, status int, id ID, fault *Error) {
	if !h.hasModern() && slices.Contains(modernCodes, fault.Code) {
		id, fault = ID{}, &Error{Code: CodeInvalidRequest, Message: fault.Message, Data: fault.Data}
	}
	h.Guard.reject(w, r, status, id, fault)
}

// hasModern reports whether a modern version is on offer.
func (h *StreamableHandler) hasModern() bool { return len(h.legacy) < len(h.versions) }

// session returns the session that a request names; release it. If it returns
// nil, the request has been refused: 400 if it names none, 404 if there is no
// such session, or it is another principal's. 2025-11-25
// basic/transports#session-management: after a session has ended the server
// "MUST respond to requests containing that session ID with HTTP 404 Not
// Found."
func (h *StreamableHandler) session(w http.ResponseWriter, r *http.Request, id ID, principal string) *Session {
	names := r.Header["Mcp-Session-Id"]
	switch {
	case len(names) == 0 || names[0] == "":
		h.refuse(w, r, http.StatusBadRequest, id, "Mcp-Session-Id is required")
		return nil
	case len(names) > 1:
		h.reject(w, r, http.StatusBadRequest, id, mismatch("More than one Mcp-Session-Id"))
		return nil
	}
	s := h.Sessions.get(names[0], principal)
	if s == nil {
		h.gone(w, r)
	} else if fault := h.checkVersion(r); fault != nil {
		h.reject(w, r, http.StatusBadRequest, id, fault)
		s.release()
		return nil
	}
	return s
}

// gone answers a request in a session that there is not. Its body is no
// message: some clients would take one for the answer to their call, and never
// open another session.
func (h *StreamableHandler) gone(w http.ResponseWriter, r *http.Request) {
	h.log().Info("refused", "status", http.StatusNotFound, "reason", "session not found", "method", brief(r.Method), "from", r.RemoteAddr)
	http.Error(w, "Session not found", http.StatusNotFound)
}

// ---- POST ----

// post dispatches what a POST holds. The version that it names, in its _meta or
// in its header, decides the era; without one it is legacy, where there is
// that. 2026-07-28 basic/versioning#compatibility-matrix: "A request carrying
// modern per-request _meta is served statelessly according to this revision."
// and "An initialize request selects legacy semantics, scoped to […] the
// session".
func (h *StreamableHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	in, ok := h.read(w, r)
	if !ok {
		return
	}
	rep := &reply{h: h, w: w, r: r, in: in,
		json: accepts(r.Header["Accept"], "application/json"), stream: accepts(r.Header["Accept"], "text/event-stream")}
	if !rep.json && !rep.stream {
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, "Accept must allow application/json or text/event-stream")
		return
	}
	rep.stream = rep.stream && h.canStream(w, &h.warned)
	base := Exchange{Principal: principal, noted: new(mcpFacts)}
	m, lines, inMeta := in.Messages[0], r.Header["Mcp-Protocol-Version"], ""
	if m.Kind() == Request && !in.Batch {
		meta, _ := m.Meta()
		inMeta = meta.ProtocolVersion
	}
	version := cmp.Or(inMeta, r.Header.Get("Mcp-Protocol-Version"))
	handshake := in.hasRequest("initialize") && !in.Batch
	switch {
	case m.Kind() == Invalid && m.Error.Code == CodeParseError:
		// no message at all, so no session and no version matter
		writeJSON(w, http.StatusBadRequest, in)
	case len(lines) > 1:
		rep.reject(mismatch("More than one MCP-Protocol-Version"))
	case revision(version).Modern && h.hasModern(), version == "" && len(h.legacy) == 0:
		rep.modern(base)
	case revision(version).Modern && !(handshake && inMeta == ""): // no such version here
		rep.reject(versionError(h.versions, version))
	case inMeta != "" && len(lines) == 1 && lines[0] != inMeta:
		rep.reject(mismatch("MCP-Protocol-Version is not the version in _meta"))
	case inMeta != "" && !slices.Contains(h.versions, inMeta), len(h.legacy) == 0:
		rep.reject(versionError(h.versions, version))
	case handshake && h.Sessions != nil: // with a session header, too: it starts anew
		rep.initialize(base)
	case handshake:
		rep.stream = false
		rep.alone(base)
	case h.Sessions != nil:
		rep.inSession(base)
	default:
		rep.sessionless(base)
	}
}

// initialize opens a session, if the handshake succeeds. It is not refused for
// its version header, which would make it impossible to agree on one. Its
// answer is JSON even if it takes long: its header is to carry the id.
func (rep *reply) initialize(base Exchange) {
	s := rep.h.Sessions.create(base.Principal)
	opened := false
	defer func() {
		if s.release(); !opened {
			rep.h.Sessions.Delete(s, ErrSessionClosed)
		}
	}()
	rep.session, rep.stream = s, false
	opening := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		result, err := rep.h.Handler.Handle(ctx, x)
		if err != nil {
			return nil, err
		}
		// What cannot be encoded is an error, and opens nothing.
		agreed, err := marshalObject(result)
		if err != nil {
			return nil, err
		}
		if err := rep.h.Sessions.add(s); err != nil {
			rep.h.log().Warn("no session", "reason", err)
			return nil, errNoRoom
		}
		opened = true
		rep.w.Header().Set("Mcp-Session-Id", s.ID)
		return encoded(agreed), nil
	})
	base.Peer = s.Peer
	// the session is not in the table yet
	rep.dispatch(withValues(rep.h.life, rep.r.Context()), opening, s.Peer, base)
}

var errNoRoom = &Error{Code: CodeInternalError, Message: "No more sessions"}

// inSession dispatches what belongs to a session. The work goes on if the
// client leaves: 2025-11-25 basic/transports#sending-messages-to-the-server,
// "Disconnection SHOULD NOT be interpreted as the client cancelling its
// request." So the context has the values of the request's, but not its end. A
// session's Peer cancels what it serves when it ends, and a context derived from
// the Peer's would cost each session memory.
func (rep *reply) inSession(base Exchange) {
	s := rep.h.session(rep.w, rep.r, rep.in.id(), base.Principal)
	if s == nil {
		return
	}
	rep.session, rep.release = s, sync.OnceFunc(s.release)
	defer rep.release()
	base.Peer = s.Peer
	rep.dispatch(context.WithoutCancel(rep.r.Context()), rep.h.Handler, s.Peer, base)
}

// sessionless dispatches a legacy message where there are no sessions.
func (rep *reply) sessionless(base Exchange) {
	version := rep.r.Header.Get("Mcp-Protocol-Version")
	fault := rep.h.checkVersion(rep.r)
	if fault == nil && version == "" && !slices.Contains(rep.h.legacy, assumedVersion) {
		// 2026-07-28 basic/transports/streamable-http#protocol-version-header:
		// who serves no clients of before 2025-06-18 "MUST reject a request
		// without the header".
		fault = mismatch("MCP-Protocol-Version is missing")
	}
	if fault != nil {
		rep.reject(fault)
		return
	}
	base.facts().revision = revision(cmp.Or(version, assumedVersion))
	rep.alone(base)
}

// alone dispatches what stands for itself: nothing is known of the client but
// this request. If it leaves, nothing can be delivered, and nobody else can
// cancel, so the work ends. 2026-07-28
// basic/patterns/cancellation#transport-specific-cancellation: "The server MUST
// treat a client disconnect as cancellation of that request."
func (rep *reply) alone(base Exchange) {
	nobody := func(context.Context, *Message) error { return errNobody }
	// net/http ends the context of this Peer.
	p := &Peer{log: cmp.Or(rep.h.Log, silent), send: nobody, protocol: statelessProtocol, ctx: rep.r.Context(), endCtx: func(error) {}}
	defer context.AfterFunc(rep.h.life, func() { p.endContexts(ErrClosed) })()
	rep.dispatch(p.ctx, rep.h.Handler, p, base)
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

// id returns what a refusal of the whole payload is to name: the id of a
// request, or of what might have been one.
func (in Payload) id() ID {
	if m := in.Messages[0]; !in.Batch && m.Kind() != Response {
		return m.ID
	}
	return ID{}
}

// dispatch lets a peer take in a payload, and answers.
func (rep *reply) dispatch(ctx context.Context, h Handler, p *Peer, base Exchange) {
	base.Header, base.Ending = rep.r.Header, rep.h.open.Done()
	base.send, base.facts().disconnect = rep.send, rep.disconnect
	rep.era = base.facts().revision
	count, most, full := &rep.h.running, int64(maxRunning), errBusy
	if rep.era.Modern && rep.in.hasRequest("subscriptions/listen") { // it lasts
		count, most, full = &rep.h.lasting, maxListeners, errListeners
	}
	// What is no request is never kept waiting by those that are: an answer, or
	// a cancellation, may be what they wait for.
	requests := int64(rep.in.requests())
	defer count.Add(-requests)
	if count.Add(requests) > most && requests > 0 {
		rep.h.reject(rep.w, rep.r, http.StatusServiceUnavailable, rep.in.id(), full)
		return
	}
	answer := p.Dispatch(ctx, h, rep.in, base)
	damaged := slices.IndexFunc(rep.in.Messages, func(m *Message) bool { return m.unusable != nil })
	switch {
	case answer != nil:
		rep.batch = answer.Batch
		rep.h.late.add(rep)
		defer answer.Written()
		defer rep.finish()
		answer.Emit(rep.answer)
	case damaged >= 0: // a response: whoever waited for it knows by now
		rep.refuse(http.StatusBadRequest, rep.in.Messages[damaged].unusable.Error())
	case requests > 0 && rep.h.open.Err() != nil: // Close has come in between
		rep.refuse(http.StatusServiceUnavailable, "The server is shutting down")
	case requests > 0: // the session has ended meanwhile
		rep.h.gone(rep.w, rep.r)
	default:
		// 2025-11-25 basic/transports#sending-messages-to-the-server: "the
		// server MUST return HTTP status code 202 Accepted with no body"
		accepted(rep.w)
	}
}

// status is that of a response which is one error. Only what makes the request
// itself wrong shows in it; legacy clients take other statuses for failures of
// the transport, and 404 for the end of their session. 2026-07-28
// basic/transports/streamable-http#protocol-version-header: "If the server does
// not implement the requested RPC method, it MUST respond with 404 Not Found".
func status(m *Message, modern bool) int {
	if m.Error == nil {
		return http.StatusOK
	}
	switch m.Error {
	case errBusy, errListeners, errStopping, errNoRoom:
		return http.StatusServiceUnavailable
	}
	switch code := m.Error.Code; {
	case modern && code == CodeMethodNotFound:
		return http.StatusNotFound
	case modern && code == CodeMissingCapability,
		code == CodeParseError, code == CodeInvalidRequest, code == CodeHeaderMismatch, code == CodeUnsupportedVersion:
		return http.StatusBadRequest
	}
	return http.StatusOK
}

// ---- What a modern request says twice: in its header, and in its body ----

// modern dispatches a message of the modern era.
func (rep *reply) modern(base Exchange) {
	if fault := rep.h.validate(rep.r.Header, rep.in); fault != nil {
		rep.reject(fault)
		return
	}
	switch listens := rep.in.hasRequest("subscriptions/listen"); {
	case listens && !canFlush(rep.w):
		rep.refuse(http.StatusInternalServerError, noFlush)
		return
	case listens && !rep.stream:
		rep.refuse(http.StatusNotAcceptable, "A subscription is a stream: Accept must allow text/event-stream")
		return
	}
	base.facts().revision = revision(rep.r.Header.Get("Mcp-Protocol-Version"))
	rep.alone(base)
}

// validate tells what is wrong with a modern message as such, if anything is.
// The order of the checks is the same for all requests, and what a handler
// would find wrong comes after them. 2026-07-28
// basic/transports/streamable-http#sending-messages: "The body of the HTTP POST
// MUST be a single JSON-RPC request or notification. The client MUST NOT send
// JSON-RPC responses."
func (h *StreamableHandler) validate(header http.Header, in Payload) *Error {
	m := in.Messages[0]
	meta, err := m.Meta()
	fault, _ := errors.AsType[*Error](err)
	declares := meta.ProtocolVersion != ""
	version := header.Get("Mcp-Protocol-Version")
	switch {
	case in.Batch || m.Kind() == Response:
		return &Error{Code: CodeInvalidRequest, Message: "Invalid request: one request or notification in a POST"}
	case m.Kind() == Invalid:
		return m.Error
	case version == "" && !declares: // a server without a legacy era
		return errorWithVersions(h.versions, CodeHeaderMismatch, "Header mismatch: MCP-Protocol-Version is missing")
	case m.Kind() == Notification:
		// "header requirements for notification POSTs are not defined by this
		// revision"
		meta.ProtocolVersion = cmp.Or(meta.ProtocolVersion, version)
	case fault != nil:
		return fault
	case !declares:
		return missingMeta(h.versions, metaVersion)
	case meta.ClientCapabilities == nil:
		return missingMeta(h.versions, metaCapabilities)
	}
	name, fault := checkNames(header, m)
	switch wrong := checkPlain(header, "Mcp-Protocol-Version", meta.ProtocolVersion); {
	case wrong != nil:
		return wrong
	case fault != nil:
		return fault
	case !slices.Contains(h.versions, meta.ProtocolVersion):
		return versionError(h.versions, meta.ProtocolVersion)
	case m.Method == "tools/call" && m.Kind() == Request && h.HeaderParams != nil:
		return checkParams(header, m.Params, h.HeaderParams(name))
	}
	return nil
}

func mismatch(format string, args ...any) *Error {
	return &Error{Code: CodeHeaderMismatch, Message: "Header mismatch: " + fmt.Sprintf(format, args...)}
}

// named maps the methods whose requests carry Mcp-Name to the member of their
// params that it repeats.
var named = map[string]string{"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}

// checkNames checks the fields that each request has, and returns the name of
// what is asked for. 2026-07-28
// basic/transports/streamable-http#server-validation: a server "MUST reject
// requests where the values specified in the headers do not match the
// corresponding values in the request body."
func checkNames(header http.Header, m *Message) (name string, fault *Error) {
	if m.Kind() == Request || header["Mcp-Method"] != nil {
		fault = checkPlain(header, "Mcp-Method", m.Method)
	}
	if fault == nil && len(header["Mcp-Name"]) > 1 { // whether or not it means anything here
		fault = mismatch("more than one Mcp-Name")
	}
	source := named[m.Method]
	if fault != nil || source == "" || m.Kind() == Notification {
		return "", fault
	}
	value, fault := exact(m.Params, source)
	if fault == nil && (len(value) == 0 || value[0] != '"') {
		fault = mismatch("the body has no %s", source)
	}
	if fault == nil {
		fault = compare(header, "Mcp-Name", value, source)
	}
	return unquote(value), fault
}

// exact returns a member of an object, nil if there is none. It fails if there
// are two, or one that differs in case: encoding/json takes the last of them,
// and a handler that reads its params so would run what the header does not
// say.
func exact(object json.RawMessage, name string) (value json.RawMessage, fault *Error) {
	if len(object) == 0 || object[0] != '{' {
		return nil, nil
	}
	for other, v := range each(object) {
		switch {
		case !bytes.EqualFold(other, []byte(name)):
		case string(other) != name || value != nil:
			return nil, mismatch("'%s' is there twice, or in another case", name)
		default:
			value = v
		}
	}
	return value, nil
}

// checkPlain checks a field that is never encoded.
func checkPlain(header http.Header, name, want string) *Error {
	text, fault := rawField(header, name)
	if fault == nil && text != want {
		fault = mismatch("%s is %.100q, in the body it is %.100q", name, text, want)
	}
	return fault
}

// rawField returns the one value of a field. 2026-07-28
// basic/transports/streamable-http#value-encoding: it consists of "visible
// ASCII characters (0x21-0x7E), space (0x20), and horizontal tab (0x09)".
func rawField(header http.Header, name string) (string, *Error) {
	switch lines := header[name]; {
	case len(lines) == 0:
		return "", mismatch("%s is missing", name)
	case len(lines) > 1:
		return "", mismatch("more than one %s", name)
	case strings.ContainsFunc(lines[0], func(c rune) bool { return c != '\t' && (c < ' ' || c > '~') }):
		return "", mismatch("%s has characters that a header must not have", name)
	default:
		return lines[0], nil
	}
}

// field returns the one value of a field that may be encoded. 2026-07-28
// basic/transports/streamable-http#value-encoding:
// "=?base64?{Base64EncodedValue}?=".
func field(header http.Header, name string) (string, *Error) {
	text, fault := rawField(header, name)
	inner, begins := strings.CutPrefix(text, "=?base64?")
	inner, ends := strings.CutSuffix(inner, "?=")
	if fault != nil || !begins || !ends { // with one of the markers only, it is literal
		return text, fault
	}
	decoded, err := base64.StdEncoding.Strict().DecodeString(inner)
	if err != nil {
		return "", mismatch("%s is no Base64", name)
	}
	return string(decoded), nil
}

// HeaderParam is an argument of a tool that is repeated in the header of a
// tools/call: its inputSchema says "x-mcp-header".
type HeaderParam struct {
	Name string   // of the field, after Mcp-Param-
	Path []string // member names, from arguments on
}

// checkParams compares the fields that repeat arguments with the arguments;
// null and missing ones have none. 2026-07-28
// basic/transports/streamable-http#server-behavior-for-custom-headers: servers
// must "validate that encoded header values, after decoding if Base64-encoded,
// match the corresponding values in the request body."
func checkParams(header http.Header, params json.RawMessage, marked []HeaderParam) *Error {
	for _, p := range marked {
		value, fault := exact(params, "arguments")
		for i := 0; i < len(p.Path) && fault == nil; i++ {
			value, fault = exact(value, p.Path[i])
		}
		if fault == nil {
			fault = compare(header, http.CanonicalHeaderKey("Mcp-Param-"+p.Name), value, "argument")
		}
		if fault != nil {
			return fault
		}
	}
	return nil
}

// compare checks a field that may be encoded against what it repeats.
func compare(header http.Header, name string, value json.RawMessage, what string) *Error {
	missing := value == nil || string(value) == "null"
	if missing && header[name] == nil {
		return nil
	}
	text, fault := field(header, name)
	switch {
	case missing:
		return mismatch("%s has no %s", name, what)
	case fault == nil && !sameValue(text, value):
		return mismatch("%s is %.100q, not the %s in the body", name, text, what)
	}
	return fault
}

// sameValue compares a field with a JSON value: strings as they are, true and
// false, integers as numbers, so that 42 is 42.0.
func sameValue(text string, value json.RawMessage) bool {
	switch value[0] {
	case '"':
		return unquote(value) == text
	case 't', 'f':
		return string(value) == text
	}
	a, ok := integerIn(text)
	b, too := integerIn(string(value))
	return ok && too && a == b
}

// integerIn reads a JSON number that is an integer within ±(2^53-1).
func integerIn(text string) (n int64, ok bool) {
	if len(text) > 32 || !json.Valid([]byte(text)) {
		return 0, false
	}
	number, _, err := big.ParseFloat(text, 10, 256, big.ToNearestEven) // exact for so few digits
	if err != nil {
		return 0, false
	}
	n, accuracy := number.Int64()
	return n, accuracy == big.Exact && -1<<53 < n && n < 1<<53
}

// ReadHeaderParams finds the arguments that an inputSchema marks with
// x-mcp-header, by their names. The error says why the schema is invalid, or
// that it is too large, or has too many marks, to be trusted. 2026-07-28
// basic/transports/streamable-http#schema-extension: a name is a token and
// unique without regard to case, and the argument a string, integer or boolean
// that is reached through "properties" alone.
func ReadHeaderParams(schema json.RawMessage) (marked []HeaderParam, err error) {
	switch {
	case len(schema) > maxSchema:
		return nil, fmt.Errorf("the schema has more than %d bytes", maxSchema)
	case !json.Valid(schema) || bytes.TrimSpace(schema)[0] != '{':
		return nil, errors.New("the schema is no object")
	}
	m := marks{in: json.NewDecoder(bytes.NewReader(schema)), names: map[string]bool{}}
	if m.read([]string{}); m.err != nil {
		return nil, m.err
	}
	return m.found, nil
}

// marks is what has been found in a schema, or why it is invalid. It walks
// through the schema once: decoded, some are fifty times as large.
type marks struct {
	in    *json.Decoder // of what is valid
	found []HeaderParam
	names map[string]bool // in lower case
	err   error           // ends the walk
}

const (
	maxSchema = 1 << 20 // bytes
	maxParams = 128     // in one schema
	maxNested = 64      // properties in one another: each mark has a path of its own
)

// more reports whether another member or element follows. At the end it takes
// the closing bracket.
func (m *marks) more() bool {
	if m.err != nil {
		return false
	}
	if m.in.More() {
		return true
	}
	_, _ = m.in.Token()
	return false
}

// data returns the next value, unread.
func (m *marks) data() (value json.RawMessage) {
	m.err = cmp.Or(m.err, m.in.Decode(&value))
	return value
}

// read reads a schema, or a part of one. path leads to it through properties,
// from the root on; nil: nothing like that does.
func (m *marks) read(path []string) {
	if len(path) > maxNested {
		m.err = fmt.Errorf("properties are nested deeper than %d levels", maxNested)
		return
	}
	switch token, _ := m.in.Token(); token {
	case json.Delim('{'):
		m.readObject(path)
	case json.Delim('['):
		for m.more() {
			m.read(nil)
		}
	}
}

func (m *marks) readObject(path []string) {
	var mark, kind json.RawMessage
	for m.more() {
		switch key, _ := m.in.Token(); key {
		case "x-mcp-header":
			mark = m.data()
		case "type":
			kind = m.data()
		case "default", "const", "enum", "examples", "required", "dependentRequired":
			m.data() // and no schema
		case "properties":
			m.readNamed(path)
		case "patternProperties", "$defs", "definitions", "dependentSchemas", "dependencies":
			m.readNamed(nil)
		default:
			m.read(nil)
		}
	}
	if mark != nil && m.err == nil {
		m.add(mark, path, unquote(kind))
	}
}

// readNamed reads an object of schemas by names of their own. To what is named
// leads the path, and then the name.
func (m *marks) readNamed(path []string) {
	switch token, _ := m.in.Token(); token {
	case json.Delim('{'):
		for m.more() {
			var further []string
			if name, _ := m.in.Token(); path != nil {
				further = append(slices.Clip(path), fmt.Sprint(name))
			}
			m.read(further)
		}
	case json.Delim('['):
		for m.more() {
			m.data() // without names it means nothing
		}
	}
}

// add notes a mark, if it is a valid one.
func (m *marks) add(mark json.RawMessage, path []string, kind string) {
	name := unquote(mark)
	lower := strings.ToLower(name)
	switch {
	case name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		m.err = fmt.Errorf("x-mcp-header must be a token, not %.100s", mark)
	case len(path) == 0:
		m.err = fmt.Errorf("x-mcp-header %.100q marks what is not reached through properties alone", name)
	case kind != "string" && kind != "integer" && kind != "boolean":
		m.err = fmt.Errorf("x-mcp-header %.100q marks no string, integer or boolean", name)
	case m.names[lower]:
		m.err = fmt.Errorf("x-mcp-header %.100q is there twice", name)
	case len(m.found) == maxParams:
		m.err = fmt.Errorf("x-mcp-header is there more than %d times", maxParams)
	}
	m.names[lower] = true
	m.found = append(m.found, HeaderParam{Name: name, Path: path})
}

// ---- The reply: JSON, or a stream ----

// reply is the response to a POST. What it becomes is decided as late as
// possible: a stream when there is something to say before the answer or a
// second has passed, else JSON.
type reply struct {
	h       *StreamableHandler
	w       http.ResponseWriter
	r       *http.Request
	in      Payload
	json    bool     // the client accepts that
	stream  bool     // it may become one
	era     Revision // of the request, if that says it
	session *Session // nil: none, so a client that leaves cancels
	release func()   // of the session, once; nil: nothing to release
	batch   bool

	mu       sync.Mutex    // guards the fields below
	answers  []*Message    // that came before it was decided
	events   *Stream       // nil: not decided
	followed chan struct{} // closed when nobody writes the stream to this response any more
	done     bool          // the answers have all come
}

func (rep *reply) refuse(status int, reason string) {
	rep.h.refuse(rep.w, rep.r, status, rep.in.id(), reason)
}

func (rep *reply) reject(fault *Error) {
	rep.h.reject(rep.w, rep.r, http.StatusBadRequest, rep.in.id(), fault)
}

// commitLate makes the response a stream, because there is no answer yet, so
// that the client and all between know that somebody is at work.
func (rep *reply) commitLate() {
	if rep.commit() != nil {
		return
	}
	rep.mu.Lock()
	defer rep.mu.Unlock()
	// It will be JSON, however long it takes: a server's WriteTimeout must not
	// end it, but if the client leaves it is for nobody, and does not keep the
	// session.
	if !rep.done {
		_ = http.NewResponseController(rep.w).SetWriteDeadline(time.Time{})
		if rep.release != nil {
			context.AfterFunc(rep.r.Context(), rep.release)
		}
	}
}

// lateness commits replies that have waited for a second, or for as long as a
// stream may be silent if that is shorter. A timer for each would be a good
// part of the cost of a small call, which is answered long before.
type lateness struct {
	wait time.Duration

	mu      sync.Mutex           // guards the fields below
	waiting map[*reply]time.Time // when they are due
	timed   bool                 // sweep will be called
}

func (l *lateness) add(rep *reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting[rep] = time.Now().Add(l.wait)
	if !l.timed {
		l.timed = true
		time.AfterFunc(l.wait, l.sweep)
	}
}

func (l *lateness) remove(rep *reply) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.waiting, rep)
}

// sweep commits what is due, and comes again for the rest.
func (l *lateness) sweep() {
	l.mu.Lock()
	var late []*reply
	next := l.wait
	for rep, due := range l.waiting {
		if left := time.Until(due); left > 0 {
			next = min(next, left)
		} else {
			late = append(late, rep)
			delete(l.waiting, rep)
		}
	}
	if l.timed = len(l.waiting) > 0; l.timed {
		time.AfterFunc(next, l.sweep)
	}
	l.mu.Unlock()
	for _, rep := range late {
		rep.commitLate()
	}
}

// send sends what belongs to the request and precedes its answer.
func (rep *reply) send(ctx context.Context, m *Message) error {
	if !rep.stream {
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
		return events.send(ctx, m)
	}
	return rep.session.sendOn(ctx, events, m)
}

// gone tells whether the client has cancelled by leaving. 2026-07-28
// basic/transports/streamable-http#cancellation: the server "MUST NOT send any
// further messages for it".
func (rep *reply) gone() bool {
	return rep.session == nil && rep.r.Context().Err() == context.Canceled
}

// commit makes the response a stream, if that is not decided yet, and returns
// it; nil if it cannot be one, or not any more.
func (rep *reply) commit() *Stream {
	rep.mu.Lock()
	defer rep.mu.Unlock()
	if rep.events != nil || rep.done || !rep.stream || rep.gone() {
		return rep.events
	}
	if rep.session != nil {
		rep.events = rep.session.open(rep.release) // work for nobody does not keep the session
	} else {
		rep.events = NewStream("", 0)
		rep.events.keepAlive = rep.h.silence()
	}
	f := rep.events.open(rep.answers)
	rep.answers = nil
	rep.followed = make(chan struct{})
	go func() { // joined by finish
		defer close(rep.followed)
		rep.events.run(f, rep.w, rep.r)
		rep.mu.Lock()
		done := rep.done
		rep.mu.Unlock()
		// Disconnect, a takeover, the session's end: the handler runs on
		if !done && rep.r.Context().Err() == nil {
			letGo(rep.w)
		}
	}()
	return rep.events
}

// letGo ends a response while its handler still runs, so that the client need
// not hold the connection. net/http would end it only then.
func letGo(w http.ResponseWriter) {
	rc := http.NewResponseController(w)
	conn, out, err := rc.Hijack()
	if err != nil {
		_ = rc.SetWriteDeadline(time.Now()) // HTTP/2: resets the stream
		return
	}
	if w.Header().Get("Connection") == "close" {
		_ = conn.SetDeadline(time.Now().Add(graceAtEnd))
		_, _ = out.WriteString("0\r\n\r\n") // the last chunk: a response that is complete
		_ = out.Flush()
	} // else it is cut: after a complete response the client might send its next request just now
	_ = conn.Close()
}

// disconnect makes the response a stream and lets go of it.
func (rep *reply) disconnect(retry time.Duration) {
	if rep.session == nil || !rep.session.polls() || !rep.stream {
		return
	}
	rep.mu.Lock()
	if rep.events == nil && !rep.done && rep.r.Proto == "HTTP/1.1" {
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
	}
	rep.mu.Unlock()
	if events != nil {
		// if nobody can ever read it, there is no one to tell
		_ = events.send(context.Background(), m)
	}
}

// finish writes what has not been written, and waits until all is.
func (rep *reply) finish() {
	rep.mu.Lock()
	rep.done = true
	rep.mu.Unlock()
	rep.h.late.remove(rep)
	if rep.events != nil { // from here on commit changes nothing, so no lock is needed
		rep.events.End()
		<-rep.followed
	}
	switch {
	case rep.gone():
		// The client may only have closed its half, and must not take an empty
		// 200 for an answer.
		if rep.r.Context().Value(http.ServerContextKey) != nil { // net/http knows what this means
			panic(http.ErrAbortHandler)
		}
	case rep.events != nil && rep.session != nil:
		rep.session.retire(rep.events)
	case rep.events != nil:
	case len(rep.answers) > 0:
		rep.write()
	case rep.stream: // all requests were cancelled
		newEventWriter(rep.w)
	default: // there is nothing to say in JSON, and its client should have accepted both
		accepted(rep.w)
	}
}

// write writes a response that consists of nothing but the answer, as JSON
// unless the client accepts only events.
func (rep *reply) write() {
	code := http.StatusOK
	if len(rep.answers) == 1 {
		code = status(rep.answers[0], rep.era.Modern)
	}
	if rep.json || code != http.StatusOK {
		writeJSON(rep.w, code, Payload{Messages: rep.answers, Batch: rep.batch})
		return
	}
	events := newEventWriter(rep.w)
	for _, m := range rep.answers {
		_ = events.write(Event{Data: m.encode()}.Append(nil))
	}
}

// ---- GET and DELETE ----

// getOrDelete opens the stream of what belongs to no request, or continues one
// that was cut off. 2025-11-25 basic/transports#resumability-and-redelivery:
// "The server MUST NOT replay messages that would have been delivered on a
// different stream." A DELETE ends the session.
func (h *StreamableHandler) getOrDelete(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.session(w, r, ID{}, principal)
	if s == nil {
		return
	}
	defer s.release()
	after := r.Header.Get("Last-Event-ID")
	events := s.find(after)
	switch {
	case r.Method == http.MethodDelete:
		h.Sessions.Delete(s, ErrSessionDeleted)
		w.WriteHeader(http.StatusOK) // not 204: some proxies cannot pass that on
		return
	case !accepts(r.Header["Accept"], "text/event-stream"):
		// It "MUST include" that; a 405 would say that there is no stream.
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, "Accept must allow text/event-stream")
		return
	case after == "":
		events = s.listen()
	}
	// not 404, which would end the client's session
	if events == nil || events.Follow(w, r, after) != nil {
		h.refuse(w, r, http.StatusBadRequest, ID{}, "Last-Event-ID is unknown, or no longer kept")
	}
}

// ---- The client ----

const (
	maxTries   = 8               // to continue a stream without an event in between
	firstPause = time.Second / 4 // before the first of them, doubled for each
	maxPause   = 5 * time.Second // but no longer: 23 seconds in all
	maxRetry   = 5 * time.Minute // a server that wants us to wait longer has given up on the stream

	// The shortest pause, whatever the server says with retry: it could have us
	// come back without end, and all the time.
	minPause = 10 * time.Millisecond

	// A stream that was open for so long is no failure: proxies cut those that
	// are silent.
	lasting = 30 * time.Second

	readAhead   = 2                      // payloads that have come and are not read yet
	maxRepeated = 4 << 10                // bytes of an event's id, and of a session's, that we repeat
	maxMarked   = 4 << 20                // bytes of marked arguments that are remembered
	maxNamed    = 16                     // tools that are left out of a list, and named in the log
	maxReplies  = 32                     // answers to the server on their way at once
	farewell    = 700 * time.Millisecond // for a DELETE
)

// Is says what a status means for a Client that looks for a server. No other file
// reads statuses.
func (e *HTTPError) Is(target error) bool {
	// Only modern servers have these codes, whatever the status.
	modern := e.fault != nil && slices.Contains(modernCodes, e.fault.Code) ||
		codeOf(e) == CodeMethodNotFound && e.Status == http.StatusNotFound
	switch target {
	case errRefused:
		return true
	case errUnread: // an error with an id is the answer of a server that has read the request
		return e.id == ID{}
	case errModernServer:
		return modern
	case errOtherServer:
		other := []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}
		return slices.Contains(other, e.Status) && !modern
	case errSaysNothing:
		first := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}
		return slices.Contains(first, e.Status) || e.Status/100 == 3 || e.Status >= 500
	}
	return false
}

// modernCodes are the codes that only modern servers have.
var modernCodes = []int{CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion}

// unreachable is the error of a request without a response.
type unreachable struct{ error }

func (e unreachable) Is(target error) bool { return target == errSaysNothing }
func (e unreachable) Unwrap() error        { return e.error }

// asUnreachable returns what http.Client.Do has returned as such an error.
func asUnreachable(err error) error {
	if _, ok := errors.AsType[*url.Error](err); ok {
		return unreachable{err}
	}
	return err
}

// DialHTTP returns a Dialer for Streamable HTTP, of any revision, at a URL. The
// client and max are as in DialSSE. Dialling sends nothing.
//
// The Conn reads what passes. It begins a session with the result of
// initialize, and ends it with DELETE when it is closed. It repeats in the
// header what a modern request says in its body, and the arguments that a
// tools/list it has seen marks for that; tools that are marked wrongly it
// leaves out of the list.
//
// Write waits until the server has taken the payload, no longer than 30 seconds
// if that is no request. It fails with an *HTTPError if the server has not,
// with ErrSessionEnded in a session that the server does not know any more.
// notifications/cancelled closes the response that it names, and is sent in the
// legacy era only. Of batches only those of answers are sent. An answer is sent
// again each second, for those 30, as long as the network fails.
//
// A call whose response is cut off is continued where that can be, and never
// sent again. It fails with ErrInterrupted if it cannot be continued, or after
// eight tries that brought no message (23 seconds, or eight times what the
// server said with retry), and with ErrTooLarge.
func DialHTTP(client *http.Client, target string, max int) Dialer {
	return func(context.Context) (Conn, error) {
		c := &httpConn{url: target, max: max, posts: map[*post]bool{}, marked: map[string][]HeaderParam{}}
		c.client, c.idle = keepToOrigin(client)
		c.in, c.over, c.replies = make(chan incoming, readAhead), make(chan struct{}), make(chan struct{}, maxReplies)
		return c, nil
	}
}

// httpConn is the client's Conn.
type httpConn struct {
	client  *http.Client
	idle    func() // closes its idle connections
	url     string
	max     int
	in      chan incoming
	over    chan struct{}  // closed by Close
	replies chan struct{}  // has room for each answer to the server that is on its way
	streams sync.WaitGroup // one for each response that is one; Go holding mu, and not once closed
	closing sync.Once

	mu      sync.Mutex               // guards the fields below
	rev     Revision                 // agreed on, or what the last modern request said
	session string                   // "": none
	ended   error                    // why nothing more is sent: the session has ended, or Close
	posts   map[*post]bool           // true: its response is a stream
	marked  map[string][]HeaderParam // by tool
	kept    int                      // bytes of these, roughly
}

// post is a POST until all that it brings has come; one without a payload is
// the GET of what belongs to no request.
type post struct {
	out     Payload
	id      ID // of the request in it, until its answer has come
	rev     Revision
	session string // that it belongs to

	// These end it: Close, the end of the session, that it is cancelled, and
	// that all has come.
	ctx    context.Context
	cancel context.CancelCauseFunc

	// Of its stream:
	last  string        // id of the last event
	retry time.Duration // to wait before it is continued; 0: not said
	fresh bool          // the last response has brought a message that is new
	tries int           // to continue it, since something has come
}

// Read returns what has come.
func (c *httpConn) Read() (Payload, error) {
	select {
	case in := <-c.in:
		return in.payload, in.err
	case <-c.over:
		return Payload{}, io.EOF
	}
}

// Write POSTs a payload, and waits for the status. An answer in JSON is read
// here; a stream on a goroutine of its own.
func (c *httpConn) Write(ctx context.Context, out Payload) error {
	first := out.Messages[0]
	switch {
	case out.Batch && first.Kind() != Response:
		return errors.New("only answers are sent as a batch")
	case first.Method == "notifications/cancelled" && c.stops(first):
		return nil
	}
	x, err := c.begin(ctx, out)
	if err != nil {
		return err
	}
	// The stream of what belongs to no request is opened beside this, so that
	// it is there for the first call.
	if first.Method == "notifications/initialized" && x.rev.Resume {
		if alone, err := c.begin(context.Background(), Payload{}); err == nil {
			_ = c.follow(alone, nil)
		}
	}
	defer context.AfterFunc(ctx, func() { x.cancel(ctx.Err()) })()
	if first.Kind() != Request {
		defer time.AfterFunc(stall, func() { x.cancel(errSlow) }).Stop()
	}
	if first.Kind() == Response {
		select {
		case c.replies <- struct{}{}:
			// A server that asks and does not listen does not get any number of
			// connections.
			defer func() { <-c.replies }()
		case <-x.ctx.Done():
		}
	}
	streams, err := c.send(x)
	// The server waits for an answer; if it has it already, it does no harm.
	for err != nil && first.Kind() == Response && !errors.As(err, new(*HTTPError)) && sleep(x.ctx, time.Second) {
		_, err = c.send(x)
	}
	if streams {
		return nil
	}
	if cause := context.Cause(x.ctx); err != nil && cause != nil {
		err = cause
	}
	if c.finish(x); err == errAnsweredFirst {
		return nil
	}
	return err
}

var errSlow = fmt.Errorf("the server has not taken it within %v", stall)

// stops closes the response to a request that is cancelled. It returns true if
// there is no more to do about that: in the modern era. 2026-07-28
// basic/transports/streamable-http#cancellation: closing the stream is the
// signal, and no notification is needed.
func (c *httpConn) stops(m *Message) bool {
	id, _ := parseID(member(m.Params, "requestId"))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cut(func(other ID) bool { return other == id }, 0, context.Canceled)
	return c.rev.Modern
}

// cut ends those POSTs, after a while, whose request is over: cancelled, or
// answered elsewhere. The caller holds mu.
func (c *httpConn) cut(over func(ID) bool, after time.Duration, why error) {
	for x := range c.posts {
		if x.id != (ID{}) && over(x.id) {
			time.AfterFunc(after, func() { x.cancel(why) })
		}
	}
}

// begin notes what is sent. initialize begins anew: 2025-11-25
// basic/transports#session-management, "without a session ID attached".
func (c *httpConn) begin(ctx context.Context, out Payload) (*post, error) {
	x := &post{out: out}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, notSent{c.ended}
	}
	for _, m := range out.Messages {
		if m.Kind() == Request {
			x.id = m.ID
		}
		if meta, _ := m.Meta(); meta.ProtocolVersion != "" && (c.rev.Version == "" || c.rev.Modern) {
			c.rev = revision(meta.ProtocolVersion) // and not what somebody passes on in a session
		} else if m.Method == "initialize" {
			c.rev, c.session = Revision{}, ""
		}
	}
	x.rev, x.session = c.rev, c.session
	x.ctx, x.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.posts[x] = false
	return x, nil
}

// finish says that all has come.
func (c *httpConn) finish(x *post) {
	x.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.posts, x)
}

// send POSTs the payload, and takes in the response. It returns true if the
// rest comes on a stream, which has a goroutine of its own.
func (c *httpConn) send(x *post) (streams bool, err error) {
	resp, err := c.do(x, http.MethodPost)
	if err != nil {
		return false, err
	}
	defer func() {
		if !streams {
			resp.Body.Close()
		}
	}()
	kind, session := resp.Header.Get("Content-Type"), resp.Header.Get("Mcp-Session-Id")
	switch {
	case resp.StatusCode/100 != 2:
		return false, c.refused(x, x.fault(resp))
	case x.id == ID{}: // any 2xx will do, and whatever else it says
		return false, nil
	case session != "" && x.out.Messages[0].Method == "initialize":
		if len(session) > maxRepeated || strings.ContainsFunc(session, func(c rune) bool { return c < '!' || c > '~' }) {
			// 2025-11-25: it "MUST only contain visible ASCII characters".
			return false, fmt.Errorf("the server's session id is not one: %.100q", session)
		}
		c.mu.Lock()
		c.session, x.session = session, session
		c.mu.Unlock()
	}
	switch {
	case isMedia(kind, "application/json"):
		return false, c.readJSON(x, resp)
	case isMedia(kind, "text/event-stream"):
		err = c.follow(x, resp)
		return err == nil, err
	}
	return false, fmt.Errorf("a request is answered by JSON or events, not %.100q: %w", kind, x.fault(resp))
}

// do sends a request of HTTP: what a post has to say, or the GET that opens or
// continues a stream.
func (c *httpConn) do(x *post, method string) (*http.Response, error) {
	var body io.Reader
	if method == http.MethodPost {
		body = bytes.NewReader(x.out.Append(nil))
	}
	ctx, cancel := context.WithCancel(x.ctx)
	r, err := http.NewRequestWithContext(ctx, method, c.url, body)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header = c.header(x, method)
	resp, err := doHTTP(c.client, r)
	if err != nil {
		cancel()
		return nil, asUnreachable(err)
	}
	resp.Body = bodyOf{resp.Body, cancel}
	return resp, nil
}

// bodyOf is the body of a response whose request ends before it is closed,
// which may otherwise wait for the end of the body.
type bodyOf struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b bodyOf) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// header returns what a request says of itself. 2026-07-28
// basic/transports/streamable-http#standard-request-headers; 2025-11-25
// basic/transports#protocol-version-header: after initialize, "on all
// subsequent requests".
func (c *httpConn) header(x *post, method string) http.Header {
	h := http.Header{"Accept-Encoding": {"identity"}} // what compresses events holds them back
	switch method {
	case http.MethodPost:
		h["Accept"], h["Content-Type"] = []string{"application/json, text/event-stream"}, []string{"application/json"}
	case http.MethodGet:
		h["Accept"] = []string{"text/event-stream"}
	}
	if x.session != "" {
		h["Mcp-Session-Id"] = []string{x.session}
	}
	if x.last != "" {
		h["Last-Event-Id"] = []string{x.last}
	}
	if x.rev.VersionHeader {
		h["Mcp-Protocol-Version"] = []string{x.rev.Version}
	}
	if x.rev.Modern && method == http.MethodPost {
		m := x.out.Messages[0]
		h["Mcp-Method"] = []string{m.Method}
		if source := named[m.Method]; source != "" {
			name := unquote(member(m.Params, source))
			h["Mcp-Name"] = []string{headerValue(name)}
			if m.Method == "tools/call" {
				c.mu.Lock()
				marked := c.marked[name]
				c.mu.Unlock()
				mirror(h, marked, member(m.Params, "arguments"))
			}
		}
	}
	return h
}

// mirror repeats marked arguments in the header; null and missing ones are left
// out. 2026-07-28
// basic/transports/streamable-http#custom-headers-from-tool-parameters.
func mirror(h http.Header, marked []HeaderParam, arguments json.RawMessage) {
	for _, p := range marked {
		value := lookup(arguments, p.Path...)
		if len(value) == 0 {
			continue
		}
		text := string(value)
		switch n, whole := integerIn(text); {
		case value[0] == '"':
			text = headerValue(unquote(value))
		case value[0] == '{' || value[0] == '[' || text == "null":
			continue
		case whole:
			text = strconv.FormatInt(n, 10)
		}
		h[http.CanonicalHeaderKey("Mcp-Param-"+p.Name)] = []string{text}
	}
}

// headerValue encodes what a field cannot hold as it is. 2026-07-28
// basic/transports/streamable-http#value-encoding.
func headerValue(text string) string {
	plain := strings.Trim(text, " \t") == text && !(strings.HasPrefix(text, "=?base64?") && strings.HasSuffix(text, "?="))
	if plain && !strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) {
		return text
	}
	return "=?base64?" + base64.StdEncoding.EncodeToString([]byte(text)) + "?="
}

// fault reads what there is of a response that is an error, for a second at
// most.
func (x *post) fault(resp *http.Response) *HTTPError {
	defer time.AfterFunc(graceAtEnd, func() { resp.Body.Close() }).Stop()
	return httpError(resp)
}

// refused tells what a status means that is not 2xx: if a session was named,
// 404 is its end, unless it is the answer, about a method or what else was
// asked for.
func (c *httpConn) refused(x *post, fault *HTTPError) error {
	switch code := codeOf(fault); {
	case fault.Status != http.StatusNotFound, x.session == "", code == CodeMethodNotFound:
		// "Method not found" is nothing that anybody says of a session.
		return fault
	case (code == CodeInvalidParams || code == CodeResourceNotFound) && fault.id == x.id && x.id != ID{}:
		return fault
	}
	why := fmt.Errorf("%w: %w", ErrSessionEnded, fault)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.session == x.session {
		c.ended = why
		for other, streams := range c.posts {
			// It was accepted, and nobody can tell how far it has come; others
			// have yet to be told.
			if streams {
				other.cancel(why)
			}
		}
	}
	return notSent{why}
}

// readJSON reads an answer that is not a stream.
func (c *httpConn) readJSON(x *post, resp *http.Response) error {
	body, err := readBody(resp.Body, -1, int64(c.max))
	switch {
	case err == ErrTooLarge:
		return err
	case err != nil:
		return fmt.Errorf("%w: %w", ErrInterrupted, err)
	}
	if in := Decode(body); in.Messages[0].Kind() != Invalid {
		if c.deliver(x, in); x.id == (ID{}) {
			return nil
		}
	}
	fault := &HTTPError{Status: resp.StatusCode, Header: resp.Header, Body: bytes.Clone(body[:min(len(body), maxFault)])}
	return fmt.Errorf("the body does not hold the answer: %w", fault)
}

// deliver passes on what has come for a post, unless nobody wants it any more.
func (c *httpConn) deliver(x *post, in Payload) {
	waits := x.id != ID{}
	for _, m := range in.Messages {
		if waits && m.Kind() == Response {
			// An error without an id is about the only request there is.
			m.ID = cmp.Or(m.ID, x.id)
			c.learn(x, m)
		}
	}
	if !c.push(x.ctx.Done(), incoming{payload: in}) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if waits && in.hasResponseTo(x.id) {
		x.id = ID{}
	} else {
		c.cut(in.hasResponseTo, graceAtEnd, errAnsweredFirst)
	}
}

// incoming is what Read returns.
type incoming struct {
	payload Payload
	err     error
}

// push hands something to the reader. It returns false if end is closed first.
func (c *httpConn) push(end <-chan struct{}, in incoming) bool {
	select {
	case c.in <- in:
		return true
	case <-end:
		return false
	}
}

// learn reads what a result says to the transport.
func (c *httpConn) learn(x *post, m *Message) {
	switch method := x.out.Messages[0].Method; {
	case m.Result == nil || m.ID.key() != x.id.key():
	case method == "initialize":
		c.mu.Lock()
		defer c.mu.Unlock()
		c.rev = revision(unquote(member(m.Result, "protocolVersion")))
	case method == "tools/list" && x.rev.Modern:
		c.learnTools(x, m)
	}
}

// learnTools remembers which arguments are marked, and takes tools out that are
// marked wrongly. 2026-07-28 basic/transports/streamable-http#schema-extension:
// clients "MUST exclude the invalid tool from the result of tools/list".
func (c *httpConn) learnTools(x *post, m *Message) {
	tools := member(m.Result, "tools")
	if len(tools) == 0 || tools[0] != '[' {
		return
	}
	var left []int // out, by their place
	place := 0
	for _, tool := range each(tools) {
		name, schema := unquote(member(tool, "name")), member(tool, "inputSchema")
		var marked []HeaderParam
		var err error
		if mayBeMarked(schema) { // most are not, and need not be decoded
			marked, err = ReadHeaderParams(schema)
		}
		c.mark(name, marked)
		if err != nil {
			if left = append(left, place); len(left) <= maxNamed {
				c.push(x.ctx.Done(), incoming{err: &ReadError{Err: fmt.Errorf("%w: %.100q: %w", errToolLeftOut, name, err)}})
			}
		}
		place++
	}
	if len(left) == 0 {
		return
	}
	kept := make([]byte, 1, len(tools))
	kept[0] = '['
	place = 0
	for _, tool := range each(tools) {
		if len(left) > 0 && left[0] == place {
			left = left[1:]
		} else {
			kept = append(append(kept, tool...), ',')
		}
		place++
	}
	var result object
	result.addAll(m.Result, "tools")
	result.add("tools", append(bytes.TrimSuffix(kept, []byte(",")), ']'))
	m.Result = json.RawMessage(result.encode())
}

// mark notes which arguments of a tool are marked; none, if that is not known.
func (c *httpConn) mark(tool string, marked []HeaderParam) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if old := c.marked[tool]; old != nil {
		c.kept -= sizeOf(tool, old)
		delete(c.marked, tool)
	}
	size := sizeOf(tool, marked)
	if len(marked) > 0 && c.kept+size <= maxMarked {
		c.marked[tool] = marked
		c.kept += size
	}
}

// sizeOf returns roughly how many bytes it takes to remember marked arguments.
func sizeOf(tool string, marked []HeaderParam) int {
	const perString = 32
	size := len(tool) + 2*perString
	for _, p := range marked {
		size += len(p.Name) + 2*perString
		for _, name := range p.Path {
			size += len(name) + perString
		}
	}
	return size
}

// mayBeMarked tells whether a mark, or an escape that may spell it, is in a
// schema.
func mayBeMarked(schema json.RawMessage) bool {
	return bytes.Contains(schema, []byte("x-mcp-header")) || bytes.Contains(schema, []byte(`\u`))
}

// ---- Streams of the client ----

// follow reads a response that is a stream, in the background; without one it
// opens the stream of what belongs to no request.
func (c *httpConn) follow(x *post, resp *http.Response) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return c.ended
	}
	c.posts[x] = true
	c.streams.Go(func() { c.run(x, resp) })
	return nil
}

// run reads a stream until all that it brings has come, and continues it when
// it is cut off.
func (c *httpConn) run(x *post, resp *http.Response) {
	defer c.finish(x)
	var err error
	for {
		if resp != nil {
			err = c.events(x, resp)
			if x.done() || x.ctx.Err() != nil {
				break
			}
			x.tries++
		}
		if resp, err = c.reopen(x, err); err != nil {
			break
		}
	}
	err = cmp.Or(context.Cause(x.ctx), err)
	if x.alone() && err != errNoStream {
		err = fmt.Errorf("nothing is heard from the server but answers: %w", err)
	}
	if !x.done() && !errors.Is(err, ErrClosed) {
		c.push(c.over, incoming{err: &ReadError{ID: x.id, Err: err}})
	}
}

// alone tells whether it is the stream of what belongs to no request.
func (x *post) alone() bool { return x.out.Messages == nil }

// done tells whether the answer has come.
func (x *post) done() bool { return !x.alone() && x.id == ID{} }

// events delivers what a stream brings, to its end. Once the answer has come
// that should be near, so that the connection can be used again.
func (c *httpConn) events(x *post, resp *http.Response) error {
	defer resp.Body.Close()
	began := time.Now()
	in := newEventReader(resp.Body, c.max)
	in.id = x.last
	x.fresh = false
	for {
		e, err := in.next()
		if time.Since(began) > lasting {
			x.tries = 0
		}
		if err != nil {
			return err
		}
		fresh := e.ID != x.last
		if (fresh || e.Retry > 0) && !x.alone() { // as often as the server wants
			x.tries = min(x.tries, maxTries-1)
		}
		x.retry = cmp.Or(e.Retry, x.retry)
		if x.last = e.ID; len(e.ID) > maxRepeated || strings.ContainsFunc(e.ID, func(c rune) bool { return c < ' ' || c == 0x7f }) {
			x.last = "" // which cannot be repeated in a header
		}
		if e.Type != "message" || len(e.Data) == 0 { // 2025-11-25: an event that only gives an id
			continue
		}
		message := Decode(e.Data)
		// A message is progress, if it is not, again and again, the event after
		// which the server was asked to go on.
		if (fresh || e.ID == "") && message.Messages[0].Kind() != Invalid {
			x.fresh, x.tries = true, 0
		}
		open := !x.done()
		if c.deliver(x, message); open && x.done() {
			defer time.AfterFunc(drainFor, func() { resp.Body.Close() }).Stop()
		}
	}
}

// reopen continues a stream after a pause, or opens the standalone one, with as
// many tries as are left: by GET with Last-Event-ID (2025-11-25
// basic/transports#resumability-and-redelivery), after the time that retry says
// (#sending-messages-to-the-server).
func (c *httpConn) reopen(x *post, why error) (*http.Response, error) {
	if why == ErrTooLarge || !x.alone() && (x.last == "" || !x.rev.Resume) {
		return nil, lost(why)
	}
	first := x.alone() && x.tries == 0
	for ; x.tries <= maxTries; x.tries++ {
		if x.retry > maxRetry {
			return nil, lost(fmt.Errorf("the server wants it continued only after %v", x.retry))
		}
		if x.tries > 0 && !x.pause() {
			break
		}
		resp, err := c.do(x, http.MethodGet)
		if why = err; err != nil { // the server may be starting again
			continue
		}
		if resp.StatusCode == http.StatusOK && isMedia(resp.Header.Get("Content-Type"), "text/event-stream") {
			return resp, nil
		}
		fault := x.fault(resp)
		resp.Body.Close()
		switch why = fault; {
		case first && fault.Status == http.StatusMethodNotAllowed:
			// it has no such stream, which is fine
			return nil, errNoStream
		case first: // also 404, which some servers give to any GET
			return nil, fault
		case fault.Status < 500 && fault.Status != http.StatusTooManyRequests:
			return nil, lost(c.refused(x, fault))
		}
	}
	return nil, lost(why)
}

// lost tells what has become of a stream that is not continued. What it belongs
// to has been read.
func lost(why error) error {
	if over, ok := why.(notSent); ok {
		return over.error
	}
	if why == nil || why == io.EOF {
		return ErrInterrupted
	}
	return fmt.Errorf("%w: %w", ErrInterrupted, why)
}

// pause waits before a try. After a response that has brought a message it waits
// as long as the server has said: the client "MUST respect the retry field,
// waiting the given number of milliseconds" (2025-11-25
// basic/transports#sending-messages-to-the-server). After one that has brought
// none, and if the server has said nothing, it waits longer each time, and not
// all clients come back at the same moment. It returns false if nobody waits any
// more.
func (x *post) pause() bool {
	least := x.retry
	if x.fresh && x.tries == 1 && least > 0 {
		return sleep(x.ctx, max(least, minPause))
	}
	if least < time.Second { // or a server could have us come back all the time
		least = max(least, min(firstPause<<(x.tries-1), maxPause))
	}
	return sleep(x.ctx, least+mathrand.N(least/8))
}

// sleep waits, unless the context ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// Close ends all streams, and the session. 2025-11-25
// basic/transports#session-management: a client that is done "SHOULD send an
// HTTP DELETE"; it is not waited for long.
func (c *httpConn) Close() error {
	c.closing.Do(func() {
		c.mu.Lock()
		x := &post{session: c.session, rev: c.rev}
		over := c.session == "" || c.ended != nil
		c.ended = ErrClosed
		for other := range c.posts {
			other.cancel(ErrClosed)
		}
		c.mu.Unlock()
		close(c.over)
		if !over {
			var done context.CancelFunc
			x.ctx, done = context.WithTimeout(context.Background(), farewell)
			// A 405 is fine, too: the server does not let us end it.
			if resp, err := c.do(x, http.MethodDelete); err == nil {
				resp.Body.Close()
			}
			done()
		}
		doneWithin(graceAtEnd, &c.streams)
		c.idle()
	})
	return nil
}
