// Mcpwire is the wire of the Model Context Protocol in one flat package that imports only
// the standard library: messages, stdio, HTTP, and the lifecycle of all five revisions,
// from both ends. As a program it is a small demo server, a client for any server, and a
// bridge between a client and a server:
//
//	mcpwire                                          serve the demo on standard input and output
//	mcpwire -http :8080                              serve it over HTTP, at http://127.0.0.1:8080/mcp
//	mcpwire call http://127.0.0.1:8080/mcp           say how a server was reached and what it offers
//	mcpwire call COMMAND [ARG...]                    start a server, and say the same
//	mcpwire call -tool echo -arg text=hi COMMAND     call one tool and print its result
//	mcpwire call -method tools/list COMMAND [ARG...] call one method and print its result
//	mcpwire bridge -trace http://127.0.0.1:8080/mcp  stand between a client on stdio and a server, and show what they say
//
// The library is jsonrpc.go (messages, and a conversation with one peer), stdio.go (lines
// over a byte stream), session.go (the lifecycle), sse.go (events over HTTP) and http.go
// (Streamable HTTP). Read them in that order. This file shows how to use the library, and
// none of the others needs it. README.md says which files to copy for which purpose.
package main

// This file uses only the exported names of the library, like a program that imports a copy.
// It begins with a whole server, the demo. The rest is for later:
//
//	the demo      five tools, some notes as resources, one prompt
//	serve         serves the demo, over stdio or over HTTP
//	call          calls a server: it reads typed arguments from the command line, and prints results
//	bridge        passes on messages between two Conns, with a table of the requests that wait
//	the tap       sees the messages of a Conn or of HTTP, and shows them: -trace, -watch
//	the page      for browsers: the course, and what the tap sees
//	the program   main, signals, flags, and standard error
//
// On a first reading, read to the banner "Notes: resources, a tool that writes one, and a prompt about
// one": 225 lines. testdata/examples has smaller programs. The one in users serves a tool over HTTP.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"log"
	"log/slog"
	"maps"
	"math"
	"mime"
	"net"
	"net/http"
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
	"unicode/utf16"
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
		Info: Implementation{Name: "mcpwire", Title: "mcpwire demo", Version: version, Icons: pixelIcons},
		// Without this field the Server would declare listChanged for tools and prompts, too.
		Capabilities: map[string]any{"completions": struct{}{}, "logging": struct{}{}, "prompts": struct{}{}, "tools": struct{}{},
			"resources": map[string]any{"listChanged": true, "subscribe": true}},
		Instructions: "A demo: made-up weather, an echo, a counter, a question and a few notes.",
		Methods:      map[string]HandlerFunc{"completion/complete": d.complete}, // completes the name of a note
	}
	d.OfferLogging()    // count sends log messages
	d.AnnounceChanges() // clients are told of new and changed notes
	// addTool calls AddTool, and adds a key of our own to _meta if the result is a text.
	addTool(d, weatherTool, d.getWeather) // the tool has a section of its own, after the notes
	addTool(d, echoTool, d.echo)
	addTool(d, countTool, d.count)
	addTool(d, askTool, d.ask)
	// See the section about notes.
	addTool(d, noteTool, d.setNote)
	d.AddResourceTemplate(noteTemplate, d.readNote)
	d.AddPrompt(summarizePrompt, d.summarize)
	d.storeNote("welcome", "This note is served by mcpwire.")
	return d
}

// ---- Tools ----

// readsOnly tells a client that a tool changes nothing.
var readsOnly = &ToolAnnotations{ReadOnly: true, Idempotent: true}

// echoTool is what clients see of the tool echo.
var echoTool = Tool{
	Name: "echo", Title: "Echo", Description: "Returns the text it is given.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"text":{"type":"string","description":"what to return"},
		"repeat":{"type":"integer","minimum":1,"maximum":4194304,"default":1,"description":"how many times in a row"}},"required":["text"]}`),
	Annotations: readsOnly,
}

// echoArguments are what echo gets. Each field has the name of an argument. With omitempty
// the argument is optional.
type echoArguments struct {
	Text   string `json:"text"`
	Repeat *int   `json:"repeat,omitempty"` // nil: 1
}

// echo runs the tool. Its error becomes a result with isError, which the model reads.
func (d *demo) echo(_ context.Context, _ *Exchange, args echoArguments) (any, error) {
	repeat := 1
	if args.Repeat != nil {
		repeat = *args.Repeat
	}
	if err := checkEcho(args.Text, repeat); err != nil {
		return nil, err
	}
	return strings.Repeat(args.Text, repeat), nil
}

var countTool = Tool{
	Name: "count", Title: "Count", Description: "Counts to n, one step after the other, and reports each.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"n":{"type":"integer","minimum":0,"maximum":1000000,"description":"steps"},
		"delayMs":{"type":"integer","minimum":0,"maximum":600000,"default":0,"description":"wait before each step; all waits together take at most an hour"},
		"poll":{"type":"boolean","default":false,"description":"let go of the connection meanwhile, where that can be done"}},"required":["n"]}`),
	Annotations: readsOnly,
}

type countArguments struct {
	N       int  `json:"n"`
	DelayMs int  `json:"delayMs,omitempty"`
	Poll    bool `json:"poll,omitempty"`
}

// count reports its progress, and logs each step.
func (d *demo) count(ctx context.Context, x *Exchange, args countArguments) (any, error) {
	delay := time.Duration(args.DelayMs) * time.Millisecond
	if err := checkCount(args, delay); err != nil {
		return nil, err
	}
	if args.Poll {
		x.Disconnect(time.Second) // over HTTP, in 2025-11-25: the client asks for the rest after a second
	}
	for i := 1; i <= args.N; i++ {
		if delay > 0 {
			select {
			case <-time.After(delay):
			case <-ctx.Done():
			}
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err := x.Progress(ctx, float64(i), float64(args.N)); err != nil {
			return nil, err
		}
		if err := x.Log(ctx, "debug", fmt.Sprintf("step %d of %d", i, args.N)); err != nil {
			return nil, err
		}
	}
	return fmt.Sprintf("counted to %d", args.N), nil
}

var askTool = Tool{
	Name: "ask", Title: "Ask for a name", Description: "Asks the user for a name, and greets.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
	Annotations: readsOnly,
}

// nameQuestion is the question of the tool ask.
var nameQuestion = InputRequest{Method: "elicitation/create", Params: ElicitParams{
	Message:         "What is your name?",
	RequestedSchema: json.RawMessage(`{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}`),
}}

// nameForm is the answer of the user.
type nameForm struct {
	Name string `json:"name,omitempty"`
}

// ask returns an InputRequired in place of a result: a question, with the key "name". When the
// user has answered, ask runs again, and Input reads the answer with this key. If the answer
// does not fit, ask asks again.
func (d *demo) ask(_ context.Context, x *Exchange, _ struct{}) (any, error) {
	question := InputRequired{Requests: map[string]InputRequest{"name": nameQuestion}}
	var answer ElicitResult
	if !x.Input("name", &answer) { // there is no answer yet
		return question, nil
	}
	if answer.Action == "decline" || answer.Action == "cancel" {
		return ToolError("No name: the user chose %s", answer.Action), nil
	}
	var form nameForm
	err := Bind(answer.Content, &form)
	if answer.Action != "accept" || err != nil || form.Name == "" {
		return question, nil
	}
	return "Hello, " + form.Name, nil
}

// ---- Notes: resources, a tool that writes one, and a prompt about one ----

const (
	noteScheme = "note:///"
	maxNotes   = 200
	maxNote    = 64 << 10 // characters
)

var noteTool = Tool{
	Name: "set-note", Title: "Write a note", Description: "Keeps a note, to be read as the resource note:///NAME.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"name":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"name of the note"},
		"text":{"type":"string","maxLength":65536,"description":"the note"}},"required":["name","text"]}`),
	Annotations: &ToolAnnotations{Destructive: true, Idempotent: true}, // it overwrites a note
}

const noteName = `^[A-Za-z0-9._-]{1,64}$`

type noteArguments struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (d *demo) setNote(_ context.Context, _ *Exchange, args noteArguments) (any, error) {
	isName, _ := regexp.MatchString(noteName, args.Name) // no error, because the pattern is good
	if !isName || utf8.RuneCountInString(args.Text) > maxNote {
		return nil, fmt.Errorf("'name' must match %s, and 'text' be no longer than %d characters", noteName, maxNote)
	}
	if !d.storeNote(args.Name, args.Text) {
		return ToolError("There are %d notes already; no room for more.", maxNotes), nil
	}
	d.Publish("notifications/resources/updated", ResourceParams{noteScheme + args.Name})
	return "Noted as " + noteScheme + args.Name, nil
}

// storeNote writes a note, and offers it as a resource if it is new. It returns false
// if there is no room for another note.
func (d *demo) storeNote(name, text string) bool {
	d.mu.Lock()
	_, isKnown := d.notes[name]
	hasRoom := isKnown || len(d.notes) < maxNotes
	if hasRoom {
		d.notes[name] = text
	}
	d.mu.Unlock()
	if hasRoom && !isKnown {
		d.AddResource(Resource{URI: noteScheme + name, Name: name, MimeType: "text/plain"}, d.readNote)
	}
	return hasRoom
}

// note returns the text of a note. ok is false if there is no such note.
func (d *demo) note(name string) (text string, ok bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	text, ok = d.notes[name]
	return text, ok
}

// noteTemplate shows clients how the URIs of the notes are made.
var noteTemplate = ResourceTemplate{
	URITemplate: noteScheme + "{name}", Name: "note", Description: "A note by its name.", MimeType: "text/plain",
}

func (d *demo) readNote(_ context.Context, _ *Exchange, uri string) (any, error) {
	text, ok := d.note(strings.TrimPrefix(uri, noteScheme))
	if !ok {
		return nil, ResourceNotFound(uri)
	}
	return text, nil
}

var summarizePrompt = Prompt{
	Name: "summarize-note", Title: "Summarize a note", Description: "Asks for a summary of a note.",
	Arguments: []PromptArgument{{Name: "name", Description: "name of the note", Required: true}},
}

func (d *demo) summarize(_ context.Context, _ *Exchange, arguments map[string]string) (any, error) {
	name := arguments["name"]
	text, ok := d.note(name)
	if !ok {
		return nil, &Error{Code: CodeInvalidParams, Message: fmt.Sprintf("Unknown note: %.500s", name)}
	}
	note := ResourceContents{URI: noteScheme + name, MimeType: "text/plain", Text: text}
	return PromptResult{Messages: []PromptMessage{
		{Role: "user", Content: EmbeddedResource(note)},
		{Role: "user", Content: TextContent("Summarize this note in one sentence.")},
	}}, nil
}

// ---- Completion ----

// completeParams are the params of completion/complete. 2025-11-25
// server/utilities/completion#requesting-completions.
type completeParams struct {
	Ref struct {
		Type string `json:"type"` // ref/prompt or ref/resource
		Name string `json:"name,omitempty"`
		URI  string `json:"uri,omitempty"`
	} `json:"ref"`
	Argument struct {
		Name  string `json:"name"`
		Value string `json:"value"`
	} `json:"argument"`
}

// maxCompletion is how many values a completion may have. 2025-11-25
// server/utilities/completion#completion-results.
const maxCompletion = 100

// complete completes the name of a note, for the prompt and for the template.
func (d *demo) complete(_ context.Context, x *Exchange) (any, error) {
	var p completeParams
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	isPrompt := p.Ref.Type == "ref/prompt" && p.Ref.Name == summarizePrompt.Name
	isTemplate := p.Ref.Type == "ref/resource" && p.Ref.URI == noteTemplate.URITemplate
	if !isPrompt && !isTemplate || p.Argument.Name != "name" {
		return nil, InvalidParams("Unknown reference or argument")
	}
	values := slices.DeleteFunc(d.noteNames(), func(name string) bool { return !strings.HasPrefix(name, p.Argument.Value) })
	shown := min(len(values), maxCompletion)
	completion := map[string]any{"hasMore": shown < len(values), "total": len(values), "values": values[:shown]}
	return map[string]any{"completion": completion}, nil
}

// noteNames returns the names of the notes, sorted.
func (d *demo) noteNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.notes))
}

// ---- The weather: an argument that a header repeats, and an error that answers the request ----

// weatherTool marks the argument unit with x-mcp-header: a modern client repeats this argument
// in the header of its HTTP request.
var weatherTool = Tool{
	Name: "get-weather", Title: "Weather", Description: "The current temperature in a city. The data is made up.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"city":{"type":"string","minLength":1,"description":"name of the city"},
		"unit":{"type":"string","x-mcp-header":"Unit","enum":["celsius","fahrenheit"],"default":"celsius","description":"unit of the temperature"}},"required":["city"]}`),
	Annotations: readsOnly, Icons: pixelIcons,
}

type weatherArguments struct {
	City *string `json:"city,omitempty"` // nil: missing
	Unit *string `json:"unit,omitempty"` // nil: celsius
}

// getWeather has one exception. If there is no city, it returns an *Error, which answers the
// request itself: scripts outside of this project look for this one. Without omitempty,
// AddTool would make a result with isError, as the other tools of the demo have it.
func (d *demo) getWeather(_ context.Context, _ *Exchange, args weatherArguments) (any, error) {
	switch {
	case args.City == nil:
		return nil, &Error{Code: CodeInvalidParams, Message: "Invalid params", Data: json.RawMessage(`"Missing required argument: 'city'"`)}
	case *args.City == "":
		return nil, errors.New("'city' must not be empty")
	}
	unit := "celsius"
	if args.Unit != nil {
		unit = *args.Unit
	}
	temperatures := map[string]string{"celsius": "18°C", "fahrenheit": "64°F"}
	temperature, isUnit := temperatures[unit]
	if !isUnit {
		return nil, errors.New("'unit' must be celsius or fahrenheit")
	}
	return fmt.Sprintf("Current temperature in %s is %s", *args.City, temperature), nil
}

// ---- The picture, the key in _meta, and the limits of two tools ----

// pixel is a PNG of one pixel. It shows how icons are declared.
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

var pixelIcons = []Icon{{Src: pixel, MimeType: "image/png", Sizes: []string{"1x1"}}}

// addTool adds a tool to the demo. If run returns a text, the result also gets a key of our
// own in _meta, to show how such a key is written. Only revisions from 2025-06-18 on, those
// with Titles, have rules for such keys. Most servers call AddTool itself, as in
// testdata/examples/tools.
func addTool[A any](d *demo, tool Tool, run func(context.Context, *Exchange, A) (any, error)) {
	AddTool(d.Server, tool, func(ctx context.Context, x *Exchange, arguments A) (any, error) {
		result, err := run(ctx, x, arguments)
		text, isText := result.(string)
		if err != nil || !isText || !x.Revision().Titles {
			return result, err
		}
		return ToolResult{Content: []Content{TextContent(text)}, Meta: toolMeta{tool.Name}}, nil
	})
}

// toolMeta is the _meta of our tool results.
type toolMeta struct {
	Tool string `json:"com.example.mcpwire/tool"`
}

const maxEcho = 4 << 20 // bytes of an echo, as JSON

// checkEcho returns an error if the answer of echo would be too large.
func checkEcho(text string, repeat int) error {
	if repeat < 1 || repeat > maxEcho {
		return fmt.Errorf("'repeat' must be an integer from 1 to %d", maxEcho)
	}
	limit := maxEcho / repeat
	if len(text) > limit/6 && jsonLength(text) > limit { // a byte of text becomes at most six of JSON
		return fmt.Errorf("an echo has at most %d bytes as JSON", maxEcho)
	}
	return nil
}

// jsonLength returns how many bytes a text has as JSON. A control character of one byte
// becomes six bytes: \u0001.
func jsonLength(text string) int {
	encoded, _ := toJSON(text) // a text can be encoded
	return len(encoded) - len(`""`)
}

const maxCount = time.Hour // the longest time that one count takes

// checkCount returns an error if a count would take too long.
func checkCount(args countArguments, delay time.Duration) error {
	switch {
	case args.N < 0 || args.N > 1_000_000 || args.DelayMs < 0 || args.DelayMs > 600_000:
		return errors.New("'n' must be an integer from 0 to 1000000, and 'delayMs' one from 0 to 600000")
	case time.Duration(args.N)*delay > maxCount:
		return fmt.Errorf("'n' times 'delayMs' must not be more than %v", maxCount)
	}
	return nil
}

// ==== Serving the demo ====

// options are the flags of a server. They are defined at the end of this file.
type options struct {
	http       string // the address to listen on; "": serve stdio
	token      string // "": no token is needed
	authServer string // the URL of the authorization server; "": none
	replica    string // how session ids begin
	stateKey   string
	tlsCert    string // a file
	tlsKey     string // a file
	stateless  bool
	trace      bool
	watch      bool
	watchers   watchers // with watch
	versions   []string // newest first; empty: all
	sessions   Sessions
	guard      Guard // of all handlers; those of MCP and of /watch add Authenticate to a copy
}

// serve runs the demo server until the client hangs up or ctx ends.
func serve(ctx context.Context, args []string) error {
	var o options
	parse("mcpwire", args, serveUsage, o.define, o.check)
	demo := newDemo()
	demo.Versions = o.versions
	demo.StateKey = []byte(cmp.Or(o.stateKey, os.Getenv("MCPWIRE_STATE_KEY")))
	level := slog.LevelInfo
	if o.trace { // the trace shows the requests, and without log lines it can be replayed
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	run := o.serveStdio
	if o.http != "" {
		run = o.serveHTTP
	}
	err := run(ctx, demo, log)
	// A signal, and a client that has hung up, are how a server usually ends.
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// ---- stdio ----

func (o *options) serveStdio(ctx context.Context, demo *demo, log *slog.Logger) error {
	if isTerminal(os.Stdin) {
		fmt.Fprintln(stderr, `mcpwire: waiting for a client on standard input, one message a line, such as {"jsonrpc":"2.0","id":1,"method":"ping"}; Ctrl-D ends it, mcpwire -h shows what else there is`)
	}
	var conn Conn = &clientConn{Conn: StdioConn(int(o.guard.MaxBody)), signalled: ctx}
	if o.trace {
		conn = &tappedConn{Conn: conn, tap: newTap(), here: "server", there: "client"}
	}
	return Serve(ctx, conn, demo, log)
}

// clientConn is standard input and output, with a client at the other end. When a client has
// ended our input, and then sends SIGTERM, it does not read any more, and nothing is written
// to it. The client of the Python SDK would fail if another message came.
type clientConn struct {
	Conn
	signalled  context.Context // ends with the signal
	inputEnded atomic.Bool     // nothing more is read
}

// Read returns what the client has sent.
func (c *clientConn) Read() (Payload, error) {
	in, err := c.Conn.Read()
	if err != nil {
		c.inputEnded.Store(true)
	}
	return in, err
}

// Write sends something to the client, if that still reads.
func (c *clientConn) Write(ctx context.Context, out Payload) error {
	if c.inputEnded.Load() && c.signalled.Err() != nil {
		return ErrClosed
	}
	return c.Conn.Write(ctx, out)
}

// ---- HTTP ----

const (
	ioTimeout    = 30 * time.Second // to read a request, and to write a response that is no stream
	shutdownTime = 4500 * time.Millisecond
)

// serveHTTP serves the demo until ctx ends. Then requests that are running may
// finish, but no longer than shutdownTime.
func (o *options) serveHTTP(ctx context.Context, demo *demo, log *slog.Logger) error {
	mcp, sse, mux := o.handlers(demo, log)
	server := &http.Server{Handler: mux, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: 4 * ioTimeout,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelWarn)}
	server.RegisterOnShutdown(o.watchers.end) // Shutdown waits for their responses
	scheme := "http"
	run := server.Serve
	if o.tlsCert != "" {
		certificate, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		scheme = "https"
		run = func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	host, port, err := net.SplitHostPort(o.http)
	if err != nil {
		return err
	}
	// The program is for one machine unless a host is named.
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "mcpwire: listening on %s://%s/mcp\n", scheme, listener.Addr())
	served := make(chan error, 1)
	go func() { served <- run(listener) }() // ends with server.Close at the latest
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return shutDown(server, mcp, sse)
	}
}

// shutDown ends a server. Streams do not end by themselves, so the handlers are
// closed while Shutdown waits for their responses. http.Server can call them
// with RegisterOnShutdown, but does not wait for such calls.
func shutDown(server *http.Server, mcp *StreamableHandler, sse *SSEHandler) error {
	ctx, cancel := context.WithTimeout(context.Background(), shutdownTime)
	defer cancel()
	var closing sync.WaitGroup
	closing.Go(mcp.Close)
	closing.Go(sse.Close)
	err := server.Shutdown(ctx)
	closing.Wait()
	return errors.Join(err, server.Close())
}

// handlers completes the options with what flags leave open. Then it makes the handlers of
// both transports, and the mux that has all paths, those of the page included.
func (o *options) handlers(demo *demo, log *slog.Logger) (mcp *StreamableHandler, sse *SSEHandler, mux *http.ServeMux) {
	o.token = cmp.Or(o.token, strings.TrimSpace(os.Getenv("MCPWIRE_TOKEN")))
	if o.guard.KeepAlive == 0 {
		o.guard.KeepAlive = -1 // the flag's 0 means none, that of Guard means the default
	}
	o.guard.Log = log
	o.guard.OriginsName = "-allow-origin"
	o.guard.HostsName = "-allow-host"
	mcp = &StreamableHandler{Handler: demo, Guard: o.guard}
	sse = &SSEHandler{Handler: demo, Guard: o.guard}
	if o.token != "" {
		mcp.Authenticate = o.bearer("/mcp")
		sse.Authenticate = o.bearer("")
	}
	if o.replica != "" {
		newID := func() string { return o.replica + "-" + rand.Text() }
		o.sessions.NewID = newID
		sse.NewID = newID
	}
	if !o.stateless {
		mcp.Sessions = &o.sessions
	}
	endpoints := http.NewServeMux()
	endpoints.Handle("/mcp", mcp)
	endpoints.Handle("/mcp/{$}", mcp)
	offersLegacy := func(r Revision) bool {
		return !r.Modern && (len(demo.Versions) == 0 || slices.Contains(demo.Versions, r.Version))
	}
	if slices.ContainsFunc(Revisions, offersLegacy) {
		endpoints.Handle("/sse", sse)
	}
	if o.authServer != "" {
		endpoints.Handle(metadataPath, o.metadata(""))
		endpoints.Handle(metadataPath+"/mcp", o.metadata("/mcp"))
	}
	return mcp, sse, o.withPage(o.tapped(endpoints))
}

// tapped returns a handler that shows what next reads and writes, if a flag asks for
// that: on standard error, on the page, or on both.
func (o *options) tapped(next http.Handler) http.Handler {
	if !o.trace && !o.watch {
		return next
	}
	t := newTap()
	t.isSilent = !o.trace
	if o.watch {
		t.watchers = &o.watchers
	}
	return &tappedHandler{Handler: next, tap: t}
}

// ---- Authorization ----

const metadataPath = "/.well-known/oauth-protected-resource"

// origin returns the origin that the client has used. If a proxy in front of us
// has ended TLS, that cannot be seen, and the scheme is http.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// bearer returns the Authenticate of a handler. It lets in a request with the token. Any
// other request gets a challenge that names the metadata of path. 2025-11-25
// basic/authorization#token-requirements: the token comes in a header, never in the URL.
func (o *options) bearer(path string) func(*http.Request) (string, error) {
	// Two hashes have the same length, so the comparison takes the same time for
	// every wrong token.
	want := sha256.Sum256([]byte(o.token))
	return func(r *http.Request) (string, error) {
		scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(token)))
		isBearer := strings.EqualFold(scheme, "Bearer")
		if isBearer && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			return "token", nil
		}
		var params []string
		if isBearer {
			params = append(params, `error="invalid_token"`)
		}
		if o.authServer != "" {
			params = append(params, fmt.Sprintf("resource_metadata=%q", origin(r)+metadataPath+path))
		}
		return "", &AuthError{Challenge: strings.TrimSpace("Bearer " + strings.Join(params, ", "))}
	}
}

// metadata says which servers issue tokens for path: RFC 9728. 2025-11-25
// basic/authorization#authorization-server-location: it "MUST include the
// authorization_servers field". It needs no credentials, because a client asks for it
// before it has a token.
func (o *options) metadata(path string) http.Handler {
	return o.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		m := map[string]any{"authorization_servers": []string{o.authServer}, "bearer_methods_supported": []string{"header"}, "resource": origin(r) + path}
		_ = json.NewEncoder(w).Encode(m) // fails only if the client has gone
	}))
}

// ==== The command call ====

// caller is the client of the command line. It has one connection, and makes one
// call at a time.
type caller struct {
	Client
	options    callOptions
	target     []string // the URL, or the command
	stderr     io.Writer
	input      *bufio.Scanner // lines of standard input
	atTerminal bool           // the user can be asked
	showsLine  bool           // progress is shown on one line of a terminal
	timeout    time.Duration  // see limited
	lastToken  int64          // the last progress token

	transport string      // the name of the one that was dialled last
	inSession atomic.Bool // a response over HTTP has named a session

	idle atomic.Pointer[time.Timer] // ends the call that is running
	form chan struct{}              // has room for one: the form that the user fills in
}

const (
	maxMessage = 64 << 20            // bytes of a message
	noTimeout  = 100_000 * time.Hour // eleven years; ten times as much still is a time.Duration
	childGrace = 2 * time.Second     // for each step of shutting down a command
)

// call connects to a server. Then it makes one call, or one for each line of
// standard input, or prints a summary.
func call(ctx context.Context, args []string) error {
	var o callOptions
	target := parse("call", args, callUsage, o.define, o.check)
	c := newCaller(o, target)
	// An attempt to connect that has failed must be closed as well: it may have
	// started a command that ignores the end of its input.
	defer c.Close()
	err := c.limited(ctx, "connecting: ", func(ctx context.Context) error { return c.Connect(ctx, c.dialers()...) })
	if err != nil {
		return fmt.Errorf("%w%s", err, advice(err))
	}
	// After a signal the program cannot just return: it may be reading standard
	// input, and nothing interrupts that.
	context.AfterFunc(ctx, func() {
		c.Close()
		stderr.status("")
		stderr.flush()
		os.Exit(exitError)
	})
	switch {
	case o.interactive:
		return c.callLines(ctx)
	case o.method != "":
		_, err := c.callAndPrint(ctx, o.method, o.params)
		return err
	case o.tool != "":
		return c.callTool(ctx, o.tool, o.arguments)
	}
	return c.summarize(ctx)
}

func newCaller(o callOptions, target []string) *caller {
	c := &caller{
		options:    o,
		target:     target,
		stderr:     stderr,
		input:      bufio.NewScanner(os.Stdin),
		atTerminal: !o.interactive && isTerminal(os.Stdin),
		showsLine:  !o.trace && isTerminal(os.Stderr) && os.Getenv("TERM") != "dumb",
		timeout:    cmp.Or(o.timeout, noTimeout),
		form:       make(chan struct{}, 1),
	}
	c.input.Buffer(nil, maxMessage)
	c.Info = Implementation{Name: "mcpwire", Title: "mcpwire call", Version: version}
	c.Capabilities = map[string]any{"elicitation": struct{}{}}
	if o.roots != nil {
		c.Capabilities["roots"] = struct{}{}
	}
	if o.sample != "" {
		c.Capabilities["sampling"] = struct{}{}
	}
	c.Handler = c
	c.Versions = o.versions
	c.Log = slog.New(slog.NewTextHandler(stderr, nil))
	return c
}

// ---- Connecting ----

// dialers returns the ways to reach the target. For a URL there are two, and
// Client.Connect finds out which of them it is.
func (c *caller) dialers() []Dialer {
	url := c.target[0]
	if !isURL(url) {
		return []Dialer{c.noteTransport("stdio", c.options.dialCommand(c.target, childGrace))}
	}
	client := c.options.httpClient()
	client.Transport = &sessionNoter{client.Transport, &c.inSession}
	return []Dialer{
		c.noteTransport("Streamable HTTP", HTTPDialer{Client: client, URL: url, MaxMessage: c.options.maxMessage}),
		c.noteTransport("HTTP+SSE", SSEDialer{Client: client, URL: url, MaxMessage: c.options.maxMessage}),
	}
}

// dialCommand returns the Dialer of a command. Its stderr goes to ours.
func (o *targetOptions) dialCommand(target []string, grace time.Duration) Dialer {
	dialer := CommandDialer{Grace: grace, MaxLine: o.maxMessage, Command: func() *exec.Cmd {
		cmd := exec.Command(target[0], target[1:]...)
		cmd.Dir = o.dir
		cmd.Env = append(cmd.Environ(), o.env...)
		cmd.Stderr = stderr
		return cmd
	}}
	if !o.trace {
		return dialer
	}
	return DialerFunc(func(ctx context.Context) (Conn, error) {
		conn, err := dialer.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &tappedConn{Conn: conn, tap: newTap(), here: "client", there: "server"}, nil
	})
}

// httpClient returns the client for a URL.
func (o *targetOptions) httpClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns // there is only one host
	client := &http.Client{Transport: transport}
	if o.trace {
		client.Transport = &tappedTransport{RoundTripper: client.Transport, tap: newTap()}
	}
	return WithHeader(client, o.header)
}

// noteTransport returns a Dialer that stores its name in c.transport when it has
// dialled.
func (c *caller) noteTransport(name string, dialer Dialer) Dialer {
	return DialerFunc(func(ctx context.Context) (Conn, error) {
		conn, err := dialer.Dial(ctx)
		if err == nil {
			c.transport = name
		}
		return conn, err
	})
}

// sessionNoter notes whether a response has named a session. 2025-11-25
// basic/transports#session-management.
type sessionNoter struct {
	http.RoundTripper
	found *atomic.Bool
}

// RoundTrip sends a request.
func (n *sessionNoter) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := n.RoundTripper.RoundTrip(r)
	if err == nil && resp.Header.Get("Mcp-Session-Id") != "" {
		n.found.Store(true)
	}
	return resp, err
}

// advice returns what the user may try after an error, as a text to append to it; "":
// the error says it all.
func advice(err error) string {
	fault, _ := errors.AsType[*HTTPError](err)
	answer, _ := errors.AsType[*Error](err)
	file, _ := errors.AsType[*fs.PathError](err)
	switch {
	case fault != nil && fault.Status == http.StatusUnauthorized:
		text := "; send a token with -header 'Authorization: Bearer TOKEN'"
		if challenges := fault.Header.Values("WWW-Authenticate"); challenges != nil { // they name who issues a token: RFC 9728
			text += "; the server says: " + shorten(strings.Join(challenges, ", "), maxText)
		}
		return text
	case errors.Is(err, ErrSessionEnded): // with 404, although the path is right
		return ""
	case fault != nil && answer == nil && slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed}, fault.Status): // as of a web site
		return "; no MCP server answers at this path: that of most ends in /mcp or /sse"
	case errors.Is(err, exec.ErrNotFound), file != nil && file.Op == "fork/exec" && errors.Is(err, fs.ErrNotExist):
		return "; a URL begins with http:// or https://"
	}
	return ""
}

const capabilityAdvice = "-root offers roots, and -sampling-answer sampling"

// ---- Calls ----

// errOutput marks the error of a write to standard output. It ends the program,
// because no result can be printed any more. SIGPIPE would do the same, but main
// catches it.
var errOutput = errors.New("standard output")

// callLines makes a call for each line of standard input: METHOD [PARAMS]. If
// one fails, the next is made all the same.
func (c *caller) callLines(ctx context.Context) (failed error) {
	if isTerminal(os.Stdin) {
		fmt.Fprintln(c.stderr, "mcpwire: connected; type METHOD [PARAMS], such as tools/list; Ctrl-D ends it")
	}
	for c.input.Scan() {
		line := strings.ReplaceAll(c.input.Text(), "\t", " ")
		method, params, _ := strings.Cut(strings.TrimSpace(line), " ")
		if method == "" {
			continue
		}
		_, err := c.callAndPrint(ctx, method, params)
		if errors.Is(err, errOutput) {
			return err
		}
		if err != nil {
			printError(err)
			failed = errors.New("not all calls have succeeded")
		}
	}
	return cmp.Or(failed, c.input.Err())
}

// callAndPrint calls a method, prints its result as one line, and returns the result.
func (c *caller) callAndPrint(ctx context.Context, method, params string) (result json.RawMessage, err error) {
	err = c.callMethod(ctx, method, params, &result)
	if err != nil {
		return nil, err
	}
	return result, printOut(printedLine(result))
}

// printedLine returns JSON as a line of standard output. At a terminal it is visible: a
// text of the peer must not move the cursor, or turn the order of characters round.
func printedLine(result json.RawMessage) []byte {
	line := append(oneLine(result), '\n')
	if isTerminal(os.Stdout) {
		line = []byte(visible(string(line)))
	}
	return line
}

// printOut prints a text to standard output. What was printed to standard error before,
// such as the notifications of a call, stands before it.
func printOut(text []byte) error {
	stderr.status("")
	stderr.flush()
	if _, err := os.Stdout.Write(text); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// callMethod calls a method. params is an object, or "", and is passed on as it is. Only a
// progress token is added unless there is one, because progress extends the time-out.
func (c *caller) callMethod(ctx context.Context, method, params string, result any) error {
	if params != "" && !isObject(params) {
		return fmt.Errorf("%s: params must be a JSON object", method)
	}
	given := json.RawMessage(strings.TrimSpace(params))
	givenMeta := memberOf(given, "_meta")
	var full, meta Object
	full.AddAll(given, "_meta")
	meta.AddAll(givenMeta)
	if memberOf(givenMeta, "progressToken") == nil {
		c.lastToken++
		meta.Add("progressToken", strconv.AppendInt(nil, c.lastToken, 10))
	}
	full.Add("_meta", meta.JSON())
	err := c.limited(ctx, "", func(ctx context.Context) error { return c.Call(ctx, method, full.JSON(), result) })
	if answer, isAnswer := errors.AsType[*Error](err); isAnswer && answer.Code == CodeMissingCapability {
		err = fmt.Errorf("%w; %s", err, capabilityAdvice)
	}
	if err != nil {
		return fmt.Errorf("%s: %w%s", method, err, advice(err))
	}
	return nil
}

// limited runs f with the time-out of the command line. Each progress notification starts
// the time-out again, and it stands still while the user fills in a form. But f takes at
// most ten times as long. The text of the error begins with what, which says what f does.
func (c *caller) limited(ctx context.Context, what string, f func(context.Context) error) error {
	tooLong := fmt.Errorf("%sno answer within %v", what, c.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, 10*c.timeout, tooLong)
	defer cancel()
	ctx, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	idle := time.AfterFunc(c.timeout, func() { expire(tooLong) })
	defer idle.Stop()
	c.idle.Store(idle)
	err := f(ctx)
	if err != nil && context.Cause(ctx) == tooLong {
		return tooLong
	}
	return err
}

// ---- Lists of what a server offers ----

// listKind is a kind of list that a server offers.
type listKind struct {
	label      string
	capability string // without it there is no such list
	method     string
	member     string // of the result
}

var (
	toolKind  = listKind{"tools", "tools", "tools/list", "tools"}
	listKinds = []listKind{
		toolKind,
		{"resources", "resources", "resources/list", "resources"},
		{"templates", "resources", "resources/templates/list", "resourceTemplates"},
		{"prompts", "prompts", "prompts/list", "prompts"},
	}
)

// listedItem is what call reads of an item of any of the lists. It has one of the names,
// or two.
type listedItem struct {
	Name        string          `json:"name,omitempty"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	URI         string          `json:"uri,omitempty"`
	URITemplate string          `json:"uriTemplate,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"` // of a tool
	Arguments   json.RawMessage `json:"arguments,omitempty"`   // of a prompt
}

// readItem reads an item. One without a name has the name "".
func readItem(text json.RawMessage) *listedItem {
	item := new(listedItem)
	_ = Bind(text, item)
	return item
}

const (
	maxListPages = 1000
	maxListed    = 16 << 20 // bytes of the items of one list
	itemOverhead = 24       // bytes of a json.RawMessage itself: a result of 64 MiB may hold millions of empty items
)

// list returns the items of a list, as they came. With an error it returns those that
// were read before. A list whose method the server does not know has no items: some
// servers declare a capability that they do not have. 2026-07-28
// server/utilities/pagination: an empty cursor does not mean the end of the list.
func (c *caller) list(ctx context.Context, kind listKind) (items []json.RawMessage, err error) {
	params := "{}"
	size := 0
	for range maxListPages {
		var result json.RawMessage
		err := c.callMethod(ctx, kind.method, params, &result)
		if fault, _ := errors.AsType[*Error](err); fault != nil && fault.Code == CodeMethodNotFound {
			return items, nil
		}
		if err != nil {
			return items, err
		}
		page := memberOf(result, kind.member)
		if !bytes.HasPrefix(page, []byte("[")) {
			return items, fmt.Errorf("%s: no %s in the result", kind.method, kind.member)
		}
		for _, item := range Each(page) {
			if size += len(item) + itemOverhead; size > maxListed {
				return items, fmt.Errorf("%s: more than %d bytes in the list", kind.method, maxListed)
			}
			items = append(items, bytes.Clone(item)) // item belongs to its page, which may be large
		}
		cursor := memberOf(result, "nextCursor")
		if cursor == nil || string(cursor) == "null" {
			return items, nil
		}
		params = `{"cursor":` + string(cursor) + `}`
	}
	return items, fmt.Errorf("%s: no end of pages", kind.method)
}

// memberOf returns a member of an object; nil: there is none.
func memberOf(object json.RawMessage, name string) json.RawMessage {
	for key, value := range Each(object) {
		if string(key) == name {
			return value
		}
	}
	return nil
}

// textOf returns the value of a JSON string; "": it is no string, or an empty one.
func textOf(value json.RawMessage) (text string) {
	_ = json.Unmarshal(value, &text)
	return text
}

// ---- The summary ----

// summary is how a server was reached and what it offers, for people and as one JSON
// object.
type summary struct {
	text   strings.Builder
	object Object
}

// add adds a member to the object, and lines to the text. What has no lines is for scripts
// alone.
func (s *summary) add(label, name string, value any, lines ...string) {
	encoded, _ := toJSON(value) // JSON of the server, and texts, can be encoded
	s.object.Add(name, encoded)
	for _, line := range lines {
		fmt.Fprintf(&s.text, "%-13s %s\n", label, Printable(line))
		label = ""
	}
}

// summarize prints a summary of the server, with the lists for which the server has the
// capability. If a list cannot be read, the next one is read all the same.
func (c *caller) summarize(ctx context.Context) error {
	var s summary
	c.addHead(&s)
	var failed []string
	for _, kind := range listKinds {
		if memberOf(c.Server().Capabilities, kind.capability) == nil {
			continue
		}
		items, err := c.list(ctx, kind)
		if err != nil {
			failed = append(failed, err.Error())
		}
		s.add(kind.label, kind.member, append([]json.RawMessage{}, items...), kind.lines(items, err)...) // not nil: the list may be empty
	}
	if failed != nil {
		s.add("", "errors", failed)
	}
	printed := []byte(s.text.String())
	if c.options.json {
		printed = printedLine(s.object.JSON())
	}
	err := printOut(printed)
	if err == nil && failed != nil {
		err = errors.New("not all lists could be read: " + strings.Join(failed, "; "))
	}
	return err
}

// addHead adds what stands above the lists. What the server did not say is left out.
func (c *caller) addHead(s *summary) {
	server := c.Server()
	s.add("target", "target", c.target, strings.Join(c.target, " "))
	s.add("transport", "transport", c.transport, c.transport)
	s.add("revision", "revision", server.Version, server.Version)
	if server.Versions != nil {
		s.add("versions", "supportedVersions", server.Versions, strings.Join(server.Versions, ", "))
	}
	hasSession := c.transport == "HTTP+SSE" || c.inSession.Load() // over HTTP+SSE the stream is the session
	s.add("session", "session", hasSession, map[bool]string{true: "yes", false: "none"}[hasSession])
	if i := server.Info; i != nil {
		s.add("server", "serverInfo", i, strings.TrimSpace(i.Name+" "+i.Version+" "+i.Title))
	}
	if server.Capabilities != nil {
		var names []string
		for name := range Each(server.Capabilities) {
			names = append(names, string(name))
		}
		slices.Sort(names)
		s.add("capabilities", "capabilities", server.Capabilities, shorten(strings.Join(names, ", "), maxText))
	}
	if server.Instructions != "" {
		lines := strings.Split(strings.TrimSpace(shorten(server.Instructions, maxText)), "\n")
		s.add("instructions", "instructions", server.Instructions, lines...)
	}
}

const (
	maxText      = 2000 // characters of the instructions, or of the capabilities, that a summary shows
	maxFirstLine = 100  // characters of a description
)

// lines returns a line for each item of a list, with the beginning of its description.
func (kind listKind) lines(items []json.RawMessage, failed error) (lines []string) {
	for _, text := range items {
		item := readItem(text)
		line := cmp.Or(item.URI, item.URITemplate, item.signature())
		about, _, _ := strings.Cut(strings.TrimSpace(cmp.Or(item.Description, item.Title)), "\n")
		if about != "" {
			line += "  " + shorten(about, maxFirstLine)
		}
		lines = append(lines, line)
	}
	switch {
	case failed != nil:
		lines = append(lines, "?")
	case lines == nil:
		lines = []string{"none"}
	}
	return lines
}

// shorten returns the first n characters of a text.
func shorten(text string, n int) string {
	count := 0
	for i := range text {
		if count == n {
			return text[:i] + "…"
		}
		count++
	}
	return text
}

// ---- Schemas ----

// schema is what call reads of a JSON Schema: of an argument of a tool, or of a field of
// a form. A member of another type than it should be counts as missing.
type schema struct {
	Ref        string          `json:"$ref,omitempty"` // such as #/$defs/Color
	Type       json.RawMessage `json:"type,omitempty"` // a name, or an array of names
	Enum       json.RawMessage `json:"enum,omitempty"`
	Const      json.RawMessage `json:"const,omitempty"`
	AnyOf      json.RawMessage `json:"anyOf,omitempty"`
	OneOf      json.RawMessage `json:"oneOf,omitempty"`
	AllOf      json.RawMessage `json:"allOf,omitempty"`
	Items      json.RawMessage `json:"items,omitempty"`
	Properties json.RawMessage `json:"properties,omitempty"` // an object of schemas
	Required   json.RawMessage `json:"required,omitempty"`   // an array of names

	// In forms.
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	Default     json.RawMessage `json:"default,omitempty"`

	text    json.RawMessage // the schema itself
	types   []string        // of a value; nil: any
	choices []choice        // of which a value must be one; nil: it is not chosen from a list
	in      *schemaText     // of which this schema is a part
}

// choice is a value that a schema allows, and what it is called; "": it has no name.
type choice struct {
	value json.RawMessage
	title string
}

// schemaText is the schema of a tool or of a form, to which a $ref in it refers.
type schemaText struct {
	text json.RawMessage
	left int // schemas in it that may still be read: alternatives may be many, and a $ref may lead round in a circle
}

const (
	maxShownSchema = 1 << 20 // bytes of a schema; a $ref is looked up in all of it
	maxSchemas     = 1000    // in one schema, and steps of a $ref
	maxChoices     = 1000    // of one schema; with more, it counts as one without choices
	maxTypes       = 10      // of one schema: JSON Schema knows seven
	maxRequired    = 1000    // names of required properties
	maxSignature   = 400     // characters of the arguments in a signature
)

// readSchema reads the schema of a tool or of a form. One that is too large says nothing.
func readSchema(text json.RawMessage) schema {
	if len(text) > maxShownSchema {
		text = nil
	}
	in := &schemaText{text: text, left: maxSchemas}
	return in.read(text)
}

// read reads a schema, or the one to which its $ref leads. Servers in Python and Rust
// write a $ref for each enum and each class: pydantic and schemars do that.
func (in *schemaText) read(text json.RawMessage) schema {
	s := schema{text: text, in: in}
	if in.left <= 0 {
		return s
	}
	in.left--
	_ = Bind(text, &s)
	if path, isHere := strings.CutPrefix(s.Ref, "#/"); isHere {
		text = in.text
		for name := range strings.SplitSeq(path, "/") {
			in.left--
			if in.left <= 0 {
				break
			}
			text = memberOf(text, name)
		}
		return in.read(text)
	}
	s.readTypes()
	s.readAlternatives(slices.Concat(elements(s.AnyOf), elements(s.OneOf)))
	for _, text := range elements(s.AllOf) { // all of them hold, so the first one that says something is enough
		part := in.read(text)
		if s.types == nil {
			s.types = part.types
		}
		if s.choices == nil {
			s.choices = part.choices
		}
		if s.Items == nil {
			s.Items = part.Items
		}
	}
	if len(s.choices) > maxChoices {
		s.choices = nil
	}
	for _, c := range s.choices {
		s.addTypes(typeOfJSON(c.value))
	}
	return s
}

// readTypes reads the types and the choices that a schema names itself.
func (s *schema) readTypes() {
	if name := textOf(s.Type); name != "" {
		s.types = []string{name}
	}
	for _, name := range Each(s.Type) {
		s.addTypes(textOf(name))
		if len(s.types) == maxTypes {
			break
		}
	}
	if s.Const != nil {
		s.choices = []choice{{s.Const, s.Title}}
	}
	for _, value := range Each(s.Enum) {
		s.choices = append(s.choices, choice{value: value})
		if len(s.choices) > maxChoices {
			break
		}
	}
	if slices.Equal(s.types, []string{"null"}) {
		s.choices = []choice{{value: json.RawMessage("null")}}
	}
}

// elements returns the elements of an array; nil: it is none.
func elements(array json.RawMessage) (list []json.RawMessage) {
	for _, element := range Each(array) {
		list = append(list, element)
	}
	return list
}

// readAlternatives adds the types and the choices of alternatives. If one of them allows any
// type or any value, so does the whole schema. If only one alternative is an array, its
// items are those of the schema.
func (s *schema) readAlternatives(list []json.RawMessage) {
	var all schema
	anyType := s.Type != nil // the types are known without the alternatives
	anyValue := false
	arrays := 0
	for _, text := range list {
		alternative := s.in.read(text)
		all.addTypes(alternative.types...)
		anyType = anyType || alternative.types == nil
		anyValue = anyValue || alternative.choices == nil || len(all.choices) > maxChoices
		if !anyValue {
			all.choices = append(all.choices, alternative.choices...)
		}
		if alternative.types == nil || slices.Contains(alternative.types, "array") {
			arrays++
			all.Items = alternative.Items
		}
	}
	if arrays == 1 && s.Items == nil {
		s.Items = all.Items
	}
	if !anyType {
		s.addTypes(all.types...)
	}
	if !anyValue {
		s.choices = append(s.choices, all.choices...)
	}
}

// addTypes adds types that a value may have.
func (s *schema) addTypes(names ...string) {
	for _, name := range names {
		if !slices.Contains(s.types, name) && len(s.types) < maxTypes {
			s.types = append(s.types, name)
		}
	}
}

// required returns the names of the required properties.
func (s schema) required() (names []string) {
	for _, element := range Each(s.Required) {
		if len(names) == maxRequired {
			break
		}
		names = append(names, textOf(element))
	}
	return names
}

// String returns the choices of a schema, or the types, such as array of string.
func (s schema) String() string { return s.describe(false) }

// describe does what String says. With titles, a choice is followed by its title: "r"=Red.
func (s schema) describe(withTitles bool) string {
	var parts []string
	size := 0
	for _, c := range s.choices {
		size += len(c.value)
		if size > 4*maxSignature && len(parts) > 0 { // more is not shown
			break
		}
		part := string(c.value)
		if withTitles && c.title != "" {
			part += "=" + c.title
		}
		parts = append(parts, part)
	}
	if parts != nil {
		return shorten(strings.Join(parts, "|"), maxSignature)
	}
	types := s.types
	if i := slices.Index(types, "array"); i >= 0 && s.Items != nil { // it comes last, because all that follows "of" is of the items
		array := "array of " + s.in.read(s.Items).describe(withTitles)
		types = slices.Concat(types[:i], types[i+1:], []string{array})
	}
	return cmp.Or(strings.Join(types, "|"), "any")
}

// value returns what a user has typed as JSON:
//
//	the schema has          the value is
//	choices                 the choice with this text or this title
//	the type string alone   a string
//	string and others       JSON of one of the other types, or else a string
//	boolean, and no string  also y, yes, n and no
//	any type                JSON, or else a string
//
// So with a schema that says nothing, 5, true, null, [1] and "5" are JSON, and five is a
// string.
func (s schema) value(typed string) json.RawMessage {
	for _, c := range s.choices {
		if typed != "" && (typed == c.title || typed == textOf(c.value)) {
			return c.value
		}
	}
	value := json.RawMessage(strings.TrimSpace(typed))
	if json.Valid(value) && s.allows(value) && (s.types == nil || value[0] != '"') {
		return value
	}
	if isYes, isWord := yesNo[strings.ToLower(string(value))]; isWord && slices.Contains(s.types, "boolean") && !slices.Contains(s.types, "string") {
		return strconv.AppendBool(nil, isYes)
	}
	text, _ := toJSON(typed) // a text can be encoded
	return text
}

// yesNo are the words for a boolean.
var yesNo = map[string]bool{"true": true, "yes": true, "y": true, "false": false, "no": false, "n": false}

// allows reports whether a value is of one of the types.
func (s schema) allows(value json.RawMessage) bool {
	is := typeOfJSON(value)
	return s.types == nil || slices.Contains(s.types, is) || is == "integer" && slices.Contains(s.types, "number")
}

// check returns an error unless a value is of one of the types, one of the choices, and
// within the limits. The server knows all rules of its schema, and checks the others.
func (s schema) check(value json.RawMessage) error {
	isAllowed := s.allows(value)
	if s.choices != nil {
		isAllowed = slices.ContainsFunc(s.choices, func(c choice) bool { return sameJSON(c.value, value) })
	}
	if isAllowed {
		return s.checkLimits(value)
	}
	hint := ""
	switch {
	case slices.Contains(s.types, "boolean"):
		hint = ": write true or false, or y or n"
	case slices.Contains(s.types, "array"):
		hint = `: write JSON, such as ["a"]`
	case slices.Contains(s.types, "object"):
		hint = `: write JSON, such as {"a":1}`
	}
	return fmt.Errorf("must be %s, not %s%s", s, shorten(string(value), maxFirstLine), hint)
}

// checkLimits returns an error if a number, or the length of a text or of a list, is too
// small or too large, or if an item of a list does not fit.
func (s schema) checkLimits(value json.RawMessage) error {
	var size float64
	least, most := "minimum", "maximum"
	switch typeOfJSON(value) {
	case "integer", "number":
		size, _ = strconv.ParseFloat(string(value), 64) // with an error, it is infinite
	case "string":
		size = float64(utf8.RuneCountInString(textOf(value)))
		least, most = "minLength", "maxLength"
	case "array":
		items := s.in.read(s.Items)
		for _, item := range Each(value) {
			if err := items.check(item); err != nil {
				return fmt.Errorf("has an item that %w", err)
			}
			size++
		}
		least, most = "minItems", "maxItems"
	default:
		return nil
	}
	lowest, highest := memberOf(s.text, least), memberOf(s.text, most)
	if limit, err := strconv.ParseFloat(string(lowest), 64); err == nil && size < limit { // with an error, there is no limit
		return fmt.Errorf("must fit %s %s", least, lowest)
	}
	if limit, err := strconv.ParseFloat(string(highest), 64); err == nil && size > limit {
		return fmt.Errorf("must fit %s %s", most, highest)
	}
	return nil
}

// checkObject returns an error unless an object has the required properties, and all of
// its properties fit. It lets in a property that the schema does not name.
func (s schema) checkObject(object json.RawMessage) error {
	for name, value := range Each(object) {
		if err := s.in.read(memberOf(s.Properties, string(name))).check(value); err != nil {
			return fmt.Errorf("'%s' %w", name, err)
		}
	}
	for _, name := range s.required() {
		if memberOf(object, name) == nil {
			return fmt.Errorf("'%s' is required", name)
		}
	}
	return nil
}

// sameJSON reports whether two values are the same. A string or a number may be spelled
// otherwise.
func sameJSON(a, b json.RawMessage) bool {
	x, errX := strconv.ParseFloat(string(a), 64)
	y, errY := strconv.ParseFloat(string(b), 64)
	isNumber := errX == nil && errY == nil && x == y
	return string(a) == string(b) || isNumber || a[0] == '"' && b[0] == '"' && textOf(a) == textOf(b)
}

// typeOfJSON returns the name that JSON Schema has for the type of a value.
func typeOfJSON(value json.RawMessage) string {
	switch value[0] {
	case '{':
		return "object"
	case '[':
		return "array"
	case '"':
		return "string"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	// JSON Schema 2020-12 section 6.1.1: 3.0 is an integer, too.
	number, err := strconv.ParseFloat(string(value), 64)
	hasFraction := bytes.ContainsAny(value, ".eE")
	if hasFraction && (err != nil || number != math.Trunc(number)) {
		return "number"
	}
	return "integer"
}

// ---- Calling a tool by its name ----

// argument is a KEY=VALUE of the command line.
type argument struct{ key, value string }

// callTool calls a tool and prints the result. The arguments are typed by the
// schema of the tool, which is read first.
func (c *caller) callTool(ctx context.Context, name string, arguments []argument) error {
	tool, err := c.findTool(ctx, name)
	if err != nil {
		return err
	}
	schema := readSchema(tool.InputSchema)
	var typed Object
	for _, a := range arguments {
		property := memberOf(schema.Properties, a.key)
		if property == nil && schema.Properties != nil {
			fmt.Fprintf(c.stderr, "mcpwire: the schema of %s has no argument %s\n", Printable(name), Printable(a.key))
		}
		typed.Add(a.key, schema.in.read(property).value(a.value))
	}
	if err := schema.checkObject(typed.JSON()); err != nil {
		return usageErrorf("the argument %w; the tool is %s", err, tool.signature())
	}
	encoded, err := toJSON(CallToolParams{Name: name, Arguments: typed.JSON()})
	if err != nil {
		return err
	}
	result, err := c.callAndPrint(ctx, "tools/call", string(encoded))
	if err != nil {
		return err
	}
	if string(memberOf(result, "isError")) == "true" {
		return exitStatus{fmt.Errorf("the tool %s has failed (isError)", name), exitTool}
	}
	return nil
}

// findTool returns a tool from the list of tools.
func (c *caller) findTool(ctx context.Context, name string) (*listedItem, error) {
	items, err := c.list(ctx, toolKind)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, text := range items {
		item := readItem(text)
		if item.Name == name {
			return item, nil
		}
		names = append(names, item.Name)
	}
	has := cmp.Or(shorten(strings.Join(names, ", "), maxSignature), "none")
	return nil, usageErrorf("the server has no tool %s; its tools: %s", name, has)
}

// signature returns a name and the arguments of a tool or a prompt, such as
// get-weather(city string, unit? "celsius"|"fahrenheit"). A question mark follows
// the name of an optional argument.
func (i *listedItem) signature() string {
	var list []string
	add := func(name, of string, isRequired bool) {
		if !isRequired {
			name += "?"
		}
		list = append(list, strings.TrimSpace(name+" "+of))
	}
	schema := readSchema(i.InputSchema)
	required := schema.required()
	for key, text := range Each(schema.Properties) {
		name := string(key)
		add(name, schema.in.read(text).String(), slices.Contains(required, name))
	}
	for _, argument := range Each(i.Arguments) {
		add(textOf(memberOf(argument, "name")), "", string(memberOf(argument, "required")) == "true")
	}
	return i.Name + "(" + shorten(strings.Join(list, ", "), maxSignature) + ")"
}

// ---- What the server sends ----

// Handle prints notifications, and answers the questions of the server with what
// the flags say. A question for which there is no flag was not declared, and is
// refused.
func (c *caller) Handle(ctx context.Context, x *Exchange) (any, error) {
	method := x.Request.Method
	switch {
	case x.Request.Kind() == Notification:
		c.printNotification(x)
		return nil, nil
	case method == "elicitation/create":
		return c.elicit(ctx, x)
	case method == "roots/list" && c.options.roots != nil:
		return RootsResult{c.options.roots}, nil
	case method == "sampling/createMessage" && c.options.sample != "":
		var p SamplingParams
		_ = x.Bind(&p)
		if p.Tools != nil || p.ToolChoice != nil { // 2025-11-25 schema CreateMessageRequestParams: an error, because sampling.tools was not declared
			return nil, InvalidParams("no tools can be used here")
		}
		return SamplingResult{Role: "assistant", Content: Contents{TextContent(c.options.sample)}, Model: "mcpwire", StopReason: "endTurn"}, nil
	}
	fmt.Fprintf(c.stderr, "mcpwire: refused %s: %s\n", Printable(method), capabilityAdvice)
	return nil, MethodNotFound(method)
}

// printNotification prints a notification on a line of its own. At a terminal,
// progress is one line that changes.
func (c *caller) printNotification(x *Exchange) {
	method := x.Request.Method
	if method == "notifications/progress" {
		c.extendTimeout()
		var p ProgressParams
		if c.showsLine && x.Bind(&p) == nil && stderr.status(progressLine(p)) {
			return
		}
	}
	fmt.Fprintln(c.stderr, strings.TrimSpace(Printable(method+" "+string(x.Request.Params))))
}

// maxStatus is how many characters a status has. A line that is longer than the
// terminal is wide could not be erased.
const maxStatus = 78

// progressLine returns progress as one line, such as "3 of 10 (30%) reading".
func progressLine(p ProgressParams) string {
	text := fmt.Sprintf("%g", p.Progress)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %g (%.0f%%)", p.Total, 100*p.Progress/p.Total)
	}
	return shorten(strings.TrimSpace(Printable(text+" "+p.Message)), maxStatus)
}

// extendTimeout starts the time-out of the call again, unless it has passed.
func (c *caller) extendTimeout() {
	idle := c.idle.Load()
	if idle.Stop() {
		idle.Reset(c.timeout)
	}
}

// ---- Forms: what the server asks the user ----

// elicit answers elicitation/create. If -answer is set and fits, that is the answer. If it
// does not fit, elicit declines. Without -answer the user is asked at the terminal. If there
// is no terminal, elicit declines.
func (c *caller) elicit(ctx context.Context, x *Exchange) (any, error) {
	params := x.Request.Params // 2025-11-25 client/elicitation#elicitation-requests
	asked := listedItem{InputSchema: memberOf(params, "requestedSchema")}
	form := readSchema(asked.InputSchema)
	message, mode := textOf(memberOf(params, "message")), textOf(memberOf(params, "mode"))
	switch {
	case mode != "" && mode != "form": // 2025-11-25 client/elicitation: a mode that was not declared is -32602
		fmt.Fprintf(c.stderr, "mcpwire: refused a question of mode %s\n", Printable(shorten(mode+": "+textOf(memberOf(params, "url")), maxText)))
		return nil, InvalidParams("only forms can be filled in here, not mode '%s'", mode)
	case c.options.answer != "":
		content := json.RawMessage(strings.TrimSpace(c.options.answer))
		err := form.checkObject(content)
		if err == nil {
			return ElicitResult{Action: "accept", Content: content}, nil
		}
		fmt.Fprintf(c.stderr, "mcpwire: -answer does not fit, so the question is declined: %s\n", Printable(err.Error()))
	case c.atTerminal:
		return c.askUser(ctx, message, form)
	default:
		fmt.Fprintf(c.stderr, "mcpwire: declined, because -answer is not given: %s\n", Printable(shorten(message, maxFirstLine)+" "+asked.signature()))
	}
	return ElicitResult{Action: "decline"}, nil
}

// askUser asks the user, until ctx ends. The goroutine may wait longer, because
// nothing interrupts a read from standard input. It ends with the process.
func (c *caller) askUser(ctx context.Context, message string, form schema) (any, error) {
	select { // one form at a time: a server may cancel its questions, and ask again and again
	case c.form <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	filled := make(chan ElicitResult, 1)
	go func() {
		filled <- c.fillIn(message, form)
		<-c.form
	}()
	select {
	case result := <-filled:
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// formHelp is what a user is told before the first field.
const formHelp = "(an empty line takes the default, or leaves a field out; /decline declines, /cancel or Ctrl-D cancels)"

// fillIn asks for each field of a form, in the order in which they were sent. The end of
// the input cancels the form.
func (c *caller) fillIn(message string, form schema) ElicitResult {
	// The user may take their time: until the form is filled in, progress does not start
	// the timer either.
	if idle := c.idle.Load(); idle.Stop() {
		defer idle.Reset(c.timeout)
	}
	fmt.Fprintf(c.stderr, "%s\n%s\n", Printable(message), formHelp)
	var content Object
	required := form.required()
	hasFields := false
	for key, text := range Each(form.Properties) {
		name := string(key)
		hasFields = true
		field := form.in.read(text)
		value, action := c.fillInField(name, field, slices.Contains(required, name))
		if action != "" {
			return ElicitResult{Action: action}
		}
		if value != nil {
			content.Add(name, value)
		}
	}
	if !hasFields { // the message is the question
		accept := form.in.read(json.RawMessage(`{"type":"boolean"}`))
		value, action := c.fillInField("accept", accept, true)
		if string(value) == "false" {
			action = "decline"
		}
		if action != "" {
			return ElicitResult{Action: action}
		}
	}
	return ElicitResult{Action: "accept", Content: content.JSON()}
}

// fillInField asks for a field until what the user types fits. value is nil if the field
// is left out. action is not empty if the user declines or cancels.
func (c *caller) fillInField(name string, field schema, isRequired bool) (value json.RawMessage, action string) {
	prompt := field.prompt(name, isRequired)
	for {
		fmt.Fprint(c.stderr, prompt)
		if !c.input.Scan() {
			fmt.Fprintln(c.stderr) // Ctrl-D does not end the line of the prompt
			return nil, "cancel"
		}
		typed := strings.TrimSpace(c.input.Text())
		switch {
		case typed == "/decline" || typed == "/cancel":
			return nil, typed[1:]
		case typed == "" && (field.Default != nil || !isRequired):
			return field.Default, ""
		}
		value := field.value(typed)
		err := field.check(value)
		if typed == "" {
			err = errors.New("is required")
		}
		if err == nil {
			return value, ""
		}
		fmt.Fprintf(c.stderr, "mcpwire: %s %s\n", Printable(name), Printable(err.Error()))
	}
}

// prompt returns what a user is shown of a field, such as: age (integer, minimum 18, required):
func (s schema) prompt(name string, isRequired bool) string {
	kind := s.describe(true)
	switch {
	case s.choices != nil:
		kind = "one of " + kind
	case kind == "boolean":
		kind = "y or n"
	}
	for _, rule := range []string{"format", "pattern", "minLength", "maxLength", "minimum", "maximum", "minItems", "maxItems"} {
		if value := memberOf(s.text, rule); value != nil {
			kind += ", " + rule + " " + string(value)
		}
	}
	if isRequired {
		kind += ", required"
	}
	if s.Default != nil {
		kind += ", default " + string(s.Default)
	}
	about := cmp.Or(s.Description, s.Title)
	if about != "" {
		about = ", " + about
	}
	return Printable(fmt.Sprintf("%s%s (%s)", name, shorten(about, maxText), shorten(kind, maxSignature))) + ": "
}

// ==== The command bridge ====
//
// A client starts the bridge as its server on stdio. The bridge passes every
// message on to the real server, and passes every message of the server back:
//
//	         stdio                    stdio or HTTP
//	client <-------> mcpwire bridge <---------------> server
//
//	goroutine            what it does                                        it ends
//	readClient           reads the client, and writes to the server          with the input
//	readServer           reads the server, and writes to the client          with the Conn of the server
//	one for each call    over HTTP: waits until the call is taken            with its Write
//
// The bridge speaks no revision itself. For a server with a URL the Conn of the library
// learns session, revision and header from the messages, and resumes streams. What is
// left to do here:
//
//   - Nothing is sent before initialize is taken: its response names the session (post).
//   - A cancellation does not overtake the call (admit).
//   - Each request gets one answer, an error if the server's is lost (fail). So requests
//     stand in a table until they are answered or cancelled.
//   - Marked arguments (x-mcp-header) are repeated in the header, if the client has
//     listed the tools before (ToolMarks).
//   - A batch is sent message by message, so that each answer comes alone.
//
// params and result stay byte for byte, except for line ends between their values.

const (
	maxWaiting      = 1024             // requests of the client without an answer
	maxWaitingBytes = 128 << 20        // of these requests; one alone may have more
	writeTime       = 20 * time.Second // for the server to take a message, unless it is a request over HTTP

	// The cancellation of a call over HTTP is sent no earlier than this after the call. A
	// server may read two connections in any order, and without this wait half of the calls
	// ran on that were cancelled right after they were sent.
	cancelDelay = 100 * time.Millisecond

	maxShown = 1000 // characters of a text of the peer that are logged

	// A client that hangs up waits for two seconds, as MCP clients do, before it sends
	// SIGTERM. By then a command that ignores the end of input must have been killed: the
	// server has drainTime to answer, and then bridgeGrace for each of two steps.
	drainTime   = 800 * time.Millisecond
	bridgeGrace = 500 * time.Millisecond
	endTime     = time.Second // for the client to read the last answers
)

// Reasons why a bridge ends.
var (
	errClientGone = errors.New("the client has hung up")
	errServerGone = errors.New("the server has hung up")
	errSignalled  = errors.New("ended by a signal")
)

// bridge passes messages between standard input and output and a server, until
// one side hangs up or ctx ends.
func bridge(ctx context.Context, args []string) error {
	var o targetOptions
	target := parse("bridge", args, bridgeUsage, o.defineForBridge, o.check)
	server, err := o.dialer(target).Dial(ctx)
	if err != nil {
		return fmt.Errorf("%w%s", err, advice(err))
	}
	if isTerminal(os.Stdin) {
		fmt.Fprintln(stderr, "mcpwire bridge: waiting for a client on standard input, one message a line; Ctrl-D ends it")
	}
	b := newBridged(&clientConn{Conn: StdioConn(o.maxMessage), signalled: ctx}, server, slog.New(slog.NewTextHandler(stderr, nil)))
	b.isURL = isURL(target[0])
	context.AfterFunc(ctx, func() { b.end(errSignalled) })
	return b.run()
}

// dialer returns the Dialer of a target. A URL whose path ends in /sse is that of a
// server of HTTP+SSE, the transport of 2024-11-05.
func (o *targetOptions) dialer(target []string) Dialer {
	address, err := url.Parse(target[0])
	switch {
	case !isURL(target[0]):
		return o.dialCommand(target, bridgeGrace)
	case err == nil && strings.HasSuffix(address.Path, "/sse"):
		return SSEDialer{Client: o.httpClient(), URL: target[0], MaxMessage: o.maxMessage}
	}
	return HTTPDialer{Client: o.httpClient(), URL: target[0], MaxMessage: o.maxMessage}
}

// bridged is a client and a server with a bridge between them.
type bridged struct {
	client  Conn
	server  Conn
	isURL   bool // the server has a URL
	log     *slog.Logger
	ctx     context.Context // its cause is why the bridge ends
	end     context.CancelCauseFunc
	writing sync.WaitGroup  // goroutines that may still write to the client
	opened  <-chan struct{} // not closed while initialize waits for its answer; only readClient uses the field
	marks   ToolMarks       // of the server's tools

	mu      sync.Mutex             // guards the fields below
	waiting map[string]waitingCall // requests of the client without an answer, by the text of their id
	size    int                    // bytes of these requests
	hungUp  bool                   // the client has: the bridge ends with the last answer
	isOver  bool                   // no goroutine is started any more, and no request is taken
}

// waitingCall is what the bridge remembers of a request of the client.
type waitingCall struct {
	id     ID
	since  time.Time
	method string        // "" if it is long: the bridge looks for short ones alone
	size   int           // bytes
	done   chan struct{} // closed when the request leaves the table
}

func newBridged(client, server Conn, log *slog.Logger) *bridged {
	b := &bridged{client: client, server: server, log: log, waiting: map[string]waitingCall{}}
	opened := make(chan struct{})
	close(opened)
	b.opened = opened
	b.ctx, b.end = context.WithCancelCause(context.Background())
	return b
}

// run passes messages until the bridge ends. Then it shuts the server down, and
// answers the requests that are still waiting.
func (b *bridged) run() error {
	b.writing.Go(b.readServer)
	go b.readClient() // ends with the input, or with the program
	<-b.ctx.Done()
	why := context.Cause(b.ctx)
	b.mu.Lock()
	b.isOver = true
	b.mu.Unlock()
	err := b.server.Close() // meanwhile readServer passes on what the server still says
	ended := make(chan struct{})
	go func() { // ends when the client has read everything, or with the program
		b.writing.Wait()
		b.failAll(why)
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(endTime): // the client does not read
	}
	if errors.Is(why, errSignalled) || errors.Is(why, errClientGone) { // how a server usually ends
		return err
	}
	return errors.Join(why, err)
}

// ---- From the client to the server ----

// readClient is the loop that passes on what the client sends. When the client has hung
// up, the server has drainTime to answer.
func (b *bridged) readClient() {
	for {
		in, err := b.client.Read()
		switch {
		case err == io.EOF:
			time.AfterFunc(drainTime, func() { b.end(errClientGone) })
			b.mu.Lock()
			defer b.mu.Unlock()
			b.hungUp = true
			b.endIfDone()
			return
		case err != nil:
			b.end(fmt.Errorf("standard input: %w", err))
			return
		}
		b.toServer(in)
	}
}

// toServer passes on a payload of the client.
func (b *bridged) toServer(in Payload) {
	out := Payload{Batch: in.Batch}
	for _, m := range in.Messages {
		if !b.admit(m) {
			continue
		}
		if err := m.Unusable(); err != nil { // its caller must not wait for ever
			m = NewResponse(m.ID, nil, fmt.Errorf("mcpwire bridge: %w", err))
		}
		if b.isURL {
			b.post(m)
		} else {
			out.Messages = append(out.Messages, m)
		}
	}
	if len(out.Messages) > 0 {
		b.writeToServer(out)
	}
}

// admit notes a message of the client, and reports whether it is passed on. If it
// is not, admit answers it.
func (b *bridged) admit(m *Message) bool {
	switch {
	case m.Kind() == Invalid:
		b.answerClient(m) // its encoding is the answer to it
		return false
	case m.Kind() == Request && !b.add(m):
		b.answerClient(NewResponse(m.ID, nil, errors.New("mcpwire bridge: the id is that of another request that waits, too many or too large requests wait for an answer, or the bridge ends")))
		return false
	case m.Method == "notifications/cancelled":
		var params CancelledParams
		_ = Bind(m.Params, &params)                                  // the server refuses wrong params
		call, isWaiting := b.removeWaiting(string(params.RequestID)) // its answer, if one comes, is dropped
		if b.isURL && isWaiting {
			time.Sleep(cancelDelay - time.Since(call.since)) // later messages wait, too: the order stays
		}
	}
	return true
}

// post sends a message to a URL, when the server has taken the one before it: for example,
// the server must know of notifications/initialized before the next message comes. But the
// POST of a request may last as long as the call, so a goroutine waits for it. There are as
// many such goroutines as waiting requests, at most. After initialize, nothing is sent before
// its response, which names the session.
func (b *bridged) post(m *Message) {
	select {
	case <-b.opened:
	case <-time.After(writeTime):
		b.end(errors.New("the server does not answer initialize"))
		return
	}
	out := Payload{Messages: []*Message{m}}
	if m.Kind() != Request {
		b.writeToServer(out)
		return
	}
	if m.Method == "initialize" {
		b.opened = b.done(m.ID)
	}
	// The goroutine ends when the server has taken the request, or is closed.
	b.start(func() { b.checkWritten(out, b.server.Write(b.marks.In(b.ctx), out)) })
}

// start runs f on a goroutine for which run waits, unless the bridge is over.
func (b *bridged) start(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isOver {
		b.writing.Go(f)
	}
}

// writeToServer writes a payload to the server, which has writeTime to take it. If it does
// not, a message is lost, and the bridge ends. The bridge also ends if writing to a command
// fails.
func (b *bridged) writeToServer(out Payload) {
	ctx, cancel := context.WithTimeout(b.ctx, writeTime)
	defer cancel()
	err := b.server.Write(ctx, out)
	b.checkWritten(out, err)
	if err != nil && (!b.isURL || ctx.Err() == context.DeadlineExceeded) {
		b.end(fmt.Errorf("the server does not read: %w", err))
	}
}

// checkWritten takes in the error of a write, and answers the requests of the payload with
// it. When the bridge has ended, run answers them.
func (b *bridged) checkWritten(out Payload, err error) {
	if err == nil || b.ctx.Err() != nil {
		return
	}
	for _, m := range out.Messages {
		if m.Kind() == Request {
			b.fail(m.ID, err)
		} else {
			b.log.Warn("the server has not taken a message", "error", logged(err))
		}
	}
	b.checkSession(err)
}

// logged returns a text of the peer as a log shows it.
func logged(err error) string { return Printable(shorten(err.Error(), maxShown)) }

// ---- From the server to the client ----

// readServer is the loop that passes on what the server sends.
func (b *bridged) readServer() {
	for {
		in, err := b.server.Read()
		switch {
		case err == io.EOF:
			b.end(errServerGone)
			return
		case err != nil:
			b.end(fmt.Errorf("%w: %w", errServerGone, err))
			return
		}
		b.toClient(in)
	}
}

// toClient passes on a payload of the server. It drops what is no message, and the
// answer to a request that is not waiting: the client has cancelled the request,
// or the bridge has answered it.
func (b *bridged) toClient(in Payload) {
	b.takeReport(in)
	out := Payload{Batch: in.Batch}
	for _, m := range in.Messages {
		isAnswer := m.Kind() == Response && m.ID != ID{}
		switch {
		case m.Kind() == Invalid && m.ID != ID{}:
			b.writeToServer(Payload{Messages: []*Message{m}}) // its encoding is the answer to it
		case m.Kind() == Invalid:
			b.log.Warn("dropped what is no message", "reason", logged(m.Error), "text", Printable(shorten(string(in.Raw()), maxShown)))
		case !isAnswer && m.Unusable() != nil:
			b.log.Warn("dropped what is no message", "reason", logged(m.Unusable()))
		case isAnswer && m.Unusable() != nil: // it breaks the rules, or the transport has lost it
			b.fail(m.ID, m.Unusable())
			b.checkSession(m.Unusable())
		case isAnswer && !b.takeAnswer(m):
			b.log.Info("dropped an answer that no request waits for", "id", Printable(m.ID.String()))
		default:
			out.Messages = append(out.Messages, m)
		}
	}
	if len(out.Messages) > 0 {
		b.writeToClient(out)
	}
}

// takeReport takes in what the transport says about itself.
func (b *bridged) takeReport(in Payload) {
	if in.Lost != nil { // any of the requests may be the one whose answer is lost
		b.failAll(in.Lost)
	}
	if in.Report != nil {
		b.log.Info("transport", "report", logged(in.Report))
	}
	b.checkSession(in.Report)
}

// checkSession ends the bridge if an error means that the session has ended. The
// server takes nothing more then. A client on stdio begins a new session by starting its
// server again.
func (b *bridged) checkSession(err error) {
	if errors.Is(err, ErrSessionEnded) {
		b.end(err)
	}
}

// takeAnswer takes the request of an answer out of the table. It returns false if no
// such request is waiting. From a list of tools it leaves out those with invalid marks.
func (b *bridged) takeAnswer(m *Message) bool {
	call, isWaiting := b.removeWaiting(m.ID.String())
	if call.method != "tools/list" {
		return isWaiting
	}
	valid, reports := b.marks.Learn(m.Result)
	m.Result = valid
	for _, report := range reports {
		b.log.Info("transport", "report", logged(report))
	}
	return isWaiting
}

// answerClient writes one message to the client.
func (b *bridged) answerClient(m *Message) { b.writeToClient(Payload{Messages: []*Message{m}}) }

// writeToClient writes a payload to the client. If that fails, the bridge ends.
func (b *bridged) writeToClient(out Payload) {
	err := b.client.Write(context.Background(), out)
	if err != nil {
		b.end(fmt.Errorf("%w: %w", errClientGone, err))
	}
}

// ---- Requests of the client that wait for an answer ----

// add notes a request. It returns false if too many requests are waiting, or too many bytes.
// It also does so if a request with the same id is waiting: an answer could be that of either.
func (b *bridged) add(m *Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	id := m.ID.String()
	size := len(m.Params)
	isFull := len(b.waiting) >= maxWaiting || b.size > 0 && b.size+size > maxWaitingBytes
	if _, isWaiting := b.waiting[id]; isWaiting || isFull || b.isOver {
		return false
	}
	b.size += size
	call := waitingCall{id: m.ID, since: time.Now(), size: size, done: make(chan struct{})}
	if len(m.Method) < 100 {
		call.method = m.Method
	}
	b.waiting[id] = call
	return true
}

// removeWaiting takes the request with an id out of the table. It returns false if no such
// request is waiting. So each request gets one answer.
func (b *bridged) removeWaiting(id string) (call waitingCall, isWaiting bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	call, isWaiting = b.waiting[id]
	if isWaiting {
		delete(b.waiting, id)
		b.size -= call.size
		close(call.done)
	}
	b.endIfDone()
	return call, isWaiting
}

// done returns a channel that is closed when a request leaves the table.
func (b *bridged) done(id ID) <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting[id.String()].done
}

// endIfDone ends the bridge when the client has hung up, and the server has answered
// everything. A subscription has no answer before its end. The caller holds mu.
func (b *bridged) endIfDone() {
	for _, call := range b.waiting {
		if call.method != "subscriptions/listen" {
			return
		}
	}
	if b.hungUp {
		b.end(errClientGone)
	}
}

// fail answers a request with an error, if the request is waiting. The error of a JSON-RPC
// response is passed on as it is, with advice appended to its message.
func (b *bridged) fail(id ID, err error) {
	if _, isWaiting := b.removeWaiting(id.String()); !isWaiting {
		return
	}
	response := NewResponse(id, nil, fmt.Errorf("mcpwire bridge: %w", err))
	fault := *response.Error // a copy: err may answer other requests, too
	fault.Message += advice(err)
	response.Error = &fault
	b.answerClient(response)
}

// failAll answers all requests that are waiting with an error.
func (b *bridged) failAll(err error) {
	b.mu.Lock()
	all := maps.Clone(b.waiting)
	b.mu.Unlock()
	for _, call := range all {
		b.fail(call.id, err)
	}
}

// ==== The tap: what -trace and -watch show ====
//
// A tap shows what passes through a Conn, an http.Handler or an http.RoundTripper, in
// the notation of the lessons in testdata. A section is what one side has sent. Over
// stdio each line is a message:
//
//	-- client --
//	{"jsonrpc":"2.0","id":1,"method":"ping"}
//	-- server --
//	{"jsonrpc":"2.0","id":1,"result":{}}
//
// Over HTTP a section belongs to an exchange: one request and its response. The
// letter names the exchange, because several may run at once:
//
//	-- client B --
//	POST /mcp
//	Content-Type: application/json
//	Mcp-Session-Id: session-1
//
//	{"jsonrpc":"2.0","id":2,"method":"tools/call",…}
//	-- server B --
//	200
//	Content-Type: text/event-stream
//
//	id: 84097828.1/0
//	data:
//
// Neither credentials nor session ids are shown:
//
//	sent                              shown
//	Authorization: Bearer s3cret      Authorization: …
//	Mcp-Session-Id: JQ6S3ZMW…         Mcp-Session-Id: session-1, or … if the server has not given that id
//	id: 895650b2.1/0                  id: 84097828.1/0: the tag of the id is replaced by the tag of "session-1"
//	POST /mcp?key=s3cret              POST /mcp?key=…
//	data: /sse?session=JQ6S3ZMW…      data: /sse?session=session-1

// tap writes a transcript to standard error, and to those who watch it on the
// page. Neither write ever waits, so a mutex may be held meanwhile.
type tap struct {
	isSilent bool      // nothing is written to standard error
	watchers *watchers // nil: there is no page with the transcript

	mu          sync.Mutex        // guards the fields below
	lastSection string            // its name; "": the next text begins a section
	exchanges   int               // over HTTP, so far
	names       map[string]string // by session id and by event tag: what is shown in its place
	sessions    int               // that were given a name, so far
}

const (
	maxNames  = 20_000  // session ids and event tags that have a name at once; then all lose theirs
	maxNamed  = 4 << 10 // bytes of a session id that gets a name: our client repeats no longer one
	maxTraced = 4 << 20 // bytes that are shown of a line of a stream, or of another body: each may take 35
)

func newTap() *tap { return &tap{names: map[string]string{}} }

// print shows a text in a section. session is the name of the session that the
// text belongs to; "": there is none, or it is not known. If standard error drops
// the text, the line that names the section may be lost, so the next text names it
// again.
func (t *tap) print(section, session, text string) {
	text = visible(text)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.watchers != nil {
		t.watchers.show(shown{Section: section, Session: session, Text: text})
	}
	if t.isSilent {
		return
	}
	if section != t.lastSection {
		text = "-- " + section + " --\n" + text
	}
	t.lastSection = section
	_, err := io.WriteString(stderr, text)
	if err != nil {
		t.lastSection = ""
	}
}

// visible returns lines that a terminal prints and does not act on. Other
// characters are escaped as in JSON, so that a message stays the same message. A
// line that looks like the name of a section gets a space in front.
func visible(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		if strings.HasPrefix(line, "--") {
			b.WriteByte(' ')
		}
		for _, r := range strings.TrimSuffix(line, "\r") {
			switch {
			case unicode.IsPrint(r): // U+FFFD, too, which range yields for bytes that are not UTF-8
				b.WriteRune(r)
			case r == '\t' || r == '\r': // in JSON, they stand only between values
				b.WriteByte(' ')
			default:
				for _, unit := range utf16.AppendRune(nil, r) {
					fmt.Fprintf(&b, `\u%04x`, unit)
				}
			}
		}
		if ended {
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// ---- Names in place of secrets ----

// noName stands for what is hidden, and for a session without a name.
const noName = "…"

// nameOf returns the name of a session. If the session has none, and the server has
// given the id, the session and its event tag are given one. An id that a client makes
// up gets no name, so that it is not kept.
func (t *tap) nameOf(id string, fromServer bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.names[id]
	if name != "" {
		return name
	}
	if !fromServer || len(id) > maxNamed {
		return noName
	}
	if len(t.names) >= maxNames {
		clear(t.names)
	}
	t.sessions++
	name = fmt.Sprintf("session-%d", t.sessions)
	id = strings.Clone(id) // id is a part of a text that may be long
	t.names[id] = name
	t.names[eventTag(id)] = eventTag(name)
	return name
}

// eventTag returns how the ids of all events of a session begin.
func eventTag(id string) string { return (&Session{ID: id}).Tag() }

// hideEventID returns the id of an event with the tag of the session's name.
func (t *tap) hideEventID(id string) string {
	tag, rest, _ := strings.Cut(id, ".")
	t.mu.Lock()
	defer t.mu.Unlock()
	if name := t.names[tag]; name != "" {
		return name + "." + rest
	}
	return id
}

// hideQuery returns a URL without the values in its query. That of session, of the
// transport of 2024-11-05, is replaced by the name of the session.
func (x *exchange) hideQuery(url string, fromServer bool) string {
	path, query, hasQuery := strings.Cut(url, "?")
	if !hasQuery {
		return url
	}
	parts := strings.Split(query, "&")
	for i, part := range parts {
		name, value, hasName := strings.Cut(part, "=")
		switch {
		case !hasName: // it may be a secret by itself
			parts[i] = noName
		case name == "session":
			parts[i] = name + "=" + x.join(value, fromServer)
		default:
			parts[i] = name + "=" + noName
		}
	}
	return path + "?" + strings.Join(parts, "&")
}

// join returns the name of a session. The first one that has a name is the session of
// the exchange.
func (x *exchange) join(id string, fromServer bool) string {
	name := x.nameOf(id, fromServer)
	if x.session == "" && name != noName {
		x.session = name
	}
	return name
}

// hideInEvent returns a line of a stream without ids and queries. Data that is neither
// JSON nor has a blank is the URL of an endpoint event.
func (x *exchange) hideInEvent(line string) string {
	field, value, _ := strings.Cut(line, ":")
	text := strings.TrimLeft(value, " ")
	before := strings.TrimSuffix(line, text)
	switch {
	case field == "id":
		return before + x.hideEventID(text)
	case field == "data" && text != "" && !strings.ContainsAny(text[:1], `{["`) && !strings.Contains(text, " "):
		return before + x.hideQuery(text, true)
	}
	return line
}

// hideInHeader returns the header as it is shown.
func (x *exchange) hideInHeader(header http.Header, fromServer bool) string {
	return tappedHeader(header, func(name, value string) string {
		switch name {
		case "Authorization":
			return noName
		case "Mcp-Session-Id":
			return x.join(value, fromServer)
		case "Last-Event-Id":
			return x.hideEventID(value)
		}
		return value
	})
}

// tappedFields are the names of the header fields that matter to MCP. A name ends with a
// hyphen if it is only how others begin.
var tappedFields = []string{"Accept", "Allow", "Authorization", "Content-Type", "Last-Event-Id", "Mcp-Session-Id", "Mcp-Protocol-Version",
	"Mcp-Method", "Mcp-Name", "Mcp-Param-", "Origin", "Retry-After", "Www-Authenticate", "Access-Control-"}

// tappedHeader returns the fields that matter to MCP, one on each line, sorted.
func tappedHeader(header http.Header, hide func(name, value string) string) string {
	var lines strings.Builder // a server may send thousands
	for _, name := range slices.Sorted(maps.Keys(header)) {
		isShown := slices.ContainsFunc(tappedFields, func(field string) bool {
			return name == field || strings.HasSuffix(field, "-") && strings.HasPrefix(name, field)
		})
		for _, value := range header[name] {
			if isShown {
				lines.WriteString(name + ": " + hide(name, value) + "\n")
			}
		}
	}
	return lines.String()
}

// ---- A Conn ----

// tappedConn shows what passes through a Conn.
type tappedConn struct {
	Conn
	*tap
	here, there string // the names of both sides
}

// Read shows what it has read, byte for byte.
func (t *tappedConn) Read() (Payload, error) {
	p, err := t.Conn.Read()
	if err == nil {
		t.print(t.there, "", string(bytes.TrimSpace(p.Raw()))+"\n")
	}
	return p, err
}

// Write shows what it sends.
func (t *tappedConn) Write(ctx context.Context, p Payload) error {
	t.print(t.here, "", string(p.Append(nil))+"\n")
	return t.Conn.Write(ctx, p)
}

// ---- HTTP ----

// tappedHandler shows the requests to a handler, and its responses. It reads nothing by
// itself. It shows of a body what the handler has read, and a handler reads nothing
// before its Guard has let the request in.
type tappedHandler struct {
	http.Handler
	*tap
}

// ServeHTTP has the handler serve a request, and shows what it reads and writes.
func (t *tappedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := t.newExchange(r)
	if r.Body == nil || r.Body == http.NoBody {
		x.request(nil, true)
	} else {
		r = r.WithContext(r.Context()) // a copy: the body of the request is still the server's
		r.Body = &tappedBody{r.Body, x.request}
	}
	tapped := &tappedResponse{ResponseWriter: w, exchange: x}
	t.Handler.ServeHTTP(tapped, r)
	tapped.WriteHeader(http.StatusOK) // has no effect if the handler has sent a status
	x.response(nil, true)
}

// tappedTransport shows the requests of a client, and their responses.
type tappedTransport struct {
	http.RoundTripper
	*tap
}

// RoundTrip sends a request, and shows the request and its response.
func (t *tappedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := t.newExchange(r)
	var text []byte
	if r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			text, _ = io.ReadAll(body)
		}
	}
	x.request(text, true)
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		t.print("server "+x.name, "", Printable(err.Error())+"\n")
		return nil, err
	}
	x.responseHead(resp.StatusCode, resp.Header)
	resp.Body = &tappedBody{resp.Body, x.response}
	return resp, nil
}

// tappedBody shows what is read of a body.
type tappedBody struct {
	io.ReadCloser
	show func(part []byte, isEnd bool)
}

// Read shows what it has read.
func (b *tappedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.show(p[:n], err == io.EOF)
	return n, err
}

// Close ends what is shown.
func (b *tappedBody) Close() error {
	b.show(nil, true)
	return b.ReadCloser.Close()
}

// tappedResponse is the response of a handler.
type tappedResponse struct {
	http.ResponseWriter
	exchange  *exchange
	hasStatus bool
}

// Unwrap returns the http.ResponseWriter, for http.NewResponseController.
func (w *tappedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends and shows the status and the header. A second call has no
// effect.
func (w *tappedResponse) WriteHeader(status int) {
	if w.hasStatus {
		return
	}
	w.hasStatus = true
	w.exchange.responseHead(status, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Write shows what the handler writes.
func (w *tappedResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.exchange.response(b, false)
	return w.ResponseWriter.Write(b)
}

// exchange shows one request and its response. The request is shown in one piece: when
// its body ends, or when the response begins. The lines of a stream are shown as they
// end, and any other body when it ends. A handler may read the request's body and write
// the response in several goroutines.
type exchange struct {
	*tap
	name string // a letter, or more: A, B … Z, AA …

	turn     sync.Mutex // guards the fields below; held while a part is shown, before the mutex of tap
	session  string     // the name of its session; "": none is known
	head     string     // of the request, until it is shown
	gap      string     // comes before the body of the response: an empty line, until it is shown
	isStream bool       // the response is a stream
	partial  []byte     // the body, or the line of a stream, whose end has not come yet
}

// newExchange returns the exchange that a request begins. It shows nothing yet.
func (t *tap) newExchange(r *http.Request) *exchange {
	x := &exchange{tap: t}
	x.head = r.Method + " " + x.hideQuery(r.URL.RequestURI(), false) + "\n" + x.hideInHeader(r.Header, false)
	t.mu.Lock()
	defer t.mu.Unlock()
	x.name = letters(t.exchanges)
	t.exchanges++
	return x
}

// letters returns the name of the exchange number n: A, B … Z, AA, AB …
func letters(n int) string {
	name := ""
	for n >= 0 {
		name = string(rune('A'+n%26)) + name
		n = n/26 - 1
	}
	return name
}

// request takes a part of the request's body, and shows the request at its end. A part that
// comes later is not shown.
func (x *exchange) request(part []byte, isEnd bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.head == "" {
		return
	}
	x.collect(part)
	if !isEnd {
		return
	}
	body := ""
	if len(x.partial) > 0 {
		body = "\n" + string(oneLine(x.partial)) + "\n"
	}
	x.showRequest(body)
}

// showRequest shows the request. The caller holds turn.
func (x *exchange) showRequest(body string) {
	x.print("client "+x.name, x.session, x.head+body)
	x.head = ""
	x.partial = nil // from now on, it is for the response
}

// responseHead shows the status and the header of the response. If the request is
// not shown yet, its body has not been read to the end.
func (x *exchange) responseHead(status int, header http.Header) {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.head != "" {
		x.showRequest("\n(not read to its end)\n")
	}
	head := fmt.Sprintf("%d\n%s", status, x.hideInHeader(header, true))
	x.print("server "+x.name, x.session, head)
	x.gap = "\n"
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // with an error, media is what could be read
	x.isStream = media == "text/event-stream"
}

// response takes a part of the response's body, and shows what is complete of it.
func (x *exchange) response(part []byte, isEnd bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	text := ""
	for x.isStream {
		line, rest, isLine := bytes.Cut(part, []byte("\n"))
		if !isLine {
			break
		}
		x.collect(line)
		text += x.takePartial()
		part = rest
	}
	x.collect(part)
	if isEnd && len(x.partial) > 0 {
		text += x.takePartial()
	}
	if text != "" {
		x.print("server "+x.name, x.session, x.gap+text)
		x.gap = ""
	}
}

// collect adds a part to partial. A body, or a line without an end, would need any amount
// of memory, so only its beginning is collected. The caller holds turn.
func (x *exchange) collect(part []byte) {
	limit := maxTraced
	if x.isSilent {
		limit = maxPart + 1 // the page shows no more
	}
	x.partial = append(x.partial, part[:min(len(part), limit-len(x.partial))]...)
}

// takePartial returns the line of a stream, or the body, whose end has come. The caller
// holds turn.
func (x *exchange) takePartial() string {
	part := x.partial
	x.partial = nil // a stream may stay open for long, and its longest line was long
	if !x.isStream {
		return string(oneLine(part)) + "\n"
	}
	var lines strings.Builder
	for line := range strings.SplitSeq(strings.TrimSuffix(string(part), "\r"), "\r") { // a server may end lines with CR alone
		lines.WriteString(x.hideInEvent(line) + "\n")
	}
	return lines.String()
}

// ---- JSON as one line ----

// toJSON encodes a value as one line of JSON. Unlike json.Marshal it leaves <, > and &
// as they are.
func toJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// oneLine returns a text as one line. If the text has line breaks, JSON loses its white
// space, and any other text has blanks in their place.
func oneLine(text []byte) []byte {
	var line bytes.Buffer
	switch {
	case !bytes.ContainsAny(text, "\r\n"):
		return slices.Clip(text)
	case json.Compact(&line, text) == nil:
		return line.Bytes()
	}
	return []byte(Printable(string(bytes.TrimSpace(text))))
}

// ==== The page ====
//
// A browser that asks for / or /mcp gets one page: the course, drawn by the script of
// the page, and how to connect. With -watch the page also shows what all clients and the
// server say to each other:
//
//	exchange --print--> tap --show--> watchers --> a channel for each page --> GET /watch
//
// The page holds nothing of any conversation, so everybody may load it. GET /watch is
// for those who may call the server: the same Guard and the same token protect it.

// pageFile is the page, without the lessons.
//
//go:embed testdata/page.html
var pageFile string

// lessonFiles are the lessons.
//
//go:embed testdata/[0-9]*.txtar
var lessonFiles embed.FS

// withPage returns a mux that serves the page, and leaves everything else to next.
func (o *options) withPage(next http.Handler) *http.ServeMux {
	render := sync.OnceValue(o.renderPage) // not at start: most servers are never asked for it
	page := o.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		render().ServeHTTP(w, r)
	}))
	mux := http.NewServeMux()
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		if asksForPage(r) {
			page.ServeHTTP(w, r)
		} else {
			next.ServeHTTP(w, r)
		}
	})
	if o.watch {
		guard := o.guard
		guard.Origins = nil // the page is of this server; another page must not read what clients say
		if o.token != "" {
			guard.Authenticate = o.bearer("")
		}
		mux.Handle("GET /watch", guard.Wrap(&o.watchers))
	}
	return mux
}

// asksForPage reports whether a request is for the page. A client of MCP asks for
// events with its GET, and never gets the page. At the endpoint only a GET that asks
// for HTML gets it: clients that do not say what they want are there, too.
func asksForPage(r *http.Request) bool {
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	atEndpoint := r.URL.Path == "/mcp" || r.URL.Path == "/mcp/"
	isPage := r.URL.Path == "/" || atEndpoint && strings.Contains(accept, "text/html")
	return reads && isPage && !strings.Contains(accept, "text/event-stream")
}

// pageDataPlace is where the page has its data. A browser does not run a script of
// this type. JSON as json.Marshal writes it has no <, so it cannot end the script.
const pageDataPlace = `<script type="application/json" id="data">{}</script>`

// renderPage returns the handler of the page, with the data in it. The policy allows the
// one script and the one style of the page by their hashes, and requests to this server. It
// allows nothing else, so a text that gets into the page by mistake can do no harm: W3C,
// Content Security Policy Level 3.
func (o *options) renderPage() http.HandlerFunc {
	var lessons []map[string]string                // the script of the page reads their notation
	names, _ := fs.Glob(lessonFiles, "testdata/*") // sorted; no error, because the pattern is good
	for _, name := range names {
		text, _ := lessonFiles.ReadFile(name) // it is there
		_, file, _ := strings.Cut(name, "/")
		lessons = append(lessons, map[string]string{"name": strings.TrimSuffix(file, ".txtar"), "text": string(text)})
	}
	data := map[string]any{"version": version, "token": o.token != "", "watch": o.watch, "lessons": lessons}
	encoded, _ := json.Marshal(data) // texts and booleans can be encoded
	filled := strings.Replace(pageDataPlace, "{}", string(encoded), 1)
	policy := "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	body := strings.Replace(pageFile, pageDataPlace, filled, 1)
	return func(w http.ResponseWriter, _ *http.Request) {
		header := w.Header()
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("Content-Length", strconv.Itoa(len(body)))
		header.Set("Content-Security-Policy", policy)
		keepFromOthers(header)
		header.Set("Referrer-Policy", "no-referrer")
		header.Set("Cache-Control", "no-cache")
		header.Add("Vary", "Accept")
		_, _ = io.WriteString(w, body) // fails only if the browser has gone
	}
}

// hashOf returns the hash of the content of an element of the page, as a policy has
// it. The page has one such element without attributes.
func hashOf(element string) string {
	_, rest, _ := strings.Cut(pageFile, "<"+element+">")
	content, _, _ := strings.Cut(rest, "</"+element+">")
	hash := sha256.Sum256([]byte(content))
	return "'sha256-" + base64.StdEncoding.EncodeToString(hash[:]) + "'"
}

// keepFromOthers tells the browser to let no page of another origin use the response,
// as a script, as an image or as anything else. Fetch Standard,
// Cross-Origin-Resource-Policy and X-Content-Type-Options.
func keepFromOthers(header http.Header) {
	header.Set("Cross-Origin-Resource-Policy", "same-origin")
	header.Set("X-Content-Type-Options", "nosniff")
}

// ---- Those who watch ----

const (
	maxWatchers = 8
	maxBehind   = 256      // events that wait for one watcher
	maxPart     = 60 << 10 // bytes that are shown of one part, which is one event
)

// shown is a part of the transcript, as the data of an event on GET /watch.
type shown struct {
	Section string `json:"section"`           // such as "client A"
	Session string `json:"session,omitempty"` // such as "session-1"; "": none is known
	Text    string `json:"text"`              // lines in the notation of the trace
}

// watchers are the pages that watch the server, each with a channel that has room for
// maxBehind events. The zero watchers has none.
type watchers struct {
	mu    sync.Mutex // guards the fields below
	all   map[chan []byte]bool
	ended bool
}

// show passes a part of the transcript on to all watchers. It never waits: a watcher that
// is maxBehind events behind is dropped, and its page says that it has ended.
func (ws *watchers) show(part shown) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 {
		return
	}
	if len(part.Text) > maxPart {
		beginning := strings.ToValidUTF8(part.Text[:maxPart], "") // the cut may be inside of a character
		part.Text = beginning + " (… the rest is not shown)\n"
	}
	data, _ := toJSON(part) // texts can be encoded
	event := Event{Data: data}.Append(nil)
	for events := range ws.all {
		select {
		case events <- event:
		default:
			ws.drop(events)
		}
	}
}

// join returns the channel of a new watcher. nil: there are too many, or the server ends.
func (ws *watchers) join() chan []byte {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended || len(ws.all) == maxWatchers {
		return nil
	}
	if ws.all == nil {
		ws.all = map[chan []byte]bool{}
	}
	events := make(chan []byte, maxBehind)
	ws.all[events] = true
	return events
}

// drop ends the response to a watcher. The caller holds mu.
func (ws *watchers) drop(events chan []byte) {
	if ws.all[events] {
		delete(ws.all, events)
		close(events)
	}
}

// leave makes room for another watcher.
func (ws *watchers) leave(events chan []byte) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.drop(events)
}

// end ends the responses to all watchers.
func (ws *watchers) end() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = true
	for events := range ws.all {
		ws.drop(events)
	}
}

// ServeHTTP sends the transcript to a page, from now on, until the page or the server ends
// it. A page of another origin is refused: it could not read the transcript, but would take
// the place of a page that can.
func (ws *watchers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	keepFromOthers(w.Header())
	// The Guard does not see a page of another origin: a browser sends no Origin with the GET
	// of an image, of a frame or of a fetch without CORS. But it sends this: W3C, Fetch Metadata.
	if site := r.Header.Get("Sec-Fetch-Site"); site == "cross-site" || site == "same-site" {
		http.Error(w, "Only the page of this server", http.StatusForbidden)
		return
	}
	me := ws.join()
	if me == nil {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "Too many watchers, or the server ends", http.StatusServiceUnavailable)
		return
	}
	defer ws.leave(me)
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	header.Set("X-Accel-Buffering", "no") // no proxy may hold events back
	w.WriteHeader(http.StatusOK)
	ws.sendEvents(w, r.Context(), me)
}

// sendEvents sends events to a watcher, until ctx ends or the watcher is dropped.
func (ws *watchers) sendEvents(w http.ResponseWriter, ctx context.Context, events chan []byte) {
	response := http.NewResponseController(w)
	_ = response.SetReadDeadline(time.Time{}) // the request has been read
	text := []byte(": the transcript begins here\n\n")
	for isOpen := true; isOpen; {
		_ = response.SetWriteDeadline(time.Now().Add(ioTimeout))
		_, err := w.Write(text)
		if cmp.Or(err, response.Flush()) != nil {
			return
		}
		_ = response.SetWriteDeadline(time.Time{}) // with HTTP/2, it would count between writes, too
		select {
		case text, isOpen = <-events:
		case <-ctx.Done():
			return
		}
	}
}

// ==== The program ====

const version = "0.3.0"

// The exit statuses of a program that has failed.
const (
	exitError = 1
	exitUsage = 2 // a flag or an argument is wrong
	exitTool  = 3 // call -tool: the result has isError
)

// exitStatus is an error that ends the program with a status of its own.
type exitStatus struct {
	error
	status int
}

func (e exitStatus) Unwrap() error { return e.error }

// usageErrorf returns the error of a command line that does not fit the server.
func usageErrorf(format string, args ...any) error {
	return exitStatus{fmt.Errorf(format, args...), exitUsage}
}

func main() {
	// net/http writes some of what a broken server sends to this log, session ids
	// included.
	log.SetOutput(io.Discard)
	commands := map[string]func(context.Context, []string) error{"call": call, "bridge": bridge}
	command := serve
	args := os.Args[1:]
	if len(args) > 0 && commands[args[0]] != nil {
		command = commands[args[0]]
		args = args[1:]
	}
	err := command(untilSignal(), args)
	if err != nil {
		printError(err)
		status := exitError
		if special, ok := errors.AsType[exitStatus](err); ok {
			status = special.status
		}
		os.Exit(status)
	}
	stderr.flush()
}

// untilSignal returns a context that ends with the first interrupt, SIGTERM or SIGHUP.
// Then the program shuts down. A second interrupt ends it at once, because the user does not
// want to wait. A second SIGTERM or SIGHUP has no effect: they may come twice by themselves,
// and a server that call or bridge has started must be stopped first.
//
// SIGHUP has no effect at all if it was ignored when the program started, as with nohup.
// SIGPIPE would end the program when the reader of its output has gone. The program sends
// it to a channel that is not read, so that the next write returns an error instead. If the
// program ignored SIGPIPE, a command that it starts would ignore it, too.
func untilSignal() context.Context {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) {
		ending = append(ending, syscall.SIGHUP)
	}
	ctx, _ := signal.NotifyContext(context.Background(), ending...)
	context.AfterFunc(ctx, func() { signal.Reset(os.Interrupt) })
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return ctx
}

// printError prints an error to standard error, and waits until it is written.
func printError(err error) {
	fmt.Fprintln(stderr, "mcpwire:", Printable(err.Error()+dataOf(err)))
	stderr.flush()
}

// dataOf returns the data of the *Error in err, as a text to append; "": there
// is none. Data that is a string is in the text of the error already.
func dataOf(err error) string {
	fault, ok := errors.AsType[*Error](err)
	if !ok || len(fault.Data) == 0 || fault.Data[0] == '"' || string(fault.Data) == "null" {
		return ""
	}
	return fmt.Sprintf("; data: %.4000s", oneLine(fault.Data))
}

// isTerminal reports whether a user may be typing into file. The null device is
// a character device, too, but no terminal.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// ---- Flags ----

// parse reads the flags that define defines, has them checked, and returns the other
// arguments. If a flag is wrong, or if help was asked for, parse ends the program.
func parse(name string, args []string, usage string, define func(*flag.FlagSet), check func(*flag.FlagSet) error) []string {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	define(flags)
	err := flags.Parse(args)
	if err == nil {
		err = check(flags)
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Println(usage)
		flags.SetOutput(os.Stdout)
		flags.PrintDefaults()
		os.Exit(0)
	case err != nil:
		printError(fmt.Errorf("%w (-h for help)", err))
		os.Exit(exitUsage)
	}
	return flags.Args()
}

// setText returns the function of a flag that stores a text.
func setText(to *string) func(string) {
	return func(text string) { *to = text }
}

// addText returns the function of a flag that may be repeated.
func addText(list *[]string) func(string) {
	return func(text string) { *list = append(*list, text) }
}

// matching returns the function of a flag whose text must match a pattern. An error says
// in words what is wanted. The function passes the text on to store. No pattern of ours
// matches an empty text, which comes from an unset variable of a shell: the server must not
// start without a token because of that.
func matching(pattern, wanted string, store func(text string)) func(string) error {
	return func(text string) error {
		if !regexp.MustCompile(`(?i)^(?:` + pattern + `)$`).MatchString(text) {
			return fmt.Errorf("it must be %s", wanted)
		}
		store(text)
		return nil
	}
}

// addVersions returns the function of a flag that lists protocol versions. It
// keeps the list in the order of Revisions, whatever that of the text is.
func addVersions(list *[]string) func(string) error {
	var known []string
	for _, r := range Revisions {
		known = append(known, r.Version)
	}
	return func(text string) error {
		for version := range strings.SplitSeq(text, ",") {
			if !slices.Contains(known, version) || slices.Contains(*list, version) {
				return fmt.Errorf("unknown or repeated version %q; known are %s", version, strings.Join(known, ", "))
			}
			*list = append(*list, version)
		}
		slices.SortFunc(*list, func(a, b string) int { return slices.Index(known, a) - slices.Index(known, b) })
		return nil
	}
}

// setSize returns the function of a flag whose value is a number of bytes, such as 4096,
// 512k or 4M.
func setSize(to *int) func(string) error {
	return func(text string) error {
		digits := strings.TrimRight(text, "kM")
		unit := map[string]int{"": 1, "k": 1 << 10, "M": 1 << 20}[text[len(digits):]]
		n, err := strconv.ParseUint(digits, 10, 30)
		if err != nil || unit == 0 || int(n) > math.MaxInt32/unit {
			return errors.New("must be a number of bytes, such as 4096, 512k or 4M")
		}
		*to = int(n) * unit
		return nil
	}
}

// ---- Flags of the server ----

const serveUsage = `usage: mcpwire [flags]              serve the demo on stdin and stdout
       mcpwire -http ADDR [flags]   serve it over HTTP: at /mcp, and as in 2024-11-05 at /sse
       mcpwire call -h              the client
       mcpwire bridge -h            between a client and a server`

func (o *options) define(flags *flag.FlagSet) {
	const host = `([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?`
	flags.Func("http", "serve HTTP at `address`, such as :8080; the host is 127.0.0.1 unless named", matching(`.*:\w+`, "HOST:PORT, such as :8080", setText(&o.http)))
	flags.BoolVar(&o.stateless, "stateless", false, "no sessions: every POST stands alone")
	flags.DurationVar(&o.sessions.IdleTimeout, "session-ttl", 30*time.Minute, "end a session that has been idle for this long")
	flags.IntVar(&o.sessions.Max, "max-sessions", 10_000, "sessions at once")
	flags.Int64Var(&o.guard.MaxBody, "max-body", 4<<20, "`bytes` in one message, also on stdio")
	o.sessions.Keep = 4 << 20
	flags.Func("event-buffer", "bytes a stream keeps for resuming, a `size` like 512k; 0: none (default 4M)", setSize(&o.sessions.Keep))
	flags.DurationVar(&o.guard.KeepAlive, "keepalive", 15*time.Second, "comment on a stream after this long a silence; 0: none")
	flags.Func("allow-origin", "let this `origin` in, with CORS, such as https://app.example.com; repeatable",
		matching(`null|[a-z][a-z0-9+.-]*://`+host, "SCHEME://HOST or SCHEME://HOST:PORT, such as https://app.example.com", addText(&o.guard.Origins)))
	flags.Func("allow-host", "let this `Host` in too on a loopback address; repeatable", matching(host, "HOST or HOST:PORT", addText(&o.guard.Hosts)))
	flags.Func("token", "require Authorization: Bearer `token` (default $MCPWIRE_TOKEN, or none)", matching(`\S+`, "a text without blanks", setText(&o.token)))
	flags.Func("auth-server", "`URL` of the authorization server that metadata names", matching(`https?://[^/].*`, "a URL, such as https://auth.example.com", setText(&o.authServer)))
	flags.Func("replica", "`name` that begins session ids, so that a proxy can route by it", matching(`[!-~]+`, "a text of ASCII without blanks", setText(&o.replica)))
	flags.Func("state-key", "`key` of requestState, on all replicas (default $MCPWIRE_STATE_KEY or random)", matching(`.+`, "a text that is not empty", setText(&o.stateKey)))
	flags.Func("tls-cert", "serve HTTPS with the certificate in this `file`", matching(`.+`, "the name of a file", setText(&o.tlsCert)))
	flags.Func("tls-key", "and the key in this `file`", matching(`.+`, "the name of a file", setText(&o.tlsKey)))
	flags.Func("versions", "protocol versions to offer, as a comma-separated `list` (default all)", addVersions(&o.versions))
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
	flags.BoolVar(&o.watch, "watch", false, "show every message on the page for browsers")
	flags.BoolFunc("version", "print the version", func(string) error {
		fmt.Println("mcpwire", version)
		os.Exit(0)
		return nil
	})
}

// check returns an error if the flags do not fit together.
func (o *options) check(flags *flag.FlagSet) error {
	onStdio := []string{"max-body", "state-key", "versions", "trace", "version"}
	var httpAlone error // a user who sets -token must not believe that stdio asks for it
	flags.Visit(func(f *flag.Flag) {
		if o.http == "" && !slices.Contains(onStdio, f.Name) {
			httpAlone = fmt.Errorf("-%s goes with -http", f.Name)
		}
	})
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q; the commands are call and bridge", flags.Arg(0))
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return errors.New("-tls-cert and -tls-key go together")
	case o.guard.MaxBody <= 0 || o.sessions.Max <= 0 || o.sessions.IdleTimeout <= 0:
		return errors.New("-max-body, -max-sessions and -session-ttl must be more than 0")
	case o.guard.KeepAlive < 0:
		return errors.New("-keepalive must not be less than 0")
	case o.watch && !isLoopback(o.http) && o.token == "" && os.Getenv("MCPWIRE_TOKEN") == "":
		// The Guard checks Host on loopback addresses alone. Elsewhere the page of a
		// foreign name that leads here could read what all clients say.
		return errors.New("-watch on an address that others reach needs -token")
	}
	return httpAlone
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
}

// ---- Flags of call and bridge ----

// targetOptions are the flags of all commands that talk to a server.
type targetOptions struct {
	trace      bool
	header     http.Header
	env        []string // to add to the environment of the command
	dir        string   // of the command; "": that of the program
	maxMessage int      // bytes
}

func (o *targetOptions) define(flags *flag.FlagSet) {
	o.maxMessage = maxMessage
	o.header = http.Header{}
	addField := func(line string) {
		name, value, _ := strings.Cut(line, ":")
		o.header.Add(name, strings.TrimSpace(value))
	}
	flags.Func("header", "`'K: V'` to send with every HTTP request, repeatable",
		matching("[!#$%&'*+.^_`|~0-9a-z-]+:[^\\x00-\\x08\\n-\\x1f\\x7f]*", "'NAME: VALUE'", addField))
	flags.Func("env", "`K=V` to add to the environment of COMMAND; repeatable", matching(`[^=\x00]+=[^\x00]*`, "K=V", addText(&o.env)))
	flags.StringVar(&o.dir, "cwd", "", "start COMMAND in this `directory`")
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
}

// check returns an error if a flag or the target is wrong.
func (o *targetOptions) check(flags *flag.FlagSet) error {
	target := flags.Args()
	if len(target) == 0 {
		return errors.New("the server is missing: a URL or a command")
	}
	first := target[0]
	parsed, err := url.Parse(first)
	switch {
	case o.maxMessage <= 0:
		return errors.New("-max-body must be more than 0")
	case isURL(first) && len(target) > 1:
		return errors.New("nothing may follow the URL: flags go before it")
	case isURL(first) && (err != nil || parsed.Host == ""):
		return fmt.Errorf("%.200q is no URL with a host", first)
	case !isURL(first) && strings.Contains(first, "://"):
		return fmt.Errorf("%.200q is no URL of a server: it must begin with http:// or https://", first)
	case isURL(first) && (o.env != nil || o.dir != ""):
		return errors.New("-env and -cwd are for a command, and not for a URL")
	case !isURL(first) && len(o.header) > 0:
		return errors.New("-header is for a URL, and not for a command")
	}
	return nil
}

// isURL reports whether a target is a URL, and no command.
func isURL(text string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(text), "://")
	return found && (scheme == "http" || scheme == "https")
}

const bridgeUsage = `usage: mcpwire bridge [flags] URL
       mcpwire bridge [flags] COMMAND [ARG...]
A server on stdin and stdout. It passes every message on to another server.`

func (o *targetOptions) defineForBridge(flags *flag.FlagSet) {
	o.define(flags)
	flags.IntVar(&o.maxMessage, "max-body", maxMessage, "`bytes` in one message, in either direction")
}

const callUsage = `usage: mcpwire call [flags] URL
       mcpwire call [flags] COMMAND [ARG...]
Without -method, -tool and -i: say how the server was reached, and what it offers.
Exit status: 0 a result; 1 an error; 2 a wrong command line; 3 -tool: a result with isError.`

// callOptions are the flags of call.
type callOptions struct {
	targetOptions
	method      string // "": see tool
	params      string
	tool        string // "": print a summary, unless there is a method
	arguments   []argument
	json        bool // print the summary as JSON
	versions    []string
	answer      string // to every elicitation; "": see elicit
	roots       []Root // the answer to roots/list; nil: none is given
	sample      string // the answer to sampling/createMessage; "": none is given
	timeout     time.Duration
	interactive bool
}

func (o *callOptions) define(flags *flag.FlagSet) {
	flags.StringVar(&o.method, "method", "", "`method` to call, such as tools/list")
	flags.StringVar(&o.params, "params", "", "its params, a `JSON` object")
	flags.Func("tool", "`name` of a tool to call, with an -arg for each argument", matching(`(?s).+`, "the name of a tool", setText(&o.tool)))
	flags.Func("arg", "argument of the tool: `KEY=VALUE`, or KEY=@FILE (@@ is @); repeatable", o.addArgument)
	flags.BoolVar(&o.interactive, "i", false, "read METHOD [PARAMS] lines from stdin, and print each result; errors go to stderr, and without -answer questions are declined")
	flags.BoolVar(&o.json, "json", false, "print what the server offers as one JSON object")
	flags.StringVar(&o.answer, "answer", "", "accept every elicitation with this `JSON` (default: ask at a terminal, or decline)")
	flags.Func("root", "offer this `directory` as a root; repeatable", o.addRoot)
	flags.Func("sampling-answer", "answer sampling/createMessage with this `text`", matching(`(?s).+`, "a text that is not empty", setText(&o.sample)))
	flags.Func("protocol", "speak this `revision` (default: find out)", addVersions(&o.versions))
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "for one call; progress extends it up to ten times; 0: none")
	o.targetOptions.define(flags)
}

// addArgument is the function of -arg. It reads the file that is named: a file may be
// missing, and then no server is started.
func (o *callOptions) addArgument(text string) error {
	key, value, found := strings.Cut(text, "=")
	isTwice := slices.ContainsFunc(o.arguments, func(a argument) bool { return a.key == key })
	file, isFile := strings.CutPrefix(value, "@")
	switch {
	case !found || key == "":
		return errors.New("it must be KEY=VALUE")
	case isTwice:
		return fmt.Errorf(`%q is given twice: for a list write -arg %s='["a","b"]'`, key, key)
	case strings.HasPrefix(file, "@"): // @@ is @
		value = file
	case isFile:
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		value = string(content)
	}
	if !utf8.ValidString(text) || !utf8.ValidString(value) {
		return fmt.Errorf("%q is not UTF-8", key)
	}
	o.arguments = append(o.arguments, argument{key, value})
	return nil
}

// addRoot is the function of -root. 2025-11-25 client/roots#root: the URI is a
// file:// URI.
func (o *callOptions) addRoot(dir string) error {
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	if info, err := os.Stat(path); dir == "" || err != nil || !info.IsDir() {
		return errors.New("it must be a directory")
	}
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") { // C:/dir
		slashed = "/" + slashed
	}
	uri := url.URL{Scheme: "file", Path: slashed}
	o.roots = append(o.roots, Root{URI: uri.String(), Name: filepath.Base(path)})
	return nil
}

// check returns an error if a flag or the target is wrong.
func (o *callOptions) check(flags *flag.FlagSet) error {
	if err := o.targetOptions.check(flags); err != nil {
		return err
	}
	modes := 0
	for _, isGiven := range []bool{o.method != "", o.tool != "", o.interactive, o.json} {
		if isGiven {
			modes++
		}
	}
	switch {
	case modes > 1:
		return errors.New("only one of -method, -tool, -i and -json can be given")
	case o.params != "" && o.method == "":
		return errors.New("-params goes with -method")
	case o.arguments != nil && o.tool == "":
		return errors.New("-arg goes with -tool")
	case o.params != "" && !isObject(o.params):
		return errors.New("-params takes a JSON object")
	case o.answer != "" && !isObject(o.answer):
		return errors.New("-answer takes a JSON object")
	case o.timeout < 0 || o.timeout > noTimeout:
		return errors.New("-timeout is out of range")
	}
	return nil
}

// isObject reports whether a text is a JSON object.
func isObject(text string) bool {
	return utf8.ValidString(text) && json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
}

// ---- Standard error ----

// stderr takes everything that the program prints on standard error: the log, what is
// tapped, errors, and the standard error of a command. So all lines stay in order, and a
// slow reader of standard error never delays a message.
var stderr = &spool{w: os.Stderr}

const (
	maxSpooled = 8 << 20
	flushTime  = time.Second
	missedHere = "mcpwire: lines are missing here, because nobody read them\n"
)

var errDropped = errors.New("nobody reads: dropped")

// spool is an io.Writer that never waits. It keeps what is written until w takes it.
// While maxSpooled bytes are waiting, it drops what is written, and says so after them.
//
// One goroutine writes to w. Write starts the goroutine, and it ends when nothing
// is waiting.
type spool struct {
	w io.Writer

	mu          sync.Mutex    // guards the fields below
	waiting     []byte        // for w
	missing     bool          // something was dropped after them
	idle        chan struct{} // closed when the goroutine ends; nil: it does not exist
	isStuck     bool          // flush has waited in vain once, and waits no more
	showsStatus bool          // the last text was a status
	unfinished  bool          // the last text did not end its line, and was no status
}

// eraseLine makes a terminal erase the line in which the cursor is (ECMA-48, EL).
const eraseLine = "\r\x1b[K"

// status shows a text on a line of a terminal. What is written next replaces it. ""
// only erases the line. status returns false, and does nothing, in the middle of a
// line of others.
func (s *spool) status(text string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.unfinished || text == "" && !s.showsStatus {
		return false
	}
	_, err := s.write([]byte(eraseLine + text))
	s.unfinished = false
	s.showsStatus = err == nil && text != ""
	return true
}

// Write keeps all of b, or drops it.
func (s *spool) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.showsStatus {
		s.showsStatus = false
		_, _ = s.write([]byte(eraseLine)) // if it is dropped, so is b
	}
	return s.write(b)
}

// write does what Write says, while mu is held.
func (s *spool) write(b []byte) (int, error) {
	s.unfinished = len(b) > 0 && b[len(b)-1] != '\n'
	if len(s.waiting) >= maxSpooled {
		s.missing = true
		return 0, errDropped
	}
	if s.missing {
		s.missing = false
		s.waiting = append(s.waiting, missedHere...)
	}
	s.waiting = append(s.waiting, b...)
	if s.idle == nil {
		s.idle = make(chan struct{})
		go s.run()
	}
	return len(b), nil
}

// run gives w what is waiting. What w refuses is lost: its reader has gone.
func (s *spool) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(s.waiting) > 0 {
		batch := s.waiting
		s.waiting = nil
		s.mu.Unlock()
		_, _ = s.w.Write(batch)
		s.mu.Lock()
	}
	close(s.idle)
	s.idle = nil
}

// flush waits until w has been given all that was written, but for no longer than
// flushTime. If it has waited in vain once, it does not wait any more.
func (s *spool) flush() {
	s.mu.Lock()
	idle, isStuck := s.idle, s.isStuck
	s.mu.Unlock()
	if idle == nil || isStuck {
		return
	}
	select {
	case <-idle:
	case <-time.After(flushTime):
		s.mu.Lock()
		s.isStuck = true
		s.mu.Unlock()
	}
}
