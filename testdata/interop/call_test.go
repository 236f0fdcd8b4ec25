package interop

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

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

// ---- server-everything: TypeScript, 2025-11-25 and older ----

const everythingScript = "@modelcontextprotocol/server-everything/dist/index.js"

// everythingOffers is what the summary says of server-everything, whatever the transport.
var everythingOffers = map[string]string{
	"server":       `^mcp-servers/everything 2\.0\.0 Everything Reference Server$`,
	"capabilities": `^completions, logging, prompts, resources, tasks, tools$`,
	"tools":        `\becho, .*\btrigger-long-running-operation\b`,
	"resources":    `\bdemo://resource/static/document/features\.md\b`,
	"templates":    `demo://resource/dynamic/text/\{resourceId\}`,
	"prompts":      `^simple-prompt, args-prompt, completable-prompt, resource-prompt$`,
}

func TestServerEverythingSummary(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions[1:] {
		var flags []string
		if rev.version != "2025-11-25" { // it knows no server/discover, so that the client falls back to its newest initialize by itself
			flags = []string{"-protocol", rev.version}
		}
		t.Run(rev.version, func(t *testing.T) {
			t.Parallel()
			want := maps.Clone(everythingOffers)
			want["transport"], want["revision"], want["session"] = `^stdio$`, `^`+rev.version+`$`, `^none$`
			out := summary(t, flags, append(script(t, everythingScript), "stdio"), want)
			if strings.Contains(out.stdout, " trigger-elicitation-request(") != rev.asks { // offered to clients that declare elicitation
				t.Errorf("elicitation is offered: want %v", rev.asks)
			}
		})
	}
}

func TestServerEverything(t *testing.T) {
	t.Parallel()
	runCallTests(t, append(script(t, everythingScript), "stdio"), []callTest{
		{name: "a tool", method: "tools/call", params: `{"name":"echo","arguments":{"message":"¡hola!"}}`,
			want: `{"content":[{"type":"text","text":"Echo: ¡hola!"}]}`},
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
		{name: "time-out", flags: []string{"-timeout", "6s"}, // what follows the error is the cancellation
			method: "tools/call", params: `{"name":"trigger-long-running-operation","arguments":{"duration":50,"steps":1}}`,
			exit: 1, stderr: `(?s)mcpwire: tools/call: no answer within 6s\n.*"method":"notifications/cancelled"|"method":"notifications/cancelled".*mcpwire: tools/call: no answer within 6s\n`,
			least: 6 * time.Second, most: 30 * time.Second},
		{name: "elicitation accepted", flags: []string{"-answer", `{"name":"Ada"}`},
			method: "tools/call", params: `{"name":"trigger-elicitation-request","arguments":{}}`,
			want: `{"content":[{"text":"✅ User provided the requested information!"},{"text":"User inputs:\n- Name: Ada"},{}]}`},
		{name: "elicitation declined", // as nobody is there to be asked: stdin is /dev/null, which is no terminal
			method: "tools/call", params: `{"name":"trigger-elicitation-request","arguments":{}}`,
			want: `{"content":[{"text":"❌ User declined to provide the requested information."},{}]}`},
		{name: "typed arguments", flags: []string{"-tool", "get-sum", "-arg", "a=1.5", "-arg", "b=2"},
			want: `{"content":[{"type":"text","text":"The sum of 1.5 and 2 is 3.5."}]}`},
		{name: "roots", flags: []string{"-tool", "get-roots-list", "-root", "."}, // it asks for them after the handshake
			want: `{"content":[{"type":"text"}]}`, stderr: `"roots":\[\{"uri":"file:///[^"]+/interop","name":"interop"\}\]`},
		{name: "sampling", flags: []string{"-tool", "trigger-sampling-request", "-arg", "prompt=Hm?", "-sampling-answer", "Forty-two"},
			want: `{"content":[{"type":"text"}]}`, stderr: `LLM sampling result.*Forty-two`},
		{name: "environment", flags: []string{"-tool", "get-env", "-env", "MCPWIRE_SAYS=hi there"},
			want: `{"content":[{"type":"text"}]}`, stderr: `MCPWIRE_SAYS[\\": ]+hi there`},
		{name: "a tool's own error", flags: []string{"-tool", "get-resource-reference", "-arg", "resourceId=-1"},
			exit: 3, want: `{"isError":true}`, stderr: `(?m)^mcpwire: the tool get-resource-reference has failed \(isError\)$`},
		{name: "unknown tool", method: "tools/call", params: `{"name":"no-such-tool"}`, // a result here, so exit 0
			want: `{"isError":true,"content":[{"type":"text","text":"MCP error -32602: Tool no-such-tool not found"}]}`},
		{name: "unknown method", method: "no/such-method",
			exit: 1, stderr: `(?m)^mcpwire: .*Method not found \(-32601\)$`},
		{name: "a revision it does not speak", flags: []string{"-protocol", "2026-07-28"}, method: "tools/list",
			exit: 1, stderr: `(?m)^mcpwire: server/discover: Method not found \(-32601\)$`},
	})
}

// Several lines go through one connection: the server says once that it starts.
func TestServerEverythingLines(t *testing.T) {
	t.Parallel()
	out := lines(t, append(script(t, everythingScript), "stdio"), []string{
		`tools/call {"name":"echo","arguments":{"message":"one"}}`,
		`no/such-method`,
		`tools/call {"name":"echo","arguments":{"message":"two"}}`,
		`ping`,
	}, []string{
		`{"content":[{"type":"text","text":"Echo: one"}]}`,
		`{"content":[{"type":"text","text":"Echo: two"}]}`,
		`{}`,
	})
	if n := strings.Count(out.stderr, "Starting default (STDIO) server"); n != 1 {
		t.Errorf("%d servers were started", n)
	}
}

// ---- everything-server: Go, all revisions ----

func TestEverythingServerSummary(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions {
		var flags []string
		if !rev.modern {
			flags = []string{"-protocol", rev.version}
		}
		t.Run(rev.version, func(t *testing.T) {
			t.Parallel()
			summary(t, flags, []string{everythingServer}, map[string]string{
				"transport":    `^stdio$`,
				"revision":     `^` + rev.version + `$`,
				"session":      `^none$`,
				"server":       `^mcp-conformance-test-server 1\.0\.0$`,
				"capabilities": `^completions, logging, prompts, resources, tools$`,
				"tools":        `\btest_elicitation, .*\btest_tool_with_progress\b`,
				"resources":    `^test://static-binary, test://static-text, test://watched-resource$`,
				"templates":    `^test://template/\{id\}/data$`,
				"prompts":      `\btest_simple_prompt\b`,
			})
		})
	}
}

func TestEverythingServer(t *testing.T) {
	t.Parallel()
	legacy := []string{"-protocol", "2025-11-25"}
	progress := `(?s)"progress":0,"total":100.*"progress":50,"total":100.*"progress":100,"total":100`
	runCallTests(t, []string{everythingServer}, []callTest{
		{name: "a tool", method: "tools/call", params: `{"name":"test_simple_text","arguments":{}}`,
			want: `{"resultType":"complete","content":[{"type":"text","text":"This is a simple text response for testing."}]}`},
		{name: "a resource", method: "resources/read", params: `{"uri":"test://static-text"}`,
			want: `{"resultType":"complete","contents":[{"uri":"test://static-text","mimeType":"text/plain"}]}`},
		{name: "a prompt", method: "prompts/get", params: `{"name":"test_prompt_with_arguments","arguments":{"arg1":"a","arg2":"b"}}`,
			want: `{"messages":[{"role":"user","content":{"type":"text"}}]}`},
		{name: "progress", method: "tools/call", params: `{"name":"test_tool_with_progress","arguments":{}}`,
			want: `{"content":[{"type":"text","text":"1"}]}`, notes: progress}, // the text is the progress token
		{name: "progress, legacy", flags: legacy, method: "tools/call", params: `{"name":"test_tool_with_progress","arguments":{}}`,
			want: `{"content":[{"type":"text","text":"1"}]}`, notes: progress},
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
			exit: 1, stderr: `(?m)^mcpwire: tools/call: asked \d+ times for input$`},
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
			want: `{"resultType":"complete","content":[{"type":"text"}]}`, stderr: `"roots":\[\{"uri":"file:///[^"]+","name":"interop"\},\{"uri":"file:///[^"]+","name":"testdata"\}\]`},
		{name: "sampling, legacy", flags: []string{"-protocol", "2025-11-25", "-sampling-answer", "Paris", "-tool", "test_sampling", "-arg", "prompt=Hm?"},
			want: `{"content":[{"type":"text"}]}`, stderr: `"result":.*Paris`},
		{name: "sampling that is refused, legacy", flags: []string{"-protocol", "2025-11-25", "-tool", "test_sampling", "-arg", "prompt=Hm?"},
			exit: 3, want: `{"isError":true}`, stderr: `(?m)^mcpwire: the tool test_sampling has failed`},
		{name: "elicitation, legacy", flags: append([]string{"-answer", `{"username":"Ada"}`}, legacy...),
			method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
			want: `{"content":[{"type":"text","text":"Elicitation result: action=accept, content=map[username:Ada]"}]}`},
		{name: "elicitation declined, legacy", flags: legacy,
			method: "tools/call", params: `{"name":"test_elicitation","arguments":{"message":"Who?"}}`,
			want: `{"content":[{"type":"text","text":"Elicitation result: action=decline, content=map[]"}]}`},
		{name: "a tool's own error", method: "tools/call", params: `{"name":"test_error_handling","arguments":{}}`, // a result, so exit 0
			want: `{"isError":true,"content":[{"type":"text"}]}`},
		{name: "unknown tool", method: "tools/call", params: `{"name":"no-such-tool"}`,
			exit: 1, stderr: `(?m)^mcpwire: .*unknown tool "no-such-tool".* \(-32602\)$`},
		{name: "unknown method", method: "no/such-method",
			exit: 1, stderr: `(?m)^mcpwire: .* \(-32601\)$`},
	})
}

func TestEverythingServerLines(t *testing.T) {
	t.Parallel()
	out := lines(t, []string{everythingServer}, []string{
		`tools/call {"name":"test_simple_text"}`,
		`tools/call {"name":"no-such-tool"}`,
		`prompts/get {"name":"test_simple_prompt"}`,
	}, []string{
		`{"content":[{"type":"text","text":"This is a simple text response for testing."}]}`,
		`{"messages":[{"role":"user"}]}`,
	})
	if n := strings.Count(out.stderr, `"method":"server/discover"`); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// ---- Both ----

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
		case "tools", "prompts":
			value, _, _ = strings.Cut(value, "(")
		case "resources", "templates":
			value, _, _ = strings.Cut(value, "  ")
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
