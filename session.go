// SPDX-License-Identifier: 0BSD
// session.go of mcpwire 0.3.0, which is the wire of the Model Context Protocol to copy.

package main

// MCP itself: the revisions, a Server with what it offers, and a Client. How messages travel is
// in the other files.
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
// A newcomer reads up to "Announcements", then "The client", and looks up the rest.
//
// Who uses which lock: Server.mu guards what is offered and who has subscribed, Client.mu the
// connection. Neither is held while a handler runs or a message is written.

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

// revision returns the Revision of a version; the zero Revision: it is unknown.
func revision(version string) Revision {
	for _, r := range Revisions {
		if r.Version == version {
			return r
		}
	}
	return Revision{}
}

// offered returns the versions of this kind that list names, the newest first. An empty list
// stands for all.
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

// isModern reports whether only servers of the modern era send this error.
func (e *Error) isModern() bool {
	return e != nil && e.Code <= CodeHeaderMismatch && e.Code >= CodeUnsupportedVersion
}

// unsupported returns the Error for a version that is not among those that list names. A server
// without the modern era must not send the code of that era: clients would not fall back
// (2026-07-28 basic/versioning).
func unsupported(version string, list []string) *Error {
	data, _ := encode(map[string]any{"supported": offered(list, isAny), "requested": version})
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
	LogLevel           *string         `json:"io.modelcontextprotocol/logLevel,omitempty"`
	ProgressToken      json.RawMessage `json:"progressToken,omitempty"` // a string or an integer
}

// Meta reads the _meta of a message.
func (m *Message) Meta() (meta Meta, err error) {
	text := member(m.Params, "_meta")
	if isAbsent(text) {
		return Meta{}, nil
	}
	if err := Bind(text, &meta); err != nil {
		return Meta{}, InvalidParams("Invalid _meta: %v", err)
	}
	if _, ok := parseID(meta.ProgressToken); meta.ProgressToken != nil && !ok {
		return Meta{}, InvalidParams("Invalid _meta: 'progressToken' must be a string or an integer")
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
	Announce     []string               // whose changes are announced: "tools", "resources", "prompts"
	StateKey     []byte                 // seals requestState, the same on all replicas; nil: a random key

	mu          sync.Mutex // guards the fields below
	tools       catalog[Tool, toolFunc]
	resources   catalog[Resource, ReadFunc]
	templates   catalog[ResourceTemplate, templateReader]
	prompts     catalog[Prompt, PromptFunc]
	subscribers map[any]*subscriber // by Peer, or by Exchange
}

// agreement is what initialize has agreed on. A Peer keeps it as its Value.
type agreement struct {
	revision   Revision
	meta       Meta
	isReady    bool // there was notifications/initialized: the client can be asked, and told of changes
	legacyOnly bool // HTTP+SSE, which has no modern era
	stateless  bool // the Peer lives for one POST: nothing is remembered, and nothing can be sent later
}

// changeAgreement changes what was agreed on with a Peer. Over HTTP, two requests may do so at once.
func (s *Server) changeAgreement(p *Peer, change func(*agreement)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	agreed := agreementOf(p)
	change(&agreed)
	p.Value.Store(agreed)
}

func agreementOf(p *Peer) agreement {
	agreed, _ := p.Value.Load().(agreement)
	return agreed
}

// requestInfo is what a Server knows about a request. An Exchange keeps it as its Value.
type requestInfo struct {
	revision Revision
	meta     Meta
	logLevel string                     // the lowest level that is wanted; "": none
	reported *float64                   // the last progress
	inputs   map[string]json.RawMessage // the answers to the last InputRequired, by key
	state    string                     // that of the last InputRequired
}

func (x *Exchange) info() *requestInfo {
	info, _ := x.Value.(*requestInfo)
	return cmp.Or(info, &requestInfo{})
}

// Meta returns what the client says about itself and the request.
func (x *Exchange) Meta() Meta { return x.info().meta }

// Revision returns the revision of the request.
func (x *Exchange) Revision() Revision { return x.info().revision }

// method is how a Server serves a method.
type method struct {
	only      func(Revision) bool // the era that has it; nil: both
	needs     string              // the capability without which there is no such method
	cacheable bool
	serve     serveFunc
}

type serveFunc func(s *Server, ctx context.Context, x *Exchange) (any, error)

// bound makes a serveFunc of a function that takes the params as a struct.
func bound[P any](serve func(s *Server, ctx context.Context, x *Exchange, params P) (any, error)) serveFunc {
	return func(s *Server, ctx context.Context, x *Exchange) (any, error) {
		var params P
		if err := x.Bind(&params); err != nil {
			return nil, err
		}
		return serve(s, ctx, x, params)
	}
}

var methods = map[string]method{
	"initialize":            {only: isLegacy, serve: bound((*Server).initialize)},
	"ping":                  {only: isLegacy, serve: (*Server).ping},
	"logging/setLevel":      {only: isLegacy, needs: "logging", serve: bound((*Server).setLevel)},
	"resources/subscribe":   {only: isLegacy, needs: "resources", serve: bound((*Server).subscribe)},
	"resources/unsubscribe": {only: isLegacy, needs: "resources", serve: bound((*Server).subscribe)},

	"server/discover":      {only: isModern, cacheable: true, serve: (*Server).discover},
	"subscriptions/listen": {only: isModern, serve: bound((*Server).listen)},

	"tools/list":               {needs: "tools", cacheable: true, serve: bound((*Server).listTools)},
	"tools/call":               {needs: "tools", serve: bound((*Server).callTool)},
	"resources/list":           {needs: "resources", cacheable: true, serve: bound((*Server).listResources)},
	"resources/templates/list": {needs: "resources", cacheable: true, serve: bound((*Server).listTemplates)},
	"resources/read":           {needs: "resources", cacheable: true, serve: bound((*Server).readResource)},
	"prompts/list":             {needs: "prompts", cacheable: true, serve: bound((*Server).listPrompts)},
	"prompts/get":              {needs: "prompts", serve: bound((*Server).getPrompt)},
}

// Handle serves a message of a client.
func (s *Server) Handle(ctx context.Context, x *Exchange) (any, error) {
	name := x.Request.Method
	own := s.Methods[name]
	if x.Request.Kind() == KindNotification {
		if name == "notifications/initialized" {
			s.addPeer(x.Peer)
		}
		if own != nil {
			return own(ctx, x)
		}
		return nil, nil
	}
	if err := s.chooseRevision(x); err != nil {
		return nil, err
	}
	m := methods[name]
	switch {
	case own != nil:
		m.serve = func(_ *Server, ctx context.Context, x *Exchange) (any, error) {
			return s.withInput(ctx, x, func() (any, error) { return own(ctx, x) })
		}
	case m.serve == nil, m.only != nil && !m.only(x.Revision()),
		m.needs != "" && s.Capabilities[m.needs] == nil && !s.offers(m.needs):
		return nil, MethodNotFound(name)
	}
	result, err := m.serve(s, ctx, x)
	if err != nil || !x.Revision().Modern {
		return result, err
	}
	return s.modernResult(name, result, m.cacheable)
}

// chooseRevision finds out which revision a request belongs to, and who has sent it:
//
//	_meta names a modern version      that version, and nothing is remembered
//	_meta names an unknown version    an error
//	initialize, or ping               the legacy era
//	anything else                     what initialize has agreed on; an error, if there was none
func (s *Server) chooseRevision(x *Exchange) error {
	meta, err := x.Request.Meta()
	if err != nil {
		return err
	}
	agreed, named, name := agreementOf(x.Peer), revision(meta.ProtocolVersion), x.Request.Method
	isKnownLegacy := named.Version != "" && !named.Modern
	switch {
	case meta.ProtocolVersion != "" && !isKnownLegacy:
		x.canAsk = false
		if agreed.legacyOnly || x.inBatch { // over HTTP, nobody has compared a batch with the header
			return unsupported(meta.ProtocolVersion, offered(s.Versions, isLegacy))
		}
		if !slices.Contains(offered(s.Versions, isModern), named.Version) {
			return unsupported(meta.ProtocolVersion, s.Versions)
		}
		x.Value = &requestInfo{revision: named, meta: meta}
		if s.Logging && meta.LogLevel != nil {
			x.info().logLevel = *meta.LogLevel
		}
		return checkModern(meta, s.Versions)
	case agreed.revision.Version != "", name == "initialize", name == "ping" && len(offered(s.Versions, isLegacy)) > 0:
		// the legacy era: see below
	default:
		fault := InvalidParams("_meta lacks %s, and initialize has not been called", metaVersion)
		return withVersions(fault, s.Versions)
	}
	agreed.meta.ProgressToken = meta.ProgressToken
	x.Value = &requestInfo{revision: agreed.revision, meta: agreed.meta}
	x.canAsk = agreed.isReady
	if s.Logging && !agreed.stateless {
		x.info().logLevel = "info"
		if agreed.meta.LogLevel != nil {
			x.info().logLevel = *agreed.meta.LogLevel
		}
	}
	return nil
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

// resultMeta is the _meta of each result of the modern era.
type resultMeta struct {
	ServerInfo Implementation `json:"io.modelcontextprotocol/serverInfo"`
}

// modernResult adds what each result of the modern era says about itself
// (2026-07-28 basic#result-responses).
func (s *Server) modernResult(name string, result any, isCacheable bool) (any, error) {
	text, err := encodeResult(result)
	if err != nil {
		return nil, err
	}
	if text[0] != '{' {
		return nil, errors.New("the result is not an object")
	}
	info := s.Info
	if name != "server/discover" {
		info.Icons = nil // large, and known
	}
	named, _ := encode(resultMeta{info}) // strings can always be encoded
	about := json.RawMessage(`{"resultType":"complete"}`)
	if _, asks := result.(inputRequiredResult); asks {
		about = nil
	} else if isCacheable {
		about = json.RawMessage(`{"resultType":"complete","ttlMs":0,"cacheScope":"private"}`)
	}
	meta := merge(member(text, "_meta"), named)
	return merge(about, text, json.RawMessage(`{"_meta":`+string(meta)+`}`)), nil
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
	meta.ClientCapabilities = bytes.Clone(params.Capabilities) // not a part of the text of the message
	s.changeAgreement(x.Peer, func(a *agreement) { a.revision, a.meta = revision(version), meta })
	x.Peer.AllowBatches.Store(revision(version).Batches)
	declared, err := encode(s.capabilities(agreementOf(x.Peer).stateless))
	return ServerInfo{Version: version, Capabilities: declared, Info: &s.Info, Instructions: s.Instructions}, err
}

// discover says what a modern client can use.
func (s *Server) discover(context.Context, *Exchange) (any, error) {
	declared, err := encode(s.capabilities(false))
	return ServerInfo{Versions: offered(s.Versions, isAny), Capabilities: declared, Instructions: s.Instructions}, err
}

func (s *Server) ping(context.Context, *Exchange) (any, error) { return nil, nil }

// offers reports whether the server has a capability.
func (s *Server) offers(capability string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	resources := len(s.resources.keys) + len(s.templates.keys)
	counts := map[string]int{"tools": len(s.tools.keys), "resources": resources, "prompts": len(s.prompts.keys)}
	return counts[capability] > 0 || capability == "logging" && s.Logging
}

// capabilities returns what the server declares. Without a session, nothing is remembered, and
// there is no stream for what belongs to no request.
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

// ToolAnnotations say what a tool does to the world. They are hints: nobody checks them
// (2025-11-25 server/tools#tool).
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
// Its arguments are read into an A, as Bind does; the schema is for the client, and is not checked
// here. The result is a text, a Content, a ToolResult, an InputRequired, or anything that is encoded
// as a JSON object: then it is the structured content, too. An error becomes a result with IsError,
// which the model reads, and an *Error becomes the error of the request. AddTool panics if the schema
// has wrong marks for the header.
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
			return ToolError("%s", strings.ToUpper(reason[:1])+reason[1:]), nil
		}
		return run(ctx, x, arguments)
	}
	addOffer(s, &s.tools, "tools", t.Name, t, call)
}

// RemoveTool takes a tool back.
func (s *Server) RemoveTool(name string) { removeOffer(s, &s.tools, "tools", name) }

// rawCall are the params of tools/call as they come.
type rawCall struct {
	Name      string          `json:"name"`
	Arguments json.RawMessage `json:"arguments,omitempty"`
}

func (s *Server) callTool(ctx context.Context, x *Exchange, params rawCall) (any, error) {
	t, ok := findOffer(s, &s.tools, params.Name)
	if !ok {
		return nil, InvalidParams("Unknown tool: %.100s", params.Name)
	}
	result, err := s.withInput(ctx, x, func() (any, error) { return t.run(ctx, x, params.Arguments) })
	fault, isFault := errors.AsType[*Error](err)
	switch {
	case isFault && (x.Revision().Modern || fault.Code != CodeMissingCapability):
		return nil, fault
	case err != nil:
		return ToolError("%v", err), nil
	}
	return toolResult(result)
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
	case inputRequiredResult:
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
	if least == "" || slices.Index(logLevels, level) < slices.Index(logLevels, least) {
		return nil
	}
	return x.Notify(ctx, "notifications/message", map[string]any{"level": level, "data": data})
}

// SetLevelParams are the params of logging/setLevel.
type SetLevelParams struct {
	Level string `json:"level"`
}

func (s *Server) setLevel(_ context.Context, x *Exchange, params SetLevelParams) (any, error) {
	agreed := agreementOf(x.Peer)
	switch {
	case agreed.stateless:
		return nil, MethodNotFound(x.Request.Method)
	case !slices.Contains(logLevels, params.Level):
		return nil, InvalidParams("Unknown level: %.100s", params.Level)
	}
	s.changeAgreement(x.Peer, func(a *agreement) { a.meta.LogLevel = &params.Level })
	return nil, nil
}

// Require returns an error unless the client has declared the capabilities, such as "sampling"
// or "elicitation.url". It names all that is lacking.
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

// hasCapability reports whether the client has declared a capability, or a part of it. An
// elicitation without parts means forms.
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
// there are answers: what it did before it asked, it does twice. It is the same handler in both eras:
//
//	legacy: the server asks, and waits     modern: the result asks, and the client calls again
//	> tools/call, id 1                     > tools/call, id 1
//	< elicitation/create, id 1             < result 1: input_required, inputRequests, requestState
//	> result 1: the answer                 > tools/call, id 2: the same, with inputResponses, requestState
//	< result 1                             < result 2

// InputRequired says what a handler needs from the client.
type InputRequired struct {
	Requests map[string]InputRequest // by keys of the handler's choice
	State    string                  // comes back with the answers, within an hour; the client cannot read it
}

// InputRequest is one question: elicitation/create, sampling/createMessage or roots/list.
type InputRequest struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

// inputRequiredResult is an InputRequired as it travels in the modern era.
type inputRequiredResult struct {
	ResultType    string                  `json:"resultType"`
	InputRequests map[string]InputRequest `json:"inputRequests,omitempty"`
	RequestState  string                  `json:"requestState,omitempty"`
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
// answers at once.
const maxRounds, maxQuestions = 10, 1000

// Inputs returns the answers, by key.
func (x *Exchange) Inputs() map[string]json.RawMessage { return x.info().inputs }

// Input reads an answer. It returns false if there is none that fits.
func (x *Exchange) Input(key string, answer any) bool {
	text, ok := x.info().inputs[key]
	return ok && Bind(text, answer) == nil
}

// State returns the State of the InputRequired that was answered.
func (x *Exchange) State() string { return x.info().state }

// capability returns what a client must have declared to be asked.
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

// withInput runs a handler, and asks what it needs.
func (s *Server) withInput(ctx context.Context, x *Exchange, run func() (any, error)) (any, error) {
	isModern := x.Revision().Modern
	if isModern {
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
		if len(need.Requests) == 0 && need.State == "" {
			return nil, errors.New("an InputRequired asks nothing")
		}
		var capabilities []string
		for _, question := range need.Requests {
			capabilities = append(capabilities, question.capability())
		}
		if err := x.Require(capabilities...); err != nil {
			return nil, err
		}
		if isModern {
			return inputRequiredResult{"input_required", need.Requests, s.seal(x, need.State)}, nil
		}
		if err := x.ask(ctx, need); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("asked %d times", maxRounds)
}

// ask sends the questions to a legacy client, one after another.
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
	}
	return nil
}

// readInput reads the answers of a modern client.
func (s *Server) readInput(x *Exchange) error {
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

// ---- Announcements ----
//
// A subscriber is told of changes: a legacy client, or a request subscriptions/listen of a modern
// one. While there is something to tell, one goroutine tells it. What still waits is not told
// twice, so a slow client holds up nobody, and costs little.

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

func (f ListenFilter) isTooLarge() bool {
	return len(strings.Join(f.ResourceSubscriptions, ""))+50*len(f.ResourceSubscriptions) > maxSubscribed
}

func (f ListenFilter) wants(method, uri string) bool {
	switch method {
	case "notifications/tools/list_changed":
		return f.ToolsListChanged
	case "notifications/prompts/list_changed":
		return f.PromptsListChanged
	case "notifications/resources/list_changed":
		return f.ResourcesListChanged
	case "notifications/resources/updated":
		return slices.Contains(f.ResourceSubscriptions, uri)
	}
	return false
}

// subscriber is guarded by Server.mu.
type subscriber struct {
	filter  ListenFilter
	tell    func(*Message) error
	waiting []*Message
	isTold  bool // by a goroutine
	hasLeft bool
}

// Publish announces a change to all clients that want to hear of it: one of the methods of
// ListenFilter. Others are sent to nobody.
func (s *Server) Publish(method string, params any) {
	news, err := newMessage(method, params)
	if err != nil {
		return // it cannot be said
	}
	uri := textOf(member(news.Params, "uri"))
	isNews := func(m *Message) bool { return m.Method == method && bytes.Equal(m.Params, news.Params) }
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subscribers {
		if !sub.filter.wants(method, uri) || slices.ContainsFunc(sub.waiting, isNews) {
			continue
		}
		sub.waiting = append(sub.waiting, news)
		if !sub.isTold {
			sub.isTold = true
			go s.tell(sub) // ends when nothing waits
		}
	}
}

// tell tells a subscriber what waits.
func (s *Server) tell(sub *subscriber) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(sub.waiting) > 0 && !sub.hasLeft {
		news := sub.waiting[0]
		sub.waiting = sub.waiting[1:]
		s.mu.Unlock()
		_ = sub.tell(news) // if that fails, the client has gone
		s.mu.Lock()
	}
	sub.isTold = false
}

// addPeer makes a legacy client a subscriber, when it has said notifications/initialized.
func (s *Server) addPeer(p *Peer) {
	agreed := agreementOf(p)
	if agreed.stateless || agreed.revision.Version == "" {
		return
	}
	s.changeAgreement(p, func(a *agreement) { a.isReady = true })
	s.addSubscriber(p, &subscriber{
		filter: ListenFilter{PromptsListChanged: true, ResourcesListChanged: true, ToolsListChanged: true},
		tell:   func(m *Message) error { return p.via.send(p.ctx, m) },
	})
	context.AfterFunc(p.ctx, func() { s.removeSubscriber(p) })
}

func (s *Server) addSubscriber(key any, sub *subscriber) {
	s.removeSubscriber(key)
	s.mu.Lock()
	defer s.mu.Unlock()
	put(&s.subscribers, key, sub)
}

func (s *Server) removeSubscriber(key any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if sub := s.subscribers[key]; sub != nil {
		sub.hasLeft = true
		delete(s.subscribers, key)
	}
}

// subscribe serves resources/subscribe and resources/unsubscribe.
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

// listen serves a request that stays open, and carries the announcements
// (2026-07-28 basic/patterns/subscriptions).
func (s *Server) listen(ctx context.Context, x *Exchange, params ListenParams) (any, error) {
	filter := params.Notifications
	if filter.isTooLarge() {
		return nil, errSubscriptions
	}
	filter.ToolsListChanged = filter.ToolsListChanged && s.announces("tools")
	filter.PromptsListChanged = filter.PromptsListChanged && s.announces("prompts")
	filter.ResourcesListChanged = filter.ResourcesListChanged && s.announces("resources")
	if !s.announces("resources") {
		filter.ResourceSubscriptions = nil
	}
	name, _ := encode(map[string]json.RawMessage{metaSubscription: json.RawMessage(x.Request.ID.text)})
	accepted, err := encode(ListenParams{filter})
	if err == nil {
		err = x.Notify(ctx, "notifications/subscriptions/acknowledged", withMeta(accepted, name))
	}
	if err != nil {
		return nil, err
	}
	s.addSubscriber(x, &subscriber{filter: filter, tell: func(m *Message) error {
		return x.Notify(ctx, m.Method, withMeta(m.Params, name))
	}})
	defer s.removeSubscriber(x)
	select {
	case <-x.Ending:
	case <-ctx.Done():
	}
	return withMeta(nil, name), nil
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

	mu       sync.Mutex // guards the fields below
	current  *connection
	server   ServerInfo
	isClosed bool
}

// connection is what a Client knows about the other end of a Conn.
type connection struct {
	peer     *Peer
	revision Revision
	said     Meta            // what the client says about itself
	meta     json.RawMessage // the same, as the _meta of each modern request
	server   ServerInfo
}

// ErrSessionEnded means that the server does not know the session any more.
var ErrSessionEnded = errors.New("the session has ended")

// Connect finds a way to talk to the server: with the first Dialer, or with the next one if what
// answers is no server of this kind.
func (c *Client) Connect(ctx context.Context, dialers ...Dialer) error {
	c.dialers, c.connecting = dialers, make(chan struct{}, 1)
	_, err := c.connection(ctx)
	return err
}

// Server returns what the server has said about itself.
func (c *Client) Server() ServerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.server
}

// Close hangs up. Calls that wait fail.
func (c *Client) Close() error {
	c.mu.Lock()
	current := c.current
	c.isClosed = true
	c.mu.Unlock()
	if current == nil {
		return nil
	}
	return current.peer.Close()
}

// connection returns the connection. If there is none that works, it makes one; others wait
// meanwhile.
func (c *Client) connection(ctx context.Context) (*connection, error) {
	if c.connecting == nil {
		return nil, errors.New("Connect was not called")
	}
	select {
	case c.connecting <- struct{}{}:
		defer func() { <-c.connecting }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	c.mu.Lock()
	n, isClosed := c.current, c.isClosed
	c.mu.Unlock()
	switch {
	case isClosed:
		return nil, ErrClosed
	case n != nil && n.peer.reading.Err() == nil:
		return n, nil
	case n != nil:
		c.retire(n, context.Cause(n.peer.reading))
	}
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(c.ConnectTimeout, 30*time.Second))
	defer cancel()
	n, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.current, c.server, isClosed = n, n.server, c.isClosed
	c.mu.Unlock()
	if isClosed { // meanwhile
		n.peer.Close()
		return nil, ErrClosed
	}
	return n, nil
}

// retire gives a connection up. In a lost session other calls may be under way, and each must
// learn that the server has not read it; so that Conn ends by itself.
func (c *Client) retire(n *connection, why error) {
	c.mu.Lock()
	isCurrent := c.current == n
	if isCurrent {
		c.current = nil
	}
	c.mu.Unlock()
	if isCurrent && !errors.Is(why, ErrSessionEnded) {
		n.peer.Close()
	}
}

// connect tries one Dialer after another.
func (c *Client) connect(ctx context.Context) (n *connection, err error) {
	var failed error
	for _, dialer := range c.dialers {
		n, err = c.connectWith(ctx, dialer)
		if err == nil {
			return n, nil
		}
		failed = errors.Join(failed, err)
		if fault, status := reasons(err); fault.isModern() || !mayBeAnother(status) {
			break
		}
	}
	return nil, failed
}

// reasons returns what an error says: the Error of the server, and the status of HTTP. nil and 0
// stand for none.
func reasons(err error) (fault *Error, status int) {
	fault, _ = errors.AsType[*Error](err)
	if refusal, ok := errors.AsType[statusError](err); ok {
		status = refusal.StatusCode()
	}
	return fault, status
}

// statusError is an error of a Conn over HTTP.
type statusError interface {
	error
	StatusCode() int
}

// mayBeAnother reports whether a status may mean that a server of another kind is there.
func mayBeAnother(status int) bool { return status == 400 || status == 404 || status == 405 }

// connectWith connects with a Dialer.
func (c *Client) connectWith(ctx context.Context, dialer Dialer) (*connection, error) {
	n := &connection{}
	if err := c.describe(n); err != nil {
		return nil, err
	}
	if err := c.dial(ctx, n, dialer); err != nil {
		return nil, err
	}
	version, refusal, err := c.probe(ctx, n)
	if err == nil && !revision(version).Modern {
		err = c.initialize(ctx, n, version)
		if err != nil && n.peer.reading.Err() != nil { // a process that does not survive the question
			n.peer.Close()
			if err = c.dial(ctx, n, dialer); err == nil {
				err = c.initialize(ctx, n, version)
			}
		}
		if err != nil && refusal != nil {
			err = fmt.Errorf("%w (before that, server/discover: %v)", err, refusal)
		}
	}
	if err != nil {
		n.peer.Close()
		return nil, err
	}
	return n, nil
}

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

// probe asks server/discover, and returns the version to go on with: see the picture above.
// refusal is why the server does not seem to be of the modern era.
func (c *Client) probe(ctx context.Context, n *connection) (version string, refusal, err error) {
	modern, legacy := offered(c.Versions, isModern), offered(c.Versions, isLegacy)
	fallBack := func(refusal error) (string, error, error) {
		if len(legacy) == 0 {
			return "", nil, cmp.Or(refusal, errors.New("the server speaks none of the versions of this client"))
		}
		return legacy[0], refusal, nil
	}
	if len(modern) == 0 {
		return fallBack(nil)
	}
	c.speak(n, modern[0])
	soon, cancel := context.WithTimeout(ctx, cmp.Or(c.ProbeTimeout, 5*time.Second))
	defer cancel()
	text, err := n.peer.RoundTrip(soon, &Message{Method: "server/discover", Params: withMeta(nil, n.meta)})
	if err == nil && Bind(text, &n.server) == nil && len(n.server.Versions) > 0 {
		_ = json.Unmarshal(member(member(text, "_meta"), metaServerInfo), &n.server.Info) // it need not say
		version, err = c.pick(n, n.server.Versions)
		return version, nil, err
	}
	fault, status := reasons(err)
	isSilent := soon.Err() != nil
	switch {
	case ctx.Err() != nil:
		return "", nil, err
	case fault != nil && fault.Code == CodeUnsupportedVersion:
		var data struct{ Supported []string }
		_ = json.Unmarshal(fault.Data, &data) // if this fails, there are no versions
		version, err = c.pick(n, data.Supported)
		return version, nil, err
	case fault != nil && fault.Code == CodeMissingCapability:
		return modern[0], nil, nil
	case fault != nil && fault.Code == CodeHeaderMismatch:
		return "", nil, err
	case fault != nil && fault.Code == CodeMethodNotFound: // whatever the status is
	case status >= 300 && status < 400, status == 408, status == 429, status >= 500:
		return "", nil, err
	case err != nil && fault == nil && status == 0 && !isSilent && n.peer.reading.Err() == nil: // no network
		return "", nil, err
	}
	return fallBack(err)
}

// pick begins to speak the newest version that the server offers, too.
func (c *Client) pick(n *connection, versions []string) (string, error) {
	for _, version := range offered(c.Versions, isAny) {
		if slices.Contains(versions, version) {
			c.speak(n, version)
			return version, nil
		}
	}
	return "", fmt.Errorf("the server speaks %q, and this client does not", versions)
}

// speak begins to speak a version.
func (c *Client) speak(n *connection, version string) {
	n.revision, n.server.Version, n.said.ProtocolVersion = revision(version), version, version
	n.meta, _ = encode(n.said) // describe has checked its parts
	n.peer.Value.Store(agreement{revision: n.revision})
}

// describe encodes what the client says about itself.
func (c *Client) describe(n *connection) (err error) {
	declared := map[string]any{}
	for method, name := range questions {
		if c.Handlers[method] != nil {
			declared[name] = struct{}{}
		}
	}
	maps.Copy(declared, c.Capabilities)
	if n.said.ClientCapabilities, err = encode(declared); err == nil {
		n.said.ClientInfo, err = encode(c.Info)
	}
	return err
}

// questions are what a client may be asked, and the capability to answer it.
var questions = map[string]string{
	"elicitation/create": "elicitation", "sampling/createMessage": "sampling", "roots/list": "roots",
}

// initialize is the handshake of the legacy era.
func (c *Client) initialize(ctx context.Context, n *connection, version string) error {
	c.speak(n, version)
	params := InitializeParams{version, n.said.ClientCapabilities, n.said.ClientInfo}
	if err := n.peer.Call(ctx, "initialize", params, &n.server); err != nil {
		return fmt.Errorf("initialize: %w", err)
	}
	if !slices.Contains(offered(c.Versions, isLegacy), n.server.Version) {
		return fmt.Errorf("the server speaks %q, and this client does not", n.server.Version)
	}
	c.speak(n, n.server.Version)
	return n.peer.Notify(ctx, "notifications/initialized", nil)
}

// ---- Calls ----

// Call sends a request, and reads its result; a nil result is not read. If the server has
// questions, Handlers answer them. The error is an *Error if the server has answered with one. A
// request that the server has surely not read, because its session was lost, is sent once more.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.CallWithProgress(ctx, method, params, result, nil)
}

// CallWithProgress is Call. report gets the progress.
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

// withConnection runs send with the connection, and once more with a new one if the server has
// not read what was sent.
func (c *Client) withConnection(ctx context.Context, send func(n *connection) error) error {
	for isFirst := true; ; isFirst = false {
		n, err := c.connection(ctx)
		if err != nil {
			return err
		}
		err = send(n)
		fault, _ := reasons(err)
		isOtherVersion := n.revision.Modern && fault != nil && fault.Code == CodeUnsupportedVersion
		isUnread := isOtherVersion || errors.Is(err, errUnread)
		if isUnread {
			c.retire(n, err)
		}
		if !isUnread || !isFirst {
			return err
		}
	}
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
		var result json.RawMessage
		if err := c.Call(ctx, method, params, &result); err != nil {
			return nil, err
		}
		size += 1000 // of a page without items
		for _, text := range Each(member(result, name)) {
			var item T
			if size += len(text) + 100; size > maxList {
				break
			}
			if err := json.Unmarshal(text, &item); err != nil {
				return nil, fmt.Errorf("%s: %w", method, err)
			}
			items = append(items, item)
		}
		cursor := member(result, "nextCursor")
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
// announce anything in the legacy era, which Listen does not notice; there, the first of two Listens
// for one resource that ends, ends both.
func (c *Client) Listen(ctx context.Context, filter ListenFilter) error {
	n, err := c.connection(ctx)
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

func (n *connection) unsubscribe(uris []string) {
	ctx, cancel := context.WithTimeout(n.peer.ctx, 2*time.Second)
	defer cancel()
	for _, uri := range uris {
		_ = n.peer.Call(ctx, "resources/unsubscribe", ResourceParams{uri}, nil) // the server may have gone
	}
}

// exchange sends a request, in the modern era again until its result is complete. If the header
// does not repeat the arguments that the server wants to see there, the tools are listed once more:
// the Dialer learns from that list.
func (c *Client) exchange(ctx context.Context, n *connection, m Message, report ProgressFunc) (json.RawMessage, error) {
	params, hasListed := m.Params, false
	for range maxRounds {
		round := &Message{Method: m.Method, Params: params}
		if n.revision.Modern {
			round.Params = withMeta(params, n.meta)
		}
		result, err := n.peer.roundTrip(ctx, n.peer.via, round, report)
		fault, status := reasons(err)
		isMismatch := status == 400 && fault != nil && fault.Code == CodeHeaderMismatch && m.Method == "tools/call"
		if isMismatch && !hasListed {
			hasListed = true
			if _, err := List[json.RawMessage](ctx, c, "tools/list", "tools"); err == nil {
				continue
			}
		}
		if err != nil || !n.revision.Modern {
			return result, err
		}
		switch kind := textOf(member(result, "resultType")); kind {
		case "", "complete":
			return result, nil
		case "input_required":
			params, err = c.answer(ctx, n, m.Params, result)
			if err != nil {
				return nil, err
			}
		default:
			return nil, fmt.Errorf("the result has the unknown type %.100q", kind)
		}
	}
	return nil, fmt.Errorf("the server has asked %d times", maxRounds)
}

// answer answers the questions of a result, and returns the params of the next round, made of those of the call.
func (c *Client) answer(ctx context.Context, n *connection, params, result json.RawMessage) (json.RawMessage, error) {
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
		if len(answers) == maxQuestions {
			return nil, fmt.Errorf("the server asks more than %d questions at once", maxQuestions)
		}
		x := &Exchange{Request: question, Peer: n.peer, Value: &requestInfo{revision: n.revision}}
		answer, err := c.handleQuestion(ctx, x)
		if err != nil {
			return nil, fmt.Errorf("the server asks for %.100s: %w", question.Method, err)
		}
		answers[key] = answer
	}
	next := map[string]any{"inputResponses": answers}
	if !isAbsent(state) {
		next["requestState"] = state
	}
	text, err := encode(next)
	return merge(params, text), err
}

// handle serves what the server asks and tells. A server of the modern era must not send requests
// (2026-07-28 basic/transports/stdio), and could not read the answer.
func (c *Client) handle(ctx context.Context, x *Exchange) (any, error) {
	if x.Request.Kind() == KindRequest && agreementOf(x.Peer).revision.Modern {
		x.Peer.log.Warn("dropped a request of a server that must not ask", "method", x.Request.Method)
		return nil, errNoAnswer
	}
	return c.handleQuestion(ctx, x)
}

func (c *Client) handleQuestion(ctx context.Context, x *Exchange) (any, error) {
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

// ==== What a server offers ====

// ---- Lists ----

// pageSize is how many items one answer lists.
const pageSize = 50

// catalog is what a Server offers of one kind, sorted by key: what clients see of each item, and
// the function behind it. Server.mu guards it.
type catalog[T, F any] struct {
	keys  []string
	items map[string]offer[T, F]
}

type offer[T, F any] struct {
	shown T
	run   F
}

// addOffer adds an item, and announces that the list has changed.
func addOffer[T, F any](s *Server, c *catalog[T, F], kind, key string, shown T, run F) {
	s.mu.Lock()
	if at, isKnown := slices.BinarySearch(c.keys, key); !isKnown {
		c.keys = slices.Insert(slices.Clone(c.keys), at, key)
	}
	put(&c.items, key, offer[T, F]{shown, run})
	s.mu.Unlock()
	s.listChanged(kind)
}

func removeOffer[T, F any](s *Server, c *catalog[T, F], kind, key string) {
	s.mu.Lock()
	delete(c.items, key)
	c.keys = slices.DeleteFunc(slices.Clone(c.keys), func(k string) bool { return k == key })
	s.mu.Unlock()
	s.listChanged(kind)
}

func (s *Server) listChanged(kind string) {
	if s.announces(kind) {
		s.Publish("notifications/"+kind+"/list_changed", nil)
	}
}

func findOffer[T, F any](s *Server, c *catalog[T, F], key string) (found offer[T, F], ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok = c.items[key]
	return found, ok
}

type listParams struct {
	Cursor *string `json:"cursor,omitempty"`
}

// listOffers returns the items after the one that the cursor names, as a list with this name.
// change may change them; nil: it does not.
func listOffers[T, F any](s *Server, c *catalog[T, F], name string, params listParams, change func(*T)) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := 0
	if params.Cursor != nil {
		text, err := base64.RawURLEncoding.DecodeString(*params.Cursor)
		last, isOurs := strings.CutPrefix(string(text), "after ")
		if err != nil || !isOurs {
			return nil, InvalidParams("Unknown cursor")
		}
		from, _ = slices.BinarySearch(c.keys, last+"\x00") // the next key, also if last was removed meanwhile
	}
	to := min(from+pageSize, len(c.keys))
	items := []T{}
	for _, key := range c.keys[from:to] {
		item := c.items[key].shown
		if change != nil {
			change(&item)
		}
		items = append(items, item)
	}
	result := map[string]any{name: items}
	if to < len(c.keys) {
		result["nextCursor"] = base64.RawURLEncoding.EncodeToString([]byte("after " + c.keys[to-1]))
	}
	return result, nil
}

func (s *Server) listResources(_ context.Context, _ *Exchange, params listParams) (any, error) {
	return listOffers(s, &s.resources, "resources", params, nil)
}

func (s *Server) listTemplates(_ context.Context, _ *Exchange, params listParams) (any, error) {
	return listOffers(s, &s.templates, "resourceTemplates", params, nil)
}

func (s *Server) listPrompts(_ context.Context, _ *Exchange, params listParams) (any, error) {
	return listOffers(s, &s.prompts, "prompts", params, nil)
}

// listTools hides the marks for the header from legacy clients: some refuse unknown keywords.
func (s *Server) listTools(_ context.Context, x *Exchange, params listParams) (any, error) {
	return listOffers(s, &s.tools, "tools", params, func(t *Tool) {
		if !x.Revision().Modern {
			t.InputSchema = withoutMarks(t.InputSchema)
		}
	})
}

// ---- Content ----

// Content is a part of a result or of a prompt: text, image, audio, resource_link or resource.
type Content struct {
	Type        string            `json:"type"`
	Text        string            `json:"text,omitempty"`     // of text
	Data        []byte            `json:"data,omitempty"`     // of image and audio; travels as Base64
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

// MarshalJSON writes the text of a text even if it is empty.
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
	Blob     []byte          `json:"blob,omitempty"`
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
// for, without percent-encoding.
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
	addOffer(s, &s.resources, "resources", r.URI, r, read)
}

// RemoveResource takes a resource back.
func (s *Server) RemoveResource(uri string) { removeOffer(s, &s.resources, "resources", uri) }

// AddResourceTemplate offers the resources whose URIs fit a template.
func (s *Server) AddResourceTemplate(t ResourceTemplate, read ReadTemplateFunc) {
	parts := templateVariable.ReplaceAllString(regexp.QuoteMeta(t.URITemplate), "(?P<$1>[^/]+)")
	pattern := regexp.MustCompile("^" + parts + "$")
	addOffer(s, &s.templates, "resources", t.URITemplate, t, templateReader{pattern, read})
}

// RemoveResourceTemplate takes a template back.
func (s *Server) RemoveResourceTemplate(uriTemplate string) {
	removeOffer(s, &s.templates, "resources", uriTemplate)
}

// templateReader is a template as a regular expression, which Go matches in linear time.
type templateReader struct {
	pattern *regexp.Regexp
	read    ReadTemplateFunc
}

// templateVariable is a variable such as {name} after QuoteMeta.
var templateVariable = regexp.MustCompile(`\\\{(\w+)\\\}`)

// match returns a ReadFunc for a URI of the template; nil: it is none.
func (t templateReader) match(uri string) ReadFunc {
	found := t.pattern.FindStringSubmatch(uri)
	if found == nil {
		return nil
	}
	values := map[string]string{}
	for i, name := range t.pattern.SubexpNames() {
		if decoded, err := url.PathUnescape(found[i]); err == nil {
			values[name] = decoded
		}
	}
	delete(values, "") // the whole URI
	return func(ctx context.Context, x *Exchange, uri string) (any, error) { return t.read(ctx, x, uri, values) }
}

// findResource returns what reads a URI, and its media type; nil: nothing does.
func (s *Server) findResource(uri string) (read ReadFunc, mimeType string) {
	if r, ok := findOffer(s, &s.resources, uri); ok {
		return r.run, r.shown.MimeType
	}
	s.mu.Lock()
	keys := s.templates.keys // never changed, only replaced
	s.mu.Unlock()
	for _, key := range keys {
		if t, ok := findOffer(s, &s.templates, key); ok && t.run.match(uri) != nil {
			return t.run.match(uri), t.shown.MimeType
		}
	}
	return nil, ""
}

func (s *Server) readResource(ctx context.Context, x *Exchange, params ResourceParams) (any, error) {
	read, mimeType := s.findResource(params.URI)
	var contents any
	err := error(ResourceNotFound(params.URI))
	if read != nil {
		contents, err = s.withInput(ctx, x, func() (any, error) { return read(ctx, x, params.URI) })
	}
	if fault, ok := errors.AsType[*Error](err); ok && fault.Code == CodeResourceNotFound && x.Revision().Modern {
		return nil, &Error{Code: CodeInvalidParams, Message: fault.Message, Data: fault.Data}
	}
	held := ResourceContents{URI: params.URI, MimeType: mimeType}
	switch c := contents.(type) {
	case string:
		held.Text = c
	case []byte:
		held.Blob = c
	case ResourceContents:
		held = c
	default:
		return contents, err
	}
	return ReadResourceResult{[]ResourceContents{held}}, err
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
	addOffer(s, &s.prompts, "prompts", p.Name, p, get)
}

// RemovePrompt takes a prompt back.
func (s *Server) RemovePrompt(name string) { removeOffer(s, &s.prompts, "prompts", name) }

type getPromptParams struct {
	Name      string            `json:"name"`
	Arguments map[string]string `json:"arguments,omitempty"`
}

func (s *Server) getPrompt(ctx context.Context, x *Exchange, params getPromptParams) (any, error) {
	p, ok := findOffer(s, &s.prompts, params.Name)
	if !ok {
		return nil, InvalidParams("Unknown prompt: %.100s", params.Name)
	}
	for _, a := range p.shown.Arguments {
		if _, given := params.Arguments[a.Name]; a.Required && !given {
			return nil, InvalidParams("Missing required argument: '%s'", a.Name)
		}
	}
	result, err := s.withInput(ctx, x, func() (any, error) { return p.run(ctx, x, params.Arguments) })
	if text, ok := result.(string); ok {
		return PromptResult{p.shown.Description, []PromptMessage{{"user", TextContent(text)}}}, err
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

// Find returns the argument; nil: there is none. It is an error if a name on the way stands twice,
// in whatever case: the tool could take the other one.
func (p HeaderParam) Find(arguments json.RawMessage) (json.RawMessage, error) {
	for _, name := range p.Path {
		var found []json.RawMessage
		for n, value := range Each(arguments) {
			if strings.EqualFold(n, name) {
				found = append(found, value)
			}
		}
		if len(found) > 1 {
			return nil, fmt.Errorf("two arguments '%s'", name)
		}
		arguments = nil
		if len(found) == 1 {
			arguments = found[0]
		}
	}
	if isAbsent(arguments) {
		return nil, nil
	}
	return arguments, nil
}

// ReadHeaderParams returns what a schema marks.
func ReadHeaderParams(schema json.RawMessage) (marked []HeaderParam, err error) {
	if !bytes.Contains(schema, []byte(mark)) {
		return nil, nil
	}
	names := map[string]bool{}
	var read func(schema json.RawMessage, path []string)
	read = func(schema json.RawMessage, path []string) {
		if value := member(schema, mark); value != nil {
			name, kind := textOf(value), textOf(member(schema, "type"))
			isSimple := kind == "string" || kind == "integer" || kind == "boolean"
			isNew := !names[strings.ToLower(name)] && name != "" && strings.Trim(name, tokenChars) == ""
			if len(path) == 0 || !isSimple || !isNew {
				err = fmt.Errorf("%s %.100q is not a new name for a simple argument", mark, name)
			}
			names[strings.ToLower(name)] = true
			marked = append(marked, HeaderParam{name, path})
		}
		for name, property := range Each(member(schema, "properties")) {
			if len(path) < maxMarkDepth {
				read(property, append(slices.Clone(path), name))
			}
		}
	}
	read(bytes.TrimSpace(schema), nil)
	if err == nil && bytes.Count(schema, []byte(`"`+mark+`"`)) != len(marked) {
		err = errors.New(mark + " stands where no argument is, or too deep")
	}
	return marked, err
}

// maxMarkDepth bounds the work: each level is scanned once more.
const maxMarkDepth = 32

const tokenChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" // RFC 9110, 5.6.2

// withoutMarks returns a schema as a legacy client sees it.
func withoutMarks(schema json.RawMessage) json.RawMessage {
	if !bytes.Contains(schema, []byte(mark)) || schema[0] != '{' {
		return schema
	}
	parts, _ := members(schema)
	delete(parts, mark)
	for name, value := range parts {
		parts[name] = withoutMarks(value)
	}
	text, _ := encode(parts) // they are JSON
	return text
}

// HeaderParams returns the arguments of a tool that a modern client repeats in the header.
func (s *Server) HeaderParams(tool string) []HeaderParam {
	t, _ := findOffer(s, &s.tools, tool)
	marked, _ := ReadHeaderParams(t.shown.InputSchema) // AddTool has checked it
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
// client can neither read nor change it, nor use it later, for another request, or as another user
// (2026-07-28 basic/patterns/mrtr#server-requirements-basic-workflow).

// stateTTL is how long a user may take to answer.
const stateTTL = time.Hour

// seal makes a requestState; "": there is nothing to remember.
func (s *Server) seal(x *Exchange, state string) string {
	if state == "" {
		return ""
	}
	text := strconv.FormatInt(time.Now().Add(stateTTL).Unix(), 10) + " " + state
	return base64.RawURLEncoding.EncodeToString(s.stateSealer().Seal(nil, nil, []byte(text), sealedFor(x)))
}

// unseal is the reverse of seal.
func (s *Server) unseal(x *Exchange, sealed string) (string, error) {
	if sealed == "" {
		return "", nil
	}
	secret, _ := base64.RawURLEncoding.DecodeString(sealed) // if it is not, Open fails
	text, err := s.stateSealer().Open(nil, nil, secret, sealedFor(x))
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

// sealedFor returns what a requestState is bound to: the method, the user, and all params but
// those that a retry adds. The order of members does not count.
func sealedFor(x *Exchange) []byte {
	params, _ := members(x.Request.Params)
	for _, name := range []string{"_meta", "inputResponses", "requestState"} {
		delete(params, name)
	}
	text, _ := encode(params)
	return fmt.Appendf(nil, "%q %q %s", x.Request.Method, x.Principal, text)
}

// randomKey seals where there is no StateKey.
var randomKey = rand.Text()

func (s *Server) stateSealer() cipher.AEAD {
	key := sha256.Sum256([]byte(cmp.Or(string(s.StateKey), randomKey)))
	block, _ := aes.NewCipher(key[:]) // 32 bytes are a key
	sealer, _ := cipher.NewGCMWithRandomNonce(block)
	return sealer
}
