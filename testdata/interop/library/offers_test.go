package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"interop/shared"
	"interop/wire"
)

// What a Server offers: AddTool, AddResource, AddResourceTemplate and AddPrompt, as their clients see it. The rows are bytes where the wire
// is the lesson.

// eachRevision are those between which something of tools, resources or prompts changes.
var eachRevision = []string{"2024-11-05", "2025-06-18", "2025-11-25", "2026-07-28"}

func newServer() *wire.Server {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	server.AnnounceChanges()
	return server
}

// answered returns the member result or error of the answer to one request. Of a modern result it leaves out what each of them has.
func answered(t *testing.T, server *wire.Server, version, method, params string) string {
	t.Helper()
	line := `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + params + `}}`
	if version == "2026-07-28" {
		line = modernRequest(method, params)
	}
	out := answerTo(converse(t, server, shared.InitializeLine(version), line), "1")
	for _, part := range []string{`"resultType":"complete",`, `"ttlMs":0,"cacheScope":"private",`, `"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}`} {
		out = strings.Replace(out, part, "", 1)
	}
	return strings.Replace(strings.TrimSuffix(strings.TrimPrefix(out, `{"jsonrpc":"2.0","id":1,`), "}"), ",}", "}", 1)
}

// checkAnswers compares what a Server answers to params of a method, in each revision.
func checkAnswers(t *testing.T, server *wire.Server, method string, wants map[string]string) {
	t.Helper()
	for params, want := range wants {
		for _, version := range eachRevision {
			if version == "2026-07-28" { // which has given that code up
				want = strings.Replace(want, "-32002", "-32602", 1)
			}
			if got := answered(t, server, version, method, params); got != want {
				t.Errorf("%s, %s: %s, want %s", version, params, got, want)
			}
		}
	}
}

type forecast struct {
	City    string `json:"city"`
	Degrees int    `json:"degrees"`
}

// Each row of the table in the comment of AddTool. before is what a revision without structuredContent gets.
func TestToolResults(t *testing.T) {
	const oslo = `{\"city\":\"Oslo\",\"degrees\":-3}`
	const asText = `"result":{"content":[{"type":"text","text":"` + oslo + `"}]}`
	const asBoth = `"result":{"content":[{"type":"text","text":"` + oslo + `"}],"structuredContent":{"city":"Oslo","degrees":-3}}`
	const failed = `"error":{"code":-32603,"message":"Internal error"}`
	full := wire.ToolResult{Content: []wire.Content{wire.TextContent("x")}, StructuredContent: json.RawMessage(`{"n":1}`), Meta: map[string]int{"m": 1}}
	fault := &wire.Error{Code: -32000, Message: "busy", Data: json.RawMessage(`7`)}
	for name, row := range map[string]struct {
		result any
		err    error
		want   string
		before string // "": the same
	}{
		"a string":          {result: "hi", want: `"result":{"content":[{"type":"text","text":"hi"}]}`},
		"an empty string":   {result: "", want: `"result":{"content":[{"type":"text","text":""}]}`},
		"a Content":         {result: wire.ImageContent([]byte{1, 2, 3}, "image/png"), want: `"result":{"content":[{"type":"image","data":"AQID","mimeType":"image/png"}]}`},
		"several":           {result: []wire.Content{wire.TextContent("a"), wire.AudioContent([]byte{0}, "audio/wav")}, want: `"result":{"content":[{"type":"text","text":"a"},{"type":"audio","data":"AA==","mimeType":"audio/wav"}]}`},
		"those of a model":  {result: wire.Contents{wire.TextContent("a")}, want: `"result":{"content":[{"type":"text","text":"a"}]}`},
		"none":              {result: []wire.Content{}, want: `"result":{"content":[]}`},
		"nil":               {want: `"result":{"content":[]}`},
		"a ToolResult":      {result: full, want: `"result":{"content":[{"type":"text","text":"x"}],"structuredContent":{"n":1},"_meta":{"m":1}}`, before: `"result":{"content":[{"type":"text","text":"x"}],"_meta":{"m":1}}`},
		"a pointer to it":   {result: &wire.ToolResult{IsError: true}, want: `"result":{"content":[],"isError":true}`},
		"a struct":          {result: forecast{"Oslo", -3}, want: asBoth, before: asText},
		"a pointer":         {result: &forecast{"Oslo", -3}, want: asBoth, before: asText},
		"JSON":              {result: json.RawMessage(`{"city":"Oslo","degrees":-3}`), want: asBoth, before: asText},
		"a list":            {result: []int{1, 2}, want: `"result":{"content":[{"type":"text","text":"[1,2]"}]}`},
		"a number":          {result: 1.5, want: `"result":{"content":[{"type":"text","text":"1.5"}]}`},
		"what is no JSON":   {result: make(chan int), want: `"error":{"code":-32603,"message":"json: unsupported type: chan int"}`},
		"an *Error":         {err: fault, want: `"error":{"code":-32000,"message":"busy","data":7}`},
		"a wrapped *Error":  {err: fmt.Errorf("the backend: %w", fault), want: `"error":{"code":-32000,"message":"busy","data":7}`},
		"any other error":   {err: errors.New("no such city"), want: `"result":{"content":[{"type":"text","text":"no such city"}],"isError":true}`},
		"an error and more": {result: "hi", err: errors.New("late"), want: `"result":{"content":[{"type":"text","text":"late"}],"isError":true}`},
		"a panic":           {result: explosive{}, want: failed},
		"no question":       {result: wire.InputRequired{}, want: `"result":{"content":[{"type":"text","text":"The user cannot be asked: no question was asked"}],"isError":true}`},
	} {
		server := newServer()
		wire.AddTool(server, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return row.result, row.err })
		for _, version := range append([]string{"2025-03-26"}, eachRevision...) {
			want := row.want
			if version < "2025-06-18" && row.before != "" {
				want = row.before
			}
			if _, asks := row.result.(wire.InputRequired); asks && version == "2026-07-28" { // an error of the program, which the model cannot mend
				want = `"error":{"code":-32603,"message":"no question was asked"}`
			}
			if name == "a ToolResult" && version == "2026-07-28" { // the _meta of the tool stays, beside that of the Server
				want = strings.Replace(want, `{"m":1}`, `{"m":1,"io.modelcontextprotocol/serverInfo":{"name":"s","version":"1"}}`, 1)
			}
			if got := answered(t, server, version, "tools/call", `"name":"t"`); got != want {
				t.Errorf("%s, %s: %s, want %s", name, version, got, want)
			}
		}
	}
}

// A tool may read its arguments itself: they come as they were sent, if they are an object. How others are read is in testdata/cases/tool-arguments.txtar and TestBind.
func TestRawArguments(t *testing.T) {
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "raw"}, func(_ context.Context, _ *wire.Exchange, a json.RawMessage) (any, error) { return string(a), nil })
	checkAnswers(t, server, "tools/call", map[string]string{
		`"name":"raw","arguments":{"b": 1, "a":[ ]}`: `"result":{"content":[{"type":"text","text":"{\"b\": 1, \"a\":[ ]}"}]}`,
		`"name":"raw"`:                   `"result":{"content":[{"type":"text","text":""}]}`,
		`"name":"raw","arguments":[1,2]`: `"error":{"code":-32602,"message":"Invalid params: the arguments must be an object"}`,
	})
}

// What a ReadFunc returns, and which one is called. A resource comes before a template, and the template with the longest beginning before
// the others.
func TestReadResults(t *testing.T) {
	server := newServer()
	for uri, contents := range map[string]any{
		"note:///text": "hi", "note:///empty": "", "note:///none": []wire.ResourceContents(nil), "note:///number": 7, "note:///nothing": nil,
		"note:///bytes":  wire.ResourceContents{URI: "note:///bytes", MimeType: "image/png", Blob: []byte{1, 2, 3}},
		"note:///unsaid": wire.ResourceContents{Text: "x"}, // it may leave out the URI, or return the whole result
		"note:///whole":  &wire.ReadResourceResult{Contents: []wire.ResourceContents{{URI: "note:///whole", Text: "x"}}},
		"note:///blank":  []wire.ResourceContents{{URI: "note:///blank", Blob: []byte{}}, {URI: "note:///blank/2"}},
	} {
		server.AddResource(wire.Resource{URI: uri, Name: "n", MimeType: "text/plain"}, func(context.Context, *wire.Exchange, string) (any, error) { return contents, nil })
	}
	for _, template := range []string{"note:///{name}", "note:///deep/{name}", "note:///d{name}"} {
		server.AddResourceTemplate(wire.ResourceTemplate{URITemplate: template, Name: "n"}, func(_ context.Context, _ *wire.Exchange, uri string) (any, error) {
			if strings.HasSuffix(uri, "gone") {
				return nil, wire.ResourceNotFound(uri)
			}
			return template + " has " + uri, nil
		})
	}
	const notFound = `"error":{"code":-32002,"message":"Resource not found","data":{"uri":"`
	wants := map[string]string{
		"note:///text":    `"result":{"contents":[{"uri":"note:///text","mimeType":"text/plain","text":"hi"}]}`,
		"note:///empty":   `"result":{"contents":[{"uri":"note:///empty","mimeType":"text/plain","text":""}]}`,
		"note:///none":    `"result":{"contents":[]}`,
		"note:///bytes":   `"result":{"contents":[{"uri":"note:///bytes","mimeType":"image/png","blob":"AQID"}]}`,
		"note:///blank":   `"result":{"contents":[{"uri":"note:///blank","blob":""},{"uri":"note:///blank/2","text":""}]}`,
		"note:///unsaid":  `"result":{"contents":[{"uri":"note:///unsaid","text":"x"}]}`,
		"note:///whole":   `"result":{"contents":[{"uri":"note:///whole","text":"x"}]}`,
		"note:///number":  `"error":{"code":-32603,"message":"a ReadFunc has returned a int"}`,
		"note:///nothing": `"error":{"code":-32603,"message":"a ReadFunc has returned a <nil>"}`,
		"note:///x":       `"result":{"contents":[{"uri":"note:///x","text":"note:///{name} has note:///x"}]}`,
		"note:///dx":      `"result":{"contents":[{"uri":"note:///dx","text":"note:///d{name} has note:///dx"}]}`,
		"note:///deep/x":  `"result":{"contents":[{"uri":"note:///deep/x","text":"note:///deep/{name} has note:///deep/x"}]}`,
		"note:///gone":    notFound + `note:///gone"}}`,
		"file:///x":       notFound + `file:///x"}}`,
		"":                `"error":{"code":-32602,"message":"Invalid params: 'uri' must not be empty"}`,
	}
	for uri, want := range wants {
		checkAnswers(t, server, "resources/read", map[string]string{`"uri":"` + uri + `"`: want})
	}
	server.RemoveResourceTemplate("note:///deep/{name}")
	if got := answered(t, server, "2025-11-25", "resources/read", `"uri":"note:///deep/x"`); !strings.Contains(got, "note:///d{name} has") {
		t.Errorf("a template that was removed: %s", got)
	}
}

// What a PromptFunc returns, and what is checked before it is called.
func TestPromptResults(t *testing.T) {
	server := newServer()
	prompt := wire.Prompt{Name: "p", Arguments: []wire.PromptArgument{{Name: "topic", Required: true}, {Name: "style"}}}
	server.AddPrompt(prompt, func(_ context.Context, _ *wire.Exchange, a map[string]string) (any, error) {
		switch a["style"] {
		case "long":
			return wire.PromptResult{Description: "d", Messages: []wire.PromptMessage{{Role: "assistant", Content: wire.ImageContent([]byte{1}, "image/png")}}}, nil
		case "none":
			return wire.PromptResult{}, nil
		case "bad":
			return nil, wire.InvalidParams("no such style")
		case "number":
			return 7, nil
		}
		return "About " + a["topic"], nil
	})
	const invalid = `"error":{"code":-32602,"message":"Invalid params: `
	checkAnswers(t, server, "prompts/get", map[string]string{
		`"name":"p","arguments":{"topic":"Go"}`:                 `"result":{"messages":[{"role":"user","content":{"type":"text","text":"About Go"}}]}`,
		`"name":"p","arguments":{"topic":""}`:                   `"result":{"messages":[{"role":"user","content":{"type":"text","text":"About "}}]}`,
		`"name":"p","arguments":{"topic":"x","style":"long"}`:   `"result":{"description":"d","messages":[{"role":"assistant","content":{"type":"image","data":"AQ==","mimeType":"image/png"}}]}`,
		`"name":"p","arguments":{"topic":"x","style":"none"}`:   `"result":{"messages":[]}`,
		`"name":"p","arguments":{"topic":"x","style":"bad"}`:    invalid + `no such style"}`,
		`"name":"p","arguments":{"topic":"x","style":"number"}`: `"error":{"code":-32603,"message":"a PromptFunc has returned a int"}`,
		`"name":"p","arguments":{"style":"long"}`:               invalid + `Missing required argument: 'topic'"}`,
		`"name":"p"`:                                       invalid + `Missing required argument: 'topic'"}`,
		`"name":"p","arguments":{"topic":7}`:               invalid + `the argument 'topic' must be a string"}`,
		`"name":"p","arguments":{"topic":"a","topic":"b"}`: invalid + `'arguments.topic' appears twice"}`,
		`"name":"q"`:                                       `"error":{"code":-32602,"message":"Unknown prompt: q"}`,
		`"arguments":{}`:                                   invalid + `the prompt is missing or empty"}`,
	})
}

// Each revision is shown what it knows, and no more.
func TestShownToARevision(t *testing.T) {
	server := newServer()
	icons := []wire.Icon{{Src: "https://s.example/i.png", Sizes: []string{"48x48"}}}
	mine := json.RawMessage(`{"com.example/x":1}`)
	wire.AddTool(server, wire.Tool{Name: "t", Title: "T", Description: "d", OutputSchema: json.RawMessage(`{"type":"object"}`),
		Annotations: &wire.ToolAnnotations{ReadOnly: true}, Icons: icons, Meta: mine}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return nil, nil })
	nothing := func(context.Context, *wire.Exchange, string) (any, error) { return "", nil }
	priority := &wire.ContentAnnotations{Audience: []string{"user"}, Priority: new(0.5)}
	server.AddResource(wire.Resource{URI: "a:b", Name: "r", Title: "R", MimeType: "text/plain", Size: 3, Annotations: priority, Icons: icons, Meta: mine}, nothing)
	server.AddResourceTemplate(wire.ResourceTemplate{URITemplate: "a:{x}", Name: "r", Title: "R", Icons: icons, Meta: mine}, nothing)
	server.AddPrompt(wire.Prompt{Name: "p", Title: "P", Arguments: []wire.PromptArgument{{Name: "a", Title: "A"}}, Icons: icons, Meta: mine},
		func(context.Context, *wire.Exchange, map[string]string) (any, error) { return "", nil })
	const iconText = `"icons":[{"src":"https://s.example/i.png","sizes":["48x48"]}]`
	const hints = `"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":false,"openWorldHint":false}`
	const tool = `{"tools":[{"name":"t","title":"T","description":"d","inputSchema":{"type":"object"},"outputSchema":{"type":"object"},` + hints + `,` + iconText + `,"_meta":{"com.example/x":1}}]}`
	const resource = `{"resources":[{"uri":"a:b","name":"r","title":"R","mimeType":"text/plain","size":3,"annotations":{"audience":["user"],"priority":0.5},` + iconText + `,"_meta":{"com.example/x":1}}]}`
	const template = `{"resourceTemplates":[{"uriTemplate":"a:{x}","name":"r","title":"R",` + iconText + `,"_meta":{"com.example/x":1}}]}`
	const prompt = `{"prompts":[{"name":"p","title":"P","arguments":[{"name":"a","title":"A","required":false}],` + iconText + `,"_meta":{"com.example/x":1}}]}`
	titles := []string{`"title":"T",`, `"title":"R",`, `"title":"P",`, `,"title":"A"`, `,"_meta":{"com.example/x":1}`, `,"outputSchema":{"type":"object"}`}
	for version, without := range map[string][]string{
		"2024-11-05": append([]string{hints + `,`, hints, `,` + iconText}, titles...),
		"2025-03-26": append([]string{`,` + iconText}, titles...),
		"2025-06-18": {`,` + iconText},
		"2025-11-25": nil,
		"2026-07-28": nil,
	} {
		for method, want := range map[string]string{"tools/list": tool, "resources/list": resource, "resources/templates/list": template, "prompts/list": prompt} {
			for _, part := range without {
				want = strings.Replace(want, part, "", 1)
			}
			want = strings.Replace(want, ",}", "}", 1)
			if got := answered(t, server, version, method, ""); got != `"result":`+want {
				t.Errorf("%s, %s: %s, want %s", version, method, got, want)
			}
		}
	}
}

// The modern era is shown a schema as it is, even if it stood between newlines. The legacy era is shown no marks, at any depth of properties. A default,
// an example or an enum that looks like a mark is data, and a property may have that name.
func TestMarksInASchema(t *testing.T) {
	const data = `"b":{"default":{"x-mcp-header":"v","k":1},"examples":[{"x-mcp-header":"v"}],"enum":["x-mcp-header"],"description":"\\u0061"},"x-mcp-header":{"type":"integer"}`
	const schema = `{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"},"c":{"type":"object","properties":{"d":{"x-mcp-h\u0065ader":"D","type":"string"}}},` + data + `}}`
	const legacy = `{"type":"object","properties":{"a":{"type":"string"},"c":{"type":"object","properties":{"d":{"type":"string"}}},` + data + `}}`
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "t", InputSchema: json.RawMessage("\n" + schema + "\n"), OutputSchema: json.RawMessage("\n{}\n")}, noTool)
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		shown := map[bool]string{true: schema, false: legacy}[version == "2026-07-28"]
		if got, want := answered(t, server, version, "tools/list", ""), `"result":{"tools":[{"name":"t","inputSchema":`+shown+`,"outputSchema":{}}]}`; got != want {
			t.Errorf("%s: %s, want %s", version, got, want)
		}
	}
}

// A list has pages of 50. A cursor still fits when tools come and go: what is there all the time is shown once.
func TestPages(t *testing.T) {
	server := newServer()
	noop := func(context.Context, *wire.Exchange, struct{}) (any, error) { return nil, nil }
	for n := range 120 {
		wire.AddTool(server, wire.Tool{Name: fmt.Sprintf("tool-%03d", n)}, noop)
	}
	c := connect(t, server, &wire.Client{})
	var names, sizes []string
	var p struct {
		Cursor string `json:"cursor,omitempty"`
	}
	for page := 0; ; page++ {
		var list wire.ListToolsResult
		if err := c.Call(t.Context(), "tools/list", p, &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		sizes = append(sizes, fmt.Sprint(len(list.Tools)))
		if p.Cursor = list.NextCursor; p.Cursor == "" {
			break
		}
		server.RemoveTool(names[len(names)-1])                                        // to which the cursor refers
		server.RemoveTool(fmt.Sprintf("tool-%03d", 60+page))                          // not yet shown, and then removed
		wire.AddTool(server, wire.Tool{Name: fmt.Sprintf("tool-000-%d", page)}, noop) // before the cursor
		wire.AddTool(server, wire.Tool{Name: fmt.Sprintf("tool-119-%d", page)}, noop) // behind it
	}
	var want []string
	for n := range 120 {
		if n != 60 {
			want = append(want, fmt.Sprintf("tool-%03d", n))
		}
	}
	want = append(want, "tool-119-0", "tool-119-1")
	if !slices.Equal(names, want) || !slices.Equal(sizes, []string{"50", "50", "21"}) {
		t.Errorf("%q, %q", sizes, names)
	}
	checkAnswers(t, server, "tools/list", map[string]string{`"cursor":"after ~"`: `"result":{"tools":[]}`})
}

// A name is found as it is, whatever JSON makes of it. What was added last under it answers, and what was removed is unknown.
func TestNamesAreExact(t *testing.T) {
	server := newServer()
	for _, name := range []string{`"\`, " é😀 ", "\x00\x7f", "\ufffd", "\ufffd\ufffd"} {
		for _, answer := range []string{"first", "second"} {
			wire.AddTool(server, wire.Tool{Name: name}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return answer, nil })
		}
		text, _ := json.Marshal(name)
		checkAnswers(t, server, "tools/call", map[string]string{`"name":` + string(text): `"result":{"content":[{"type":"text","text":"second"}]}`})
		server.RemoveTool(name)
		if got := answered(t, server, "2025-11-25", "tools/call", `"name":`+string(text)); !strings.Contains(got, "-32602") {
			t.Errorf("%s is removed: %s", text, got)
		}
	}
}

func noTool(context.Context, *wire.Exchange, struct{}) (any, error)            { return nil, nil }
func noResource(context.Context, *wire.Exchange, string) (any, error)          { return "", nil }
func noPrompt(context.Context, *wire.Exchange, map[string]string) (any, error) { return "", nil }

// What was added before the first request declares itself, unless Capabilities name it. It is told the same in both eras.
func TestOffersDeclareThemselves(t *testing.T) {
	tool := func(s *wire.Server) { wire.AddTool(s, wire.Tool{Name: "t"}, noTool) }
	for want, add := range map[string]func(s *wire.Server){
		`{}`:                                 func(s *wire.Server) {},
		`{"tools":{"listChanged":true}}`:     tool,
		`{"prompts":{"listChanged":true}}`:   func(s *wire.Server) { s.AddPrompt(wire.Prompt{Name: "p"}, noPrompt) },
		`{"resources":{"listChanged":true}}`: func(s *wire.Server) { s.AddResource(wire.Resource{URI: "a:b", Name: "r"}, noResource) },
		`{"logging":{},"resources":{"listChanged":true},"tools":{}}`: func(s *wire.Server) {
			s.Capabilities = map[string]any{"tools": struct{}{}}
			s.OfferLogging()
			s.AddResourceTemplate(wire.ResourceTemplate{URITemplate: "a:{x}", Name: "r"}, noResource)
			tool(s)
		},
	} {
		server := newServer()
		add(server)
		out := strings.Join(converse(t, server, shared.InitializeLine("2025-11-25"), modernRequest("server/discover", "")), "")
		if strings.Count(out, `"capabilities":`+want+`,`) != 2 {
			t.Errorf("%s, want %s twice", out, want)
		}
	}
	// It is too late after the first request: clients have been told that there are no tools. What is published before it decides nothing.
	server := newServer()
	server.Publish("notifications/resources/updated", map[string]string{"uri": "file:///x"})
	wire.AddTool(server, wire.Tool{Name: "hello"}, noTool)
	if got := answered(t, server, "2026-07-28", "tools/call", `"name":"hello"`); !strings.HasPrefix(got, `"result"`) {
		t.Error(got)
	}
	server = newServer()
	converse(t, server, shared.InitializeLine("2025-11-25"))
	tool(server)
	if got := answered(t, server, "2026-07-28", "server/discover", ""); !strings.Contains(got, `"capabilities":{}`) {
		t.Error(got)
	}
}

// A client that listens is told of each change of a list, and of none that was no change.
func TestListsChange(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer()
			wire.AddTool(server, wire.Tool{Name: "t"}, noTool)
			server.AddPrompt(wire.Prompt{Name: "p"}, noPrompt)
			server.AddResource(wire.Resource{URI: "a:b", Name: "r"}, noResource)
			told := make(chan string, 9)
			c := connect(t, server, &wire.Client{Versions: []string{version}, Handler: wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
				if strings.HasSuffix(x.Request.Method, "/list_changed") {
					told <- x.Request.Method
				}
				return nil, nil
			})})
			ended := make(chan error, 1)
			go func() {
				ended <- c.Listen(t.Context(), wire.ListenFilter{ToolsListChanged: true, PromptsListChanged: true, ResourcesListChanged: true})
			}()
			for i, row := range []struct {
				change func()
				want   string
			}{
				{func() { wire.AddTool(server, wire.Tool{Name: "u"}, noTool) }, "tools"},
				{func() { wire.AddTool(server, wire.Tool{Name: "u", Title: "U"}, noTool) }, "tools"}, // in place of the other one
				{func() { server.RemoveTool("u") }, "tools"},
				{func() { server.RemoveTool("u"); server.RemovePrompt("x"); server.RemoveResource("x:y") }, ""},
				{func() { server.RemovePrompt("p") }, "prompts"},
				{func() { server.AddResourceTemplate(wire.ResourceTemplate{URITemplate: "a:{x}", Name: "r"}, noResource) }, "resources"},
				{func() { server.RemoveResource("a:b") }, "resources"},
			} {
				synctest.Wait()
				row.change()
				synctest.Wait()
				if row.want != "" && (len(told) == 0 || <-told != "notifications/"+row.want+"/list_changed") || len(told) > 0 {
					t.Errorf("%s, change %d: not told of %q alone", version, i, row.want)
				}
			}
			_ = c.Close()
			if err := <-ended; !errors.Is(err, wire.ErrClosed) {
				t.Error(err)
			}
		})
	}
}

// What no client could use is a mistake of the program: adding it panics, and says why.
func TestMistakesInWhatIsAdded(t *testing.T) {
	s := newServer()
	tool := func(tool wire.Tool) func() { return func() { wire.AddTool(s, tool, noTool) } }
	for _, row := range []struct {
		want string
		add  func()
	}{
		{"an entry of tools has no name", tool(wire.Tool{})},
		{`the InputSchema of the tool "t" lacks "type":"object"`, tool(wire.Tool{Name: "t", InputSchema: json.RawMessage(`[]`)})},
		{`the InputSchema of the tool "t" lacks "type":"object"`, tool(wire.Tool{Name: "t", InputSchema: json.RawMessage(`{`)})},
		{"wire.Tool: json", tool(wire.Tool{Name: "t", OutputSchema: json.RawMessage(`{`)})},
		{`the InputSchema of the tool "t" lacks "type":"object"`, tool(wire.Tool{Name: "t", InputSchema: json.RawMessage(`{"properties":{}}`)})},
		{"Bind: *string is not a pointer to a struct", func() {
			wire.AddTool(s, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, string) (any, error) { return nil, nil })
		}},
		{"Bind: struct { City string }.City has no json tag", func() {
			wire.AddTool(s, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{ City string }) (any, error) { return nil, nil })
		}},
		{"an entry of resources has no name, or no URI", func() { s.AddResource(wire.Resource{Name: "n"}, noResource) }},
		{"an entry of resources has no name, or no URI", func() { s.AddResource(wire.Resource{URI: "a:b"}, noResource) }},
		{"an entry of resources has no name, or no URI", func() { s.AddResourceTemplate(wire.ResourceTemplate{Name: "n"}, noResource) }},
		{"an entry of resources has no name, or no URI", func() { s.AddResourceTemplate(wire.ResourceTemplate{URITemplate: "a:{x}"}, noResource) }},
		{"an entry of prompts has no name", func() { s.AddPrompt(wire.Prompt{}, noPrompt) }},
		{`an entry of tools is not UTF-8: "t\xff", "t\xff"`, tool(wire.Tool{Name: "t\xff"})},
		{`an entry of resources is not UTF-8: "n", "a:\xff"`, func() { s.AddResource(wire.Resource{URI: "a:\xff", Name: "n"}, noResource) }},
		{`an entry of resources is not UTF-8: "n\xff", "a:b"`, func() { s.AddResource(wire.Resource{URI: "a:b", Name: "n\xff"}, noResource) }},
		{`an entry of resources is not UTF-8: "n", "a:\xff{x}"`, func() {
			s.AddResourceTemplate(wire.ResourceTemplate{URITemplate: "a:\xff{x}", Name: "n"}, noResource)
		}},
		{`an entry of prompts is not UTF-8: "\xff", "\xff"`, func() { s.AddPrompt(wire.Prompt{Name: "\xff"}, noPrompt) }},
	} {
		panics(t, row.want, row.add)
	}
	if out := answered(t, s, "2026-07-28", "tools/list", ""); !strings.Contains(out, "-32601") {
		t.Error("something was added:", out)
	}
}

// What a tool returns is what its caller gets, empty texts and bytes included, in both eras.
func TestContentRoundTrips(t *testing.T) {
	want := wire.ToolResult{Content: []wire.Content{
		wire.TextContent(""), wire.TextContent("<&>\u2028"), wire.ImageContent([]byte{0, 255}, "image/png"), wire.ImageContent([]byte{}, "image/png"),
		wire.AudioContent([]byte{1}, "audio/wav"),
		{Type: "text", Text: "for you", Annotations: &wire.ContentAnnotations{Audience: []string{"user"}, Priority: new(0.0), LastModified: "2026-11-22T00:00:00Z"}, Meta: json.RawMessage(`{"com.example/x":1}`)},
		wire.ResourceLink(wire.Resource{URI: "a:b", Name: "n", Title: "T", Description: "d", MimeType: "text/plain", Size: 7}),
		wire.EmbeddedResource(wire.ResourceContents{URI: "a:b", MimeType: "text/plain"}),
		wire.EmbeddedResource(wire.ResourceContents{URI: "a:b", Blob: []byte{}, Meta: json.RawMessage(`{"com.example/x":1}`)}),
	}, StructuredContent: json.RawMessage(`{"n":1}`), IsError: true}
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return want, nil })
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		var got wire.ToolResult
		err := connect(t, server, &wire.Client{Versions: []string{version}}).Call(t.Context(), "tools/call", wire.CallToolParams{Name: "t"}, &got)
		got.Meta = nil // the Server adds to it
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, want %+v, %v", version, got, want, err)
		}
	}
	for want, content := range map[string]any{
		`{"type":"text","text":""}`:                                    wire.TextContent(""),
		`{"type":"text","annotations":{"priority":1},"text":""}`:       wire.Content{Type: "text", Annotations: &wire.ContentAnnotations{Priority: new(1.0)}},
		`{"type":"image","mimeType":"image/png","data":""}`:            wire.ImageContent(nil, "image/png"),
		`{"type":"resource","resource":{"uri":"a:b","text":""}}`:       wire.EmbeddedResource(wire.ResourceContents{URI: "a:b"}),
		`{"type":"resource","resource":{"uri":"a:b","blob":""}}`:       wire.EmbeddedResource(wire.ResourceContents{URI: "a:b", Blob: []byte{}}),
		`{"uri":"a:b","mimeType":"x/y","blob":"AA==","_meta":{"k":1}}`: wire.ResourceContents{URI: "a:b", MimeType: "x/y", Text: "left out", Blob: []byte{0}, Meta: json.RawMessage(`{"k":1}`)},
		`{"type":"tool_use","name":"n","id":"a","input":{}}`:           wire.Content{Type: "tool_use", ID: "a", Name: "n"},
		`{"type":"tool_result","toolUseId":"a","content":[]}`:          wire.Content{Type: "tool_result", ToolUseID: "a"},
		`{"roots":[]}`:                  wire.RootsResult{},
		`{"role":"user","content":[]}`:  wire.SamplingMessage{Role: "user"},
		`{"messages":[],"maxTokens":1}`: wire.SamplingParams{MaxTokens: 1},
	} {
		if text, err := json.Marshal(content); err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
}

// One content of a message to a model stands alone on the wire, and several form an array. A tool reads both.
func TestSamplingContents(t *testing.T) {
	const head = `{"role":"assistant","content":`
	for _, row := range []struct {
		contents wire.Contents
		want     string
	}{
		{wire.Contents{wire.TextContent("a")}, head + `{"type":"text","text":"a"},"model":"m"}`},
		{wire.Contents{wire.TextContent("a"), wire.ImageContent([]byte{1}, "image/png")}, head + `[{"type":"text","text":"a"},{"type":"image","data":"AQ==","mimeType":"image/png"}],"model":"m"}`},
		{wire.Contents{{Type: "tool_use", Name: "get_weather", ID: "call_1", Input: json.RawMessage(`{"city":"Oslo"}`)}},
			head + `{"type":"tool_use","name":"get_weather","id":"call_1","input":{"city":"Oslo"}},"model":"m"}`},
		{wire.Contents{{Type: "tool_result", ToolUseID: "call_1", StructuredContent: json.RawMessage(`{"t":18}`), IsError: true, Content: wire.Contents{wire.TextContent("18")}}},
			head + `{"type":"tool_result","toolUseId":"call_1","structuredContent":{"t":18},"isError":true,"content":[{"type":"text","text":"18"}]},"model":"m"}`},
	} {
		server := newServer()
		wire.AddTool(server, wire.Tool{Name: "t"}, func(_ context.Context, x *wire.Exchange, _ struct{}) (any, error) {
			var answer wire.SamplingResult
			if !x.Input("q", &answer) {
				return sampling, nil
			}
			if !reflect.DeepEqual(answer.Content, row.contents) {
				t.Errorf("%+v, want %+v", answer.Content, row.contents)
			}
			return string(x.Inputs()["q"]), nil
		})
		answer := func(_ context.Context, x *wire.Exchange) (any, error) {
			var p wire.SamplingParams
			if err := x.Bind(&p); err != nil || p.MaxTokens != 9 || len(p.Messages) != 1 || p.Messages[0].Content[0].Text != "?" {
				t.Errorf("%+v, %v", p, err)
			}
			return wire.SamplingResult{Role: "assistant", Content: row.contents, Model: "m"}, nil
		}
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			c := connect(t, server, &wire.Client{Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{"sampling/createMessage": answer}})
			if got, err := callTool(t, c, "t"); err != nil || got != row.want {
				t.Errorf("%s: %s, %v, want %s", version, got, err, row.want)
			}
		}
	}
}

// sampling asks the model of a client.
var sampling = wire.InputRequired{Requests: map[string]wire.InputRequest{"q": {Method: "sampling/createMessage", Params: wire.SamplingParams{
	Messages: []wire.SamplingMessage{{Role: "user", Content: wire.Contents{wire.TextContent("?")}}}, MaxTokens: 9,
}}}}

// Progress with its message reaches the call that wants it, and no other one, over a pipe and over HTTP, in each era. 2024-11-05 has no
// message.
func TestCallWithProgress(t *testing.T) {
	server := newServer()
	ready := make(chan bool)
	wire.AddTool(server, wire.Tool{Name: "count"}, func(ctx context.Context, x *wire.Exchange, a struct {
		From int `json:"from"`
	}) (any, error) {
		select { // the two calls run at the same time
		case ready <- true:
		case <-ready:
		}
		for n := range 3 {
			if err := x.ProgressMessage(ctx, float64(a.From+n), 99, fmt.Sprint("at ", a.From+n)); err != nil {
				return nil, err
			}
		}
		return "done", nil
	})
	http := wire.HTTPDialer{URL: serveWeb(t, newHandler(t, server)).url}
	for _, row := range []struct {
		version string
		to      wire.Dialer
		message string
	}{
		{"2024-11-05", pipeTo(t, server), ""},
		{"2025-06-18", pipeTo(t, server), "at "}, {"2025-06-18", http, "at "},
		{"2025-11-25", pipeTo(t, server), "at "}, {"2025-11-25", http, "at "},
		{"2026-07-28", pipeTo(t, server), "at "}, {"2026-07-28", http, "at "},
	} {
		c := dial(t, row.to, &wire.Client{Versions: []string{row.version}})
		var calls sync.WaitGroup
		for _, from := range []int{10, 20} {
			calls.Go(func() {
				var got, want []wire.ProgressParams
				for n := from; n < from+3; n++ {
					p := wire.ProgressParams{Progress: float64(n), Total: 99}
					if row.message != "" {
						p.Message = fmt.Sprint(row.message, n)
					}
					want = append(want, p)
				}
				var result wire.ToolResult
				params := wire.CallToolParams{Name: "count", Arguments: map[string]int{"from": from}}
				err := c.CallWithProgress(t.Context(), "tools/call", params, &result, func(p wire.ProgressParams) {
					p.ProgressToken = nil
					got = append(got, p)
				})
				if err != nil || result.Text() != "done" || !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %v, want %v, %v", row.version, got, want, err)
				}
			})
		}
		calls.Wait()
	}
}

// Handlers come before Handler, which gets the rest. Without it a question is not found.
func TestHandlersComeBeforeHandler(t *testing.T) {
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "t"}, func(_ context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		if x.Inputs() == nil {
			return wire.InputRequired{Requests: map[string]wire.InputRequest{"a": {Method: "roots/list"}, "b": {Method: "sampling/createMessage"}}}, nil
		}
		return string(x.Inputs()["a"]) + string(x.Inputs()["b"]), nil
	})
	says := func(text string) wire.HandlerFunc {
		return func(context.Context, *wire.Exchange) (any, error) { return map[string]string{"by": text}, nil }
	}
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		for want, rest := range map[string]wire.Handler{`{"by":"Handlers"}{"by":"Handler"}`: says("Handler"), "Method not found: sampling/createMessage": nil} {
			c := connect(t, server, &wire.Client{Versions: []string{version}, Capabilities: map[string]any{"sampling": struct{}{}},
				Handlers: map[string]wire.HandlerFunc{"roots/list": says("Handlers")}, Handler: rest})
			if text, err := callTool(t, c, "t"); !strings.Contains(fmt.Sprint(text, err), want) {
				t.Errorf("%s: %s, %v, want %s", version, text, err, want)
			}
		}
	}
}

// A client that handles a question can be asked it: the handler declares that, unless Capabilities say more, and the revision knows it.
func TestHandlersDeclareThemselves(t *testing.T) {
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "t"}, func(_ context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		return string(x.Meta().ClientCapabilities), nil
	})
	for _, row := range []struct {
		declared     map[string]any
		handled      []string
		want, before string // before: in 2024-11-05, which has no elicitation
	}{
		{nil, nil, `{}`, `{}`},
		{nil, []string{"notifications/tools/list_changed"}, `{}`, `{}`},
		{nil, []string{"elicitation/create"}, `{"elicitation":{}}`, `{}`},
		{map[string]any{"tasks": struct{}{}}, []string{"sampling/createMessage", "roots/list"}, `{"roots":{},"sampling":{},"tasks":{}}`, `{"roots":{},"sampling":{},"tasks":{}}`},
		{map[string]any{"elicitation": map[string]any{"url": struct{}{}}}, []string{"elicitation/create"}, `{"elicitation":{"url":{}}}`, `{}`},
	} {
		handlers := map[string]wire.HandlerFunc{}
		for _, method := range row.handled {
			handlers[method] = func(context.Context, *wire.Exchange) (any, error) { return nil, nil }
		}
		for version, want := range map[string]string{"2024-11-05": row.before, "2025-06-18": row.want, "2025-11-25": row.want, "2026-07-28": row.want} {
			c := connect(t, server, &wire.Client{Versions: []string{version}, Capabilities: row.declared, Handlers: handlers})
			if got, err := callTool(t, c, "t"); err != nil || got != want {
				t.Errorf("%s, %q: %s, %v, want %s", version, row.handled, got, err, want)
			}
		}
	}
}

// A ReadFunc and a PromptFunc may ask, too. What they know so far is in State.
func TestResourcesAndPromptsAsk(t *testing.T) {
	server := newServer()
	ask := func(x *wire.Exchange) (any, error) {
		var answer wire.RootsResult
		if !x.Input("roots", &answer) {
			return wire.InputRequired{State: "asked", Requests: map[string]wire.InputRequest{"roots": {Method: "roots/list"}}}, nil
		}
		return fmt.Sprint(x.State(), " ", len(answer.Roots), " roots"), nil
	}
	server.AddResource(wire.Resource{URI: "a:b", Name: "r"}, func(_ context.Context, x *wire.Exchange, _ string) (any, error) { return ask(x) })
	server.AddPrompt(wire.Prompt{Name: "p"}, func(_ context.Context, x *wire.Exchange, _ map[string]string) (any, error) { return ask(x) })
	for _, version := range eachRevision {
		c := connect(t, server, &wire.Client{Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{
			"roots/list": func(context.Context, *wire.Exchange) (any, error) { return wire.RootsResult{}, nil },
		}})
		var read wire.ReadResourceResult
		var prompt wire.PromptResult
		err := errors.Join(c.Call(t.Context(), "resources/read", wire.ResourceParams{URI: "a:b"}, &read),
			c.Call(t.Context(), "prompts/get", wire.GetPromptParams{Name: "p"}, &prompt))
		const want = "asked 0 roots"
		if err != nil || len(read.Contents) != 1 || read.Contents[0].Text != want || len(prompt.Messages) != 1 || prompt.Messages[0].Content.Text != want {
			t.Errorf("%s: %+v, %+v, %v", version, read, prompt, err)
		}
	}
}

// Tools are added, removed, listed and called at the same time. Those that stay are always there.
func TestOffersWhileServing(t *testing.T) {
	server := newServer()
	for n := range 60 {
		wire.AddTool(server, wire.Tool{Name: fmt.Sprintf("stays-%02d", n)}, noTool)
	}
	c := connect(t, server, &wire.Client{})
	var all sync.WaitGroup
	for n := range 4 {
		all.Go(func() {
			for range 50 {
				name := fmt.Sprint("goes-", n)
				wire.AddTool(server, wire.Tool{Name: name}, noTool)
				server.RemoveTool(name)
			}
		})
		all.Go(func() {
			for range 20 {
				var first, second wire.ListToolsResult
				err := c.Call(t.Context(), "tools/list", nil, &first)
				err = errors.Join(err, c.Call(t.Context(), "tools/list", map[string]string{"cursor": first.NextCursor}, &second))
				stay := 0
				for _, tool := range slices.Concat(first.Tools, second.Tools) {
					if strings.HasPrefix(tool.Name, "stays-") {
						stay++
					}
				}
				_, called := callTool(t, c, "stays-59")
				if err = errors.Join(err, called); err != nil || stay != 60 {
					t.Errorf("%d tools stay, %v", stay, err)
				}
			}
		})
	}
	all.Wait()
}

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

// A Server that declares tools, prompts or resources answers their lists though Methods does not: they are empty. One that Methods answers
// is left alone, also where something was added.
func TestDeclaredListsAreAnswered(t *testing.T) {
	own := func(context.Context, *wire.Exchange) (any, error) { return json.RawMessage(`{"tools":[1]}`), nil }
	server := newServer()
	server.Capabilities = map[string]any{"tools": struct{}{}, "prompts": struct{}{}, "resources": struct{}{}}
	server.Methods = map[string]wire.HandlerFunc{"tools/list": own}
	wire.AddTool(server, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return "run", nil })
	for list, want := range map[string]string{"tools": `"tools":[1]`, "prompts": `"prompts":[]`, "resources": `"resources":[]`} {
		method := list + "/list"
		for _, line := range []string{modernRequest(method, ""), `{"jsonrpc":"2.0","id":1,"method":"` + method + `"}`} {
			var log shared.Output // of methods that are not served; here there are none
			out, err := serveLines(t, server, slog.New(slog.NewTextHandler(&log, nil)), shared.InitializeLine("2025-11-25"), line)
			if err != nil || !strings.Contains(answerTo(out, "1"), want) || log.String() != "" {
				t.Errorf("%s: %s, %v, want %s; %s", method, out, err, want, log.String())
			}
		}
	}
	checkAnswers(t, server, "tools/call", map[string]string{`"name":"t"`: `"result":{"content":[{"type":"text","text":"run"}]}`})
}

// A method of MCP that Methods holds is served in every revision, and declares its capability.
func TestMethodsDeclareTheirCapability(t *testing.T) {
	nothing := func(context.Context, *wire.Exchange) (any, error) { return nil, nil }
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"completion/complete": nothing, "prompts/get": nothing, "resources/read": nothing, "tools/call": nothing, "time/now": nothing}}
	for _, version := range []string{"2024-11-05", "2025-11-25", "2026-07-28"} {
		for method := range server.Methods {
			if out := answered(t, server, version, method, ""); !strings.HasPrefix(out, `"result"`) {
				t.Errorf("%s, %s: %s", version, method, out)
			}
		}
	}
	const all = `"capabilities":{"completions":{},"prompts":{},"resources":{},"tools":{}}`
	if out := answered(t, server, "2026-07-28", "server/discover", ""); !strings.Contains(out, all) {
		t.Error(out)
	}
}

// Nothing that a program has not offered is served, and what it has offered is served from the first request on.
func TestEnteredByUse(t *testing.T) {
	ask := []string{"logging/setLevel", "resources/subscribe", "resources/list", "prompts/list", "subscriptions/listen", "completion/complete", "tools/list"}
	const params = `"level":"info","uri":"a:b","notifications":{}`
	none, tool, resources := &wire.Server{}, &wire.Server{}, &wire.Server{Capabilities: map[string]any{"resources": json.RawMessage(`{"subscribe":true}`)}}
	wire.AddTool(tool, wire.Tool{Name: "t"}, noTool)
	resources.OfferLogging()
	resources.AnnounceChanges()
	for server, offered := range map[*wire.Server][]string{none: nil, tool: ask[6:], resources: ask[:3]} {
		for _, method := range ask {
			got := answered(t, server, "2025-11-25", method, params)
			if isOffered := slices.Contains(offered, method); strings.HasPrefix(got, `"result"`) != isOffered || strings.Contains(got, "-32601") == isOffered {
				t.Errorf("%s: %s", method, got)
			}
			if got := answered(t, server, "2026-07-28", method, params); server != resources && !slices.Contains(offered, method) && !strings.Contains(got, "-32601") {
				t.Errorf("%s, modern: %s", method, got)
			}
		}
	}
	if got := answered(t, resources, "2025-11-25", "resources/list", `"cursor":"x"`); !strings.Contains(got, "Unknown cursor: x") {
		t.Error("a cursor of a list without entries:", got)
	}
	resources.Publish("notifications/resources/updated", map[string]string{"uri": "a:b"})
	if got := converse(t, none, shared.InitializeLine("2025-11-25"), modernRequest("server/discover", "")); strings.Count(strings.Join(got, ""), `"capabilities":{}`) != 2 {
		t.Error("a server without capabilities:", got)
	}
}
