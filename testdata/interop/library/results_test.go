package library

import (
	"context"
	"encoding/json"
	"testing"

	"interop/wire"
)

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
