package library

import (
	"context"
	"encoding/json"
	"interop/shared"
	"strings"
	"testing"

	"interop/wire"
)

// Sampling with tools: a model's call of a tool, and the result that goes back to it, come through whole in either direction.
func TestContentOfSamplingWithTools(t *testing.T) {
	for _, text := range []string{
		`{"type":"tool_use","name":"get_weather","id":"call_1","input":{"city":"Oslo"}}`,
		`{"type":"tool_use","name":"now","id":"call_2","input":{}}`,
		`{"type":"tool_result","toolUseId":"call_1","structuredContent":{"t":18},"isError":true,"content":[{"type":"text","text":"18"}]}`,
		`{"type":"tool_result","toolUseId":"call_2","content":[]}`,
	} {
		var result wire.SamplingResult
		if err := wire.Bind(json.RawMessage(`{"role":"assistant","model":"m","content":`+text+`}`), &result); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(result.Content); err != nil || string(got) != text {
			t.Errorf("%s %v\nwant\n%s", got, err, text)
		}
	}
	use, _ := json.Marshal(wire.Content{Type: "tool_use", ID: "a", Name: "n"})
	answer, _ := json.Marshal(wire.Content{Type: "tool_result", ToolUseID: "a"})
	if !strings.Contains(string(use), `"input":{}`) || !strings.Contains(string(answer), `"content":[]`) {
		t.Errorf("a member that the type needs is missing: %s %s", use, answer)
	}
}

// Publish before the first request reaches nobody, and decides nothing: a tool that is added after it can be called.
func TestPublishBeforeOffers(t *testing.T) {
	server := &wire.Server{}
	server.Publish("notifications/resources/updated", map[string]string{"uri": "file:///x"})
	wire.AddTool(server, wire.Tool{Name: "hello"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return "hi", nil })
	out := converse(t, server, shared.InitializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hello"}}`)
	if !strings.Contains(strings.Join(out, "\n"), `"text":"hi"`) {
		t.Error(out)
	}
}

// A member of a result that is filled in as JSON must be JSON. Otherwise the call fails with an error, and what goes out is JSON in any case.
func TestRawMembersOfResults(t *testing.T) {
	for _, raw := range []string{"", "{bad", "{bad\n", `{"a":1}}`, "[1]", "\n{\"a\":\n1}", "null"} {
		text := json.RawMessage(raw)
		for member, result := range map[string]any{
			"structuredContent": wire.ToolResult{StructuredContent: text},
			"_meta":             wire.ToolResult{Meta: text},
			"content":           wire.Content{Type: "text", Text: "x", Meta: text},
			"input":             wire.Content{Type: "tool_use", ID: "1", Name: "n", Input: text},
			"resource":          wire.EmbeddedResource(wire.ResourceContents{URI: "a:b", Meta: text}),
			"result":            text,
		} {
			server := &wire.Server{}
			wire.AddTool(server, wire.Tool{Name: "n"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return result, nil })
			for _, version := range []string{"2025-11-25", "2026-07-28"} {
				out := answered(t, server, version, "tools/call", `"name":"n"`)
				if !json.Valid([]byte("{" + out + "}")) {
					t.Errorf("%s of %q in %s: %s", member, raw, version, out)
				}
			}
		}
	}
}

// A ReadFunc may leave out the URI, or return the whole result. A template can be removed.
func TestResourcesAsResults(t *testing.T) {
	for _, result := range []any{
		wire.ResourceContents{Text: "x"}, &wire.ReadResourceResult{Contents: []wire.ResourceContents{{URI: "a:b", Text: "x"}}},
	} {
		server := newServer()
		server.AddResourceTemplate(wire.ResourceTemplate{URITemplate: "a:{x}", Name: "n"}, func(context.Context, *wire.Exchange, string) (any, error) { return result, nil })
		want := `"result":{"contents":[{"uri":"a:b","text":"x"}]}`
		if out := answered(t, server, "2025-11-25", "resources/read", `"uri":"a:b"`); !strings.HasPrefix(out, want) {
			t.Errorf("%T: %s", result, out)
		}
		server.RemoveResourceTemplate("a:{x}")
		if out := answered(t, server, "2025-11-25", "resources/read", `"uri":"a:b"`); !strings.Contains(out, "-32002") {
			t.Errorf("a template that was removed: %s", out)
		}
	}
}
