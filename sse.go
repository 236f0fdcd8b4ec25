// SPDX-License-Identifier: 0BSD
// sse.go of mcpwire 0.2.0, which is made to be copied.

package main

// Server-sent events, what all HTTP shares, and the oldest transport of MCP:
// HTTP+SSE of 2024-11-05. There, a GET opens a stream of events. The first event
// says where the client sends its messages, each as a POST. All messages of the
// server come as events of the stream:
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
//
// To see it work, read lessons 06, 09 and 29 of the course: testdata/README.md.
//
// This file has five parts. For Streamable HTTP read Events, Streams and Guard first;
// HTTP+SSE is only for old clients and servers.
//
//	Events     one event as text, and back
//	Streams    Stream, which one response at a time follows, and the outbox that keeps what was sent
//	Guard      what is checked before every handler of HTTP; bodies; Accept
//	Bounds     how much all clients together may have: the counter, and what is counted
//	HTTP+SSE   SSEHandler and SSEDialer, and at the end what both clients share: POSTs, HTTPError, redirects, WithHeader
//
// The words of this file and of http.go:
//
//	response   the HTTP response
//	answer     as in jsonrpc.go: what an HTTP response carries to answer a request or a batch
//	stream     a sequence of events with numbers; one response carries it, and after a cut the next one
//	follower   the response that carries a stream at this time
//	outbox     all streams of one client, and the events that are kept
//	kept       a client that comes back can still get it
//	in use     its bytes are counted: a body, an answer, or what a stream has to write
//	place      the right to run one request
//
// Source: 2024-11-05 basic/transports#http-with-sse; 2025-11-25
// basic/transports#resumability-and-redelivery and #security-warning; WHATWG HTML
// server-sent-events#parsing-an-event-stream and #event-stream-interpretation. Copy
// this file with jsonrpc.go and session.go for the oldest transport, and with http.go
// for Streamable HTTP.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
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
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ---- Events ----

// Event is one server-sent event.
type Event struct {
	// Type is the type of the event. An event that is read without one has the
	// type "message". To write an event of that type, leave Type empty.
	Type string
	// ID is the id of the event. An event that is read without one has the id of
	// the event before it.
	ID string
	// Data is what the event carries. If it is nil, the event has no data field,
	// which is not the same as an empty one. A browser drops such an event. It is
	// read here, because its ID and its Retry count.
	Data []byte
	// Retry is how long a client is to wait before it connects again, in
	// milliseconds on the wire; 0: the event does not say.
	Retry time.Duration
}

// Append appends the event to b, as it is written on the wire. Data may hold any
// bytes: each of its lines becomes a data field, so a CR and a CRLF are read back
// as an LF. A Type or an ID that does not fit on one line is left out.
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

// isMessage reports whether an event carries a message of MCP. An event whose data is
// empty only tells its id.
func (e Event) isMessage() bool { return e.Type == "message" && len(e.Data) > 0 }

// ReadEvents returns the events that r holds. It reads from r only while the
// caller ranges over them, which can be done once. If reading fails, the error is
// yielded last; the end of r is no error. If an event has more than max bytes, the
// error is ErrTooLarge. If r ends within an event, that event is dropped; only its
// Retry is still yielded, in an event without data.
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
	max     int    // bytes of an event: its data so far and the line that is read next
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
		line, err := in.readLine(in.max - len(e.Data))
		switch {
		case err != nil && err != ErrTooLarge && e.Retry > 0:
			// The stream is cut off within this event. The standard drops the event,
			// but a retry counts as soon as its line is read.
			return Event{ID: in.id, Retry: e.Retry}, nil
		case err != nil:
			return Event{}, err
		case len(line) > 0:
			e.readField(line)
		case e.Data == nil && e.Retry == 0 && e.ID == in.id:
			// An empty line ends the event, but it has at most a type: the standard
			// drops it.
			e.Type = ""
		default:
			in.id = e.ID
			e.Type = cmp.Or(e.Type, "message")
			e.Data = bytes.TrimSuffix(e.Data, []byte("\n"))
			return e, nil
		}
	}
}

// readField reads one line of an event, such as "data: {}". A line that begins
// with a colon is a comment. It is ignored, and so are fields that the standard
// does not know. As in the standard, Data gets a newline after each line; next
// removes the last one.
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

// parseRetry reads the value of a retry field, which has nothing but digits. A
// number that is too large becomes the largest one, 2^31-1 milliseconds. 0 becomes
// one millisecond, because 0 in an Event means that the field is missing.
func parseRetry(value []byte) (retry time.Duration, ok bool) {
	isNumber := len(value) > 0 && len(bytes.Trim(value, "0123456789")) == 0
	if !isNumber {
		return 0, false
	}
	ms, _ := strconv.ParseUint(string(value), 10, 31) // out of range: the largest number
	return time.Duration(max(ms, 1)) * time.Millisecond, true
}

// readLine returns the next line without its end, which is CR, LF or CRLF. The
// line is valid until the next call. A line of more than max bytes is the error
// ErrTooLarge. If the stream ends within a line, readLine returns io.EOF.
//
// A line that ends with CR is returned at once, although an LF may follow: to
// wait for the next byte could take until the next event.
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
			return in.withoutMark(in.line), nil
		}
	}
}

// withoutMark returns a line. If it is the first one of the stream, withoutMark
// removes a byte order mark from it.
func (in *eventReader) withoutMark(line []byte) []byte {
	if !in.atStart {
		return line
	}
	in.atStart = false
	return bytes.TrimPrefix(line, []byte("\uFEFF"))
}

// ---- Streams ----

const (
	maxUnwritten  = 16 << 10         // bytes that wait for the response that follows a stream; one event may have more
	maxUnfollowed = 64 << 10         // bytes that are sent after a connection has broken, before the sender waits
	awaitReturn   = 5 * time.Second  // how long a sender waits for the client to come back
	keepEnded     = 5 * time.Minute  // how long the events of a stream that has ended are kept, or up to a minute longer
	stall         = 30 * time.Second // how long one write may take; after that the connection is broken
	writeSize     = 16 << 10         // bytes of one write
	slowest       = 64 << 10         // bytes of a large response that a client must read in each second, after the first 30

	eventOverhead = 256 // bytes that an event costs in an outbox beside its text
)

// An outbox has the streams of one client. It keeps what was sent on them, so
// that the client can get it again after its connection has broken. Here 1/2 is the
// second event of stream 1, and stream 0 is the standalone stream:
//
//	            +--------- outbox: of all streams, in the order of sending ---------+
//	Send ---+-->| 1/1   1/2   2/1   1/3   2/2   0/1   2/3                           |
//	        |   +------------------------------------------------------------------+
//	        |        GET with Last-Event-ID: 1/1  |  1/2 and 1/3
//	        |                                     v
//	        +--> follower: what its response has not written yet --> response
//
// An event has the number of its stream, and its own number in that stream. When
// an outbox is full, the oldest events go, those first that matter least:
//
//  1. progress notifications that a later one on the stream, or the answer, has
//     overtaken
//  2. other notifications
//  3. questions, which are requests of the server, and answers
//
// So any number of progress notifications never costs a call its answer. A
// client may continue after any event, as long as nothing that follows it is
// gone, except progress: the answer comes last, and says more.
type outbox struct {
	tag       string        // the ids of all events begin with this
	limit     int           // bytes that are kept; 0: nothing is, and events have no ids
	prime     bool          // 2025-11-25: a response begins with an id, and may end before its stream
	keepAlive time.Duration // how long a response may be silent before a comment is written; 0: for ever
	kept      *counter      // of the handler: bytes of events that are kept
	used      *counter      // of the handler: bytes that wait in the queues of followers
	peer      *Peer         // whose questions fail when no client can read them any more; nil: there are none

	mu         sync.Mutex // guards the fields below, and those of each Stream
	events     []keptEvent
	size       int // bytes in events
	streams    map[string]*Stream
	lastStream int
	closed     bool
}

// keptEvent is one event in an outbox.
type keptEvent struct {
	stream   *Stream
	number   int64
	text     []byte // as it is written
	rank     rank
	question ID // of a request of the server; the zero ID: it is something else
}

// rank says how much an event matters. Those with a low rank are dropped first.
type rank int

const (
	progressRank     rank = iota // a progress notification
	notificationRank             // any other notification
	essentialRank                // a question of the server, or an answer
)

// Stream is a sequence of events, such as those of the response to one POST. One
// HTTP response at a time follows it. If that breaks off, another HTTP response can
// follow the stream from any event that is still kept:
//
//	             Follow               the connection breaks, or Exchange.Disconnect
//	new stream ----------> followed ----------------------------------> unfollowed
//	                          ^                                             |
//	                          +----------------- Follow --------------------+
//
// When a sender waits:
//
//	the stream is     a sender waits when                                for how long
//	followed          16 KiB are not written yet, or 4 KiB if too many   until the client has read, or its
//	                  bytes are in use: so a client that reads slowly    connection has broken
//	                  slows down its own stream alone
//	unfollowed        it has sent 64 KiB since then, or three quarters   5 seconds after the break; then the
//	                  of what is kept if that is less                    outbox drops what has no room
//
// If nothing is kept, a stream that is not followed is lost.
//
// The id of an event is that of its stream, a slash, and the number of the event.
// Numbers begin with 1. The number 0 stands for the beginning of the stream.
type Stream struct {
	id  string
	out *outbox

	// The mutex of the outbox guards the fields below.
	lastSent   int64         // number of the last event that was sent
	lastTaken  int64         // number of the last event that a response has taken
	overtakes  int64         // number of the last progress notification or answer; older progress says nothing new
	lastLost   int64         // number of the last event that is not kept, progress aside
	unread     []keptEvent   // questions that are not kept, and that no response has taken; their calls fail when the follower goes
	asked      []ID          // questions that were sent here; those that are answered may be among them
	keptEvents int           // events in the outbox
	follower   *follower     // the response that follows; nil: none does
	leftAt     time.Time     // when the last follower has gone
	unfollowed int           // bytes that were sent since then
	ended      time.Time     // zero: it goes on
	changed    chan struct{} // closed when something here has changed; nil: no goroutine waits for that
}

// follower is a response that follows a stream. The mutex of the outbox guards
// its fields.
type follower struct {
	queue   [][]byte // what the response has not taken yet
	size    int      // bytes in queue
	leave   []byte   // an event to write after these before it leaves; nil: it stays
	hasLeft bool     // it has taken that

	waiting, writing int // bytes in use that are taken for the queue, and for what it has taken last
}

// NewStream returns a stream with an outbox of its own. keep is how many bytes of
// its events are kept for a client that comes back. Nothing can be sent before a
// response follows the stream. If keep is 0, events have no ids, and a stream whose
// response breaks off is lost. id must be unique among the streams that a client can
// ask for: 2025-11-25 basic/transports#resumability-and-redelivery, an event id
// "MUST be globally unique across all streams within that session".
func NewStream(id string, keep int) *Stream {
	out := &outbox{limit: keep}
	return out.add(id)
}

var (
	errNobody  = fmt.Errorf("no client reads the stream: %w", ErrClosed)
	errNotKept = errors.New("no such event is kept")
)

// newStream returns a stream for a request. When the outbox is closed, the stream
// has ended already.
func (out *outbox) newStream() *Stream {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.lastStream++
	return out.add(out.tag + "." + strconv.Itoa(out.lastStream))
}

// standalone returns the stream for messages that belong to no request; nil: the
// client has not asked for it. If create is true, it is made if there is none.
func (out *outbox) standalone(create bool) *Stream {
	out.mu.Lock()
	defer out.mu.Unlock()
	id := out.tag + ".0"
	if s := out.streams[id]; s != nil || !create {
		return s
	}
	return out.add(id)
}

// add adds a stream. The caller holds mu.
func (out *outbox) add(id string) *Stream {
	s := &Stream{id: id, out: out}
	if out.closed {
		s.ended = time.Now()
		return s
	}
	if out.streams == nil {
		out.streams = map[string]*Stream{}
	}
	out.streams[id] = s
	return s
}

// find returns the stream to which an event belongs; nil: there is none.
func (out *outbox) find(event string) *Stream {
	id, _, _ := strings.Cut(event, "/")
	out.mu.Lock()
	defer out.mu.Unlock()
	return out.streams[id]
}

// close ends all streams, for good.
func (out *outbox) close() {
	out.mu.Lock()
	out.closed = true
	streams := slices.Collect(maps.Values(out.streams))
	out.mu.Unlock()
	for _, s := range streams {
		s.End()
	}
	out.mu.Lock()
	defer out.mu.Unlock()
	out.dropIf(0, func(keptEvent) bool { return true }) // no client can come back
}

// expire drops the events of the streams that have ended before a time.
func (out *outbox) expire(before time.Time) {
	out.mu.Lock()
	defer out.mu.Unlock()
	out.dropIf(0, func(e keptEvent) bool { return !e.stream.ended.IsZero() && e.stream.ended.Before(before) })
}

// makeRoom drops events until there is room for n bytes for an event of a rank. Of
// the events that matter less than an answer it drops more than is needed. So the next
// events find room, and the list is not searched for each of them. The caller holds mu.
func (out *outbox) makeRoom(n int, r rank) {
	if out.size+n <= out.limit {
		return
	}
	out.dropIf(out.afterDropping()-n, keptEvent.isOvertaken)
	out.dropIf(out.afterDropping()-n, func(e keptEvent) bool { return e.rank < essentialRank })
	if r == essentialRank {
		out.dropIf(out.limit-n, func(keptEvent) bool { return true })
	}
}

// keep keeps an event, if there is room, or if dropping events of the same or a lower
// rank makes room. If all sessions together keep too much, only older events of the same
// stream go. The caller holds mu.
func (out *outbox) keep(e keptEvent) {
	size := len(e.text) + eventOverhead
	if out.closed {
		out.lose(e)
		return
	}
	out.makeRoom(size, e.rank)
	if out.size > 0 && out.size+size > out.limit { // responses, which matter more, need all the room
		out.lose(e)
		return
	}
	if !out.kept.take(size) {
		// More goes than is needed, so the list is not searched for each event.
		most := out.size - max(size, out.size/4)
		out.dropIf(most, func(other keptEvent) bool { return other.stream == e.stream })
		if !out.kept.take(size) {
			out.lose(e)
			return
		}
	}
	out.events = append(out.events, e)
	out.size += size
	e.stream.keptEvents++
}

// afterDropping returns how many bytes are kept after makeRoom has dropped some.
func (out *outbox) afterDropping() int { return out.limit * 3 / 4 }

// dropIf drops the events that may be dropped, the oldest first, until no more
// than some bytes are kept. The caller holds mu.
func (out *outbox) dropIf(most int, may func(keptEvent) bool) {
	if out.size <= most || out.size == 0 {
		return
	}
	out.events = slices.DeleteFunc(out.events, func(e keptEvent) bool {
		if out.size <= most || !may(e) {
			return false
		}
		out.drop(e)
		return true
	})
	if len(out.events) == 0 {
		out.events = nil
	}
}

// drop notes that an event is not kept any more. The caller holds mu.
func (out *outbox) drop(e keptEvent) {
	s := e.stream
	out.size -= len(e.text) + eventOverhead
	out.kept.give(len(e.text) + eventOverhead)
	s.keptEvents--
	out.lose(e)
	s.forgetIfOver()
}

// lose notes that an event is not kept. Lost progress does not matter, even if it was
// the newest: the answer comes last, and says more. The caller holds mu.
func (out *outbox) lose(e keptEvent) {
	s := e.stream
	if e.rank != progressRank {
		s.lastLost = max(s.lastLost, e.number)
	}
	if e.question != (ID{}) && e.number > s.lastTaken {
		s.unread = append(s.unread, e)
		if s.follower == nil {
			s.failUnread()
		}
	}
}

// failUnread ends the calls whose questions no client can read: they are not kept,
// and no response has taken them.
func (s *Stream) failUnread() {
	for _, e := range s.unread {
		if e.number > s.lastTaken && s.out.peer != nil {
			s.out.peer.fail(e.question, errNobody)
		}
	}
	s.unread = nil
}

// failAsked ends all calls whose questions were sent on this stream.
func (s *Stream) failAsked() {
	s.out.mu.Lock()
	asked := s.asked
	s.asked = nil
	s.out.mu.Unlock()
	for _, id := range asked {
		s.out.peer.fail(id, errNobody)
	}
}

// noteAsked notes a question, and forgets those that are answered. The caller holds the
// mutex of the outbox.
func (s *Stream) noteAsked(question ID) {
	if question == (ID{}) || s.out.peer == nil {
		return
	}
	if len(s.asked) == cap(s.asked) { // seldom: the capacity doubles
		s.asked = slices.DeleteFunc(s.asked, func(id ID) bool { return s.out.peer.calling(id) == nil })
	}
	s.asked = append(s.asked, question)
}

// isOvertaken reports whether an event says nothing that a later one does not say.
func (e keptEvent) isOvertaken() bool {
	return e.rank == progressRank && (e.number < e.stream.overtakes || !e.stream.ended.IsZero())
}

// forgetIfOver takes a stream that has ended out of the outbox, if the client
// cannot ask for its events any more.
func (s *Stream) forgetIfOver() {
	if !s.ended.IsZero() && s.keptEvents == 0 && s.out.streams[s.id] == s {
		delete(s.out.streams, s.id)
	}
}

// Send sends an event with this data. It waits as the comment on Stream says, or
// until ctx ends. It returns an error that wraps ErrClosed if the stream has
// ended, or if no client can read it any more.
func (s *Stream) Send(ctx context.Context, data []byte) error {
	return s.push(ctx, outgoing{event: Event{Data: data}})
}

// outgoing is what becomes an event: a message, a batch, or an event that holds no
// message.
type outgoing struct {
	message *Message   // nil: it is no single message
	batch   []*Message // nil: it is no batch
	event   Event      // without an ID; of a message or a batch only the Type counts
	taken   *int       // bytes in use that its sender has taken for it, and that the queue takes over; nil: none
}

// rank returns how much the event matters.
func (o outgoing) rank() rank {
	switch {
	case o.message == nil:
		return notificationRank
	case o.message.Kind() != Notification:
		return essentialRank
	case o.message.Method == "notifications/progress":
		return progressRank
	}
	return notificationRank
}

// question returns the id of a request of the server; the zero ID: it is
// something else.
func (o outgoing) question() ID {
	if o.message != nil && o.message.Kind() == Request {
		return o.message.ID
	}
	return ID{}
}

// size returns about how many bytes the event has.
func (o outgoing) size() int {
	if o.message != nil {
		return messageSize(o.message)
	}
	size := len(o.event.Data)
	for _, m := range o.batch {
		size += messageSize(m)
	}
	return size
}

// encode returns the event as it is written. The JSON of a message is one line, so
// it needs no copy for Event.Append.
func (o outgoing) encode(id string) []byte {
	text := make([]byte, 0, len(id)+o.size()+256) // more than is needed: a large message must not be copied twice
	if o.message == nil && o.batch == nil {
		o.event.ID = id
		return o.event.Append(text)
	}
	if o.event.Type != "" {
		text = appendField(text, "event", o.event.Type)
	}
	if id != "" {
		text = appendField(text, "id", id)
	}
	text = append(text, "data: "...)
	if o.message != nil {
		text = o.message.append(text)
	} else {
		text = Payload{Messages: o.batch, Batch: true}.Append(text)
	}
	return append(text, "\n\n"...)
}

func (s *Stream) send(ctx context.Context, m *Message) error {
	return s.push(ctx, outgoing{message: m})
}

func (s *Stream) push(ctx context.Context, o outgoing) error {
	for {
		changed, wait, err := s.tryPush(o)
		if err != nil || changed == nil {
			return err
		}
		var waited <-chan time.Time
		if wait > 0 {
			waited = time.After(wait)
		}
		select {
		case <-changed:
		case <-waited:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// tryPush sends an event, unless the sender has to wait first: until changed is
// closed, or wait has passed; 0: only changed ends the wait.
func (s *Stream) tryPush(o outgoing) (changed <-chan struct{}, wait time.Duration, err error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	f := s.follower
	switch {
	case !s.ended.IsZero() || f == nil && !s.isResumable():
		return nil, 0, errNobody
	case f == nil && s.unfollowed > 0 && s.unfollowed+s.cost(o) > min(maxUnfollowed, s.out.afterDropping()):
		wait = awaitReturn - time.Since(s.leftAt)
		if wait > 0 {
			return s.whenChanged(), wait, nil
		}
	case f == nil: // the outbox keeps it
	case f.size > 0 && f.size+o.size() > maxUnwritten:
		return s.whenChanged(), 0, nil
	case s.takeFor(f, o):
	case f.size > 0: // until the client has read what waits for it, as above
		return s.whenChanged(), 0, nil
	case o.rank() == progressRank: // the answer says more
		return nil, 0, nil
	default:
		return nil, 0, errNoMemory
	}
	s.append(o)
	return nil, 0, nil
}

// takeFor takes the bytes in use for an event that is going to wait in the queue. It
// first takes over what the sender has taken for the event. The first 4 KiB of the queue
// are not counted.
func (s *Stream) takeFor(f *follower, o outgoing) bool {
	bySender := 0
	if o.taken != nil {
		bySender = *o.taken
	}
	more := max(f.size+o.size()-countFrom-f.waiting-bySender, 0)
	if !s.out.used.take(more) {
		return false
	}
	f.waiting += bySender + more
	if o.taken != nil {
		*o.taken = 0
	}
	return true
}

// cost returns how many bytes an event needs in the outbox, or a few more.
func (s *Stream) cost(o outgoing) int { return len(s.id) + o.size() + 64 + eventOverhead }

// append gives an event to the follower, and to the outbox. The caller holds the
// mutex of the outbox.
func (s *Stream) append(o outgoing) {
	s.lastSent++
	id := ""
	if s.out.limit > 0 {
		id = s.eventID(s.lastSent)
	}
	text := o.encode(id)
	e := keptEvent{s, s.lastSent, text, o.rank(), o.question()}
	s.noteAsked(e.question)
	if e.rank == progressRank || e.rank == essentialRank && e.question == (ID{}) {
		s.overtakes = s.lastSent
	}
	if s.out.limit > 0 {
		s.out.keep(e)
	}
	if s.follower == nil {
		s.unfollowed += len(text) + eventOverhead
		return
	}
	s.follower.queue = append(s.follower.queue, text)
	s.follower.size += len(text)
	s.signal()
}

func (s *Stream) eventID(n int64) string { return s.id + "/" + strconv.FormatInt(n, 10) }

// isResumable reports whether a client may come back for what it has not read. It
// may if it knows the id of an event.
func (s *Stream) isResumable() bool { return s.out.limit > 0 && (s.out.prime || s.lastTaken > 0) }

// whenChanged returns a channel that is closed when something has changed. The
// caller holds the mutex of the outbox.
func (s *Stream) whenChanged() <-chan struct{} {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	return s.changed
}

// signal wakes the goroutines that wait for a change.
func (s *Stream) signal() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// End ends the stream. The follower still writes what was sent. End may be called
// more than once.
func (s *Stream) End() {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.ended.IsZero() {
		s.ended = time.Now()
	}
	s.forgetIfOver()
	s.signal()
}

// disconnect ends the response that follows the stream when it has written all
// events. The client is told to come back after retry. The stream goes on. Only
// 2025-11-25 has this, elsewhere disconnect does nothing:
// basic/transports#sending-messages-to-the-server, "the server MAY close the
// connection (without terminating the SSE stream) at any time" after an event id
// has been sent.
func (s *Stream) disconnect(retry time.Duration) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.follower != nil && s.out.polls() {
		s.follower.leave = Event{Retry: max(retry, time.Millisecond)}.Append(nil)
		s.signal()
	}
}

// polls reports whether a response may end before its stream, so that the client
// comes back for the rest.
func (out *outbox) polls() bool { return out.prime && out.limit > 0 }

// Follow writes events to w until the stream ends, the client has gone, or another
// response follows the stream. It begins after the event with the id after. If
// after is "", it begins with the first event that no response has taken. If the
// stream has no such event, or what follows that event is not kept any more, Follow
// returns an error, and has written nothing.
func (s *Stream) Follow(w http.ResponseWriter, r *http.Request, after string) error {
	f, err := s.attach(after)
	if err == nil {
		s.run(f, w, r)
	}
	return err
}

// attach makes a new follower, which takes the place of another one. The caller
// calls run. If the client names no event, and the revision has it, the response
// begins with an id. 2025-11-25 basic/transports#sending-messages-to-the-server:
// "The server SHOULD immediately send an SSE event consisting of an event ID and
// an empty data field".
func (s *Stream) attach(after string) (*follower, error) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	f := new(follower)
	from := s.lastTaken
	switch {
	case after != "":
		var err error
		if from, err = s.position(after); err != nil {
			return nil, err
		}
	case s.out.polls():
		f.add(Event{ID: s.eventID(s.lastTaken), Data: []byte{}}.Append(nil))
	}
	missing, size := s.lastSent-from, 0
	for _, e := range s.out.events {
		if e.stream == s && e.number > from {
			f.add(e.text)
			missing--
			size += len(e.text)
		}
	}
	f.waiting = max(size-countFrom, 0) // the outbox may drop the events while the response still has them
	switch {
	case !s.out.used.take(f.waiting):
		return nil, errNoMemory
	case s.out.limit == 0 && s.follower != nil: // nothing is kept, so the new follower takes over what waits
		f.queue, f.size, f.waiting = s.follower.queue, s.follower.size, s.follower.waiting
		s.follower.queue, s.follower.waiting = nil, 0
	case missing > 0:
		f.queue = slices.Insert(f.queue, 0, fmt.Appendf(nil, ": %d events are no longer kept\n\n", missing))
	}
	s.follower = f
	s.signal() // so that the follower before this one ends
	return f, nil
}

// position returns the number of the event with an id, if the client may continue
// after it.
func (s *Stream) position(id string) (number int64, err error) {
	text, _ := strings.CutPrefix(id, s.id+"/")
	number, _ = strconv.ParseInt(text, 10, 64)
	switch {
	case id != s.eventID(number), !s.isResumable():
		return 0, errNotKept
	case number < 0, number == 0 && !s.out.prime, number > s.lastSent: // no response has had such an id
		return 0, errNotKept
	case number < s.lastLost:
		return 0, errNotKept
	}
	return number, nil
}

func (f *follower) add(event []byte) {
	f.queue = append(f.queue, event)
	f.size += len(event)
}

// appendAll sends messages that were there before the stream. They may be more
// than a sender may send at once.
func (s *Stream) appendAll(messages []*Message) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	for _, m := range messages {
		s.append(outgoing{message: m})
	}
}

// run writes to w what the follower takes, until there is nothing more to take.
func (s *Stream) run(f *follower, w http.ResponseWriter, r *http.Request) {
	defer s.detach(f)
	response := newEventWriter(w)
	defer response.extendDeadline()
	// A proxy may hold the header back until the first byte of the body comes.
	comment := []byte(":\n\n")
	// When the client has gone, nothing more is written. In the modern era
	// nothing more may be sent then.
	for r.Context().Err() == nil {
		events, changed, over := s.take(f)
		if len(events) == 0 && comment != nil {
			events = [][]byte{comment}
		}
		if len(events) > 0 {
			if response.write(events...) != nil {
				return
			}
			comment = nil
			continue
		}
		if over {
			return
		}
		var silence <-chan time.Time
		if s.out.keepAlive > 0 {
			silence = time.After(s.out.keepAlive)
		}
		select {
		case <-changed:
		case <-r.Context().Done():
		case <-silence:
			comment = []byte(": keep-alive\n\n")
		}
	}
}

// take returns the events that the follower writes next. If there are none, either
// it is over, or changed is closed when there may be some.
func (s *Stream) take(f *follower) (events [][]byte, changed <-chan struct{}, over bool) {
	s.out.mu.Lock()
	defer s.out.mu.Unlock()
	if s.follower != f || f.hasLeft {
		return nil, nil, true
	}
	events, f.queue, f.size = f.queue, nil, 0
	s.out.used.give(f.writing) // which are written
	f.writing, f.waiting = f.waiting, 0
	s.lastTaken = s.lastSent
	if len(events) > 0 {
		s.signal() // there is room for more
	}
	if f.leave != nil {
		events = append(events, f.leave)
		f.hasLeft = true
	}
	return events, s.whenChanged(), !s.ended.IsZero()
}

// detach notes that a follower has gone. If the client cannot come back, the
// stream is lost.
func (s *Stream) detach(f *follower) {
	s.out.mu.Lock()
	s.out.used.give(f.waiting + f.writing)
	f.waiting, f.writing = 0, 0
	lost := s.follower == f && !s.isResumable()
	if s.follower == f {
		s.follower, s.leftAt, s.unfollowed = nil, time.Now(), 0
		s.failUnread()
		s.signal()
	}
	s.out.mu.Unlock()
	if lost {
		s.failAsked()
	}
}

// eventWriter writes an event stream as the body of a response.
type eventWriter struct {
	w  http.ResponseWriter
	rc *http.ResponseController // sees through wrappers that have an Unwrap method
}

// newEventWriter begins a response whose body is events. It writes the status, so
// that middleware can log it. Nothing between server and client may hold events
// back: 2026-07-28 basic/transports/streamable-http#receiving-messages asks for
// X-Accel-Buffering.
func newEventWriter(w http.ResponseWriter) *eventWriter {
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	out := &eventWriter{w, http.NewResponseController(w)}
	// A ReadTimeout of the server would look like a client that has gone.
	_ = out.rc.SetReadDeadline(time.Time{})
	return out
}

var writers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, writeSize) }}

// write writes events with one flush. Between two writes there is no deadline:
// HTTP/2 would reset the stream when the deadline passes, and the WriteTimeout of
// the server must not end the stream.
func (out *eventWriter) write(events ...[]byte) error {
	err := out.writeJoined(events)
	err = cmp.Or(err, out.rc.Flush())
	_ = out.rc.SetWriteDeadline(time.Time{})
	return err
}

// writeJoined writes events with few writes. A single event needs no buffer: most writes
// have one, and with thousands of clients that do not read, the buffers would count.
func (out *eventWriter) writeJoined(events [][]byte) error {
	if len(events) == 1 {
		_, err := out.Write(events[0])
		return err
	}
	joined := writers.Get().(*bufio.Writer)
	defer writers.Put(joined)
	joined.Reset(out)
	for _, event := range events {
		_, _ = joined.Write(event) // Flush returns the error
	}
	err := joined.Flush()
	joined.Reset(nil)
	return err
}

// Write writes b in parts. Each part has a deadline: a connection without progress for
// 30 seconds is broken. So is one that takes less than 64 KiB a second of a large b,
// because b is in use until then.
func (out *eventWriter) Write(b []byte) (n int, err error) {
	last := time.Now().Add(stall + time.Duration(len(b)/slowest)*time.Second)
	for part := range slices.Chunk(b, writeSize) {
		deadline := time.Now().Add(stall)
		if deadline.After(last) {
			deadline = last
		}
		_ = out.rc.SetWriteDeadline(deadline) // some writers cannot
		if _, err = out.w.Write(part); err != nil {
			return n, err
		}
		n += len(part)
	}
	return n, nil
}

// extendDeadline sets the deadline of the next write. The last one sets that of
// net/http, which writes the end of the response when ServeHTTP has returned.
func (out *eventWriter) extendDeadline() {
	_ = out.rc.SetWriteDeadline(time.Now().Add(stall)) // some writers cannot
}

// ---- Guard: what is checked before every handler ----

// Guard checks each HTTP request before a handler of this package reads its body.
// StreamableHandler and SSEHandler embed one.
//
// The zero Guard lets in every program that can connect to the listener. Of web
// pages it lets in only those of loopback origins, such as http://localhost:3000.
// So listen on a loopback address, or set Authenticate.
//
// These are the checks, in this order. The first one that a request does not pass
// answers it:
//
//	check         passes if                                                                      otherwise
//	Origin        it is missing, is a loopback origin, or is one of Origins                      403
//	Host          it is a loopback host or one of Hosts, or the connection is not to loopback    403
//	preflight     it is no OPTIONS of a browser before its request; one for a page of Origins    204, and the browser goes on
//	              is answered here
//	fields        Authorization, Content-Encoding and Content-Type come at most once             400
//	Authenticate  it is nil, or returns no error                                                 401, or as an AuthError says
type Guard struct {
	// Origins are the origins that are let in besides those of loopback hosts, such
	// as https://app.example.com. The pages of these origins, and no others, get
	// CORS headers. The preflight of any other page is refused, even if its origin
	// is a loopback host. 2025-11-25 basic/transports#security-warning: "Servers
	// MUST validate the Origin header on all incoming connections to prevent DNS
	// rebinding attacks". Write an origin exactly as a browser sends it: without a
	// final slash, a default port or a *. The log warns of one that no browser sends.
	Origins []string
	// Hosts are the values of Host that are let in besides loopback names, if the
	// connection came to a loopback TCP address: a proxy on the same machine may
	// pass on the name that the client has used. A value without a port stands for
	// all ports. A value has no scheme, no slash and no *. The log warns of one that
	// has.
	Hosts []string
	// OriginsName and HostsName are what an error calls Origins and Hosts, such as
	// the names of the flags that set them, when it says where to list a missing
	// value. If they are "", they are Guard.Origins and Guard.Hosts.
	OriginsName, HostsName string
	// Authenticate returns the user who has sent the request. If it returns an
	// *AuthError, that says how the request is answered; any other error is a 401.
	// Two users must not get the same principal: each of them could use the
	// sessions of the other. Authenticate is called for each request, by several
	// goroutines at the same time. If it is nil, every request is let in, with the
	// principal "".
	Authenticate func(*http.Request) (principal string, err error)
	// MaxHeld is how many bytes of bodies, of answers, and of what streams have to write a
	// handler holds for all clients together, at least 8 times MaxBody. What is kept for
	// clients that come back is not among them. Fair shares between users are left to the
	// program and its proxy, which know who the users are. 0: 64 MiB.
	MaxHeld   int64
	MaxBody   int64         // the most bytes of a POST; 0: 4 MiB
	KeepAlive time.Duration // how long a stream is silent before a comment is sent; 0: 15 s, negative: no comments are sent
	Log       *slog.Logger  // nil: silent
}

// AuthError is an error of Guard.Authenticate. It says how the request is
// answered.
type AuthError struct {
	Status    int    // 401, or 403 if the token lacks a scope; 0: 401
	Challenge string // the value of WWW-Authenticate; "": Bearer
}

func (e *AuthError) Error() string { return "not authorized: " + e.Challenge }

// Wrap returns a handler that makes the checks of the Guard before those of next. It
// is for a handler that stands beside the MCP endpoint, such as one for metadata.
func (g *Guard) Wrap(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := g.admit(w, r); ok {
			next.ServeHTTP(w, r)
		}
	})
}

// admit makes the checks of the Guard. If it returns false, it has answered the
// request.
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
	for _, name := range singleFields {
		if len(r.Header[name]) > 1 {
			g.refuse(w, r, http.StatusBadRequest, ID{}, "More than one "+name)
			return "", false
		}
	}
	return g.authenticate(w, r)
}

// singleFields say who has sent the request, and how its body is to be read. A
// request that repeats one of them is refused: a proxy may have checked the one
// line, and we would read the other. 2025-11-25
// basic/authorization#error-handling has 400 for a "Malformed authorization
// request".
var singleFields = []string{"Authorization", "Content-Encoding", "Content-Type"}

// checkOrigin returns the reason why the Origin of a request is not let in; "": it
// is. Browsers send this field, other programs do not. 2025-11-25
// basic/transports#security-warning: "If the Origin header is present and
// invalid, servers MUST respond with HTTP 403 Forbidden."
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
	// The preflight of a page on a loopback host fails here, too: the page gets no
	// CORS headers, and this error tells its author how to get them.
	return notAllowed("Origin", origins[0], cmp.Or(g.OriginsName, "Guard.Origins"))
}

// hasListedOrigin reports whether a request comes from a page of one of Origins.
func (g *Guard) hasListedOrigin(r *http.Request) bool {
	origins := r.Header["Origin"]
	return len(origins) == 1 && slices.ContainsFunc(g.Origins, func(listed string) bool { return strings.EqualFold(listed, origins[0]) })
}

// warnOfLists logs the entries of Origins and Hosts that fit no request.
func (g *Guard) warnOfLists() {
	for _, origin := range g.Origins {
		if !isOrigin(origin) {
			g.log().Warn("an origin that no browser sends; write scheme://host[:port] without a path", "origin", origin)
		}
	}
	for _, host := range g.Hosts {
		if !isHost(host) {
			g.log().Warn("a host that no client sends; write name[:port]", "host", host)
		}
	}
}

// isOrigin reports whether a browser may send a text as Origin. It leaves out the
// default port of the scheme: HTML standard, ASCII serialization of an origin.
func isOrigin(text string) bool {
	scheme, host, _ := strings.Cut(text, "://")
	isDefault := scheme == "https" && strings.HasSuffix(host, ":443") || scheme == "http" && strings.HasSuffix(host, ":80")
	return text == "null" || scheme != "" && isHost(host) && !isDefault
}

// isHost reports whether a text is a host, with or without a port. A name that is
// not in ASCII is sent as in xn--bcher-kva.
func isHost(text string) bool {
	u, err := url.Parse("http://" + text)
	isOdd := strings.ContainsFunc(text, func(r rune) bool { return r == '*' || r > '~' })
	return err == nil && text != "" && u.Host == text && !isOdd && !strings.HasSuffix(text, ":")
}

// isLoopbackOrigin reports whether a loopback host has served the page of this
// origin.
func isLoopbackOrigin(origin string) bool {
	scheme, host, _ := strings.Cut(origin, "://")
	return (scheme == "http" || scheme == "https") && isAllowedHost(host, nil)
}

// isPreflight reports whether a browser asks if a page may send a request: Fetch
// standard, CORS-preflight request.
func isPreflight(r *http.Request) bool {
	return r.Method == http.MethodOptions && r.Header["Access-Control-Request-Method"] != nil
}

// checkHost returns the reason why the Host of a request is not let in; "": it is.
// It protects a server that only programs on this machine are meant to reach. In
// a DNS rebinding attack, a page of evil.example has the browser connect to
// 127.0.0.1 under the name evil.example. This name is then in Host.
func (g *Guard) checkHost(r *http.Request) (reason string) {
	local, _ := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	isLoopback := local != nil && local.IP.IsLoopback()
	if !isLoopback || isAllowedHost(r.Host, g.Hosts) {
		return ""
	}
	return notAllowed("Host", r.Host, cmp.Or(g.HostsName, "Guard.Hosts"))
}

// isAllowedHost reports whether host is a loopback address or localhost, with or
// without a port, or one of listed. It returns false for a text that is more than
// a host and a port, such as localhost:1@evil.example.
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

// notAllowed returns an error text for the author of a page, or for the user who
// runs the server. The value is quoted and cut, because it comes from the client:
// it may be long, and it may hold characters that move the cursor of a terminal.
func notAllowed(field, value, list string) string {
	return fmt.Sprintf("%s not allowed: %.100q; to allow it, use %s", field, value, list)
}

// isForeignLoad reports whether a page of another origin loads a URL as an image, in a
// frame, or in another way in which a browser sends no Origin with a GET. W3C, Fetch
// Metadata, Sec-Fetch-Site: a client that is no browser does not send the field, and none
// means that the user has typed the address.
func isForeignLoad(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return r.Header["Origin"] == nil && (site == "cross-site" || site == "same-site")
}

// letPageRead lets the page that has sent a request read the response, and two
// fields of its header. By default the browser does not allow that: Fetch standard,
// CORS protocol.
func letPageRead(header http.Header, r *http.Request) {
	header.Set("Access-Control-Allow-Origin", r.Header.Get("Origin"))
	header.Set("Access-Control-Expose-Headers", "Mcp-Session-Id, WWW-Authenticate")
}

// answerPreflight tells a browser which requests a page may send. Each tool chooses
// the names of its Mcp-Param fields, so every such field that the browser asks for
// is allowed. The list has at most 64 names.
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

// authenticate calls Authenticate. If it returns false, it has answered the
// request.
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

// refuse answers a request with a status and an error response. Its code is
// CodeInternalError for a status of 500 or more, and else CodeInvalidRequest. id
// is that of the JSON-RPC request; the zero ID: it is not known.
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

// silence returns how long a stream is silent before a comment is sent; 0: no
// comments are sent.
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

// canStream reports whether a response can be flushed. If it cannot, the log says
// so, once for each handler: everything else works, so the reason would be hard to
// find.
func (g *Guard) canStream(w http.ResponseWriter, warned *atomic.Bool) bool {
	can := canFlush(w)
	if !can && warned.CompareAndSwap(false, true) {
		g.log().Warn("no streams", "reason", noFlush, "writer", fmt.Sprintf("%T", w))
	}
	return can
}

// canFlush reports whether http.ResponseController finds a way to flush.
// http.TimeoutHandler has none, nor have wrappers with neither an Unwrap method
// nor a Flush method.
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

// writeJSON answers a request with a payload. A 503 asks the client to try again
// after five seconds.
func writeJSON(w http.ResponseWriter, status int, p Payload) {
	body := parts(p)
	size := 0
	for _, part := range body {
		size += len(part)
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(size))
	if status == http.StatusServiceUnavailable {
		w.Header().Set("Retry-After", "5")
	}
	w.WriteHeader(status)
	out := eventWriter{w, http.NewResponseController(w)}
	for _, part := range body {
		if _, err := out.Write(part); err != nil {
			return // the client has gone, and the response is not missed
		}
	}
}

// accepted answers a request with 202. The status is written even if the request
// has taken longer than the server's WriteTimeout.
func accepted(w http.ResponseWriter) {
	out := eventWriter{w, http.NewResponseController(w)}
	out.extendDeadline()
	w.WriteHeader(http.StatusAccepted)
}

// read reads the payload of a POST. If it returns false, it has answered the
// request. It insists on application/json for safety: a browser lets every page
// POST text/plain to every origin, without a preflight. The caller gives back the bytes
// that read has taken.
func (g *Guard) read(w http.ResponseWriter, r *http.Request, used *counter) (in Payload, taken int, ok bool) {
	if !isMedia(r.Header.Get("Content-Type"), "application/json") {
		g.refuse(w, r, http.StatusUnsupportedMediaType, ID{}, "Content-Type must be application/json")
		return Payload{}, 0, false
	}
	coding := r.Header.Get("Content-Encoding")
	if coding != "" && coding != "identity" {
		g.refuse(w, r, http.StatusUnsupportedMediaType, ID{}, "Content-Encoding is not supported")
		return Payload{}, 0, false
	}
	limit := g.maxBody()
	counting := &countingReader{Reader: r.Body, used: used}
	body, err := readBody(counting, r.ContentLength, limit)
	if err == nil {
		return Decode(body), counting.taken, true
	}
	used.give(counting.taken)
	switch err {
	case error(errNoMemory):
		g.refuse(w, r, http.StatusServiceUnavailable, ID{}, errNoMemory.Message)
	case ErrTooLarge:
		g.refuse(w, r, http.StatusRequestEntityTooLarge, ID{}, fmt.Sprintf("Message larger than %d bytes", limit))
	default:
		g.refuse(w, r, http.StatusBadRequest, ID{}, "The body could not be read")
	}
	return Payload{}, 0, false
}

// maxBody returns how many bytes a POST may have.
func (g *Guard) maxBody() int64 { return cmp.Or(g.MaxBody, 4<<20) }

// readBody reads a body. size is its Content-Length; -1: the sender has not said
// it. A body of more than limit bytes is the error ErrTooLarge.
func readBody(r io.Reader, size, limit int64) ([]byte, error) {
	if size > limit {
		return nil, ErrTooLarge
	}
	// The sender may announce much and send nothing. So the buffer begins with what is
	// not counted.
	first := min(max(size, 0), countFrom)
	var body bytes.Buffer
	body.Grow(int(first) + bytes.MinRead)
	beyond := limit + 1 // if there is one more byte, the body is too large
	if beyond < limit {
		beyond = limit // the sum does not fit in an int64, and no body is too large
	}
	n, err := body.ReadFrom(io.LimitReader(r, beyond))
	if n > limit {
		err = ErrTooLarge
	}
	return body.Bytes(), err
}

// isMedia reports whether a Content-Type is a media type, with any parameters. A
// parameter that is malformed does no harm, because we read none.
func isMedia(header, kind string) bool {
	if header == kind {
		return true
	}
	media, _, err := mime.ParseMediaType(header)
	return media == kind && (err == nil || err == mime.ErrInvalidMediaParameter)
}

// accepts reports whether an Accept header allows a media type. The header may
// have several lines; if it names no media range, it allows all types. RFC 9110,
// section 12.5.1: the most specific range that fits the type decides, and a
// weight of 0 means "not acceptable". Other weights make no difference here.
//
//	Accept: */*;q=0, application/json      JSON is allowed, all else is not
func accepts(lines []string, kind string) bool {
	family, _, _ := strings.Cut(kind, "/")
	accept := strings.Join(lines, ",")
	for _, mediaRange := range [...]string{kind, family + "/*", "*/*"} {
		listed, allowed := findRange(accept, mediaRange)
		if listed {
			return allowed
		}
	}
	isEmpty := true
	for element := range strings.SplitSeq(accept, ",") {
		name, _, _ := strings.Cut(element, ";")
		isEmpty = isEmpty && strings.TrimSpace(name) == ""
	}
	return isEmpty
}

// findRange looks for a media range in an Accept header. A range with a weight of 0
// is listed, but not allowed. If the header lists the range twice, it is allowed
// as soon as one of the two is.
func findRange(accept, mediaRange string) (listed, allowed bool) {
	for element := range strings.SplitSeq(accept, ",") {
		name, params, _ := strings.Cut(element, ";")
		if strings.ToLower(strings.TrimSpace(name)) == mediaRange {
			listed = true
			allowed = allowed || !hasZeroWeight(params)
		}
	}
	return listed, allowed
}

// hasZeroWeight reports whether the parameters of a media range have a q of 0,
// such as q=0 or q=0.000.
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

// A counter bounds what all clients of a handler have together: bytes, or requests.
// What finds no room is refused at once. A counter does not know whose things it counts,
// so one client can take all there are: see Guard.MaxHeld. A nil counter bounds nothing.
type counter struct {
	limit int64

	mu    sync.Mutex // guards the field below
	taken int64
}

// take counts n more. It returns false, and counts nothing, if that is beyond the limit.
func (c *counter) take(n int) bool {
	if c == nil || n == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(n) > c.limit-c.taken {
		return false
	}
	c.taken += int64(n)
	return true
}

// give gives back n of what was taken.
func (c *counter) give(n int) {
	if c == nil || n == 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.taken -= int64(n)
}

const (
	// maxServed is how many requests a handler serves at once. One that only waits costs
	// about 50 KB, most of it for its connection, so all of them cost 150 MB.
	maxServed = 3 * maxInFlight

	// maxConversations is how many conversations of HTTP+SSE there may be. Each of them
	// costs about 50 KB, too.
	maxConversations = 1000

	// defaultUsed is how many bytes may be in use: bodies until their handlers have
	// returned, answers and events until they are written. Eight of the largest bodies
	// fit in, each with an answer of that size. 200 clients that echo 4 MiB each, and
	// read nothing, cost 150 MB: the garbage collector lets memory grow to twice of
	// what is in use.
	defaultUsed = 64 << 20

	// maxKept is how many bytes all sessions together keep for clients that come back:
	// what sixteen sessions keep that have 4 MiB each. 120 sessions that are cut off
	// from answers of 4 MB cost 220 MB.
	maxKept = 64 << 20

	// countFrom is the size up to which a body, a result, and what a stream has to write
	// are not counted. So small calls go on when large ones use all bytes. How many
	// there are is bounded by maxServed, so they use 36 MB at most.
	countFrom = 4 << 10
)

// errNoMemory is the answer where there is no room.
var errNoMemory = &Error{Code: CodeInternalError, Message: "Too much is held for clients at the moment"}

// maxUsed returns how many bytes may be in use: enough for several of the largest bodies
// with their answers, whatever MaxBody is.
func (g *Guard) maxUsed() int64 {
	const several = 8
	largest := min(g.maxBody(), math.MaxInt64/several) // a product beyond that would overflow
	return max(cmp.Or(g.MaxHeld, defaultUsed), several*largest)
}

// counted returns how many bytes are counted for a body or a result of n bytes.
func counted(n int) int {
	if n <= countFrom {
		return 0
	}
	return n
}

// encodeCounted encodes a result. It returns how many bytes it has taken, or
// errNoMemory if there is no room.
func encodeCounted(used *counter, result any) (raw json.RawMessage, taken int, err error) {
	raw, err = marshalObject(result)
	taken = counted(len(raw))
	switch {
	case err != nil:
		return nil, 0, err
	case !used.take(taken):
		return nil, 0, errNoMemory
	}
	return raw, taken, nil
}

// countingReader reads a body, and takes its bytes while they come: a client may
// announce much and send nothing.
type countingReader struct {
	io.Reader
	used  *counter
	read  int
	taken int // of these
}

// Read returns errNoMemory if there is no room for what has come.
func (r *countingReader) Read(b []byte) (int, error) {
	n, err := r.Reader.Read(b)
	r.read += n
	more := counted(r.read) - r.taken
	if !r.used.take(more) {
		return 0, errNoMemory
	}
	r.taken += more
	return n, err
}

// messageSize returns about how many bytes a message has on the wire.
func messageSize(m *Message) int {
	const rest = 64 // names, quotes and brackets
	n := len(m.ID.String()) + len(m.Method) + len(m.Params) + len(m.Result) + rest
	if m.Error != nil {
		n += len(m.Error.Message) + len(m.Error.Data)
	}
	return n
}

// maxCopied is how many bytes of a result may be copied into the text of its message.
const maxCopied = 64 << 10

// parts returns what Payload.Append appends, in one part or several. A large result is a
// part of its own, so it is not copied.
func parts(p Payload) (parts [][]byte) {
	var text []byte
	if p.Batch {
		text = append(text, '[')
	}
	for i, m := range p.Messages {
		if i > 0 {
			text = append(text, ',')
		}
		if len(m.Result) <= maxCopied {
			text = m.append(text)
			continue
		}
		text = append(m.appendStart(text), `,"result":`...)
		parts = append(parts, text, m.Result)
		text = []byte("}")
	}
	if p.Batch {
		text = append(text, ']')
	}
	return append(parts, text)
}

// requestsIn returns how many requests a payload holds.
func requestsIn(in Payload) (n int) {
	for _, m := range in.Messages {
		if m.Kind() == Request {
			n++
		}
	}
	return n
}

// idOf returns the id for an error that is about a whole payload: that of a request,
// or of an Invalid message.
func idOf(in Payload) ID {
	if m := in.Messages[0]; !in.Batch && m.Kind() != Response {
		return m.ID
	}
	return ID{}
}

// hasResponseTo reports whether a payload holds the response to a request.
func hasResponseTo(in Payload, id ID) bool {
	return slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Kind() == Response && m.ID.key() == id.key() })
}

// ---- HTTP+SSE of 2024-11-05: the server ----

// SSEHandler is an http.Handler for the transport of 2024-11-05. A GET opens a
// conversation, which ends with the response. The POSTs go to the same path, with
// a query that names the conversation. Mount the handler at one path. A proxy must
// not rewrite that path, because the server tells it to the client.
//
// Set the fields before the first request.
type SSEHandler struct {
	Handler Handler // required: a *Server, or a Handler that calls one; nil: ServeHTTP panics
	Guard
	// MaxRequests is how many requests of all conversations are served at once, or wait
	// until their answers can be sent. Further ones are answered with 503. 0: 3,072.
	MaxRequests int
	// Max is how many conversations there may be at once. Further GETs are answered with
	// 503. Each conversation has a connection and two goroutines. 0: 1,000.
	Max   int
	NewID func() string // returns the id of a conversation, which must be hard to guess; nil: a random text

	warned  atomic.Bool // the log has said that middleware makes streams impossible
	once    sync.Once   // sets the limits of the two fields below
	used    counter     // bytes in use
	running counter     // requests that are being served

	mu     sync.Mutex // guards the fields below
	pipes  map[string]*ssePipe
	closed bool
	all    sync.WaitGroup // one for each conversation; Add is called with mu held, and not after closed is set
}

// ssePipe is the server's Conn of one conversation. Payloads pass through it from
// the goroutine of each POST to that of Serve, and from there to that of the GET:
//
//	POST -- in --> Read     Serve and the Handler     Write -- stream --> response of the GET
//
//	state         what goes on                              event                      next state
//	open          POSTs are read, events are written        SSEHandler.Close           winding down
//	                                                        the client goes            over
//	winding down  Read returns io.EOF; events are written   all requests are answered  over
//	                                                        three seconds pass         over
//	                                                        the client goes            over
//	over          all contexts have ended; the response ends
type ssePipe struct {
	used      *counter           // of the handler: bytes in use
	principal string             // of the GET; a POST must have the same one
	in        chan Payload       // has no buffer: a POST waits until its payload is read
	stream    *Stream            // the events for the response of the GET
	reading   context.Context    // ends when the state is no longer open
	endRead   context.CancelFunc // ends reading
	cancel    context.CancelFunc // ends all contexts of the conversation, reading included
}

// Read returns the payload of the next POST.
func (p *ssePipe) Read() (Payload, error) {
	select {
	case in := <-p.in:
		return in, nil
	case <-p.reading.Done():
		return Payload{}, io.EOF
	}
}

// Write sends a payload as an event. While it waits until the client has read, the
// payload is counted, and not encoded.
func (p *ssePipe) Write(ctx context.Context, out Payload) error {
	taken := 0 // by encode
	for _, m := range out.Messages {
		taken += counted(len(m.Result))
	}
	defer func() { p.used.give(taken) }() // 0 if the queue has taken it over
	o := outgoing{event: Event{Type: "message"}, taken: &taken}
	if out.Batch {
		o.batch = out.Messages
	} else {
		o.message = out.Messages[0]
	}
	return p.stream.push(ctx, o)
}

// encode encodes a result, and takes its bytes. Write gives them back.
func (p *ssePipe) encode(result any) (json.RawMessage, error) {
	raw, _, err := encodeCounted(p.used, result)
	return raw, err
}

// Close ends reading, and the response once all events are written.
func (p *ssePipe) Close() error {
	p.endRead()
	p.stream.End()
	return nil
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
	case !h.canStream(w, &h.warned):
		h.refuse(w, r, http.StatusInternalServerError, ID{}, noFlush)
	case !accepts(r.Header["Accept"], "text/event-stream"):
		h.refuse(w, r, http.StatusNotAcceptable, ID{}, "Accept must allow text/event-stream")
	default:
		h.get(w, r, principal)
	}
}

// get opens a conversation, and writes its events until it ends. A second goroutine
// serves the payloads of the POSTs, and get waits for it at the end. 2024-11-05
// basic/transports#http-with-sse: "When a client connects, the server MUST send an
// endpoint event containing a URI for the client to use for sending messages."
func (h *SSEHandler) get(w http.ResponseWriter, r *http.Request, principal string) {
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	newID := rand.Text
	if h.NewID != nil {
		newID = h.NewID
	}
	id := newID()
	p := &ssePipe{used: &h.used, principal: principal, in: make(chan Payload), stream: NewStream("", 0), cancel: cancel}
	p.stream.out.keepAlive, p.stream.out.used = h.silence(), &h.used
	p.reading, p.endRead = context.WithCancel(ctx)
	if !h.add(id, p) {
		h.refuse(w, r, http.StatusServiceUnavailable, ID{}, "No more streams")
		return
	}
	defer h.remove(id)
	f, _ := p.stream.attach("")
	_ = p.stream.push(ctx, outgoing{event: Event{Type: "endpoint", Data: []byte(endpointURI(r, id))}})
	var serving sync.WaitGroup
	serving.Go(func() {
		err := Serve(ctx, p, h.handlerOf(p, r.Header), h.Log)
		if err != nil && ctx.Err() == nil {
			h.log().Warn("conversation over", "reason", brief(err.Error()))
		}
	})
	p.stream.run(f, w, r)
	// 2024-11-05 basic/lifecycle#shutdown: it "is indicated by closing the
	// associated HTTP connection(s)"
	cancel()
	serving.Wait()
}

// endpointURI returns the URI to which the client POSTs: that of the GET, with the
// id of the conversation in the query.
func endpointURI(r *http.Request, id string) string {
	endpoint := *r.URL
	// http.StripPrefix may have cut the path in r.URL. RequestURI is what the client
	// has sent.
	if requested, err := url.ParseRequestURI(r.RequestURI); err == nil {
		endpoint = *requested
	}
	query := endpoint.Query()
	query.Set("session", id)
	endpoint.Scheme = ""
	endpoint.Host = ""
	endpoint.RawQuery = query.Encode()
	return endpoint.String()
}

// handlerOf returns the Handler of one conversation. It calls h.Handler, and puts
// the principal and the header of the GET into each Exchange. The bytes of results
// are counted.
func (h *SSEHandler) handlerOf(p *ssePipe, header http.Header) Handler {
	return HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		x.Principal = p.principal
		x.Header = header
		x.encode = p.encode
		// A request without a Peer is modern, and this transport has no modern
		// revision. The code is one that legacy servers use, too: with a code of
		// modern servers the client would not fall back to initialize (2026-07-28
		// basic/versioning).
		if x.Peer == nil {
			reason := fmt.Sprintf("Method not found: this transport does not serve %.100q", x.Meta().ProtocolVersion)
			return nil, &Error{Code: CodeMethodNotFound, Message: reason}
		}
		return h.Handler.Handle(ctx, x)
	})
}

// add puts a conversation into the table. It returns false after Close, if there is no
// room, or if the id is taken.
func (h *SSEHandler) add(id string, p *ssePipe) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || len(h.pipes) >= cmp.Or(h.Max, maxConversations) || h.pipes[id] != nil {
		return false
	}
	if h.pipes == nil {
		h.pipes = map[string]*ssePipe{}
	}
	h.pipes[id] = p
	h.all.Add(1)
	return true
}

// remove takes a conversation out of the table.
func (h *SSEHandler) remove(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pipes, id)
	h.all.Done()
}

// find returns a conversation. It returns nil if there is none with this id, and
// if it belongs to another principal.
func (h *SSEHandler) find(id, principal string) *ssePipe {
	h.mu.Lock()
	defer h.mu.Unlock()
	p := h.pipes[id]
	if p == nil || p.principal != principal {
		return nil
	}
	return p
}

// post hands the payload of a POST to its conversation. Responses are sent on the
// stream, so the status here only says that the payload has come.
func (h *SSEHandler) post(w http.ResponseWriter, r *http.Request, principal string) {
	in, taken, ok := h.read(w, r, &h.used)
	if !ok {
		return
	}
	id := r.URL.Query().Get("session")
	first := in.Messages[0]
	p := h.find(id, principal)
	places := 0
	in.done = sync.OnceFunc(func() {
		h.used.give(taken)
		h.running.give(places)
	})
	passedOn := false
	defer func() {
		if !passedOn {
			in.done()
		}
	}()
	if p == nil {
		h.refuse(w, r, http.StatusNotFound, first.ID, "No such session")
		return
	}
	if first.Kind() == Invalid && first.ID == (ID{}) && !in.Batch {
		// The error response has no id. On the stream the client could not see which
		// of its POSTs is meant.
		writeJSON(w, http.StatusBadRequest, in)
		return
	}
	n := answersTo(in)
	if !h.running.take(n) {
		h.refuse(w, r, http.StatusServiceUnavailable, idOf(in), errBusy.Message)
		return
	}
	places = n
	select {
	case p.in <- in:
		passedOn = true // the Peer calls in.done
		accepted(w)
	case <-p.reading.Done():
		h.refuse(w, r, http.StatusNotFound, first.ID, "No such session")
	case <-time.After(stall): // the client sends requests, and does not read the responses
		h.refuse(w, r, http.StatusServiceUnavailable, first.ID, "Too many requests in flight")
	case <-r.Context().Done():
	}
}

// answersTo returns how many answers a payload gets on the stream. What is no message
// gets one, too. A response or a notification gets none, so it never waits for requests:
// they may be waiting for it.
func answersTo(in Payload) (n int) {
	for _, m := range in.Messages {
		if m.Kind() == Request || m.Kind() == Invalid {
			n++
		}
	}
	return n
}

func (h *SSEHandler) prepare() {
	h.used.limit, h.running.limit = h.maxUsed(), int64(cmp.Or(h.MaxRequests, maxServed))
	h.warnOfLists()
}

// Close ends all conversations, and no more are opened. Requests that are being
// served have three seconds; then their contexts end. Close returns when all
// conversations are over, four seconds after the call at the latest. It may be
// called more than once.
//
// Call Close at the same time as http.Server.Shutdown, and wait for both: without
// Close, Shutdown would wait for streams that do not end. Give Shutdown a context of
// about five seconds, and then call http.Server.Close: Shutdown also waits for the rest
// of a body, which a client may never send.
func (h *SSEHandler) Close() {
	h.mu.Lock()
	h.closed = true
	pipes := slices.Collect(maps.Values(h.pipes))
	h.mu.Unlock()
	for _, p := range pipes {
		p.endRead()
	}
	if !doneWithin(graceAfterStop, &h.all) {
		for _, p := range pipes {
			p.cancel()
		}
		doneWithin(graceAtEnd, &h.all)
	}
}

// ======== The client ========
//
// SSEDialer and sseConn are the client of HTTP+SSE. They share poster with the client
// of http.go: it sends POSTs, and knows which are under way. HTTPError and redirects
// are for both clients, too.

const (
	defaultMessage  = 64 << 20         // bytes of a message of the server
	endpointTimeout = 10 * time.Second // for the event that says where to POST
	maxDrained      = 16 << 10         // bytes of a response that are read only to use its connection again
)

// SSEDialer is a Dialer for the transport of 2024-11-05.
//
// If a server does not answer the GET with a stream of events, or a POST with a
// status of 2xx, the error is an *HTTPError. Write waits at most 30 seconds for the
// status of a payload without a request. A stream that is lost cannot be resumed:
// call Dial again.
type SSEDialer struct {
	URL string // required: where the server opens its stream
	// Client sends the requests. nil: each Conn has an http.Client of its own. Of any
	// other Client the Timeout is ignored, because it would end the stream. A redirect
	// is followed only if its status is 307 or 308 and it stays within the origin, and
	// at most ten times in a row. Proxies, TLS, credentials and all else that concerns
	// each request belong to the Transport of the Client, as in WithHeader.
	Client     *http.Client
	MaxMessage int // the most bytes that a message of the server may have; 0: 64 MiB
}

var errNoEndpoint = fmt.Errorf("no endpoint event within %v", endpointTimeout)

// Dial opens the stream, and returns a Conn. It waits at most ten seconds for the
// event that says where to POST.
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

// sseConn is the Conn of a client of this transport. Read reads the stream, on
// the goroutine of its caller. Each Write is a POST.
type sseConn struct {
	poster
	stream   io.Closer // the body of the response to the GET
	events   *eventReader
	endpoint string // the URL for POSTs
}

// open sends the GET, and reads the event that says where to POST. It must name a URL
// of the origin from which the stream comes. Otherwise a server could make us send
// requests to another server.
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
		return fmt.Errorf("the first event must name an endpoint of the same origin, not %s %.200q", e.Type, e.Data)
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
			c.noteResponses(in, nil)
			return in, nil
		}
	}
}

// Write POSTs a payload, and waits for the status. 404 means that the server does not
// know the conversation: the error wraps ErrSessionEnded and ErrNotSent.
func (c *sseConn) Write(ctx context.Context, out Payload) error {
	p, err := c.begin(ctx, out)
	if err != nil {
		return err
	}
	return c.sendAndFinish(ctx, p, c.send)
}

// send sends a POST. Its status says all: 2024-11-05 does not say which status means
// that the payload has come, so each 2xx does. The response is never a stream.
func (c *sseConn) send(p *post) (isStream bool, err error) {
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
		defer time.AfterFunc(drainTimeout, func() { resp.Body.Close() }).Stop()
		_, _ = io.CopyN(io.Discard, resp.Body, maxDrained) // so that the connection can be used again
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
	c.end()
	defer c.closeIdle()
	return c.stream.Close()
}

// ---- What both clients share: POSTs ----

const (
	maxRedirects = 10 // in a row

	acceptTimeout = 30 * time.Second       // for the server to take a payload without a request
	drainTimeout  = 100 * time.Millisecond // for the rest of a response that is read only to use its connection again
)

var (
	errSlow          = fmt.Errorf("the server has not taken it within %v", acceptTimeout)
	errAnsweredFirst = errors.New("the answer has come before the status of its POST")
)

// poster is what the Conns of both clients share.
type poster struct {
	client    *http.Client
	closeIdle func() // closes the idle connections of client

	mu       sync.Mutex     // guards the fields below
	revision Revision       // that was agreed on; zero: none yet
	posts    map[*post]bool // all posts that are not over; true: it has become a stream
	ended    error          // why nothing more can be sent; nil: it can
}

// A post is one POST, until all that it brings has come.
type post struct {
	payload Payload
	// request is the id of the request in payload. The zero ID: there is none, or its
	// response has come. The mutex of the poster guards changes.
	request ID
	// ctx ends when the post is over. Its cause is why it has failed, if it has.
	ctx    context.Context
	cancel context.CancelCauseFunc

	revision Revision // in which it is sent
	session  string   // for Streamable HTTP: the id of the session; "": none
}

// newPoster returns the poster of a Conn. client is that of the Dialer.
func newPoster(client *http.Client) poster {
	kept, closeIdle := keepToOrigin(client)
	return poster{client: kept, closeIdle: closeIdle, posts: map[*post]bool{}}
}

// begin makes a post. It has the values of ctx, but ends only with finish.
func (c *poster) begin(ctx context.Context, out Payload) (*post, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ended != nil {
		return nil, markedError{c.ended, ErrNotSent}
	}
	p := &post{payload: out, revision: c.revision}
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
func (c *poster) sendAndFinish(ctx context.Context, p *post, send func(*post) (isStream bool, err error)) error {
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
	if err == nil || cause == errAnsweredFirst {
		return nil
	}
	return cmp.Or(cause, err)
}

// finish ends a post, and forgets it.
func (c *poster) finish(p *post) {
	p.cancel(nil)
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.posts, p)
}

// end fails all posts with ErrClosed, and all that follow. It returns why nothing could
// be sent before; nil: it could.
func (c *poster) end() (before error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, c.ended = c.ended, ErrClosed
	for p := range c.posts {
		p.cancel(ErrClosed)
	}
	return before
}

// noteRevision reads which revision was agreed on. Only the response to initialize
// names one.
func (c *poster) noteRevision(in Payload) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range in.Messages {
		if c.revision.Version == "" && m.Kind() == Response {
			c.revision = revision(unquote(lookup(m.Result, "protocolVersion")))
		}
	}
}

// noteResponses notes that responses have come. by is the post that has brought them;
// nil: the stream of HTTP+SSE has. The post of a request whose response has come in
// another way has a second to end by itself.
func (c *poster) noteResponses(in Payload, by *post) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if by != nil && by.request != (ID{}) && hasResponseTo(in, by.request) {
		by.request = ID{}
		return
	}
	for p := range c.posts {
		if p.request != (ID{}) && hasResponseTo(in, p.request) {
			time.AfterFunc(graceAtEnd, func() { p.cancel(errAnsweredFirst) })
		}
	}
}

// do sends one HTTP request. If no response comes, the error does not show the query
// of the URL: errors are logged and shown, and a query may name a session or hold a
// key. Close of the body ends the request, and does not wait for the rest of it.
func (c *poster) do(ctx context.Context, method, target string, header http.Header, body []byte) (*http.Response, error) {
	var reader io.Reader // nil without a body: an empty one changes the request
	if body != nil {
		reader = bytes.NewReader(body)
	}
	ctx, cancel := context.WithCancel(ctx)
	r, err := http.NewRequestWithContext(ctx, method, target, reader)
	if err != nil {
		cancel()
		return nil, err
	}
	r.Header = header
	header["Accept-Encoding"] = []string{"identity"} // a proxy that compresses events holds them back
	resp, err := c.client.Do(r)
	if err != nil {
		cancel()
		if failure, ok := errors.AsType[*url.Error](err); ok {
			failure.URL, _, _ = strings.Cut(failure.URL, "?")
			err = unreachable{err}
		}
		return nil, err
	}
	resp.Body = cancelledBody{resp.Body, cancel}
	if resp.StatusCode == http.StatusSwitchingProtocols { // nobody has asked for that; its body would be the connection
		resp.Body.Close()
		resp.Body = http.NoBody
	}
	return resp, nil
}

// cancelledBody is the body of a response. Its Close ends the request first,
// because to close the body may otherwise wait for the end of the body.
type cancelledBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b cancelledBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// unreachable is the error of a request without a response. It is
// errSaysNothing.
type unreachable struct{ error }

func (e unreachable) Is(target error) bool { return target == errSaysNothing }
func (e unreachable) Unwrap() error        { return e.error }

// ---- What both clients share: errors and redirects ----

const (
	maxErrorBody      = 64 << 10 // bytes of the body of an HTTPError
	maxChallengeWords = 1000     // schemes and parameters of challenges that are read
)

// HTTPError is a response of HTTP that does not answer the request of a client
// as it should. If the body is a JSON-RPC error response, errors.As finds its
// *Error in the HTTPError.
type HTTPError struct {
	Status int
	Header http.Header
	Body   []byte // its first 64 KiB

	fault *Error // of the error response in the body; nil: there is none
	id    ID     // of that response
}

// Error returns the status, and the part of the response that best explains it:
// the JSON-RPC error, the target of a redirect, or the beginning of the body.
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

// Is reports what a status means for a Client that looks for a server. target
// is one of the errors of session.go:
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

// A challenge is a scheme and its parameters: tokens, each with a token or a
// quoted string as its value. RFC 9110, sections 5.6 and 11.2. These
// expressions find
//
//	Bearer resource_metadata="https://…", scope="a \"b\""
//	^word  ^word, with a value            ^word, with quoted pairs in its value
//
// They are compiled when Challenge is called first: few programs call it.
var (
	challengeWord = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile("([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:[ \t]*=[ \t]*(\"(?:[^\"\\\\]|\\\\.)*\"?|[^ \t,]*))?")
	})
	quotedPair = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`\\(.)`) })
)

// Challenge returns the parameters of the first challenge of a scheme in the
// header WWW-Authenticate. Their names are in lower case. If there is no such
// challenge, it returns nil. 2025-11-25
// basic/authorization#protected-resource-metadata-discovery-requirements:
// clients "MUST be able to parse WWW-Authenticate headers". What they need is
// Challenge("Bearer")["resource_metadata"] and Challenge("Bearer")["scope"].
func (e *HTTPError) Challenge(scheme string) (params map[string]string) {
	all := strings.Join(e.Header.Values("Www-Authenticate"), ",")
	for _, word := range challengeWord().FindAllStringSubmatch(all, maxChallengeWords) {
		name, value := strings.ToLower(word[1]), word[2]
		isParam := strings.Contains(word[0], "=")
		switch {
		case isParam && params != nil && params[name] == "": // the first of two counts
			inner, isQuoted := strings.CutPrefix(value, `"`)
			if isQuoted {
				value = quotedPair().ReplaceAllString(strings.TrimSuffix(inner, `"`), "$1")
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

// httpError returns a response as an error. It reads at most maxErrorBody bytes of the
// body: what comes within a second, until the body ends or breaks off.
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

// keepToOrigin returns a copy of client that follows a redirect only if the
// request is repeated as it is, and only within the origin. Any other redirect
// would lose the body of a POST, or send its header to another server.
// closeIdle closes the idle connections of a client that keepToOrigin has made,
// because client is nil; otherwise it does nothing.
func keepToOrigin(client *http.Client) (kept *http.Client, closeIdle func()) {
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

// newTransport returns a Transport for one Conn, like http.DefaultTransport.
// All its connections go to one server, so more of them may be idle.
func newTransport() *http.Transport {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment}
	standard, ok := http.DefaultTransport.(*http.Transport)
	if ok { // unless the program has replaced it
		transport = standard.Clone()
	}
	transport.MaxIdleConnsPerHost = 100
	return transport
}

// WithHeader returns a copy of client that adds header fields to each request.
// A field that a request has already stays as it is. The field Host replaces
// the host that the server is told. If client is nil, it is http.DefaultClient.
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
