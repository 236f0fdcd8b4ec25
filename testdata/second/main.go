// SPDX-License-Identifier: 0BSD

// Second is an MCP server with sessions and streams, and with no more than a client
// needs to use them. It speaks one revision of the protocol, 2025-11-25, over HTTP:
//
//	go run ./testdata/second -http 127.0.0.1:8080   at http://127.0.0.1:8080/mcp
//
// README.md beside this file shows the server at work, and lists what it leaves out. This
// file is about the wire. The tools are in tools.go.
//
// A client has a session. Each call of the client has a stream in this session: the
// messages of the call, with numbers. The answer is the last one. A response only reads
// the stream. So the call goes on when the connection breaks. A client that knows the id
// of a message gets what follows it on the next response:
//
//	goroutine of the call                        goroutine of the response
//	progress, ask, end ──► 1 2 3 ... ──────────► stream.next ──► POST, or GET with Last-Event-ID
//
// The session has one more stream, number 0, for messages that belong to no call.
// The client reads it with a GET.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	revision = "2025-11-25" // the revision of the protocol that this server speaks
	maxSize  = 4 << 20      // the most bytes that one message may have
)

func main() {
	address := flag.String("http", "127.0.0.1:8080", "serve HTTP at this `address`")
	flag.Parse()
	http.Handle("/mcp", newServer())
	log.Fatal(http.ListenAndServe(*address, nil))
}

// ---- Messages: JSON-RPC 2.0 ----

// A message is one of three things. A request has an id and a method. A notification has
// a method and no id. A response has an id, and a result or an error.
type message struct {
	JSONRPC string          `json:"jsonrpc"`      // always "2.0"
	ID      json.RawMessage `json:"id,omitempty"` // a string or a number; a response repeats that of its request
	Method  string          `json:"method,omitempty"`
	Params  json.RawMessage `json:"params,omitempty"`
	Result  json.RawMessage `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

const ( // codes of JSON-RPC
	parseError     = -32700 // the text is not JSON
	invalidRequest = -32600 // the JSON is not a message
	methodNotFound = -32601
	invalidParams  = -32602
	internalError  = -32603
	// of MCP
	resourceNotFound = -32002
)

// object is a JSON object. The code below writes params and results as they look on the wire.
type object = map[string]any

func decode(text []byte) (m message, fault *rpcError) {
	if !json.Valid(text) {
		return m, &rpcError{parseError, "Parse error"}
	}
	err := json.Unmarshal(text, &m)
	idIsValid := m.ID == nil || strings.IndexByte(`"-0123456789`, m.ID[0]) >= 0 // the first byte of a string or a number
	saysNothing := m.ID == nil && m.Method == ""
	if err != nil || m.JSONRPC != "2.0" || !idIsValid || saysNothing {
		return message{}, &rpcError{invalidRequest, "Invalid request"}
	}
	return m, nil
}

// encode returns params or a result as JSON.
func encode(value object) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // our objects hold strings, numbers and maps
	}
	return text
}

func notification(method string, params object) message {
	return message{JSONRPC: "2.0", Method: method, Params: encode(params)}
}

// response returns the response to the request with an id.
func response(id json.RawMessage, result object, fault *rpcError) message {
	if fault != nil {
		return message{JSONRPC: "2.0", ID: id, Error: fault}
	}
	return message{JSONRPC: "2.0", ID: id, Result: encode(result)}
}

// ---- One URL, and three methods of HTTP ----

// A server is what all clients share.
type server struct {
	mu       sync.Mutex // guards the fields below
	sessions map[string]*session
	notes    map[string]string // by name
}

func newServer() *server {
	return &server{sessions: map[string]*session{}, notes: map[string]string{}}
}

func (srv *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	version := r.Header.Get("MCP-Protocol-Version") // initialize comes without it, and all that follows should have it
	switch {
	case r.Header.Get("Origin") != "": // a page in a browser has sent this: without the check, any page could use the server
		http.Error(w, "Web pages are not served", http.StatusForbidden)
	case version != "" && version != revision:
		http.Error(w, "This server speaks "+revision, http.StatusBadRequest)
	case r.Method == http.MethodPost:
		srv.post(w, r)
	case r.Method == http.MethodGet:
		if s := srv.session(w, r); s != nil {
			s.get(w, r)
		}
	case r.Method == http.MethodDelete:
		if s := srv.session(w, r); s != nil {
			srv.end(s)
		}
	default:
		w.Header().Set("Allow", "GET, POST, DELETE")
		http.Error(w, "This method is not served", http.StatusMethodNotAllowed)
	}
}

// post takes one message. What the client sends is a request, a notification, or its
// response to a question of the server. Only a request is answered with a message.
func (srv *server) post(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSize))
	if err != nil { // the body is too large, or was cut: err says which
		http.Error(w, "The body cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	m, fault := decode(body)
	if fault != nil {
		writeJSON(w, http.StatusBadRequest, response(nil, nil, fault))
		return
	}
	if m.Method == "initialize" && m.ID != nil {
		srv.initialize(w, m)
		return
	}
	s := srv.session(w, r)
	switch {
	case s == nil: // session has answered
	case m.Method == "":
		s.takeAnswer(m)
		w.WriteHeader(http.StatusAccepted) // taken, and not answered
	case m.ID == nil:
		s.takeNotification(m)
		w.WriteHeader(http.StatusAccepted)
	default:
		s.serve(w, r, m)
	}
}

func writeJSON(w http.ResponseWriter, status int, m message) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(m) // if that fails, the client has gone
}

// ---- Sessions ----

// A session is what the server remembers about one client, from initialize to DELETE.
type session struct {
	server     *server
	id         string
	asks       bool            // the client has declared that its user can be asked
	ctx        context.Context // ends with the session
	cancel     context.CancelFunc
	standalone *stream // number 0: for messages that belong to no call

	mu           sync.Mutex                    // guards the fields below, and those of the streams
	streams      []*stream                     // by number; they stay until the session ends
	calls        map[string]context.CancelFunc // requests of the client that run, by id
	questions    map[string]chan message       // requests of the server that wait for an answer, by id
	lastQuestion int                           // the id of the newest one
}

// elicitation says how a client asks its user: by a form, or a page. 2025-06-18 had only forms, and wrote "elicitation":{}.
type elicitation struct{ Form, URL *struct{} }

func (e *elicitation) canShowForm() bool { return e != nil && (e.Form != nil || e.URL == nil) }

// initialize opens a session. The header of the response names it, and all further
// requests of the client repeat that name.
func (srv *server) initialize(w http.ResponseWriter, m message) {
	var params struct {
		Capabilities struct {
			Elicitation *elicitation `json:"elicitation"` // nil: the user cannot be asked
		} `json:"capabilities"`
	}
	if err := json.Unmarshal(m.Params, &params); err != nil {
		writeJSON(w, http.StatusOK, response(m.ID, nil, &rpcError{invalidParams, "Invalid params"}))
		return
	}
	s := &session{
		server: srv, id: rand.Text(), asks: params.Capabilities.Elicitation.canShowForm(),
		calls: map[string]context.CancelFunc{}, questions: map[string]chan message{},
	}
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.standalone = s.addStream() // nobody else knows the session yet, so no mutex is needed
	srv.mu.Lock()
	srv.sessions[s.id] = s
	srv.mu.Unlock()
	w.Header().Set("Mcp-Session-Id", s.id)
	writeJSON(w, http.StatusOK, response(m.ID, object{
		"protocolVersion": revision,
		"capabilities":    object{"tools": object{}, "resources": object{"listChanged": true}},
		"serverInfo":      object{"name": "second", "version": "1.0.0"},
	}, nil))
}

// session returns the session that a request names. If there is none, it answers the
// request, and returns nil.
func (srv *server) session(w http.ResponseWriter, r *http.Request) *session {
	id := r.Header.Get("Mcp-Session-Id")
	srv.mu.Lock()
	s := srv.sessions[id]
	srv.mu.Unlock()
	switch {
	case s != nil:
	case id == "":
		http.Error(w, "Mcp-Session-Id is missing", http.StatusBadRequest)
	default: // the client begins again, with initialize
		http.Error(w, "Session not found", http.StatusNotFound)
	}
	return s
}

// end ends a session and its calls. The responses that read its streams end, too.
func (srv *server) end(s *session) {
	srv.mu.Lock()
	delete(srv.sessions, s.id)
	srv.mu.Unlock()
	s.cancel()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, st := range s.streams {
		st.end()
	}
}

// takeAnswer gives the client's answer to the call that has asked.
func (s *session) takeAnswer(m message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if waiting := s.questions[string(m.ID)]; waiting != nil {
		waiting <- m // there is room for it, because there is one answer
		delete(s.questions, string(m.ID))
	}
}

// takeNotification stops a call that the client has cancelled. A client sends other
// notifications, too, such as notifications/initialized, and this server needs none of them.
func (s *session) takeNotification(m message) {
	var params struct {
		RequestID json.RawMessage `json:"requestId"`
	}
	if m.Method != "notifications/cancelled" || json.Unmarshal(m.Params, &params) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if cancel := s.calls[string(params.RequestID)]; cancel != nil {
		cancel()
	}
}

// ---- Requests ----

// A call is a request of the client while the server works on it.
type call struct {
	ctx     context.Context // ends when the client cancels the call, and with the session; not with the connection
	cancel  context.CancelFunc
	session *session
	request message
	stream  *stream // what the server sends about the call
	reader  int     // the turn of the POST's response among the readers of the stream (see takeOver)
}

// serve begins a call on a goroutine of its own. Then it writes what the call sends.
func (s *session) serve(w http.ResponseWriter, r *http.Request, m message) {
	c := s.begin(m)
	if c == nil {
		writeJSON(w, http.StatusBadRequest, response(m.ID, nil, &rpcError{invalidRequest, "A request with this id is running"}))
		return
	}
	go func() {
		answer := response(m.ID, nil, &rpcError{internalError, "Internal error"}) // what the client gets if run panics
		defer func() {
			if reason := recover(); reason != nil { // net/http does this for its own goroutines only
				log.Print("panic: ", reason)
			}
			c.end(answer)
		}()
		result, fault := c.run()
		answer = response(m.ID, result, fault)
	}()
	c.respond(w, r)
}

// begin notes a request as running. It returns nil if another one with its id is.
func (s *session) begin(m message) *call {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls[string(m.ID)] != nil {
		return nil
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.calls[string(m.ID)] = cancel
	st := s.addStream()
	return &call{ctx, cancel, s, m, st, st.takeOver()}
}

// end ends the stream of a call with the answer. A call that was cancelled has none.
func (c *call) end(answer message) {
	s := c.session
	s.mu.Lock()
	defer s.mu.Unlock()
	if c.ctx.Err() == nil {
		c.stream.add(answer)
	}
	c.stream.end()
	delete(s.calls, string(c.request.ID))
	c.cancel() // frees what the context uses
}

// run carries out a request.
func (c *call) run() (object, *rpcError) {
	switch c.request.Method {
	case "ping":
		return object{}, nil
	case "tools/list":
		return object{"tools": tools}, nil
	case "tools/call":
		return c.callTool()
	case "resources/list":
		return c.session.server.listNotes(), nil
	case "resources/read":
		return c.session.server.readNote(c.request.Params)
	}
	return nil, &rpcError{methodNotFound, "Method not found: " + c.request.Method}
}

// progress reports how far a call is, if the client wants that: then it has sent a token.
func (c *call) progress(done, total int) {
	var params struct {
		Meta struct {
			Token json.RawMessage `json:"progressToken"`
		} `json:"_meta"`
	}
	if json.Unmarshal(c.request.Params, &params) == nil && params.Meta.Token != nil && string(params.Meta.Token) != "null" {
		c.stream.send(notification("notifications/progress", object{"progressToken": params.Meta.Token, "progress": done, "total": total}))
	}
}

// ask sends a request to the client, on the stream of the call. The client's answer comes
// as a POST of its own.
func (c *call) ask(method string, params object) (message, error) {
	s := c.session
	answer := make(chan message, 1)
	s.mu.Lock()
	s.lastQuestion++
	question := message{JSONRPC: "2.0", ID: json.RawMessage(strconv.Itoa(s.lastQuestion)), Method: method, Params: encode(params)}
	s.questions[string(question.ID)] = answer
	s.mu.Unlock()
	c.stream.send(question)
	select {
	case m := <-answer:
		return m, nil
	case <-c.ctx.Done():
		s.mu.Lock()
		delete(s.questions, string(question.ID))
		s.mu.Unlock()
		return message{}, c.ctx.Err()
	}
}

// ---- Streams ----

// A stream is a sequence of messages, with the numbers 1, 2, 3 and so on. An event carries
// one message. The id of the event is the number of the stream, a slash, and the number of
// the message. The id must tell streams apart: a GET names an event, and nothing else.
//
//	stream 4:   1   2   3   4   5 ...
//	                ^           ^
//	                │           send adds messages here
//	                a response has read so far: its client knows the id 4/2
//
// One response at a time reads a stream. When a client comes back, its new response takes
// over: the server may not have noticed yet that the old connection is broken.
type stream struct {
	session *session // its mutex guards the fields below
	number  int

	messages []message
	hasEnded bool
	reader   int           // the number of the response whose turn it is to read the stream; 0: none has begun
	changed  chan struct{} // closed when one of the fields above changes
	taken    int           // the number of the last message that a response has taken
}

// addStream makes a stream. The caller holds the mutex, here and in the next four methods.
func (s *session) addStream() *stream {
	st := &stream{session: s, number: len(s.streams), changed: make(chan struct{})}
	s.streams = append(s.streams, st)
	return st
}

func (st *stream) add(m message) {
	st.messages = append(st.messages, m)
	st.signal()
}

func (st *stream) end() {
	st.hasEnded = true
	st.signal()
}

// takeOver lets a new response read the stream, and returns the number of that response. The
// response that has read the stream so far ends.
func (st *stream) takeOver() (reader int) {
	st.reader++
	st.signal()
	return st.reader
}

// signal wakes all who wait for a change.
func (st *stream) signal() {
	close(st.changed)
	st.changed = make(chan struct{})
}

// send adds a message that is no answer.
func (st *stream) send(m message) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	st.add(m)
}

// next returns the message that follows number n, and waits for it. It returns false if
// there is none: the stream has ended, another response reads it now, or ctx is over.
func (st *stream) next(ctx context.Context, reader, n int) (m message, ok bool) {
	for {
		m, ok, changed := st.take(reader, n)
		if changed == nil {
			return m, ok
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return message{}, false
		}
	}
}

// take is next without waiting. Its third result tells whether to wait:
//
//	the message is there         m, true, nil
//	there will be no message     no message, false, nil
//	the message may come later   no message, false, and a channel, which is closed at the next change
func (st *stream) take(reader, n int) (m message, ok bool, changed <-chan struct{}) {
	st.session.mu.Lock()
	defer st.session.mu.Unlock()
	switch {
	case st.reader != reader:
		return message{}, false, nil
	case n < len(st.messages):
		st.taken = max(st.taken, n+1)
		return st.messages[n], true, nil
	case st.hasEnded:
		return message{}, false, nil
	}
	return message{}, false, st.changed
}

// respond writes the response to the POST of a call. If the answer is the first message,
// and comes within a second, the response is JSON. Otherwise it is a stream.
func (c *call) respond(w http.ResponseWriter, r *http.Request) {
	soon, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	first, ok := c.stream.next(soon, c.reader, 0)
	switch {
	case ok && first.Method == "": // it has no method, so it is the answer
		writeJSON(w, http.StatusOK, first)
	case !ok && soon.Err() == nil:
		// There is time left. So the call was cancelled, or another response reads the stream now.
		w.Header().Set("Content-Type", "text/event-stream")
	default:
		c.stream.follow(w, r, c.reader, 0, true)
	}
}

// get opens a stream. What the client gets depends on the event that it names:
//
//	an event           what follows that event, on the stream of the event
//	none, first GET    what is sent on the standalone stream from now on
//	none, later GET    what no earlier GET has got
func (s *session) get(w http.ResponseWriter, r *http.Request) {
	lastID := r.Header.Get("Last-Event-ID")
	s.mu.Lock()
	st, n := s.find(lastID)
	if st == nil {
		s.mu.Unlock()
		http.Error(w, "There is no such event", http.StatusBadRequest)
		return
	}
	reader := st.takeOver()
	s.mu.Unlock()
	st.follow(w, r, reader, n, lastID == "")
}

// find returns what a GET continues: a stream, and the number of the message after which it
// begins. If there is no such event, the stream is nil. The caller holds the mutex.
func (s *session) find(id string) (st *stream, n int) {
	if id == "" {
		st = s.standalone
		if st.reader == 0 { // nobody has listened so far
			st.taken = len(st.messages)
		}
		return st, st.taken
	}
	before, after, _ := strings.Cut(id, "/")
	number, err1 := strconv.Atoi(before)
	n, err2 := strconv.Atoi(after)
	if err1 != nil || err2 != nil || number < 0 || number >= len(s.streams) || n < 0 || n > len(s.streams[number].messages) {
		return nil, 0
	}
	return s.streams[number], n
}

// follow writes the messages after number n as events, until there will be no more. If the
// request names no event, the response begins with an event without a message. Its id is
// where the client can continue if the connection breaks before the first message.
func (st *stream) follow(w http.ResponseWriter, r *http.Request, reader, n int, namesNoEvent bool) {
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	if namesNoEvent {
		fmt.Fprintf(w, "id: %d/%d\ndata:\n\n", st.number, n)
	}
	for {
		if http.NewResponseController(w).Flush() != nil { // the client has gone
			return
		}
		m, ok := st.next(r.Context(), reader, n)
		if !ok {
			return
		}
		n++
		text, _ := json.Marshal(m) // one line; our messages can be encoded
		fmt.Fprintf(w, "id: %d/%d\ndata: %s\n\n", st.number, n, text)
	}
}
