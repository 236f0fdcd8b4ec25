// SPDX-License-Identifier: 0BSD
// session.go of mcpwire 0.3.0, an implementation of the Model Context Protocol that you copy.

package main

// MCP itself: the revisions, a Server with what it offers, and a Client. How messages travel is
// in the other files, also what a server remembers of a client over HTTP (sse.go): so three files
// make a server on stdio.
//
// There are two eras. In the legacy era a session begins with a handshake, and is remembered. In
// the modern era each request says the same in its _meta, and nothing is remembered:
//
//	> {"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},…}}
//	< {"id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{…}}}
//	> {"method":"notifications/initialized"}
//	> {"id":2,"method":"tools/call","params":{"name":"add","arguments":{"a":1,"b":2}}}
//	< {"id":2,"result":{"content":[{"type":"text","text":"3"}]}}
//
//	> {"id":1,"method":"tools/call","params":{"name":"add","arguments":{…},"_meta":{
//	    "io.modelcontextprotocol/protocolVersion":"2026-07-28",
//	    "io.modelcontextprotocol/clientCapabilities":{}}}}
//	< {"id":1,"result":{"resultType":"complete","content":[…],…}}
//
// What to read first: see "The five files" in testdata/README.md of mcpwire. In this file, s is a Server,
// c a Client, n a connection of a Client, x an Exchange, and p a Peer.
//
// Server.mu guards who has subscribed, and what was agreed on with a client. It is not held while a
// handler runs or a message is written.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// ==== The wire ====

// ---- Revisions ----

// Revision is one version of the protocol: what a program has to know about it.
type Revision struct {
	Version       string
	Modern        bool // each request says version and capabilities itself; there is no handshake
	Batches       bool // several messages may travel in one JSON array
	Elicitation   bool // there are questions to the user
	VersionHeader bool // over HTTP, a client repeats the version in a header
	Resume        bool // over HTTP, Last-Event-ID continues a stream
	Polling       bool // over HTTP, a stream begins with an event that has only an id, and may be broken off
}

// Revisions are all versions, the newest first.
var Revisions = []Revision{
	{Version: "2026-07-28", Modern: true, Elicitation: true, VersionHeader: true},
	{Version: "2025-11-25", Elicitation: true, VersionHeader: true, Resume: true, Polling: true},
	{Version: "2025-06-18", Elicitation: true, VersionHeader: true, Resume: true},
	{Version: "2025-03-26", Batches: true, Resume: true},
	{Version: "2024-11-05"},
}

// revision returns the Revision of a version. For an unknown version it is the zero Revision, which
// has no Version.
func revision(version string) Revision {
	for _, r := range Revisions {
		if r.Version == version {
			return r
		}
	}
	return Revision{}
}

// offered returns the versions that one end offers, the newest first: those in list that isWanted
// accepts. An empty list stands for all versions. The three functions below are the usual isWanted:
// offered(list, isLegacy) are the versions of the legacy era in list.
func offered(list []string, isWanted func(Revision) bool) (versions []string) {
	for _, r := range Revisions {
		if isWanted(r) && (len(list) == 0 || slices.Contains(list, r.Version)) {
			versions = append(versions, r.Version)
		}
	}
	return versions
}

func isAny(Revision) bool      { return true }
func isModern(r Revision) bool { return r.Modern }
func isLegacy(r Revision) bool { return !r.Modern }

// The error codes of MCP.
const (
	CodeResourceNotFound   = -32002 // in the legacy era; in the modern one it is CodeInvalidParams
	CodeHeaderMismatch     = -32020 // an HTTP header does not say what the body says
	CodeMissingCapability  = -32021 // the client cannot do what the call needs
	CodeUnsupportedVersion = -32022
)

// is reports whether there is an error, and it has this code.
func (e *Error) is(code int) bool { return e != nil && e.Code == code }

// isOfModernServers reports whether there is an error, and only servers of the modern era send it.
func (e *Error) isOfModernServers() bool {
	return e != nil && e.Code <= CodeHeaderMismatch && e.Code >= CodeUnsupportedVersion
}

// unsupported returns the Error for a version that list does not offer. A server without the modern
// era must not send the code of that era. A client that gets it takes the server for a modern one,
// and does not try initialize (2026-07-28 basic/versioning).
func unsupported(version string, list []string) *Error {
	requested := fmt.Sprintf("%.100s", version)
	data, _ := encode(map[string]any{"supported": offered(list, isAny), "requested": requested})
	code := CodeUnsupportedVersion
	if len(offered(list, isModern)) == 0 {
		code = CodeInvalidRequest
	}
	return &Error{Code: code, Message: "Unsupported protocol version", Data: data}
}

// ---- What both ends say about themselves ----

// Implementation names the software at one end.
type Implementation struct {
	Name    string `json:"name"`
	Title   string `json:"title,omitempty"`
	Version string `json:"version"`
	Icons   []Icon `json:"icons,omitempty"`
}

// Icon is a picture for a user interface.
type Icon struct {
	Src      string   `json:"src"` // a URL, https: or data:
	MimeType string   `json:"mimeType,omitempty"`
	Sizes    []string `json:"sizes,omitempty"` // such as "48x48"
}

// The keys of _meta that the protocol has defined (2026-07-28 basic#meta).
const (
	metaVersion      = "io.modelcontextprotocol/protocolVersion"
	metaCapabilities = "io.modelcontextprotocol/clientCapabilities"
	metaServerInfo   = "io.modelcontextprotocol/serverInfo"
	metaSubscription = "io.modelcontextprotocol/subscriptionId"
)

// Meta is what a client says about itself and its request: a modern one in the _meta of each
// request, a legacy one in initialize and logging/setLevel.
type Meta struct {
	ProtocolVersion    string          `json:"io.modelcontextprotocol/protocolVersion,omitempty"`
	ClientInfo         json.RawMessage `json:"io.modelcontextprotocol/clientInfo,omitempty"` // an Implementation
	ClientCapabilities json.RawMessage `json:"io.modelcontextprotocol/clientCapabilities,omitempty"`
	LogLevel           *string         `json:"io.modelcontextprotocol/logLevel,omitempty"` // nil: none was named
	ProgressToken      json.RawMessage `json:"progressToken,omitempty"`                    // a string or an integer
}

// Meta reads the _meta of a message.
func (m *Message) Meta() (meta Meta, err error) {
	found, repeated := members(m.Params, "_meta")
	switch err := Bind(found[0], &meta); {
	case repeated != "":
		return Meta{}, InvalidParams("Invalid params: two members '_meta'")
	case isAbsent(found[0]):
		return Meta{}, nil
	case err != nil:
		return Meta{}, InvalidParams("Invalid _meta: %v", err)
	}
	if _, ok := parseID(meta.ProgressToken); meta.ProgressToken != nil && !ok || len(meta.ProgressToken) > 1000 {
		return Meta{}, InvalidParams("Invalid _meta: 'progressToken' must be a short string or an integer")
	}
	return meta, nil
}

// InitializeParams are the params of initialize.
type InitializeParams struct {
	ProtocolVersion string          `json:"protocolVersion"`
	Capabilities    json.RawMessage `json:"capabilities"`
	ClientInfo      json.RawMessage `json:"clientInfo,omitempty"` // an Implementation
}

// ServerInfo is what a server says about itself: the result of initialize, or of
// server/discover. In the latter, Info is in _meta.
type ServerInfo struct {
	Versions     []string        `json:"supportedVersions,omitempty"`
	Version      string          `json:"protocolVersion,omitempty"` // as agreed on
	Capabilities json.RawMessage `json:"capabilities,omitempty"`
	Info         *Implementation `json:"serverInfo,omitempty"`
	Instructions string          `json:"instructions,omitempty"` // for the model
}

// ==== The server ====

// ---- One request ----

// Server offers tools, resources and prompts. It is a Handler, and serves any number of clients
// at the same time. Set its fields before the first message; its methods may be called at any
// time, by any goroutine.
type Server struct {
	Info         Implementation
	Instructions string                 // for the model: how to use the server
	Versions     []string               // nil: all
	Methods      map[string]HandlerFunc // further methods, such as completion/complete, and notifications
	Capabilities map[string]any         // declared beside, or in place of, what is offered, by name
	Logging      bool                   // handlers send messages with Exchange.Log
	Announce     []string               // whose changes are announced, to whoever asks: "tools", "resources", "prompts"
	StateKey     []byte                 // seals requestState, the same on all replicas; nil: a random key

	tools     catalog[Tool, toolFunc]
	resources catalog[Resource, ReadFunc]
	templates catalog[ResourceTemplate, func(uri string) ReadFunc]
	prompts   catalog[Prompt, PromptFunc]

	mu          sync.Mutex          // guards the field below, and changes of an agreement
	subscribers map[any]*subscriber // by Peer, or by Exchange
}

// agreement is what initialize has agreed on. A Peer keeps it as its Value. Before initialize, the
// revision is the zero Revision.
type agreement struct {
	revision   Revision
	meta       Meta
	isReady    bool // notifications/initialized has come: the client can be asked, and hears of changes
	legacyOnly bool // HTTP+SSE, which has no modern era
	stateless  bool // the Peer lives for one POST: nothing is remembered, and nothing can be sent later
}

// changeAgreement changes what was agreed on with a Peer. It holds the mutex, because over HTTP two
// requests of one client may change the agreement at the same time.
func (s *Server) changeAgreement(p *Peer, change func(*agreement)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	agreed := agreementOf(p)
	change(&agreed)
	p.Value.Store(agreed)
}

// agreementOf returns what was agreed on with a Peer.
func agreementOf(p *Peer) agreement {
	agreed, _ := p.Value.Load().(agreement)
	return agreed
}

// requestInfo is what a Server knows about a request. An Exchange keeps it as its Value.
type requestInfo struct {
	revision Revision
	meta     Meta
	logLevel *string                    // the lowest level that the client wants; nil: no log messages
	reported *float64                   // the last progress; nil: none was reported
	inputs   map[string]json.RawMessage // the answers to the last InputRequired, by key
	state    string                     // the State of the last InputRequired
}

// info returns what is known about the request. About a notification nothing is known: the result is
// empty.
func (x *Exchange) info() *requestInfo {
	info, _ := x.Value.(*requestInfo)
	return cmp.Or(info, &requestInfo{})
}

// Meta returns what the client says about itself and the request.
func (x *Exchange) Meta() Meta { return x.info().meta }

// Revision returns the revision of the request.
func (x *Exchange) Revision() Revision { return x.info().revision }

// method is how a Server serves a method: one row of the table methods.
type method struct {
	era     func(Revision) bool // the revisions that have it: isLegacy, isModern or isAny
	needs   string              // the capability without which there is no such method; "": none
	mayKeep bool                // a modern result says how long the client may keep it
	serve   methodFunc
}

// methodFunc serves a method. Its first parameter is the receiver of a method of Server.
type methodFunc func(s *Server, ctx context.Context, x *Exchange) (any, error)

// bound makes a methodFunc of a method of Server that takes the params as a struct.
func bound[P any](serve func(s *Server, ctx context.Context, x *Exchange, params P) (any, error)) methodFunc {
	return func(s *Server, ctx context.Context, x *Exchange) (any, error) {
		var params P
		if err := x.Bind(&params); err != nil {
			return nil, err
		}
		return serve(s, ctx, x, params)
	}
}

// methods are all methods that a Server serves itself. (*Server).ping is the method ping as a function
// whose first parameter is the Server. bound((*Server).listTools) is a function that reads the params
// into a struct, and then calls listTools.
var methods = map[string]method{
	"initialize":            {era: isLegacy, serve: bound((*Server).initialize)},
	"ping":                  {era: isLegacy, serve: (*Server).ping},
	"logging/setLevel":      {era: isLegacy, needs: "logging", serve: bound((*Server).setLevel)},
	"resources/subscribe":   {era: isLegacy, needs: "resources", serve: bound((*Server).subscribe)},
	"resources/unsubscribe": {era: isLegacy, needs: "resources", serve: bound((*Server).subscribe)},

	"server/discover":      {era: isModern, mayKeep: true, serve: (*Server).discover},
	"subscriptions/listen": {era: isModern, serve: bound((*Server).listen)},

	"tools/list":               {era: isAny, needs: "tools", mayKeep: true, serve: bound((*Server).listTools)},
	"tools/call":               {era: isAny, needs: "tools", serve: bound((*Server).callTool)},
	"resources/list":           {era: isAny, needs: "resources", mayKeep: true, serve: bound((*Server).listResources)},
	"resources/templates/list": {era: isAny, needs: "resources", mayKeep: true, serve: bound((*Server).listTemplates)},
	"resources/read":           {era: isAny, needs: "resources", mayKeep: true, serve: bound((*Server).readResource)},
	"prompts/list":             {era: isAny, needs: "prompts", mayKeep: true, serve: bound((*Server).listPrompts)},
	"prompts/get":              {era: isAny, needs: "prompts", serve: bound((*Server).getPrompt)},
}

// Handle serves a message of a client. A function in Methods comes before the method of this name in
// the table. Most notifications need nothing from a Server.
func (s *Server) Handle(ctx context.Context, x *Exchange) (result any, err error) {
	name := x.Request.Method
	own, row := s.Methods[name], methods[name]
	if x.Request.Kind() == KindNotification {
		if name == "notifications/initialized" {
			s.setReady(x.Peer)
		}
		if own == nil {
			return nil, nil
		}
		return own(ctx, x)
	}
	if err := s.chooseRevision(x); err != nil {
		return nil, err
	}
	switch {
	case own != nil:
		result, err = s.withInput(ctx, x, func() (any, error) { return own(ctx, x) })
	case row.serve != nil && row.era(x.Revision()) && s.offers(row.needs):
		result, err = row.serve(s, ctx, x)
	default:
		return nil, MethodNotFound(name)
	}
	if err != nil || !x.Revision().Modern {
		return result, err
	}
	return s.modernResult(name, result, row.mayKeep)
}

// chooseRevision decides which revision a request belongs to, and notes what the client says about
// itself:
//
//	_meta names a modern version              that version; nothing is remembered
//	_meta names an unknown version            an error
//	initialize was called                     the version that was agreed on
//	this is initialize, or ping               the legacy era, without a version yet
//	anything else                             an error: the version is not known
//
// A legacy version in _meta means nothing: that era has no such key.
func (s *Server) chooseRevision(x *Exchange) error {
	meta, err := x.Request.Meta()
	if err != nil {
		return err
	}
	agreed, method, named := agreementOf(x.Peer), x.Request.Method, revision(meta.ProtocolVersion)
	namesLegacy := named.Version != "" && !named.Modern
	needsNoVersion := method == "initialize" || method == "ping" && len(offered(s.Versions, isLegacy)) > 0
	switch {
	case meta.ProtocolVersion != "" && !namesLegacy:
		return s.useMeta(x, meta, agreed.legacyOnly)
	case agreed.revision.Version != "" || needsNoVersion:
		x.canAsk = agreed.isReady
		agreed.meta.ProgressToken = meta.ProgressToken // the only thing that a legacy request says in _meta
		info := &requestInfo{revision: agreed.revision, meta: agreed.meta}
		if s.Logging && !agreed.stateless {
			info.logLevel = agreed.meta.LogLevel
			if info.logLevel == nil {
				info.logLevel = new("info") // until the client sets a level
			}
		}
		x.Value = info
		return nil
	}
	return withVersions(InvalidParams("_meta lacks %s, and initialize has not been called", metaVersion), s.Versions)
}

// useMeta makes x a request of the modern era: all that is known about the client is in _meta.
func (s *Server) useMeta(x *Exchange, meta Meta, legacyOnly bool) error {
	x.canAsk = false // a modern server sends no requests: its result asks

	// There are no modern batches: over HTTP, the header repeats the version of one message.
	if legacyOnly || x.inBatch {
		return unsupported(meta.ProtocolVersion, offered(s.Versions, isLegacy))
	}
	if !slices.Contains(offered(s.Versions, isModern), meta.ProtocolVersion) {
		return unsupported(meta.ProtocolVersion, s.Versions)
	}
	info := &requestInfo{revision: revision(meta.ProtocolVersion), meta: meta}
	if s.Logging {
		info.logLevel = meta.LogLevel
	}
	x.Value = info
	return checkModern(meta, s.Versions)
}

// checkModern returns an error if the _meta of a modern request lacks something.
func checkModern(meta Meta, versions []string) error {
	switch {
	case meta.ProtocolVersion == "":
		return withVersions(InvalidParams("_meta lacks %s", metaVersion), versions)
	case len(meta.ClientCapabilities) == 0 || meta.ClientCapabilities[0] != '{':
		return withVersions(InvalidParams("_meta lacks an object %s", metaCapabilities), versions)
	case meta.LogLevel != nil && !slices.Contains(logLevels, *meta.LogLevel):
		return InvalidParams("Unknown level: %.100s", *meta.LogLevel)
	}
	return nil
}

// withVersions names the versions in an error, for a client that has to find out
// (2026-07-28 basic/versioning).
func withVersions(fault *Error, versions []string) *Error {
	fault.Data, _ = encode(map[string]any{"supported": offered(versions, isAny)})
	return fault
}

// modernResult adds what each result of the modern era says about itself: before the result its
// type, and how long it may be kept; after it, in _meta, the server (2026-07-28
// basic#result-responses).
func (s *Server) modernResult(method string, result any, mayKeep bool) (any, error) {
	text, err := encodeResult(result)
	if err != nil {
		return nil, err
	}
	prefix := `{"resultType":"complete"}`
	if _, asks := result.(InputRequired); asks {
		prefix = `{"resultType":"input_required"}`
	} else if mayKeep {
		prefix = `{"resultType":"complete","ttlMs":0,"cacheScope":"private"}`
	}
	info := s.Info
	if method != "server/discover" {
		info.Icons = nil // they are large, and the client knows them from server/discover
	}
	about, _ := encode(map[string]Implementation{metaServerInfo: info}) // strings can always be encoded
	meta := merge(member(text, "_meta"), about)
	return merge(json.RawMessage(prefix), text, json.RawMessage(`{"_meta":`+string(meta)+`}`)), nil
}

// ---- Opening ----

// maxHandshake is how many bytes of an initialize are remembered.
const maxHandshake = 16 << 10

// initialize agrees with a legacy client on a revision: the one that it names, or else our newest
// (2025-11-25 basic/lifecycle#version-negotiation). A second initialize agrees anew.
func (s *Server) initialize(_ context.Context, x *Exchange, params InitializeParams) (any, error) {
	if params.Capabilities[0] != '{' || len(params.Capabilities)+len(params.ClientInfo) > maxHandshake {
		return nil, InvalidParams("Invalid params: 'capabilities' must be an object, and not too large")
	}
	legacy := offered(s.Versions, isLegacy)
	if len(legacy) == 0 {
		return nil, unsupported(params.ProtocolVersion, s.Versions)
	}
	version := legacy[0]
	if slices.Contains(legacy, params.ProtocolVersion) {
		version = params.ProtocolVersion
	}
	meta := Meta{ProtocolVersion: version, ClientInfo: bytes.Clone(params.ClientInfo)}
	meta.ClientCapabilities = bytes.Clone(params.Capabilities) // or the whole message would stay in memory
	stateless := agreementOf(x.Peer).stateless
	s.changeAgreement(x.Peer, func(a *agreement) { a.revision, a.meta, a.isReady = revision(version), meta, false })
	x.Peer.AllowBatches.Store(revision(version).Batches)
	declared, err := encode(s.capabilities(stateless))
	return ServerInfo{Version: version, Capabilities: declared, Info: &s.Info, Instructions: s.Instructions}, err
}

// discover serves server/discover: it says what a modern client can use.
func (s *Server) discover(context.Context, *Exchange) (any, error) {
	declared, err := encode(s.capabilities(false))
	return ServerInfo{Versions: offered(s.Versions, isAny), Capabilities: declared, Instructions: s.Instructions}, err
}

func (s *Server) ping(context.Context, *Exchange) (any, error) { return nil, nil }

// offers reports whether the server has a capability: there is something of this kind, such as a tool,
// there may be some later, or it is declared all the same. "" stands for no capability at all, which
// every server has.
func (s *Server) offers(capability string) bool {
	return capability == "" || s.Capabilities[capability] != nil || s.announces(capability) ||
		capability == "tools" && !s.tools.isEmpty() ||
		capability == "resources" && !(s.resources.isEmpty() && s.templates.isEmpty()) ||
		capability == "prompts" && !s.prompts.isEmpty() ||
		capability == "logging" && s.Logging
}

// capabilities returns what the server declares. Without a session, a server remembers no log level,
// and has no stream for what belongs to no request: no change can be announced.
func (s *Server) capabilities(stateless bool) map[string]any {
	declared := map[string]any{}
	for _, name := range []string{"tools", "resources", "prompts", "logging"} {
		if !s.offers(name) || stateless && name == "logging" {
			continue
		}
		parts := map[string]any{}
		if !stateless && s.announces(name) {
			parts["listChanged"] = true
			if name == "resources" {
				parts["subscribe"] = true
			}
		}
		declared[name] = parts
	}
	maps.Copy(declared, s.Capabilities)
	return declared
}

// announces reports whether clients are told of changes of a kind, such as "tools".
func (s *Server) announces(kind string) bool { return slices.Contains(s.Announce, kind) }

// ---- A tool, and its progress ----

// Tool is what clients learn about a tool.
type Tool struct {
	Name         string           `json:"name"`                   // the key; for programs
	Title        string           `json:"title,omitempty"`        // for users
	Description  string           `json:"description,omitempty"`  // for the model
	InputSchema  json.RawMessage  `json:"inputSchema"`            // JSON Schema of the arguments; nil: any object
	OutputSchema json.RawMessage  `json:"outputSchema,omitempty"` // of the structured content
	Annotations  *ToolAnnotations `json:"annotations,omitempty"`
	Icons        []Icon           `json:"icons,omitempty"`
	Meta         json.RawMessage  `json:"_meta,omitempty"`
}

// ToolAnnotations say what a tool does to the world. They are hints, which a client must not trust
// unless it trusts the server (2025-11-25 server/tools#tool).
type ToolAnnotations struct {
	ReadOnly    bool `json:"readOnlyHint"`    // it changes nothing
	Destructive bool `json:"destructiveHint"` // it may delete or overwrite
	Idempotent  bool `json:"idempotentHint"`  // a second call with the same arguments changes nothing more
	OpenWorld   bool `json:"openWorldHint"`   // it reaches things outside, such as the web
}

// CallToolParams are the params of tools/call.
type CallToolParams struct {
	Name      string `json:"name"`
	Arguments any    `json:"arguments,omitempty"`
}

// ToolResult is the result of tools/call.
type ToolResult struct {
	Content           []Content       `json:"content"`
	StructuredContent json.RawMessage `json:"structuredContent,omitempty"` // an object, for programs
	IsError           bool            `json:"isError,omitempty"`           // the tool has failed; Content says why
	Meta              any             `json:"_meta,omitempty"`             // keys of your own, such as example.com/key
}

// size returns how many bytes the parts have that may be large: see encodeResult.
func (r ToolResult) size() (n int) {
	for _, part := range r.Content {
		n += len(part.Text) + len(part.Data)
	}
	return n + len(r.StructuredContent)
}

// ToolError returns the result of a tool that has failed, for the model to read.
func ToolError(format string, args ...any) ToolResult {
	return ToolResult{Content: []Content{TextContent(fmt.Sprintf(format, args...))}, IsError: true}
}

// Text returns the texts of the result, one a line. Other contents are told by their type.
func (r ToolResult) Text() string {
	var texts []string
	for _, part := range r.Content {
		texts = append(texts, cmp.Or(part.Text, "("+part.Type+")"))
	}
	return strings.Join(texts, "\n")
}

type toolFunc func(ctx context.Context, x *Exchange, arguments json.RawMessage) (any, error)

// AddTool offers a tool, or replaces the one of this name. Calls of it run at the same time.
//
// Its arguments are read into an A, as Bind does: a struct without embedded ones. The schema is for the
// client: arguments are not compared with it here. What run returns becomes the answer of the request:
//
//	a string, a Content, a ToolResult   the result
//	an InputRequired                    questions to the user, and run is called again
//	anything else                       the result; it must be a JSON object, for StructuredContent
//	an *Error                           the error of the request
//	any other error                     a result with IsError, whose text the model reads
//
// AddTool panics if the schema is no JSON, or has wrong marks for the header.
func AddTool[A any](s *Server, t Tool, run func(ctx context.Context, x *Exchange, arguments A) (any, error)) {
	if t.InputSchema == nil {
		t.InputSchema = json.RawMessage(`{"type":"object"}`)
	}
	t.InputSchema = bytes.TrimSpace(t.InputSchema)
	if _, err := ReadHeaderParams(t.InputSchema); err != nil || !json.Valid(t.InputSchema) {
		panic(fmt.Sprintf("the schema of the tool %s is wrong: %v", t.Name, err))
	}
	call := func(ctx context.Context, x *Exchange, text json.RawMessage) (any, error) {
		var arguments A
		if text == nil {
			text = json.RawMessage("{}")
		}
		if err := bind(text, &arguments, "argument"); err != nil {
			reason := err.Error()
			return ToolError("%s", strings.ToUpper(reason[:1])+reason[1:]), nil // the model reads a sentence
		}
		return run(ctx, x, arguments)
	}
	s.tools.add(s, "tools", t.Name, t, call)
}

// RemoveTool takes a tool back.
func (s *Server) RemoveTool(name string) { s.tools.remove(s, "tools", name) }

// callToolParams are CallToolParams as a server reads them.
type callToolParams struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

// callTool serves tools/call. Legacy clients do not know the code CodeMissingCapability: there, the
// model reads that the call cannot be made.
func (s *Server) callTool(ctx context.Context, x *Exchange, params callToolParams) (any, error) {
	tool, ok := s.tools.find(params.Name)
	if !ok {
		return nil, InvalidParams("Unknown tool: %.100s", params.Name)
	}
	result, err := s.withInput(ctx, x, func() (any, error) { return tool.run(ctx, x, params.Arguments) })
	fault, _ := errors.AsType[*Error](err)
	switch {
	case err == nil:
		return toolResult(result)
	case fault == nil, fault.is(CodeMissingCapability) && !x.Revision().Modern:
		return ToolError("%v", err), nil
	}
	return nil, fault
}

// toolResult returns what a tool has returned as a ToolResult, or as it is if it asks for input.
func toolResult(result any) (any, error) {
	switch r := result.(type) {
	case nil:
		return ToolResult{Content: []Content{}}, nil
	case string:
		return ToolResult{Content: []Content{TextContent(r)}}, nil
	case Content:
		return ToolResult{Content: []Content{r}}, nil
	case ToolResult:
		if r.Content == nil {
			r.Content = []Content{}
		}
		return r, nil
	case *ToolResult:
		return toolResult(*r)
	case InputRequired:
		return r, nil
	}
	text, err := encode(result)
	if err == nil && text[0] != '{' {
		return nil, fmt.Errorf("the result of the tool is no object: %T", result)
	}
	return ToolResult{Content: []Content{TextContent(string(text))}, StructuredContent: text}, err
}

// Progress reports how far the request is, if the client wants that: of a total, or 0, and with a
// text for users, or "". Progress that does not rise is not sent (2025-11-25
// basic/utilities/progress#progress-flow). The error is that of ctx if it has ended.
func (x *Exchange) Progress(ctx context.Context, progress, total float64, message string) error {
	info := x.info()
	if info.meta.ProgressToken == nil || info.reported != nil && progress <= *info.reported {
		return ctx.Err()
	}
	info.reported = &progress
	return x.Notify(ctx, "notifications/progress", ProgressParams{info.meta.ProgressToken, progress, total, message})
}

var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Log sends a log message about the request, if the server has Logging and the level is wanted: a
// modern request names a level; a legacy client has set one, or gets info and above.
func (x *Exchange) Log(ctx context.Context, level string, data any) error {
	least := x.info().logLevel
	if least == nil || slices.Index(logLevels, level) < slices.Index(logLevels, *least) {
		return nil
	}
	return x.Notify(ctx, "notifications/message", map[string]any{"level": level, "data": data})
}

// SetLevelParams are the params of logging/setLevel.
type SetLevelParams struct {
	Level string `json:"level"`
}

// setLevel serves logging/setLevel. Without a session, the server could not remember the level.
func (s *Server) setLevel(_ context.Context, x *Exchange, params SetLevelParams) (any, error) {
	switch {
	case agreementOf(x.Peer).stateless:
		return nil, MethodNotFound(x.Request.Method)
	case !slices.Contains(logLevels, params.Level):
		return nil, InvalidParams("Unknown level: %.100s", params.Level)
	}
	s.changeAgreement(x.Peer, func(a *agreement) { a.meta.LogLevel = &params.Level })
	return nil, nil
}

// Require returns an error unless the client has declared the capabilities, such as "sampling"
// or "elicitation.url". The error names all those that are lacking, as the client would declare
// them: {"elicitation":{"url":{}}}.
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
	data, _ := encode(map[string]any{"requiredCapabilities": missing})
	names := strings.Join(slices.Sorted(maps.Keys(missing)), ", ")
	return &Error{Code: CodeMissingCapability, Message: "The client lacks " + names, Data: data}
}

// hasCapability reports whether the client has declared a capability, and this part of it, if part
// is not "". Of elicitation the part "form" is declared, too, if there is neither "form" nor "url":
// 2025-06-18 has only forms, and no parts.
func (x *Exchange) hasCapability(name, part string) bool {
	declared := member(x.info().meta.ClientCapabilities, name)
	switch {
	case isAbsent(declared), name == "elicitation" && !x.Revision().Elicitation:
		return false
	case part == "":
		return true
	case name == "elicitation" && part == "form":
		return !isAbsent(member(declared, "form")) || isAbsent(member(declared, "url"))
	}
	return !isAbsent(member(declared, part))
}

// ---- Questions to the user ----
//
// A handler returns an InputRequired in place of a result, and runs again, from its beginning, when
// there are answers: what it does before it asks, it does again each time. It is the same handler in both eras:
//
//	legacy: the server asks, and waits     modern: the result asks, and the client calls again
//	> tools/call, id 1                     > tools/call, id 1
//	< elicitation/create, id 1             < result 1: input_required, inputRequests, requestState
//	> result 1: the answer                 > tools/call, id 2: the same, with inputResponses, requestState
//	< result 1                             < result 2

// InputRequired says what a handler needs from the client. A modern server sends it as the result, and
// seals State: the client cannot read it.
type InputRequired struct {
	Requests map[string]InputRequest `json:"inputRequests,omitempty"` // by keys of the handler's choice
	State    string                  `json:"requestState,omitempty"`  // comes back with the answers, within an hour
}

// InputRequest is one question: elicitation/create, sampling/createMessage or roots/list.
type InputRequest struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

// ElicitParams are the params of elicitation/create.
type ElicitParams struct {
	Mode            string          `json:"mode,omitempty"` // form or url; "": form
	Message         string          `json:"message,omitempty"`
	RequestedSchema json.RawMessage `json:"requestedSchema,omitempty"` // of a form
	URL             string          `json:"url,omitempty"`
	ElicitationID   string          `json:"elicitationId,omitempty"` // of a URL
}

// ElicitResult is the result of elicitation/create.
type ElicitResult struct {
	Action  string          `json:"action"` // accept, decline or cancel
	Content json.RawMessage `json:"content,omitempty"`
}

// maxRounds is how often a handler may ask in one call, and maxQuestions how many questions a client
// answers at once, and how many params a modern request may have.
const maxRounds, maxQuestions = 10, 1000

// Inputs returns the answers, by key.
func (x *Exchange) Inputs() map[string]json.RawMessage { return x.info().inputs }

// Input reads the answer with this key into answer. It returns false if there is none, or if it does
// not fit.
func (x *Exchange) Input(key string, answer any) bool {
	text, ok := x.info().inputs[key]
	return ok && Bind(text, answer) == nil
}

// State returns the State of the InputRequired that was answered.
func (x *Exchange) State() string { return x.info().state }

// questions are what a client can be asked, with the capability that it needs for the answer.
var questions = map[string]string{
	"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots",
}

// capability returns the capability that a client must have declared to be asked this, for Require.
func (q InputRequest) capability() string {
	name := questions[q.Method]
	params, _ := encode(q.Params) // if this fails, so does the question itself
	if name == "elicitation" {
		return "elicitation." + cmp.Or(textOf(member(params, "mode")), "form")
	}
	if name == "sampling" && (member(params, "tools") != nil || member(params, "toolChoice") != nil) {
		return "sampling.tools"
	}
	return name
}

// withInput runs a handler until it returns something else than an InputRequired. In the modern era
// that takes several requests of the client: each of them runs the handler once.
func (s *Server) withInput(ctx context.Context, x *Exchange, run func() (any, error)) (any, error) {
	if x.Revision().Modern {
		if err := s.readInput(x); err != nil {
			return nil, err
		}
	}
	for range maxRounds {
		result, err := run()
		if pointer, ok := result.(*InputRequired); ok && pointer != nil {
			result = *pointer
		}
		need, asks := result.(InputRequired)
		if err != nil || !asks {
			return result, err
		}
		if err := x.checkNeed(need); err != nil {
			return nil, err
		}
		if x.Revision().Modern {
			return InputRequired{need.Requests, s.seal(x, need.State)}, nil
		}
		if err := x.ask(ctx, need); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("asked %d times", maxRounds)
}

// checkNeed returns an error if the client cannot be asked this.
func (x *Exchange) checkNeed(need InputRequired) error {
	if len(need.Requests) == 0 && need.State == "" {
		return errors.New("an InputRequired asks nothing")
	}
	var capabilities []string
	for _, question := range need.Requests {
		capabilities = append(capabilities, question.capability())
	}
	return x.Require(capabilities...)
}

// ask asks a legacy client one question after another, and keeps the answers for Input.
func (x *Exchange) ask(ctx context.Context, need InputRequired) error {
	info := x.info()
	info.inputs, info.state = map[string]json.RawMessage{}, need.State
	for _, key := range slices.Sorted(maps.Keys(need.Requests)) {
		var answer json.RawMessage
		question := need.Requests[key]
		if err := x.Call(ctx, question.Method, question.Params, &answer); err != nil {
			return fmt.Errorf("the client cannot answer %s: %w", question.Method, err)
		}
		info.inputs[key] = answer
		x.Peer.held.Add(int64(len(answer))) // as long as the call runs
		context.AfterFunc(x.ctx, func() { x.Peer.held.Add(-int64(len(answer))) })
	}
	return nil
}

// readInput reads the answers of a modern client, which came with its request, and keeps them for
// Input.
func (s *Server) readInput(x *Exchange) error {
	if hasTooMany(x.Request.Params) || hasTooMany(member(x.Request.Params, "inputResponses")) {
		return InvalidParams("Invalid params: more than %d members, or 'inputResponses'", maxQuestions)
	}
	var params struct {
		Responses map[string]json.RawMessage `json:"inputResponses,omitempty"`
		State     string                     `json:"requestState,omitempty"`
	}
	if err := x.Bind(&params); err != nil {
		return err
	}
	state, err := s.unseal(x, params.State)
	x.info().inputs, x.info().state = params.Responses, state
	return err
}

// hasTooMany reports whether an object has more than maxQuestions members: what is made of them needs
// much more memory than their text.
func hasTooMany(object json.RawMessage) bool {
	count := 0
	for range Each(object) {
		count++
	}
	return count > maxQuestions
}

// ---- Announcements ----
//
// A subscriber hears of changes: a legacy client, or a request subscriptions/listen of a modern one.
//
//	Publish ──► the news of each subscriber that wants it ──► sendNews ──► the client
//
// Publish never waits. News wait in a list for each subscriber, which one goroutine sends as long as
// there are any. A newer one takes the place of one about the same list or resource, so the list of a
// slow client stays short.

// ListenFilter says what a client wants to hear of.
type ListenFilter struct {
	PromptsListChanged    bool     `json:"promptsListChanged,omitempty"`
	ResourceSubscriptions []string `json:"resourceSubscriptions,omitempty"` // URIs
	ResourcesListChanged  bool     `json:"resourcesListChanged,omitempty"`
	ToolsListChanged      bool     `json:"toolsListChanged,omitempty"`
}

// ListenParams are the params of subscriptions/listen.
type ListenParams struct {
	Notifications ListenFilter `json:"notifications"`
}

// maxSubscribed is how many bytes the subscriptions of one client may have.
const maxSubscribed = 64 << 10

var errSubscriptions = InvalidParams("More than %d bytes of subscriptions", maxSubscribed)

// isTooLarge reports whether a filter needs more memory than maxSubscribed. Each URI counts 50 bytes
// more than it has.
func (f ListenFilter) isTooLarge() bool {
	return len(strings.Join(f.ResourceSubscriptions, ""))+50*len(f.ResourceSubscriptions) > maxSubscribed
}

// wants reports whether a filter lets a notification pass. uri is that of its resource, or "".
func (f ListenFilter) wants(method, uri string) bool {
	return method == "notifications/tools/list_changed" && f.ToolsListChanged ||
		method == "notifications/prompts/list_changed" && f.PromptsListChanged ||
		method == "notifications/resources/list_changed" && f.ResourcesListChanged ||
		method == "notifications/resources/updated" && slices.Contains(f.ResourceSubscriptions, uri)
}

// subscriber is who hears of changes. Server.mu guards it.
type subscriber struct {
	filter    ListenFilter // what it wants to hear of
	send      func(*Message) error
	news      []*Message // these were not sent to it yet
	isSending bool       // a goroutine runs sendNews
}

// Publish announces a change to all clients that want to hear of it. method is one of the four
// notifications that a ListenFilter knows; no client hears of another.
func (s *Server) Publish(method string, params any) {
	m, err := newMessage(method, params)
	if err != nil {
		return // params cannot be encoded
	}
	uri := textOf(member(m.Params, "uri"))
	isOlder := func(other *Message) bool { return other.Method == method && textOf(member(other.Params, "uri")) == uri }
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscribers {
		if !sub.filter.wants(method, uri) {
			continue
		}
		sub.news = append(slices.DeleteFunc(sub.news, isOlder), m)
		if !sub.isSending {
			sub.isSending = true
			go s.sendNews(sub) // ends when all news are sent
		}
	}
}

// sendNews sends a subscriber its news. The mutex is not held while a message is written.
func (s *Server) sendNews(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(sub.news) > 0 {
		m := sub.news[0]
		sub.news = sub.news[1:]
		s.mu.Unlock()
		_ = sub.send(m) // if that fails, the client has gone
		s.mu.Lock()
	}
	sub.isSending = false
}

// setReady serves notifications/initialized of a legacy client: from now on the client can be asked,
// and hears when a list has changed.
func (s *Server) setReady(p *Peer) {
	agreed := agreementOf(p)
	if agreed.stateless || agreed.revision.Version == "" || agreed.isReady {
		return
	}
	s.changeAgreement(p, func(a *agreement) { a.isReady = true })
	if !s.removeSubscriber(p) { // one may be left of an initialize before the last one
		context.AfterFunc(p.ctx, func() { s.removeSubscriber(p) })
	}
	s.addSubscriber(p, &subscriber{
		filter: ListenFilter{PromptsListChanged: true, ResourcesListChanged: true, ToolsListChanged: true},
		send:   func(m *Message) error { return p.via.send(p.ctx, m) },
	})
	if p.ctx.Err() != nil { // it has ended meanwhile, and its end has found nothing to remove
		s.removeSubscriber(p)
	}
}

// announceList says that a list has changed: "tools", "resources" or "prompts".
func (s *Server) announceList(kind string) {
	if s.announces(kind) {
		s.Publish("notifications/"+kind+"/list_changed", nil)
	}
}

// addSubscriber adds a subscriber. key is the Peer or the Exchange that it belongs to; there is one
// for each key.
func (s *Server) addSubscriber(key any, sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.subscribers, key, sub)
}

// removeSubscriber removes a subscriber, if it is there.
func (s *Server) removeSubscriber(key any) (wasThere bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscribers[key]
	if sub != nil {
		sub.news = nil // so sendNews ends
		delete(s.subscribers, key)
	}
	return sub != nil
}

// subscribe serves resources/subscribe and resources/unsubscribe. It takes the URI out of the filter
// of the client; to subscribe, it then adds the URI, which so is there once.
func (s *Server) subscribe(_ context.Context, x *Exchange, params ResourceParams) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.subscribers[x.Peer]
	if sub == nil || !s.announces("resources") {
		return nil, MethodNotFound(x.Request.Method)
	}
	filter := sub.filter
	isThis := func(uri string) bool { return uri == params.URI }
	filter.ResourceSubscriptions = slices.DeleteFunc(slices.Clone(filter.ResourceSubscriptions), isThis)
	if x.Request.Method == "resources/subscribe" {
		filter.ResourceSubscriptions = append(filter.ResourceSubscriptions, params.URI)
	}
	if filter.isTooLarge() {
		return nil, errSubscriptions
	}
	sub.filter = filter
	return nil, nil
}

// listen serves subscriptions/listen, a request that stays open, and carries the announcements. The
// _meta of each of them names the subscription by the id of the request
// (2026-07-28 basic/patterns/subscriptions).
func (s *Server) listen(ctx context.Context, x *Exchange, params ListenParams) (any, error) {
	if params.Notifications.isTooLarge() {
		return nil, errSubscriptions
	}
	filter := s.announced(params.Notifications)
	accepted, _ := encode(ListenParams{filter}) // strings can always be encoded
	meta, _ := encode(map[string]json.RawMessage{metaSubscription: json.RawMessage(x.Request.ID.text)})
	sub := &subscriber{filter: filter, send: func(m *Message) error {
		return x.Notify(ctx, m.Method, withMeta(m.Params, meta))
	}}
	sub.isSending = true // first the acknowledgement
	s.addSubscriber(x, sub)
	defer s.removeSubscriber(x)
	if err := x.Notify(ctx, "notifications/subscriptions/acknowledged", withMeta(accepted, meta)); err != nil {
		return nil, err
	}
	s.sendNews(sub)
	select {
	case <-x.Ending:
	case <-ctx.Done():
	}
	return withMeta(nil, meta), nil
}

// announced returns the part of a filter that this server announces.
func (s *Server) announced(filter ListenFilter) ListenFilter {
	filter.ToolsListChanged = filter.ToolsListChanged && s.announces("tools")
	filter.PromptsListChanged = filter.PromptsListChanged && s.announces("prompts")
	if !s.announces("resources") {
		filter.ResourcesListChanged, filter.ResourceSubscriptions = false, nil
	}
	return filter
}

// ==== The client ====

// ---- What is behind a URL ----
//
// A client that knows only a URL asks one question after another:
//
//	POST server/discover (2026-07-28), at most 5 s
//	 ├─ versions, or -32022 with versions ─► the newest that both speak ┬ modern ─► ready
//	 │                                                                  ├ legacy ─► initialize
//	 │                                                                  └ none ───► the end
//	 ├─ -32021 ─► modern, ready
//	 ├─ -32020, 3xx, 408, 429, 5xx, no network ─► the end
//	 └─ anything else, or silence
//	POST initialize, same URL
//	 ├─ a version that we speak ─► POST notifications/initialized ─► GET (may fail) ─► ready
//	 ├─ 400 404 405 ─► GET: event "endpoint" ─► POST initialize there ─► ready (HTTP+SSE)
//	 └─ anything else ─► the end
//
// On stdio it is the same without the GET, and a process that ends at discover is started again.

// Dialer makes a new Conn.
type Dialer interface {
	Dial(ctx context.Context) (Conn, error)
}

// DialerFunc is a function as a Dialer.
type DialerFunc func(ctx context.Context) (Conn, error)

// Dial calls f.
func (f DialerFunc) Dial(ctx context.Context) (Conn, error) { return f(ctx) }

// Client talks to one server, whatever revision it speaks. Set the fields before Connect. After
// that, any number of goroutines may use it.
type Client struct {
	Info           Implementation
	Capabilities   map[string]any         // what the client can be asked; what Handlers can answer is added
	Handlers       map[string]HandlerFunc // of questions and notifications, by method; the latter must not Call
	Handler        Handler                // of all others; nil: there is none
	Versions       []string               // nil: all
	ProbeTimeout   time.Duration          // how long server/discover may take; 0: 5 s
	ConnectTimeout time.Duration          // of the whole search; 0: 30 s
	Log            *slog.Logger           // nil: silent

	dialers    []Dialer
	connecting chan struct{} // a lock that a call stops waiting for when its ctx ends: who connects

	current  atomic.Pointer[connection] // the last one that was made; nil: none yet
	isClosed atomic.Bool
}

// connection is a Conn, and what was agreed on with the server at its other end.
type connection struct {
	peer      *Peer
	revision  Revision
	said      Meta            // what the client says about itself
	meta      json.RawMessage // the same, as the _meta of each modern request
	server    ServerInfo      // what the server says about itself
	notModern error           // why the server does not seem to be of the modern era; nil: no reason is known
	isGivenUp atomic.Bool     // no call uses it any more
}

// ErrSessionEnded means that the server does not know the session any more.
var ErrSessionEnded = errors.New("the session has ended")

// Connect finds a way to talk to the server: with the first Dialer, or with the next one if what
// answers is no server of this kind.
func (c *Client) Connect(ctx context.Context, dialers ...Dialer) error {
	c.dialers, c.connecting = dialers, make(chan struct{}, 1)
	_, err := c.useConnection(ctx)
	return err
}

// Server returns what the server has said about itself.
func (c *Client) Server() ServerInfo {
	if n := c.current.Load(); n != nil {
		return n.server
	}
	return ServerInfo{}
}

// Close hangs up. Calls that wait fail.
func (c *Client) Close() error {
	c.isClosed.Store(true)
	if n := c.current.Load(); n != nil {
		return n.peer.Close()
	}
	return nil
}

// useConnection returns the current connection, or a new one if that does not work any more. One
// goroutine at a time makes a connection, and the others wait for it.
func (c *Client) useConnection(ctx context.Context) (*connection, error) {
	if c.connecting == nil {
		return nil, errors.New("Connect was not called")
	}
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	n := c.current.Load()
	switch {
	case c.isClosed.Load():
		return nil, ErrClosed
	case n != nil && n.peer.reading.Err() != nil:
		n.giveUp(context.Cause(n.peer.reading))
	case n != nil && !n.isGivenUp.Load():
		return n, nil
	}
	n, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.current.Store(n)
	if c.isClosed.Load() { // Close was called meanwhile, and may not have seen n
		n.peer.Close()
		return nil, ErrClosed
	}
	return n, nil
}

// giveUp lets no further call use a connection, and closes it. If the session is lost, the connection is
// not closed here: calls that are under way must learn from the server that it has not read them, and
// then the connection ends by itself.
func (n *connection) giveUp(why error) {
	n.isGivenUp.Store(true)
	if !errors.Is(why, ErrSessionEnded) {
		n.peer.Close()
	}
}

// connect makes a connection. It tries one Dialer after another.
func (c *Client) connect(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.ConnectTimeout, 30*time.Second))
	defer cancel()
	var failed error
	for _, dialer := range c.dialers {
		n, err := c.connectWith(ctx, dialer)
		if err == nil {
			return n, nil
		}
		failed = errors.Join(failed, err)
		if !mayBeOlder(err) {
			break
		}
	}
	return nil, cmp.Or(failed, errors.New("Connect needs a Dialer"))
}

// mayBeOlder reports whether an error may mean that a server of an older transport is there, which
// does not know what to do with a POST: 2025-11-25 basic/transports#backwards-compatibility. A server
// of the modern era is no such server.
func mayBeOlder(err error) bool {
	fault, status := reasons(err)
	return !fault.isOfModernServers() && (status == 400 || status == 404 || status == 405)
}

// reasons returns what an error says: the Error with which the server has answered, or nil, and the
// status of its HTTP response, or 0.
func reasons(err error) (fault *Error, status int) {
	fault, _ = errors.AsType[*Error](err)
	var refusal interface{ StatusCode() int } // what only a Conn over HTTP returns
	if errors.As(err, &refusal) {
		status = refusal.StatusCode()
	}
	return fault, status
}

// connectWith makes a connection with this Dialer.
func (c *Client) connectWith(ctx context.Context, dialer Dialer) (*connection, error) {
	n := &connection{}
	if err := c.describe(n); err != nil {
		return nil, err
	}
	if err := c.dial(ctx, n, dialer); err != nil {
		return nil, err
	}
	version, err := c.probe(ctx, n)
	if err == nil && !revision(version).Modern {
		err = c.openSession(ctx, n, dialer, version)
	}
	if err != nil {
		n.peer.Close()
		return nil, err
	}
	return n, nil
}

// openSession calls initialize. A process that has ended because it was asked server/discover is
// started again, and is asked initialize only.
func (c *Client) openSession(ctx context.Context, n *connection, dialer Dialer, version string) error {
	err := c.initialize(ctx, n, version)
	if err != nil && n.peer.reading.Err() != nil {
		n.peer.Close()
		err = c.dial(ctx, n, dialer)
		if err == nil {
			err = c.initialize(ctx, n, version)
		}
	}
	if err != nil && n.notModern != nil {
		err = fmt.Errorf("%w (before that, server/discover: %v)", err, n.notModern)
	}
	return err
}

// dial begins a conversation over a new Conn. It must not end with ctx, which is that of one call.
func (c *Client) dial(ctx context.Context, n *connection, dialer Dialer) error {
	conn, err := dialer.Dial(ctx)
	if err != nil {
		return err
	}
	n.peer = newPeer(context.Background(), HandlerFunc(c.handle), c.Log)
	n.peer.weAreClient = true
	n.peer.start(conn)
	return nil
}

// probe asks server/discover, and returns the version to continue with: the picture above, as code. A
// server that does not answer it may speak any legacy version.
func (c *Client) probe(ctx context.Context, n *connection) (version string, err error) {
	modern, legacy := offered(c.Versions, isModern), offered(nil, isLegacy)
	if len(modern) == 0 {
		return c.chooseVersion(n, legacy, nil)
	}
	n.speak(modern[0])
	soon, cancel := context.WithTimeout(ctx, cmp.Or(c.ProbeTimeout, 5*time.Second))
	defer cancel()
	text, err := n.peer.RoundTrip(soon, &Message{Method: "server/discover", Params: withMeta(nil, n.meta)})
	if err == nil && Bind(text, &n.server) == nil && len(n.server.Versions) > 0 {
		_ = json.Unmarshal(member(member(text, "_meta"), metaServerInfo), &n.server.Info) // some servers have none
		return c.chooseVersion(n, n.server.Versions, nil)
	}
	fault, status := reasons(err)
	isSilent := soon.Err() != nil || n.peer.reading.Err() != nil // too slow, or a process that has ended
	switch {
	case ctx.Err() != nil: // the whole search has ended
		return "", err
	case fault.is(CodeUnsupportedVersion):
		var data struct{ Supported []string }
		_ = json.Unmarshal(fault.Data, &data) // if this fails, there are no versions
		return c.chooseVersion(n, data.Supported, nil)
	case fault.is(CodeMissingCapability): // a modern server, which wants something that we cannot do
		return modern[0], nil
	case fault.is(CodeMethodNotFound): // a legacy server, whatever the status is
		return c.chooseVersion(n, legacy, err)
	case fault.is(CodeHeaderMismatch), status/100 == 3, status == 408, status == 429, status >= 500:
		return "", err
	case err != nil && fault == nil && status == 0 && !isSilent: // no network
		return "", err
	}
	return c.chooseVersion(n, legacy, cmp.Or(err, errors.New("the result names no versions")))
}

// chooseVersion begins to speak the newest version of the client that the server speaks, too. notModern
// is the reason for not using the modern era; nil: no reason is known.
func (c *Client) chooseVersion(n *connection, ofServer []string, notModern error) (version string, err error) {
	n.notModern = notModern
	for _, version := range offered(c.Versions, isAny) {
		if slices.Contains(ofServer, version) {
			n.speak(version)
			return version, nil
		}
	}
	return "", cmp.Or(notModern, fmt.Errorf("the server speaks %q, and this client does not", ofServer))
}

// speak begins to speak a version.
func (n *connection) speak(version string) {
	n.revision, n.server.Version, n.said.ProtocolVersion = revision(version), version, version
	n.meta, _ = encode(n.said) // describe has checked its parts
	n.peer.Value.Store(agreement{revision: n.revision})
}

// describe encodes what the client says about itself. It can be asked what its Handlers can answer.
func (c *Client) describe(n *connection) (err error) {
	declared := map[string]any{}
	for method, capability := range questions {
		if c.Handlers[method] != nil {
			declared[capability] = struct{}{}
		}
	}
	maps.Copy(declared, c.Capabilities)
	n.said.ClientInfo, _ = encode(c.Info) // strings can always be encoded
	n.said.ClientCapabilities, err = encode(declared)
	return err
}

// initialize is the handshake of the legacy era.
func (c *Client) initialize(ctx context.Context, n *connection, version string) error {
	n.speak(version)
	params := InitializeParams{version, n.said.ClientCapabilities, n.said.ClientInfo}
	if err := n.peer.Call(ctx, "initialize", params, &n.server); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if !slices.Contains(offered(c.Versions, isLegacy), n.server.Version) {
		return fmt.Errorf("the server speaks %q, and this client does not", n.server.Version)
	}
	n.speak(n.server.Version)
	return n.peer.Notify(ctx, "notifications/initialized", nil)
}

// ---- Calls ----

// Call sends a request, and reads its result into result, unless that is nil. If the server has
// questions, Handlers answer them. The error is an *Error if the server has answered with one. A
// request that the server has surely not read, because its session was lost, is sent once more.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.CallWithProgress(ctx, method, params, result, nil)
}

// CallWithProgress does the same as Call, and report gets the progress.
func (c *Client) CallWithProgress(ctx context.Context, method string, params, result any, report ProgressFunc) error {
	request, err := newMessage(method, params)
	if err != nil {
		return err
	}
	return c.withConnection(ctx, func(n *connection) error {
		text, err := c.exchange(ctx, n, *request, report)
		if err != nil || result == nil {
			return err
		}
		return json.Unmarshal(text, result)
	})
}

// Notify sends a notification.
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	return c.withConnection(ctx, func(n *connection) error { return n.peer.Notify(ctx, method, params) })
}

// withConnection runs send with the current connection. If that turns out to be of no use, it runs
// send once more, with a new connection. That ctx has ended says nothing about the connection.
func (c *Client) withConnection(ctx context.Context, send func(n *connection) error) (err error) {
	for range 2 {
		n, failed := c.useConnection(ctx)
		if failed != nil {
			return failed
		}
		err = send(n)
		if ctx.Err() != nil || !n.isUseless(err) {
			break
		}
		n.giveUp(err)
	}
	return err
}

// isUseless reports whether an error means that the server has surely not read what was sent: the
// session was lost, or the server does not speak this version any more.
func (n *connection) isUseless(err error) bool {
	fault, _ := reasons(err)
	return errors.Is(err, errUnread) || n.revision.Modern && fault.is(CodeUnsupportedVersion)
}

// exchange sends a request, and returns its result. A modern result may ask for input in place of an
// answer: then the questions are answered, and the request is sent again, with the answers.
func (c *Client) exchange(ctx context.Context, n *connection, m Message, report ProgressFunc) (json.RawMessage, error) {
	params := m.Params
	for range maxRounds {
		result, err := c.runRound(ctx, n, Message{Method: m.Method, Params: params}, report)
		if err != nil || !n.revision.Modern {
			return result, err
		}
		switch kind := textOf(member(result, "resultType")); kind {
		case "", "complete":
			return result, nil
		case "input_required":
			added, err := c.answerQuestions(ctx, n, result)
			if err != nil {
				return nil, err
			}
			params = merge(m.Params, added)
		default:
			return nil, fmt.Errorf("the result has the unknown type %.100q", kind)
		}
	}
	return nil, fmt.Errorf("the server has asked %d times", maxRounds)
}

// runRound sends the request of one round, and returns its result. The server may refuse a call of a
// tool because the header does not repeat an argument that has a mark. Then the tools are listed
// again, from which the Conn learns the marks, and the request is sent a second time.
func (c *Client) runRound(ctx context.Context, n *connection, m Message, report ProgressFunc) (json.RawMessage, error) {
	if n.revision.Modern {
		m.Params = withMeta(m.Params, n.meta)
	}
	first := m
	result, err := n.peer.roundTrip(ctx, n.peer.via, &first, report)
	fault, status := reasons(err)
	if status != 400 || !fault.is(CodeHeaderMismatch) || m.Method != "tools/call" {
		return result, err
	}
	if _, failed := List[json.RawMessage](ctx, c, "tools/list", "tools"); failed != nil {
		return nil, err
	}
	return n.peer.roundTrip(ctx, n.peer.via, &m, report)
}

// answerQuestions answers the questions of a result. It returns the members that this adds to the
// params of the request.
func (c *Client) answerQuestions(ctx context.Context, n *connection, result json.RawMessage) (json.RawMessage, error) {
	requests, state := member(result, "inputRequests"), member(result, "requestState")
	if isAbsent(requests) && isAbsent(state) {
		return nil, errors.New("the server asks for input, and does not say for which")
	}
	answers := map[string]any{}
	for key, text := range Each(requests) {
		question := &Message{ID: NumberID(0), Method: textOf(member(text, "method")), Params: member(text, "params")}
		if questions[question.Method] == "" || !isAbsent(question.Params) && question.Params[0] != '{' {
			return nil, fmt.Errorf("the server asks what is no question: %.100s", text)
		}
		if len(answers) == maxQuestions || answers[key] != nil {
			return nil, fmt.Errorf("the server asks more than %d questions at once, or one twice", maxQuestions)
		}
		x := &Exchange{Request: question, Peer: n.peer, Value: &requestInfo{revision: n.revision}, ctx: ctx}
		answer := n.peer.handle(HandlerFunc(c.runHandler), x)
		if answer.Error != nil {
			why := cmp.Or(answer.Error.cause, error(answer.Error))
			return nil, fmt.Errorf("the server asks for %.100s: %w", question.Method, why)
		}
		answers[key] = answer.Result
	}
	added := map[string]any{"inputResponses": answers}
	if !isAbsent(state) {
		added["requestState"] = state
	}
	return encode(added)
}

// handle serves a message of the server. A server of the modern era must not send requests
// (2026-07-28 basic/transports/stdio), and could not read the answer.
func (c *Client) handle(ctx context.Context, x *Exchange) (any, error) {
	if x.Request.Kind() == KindRequest && agreementOf(x.Peer).revision.Modern {
		x.Peer.log.Warn("dropped a request of a server that must not ask", "method", x.Request.Method)
		x.cancel(errCancelled) // so it gets no response
		return nil, nil
	}
	return c.runHandler(ctx, x)
}

// runHandler runs the handler of a question or a notification.
func (c *Client) runHandler(ctx context.Context, x *Exchange) (any, error) {
	handler := c.Handlers[x.Request.Method]
	switch {
	case handler != nil:
		return handler(ctx, x)
	case x.Request.Method == "ping":
		return nil, nil
	case c.Handler != nil:
		return c.Handler.Handle(ctx, x)
	case x.Request.Kind() == KindNotification:
		return nil, nil
	}
	return nil, MethodNotFound(x.Request.Method)
}

// CallTool calls a tool. Its failure is no error, but a result with IsError.
func (c *Client) CallTool(ctx context.Context, name string, arguments any) (result ToolResult, err error) {
	err = c.Call(ctx, "tools/call", CallToolParams{name, arguments}, &result)
	return result, err
}

// maxList is how many bytes a list may have, of all pages.
const maxList = 32 << 20

// List returns all that a server lists, of all pages, such as List[Tool](ctx, c, "tools/list",
// "tools"): name is that of the list in the result. A cursor that comes again ends the list, and so
// does an empty one in the legacy era.
func List[T any](ctx context.Context, c *Client, method, name string) (items []T, err error) {
	params, seen, size := map[string]json.RawMessage{}, map[string]bool{}, 0
	for {
		var page json.RawMessage
		if err := c.Call(ctx, method, params, &page); err != nil {
			return nil, err
		}
		size += 1000 // a page counts even if it has no items
		for _, text := range Each(member(page, name)) {
			size += len(text) + 100
			if size > maxList {
				break
			}
			var item T
			if err := json.Unmarshal(text, &item); err != nil {
				return nil, fmt.Errorf("%s: %w", method, err)
			}
			items = append(items, item)
		}
		cursor := member(page, "nextCursor")
		isEmpty := string(cursor) == `""` && !revision(c.Server().Version).Modern
		switch {
		case size > maxList:
			return nil, fmt.Errorf("%s: the list is longer than %d bytes", method, maxList)
		case isAbsent(cursor), isEmpty, seen[string(cursor)]:
			return items, nil
		}
		params["cursor"], seen[string(cursor)] = cursor, true
		size += len(cursor)
	}
}

// Listen subscribes to changes, and returns when the subscription ends: nil if the server has
// ended it. Handlers get the changes. A server that has no standalone stream over HTTP cannot
// announce anything in the legacy era, which Listen does not notice. In that era, if two Listens name
// one resource, the end of either ends both subscriptions.
func (c *Client) Listen(ctx context.Context, filter ListenFilter) error {
	n, err := c.useConnection(ctx)
	if err != nil {
		return err
	}
	if n.revision.Modern {
		err = c.Call(ctx, "subscriptions/listen", ListenParams{filter}, nil)
		if errors.Is(err, errCancelled) {
			return nil
		}
		return err
	}
	uris := filter.ResourceSubscriptions
	if offer := member(n.server.Capabilities, "resources"); len(uris) > 0 && isAbsent(member(offer, "subscribe")) {
		return errors.New("the server does not offer subscriptions to resources")
	}
	for i, uri := range uris {
		if err := n.peer.Call(ctx, "resources/subscribe", ResourceParams{uri}, nil); err != nil {
			n.unsubscribe(uris[:i])
			return err
		}
	}
	select {
	case <-n.peer.reading.Done():
		return context.Cause(n.peer.reading)
	case <-ctx.Done():
		n.unsubscribe(uris)
		return context.Cause(ctx)
	}
}

// unsubscribe takes subscriptions back, for at most two seconds: its caller has ended already.
func (n *connection) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(n.peer.ctx, 2*time.Second)
	defer cancel()
	for _, uri := range uris {
		_ = n.peer.Call(ctx, "resources/unsubscribe", ResourceParams{uri}, nil) // the server may have gone
	}
}

// ==== What a server offers ====

// ---- Lists ----

// pageSize is how many items one answer lists.
const pageSize = 50

// catalog is all that a Server offers of one kind, such as its tools.
type catalog[T, F any] struct {
	items sync.Map // by key: an offer[T, F]
}

// offer is one item of a catalog.
type offer[T, F any] struct {
	key   string // its name, or its URI
	shown T      // what clients see of it
	run   F      // the function behind it
}

// add adds an item, or replaces the one with this key, and announces that the list of its kind has
// changed.
func (c *catalog[T, F]) add(s *Server, kind, key string, shown T, run F) {
	c.items.Store(key, offer[T, F]{key, shown, run})
	s.announceList(kind)
}

// remove removes the item with this key, and announces that the list of its kind has changed.
func (c *catalog[T, F]) remove(s *Server, kind, key string) {
	c.items.Delete(key)
	s.announceList(kind)
}

// find returns the item with this key.
func (c *catalog[T, F]) find(key string) (item offer[T, F], ok bool) {
	value, _ := c.items.Load(key)
	item, ok = value.(offer[T, F])
	return item, ok
}

// sorted returns all items, sorted by key.
func (c *catalog[T, F]) sorted() (items []offer[T, F]) {
	for _, item := range c.items.Range {
		items = append(items, item.(offer[T, F]))
	}
	slices.SortFunc(items, func(a, b offer[T, F]) int { return strings.Compare(a.key, b.key) })
	return items
}

// isEmpty reports whether there is no item.
func (c *catalog[T, F]) isEmpty() bool {
	for range c.items.Range {
		return false
	}
	return true
}

// listParams are the params of tools/list and of the other lists.
type listParams struct {
	Cursor *string `json:"cursor,omitempty"` // nextCursor of the page before; nil: this is the first page
}

// list returns one page of the catalog as the result of a method, which calls its list name. A cursor
// is "after " and the last key of the page before, as Base64: so it stays right if items are added or
// removed meanwhile.
func (c *catalog[T, F]) list(name string, params listParams) (map[string]any, error) {
	rest := c.sorted()
	if params.Cursor != nil {
		text, err := base64.RawURLEncoding.DecodeString(*params.Cursor)
		last, isOurs := strings.CutPrefix(string(text), "after ")
		if err != nil || !isOurs {
			return nil, InvalidParams("Unknown cursor")
		}
		rest = slices.DeleteFunc(rest, func(item offer[T, F]) bool { return item.key <= last })
	}
	page := rest[:min(pageSize, len(rest))]
	items := []T{} // an empty list is [], and not null
	for _, item := range page {
		items = append(items, item.shown)
	}
	result := map[string]any{name: items}
	if len(page) < len(rest) {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte("after " + page[len(page)-1].key))
	}
	return result, nil
}

func (s *Server) listResources(_ context.Context, _ *Exchange, params listParams) (any, error) {
	return s.resources.list("resources", params)
}

func (s *Server) listTemplates(_ context.Context, _ *Exchange, params listParams) (any, error) {
	return s.templates.list("resourceTemplates", params)
}

func (s *Server) listPrompts(_ context.Context, _ *Exchange, params listParams) (any, error) {
	return s.prompts.list("prompts", params)
}

// listTools serves tools/list. It hides the marks for the header from legacy clients, as some of
// them refuse a schema with a keyword that they do not know.
func (s *Server) listTools(_ context.Context, x *Exchange, params listParams) (any, error) {
	result, err := s.tools.list("tools", params)
	if tools, ok := result["tools"].([]Tool); ok && !x.Revision().Modern {
		for i := range tools {
			tools[i].InputSchema = withoutMarks(tools[i].InputSchema)
		}
	}
	return result, err
}

// ---- Content ----

// Content is a part of a result or of a prompt: text, image, audio, resource_link or resource.
type Content struct {
	Type        string            `json:"type"`
	Text        string            `json:"text,omitempty"`     // of text
	Data        []byte            `json:"data,omitzero"`      // of image and audio; travels as Base64
	MimeType    string            `json:"mimeType,omitempty"` // of image, audio and resource_link
	URI         string            `json:"uri,omitempty"`      // of resource_link, as all that follows
	Name        string            `json:"name,omitempty"`
	Title       string            `json:"title,omitempty"`
	Description string            `json:"description,omitempty"`
	Size        int64             `json:"size,omitempty"`     // bytes
	Resource    *ResourceContents `json:"resource,omitempty"` // of resource: its contents, embedded
	Annotations json.RawMessage   `json:"annotations,omitempty"`
	Meta        json.RawMessage   `json:"_meta,omitempty"`
}

// TextContent returns a text.
func TextContent(text string) Content { return Content{Type: "text", Text: text} }

// MarshalJSON writes the text of a part of the type text even if it is empty.
func (c Content) MarshalJSON() ([]byte, error) {
	type plain Content
	text, err := encode(plain(c))
	if c.Type == "text" && c.Text == "" {
		text = merge(text, json.RawMessage(`{"text":""}`))
	}
	return text, err
}

// ---- Resources ----

// Resource is what clients learn about a resource.
type Resource struct {
	URI         string          `json:"uri"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MimeType    string          `json:"mimeType,omitempty"`
	Size        int64           `json:"size,omitempty"` // bytes
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Icons       []Icon          `json:"icons,omitempty"`
	Meta        json.RawMessage `json:"_meta,omitempty"`
}

// ResourceTemplate is a pattern of URIs. A {name} stands for a part without a slash.
type ResourceTemplate struct {
	URITemplate string          `json:"uriTemplate"`
	Name        string          `json:"name"`
	Title       string          `json:"title,omitempty"`
	Description string          `json:"description,omitempty"`
	MimeType    string          `json:"mimeType,omitempty"`
	Annotations json.RawMessage `json:"annotations,omitempty"`
	Icons       []Icon          `json:"icons,omitempty"`
	Meta        json.RawMessage `json:"_meta,omitempty"`
}

// ResourceContents is what a resource holds: a text, or else a blob.
type ResourceContents struct {
	URI      string          `json:"uri"`
	MimeType string          `json:"mimeType,omitempty"`
	Text     string          `json:"text,omitempty"`
	Blob     []byte          `json:"blob,omitzero"`
	Meta     json.RawMessage `json:"_meta,omitempty"`
}

// MarshalJSON writes the text even if it is empty, unless there is a blob.
func (c ResourceContents) MarshalJSON() ([]byte, error) {
	type plain ResourceContents
	text, err := encode(plain(c))
	if c.Text == "" && c.Blob == nil {
		text = merge(text, json.RawMessage(`{"text":""}`))
	}
	return text, err
}

// ReadFunc reads a resource. It returns a text, a []byte, a ResourceContents, a
// ReadResourceResult, or an InputRequired. Of an error that is no *Error, such as that of
// ResourceNotFound, the client sees "Internal error", and the log has the text.
type ReadFunc func(ctx context.Context, x *Exchange, uri string) (contents any, err error)

// ReadTemplateFunc is a ReadFunc for the URIs of a template. values are what its variables stand
// for, without percent-encoding: %2F is a slash, so a value is no safe part of a path.
type ReadTemplateFunc func(ctx context.Context, x *Exchange, uri string, values map[string]string) (any, error)

// ReadResourceResult is the result of resources/read.
type ReadResourceResult struct {
	Contents []ResourceContents `json:"contents"`
}

func (r ReadResourceResult) size() (n int) {
	for _, part := range r.Contents {
		n += len(part.Text) + len(part.Blob)
	}
	return n
}

// ResourceParams are the params of resources/read, and of notifications/resources/updated.
type ResourceParams struct {
	URI string `json:"uri"`
}

// ResourceNotFound returns the Error for a resource that does not exist.
func ResourceNotFound(uri string) *Error {
	data, _ := encode(map[string]string{"uri": uri})
	return &Error{Code: CodeResourceNotFound, Message: "Resource not found", Data: data}
}

// AddResource offers a resource, or replaces the one with this URI.
func (s *Server) AddResource(r Resource, read ReadFunc) {
	s.resources.add(s, "resources", r.URI, r, read)
}

// RemoveResource takes a resource back.
func (s *Server) RemoveResource(uri string) { s.resources.remove(s, "resources", uri) }

// AddResourceTemplate offers the resources whose URIs fit a template. It makes a regular expression of
// that, with a group for each variable: note:///{name} is ^note:///(?P<name>[^/]+)$.
func (s *Server) AddResourceTemplate(t ResourceTemplate, read ReadTemplateFunc) {
	parts := templateVariable.ReplaceAllString(regexp.QuoteMeta(t.URITemplate), "(?P<$1>[^/]+)")
	pattern := regexp.MustCompile("^" + parts + "$")
	find := func(uri string) ReadFunc { // nil: the URI does not fit
		groups := pattern.FindStringSubmatch(uri)
		if groups == nil {
			return nil
		}
		values := map[string]string{}
		for i, name := range pattern.SubexpNames() {
			decoded, err := url.PathUnescape(groups[i])
			if err != nil {
				return nil
			}
			if name != "" { // the group without a name is the whole URI
				values[name] = decoded
			}
		}
		return func(ctx context.Context, x *Exchange, uri string) (any, error) { return read(ctx, x, uri, values) }
	}
	s.templates.add(s, "resources", t.URITemplate, t, find)
}

// RemoveResourceTemplate takes a template back.
func (s *Server) RemoveResourceTemplate(uriTemplate string) {
	s.templates.remove(s, "resources", uriTemplate)
}

// templateVariable is a variable such as {name} after QuoteMeta.
var templateVariable = regexp.MustCompile(`\\\{(\w+)\\\}`)

// findResource returns the function that reads a URI, and the media type that was declared for it.
func (s *Server) findResource(uri string) (read ReadFunc, mimeType string) {
	if resource, ok := s.resources.find(uri); ok {
		return resource.run, resource.shown.MimeType
	}
	for _, template := range s.templates.sorted() {
		if read := template.run(uri); read != nil {
			return read, template.shown.MimeType
		}
	}
	return func(context.Context, *Exchange, string) (any, error) { return nil, ResourceNotFound(uri) }, ""
}

// readResource serves resources/read. It makes a result of what a ReadFunc has returned. In the
// modern era a resource that does not exist has no code of its own.
func (s *Server) readResource(ctx context.Context, x *Exchange, params ResourceParams) (any, error) {
	read, mimeType := s.findResource(params.URI)
	result, err := s.withInput(ctx, x, func() (any, error) { return read(ctx, x, params.URI) })
	if fault, _ := errors.AsType[*Error](err); fault.is(CodeResourceNotFound) && x.Revision().Modern {
		err = &Error{Code: CodeInvalidParams, Message: fault.Message, Data: fault.Data}
	}
	contents := ResourceContents{URI: params.URI, MimeType: mimeType}
	switch r := result.(type) {
	case string:
		contents.Text = r
	case []byte:
		contents.Blob = r
	case ResourceContents:
		contents = r
	default: // a ReadResourceResult, or an InputRequired
		return result, err
	}
	return ReadResourceResult{[]ResourceContents{contents}}, err
}

// ---- Prompts ----

// Prompt is what clients learn about a prompt.
type Prompt struct {
	Name        string           `json:"name"`
	Title       string           `json:"title,omitempty"`
	Description string           `json:"description,omitempty"`
	Arguments   []PromptArgument `json:"arguments,omitempty"`
	Icons       []Icon           `json:"icons,omitempty"`
	Meta        json.RawMessage  `json:"_meta,omitempty"`
}

// PromptArgument is a text that a prompt takes.
type PromptArgument struct {
	Name        string `json:"name"`
	Title       string `json:"title,omitempty"`
	Description string `json:"description,omitempty"`
	Required    bool   `json:"required"`
}

// PromptResult is the result of prompts/get.
type PromptResult struct {
	Description string          `json:"description,omitempty"`
	Messages    []PromptMessage `json:"messages"`
}

// PromptMessage is a message with which a conversation begins.
type PromptMessage struct {
	Role    string  `json:"role"` // user or assistant
	Content Content `json:"content"`
}

// PromptFunc makes a prompt. It returns a text, a PromptResult, or an InputRequired.
type PromptFunc func(ctx context.Context, x *Exchange, arguments map[string]string) (prompt any, err error)

// AddPrompt offers a prompt, or replaces the one of this name.
func (s *Server) AddPrompt(p Prompt, get PromptFunc) {
	s.prompts.add(s, "prompts", p.Name, p, get)
}

// RemovePrompt takes a prompt back.
func (s *Server) RemovePrompt(name string) { s.prompts.remove(s, "prompts", name) }

// getPromptParams are the params of prompts/get.
type getPromptParams struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

// getPrompt serves prompts/get. A text becomes one message of the user.
func (s *Server) getPrompt(ctx context.Context, x *Exchange, params getPromptParams) (any, error) {
	prompt, ok := s.prompts.find(params.Name)
	if !ok {
		return nil, InvalidParams("Unknown prompt: %.100s", params.Name)
	}
	for _, a := range prompt.shown.Arguments {
		if _, given := params.Arguments[a.Name]; a.Required && !given {
			return nil, InvalidParams("Missing required argument: '%s'", a.Name)
		}
	}
	result, err := s.withInput(ctx, x, func() (any, error) { return prompt.run(ctx, x, params.Arguments) })
	if text, ok := result.(string); ok {
		return PromptResult{prompt.shown.Description, []PromptMessage{{"user", TextContent(text)}}}, err
	}
	return result, err
}

// ---- Arguments that the header repeats ----
//
// A schema may mark arguments with x-mcp-header. A modern client repeats them in the header of its
// POST, as Mcp-Param-NAME, so that a proxy can route by them (2026-07-28
// basic/transports/streamable-http#custom-headers-from-tool-parameters).

// HeaderParam is an argument that the header repeats.
type HeaderParam struct {
	Name string   // the field is Mcp-Param-Name
	Path []string // of the argument, from the outside
}

const mark = "x-mcp-header"

// ReadHeaderParams returns what a schema marks. A mark is right if it is the only one with its name,
// in whatever case, and if it stands at an argument that is a string, an integer or a boolean.
func ReadHeaderParams(schema json.RawMessage) ([]HeaderParam, error) {
	if !bytes.Contains(schema, []byte(mark)) {
		return nil, nil
	}
	found, err := addMarks(nil, bytes.TrimSpace(schema), nil)
	if err == nil && bytes.Count(schema, []byte(`"`+mark+`"`)) != len(found) {
		err = errors.New(mark + " stands where no argument is, or too deep")
	}
	return found, err
}

// addMarks adds to found what the schema of one argument marks, which path leads to, and what those of
// its properties mark. At the schema of all arguments, path is empty.
func addMarks(found []HeaderParam, schema json.RawMessage, path []string) (_ []HeaderParam, err error) {
	if len(found) == maxMarks { // one more does not count, which is an error
		return found, nil
	}
	if value := member(schema, mark); value != nil {
		name, kind := textOf(value), textOf(member(schema, "type"))
		isName := name != "" && strings.Trim(name, tokenChars) == ""
		isSimple := kind == "string" || kind == "integer" || kind == "boolean"
		isTaken := slices.ContainsFunc(found, func(p HeaderParam) bool { return strings.EqualFold(p.Name, name) })
		if len(path) == 0 || !isSimple || !isName || isTaken {
			return nil, fmt.Errorf("%s %.100q is not a new name for a simple argument", mark, name)
		}
		found = append(found, HeaderParam{name, path})
	}
	if len(path) == maxMarkDepth {
		return found, nil
	}
	for name, property := range Each(member(schema, "properties")) {
		found, err = addMarks(found, property, append(slices.Clone(path), name))
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// maxMarkDepth is how many names the path of a marked argument may have. Each level of a schema is
// read once more than the one above it, so a schema without end must not be followed.
const maxMarkDepth, maxMarks = 32, 100

// tokenChars are the characters of a name in a header (RFC 9110, 5.6.2).
const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

// withoutMarks returns a schema as a legacy client sees it.
func withoutMarks(schema json.RawMessage) json.RawMessage {
	if !bytes.Contains(schema, []byte(mark)) || schema[0] != '{' {
		return schema
	}
	parts := map[string]json.RawMessage{}
	for name, value := range Each(schema) {
		if name != mark {
			parts[name] = withoutMarks(value)
		}
	}
	text, _ := encode(parts) // they are JSON
	return text
}

// HeaderParams returns the arguments of a tool that a modern client repeats in the header.
func (s *Server) HeaderParams(tool string) []HeaderParam {
	found, _ := s.tools.find(tool)                         // an unknown tool has no schema, so no marks
	marked, _ := ReadHeaderParams(found.shown.InputSchema) // AddTool has checked it
	return marked
}

// textOf returns a string, or any other value but null as JSON.
func textOf(value json.RawMessage) string {
	switch {
	case isAbsent(value):
		return ""
	case value[0] == '"':
		return unquote(value)
	}
	return string(value)
}

// ---- requestState ----
//
// What a handler wants to remember travels to the client and back. It is sealed with AES-GCM: the
// client can neither read nor change it, nor use it after an hour, for another request, or as another
// user (2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow). Within the hour it can be
// used again.

// stateTTL is how long a user may take to answer.
const stateTTL = time.Hour

// seal makes a requestState; "": there is nothing to remember.
func (s *Server) seal(x *Exchange, state string) string {
	if state == "" {
		return ""
	}
	text := strconv.FormatInt(time.Now().Add(stateTTL).Unix(), 10) + " " + state
	return base64.RawURLEncoding.EncodeToString(s.stateSealer().Seal(nil, nil, []byte(text), s.sealedFor(x)))
}

// unseal is the reverse of seal.
func (s *Server) unseal(x *Exchange, sealed string) (string, error) {
	if sealed == "" {
		return "", nil
	}
	secret, _ := base64.RawURLEncoding.DecodeString(sealed) // if it is not, Open fails
	text, err := s.stateSealer().Open(nil, nil, secret, s.sealedFor(x))
	expiry, state, _ := strings.Cut(string(text), " ")
	until, _ := strconv.ParseInt(expiry, 10, 64)
	switch {
	case err != nil:
		return "", InvalidParams("Invalid params: 'requestState' is not one of this server and call")
	case time.Now().Unix() > until:
		return "", InvalidParams("Invalid params: 'requestState' has expired")
	}
	return state, nil
}

// sealedFor returns what a requestState is bound to: the server's name, the method, the user, and all
// params but those that a retry adds. Of the params themselves the order does not count.
func (s *Server) sealedFor(x *Exchange) []byte {
	var params []string
	for name, value := range Each(x.Request.Params) {
		if name != "_meta" && name != "inputResponses" && name != "requestState" {
			params = append(params, fmt.Sprintf("%q: %s", name, value))
		}
	}
	slices.Sort(params)
	return fmt.Appendf(nil, "%q %q %q %q", s.Info.Name, x.Request.Method, x.Principal, params)
}

// randomKey seals where there is no StateKey.
var randomKey = rand.Text()

func (s *Server) stateSealer() cipher.AEAD {
	key := sha256.Sum256([]byte(cmp.Or(string(s.StateKey), randomKey)))
	block, _ := aes.NewCipher(key[:]) // 32 bytes are a key
	sealer, _ := cipher.NewGCMWithRandomNonce(block)
	return sealer
}
