package main

// The lifecycle of both eras, from both ends. A legacy client shakes hands
// once, and the server remembers what it said; a modern one says it with each
// request. So a legacy session is a remembered _meta, and one handler serves
// both.
//
//	(each line also starts with "jsonrpc":"2.0", left out here)
//	> {"id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{…},"clientInfo":{…}}}
//	< {"id":1,"result":{"protocolVersion":"2025-11-25","capabilities":{…},"serverInfo":{…}}}
//	> {"method":"notifications/initialized"}
//	> {"id":2,"method":"tools/list"}
//
//	> {"id":2,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28",
//	      "io.modelcontextprotocol/clientCapabilities":{…},"io.modelcontextprotocol/clientInfo":{…}}}}
//	< {"id":2,"result":{"resultType":"complete","tools":[…],"_meta":{"io.modelcontextprotocol/serverInfo":{…}}}}
//
// A handler that must ask the user returns an InputRequired. A modern client
// gets it as the result and calls again with the answers; for a legacy one they
// are real requests, and the handler runs again.
//
// Sessions are what a server remembers of its HTTP clients: a Peer with an id,
// and its streams.
//
// A client goes down a ladder: server/discover, then initialize, then whatever
// else may be behind the URL. It keeps to what it has found, and when that is
// lost, or does not fit any more, it connects again; a call is made again only
// if no server can have read it.
//
// Implements 2025-11-25 basic/lifecycle and
// basic/transports#session-management, 2026-07-28 basic#meta, basic/versioning,
// basic/patterns/mrtr (multi round-trip requests),
// basic/patterns/subscriptions, server/discover. The Server's mutex guards whom
// to notify, the Client's which connection is in use, that of Sessions what
// each of them holds; locks nest in one order: a subscriber's turn, the Server,
// a reply (http.go), Sessions, then a Peer or a Stream. Goroutines: a
// subscriber has one that writes what was published, and one that waits for its
// turn; a timer ends idle sessions; a Client has one for each link, which makes
// and closes its connection. Copy with jsonrpc.go, sse.go, and stdio.go or
// http.go.

import (
	"bytes"
	"cmp"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// ---- The server ----

// Server is the Handler that knows the lifecycle of both eras, for any number
// of Conns at once. It answers initialize, ping, server/discover,
// logging/setLevel, subscriptions/listen, resources/subscribe and
// resources/unsubscribe itself; the rest is in Methods. Set the fields before
// the first request.
type Server struct {
	Info Implementation // required: what clients are told of us
	// Capabilities are told to clients as they are. A method of MCP that belongs
	// to one is served only if that is here: tools/call needs "tools", and
	// Exchange.Log needs "logging". Of tools, prompts and resources that are
	// declared the list is empty, if Methods does not answer it.
	Capabilities map[string]any
	Instructions string   // for the client's model; "": none
	Versions     []string // versions to offer, newest first; nil: all
	// Methods holds the rest by name, notifications included; that of a request
	// may return an InputRequired.
	Methods map[string]HandlerFunc
	// StateKey is the key of requestState, of any length, the same on all
	// replicas; empty: random.
	StateKey []byte

	once    sync.Once // for the fields below
	key     []byte
	info    json.RawMessage // what each modern result says of us
	caps    json.RawMessage
	logs    bool                   // logging is declared
	methods map[string]HandlerFunc // those of Methods whose capabilities are declared, and the lists that are empty
	hidden  []string               // the others

	warning sync.Once // of those that are hidden

	mu        sync.Mutex // guards the fields below
	legacy    map[*Peer]*subscriber
	listeners map[*subscriber]bool
}

// Handle answers a request in its own era, or takes in a notification.
func (s *Server) Handle(ctx context.Context, x *Exchange) (any, error) {
	s.once.Do(s.prepare)
	x.mute = !s.logs
	if len(s.hidden) > 0 && x.owner != nil {
		s.warning.Do(func() { s.warn(x.owner.log) })
	}
	declared := x.Meta.ProtocolVersion // by the request, or at initialize
	switch {
	case x.Request.Kind() == Notification:
		return s.hear(ctx, x)
	case declared != "" && !slices.Contains(s.Versions, declared):
		return nil, s.refuse(x.Request.Method, declared)
	case revision(declared).Modern:
		return s.handleModern(ctx, x)
	}
	return s.handleLegacy(ctx, x)
}

func (s *Server) prepare() {
	if s.key = s.StateKey; len(s.key) == 0 {
		s.key = []byte(rand.Text())
	}
	s.Versions = orAll(s.Versions)
	s.info, _ = marshal(Implementation{Name: s.Info.Name, Title: s.Info.Title, Version: s.Info.Version})
	s.caps, _ = marshalObject(s.Capabilities)
	s.logs = s.declares("logging")
	s.legacy, s.listeners = map[*Peer]*subscriber{}, map[*subscriber]bool{}
	s.methods = map[string]HandlerFunc{}
	maps.Copy(s.methods, s.Methods) // the map is the caller's
	s.answerLists()
	for _, method := range slices.Sorted(maps.Keys(s.methods)) {
		if !s.declares(behind[method]) {
			delete(s.methods, method)
			s.hidden = append(s.hidden, method)
		}
	}
}

// behind maps the methods of MCP that belong to a capability of the server to
// that capability. Without it they are not found, in any revision: 2026-07-28
// schema MethodNotFoundError, "gated behind a server capability the server did
// not advertise". What the server declares counts, not what a revision can
// announce: 2024-11-05 has completion/complete, but no capability for it.
var behind = map[string]string{
	"completion/complete": "completions", "logging/setLevel": "logging",
	"prompts/get": "prompts", "prompts/list": "prompts",
	"resources/list": "resources", "resources/read": "resources", "resources/templates/list": "resources",
	"resources/subscribe": "resources.subscribe", "resources/unsubscribe": "resources.subscribe",
	"tools/call": "tools", "tools/list": "tools",
}

// declares reports whether a capability is declared; "" always is.
func (s *Server) declares(capability string) bool {
	if capability == "" {
		return true
	}
	value := string(lookup(s.caps, strings.Split(capability, ".")...))
	return value != "" && value != "null" && value != "false"
}

// warn says which methods nobody can call.
func (s *Server) warn(log *slog.Logger) {
	for _, method := range s.hidden {
		log.Warn("a method is not served, as the Server does not declare its capability", "method", method, "capability", behind[method])
	}
}

// answerLists adds the lists that are declared and that Methods lacks. They are
// empty. 2026-07-28 server/tools#capabilities: "Servers that declare the tools
// capability MUST respond to tools/list requests"; the pages of prompts and
// resources say the same.
func (s *Server) answerLists() {
	for _, kind := range []string{"tools", "prompts", "resources"} {
		if method := kind + "/list"; s.declares(kind) && s.methods[method] == nil {
			s.methods[method] = func(context.Context, *Exchange) (any, error) {
				return map[string]any{kind: []any{}}, nil
			}
		}
	}
}

func methodNotFound(method string) *Error {
	return &Error{Code: CodeMethodNotFound, Message: fmt.Sprintf("Method not found: %.200s", method)}
}

// refuse returns the error for a version that is not on offer. A server without
// a modern version does not know the method: 2026-07-28 basic/versioning, "a
// recognized modern JSON-RPC error […] identifies a modern server", whose
// client would not fall back to initialize.
func (s *Server) refuse(method, version string) *Error {
	if newest(s.Versions, true) == "" {
		return served(s.Versions, CodeMethodNotFound, fmt.Sprintf("Method not found: %.200s", method))
	}
	return unsupported(s.Versions, version)
}

// newest returns the newest version on offer of an era, "" if none is.
func newest(versions []string, modern bool) string {
	for _, v := range versions {
		if rev := revision(v); rev.Version != "" && rev.Modern == modern {
			return v
		}
	}
	return ""
}

// ---- The modern era: 2026-07-28 ----

// handleModern checks what each modern request must say, in a fixed order, runs
// it, and completes its result.
func (s *Server) handleModern(ctx context.Context, x *Exchange) (any, error) {
	method := x.Request.Method
	switch {
	case x.Meta.ClientCapabilities == nil:
		// 2026-07-28 basic#meta: "the server MUST reject it with JSON-RPC error
		// code -32602"
		return nil, missingMeta(s.Versions, metaCapabilities)
	case x.Meta.LogLevel != "" && !slices.Contains(logLevels, x.Meta.LogLevel):
		return nil, unknown("log level", x.Meta.LogLevel)
	}
	h := s.methods[method]
	switch method {
	case "initialize":
		// 2026-07-28 basic/versioning: name the versions "in any error it
		// returns to an initialize request"
		return nil, served(s.Versions, CodeMethodNotFound, "Method not found: initialize")
	case "server/discover":
		h = s.discover
	case "subscriptions/listen":
		h = s.listen
	}
	if h == nil {
		return nil, methodNotFound(method)
	}
	if err := s.readInputs(x); err != nil {
		return nil, err
	}
	result, err := h(ctx, x)
	if need, asks := result.(InputRequired); asks && err == nil {
		result, err = s.requireInput(x, need)
	}
	if err != nil {
		return nil, x.unreserved(err)
	}
	return s.stamp(method, result)
}

// unreserved gives an error of a handler another code, if its own must not be
// sent. 2026-07-28 basic#error-codes: a server "MUST NOT emit" a code of the
// specification's range that is not defined, nor those of earlier revisions for
// a resource that is not found and for a URL that is to be visited.
func (x *Exchange) unreserved(err error) error {
	const reserved = 80 // codes, of which CodeHeaderMismatch is the first
	fault, ok := errors.AsType[*Error](err)
	switch {
	case !ok || fault == nil:
		return err
	case fault.Code == CodeResourceNotFound:
		return &Error{Code: x.Revision.ResourceNotFound, Message: fault.Message, Data: fault.Data}
	case fault.Code == CodeHeaderMismatch, fault.Code == CodeMissingCapability, fault.Code == CodeUnsupportedVersion,
		fault.Code > CodeHeaderMismatch, fault.Code <= CodeHeaderMismatch-reserved:
		return err
	}
	return &Error{Code: CodeInternalError, Message: fault.Message, Data: fault.Data}
}

// missingMeta is the -32602 of a request that lacks what it must declare.
func missingMeta(versions []string, field string) *Error {
	return served(versions, CodeInvalidParams, "Invalid params: _meta lacks "+field)
}

// served is an error that names our versions: a legacy client shows the
// message, and it may be the only hint its user gets.
func served(versions []string, code int, reason string) *Error {
	data, _ := marshal(map[string]any{"supported": versions})
	return &Error{Code: code, Message: fmt.Sprintf("%s (versions served: %s)", reason, strings.Join(versions, ", ")), Data: data}
}

func (s *Server) discover(context.Context, *Exchange) (any, error) {
	return struct {
		Versions     versionList     `json:"supportedVersions"`
		Capabilities json.RawMessage `json:"capabilities"`
		Instructions string          `json:"instructions,omitempty"`
		Meta         map[string]any  `json:"_meta"`
	}{s.Versions, s.caps, s.Instructions, map[string]any{metaServerInfo: s.Info}}, nil
}

// cacheable lists the methods whose results say how long they stay fresh
// (2026-07-28 server/utilities/caching).
var cacheable = []string{"server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list", "resources/read"}

// stamp adds to a modern result what every one has, unless the handler has said
// it: resultType, serverInfo and, where results may be cached, that this one
// may not.
func (s *Server) stamp(method string, result any) (any, error) {
	raw, err := marshalObject(result)
	if err != nil {
		return nil, err
	}
	var said [4]json.RawMessage
	members(raw, []string{"resultType", "ttlMs", "cacheScope", "_meta"}, said[:])
	kind, meta := said[0], said[3]
	full := object{make([]byte, 0, len(raw)+len(s.info)+160)}
	if kind == nil {
		full.add("resultType", []byte(`"complete"`))
	}
	full.addAll(raw, "_meta")
	if slices.Contains(cacheable, method) && unquote(kind) != "input_required" {
		if said[1] == nil {
			full.add("ttlMs", []byte("0"))
		}
		if said[2] == nil {
			full.add("cacheScope", []byte(`"private"`))
		}
	}
	stamped := object{make([]byte, 0, len(meta)+len(s.info)+64)}
	if stamped.addAll(meta); member(meta, metaServerInfo) == nil {
		stamped.add(metaServerInfo, s.info)
	}
	full.add("_meta", stamped.text())
	return full.text(), nil
}

// object is a JSON object under construction; its members keep the order in
// which they are added.
type object struct{ b []byte }

func (o *object) add(name string, value []byte) {
	o.b = append(o.b, "{,"[min(len(o.b), 1)])
	o.b = append(append(appendString(o.b, name), ':'), value...)
}

// addAll adds the members of another object, except for some.
func (o *object) addAll(other json.RawMessage, except ...string) {
	if len(other) == 0 || other[0] != '{' {
		return
	}
	for name, value := range each(other) {
		if !slices.Contains(except, string(name)) {
			o.add(string(name), value)
		}
	}
}

func (o *object) text() encoded {
	return append(o.b, "{}"[min(len(o.b), 1):]...)
}

// ---- The legacy era: initialize, and what it allows ----

func (s *Server) handleLegacy(ctx context.Context, x *Exchange) (any, error) {
	method := x.Request.Method
	h := s.methods[method]
	switch {
	case newest(s.Versions, false) == "":
		// 2026-07-28 basic/versioning: name the versions "in any error it
		// returns to an initialize request"
		return nil, missingMeta(s.Versions, metaVersion)
	case method == "initialize":
		return s.initialize(x)
	case method == "ping": // allowed at any time
		return nil, nil
	case x.Revision.Version == "":
		return nil, missingMeta(s.Versions, metaVersion)
	case x.Peer == nil: // nobody would remember a level, or a subscription
	case method == "logging/setLevel" && s.declares("logging"):
		h = s.setLevel
	case (method == "resources/subscribe" || method == "resources/unsubscribe") && s.offers("resources", "subscribe"):
		h = s.subscribe
	}
	if h == nil {
		return nil, methodNotFound(method)
	}
	for range maxRounds {
		result, err := h(ctx, x)
		// That is a code of the modern era only.
		if fault, ok := errors.AsType[*Error](err); ok && fault.Code == CodeMissingCapability {
			return cannotAsk(x, fault)
		}
		need, asks := result.(InputRequired)
		if err != nil || !asks {
			return result, err
		}
		if err := s.ask(ctx, x, need); err != nil {
			return cannotAsk(x, err)
		}
	}
	return cannotAsk(x, errors.New("too many questions"))
}

// initialize agrees on a version. 2025-11-25
// basic/lifecycle#version-negotiation: "If the server supports the requested
// protocol version, it MUST respond with the same version. Otherwise, the
// server MUST respond with another protocol version it supports." Some bridges
// keep one server for all their clients, one after the other; so a second
// initialize is agreed on anew, and nothing is left of the first.
func (s *Server) initialize(x *Exchange) (any, error) {
	var meta Meta
	var info json.RawMessage
	err := Bind(x.Request.Params, map[string]any{"protocolVersion": &meta.ProtocolVersion, "capabilities": &meta.ClientCapabilities, "clientInfo": &info})
	switch {
	case err != nil:
		return nil, err
	case meta.ProtocolVersion == "", len(meta.ClientCapabilities) == 0, meta.ClientCapabilities[0] != '{':
		return nil, invalidParams("Missing protocolVersion or capabilities")
	case len(meta.ClientCapabilities)+len(info) > maxMeta:
		return nil, invalidParams("capabilities and clientInfo have more than %d bytes", maxMeta)
	}
	var fault *Error
	if meta.ClientInfo, fault = parseImplementation(info); fault != nil {
		return nil, fault
	}
	rev := revision(meta.ProtocolVersion)
	if rev.Modern || !slices.Contains(s.Versions, rev.Version) { // the modern era has no handshake
		rev = revision(newest(s.Versions, false))
	}
	meta.ProtocolVersion = rev.Version
	if x.Peer != nil {
		// Copied, and without icons, or it might be megabytes to remember.
		meta.ClientCapabilities, meta.ClientInfo.Icons = bytes.Clone(meta.ClientCapabilities), nil
		if before, _ := x.Peer.Remembered(); before.Version != "" {
			x.Peer.renew()
		}
		x.Peer.Remember(rev, meta)
		s.remember(x.Peer)
	}
	return struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         Implementation  `json:"serverInfo"`
		Instructions string          `json:"instructions,omitempty"`
	}{rev.Version, s.capabilities(rev, x.Peer != nil), s.Info.in(rev), s.Instructions}, nil
}

// capabilities returns what a legacy client is offered. Where nothing is
// remembered between requests there are no announcements, no subscriptions and
// no log level.
func (s *Server) capabilities(rev Revision, remembers bool) json.RawMessage {
	var offered object
	for name, value := range each(s.caps) {
		if string(name) == "completions" && !rev.Completions || string(name) == "logging" && !remembers {
			continue
		}
		if !remembers {
			var rest object
			rest.addAll(value, "listChanged", "subscribe")
			value = json.RawMessage(rest.text())
		}
		offered.add(string(name), value)
	}
	return json.RawMessage(offered.text())
}

// in returns i with what rev knows of it.
func (i Implementation) in(rev Revision) Implementation {
	if !rev.Titles {
		i.Title = ""
	}
	if !rev.Icons {
		i.Icons = nil
	}
	return i
}

// hear takes in a notification; one without a method of ours is ignored.
func (s *Server) hear(ctx context.Context, x *Exchange) (any, error) {
	if x.Request.Method == "notifications/initialized" {
		s.mu.Lock()
		cmp.Or(s.legacy[x.Peer], new(subscriber)).ready = true
		s.mu.Unlock()
	}
	h := s.methods[x.Request.Method]
	// A request without an id would dodge every check.
	if h == nil || !strings.HasPrefix(x.Request.Method, "notifications/") {
		return nil, nil
	}
	return h(ctx, x)
}

// ---- Input: questions to the user, in either era ----

// InputRequired is a result that a handler of tools/call, prompts/get or
// resources/read may return instead of its own: the client is asked, and then
// the handler runs again with Exchange.Inputs and Exchange.State. Return it by
// value. Inputs holds the answers of the last round only, unchecked: what the
// handler needs from earlier ones it keeps in State. There are at most 16
// rounds in a call. A client that cannot be asked gets -32021, over HTTP with
// status 400 only if nothing has been sent yet and within a second: if asking
// comes late, call Exchange.Require first.
type InputRequired struct {
	Requests map[string]InputRequest // by key of the handler's choice
	State    string                  // given back; the client can read it but not change it
}

// InputRequest is one question: elicitation/create, sampling/createMessage or
// roots/list, and its params.
type InputRequest struct {
	Method string `json:"method"`
	Params any    `json:"params,omitempty"`
}

const (
	maxRounds = 16               // of questions in one call
	maxPages  = 1000             // of a list that a Client reads by itself
	maxSteps  = 3                // of a handshake
	stateLife = 15 * time.Minute // of a requestState, and of a question to a legacy client
)

// asking lists the methods that may ask: 2026-07-28
// basic/patterns/mrtr#supported-requests.
var asking = []string{"tools/call", "prompts/get", "resources/read"}

// Require fails with -32021 unless the client has declared capabilities, such
// as "sampling" or "elicitation.url". In the legacy era, which does not know
// that code, Server makes it a result with isError, or of another method than
// tools/call a -32603.
func (x *Exchange) Require(capabilities ...string) error {
	missing := map[string]map[string]any{}
	for _, path := range capabilities {
		name, part, _ := strings.Cut(path, ".")
		declared := member(x.Meta.ClientCapabilities, name)
		// One that is empty means form.
		formOnly := path == "elicitation.form" && declared != nil && member(declared, "url") == nil
		if part != "" && !formOnly {
			declared = member(declared, part)
		}
		if declared != nil && (x.Revision.Elicitation || name != "elicitation") {
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
	return &Error{Code: CodeMissingCapability, Message: "The client lacks " + strings.Join(slices.Sorted(maps.Keys(missing)), ", "), Data: data}
}

// mayAsk fails unless the client can be asked all that.
func (x *Exchange) mayAsk(need InputRequired) error {
	var paths []string
	for key, question := range need.Requests {
		params, err := marshalObject(question.Params)
		if err != nil {
			return fmt.Errorf("input %s: %w", key, err)
		}
		switch question.Method {
		case "elicitation/create":
			paths = append(paths, "elicitation."+cmp.Or(unquote(member(params, "mode")), "form"))
		case "sampling/createMessage":
			if paths = append(paths, "sampling"); member(params, "tools") != nil || member(params, "toolChoice") != nil {
				paths = append(paths, "sampling.tools")
			}
		case "roots/list":
			paths = append(paths, "roots")
		default:
			return fmt.Errorf("input %s: %s is not for the client", key, question.Method)
		}
	}
	return x.Require(paths...)
}

// requireInput makes the modern result. 2026-07-28 basic/patterns/mrtr:
// "Servers MUST NOT send an inputRequests that the client has not declared
// support for", and no other method may be answered so.
func (s *Server) requireInput(x *Exchange, need InputRequired) (any, error) {
	if !slices.Contains(asking, x.Request.Method) || len(need.Requests) == 0 && need.State == "" {
		return nil, fmt.Errorf("%s cannot ask that", x.Request.Method)
	}
	if err := x.mayAsk(need); err != nil {
		return nil, err
	}
	result := struct {
		Type     string                  `json:"resultType"`
		Requests map[string]InputRequest `json:"inputRequests,omitempty"`
		State    string                  `json:"requestState,omitempty"`
	}{"input_required", need.Requests, ""}
	if need.State != "" {
		result.State = s.seal(x, need.State, time.Now().Add(stateLife))
	}
	return result, nil
}

// readInputs takes the answers of a modern client's retry out of the params.
func (s *Server) readInputs(x *Exchange) error {
	var v [2]json.RawMessage
	if twice := members(x.Request.Params, []string{"inputResponses", "requestState"}, v[:]); twice != "" {
		return invalidParams("'%s' is there twice", twice)
	}
	if v[0] != nil {
		if v[0][0] != '{' {
			return invalidParams("'inputResponses' must be an object")
		}
		x.Inputs = map[string]json.RawMessage{}
		for key, answer := range each(v[0]) {
			if answer[0] != '{' || x.Inputs[string(key)] != nil {
				return invalidParams("the answer to '%s' must be one object", key)
			}
			x.Inputs[string(key)] = answer
		}
	}
	if v[1] != nil {
		return s.unseal(x, unquote(v[1]))
	}
	return nil
}

// seal makes a requestState: expiry, digest of the params, MAC and state.
// 2026-07-28 basic/patterns/mrtr: it "MUST protect its integrity", and SHOULD
// bind principal, expiry and the originating request.
func (s *Server) seal(x *Exchange, state string, expiry time.Time) string {
	head := append(binary.BigEndian.AppendUint64(nil, uint64(expiry.Unix())), digest(x.Request.Params)...)
	return base64.RawURLEncoding.EncodeToString(slices.Concat(head, s.mac(x, head, state), []byte(state)))
}

// unseal looks at the params only when the rest is known to be ours: to digest
// them is not cheap.
func (s *Server) unseal(x *Exchange, sealed string) error {
	const size = 8 + sha256.Size // of the head
	raw, err := base64.RawURLEncoding.DecodeString(sealed)
	if err != nil || len(raw) < size+sha256.Size {
		return invalidParams("requestState is not ours")
	}
	head, mac, state := raw[:size], raw[size:size+sha256.Size], string(raw[size+sha256.Size:])
	switch {
	case !hmac.Equal(mac, s.mac(x, head, state)):
		return invalidParams("requestState is not ours, or not for this request")
	case time.Now().Unix() > int64(binary.BigEndian.Uint64(head)):
		return invalidParams("requestState has expired")
	case !bytes.Equal(head[8:], digest(x.Request.Params)):
		return invalidParams("requestState is not for these params")
	}
	x.State = state
	return nil
}

// mac covers the expiry and the digest, the principal, the method and the
// state. There are no two ways to divide what it covers: the head has a fixed
// size, and the next two are quoted.
func (s *Server) mac(x *Exchange, head []byte, state string) []byte {
	h := hmac.New(sha256.New, s.key)
	fmt.Fprintf(h, "%s%q%q%s", head, x.Principal, x.Request.Method, state)
	return h.Sum(nil)
}

// digest sums up params without _meta and the retry's own members, however they
// are written.
func digest(params json.RawMessage) []byte {
	var tree map[string]any
	dec := json.NewDecoder(bytes.NewReader(params))
	dec.UseNumber()
	_ = dec.Decode(&tree) // the decoder of messages has accepted them
	for _, name := range []string{"_meta", "inputResponses", "requestState"} {
		delete(tree, name)
	}
	canonical, _ := json.Marshal(tree)
	sum := sha256.Sum256(canonical)
	return sum[:]
}

// ask puts the questions to a legacy client, as requests, one after the other
// in the order of their keys.
func (s *Server) ask(ctx context.Context, x *Exchange, need InputRequired) error {
	if err := x.mayAsk(need); err != nil {
		return err
	}
	s.mu.Lock()
	ready := s.legacy[x.Peer] != nil && s.legacy[x.Peer].ready
	s.mu.Unlock()
	// 2025-11-25 basic/lifecycle: no requests "before receiving the initialized
	// notification"
	if x.Peer != nil && !ready {
		return errors.New("the client has not sent notifications/initialized")
	}
	ctx, cancel := context.WithTimeout(ctx, stateLife)
	defer cancel()
	x.Inputs, x.State = map[string]json.RawMessage{}, need.State
	for _, key := range slices.Sorted(maps.Keys(need.Requests)) {
		var answer json.RawMessage
		if err := x.Call(ctx, need.Requests[key].Method, need.Requests[key].Params, &answer); err != nil {
			return err
		}
		x.Inputs[key] = answer
	}
	return nil
}

// cannotAsk tells a legacy client why its call came to nothing: of a tool that
// is a result, so that the model sees it.
func cannotAsk(x *Exchange, err error) (any, error) {
	if fault, ok := err.(*Error); ok && fault.Code == CodeMissingCapability {
		err = errors.New(fault.Message)
	}
	if x.Request.Method != "tools/call" {
		return nil, &Error{Code: CodeInternalError, Message: err.Error()}
	}
	return ToolResult{Content: []any{TextContent("The user cannot be asked: " + err.Error())}, IsError: true}, nil
}

// ToolResult is the result of tools/call. A tool that ran and failed says so in
// IsError, for the model to read, rather than by an error. For what is not
// here, such as structuredContent, return a type of your own.
type ToolResult struct {
	Content []any `json:"content"`
	IsError bool  `json:"isError,omitempty"`
	Meta    any   `json:"_meta,omitempty"` // encodes to an object
}

// TextContent returns a text block for ToolResult.Content.
func TextContent(text string) any {
	return struct {
		Type string `json:"type"`
		Text string `json:"text"`
	}{"text", text}
}

// lookup follows a path of member names into an object; nil if there is
// nothing.
func lookup(object json.RawMessage, path ...string) json.RawMessage {
	for _, name := range path {
		object = member(object, name)
	}
	return object
}

func (s *Server) offers(path ...string) bool { return string(lookup(s.caps, path...)) == "true" }

// ---- Logging and progress ----

// logLevels are the severities of RFC 5424, the least first.
var logLevels = []string{"debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"}

// Log sends a log message about the request, if its level is wanted. A modern
// request says so itself, or gets none (2026-07-28 server/utilities/logging:
// "MUST NOT emit notifications/message for a request that does not include this
// field"); a legacy client has set a level with logging/setLevel, and until
// then gets those from info upwards. A Server that has not declared logging
// sends none. level is one of debug, info, notice, warning, error, critical,
// alert and emergency, and another is dropped; data is anything that encodes to
// JSON.
func (x *Exchange) Log(ctx context.Context, level string, data any) error {
	least := x.Meta.LogLevel
	if least == "" && x.Peer != nil { // without a session nobody was told that there is logging
		least = "info"
	}
	if x.mute || least == "" || slices.Index(logLevels, level) < slices.Index(logLevels, least) {
		return nil
	}
	return x.Notify(ctx, "notifications/message", map[string]any{"level": level, "data": data})
}

func (s *Server) setLevel(_ context.Context, x *Exchange) (any, error) {
	var level string
	if err := Bind(x.Request.Params, map[string]any{"level": &level}); err != nil {
		return nil, err
	}
	if !slices.Contains(logLevels, level) {
		return nil, unknown("log level", level)
	}
	x.Peer.mu.Lock() // an initialize may come in meanwhile
	defer x.Peer.mu.Unlock()
	x.Peer.meta.LogLevel = level
	return nil, nil
}

// Progress tells how far the request has come, if the other side asked to know.
// progress must rise, so it is for one goroutine at a time, or it is an error;
// total 0 means unknown. It fails with ErrAnswered once the request is over.
func (x *Exchange) Progress(ctx context.Context, progress, total float64) error {
	token := x.Meta.ProgressToken
	switch {
	case token == nil:
		return nil
	case x.life == nil:
		return ErrAnswered
	case !(progress <= math.MaxFloat64), !(math.Abs(total) <= math.MaxFloat64): // JSON has no such numbers
		return fmt.Errorf("progress %v of %v", progress, total)
	}
	x.owner.mu.Lock()
	rises := progress > x.life.progress
	x.life.progress = max(progress, x.life.progress)
	x.owner.mu.Unlock()
	if !rises { // 2025-11-25 progress: "The progress value MUST increase with each notification"
		return fmt.Errorf("progress %v does not rise", progress)
	}
	params := append(make([]byte, 0, len(token)+80), `{"progressToken":`...)
	params = append(append(params, token...), `,"progress":`...)
	params = strconv.AppendFloat(params, progress, 'f', -1, 64)
	if total != 0 {
		params = strconv.AppendFloat(append(params, `,"total":`...), total, 'f', -1, 64)
	}
	return x.Notify(ctx, "notifications/progress", encoded(append(params, '}')))
}

// ---- Announcing changes ----

const (
	maxWatched  = 1024     // resources per subscriber
	maxMeta     = 16 << 10 // bytes that a legacy client says of itself
	maxWatching = 64 << 10 // bytes of the URIs that one legacy client watches
)

// subscriber hears of changes: a legacy peer, or whoever has sent a
// subscriptions/listen request.
type subscriber struct {
	peer *Peer
	send func(*Message)
	turn sync.Mutex // held by who sends: what is sent has an order, and send ends with its context

	// The Server's mutex guards the fields below.
	ready   bool            // once it has sent notifications/initialized, if it is a legacy peer
	lists   map[string]bool // what it has asked for, by method; nil: everything
	watched map[string]bool // resources, by URI
	waiting []change        // not yet sent, one for each thing
}

// change is what a subscriber is to hear of one thing: a list, or the resource
// with this URI.
type change struct {
	news *Message
	uri  string
}

// Publish announces a change, such as notifications/tools/list_changed: to
// every initialized legacy peer, and to the modern listeners whose filter names
// it. notifications/resources/updated goes to those that have subscribed to its
// uri. It never waits: of several changes of one list or resource, who is
// behind hears the last. What Capabilities do not offer is not announced.
// params may be nil; if they are no JSON object nothing is sent.
func (s *Server) Publish(method string, params any) {
	s.once.Do(s.prepare)
	m, err := NewRequest(ID{}, method, params)
	kind, list := strings.CutSuffix(strings.TrimPrefix(method, "notifications/"), "/list_changed")
	// 2025-11-25 basic/lifecycle#operation: "Only use capabilities that were
	// successfully negotiated"
	if err != nil || list && !s.offers(kind, "listChanged") {
		return
	}
	c := change{news: m}
	if method == "notifications/resources/updated" {
		c.uri = unquote(member(m.Params, "uri"))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.legacy {
		s.tell(sub, c)
	}
	for sub := range s.listeners {
		s.tell(sub, c)
	}
}

// tell has a subscriber hear of a change, if it wants to. What waits already,
// and is about the same thing, need not be sent any more: so there is never
// more waiting than what a subscriber has asked for, and nobody who reads is
// too slow.
func (s *Server) tell(sub *subscriber, c change) {
	wanted := sub.lists == nil || sub.lists[c.news.Method]
	if c.news.Method == "notifications/resources/updated" {
		wanted = sub.watched[c.uri]
	}
	if !wanted || !sub.ready {
		return
	}
	same := func(other change) bool { return other.news.Method == c.news.Method && other.uri == c.uri }
	if i := slices.IndexFunc(sub.waiting, same); i >= 0 {
		sub.waiting[i] = c
	} else if sub.waiting = append(sub.waiting, c); len(sub.waiting) == 1 {
		sub.peer.notice(func() { s.drain(sub) })
	}
}

// drain sends what waits. What comes meanwhile has a goroutine of its own,
// which has its turn next.
func (s *Server) drain(sub *subscriber) {
	sub.turn.Lock()
	defer sub.turn.Unlock()
	s.mu.Lock()
	waiting := sub.waiting
	sub.waiting = nil
	s.mu.Unlock()
	for _, c := range waiting {
		sub.send(c.news)
	}
}

// remember makes a peer that has initialized a subscriber, until it does so
// again or ends.
func (s *Server) remember(peer *Peer) {
	sub := &subscriber{peer: peer}
	sub.send = func(m *Message) {
		s.mu.Lock()
		current := s.legacy[peer] == sub
		s.mu.Unlock()
		if !current { // what still waited was for another client
			return
		}
		if err := peer.outlet(peer.ctx, m); err != nil {
			peer.log.Debug("notification not sent", "method", m.Method, "error", brief(err.Error()))
		}
	}
	s.mu.Lock()
	s.legacy[peer] = sub
	s.mu.Unlock()
	peer.whenEnded(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.legacy, peer)
	})
}

// subscribe answers resources/subscribe and resources/unsubscribe.
func (s *Server) subscribe(_ context.Context, x *Exchange) (any, error) {
	var uri string
	switch err := Bind(x.Request.Params, map[string]any{"uri": &uri}); {
	case err != nil:
		return nil, err
	case uri == "":
		return nil, invalidParams("Missing uri")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sub := s.legacy[x.Peer]
	if sub == nil { // it has ended meanwhile
		return nil, errStopping
	}
	size := len(uri)
	for other := range sub.watched {
		size += len(other)
	}
	switch {
	case x.Request.Method == "resources/unsubscribe":
		delete(sub.watched, uri)
	case !sub.watched[uri] && (len(sub.watched) >= maxWatched || size > maxWatching):
		return nil, errors.New("too many subscriptions")
	case sub.watched == nil:
		sub.watched = map[string]bool{uri: true}
	default:
		sub.watched[uri] = true
	}
	return nil, nil
}

// listen answers subscriptions/listen: an acknowledgement, then what was asked
// for, each with the id of this request, until the client cancels or the server
// winds down. 2026-07-28 basic/patterns/subscriptions.
func (s *Server) listen(ctx context.Context, x *Exchange) (any, error) {
	sub := &subscriber{peer: x.owner, ready: true}
	agreed, err := s.filter(x, sub)
	if err != nil {
		return nil, err
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	id := json.RawMessage(x.Request.ID.text)
	sub.send = func(m *Message) {
		var meta, params object
		meta.add(metaSubscription, id)
		meta.addAll(member(m.Params, "_meta"), metaSubscription)
		params.add("_meta", meta.text())
		params.addAll(m.Params, "_meta")
		if err := x.Notify(ctx, m.Method, params.text()); err != nil {
			fail(err)
		}
	}
	sub.turn.Lock() // what is published from now on comes after the acknowledgement
	s.mu.Lock()
	room := len(s.listeners) < maxListeners
	if room {
		s.listeners[sub] = true
	}
	s.mu.Unlock()
	if !room {
		sub.turn.Unlock()
		return nil, errListeners
	}
	tag := map[string]any{metaSubscription: id}
	err = x.Notify(ctx, "notifications/subscriptions/acknowledged", map[string]any{"_meta": tag, "notifications": agreed})
	sub.turn.Unlock()
	if err == nil {
		select {
		case <-x.Ending:
		case <-ctx.Done():
			err = context.Cause(ctx)
		}
	}
	s.mu.Lock()
	delete(s.listeners, sub)
	s.mu.Unlock()
	s.drain(sub) // what was published before the end is still sent
	// 2026-07-28 basic/patterns/cancellation: the server "MUST send
	// notifications/cancelled" when it tears a subscription down. It follows the
	// result: a client that gets it first may take that for an abrupt end, and
	// the result for an answer to nothing.
	if x.reader != nil {
		x.life.trailer, _ = NewRequest(ID{}, "notifications/cancelled", map[string]any{"_meta": tag, "requestId": id})
	}
	return map[string]any{"_meta": tag}, err
}

// filter reads what a listener wants, and returns the part of it that is on
// offer.
func (s *Server) filter(x *Exchange, sub *subscriber) (agreed map[string]any, err error) {
	var asked json.RawMessage
	var uris []string
	if err = Bind(x.Request.Params, map[string]any{"notifications": &asked}); err == nil {
		err = Bind(asked, map[string]any{"resourceSubscriptions": &uris})
	}
	switch {
	case err != nil:
		return nil, err
	case asked == nil:
		return nil, invalidParams("Missing notifications")
	case len(uris) > maxWatched, slices.Contains(uris, ""):
		return nil, invalidParams("resourceSubscriptions must be at most %d URIs", maxWatched)
	}
	agreed, sub.lists, sub.watched = map[string]any{}, map[string]bool{}, map[string]bool{}
	for _, list := range []string{"tools", "prompts", "resources"} {
		if field := list + "ListChanged"; s.offers(list, "listChanged") && string(member(asked, field)) == "true" {
			agreed[field], sub.lists["notifications/"+list+"/list_changed"] = true, true
		}
	}
	if len(uris) > 0 && s.offers("resources", "subscribe") {
		agreed["resourceSubscriptions"] = uris
		for _, uri := range uris {
			sub.watched[uri] = true
		}
	}
	return agreed, nil
}

// ---- Sessions: what a legacy server remembers of its HTTP clients ----

const (
	maxEnded  = 16              // streams of a session that can be resumed though they have ended
	maxKept   = 4 << 20         // their bytes
	endedLife = 5 * time.Minute // for how long they can
	maxHeld   = 256 << 20       // bytes of those in all sessions; beyond it a session drops its own
)

// Sessions is the table of sessions of one StreamableHandler. Set the fields
// before the first request. The zero Sessions works, but its streams cannot be
// resumed: set Keep. To keep state of your own for a session, key it by
// Exchange.Peer and drop it when Peer.Context ends. 2025-11-25
// basic/transports#session-management: an id "SHOULD be globally unique and
// cryptographically secure" and "MUST only contain visible ASCII characters";
// what NewID returns is not checked.
type Sessions struct {
	NewID func() string // nil: 130 random bits
	Keep  int           // events of each stream for a client that comes back; 0: none, and no ids
	// IdleTimeout ends a session that has been without a request, an open
	// stream or running work for so long. 0: 30 min, negative: never.
	IdleTimeout time.Duration
	Max         int // sessions at once; 0: 10,000
	// Opened is called before initialize is answered, and must not block. All
	// already has the session, so it may end meanwhile. nil: not wanted.
	Opened func(*Session)
	// Ended is called by whoever ends the session: a request, a timer, Close.
	// context.Cause of its Context says why. nil: not wanted.
	Ended func(*Session)
	Log   *slog.Logger // nil: that of the handler

	keepAlive time.Duration // of streams

	mu       sync.Mutex // guards the fields below, and those of each Session
	byID     map[string]*Session
	held     int64 // bytes that ended streams hold
	sweeping bool  // a timer is set
	closed   bool
}

// Session is a legacy HTTP client as it is remembered from one request to the
// next: a Peer with an id, and its streams.
type Session struct {
	*Peer
	ID    string // no credential: whoever presents it must be Owner, too
	Owner string // the principal that has opened it; "" if nobody is asked

	table *Sessions

	// The table's mutex guards the fields below.
	busy       int                // requests being answered and streams being followed
	since      time.Time          // when busy fell to 0
	standalone *Stream            // what belongs to no request; nil: nobody has asked for it
	streams    map[string]*Stream // this one and those of requests, by id
	ended      []*Stream          // of requests, those that have ended, oldest first
	kept       int64              // bytes that these hold
	lastStream int
}

// Why a session has ended.
var (
	ErrSessionDeleted = errors.New("deleted by the client")
	ErrSessionIdle    = errors.New("idle for too long")
	ErrSessionClosed  = errors.New("closed by the server")
)

// create returns a session that is not in the table, and busy: add it when the
// client has been initialized, or Delete it.
func (ss *Sessions) create(owner string) *Session {
	id := rand.Text()
	if ss.NewID != nil {
		id = ss.NewID()
	}
	s := &Session{ID: id, Owner: owner, table: ss, busy: 1}
	s.Peer = newPeer(context.Background(), s.send, ss.Log)
	return s
}

// add puts a session into the table, unless that is full.
func (ss *Sessions) add(s *Session) error {
	if err := ss.insert(s); err != nil {
		return err
	}
	if ss.Opened != nil {
		ss.Opened(s)
	}
	return nil
}

func (ss *Sessions) insert(s *Session) error {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	switch {
	case ss.closed:
		return ErrSessionClosed
	case len(ss.byID) >= cmp.Or(ss.Max, 10_000):
		return errors.New("too many sessions")
	case ss.byID[s.ID] != nil:
		return errors.New("NewID has repeated an id")
	case ss.byID == nil:
		ss.byID = map[string]*Session{}
	}
	ss.byID[s.ID] = s
	if !ss.sweeping {
		ss.sweepLater()
	}
	return nil
}

// get returns a session of this owner, or nil. It does not become idle until it
// is released.
func (ss *Sessions) get(id, owner string) *Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	s := ss.byID[id]
	if s == nil || s.Owner != owner || s.idle() { // somebody else's id is as good as none: 404
		return nil
	}
	s.busy++
	return s
}

// release takes back what create or get has counted as activity.
func (s *Session) release() {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.busy--
	s.since = time.Now()
}

// idle tells whether nothing has happened for too long.
func (s *Session) idle() bool { return s.busy == 0 && time.Since(s.since) >= s.table.ttl() }

// Len returns how many sessions there are.
func (ss *Sessions) Len() int { return len(ss.All()) }

// Delete ends a session, for a reason: its streams end, its handlers' contexts
// too, waiting calls fail. It may be called again.
func (ss *Sessions) Delete(s *Session, why error) {
	ss.mu.Lock()
	known := ss.byID[s.ID] == s
	if known {
		delete(ss.byID, s.ID)
	}
	s.prune()
	streams := slices.Collect(maps.Values(s.streams))
	ss.mu.Unlock()
	s.Peer.fail(fmt.Errorf("%w: the session was %w", ErrClosed, why))
	s.Peer.end(why)
	for _, stream := range streams {
		stream.End()
	}
	if !known {
		return
	}
	s.log.Info("session ended", "session", s.tag(), "reason", why)
	if ss.Ended != nil {
		ss.Ended(s)
	}
}

// Close ends all sessions, and no more can be added.
func (ss *Sessions) Close() {
	ss.mu.Lock()
	ss.closed = true
	ss.mu.Unlock()
	for _, s := range ss.All() {
		ss.Delete(s, ErrSessionClosed)
	}
}

// All returns the sessions there are, in no order.
func (ss *Sessions) All() []*Session {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return slices.Collect(maps.Values(ss.byID))
}

// ttl returns how long a session may be idle.
func (ss *Sessions) ttl() time.Duration {
	if ss.IdleTimeout < 0 {
		return math.MaxInt64
	}
	return cmp.Or(ss.IdleTimeout, 30*time.Minute)
}

// sweepLater sets the timer, so that no session outlives its time by more than
// a quarter.
func (ss *Sessions) sweepLater() {
	ss.sweeping = true
	time.AfterFunc(min(ss.ttl()/4+time.Millisecond, time.Minute), ss.sweepIdle)
}

// sweepIdle ends the sessions that have been idle for too long, and comes again
// as long as there are any. A stream that nobody has come back to for so long
// counts as lost, or the work for it would keep the session busy.
func (ss *Sessions) sweepIdle() {
	since := time.Now().Add(-ss.ttl())
	for _, s := range ss.All() {
		ss.mu.Lock()
		s.prune()
		streams, idle := slices.Collect(maps.Values(s.streams)), s.idle()
		ss.mu.Unlock()
		for _, stream := range streams {
			if stream.abandoned(since) {
				stream.lost()
			}
		}
		if idle { // and nobody can get it any more
			ss.Delete(s, ErrSessionIdle)
		}
	}
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.sweeping = false; len(ss.byID) > 0 {
		ss.sweepLater()
	}
}

// Close ends the session.
func (s *Session) Close() error {
	s.table.Delete(s, ErrSessionClosed)
	return nil
}

// tag begins the ids of all events of the session: it is the same for all,
// tells nothing of the session's id, and is refused in another's.
func (s *Session) tag() string {
	sum := sha256.Sum256([]byte(s.ID))
	return hex.EncodeToString(sum[:4])
}

// newStream makes a stream as the session's revision has them; lost is called
// when nobody can read it any more.
func (s *Session) newStream(number int, lost func()) *Stream {
	rev, _ := s.Remembered()
	keep := 0
	if rev.Resume {
		keep = s.table.Keep
	}
	stream := NewStream(s.tag()+"."+strconv.Itoa(number), keep)
	stream.prime, stream.keepAlive = rev.Prime, s.table.keepAlive
	stream.lost = func() {
		s.Peer.failVia(stream, errNobody)
		lost()
	}
	if s.streams == nil {
		s.streams = map[string]*Stream{}
	}
	s.streams[stream.id] = stream
	if s.over() {
		stream.End()
	}
	return stream
}

// polls tells whether a response may be let go of before its stream has ended.
func (s *Session) polls() bool {
	rev, _ := s.Remembered()
	return rev.Prime && s.table.Keep > 0
}

// open returns a new stream for a request; retire it when it has ended.
func (s *Session) open(lost func()) *Stream {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	s.lastStream++
	return s.newStream(s.lastStream, lost)
}

// listen returns the stream of what belongs to no request. There is one for
// each session, and a newer GET takes it over. 2025-11-25
// basic/transports#multiple-connections: the server "MUST NOT broadcast the
// same message across multiple streams."
func (s *Session) listen() *Stream {
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if s.standalone == nil {
		s.standalone = s.newStream(0, func() {})
	}
	return s.standalone
}

// find returns the stream that an event id names, or nil.
func (s *Session) find(event string) *Stream {
	id, _, _ := strings.Cut(event, "/")
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	return s.streams[id]
}

// send is the Peer's outlet.
func (s *Session) send(ctx context.Context, m *Message) error {
	s.table.mu.Lock()
	stream := s.standalone
	s.table.mu.Unlock()
	if stream == nil {
		return errNobody
	}
	return s.sendOn(ctx, stream, m)
}

// sendOn sends a message as an event.
func (s *Session) sendOn(ctx context.Context, stream *Stream, m *Message) error {
	if m.Kind() == Request {
		s.Peer.sentVia(m.ID, stream)
	}
	return stream.send(ctx, m)
}

// retire puts away a request's stream that has ended. If a client may come back
// for it, it is kept for a while.
func (s *Session) retire(stream *Stream) {
	size, resumable := stream.holds()
	s.table.mu.Lock()
	defer s.table.mu.Unlock()
	if !resumable {
		delete(s.streams, stream.id)
		return
	}
	s.ended = append(s.ended, stream)
	s.kept += size
	s.table.held += size
	s.prune()
}

// prune drops ended streams, the oldest first: what is too much or nobody has
// come back to for too long, and all when the session is over.
func (s *Session) prune() {
	most, since := maxEnded, time.Now().Add(-endedLife)
	if s.over() || s.table.held > maxHeld {
		most = 0
	}
	for len(s.ended) > 0 && (len(s.ended) > most || s.kept > maxKept || s.ended[0].abandoned(since)) {
		size, _ := s.ended[0].holds()
		s.kept -= size
		s.table.held -= size
		delete(s.streams, s.ended[0].id)
		s.ended = slices.Delete(s.ended, 0, 1)
	}
}

// over tells whether the session has ended.
func (s *Session) over() bool { return s.table.byID[s.ID] != s }

// ---- The client ----

// Client talks to one server, whatever its revision: it finds out which, and
// keeps to it. Set the fields before Connect; then any number of goroutines may
// use it. A call takes as long as its context allows.
//
// Of the errors of a call, an *Error, alone or in an *HTTPError, is what the
// server has answered; ErrTooLarge is an answer beyond the Dialer's max; and
// the context's own error means that the caller gave up. After any other
// (another *HTTPError, ErrClosed, ErrInterrupted, ErrSessionEnded, one of
// net/http) the server may or may not have done what it was asked.
type Client struct {
	Info         Implementation
	Capabilities map[string]any // what Handler can be asked; nil: nothing
	// Handler answers what the server asks, in either era, and hears its
	// notifications. nil: nobody does.
	Handler  Handler
	Versions []string // to speak, newest first; nil: all
	// ProbeTimeout is how long a server may leave server/discover unanswered
	// before it counts as legacy; 0: 5 s.
	ProbeTimeout time.Duration
	Log          *slog.Logger // nil: silent

	mu    sync.Mutex // guards the fields below
	dials []Dialer
	life  context.Context // until Close
	end   context.CancelFunc
	link  *link          // that calls use, or wait for; nil: not yet
	last  *connection    // that was made
	work  sync.WaitGroup // one for each link; Go holding mu, and not once life has ended
}

// A Conn is bytes that come and go; a connection is what was found out about
// who is at the other end of one; a link is the way to a connection, shared by
// the calls of a Client.

// link is a connection that is made once for all who wait for it, and then used
// by all. Nobody waits for ever, or gets a failure from before they came.
type link struct {
	began  time.Time
	needed context.Context // until Close; or until no more are to use it, and those who do are done
	drop   context.CancelFunc
	made   chan struct{} // closed when one of the next two is set
	conn   *connection
	err    error

	// The Client's mutex guards these:
	users int
	left  bool // no more are to use it
}

// connection is what a Client has found at the other end.
type connection struct {
	link   *link
	peer   *Peer
	rung   int // of the ladder: which Dialer has led here
	rev    Revision
	says   object // of _meta, in the modern era
	server ServerInfo
	probed bool            // server/discover has failed
	odd    bool            // and not with -32601, as it should where it is not known
	unfit  bool            // all is to be found out anew; the Client's mutex guards it
	hears  context.Context // until nothing is heard from the server but answers; the cause says why
	deafen context.CancelCauseFunc

	watching chan struct{}  // held by who changes watched
	watched  map[string]int // how many subscriptions each resource has, in the legacy era
}

// ServerInfo is what a server says of itself. Info is nil where it did not.
type ServerInfo struct {
	Version      string // of the protocol, agreed on
	Info         *Implementation
	Capabilities json.RawMessage
	Instructions string
}

// Connect opens a Conn and finds out how to talk over it: server/discover first
// and then, unless the answer is that of a modern server, initialize. If
// initialize is refused with 400, 404 or 405, the next Dialer is tried: for a
// URL, DialHTTP and then DialSSE. Connect is called once in a Client's life.
// What it has found is kept. When the connection is lost later, was never made,
// or does not fit the server any more, the next call connects again; a call
// that no server has read is then sent, and others fail: they are never sent
// twice.
func (c *Client) Connect(ctx context.Context, dials ...Dialer) error {
	c.mu.Lock()
	c.dials = dials
	c.life, c.end = context.WithCancel(context.WithoutCancel(ctx))
	c.mu.Unlock()
	return c.on(ctx, func(*connection) error { return nil })
}

// Server returns what the server said of itself when we connected; before that,
// the zero ServerInfo.
func (c *Client) Server() ServerInfo {
	c.mu.Lock()
	defer c.mu.Unlock()
	return cmp.Or(c.last, new(connection)).server
}

// Close hangs up, and ends an attempt to connect; waiting calls fail with
// ErrClosed. A session is ended with DELETE, which is waited for 0.7 s at most.
// It may be called again, but not by Handler.
func (c *Client) Close() (err error) {
	c.mu.Lock()
	last := c.last
	if c.end != nil {
		c.end()
	}
	c.mu.Unlock()
	if last != nil {
		err = last.peer.Close()
	}
	c.work.Wait()
	return err
}

// on runs f, which makes one call, on the connection. If that turns out not to
// fit any more, and nobody has read the call, it is run once more, on another.
func (c *Client) on(ctx context.Context, f func(*connection) error) error {
	l, err := c.connected(ctx)
	if err != nil {
		return err
	}
	err = f(l.conn)
	again, anew := l.conn.misfit(err)
	c.release(l, again || anew, anew)
	if !again || ctx.Err() != nil {
		return err
	}
	next, failed := c.connected(ctx)
	if failed != nil {
		return fmt.Errorf("%w; connecting again: %w", err, failed)
	}
	defer c.release(next, false, false)
	if anew && next.conn.rev.Version == l.conn.rev.Version { // the same would come of it
		return err
	}
	return f(next.conn)
}

// misfit tells whether a call that has failed may be made again, on another
// connection, and whether all is to be found out anew for that. 2026-07-28
// basic/versioning#backward-compatibility-with-initialization-based-versions.
func (c *connection) misfit(err error) (again, anew bool) {
	var fault *HTTPError
	switch {
	case errors.Is(err, ErrInterrupted), errors.As(err, new(begun)): // whatever else it says
		return false, false
	case errors.As(err, new(unread)):
		return true, false
	case !errors.As(err, &fault):
		return false, false
	case fault.code() == CodeUnsupportedVersion:
		return true, true
	}
	anew = c.rev.Modern && fault.fellThrough()
	// an error with an id is the answer of somebody who has read the call
	return anew && fault.id == ID{}, anew
}

// begun marks the error of a call of which the server has read a part, such as
// the question to an answer.
type begun struct{ error }

func (e begun) Unwrap() error { return e.error }

// connected returns the link for one more call, once it is made; release it.
func (c *Client) connected(ctx context.Context) (*link, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	l := c.join()
	if l == nil {
		return nil, ErrClosed
	}
	var err error
	select {
	case <-l.made:
		err = l.err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		c.release(l, false, false)
		return nil, err
	}
	return l, nil
}

// join returns the link, for one more user, or a new one if it is of no use any
// more; nil once Close has been called.
func (c *Client) join() *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life == nil || c.life.Err() != nil {
		return nil
	}
	if !c.link.usable() {
		if c.link != nil {
			c.link.leave() // who waits for it may do so
		}
		c.link = c.begin()
	}
	c.link.users++
	return c.link
}

// hopeless is the age of a link that is not made by then: whoever comes later
// begins another.
const hopeless = 30 * time.Second

func (l *link) usable() bool {
	switch {
	case l == nil || l.left:
		return false
	case l.conn == nil:
		return time.Since(l.began) < hopeless
	}
	return l.conn.peer.Context().Err() == nil
}

// begin makes a link, on a goroutine that also closes it when it is not needed
// any more. The caller holds mu.
func (c *Client) begin() *link {
	l := &link{began: time.Now(), made: make(chan struct{})}
	l.needed, l.drop = context.WithCancel(c.life)
	c.work.Go(func() {
		// They stay so if a Dialer calls runtime.Goexit, as t.FailNow does.
		conn, err := (*connection)(nil), errors.New("a Dialer has ended its goroutine")
		defer func() {
			c.settle(l, conn, err)
			if <-l.needed.Done(); conn != nil {
				_ = conn.peer.Close()
			}
		}()
		conn, err = c.open(l)
	})
	return l
}

// settle notes what has come of a link.
func (c *Client) settle(l *link, conn *connection, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.life.Err() != nil {
		err = ErrClosed
	}
	if l.conn, l.err = conn, err; err != nil {
		l.left = true
	} else {
		c.last = conn
		l.left = l.left || errors.Is(context.Cause(conn.hears), ErrSessionEnded) // by now
	}
	close(l.made)
}

// release says that a call is done; leave, that no more are to use the link;
// anew, that the next one is to be found out anew.
func (c *Client) release(l *link, leave, anew bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.users--; anew {
		l.conn.unfit = true
	}
	if leave || l.left || l.conn == nil && l.users == 0 {
		l.leave()
	}
}

// leave has no more calls use the link. The caller holds the Client's mutex.
func (l *link) leave() {
	if l.left = true; l.conn != nil {
		l.conn.deafen(ErrSessionEnded)
	}
	if l.users == 0 {
		l.drop()
	}
}

// ---- The client's ladder ----

// open connects as the last time, if that fits, or else finds out how, from the
// first Dialer to the last.
func (c *Client) open(l *link) (conn *connection, err error) {
	if len(c.dials) == 0 {
		return nil, errors.New("there is nothing to dial")
	}
	onwards, err := true, l.needed.Err() // which is all there is if nobody waits any more
	c.mu.Lock()
	last := c.last
	known := last != nil && !last.unfit
	c.mu.Unlock()
	if known {
		conn, onwards, err = c.try(l, last.rung, last.rev.Modern)
		onwards = onwards || errors.As(err, new(*Error))
	}
	for rung := 0; rung < len(c.dials) && conn == nil && onwards && l.needed.Err() == nil; rung++ {
		var failed error
		conn, onwards, failed = c.try(l, rung, rung == 0)
		err = chain(failed, err)
	}
	return conn, err
}

// attempts is the error of several attempts, of the last one first.
type attempts struct{ errs []error }

// chain adds to an error what went wrong before.
func chain(err, before error) error {
	if err == nil || before == nil {
		return err
	}
	all := new(attempts)
	for _, err := range []error{err, before} {
		if several, ok := err.(*attempts); ok {
			all.errs = append(all.errs, several.errs...)
		} else {
			all.errs = append(all.errs, err)
		}
	}
	return all
}

// Error returns what all of them say.
func (a *attempts) Error() string {
	text, between := a.errs[0].Error(), " (after "
	for _, err := range a.errs[1:] {
		text += between + err.Error()
		between = "; after "
	}
	return text + ")"
}

// Unwrap returns them all.
func (a *attempts) Unwrap() []error { return a.errs }

// afterProbe marks the error of initialize on a connection on which
// server/discover has failed. Some servers do not get over that. One that has
// answered both, and server/discover with -32601, has got over it, and means
// what it says of initialize.
type afterProbe struct{ error }

func (a afterProbe) Unwrap() error { return a.error }

// try dials, and takes the steps of a handshake: server/discover, unless the
// server is known to be legacy, then initialize; and one of them again if the
// server says so, or its session has gone, or the probe has ended it. When it
// fails, onwards says that something else may be there. 2026-07-28
// basic/transports/stdio#backward-compatibility and
// basic/transports/streamable-http#backward-compatibility.
func (c *Client) try(l *link, rung int, modern bool) (conn *connection, onwards bool, err error) {
	versions := orAll(c.Versions)
	version := cmp.Or(newest(versions, modern), newest(versions, !modern))
	for range maxSteps {
		var failed error
		if conn == nil {
			if conn, failed = c.start(l, rung); failed != nil {
				return nil, leadsOn(failed), chain(failed, err)
			}
		}
		if modern = revision(version).Modern; modern {
			version, failed = c.discover(l.needed, conn, version)
			if failed != nil {
				fault, answered := errors.AsType[*Error](failed)
				conn.probed = true
				conn.odd = conn.odd || !answered || fault.Code != CodeMethodNotFound
			}
		} else {
			version, failed = c.initialize(l.needed, conn, version)
			_, answered := errors.AsType[*Error](failed)
			if failed != nil && conn.probed && (conn.odd || !answered) && !errors.Is(failed, errNoVersion) {
				failed = afterProbe{failed}
			}
		}
		if version == "" && failed == nil {
			return conn, false, nil
		}
		err = cmp.Or(chain(failed, err), err)
		onwards = !modern && leadsOn(failed) && conn.rev.Version == ""
		if version == "" || l.needed.Err() != nil {
			break
		}
		if errors.Is(failed, ErrClosed) && !conn.probed {
			break // it has ended, though nothing was asked of it that it may not know
		}
		if gone(failed) {
			_ = conn.peer.Close()
			conn = nil
		}
	}
	if conn != nil {
		_ = conn.peer.Close()
	}
	return nil, onwards, err
}

// gone tells whether the server, or its session, has ended during a handshake.
func gone(err error) bool { return errors.Is(err, ErrClosed) || errors.As(err, new(unread)) }

// leadsOn tells whether an error is an answer over HTTP that leads to the next
// rung.
func leadsOn(err error) bool {
	var fault *HTTPError
	return errors.As(err, &fault) && fault.fellThrough()
}

// fellThrough tells whether what was sent is not for this server: 400, 404 or
// 405, and no error that only a modern server has.
func (e *HTTPError) fellThrough() bool {
	return slices.Contains([]int{http.StatusBadRequest, http.StatusNotFound, http.StatusMethodNotAllowed}, e.Status) && !e.modern()
}

// modernCodes are those that only modern servers have, whatever the status.
var modernCodes = []int{CodeHeaderMismatch, CodeMissingCapability, CodeUnsupportedVersion}

// modern tells whether only a modern server has this error.
func (e *HTTPError) modern() bool {
	return slices.Contains(modernCodes, e.code()) || e.code() == CodeMethodNotFound && e.Status == http.StatusNotFound
}

// code returns the code of the error of JSON-RPC in it; 0: there is none.
func (e *HTTPError) code() int { return cmp.Or(e.fault, new(Error)).Code }

// undecided tells whether a probe that has failed leaves it open what the
// server speaks. It does not if the server could not be reached, or wants
// something first; these are to be reported.
func undecided(err error) bool {
	var fault *HTTPError
	switch {
	case errors.As(err, new(*url.Error)):
		return false
	case !errors.As(err, &fault):
		return true
	}
	first := []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusRequestTimeout, http.StatusTooManyRequests}
	return !slices.Contains(first, fault.Status) && fault.Status/100 != 3 && fault.Status < 500
}

func (c *Client) start(l *link, rung int) (*connection, error) {
	pipe, err := c.dials[rung](l.needed)
	if err != nil {
		return nil, err
	}
	conn := &connection{link: l, rung: rung, watching: make(chan struct{}, 1), watched: map[string]int{}}
	pump := newPump(context.WithoutCancel(l.needed), pipe, HandlerFunc(c.handle), c.Log, nil, true)
	conn.peer = pump.peer
	conn.peer.troubled = func(err error) { c.troubled(conn, err) }
	conn.hears, conn.deafen = context.WithCancelCause(conn.peer.Context())
	pump.start() // last: what is read needs the rest
	return conn, nil
}

// troubled hears of the transport's troubles, on the goroutine that reads.
func (c *Client) troubled(conn *connection, err error) {
	if err != errNoStream {
		conn.peer.log.Warn("transport", "error", brief(err.Error()))
	}
	if errors.Is(err, errToolLeftOut) {
		return
	}
	conn.deafen(err)
	c.mu.Lock()
	defer c.mu.Unlock()
	// Not if it is one that the ladder has left behind.
	if errors.Is(err, ErrSessionEnded) && conn.link.conn == conn {
		conn.link.leave()
	}
}

var errNoVersion = errors.New("no protocol version in common")

// pick returns the newest of our versions that is among the server's.
func (c *Client) pick(theirs []string) (string, error) {
	for _, v := range orAll(c.Versions) {
		if slices.Contains(theirs, v) {
			return v, nil
		}
	}
	return "", fmt.Errorf("%w: the server speaks %q", errNoVersion, theirs)
}

// versionList holds as many versions of a list as anybody can speak. A server
// may send more.
type versionList []string

const maxVersions = 100

// UnmarshalJSON keeps the first of them.
func (list *versionList) UnmarshalJSON(text []byte) error {
	if !bytes.HasPrefix(text, []byte("[")) {
		return errors.New("not a list of versions")
	}
	*list = versionList{}
	for _, version := range each(text) {
		if len(*list) == maxVersions {
			break
		}
		*list = append(*list, fmt.Sprintf("%.100s", unquote(version)))
	}
	return nil
}

// supported returns the versions that an error lists.
func supported(err error) (versions versionList) {
	var fault *Error
	if errors.As(err, &fault) && len(fault.Data) > 0 {
		_ = json.Unmarshal(member(fault.Data, "supported"), &versions)
	}
	return versions
}

// discover asks a server what it speaks, as the step of a handshake: it returns
// the version with which to go on, "" if there is nothing more to do or to try.
// -32021 and -32022 come from modern servers only.
func (c *Client) discover(ctx context.Context, conn *connection, version string) (next string, err error) {
	limit := cmp.Or(c.ProbeTimeout, 5*time.Second)
	ctx, stop := context.WithTimeout(ctx, limit)
	defer stop()
	defer time.AfterFunc(time.Second, func() {
		waits := []any{"limit", limit}
		if newest(orAll(c.Versions), false) != "" {
			waits = append(waits, "then", "initialize")
		}
		conn.peer.log.Info("waiting for an answer to server/discover", waits...)
	}).Stop()
	// a modern server may not ask anything; this one may turn out to be legacy
	conn.peer.Remember(revision(version), Meta{})
	conn.says = c.introduce(revision(version))
	var versions versionList
	found, err := inquire(ctx, conn, "server/discover", conn.declare(nil, nil), "supportedVersions", "capabilities", "_meta", "instructions")
	if err == nil && (json.Unmarshal(found[0], &versions) != nil || versions == nil) {
		err = errors.New("the answer has no supportedVersions")
	}
	fault := new(Error)
	switch errors.As(err, &fault); {
	case err == nil:
		next, err = c.pick(versions)
	case fault.Code == CodeMissingCapability: // it was only the question that was too much
		next, err = version, nil
	case fault.Code == CodeUnsupportedVersion:
		var none error
		next, none = c.pick(supported(err))
		err = cmp.Or(none, err)
	case fault.Code != CodeHeaderMismatch && undecided(err):
		next = newest(orAll(c.Versions), false)
	}
	if err == nil && revision(next).Modern {
		c.agree(conn, next, found[1], member(found[2], metaServerInfo), found[3])
		return "", nil
	}
	conn.peer.Remember(Revision{}, Meta{})
	if err != nil {
		err = fmt.Errorf("server/discover: %w", err)
	}
	return next, err
}

// initialize shakes hands, as the step of a handshake. 2025-11-25
// basic/lifecycle#version-negotiation: the client that cannot speak the version
// answered "SHOULD disconnect".
func (c *Client) initialize(ctx context.Context, conn *connection, version string) (next string, err error) {
	params := struct {
		Version      string          `json:"protocolVersion"`
		Capabilities json.RawMessage `json:"capabilities"`
		Info         Implementation  `json:"clientInfo"`
	}{version, c.capabilities(revision(version)), c.Info.in(revision(version))}
	agreed, err := inquire(ctx, conn, "initialize", params, "protocolVersion", "capabilities", "serverInfo", "instructions")
	if err == nil {
		chosen := unquote(agreed[0])
		if revision(chosen).Modern || !slices.Contains(orAll(c.Versions), chosen) {
			return "", fmt.Errorf("initialize: %w: the server wants %q", errNoVersion, chosen)
		}
		c.agree(conn, chosen, agreed[1], agreed[2], agreed[3])
		if err = conn.peer.Notify(ctx, "notifications/initialized", nil); err == nil {
			return "", nil
		}
		err = fmt.Errorf("notifications/initialized: %w", err)
	}
	var fault *HTTPError
	switch other, none := c.pick(supported(err)); {
	case none == nil:
		next = other
	case gone(err):
		next = version
	case errors.As(err, &fault) && fault.modern(): // so it is, though it did not say so before
		next = newest(orAll(c.Versions), true)
	}
	return next, fmt.Errorf("initialize: %w", err)
}

// inquire makes a call of the handshake, and returns members of its result, nil
// for those that it lacks: by exact name, as the transport reads them, or the
// two might not agree on the version.
func inquire(ctx context.Context, conn *connection, method string, params any, names ...string) ([]json.RawMessage, error) {
	values := make([]json.RawMessage, len(names))
	var result json.RawMessage
	err := conn.peer.Call(ctx, method, params, &result)
	if twice := members(result, names, values); twice != "" {
		err = fmt.Errorf("the answer has two members %s", twice)
	}
	return values, err
}

// agree notes what was found out.
func (c *Client) agree(conn *connection, version string, capabilities, info, instructions json.RawMessage) {
	conn.rev = revision(version)
	conn.says = c.introduce(conn.rev)
	conn.server = ServerInfo{Version: version, Capabilities: capabilities, Instructions: unquote(instructions)}
	conn.server.Info, _ = parseImplementation(info)
	conn.peer.Remember(conn.rev, Meta{})
}

// introduce prepares what each modern request says in _meta. 2026-07-28
// basic#meta: protocolVersion and clientCapabilities "MUST be included on every
// request".
func (c *Client) introduce(rev Revision) (says object) {
	info, _ := marshal(c.Info.in(rev))
	says.add(metaVersion, appendString(nil, rev.Version))
	says.add(metaClientInfo, info)
	says.add(metaCapabilities, c.capabilities(rev))
	return says
}

// capabilities returns what we declare: of what we can do, that which rev
// knows.
func (c *Client) capabilities(rev Revision) json.RawMessage {
	declared := maps.Clone(c.Capabilities)
	if !rev.Elicitation {
		delete(declared, "elicitation")
	}
	raw, _ := marshalObject(declared)
	return raw
}

// ---- The client's calls ----

// handle answers what the server asks, in either era, and hears its
// notifications.
func (c *Client) handle(ctx context.Context, x *Exchange) (any, error) {
	switch {
	case x.Request.Method == "ping" && x.Request.Kind() == Request:
		return nil, nil
	case x.Request.Method == "notifications/subscriptions/acknowledged":
		x.owner.compare(x.Request)
	}
	if c.Handler != nil {
		return c.Handler.Handle(ctx, x)
	}
	return nil, methodNotFound(x.Request.Method)
}

// Call sends a request and stores its result, as Peer.Call does. In the modern
// era it adds what each request must say to _meta, asks Handler what an
// input_required result wants to know, and calls again with the answers. What a
// server answers with a status other than 2xx is an *HTTPError; errors.As finds
// the *Error in it.
func (c *Client) Call(ctx context.Context, method string, params, result any) error {
	return c.on(ctx, func(conn *connection) error {
		if conn.rev.Modern {
			return c.callModern(ctx, conn, method, params, result)
		}
		return conn.peer.Call(ctx, method, params, result)
	})
}

func (c *Client) callModern(ctx context.Context, conn *connection, method string, params, result any) error {
	given, err := marshalObject(params)
	if err != nil {
		return fmt.Errorf("params of %s: %w", method, err)
	}
	var answers json.RawMessage
	for range maxRounds {
		var raw json.RawMessage
		call := func() error { return conn.peer.Call(ctx, method, conn.declare(given, answers), &raw) }
		err := call()
		if fault := (*HTTPError)(nil); method == "tools/call" && errors.As(err, &fault) && fault.code() == CodeHeaderMismatch && c.listTools(ctx, conn) == nil {
			err = call() // now that the transport knows which arguments go into the header
		}
		switch kind := member(raw, "resultType"); {
		case err != nil && answers != nil:
			return begun{err}
		case err != nil:
			return err
		case kind == nil, unquote(kind) == "complete":
			// 2026-07-28 basic#resulttype: absent means complete
			return (&Message{Result: raw}).store(result)
		case unquote(kind) != "input_required":
			return fmt.Errorf("unknown resultType %s", kind)
		}
		if answers, err = c.answer(ctx, conn, raw); err != nil {
			return fmt.Errorf("input required: %w", err)
		}
	}
	return fmt.Errorf("asked %d times for input", maxRounds)
}

// listTools has the tools listed, for the transport. 2026-07-28
// basic/transports/streamable-http#client-behavior: after -32020 a client
// "SHOULD call tools/list to check for changes to the tool's inputSchema, then
// retry the original request".
func (c *Client) listTools(ctx context.Context, conn *connection) error {
	params := json.RawMessage("{}")
	for range maxPages {
		var result json.RawMessage
		if err := conn.peer.Call(ctx, "tools/list", conn.declare(params, nil), &result); err != nil {
			return err
		}
		cursor := member(result, "nextCursor")
		if len(cursor) == 0 || cursor[0] != '"' {
			return nil
		}
		params = slices.Concat([]byte(`{"cursor":`), cursor, []byte("}"))
	}
	return nil
}

// declare returns the params of a modern request: those given, the answers of a
// retry, and _meta.
func (c *connection) declare(given, answers json.RawMessage) encoded {
	params, meta := object{}, object{slices.Clip(c.says.b)}
	if answers == nil {
		params.addAll(given, "_meta")
	} else {
		params.addAll(given, "_meta", "inputResponses", "requestState")
	}
	params.addAll(answers)
	meta.addAll(member(given, "_meta"), metaVersion, metaClientInfo, metaCapabilities)
	params.add("_meta", meta.text())
	return params.text()
}

// answer puts the questions of an input_required result to Handler, and returns
// what the retry says beside its params. What Handler is asked ends with the
// connection, as a request of a legacy server does. 2026-07-28
// basic/patterns/mrtr: the client "MUST echo back the exact value" of
// requestState, and sends none if there was none.
func (c *Client) answer(ctx context.Context, conn *connection, result json.RawMessage) (json.RawMessage, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(conn.peer.Context(), cancel)()
	var v [2]json.RawMessage
	members(result, []string{"inputRequests", "requestState"}, v[:])
	// "at least one of inputRequests or requestState", says the same page.
	if v[0] == nil && v[1] == nil || v[0] != nil && v[0][0] != '{' {
		return nil, errors.New("the result does not say which")
	}
	var retry, responses object
	if v[1] != nil {
		retry.add("requestState", v[1])
	}
	if v[0] == nil {
		return json.RawMessage(retry.text()), nil
	}
	for key, raw := range each(v[0]) {
		question := &Message{ID: StringID(string(key)), Method: unquote(member(raw, "method")), Params: member(raw, "params")}
		if !slices.Contains([]string{"elicitation/create", "sampling/createMessage", "roots/list"}, question.Method) {
			return nil, methodNotFound(question.Method)
		}
		x := &Exchange{Request: question, Revision: conn.rev, owner: conn.peer}
		answer := x.handle(ctx, HandlerFunc(c.handle))
		switch {
		case conn.peer.Context().Err() != nil:
			return nil, context.Cause(conn.peer.Context())
		case answer.Error != nil:
			return nil, fmt.Errorf("%s: %w", question.Method, answer.Error)
		}
		responses.add(string(key), answer.Result)
	}
	retry.add("inputResponses", responses.text())
	return json.RawMessage(retry.text()), nil
}

// Notify sends a notification, and returns when the server has taken it; its
// errors are those of Call. 2026-07-28 has none that a client sends over HTTP.
func (c *Client) Notify(ctx context.Context, method string, params any) error {
	return c.on(ctx, func(conn *connection) error { return conn.peer.Notify(ctx, method, params) })
}

// Listen subscribes to what filter names, and returns when the subscription
// ends: nil if the server has ended it, ctx's error if that has. Any other
// error means that changes may have been missed; call it again, and read what
// is to be followed anew. Handler hears the changes. filter is that of
// subscriptions/listen (2026-07-28 basic/patterns/subscriptions):
// toolsListChanged, promptsListChanged, resourcesListChanged and
// resourceSubscriptions. In the legacy era the latter are subscribed to one by
// one, and the others come unasked.
func (c *Client) Listen(ctx context.Context, filter map[string]any) error {
	asked, err := marshalObject(filter)
	if err != nil {
		return fmt.Errorf("filter: %w", err)
	}
	return c.on(ctx, func(conn *connection) error {
		if !conn.rev.Modern {
			return c.subscribe(ctx, conn, member(asked, "resourceSubscriptions"))
		}
		var params object
		params.add("notifications", asked)
		return conn.peer.Call(ctx, "subscriptions/listen", conn.declare(json.RawMessage(params.text()), nil), nil)
	})
}

// compare says in the log what a subscription has asked for and not been given.
// 2026-07-28 basic/patterns/subscriptions#acknowledgment: the client "SHOULD
// check the acknowledged filter against what it requested".
func (p *Peer) compare(m *Message) {
	id, _ := parseID(lookup(m.Params, "_meta", metaSubscription))
	p.mu.Lock()
	call := cmp.Or(p.calls[id.key()], new(pending))
	p.mu.Unlock()
	var asked, agreed map[string]any
	_ = Bind(call.params, map[string]any{"notifications": &asked})
	_ = Bind(m.Params, map[string]any{"notifications": &agreed})
	for name, value := range asked {
		if !reflect.DeepEqual(value, agreed[name]) {
			p.log.Warn("the server does not announce all that was subscribed to", "asked", name, "agreed", brief(fmt.Sprint(agreed[name])))
		}
	}
}

// subscribe is Listen in the legacy era.
func (c *Client) subscribe(ctx context.Context, conn *connection, uris json.RawMessage) error {
	if len(uris) == 0 || uris[0] != '[' {
		uris = json.RawMessage("[]")
	}
	if string(uris) != "[]" && string(lookup(conn.server.Capabilities, "resources", "subscribe")) != "true" {
		return errors.New("the server does not offer subscriptions to resources")
	}
	var watched []string
	defer func() {
		last, done := context.WithTimeout(context.WithoutCancel(ctx), lastWord)
		defer done()
		for _, uri := range watched {
			_ = c.watch(last, conn, uri, -1)
		}
	}()
	for _, uri := range each(uris) {
		if err := c.watch(ctx, conn, string(uri), 1); err != nil {
			return err
		}
		watched = append(watched, string(uri))
	}
	select {
	case <-conn.hears.Done():
		err := context.Cause(conn.hears)
		if errors.Is(err, ErrInterrupted) { // a new connection has a new stream
			c.mu.Lock()
			defer c.mu.Unlock()
			conn.link.leave()
		}
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// watch adds a subscription to a resource, or takes one back. The server hears
// of the first and the last, one after the other.
func (c *Client) watch(ctx context.Context, conn *connection, uri string, n int) error {
	select {
	case conn.watching <- struct{}{}:
		defer func() { <-conn.watching }()
	case <-ctx.Done():
		return ctx.Err()
	}
	params := map[string]json.RawMessage{"uri": json.RawMessage(uri)}
	count := conn.watched[uri] + n
	switch {
	case count == 0:
		delete(conn.watched, uri)
		return conn.peer.Call(ctx, "resources/unsubscribe", params, nil)
	case count == 1 && n > 0:
		if err := conn.peer.Call(ctx, "resources/subscribe", params, nil); err != nil {
			return err
		}
	}
	conn.watched[uri] = count
	return nil
}
