// SPDX-License-Identifier: 0BSD

// Fifth is an MCP client with no more than is needed to call a tool at a URL:
//
//	go run ./testdata/fifth [-answer JSON] URL TOOL ARGUMENTS
//	go run ./testdata/fifth http://127.0.0.1:8080/mcp count '{"n":3}'
//
// It prints each progress report, and then the text of the result. README.md beside this
// file shows the client at work, and lists what it leaves out. This file is about what the
// client says. How that travels is in http.go.
//
// The client speaks both eras of the protocol, and finds out which of them the server speaks:
//
//	both     server/discover, whose answer says the era
//	modern   tools/call; if the answer is input_required, the same call again, with the user's answers
//	legacy   initialize, then tools/call, whose stream may have questions, and DELETE at the end
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	modern    = "2026-07-28"
	legacy    = "2025-11-25"
	maxRounds = 10 // how often a modern server may ask for input in one call
)

var patience = 5 * time.Second // for the answers to server/discover, initialize and DELETE; a call has no limit

func main() {
	answer := flag.String("answer", "", "what the user answers if the tool asks, a `JSON` object; without it nobody can be asked")
	flag.Parse()
	if flag.NArg() != 3 || !json.Valid([]byte(flag.Arg(2))) || *answer != "" && !json.Valid([]byte(*answer)) {
		fmt.Fprintln(os.Stderr, "usage: fifth [-answer JSON] URL TOOL ARGUMENTS")
		os.Exit(2)
	}
	c := newClient(flag.Arg(0), *answer, os.Stdout)
	err := c.connect()
	if err == nil {
		err = c.run(flag.Arg(1), json.RawMessage(flag.Arg(2)))
	}
	c.end()
	if err != nil {
		fmt.Fprintln(os.Stderr, printable(err.Error()))
		os.Exit(1)
	}
}

// A client makes one request after another, on one goroutine.
type client struct {
	url     string
	answer  json.RawMessage // what the user answers; empty: nobody can be asked
	out     io.Writer       // the terminal
	http    *http.Client
	version string // the revision in use; "": initialize is not answered yet
	session string // the name that a legacy server has given the conversation; "": none
	lastID  int    // the id of the newest request
}

func newClient(url, answer string, out io.Writer) *client {
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse } // no redirects: the user has not chosen that address
	return &client{url: url, answer: json.RawMessage(answer), out: out, http: &http.Client{CheckRedirect: stay}}
}

// run calls a tool, and prints the text of the result.
func (c *client) run(tool string, arguments json.RawMessage) error {
	r, err := c.call(tool, arguments)
	if err != nil {
		return err
	}
	text := ""
	for _, part := range r.Content {
		text += cmp.Or(part.Text, "("+part.Type+")") + "\n"
	}
	if r.IsError { // the tool has failed, and says why
		return errors.New(strings.TrimSpace(text))
	}
	_, err = io.WriteString(c.out, printable(text))
	return err
}

// printable replaces what would control the terminal: somebody else has written the text.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// ---- Messages: JSON-RPC 2.0 ----

// A message is what the server sends: a request with an id and a method, a notification
// with a method and no id, or a response with an id, and a result or an error.
type message struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  *failure        `json:"error"`
}

// A failure is an answer of the server that is not the result of the request.
type failure struct {
	Status  int             `json:"-"`    // of HTTP
	Code    int             `json:"code"` // 0: the server has sent no error of JSON-RPC
	Message string          `json:"message"`
	Data    json.RawMessage `json:"data"`
}

func (f *failure) Error() string {
	if f.Code == 0 {
		return fmt.Sprintf("HTTP %d: %.200s", f.Status, f.Message)
	}
	return fmt.Sprintf("error %d: %s", f.Code, f.Message)
}

const ( // codes of MCP, which only modern servers send
	headerMismatch     = -32020
	missingCapability  = -32021
	unsupportedVersion = -32022
)

// object is a JSON object. The code below writes what the client sends as it looks on the wire.
type object = map[string]any

// ---- Which era ----

// connect finds out what the server speaks. A legacy server also wants a handshake.
func (c *client) connect() error {
	var discovered struct {
		Versions []string `json:"supportedVersions"`
	}
	c.version, c.http.Timeout = modern, patience
	defer func() { c.http.Timeout = 0 }()
	err := c.request("server/discover", object{}, &discovered)
	switch next(discovered.Versions, err) {
	case modern:
		return nil
	case legacy:
		return c.initialize()
	}
	return cmp.Or(err, fmt.Errorf("the server speaks %q, and this client does not", discovered.Versions)) // err is nil if the list has no version of ours
}

// next returns the revision to continue with after server/discover; "": the client gives up.
//
//	the answer                                         what follows
//	versions, and 2026-07-28 is among them             2026-07-28
//	versions, and only 2025-11-25 is among them        2025-11-25, which begins with initialize
//	-32022, and 2025-11-25 is among its versions       2025-11-25
//	versions or -32022, and neither is among them      the end
//	-32021: the client lacks a capability              2026-07-28: only modern servers send this error
//	-32020: header and body differ                     the end: only modern servers send this one, too
//	HTTP 401, 403, 408, 429, 3xx, 5xx, no connection   the end: this says nothing about versions
//	anything else, or nothing within five seconds      2025-11-25
func next(versions []string, err error) string {
	f, isFailure := errors.AsType[*failure](err) // errors.As with a type parameter
	switch {
	case err == nil && slices.Contains(versions, modern):
		return modern
	case err == nil:
		return legacyIn(versions)
	case errors.Is(err, context.DeadlineExceeded):
		return legacy
	case !isFailure: // no connection
		return ""
	case f.Code == missingCapability:
		return modern
	case f.Code == headerMismatch:
		return ""
	case f.Code == unsupportedVersion:
		var data struct{ Supported []string }
		_ = json.Unmarshal(f.Data, &data) // if this fails, there are no versions
		return legacyIn(data.Supported)
	case f.Status/100 == 3, f.Status/100 == 5, slices.Contains([]int{401, 403, 408, 429}, f.Status):
		return ""
	}
	return legacy
}

func legacyIn(versions []string) string {
	if slices.Contains(versions, legacy) {
		return legacy
	}
	return ""
}

// initialize is the handshake of the legacy era.
func (c *client) initialize() error {
	var result struct {
		Version string `json:"protocolVersion"`
	}
	c.version = ""
	params := object{"protocolVersion": legacy, "capabilities": c.capabilities(), "clientInfo": clientInfo}
	if err := c.request("initialize", params, &result); err != nil {
		return err
	}
	if result.Version != legacy {
		return fmt.Errorf("the server speaks %q, and this client does not", result.Version)
	}
	c.version = legacy
	return c.tell(object{"jsonrpc": "2.0", "method": "notifications/initialized"})
}

var clientInfo = object{"name": "fifth", "version": "1.0.0"}

// capabilities says whether the server may ask the user.
func (c *client) capabilities() object {
	if len(c.answer) == 0 {
		return object{}
	}
	return object{"elicitation": object{}}
}

// ---- The call ----

// A result is that of tools/call. The last three members are of the modern era.
type result struct {
	Content   []struct{ Type, Text string } `json:"content"`
	IsError   bool                          `json:"isError"`
	Type      string                        `json:"resultType"`
	Questions map[string]message            `json:"inputRequests"`
	State     json.RawMessage               `json:"requestState"`
}

// call calls a tool. If a modern server needs input, call makes the same call again, with
// the answers. After an error it does not: the server may have carried out the call.
func (c *client) call(tool string, arguments json.RawMessage) (r result, err error) {
	params := object{"name": tool, "arguments": arguments}
	for range maxRounds {
		r = result{}
		err = c.request("tools/call", params, &r)
		switch {
		case err != nil, c.version != modern, r.Type == "", r.Type == "complete":
			return r, err
		case r.Type != "input_required":
			return r, fmt.Errorf("the result has the unknown type %q", r.Type)
		}
		answers := object{}
		for key, question := range r.Questions {
			answer := c.reply(question)
			if answer == nil {
				return r, errors.New("the server asks for " + question.Method)
			}
			answers[key] = answer
		}
		params["inputResponses"] = answers
		delete(params, "requestState")
		if r.State != nil {
			params["requestState"] = r.State // as it came: only the server can read it
		}
	}
	return r, fmt.Errorf("the server has asked %d times for input", maxRounds)
}

// reply returns the answer to a request of the server; nil: this client does not serve it.
func (c *client) reply(m message) object {
	var form struct{ Mode string }
	_ = json.Unmarshal(m.Params, &form)
	switch {
	case m.Method == "ping":
		return object{}
	case m.Method == "elicitation/create" && len(c.answer) > 0 && cmp.Or(form.Mode, "form") == "form":
		return object{"action": "accept", "content": c.answer}
	case m.Method == "elicitation/create":
		return object{"action": "decline"}
	}
	return nil
}

// take takes a message that comes before the answer: a report, or a request of a legacy
// server. The reply to that is a POST of its own.
func (c *client) take(m message) error {
	if m.Method == "notifications/progress" {
		var p struct {
			Progress, Total json.Number
			Message         string
		}
		_ = json.Unmarshal(m.Params, &p) // print what there is
		report := fmt.Sprintf("%s of %s %s", p.Progress, cmp.Or(p.Total, "?"), p.Message)
		fmt.Fprintln(c.out, printable(strings.TrimSpace(report)))
	}
	if m.Method == "" || m.ID == nil || c.version == modern {
		return nil
	}
	if result := c.reply(m); result != nil {
		return c.tell(object{"jsonrpc": "2.0", "id": m.ID, "result": result})
	}
	return c.tell(object{"jsonrpc": "2.0", "id": m.ID, "error": object{"code": -32601, "message": "Method not found: " + m.Method}})
}
