// SPDX-License-Identifier: 0BSD
// jsonrpc.go of mcpwire 0.3.0, which is made to be copied.

package main

// JSON-RPC 2.0: messages, and a conversation with one peer.
//
//	{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}            a request
//	{"jsonrpc":"2.0","id":1,"result":{"content":[]}}                                   its response
//	{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}      or an error response
//	{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}        a notification: never answered
//	[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,…}]              a batch
//
// The peer is the other end of a conversation. Both ends may send requests, so client and
// server use the same type, Peer. It holds our calls that wait for a response, and the peer's
// requests that we are serving. A Conn carries the messages. ServeConn, on a server, and
// OpenConn, on a client, connect a Peer with its Conn.
//
//	what comes in  Conn.Read ─► Decode ─► Peer.dispatch ┬ a response      ─► the call that waits for it
//	                                                    ├ a notification  ─► Handler.Handle, at once
//	                                                    ├ a request       ─► a responder
//	                                                    └ anything else   ─► a responder, which refuses it
//	a responder    serve ─► Handler.Handle ─► Conn.Write
//	a call         Peer.Call ─► the table of calls ─► Conn.Write … the response … ─► Peer.Call returns
//
// The types:
//
//	Message    a request, a notification or a response
//	Payload    what a transport carries at once: a Message, or a batch of them
//	Conn       a transport to one peer
//	Peer       the other end: our calls to it, and its requests to us
//	Exchange   a request or a notification while it is handled; what a Handler gets
//	responder  the requests of one Payload, and the responses to them
//	loop       reads a Conn, one goroutine at a time
//
// The words of this package:
//
//	call          a request, as its sender sees it: from the sending to the response. Our calls are those that we send
//	request       a message that must be answered; most often one of the peer
//	response      a result or an error, with the id of its request
//	answer        a response; as a verb, to send it
//	handler       what serves a request: a Handler, or a function that it calls
//	refusal       the error response to a message that no Handler gets
//	notification  a message that is never answered
//	belongs to    a message belongs to a request if the handler sends it with Exchange.Notify or Exchange.Call
//	in flight     a request is in flight until its handler has returned: until then its id is taken
//	unanswered    a request is unanswered until all responses to its payload are written: until then it takes memory
//	exclusive     answered before anything more is read: in MCP initialize, and at a server what has only refusals
//	cancel        to end the context of a request, because its sender does not want the response
//
// Two rules come from MCP, and are stricter than JSON-RPC 2.0: an id is a string or an integer,
// and params and results are objects. A Peer also notes the progress token of each call. All
// else that MCP decides goes through one interface, protocol. Without MCP, the notification
// $/cancelRequest of the Language Server Protocol cancels a request. You can copy this file
// alone, for any transport, and for any protocol that keeps the two rules. All other files of
// this package need it.
//
// Decode cannot fail. Bad text becomes a Message of the kind Invalid, which holds the error
// response to send back. If it is a bad response, it becomes a Response that makes its call
// fail. So nothing that a peer sends can end the conversation.
//
// To see it work, read lessons 02, 04 and 17 of the course: testdata/README.md. "One call,
// through the code" there follows a request step by step. On a first reading, read to the
// banner "More about messages": 734 lines. These lines follow a message from its text to the
// Handler and back.
//
// Source: JSON-RPC 2.0, 2025-11-25 basic#messages and 2025-03-26 basic#batching. In all files,
// "2025-11-25 basic#messages" stands for a page and a heading:
// modelcontextprotocol.io/specification/2025-11-25/basic#messages. "JSON-RPC 2.0 #batch" stands
// for jsonrpc.org/specification#batch.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"math"
	"reflect"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// ==== The wire ====

// ---- Messages ----

// Message is one JSON-RPC request, notification or response. Kind says which. The fields must
// not be changed once the message has been sent. NewRequest and NewResponse check params and
// results. Fields that you fill in yourself are not checked. Payload.Append writes a Message on
// one line, and leaves out an Error.Data that is not JSON.
type Message struct {
	ID     ID              // of a request or a response; the zero ID: none
	Method string          // of a request or a notification
	Params json.RawMessage // an object of valid JSON, or nil
	Result json.RawMessage // an object of valid JSON, or nil
	Error  *Error          // of an error response

	invalid  bool  // the text was not a message; ID and Error form the error response to it
	unusable error // of a response: why it cannot be used, so that the call fails; nil: it can be used
	parsed   any   // what the protocol has read from Params; nil: nothing yet
}

// Kind says what a Message is.
type Kind int

// The four kinds of messages. An Invalid message stands for text that was not a message. It is
// sent as the error response to that text.
const (
	Invalid Kind = iota
	Request
	Notification
	Response
)

// Kind returns what m is.
func (m *Message) Kind() Kind {
	switch {
	case m.invalid:
		return Invalid
	case m.Method != "" && m.ID != ID{}:
		return Request
	case m.Method != "":
		return Notification
	}
	return Response
}

// ID is the id of a request: a string or an integer. It keeps the text as it was sent, so that
// the response repeats it byte for byte and no digit is lost. The zero ID means that there is
// none.
type ID struct{ text string }

// Error is the error of a response. A Handler returns an Error to choose what the peer gets.
// Call returns the Error that the peer has sent.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// ---- From text to messages ----

// Payload is what a transport carries at once: a message, or a batch of them.
type Payload struct {
	Messages []*Message
	Batch    bool
	// Lost says why messages were dropped, by the transport or by Decode; nil: none were.
	// Nobody knows which calls they answered, so all our calls fail with Lost.
	Lost   error
	Report error // what the transport says about itself, mostly for the log; nil: nothing

	raw       []byte       // the text, as it was read
	used      *reservation // counts the bytes that it takes, until release of its responder; nil: nothing counts them
	isTooMuch bool         // there was no room for its bytes, so its requests are refused
}

// Decode reads a payload. Text that is not a message becomes an Invalid message, so there is
// always at least one. The Payload refers to data, so data must not be changed afterwards.
func Decode(data []byte) Payload {
	text := bytes.Trim(data, blanks) // the white space of JSON
	in := Payload{raw: data}
	switch {
	case !utf8.Valid(text): // 2025-11-25 transports: "JSON-RPC messages MUST be UTF-8 encoded."
		in.Messages = unparsable(text, "not UTF-8")
	case !json.Valid(text): // encoding/json also refuses more than 10,000 levels
		in.Messages = unparsable(text, "not JSON")
	case text[0] == '[':
		in.decodeBatch(text)
	default:
		in.Messages = []*Message{decodeMessage(text)}
	}
	return in
}

// decodeMessage reads one message. text is valid JSON. A member counts even if its value is
// null: "id":null is a wrong id, and not a missing one.
func decodeMessage(text []byte) *Message {
	if text[0] != '{' {
		return newInvalid(ID{}, "not an object")
	}
	e := readEnvelope(text) // the members, by name
	id, _ := parseID(e.id)  // the zero ID: there is none, or it is wrong
	m := &Message{ID: id, Method: unquote(e.method), Params: e.params, Result: e.result}
	reason := m.check(e) // what is wrong; check also reads the error into m.Error
	if reason == "" {
		return m
	}
	if e.isResponse() {
		// A response is never answered. But if its id can be read, the call that waits for it
		// fails.
		return &Message{ID: id, unusable: fmt.Errorf("invalid response: %s", reason)}
	}
	return newInvalid(id, reason)
}

// ==== The conversation ====

// ---- Handlers, and the requests that they answer ----

// Handler answers requests, and takes in notifications.
//
// For a request, Handle returns a result that encodes to a JSON object, or an error. A nil
// result is {}. An *Error is sent as it is, even if the error only wraps it. The text of any
// other error becomes the message of a CodeInternalError, so it must not contain secrets. For a
// notification, nothing is sent. An error is logged.
//
// ctx ends when the request is cancelled, or when the conversation ends.
//
// Several requests are handled at the same time, over every transport. So a Handler that
// changes what others use needs a mutex.
//
// Over a Conn, nothing is read while a notification is handled. So Handle must then be quick,
// and must not call the peer: nobody would read the response. HandlerFunc says more about that,
// and about panics.
type Handler interface {
	Handle(ctx context.Context, x *Exchange) (result any, err error)
}

// Exchange is one request while it is served, or one notification while it is handled.
type Exchange struct {
	Request *Message
	// Peer is the sender of the request. Through it a handler sends what does not belong to the
	// request. nil: the sender takes no such messages. In MCP that is so for a modern request,
	// and over HTTP without a session. Notify and Call of a nil Peer return
	// ErrNoServerRequests. Do not use a Peer that may be nil as the key of a map: all these
	// senders would share one entry.
	Peer *Peer
	// Principal is the user who has sent the request, if the transport has authenticated one. A
	// Handler that passes the request on may set it.
	Principal string
	// Header has the header fields of an HTTP request; elsewhere it is nil.
	Header map[string][]string
	// Ending is closed when the conversation begins to end: the server shuts down, or the
	// client has hung up. A handler that takes long should return its result then. At a client
	// it is nil.
	Ending <-chan struct{}

	handler      Handler                                   // serves it
	owner        *Peer                                     // the Peer that has taken the request in; nil only in an Exchange that a test has made
	state        *served                                   // of a request: its record in Peer.serving; nil for a notification
	exclusive    bool                                      // nothing more is read before this request is answered; beginRequest sets it
	send         sender                                    // sends what belongs to the request
	protocolData any                                       // what the protocol keeps with the exchange
	used         *reservation                              // counts the bytes of the payload, and of what its requests need; nil: nothing does
	encode       func(result any) (json.RawMessage, error) // counts and encodes a result; nil: marshalObject encodes it
}

// served is the record of a request from the time it has come until its response is written.
// The Handler sees the Exchange, and not this record.
type served struct {
	exchange *Exchange // nil while the response waits to be written, so that the memory of the request is free
	id       ID
	ctx      context.Context
	cancel   context.CancelFunc
	trailer  *Message       // is sent after the response: in MCP, the end of a subscription; nil: nothing is sent
	sending  sync.WaitGroup // messages on their way; the response waits for them

	cancelled bool // the request gets no response; the Peer's mutex guards this
}

// sender sends one message to the peer.
type sender func(ctx context.Context, m *Message) error

// ---- Conns: what carries the messages ----

// Conn carries payloads to and from one peer. NewLineConn makes a Conn of any stream of bytes.
// To write another transport, implement the three methods: Pipe, in memory, is the shortest
// example.
type Conn interface {
	// Read returns the next payload: it passes its text to Decode. One goroutine at a time
	// calls Read.
	//
	//   - It must not use the memory of the text again: the Payload refers to it.
	//   - It must limit the size of a payload, because nothing else does.
	//   - If it loses a message, it returns a Payload with Lost, and reads on.
	//   - When the peer has hung up, it returns io.EOF. Any error ends the conversation.
	Read() (Payload, error)
	// Write sends what Payload.Append returns. Several goroutines call it at the same time.
	//
	//   - If ctx ends, it returns ctx.Err(). If a part is sent already, the rest is still
	//     sent, before the next payload.
	//   - If the peer cannot have read the payload, the error may wrap ErrNotSent.
	//   - If the conversation has ended, the error may wrap ErrClosed.
	Write(ctx context.Context, p Payload) error
	// Close makes Read return, if that is possible: a Read of standard input ends only with the
	// input or the process. Close may be called more than once.
	Close() error
}

// ---- The reader ----

// loop reads payloads from a Conn, calls a Handler for them, and writes the answers. One
// goroutine does all this: the reader. ServeConn and OpenConn make the loop, and start it.
//
// With a goroutine for each request, requests would lose their order, such as logging/setLevel
// and the call after it. If the reader waited for these goroutines, a quick call would take
// twice as much processor time: goroutines that wake each other cost more than the call. So the
// reader serves requests itself. But meanwhile it does not read. So when a request takes long,
// a timer starts another reader, and the first one ends after its request:
//
//	reader 1   reads A, serves A ........................ writes the response, ends
//	timer              1 ms ─► starts reader 2
//	reader 2                   reads B, serves B, writes the response, reads C …
//
// So quick requests are handled in the order in which they were sent. A slow one runs at the
// same time as those after it. If all are slow, a thousand are read in a second: a new reader
// starts each millisecond.
type loop struct {
	peer   *Peer
	base   Exchange   // the Exchange of each message is a copy of it
	result chan error // has room for the reason why the conversation has ended; nil: the peer has hung up
	used   counter    // counts the bytes of what readers serve, and of the results that are not written yet
}

const handOverAfter = time.Millisecond // when a request takes longer than this, another reader starts

// serveConn is a conversation from its beginning to its end, at a server. How it ends:
//
//	the client hangs up   noteEnd: calls fail ─► Ending is closed ─► 5 s for the handlers ─► Peer.Close ends their contexts
//	ctx ends              their contexts end, noteEnd: calls fail ─► Ending is closed ─► 3 s to return ─► Peer.Close
func serveConn(ctx context.Context, c Conn, h Handler, protocol protocol, log *slog.Logger) error {
	ending := make(chan struct{})
	l := newLoop(ctx, c, h, protocol, log, false) // makes the Peer, too; false: we are the server
	l.base.Ending = ending
	l.start()
	err := <-l.result // the conversation lasts until noteEnd says why it is over
	grace := graceAfterHangup
	if ctx.Err() != nil {
		err, grace = ctx.Err(), graceAfterStop
	}
	close(ending)                      // the handlers should return soon
	doneWithin(grace, &l.peer.working) // they have some seconds: see ServeConn
	return errors.Join(err, l.peer.Close())
}

// start starts the first reader. When the context of the conversation ends, that is noted, and
// the Conn is closed. It is noted here, and not when Read returns, because a Read of standard
// input may return much later.
func (l *loop) start() {
	context.AfterFunc(l.peer.ctx, func() {
		l.noteEnd(context.Cause(l.peer.ctx))
		l.peer.conn.Close()
	})
	go l.read()
}

// read is the goroutine of a reader. It ends with the conversation, or when another reader has
// taken over.
func (l *loop) read() {
	for {
		in, err := l.peer.conn.Read()
		if err != nil {
			l.noteEnd(err)
			return
		}
		if !l.peer.enterReader() { // the conversation has ended
			return
		}
		if isReader := l.takeIn(in); !isReader { // another reader has started meanwhile
			return
		}
	}
}

// noteEnd notes why the conversation is over. Waiting calls fail. The handlers of a server may
// still finish, unless ctx has ended. The contexts of those of a client end here.
func (l *loop) noteEnd(err error) {
	why := closedBecause(err)
	if err == io.EOF {
		err = nil
	}
	if l.peer.weAreClient {
		l.peer.endContexts(why) // calls refuseCalls, too
	} else {
		l.peer.refuseCalls(why)
	}
	select {
	case l.result <- err:
	default: // the first reason is the one that counts
	}
}

// takeIn takes in a payload, and answers it. It returns whether its goroutine is still the
// reader. The caller has called enterReader.
func (l *loop) takeIn(in Payload) (isReader bool) {
	defer l.peer.working.Done() // Peer.Close and ServeConn wait for this
	l.count(&in)                // its bytes, until its responses are written
	r := l.peer.dispatch(l.peer.ctx, in, l.base)
	if r == nil { // there is nothing to answer
		return true
	}
	if r.exclusive { // nothing else is read before it is answered
		l.answer(r)
		return true
	}
	next := time.AfterFunc(handOverAfter, l.read)
	l.answer(r)
	return next.Stop() // true: the timer has not fired, so there is no other reader
}

// answer serves the requests of a payload, and writes each response as soon as it is there. The
// responses that form an array are written together, when the last one is there.
func (l *loop) answer(r *responder) {
	defer r.release() // then the requests do not count as unanswered any more
	out := Payload{Batch: r.asArray}
	defer func() { // also if Handle ends its goroutine, as t.FailNow does
		if out.Messages != nil { // nil: no array, or all requests of it were cancelled
			l.write(out)
		}
	}()
	r.serve(func(m *Message) {
		m = r.countedOrError(m) // an error, if too many bytes of results wait to be written
		out.Messages = append(out.Messages, m)
		if !r.asArray {
			l.write(out)
			out.Messages = nil
			r.used.set(&r.used.results, 0)
		}
	})
}

// write writes an answer, even when all contexts have ended. If a server cannot write, the
// conversation is over. A client continues: if its connection is lost, its Read fails as well.
func (l *loop) write(out Payload) {
	err := l.peer.conn.Write(context.Background(), out)
	switch {
	case err == nil:
	case l.peer.weAreClient:
		l.reportUnsent(out, err) // logs err, and tries to send an error in place of each result
	default:
		l.noteEnd(fmt.Errorf("write: %w", err))
		l.peer.conn.Close()
	}
}

// ---- Taking in what comes ----

// Peer is our record of the other end of a conversation: our calls to it, and its requests that
// we are serving. With a Conn, a loop reads what the peer sends. Over HTTP a server has no
// Conn: ServeHTTP calls dispatch for each POST, and another goroutine serves the requests.
type Peer struct {
	log         *slog.Logger
	send        sender   // sends what belongs to no request
	protocol    protocol // MCP, or plain JSON-RPC: decides about each payload, request and notification
	weAreClient bool     // we are the client, and the peer is the server

	ctx      context.Context         // of the conversation; it ends when that of ServeConn does, or with endCtx
	endCtx   context.CancelCauseFunc // ends ctx with the reason: endContexts calls it
	conn     Conn                    // nil for a server over HTTP, which has no Conn
	onReport func(error)             // takes in what the transport reports; nil: it is logged

	working sync.WaitGroup // readers that serve what they have read
	sends   sync.WaitGroup // goroutines that send in the background, such as cancellations

	mu         sync.Mutex          // guards the fields below
	lastID     int64               // of our calls
	calls      map[ID]*pendingCall // our calls; nil: there was none yet
	serving    map[ID]*served      // its requests; nil: none, because an idle session should stay small
	callErr    error               // set when the conversation begins to end: why there are no more calls and requests
	onEnd      func()              // runs when the conversation has ended, perhaps more than once; nil: nothing does
	unanswered int                 // requests and refusals whose responses are not yet written
}

// dispatch takes in a payload. It hands responses to the calls that wait for them, and
// notifications to the Handler, in the order in which they were sent. It does not serve
// requests: it returns the responder for them, and for refusals; nil: there are none. Each
// Exchange is a copy of base, with its Handler. The context of each request ends when ctx does.
// All handlers see the values of ctx.
func (p *Peer) dispatch(ctx context.Context, in Payload, base Exchange) *responder {
	base.owner, base.used = p, in.used
	// For MCP, beginPayload and beginRequest are in session.go. asArray: the responses form one
	// array. refused: why the payload is not taken; "": it is.
	asArray, refused := p.protocol.beginPayload(in, &base)
	if refused != "" { // one error answers the whole payload
		asArray = false
		p.failCalls(in, refused) // those whose responses are in it
		in.Messages = []*Message{newInvalid(ID{}, refused)}
	}
	r := &responder{peer: p, used: in.used, asArray: asArray}
	p.takeReport(in) // logs what the transport says about itself; if it has lost messages, our calls fail
	for _, m := range in.Messages {
		switch m.Kind() {
		case Response:
			p.deliver(m)
		case Notification:
			p.takeNotification(ctx, m, base) // the protocol comes first, for cancellations; then the Handler
		case Request:
			x := base
			x.Request = m
			switch err := p.registerRequest(ctx, in, &x); err {
			case nil:
				r.requests = append(r.requests, x.state)
				r.exclusive = r.exclusive || x.exclusive
			case errIgnored: // it gets no response
			default:
				p.refuse(r, in, NewResponse(m.ID, nil, err))
			}
		case Invalid:
			// refuse adds m to r.refusals. A client drops an error without an id: otherwise two
			// errors could answer each other for ever.
			p.refuse(r, in, m)
		}
	}
	if len(r.refusals)+len(r.requests) == 0 {
		r.release() // the bytes of the payload
		return nil
	}
	if len(r.requests) == 0 && !p.weAreClient {
		// A server writes refusals before it reads on, so that a client that reads nothing
		// cannot make it hold more and more. A client reads on: the response to a call of its
		// own may come next.
		r.exclusive = true
	}
	return r
}

// deliver hands a response to the call that waits for it. A response that no call waits for is
// logged.
func (p *Peer) deliver(m *Message) {
	c := p.removeCall(m.ID)
	switch {
	case c != nil:
		c.response <- m
	case m.unusable != nil:
		p.log.Warn("dropped a response", "reason", brief(m.unusable.Error())) // brief shortens it for the log
	case m.Error != nil && m.ID == ID{}: // the peer could not read something of ours
		p.log.Warn("an error for no call of ours", "error", brief(m.Error.Error()))
	default:
		p.log.Debug("a response that no call waits for", "id", brief(m.ID.String()))
	}
}

// registerRequest puts a request of a payload into the table of requests that are being served.
// If it returns an error, that is the response. After errIgnored there is none. Over HTTP, ctx
// is that of a POST.
func (p *Peer) registerRequest(ctx context.Context, in Payload, x *Exchange) error {
	if err := p.protocol.beginRequest(in, x); err != nil { // may fill in x, too
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.callErr != nil: // the conversation is ending: a response would not be read
		return errIgnored
	case p.serving[x.Request.ID] != nil:
		return invalidRequest("its id is in flight")
	case p.unanswered >= maxInFlight || in.isTooMuch:
		return errBusy
	}
	s := &served{exchange: x, id: x.Request.ID}
	s.ctx, s.cancel = context.WithCancel(ctx)
	if p.serving == nil {
		p.serving = map[ID]*served{}
	}
	x.state, p.serving[s.id] = s, s
	p.unanswered++
	return nil
}

// ---- Answering ----

// responder answers a payload: it has the requests to serve, and the refusals. serve passes
// each response to a function that writes it. When all are written, release is called.
type responder struct {
	asArray   bool // the responses form one array
	peer      *Peer
	refusals  []*Message
	requests  []*served
	used      *reservation // of the Payload; it also counts the results
	exclusive bool         // nothing more is read before all is answered
	ended     int          // how many of the requests are done
}

// serve passes the refusals to write, and serves the requests one after another. It passes each
// response to write as soon as it is there. A request that was cancelled gets no response:
// 2025-11-25 cancellation, receivers SHOULD "Not send a response for the cancelled request".
func (r *responder) serve(write func(*Message)) {
	for _, m := range r.refusals {
		write(m)
	}
	defer r.endUnserved(write) // if a handler has ended this goroutine, as t.FailNow does
	for _, s := range r.requests {
		response := NewResponse(s.id, nil, errStopping)
		if s.ctx.Err() == nil { // it was not stopped or cancelled before its turn
			response = s.exchange.callHandler(s.ctx)
		}
		r.ended++
		r.endRequest(s, response, write)
	}
}

// callHandler calls the Handler, and returns the response. The response to a notification is
// not sent: only its Error is logged. The response is errInternal if Handle panics, or if a
// method of its result does, such as MarshalJSON. If Handle ends its goroutine, callHandler
// does not return.
func (x *Exchange) callHandler(ctx context.Context) (response *Message) {
	defer func() {
		if r := recover(); r != nil {
			x.logPanic(r)
			response = NewResponse(x.Request.ID, nil, errInternal)
		}
	}()
	var raw json.RawMessage
	result, err := x.handler.Handle(ctx, x)
	switch {
	case err != nil:
		err = x.whyStopped(ctx, err) // if we have stopped the handler, this says so in place of "context canceled"
	case x.Request.Kind() == Request: // the result of a notification is not sent
		raw, err = x.marshal(result)
	}
	if err != nil {
		return NewResponse(x.Request.ID, nil, err)
	}
	return &Message{ID: x.Request.ID, Result: raw}
}

// endRequest takes a request out of the table, and writes its response, after the messages that
// belong to the request.
func (r *responder) endRequest(s *served, response *Message, write func(*Message)) {
	isWanted := r.peer.removeRequest(s)
	s.exchange = nil
	if !isWanted {
		return
	}
	s.sending.Wait() // a message that is half written is still finished
	write(response)
	if s.trailer != nil {
		write(s.trailer)
	}
}

// removeRequest takes a request out of the table when its handler has returned. It returns
// false if the request was cancelled.
func (p *Peer) removeRequest(s *served) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serving[s.id] == s { // no longer, if a second initialize has dropped this request
		delete(p.serving, s.id)
	}
	if len(p.serving) == 0 {
		p.serving = nil
	}
	s.cancel()
	return !s.cancelled
}

// cancelServed cancels the request with this id, unless it is exclusive: what follows such a
// request depends on it. It returns the Exchange; nil: no request was cancelled. Until the
// handler returns, no other request may have the id, unless a second initialize has freed it:
// see Peer.replace.
func (p *Peer) cancelServed(id ID) *Exchange {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := p.serving[id]
	if s == nil || s.exchange.exclusive {
		return nil
	}
	s.cancelled = true
	s.cancel()
	return s.exchange
}

// ---- Our calls ----

// call sends a request, and waits for the response: see Call. send is Exchange.sendRelated if a
// handler asks the peer whose request it serves, otherwise Peer.send. giveUp ends a call that
// was not sent, or whose ctx has ended. It tells the peer that nobody waits: in MCP, with
// notifications/cancelled.
func (p *Peer) call(ctx context.Context, send sender, method string, params, result any) error {
	m, err := NewRequest(ID{}, method, params)
	if err != nil {
		return err
	}
	// Nothing is read before the handler of a notification returns. A goroutine that it has
	// started waits for that here. In the handler itself, awaitReader returns an error after a
	// second.
	if err := p.awaitReader(ctx); err != nil {
		return err
	}
	c, err := p.registerCall(m) // gives m its id
	if err != nil {
		return err
	}
	err = send(ctx, m)
	if err == nil {
		select {
		case response := <-c.response: // the reader has put it there: see deliver
			return response.store(result) // as json.Unmarshal does, or its error
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return p.giveUp(ctx, send, c, err, result) // if the response comes at this moment, it is stored after all
}

// pendingCall is a call that waits for its response.
type pendingCall struct {
	request *Message
	token   ID // the progress token in its params, for Peer.expects; the zero ID: there is none
	// response has room for one. If the call fails, a Message with the reason in unusable is
	// put here.
	response chan *Message
}

// registerCall gives a request its id, and puts it into the table of calls.
func (p *Peer) registerCall(m *Message) (*pendingCall, error) {
	// The token is read once: to search large params for each notification would take too long.
	token, _ := parseID(member(member(m.Params, "_meta"), "progressToken"))
	c := &pendingCall{request: m, token: token, response: make(chan *Message, 1)}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.callErr != nil {
		return nil, markedError{p.callErr, ErrNotSent} // matches both
	}
	p.lastID++ // the first id is 1: some servers take 0 for no id
	m.ID = NumberID(p.lastID)
	if p.calls == nil {
		p.calls = map[ID]*pendingCall{}
	}
	p.calls[m.ID] = c
	return c, nil
}

// ==== More about messages ====

// ---- Making messages ----

// NewRequest returns a request. With the zero ID it returns a notification. params must encode
// to a JSON object; nil means that there are none.
func NewRequest(id ID, method string, params any) (*Message, error) {
	if params == nil {
		return &Message{ID: id, Method: method}, nil
	}
	raw, err := marshalObject(params)
	if err != nil {
		return nil, fmt.Errorf("params of %s: %w", method, err)
	}
	return &Message{ID: id, Method: method, Params: raw}, nil
}

// NewResponse returns the response to the request with this id. If err is nil, the response
// carries result, which must encode to a JSON object; nil becomes {}. An err that is not an
// *Error, and wraps none, becomes one with CodeInternalError. If result cannot be encoded, the
// response carries such an error, too.
func NewResponse(id ID, result any, err error) *Message {
	var raw json.RawMessage
	if err == nil {
		raw, err = marshalObject(result)
	}
	if err == nil {
		return &Message{ID: id, Result: raw}
	}
	var fault *Error
	if !errors.As(err, &fault) {
		fault = &Error{Code: CodeInternalError, Message: err.Error()}
	}
	if fault == nil { // the handler has returned a nil *Error as an error, which is a mistake
		fault = errInternal
	}
	return &Message{ID: id, Error: fault}
}

// newInvalid returns the Invalid message for text that is not a message. 2025-11-25
// basic#error-responses: the id is left out if it could not be read.
func newInvalid(id ID, reason string) *Message {
	return &Message{ID: id, invalid: true, Error: invalidRequest(reason)}
}

// Unusable returns why the call that waits for this response fails: the response breaks the
// rules of JSON-RPC, or the transport has lost it. nil: nothing is wrong.
func (m *Message) Unusable() error { return m.unusable }

// Raw returns the text that Decode has read, which must not be changed. It is nil in any other
// Payload.
func (p Payload) Raw() []byte { return p.raw }

// ---- Ids ----

// NumberID returns the integer n as an ID.
func NumberID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// StringID returns the string s as an ID. It never equals the NumberID that looks the same.
func StringID(s string) ID { return ID{string(appendString(nil, s))} }

// String returns the ID as it is written in JSON: a string has its quotes. The zero ID is "".
func (id ID) String() string { return id.text }

// parseID reads an id from one value of JSON. It returns false for a fraction, a boolean, null,
// an array or an object, and for an id of more than maxID bytes. 2025-11-25 basic#requests:
// "Requests MUST include a string or integer ID." and "Unlike base JSON-RPC, the ID MUST NOT be
// null."
func parseID(raw []byte) (id ID, ok bool) {
	if len(raw) == 0 || len(raw) > maxID+len(`""`) {
		return ID{}, false
	}
	isString := raw[0] == '"'
	digits := bytes.TrimPrefix(raw, []byte("-"))
	isInteger := len(bytes.Trim(digits, "0123456789")) == 0
	if !isString && !isInteger {
		return ID{}, false
	}
	return ID{string(raw)}, true
}

// mustBeID says what parseID accepts.
var mustBeID = fmt.Sprintf("must be a string or an integer of at most %d bytes", maxID)

// ---- Errors ----

// The error codes of JSON-RPC 2.0. Those of MCP are in session.go. Codes of an application lie
// outside -32768..-32000.
const (
	CodeParseError     = -32700 // the text is not JSON, or not UTF-8
	CodeInvalidRequest = -32600 // the JSON is not a message
	CodeMethodNotFound = -32601 // the method is not served
	CodeInvalidParams  = -32602 // the params do not fit the method
	CodeInternalError  = -32603 // something else went wrong in the handler
)

// Errors of a conversation. None of them is sent by the peer.
var (
	// ErrClosed means that the conversation ended before the response came. The error that Call
	// returns wraps this and, if one is known, the reason. In an HTTP session it can also mean
	// that no client reads the stream of the message.
	ErrClosed = errors.New("connection closed")
	// ErrNotSent means that the peer has not read the request. It is safe to send it again.
	ErrNotSent = errors.New("request not sent")
	// ErrNoServerRequests means that the peer cannot be sent requests. In MCP, a handler asks
	// such a client with an InputRequired.
	ErrNoServerRequests = errors.New("the client takes no requests of the server")
	// ErrAnswered means that the request was answered or cancelled: no message may be sent for
	// it any more.
	ErrAnswered = errors.New("request answered or cancelled")
	// ErrTooLarge means that a message had more bytes than allowed, or a batch more messages.
	ErrTooLarge = errors.New("message too large")
)

// Error returns the message, the data and the code. The data is left out if it is not a string,
// or if the message repeats it. Both are cut after 4,000 characters, because the search of one
// in the other may take the product of their lengths.
func (e *Error) Error() string {
	text, data := fmt.Sprintf("%.4000s", e.Message), fmt.Sprintf("%.4000s", unquote(e.Data))
	if !strings.Contains(text, data) {
		text += ": " + data
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}

// invalidRequest returns an Error with CodeInvalidRequest.
func invalidRequest(reason string) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "Invalid request: " + reason}
}

// InvalidParams returns an Error with CodeInvalidParams. The reason is in the message, because
// many clients show nothing else to their user or model. The reason is cut after 500
// characters, because it may repeat what the peer has sent.
func InvalidParams(format string, args ...any) *Error {
	reason := fmt.Sprintf("%.500s", fmt.Sprintf(format, args...))
	return &Error{Code: CodeInvalidParams, Message: "Invalid params: " + reason}
}

// MethodNotFound returns an Error with CodeMethodNotFound.
func MethodNotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: fmt.Sprintf("Method not found: %.200s", method)}
}

// ---- From messages to text ----

// Append appends the payload as one line of JSON, without a newline. Only characters that need
// it are escaped. Append panics if there is no message and Batch is false.
func (p Payload) Append(b []byte) []byte {
	if !p.Batch {
		return p.Messages[0].append(b)
	}
	b = append(b, '[')
	for i, m := range p.Messages {
		if i > 0 {
			b = append(b, ',')
		}
		b = m.append(b)
	}
	return append(b, ']')
}

func (m *Message) append(b []byte) []byte {
	b = m.appendStart(slices.Grow(b, len(m.Params)+len(m.Result)+128))
	if m.Params != nil {
		b = appendLine(append(b, `,"params":`...), m.Params)
	}
	if m.Result != nil {
		b = appendLine(append(b, `,"result":`...), m.Result)
	}
	if m.Error != nil {
		fault, err := marshal(m.Error)
		if err != nil { // Data is not JSON
			fault, _ = marshal(&Error{Code: m.Error.Code, Message: m.Error.Message})
		}
		b = append(append(b, `,"error":`...), fault...)
	}
	return append(b, '}')
}

// ---- Writing JSON ----

// appendStart appends the members that all messages have.
func (m *Message) appendStart(b []byte) []byte {
	b = append(b, `{"jsonrpc":"2.0"`...)
	if m.ID != (ID{}) {
		b = append(append(b, `,"id":`...), m.ID.text...)
	}
	if m.Method != "" {
		b = appendString(append(b, `,"method":`...), m.Method)
	}
	return b
}

// marshalObject encodes v, which must become a JSON object. nil becomes {}.
func marshalObject(v any) (json.RawMessage, error) {
	raw, err := marshal(v)
	switch {
	case err != nil:
		return nil, err
	case string(raw) == "null":
		return json.RawMessage("{}"), nil
	case raw[0] != '{':
		return nil, fmt.Errorf("%T is not a JSON object", v)
	}
	return raw, nil
}

// marshal encodes v. It does not escape <, > and &. Bytes that are not UTF-8 become U+FFFD. A
// json.RawMessage keeps its line breaks, which appendLine removes.
func marshal(v any) (json.RawMessage, error) {
	switch v := v.(type) {
	case encoded:
		return json.RawMessage(v), nil
	case interface{ encode() (encoded, error) }:
		raw, err := v.encode()
		return json.RawMessage(raw), err
	case Object: // its members stay as they are
		return v.JSON(), nil
	case *Object:
		return v.JSON(), nil
	case json.RawMessage:
		if json.Valid(v) && utf8.Valid(v) {
			return bytes.TrimSpace(v), nil
		}
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	raw := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if !utf8.Valid(raw) { // a json.RawMessage can hold such bytes
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	return raw, nil
}

// encoded is JSON that marshal has written. marshal returns it as it is, and does not check and
// copy it again.
type encoded json.RawMessage

// MarshalJSON returns the JSON.
func (e encoded) MarshalJSON() ([]byte, error) { return e, nil }

// appendLine appends JSON on one line: the JSON of a peer or a caller may have several. In
// JSON, a line break is white space, because a string cannot contain one.
func appendLine(b []byte, raw json.RawMessage) []byte {
	if bytes.IndexByte(raw, '\n') >= 0 || bytes.IndexByte(raw, '\r') >= 0 {
		raw = bytes.ReplaceAll(bytes.ReplaceAll(raw, []byte("\n"), []byte(" ")), []byte("\r"), []byte(" "))
	}
	return append(b, raw...)
}

// appendString appends s as a JSON string. Most strings need no escapes.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' || s[i] >= utf8.RuneSelf {
			quoted, _ := marshal(strings.Clone(s)) // a copy, so that the caller's s need not be on the heap
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// Object builds a JSON object member by member. Use it if some members are ours, and the others
// are passed on as they came. The zero Object has no members.
type Object struct{ text []byte }

// Add adds a member. value must be JSON.
func (o *Object) Add(name string, value []byte) {
	if len(o.text) == 0 {
		o.text = append(o.text, '{')
	} else {
		o.text = append(o.text, ',')
	}
	o.text = append(appendString(o.text, name), ':')
	o.text = append(o.text, value...)
}

// AddAll adds the members of another object, except those with these names. What is not an
// object adds nothing.
func (o *Object) AddAll(other json.RawMessage, except ...string) {
	if !bytes.HasPrefix(bytes.TrimLeft(other, blanks), []byte("{")) {
		return
	}
	for name, value := range Each(other) {
		if !slices.Contains(except, string(name)) {
			o.Add(string(name), value)
		}
	}
}

// JSON returns the object. Nothing can be added afterwards.
func (o *Object) JSON() json.RawMessage { return json.RawMessage(o.encode()) }

// MarshalJSON returns the object, so a handler may return an Object.
func (o Object) MarshalJSON() ([]byte, error) { return o.encode(), nil }

// encode returns the object as a text that marshal does not check again.
func (o *Object) encode() encoded {
	if len(o.text) == 0 {
		return encoded("{}")
	}
	// Clip makes append use new memory. More may be added to the object, and another goroutine
	// may encode it at the same time.
	return append(slices.Clip(o.text), '}')
}

// ==== More about the conversation ====

// ---- The beginning ----

// ServeConn serves the peer at the other end of c, as the server. It speaks JSON-RPC alone: for
// MCP, use Serve. It returns nil when the peer has hung up. If the conversation ends in another
// way, it returns the reason. It closes c, and also returns the error of c.Close. If log is
// nil, nothing is logged.
//
// When the peer has hung up, waiting calls fail, Exchange.Ending is closed, and running
// requests have five seconds to finish. When ctx ends, the contexts of the requests end, and c
// is closed at once. Then the handlers have three seconds to return. Their responses are still
// written if Close of c does nothing, as that of a StdioConn.
func ServeConn(ctx context.Context, c Conn, h Handler, log *slog.Logger) error {
	return serveConn(ctx, c, h, plainProtocol{}, log)
}

// OpenConn starts a conversation as the client, and returns at once. It speaks JSON-RPC alone:
// for MCP, use Client. h answers the requests of the peer and takes in its notifications. If h
// is nil, requests are answered with CodeMethodNotFound. The conversation ends when ctx does,
// or with Peer.Close.
func OpenConn(ctx context.Context, c Conn, h Handler, log *slog.Logger) *Peer {
	return openConn(ctx, c, h, plainProtocol{}, log)
}

func openConn(ctx context.Context, c Conn, h Handler, protocol protocol, log *slog.Logger) *Peer {
	l := newLoop(ctx, c, h, protocol, log, true)
	l.start()
	return l.peer
}

// newLoop makes a Peer and its loop. Nothing is read before start.
func newLoop(ctx context.Context, c Conn, h Handler, protocol protocol, log *slog.Logger, weAreClient bool) *loop {
	if h == nil {
		h = HandlerFunc(func(_ context.Context, x *Exchange) (any, error) { return nil, MethodNotFound(x.Request.Method) })
	}
	send := func(ctx context.Context, m *Message) error { return c.Write(ctx, Payload{Messages: []*Message{m}}) }
	p := newPeer(ctx, send, protocol, log)
	p.weAreClient, p.conn = weAreClient, c
	base := Exchange{Peer: p, handler: h, send: send}
	return &loop{peer: p, base: base, result: make(chan error, 1), used: counter{limit: maxHeld}}
}

// newPeer returns a Peer that lives as long as ctx.
func newPeer(ctx context.Context, send sender, protocol protocol, log *slog.Logger) *Peer {
	p := &Peer{log: cmp.Or(log, silent), send: send, protocol: protocol}
	p.ctx, p.endCtx = context.WithCancelCause(ctx)
	return p
}

// Dialer opens Conns. CommandDialer, HTTPDialer and SSEDialer implement it. Each Dial opens a
// new Conn: it starts a new process, or connects to the URL anew.
type Dialer interface {
	// Dial opens a Conn, which lives on when ctx ends. If ctx ends before, Dial must return:
	// the Client waits for it.
	Dial(ctx context.Context) (Conn, error)
}

// DialerFunc is a function as a Dialer.
type DialerFunc func(ctx context.Context) (Conn, error)

// Dial calls f.
func (f DialerFunc) Dial(ctx context.Context) (Conn, error) { return f(ctx) }

// ---- What a Handler gets, and what becomes of its result ----

// HandlerFunc is a function as a Handler. The rest is for every Handler.
//
// When the peer of a server has hung up, ctx ends up to five seconds later: see ServeConn.
//
// With a Conn, the goroutine that reads also handles the notifications, one at a time, in the
// order in which they were sent. So Handle of a notification must follow three rules:
//
//   - It must not take long: nothing is read before it returns.
//   - It must not call the peer: the response could not be read. Peer.Call and Client.Call
//     with its ctx fail after a second. Start a goroutine for such a call.
//   - If the peer may do the same at this time, it must not Notify either, because Notify
//     may wait until the peer reads. Start a goroutine for it, too.
//
// On a server over HTTP, each POST has a goroutine of its own.
//
// If Handle panics for a request, the answer is a CodeInternalError. The panic and its stack
// are logged, by slog.Default if there is no other log. The answer is the same if Handle ends
// its goroutine with runtime.Goexit, as t.FailNow does. For a notification or initialize,
// Handle must not end its goroutine: nothing is read after that.
type HandlerFunc func(ctx context.Context, x *Exchange) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, x *Exchange) (any, error) { return f(ctx, x) }

// Bind stores the params of the request in a struct, as the function Bind does. The error is an
// *Error with CodeInvalidParams. Without a Request the params are an empty object.
func (x *Exchange) Bind(target any) error {
	var params json.RawMessage
	if x.Request != nil {
		params = x.Request.Params
	}
	return paramsError(Bind(params, target), "param")
}

// paramsError makes an *Error of what Bind has returned. kind is the word for a member, such as
// "argument".
func paramsError(err error, kind string) error {
	if fault, ok := errors.AsType[*BindError](err); ok {
		return fault.InvalidParams(kind)
	}
	return err
}

// Notify sends a notification that belongs to the request. It returns ErrAnswered when the
// response is on its way, when the request was cancelled, and in the handler of a notification.
// 2025-11-25 progress: "Progress notifications MUST stop after completion".
func (x *Exchange) Notify(ctx context.Context, method string, params any) error {
	return notify(ctx, x.sendRelated, method, params)
}

// notify makes a notification, and sends it.
func notify(ctx context.Context, send sender, method string, params any) error {
	m, err := NewRequest(ID{}, method, params)
	if err != nil {
		return err
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return send(ctx, m)
}

// Call sends a request that belongs to this one, and stores the result as Peer.Call does. It
// returns ErrNoServerRequests if the peer cannot be sent a request. In the handler of a
// notification or of initialize it returns an error, because nothing is read before that
// handler returns. Call does not check whether the peer knows the method.
//
// In MCP, Call works in the legacy era alone, and a Handler must not call before the client has
// sent notifications/initialized. To ask the user in both eras, a handler returns an
// InputRequired instead. The Server sees to the rest.
func (x *Exchange) Call(ctx context.Context, method string, params, result any) error {
	switch {
	case x.Peer == nil:
		return ErrNoServerRequests
	case x.state == nil || x.exclusive:
		return errNothingIsRead
	}
	return x.Peer.call(ctx, x.sendRelated, method, params, result)
}

// errNothingIsRead is the error of a call whose response could not be read.
var errNothingIsRead = errors.New("the handler of a notification, or of initialize, cannot call: nothing is read before it returns; start a goroutine that calls")

// sendRelated sends a message that belongs to the request, unless the request is answered or
// cancelled. The response to the request waits until the message is sent.
func (x *Exchange) sendRelated(ctx context.Context, m *Message) error {
	if x.state == nil {
		return ErrAnswered
	}
	x.owner.mu.Lock()
	over := x.owner.serving[x.state.id] != x.state || x.state.cancelled
	if !over {
		x.state.sending.Add(1)
	}
	x.owner.mu.Unlock()
	if over {
		return ErrAnswered
	}
	defer x.state.sending.Done()
	return x.send(ctx, m)
}

// marshal encodes the result of the request.
func (x *Exchange) marshal(result any) (json.RawMessage, error) {
	if x.encode != nil {
		return x.encode(result)
	}
	return marshalObject(result)
}

// useBytes counts n bytes that the request needs, such as those of an answer of the client.
func (x *Exchange) useBytes(n int) error {
	if x.used != nil && !x.used.set(&x.used.results, x.used.results+counted(n)) {
		return errNoMemory
	}
	return nil
}

// whyStopped returns the error of a handler. If this server has stopped the handler, by ending
// its context, it returns errStopping in place of "context canceled", which would tell the peer
// nothing.
func (x *Exchange) whyStopped(ctx context.Context, err error) error {
	stoppedByUs := ctx.Err() != nil && !x.owner.weAreClient
	isContextError := errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))
	if stoppedByUs && isContextError && !errors.As(err, new(*Error)) {
		return errStopping
	}
	return err
}

// logPanic logs a panic of a handler with its stack.
func (x *Exchange) logPanic(r any) {
	log := x.owner.log
	if log == silent {
		log = slog.Default() // a program that logs nothing must still show its panics, as with net/http
	}
	log.Error("panic in a handler", "method", brief(x.Request.Method), "panic", brief(fmt.Sprint(r)), "stack", string(debug.Stack()))
}

// ---- Reports, notifications and cancellations ----

// takeReport takes in what a transport says about itself: that messages are lost, or anything
// else.
func (p *Peer) takeReport(in Payload) {
	if in.Lost != nil { // any waiting call may be the one whose response is lost
		p.failAllCalls(in.Lost)
	}
	switch {
	case in.Report == nil:
	case p.onReport != nil:
		p.onReport(in.Report)
	default:
		p.log.Warn("transport", "error", brief(in.Report.Error()))
	}
}

// takeNotification gives a notification to the protocol, and then to the Handler.
func (p *Peer) takeNotification(ctx context.Context, m *Message, x Exchange) {
	x.Request = m
	if p.protocol.takeNotification(&x) {
		return
	}
	returned := make(chan struct{})
	defer close(returned)
	if p.conn == nil { // over HTTP other goroutines read on
		ctx = valuesContext{p.ctx, ctx}
	} else {
		ctx = context.WithValue(ctx, readerKey{p}, returned)
	}
	if response := x.callHandler(ctx); response.Error != nil {
		p.log.Debug("notification not handled", "method", brief(m.Method), "error", brief(response.Error.Error()))
	}
}

// valuesContext ends with the context of a Peer, and has the values of another context. It is
// not derived from the context of the Peer, which would hold it until the Peer ends: an idle
// session is to be small.
type valuesContext struct {
	context.Context
	values context.Context
}

// Value returns a value of the other context.
func (c valuesContext) Value(key any) any { return c.values.Value(key) }

// ---- Our calls, in detail ----

// Context returns a context that ends when the conversation does. Its cause is the reason. If
// the Peer is nil, there is no conversation, and the context has ended.
func (p *Peer) Context() context.Context {
	if p == nil {
		ctx, end := context.WithCancelCause(context.Background())
		end(ErrNoServerRequests)
		return ctx
	}
	return p.ctx
}

// Notify sends a notification that belongs to no request. If the Peer is nil, it returns
// ErrNoServerRequests.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	if p == nil {
		return ErrNoServerRequests
	}
	return notify(ctx, p.send, method, params)
}

// Call sends a request and waits for the response. It stores the result where result points to,
// as json.Unmarshal does; nil: the result is not wanted.
//
// An error that the peer has sent is an *Error. If ctx ends first, Call returns the error of
// ctx, and tells the peer that the response is not wanted. If the conversation ends first, the
// error wraps ErrClosed and, if one is known, the reason.
//
// Some requests, such as initialize, are answered before anything else is read. The handler of
// such a request must not wait for a Call.
//
// If the Peer is nil, Call returns ErrNoServerRequests.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	if p == nil {
		return ErrNoServerRequests
	}
	return p.call(ctx, p.send, method, params, result)
}

// awaitReader waits until a handler of a notification has returned, if ctx is the context of
// that handler: only then is the peer read again. So a goroutine that the handler has started
// can call. In the handler itself, a call fails after graceAtEnd.
func (p *Peer) awaitReader(ctx context.Context) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	returned, isNotification := ctx.Value(readerKey{p}).(chan struct{})
	if !isNotification {
		return nil
	}
	select {
	case <-returned:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(graceAtEnd):
		return errNothingIsRead
	}
}

// readerKey is the key of a channel in the context of the handler of a notification. The
// channel is closed when the handler has returned, and the peer is read again. It is in the
// context because Client.Call is given nothing else of the handler.
type readerKey struct{ peer *Peer }

// removeCall takes a call out of the table, and returns it; nil: it is not there. A call is
// removed once: by its caller, which gives up, or by a goroutine that then puts the response,
// or the reason of the failure, into its channel.
func (p *Peer) removeCall(id ID) *pendingCall {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id]
	delete(p.calls, id)
	return c
}

// giveUp ends a call that was not sent, or whose ctx has ended; err says which. But the reader
// may be taking in the response at this moment: whoever removes the call from the table owns
// the result. If that was not this goroutine, the response, or the reason of the failure, is in
// c.response, or will be soon.
func (p *Peer) giveUp(ctx context.Context, send sender, c *pendingCall, err error, result any) error {
	if p.removeCall(c.request.ID) == nil {
		return (<-c.response).store(result)
	}
	if ctx.Err() == nil { // so send has failed
		p.mu.Lock()
		defer p.mu.Unlock()
		return cmp.Or(p.callErr, err) // the reason of the end says more than that of the failed write
	}
	p.goSend(func() { p.tellAbandoned(send, c.request, context.Cause(ctx)) })
	return ctx.Err()
}

// failCalls fails the calls whose responses are in a payload that is not taken.
func (p *Peer) failCalls(in Payload, reason string) {
	for _, m := range in.Messages {
		if m.Kind() == Response {
			p.deliver(&Message{ID: m.ID, unusable: errors.New("invalid response: " + reason)})
		}
	}
}

// store stores the result of a response, or returns its error.
func (m *Message) store(result any) error {
	switch {
	case m.unusable != nil:
		return m.unusable
	case m.Error != nil:
		return m.Error
	}
	return storeResult(m.Result, result)
}

// storeResult stores a result where a caller of Call wants it. A json.RawMessage gets the text
// itself, without a check or a copy.
func storeResult(raw json.RawMessage, result any) error {
	switch result := result.(type) {
	case nil:
		return nil
	case *json.RawMessage:
		*result = raw
		return nil
	}
	if err := json.Unmarshal(raw, result); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}

// tellAbandoned tells the peer that we do not want the response to call any more.
func (p *Peer) tellAbandoned(send sender, call *Message, why error) {
	m := p.protocol.abandoned(call, why)
	if m == nil {
		return
	}
	ctx, done := context.WithTimeout(context.WithoutCancel(p.ctx), graceAtEnd)
	defer done()
	err := send(ctx, m)
	if err == ErrAnswered { // the exchange that the call belonged to is over
		err = p.send(ctx, m)
	}
	if err != nil {
		p.log.Debug("cancellation not sent", "id", call.ID, "error", brief(err.Error()))
	}
}

// goSend runs f on a goroutine of the Peer. It is for messages that are sent in the background.
// When no more calls can be made, goSend does nothing.
func (p *Peer) goSend(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.callErr == nil {
		p.sends.Go(f)
	}
}

// ---- The end of a conversation ----

// Close hangs up. Every waiting Call returns ErrClosed, and the context of every handler ends.
// With a Conn, Close waits up to a second for the handlers. If one has not returned then, Close
// returns an error. It also returns the error of Conn.Close. A handler must not call Close.
//
// Close does not wait for a Read of the Conn. Conn.Close ends the Read, except a Read of
// standard input, which ends with the process.
func (p *Peer) Close() error {
	p.refuseCalls(closedBecause(cmp.Or(context.Cause(p.ctx), ErrClosed))) // it may have ended before, for another reason
	doneWithin(graceAtEnd, &p.sends)                                      // cancellations of calls are still sent
	p.endContexts(ErrClosed)
	var err error
	if p.conn != nil {
		err = p.conn.Close()
	}
	if !doneWithin(graceAtEnd, &p.working) {
		err = errors.Join(err, errStubborn)
	}
	return err
}

// endContexts ends the context of the conversation, then all calls that wait, and then the
// contexts of all requests. So a caller whose call fails finds the context of the conversation
// ended. After refuseCalls no request is registered any more, so stopServing finds all.
func (p *Peer) endContexts(why error) {
	p.endCtx(why)
	p.refuseCalls(closedBecause(why))
	p.stopServing()
	p.mu.Lock()
	onEnd := p.onEnd
	p.mu.Unlock()
	if onEnd != nil {
		onEnd()
	}
}

// stopServing ends the contexts of all requests of the peer that are being served. It returns
// how many had not ended.
func (p *Peer) stopServing() (stopped int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range p.serving {
		if s.ctx.Err() == nil {
			stopped++
		}
		s.cancel()
	}
	return stopped
}

// refuseCalls ends all calls that wait, with err. No call can begin after that: it fails with
// the err of the first refuseCalls. Requests of the peer are ignored.
func (p *Peer) refuseCalls(err error) {
	p.mu.Lock()
	p.callErr = cmp.Or(p.callErr, err)
	p.mu.Unlock()
	p.failAllCalls(err)
}

// failAllCalls ends all calls that wait. After that, other calls can be made.
func (p *Peer) failAllCalls(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		c.response <- &Message{unusable: err}
	}
	clear(p.calls)
}

var errStubborn = errors.New("a handler has not returned")

// doneWithin waits for a group, for at most d. It reports whether the group is done. The
// goroutine that it starts ends when the group is done.
func doneWithin(d time.Duration, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	return closedWithin(d, done)
}

// closedWithin waits until a channel is closed, for at most d. It reports whether the channel
// is closed.
func closedWithin(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// markedError is an error that matches another one, its mark. It keeps the text of the error.
// So the error of a transport says what has happened, and the mark what it means.
type markedError struct {
	error
	mark error
}

func (e markedError) Is(target error) bool { return target == e.mark }

func (e markedError) Unwrap() error { return e.error }

// closedBecause returns an error that wraps ErrClosed and the reason of the end. io.EOF is not
// a reason: the peer has hung up.
func closedBecause(err error) error {
	switch {
	case err == io.EOF:
		return ErrClosed
	case errors.Is(err, ErrClosed):
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, err)
}

// ---- What a protocol on top of JSON-RPC decides ----

// protocol is what a Peer asks the protocol on top of JSON-RPC. Each Peer has a protocol of its
// own, which may keep what it learns about the peer. Several goroutines call its methods.
type protocol interface {
	// beginPayload is called for each payload before its messages are taken in. The Exchange of
	// each message is a copy of base. If asArray is true, the responses form one array. If
	// refused is not empty, the whole payload is answered with one error, and refused is the
	// reason.
	beginPayload(in Payload, base *Exchange) (asArray bool, refused string)
	// beginRequest is called for each request before it is served, and may fill in its
	// Exchange. If it returns an error, that is the response. After errIgnored there is none.
	beginRequest(in Payload, x *Exchange) error
	// takeNotification is called for each notification. If it returns true, the Handler is not
	// called.
	takeNotification(x *Exchange) (handled bool)
	// abandoned returns the notification that tells the peer that no caller waits for the
	// response to call any more; nil: the peer is not told.
	abandoned(call *Message, why error) *Message
}

// errIgnored is the error of a request that gets no response.
var errIgnored = errors.New("ignored")

// plainProtocol is the protocol of ServeConn and OpenConn: JSON-RPC with the notification
// $/cancelRequest of the Language Server Protocol. Its member id says which request is
// cancelled.
type plainProtocol struct{}

const plainCancel = "$/cancelRequest"

// beginPayload lets every payload in. The answer to a batch is a batch.
func (plainProtocol) beginPayload(in Payload, _ *Exchange) (bool, string) { return in.Batch, "" }

// beginRequest lets every request in.
func (plainProtocol) beginRequest(Payload, *Exchange) error { return nil }

// takeNotification handles $/cancelRequest.
func (plainProtocol) takeNotification(x *Exchange) bool {
	if x.Request.Method != plainCancel {
		return false
	}
	if id, ok := parseID(member(x.Request.Params, "id")); ok {
		x.owner.cancelServed(id)
	}
	return true
}

// abandoned returns a $/cancelRequest.
func (plainProtocol) abandoned(call *Message, _ error) *Message {
	m, _ := NewRequest(ID{}, plainCancel, map[string]any{"id": json.RawMessage(call.ID.text)})
	return m
}

// ---- A Conn in memory ----

// Pipe returns two Conns that are connected to each other in memory. It is for tests, and it is
// the shortest example of a custom transport. It uses channels alone, so a test may use it in
// the bubble of testing/synctest.
//
// Each Conn holds up to 64 payloads that the other one has not read yet. After that, Write
// waits. When one of them is closed, both are. What was written before can still be read.
func Pipe() (a, b Conn) {
	toA := make(chan []byte, 64)
	toB := make(chan []byte, 64)
	closed := make(chan struct{})
	closeBoth := sync.OnceFunc(func() { close(closed) })
	a = &pipeConn{in: toA, out: toB, closed: closed, closeBoth: closeBoth}
	b = &pipeConn{in: toB, out: toA, closed: closed, closeBoth: closeBoth}
	return a, b
}

// pipeConn is one end of a Pipe.
type pipeConn struct {
	in        <-chan []byte
	out       chan<- []byte
	closed    <-chan struct{} // is closed by Close of either end
	closeBoth func()
}

// Read returns the next payload. After Close it returns what was written before, and then
// io.EOF.
func (c *pipeConn) Read() (Payload, error) {
	select {
	case text := <-c.in:
		return Decode(text), nil
	case <-c.closed:
	}
	select {
	case text := <-c.in: // it was written before Close
		return Decode(text), nil
	default:
		return Payload{}, io.EOF
	}
}

// Write hands a payload to the other end.
func (c *pipeConn) Write(ctx context.Context, p Payload) error {
	select {
	case <-c.closed: // even if there is room
		return ErrClosed
	default:
	}
	select {
	case c.out <- p.Append(nil):
		return nil
	case <-c.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close ends both Conns of the Pipe.
func (c *pipeConn) Close() error {
	c.closeBoth()
	return nil
}

// ==== Bounds and protection ====

const (
	// maxID is how many bytes an id may have, and a progress token. Ids are kept, logged and
	// repeated. A UUID has 36.
	maxID = 1024
	// maxLogged is how many bytes a log repeats of what a peer has sent.
	maxLogged = 500
	// maxInFlight is how many requests and refusals of one Peer may wait for their responses to
	// be written. More requests are answered with errBusy. A request that waits takes 6 kB,
	// half of it the stack of its goroutine, so all take 6 MB. It is also how many messages a
	// batch may have.
	maxInFlight = 1024
	// maxHeld is how many bytes the payloads may have that a Peer with a Conn serves at a time,
	// together with the results that wait until the peer reads. More requests are answered with
	// errBusy, and more results are replaced by errNoMemory. Without this bound, maxInFlight
	// lines of 4 MiB would take 4 GiB, and so would the results of a batch.
	maxHeld = 128 << 20

	// When the peer has hung up, its running requests have graceAfterHangup to finish: clients
	// with an official SDK send SIGTERM two to five seconds after they hang up. When ServeConn
	// is told to stop, the requests have graceAfterStop: those clients send SIGKILL two seconds
	// after SIGTERM, or later.
	graceAfterHangup = 5 * time.Second
	graceAfterStop   = 3 * time.Second
	// graceAtEnd is for what takes milliseconds if nothing is wrong: to send a cancellation,
	// and for handlers whose context has ended.
	graceAtEnd = time.Second
)

// ---- What is in flight, and what waits to be read ----

// The errors with which a Peer answers by itself.
var (
	errInternal = &Error{Code: CodeInternalError, Message: "Internal error"} // a handler has panicked, for instance
	errBusy     = &Error{Code: CodeInternalError, Message: "Too many requests in flight"}
	errStopping = &Error{Code: CodeInternalError, Message: "Stopped: the server or the session ends"}
	errNoMemory = &Error{Code: CodeInternalError, Message: "Too much waits in memory at the moment"}
)

// refuse adds a refusal to a responder. A client drops it if it has no id: the server might
// answer our error with another one, and so on for ever. With an id, our error is a response,
// which is never answered. If too many refusals wait, a client drops it as well: the server
// floods us, and does not read them.
func (p *Peer) refuse(r *responder, in Payload, m *Message) {
	if p.weAreClient && m.ID == (ID{}) {
		p.log.Warn("dropped what is no message", "reason", brief(m.Error.Message), "text", brief(in.raw))
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.weAreClient && p.unanswered >= 2*maxInFlight {
		p.log.Warn("dropped what is not served", "reason", brief(m.Error.Message))
		return
	}
	p.unanswered++
	r.refusals = append(r.refusals, m)
}

// endUnserved ends the requests that have no response. There are some only if Handle has ended
// its goroutine with runtime.Goexit.
func (r *responder) endUnserved(write func(*Message)) {
	for _, s := range r.requests[r.ended:] {
		r.endRequest(s, NewResponse(s.id, nil, errInternal), write)
	}
}

// release is called when all responses are written. Until then the requests count as
// unanswered. Otherwise a peer that sends requests, and does not read, could make us hold any
// number of responses.
func (r *responder) release() {
	r.peer.mu.Lock()
	r.peer.unanswered -= len(r.refusals) + len(r.requests)
	r.peer.mu.Unlock()
	r.used.release()
}

// enterReader counts a reader that has read a payload, and serves it. When the conversation has
// ended, enterReader returns false, and nothing is served any more: Close may already wait for
// the readers.
func (p *Peer) enterReader() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.callErr != nil {
		return false
	}
	p.working.Add(1)
	return true
}

// count counts the bytes of a payload until its responses are written.
func (l *loop) count(in *Payload) {
	in.used = &reservation{of: &l.used}
	in.isTooMuch = !in.used.set(&in.used.text, atMostAll(len(in.raw)))
}

// countedOrError counts the bytes of a result until it is written. If too many wait already, it
// counts nothing, and returns an error response instead. The text of the payload is not needed
// any more when its last request has a result.
func (r *responder) countedOrError(m *Message) *Message {
	if r.ended == len(r.requests) {
		r.used.set(&r.used.text, 0)
	}
	if !r.used.set(&r.used.results, r.used.results+atMostAll(len(m.Result))) {
		return NewResponse(m.ID, nil, errNoMemory)
	}
	return m
}

// atMostAll returns how many bytes are counted for n. A payload or a result may have any size
// if it is alone.
func atMostAll(n int) int { return min(counted(n), maxHeld) }

// reportUnsent logs that a client could not send an answer, and sends an error in place of each
// result. For instance, a result may be larger than the server allows. Without the error the
// server would wait for the result.
func (l *loop) reportUnsent(out Payload, why error) {
	if errors.Is(why, ErrClosed) { // the server does not wait for the answer any more
		l.peer.log.Debug("an answer was not sent", "error", brief(why.Error()))
		return
	}
	l.peer.log.Warn("an answer could not be sent", "error", brief(why.Error()))
	fault := &Error{Code: CodeInternalError, Message: "the result could not be sent: " + brief(why.Error())}
	ctx, cancel := context.WithTimeout(l.peer.ctx, graceAtEnd)
	defer cancel()
	for _, m := range out.Messages {
		if m.Result == nil {
			continue
		}
		if err := l.peer.conn.Write(ctx, Payload{Messages: []*Message{NewResponse(m.ID, nil, fault)}}); err != nil {
			l.peer.log.Debug("an error was not sent", "error", brief(err.Error()))
		}
	}
}

// ---- How much there may be at once ----

// counter bounds what several requests have together: bytes, or places. What finds no room is
// refused at once. A counter does not know whose things it counts, so one client can take all
// there are. A nil counter bounds nothing.
type counter struct {
	limit int64

	mu      sync.Mutex // guards the fields below
	taken   int64
	refused bool // something has found no room since the last wasFull
}

// take counts n more. It returns false, and counts nothing, if that is beyond the limit.
func (c *counter) take(n int) bool { return c.takeBut(n, 0) }

// takeBut is take with a limit that is lower by spare.
func (c *counter) takeBut(n int, spare int64) bool {
	if c == nil || n == 0 {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if int64(n) > c.limit-spare-c.taken {
		c.refused = true
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

// reservation is what a payload and its results have taken of a counter of bytes. One goroutine
// at a time uses it.
type reservation struct {
	of      *counter
	text    int // of the payload
	results int // that are not written yet
}

// set makes one part of the reservation n bytes, text or results. It returns false, and changes
// nothing, if that is beyond the limit.
func (r *reservation) set(part *int, n int) bool {
	if n > *part && !r.of.take(n-*part) {
		return false
	}
	if n < *part {
		r.of.give(*part - n)
	}
	*part = n
	return true
}

// release gives all back. A payload that nothing counts has a nil reservation.
func (r *reservation) release() {
	if r != nil {
		r.set(&r.text, 0)
		r.set(&r.results, 0)
	}
}

// countFrom is the size up to which a payload, a result, and what a stream has to write are not
// counted. So small calls still work when large ones use all bytes. Those that run at once have
// 4 MB on a pipe, and 12 MB over HTTP.
const countFrom = 4 << 10

// counted returns how many bytes are counted for n.
func counted(n int) int {
	if n <= countFrom {
		return 0
	}
	return n
}

// ---- Objects of a peer, by exact names ----
//
// encoding/json accepts "METHOD" for "method", and of two members with one name it takes the
// last. A proxy in front of us may read the same text in another way: what it has checked would
// not be what we run. So this package reads the objects that decide about a message by exact
// names, and refuses a name that appears twice: the message itself, its params, their _meta,
// and the arguments of a tool. What decides nothing, such as the result of a call, is read by
// json.Unmarshal.

// Bind stores the members of a JSON object in a struct. target is a pointer to the struct. The
// object must be valid JSON, as the params and results that Decode has read are. nil and null
// stand for an empty object.
//
// Each exported field needs a json tag with the name of its member. A field without omitempty
// or omitzero is required: it is an error if its member is missing or null. If the member of an
// optional field is missing or null, the field keeps its value. Members without a field are
// ignored. A json.RawMessage accepts null like any other value: it refers to the text of its
// member. An integer may be written as 3, 3.0 or 3e0.
//
// These rules hold for the members of this object alone. Objects inside of a member are read by
// json.Unmarshal, which is less strict: it ignores the case of names, takes the last of two
// members with one name, and needs no member. To read such an object by the rules of Bind, make
// the field a json.RawMessage, and Bind that.
//
// The error is a *BindError. After a member that does not fit, Bind still stores the others, so
// that the caller can use them. If several members do not fit, the error is about one that
// appears twice, or else about the first field. If a method UnmarshalJSON or UnmarshalText
// returns an error, its text becomes a part of the BindError, which may be sent to the peer.
//
// Bind panics if target is not a pointer to a struct, and if an exported field has no json tag.
// It also panics if there is an embedded struct, or the tag option string: Bind does not
// support them. The tag "-" leaves a field out.
func Bind(object json.RawMessage, target any) error {
	v := reflect.ValueOf(target)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		panic(fmt.Sprintf("Bind: %T is not a pointer to a struct", target))
	}
	fields := fieldsOf(v.Elem().Type())
	object = bytes.TrimSpace(object)
	switch {
	case len(object) == 0 || string(object) == "null":
		object = json.RawMessage("{}")
	case object[0] != '{' || object[len(object)-1] != '}':
		return &BindError{Reason: "not an object"}
	}
	values, fault := membersOf(object, fields)
	for i, f := range fields {
		err := f.bind(values[i], v.Elem().Field(f.index))
		if fault == nil {
			fault = err
		}
	}
	if fault != nil { // returned as it is, a nil *BindError would be an error
		return fault
	}
	return nil
}

// membersOf returns the values of the members that have a field, in the order of the fields. A
// value is nil if its member is missing. The error is about a member that appears twice.
func membersOf(object json.RawMessage, fields []boundField) (values []json.RawMessage, fault *BindError) {
	values = make([]json.RawMessage, len(fields))
	for name, value := range Each(object) {
		i := slices.IndexFunc(fields, func(f boundField) bool { return f.name == string(name) })
		switch {
		case i < 0 || len(value) == 0: // no value: the object is not JSON
		case values[i] == nil:
			values[i] = value
		case fault == nil:
			fault = &BindError{Name: fields[i].name, Reason: appearsTwice}
		}
	}
	return values, fault
}

// bind stores the value of the member in its field.
func (f boundField) bind(value json.RawMessage, into reflect.Value) *BindError {
	isMissing := value == nil || string(value) == "null" && into.Type() != rawType
	switch {
	case isMissing && f.required:
		return &BindError{Name: f.name, Missing: true}
	case isMissing:
		return nil
	}
	if err := bindMember(value, into); err != nil {
		return misfit(f.name, value, into.Type(), err)
	}
	return nil
}

// BindError says what is wrong with one member of an object.
type BindError struct {
	Name    string // such as "city", or "at.hour" for what json.Unmarshal has read; "": the object itself
	Reason  string // such as "must be an integer"
	Missing bool   // the member is required, and is missing or null; there is no Reason then
}

func (e *BindError) Error() string { return e.text("member") }

// InvalidParams returns the error with which a request is answered whose params do not fit.
// kind is what its message calls a member, such as "argument".
func (e *BindError) InvalidParams(kind string) *Error { return InvalidParams("%s", e.text(kind)) }

// text returns what Error does, with another word for a member.
func (e *BindError) text(kind string) string {
	switch {
	case e.Missing:
		return fmt.Sprintf("Missing required %s: '%s'", kind, e.Name)
	case e.Name == "":
		return e.Reason
	}
	return fmt.Sprintf("'%s' %s", e.Name, e.Reason)
}

const appearsTwice = "appears twice"

// bindMember stores the value of a member. The value is valid JSON. json.Unmarshal would check
// it once more, so what is simple to store goes without it.
func bindMember(value json.RawMessage, into reflect.Value) error {
	switch field := into.Addr().Interface().(type) {
	case *json.RawMessage:
		*field = value
		return nil
	case json.Unmarshaler:
		return field.UnmarshalJSON(value)
	case *string:
		if bytes.HasPrefix(value, []byte(`"`)) {
			*field = unquote(value)
			return nil
		}
	}
	if isInteger(pointee(into.Type())) {
		if n, ok := parseInteger(string(value)); ok {
			value = strconv.AppendInt(nil, n, 10)
		}
	}
	return json.Unmarshal(value, into.Addr().Interface())
}

// boundField is what Bind knows of a field: its member, and its place.
type boundField struct {
	name     string
	index    int
	required bool
}

// boundFields holds the fields of each struct type that was ever bound.
var boundFields sync.Map // reflect.Type to []boundField

func fieldsOf(t reflect.Type) []boundField {
	if fields, ok := boundFields.Load(t); ok {
		return fields.([]boundField)
	}
	var fields []boundField
	for i := range t.NumField() {
		field := t.Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("json"), ",")
		switch {
		case name == "-":
			continue
		case field.Anonymous:
			panic(fmt.Sprintf("Bind: %v embeds %v, which is not supported", t, field.Type))
		case !field.IsExported():
			continue
		case name == "":
			panic(fmt.Sprintf("Bind: %v.%s has no json tag", t, field.Name))
		case slices.Contains(strings.Split(options, ","), "string"):
			panic(fmt.Sprintf("Bind: %v.%s has the tag option string, which is not supported", t, field.Name))
		}
		fields = append(fields, boundField{name: name, index: i, required: !strings.Contains(options, "omit")})
	}
	boundFields.Store(t, fields)
	return fields
}

var rawType = reflect.TypeFor[json.RawMessage]()

// isInteger reports whether t is a type of integers, with or without a sign.
func isInteger(t reflect.Type) bool { return reflect.Int <= t.Kind() && t.Kind() <= reflect.Uintptr }

// pointee returns what t points to, or t if it is no pointer.
func pointee(t reflect.Type) reflect.Type {
	if t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// parseInteger reads a JSON number that is an integer: 3, 3.0, 30e-1 and 3e0, but not 3.5. One
// with a point or an exponent is read as a float64, and must be less than 2^53: up to there a
// float64 holds each integer.
func parseInteger(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil {
		return n, true
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) >= 1<<53 {
		return 0, false
	}
	return int64(f), true
}

// misfit returns the error for a member that does not fit. A model may read it, and try again.
// err is what json.Unmarshal says. An UnmarshalTypeError is put into other words, because its
// text names types of Go.
func misfit(name string, value json.RawMessage, t reflect.Type, err error) *BindError {
	wrong, isType := errors.AsType[*json.UnmarshalTypeError](err)
	switch {
	case !isType:
		return &BindError{Name: name, Reason: "has the wrong type: " + brief(err.Error())}
	case wrong.Field != "":
		return &BindError{Name: name + "." + wrong.Field, Reason: mustBe(wrong)}
	case wrong.Type != pointee(t) && (value[0] == '[' || value[0] == '{'):
		return &BindError{Name: name, Reason: "holds a value of the wrong type"}
	}
	return &BindError{Name: name, Reason: mustBe(wrong)}
}

// mustBe says what json.Unmarshal would have taken.
func mustBe(wrong *json.UnmarshalTypeError) string {
	switch kind := wrong.Type.Kind(); {
	case isInteger(wrong.Type):
		number := strings.TrimPrefix(wrong.Value, "number ")
		if strings.Trim(number, "-0123456789") == "" {
			return "is out of range"
		}
		return "must be an integer"
	case kind == reflect.Float32 || kind == reflect.Float64 || wrong.Type == reflect.TypeFor[json.Number]():
		return "must be a number"
	case kind == reflect.String:
		return "must be a string"
	case kind == reflect.Bool:
		return "must be true or false"
	case kind == reflect.Struct || kind == reflect.Map:
		return "must be an object"
	case kind == reflect.Slice && wrong.Type.Elem().Kind() == reflect.Uint8:
		return "must be a string in Base64"
	case kind == reflect.Slice || kind == reflect.Array:
		return "must be an array"
	}
	return "has the wrong type"
}

// Each walks through an object or an array that is valid JSON. For a member it yields the name,
// without quotes and escapes, and the value as it is written. For an element it yields the
// value alone, for any other value nothing. It is for objects whose members are not known; for
// others there is Bind.
func Each(text []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		text = bytes.TrimLeft(text, blanks)
		if len(text) == 0 || text[0] != '{' && text[0] != '[' {
			return
		}
		isObject := text[0] == '{'
		var name []byte
		for i := skipSpace(text, 1); i < len(text) && text[i] != '}' && text[i] != ']'; {
			end := skipValue(text, i)
			if isObject {
				name = text[min(i+1, end-1) : end-1] // without its quotes; min, because broken text must not cause a panic
				if bytes.IndexByte(name, '\\') >= 0 {
					name = []byte(unquote(text[i:end]))
				}
				i = skipSpace(text, end)
				end = skipValue(text, i)
			}
			if !yield(name, text[i:end:end]) {
				return
			}
			i = skipSpace(text, end)
		}
	}
}

const blanks = " \t\r\n" // the white space of JSON

// skipSpace returns the index of the next value. It skips commas and colons like white space,
// because the text is known to be valid.
func skipSpace(text []byte, i int) int {
	for i < len(text) && (text[i] == ' ' || text[i] == '\n' || text[i] == '\r' || text[i] == '\t' || text[i] == ',' || text[i] == ':') {
		i++
	}
	return i
}

// skipValue returns the index after the value that starts at i.
func skipValue(text []byte, i int) int {
	for depth := 0; i < len(text); {
		switch text[i] {
		case '"':
			i = skipString(text, i) - 1
		case '{', '[':
			depth++
		case '}', ']':
			depth--
		default: // a number, true, false or null: to its last character
			for depth == 0 && i+1 < len(text) && strings.IndexByte(",]} \n\r\t", text[i+1]) < 0 {
				i++
			}
		}
		i++
		if depth == 0 {
			return i
		}
	}
	return len(text)
}

// skipString returns the index after the string that starts at i. The closing quote is the
// first one with an even number of backslashes before it.
func skipString(text []byte, i int) int {
	for {
		quote := bytes.IndexByte(text[i+1:], '"')
		if quote < 0 {
			return len(text)
		}
		i += 1 + quote
		slashes := 0
		for text[i-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return i + 1
		}
	}
}

// unquote returns the value of a JSON string. It returns "" for anything else.
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	if bytes.IndexByte(raw, '\\') < 0 {
		return string(raw[1 : len(raw)-1])
	}
	var s string
	_ = json.Unmarshal(raw, &s)
	return s
}

// member returns the value of one member of an object. It returns nil if the member is missing
// or appears twice, and if object is not an object.
func member(object []byte, name string) (found json.RawMessage) {
	if len(object) == 0 || object[0] != '{' {
		return nil
	}
	for other, value := range Each(object) {
		if string(other) != name {
			continue
		}
		if found != nil {
			return nil
		}
		found = value
	}
	return found
}

// ---- What is a message ----

// envelope holds the members of a message, as they were sent; nil: missing. The value of a
// member that appears twice is null, so that neither of the two is used.
type envelope struct {
	version, id, method, params, result, fault json.RawMessage

	twice string // the name of a member that appears twice; "": none does
}

// readEnvelope reads the members of an object.
func readEnvelope(text []byte) (e envelope) {
	for name, value := range Each(text) {
		var member *json.RawMessage
		switch string(name) {
		case "jsonrpc":
			member = &e.version
		case "id":
			member = &e.id
		case "method":
			member = &e.method
		case "params":
			member = &e.params
		case "result":
			member = &e.result
		case "error":
			member = &e.fault
		default:
			continue
		}
		if *member != nil {
			e.twice, value = string(name), json.RawMessage("null")
		}
		*member = value
	}
	return e
}

// isResponse reports whether the members are those of a response.
func (e *envelope) isResponse() bool { return e.method == nil && (e.result != nil || e.fault != nil) }

// check returns what is wrong with a message; "": nothing is.
func (m *Message) check(e envelope) (reason string) {
	switch {
	case e.twice != "":
		return "duplicate member " + e.twice
	case unquote(e.version) != "2.0":
		return `jsonrpc must be "2.0"`
	case e.isResponse():
		return m.readResponse(e.id, e.fault)
	case m.Method == "":
		return "method must be a non-empty string"
	case e.id != nil && m.ID == ID{}:
		return "id " + mustBeID
	case e.params != nil && e.params[0] != '{':
		return "params must be an object"
	case e.result != nil || e.fault != nil:
		return "a request has no result and no error"
	}
	return ""
}

// readResponse checks a response, and reads its error. It returns what is wrong. Only an error
// response may lack the id: the peer could not read ours.
func (m *Message) readResponse(id, fault json.RawMessage) (reason string) {
	noID := id == nil || string(id) == "null"
	switch {
	case fault != nil && m.Result != nil:
		return "both result and error"
	case m.ID == ID{} && (m.Result != nil || !noID):
		return "id " + mustBeID
	case m.Result != nil && m.Result[0] != '{':
		return "result must be an object"
	case m.Result != nil:
		return ""
	case fault[0] != '{':
		return "error must be an object"
	}
	m.Error = new(Error)
	if Bind(fault, m.Error) != nil {
		return "error must have an integer code and a string message"
	}
	return ""
}

// decodeBatch reads an array of messages. If it is empty or too long, the payload is one
// Invalid message: JSON-RPC 2.0 #batch answers such an array with a single error.
func (p *Payload) decodeBatch(text []byte) {
	for _, element := range Each(text) {
		p.Messages = append(p.Messages, decodeMessage(element))
		if len(p.Messages) > maxInFlight {
			break
		}
	}
	if n := len(p.Messages); n == 0 || n > maxInFlight {
		reason := fmt.Sprintf("a batch has 1 to %d messages", maxInFlight)
		p.Messages = []*Message{newInvalid(ID{}, reason)}
		if n > maxInFlight {
			p.Lost = fmt.Errorf("%w: a batch of more than %d messages", ErrTooLarge, maxInFlight)
		}
		return
	}
	p.Batch = true
}

// ---- Text that cannot be read ----

// unparsable returns the message for text that no JSON can be read from. If it is the response
// to a call whose id can be found, that call fails.
func unparsable(text []byte, reason string) []*Message {
	in := unreadable(text, errors.New(reason))
	if in.Messages[0].invalid { // JSON-RPC 2.0 #error_object: this error has no id
		return []*Message{{invalid: true, Error: &Error{Code: CodeParseError, Message: "Parse error: " + reason}}}
	}
	return in.Messages
}

// unreadable returns the payload for text that is no message, because it is too large or not
// JSON: err says why. head is the beginning of the text. Most peers write the id before a large
// member. Then only one call fails, or the request can be answered with the error. An id does
// not count if it appears twice, or if head may have cut it off.
func unreadable(head []byte, err error) Payload {
	e := readEnvelope(append(bytes.Clone(head), '?')) // with this character, an id at the end is no JSON
	isRequest := e.method != nil || e.params != nil
	isResponse := e.result != nil || e.fault != nil
	id, _ := parseID(e.id)
	if !json.Valid(e.id) || !utf8.Valid(e.id) || isRequest == isResponse {
		id = ID{}
	}
	if id != (ID{}) && isResponse {
		return newLost(id, err)
	}
	in := Payload{Messages: []*Message{newInvalid(id, err.Error())}}
	if !isRequest || isResponse { // it may be the response to any call
		in.Lost = err
	}
	return in
}

// newLost returns a payload for a response that is lost: our call with this id fails with err.
func newLost(id ID, err error) Payload { return Payload{Messages: []*Message{{ID: id, unusable: err}}} }

// ---- Text for logs and terminals ----

// Printable returns text for a terminal or a log. White space becomes a space, and other
// characters that cannot be printed become U+FFFD. So the text of a peer cannot move the
// cursor, and cannot look like a line of our own.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsSpace(r) {
			return ' '
		}
		if !unicode.IsPrint(r) {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// brief returns a text for a log: its first 500 bytes, and only what can be printed. It is for
// all that comes from a peer.
func brief[T ~string | ~[]byte](text T) string {
	if len(text) > maxLogged {
		return Printable(string(text[:maxLogged])) + "…"
	}
	return Printable(string(text))
}

var silent = slog.New(slog.DiscardHandler)
