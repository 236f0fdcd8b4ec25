// SPDX-License-Identifier: 0BSD

package main

// What the server offers. None of this knows HTTP: a tool gets a call, reports its progress
// with call.progress, asks with call.ask, and returns a text.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// ---- Tools ----

// A tool is what a client learns about it, and the function that carries it out. A model
// reads the description. The schema says which arguments the model has to give.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	run         func(c *call, arguments json.RawMessage) (text string, err error)
}

var tools = []tool{
	{"echo", "Returns a text.", json.RawMessage(`{"type":"object","properties":{"text":{"type":"string"}},"required":["text"]}`), echo},
	{"count", "Counts to n, and reports each step.", json.RawMessage(`{"type":"object",
		"properties":{"n":{"type":"integer","minimum":0,"maximum":1000}},"required":["n"]}`), count},
	{"ask", "Asks the user for a name.", json.RawMessage(`{"type":"object"}`), ask},
	{"set-note", "Writes a note, which others can read as a resource.", json.RawMessage(`{"type":"object",
		"properties":{"name":{"type":"string","minLength":1},"text":{"type":"string"}},"required":["name","text"]}`), setNote},
}

// callTool calls a tool. A wrong name is an error, which the client's program reads. All
// else that fails is a result with isError: the model reads it, and can try again.
func (c *call) callTool() (object, *rpcError) {
	var params struct {
		Name      string          `json:"name"`
		Arguments json.RawMessage `json:"arguments"`
	}
	_ = json.Unmarshal(c.request.Params, &params) // if this fails, there is no name, and no such tool
	i := slices.IndexFunc(tools, func(t tool) bool { return t.Name == params.Name })
	if i < 0 {
		return nil, &rpcError{invalidParams, "Unknown tool: " + params.Name}
	}
	result, err := tools[i].run(c, params.Arguments)
	if err != nil {
		return object{"content": text(err.Error()), "isError": true}, nil
	}
	return object{"content": text(result)}, nil
}

// text is the content of a result: a list, here with one text in it.
func text(s string) []object { return []object{{"type": "text", "text": s}} }

func echo(_ *call, arguments json.RawMessage) (string, error) {
	var args struct {
		Text *string `json:"text"` // nil: it is missing
	}
	if json.Unmarshal(arguments, &args) != nil || args.Text == nil {
		return "", errors.New("'text' must be a string")
	}
	return *args.Text, nil
}

// count reports each step. It does not know whether somebody reads the reports.
func count(c *call, arguments json.RawMessage) (string, error) {
	var args struct {
		N *int `json:"n"`
	}
	if json.Unmarshal(arguments, &args) != nil || args.N == nil || *args.N < 0 || *args.N > 1000 {
		return "", errors.New("'n' must be an integer from 0 to 1000")
	}
	for i := range *args.N {
		select {
		case <-time.After(time.Second / 5):
		case <-c.ctx.Done(): // nobody waits for the result any more
			return "", c.ctx.Err()
		}
		c.progress(i+1, *args.N)
	}
	return fmt.Sprintf("counted to %d", *args.N), nil
}

// ask asks the user for a name. The client shows its user a form, made from requestedSchema.
func ask(c *call, _ json.RawMessage) (string, error) {
	if !c.session.asks {
		return "", errors.New("the client cannot ask its user")
	}
	answer, err := c.ask("elicitation/create", object{
		"message":         "What is your name?",
		"requestedSchema": json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}`),
	})
	if err != nil {
		return "", err
	}
	var result struct {
		Action  string `json:"action"` // accept, decline or cancel
		Content struct {
			Name string `json:"name"`
		} `json:"content"`
	}
	if json.Unmarshal(answer.Result, &result) != nil || result.Action != "accept" || result.Content.Name == "" {
		return "", errors.New("the user has given no name")
	}
	return "Hello, " + result.Content.Name, nil
}

// ---- Notes: resources, and an announcement ----

// setNote writes a note. If the note is new, the list of resources has changed, and all
// clients are told. The message belongs to no call, so it goes to stream 0 of each session.
func setNote(c *call, arguments json.RawMessage) (string, error) {
	var args struct {
		Name string  `json:"name"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(arguments, &args) != nil || args.Name == "" || args.Text == nil {
		return "", errors.New("'name' and 'text' must be texts, and 'name' not empty")
	}
	srv := c.session.server
	srv.mu.Lock()
	defer srv.mu.Unlock()
	_, isOld := srv.notes[args.Name]
	srv.notes[args.Name] = *args.Text
	if !isOld {
		for _, s := range srv.sessions {
			s.standalone.send(message{JSONRPC: "2.0", Method: "notifications/resources/list_changed"})
		}
	}
	return "Noted as note:///" + args.Name, nil
}

func (srv *server) listNotes() object {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	list := []object{}
	for _, name := range slices.Sorted(maps.Keys(srv.notes)) {
		list = append(list, object{"uri": "note:///" + name, "name": name})
	}
	return object{"resources": list}
}

func (srv *server) readNote(raw json.RawMessage) (object, *rpcError) {
	var params struct {
		URI string `json:"uri"`
	}
	_ = json.Unmarshal(raw, &params) // without a URI there is no such note
	srv.mu.Lock()
	defer srv.mu.Unlock()
	name, isNote := strings.CutPrefix(params.URI, "note:///")
	note, isThere := srv.notes[name]
	if !isNote || !isThere {
		return nil, &rpcError{resourceNotFound, "Resource not found: " + params.URI}
	}
	return object{"contents": []object{{"uri": params.URI, "mimeType": "text/plain", "text": note}}}, nil
}
