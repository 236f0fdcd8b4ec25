package main

import (
	"testing"

	"example.com/mine/mcp"
)

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
