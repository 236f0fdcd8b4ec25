// Mcpwire is the wire of the Model Context Protocol in one flat package that
// imports only the standard library: messages, stdio, HTTP, and the lifecycle
// of all five revisions, from both ends. As a program it is a tiny demo server,
// a client for any server, and a bridge between a client and a server:
//
//	mcpwire                                          serve the demo on standard input and output
//	mcpwire -http :8080                              serve it over HTTP, at http://127.0.0.1:8080/mcp
//	mcpwire call http://127.0.0.1:8080/mcp           say how a server was reached and what it offers
//	mcpwire call COMMAND [ARG...]                    start a server, and say the same
//	mcpwire call -method tools/list COMMAND [ARG...] call one method and print its result
//	mcpwire bridge -trace http://127.0.0.1:8080/mcp  stand between a client on stdio and a server, and show what they say
//
// The library is jsonrpc.go (messages, and a conversation with one peer),
// stdio.go (lines over a byte stream), sse.go (events over HTTP), session.go
// (the lifecycle) and http.go (Streamable HTTP). Read them in that order. None
// of them needs this file, which shows how the library is used. README.md says
// which files to copy for which purpose.
package main

// This file has six parts: the program and its flags, the demo server, the
// command call, the command bridge, the traces of all three, and standard error.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
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

// ======== The program ========

const version = "0.1.0"

// The exit statuses of a program that has failed.
const (
	exitError = 1
	exitUsage = 2 // a flag or an argument is wrong
)

func main() {
	commands := map[string]func(context.Context, []string) error{"call": call, "bridge": bridge}
	command := serve
	args := os.Args[1:]
	mayStartServer := false
	if len(args) > 0 && commands[args[0]] != nil {
		command = commands[args[0]]
		args = args[1:]
		mayStartServer = true
	}
	err := command(untilSignal(mayStartServer), args)
	if err != nil {
		printError(err)
		os.Exit(exitError)
	}
	stderr.flush()
}

// untilSignal returns a context that ends with the first signal. Then the
// program shuts down. What a second signal does meanwhile depends on the
// command:
//
//	             first        second
//	interrupt    ctx ends     the program ends at once
//	SIGTERM      ctx ends     serve: the program ends at once; call, bridge: no effect
//	SIGHUP       ctx ends     no effect
//	SIGPIPE      no effect    no effect
//
// A second interrupt comes from a user who does not want to wait. The other
// signals may come twice by themselves: a terminal that is closed may send
// SIGHUP twice, and the end of a login session sends SIGTERM soon after it. A
// second SIGTERM may end a server, because that leaves nothing behind. It must
// not end call or bridge: the server that they have started would go on running.
//
// SIGHUP has no effect at all if it was ignored when the program started, as
// nohup has it. SIGPIPE would end the program when the reader of its output has
// gone. Without it, the next write returns an error.
func untilSignal(mayStartServer bool) context.Context {
	ending := []os.Signal{os.Interrupt, syscall.SIGTERM}
	harmless := []os.Signal{syscall.SIGPIPE}
	if mayStartServer {
		harmless = append(harmless, syscall.SIGTERM)
	}
	if !signal.Ignored(syscall.SIGHUP) {
		ending = append(ending, syscall.SIGHUP)
		harmless = append(harmless, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), ending...)
	// After stop, a signal ends the program, unless another channel is notified
	// of it. The channel unread is never read: signal.Notify does not wait.
	context.AfterFunc(ctx, stop)
	unread := make(chan os.Signal, 1)
	signal.Notify(unread, harmless...)
	return ctx
}

// parse reads flags, and then has them checked. If a flag is wrong, or if help
// was asked for, parse ends the program.
func parse(flags *flag.FlagSet, args []string, usage string, check func() error) {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if err == nil {
		err = check()
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
	return fmt.Sprintf("; data: %.4000s", appendLine(nil, fault.Data))
}

// ---- Flags ----

// setText returns the function of a flag that stores a text.
func setText(to *string) func(string) {
	return func(text string) { *to = text }
}

// addText returns the function of a flag that may be repeated.
func addText(list *[]string) func(string) {
	return func(text string) { *list = append(*list, text) }
}

// matching returns the function of a flag whose text must match a pattern. It
// passes the text on to store. No pattern of ours matches an empty text, which
// comes from an unset variable of a shell: the server must not start without a
// token because of that.
func matching(pattern string, store func(text string)) func(string) error {
	return func(text string) error {
		if !regexp.MustCompile(`(?i)^(?:` + pattern + `)$`).MatchString(text) {
			return fmt.Errorf("it must match %s", pattern)
		}
		store(text)
		return nil
	}
}

// addVersions returns the function of a flag that lists protocol versions. It
// keeps the list sorted, newest first.
func addVersions(list *[]string) func(string) error {
	return func(text string) error {
		for version := range strings.SplitSeq(text, ",") {
			isKnown := slices.ContainsFunc(Revisions, func(r Revision) bool { return r.Version == version })
			if !isKnown || slices.Contains(*list, version) {
				return fmt.Errorf("unknown or repeated version %q", version)
			}
			*list = append(*list, version)
		}
		slices.Sort(*list)
		slices.Reverse(*list)
		return nil
	}
}

// ---- Serving ----

// options are the flags of a server.
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
	versions   []string // newest first; nil: all
	sessions   Sessions
	guard      Guard // of all handlers; those of MCP add Authenticate, the metadata needs no token
}

// byteSize is a flag whose value is a number of bytes, such as 4096, 512k or 4M.
type byteSize int

// String returns the value as Set takes it.
func (s *byteSize) String() string {
	switch n := int(*s); {
	case n > 0 && n%(1<<20) == 0:
		return fmt.Sprintf("%dM", n>>20)
	case n > 0 && n%(1<<10) == 0:
		return fmt.Sprintf("%dk", n>>10)
	default:
		return strconv.Itoa(n)
	}
}

// Set reads the value.
func (s *byteSize) Set(text string) error {
	unit := 1
	digits := text
	switch {
	case strings.HasSuffix(text, "k"):
		unit, digits = 1<<10, strings.TrimSuffix(text, "k")
	case strings.HasSuffix(text, "M"):
		unit, digits = 1<<20, strings.TrimSuffix(text, "M")
	}
	n, err := strconv.ParseUint(digits, 10, 30)
	if err != nil || int(n) > math.MaxInt32/unit {
		return errors.New("must be a number of bytes, such as 4096, 512k or 4M")
	}
	*s = byteSize(int(n) * unit)
	return nil
}

const serveUsage = `usage: mcpwire [flags]              serve the demo on stdin and stdout
       mcpwire -http ADDR [flags]   serve it over HTTP: Streamable HTTP at /mcp, the transport of 2024-11-05 at /sse
       mcpwire call -h              the client
       mcpwire bridge -h            between a client and a server`

func (o *options) define(flags *flag.FlagSet) {
	const host = `([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?`
	flags.Func("http", "serve HTTP at `address`; without a host it is 127.0.0.1", matching(`.*:\w+`, setText(&o.http)))
	flags.BoolVar(&o.stateless, "stateless", false, "no sessions: every POST stands alone")
	flags.DurationVar(&o.sessions.IdleTimeout, "session-ttl", 30*time.Minute, "end a session that has been idle for so `long`")
	flags.IntVar(&o.sessions.Max, "max-sessions", 10_000, "sessions at once, a `number`")
	flags.Int64Var(&o.guard.MaxBody, "max-body", 4<<20, "`bytes` in one message")
	o.sessions.Keep = 4 << 20
	flags.Var((*byteSize)(&o.sessions.Keep), "event-buffer", "bytes of events that a session keeps for Last-Event-ID, a `size` such as 512k or 4M; 0: none, and no event ids")
	flags.DurationVar(&o.guard.KeepAlive, "keepalive", 15*time.Second, "comment on a stream after so `long` a silence; 0: none")
	flags.Func("allow-origin", "`origin` to let in, with CORS answers, such as https://app.example.com; repeatable (default loopback, without CORS)",
		matching(`null|[a-z][a-z0-9+.-]*://`+host, addText(&o.guard.Origins)))
	flags.Func("allow-host", "value of `Host` to let in on a loopback address; repeatable (default loopback names)", matching(host, addText(&o.guard.Hosts)))
	flags.Func("token", "require Authorization: Bearer `token` (default $MCPWIRE_TOKEN, or none)", matching(`\S+`, setText(&o.token)))
	flags.Func("auth-server", "`URL` of the authorization server that metadata names", matching(`https?://[^/].*`, setText(&o.authServer)))
	flags.Func("replica", "`name` that begins session ids, so that a proxy can route by it", matching(`[!-~]+`, setText(&o.replica)))
	flags.Func("state-key", "`key` of requestState, the same on all replicas (default $MCPWIRE_STATE_KEY, or random)", matching(`.+`, setText(&o.stateKey)))
	flags.Func("tls-cert", "serve HTTPS with the certificate in this `file`", matching(`.+`, setText(&o.tlsCert)))
	flags.Func("tls-key", "and the key in this `file`", matching(`.+`, setText(&o.tlsKey)))
	flags.Func("versions", "protocol versions to offer, as a comma-separated `list` (default all)", addVersions(&o.versions))
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
	flags.BoolFunc("version", "print the version", func(string) error {
		fmt.Println("mcpwire", version)
		os.Exit(0)
		return nil
	})
}

// check returns an error if the flags do not fit together.
func (o *options) check(flags *flag.FlagSet) error {
	alsoForStdio := []string{"max-body", "state-key", "versions", "trace", "version"}
	var onlyHTTP error
	flags.Visit(func(f *flag.Flag) {
		if o.http == "" && !slices.Contains(alsoForStdio, f.Name) {
			onlyHTTP = fmt.Errorf("-%s goes with -http", f.Name)
		}
	})
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return errors.New("-tls-cert and -tls-key go together")
	case o.guard.MaxBody <= 0 || o.sessions.Max <= 0 || o.sessions.IdleTimeout <= 0:
		return errors.New("-max-body, -max-sessions and -session-ttl must be more than 0")
	case o.guard.KeepAlive < 0:
		return errors.New("-keepalive must not be less than 0")
	}
	return onlyHTTP
}

// serve runs the demo server until the client hangs up or ctx ends.
func serve(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("mcpwire", flag.ContinueOnError)
	o.define(flags)
	parse(flags, args, serveUsage, func() error { return o.check(flags) })
	demo := newDemo()
	demo.Versions = o.versions
	demo.StateKey = []byte(cmp.Or(o.stateKey, os.Getenv("MCPWIRE_STATE_KEY")))
	level := slog.LevelInfo
	if o.trace { // the trace shows the requests, and without log lines it can be replayed
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	var err error
	if o.http != "" {
		err = o.serveHTTP(ctx, demo, log)
	} else {
		err = o.serveStdio(ctx, demo, log)
	}
	// A signal, and a client that has hung up, are how a server usually ends.
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

func (o *options) serveStdio(ctx context.Context, demo *demo, log *slog.Logger) error {
	conn := StdioConn(int(o.guard.MaxBody))
	if o.trace {
		conn = &tracedConn{Conn: conn, trace: newTrace(), here: "server", there: "client"}
	}
	return Serve(ctx, conn, demo, log)
}

const (
	ioTimeout    = 30 * time.Second // to read a request, and to write a response that is no stream
	shutdownTime = 4500 * time.Millisecond
)

// serveHTTP serves the demo until ctx ends. Then requests that are running may
// finish, but no longer than shutdownTime.
func (o *options) serveHTTP(ctx context.Context, demo *demo, log *slog.Logger) error {
	mcp, sse, mux := o.handlers(demo, log)
	server := &http.Server{Handler: mux, ReadTimeout: ioTimeout, WriteTimeout: ioTimeout, IdleTimeout: 4 * ioTimeout,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	if o.trace {
		server.Handler = &tracedHandler{Handler: mux, trace: newTrace()}
	}
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
	listener, err := o.listen()
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "mcpwire: listening on %s://%s/mcp\n", scheme, listener.Addr())
	served := make(chan error, 1)
	go func() { served <- run(loggedListener{listener, log}) }() // ends with server.Close at the latest
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
		return shutDown(server, mcp, sse)
	}
}

// listen opens the port. The program is for one machine unless a host is named.
func (o *options) listen() (net.Listener, error) {
	host, port, err := net.SplitHostPort(o.http)
	if err != nil {
		return nil, err
	}
	return net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
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

// loggedListener logs why a connection could not be accepted: for example, the
// process has no file descriptors left. net/http then tries again after a
// second at most.
type loggedListener struct {
	net.Listener
	log *slog.Logger
}

// Accept returns the next connection.
func (l loggedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	if err != nil && !errors.Is(err, net.ErrClosed) {
		l.log.Warn("no connection accepted", "error", err)
	}
	return conn, err
}

// handlers makes the handlers of both transports, and the mux that has all
// paths. It also fills in those options that flags leave open.
func (o *options) handlers(demo *demo, log *slog.Logger) (mcp *StreamableHandler, sse *SSEHandler, mux *http.ServeMux) {
	o.token = cmp.Or(o.token, strings.TrimSpace(os.Getenv("MCPWIRE_TOKEN")))
	if o.guard.KeepAlive == 0 {
		o.guard.KeepAlive = -1 // the flag's 0 means none, that of Guard means the default
	}
	o.guard.Log = log
	o.guard.OriginsName = "-allow-origin"
	o.guard.HostsName = "-allow-host"
	mcp = &StreamableHandler{Handler: demo, Versions: demo.Versions, HeaderParams: demo.HeaderParams, Guard: o.guard}
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
	mux = http.NewServeMux()
	mux.Handle("/mcp", mcp)
	mux.Handle("/mcp/{$}", mcp)
	if len(legacyOf(demo.Versions)) > 0 {
		mux.Handle("/sse", sse)
	}
	if o.authServer != "" {
		mux.Handle(metadataPath, o.metadata(""))
		mux.Handle(metadataPath+"/mcp", o.metadata("/mcp"))
	}
	return mcp, sse, mux
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

// bearer returns the Authenticate of a handler: it lets in a request with the
// token. The challenge to any other names the metadata of path. 2025-11-25
// basic/authorization#token-requirements: the token comes in a header, never in
// the URL.
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

// resourceMetadata says which servers issue tokens for a resource: RFC 9728.
// 2025-11-25 basic/authorization#authorization-server-location: it "MUST
// include the authorization_servers field".
type resourceMetadata struct {
	AuthorizationServers []string `json:"authorization_servers"`
	BearerMethods        []string `json:"bearer_methods_supported"`
	Resource             string   `json:"resource"`
}

// metadata serves the resourceMetadata of path. It needs no credentials,
// because a client asks for it before it has a token.
func (o *options) metadata(path string) http.Handler {
	return o.guard.Wrap(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		m := resourceMetadata{AuthorizationServers: []string{o.authServer}, BearerMethods: []string{"header"}, Resource: origin(r) + path}
		_ = json.NewEncoder(w).Encode(m) // fails only if the client has gone
	}))
}

// ======== The demo: one of each thing that a transport must carry ========

// demo is a small server with fixed answers. The notes are all that it
// remembers.
type demo struct {
	*Server

	mu    sync.Mutex // guards notes
	notes map[string]string
}

const (
	maxNotes      = 200
	maxNote       = 64 << 10  // characters
	maxEcho       = 4 << 20   // bytes of an echo, as JSON
	maxCount      = time.Hour // that one count may take
	maxCompletion = 100       // values of a completion: 2025-11-25 server/utilities/completion#completion-results
)

// pixel is a PNG of one pixel. It shows how icons are declared.
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

var pixelIcons = []Icon{{Src: pixel, MimeType: "image/png", Sizes: []string{"1x1"}}}

func newDemo() *demo {
	d := &demo{notes: map[string]string{}}
	d.Server = &Server{
		Info: Implementation{Name: "mcpwire", Title: "mcpwire demo", Version: version, Icons: pixelIcons},
		Capabilities: map[string]any{"completions": struct{}{}, "logging": struct{}{}, "prompts": struct{}{}, "tools": struct{}{},
			"resources": map[string]any{"listChanged": true, "subscribe": true}},
		Instructions: "A demo: made-up weather, an echo, a counter, a question and a few notes.",
		Methods:      map[string]HandlerFunc{"completion/complete": d.complete},
	}
	addTool(d, askTool, d.ask)
	addTool(d, countTool, d.count)
	addTool(d, echoTool, d.echo)
	addTool(d, weatherTool, d.getWeather)
	addTool(d, noteTool, d.setNote)
	d.AddResourceTemplate(noteTemplate, d.readNote)
	d.AddPrompt(summarizePrompt, d.summarize)
	d.storeNote("welcome", "This note is served by mcpwire.")
	return d
}

// ---- Tools ----

// addTool adds a tool of the demo. If it returns a text, its result also has a
// member of _meta, which shows how a key of one's own is written: from 2025-06-18 on,
// the keys of _meta have a grammar.
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

var (
	readsOnly  = &ToolAnnotations{ReadOnly: true, Idempotent: true}
	overwrites = &ToolAnnotations{Destructive: true, Idempotent: true}
)

// weatherTool marks an argument with x-mcp-header: a modern client repeats it in the
// header of its HTTP request.
var weatherTool = Tool{
	Name: "get-weather", Title: "Weather", Description: "The current temperature in a city. The data is made up.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"city":{"type":"string","minLength":1,"description":"name of the city"},
		"unit":{"type":"string","x-mcp-header":"Unit","enum":["celsius","fahrenheit"],"default":"celsius","description":"unit of the temperature"}},"required":["city"]}`),
	Annotations: readsOnly, Icons: pixelIcons,
}

type weatherArguments struct {
	City *string `json:"city,omitempty"` // required; see errNoCity
	Unit *string `json:"unit,omitempty"` // nil: celsius
}

// errNoCity is the error of a call without a city. Scripts outside of this
// project look for this message with this data. All other missing arguments have
// the message of AddTool.
var errNoCity = &Error{Code: CodeInvalidParams, Message: "Invalid params", Data: json.RawMessage(`"Missing required argument: 'city'"`)}

func (d *demo) getWeather(_ context.Context, _ *Exchange, args weatherArguments) (any, error) {
	if args.City == nil {
		return nil, errNoCity
	}
	unit := "celsius"
	if args.Unit != nil {
		unit = *args.Unit
	}
	temperatures := map[string]string{"celsius": "18°C", "fahrenheit": "64°F"}
	temperature, isUnit := temperatures[unit]
	if *args.City == "" || !isUnit {
		return nil, errors.New("'city' must not be empty, and 'unit' must be celsius or fahrenheit")
	}
	return fmt.Sprintf("Current temperature in %s is %s", *args.City, temperature), nil
}

var echoTool = Tool{
	Name: "echo", Title: "Echo", Description: "Returns the text it is given.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"text":{"type":"string","description":"what to return"},
		"repeat":{"type":"integer","minimum":1,"maximum":4194304,"default":1,"description":"how many times in a row"}},"required":["text"]}`),
	Annotations: readsOnly,
}

type echoArguments struct {
	Text   string `json:"text"`
	Repeat *int   `json:"repeat,omitempty"` // nil: 1
}

func (d *demo) echo(_ context.Context, x *Exchange, args echoArguments) (any, error) {
	repeat := 1
	if args.Repeat != nil {
		repeat = *args.Repeat
	}
	switch {
	case repeat < 1 || repeat > maxEcho:
		return nil, fmt.Errorf("'repeat' must be an integer from 1 to %d", maxEcho)
	case !fitsInJSON(args.Text, len(x.Request.Params), maxEcho/repeat):
		return nil, fmt.Errorf("an echo has at most %d bytes as JSON", maxEcho)
	}
	return strings.Repeat(args.Text, repeat), nil
}

// fitsInJSON reports whether text has at most limit bytes as JSON. The text came
// in JSON of as many bytes as received says, or less.
//
// A control character of one byte has six bytes as JSON: \u0001. So the length of
// the text is not enough to know. But the JSON that we write is at most twice as
// long as the JSON that we have received. So most texts need not be encoded.
func fitsInJSON(text string, received, limit int) bool {
	if len(text) > limit {
		return false
	}
	if received <= limit/2 {
		return true
	}
	quoted, _ := TextContent(text).MarshalJSON()
	empty, _ := TextContent("").MarshalJSON()
	return len(quoted)-len(empty) <= limit
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

func (d *demo) count(ctx context.Context, x *Exchange, args countArguments) (any, error) {
	delay := time.Duration(args.DelayMs) * time.Millisecond
	switch {
	case args.N < 0 || args.N > 1_000_000 || args.DelayMs < 0 || args.DelayMs > 600_000:
		return nil, errors.New("'n' must be an integer from 0 to 1000000, and 'delayMs' one from 0 to 600000")
	case time.Duration(args.N)*delay > maxCount:
		return nil, fmt.Errorf("'n' times 'delayMs' must not be more than %v", maxCount)
	}
	if args.Poll {
		x.Disconnect(time.Second)
	}
	total := strconv.Itoa(args.N)
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
		if err := x.Log(ctx, "debug", "step "+strconv.Itoa(i)+" of "+total); err != nil {
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

// nameForm is what the user fills in.
type nameForm struct {
	Name string `json:"name,omitempty"`
}

// ask runs once without an answer, and again when the user has answered.
func (d *demo) ask(_ context.Context, x *Exchange, _ struct{}) (any, error) {
	var answer ElicitResult
	var form nameForm
	if !x.Input("name", &answer) { // it was not asked yet
		return InputRequired{Requests: map[string]InputRequest{"name": nameQuestion}}, nil
	}
	err := Bind(answer.Content, &form)
	switch {
	case answer.Action == "accept" && err == nil && form.Name != "":
		return "Hello, " + form.Name, nil
	case answer.Action == "decline" || answer.Action == "cancel":
		return ToolError("No name: the user chose %s", answer.Action), nil
	}
	return InputRequired{Requests: map[string]InputRequest{"name": nameQuestion}}, nil // once more
}

// ---- Notes: resources, a tool that writes one, and a prompt about one ----

const noteScheme = "note:///"

var noteTool = Tool{
	Name: "set-note", Title: "Write a note", Description: "Keeps a note, to be read as the resource note:///NAME.",
	InputSchema: json.RawMessage(`{"type":"object","properties":{
		"name":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"name of the note"},
		"text":{"type":"string","maxLength":65536,"description":"the note"}},"required":["name","text"]}`),
	Annotations: overwrites,
}

var noteName = lazyRegexp(`^[A-Za-z0-9._-]{1,64}$`)

type noteArguments struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (d *demo) setNote(_ context.Context, _ *Exchange, args noteArguments) (any, error) {
	if !noteName().MatchString(args.Name) || utf8.RuneCountInString(args.Text) > maxNote {
		return nil, fmt.Errorf("'name' must match %s, and 'text' be no longer than %d characters", noteName(), maxNote)
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

// completeResult is the result of completion/complete.
type completeResult struct {
	Completion completion `json:"completion"`
}

type completion struct {
	HasMore bool     `json:"hasMore"`
	Total   int      `json:"total"` // of all values, those left out included
	Values  []string `json:"values"`
}

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
	result := completion{Total: len(values), Values: values}
	if len(values) > maxCompletion {
		result.HasMore = true
		result.Values = values[:maxCompletion]
	}
	return completeResult{result}, nil
}

// noteNames returns the names of the notes, sorted.
func (d *demo) noteNames() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.notes))
}

// ======== The command call ========

// caller is the client of the command line. It has one connection, and makes one
// call at a time.
type caller struct {
	Client
	stderr     io.Writer
	input      *bufio.Scanner  // lines of standard input
	reply      json.RawMessage // the content that answers every elicitation; empty: see Handle
	atTerminal bool            // the user can be asked
	timeout    time.Duration   // see limited
	lastToken  int64           // the last progress token

	transport string      // the name of the one that was dialled last
	inSession atomic.Bool // a response over HTTP has named a session

	idle atomic.Pointer[time.Timer] // ends the call that is running
	form sync.Mutex                 // held while the user is asked
}

const callUsage = `usage: mcpwire call [flags] URL
       mcpwire call [flags] COMMAND [ARG...]
Without -method: how the server was reached, and what it offers.`

const (
	maxMessage = 64 << 20            // bytes of a message
	noTimeout  = 100_000 * time.Hour // eleven years; ten times as much still is a time.Duration
	childGrace = 2 * time.Second     // for each step of shutting down a command
)

// callOptions are the flags of call.
type callOptions struct {
	targetOptions
	method      string // "": print a summary
	params      string
	versions    []string
	answer      string
	timeout     time.Duration
	interactive bool
}

func (o *callOptions) define(flags *flag.FlagSet) {
	flags.StringVar(&o.method, "method", "", "`method` to call, such as tools/list")
	flags.StringVar(&o.params, "params", "", "its params, a `JSON` object")
	flags.Func("protocol", "speak this `revision` (default: find out)", addVersions(&o.versions))
	flags.StringVar(&o.answer, "answer", "", "accept elicitations with this content, a `JSON` object (default: ask at a terminal, else decline)")
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "for one call, extended by its progress up to ten times; 0: none")
	flags.BoolVar(&o.interactive, "i", false, "read METHOD [PARAMS] lines from stdin, one answer each")
	o.targetOptions.define(flags)
}

// targetOptions are the flags of all commands that talk to a server.
type targetOptions struct {
	trace  bool
	header http.Header
}

func (o *targetOptions) define(flags *flag.FlagSet) {
	o.header = http.Header{}
	addField := func(line string) {
		name, value, _ := strings.Cut(line, ":")
		o.header.Add(name, strings.TrimSpace(value))
	}
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
	flags.Func("header", "`'K: V'` to send with every HTTP request, repeatable",
		matching("[!#$%&'*+.^_`|~0-9a-z-]+:[^\\x00-\\x08\\n-\\x1f\\x7f]*", addField))
}

// check returns an error if the target is wrong.
func (o *targetOptions) check(target []string) error {
	if len(target) == 0 {
		return errors.New("the server is missing: a URL or a command")
	}
	first := target[0]
	parsed, err := url.Parse(first)
	meant := meantURL(first)
	switch {
	case isURL(first) && len(target) > 1:
		return errors.New("nothing may follow the URL: flags go before it")
	case isURL(first) && (err != nil || parsed.Host == ""):
		return fmt.Errorf("%.200q is no URL with a host", first)
	case meant != "":
		return fmt.Errorf("there is no command %.200q; did you mean %.200s?", first, meant)
	case len(o.header) > 0 && !isURL(first):
		return errors.New("-header goes with a URL")
	}
	return nil
}

// check returns an error if the target is wrong, or if the flags do not fit
// together.
func (o *callOptions) check(target []string) error {
	if err := o.targetOptions.check(target); err != nil {
		return err
	}
	switch {
	case o.params != "" && (o.method == "" || !isObject(o.params)):
		return errors.New("-params takes a JSON object, and goes with -method")
	case o.answer != "" && !isObject(o.answer):
		return errors.New("-answer takes a JSON object")
	case o.timeout < 0 || o.timeout > noTimeout:
		return errors.New("-timeout is out of range")
	case o.interactive && o.method != "":
		return errors.New("-i and -method exclude each other")
	}
	return nil
}

// isURL reports whether a target is a URL, and no command.
func isURL(text string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(text), "://")
	return found && (scheme == "http" || scheme == "https")
}

// meantURL returns the URL that a user has probably meant with a target such as
// localhost:8080. It returns "" if the target is a URL, or a command that exists,
// or does not look like a host.
func meantURL(text string) string {
	meant, err := url.Parse("http://" + strings.TrimPrefix(text, "//"))
	if isURL(text) || err != nil || meant.Port() == "" && meant.Hostname() != "localhost" {
		return ""
	}
	if _, err := exec.LookPath(text); err == nil {
		return ""
	}
	if meant.Hostname() == "" { // :8080
		meant.Host = "localhost" + meant.Host
	}
	return meant.String()
}

// isObject reports whether a text is a JSON object.
func isObject(text string) bool {
	return utf8.ValidString(text) && json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
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

// call connects to a server. Then it makes one call, or one for each line of
// standard input, or prints a summary.
func call(ctx context.Context, args []string) error {
	var o callOptions
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	o.define(flags)
	parse(flags, args, callUsage, func() error { return o.check(flags.Args()) })
	target := flags.Args()
	c := newCaller(o)
	// An attempt to connect that has failed must be closed as well: it may have
	// started a command that ignores the end of its input.
	defer c.Close()
	dials := c.dialers(target, o)
	err := c.limited(ctx, func(ctx context.Context) error { return c.Connect(ctx, dials...) })
	if err != nil {
		return c.advise(err, target[0])
	}
	// After a signal the program cannot just return: it may be reading standard
	// input, and nothing interrupts that.
	context.AfterFunc(ctx, func() {
		c.Close()
		stderr.flush()
		os.Exit(exitError)
	})
	switch {
	case o.interactive:
		return c.callLines(ctx)
	case o.method != "":
		return c.callAndPrint(ctx, o.method, o.params)
	}
	return c.summary(ctx, target)
}

func newCaller(o callOptions) *caller {
	c := &caller{
		stderr:     stderr,
		input:      bufio.NewScanner(os.Stdin),
		reply:      json.RawMessage(o.answer),
		atTerminal: !o.interactive && isTerminal(os.Stdin),
		timeout:    cmp.Or(o.timeout, noTimeout),
	}
	c.input.Buffer(nil, maxMessage)
	c.Info = Implementation{Name: "mcpwire", Title: "mcpwire call", Version: version}
	c.Capabilities = map[string]any{"elicitation": struct{}{}}
	c.Handler = c
	c.Versions = o.versions
	c.Log = slog.New(slog.NewTextHandler(stderr, nil))
	return c
}

// ---- Connecting ----

// dialers returns the ways to reach a target. For a URL there are two, and
// Client.Connect finds out which of them it is.
func (c *caller) dialers(target []string, o callOptions) []Dialer {
	if !isURL(target[0]) {
		return []Dialer{c.noteTransport("stdio", o.dialCommand(target, childGrace, maxMessage))}
	}
	client := o.httpClient()
	client.Transport = &sessionNoter{client.Transport, &c.inSession}
	return []Dialer{
		c.noteTransport("Streamable HTTP", HTTPDialer{Client: client, URL: target[0], MaxMessage: maxMessage}),
		c.noteTransport("HTTP+SSE", SSEDialer{Client: client, URL: target[0], MaxMessage: maxMessage}),
	}
}

// dialCommand returns the Dialer of a command. Its stderr goes to ours.
func (o *targetOptions) dialCommand(target []string, grace time.Duration, maxMessage int) Dialer {
	var dialer Dialer = CommandDialer{Grace: grace, MaxLine: maxMessage, Command: func() *exec.Cmd {
		cmd := exec.Command(target[0], target[1:]...)
		cmd.Stderr = stderr
		return cmd
	}}
	if o.trace {
		dialer = tracedDialer(dialer)
	}
	return dialer
}

// httpClient returns the client for a URL.
func (o *targetOptions) httpClient() *http.Client {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = transport.MaxIdleConns // there is only one host
	client := &http.Client{Transport: transport}
	if o.trace {
		client.Transport = &tracedTransport{RoundTripper: client.Transport, trace: newTrace()}
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

// advise adds to the error of Connect what the user may try.
func (c *caller) advise(err error, target string) error {
	status := 0
	fault, isHTTP := errors.AsType[*HTTPError](err)
	if isHTTP {
		status = fault.Status
	}
	// A web site has such an answer for a path that is no MCP endpoint.
	isElsewhere := slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed}, status)
	isRefused := status == http.StatusUnauthorized || status == http.StatusForbidden
	if isElsewhere {
		at, _ := url.Parse(target) // check has parsed it before
		if strings.Trim(at.Path, "/") == "" {
			return fmt.Errorf("%w; the URL has no path: did you mean %s://%s/mcp?", err, at.Scheme, at.Host)
		}
		return err
	}
	if !isRefused && errors.As(err, new(afterProbe)) {
		newestLegacy := legacyOf(c.Versions)[0] // the server was sent initialize, so there is one
		return fmt.Errorf("%w; server/discover may be why: with -protocol %s it is not sent", err, newestLegacy)
	}
	return err
}

// ---- Calls ----

// errOutput marks the error of a write to standard output. It ends the program,
// because no result can be printed any more. SIGPIPE would do the same, but main
// catches it.
var errOutput = errors.New("standard output")

// callLines makes a call for each line of standard input: METHOD [PARAMS]. If
// one fails, the next is made all the same.
func (c *caller) callLines(ctx context.Context) (failed error) {
	for c.input.Scan() {
		line := strings.ReplaceAll(c.input.Text(), "\t", " ")
		method, params, _ := strings.Cut(strings.TrimSpace(line), " ")
		if method == "" {
			continue
		}
		err := c.callAndPrint(ctx, method, params)
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

// callAndPrint calls a method and prints its result on one line, otherwise as it
// came.
func (c *caller) callAndPrint(ctx context.Context, method, params string) error {
	var result json.RawMessage
	if err := c.call(ctx, method, params, &result); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	// At a terminal, the notifications of a call stand before its result.
	stderr.flush()
	line := append(appendLine(nil, result), '\n')
	if _, err := os.Stdout.Write(line); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// givenParams are the params of a call, of which call reads only _meta.
type givenParams struct {
	Meta json.RawMessage `json:"_meta,omitempty"`
}

// givenMeta is the _meta of a call, of which call reads only the token.
type givenMeta struct {
	ProgressToken json.RawMessage `json:"progressToken,omitempty"`
}

// call calls a method. params is an object, or "". The other members of params
// are passed on as they are. call adds a progress token unless there is one,
// because progress extends the time-out.
func (c *caller) call(ctx context.Context, method, params string, result any) error {
	if params != "" && !isObject(params) {
		return errors.New("params must be a JSON object")
	}
	given := json.RawMessage(strings.TrimSpace(params))
	var p givenParams
	if err := Bind(given, &p); err != nil {
		return fmt.Errorf("params: %w", err) // _meta appears twice
	}
	var m givenMeta
	_ = Bind(p.Meta, &m) // if it is no object, it has no token
	var full, meta object
	full.addAll(given, "_meta")
	meta.addAll(p.Meta)
	if m.ProgressToken == nil {
		c.lastToken++
		meta.add("progressToken", strconv.AppendInt(nil, c.lastToken, 10))
	}
	full.add("_meta", meta.encode())
	return c.limited(ctx, func(ctx context.Context) error { return c.Call(ctx, method, full.encode(), result) })
}

// limited runs f with the time-out of the command line. Each progress
// notification starts the time-out again, but all together take at most ten
// times as long.
func (c *caller) limited(ctx context.Context, f func(context.Context) error) error {
	tooLong := fmt.Errorf("no answer within %v", c.timeout)
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

// ---- The summary ----

// rows prints lines of a label and a value.
type rows struct {
	err error // the first error of standard output
}

func (r *rows) print(label, value string) {
	_, err := fmt.Printf("%-13s %s\n", label, Printable(value))
	if err != nil && r.err == nil {
		r.err = fmt.Errorf("%w: %w", errOutput, err)
	}
}

// summary prints how the server was reached and what it offers. If a list cannot
// be read, the next one is read all the same.
func (c *caller) summary(ctx context.Context, target []string) error {
	var out rows
	server := c.Server()
	capabilities, failed := capabilityNames(server.Capabilities)
	out.print("target", strings.Join(target, " "))
	out.print("transport", c.transport)
	out.print("revision", server.Version)
	out.print("session", c.session())
	name := "it did not say"
	if server.Info != nil {
		name = strings.TrimSpace(server.Info.Name + " " + server.Info.Version + " " + server.Info.Title)
	}
	out.print("server", name)
	out.print("capabilities", strings.Join(capabilities, ", "))
	for _, kind := range listKinds {
		if out.err != nil {
			break
		}
		if !slices.Contains(capabilities, kind.capability) {
			continue
		}
		names, err := c.listNames(ctx, kind)
		fault, isAnswer := errors.AsType[*Error](err)
		if kind.optional && isAnswer && fault.Code == CodeMethodNotFound {
			err = nil
		}
		if err != nil {
			if failed != nil { // only the last error is returned
				printError(failed)
			}
			failed = err
			names = append(names, "?")
		}
		out.print(kind.label, cmp.Or(strings.Join(names, ", "), "none"))
	}
	return cmp.Or(out.err, failed)
}

// session returns "yes" if there is a session, and "none" otherwise. Over
// HTTP+SSE the stream is the session. The modern era has no sessions.
func (c *caller) session() string {
	isLegacy := slices.Contains(legacyOf(nil), c.Server().Version)
	if c.transport == "HTTP+SSE" || isLegacy && c.inSession.Load() {
		return "yes"
	}
	return "none"
}

// capabilityNames returns the names of the capabilities of a server, sorted.
// With an error it returns those read before.
func capabilityNames(capabilities json.RawMessage) (sorted []string, err error) {
	if !bytes.HasPrefix(capabilities, []byte("{")) {
		return nil, nil
	}
	var found nameList
	for name := range Each(capabilities) {
		err = found.add(string(name))
		if err != nil {
			err = fmt.Errorf("capabilities: %w", err)
			break
		}
	}
	slices.Sort(found.names)
	return found.names, err
}

// nameList is a list of names with a bound: a result of 64 MiB may hold millions
// of empty names.
type nameList struct {
	names []string
	size  int // bytes, as they are printed
}

const maxListed = 4 << 20 // bytes of names that are printed together

func (l *nameList) add(name string) error {
	l.size += len(name) + len(", ")
	if l.size > maxListed {
		return fmt.Errorf("more than %d bytes of names", maxListed)
	}
	l.names = append(l.names, name)
	return nil
}

// listKind is a kind of list that a summary shows.
type listKind struct {
	label      string
	capability string // without it there is no such list
	optional   bool   // the capability does not promise the method
	method     string
	member     string // of the result
	items      func(*listedPage) json.RawMessage
	name       func(*listedItem) string
}

var listKinds = []listKind{
	{label: "tools", capability: "tools", method: "tools/list", member: "tools",
		items: func(p *listedPage) json.RawMessage { return p.Tools },
		name:  func(i *listedItem) string { return i.Name }},
	{label: "resources", capability: "resources", method: "resources/list", member: "resources",
		items: func(p *listedPage) json.RawMessage { return p.Resources },
		name:  func(i *listedItem) string { return i.URI }},
	// A server may have resources and no templates.
	{label: "templates", capability: "resources", optional: true, method: "resources/templates/list", member: "resourceTemplates",
		items: func(p *listedPage) json.RawMessage { return p.ResourceTemplates },
		name:  func(i *listedItem) string { return i.URITemplate }},
	{label: "prompts", capability: "prompts", method: "prompts/list", member: "prompts",
		items: func(p *listedPage) json.RawMessage { return p.Prompts },
		name:  func(i *listedItem) string { return i.Name }},
}

// listedPage is a page of any of the lists. The items stay as they came: decoded,
// they may need many times as much memory.
type listedPage struct {
	NextCursor        json.RawMessage `json:"nextCursor,omitempty"`
	Tools             json.RawMessage `json:"tools,omitempty"`
	Resources         json.RawMessage `json:"resources,omitempty"`
	ResourceTemplates json.RawMessage `json:"resourceTemplates,omitempty"`
	Prompts           json.RawMessage `json:"prompts,omitempty"`
}

// listedItem is an item of any of the lists. It has one of these names, or two.
type listedItem struct {
	Name        string `json:"name,omitempty"`
	URI         string `json:"uri,omitempty"`
	URITemplate string `json:"uriTemplate,omitempty"`
}

const maxListPages = 1000

// listNames returns the names of all items of a list, page by page. With an error
// it returns those read before. 2026-07-28 server/utilities/pagination: an empty
// cursor does not mean the end of the list.
func (c *caller) listNames(ctx context.Context, kind listKind) ([]string, error) {
	var found nameList
	params := "{}"
	for range maxListPages {
		var result json.RawMessage
		if err := c.call(ctx, kind.method, params, &result); err != nil {
			return found.names, fmt.Errorf("%s: %w", kind.method, err)
		}
		var page listedPage
		_ = Bind(result, &page) // the fields are JSON of any type
		items := kind.items(&page)
		if !bytes.HasPrefix(items, []byte("[")) {
			return found.names, fmt.Errorf("%s: no %s in the result", kind.method, kind.member)
		}
		for _, text := range Each(items) {
			var item listedItem
			_ = Bind(text, &item) // an item without a name has the name ""
			if err := found.add(kind.name(&item)); err != nil {
				return found.names, fmt.Errorf("%s: %w", kind.method, err)
			}
		}
		if page.NextCursor == nil || string(page.NextCursor) == "null" {
			return found.names, nil
		}
		params = `{"cursor":` + string(page.NextCursor) + `}`
	}
	return found.names, fmt.Errorf("%s: no end of pages", kind.method)
}

// ---- What the server sends ----

// formParams are the params of elicitation/create. 2025-11-25
// client/elicitation#elicitation-requests.
type formParams struct {
	Mode            string `json:"mode,omitempty"` // "": form
	Message         string `json:"message,omitempty"`
	RequestedSchema struct {
		Properties json.RawMessage `json:"properties,omitempty"` // an object: one property for each input
	} `json:"requestedSchema,omitempty"`
}

// formProperty is what call reads of the schema of one input.
type formProperty struct {
	Type    string          `json:"type,omitempty"`
	Default json.RawMessage `json:"default,omitempty"`
}

// formResult is the answer to elicitation/create. 2025-11-25
// client/elicitation#response-actions.
type formResult struct {
	Action  string          `json:"action"` // accept, decline or cancel
	Content json.RawMessage `json:"content,omitempty"`
}

// Handle prints notifications, and answers elicitations. If -answer is set, that
// is the answer. Otherwise the user is asked at the terminal. Without a terminal
// Handle declines.
func (c *caller) Handle(ctx context.Context, x *Exchange) (any, error) {
	method := x.Request.Method
	switch {
	case x.Request.Kind() == Notification:
		if method == "notifications/progress" {
			c.extendTimeout()
		}
		fmt.Fprintln(c.stderr, strings.TrimSpace(Printable(method+" "+string(x.Request.Params))))
		return nil, nil
	case method != "elicitation/create":
		return nil, MethodNotFound(method)
	}
	var p formParams
	_ = x.Bind(&p) // the user is asked even if a part of the form is damaged
	switch {
	case p.Mode != "" && p.Mode != "form": // 2025-11-25 client/elicitation: a mode that was not declared is -32602
		return nil, InvalidParams("only forms can be filled in here, not mode '%s'", p.Mode)
	case len(c.reply) > 0:
		return formResult{Action: "accept", Content: c.reply}, nil
	case c.atTerminal:
		return c.askUser(ctx, p)
	}
	return formResult{Action: "decline"}, nil
}

// extendTimeout starts the time-out of the call again, unless it has passed.
func (c *caller) extendTimeout() {
	idle := c.idle.Load()
	if idle.Stop() {
		idle.Reset(c.timeout)
	}
}

// askUser asks the user, until ctx ends. The goroutine may wait longer, because
// nothing interrupts a read from standard input. It ends with the process.
func (c *caller) askUser(ctx context.Context, p formParams) (any, error) {
	filled := make(chan formResult, 1)
	go func() { filled <- c.fillIn(p) }()
	select {
	case result := <-filled:
		return result, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// fillIn asks for each property of a form, in the order in which they were sent.
// An empty line means the default. The end of the input cancels the form.
func (c *caller) fillIn(p formParams) formResult {
	c.form.Lock() // one form at a time
	defer c.form.Unlock()
	fmt.Fprintln(c.stderr, Printable(p.Message))
	var content object
	properties := p.RequestedSchema.Properties
	if !bytes.HasPrefix(properties, []byte("{")) {
		properties = nil
	}
	for name, schema := range Each(properties) {
		var property formProperty
		_ = Bind(schema, &property) // a type that is no string counts as none
		fmt.Fprintf(c.stderr, "%s (%s): ", Printable(string(name)), Printable(property.Type))
		if !c.input.Scan() {
			return formResult{Action: "cancel"}
		}
		value := property.parse(strings.TrimSpace(c.input.Text()))
		if value != nil {
			content.add(string(name), value)
		}
	}
	return formResult{Action: "accept", Content: json.RawMessage(content.encode())}
}

// parse returns the value that the user has typed, as JSON; nil: none. If the
// property is no string, the user may type JSON. Anything else is a string.
func (p *formProperty) parse(typed string) json.RawMessage {
	switch {
	case typed == "":
		return p.Default
	case p.Type != "string" && json.Valid([]byte(typed)):
		return json.RawMessage(typed)
	}
	text, _ := marshal(typed)
	return text
}

// ======== The command bridge ========
//
// A client starts the bridge as its server on stdio. The bridge passes every
// message on to the real server, and every message of that server back:
//
//	         stdio                    stdio or HTTP
//	client <-------> mcpwire bridge <---------------> server
//
// For a server that is a command, two Conns and two loops are enough. If the
// server has a URL, more is needed:
//
//	what HTTP needs                   what does it
//	the transport of the URL          webConn: Streamable HTTP; if initialize is refused there, HTTP+SSE
//	session, revision, header         the Conn of HTTPDialer: it learns them from the messages that it carries
//	the standalone stream             the same Conn: notifications/initialized opens it
//	a stream that is cut              the same Conn: it resumes the stream where the revision allows that
//	cancelling a modern request       the same Conn: notifications/cancelled closes the response
//	a POST that lasts as long as      bridged.post: a goroutine waits for the answer, and the next message is sent
//	the call                          meanwhile
//	messages in order                 bridged.post: it returns when the request is on the wire; a notification, when
//	                                  the server has taken it; nothing is sent before initialize is answered
//	a POST that fails                 bridged.fail: the call is answered with the error
//	a session that has ended (404)    bridged.checkSession: all calls are answered with the error, and the bridge ends.
//	                                  A client on stdio begins a new session by starting its server again
//	batches                           bridged.toServer: one POST for each message, so each answer comes alone
//	marked arguments (x-mcp-header)   the Conn of HTTPDialer repeats them in the header, if the client has listed the
//	                                  tools before; it leaves tools with invalid marks out of the list
//
// The bridge speaks no revision itself. It passes on the members of a message
// that JSON-RPC knows. Of them params and result stay byte for byte, except for
// line ends between their values.

const bridgeUsage = `usage: mcpwire bridge [flags] URL
       mcpwire bridge [flags] COMMAND [ARG...]
A server on stdin and stdout. It passes every message on to another server.`

const (
	maxWaiting     = 1024             // requests of the client without an answer
	maxPosts       = 2 * maxWaiting   // POSTs at once: the requests, and as many answers to questions of the server
	initializeTime = 30 * time.Second // for the answer to initialize; then the next message is sent all the same
	drainTime      = 5 * time.Second  // for the server to answer, when the client has hung up
	endTime        = 2 * time.Second  // for the client to read the last answers
	maxShown       = 1000             // characters of a text of the peer that are logged

	// bridgeGrace is for each step of shutting down a command. Clients may kill
	// the bridge four seconds after they have hung up. A command that ignores the
	// end of input must have been killed by then.
	bridgeGrace = 1500 * time.Millisecond
)

// Reasons why a bridge ends.
var (
	errClientGone = errors.New("the client has hung up")
	errServerGone = errors.New("the server has hung up")
	errSignalled  = errors.New("ended by a signal")
)

// bridgeOptions are the flags of bridge.
type bridgeOptions struct {
	targetOptions
	maxBody int
}

func (o *bridgeOptions) define(flags *flag.FlagSet) {
	o.targetOptions.define(flags)
	flags.IntVar(&o.maxBody, "max-body", maxMessage, "`bytes` in one message, in either direction")
}

// check returns an error if a flag or the target is wrong.
func (o *bridgeOptions) check(target []string) error {
	if o.maxBody <= 0 {
		return errors.New("-max-body must be more than 0")
	}
	return o.targetOptions.check(target)
}

// bridge passes messages between standard input and output and a server, until
// one side hangs up or ctx ends.
func bridge(ctx context.Context, args []string) error {
	var o bridgeOptions
	flags := flag.NewFlagSet("bridge", flag.ContinueOnError)
	o.define(flags)
	parse(flags, args, bridgeUsage, func() error { return o.check(flags.Args()) })
	target := flags.Args()
	dialer := o.dialCommand(target, bridgeGrace, o.maxBody)
	if isURL(target[0]) {
		dialer = o.dialWeb(target[0])
	}
	server, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	b := &bridged{
		client:  StdioConn(o.maxBody),
		server:  server,
		isURL:   isURL(target[0]),
		log:     slog.New(slog.NewTextHandler(stderr, nil)),
		posts:   make(chan struct{}, maxPosts),
		changed: make(chan struct{}, 1),
		waiting: map[string]waitingCall{},
	}
	b.ctx, b.end = context.WithCancelCause(context.Background())
	context.AfterFunc(ctx, func() { b.end(errSignalled) })
	return b.run()
}

// bridged is a client and a server with a bridge between them.
type bridged struct {
	client  Conn
	server  Conn
	isURL   bool // the server has a URL
	log     *slog.Logger
	ctx     context.Context // its cause is why the bridge ends
	end     context.CancelCauseFunc
	loops   sync.WaitGroup // both loops, and a goroutine for each POST
	posts   chan struct{}  // has room for maxPosts; each POST holds a place
	changed chan struct{}  // has room for one; gets a value when a request has left waiting

	mu      sync.Mutex             // guards the field below
	waiting map[string]waitingCall // requests of the client without an answer, by idKey
}

// waitingCall is what the bridge keeps of a request of the client.
type waitingCall struct {
	id     ID
	method string
}

// run passes messages until the bridge ends. Then it shuts the server down, and
// answers the requests that are still waiting.
func (b *bridged) run() error {
	b.loops.Go(b.readServer)
	b.loops.Go(b.readClient)
	<-b.ctx.Done()
	why := context.Cause(b.ctx)
	err := b.server.Close() // meanwhile readServer passes on what the server still says
	ended := make(chan struct{})
	go func() { // ends when the client has read everything, or with the program
		_ = b.client.Close()
		b.loops.Wait()
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

// readClient is the loop that passes on what the client sends.
func (b *bridged) readClient() {
	for {
		in, err := b.client.Read()
		report, isReport := errors.AsType[*ReadError](err)
		switch {
		case isReport: // a line was too long
			b.answer(NewResponse(ID{}, nil, &Error{Code: CodeInvalidRequest, Message: "Invalid request: " + report.Error()}))
		case err == io.EOF:
			b.drain()
			b.end(errClientGone)
			return
		case err != nil:
			b.end(fmt.Errorf("standard input: %w", err))
			return
		default:
			b.toServer(in)
		}
	}
}

// drain waits until the server has answered all requests. A subscription has no
// answer before its end, so drain does not wait for it.
func (b *bridged) drain() {
	b.await(drainTime, func(method string) bool { return method != "subscriptions/listen" })
}

// awaitInitialize waits until initialize is answered, if it was sent. The answer
// names the session and the revision, and all later messages must repeat them.
func (b *bridged) awaitInitialize() {
	b.await(initializeTime, func(method string) bool { return method == "initialize" })
}

// await waits until no request for certain methods is waiting, for at most limit.
// Only the goroutine of readClient calls it.
func (b *bridged) await(limit time.Duration, isMeant func(method string) bool) {
	timeout := time.After(limit)
	for b.isWaiting(isMeant) {
		select {
		case <-b.changed:
		case <-timeout:
			return
		case <-b.ctx.Done():
			return
		}
	}
}

// isWaiting reports whether a request for certain methods is waiting.
func (b *bridged) isWaiting(isMeant func(method string) bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, call := range b.waiting {
		if isMeant(call.method) {
			return true
		}
	}
	return false
}

// toServer passes on a payload of the client.
func (b *bridged) toServer(in Payload) {
	out := Payload{Batch: in.Batch}
	for _, m := range in.Messages {
		if b.admit(m) {
			out.Messages = append(out.Messages, valid(m))
		}
	}
	switch {
	case len(out.Messages) == 0:
	case b.isURL:
		for _, m := range out.Messages {
			if m.Method != "initialize" {
				b.awaitInitialize()
			}
			b.post(m)
		}
	default:
		b.writeToServer(b.ctx, out)
	}
}

// admit notes a message of the client, and reports whether it is passed on. If it
// is not, admit answers it.
func (b *bridged) admit(m *Message) bool {
	switch {
	case m.Kind() == Invalid:
		b.answer(m) // its encoding is the answer to it
		return false
	case m.Kind() == Request && !b.add(m):
		b.answer(NewResponse(m.ID, nil, fmt.Errorf("mcpwire bridge: more than %d requests wait for an answer", maxWaiting)))
		return false
	case m.Method == "notifications/cancelled":
		var params CancelledParams
		_ = Bind(m.Params, &params) // params that are wrong are the server's to refuse
		b.take(string(params.RequestID))
	}
	return true
}

// post sends a message to a URL.
//
// For a notification, it waits until the server has taken it: the server must know
// of notifications/initialized before the next request comes. A request or a
// response is sent by a goroutine. The POST of a request may last until the call is
// answered, and the POST of a response is sent again if the network fails. post
// only waits until the message is on the wire, so that a notification does not
// overtake the request that it is about.
func (b *bridged) post(m *Message) {
	out := Payload{Messages: []*Message{m}}
	if m.Kind() == Notification {
		b.writeToServer(b.ctx, out)
		return
	}
	wire := make(chan struct{})
	onWire := sync.OnceFunc(func() { close(wire) })
	ctx := httptrace.WithClientTrace(b.ctx, &httptrace.ClientTrace{WroteRequest: func(httptrace.WroteRequestInfo) { onWire() }})
	b.posts <- struct{}{}
	b.loops.Go(func() {
		b.writeToServer(ctx, out)
		onWire() // if it could not be sent
		<-b.posts
	})
	<-wire
}

// writeToServer writes a payload to the server. If that fails, the requests in the payload
// are answered with the error. When the bridge ends, run answers them.
func (b *bridged) writeToServer(ctx context.Context, out Payload) {
	err := b.server.Write(ctx, out)
	if err == nil || b.ctx.Err() != nil {
		return
	}
	for _, m := range out.Messages {
		if m.Kind() == Request {
			b.fail(m.ID, err)
		} else {
			b.log.Warn("the server has not taken a message", "error", shorten(err.Error()))
		}
	}
	b.checkSession(err)
}

// ---- From the server to the client ----

// readServer is the loop that passes on what the server sends.
func (b *bridged) readServer() {
	for {
		in, err := b.server.Read()
		report, isReport := errors.AsType[*ReadError](err)
		switch {
		case isReport:
			b.takeReport(report)
		case err == io.EOF:
			b.end(errServerGone)
			return
		case err != nil:
			b.end(fmt.Errorf("%w: %w", errServerGone, err))
			return
		default:
			b.toClient(in)
		}
	}
}

// takeReport takes in an error after which the conversation goes on.
func (b *bridged) takeReport(report *ReadError) {
	switch {
	case report.ID != ID{}:
		b.fail(report.ID, report.Err)
	case report.Skipped: // any of the requests may be the one whose answer is lost
		b.failAll(report.Err)
	default:
		b.log.Info("transport", "report", shorten(report.Error()))
	}
	b.checkSession(report.Err)
}

// checkSession ends the bridge if an error means that the session has ended. The
// server takes nothing more then.
func (b *bridged) checkSession(err error) {
	if errors.Is(err, ErrSessionEnded) {
		b.end(err)
	}
}

// toClient passes on a payload of the server. It drops what is no message, and the
// answer to a request that is not waiting: the client has cancelled the request,
// or the bridge has answered it.
func (b *bridged) toClient(in Payload) {
	out := Payload{Batch: in.Batch}
	for _, m := range in.Messages {
		switch {
		case m.Kind() == Invalid:
			b.log.Warn("dropped what is no message", "reason", shorten(m.Error.Error()))
		case m.Kind() == Response && m.ID != ID{} && !b.take(m.ID.String()):
			b.log.Info("dropped an answer that no request waits for", "id", shorten(m.ID.String()))
		default:
			out.Messages = append(out.Messages, valid(m))
		}
	}
	if len(out.Messages) > 0 {
		b.writeToClient(out)
	}
}

// answer writes one message to the client.
func (b *bridged) answer(m *Message) { b.writeToClient(Payload{Messages: []*Message{m}}) }

// writeToClient writes a payload to the client. If that fails, the bridge ends.
func (b *bridged) writeToClient(out Payload) {
	err := b.client.Write(context.Background(), out)
	if err != nil {
		b.end(fmt.Errorf("%w: %w", errClientGone, err))
	}
}

// ---- Requests of the client that wait for an answer ----

// add notes a request. It returns false if too many are waiting.
func (b *bridged) add(m *Message) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) >= maxWaiting {
		return false
	}
	b.waiting[idKey(m.ID.String())] = waitingCall{m.ID, m.Method}
	return true
}

// take removes the request with an id, which is JSON text, from waiting. It returns
// false if no such request is waiting. So each request gets one answer.
func (b *bridged) take(id string) bool {
	key := idKey(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	_, isWaiting := b.waiting[key]
	delete(b.waiting, key)
	select {
	case b.changed <- struct{}{}:
	default: // await has not read the value before
	}
	return isWaiting
}

// idKey returns a text that is the same for all spellings of an id: a server may
// escape the characters of a string in another way than the client.
func idKey(id string) string {
	var text string
	if json.Unmarshal([]byte(id), &text) == nil {
		return "string " + text
	}
	return id
}

// fail answers a request with an error, if the request is waiting. The error of
// a JSON-RPC response is passed on as it is.
func (b *bridged) fail(id ID, err error) {
	if b.take(id.String()) {
		b.answer(NewResponse(id, nil, fmt.Errorf("mcpwire bridge: %w", err)))
	}
}

// failAll answers all requests that are waiting with an error.
func (b *bridged) failAll(err error) {
	b.mu.Lock()
	all := slices.Collect(maps.Values(b.waiting))
	b.mu.Unlock()
	for _, call := range all {
		b.fail(call.id, err)
	}
}

// valid returns a message that can be passed on. Decode leaves result and error out
// of a response that breaks the rules of JSON-RPC. Such a response becomes an
// error, so that its caller does not wait for ever.
func valid(m *Message) *Message {
	if m.Kind() == Response && m.Result == nil && m.Error == nil {
		return NewResponse(m.ID, nil, errors.New("mcpwire bridge: the response is not valid JSON-RPC"))
	}
	return m
}

// shorten returns the beginning of a text of the peer, for the log.
func shorten(text string) string { return Printable(fmt.Sprintf("%.*s", maxShown, text)) }

// ---- The transport of a URL ----

// dialWeb returns the Dialer of a URL. It sends nothing.
func (o *bridgeOptions) dialWeb(url string) Dialer {
	client := o.httpClient()
	return DialerFunc(func(ctx context.Context) (Conn, error) {
		conn, err := HTTPDialer{Client: client, URL: url, MaxMessage: o.maxBody}.Dial(ctx)
		return &webConn{conn: conn, sse: SSEDialer{Client: client, URL: url, MaxMessage: o.maxBody}}, err
	})
}

// webConn is the Conn of a URL that speaks one of two transports:
//
//	                   initialize is refused with 400, 404 or 405,
//	                   and a GET is answered with an endpoint
//	Streamable HTTP ----------------------------------------------> HTTP+SSE
//
// 2025-11-25 basic/transports#backwards-compatibility.
type webConn struct {
	sse Dialer // of the other transport

	mu     sync.Mutex // guards the fields below
	conn   Conn
	isSSE  bool
	closed bool
}

// current returns the Conn of the transport that is in use.
func (c *webConn) current() (conn Conn, isSSE bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conn, c.isSSE
}

// Read returns the next payload. When the transport changes, it goes on with the
// new one.
func (c *webConn) Read() (Payload, error) {
	for {
		conn, _ := c.current()
		in, err := conn.Read()
		now, _ := c.current()
		if err == nil || now == conn {
			return in, err
		}
	}
}

// Write sends a payload, and finds out which transport the URL speaks.
func (c *webConn) Write(ctx context.Context, out Payload) error {
	conn, isSSE := c.current()
	err := conn.Write(ctx, out)
	refused, isRefused := errors.AsType[*HTTPError](err)
	if isSSE || !isRefused || out.Messages[0].Method != "initialize" {
		return err
	}
	statuses := []int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}
	if !slices.Contains(statuses, refused.Status) {
		return err
	}
	sse, failed := c.sse.Dial(ctx)
	if failed != nil {
		return fmt.Errorf("%w; HTTP+SSE: %w", err, failed)
	}
	if !c.change(sse) {
		return errors.Join(ErrClosed, sse.Close())
	}
	_ = conn.Close() // ends its Read
	return sse.Write(ctx, out)
}

// change makes a Conn of HTTP+SSE the current one. It returns false after Close.
func (c *webConn) change(sse Conn) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return false
	}
	c.conn, c.isSSE = sse, true
	return true
}

// Close closes the current Conn.
func (c *webConn) Close() error {
	c.mu.Lock()
	c.closed = true
	conn := c.conn
	c.mu.Unlock()
	return conn.Close()
}

// ======== Traces ========
//
// A trace is a transcript on standard error, in the notation of the lessons in
// testdata. A section shows what one side has sent. Over stdio each line is a
// message:
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
// Neither credentials nor session ids are in a trace:
//
//	sent                              in the trace
//	Authorization: Bearer s3cret      Authorization: …
//	Mcp-Session-Id: JQ6S3ZMW…         Mcp-Session-Id: session-1, or … if the server has not given that id
//	id: 895650b2.1/0                  id: 84097828.1/0: the tag of the id is replaced by the tag of "session-1"
//	POST /mcp?key=s3cret              POST /mcp?key=…
//	data: /sse?session=JQ6S3ZMW…      data: /sse?session=session-1

// trace writes a transcript to standard error. A write to stderr never waits, so
// a mutex may be held meanwhile.
type trace struct {
	mu          sync.Mutex        // guards the fields below
	lastSection string            // its name; "": the next text begins a section
	exchanges   int               // over HTTP, so far
	names       map[string]string // by session id and by event tag: what the trace shows in its place
	sessions    []string          // the ids that have a name, the oldest first
	named       int               // how many sessions were given a name, so far
}

const (
	maxNames      = 1000     // sessions that have a name at once
	maxNamedID    = 4 << 10  // bytes of the id of a session that is given a name
	maxTraced     = 64 << 10 // bytes that are shown of a line of a stream
	maxTracedBody = 64 << 20 // bytes that are shown of another body
)

func newTrace() *trace { return &trace{names: map[string]string{}} }

// print writes a text in a section. If standard error drops the text, the line
// that names the section may be lost, so the next text names it again.
func (t *trace) print(section, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
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

// ---- Traces of a Conn ----

// tracedConn traces what passes through a Conn.
type tracedConn struct {
	Conn
	*trace
	here, there string // the names of both sides
}

// tracedDialer returns a Dialer of the client whose Conns are traced.
func tracedDialer(dialer Dialer) Dialer {
	return DialerFunc(func(ctx context.Context) (Conn, error) {
		conn, err := dialer.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &tracedConn{Conn: conn, trace: newTrace(), here: "client", there: "server"}, nil
	})
}

// Read prints what it has read, byte for byte.
func (t *tracedConn) Read() (Payload, error) {
	p, err := t.Conn.Read()
	if err == nil {
		text := cmp.Or(string(bytes.TrimSpace(p.Raw())), "(not kept: too large)")
		t.print(t.there, visible(text)+"\n")
	}
	return p, err
}

// Write prints what it sends.
func (t *tracedConn) Write(ctx context.Context, p Payload) error {
	t.print(t.here, visible(string(p.Append(nil)))+"\n")
	return t.Conn.Write(ctx, p)
}

// ---- Traces of HTTP ----

// tracedHandler traces the requests to a handler, and its responses. It reads
// nothing by itself. It shows of a body what the handler has read, and a handler
// reads nothing before its Guard has let the request in.
type tracedHandler struct {
	http.Handler
	*trace
}

// ServeHTTP has the handler serve a request, and traces what it reads and writes.
func (t *tracedHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := t.newExchange(r)
	if r.Body == nil || r.Body == http.NoBody {
		x.request("")
	} else {
		r = r.WithContext(r.Context()) // a copy: the body of the request is still the server's
		r.Body = &tracedBody{r.Body, x.addToRequest}
	}
	traced := &tracedResponse{ResponseWriter: w, exchange: x}
	t.Handler.ServeHTTP(traced, r)
	traced.WriteHeader(http.StatusOK) // has no effect if the handler has sent a status
	x.addToResponse(nil, true)
}

// tracedTransport traces the requests of a client, and their responses.
type tracedTransport struct {
	http.RoundTripper
	*trace
}

// RoundTrip sends a request, and traces the request and its response.
func (t *tracedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	x := t.newExchange(r)
	x.request(requestBody(r))
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		x.failed(err)
		return nil, err
	}
	x.responseHead(resp.StatusCode, resp.Header)
	resp.Body = &tracedBody{resp.Body, x.addToResponse}
	return resp, nil
}

// requestBody returns the body of a client's request, as exchange.request takes
// it.
func requestBody(r *http.Request) string {
	if r.GetBody == nil {
		return ""
	}
	body, err := r.GetBody()
	if err != nil {
		return ""
	}
	text, _ := io.ReadAll(body)
	return "\n" + oneLine(text) + "\n"
}

// tracedBody shows what is read of a body.
type tracedBody struct {
	io.ReadCloser
	show func(part []byte, isEnd bool)
}

// Read shows what it has read.
func (b *tracedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.show(p[:n], err == io.EOF)
	return n, err
}

// Close ends what is shown.
func (b *tracedBody) Close() error {
	b.show(nil, true)
	return b.ReadCloser.Close()
}

// tracedResponse is the response of a handler.
type tracedResponse struct {
	http.ResponseWriter
	exchange  *exchange
	hasStatus bool
}

// Unwrap returns the http.ResponseWriter, for http.NewResponseController.
func (w *tracedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader sends and shows the status and the header. A second call has no
// effect.
func (w *tracedResponse) WriteHeader(status int) {
	if w.hasStatus {
		return
	}
	w.hasStatus = true
	w.exchange.responseHead(status, w.Header())
	w.ResponseWriter.WriteHeader(status)
}

// Write shows what the handler writes.
func (w *tracedResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	w.exchange.addToResponse(b, false)
	return w.ResponseWriter.Write(b)
}

// exchange is the trace of one request and its response:
//
//	pending     The request's body is collected.
//	   |        The body ends, or the response begins: the request is printed.
//	printed
//	   |        responseHead: the status and the header are printed.
//	answered    The body is collected. Each line of a stream is printed when
//	            the line ends. Any other body is printed when the body ends.
//
// So a request stands in one piece, and a stream is shown while it runs. A
// handler may read the request's body and write the response in several
// goroutines.
type exchange struct {
	*trace
	name string // a letter, or more: A, B … Z, AA …

	turn     sync.Mutex // guards the fields below; held while a part is printed, before the mutex of trace
	pending  string     // the head of the request, until it is printed
	gap      string     // comes before the body of the response: an empty line, until it is printed
	isStream bool       // the response is a stream
	skipLF   bool       // the last byte was CR: an LF that follows belongs to it
	partial  []byte     // the body, or the line of a stream, whose end has not come yet
	omitted  int        // bytes behind partial that are not kept
}

// newExchange returns the exchange that a request begins. It prints nothing yet.
func (t *trace) newExchange(r *http.Request) *exchange {
	head := r.Method + " " + r.URL.RequestURI() + "\n" + tracedHeader(r.Header)
	t.mu.Lock()
	defer t.mu.Unlock()
	x := &exchange{trace: t, name: letters(t.exchanges), pending: head}
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

// request prints the request. body begins with the empty line after the head;
// "": there is no body.
func (x *exchange) request(body string) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.printRequest(body)
}

// addToRequest takes a part of the request's body, and prints the request at its
// end. What comes after the request is printed is not shown.
func (x *exchange) addToRequest(part []byte, isEnd bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.pending == "" {
		return
	}
	x.partial = append(x.partial, part...)
	if isEnd {
		x.printRequest("\n" + oneLine(x.partial) + "\n")
	}
}

// responseHead prints the status and header of the response. If the request is
// not printed yet, its body has not been read to the end.
func (x *exchange) responseHead(status int, header http.Header) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.printRequest("\n(not read to its end)\n")
	x.printResponse(fmt.Sprintf("%d\n%s", status, tracedHeader(header)))
	x.gap = "\n"
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // with an error, media is what could be read
	x.isStream = media == "text/event-stream"
}

// addToResponse takes a part of the response's body. It prints the lines of a
// stream that are complete; they end with CR, LF or CRLF. It prints any other
// body at its end. A line without an end would need any amount of memory, so
// only its beginning is kept.
func (x *exchange) addToResponse(part []byte, isEnd bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	limit := maxTracedBody
	if x.isStream {
		limit = maxTraced
	}
	var lines strings.Builder
	for _, b := range part {
		switch {
		case x.isStream && x.skipLF && b == '\n':
		case x.isStream && (b == '\r' || b == '\n'):
			lines.WriteString(x.takePartial())
		case len(x.partial) < limit:
			x.partial = append(x.partial, b)
		default:
			x.omitted++
		}
		x.skipLF = b == '\r'
	}
	if isEnd && len(x.partial) > 0 {
		lines.WriteString(x.takePartial())
	}
	if lines.Len() > 0 {
		x.printResponse(lines.String())
	}
}

// failed prints the error of a request that has no response.
func (x *exchange) failed(err error) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.printResponse(Printable(err.Error()) + "\n")
}

// takePartial returns the line of a stream, or the body, whose end has come. The
// caller holds turn.
func (x *exchange) takePartial() string {
	text := string(x.partial)
	if !x.isStream {
		text = oneLine(x.partial)
	}
	if x.omitted > 0 {
		text += fmt.Sprintf(" (… %d more bytes)", x.omitted)
	}
	x.partial = x.partial[:0]
	x.omitted = 0
	return text + "\n"
}

// printRequest prints the request, unless it is printed already. The caller holds
// turn.
func (x *exchange) printRequest(body string) {
	if x.pending == "" {
		return
	}
	x.print("client "+x.name, x.rename(visible(x.pending+body), false))
	x.pending = ""
	x.partial = nil // from now on, it is for the response
}

// printResponse prints a part of the response. The caller holds turn.
func (x *exchange) printResponse(text string) {
	x.print("server "+x.name, x.gap+x.rename(visible(text), true))
	x.gap = ""
}

// oneLine returns a body as one line: JSON without spaces.
func oneLine(body []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, body) == nil {
		return line.String()
	}
	return Printable(strings.TrimSuffix(string(body), "\n"))
}

// tracedFields matches the names of the header fields that matter to MCP.
var tracedFields = lazyRegexp("^(Accept|Allow|Authorization|Content-Type|Last-Event-Id|Mcp-.*|Origin|Retry-After|Www-Authenticate|Access-Control-.*)$")

// tracedHeader returns the fields that matter to MCP, one on each line, sorted.
func tracedHeader(header http.Header) string {
	text := ""
	for _, name := range slices.Sorted(maps.Keys(header)) {
		if !tracedFields().MatchString(name) {
			continue
		}
		for _, value := range header[name] {
			if name == "Authorization" {
				value = "…"
			}
			text += name + ": " + value + "\n"
		}
	}
	return text
}

// ---- Names in place of secrets ----

var (
	// queryLine matches the beginning of a line that has a URL with a query: the
	// line of a request, or of an event endpoint.
	queryLine = lazyRegexp(`(?m)^([A-Z]+ |data: ?)(/|https?://)\S*\?\S*`)
	// queryPart matches one name and value of a query.
	queryPart = lazyRegexp(`[?&][^&\s]*`)
	// idLine matches a line with the id of a session, or the beginning of a line
	// with the id of an event, up to the end of its tag. See Session.tag.
	idLine = lazyRegexp(`(?m)^(Mcp-Session-Id: .+|(id|Last-Event-Id): [0-9a-f]{8}\.)`)
)

// lazyRegexp returns a function that compiles a regular expression when it is
// called first. So the start of the program does not wait for all of them.
func lazyRegexp(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// rename puts names in place of the ids in a text, and hides the other values of
// a query. fromServer is true for a text of the server: only the server gives an
// id to a session. An id that a client makes up gets no name, so that it is not
// kept.
func (t *trace) rename(text string, fromServer bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text = queryLine().ReplaceAllStringFunc(text, func(line string) string {
		return queryPart().ReplaceAllStringFunc(line, func(part string) string {
			name, value, _ := strings.Cut(part, "=")
			if name == "?session" || name == "&session" { // of the transport of 2024-11-05
				return name + "=" + t.nameSession(value, fromServer)
			}
			return name + "=…"
		})
	})
	return idLine().ReplaceAllStringFunc(text, func(line string) string {
		field, value, _ := strings.Cut(line, ": ")
		if field == "Mcp-Session-Id" {
			return field + ": " + t.nameSession(value, fromServer)
		}
		return field + ": " + cmp.Or(t.names[value], value)
	})
}

// nameSession returns the name of a session. If the session has none, it is given
// one, and its event tag, too, if mayAdd is true. When maxNames sessions have a
// name, the oldest one loses it. The caller holds mu.
func (t *trace) nameSession(id string, mayAdd bool) string {
	name := t.names[id]
	if name != "" {
		return name
	}
	if !mayAdd || len(id) > maxNamedID {
		return "…"
	}
	if len(t.sessions) == maxNames {
		oldest := t.sessions[0]
		delete(t.names, oldest)
		delete(t.names, eventTag(oldest))
		t.sessions = t.sessions[1:]
	}
	t.named++
	name = fmt.Sprintf("session-%d", t.named)
	id = strings.Clone(id) // id is a part of a text that may be long
	t.sessions = append(t.sessions, id)
	t.names[id] = name
	t.names[eventTag(id)] = eventTag(name)
	return name
}

// eventTag returns how the ids of all events of a session begin.
func eventTag(id string) string { return (&Session{ID: id}).Tag() + "." }

// ======== Standard error ========

// stderr takes everything that the program prints on standard error: the log,
// the trace, errors, and the standard error of a command. So all lines stay in
// order, and a slow reader of standard error never delays a message.
var stderr = &spool{w: os.Stderr}

const (
	maxSpooled = 8 << 20
	flushTime  = time.Second
)

var errDropped = errors.New("nobody reads: dropped")

// spool is an io.Writer that never waits. It keeps what is written until w takes
// it:
//
//	Write --> missingAfter | waiting | missingBefore | being given to w --> w
//
//	waiting          bytes that w is given next
//	missingBefore    how many lines are missing before those that are waiting
//	missingAfter     how many lines are missing after them
//
// While maxSpooled bytes or more are held, waiting or being given to w, Write
// drops its text. A text that w refuses is dropped, too. spool counts the lines
// that it drops. Before w is given the next text, it gets a notice with that
// number. So the notice stands where the lines are missing.
//
// One goroutine writes to w. Write starts the goroutine, and it ends when nothing
// is waiting.
type spool struct {
	w io.Writer

	mu            sync.Mutex // guards the fields below
	waiting       []byte
	held          int // bytes that are waiting, or are being given to w
	missingBefore int
	missingAfter  int
	running       bool          // the goroutine exists
	taken         chan struct{} // closed when w has been given all that was written; nil: nothing was written yet
	unresponsive  bool          // flush has waited in vain, and w has taken nothing since
}

// Write keeps all of b, or drops it.
func (s *spool) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= maxSpooled {
		lines := bytes.Count(b, []byte("\n"))
		if len(s.waiting) > 0 {
			s.missingAfter += lines
		} else {
			s.missingBefore += lines
		}
		return 0, errDropped
	}
	if len(s.waiting) == 0 {
		s.taken = make(chan struct{})
	}
	s.waiting = append(s.waiting, b...)
	s.held += len(b)
	if !s.running {
		s.running = true
		go s.run()
	}
	return len(b), nil
}

// run gives w what is waiting, and the notices. If w has refused something, a
// notice alone is not tried again at once: the next Write starts run again.
func (s *spool) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for len(s.waiting) > 0 || s.missingBefore > 0 && err == nil {
		if len(s.waiting) == 0 {
			s.taken = make(chan struct{}) // flush waits for the notice, too
		}
		batch := s.waiting
		taken := s.taken
		missing := s.missingBefore
		s.waiting = nil
		s.missingBefore = s.missingAfter
		s.missingAfter = 0
		s.mu.Unlock()
		missing, err = s.give(missing, batch)
		s.mu.Lock()
		close(taken)
		s.missingBefore += missing
		s.held -= len(batch)
		s.unresponsive = false
	}
	s.running = false
}

// give gives w the notice of missing lines, if there are some, and then the
// batch. It returns how many lines are missing now.
func (s *spool) give(missing int, batch []byte) (int, error) {
	if missing > 0 {
		_, err := fmt.Fprintf(s.w, "mcpwire: %d lines are missing here, because nobody read them\n", missing)
		if err != nil {
			return missing + bytes.Count(batch, []byte("\n")), err
		}
	}
	n, err := s.w.Write(batch)
	return bytes.Count(batch[n:], []byte("\n")), err
}

// flush waits until w has been given all that was written before, but for no
// longer than flushTime. If an earlier flush has waited in vain, and w has taken
// nothing since, flush does not wait.
func (s *spool) flush() {
	s.mu.Lock()
	taken := s.taken
	unresponsive := s.unresponsive
	s.mu.Unlock()
	if taken == nil || unresponsive {
		return
	}
	select {
	case <-taken:
		return
	case <-time.After(flushTime):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-taken: // by now
	default:
		s.unresponsive = true
	}
}
