// SPDX-License-Identifier: 0BSD

// A client for any server: it is given a URL or a command, calls a tool, shows the
// progress, and answers the questions of the server. The package mcp is a copy of all five
// files: see "Copy it" in README.md of mcpwire.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"
	"unicode"

	"example.com/mine/mcp"
)

func main() {
	if len(os.Args) < 4 {
		log.Fatal("usage: client TOOL ARGUMENTS URL, or TOOL ARGUMENTS COMMAND..., such as: client count '{\"n\":3}' http://127.0.0.1:8080/mcp")
	}
	if err := run(os.Args[1], json.RawMessage(os.Args[2]), os.Args[3:]); err != nil {
		log.Fatal(printable(err.Error()))
	}
}

func run(tool string, arguments json.RawMessage, target []string) error {
	client := &mcp.Client{
		Info:     mcp.Implementation{Name: "mine", Version: "1"},
		Handlers: map[string]mcp.HandlerFunc{"elicitation/create": ask}, // so the client says that it can be asked
	}
	defer client.Close() // ends the session, or the command
	if err := client.Connect(context.Background(), dialers(target)...); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute) // the user may take some time
	defer cancel()
	var result mcp.ToolResult
	params := mcp.CallToolParams{Name: tool, Arguments: arguments}
	err := client.CallWithProgress(ctx, "tools/call", params, &result, func(p mcp.ProgressParams) {
		fmt.Println("progress:", p.Progress, printable(p.Message))
	})
	if err != nil {
		return err
	}
	fmt.Println(printable(result.Text()))
	if result.IsError {
		return fmt.Errorf("the tool %s has failed", tool)
	}
	return nil
}

// dialers returns the ways to reach a server. They are tried in this order.
func dialers(target []string) []mcp.Dialer {
	if !strings.Contains(target[0], "://") {
		return []mcp.Dialer{mcp.CommandDialer{Command: func() *exec.Cmd {
			command := exec.Command(target[0], target[1:]...)
			command.Stderr = os.Stderr
			return command
		}}}
	}
	header := http.Header{}
	if token := os.Getenv("TOKEN"); token != "" {
		header.Set("Authorization", "Bearer "+token)
	}
	return []mcp.Dialer{&mcp.HTTPDialer{URL: target[0], Header: header}, mcp.SSEDialer{URL: target[0], Header: header}}
}

var input = bufio.NewScanner(os.Stdin)

// printable leaves out what could control a terminal: anybody may have written what a server sends.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return -1
		}
		return r
	}, text)
}

// ask shows a question of the server, and reads the answer from standard input.
func ask(ctx context.Context, x *mcp.Exchange) (any, error) {
	var question mcp.ElicitParams
	if err := x.Bind(&question); err != nil {
		return nil, err
	}
	fmt.Println("the server asks:", printable(question.Message))
	fmt.Println("a JSON object for this schema, or an empty line:", printable(string(question.RequestedSchema)))
	if !input.Scan() || !json.Valid(input.Bytes()) {
		return mcp.ElicitResult{Action: "decline"}, nil
	}
	return mcp.ElicitResult{Action: "accept", Content: json.RawMessage(input.Text())}, nil
}
