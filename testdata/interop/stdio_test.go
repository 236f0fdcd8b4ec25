package interop

import "testing"

// ---- TypeScript SDK ----

// TestTypeScriptStdio: without flags mcpwire speaks the newest revision of the client.
func TestTypeScriptStdio(t *testing.T) {
	t.Parallel()
	out := typeScript(t, "stdio", mcpwire)
	expect(t, out.stdout, `{"server":"mcpwire","version":"2025-11-25","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
		"weather":"Current temperature in Oslo is 18°C","missing":[-32602,"Missing required argument: 'city'"],"echo":true,
		"note":"This note is served by mcpwire.","prompt":2,"counted":"counted to 50","inOrder":true,"asked":"Hello, Ada",
		"cancelled":"McpError: MCP error -32001: enough","went":"on","late":0,"listChanged":1,"updated":["note:///today"],
		"servers":[{"exit":0,"signalled":false}]}`)
	if out.stderr != "" {
		t.Errorf("stderr %q", out.stderr)
	}
}

// TestTypeScript2Stdio: unless it is legacy, the client asks a server of its own for the era, and ends it with a signal.
func TestTypeScript2Stdio(t *testing.T) {
	t.Parallel()
	const session, probe = `{"exit":0,"signalled":false}`, `{"exit":0,"signalled":true}`
	const legacy = `"era":"legacy","version":"2025-11-25","rounds":["elicitation/create","result"],"servers":[` + session + `]`
	const modern = `"era":"modern","version":"2026-07-28","rounds":["input_required","complete"],"servers":[` + probe + `,` + session + `],
		"honoured":{"resourcesListChanged":true,"resourceSubscriptions":["note:///today"]},"closed":"local"`
	for _, test := range []struct{ mode, want string }{
		{"legacy", legacy},
		{"auto", modern},
		{"2026-07-28", modern},
	} {
		t.Run(test.mode, func(t *testing.T) {
			t.Parallel()
			out := typeScript2(t, test.mode, "session", "stdio", mcpwire, "today")
			out.check(t, 0, `{"server":"mcpwire","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
				"weather":"Current temperature in Oslo is 64°F","missing":[-32602,"Missing required argument: 'city'"],"unknown":-32602,
				"echo":true,"note":"This note is served by mcpwire.","prompt":2,"completion":["welcome"],"counted":"counted to 50",
				"inOrder":true,"asked":"Hello, Ada","cancelled":"SdkError: enough","steps":1,"went":"on","late":0,
				"heard":["list changed","note:///today"],"updates":1,"after":"still here",`+test.want+`}`, "")
			if out.stderr != "" {
				t.Errorf("stderr %q", out.stderr)
			}
		})
	}
}
