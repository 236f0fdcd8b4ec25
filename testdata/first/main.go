// SPDX-License-Identifier: 0BSD

// First is an MCP server with one tool, and with no more than a client needs to
// call that tool. It speaks one revision of the protocol, 2025-11-25, on standard
// input and output or over HTTP:
//
//	go run ./testdata/first                        on standard input and output
//	go run ./testdata/first -http 127.0.0.1:8080   at http://127.0.0.1:8080/mcp
//
// README.md beside this file shows the server at work, and lists what it leaves out.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"io"
	"log"
	"net/http"
	"os"
)

const (
	revision = "2025-11-25" // the revision of the protocol that this server speaks
	maxSize  = 4 << 20      // the most bytes that one message may have
)

func main() {
	address := flag.String("http", "", "serve HTTP at this `address`, such as 127.0.0.1:8080, instead of stdin and stdout")
	flag.Parse()
	if *address == "" {
		if err := serveLines(os.Stdin, os.Stdout); err != nil {
			log.Fatal(err) // log writes to stderr: stdout is for messages alone
		}
		return
	}
	http.HandleFunc("/mcp", servePost)
	log.Fatal(http.ListenAndServe(*address, nil))
}

// ---- Messages: JSON-RPC 2.0 ----

// A request has an id and a method. A message with a method and no id is a notification.
type request struct {
	ID     json.RawMessage `json:"id"` // a string or a number; the answer repeats it as it came
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
}

// A response answers a request. It has a result or an error, never both.
type response struct {
	JSONRPC string          `json:"jsonrpc"` // always "2.0"
	ID      json.RawMessage `json:"id,omitempty"`
	Result  any             `json:"result,omitempty"`
	Error   *rpcError       `json:"error,omitempty"`
}

type rpcError struct {
	Code    int    `json:"code"`
	Message string `json:"message"`
}

const ( // codes of JSON-RPC
	parseError     = -32700 // the text is not JSON
	invalidRequest = -32600 // the JSON is not a request
	methodNotFound = -32601
	invalidParams  = -32602
)

// answer reads one message, and returns the response to it, or nil if it needs no answer.
func answer(text []byte) *response {
	if !json.Valid(text) {
		return &response{JSONRPC: "2.0", Error: &rpcError{parseError, "Parse error"}}
	}
	var req request
	if json.Unmarshal(text, &req) != nil || string(req.ID) == "null" {
		return &response{JSONRPC: "2.0", Error: &rpcError{invalidRequest, "Invalid request"}}
	}
	if req.ID == nil || req.Method == "" { // without a method it is a response, and this server has asked nothing
		return nil
	}
	result, err := handle(req.Method, req.Params)
	if err != nil {
		return &response{JSONRPC: "2.0", ID: req.ID, Error: err}
	}
	return &response{JSONRPC: "2.0", ID: req.ID, Result: result}
}

// ---- The methods of MCP ----

// object is a JSON object. The code below writes results as they look on the wire.
type object = map[string]any

// handle carries out one request.
func handle(method string, params json.RawMessage) (object, *rpcError) {
	switch method {
	case "initialize": // the client names a revision, and we answer with ours; a client that does not speak it closes the connection
		return object{
			"protocolVersion": revision,
			"capabilities":    object{"tools": object{}}, // we offer tools, but no resources and no prompts
			"serverInfo":      object{"name": "first", "version": "1.0.0"},
		}, nil
	case "ping":
		return object{}, nil
	case "tools/list":
		return object{"tools": []any{weatherTool}}, nil
	case "tools/call":
		return callTool(params)
	default:
		return nil, &rpcError{methodNotFound, "Method not found: " + method}
	}
}

// weatherTool is what a client learns about our tool. A model reads the
// description, and inputSchema says which arguments it has to give.
var weatherTool = object{
	"name":        "get-weather",
	"description": "The current temperature in a city. The data is made up.",
	"inputSchema": object{
		"type":       "object",
		"properties": object{"city": object{"type": "string", "description": "name of the city"}},
		"required":   []string{"city"},
	},
}

// callTool calls the tool. A wrong name is an error, which the client's program
// reads. A wrong argument is a result with isError: the model has chosen the
// argument, so the model reads the reason, and can try again.
func callTool(params json.RawMessage) (object, *rpcError) {
	var call struct {
		Name      string `json:"name"`
		Arguments struct {
			City string `json:"city"`
		} `json:"arguments"`
	}
	err := json.Unmarshal(params, &call)
	if call.Name != "get-weather" {
		return nil, &rpcError{invalidParams, "Unknown tool: " + call.Name}
	}
	if err != nil || call.Arguments.City == "" {
		return object{"content": text("'city' must be the name of a city"), "isError": true}, nil
	}
	return object{"content": text("Current temperature in " + call.Arguments.City + " is 18°C")}, nil
}

// text is the content of a result: a list, here with one text in it.
func text(s string) []object { return []object{{"type": "text", "text": s}} }

// ---- Standard input and output: each message is one line ----

// serveLines answers the messages that it reads, one after another. The
// conversation is over when the client closes our input.
func serveLines(in io.Reader, out io.Writer) error {
	lines := bufio.NewScanner(in)
	lines.Buffer(nil, maxSize+2)    // with the end of the line
	encoder := json.NewEncoder(out) // writes each value as one line
	for lines.Scan() {
		if a := answer(lines.Bytes()); a != nil {
			if err := encoder.Encode(a); err != nil { // the client has gone, or a result holds what JSON has not, such as infinity
				return err
			}
		}
	}
	return lines.Err()
}

// ---- HTTP: each message is the body of a POST ----

// servePost answers a POST with JSON. With a GET a client asks for messages that
// belong to no request. This server has none, so it answers 405.
func servePost(w http.ResponseWriter, r *http.Request) {
	version := r.Header.Get("MCP-Protocol-Version") // initialize comes without it, and all that follows with it
	switch {
	case r.Header.Get("Origin") != "": // a page in a browser has sent this: without the check, any page could use the server
		http.Error(w, "Web pages are not served", http.StatusForbidden)
		return
	case r.Method != http.MethodPost:
		w.Header().Set("Allow", "POST")
		http.Error(w, "Only POST is served", http.StatusMethodNotAllowed)
		return
	case version != "" && version != revision:
		http.Error(w, "This server speaks "+revision, http.StatusBadRequest)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxSize))
	if err != nil { // the body is too large, or was cut: err says which
		http.Error(w, "The body cannot be read: "+err.Error(), http.StatusBadRequest)
		return
	}
	a := answer(body)
	if a == nil {
		w.WriteHeader(http.StatusAccepted) // taken, and not answered
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if a.ID == nil {
		w.WriteHeader(http.StatusBadRequest) // the body is not a request
	}
	json.NewEncoder(w).Encode(a) // a result that cannot be encoded leaves the body empty
}
