package library

import (
	"context"
	"encoding/json"
	"interop/shared"
	"interop/wire"
	"log/slog"
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
