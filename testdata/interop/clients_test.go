package interop

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// optional returns the command that runs a script of a package. Without the package it skips the test.
func optional(t *testing.T, name, path string) []string {
	t.Helper()
	if _, err := os.Stat(filepath.Join("node_modules", name, "package.json")); err != nil {
		t.Skipf("%s is not installed: npm ci has not been run, or could not install it", name)
	}
	return script(t, filepath.Join(name, path))
}

// ---- AI SDK ----

// TestAISDK: the client begins with server/discover, and with initialize over HTTP+SSE. It goes on to initialize after an error, but not
// after one that only a modern server gives.
func TestAISDK(t *testing.T) {
	t.Parallel()
	node := optional(t, "@ai-sdk/mcp", "dist/index.js")[0]
	for _, test := range []struct{ name, versions, session, sse string }{
		{"both eras", "2026-07-28,2025-11-25,2025-06-18", "2026-07-28", "2025-11-25"},
		{"legacy", "2025-11-25,2025-06-18", "2025-11-25", "2025-11-25"},
	} {
		talks := func(t *testing.T, version string, args ...string) {
			t.Helper()
			run(t, nil, "", append([]string{node, "aisdk.mjs"}, args...)...).check(t, 0, `{"server":"mcpwire","version":"`+version+`",
				"tools":["ask","count","echo","get-weather","set-note"],
				"weather":"Current temperature in Oslo is 18°C","note":"This note is served by mcpwire."}`, "")
		}
		t.Run(test.name+"/stdio", func(t *testing.T) {
			t.Parallel()
			talks(t, test.session, "stdio", mcpwire, "-versions", test.versions)
		})
		for transport, version := range map[string]string{"http": test.session, "sse": test.sse} {
			t.Run(test.name+"/"+transport, func(t *testing.T) {
				t.Parallel()
				talks(t, version, transport, serve(t, "-versions", test.versions).url(transport))
			})
		}
	}
}

// ---- OpenAI's agents ----

// TestOpenAIAgents: the model sees why a call with an argument out of range was in vain. Of a JSON-RPC error it would not be shown a word.
func TestOpenAIAgents(t *testing.T) {
	t.Parallel()
	node := optional(t, "@openai/agents", "dist/index.js")[0]
	agent := func(t *testing.T, args ...string) {
		t.Parallel()
		out := run(t, nil, "", append([]string{node, "agents.mjs"}, args...)...)
		out.check(t, 0, `{"tools":["ask","count","echo","get_weather","set_note"],"result":{"isError":true},"output":"That is all."}`, "")
		if !regexp.MustCompile(`"results":\[\["Current temperature in Oslo is 18°C"\],\["[^"]*'n' must be [^"]*"\]\]`).MatchString(out.stdout) {
			t.Error("the model is not told why")
		}
	}
	for _, rev := range revisions[1:] { // the newest that the SDK speaks, and what it can be brought down to
		t.Run("stdio/"+rev.version, func(t *testing.T) { agent(t, "stdio", mcpwire, "-versions", rev.version) })
	}
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) { agent(t, transport, serve(t).url(transport)) })
	}
}

// ---- Codex: Rust ----

// TestCodex: the agent gets the tools with names that its model takes, and calls the one that the model asks for by the name that it has here.
func TestCodex(t *testing.T) {
	t.Parallel()
	command := optional(t, "@openai/codex-linux-x64", "vendor/x86_64-unknown-linux-musl/bin/codex")[1]
	model := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		said := `{"type":"function_call","call_id":"1","namespace":"mcp__demo","name":"get_weather","arguments":"{\"city\":\"Oslo\"}"}`
		if strings.Contains(string(body), `"function_call_output"`) {
			said = `{"type":"message","role":"assistant","content":[{"type":"output_text","text":"That is all."}]}`
		}
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: {\"type\":\"response.output_item.done\",\"item\":%s}\n\n", said)
		fmt.Fprint(w, "data: {\"type\":\"response.completed\",\"response\":{\"id\":\"1\"}}\n\n")
	}))
	t.Cleanup(model.Close)
	url := serve(t).mcp
	for name, server := range map[string]string{
		"stdio":  fmt.Sprintf("{command=%q}", mcpwire),
		"http":   fmt.Sprintf("{url=%q}", url),
		"bridge": fmt.Sprintf("{command=%q,args=['bridge',%q]}", mcpwire, url),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := run(t, []string{"HOME=" + t.TempDir(), "CODEX_HOME=" + t.TempDir()}, "", command, "exec", "--json", "--skip-git-repo-check",
				"-c", "mcp_servers.demo="+server, "-c", "model='scripted'", "-c", "model_provider='local'", "-c", "analytics.enabled=false",
				"-c", fmt.Sprintf("model_providers.local={name='local',wire_api='responses',base_url=%q}", model.URL), "Begin.")
			for _, want := range []string{
				`"tool":"get-weather","arguments":{"city":"Oslo"},"result":{"content":[{"type":"text","text":"Current temperature in Oslo is 18°C"}]`,
				`"type":"agent_message","text":"That is all."`,
			} {
				if !strings.Contains(out.stdout, want) {
					t.Errorf("no %s", want)
				}
			}
		})
	}
}

// ---- mcporter ----

// TestMCPorter: mcporter finds the tool that was meant, if the error says which one is unknown.
func TestMCPorter(t *testing.T) {
	t.Parallel()
	command := append(optional(t, "mcporter", "dist/cli.js"), "call")
	for _, test := range []struct{ name, tool, stderr string }{
		{"a tool", "get-weather", `^$`},
		{"a mistyped tool", "get-wether", `Auto-corrected tool call to .*get-weather `},
	} {
		check := func(t *testing.T, target ...string) {
			t.Helper()
			t.Parallel()
			home := []string{"HOME=" + t.TempDir()} // where it looks for servers, and keeps state
			out := run(t, home, "", append(append(command[:len(command):len(command)], target...), test.tool, "city=Oslo", "--output", "json")...)
			out.check(t, 0, `{"content":[{"type":"text","text":"Current temperature in Oslo is 18°C"}]}`, "")
			if !regexp.MustCompile(test.stderr).MatchString(out.stderr) {
				t.Errorf("stderr %q, want %s", out.stderr, test.stderr)
			}
		}
		t.Run(test.name+"/stdio", func(t *testing.T) { check(t, "--stdio", mcpwire) })
		t.Run(test.name+"/http", func(t *testing.T) { check(t, "--http-url", serve(t).mcp, "--allow-http") })
	}
}

// ---- mcpc ----

// TestMCPC: each command of mcpc goes to a process that keeps the session, until it is closed. That process gets five seconds to start, so
// this test runs beside no other.
func TestMCPC(t *testing.T) {
	command := append(optional(t, "@apify/mcpc", "dist/cli/index.js"), "--json")
	talks := func(t *testing.T, home, server string) {
		t.Helper()
		environment := []string{"HOME=" + home, "PATH=" + filepath.Dir(command[0]) + string(os.PathListSeparator) + os.Getenv("PATH")}
		mcpc := func(args ...string) outcome {
			return run(t, environment, "", slices.Concat(command, args)...)
		}
		mcpc("connect", server, "@demo").check(t, 0, `{"serverInfo":{"name":"mcpwire"}}`, "")
		defer mcpc("close", "@demo")
		mcpc("@demo", "tools-call", "get-weather", "city:=Oslo").check(t, 0, `{"content":[{"type":"text","text":"Current temperature in Oslo is 18°C"}]}`, "")
		mcpc("@demo", "resources-read", "note:///welcome").check(t, 0, `{"contents":[{"uri":"note:///welcome","text":"This note is served by mcpwire."}]}`, "")
		if out := mcpc("@demo", "tools-call", "get-weather", "{}"); out.exit == 0 || !strings.Contains(out.stderr, "-32602") {
			t.Errorf("a missing argument: exit %d", out.exit)
		}
	}
	t.Run("stdio", func(t *testing.T) {
		home := t.TempDir()
		servers := filepath.Join(home, "servers.json")
		text := fmt.Appendf(nil, `{"mcpServers":{"demo":{"command":%q}}}`, mcpwire)
		if err := os.WriteFile(servers, text, 0o600); err != nil {
			t.Fatal(err)
		}
		talks(t, home, servers+":demo")
	})
	t.Run("http", func(t *testing.T) { talks(t, t.TempDir(), serve(t).mcp) })
}

// ---- supergateway ----

// TestSupergateway: the gateway has one mcpwire for all its clients. Each of them initializes it, and finds nothing of those before: neither
// their version nor their log level, nor what they have subscribed to.
func TestSupergateway(t *testing.T) {
	t.Parallel()
	pids := filepath.Join(t.TempDir(), "pids")
	command := optional(t, "supergateway", "dist/index.js")
	command = []string{command[0], "--import", "./loopback.mjs", command[1], "--stdio", "echo $$ >>'" + pids + "'; exec '" + mcpwire + "'"}
	var end func() error
	base := start(t, func(_, port string) *exec.Cmd {
		cmd := exec.Command(command[0], append(command[1:len(command):len(command)], "--port", port)...)
		stdin, err := cmd.StdinPipe() // the gateway ends when this is closed
		if err != nil {
			t.Fatal(err)
		}
		end = stdin.Close
		return cmd
	})
	t.Cleanup(func() {
		end()
		eventually(t, "the end of the gateway", func() bool {
			conn, err := net.Dial("tcp", strings.TrimPrefix(base, "http://"))
			if err == nil {
				conn.Close()
			}
			return err != nil
		})
	})
	note := func(rev revision) string { return "of-" + rev.version }
	turns := []revision{revisions[1], revisions[3], revisions[2]} // in the second nobody can be asked
	for i, rev := range turns {
		t.Run(rev.version, func(t *testing.T) {
			c := dialSDK(t, target{base + "/sse"}, rev.version)
			c.note = note(rev)
			session(t, c, rev)
			next := note(turns[(i+1)%len(turns)]) // the note that the next client sets, and does not want to hear of at first
			if err := c.Subscribe(c.ctx, &mcp.SubscribeParams{URI: "note:///" + next}); err != nil {
				t.Fatal(err)
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		})
	}
	t.Run("mcpwire call", func(t *testing.T) {
		out := call(t, []string{"-method", "tools/call", "-params", `{"name":"get-weather","arguments":{"city":"Oslo"}}`}, "", base+"/sse")
		out.check(t, 0, `{"content":[{"type":"text","text":"Current temperature in Oslo is 18°C"}]}`, "")
	})
	if lines, err := os.ReadFile(pids); err != nil || strings.Count(string(lines), "\n") != 1 {
		t.Errorf("processes %q, %v: want one for all", lines, err)
	}
}
