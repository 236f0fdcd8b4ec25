package library

import (
	"context"
	"encoding/json"
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
				out, err := serveLines(t, server, slog.New(slog.NewTextHandler(&log, nil)), initializeLine("2025-11-25"), line)
				if err != nil || !strings.Contains(answerTo(out, "1"), want) || log.String() != "" {
					t.Errorf("%s: %s, %v, want %s; %s", method, out, err, want, log.String())
				}
			}
		}
	}
	if out := converse(t, &wire.Server{}, initializeLine("2025-11-25"), modernRequest("server/discover", "")); strings.Count(strings.Join(out, ""), `"capabilities":{}`) != 2 {
		t.Error("a server without capabilities:", out)
	}
}

// A method of MCP is served if its capability is declared, in every revision; what is none of MCP's always is. Who has registered one that
// is not served is told, once. That all is served where all is declared stands in testdata/cases/capabilities.txtar.
func TestMethodsNeedTheirCapability(t *testing.T) {
	lacks := map[string]string{ // by method: the capability that is not declared; "": none
		"completion/complete": "completions", "logging/setLevel": "logging", "prompts/get": "prompts", "prompts/list": "prompts",
		"resources/subscribe": "resources.subscribe", "resources/unsubscribe": "resources.subscribe", "tools/call": "tools", "tools/list": "tools",
		"resources/list": "", "resources/read": "", "resources/templates/list": "", "time/now": "",
	}
	server := &wire.Server{Capabilities: map[string]any{"resources": map[string]bool{"subscribe": false}, "prompts": nil}, Methods: map[string]wire.HandlerFunc{}}
	for method := range lacks {
		server.Methods[method] = func(context.Context, *wire.Exchange) (any, error) { return nil, nil }
	}
	var log lockedBuffer
	for _, version := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		for method, capability := range lacks {
			line := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{}}`
			if version == "2026-07-28" {
				line = modernRequest(method, "")
			}
			out, err := serveLines(t, server, slog.New(slog.NewTextHandler(&log, nil)), initializeLine(version), line)
			if refused := strings.Contains(answerTo(out, "1"), `"error":{"code":-32601`); err != nil || refused != (capability != "") {
				t.Errorf("%s, %s: %s, %v", version, method, out, err)
			}
		}
	}
	for method, capability := range lacks {
		if n := strings.Count(log.String(), "method="+method+" capability="+capability+"\n"); n != min(1, len(capability)) {
			t.Errorf("%s: logged %d times: %s", method, n, log.String())
		}
	}
	if n := strings.Count(log.String(), "is not served"); n != 8 {
		t.Errorf("%d methods are logged: %s", n, log.String())
	}
}
