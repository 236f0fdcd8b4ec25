package interop

import (
	"slices"
	"testing"
)

// ---- TypeScript SDK 1 ----

// typeScript1 runs ts1.mjs. say are its arguments, other than those of the server's command.
func typeScript1(t *testing.T, to target, say ...string) outcome {
	t.Helper()
	node := script(t, "@modelcontextprotocol/sdk/dist/esm/client/index.js")[0]
	out := run(t, nil, "", slices.Concat([]string{node, "ts1.mjs", to.transport(), to[0]}, say, to[1:])...)
	if out.exit != 0 {
		t.Fatalf("exit %d", out.exit)
	}
	return out
}

// typeScript1Session is a whole session in a revision, in which it sets a note.
func typeScript1Session(t *testing.T, to target, rev revision, note string) outcome {
	t.Helper()
	out := typeScript1(t, to, note, "")
	asked := `"Hello, Ada"`
	if !rev.asks {
		asked = `"an error"`
	}
	end := map[string]string{
		"stdio": `"servers":[{"exit":0,"signalled":false}]`,
		"http":  `"deleted":200,"after":404`,
		"sse":   `"deleted":null,"after":404`,
	}[to.transport()]
	expect(t, out.stdout, `{"version":"`+rev.version+`","server":"mcpwire","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
		"weather":"Current temperature in Oslo is 18°C","missing":[-32602,"Missing required argument: 'city'"],
		"echo":true,"counted":"counted to 50","inOrder":true,"note":"This note is served by mcpwire.","prompt":2,"asked":`+asked+`,
		"cancelled":"McpError: MCP error -32001: enough","went":"on","late":0,"updated":["note:///`+note+`"],`+end+`}`)
	return out
}

func TestTypeScript(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions[1:] {
		for _, transport := range append([]string{"stdio"}, transports...) {
			t.Run(rev.version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				out := typeScript1Session(t, ourServer(t, transport, "-versions", rev.version), rev, "today")
				expect(t, out.stdout, `{"listChanged":1}`)
			})
		}
	}
}

// ---- TypeScript SDK 2 ----

// typeScript2 runs ts2.mjs in an era. say are its arguments, other than those of the server's command.
func typeScript2(t *testing.T, era, what string, to target, say ...string) outcome {
	t.Helper()
	node := script(t, "@modelcontextprotocol/client/dist/index.mjs")[0]
	return run(t, nil, "", slices.Concat([]string{node, "ts2.mjs", era, what, to.transport(), to[0]}, say, to[1:])...)
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
	"heard":["list changed","note:///today"],"updates":0,"after":"still here",`

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
			out := typeScript2(t, test.mode, "session", target{mcpwire}, "today")
			out.check(t, 0, typeScript2Sees[test.era], "")
			expect(t, out.stdout, test.want)
			if out.stderr != "" {
				t.Errorf("stderr %q", out.stderr)
			}
		})
	}
}

// typeScript2Era: the SDK calls a tool that it has not seen yet; it is refused, as it does not know what belongs in the header, lists
// the tools, and calls again. What no header can hold as it is, it encodes; there is nothing of such a name, and the server says so, rather
// than that the header is wrong.
func typeScript2Era(t *testing.T, server daemon, era string) {
	t.Parallel()
	out := typeScript2(t, era, "session", target{server.mcp}, "of-typescript-2-"+era)
	note := `"note:///of-typescript-2-` + era + `"`
	out.check(t, 0, `{"era":"modern","version":"2026-07-28","server":"mcpwire","errors":[],
		"early":"Current temperature in Oslo is 64°F","earlyExchanges":["tools/call 400","tools/list 200","tools/call 200"],
		"tools":["ask","count","echo","get-weather","set-note"],"weather":"Current temperature in Oslo is 64°F",
		"said":{"mcp-protocol-version":"2026-07-28","mcp-method":"tools/call","mcp-name":"get-weather","mcp-param-unit":"fahrenheit"},
		"unit":["an error","=?base64?csOpYXVtdXI=?="],
		"missing":[-32602,"Missing required argument: 'city'"],"unknown":-32602,"echo":true,
		"note":"This note is served by mcpwire.","prompt":2,"completion":["welcome"],
		"names":[
			["naïve","=?base64?bmHDr3Zl?=",-32602,-32602,-32602],
			[" padded ","=?base64?IHBhZGRlZCA=?=",-32602,-32602,-32602],
			["=?base64?bm90ZQ==?=","=?base64?PT9iYXNlNjQ/Ym05MFpRPT0/PQ==?=",-32602,-32602,-32602],
			["","=?base64??=",-32602,-32602,-32602],
			["a\tb","a\tb",-32602,-32602,-32602]],
		"counted":"counted to 50","inOrder":true,"asked":"Hello, Ada","rounds":["input_required","complete"],
		"honoured":{"resourcesListChanged":true,"resourceSubscriptions":[`+note+`]},"heard":["list changed",`+note+`],
		"closed":"local","after":"still here","updates":0,"http":["POST"],"session":false}`, "")
}
