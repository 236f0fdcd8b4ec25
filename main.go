// Mcpwire is the wire of the Model Context Protocol in one flat package that imports only the standard library: messages, stdio, HTTP, and
// the lifecycle of all five revisions, from both ends. As a program it is a tiny demo server and a client for any server:
//
//	mcpwire                                          serve the demo on standard input and output
//	mcpwire -http :8080                              serve it over HTTP, at http://127.0.0.1:8080/mcp
//	mcpwire call http://127.0.0.1:8080/mcp           say how a server was reached and what it offers
//	mcpwire call COMMAND [ARG...]                    start a server, and say the same
//	mcpwire call -method tools/list COMMAND [ARG...] call one method and print its result
//
// The library is jsonrpc.go (messages, and talking to one peer), stdio.go (lines over a byte stream), sse.go (events over HTTP), session.go
// (the lifecycle) and http.go (Streamable HTTP), to be read in that order; none of them needs this file, which is the demo. README.md says
// which to copy for what.
package main

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
	"net"
	"net/http"
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
	fmt.Fprintln(stderr, printable(fmt.Sprintf("mcpwire: "+format, args...)))
	return exit
}

// printable keeps what others have sent from moving the cursor, or looking like a line of ours.
func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return utf8.RuneError
	}, text)
}

// ---- Serving ----

// options are what the flags of a server say.
type options struct {
	http, token, authServer, replica, stateKey, versions, tlsCert, tlsKey string
	stateless, trace, version                                             bool
	ttl, keepAlive                                                        time.Duration
	maxSessions, maxBody, eventBuffer                                     int
	origins, hosts                                                        list
}

// list is a flag that may be given more than once.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

// Set adds a value.
func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}

const serveUsage = `usage: mcpwire [flags]              serve the demo on stdin and stdout
       mcpwire -http ADDR [flags]   serve it over HTTP: Streamable HTTP at /mcp, the transport of 2024-11-05 at /sse
       mcpwire call -h              the client`

func (o *options) define(flags *flag.FlagSet) {
	flags.StringVar(&o.http, "http", "", "serve HTTP at `address`; without a host it is 127.0.0.1")
	flags.BoolVar(&o.stateless, "stateless", false, "no sessions: every POST stands alone")
	flags.DurationVar(&o.ttl, "session-ttl", 30*time.Minute, "end a session that has been idle for so `long`")
	flags.IntVar(&o.maxSessions, "max-sessions", 10_000, "sessions at once, a `number`")
	flags.IntVar(&o.maxBody, "max-body", 4<<20, "`bytes` in one message")
	flags.IntVar(&o.eventBuffer, "event-buffer", 256, "`events` that a stream keeps for Last-Event-ID; 0: none, and no event ids")
	flags.DurationVar(&o.keepAlive, "keepalive", 15*time.Second, "comment on a stream after so `long` a silence; 0: none")
	flags.Var(&o.origins, "allow-origin", "`origin` to let in, with CORS answers, such as https://app.example.com; repeatable (default loopback, without CORS)")
	flags.Var(&o.hosts, "allow-host", "value of `Host` to let in on a loopback address; repeatable (default loopback names)")
	flags.StringVar(&o.token, "token", "", "require Authorization: Bearer `token` (default $MCPWIRE_TOKEN, or none)")
	flags.StringVar(&o.authServer, "auth-server", "", "`URL` of the authorization server that metadata names")
	flags.StringVar(&o.replica, "replica", "", "`name` that begins session ids, so that a proxy can route by it")
	flags.StringVar(&o.stateKey, "state-key", "", "`key` of requestState, the same on all replicas (default $MCPWIRE_STATE_KEY, or random)")
	flags.StringVar(&o.tlsCert, "tls-cert", "", "serve HTTPS with the certificate in this `file`")
	flags.StringVar(&o.tlsKey, "tls-key", "", "and the key in this `file`")
	flags.StringVar(&o.versions, "versions", "", "protocol versions to offer, as a comma-separated `list` (default all)")
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
	flags.BoolVar(&o.version, "version", false, "print the version")
}

var hostName = regexp.MustCompile(`^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]+)?$`)

// check returns what is wrong with the flags, "" if nothing is.
func (o *options) check(flags *flag.FlagSet) (wrong string) {
	for name, bad := range map[string]bool{"max-body": o.maxBody <= 0, "max-sessions": o.maxSessions <= 0, "session-ttl": o.ttl <= 0,
		"event-buffer": o.eventBuffer < 0, "keepalive": o.keepAlive < 0} {
		if bad {
			return "-" + name + " is out of range"
		}
	}
	for _, origin := range o.origins {
		u, err := url.Parse(origin)
		if origin != "null" && (err != nil || u.Scheme == "" || u.Host == "" || !strings.EqualFold(u.Scheme+"://"+u.Host, origin) || strings.Contains(origin, "*")) {
			return fmt.Sprintf("-allow-origin %q: an origin is SCHEME://HOST[:PORT]", origin)
		}
	}
	for _, host := range o.hosts {
		if !hostName.MatchString(host) {
			return fmt.Sprintf("-allow-host %q: it is HOST[:PORT]", host)
		}
	}
	flags.Visit(func(f *flag.Flag) { // as an unset variable of a shell makes it: no reason to serve without a token
		if f.Value.String() == "" {
			wrong = "-" + f.Name + " is empty"
		}
	})
	if wrong != "" {
		return wrong
	}
	if o.http != "" {
		if _, _, err := net.SplitHostPort(o.http); err != nil {
			return "-http: " + err.Error()
		}
	}
	switch u, err := url.Parse(o.authServer); {
	case flags.NArg() > 0:
		return fmt.Sprintf("unexpected argument %q (-h for help)", flags.Arg(0))
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return "-tls-cert and -tls-key go together"
	case strings.ContainsFunc(o.replica, func(r rune) bool { return r <= ' ' || r > '~' }):
		return "-replica must be visible ASCII"
	case o.authServer != "" && (err != nil || u.Host == "" || u.Scheme != "https" && u.Scheme != "http"):
		return "-auth-server takes a URL"
	case o.http == "":
		flags.Visit(func(f *flag.Flag) {
			if !slices.Contains([]string{"http", "max-body", "state-key", "versions", "trace", "version"}, f.Name) {
				wrong = "-" + f.Name + " goes with -http"
			}
		})
	}
	return wrong
}

func serve(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	var o options
	flags := flag.NewFlagSet("mcpwire", flag.ContinueOnError)
	o.define(flags)
	if done, exit := parse(flags, args, serveUsage, stdout, stderr); done {
		return exit
	}
	offered, err := parseVersions(o.versions)
	switch wrong := o.check(flags); {
	case o.version:
		fmt.Fprintln(stdout, "mcpwire", version)
		return 0
	case wrong != "":
		return fail(stderr, exitUsage, "%s", wrong)
	case err != nil:
		return fail(stderr, exitUsage, "-versions: %v", err)
	}
	demo := newDemo()
	demo.Versions, demo.StateKey = offered, []byte(cmp.Or(o.stateKey, os.Getenv("MCPWIRE_STATE_KEY")))
	level := slog.LevelInfo
	if o.trace { // which shows the rest, and is to be replayed
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	if o.http != "" {
		err = serveHTTP(ctx, &o, demo, stderr, log)
	} else {
		conn := StdioConn(o.maxBody)
		if o.trace {
			conn = &tracedConn{Conn: conn, here: "server", there: "client"}
		}
		err = Serve(ctx, conn, demo, log)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, syscall.EPIPE) { // a client that is gone is how a server's life ends
		return fail(stderr, exitError, "%v", err)
	}
	return 0
}

// serveHTTP serves the demo until ctx ends, and then for as long as what has begun takes, but no more than a few seconds.
func serveHTTP(ctx context.Context, o *options, demo *demo, stderr io.Writer, log *slog.Logger) error {
	host, port, err := net.SplitHostPort(o.http)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return err
	}
	mcp, sse, mux := o.handlers(demo, log)
	server := &http.Server{Handler: mux, ReadTimeout: stall, WriteTimeout: stall, IdleTimeout: 4 * stall,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	scheme := "http"
	if o.trace {
		server.Handler = &httpTrace{Handler: mux, trace: trace{names: map[string]string{}}}
	}
	served := make(chan error, 1)
	if o.tlsCert != "" {
		scheme = "https"
		certificate, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return errors.Join(err, listener.Close())
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		go func() { served <- server.ServeTLS(listener, "", "") }()
	} else {
		go func() { served <- server.Serve(listener) }()
	}
	old := " (2024-11-05: /sse)"
	if len(legacy(demo.Versions)) == 0 {
		old = ""
	}
	fmt.Fprintf(stderr, "mcpwire: listening on %s://%s/mcp%s\n", scheme, listener.Addr(), old)
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	bound, cancel := context.WithTimeout(context.Background(), 4500*time.Millisecond)
	defer cancel()
	var ends sync.WaitGroup // rather than RegisterOnShutdown, for which nobody waits
	ends.Go(mcp.Close)
	ends.Go(sse.Close)
	err = server.Shutdown(bound)
	ends.Wait()
	return errors.Join(err, server.Close())
}

// handlers builds what is served at each path.
func (o *options) handlers(demo *demo, log *slog.Logger) (mcp *StreamableHandler, sse *SSEHandler, mux *http.ServeMux) {
	guard := Guard{Origins: o.origins, Hosts: o.hosts, MaxBody: int64(o.maxBody), KeepAlive: o.keepAlive, Log: log}
	if o.keepAlive == 0 {
		guard.KeepAlive = -1
	}
	public := guard // of what is read before there is a token
	if token := strings.TrimSpace(cmp.Or(o.token, os.Getenv("MCPWIRE_TOKEN"))); token != "" {
		guard.Authenticate = o.bearer(token)
	}
	var newID func() string
	if o.replica != "" {
		newID = func() string { return o.replica + "-" + rand.Text() }
	}
	mcp = &StreamableHandler{Handler: demo, Versions: demo.Versions, HeaderParams: headerParams, Guard: guard}
	if !o.stateless {
		mcp.Sessions = &Sessions{NewID: newID, Keep: o.eventBuffer, IdleTimeout: o.ttl, Max: o.maxSessions}
	}
	sse = &SSEHandler{Handler: demo, Guard: guard, NewID: newID}
	mux = http.NewServeMux()
	mux.Handle("/mcp", mcp)
	mux.Handle("/mcp/{$}", mcp)
	if len(legacy(demo.Versions)) > 0 {
		mux.Handle("/sse", sse)
	}
	if o.authServer != "" {
		for _, path := range []string{"", "/mcp"} {
			mux.Handle(metadataPath+path, o.metadata(public, path))
		}
	}
	return mcp, sse, mux
}

const metadataPath = "/.well-known/oauth-protected-resource"

// origin returns the one that the client has used, unless a proxy has ended TLS.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// bearer lets in who knows the token. 2025-11-25 basic/authorization#token-requirements: it comes in a header, never in the URL.
func (o *options) bearer(token string) func(*http.Request) (string, error) {
	want := sha256.Sum256([]byte(token))
	return func(r *http.Request) (string, error) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		if strings.EqualFold(scheme, "Bearer") && subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
			return "token", nil
		}
		var params []string
		if strings.EqualFold(scheme, "Bearer") {
			params = append(params, `error="invalid_token"`)
		}
		if o.authServer != "" {
			path := metadataPath
			if strings.HasPrefix(r.URL.Path, "/mcp") {
				path += "/mcp"
			}
			params = append(params, fmt.Sprintf("resource_metadata=%q", origin(r)+path))
		}
		return "", &AuthError{Challenge: strings.TrimSpace("Bearer " + strings.Join(params, ", "))}
	}
}

// metadata says who issues tokens for the resource at path: RFC 9728. It is served without credentials, to clients that have no token yet.
// 2025-11-25 basic/authorization#authorization-server-location: it "MUST include the authorization_servers field".
func (o *options) metadata(guard Guard, path string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, ok := guard.admit(w, r); !ok {
			return
		}
		if r.Method != http.MethodGet {
			w.Header().Set("Allow", "GET")
			w.WriteHeader(http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"resource": origin(r) + path, "authorization_servers": []string{o.authServer},
			"bearer_methods_supported": []string{"header"}})
	})
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

// ---- Traces ----

// trace is a transcript being written to stderr, in the notation of testdata/*.txtar: what each side
// says under a line that names it.
type trace struct {
	mu    sync.Mutex // guards the fields below
	last  string
	count int               // exchanges over HTTP
	names map[string]string // of sessions by id, and tags by tags of events
}

func (t *trace) print(who, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if who != t.last {
		text = "-- " + who + " --\n" + text
	}
	t.last = who
	_, _ = os.Stderr.WriteString(text)
}

// tracedConn traces what passes through a Conn: what came byte for byte, what goes as it is sent.
type tracedConn struct {
	Conn
	trace
	here, there string
}

// Read prints what it reads.
func (t *tracedConn) Read() (Payload, error) {
	p, err := t.Conn.Read()
	if err == nil {
		t.print(t.there, cmp.Or(string(bytes.TrimSpace(p.raw)), "(not kept: too large)")+"\n")
	}
	return p, err
}

// Write prints what it writes.
func (t *tracedConn) Write(ctx context.Context, p Payload) error {
	t.print(t.here, string(p.Append(nil))+"\n")
	return t.Conn.Write(ctx, p)
}

// httpTrace traces the requests to a server, or of a client, and the responses, line by line as they
// come. Credentials are left out, and ids of sessions are session-1, session-2 and so on.
type httpTrace struct {
	http.Handler
	http.RoundTripper // one of the two
	trace
}

// ServeHTTP traces what the handler reads and writes.
func (t *httpTrace) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x, r := t.begin(r)
	traced := &tracedResponse{ResponseWriter: w, exchange: x}
	t.Handler.ServeHTTP(traced, r)
	traced.WriteHeader(http.StatusOK) // if the handler has not
	x.end()
}

// RoundTrip is the same for a client: it traces what is sent, and what comes back.
func (t *httpTrace) RoundTrip(r *http.Request) (*http.Response, error) {
	x, r := t.begin(r)
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		x.say(printable(err.Error()) + "\n")
		return nil, err
	}
	x.head(resp.StatusCode, resp.Header)
	if isMedia(resp.Header.Get("Content-Type"), "text/event-stream") {
		resp.Body = body{io.TeeReader(resp.Body, x), resp.Body}
	} else {
		x.rest = peek(&resp.Body)
		x.end()
	}
	return resp, nil
}

// body is one that is read in another way.
type body struct {
	io.Reader
	io.Closer
}

// peek reads a body, and leaves it to be read again.
func peek(b *io.ReadCloser) []byte {
	text, _ := io.ReadAll(io.LimitReader(*b, callLimit))
	*b = body{io.MultiReader(bytes.NewReader(text), *b), *b}
	return text
}

// exchange is a request and its response, which are named by a letter.
type exchange struct {
	*trace
	name string
	gap  string // what stands before the next that is said: an empty line between head and body
	rest []byte // of a line that has no end yet
}

// begin prints a request, and returns one like it whose body has not been read.
func (t *trace) begin(r *http.Request) (*exchange, *http.Request) {
	x := &exchange{trace: t}
	t.mu.Lock()
	for n := t.count; n >= 0; n = n/26 - 1 {
		x.name = string(rune('A'+n%26)) + x.name
	}
	t.count++
	t.mu.Unlock()
	text := r.Method + " " + r.URL.RequestURI() + "\n" + tracedHeader(r.Header)
	if r.Body != nil && r.Body != http.NoBody {
		r = r.WithContext(r.Context()) // a RoundTripper must not change the one that it is given
		text += "\n" + oneLine(peek(&r.Body)) + "\n"
	}
	t.print("client "+x.name, t.rename(text))
	return x, r
}

func (x *exchange) head(status int, header http.Header) {
	x.say(fmt.Sprintf("%d\n%s", status, tracedHeader(header)))
	x.gap = "\n"
}

// Write prints whole lines of the response's body.
func (x *exchange) Write(b []byte) (int, error) {
	x.rest = append(x.rest, b...)
	if end := bytes.LastIndexByte(b, '\n') + 1; end > 0 {
		end += len(x.rest) - len(b)
		x.say(string(x.rest[:end]))
		x.rest = x.rest[end:]
	}
	return len(b), nil
}

func (x *exchange) end() {
	if len(x.rest) > 0 {
		x.say(oneLine(x.rest) + "\n")
		x.rest = nil
	}
}

func (x *exchange) say(text string) {
	x.print("server "+x.name, x.gap+x.rename(text))
	x.gap = ""
}

// tracedResponse is a response of a server.
type tracedResponse struct {
	http.ResponseWriter
	exchange *exchange
	begun    bool // it has a status
}

// Unwrap lets an http.ResponseController through.
func (w *tracedResponse) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader prints the status and header, once.
func (w *tracedResponse) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		w.exchange.head(status, w.Header())
		w.ResponseWriter.WriteHeader(status)
	}
}

// Write prints what the handler writes.
func (w *tracedResponse) Write(b []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	_, _ = w.exchange.Write(b)
	return w.ResponseWriter.Write(b)
}

// oneLine returns a body as one line, JSON without spaces.
func oneLine(body []byte) string {
	var line bytes.Buffer
	if json.Compact(&line, body) == nil {
		return line.String()
	}
	return printable(strings.TrimSuffix(string(body), "\n"))
}

var (
	// Those that matter to MCP.
	tracedFields = regexp.MustCompile("^(Accept|Allow|Authorization|Content-Type|Last-Event-Id|Mcp-.*|Origin|Retry-After|Www-Authenticate|Access-Control-.*)$")
	// A line with a query, of a request or an endpoint event; and its parts.
	query     = regexp.MustCompile(`(?m)^([A-Z]+ |data: )/\S*\?\S*`)
	queryPart = regexp.MustCompile(`[?&][^&\s]*`)
	// A session's id, or the tag of an event's.
	idField = regexp.MustCompile(`(?m)^(Mcp-Session-Id: \S+|(id|Last-Event-Id): [0-9a-f]{8}\.)`)
)

func tracedHeader(header http.Header) (text string) {
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[key] {
			if key == "Authorization" {
				value = "…"
			}
			if tracedFields.MatchString(key) {
				text += key + ": " + value + "\n"
			}
		}
	}
	return text
}

// rename puts names in place of ids, and hides what else a query holds.
func (t *trace) rename(text string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text = query.ReplaceAllStringFunc(text, func(line string) string {
		return queryPart.ReplaceAllStringFunc(line, func(part string) string {
			name, id, _ := strings.Cut(part, "=")
			if name[1:] == "session" { // of the old transport
				return name + "=" + t.session(id)
			}
			return name + "=…"
		})
	})
	return idField.ReplaceAllStringFunc(text, func(field string) string {
		name, id, _ := strings.Cut(field, ": ")
		if name == "Mcp-Session-Id" {
			return name + ": " + t.session(id)
		}
		return name + ": " + cmp.Or(t.names[id], id)
	})
}

// session returns the name of a session, by which the tag of its events is made as well.
func (t *trace) session(id string) string {
	if t.names[id] == "" {
		t.names[id] = fmt.Sprintf("session-%d", len(t.names)/2+1)
		t.names[(&Session{ID: id}).tag()+"."] = (&Session{ID: t.names[id]}).tag() + "."
	}
	return t.names[id]
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
const pixel = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

func newDemo() *demo {
	d := &demo{notes: map[string]string{"welcome": "This note is served by mcpwire."}}
	d.Server = &Server{
		Info: Implementation{Name: "mcpwire", Title: "mcpwire demo", Version: version, Icons: []Icon{{Src: pixel, MimeType: "image/png", Sizes: []string{"1x1"}}}},
		Capabilities: map[string]any{"completions": struct{}{}, "logging": struct{}{}, "prompts": struct{}{}, "tools": struct{}{},
			"resources": map[string]any{"listChanged": true, "subscribe": true}},
		Instructions: "A demo: made-up weather, an echo, a counter, a question and a few notes.",
		Methods: map[string]HandlerFunc{
			"tools/list":               d.list("tools"),
			"tools/call":               d.callTool,
			"resources/list":           d.list("resources"),
			"resources/templates/list": d.list("resourceTemplates"),
			"resources/read":           d.readResource,
			"prompts/list":             d.list("prompts"),
			"prompts/get":              d.getPrompt,
			"completion/complete":      d.complete,
		},
	}
	return d
}

// headerMark asks a modern client to repeat an argument as a header of its HTTP request.
const headerMark = `"x-mcp-header":"Unit",`

// catalogue holds the lists that never change, in the order of the names, as the newest revision shows them.
var catalogue = json.RawMessage(`{"tools":[
	{"name":"ask","title":"Ask for a name","description":"Asks the user for a name, and greets.",
		"inputSchema":{"type":"object","properties":{}}},
	{"name":"count","title":"Count","description":"Counts to n, one step after the other, and reports each.",
		"inputSchema":{"type":"object","properties":{
			"n":{"type":"integer","minimum":0,"maximum":1000000,"description":"steps"},
			"delayMs":{"type":"integer","minimum":0,"maximum":600000,"default":0,"description":"wait before each step"},
			"poll":{"type":"boolean","default":false,"description":"let go of the connection meanwhile, where that can be done"}},"required":["n"]}},
	{"name":"echo","title":"Echo","description":"Returns the text it is given.",
		"inputSchema":{"type":"object","properties":{
			"text":{"type":"string","description":"what to return"},
			"repeat":{"type":"integer","minimum":1,"default":1,"description":"how many times in a row"}},"required":["text"]}},
	{"name":"get-weather","title":"Weather","description":"The current temperature in a city. The data is made up.",
		"inputSchema":{"type":"object","properties":{
			"city":{"type":"string","minLength":1,"description":"name of the city"},
			"unit":{"type":"string",` + headerMark + `"enum":["celsius","fahrenheit"],"default":"celsius","description":"unit of the temperature"}},"required":["city"]},
		"icons":[{"src":"` + pixel + `","mimeType":"image/png","sizes":["1x1"]}]},
	{"name":"set-note","title":"Write a note","description":"Keeps a note, to be read as the resource note:///NAME.",
		"inputSchema":{"type":"object","properties":{
			"name":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"name of the note"},
			"text":{"type":"string","maxLength":65536,"description":"the note"}},"required":["name","text"]}}
],"resourceTemplates":[
	{"uriTemplate":"note:///{name}","name":"note","description":"A note by its name.","mimeType":"text/plain"}
],"prompts":[
	{"name":"summarize-note","title":"Summarize a note","description":"Asks for a summary of a note.",
		"arguments":[{"name":"name","description":"name of the note","required":true}]}
]}`)

// list answers with the page of a list that a cursor points at.
func (d *demo) list(name string) HandlerFunc {
	return func(_ context.Context, x *Exchange) (any, error) {
		items := member(catalogue, name)
		if name == "resources" {
			items = d.resources()
		}
		return page(x, name, slices.Collect(elements(items)))
	}
}

func page(x *Exchange, list string, items []json.RawMessage) (any, error) {
	const mark = "after "
	cursor := mark
	if err := Bind(x.Request.Params, map[string]any{"cursor": &cursor}); err != nil {
		return nil, err
	}
	begin, ok := strings.CutPrefix(cursor, mark)
	if !ok {
		return nil, invalidParams("Unknown cursor: '%s'", cursor)
	}
	page, last := []json.RawMessage{}, ""
	result := map[string]any{}
	for _, item := range items {
		switch name := unquote(member(item, "name")); {
		case name <= begin:
		case len(page) == pageSize:
			result["nextCursor"] = mark + last
		default:
			page, last = append(page, shown(item, x.Revision)), name
		}
	}
	result[list] = page
	return result, nil
}

// shown returns an item as a revision knows it.
func shown(item json.RawMessage, rev Revision) json.RawMessage {
	hidden := map[string]bool{"title": !rev.Titles, "icons": !rev.Icons}
	var o object
	for name, value := range each(item) {
		if !hidden[string(name)] {
			o.add(string(name), value)
		}
	}
	if !rev.Modern {
		return bytes.Replace(o.text(), []byte(headerMark), nil, 1)
	}
	return json.RawMessage(o.text())
}

// ---- Tools ----

var tools = map[string]func(d *demo, ctx context.Context, x *Exchange, args json.RawMessage) (any, error){
	"ask":         (*demo).ask,
	"count":       (*demo).count,
	"echo":        (*demo).echo,
	"get-weather": (*demo).getWeather,
	"set-note":    (*demo).setNote,
}

// headerParams returns the arguments of a tool that are marked.
func headerParams(tool string) []HeaderParam { return markedParams[tool] }

var markedParams = map[string][]HeaderParam{"get-weather": {{Name: "Unit", Path: []string{"unit"}}}}

func (d *demo) callTool(ctx context.Context, x *Exchange) (any, error) {
	var name string
	var args json.RawMessage
	if err := Bind(x.Request.Params, map[string]any{"name": &name, "arguments": &args}); err != nil {
		return nil, err
	}
	run := tools[name]
	if run == nil {
		return nil, invalidParams("Unknown tool: '%s'", name)
	}
	result, err := run(d, ctx, x, args)
	text, ok := result.(string)
	if err != nil || !ok {
		return result, err
	}
	answer := ToolResult{Content: []any{TextContent(text)}}
	if x.Revision.Titles { // keys of _meta have a grammar from 2025-06-18 on; this one only shows what one of one's own looks like
		answer.Meta = map[string]string{"com.example.mcpwire/tool": name}
	}
	return answer, nil
}

func toolError(format string, args ...any) ToolResult {
	return ToolResult{Content: []any{TextContent(fmt.Sprintf(format, args...))}, IsError: true}
}

// arguments binds those of a tool; what is required must be there.
func arguments(args json.RawMessage, into map[string]any, required ...string) error {
	if err := Bind(args, into); err != nil {
		return err
	}
	for _, name := range required {
		if value := member(bytes.TrimSpace(args), name); value == nil || string(value) == "null" {
			return missing(name)
		}
	}
	return nil
}

func missing(argument string) error {
	return invalidParams("Missing required argument: '%s'", argument)
}

// whole tells whether a number is an integer within bounds; in JSON 3 and 3.0 are the same.
func whole(n, least, most float64) bool { return n == math.Trunc(n) && least <= n && n <= most }

func (d *demo) getWeather(_ context.Context, _ *Exchange, args json.RawMessage) (any, error) {
	city, unit := "", "celsius"
	err := arguments(args, map[string]any{"city": &city, "unit": &unit}, "city")
	temperature, known := map[string]string{"celsius": "18°C", "fahrenheit": "64°F"}[unit]
	switch {
	case err != nil:
		return nil, err
	case city == "" || !known:
		return nil, invalidParams("'city' must not be empty, and 'unit' must be celsius or fahrenheit")
	}
	return fmt.Sprintf("Current temperature in %s is %s", city, temperature), nil
}

func (d *demo) echo(_ context.Context, _ *Exchange, args json.RawMessage) (any, error) {
	text, repeat := "", 1.0
	err := arguments(args, map[string]any{"text": &text, "repeat": &repeat}, "text")
	switch {
	case err != nil:
		return nil, err
	case !whole(repeat, 1, maxEcho):
		return nil, invalidParams("'repeat' must be an integer from 1 to %d", maxEcho)
	case len(text)*int(repeat) > maxEcho:
		return nil, invalidParams("more than %d bytes to echo", maxEcho)
	}
	return strings.Repeat(text, int(repeat)), nil
}

func (d *demo) count(ctx context.Context, x *Exchange, args json.RawMessage) (any, error) {
	var n, delay float64
	var poll bool
	err := arguments(args, map[string]any{"n": &n, "delayMs": &delay, "poll": &poll}, "n")
	switch {
	case err != nil:
		return nil, err
	case !whole(n, 0, 1_000_000) || !whole(delay, 0, 600_000):
		return nil, invalidParams("'n' must be an integer from 0 to 1000000, and 'delayMs' one from 0 to 600000")
	}
	if poll {
		x.Disconnect(time.Second)
	}
	for i := 1.0; i <= n; i++ {
		if delay > 0 {
			sleep(ctx, time.Duration(delay)*time.Millisecond)
		}
		err := cmp.Or(ctx.Err(), x.Progress(ctx, i, n), x.Log(ctx, "debug", fmt.Sprintf("step %.0f of %.0f", i, n)))
		if err != nil {
			return nil, err
		}
	}
	return fmt.Sprintf("counted to %.0f", n), nil
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
		return toolError("No name: the user chose %s", action), nil
	} // anything else is no answer: ask, or ask again
	return InputRequired{Requests: map[string]InputRequest{"name": {Method: "elicitation/create", Params: json.RawMessage(
		`{"message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}}`)}}}, nil
}

var noteName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

func (d *demo) setNote(_ context.Context, _ *Exchange, args json.RawMessage) (any, error) {
	var name, text string
	err := arguments(args, map[string]any{"name": &name, "text": &text}, "name", "text")
	switch {
	case err != nil:
		return nil, err
	case !noteName.MatchString(name) || len([]rune(text)) > maxNote:
		return nil, invalidParams("'name' must match %s, and 'text' be no longer than %d characters", noteName, maxNote)
	}
	d.mu.Lock()
	_, known := d.notes[name]
	full := !known && len(d.notes) >= maxNotes
	if !full {
		d.notes[name] = text
	}
	d.mu.Unlock()
	if full {
		return toolError("There are %d notes already; no room for more.", maxNotes), nil
	}
	if !known {
		d.Publish("notifications/resources/list_changed", nil)
	}
	d.Publish("notifications/resources/updated", map[string]any{"uri": scheme + name})
	return "Noted as " + scheme + name, nil
}

// ---- Resources, prompts, completion ----

const scheme = "note:///"

// names returns those of the notes, in order.
func (d *demo) names() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Sorted(maps.Keys(d.notes))
}

func (d *demo) resources() json.RawMessage {
	names := d.names()
	for i, name := range names {
		names[i] = fmt.Sprintf(`{"uri":"%s%[2]s","name":"%[2]s","mimeType":"text/plain"}`, scheme, name)
	}
	return json.RawMessage("[" + strings.Join(names, ",") + "]")
}

// note returns a note as resources/read and an embedded resource have it.
func (d *demo) note(name string) (contents json.RawMessage, ok bool) {
	d.mu.Lock()
	text, ok := d.notes[name]
	d.mu.Unlock()
	contents, _ = marshal(text)
	return fmt.Appendf(nil, `{"uri":"%s","mimeType":"text/plain","text":%s}`, scheme+name, contents), ok
}

func (d *demo) readResource(_ context.Context, x *Exchange) (any, error) {
	uri := unquote(member(x.Request.Params, "uri"))
	name, ours := strings.CutPrefix(uri, scheme)
	note, ok := d.note(name)
	switch {
	case uri == "":
		return nil, invalidParams("Missing uri")
	case !ours || !ok:
		data, _ := marshal(map[string]string{"uri": uri})
		return nil, &Error{Code: x.Revision.ResourceNotFound, Message: "Resource not found", Data: data}
	}
	return map[string]any{"contents": []json.RawMessage{note}}, nil
}

func (d *demo) getPrompt(_ context.Context, x *Exchange) (any, error) {
	prompt, name := unquote(member(x.Request.Params, "name")), unquote(lookup(x.Request.Params, "arguments", "name"))
	note, ok := d.note(name)
	switch {
	case prompt != "summarize-note":
		return nil, invalidParams("Unknown prompt: '%s'", prompt)
	case name == "":
		return nil, missing("name")
	case !ok:
		return nil, invalidParams("Unknown note: '%s'", name)
	}
	return json.RawMessage(`{"messages":[{"role":"user","content":{"type":"resource","resource":` + string(note) + `}},` +
		`{"role":"user","content":{"type":"text","text":"Summarize this note in one sentence."}}]}`), nil
}

// complete completes the name of a note, for the prompt and for the template.
func (d *demo) complete(_ context.Context, x *Exchange) (any, error) {
	given := func(path ...string) string { return unquote(lookup(x.Request.Params, path...)) }
	prompt := given("ref", "type") == "ref/prompt" && given("ref", "name") == "summarize-note"
	template := given("ref", "type") == "ref/resource" && given("ref", "uri") == scheme+"{name}"
	if !prompt && !template || given("argument", "name") != "name" {
		return nil, invalidParams("Unknown reference or argument")
	}
	values := slices.DeleteFunc(d.names(), func(name string) bool { return !strings.HasPrefix(name, given("argument", "value")) })
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
	transport      string // that has been found
	session        atomic.Bool

	form chan struct{} // held by who asks the user

	mu     sync.Mutex // guards the fields below, and keeps notifications out of a form's prompts
	tokens int
	idle   *time.Timer
}

const callUsage = `usage: mcpwire call [flags] URL
       mcpwire call [flags] COMMAND [ARG...]
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
	header := http.Header{}
	flags.Func("header", "`'K: V'` to send with every HTTP request, repeatable", func(line string) error { return addHeader(header, line) })
	if done, exit := parse(flags, args, callUsage, stdout, stderr); done {
		return exit
	}
	target := flags.Args()
	wrong := ""
	switch {
	case len(target) == 0:
		wrong = "no server to call (-h for help)"
	case isURL(target[0]) && len(target) > 1:
		wrong = "nothing may follow the URL: flags go before it"
	case isURL(target[0]) && !validURL(target[0]):
		wrong = fmt.Sprintf("%.200q is no URL with a host", target[0])
	case len(header) > 0 && !isURL(target[0]):
		wrong = "-header goes with a URL"
	case *params != "" && (*method == "" || !isObject(*params)):
		wrong = "-params takes a JSON object, and goes with -method"
	case *answer != "" && !isObject(*answer):
		wrong = "-answer takes a JSON object"
	case *timeout < 0:
		wrong = "-timeout must not be negative"
	case *interactive && *method != "":
		wrong = "-i and -method exclude each other"
	case *protocol != "" && revision(*protocol).Version == "":
		wrong = fmt.Sprintf("-protocol: unknown revision %q", *protocol)
	}
	if wrong != "" {
		return fail(stderr, exitUsage, "%s", wrong)
	}
	c := &caller{stdout: stdout, stderr: stderr, timeout: *timeout, reply: json.RawMessage(*answer), target: strings.Join(target, " ")}
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
	return c.run(ctx, c.dialers(target, header, *trace), *method, json.RawMessage(*params), *interactive)
}

func isURL(target string) bool {
	scheme, _, ok := strings.Cut(strings.ToLower(target), "://")
	return ok && (scheme == "http" || scheme == "https")
}

func validURL(target string) bool {
	u, err := url.Parse(target)
	return err == nil && u.Host != ""
}

// addHeader adds a field, as it stands on the wire.
func addHeader(header http.Header, line string) error {
	name, value, ok := strings.Cut(line, ":")
	value = strings.TrimSpace(value)
	switch {
	case !ok || name == "" || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }):
		return errors.New("it must read 'Name: value'")
	case strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f }):
		return errors.New("the value has characters that a header must not have")
	}
	header.Add(name, value)
	return nil
}

const callLimit = 64 << 20 // bytes of a message

// dialers returns the ways to a target. For a URL there are two, and which of them it is will be found out.
func (c *caller) dialers(target []string, header http.Header, tracing bool) []Dialer {
	if isURL(target[0]) {
		transport := http.DefaultTransport.(*http.Transport).Clone()
		client := &http.Client{Transport: transport}
		if tracing {
			client.Transport = &httpTrace{RoundTripper: transport, trace: trace{names: map[string]string{}}}
		}
		client = WithHeader(client, header)
		client.Transport = &sessionWatch{client.Transport, &c.session}
		return []Dialer{c.via("Streamable HTTP", DialHTTP(client, target[0], callLimit)), c.via("HTTP+SSE", DialSSE(client, target[0], callLimit))}
	}
	dial := DialCommand(func() *exec.Cmd {
		cmd := exec.Command(target[0], target[1:]...)
		cmd.Stderr = c.stderr
		return cmd
	}, 2*time.Second, callLimit)
	if tracing {
		dial = traced(dial)
	}
	return []Dialer{c.via("stdio", dial)}
}

// via notes which transport was dialled last.
func (c *caller) via(transport string, dial Dialer) Dialer {
	return func(ctx context.Context) (Conn, error) {
		conn, err := dial(ctx)
		if err == nil {
			c.transport = transport
			c.session.Store(transport == "HTTP+SSE") // where the stream is the session
		}
		return conn, err
	}
}

// sessionWatch notes whether there is a session.
type sessionWatch struct {
	http.RoundTripper
	seen *atomic.Bool
}

// RoundTrip looks at the response.
func (w *sessionWatch) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := w.RoundTripper.RoundTrip(r)
	if err == nil && resp.StatusCode == http.StatusOK && resp.Header.Get("Mcp-Session-Id") != "" && r.Header.Get("Mcp-Method") == "" {
		w.seen.Store(true)
	}
	return resp, err
}

func traced(dial Dialer) Dialer {
	return func(ctx context.Context) (Conn, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		return &tracedConn{Conn: conn, here: "client", there: "server"}, nil
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
func (c *caller) run(ctx context.Context, dials []Dialer, method string, params json.RawMessage, interactive bool) int {
	err := c.limited(ctx, func(ctx context.Context) error { return c.Connect(ctx, dials...) })
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
	session := "none"
	if c.session.Load() {
		session = "yes"
	}
	rows := [][2]string{{"target", c.target}, {"transport", c.transport}, {"revision", server.Version}, {"session", session},
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
		fmt.Fprintln(c.stderr, strings.TrimSpace(printable(method+" "+string(params))))
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
