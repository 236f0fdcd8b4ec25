package interop

import (
	"encoding/json"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// Here mcpwire call meets servers over each transport that they have.

// call runs mcpwire call. With -trace its stderr has every message, too, so that a failure shows the exchange.
func call(t *testing.T, flags []string, stdin string, server ...string) outcome {
	t.Helper()
	return run(t, nil, stdin, slices.Concat([]string{mcpwire, "call", "-trace"}, flags, server)...)
}

// callTest is one method called in a fresh connection.
type callTest struct {
	name        string
	flags       []string
	method      string
	params      string
	exit        int
	want        string        // on stdout: what the result has to cover; "": stdout is empty
	notes       string        // on stderr: the notifications shown, as a regular expression; "": any
	stderr      string        // on stderr: a regular expression
	least, most time.Duration // it takes
}

var notification = regexp.MustCompile(`(?m)^notifications/.*$`)

func runCallTests(t *testing.T, server []string, tests []callTest) {
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			flags := slices.Clone(test.flags)
			if test.method != "" { // or the flags have -tool
				flags = append(flags, "-method", test.method)
			}
			if test.params != "" {
				flags = append(flags, "-params", test.params)
			}
			out := call(t, flags, "", server...)
			if out.exit != test.exit {
				t.Errorf("exit %d, want %d", out.exit, test.exit)
			}
			if test.want == "" && out.stdout != "" || strings.Count(out.stdout, "\n") > 1 {
				t.Errorf("stdout %q", out.stdout) // the result and only that, on one line
			} else if test.want != "" {
				expect(t, out.stdout, test.want)
			}
			shown := strings.Join(notification.FindAllString(out.stderr, -1), "\n")
			if !regexp.MustCompile(test.notes).MatchString(shown) {
				t.Errorf("notifications %q\nwant %q", shown, test.notes)
			}
			if !regexp.MustCompile(test.stderr).MatchString(out.stderr) {
				t.Errorf("stderr lacks %q", test.stderr)
			}
			if out.took < test.least || test.most > 0 && out.took > test.most {
				t.Errorf("it took %v", out.took)
			}
		})
	}
}

// summary checks rows of what mcpwire call prints without -method, each a label and its value; of a list, the names of its items.
func summary(t *testing.T, flags, server []string, want map[string]string) outcome {
	t.Helper()
	out := call(t, flags, "", server...)
	if out.exit != 0 {
		t.Fatalf("exit %d", out.exit)
	}
	got := map[string]string{}
	label := ""
	for line := range strings.Lines(out.stdout) {
		value := strings.TrimSpace(line)
		isNext := strings.HasPrefix(line, " ") // of the list that the label stands for
		if !isNext {
			label, value, _ = strings.Cut(value, " ")
			value = strings.TrimSpace(value)
		}
		switch label {
		case "tools", "prompts", "resources", "resourceTemplates":
			value, _, _ = strings.Cut(value+" ", ": ") // a description may be empty
		case "capabilities":
			var has map[string]any
			_ = json.Unmarshal([]byte(value), &has) // otherwise the row does not fit
			value = strings.Join(slices.Sorted(maps.Keys(has)), ", ")
		}
		if isNext {
			value = got[label] + ", " + value
		}
		got[label] = value
	}
	for label, pattern := range want {
		if value, ok := got[label]; !ok || !regexp.MustCompile(pattern).MatchString(value) {
			t.Errorf("%s: got %q, want %s", label, value, pattern)
		}
	}
	return out
}

// lines feeds mcpwire call -i. One of the lines fails, which does not keep the others from being answered, but shows in the exit status.
func lines(t *testing.T, server, stdin, want []string) outcome {
	t.Helper()
	out := call(t, []string{"-i"}, strings.Join(stdin, "\n")+"\n", server...)
	if out.exit != 1 || !regexp.MustCompile(`(?m)^mcpwire: .*\(-3260[12]\)(; data: .*)?$`).MatchString(out.stderr) {
		t.Errorf("exit %d: want 1, and an error on stderr", out.exit)
	}
	got := strings.Split(strings.TrimSpace(out.stdout), "\n")
	if len(got) != len(want) {
		t.Fatalf("%d lines, want %d", len(got), len(want))
	}
	for i := range want {
		expect(t, got[i], want[i])
	}
	return out
}

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
		p := background(t, command(addr, port))
		t.Cleanup(func() { time.AfterFunc(10*time.Second, func() { p.cmd.Process.Kill() }) }) // not all of them take notice of SIGTERM
		listens := false
		eventually(t, "a server that listens", func() bool {
			conn, err := net.Dial("tcp", addr)
			if listens = err == nil; listens {
				conn.Close()
			}
			return listens || p.hasEnded()
		})
		if listens {
			return "http://" + addr
		}
	}
	t.Fatal("the server does not listen")
	return ""
}

// startEverything starts server-everything, which serves one transport at a time.
func startEverything(t *testing.T, transport string) string {
	t.Helper()
	return startNode(t, append(script(t, everythingScript), transport)...)
}

// startNode starts one of those on Node, which take the port from the environment.
func startNode(t *testing.T, command ...string) string {
	t.Helper()
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
	session := w.session && version != "2026-07-28"
	want := map[string]string{
		"transport": "^" + regexp.QuoteMeta(w.transport) + "$",
		"revision":  "^" + version + "$",
		"session":   fmt.Sprintf("^%v$", session),
	}
	maps.Copy(want, rows)
	summary(t, flags, w.target, want)
}

// ---- server-everything: TypeScript, 2025-11-25 and older ----

const everythingScript = "@modelcontextprotocol/server-everything/dist/index.js"

// everythingCalls are for each transport, and for a bridge to it.
var everythingCalls = []callTest{
	{name: "a resource", method: "resources/read", params: `{"uri":"demo://resource/dynamic/text/7"}`,
		want: `{"contents":[{"uri":"demo://resource/dynamic/text/7","mimeType":"text/plain"}]}`},
	{name: "a prompt", method: "prompts/get", params: `{"name":"args-prompt","arguments":{"city":"Oslo"}}`,
		want: `{"messages":[{"role":"user","content":{"type":"text","text":"What's weather in Oslo?"}}]}`},
	{name: "a completion", method: "completion/complete",
		params: `{"ref":{"type":"ref/prompt","name":"completable-prompt"},"argument":{"name":"department","value":"E"}}`,
		want:   `{"completion":{"values":["Engineering"]}}`},
	{name: "progress", method: "tools/call", params: `{"name":"trigger-long-running-operation","arguments":{"duration":1,"steps":4}}`,
		want:  `{"content":[{"type":"text","text":"Long running operation completed. Duration: 1 seconds, Steps: 4."}]}`,
		notes: `(?s)"progress":1,"total":4.*"progress":2,"total":4.*"progress":3,"total":4.*"progress":4,"total":4`},
	{name: "progress extends the time-out", flags: []string{"-timeout", "6s"},
		method: "tools/call", params: `{"name":"trigger-long-running-operation","arguments":{"duration":8,"steps":8}}`,
		want: `{"content":[{"type":"text"}]}`, least: 8 * time.Second},
	{name: "time-out", flags: []string{"-timeout", "6s"},
		method: "tools/call", params: `{"name":"trigger-long-running-operation","arguments":{"duration":50,"steps":1}}`,
		exit: 1, stderr: `(?m)^mcpwire: tools/call: no answer within 6s$`, least: 6 * time.Second, most: 30 * time.Second},
	{name: "elicitation accepted", flags: []string{"-answer", `{"name":"Ada"}`},
		method: "tools/call", params: `{"name":"trigger-elicitation-request","arguments":{}}`,
		want: `{"content":[{"text":"✅ User provided the requested information!"},{"text":"User inputs:\n- Name: Ada"},{}]}`},
	{name: "elicitation declined", // as nobody is there to be asked: stdin is /dev/null, which is no terminal
		method: "tools/call", params: `{"name":"trigger-elicitation-request","arguments":{}}`,
		want: `{"content":[{"text":"❌ User declined to provide the requested information."},{}]}`},
	{name: "typed arguments", flags: []string{"-tool", "get-sum", "-arg", "a=1.5", "-arg", "b=2"},
		want: `{"content":[{"type":"text","text":"The sum of 1.5 and 2 is 3.5."}]}`},
	{name: "sampling", flags: []string{"-tool", "trigger-sampling-request", "-arg", "prompt=Hm?", "-sampling-answer", "Forty-two"},
		want: `{"content":[{"type":"text"}]}`, stderr: `LLM sampling result.*Forty-two`},
	{name: "a tool's own error", flags: []string{"-tool", "get-resource-reference", "-arg", "resourceId=-1"},
		exit: 3, want: `{"isError":true}`, stderr: `(?m)^mcpwire: the tool get-resource-reference has failed \(isError\)$`},
	{name: "unknown resource", method: "resources/read", params: `{"uri":"demo://nothing"}`,
		exit: 1, stderr: `(?m)^mcpwire: resources/read: .*demo://nothing.* \(-32602\)$`},
	{name: "unknown tool", method: "tools/call", params: `{"name":"no-such-tool"}`, // a result here, so exit 0
		want: `{"isError":true,"content":[{"type":"text","text":"MCP error -32602: Tool no-such-tool not found"}]}`},
	{name: "unknown method", method: "no/such-method", exit: 1, stderr: `(?m)^mcpwire: no/such-method: Method not found \(-32601\)$`},
}

func TestServerEverything(t *testing.T) {
	t.Parallel()
	rows := map[string]string{
		"serverInfo":        `^\{"name":"mcp-servers/everything","title":"Everything Reference Server","version":"2\.0\.0"`,
		"capabilities":      `^completions, logging, prompts, resources, tasks, tools$`,
		"tools":             `\becho, .*\btrigger-long-running-operation\b`,
		"resources":         `\bdemo://resource/static/document/features\.md\b`,
		"resourceTemplates": `demo://resource/dynamic/text/\{resourceId\}`,
		"prompts":           `^simple-prompt, args-prompt, completable-prompt, resource-prompt$`,
	}
	long := strings.Repeat("añ€😀", 50_000)
	stdin := []string{
		`tools/call {"name":"echo","arguments":{"message":"` + long + `"}}`,
		`no/such-method`,
		`tools/call {"name":"get-sum","arguments":{"a":1,"b":2}}`,
		`ping`,
	}
	want := []string{
		`{"content":[{"type":"text","text":"Echo: ` + long + `"}]}`,
		`{"content":[{"type":"text","text":"The sum of 1 and 2 is 3."}]}`,
		`{}`,
	}
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		calls := append(slices.Clone(everythingCalls),
			callTest{name: "roots", flags: []string{"-tool", "get-roots-list", "-root", "."}, // it asks for them after the handshake
				want: `{"content":[{"type":"text"}]}`, stderr: `"roots":\[\{"name":"interop","uri":"file:///[^"]+/interop"\}\]`},
			callTest{name: "environment", flags: []string{"-tool", "get-env", "-env", "MCPWIRE_SAYS=hi there"},
				want: `{"content":[{"type":"text"}]}`, stderr: `MCPWIRE_SAYS[\\": ]+hi there`})
		command := append(script(t, everythingScript), "stdio")
		way{target: command, transport: "stdio", versions: fromHandshake}.check(t, rows, calls, stdin, want)
	})
	for _, test := range []struct{ argument, path, transport string }{
		{"streamableHttp", "/mcp", "Streamable HTTP"},
		{"sse", "/sse", "HTTP+SSE"},
	} {
		t.Run(test.argument, func(t *testing.T) {
			t.Parallel()
			url := startEverything(t, test.argument) + test.path
			way{target: []string{url}, transport: test.transport, versions: fromHandshake, session: true}.check(t, rows, everythingCalls, stdin, want)
		})
	}
}

// ---- everything-server: Go SDK, all revisions ----

// Over HTTP it serves 2026-07-28 and no sessions, or sessions and not 2026-07-28.
func TestEverythingServer(t *testing.T) {
	t.Parallel()
	rows := map[string]string{
		"serverInfo":        `^\{"name":"mcp-conformance-test-server","version":"1\.0\.0"`,
		"capabilities":      `^completions, logging, prompts, resources, tools$`,
		"tools":             `\btest_elicitation, .*\btest_tool_with_progress\b`,
		"resources":         `^test://static-binary, test://static-text, test://watched-resource$`,
		"resourceTemplates": `^test://template/\{id\}/data$`,
		"prompts":           `\btest_simple_prompt\b`,
	}
	all := slices.Concat([]string{"2026-07-28"}, fromHandshake)
	stdin := []string{
		`tools/call {"name":"test_simple_text"}`,
		`tools/call {"name":"no-such-tool"}`,
		`prompts/get {"name":"test_simple_prompt"}`,
	}
	want := []string{
		`{"resultType":"complete","content":[{"type":"text","text":"This is a simple text response for testing."}]}`,
		`{"resultType":"complete","messages":[{"role":"user"}]}`,
	}
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		w := way{target: []string{everythingServer}, transport: "stdio", versions: all}
		w.check(t, rows, slices.Concat(everythingServerModern, everythingServerLegacy), stdin, want)
	})
	t.Run("modern", func(t *testing.T) {
		t.Parallel()
		w := way{target: []string{startGo(t, everythingServer, "-http=")}, transport: "Streamable HTTP", versions: all}
		calls := append(slices.Clone(everythingServerModern), callTest{name: "nobody can be asked without a session",
			flags: []string{"-protocol", "2025-11-25", "-answer", `{"username":"Ada"}`}, method: "tools/call",
			params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`, want: `{"isError":true,"content":[{"type":"text"}]}`})
		w.check(t, rows, calls, stdin, want)
	})
	t.Run("sessions", func(t *testing.T) {
		t.Parallel()
		w := way{target: []string{startGo(t, everythingServer, "-http=", "-stateless=false")}, transport: "Streamable HTTP",
			versions: fromHandshake, session: true}
		calls := append(slices.Clone(everythingServerLegacy), callTest{name: "unknown method", method: "no/such-method", exit: 1, stderr: refusedMethod})
		w.check(t, rows, calls, []string{
			`logging/setLevel {"level":"info"}`,
			`tools/call {"name":"no-such-tool"}`,
			`tools/call {"name":"test_tool_with_logging","arguments":{}}`, // only if the level has been kept, that is in the same session
		}, []string{
			`{}`,
			`{"content":[{"type":"text","text":"Tool with logging executed successfully"}]}`,
		})
	})
}

var everythingServerModern = []callTest{
	{name: "a resource", method: "resources/read", params: `{"uri":"test://static-text"}`,
		want: `{"resultType":"complete","contents":[{"uri":"test://static-text","mimeType":"text/plain"}]}`},
	{name: "a prompt", method: "prompts/get", params: `{"name":"test_prompt_with_arguments","arguments":{"arg1":"a","arg2":"b"}}`,
		want: `{"messages":[{"role":"user","content":{"type":"text"}}]}`},
	everythingServerProgress,
	{name: "logging", method: "tools/call",
		params: `{"name":"test_tool_with_logging","arguments":{},"_meta":{"io.modelcontextprotocol/logLevel":"info"}}`,
		want:   `{"content":[{"type":"text","text":"Tool with logging executed successfully"}]}`,
		notes:  `(?s)notifications/message .*"Tool execution started".*"Tool processing data".*"Tool execution completed"`},
	{name: "a subscription", flags: []string{"-timeout", "10s"}, method: "subscriptions/listen", // the resource is updated every 3 s
		params: `{"notifications":{"resourceSubscriptions":["test://watched-resource"]}}`,
		exit:   1, stderr: `(?m)^mcpwire: subscriptions/listen: no answer within 10s$`,
		notes: `(?s)^notifications/subscriptions/acknowledged .*\nnotifications/resources/updated .*"uri":"test://watched-resource"`},
	{name: "input required", flags: []string{"-answer", `{"name":"Ada"}`},
		method: "tools/call", params: `{"name":"test_input_required_result_elicitation","arguments":{}}`,
		want: `{"resultType":"complete","content":[{"type":"text","text":"Hello, Ada!"}]}`},
	{name: "input required, declined", // the server asks again and again, until the client gives up
		method: "tools/call", params: `{"name":"test_input_required_result_elicitation","arguments":{}}`,
		exit: 1, stderr: `(?m)^mcpwire: tools/call: the server has asked \d+ times$`},
	{name: "input required, with state", flags: []string{"-answer", `{"ok":true}`},
		method: "tools/call", params: `{"name":"test_input_required_result_request_state","arguments":{}}`,
		want: `{"resultType":"complete","content":[{"type":"text"}]}`},
	{name: "input required, twice", flags: []string{"-answer", `{"name":"Ada","color":"blue"}`},
		method: "tools/call", params: `{"name":"test_input_required_result_multi_round","arguments":{}}`,
		want: `{"resultType":"complete","content":[{"type":"text","text":"Multi-round complete: Ada likes blue"}]}`},
	{name: "input required that we cannot give", method: "tools/call", params: `{"name":"test_input_required_result_sampling","arguments":{}}`,
		exit: 1, stderr: `(?m)^mcpwire: .*sampling/createMessage.*\(-32601\)$`},
	{name: "input required, a model", flags: []string{"-sampling-answer", "Paris", "-tool", "test_input_required_result_sampling"},
		want: `{"resultType":"complete","content":[{"type":"text"}]}`, stderr: `"inputResponses":.*"text":"Paris"`},
	{name: "input required, roots", flags: []string{"-root", ".", "-root", "..", "-tool", "test_input_required_result_list_roots"},
		want: `{"resultType":"complete","content":[{"type":"text"}]}`, stderr: `"roots":\[\{"name":"interop","uri":"file:///[^"]+"\},\{"name":"testdata","uri":"file:///[^"]+"\}\]`},
	{name: "a marked argument", method: "tools/call", params: `{"name":"test_x_mcp_header","arguments":{"region":"Zürich","level":2}}`,
		want: `{"resultType":"complete","content":[{"type":"text"}]}`},
	{name: "an argument that is marked and missing", method: "tools/call", params: `{"name":"test_x_mcp_header","arguments":{"level":2}}`,
		want: `{"resultType":"complete","content":[{"type":"text"}]}`},
	{name: "a capability that is not declared", method: "tools/call", params: `{"name":"test_missing_capability","arguments":{}}`,
		exit: 1, stderr: `(?m)^mcpwire: tools/call: .*\{"requiredCapabilities":.*\} \(-32021\)$`},
	{name: "a tool's own error", method: "tools/call", params: `{"name":"test_error_handling","arguments":{}}`, // a result, so exit 0
		want: `{"isError":true,"content":[{"type":"text"}]}`},
	{name: "unknown tool", method: "tools/call", params: `{"name":"no-such-tool"}`,
		exit: 1, stderr: `(?m)^mcpwire: .*unknown tool "no-such-tool".* \(-32602\)$`},
	{name: "unknown method", method: "no/such-method", exit: 1, stderr: `(?m)^mcpwire: no/such-method: .* \(-32601\)$`},
}

var everythingServerProgress = callTest{name: "progress", method: "tools/call", params: `{"name":"test_tool_with_progress","arguments":{}}`,
	want:  `{"content":[{"type":"text"}]}`, // the text is the progress token
	notes: `(?s)"progress":0,"total":100.*"progress":50,"total":100.*"progress":100,"total":100`}

// refusedMethod: before 2026-07-28 the Go SDK answers an unknown method over HTTP with a status and a text, not with an error of JSON-RPC.
const refusedMethod = `(?m)^mcpwire: no/such-method: .*\b400\b`

var everythingServerLegacy = []callTest{
	everythingServerProgress,
	{name: "sampling", flags: []string{"-protocol", "2025-11-25", "-sampling-answer", "Paris", "-tool", "test_sampling", "-arg", "prompt=Hm?"},
		want: `{"content":[{"type":"text"}]}`, stderr: `"result":.*Paris`},
	{name: "sampling that is refused", flags: []string{"-protocol", "2025-11-25", "-tool", "test_sampling", "-arg", "prompt=Hm?"},
		exit: 3, want: `{"isError":true}`, stderr: `(?m)^mcpwire: the tool test_sampling has failed`},
	{name: "elicitation", flags: []string{"-protocol", "2025-11-25", "-answer", `{"username":"Ada"}`},
		method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
		want: `{"content":[{"type":"text","text":"Elicitation result: action=accept, content=map[username:Ada]"}]}`},
	{name: "elicitation declined", flags: []string{"-protocol", "2025-11-25"},
		method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
		want: `{"content":[{"type":"text","text":"Elicitation result: action=decline, content=map[]"}]}`},
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
		"serverInfo":   `^\{"name":"gosdk","version":"1\.0\.0"`,
		"capabilities": `^logging, resources, tools$`,
		"tools":        `^count, greet, publish, wait, waited$`,
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
		"serverInfo":   `^\{"name":"mcpgo","version":"1\.0\.0"`,
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
	t.Run("sse", func(t *testing.T) { // where it has no way to ask, and mcpwire does not look for the modern era
		t.Parallel()
		calls := slices.DeleteFunc(countAndGreet(unknown), func(test callTest) bool { return test.name == "elicitation" })
		calls = append(calls, callTest{name: "elicitation", method: "tools/call", params: `{"name":"greet","arguments":{}}`,
			exit: 1, stderr: `(?m)^mcpwire: tools/call: .*session does not support elicitation \(-32603\)$`})
		way{target: []string{base + "/sse"}, transport: "HTTP+SSE", versions: fromHandshake, session: true}.check(t, rows,
			calls, countLines, countedLines)
	})
}

// ---- mcp-lite: TypeScript ----

// It speaks two revisions, and proposes the older one to whoever proposes neither.
func TestMCPLite(t *testing.T) {
	t.Parallel()
	base := startNode(t, optional(t, "mcp-lite", "dist/index.js")[0], "mcplite.mjs")
	rows := map[string]string{
		"serverInfo":   `^\{"name":"mcplite","version":"1\.0\.0"`,
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

// ---- mcp-framework: TypeScript ----

// Over Streamable HTTP it sends each message to all sessions, and an answer counts wherever a request with its id is under way. So the clients
// come one after another there. Over HTTP+SSE the sessions share the tools, and the progress of their calls, so that none is wanted.
func TestMCPFramework(t *testing.T) {
	t.Parallel()
	command := []string{optional(t, "mcp-framework", "dist/index.js")[0], "mcpframework.mjs"}
	rows := map[string]string{
		"serverInfo":   `^\{"name":"mcpframework","version":"1\.0\.0"`,
		"capabilities": `^completions, resources, tools$`,
		"tools":        `^count, greet$`,
		"resources":    `^test://welcome$`,
	}
	calls := countAndGreet(`(?m)^mcpwire: no/such-method: .* \(-32601\)`)
	stdin := []string{countLines[0], `no/such-method`, countLines[2]} // its error for an unknown tool is -32603
	t.Run("stdio", func(t *testing.T) {
		t.Parallel()
		way{target: append(command[:2:2], "stdio"), transport: "stdio", versions: fromHandshake}.check(t, rows, calls, stdin, countedLines)
	})
	t.Run("sse", func(t *testing.T) {
		t.Parallel()
		url := startNode(t, append(command[:2:2], "sse")...) + "/sse"
		way{target: []string{url}, transport: "HTTP+SSE", versions: fromHandshake, session: true}.check(t, rows, calls[2:], stdin, countedLines)
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		w := way{target: []string{startNode(t, append(command[:2:2], "http-stream")...) + "/mcp"}, transport: "Streamable HTTP", session: true}
		for _, version := range fromHandshake {
			w.summary(t, []string{"-protocol", version}, version, rows)
		}
		lines(t, w.target, stdin, countedLines)
	})
}
