// SPDX-License-Identifier: 0BSD
// jsonrpc.go of mcpwire 0.3.0, an implementation of the Model Context Protocol that you copy.

package main

// JSON-RPC 2.0, as MCP uses it: messages, and a Peer that exchanges them with the other end.
//
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{…}}        a request
//	< {"jsonrpc":"2.0","method":"notifications/progress","params":{…}}   a notification: nobody answers it
//	< {"jsonrpc":"2.0","id":1,"result":{…}}                              the response: a result,
//	< {"jsonrpc":"2.0","id":1,"error":{"code":-32602,"message":"…"}}     or an error
//
// Both ends may send requests. A Peer is our end of one conversation:
//
//	Conn.Read ─► Decode ─► Peer ┬ a request: Handler ─► its response ─► Conn.Write
//	                            ├ a notification: Handler; or it cancels a request
//	                            └ a response: to the Call that waits for it
//
// How long a Peer lives, and on which goroutine a Handler runs, depends on the transport:
//
//	                a Peer lives  the handler runs on       its ctx        its messages go to  may it ask?
//	stdio, server   the process   the reader; after 1 ms    the Peer's     standard output     legacy: yes
//	                              another one reads on
//	HTTP, modern    one POST      net/http's goroutine      the request's  the response        InputRequired
//	HTTP, stateless one POST      net/http's goroutine      the request's  the response        no
//	HTTP, session   the session   a request: its own        the session's  the call's stream   yes
//	HTTP+SSE        its GET       its own; POST gets 202    the session's  the GET             yes
//	client          the Conn      the reader, as on stdio   the Peer's     the Conn            legacy: yes
//	 input_required               the goroutine of Call     the call's     the next request    no
//
// The last column says whether a handler may send a request meanwhile: at a server it asks the
// client, and at a client the server.
//
// Eighteen words, as they are used in all files:
//
//	message     a request, a notification or a response
//	payload     what travels at once: a message, or a batch of them
//	Conn        carries payloads to the other end and back
//	Peer        our end of one conversation
//	Exchange    one message that we serve, and what its handler can do meanwhile
//	call        a request while its answer is awaited: ours, or one of the other end
//	reader      the goroutine that reads from a Conn
//	revision    a version of MCP, such as 2025-11-25
//	era         modern: 2026-07-28, where each request stands alone; legacy: all before, with initialize
//	session     what a server remembers of a legacy client over HTTP, by its Mcp-Session-Id
//	stateless   without a session: each POST stands alone
//	principal   the user who sends a request, as Guard.Authenticate names them
//	stream      messages of the server in one HTTP response, as server-sent events
//	standalone  the stream of a session that belongs to no request: a GET reads it
//	event id    names an event of a stream; a client that lost the connection comes back with it
//	capability  what one end says that it can do
//	elicitation a question of the server to the user
//	mark        x-mcp-header in a schema: the header repeats this argument
//
// What to read first: see "The five files" in testdata/README.md of mcpwire.

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
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode/utf8"
)

// ---- Messages ----

// Message is a request (it has ID and Method), a notification (Method), or a response (Result or
// Error).
type Message struct {
	ID     ID
	Method string
	Params json.RawMessage // an object; nil: there are none
	Result json.RawMessage
	Error  *Error

	// Invalid means that the text was no message. ID and Error are what the response to it says.
	Invalid bool
}

// Kind says what a Message is.
type Kind int

// The kinds of messages.
const (
	KindInvalid Kind = iota
	KindRequest
	KindNotification
	KindResponse
)

// Kind returns what m is. The fields that are set decide.
func (m *Message) Kind() Kind {
	switch {
	case m.Invalid:
		return KindInvalid
	case m.Method == "":
		return KindResponse
	case m.ID == ID{}:
		return KindNotification
	}
	return KindRequest
}

// ID is the id of a request, byte for byte as it came: 1 and "1" are two ids. The zero ID means
// that there is none.
type ID struct{ text string }

// NumberID returns the ID of a number.
func NumberID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// String returns the ID as JSON.
func (id ID) String() string { return id.text }

// key returns the ID in the one form in which responses and cancellations are matched: some encoders
// write a string with other escapes than it came with.
func (id ID) key() ID {
	if strings.Contains(id.text, `\`) {
		return ID{string(appendString(nil, unquote([]byte(id.text))))}
	}
	return id
}

// parseID returns an id: a string or an integer. JSON-RPC allows other numbers and null, MCP
// does not (2025-11-25 basic#requests).
func parseID(value json.RawMessage) (id ID, ok bool) {
	isStringOrNumber := len(value) > 0 && strings.IndexByte(`"-0123456789`, value[0]) >= 0
	if !isStringOrNumber || value[0] != '"' && bytes.ContainsAny(value, ".eE") {
		return ID{}, false
	}
	return ID{string(value)}, true
}

// Error is the error of a response. A Handler that returns one decides what the other end sees.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`

	cause error // what is behind it. It is not sent.
}

// The error codes of JSON-RPC.
const (
	CodeParseError     = -32700
	CodeInvalidRequest = -32600
	CodeMethodNotFound = -32601
	CodeInvalidParams  = -32602
	CodeInternalError  = -32603
)

// Error returns the message, the beginning of the data, and the code.
func (e *Error) Error() string {
	if len(e.Data) > 0 {
		return fmt.Sprintf("%s: %.300s (%d)", e.Message, e.Data, e.Code)
	}
	return fmt.Sprintf("%s (%d)", e.Message, e.Code)
}

// InvalidParams returns an Error with CodeInvalidParams.
func InvalidParams(format string, args ...any) *Error {
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf(format, args...)}
}

// MethodNotFound returns the Error for a method that is not served.
func MethodNotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: fmt.Sprintf("Method not found: %.100s", method)}
}

func invalidRequest(reason string) *Error {
	return &Error{Code: CodeInvalidRequest, Message: "Invalid request: " + reason}
}

// NewResponse returns the response to a request. The other end sees an *Error as it is; of any
// other err it sees only "Internal error", because the text may hold a secret.
func NewResponse(id ID, result any, err error) *Message {
	var text json.RawMessage
	if err == nil {
		text, err = encodeResult(result)
	}
	if err == nil {
		return &Message{ID: id, Result: text}
	}
	fault, ok := errors.AsType[*Error](err)
	if !ok || len(fault.Data) > 0 && !json.Valid(fault.Data) {
		fault = &Error{Code: CodeInternalError, Message: "Internal error", cause: err}
	}
	return &Message{ID: id, Error: fault}
}

// newMessage returns a notification, or a request that has no ID yet.
func newMessage(method string, params any) (m *Message, err error) {
	m = &Message{Method: method}
	if params != nil {
		m.Params, err = encode(params)
	}
	return m, err
}

// ---- From text to messages, and back ----

// Payload is what travels at once: a message, or a batch of them.
type Payload struct {
	Messages []*Message
	Batch    bool // a JSON array; only 2025-03-26 has these

	held int64 // twice the bytes of its results, which count as in use until they are written: see add
}

func payload(m *Message) Payload { return Payload{Messages: []*Message{m}} }

// Decode reads a payload. It never fails: what is no message becomes an Invalid one, so that it
// can be answered. White space and a byte order mark around it do not count.
func Decode(text []byte) Payload {
	text = bytes.Trim(bytes.TrimPrefix(text, []byte("\ufeff")), " \t\r\n")
	switch {
	case !utf8.Valid(text):
		return payload(invalidMessage(ID{}, &Error{Code: CodeParseError, Message: "Parse error: not UTF-8"}))
	case !json.Valid(text):
		return payload(invalidMessage(ID{}, &Error{Code: CodeParseError, Message: "Parse error: not JSON"}))
	case text[0] != '[':
		return payload(decodeMessage(text))
	}
	p := Payload{Batch: true}
	for _, element := range Each(text) {
		if len(p.Messages) <= maxBatch { // one more shows that there are too many
			p.Messages = append(p.Messages, decodeMessage(element))
		}
	}
	if len(p.Messages) == 0 || len(p.Messages) > maxBatch {
		return payload(invalidMessage(ID{}, invalidRequest(fmt.Sprintf("a batch has 1 to %d messages", maxBatch))))
	}
	return p
}

func invalidMessage(id ID, fault *Error) *Message {
	return &Message{Invalid: true, ID: id, Error: fault}
}

// decodeMessage reads one message, which is valid JSON. JSON-RPC allows further members. One of its
// own names that stands twice is refused: two programs could understand two messages.
func decodeMessage(text []byte) *Message {
	parts, repeated := members(text, "jsonrpc", "id", "method", "params", "result", "error")
	version, id, method, params, result, fault := parts[0], parts[1], parts[2], parts[3], parts[4], parts[5]
	requestID, hasID := parseID(id)
	m := &Message{ID: requestID}
	if isString(method) {
		m.Method = unquote(method)
	}
	isVersion2 := isString(version) && unquote(version) == "2.0"
	if isAbsent(method) && (result != nil || !isAbsent(fault)) {
		m.setOutcome(result, fault, isVersion2 && repeated == "")
		return m
	}
	reason := ""
	switch {
	case repeated != "":
		reason = "two members '" + repeated + "'"
	case !isVersion2:
		reason = `'jsonrpc' must be "2.0"`
	case m.Method == "":
		reason = "'method' must be a text"
	case id != nil && !hasID:
		reason = "'id' must be a string or an integer"
	case !isAbsent(result) || !isAbsent(fault):
		reason = "both a request and a response"
	case !isAbsent(params) && params[0] != '{':
		reason = "'params' must be an object"
	case !isAbsent(params):
		m.Params = params
	}
	if reason != "" {
		return invalidMessage(m.ID, invalidRequest(reason))
	}
	return m
}

// setOutcome makes m a response. A damaged one becomes an error, so that the call that waits for
// it fails, instead of waiting for ever.
func (m *Message) setOutcome(result, fault json.RawMessage, isSound bool) {
	if isAbsent(fault) {
		m.Result = result
		isSound = isSound && result[0] == '{'
	} else {
		isSound = isSound && isAbsent(result) && fault[0] == '{' && json.Unmarshal(fault, &m.Error) == nil
	}
	if !isSound {
		m.Result, m.Error = nil, errDamaged
	}
}

// Append appends p as JSON, in one line.
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
	b = append(b, `{"jsonrpc":"2.0"`...)
	b = appendMember(b, "id", []byte(m.ID.text))
	if m.Method != "" {
		b = appendMember(b, "method", appendString(nil, m.Method))
	}
	b = appendMember(b, "params", m.Params)
	b = appendMember(b, "result", m.Result)
	if m.Error != nil {
		fault, _ := encode(m.Error) // NewResponse and Decode have checked its data
		b = appendMember(b, "error", fault)
	}
	return append(b, '}')
}

// appendMember appends a member that is not the first one. A message is one line on stdio and in
// an event, so line ends between the tokens of its value go.
func appendMember(b []byte, name string, value []byte) []byte {
	if len(value) == 0 {
		return b
	}
	b = append(b, `,"`...)
	b = append(b, name...)
	b = append(b, `":`...)
	if bytes.IndexByte(value, '\n') < 0 && bytes.IndexByte(value, '\r') < 0 {
		return append(b, value...)
	}
	var line bytes.Buffer
	_ = json.Compact(&line, value) // it is valid
	return append(b, line.Bytes()...)
}

// appendString appends a string as JSON.
func appendString(b []byte, text string) []byte {
	isSpecial := func(r rune) bool { return r < ' ' || r > '~' || r == '"' || r == '\\' }
	if strings.ContainsFunc(text, isSpecial) {
		quoted, _ := encode(text) // a string can always be encoded
		return append(b, quoted...)
	}
	b = append(append(b, '"'), text...)
	return append(b, '"')
}

// encode returns a value as JSON, in one line, with < and > as they are.
func encode(value any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(value); err != nil {
		return nil, err
	}
	return b.Bytes()[:b.Len()-1], nil // without the newline
}

// encodeResult returns a result as JSON. MCP wants an object.
func encodeResult(result any) (text json.RawMessage, err error) {
	text, isText := result.(json.RawMessage)
	if result == nil || isText && text == nil {
		return json.RawMessage("{}"), nil
	}
	if large, ok := result.(interface{ size() int }); ok && large.size() > smallSize {
		size := int64(large.size())
		defer unencoded.Add(-size)
		if unencoded.Add(size) > maxHeld {
			return nil, errTooMuch
		}
		encoding <- struct{}{} // waits for its turn
		defer func() { <-encoding }()
	}
	if !isText || !json.Valid(text) {
		text, err = encode(result)
	}
	if text = bytes.TrimSpace(text); err == nil && text[0] != '{' {
		err = errors.New("the result is not an object")
	}
	return text, err
}

// encoding has room for as many large results as there are processors: encoding takes several times
// their size, and more at a time would not be quicker.
var encoding = make(chan struct{}, runtime.GOMAXPROCS(0))

// unencoded is how many bytes the large results have that are being encoded, or wait for it.
var unencoded atomic.Int64

// ---- Handlers and Conns: what a program implements ----

// Handler serves the requests and the notifications of the other end. Handlers of several requests
// may run at the same time. The result for a notification is ignored, and its handler must not wait
// for the other end: nothing is read meanwhile.
type Handler interface {
	Handle(ctx context.Context, x *Exchange) (result any, err error)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, x *Exchange) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, x *Exchange) (any, error) { return f(ctx, x) }

// Conn carries payloads to the other end, and back.
type Conn interface {
	// Read returns the next payload. One goroutine at a time calls it. The error is io.EOF if the
	// other end has hung up in good order.
	Read() (Payload, error)
	// Write sends a payload. Any number of goroutines may call it. Over HTTP, Write of a request
	// returns when its response is complete. An error that wraps ErrClosed means that nothing can
	// be written any more.
	Write(ctx context.Context, p Payload) error
	// Close makes a Read and a Write that wait return. It may be called twice.
	Close() error
}

// Exchange is one message that we serve, and what its Handler can do meanwhile: notify, ask,
// report progress, log. One goroutine at a time may use it.
type Exchange struct {
	Request   *Message            // or a notification
	Peer      *Peer               // our end of the conversation
	Principal string              // who sends: what Guard.Authenticate has returned, or your own Handler has set
	Header    map[string][]string // of the HTTP request; nil on other transports
	Ending    <-chan struct{}     // closed when no more is coming: the other end has hung up, or the server closes
	Value     any                 // for the protocol above: a Server keeps here what it knows about the request

	via     messenger // the way of messages that belong to the request
	canAsk  bool      // the other end answers requests that belong to this one
	inBatch bool
	ctx     context.Context
	cancel  context.CancelCauseFunc // of a request
	refusal *Error                  // it is not served: its id is in use, or too many run
}

// A messenger sends a message to the other end: a Conn does, or a stream of HTTP.
type messenger interface {
	send(ctx context.Context, m *Message) error
}

// Bind reads the params into a struct, as the function Bind does. Its error is an *Error that
// answers the request.
func (x *Exchange) Bind(target any) error {
	if err := Bind(x.Request.Params, target); err != nil {
		return InvalidParams("Invalid params: %v", err)
	}
	return nil
}

// Notify sends a notification that belongs to the request, as long as that runs.
func (x *Exchange) Notify(ctx context.Context, method string, params any) error {
	m, err := newMessage(method, params)
	switch {
	case err != nil || x.via == nil: // a test may call a Handler without a conversation
		return err
	case x.ctx.Err() != nil:
		return context.Cause(x.ctx)
	}
	return x.via.send(ctx, m)
}

// Call asks the other end something while its request is served, and waits for the answer. It
// fails at once where nobody could answer: in the modern era, without a session, and in the
// handler of a notification.
func (x *Exchange) Call(ctx context.Context, method string, params, result any) error {
	if !x.canAsk {
		return errors.New("the other end cannot be asked here")
	}
	return x.Peer.callVia(ctx, x.via, method, params, result)
}

// ---- A peer: reading ----

// Peer is our end of one conversation: the requests that we serve, and our calls that wait.
type Peer struct {
	handler     Handler
	log         *slog.Logger
	conn        Conn      // nil over HTTP at the server, where each message comes by a request of its own
	via         messenger // the way of messages that belong to no request
	weAreClient bool
	held        *atomic.Int64 // bytes in use: of large bodies, and of results that are not written yet

	// Value is for the protocol above: a Server keeps here what initialize has agreed on.
	Value atomic.Value
	// AllowBatches says whether the other end may send batches.
	AllowBatches atomic.Bool

	ctx         context.Context // ends with the conversation, and with it the requests that run
	cancel      context.CancelCauseFunc
	reading     context.Context // ends when nothing more is read: then our calls fail, but requests may run on
	stopReading context.CancelCauseFunc
	slots       chan struct{} // one for each payload that is being served, until its responses are written

	mu      sync.Mutex // guards the fields below
	lastID  int64      // of our calls
	calls   map[ID]*pendingCall
	serving map[ID]context.CancelCauseFunc
}

const (
	handOver   = time.Millisecond // see Peer.serve
	maxServing = 1024             // requests of one peer that run at once
	maxHeld    = 64 << 20         // bytes in use at once
	smallSize  = 64 << 10         // bytes of a payload for which there is always room
	maxBatch   = 1000             // messages in a batch
	endGrace   = 5 * time.Second  // how long requests may finish when the client has hung up
)

var (
	// ErrClosed is the error of a call on a Peer or Client that was closed.
	ErrClosed = errors.New("the connection is closed")

	silent       = slog.New(slog.DiscardHandler)
	errCancelled = errors.New("the request was cancelled")
	errUnread    = errors.New("the other end has not read the request")
	errTooMuch   = &Error{Code: CodeInternalError, Message: "Too much at once"}
	errEnded     = &Error{Code: CodeInternalError, Message: "The session has ended"}
	errDamaged   = &Error{Code: CodeInternalError, Message: "The response is damaged"}
)

func newPeer(ctx context.Context, h Handler, log *slog.Logger) *Peer {
	p := &Peer{handler: h, log: cmp.Or(log, silent)}
	p.ctx, p.cancel = context.WithCancelCause(ctx)
	p.reading, p.stopReading = p.ctx, p.cancel // without a Conn, both end at once
	return p
}

// Open begins a conversation over a Conn, as a client. It ends with ctx, with Close, or when the other end
// hangs up. A nil log is silent.
func Open(ctx context.Context, c Conn, h Handler, log *slog.Logger) *Peer {
	p := newPeer(ctx, h, log)
	p.weAreClient = true
	p.start(c)
	context.AfterFunc(p.ctx, func() { _ = p.Close() })
	return p
}

// Serve holds a conversation as a server, and returns when it has ended. When the client hangs
// up, the requests that run have five seconds to finish.
func Serve(ctx context.Context, c Conn, h Handler, log *slog.Logger) error {
	p := newPeer(ctx, h, log)
	p.start(c)
	select {
	case <-p.reading.Done():
	case <-ctx.Done():
		p.end(context.Cause(ctx))
	}
	err := context.Cause(p.reading)
	grace := time.AfterFunc(endGrace, func() { p.cancel(err) })
	defer grace.Stop()
	late, cancel := context.WithTimeout(context.Background(), endGrace+time.Second) // a second to write the errors
	defer cancel()
	for range cap(p.slots) { // whoever has all slots knows that nothing is being served
		select {
		case p.slots <- struct{}{}:
		case <-late.Done(): // a handler that ignores its context is left behind
		}
	}
	p.cancel(err)
	if closed := c.Close(); closed != nil || errors.Is(err, io.EOF) || ctx.Err() != nil {
		return closed
	}
	return err
}

// start begins to read. The reader ends when the Conn has nothing more.
func (p *Peer) start(c Conn) {
	p.conn, p.via, p.slots, p.held = c, p, make(chan struct{}, 2*maxServing), &atomic.Int64{}
	p.reading, p.stopReading = context.WithCancelCause(context.Background())
	go p.read()
}

// Context returns a context that ends with the conversation.
func (p *Peer) Context() context.Context { return p.ctx }

// Close ends the conversation: calls that wait fail, and requests that run are cancelled.
func (p *Peer) Close() error {
	p.end(ErrClosed)
	p.cancel(ErrClosed)
	if p.conn == nil {
		return nil
	}
	return p.conn.Close()
}

// end says that nothing more is read, and so fails the calls that wait.
func (p *Peer) end(why error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stopReading(why)
	for _, c := range p.calls {
		c.ended <- outcome{err: why}
	}
	clear(p.calls)
}

// read is the reader. It serves what it reads, until another goroutine has taken over.
func (p *Peer) read() {
	for {
		in, err := p.conn.Read()
		if err != nil {
			p.end(err)
			return
		}
		if !p.serve(in) {
			return
		}
	}
}

// serve serves a payload on the goroutine that has read it. It returns false if that goroutine
// shall not read on.
//
// It would be enough to start a goroutine for each request, but a call on stdio would cost more than
// twice as much. So the reader serves the request itself, and only if that takes longer than a
// millisecond, a second goroutine reads on in its place. If Stop is too late to prevent that, the
// goroutine that served the request ends, because the second one reads now. So there is always
// exactly one reader. Before the second one may read, all requests are in the table of the Peer: a
// cancellation that it reads finds them.
func (p *Peer) serve(in Payload) (readOn bool) {
	if p.reading.Err() != nil { // select would choose by chance
		return false
	}
	select {
	case p.slots <- struct{}{}: // waits when the other end sends more and more, and reads no responses
	case <-p.reading.Done():
		return false
	}
	defer func() { <-p.slots }()
	w := p.register(p.ctx, in, Exchange{Peer: p, Ending: p.reading.Done(), via: p, canAsk: true})
	if staysInOrder(in) {
		p.respond(w)
		return true
	}
	next := time.AfterFunc(handOver, p.read)
	p.respond(w)
	return next.Stop()
}

// staysInOrder reports whether nothing may be served before this payload is done. Notifications
// and responses come in order, and what follows initialize depends on it.
func staysInOrder(in Payload) bool {
	if len(in.Messages) != 1 {
		return false
	}
	m := in.Messages[0]
	return m.Kind() != KindRequest || m.Method == "initialize"
}

// respond serves a payload, and writes the responses.
func (p *Peer) respond(w work) {
	out := w.run()
	defer p.held.Add(-out.held)
	if len(out.Messages) == 0 {
		return
	}
	if err := p.write(context.Background(), out); err != nil { // also that it was cancelled, at the end
		p.log.Warn("a response was not written", "error", err)
	}
}

// write writes to the Conn, and ends the conversation if nothing can be written any more.
func (p *Peer) write(ctx context.Context, out Payload) error {
	err := p.conn.Write(ctx, out)
	if errors.Is(err, ErrClosed) {
		p.end(err)
	}
	return err
}

// send writes a message to the Conn: with one, a Peer is its own messenger.
func (p *Peer) send(ctx context.Context, m *Message) error { return p.write(ctx, payload(m)) }

// ---- A peer: serving ----
//
// What becomes of a payload. On stdio the reader does all of it, and over HTTP the goroutine of a
// POST or of a call:
//
//	stdio: read ─► serve ───────────┐                              ┌ a request: serveRequest ─► handle
//	                                ├─► register ─► run ─► process ┼ a notification: serveNotification ─► handle
//	HTTP: postInSession, postAlone ─┘                              └ a response: deliver
//
// register puts requests into the table of the Peer, run returns the responses, and handle calls
// the Handler.

// work is a payload that is being served. All its requests are in the table of the Peer before
// the first one runs, so that a cancellation finds each of them.
type work struct {
	peer      *Peer
	batch     bool
	exchanges []*Exchange
}

// register prepares a payload for run. Each message gets a copy of base.
func (p *Peer) register(ctx context.Context, in Payload, base Exchange) work {
	// A client accepts batches: one may hold a response that a call waits for.
	if in.Batch && !p.weAreClient && !p.AllowBatches.Load() {
		in = payload(invalidMessage(ID{}, invalidRequest("a batch, which this version does not have")))
	}
	w := work{peer: p, batch: in.Batch}
	for _, m := range in.Messages {
		x := base
		x.Request, x.ctx, x.inBatch = m, ctx, in.Batch
		switch m.Kind() {
		case KindRequest:
			x.ctx, x.cancel = context.WithCancelCause(ctx)
			x.refusal = p.startRequest(m.ID, x.cancel)
		case KindNotification:
			x.canAsk = false
		}
		w.exchanges = append(w.exchanges, &x)
	}
	return w
}

// startRequest puts a request into the table. A cancelled one stays there until its handler has
// returned.
func (p *Peer) startRequest(id ID, cancel context.CancelCauseFunc) *Error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.serving[id.key()] != nil:
		return invalidRequest("a request with this id is running")
	case len(p.serving) >= maxServing:
		return errTooMuch
	}
	put(&p.serving, id.key(), cancel)
	return nil
}

// run serves the messages one after another, and returns the responses.
func (w work) run() (out Payload) {
	out.Batch = w.batch
	for _, x := range w.exchanges {
		if response := w.peer.process(x); response != nil {
			out.add(response, w.peer.held)
		}
	}
	return out
}

// process serves one message, and returns the response; nil: there is none.
func (p *Peer) process(x *Exchange) *Message {
	switch m := x.Request; m.Kind() {
	case KindRequest:
		return p.serveRequest(x)
	case KindNotification:
		p.serveNotification(x)
	case KindResponse:
		o := outcome{result: m.Result}
		if m.Error != nil {
			o.err = m.Error
		}
		p.deliver(m.ID, o)
	case KindInvalid:
		if !p.weAreClient {
			return NewResponse(m.ID, nil, m.Error)
		}
		if m.Error.cause != nil { // too long: it may be an answer, and nobody knows to which call
			p.end(m.Error)
		}
		p.log.Warn("dropped what is no message", "reason", m.Error.Message) // such as a log line on standard output
	}
	return nil
}

// serveRequest runs the handler of a request, and returns the response; nil: it was cancelled
// (2025-11-25 basic/utilities/cancellation: "Receivers … SHOULD … Not send a response").
func (p *Peer) serveRequest(x *Exchange) *Message {
	id := x.Request.ID
	defer x.cancel(nil)
	if x.refusal != nil {
		return NewResponse(id, nil, x.refusal)
	}
	var response *Message
	if x.ctx.Err() == nil {
		response = p.handle(p.handler, x)
	}
	p.mu.Lock() // decides which comes first, the end of the request or its cancellation
	delete(p.serving, id.key())
	why := context.Cause(x.ctx)
	p.mu.Unlock()
	switch {
	case why == errCancelled:
		return nil
	case p.ctx.Err() != nil: // what the handler has made of that counts for nothing
		return NewResponse(id, nil, errEnded)
	}
	return response
}

// serveNotification serves a notification.
func (p *Peer) serveNotification(x *Exchange) {
	switch x.Request.Method {
	case "notifications/cancelled":
		id, _ := parseID(member(x.Request.Params, "requestId"))
		p.cancelRequest(id)
		return
	case "notifications/progress":
		p.report(x.Request.Params)
	}
	p.handle(p.handler, x)
}

// cancelRequest ends a request of the other end. A server may also end a subscription of ours, and no
// other call (2026-07-28 basic/patterns/cancellation). Both ends count their ids from 1: the id alone
// does not say whose request is meant, so the method of the call is checked.
func (p *Peer) cancelRequest(id ID) {
	p.mu.Lock()
	cancel, call := p.serving[id.key()], p.calls[id.key()]
	p.mu.Unlock()
	switch {
	case cancel != nil:
		cancel(errCancelled)
	case call != nil && call.method == "subscriptions/listen":
		p.deliver(id, outcome{err: errCancelled})
	}
}

// handle calls a Handler, and returns the response.
func (p *Peer) handle(h Handler, x *Exchange) (response *Message) {
	m := x.Request
	defer func() {
		if reason := recover(); reason != nil {
			p.log.Error("a handler has panicked", "method", m.Method, "reason", reason, "stack", string(debug.Stack()))
			response = NewResponse(m.ID, nil, errors.New("panic"))
		}
	}()
	result, err := h.Handle(x.ctx, x)
	response = NewResponse(m.ID, result, err)
	if fault := response.Error; fault != nil && fault.cause != nil && x.ctx.Err() == nil {
		p.log.Error("internal error", "method", m.Method, "error", fault.cause)
	}
	return response
}

// add adds a response. Its result, and the text of the payload, count as in use until that is
// written. If there is no room for a large one, an error takes its place.
func (p *Payload) add(response *Message, held *atomic.Int64) {
	size := 2 * int64(len(response.Result))
	if held.Add(size) > maxHeld && p.held+size > smallSize {
		held.Add(-size)
		response, size = NewResponse(response.ID, nil, errTooMuch), 0
	}
	p.held += size
	p.Messages = append(p.Messages, response)
}

// ---- A peer: calling ----

// A pendingCall is a request of ours that waits for its outcome.
type pendingCall struct {
	method string
	ended  chan outcome // has room for it
	report ProgressFunc
}

// An outcome is how a call ends: with a result, with the error of the response, or with the reason why
// no response will come.
type outcome struct {
	result json.RawMessage
	err    error
}

// CancelledParams are the params of notifications/cancelled.
type CancelledParams struct {
	RequestID json.RawMessage `json:"requestId"`
	Reason    string          `json:"reason,omitempty"`
}

// ProgressParams are the params of notifications/progress.
type ProgressParams struct {
	ProgressToken json.RawMessage `json:"progressToken"`
	Progress      float64         `json:"progress"`
	Total         float64         `json:"total,omitempty"` // 0: unknown
	Message       string          `json:"message,omitempty"`
}

// ProgressFunc gets the progress of a call. It must not Call: nothing is read meanwhile.
type ProgressFunc func(ProgressParams)

// Call sends a request, waits for the response, and reads its result into result; nil: it is not
// read. The error is an *Error if the other end has answered with one. When ctx ends first, the
// other end is told.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	return p.callVia(ctx, p.via, method, params, result)
}

func (p *Peer) callVia(ctx context.Context, via messenger, method string, params, result any) error {
	request, err := newMessage(method, params)
	if err != nil {
		return err
	}
	text, err := p.roundTrip(ctx, via, request, nil)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(text, result)
}

// RoundTrip sends a request as it is, and returns the result. A request without an ID gets one.
func (p *Peer) RoundTrip(ctx context.Context, request *Message) (result json.RawMessage, err error) {
	return p.roundTrip(ctx, p.via, request, nil)
}

// All calls go through roundTrip. If report is not nil, progress is asked for, with the ID of
// the request as its token.
func (p *Peer) roundTrip(ctx context.Context, via messenger, m *Message, report ProgressFunc) (json.RawMessage, error) {
	call := &pendingCall{m.Method, make(chan outcome, 1), report}
	if err := p.addCall(m, call); err != nil {
		return nil, err
	}
	if report != nil {
		m.Params = withMeta(m.Params, json.RawMessage(`{"progressToken":`+m.ID.text+`}`))
	}
	sendErr := via.send(ctx, m)
	if sendErr != nil && ctx.Err() == nil {
		p.deliver(m.ID, outcome{err: sendErr})
	}
	select {
	case end := <-call.ended:
		if errors.Is(sendErr, errUnread) { // more exact than what others have found out meanwhile
			return nil, sendErr
		}
		return end.result, end.err
	case <-ctx.Done():
		p.deliver(m.ID, outcome{}) // takes the call out of the table
		if !errors.Is(sendErr, errUnread) && m.Method != "initialize" && m.Method != "server/discover" {
			p.sayCancelled(via, m.ID, context.Cause(ctx))
		}
		return nil, context.Cause(ctx)
	}
}

// addCall puts a call into the table.
func (p *Peer) addCall(request *Message, call *pendingCall) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reading.Err() != nil {
		return fmt.Errorf("%w: %w", errUnread, context.Cause(p.reading))
	}
	for request.ID == (ID{}) { // an id that a bridge has passed on may be in use
		p.lastID++
		if id := NumberID(p.lastID); p.calls[id] == nil {
			request.ID = id
		}
	}
	if p.calls[request.ID.key()] != nil {
		return fmt.Errorf("a call with the id %s is running", request.ID)
	}
	put(&p.calls, request.ID.key(), call)
	return nil
}

// put sets an element of a map that need not exist yet.
func put[K comparable, V any](m *map[K]V, key K, value V) {
	if *m == nil {
		*m = map[K]V{}
	}
	(*m)[key] = value
}

// sayCancelled tells the other end that nobody waits any more.
func (p *Peer) sayCancelled(via messenger, id ID, why error) {
	ctx, cancel := context.WithTimeout(p.ctx, time.Second) // the other end may not read
	defer cancel()
	m, _ := newMessage("notifications/cancelled", CancelledParams{json.RawMessage(id.text), why.Error()})
	_ = via.send(ctx, m) // if that fails, the other end has gone
}

// Notify sends a notification.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	m, err := newMessage(method, params)
	if err != nil {
		return err
	}
	return p.via.send(ctx, m)
}

// deliver takes a call out of the table, and hands it its outcome. Later ones are dropped.
func (p *Peer) deliver(id ID, o outcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call := p.calls[id.key()]; call != nil {
		delete(p.calls, id.key())
		call.ended <- o
	}
}

// report hands a report of progress to the call that its token names.
func (p *Peer) report(params json.RawMessage) {
	var progress ProgressParams
	if Bind(params, &progress) != nil {
		return
	}
	p.mu.Lock()
	call := p.calls[ID{string(progress.ProgressToken)}.key()]
	p.mu.Unlock()
	if call != nil && call.report != nil {
		call.report(progress)
	}
}

// ---- Objects by exact names ----
//
// encoding/json matches names without regard to case, and of two members with one name it takes
// the last. Where a proxy or a second program reads the same message, that lets a sender make the two
// read different messages. So members are found by their exact names here. The values are read by encoding/json.

// Each returns the members of an object, or the elements of an array, with "" as their name. The
// values are parts of text, which must be valid JSON. For any other value there are none.
func Each(text []byte) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if len(text) == 0 || text[0] != '{' && text[0] != '[' {
			return
		}
		rest := nextValue(text[1:])
		for len(rest) > 0 && rest[0] != '}' && rest[0] != ']' {
			name := ""
			if text[0] == '{' {
				n := valueLength(rest)
				name = unquote(rest[:n])
				rest = nextValue(rest[n:])
			}
			n := valueLength(rest)
			if n == 0 || !yield(name, json.RawMessage(rest[:n:n])) {
				return
			}
			rest = nextValue(rest[n:])
		}
	}
}

// nextValue returns text without what stands between two values.
func nextValue(text []byte) []byte { return bytes.TrimLeft(text, " \t\r\n:,") }

// unquote returns the text of a string.
func unquote(value []byte) string {
	if bytes.IndexByte(value, '\\') >= 0 {
		var text string
		_ = json.Unmarshal(value, &text)
		return text
	}
	return string(bytes.Trim(value, `"`)) // most names and values: this is ten times quicker
}

// valueLength returns the length of the value with which text begins.
func valueLength(text []byte) int {
	depth := 0
	for i := 0; i < len(text); i++ {
		switch text[i] {
		case '"':
			i += stringLength(text[i:]) - 1
			if depth == 0 {
				return i + 1
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return i
			}
			depth--
			if depth == 0 {
				return i + 1
			}
		case ',', ':', ' ', '\n', '\r', '\t':
			if depth == 0 {
				return i
			}
		}
	}
	return len(text)
}

// stringLength returns the length of the string with which text begins. A quotation mark ends it,
// unless an odd number of backslashes stands before the mark.
func stringLength(text []byte) int {
	for i := 1; i < len(text); i++ {
		n := bytes.IndexByte(text[i:], '"')
		if n < 0 {
			break
		}
		i += n
		backslashes := i - len(bytes.TrimRight(text[:i], `\`))
		if backslashes%2 == 0 {
			return i + 1
		}
	}
	return len(text)
}

// members returns the members of an object that have these names, in the order of the names; nil: it
// has none of this name. It also returns one of the names that stands twice in the object, or "".
func members(object json.RawMessage, names ...string) (values []json.RawMessage, repeated string) {
	values = make([]json.RawMessage, len(names))
	for name, value := range Each(object) {
		if i := slices.Index(names, name); i >= 0 {
			if values[i] != nil {
				repeated = name
			}
			values[i] = value
		}
	}
	return values, repeated
}

// member returns one member of an object; nil: it has none of this name.
func member(object json.RawMessage, name string) json.RawMessage {
	values, _ := members(object, name)
	return values[0]
}

func isString(value json.RawMessage) bool { return len(value) > 0 && value[0] == '"' }

// isAbsent reports whether a member is not there, or null, which counts as not there.
func isAbsent(value json.RawMessage) bool { return value == nil || string(value) == "null" }

// merge returns an object with the members of all objects. Of members with one name, the last
// counts.
func merge(objects ...json.RawMessage) json.RawMessage {
	var names []string
	values, size := map[string]json.RawMessage{}, 16
	for _, object := range objects {
		size += len(object)
		for name, value := range Each(object) {
			if _, isKnown := values[name]; !isKnown {
				names = append(names, name)
			}
			values[name] = value
		}
	}
	b := append(make([]byte, 0, size), '{')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(appendString(b, name), ':')
		b = append(b, values[name]...)
	}
	return append(b, '}')
}

// withMeta returns an object with further members in its _meta.
func withMeta(object, members json.RawMessage) json.RawMessage {
	meta := merge(member(object, "_meta"), members)
	return merge(object, json.RawMessage(`{"_meta":`+string(meta)+`}`))
}

// Bind reads an object into a struct, by the exact names of its json tags. A field without omitempty or
// omitzero must be there, and null counts as not there. Below the top level, encoding/json
// decides. Any other target is read by encoding/json. An embedded struct, the option "string" and a method
// UnmarshalJSON of the target itself have no effect.
func Bind(object json.RawMessage, target any) error { return bind(object, target, "member") }

// bind is Bind. kind is what errors call a member.
func bind(object json.RawMessage, target any, kind string) error {
	s := reflect.ValueOf(target).Elem()
	if s.Kind() != reflect.Struct {
		return json.Unmarshal(object, target)
	}
	if len(object) > 0 && object[0] != '{' {
		return errors.New("must be an object")
	}
	names, options := make([]string, s.NumField()), make([]string, s.NumField())
	for i := range names {
		field := s.Type().Field(i)
		name, others, _ := strings.Cut(field.Tag.Get("json"), ",")
		names[i], options[i] = cmp.Or(name, field.Name), others
		if name == "-" || !field.IsExported() {
			names[i], options[i] = "\xff", "omitempty" // no name in JSON is this
		}
	}
	values, repeated := members(object, names...)
	if repeated != "" {
		return fmt.Errorf("two %ss '%s'", kind, repeated)
	}
	for i, value := range values {
		isOptional, field := strings.Contains(options[i], "omit"), s.Field(i)
		switch {
		case isAbsent(value) && !isOptional:
			return fmt.Errorf("missing required %s: '%s'", kind, names[i])
		case isAbsent(value), !field.CanSet():
		case field.Type() == reflect.TypeFor[json.RawMessage]():
			field.SetBytes(value) // a part of object, which may be large
		case json.Unmarshal(value, field.Addr().Interface()) != nil:
			return fmt.Errorf("'%s' must be of type %s", names[i], strings.TrimPrefix(field.Type().String(), "*"))
		}
	}
	return nil
}
