// Mcpwire is the wire of the Model Context Protocol in one flat package that imports only the standard library: messages, stdio, and the
// lifecycle of all five revisions from both ends. As a program it is a tiny demo server and a client for any server:
//
//	mcpwire                                          serve the demo on standard input and output
//	mcpwire call COMMAND [ARG...]                    start a server, say how it was reached and what it offers
//	mcpwire call -method tools/list COMMAND [ARG...] call one method and print its result
//
// The library is jsonrpc.go (messages, and talking to one peer), stdio.go (lines over a byte stream) and session.go (the lifecycle), to be
// read in that order; none of them needs this file, which is the demo. README.md says which to copy for what.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

const version = "0.1.0"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal kills
	if len(os.Args) > 1 && os.Args[1] == "call" {
		os.Exit(call(ctx, os.Args[2:], os.Stdin, os.Stdout, os.Stderr))
	}
	os.Exit(serve(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

const (
	exitError = 1
	exitUsage = 2
)

// parse reads flags; done says that there is nothing left to do, and exit how it ended.
func parse(flags *flag.FlagSet, args []string, usage string, stdout, stderr io.Writer) (done bool, exit int) {
	flags.SetOutput(io.Discard)
	flags.Usage = func() {}
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(stdout, usage)
		flags.SetOutput(stdout)
		flags.PrintDefaults()
		return true, 0
	case err != nil:
		return true, fail(stderr, exitUsage, "%v (-h for help)", err)
	}
	return false, 0
}

func fail(stderr io.Writer, exit int, format string, args ...any) int {
	fmt.Fprintf(stderr, "mcpwire: "+format+"\n", args...)
	return exit
}

// ---- Serving ----

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("mcpwire", flag.ContinueOnError)
	maxBody := flags.Int("max-body", 4<<20, "`bytes` in one message")
	stateKey := flags.String("state-key", "", "`key` of requestState, the same on all replicas (default $MCPWIRE_STATE_KEY, or random)")
	versions := flags.String("versions", "", "protocol versions to offer, as a comma-separated `list` (default all)")
	trace := flags.Bool("trace", false, "print every message to stderr")
	showVersion := flags.Bool("version", false, "print the version")
	if done, exit := parse(flags, args, "usage: mcpwire [flags]       serve the demo on stdin and stdout\n       mcpwire call -h      the client", stdout, stderr); done {
		return exit
	}
	offered, err := parseVersions(*versions)
	switch {
	case *showVersion:
		fmt.Fprintln(stdout, "mcpwire", version)
		return 0
	case flags.NArg() > 0:
		return fail(stderr, exitUsage, "unexpected argument %q (-h for help)", flags.Arg(0))
	case err != nil:
		return fail(stderr, exitUsage, "-versions: %v", err)
	case *maxBody <= 0:
		return fail(stderr, exitUsage, "-max-body must be positive")
	}
	demo := newDemo()
	demo.Versions, demo.StateKey = offered, []byte(cmp.Or(*stateKey, os.Getenv("MCPWIRE_STATE_KEY")))
	conn := StdioConn(*maxBody)
	if *trace {
		conn = &tracer{Conn: conn, w: stderr, here: "server", there: "client"}
	}
	err = Serve(ctx, conn, demo, slog.New(slog.NewTextHandler(stderr, nil)))
	if err != nil && ctx.Err() == nil && !errors.Is(err, syscall.EPIPE) { // a client that is gone is how a server's life ends
		return fail(stderr, exitError, "%v", err)
	}
	return 0
}

func parseVersions(list string) (versions []string, err error) {
	for _, rev := range Revisions {
		if list == "" || slices.Contains(strings.Split(list, ","), rev.Version) {
			versions = append(versions, rev.Version)
		}
	}
	if list != "" && len(versions) != len(strings.Split(list, ",")) {
		return nil, fmt.Errorf("unknown or repeated version in %q", list)
	}
	return versions, nil
}

// tracer prints what passes through a Conn, in the notation of testdata/*.txtar: what came byte for byte, what goes as it is sent.
type tracer struct {
	Conn
	w           io.Writer
	here, there string

	mu   sync.Mutex // guards last
	last string
}

func (t *tracer) Read() (Payload, error) {
	p, err := t.Conn.Read()
	if err == nil {
		t.print(t.there, cmp.Or(string(bytes.TrimSpace(p.raw)), "(not kept: too large)"))
	}
	return p, err
}

func (t *tracer) Write(ctx context.Context, p Payload) error {
	t.print(t.here, string(p.Append(nil)))
	return t.Conn.Write(ctx, p)
}

func (t *tracer) print(who, line string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if who != t.last {
		fmt.Fprintf(t.w, "-- %s --\n", who)
		t.last = who
	}
	fmt.Fprintf(t.w, "%s\n", line)
}

// ---- The demo: one of each thing that a transport must carry ----

// demo is a small, deterministic server.
type demo struct {
	*Server
	mu    sync.Mutex // guards notes
	notes map[string]string
}

const (
	maxNotes = 200
	maxNote  = 64 << 10
	maxEcho  = 16 << 20
	pageSize = 50
)

// A 1×1 PNG, so that the mechanism of icons can be seen.
var icon = Icon{MimeType: "image/png", Sizes: []string{"1x1"},
	Src: "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="}

func newDemo() *demo {
	d := &demo{notes: map[string]string{"welcome": "This note is served by mcpwire."}}
	d.Server = &Server{
		Info: Implementation{Name: "mcpwire", Title: "mcpwire demo", Version: version, Icons: []Icon{icon}},
		Capabilities: map[string]any{"completions": struct{}{}, "logging": struct{}{}, "prompts": struct{}{}, "tools": struct{}{},
			"resources": map[string]any{"listChanged": true, "subscribe": true}},
		Instructions: "A demo: made-up weather, an echo, a counter, a question and a few notes.",
		Methods: map[string]HandlerFunc{
			"tools/list":               d.listTools,
			"tools/call":               d.callTool,
			"resources/list":           d.listResources,
			"resources/templates/list": d.listTemplates,
			"resources/read":           d.readResource,
			"prompts/list":             d.listPrompts,
			"prompts/get":              d.getPrompt,
			"completion/complete":      d.complete,
		},
	}
	return d
}

// page returns the part of a list that the request's cursor points at; key orders the items, and they come in its order.
func page[T any](x *Exchange, name string, items []T, key func(T) string) (any, error) {
	const mark = "after "
	var cursor *string
	if err := Bind(x.Request.Params, map[string]any{"cursor": &cursor}); err != nil {
		return nil, err
	}
	if cursor != nil {
		after, err := base64.RawURLEncoding.DecodeString(*cursor)
		if err != nil || !strings.HasPrefix(string(after), mark) {
			return nil, invalidParams("Unknown cursor: '%s'", *cursor)
		}
		items = slices.DeleteFunc(slices.Clone(items), func(item T) bool { return key(item) <= string(after[len(mark):]) })
	}
	result := map[string]any{name: items[:min(len(items), pageSize)]}
	if len(items) > pageSize {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte(mark + key(items[pageSize-1])))
	}
	return result, nil
}

// titled drops the title of something where the revision does not know titles.
func titled(x *Exchange, title string) string {
	if x.Revision.Titles {
		return title
	}
	return ""
}

// ---- Tools ----

// tool is one entry of tools/list, and what it does.
type tool struct {
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description"`
	InputSchema json.RawMessage `json:"inputSchema"`
	Icons       []Icon          `json:"icons,omitempty"`

	run func(d *demo, ctx context.Context, x *Exchange, args json.RawMessage) (any, error)
}

// headerMark asks a modern client to repeat an argument as a header of its HTTP request.
const headerMark = `"x-mcp-header":"Unit",`

var tools = []tool{ // in the order of their names
	{Name: "ask", Title: "Ask for a name", Description: "Asks the user for a name, and greets.", run: (*demo).ask,
		InputSchema: json.RawMessage(`{"type":"object","properties":{}}`)},
	{Name: "count", Title: "Count", Description: "Counts to n, one step after the other, and reports each.", run: (*demo).count,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"n":{"type":"integer","minimum":0,"maximum":1000000,"description":"steps"},` +
			`"delayMs":{"type":"integer","minimum":0,"maximum":600000,"default":0,"description":"wait before each step"}},"required":["n"]}`)},
	{Name: "echo", Title: "Echo", Description: "Returns the text it is given.", run: (*demo).echo,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"text":{"type":"string","description":"what to return"},` +
			`"repeat":{"type":"integer","minimum":1,"default":1,"description":"how many times in a row"}},"required":["text"]}`)},
	{Name: "get-weather", Title: "Weather", Description: "The current temperature in a city. The data is made up.", run: (*demo).getWeather, Icons: []Icon{icon},
		InputSchema: json.RawMessage(`{"type":"object","properties":{"city":{"type":"string","minLength":1,"description":"name of the city"},` +
			`"unit":{"type":"string",` + headerMark + `"enum":["celsius","fahrenheit"],"default":"celsius","description":"unit of the temperature"}},"required":["city"]}`)},
	{Name: "set-note", Title: "Write a note", Description: "Keeps a note, to be read as the resource note:///NAME.", run: (*demo).setNote,
		InputSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"name of the note"},` +
			`"text":{"type":"string","maxLength":65536,"description":"the note"}},"required":["name","text"]}`)},
}

func (d *demo) listTools(_ context.Context, x *Exchange) (any, error) {
	list := slices.Clone(tools)
	for i := range list {
		t := &list[i]
		t.Title = titled(x, t.Title)
		if !x.Revision.Icons {
			t.Icons = nil
		}
		if !x.Revision.Modern {
			t.InputSchema = bytes.Replace(t.InputSchema, []byte(headerMark), nil, 1)
		}
	}
	return page(x, "tools", list, func(t tool) string { return t.Name })
}

func (d *demo) callTool(ctx context.Context, x *Exchange) (any, error) {
	var name string
	var args json.RawMessage
	if err := Bind(x.Request.Params, map[string]any{"name": &name, "arguments": &args}); err != nil {
		return nil, err
	}
	for _, t := range tools {
		if t.Name != name {
			continue
		}
		result, err := t.run(d, ctx, x, args)
		text, ok := result.(string)
		if err != nil || !ok {
			return result, err
		}
		answer := ToolResult{Content: []any{TextContent(text)}}
		if x.Revision.Titles { // keys of _meta have a grammar from 2025-06-18 on; this one only shows what one of one's own looks like
			answer.Meta = map[string]any{"com.example.mcpwire/tool": name}
		}
		return answer, nil
	}
	return nil, invalidParams("Unknown tool: '%s'", name)
}

func toolError(text string) ToolResult {
	return ToolResult{Content: []any{TextContent(text)}, IsError: true}
}

func missing(argument string) error {
	return invalidParams("Missing required argument: '%s'", argument)
}

// integer checks a JSON number: 3 and 3.0 are the same integer.
func integer(name string, n float64, least, most int) (int, error) {
	if n != math.Trunc(n) || n < float64(least) || n > float64(most) {
		return 0, invalidParams("'%s' must be an integer from %d to %d", name, least, most)
	}
	return int(n), nil
}

func (d *demo) getWeather(_ context.Context, _ *Exchange, args json.RawMessage) (any, error) {
	city, unit := "", "celsius"
	if err := Bind(args, map[string]any{"city": &city, "unit": &unit}); err != nil {
		return nil, err
	}
	temperature, known := map[string]string{"celsius": "18°C", "fahrenheit": "64°F"}[unit]
	switch {
	case city == "":
		return nil, missing("city")
	case !known:
		return nil, invalidParams("'unit' must be celsius or fahrenheit")
	}
	return fmt.Sprintf("Current temperature in %s is %s", city, temperature), nil
}

func (d *demo) echo(_ context.Context, _ *Exchange, args json.RawMessage) (any, error) {
	var text *string
	repeat := 1.0
	if err := Bind(args, map[string]any{"text": &text, "repeat": &repeat}); err != nil {
		return nil, err
	}
	if text == nil {
		return nil, missing("text")
	}
	n, err := integer("repeat", repeat, 1, maxEcho)
	if err != nil {
		return nil, err
	}
	if n*len(*text) > maxEcho {
		return nil, invalidParams("more than %d bytes to echo", maxEcho)
	}
	return strings.Repeat(*text, n), nil
}

func (d *demo) count(ctx context.Context, x *Exchange, args json.RawMessage) (any, error) {
	var steps *float64
	delay := 0.0
	if err := Bind(args, map[string]any{"n": &steps, "delayMs": &delay}); err != nil {
		return nil, err
	}
	if steps == nil {
		return nil, missing("n")
	}
	n, err := integer("n", *steps, 0, 1_000_000)
	if err != nil {
		return nil, err
	}
	ms, err := integer("delayMs", delay, 0, 600_000)
	if err != nil {
		return nil, err
	}
	for i := 1; i <= n; i++ {
		if ms > 0 {
			select {
			case <-time.After(time.Duration(ms) * time.Millisecond):
			case <-ctx.Done():
			}
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := x.Progress(ctx, float64(i), float64(n)); err != nil {
			return nil, err
		}
		if err := x.Log(ctx, "debug", fmt.Sprintf("step %d of %d", i, n)); err != nil {
			return nil, err
		}
	}
	return fmt.Sprintf("counted to %d", n), nil
}

func (d *demo) ask(_ context.Context, x *Exchange, args json.RawMessage) (any, error) {
	if err := Bind(args, nil); err != nil {
		return nil, err
	}
	answer := x.Inputs["name"]
	name := unquote(lookup(answer, "content", "name"))
	switch action := unquote(member(answer, "action")); {
	case action == "accept" && name != "":
		return "Hello, " + name, nil
	case action == "decline" || action == "cancel":
		return toolError("No name: the user chose " + action), nil
	} // anything else is no answer: ask, or ask again
	return InputRequired{Requests: map[string]InputRequest{"name": {Method: "elicitation/create", Params: json.RawMessage(
		`{"message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}}`)}}}, nil
}

var noteName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func (d *demo) setNote(_ context.Context, _ *Exchange, args json.RawMessage) (any, error) {
	var name, text *string
	if err := Bind(args, map[string]any{"name": &name, "text": &text}); err != nil {
		return nil, err
	}
	switch {
	case name == nil:
		return nil, missing("name")
	case text == nil:
		return nil, missing("text")
	case !noteName.MatchString(*name):
		return nil, invalidParams("'name' must match %s", noteName)
	case utf8.RuneCountInString(*text) > maxNote:
		return nil, invalidParams("'text' is longer than %d characters", maxNote)
	}
	d.mu.Lock()
	_, known := d.notes[*name]
	full := !known && len(d.notes) >= maxNotes
	if !full {
		d.notes[*name] = *text
	}
	d.mu.Unlock()
	if full {
		return toolError(fmt.Sprintf("There are %d notes already; no room for more.", maxNotes)), nil
	}
	if !known {
		d.Publish("notifications/resources/list_changed", nil)
	}
	d.Publish("notifications/resources/updated", map[string]any{"uri": scheme + *name})
	return "Noted as " + scheme + *name, nil
}

// ---- Resources, prompts, completion ----

const scheme = "note:///"

func (d *demo) listResources(_ context.Context, x *Exchange) (any, error) {
	d.mu.Lock()
	names := slices.Sorted(maps.Keys(d.notes))
	d.mu.Unlock()
	type resource struct {
		URI      string `json:"uri"`
		Name     string `json:"name"`
		MimeType string `json:"mimeType"`
	}
	list := []resource{}
	for _, name := range names {
		list = append(list, resource{scheme + name, name, "text/plain"})
	}
	return page(x, "resources", list, func(r resource) string { return r.Name })
}

func (d *demo) listTemplates(_ context.Context, x *Exchange) (any, error) {
	type template struct {
		URITemplate string `json:"uriTemplate"`
		Name        string `json:"name"`
		Description string `json:"description"`
		MimeType    string `json:"mimeType"`
	}
	list := []template{{scheme + "{name}", "note", "A note by its name.", "text/plain"}}
	return page(x, "resourceTemplates", list, func(t template) string { return t.Name })
}

// contents are those of a note, as resources/read and an embedded resource have them.
type contents struct {
	URI      string `json:"uri"`
	MimeType string `json:"mimeType"`
	Text     string `json:"text"`
}

func (d *demo) note(name string) (note contents, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok := d.notes[name]
	return contents{scheme + name, "text/plain", text}, ok
}

func (d *demo) readResource(_ context.Context, x *Exchange) (any, error) {
	var uri string
	if err := Bind(x.Request.Params, map[string]any{"uri": &uri}); err != nil {
		return nil, err
	}
	if uri == "" {
		return nil, invalidParams("Missing uri")
	}
	name, ours := strings.CutPrefix(uri, scheme)
	note, ok := d.note(name)
	if !ours || !ok {
		data, _ := marshal(map[string]string{"uri": uri})
		return nil, &Error{Code: x.Revision.ResourceNotFound, Message: "Resource not found", Data: data}
	}
	return map[string]any{"contents": []contents{note}}, nil
}

func (d *demo) listPrompts(_ context.Context, x *Exchange) (any, error) {
	type prompt struct {
		Name        string          `json:"name"`
		Title       string          `json:"title,omitempty"`
		Description string          `json:"description"`
		Arguments   json.RawMessage `json:"arguments"`
	}
	list := []prompt{{"summarize-note", titled(x, "Summarize a note"), "Asks for a summary of a note.",
		json.RawMessage(`[{"name":"name","description":"name of the note","required":true}]`)}}
	return page(x, "prompts", list, func(p prompt) string { return p.Name })
}

func (d *demo) getPrompt(_ context.Context, x *Exchange) (any, error) {
	var prompt, name string
	var args json.RawMessage
	if err := Bind(x.Request.Params, map[string]any{"name": &prompt, "arguments": &args}); err != nil {
		return nil, err
	}
	if prompt != "summarize-note" {
		return nil, invalidParams("Unknown prompt: '%s'", prompt)
	}
	if err := Bind(args, map[string]any{"name": &name}); err != nil {
		return nil, err
	}
	note, ok := d.note(name)
	switch {
	case name == "":
		return nil, missing("name")
	case !ok:
		return nil, invalidParams("Unknown note: '%s'", name)
	}
	type embedded struct {
		Type     string   `json:"type"`
		Resource contents `json:"resource"`
	}
	type message struct {
		Role    string `json:"role"`
		Content any    `json:"content"`
	}
	return map[string]any{"messages": []message{
		{"user", embedded{"resource", note}},
		{"user", TextContent("Summarize this note in one sentence.")},
	}}, nil
}

// complete completes the name of a note, for the prompt and for the template.
func (d *demo) complete(_ context.Context, x *Exchange) (any, error) {
	var ref, argument json.RawMessage
	var kind, name, uri, field, value string
	err := errors.Join(Bind(x.Request.Params, map[string]any{"ref": &ref, "argument": &argument}),
		Bind(ref, map[string]any{"type": &kind, "name": &name, "uri": &uri}),
		Bind(argument, map[string]any{"name": &field, "value": &value}))
	known := kind == "ref/prompt" && name == "summarize-note" || kind == "ref/resource" && uri == scheme+"{name}"
	switch {
	case err != nil:
		return nil, err
	case !known:
		return nil, invalidParams("Unknown reference")
	case field != "name":
		return nil, invalidParams("Unknown argument: '%s'", field)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	values := []string{}
	for _, note := range slices.Sorted(maps.Keys(d.notes)) {
		if strings.HasPrefix(note, value) {
			values = append(values, note)
		}
	}
	return map[string]any{"completion": map[string]any{"values": values[:min(len(values), 100)], "total": len(values), "hasMore": len(values) > 100}}, nil
}

// ---- Calling ----

// caller is the client's command line: one connection, one call at a time.
type caller struct {
	Client
	input          func() <-chan string // lines of stdin, read by one goroutine until it ends
	stdout, stderr io.Writer
	ask            bool            // the user sits at a terminal
	reply          json.RawMessage // content for every elicitation; empty: ask at the terminal, or decline where there is none
	timeout        time.Duration
	target         string

	form chan struct{} // held by who asks the user

	mu     sync.Mutex // guards the fields below, and keeps notifications out of a form's prompts
	tokens int
	idle   *time.Timer
}

const callUsage = `usage: mcpwire call [flags] COMMAND [ARG...]
Without -method: how the server was reached, and what it offers.`

func call(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	method := flags.String("method", "", "`method` to call, such as tools/list")
	params := flags.String("params", "", "its params, a `JSON` object")
	protocol := flags.String("protocol", "", "speak this `revision` (default: find out)")
	answer := flags.String("answer", "", "accept elicitations with this content, a `JSON` object (default: ask at a terminal, else decline)")
	timeout := flags.Duration("timeout", time.Minute, "for one call, extended by its progress up to ten times; 0: none")
	interactive := flags.Bool("i", false, "read METHOD [PARAMS] lines from stdin, one answer each")
	trace := flags.Bool("trace", false, "print every message to stderr")
	if done, exit := parse(flags, args, callUsage, stdout, stderr); done {
		return exit
	}
	command := flags.Args()
	switch {
	case len(command) == 0:
		return fail(stderr, exitUsage, "no server to call (-h for help)")
	case strings.HasPrefix(command[0], "http://") || strings.HasPrefix(command[0], "https://"):
		return fail(stderr, exitUsage, "%s: only commands can be called so far, not URLs", command[0])
	case *params != "" && (*method == "" || !isObject(*params)):
		return fail(stderr, exitUsage, "-params takes a JSON object, and goes with -method")
	case *answer != "" && !isObject(*answer):
		return fail(stderr, exitUsage, "-answer takes a JSON object")
	case *timeout < 0:
		return fail(stderr, exitUsage, "-timeout must not be negative")
	case *interactive && *method != "":
		return fail(stderr, exitUsage, "-i and -method exclude each other")
	case *protocol != "" && revision(*protocol).Version == "":
		return fail(stderr, exitUsage, "-protocol: unknown revision %q", *protocol)
	}
	c := &caller{stdout: stdout, stderr: stderr, timeout: *timeout, reply: json.RawMessage(*answer), target: strings.Join(command, " ")}
	c.input = sync.OnceValue(func() <-chan string { return readLines(stdin) })
	c.form = make(chan struct{}, 1)
	c.Info = Implementation{Name: "mcpwire", Title: "mcpwire call", Version: version}
	c.Capabilities = map[string]any{"elicitation": struct{}{}}
	c.Handler = c
	c.Log = slog.New(slog.NewTextHandler(stderr, nil))
	c.ask = *answer == "" && !*interactive && isTerminal(stdin)
	if *protocol != "" {
		c.Versions = []string{*protocol}
	}
	dial := DialCommand(func() *exec.Cmd {
		cmd := exec.Command(command[0], command[1:]...)
		cmd.Stderr = stderr
		return cmd
	}, 2*time.Second, 64<<20)
	if *trace {
		dial = traced(dial, stderr)
	}
	return c.run(ctx, dial, *method, json.RawMessage(*params), *interactive)
}

func traced(dial Dialer, w io.Writer) Dialer {
	return func(ctx context.Context) (Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &tracer{Conn: conn, w: w, here: "client", there: "server"}, nil
	}
}

func isObject(text string) bool {
	return json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
}

// isTerminal tells whether somebody may sit there and type.
func isTerminal(r io.Reader) bool {
	file, ok := r.(*os.File)
	if !ok {
		return false
	}
	info, err := file.Stat()
	null, noNull := os.Stat(os.DevNull)
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && (noNull != nil || !os.SameFile(info, null))
}

// readLines reads lines on a goroutine of its own, because nothing can interrupt it; it ends with its input or with the process.
func readLines(r io.Reader) <-chan string {
	lines := make(chan string)
	go func() {
		defer close(lines)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadString('\n')
			if line != "" {
				lines <- strings.TrimSpace(line)
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// run connects, does what was asked, and hangs up.
func (c *caller) run(ctx context.Context, dial Dialer, method string, params json.RawMessage, interactive bool) int {
	err := c.limited(ctx, func(ctx context.Context) error { return c.Connect(ctx, dial) })
	if err != nil {
		return fail(c.stderr, exitError, "%v", err)
	}
	defer c.Close()
	switch {
	case interactive:
		return c.lines(ctx)
	case method != "":
		err = c.print(ctx, method, params)
	default:
		err = c.summary(ctx)
	}
	if err != nil {
		return fail(c.stderr, exitError, "%v", err)
	}
	return 0
}

// lines answers METHOD [PARAMS] lines; one that fails does not keep the next from being tried.
func (c *caller) lines(ctx context.Context) (exit int) {
	for {
		var line string
		select {
		case <-ctx.Done():
			return exitError
		case next, more := <-c.input():
			if !more {
				return exit
			}
			line = next
		}
		method, params := line, ""
		if i := strings.IndexAny(line, " \t"); i >= 0 {
			method, params = line[:i], strings.TrimSpace(line[i:])
		}
		switch {
		case method == "":
		case params != "" && !isObject(params):
			exit = fail(c.stderr, exitError, "%s: params must be a JSON object", method)
		default:
			if err := c.print(ctx, method, json.RawMessage(params)); err != nil {
				exit = fail(c.stderr, exitError, "%v", err)
			}
		}
	}
}

// print calls a method and prints its result, as it came, on one line.
func (c *caller) print(ctx context.Context, method string, params json.RawMessage) error {
	var result json.RawMessage
	if err := c.call(ctx, method, params, &result); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	_, err := c.stdout.Write(append(appendLine(nil, result), '\n'))
	return err
}

// call calls a method within the time-out, which progress extends.
func (c *caller) call(ctx context.Context, method string, params json.RawMessage, result any) error {
	given := map[string]json.RawMessage{}
	if len(params) > 0 {
		for name, value := range each(bytes.TrimSpace(params)) {
			given[string(name)] = value
		}
	}
	meta := given["_meta"]
	if c.timeout > 0 && (meta == nil || meta[0] == '{' && member(meta, "progressToken") == nil) {
		c.mu.Lock()
		c.tokens++
		token := fmt.Appendf(nil, `{"progressToken":%d`, c.tokens)
		c.mu.Unlock()
		if rest := bytes.TrimLeft(bytes.TrimPrefix(meta, []byte("{")), " \t\r\n"); len(rest) > 1 {
			token = append(append(token, ','), rest...)
		} else {
			token = append(token, '}')
		}
		given["_meta"] = token
	}
	return c.limited(ctx, func(ctx context.Context) error { return c.Call(ctx, method, given, result) })
}

// limited runs f within the time-out: each progress notification starts it anew, but not beyond ten times its length.
func (c *caller) limited(ctx context.Context, f func(context.Context) error) error {
	if c.timeout <= 0 {
		return f(ctx)
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	expire := func() { cancel(fmt.Errorf("no answer within %v", c.timeout)) }
	idle, hard := time.AfterFunc(c.timeout, expire), time.AfterFunc(10*min(c.timeout, math.MaxInt64/10), expire)
	defer idle.Stop()
	defer hard.Stop()
	c.mu.Lock()
	c.idle = idle
	c.mu.Unlock()
	err := f(ctx)
	if errors.Is(err, context.Canceled) && context.Cause(ctx) != context.Canceled {
		return context.Cause(ctx)
	}
	return err
}

// summary prints how the server was reached and what it offers.
func (c *caller) summary(ctx context.Context) error {
	server := c.Server()
	who := "it did not say"
	if server.Info != nil {
		who = strings.TrimSpace(fmt.Sprintf("%s %s %s", server.Info.Name, server.Info.Version, server.Info.Title))
	}
	var capabilities []string
	if len(server.Capabilities) > 0 && server.Capabilities[0] == '{' {
		for name := range each(server.Capabilities) {
			capabilities = append(capabilities, string(name))
		}
	}
	slices.Sort(capabilities)
	rows := [][2]string{{"target", c.target}, {"transport", "stdio"}, {"revision", server.Version}, {"session", "none"},
		{"server", who}, {"capabilities", strings.Join(capabilities, ", ")}}
	var failed error
	for _, list := range []struct{ label, capability, method, items, name string }{
		{"tools", "tools", "tools/list", "tools", "name"},
		{"resources", "resources", "resources/list", "resources", "uri"},
		{"templates", "resources", "resources/templates/list", "resourceTemplates", "uriTemplate"},
		{"prompts", "prompts", "prompts/list", "prompts", "name"},
	} {
		if !slices.Contains(capabilities, list.capability) {
			continue
		}
		names, err := c.list(ctx, list.method, list.items, list.name)
		if failed = errors.Join(failed, err); err != nil {
			names = []string{"?"} // and why on stderr
		}
		rows = append(rows, [2]string{list.label, strings.Join(names, ", ")})
	}
	for _, row := range rows {
		if strings.ContainsFunc(row[1], func(r rune) bool { return !unicode.IsPrint(r) }) {
			row[1] = strconv.Quote(row[1]) // it comes from the server, and may hold anything
		}
		fmt.Fprintf(c.stdout, "%-13s %s\n", row[0], row[1])
	}
	return failed
}

// list returns the names of all items of a list, page by page. 2026-07-28 pagination: an empty cursor is not the end.
func (c *caller) list(ctx context.Context, method, items, name string) (names []string, err error) {
	params := json.RawMessage("{}")
	for range 1000 {
		var result json.RawMessage
		if err := c.call(ctx, method, params, &result); err != nil {
			return nil, err
		}
		found := member(result, items)
		if len(found) == 0 || found[0] != '[' {
			return nil, fmt.Errorf("%s: no %s in the result", method, items)
		}
		for item := range elements(found) {
			names = append(names, unquote(member(item, name)))
		}
		next := member(result, "nextCursor")
		if next == nil || string(next) == "null" {
			return names, nil
		}
		params = slices.Concat([]byte(`{"cursor":`), next, []byte("}"))
	}
	return names, fmt.Errorf("%s: no end of pages", method)
}

// Handle shows notifications, and answers elicitations.
func (c *caller) Handle(ctx context.Context, x *Exchange) (any, error) {
	method, params := x.Request.Method, x.Request.Params
	if x.Request.Kind() == Notification {
		c.mu.Lock()
		defer c.mu.Unlock()
		if method == "notifications/progress" && c.idle != nil && c.idle.Stop() {
			c.idle.Reset(c.timeout)
		}
		fmt.Fprintln(c.stderr, strings.TrimSpace(method+" "+string(params)))
		return nil, nil
	}
	mode := unquote(member(params, "mode"))
	switch {
	case method != "elicitation/create":
		return nil, methodNotFound(method)
	case mode != "" && mode != "form": // 2025-11-25 client/elicitation: a mode that was not declared is -32602
		return nil, invalidParams("only forms can be filled in here, not mode '%s'", mode)
	case len(c.reply) > 0:
		return map[string]any{"action": "accept", "content": c.reply}, nil
	case c.ask:
		return c.fillIn(ctx, params)
	}
	return map[string]any{"action": "decline"}, nil
}

// fillIn asks at the terminal for each property of the form, one form at a time; end of input cancels.
func (c *caller) fillIn(ctx context.Context, params json.RawMessage) (any, error) {
	select {
	case c.form <- struct{}{}:
		defer func() { <-c.form }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	c.show("%s\n", unquote(member(params, "message")))
	content := map[string]any{}
	properties := lookup(params, "requestedSchema", "properties")
	if len(properties) == 0 || properties[0] != '{' {
		properties = json.RawMessage("{}")
	}
	for name, schema := range each(properties) {
		kind := unquote(member(schema, "type"))
		c.show("%s (%s): ", name, kind)
		var line string
		select {
		case next, more := <-c.input():
			if !more {
				return map[string]any{"action": "cancel"}, nil
			}
			line = next
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		switch value := member(schema, "default"); {
		case line == "" && value != nil:
			content[string(name)] = value
		case line == "":
		case kind != "string" && json.Valid([]byte(line)):
			content[string(name)] = json.RawMessage(line)
		default:
			content[string(name)] = line
		}
	}
	return map[string]any{"action": "accept", "content": content}, nil
}

func (c *caller) show(format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	fmt.Fprintf(c.stderr, format, args...)
}
