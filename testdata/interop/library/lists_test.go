package library

import (
	"context"
	"encoding/json"
	"interop/shared"
	"interop/wire"
	"log/slog"
	"slices"
	"strings"
	"testing"
)

// A Server that declares tools, prompts or resources answers their lists though Methods does not: they are empty. One that Methods answers
// is left alone, also where something was added.
func TestDeclaredListsAreAnswered(t *testing.T) {
	own := func(context.Context, *wire.Exchange) (any, error) { return json.RawMessage(`{"tools":[1]}`), nil }
	server := newServer()
	server.Capabilities = map[string]any{"tools": struct{}{}, "prompts": struct{}{}, "resources": struct{}{}}
	server.Methods = map[string]wire.HandlerFunc{"tools/list": own}
	wire.AddTool(server, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return "run", nil })
	for list, want := range map[string]string{"tools": `"tools":[1]`, "prompts": `"prompts":[]`, "resources": `"resources":[]`} {
		method := list + "/list"
		for _, line := range []string{modernRequest(method, ""), `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`} {
			var log lockedBuffer // of methods that are not served; here there are none
			out, err := serveLines(t, server, slog.New(slog.NewTextHandler(&log, nil)), shared.InitializeLine("2025-11-25"), line)
			if err != nil || !strings.Contains(answerTo(out, "1"), want) || log.String() != "" {
				t.Errorf("%s: %s, %v, want %s; %s", method, out, err, want, log.String())
			}
		}
	}
	checkAnswers(t, server, "tools/call", map[string]string{`"name":"t"`: `"result":{"content":[{"type":"text","text":"run"}]}`})
}

// A method of MCP that Methods holds is served in every revision, and declares its capability.
func TestMethodsDeclareTheirCapability(t *testing.T) {
	nothing := func(context.Context, *wire.Exchange) (any, error) { return nil, nil }
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"completion/complete": nothing, "prompts/get": nothing, "resources/read": nothing, "tools/call": nothing, "time/now": nothing}}
	for _, version := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		for method := range server.Methods {
			if out := answered(t, server, version, method, ""); !strings.HasPrefix(out, `"result"`) {
				t.Errorf("%s, %s: %s", version, method, out)
			}
		}
	}
	const all = `"capabilities":{"completions":{},"prompts":{},"resources":{},"tools":{}}`
	if out := answered(t, server, "2026-07-28", "server/discover", ""); !strings.Contains(out, all) {
		t.Error(out)
	}
}

// Nothing that a program has not offered is served, and what it has offered is served from the first request on.
func TestEnteredByUse(t *testing.T) {
	ask := []string{"logging/setLevel", "resources/subscribe", "resources/list", "prompts/list", "subscriptions/listen", "completion/complete", "tools/list"}
	const params = `"level":"info","uri":"a:b","notifications":{}`
	none, tool, resources := &wire.Server{}, &wire.Server{}, &wire.Server{Capabilities: map[string]any{"resources": json.RawMessage(`{"subscribe":true}`)}}
	wire.AddTool(tool, wire.Tool{Name: "t"}, noTool)
	resources.OfferLogging()
	resources.AnnounceChanges()
	for server, offered := range map[*wire.Server][]string{none: nil, tool: ask[6:], resources: ask[:3]} {
		for _, method := range ask {
			got := answered(t, server, "2025-11-25", method, params)
			if isOffered := slices.Contains(offered, method); strings.HasPrefix(got, `"result"`) != isOffered || strings.Contains(got, "-32601") == isOffered {
				t.Errorf("%s: %s", method, got)
			}
			if got := answered(t, server, "2026-07-28", method, params); server != resources && !slices.Contains(offered, method) && !strings.Contains(got, "-32601") {
				t.Errorf("%s, modern: %s", method, got)
			}
		}
	}
	resources.Publish("notifications/resources/updated", map[string]string{"uri": "a:b"})
	if got := converse(t, none, shared.InitializeLine("2025-11-25"), modernRequest("server/discover", "")); strings.Count(strings.Join(got, ""), `"capabilities":{}`) != 2 {
		t.Error("a server without capabilities:", got)
	}
}
