// SPDX-License-Identifier: 0BSD
// sse.go of mcpwire 0.3.0, which is made to be copied.

package main

// Server-sent events, the streams in which a server sends them, and what all HTTP shares. The
// oldest transport of MCP, HTTP+SSE, is here, too.
//
// An event is a few lines of text, and an empty line ends it. This is a stream with two of
// them:
//
//	< 200
//	< Content-Type: text/event-stream
//	<
//	< id: 5d1f03aa.1/1
//	< data: {"jsonrpc":"2.0","method":"notifications/progress","params":{…}}
//	<
//	< id: 5d1f03aa.1/2
//	< data: {"jsonrpc":"2.0","id":1,"result":{…}}
//	<
//
// How a message of the server becomes an event, and reaches the client:
//
//	goroutine of the handlers                      goroutine of ServeHTTP
//	Handler ──► Stream.push ──► the buffer ──────► follower
//	            waits while 8 KiB are unwritten    take, write, take, …
//	                            │
//	                            └ the newest are kept, for a GET with Last-Event-ID
//
// On a first reading, read to the banner "Sessions: what a legacy server remembers about its
// HTTP clients": 618 lines. They are about events, and about the Stream of a server. The small
// server in testdata/second has a stream that does the same in a simpler way, without limits. To
// see it work, read lessons 06, 09 and 29 of the course: testdata/README.md.
//
// The words of this file and of http.go:
//
//	request    as in jsonrpc.go; one of HTTP is called HTTP request, POST, GET or DELETE
//	response   the HTTP response, and not the JSON-RPC response that is in it
//	handler    as in jsonrpc.go: what serves a request; not StreamableHandler and SSEHandler, which are
//	           http.Handlers
//	answer     the JSON-RPC response to one request, also in a batch
//	stream     a sequence of events with numbers; one response carries it, and after a cut the next one
//	buffer     the events that a stream has: those that are not written, and the newest of the others
//	follower   a response that writes the events of a stream, and its position in them
//	kept       a client that comes back can still get it
//	in use     counted against Guard.MaxHeld. A body is; an event is, until it is kept or dropped
//	place      the right to run one request
//
// Source: 2024-11-05 basic/transports#http-with-sse; 2025-11-25
// basic/transports#resumability-and-redelivery and #security-warning; WHATWG HTML
// server-sent-events#parsing-an-event-stream and #event-stream-interpretation. Copy this file
// with jsonrpc.go and session.go for the oldest transport, and with http.go for Streamable
// HTTP.

import (
	"bufio"
	"bytes"
	"cmp"
	"container/list"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"math"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ==== The wire ====

// ---- Events ----

// Event is one server-sent event.
type Event struct {
	// Type is the type of the event. An event that is read without one has the type "message".
	// To write an event of that type, leave Type empty.
	Type string
	// ID is the id of the event. An event that is read without one has the id of the event
	// before it.
	ID string
	// Data is what the event carries. If it is nil, the event has no data field, which is not
	// the same as an empty one. A browser drops such an event. This package reads it, because
	// its ID and its Retry matter.
	Data []byte
	// Retry is how long a client is to wait before it connects again, in milliseconds on the
	// wire; 0: the event does not say.
	Retry time.Duration
}

// Append appends the event to b, as it is written on the wire. Data may hold any bytes: each of
// its lines becomes a data field, so a CR and a CRLF are read back as an LF. A Type or an ID
// that does not fit on one line is left out.
func (e Event) Append(b []byte) []byte {
	if e.Type != "" && !strings.ContainsAny(e.Type, "\r\n") {
		b = appendField(b, "event", e.Type)
	}
	if e.ID != "" && !strings.ContainsAny(e.ID, "\r\n\x00") {
		b = appendField(b, "id", e.ID)
	}
	if e.Retry > 0 {
		b = appendField(b, "retry", strconv.FormatInt(e.Retry.Milliseconds(), 10))
	}
	if e.Data != nil {
		data := e.Data
		if bytes.IndexByte(data, '\r') >= 0 {
			data = bytes.ReplaceAll(data, []byte("\r\n"), []byte("\n"))
			data = bytes.ReplaceAll(data, []byte("\r"), []byte("\n"))
		}
		for line := range bytes.SplitSeq(data, []byte("\n")) {
			b = appendField(b, "data", line)
		}
	}
	return append(b, '\n')
}

// ==== The server ====

// ---- The events of a stream ----
//
// Each stream numbers its events; the first one is 1. It has the newest of them in a buffer.
// Three numbers say how far it has got:
//
//	 kept, for a client that comes back   │  not written yet
//	4     5     6     7     8     9       │  10     11     12   ◄── push
//	                              │          │             │
//	                              │          │             buffer.last
//	                              │          follower.taken: 10 is being written; 11 and 12 came later
//	                              buffer.written

// sentEvent is an event in a stream. It holds one message.
type sentEvent struct {
	text     []byte          // its data
	result   json.RawMessage // a large result, which is not copied: if it is set, the data is text + result + }
	method   string          // of the message; "": it is an answer
	question ID              // of a request of the server; zero: it is none
	fault    *Error          // of an answer; nil: it has a result
}

// eventBuffer is what a stream has of its events: those that no response has written, and the
// newest of the others, which are kept. The mutex of the Stream guards it.
type eventBuffer struct {
	events      []sentEvent // always the newest ones, without a gap
	last        int64       // number of the last event
	written     int64       // all events up to this number are written; a response that begins before them sets it back
	lostThrough int64       // the highest number that was dropped and was not progress
	keep        int         // how many bytes may be kept; 0: none, and no client can come back
	eventBytes              // counts their bytes: see "What a stream keeps"
}

// first returns the number of the oldest event that the buffer has.
func (b *eventBuffer) first() int64 { return b.last - int64(len(b.events)) + 1 }

// add gives an event the next number.
func (b *eventBuffer) add(e sentEvent) {
	b.events = append(b.events, e)
	b.last++
	b.inUse += e.size() // until settle keeps it or drops it
}

// after appends to batch the events after number n, as many as one write may have. last is the
// number of the last of them; n, if there is none.
func (b *eventBuffer) after(n int64, batch []sentEvent) (_ []sentEvent, last int64) {
	last = n
	size := 0
	for next := max(n+1, b.first()); next <= b.last; next++ {
		e := b.events[next-b.first()]
		size += e.size()
		if size > maxWrite && len(batch) > 0 {
			break
		}
		batch = append(batch, e)
		last = next
	}
	return batch, last
}

// hasAllAfter reports whether the buffer has all events after number n. Progress that was
// dropped does not count, because the answer makes it unnecessary.
func (b *eventBuffer) hasAllAfter(n int64) bool { return b.lostThrough <= n && n <= b.last }

// ---- Streams ----

// Stream is a sequence of events, such as those of the response to one POST. A follower is a
// response that writes them. The life of an event:
//
//	push         A sender adds the event to the buffer. It gets the next number.
//	nextEvents   The follower takes the event. follower.taken becomes its number.
//	write        The follower writes the event. Its next call of nextEvents confirms that.
//	settle       The buffer keeps what is written, if the client may come back, or drops it. While no
//	             response follows, that also holds for what is not written.
//	detach       The response is over. If the client may come back, what is not written is kept, too.
//	attach       The next response follows the stream. It begins after an event that the client names.
//
// When the response has begun, a sender waits if more than 8 KiB would be unwritten. So a client
// that reads slowly slows down its own stream alone. If the client has gone, no sender waits:
// the oldest events are dropped.
//
// For example, in the picture above the connection breaks while 10 is being written. The client
// has read 9:
//
//  1. The write fails, and the follower ends. detach leaves 10, 11 and 12 in the buffer.
//  2. The client sends a GET with Last-Event-ID: 5d1f03aa.1/9. The id of an event is that of its
//     stream, a slash, and its number.
//  3. attach finds that nothing after 9 is lost. A client that has read only 2 would get an error,
//     because 3 is lost, unless 3 was progress.
//  4. The new follower begins with taken 9. It writes 10, 11 and 12.
//
// So two facts decide what becomes of a message. If there is a follower, it is written. If
// there is none, but the client may come back, it is kept: see isResumable. Otherwise it is
// refused, because nobody would read it.
//
// The stream of a POST has its follower from the beginning, although the response begins later.
// If the stream has ended by then, and holds only the answer, the answer is written as JSON.
// When a stream has ended, no event is added any more, but those that are there can still be
// read.
type Stream struct {
	id           string        // that of a POST gets one by Session.addStream, when its response begins; "": it has none
	hasIDs       bool          // its events have ids, because they are kept; it is set with id
	eventType    string        // of its events; "": message, which need not be written
	beginsWithID bool          // 2025-11-25: a response begins with an id, and may end before its stream
	keepAlive    time.Duration // how long a response may be silent before a comment is written; 0: for ever
	session      *Session      // nil: the stream belongs to none
	element      *list.Element // in Sessions.endedStreams, whose mutex guards it; nil: it is not there

	mu       sync.Mutex // guards the fields below
	buffer   eventBuffer
	follower *follower     // nil: there is none
	endTime  time.Time     // zero: it has not ended
	changed  chan struct{} // closed by signal; nil: nobody waits
	asked    []ID          // ids of the questions that were sent here; some may be answered already
}

// ---- Sending on a stream ----

var (
	errNobody  = fmt.Errorf("no client reads the stream: %w", ErrClosed)
	errNotKept = errors.New("no such event is kept")
)

// send sends a message that is no answer. If too much is in use, progress is dropped: the
// answer makes it unnecessary.
func (s *Stream) send(ctx context.Context, m *Message) error {
	e := newSentEvent(m)
	err := s.push(ctx, e)
	if e.isProgress() && errors.Is(err, errNoMemory) {
		return nil
	}
	return err
}

// sendAnswer sends an answer. If too much is in use, an error takes its place. Any other error
// means that no client can read the answer, and there is nobody to tell that.
func (s *Stream) sendAnswer(m *Message) {
	if errors.Is(s.push(context.Background(), newSentEvent(m)), errNoMemory) {
		_ = s.push(context.Background(), newSentEvent(NewResponse(m.ID, nil, errNoMemory)))
	}
}

// push adds an event. While there is no room in the buffer, it waits, and then tries again. For
// the bound of all streams the bytes of the event count from now on, also while it waits. If
// these are too many, push returns errNoMemory.
func (s *Stream) push(ctx context.Context, e sentEvent) error {
	if !s.buffer.reserve(e) {
		return errNoMemory
	}
	changed, err := s.tryPush(e)
	for changed != nil {
		select {
		case <-changed:
			changed, err = s.tryPush(e)
		case <-ctx.Done():
			changed, err = nil, ctx.Err()
		}
	}
	if err != nil {
		s.buffer.release(e)
	}
	return err
}

// tryPush adds an event. If the sender has to wait, tryPush adds nothing, and returns a channel
// that is closed when the sender is to try again.
func (s *Stream) tryPush(e sentEvent) (changed <-chan struct{}, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isUnread() || !s.endTime.IsZero() {
		return nil, errNobody
	}
	if s.mustWait(e) { // more than 8 KiB would be unwritten; one event alone may have more
		return s.whenChanged(), nil
	}
	s.noteQuestion(e.question) // if nobody can read the stream any more, the question fails
	s.buffer.add(e)
	if s.follower == nil { // nobody writes the event now, so it is kept for the client that comes back
		s.settle()
	}
	s.signal()
	return nil, nil
}

// settle keeps or drops the events that are written. If there is no follower, nobody is going
// to write the others, so it does that with all. The caller holds mu.
func (s *Stream) settle() {
	done := s.buffer.written
	if s.follower == nil {
		done = s.buffer.last
	}
	s.buffer.settleThrough(done)
}

// isUnread reports whether nobody reads what is sent: no response follows the stream, and no
// client can come back for it. The caller holds mu.
func (s *Stream) isUnread() bool { return s.follower == nil && !s.isResumable() }

// end ends the stream: nothing more can be sent. The follower still writes what was sent. end
// may be called more than once.
func (s *Stream) end() {
	s.mu.Lock()
	if s.endTime.IsZero() {
		s.endTime = time.Now()
	}
	isInSession := s.session != nil && s.id != ""
	s.signal()
	s.mu.Unlock()
	if isInSession {
		s.session.table.enlist(s) // in a queue, so that the oldest can be forgotten
	}
}

// ---- Following a stream ----

// follower is a response that writes the events of a stream, and its position in them. Its
// goroutine is that of ServeHTTP. The mutex of the stream guards hasBegun, farewell and taken;
// the other fields are for this goroutine alone.
type follower struct {
	w        http.ResponseWriter // of the response
	text     []byte              // is written before the events: how the response begins or ends, or a comment
	batch    []sentEvent         // the events that it has taken and is writing; the last one has the number taken
	taken    int64               // number of the last event that it has taken
	farewell []byte              // the last event, after which the response ends, but not the stream: see lesson 26; nil: none
	hasBegun bool                // before that, the response may still become JSON
}

// serveFollower is the life of a follower: it takes events, writes them, and takes again. If
// there are none, it waits. It ends with the stream, after a farewell, when another follower
// takes its place, when a write fails, or when the client has gone. To a client that has gone
// it writes nothing more: the modern era forbids that.
func (s *Stream) serveFollower(f *follower, r *http.Request) {
	defer s.detach(f)
	f.begin()
	defer extendDeadline(f.w, 0) // half a minute for the end of the response, which net/http writes after this
	for {
		changed, over := s.nextEvents(f)
		if r.Context().Err() != nil { // the client has gone, or a deadline of middleware has passed
			return
		}
		if err := s.write(f); err != nil || over {
			return
		}
		if changed != nil {
			f.text = s.await(changed, r) // after a long silence, it returns a comment to write; otherwise nothing
		}
	}
}

// nextEvents gives a follower what it writes next. By calling it, the follower says that it has
// written its last batch. There are three cases:
//
//   - There are events. They are in f.batch.
//   - There are none yet. changed is closed when the follower is to call again.
//   - The follower ends: with the stream, after a farewell, or because another one has taken its place.
//     over is true, and it still writes f.text.
func (s *Stream) nextEvents(f *follower) (changed <-chan struct{}, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(f.batch) // it is written, and its memory is free
	f.batch = f.batch[:0]
	if s.follower != f { // another one has taken its place
		return nil, true
	}
	if s.buffer.written < f.taken {
		s.buffer.written = f.taken
		s.settle() // keeps what is written, or drops it
		s.signal() // a sender may wait
	}
	f.batch, f.taken = s.buffer.after(f.taken, f.batch)
	switch {
	case len(f.batch) > 0:
		return nil, false
	case f.farewell != nil || !s.endTime.IsZero():
		f.text = append(f.text, f.farewell...)
		return nil, true
	}
	return s.whenChanged(), false
}

// begin begins the response of a follower. It writes the status at once, so that middleware can
// log it. Nothing between server and client may hold events back: 2026-07-28
// basic/transports/streamable-http#receiving-messages asks for X-Accel-Buffering.
func (f *follower) begin() {
	header := f.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no")
	f.w.WriteHeader(http.StatusOK)
	// Otherwise the ReadTimeout of the server would end the request, as if the client had gone.
	_ = http.NewResponseController(f.w).SetReadDeadline(time.Time{})
}

// write writes the text and the events of a follower, if there is anything. A client that does
// not read them in time loses its connection: see limitWrite.
func (s *Stream) write(f *follower) error {
	text := f.text
	f.text = nil
	if len(text)+len(f.batch) == 0 {
		return nil
	}
	s.limitWrite(text, f)                  // sets the deadline
	rc := http.NewResponseController(f.w)  // sees through wrappers that have an Unwrap method
	defer rc.SetWriteDeadline(time.Time{}) // between two writes there is no limit
	number := f.taken - int64(len(f.batch))
	for _, e := range f.batch {
		number++
		event := Event{Type: s.eventType}
		if s.hasIDs {
			event.ID = s.eventID(number)
		}
		next, err := f.appendOrWrite(text, event, e) // a large event is written at once, and not copied
		if err != nil {
			return err
		}
		text = next
	}
	if _, err := f.w.Write(text); err != nil {
		return err
	}
	return rc.Flush()
}

// eventID returns the id of the event with number n.
func (s *Stream) eventID(n int64) string { return s.id + "/" + strconv.FormatInt(n, 10) }

// ---- A cut, and the response that comes next ----

// detach notes that a follower has ended. If the client may come back, what is not written
// waits for it.
func (s *Stream) detach(f *follower) {
	s.mu.Lock()
	if s.follower == f { // otherwise another one has taken its place
		s.follower = nil
		s.settle()
		s.signal()
	}
	isUnread := s.isUnread()
	s.mu.Unlock()
	if isUnread {
		s.failQuestions() // those that were sent on the stream; not under mu, because it locks the Peer
	}
}

// isResumable reports whether a client may come back for what it has not read. To come back it
// names an event id. So there must be an id that it may have read: that with which the response
// begins, or that of an event. Nobody knows whether it has arrived.
func (s *Stream) isResumable() bool {
	return s.buffer.keep > 0 && (s.beginsWithID || s.buffer.last > 0)
}

// attach lets a new response follow the stream. If another one follows, the new one takes its
// place. after is the id of the last event that the client has got; "": it names none. Where
// the new response begins:
//
//	an event is named       after that event; if the client may not continue there, attach returns an error
//	another one follows     after the last event that the other one has taken
//	otherwise               where the response before it has got to; if later events are lost, with
//	                        the oldest one that is still there
//
// The caller must then call serveFollower, because nothing else detaches the follower.
func (s *Stream) attach(w http.ResponseWriter, after string) (f *follower, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var from int64
	switch {
	case after != "":
		from, err = s.numberOf(after)
		if err != nil {
			return nil, err
		}
	case s.follower != nil:
		from = s.follower.taken // the other one still writes what it has taken; a client that misses it names an event
	default:
		from = max(s.buffer.written, s.buffer.first()-1)
	}
	return s.attachAt(w, from, after == ""), nil
}

// numberOf returns the number of the event with an id. It returns errNotKept if the stream has
// not given this id, or if the client may not continue after this event. The caller holds mu.
func (s *Stream) numberOf(id string) (number int64, err error) {
	number, err = strconv.ParseInt(strings.TrimPrefix(id, s.id+"/"), 10, 64)
	isOurs := err == nil && number >= 0 && id == s.eventID(number) // refuses …/09, and the ids of other streams
	hasID := isOurs && (number > 0 || s.beginsWithID)              // 0: the id with which a response begins
	if !hasID || !s.isResumable() || !s.buffer.hasAllAfter(number) {
		return 0, errNotKept
	}
	return number, nil
}

// attachAt makes a follower that begins after the event with the number from. The one before it
// ends. The caller holds mu.
func (s *Stream) attachAt(w http.ResponseWriter, from int64, namesNone bool) *follower {
	if s.follower != nil {
		s.follower.hurry() // one second for the write that goes on
	}
	s.follower = &follower{w: w}
	s.beginAt(from, namesNone)
	return s.follower
}

// beginAt decides how the response of the follower begins, after the event with the number
// from. namesNone: the client names no event. Then the response begins with an id, if the
// revision has that. 2025-11-25 basic/transports#sending-messages-to-the-server: "The server
// SHOULD immediately send an SSE event consisting of an event ID and an empty data field". The
// caller holds mu.
func (s *Stream) beginAt(from int64, namesNone bool) {
	f := s.follower
	f.hasBegun, f.taken, s.buffer.written = true, from, from
	s.settle() // what the follower before it has taken does not wait to be written any more
	s.signal() // that follower ends, and a sender may have room
	switch {
	case namesNone && s.beginsWithID && s.hasIDs:
		f.text = Event{ID: s.eventID(from), Data: []byte{}}.Append(nil)
	case max(from, s.buffer.first()-1) == s.buffer.last: // no event is there to write
		f.text = []byte(":\n\n") // an empty comment: a proxy may hold the header back until the body begins
	}
}

// ---- A session, and its streams ----

// Session is a legacy HTTP client as the server remembers it from one request to the next: a
// Peer with an id, and its streams. A conversation of HTTP+SSE is one, too.
type Session struct {
	*Peer
	ID string
	// Owner is the principal that has opened the session. A request needs both: the ID and this
	// principal. Without authentication it is "", and the ID is the only secret.
	Owner string

	table *Sessions

	// The table's mutex guards the fields below.
	busy       int                // HTTP requests that are being answered
	since      time.Time          // when busy became 0
	standalone *Stream            // for messages that belong to no request; nil: the client has not asked for it
	streams    map[string]*Stream // by id: those of POSTs that go on, or are kept; nil: none
	lastStream int
	isOver     bool
	isUsed     bool // it has had a request after initialize
}

// addStream puts the stream of a POST into the session, when a response begins to follow it.
// The caller holds the mutex of the stream.
func (s *Session) addStream(stream *Stream) {
	tag := s.Tag()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.isOver { // nobody can come back for what is sent
		stream.endTime, stream.buffer.keep = time.Now(), 0
		return
	}
	s.lastStream++
	stream.id, stream.hasIDs = tag+"."+strconv.Itoa(s.lastStream), stream.buffer.keep > 0
	if s.streams == nil {
		s.streams = map[string]*Stream{}
	}
	s.streams[stream.id] = stream
}

// find returns the stream to which an event belongs, by the id of the event; nil: there is
// none.
func (s *Session) find(event string) *Stream {
	id, _, _ := strings.Cut(event, "/")
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.standalone != nil && s.standalone.id == id {
		return s.standalone
	}
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
	return stream.send(ctx, m)
}

// ---- Sessions: what a legacy server remembers about its HTTP clients ----

// Sessions is the table of sessions of one StreamableHandler. Set the fields before the first
// request. With the zero Sessions streams cannot be resumed: set Keep. To keep state of your
// own for a session, use Exchange.Peer as the key, and drop the state when Peer.Context ends. A
// modern request has no session, and its Peer is nil.
//
// 2025-11-25 basic/transports#session-management: an id "SHOULD be globally unique and
// cryptographically secure" and "MUST only contain visible ASCII characters". Sessions does not
// check what NewID returns.
type Sessions struct {
	NewID func() string // nil: 130 random bits
	// Keep is how many bytes of what was sent on a stream are kept, for a client whose
	// connection breaks. When there are more, the oldest events go. What was sent on a stream
	// that has ended is kept for five minutes. All sessions together keep 40 MiB: when three
	// quarters of that are used, the streams that have ended go, the oldest first. 0: nothing
	// is kept, and events have no ids.
	Keep int
	// IdleTimeout is how long a session lives without an HTTP request or an open stream. A call
	// whose connection has broken does not count: it ends with the session. 0: 30 minutes;
	// negative: for ever.
	IdleTimeout time.Duration
	// Max is how many sessions there may be at once. Any further initialize is answered with
	// 503. A session that was not used for a minute after initialize ends. An idle session
	// costs about 1 kB. 0: 10,000.
	Max int
	// Opened is called before initialize is answered, and must not block. The session is in the
	// table by then, so it may end meanwhile. nil: not wanted.
	Opened func(*Session)
	// Ended is called on the goroutine that ends the session: that of a request, a timer or
	// Close. context.Cause of Session.Context is the reason. nil: not wanted.
	Ended func(*Session)
	Log   *slog.Logger // nil: that of the StreamableHandler

	wasFull func() bool // reports whether a request has found no room since the last call; nil: there is no bound

	mu           sync.Mutex // guards the fields below, and those of each Session
	byID         map[string]*Session
	endedStreams list.List // the streams of POSTs that have ended and are kept, the oldest first
	sweeping     bool      // a timer is set
	closed       bool
	sweeps       sync.WaitGroup // sweeps that go on; Add is called with mu held, and not after closed is set
}

// The reasons why a session has ended.
var (
	ErrSessionDeleted = errors.New("deleted by the client")
	ErrSessionIdle    = errors.New("idle for too long")
	ErrSessionClosed  = errors.New("closed by the server")
)

// create returns a session that is not yet in the table. It counts as busy. If it cannot be
// added, Delete it.
func (ss *Sessions) create(owner string) *Session {
	id := rand.Text()
	if ss.NewID != nil {
		id = ss.NewID()
	}
	s := &Session{ID: id, Owner: owner, table: ss, busy: 1}
	s.Peer = newPeer(context.Background(), s.send, new(mcpProtocol), ss.Log)
	return s
}

// add puts a session into the table.
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
	case len(ss.byID) >= cmp.Or(ss.Max, maxSessions):
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

// get returns the session with this id and owner; nil: there is none. The session counts as
// busy until release.
func (ss *Sessions) get(id, owner string) *Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s == nil || s.Owner != owner || s.hasEnded() {
		return nil
	}
	s.busy++
	s.isUsed = true
	return s
}

// release undoes what create or get has added to busy.
func (s *Session) release() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.busy--
	s.since = time.Now()
}

// hasEnded reports whether nobody may use the session any more: it was not used for too long,
// or a handler has closed its Peer. The next sweep removes it. The caller holds the table's
// mutex.
func (s *Session) hasEnded() bool {
	return s.Peer.ctx.Err() != nil || s.isSilent(s.table.ttl())
}

// isSilent reports whether the session has had neither a request nor an open stream for this
// long: its client has gone. The caller holds the table's mutex.
func (s *Session) isSilent(d time.Duration) bool { return s.busy == 0 && time.Since(s.since) >= d }

// Len returns how many sessions there are.
func (ss *Sessions) Len() int {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return len(ss.byID)
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

// Tag returns the text with which the ids of all events of the session begin. It does not
// reveal the session's id, so it is for logs. An event id with another tag is refused.
func (s *Session) Tag() string {
	sum := sha256.Sum256([]byte(s.ID))
	return hex.EncodeToString(sum[:4])
}

// enlist notes that the stream of a POST has ended. A client may come back for it, so it is
// forgotten later.
func (ss *Sessions) enlist(stream *Stream) {
	ss.mu.Lock()
	isKnown := stream.session.streams[stream.id] == stream // otherwise it is that of a GET, or its session is over
	switch {
	case isKnown && !stream.hasIDs: // nothing of it is kept
		stream.session.removeStream(stream)
	case isKnown && stream.element == nil:
		stream.element = ss.endedStreams.PushBack(stream)
	}
	ss.mu.Unlock()
	ss.forgetEnded()
}

// forgetEnded forgets streams that have ended, the oldest first: those that have waited for
// five minutes, and more if there are too many. The streams that go on need room for what they
// keep. So when less than a quarter of that is left, more are forgotten, but not the newest one.
func (ss *Sessions) forgetEnded() {
	for {
		ss.mu.Lock()
		n := ss.endedStreams.Len()
		if n == 0 {
			ss.mu.Unlock()
			return
		}
		oldest := ss.endedStreams.Front().Value.(*Stream) // its endTime does not change any more
		isShort := n > 1 && oldest.buffer.keptByAll.isShort()
		if n <= maxEnded && !isShort && time.Since(oldest.endTime) <= keepEnded {
			ss.mu.Unlock()
			return
		}
		oldest.session.removeStream(oldest)
		ss.mu.Unlock()
		oldest.forget()
	}
}

// removeStream takes the stream of a POST out of the session. The caller holds the table's
// mutex.
func (s *Session) removeStream(stream *Stream) {
	delete(s.streams, stream.id)
	if len(s.streams) == 0 {
		s.streams = nil
	}
	if stream.element != nil {
		s.table.endedStreams.Remove(stream.element)
	}
}

// Close ends the session.
func (s *Session) Close() error {
	s.table.Delete(s, ErrSessionClosed)
	return nil
}

// Delete ends a session: its streams and the contexts of its handlers end, and its waiting
// calls fail. why is the reason. Delete may be called more than once.
func (ss *Sessions) Delete(s *Session, why error) {
	ss.mu.Lock()
	known := ss.remove(s)
	ss.mu.Unlock()
	if known {
		ss.end(s, why)
	} else {
		s.stop(why)
	}
}

// remove takes a session out of the table, so that no request finds it any more. It returns
// false if the session was not in the table. The caller holds mu.
func (ss *Sessions) remove(s *Session) (known bool) {
	s.isOver = true
	if ss.byID[s.ID] != s {
		return false
	}
	delete(ss.byID, s.ID)
	return true
}

// stop ends the calls and the streams of a session that is not in the table any more.
func (s *Session) stop(why error) {
	s.table.mu.Lock()
	streams := slices.Collect(maps.Values(s.streams))
	for _, stream := range streams {
		s.removeStream(stream)
	}
	if s.standalone != nil {
		streams = append(streams, s.standalone)
	}
	s.table.mu.Unlock()
	s.Peer.refuseCalls(fmt.Errorf("%w: the session was %w", ErrClosed, why)) // says more than endContexts would
	s.Peer.endContexts(why)
	for _, stream := range streams {
		stream.end()
		stream.forget() // no client can come back
	}
}

// end ends a session that remove has taken out of the table.
func (ss *Sessions) end(s *Session, why error) {
	s.stop(why)
	s.log.Info("session ended", "session", s.Tag(), "reason", why)
	if ss.Ended != nil {
		ss.Ended(s)
	}
}

// Close ends all sessions, after a sweep that goes on. After that, no session can be added.
func (ss *Sessions) Close() {
	ss.mu.Lock()
	ss.closed = true
	ss.mu.Unlock()
	doneWithin(graceAtEnd, &ss.sweeps)
	for _, s := range ss.All() {
		ss.Delete(s, ErrSessionClosed)
	}
}

// ---- What StreamableHandler and SSEHandler share ----

// service is what StreamableHandler and SSEHandler have: what they count, and how they end.
type service struct {
	once      sync.Once // for prepare
	keepAlive time.Duration
	open      context.Context // ends when Close begins
	windDown  context.CancelFunc
	life      context.Context // ends when Close stops the requests that still run
	stop      context.CancelFunc

	used    counter // bytes in use
	kept    counter // bytes that all sessions keep
	running counter // requests whose handlers run

	encoders chan struct{} // has a place for each result that is being encoded
	next     chan func()   // for goroutines that have run handlers, and wait; it has no buffer

	noStreams   atomic.Bool // the log has said that nothing can be flushed
	noDeadlines atomic.Bool // the log has said that no deadline can be set

	mu       sync.Mutex     // guards calls of Add while open has not ended
	requests sync.WaitGroup // HTTP requests that are being answered, and their handlers; but not GETs
	gets     sync.WaitGroup // GETs that are being answered
}

func (h *service) prepare(g *Guard, maxRequests int) {
	h.encoders = make(chan struct{}, runtime.GOMAXPROCS(0))
	h.next = make(chan func())
	h.open, h.windDown = context.WithCancel(context.Background())
	h.life, h.stop = context.WithCancel(context.Background())
	h.keepAlive = g.silence()
	h.used.limit, h.kept.limit = g.maxUsed(), maxKept
	h.running.limit = int64(cmp.Or(maxRequests, maxServed))
}

// run runs the handlers of a request, on a goroutine that has served others and waits for the
// next, or else on a new one. The stack of the first has grown already: to grow a new one costs
// a sixth of a small call, and mcpwire would be slower than other libraries.
func (h *service) run(f func()) {
	h.requests.Add(1) // ServeHTTP is counted, so Close does not wait yet
	select {
	case h.next <- f:
	default:
		go h.work(f)
	}
}

// work runs f, and then what comes next. It ends each second, if it is not at work then, and
// with Close.
func (h *service) work(f func()) {
	patience := time.NewTicker(time.Second)
	defer patience.Stop()
	for {
		h.runCounted(f)
		select {
		case f = <-h.next:
		case <-h.open.Done():
			return
		case <-patience.C:
			return
		}
	}
}

// runCounted runs f, which may end the goroutine.
func (h *service) runCounted(f func()) {
	defer h.requests.Done()
	f()
}

// enter counts an HTTP request in a group, so that Close waits for it. It returns false if
// Close was called.
func (h *service) enter(group *sync.WaitGroup) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open.Err() == nil {
		group.Add(1)
	}
	return h.open.Err() == nil
}

// newStream returns a new stream. s is the session that it belongs to; nil: none.
func (h *service) newStream(s *Session) *Stream {
	stream := &Stream{session: s, keepAlive: h.keepAlive, buffer: eventBuffer{eventBytes: eventBytes{usedByAll: &h.used, keptByAll: &h.kept}}}
	if s != nil {
		rev := s.handshake().revision
		stream.beginsWithID = rev.Prime
		if rev.Resume {
			stream.buffer.keep = s.table.Keep
		}
	}
	return stream
}

// standalone returns the stream for messages that belong to no request. A session has one of
// these, and a newer GET takes it over. 2025-11-25 basic/transports#multiple-connections: the
// server "MUST NOT broadcast the same message across multiple streams."
func (h *service) standalone(s *Session) *Stream {
	stream := h.newStream(s)
	stream.id, stream.hasIDs = s.Tag()+".0", stream.buffer.keep > 0
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.standalone == nil {
		s.standalone = stream
		if s.isOver {
			stream.endTime, stream.buffer.keep = time.Now(), 0
		}
	}
	return s.standalone
}

// follow writes the events of a stream to a response. If no deadline can be set, the log says
// so once: the response breaks off when the WriteTimeout of the server is over.
func (h *service) follow(s *Stream, f *follower, r *http.Request, g *Guard) {
	err := http.NewResponseController(f.w).SetWriteDeadline(time.Time{})
	if err != nil && h.noDeadlines.CompareAndSwap(false, true) {
		g.log().Warn("a stream ends with the WriteTimeout of the server, because its middleware has no Unwrap", "writer", fmt.Sprintf("%T", f.w))
	}
	s.serveFollower(f, r)
}

// answerOn runs the handlers of a payload, and sends their answers on a stream. There each
// answer counts anew, so the bytes of its result are given back before.
func (h *service) answerOn(s *Stream, replies *responder) {
	defer replies.release()
	replies.serve(func(m *Message) {
		replies.used.set(&replies.used.results, 0)
		s.sendAnswer(m)
	})
}

// countResults lets the Exchanges of a payload count their results before they are encoded. The
// text of the payload is not needed any more when the result of its only request is there.
func (h *service) countResults(base *Exchange, in Payload) {
	isBatch, used := in.Batch, in.used // the function must not hold the payload
	base.encode = func(result any) (json.RawMessage, error) {
		if !isBatch {
			used.set(&used.text, 0)
		}
		return h.encode(result, used)
	}
}

// close ends an http.Handler and its sessions: see StreamableHandler.Close.
func (h *service) close(sessions *Sessions) {
	h.mu.Lock()
	h.windDown()
	h.mu.Unlock()
	for _, s := range sessions.All() { // the answers to questions would be refused from now on
		s.Peer.refuseCalls(fmt.Errorf("%w: %w", ErrClosed, ErrSessionClosed))
	}
	end := time.Now().Add(graceAfterStop + graceAtEnd)
	doneWithin(graceAfterStop, &h.requests)
	h.stop()
	for _, s := range sessions.All() {
		s.Peer.endContexts(ErrSessionClosed)
	}
	doneWithin(graceAtEnd, &h.requests)
	sessions.Close()
	doneWithin(time.Until(end), &h.gets)
}

// ---- HTTP+SSE of 2024-11-05 ----
//
// A GET opens a stream of events. The first event says where the client sends its messages,
// each as a POST. All messages of the server come as events of the stream:
//
//	> GET /sse                              > POST /sse?session=K7VY…
//	> Accept: text/event-stream             > Content-Type: application/json
//	< 200                                   >
//	< Content-Type: text/event-stream       > {"jsonrpc":"2.0","id":1,"method":"initialize",…}
//	<                                       < 202
//	< event: endpoint
//	< data: /sse?session=K7VY…
//	<
//	< event: message
//	< data: {"jsonrpc":"2.0","id":1,"result":{…}}

// SSEHandler is an http.Handler for the transport of 2024-11-05. A GET opens a conversation,
// which ends with the response. The POSTs go to the same path, with a query that names the
// conversation. Mount it at one path. A proxy must not rewrite that path, because the server
// tells it to the client. What Guard says about middleware holds here, too.
//
// A conversation is a session whose standalone stream is the response to the GET:
//
//	goroutine of a POST                     goroutine of its handlers
//	Guard, read, Peer.dispatch ───────────► Handler ──► the standalone stream
//	202                                                        │
//	goroutine of the GET: follows the stream ◄─────────────────┘
//
// Set the fields before the first request.
type SSEHandler struct {
	Handler Handler // required: a *Server, or a Handler that calls one; nil: ServeHTTP panics
	Guard
	// MaxRequests is how many requests of all conversations are served at once, or wait until
	// their answers can be sent. Further ones are answered with 503. 0: 3,072.
	MaxRequests int
	// Max is how many conversations there may be at once. Further GETs are answered with 503.
	// Each conversation has a connection and a goroutine. 0: 1,000.
	Max   int
	NewID func() string // returns the id of a conversation, which must be hard to guess; nil: a random text

	service
	table Sessions
}

// ServeHTTP answers a GET with a stream of events, and takes in POSTs.
func (h *SSEHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h.Handler == nil {
		panic("SSEHandler.Handler is nil")
	}
	h.once.Do(h.prepare)
	principal, ok := h.admit(w, r)
	switch {
	case !ok:
	case r.Method == http.MethodPost:
		h.post(w, r, principal)
	case r.Method != http.MethodGet:
		w.Header().Set("Allow", "GET, POST")
		h.refuse(w, r, http.StatusMethodNotAllowed, ID{}, "Method not allowed")
	case isForeignLoad(r): // it could open all conversations there are
		h.refuse(w, r, http.StatusForbidden, ID{}, "A page of another origin must send its Origin")
	case !h.canStream(w, &h.noStreams):
		h.refuse(w, r, http.StatusInternalServerError, ID{}, noFlush)
	case !accepts(r.Header["Accept"], "text/event-stream"):
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, "Accept must allow text/event-stream")
	default:
		h.get(w, r, principal)
	}
}

func (h *SSEHandler) prepare() {
	h.service.prepare(&h.Guard, h.MaxRequests)
	h.table.NewID, h.table.Max, h.table.Log = h.NewID, cmp.Or(h.Max, maxConversations), h.Log
}

// errHungUp is why a conversation has ended.
var errHungUp = errors.New("ended by the client")

// get opens a conversation, and writes its events until it ends. 2024-11-05
// basic/transports#http-with-sse: "When a client connects, the server MUST send an endpoint
// event containing a URI for the client to use for sending messages."
func (h *SSEHandler) get(w http.ResponseWriter, r *http.Request, principal string) {
	if !h.enter(&h.gets) {
		h.refuse(w, r, http.StatusServiceUnavailable, ID{}, "The server is shutting down")
		return
	}
	defer h.gets.Done()
	s := h.table.create(principal)
	stream := h.service.standalone(s)
	stream.eventType = "message"
	f, _ := stream.attach(w, "")
	f.text = Event{Type: "endpoint", Data: []byte(endpointURI(r, s.ID))}.Append(nil)
	if err := h.table.add(s); err != nil {
		h.table.Delete(s, err)
		h.refuse(w, r, http.StatusServiceUnavailable, ID{}, err.Error())
		return
	}
	h.follow(stream, f, r, &h.Guard)
	// 2024-11-05 basic/lifecycle#shutdown: it "is indicated by closing the associated HTTP
	// connection(s)"
	h.table.Delete(s, errHungUp)
}

// endpointURI returns the URI to which the client POSTs: that of the GET, with the id of the
// conversation in the query.
func endpointURI(r *http.Request, id string) string {
	endpoint := *r.URL
	// http.StripPrefix may have cut the path in r.URL. RequestURI is what the client has sent.
	if requested, err := url.ParseRequestURI(r.RequestURI); err == nil {
		endpoint = *requested
	}
	query := endpoint.Query()
	query.Set("session", id)
	endpoint.Scheme, endpoint.User = "", nil
	endpoint.Host = ""
	endpoint.Path = "/" + strings.TrimLeft(endpoint.Path, "/") // with two slashes, a client would take the path for a host
	endpoint.RawQuery = query.Encode()
	return endpoint.String()
}

// post takes in a payload. The answers are sent on the stream, so the status only says that the
// payload has come.
func (h *SSEHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	isOpen := h.enter(&h.requests)
	if isOpen {
		defer h.requests.Done()
	}
	in, ok := h.readPayload(w, r, &h.used)
	if !ok {
		return
	}
	n, first := answersIn(in), in.Messages[0]
	s := h.table.get(r.URL.Query().Get("session"), principal)
	if s != nil {
		defer s.release()
	}
	switch {
	case s == nil || !isOpen:
		h.refuse(w, r, http.StatusNotFound, idOf(in), "No such session")
	case first.Kind() == Invalid && first.ID == ID{} && !in.Batch:
		// The JSON-RPC error response has no id. On the stream the client could not see which
		// of its POSTs is meant.
		writeJSON(w, http.StatusBadRequest, in)
	case !h.running.take(n):
		h.refuse(w, r, http.StatusServiceUnavailable, idOf(in), errBusy.Message)
	default:
		h.handOn(w, r, in, s, n)
		return
	}
	in.used.release()
}

// handOn lets the Peer of a conversation take in a payload, runs its handlers, and gives back
// the places of its requests.
func (h *SSEHandler) handOn(w http.ResponseWriter, r *http.Request, in Payload, s *Session, places int) {
	base := Exchange{handler: HandlerFunc(h.handle), Peer: s.Peer, Principal: s.Owner, Header: r.Header, Ending: h.open.Done(), send: s.send}
	h.countResults(&base, in)
	answer := s.Peer.dispatch(context.WithoutCancel(r.Context()), in, base)
	if answer == nil {
		h.running.give(places)
		if places > 0 { // the conversation has ended meanwhile
			h.refuse(w, r, http.StatusNotFound, idOf(in), "No such session")
			return
		}
	}
	accepted(w)
	if answer != nil {
		h.run(func() {
			defer h.running.give(places)
			h.answerOn(s.standalone, answer)
		})
	}
}

// handle calls the Handler. A request without a Peer is modern, and this transport has no
// modern revision. The code is one that legacy servers use, too: with a code of modern servers
// the client would not fall back to initialize (2026-07-28 basic/versioning).
func (h *SSEHandler) handle(ctx context.Context, x *Exchange) (any, error) {
	if x.Peer == nil {
		reason := fmt.Sprintf("Method not found: this transport does not serve %.100q", x.Meta().ProtocolVersion)
		return nil, &Error{Code: CodeMethodNotFound, Message: reason}
	}
	return h.Handler.Handle(ctx, x)
}

// Close ends all conversations, and no more are opened. Requests that are being served have
// three seconds; then their contexts end. Close returns when all conversations are over, four
// seconds after the call at the latest. It may be called more than once.
//
// Call Close at the same time as http.Server.Shutdown, and wait for both: without Close,
// Shutdown would wait for streams that do not end. Give Shutdown a context of about five
// seconds, and then call http.Server.Close: Shutdown also waits for the rest of a body, which a
// client may never send.
func (h *SSEHandler) Close() {
	h.once.Do(h.prepare)
	h.close(&h.table)
}

// ==== The client ====
//
// SSEDialer and sseConn are the client of HTTP+SSE. They share poster with the client of
// http.go: it sends POSTs, and knows which are under way. HTTPError and redirects are for both
// clients, too.

// ---- Reading events ----

// isMessage reports whether an event carries a message of MCP. An event whose data is empty
// only tells its id.
func (e Event) isMessage() bool { return e.Type == "message" && len(e.Data) > 0 }

// ReadEvents returns the events that r holds. It reads from r only while the caller ranges over
// them, which can be done once. If reading fails, the error is yielded last; the end of r is no
// error. If an event has more than max bytes, the error is ErrTooLarge. If r ends within an
// event, that event is dropped; only its Retry is still yielded, in an event without data.
func ReadEvents(r io.Reader, max int) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		in := newEventReader(r, max)
		for {
			e, err := in.next()
			if err == io.EOF {
				return
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// eventReader reads an event stream by the rules of WHATWG HTML
// server-sent-events#event-stream-interpretation.
type eventReader struct {
	r       *bufio.Reader
	max     int    // bytes of an event: what was read of it and the line that is read next
	line    []byte // the memory that readLine uses again and again
	id      string // of the last event that had one; a client that continues a stream sets it
	skipLF  bool   // the last line has ended with CR: an LF that comes next belongs to it
	atStart bool   // the next line is the first one, and may begin with a byte order mark
}

func newEventReader(r io.Reader, max int) *eventReader {
	return &eventReader{r: bufio.NewReader(r), max: max, atStart: true}
}

// next returns the next event. At the end of the stream it returns io.EOF.
func (in *eventReader) next() (Event, error) {
	e := Event{ID: in.id}
	for {
		line, err := in.readLine(in.max - len(e.Type) - len(e.ID) - len(e.Data))
		switch {
		case err != nil && err != ErrTooLarge && e.Retry > 0:
			// The stream is cut off within this event. The standard drops the event, but a
			// retry counts as soon as its line is read. The next call returns err.
			return Event{ID: in.id, Retry: e.Retry}, nil
		case err != nil:
			return Event{}, err
		case len(line) > 0:
			e.readField(line)
		case e.Data == nil && e.Retry == 0 && e.ID == in.id:
			// An empty line ends the event, but it has at most a type: the standard drops it.
			e.Type = ""
		default:
			in.id = e.ID
			e.Type = cmp.Or(e.Type, "message")
			e.Data = bytes.TrimSuffix(e.Data, []byte("\n"))
			if cap(in.line) > 64<<10 { // a stream may stay open for long
				in.line = nil
			}
			return e, nil
		}
	}
}

// readField reads one line of an event, such as "data: {}". A line that begins with a colon is
// a comment. It is ignored, and so are fields that the standard does not know. As in the
// standard, Data gets a newline after each line; next removes the last one.
func (e *Event) readField(line []byte) {
	name, value, _ := bytes.Cut(line, []byte(":"))
	value = bytes.TrimPrefix(value, []byte(" "))
	switch string(name) {
	case "event":
		e.Type = string(value)
	case "data":
		e.Data = slices.Grow(e.Data, len(value)+1)
		e.Data = append(e.Data, value...)
		e.Data = append(e.Data, '\n')
	case "id":
		if bytes.IndexByte(value, 0) < 0 { // the standard ignores an id with a NUL
			e.ID = string(value)
		}
	case "retry":
		if retry, ok := parseRetry(value); ok {
			e.Retry = retry
		}
	}
}

// parseRetry reads the value of a retry field, which has nothing but digits. A number that is
// too large becomes the largest one, 2^31-1 milliseconds. 0 becomes one millisecond, because 0
// in an Event means that the field is missing.
func parseRetry(value []byte) (retry time.Duration, ok bool) {
	isNumber := len(value) > 0 && len(bytes.Trim(value, "0123456789")) == 0
	if !isNumber {
		return 0, false
	}
	ms, _ := strconv.ParseUint(string(value), 10, 31) // out of range: the largest number
	return time.Duration(max(ms, 1)) * time.Millisecond, true
}

// readLine returns the next line without its end, which is CR, LF or CRLF. The line is valid
// until the next call. A line of more than max bytes is the error ErrTooLarge. If the stream
// ends within a line, readLine returns io.EOF.
//
// A line that ends with CR is returned at once, although an LF may follow: to wait for the next
// byte could take until the next event.
func (in *eventReader) readLine(max int) ([]byte, error) {
	in.line = in.line[:0]
	for {
		if _, err := in.r.Peek(1); err != nil { // waits until there is a byte to read
			return nil, err
		}
		chunk, _ := in.r.Peek(in.r.Buffered())
		if in.skipLF && chunk[0] == '\n' {
			in.skipLF = false
			_, _ = in.r.Discard(1)
			continue
		}
		end := bytes.IndexAny(chunk, "\r\n")
		isComplete := end >= 0
		if isComplete {
			in.line = append(in.line, chunk[:end]...)
			in.skipLF = chunk[end] == '\r'
			_, _ = in.r.Discard(end + 1)
		} else {
			in.line = append(in.line, chunk...)
			in.skipLF = false
			_, _ = in.r.Discard(len(chunk))
		}
		if len(in.line) > max {
			return nil, ErrTooLarge
		}
		if isComplete {
			line := in.line
			if in.atStart {
				line = bytes.TrimPrefix(line, []byte("\uFEFF"))
			}
			in.atStart = false
			return line, nil
		}
	}
}

// ---- SSEDialer ----

const (
	defaultMessage  = 64 << 20         // bytes of a message of the server
	endpointTimeout = 10 * time.Second // for the event that says where to POST
	maxDrained      = 16 << 10         // bytes of a response that are read only to use its connection again
)

// SSEDialer is a Dialer for the transport of 2024-11-05.
//
// If a server does not answer the GET with a stream of events, or a POST with a status of 2xx,
// the error is an *HTTPError. Write waits at most 30 seconds for the status of a payload
// without a request. A stream that is lost cannot be resumed: call Dial again.
type SSEDialer struct {
	URL string // required: where the server opens its stream
	// Client sends the requests. nil: each Conn has an http.Client of its own. Of any other
	// Client the Timeout is ignored, because it would end the stream. A redirect is followed
	// only if its status is 307 or 308 and it stays within the origin, and at most ten times in
	// a row. Proxies, TLS, credentials and all else that concerns each request belong to the
	// Transport of the Client, as in WithHeader.
	Client     *http.Client
	MaxMessage int // the most bytes that a message of the server may have; 0: 64 MiB
}

var errNoEndpoint = fmt.Errorf("no endpoint event within %v", endpointTimeout)

// Dial opens the stream, and returns a Conn. It waits at most ten seconds for the event that
// says where to POST.
func (d SSEDialer) Dial(ctx context.Context) (Conn, error) {
	life, cancel := context.WithCancelCause(context.Background()) // of the GET
	defer context.AfterFunc(ctx, func() { cancel(ctx.Err()) })()
	defer time.AfterFunc(endpointTimeout, func() { cancel(errNoEndpoint) }).Stop()
	c := &sseConn{poster: newPoster(d.Client), stream: http.NoBody}
	err := c.open(life, d.URL, cmp.Or(d.MaxMessage, defaultMessage))
	if err != nil {
		_ = c.Close()
		return nil, cmp.Or(context.Cause(life), err)
	}
	return c, nil
}

// sseConn is the Conn of a client of this transport. Read reads the stream, on the goroutine of
// its caller. Each Write is a POST.
type sseConn struct {
	poster
	stream   io.Closer // the body of the response to the GET
	events   *eventReader
	endpoint string // the URL for POSTs
}

// open sends the GET, and reads the event that says where to POST. It must name a URL of the
// origin from which the stream comes. Otherwise a server could make us send requests to another
// server.
func (c *sseConn) open(ctx context.Context, target string, maxMessage int) error {
	resp, err := c.do(ctx, http.MethodGet, target, http.Header{"Accept": {"text/event-stream"}}, nil)
	if err != nil {
		return err
	}
	c.stream = resp.Body
	if resp.StatusCode != http.StatusOK || !isMedia(resp.Header.Get("Content-Type"), "text/event-stream") {
		return fmt.Errorf("GET: %w", httpError(resp))
	}
	c.events = newEventReader(resp.Body, maxMessage)
	e, err := c.events.next()
	for err == nil && e.Data == nil { // by the standard, text without data is no event
		e, err = c.events.next()
	}
	if err != nil {
		return fmt.Errorf("no endpoint event: %w", err)
	}
	from := resp.Request.URL
	endpoint, err := from.Parse(string(e.Data))
	isEndpoint := e.Type == "endpoint" && len(e.Data) > 0
	if err != nil || !isEndpoint || !sameOrigin(endpoint, from) {
		return fmt.Errorf("the first event must name an endpoint of the same origin, not %.200s %.200q", e.Type, e.Data)
	}
	endpoint.User = from.User // the caller's credentials, whatever the event says
	c.endpoint = endpoint.String()
	return nil
}

// Read returns the payload of the next event.
func (c *sseConn) Read() (Payload, error) {
	for {
		e, err := c.events.next()
		if err != nil {
			return Payload{}, err
		}
		if e.isMessage() {
			in := Decode(e.Data)
			c.noteRevision(in)
			return in, nil
		}
	}
}

// Write POSTs a payload, and waits for the status. 404 means that the server does not know the
// conversation: the error wraps ErrSessionEnded and ErrNotSent.
func (c *sseConn) Write(ctx context.Context, out Payload) error {
	p, err := c.newPost(ctx, out)
	if err != nil {
		return err
	}
	return c.sendAndFinish(ctx, p, c.sendPost)
}

// sendPost sends a POST. Its status says all: 2024-11-05 does not say which status means that
// the payload has come, so each 2xx does. The response is never a stream.
func (c *sseConn) sendPost(p *clientPost) (isStream bool, err error) {
	header := http.Header{"Content-Type": {"application/json"}}
	if p.revision.VersionHeader { // a server of such a revision may require it on any transport
		header["Mcp-Protocol-Version"] = []string{p.revision.Version}
	}
	resp, err := c.do(p.ctx, http.MethodPost, c.endpoint, header, p.payload.Append(nil))
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 == 2 {
		c.drain(resp)
		return false, nil
	}
	fault := httpError(resp)
	if fault.Status == http.StatusNotFound {
		return false, markedError{fmt.Errorf("%w: %w", ErrSessionEnded, fault), ErrNotSent}
	}
	return false, fault
}

// Close ends the conversation.
func (c *sseConn) Close() error {
	c.failAll()
	defer c.closeIdle()
	return c.stream.Close()
}

// ---- What both clients share: POSTs ----

const (
	maxRedirects = 10 // in a row

	acceptTimeout = 30 * time.Second       // for the server to take a payload without a request
	drainTimeout  = 100 * time.Millisecond // for the rest of a response that is read only to use its connection again
)

var errSlow = fmt.Errorf("the server has not taken it within %v", acceptTimeout)

// poster is what the Conns of both clients share.
type poster struct {
	client    *http.Client
	closeIdle func() // closes the idle connections of client

	mu       sync.Mutex           // guards the fields below
	revision Revision             // that was agreed on; zero: none yet
	posts    map[*clientPost]bool // all posts that are not over; true: it has become a stream
	endErr   error                // why nothing more can be sent; nil: it can
}

// clientPost is one POST, until all that it brings has come.
type clientPost struct {
	payload  Payload
	request  ID          // of the request in payload; the zero ID: there is none
	answered atomic.Bool // the answer has come, perhaps on another stream
	// ctx ends when the post is over. Its cause is why it has failed, if it has.
	ctx    context.Context
	cancel context.CancelCauseFunc

	revision Revision // in which it is sent
	session  string   // for Streamable HTTP: the id of the session; "": none
}

// isDone reports whether no answer to the post is waited for, or not any more.
func (p *clientPost) isDone() bool { return p.request == ID{} || p.answered.Load() }

// newPoster returns the poster of a Conn. client is that of the Dialer.
func newPoster(client *http.Client) poster {
	own, closeIdle := keepToOrigin(client)
	return poster{client: own, closeIdle: closeIdle, posts: map[*clientPost]bool{}}
}

// newPost makes a post. It has the values of ctx, but ends only with finish.
func (c *poster) newPost(ctx context.Context, out Payload) (*clientPost, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.endErr != nil {
		return nil, markedError{c.endErr, ErrNotSent}
	}
	p := &clientPost{payload: out, revision: c.revision}
	for _, m := range out.Messages {
		if m.Kind() == Request {
			p.request = m.ID
		}
	}
	p.ctx, p.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	c.posts[p] = false
	return p, nil
}

// sendAndFinish sends a post, and finishes it unless it has become a stream. For a payload
// without a request it waits at most acceptTimeout.
func (c *poster) sendAndFinish(ctx context.Context, p *clientPost, send func(*clientPost) (isStream bool, err error)) error {
	// ctx and the timer end the post only until sendAndFinish returns: a stream goes on.
	defer context.AfterFunc(ctx, func() { p.cancel(ctx.Err()) })()
	if p.payload.Messages[0].Kind() != Request {
		defer time.AfterFunc(acceptTimeout, func() { p.cancel(errSlow) }).Stop()
	}
	isStream, err := send(p)
	if isStream {
		return nil
	}
	cause := context.Cause(p.ctx)
	c.finish(p)
	if err == nil || p.answered.Load() {
		return nil
	}
	return cmp.Or(cause, err)
}

// finish ends a post, and forgets it.
func (c *poster) finish(p *clientPost) {
	p.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.posts, p)
}

// failAll fails all posts with ErrClosed, and all that follow. It returns why nothing could be
// sent before; nil: it could.
func (c *poster) failAll() (before error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.endErr = c.endErr, ErrClosed
	for p := range c.posts {
		p.cancel(ErrClosed)
	}
	return before
}

// noteRevision reads which revision was agreed on. Only the answer to initialize names one.
func (c *poster) noteRevision(in Payload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range in.Messages {
		if c.revision.Version == "" && m.Kind() == Response {
			c.revision = revision(unquote(lookup(m.Result, "protocolVersion")))
		}
	}
}

// drain reads the rest of a response that is not needed, so that its connection can be used
// again.
func (c *poster) drain(resp *http.Response) {
	defer time.AfterFunc(drainTimeout, func() { resp.Body.Close() }).Stop()
	_, _ = io.CopyN(io.Discard, resp.Body, maxDrained)
}

// do sends one HTTP request. The error does not show the query of the URL, nor its password:
// errors are logged and shown, and a query may name a session or hold a key.
func (c *poster) do(ctx context.Context, method, target string, header http.Header, body []byte) (*http.Response, error) {
	var reader io.Reader // nil without a body: an empty one changes the request
	if body != nil {
		reader = bytes.NewReader(body)
	}
	r, err := http.NewRequestWithContext(ctx, method, target, reader)
	var resp *http.Response
	if err == nil {
		r.Header = header
		header["Accept-Encoding"] = []string{"identity"} // a proxy that compresses events holds them back
		resp, err = c.client.Do(r)
	}
	failure, ok := errors.AsType[*url.Error](err)
	switch {
	case ok && failure.Op == "parse":
		err = markedError{errors.New("the URL is not valid"), errSaysNothing} // it may hold a password, which cannot be found in it
	case ok:
		failure.URL, _, _ = strings.Cut(failure.URL, "?")
		if reason, _, isURL := strings.Cut(failure.Err.Error(), "?"); isURL { // that of a redirect
			failure.Err = errors.New(reason)
		}
		err = markedError{err, errSaysNothing}
	}
	return resp, err
}

// ---- What both clients share: errors and redirects ----

const maxErrorBody = 64 << 10 // bytes of the body of an HTTPError

// HTTPError is a response of HTTP that does not answer the request of a client as it should. If
// the body is a JSON-RPC error response, errors.As finds its *Error in the HTTPError.
type HTTPError struct {
	Status int
	Header http.Header
	Body   []byte // its first 64 KiB

	fault *Error // of the JSON-RPC error response in the body; nil: there is none
	id    ID     // of that error response
}

// Error returns the status, and the part of the response that best explains it: the JSON-RPC
// error, the target of a redirect, or the beginning of the body.
func (e *HTTPError) Error() string {
	text := strings.TrimSpace(fmt.Sprintf("HTTP %d %s", e.Status, http.StatusText(e.Status)))
	location := e.Header.Get("Location")
	body := bytes.TrimSpace(e.Body)
	switch {
	case e.fault != nil:
		return text + ": " + e.fault.Error()
	case e.Status/100 == 3 && location != "":
		location, _, _ = strings.Cut(location, "?") // as in do
		return fmt.Sprintf("%s: not followed to %.200q", text, location)
	case isMedia(e.Header.Get("Content-Type"), "text/html"): // its beginning would say little
		return text + ", a page in HTML"
	case len(body) > 0:
		return fmt.Sprintf("%s %.200q", text, body)
	}
	return text
}

// Unwrap returns the *Error of the body.
func (e *HTTPError) Unwrap() error {
	if e.fault == nil {
		return nil
	}
	return e.fault
}

// Is reports what a status means for a Client that looks for a server. target is one of the
// errors of session.go:
//
//	target            the statuses
//	errModernServer   any with an error code that only modern servers have; 404 with CodeMethodNotFound
//	ErrOtherServer    400, 404 and 405, unless it is errModernServer
//	errSaysNothing    401, 403, 408, 429, 3xx and 5xx
//	errRefused        any
//
// So session.go reads no statuses.
func (e *HTTPError) Is(target error) bool {
	switch target {
	case errModernServer:
		return e.isModern()
	case ErrOtherServer:
		statuses := []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}
		return slices.Contains(statuses, e.Status) && !e.isModern()
	case errSaysNothing:
		statuses := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}
		return slices.Contains(statuses, e.Status) || e.Status/100 == 3 || e.Status >= 500
	case errRefused:
		return true
	}
	return false
}

// isModern reports whether only a modern server has this error.
func (e *HTTPError) isModern() bool {
	code := codeOf(e)
	return slices.Contains(modernCodes, code) || e.Status == http.StatusNotFound && code == CodeMethodNotFound
}

// modernCodes are the codes that only modern servers have, whatever the status.
var modernCodes = []int{CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion}

// Challenge returns the parameters of the first challenge of a scheme in the header
// WWW-Authenticate. Their names are in lower case. If there is no such challenge, it returns
// nil. 2025-11-25 basic/authorization#protected-resource-metadata-discovery-requirements:
// clients "MUST be able to parse WWW-Authenticate headers". What they need is
// Challenge("Bearer")["resource_metadata"] and Challenge("Bearer")["scope"].
//
// A challenge is a scheme and its parameters: tokens, each with a token or a quoted string as
// its value. RFC 9110, sections 5.6 and 11.2:
//
//	Bearer resource_metadata="https://…", scope="a \"b\""
//	^word  ^word, with a value            ^word, with quoted pairs in its value
func (e *HTTPError) Challenge(scheme string) (params map[string]string) {
	words := regexp.MustCompile("([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:[ \t]*=[ \t]*(\"(?:[^\"\\\\]|\\\\.)*\"?|[^ \t,]*))?")
	unquoted := strings.NewReplacer(`\\`, `\`, `\`, ``)
	const most = 1000 // words that are read: a header may be as long as 10 MB
	for _, word := range words.FindAllStringSubmatch(strings.Join(e.Header.Values("Www-Authenticate"), ","), most) {
		name, value := strings.ToLower(word[1]), word[2]
		isParam := strings.Contains(word[0], "=")
		switch {
		case isParam && params != nil && params[name] == "": // the first of two counts
			if inner, isQuoted := strings.CutPrefix(value, `"`); isQuoted {
				value = unquoted.Replace(strings.TrimSuffix(inner, `"`))
			}
			params[name] = value
		case isParam: // of another challenge, or the second with this name
		case params != nil: // the next challenge begins
			return params
		case strings.EqualFold(name, scheme):
			params = map[string]string{}
		}
	}
	return params
}

// httpError returns a response as an error. It reads at most maxErrorBody bytes of the body:
// what comes within a second, until the body ends or breaks off.
func httpError(resp *http.Response) *HTTPError {
	defer time.AfterFunc(graceAtEnd, func() { resp.Body.Close() }).Stop()
	body, _ := io.ReadAll(io.LimitReader(resp.Body, maxErrorBody)) // half a body is better than none
	e := &HTTPError{Status: resp.StatusCode, Header: resp.Header, Body: body}
	m := Decode(body).Messages[0]
	if m.Kind() == Response && m.Error != nil {
		e.fault, e.id = m.Error, m.ID
	}
	return e
}

// sameOrigin reports whether two URLs have the same scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	port := func(u *url.URL) string {
		ofScheme := map[string]string{"http": "80", "https": "443"}
		return cmp.Or(u.Port(), ofScheme[u.Scheme])
	}
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

// keepToOrigin returns a copy of client that follows a redirect only if the request is repeated
// as it is, and only within the origin. Any other redirect would lose the body of a POST, or
// send its header to another server. closeIdle closes the idle connections of a client that
// keepToOrigin has made, because client is nil; otherwise it does nothing.
func keepToOrigin(client *http.Client) (own *http.Client, closeIdle func()) {
	closeIdle = func() {}
	if client == nil {
		transport := newTransport()
		client = &http.Client{Transport: transport}
		closeIdle = transport.CloseIdleConnections
	}
	c := *client
	c.Timeout = 0 // it would end streams; the context of a call says how long the call may take
	check := client.CheckRedirect
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		status := r.Response.StatusCode
		isRepeated := status == http.StatusTemporaryRedirect || status == http.StatusPermanentRedirect
		if !isRepeated || !sameOrigin(r.URL, via[0].URL) || len(via) >= maxRedirects {
			return http.ErrUseLastResponse
		}
		if check != nil {
			return check(r, via)
		}
		return nil
	}
	return &c, closeIdle
}

// newTransport returns a Transport for one Conn, like http.DefaultTransport. All its
// connections go to one server, so more of them may be idle.
func newTransport() *http.Transport {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	standard, ok := http.DefaultTransport.(*http.Transport)
	if ok { // unless the program has replaced it
		transport = standard.Clone()
	}
	transport.MaxIdleConnsPerHost = 100
	return transport
}

// WithHeader returns a copy of client that adds header fields to each request. A field that a
// request has already stays as it is. The field Host replaces the host that the server is told.
// If client is nil, it is http.DefaultClient.
func WithHeader(client *http.Client, header http.Header) *http.Client {
	if client == nil {
		client = http.DefaultClient
	}
	added := http.Header{}
	for name, values := range header {
		if len(values) > 0 {
			added[http.CanonicalHeaderKey(name)] = slices.Clone(values)
		}
	}
	c := *client
	c.Transport = &withHeader{cmp.Or(client.Transport, http.DefaultTransport), added}
	return &c
}

// withHeader is the RoundTripper of such a client.
type withHeader struct {
	http.RoundTripper
	header http.Header // each name has at least one value
}

// RoundTrip sends a copy of the request that has the fields.
func (t *withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range t.header {
		switch {
		case name == "Host": // net/http keeps it outside the header
			r.Host = values[0]
		case r.Header[name] == nil:
			r.Header[name] = values
		}
	}
	return t.RoundTripper.RoundTrip(r)
}

// ==== Bounds and protection ====

// ---- Guard: what is checked before each HTTP request is handled ----

// Guard checks each HTTP request before an http.Handler of this package reads its body.
// StreamableHandler and SSEHandler embed one.
//
// The zero Guard lets in every program that can connect to the listener. Of web pages it lets
// in only those of loopback origins, such as http://localhost:3000. So listen on a loopback
// address, or set Authenticate.
//
// These are the checks, in this order. The first one that a request does not pass answers it:
//
//	check         passes if                                                                      otherwise
//	Origin        it is missing, is a loopback origin, or is one of Origins                      403
//	Host          it is a loopback host or one of Hosts, or the connection is not to loopback    403
//	preflight     it is no OPTIONS of a browser before its request; one for a page of Origins    204, and the browser goes on
//	              is answered here
//	fields        Authorization, Content-Encoding and Content-Type come at most once             400
//	              there are at most 256 of them, with 16 KiB                                     431
//	Authenticate  it is nil, or returns no error                                                 401, or as an AuthError says
//
// # Time-outs and middleware
//
// Set ReadTimeout of the http.Server, to half a minute for instance. Without it a client may
// take any time to send a body, and its bytes take up memory meanwhile. The other time-outs
// should be two seconds or longer, because a response may wait a second before it begins. They
// do not end a stream, which sets its own deadlines.
//
// Middleware may wrap the http.ResponseWriter. Then its writer needs the method Unwrap, which
// http.ResponseController calls. If it has only Flush, a stream ends with the WriteTimeout of
// the server. If it has neither, like that of http.TimeoutHandler, there are no streams: a call
// is answered without its progress, and a GET is refused. In both cases the log warns once.
//
// If a client sends more bytes after its request, net/http does not notice when the client
// closes the connection. Then a handler without a session is not cancelled.
type Guard struct {
	// Origins are the origins that are let in besides those of loopback hosts, such as
	// https://app.example.com. The pages of these origins, and no others, get CORS headers. The
	// preflight of any other page is refused, even if its origin is a loopback host. 2025-11-25
	// basic/transports#security-warning: "Servers MUST validate the Origin header on all
	// incoming connections to prevent DNS rebinding attacks". Write an origin exactly as a
	// browser sends it: without a final slash, a default port or a *.
	Origins []string
	// Hosts are the values of Host that are let in besides loopback names, if the connection
	// came to a loopback TCP address: a proxy on the same machine may pass on the name that the
	// client has used. A value without a port stands for all ports. A value has no scheme, no
	// slash and no *.
	Hosts []string
	// OriginsName and HostsName are what an error calls Origins and Hosts, such as the names of
	// the flags that set them, when it says where to list a missing value. If they are "", they
	// are Guard.Origins and Guard.Hosts.
	OriginsName, HostsName string
	// Authenticate returns the user who has sent the request. If it returns an *AuthError, that
	// says how the request is answered; any other error is a 401. A stream, and a call in a
	// session, goes on when its user could not authenticate any more. Two users must not get
	// the same principal: each of them could use the sessions of the other. Authenticate is
	// called for each request, by several goroutines at the same time. If it is nil, every
	// request is let in, with the principal "".
	Authenticate func(*http.Request) (principal string, err error)
	// MaxHeld is how many bytes may be in use at once, for all clients together: of bodies, of
	// which each byte counts twice, of answers, and of what streams have to write. It is at
	// least 8 times MaxBody. What is kept for clients that come back is not among them. Fair
	// shares between users are left to the program and its proxy, which know who the users are.
	// 0: 64 MiB.
	MaxHeld   int64
	MaxBody   int64         // the most bytes of a POST; 0: 4 MiB
	KeepAlive time.Duration // how long a stream is silent before a comment is sent; 0: 15 s, negative: no comments are sent
	Log       *slog.Logger  // nil: silent
}

// AuthError is an error of Guard.Authenticate. It says how the request is answered.
type AuthError struct {
	Status    int    // 401, or 403 if the token lacks a scope; 0: 401
	Challenge string // the value of WWW-Authenticate; "": Bearer
}

func (e *AuthError) Error() string { return "not authorized: " + e.Challenge }

// Wrap returns an http.Handler that makes the checks of the Guard before those of next. It is
// for one that stands beside the MCP endpoint, such as one for metadata.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := g.admit(w, r); ok {
			next.ServeHTTP(w, r)
		}
	})
}

// admit makes the checks of the Guard. If it returns false, it has answered the request.
func (g *Guard) admit(w http.ResponseWriter, r *http.Request) (principal string, ok bool) {
	if len(g.Origins) > 0 {
		w.Header().Add("Vary", "Origin") // a cache must not give the response of one origin to another
	}
	if reason := g.checkOrigin(r); reason != "" {
		g.refuse(w, r, http.StatusForbidden, ID{}, reason)
		return "", false
	}
	if reason := g.checkHost(r); reason != "" {
		g.refuse(w, r, http.StatusForbidden, ID{}, reason)
		return "", false
	}
	if g.hasListedOrigin(r) {
		letPageRead(w.Header(), r)
		if r.Method == http.MethodOptions { // before Authenticate, because a preflight carries no credentials
			answerPreflight(w, r)
			return "", false
		}
	}
	fields, size := 0, 0
	for name, lines := range r.Header {
		fields += len(lines)
		for _, line := range lines {
			size += len(name) + len(line)
		}
	}
	if fields > maxFields || size > maxHeader {
		g.refuse(w, r, http.StatusRequestHeaderFieldsTooLarge, ID{}, fmt.Sprintf("The header has more than %d fields or %d bytes", maxFields, maxHeader))
		return "", false
	}
	for _, name := range singleFields {
		if len(r.Header[name]) > 1 {
			g.refuse(w, r, http.StatusBadRequest, ID{}, "More than one "+name)
			return "", false
		}
	}
	return g.authenticate(w, r)
}

// singleFields say who has sent the request, and how its body is to be read. A request that
// repeats one of them is refused: a proxy may have checked the one line, and we would read the
// other. 2025-11-25 basic/authorization#error-handling has 400 for a "Malformed authorization
// request".
var singleFields = []string{"Authorization", "Content-Encoding", "Content-Type"}

// checkOrigin returns the reason why the Origin of a request is not let in; "": it is. Browsers
// send this field, other programs do not. 2025-11-25 basic/transports#security-warning: "If the
// Origin header is present and invalid, servers MUST respond with HTTP 403 Forbidden."
func (g *Guard) checkOrigin(r *http.Request) (reason string) {
	origins := r.Header["Origin"]
	switch {
	case len(origins) == 0 || g.hasListedOrigin(r):
		return ""
	case len(origins) > 1:
		return "More than one Origin"
	case isLoopbackOrigin(origins[0]) && !isPreflight(r):
		return ""
	}
	// The preflight of a page on a loopback host fails here, too: the page gets no CORS
	// headers, and this error tells its author how to get them.
	return notAllowed("Origin", origins[0], cmp.Or(g.OriginsName, "Guard.Origins"))
}

// hasListedOrigin reports whether a request comes from a page of one of Origins.
func (g *Guard) hasListedOrigin(r *http.Request) bool {
	origins := r.Header["Origin"]
	return len(origins) == 1 && slices.ContainsFunc(g.Origins, func(listed string) bool { return strings.EqualFold(listed, origins[0]) })
}

// isLoopbackOrigin reports whether a loopback host has served the page of this origin.
func isLoopbackOrigin(origin string) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	return (scheme == "http" || scheme == "https") && isAllowedHost(host, nil)
}

// isPreflight reports whether a browser asks if a page may send a request: Fetch standard,
// CORS-preflight request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header["Access-Control-Request-Method"] != nil
}

// checkHost returns the reason why the Host of a request is not let in; "": it is. It protects
// a server that only programs on this machine are meant to reach. In a DNS rebinding attack, a
// page of evil.example has the browser connect to 127.0.0.1 under the name evil.example. This
// name is then in Host.
func (g *Guard) checkHost(r *http.Request) (reason string) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	isLoopback := local != nil && local.IP.IsLoopback()
	if !isLoopback || isAllowedHost(r.Host, g.Hosts) {
		return ""
	}
	return notAllowed("Host", r.Host, cmp.Or(g.HostsName, "Guard.Hosts"))
}

// isAllowedHost reports whether host is a loopback address or localhost, with or without a
// port, or one of listed. It returns false for a text that is more than a host and a port, such
// as localhost:1@evil.example.
func isAllowedHost(host string, listed []string) bool {
	address, err := netip.ParseAddrPort(host)
	if err == nil && address.Addr().IsLoopback() && address.Addr().Zone() == "" {
		return true // most requests have such a host, and url.Parse is slow
	}
	u, err := url.Parse("http://" + host)
	if err != nil || u.Host != host {
		return false
	}
	name := strings.TrimSuffix(host, ":"+u.Port())
	if strings.EqualFold(name, "localhost") || net.ParseIP(u.Hostname()).IsLoopback() {
		return true
	}
	return slices.ContainsFunc(listed, func(allowed string) bool {
		return strings.EqualFold(allowed, host) || strings.EqualFold(allowed, name)
	})
}

// notAllowed returns an error text for the author of a page, or for the user who runs the
// server. The value is quoted and cut, because it comes from the client: it may be long, and it
// may hold characters that move the cursor of a terminal.
func notAllowed(field, value, list string) string {
	return fmt.Sprintf("%s not allowed: %.100q; to allow it, use %s", field, value, list)
}

// isForeignLoad reports whether a page of another origin loads a URL as an image, in a frame,
// or in another way in which a browser sends no Origin with a GET. W3C, Fetch Metadata,
// Sec-Fetch-Site: a client that is no browser does not send the field, and none means that the
// user has typed the address.
func isForeignLoad(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header["Origin"] == nil && (site == "cross-site" || site == "same-site")
}

// letPageRead lets the page that has sent a request read the response, and two fields of its
// header. By default the browser does not allow that: Fetch standard, CORS protocol.
func letPageRead(header http.Header, r *http.Request) {
	header.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
}

// answerPreflight tells a browser which requests a page may send. Each tool chooses the names
// of its Mcp-Param fields, so every such field that the browser asks for is allowed. The list
// has at most 64 names.
func answerPreflight(w http.ResponseWriter, r *http.Request) {
	allowed := []string{"Content-Type", "Authorization", "Mcp-Session-Id", "MCP-Protocol-Version", "Last-Event-ID", "Mcp-Method", "Mcp-Name"}
	requested := strings.Join(r.Header.Values("Access-Control-Request-Headers"), ",")
	for name := range strings.SplitSeq(requested, ",") {
		name = strings.TrimSpace(name)
		isParam := strings.HasPrefix(strings.ToLower(name), "mcp-param-")
		if isParam && len(allowed) < 64 {
			allowed = append(allowed, name)
		}
	}
	header := w.Header()
	header.Set("Access-Control-Allow-Headers", strings.Join(allowed, ", "))
	header.Set("Access-Control-Allow-Methods", "GET, POST, DELETE")
	header.Set("Access-Control-Max-Age", "600") // seconds
	w.WriteHeader(http.StatusNoContent)
}

// authenticate calls Authenticate. If it returns false, it has answered the request.
func (g *Guard) authenticate(w http.ResponseWriter, r *http.Request) (principal string, ok bool) {
	if g.Authenticate == nil {
		return "", true
	}
	principal, err := g.Authenticate(r)
	if err == nil {
		return principal, true
	}
	status := http.StatusUnauthorized
	challenge := "Bearer"
	if fault, ok := errors.AsType[*AuthError](err); ok && fault != nil {
		status = cmp.Or(fault.Status, status)
		challenge = cmp.Or(fault.Challenge, challenge)
	}
	w.Header().Set("WWW-Authenticate", challenge)
	g.refuse(w, r, status, ID{}, "Not authorized")
	return "", false
}

// refuse answers a request with a status and a JSON-RPC error response. Its code is
// CodeInternalError for a status of 500 or more, and else CodeInvalidRequest. id is that of the
// JSON-RPC request; the zero ID: it is not known.
func (g *Guard) refuse(w http.ResponseWriter, r *http.Request, status int, id ID, reason string) {
	code := CodeInvalidRequest
	if status >= http.StatusInternalServerError {
		code = CodeInternalError
	}
	g.reject(w, r, status, id, &Error{Code: code, Message: reason})
}

// reject does what refuse does, with an Error of the caller.
func (g *Guard) reject(w http.ResponseWriter, r *http.Request, status int, id ID, fault *Error) {
	g.log().Info("refused", "status", status, "reason", brief(fault.Message), "method", brief(r.Method), "path", brief(r.URL.Path), "from", r.RemoteAddr)
	writeJSON(w, status, Payload{Messages: []*Message{NewResponse(id, nil, fault)}})
}

// log returns Log, or a logger that drops everything.
func (g *Guard) log() *slog.Logger { return cmp.Or(g.Log, silent) }

// silence returns how long a stream is silent before a comment is sent; 0: no comments are
// sent.
func (g *Guard) silence() time.Duration {
	switch {
	case g.KeepAlive == 0:
		return 15 * time.Second
	case g.KeepAlive < 0:
		return 0
	}
	return g.KeepAlive
}

const noFlush = "No stream: this server's middleware has neither Unwrap nor Flush"

// canStream reports whether a response can be flushed. If it cannot, the log says so, once for
// each http.Handler: everything else works, so the reason would be hard to find.
func (g *Guard) canStream(w http.ResponseWriter, warned *atomic.Bool) bool {
	can := canFlush(w)
	if !can && warned.CompareAndSwap(false, true) {
		g.log().Warn("no streams", "reason", noFlush, "writer", fmt.Sprintf("%T", w))
	}
	return can
}

// canFlush reports whether http.ResponseController finds a way to flush. http.TimeoutHandler
// has none, nor have wrappers with neither an Unwrap method nor a Flush method.
func canFlush(w http.ResponseWriter) bool {
	for {
		switch wrapper := w.(type) {
		case http.Flusher, interface{ FlushError() error }:
			return true
		case interface{ Unwrap() http.ResponseWriter }:
			w = wrapper.Unwrap()
		default:
			return false
		}
	}
}

// writeJSON answers a request with a payload.
func writeJSON(w http.ResponseWriter, status int, p Payload) {
	writeParts(w, status, [][]byte{p.Append(nil)})
}

// writeParts answers a request with JSON in several parts. A 503 asks the client to try again
// after five seconds.
func writeParts(w http.ResponseWriter, status int, parts [][]byte) {
	size := 0
	for _, part := range parts {
		size += len(part)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	extendDeadline(w, size)
	w.WriteHeader(status)
	for _, part := range parts {
		if _, err := w.Write(part); err != nil {
			return // the client has gone, and the response is not missed
		}
	}
}

// accepted answers a request with 202.
func accepted(w http.ResponseWriter) {
	extendDeadline(w, 0)
	w.WriteHeader(http.StatusAccepted)
}

// extendDeadline sets the deadline for the write of some bytes, whatever the WriteTimeout of
// the server. A client that does not take them in time loses its connection, because they are
// in use until then.
func extendDeadline(w http.ResponseWriter, size int) {
	wait := stall + time.Duration(size/slowest)*time.Second
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(wait)) // some writers cannot
}

// limitWrite sets the deadline for a write of text, and of what a follower has taken. Between
// two writes there is none: HTTP/2 would reset the stream when the deadline passes, and the
// WriteTimeout of the server must not end the stream.
func (s *Stream) limitWrite(text []byte, f *follower) {
	size := len(text)
	for _, e := range f.batch {
		size += e.size()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.follower == f {
		extendDeadline(f.w, size)
	} else {
		f.hurry()
	}
}

// await waits until something has changed, or the client has gone. After a long silence it
// returns a comment that is to be written: proxies cut a connection on which nothing is sent.
func (s *Stream) await(changed <-chan struct{}, r *http.Request) (comment []byte) {
	var silence <-chan time.Time // nil: that may take for ever
	if s.keepAlive > 0 {
		silence = time.After(s.keepAlive)
	}
	select {
	case <-changed:
	case <-r.Context().Done():
	case <-silence:
		return []byte(": keep-alive\n\n")
	}
	return nil
}

// hurry gives a second to a follower that another one has displaced: its client may have
// stopped reading, and its bytes are not counted any more. The caller holds the mutex of the
// stream.
func (f *follower) hurry() {
	_ = http.NewResponseController(f.w).SetWriteDeadline(time.Now().Add(time.Second)) // some writers cannot
}

// clearDeadlines removes the deadlines that net/http has set: a ReadTimeout would look like a
// client that has gone.
func clearDeadlines(w http.ResponseWriter) {
	rc := http.NewResponseController(w)
	_ = rc.SetReadDeadline(time.Time{})
	_ = rc.SetWriteDeadline(time.Time{})
}

// readPayload reads the payload of a POST. If it returns false, it has answered the request. It
// insists on application/json for safety: a browser lets every page POST text/plain to every
// origin, without a preflight. The caller releases what the payload has used.
func (g *Guard) readPayload(w http.ResponseWriter, r *http.Request, used *counter) (in Payload, ok bool) {
	if !isMedia(r.Header.Get("Content-Type"), "application/json") {
		g.refuse(w, r, http.StatusUnsupportedMediaType, ID{}, "Content-Type must be application/json")
		return Payload{}, false
	}
	coding := r.Header.Get("Content-Encoding")
	if coding != "" && coding != "identity" {
		g.refuse(w, r, http.StatusUnsupportedMediaType, ID{}, "Content-Encoding is not supported")
		return Payload{}, false
	}
	limit := g.maxBody()
	body := &reservation{of: used}
	text, err := readBody(&countingReader{Reader: r.Body, used: body}, r.ContentLength, limit)
	if err == nil {
		in = Decode(text)
		in.used = body
		return in, true
	}
	body.release()
	switch err {
	case error(errNoMemory):
		g.refuse(w, r, http.StatusServiceUnavailable, ID{}, errNoMemory.Message)
	case ErrTooLarge:
		g.refuse(w, r, http.StatusRequestEntityTooLarge, ID{}, fmt.Sprintf("Message larger than %d bytes", limit))
	default:
		g.refuse(w, r, http.StatusBadRequest, ID{}, "The body could not be read")
	}
	return Payload{}, false
}

// several is how many of the largest bodies may be in use, with their answers.
const several = 8

// maxBody returns how many bytes a POST may have. A product of it must not overflow.
func (g *Guard) maxBody() int64 { return min(cmp.Or(g.MaxBody, 4<<20), math.MaxInt64/several) }

// readBody reads a body. size is its Content-Length; -1: the sender has not said it. A body of
// more than limit bytes is the error ErrTooLarge.
func readBody(r io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	body, err := io.ReadAll(io.LimitReader(r, limit+1)) // if there is one more byte, the body is too large
	if int64(len(body)) > limit {
		err = ErrTooLarge
	}
	return body, err
}

// isMedia reports whether a Content-Type is a media type, with any parameters. A parameter that
// is malformed does no harm, because we read none.
func isMedia(header, kind string) bool {
	if header == kind {
		return true
	}
	media, _, err := mime.ParseMediaType(header)
	return media == kind && (err == nil || err == mime.ErrInvalidMediaParameter)
}

// accepts reports whether an Accept header allows a media type. The header may have several
// lines; if it names no media range, it allows all types. RFC 9110, section 12.5.1: the most
// specific range that fits the type decides, and a weight of 0 means "not acceptable". Other
// weights make no difference here.
//
//	Accept: */*;q=0, application/json      JSON is allowed, all else is not
func accepts(lines []string, kind string) bool {
	family, _, _ := strings.Cut(kind, "/")
	isEmpty, allowed, best := true, false, 0
	for element := range strings.SplitSeq(strings.Join(lines, ","), ",") {
		name, params, _ := strings.Cut(element, ";")
		name = strings.ToLower(strings.TrimSpace(name))
		isEmpty = isEmpty && name == ""
		specific := 0 // the type is not in the range
		switch name {
		case kind:
			specific = 3
		case family + "/*":
			specific = 2
		case "*/*":
			specific = 1
		}
		if specific > best {
			best, allowed = specific, false
		}
		if specific > 0 && specific == best { // of two equal ranges, one that allows it is enough
			allowed = allowed || !hasZeroWeight(params)
		}
	}
	return allowed || isEmpty
}

// hasZeroWeight reports whether the parameters of a media range have a q of 0, such as q=0 or
// q=0.000.
func hasZeroWeight(params string) bool {
	for param := range strings.SplitSeq(params, ";") {
		name, weight, _ := strings.Cut(strings.TrimSpace(param), "=")
		isZero := weight != "" && strings.Trim(weight, "0.") == ""
		if isZero && strings.EqualFold(name, "q") {
			return true
		}
	}
	return false
}

// ---- Bounds: how much all clients together may have ----

// wasFull reports whether something has found no room since the last call of wasFull.
func (c *counter) wasFull() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	refused := c.refused
	c.refused = false
	return refused
}

// isShort reports whether less than a quarter of the limit is left.
func (c *counter) isShort() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken > c.limit/4*3
}

// wasFull reports whether a request has found no room since the last call of wasFull.
func (h *service) wasFull() bool {
	requests, bytes := h.running.wasFull(), h.used.wasFull()
	return requests || bytes
}

const (
	stall   = 30 * time.Second // how long one write may take, beside a second for each of these bytes
	slowest = 64 << 10

	eventOverhead = 256 // bytes that an event costs beside its data

	// maxServed is how many requests an http.Handler serves at once. One that only waits costs
	// about 50 KB, most of it for its connection, so all of them cost 150 MB.
	maxServed = 3 * maxInFlight

	// maxFields is how many header fields a request may have. A call keeps them. Short ones
	// take up to 20 times their bytes, so 64 KiB of them would take 1.2 MB.
	maxFields = 256
	// maxHeader is how many bytes they may have, as in Node: 7,000 requests and subscriptions
	// keep 115 MB of them at most.
	maxHeader = 16 << 10

	// maxConversations is how many conversations of HTTP+SSE there may be. Each of them costs
	// about 50 KB, too.
	maxConversations = 1000

	// defaultUsed is how many bytes may be in use: bodies until their results are encoded,
	// answers and events until they are written. Eight of the largest bodies fit in. 200
	// clients that echo 4 MiB each, and read nothing, cost 220 MB: the garbage collector lets
	// memory grow to twice of what is in use.
	defaultUsed = 64 << 20

	// maxKept is how many bytes all sessions together keep for clients that come back: what ten
	// sessions keep that have 4 MiB each. 2,000 clients that read no progress, of which all of
	// it is kept, cost 240 MB with their connections; with 64 MiB, 290 MB.
	maxKept = 40 << 20
)

// maxUsed returns how many bytes may be in use: enough for several of the largest bodies with
// their answers, whatever MaxBody is.
func (g *Guard) maxUsed() int64 {
	return max(cmp.Or(g.MaxHeld, defaultUsed), several*g.maxBody())
}

// encode encodes a result. From now on used has its bytes, instead of what it had before: small
// calls may have large answers. A result that knows its size is counted before it is encoded.
// Only a few of these are encoded at a time, because that needs several times their memory.
func (h *service) encode(result any, used *reservation) (json.RawMessage, error) {
	size := 0
	if r, ok := result.(interface{ textSize() int }); ok {
		size = counted(r.textSize())
	}
	if !used.set(&used.results, size) {
		return nil, errNoMemory
	}
	if size > 0 {
		h.encoders <- struct{}{}
		defer func() { <-h.encoders }()
	}
	raw, err := marshalObject(result)
	if !used.set(&used.results, counted(len(raw))) { // it has more, such as escapes and embedded resources
		return nil, errNoMemory
	}
	return raw, err
}

// countingReader reads a body, and takes its bytes while they come: a client may announce much
// and send nothing. Each byte counts twice, because the handler decodes it.
type countingReader struct {
	io.Reader
	used *reservation
	read int
}

// Read returns errNoMemory if there is no room for what has come.
func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.read += n
	if !r.used.set(&r.used.text, 2*counted(r.read)) {
		return 0, errNoMemory
	}
	return n, err
}

// answersIn returns how many answers a payload gets. What is no message gets one, too. A
// JSON-RPC response or a notification gets none, so it never waits for requests: they may be
// waiting for it.
func answersIn(in Payload) (n int) {
	for _, m := range in.Messages {
		if m.Kind() == Request || m.Kind() == Invalid {
			n++
		}
	}
	return n
}

// idOf returns the id for an error that is about a whole payload: that of a request, or of an
// Invalid message.
func idOf(in Payload) ID {
	if m := in.Messages[0]; !in.Batch && m.Kind() != Response {
		return m.ID
	}
	return ID{}
}

// hasResponseTo reports whether a payload holds the JSON-RPC response to a request.
func hasResponseTo(in Payload, id ID) bool {
	return slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Kind() == Response && m.ID == id })
}

const (
	// maxSessions is how many sessions there may be. An idle one takes about 1 kB, so all of
	// them take 10 MB. The sweep needs about a millisecond for them.
	maxSessions = 10_000

	// minSilence is how long a session must be silent before it ends, if it was not used after
	// initialize, or before its calls are stopped. A client that was cut off tries to come back
	// more often than that.
	minSilence = time.Minute

	sweepEvery = 30 * time.Second

	keepEnded = 5 * time.Minute // how long the events of a stream that has ended are kept, or up to a minute longer
	maxEnded  = 20_000          // streams that have ended and are kept: what a server with 60 streams a second needs; 10 MB
)

// ---- What a stream keeps ----

const (
	maxUnwritten = 8 << 10 // bytes of a stream that its response has not written, before a sender waits; one event may have more
	maxWrite     = 8 << 10 // bytes of one write; one event may have more
)

func (e sentEvent) isAnswer() bool   { return e.method == "" }
func (e sentEvent) isProgress() bool { return e.method == "notifications/progress" }

// size returns how many bytes the data of the event has, or one more.
func (e sentEvent) size() int { return len(e.text) + len(e.result) + len("}") }

// eventBytes counts the bytes of the events of a stream. An event is in use until it is kept or
// dropped.
type eventBytes struct {
	settled   int64 // number of the last event that is not in use any more: usually written; after a cut, also later ones
	inUse     int   // bytes of events that are in use
	keptBytes int   // bytes of events that are kept

	// The fields below do not change after the first event.
	usedByAll *counter // counts the bytes in use of all streams
	keptByAll *counter // counts the bytes that all streams keep
	countsAll bool     // small results count, too: those of a batch are written together
}

// whenChanged returns a channel that is closed when something has changed. The caller holds mu.
func (s *Stream) whenChanged() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// signal wakes the goroutines that wait for a change: those of senders, and the one that writes
// the response. The caller holds mu.
func (s *Stream) signal() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// onlyAnswers reports whether the buffer has nothing but answers.
func (b *eventBuffer) onlyAnswers() bool {
	return !slices.ContainsFunc(b.events, func(e sentEvent) bool { return !e.isAnswer() })
}

// reserve counts the bytes of an event that is to be added. If all clients together have too
// much in use, it returns false, and counts nothing. It needs no mutex.
func (b *eventBuffer) reserve(e sentEvent) bool { return b.usedByAll.take(b.counted(e)) }

// release undoes reserve. It needs no mutex.
func (b *eventBuffer) release(e sentEvent) { b.usedByAll.give(b.counted(e)) }

// counted returns how many bytes are counted for an event. An error counts nothing if it is
// small: it must find room in the place of an answer that does not.
func (b *eventBuffer) counted(e sentEvent) int {
	if b.countsAll && e.isAnswer() && e.fault == nil {
		return e.size()
	}
	return counted(e.size())
}

// mustWait reports whether the sender of an event has to wait, because much is not written yet.
// While the client is away nothing is in use, so no sender waits. The caller holds mu.
func (s *Stream) mustWait(e sentEvent) bool {
	if f := s.follower; f != nil && !f.hasBegun && (e.isAnswer() || s.buffer.onlyAnswers()) {
		return false // answers in JSON are written after the end, and the first other message begins the response
	}
	return s.buffer.inUse > 0 && s.buffer.inUse+e.size() > maxUnwritten // a single event may be larger
}

// settleThrough ends the use of the events up to the number done. If the client may come back,
// they are kept from now on. These go:
//
//   - all of them, if the client cannot come back, or nothing is kept
//   - the oldest ones of this stream, if all streams together keep too much
//   - the oldest ones, if this stream alone keeps too much. Its newest one stays even if that
//     one is too much: a client that comes back at once gets a large answer.
//
// Later events stay for now, because a response is still to write them.
func (b *eventBuffer) settleThrough(done int64) {
	for b.settled < done {
		e := b.events[b.settled+1-b.first()]
		isKept := b.keep > 0 && b.keptByAll.take(e.size()+eventOverhead)
		if !isKept && b.keptBytes > 0 {
			b.dropOldest()
			continue
		}
		b.settled++
		b.inUse -= e.size()
		b.release(e)
		if isKept {
			b.keptBytes += e.size() + eventOverhead
		} else {
			b.remove() // it is the oldest one, because nothing is kept
		}
	}
	for b.keptBytes > b.keep && (b.keep == 0 || b.first() < b.settled) && b.first() <= done {
		b.dropOldest()
	}
}

// dropOldest drops the oldest event that is kept.
func (b *eventBuffer) dropOldest() {
	size := b.events[0].size() + eventOverhead
	b.keptBytes -= size
	b.keptByAll.give(size)
	b.remove()
}

// remove takes the oldest event out of the buffer.
func (b *eventBuffer) remove() {
	if !b.events[0].isProgress() {
		b.lostThrough = b.first()
	}
	b.events[0] = sentEvent{}
	b.events = b.events[1:]
	if len(b.events) == 0 {
		b.events = nil
	}
}

// disconnect cuts the connection on purpose: the follower ends when it has written all events,
// and tells the client to come back after retry. The stream goes on. Only 2025-11-25 has this,
// in basic/transports#sending-messages-to-the-server: after an event id has been sent, "the
// server MAY close the connection (without terminating the SSE stream) at any time". In other
// revisions, if nothing is kept, or if the response is over already, disconnect does nothing.
func (s *Stream) disconnect(retry time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.beginsWithID && s.buffer.keep > 0 && s.follower != nil {
		s.follower.farewell = Event{Retry: max(retry, time.Millisecond)}.Append(nil) // with 0, Append would leave it out
		s.signal()
	}
}

// forget drops all events that are written, and keeps nothing from now on. No client can
// continue the stream any more: its session has ended, or does without it.
func (s *Stream) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.buffer.keep = 0
	s.settle()
}

// noteQuestion notes a request of the server, and forgets those that are answered. The caller
// holds mu.
func (s *Stream) noteQuestion(question ID) {
	if question == (ID{}) || s.session == nil {
		return
	}
	if len(s.asked) == cap(s.asked) { // seldom: the capacity doubles
		s.asked = slices.DeleteFunc(s.asked, func(id ID) bool { return s.session.calling(id) == nil })
	}
	s.asked = append(s.asked, question)
}

// failQuestions ends the calls whose questions were sent on a stream that nobody can read any
// more.
func (s *Stream) failQuestions() {
	s.mu.Lock()
	asked := s.asked
	s.asked = nil
	s.mu.Unlock()
	for _, id := range asked {
		s.session.fail(id, errNobody)
	}
}

// appendField appends one line of an event.
func appendField[T string | []byte](b []byte, name string, value T) []byte {
	b = append(b, name...)
	b = append(b, ':')
	if len(value) > 0 {
		b = append(b, ' ')
		b = append(b, value...)
	}
	return append(b, '\n')
}

// ---- Large events, which are not copied ----

// maxCopied is how many bytes of a result may be copied into the text of its message.
const maxCopied = 64 << 10

// newSentEvent returns the event with a message.
func newSentEvent(m *Message) sentEvent {
	e := sentEvent{method: m.Method, fault: m.Error}
	if m.Kind() == Request {
		e.question = m.ID
	}
	if len(m.Result) <= maxCopied {
		e.text = m.append(nil)
		return e
	}
	e.text = append(m.appendStart(nil), `,"result":`...)
	e.result = m.Result
	if bytes.ContainsAny(e.result, "\r\n") { // an event must be one line
		e.result = appendLine(nil, e.result)
	}
	return e
}

// parts returns the data of the event.
func (e sentEvent) parts() [][]byte {
	if e.result == nil {
		return [][]byte{e.text}
	}
	return [][]byte{e.text, e.result, []byte("}")}
}

// appendOrWrite appends an event with its data to text. If the data is large, text and event
// are written instead, and next is what is to be written after them. Such data is not copied:
// many responses may write it, one after another.
func (f *follower) appendOrWrite(text []byte, event Event, e sentEvent) (next []byte, err error) {
	if e.size() <= maxCopied {
		event.Data = e.text
		return event.Append(text), nil
	}
	text = append(bytes.TrimSuffix(event.Append(text), []byte("\n")), "data: "...) // the data follows
	for _, part := range append([][]byte{text}, e.parts()...) {
		if _, err := f.w.Write(part); err != nil {
			return nil, err
		}
	}
	return append(text[:0], "\n\n"...), nil
}

// ---- The sweep ----

// sweepLater sets the timer. If IdleTimeout is short, it is set to a quarter of that. The
// caller holds mu.
func (ss *Sessions) sweepLater() {
	ss.sweeping = true
	time.AfterFunc(min(ss.ttl()/4+time.Millisecond, sweepEvery), ss.sweep)
}

// sweep ends the sessions that have been idle for too long, and those that were not used for a
// minute after initialize. Of the others it forgets the streams that are not to be kept any
// more. As long as there are sessions, it sets the timer again.
//
// If a request has found no room since the last sweep, it also stops the calls of all sessions
// whose clients have gone a minute ago. This is the only way in which a client that has gone,
// and whose session stays, loses a call.
func (ss *Sessions) sweep() {
	var over []*Session
	stopped := map[*Session]int{} // how many calls
	ss.mu.Lock()
	if ss.closed { // Close ends all sessions
		ss.mu.Unlock()
		return
	}
	ss.sweeps.Add(1)
	defer ss.sweeps.Done()
	needsRoom := ss.wasFull != nil && ss.wasFull()
	for _, s := range ss.byID {
		isSilent := s.isSilent(minSilence)
		switch {
		case s.hasEnded(), isSilent && !s.isUsed:
			ss.remove(s)
			over = append(over, s)
		case isSilent && needsRoom: // under the lock: its client cannot come back meanwhile
			stopped[s] = s.Peer.stopServing()
		}
	}
	ss.sweeping = false
	if len(ss.byID) > 0 {
		ss.sweepLater()
	}
	ss.mu.Unlock()
	for _, s := range over {
		ss.end(s, ErrSessionIdle)
	}
	for s, n := range stopped {
		if n > 0 {
			s.log.Warn("stopped the calls of a silent session, because a request found no room", "session", s.Tag(), "calls", n)
		}
	}
	ss.forgetEnded()
}
