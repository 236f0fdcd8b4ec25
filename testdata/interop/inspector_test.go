package interop

import (
	"slices"
	"strings"
	"testing"
)

// inspectTarget runs the Inspector's command line once, with a target: a command with its arguments, or a URL.
func inspectTarget(t *testing.T, target, flags []string) outcome {
	t.Helper()
	command := slices.Concat(script(t, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
		[]string{"--cli"}, target, flags, []string{"--format", "json", "-q"})
	return run(t, []string{"HOME=" + t.TempDir()}, "", command...) // it keeps state in ~/.mcp-inspector
}

// inspectWeather has the Inspector make one call. It knows three eras: legacy (initialize), modern (server/discover or nothing), and auto (try
// modern first).
func inspectWeather(era string) func(*testing.T, target) {
	return func(t *testing.T, to target) {
		out := inspectTarget(t, to, []string{"--protocol-era", era, "--method", "tools/call", "--tool-name", "get-weather",
			"--tool-arg", "city=Oslo", "--tool-arg", "unit=fahrenheit"})
		out.check(t, 0, `{"result":{"content":[{"type":"text","text":"Current temperature in Oslo is 64°F"}]}}`, "")
	}
}

// inspection is one thing that the Inspector does, and what it prints then: JSON on stdout, or on stderr where it fails.
type inspection struct {
	name           string
	flags          []string
	exit           int
	stdout, stderr string
	only           string // in this era; "": in both
}

// inspections are all that the demo offers. Of an unknown tool the Inspector does not tell the server, and to a question it does not offer to
// answer.
var inspections = []inspection{
	{name: "tools", flags: []string{"--method", "tools/list", "--strict"}, // which also looks for schemas that some clients choke on
		stdout: `{"result":{"tools":[{"name":"ask"},{"name":"count"},{"name":"echo"},
			{"name":"get-weather","title":"Weather","icons":[{"mimeType":"image/png"}],"inputSchema":{"type":"object","required":["city"]}},
			{"name":"set-note"}]}}`},
	{name: "a tool", flags: []string{"--method", "tools/call", "--tool-name", "get-weather", "--tool-arg", "city=Oslo", "--tool-arg", "unit=fahrenheit"},
		stdout: `{"result":{"content":[{"type":"text","text":"Current temperature in Oslo is 64°F"}]}}`},
	{name: "resources", flags: []string{"--method", "resources/list"},
		stdout: `{"result":{"resources":[{"uri":"note:///welcome","name":"welcome","mimeType":"text/plain"}]}}`},
	{name: "templates", flags: []string{"--method", "resources/templates/list"},
		stdout: `{"result":{"resourceTemplates":[{"uriTemplate":"note:///{name}","name":"note","mimeType":"text/plain"}]}}`},
	{name: "a resource", flags: []string{"--method", "resources/read", "--uri", "note:///welcome"},
		stdout: `{"result":{"contents":[{"uri":"note:///welcome","mimeType":"text/plain","text":"This note is served by mcpwire."}]}}`},
	{name: "prompts", flags: []string{"--method", "prompts/list"},
		stdout: `{"result":{"prompts":[{"name":"summarize-note","arguments":[{"name":"name","required":true}]}]}}`},
	{name: "a prompt", flags: []string{"--method", "prompts/get", "--prompt-name", "summarize-note", "--prompt-args", "name=welcome"},
		stdout: `{"result":{"messages":[
			{"role":"user","content":{"type":"resource","resource":{"uri":"note:///welcome","text":"This note is served by mcpwire."}}},
			{"role":"user","content":{"type":"text","text":"Summarize this note in one sentence."}}]}}`},
	{name: "a log level", flags: []string{"--method", "logging/setLevel", "--log-level", "debug"}, stdout: `{"result":{}}`, only: "legacy"},
	{name: "missing argument", flags: []string{"--method", "tools/call", "--tool-name", "get-weather"},
		exit: 1, stderr: `{"error":{"message":"Invalid params"}}`},
	{name: "unknown tool", flags: []string{"--method", "tools/call", "--tool-name", "no-such-tool"},
		exit: 5, stderr: `{"error":{"code":"tool_not_found"}}`},
	{name: "unknown resource", flags: []string{"--method", "resources/read", "--uri", "note:///nothing"},
		exit: 1, stderr: `{"error":{"message":"Resource not found"}}`},
	{name: "unknown prompt", flags: []string{"--method", "prompts/get", "--prompt-name", "no-such-prompt"},
		exit: 1, stderr: `{"error":{"message":"Unknown prompt: no-such-prompt"}}`},
	{name: "a question", flags: []string{"--method", "tools/call", "--tool-name", "ask"}, exit: 5, stdout: `{"result":{"isError":true}}`, only: "legacy"},
	{name: "a question", flags: []string{"--method", "tools/call", "--tool-name", "ask"},
		exit: 1, stderr: `{"error":{"message":"The client lacks elicitation"}}`, only: "modern"},
}

// What the Inspector makes of results and errors depends neither on the transport nor on the era: one of them has all, the others one of each kind.
func TestInspector(t *testing.T) {
	t.Parallel()
	server := serve(t)
	some := []string{"tools", "a tool", "a log level", "unknown resource", "a question"}
	for transport, to := range map[string]target{
		"stdio": {mcpwire},
		"http":  {server.mcp, "--transport", "http"},
		"sse":   {server.sse, "--transport", "sse"},
	} {
		for _, era := range []string{"legacy", "modern"} {
			hasAll := transport == "stdio" && era == "modern"
			for _, step := range inspections {
				if step.only != "" && step.only != era || !hasAll && !slices.Contains(some, step.name) || transport == "sse" && era == "modern" {
					continue
				}
				t.Run(transport+"/"+era+"/"+step.name, func(t *testing.T) {
					t.Parallel()
					flags := step.flags
					if transport != "sse" { // where there is no other era than legacy
						flags = append([]string{"--protocol-era", era}, flags...)
					}
					out := inspectTarget(t, to, flags)
					out.check(t, step.exit, step.stdout, step.stderr)
					if era == "modern" && step.name == "tools" && !strings.Contains(out.stdout, `"x-mcp-header":"Unit"`) {
						t.Error("the mark for the header is missing")
					}
				})
			}
		}
	}
	t.Run("unreachable", func(t *testing.T) {
		t.Parallel()
		out := inspectTarget(t, []string{server.base + "/nothing", "--transport", "http"}, []string{"--method", "tools/list"})
		if out.exit == 0 {
			t.Error("exit 0")
		}
		expect(t, out.stderr, `{"error":{}}`)
	})
}
