// SPDX-License-Identifier: 0BSD

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"
)

// A tool is what a client learns about it, and the function that carries it out.
type tool struct {
	Name        string          `json:"name"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	run         func(x *exchange, arguments json.RawMessage) (text string, err error)
}

var tools = []tool{
	{"get-weather", "The current temperature in a city. The data is made up.", json.RawMessage(`{"type":"object",
		"properties":{"city":{"type":"string"}},"required":["city"]}`), weather},
	{"count", "Counts to n, and reports each step.", json.RawMessage(`{"type":"object",
		"properties":{"n":{"type":"integer"},"delayMs":{"type":"integer"}},"required":["n"]}`), count},
	{"ask", "Asks the user for a name.", json.RawMessage(`{"type":"object"}`), ask},
}

// callTool calls a tool. A wrong name is an error, which the client's program reads. All else
// that fails is a result with isError: the model reads it, and can try again.
func (x *exchange) callTool() object {
	i := slices.IndexFunc(tools, func(t tool) bool { return t.Name == x.request.Params.Name })
	if i < 0 {
		return fault(-32602, "Unknown tool: "+x.request.Params.Name)
	}
	text, err := tools[i].run(x, x.request.Params.Arguments)
	if err != nil {
		return object{"result": object{"content": content(err.Error()), "isError": true}}
	}
	return object{"result": object{"content": content(text)}}
}

func content(text string) []object { return []object{{"type": "text", "text": text}} }

func weather(_ *exchange, arguments json.RawMessage) (string, error) {
	var args struct{ City string }
	if json.Unmarshal(arguments, &args) != nil || args.City == "" {
		return "", errors.New("'city' must be the name of a city")
	}
	return "Current temperature in " + args.City + " is 18°C", nil
}

func count(x *exchange, arguments json.RawMessage) (string, error) {
	var args struct{ N, DelayMs int }
	if json.Unmarshal(arguments, &args) != nil {
		return "", errors.New("'n' and 'delayMs' must be integers")
	}
	for i := range args.N {
		select {
		case <-time.After(time.Duration(args.DelayMs) * time.Millisecond):
		case <-x.ctx.Done(): // nobody waits for the result any more
			return "", x.ctx.Err()
		}
		x.progress(i+1, args.N)
	}
	return fmt.Sprintf("counted to %d", args.N), nil
}

// ask asks the user for a name. The client shows its user a form, made from requestedSchema.
func ask(x *exchange, _ json.RawMessage) (string, error) {
	if !x.peer.asks.Load() {
		return "", errors.New("the client cannot ask its user")
	}
	result := x.call("elicitation/create", object{
		"message":         "What is your name?",
		"requestedSchema": json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}`),
	})
	if result == nil {
		return "", errors.New("the client has not asked its user")
	}
	var answer struct {
		Action  string // accept, decline or cancel
		Content struct{ Name string }
	}
	if json.Unmarshal(result, &answer) != nil || answer.Action != "accept" {
		return "", errors.New("No name: the user chose " + answer.Action)
	}
	return "Hello, " + answer.Content.Name, nil
}
