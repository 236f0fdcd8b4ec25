// SPDX-License-Identifier: 0BSD

// Fourth is an MCP server of the modern era, with no more than a client needs to use it.
// It speaks one revision of the protocol, 2026-07-28, over HTTP:
//
//	go run ./testdata/fourth -http 127.0.0.1:8080   at http://127.0.0.1:8080/mcp
//
// README.md beside this file shows the server at work, and lists what it leaves out. This
// file is about the wire. The tools are in tools.go.
//
// There are no sessions. A POST and its response are the whole conversation, and one
// goroutine does everything: it checks the request, runs it, and writes what the tool sends
// and then the result. If the connection breaks, the context of the request ends, and with it
// the call. Nothing is kept for a client that comes back:
//
//	POST ──► check ──► run ──► send ──► send ──► … ──► answer
//	                           a stream of events       the last event; or JSON, if nothing was sent
package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	revision = "2026-07-28" // the revision of the protocol that this server speaks
	maxSize  = 4 << 20      // the most bytes that one message may have
	maxQueue = 100          // the most announcements that wait for a client that reads slowly
)

func main() {
	address := flag.String("http", "127.0.0.1:8080", "serve HTTP at this `address`")
	flag.Parse()
	http.Handle("/mcp", newServer())
	log.Fatal(http.ListenAndServe(*address, nil))
}

// ---- Messages: JSON-RPC 2.0, and what each request says of itself ----

// A request has an id and a method. A message with a method and no id is a notification.
type request struct {
	JSONRPC string          `json:"jsonrpc"` // always "2.0"
	ID      json.RawMessage `json:"id"`      // a string or a number; the answer repeats it
	Method  string          `json:"method"`
	Params  params          `json:"params"`
}

// params are those of all methods. Each request has Meta.
type params struct {
	Meta struct {
		Version       string          `json:"io.modelcontextprotocol/protocolVersion"`
		Capabilities  *capabilities   `json:"io.modelcontextprotocol/clientCapabilities"` // nil: it is missing
		ProgressToken json.RawMessage `json:"progressToken"`                              // nil: the client wants no progress
	} `json:"_meta"`

	Name           string            `json:"name"`           // tools/call: the tool
	Arguments      json.RawMessage   `json:"arguments"`      // tools/call
	InputResponses map[string]answer `json:"inputResponses"` // tools/call: what the user has answered, by the key of the question
	URI            string            `json:"uri"`            // resources/read
	Notifications  wanted            `json:"notifications"`  // subscriptions/listen
}

// capabilities are what the client can do.
type capabilities struct {
	Elicitation *elicitation `json:"elicitation"` // nil: its user cannot be asked
}

// elicitation says how a client asks its user: by a form, or a page. {} is an older way to say form.
type elicitation struct{ Form, URL *struct{} }

func (e *elicitation) canShowForm() bool { return e != nil && (e.Form != nil || e.URL == nil) }

// An answer is what the user has answered to a question.
type answer struct {
	Action  string `json:"action"` // accept, decline or cancel
	Content struct {
		Name string `json:"name"`
	} `json:"content"`
}

// wanted are the announcements that a client wants.
type wanted struct {
	Resources bool     `json:"resourcesListChanged,omitempty"`
	URIs      []string `json:"resourceSubscriptions,omitempty"` // of resources
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
	Data    any    `json:"data,omitempty"`
}

const ( // codes of JSON-RPC, and of MCP
	parseError         = -32700 // the text is not JSON
	invalidRequest     = -32600 // the JSON is not a request
	methodNotFound     = -32601
	invalidParams      = -32602
	headerMismatch     = -32020 // the header does not repeat what the body says
	missingCapability  = -32021 // the client cannot do what the call needs
	unsupportedVersion = -32022
)

// object is a JSON object. The code below writes messages as they look on the wire.
type object = map[string]any

// ---- A POST ----

// A server is what all requests share.
type server struct {
	mu            sync.Mutex // guards the fields below
	notes         map[string]string
	subscriptions map[*subscription]bool
}

func newServer() *server {
	return &server{notes: map[string]string{}, subscriptions: map[*subscription]bool{}}
}

// A call is a request while the server works on it. Only one goroutine uses it, that of net/http.
type call struct {
	server   *server
	w        http.ResponseWriter
	ctx      context.Context // ends when the client closes the connection: that is how it cancels a call
	request  request
	isStream bool // something was sent, so the response is a stream
}

func (srv *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch {
	case r.Header.Get("Origin") != "": // a page in a browser has sent this: without the check, any page could use the server
		http.Error(w, "Web pages are not served", http.StatusForbidden)
		return
	case r.Method != http.MethodPost: // GET and DELETE have gone with the sessions
		w.Header().Set("Allow", "POST")
		http.Error(w, "Only POST is served", http.StatusMethodNotAllowed)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSize))
	if err != nil { // the body is too large, or was cut: err says which
		http.Error(w, "The body cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	c := &call{server: srv, w: w, ctx: r.Context()}
	if !json.Valid(body) {
		c.fail(http.StatusBadRequest, &rpcError{parseError, "Parse error", nil})
		return
	}
	if err := json.Unmarshal(body, &c.request); err != nil || !c.request.isValid() {
		if !c.request.idIsValid() {
			c.request.ID = nil
		}
		c.fail(http.StatusBadRequest, &rpcError{invalidRequest, "Invalid request", nil})
		return
	}
	if c.request.ID == nil { // a notification
		w.WriteHeader(http.StatusAccepted) // taken, and not answered
		return
	}
	if fault := c.request.check(r.Header); fault != nil {
		c.fail(http.StatusBadRequest, fault)
		return
	}
	c.answer(c.run())
}

func (m *request) isValid() bool {
	return m.JSONRPC == "2.0" && m.Method != "" && m.idIsValid()
}

// idIsValid reports whether the id is a string or a number, or is missing.
func (m *request) idIsValid() bool {
	return m.ID == nil || strings.IndexByte(`"-0123456789`, m.ID[0]) >= 0
}

// check returns an error if a request does not say what it must say, in body and header.
func (m *request) check(header http.Header) *rpcError {
	meta, supported := m.Params.Meta, []string{revision} // supported tells the client what to put into _meta
	switch {
	case meta.Version != "" && meta.Version != revision:
		return &rpcError{unsupportedVersion, "Unsupported protocol version", object{"supported": supported, "requested": meta.Version}}
	case meta.Version == "" || meta.Capabilities == nil:
		return &rpcError{invalidParams, "_meta must have protocolVersion and clientCapabilities", object{"supported": supported}}
	case !m.isRepeatedBy(header):
		return &rpcError{headerMismatch, "MCP-Protocol-Version, Mcp-Method and Mcp-Name must repeat the body", nil}
	}
	return nil
}

// isRepeatedBy reports whether the header says what the body says. A proxy may have let the
// request pass because of the header. So nothing runs if the body says something else.
func (m *request) isRepeatedBy(header http.Header) bool {
	name := m.Params.Name
	if m.Method == "resources/read" {
		name = m.Params.URI
	}
	fields := []string{"MCP-Protocol-Version", "Mcp-Method", "Mcp-Name"}
	isTwice := func(field string) bool { return len(header.Values(field)) > 1 } // then a proxy may read another value than we do
	return !slices.ContainsFunc(fields, isTwice) && header.Get("MCP-Protocol-Version") == m.Params.Meta.Version &&
		header.Get("Mcp-Method") == m.Method && decoded(header.Get("Mcp-Name")) == name
}

// decoded returns the value of a field. A name that is not ASCII comes as Base64.
func decoded(field string) string {
	encoded, isEncoded := strings.CutPrefix(field, "=?base64?")
	encoded, isComplete := strings.CutSuffix(encoded, "?=")
	text, err := base64.StdEncoding.Strict().DecodeString(encoded)
	if !isEncoded || !isComplete || err != nil {
		return field
	}
	return string(text)
}

// send sends a message that is no answer. The first one makes the response a stream. Its
// events have no ids, because a stream that was cut cannot be continued.
func (c *call) send(method string, params object) {
	if !c.isStream {
		c.isStream = true
		c.w.Header().Set("Content-Type", "text/event-stream")
		c.w.Header().Set("Cache-Control", "no-cache")
	}
	c.write(http.StatusOK, object{"jsonrpc": "2.0", "method": method, "params": params})
}

// answer ends the call: with JSON, or with the last event of the stream. If it is JSON, the
// status repeats the kind of the error.
func (c *call) answer(result object, fault *rpcError) {
	switch {
	case fault == nil:
		if result["resultType"] == nil {
			result["resultType"] = "complete"
		}
		meta, _ := result["_meta"].(object)
		if meta == nil {
			meta = object{}
		}
		meta["io.modelcontextprotocol/serverInfo"] = object{"name": "fourth", "version": "1.0.0"}
		result["_meta"] = meta
		c.write(http.StatusOK, object{"jsonrpc": "2.0", "id": c.request.ID, "result": result})
	case fault.Code == methodNotFound:
		c.fail(http.StatusNotFound, fault)
	case fault.Code == missingCapability:
		c.fail(http.StatusBadRequest, fault)
	default:
		c.fail(http.StatusOK, fault)
	}
}

// fail answers with an error.
func (c *call) fail(status int, fault *rpcError) {
	message := object{"jsonrpc": "2.0", "error": fault}
	if c.request.ID != nil { // else nobody can tell which request this answers
		message["id"] = c.request.ID
	}
	c.write(status, message)
}

// write writes a message: as an event if the response is a stream.
func (c *call) write(status int, message object) {
	text, err := json.Marshal(message)
	if err != nil {
		panic(err) // our messages hold strings, numbers and JSON of the client
	}
	_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(time.Minute)) // for a client that does not read
	if c.isStream {
		fmt.Fprintf(c.w, "data: %s\n\n", text)
		_ = http.NewResponseController(c.w).Flush() // if that fails, the client has gone, and ctx ends
		return
	}
	c.w.Header().Set("Content-Type", "application/json")
	c.w.WriteHeader(status)
	_, _ = c.w.Write(append(text, '\n'))
}

// ---- Methods ----

// run carries out a request.
func (c *call) run() (object, *rpcError) {
	switch c.request.Method {
	case "server/discover": // takes the place of initialize, and is optional
		return cacheable(object{
			"supportedVersions": []string{revision},
			"capabilities":      object{"tools": object{}, "resources": object{"listChanged": true, "subscribe": true}},
		}), nil
	case "tools/list":
		return cacheable(object{"tools": tools}), nil
	case "tools/call":
		return c.callTool()
	case "resources/list":
		return cacheable(c.server.listNotes()), nil
	case "resources/read":
		return c.server.readNote(c.request.Params.URI)
	case "subscriptions/listen":
		return c.listen()
	}
	return nil, &rpcError{methodNotFound, "Method not found: " + c.request.Method, nil}
}

// cacheable adds how long a client may keep a result, and for whom: here not at all.
func cacheable(result object) object {
	result["ttlMs"], result["cacheScope"] = 0, "private"
	return result
}

// callTool calls a tool. A wrong name is an error, which the client's program reads. A tool
// that fails has a result with isError: the model reads it, and can try again.
func (c *call) callTool() (object, *rpcError) {
	i := slices.IndexFunc(tools, func(t tool) bool { return t.Name == c.request.Params.Name })
	if i < 0 {
		return nil, &rpcError{invalidParams, "Unknown tool: " + c.request.Params.Name, nil}
	}
	text, err := tools[i].run(c, c.request.Params.Arguments)
	if need, isQuestion := errors.AsType[*question](err); isQuestion {
		return c.require(need)
	}
	if err != nil {
		return object{"content": []object{{"type": "text", "text": err.Error()}}, "isError": true}, nil
	}
	return object{"content": []object{{"type": "text", "text": text}}}, nil
}

// ---- Questions to the user ----

// A question is the error of a tool that needs an answer first.
type question struct {
	key     string // of the answer in inputResponses
	message string
	schema  json.RawMessage // of the form that the client shows its user
}

func (q *question) Error() string { return q.message }

// require ends a call with a question. The client asks its user, and makes the same call
// once more, with the answer. The server need not remember anything meanwhile.
func (c *call) require(q *question) (object, *rpcError) {
	if !c.request.Params.Meta.Capabilities.Elicitation.canShowForm() {
		return nil, &rpcError{missingCapability, "The client lacks elicitation",
			object{"requiredCapabilities": object{"elicitation": object{"form": object{}}}}}
	}
	return object{"resultType": "input_required", "inputRequests": object{
		q.key: object{"method": "elicitation/create", "params": object{"message": q.message, "requestedSchema": q.schema}},
	}}, nil
}

func ask(c *call, _ json.RawMessage) (string, error) {
	a, hasAnswer := c.request.Params.InputResponses["name"]
	switch {
	case !hasAnswer:
		return "", &question{"name", "What is your name?",
			json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}`)}
	case a.Action != "accept" || a.Content.Name == "":
		return "", errors.New("No name: the user chose " + a.Action)
	}
	return "Hello, " + a.Content.Name, nil
}

// ---- Subscriptions ----

// A subscription is a request that stays open. Its stream carries the announcements.
type subscription struct {
	wanted wanted            // only what this server can announce: the type wanted has no fields for the rest
	queue  chan announcement // closed when the client reads too slowly
}

type announcement struct {
	method string
	params object
}

// listen says what the client will hear of, and then sends it, until the client closes the
// connection. All messages name the subscription by the id of the request.
func (c *call) listen() (object, *rpcError) {
	meta := object{"io.modelcontextprotocol/subscriptionId": c.request.ID}
	s := &subscription{c.request.Params.Notifications, make(chan announcement, maxQueue)}
	c.server.mu.Lock()
	c.server.subscriptions[s] = true
	c.server.mu.Unlock()
	defer func() {
		c.server.mu.Lock()
		delete(c.server.subscriptions, s)
		c.server.mu.Unlock()
	}()
	c.send("notifications/subscriptions/acknowledged", object{"notifications": s.wanted, "_meta": meta})
	for {
		select {
		case a, isOpen := <-s.queue:
			if !isOpen { // the result ends the subscription, and the client may make another one
				return object{"_meta": meta}, nil
			}
			a.params["_meta"] = meta
			c.send(a.method, a.params)
		case <-c.ctx.Done():
			return object{}, nil // which nobody reads
		}
	}
}

// announce gives an announcement to a subscription. If the queue is full, the subscription
// ends. The caller holds the mutex.
func (srv *server) announce(s *subscription, method string, params object) {
	if !srv.subscriptions[s] { // an announcement a moment ago has ended it: its queue was full
		return
	}
	select {
	case s.queue <- announcement{method, params}:
	default:
		delete(srv.subscriptions, s)
		close(s.queue)
	}
}
