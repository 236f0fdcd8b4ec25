// SPDX-License-Identifier: 0BSD

package main

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"example.com/mine/mcp"
)

// How to test a server over HTTP: with httptest, and a client that has the URL.
func TestUsers(t *testing.T) {
	pages, endpoint := newSite()
	site := httptest.NewServer(pages)
	defer site.Close()
	defer endpoint.Close() // first, so that no stream keeps the site open
	for token, want := range map[string]string{"a-secret": "You are Ada", "b-secret": "You are Bob", "other": "401"} {
		client := &mcp.Client{Info: mcp.Implementation{Name: "test", Version: "1"}}
		header := http.Header{"Authorization": {"Bearer " + token}}
		err := client.Connect(t.Context(), &mcp.HTTPDialer{URL: site.URL + "/api/mcp", Header: header})
		var result mcp.ToolResult
		if err == nil {
			err = client.Call(t.Context(), "tools/call", mcp.CallToolParams{Name: "whoami"}, &result)
		}
		got := result.Text()
		if err != nil {
			got = err.Error()
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: %q, want %q", token, got, want)
		}
		_ = client.Close()
	}
}

// What is beyond the limit of its user is refused. What has ended does not count, nor does that of another user.
func TestLimited(t *testing.T) {
	l := &limited{Server: new(mcp.Server), most: 1}
	refused := func(user string) bool {
		_, err := l.Handle(t.Context(), &mcp.Exchange{Request: &mcp.Message{Method: "notifications/mine"}, Principal: user})
		return err != nil
	}
	for _, user := range []string{"Ada", "Ada", "Bob"} {
		if refused(user) {
			t.Errorf("a request of %s is refused although no other runs", user)
		}
	}
	l.most = 0
	if !refused("Ada") {
		t.Error("a request beyond the limit is served")
	}
}
