// SPDX-License-Identifier: 0BSD
// sse.go of mcpwire 0.3.0, an implementation of the Model Context Protocol that you copy.

package main

// Server-sent events: their text, the streams of a server, the transport HTTP+SSE of 2024-11-05,
// and the sessions that keep streams for clients that come back.
//
//	> POST /mcp   {"jsonrpc":"2.0","id":2,"method":"tools/call",…}
//	< 200 text/event-stream
//	< id: 1/0                                                      stream 1, event 0: only an id
//	< data:
//	<
//	< id: 1/1
//	< data: {"jsonrpc":"2.0","method":"notifications/progress",…}
//	  (the connection breaks)
//	> GET /mcp    Last-Event-ID: 1/1
//	< 200 text/event-stream
//	< id: 1/2
//	< data: {"jsonrpc":"2.0","id":2,"result":{…}}
//
// http.go is the caller of most of this. What to read first: see "The five files" in
// testdata/README.md of mcpwire.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ---- Events ----

// Event is a unit of an event stream, as it was read (WHATWG HTML, 9.2).
type Event struct {
	Type  string // "": message
	ID    string
	Data  []byte
	Retry time.Duration // how long the client shall wait before it comes back; 0: the client decides

	hasID bool // an empty id is one, too
}

// ReadEvents reads an event stream. An event may have max bytes. One that is cut off by the end
// of the stream does not count.
func ReadEvents(r io.Reader, max int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(nil, max+64)
		lines.Split(splitLines())
		e := Event{}
		for isFirst := true; lines.Scan(); isFirst = false {
			line := lines.Bytes()
			if isFirst {
				line = bytes.TrimPrefix(line, []byte("\ufeff"))
			}
			if len(line) == 0 {
				e.Data = bytes.TrimSuffix(e.Data, []byte("\n"))
				if !yield(e, nil) {
					return
				}
				e = Event{}
				continue
			}
			name, value, _ := bytes.Cut(line, []byte(":")) // a comment begins with the colon, so its name is empty
			value = bytes.TrimPrefix(value, []byte(" "))
			if len(e.Data)+len(value) > max {
				yield(Event{}, bufio.ErrTooLong)
				return
			}
			switch string(name) {
			case "event":
				e.Type = string(value)
			case "id":
				if bytes.IndexByte(value, 0) < 0 {
					e.ID, e.hasID = string(value), true
				}
			case "data":
				e.Data = append(append(e.Data, value...), '\n')
			case "retry":
				if ms, err := strconv.ParseUint(string(value), 10, 31); err == nil {
					e.Retry = time.Duration(ms) * time.Millisecond
				}
			}
		}
		if err := lines.Err(); err != nil {
			yield(Event{}, err)
		}
	}
}

// splitLines returns a function for a Scanner: a line ends with CR, LF, or CR and LF. A line is
// returned when its CR has come, and an LF that comes later belongs to that CR.
func splitLines() bufio.SplitFunc {
	afterCR, searched := false, 0 // searched: bytes that have no end of a line, when there is more to read
	return func(data []byte, atEOF bool) (advance int, line []byte, err error) {
		skip := 0
		if afterCR && len(data) > 0 && data[0] == '\n' {
			skip = 1
		}
		searched = max(searched, skip)
		end := bytes.IndexAny(data[searched:], "\r\n")
		if end < 0 {
			searched = len(data)
			return 0, nil, nil // a last line without its end does not count
		}
		end, searched = end+searched, 0
		afterCR = data[end] == '\r'
		return end + 1, data[skip:end], nil
	}
}

// ---- A stream of the server ----
//
// A ResponseWriter may be used until ServeHTTP returns. So ServeHTTP lends it to a stream, and waits
// until the stream gives it back. Whoever sends something writes it, under the mutex of the stream:
// there is no queue, and a slow client slows its sender down.
//
//	           lend  ┌────────┐  send, answer
//	ServeHTTP ─────► │ stream │ ◄── a handler, or who notifies
//	          ◄───── └────────┘ ◄── a timer: breakSilence
//	        giveBack
//
// It keeps what was sent, for a client that comes back. A stream is in one of five states:
//
//	waiting  a POST waits for its response, of which nothing was written yet
//	open     the response to a POST or a GET is an event stream
//	away     there is no response; what is sent is kept
//	lost     there is no response; what is sent is dropped
//	ended    nothing more will be sent; a GET with Last-Event-ID gets what is kept
//
//	from     when                                                           to
//	waiting  the first message is sent, or a second has passed              open
//	         the answer is sent, as JSON                                    ended
//	         the client has gone                                            lost
//	open     the client has gone, or a newer response takes over            away; without event ids: lost
//	         the answer is sent                                             ended
//	away     a GET with Last-Event-ID comes                                 open
//	         the answer is kept                                             ended
//	lost     the first GET comes for the standalone stream                  open
//	         the answer is dropped                                          ended
//
// The mutex is held during a write: 30 seconds and more if the client does not read. Whoever takes
// the response back (see wait) sets a deadline on the writer first, so that such a write fails; only one
// that begins in the same moment may still take its time. The mutex of a stream and that of the
// Sessions are never held at the same time.

type streamState int

const (
	streamLost streamState = iota // also a standalone stream for which no GET has come yet
	streamWaiting
	streamOpen
	streamAway
	streamEnded
)

const (
	patience   = time.Second      // how long a POST waits for its answer, before it becomes a stream
	stall      = 30 * time.Second // how long one write may take
	slowest    = 64 << 10         // bytes for each of which a write gets one second more
	keepEnded  = 5 * time.Minute  // how long a stream is kept after its end
	maxEnded   = 10_000           // streams that have ended, and are kept
	maxAllKept = 40 << 20         // bytes that all streams keep, before those that have ended go
	leastKept  = 8 << 10          // bytes that the stream of a call keeps, whatever the others keep
)

var (
	errNoStream = errors.New("the client cannot be reached on this request")
	errIdle     = errors.New("the session was idle")
)

// A stream carries what belongs to a call, or to no call: then a GET reads it.
type stream struct {
	id         string
	session    string    // its id
	resumable  bool      // its events have ids, such as 4/1, 4/2 in the stream 4, and are kept
	table      *Sessions // counts what is kept; nil: it belongs to no session
	isOld      bool      // of HTTP+SSE: it carries all answers of its session, and its events have a type
	polling    bool      // it begins with an event that has only an id, and may be broken off
	jsonOnly   bool      // the client takes no stream
	eventsOnly bool      // the client takes only a stream
	keepAlive  time.Duration
	// Those who must not wait for the mutex read these:
	last    atomic.Int64 // the number of the last event
	dropped atomic.Int64 // the number of the newest event that is not kept any more, and was not progress

	// Guarded by Sessions.mu:
	endedAt    time.Time // zero: the call runs
	endLending func()    // tells the ServeHTTP that has lent its response to take it back

	mu    sync.Mutex // held during a write; guards the fields below
	state streamState
	w     http.ResponseWriter // lent; nil: nobody reads
	back  chan struct{}       // closed when w goes back
	timer *time.Timer         // runs breakSilence
	kept  []keptEvent         // the newest last
	size  int                 // bytes of kept
}

// keptEvent is an event as it travels.
type keptEvent struct {
	text       []byte
	isProgress bool // nobody needs it when there is something newer
}

// lend lends the response of a POST. The stream writes to it until back is closed.
func (st *stream) lend(w http.ResponseWriter) (back <-chan struct{}) {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.state = streamWaiting
	return st.setWriter(w, min(st.keepAlive, patience))
}

// setWriter makes a response the one that the stream writes to. The caller holds the mutex, here and
// in all methods below that do not lock it.
func (st *stream) setWriter(w http.ResponseWriter, silence time.Duration) <-chan struct{} {
	st.w, st.back = w, make(chan struct{})
	st.timer = time.AfterFunc(silence, st.breakSilence)
	return st.back
}

// wait waits until the response goes back. When ctx ends, because the client has gone or a newer
// one has come, it takes the response back.
func (st *stream) wait(ctx context.Context, w http.ResponseWriter, back <-chan struct{}) {
	select {
	case <-back:
		return
	case <-ctx.Done():
	}
	controller := http.NewResponseController(w)
	_ = controller.SetWriteDeadline(time.Now()) // a write that is stalled holds the mutex
	defer controller.SetWriteDeadline(time.Time{})
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.back == back {
		st.loseReader()
	}
}

// loseReader says that nobody reads any more.
func (st *stream) loseReader() {
	st.giveBack()
	switch {
	case st.state == streamOpen && st.resumable:
		st.state = streamAway
	case st.state == streamOpen, st.state == streamWaiting:
		st.state = streamLost
	}
}

// giveBack gives the response back.
func (st *stream) giveBack() {
	if st.w == nil {
		return
	}
	st.timer.Stop()
	close(st.back)
	st.w, st.back = nil, nil
}

// write writes to whoever reads.
func (st *stream) write(text []byte) {
	if st.w == nil {
		return
	}
	controller := http.NewResponseController(st.w)
	_ = controller.SetWriteDeadline(writeDeadline(len(text)))
	_, err := st.w.Write(text)
	if flushErr := controller.Flush(); !errors.Is(flushErr, http.ErrNotSupported) { // without it, all goes at the end
		err = cmp.Or(err, flushErr)
	}
	if err != nil {
		st.loseReader()
		return
	}
	_ = controller.SetWriteDeadline(time.Time{}) // in HTTP/2 it would end the stream later
	st.timer.Reset(st.keepAlive)
}

func writeDeadline(size int) time.Time {
	return time.Now().Add(stall + time.Duration(size/slowest)*time.Second)
}

// open makes the response of a POST an event stream, unless it is one.
func (st *stream) open() {
	if st.state == streamWaiting {
		st.state = streamOpen
		st.writeHead(true)
	}
}

// writeHead writes the head of an event stream, and perhaps an event that has only an id, so that
// the client can come back at any time (2025-11-25 basic/transports#sending-messages-to-the-server).
func (st *stream) writeHead(isPrimed bool) {
	header := st.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // nginx
	st.w.WriteHeader(http.StatusOK)
	if isPrimed && st.polling {
		st.write(fmt.Appendf(nil, "id: %s\ndata:\n\n", st.eventID(int(st.last.Load()))))
	}
}

func (st *stream) eventID(n int) string { return st.id + "/" + strconv.Itoa(n) }

// breakSilence writes something: proxies cut a connection on which nothing is sent.
func (st *stream) breakSilence() {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.w == nil || st.jsonOnly {
		return
	}
	wasWaiting := st.state == streamWaiting
	st.open()
	if !wasWaiting || !st.polling {
		st.write([]byte(": keep-alive\n\n"))
	}
}

// send sends a message that is no answer. If nobody reads, and nobody can come back, a request
// fails, and a notification is dropped.
func (st *stream) send(_ context.Context, m *Message) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	isUnreachable := st.jsonOnly || st.state == streamLost
	if st.state == streamEnded || isUnreachable && m.Kind() == KindRequest {
		return errNoStream
	}
	if !isUnreachable {
		st.open()
		st.add(payload(m))
	}
	return nil
}

// answer ends the stream with the answer: as JSON, if nothing was sent before. An empty payload is
// no answer: the request was cancelled.
func (st *stream) answer(p Payload, status int) {
	st.mu.Lock()
	defer st.mu.Unlock()
	isEmpty := len(p.Messages) == 0
	switch {
	case st.state == streamEnded:
		return
	case st.state == streamLost:
	case st.state == streamWaiting && isEmpty && st.jsonOnly:
		st.w.WriteHeader(http.StatusAccepted)
	case st.state == streamWaiting && !isEmpty && !st.eventsOnly:
		writeJSON(st.w, status, p)
	default:
		st.open()
		if !isEmpty {
			st.add(p)
		}
	}
	if !st.isOld {
		st.state = streamEnded
		st.giveBack()
	}
}

// add writes an event, and keeps it.
func (st *stream) add(p Payload) {
	number := int(st.last.Add(1))
	text := make([]byte, 0, p.held/2+200) // a message is one line, and may be large: it is copied once
	if st.isOld {
		text = append(text, "event: message\n"...)
	}
	if st.resumable {
		text = fmt.Appendf(text, "id: %s\n", st.eventID(number))
	}
	text = append(p.Append(append(text, "data: "...)), "\n\n"...)
	if st.resumable {
		st.keep(keptEvent{text, p.Messages[0].Method == "notifications/progress"})
	}
	st.write(text)
}

// keep keeps an event, and drops the oldest ones if there are too many bytes.
func (st *stream) keep(e keptEvent) {
	st.kept = append(st.kept, e)
	st.size += len(e.text)
	all := st.table.kept.Add(int64(len(e.text)))
	for len(st.kept) > 0 && (st.size > st.table.Keep || all > maxAllKept && (st.size > leastKept || st.id == "0")) {
		oldest := len(st.kept[0].text)
		if !st.kept[0].isProgress {
			st.dropped.Store(st.last.Load() - int64(len(st.kept)) + 1)
		}
		st.kept[0] = keptEvent{} // the array stays, and would hold the text
		st.kept = st.kept[1:]
		st.size -= oldest
		all = st.table.kept.Add(int64(-oldest))
	}
}

// end forgets what a stream has kept. Whoever reads it is told that it has ended.
func (st *stream) end() {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.state = streamEnded
	st.giveBack()
	st.table.kept.Add(int64(-st.size))
	st.kept, st.size = nil, 0
	st.dropped.Store(st.last.Load())
}

// Disconnect lets go of the connection, where the transport and the revision allow that. The
// client comes back after retry, and the request goes on meanwhile
// (2025-11-25 basic/transports#sending-messages-to-the-server).
func (x *Exchange) Disconnect(retry time.Duration) {
	st, ok := x.via.(*stream)
	if !ok {
		return
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.w != nil && st.polling && !st.jsonOnly {
		st.open()
		st.write(fmt.Appendf(nil, "retry: %d\n\n", retry.Milliseconds()))
		st.loseReader()
	}
}

// resume lends the response of a GET, in place of an older one. It writes a text, and what is kept
// after event n; a negative n stands for what is sent from now on. It returns false if the
// stream has not kept all that follows the event. Progress may be missing.
func (st *stream) resume(w http.ResponseWriter, text []byte, n int) (back <-chan struct{}, ok bool) {
	st.mu.Lock()
	defer st.mu.Unlock()
	isNew, last := n < 0, int(st.last.Load())
	if isNew {
		n = last
	}
	if int64(n) < st.dropped.Load() {
		return nil, false
	}
	st.loseReader()
	if st.state != streamEnded {
		st.state = streamOpen
	}
	back = st.setWriter(w, st.keepAlive)
	st.writeHead(isNew)
	missed := min(last-n, len(st.kept))
	for _, e := range st.kept[len(st.kept)-missed:] {
		text = append(text, e.text...)
	}
	st.write(text)
	if st.state == streamEnded {
		st.giveBack()
	}
	return back, true
}

// ---- HTTP+SSE: the transport of 2024-11-05 ----
//
//	> GET /sse
//	< event: endpoint
//	< data: /sse?session=…
//	> POST /sse?session=…   {"jsonrpc":"2.0","id":1,"method":"initialize",…}     202
//	< event: message
//	< data: {"jsonrpc":"2.0","id":1,"result":{…}}

// SSEHandler serves HTTP+SSE: a GET opens a session and carries all that the server sends; each
// message of the client is a POST. The session ends with its GET. Set the fields before use.
type SSEHandler struct {
	Handler     Handler
	Sessions    Sessions // of which Keep and IdleTimeout do not count
	MaxRequests int      // that run at once; 0: 3,072
	Guard
	limits
}

// ServeHTTP serves a GET, or a POST.
func (h *SSEHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	principal, ok := h.admit(w, r)
	switch {
	case !ok:
	case r.Method == http.MethodGet:
		h.get(w, r, principal)
	case r.Method == http.MethodPost:
		h.post(w, r, principal)
	default:
		refuseMethod(w, "GET, POST")
	}
}

func (h *SSEHandler) get(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.Sessions.open(h.Handler, &h.Guard, &h.held, principal)
	if s == nil {
		refuse(w, http.StatusServiceUnavailable, "Too many sessions")
		return
	}
	s.Value.Store(agreement{legacyOnly: true})
	st := s.standalone
	st.isOld = true
	defer h.Sessions.remove(s, errors.New("the client has hung up"))
	query := r.URL.Query() // may hold a key of the client
	query.Set("session", s.id)
	path, _, _ := strings.Cut(r.RequestURI, "?") // as the client has sent it, also behind http.StripPrefix
	endpoint := fmt.Appendf(nil, "event: endpoint\ndata: %s?%s\n\n", path, query.Encode())
	back, _ := st.resume(w, endpoint, -1)
	st.wait(r.Context(), w, back)
}

func (h *SSEHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	s := h.Sessions.startUse(r.URL.Query().Get("session"), principal)
	if s == nil {
		refuse(w, http.StatusNotFound, "Session not found")
		return
	}
	defer h.Sessions.endUse(s)
	in, release, ok := h.read(w, r, &h.Guard, h.MaxRequests)
	if !ok {
		return
	}
	st := s.standalone
	base := Exchange{Peer: s.Peer, Principal: principal, Header: r.Header, Ending: s.reading.Done()}
	base.via, base.canAsk = st, true
	work := s.register(s.ctx, in, base)
	serve := func() {
		defer release()
		work.answer(st, false)
	}
	if staysInOrder(in) {
		serve()
	} else {
		go serve() // ends with the handlers; the session cancels them
	}
	w.WriteHeader(http.StatusAccepted)
}

// Close ends all sessions.
func (h *SSEHandler) Close() { h.Sessions.Close() }

// SSEDialer reaches a server over HTTP+SSE.
type SSEDialer struct {
	URL        string
	Header     http.Header  // sent with every request
	Client     *http.Client // nil: http.DefaultClient
	MaxMessage int          // bytes; 0: 16 MiB
}

// Dial opens the stream, and waits for the address that messages go to.
func (d SSEDialer) Dial(ctx context.Context) (Conn, error) {
	c := newHTTPConn(d.Client, d.Header, d.MaxMessage)
	c.isOld, c.url = true, d.URL
	stop := context.AfterFunc(ctx, func() { c.cancel(context.Cause(ctx)) })
	defer stop()
	response, err := c.get(c.ctx, "")
	if err != nil {
		return nil, err
	}
	endpoint := make(chan string, 1)
	go c.readOldStream(response, endpoint) // ends with the stream, which Close ends
	select {
	case address := <-endpoint:
		base := response.Request.URL
		u, err := base.Parse(address)
		if err != nil || u.Scheme != base.Scheme || u.Host != base.Host {
			c.cancel(ErrClosed)
			return nil, fmt.Errorf("the server names an endpoint of another origin: %.200q", address)
		}
		u.User = base.User
		c.url = u.String()
		return c, nil
	case <-c.ctx.Done():
		return nil, fmt.Errorf("the stream names no endpoint: %w", context.Cause(c.ctx))
	}
}

// readOldStream hands on what comes. The first event must name the endpoint. The conversation ends
// with the stream.
func (c *httpConn) readOldStream(response *http.Response, endpoint chan<- string) {
	defer response.Body.Close()
	err := io.ErrUnexpectedEOF
	isFirst := true
	for e, failed := range ReadEvents(response.Body, c.max) {
		switch {
		case failed != nil:
			err = failed
		case isFirst && e.Type == "endpoint":
			endpoint <- string(e.Data)
			isFirst = false
		case isFirst && len(e.Data) > 0:
			c.cancel(fmt.Errorf("the first event is %.100q", e.Type))
		case len(e.Data) > 0 && (e.Type == "" || e.Type == "message"):
			if _, err := c.accept(c.ctx, Decode(e.Data), response.Header, nil); err != nil {
				return
			}
		}
	}
	c.cancel(fmt.Errorf("the stream has ended: %w", err))
}

// ---- Sessions ----

// session is what a server remembers about a legacy client over HTTP.
type session struct {
	*Peer
	id         string
	owner      string  // the principal who has opened it; nobody else may use it
	standalone *stream // what belongs to no request

	// Guarded by Sessions.mu:
	streams    map[string]*stream
	nextStream int         // its id; that of the standalone stream is 0
	busy       int         // requests of HTTP that are open; a call may outlive its own
	idle       *time.Timer // runs remove
}

// Sessions are the sessions of a StreamableHandler. The zero value is ready to use. Set the fields
// before use.
type Sessions struct {
	Keep        int           // bytes that each stream keeps for Last-Event-ID; 0: streams cannot be resumed
	IdleTimeout time.Duration // how long a session lives without an open request or stream; 0: 30 minutes
	Max         int           // 0: 10,000
	Prefix      string        // of all ids: a proxy can route by it

	kept atomic.Int64 // bytes, of all streams

	mu       sync.Mutex // guards the fields below, and some of each session and stream
	byID     map[string]*session
	ended    []*stream // in this order
	isClosed bool
}

// open opens a session for a request of HTTP; nil: there is no room for it.
func (t *Sessions) open(h Handler, g *Guard, held *atomic.Int64, owner string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.isClosed || len(t.byID) >= cmp.Or(t.Max, 10000) {
		return nil
	}
	s := &session{Peer: newPeer(context.Background(), h, g.Log), id: t.Prefix + rand.Text(), owner: owner}
	s.streams, s.standalone = map[string]*stream{}, &stream{table: t, keepAlive: g.silence()}
	s.via, s.held = s.standalone, held
	put(&t.byID, s.id, s)
	s.busy = 1 // that request
	s.idle = time.AfterFunc(t.idleTimeout(), func() { t.remove(s, errIdle) })
	return s
}

// startUse returns a session of a principal for one request of HTTP, which calls endUse; nil: there
// is none.
func (t *Sessions) startUse(id, principal string) *session {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.byID[id]
	if s == nil || s.owner != principal {
		return nil
	}
	s.busy++
	return s
}

// endUse says that a request of HTTP has ended. Without another one, the session is idle from now on.
func (t *Sessions) endUse(s *session) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s.busy--
	timeout := t.idleTimeout()
	if s.nextStream == 0 { // initialize has just ended: a session that is never used has a minute
		timeout = min(timeout, time.Minute)
	}
	if t.byID[s.id] == s { // a DELETE has just removed it
		s.idle.Reset(timeout)
	}
}

// addStream makes a stream one of the session. The first one is the standalone stream, with the id 0.
// If the session has just ended, so does the call of the stream: see endCall.
func (t *Sessions) addStream(s *session, st *stream) {
	t.mu.Lock()
	defer t.mu.Unlock()
	rev := agreementOf(s.Peer).revision
	st.id, st.session, st.resumable = strconv.Itoa(s.nextStream), s.id, t.Keep > 0 && rev.Resume
	st.polling = st.resumable && rev.Polling
	s.streams[st.id] = st
	s.nextStream++
}

// findStream returns the stream of an event id, and the number of the event; nil: there is none, or
// what follows it is not kept.
func (t *Sessions) findStream(s *session, eventID string) (st *stream, n int) {
	id, number, _ := strings.Cut(eventID, "/")
	after, err := strconv.ParseUint(number, 10, 31)
	t.mu.Lock()
	defer t.mu.Unlock()
	st = s.streams[id]
	if err != nil || st == nil || !st.resumable || int64(after) > st.last.Load() || int64(after) < st.dropped.Load() {
		return nil, 0
	}
	return st, int(after)
}

// takeOver returns the context of a response that will be lent to a stream. It ends that of the
// response before: its ServeHTTP takes it back, even while a write to it is stalled.
func (t *Sessions) takeOver(ctx context.Context, st *stream) context.Context {
	t.mu.Lock()
	defer t.mu.Unlock()
	if st.endLending != nil {
		st.endLending()
	}
	ctx, st.endLending = context.WithCancel(ctx)
	return ctx
}

// endCall says that the call of a stream has ended. Its client may still come back for it.
func (t *Sessions) endCall(s *session, st *stream) {
	t.mu.Lock()
	old := t.takeExpired(2)
	switch {
	case t.byID[s.id] != s:
		old = append(old, st)
	case len(st.kept) > 0: // nobody else changes it after the answer
		st.endedAt, st.endLending = time.Now(), nil
		t.ended = append(t.ended, st)
	default:
		delete(s.streams, st.id)
	}
	t.mu.Unlock()
	for _, st := range old {
		st.end()
	}
}

// takeExpired returns the streams to be forgotten, at most n: those that ended long ago, and more of
// them when all streams keep too much. It is called when a call ends. The caller holds t.mu.
func (t *Sessions) takeExpired(n int) (old []*stream) {
	isFull := t.kept.Load() > maxAllKept || len(t.ended) > maxEnded
	for len(t.ended) > 0 && len(old) < n && (isFull || time.Since(t.ended[0].endedAt) > keepEnded) {
		st := t.ended[0]
		if s := t.byID[st.session]; s != nil {
			delete(s.streams, st.id)
		}
		old = append(old, st)
		t.ended[0] = nil
		t.ended = t.ended[1:]
	}
	return old
}

// remove ends a session, its calls and its streams. Calls that run are answered first: their handlers
// are cancelled, and their streams end with them.
func (t *Sessions) remove(s *session, why error) {
	t.mu.Lock()
	if why == errIdle && s.busy > 0 { // endUse starts the timer anew
		t.mu.Unlock()
		return
	}
	delete(t.byID, s.id)
	s.idle.Stop()
	streams := []*stream{s.standalone}
	for _, st := range s.streams {
		if !st.endedAt.IsZero() {
			streams = append(streams, st)
		}
	}
	clear(s.streams)
	t.mu.Unlock()
	s.end(why)
	for _, st := range streams {
		go st.end() // may wait for a write to a slow client
	}
}

// Close ends all sessions. There will be no new ones.
func (t *Sessions) Close() {
	t.mu.Lock()
	t.isClosed = true
	all := slices.Collect(maps.Values(t.byID))
	t.mu.Unlock()
	for _, s := range all {
		t.remove(s, errors.New("the server ends"))
	}
}

func (t *Sessions) idleTimeout() time.Duration { return cmp.Or(t.IdleTimeout, 30*time.Minute) }
