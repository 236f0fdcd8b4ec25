package main

// Messages, and talking to one peer. MCP is JSON-RPC 2.0 with narrower rules:
// ids are strings or integers, params and results are objects. Both ends may
// send requests, so both ends are the same thing here: a Peer, with the calls
// we wait on and the exchanges we serve. What came in is either a message or
// the error reply it deserves; there is no third outcome, so nothing that a
// peer writes can end the conversation.
//
//	{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo"}}            a request
//	{"jsonrpc":"2.0","id":1,"result":{"content":[]}}                                   its response
//	{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}      or an error
//	{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1}}        a notification: never answered
//	[{"jsonrpc":"2.0","id":2,"method":"ping"},{"jsonrpc":"2.0","id":3,…}]              a batch (2025-03-26 only)
//
// Implements 2025-11-25 and 2026-07-28 basic (messages, _meta, error codes),
// 2025-03-26 basic#batching, the pages on cancellation and progress, and
// JSON-RPC 2.0. A Peer's mutex guards its tables, a reader's says who reads;
// neither is held while a handler runs or a message is written. Goroutines:
// Serve and Open own the reader of their Conn, which also runs single requests,
// and those that read on when one takes long; an Answer owns one for each
// request of a batch, and a Peer those that send a cancellation or published
// notifications. Copy this file alone for JSON-RPC over a transport of your
// own; everything else here needs it.

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
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
	"unicode/utf8"
)

// ---- Messages ----

// Message is one JSON-RPC request, notification or response. Kind tells which;
// its members are read-only once it has been sent.
type Message struct {
	ID             ID
	Method         string
	Params, Result json.RawMessage // objects, or nil
	Error          *Error

	invalid bool   // not a message: Error, and ID if it could be read, are the reply it deserves
	local   error  // of a response that never crossed a wire: what its call fails with
	meta    *Meta  // what Meta has read; nil: not yet
	fault   *Error // what is wrong with that
}

// Kind says what a Message is.
type Kind int

// The four kinds. An Invalid message is one that could not be read; encoding it
// gives the error reply that it deserves.
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

// NewRequest returns a request, or with the zero ID a notification. params must
// encode to a JSON object; nil means none.
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

// NewResponse returns the response to the request id: err if there is one, else
// result, which must encode to a JSON object (nil is {}). An err that is not an
// *Error, and a result that cannot be encoded, become -32603.
func NewResponse(id ID, result any, err error) *Message {
	if err == nil {
		var raw json.RawMessage
		if raw, err = marshalObject(result); err == nil {
			return &Message{ID: id, Result: raw}
		}
	}
	var e *Error
	if !errors.As(err, &e) || e == nil { // a nil *Error in an error is not nil: this panics
		e = &Error{Code: CodeInternalError, Message: err.Error()}
	}
	return &Message{ID: id, Error: e}
}

// failed returns a response that never crossed a wire; Call returns err itself,
// which nobody can mistake for the peer's. 2026-07-28 basic#error-codes: local
// errors "cannot be mistaken for errors received from the peer".
func failed(id ID, err error) *Message { return &Message{ID: id, local: err} }

// refused returns the Invalid message whose encoding is the reply to something
// unreadable. 2025-11-25 basic#error-responses: the id may be left out where it
// could not be read; null, as in plain JSON-RPC, is no MCP id.
func refused(id ID, code int, reason string) *Message {
	return &Message{ID: id, invalid: true, Error: &Error{Code: code, Message: reason}}
}

// ID is the id of a request: the wire text of a string or an integer, so that
// it is echoed byte for byte and no digit is lost. The zero ID means that there
// is none.
type ID struct{ text string }

// NumberID returns the integer n as an ID.
func NumberID(n int64) ID { return ID{strconv.FormatInt(n, 10)} }

// StringID returns the string s as an ID; it never equals the NumberID that
// reads the same.
func StringID(s string) ID { return ID{string(appendString(nil, s))} }

// String returns the ID as it stands on the wire, a string with its quotes; ""
// means that there is none.
func (id ID) String() string { return id.text }

// key is what all spellings of one id share: "a" and "\u0061" are the same
// string.
func (id ID) key() string {
	if strings.HasPrefix(id.text, `"`) {
		return `"` + unquote([]byte(id.text))
	}
	return id.text
}

// parseID reads an id; ok is false for what is not one: null, fractions,
// booleans, arrays and objects, and what would be too much to repeat.
// 2025-11-25 basic#requests: "Requests MUST include a string or integer ID."
// and "Unlike base JSON-RPC, the ID MUST NOT be null."
func parseID(raw []byte) (id ID, ok bool) {
	if len(raw) == 0 || len(raw) > maxID+2 || raw[0] != '"' && len(bytes.Trim(bytes.TrimPrefix(raw, []byte("-")), "0123456789")) > 0 {
		return ID{}, false
	}
	return ID{string(raw)}, true
}

// ---- Errors ----

// Error is the error of a response: what a peer sent, or what a Handler wants
// sent.
type Error struct {
	Code    int             `json:"code"`
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data,omitempty"`
}

// The codes of JSON-RPC 2.0 and of MCP (2026-07-28 basic#error-codes). Codes of
// an application lie outside -32768..-32000.
const (
	CodeParseError     = -32700 // not JSON, or not UTF-8
	CodeInvalidRequest = -32600 // JSON, but not a message
	CodeMethodNotFound = -32601 // also where the capability that it belongs to is not offered
	CodeInvalidParams  = -32602 // also an unknown name, cursor or level, or a missing _meta field
	CodeInternalError  = -32603

	CodeResourceNotFound = -32002 // until 2025-11-25; later it is CodeInvalidParams

	// Of 2026-07-28:
	CodeHeaderMismatch     = -32020 // an HTTP header is missing, malformed or not what the body says
	CodeMissingCapability  = -32021 // data.requiredCapabilities says which the client lacks
	CodeUnsupportedVersion = -32022 // data.supported lists the versions that are served
)

// Errors of a conversation, none of them sent by the peer.
var (
	// ErrClosed: the conversation ended before the answer. What a Call returns
	// wraps this and, if one is known, the reason.
	ErrClosed = errors.New("connection closed")
	// ErrNoServerRequests: there is no way back to the client, in 2026-07-28 or
	// in a request without a session.
	ErrNoServerRequests = errors.New("the client cannot be asked")
	// ErrAnswered: nothing may be sent for the request any more.
	ErrAnswered = errors.New("request answered or cancelled")
	// ErrTooLarge: an answer beyond the cap. On a pipe it cannot be told whose,
	// so each waiting Call fails.
	ErrTooLarge = errors.New("message too large")
)

// unread marks the error of a request that nobody has read: it may be sent
// again.
type unread struct{ error }

func (e unread) Unwrap() error { return e.error }

// errBusy answers a request beyond maxInFlight, errListeners a subscription
// beyond maxListeners, and errStopping a request whose context has ended before
// it was done.
var (
	errBusy      = &Error{Code: CodeInternalError, Message: "Too many requests in flight"}
	errListeners = &Error{Code: CodeInternalError, Message: "Too many subscriptions"}
	errStopping  = &Error{Code: CodeInternalError, Message: "Stopped: the server or the session ends"}
)

// Error returns message, data if it is a string that the message does not
// repeat, and code. Of a long text it returns the beginning.
func (e *Error) Error() string {
	text := fmt.Sprintf("%.4000s", e.Message)
	if data := unquote(e.Data); !strings.Contains(e.Message, data) {
		text += fmt.Sprintf(": %.4000s", data)
	}
	return fmt.Sprintf("%s (%d)", text, e.Code)
}

// invalidParams is the -32602 that says what is wrong. The reason stands in the
// message: many clients show their user, or their model, nothing else. Of what a
// peer has sent the message repeats no more than a bit.
func invalidParams(format string, args ...any) *Error {
	reason := fmt.Sprintf("%.500s", fmt.Sprintf(format, args...))
	return &Error{Code: CodeInvalidParams, Message: "Invalid params: " + reason}
}

// unknown is the -32602 for a name that nothing has, worded as 2026-07-28
// server/tools#error-handling words it: "Unknown tool: invalid_tool_name".
func unknown(kind, name string) *Error {
	if name == "" {
		return invalidParams("the %s is missing or empty", kind)
	}
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf("Unknown %s: %.500s", kind, name)}
}

// ---- Decoding ----

// Payload is what a transport moves at once: a message, or a batch of them.
type Payload struct {
	Messages []*Message
	Batch    bool

	raw []byte // as it was read, for a trace
}

// Decode reads a payload. It is total: what is not a message becomes an Invalid
// one. It keeps data, which must not change afterwards.
func Decode(data []byte) Payload {
	text := bytes.Trim(data, " \t\r\n")
	in := Payload{raw: data}
	switch {
	case !utf8.Valid(text): // 2025-11-25 transports: "JSON-RPC messages MUST be UTF-8 encoded."
		in.Messages = []*Message{refused(ID{}, CodeParseError, "Parse error: not UTF-8")}
	case !json.Valid(text): // trailing data, a byte order mark and more than 10,000 levels included
		in.Messages = []*Message{refused(ID{}, CodeParseError, "Parse error: not JSON")}
	case text[0] != '[':
		in.Messages = []*Message{decodeMessage(text)}
	default:
		for _, element := range each(text) {
			if in.Messages = append(in.Messages, decodeMessage(element)); len(in.Messages) > maxInFlight {
				break
			}
		}
		n := len(in.Messages)
		// JSON-RPC 2.0 #batch: one error, not an array of none
		if in.Batch = 1 <= n && n <= maxInFlight; !in.Batch {
			in.Messages = []*Message{refused(ID{}, CodeInvalidRequest, fmt.Sprintf("Invalid request: a batch has 1 to %d messages", maxInFlight))}
		}
	}
	return in
}

// refusal tells why a batch is not taken at all, if it is not. Only 2025-03-26
// has batches; its basic/lifecycle says that initialize "MUST NOT be part of a
// JSON-RPC batch". One holds "one or more requests and/or notifications", or
// only responses (its transports#sending-messages-to-the-server).
func (in Payload) refusal(rev Revision) (reason string) {
	answered := slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Kind() == Response })
	asked := slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Method != "" })
	switch {
	case !in.Batch:
		return ""
	case !rev.Batches:
		return "batches exist only in 2025-03-26"
	case in.has("initialize"):
		return "initialize in a batch"
	case asked && answered:
		return "requests and responses in one batch"
	}
	return ""
}

// has tells whether the payload holds a request for method.
func (in Payload) has(method string) bool {
	return slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Method == method && m.Kind() == Request })
}

// answers tells whether one of the messages is the response to a request.
func (in Payload) answers(id ID) bool {
	return slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Kind() == Response && m.ID.key() == id.key() })
}

var envelopeMembers = []string{"jsonrpc", "id", "method", "params", "result", "error"}

// decodeMessage reads one element of valid JSON. The presence of a member
// decides what it is, not its truth.
func decodeMessage(text []byte) *Message {
	if text[0] != '{' {
		return refused(ID{}, CodeInvalidRequest, "Invalid request: not an object")
	}
	var v [6]json.RawMessage
	twice := members(text, envelopeMembers, v[:])
	version, rawID, method, params, result, fault := v[0], v[1], unquote(v[2]), v[3], v[4], v[5]
	id, idOK := parseID(rawID)
	m := &Message{ID: id, Params: params, Result: result}
	response := method == "" && (result != nil || fault != nil)
	reason := ""
	switch {
	case twice == "id":
		m.ID, reason = ID{}, "duplicate member id"
	case twice != "":
		reason = "duplicate member " + twice
	case string(version) != `"2.0"` && unquote(version) != "2.0":
		reason = `jsonrpc must be "2.0"`
	case response:
		reason = m.decodeResponse(rawID, fault)
	case method == "":
		reason = "method must be a non-empty string"
	case rawID != nil && !idOK:
		reason = "id must be a string or an integer"
	case params != nil && params[0] != '{':
		reason = "params must be an object"
	case result != nil || fault != nil:
		reason = "a request has no result and no error"
	default:
		m.Method = method
	}
	switch {
	case reason == "":
		return m
	case response: // never answered, but whoever waits for it must not wait for ever
		return failed(m.ID, fmt.Errorf("invalid response: %s", reason))
	}
	return refused(m.ID, CodeInvalidRequest, "Invalid request: "+reason)
}

// decodeResponse checks a response; its id may be missing or null only in an
// error about something the peer could not read.
func (m *Message) decodeResponse(rawID, fault json.RawMessage) (reason string) {
	var v [3]json.RawMessage
	switch {
	case fault != nil && m.Result != nil:
		return "both result and error"
	case m.ID == ID{} && (m.Result != nil || rawID != nil && string(rawID) != "null"):
		return "id must be a string or an integer"
	case m.Result != nil && m.Result[0] != '{':
		return "result must be an object"
	case m.Result != nil:
		return ""
	case fault[0] != '{' || members(fault, []string{"code", "message", "data"}, v[:]) != "":
		return "error must be an object"
	}
	code, err := strconv.Atoi(string(v[0]))
	if err != nil || len(v[1]) == 0 || v[1][0] != '"' {
		return "error must have an integer code and a string message"
	}
	m.Error = &Error{Code: code, Message: unquote(v[1]), Data: v[2]}
	return ""
}

// ---- The one scanner of objects ----
//
// encoding/json takes "METHOD" for "method" and the last of two members of one
// name, and what a proxy in front of us checked is then not what we run. So the
// envelope, params, _meta and arguments are all read by each: exact names, none
// twice. It walks what Decode has found to be JSON, once for the whole payload,
// and needs no error path: of other text it makes something or nothing.

// Bind stores members of a JSON object by exact name: into maps a name to a
// pointer, as for json.Unmarshal. Members that are not named are ignored, those
// that are missing or null leave their variable alone. A nil or null object is
// empty. What does not fit, or is there twice, is an *Error with
// CodeInvalidParams. The object must be JSON, as the params and results that
// Decode has read are: it is not checked again. Nested objects are better bound
// to a json.RawMessage and bound in turn: json.Unmarshal into a struct ignores
// case.
func Bind(object json.RawMessage, into map[string]any) error {
	if object = bytes.TrimSpace(object); len(object) == 0 || string(object) == "null" {
		return nil
	}
	if object[0] != '{' || object[len(object)-1] != '}' {
		return invalidParams("not an object")
	}
	seen := make([]any, 0, 8)
	for name, value := range each(object) {
		target, ok := into[string(name)]
		if !ok {
			continue
		}
		if slices.Contains(seen, target) {
			return invalidParams("'%s' is there twice", name)
		}
		seen = append(seen, target)
		if string(value) != "null" && store(value, target) != nil {
			return invalidParams("'%s' has the wrong type", name)
		}
	}
	return nil
}

// store stores a value that is valid JSON. The two most common types need not
// be checked and copied once more.
func store(value json.RawMessage, target any) error {
	switch target := target.(type) {
	case *json.RawMessage:
		*target = value
		return nil
	case *string:
		if *target = unquote(value); *target != "" {
			return nil
		}
	}
	return json.Unmarshal(value, target)
}

// members stores the values of the named members of an object in values, in the
// order of names, and returns a name that is there twice.
func members(object []byte, names []string, values []json.RawMessage) (twice string) {
	for name, value := range each(object) {
		for i, known := range names {
			if string(name) != known {
				continue
			}
			if values[i] != nil && twice != "id" {
				twice = known
			}
			values[i] = value
		}
	}
	return twice
}

// member returns the value of one member of an object, nil if it is missing or
// there twice.
func member(object []byte, name string) json.RawMessage {
	var v [1]json.RawMessage
	if len(object) == 0 || object[0] != '{' || members(object, []string{name}, v[:]) != "" {
		return nil
	}
	return v[0]
}

// each walks an object or an array: of each member the name, without quotes and
// escapes, and the value as it stands; of each element the value.
func each(text []byte) iter.Seq2[[]byte, json.RawMessage] {
	return func(yield func([]byte, json.RawMessage) bool) {
		var name []byte
		for i := skipSpace(text, 1); i < len(text) && text[i] != '}' && text[i] != ']'; {
			end := skipValue(text, i)
			if text[0] == '{' {
				if name = text[min(i+1, end-1) : end-1]; bytes.IndexByte(name, '\\') >= 0 {
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

// skipSpace skips commas and colons, too: the text is valid.
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
		default: // of a number, true, false or null to the last character
			for depth == 0 && i+1 < len(text) && strings.IndexByte(",]} \n\r\t", text[i+1]) < 0 {
				i++
			}
		}
		if i++; depth == 0 {
			return i
		}
	}
	return len(text)
}

// skipString finds the closing quote: the first one with an even number of
// backslashes before it.
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

// unquote returns the value of a JSON string, "" for anything else.
func unquote(raw []byte) string {
	if len(raw) < 2 || raw[0] != '"' {
		return ""
	}
	text := raw[1 : len(raw)-1]
	var plain strings.Builder
	plain.Grow(len(text))
	for at := bytes.IndexByte(text, '\\'); at >= 0; at = bytes.IndexByte(text, '\\') {
		short := strings.IndexByte(`"\/bfnrt`, text[min(at+1, len(text)-1)])
		if short < 0 { // \u…, and it may take two: encoding/json knows
			var s string
			_ = json.Unmarshal(raw, &s)
			return s
		}
		plain.Write(text[:at])
		plain.WriteByte("\"\\/\b\f\n\r\t"[short])
		text = text[min(at+2, len(text)):]
	}
	plain.Write(text)
	return plain.String()
}

// ---- Encoding ----

// Append appends the payload's one line of JSON, without a newline: valid
// UTF-8, and no character escaped that need not be.
func (p Payload) Append(b []byte) []byte {
	if !p.Batch {
		return p.Messages[0].append(b)
	}
	for i, m := range p.Messages {
		b = m.append(append(b, "[,"[min(i, 1)]))
	}
	return append(b, ']')
}

// size returns about how long the message is.
func (m *Message) size() int {
	return len(m.ID.text) + len(m.Method) + len(m.Params) + len(m.Result) + 64
}

// encode returns the message as it stands on the wire.
func (m *Message) encode() []byte { return m.append(nil) }

func (m *Message) append(b []byte) []byte {
	b = append(slices.Grow(b, m.size()), `{"jsonrpc":"2.0"`...)
	if m.ID != (ID{}) {
		b = append(append(b, `,"id":`...), m.ID.text...)
	}
	if m.Method != "" {
		b = appendString(append(b, `,"method":`...), m.Method)
	}
	if m.Params != nil {
		b = appendLine(append(b, `,"params":`...), m.Params)
	}
	if m.Result != nil {
		b = appendLine(append(b, `,"result":`...), m.Result)
	}
	if m.Error != nil {
		fault, err := marshal(m.Error)
		if err != nil { // its data is no JSON
			fault, _ = marshal(&Error{Code: m.Error.Code, Message: m.Error.Message})
		}
		b = append(append(b, `,"error":`...), fault...)
	}
	return append(b, '}')
}

// appendLine appends JSON, which marshal has left on one line, while somebody
// else's may span several.
func appendLine(b []byte, raw json.RawMessage) []byte {
	if bytes.IndexByte(raw, '\n') < 0 && bytes.IndexByte(raw, '\r') < 0 {
		return append(b, raw...)
	}
	var line bytes.Buffer
	if json.Compact(&line, raw) != nil {
		return append(b, "{}"...)
	}
	return append(b, line.Bytes()...)
}

// appendString appends s as a JSON string; most need no escape.
func appendString(b []byte, s string) []byte {
	for i := range len(s) {
		if s[i] < ' ' || s[i] == '"' || s[i] == '\\' || s[i] >= utf8.RuneSelf {
			quoted, _ := marshal(strings.Clone(s)) // so that s itself need not be on the heap
			return append(b, quoted...)
		}
	}
	return append(append(append(b, '"'), s...), '"')
}

// encoded is JSON that is ready: marshal passes it on instead of checking and
// copying it.
type encoded json.RawMessage

// marshal encodes v on one line, with <, > and & as they are; what is not UTF-8
// becomes U+FFFD.
func marshal(v any) (json.RawMessage, error) {
	if done, ok := v.(encoded); ok {
		return json.RawMessage(done), nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	raw := bytes.TrimSuffix(b.Bytes(), []byte("\n"))
	if !utf8.Valid(raw) { // from a json.RawMessage
		raw = bytes.ToValidUTF8(raw, []byte("\uFFFD"))
	}
	return raw, nil
}

func marshalObject(v any) (json.RawMessage, error) {
	raw, err := marshal(v)
	switch {
	case err != nil:
		return nil, err
	case string(raw) == "null":
		return json.RawMessage("{}"), nil
	case raw[0] != '{':
		return nil, fmt.Errorf("%T is no JSON object", v)
	}
	return raw, nil
}

// ---- Revisions, and the metadata of a request ----

// Revision is one version of the protocol. Every difference between versions
// that this package knows is a field here.
type Revision struct {
	Version          string
	Modern           bool // each request declares version and capabilities in _meta: the modern era
	Batches          bool // JSON-RPC batches
	ServerRequests   bool // the server may ask; otherwise it answers input_required
	Completions      bool // the capability has a name
	Annotations      bool // tools say whether they change anything
	Elicitation      bool // the server may ask the user
	Titles           bool // title members, and prefixed _meta keys of one's own
	Icons            bool
	ResourceNotFound int // the code of that error

	// For Streamable HTTP:
	VersionHeader bool // a client sends MCP-Protocol-Version after initialize
	Sessions      bool // a client may be given an Mcp-Session-Id
	Resume        bool // Last-Event-ID continues a stream
	Prime         bool // a stream opens with an event id, and the server may hang up on it
}

// Revisions are all versions of the protocol, newest first. The legacy ones are
// those that open with initialize.
var Revisions = []Revision{
	{Version: "2026-07-28", Modern: true, Completions: true, Annotations: true, Elicitation: true, Titles: true, Icons: true,
		ResourceNotFound: CodeInvalidParams, VersionHeader: true},
	{Version: "2025-11-25", ServerRequests: true, Completions: true, Annotations: true, Elicitation: true, Titles: true, Icons: true,
		ResourceNotFound: CodeResourceNotFound, VersionHeader: true, Sessions: true, Resume: true, Prime: true},
	{Version: "2025-06-18", ServerRequests: true, Completions: true, Annotations: true, Elicitation: true, Titles: true,
		ResourceNotFound: CodeResourceNotFound, VersionHeader: true, Sessions: true, Resume: true},
	{Version: "2025-03-26", Batches: true, ServerRequests: true, Completions: true, Annotations: true,
		ResourceNotFound: CodeResourceNotFound, Sessions: true, Resume: true},
	{Version: "2024-11-05", ServerRequests: true, ResourceNotFound: CodeResourceNotFound},
}

// assumedVersion is in force where neither a session nor a header says another.
// 2025-11-25 basic/transports#protocol-version-header: without the header "the
// server SHOULD assume protocol version 2025-03-26".
const assumedVersion = "2025-03-26"

// unsupported is the -32022 that lists what is served instead of a version.
func unsupported(versions []string, version string) *Error {
	data, _ := marshal(map[string]any{"supported": versions, "requested": fmt.Sprintf("%.200s", version)})
	return &Error{Code: CodeUnsupportedVersion, Message: "Unsupported protocol version", Data: data}
}

// orAll returns versions, or all there are.
func orAll(versions []string) []string {
	if versions == nil {
		for _, r := range Revisions {
			versions = append(versions, r.Version)
		}
	}
	return versions
}

// legacy returns those of versions that open with initialize; nil stands for
// all there are.
func legacy(versions []string) []string {
	return slices.DeleteFunc(slices.Clone(orAll(versions)), func(v string) bool { return revision(v).Modern })
}

// revision looks a version up; the zero Revision means that it is unknown.
func revision(version string) Revision {
	for _, r := range Revisions {
		if r.Version == version {
			return r
		}
	}
	return Revision{}
}

// Implementation names the software at one end. It is for display only:
// 2026-07-28 basic#meta, implementations "SHOULD NOT use them to change the
// behavior".
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
	Icons   []Icon `json:"icons,omitempty"`
}

// Icon is a picture for a user interface. Src is an https or data URI.
type Icon struct {
	Src      string   `json:"src"`
	MimeType string   `json:"mimeType,omitempty"`
	Sizes    []string `json:"sizes,omitempty"`
}

// The keys of _meta that are the protocol's own.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaLogLevel     = "io.modelcontextprotocol/logLevel"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Meta is what the other side says of itself: a modern request says it each
// time, a legacy client once, at initialize.
type Meta struct {
	ProtocolVersion    string
	ClientInfo         *Implementation
	ClientCapabilities json.RawMessage // an object; nil if it was not said
	LogLevel           string          // the least to be sent; "": none, or in the legacy era not set
	ProgressToken      json.RawMessage // a string or integer; nil: no progress is wanted
}

var metaMembers = []string{metaVersion, metaClientInfo, metaCapabilities, metaLogLevel, "progressToken"}

// Meta reads the _meta of a request. declares says that it names a protocol
// version, whether or not we know that one. A _meta that is wrong is an error,
// and only the version in it counts. It is for one goroutine at a time.
func (m *Message) Meta() (meta Meta, declares bool, err *Error) {
	if len(m.Params) == 0 || m.Params[0] != '{' { // those of a response are not looked at before
		return meta, false, nil
	}
	if m.meta == nil {
		m.meta = new(Meta)
		m.fault = m.meta.read(m.Params)
	}
	return *m.meta, m.meta.ProtocolVersion != "", m.fault
}

// read takes what there is, whatever is wrong with it, so that the version is
// known.
func (meta *Meta) read(params json.RawMessage) (err *Error) {
	var found [1]json.RawMessage
	twice := members(params, []string{"_meta"}, found[:])
	raw := found[0]
	switch {
	case twice != "" || raw != nil && raw[0] != '{':
		return invalidParams("_meta must be one object")
	case raw == nil:
		return nil
	}
	var v [5]json.RawMessage
	twice = members(raw, metaMembers, v[:])
	*meta = Meta{ProtocolVersion: unquote(v[0]), ClientCapabilities: v[2], LogLevel: unquote(v[3]), ProgressToken: v[4]}
	for i, first := range []byte(`"{{"`) {
		if v[i] != nil && v[i][0] != first {
			return invalidParams("_meta: '%s' has the wrong type", metaMembers[i])
		}
	}
	_, isToken := parseID(v[4]) // which, like an id, is a string or an integer
	switch {
	case twice != "":
		return invalidParams("_meta: '%s' is there twice", twice)
	case string(v[3]) == `""`:
		return unknown("log level", "")
	case v[4] != nil && !isToken:
		return invalidParams("_meta: 'progressToken' must be a string or an integer")
	case v[1] != nil:
		meta.ClientInfo, err = parseImplementation(v[1])
	}
	return err
}

func parseImplementation(raw json.RawMessage) (*Implementation, *Error) {
	var v [4]json.RawMessage
	if len(raw) > 0 && raw[0] == '{' && members(raw, []string{"name", "title", "version", "icons"}, v[:]) == "" {
		i := &Implementation{Name: unquote(v[0]), Title: unquote(v[1]), Version: unquote(v[2])}
		if i.Name != "" && i.Version != "" && (v[3] == nil || json.Unmarshal(v[3], &i.Icons) == nil) {
			return i, nil
		}
	}
	return nil, invalidParams("clientInfo needs a name and a version")
}

// ---- Exchanges: requests being answered ----

// Handler answers requests, and hears notifications. For a request it returns a
// result that encodes to a JSON object, or an error: an *Error is sent as it
// is, the text of any other as the message of a -32603, so it must hold no
// secrets. What it returns for a notification goes nowhere. ctx ends when the
// request is cancelled or the conversation over. Notifications are handled one
// at a time, in wire order, on the goroutine that reads, and so is initialize:
// a handler of one must neither Call nor take long, but start a goroutine.
type Handler interface {
	Handle(ctx context.Context, x *Exchange) (result any, err error)
}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, x *Exchange) (any, error)

// Handle calls f.
func (f HandlerFunc) Handle(ctx context.Context, x *Exchange) (any, error) { return f(ctx, x) }

// Outlet is where messages go that belong to one exchange, or to none: a
// transport's way out.
type Outlet func(ctx context.Context, m *Message) error

func (send Outlet) notify(ctx context.Context, method string, params any) error {
	m, err := NewRequest(ID{}, method, params)
	if err = cmp.Or(err, ctx.Err()); err != nil {
		return err
	}
	return send(ctx, m)
}

// Exchange is one request being answered (or one notification): the request,
// what is known of who asks, and the way to send what belongs to it.
type Exchange struct {
	Request *Message
	Meta    Meta // declared by a modern request, remembered by the Peer for a legacy one

	Revision  Revision // in force; the zero Revision before initialize
	Peer      *Peer    // nil where nothing is remembered: in the modern era, or without a session
	Principal string   // who asks, if anyone authenticated; "" on stdio
	// Header is that of the HTTP request, or of the GET that opened an HTTP+SSE
	// stream; nil on stdio.
	Header map[string][]string
	// Ending is closed when the server winds down: long-lived requests return
	// their result then.
	Ending <-chan struct{}

	Inputs map[string]json.RawMessage // the answers to an InputRequired, by key; nil at first
	State  string                     // the State of that InputRequired

	outlet Outlet
	owner  *Peer // whose exchange this is, shown or not
	life   *life // nil for a notification
	mute   bool  // the Server has not declared logging

	reader     *reader             // of the pipe that everything shares; nil: over HTTP, as a server
	disconnect func(time.Duration) // lets go of the response; nil where there is none
}

// life is the state of a running request; the mutex of its Peer guards it.
type life struct {
	key       string // of the request's id
	ctx       context.Context
	cancel    context.CancelFunc
	cancelled bool           // by its sender, who wants no answer, or because that was replaced
	sending   sync.WaitGroup // messages on their way: the answer waits for them
	progress  float64        // the last one sent
	trailer   *Message       // follows the answer
}

// Notify sends a notification that belongs to the request. It fails with
// ErrAnswered once the answer is on its way or the request was cancelled, and
// in the handler of a notification, which has no answer. 2025-11-25 progress:
// "Progress notifications MUST stop after completion".
func (x *Exchange) Notify(ctx context.Context, method string, params any) error {
	return Outlet(x.send).notify(ctx, method, params)
}

// Call sends a request that belongs to this one to the other side and stores
// its result, as Peer.Call does. It fails with ErrNoServerRequests where there
// is no way to ask. What may be asked of this client is for the caller to know:
// it stands in Meta.ClientCapabilities.
func (x *Exchange) Call(ctx context.Context, method string, params, result any) error {
	// 2026-07-28 stdio: "The server MUST NOT write JSON-RPC requests to
	// stdout."
	if x.Peer == nil || !x.Revision.ServerRequests {
		return ErrNoServerRequests
	}
	if x.reader != nil { // somebody must read the answer
		x.reader.pass(false)
	}
	return x.Peer.call(ctx, x.send, method, params, result)
}

// Disconnect lets go of the HTTP response that is the client's connection,
// while the request goes on; the client comes back for the rest after retry. So
// a long call needs no open connection. Only 2025-11-25 has this; elsewhere
// Disconnect does nothing.
func (x *Exchange) Disconnect(retry time.Duration) {
	if x.disconnect != nil && x.life != nil { // a notification has no response to speak of
		x.disconnect(retry)
	}
}

// send writes a message of this exchange, unless it is over. Its answer waits
// for it.
func (x *Exchange) send(ctx context.Context, m *Message) error {
	if x.life == nil {
		return ErrAnswered
	}
	x.owner.mu.Lock()
	running := x.owner.serving[x.life.key] // its handler may have passed on a copy of it
	over := running == nil || running.life != x.life || x.life.cancelled
	if !over {
		x.life.sending.Add(1)
	}
	x.owner.mu.Unlock()
	if over {
		return ErrAnswered
	}
	defer x.life.sending.Done()
	return x.outlet(ctx, m)
}

// run answers the request, on the caller's goroutine, unless it was cancelled.
// 2025-11-25 cancellation: receivers SHOULD "Not send a response for the
// cancelled request".
func (x *Exchange) run(h Handler, emit func(*Message)) {
	defer x.owner.finish(x) // even if the handler ends its goroutine
	response := x.handle(x.life.ctx, h)
	hungUp := x.owner.client && x.life.ctx.Err() != nil // a client that has closed the conversation says nothing more
	if !x.owner.finish(x) || hungUp {
		return
	}
	x.life.sending.Wait()
	if emit(response); x.life.trailer != nil {
		emit(x.life.trailer)
	}
}

// handle calls the handler; its panic, or that of what it returns, costs only
// this request.
func (x *Exchange) handle(ctx context.Context, h Handler) (response *Message) {
	defer func() {
		if r := recover(); r != nil {
			x.owner.log.Error("panic in a handler", "method", brief(x.Request.Method), "panic", brief(fmt.Sprint(r)), "stack", string(debug.Stack()))
			response = NewResponse(x.Request.ID, nil, &Error{Code: CodeInternalError, Message: "Internal error"})
		}
	}()
	result, err := h.Handle(ctx, x)
	// Stopped by us, that is: what its sender has cancelled gets no answer.
	stopped := ctx.Err() != nil && !x.owner.client
	if stopped && !errors.As(err, new(*Error)) && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))) {
		err = errStopping
	}
	return NewResponse(x.Request.ID, result, err)
}

// ---- The peer ----

const (
	maxID      = 1024     // bytes of an id, and of a progress token
	maxAtOnce  = 16       // requests of one batch that run at once
	maxAnswers = 64 << 20 // bytes of the answers to one batch

	maxInFlight  = 1024            // requests of one Peer being served, and messages of a batch
	maxOwed      = 4 * maxInFlight // answers that a peer may leave unread before we read no more of it
	maxListeners = 4096            // subscriptions of one HTTP handler or Server
	maxLasting   = 64 << 10        // bytes of a message that subscribes, which is held as long as that lasts
	maxLogged    = 500             // bytes that a log repeats of what a peer has sent

	slow     = time.Millisecond // what a request may take before another goroutine reads
	manySlow = 16               // requests in flight from which on it does so at once

	windDown = 5 * time.Second // for running requests, once nobody will ask for more
	hurry    = 3 * time.Second // for them when we are told to stop: with lastWord, within those five
	lastWord = time.Second     // to tell of a cancellation, and for handlers that were told to stop
)

// Peer is the other side as it is remembered: what it said of itself, the calls
// we wait on, the exchanges we serve.
type Peer struct {
	log    *slog.Logger
	outlet Outlet // what belongs to no exchange
	ctx    context.Context
	cutOff context.CancelCauseFunc // ends ctx, with the reason
	client bool                    // we are the client: what is no message is dropped, not answered

	conn     Conn           // what we talk over; nil: over HTTP, as a server
	troubled func(error)    // hears what the transport has to say; nil: nobody does
	wg       sync.WaitGroup // reading, and requests that take long

	notices  sync.WaitGroup // cancellations and published notifications on their way
	mu       sync.Mutex     // guards the fields below
	meta     Meta
	revision Revision
	lastID   int64
	calls    map[string]*pending  // by key of the ID that we sent; nil until there is one
	serving  map[string]*Exchange // by key of the id; nil if there are none: a session lives long
	owed     int                  // requests, and what is no message, whose answers are not yet written
	over     bool                 // end has been called
	err      error                // why no more calls can be made
	ended    func()               // called by who ends it, perhaps again
}

type pending struct {
	answer chan *Message
	params json.RawMessage
	token  string // of its progress
	via    any    // what it was sent on, if that may end before the conversation
}

// newPeer returns a Peer that sends through outlet what belongs to no exchange.
// It lives as long as ctx.
func newPeer(ctx context.Context, outlet Outlet, log *slog.Logger) *Peer {
	p := &Peer{log: cmp.Or(log, silent), outlet: outlet}
	p.ctx, p.cutOff = context.WithCancelCause(ctx)
	return p
}

var silent = slog.New(slog.DiscardHandler)

// brief returns what a peer has sent, or what an error says of it, for a log:
// no more than its beginning, and printable.
func brief[T ~string | ~[]byte](text T) string {
	if len(text) > maxLogged {
		return printable(string(text[:maxLogged])) + "…"
	}
	return printable(string(text))
}

// printable keeps what others have sent from moving the cursor of a terminal,
// or looking like a line of ours.
func printable(text string) string {
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

// end ends the context of the conversation and those of the requests being
// served.
func (p *Peer) end(why error) {
	p.cutOff(why)
	p.mu.Lock()
	p.over = true
	for _, x := range p.serving {
		x.life.cancel()
	}
	ended := p.ended
	p.mu.Unlock()
	if ended != nil {
		ended()
	}
}

// whenEnded has f called when the conversation ends, or now if it has. It is
// for one f.
func (p *Peer) whenEnded(f func()) {
	p.mu.Lock()
	over := p.over
	if !over {
		p.ended = f
	}
	p.mu.Unlock()
	if over {
		f()
	}
}

// Context ends when the conversation does; its cause says why.
func (p *Peer) Context() context.Context { return p.ctx }

// Remember stores what a legacy request does not say of itself: the version
// agreed on and the rest of a Meta.
func (p *Peer) Remember(rev Revision, meta Meta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.revision, p.meta = rev, meta
}

// Remembered returns what was stored with Remember; the zero Revision means
// nothing yet.
func (p *Peer) Remembered() (Revision, Meta) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.revision, p.meta
}

// Notify sends a notification that belongs to no request.
func (p *Peer) Notify(ctx context.Context, method string, params any) error {
	return p.outlet.notify(ctx, method, params)
}

// Call sends a request and waits for its response. The result is stored in
// result, a pointer as for json.Unmarshal (nil: not wanted). An error the peer
// sent is an *Error. When ctx ends first, Call returns its error and the peer
// is told, by notifications/cancelled, that nobody waits any more. When the
// conversation ends first, the error wraps ErrClosed and the reason, if one is
// known.
func (p *Peer) Call(ctx context.Context, method string, params, result any) error {
	return p.call(ctx, p.outlet, method, params, result)
}

func (p *Peer) call(ctx context.Context, send Outlet, method string, params, result any) error {
	m, err := NewRequest(ID{}, method, params)
	if err = cmp.Or(err, ctx.Err()); err != nil { // what nobody waits for is not sent
		return err
	}
	c, err := p.expect(m)
	if err != nil {
		return err
	}
	if err = send(ctx, m); err == nil {
		select {
		case answer := <-c.answer:
			return answer.store(result)
		case <-ctx.Done():
		}
	}
	if p.take(m.ID) == nil { // it is answered, whatever has become of the sending, or of the time
		return (<-c.answer).store(result)
	}
	if ctx.Err() == nil {
		p.mu.Lock()
		defer p.mu.Unlock()
		return cmp.Or(p.err, err) // why it ended says more than that a write has failed
	}
	// 2025-11-25 cancellation: "The initialize request MUST NOT be cancelled by
	// clients"; a probe that is too slow is no one's to cancel.
	if method != "initialize" && method != "server/discover" {
		p.notice(func() { p.cancel(send, m.ID, context.Cause(ctx)) })
	}
	return ctx.Err()
}

// cancel tells the peer that nobody waits for the answer to id any more.
func (p *Peer) cancel(send Outlet, id ID, why error) {
	ctx, done := context.WithTimeout(context.WithoutCancel(p.ctx), lastWord)
	defer done()
	m, _ := NewRequest(ID{}, "notifications/cancelled", map[string]any{"requestId": json.RawMessage(id.text), "reason": why.Error()})
	err := send(ctx, m)
	if err == ErrAnswered { // the request that the call belonged to is over
		err = p.outlet(ctx, m)
	}
	if err != nil {
		p.log.Debug("cancellation not sent", "id", id, "error", brief(err.Error()))
	}
}

// expect gives a request its id and a place in the table of calls.
func (p *Peer) expect(m *Message) (*pending, error) {
	c := &pending{answer: make(chan *Message, 1), params: m.Params}
	if meta, _, _ := m.Meta(); meta.ProgressToken != nil {
		id, _ := parseID(meta.ProgressToken)
		c.token = id.key()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return nil, unread{p.err}
	}
	p.lastID++ // from 1: some take 0 for none
	m.ID = NumberID(p.lastID)
	if p.calls == nil {
		p.calls = map[string]*pending{}
	}
	p.calls[m.ID.text] = c
	return c, nil
}

// take takes a call off the table; nil if it is not there. Who takes it answers
// it.
func (p *Peer) take(id ID) *pending {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.calls[id.key()]
	delete(p.calls, id.key())
	return c
}

// store takes the result out of a response.
func (m *Message) store(result any) error {
	switch {
	case m.local != nil:
		return m.local
	case m.Error != nil:
		return m.Error
	case result == nil:
		return nil
	}
	if err := store(m.Result, result); err != nil {
		return fmt.Errorf("result: %w", err)
	}
	return nil
}

// Close hangs up: every waiting Call fails with ErrClosed, every handler's
// context ends. It waits for the goroutines of the Peer, though for no more
// than a second for a handler that ignores its context, which is an error; so
// no handler must call it.
func (p *Peer) Close() error {
	p.fail(ErrClosed)
	within(lastWord, &p.notices) // that calls were cancelled is still to be told
	p.end(ErrClosed)
	if p.conn != nil {
		p.conn.Close()
	}
	if !within(lastWord, &p.wg) {
		return errStubborn
	}
	return nil
}

var errStubborn = errors.New("a handler ignores that its context has ended")

// within waits for a group, no longer than d. The goroutine it needs outlives
// it only with the group.
func within(d time.Duration, group *sync.WaitGroup) bool {
	done := make(chan struct{})
	go func() {
		group.Wait()
		close(done)
	}()
	return closedWithin(d, done)
}

// closedWithin waits for a channel to be closed, no longer than d.
func closedWithin(d time.Duration, done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	case <-time.After(d):
		return false
	}
}

// fail ends all waiting calls with one error, and with it all that come.
func (p *Peer) fail(err error) {
	p.mu.Lock()
	p.err = cmp.Or(p.err, err)
	p.mu.Unlock()
	p.failVia(nil, err)
}

// notice runs f, which sends something that nobody waits for, on a goroutine of
// the Peer, unless the conversation is over.
func (p *Peer) notice(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err == nil {
		p.notices.Go(f)
	}
}

// sentVia notes what a call was sent on, so that failVia finds it.
func (p *Peer) sentVia(id ID, via any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[id.text]; c != nil {
		c.via = via
	}
}

// failVia ends the calls that were sent on something that has ended; nil: all
// that wait.
func (p *Peer) failVia(via any, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, c := range p.calls {
		if via == nil || c.via == via {
			delete(p.calls, id)
			c.answer <- failed(ID{id}, err) // there is room for one
		}
	}
}

// withValues returns a context that ends when ctx does, and also has the values
// of another, whenever that ends.
func withValues(ctx, of context.Context) context.Context {
	return valued{ctx, context.WithoutCancel(of)}
}

type valued struct {
	context.Context
	values context.Context
}

// Value returns what either has for a key.
func (c valued) Value(key any) any {
	if value := c.values.Value(key); value != nil {
		return value
	}
	return c.Context.Value(key)
}

// ---- Routing what comes in ----

// Dispatch takes in a payload: responses go to the calls that wait for them,
// cancellations to their exchanges, notifications to h in wire order, all
// before it returns. If something must be answered, it returns an Answer. What
// base holds is common to all exchanges of the payload, and so are the values of
// ctx; requests end with it, too.
func (p *Peer) Dispatch(ctx context.Context, h Handler, in Payload, base Exchange) *Answer {
	rev, meta := p.Remembered()
	if rev.Version != "" {
		base.Revision = rev
	}
	base.Meta, base.owner = meta, p
	// a client reads any array: better than to lose an answer in it
	if reason := in.refusal(base.Revision); reason != "" && !p.client {
		in = Payload{Messages: []*Message{refused(ID{}, CodeInvalidRequest, "Invalid request: "+reason)}}
	}
	// In a revision without batches a client takes one all the same, but does
	// not answer with another.
	a := &Answer{Batch: in.Batch && base.Revision.Batches, peer: p, handler: h}
	for _, m := range in.Messages {
		switch kind := m.Kind(); {
		case kind == Response:
			p.deliver(m)
		case kind == Notification:
			p.hear(ctx, h, m, base)
		case kind == Invalid && p.client: // two ends that answer each other's errors never stop
			p.log.Warn("dropped what is no message", "reason", brief(m.Error.Message))
			if m.local != nil {
				p.failVia(nil, m.local)
			}
		case kind == Invalid:
			a.replies = append(a.replies, m)
		default:
			x := base
			x.Request = m
			if fault := p.begin(ctx, &x, in); fault != nil {
				a.replies = append(a.replies, NewResponse(m.ID, nil, fault))
			} else if x.life != nil {
				a.work = append(a.work, &x)
			}
		}
	}
	if len(a.replies)+len(a.work) == 0 {
		return nil
	}
	p.owes(len(a.replies))
	return a
}

// Answer is what a payload deserves: requests to be run, and replies to what
// cannot be. Emit it, and when all is written call Written.
type Answer struct {
	Batch bool // the messages form one array

	peer    *Peer
	handler Handler
	replies []*Message
	work    []*Exchange
}

// Emit runs the requests, and emits each response as it is ready, one at a
// time. A single request runs on the caller's goroutine, because another would
// be most of its cost; those of a batch have one each.
func (a *Answer) Emit(emit func(*Message)) {
	for _, m := range a.replies {
		emit(m)
	}
	if len(a.work) == 1 {
		a.work[0].run(a.handler, emit)
		return
	}
	var all sync.WaitGroup
	var mu sync.Mutex // held while one is emitted
	size, turns := 0, make(chan struct{}, maxAtOnce)
	for _, x := range a.work {
		turns <- struct{}{}
		all.Go(func() {
			defer func() { <-turns }()
			x.run(a.handler, func(m *Message) {
				mu.Lock()
				defer mu.Unlock()
				if size += m.size(); size > maxAnswers { // small requests may have large answers
					m = NewResponse(m.ID, nil, &Error{Code: CodeInternalError, Message: "The answers of this batch are too large"})
				}
				emit(m)
			})
		})
	}
	all.Wait()
}

// Written says that nothing of the answer is owed any more. Until then its
// requests count as in flight: a peer that asks and does not read must not make
// us hold any number of answers.
func (a *Answer) Written() { a.peer.owes(-len(a.replies) - len(a.work)) }

// deliver hands a response to the call that waits for it; one that comes late,
// or that nobody asked for, is ignored.
func (p *Peer) deliver(m *Message) {
	switch c := p.take(m.ID); {
	case c != nil:
		c.answer <- m
	case m.local != nil && m.ID == ID{} && p.troubled != nil: // the transport says something
		p.troubled(m.local)
	case m.Error != nil:
		p.log.Warn("an error for no call of ours", "error", brief(m.Error.Error()))
	default:
		p.log.Debug("a response that nobody waits for", "id", brief(m.ID.String()))
	}
}

// hear takes in a notification.
func (p *Peer) hear(ctx context.Context, h Handler, m *Message, x Exchange) {
	switch {
	case m.Method == "notifications/cancelled":
		p.stop(m)
	case m.Method == "notifications/progress" && !p.expectsProgress(member(m.Params, "progressToken")):
		p.log.Debug("progress of nothing that we wait for", "params", brief(m.Params))
	default:
		x.Request = m
		if unsent := x.handle(withValues(p.ctx, ctx), h); unsent.Error != nil {
			p.log.Debug("notification not handled", "method", brief(m.Method), "error", brief(unsent.Error.Error()))
		}
	}
}

func (p *Peer) expectsProgress(token json.RawMessage) bool {
	id, ok := parseID(token)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if ok && c.token == id.key() {
			return true
		}
	}
	return false
}

// stop ends the work on a request that its sender has cancelled. Its id stays
// taken until the handler has returned. 2025-11-25 cancellation: unknown,
// finished and malformed ones are ignored, and initialize is not to be
// cancelled.
func (p *Peer) stop(m *Message) {
	id, ok := parseID(member(m.Params, "requestId"))
	p.mu.Lock()
	x, ours := p.serving[id.key()], p.client && p.revision.Modern
	known := x != nil && x.Request.Method != "initialize"
	if known {
		x.life.cancelled = true
		x.life.cancel()
	}
	p.mu.Unlock()
	switch {
	case known:
		p.log.Debug("cancelled", "method", brief(x.Request.Method), "id", brief(id.String()), "reason", brief(unquote(member(m.Params, "reason"))))
	case ours && ok:
		// 2026-07-28 cancellation: a server's "MUST reference a
		// subscriptions/listen request, to terminate that subscription stream"
		p.deliver(failed(id, errors.New("the server has ended the subscription")))
	}
}

// renew ends what is left of a legacy client when another one takes its place.
// Its requests are cancelled, as stop does it, and their ids are free. Its
// waiting Calls fail, and the new client, which never saw them, is not told of
// that. Modern requests stay, because they depend on no handshake. So does
// initialize, which is not to be cancelled. renew returns when the last message
// of those requests is written.
func (p *Peer) renew() {
	var ended []*life
	p.mu.Lock()
	// Both tables in one step: a Call that finds its context ended must have
	// failed already, or it would tell the new client.
	for key, x := range p.serving {
		if x.Peer == nil || x.Request.Method == "initialize" { // modern, or a handshake
			continue
		}
		delete(p.serving, key)
		x.life.cancelled = true
		x.life.cancel()
		ended = append(ended, x.life)
	}
	for id, c := range p.calls {
		delete(p.calls, id)
		c.answer <- failed(ID{id}, errReplaced) // there is room for one
	}
	p.mu.Unlock()
	for _, life := range ended {
		life.sending.Wait()
	}
}

// errReplaced is why the Calls of a replaced client fail.
var errReplaced = fmt.Errorf("%w: another client has initialized", ErrClosed)

// begin registers a request as being served, or tells why it is not. x.life
// stays nil if it is to be passed over in silence.
func (p *Peer) begin(ctx context.Context, x *Exchange, in Payload) *Error {
	meta, declares, err := x.Request.Meta()
	rev := revision(meta.ProtocolVersion)
	// a legacy version in _meta says nothing new
	modern := declares && (rev.Modern || rev.Version == "")
	switch {
	case p.client && x.Revision.Modern:
		// 2026-07-28 stdio: the client "MUST NOT write JSON-RPC responses"
		p.log.Warn("dropped a request of a server that must not ask", "method", brief(x.Request.Method))
		return nil
	case err != nil:
		return err
	case modern && in.Batch:
		return &Error{Code: CodeInvalidRequest, Message: "Invalid request: a batch in 2026-07-28"}
	case modern && x.Request.Method == "subscriptions/listen" && len(in.raw) > maxLasting:
		return invalidParams("a subscription must have at most %d bytes", maxLasting)
	case modern:
		x.Peer, x.Revision, x.Meta = nil, rev, meta
	default:
		x.Meta.ProgressToken = meta.ProgressToken
		x.Meta.ProtocolVersion = cmp.Or(x.Meta.ProtocolVersion, meta.ProtocolVersion)
	}
	key := x.Request.ID.key()
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.err != nil: // nobody is there to read the answer
		return nil
	case p.serving[key] != nil:
		return &Error{Code: CodeInvalidRequest, Message: "Invalid request: its id is in flight"}
	case p.owed >= maxInFlight:
		return errBusy
	case p.serving == nil:
		p.serving = map[string]*Exchange{}
	}
	p.owed++
	p.serving[key] = x
	x.life = &life{key: key, progress: -1}
	if x.life.ctx, x.life.cancel = context.WithCancel(ctx); p.over {
		x.life.cancel()
	}
	return nil
}

// finish takes a request off the table; false means that it was cancelled and
// gets no answer.
func (p *Peer) finish(x *Exchange) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.serving[x.life.key] == x { // by now its id may be another's
		delete(p.serving, x.life.key)
	}
	if len(p.serving) == 0 {
		p.serving = nil
	}
	x.life.cancel()
	return !x.life.cancelled
}

// owes counts answers that are owed, and returns how many are.
func (p *Peer) owes(n int) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.owed += n
	return p.owed
}

// ---- A pipe to one peer ----

// Conn carries payloads to and from one peer. These three methods are all that
// a custom transport needs: where there are bytes, Read returns what Decode
// makes of them, and Write writes what Payload.Append does. The Conns of
// stdio.go are examples; Pipe, in memory, is the shortest.
type Conn interface {
	// Read is called by one goroutine at a time. It returns io.EOF when the
	// peer has hung up.
	Read() (Payload, error)
	// Write is called by many. It never writes in part: if ctx ends midway, the
	// rest goes before the next payload.
	Write(ctx context.Context, p Payload) error
	// Close unblocks Read, and may be called again.
	Close() error
}

// Dialer opens a Conn, and another when it is called again: it starts a program
// once more, or opens a URL anew.
type Dialer func(ctx context.Context) (Conn, error)

// Serve answers the requests of the peer at the other end of c until that hangs
// up or ctx ends. Then nothing more is read, waiting Calls fail,
// Exchange.Ending is closed, and running requests have five seconds to finish.
// When ctx has ended, so have their contexts, they have three, and c is closed
// at once: of our Conns only StdioConn still writes what is owed then. Serve
// closes c, and returns nil if the peer hung up. A nil log is silent.
func Serve(ctx context.Context, c Conn, h Handler, log *slog.Logger) error {
	ending := make(chan struct{})
	s := newPump(ctx, c, h, log, ending, false)
	s.start()
	grace := windDown
	var err error
	select {
	case err = <-s.ended:
	case <-ctx.Done():
		err, grace = ctx.Err(), hurry
		s.over(err)
	}
	close(ending)
	within(grace, &s.peer.wg)
	return errors.Join(err, s.peer.Close())
}

// Open starts a conversation from the client's end, in the background: h
// answers the peer's requests and hears its notifications, and what is no
// message is reported to log and dropped. Close the Peer to hang up; it also
// hangs up when ctx ends.
func Open(ctx context.Context, c Conn, h Handler, log *slog.Logger) *Peer {
	s := newPump(ctx, c, h, log, nil, true)
	s.start()
	return s.peer
}

// pump moves payloads between a Conn and a Peer. One goroutine at a time reads.
// It also runs the request it has read, because handing each to another
// goroutine would be most of the cost of a small one; when that takes long,
// another goroutine becomes the reader.
type pump struct {
	peer    *Peer
	handler Handler
	ending  <-chan struct{}
	ended   chan error // why reading or writing has stopped; nil: the peer hung up
}

// newPump makes a Peer and its pump. Nothing is read before start.
func newPump(ctx context.Context, c Conn, h Handler, log *slog.Logger, ending <-chan struct{}, client bool) *pump {
	write := func(ctx context.Context, m *Message) error { return c.Write(ctx, Payload{Messages: []*Message{m}}) }
	p := newPeer(ctx, write, log)
	p.client, p.conn = client, c
	return &pump{peer: p, handler: h, ending: ending, ended: make(chan error, 1)}
}

func (s *pump) start() {
	context.AfterFunc(s.peer.ctx, func() { s.peer.conn.Close() })
	s.peer.wg.Go(s.read) // until Read fails: the peer hung up, or Close
}

// reader is the goroutine that reads: while it is busy with a request, another
// may take its place.
type reader struct {
	*pump
	mu    sync.Mutex // guards the fields below
	busy  bool       // with a request, and still the one who reads after it
	first bool       // before anything else is read, unless that request calls back
}

// set says whether it is busy, and returns whether it was.
func (r *reader) set(busy, first bool) (was bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	was, r.busy, r.first = r.busy, busy, first
	return was
}

// pass starts the next reader, if this one is busy. late says that it is only
// because of the time that has passed.
func (r *reader) pass(late bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.busy && !(late && r.first) {
		r.busy = false
		// before set can return: whoever waits for our goroutines must not find
		// none in between
		r.peer.wg.Go(r.pump.read)
	}
}

// read reads until there is nothing more, or until a request has taken so long
// that another goroutine reads now.
func (s *pump) read() {
	r := &reader{pump: s}
	// Armed by Reset, below. It may come when the next request has begun
	// already.
	late := time.AfterFunc(time.Hour, func() { r.pass(true) })
	defer late.Stop()
	// This is why, unless Read fails: a handler that calls t.FailNow, say.
	why := errors.New("a handler has ended its goroutine")
	defer func() {
		if why != nil {
			s.over(why)
		}
	}()
	base := Exchange{Peer: s.peer, Ending: s.ending, outlet: s.peer.outlet, reader: r}
	for {
		in, err := s.peer.conn.Read()
		if err != nil {
			why = err
			return
		}
		answer := s.peer.Dispatch(s.peer.ctx, s.handler, in, base)
		if answer == nil {
			continue
		}
		owed := s.peer.owes(0)
		// What follows initialize must find it done; and nobody reads on for a
		// peer that leaves its answers unread.
		first := in.has("initialize") || owed > maxOwed
		r.set(true, first)
		switch {
		case first:
			late.Stop()
		case owed > manySlow: // this one will be as slow
			r.pass(false)
		default:
			late.Reset(slow)
		}
		s.reply(answer)
		if !r.set(false, false) {
			why = nil
			return
		}
	}
}

// reply emits an answer and writes it: messages as they come, or one array.
func (s *pump) reply(answer *Answer) {
	defer answer.Written()
	out := Payload{Batch: answer.Batch}
	answer.Emit(func(m *Message) {
		if out.Messages = append(out.Messages, m); !out.Batch {
			s.write(out)
			out.Messages = nil
		}
	})
	if out.Messages != nil {
		s.write(out)
	}
}

// write writes what is owed even when all contexts have ended; if a server
// cannot, the conversation is over.
func (s *pump) write(out Payload) {
	err := s.peer.conn.Write(context.Background(), out)
	switch {
	case err == nil:
	case s.peer.client && errors.Is(err, ErrClosed): // nobody waits for it any more
		s.peer.log.Debug("an answer was not sent", "error", brief(err.Error()))
	case s.peer.client: // Read will tell if that is the end
		s.peer.log.Warn("an answer could not be sent", "error", brief(err.Error()))
	default:
		s.over(fmt.Errorf("write: %w", err))
		s.peer.conn.Close()
	}
}

// over notes why the conversation ends; waiting calls fail with it. A server's
// handlers may still finish, a client's end at once.
func (s *pump) over(err error) {
	why := ErrClosed
	if err == io.EOF {
		err = nil
	} else {
		why = fmt.Errorf("%w: %w", ErrClosed, err)
	}
	if s.peer.client { // first, so that whoever learns of it from a call finds the Peer ended
		s.peer.end(why)
	}
	s.peer.fail(why)
	select {
	case s.ended <- err:
	default: // the first reason is the one that counts
	}
}
