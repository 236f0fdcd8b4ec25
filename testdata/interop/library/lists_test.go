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
// is left alone, and one of a capability that is not declared is not found.
func TestDeclaredListsAreAnswered(t *testing.T) {
	own := func(context.Context, *wire.Exchange) (any, error) { return json.RawMessage(`{"tools":[1]}`), nil }
	declared := map[string]any{"tools": struct{}{}, "prompts": struct{}{}, "resources": struct{}{}}
	answers := map[string]string{"tools": `"tools":[1]`, "prompts": `"prompts":[]`, "resources": `"resources":[]`}
	none := map[string]string{"tools": "-32601", "prompts": "-32601", "resources": "-32601"}
	for server, wants := range map[*wire.Server]map[string]string{
		{Capabilities: declared, Methods: map[string]wire.HandlerFunc{"tools/list": own}}: answers,
		{}: none,
	} {
		for list, want := range wants {
			method := list + "/list"
			for _, line := range []string{modernRequest(method, ""), `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`} {
				var log lockedBuffer // of methods that are not served; here there are none
				out, err := serveLines(t, server, slog.New(slog.NewTextHandler(&log, nil)), shared.InitializeLine("2025-11-25"), line)
				if err != nil || !strings.Contains(answerTo(out, "1"), want) || log.String() != "" {
					t.Errorf("%s: %s, %v, want %s; %s", method, out, err, want, log.String())
				}
			}
		}
	}
	if out := converse(t, &wire.Server{}, shared.InitializeLine("2025-11-25"), modernRequest("server/discover", "")); strings.Count(strings.Join(out, ""), `"capabilities":{}`) != 2 {
		t.Error("a server without capabilities:", out)
	}
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
