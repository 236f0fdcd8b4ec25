// SPDX-License-Identifier: 0BSD

// Second is an MCP server that does several things at once, on standard input and output. It
// speaks one revision of the protocol, 2025-11-25:
//
//	go run ./testdata/second
//
// README.md beside this file shows the server at work, and lists what it leaves out. The tools
// are in tools.go. Here the client (>) calls a tool, which reports progress, and asks the user:
//
//	> {"jsonrpc":"2.0","id":2,"method":"tools/call","params":{…,"_meta":{"progressToken":"t"}}}
//	< {"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t",…}}
//	< {"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{…}}
//	> {"jsonrpc":"2.0","id":1,"result":{…}}
//	< {"jsonrpc":"2.0","id":2,"result":{…}}
//
// One goroutine, the reader, reads all lines. Each request is served on a goroutine of its own,
// so that a slow one holds up no other. Two tables lead from an id to such a goroutine:
//
//	the reader gets           its table   what the reader does
//	a request                 serving     enters the request, and starts its goroutine
//	notifications/cancelled   serving     ends the context of the request
//	a response                calls       hands it to the goroutine that waits for it
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"log"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

func main() {
	if err := serveLines(os.Stdin, os.Stdout); err != nil {
		log.Fatal(err) // log writes to stderr: stdout is for messages alone
	}
}

// ---- Messages: JSON-RPC 2.0 ----

// A message is one of three things. A request has an id and a method. A notification has a
// method and no id. A response has an id, and a result or an error.
type message struct {
	JSONRPC string          // always "2.0"; encoding/json takes the names of members in any case
	ID      json.RawMessage // a string or a number; a response repeats that of its request
	Method  string
	Params  struct { // those of all methods
		Name         string                                  // of tools/call
		Arguments    json.RawMessage                         // of tools/call
		Meta         struct{ ProgressToken json.RawMessage } `json:"_meta"` // nil: the client wants no reports
		RequestID    json.RawMessage                         // of notifications/cancelled
		Capabilities struct{ Elicitation object }            // of initialize; nil: the user cannot be asked
	}
	Result json.RawMessage // of a response; nil: it has an error
}

// object is a JSON object. The code below writes messages as they look on the wire.
type object = map[string]any

// fault is an error response, still without its id.
func fault(code int, text string) object {
	return object{"error": object{"code": code, "message": text}}
}

// ---- The conversation ----

// A peer is the other end: its requests, which we serve, and our calls, which it answers.
type peer struct {
	encoder *json.Encoder  // writes each message as one line
	writing sync.Mutex     // held while a line is written
	working sync.WaitGroup // the goroutines of the requests
	asks    atomic.Bool    // the client has declared that its user can be asked

	mu      sync.Mutex              // guards the fields below
	serving map[string]*exchange    // by the id of the request
	calls   map[string]chan message // by the id of the call; each channel has room for the response
	lastID  int                     // of our calls
}

// serveLines is the reader. When the client has closed our input, it may still wait for
// results. So the requests have five seconds to finish. Then their contexts end.
func serveLines(in io.Reader, out io.Writer) error {
	p := &peer{encoder: json.NewEncoder(out), serving: map[string]*exchange{}, calls: map[string]chan message{}}
	ctx, cancel := context.WithCancel(context.Background())
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, 4<<20) // the most bytes that a line may have
	for lines.Scan() {
		p.dispatch(ctx, lines.Bytes())
	}
	time.AfterFunc(5*time.Second, cancel)
	p.working.Wait()
	return lines.Err()
}

// dispatch takes in a line. It waits for no request: a request may wait for a later line.
func (p *peer) dispatch(ctx context.Context, line []byte) {
	var m message
	err := json.Unmarshal(line, &m) // a member of a wrong type makes a request invalid, below
	switch {
	case !json.Valid(line):
		p.write(fault(-32700, "Parse error: not JSON"))
	case m.Method == "" && m.ID != nil: // a response. It is never answered, even if it is wrong
		p.deliver(m)
	case m.Method == "notifications/cancelled" && m.ID == nil:
		p.cancelServed(m.Params.RequestID)
	case m.Method != "" && m.ID == nil: // we need no other notification, such as notifications/initialized
	case err != nil || m.JSONRPC != "2.0" || m.Method == "" || string(m.ID) == "null":
		p.write(fault(-32600, "Invalid request"))
	case m.Method == "initialize": // nothing more is read before it is answered
		p.enterRequest(ctx, m).serve()
	default:
		p.working.Go(p.enterRequest(ctx, m).serve)
	}
}

// write may wait for a client that reads slowly. So it does not hold mu: the reader still
// cancels requests and delivers responses.
func (p *peer) write(m object) {
	m["jsonrpc"] = "2.0"
	p.writing.Lock()
	defer p.writing.Unlock()
	_ = p.encoder.Encode(m) // if that fails, the client has gone
}

// ---- Requests of the client ----

// An exchange is one request while we serve it. A tool gets it.
type exchange struct {
	peer    *peer
	request message
	ctx     context.Context // ends when the client cancels the request, or has hung up some time ago
	cancel  context.CancelFunc
}

// enterRequest puts a request into the table, where a cancellation finds it.
func (p *peer) enterRequest(ctx context.Context, m message) *exchange {
	x := &exchange{peer: p, request: m}
	x.ctx, x.cancel = context.WithCancel(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.serving[string(m.ID)] = x
	return x
}

// cancelServed cancels a request. If the request is not in the table, it has ended already.
func (p *peer) cancelServed(id json.RawMessage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if x := p.serving[string(id)]; x != nil {
		x.cancel()
	}
}

// serve carries out a request, and answers it, unless it was cancelled. The mutex decides
// which comes first, the end of the request or its cancellation.
func (x *exchange) serve() {
	response := x.handle()
	x.peer.mu.Lock()
	isCancelled := x.ctx.Err() != nil
	delete(x.peer.serving, string(x.request.ID))
	x.peer.mu.Unlock()
	x.cancel() // frees what the context uses
	if !isCancelled {
		response["id"] = x.request.ID
		x.peer.write(response)
	}
}

// handle carries out a request, and returns the response, still without its id.
func (x *exchange) handle() object {
	switch x.request.Method {
	case "initialize":
		x.peer.asks.Store(x.request.Params.Capabilities.Elicitation != nil)
		return object{"result": object{
			"protocolVersion": "2025-11-25",
			"capabilities":    object{"tools": object{}},
			"serverInfo":      object{"name": "second", "version": "1.0.0"},
		}}
	case "ping":
		return object{"result": object{}}
	case "tools/list":
		return object{"result": object{"tools": tools}}
	case "tools/call":
		return x.callTool()
	}
	return fault(-32601, "Method not found: "+x.request.Method)
}

// progress reports how far a request is, if the client wants that.
func (x *exchange) progress(done, total int) {
	if token := x.request.Params.Meta.ProgressToken; token != nil {
		x.peer.write(object{"method": "notifications/progress", "params": object{"progressToken": token, "progress": done, "total": total}})
	}
}

// call sends a request to the client, and waits for the result. nil: there is none, because the
// client has answered with an error, or because the exchange has ended first.
func (x *exchange) call(method string, params object) (result json.RawMessage) {
	p, response := x.peer, make(chan message, 1)
	p.mu.Lock()
	p.lastID++
	id := json.RawMessage(strconv.Itoa(p.lastID))
	p.calls[string(id)] = response
	p.mu.Unlock()
	p.write(object{"id": id, "method": method, "params": params})
	select {
	case m := <-response:
		return m.Result
	case <-x.ctx.Done():
		p.deliver(message{ID: id}) // takes the call out of the table, as a response does
		p.write(object{"method": "notifications/cancelled", "params": object{"requestId": id}})
		return nil
	}
}

// deliver takes a call out of the table, and hands it the response. Later ones are dropped.
func (p *peer) deliver(m message) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if response := p.calls[string(m.ID)]; response != nil {
		response <- m
		delete(p.calls, string(m.ID))
	}
}
