package main

import (
	"strings"
	"testing"

	"example.com/mine/mcp"
)

// A request beyond the limit of its user is refused. One that has ended does not count, nor does that of another user. What passes
// the limit here is refused by the Server, because no client has sent it.
func TestLimited(t *testing.T) {
	l := &limited{Server: new(mcp.Server), most: 1}
	refused := func(user string) bool {
		_, err := l.Handle(t.Context(), &mcp.Exchange{Request: new(mcp.Message), Principal: user})
		return strings.Contains(err.Error(), "Too many requests at once")
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
