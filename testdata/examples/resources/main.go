// SPDX-License-Identifier: 0BSD

// A server with resources and a prompt, on standard input and output. It needs:
//
//	go run ./testdata/take -to ../mine/mcp stdio-server Server.AddResource Server.AddResourceTemplate Server.AddPrompt ResourceNotFound
package main

import (
	"context"
	"log"
	"log/slog"
	"os"
	"strings"

	"example.com/mine/mcp"
)

var notes = map[string]string{"welcome": "Hello!", "todo": "Sleep."}

// read is called for the URIs that were added, and for those that fit the template.
func read(ctx context.Context, x *mcp.Exchange, uri string) (any, error) {
	text, ok := notes[strings.TrimPrefix(uri, "note:///")]
	if !ok {
		return nil, mcp.ResourceNotFound(uri)
	}
	return text, nil // with the URI and the MimeType of the resource or template
}

// summarize returns the text with which the user begins.
func summarize(ctx context.Context, x *mcp.Exchange, args map[string]string) (any, error) {
	text, ok := notes[args["note"]]
	if !ok {
		return nil, mcp.InvalidParams("there is no note %q", args["note"])
	}
	return "Summarize this note: " + text, nil // a message of the user
}

func main() {
	server := &mcp.Server{Info: mcp.Implementation{Name: "notes", Version: "1"}}
	server.AddResource(mcp.Resource{URI: "note:///welcome", Name: "welcome", MimeType: "text/plain"}, read)
	server.AddResourceTemplate(mcp.ResourceTemplate{URITemplate: "note:///{name}", Name: "note", MimeType: "text/plain"}, read)
	server.AddPrompt(mcp.Prompt{
		Name:        "summarize",
		Description: "Summarizes a note.",
		Arguments:   []mcp.PromptArgument{{Name: "note", Required: true}},
	}, summarize)
	conn := mcp.StdioConn(0)
	os.Stdout = os.Stderr // from here on, a fmt.Println of a tool does not spoil the messages
	if err := mcp.Serve(context.Background(), conn, server, slog.Default()); err != nil {
		log.Fatal(err)
	}
}
