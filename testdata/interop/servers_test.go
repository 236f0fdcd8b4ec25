package interop

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Here mcpwire call meets servers over each transport that they have; call_test.go has those over stdio that come with one.

// start runs a server on a free port of its own until the test is over, and returns its URL.
func start(t *testing.T, command func(addr, port string) *exec.Cmd) (base string) {
	t.Helper()
	for range 3 { // somebody else may be quicker to take the port
		free, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := free.Addr().String()
		free.Close()
		_, port, _ := net.SplitHostPort(addr)
		var output bytes.Buffer
		cmd := command(addr, port)
		cmd.Stdout, cmd.Stderr = &output, &output
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			cmd.Wait()
		}()
		t.Cleanup(func() {
			cmd.Process.Kill()
			<-ended
			t.Logf("%v\n%s", cmd, regexp.MustCompile(`(?m)^(.{1000}).+$`).ReplaceAll(output.Bytes(), []byte("$1…")))
		})
		if listens(addr, ended) {
			return "http://" + addr
		}
	}
	t.Fatal("the server does not listen")
	return ""
}

// listens waits until somebody listens at an address, or the process that should has ended.
func listens(addr string, ended <-chan struct{}) bool {
	for begun := time.Now(); time.Since(begun) < limit; {
		if conn, err := net.Dial("tcp", addr); err == nil {
			conn.Close()
			return true
		}
		select {
		case <-ended:
			return false
		case <-time.After(20 * time.Millisecond):
		}
	}
	return false
}

// startEverything starts server-everything, which serves one transport at a time.
func startEverything(t *testing.T, transport string) string {
	t.Helper()
	command := append(script(t, everythingScript), transport)
	return start(t, func(_, port string) *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Env = append(os.Environ(), "PORT="+port)
		return cmd
	})
}

// startGo starts one of those in Go, which take the address after what is given.
func startGo(t *testing.T, program, before string, args ...string) string {
	t.Helper()
	return start(t, func(addr, _ string) *exec.Cmd {
		return exec.Command(program, append([]string{before + addr}, args...)...)
	})
}

// way is one to reach a server, and how mcpwire call has to understand it.
type way struct {
	target    []string
	transport string
	versions  []string // spoken there, first the one that is found out
	session   bool     // in those with a handshake; of HTTP+SSE the stream is the session
}

var fromHandshake = strings.Split(handshake, ",")

// check runs the summary in every version, the method calls in the one that is found out, and several lines in one connection.
func (w way) check(t *testing.T, rows map[string]string, calls []callTest, stdin, want []string) {
	t.Helper()
	t.Run("found out", func(t *testing.T) {
		t.Parallel()
		w.summary(t, nil, w.versions[0], rows)
	})
	for _, rev := range revisions {
		t.Run(rev.version, func(t *testing.T) {
			t.Parallel()
			flags := []string{"-protocol", rev.version}
			if slices.Contains(w.versions, rev.version) {
				w.summary(t, flags, rev.version, rows)
				return
			}
			out := call(t, flags, "", w.target...)
			if out.exit != 1 || out.stdout != "" || !regexp.MustCompile(`(?m)^mcpwire: .`).MatchString(out.stderr) {
				t.Errorf("exit %d, stdout %q: want an error", out.exit, out.stdout)
			}
		})
	}
	t.Run("calls", func(t *testing.T) { runCallTests(t, w.target, calls) })
	t.Run("lines", func(t *testing.T) {
		t.Parallel()
		lines(t, w.target, stdin, want)
	})
}

func (w way) summary(t *testing.T, flags []string, version string, rows map[string]string) {
	t.Helper()
	session := "none"
	if w.session && (version != "2026-07-28" || w.transport == "HTTP+SSE") {
		session = "yes"
	}
	want := map[string]string{
		"target":    "^" + regexp.QuoteMeta(strings.Join(w.target, " ")) + "$",
		"transport": "^" + regexp.QuoteMeta(w.transport) + "$",
		"revision":  "^" + version + "$",
		"session":   "^" + session + "$",
	}
	for label, pattern := range rows {
		want[label] = pattern
	}
	summary(t, flags, w.target, want)
}

// ---- server-everything: TypeScript ----

// Over HTTP it offers what it does over stdio.
func TestServerEverythingHTTP(t *testing.T) {
	t.Parallel()
	calls := []callTest{
		{name: "progress", method: "tools/call", params: `{"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":4}}`,
			want:  `{"content":[{"type":"text","text":"Long running operation completed. Duration: 1 seconds, Steps: 4."}]}`,
			notes: `(?s)"progress":1,"total":4.*"progress":2,"total":4.*"progress":3,"total":4.*"progress":4,"total":4`},
		{name: "time-out", flags: []string{"-timeout", "4s"},
			method: "tools/call", params: `{"name":"trigger-long-running-operation","arguments":{"duration":50,"steps":1}}`,
			exit: 1, stderr: `(?m)^mcpwire: tools/call: no answer within 4s$`, least: 4 * time.Second, most: 30 * time.Second},
		{name: "elicitation accepted", flags: []string{"-answer", `{"name":"Ada"}`},
			method: "tools/call", params: `{"name":"trigger-elicitation-request","arguments":{}}`,
			want: `{"content":[{"text":"✅ User provided the requested information!"},{"text":"User inputs:\n- Name: Ada"},{}]}`},
		{name: "elicitation declined", method: "tools/call", params: `{"name":"trigger-elicitation-request","arguments":{}}`,
			want: `{"content":[{"text":"❌ User declined to provide the requested information."},{}]}`},
		{name: "a resource", method: "resources/read", params: `{"uri":"demo://resource/dynamic/text/7"}`,
			want: `{"contents":[{"uri":"demo://resource/dynamic/text/7","mimeType":"text/plain"}]}`},
		{name: "unknown resource", method: "resources/read", params: `{"uri":"demo://nothing"}`,
			exit: 1, stderr: `(?m)^mcpwire: resources/read: .*demo://nothing.* \(-32602\)$`},
		{name: "unknown tool", method: "tools/call", params: `{"name":"no-such-tool"}`, // a result here, so exit 0
			want: `{"isError":true,"content":[{"type":"text","text":"MCP error -32602: Tool no-such-tool not found"}]}`},
		{name: "unknown method", method: "no/such-method", exit: 1, stderr: `(?m)^mcpwire: no/such-method: Method not found \(-32601\)$`},
	}
	stdin := []string{
		`tools/call {"name":"echo","arguments":{"message":"¡hola!"}}`,
		`no/such-method`,
		`tools/call {"name":"get-sum","arguments":{"a":1,"b":2}}`,
		`ping`,
	}
	want := []string{
		`{"content":[{"type":"text","text":"Echo: ¡hola!"}]}`,
		`{"content":[{"type":"text","text":"The sum of 1 and 2 is 3."}]}`,
		`{}`,
	}
	for _, test := range []struct{ argument, path, transport string }{
		{"streamableHttp", "/mcp", "Streamable HTTP"},
		{"sse", "/sse", "HTTP+SSE"},
	} {
		t.Run(test.argument, func(t *testing.T) {
			t.Parallel()
			url := startEverything(t, test.argument) + test.path
			way{target: []string{url}, transport: test.transport, versions: fromHandshake, session: true}.check(t, everythingOffers, calls, stdin, want)
			t.Run("a large message", func(t *testing.T) {
				t.Parallel()
				text := strings.Repeat("añ€😀", 50_000)
				out := run(t, nil, `tools/call {"name":"echo","arguments":{"message":"`+text+`"}}`, mcpwire, "call", "-i", url)
				out.check(t, 0, `{"content":[{"type":"text","text":"Echo: `+text+`"}]}`, "")
			})
		})
	}
}

// ---- Go SDK ----

// Its example serves 2026-07-28 and no sessions, or sessions and not 2026-07-28.
func TestEverythingServerHTTP(t *testing.T) {
	t.Parallel()
	rows := map[string]string{
		"server":       `^mcp-conformance-test-server 1\.0\.0$`,
		"capabilities": `^completions, logging, prompts, resources, tools$`,
		"tools":        `\btest_elicitation, .*\btest_tool_with_progress\b`,
		"resources":    `^test://static-binary, test://static-text, test://watched-resource$`,
		"templates":    `^test://template/\{id\}/data$`,
		"prompts":      `\btest_simple_prompt\b`,
	}
	progress := callTest{name: "progress", method: "tools/call", params: `{"name":"test_tool_with_progress","arguments":{}}`,
		want:  `{"content":[{"type":"text","text":"1"}]}`, // the text is the progress token
		notes: `(?s)"progress":0,"total":100.*"progress":50,"total":100.*"progress":100,"total":100`}
	unknown := callTest{name: "unknown tool", method: "tools/call", params: `{"name":"no-such-tool"}`,
		exit: 1, stderr: `(?m)^mcpwire: tools/call: .*unknown tool "no-such-tool".* \(-32602\)$`}
	t.Run("modern", func(t *testing.T) {
		t.Parallel()
		w := way{target: []string{startGo(t, everythingServer, "-http=")}, transport: "Streamable HTTP",
			versions: slices.Concat([]string{"2026-07-28"}, fromHandshake)}
		w.check(t, rows, append(everythingServerModern(), progress, unknown), []string{
			`tools/call {"name":"test_simple_text"}`,
			`tools/call {"name":"no-such-tool"}`,
			`prompts/get {"name":"test_simple_prompt"}`,
		}, []string{
			`{"resultType":"complete","content":[{"type":"text","text":"This is a simple text response for testing."}]}`,
			`{"resultType":"complete","messages":[{"role":"user"}]}`,
		})
	})
	t.Run("sessions", func(t *testing.T) {
		t.Parallel()
		w := way{target: []string{startGo(t, everythingServer, "-http=", "-stateless=false")}, transport: "Streamable HTTP",
			versions: fromHandshake, session: true}
		w.check(t, rows, append(everythingServerLegacy(), progress, unknown), []string{
			`logging/setLevel {"level":"info"}`,
			`tools/call {"name":"no-such-tool"}`,
			`tools/call {"name":"test_tool_with_logging","arguments":{}}`, // only if the level has been kept, that is in the same session
		}, []string{
			`{}`,
			`{"content":[{"type":"text","text":"Tool with logging executed successfully"}]}`,
		})
	})
}

func everythingServerModern() []callTest {
	return []callTest{
		{name: "a resource", method: "resources/read", params: `{"uri":"test://static-text"}`,
			want: `{"resultType":"complete","contents":[{"uri":"test://static-text","mimeType":"text/plain"}]}`},
		{name: "input required", flags: []string{"-answer", `{"name":"Ada"}`},
			method: "tools/call", params: `{"name":"test_input_required_result_elicitation","arguments":{}}`,
			want: `{"resultType":"complete","content":[{"type":"text","text":"Hello, Ada!"}]}`},
		{name: "input required, twice", flags: []string{"-answer", `{"name":"Ada","color":"blue"}`},
			method: "tools/call", params: `{"name":"test_input_required_result_multi_round","arguments":{}}`,
			want: `{"resultType":"complete","content":[{"type":"text","text":"Multi-round complete: Ada likes blue"}]}`},
		{name: "a marked argument", method: "tools/call", params: `{"name":"test_x_mcp_header","arguments":{"region":"Zürich","level":2}}`,
			want: `{"resultType":"complete","content":[{"type":"text"}]}`},
		{name: "an argument that is marked and missing", method: "tools/call", params: `{"name":"test_x_mcp_header","arguments":{"level":2}}`,
			want: `{"resultType":"complete","content":[{"type":"text"}]}`},
		{name: "a capability that is not declared", method: "tools/call", params: `{"name":"test_missing_capability","arguments":{}}`,
			exit: 1, stderr: `(?m)^mcpwire: tools/call: .* \(-32021\); -root offers roots, and -sampling-answer sampling; data: \{"requiredCapabilities":.*\}$`},
		{name: "a subscription", flags: []string{"-timeout", "5s"}, method: "subscriptions/listen", // the resource is updated every 3 s
			params: `{"notifications":{"resourceSubscriptions":["test://watched-resource"]}}`,
			exit:   1, stderr: `(?m)^mcpwire: subscriptions/listen: no answer within 5s$`,
			notes: `(?s)^notifications/subscriptions/acknowledged .*\nnotifications/resources/updated .*"uri":"test://watched-resource"`},
		{name: "unknown method", method: "no/such-method", exit: 1, stderr: `(?m)^mcpwire: no/such-method: .* \(-32601\)$`},
		{name: "nobody can be asked without a session", flags: []string{"-protocol", "2025-11-25", "-answer", `{"username":"Ada"}`},
			method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
			want: `{"isError":true,"content":[{"type":"text"}]}`},
	}
}

// refusedMethod: before 2026-07-28 the Go SDK answers an unknown method over HTTP with a status and a text, not with an error of JSON-RPC.
const refusedMethod = `(?m)^mcpwire: no/such-method: .*\b400\b`

func everythingServerLegacy() []callTest {
	return []callTest{
		{name: "a resource", method: "resources/read", params: `{"uri":"test://static-text"}`,
			want: `{"contents":[{"uri":"test://static-text","mimeType":"text/plain"}]}`},
		{name: "elicitation", flags: []string{"-answer", `{"username":"Ada"}`},
			method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
			want: `{"content":[{"type":"text","text":"Elicitation result: action=accept, content=map[username:Ada]"}]}`},
		{name: "elicitation declined", method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
			want: `{"content":[{"type":"text","text":"Elicitation result: action=decline, content=map[]"}]}`},
		{name: "unknown method", method: "no/such-method", exit: 1, stderr: refusedMethod},
		{name: "a request that we refuse", method: "tools/call", params: `{"name":"test_sampling","arguments":{"prompt":"Hm?"}}`,
			want: `{"isError":true,"content":[{"type":"text"}]}`},
	}
}

// countAndGreet are for the two programs in servers, which offer the same.
func countAndGreet(unknownMethod string) []callTest {
	return []callTest{
		{name: "progress", method: "tools/call", params: `{"name":"count","arguments":{"n":3}}`,
			want: `{"content":[{"type":"text","text":"counted to 3"}]}`, notes: `(?s)"progress":1\b.*"progress":2\b.*"progress":3\b`},
		{name: "elicitation", flags: []string{"-answer", `{"name":"Ada"}`}, method: "tools/call", params: `{"name":"greet","arguments":{}}`,
			want: `{"content":[{"type":"text","text":"accept map[name:Ada]"}]}`},
		{name: "a resource", method: "resources/read", params: `{"uri":"test://welcome"}`,
			want: `{"contents":[{"uri":"test://welcome","mimeType":"text/plain","text":"Welcome!"}]}`},
		{name: "unknown method", method: "no/such-method", exit: 1, stderr: unknownMethod},
	}
}

var (
	countLines = []string{
		`tools/call {"name":"count","arguments":{"n":1}}`,
		`tools/call {"name":"no-such-tool"}`,
		`tools/call {"name":"count","arguments":{"n":2}}`,
	}
	countedLines = []string{
		`{"content":[{"type":"text","text":"counted to 1"}]}`,
		`{"content":[{"type":"text","text":"counted to 2"}]}`,
	}
)

func TestGoSDK(t *testing.T) {
	t.Parallel()
	base := startGo(t, goSDKServer, "")
	rows := map[string]string{
		"server":       `^gosdk 1\.0\.0$`,
		"capabilities": `^logging, resources, tools$`,
		"tools":        `^count, greet, hang-up, publish, wait, waited$`,
		"resources":    `^test://welcome$`,
	}
	t.Run("sse", func(t *testing.T) {
		t.Parallel()
		way{target: []string{base + "/sse"}, transport: "HTTP+SSE", versions: fromHandshake, session: true}.check(t, rows,
			countAndGreet(refusedMethod), countLines, countedLines)
	})
	t.Run("events with ids", func(t *testing.T) {
		t.Parallel()
		way{target: []string{base + "/mcp"}, transport: "Streamable HTTP", versions: fromHandshake, session: true}.check(t, rows,
			countAndGreet(refusedMethod), countLines, countedLines)
	})
	t.Run("json", func(t *testing.T) { // where what is no answer comes on the standalone stream, which may be open too late
		t.Parallel()
		calls := slices.DeleteFunc(countAndGreet(refusedMethod), func(test callTest) bool { return test.name == "elicitation" })
		calls[0].notes = ""
		way{target: []string{base + "/json"}, transport: "Streamable HTTP", versions: fromHandshake, session: true}.check(t, rows,
			calls, countLines, countedLines)
	})
}

// ---- mcp-go ----

func TestMCPGoServer(t *testing.T) {
	t.Parallel()
	base := startGo(t, mcpGoServer, "")
	rows := map[string]string{
		"server":       `^mcpgo 1\.0\.0$`,
		"capabilities": `^elicitation, prompts, resources, tools$`,
		"tools":        `^count, greet, publish, wait, waited$`,
		"resources":    `^test://welcome$`,
		"prompts":      `^hello$`,
	}
	unknown := `(?m)^mcpwire: no/such-method: .* \(-32601\)$`
	all := slices.Concat([]string{"2026-07-28"}, fromHandshake)
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		way{target: []string{mcpGoServer}, transport: "stdio", versions: all}.check(t, rows, countAndGreet(unknown), countLines, countedLines)
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		way{target: []string{base + "/mcp"}, transport: "Streamable HTTP", versions: all, session: true}.check(t, rows,
			countAndGreet(unknown), countLines, countedLines)
	})
	t.Run("sse", func(t *testing.T) { // where it has no way to ask
		t.Parallel()
		calls := slices.DeleteFunc(countAndGreet(unknown), func(test callTest) bool { return test.name == "elicitation" })
		calls = append(calls, callTest{name: "elicitation", method: "tools/call", params: `{"name":"greet","arguments":{}}`,
			exit: 1, stderr: `(?m)^mcpwire: tools/call: .*session does not support elicitation \(-32603\)$`})
		way{target: []string{base + "/sse"}, transport: "HTTP+SSE", versions: slices.Concat(fromHandshake, []string{"2026-07-28"}), session: true}.check(t, rows,
			calls, countLines, countedLines)
	})
}

// ---- mcp-lite: TypeScript ----

// It speaks two revisions, and proposes the older one to whoever proposes neither.
func TestMCPLite(t *testing.T) {
	t.Parallel()
	node := optional(t, "mcp-lite", "dist/index.js")[0]
	base := start(t, func(_, port string) *exec.Cmd {
		cmd := exec.Command(node, "mcplite.mjs")
		cmd.Env = append(os.Environ(), "PORT="+port)
		return cmd
	})
	rows := map[string]string{
		"server":       `^mcplite 1\.0\.0$`,
		"capabilities": `^resources, tools$`,
		"tools":        `^count, greet$`,
		"resources":    `^test://welcome$`,
	}
	unknown := `(?m)^mcpwire: no/such-method: .* \(-32601\)`
	versions := []string{"2025-03-26", "2025-06-18"}
	calls := countAndGreet(unknown)
	calls[1].flags = append(calls[1].flags, "-protocol", "2025-06-18") // which has elicitation
	t.Run("sessions", func(t *testing.T) {
		t.Parallel()
		way{target: []string{base + "/mcp"}, transport: "Streamable HTTP", versions: versions, session: true}.check(t, rows, calls, countLines, countedLines)
	})
	t.Run("stateless", func(t *testing.T) { // where it cannot ask
		t.Parallel()
		calls := slices.DeleteFunc(slices.Clone(calls), func(test callTest) bool { return test.name == "elicitation" })
		way{target: []string{base + "/stateless"}, transport: "Streamable HTTP", versions: versions}.check(t, rows, calls, countLines, countedLines)
	})
}
