package interop

import "testing"

// ---- TypeScript SDK ----

// typeScript1Stdio is a whole session over stdio.
func typeScript1Stdio(t *testing.T, to target) {
	out := typeScript(t, append([]string{"stdio", to[0], "today", ""}, to[1:]...)...)
	expect(t, out.stdout, typeScript1Sees)
	expect(t, out.stdout, `{"version":"2025-11-25","note":"This note is served by mcpwire.","prompt":2,"asked":"Hello, Ada","listChanged":1,
		"updated":["note:///today"],"cancelled":"McpError: MCP error -32001: enough","went":"on","late":0,"servers":[{"exit":0,"signalled":false}]}`)
}

// TestTypeScriptStdio: without flags mcpwire speaks the newest revision of the client.
func TestTypeScriptStdio(t *testing.T) {
	t.Parallel()
	typeScript1Stdio(t, target{mcpwire})
}

// typeScript2Sees is what the TypeScript SDK 2 finds in a session over stdio, by era.
var typeScript2Sees = map[string]string{
	"legacy":     typeScript2Session + `"era":"legacy","version":"2025-11-25","rounds":["elicitation/create","result"]}`,
	"2026-07-28": typeScript2Session + `"era":"modern","version":"2026-07-28","rounds":["input_required","complete"]}`,
}

const typeScript2Session = `{"server":"mcpwire","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
	"weather":"Current temperature in Oslo is 64°F","missing":[-32602,"Missing required argument: 'city'"],"unknown":-32602,
	"echo":true,"note":"This note is served by mcpwire.","prompt":2,"completion":["welcome"],"counted":"counted to 50",
	"inOrder":true,"asked":"Hello, Ada","cancelled":"SdkError: enough","steps":1,"went":"on","late":0,
	"heard":["list changed","note:///today"],"updates":1,"after":"still here",`

// TestTypeScript2Stdio: unless it is legacy, the client asks a server of its own for the era, and ends it with a signal.
func TestTypeScript2Stdio(t *testing.T) {
	t.Parallel()
	const session, probe = `{"exit":0,"signalled":false}`, `{"exit":0,"signalled":true}`
	const modern = `{"servers":[` + probe + `,` + session + `],
		"honoured":{"resourcesListChanged":true,"resourceSubscriptions":["note:///today"]},"closed":"local"}`
	for _, test := range []struct{ mode, era, want string }{
		{"legacy", "legacy", `{"servers":[` + session + `]}`},
		{"auto", "2026-07-28", modern},
		{"2026-07-28", "2026-07-28", modern},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			out := typeScript2(t, test.mode, "session", "stdio", mcpwire, "today")
			out.check(t, 0, typeScript2Sees[test.era], "")
			expect(t, out.stdout, test.want)
			if out.stderr != "" {
				t.Errorf("stderr %q", out.stderr)
			}
		})
	}
}
