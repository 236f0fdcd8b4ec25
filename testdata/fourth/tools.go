// SPDX-License-Identifier: 0BSD

package main

// What the server offers: four tools, and notes, which are resources. The tool ask is in
// main.go.

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

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

func echo(_ *call, arguments json.RawMessage) (string, error) {
	var args struct {
		Text *string `json:"text"` // nil: it is missing
	}
	if json.Unmarshal(arguments, &args) != nil || args.Text == nil {
		return "", errors.New("'text' must be a string")
	}
	return *args.Text, nil
}

// count reports each step.
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
		case <-c.ctx.Done(): // the client has gone
			return "", c.ctx.Err()
		}
		c.progress(i+1, *args.N)
	}
	return fmt.Sprintf("counted to %d", *args.N), nil
}

// progress reports how far a call is, if the client wants that: then it has sent a token.
func (c *call) progress(done, total int) {
	if token := c.request.Params.Meta.ProgressToken; token != nil && string(token) != "null" {
		c.send("notifications/progress", object{"progressToken": token, "progress": done, "total": total})
	}
}

// ---- Notes ----

// setNote writes a note, and tells those who want to know.
func setNote(c *call, arguments json.RawMessage) (string, error) {
	var args struct {
		Name string  `json:"name"`
		Text *string `json:"text"`
	}
	if json.Unmarshal(arguments, &args) != nil || args.Name == "" || args.Text == nil {
		return "", errors.New("'name' and 'text' must be texts, and 'name' not empty")
	}
	srv, uri := c.server, "note:///"+args.Name
	srv.mu.Lock()
	defer srv.mu.Unlock()
	_, isOld := srv.notes[args.Name]
	srv.notes[args.Name] = *args.Text
	for s := range srv.subscriptions {
		if s.wanted.Resources && !isOld {
			srv.announce(s, "notifications/resources/list_changed", object{})
		}
		if slices.Contains(s.wanted.URIs, uri) {
			srv.announce(s, "notifications/resources/updated", object{"uri": uri})
		}
	}
	return "Noted as " + uri, nil
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

func (srv *server) readNote(uri string) (object, *rpcError) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	name, isNote := strings.CutPrefix(uri, "note:///")
	note, isThere := srv.notes[name]
	if !isNote || !isThere {
		return nil, &rpcError{invalidParams, "Resource not found: " + uri, nil}
	}
	return cacheable(object{"contents": []object{{"uri": uri, "mimeType": "text/plain", "text": note}}}), nil
}
