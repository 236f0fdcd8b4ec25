// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"example.com/mine/mcp"
)

// A tool is a function: it can be called without a server. Progress and Log do nothing
// then, and Input finds no answer.
func TestGreet(t *testing.T) {
	got, err := greet(t.Context(), &mcp.Exchange{Principal: "Ada"}, greetArguments{Name: "Ada"})
	if got != "Hello, Ada" || err != nil {
		t.Error(got, err)
	}
}

// In memory: what the client gets, without a network.
func TestInMemory(t *testing.T) {
	ours, theirs := mcp.Pipe()
	go mcp.Serve(t.Context(), theirs, newServer(), nil)
	checkServer(t, mcp.DialerFunc(func(context.Context) (mcp.Conn, error) { return ours, nil }))
}

// Over HTTP: for what depends on headers, users or sessions.
func TestOverHTTP(t *testing.T) {
	endpoint := &mcp.StreamableHandler{Handler: newServer(), Sessions: &mcp.Sessions{}}
	site := httptest.NewServer(endpoint)
	defer site.Close()
	defer endpoint.Close() // before site.Close, which waits for the streams
	checkServer(t, mcp.HTTPDialer{URL: site.URL})
}

func checkServer(t *testing.T, dialer mcp.Dialer) {
	t.Helper()
	client := &mcp.Client{Info: mcp.Implementation{Name: "test", Version: "1"}}
	defer client.Close()
	if err := client.Connect(t.Context(), dialer); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		arguments, want string
		isError         bool
	}{
		{`{"name":"Ada"}`, "Hello, Ada", false},
		{`{"name":""}`, "'name' must not be empty", true},
	} {
		var result mcp.ToolResult
		params := mcp.CallToolParams{Name: "greet", Arguments: json.RawMessage(test.arguments)}
		err := client.Call(t.Context(), "tools/call", params, &result)
		if err != nil || result.Text() != test.want || result.IsError != test.isError {
			t.Errorf("%s: %+v, %v", test.arguments, result, err)
		}
	}
}
