package interop

import (
	"slices"
	"strings"
	"testing"
)

// inspect runs the Inspector's command line once: it starts the server, does one thing, and ends it.
func inspect(t *testing.T, server, flags []string) outcome {
	t.Helper()
	return inspectTarget(t, append([]string{mcpwire}, server...), flags)
}

// inspectTarget is for a command with its arguments, or a URL.
func inspectTarget(t *testing.T, target, flags []string) outcome {
	t.Helper()
	command := slices.Concat(script(t, "@modelcontextprotocol/inspector/clients/launcher/build/index.js"),
		[]string{"--cli"}, target, flags, []string{"--format", "json", "-q"})
	return run(t, []string{"HOME=" + t.TempDir()}, "", command...) // it keeps state in ~/.mcp-inspector
}

// The Inspector knows three ways to begin: legacy (initialize), modern (server/discover or nothing), and auto (try modern first).
var eras = []struct{ name, version string }{
	{"legacy", "2025-11-25"},
	{"auto", "2026-07-28"},
	{"modern", "2026-07-28"},
}

func TestInspector(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, test := range []struct {
			method string
			flags  []string
			want   string
		}{
			{method: "initialize",
				want: `{"result":{"protocolVersion":"` + era.version + `","serverInfo":{"name":"mcpwire","title":"mcpwire demo"},
					"capabilities":{"tools":{},"prompts":{},"completions":{},"logging":{},"resources":{"subscribe":true,"listChanged":true}}}}`},
			{method: "tools/list",
				want: `{"result":{"tools":[{"name":"ask"},{"name":"count"},{"name":"echo"},
					{"name":"get-weather","title":"Weather","icons":[{"mimeType":"image/png"}],"inputSchema":{"type":"object","required":["city"]}},
					{"name":"set-note"}]}}`},
			{method: "tools/call", flags: []string{"--tool-name", "get-weather", "--tool-arg", "city=Oslo"},
				want: `{"result":{"content":[{"type":"text","text":"Current temperature in Oslo is 18°C"}]}}`},
			{method: "resources/list",
				want: `{"result":{"resources":[{"uri":"note:///welcome","name":"welcome","mimeType":"text/plain"}]}}`},
			{method: "resources/templates/list",
				want: `{"result":{"resourceTemplates":[{"uriTemplate":"note:///{name}","name":"note","mimeType":"text/plain"}]}}`},
			{method: "resources/read", flags: []string{"--uri", "note:///welcome"},
				want: `{"result":{"contents":[{"uri":"note:///welcome","mimeType":"text/plain","text":"This note is served by mcpwire."}]}}`},
			{method: "prompts/list",
				want: `{"result":{"prompts":[{"name":"summarize-note","arguments":[{"name":"name","required":true}]}]}}`},
			{method: "prompts/get", flags: []string{"--prompt-name", "summarize-note", "--prompt-args", "name=welcome"},
				want: `{"result":{"messages":[
					{"role":"user","content":{"type":"resource","resource":{"uri":"note:///welcome","text":"This note is served by mcpwire."}}},
					{"role":"user","content":{"type":"text","text":"Summarize this note in one sentence."}}]}}`},
		} {
			t.Run(era.name+"/"+test.method, func(t *testing.T) {
				t.Parallel()
				out := inspect(t, nil, append([]string{"--protocol-era", era.name, "--method", test.method}, test.flags...))
				if out.exit != 0 {
					t.Fatalf("exit %d", out.exit)
				}
				expect(t, out.stdout, test.want)
				marked := test.method == "tools/list" // also in the legacy era, where it is an unknown keyword of JSON Schema
				if strings.Contains(out.stdout, `"x-mcp-header":"Unit"`) != marked {
					t.Errorf("x-mcp-header: want %v", marked)
				}
			})
		}
	}
}

// --strict makes the Inspector look for schemas that some clients choke on.
func TestInspectorStrict(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		t.Run(era.name, func(t *testing.T) {
			t.Parallel()
			out := inspect(t, nil, []string{"--protocol-era", era.name, "--method", "tools/list", "--strict"})
			if out.exit != 0 {
				t.Errorf("exit %d", out.exit)
			}
		})
	}
}

// Errors are one JSON object on stderr; the exit status tells some of them apart.
func TestInspectorErrors(t *testing.T) {
	t.Parallel()
	for _, era := range eras {
		for _, test := range []struct {
			name  string
			flags []string
			exit  int
			want  string
		}{
			{name: "missing argument", flags: []string{"--method", "tools/call", "--tool-name", "get-weather"},
				exit: 1, want: `{"error":{"message":"Invalid params"}}`},
			{name: "unknown tool", flags: []string{"--method", "tools/call", "--tool-name", "no-such-tool"}, // it looks at tools/list, and does not even call
				exit: 5, want: `{"error":{"code":"tool_not_found"}}`},
			{name: "unknown resource", flags: []string{"--method", "resources/read", "--uri", "note:///nothing"},
				exit: 1, want: `{"error":{"message":"Resource not found"}}`},
			{name: "unknown prompt", flags: []string{"--method", "prompts/get", "--prompt-name", "no-such-prompt"},
				exit: 1, want: `{"error":{"message":"Unknown prompt: no-such-prompt"}}`},
		} {
			t.Run(era.name+"/"+test.name, func(t *testing.T) {
				t.Parallel()
				out := inspect(t, nil, append([]string{"--protocol-era", era.name}, test.flags...))
				out.check(t, test.exit, "", test.want)
			})
		}
	}
}

// TestInspectorVersions lets the Inspector find out what a server speaks that does not speak everything.
func TestInspectorVersions(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions {
		t.Run("auto/"+rev.version, func(t *testing.T) {
			t.Parallel()
			out := inspect(t, []string{"-versions", rev.version}, []string{"--protocol-era", "auto", "--method", "initialize"})
			if out.exit != 0 {
				t.Fatalf("exit %d", out.exit)
			}
			expect(t, out.stdout, `{"result":{"protocolVersion":"`+rev.version+`","serverInfo":{"name":"mcpwire"}}}`)
		})
	}
	for _, test := range []struct{ era, version string }{{"modern", "2025-11-25"}, {"legacy", "2026-07-28"}} {
		t.Run(test.era+"/"+test.version+" is refused", func(t *testing.T) {
			t.Parallel()
			out := inspect(t, []string{"-versions", test.version}, []string{"--protocol-era", test.era, "--method", "tools/list"})
			if out.exit == 0 {
				t.Error("exit 0: they have no version in common")
			}
			expect(t, out.stderr, `{"error":{}}`)
		})
	}
}
