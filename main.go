// SPDX-License-Identifier: 0BSD

// Mcpwire is the wire of the Model Context Protocol in one flat package that imports only the
// standard library: messages, stdio, HTTP, and the lifecycle of all five revisions, from both ends.
// As a program it is a small demo server, a client for any server, and a bridge between a client
// and a server. Three commands to try:
//
//	go run . -http :8080                                         serve the demo at http://127.0.0.1:8080/mcp
//	go run . call http://127.0.0.1:8080/mcp                      say how a server was reached, and what it offers
//	go run . call -tool get-weather -arg city=Oslo go run .      start a server on stdio, and call one of its tools
//
// The library is jsonrpc.go (messages, and a conversation with one peer), stdio.go (lines over a
// byte stream), session.go (the lifecycle), sse.go (events over HTTP) and http.go (Streamable
// HTTP). This file shows how to use it, and none of the others needs this one.
package main

// The sections of this file:
//
//	the demo      a whole server: five tools, some notes as resources, one prompt
//	serving       the demo on stdin and stdout, or over HTTP
//	calling       a client for the command line
//	bridging      between a client on stdio and a server
//	tracing       what both sides say, on stderr and on the page
//	the page      for browsers: the course, and what travels just now
//	the program   main, flags, and standard error
//
// On a first reading, read the demo: it is all that a server needs.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"
)

// ==== The demo: one of each thing that a transport must carry ====

// demo is a small server with fixed answers. It remembers nothing but the notes.
type demo struct {
	*Server

	mu    sync.Mutex // guards notes
	notes map[string]string
}

// newDemo makes the demo. The first fields are what initialize answers in lesson 01.
func newDemo() *demo {
	d := &demo{notes: map[string]string{}}
	d.Server = &Server{
		Info:         Implementation{Name: "mcpwire", Title: "mcpwire demo", Version: version, Icons: pixelIcons},
		Instructions: "A demo: made-up weather, an echo, a counter, a question and a few notes.",
		Methods:      map[string]HandlerFunc{"completion/complete": d.complete}, // the library has no completion
		Capabilities: map[string]any{"completions": struct{}{}},
		Logging:      true,                  // count sends log messages
		Announce:     []string{"resources"}, // clients are told of new and changed notes
	}
	AddTool(d.Server, echoTool, d.echo)
	AddTool(d.Server, countTool, d.count)
	AddTool(d.Server, askTool, d.ask)
	AddTool(d.Server, weatherTool, d.getWeather)
	AddTool(d.Server, noteTool, d.setNote)
	d.AddResourceTemplate(noteTemplate, d.readNote)
	d.AddPrompt(summarizePrompt, d.summarize)
	d.storeNote("welcome", "This note is served by mcpwire.")
	return d
}

// ---- Tools ----

// readsOnly tells a client that a tool changes nothing.
var readsOnly = &ToolAnnotations{ReadOnly: true, Idempotent: true}

// echoTool is what clients see of the tool echo.
var echoTool = Tool{Name: "echo", Title: "Echo", Description: "Returns the text it is given.", Annotations: readsOnly,
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"text":{"type":"string","description":"what to return"},
		"repeat":{"type":"integer","minimum":1,"maximum":4194304,"default":1,"description":"how many times in a row"}
		},"required":["text"]}`)}

// maxEcho is how many bytes an echo of several texts may have, as JSON. A single one is as long as its
// request, which is bounded.
const maxEcho = 4 << 20

// echo runs the tool. Each field of args has the name of an argument; with omitempty the argument is
// optional. An error becomes a result with isError, which the model reads.
func (d *demo) echo(_ context.Context, x *Exchange, args struct {
	Text   string `json:"text"`
	Repeat *int   `json:"repeat,omitempty"` // nil: 1
}) (any, error) {
	repeat := 1
	if args.Repeat != nil {
		repeat = *args.Repeat
	}
	switch {
	case repeat < 1 || repeat > maxEcho:
		return nil, fmt.Errorf("'repeat' must be an integer from 1 to %d", maxEcho)
	case repeat > 1 && len(appendString(nil, args.Text))-len(`""`) > maxEcho/repeat:
		return nil, fmt.Errorf("an echo has at most %d bytes as JSON", maxEcho)
	}
	return textResult(x, "echo", strings.Repeat(args.Text, repeat)), nil
}

// textResult returns a text as the result of a tool, with a key of our own in _meta, to show how
// such a key is written. 2025-06-18 introduced rules for _meta keys, and elicitation. Most tools just
// return the text.
func textResult(x *Exchange, tool, text string) ToolResult {
	result := ToolResult{Content: []Content{TextContent(text)}}
	if x.Revision().Elicitation {
		result.Meta = map[string]string{"com.example.mcpwire/tool": tool}
	}
	return result
}

// countTool is a tool that takes its time.
var countTool = Tool{Name: "count", Title: "Count", Annotations: readsOnly,
	Description: "Counts to n, one step after the other, and reports each.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"n":{"type":"integer","minimum":0,"maximum":1000000,"description":"steps"},
		"delayMs":{"type":"integer","minimum":0,"maximum":600000,"default":0,
			"description":"wait before each step; all waits together take at most an hour"},
		"poll":{"type":"boolean","default":false,
			"description":"let go of the connection meanwhile, where that can be done"}},"required":["n"]}`)}

// count reports its progress, and logs each step.
func (d *demo) count(ctx context.Context, x *Exchange, args struct {
	N       int  `json:"n"`
	DelayMs int  `json:"delayMs,omitempty"`
	Poll    bool `json:"poll,omitempty"`
}) (any, error) {
	switch {
	case args.N < 0 || args.N > 1_000_000 || args.DelayMs < 0 || args.DelayMs > 600_000:
		return nil, errors.New("'n' must be an integer from 0 to 1000000, and 'delayMs' one from 0 to 600000")
	case args.N*args.DelayMs > 3_600_000:
		return nil, fmt.Errorf("'n' times 'delayMs' must not be more than %v", time.Hour)
	case args.Poll:
		x.Disconnect(time.Second) // over HTTP, in 2025-11-25: the client asks for the rest after a second
	}
	for i := 1; i <= args.N; i++ {
		if args.DelayMs > 0 {
			select {
			case <-time.After(time.Duration(args.DelayMs) * time.Millisecond):
			case <-ctx.Done(): // Progress returns its error
			}
		}
		if err := x.Progress(ctx, float64(i), float64(args.N), ""); err != nil {
			return nil, err
		}
		_ = x.Log(ctx, "debug", fmt.Sprintf("step %d of %d", i, args.N)) // if it fails, so does the next progress
	}
	return textResult(x, "count", fmt.Sprintf("counted to %d", args.N)), nil
}

// askTool is a tool that needs the user.
var askTool = Tool{Name: "ask", Title: "Ask for a name", Annotations: readsOnly,
	Description: "Asks the user for a name, and greets.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`)}

// nameQuestion is the question of the tool ask: a form with one field.
var nameQuestion = InputRequest{Method: "elicitation/create",
	Params: ElicitParams{Message: "What is your name?", RequestedSchema: json.RawMessage(
		`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}`)}}

// ask returns an InputRequired in place of a result: a question, with the key "name". When the user
// has answered, ask runs again, and Input reads the answer with this key. If the answer does not
// fit, ask asks again.
func (d *demo) ask(_ context.Context, x *Exchange, _ struct{}) (any, error) {
	question := InputRequired{Requests: map[string]InputRequest{"name": nameQuestion}}
	var answer ElicitResult
	if !x.Input("name", &answer) { // there is no answer yet
		return question, nil
	}
	if answer.Action == "decline" || answer.Action == "cancel" {
		return ToolError("No name: the user chose %s", answer.Action), nil
	}
	var form struct{ Name string }
	_ = json.Unmarshal(answer.Content, &form) // what does not fit is no name
	if answer.Action != "accept" || form.Name == "" {
		return question, nil
	}
	return textResult(x, "ask", "Hello, "+form.Name), nil
}

// pixel is a PNG of one pixel. It shows how icons are declared.
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8B" +
	"QDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

// pixelIcons are the icons of the server and of one tool.
var pixelIcons = []Icon{{Src: pixel, MimeType: "image/png", Sizes: []string{"1x1"}}}

// weatherTool marks the argument unit with x-mcp-header: a modern client repeats this argument in
// the header of its HTTP request.
var weatherTool = Tool{Name: "get-weather", Title: "Weather", Annotations: readsOnly, Icons: pixelIcons,
	Description: "The current temperature in a city. The data is made up.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"city":{"type":"string","minLength":1,"description":"name of the city"},
		"unit":{"type":"string","x-mcp-header":"Unit","enum":["celsius","fahrenheit"],"default":"celsius",
			"description":"unit of the temperature"}},"required":["city"]}`)}

// getWeather has one exception. If there is no city, it returns an *Error, which answers the request
// itself, as some servers of others do. Without omitempty, AddTool would make a result with isError,
// as the other tools of the demo have it.
func (d *demo) getWeather(_ context.Context, x *Exchange, args struct {
	City *string `json:"city,omitempty"` // nil: missing
	Unit string  `json:"unit,omitempty"`
}) (any, error) {
	temperature := map[string]string{"": "18°C", "celsius": "18°C", "fahrenheit": "64°F"}[args.Unit]
	switch {
	case args.City == nil:
		data := json.RawMessage(`"Missing required argument: 'city'"`)
		return nil, &Error{Code: CodeInvalidParams, Message: "Invalid params", Data: data}
	case *args.City == "":
		return nil, errors.New("'city' must not be empty")
	case temperature == "":
		return nil, errors.New("'unit' must be celsius or fahrenheit")
	}
	return textResult(x, "get-weather", "Current temperature in "+*args.City+" is "+temperature), nil
}

// ---- Notes: a tool that writes one, resources, a prompt about one, and completion ----

// The URI of a note begins with noteScheme. maxNote counts characters.
const noteScheme, maxNotes, maxNote = "note:///", 200, 64 << 10

// noteName is what the name of a note looks like. It is compiled where it is used: a start of
// the program does not need it.
const noteName = `^[A-Za-z0-9._-]{1,64}$`

// noteTool is a tool that changes what the server has.
var noteTool = Tool{Name: "set-note", Title: "Write a note",
	Description: "Keeps a note, to be read as the resource note:///NAME.",
	Annotations: &ToolAnnotations{Destructive: true, Idempotent: true}, // it overwrites a note
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"name":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"name of the note"},
		"text":{"type":"string","maxLength":65536,"description":"the note"}},"required":["name","text"]}`)}

// setNote keeps a note, and tells those who have subscribed to it.
func (d *demo) setNote(_ context.Context, x *Exchange, args struct {
	Name string `json:"name"`
	Text string `json:"text"`
}) (any, error) {
	if !regexp.MustCompile(noteName).MatchString(args.Name) || utf8.RuneCountInString(args.Text) > maxNote {
		return nil, fmt.Errorf("'name' must match %s, and 'text' be no longer than %d characters", noteName, maxNote)
	}
	if !d.storeNote(args.Name, args.Text) {
		return ToolError("There are %d notes already; no room for more.", maxNotes), nil
	}
	d.Publish("notifications/resources/updated", ResourceParams{noteScheme + args.Name})
	return textResult(x, "set-note", "Noted as "+noteScheme+args.Name), nil
}

// storeNote writes a note, and offers it as a resource if it is new. It returns false if there is no
// room for another note.
func (d *demo) storeNote(name, text string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	_, isKnown := d.notes[name]
	if !isKnown && len(d.notes) >= maxNotes {
		return false
	}
	d.notes[name] = text
	if !isKnown {
		read := func(context.Context, *Exchange, string) (any, error) { return d.allNotes()[name], nil }
		d.AddResource(Resource{URI: noteScheme + name, Name: name, MimeType: "text/plain"}, read)
	}
	return true
}

// allNotes returns the notes by their names.
func (d *demo) allNotes() map[string]string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return maps.Clone(d.notes)
}

// noteTemplate shows clients how the URIs of the notes are made.
var noteTemplate = ResourceTemplate{URITemplate: noteScheme + "{name}", Name: "note",
	Description: "A note by its name.", MimeType: "text/plain"}

// readNote returns the text of the note that the URI names. values are those of the template.
func (d *demo) readNote(_ context.Context, _ *Exchange, uri string, values map[string]string) (any, error) {
	text, ok := d.allNotes()[values["name"]]
	if !ok {
		return nil, ResourceNotFound(uri)
	}
	return text, nil
}

// summarizePrompt is a prompt with one argument.
var summarizePrompt = Prompt{Name: "summarize-note", Title: "Summarize a note",
	Description: "Asks for a summary of a note.",
	Arguments:   []PromptArgument{{Name: "name", Description: "name of the note", Required: true}}}

// summarize makes the prompt: two messages, and the note in the first one.
func (d *demo) summarize(_ context.Context, _ *Exchange, arguments map[string]string) (any, error) {
	text, ok := d.allNotes()[arguments["name"]]
	if !ok {
		return nil, InvalidParams("Unknown note: %.500s", arguments["name"])
	}
	note := ResourceContents{URI: noteScheme + arguments["name"], MimeType: "text/plain", Text: text}
	return PromptResult{Messages: []PromptMessage{
		{Role: "user", Content: Content{Type: "resource", Resource: &note}},
		{Role: "user", Content: TextContent("Summarize this note in one sentence.")},
	}}, nil
}

// complete completes the name of a note, for the prompt and for the template. 2025-11-25
// server/utilities/completion: at most 100 values.
func (d *demo) complete(_ context.Context, x *Exchange) (any, error) {
	var p struct {
		Ref      struct{ Type, Name, URI string } `json:"ref"`
		Argument struct{ Name, Value string }     `json:"argument"`
	}
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	isPrompt := p.Ref.Type == "ref/prompt" && p.Ref.Name == summarizePrompt.Name
	isTemplate := p.Ref.Type == "ref/resource" && p.Ref.URI == noteTemplate.URITemplate
	if !isPrompt && !isTemplate || p.Argument.Name != "name" {
		return nil, InvalidParams("Unknown reference or argument")
	}
	isOther := func(name string) bool { return !strings.HasPrefix(name, p.Argument.Value) }
	values := slices.DeleteFunc(slices.Sorted(maps.Keys(d.allNotes())), isOther)
	shown := min(len(values), 100)
	completion := map[string]any{"hasMore": shown < len(values), "total": len(values), "values": values[:shown]}
	return map[string]any{"completion": completion}, nil
}

// ==== Serving ====

// serve runs the demo server until the client hangs up or ctx ends.
func serve(ctx context.Context, o *options) error {
	demo := newDemo()
	demo.Versions, demo.StateKey = o.versions, []byte(o.stateKey)
	if o.http != "" {
		return o.serveHTTP(ctx, demo)
	}
	return Serve(ctx, o.tap.traceConn(clientConn{StdioConn(o.maxBody), ctx}, "<", ">"), demo, newLog())
}

// newLog returns the log of a command. It has warnings and errors.
func newLog() *slog.Logger {
	return slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
}

// clientConn is standard input and output, with a client at the other end. After a signal nothing is
// written to it: a client that ends its server as the specification says does not read any more then,
// and that of the Python SDK would fail if another message came.
type clientConn struct {
	Conn
	signalled context.Context // ends with the signal
}

// Write sends something to the client, if that still reads.
func (c clientConn) Write(ctx context.Context, out Payload) error {
	if c.signalled.Err() != nil {
		return ErrClosed
	}
	return c.Conn.Write(ctx, out)
}

// ---- HTTP ----

// serveHTTP serves the demo until ctx ends. Then requests that are running may finish. Streams do
// not end by themselves, so the handlers are closed meanwhile.
func (o *options) serveHTTP(ctx context.Context, demo *demo) error {
	host, port, _ := net.SplitHostPort(o.http) // the flag's pattern fits
	mcp, sse, mux := o.handlers(demo, newLog())
	server := &http.Server{Handler: mux, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10,
		ErrorLog: slog.NewLogLogger(newLog().Handler(), slog.LevelWarn)}
	server.RegisterOnShutdown(mcp.Close)
	server.RegisterOnShutdown(sse.Close)
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port)) // one machine, unless named
	if err != nil {
		return err
	}
	scheme, run := "http", server.Serve
	if o.tlsCert != "" {
		scheme, run = "https", func(l net.Listener) error { return server.ServeTLS(l, o.tlsCert, o.tlsKey) }
	}
	fmt.Fprintf(stderr, "mcpwire: listening on %s://%s/mcp\n", scheme, listener.Addr())
	running, failed := context.WithCancelCause(ctx)
	go func() { failed(run(listener)) }() // ends with server.Close at the latest
	<-running.Done()
	if ctx.Err() == nil {
		return context.Cause(running)
	}
	ending, cancel := context.WithTimeout(context.Background(), 3*time.Second)
	defer cancel()
	return errors.Join(server.Shutdown(ending), server.Close())
}

// handlers makes the handlers of both transports, and the mux that has all paths.
func (o *options) handlers(demo *demo, log *slog.Logger) (mcp *StreamableHandler, sse *SSEHandler, mux *http.ServeMux) {
	o.guard.MaxBody, o.guard.Log = int64(o.maxBody), log
	o.guard.KeepAlive = cmp.Or(o.keepAlive, -1) // the flag's 0 means none, that of Guard means the default
	mcp = &StreamableHandler{Handler: demo, Guard: o.private("/mcp")}
	prefix := strings.TrimPrefix(o.replica+"-", "-")
	if !o.stateless {
		mcp.Sessions = &Sessions{Max: o.maxSessions, Prefix: prefix, Keep: o.keep, IdleTimeout: o.sessionTTL}
	}
	sse = &SSEHandler{Handler: demo, Guard: o.private("/sse")}
	sse.Sessions.Max, sse.Sessions.Prefix = o.maxSessions, prefix
	endpoints := http.NewServeMux()
	endpoints.Handle("/mcp", mcp)
	endpoints.Handle("/mcp/{$}", mcp)
	endpoints.Handle("/sse", sse)
	for _, path := range []string{"", "/mcp", "/sse"} {
		if o.authServer != "" {
			endpoints.Handle(metadataPath+path, guarded(o.guard, o.metadata))
		}
	}
	shown := http.Handler(endpoints)
	if o.trace || o.watch {
		shown = o.tap.traceHandler(endpoints)
	}
	mux = http.NewServeMux()
	mux.Handle("/", shown)
	mux.Handle("GET /{$}", guarded(o.guard, o.servePage))
	if o.watch {
		guard := o.private("")
		guard.Origins = nil // the page is of this server; another page must not read what clients say
		mux.Handle("GET /watch", guarded(guard, o.tap.serveWatcher))
	}
	return mcp, sse, mux
}

// guarded returns a handler that a Guard protects.
func guarded(guard Guard, next http.HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := guard.admit(w, r); ok {
			next(w, r)
		}
	})
}

// ---- Authorization ----

// metadataPath is where a client finds out who issues tokens. The path of the endpoint follows.
const metadataPath = "/.well-known/oauth-protected-resource"

// private returns the Guard of a path that needs the token, if there is one. A request without it
// gets a challenge that names the metadata of the path.
func (o *options) private(path string) Guard {
	guard := o.guard
	if o.token == "" { // everybody may come in
		return guard
	}
	guard.Authenticate = func(r *http.Request) (string, error) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare([]byte(token), []byte(o.token)) == 1 {
			return "token", nil
		}
		challenge := "Bearer"
		if o.authServer != "" {
			challenge += fmt.Sprintf(" resource_metadata=%q", o.origin(r)+metadataPath+path)
		}
		return "", &AuthError{Challenge: challenge}
	}
	return guard
}

// origin returns the origin that the client has used. If a proxy in front of us has ended TLS, only
// the proxy knows the scheme, and a flag says whether it is believed.
func (o *options) origin(r *http.Request) string {
	if r.TLS != nil || o.trustProxy && strings.EqualFold(r.Header.Get("X-Forwarded-Proto"), "https") {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// metadata says which servers issue tokens for a path: RFC 9728. It needs no credentials, because a
// client asks for it before it has a token.
func (o *options) metadata(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	// It fails only if the client has gone.
	_ = json.NewEncoder(w).Encode(map[string]any{"authorization_servers": []string{o.authServer},
		"bearer_methods_supported": []string{"header"}, "resource": o.origin(r) + r.URL.Path[len(metadataPath):]})
}

// ==== Calling ====

// caller is the client of the command line. It makes one call at a time.
type caller struct {
	*options
	Client
	isSeen bool                       // standard output is a terminal: somebody sees it
	input  *bufio.Scanner             // lines of standard input
	idle   atomic.Pointer[time.Timer] // ends the call that is running after a while without progress
	whole  atomic.Pointer[time.Timer] // ends it after ten times as long, with progress or without
	form   sync.Mutex                 // held by the form that the user fills in
}

// call connects to a server. Then it makes one call, or one for each line of standard input, or
// prints a summary.
func call(ctx context.Context, o *options) error {
	c := &caller{options: o, isSeen: isTerminal(os.Stdout), input: bufio.NewScanner(os.Stdin)}
	c.input.Buffer(nil, 64<<20)
	c.Info = Implementation{Name: "mcpwire", Title: "mcpwire call", Version: version}
	c.Client.Versions, c.ConnectTimeout, c.Log = o.versions, o.timeout, newLog()
	c.Handler = HandlerFunc(c.printMessage)
	c.Handlers = map[string]HandlerFunc{"elicitation/create": c.elicit} // with a handler, a question is declared
	if o.roots != nil {
		c.Handlers["roots/list"] = func(context.Context, *Exchange) (any, error) {
			return map[string]any{"roots": o.roots}, nil
		}
	}
	if o.sample != "" {
		c.Handlers["sampling/createMessage"] = c.answerSampling
	}
	defer c.Close()
	if err := c.Connect(ctx, o.dialers(2*time.Second)...); err != nil {
		return err
	}
	context.AfterFunc(ctx, func() { // after a signal: nothing interrupts a read of standard input
		c.Close()
		exit(1)
	})
	switch {
	case o.interactive:
		return c.callLines(ctx)
	case o.method != "":
		_, err := c.callAndPrint(ctx, o.method, o.params)
		return err
	case o.tool != "":
		return c.callTool(ctx)
	}
	return c.summarize(ctx)
}

// dialers returns the ways to reach a server, in the order in which they are tried. The last one that
// was tried has noted the name of its transport. grace is how long a command has for each step of its
// end.
func (o *options) dialers(grace time.Duration) []Dialer {
	if !isURL(o.target[0]) {
		command := func() *exec.Cmd {
			cmd := exec.Command(o.target[0], o.target[1:]...)
			cmd.Dir, cmd.Stderr = o.dir, stderr
			cmd.Env = append(cmd.Environ(), o.env...)
			return cmd
		}
		return []Dialer{o.noting("stdio", CommandDialer{Grace: grace, MaxMessage: o.maxBody, Command: command})}
	}
	jar, _ := cookiejar.New(nil) // a load balancer may choose the server by a cookie; no error without options
	client := &http.Client{Jar: jar, Transport: tracedTransport{o.tap}}
	modern := &HTTPDialer{URL: o.target[0], Header: o.header, Client: client, MaxMessage: o.maxBody, Log: newLog()}
	old := SSEDialer{URL: o.target[0], Header: o.header, Client: client, MaxMessage: o.maxBody}
	return []Dialer{o.noting("Streamable HTTP", modern), o.noting("HTTP+SSE", old)}
}

// noting returns a Dialer that notes the name of its transport. Only stdio is traced by its Conn: over
// HTTP the requests are.
func (o *options) noting(transport string, dialer Dialer) Dialer {
	return DialerFunc(func(ctx context.Context) (Conn, error) {
		o.transport = transport
		conn, err := dialer.Dial(ctx)
		if err == nil && transport == "stdio" {
			conn = o.tap.traceConn(conn, ">", "<")
		}
		return conn, err
	})
}

// ---- Calls ----

// limit returns the context of a call, with the time-out of the command line. Progress starts the
// time-out again, but a call takes at most ten times as long.
func (c *caller) limit(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, end := context.WithCancelCause(ctx)
	c.idle.Store(time.AfterFunc(c.timeout, func() { end(fmt.Errorf("no answer within %v", c.timeout)) }))
	c.whole.Store(time.AfterFunc(10*c.timeout, func() { end(fmt.Errorf("not finished within %v", 10*c.timeout)) }))
	return ctx, func() {
		end(nil)
		c.idle.Load().Stop()
		c.whole.Load().Stop()
	}
}

// extend starts the time-out again.
func (c *caller) extend(ProgressParams) {
	if idle := c.idle.Load(); idle.Stop() { // otherwise a form is open
		idle.Reset(c.timeout)
	}
}

// callAndPrint calls a method, prints its result as one line, and returns the result.
func (c *caller) callAndPrint(ctx context.Context, method, params string) (result json.RawMessage, err error) {
	params = cmp.Or(params, "{}")
	if !isObject(params) {
		return nil, fmt.Errorf("%s: the params are no JSON object: %.100q", method, params)
	}
	ctx, cancel := c.limit(ctx)
	defer cancel()
	err = c.CallWithProgress(ctx, method, json.RawMessage(params), &result, c.extend)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	line, _ := encode(result) // it may have come in several lines
	return result, c.print(string(line) + "\n")
}

// print prints on standard output. What a program reads there is exactly what the server has sent.
func (c *caller) print(text string) error {
	if c.isSeen {
		text = Printable(text)
	}
	flush(50 * time.Millisecond) // who reads both in one place reads them in order
	_, err := fmt.Print(text)
	return err
}

// callLines makes a call for each line of standard input: METHOD [PARAMS]. If one fails, the next
// is made all the same.
func (c *caller) callLines(ctx context.Context) (failed error) {
	for !errors.Is(failed, syscall.EPIPE) && c.input.Scan() { // or nobody reads the results
		line := strings.TrimPrefix(c.input.Text(), "\ufeff") // some programs on Windows begin with this mark
		method, params, _ := strings.Cut(strings.TrimSpace(strings.Replace(line, "\t", " ", 1)), " ")
		if method == "" {
			continue
		}
		if _, err := c.callAndPrint(ctx, method, params); err != nil {
			printError(err)
			failed = fmt.Errorf("not all calls have succeeded; the last error: %w", err)
		}
	}
	return cmp.Or(failed, c.input.Err())
}

// callTool calls a tool, and prints the result. The schema of the tool, which is read first, says
// which arguments are texts.
func (c *caller) callTool(ctx context.Context) error {
	tools, err := c.list(ctx, "tools/list", "tools")
	if err != nil {
		return err
	}
	i := slices.IndexFunc(tools, func(tool json.RawMessage) bool { return textOf(member(tool, "name")) == c.tool })
	if i < 0 {
		return usageError("the server has no tool %s", c.tool)
	}
	arguments := map[string]json.RawMessage{}
	for _, argument := range c.arguments {
		name, text, _ := strings.Cut(argument, "=")
		if file, isFile := strings.CutPrefix(text, "@"); isFile && strings.HasPrefix(file, "@") {
			text = file // @@ is @
		} else if isFile {
			content, err := os.ReadFile(file)
			if err != nil || !utf8.Valid(content) {
				return usageError("the argument '%s' needs a file with text in UTF-8 (%v)", name, err)
			}
			text = string(content)
		}
		value, err := typed(text, property(member(tools[i], "inputSchema"), name))
		if err != nil {
			return usageError("the argument '%s' %w", name, err)
		}
		arguments[name] = value
	}
	params, _ := encode(CallToolParams{Name: c.tool, Arguments: arguments}) // typed returns JSON
	result, err := c.callAndPrint(ctx, "tools/call", string(params))
	if err == nil && string(member(result, "isError")) == "true" {
		return exitStatus{fmt.Errorf("the tool %s has failed (isError)", c.tool), 3}
	}
	return err
}

// list returns the items of a list. One whose method the server does not know is empty: some
// servers declare a capability that they do not have.
func (c *caller) list(ctx context.Context, method, name string) ([]json.RawMessage, error) {
	ctx, cancel := c.limit(ctx)
	defer cancel()
	items, err := List[json.RawMessage](ctx, &c.Client, method, name)
	if fault, _ := reasons(err); err != nil && !fault.is(CodeMethodNotFound) {
		return items, fmt.Errorf("%s: %w", method, err)
	}
	return append([]json.RawMessage{}, items...), nil
}

// ---- The summary: what a server offers ----

// summarize prints how the server was reached and what it offers: with -json as one object, otherwise
// as lines. If a list cannot be read, the next one is read all the same.
func (c *caller) summarize(ctx context.Context) error {
	server := c.Server()
	var members []string
	var failed error
	add := func(name string, value any) {
		text, _ := encode(value) // it is JSON, or made of texts
		if string(text) != "null" && string(text) != `""` {
			members = append(members, fmt.Sprintf("%q:%s", name, text))
		}
	}
	add("transport", c.transport)
	add("revision", server.Version)
	add("session", len(c.tap.names) > 0)
	add("serverInfo", server.Info)
	add("capabilities", server.Capabilities)
	add("instructions", server.Instructions)
	for _, list := range [][3]string{{"tools", "tools/list", "tools"}, {"resources", "resources/list", "resources"},
		{"resources", "resources/templates/list", "resourceTemplates"}, {"prompts", "prompts/list", "prompts"}} {
		if isAbsent(member(server.Capabilities, list[0])) {
			continue
		}
		items, err := c.list(ctx, list[1], list[2])
		add(list[2], items)
		failed = errors.Join(failed, err)
	}
	text := "{" + strings.Join(members, ",") + "}\n"
	if !c.json {
		text = summaryLines(text)
	}
	return errors.Join(failed, c.print(text))
}

// summaryLines returns the members of a summary as lines: one for each, and for a list one for each
// item, with its name or URI and the beginning of its description.
func summaryLines(summary string) string {
	var b strings.Builder
	for label, value := range Each([]byte(summary)) {
		if !bytes.HasPrefix(value, []byte("[{")) {
			fmt.Fprintf(&b, "%-13s %.1000s\n", label, textOf(value))
			continue
		}
		for _, item := range Each(value) {
			uri := cmp.Or(textOf(member(item, "uri")), textOf(member(item, "uriTemplate")))
			about, _, _ := strings.Cut(textOf(member(item, "description")), "\n")
			fmt.Fprintf(&b, "%-13s %s: %.100s\n", label, cmp.Or(uri, textOf(member(item, "name"))), about)
			label = ""
		}
	}
	return Printable(b.String())
}

// ---- Arguments and forms ----

// property returns the schema of an argument, or of a field of a form. It takes the first alternative
// that is not null, and follows a $ref to the $defs: servers in Python and Rust write arguments so.
func property(schema json.RawMessage, name string) json.RawMessage {
	found := member(member(schema, "properties"), name)
	for _, option := range Each(member(found, "anyOf")) {
		if textOf(member(option, "type")) != "null" {
			found = option
			break
		}
	}
	if key, isHere := strings.CutPrefix(textOf(member(found, "$ref")), "#/$defs/"); isHere {
		return member(member(schema, "$defs"), key)
	}
	return found
}

// typed returns what a user has typed as JSON. If the schema wants a string, it is the text itself.
// If the schema does not say, it is JSON, or else a string. The server checks the rest.
func typed(text string, schema json.RawMessage) (json.RawMessage, error) {
	kind, enum := string(member(schema, "type")), string(member(schema, "enum"))
	isString := strings.Contains(kind, `"string"`) || kind == "" && strings.HasPrefix(enum, `["`)
	isJSON := json.Valid([]byte(text))
	switch {
	case isString || kind == "" && enum == "" && !isJSON:
		return encode(text)
	case !isJSON:
		return nil, fmt.Errorf("must be JSON of the type %s, not %.100q", cmp.Or(kind, enum), text)
	}
	return json.RawMessage(text), nil
}

// fillIn asks the user for each field of a form until the answer fits, and at last whether to send the
// form. The first question about a field shows its schema, with type, enum and default. A field whose
// answer is empty is left out.
func (c *caller) fillIn(p ElicitParams) ElicitResult {
	fmt.Fprintln(stderr, Printable(p.Message), "required:", Printable(string(member(p.RequestedSchema, "required"))))
	content := map[string]json.RawMessage{}
	for name := range Each(member(p.RequestedSchema, "properties")) {
		schema := property(p.RequestedSchema, name)
		for text := c.ask(name + " " + string(schema)); text != ""; text = c.ask(name) {
			value, err := typed(text, schema)
			if err == nil {
				content[name] = value
				break
			}
			printError(err)
		}
	}
	text, _ := encode(content) // typed returns JSON
	if !strings.HasPrefix(strings.ToLower(c.ask("send this? (y or n)")), "y") {
		return ElicitResult{Action: "decline"}
	}
	return ElicitResult{Action: "accept", Content: text}
}

// ask asks the user, and returns the line that the user types.
func (c *caller) ask(what string) string {
	fmt.Fprintf(stderr, "%.500s: ", Printable(what))
	c.input.Scan()
	return strings.TrimSpace(c.input.Text())
}

// ---- What the server asks and tells ----

// printMessage prints a notification, or a question that was not declared, and refuses the latter.
func (c *caller) printMessage(_ context.Context, x *Exchange) (any, error) {
	fmt.Fprintln(stderr, Printable(x.Request.Method), Printable(string(x.Request.Params)))
	return nil, MethodNotFound(x.Request.Method)
}

// answerSampling answers with -sampling-answer. 2025-11-25 schema CreateMessageRequestParams: tools
// are an error, because sampling.tools was not declared.
func (c *caller) answerSampling(_ context.Context, x *Exchange) (any, error) {
	if member(x.Request.Params, "tools") != nil || member(x.Request.Params, "toolChoice") != nil {
		return nil, InvalidParams("no tools can be used here")
	}
	return map[string]any{"role": "assistant", "content": TextContent(c.sample), "model": "mcpwire"}, nil
}

// elicit answers a question to the user: with -answer, or with what the user types at a terminal.
func (c *caller) elicit(_ context.Context, x *Exchange) (any, error) {
	c.form.Lock() // one form at a time
	defer c.form.Unlock()
	var p ElicitParams
	_ = x.Bind(&p) // what does not fit is not shown
	switch {
	case p.Mode != "" && p.Mode != "form": // 2025-11-25 client/elicitation: a mode that was not declared is -32602
		return nil, InvalidParams("only forms can be filled in here, not mode '%s'", p.Mode)
	case c.content != "":
		return ElicitResult{Action: "accept", Content: json.RawMessage(c.content)}, nil
	case c.interactive || !isTerminal(os.Stdin):
		fmt.Fprintln(stderr, "mcpwire: declined, because -answer is not given:", Printable(p.Message))
		return ElicitResult{Action: "decline"}, nil
	}
	// The user may take their time: both time-outs stop, and start again when the form is done.
	if idle, whole := c.idle.Load(), c.whole.Load(); idle != nil && idle.Stop() && whole.Stop() {
		defer idle.Reset(c.timeout)
		defer whole.Reset(10 * c.timeout)
	}
	return c.fillIn(p), nil
}

// ==== Bridging ====
//
// A client starts the bridge as its server on stdio. The bridge answers each request with what the
// other side answers to the same request:
//
//	client ── stdio ──► Serve ── toServer ──► RoundTrip ── stdio or HTTP ──► server
//	client ◄── stdio ── RoundTrip ◄── toClient ── Open ◄── stdio or HTTP ── server
//
// So a cancellation ends the RoundTrip, and one that fails answers the request with an error. A
// request of the client keeps its id, because what belongs to a subscription names it. Notifications are written as
// they came. For a URL the Conn learns session, revision and header from the messages.

// bridged is what the bridge knows about both sides.
type bridged struct {
	*options
	client     Conn
	clientPeer atomic.Pointer[Peer]    // with which the client is asked; nil: it has sent nothing yet
	handshake  atomic.Pointer[Message] // the client's initialize; nil: it was not answered yet
	end        context.CancelCauseFunc // ends the bridge

	mu     sync.Mutex // guards the fields below; held while a connection is made
	ways   []Dialer   // to the server; the first one is used
	server *Peer      // nil: no connection was made yet
}

// bridge runs until the client hangs up, a command ends, or a signal comes.
func bridge(signalled context.Context, o *options) error {
	ctx, end := context.WithCancelCause(signalled)
	b := &bridged{options: o, end: end, client: clientConn{StdioConn(o.maxBody), signalled}}
	b.ways = o.dialers(500 * time.Millisecond) // twice that: a client that has hung up soon sends SIGTERM
	if _, err := b.useServer(ctx, false); err != nil {
		return err
	}
	err := Serve(ctx, b.client, HandlerFunc(b.toServer), newLog())
	b.mu.Lock()
	defer b.mu.Unlock()
	err = cmp.Or(context.Cause(ctx), err)
	if reading := b.server.reading; reading.Err() != nil && !isURL(o.target[0]) { // the client may have, too
		err = fmt.Errorf("the server has hung up: %v", context.Cause(reading)) // no EPIPE, which would be the client's
	}
	return errors.Join(err, b.server.Close())
}

// useServer returns the connection to the server. If there is none yet, or its session has ended, it
// makes one. If the message that is to be sent needs a session, useServer begins that with the
// handshake of the client, which does not know that the old session has ended. 2025-11-25
// basic/transports#session-management: who gets a 404 "MUST start a new session by sending a new
// InitializeRequest". A server has a minute for all that, because other messages wait for it.
func (b *bridged) useServer(ctx context.Context, needsSession bool) (*Peer, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.server != nil && (b.server.reading.Err() == nil || !isURL(b.target[0])) { // a command is started once
		return b.server, nil
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := b.ways[0].Dial(ctx)
	if err != nil {
		return nil, err
	}
	b.server = Open(context.Background(), conn, HandlerFunc(b.toClient), newLog())
	if !isURL(b.target[0]) {
		context.AfterFunc(b.server.reading, func() { b.end(nil) }) // bridge says why
	}
	handshake := b.handshake.Load()
	if !needsSession || handshake == nil {
		return b.server, nil
	}
	if err = b.server.Call(ctx, "initialize", handshake.Params, nil); err != nil {
		b.server.Close()
		return nil, err
	}
	return b.server, b.server.Notify(ctx, "notifications/initialized", nil)
}

// toServer passes on a message of the client, and returns the answer to a request. One that the server
// has surely not read, because its session was lost, is sent once more in a new session.
func (b *bridged) toServer(ctx context.Context, x *Exchange) (any, error) {
	m := x.Request
	b.clientPeer.Store(x.Peer)
	result, err := b.send(ctx, m)
	// A notification that the server has not taken in time is given up, and not sent again.
	isLost := errors.Is(err, errUnread) && !errors.Is(err, context.DeadlineExceeded)
	if isLost || m.Method == "initialize" && b.takeOtherWay(err) {
		result, err = b.send(ctx, m)
	}
	if fault, _ := reasons(err); err != nil && fault == nil {
		return nil, &Error{Code: CodeInternalError, Message: "mcpwire bridge: " + hideQueries(err.Error())}
	}
	if err == nil && m.Method == "initialize" {
		b.handshake.Store(m)
		x.Peer.AllowBatches.Store(revision(textOf(member(result, "protocolVersion"))).Batches)
	}
	return json.RawMessage(result), err
}

// send sends a message to the server, and returns the answer to a request.
func (b *bridged) send(ctx context.Context, m *Message) (json.RawMessage, error) {
	server, err := b.useServer(ctx, m.Method != "initialize")
	switch {
	case err != nil:
		return nil, err
	case m.Kind() == KindNotification: // nothing else is read from the client meanwhile
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		return nil, server.send(limited, m)
	}
	result, err := server.RoundTrip(ctx, m)
	if errors.Is(err, errUnread) {
		<-server.reading.Done() // until its reader has learnt that the session is lost
	}
	return result, err
}

// takeOtherWay makes HTTP+SSE the way to the server, if an error means that the server may speak that.
// It reports whether it has done so.
func (b *bridged) takeOtherWay(err error) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !mayBeOlder(err) || len(b.ways) < 2 {
		return false
	}
	b.ways = b.ways[1:]
	b.server.Close()
	return true
}

// toClient passes on a message of the server, and returns the answer to a request. A request gets an id
// of ours: each session of the server counts anew, and a client must not see an id twice.
func (b *bridged) toClient(ctx context.Context, x *Exchange) (any, error) {
	client := b.clientPeer.Load()
	switch {
	case x.Request.Kind() == KindNotification:
		return nil, b.client.Write(ctx, payload(x.Request))
	case client == nil:
		return nil, MethodNotFound(x.Request.Method)
	}
	return client.RoundTrip(ctx, &Message{Method: x.Request.Method, Params: x.Request.Params})
}

// ==== Tracing: what -trace and -watch show ====
//
// A tap shows what passes through a Conn, an http.Handler or an http.RoundTripper, in the notation
// of the lessons: > stands before what the client says, and < before what the server says. Over HTTP
// a letter in front names the exchange, one request and its response, because several may run at
// once:
//
//	B> POST /mcp
//	B> Authorization: …
//	B> Content-Type: application/json
//	B> Mcp-Session-Id: session-1
//	B>
//	B> {"jsonrpc":"2.0","id":2,"method":"tools/call",…}
//	B< 200
//	B< Content-Type: text/event-stream
//	B<
//	B< id: 1/0
//	B< data:
//
// What passes through something goes to a trail, which knows what it belongs to, and from there to the
// tap, of which a program has one:
//
//	tracedConn        a Conn                   one trail for all messages   ┐
//	tracedTransport   requests of a client     a trail for each exchange    ├─► show ─► standard error, pages
//	tracedResponse    responses of a handler   a trail for each exchange    ┘
//
// A tap hides credentials, and what stands in a query. It shows other ids for sessions, so that a
// trace can be kept and replayed.

// tap writes a transcript to standard error, and to the pages that watch it. Neither write ever waits,
// so the mutex may be held meanwhile.
type tap struct {
	prints  bool // on standard error
	maxBody int  // how many bytes of a request are shown

	exchanges atomic.Int64 // how many there were over HTTP
	watchers  sync.Map     // the pages that watch: for each a chan []byte, with events for it
	watching  atomic.Int64 // how many pages watch

	mu    sync.Mutex        // guards the field below
	names map[string]string // by the id of a session: the name that is shown in its place
}

// trail shows one exchange, or all that passes through a Conn. Of a response each line is shown when
// it ends.
type trail struct {
	*tap
	letter  string // A, B … Z, AA …; "": what passes through a Conn
	session string // the name of its session; "": none is known
	rest    []byte // the end of the response so far: a line that is not complete
}

// show shows the lines that one side has sent: ">" the client, "<" the server.
func (x *trail) show(side, text string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	var lines strings.Builder
	for line := range strings.Lines(text) {
		line = Printable(x.hide(strings.TrimRight(line, "\r\n"), side))
		lines.WriteString("    " + strings.TrimSpace(x.letter+side+" "+line) + "\n")
	}
	if x.prints {
		fmt.Fprint(stderr, lines.String())
	}
	shown := fmt.Sprintf("%.60000s", lines.String())                          // the beginning is enough for a page
	data, _ := encode(map[string]string{"session": x.session, "text": shown}) // texts can be encoded
	event := fmt.Appendf(nil, "data: %s\n\n", data)
	for key := range x.watchers.Range {
		select {
		case key.(chan []byte) <- event:
		default: // the page is too slow: it watches no more
			x.watchers.Delete(key)
			close(key.(chan []byte))
		}
	}
}

// secret matches a line with a secret. Its first group is what is shown of the line, the second one is
// the secret:
//
//	Authorization: Bearer s3cret      a field of a header
//	Mcp-Session-Id: 5f3a91c2          the same, which names a session
//	GET /mcp?key=s3cret               a request with a query, of any method and any path
//	POST /sse?session=5f3a91c2        the same, which names a session of 2024-11-05
//	data: /sse?session=5f3a91c2       the data of an endpoint event of 2024-11-05
//
// A message is the data of an event, too. It is not changed, because it begins with {, [ or ". Nor is
// one in several lines: a method has no mark of JSON in it, and no blank before it.
var secret = regexp.MustCompile(`^(Authorization: |Mcp-Session-Id: |` +
	`(?:[^][{}",: ]+ [^ ?]*|data: *[^ "{[?]*)\?(?:session=)?)(.*)$`)

// hide returns a line without its secret. In place of the id of a session it shows a name. What the
// server tells the client is the id of a session: a server sends no other secret. The caller holds mu.
func (x *trail) hide(line, side string) string {
	found := secret.FindStringSubmatch(line)
	if found == nil {
		return line
	}
	start, id := found[1], found[2]
	if x.names[id] == "" && side == "<" && len(id) < 200 && len(x.names) < 20_000 {
		put(&x.names, id, fmt.Sprintf("session-%d", len(x.names)+1))
	}
	x.session = cmp.Or(x.session, x.names[id])
	return start + cmp.Or(x.names[id], "…") // no name: a credential, or a query
}

// hideQueries returns a text in which URLs have no queries.
func hideQueries(text string) string {
	return regexp.MustCompile(`(?i)(https?://[^\s"?]*\?)[^\s"]*`).ReplaceAllString(text, "$1…")
}

// ---- A Conn ----

// tracedConn shows what passes through a Conn.
type tracedConn struct {
	Conn
	trail        *trail
	ours, theirs string // ">" is the side of the client
}

// traceConn returns a Conn that shows what passes through conn, if that is printed.
func (t *tap) traceConn(conn Conn, ours, theirs string) Conn {
	if !t.prints {
		return conn
	}
	return &tracedConn{conn, &trail{tap: t}, ours, theirs}
}

// Read shows what it has read. What is no message is shown as the error that answers it.
func (c *tracedConn) Read() (Payload, error) {
	p, err := c.Conn.Read()
	if err == nil {
		c.trail.show(c.theirs, string(p.Append(nil)))
	}
	return p, err
}

// Write shows what it sends.
func (c *tracedConn) Write(ctx context.Context, p Payload) error {
	c.trail.show(c.ours, string(p.Append(nil)))
	return c.Conn.Write(ctx, p)
}

// ---- HTTP ----

// showRequest shows a request, and returns the trail of its exchange. The body is read for that: the
// request that it returns is a copy, whose body can be read again.
func (t *tap) showRequest(r *http.Request) (*trail, *http.Request) {
	x := &trail{tap: t}
	for n := t.exchanges.Add(1); n > 0; n = (n - 1) / 26 { // as a spreadsheet counts its columns: A … Z, AA …
		x.letter = string(rune('A'+(n-1)%26)) + x.letter
	}
	r = r.WithContext(r.Context())
	whole := cmp.Or[io.ReadCloser](r.Body, http.NoBody)            // a GET that was redirected has none
	body, _ := io.ReadAll(io.LimitReader(whole, int64(t.maxBody))) // an error comes again at the next Read
	r.Body = io.NopCloser(io.MultiReader(bytes.NewReader(body), whole))
	x.show(">", strings.TrimRight(shownHead(r.Method+" "+r.URL.RequestURI(), r.Header)+string(body), "\n"))
	return x, r
}

// shownFields are the fields of a header that matter to MCP.
var shownFields = regexp.MustCompile("^(Accept|Allow|Authorization|Content-Type|Last-Event-Id|Mcp-.*|Origin|" +
	"Retry-After|Www-Authenticate|Access-Control-.*)$")

// shownHead returns what comes before a body: the first line, the fields that matter to MCP, sorted, and
// an empty line.
func shownHead(first string, header http.Header) string {
	shown := maps.Clone(header)
	maps.DeleteFunc(shown, func(name string, _ []string) bool { return !shownFields.MatchString(name) })
	var lines strings.Builder
	_ = shown.Write(&lines) // to a Builder it cannot fail
	return first + "\n" + lines.String() + "\n"
}

// showBody shows the complete lines of a part of the response's body, and keeps the rest for the next
// part.
func (x *trail) showBody(part []byte, isEnd bool) {
	end := bytes.LastIndexByte(part, '\n') + 1
	if isEnd || len(x.rest)+len(part) > 4<<20 { // more is not kept
		end = len(part)
	}
	x.rest = append(x.rest, part[:end]...)
	if end > 0 || isEnd && len(x.rest) > 0 {
		x.show("<", string(x.rest))
		x.rest = nil
	}
	x.rest = append(x.rest, part[end:]...)
}

// tracedTransport shows requests of a client and their responses.
type tracedTransport struct{ *tap }

// RoundTrip makes a request.
func (t tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	x, r := t.showRequest(r)
	response, err := http.DefaultTransport.RoundTrip(r)
	if err == nil {
		x.show("<", shownHead(strconv.Itoa(response.StatusCode), response.Header))
		response.Body = tracedBody{response.Body, x}
	}
	return response, err
}

// tracedBody shows what is read of a response.
type tracedBody struct {
	io.ReadCloser
	trail *trail
}

// Read shows what it has read.
func (b tracedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.trail.showBody(p[:n], err == io.EOF)
	return n, err
}

// traceHandler returns an http.Handler that shows what next reads and writes.
func (t *tap) traceHandler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		x, r := t.showRequest(r)
		traced := &tracedResponse{ResponseWriter: w, trail: x}
		next.ServeHTTP(traced, r)
		traced.WriteHeader(http.StatusOK) // has no effect if next has sent a status
		x.showBody(nil, true)
	})
}

// tracedResponse is the response of a handler.
type tracedResponse struct {
	http.ResponseWriter
	trail     *trail
	hasStatus bool
}

// Unwrap returns the http.ResponseWriter, for http.NewResponseController.
func (w *tracedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends and shows the status and the header, once.
func (w *tracedResponse) WriteHeader(status int) {
	if !w.hasStatus {
		w.hasStatus = true
		w.trail.show("<", shownHead(strconv.Itoa(status), w.Header()))
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write shows what the handler writes.
func (w *tracedResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.trail.showBody(b, false)
	return w.ResponseWriter.Write(b)
}

// Printable replaces the characters of a text that a terminal may act on.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) && r != '\n' && r != '\t' {
			return unicode.ReplacementChar
		}
		return r
	}, text)
}

// ==== The page ====
//
// A browser that asks for / gets the page: the course, drawn by its script, and how to connect. With
// -watch it also shows what all clients and the server say to each other:
//
//	trail ── show ──► a channel for each page ──► GET /watch
//
// The page holds nothing of any conversation, so everybody may load it. GET /watch is for those who
// may call the server: the same Guard and the same token protect it.

// pageFile is the page, without the lessons.
//
//go:embed testdata/page.html
var pageFile string

// lessonFiles are the lessons.
//
//go:embed testdata/[0-9]*.md
var lessonFiles embed.FS

// servePage writes the page, with its data in it. JSON as json.Marshal writes it has no <, so it
// cannot end the script. The policy allows the script and the style that have the nonce, and requests
// to this server, so a text that gets into the page by mistake can do no harm.
func (o *options) servePage(w http.ResponseWriter, _ *http.Request) {
	var lessons []map[string]string
	files, _ := lessonFiles.ReadDir("testdata") // sorted
	for _, file := range files {
		text, _ := lessonFiles.ReadFile("testdata/" + file.Name())
		lessons = append(lessons, map[string]string{"name": file.Name(), "text": string(text)})
	}
	data, _ := json.Marshal(map[string]any{
		"version": version, "token": o.token != "", "watch": o.watch, "lessons": lessons})
	nonce := rand.Text()
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Content-Security-Policy", fmt.Sprintf("default-src 'none'; connect-src 'self'; "+
		"script-src 'nonce-%s'; style-src 'nonce-%[1]s'; base-uri 'none'; frame-ancestors 'none'", nonce))
	page := strings.NewReplacer("<style>", `<style nonce="`+nonce+`">`, "<script>", `<script nonce="`+nonce+`">`,
		`id="data">{}<`, `id="data">`+string(data)+"<")
	_, _ = page.WriteString(w, pageFile) // fails only if the browser has gone
}

// serveWatcher sends what is shown to a page, from now on, until the page or the server ends it, or the
// page is too slow. At most 8 pages watch, and 256 events wait for each.
func (t *tap) serveWatcher(w http.ResponseWriter, r *http.Request) {
	defer t.watching.Add(-1)
	if t.watching.Add(1) > 8 || r.Header.Get("Sec-Fetch-Site") == "cross-site" { // which a GET without an Origin may be
		refuse(w, http.StatusServiceUnavailable, "Too many pages watch, or this one is of another site")
		return
	}
	events := make(chan []byte, 256)
	t.watchers.Store(events, true)
	defer t.watchers.Delete(events)
	w.Header().Set("Content-Type", "text/event-stream")
	response := http.NewResponseController(w)
	_ = response.SetReadDeadline(time.Time{}) // the request has been read
	text, isOpen := []byte(": the transcript begins here\n\n"), true
	for isOpen {
		_ = response.SetWriteDeadline(writeDeadline(len(text)))
		_, err := w.Write(text)
		if err != nil || response.Flush() != nil || response.SetWriteDeadline(time.Time{}) != nil {
			return
		}
		select {
		case text, isOpen = <-events:
		case <-r.Context().Done():
			return
		}
	}
}

// ==== The program ====

const version = "0.3.0"

// exitStatus is an error that ends the program with a status of its own: 2 if a flag or an argument
// is wrong, 3 if the result of call -tool has isError.
type exitStatus struct {
	error
	status int
}

// usageError returns the error of a command line that does not fit.
func usageError(format string, args ...any) error { return exitStatus{fmt.Errorf(format, args...), 2} }

// main runs a command until it ends by itself, or a signal comes. A second interrupt ends it at once.
func main() {
	slog.SetDefault(slog.New(slog.DiscardHandler))          // net/http logs some of what a broken server sends
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // a reader that has gone is the error of a write
	ends := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		ends = append(ends, syscall.SIGHUP)
	}
	ctx, _ := signal.NotifyContext(context.Background(), ends...)
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	commands := map[string]func(context.Context, *options) error{"": serve, "call": call, "bridge": bridge}
	command, args := "", os.Args[1:]
	if len(args) > 0 && commands[args[0]] != nil {
		command, args = args[0], args[1:]
	}
	o := &options{header: http.Header{}}
	err := o.parse(command, args)
	if err == nil {
		err = commands[command](ctx, o)
	}
	if err == nil || command != "call" && (ctx.Err() != nil || errors.Is(err, syscall.EPIPE)) {
		exit(0) // a signal, and a client that has hung up, are how a server usually ends
	}
	printError(err)
	special, _ := errors.AsType[exitStatus](err)
	exit(cmp.Or(special.status, 1))
}

// printError prints an error. A server may have made it as long as a message, which stderr would drop.
func printError(err error) {
	flush(time.Second) // so that there is room
	fmt.Fprintln(stderr, "mcpwire:", Printable(hideQueries(fmt.Sprintf("%.10000s", err))))
}

// isTerminal reports whether a user may be typing into file, or reading it. The null device, which is a
// character device, too, is no user.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	null, _ := os.Stat(os.DevNull)
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && !os.SameFile(info, null)
}

// isURL reports whether a target is a URL, and no command.
func isURL(target string) bool { return regexp.MustCompile(`(?i)^https?://`).MatchString(target) }

// isObject reports whether a text is a JSON object.
func isObject(text string) bool { return json.Valid([]byte(text)) && strings.TrimSpace(text)[0] == '{' }

// ---- Flags ----

// options are the flags of all commands. parse, define, defineTarget and defineCall say which field belongs to
// which flag, and what it means. The last two are no flags: the commands keep there what they have found
// out, and made.
type options struct {
	trace, stateless, watch, trustProxy, json, interactive      bool
	http, token, authServer, replica, stateKey, tlsCert, tlsKey string
	dir, method, params, tool, content, sample                  string
	versions, env, arguments, target                            []string
	timeout, sessionTTL, keepAlive                              time.Duration
	maxBody, maxSessions, keep                                  int
	header                                                      http.Header
	roots                                                       []map[string]string // each has a uri and a name
	guard                                                       Guard

	transport string // the name of the one that was tried last
	tap       *tap   // what shows the messages of this command
}

const usage = `usage: mcpwire [flags]                   serve the demo on stdin and stdout, or with -http over HTTP
       mcpwire call [flags] TARGET...    call a server; without -method, -tool and -i: say what it offers
       mcpwire bridge [flags] TARGET...  a server on stdin and stdout, which passes all on to another
TARGET is a URL, or a command with its arguments. The flags of this command:`

// parse reads the flags and the target of a command. If help was asked for, it ends the program. What
// the environment says is read after the flags: as the default of one, -h would print a secret.
func (o *options) parse(command string, args []string) error {
	flags := flag.NewFlagSet(command, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
	map[string]func(*flag.FlagSet){"": o.define, "call": o.defineCall, "bridge": o.defineTarget}[command](flags)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Println(usage)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		exit(0)
	}
	o.target = flags.Args()
	o.tap = &tap{prints: o.trace, maxBody: o.maxBody}
	o.timeout = cmp.Or(o.timeout, 100_000*time.Hour) // 0 means none, and ten times as much is a time.Duration, too
	o.stateKey = cmp.Or(o.stateKey, os.Getenv("MCPWIRE_STATE_KEY"))
	token, isSet := os.LookupEnv("MCPWIRE_TOKEN")
	if isSet && o.http != "" && o.token == "" && flags.Set("token", strings.TrimSpace(token)) != nil {
		err = cmp.Or(err, errors.New("MCPWIRE_TOKEN is set, and holds no token")) // not: everybody may come in
	}
	if err = cmp.Or(err, o.check(command, flags.Arg(0))); err != nil {
		return usageError("%w (-h for help)", err)
	}
	return nil
}

// isNear matches addresses of this machine alone.
var isNear = regexp.MustCompile(`^$|^(localhost|127\.[0-9.]+|\[::1\])?:`)

// check returns an error if the flags do not fit together: the reason of the first line below that is
// true. target is the first argument that is no flag, or "".
func (o *options) check(command, target string) error {
	isServer := command == ""
	var wrong error
	forbid := func(isWrong bool, reason string) {
		if isWrong && wrong == nil {
			wrong = errors.New(reason)
		}
	}
	forbid(isServer && target != "", "there is no such command: only call and bridge")
	forbid(!isServer && target == "", "the server is missing: a URL or a command")
	forbid(isURL(target) && len(o.target) > 1, "nothing may follow the URL: flags go before it")
	forbid(o.arguments != nil && o.tool == "" || o.params != "" && o.method == "", "-arg needs -tool, -params -method")
	forbid(!isObject(cmp.Or(o.params, "{}")) || !isObject(cmp.Or(o.content, "{}")), "-params and -answer are objects")
	forbid(o.maxBody <= 0 || isServer && o.maxSessions <= 0, "-max-body and -max-sessions must be more than 0")
	forbid((o.tlsCert == "") != (o.tlsKey == ""), "-tls-cert and -tls-key go together")
	forbid(min(o.timeout, o.keepAlive, o.sessionTTL) < 0, "a time is less than 0")
	forbid(o.watch && o.token == "" && !isNear.MatchString(o.http), "-watch needs -token, unless HOST is this machine")
	forbid(o.http == "" && (o.token+o.tlsCert != "" || o.watch), "without -http there is no -token, -tls-cert, -watch")
	return wrong
}

// define defines the flags of the server.
func (o *options) define(flags *flag.FlagSet) {
	const host = `([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?`
	const origin = `null|[a-z][a-z0-9+.-]*://` + host
	text := textFlags(flags)
	text("http", "serve HTTP at `HOST:PORT`; without HOST at 127.0.0.1", `([^][:]*|\[[^][]*\]):\w+`, setText(&o.http))
	flags.BoolVar(&o.stateless, "stateless", false, "no sessions: every POST stands alone")
	flags.DurationVar(&o.sessionTTL, "session-ttl", 30*time.Minute, "end a session that is idle for so long")
	flags.IntVar(&o.maxSessions, "max-sessions", 10_000, "sessions at once")
	flags.IntVar(&o.maxBody, "max-body", 4<<20, "`bytes` in one message, also on stdio")
	o.keep = 4 << 20
	text("event-buffer", "`bytes` a stream keeps, such as 512k, 0 (default 4M)", `\d{1,4}M|\d{1,6}k|\d{1,9}`, o.setKeep)
	flags.DurationVar(&o.keepAlive, "keepalive", 15*time.Second, "comment on a stream after a silence; 0: none")
	text("allow-origin", "let in this `SCHEME://HOST[:PORT]`, with CORS; repeatable", origin, addText(&o.guard.Origins))
	text("allow-host", "let in this `HOST[:PORT]` on a loopback address; repeatable", host, addText(&o.guard.Hosts))
	text("token", "require Authorization: Bearer `TOKEN` (default $MCPWIRE_TOKEN, or none)", `\S+`, setText(&o.token))
	text("auth-server", "`URL` of the authorization server, for metadata", `https?://[^/].*`, setText(&o.authServer))
	flags.BoolVar(&o.trustProxy, "trust-proxy", false, "believe X-Forwarded-Proto: a proxy in front sets it")
	text("replica", "`name` that begins session ids, so that a proxy can route by it", `[!-~]+`, setText(&o.replica))
	text("state-key", "`key` of requestState (default $MCPWIRE_STATE_KEY or random)", `.+`, setText(&o.stateKey))
	text("tls-cert", "serve HTTPS with the certificate in this `file`", `.+`, setText(&o.tlsCert))
	text("tls-key", "and the key in this `file`", `.+`, setText(&o.tlsKey))
	flags.Func("versions", "`list` of versions to offer, separated by commas (default all)", o.setVersions)
	flags.BoolVar(&o.watch, "watch", false, "show every message on the page for browsers")
	flags.BoolFunc("version", "print the version", func(string) error {
		fmt.Println("mcpwire", version)
		exit(0)
		return nil
	})
}

// defineCall defines the flags of call.
func (o *options) defineCall(flags *flag.FlagSet) {
	o.defineTarget(flags)
	text := textFlags(flags)
	text("method", "`method` to call, such as tools/list", `.+`, setText(&o.method))
	text("params", "its params, a `JSON` object", `.+`, setText(&o.params))
	text("tool", "`name` of a tool to call, with an -arg for each argument", `.+`, setText(&o.tool))
	text("arg", "`KEY=VALUE`, or KEY=@FILE (@@ is @); repeatable", `[^=]+=.*`, addText(&o.arguments))
	flags.BoolVar(&o.interactive, "i", false, "read METHOD [PARAMS] lines from stdin, and print each result")
	flags.BoolVar(&o.json, "json", false, "print what the server offers as one JSON object")
	text("answer", "accept every elicitation with this `JSON` (default: ask, or decline)", `.+`, setText(&o.content))
	text("root", "offer this `directory` as a root; repeatable", `.+`, func(dir string) {
		path, _ := filepath.Abs(dir) // fails only without a working directory
		uri := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
		o.roots = append(o.roots, map[string]string{"uri": uri.String(), "name": filepath.Base(path)})
	})
	text("sampling-answer", "answer sampling/createMessage with this `text`", `.+`, setText(&o.sample))
	flags.Func("protocol", "speak this `revision` (default: find out)", o.setVersions)
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "for the start, and for a call without progress; 0: none")
}

// defineTarget defines the flags that bridge and call have in common.
func (o *options) defineTarget(flags *flag.FlagSet) {
	text := textFlags(flags)
	flags.IntVar(&o.maxBody, "max-body", 64<<20, "`bytes` in one message, in either direction")
	text("header", "`'K: V'` to send with every HTTP request, repeatable", `[^\s:]+:[^\r\n]*`, func(line string) {
		name, value, _ := strings.Cut(line, ":")
		o.header.Add(name, strings.TrimSpace(value))
	})
	text("env", "`K=V` to add to the environment of COMMAND; repeatable", `[^=]+=.*`, addText(&o.env))
	text("cwd", "start COMMAND in this `directory`", `.+`, setText(&o.dir))
}

// textFlags returns a function that defines a flag whose text must match a pattern. No pattern of ours
// matches an empty text, which comes from an unset variable of a shell: a server must not start without
// a token because of that.
func textFlags(flags *flag.FlagSet) func(name, usage, pattern string, store func(string)) {
	return func(name, usage, pattern string, store func(string)) {
		flags.Func(name, usage, func(text string) error {
			if !utf8.ValidString(text) || !regexp.MustCompile(`(?is)^(?:`+pattern+`)$`).MatchString(text) {
				return errors.New("it must be as -h says")
			}
			store(text)
			return nil
		})
	}
}

// setText returns a function that stores a text.
func setText(to *string) func(string) { return func(text string) { *to = text } }

// addText returns a function that adds a text to a list.
func addText(list *[]string) func(string) { return func(text string) { *list = append(*list, text) } }

// setKeep stores a number of bytes, such as 4096, 512k or 4M.
func (o *options) setKeep(size string) {
	_, _ = fmt.Sscan(strings.TrimRight(size, "kM"), &o.keep)     // the pattern fits
	o.keep <<= map[byte]int{'k': 10, 'M': 20}[size[len(size)-1]] // by 0 without a unit
}

// setVersions stores protocol versions, the newest first.
func (o *options) setVersions(list string) error {
	wanted := strings.Split(list, ",")
	o.versions = offered(wanted, isAny)
	if len(o.versions) != len(wanted) {
		return fmt.Errorf("the versions are %s", strings.Join(offered(nil, isAny), ", "))
	}
	return nil
}

// ---- Standard error ----

// stderr takes everything that the program prints on standard error: the log, what is traced, errors,
// and the standard error of a command. So all lines stay in order, and a slow reader of standard error
// never delays a message.
var stderr = newSpool(os.Stderr)

// spool is an io.Writer that never waits. One goroutine writes to the real one.
type spool struct {
	texts   chan []byte
	waiting atomic.Int64 // bytes that the real one has not taken
}

// newSpool returns a spool. Its goroutine ends with the program.
func newSpool(w io.Writer) *spool {
	s := &spool{texts: make(chan []byte, 4096)}
	go func() {
		for text := range s.texts {
			_, _ = w.Write(text) // if nobody reads any more, it is lost
			s.waiting.Add(-int64(len(text)))
		}
	}()
	return s
}

// Write keeps a copy of b. If 4,096 texts are waiting, or 8 MiB, it drops b.
func (s *spool) Write(b []byte) (int, error) {
	if s.waiting.Add(int64(len(b))) <= 8<<20 {
		select {
		case s.texts <- bytes.Clone(b):
			return len(b), nil
		default:
		}
	}
	s.waiting.Add(-int64(len(b)))
	return len(b), nil
}

// flush waits until what was printed has been written, but for no longer than limit.
func flush(limit time.Duration) {
	for began := time.Now(); stderr.waiting.Load() > 0 && time.Since(began) < limit; {
		time.Sleep(time.Millisecond)
	}
}

// exit ends the program.
func exit(status int) {
	flush(time.Second)
	os.Exit(status)
}
