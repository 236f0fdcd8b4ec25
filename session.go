// SPDX-License-Identifier: 0BSD
// session.go of mcpwire 0.3.0, which is made to be copied.

package main

// MCP on top of JSON-RPC: the revisions, what a message says about its sender, and the
// lifecycle of both eras, from both ends.
//
//	(each line also begins with "jsonrpc":"2.0", which is left out here)
//
//	legacy: initialize comes first
//	> {"id":1,"method":"initialize","params":{
//	    "protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}
//	< {"id":1,"result":{
//	    "protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}}
//	> {"method":"notifications/initialized"}
//	> {"id":2,"method":"tools/list"}
//	< {"id":2,"result":{"tools":[…]}}
//
//	modern: no handshake; server/discover is optional
//	> {"id":1,"method":"server/discover","params":{"_meta":{…}}}
//	< {"id":1,"result":{"supportedVersions":["2026-07-28",…],…}}
//	> {"id":2,"method":"tools/list","params":{"_meta":{
//	    "io.modelcontextprotocol/protocolVersion":"2026-07-28",
//	    "io.modelcontextprotocol/clientCapabilities":{},
//	    "io.modelcontextprotocol/clientInfo":{…}}}}
//	< {"id":2,"result":{
//	    "resultType":"complete","tools":[…],"_meta":{"io.modelcontextprotocol/serverInfo":{…}}}}
//
// In the legacy era the client introduces itself once, with initialize, and the server
// remembers what it has said. In the modern era, 2026-07-28, every request says the same again,
// in its _meta. A handler gets the same Meta in both eras, so one Server with one set of
// handlers serves both:
//
//	Server                                          Client
//	  Handle: which era?                              Call: is there a connection?
//	    modern: check _meta, run the handler,           no:  an attempt in the background dials and
//	            complete the result                          negotiates; all callers wait for it
//	    legacy: initialize, or run the handler          yes: Peer.Call, in the modern era with _meta
//	  AddTool, AddResource …: add methods                 a result with questions: Handlers answer, and Call sends the request again
//
// Words about messages:
//
//	revision     a version of the protocol, such as 2025-11-25
//	era          the legacy revisions, which begin with initialize, or the modern ones, in which each request stands alone
//	_meta        the member of params, and of results, for data about the message and its sender
//	standalone   the stream of a session for messages that belong to no request
//	principal    the user who has sent a request, if the transport has authenticated one
//
// Words about what each end can do:
//
//	capability   what one end declares that it can do
//	elicitation  a question of the server to the user: a form, or a URL to visit
//	sampling     a request of the server to the client's model
//	roots        the folders that a client lets a server work in
//	round        the questions of one run of a handler, and their answers
//	requestState what a modern server wants back with the answers to its questions
//
// On a first reading, read to the banner "What a Server says of itself, and what it refuses":
// 664 lines. AddTool is at "What a Server offers". To read the client, begin at the banner "The
// client", and go on with Client.negotiate, Client.discover and Client.initialize.
//
// Source: 2025-11-25 basic/lifecycle, basic/transports#session-management; 2026-07-28
// basic#meta, basic/versioning, basic/patterns/mrtr (multi round-trip requests),
// basic/patterns/subscriptions, server/discover. Copy this file with jsonrpc.go, and with
// stdio.go, or with sse.go and http.go. To see it work, read lessons 01, 10 and 11 of the
// course: testdata/README.md.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// ==== The wire ====

// ---- Revisions ----

// Revision is one version of the protocol. The fields are the differences between versions that
// this package needs.
type Revision struct {
	Version          string
	Modern           bool // each request declares version and capabilities in _meta: the modern era
	Batches          bool // several messages may travel in one JSON array
	ServerRequests   bool // a server may ask by requests; otherwise it answers input_required
	Completions      bool // a server may declare the capability completions
	Annotations      bool // a tool may say whether it changes anything
	ProgressMessages bool // progress may have a message for users
	Elicitation      bool // a server may ask the user
	Titles           bool // title members; and keys of your own in _meta, with a prefix
	Structured       bool // tools have an outputSchema, and results structuredContent
	Icons            bool // icons members
	ResourceNotFound int  // the error code for a resource that does not exist

	// For Streamable HTTP:
	VersionHeader bool // a client sends MCP-Protocol-Version after initialize
	Resume        bool // Last-Event-ID continues a stream
	Prime         bool // a stream begins with an empty event that has an id, so the server may close it early
}

// Revisions are all versions of the protocol, in the order in which a client tries them: the
// modern ones first, and in each era the newest first. The first line of a row is about this
// version. Each further line has what one version has added, the oldest version first.
//
// To add a revision, insert a row at its place in this order, in this file or from an init
// function of your own. A modern revision has no batches, whatever its row says. If you change
// mcpwire itself, testdata/cases/README.md says what else a new row needs.
var Revisions = []Revision{
	{
		Version: "2026-07-28", Modern: true, ResourceNotFound: CodeInvalidParams,
		Completions: true, Annotations: true, ProgressMessages: true, // since 2025-03-26
		Elicitation: true, Titles: true, Structured: true, VersionHeader: true, // since 2025-06-18
		Icons: true, // since 2025-11-25
	},
	{
		Version: "2025-11-25", ServerRequests: true, ResourceNotFound: CodeResourceNotFound,
		Completions: true, Annotations: true, ProgressMessages: true, Resume: true,
		Elicitation: true, Titles: true, Structured: true, VersionHeader: true,
		Icons: true, Prime: true,
	},
	{
		Version: "2025-06-18", ServerRequests: true, ResourceNotFound: CodeResourceNotFound,
		Completions: true, Annotations: true, ProgressMessages: true, Resume: true,
		Elicitation: true, Titles: true, Structured: true, VersionHeader: true,
	},
	{
		Version: "2025-03-26", ServerRequests: true, ResourceNotFound: CodeResourceNotFound,
		Completions: true, Annotations: true, ProgressMessages: true, Resume: true, Batches: true, // batches: here alone
	},
	{
		Version: "2024-11-05", ServerRequests: true, ResourceNotFound: CodeResourceNotFound,
	},
}

// revision returns the Revision of a version. The zero Revision means that the version is
// unknown.
func revision(version string) Revision {
	for _, r := range Revisions {
		if r.Version == version {
			return r
		}
	}
	return Revision{}
}

// The error codes of MCP: 2026-07-28 basic#error-codes.
const (
	CodeResourceNotFound = -32002 // up to and including 2025-11-25; later it is CodeInvalidParams

	// Of 2026-07-28:
	CodeHeaderMismatch     = -32020 // an HTTP header is missing, malformed, or not what the body says
	CodeMissingCapability  = -32021 // data.requiredCapabilities says what the client lacks
	CodeUnsupportedVersion = -32022 // data.supported lists the versions that are served
)

// ---- The messages of the lifecycle ----

// Implementation names the software at one end. It is for display only. 2026-07-28 basic#meta:
// implementations "SHOULD NOT use them to change the behavior".
type Implementation struct {
	Name    string   `json:"name"`
	Title   string   `json:"title,omitempty"`
	Version string   `json:"version"`
	Icons   iconList `json:"icons,omitempty"` // []Icon
}

// The keys of _meta that the protocol has defined.
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaClientInfo   = "io.modelcontextprotocol/clientInfo"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Meta is what a client says about itself and its request. In the modern era the _meta of each
// request has all of it. A legacy client says it in initialize and logging/setLevel, and only
// the ProgressToken in _meta. 2026-07-28 basic#meta.
type Meta struct {
	// ProtocolVersion is the version of the request. Modern requests need it.
	ProtocolVersion string `json:"io.modelcontextprotocol/protocolVersion,omitempty"`
	// ClientInfo names the client, without icons; nil: it does not say.
	ClientInfo *Implementation `json:"io.modelcontextprotocol/clientInfo,omitempty"`
	// ClientCapabilities is an object, and says what the client can be asked. Modern requests
	// need it; nil: the client does not say.
	ClientCapabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities,omitempty"`
	// LogLevel is the lowest level of the log messages that the client wants. nil: a modern
	// client wants none, and a legacy client has not set a level.
	LogLevel *string `json:"io.modelcontextprotocol/logLevel,omitempty"`
	// ProgressToken is a string or an integer. Each report of progress repeats it, and so names
	// the request. nil: the client wants no reports.
	ProgressToken json.RawMessage `json:"progressToken,omitempty"`
}

// InitializeParams are the params of initialize. 2025-11-25 basic/lifecycle#initialization.
type InitializeParams struct {
	ProtocolVersion string          `json:"protocolVersion"` // the newest one that the client speaks
	Capabilities    json.RawMessage `json:"capabilities"`    // an object: what the client can be asked
	ClientInfo      Implementation  `json:"clientInfo"`
}

// InitializeResult is the result of initialize. 2025-11-25 basic/lifecycle#initialization.
type InitializeResult struct {
	ProtocolVersion string          `json:"protocolVersion"` // the one that is in force from now on
	Capabilities    json.RawMessage `json:"capabilities,omitempty"`
	ServerInfo      *Implementation `json:"serverInfo,omitempty"`
	Instructions    string          `json:"instructions,omitempty"` // for the client's model
}

// DiscoverResult is the result of server/discover. 2026-07-28 server/discover.
type DiscoverResult struct {
	SupportedVersions []string        `json:"supportedVersions"`
	Capabilities      json.RawMessage `json:"capabilities,omitempty"`
	Instructions      string          `json:"instructions,omitempty"` // for the client's model
	Meta              *ResultMeta     `json:"_meta,omitempty"`
}

// ResultMeta is the _meta of a modern result. 2026-07-28 basic#meta.
type ResultMeta struct {
	ServerInfo *Implementation `json:"io.modelcontextprotocol/serverInfo,omitempty"`
}

// ==== The server ====
//
// What decides about a request, in the order of time:
//
//	Peer.dispatch ─► beginPayload ─► beginRequest ─► Server.Handle ┬ handleModern ┐
//	                                                               └ handleLegacy ┴► a handler

// ---- Which era a message belongs to ----
//
// An Exchange has two Peers. owner has the request in its table. Peer is for the Handler:
//
//	a request comes               owner                              Peer
//	on stdio, legacy              the Peer of the Conn               the same
//	on stdio, modern              the Peer of the Conn               nil
//	in a POST of a session        the Peer of the Session            the same
//	in a POST without a session   a Peer that dispatches this POST   nil

// mcpProtocol is the protocol of a Peer that speaks MCP. It remembers the handshake. The Peer
// calls beginPayload for each payload that comes in, and then beginRequest for each request,
// before the Handler gets it.
type mcpProtocol struct {
	mu     sync.Mutex // guards agreed: Peer.handshake reads it, and Peer.note changes it
	agreed handshake
}

// handshake is what both ends have agreed on, by initialize or, at a client, by
// server/discover. The messages after that do not repeat it.
type handshake struct {
	revision Revision // the zero Revision: nothing was agreed on yet
	meta     Meta     // at a server: what the client has said in initialize and logging/setLevel
	ready    bool     // the client has sent notifications/initialized
}

// mcpFacts is what MCP knows about a request, in addition to what JSON-RPC knows.
type mcpFacts struct {
	meta       Meta
	revision   Revision                   // in force for the request; the zero Revision: none yet
	inputs     map[string]json.RawMessage // what Exchange.Inputs returns: the answers of the last round, by key
	inputState string                     // what Exchange.State returns: the State of the last InputRequired
	noLogs     bool                       // the Server has not declared logging
	reported   *float64                   // the last progress that was sent; nil: none
	disconnect func(time.Duration)        // ends the HTTP response; nil: there is none to end
}

// facts returns what MCP knows about the request. If nothing is stored yet, it stores the zero
// mcpFacts.
func (x *Exchange) facts() *mcpFacts {
	if x.protocolData == nil {
		x.protocolData = new(mcpFacts)
	}
	return x.protocolData.(*mcpFacts)
}

// newFacts gives a message mcpFacts of its own: a copy of what HTTP has put into base for all
// messages of the payload, with what the handshake says.
func (x *Exchange) newFacts() *mcpFacts {
	own := *x.facts()
	agreed := x.owner.handshake()
	if agreed.revision.Version != "" { // otherwise keep the revision that HTTP may have read from the header
		own.revision = agreed.revision
	}
	own.meta = agreed.meta
	x.protocolData = &own
	return &own
}

// beginPayload decides about batches. On a server, refuseBatch refuses them where there are
// none. A client takes any array: otherwise a response in it would be lost.
func (m *mcpProtocol) beginPayload(in Payload, base *Exchange) (asArray bool, refused string) {
	if !in.Batch {
		return false, ""
	}
	rev := base.newFacts().revision
	if !base.owner.weAreClient {
		refused = refuseBatch(in, rev)
	}
	return rev.Batches, refused
}

// beginRequest decides which era a request belongs to, and fills in what it says about its
// sender.
func (m *mcpProtocol) beginRequest(in Payload, x *Exchange) error {
	facts := x.newFacts()
	meta, err := x.Request.Meta() // reads _meta
	rev := revision(meta.ProtocolVersion)
	// Legacy clients seldom declare a version in _meta: an unknown one there means a newer
	// client.
	modern := meta.ProtocolVersion != "" && (rev.Modern || rev.Version == "")
	if x.owner.weAreClient && facts.revision.Modern {
		// 2026-07-28 basic/transports/stdio: the client "MUST NOT write JSON-RPC responses"
		x.owner.log.Warn("dropped a request of a server that must not ask", "method", brief(x.Request.Method))
		return errIgnored
	}
	switch {
	case err != nil:
		return err
	case modern && in.Batch:
		return invalidRequest("a batch in " + meta.ProtocolVersion)
	case modern:
		facts.revision, facts.meta = rev, meta
		// 2026-07-28 basic/transports/stdio: "The server MUST NOT write JSON-RPC requests to
		// stdout", even if the client has initialized on this Conn before.
		x.Peer = nil
	default:
		facts.meta.ProgressToken = meta.ProgressToken
		// Keep a legacy version in _meta, so that Handle can refuse it before initialize.
		facts.meta.ProtocolVersion = cmp.Or(facts.meta.ProtocolVersion, meta.ProtocolVersion)
	}
	x.exclusive = x.Request.Method == "initialize" // what follows it depends on it
	return nil
}

// ---- The Server ----

// Server is the Handler that knows the lifecycle of both eras. It serves any number of Conns at
// once. It answers initialize, ping and server/discover itself. AddTool, AddResource,
// AddResourceTemplate, AddPrompt, OfferLogging and AnnounceChanges add other methods, and so
// does the field Methods. Set the fields before the first request.
type Server struct {
	// Info is what clients are told about this server. MCP requires a Name and a Version. The
	// Server does not check that they are there.
	Info Implementation
	// Capabilities override what the Server declares. By itself it declares what was added
	// before the first request: AddTool gives tools, for example, and AnnounceChanges adds
	// listChanged. An entry here replaces the whole entry of that name. If a capability is
	// declared and nothing was added, its lists are empty. If Capabilities cannot be encoded,
	// each request gets an error.
	Capabilities map[string]any
	Instructions string   // for the client's model; "": none
	Versions     []string // versions to offer, newest first; empty: all
	// Methods holds handlers of more methods, and of notifications/…, by name. They replace
	// those that AddTool, AddResource and the others have added. The handler of tools/call,
	// prompts/get or resources/read may return an InputRequired.
	Methods map[string]HandlerFunc
	// StateKey is the key that protects a requestState. It may have any length. All copies of a
	// server need the same one. Empty: a random key.
	StateKey []byte

	configuration // what the first request fixes: versions, capabilities, and more
	offers        // what AddTool, AddResource and the others have added
}

// Handle answers a request in its own era, or takes in a notification. The request must have
// come by Serve, StreamableHandler or SSEHandler, which speak MCP.
func (s *Server) Handle(ctx context.Context, x *Exchange) (any, error) {
	// The first request fixes what the Server says of itself. begin fails if a request has not
	// come by Serve or an HTTP handler of this package, and if Capabilities cannot be encoded.
	if err := s.begin(x); err != nil {
		return nil, err
	}
	version := x.Meta().ProtocolVersion
	switch {
	case x.Request.Kind() == Notification:
		return s.handleNotification(ctx, x)
	case version != "" && !slices.Contains(s.versions, version):
		return nil, s.refuseVersion(x.Request.Method, version)
	case x.Revision().Modern:
		return s.handleModern(ctx, x)
	}
	return s.handleLegacy(ctx, x)
}

// Meta returns what the sender of the request has said about itself: a modern request says it,
// a legacy client has said it in initialize. So the ProtocolVersion is what the request
// declares, or what initialize has agreed on.
func (x *Exchange) Meta() Meta { return x.facts().meta }

// Revision returns the revision that is in force for the request. Before initialize it is the
// zero Revision.
func (x *Exchange) Revision() Revision { return x.facts().revision }

// ---- The modern era: 2026-07-28 ----

// handleModern checks what each modern request must say. Then it runs the handler. The method
// complete encodes the result, and adds what the handler has not set: resultType, how long a
// client may cache the result, and the name of this server.
func (s *Server) handleModern(ctx context.Context, x *Exchange) (any, error) {
	method, meta := x.Request.Method, x.Meta()
	switch {
	case meta.ClientCapabilities == nil:
		// 2026-07-28 basic#meta: "the server MUST reject it with JSON-RPC error code -32602"
		return nil, missingMeta(s.versions, metaCapabilities)
	case meta.LogLevel != nil && !slices.Contains(logLevels, *meta.LogLevel):
		return nil, unknownName("log level", *meta.LogLevel)
	case method == "initialize":
		// 2026-07-28 basic/versioning: name the versions "in any error it returns to an
		// initialize request"
		return nil, errorWithVersions(s.versions, CodeMethodNotFound, MethodNotFound(method).Message)
	case method == "server/discover":
		return s.complete(x, s.discover()) // complete encodes a result; that of discover is a DiscoverResult
	}
	h := s.handlerOf(x) // from Methods, or from AddTool and the others
	if h == nil {
		return nil, MethodNotFound(method)
	}
	if mcpMethods[method].mayAsk { // such as tools/call: the request may bring answers, for Exchange.Input
		if err := s.readAnswers(x); err != nil {
			return nil, err
		}
	}
	result, err := h(ctx, x)
	if questions, asks := result.(asker); asks && err == nil { // an InputRequired
		result, err = questions.result(s, x) // the client asks its user, and sends the request again
	}
	if err != nil {
		return nil, permitted(x.Revision(), err) // -32602 in place of -32002, for example
	}
	return s.complete(x, result)
}

// ---- The legacy era: initialize, and what it allows ----

// handleLegacy serves each request that declares no modern version. A handler runs again as
// long as it has questions to the user.
func (s *Server) handleLegacy(ctx context.Context, x *Exchange) (any, error) {
	method := x.Request.Method
	switch {
	case firstLegacy(s.versions) == "": // no legacy version is offered
		// 2026-07-28 basic/versioning: name the versions "in any error it returns to an
		// initialize request"
		return nil, missingMeta(s.versions, metaVersion)
	case method == "initialize":
		return s.initialize(x)
	case method == "ping": // allowed at any time
		return nil, nil
	case x.Revision().Version == "": // no initialize has come before
		return nil, s.needsHandshake()
	}
	h := s.handlerOf(x)
	if h == nil {
		return nil, MethodNotFound(method)
	}
	for round := 0; ; round++ {
		result, err := h(ctx, x)
		questions, asks := result.(asker) // an InputRequired
		switch {
		case codeOf(err) == CodeMissingCapability: // of Exchange.Require: the legacy era does not know that code
			return askFailed(ctx, x, err) // for tools/call a result with isError, otherwise CodeInternalError
		case err != nil || !asks:
			return result, permitted(x.Revision(), err)
		}
		if err := questions.askLegacy(ctx, x, round); err != nil { // such as: too many rounds
			return askFailed(ctx, x, err)
		}
	}
}

// initialize agrees on a version. 2025-11-25 basic/lifecycle#version-negotiation: "If the
// server supports the requested protocol version, it MUST respond with the same version.
// Otherwise, the server MUST respond with another protocol version it supports."
func (s *Server) initialize(x *Exchange) (any, error) {
	var p InitializeParams
	if err := x.Bind(&p); err != nil { // what has no omitempty must be there
		return nil, err
	}
	if err := p.check(); err != nil {
		return nil, err
	}
	rev := revision(p.ProtocolVersion)
	if rev.Modern || !slices.Contains(s.versions, rev.Version) { // the modern era has no handshake
		rev = revision(firstLegacy(s.versions))
	}
	remembers := x.Peer != nil // over HTTP without sessions, nothing is remembered
	if remembers {             // the Peer stores the handshake, and newFacts reads it for each request
		s.startLegacy(x.Peer, rev, p)
	}
	info := s.Info.knownTo(rev) // without what this revision does not know, such as icons
	return InitializeResult{
		ProtocolVersion: rev.Version,
		Capabilities:    s.capabilities(rev, remembers), // what the Server declares, and this client can use
		ServerInfo:      &info,
		Instructions:    s.Instructions,
	}, nil
}

// handleNotification notes that a legacy client is ready. If Methods has a handler for the
// notification, handleNotification calls that, too.
func (s *Server) handleNotification(ctx context.Context, x *Exchange) (any, error) {
	if x.Request.Method == "notifications/initialized" && x.Peer != nil {
		s.noteReady(x.Peer) // from now on the client may be asked, and is told of changes
	}
	h := s.Methods[x.Request.Method]
	// A tools/call without an id is a notification, too. It must not run the tool: the checks
	// of requests have not been made.
	if h == nil || !strings.HasPrefix(x.Request.Method, "notifications/") {
		return nil, nil
	}
	return h(ctx, x)
}

// ---- A call of a tool, and its progress ----

// callTool is the handler of tools/call, which AddTool adds. If the tool returns an *Error,
// that answers the request. Any other error becomes a result with isError, which the model
// reads.
func (s *Server) callTool(ctx context.Context, x *Exchange) (any, error) {
	tool, arguments, err := findNamed(s, x, &s.tools, "tool") // the one that the params name, as AddTool has stored it
	if err != nil {
		return nil, err
	}
	result, err := tool.call(ctx, x, arguments) // what withArguments has returned
	if err == nil {
		return toolResult(x, result) // a string becomes a text content; an InputRequired stays as it is
	}
	_, isFault := errors.AsType[*Error](err)
	if isFault || ctx.Err() != nil { // after a cancellation, nobody reads a result
		return nil, err
	}
	return ToolError("%v", err).encode()
}

// withArguments makes the function that callTool calls, out of that which AddTool was given. It
// stores the arguments in a struct of the type A.
func withArguments[A any](run func(context.Context, *Exchange, A) (any, error)) func(context.Context, *Exchange, json.RawMessage) (any, error) {
	return func(ctx context.Context, x *Exchange, text json.RawMessage) (any, error) {
		var arguments A
		if raw, isRaw := any(&arguments).(*json.RawMessage); isRaw { // the tool reads the text by itself
			if len(text) > 0 && text[0] != '{' && string(text) != "null" {
				return nil, errNoObject
			}
			*raw = text
		} else if err := Bind(text, &arguments); err != nil {
			return nil, argumentError(err) // becomes a result with isError, which the model reads
		}
		return run(ctx, x, arguments)
	}
}

// Progress tells the client how far its request has come. If the request has no progress token,
// Progress does nothing. It sends only a progress that is higher than the last one. So a
// handler that returns an InputRequired, and begins again with the answers, may report the same
// steps again. total 0 means that the end is not known. If the request is over, what would be
// sent is the error ErrAnswered. Only one goroutine at a time may call it.
func (x *Exchange) Progress(ctx context.Context, progress, total float64) error {
	return x.ProgressMessage(ctx, progress, total, "")
}

// ProgressMessage is Progress with a message for users, such as "reading page 3". 2024-11-05
// does not know the message, so it is left out there.
func (x *Exchange) ProgressMessage(ctx context.Context, progress, total float64, message string) error {
	facts := x.facts()
	token := facts.meta.ProgressToken
	switch {
	case token == nil: // the client wants no reports
		return nil
	case x.state == nil: // a notification, which has no progress
		return ErrAnswered
	case !isFinite(progress) || !isFinite(total):
		return fmt.Errorf("progress %v of %v", progress, total)
	case facts.reported != nil && progress <= *facts.reported:
		// 2025-11-25 basic/utilities/progress: "The progress value MUST increase with each
		// notification"
		return nil
	}
	facts.reported = new(progress)
	if !facts.revision.ProgressMessages {
		message = ""
	}
	return x.Notify(ctx, "notifications/progress", ProgressParams{token, progress, total, message}.encode())
}

// ---- Questions to the user, in either era ----
//
// A handler asks by returning an InputRequired. What happens then:
//
//	legacy                                            modern
//	> tools/call, id 2                                > tools/call, id 2
//	  the handler returns InputRequired                 the handler returns InputRequired
//	< elicitation/create, a request with id 1         < the result of id 2: input_required, with all questions and requestState
//	> the response to id 1                              the server has forgotten the call; the client asks its user
//	  (one request for each question)                 > tools/call, id 3: the same params, the answers and requestState
//	  the handler runs again, with the answers          the handler runs again, with the answers
//	< the result of id 2                              < the result of id 3

// asker is a result of a handler that has to ask first: an InputRequired. It is an interface,
// so that a program that asks nothing does not carry the code.
type asker interface {
	// result returns what a modern client gets: the questions.
	result(s *Server, x *Exchange) (any, error)
	// askLegacy asks a legacy client, and stores the answers. round counts from 0.
	askLegacy(ctx context.Context, x *Exchange, round int) error
}

// InputRequired is a result that a handler of tools/call, prompts/get or resources/read may
// return in place of its own. Then the client is asked, and the handler runs again:
// Exchange.Inputs has the answers, Exchange.State the State.
//
//	func greet(ctx context.Context, x *Exchange, _ struct{}) (any, error) {
//		var answer ElicitResult
//		if !x.Input("name", &answer) {
//			return InputRequired{Requests: map[string]InputRequest{
//				"name": {Method: "elicitation/create", Params: ElicitParams{Message: "Who?", RequestedSchema: …}},
//			}}, nil
//		}
//		if answer.Action != "accept" {
//			return ToolError("The user does not say."), nil
//		}
//		return "The user has answered " + string(answer.Content), nil
//	}
//
// A modern client gets the questions as the result of its call, and calls again with the
// answers. A legacy client gets them as requests, one after the other.
//
// The handler runs from its beginning each time. It may report the same progress again. In the
// legacy era Progress sends only what has risen. In the modern era each run is a request of its
// own.
//
// Inputs has the answers of the last round only, and they are not checked. If the handler needs
// something from an earlier round, it keeps that in State. A call of a legacy client has at
// most 16 rounds. In the modern era the client limits the rounds of its calls.
//
// If a client has not declared that it can be asked, a legacy tools/call gets a result with
// isError, and any other legacy request a CodeInternalError. A modern request gets an error
// with CodeMissingCapability. Over HTTP its status is 400, or 200 if the response has become a
// stream before. If the handler calls Exchange.Require at its beginning, it is always 400.
type InputRequired struct {
	Requests map[string]InputRequest // by keys that the handler chooses
	// State comes back with the answers. A modern client sends it back: it can neither read nor
	// change it, but it can send it twice.
	State string
}

// ---- What a Server says of itself, and what it refuses ----

// mcpMethod is what a Server knows of a method beside its handler.
type mcpMethod struct {
	capability string // a Server that serves the method declares this capability
	list       string // the result is a list: this member holds the entries
	mayAsk     bool   // in the modern era, the result may be input_required
	cacheable  bool   // in the modern era, the result says how long a client may keep it
	legacy     bool   // only legacy clients have it and, over HTTP, only those in a session
	modern     bool   // only modern clients have it
}

// mcpMethods are all methods that a client calls. 2026-07-28
// basic/patterns/mrtr#supported-requests, server/utilities/caching.
var mcpMethods = map[string]mcpMethod{
	"initialize":               {legacy: true},
	"ping":                     {legacy: true},
	"server/discover":          {modern: true, cacheable: true},
	"tools/list":               {capability: "tools", list: "tools", cacheable: true},
	"tools/call":               {capability: "tools", mayAsk: true},
	"resources/list":           {capability: "resources", list: "resources", cacheable: true},
	"resources/templates/list": {capability: "resources", list: "resourceTemplates", cacheable: true},
	"resources/read":           {capability: "resources", mayAsk: true, cacheable: true},
	"resources/subscribe":      {legacy: true}, // if Server.Capabilities name resources with subscribe
	"resources/unsubscribe":    {legacy: true},
	"subscriptions/listen":     {modern: true},
	"prompts/list":             {capability: "prompts", list: "prompts", cacheable: true},
	"prompts/get":              {capability: "prompts", mayAsk: true},
	"completion/complete":      {capability: "completions"},
	"logging/setLevel":         {capability: "logging", legacy: true},
}

// capabilityOfQuestion has all methods that a server calls, its questions, with the capability
// that the client needs for them.
var capabilityOfQuestion = map[string]string{
	"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots",
}

// begin returns an error if a request has not come by a transport that speaks MCP: it belongs
// to no Peer, or to one without the mcpProtocol, which Serve and Open add. The first request
// fixes what clients are told. If that was a mistake, all requests get the error.
func (s *Server) begin(x *Exchange) error {
	if x.owner == nil {
		return errors.New("a Server needs a request of a client: in a test, use a Pipe")
	}
	if _, isMCP := x.owner.protocol.(*mcpProtocol); !isMCP {
		return errors.New("a Server speaks MCP: use Serve or Open in place of ServeConn or OpenConn")
	}
	s.once.Do(s.prepare)
	x.facts().noLogs = !s.logs // Exchange.Log needs it
	return s.mistake
}

// discover returns the result of server/discover.
func (s *Server) discover() DiscoverResult {
	return DiscoverResult{
		SupportedVersions: s.versions,
		Capabilities:      s.caps,
		Instructions:      s.Instructions,
		Meta:              &ResultMeta{ServerInfo: &s.Info},
	}
}

// offers is what was added to a Server.
type offers struct {
	mu        sync.Mutex             // guards the fields below, and caps
	methods   map[string]HandlerFunc // added by AddTool, AddResource and the others
	tools     catalog[*offeredTool]  // by name
	resources catalog[ReadFunc]      // by URI
	templates catalog[ReadFunc]      // by URI template
	prompts   catalog[PromptFunc]    // by name
}

// configuration is what the first request fixes. Nothing changes it after that.
type configuration struct {
	once     sync.Once       // runs prepare, which sets the others
	versions []string        // Server.Versions, or all
	caps     json.RawMessage // what the server declares, an object
	name     json.RawMessage // Info without icons: what each modern result says about this server
	sealer   cipher.AEAD     // encrypts a requestState
	mistake  error           // Capabilities cannot be encoded; nil: they can

	// OfferLogging and AnnounceChanges set these fields, before the first request.
	logs    bool      // OfferLogging was called
	changes announcer // nil: AnnounceChanges was not called
}

// prepare fixes what clients are told. For each list of a declared capability that has no
// handler yet, it enters one that returns an empty list: 2026-07-28 server/tools#capabilities,
// "Servers that declare the tools capability MUST respond to tools/list requests". The pages of
// prompts and resources say the same.
func (s *Server) prepare() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.versions = s.offered()
	s.sealer = newSealer(s.StateKey)
	s.name, _ = marshal(Implementation{Name: s.Info.Name, Title: s.Info.Title, Version: s.Info.Version}) // strings have no error
	caps, err := marshalObject(s.declared())
	if err != nil { // it is kept: a Once runs only once
		s.mistake = fmt.Errorf("Server.Capabilities: %w", err)
	}
	s.caps = caps
	for method, m := range mcpMethods {
		if m.list != "" && member(caps, m.capability) != nil && s.methods[method] == nil {
			s.enter(method, listHandler(s, new(catalog[*offeredTool]), method)) // of nothing
		}
	}
}

// offered returns the versions that are offered.
func (s *Server) offered() []string { return versionsOrAll(s.Versions) }

// declared returns the capabilities that the Server declares. The caller holds mu.
func (s *Server) declared() map[string]any {
	all := map[string]any{}
	for _, methods := range []map[string]HandlerFunc{s.methods, s.Methods} {
		for method := range methods {
			switch capability := mcpMethods[method].capability; {
			case capability == "":
			case s.changes != nil && capability != "completions" && capability != "logging":
				all[capability] = map[string]bool{"listChanged": true}
			default:
				all[capability] = struct{}{}
			}
		}
	}
	maps.Copy(all, s.Capabilities)
	return all
}

// enter enters a method. The caller holds mu.
func (s *Server) enter(method string, h HandlerFunc) {
	if s.methods == nil {
		s.methods = map[string]HandlerFunc{}
	}
	s.methods[method] = h
}

// handlerOf returns the handler of a request; nil: none is for its method in its era.
func (s *Server) handlerOf(x *Exchange) HandlerFunc {
	name := x.Request.Method
	if h := s.Methods[name]; h != nil { // in either era
		return h
	}
	m := mcpMethods[name]
	if m.legacy && x.Peer == nil || m.modern && !x.Revision().Modern {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.methods[name]
}

// declaresTrue reports whether a part of a capability is true.
func (s *Server) declaresTrue(capability, part string) bool {
	return isTrue(member(s.caps, capability), part)
}

// isTrue reports whether a member of an object is true.
func isTrue(object json.RawMessage, name string) bool { return string(member(object, name)) == "true" }

// capabilities returns what a legacy client is offered. If nothing is remembered between its
// requests, there are no announcements, no subscriptions and no log level.
func (s *Server) capabilities(rev Revision, remembers bool) json.RawMessage {
	var offered Object
	for name, value := range Each(s.caps) {
		if string(name) == "completions" && !rev.Completions || string(name) == "logging" && !remembers {
			continue
		}
		if !remembers {
			var rest Object
			rest.AddAll(value, "listChanged", "subscribe")
			value = rest.JSON()
		}
		offered.Add(string(name), value)
	}
	return offered.JSON()
}

// complete encodes the result of a modern request, and adds what the handler has not set:
// resultType, how long a client may cache the result, and the name of this server.
//
// The result becomes JSON once. Then an Object puts the members together: it copies what is
// JSON already, and does not decode it.
func (s *Server) complete(x *Exchange, result any) (any, error) {
	raw, err := x.marshal(result)
	if err != nil {
		return nil, err
	}
	var given completed // what the handler has set
	_ = Bind(raw, &given)
	full := Object{make([]byte, 0, len(raw)+len(s.name)+160)} // with room for all
	if given.ResultType == nil {
		full.Add("resultType", []byte(`"complete"`))
	}
	full.AddAll(raw, "_meta") // all members but _meta
	if mcpMethods[x.Request.Method].cacheable && unquote(given.ResultType) != "input_required" {
		given.addCaching(&full)
	}
	full.Add("_meta", s.withServerInfo(given.Meta))
	return full.encode(), nil
}

// completed has the members of a modern result that complete adds; nil: there is none.
type completed struct {
	ResultType json.RawMessage `json:"resultType,omitempty"` // "complete" or "input_required"
	TTL        json.RawMessage `json:"ttlMs,omitempty"`      // how many milliseconds a client may keep the result
	CacheScope json.RawMessage `json:"cacheScope,omitempty"` // "private": for this user alone; or "public"
	Meta       json.RawMessage `json:"_meta,omitempty"`      // with a ResultMeta
}

// addCaching adds that a client must not cache the result, if the handler says nothing else.
func (given *completed) addCaching(full *Object) {
	if given.TTL == nil {
		full.Add("ttlMs", []byte("0"))
	}
	if given.CacheScope == nil {
		full.Add("cacheScope", []byte(`"private"`))
	}
}

// withServerInfo returns the _meta of a modern result, with the name of this server.
func (s *Server) withServerInfo(given json.RawMessage) json.RawMessage {
	var meta Object
	meta.AddAll(given)
	if member(given, metaServerInfo) == nil {
		meta.Add(metaServerInfo, s.name)
	}
	return meta.JSON()
}

// knownTo returns what a revision knows of an Implementation.
func (i Implementation) knownTo(rev Revision) Implementation {
	if !rev.Titles {
		i.Title = ""
	}
	if !rev.Icons {
		i.Icons = nil
	}
	return i
}

// needsHandshake returns the error for a legacy request that comes before initialize.
func (s *Server) needsHandshake() *Error {
	missing := "send initialize first"
	if firstModern(s.versions) != "" { // the client may have meant the modern era
		missing += ", or declare " + metaVersion + " in _meta"
	}
	return errorWithVersions(s.versions, CodeInvalidParams, "Invalid params: "+missing)
}

// check returns an error if a client says too little about itself, or too much.
func (p *InitializeParams) check() error {
	client := p.ClientInfo
	size := len(p.Capabilities) + len(client.Name) + len(client.Title) + len(client.Version)
	switch {
	case p.ProtocolVersion == "" || p.Capabilities[0] != '{':
		return InvalidParams("protocolVersion must not be empty, and capabilities must be an object")
	case !client.isWhole():
		return InvalidParams("clientInfo needs a name and a version")
	case size > maxSaid:
		return InvalidParams("capabilities and clientInfo have more than %d bytes", maxSaid)
	}
	return nil
}

// isWhole reports whether the required members are there.
func (i *Implementation) isWhole() bool { return i.Name != "" && i.Version != "" }

// refuseVersion returns the error for a version that is not offered. A legacy-only server
// answers MethodNotFound, so that the client falls back to initialize. It must not answer
// CodeUnsupportedVersion: 2026-07-28 basic/versioning, "a recognized modern JSON-RPC error […]
// identifies a modern server".
func (s *Server) refuseVersion(method, version string) *Error {
	if firstModern(s.versions) == "" {
		return errorWithVersions(s.versions, CodeMethodNotFound, MethodNotFound(method).Message)
	}
	return versionError(s.versions, version)
}

// permitted gives the error of a handler another code if its own must not be sent. A handler
// may pass on the Error of another server. With a code that refuses a request, our client would
// believe that we have refused its own, and might send the call again. 2026-07-28
// basic#error-codes: a server "MUST NOT emit" a code of the specification's range that is not
// defined, nor those of earlier revisions for a resource that is not found and for a URL that
// is to be visited.
func permitted(rev Revision, err error) error {
	fault, _ := errors.AsType[*Error](err)
	if fault == nil {
		return err
	}
	const lastReserved = -32099 // the codes from -32020 on are for the specification, and CodeUnsupportedVersion is the last one it defines
	code := fault.Code
	refuses := slices.Contains([]int{CodeParseError, CodeInvalidRequest, CodeHeaderMismatch, CodeUnsupportedVersion}, code)
	isUndefined := code >= lastReserved && code < CodeUnsupportedVersion
	switch {
	case refuses, rev.Modern && isUndefined:
		code = CodeInternalError
	case code == CodeResourceNotFound:
		code = rev.ResourceNotFound
	}
	if code == fault.Code {
		return err
	}
	return &Error{Code: code, Message: fault.Message, Data: fault.Data}
}

// startLegacy remembers a client that has initialized. Some programs offer one stdio server to
// many clients, one after the other. So a second initialize is answered like the first one, and
// the Server forgets the first client. Only modern requests continue: they do not depend on a
// handshake.
func (s *Server) startLegacy(peer *Peer, rev Revision, said InitializeParams) {
	if peer.handshake().revision.Version != "" {
		peer.replace(func(x *Exchange) bool { return x.Peer == nil || x.Request.Method == "initialize" }, errReplaced)
		if s.changes != nil {
			s.changes.leave(peer)
		}
	}
	client := said.ClientInfo
	client.Icons = nil
	// The capabilities are a copy, because the original would keep the whole request in memory.
	meta := Meta{ProtocolVersion: rev.Version, ClientInfo: &client, ClientCapabilities: bytes.Clone(said.Capabilities)}
	peer.note(func(h *handshake) { *h = handshake{revision: rev, meta: meta} })
}

// noteReady notes that a legacy client has sent notifications/initialized.
func (s *Server) noteReady(peer *Peer) {
	peer.note(func(h *handshake) { h.ready = true })
	if s.changes != nil && peer.handshake().revision.Version != "" {
		s.changes.join(peer)
	}
}

// errReplaced is the error of the calls to a client that another one has replaced.
var errReplaced = fmt.Errorf("%w: another client has initialized", ErrClosed)

// replace forgets the peer of a Conn that another program now uses. It cancels the requests of
// the old peer, except those that stay, and frees their ids. All calls fail with why, because
// the new peer has never seen them. When replace returns, nothing more is sent for the
// cancelled requests.
func (p *Peer) replace(stays func(*Exchange) bool, why error) {
	var ended []*served
	p.mu.Lock()
	// Both tables are changed in one step. A Call whose context ends now must find that it has
	// failed already, or it would send the new peer a cancellation.
	for id, s := range p.serving {
		if stays(s.exchange) {
			continue
		}
		delete(p.serving, id)
		s.cancelled = true
		s.cancel()
		ended = append(ended, s)
	}
	for _, c := range p.calls {
		c.response <- &Message{unusable: why}
	}
	clear(p.calls)
	p.mu.Unlock()
	for _, s := range ended {
		s.sending.Wait()
	}
}

// ---- What a handler knows, and what it sends ----
//
// A test may make an Exchange, such as &Exchange{Principal: "u"}, and call a tool with it. Then
// Progress and Log send nothing, Input returns false, and Require returns an error. A test of a
// tool that needs a request uses a Pipe.

// isFinite reports whether JSON has a number: it has no NaN and no infinity.
func isFinite(n float64) bool { return math.Abs(n) <= math.MaxFloat64 }

// Inputs returns the answers to the questions of the InputRequired that the handler has
// returned before, by key. It returns nil at first.
func (x *Exchange) Inputs() map[string]json.RawMessage { return x.facts().inputs }

// Input reads the answer with this key, as Bind does, into answer, which points to an
// ElicitResult, a SamplingResult or a RootsResult. It returns false if there is no such answer
// yet, or if it does not fit. Then the handler must ask, or ask again.
func (x *Exchange) Input(key string, answer any) bool {
	text, ok := x.Inputs()[key]
	return ok && Bind(text, answer) == nil
}

// State returns the State of the InputRequired that the handler has returned before.
func (x *Exchange) State() string { return x.facts().inputState }

// Disconnect ends the HTTP response to the request, but not the request. The client fetches the
// rest of the response after retry. So a long call needs no open connection. Only 2025-11-25
// has this: elsewhere Disconnect does nothing.
func (x *Exchange) Disconnect(retry time.Duration) {
	if disconnect := x.facts().disconnect; disconnect != nil && x.state != nil { // a notification has no response
		disconnect(retry)
	}
}

// logLevels are the severities of RFC 5424, the least first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Log sends a log message about the request, if its level is wanted. A modern request names a
// level, or gets no messages: 2026-07-28 server/utilities/logging, "MUST NOT emit
// notifications/message for a request that does not include this field". A legacy client has
// set a level with logging/setLevel; before that it gets messages from info upwards. Without
// Server.OfferLogging no messages are sent.
//
// level is one of debug, info, notice, warning, error, critical, alert and emergency. A message
// of any other level is dropped. data encodes to JSON.
func (x *Exchange) Log(ctx context.Context, level string, data any) error {
	least := x.Meta().LogLevel
	if least == nil {
		if x.Peer == nil { // modern; or legacy without a session, which was not offered logging
			return nil
		}
		least = new("info")
	}
	if x.facts().noLogs || slices.Index(logLevels, level) < slices.Index(logLevels, *least) {
		return nil
	}
	return x.Notify(ctx, "notifications/message", map[string]any{"level": level, "data": data})
}

// Require returns an error with CodeMissingCapability unless the client has declared all of the
// capabilities, such as "sampling" or "elicitation.url". The legacy era does not know that
// code. There the Server sends something else if a handler returns the error: for tools/call a
// result with isError, for any other method a CodeInternalError.
func (x *Exchange) Require(capabilities ...string) error {
	missing := map[string]map[string]any{}
	for _, path := range capabilities {
		name, part, _ := strings.Cut(path, ".")
		if x.hasCapability(name, part) {
			continue
		}
		if missing[name] == nil {
			missing[name] = map[string]any{}
		}
		if part != "" {
			missing[name][part] = struct{}{}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	data, _ := marshal(map[string]any{"requiredCapabilities": missing})
	names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
	return &Error{Code: CodeMissingCapability, Message: "The client lacks " + names, Data: data}
}

// hasCapability reports whether the client has declared a capability, or a part of it. A
// capability elicitation without parts means form: 2026-07-28 client/elicitation#capabilities.
func (x *Exchange) hasCapability(name, part string) bool {
	declared := member(x.Meta().ClientCapabilities, name)
	switch {
	case declared == nil, name == "elicitation" && !x.Revision().Elicitation:
		return false
	case part == "":
		return true
	case name == "elicitation" && part == "form":
		return member(declared, "form") != nil || member(declared, "url") == nil
	}
	return member(declared, part) != nil
}

// ---- Log messages ----

// OfferLogging declares logging: handlers may send messages with Exchange.Log, and a legacy
// client may set their least level. Call it before the first request.
func (s *Server) OfferLogging() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.logs = true
	s.enter("logging/setLevel", setLevel)
}

// SetLevelParams are the params of logging/setLevel. 2025-11-25
// server/utilities/logging#setting-log-level.
type SetLevelParams struct {
	Level string `json:"level"`
}

func setLevel(_ context.Context, x *Exchange) (any, error) {
	var p SetLevelParams
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	if !slices.Contains(logLevels, p.Level) {
		return nil, unknownName("log level", p.Level)
	}
	x.Peer.note(func(h *handshake) { h.meta.LogLevel = &p.Level })
	return nil, nil
}

// ---- Content: what tools return, and prompts and resources hold ----

// Icon is a picture for a user interface. Src is an https or data URI.
type Icon struct {
	Src      string   `json:"src"`
	MimeType string   `json:"mimeType,omitempty"`
	Sizes    []string `json:"sizes,omitempty"`
}

// Content is one part of the result of a tool, or of a message. Type says which fields it has.
// TextContent, ImageContent, AudioContent, ResourceLink and EmbeddedResource each return one.
// 2025-11-25 server/tools#tool-result; for tool_use and tool_result
// client/sampling#sampling-with-tools.
type Content struct {
	Type string `json:"type"`           // text, image, audio, resource_link, resource, tool_use or tool_result
	Text string `json:"text,omitempty"` // of a text
	Data []byte `json:"data,omitempty"` // of an image or audio; on the wire it is Base64
	// MimeType is that of an image, of audio, or of a linked resource.
	MimeType string `json:"mimeType,omitempty"`

	// Of a resource_link, as in Resource:
	URI         string `json:"uri,omitempty"`
	Name        string `json:"name,omitempty"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Size        int64  `json:"size,omitempty"`

	Resource *ResourceContents `json:"resource,omitempty"` // of a resource, which is embedded

	// Of a tool_use, in which a model calls a tool while it is sampled. Name is the name of the
	// tool.
	ID    string          `json:"id,omitempty"`
	Input json.RawMessage `json:"input,omitempty"` // the arguments, an object

	// Of a tool_result, which answers the tool_use with that id.
	ToolUseID         string          `json:"toolUseId,omitempty"`
	Content           []Content       `json:"content,omitempty"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // an object
	IsError           bool            `json:"isError,omitempty"`

	Annotations *ContentAnnotations `json:"annotations,omitempty"`
	Meta        json.RawMessage     `json:"_meta,omitempty"` // an object
}

// ContentAnnotations say for whom a content is, and how much it matters. 2025-11-25
// server/resources#annotations.
type ContentAnnotations struct {
	Audience     []string `json:"audience,omitempty"`     // user, assistant, or both
	Priority     *float64 `json:"priority,omitempty"`     // from 0 to 1; 1 means that the content is required
	LastModified string   `json:"lastModified,omitempty"` // in ISO 8601
}

// TextContent returns a text.
func TextContent(text string) Content { return Content{Type: "text", Text: text} }

// ImageContent returns an image, such as one of the type image/png.
func ImageContent(data []byte, mimeType string) Content {
	return Content{Type: "image", Data: data, MimeType: mimeType}
}

// AudioContent returns audio, such as that of the type audio/wav. 2024-11-05 does not know it.
func AudioContent(data []byte, mimeType string) Content {
	return Content{Type: "audio", Data: data, MimeType: mimeType}
}

// ResourceLink returns a link to a resource, which the client may read. Only revisions from
// 2025-06-18 on know it.
func ResourceLink(r Resource) Content {
	return Content{Type: "resource_link", URI: r.URI, Name: r.Name, Title: r.Title, Description: r.Description,
		MimeType: r.MimeType, Size: r.Size, Annotations: r.Annotations}
}

// EmbeddedResource returns a resource with what it holds.
func EmbeddedResource(contents ResourceContents) Content {
	return Content{Type: "resource", Resource: &contents}
}

// MarshalJSON returns the content as JSON. A member that the type needs is there even if it is
// empty, such as the text of a text.
func (c Content) MarshalJSON() ([]byte, error) { return c.append(nil) }

// append appends the content as JSON. A text alone does without encoding/json, which would
// check and copy a long one twice.
func (c Content) append(b []byte) ([]byte, error) {
	if c.Type == "text" && c.Annotations == nil && c.Meta == nil {
		return append(appendString(append(b, `{"type":"text","text":`...), c.Text), '}'), nil
	}
	type plain Content // without MarshalJSON
	own := plain(c)
	own.Content = nil
	text, err := marshal(own)
	if err != nil {
		return nil, err
	}
	b = append(b, text[:len(text)-1]...) // without its }
	switch {
	case c.Type == "text" && c.Text == "":
		b = append(b, `,"text":""`...)
	case (c.Type == "image" || c.Type == "audio") && len(c.Data) == 0:
		b = append(b, `,"data":""`...)
	case c.Type == "tool_use" && c.Input == nil:
		b = append(b, `,"input":{}`...)
	case c.Type == "tool_result" || len(c.Content) > 0:
		b, err = appendContents(append(b, `,"content":`...), c.Content)
	}
	return append(b, '}'), err
}

// appendContents appends contents as an array. It does without encoding/json, which would copy
// contents within contents again at each level.
func appendContents(b []byte, contents []Content) ([]byte, error) {
	b = append(b, '[')
	for i, c := range contents {
		if i > 0 {
			b = append(b, ',')
		}
		var err error
		if b, err = c.append(b); err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// ResourceContents is what a resource holds: a text, or bytes. 2025-11-25
// server/resources#resource-contents.
type ResourceContents struct {
	URI      string          `json:"uri"`
	MimeType string          `json:"mimeType,omitempty"`
	Text     string          `json:"text,omitempty"` // if Blob is nil
	Blob     []byte          `json:"blob,omitempty"` // on the wire it is Base64; nil: the resource is a text
	Meta     json.RawMessage `json:"_meta,omitempty"`
}

// MarshalJSON returns the contents as JSON, with the member text or the member blob, even if it
// is empty.
func (c ResourceContents) MarshalJSON() ([]byte, error) {
	type plain ResourceContents // without MarshalJSON
	if c.Blob != nil {
		c.Text = ""
	}
	text, err := marshal(plain(c))
	if err != nil {
		return nil, err
	}
	full := Object{text[:len(text)-1]} // without its }
	switch {
	case c.Blob == nil && c.Text == "":
		full.Add("text", []byte(`""`))
	case c.Blob != nil && len(c.Blob) == 0:
		full.Add("blob", []byte(`""`))
	}
	return full.encode(), nil
}

// ---- Tools, resources and prompts ----

// Tool is a tool as tools/list shows it. 2025-11-25 server/tools#tool.
type Tool struct {
	Name        string `json:"name"`            // required: up to 128 letters, digits, _, - and .
	Title       string `json:"title,omitempty"` // for users; shown from 2025-06-18 on
	Description string `json:"description,omitempty"`
	// InputSchema is the JSON Schema of the arguments, an object. nil: any object. It is for
	// the client: the Server does not check arguments by it.
	InputSchema json.RawMessage `json:"inputSchema"`
	// OutputSchema is the JSON Schema of the StructuredContent of each result; nil: there is
	// none. It is shown from 2025-06-18 on.
	OutputSchema json.RawMessage  `json:"outputSchema,omitempty"`
	Annotations  *ToolAnnotations `json:"annotations,omitempty"` // shown from 2025-03-26 on
	Icons        []Icon           `json:"icons,omitempty"`       // shown from 2025-11-25 on
	Meta         json.RawMessage  `json:"_meta,omitempty"`       // an object; shown from 2025-06-18 on
}

// ToolAnnotations tell a client how careful it must be. A client takes a tool without them for
// one that may destroy something, and asks its user. All four are sent, so set each of them.
// 2025-03-26 schema ToolAnnotations.
type ToolAnnotations struct {
	ReadOnly    bool `json:"readOnlyHint"`    // changes nothing
	Destructive bool `json:"destructiveHint"` // may destroy something
	Idempotent  bool `json:"idempotentHint"`  // a second call with the same arguments changes nothing more
	OpenWorld   bool `json:"openWorldHint"`   // reaches something outside
}

// HeaderParam is an argument of a tool that modern clients repeat in the header of a tools/call
// over HTTP, because the inputSchema of the tool marks it with x-mcp-header.
type HeaderParam struct {
	Name string   // the field is Mcp-Param- and this name
	Path []string // the names of the members that lead from arguments to the argument; at least one
}

// ListToolsResult is the result of tools/list. 2025-11-25 server/tools#listing-tools.
type ListToolsResult struct {
	NextCursor string      `json:"nextCursor,omitempty"` // for the params of the next tools/list; "": this is the last page
	Tools      array[Tool] `json:"tools"`
}

// CallToolParams are the params of tools/call. 2025-11-25 server/tools#calling-tools.
type CallToolParams struct {
	Name      string `json:"name,omitempty"`
	Arguments any    `json:"arguments,omitempty"` // encodes to an object: JSON that is there already must be a json.RawMessage, as a []byte becomes Base64
	// Meta encodes to an object. Client.Call adds to it what each request must say. In the
	// modern era {"io.modelcontextprotocol/logLevel":"debug"} asks for log messages.
	Meta any `json:"_meta,omitempty"`
}

// ToolResult is the result of tools/call. 2025-11-25 server/tools#calling-tools.
type ToolResult struct {
	Content []Content `json:"content"`
	// StructuredContent is an object that fits the OutputSchema of the tool. nil: there is
	// none. A revision before 2025-06-18 does not know it, so Content should say the same.
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"`
	// IsError means that the tool has run and failed. Content says why, for the model.
	IsError bool `json:"isError,omitempty"`
	Meta    any  `json:"_meta,omitempty"` // encodes to an object
}

// ToolError returns the result of a tool that has run and failed.
func ToolError(format string, args ...any) ToolResult {
	return ToolResult{Content: []Content{TextContent(fmt.Sprintf(format, args...))}, IsError: true}
}

// Text returns the texts in Content, one after the other, with a newline between them.
func (r ToolResult) Text() string {
	var texts []string
	for _, c := range r.Content {
		if c.Type == "text" {
			texts = append(texts, c.Text)
		}
	}
	return strings.Join(texts, "\n")
}

// textSize returns about how many bytes the result has as JSON.
func (r ToolResult) textSize() int {
	n := len(r.StructuredContent)
	for _, c := range r.Content {
		n += len(c.Text) + len(c.Data)
	}
	return n
}

// MarshalJSON returns the result as JSON. Without content, content is [].
func (r ToolResult) MarshalJSON() ([]byte, error) { return r.encode() }

// encode is MarshalJSON without the check of encoding/json.
func (r ToolResult) encode() (encoded, error) {
	b, err := appendContents(append(make([]byte, 0, 128+r.textSize()), `{"content":`...), r.Content)
	if err != nil {
		return nil, err
	}
	o := Object{b}
	if len(r.StructuredContent) > 0 {
		structured, err := marshalObject(r.StructuredContent)
		if err != nil {
			return nil, fmt.Errorf("structuredContent: %w", err)
		}
		o.Add("structuredContent", structured)
	}
	if r.IsError {
		o.Add("isError", []byte("true"))
	}
	if r.Meta != nil {
		meta, err := marshalObject(r.Meta)
		if err != nil {
			return nil, err
		}
		o.Add("_meta", meta)
	}
	return o.encode(), nil
}

// Resource is a resource as resources/list shows it. 2025-11-25 server/resources#resource.
type Resource struct {
	URI         string              `json:"uri"`             // required
	Name        string              `json:"name"`            // required
	Title       string              `json:"title,omitempty"` // for users; shown from 2025-06-18 on
	Description string              `json:"description,omitempty"`
	MimeType    string              `json:"mimeType,omitempty"`
	Size        int64               `json:"size,omitempty"` // bytes; 0: unknown
	Annotations *ContentAnnotations `json:"annotations,omitempty"`
	Icons       []Icon              `json:"icons,omitempty"` // shown from 2025-11-25 on
	Meta        json.RawMessage     `json:"_meta,omitempty"` // an object; shown from 2025-06-18 on
}

// ResourceTemplate describes resources whose URIs are alike. 2025-11-25
// server/resources#resource-templates.
type ResourceTemplate struct {
	URITemplate string              `json:"uriTemplate"` // required, by RFC 6570, such as note:///{name}
	Name        string              `json:"name"`        // required
	Title       string              `json:"title,omitempty"`
	Description string              `json:"description,omitempty"`
	MimeType    string              `json:"mimeType,omitempty"` // if all of them have the same
	Annotations *ContentAnnotations `json:"annotations,omitempty"`
	Icons       []Icon              `json:"icons,omitempty"`
	Meta        json.RawMessage     `json:"_meta,omitempty"`
}

// ReadFunc reads a resource. It returns a string, which is the text of the resource, a
// ResourceContents, whose URI may be left out, a []ResourceContents, a ReadResourceResult or an
// InputRequired. If there is no such resource, it returns ResourceNotFound(uri).
type ReadFunc func(ctx context.Context, x *Exchange, uri string) (contents any, err error)

// ResourceNotFound returns the error of resources/read for a URI that nothing has. Its code
// depends on the revision: the Server sees to that.
func ResourceNotFound(uri string) *Error {
	data, _ := marshal(ResourceParams{fmt.Sprintf("%.500s", uri)})
	return &Error{Code: CodeResourceNotFound, Message: "Resource not found", Data: data}
}

// ListResourcesResult is the result of resources/list. 2025-11-25
// server/resources#listing-resources.
type ListResourcesResult struct {
	NextCursor string          `json:"nextCursor,omitempty"`
	Resources  array[Resource] `json:"resources"`
}

// ListResourceTemplatesResult is the result of resources/templates/list. 2025-11-25
// server/resources#resource-templates.
type ListResourceTemplatesResult struct {
	NextCursor        string                  `json:"nextCursor,omitempty"`
	ResourceTemplates array[ResourceTemplate] `json:"resourceTemplates"`
}

// ReadResourceResult is the result of resources/read. 2025-11-25
// server/resources#reading-resources.
type ReadResourceResult struct {
	Contents array[ResourceContents] `json:"contents"`
}

// Prompt is a prompt as prompts/list shows it. 2025-11-25 server/prompts#prompt.
type Prompt struct {
	Name        string           `json:"name"`            // required
	Title       string           `json:"title,omitempty"` // for users; shown from 2025-06-18 on
	Description string           `json:"description,omitempty"`
	Arguments   []PromptArgument `json:"arguments,omitempty"`
	Icons       []Icon           `json:"icons,omitempty"` // shown from 2025-11-25 on
	Meta        json.RawMessage  `json:"_meta,omitempty"` // an object; shown from 2025-06-18 on
}

// PromptArgument is an argument of a Prompt. All arguments are strings.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"` // shown from 2025-06-18 on
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required"`
}

// PromptResult is the result of prompts/get. 2025-11-25 server/prompts#getting-a-prompt.
type PromptResult struct {
	Description string               `json:"description,omitempty"`
	Messages    array[PromptMessage] `json:"messages"`
}

// PromptMessage is a message of a prompt.
type PromptMessage struct {
	Role    string  `json:"role"` // user or assistant
	Content Content `json:"content"`
}

// PromptFunc returns a prompt with its arguments filled in, as a PromptResult, an
// InputRequired, or a string, which is one message of the user. All required arguments are
// there.
type PromptFunc func(ctx context.Context, x *Exchange, arguments map[string]string) (prompt any, err error)

// ListPromptsResult is the result of prompts/list. 2025-11-25 server/prompts#listing-prompts.
type ListPromptsResult struct {
	NextCursor string        `json:"nextCursor,omitempty"`
	Prompts    array[Prompt] `json:"prompts"`
}

// GetPromptParams are the params of prompts/get. 2025-11-25 server/prompts#getting-a-prompt.
type GetPromptParams struct {
	Name      string            `json:"name,omitempty"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// array is a slice that is [] in JSON if it has no elements. Without it nil would be null,
// which the schemas of MCP do not allow.
type array[T any] []T

// MarshalJSON returns the elements as a JSON array.
func (a array[T]) MarshalJSON() ([]byte, error) {
	if len(a) == 0 {
		return []byte("[]"), nil
	}
	return marshal([]T(a))
}

// ---- What a Server offers: tools, resources and prompts ----
//
// They are added before the first request, or while requests are served. With AnnounceChanges,
// a change of a list is announced. The first one of a kind adds the methods of the kind. It
// also declares the capability, unless a request has come already.
//
// Server.Methods goes before them: if it has tools/list, for instance, clients get what that
// returns.

// AddTool adds a tool, in place of another one of the same name. run is called for each
// tools/call of it, with the arguments in a struct of the type A, as Bind stores them: a field
// without omitempty is required. Make an optional field a pointer if its zero value means
// something else than a missing argument. If A is json.RawMessage, run gets the arguments as
// they came.
//
// What run returns, and what the client gets:
//
//	a string, a Content           a result with that content
//	a []Content, a Contents       a result with those contents
//	nil                           a result without content
//	a ToolResult                  that result, before 2025-06-18 without its StructuredContent
//	an InputRequired              the questions; run is called again with the answers
//	any other value               its JSON as a text and, if it is an object, as structuredContent, from 2025-06-18 on
//	an *Error, or what wraps one  that *Error: the request itself was wrong
//	any other error               a result with isError and the text of the error, which the model reads
//	what JSON cannot hold         CodeInternalError
//
// So the text of an error must not contain secrets. Calls run at the same time: state that they
// share needs a mutex.
//
// An argument that is null counts as missing, unless its field is a json.RawMessage. If an
// argument is missing, appears twice or has another type, the answer is a result with isError
// in each revision: 2025-11-25 server/tools#error-handling counts "input validation errors"
// among those from which a model can correct itself. If arguments is not an object, the answer
// is CodeInvalidParams.
//
// Legacy clients get the InputSchema without x-mcp-header, because some refuse a keyword that
// they do not know.
//
// AddTool panics if the tool has no name, if the name is not UTF-8, if a schema is not JSON, if
// the InputSchema lacks "type":"object", or if A is no type for Bind.
func AddTool[A any](s *Server, tool Tool, run func(ctx context.Context, x *Exchange, arguments A) (result any, err error)) {
	if _, isRaw := any(*new(A)).(json.RawMessage); !isRaw {
		_ = Bind(nil, new(A)) // panics if A is no type for it
	}
	s.addTool(tool, withArguments(run))
}

var errNoObject = InvalidParams("the arguments must be an object")

// argumentError turns an error of Bind into that of a tool. The model has chosen the arguments,
// so it can correct them. If they are not an object, it is the client that has made a mistake.
func argumentError(err error) error {
	fault, ok := errors.AsType[*BindError](err)
	switch {
	case !ok:
		return err
	case fault.Name == "":
		return errNoObject
	}
	return errors.New(fault.text("argument"))
}

// offeredTool is what a Server does with a tool.
type offeredTool struct {
	inputSchema json.RawMessage
	call        func(ctx context.Context, x *Exchange, arguments json.RawMessage) (any, error)

	readMarks sync.Once // http.go sets the next field, when it is needed
	marked    []HeaderParam
}

func (s *Server) addTool(tool Tool, run func(context.Context, *Exchange, json.RawMessage) (any, error)) {
	if tool.InputSchema == nil {
		tool.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	tool.InputSchema = bytes.TrimSpace(tool.InputSchema)
	// 2025-11-25 schema Tool: the type of an inputSchema is "object". Clients that check it
	// would refuse the whole list.
	if string(member(tool.InputSchema, "type")) != `"object"` {
		panic(fmt.Sprintf(`the InputSchema of the tool %q lacks "type":"object"`, tool.Name))
	}
	use := &offeredTool{inputSchema: tool.InputSchema, call: run}
	e := entry[*offeredTool]{tool.Name, tool.Name, use, mustMarshal(tool)}
	offer(s, &s.tools, "tools/list", e, "tools/call", s.callTool)
}

// RemoveTool removes a tool. If there is no tool of that name, it does nothing.
func (s *Server) RemoveTool(name string) { withdraw(s, &s.tools, "tools", name) }

// toolResult returns the result of tools/call for what a tool has returned.
func toolResult(x *Exchange, result any) (any, error) {
	var full ToolResult
	switch result := result.(type) {
	case asker:
		return result, nil
	case error:
		return nil, fmt.Errorf("a tool has returned an error as its result: %w", result)
	case nil:
	case string:
		full.Content = []Content{TextContent(result)}
	case Content:
		full.Content = []Content{result}
	case []Content:
		full.Content = result
	case Contents: // of a SamplingResult
		full.Content = result
	case ToolResult:
		full = result
	case *ToolResult:
		if result != nil {
			full = *result
		}
	default:
		raw, err := marshal(result)
		if err != nil {
			return nil, err
		}
		full.Content = []Content{TextContent(string(raw))}
		if raw[0] == '{' {
			full.StructuredContent = raw
		}
	}
	if !x.Revision().Structured {
		full.StructuredContent = nil
	}
	raw, err := x.marshal(full)
	return encoded(raw), err
}

// AddResource adds a resource, in place of another one with the same URI. Publish announces
// when what it holds has changed. AddResource panics if the resource has no URI or no name, or
// if one of them is not UTF-8. In a URI, anything but ASCII is written as in %C3%A9: some
// clients refuse a list with anything else.
func (s *Server) AddResource(r Resource, read ReadFunc) {
	e := entry[ReadFunc]{r.URI, r.Name, reader(read, r.MimeType), mustMarshal(r)}
	offer(s, &s.resources, "resources/list", e, "resources/read", s.readResource)
}

// RemoveResource removes a resource. If there is none with that URI, it does nothing.
func (s *Server) RemoveResource(uri string) { withdraw(s, &s.resources, "resources", uri) }

// AddResourceTemplate adds a template, in place of an equal one. read is called for each URI
// that begins as the template does, up to its first {, and that is no Resource. It reads the
// rest of the URI by itself. Of several templates the one with the longest beginning is taken.
// AddResourceTemplate panics if the template has no URITemplate or no name, or if one of them
// is not UTF-8.
func (s *Server) AddResourceTemplate(t ResourceTemplate, read ReadFunc) {
	e := entry[ReadFunc]{t.URITemplate, t.Name, reader(read, t.MimeType), mustMarshal(t)}
	offer(s, &s.templates, "resources/templates/list", e, "resources/read", s.readResource)
}

// RemoveResourceTemplate removes a template. If there is none with that text, it does nothing.
func (s *Server) RemoveResourceTemplate(uriTemplate string) {
	withdraw(s, &s.templates, "resources", uriTemplate)
}

func (s *Server) readResource(ctx context.Context, x *Exchange) (any, error) {
	var p ResourceParams
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	if p.URI == "" {
		return nil, InvalidParams("'uri' must not be empty")
	}
	if r, ok := find(s, &s.resources, p.URI); ok {
		return r.use(ctx, x, p.URI)
	}
	if t, ok := s.templateOf(p.URI); ok {
		return t.use(ctx, x, p.URI)
	}
	return nil, ResourceNotFound(p.URI)
}

// templateOf returns the template for a URI: the one with the longest beginning.
func (s *Server) templateOf(uri string) (found entry[ReadFunc], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest := ""
	for _, t := range s.templates.byKey {
		beginning, _, _ := strings.Cut(t.key, "{")
		isLonger := !ok || len(beginning) > len(longest) || beginning == longest && t.key < found.key
		if strings.HasPrefix(uri, beginning) && isLonger {
			found, longest, ok = t, beginning, true
		}
	}
	return found, ok
}

// reader returns a ReadFunc whose results are for the client. mimeType is that of a text.
func reader(read ReadFunc, mimeType string) ReadFunc {
	return func(ctx context.Context, x *Exchange, uri string) (any, error) {
		contents, err := read(ctx, x, uri)
		if err != nil {
			return nil, err
		}
		switch contents := contents.(type) {
		case asker, ReadResourceResult, *ReadResourceResult:
			return contents, nil
		case string:
			return ReadResourceResult{[]ResourceContents{{URI: uri, MimeType: mimeType, Text: contents}}}, nil
		case ResourceContents:
			contents.URI = cmp.Or(contents.URI, uri)
			return ReadResourceResult{[]ResourceContents{contents}}, nil
		case []ResourceContents:
			return ReadResourceResult{contents}, nil
		}
		return nil, fmt.Errorf("a ReadFunc has returned a %T", contents)
	}
}

// AddPrompt adds a prompt, in place of another one of the same name. It panics if the prompt
// has no name, or if the name is not UTF-8.
func (s *Server) AddPrompt(p Prompt, get PromptFunc) {
	use := func(ctx context.Context, x *Exchange, arguments map[string]string) (any, error) {
		for _, a := range p.Arguments {
			if _, isThere := arguments[a.Name]; a.Required && !isThere {
				return nil, InvalidParams("Missing required argument: '%s'", a.Name)
			}
		}
		result, err := get(ctx, x, arguments)
		if err != nil {
			return nil, err
		}
		switch result := result.(type) {
		case asker, PromptResult, *PromptResult:
			return result, nil
		case string:
			return PromptResult{Messages: []PromptMessage{{Role: "user", Content: TextContent(result)}}}, nil
		}
		return nil, fmt.Errorf("a PromptFunc has returned a %T", result)
	}
	e := entry[PromptFunc]{p.Name, p.Name, use, mustMarshal(p)}
	offer(s, &s.prompts, "prompts/list", e, "prompts/get", s.getPrompt)
}

// RemovePrompt removes a prompt. If there is none of that name, it does nothing.
func (s *Server) RemovePrompt(name string) { withdraw(s, &s.prompts, "prompts", name) }

func (s *Server) getPrompt(ctx context.Context, x *Exchange) (any, error) {
	get, raw, err := findNamed(s, x, &s.prompts, "prompt")
	if err != nil {
		return nil, err
	}
	given, err := uniqueMembers("arguments", raw)
	if err != nil {
		return nil, paramsError(err, "param")
	}
	arguments := map[string]string{}
	for name, value := range given {
		if value[0] != '"' {
			return nil, InvalidParams("the argument '%s' must be a string", name)
		}
		arguments[name] = unquote(value)
	}
	return get(ctx, x, arguments)
}

// ---- Catalogues ----

// catalog is what a Server offers of one kind. The mutex of the Server guards it.
type catalog[T any] struct{ byKey map[string]entry[T] }

// entry is one tool, resource, template or prompt.
type entry[T any] struct {
	key   string // what a request names: a name, a URI or a URI template
	name  string
	use   T               // what serves requests for it: an *offeredTool, a ReadFunc or a PromptFunc
	shown json.RawMessage // in a list, without what the revision of the request does not know
}

// mustMarshal encodes what is offered. It panics if that cannot be encoded.
func mustMarshal(v any) json.RawMessage {
	raw, err := marshalObject(v)
	if err != nil {
		panic(fmt.Sprintf("%T: %v", v, err))
	}
	return raw
}

// find returns the entry with a key.
func find[T any](s *Server, c *catalog[T], key string) (e entry[T], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, ok = c.byKey[key]
	return e, ok
}

// findNamed returns what serves the tool or the prompt that the params name, and the arguments.
func findNamed[T any](s *Server, x *Exchange, c *catalog[T], kind string) (use T, arguments json.RawMessage, err error) {
	var p struct {
		Name      string          `json:"name,omitempty"`
		Arguments json.RawMessage `json:"arguments,omitempty"`
	}
	if err := x.Bind(&p); err != nil {
		return use, nil, err
	}
	e, ok := find(s, c, p.Name)
	if !ok {
		return use, nil, unknownName(kind, p.Name)
	}
	return e.use, p.Arguments, nil
}

// offer adds an entry, enters the two methods of its kind, and announces the change.
func offer[T any](s *Server, c *catalog[T], list string, e entry[T], use string, h HandlerFunc) {
	capability := mcpMethods[list].capability
	if e.key == "" || e.name == "" {
		panic("an entry of " + capability + " has no name, or no URI")
	}
	// In JSON, all bytes that are not UTF-8 become the same character. No client could ask for
	// the entry, and a cursor that names it would lead nowhere.
	if !utf8.ValidString(e.key) || !utf8.ValidString(e.name) {
		panic(fmt.Sprintf("the name or the URI of an entry of %s is not UTF-8: %q, %q", capability, e.name, e.key))
	}
	s.mu.Lock()
	if c.byKey == nil {
		c.byKey = map[string]entry[T]{}
		s.enter(list, listHandler(s, c, list))
		s.enter(use, h)
	}
	c.byKey[e.key] = e
	s.mu.Unlock()
	s.Publish("notifications/"+capability+"/list_changed", nil)
}

// withdraw removes an entry, and announces that.
func withdraw[T any](s *Server, c *catalog[T], capability, key string) {
	s.mu.Lock()
	_, isThere := c.byKey[key]
	delete(c.byKey, key)
	s.mu.Unlock()
	if isThere {
		s.Publish("notifications/"+capability+"/list_changed", nil)
	}
}

const pageSize = 50 // entries of a list at once

// listHandler returns the handler of a list. It answers with one page, and with a cursor for
// the next page if there is one. A cursor holds the last key of the page before it, so it still
// fits when entries come and go. 2025-11-25 server/utilities/pagination.
func listHandler[T any](s *Server, c *catalog[T], method string) HandlerFunc {
	m := mcpMethods[method]
	return func(_ context.Context, x *Exchange) (any, error) {
		const mark = "after " // and the key follows
		var p struct {
			Cursor *string `json:"cursor,omitempty"` // nil: the first page
		}
		if err := x.Bind(&p); err != nil {
			return nil, err
		}
		after, isCursor := "", true
		if p.Cursor != nil {
			after, isCursor = strings.CutPrefix(*p.Cursor, mark)
		}
		if !isCursor {
			return nil, unknownName("cursor", *p.Cursor)
		}
		page, isLast := pageOf(s, c, after)
		var result Object
		if !isLast {
			result.Add("nextCursor", appendString(nil, mark+page[len(page)-1].key))
		}
		shown := []byte{'['}
		for i, e := range page {
			if i > 0 {
				shown = append(shown, ',')
			}
			shown = append(shown, x.Revision().withoutUnknown(m.capability, e.shown)...)
		}
		result.Add(m.list, append(shown, ']'))
		return result.encode(), nil
	}
}

// pageOf returns the entries whose keys follow a key, and reports whether these are all.
func pageOf[T any](s *Server, c *catalog[T], after string) (page []entry[T], isLast bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	keys := slices.Sorted(maps.Keys(c.byKey))
	from, isThere := slices.BinarySearch(keys, after)
	if isThere {
		from++
	}
	to := min(from+pageSize, len(keys))
	for _, key := range keys[from:to] {
		page = append(page, c.byKey[key])
	}
	return page, to == len(keys)
}

// withoutUnknown returns an object without the members that the revision does not know. kind
// says what it is: an entry of "tools", "resources" or "prompts". The schema of a tool loses
// its marks, too, for a legacy client.
func (rev Revision) withoutUnknown(kind string, object json.RawMessage) json.RawMessage {
	var unknown []string
	if !rev.Icons {
		unknown = append(unknown, "icons")
	}
	if !rev.Titles {
		unknown = append(unknown, "title", "_meta")
	}
	if !rev.Structured {
		unknown = append(unknown, "outputSchema")
	}
	if !rev.Annotations && kind == "tools" {
		unknown = append(unknown, "annotations")
	}
	mayHaveMarks := bytes.Contains(object, []byte("x-mcp-header")) || bytes.Contains(object, []byte(`\u`)) // it may be written with escapes
	hasMarks := !rev.Modern && kind == "tools" && mayHaveMarks
	if len(unknown) == 0 && !hasMarks {
		return object
	}
	var rest Object
	for name, value := range Each(object) {
		switch {
		case slices.Contains(unknown, string(name)):
			continue
		case hasMarks && string(name) == "inputSchema":
			value = withoutMarks(value)
		case kind == "prompts" && string(name) == "arguments": // they have titles, too
			arguments := []byte{'['}
			for _, argument := range Each(value) {
				arguments = append(append(arguments, rev.withoutUnknown("", argument)...), ',')
			}
			value = append(bytes.TrimSuffix(arguments, []byte(",")), ']')
		}
		rest.Add(string(name), value)
	}
	return rest.JSON()
}

// withoutMarks returns the schema of an object without the marks x-mcp-header of its
// properties. What is data, such as a default or an example, is not changed.
func withoutMarks(schema json.RawMessage) json.RawMessage {
	if schema[0] != '{' {
		return schema
	}
	var rest Object
	for name, value := range Each(schema) {
		if string(name) == "properties" && value[0] == '{' {
			var properties Object
			for property, below := range Each(value) {
				below = withoutMarks(below)
				if below[0] == '{' {
					var unmarked Object
					unmarked.AddAll(below, "x-mcp-header")
					below = unmarked.JSON()
				}
				properties.Add(string(property), below)
			}
			value = properties.JSON()
		}
		rest.Add(string(name), value)
	}
	return rest.JSON()
}

// ---- Questions of a server ----

// InputRequest is one question: elicitation/create, sampling/createMessage or roots/list, and
// its params.
type InputRequest struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

// ElicitParams are the params of elicitation/create, a question to the user: a form to fill in,
// or a page to visit. 2025-11-25 client/elicitation#elicitation-requests.
type ElicitParams struct {
	Mode            string          `json:"mode,omitempty"` // form or url; "": form
	Message         string          `json:"message,omitempty"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"` // of a form: an object of primitive properties
	URL             string          `json:"url,omitempty"`             // of a page
	ElicitationID   string          `json:"elicitationId,omitempty"`   // of a page, in 2025-11-25
}

// ElicitResult is the answer to elicitation/create. 2025-11-25
// client/elicitation#response-actions.
type ElicitResult struct {
	Action  string          `json:"action"`            // accept, decline or cancel
	Content json.RawMessage `json:"content,omitempty"` // an object for Bind, if a form was accepted
}

// SamplingParams are the params of sampling/createMessage, a request to the client's model.
// 2025-11-25 client/sampling#creating-messages.
type SamplingParams struct {
	Messages         array[SamplingMessage] `json:"messages"`
	MaxTokens        int                    `json:"maxTokens"`
	SystemPrompt     string                 `json:"systemPrompt,omitempty"`
	IncludeContext   string                 `json:"includeContext,omitempty"` // none, thisServer or allServers
	Temperature      *float64               `json:"temperature,omitempty"`
	StopSequences    []string               `json:"stopSequences,omitempty"`
	ModelPreferences json.RawMessage        `json:"modelPreferences,omitempty"`
	Metadata         json.RawMessage        `json:"metadata,omitempty"`
	Tools            json.RawMessage        `json:"tools,omitempty"`      // an array; the client must have declared sampling.tools
	ToolChoice       json.RawMessage        `json:"toolChoice,omitempty"` // likewise
}

// SamplingMessage is a message to a model, or of one.
type SamplingMessage struct {
	Role    string   `json:"role"` // user or assistant
	Content Contents `json:"content"`
}

// SamplingResult is the answer to sampling/createMessage. 2025-11-25
// client/sampling#creating-messages.
type SamplingResult struct {
	Role       string   `json:"role"`
	Content    Contents `json:"content"`
	Model      string   `json:"model"`
	StopReason string   `json:"stopReason,omitempty"` // such as endTurn or maxTokens
}

// Contents is what a message to a model holds. On the wire one Content stands alone, and
// several form an array.
type Contents []Content

// MarshalJSON returns one Content, or an array.
func (c Contents) MarshalJSON() ([]byte, error) {
	if len(c) == 1 {
		return c[0].MarshalJSON()
	}
	return appendContents(nil, c)
}

// UnmarshalJSON reads one Content, or an array.
func (c *Contents) UnmarshalJSON(text []byte) error {
	if text[0] == '[' {
		return json.Unmarshal(text, (*[]Content)(c))
	}
	*c = make(Contents, 1)
	return json.Unmarshal(text, &(*c)[0])
}

// RootsResult is the answer to roots/list. 2025-11-25 client/roots#listing-roots.
type RootsResult struct {
	Roots array[Root] `json:"roots"`
}

// Root is a folder that a client lets a server work in.
type Root struct {
	URI  string `json:"uri"` // file://…
	Name string `json:"name,omitempty"`
}

// InputRequiredResult is the result that a modern client gets for an InputRequired. 2026-07-28
// basic/patterns/mrtr.
type InputRequiredResult struct {
	ResultType    json.RawMessage `json:"resultType,omitempty"`    // "input_required"
	InputRequests json.RawMessage `json:"inputRequests,omitempty"` // an object: each InputRequest by its key
	RequestState  json.RawMessage `json:"requestState,omitempty"`  // the client returns it unchanged
}

// RetryParams are what a modern client adds to the params of a call that it makes again with
// the answers. 2026-07-28 basic/patterns/mrtr.
type RetryParams struct {
	InputResponses json.RawMessage `json:"inputResponses,omitempty"` // an object of objects, by key
	RequestState   *string         `json:"requestState,omitempty"`   // as it was in the result
}

// ---- Questions to the user, in detail ----

const (
	maxRounds = 16               // of questions in one call
	stateLife = 15 * time.Minute // of a requestState; and how long a legacy client has for all questions of a round
)

// result makes the result for a modern client. 2026-07-28 basic/patterns/mrtr: "Servers MUST
// NOT send an inputRequests that the client has not declared support for"; a request of a
// method that may not ask must not be answered like this.
func (need InputRequired) result(s *Server, x *Exchange) (any, error) {
	if !mcpMethods[x.Request.Method].mayAsk {
		return nil, fmt.Errorf("%s must not ask", x.Request.Method)
	}
	if err := need.check(x); err != nil {
		return nil, err
	}
	var result Object
	result.Add("resultType", []byte(`"input_required"`))
	if len(need.Requests) > 0 {
		questions, _ := marshal(need.Requests) // check has found that there is no error
		result.Add("inputRequests", questions)
	}
	if need.State != "" {
		result.Add("requestState", appendString(nil, s.seal(x, need.State, time.Now().Add(stateLife))))
	}
	return result.encode(), nil
}

// check returns an error unless the client can be asked all the questions. A State without
// questions is not a mistake: the client calls again at once.
func (need InputRequired) check(x *Exchange) error {
	if len(need.Requests) == 0 && need.State == "" {
		return errors.New("no question was asked")
	}
	var needed []string
	for _, key := range slices.Sorted(maps.Keys(need.Requests)) {
		question := need.Requests[key]
		params, err := marshalObject(question.Params)
		if err != nil {
			return fmt.Errorf("input %s: %w", key, err)
		}
		switch question.Method {
		case "elicitation/create":
			needed = append(needed, "elicitation."+cmp.Or(unquote(member(params, "mode")), "form"))
		case "sampling/createMessage":
			needed = append(needed, "sampling")
			if member(params, "tools") != nil || member(params, "toolChoice") != nil {
				needed = append(needed, "sampling.tools")
			}
		case "roots/list":
			needed = append(needed, "roots")
		default:
			return fmt.Errorf("input %s: %s is not for the client", key, question.Method)
		}
	}
	return x.Require(needed...)
}

// askLegacy sends the questions to a legacy client as requests, one after the other, in the
// order of their keys, and stores the answers.
func (need InputRequired) askLegacy(ctx context.Context, x *Exchange, round int) error {
	switch {
	case round >= maxRounds:
		return errors.New("too many questions")
	case !x.Revision().ServerRequests: // a legacy revision that a program has added
		return ErrNoServerRequests
	}
	if err := need.check(x); err != nil {
		return err
	}
	// 2025-11-25 basic/lifecycle: no requests "before receiving the initialized notification"
	if x.Peer != nil && !x.Peer.handshake().ready {
		return errors.New("the client has not sent notifications/initialized")
	}
	ctx, cancel := context.WithTimeout(ctx, stateLife)
	defer cancel()
	f := x.facts()
	f.inputs, f.inputState = map[string]json.RawMessage{}, need.State
	for _, key := range slices.Sorted(maps.Keys(need.Requests)) {
		var answer json.RawMessage
		if err := x.Call(ctx, need.Requests[key].Method, need.Requests[key].Params, &answer); err != nil {
			return err
		}
		if err := x.useBytes(len(answer)); err != nil {
			return err
		}
		f.inputs[key] = bytes.Clone(answer) // a copy, so that the rest of the message is not kept
	}
	return nil
}

// askFailed tells a legacy client why its call has failed. For a tool that is a result, so that
// the model sees it. The end of the request, or of the conversation, is an error: the model
// cannot do anything about it.
func askFailed(ctx context.Context, x *Exchange, err error) (any, error) {
	switch {
	case ctx.Err() != nil:
		return nil, err
	case errors.Is(err, ErrClosed):
		return nil, errStopping
	}
	if fault, ok := errors.AsType[*Error](err); ok && fault.Code == CodeMissingCapability {
		err = errors.New(fault.Message) // without the code, which the legacy era does not know
	}
	if x.Request.Method != "tools/call" {
		return nil, &Error{Code: CodeInternalError, Message: err.Error()}
	}
	return ToolError("The user cannot be asked: %v", err), nil
}

// readAnswers reads the RetryParams of a modern call. It stores what Exchange.Inputs and
// Exchange.State return. A requestState that is not ours is refused, whatever the handler does
// with it.
func (s *Server) readAnswers(x *Exchange) error {
	var p RetryParams
	if err := x.Bind(&p); err != nil {
		return err
	}
	answers, err := uniqueMembers("inputResponses", p.InputResponses)
	if err != nil {
		return paramsError(err, "param")
	}
	for key, answer := range answers {
		if answer[0] != '{' {
			return InvalidParams("the answer to '%s' must be one object", key)
		}
	}
	x.facts().inputs = answers
	if p.RequestState == nil {
		return nil
	}
	return s.unseal(x, *p.RequestState)
}

// uniqueMembers returns the members of an object that may have any members. If one appears
// twice, that is an error, and name is what the error calls the object. nil and null have no
// members.
func uniqueMembers(name string, object json.RawMessage) (map[string]json.RawMessage, error) {
	switch {
	case len(object) == 0 || string(object) == "null":
		return nil, nil
	case object[0] != '{':
		return nil, &BindError{Name: name, Reason: "must be an object"}
	}
	members := map[string]json.RawMessage{}
	for member, value := range Each(object) {
		if members[string(member)] != nil {
			return nil, &BindError{Name: name + "." + string(member), Reason: appearsTwice}
		}
		if len(members) == maxMembers {
			return nil, &BindError{Name: name, Reason: fmt.Sprintf("must have at most %d members", maxMembers)}
		}
		members[string(member)] = value
	}
	return members, nil
}

// ---- Subscriptions ----

// ResourceParams are the params of resources/subscribe, resources/unsubscribe and
// notifications/resources/updated. 2025-11-25 server/resources#subscriptions.
type ResourceParams struct {
	URI string `json:"uri"`
}

// ListenParams are the params of subscriptions/listen. 2026-07-28 basic/patterns/subscriptions.
type ListenParams struct {
	Notifications ListenFilter `json:"notifications"`
}

// ListenFilter says which changes a client wants to be told of, or is going to be told of.
// 2026-07-28 basic/patterns/subscriptions.
type ListenFilter struct {
	PromptsListChanged    bool     `json:"promptsListChanged,omitempty"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"` // URIs
	ResourcesListChanged  bool     `json:"resourcesListChanged,omitempty"`
	ToolsListChanged      bool     `json:"toolsListChanged,omitempty"`
}

// ---- Announcing changes ----

// announcer is what a Server needs of changes. It is an interface, so that a program that
// announces nothing does not carry the code.
type announcer interface {
	publish(method string, params any)
	join(peer *Peer)  // a legacy client has sent notifications/initialized
	leave(peer *Peer) // another client has initialized in its place
}

// AnnounceChanges lets clients hear of changes: of the lists of tools, resources and prompts,
// which are then declared with listChanged, and of the resources that they subscribe to, if
// Capabilities name resources with subscribe. Call it before the first request. Of the Servers
// that one Peer reaches, only one may announce changes.
func (s *Server) AnnounceChanges() {
	c := &changes{server: s, legacy: map[*Peer]*subscriber{}, listeners: map[*subscriber]bool{}}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.changes = c
	s.enter("subscriptions/listen", c.listen)
	s.enter("resources/subscribe", c.subscribe)
	s.enter("resources/unsubscribe", c.subscribe)
}

// Publish announces a change, such as notifications/tools/list_changed, to every legacy client
// that has initialized, and to the modern requests subscriptions/listen that name it.
// notifications/resources/updated goes to those who have subscribed to its uri. Without
// AnnounceChanges, Publish does nothing.
//
// Publish never waits. Of several changes of one list or resource, a client that reads slowly
// gets the last. A change that Capabilities do not offer is not announced, nor is any other
// notification. params may be nil; if they do not encode to an object, nothing is sent.
func (s *Server) Publish(method string, params any) {
	s.mu.Lock()
	isPrepared := s.caps != nil // before that there is no client
	s.mu.Unlock()
	if isPrepared && s.changes != nil {
		s.changes.publish(method, params)
	}
}

// changes tells subscribers what has changed. A subscriber is a legacy client that has
// initialized, or a modern request subscriptions/listen. publish puts a change into the queue
// of each subscriber that wants it, and never sends. Who sends:
//
//	legacy    one goroutine of the Peer, from the first change that waits until none waits
//	modern    the goroutine of the request, which sleeps until wake has something
type changes struct {
	server *Server

	mu         sync.Mutex // guards the fields below, and those of each subscriber but wake
	legacy     map[*Peer]*subscriber
	listeners  map[*subscriber]bool
	remembered int // bytes of what the clients watch; at most maxRemembered
}

type subscriber struct {
	wants   map[change]*Message // for each change that it is told of: the notification that waits; nil: none does
	lists   bool                // it is told of all lists: a legacy client that has initialized
	queue   []change            // that wait, in order
	size    int                 // bytes of what it watches
	sending bool                // a goroutine sends, for a legacy client
	wake    chan struct{}       // has room for one; nil for a legacy client
}

// change is what notifications are about: a list, or the resource with a URI.
type change struct{ method, uri string }

const methodUpdated = "notifications/resources/updated"

func (c *changes) publish(method string, params any) {
	m, err := NewRequest(ID{}, method, params)
	kind, isList := strings.CutSuffix(strings.TrimPrefix(method, "notifications/"), "/list_changed")
	// 2025-11-25 basic/lifecycle#operation: "Only use capabilities that were successfully
	// negotiated"
	if err != nil || !isList && method != methodUpdated || isList && !c.server.declaresTrue(kind, "listChanged") {
		return
	}
	next := change{method: method}
	if !isList {
		next.uri = unquote(member(m.Params, "uri"))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for peer, sub := range c.legacy {
		if sub.add(next, m) && !sub.sending {
			sub.sending = true
			peer.goSend(func() { c.sendToPeer(peer, sub) })
		}
	}
	for sub := range c.listeners {
		if sub.add(next, m) {
			select {
			case sub.wake <- struct{}{}:
			default: // wake has a value already, so the subscriber is going to look at the queue
			}
		}
	}
}

// add puts a change into the queue if the subscriber wants it. A notification of the same list
// or resource that still waits is replaced. add reports whether the subscriber wants it.
func (sub *subscriber) add(next change, m *Message) bool {
	before, wanted := sub.wants[next]
	if !wanted && (!sub.lists || next.method == methodUpdated) {
		return false
	}
	if before == nil {
		sub.queue = append(sub.queue, next)
	}
	sub.wants[next] = m
	return true
}

// next removes the next notification from the queue; nil: none waits.
func (c *changes) next(sub *subscriber) *Message {
	c.mu.Lock()
	defer c.mu.Unlock()
	sub.sending = len(sub.queue) > 0
	if !sub.sending {
		return nil
	}
	next := sub.queue[0]
	sub.queue = sub.queue[1:]
	m := sub.wants[next]
	sub.wants[next] = nil
	return m
}

// sendToPeer sends what waits for a legacy client, until nothing does.
func (c *changes) sendToPeer(peer *Peer, sub *subscriber) {
	for m := c.next(sub); m != nil; m = c.next(sub) {
		if err := peer.send(peer.ctx, m); err != nil {
			peer.log.Debug("notification not sent", "method", m.Method, "error", brief(err.Error()))
		}
	}
}

// join makes a legacy client a subscriber of all lists.
func (c *changes) join(peer *Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub := c.subscriberOf(peer); sub != nil {
		sub.lists = true
	}
}

// subscriberOf returns the subscriber for a legacy client. If there is none yet, it is added
// until the Peer ends; nil: that has ended. The caller holds mu.
func (c *changes) subscriberOf(peer *Peer) *subscriber {
	sub := c.legacy[peer]
	if sub == nil {
		if !peer.whenEnded(func() { c.leave(peer) }) {
			return nil
		}
		sub = &subscriber{wants: map[change]*Message{}}
		c.legacy[peer] = sub
	}
	return sub
}

// leave forgets a legacy client, and what waits for it.
func (c *changes) leave(peer *Peer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sub := c.legacy[peer]; sub != nil {
		sub.queue = nil
		c.remembered -= sub.size
		delete(c.legacy, peer)
	}
}

// subscribe answers resources/subscribe and resources/unsubscribe of a legacy client.
func (c *changes) subscribe(_ context.Context, x *Exchange) (any, error) {
	if !c.server.declaresTrue("resources", "subscribe") {
		return nil, MethodNotFound(x.Request.Method)
	}
	var p ResourceParams
	if err := x.Bind(&p); err != nil {
		return nil, err
	}
	if p.URI == "" {
		return nil, InvalidParams("'uri' must not be empty")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	sub, key := c.subscriberOf(x.Peer), change{methodUpdated, p.URI}
	if sub == nil {
		return nil, errStopping
	}
	_, isWatched := sub.wants[key]
	wanted := x.Request.Method == "resources/subscribe"
	size := len(p.URI) + perURI
	switch {
	case wanted == isWatched:
	case !wanted:
		delete(sub.wants, key)
		sub.queue = slices.DeleteFunc(sub.queue, func(waits change) bool { return waits == key })
		sub.size -= size
		c.remembered -= size
	case sub.size+size > maxWatching || c.remembered+size > maxRemembered:
		return nil, errListeners
	default:
		sub.wants[key] = nil
		sub.size += size
		c.remembered += size
	}
	return nil, nil
}

var errListeners = &Error{Code: CodeInternalError, Message: "Too many subscriptions"}

// listen answers subscriptions/listen. It sends an acknowledgement, and then the changes that
// were asked for, each with the id of the request, until the client cancels or the server shuts
// down. 2026-07-28 basic/patterns/subscriptions.
func (c *changes) listen(ctx context.Context, x *Exchange) (any, error) {
	var p ListenParams
	size := len(x.Request.Params)
	if size <= maxWatching { // otherwise it is not read: a URI of three bytes takes 16 in Go
		if err := x.Bind(&p); err != nil {
			return nil, err
		}
	}
	uris := p.Notifications.ResourceSubscriptions
	size += len(uris) * perURI
	if size > maxWatching || slices.Contains(uris, "") {
		return nil, InvalidParams("a subscription must have at most %d bytes, with %d for each URI, and no empty URI", maxWatching, perURI)
	}
	agreed, sub := c.newListener(p.Notifications)
	sub.size = size
	if !c.addListener(sub) {
		return nil, errListeners
	}
	defer c.removeListener(sub)
	id := map[string]json.RawMessage{metaSubscription: json.RawMessage(x.Request.ID.text)} // the _meta of all messages that belong to it
	err := x.Notify(ctx, "notifications/subscriptions/acknowledged", map[string]any{"_meta": id, "notifications": agreed})
	if err == nil {
		err = c.sendUntilEnd(ctx, x, sub)
	}
	// 2026-07-28 basic/patterns/cancellation: the server "MUST send notifications/cancelled"
	// when it tears a subscription down. It follows the result. A client that gets it first may
	// take that for an abrupt end, and the result for an answer to nothing.
	if x.owner.conn != nil { // over HTTP the end of the response says it
		params := map[string]any{"_meta": id, "requestId": id[metaSubscription]}
		x.state.trailer, _ = NewRequest(ID{}, "notifications/cancelled", params)
	}
	return map[string]any{"_meta": id}, err
}

// sendUntilEnd sends changes until the server shuts down, also those that were published just
// before. It returns an error if the request ends, or if a change cannot be sent.
func (c *changes) sendUntilEnd(ctx context.Context, x *Exchange, sub *subscriber) error {
	for ending := false; !ending; {
		select {
		case <-sub.wake:
		case <-x.Ending:
			ending = true
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		for m := c.next(sub); m != nil; m = c.next(sub) {
			var withID, all Object
			withID.Add(metaSubscription, []byte(x.Request.ID.text))
			withID.AddAll(member(m.Params, "_meta"), metaSubscription)
			all.Add("_meta", withID.encode())
			all.AddAll(m.Params, "_meta")
			if err := x.Notify(ctx, m.Method, all.encode()); err != nil {
				return err
			}
		}
	}
	return nil
}

// newListener returns the part of a filter that the server offers, and the subscriber for it.
func (c *changes) newListener(asked ListenFilter) (agreed ListenFilter, sub *subscriber) {
	sub = &subscriber{wants: map[change]*Message{}, wake: make(chan struct{}, 1)}
	list := func(name string, isAsked bool) bool {
		isAgreed := isAsked && c.server.declaresTrue(name, "listChanged")
		if isAgreed {
			sub.wants[change{method: "notifications/" + name + "/list_changed"}] = nil
		}
		return isAgreed
	}
	agreed.PromptsListChanged = list("prompts", asked.PromptsListChanged)
	agreed.ResourcesListChanged = list("resources", asked.ResourcesListChanged)
	agreed.ToolsListChanged = list("tools", asked.ToolsListChanged)
	if c.server.declaresTrue("resources", "subscribe") {
		agreed.ResourceSubscriptions = asked.ResourceSubscriptions
	}
	for _, uri := range agreed.ResourceSubscriptions {
		sub.wants[change{methodUpdated, uri}] = nil
	}
	return agreed, sub
}

// addListener adds a modern subscriber. It reports whether there was a place for it.
func (c *changes) addListener(sub *subscriber) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.listeners) >= maxListeners || c.remembered+sub.size > maxRemembered {
		return false
	}
	c.listeners[sub] = true
	c.remembered += sub.size
	return true
}

func (c *changes) removeListener(sub *subscriber) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.listeners, sub)
	c.remembered -= sub.size
}

// ==== The client ====
//
// How a connection is made, from the outside to the inside:
//
//	withConnection                   used by Connect, Call, Notify and Listen; the only place that repeats a call
//	  acquire                        returns the connection, or waits for the attempt
//	    connect                      the attempt, on a goroutine of its own
//	      open                       tries the Dialers
//	        negotiate                tries one Dialer, in three steps at most
//	          start                  the Conn, and the Peer that reads it
//	          discover, initialize   the steps
//
// What happens when the connection is lost while five calls wait, and then a sixth call is
// made:
//
//	reader of the Conn  Read fails. The reader ends the Peer, and the five calls get ErrClosed
//	the five calls      return ErrClosed, because the server may have acted on them
//	the sixth call      finds that the Peer has ended. It retires the connection, starts an
//	                    attempt in the background, and waits for the attempt
//	the attempt         calls the Dialer that has worked before, and negotiates. It begins with the era
//	                    of the last time. Its connection is now the one for all calls
//	the sixth call      sends its request on the new connection

const (
	maxTries = 4    // handshakes for one call
	maxSteps = 3    // of a handshake
	maxPages = 1000 // of a list that a Client reads by itself
)

// Client talks to one server, whatever its revision: it finds out which one the server speaks,
// and keeps to that. Set the fields before Connect. After that, any number of goroutines may
// use the Client. A call takes as long as its context allows.
//
// What the error of a call means:
//
//	error                                what has happened                              may it be called again?
//	*Error, alone or in an *HTTPError    the server has answered with an error          after you have fixed what it names
//	ErrNotSent                           the server has not read the call               yes
//	ErrTooLarge                          an answer has more bytes than the Dialer       no: it was done. But if the server writes
//	                                     allows                                         the id last, the answer to another call was
//	                                                                                    too large, and this one may still run
//	the error of the call's context      the caller has given up                        if doing it twice does no harm
//	any other                            the server may have done it, or not            if doing it twice does no harm
//
// The last line includes ErrClosed, ErrInterrupted, ErrSessionEnded, any other *HTTPError, and
// errors of net/http.
type Client struct {
	// Info is what servers are told about this client. Name and Version are required: Connect
	// fails without them.
	Info Implementation
	// Capabilities are told to servers: what the Client can be asked. If they do not name
	// elicitation, sampling or roots, and Handlers has a handler for its question, it is
	// declared as {}. Connect fails if Capabilities cannot be encoded.
	Capabilities map[string]any
	// Handlers holds the handlers of questions and of notifications by method, in either era,
	// such as "elicitation/create" and "notifications/tools/list_changed". While the handler of
	// a notification runs, nothing is read. So it must not Call or Listen: no response would
	// come. It starts a goroutine for that.
	Handlers map[string]HandlerFunc
	// Handler gets all that Handlers does not name. nil: questions are answered with
	// CodeMethodNotFound, and notifications are dropped.
	Handler  Handler
	Versions []string // to speak, newest first; empty: all
	// ProbeTimeout is how long a server may leave server/discover unanswered before it counts
	// as legacy. A login that an http.RoundTripper makes meanwhile counts against it, too. 0:
	// five seconds.
	ProbeTimeout time.Duration
	// ConnectTimeout is how long an attempt to connect may take, the start of a command
	// included. A login that an http.RoundTripper makes meanwhile counts against it, too. 0: 30
	// seconds.
	ConnectTimeout time.Duration
	Log            *slog.Logger // nil: silent

	mu       sync.Mutex // guards the fields below
	dials    []Dialer
	life     context.Context // until Close; nil before Connect
	endLife  context.CancelCauseFunc
	closed   bool                            // Close was called, maybe before Connect
	current  *connection                     // the one that calls use; nil: there is none
	attempt  *attempt                        // the attempt to make one; nil: none is under way
	last     *connection                     // the last one that was made
	progress map[string]func(ProgressParams) // of the calls that want to see theirs, by token
	tokens   int                             // that were given out
	running  sync.WaitGroup                  // goroutines that make or close a connection; they are started while mu is held, and not after Close
}

// attempt is an attempt to make a connection. It runs in the background, not on the context of
// a call: a call with a short deadline must not stop the attempt for which others wait. All
// calls that need a connection wait for the same attempt.
type attempt struct {
	done chan struct{} // closed when err is set, or Client.current
	err  error
}

// connection is what a Client knows about the server at the other end of a Conn. A Client has
// at most one connection that new calls use, and one attempt to make it:
//
//	                 a call                    it succeeds
//	no connection ----------> attempt ------------------------> connection
//	      ^                      |                                 |
//	      |                      | it fails, or takes too long     | it ends, its session ends,
//	      +----------------------+                                 | or it does not fit the server
//	      +--------------------------------------------------------+ any more: it is retired
//
// A retired connection is closed when the calls that use it are done. In this part of the file,
// conn is a connection. The Conn below it is called transport.
type connection struct {
	peer     *Peer
	dialer   int      // its index in Client.dials
	revision Revision // the zero Revision: nothing was agreed on yet
	ownMeta  Object   // the members of _meta that each modern request has
	server   ServerInfo

	marks ToolMarks // of the modern era

	// changes ends when the server can send us no more notifications of changes. Its cause is
	// the reason. Listen waits for it in the legacy era.
	changes    context.Context
	endChanges context.CancelCauseFunc

	turn    chan struct{}  // has room for one: who may use watched
	watched map[string]int // how many calls of Listen watch each resource, in the legacy era

	calls sync.WaitGroup // those that use the connection; they are added while mu is held, and not after retire
}

// ServerInfo is what a server says about itself.
type ServerInfo struct {
	Version      string          // of the protocol, as agreed on
	Info         *Implementation // nil: it did not say
	Capabilities json.RawMessage // an object; nil: it did not say
	Instructions string          // for the model; "": none
	Versions     []string        // that it offers, as server/discover says; nil: unknown
}

// Connect opens a Conn and finds out how to talk over it: with server/discover, and then with
// initialize. If what answers is not a server that speaks over such a Conn, the next Dialer is
// tried: for a URL, an HTTPDialer and then an SSEDialer. Connect is called once. If it fails,
// the Client is still of use: the next call tries to connect in the same way, unless Close was
// called.
//
// When the connection is lost later, or does not fit the server any more, the next call
// connects again. A call that no server has acted on is then sent on the new connection. Any
// other call fails, and is never sent twice.
func (c *Client) Connect(ctx context.Context, dials ...Dialer) error {
	c.mu.Lock()
	c.dials = dials
	c.life, c.endLife = context.WithCancelCause(context.WithoutCancel(ctx))
	if c.closed {
		c.endLife(ErrClosed)
	}
	c.mu.Unlock()
	return c.withConnection(ctx, func(*connection) error { return nil })
}

// Server returns what the server has said about itself when we connected. Before that it
// returns the zero ServerInfo.
func (c *Client) Server() ServerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.last == nil {
		return ServerInfo{}
	}
	return c.last.server
}

// Close hangs up. Waiting calls, and an attempt to connect, fail with ErrClosed. A session is
// ended with DELETE, for which Close waits 0.7 seconds at most. Close may be called more than
// once, but not by Handler.
func (c *Client) Close() (err error) {
	c.mu.Lock()
	c.closed = true
	conn, endLife := c.last, c.endLife
	if conn != nil {
		c.retire(conn, ErrClosed)
	}
	c.mu.Unlock()
	if conn != nil {
		err = conn.peer.Close()
	}
	if endLife != nil {
		endLife(ErrClosed) // also of retired connections that calls still use
	}
	c.running.Wait()
	return err
}

// withConnection runs call, which makes one call, on a connection. If no server has read it,
// withConnection runs it once more, on another connection.
func (c *Client) withConnection(ctx context.Context, call func(*connection) error) error {
	var unread error // of the first try
	for {
		conn, err := c.acquire(ctx)
		switch {
		case err != nil && unread != nil:
			return fmt.Errorf("%w; connecting again: %w", unread, err)
		case err != nil:
			return err
		}
		err = conn.run(call)
		notRead, outdated := conn.classify(err)
		if notRead || outdated {
			c.mu.Lock()
			c.retire(conn, ErrSessionEnded)
			c.mu.Unlock()
		}
		if !notRead || unread != nil || ctx.Err() != nil {
			return err
		}
		unread = err
	}
}

// run runs call, and then the call does not count any more, even if a handler of a question has
// ended this goroutine.
func (conn *connection) run(call func(*connection) error) error {
	defer conn.calls.Done()
	return call(conn)
}

// classify says what the error of a call means for the connection. If the server has not read
// the call, notRead is true. If the connection does not fit the server any more, outdated is
// true. A refusal to continue a response is ErrInterrupted, whatever status or code it has: the
// server has read the call.
//
// 2026-07-28 basic/versioning#backward-compatibility-with-initialization-based-versions.
func (conn *connection) classify(err error) (notRead, outdated bool) {
	switch {
	case errors.Is(err, ErrInterrupted):
		return false, false
	case errors.Is(err, ErrNotSent):
		return true, false
	}
	isRefused := errors.Is(err, errRefused)
	isOther := conn.revision.Modern && errors.Is(err, ErrOtherServer)
	return false, isRefused && (isOther || codeOf(err) == CodeUnsupportedVersion)
}

// codeOf returns the code of the *Error in err; 0: there is none.
func codeOf(err error) int {
	if fault, ok := errors.AsType[*Error](err); ok && fault != nil {
		return fault.Code
	}
	return 0
}

// acquire returns the connection, for one call, which then runs by conn.run. A server that ends
// after each handshake is started maxTries times at most.
func (c *Client) acquire(ctx context.Context) (*connection, error) {
	for try := 0; ; try++ {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		conn, a, err := c.connectionOrAttempt(try < maxTries)
		if conn != nil || err != nil {
			return conn, err
		}
		select {
		case <-a.done:
			if a.err != nil {
				return nil, a.err
			}
		case <-ctx.Done():
		}
	}
}

// connectionOrAttempt returns the connection, for one more call, or the attempt to make one, if
// that may be made.
func (c *Client) connectionOrAttempt(mayTry bool) (*connection, *attempt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.closed:
		return nil, nil, ErrClosed
	case c.life == nil:
		return nil, nil, fmt.Errorf("%w: Connect was not called", ErrClosed)
	}
	if c.current != nil && c.current.isOver() {
		c.retire(c.current, ErrSessionEnded)
	}
	if c.current != nil {
		c.current.calls.Add(1)
		return c.current, nil, nil
	}
	if !mayTry {
		return nil, nil, fmt.Errorf("%w: the server has ended after each of %d handshakes", ErrClosed, maxTries)
	}
	if c.attempt == nil {
		a := &attempt{done: make(chan struct{})}
		c.attempt = a
		c.running.Go(func() { c.connect(a) })
	}
	return nil, c.attempt, nil
}

// isOver reports whether the conversation, or its session, has ended.
func (conn *connection) isOver() bool {
	return conn.peer.Context().Err() != nil || errors.Is(context.Cause(conn.changes), ErrSessionEnded)
}

// connect is the goroutine of an attempt. It makes a connection for all calls that wait for the
// attempt.
func (c *Client) connect(a *attempt) {
	limit := cmp.Or(c.ConnectTimeout, 30*time.Second)
	tooLong := fmt.Errorf("no connection within %v", limit)
	ctx, cancel := context.WithTimeoutCause(c.life, limit, tooLong)
	defer cancel()
	conn, err := c.open(ctx)
	if err != nil && err != tooLong && context.Cause(ctx) == tooLong {
		err = withEarlier(tooLong, err)
	}
	if conn != nil { // Close waits until each connection is closed, those too that are retired
		c.running.Add(1)
		context.AfterFunc(conn.peer.Context(), func() {
			defer c.running.Done()
			_ = conn.peer.Close()
		})
	}
	defer close(a.done)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.attempt, a.err = nil, err
	switch {
	case c.closed: // the connection ends with Client.life
		a.err = ErrClosed
	case conn != nil:
		c.last, c.current = conn, conn
	}
}

// retire takes a connection out of use: new calls get another one. It is closed when the calls
// that use it are done. Close does not wait for that: a call may last as long as a handler of
// its questions. why is what Listen returns in the legacy era. The caller holds mu.
func (c *Client) retire(conn *connection, why error) {
	if c.current != conn {
		return
	}
	c.current = nil
	conn.endChanges(why)
	go func() {
		conn.calls.Wait()
		_ = conn.peer.Close()
	}()
}

// ---- Negotiation: what does the server speak? ----
//
// A probe is server/discover, with which a client asks a server what it speaks.

// open connects in the way that has worked last time. If the server has changed since, or if
// there was no last time, it tries the Dialers, from the first to the last.
func (c *Client) open(ctx context.Context) (*connection, error) {
	c.mu.Lock()
	dials, last := c.dials, c.last
	c.mu.Unlock()
	if len(dials) == 0 {
		return nil, errors.New("there is nothing to dial")
	}
	if _, err := marshalObject(c.Capabilities); err != nil {
		return nil, fmt.Errorf("Client.Capabilities: %w", err)
	}
	if !c.Info.isWhole() {
		return nil, errors.New("Client.Info needs a Name and a Version")
	}
	type way struct {
		dialer int
		modern bool
	}
	var ways []way
	if last != nil {
		ways = append(ways, way{last.dialer, last.revision.Modern})
	}
	for i := range dials {
		ways = append(ways, way{i, i == 0})
	}
	var err error
	for i, w := range ways {
		conn, failed := c.negotiate(ctx, w.dialer, w.modern)
		if conn != nil {
			return conn, nil
		}
		err = withEarlier(failed, err)
		// A server that answers with an error is there, but it may have changed. So all is
		// found out again. If there is no answer, no other way would help.
		_, answered := errors.AsType[*Error](failed)
		isOutdated := answered && last != nil && i == 0
		if !isOutdated && !errors.Is(failed, ErrOtherServer) || ctx.Err() != nil {
			break
		}
	}
	return nil, err
}

// negotiate opens a Conn and finds out what the server speaks. Each step sends one request, and
// its answer chooses the next step, from this table. There are three steps at most.
//
//	sent               answered with                                   next step
//	server/discover    versions: the first of ours in it is modern     connected
//	                   versions: the first of ours in it is legacy     handshake
//	                   versions: none of them is ours                  give up
//	                   -32021: modern, but it wants a capability       connected
//	                   -32022 with versions, one of them ours          probe, or handshake if that is legacy
//	                   -32022 without                                  give up
//	                   -32020: modern, but a header was changed        give up
//	                   HTTP 401, 403, 408, 429, 3xx, 5xx               give up: this says nothing about versions
//	                   no connection                                   give up
//	                   anything else, or nothing in time               handshake
//	initialize         a version of ours                               connected
//	                   another version                                 give up
//	                   an error with versions, one of them ours        probe or handshake with that
//	                   an error that only modern servers have          probe
//	                   ErrSessionEnded                                 handshake on a new Conn
//	                   the end, and server/discover was sent before    handshake on a new Conn
//	                   HTTP 400, 404 or 405                            next Dialer
//	                   anything else                                   give up
//
// The first step is server/discover if modern is true: for the first Dialer, and for no other,
// because HTTP+SSE has no server/discover. A client that connects again begins with the era of
// the last time. If we speak no version of that era, the first step is that of the other era.
//
// 2026-07-28 basic/transports/stdio#backward-compatibility and
// basic/transports/streamable-http#backward-compatibility.
func (c *Client) negotiate(ctx context.Context, dialer int, modern bool) (*connection, error) {
	versions := versionsOrAll(c.Versions)
	version := cmp.Or(firstOfEra(versions, modern), firstOfEra(versions, !modern))
	if version == "" {
		return nil, fmt.Errorf("%w: none of %q is known", errNoVersion, versions)
	}
	var conn *connection
	var err, probed error // what went wrong so far; and why server/discover has failed on conn
	for range maxSteps {
		if conn == nil {
			var failed error
			conn, failed = c.start(ctx, dialer)
			if failed != nil {
				return nil, withEarlier(failed, err)
			}
			probed = nil
		}
		var next string
		var failed error
		if revision(version).Modern {
			next, failed = c.discover(ctx, conn, version)
			probed = failed
		} else {
			next, failed = c.initialize(ctx, conn, version, probed)
		}
		if next == "" && failed == nil {
			return conn, nil
		}
		err = withEarlier(failed, err)
		if next == "" || ctx.Err() != nil {
			break
		}
		if isGone(failed) {
			_ = conn.peer.Close()
			conn = nil
		}
		version = next
	}
	if conn != nil {
		_ = conn.peer.Close()
	}
	return nil, err
}

// withEarlier adds to an error the one before it, as text. It does not wrap the earlier one,
// because only the last error may decide what is done next.
func withEarlier(err, before error) error {
	if err == nil || before == nil {
		return cmp.Or(err, before)
	}
	return fmt.Errorf("%w (after %v)", err, before)
}

// start opens a Conn, and begins to read from it.
func (c *Client) start(ctx context.Context, dialer int) (*connection, error) {
	transport, err := c.dials[dialer].Dial(ctx)
	if err != nil {
		return nil, err
	}
	conn := &connection{dialer: dialer, turn: make(chan struct{}, 1), watched: map[string]int{}}
	l := newLoop(c.life, transport, HandlerFunc(c.handle), new(mcpProtocol), c.Log, true)
	conn.peer = l.peer
	conn.peer.onReport = func(err error) { c.takeReport(conn, err) }
	conn.changes, conn.endChanges = context.WithCancelCause(conn.peer.Context())
	l.start() // last: what is read needs the rest
	return conn, nil
}

// takeReport takes in what the transport reports, on the goroutine that reads. Most reports are
// only logged. The others end the announcements of changes.
func (c *Client) takeReport(conn *connection, err error) {
	if err != errNoStream {
		conn.peer.log.Warn("transport", "error", brief(err.Error()))
	}
	if errors.Is(err, errNoStream) || errors.Is(err, ErrInterrupted) || errors.Is(err, ErrSessionEnded) {
		conn.endChanges(err)
	}
	if errors.Is(err, ErrSessionEnded) {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.retire(conn, err)
	}
}

// isGone reports whether the server, or its session, has ended during a handshake.
func isGone(err error) bool { return errors.Is(err, ErrClosed) || errors.Is(err, ErrNotSent) }

// discover asks a server what it speaks. version is the one in which it asks. It returns the
// version to try next, as negotiate's table says. "" without an error: it has connected.
func (c *Client) discover(ctx context.Context, conn *connection, version string) (next string, err error) {
	ctx, stop := context.WithTimeout(ctx, cmp.Or(c.ProbeTimeout, 5*time.Second))
	defer stop()
	// As long as the server counts as modern it may not ask us anything.
	conn.peer.note(func(h *handshake) { h.revision = revision(version) })
	conn.ownMeta = c.ownMeta(revision(version))
	var raw json.RawMessage
	var result DiscoverResult
	err = conn.peer.Call(ctx, "server/discover", conn.withMeta(nil, nil), &raw)
	if err == nil {
		err = bindHandshake(raw, &result)
	}
	code, theirs := codeOf(err), versionsNamedIn(err)
	if err == nil {
		theirs = result.SupportedVersions
	}
	ours := c.firstCommon(theirs)
	switch {
	case err == nil && revision(ours).Modern, code == CodeMissingCapability:
		var info *Implementation
		if result.Meta != nil {
			info = result.Meta.ServerInfo
		}
		if err == nil {
			version = ours
		}
		c.agree(conn, version, ServerInfo{Info: info, Capabilities: result.Capabilities,
			Instructions: result.Instructions, Versions: result.SupportedVersions})
		return "", nil
	case err == nil && ours != "":
		next = ours
	case err == nil, code == CodeUnsupportedVersion && ours == "":
		err = fmt.Errorf("%w: the server speaks %q", errNoVersion, theirs)
	case code == CodeUnsupportedVersion:
		next = ours
	case code != CodeHeaderMismatch && !errors.Is(err, errSaysNothing):
		next = firstLegacy(versionsOrAll(c.Versions))
	}
	conn.peer.note(func(h *handshake) { h.revision = Revision{} })
	if err != nil {
		err = fmt.Errorf("server/discover: %w", err)
	}
	return next, err
}

// initialize is the handshake of the legacy era. It returns what discover does. probed is why
// server/discover has failed on the same Conn; nil: it has not. 2025-11-25
// basic/lifecycle#version-negotiation: a client that cannot speak the version in the answer
// "SHOULD disconnect".
func (c *Client) initialize(ctx context.Context, conn *connection, version string, probed error) (next string, err error) {
	rev, versions := revision(version), versionsOrAll(c.Versions)
	params := InitializeParams{ProtocolVersion: version, Capabilities: c.capabilities(rev), ClientInfo: c.Info.knownTo(rev)}
	var raw json.RawMessage
	var result InitializeResult
	err = conn.peer.Call(ctx, "initialize", params, &raw)
	if err == nil {
		err = bindHandshake(raw, &result)
	}
	if err == nil {
		if revision(result.ProtocolVersion).Modern || !slices.Contains(versions, result.ProtocolVersion) {
			return "", fmt.Errorf("initialize: %w: the server wants %.200q", errNoVersion, result.ProtocolVersion)
		}
		c.agree(conn, result.ProtocolVersion, ServerInfo{Info: result.ServerInfo, Capabilities: result.Capabilities, Instructions: result.Instructions})
		err = conn.peer.Notify(ctx, "notifications/initialized", nil)
		if err == nil {
			return "", nil
		}
		err = fmt.Errorf("notifications/initialized: %w", err)
	}
	switch ours := c.firstCommon(versionsNamedIn(err)); {
	case ours != "":
		next = ours
	case errors.Is(err, ErrSessionEnded), isGone(err) && probed != nil: // the probe was something that it may not know
		next = version
	case errors.Is(err, errModernServer):
		next = firstModern(versions)
	}
	return next, fmt.Errorf("initialize: %w", err)
}

// agree stores in the connection what server/discover or initialize has found out.
func (c *Client) agree(conn *connection, version string, server ServerInfo) {
	if server.Info != nil && server.Info.Name == "" {
		server.Info = nil
	}
	server.Version = version
	conn.server, conn.revision = server, revision(version)
	conn.ownMeta = c.ownMeta(conn.revision)
	conn.peer.note(func(h *handshake) { h.revision = conn.revision })
}

// firstCommon returns the first of our versions that is among the server's; "": none is.
func (c *Client) firstCommon(theirs []string) string {
	for _, v := range versionsOrAll(c.Versions) {
		if slices.Contains(theirs, v) {
			return v
		}
	}
	return ""
}

// versionsNamedIn returns the versions that an error lists.
func versionsNamedIn(err error) []string {
	var data struct {
		Supported []string `json:"supported,omitempty"`
	}
	if fault, ok := errors.AsType[*Error](err); ok {
		_ = bindHandshake(fault.Data, &data)
	}
	return data.Supported
}

// bindHandshake is Bind for what a server says in the handshake.
func bindHandshake(raw json.RawMessage, v any) error {
	if len(raw) > maxHandshake {
		return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, maxHandshake)
	}
	return Bind(raw, v)
}

// ownMeta returns the members of _meta that each modern request has. 2026-07-28 basic#meta:
// protocolVersion and clientCapabilities "MUST be included on every request".
func (c *Client) ownMeta(rev Revision) (meta Object) {
	info, _ := marshal(c.Info) // strings have no error
	meta.Add(metaVersion, appendString(nil, rev.Version))
	meta.Add(metaClientInfo, info)
	meta.Add(metaCapabilities, c.capabilities(rev))
	return meta
}

// capabilities returns what we declare: those of our capabilities that a revision knows.
func (c *Client) capabilities(rev Revision) json.RawMessage {
	declared := map[string]any{}
	for method, capability := range capabilityOfQuestion {
		if c.Handlers[method] != nil {
			declared[capability] = struct{}{}
		}
	}
	maps.Copy(declared, c.Capabilities)
	if !rev.Elicitation {
		delete(declared, "elicitation")
	}
	raw, _ := marshalObject(declared) // open has found that there is no error
	return raw
}

// ---- The errors of a transport that a Client knows ----

// Errors of a transport that a Client knows. A transport may wrap them.
var (
	// ErrSessionEnded means that the server does not know the session, or the conversation, any
	// more. A Client begins another one by itself.
	ErrSessionEnded = errors.New("session ended")
	// ErrInterrupted means that a response has ended before the answer, and could not be
	// continued. It is unknown whether the server has done what it was asked.
	ErrInterrupted = errors.New("the response broke off")

	// errNoStream means that the server sends only messages that belong to a request. Calls
	// still work.
	errNoStream = errors.New("the server has no standalone stream")
)

// What an error of a transport means for the Client. These errors are markers: the error of a
// transport has an Is method that matches those that fit. So errors.Is finds several of them in
// one error.
//
//	marker            matches an HTTPError, or no response, for         what a Client does
//	errRefused        any status but 2xx: the transport has carried     it sends a tools/call again if its header was incomplete,
//	                  the request, and what has come is not the         and the next call finds another version after
//	                  answer of a handler                               CodeUnsupportedVersion
//	ErrOtherServer    400, 404, 405: what was sent is not for the       it tries the next Dialer; in a modern connection, the next
//	                  server that is there                              call finds out again what the server speaks
//	errModernServer   an error that only modern servers have            after initialize, it sends server/discover
//	errSaysNothing    no connection, 401, 403, 408, 429, 3xx, 5xx:      after server/discover, it gives up
//	                  nothing about versions can be concluded
var (
	errRefused      = errors.New("refused by the transport")
	errModernServer = errors.New("a modern server")
	errSaysNothing  = errors.New("says nothing about versions")

	// ErrOtherServer means that the message is not for the server that is there, such as an
	// initialize for a server of another transport. A Dialer of another transport may reach it.
	ErrOtherServer = errors.New("not for this server")
)

// errNoVersion means that client and server have no version in common.
var errNoVersion = errors.New("no protocol version in common")

// ---- The calls of a client ----

// handle answers the questions of the server, in either era, and takes in its notifications.
func (c *Client) handle(ctx context.Context, x *Exchange) (any, error) {
	switch {
	case x.Request.Method == "ping" && x.Request.Kind() == Request:
		return nil, nil
	case x.Request.Method == "notifications/progress" && c.reportProgress(x):
		return nil, nil
	}
	if h := c.Handlers[x.Request.Method]; h != nil {
		return h(ctx, x)
	}
	if c.Handler != nil {
		return c.Handler.Handle(ctx, x)
	}
	return nil, MethodNotFound(x.Request.Method)
}

// reportProgress hands a progress notification to the call that waits for it. It returns false
// if there is none.
func (c *Client) reportProgress(x *Exchange) bool {
	var p ProgressParams
	if x.Bind(&p) != nil {
		return false
	}
	c.mu.Lock()
	report := c.progress[unquote(p.ProgressToken)]
	c.mu.Unlock()
	if report == nil {
		return false
	}
	report(p)
	return true
}

// CallWithProgress is Call for a request whose progress the caller wants to see. It adds a
// progressToken to the _meta of the params. report is called for each progress notification of
// the request, one after the other, on the goroutine that reads: it must not take long, and
// must not Call. What the server has sent before its response is reported before
// CallWithProgress returns. If ctx has ended, report may still run once when CallWithProgress
// has returned.
func (c *Client) CallWithProgress(ctx context.Context, method string, params, result any, report func(ProgressParams)) error {
	given, err := marshalObject(params)
	if err != nil {
		return fmt.Errorf("params of %s: %w", method, err)
	}
	c.mu.Lock()
	c.tokens++
	token := "progress-" + strconv.Itoa(c.tokens)
	if c.progress == nil {
		c.progress = map[string]func(ProgressParams){}
	}
	c.progress[token] = report
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.progress, token)
	}()
	var all, meta Object
	meta.AddAll(member(given, "_meta"), "progressToken")
	meta.Add("progressToken", appendString(nil, token))
	all.AddAll(given, "_meta")
	all.Add("_meta", meta.encode())
	return c.Call(ctx, method, all.encode(), result)
}

// Call sends a request and stores its result, as Peer.Call does. In the modern era it adds to
// _meta what each request must say. If the result is input_required, Handlers or Handler answer
// the questions, and Call sends the request again with the answers. An answer with a status
// other than 2xx is an *HTTPError; errors.As finds the *Error in it. The comment of Client says
// which errors allow another Call.
//
// What the server has sent before the response, on stdio or on the stream of the call, was
// handled by Handlers and Handler before Call returns.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.withConnection(ctx, func(conn *connection) error {
		if conn.revision.Modern {
			return c.callModern(ctx, conn, method, params, result)
		}
		return conn.peer.Call(ctx, method, params, result)
	})
}

// callModern makes one call, with as many requests as the questions need.
func (c *Client) callModern(ctx context.Context, conn *connection, method string, params, result any) error {
	given, err := marshalObject(params)
	if err != nil {
		return fmt.Errorf("params of %s: %w", method, err)
	}
	var answers json.RawMessage
	for round := range maxRounds {
		raw, err := c.request(ctx, conn, method, conn.withMeta(given, answers))
		if round > 0 && errors.Is(err, ErrNotSent) { // the server has read the rounds before
			err = fmt.Errorf("%w: %v", ErrInterrupted, err)
		}
		if err != nil {
			return err
		}
		var asked InputRequiredResult
		if err := Bind(raw, &asked); err != nil {
			return fmt.Errorf("the result: %w", err)
		}
		switch {
		case asked.ResultType == nil, unquote(asked.ResultType) == "complete":
			// 2026-07-28 basic#resulttype: absent means complete
			return storeResult(raw, result)
		case unquote(asked.ResultType) != "input_required":
			return fmt.Errorf("unknown resultType %.200s", asked.ResultType)
		}
		answers, err = c.answerQuestions(ctx, conn, asked)
		if err != nil {
			return fmt.Errorf("input required: %w", err)
		}
	}
	return fmt.Errorf("asked %d times for input", maxRounds)
}

// request sends one request. If a tools/call is refused because arguments are missing in the
// header, request lists the tools, and so learns which arguments belong there. Then it sends
// the call again. 2026-07-28 basic/transports/streamable-http#client-behavior: after -32020 a
// client "SHOULD call tools/list to check for changes to the tool's inputSchema, then retry the
// original request".
func (c *Client) request(ctx context.Context, conn *connection, method string, params encoded) (raw json.RawMessage, err error) {
	raw, err = conn.requestOnce(ctx, method, params)
	mismatch := errors.Is(err, errRefused) && codeOf(err) == CodeHeaderMismatch
	if method != "tools/call" || !mismatch || conn.listTools(ctx) != nil {
		return raw, err
	}
	return conn.requestOnce(ctx, method, params)
}

// requestOnce sends one request, once, and learns the marks if it is tools/list.
func (conn *connection) requestOnce(ctx context.Context, method string, params encoded) (raw json.RawMessage, err error) {
	err = conn.peer.Call(conn.marks.In(ctx), method, params, &raw)
	if err != nil || method != "tools/list" {
		return raw, err
	}
	valid, reports := conn.marks.Learn(raw)
	for _, report := range reports {
		conn.peer.log.Warn("transport", "error", brief(report.Error()))
	}
	return valid, nil
}

// listTools reads all pages of tools/list, to learn the marks.
func (conn *connection) listTools(ctx context.Context) error {
	params := json.RawMessage("{}")
	for range maxPages {
		result, err := conn.requestOnce(ctx, "tools/list", conn.withMeta(params, nil))
		if err != nil {
			return err
		}
		cursor := member(result, "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return nil
		}
		var next Object
		next.Add("cursor", cursor)
		params = next.JSON()
	}
	return nil
}

// withMeta returns the params of a modern request: those that are given, the answers of a
// retry, and _meta.
func (conn *connection) withMeta(given, answers json.RawMessage) encoded {
	var params Object
	meta := Object{slices.Clip(conn.ownMeta.text)} // Clip, so that add copies: all requests share ownMeta
	if answers == nil {
		params.AddAll(given, "_meta")
	} else {
		params.AddAll(given, "_meta", "inputResponses", "requestState")
	}
	params.AddAll(answers)
	meta.AddAll(member(given, "_meta"), metaVersion, metaClientInfo, metaCapabilities)
	params.Add("_meta", meta.encode())
	return params.encode()
}

// answerQuestions asks Handlers and Handler the questions of a modern result, and returns what
// is added to the params of the retry. If the connection ends, so does the context of a
// handler, as for a question of a legacy server. 2026-07-28 basic/patterns/mrtr: the client
// "MUST echo back the exact value" of requestState, and sends none if there was none.
func (c *Client) answerQuestions(ctx context.Context, conn *connection, asked InputRequiredResult) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stop := context.AfterFunc(conn.peer.Context(), cancel)
	defer stop()
	// "at least one of inputRequests or requestState", says the same page.
	if asked.InputRequests == nil && asked.RequestState == nil || asked.InputRequests != nil && asked.InputRequests[0] != '{' {
		return nil, errors.New("the result has neither inputRequests nor requestState")
	}
	all, err := readQuestions(asked.InputRequests)
	if err != nil {
		return nil, err
	}
	var retry, responses Object
	if asked.RequestState != nil {
		retry.Add("requestState", asked.RequestState)
	}
	for _, m := range all {
		x := &Exchange{Request: m, handler: HandlerFunc(c.handle), owner: conn.peer, protocolData: &mcpFacts{revision: conn.revision}}
		response := x.callHandler(ctx)
		switch {
		case conn.peer.Context().Err() != nil:
			return nil, context.Cause(conn.peer.Context())
		case ctx.Err() != nil: // the caller has given up
			return nil, ctx.Err()
		case response.Error != nil:
			return nil, fmt.Errorf("%s: %v", m.Method, response.Error) // not %w: it is not an error of the server
		}
		responses.Add(unquote([]byte(m.ID.text)), response.Result)
	}
	if asked.InputRequests != nil {
		retry.Add("inputResponses", responses.encode())
	}
	return retry.JSON(), nil
}

// readQuestions reads all questions of a result as requests whose ids are their keys. It checks
// them first: the user is asked all of them or none.
func readQuestions(requests json.RawMessage) (all []*Message, err error) {
	members, err := uniqueMembers("inputRequests", requests)
	if err != nil {
		return nil, errors.New(err.Error())
	}
	for name := range Each(requests) { // in their order
		key := string(name)
		var q struct {
			Method string          `json:"method"`
			Params json.RawMessage `json:"params,omitempty"`
		}
		err := Bind(members[key], &q)
		switch {
		case err != nil:
			return nil, fmt.Errorf("question '%s': %w", key, err)
		case q.Params != nil && q.Params[0] != '{':
			return nil, fmt.Errorf("question '%s': the params must be an object", key)
		case capabilityOfQuestion[q.Method] == "":
			return nil, errors.New(MethodNotFound(q.Method).Error()) // not an *Error, which would be one of the server
		}
		all = append(all, &Message{ID: StringID(key), Method: q.Method, Params: q.Params})
	}
	return all, nil
}

// Notify sends a notification, and returns when the server has taken it. The errors are those
// of Call. 2026-07-28 defines no notification that a client sends over HTTP.
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	return c.withConnection(ctx, func(conn *connection) error { return conn.peer.Notify(ctx, method, params) })
}

// Listen subscribes to the changes that filter names, and returns when the subscription ends:
// nil if the server has ended it, the error of ctx if that has ended. Any other error means
// that changes may have been missed: call Listen again, and read again what you follow. Handler
// gets the changes. It must not Call when it gets one, because nothing is read before it
// returns: another goroutine reads again what has changed. In
// notifications/subscriptions/acknowledged the server says what it is going to announce.
// Handlers may have a handler for that, too.
//
// In the legacy era, Listen subscribes to each of the resources, and the server announces all
// other changes without being asked.
func (c *Client) Listen(ctx context.Context, filter ListenFilter) error {
	return c.withConnection(ctx, func(conn *connection) error {
		if !conn.revision.Modern {
			return c.watch(ctx, conn, filter.ResourceSubscriptions)
		}
		params, err := marshalObject(ListenParams{filter})
		if err != nil {
			return err
		}
		err = conn.peer.Call(ctx, "subscriptions/listen", conn.withMeta(params, nil), nil)
		if err == errSubscriptionEnded {
			err = nil
		}
		return err
	})
}

// watch is Listen in the legacy era.
func (c *Client) watch(ctx context.Context, conn *connection, uris []string) error {
	if len(uris) > 0 && !isTrue(member(conn.server.Capabilities, "resources"), "subscribe") {
		return errors.New("the server does not offer subscriptions to resources")
	}
	for i, uri := range uris {
		if err := conn.watchOne(ctx, "resources/subscribe", uri); err != nil {
			conn.unwatch(ctx, uris[:i])
			return err
		}
	}
	defer conn.unwatch(ctx, uris)
	select {
	case <-conn.changes.Done():
		err := context.Cause(conn.changes)
		if errors.Is(err, ErrInterrupted) { // a new connection has a new stream
			c.mu.Lock()
			defer c.mu.Unlock()
			c.retire(conn, ErrSessionEnded)
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unwatch ends subscriptions, whether ctx has ended or not. Otherwise the server would continue
// to announce changes. If it does not answer within a second, unwatch gives up.
func (conn *connection) unwatch(ctx context.Context, uris []string) {
	for _, uri := range uris {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), graceAtEnd)
		err := conn.watchOne(last, "resources/unsubscribe", uri)
		done()
		if errors.Is(err, context.DeadlineExceeded) {
			return
		}
	}
}

// watchOne counts a call of Listen that begins or ends to watch a resource. It sends method to
// the server if no other call watches the resource. Only the goroutine that has the turn counts
// and sends, so that the server gets these requests in the right order.
func (conn *connection) watchOne(ctx context.Context, method, uri string) error {
	select {
	case conn.turn <- struct{}{}:
		defer func() { <-conn.turn }()
	case <-ctx.Done():
		return ctx.Err()
	}
	others := conn.watched[uri] // calls of Listen that watch it, beside this one
	if method == "resources/unsubscribe" {
		others--
	}
	if others == 0 {
		delete(conn.watched, uri)
		if err := conn.peer.Call(ctx, method, ResourceParams{uri}, nil); err != nil {
			if ctx.Err() != nil && method == "resources/subscribe" { // the server may have read it
				last, done := context.WithTimeout(context.WithoutCancel(ctx), graceAtEnd)
				defer done()
				_ = conn.peer.Call(last, "resources/unsubscribe", ResourceParams{uri}, nil)
			}
			return err
		}
	}
	if method == "resources/subscribe" {
		conn.watched[uri] = others + 1
	} else if others > 0 {
		conn.watched[uri] = others
	}
	return nil
}

// ==== What both ends share ====

// ---- Versions ----

// versionsOrAll returns versions. If that is empty, it returns all versions there are.
func versionsOrAll(versions []string) []string {
	if len(versions) > 0 {
		return versions
	}
	var all []string
	for _, r := range Revisions {
		all = append(all, r.Version)
	}
	return all
}

// legacyOf returns those of versions that begin with initialize. An empty list stands for all
// versions.
func legacyOf(versions []string) []string {
	return slices.DeleteFunc(slices.Clone(versionsOrAll(versions)), func(v string) bool { return revision(v).Modern })
}

// firstOfEra returns the first of versions that belongs to an era; "": none does.
func firstOfEra(versions []string, modern bool) string {
	for _, v := range versions {
		if rev := revision(v); rev.Version != "" && rev.Modern == modern {
			return v
		}
	}
	return ""
}

// firstModern and firstLegacy return the first of versions of their era; "": there is none.
func firstModern(versions []string) string { return firstOfEra(versions, true) }
func firstLegacy(versions []string) string { return firstOfEra(versions, false) }

// ---- Errors ----

// versionError returns the error for a version that is not served. It lists the versions that
// we serve.
func versionError(versions []string, version string) *Error {
	data, _ := marshal(map[string]any{"supported": versions, "requested": fmt.Sprintf("%.200s", version)})
	return &Error{Code: CodeUnsupportedVersion, Message: "Unsupported protocol version", Data: data}
}

// errorWithVersions returns an error that names our versions. They are also in the message: a
// legacy client shows that, and it may be the only hint that its user gets.
func errorWithVersions(versions []string, code int, reason string) *Error {
	data, _ := marshal(map[string]any{"supported": versions})
	return &Error{Code: code, Message: fmt.Sprintf("%s (versions served: %s)", reason, strings.Join(versions, ", ")), Data: data}
}

// missingMeta returns the error for a request that does not declare a field.
func missingMeta(versions []string, field string) *Error {
	return errorWithVersions(versions, CodeInvalidParams, "Invalid params: _meta lacks "+field)
}

// unknownName returns the error for a name that nothing has. 2026-07-28
// server/tools#error-handling words it "Unknown tool: invalid_tool_name".
func unknownName(kind, name string) *Error {
	if name == "" {
		return InvalidParams("the %s is missing or empty", kind)
	}
	return &Error{Code: CodeInvalidParams, Message: fmt.Sprintf("Unknown %s: %.500s", kind, name)}
}

// encode returns the params as JSON. It does without encoding/json, because that would be a
// third of what an event costs.
func (p ProgressParams) encode() encoded {
	b := append(make([]byte, 0, len(p.ProgressToken)+80), `{"progressToken":`...)
	b = append(b, p.ProgressToken...)
	b = strconv.AppendFloat(append(b, `,"progress":`...), p.Progress, 'f', -1, 64)
	if p.Total != 0 {
		b = strconv.AppendFloat(append(b, `,"total":`...), p.Total, 'f', -1, 64)
	}
	if p.Message != "" {
		b = appendString(append(b, `,"message":`...), p.Message)
	}
	return append(b, '}')
}

// ---- What MCP keeps with a Peer and with an Exchange ----

// metaOnce is what Message.Meta returns. A message keeps it, so that its _meta is read only
// once.
type metaOnce struct {
	meta Meta
	err  error
}

// Meta reads the _meta of a request. If something in it is wrong, Meta returns an *Error, and
// what could be read: the version is known then. The second call returns what the first has
// read. Meta is for one goroutine at a time.
func (m *Message) Meta() (Meta, error) {
	if len(m.Params) == 0 || m.Params[0] != '{' {
		return Meta{}, nil
	}
	if m.parsed == nil {
		once := new(metaOnce)
		once.err = once.meta.decode(m.Params)
		m.parsed = once
	}
	once := m.parsed.(*metaOnce)
	return once.meta, once.err
}

// decode reads the _meta of params.
func (meta *Meta) decode(params json.RawMessage) error {
	var p struct {
		Meta json.RawMessage `json:"_meta,omitempty"`
	}
	switch err := Bind(params, &p); {
	case err != nil:
		return paramsError(err, "param")
	case p.Meta == nil:
		return nil
	case p.Meta[0] != '{':
		return InvalidParams("_meta must be one object")
	}
	err := Bind(p.Meta, meta)
	if meta.ClientInfo != nil {
		meta.ClientInfo.Icons = nil
	}
	_, isToken := parseID(meta.ProgressToken) // which is a string or an integer, as an id is
	switch {
	case err != nil:
		return InvalidParams("_meta: %v", err)
	case meta.ClientInfo != nil && !meta.ClientInfo.isWhole():
		return InvalidParams("_meta: '%s' needs a name and a version", metaClientInfo)
	case meta.ClientCapabilities != nil && meta.ClientCapabilities[0] != '{':
		return InvalidParams("_meta: '%s' has the wrong type", metaCapabilities)
	case meta.LogLevel != nil && *meta.LogLevel == "":
		return unknownName("log level", "")
	case meta.ProgressToken != nil && !isToken:
		return InvalidParams("_meta: 'progressToken' %s", mustBeID)
	}
	return nil
}

// Serve is ServeConn for MCP: it answers the requests of the client at the other end of c until
// that hangs up, or until ctx ends. h is a *Server, or a Handler that passes requests on to
// one. The values of ctx are in the context of each handler.
func Serve(ctx context.Context, c Conn, h Handler, log *slog.Logger) error {
	return serveConn(ctx, c, h, new(mcpProtocol), log)
}

// Open is OpenConn for MCP. It does not find out what the server speaks, and sends no
// initialize: Client does.
func Open(ctx context.Context, c Conn, h Handler, log *slog.Logger) *Peer {
	return openConn(ctx, c, h, new(mcpProtocol), log)
}

// handshake returns what both ends have agreed on.
func (p *Peer) handshake() handshake {
	m := p.protocol.(*mcpProtocol)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.agreed
}

// note changes what is remembered of the handshake.
func (p *Peer) note(change func(*handshake)) {
	m := p.protocol.(*mcpProtocol)
	m.mu.Lock()
	defer m.mu.Unlock()
	change(&m.agreed)
}

// whenEnded sets the function that runs when the conversation ends. It returns false if the
// conversation has ended already. With a function of the context, an idle session would take a
// third more memory.
func (p *Peer) whenEnded(f func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.onEnd = f
	return p.ctx.Err() == nil
}

// expects reports whether a call waits that has this progress token.
func (p *Peer) expects(token ID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.calls {
		if c.token == token {
			return true
		}
	}
	return false
}

// fail ends the call with this id.
func (p *Peer) fail(id ID, err error) {
	if c := p.removeCall(id); c != nil {
		c.response <- &Message{unusable: err}
	}
}

// calling returns the request of ours that has this id; nil: none waits.
func (p *Peer) calling(id ID) *Message {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c := p.calls[id]; c != nil {
		return c.request
	}
	return nil
}

// refuseBatch returns the reason why a batch is not taken at all; "": it is. Only 2025-03-26
// has batches. Its basic/lifecycle says that initialize "MUST NOT be part of a JSON-RPC batch",
// and its transports#sending-messages-to-the-server that a batch has "one or more requests
// and/or notifications", or only responses.
func refuseBatch(in Payload, rev Revision) (reason string) {
	responses := slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Kind() == Response })
	others := slices.ContainsFunc(in.Messages, func(m *Message) bool { return m.Method != "" })
	switch {
	case !rev.Batches:
		return "no batches in " + cmp.Or(rev.Version, "this revision")
	case in.hasRequest("initialize"):
		return "initialize in a batch"
	case responses && others:
		return "requests and responses in one batch"
	}
	return ""
}

// hasRequest reports whether the payload holds a request for method.
func (p Payload) hasRequest(method string) bool {
	return slices.ContainsFunc(p.Messages, func(m *Message) bool { return m.Method == method && m.Kind() == Request })
}

// takeNotification handles cancellations, and drops progress that no call waits for.
func (m *mcpProtocol) takeNotification(x *Exchange) (handled bool) {
	x.newFacts()
	switch x.Request.Method {
	case "notifications/cancelled":
		m.cancel(x)
		return true
	case "notifications/progress":
		var p ProgressParams
		_ = Bind(x.Request.Params, &p)
		token, ok := parseID(p.ProgressToken)
		if !ok || !x.owner.expects(token) {
			x.owner.log.Debug("progress of nothing that we wait for", "params", brief(x.Request.Params))
			return true
		}
	}
	return false
}

// errSubscriptionEnded is the error of subscriptions/listen when the server has ended the
// subscription.
var errSubscriptionEnded = errors.New("the server has ended the subscription")

// CancelledParams are the params of notifications/cancelled. 2025-11-25
// basic/utilities/cancellation.
type CancelledParams struct {
	Reason    string          `json:"reason,omitempty"` // for a log or a user
	RequestID json.RawMessage `json:"requestId"`        // a string or an integer
}

// ProgressParams are the params of notifications/progress. 2025-11-25 basic/utilities/progress.
type ProgressParams struct {
	ProgressToken json.RawMessage `json:"progressToken"` // that of the request
	Progress      float64         `json:"progress"`      // rises with each notification
	Total         float64         `json:"total,omitempty"`
	Message       string          `json:"message,omitempty"` // for users; from 2025-03-26 on
}

// cancel takes in notifications/cancelled. 2025-11-25 basic/utilities/cancellation: one for a
// request that is unknown or finished, and one that is malformed, is ignored; initialize is not
// to be cancelled.
func (m *mcpProtocol) cancel(x *Exchange) {
	var p CancelledParams
	_ = Bind(x.Request.Params, &p)
	id, ok := parseID(p.RequestID)
	if !ok {
		return
	}
	cancelled := x.owner.cancelServed(id) // not initialize, which is exclusive
	switch {
	case cancelled != nil:
		x.owner.log.Debug("cancelled", "method", brief(cancelled.Request.Method), "id", brief(id.String()), "reason", brief(p.Reason))
	case x.owner.weAreClient && x.Revision().Modern:
		// 2026-07-28 basic/patterns/cancellation: that of a server "MUST reference a
		// subscriptions/listen request, to terminate that subscription stream"
		if call := x.owner.calling(id); call != nil && call.Method == "subscriptions/listen" {
			x.owner.fail(id, errSubscriptionEnded)
		}
	}
}

// abandoned returns the notifications/cancelled for a call. 2025-11-25
// basic/utilities/cancellation: "The initialize request MUST NOT be cancelled by clients". A
// server/discover that takes too long is followed by initialize, and not cancelled either.
func (m *mcpProtocol) abandoned(call *Message, why error) *Message {
	if call.Method == "initialize" || call.Method == "server/discover" {
		return nil
	}
	cancelled, _ := NewRequest(ID{}, "notifications/cancelled", CancelledParams{Reason: why.Error(), RequestID: json.RawMessage(call.ID.text)})
	return cancelled
}

// ==== Bounds and protection ====

const (
	maxHandshake = 1 << 20 // bytes of what a server says of itself: its lists may take 25 times as many in Go
	maxSaid      = 4 << 10 // bytes of what a legacy client says about itself: 10,000 sessions keep 40 MB of it at most
	maxIcons     = 16      // of an Implementation: an icon of two bytes takes 56 in Go
	maxMembers   = 1024    // of an object whose names are not known: a member of six bytes takes 70 in Go

	// Subscriptions. A client that watches 600 files of usual names has 64 KiB.
	maxListeners  = 4096     // subscriptions of one HTTP handler, or of one Server: each keeps a goroutine
	maxWatching   = 64 << 10 // bytes of what one legacy client watches, or of the params of one subscriptions/listen, with perURI for each URI
	perURI        = 100      // bytes that each of these URIs costs beside its text
	maxRemembered = 32 << 20 // bytes of all these URIs and requests of one Server
)

// iconList reads at most maxIcons icons, and no error: they are for display only.
type iconList []Icon

// UnmarshalJSON reads a list of icons.
func (list *iconList) UnmarshalJSON(text []byte) error {
	*list = nil
	if text[0] != '[' {
		return nil
	}
	for _, value := range Each(text) {
		var icon Icon
		if json.Unmarshal(value, &icon) == nil {
			*list = append(*list, icon)
		}
		if len(*list) == maxIcons {
			break
		}
	}
	return nil
}

// ---- requestState: what a modern client keeps for a server ----

// A requestState is sealed with AES-GCM: a client can neither read nor change it. It is Base64
// of a random nonce and the sealed bytes:
//
//	nonce, 12 bytes | encrypted: expiry, 8 bytes; digest of the params, 32 bytes; State | tag, 16 bytes
//
// The tag also covers the method and the principal. 2026-07-28 basic/patterns/mrtr: a state
// "MUST protect its integrity", and SHOULD be bound to the principal, an expiry and the
// original request.
//
// The nonces are random, so a key is good for 2^32 states. An older version of mcpwire has
// signed its states: replicas of that version and of this one refuse the states of each other.

// newSealer returns the cipher for a key of any length. Empty: a random one. The label makes it
// another key than any that a program derives from the same secret.
func newSealer(key []byte) cipher.AEAD {
	if len(key) == 0 {
		key = []byte(rand.Text())
	}
	derived := hmac.New(sha256.New, key)
	derived.Write([]byte("mcpwire requestState"))
	block, _ := aes.NewCipher(derived.Sum(nil)) // 32 bytes are a key
	sealer, _ := cipher.NewGCMWithRandomNonce(block)
	return sealer
}

// seal makes a requestState.
func (s *Server) seal(x *Exchange, state string, expiry time.Time) string {
	text := binary.BigEndian.AppendUint64(nil, uint64(expiry.Unix()))
	text = append(append(text, digest(x.Request.Params)...), state...)
	return base64.RawURLEncoding.EncodeToString(s.sealer.Seal(nil, nil, text, sealedFor(x)))
}

// unseal reads a requestState into Exchange.State. It digests the params last, because that is
// not cheap: by then the rest is known to be ours.
func (s *Server) unseal(x *Exchange, sealed string) error {
	const head = 8 + sha256.Size // bytes of expiry and digest
	raw, _ := base64.RawURLEncoding.DecodeString(sealed)
	text, err := s.sealer.Open(nil, nil, raw, sealedFor(x))
	switch {
	case err != nil || len(text) < head:
		return InvalidParams("requestState is not ours, or not for this request")
	case time.Now().Unix() > int64(binary.BigEndian.Uint64(text)):
		return InvalidParams("requestState has expired")
	case !bytes.Equal(text[8:head], digest(x.Request.Params)):
		return InvalidParams("requestState is not for these params")
	}
	x.facts().inputState = string(text[head:])
	return nil
}

// sealedFor returns the method and the principal of a request. They are quoted, so that
// different ones never give the same bytes.
func sealedFor(x *Exchange) []byte { return fmt.Appendf(nil, "%q%q", x.Request.Method, x.Principal) }

// digest returns a hash of the params without _meta and RetryParams. It does not depend on the
// order of the other members: a client may write its RetryParams among them. What is in these
// members must be the same to the byte.
func digest(params json.RawMessage) []byte {
	var members []string
	for name, value := range Each(params) {
		if !slices.Contains([]string{"_meta", "inputResponses", "requestState"}, string(name)) {
			nameSum, valueSum := sha256.Sum256(name), sha256.Sum256(value)
			members = append(members, string(nameSum[:])+string(valueSum[:])) // all have one length, so different ones never give the same text
		}
	}
	slices.Sort(members)
	sum := sha256.Sum256([]byte(strings.Join(members, "")))
	return sum[:]
}

// ---- Marks: arguments that HTTP repeats in its header ----
//
// A mark is x-mcp-header in a tool's schema: over HTTP the argument is repeated in the header.

const (
	maxMarked   = 4 << 20 // bytes of schemas whose marks are remembered
	maxReported = 16      // tools that are left out of one list and reported
)

// ToolMarks remembers which arguments of a server's tools are marked with x-mcp-header. A
// Client has one for each connection. It learns marks from the results of tools/list, and
// travels in the context of Conn.Write, through whatever wraps the Conn:
//
//	Client ── requests, context with ToolMarks ──→ Conn of HTTPDialer: asks for the marks
//	   └─ Learn ←── the result of tools/list ────────┘                 of the tool
//
// A program that passes messages on from one Conn to another needs a ToolMarks of its own. The
// zero ToolMarks knows no tool. Any number of goroutines may use it.
type ToolMarks struct {
	mu     sync.Mutex                                          // guards the fields below
	read   func(schema json.RawMessage) ([]HeaderParam, error) // from the Conn that repeats arguments; nil: none has asked for marks
	marked map[string]markedTool
	size   int // bytes of all schemas in marked
}

// markedTool is a tool that has marks.
type markedTool struct {
	params []HeaderParam
	size   int // bytes of its schema, about as many as the params need
}

// marksKey is the key of a ToolMarks in a context.
type marksKey struct{}

// In returns the context for a Conn.Write.
func (t *ToolMarks) In(ctx context.Context) context.Context {
	return context.WithValue(ctx, marksKey{}, t)
}

// marksIn returns the marked arguments of a tool. A Conn that repeats them asks for them with
// each modern request, also if that calls no tool. read reads them from a schema.
func marksIn(ctx context.Context, tool string, read func(json.RawMessage) ([]HeaderParam, error)) []HeaderParam {
	t, _ := ctx.Value(marksKey{}).(*ToolMarks)
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.read = read
	return t.marked[tool].params
}

// Learn reads the result of tools/list. It returns the result without the tools whose marks are
// invalid, and says what is wrong with the first of these. If no Conn has asked for marks, as
// over stdio, Learn does nothing. 2026-07-28 basic/transports/streamable-http#schema-extension:
// clients "MUST exclude the invalid tool from the result of tools/list".
func (t *ToolMarks) Learn(result json.RawMessage) (valid json.RawMessage, reports []error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tools := member(result, "tools")
	isList := len(tools) > 0 && tools[0] == '[' // or the caller of tools/list finds out what is wrong
	if t.read == nil || !isList {
		return result, nil
	}
	kept := append(make([]byte, 0, len(tools)), '[')
	for _, tool := range Each(tools) {
		name := unquote(member(tool, "name"))
		if invalid := t.learnTool(name, member(tool, "inputSchema")); invalid == nil {
			kept = append(append(kept, tool...), ',')
		} else if len(reports) < maxReported {
			reports = append(reports, fmt.Errorf("a tool whose x-mcp-header is invalid is left out: %.100q: %w", name, invalid))
		}
	}
	if reports == nil {
		return result, nil
	}
	var rest Object
	rest.AddAll(result, "tools")
	rest.Add("tools", append(bytes.TrimSuffix(kept, []byte(",")), ']'))
	return rest.JSON(), reports
}

// learnTool replaces what is remembered of a tool. Beyond maxMarked, nothing is. The caller
// holds mu.
func (t *ToolMarks) learnTool(name string, schema json.RawMessage) (invalid error) {
	t.size -= t.marked[name].size
	delete(t.marked, name)
	if !bytes.Contains(schema, []byte("x-mcp-header")) { // as most
		return nil
	}
	params, invalid := t.read(schema)
	size := len(name) + len(schema)
	if len(params) == 0 || t.size+size > maxMarked {
		return invalid
	}
	if t.marked == nil {
		t.marked = map[string]markedTool{}
	}
	t.size += size
	t.marked[name] = markedTool{params, size}
	return nil
}

// lookup follows a path of member names into an object; nil: there is nothing.
func lookup(object json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		object = member(object, name)
	}
	return object
}
