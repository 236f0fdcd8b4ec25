// SPDX-License-Identifier: 0BSD

// A tool that asks the user, in both eras. The package mcp is a copy of jsonrpc.go, stdio.go
// and session.go: see "Copy it" in README.md of mcpwire.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"log/slog"
	"os"

	"example.com/mine/mcp"
)

type bookArguments struct {
	City string `json:"city"`
}

// The form that the client shows to the user. Its properties are simple values.
var hotelForm = json.RawMessage(`{"type":"object","required":["hotel"],"properties":{
	"hotel":{"type":"string","title":"Hotel","enum":["Grand","Central"]},
	"nights":{"type":"integer","minimum":1,"maximum":30}}}`)

type hotelAnswer struct {
	Hotel  string `json:"hotel"`
	Nights int    `json:"nights,omitempty"`
}

// book runs twice: it asks, and then it has the answer.
func book(ctx context.Context, x *mcp.Exchange, args bookArguments) (any, error) {
	var answer mcp.ElicitResult
	if !x.Input("hotel", &answer) {
		question := mcp.ElicitParams{Message: "Which hotel in " + args.City + "?", RequestedSchema: hotelForm}
		return mcp.InputRequired{Requests: map[string]mcp.InputRequest{
			"hotel": {Method: "elicitation/create", Params: question},
		}}, nil
	}
	if answer.Action != "accept" { // decline or cancel
		return "Nothing is booked.", nil
	}
	filled := hotelAnswer{Nights: 1}
	if err := mcp.Bind(answer.Content, &filled); err != nil {
		return nil, err
	}
	if filled.Nights < 1 || filled.Nights > 30 { // nobody has checked the answer before
		return mcp.ToolError("%d nights cannot be booked", filled.Nights), nil
	}
	return fmt.Sprintf("Booked in %s: %s, nights: %d.", args.City, filled.Hotel, filled.Nights), nil
}

func main() {
	server := &mcp.Server{Info: mcp.Implementation{Name: "travel", Version: "1"}}
	mcp.AddTool(server, mcp.Tool{
		Name:        "book",
		Description: "Books a hotel.",
		InputSchema: json.RawMessage(`{"type":"object","required":["city"],"properties":{"city":{"type":"string"}}}`),
	}, book)
	conn := mcp.StdioConn(0)
	os.Stdout = os.Stderr // from here on, a fmt.Println of a tool does not spoil the messages
	if err := mcp.Serve(context.Background(), conn, server, slog.Default()); err != nil {
		log.Fatal(err)
	}
}
