// Mcpwire is the wire of the Model Context Protocol in one flat package that
// imports only the standard library: messages, stdio, HTTP, and the lifecycle
// of all five revisions, from both ends. As a program it is a tiny demo server
// and a client for any server:
//
//	mcpwire                                          serve the demo on standard input and output
//	mcpwire -http :8080                              serve it over HTTP, at http://127.0.0.1:8080/mcp
//	mcpwire call http://127.0.0.1:8080/mcp           say how a server was reached and what it offers
//	mcpwire call COMMAND [ARG...]                    start a server, and say the same
//	mcpwire call -method tools/list COMMAND [ARG...] call one method and print its result
//
// The library is jsonrpc.go (messages, and talking to one peer), stdio.go
// (lines over a byte stream), sse.go (events over HTTP), session.go (the
// lifecycle) and http.go (Streamable HTTP), to be read in that order; none of
// them needs this file, which is the demo. README.md says which to copy for
// what.
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
	"unicode/utf16"
	"unicode/utf8"
)

const version = "0.1.0"

func main() {
	ended := []os.Signal{syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // as nohup has it
		ended = append(ended, syscall.SIGHUP)
	}
	ctx, stop := signal.NotifyContext(context.Background(), append(ended, os.Interrupt)...)
	// Who does not want to wait until we have shut down sends a second signal,
	// which kills. Not all do: a terminal that is closed may send SIGHUP twice,
	// and the end of a login session sends SIGTERM soon after it.
	context.AfterFunc(ctx, stop)
	run, args := serve, os.Args[1:]
	if len(args) > 0 && args[0] == "call" {
		run, args = call, args[1:]
		// Killed, it would leave a command running: only an interrupt may do that.
		signal.Notify(make(chan os.Signal, 1), ended...)
	} else if len(ended) > 1 {
		// A server leaves nothing behind: a second SIGTERM kills it.
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	// A reader of our output that is gone is an error of writing, not our death.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	if err := run(ctx, args); err != nil {
		os.Exit(fail(exitError, err))
	}
	stderr.flush()
}

const (
	exitError = 1
	exitUsage = 2
)

// parse reads flags and checks them; it ends the program if that is all there
// is to do.
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
		os.Exit(fail(exitUsage, fmt.Errorf("%w (-h for help)", err)))
	}
}

func fail(exit int, err error) int {
	fmt.Fprintln(stderr, "mcpwire:", printable(err.Error()+dataOf(err)))
	stderr.flush()
	return exit
}

// dataOf returns what the error of a peer has as data. A string is in the text
// of the error already.
func dataOf(err error) string {
	var fault *Error
	if !errors.As(err, &fault) || len(fault.Data) == 0 || fault.Data[0] == '"' || string(fault.Data) == "null" {
		return ""
	}
	return fmt.Sprintf("; data: %.4000s", appendLine(nil, fault.Data))
}

// ---- Standard error ----

// stderr takes the logs, the traces and what else is said there, so that all of
// it stays in order and none of it holds up the wire.
var stderr = &spool{w: os.Stderr}

const maxSpooled = 8 << 20

var errDropped = errors.New("nobody reads: dropped")

// spool is an io.Writer that never waits. It keeps what is written until w
// takes it: maxSpooled bytes, and the line that passes them. What finds no room
// is dropped, and so is what w refuses; a notice tells how many lines are
// missing, where they are missing, as soon as w takes something again. A
// dropped line counts in dropped, or in behind, until w has taken a notice that
// counts it. One goroutine at most writes to w; it ends when nothing is left.
type spool struct {
	w io.Writer

	mu      sync.Mutex    // guards the fields below
	waiting []byte        // what w is to be given next
	held    int           // bytes that are waiting, or that w is being given
	dropped int           // lines missing in front of what is waiting
	behind  int           // lines missing behind it
	running bool          // there is the goroutine
	newest  chan struct{} // closed when w has been given all of this; nil: nothing was ever written
	stuck   bool          // flush has waited in vain, and w has taken nothing since
}

// Write keeps all of b, or drops it.
func (s *spool) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held >= maxSpooled {
		if lines := bytes.Count(b, []byte("\n")); len(s.waiting) > 0 {
			s.behind += lines
		} else {
			s.dropped += lines
		}
		return 0, errDropped
	}
	if len(s.waiting) == 0 {
		s.newest = make(chan struct{})
	}
	s.waiting = append(s.waiting, b...)
	s.held += len(b)
	if !s.running {
		s.running = true
		go s.run()
	}
	return len(b), nil
}

// run gives w what is waiting, and the notices. What fails once may fail again:
// then the next Write has the notice repeated.
func (s *spool) run() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	for len(s.waiting) > 0 || s.dropped > 0 && err == nil {
		if len(s.waiting) == 0 {
			s.newest = make(chan struct{}) // flush waits for the notice, too
		}
		b, given, missing := s.waiting, s.newest, s.dropped
		s.waiting, s.dropped, s.behind = nil, s.behind, 0
		s.mu.Unlock()
		missing, err = s.give(missing, b)
		s.mu.Lock()
		close(given)
		s.dropped += missing
		s.held -= len(b)
		s.stuck = false
	}
	s.running = false
}

// give gives w the notice of what is missing, and b. It returns how many lines
// are missing then.
func (s *spool) give(missing int, b []byte) (int, error) {
	if missing > 0 {
		if _, err := fmt.Fprintf(s.w, "mcpwire: %d lines are missing here, because nobody read them\n", missing); err != nil {
			return missing + bytes.Count(b, []byte("\n")), err
		}
	}
	n, err := s.w.Write(b)
	return bytes.Count(b[n:], []byte("\n")), err
}

// flush waits until w has been given what was written before: a second at most,
// and not once more for a reader who has taken nothing since.
func (s *spool) flush() {
	s.mu.Lock()
	given, stuck := s.newest, s.stuck
	s.mu.Unlock()
	if given == nil || stuck || closedWithin(lastWord, given) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	select {
	case <-given:
	default:
		s.stuck = true
	}
}

// pattern returns what compiles a regular expression when it is first needed:
// a program that starts should not have to wait for all of them.
func pattern(text string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(text) })
}

// matching returns what takes the text of a flag if it matches a pattern. None
// matches an empty text, as an unset variable of a shell makes it: that is no
// reason to serve without a token.
func matching(pattern string, take func(text string)) func(string) error {
	return func(text string) error {
		if !regexp.MustCompile(`(?i)^(?:` + pattern + `)$`).MatchString(text) {
			return fmt.Errorf("it must match %s", pattern)
		}
		take(text)
		return nil
	}
}

// versions returns what takes a flag that lists protocol versions; they are
// kept newest first.
func versions(list *[]string) func(string) error {
	return func(text string) error {
		for version := range strings.SplitSeq(text, ",") {
			if revision(version).Version == "" || slices.Contains(*list, version) {
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

// options are what the flags of a server say.
type options struct {
	http, token, authServer, replica, stateKey, tlsCert, tlsKey string
	stateless, trace                                            bool

	versions []string
	guard    Guard // without the token: of what is read before there is one
	sessions Sessions
}

const serveUsage = `usage: mcpwire [flags]              serve the demo on stdin and stdout
       mcpwire -http ADDR [flags]   serve it over HTTP: Streamable HTTP at /mcp, the transport of 2024-11-05 at /sse
       mcpwire call -h              the client`

func (o *options) define(flags *flag.FlagSet) {
	const host = `([a-z0-9._-]+|\[[0-9a-f:.]+\])(:[0-9]+)?`
	text := func(to *string) func(string) { return func(text string) { *to = text } }
	add := func(to *[]string) func(string) { return func(text string) { *to = append(*to, text) } }
	flags.Func("http", "serve HTTP at `address`; without a host it is 127.0.0.1", matching(`.*:\w+`, text(&o.http)))
	flags.BoolVar(&o.stateless, "stateless", false, "no sessions: every POST stands alone")
	flags.DurationVar(&o.sessions.IdleTimeout, "session-ttl", 30*time.Minute, "end a session that has been idle for so `long`")
	flags.IntVar(&o.sessions.Max, "max-sessions", 10_000, "sessions at once, a `number`")
	flags.Int64Var(&o.guard.MaxBody, "max-body", 4<<20, "`bytes` in one message")
	flags.IntVar(&o.sessions.Keep, "event-buffer", 256, "`events` that a stream keeps for Last-Event-ID; 0: none, and no event ids")
	flags.DurationVar(&o.guard.KeepAlive, "keepalive", 15*time.Second, "comment on a stream after so `long` a silence; 0: none")
	flags.Func("allow-origin", "`origin` to let in, with CORS answers, such as https://app.example.com; repeatable (default loopback, without CORS)",
		matching(`null|[a-z][a-z0-9+.-]*://`+host, add(&o.guard.Origins)))
	flags.Func("allow-host", "value of `Host` to let in on a loopback address; repeatable (default loopback names)", matching(host, add(&o.guard.Hosts)))
	flags.Func("token", "require Authorization: Bearer `token` (default $MCPWIRE_TOKEN, or none)", matching(`\S+`, text(&o.token)))
	flags.Func("auth-server", "`URL` of the authorization server that metadata names", matching(`https?://[^/].*`, text(&o.authServer)))
	flags.Func("replica", "`name` that begins session ids, so that a proxy can route by it", matching(`[!-~]+`, text(&o.replica)))
	flags.Func("state-key", "`key` of requestState, the same on all replicas (default $MCPWIRE_STATE_KEY, or random)", matching(`.+`, text(&o.stateKey)))
	flags.Func("tls-cert", "serve HTTPS with the certificate in this `file`", matching(`.+`, text(&o.tlsCert)))
	flags.Func("tls-key", "and the key in this `file`", matching(`.+`, text(&o.tlsKey)))
	flags.Func("versions", "protocol versions to offer, as a comma-separated `list` (default all)", versions(&o.versions))
	flags.BoolVar(&o.trace, "trace", false, "print every message to stderr")
	flags.BoolFunc("version", "print the version", func(string) error {
		fmt.Println("mcpwire", version)
		os.Exit(0)
		return nil
	})
}

// check returns what is wrong with the flags as a whole.
func (o *options) check(flags *flag.FlagSet) (err error) {
	flags.Visit(func(f *flag.Flag) {
		if o.http == "" && !slices.Contains([]string{"max-body", "state-key", "versions", "trace", "version"}, f.Name) {
			err = fmt.Errorf("-%s goes with -http", f.Name)
		}
	})
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case (o.tlsCert == "") != (o.tlsKey == ""):
		return errors.New("-tls-cert and -tls-key go together")
	case o.guard.MaxBody <= 0 || o.sessions.Max <= 0 || o.sessions.IdleTimeout <= 0:
		return errors.New("-max-body, -max-sessions and -session-ttl must be more than 0")
	case o.sessions.Keep < 0 || o.guard.KeepAlive < 0:
		return errors.New("-event-buffer and -keepalive must not be less than 0")
	}
	return err
}

func serve(ctx context.Context, args []string) error {
	var o options
	flags := flag.NewFlagSet("mcpwire", flag.ContinueOnError)
	o.define(flags)
	parse(flags, args, serveUsage, func() error { return o.check(flags) })
	demo := newDemo()
	demo.Versions, demo.StateKey = o.versions, []byte(cmp.Or(o.stateKey, os.Getenv("MCPWIRE_STATE_KEY")))
	level := slog.LevelInfo
	if o.trace { // which shows the rest, and is to be replayed
		level = slog.LevelWarn
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	var err error
	if o.http != "" {
		err = o.serveHTTP(ctx, demo, log)
	} else {
		conn := StdioConn(int(o.guard.MaxBody))
		if o.trace {
			conn = &tracedConn{Conn: conn, here: "server", there: "client"}
		}
		err = Serve(ctx, conn, demo, log)
	}
	// A client that is gone is how a server's life ends.
	if ctx.Err() != nil || errors.Is(err, syscall.EPIPE) {
		return nil
	}
	return err
}

// serveHTTP serves the demo until ctx ends, and then for as long as what has
// begun takes, but no more than a few seconds.
func (o *options) serveHTTP(ctx context.Context, demo *demo, log *slog.Logger) error {
	mcp, sse, mux := o.handlers(demo, log)
	server := &http.Server{Handler: mux, ReadTimeout: stall, WriteTimeout: stall, IdleTimeout: 4 * stall,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug)}
	if o.trace {
		server.Handler = &httpTrace{Handler: mux, trace: trace{names: map[string]string{}}}
	}
	scheme, run := "http", server.Serve
	if o.tlsCert != "" {
		certificate, err := tls.LoadX509KeyPair(o.tlsCert, o.tlsKey)
		if err != nil {
			return err
		}
		server.TLSConfig = &tls.Config{Certificates: []tls.Certificate{certificate}}
		scheme, run = "https", func(l net.Listener) error { return server.ServeTLS(l, "", "") }
	}
	host, port, err := net.SplitHostPort(o.http)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(cmp.Or(host, "127.0.0.1"), port))
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "mcpwire: listening on %s://%s/mcp\n", scheme, listener.Addr())
	served := make(chan error, 1)
	go func() { served <- run(loggedListener{listener, log}) }()
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

// loggedListener logs why no connection is accepted: that there are no
// descriptors left, for one. net/http tries again, at least once a second.
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

// handlers builds what is served at each path.
func (o *options) handlers(demo *demo, log *slog.Logger) (mcp *StreamableHandler, sse *SSEHandler, mux *http.ServeMux) {
	o.token = cmp.Or(o.token, strings.TrimSpace(os.Getenv("MCPWIRE_TOKEN")))
	if o.guard.KeepAlive == 0 {
		o.guard.KeepAlive = -1
	}
	o.guard.Log, o.guard.OriginsName, o.guard.HostsName = log, "-allow-origin", "-allow-host"
	mcp = &StreamableHandler{Handler: demo, Versions: demo.Versions, HeaderParams: headerParams, Guard: o.guard}
	sse = &SSEHandler{Handler: demo, Guard: o.guard}
	if o.token != "" {
		mcp.Authenticate, sse.Authenticate = o.bearer("/mcp"), o.bearer("")
	}
	if o.replica != "" {
		sse.NewID = func() string { return o.replica + "-" + rand.Text() }
	}
	if !o.stateless {
		mcp.Sessions, o.sessions.NewID = &o.sessions, sse.NewID
	}
	mux = http.NewServeMux()
	mux.Handle("/mcp", mcp)
	mux.Handle("/mcp/{$}", mcp)
	if len(legacy(demo.Versions)) > 0 {
		mux.Handle("/sse", sse)
	}
	if o.authServer != "" {
		mux.Handle(metadataPath, o.metadata(""))
		mux.Handle(metadataPath+"/mcp", o.metadata("/mcp"))
	}
	return mcp, sse, mux
}

const metadataPath = "/.well-known/oauth-protected-resource"

// origin returns the one that the client has used, unless a proxy has ended
// TLS.
func origin(r *http.Request) string {
	if r.TLS != nil {
		return "https://" + r.Host
	}
	return "http://" + r.Host
}

// bearer lets in who knows the token; others are told where the metadata of
// path is. 2025-11-25 basic/authorization#token-requirements: it comes in a
// header, never in the URL.
func (o *options) bearer(path string) func(*http.Request) (string, error) {
	want := sha256.Sum256([]byte(o.token))
	return func(r *http.Request) (string, error) {
		scheme, given, _ := strings.Cut(r.Header.Get("Authorization"), " ")
		got := sha256.Sum256([]byte(strings.TrimSpace(given)))
		var params []string
		if strings.EqualFold(scheme, "Bearer") {
			if subtle.ConstantTimeCompare(got[:], want[:]) == 1 {
				return "token", nil
			}
			params = append(params, `error="invalid_token"`)
		}
		if o.authServer != "" {
			params = append(params, fmt.Sprintf("resource_metadata=%q", origin(r)+metadataPath+path))
		}
		return "", &AuthError{Challenge: strings.TrimSpace("Bearer " + strings.Join(params, ", "))}
	}
}

// metadata says who issues tokens for the resource at path: RFC 9728. It is
// served without credentials, to clients that have no token yet. 2025-11-25
// basic/authorization#authorization-server-location: it "MUST include the
// authorization_servers field".
func (o *options) metadata(path string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if _, ok := o.guard.admit(w, r); ok {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(map[string]any{"resource": origin(r) + path, "authorization_servers": []string{o.authServer},
				"bearer_methods_supported": []string{"header"}})
		}
	}
}

// ---- Traces ----

// trace is a transcript being written to stderr, in the notation of
// testdata/*.txtar: what each side says under a line that names it.
type trace struct {
	mu       sync.Mutex // guards the fields below
	last     string
	count    int               // exchanges over HTTP
	names    map[string]string // of sessions by id, and tags by tags of events
	sessions []string          // ids that have a name, the oldest first
	named    int               // sessions that ever had one
}

const maxNames = 1000 // of sessions in a trace

// print adds what is said. If it is dropped, whoever speaks next is named again.
func (t *trace) print(who, text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if who != t.last {
		text = "-- " + who + " --\n" + text
	}
	t.last = who
	if _, err := io.WriteString(stderr, text); err != nil {
		t.last = ""
	}
}

// visible returns lines that do nothing to a terminal. What a terminal could
// act on is escaped as in JSON, so that a message stays the same message; a
// line that could be taken for the name of a section begins with a space.
func visible(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		line, ended := strings.CutSuffix(line, "\n")
		if strings.HasPrefix(line, "--") {
			b.WriteByte(' ')
		}
		for _, r := range strings.TrimSuffix(line, "\r") {
			switch {
			case unicode.IsPrint(r): // U+FFFD, too, which stands for what is not UTF-8
				b.WriteRune(r)
			case r == '\t' || r == '\r': // which JSON has between values only
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

// tracedConn traces what passes through a Conn: what came byte for byte, what
// goes as it is sent.
type tracedConn struct {
	Conn
	trace
	here, there string
}

// Read prints what it reads.
func (t *tracedConn) Read() (Payload, error) {
	p, err := t.Conn.Read()
	if err == nil {
		t.print(t.there, visible(cmp.Or(string(bytes.TrimSpace(p.raw)), "(not kept: too large)"))+"\n")
	}
	return p, err
}

// Write prints what it writes.
func (t *tracedConn) Write(ctx context.Context, p Payload) error {
	t.print(t.here, visible(string(p.Append(nil)))+"\n")
	return t.Conn.Write(ctx, p)
}

// httpTrace traces the requests to a server, or of a client, and the responses,
// line by line as they come. Credentials are left out, and ids of sessions are
// session-1, session-2 and so on. It reads nothing itself: of a body it shows
// what the handler has read, which reads nothing before its Guard has let the
// request in.
type httpTrace struct {
	http.Handler
	http.RoundTripper // one of the two
	trace
}

// ServeHTTP traces what the handler reads and writes.
func (t *httpTrace) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := t.begin(r)
	if r.Body == nil || r.Body == http.NoBody {
		x.ask("")
	} else {
		r = r.WithContext(r.Context()) // the server needs the one that it has made
		r.Body = &tracedBody{r.Body, x.asks}
	}
	traced := &tracedResponse{ResponseWriter: w, exchange: x}
	t.Handler.ServeHTTP(traced, r)
	traced.WriteHeader(http.StatusOK) // if the handler has not
	x.answers(nil, true)
}

// RoundTrip is the same for a client: it traces what is sent, and what comes
// back.
func (t *httpTrace) RoundTrip(r *http.Request) (*http.Response, error) {
	x, sent := t.begin(r), ""
	if r.GetBody != nil {
		if body, err := r.GetBody(); err == nil {
			text, _ := io.ReadAll(body)
			sent = "\n" + oneLine(text) + "\n"
		}
	}
	x.ask(sent)
	resp, err := t.RoundTripper.RoundTrip(r)
	if err != nil {
		x.say(printable(err.Error()) + "\n")
		return nil, err
	}
	x.head(resp.StatusCode, resp.Header)
	resp.Body = &tracedBody{resp.Body, x.answers}
	return resp, nil
}

// tracedBody shows what is read of a body.
type tracedBody struct {
	io.ReadCloser
	show func(part []byte, end bool)
}

// Read shows what it reads.
func (b *tracedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.show(p[:n], err == io.EOF)
	return n, err
}

// Close ends what there is to show.
func (b *tracedBody) Close() error {
	b.show(nil, true)
	return b.ReadCloser.Close()
}

// exchange is a request and its response, which are named by a letter.
type exchange struct {
	*trace
	name string

	turn    sync.Mutex // guards the fields below; held while a part is printed
	request string     // its head, until that is printed
	gap     string     // what stands before the next that is said: an empty line between head and body
	stream  bool       // the response is one, and printed line by line
	skipLF  bool       // the stream's last byte was CR: an LF that follows belongs to it
	rest    []byte     // of a body, or of a line, whose end has not come yet
	more    int        // bytes behind rest that are not kept
}

const maxTraced = 64 << 10 // bytes that a trace shows of a stream's line

// begin returns the exchange that a request begins. It prints nothing yet: a
// request stands in one piece.
func (t *trace) begin(r *http.Request) *exchange {
	x := &exchange{trace: t, request: r.Method + " " + r.URL.RequestURI() + "\n" + tracedHeader(r.Header)}
	t.mu.Lock()
	defer t.mu.Unlock()
	for n := t.count; n >= 0; n = n/26 - 1 {
		x.name = string(rune('A'+n%26)) + x.name
	}
	t.count++
	return x
}

// ask prints the request, once. Like say, it is for who holds the turn, or
// knows of nobody else yet.
func (x *exchange) ask(body string) {
	if x.request != "" {
		x.print("client "+x.name, x.rename(visible(x.request+body), false))
		x.request, x.rest = "", nil
	}
}

// asks takes a part of the request's body, and prints the request at its end.
func (x *exchange) asks(part []byte, end bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	if x.request == "" {
		return
	}
	if x.rest = append(x.rest, part...); end {
		x.ask("\n" + oneLine(x.rest) + "\n")
	}
}

// head prints the response's status and header, after the request.
func (x *exchange) head(status int, header http.Header) {
	x.turn.Lock()
	defer x.turn.Unlock()
	x.ask("\n(not read to its end)\n")
	x.say(fmt.Sprintf("%d\n%s", status, tracedHeader(header)))
	x.gap, x.stream = "\n", isMedia(header.Get("Content-Type"), "text/event-stream")
}

// answers takes a part of the response's body. It prints the whole lines of a
// stream, which end with CR, LF or CRLF, and any other body at its end. Nobody
// has to end a line, so only its beginning is kept.
func (x *exchange) answers(part []byte, end bool) {
	x.turn.Lock()
	defer x.turn.Unlock()
	limit := callLimit
	if x.stream {
		limit = maxTraced
	}
	var lines strings.Builder
	for _, b := range part {
		switch {
		case x.stream && x.skipLF && b == '\n':
		case x.stream && (b == '\r' || b == '\n'):
			lines.WriteString(x.line())
		case len(x.rest) < limit:
			x.rest = append(x.rest, b)
		default:
			x.more++
		}
		x.skipLF = b == '\r'
	}
	if end && len(x.rest) > 0 {
		lines.WriteString(x.line())
	}
	if lines.Len() > 0 {
		x.say(lines.String())
	}
}

// line returns the line of a stream, or the body, that is at its end.
func (x *exchange) line() string {
	text := string(x.rest)
	if !x.stream {
		text = oneLine(x.rest)
	}
	if x.more > 0 {
		text += fmt.Sprintf(" (… %d more bytes)", x.more)
	}
	x.rest, x.more = x.rest[:0], 0
	return text + "\n"
}

// say prints what the server says.
func (x *exchange) say(text string) {
	x.print("server "+x.name, x.gap+x.rename(visible(text), true))
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
	w.exchange.answers(b, false)
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
	// Fields of a header that matter to MCP.
	tracedFields = pattern("^(Accept|Allow|Authorization|Content-Type|Last-Event-Id|Mcp-.*|Origin|Retry-After|Www-Authenticate|Access-Control-.*)$")
	// A line with a query, of a request or an endpoint event; and its parts.
	query     = pattern(`(?m)^([A-Z]+ |data: ?)(/|https?://)\S*\?\S*`)
	queryPart = pattern(`[?&][^&\s]*`)
	// A session's id, or the tag of an event's.
	idField = pattern(`(?m)^(Mcp-Session-Id: .+|(id|Last-Event-Id): [0-9a-f]{8}\.)`)
)

func tracedHeader(header http.Header) (text string) {
	for _, key := range slices.Sorted(maps.Keys(header)) {
		for _, value := range header[key] {
			if key == "Authorization" {
				value = "…"
			}
			if tracedFields().MatchString(key) {
				text += key + ": " + value + "\n"
			}
		}
	}
	return text
}

// rename puts names in place of ids, and hides what else a query holds. A
// session has a name once the server has given its id: what is only asked for
// is not remembered.
func (t *trace) rename(text string, given bool) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	text = query().ReplaceAllStringFunc(text, func(line string) string {
		return queryPart().ReplaceAllStringFunc(line, func(part string) string {
			name, id, _ := strings.Cut(part, "=")
			if name[1:] == "session" { // of the old transport
				return name + "=" + t.session(id, given)
			}
			return name + "=…"
		})
	})
	return idField().ReplaceAllStringFunc(text, func(field string) string {
		name, id, _ := strings.Cut(field, ": ")
		if name == "Mcp-Session-Id" {
			return name + ": " + t.session(id, given)
		}
		return name + ": " + cmp.Or(t.names[id], id)
	})
}

// session returns the name of a session, by which the tag of its events is made
// as well. Of very many the oldest is forgotten.
func (t *trace) session(id string, given bool) string {
	if name := t.names[id]; name != "" || !given || len(id) > maxRepeated {
		return cmp.Or(name, "…")
	}
	tag := func(id string) string { return (&Session{ID: id}).tag() + "." }
	if len(t.sessions) == maxNames {
		delete(t.names, t.sessions[0])
		delete(t.names, tag(t.sessions[0]))
		t.sessions = t.sessions[1:]
	}
	t.named++
	id, name := strings.Clone(id), fmt.Sprintf("session-%d", t.named) // id is a part of what may be long
	t.sessions = append(t.sessions, id)
	t.names[id], t.names[tag(id)] = name, tag(name)
	return name
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
	maxEcho  = 4 << 20   // bytes of an echo, as JSON
	maxCount = time.Hour // that one count may take
	pageSize = 50
)

// pixel is a 1×1 PNG, so that the mechanism of icons can be seen.
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

// headerMark asks a modern client to repeat an argument as a header of its HTTP
// request.
const headerMark = `"x-mcp-header":"Unit",`

// harmless says of a tool that it changes nothing, and reaches nothing outside.
// A client takes a tool that says nothing for one that may destroy something,
// and asks its user (2025-03-26 schema ToolAnnotations).
const harmless = `"annotations":{"readOnlyHint":true,"destructiveHint":false,"idempotentHint":true,"openWorldHint":false}`

// catalogue holds the lists that never change, in the order of the names, as
// the newest revision shows them.
var catalogue = json.RawMessage(`{"tools":[
	{"name":"ask","title":"Ask for a name","description":"Asks the user for a name, and greets.",
		"inputSchema":{"type":"object","properties":{},"additionalProperties":false},` + harmless + `},
	{"name":"count","title":"Count","description":"Counts to n, one step after the other, and reports each.",
		"inputSchema":{"type":"object","properties":{
			"n":{"type":"integer","minimum":0,"maximum":1000000,"description":"steps"},
			"delayMs":{"type":"integer","minimum":0,"maximum":600000,"default":0,"description":"wait before each step; all waits together take at most an hour"},
			"poll":{"type":"boolean","default":false,"description":"let go of the connection meanwhile, where that can be done"}},"required":["n"]},` + harmless + `},
	{"name":"echo","title":"Echo","description":"Returns the text it is given.",
		"inputSchema":{"type":"object","properties":{
			"text":{"type":"string","description":"what to return"},
			"repeat":{"type":"integer","minimum":1,"maximum":4194304,"default":1,"description":"how many times in a row"}},"required":["text"]},` + harmless + `},
	{"name":"get-weather","title":"Weather","description":"The current temperature in a city. The data is made up.",
		"inputSchema":{"type":"object","properties":{
			"city":{"type":"string","minLength":1,"description":"name of the city"},
			"unit":{"type":"string",` + headerMark + `"enum":["celsius","fahrenheit"],"default":"celsius","description":"unit of the temperature"}},"required":["city"]},` + harmless + `,
		"icons":[{"src":"` + pixel + `","mimeType":"image/png","sizes":["1x1"]}]},
	{"name":"set-note","title":"Write a note","description":"Keeps a note, to be read as the resource note:///NAME.",
		"inputSchema":{"type":"object","properties":{
			"name":{"type":"string","pattern":"^[A-Za-z0-9._-]{1,64}$","description":"name of the note"},
			"text":{"type":"string","maxLength":65536,"description":"the note"}},"required":["name","text"]},
		"annotations":{"readOnlyHint":false,"destructiveHint":true,"idempotentHint":true,"openWorldHint":false}}
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
		var list []json.RawMessage
		for _, item := range each(items) {
			list = append(list, item)
		}
		return page(x, name, list)
	}
}

// pageParams are the params of a list. 2025-11-25 server/utilities/pagination.
type pageParams struct {
	Cursor string `json:"cursor,omitempty"`
}

func page(x *Exchange, list string, items []json.RawMessage) (any, error) {
	const mark = "after "
	p := pageParams{Cursor: mark}
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	begin, ok := strings.CutPrefix(p.Cursor, mark)
	if !ok {
		return nil, unknown("cursor", p.Cursor)
	}
	page, last := []json.RawMessage{}, ""
	result := map[string]any{}
	for _, item := range items {
		switch name := unquote(member(item, "name")); {
		case name <= begin:
		case len(page) == pageSize:
			result["nextCursor"] = mark + last
		default:
			page, last = append(page, shown(item, x.Revision())), name
		}
	}
	result[list] = page
	return result, nil
}

// shown returns an item as a revision knows it.
func shown(item json.RawMessage, rev Revision) json.RawMessage {
	hidden := map[string]bool{"title": !rev.Titles, "icons": !rev.Icons, "annotations": !rev.Annotations}
	var o object
	for name, value := range each(item) {
		if !hidden[string(name)] {
			o.add(string(name), value)
		}
	}
	if !rev.Modern {
		return bytes.Replace(o.encode(), []byte(headerMark), nil, 1)
	}
	return json.RawMessage(o.encode())
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

// callParams are the params of tools/call.
type callParams struct {
	Name      string          `json:"name,omitempty"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

func (d *demo) callTool(ctx context.Context, x *Exchange) (any, error) {
	var call callParams
	if err := x.Bind(&call); err != nil {
		return nil, err
	}
	run := tools[call.Name]
	if run == nil {
		return nil, unknown("tool", call.Name)
	}
	result, err := run(d, ctx, x, call.Arguments)
	if why, ok := errors.AsType[unusable](err); ok {
		return toolError("%s", why), nil
	}
	text, ok := result.(string)
	if err != nil || !ok {
		return result, err
	}
	answer := ToolResult{Content: []any{TextContent(text)}}
	// Keys of _meta have a grammar from 2025-06-18 on; this one only shows what
	// a key of one's own looks like.
	if x.Revision().Titles {
		answer.Meta = toolMeta{call.Name}
	}
	return answer, nil
}

type toolMeta struct {
	Tool string `json:"com.example.mcpwire/tool"`
}

func toolError(format string, args ...any) ToolResult {
	return ToolResult{Content: []any{TextContent(fmt.Sprintf(format, args...))}, IsError: true}
}

// unusable says why a tool cannot use an argument that it was given. It becomes
// a result with isError: 2025-11-25 server/tools#error-handling counts "input
// validation errors" among those from which a model can correct itself. Only
// what makes no request at all is a JSON-RPC error.
type unusable string

func (why unusable) Error() string { return string(why) }

func unusablef(format string, args ...any) error { return unusable(fmt.Sprintf(format, args...)) }

// bindArguments stores the arguments of a tool in a struct. An argument of the
// wrong type is unusable; one that is missing, or appears twice, makes the
// request wrong.
func bindArguments(arguments json.RawMessage, into any) error {
	err := Bind(arguments, into)
	fault, _ := errors.AsType[*BindError](err)
	if fault != nil && fault.Name != "" && !fault.Missing && !fault.Twice {
		return unusablef("'%s' %s", fault.Name, fault.Reason)
	}
	return paramsError(err, "argument")
}

func missing(argument string) error {
	return invalidParams("Missing required argument: '%s'", argument)
}

type weatherArguments struct {
	City string `json:"city"`
	Unit string `json:"unit,omitempty"`
}

func (d *demo) getWeather(_ context.Context, _ *Exchange, arguments json.RawMessage) (any, error) {
	args := weatherArguments{Unit: "celsius"}
	err := bindArguments(arguments, &args)
	fault, _ := errors.AsType[*Error](err)
	temperature, known := map[string]string{"celsius": "18°C", "fahrenheit": "64°F"}[args.Unit]
	switch {
	case fault != nil && fault.Message == missing("city").(*Error).Message: // scripts go by this message and this data
		return nil, &Error{Code: CodeInvalidParams, Message: "Invalid params", Data: appendString(nil, "Missing required argument: 'city'")}
	case err != nil:
		return nil, err
	case args.City == "" || !known:
		return nil, unusable("'city' must not be empty, and 'unit' must be celsius or fahrenheit")
	}
	return fmt.Sprintf("Current temperature in %s is %s", args.City, temperature), nil
}

type echoArguments struct {
	Text   string `json:"text"`
	Repeat int    `json:"repeat,omitempty"`
}

func (d *demo) echo(_ context.Context, _ *Exchange, arguments json.RawMessage) (any, error) {
	args := echoArguments{Repeat: 1}
	err := bindArguments(arguments, &args)
	switch {
	case err != nil:
		return nil, err
	case args.Repeat < 1 || args.Repeat > maxEcho:
		return nil, unusablef("'repeat' must be an integer from 1 to %d", maxEcho)
	case !echoes(args.Text, arguments, maxEcho/args.Repeat):
		return nil, unusablef("an echo has at most %d bytes as JSON", maxEcho)
	}
	return strings.Repeat(args.Text, args.Repeat), nil
}

// echoes reports whether text has at most so many bytes as JSON: a control
// character of one byte has six there. Our JSON is at most twice as long as that
// in which the text came, so most texts need not be encoded to know.
func echoes(text string, args json.RawMessage, most int) bool {
	if len(args) <= most/2 || len(text) > most {
		return len(text) <= most
	}
	said, _ := marshal(text)
	return len(said)-len(`""`) <= most
}

type countArguments struct {
	N       int  `json:"n"`
	DelayMs int  `json:"delayMs,omitempty"`
	Poll    bool `json:"poll,omitempty"`
}

func (d *demo) count(ctx context.Context, x *Exchange, arguments json.RawMessage) (any, error) {
	var args countArguments
	err := bindArguments(arguments, &args)
	delay := time.Duration(args.DelayMs) * time.Millisecond
	switch {
	case err != nil:
		return nil, err
	case args.N < 0 || args.N > 1_000_000 || args.DelayMs < 0 || args.DelayMs > 600_000:
		return nil, unusable("'n' must be an integer from 0 to 1000000, and 'delayMs' one from 0 to 600000")
	case time.Duration(args.N)*delay > maxCount:
		return nil, unusablef("'n' times 'delayMs' must not be more than %v", maxCount)
	}
	if args.Poll {
		x.Disconnect(time.Second)
	}
	of := " of " + strconv.Itoa(args.N)
	for i := 1; i <= args.N; i++ {
		if delay > 0 {
			sleep(ctx, delay)
		}
		err := cmp.Or(ctx.Err(), x.Progress(ctx, float64(i), float64(args.N)), x.Log(ctx, "debug", "step "+strconv.Itoa(i)+of))
		if err != nil {
			return nil, err
		}
	}
	return fmt.Sprintf("counted to %d", args.N), nil
}

// elicited is the answer to a question of ask.
type elicited struct {
	Action  string `json:"action,omitempty"` // accept, decline or cancel
	Content struct {
		Name string `json:"name,omitempty"`
	} `json:"content,omitempty"`
}

func (d *demo) ask(_ context.Context, x *Exchange, args json.RawMessage) (any, error) {
	if err := bindArguments(args, &struct{}{}); err != nil {
		return nil, err
	}
	var answer elicited
	_ = Bind(x.Inputs()["name"], &answer)
	switch {
	case answer.Action == "accept" && answer.Content.Name != "":
		return "Hello, " + answer.Content.Name, nil
	case answer.Action == "decline" || answer.Action == "cancel":
		return toolError("No name: the user chose %s", answer.Action), nil
	} // anything else is no answer: ask, or ask again
	return InputRequired{Requests: map[string]InputRequest{"name": {Method: "elicitation/create", Params: json.RawMessage(
		`{"message":"What is your name?","requestedSchema":{"type":"object","properties":{"name":{"type":"string","minLength":1}},"required":["name"]}}`)}}}, nil
}

var noteName = pattern(`^[A-Za-z0-9._-]{1,64}$`)

type noteArguments struct {
	Name string `json:"name"`
	Text string `json:"text"`
}

func (d *demo) setNote(_ context.Context, _ *Exchange, arguments json.RawMessage) (any, error) {
	var args noteArguments
	err := bindArguments(arguments, &args)
	name, text := args.Name, args.Text
	switch {
	case err != nil:
		return nil, err
	case !noteName().MatchString(name) || len([]rune(text)) > maxNote:
		return nil, unusablef("'name' must match %s, and 'text' be no longer than %d characters", noteName(), maxNote)
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

// anyURI matches what RFC 3986 section 2 lets a URI be made of.
var anyURI = pattern("^[A-Za-z][A-Za-z0-9+.-]*:([A-Za-z0-9._~:/?#\\[\\]@!$&'()*+,;=-]|%[0-9A-Fa-f]{2})*$")

func (d *demo) readResource(_ context.Context, x *Exchange) (any, error) {
	var p ResourceParams
	err := x.Bind(&p)
	uri := p.URI
	name, ours := strings.CutPrefix(uri, scheme)
	note, ok := d.note(name)
	switch {
	case err != nil:
		return nil, err
	case uri == "":
		return nil, invalidParams("'uri' must not be empty")
	case !anyURI().MatchString(uri):
		return nil, invalidParams("'uri' must be a URI, with anything but ASCII as %%C3%%A9")
	case !ours || !ok:
		data, _ := marshal(map[string]string{"uri": uri})
		return nil, &Error{Code: x.Revision().ResourceNotFound, Message: "Resource not found", Data: data}
	}
	return map[string]any{"contents": []json.RawMessage{note}}, nil
}

// promptParams are the params of prompts/get, with the argument of our prompt.
type promptParams struct {
	Name      string `json:"name,omitempty"`
	Arguments struct {
		Name string `json:"name,omitempty"`
	} `json:"arguments,omitempty"`
}

func (d *demo) getPrompt(_ context.Context, x *Exchange) (any, error) {
	var p promptParams
	err := x.Bind(&p)
	prompt, name := p.Name, p.Arguments.Name
	note, ok := d.note(name)
	switch {
	case err != nil:
		return nil, err
	case prompt != "summarize-note":
		return nil, unknown("prompt", prompt)
	case name == "":
		return nil, missing("name")
	case !ok:
		return nil, unknown("note", name)
	}
	return json.RawMessage(`{"messages":[{"role":"user","content":{"type":"resource","resource":` + string(note) + `}},` +
		`{"role":"user","content":{"type":"text","text":"Summarize this note in one sentence."}}]}`), nil
}

// completeParams are the params of completion/complete.
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

// complete completes the name of a note, for the prompt and for the template.
func (d *demo) complete(_ context.Context, x *Exchange) (any, error) {
	var p completeParams
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	prompt := p.Ref.Type == "ref/prompt" && p.Ref.Name == "summarize-note"
	template := p.Ref.Type == "ref/resource" && p.Ref.URI == scheme+"{name}"
	if !prompt && !template || p.Argument.Name != "name" {
		return nil, invalidParams("Unknown reference or argument")
	}
	values := slices.DeleteFunc(d.names(), func(name string) bool { return !strings.HasPrefix(name, p.Argument.Value) })
	return map[string]any{"completion": map[string]any{"values": values[:min(len(values), 100)], "total": len(values), "hasMore": len(values) > 100}}, nil
}

// ---- Calling ----

// caller is the client's command line: one connection, one call at a time.
type caller struct {
	Client
	stderr io.Writer
	input  *bufio.Scanner // lines of stdin
	ask    bool           // the user sits at a terminal

	reply   json.RawMessage // content for every elicitation; empty: ask at the terminal, or decline
	timeout time.Duration
	conn    Conn // that was dialled last
	tokens  int64
	idle    atomic.Pointer[time.Timer] // ends the call that runs
	form    sync.Mutex                 // held by who asks the user
}

const (
	callUsage = `usage: mcpwire call [flags] URL
       mcpwire call [flags] COMMAND [ARG...]
Without -method: how the server was reached, and what it offers.`
	callLimit = 64 << 20 // bytes of a message
)

func call(ctx context.Context, args []string) error {
	c := &caller{stderr: stderr, input: bufio.NewScanner(os.Stdin)}
	c.input.Buffer(nil, callLimit)
	c.Info = Implementation{Name: "mcpwire", Title: "mcpwire call", Version: version}
	c.Capabilities, c.Handler = map[string]any{"elicitation": struct{}{}}, c
	c.Log = slog.New(slog.NewTextHandler(stderr, nil))
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	method := flags.String("method", "", "`method` to call, such as tools/list")
	params := flags.String("params", "", "its params, a `JSON` object")
	flags.Func("protocol", "speak this `revision` (default: find out)", versions(&c.Versions))
	answer := flags.String("answer", "", "accept elicitations with this content, a `JSON` object (default: ask at a terminal, else decline)")
	flags.DurationVar(&c.timeout, "timeout", time.Minute, "for one call, extended by its progress up to ten times; 0: none")
	interactive := flags.Bool("i", false, "read METHOD [PARAMS] lines from stdin, one answer each")
	trace := flags.Bool("trace", false, "print every message to stderr")
	header := http.Header{}
	flags.Func("header", "`'K: V'` to send with every HTTP request, repeatable", matching("[!#$%&'*+.^_`|~0-9a-z-]+:[^\\x00-\\x08\\n-\\x1f\\x7f]*", func(line string) {
		name, value, _ := strings.Cut(line, ":")
		header.Add(name, strings.TrimSpace(value))
	}))
	parse(flags, args, callUsage, func() error {
		target, err := url.Parse(flags.Arg(0))
		switch {
		case flags.NArg() == 0:
			return errors.New("no server to call")
		case isURL(flags.Arg(0)) && flags.NArg() > 1:
			return errors.New("nothing may follow the URL: flags go before it")
		case isURL(flags.Arg(0)) && (err != nil || target.Host == ""):
			return fmt.Errorf("%.200q is no URL with a host", flags.Arg(0))
		case meantURL(flags.Arg(0)) != "":
			return fmt.Errorf("there is no command %.200q; did you mean %.200s?", flags.Arg(0), meantURL(flags.Arg(0)))
		case len(header) > 0 && !isURL(flags.Arg(0)):
			return errors.New("-header goes with a URL")
		case *params != "" && (*method == "" || !isObject(*params)):
			return errors.New("-params takes a JSON object, and goes with -method")
		case *answer != "" && !isObject(*answer):
			return errors.New("-answer takes a JSON object")
		case c.timeout < 0 || c.timeout > longest:
			return errors.New("-timeout is out of range")
		case *interactive && *method != "":
			return errors.New("-i and -method exclude each other")
		}
		return nil
	})
	c.timeout = cmp.Or(c.timeout, longest)
	c.reply = json.RawMessage(*answer)
	c.ask = !*interactive && isTerminal(os.Stdin)
	dials := c.dialers(flags.Args(), header, *trace)
	defer c.Close() // what could not be connected to, too: a child may ignore the end of its input
	if err := c.limited(ctx, func(ctx context.Context) error { return c.Connect(ctx, dials...) }); err != nil {
		return c.advise(err, flags.Arg(0))
	}
	context.AfterFunc(ctx, func() { // even while stdin keeps us waiting
		c.Close()
		stderr.flush()
		os.Exit(exitError)
	})
	switch {
	case *interactive:
		return c.lines(ctx)
	case *method != "":
		return c.print(ctx, *method, *params)
	}
	return c.summary(ctx, flags.Args())
}

func isURL(text string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(text), "://")
	return found && (scheme == "http" || scheme == "https")
}

// meantURL returns the URL that somebody has meant who names a host and a port,
// or localhost, where there is no such command.
func meantURL(text string) string {
	meant, err := url.Parse("http://" + strings.TrimPrefix(text, "//"))
	if isURL(text) || err != nil || meant.Port() == "" && meant.Hostname() != "localhost" {
		return ""
	}
	if _, err := exec.LookPath(text); err == nil {
		return ""
	}
	if meant.Hostname() == "" {
		meant.Host = "localhost" + meant.Host
	}
	return meant.String()
}

// advise adds to the reason why a target could not be connected to what its user
// may try.
func (c *caller) advise(err error, target string) error {
	fault := new(HTTPError)
	errors.As(err, &fault)
	// What a server that is for people, too, answers where it has no MCP.
	elsewhere := slices.Contains([]int{http.StatusOK, http.StatusNotFound, http.StatusMethodNotAllowed}, fault.Status)
	refused := fault.Status == http.StatusUnauthorized || fault.Status == http.StatusForbidden
	at, _ := url.Parse(target)
	switch {
	case elsewhere && strings.Trim(at.Path, "/") == "":
		return fmt.Errorf("%w; the URL has no path: did you mean %s://%s/mcp?", err, at.Scheme, at.Host)
	case errors.As(err, new(afterProbe)) && !elsewhere && !refused:
		return fmt.Errorf("%w; server/discover may be why: with -protocol %s it is not sent", err, newest(orAll(c.Versions), false))
	}
	return err
}

func isObject(text string) bool {
	return utf8.ValidString(text) && json.Valid([]byte(text)) && strings.HasPrefix(strings.TrimSpace(text), "{")
}

// isTerminal tells whether somebody may sit there and type.
func isTerminal(file *os.File) bool {
	info, err := file.Stat()
	null, noNull := os.Stat(os.DevNull)
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && (noNull != nil || !os.SameFile(info, null))
}

// dialers returns the ways to a target. For a URL there are two, and which of
// them it is will be found out.
func (c *caller) dialers(target []string, header http.Header, tracing bool) []Dialer {
	if isURL(target[0]) {
		client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
		if tracing {
			client.Transport = &httpTrace{RoundTripper: client.Transport, trace: trace{names: map[string]string{}}}
		}
		client = WithHeader(client, header)
		return []Dialer{c.noted(DialHTTP(client, target[0], callLimit), false), c.noted(DialSSE(client, target[0], callLimit), false)}
	}
	return []Dialer{c.noted(DialCommand(func() *exec.Cmd {
		cmd := exec.Command(target[0], target[1:]...)
		cmd.Stderr = stderr
		return cmd
	}, 2*time.Second, callLimit), tracing)}
}

// noted notes which Conn was dialled last, and has it traced.
func (c *caller) noted(dial Dialer, traced bool) Dialer {
	return func(ctx context.Context) (Conn, error) {
		conn, err := dial(ctx)
		if err == nil && traced {
			conn = &tracedConn{Conn: conn, here: "client", there: "server"}
		}
		c.conn = conn
		return conn, err
	}
}

// lines answers METHOD [PARAMS] lines; one that fails does not keep the next
// from being tried.
func (c *caller) lines(ctx context.Context) (failed error) {
	for c.input.Scan() {
		method, params, _ := strings.Cut(strings.TrimSpace(strings.ReplaceAll(c.input.Text(), "\t", " ")), " ")
		if method == "" {
			continue
		}
		err := c.print(ctx, method, params)
		if errors.Is(err, errOutput) { // nobody would see the answers to the next lines
			return err
		}
		if err != nil {
			fail(exitError, err)
			failed = errors.New("not all calls have succeeded")
		}
	}
	return cmp.Or(failed, c.input.Err())
}

// print calls a method and prints its result, as it came, on one line.
func (c *caller) print(ctx context.Context, method, params string) error {
	var result json.RawMessage
	if err := c.call(ctx, method, params, &result); err != nil {
		return fmt.Errorf("%s: %w", method, err)
	}
	stderr.flush() // who reads both in one place reads them in order
	if _, err := os.Stdout.Write(append(appendLine(nil, result), '\n')); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// errOutput marks the error of a write to standard output. A reader who has gone
// ends the command: SIGPIPE does not, since main catches it.
var errOutput = errors.New("standard output")

// call calls a method with params that are an object or empty, and asks for
// progress, which extends the time-out.
func (c *caller) call(ctx context.Context, method, params string, result any) error {
	var given, meta object
	if params != "" && !isObject(params) {
		return errors.New("params must be a JSON object")
	}
	said := json.RawMessage(strings.TrimSpace(params))
	given.addAll(said, "_meta")
	said = member(said, "_meta")
	meta.addAll(said)
	if member(said, "progressToken") == nil {
		c.tokens++
		meta.add("progressToken", strconv.AppendInt(nil, c.tokens, 10))
	}
	given.add("_meta", meta.encode())
	return c.limited(ctx, func(ctx context.Context) error { return c.Call(ctx, method, given.encode(), result) })
}

const longest = 100_000 * time.Hour // as good as no time-out; ten times as much can be counted as well

// limited runs f within the time-out: each progress notification starts it
// anew, but not beyond ten times its length.
func (c *caller) limited(ctx context.Context, f func(context.Context) error) error {
	why := fmt.Errorf("no answer within %v", c.timeout)
	ctx, cancel := context.WithTimeoutCause(ctx, 10*c.timeout, why)
	defer cancel()
	ctx, expire := context.WithCancelCause(ctx)
	defer expire(nil)
	idle := time.AfterFunc(c.timeout, func() { expire(why) })
	defer idle.Stop()
	c.idle.Store(idle)
	err := f(ctx)
	if err != nil && context.Cause(ctx) == why {
		return why
	}
	return err
}

// summary prints how the server was reached and what it offers. A list that
// cannot be read does not keep the next from being tried.
func (c *caller) summary(ctx context.Context, target []string) (failed error) {
	var unwritten error // the first error of standard output
	show := func(label, value string) {
		if _, err := fmt.Printf("%-13s %s\n", label, printable(value)); err != nil && unwritten == nil {
			unwritten = fmt.Errorf("%w: %w", errOutput, err)
		}
	}
	server := c.Server()
	who := cmp.Or(server.Info, &Implementation{Name: "it did not say"})
	var offered names
	if bytes.HasPrefix(server.Capabilities, []byte("{")) {
		for name := range each(server.Capabilities) {
			if err := offered.add(string(name)); err != nil {
				failed = fmt.Errorf("capabilities: %w", err)
				break
			}
		}
	}
	transport, session := "stdio", "none"
	switch conn := c.conn.(type) {
	case *sseConn:
		transport, session = "HTTP+SSE", "yes" // the stream
	case *httpConn:
		transport = "Streamable HTTP"
		conn.mu.Lock()
		if conn.session != "" {
			session = "yes"
		}
		conn.mu.Unlock()
	}
	show("target", strings.Join(target, " "))
	show("transport", transport)
	show("revision", server.Version)
	show("session", session)
	show("server", strings.TrimSpace(who.Name+" "+who.Version+" "+who.Title))
	show("capabilities", strings.Join(slices.Sorted(slices.Values(offered.list)), ", "))
	for _, list := range []struct{ label, capability, method, items, name string }{
		{"tools", "tools", "tools/list", "tools", "name"},
		{"resources", "resources", "resources/list", "resources", "uri"},
		{"templates", "resources", "resources/templates/list", "resourceTemplates", "uriTemplate"},
		{"prompts", "prompts", "prompts/list", "prompts", "name"},
	} {
		if unwritten != nil {
			break
		}
		if !slices.Contains(offered.list, list.capability) {
			continue
		}
		names, err := c.list(ctx, list.method, list.items, list.name)
		var fault *Error
		switch {
		case err == nil:
		case list.label == "templates" && errors.As(err, &fault) && fault.Code == CodeMethodNotFound:
			// A server may have resources and no templates; no capability says so.
		default:
			if failed != nil { // the last one is our caller's to show
				fail(exitError, failed)
			}
			failed, names = err, append(names, "?")
		}
		show(list.label, cmp.Or(strings.Join(names, ", "), "none"))
	}
	return cmp.Or(unwritten, failed)
}

// names are to be shown.
type names struct {
	list []string
	size int
}

const maxListed = 4 << 20 // bytes of names that are shown together

func (n *names) add(name string) error {
	if n.size += len(name) + len(", "); n.size > maxListed {
		return fmt.Errorf("more than %d bytes of names", maxListed)
	}
	n.list = append(n.list, name)
	return nil
}

// list returns the names of all items of a list, page by page; with an error,
// those before it. 2026-07-28 pagination: an empty cursor is not the end.
func (c *caller) list(ctx context.Context, method, items, name string) ([]string, error) {
	var found names
	params := "{}"
	for range maxPages {
		var result json.RawMessage
		if err := c.call(ctx, method, params, &result); err != nil {
			return found.list, fmt.Errorf("%s: %w", method, err)
		}
		page := member(result, items)
		if !bytes.HasPrefix(page, []byte("[")) {
			return found.list, fmt.Errorf("%s: no %s in the result", method, items)
		}
		// Not decoded: in memory it could be many times as large.
		for _, item := range each(page) {
			if err := found.add(unquote(member(item, name))); err != nil {
				return found.list, fmt.Errorf("%s: %w", method, err)
			}
		}
		next := string(member(result, "nextCursor"))
		if next == "" || next == "null" {
			return found.list, nil
		}
		params = `{"cursor":` + next + `}`
	}
	return found.list, fmt.Errorf("%s: no end of pages", method)
}

// Handle shows notifications, and answers elicitations.
func (c *caller) Handle(ctx context.Context, x *Exchange) (any, error) {
	method, params := x.Request.Method, x.Request.Params
	if x.Request.Kind() == Notification {
		if idle := c.idle.Load(); method == "notifications/progress" && idle.Stop() {
			idle.Reset(c.timeout)
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
		filled := make(chan any, 1)
		go func() { filled <- c.fillIn(params) }() // ends with the process: nothing interrupts stdin
		select {
		case content := <-filled:
			return content, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	return map[string]any{"action": "decline"}, nil
}

// fillIn asks at the terminal for each property of the form, one form at a
// time; end of input cancels.
func (c *caller) fillIn(params json.RawMessage) any {
	c.form.Lock()
	defer c.form.Unlock()
	fmt.Fprintln(c.stderr, printable(unquote(member(params, "message"))))
	var form, content object
	form.addAll(lookup(params, "requestedSchema", "properties")) // if it is an object
	for name, schema := range each(form.encode()) {
		kind := unquote(member(schema, "type"))
		fmt.Fprintf(c.stderr, "%s (%s): ", printable(string(name)), printable(kind))
		if !c.input.Scan() {
			return map[string]any{"action": "cancel"}
		}
		line := strings.TrimSpace(c.input.Text())
		value := json.RawMessage(line)
		if kind == "string" || !json.Valid(value) {
			value, _ = marshal(line)
		}
		if line == "" {
			value = member(schema, "default")
		}
		if value != nil {
			content.add(string(name), value)
		}
	}
	return map[string]any{"action": "accept", "content": json.RawMessage(content.encode())}
}
