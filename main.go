// Mcpwire is the wire of the Model Context Protocol in one flat package that
// imports only the standard library: messages, stdio, HTTP, and the lifecycle
// of all five revisions, from both ends. As a program it is a tiny demo server,
// a client for any server, and a bridge between a client and a server:
//
//	mcpwire                                          serve the demo on standard input and output
//	mcpwire -http :8080                              serve it over HTTP, at http://127.0.0.1:8080/mcp
//	mcpwire call http://127.0.0.1:8080/mcp           say how a server was reached and what it offers
//	mcpwire call COMMAND [ARG...]                    start a server, and say the same
//	mcpwire call -tool echo -arg text=hi COMMAND     call one tool and print its result
//	mcpwire call -method tools/list COMMAND [ARG...] call one method and print its result
//	mcpwire bridge -trace http://127.0.0.1:8080/mcp  stand between a client on stdio and a server, and show what they say
//
// The library is jsonrpc.go (messages, and a conversation with one peer),
// stdio.go (lines over a byte stream), session.go (the lifecycle), sse.go (events
// over HTTP) and http.go (Streamable HTTP). Read them in that order. None
// of them needs this file, which shows how the library is used. README.md says
// which files to copy for which purpose.
package main

// This file has seven parts: the program and its flags, the demo server, the
// command call, the command bridge, the traces of all three, the page for a
// browser, and standard error.

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
	"iter"
	"log"
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

// ======== The program ========

const version = "0.2.0"

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
	mayStartServer := false
	if len(args) > 0 && commands[args[0]] != nil {
		command = commands[args[0]]
		args = args[1:]
		mayStartServer = true
	}
	err := command(untilSignal(mayStartServer), args)
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
		printFlags(flags)
		os.Exit(0)
	case err != nil:
		printError(fmt.Errorf("%w (-h for help)", err))
		os.Exit(exitUsage)
	}
}

// flagGroups are the groups in which the help lists flags, for all commands. A flag
// that is in no group comes last.
var flagGroups = []struct {
	title string
	flags []string
}{
	{"What to call", []string{"method", "params", "tool", "arg", "i", "json"}},
	{"What the server is told when it asks", []string{"answer", "root", "sampling-answer"}},
	{"How to reach the server", []string{"protocol", "timeout", "header", "env", "cwd"}},
	{"Where to serve", []string{"http", "tls-cert", "tls-key", "watch"}},
	{"Who is let in (with -http)", []string{"token", "auth-server", "allow-origin", "allow-host"}},
	{"Sessions and streams (with -http)", []string{"stateless", "session-ttl", "max-sessions", "event-buffer", "keepalive", "replica"}},
}

// printFlags prints the flags in their groups, each on one line.
func printFlags(flags *flag.FlagSet) {
	var other []string
	flags.VisitAll(func(f *flag.Flag) {
		for _, group := range flagGroups {
			if slices.Contains(group.flags, f.Name) {
				return
			}
		}
		other = append(other, f.Name)
	})
	printGroup := func(title string, names []string) {
		for _, name := range names {
			f := flags.Lookup(name)
			if f == nil { // it belongs to another command
				continue
			}
			if title != "" {
				fmt.Println(title + ":")
				title = ""
			}
			value, text := flag.UnquoteUsage(f)
			if !slices.Contains([]string{"", "0", "false"}, f.DefValue) {
				text += fmt.Sprintf(" (default %s)", f.DefValue)
			}
			fmt.Printf("  %-22s %s\n", "-"+name+" "+value, text)
		}
	}
	for _, group := range flagGroups {
		printGroup(group.title, group.flags)
	}
	printGroup("Other", other)
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
	return fmt.Sprintf("; data: %.4000s", onOneLine(fault.Data))
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
	watch      bool
	watchers   watchers // with watch
	versions   []string // newest first; empty: all
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
       mcpwire -http ADDR [flags]   serve it over HTTP: at /mcp, and as in 2024-11-05 at /sse
       mcpwire call -h              the client
       mcpwire bridge -h            between a client and a server`

func (o *options) define(flags *flag.FlagSet) {
	const host = `([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?`
	flags.Func("http", "serve HTTP at `address`, such as :8080; the host is 127.0.0.1 unless named", matching(`.*:\w+`, setText(&o.http)))
	flags.BoolVar(&o.stateless, "stateless", false, "no sessions: every POST stands alone")
	flags.DurationVar(&o.sessions.IdleTimeout, "session-ttl", 30*time.Minute, "end a session that has been idle for this long")
	flags.IntVar(&o.sessions.Max, "max-sessions", 10_000, "sessions at once")
	flags.Int64Var(&o.guard.MaxBody, "max-body", 4<<20, "`bytes` in one message, also on stdio")
	o.sessions.Keep = 4 << 20
	flags.Var((*byteSize)(&o.sessions.Keep), "event-buffer", "bytes a session keeps for resuming, a `size` like 512k; 0: none")
	flags.DurationVar(&o.guard.KeepAlive, "keepalive", 15*time.Second, "comment on a stream after this long a silence; 0: none")
	flags.Func("allow-origin", "let this `origin` in, with CORS, such as https://app.example.com; repeatable",
		matching(`null|[a-z][a-z0-9+.-]*://`+host, addText(&o.guard.Origins)))
	flags.Func("allow-host", "let this `Host` in too on a loopback address; repeatable", matching(host, addText(&o.guard.Hosts)))
	flags.Func("token", "require Authorization: Bearer `token` (default $MCPWIRE_TOKEN, or none)", matching(`\S+`, setText(&o.token)))
	flags.Func("auth-server", "`URL` of the authorization server that metadata names", matching(`https?://[^/].*`, setText(&o.authServer)))
	flags.Func("replica", "`name` that begins session ids, so that a proxy can route by it", matching(`[!-~]+`, setText(&o.replica)))
	flags.Func("state-key", "`key` of requestState, on all replicas (default $MCPWIRE_STATE_KEY or random)", matching(`.+`, setText(&o.stateKey)))
	flags.Func("tls-cert", "serve HTTPS with the certificate in this `file`", matching(`.+`, setText(&o.tlsCert)))
	flags.Func("tls-key", "and the key in this `file`", matching(`.+`, setText(&o.tlsKey)))
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
	case o.watch && !isLoopback(o.http) && o.token == "" && os.Getenv("MCPWIRE_TOKEN") == "":
		// The Guard checks Host on loopback addresses alone. Elsewhere the page of a
		// foreign name that leads here could read what all clients say.
		return errors.New("-watch on an address that others reach needs -token")
	}
	return onlyHTTP
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	ip := net.ParseIP(host)
	return err != nil || host == "" || host == "localhost" || ip != nil && ip.IsLoopback()
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

// terminalHint is for a user who has started the program at a terminal, where a
// server shows nothing by itself. An editor starts it with a pipe.
const terminalHint = `mcpwire: waiting for a client on standard input, one JSON-RPC message a line; Ctrl-D ends it
Try to type a message:   {"jsonrpc":"2.0","id":1,"method":"ping"}
Or, in place of this:    mcpwire call mcpwire      show what this server offers
                         mcpwire -http :8080       serve over HTTP
                         mcpwire -h                show all flags
`

func (o *options) serveStdio(ctx context.Context, demo *demo, log *slog.Logger) error {
	if isTerminal(os.Stdin) {
		io.WriteString(stderr, terminalHint)
	}
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
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	switch {
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("%w; another program listens there: choose another port, or 0 for a free one", err)
	case errors.Is(err, syscall.EACCES):
		return nil, fmt.Errorf("%w; choose a port from 1024 on", err)
	}
	return listener, err
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
// paths, those of the page included. It also fills in those options that flags
// leave open.
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
	endpoints := http.NewServeMux()
	endpoints.Handle("/mcp", mcp)
	endpoints.Handle("/mcp/{$}", mcp)
	if len(legacyVersions(demo.Versions)) > 0 {
		endpoints.Handle("/sse", sse)
	}
	if o.authServer != "" {
		endpoints.Handle(metadataPath, o.metadata(""))
		endpoints.Handle(metadataPath+"/mcp", o.metadata("/mcp"))
	}
	return mcp, sse, o.withPage(o.traced(endpoints))
}

// traced returns a handler that shows what next reads and writes, if a flag asks
// for that: on standard error, on the page, or on both.
func (o *options) traced(next http.Handler) http.Handler {
	if !o.trace && !o.watch {
		return next
	}
	t := newTrace()
	t.isSilent = !o.trace
	if o.watch {
		t.watchers = &o.watchers
	}
	return &tracedHandler{Handler: next, trace: t}
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
	switch {
	case *args.City == "":
		return nil, errors.New("'city' must not be empty")
	case !isUnit:
		return nil, errors.New("'unit' must be celsius or fahrenheit")
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
	return jsonLength(text) <= limit
}

// jsonLength returns how many bytes a text has as JSON.
func jsonLength(text string) int {
	quoted, _ := TextContent(text).MarshalJSON()
	empty, _ := TextContent("").MarshalJSON()
	return len(quoted) - len(empty)
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
	reply      json.RawMessage // the content that answers every elicitation; empty: see elicit
	roots      []Root          // the answer to roots/list; nil: none is given
	sample     string          // the answer to sampling/createMessage; "": none is given
	atTerminal bool            // the user can be asked
	showsLine  bool            // progress is shown on one line of a terminal
	timeout    time.Duration   // see limited
	lastToken  int64           // the last progress token

	transport string      // the name of the one that was dialled last
	inSession atomic.Bool // a response over HTTP has named a session

	idle atomic.Pointer[time.Timer] // ends the call that is running
	form sync.Mutex                 // held while the user is asked
}

const callUsage = `usage: mcpwire call [flags] URL
       mcpwire call [flags] COMMAND [ARG...]
Without -method, -tool and -i: say how the server was reached, and what it offers.
Exit status: 0 a result; 1 an error; 2 a wrong command line; 3 -tool: a result with isError.`

const (
	maxMessage = 64 << 20            // bytes of a message
	noTimeout  = 100_000 * time.Hour // eleven years; ten times as much still is a time.Duration
	childGrace = 2 * time.Second     // for each step of shutting down a command
)

// callOptions are the flags of call.
type callOptions struct {
	targetOptions
	method      string // "": see tool
	params      string
	tool        string // "": print a summary, unless there is a method
	arguments   []argument
	json        bool // print the summary as JSON
	versions    []string
	answer      string
	roots       []Root
	sample      string
	timeout     time.Duration
	interactive bool
}

func (o *callOptions) define(flags *flag.FlagSet) {
	flags.StringVar(&o.method, "method", "", "`method` to call, such as tools/list")
	flags.StringVar(&o.params, "params", "", "its params, a `JSON` object")
	flags.Func("tool", "`name` of a tool to call, with an -arg for each argument", matching(`(?s).+`, setText(&o.tool)))
	flags.Func("arg", "argument of the tool: `KEY=VALUE`, or KEY=@FILE (@@ is @); repeatable", o.addArgument)
	flags.BoolVar(&o.interactive, "i", false, "read METHOD [PARAMS] lines from stdin, one answer each")
	flags.BoolVar(&o.json, "json", false, "print what the server offers as one JSON object")
	flags.StringVar(&o.answer, "answer", "", "accept elicitations with this `JSON` (default: ask at a terminal, or decline)")
	flags.Func("root", "offer this `directory` as a root; repeatable", o.addRoot)
	flags.Func("sampling-answer", "answer sampling/createMessage with this `text`", matching(`(?s).+`, setText(&o.sample)))
	flags.Func("protocol", "speak this `revision` (default: find out)", addVersions(&o.versions))
	flags.DurationVar(&o.timeout, "timeout", time.Minute, "for one call; progress extends it up to ten times; 0: none")
	o.targetOptions.define(flags)
}

// targetOptions are the flags of all commands that talk to a server.
type targetOptions struct {
	trace  bool
	header http.Header
	env    []string // to add to the environment of the command
	dir    string   // of the command; "": that of the program
}

func (o *targetOptions) define(flags *flag.FlagSet) {
	o.header = http.Header{}
	addField := func(line string) {
		name, value, _ := strings.Cut(line, ":")
		o.header.Add(name, strings.TrimSpace(value))
	}
	flags.Func("header", "`'K: V'` to send with every HTTP request, repeatable",
		matching("[!#$%&'*+.^_`|~0-9a-z-]+:[^\\x00-\\x08\\n-\\x1f\\x7f]*", addField))
	flags.Func("env", "`K=V` to add to the environment of COMMAND; repeatable", matching(`[^=\x00]+=[^\x00]*`, addText(&o.env)))
	flags.Func("cwd", "start COMMAND in this `directory`", o.setDir)
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
}

// addArgument is the function of -arg. It reads the file that is named, so that a
// missing file is found out before a server is started.
func (o *callOptions) addArgument(text string) error {
	key, value, found := strings.Cut(text, "=")
	isTwice := slices.ContainsFunc(o.arguments, func(a argument) bool { return a.key == key })
	switch {
	case !found || key == "":
		return errors.New("it must be KEY=VALUE")
	case isTwice:
		return fmt.Errorf("%q is given twice", key)
	}
	if file, isFile := strings.CutPrefix(value, "@"); isFile && !strings.HasPrefix(file, "@") {
		content, err := readFile(file)
		if err != nil {
			return err
		}
		value = content
	} else {
		value = strings.TrimPrefix(value, "@")
	}
	if !utf8.ValidString(text) || !utf8.ValidString(value) {
		return fmt.Errorf("%q is not UTF-8", key)
	}
	o.arguments = append(o.arguments, argument{key, value})
	return nil
}

// readFile returns the content of a file that fits in a message.
func readFile(name string) (string, error) {
	file, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer file.Close()
	content, err := io.ReadAll(io.LimitReader(file, maxMessage+1))
	if len(content) > maxMessage {
		return "", fmt.Errorf("%s has more than %d bytes", name, maxMessage)
	}
	return string(content), err
}

// addRoot is the function of -root. 2025-11-25 client/roots#root: the URI is a
// file:// URI.
func (o *callOptions) addRoot(dir string) error {
	if err := checkDir(dir); err != nil {
		return err
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") { // C:/dir
		slashed = "/" + slashed
	}
	uri := url.URL{Scheme: "file", Path: slashed}
	o.roots = append(o.roots, Root{URI: uri.String(), Name: filepath.Base(path)})
	return nil
}

// setDir is the function of -cwd.
func (o *targetOptions) setDir(dir string) error {
	o.dir = dir
	return checkDir(dir)
}

// checkDir returns an error unless a path names a directory.
func checkDir(path string) error {
	info, err := os.Stat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is not a directory")
	}
	return err
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
	case !isURL(first) && strings.Contains(first, "://"):
		return fmt.Errorf("%.200q is no URL of a server: it must begin with http:// or https://", first)
	case meant != "":
		return fmt.Errorf("there is no command %.200q; did you mean %.200s?", first, meant)
	case len(o.header) > 0 && !isURL(first):
		return errors.New("-header goes with a URL")
	case (o.env != nil || o.dir != "") && isURL(first):
		return errors.New("-env and -cwd go with a command, and not with a URL")
	}
	return nil
}

// check returns an error if the target is wrong, or if the flags do not fit
// together.
func (o *callOptions) check(target []string) error {
	if err := o.targetOptions.check(target); err != nil {
		return err
	}
	ways := 0 // to say what is called
	for _, isUsed := range []bool{o.method != "", o.tool != "", o.interactive, o.json} {
		if isUsed {
			ways++
		}
	}
	switch {
	case o.params != "" && (o.method == "" || !isObject(o.params)):
		return errors.New("-params takes a JSON object, and goes with -method")
	case o.answer != "" && !isObject(o.answer):
		return errors.New("-answer takes a JSON object")
	case o.timeout < 0 || o.timeout > noTimeout:
		return errors.New("-timeout is out of range")
	case ways > 1:
		return errors.New("-method, -tool, -i and -json exclude each other")
	case o.arguments != nil && o.tool == "":
		return errors.New("-arg goes with -tool")
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
	defer stderr.status("")
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
	case o.json:
		return c.printOffer(ctx, target)
	}
	return c.summary(ctx, target)
}

func newCaller(o callOptions) *caller {
	c := &caller{
		stderr:     stderr,
		input:      bufio.NewScanner(os.Stdin),
		reply:      json.RawMessage(o.answer),
		roots:      o.roots,
		sample:     o.sample,
		atTerminal: !o.interactive && isTerminal(os.Stdin),
		showsLine:  !o.trace && isTerminal(os.Stderr) && os.Getenv("TERM") != "dumb",
		timeout:    cmp.Or(o.timeout, noTimeout),
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
		cmd.Dir = o.dir
		cmd.Env = append(cmd.Environ(), o.env...)
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
	advice := ""
	if isURL(target) {
		advice = adviceForURL(err, target)
	} else {
		advice = adviceForCommand(err, target)
	}
	if advice == "" && errors.Is(err, ErrAfterProbe) && !isRefused(err) {
		newestLegacy := legacyVersions(c.Versions)[0] // the server was sent initialize, so there is one
		advice = fmt.Sprintf("server/discover may be why: with -protocol %s it is not sent", newestLegacy)
	}
	if advice == "" {
		return err
	}
	return fmt.Errorf("%w; %s", err, advice)
}

// isRefused reports whether a server has refused the user.
func isRefused(err error) bool {
	fault, isHTTP := errors.AsType[*HTTPError](err)
	return isHTTP && (fault.Status == http.StatusUnauthorized || fault.Status == http.StatusForbidden)
}

// adviceForURL says what may be wrong with a URL; "": nothing that is known.
func adviceForURL(err error, target string) string {
	status := 0
	fault, isHTTP := errors.AsType[*HTTPError](err)
	if isHTTP {
		status = fault.Status
	}
	// A web site has such an answer for a path that is no MCP endpoint.
	isElsewhere := slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed}, status)
	_, isUnknownHost := errors.AsType[*net.DNSError](err)
	at, _ := url.Parse(target) // check has parsed it before
	switch {
	case isElsewhere && strings.Trim(at.Path, "/") == "":
		return fmt.Sprintf("the URL has no path: did you mean %s://%s/mcp?", at.Scheme, at.Host)
	case isElsewhere:
		return "no MCP server answers at this path: check the URL"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "nothing listens there: check the port, and that the server runs"
	case isUnknownHost:
		return "check the name of the host"
	case status == http.StatusBadRequest && at.Scheme == "http" && strings.Contains(err.Error(), "HTTPS"): // as net/http and nginx say it
		return "the server speaks HTTPS: the URL must begin with https://"
	case errors.Is(err, http.ErrSchemeMismatch):
		return "the server speaks plain HTTP: the URL must begin with http://"
	}
	return ""
}

// adviceForCommand says what may be wrong with a command that did not start.
func adviceForCommand(err error, command string) string {
	if _, isPath := errors.AsType[*fs.PathError](err); !isPath && !errors.Is(err, exec.ErrNotFound) {
		return "" // it has started
	}
	host, _, _ := strings.Cut(command, "/")
	info, noFile := os.Stat(command)
	switch {
	case noFile == nil && info.IsDir():
		return "it is a directory: give the path of the program in it"
	case noFile != nil && strings.Contains(strings.Trim(host, "."), "."):
		return fmt.Sprintf("there is no such command: did you mean https://%.200s?", command)
	case errors.Is(err, exec.ErrNotFound):
		return "there is no such command: check its name, or give its path"
	case errors.Is(err, fs.ErrNotExist):
		return "check the path of the command, and of the interpreter that its first line names"
	case errors.Is(err, fs.ErrPermission):
		return fmt.Sprintf("it is no program that may be run: try chmod +x %.200s, or name its interpreter before it", command)
	case errors.Is(err, syscall.ENOEXEC):
		return "it is no program for this system: a script needs its interpreter before it, such as node or python3"
	}
	return ""
}

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

// callAndPrint calls a method, and prints its result on one line, otherwise as it
// came. It returns the result.
func (c *caller) callAndPrint(ctx context.Context, method, params string) (result json.RawMessage, err error) {
	err = c.call(ctx, method, params, &result)
	if err != nil {
		fault, _ := errors.AsType[*Error](err)
		if fault != nil && fault.Code == CodeMethodNotFound {
			err = fmt.Errorf("%w%s", err, didYouMean(method, slices.Values(knownMethods)))
		}
		return nil, fmt.Errorf("%s: %w", method, err)
	}
	return result, printResult(result)
}

// printResult prints JSON on one line of standard output. A terminal gets it visible:
// a text of the peer must not move the cursor, or turn the order of characters round.
func printResult(result json.RawMessage) error {
	// At a terminal, the notifications of a call stand before its result.
	stderr.status("")
	stderr.flush()
	line := append(onOneLine(result), '\n')
	if isTerminal(os.Stdout) {
		line = []byte(visible(string(line)))
	}
	if _, err := os.Stdout.Write(line); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// knownMethods are the methods of all revisions that a client may call.
var knownMethods = []string{
	"initialize", "ping", "server/discover", "subscriptions/listen", "logging/setLevel", "completion/complete",
	"tools/list", "tools/call", "prompts/list", "prompts/get",
	"resources/list", "resources/read", "resources/templates/list", "resources/subscribe", "resources/unsubscribe",
}

// didYouMean returns a text to append to an error about a name: a question with the
// most similar one of all names. It returns "" if none is similar, and if name
// itself is one of them.
func didYouMean(name string, names iter.Seq[string]) string {
	nearest, least := "", len(name)/3+2 // at most a third of the name, and one more, is wrong
	for other := range names {
		if len(other) >= len(name)+least || len(other) > maxSimilar {
			continue
		}
		if d := editDistance(name, other); d < least {
			nearest, least = other, d
		}
	}
	if nearest == "" || nearest == name {
		return ""
	}
	return fmt.Sprintf("; did you mean %s?", nearest)
}

const maxSimilar = 128 // bytes of a name that is compared with others

// editDistance returns how many bytes must be inserted, deleted or replaced to make
// b of a. Upper and lower case are the same.
func editDistance(a, b string) int {
	a, b = strings.ToLower(a), strings.ToLower(b)
	row := make([]int, len(b)+1) // row[j] is the distance between a[:i] and b[:j]
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0] // between a[:i] and b[:j]
		row[0] = i + 1
		for j := range len(b) {
			replaced := diagonal
			if a[i] != b[j] {
				replaced++
			}
			diagonal = row[j+1]
			row[j+1] = min(replaced, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
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
	var full, meta Object
	full.AddAll(given, "_meta")
	meta.AddAll(p.Meta)
	if m.ProgressToken == nil {
		c.lastToken++
		meta.Add("progressToken", strconv.AppendInt(nil, c.lastToken, 10))
	}
	full.Add("_meta", meta.JSON())
	return c.limited(ctx, func(ctx context.Context) error { return c.Call(ctx, method, full.JSON(), result) })
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
	params, err := tool.params(arguments)
	if err != nil {
		return err
	}
	result, err := c.callAndPrint(ctx, "tools/call", params)
	if err != nil {
		return err
	}
	var outcome toolOutcome
	_ = Bind(result, &outcome)
	if outcome.IsError {
		return exitStatus{fmt.Errorf("the tool %s has failed (isError)", name), exitTool}
	}
	return nil
}

// toolOutcome is what call reads of the result of a tool.
type toolOutcome struct {
	IsError bool `json:"isError,omitempty"`
}

// findTool reads the list of tools until the tool is found.
func (c *caller) findTool(ctx context.Context, name string) (found *listedItem, err error) {
	var others nameList
	errFound := errors.New("found")
	err = c.eachItem(ctx, toolKind, func(text json.RawMessage) error {
		var item listedItem
		_ = Bind(text, &item) // an item without a name has the name ""
		if item.Name == name {
			found = &item
			return errFound
		}
		if err := others.add(item.Name); err != nil {
			return fmt.Errorf("%s: %w", toolKind.method, err)
		}
		return nil
	})
	switch {
	case found != nil:
		return found, nil
	case err != nil:
		return nil, err
	}
	return nil, usageErrorf("the server has no tool %s%s", name, didYouMean(name, slices.Values(others.names)))
}

// params returns the params of tools/call.
func (i *listedItem) params(arguments []argument) (string, error) {
	typed := map[string]json.RawMessage{}
	for _, a := range arguments {
		value, err := typeValue(a.value, i.schemaOf(a.key))
		if err != nil {
			return "", usageErrorf("-arg %s: %w; the tool is %s", a.key, err, i.signature())
		}
		typed[a.key] = value
	}
	var missing []string
	for _, key := range i.schema().required() {
		if typed[key] == nil {
			missing = append(missing, key)
		}
	}
	if missing != nil {
		return "", usageErrorf("missing required arguments: %s; the tool is %s", shorten(strings.Join(missing, ", "), maxSignature), i.signature())
	}
	encoded, err := toJSON(typed)
	if err == nil {
		encoded, err = toJSON(CallToolParams{Name: i.Name, Arguments: encoded})
	}
	return string(encoded), err
}

// typeValue returns a value of the command line as JSON of one of the types that
// the schema allows:
//
//	the schema allows       the value is
//	string alone            a string
//	string and others       JSON of one of the other types, or else a string
//	no string               JSON of one of the types, or else an error
//	any type                JSON, or else a string
//
// So with a schema that says nothing, 5, true, null, [1] and "5" are JSON, and
// five is a string.
func typeValue(text string, schema json.RawMessage) (json.RawMessage, error) {
	types := typesOf(schema)
	value := json.RawMessage(strings.TrimSpace(text))
	if json.Valid(value) {
		is := typeOfJSON(value)
		fits := slices.Contains(types, is) || is == "integer" && slices.Contains(types, "number")
		if types == nil || fits && is != "string" {
			return value, nil
		}
	}
	if types == nil || slices.Contains(types, "string") {
		return toJSON(text)
	}
	return nil, fmt.Errorf("%s is not of type %s", shorten(strconv.Quote(text), 60), strings.Join(types, " or "))
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

// ---- Signatures ----

// argumentsSchema is what call reads of the inputSchema of a tool.
type argumentsSchema struct {
	Properties json.RawMessage `json:"properties,omitempty"` // an object of schemas
	Required   json.RawMessage `json:"required,omitempty"`   // an array of names
}

// valueSchema is what call reads of the schema of a value.
type valueSchema struct {
	Type  json.RawMessage `json:"type,omitempty"` // a name, or an array of names
	Enum  json.RawMessage `json:"enum,omitempty"`
	AnyOf json.RawMessage `json:"anyOf,omitempty"`
	OneOf json.RawMessage `json:"oneOf,omitempty"`
}

// listedArgument is what call reads of an argument of a prompt.
type listedArgument struct {
	Name     string `json:"name,omitempty"`
	Required bool   `json:"required,omitempty"`
}

const (
	maxSignature = 400 // characters of the arguments in a signature
	maxFirstLine = 100 // characters of a description that are printed
	maxRequired  = 100 // names of required arguments that are looked at
	maxTypes     = 10  // types of one value, and values of one enum, that are looked at
)

// elements walks through an array. What is not an array has no elements.
func elements(array json.RawMessage) iter.Seq[json.RawMessage] {
	return func(yield func(json.RawMessage) bool) {
		if !bytes.HasPrefix(array, []byte("[")) {
			return
		}
		for _, element := range Each(array) {
			if !yield(element) {
				return
			}
		}
	}
}

// properties walks through an object. What is not an object has none.
func properties(object json.RawMessage) iter.Seq2[string, json.RawMessage] {
	return func(yield func(string, json.RawMessage) bool) {
		if !bytes.HasPrefix(object, []byte("{")) {
			return
		}
		for name, value := range Each(object) {
			if !yield(string(name), value) {
				return
			}
		}
	}
}

// textOf returns the value of a JSON string; "": it is no string, or an empty one.
func textOf(value json.RawMessage) (text string) {
	_ = json.Unmarshal(value, &text)
	return text
}

// schema returns what call reads of the inputSchema of a tool.
func (i *listedItem) schema() (schema argumentsSchema) {
	_ = Bind(i.InputSchema, &schema) // the fields are JSON of any type
	return schema
}

// schemaOf returns the schema of one argument; nil: it has none.
func (i *listedItem) schemaOf(key string) json.RawMessage {
	for name, schema := range properties(i.schema().Properties) {
		if name == key {
			return schema
		}
	}
	return nil
}

// required returns the names of the required arguments.
func (s argumentsSchema) required() (names []string) {
	for element := range elements(s.Required) {
		name := textOf(element)
		if len(names) == maxRequired {
			break
		}
		names = append(names, name)
	}
	return names
}

// typesOf returns the types that a schema allows; nil: any. Without type, it reads
// anyOf and oneOf, with which many servers say that a value may be null, or enum.
func typesOf(schema json.RawMessage) (types []string) {
	var s valueSchema
	_ = Bind(schema, &s) // the fields are JSON of any type
	if name := textOf(s.Type); name != "" {
		return []string{name}
	}
	for element := range elements(s.Type) {
		if len(types) == maxTypes {
			return nil
		}
		types = append(types, textOf(element))
	}
	for _, alternatives := range []json.RawMessage{s.AnyOf, s.OneOf} {
		for element := range elements(alternatives) {
			var alternative valueSchema
			_ = Bind(element, &alternative)
			name := textOf(alternative.Type)
			if name == "" || len(types) == maxTypes {
				return nil
			}
			types = append(types, name)
		}
	}
	if types != nil {
		return types
	}
	for value := range elements(s.Enum) {
		if name := typeOfJSON(value); !slices.Contains(types, name) {
			types = append(types, name)
		}
	}
	return types
}

// describe returns the values of an enum, or the types, of a schema.
func describe(schema json.RawMessage) string {
	var s valueSchema
	_ = Bind(schema, &s)
	var values []string
	for value := range elements(s.Enum) {
		if len(values) == maxTypes {
			values = append(values, "…")
			break
		}
		values = append(values, shorten(string(value), 40))
	}
	if values == nil {
		values = typesOf(schema)
	}
	return cmp.Or(strings.Join(values, "|"), "any")
}

// signature returns a name and the arguments of a tool or a prompt, such as
// get-weather(city string, unit? "celsius"|"fahrenheit"). A question mark follows
// the name of an optional argument.
func (i *listedItem) signature() string {
	var list []string
	size := 0
	add := func(name, of string, isRequired bool) (isShown bool) {
		if !isRequired {
			name += "?"
		}
		shown := strings.TrimSpace(name + " " + of)
		list = append(list, shown)
		size += len(shown) + len(", ")
		return size < maxSignature
	}
	required := i.schema().required()
	for name, schema := range properties(i.schema().Properties) {
		if !add(name, describe(schema), slices.Contains(required, name)) {
			break
		}
	}
	for element := range elements(i.Arguments) {
		var a listedArgument
		_ = Bind(element, &a)
		if !add(a.Name, "", a.Required) {
			break
		}
	}
	return i.Name + "(" + shorten(strings.Join(list, ", "), maxSignature) + ")"
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

// printList prints one value a line, and the label before the first.
func (r *rows) printList(label string, values []string) {
	if len(values) == 0 {
		values = []string{"none"}
	}
	for _, value := range values {
		r.print(label, value)
		label = ""
		if r.err != nil {
			return
		}
	}
}

// summary prints how the server was reached and what it offers. If a list cannot
// be read, the next one is read all the same.
func (c *caller) summary(ctx context.Context, target []string) error {
	var out rows
	server := c.Server()
	capabilities, failed := capabilityNames(server.Capabilities)
	session := "none"
	if c.hasSession() {
		session = "yes"
	}
	out.print("target", strings.Join(target, " "))
	out.print("transport", c.transport)
	out.print("revision", server.Version)
	if server.Versions != nil {
		out.print("versions", strings.Join(server.Versions, ", "))
	}
	out.print("session", session)
	name := "it did not say"
	if server.Info != nil {
		name = strings.TrimSpace(server.Info.Name + " " + server.Info.Version + " " + server.Info.Title)
	}
	out.print("server", name)
	out.print("capabilities", strings.Join(capabilities, ", "))
	if server.Instructions != "" {
		out.printList("instructions", firstLines(server.Instructions))
	}
	for _, kind := range listKinds {
		if out.err != nil {
			break
		}
		if !slices.Contains(capabilities, kind.capability) {
			continue
		}
		lines, err := c.listLines(ctx, kind)
		if err != nil {
			if failed != nil { // only the last error is returned
				printError(failed)
			}
			failed = err
			lines = append(lines, "?")
		}
		out.printList(kind.label, lines)
	}
	return cmp.Or(out.err, failed)
}

const (
	maxLines    = 10  // of the instructions that a summary shows
	maxLineSize = 300 // characters of each of them
)

// firstLines returns the lines of a text that a summary shows.
func firstLines(text string) (shown []string) {
	for line := range strings.Lines(strings.TrimSpace(text)) {
		if len(shown) == maxLines {
			return append(shown, "… (-json prints all)")
		}
		shown = append(shown, shorten(strings.TrimRight(line, "\r\n"), maxLineSize))
	}
	return shown
}

// summaryJSON is what -json prints.
type summaryJSON struct {
	Target            []string          `json:"target"`    // the URL, or the command
	Transport         string            `json:"transport"` // stdio, Streamable HTTP or HTTP+SSE
	Revision          string            `json:"revision"`
	SupportedVersions []string          `json:"supportedVersions,omitempty"` // as server/discover says
	Session           bool              `json:"session"`
	ServerInfo        *Implementation   `json:"serverInfo,omitempty"`
	Capabilities      json.RawMessage   `json:"capabilities,omitempty"`
	Instructions      string            `json:"instructions,omitempty"`
	Tools             []json.RawMessage `json:"tools,omitzero"` // the items of the lists, as they came
	Resources         []json.RawMessage `json:"resources,omitzero"`
	ResourceTemplates []json.RawMessage `json:"resourceTemplates,omitzero"`
	Prompts           []json.RawMessage `json:"prompts,omitzero"`
	Errors            []string          `json:"errors,omitempty"` // of the lists that could not be read to their end
}

const maxOffer = 16 << 20 // bytes of the items that -json prints

// printOffer prints, as one JSON object, how the server was reached and what it
// offers. A list is there if the server has the capability for it.
func (c *caller) printOffer(ctx context.Context, target []string) (failed error) {
	server := c.Server()
	o := summaryJSON{Target: target, Transport: c.transport, Revision: server.Version, SupportedVersions: server.Versions,
		Session: c.hasSession(), ServerInfo: server.Info, Capabilities: server.Capabilities, Instructions: server.Instructions}
	capabilities, err := capabilityNames(server.Capabilities)
	if err != nil {
		return err
	}
	size := 0
	for _, kind := range listKinds {
		if !slices.Contains(capabilities, kind.capability) {
			continue
		}
		items := []json.RawMessage{}
		err := c.eachItem(ctx, kind, func(item json.RawMessage) error {
			size += len(item) + 24 // of a json.RawMessage itself
			if size > maxOffer {
				return fmt.Errorf("%s: more than %d bytes in the lists", kind.method, maxOffer)
			}
			items = append(items, bytes.Clone(item)) // item belongs to its page, which may be large
			return nil
		})
		if err != nil {
			o.Errors = append(o.Errors, err.Error())
			failed = errors.New("not all lists could be read: " + strings.Join(o.Errors, "; "))
		}
		*kind.in(&o) = items
	}
	encoded, err := toJSON(o)
	if err != nil {
		return err
	}
	return cmp.Or(printResult(encoded), failed)
}

// hasSession reports whether there is a session. Over HTTP+SSE the stream is the
// session. The modern era has no sessions.
func (c *caller) hasSession() bool {
	isLegacy := slices.Contains(legacyVersions(nil), c.Server().Version)
	return c.transport == "HTTP+SSE" || isLegacy && c.inSession.Load()
}

// capabilityNames returns the names of the capabilities of a server, sorted.
// With an error it returns those read before.
func capabilityNames(capabilities json.RawMessage) (sorted []string, err error) {
	var found nameList
	for name := range properties(capabilities) {
		err = found.add(name)
		if err != nil {
			err = fmt.Errorf("capabilities: %w", err)
			break
		}
	}
	slices.Sort(found.names)
	return found.names, err
}

// nameList is a list of names, or of lines, with a bound: a result of 64 MiB may
// hold millions of empty names.
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
	in         func(*summaryJSON) *[]json.RawMessage
}

var toolKind = listKind{label: "tools", capability: "tools", method: "tools/list", member: "tools",
	items: func(p *listedPage) json.RawMessage { return p.Tools },
	name:  (*listedItem).signature,
	in:    func(o *summaryJSON) *[]json.RawMessage { return &o.Tools }}

var listKinds = []listKind{
	toolKind,
	{label: "resources", capability: "resources", method: "resources/list", member: "resources",
		items: func(p *listedPage) json.RawMessage { return p.Resources },
		name:  func(i *listedItem) string { return i.URI },
		in:    func(o *summaryJSON) *[]json.RawMessage { return &o.Resources }},
	// A server may have resources and no templates.
	{label: "templates", capability: "resources", optional: true, method: "resources/templates/list", member: "resourceTemplates",
		items: func(p *listedPage) json.RawMessage { return p.ResourceTemplates },
		name:  func(i *listedItem) string { return i.URITemplate },
		in:    func(o *summaryJSON) *[]json.RawMessage { return &o.ResourceTemplates }},
	{label: "prompts", capability: "prompts", method: "prompts/list", member: "prompts",
		items: func(p *listedPage) json.RawMessage { return p.Prompts },
		name:  (*listedItem).signature,
		in:    func(o *summaryJSON) *[]json.RawMessage { return &o.Prompts }},
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

// listedItem is an item of any of the lists. It has one of the names, or two.
type listedItem struct {
	Name        string          `json:"name,omitempty"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	URI         string          `json:"uri,omitempty"`
	URITemplate string          `json:"uriTemplate,omitempty"`
	InputSchema json.RawMessage `json:"inputSchema,omitempty"` // of a tool
	Arguments   json.RawMessage `json:"arguments,omitempty"`   // of a prompt
}

const maxListPages = 1000

// listLines returns a line for each item of a list: what it is, and the first line
// of its description. With an error it returns the lines for those read before.
func (c *caller) listLines(ctx context.Context, kind listKind) ([]string, error) {
	var found nameList
	err := c.eachItem(ctx, kind, func(text json.RawMessage) error {
		var item listedItem
		_ = Bind(text, &item) // an item without a name has the name ""
		line := kind.name(&item)
		about := strings.TrimSpace(cmp.Or(item.Description, item.Title))
		about, _, _ = strings.Cut(about, "\n")
		if about != "" {
			line += "  " + shorten(about, maxFirstLine)
		}
		err := found.add(line)
		if err != nil {
			return fmt.Errorf("%s: %w", kind.method, err)
		}
		return nil
	})
	return found.names, err
}

// eachItem gives each item of a list to a function, page by page. If the function
// returns an error, that ends the walk, and eachItem returns it. 2026-07-28
// server/utilities/pagination: an empty cursor does not mean the end of the list.
func (c *caller) eachItem(ctx context.Context, kind listKind, take func(item json.RawMessage) error) error {
	params := "{}"
	for range maxListPages {
		var result json.RawMessage
		err := c.call(ctx, kind.method, params, &result)
		fault, isAnswer := errors.AsType[*Error](err)
		if kind.optional && isAnswer && fault.Code == CodeMethodNotFound {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", kind.method, err)
		}
		var page listedPage
		_ = Bind(result, &page) // the fields are JSON of any type
		items := kind.items(&page)
		if !bytes.HasPrefix(items, []byte("[")) {
			return fmt.Errorf("%s: no %s in the result", kind.method, kind.member)
		}
		for item := range elements(items) {
			if err := take(item); err != nil {
				return err
			}
		}
		if page.NextCursor == nil || string(page.NextCursor) == "null" {
			return nil
		}
		params = `{"cursor":` + string(page.NextCursor) + `}`
	}
	return fmt.Errorf("%s: no end of pages", kind.method)
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
	case method == "roots/list" && c.roots != nil:
		return RootsResult{c.roots}, nil
	case method == "sampling/createMessage" && c.sample != "":
		var p SamplingParams
		_ = x.Bind(&p)
		if p.Tools != nil || p.ToolChoice != nil { // 2025-11-25 schema CreateMessageRequestParams: an error, because sampling.tools was not declared
			return nil, InvalidParams("no tools can be used here")
		}
		return SamplingResult{Role: "assistant", Content: Contents{TextContent(c.sample)}, Model: "mcpwire", StopReason: "endTurn"}, nil
	}
	flagFor := map[string]string{"roots/list": "-root", "sampling/createMessage": "-sampling-answer"}
	if flagFor[method] != "" {
		fmt.Fprintf(c.stderr, "mcpwire: the server has asked for %s, which is refused without %s\n", method, flagFor[method])
	}
	return nil, MethodNotFound(method)
}

// printNotification prints a notification on a line of its own. At a terminal,
// progress is one line that changes.
func (c *caller) printNotification(x *Exchange) {
	method := x.Request.Method
	if method == "notifications/progress" {
		c.extendTimeout()
		var p progressShown
		if c.showsLine && x.Bind(&p) == nil && stderr.status(p.line()) {
			return
		}
	}
	fmt.Fprintln(c.stderr, strings.TrimSpace(Printable(method+" "+string(x.Request.Params))))
}

// progressShown is what a terminal shows of notifications/progress. 2025-11-25
// basic/utilities/progress.
type progressShown struct {
	Progress float64 `json:"progress"`
	Total    float64 `json:"total,omitempty"`
	Message  string  `json:"message,omitempty"`
}

// maxStatus is how many characters a status has. A line that is longer than the
// terminal is wide could not be erased.
const maxStatus = 78

// line returns the progress as one line, such as "3 of 10 (30%) reading".
func (p progressShown) line() string {
	text := fmt.Sprintf("%g", p.Progress)
	if p.Total > 0 {
		text += fmt.Sprintf(" of %g (%.0f%%)", p.Total, 100*p.Progress/p.Total)
	}
	return shorten(strings.TrimSpace(Printable(text+" "+p.Message)), maxStatus)
}

// elicit answers elicitation/create. If -answer is set, that is the answer.
// Otherwise the user is asked at the terminal. Without a terminal elicit declines.
func (c *caller) elicit(ctx context.Context, x *Exchange) (any, error) {
	var p formParams
	_ = x.Bind(&p) // the user is asked even if a part of the form is damaged
	switch {
	case p.Mode != "" && p.Mode != "form": // 2025-11-25 client/elicitation: a mode that was not declared is -32602
		return nil, InvalidParams("only forms can be filled in here, not mode '%s'", p.Mode)
	case len(c.reply) > 0:
		return ElicitResult{Action: "accept", Content: c.reply}, nil
	case c.atTerminal:
		return c.askUser(ctx, p)
	}
	return ElicitResult{Action: "decline"}, nil
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
	filled := make(chan ElicitResult, 1)
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
func (c *caller) fillIn(p formParams) ElicitResult {
	c.form.Lock() // one form at a time
	defer c.form.Unlock()
	fmt.Fprintln(c.stderr, Printable(p.Message))
	var content Object
	properties := p.RequestedSchema.Properties
	if !bytes.HasPrefix(properties, []byte("{")) {
		properties = nil
	}
	for name, schema := range Each(properties) {
		var property formProperty
		_ = Bind(schema, &property) // a type that is no string counts as none
		fmt.Fprintf(c.stderr, "%s (%s): ", Printable(string(name)), Printable(property.Type))
		if !c.input.Scan() {
			return ElicitResult{Action: "cancel"}
		}
		value := property.parse(strings.TrimSpace(c.input.Text()))
		if value != nil {
			content.Add(string(name), value)
		}
	}
	return ElicitResult{Action: "accept", Content: content.JSON()}
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
	text, _ := toJSON(typed)
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
//	marked arguments (x-mcp-header)   bridged.marks: the Conn of HTTPDialer repeats them in the header, if the client has
//	                                  listed the tools before; tools with invalid marks are left out of the list
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
	drainTime      = 5 * time.Second  // for a server with a URL to answer, when the client has hung up
	endTime        = 2 * time.Second  // for the client to read the last answers
	maxShown       = 1000             // characters of a text of the peer that are logged

	// Clients may kill the bridge four seconds after they have hung up. By then a
	// command that ignores the end of input, and SIGTERM, must have been killed. It
	// has drainCommand to answer, and bridgeGrace for each step of its end.
	drainCommand = 1500 * time.Millisecond
	bridgeGrace  = time.Second

	maxQueued = 1 << 20 // bytes of the client's messages that wait until the server has taken those before them
	queueUnit = 4 << 10 // bytes; each payload counts as a multiple of this
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
		queue:   make(chan Payload, maxQueued/queueUnit),
		queued:  make(chan struct{}, maxQueued/queueUnit),
		posts:   make(chan struct{}, maxPosts),
		changed: make(chan struct{}, 1),
		waiting: map[string]waitingCall{},
	}
	b.written.L = &b.mu
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
	queue   chan Payload  // from readClient to passOn; closed when the client has hung up
	queued  chan struct{} // has a value for each queueUnit of what is in queue; it has room for maxQueued
	posts   chan struct{} // has room for maxPosts; each POST holds a place
	changed chan struct{} // has room for one; gets a value when a request has left waiting
	marks   ToolMarks     // of the server's tools

	mu        sync.Mutex             // guards the fields below
	waiting   map[string]waitingCall // requests of the client without an answer, by idKey
	answering int                    // requests that have left waiting, and whose answer is not written yet
	written   sync.Cond              // of mu; is told when answering becomes less
}

// units returns how many values of bridged.queued a payload has. A large one has all.
func units(p Payload) int { return min(len(p.Raw()), maxQueued-1)/queueUnit + 1 }

// waitingCall is what the bridge keeps of a request of the client.
type waitingCall struct {
	id     ID
	method string
}

// run passes messages until the bridge ends. Then it shuts the server down, and
// answers the requests that are still waiting.
func (b *bridged) run() error {
	ended := make(chan struct{})
	go func() { // ends when the client has read everything, or with the program
		b.readServer()
		<-b.ctx.Done()
		b.failAll(context.Cause(b.ctx))
		b.awaitWritten()
		close(ended)
	}()
	go b.readClient() // ends with the input, or with the program
	go b.passOn()     // likewise
	<-b.ctx.Done()
	why := context.Cause(b.ctx)
	err := b.server.Close() // meanwhile readServer passes on what the server still says
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

// readClient is the loop that reads what the client sends. It only puts that into the
// queue: so it sees at once that the client has hung up, even if the server takes no
// message.
func (b *bridged) readClient() {
	defer close(b.queue)
	for {
		next, err := b.client.Read()
		switch {
		case b.ctx.Err() != nil: // the bridge has ended
			return
		case err == io.EOF:
			time.AfterFunc(b.drainTime(), func() { b.end(errClientGone) })
			return
		case err != nil:
			b.end(fmt.Errorf("standard input: %w", err))
			return
		}
		for range units(next) {
			select {
			case b.queued <- struct{}{}:
			case <-b.ctx.Done():
				return
			}
		}
		b.queue <- next // there is room: each has a unit at least
	}
}

// passOn is the loop that passes on what is in the queue. When the client has hung up,
// it waits until the server has answered all requests, but no longer than drainTime. A
// subscription has no answer before its end, so passOn does not wait for it.
func (b *bridged) passOn() {
	for next := range b.queue {
		for range units(next) { // before the server has taken it, so that readClient goes on meanwhile
			<-b.queued
		}
		b.toServer(next)
	}
	b.await(b.drainTime(), func(method string) bool { return method != "subscriptions/listen" })
	b.end(errClientGone)
}

// drainTime is how long the server may answer when the client has hung up.
func (b *bridged) drainTime() time.Duration {
	if b.isURL {
		return drainTime
	}
	return drainCommand
}

// awaitInitialize waits until initialize is answered, if it was sent. The answer
// names the session and the revision, and all later messages must repeat them.
func (b *bridged) awaitInitialize() {
	b.await(initializeTime, func(method string) bool { return method == "initialize" })
}

// await waits until no request for certain methods is waiting, for at most limit.
// Only the goroutine of passOn calls it.
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
		b.answer(NewResponse(m.ID, nil, fmt.Errorf("mcpwire bridge: the id is that of another request that waits, or more than %d wait for an answer", maxWaiting)))
		return false
	case m.Method == "notifications/cancelled":
		var params CancelledParams
		_ = Bind(m.Params, &params) // params that are wrong are the server's to refuse
		if _, isWaiting := b.take(string(params.RequestID)); isWaiting {
			b.answered(1) // there is no answer to write
		}
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
	go func() { // ends when the server has taken the message, or is closed
		b.writeToServer(ctx, out)
		onWire() // if it could not be sent
		<-b.posts
	}()
	<-wire
}

// writeToServer writes a payload to the server. If that fails, the requests in the payload
// are answered with the error. When the bridge ends, run answers them.
func (b *bridged) writeToServer(ctx context.Context, out Payload) {
	err := b.server.Write(b.marks.In(ctx), out)
	if err == nil || b.ctx.Err() != nil {
		return
	}
	for _, m := range out.Messages {
		if m.Kind() == Request {
			b.fail(m.ID, err)
		} else {
			b.log.Warn("the server has not taken a message", "error", Printable(shorten(err.Error(), maxShown)))
		}
	}
	b.checkSession(err)
}

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
		default:
			b.toClient(in)
		}
	}
}

// takeReport takes in what the transport says about itself.
func (b *bridged) takeReport(in Payload) {
	if in.Lost != nil { // any of the requests may be the one whose answer is lost
		b.failAll(in.Lost)
	}
	if in.Report != nil {
		b.log.Info("transport", "report", Printable(shorten(in.Report.Error(), maxShown)))
	}
	b.checkSession(in.Report)
}

// refuse answers a message of the server that is invalid, such as a request that is too
// large. It does so on a goroutine, because the server may not read before we read on. A
// server that does not read at all gets no more of these answers than there is room in
// posts.
func (b *bridged) refuse(m *Message) {
	select {
	case b.posts <- struct{}{}:
	default:
		b.log.Warn("a request of the server was not answered", "error", Printable(shorten(m.Error.Message, maxShown)))
		return
	}
	go func() { // ends when the server has taken the answer, or is closed
		b.writeToServer(b.ctx, Payload{Messages: []*Message{m}})
		<-b.posts
	}()
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
	b.takeReport(in)
	out := Payload{Batch: in.Batch}
	answers := 0
	for _, m := range in.Messages {
		isAnswer := m.Kind() == Response && m.ID != ID{}
		switch {
		case m.Kind() == Invalid && m.ID != ID{}:
			b.refuse(m)
		case m.Kind() == Invalid:
			b.log.Warn("dropped what is no message", "reason", Printable(shorten(m.Error.Error(), maxShown)))
		case isAnswer && m.Unusable() != nil: // it breaks the rules, or the transport has lost it
			b.fail(m.ID, m.Unusable())
			b.checkSession(m.Unusable())
		case isAnswer:
			call, isWaiting := b.take(m.ID.String())
			if !isWaiting {
				b.log.Info("dropped an answer that no request waits for", "id", Printable(shorten(m.ID.String(), maxShown)))
				continue
			}
			if call.method == "tools/list" {
				b.learnMarks(m)
			}
			answers++
			out.Messages = append(out.Messages, valid(m))
		default:
			out.Messages = append(out.Messages, valid(m))
		}
	}
	if len(out.Messages) > 0 {
		b.writeToClient(out)
		b.answered(answers)
	}
}

// learnMarks reads the answer to tools/list, and leaves tools with invalid marks out.
func (b *bridged) learnMarks(answer *Message) {
	valid, reports := b.marks.Learn(answer.Result)
	answer.Result = valid
	for _, report := range reports {
		b.log.Info("transport", "report", Printable(shorten(report.Error(), maxShown)))
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

// add notes a request. It returns false if too many are waiting, or if another one with
// this id is: then there would be no telling whose answer comes.
func (b *bridged) add(m *Message) bool {
	key := idKey(m.ID.String())
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, isWaiting := b.waiting[key]; isWaiting || len(b.waiting) >= maxWaiting {
		return false
	}
	b.waiting[key] = waitingCall{m.ID, m.Method}
	return true
}

// take removes the request with an id, which is JSON text, from waiting. It returns
// false if no such request is waiting. So each request gets one answer. After true, the
// caller writes the answer, and then calls answered.
func (b *bridged) take(id string) (call waitingCall, isWaiting bool) {
	key := idKey(id)
	b.mu.Lock()
	defer b.mu.Unlock()
	call, isWaiting = b.waiting[key]
	delete(b.waiting, key)
	if isWaiting {
		b.answering++
	}
	select {
	case b.changed <- struct{}{}:
	default: // await has not read the value before
	}
	return call, isWaiting
}

// answered notes that the answers to n requests are written. They have left waiting before.
func (b *bridged) answered(n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answering -= n
	b.written.Broadcast()
}

// awaitWritten waits until the answer to each request that has left waiting is written.
// The program must not end before.
func (b *bridged) awaitWritten() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.answering > 0 {
		b.written.Wait()
	}
}

// idKey returns a text that is the same for all spellings of an id: a server may
// escape the characters of a string in another way than the client, and write 0 for
// -0.
func idKey(id string) string {
	var text string
	switch {
	case json.Unmarshal([]byte(id), &text) == nil:
		return "string " + text
	case id == "-0":
		return "0"
	}
	return id
}

// fail answers a request with an error, if the request is waiting. The error of
// a JSON-RPC response is passed on as it is.
func (b *bridged) fail(id ID, err error) {
	if _, isWaiting := b.take(id.String()); isWaiting {
		b.answer(NewResponse(id, nil, fmt.Errorf("mcpwire bridge: %w", err)))
		b.answered(1)
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
	mayBeSSE := out.Messages[0].Method == "initialize" && errors.Is(err, ErrOtherServer)
	if isSSE || !mayBeSSE {
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

// trace writes a transcript to standard error, and to those who watch it on the
// page. Neither write ever waits, so a mutex may be held meanwhile.
type trace struct {
	isSilent bool      // nothing is written to standard error
	watchers *watchers // nil: there is no page with the transcript

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

// limit returns how many bytes are collected of a body, or of a line of a stream. The
// page shows no more than maxShownBody, so no more is collected for it. While nothing
// is printed and no page watches, only the beginning of a line is collected: it may
// give an id to a session.
func (t *trace) limit(isStream bool) int {
	switch {
	case !t.isSilent && isStream:
		return maxTraced
	case !t.isSilent:
		return maxTracedBody
	case t.watchers.exist():
		return maxShownBody
	case isStream:
		return maxNamedID
	}
	return 0
}

// print writes a text in a section. session is the name of the session that the
// text belongs to; "": there is none, or it is not known. If standard error drops
// the text, the line that names the section may be lost, so the next text names it
// again.
func (t *trace) print(section, session, text string) {
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
		text := string(bytes.TrimSpace(p.Raw()))
		t.print(t.there, "", visible(text)+"\n")
	}
	return p, err
}

// Write prints what it sends.
func (t *tracedConn) Write(ctx context.Context, p Payload) error {
	t.print(t.here, "", visible(string(p.Append(nil)))+"\n")
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
	session  string     // the name of its session; "": none is known
	pending  string     // the head of the request, until it is printed
	gap      string     // comes before the body of the response: an empty line, until it is printed
	isStream bool       // the response is a stream
	skipLF   bool       // the last byte was CR: an LF that follows belongs to it
	partial  []byte     // the body, or the line of a stream, whose end has not come yet
	omitted  int        // bytes after partial that are not collected
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
	x.collect(part)
	if isEnd {
		x.printRequest("\n" + x.takePartial())
	}
}

// responseHead prints the status and header of the response. If the request is
// not printed yet, its body has not been read to the end.
func (x *exchange) responseHead(status int, header http.Header) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.printRequest("\n(not read to its end)\n")
	x.printAs("server", fmt.Sprintf("%d\n%s", status, tracedHeader(header)), "")
	x.gap = "\n"
	media, _, _ := mime.ParseMediaType(header.Get("Content-Type")) // with an error, media is what could be read
	x.isStream = media == "text/event-stream"
}

// addToResponse takes a part of the response's body. It prints the lines of a
// stream that are complete; they end with CR, LF or CRLF. It prints any other
// body at its end.
func (x *exchange) addToResponse(part []byte, isEnd bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	var lines strings.Builder
	for x.isStream && len(part) > 0 {
		if x.skipLF && part[0] == '\n' {
			part = part[1:]
		}
		x.skipLF = false
		end := bytes.IndexAny(part, "\r\n")
		if end < 0 {
			break
		}
		x.collect(part[:end])
		lines.WriteString(x.takePartial())
		x.skipLF = part[end] == '\r'
		part = part[end+1:]
	}
	x.collect(part)
	if isEnd && len(x.partial)+x.omitted > 0 {
		lines.WriteString(x.takePartial())
	}
	switch {
	case lines.Len() == 0:
		return
	case x.isStream:
		x.printAs("server", x.gap+lines.String(), "")
	default:
		x.printAs("server", "", x.gap+lines.String())
	}
	x.gap = ""
}

// collect adds a part to partial. A body, or a line without an end, would need any
// amount of memory, so only its beginning is collected. The caller holds turn.
func (x *exchange) collect(part []byte) {
	room := 0
	if x.omitted == 0 { // what follows an omitted part is omitted, too
		room = max(x.limit(x.isStream)-len(x.partial), 0)
	}
	n := min(len(part), room)
	x.partial = append(x.partial, part[:n]...)
	x.omitted += len(part) - n
}

// failed prints the error of a request that has no response.
func (x *exchange) failed(err error) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.printAs("server", Printable(err.Error())+"\n", "")
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
	x.partial = nil // a stream may stay open for long, and its longest line was long
	x.omitted = 0
	return text + "\n"
}

// printRequest prints the request, unless it is printed already. The caller holds
// turn.
func (x *exchange) printRequest(body string) {
	if x.pending == "" {
		return
	}
	x.printAs("client", x.pending, body)
	x.pending = ""
	x.partial = nil // from now on, it is for the response
	x.omitted = 0
}

// printAs prints what the client or the server has sent: a head or lines of a stream,
// in which names stand for ids, and a body. The first name of a session is that of the
// exchange. The caller holds turn.
func (x *exchange) printAs(side, lines, body string) {
	lines, session := x.rename(visible(lines), side == "server")
	x.session = cmp.Or(x.session, session)
	x.print(side+" "+x.name, x.session, lines+visible(body))
}

// onOneLine returns JSON as it came, or without white space if it has line breaks.
func onOneLine(text json.RawMessage) []byte {
	if !bytes.ContainsAny(text, "\r\n") {
		return slices.Clip(text)
	}
	var line bytes.Buffer
	_ = json.Compact(&line, text) // it is valid
	return line.Bytes()
}

// toJSON encodes a value as one line of JSON. Unlike json.Marshal it leaves <, > and &
// as they are.
func toJSON(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	encoder := json.NewEncoder(&b)
	encoder.SetEscapeHTML(false)
	err := encoder.Encode(v)
	return bytes.TrimSpace(b.Bytes()), err
}

// legacyVersions returns those versions that begin with initialize, newest first.
// An empty list stands for all versions. The library has a function for this, but main.go uses
// exported names alone, as a program does that imports a copy.
func legacyVersions(versions []string) (legacy []string) {
	for _, rev := range Revisions {
		if !rev.Modern && (len(versions) == 0 || slices.Contains(versions, rev.Version)) {
			legacy = append(legacy, rev.Version)
		}
	}
	return legacy
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
var tracedFields = lazyRegexp("^(Accept|Allow|Authorization|Content-Type|Last-Event-Id|Mcp-(Session-Id|Protocol-Version|Method|Name|Param-.*)|Origin|Retry-After|Www-Authenticate|Access-Control-.*)$")

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
	// line of a request, or the data of an event endpoint, which may be any relative
	// URL. JSON begins with another character. An id in a path stays.
	queryLine = lazyRegexp(`(?mi)^(\S+ (/|https?://)|data: *[^\s{}"\[\]])\S*`)
	// queryPart matches one name and value of a query.
	queryPart = lazyRegexp(`[?&][^&\s]*`)
	// idLine matches a line with the id of a session, or the beginning of a line
	// with the id of an event, up to the end of its tag. See Session.Tag.
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
// kept. session is the first name of a session in the text; "": there is none.
func (t *trace) rename(text string, fromServer bool) (renamed, session string) {
	nameOf := func(id string) string {
		name := t.nameSession(id, fromServer)
		if name != noName {
			session = cmp.Or(session, name)
		}
		return name
	}
	text = queryLine().ReplaceAllStringFunc(text, func(line string) string {
		return queryPart().ReplaceAllStringFunc(line, func(part string) string {
			name, value, hasName := strings.Cut(part, "=")
			if !hasName { // it may be a secret by itself
				return part[:1] + noName
			}
			if name == "?session" || name == "&session" { // of the transport of 2024-11-05
				return name + "=" + nameOf(value)
			}
			return name + "=" + noName
		})
	})
	renamed = idLine().ReplaceAllStringFunc(text, func(line string) string {
		field, value, _ := strings.Cut(line, ": ")
		if field == "Mcp-Session-Id" {
			return field + ": " + nameOf(value)
		}
		return field + ": " + t.nameTag(value)
	})
	return renamed, session
}

// noName stands for what is hidden, and for a session without a name.
const noName = "…"

// nameSession returns the name of a session. If the session has none, it is given
// one, and its event tag, too, if mayAdd is true. When maxNames sessions have a
// name, the oldest one loses it.
func (t *trace) nameSession(id string, mayAdd bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := t.names[id]
	if name != "" {
		return name
	}
	if !mayAdd || len(id) > maxNamedID {
		return noName
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

// nameTag returns what the trace shows in place of an event tag.
func (t *trace) nameTag(tag string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.names[tag], tag)
}

// eventTag returns how the ids of all events of a session begin.
func eventTag(id string) string { return (&Session{ID: id}).Tag() + "." }

// ======== The page ========
//
// A browser that asks for / or /mcp gets one page: what this is, how to connect, and
// the lessons, drawn by the script of the page. With -watch the page also shows what
// all clients and the server say to each other:
//
//	exchange --print--> trace --show--> watchers --> one watcher for each page --> GET /watch
//
// The page holds nothing of any conversation, so everybody may load it. GET /watch is
// for those who may call the server: it is behind the same Guard and the same token.

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
		mux.Handle("/watch", guard.Wrap(&o.watchers))
	}
	return mux
}

// asksForPage reports whether a request is for the page. A client of MCP asks for
// events with its GET, and never gets the page. At the endpoint only a GET that asks
// for HTML gets it: clients that do not say what they want are there, too.
func asksForPage(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	accept := strings.ToLower(strings.Join(r.Header.Values("Accept"), ","))
	wantsEvents := strings.Contains(accept, "text/event-stream")
	wantsHTML := strings.Contains(accept, "text/html")
	switch r.URL.Path {
	case "/":
		return !wantsEvents
	case "/mcp", "/mcp/":
		return wantsHTML && !wantsEvents
	}
	return false
}

// pageData is what the script of the page is given.
type pageData struct {
	Version string       `json:"version"`
	Token   bool         `json:"token"` // the server wants a token
	Watch   bool         `json:"watch"` // there is a GET /watch
	Lessons []pageLesson `json:"lessons"`
}

// pageLesson is a file of testdata. The script of the page reads its notation.
type pageLesson struct {
	Name string `json:"name"` // such as 01-stdio-handshake
	Text string `json:"text"`
}

// renderedPage is the handler of the page, as it is sent.
type renderedPage struct {
	body   string
	policy string // the Content-Security-Policy
}

// pageDataPlace is where the page has its data. A browser does not run a script of
// this type. JSON as json.Marshal writes it has no <, so it cannot end the script.
const pageDataPlace = `<script type="application/json" id="data">{}</script>`

// renderPage puts the data into the page. The policy allows the one script and the
// one style of the page by their hashes, and requests to this server. It allows
// nothing else, so a text that gets into the page by mistake can do no harm: W3C,
// Content Security Policy Level 3.
func (o *options) renderPage() renderedPage {
	data := pageData{Version: version, Token: o.token != "", Watch: o.watch}
	names, _ := fs.Glob(lessonFiles, "testdata/*") // sorted; no error, because the pattern is good
	for _, name := range names {
		text, _ := lessonFiles.ReadFile(name) // it is there
		_, file, _ := strings.Cut(name, "/")
		data.Lessons = append(data.Lessons, pageLesson{strings.TrimSuffix(file, ".txtar"), string(text)})
	}
	encoded, _ := json.Marshal(data) // texts and booleans can be encoded
	filled := strings.Replace(pageDataPlace, "{}", string(encoded), 1)
	policy := "default-src 'none'; script-src " + hashOf("script") + "; style-src " + hashOf("style") +
		"; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
	return renderedPage{strings.Replace(pageFile, pageDataPlace, filled, 1), policy}
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

// isOfOtherPage reports whether a page of another origin has made a request. The Guard
// does not see that: a browser sends no Origin with the GET of an image, of a frame or
// of a fetch without CORS. W3C, Fetch Metadata, Sec-Fetch-Site: a client that is no browser does
// not send the field, and none means that the user has typed the address.
func isOfOtherPage(r *http.Request) bool {
	site := r.Header.Get("Sec-Fetch-Site")
	return site == "cross-site" || site == "same-site"
}

// ServeHTTP sends the page.
func (p renderedPage) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	header.Set("Content-Type", "text/html; charset=utf-8")
	header.Set("Content-Length", strconv.Itoa(len(p.body)))
	header.Set("Content-Security-Policy", p.policy)
	keepFromOthers(header)
	header.Set("Referrer-Policy", "no-referrer")
	header.Set("Cache-Control", "no-cache")
	header.Add("Vary", "Accept")
	_, _ = io.WriteString(w, p.body) // fails only if the browser has gone
}

// ---- Those who watch ----

const (
	maxWatchers  = 8
	maxBehind    = 1 << 20          // bytes that wait for one watcher
	maxPart      = 64 << 10         // bytes that are shown of one part
	maxShownBody = maxPart - 4<<10  // of them, bytes of a body or a line; the rest is for the head before it
	watchSilence = 15 * time.Second // then a comment is sent; it is less than ioTimeout
)

// shown is a part of the transcript, as the data of an event on GET /watch.
type shown struct {
	Section string `json:"section,omitempty"` // such as "client A"
	Session string `json:"session,omitempty"` // such as "session-1"; "": none is known
	Text    string `json:"text,omitempty"`    // lines in the notation of the trace
	Missing int    `json:"missing,omitempty"` // in place of the others: how many lines are missing here
}

// event returns a part as an event.
func (s shown) event() []byte {
	data, _ := toJSON(s) // texts and a number can be encoded
	return Event{Data: data}.Append(nil)
}

// watchers are the pages that watch the server. The zero watchers has none.
type watchers struct {
	mu    sync.Mutex // guards the fields below, and those of each watcher
	all   []*watcher
	ended bool
}

// watcher is one page that watches. When maxBehind bytes are waiting, it misses
// lines until it has taken them.
type watcher struct {
	waiting []byte        // events
	missing int           // lines that come after them
	news    chan struct{} // has a value when something has changed
}

// exist reports whether somebody watches.
func (ws *watchers) exist() bool {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	return len(ws.all) > 0
}

// show passes a part of the transcript on to all watchers. It never waits for them.
func (ws *watchers) show(part shown) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if len(ws.all) == 0 {
		return
	}
	lines := strings.Count(part.Text, "\n")
	if more := len(part.Text) - maxPart; more > 0 {
		beginning := strings.ToValidUTF8(part.Text[:maxPart], "") // the cut may be inside of a character
		part.Text = fmt.Sprintf("%s (… %d more bytes)\n", beginning, more)
	}
	event := part.event()
	for _, w := range ws.all {
		if w.missing > 0 || len(w.waiting)+len(event) > maxBehind {
			w.missing += lines
		} else {
			w.waiting = append(w.waiting, event...)
		}
		w.wake()
	}
}

// wake tells the goroutine of the watcher that something has changed. The caller
// holds the mutex of watchers.
func (w *watcher) wake() {
	select {
	case w.news <- struct{}{}:
	default: // it has not taken the last news yet
	}
}

// take returns the events for a watcher, and whether these are the last.
func (ws *watchers) take(w *watcher) (events []byte, isEnd bool) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	events = w.waiting
	if w.missing > 0 {
		events = append(events, shown{Missing: w.missing}.event()...)
	}
	w.waiting = nil
	w.missing = 0
	return events, ws.ended
}

// join returns a new watcher. nil: there are too many, or the server ends.
func (ws *watchers) join() *watcher {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	if ws.ended || len(ws.all) == maxWatchers {
		return nil
	}
	w := &watcher{news: make(chan struct{}, 1)}
	ws.all = append(ws.all, w)
	return w
}

// leave makes room for another watcher.
func (ws *watchers) leave(w *watcher) {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.all = slices.DeleteFunc(ws.all, func(other *watcher) bool { return other == w })
}

// end ends the responses to all watchers.
func (ws *watchers) end() {
	ws.mu.Lock()
	defer ws.mu.Unlock()
	ws.ended = true
	for _, w := range ws.all {
		w.wake()
	}
}

// ServeHTTP sends the transcript to a page, from now on, until the page or the server
// ends that. A page of another origin could not read it, but would take the place of
// one that can.
func (ws *watchers) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	keepFromOthers(w.Header())
	if isOfOtherPage(r) {
		http.Error(w, "Only the page of this server", http.StatusForbidden)
		return
	}
	if r.Method != http.MethodGet {
		w.Header().Set("Allow", http.MethodGet)
		http.Error(w, "Only GET", http.StatusMethodNotAllowed)
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
	response := http.NewResponseController(w)
	_ = response.SetReadDeadline(time.Time{}) // the request has been read
	silence := time.NewTicker(watchSilence)
	defer silence.Stop()
	text := []byte(": the transcript begins here\n\n")
	for isEnd := false; ; {
		// The next write comes before this deadline has passed: see watchSilence.
		_ = response.SetWriteDeadline(time.Now().Add(ioTimeout))
		_, err := w.Write(text)
		if isEnd || cmp.Or(err, response.Flush()) != nil {
			return
		}
		select {
		case <-me.news:
			text, isEnd = ws.take(me)
		case <-silence.C:
			text = []byte(": keep-alive\n\n")
		case <-r.Context().Done():
			return
		}
	}
}

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
	showsStatus   bool          // the last text was a status
	unfinished    bool          // the last text did not end its line, and was no status
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
