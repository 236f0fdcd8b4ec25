// Package oauth logs a client of MCP in with OAuth. The library has no OAuth: it takes
// any http.Client, and a Transport makes one that gets a token when the server asks for
// it. To use it, copy this file, and import your copy of the library as wire. The file
// loopback.go is for programs on the user's own machine.
//
//	login := &oauth.Transport{Server: address, Authorize: show, RedirectURL: redirect}
//	defer login.Close()
//	client.Connect(ctx, &wire.HTTPDialer{URL: address, Client: &http.Client{Transport: login}})
//
// What happens on the way:
//
//	client     POST without a token
//	server     401, WWW-Authenticate: Bearer resource_metadata="…", scope="…"
//	Transport  GET the metadata of the server: which authorization server it trusts    readResource
//	Transport  GET the metadata of the authorization server: which endpoints it has    readIssuer
//	Transport  the client id: it is known, or a URL, or the endpoint gives one         register
//	user       logs in at the authorization server, with a browser                     askUser
//	Transport  exchanges the code for a token                                          askUser
//	Transport  POST with the token
//
// Later the Transport repeats this, with a refresh token in place of the user if it
// has one, after 401. After 403 with insufficient_scope the user is asked again.
//
// What an attacker may try, and what stops it:
//
//	another server wants the token         the token goes only to Server and below its path      owns
//	metadata are about another server      resource must be Server, or above its path            checkResource
//	metadata name internal addresses       https, and only addresses of the public internet      checkURL, publicOnly
//	metadata redirect to other hosts       a GET stays at its origin; a POST is not redirected   stayAtOrigin
//	metadata of another issuer             issuer must be the URL that named it, byte for byte   checkIssuer
//	the answer of another issuer (mix-up)  iss must be the issuer, before the code is sent       checkAnswer
//	an answer that was not asked for       state must be that of the request                     checkAnswer
//	a stolen code                          PKCE with S256, or there is no login                  checkIssuer, askUser
//	an endpoint that switches PKCE off     a URL with a parameter of the request is refused      checkParameters
//	a secret of one issuer for another     clients and refresh tokens belong to an issuer        register, getGrant
//	an error that repeats a secret         only a code of the specification is shown             checkToken, errorCode
//	logins without end                     two for a request, and a pause after a failure        RoundTrip, login
//	answers without end                    bounds in bytes and in time                           ask, bind, stayAtOrigin
//
// What remains: if an honest issuer sends no iss, an answer from it may be taken for
// one from another issuer. And a Transport trusts the server in the choice of the
// issuer: the user has to look at the page on which the login happens.
//
// Left out: the flow of 2025-03-26, without metadata of the resource; the transport of
// 2024-11-05, which posts to another URL; a store for tokens; private_key_jwt; DPoP.
//
// Source: 2025-11-25 basic/authorization; 2026-07-28 basic/authorization and the pages
// below it.
package oauth

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"code.dny.dev/ssrf"
	"golang.org/x/oauth2"
	"golang.org/x/oauth2/clientcredentials"
	"golang.org/x/sync/singleflight"

	"interop/wire" // go run ./copywire
)

const (
	maxLogins    = 2                // for one request: one for 401, and one for 403
	maxScopes    = 8 << 10          // bytes of the scopes that a server may want, all in all
	maxDocument  = 1 << 20          // bytes of metadata, or of the answer to a registration
	maxClientID  = 8 << 10          // bytes of a client id and its secret
	maxRedirects = 5                // in a row
	fetchTimeout = 30 * time.Second // for metadata, a registration, or a token
)

// Transport is an http.RoundTripper for one user of one MCP server. It gives each
// request the token of the user, and gets a token when the server asks for one. Set
// the fields before the first request. A Transport may be used by several
// goroutines: however many requests the server refuses, the user is asked once.
//
// A login takes longer than wire.Client waits by default. Call Login before Connect,
// or set ProbeTimeout and ConnectTimeout of the Client to the time that a user needs.
// Otherwise the Client gives up server/discover after five seconds, and a server of
// both eras is taken for a legacy server.
//
// Errors name metadata and endpoints. They hold no token, no code and no secret.
type Transport struct {
	Server string // required: the URL of the MCP server
	// Authorize is required. It shows authorizationURL to the user, in a browser, and
	// returns the query with which the browser comes back to RedirectURL. It must not
	// check the query: the Transport does. It is called by one goroutine at a time.
	Authorize   func(ctx context.Context, authorizationURL string) (answer url.Values, err error)
	RedirectURL string // required: https, or http at a loopback address

	// These are the ways to a client id. The Transport tries them in this order. Server
	// may name any issuer in Registered, so that should hold the issuers of Server only.
	Registered        map[string]Registration // clients that were registered by hand, by issuer
	ClientMetadataURL string                  // an https URL with metadata of this client, which is its id
	ClientName        string                  // for the endpoint where clients register themselves; "": MCP client

	// Base sends requests to the server. nil: http.DefaultTransport.
	Base http.RoundTripper
	// Client sends requests to authorization servers. Their URLs come from the MCP
	// server, so a Client must not reach what the server must not reach. nil: a client
	// without a proxy, that connects to public addresses only. If Server is at a
	// loopback address, it connects to any.
	Client  *http.Client
	Timeout time.Duration // for a login, the user's part included; 0: five minutes

	once   sync.Once
	server *url.URL        // Server
	local  bool            // Server is at a loopback address
	pause  time.Duration   // after a failure, before the user is asked again
	life   context.Context // until Close
	end    context.CancelCauseFunc
	logins singleflight.Group    // one login for all requests that wait for it
	grant  atomic.Pointer[grant] // what the last successful login has brought; nil: none

	// These belong to the login that runs.
	failure    error                   // of the last login; nil: it was successful
	failed     time.Time               // when that was
	registered map[string]Registration // clients that have registered themselves, by issuer
}

// Registration is what an authorization server knows a client by. RFC 7591, section
// 3.2.1.
type Registration struct {
	ID     string `json:"client_id"`
	Secret string `json:"client_secret,omitempty"` // "": a public client
	// Method says how the client sends the secret: client_secret_basic,
	// client_secret_post or none. "": the first that the authorization server knows.
	Method string `json:"token_endpoint_auth_method,omitempty"`
}

// grant is a token, and what it was asked for. Its fields do not change, but for accepted.
type grant struct {
	issuer    string
	resource  string // that the token is for
	scopes    []string
	token     *oauth2.Token
	refreshed bool // the user was not asked
	since     time.Time
	accepted  atomic.Bool // the server has accepted the token
}

// challenge is what a response of the server asks for.
type challenge struct {
	status   int // 401 or 403
	metadata string
	scopes   []string
}

var errClosed = errors.New("the Transport is closed")

func (t *Transport) prepare() {
	t.life, t.end = context.WithCancelCause(context.Background())
	t.pause = 15 * time.Second
	t.registered = map[string]Registration{}
	server, err := url.Parse(t.Server)
	if err != nil {
		server = &url.URL{} // which no request goes to
	}
	t.server, t.local = server, isLoopback(server)
}

// Login logs the user in, if the server asks for that. It sends a ping without a
// session: whatever the server thinks of that, it asks for the token first. A program
// need not call Login.
func (t *Transport) Login(ctx context.Context) error {
	ping := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`)
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, t.Server, ping)
	if err != nil {
		return err
	}
	r.Header.Set("Accept", "application/json, text/event-stream")
	r.Header.Set("Content-Type", "application/json")
	resp, err := t.RoundTrip(r)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode == http.StatusUnauthorized {
		return errors.New("oauth: the server does not accept the token")
	}
	return nil // any other status, such as 400, says that the server asks for no login
}

// Close ends the login that is running, and waits for it.
func (t *Transport) Close() {
	t.once.Do(t.prepare)
	t.end(errClosed)
	_, _, _ = t.logins.Do("", func() (any, error) { return nil, nil }) // it has to wait for the one that runs
}

// RoundTrip sends a request with the token. If the server asks for a login, RoundTrip
// waits for it, and sends the request again. The server has not acted on a request
// that it answers with 401 or 403.
func (t *Transport) RoundTrip(r *http.Request) (*http.Response, error) {
	t.once.Do(t.prepare)
	// 2026-07-28 basic/authorization#token-requirements: where the token may go.
	if !covers(t.server, r.URL) || r.Header.Get("Authorization") != "" {
		return t.base().RoundTrip(r)
	}
	for logins := 0; ; logins++ {
		grant := t.grant.Load()
		resp, err := t.send(r, grant, logins > 0)
		if err != nil {
			return nil, err
		}
		if grant != nil && resp.StatusCode != http.StatusUnauthorized {
			grant.accepted.Store(true)
		}
		asked := readChallenge(resp)
		canRepeat := r.Body == nil || r.Body == http.NoBody || r.GetBody != nil
		isEnd := r.Method == http.MethodDelete // of a session: no reason to ask the user
		if asked == nil || logins == maxLogins || !canRepeat || isEnd || !t.mayHelp(asked, grant) {
			return resp, nil
		}
		resp.Body.Close()
		ended := t.logins.DoChan("", func() (any, error) { return nil, t.login(asked, grant) })
		select {
		case login := <-ended:
			if login.Err != nil {
				return nil, fmt.Errorf("oauth: %w", login.Err)
			}
		case <-r.Context().Done(): // the login goes on: others may wait for it
			return nil, context.Cause(r.Context())
		}
	}
}

// send sends a copy of a request, as a RoundTripper may not change the request.
func (t *Transport) send(r *http.Request, grant *grant, again bool) (*http.Response, error) {
	attempt := r.Clone(r.Context())
	if again && r.GetBody != nil {
		body, err := r.GetBody()
		if err != nil {
			return nil, err
		}
		attempt.Body = body
	}
	if grant != nil {
		attempt.Header.Set("Authorization", "Bearer "+grant.token.AccessToken)
	}
	return t.base().RoundTrip(attempt)
}

func (t *Transport) base() http.RoundTripper { return cmp.Or(t.Base, http.DefaultTransport) }

// readChallenge returns what a response asks for. nil: it asks for no login.
// 2026-07-28 basic/authorization#error-handling.
func readChallenge(resp *http.Response) *challenge {
	params := readBearer(resp.Header)
	isStepUp := resp.StatusCode == http.StatusForbidden && params["error"] == "insufficient_scope"
	if resp.StatusCode != http.StatusUnauthorized && !isStepUp {
		return nil
	}
	return &challenge{resp.StatusCode, params["resource_metadata"], strings.Fields(params["scope"])}
}

var (
	challengeWords = regexp.MustCompile("([!#$%&'*+.^_`|~0-9A-Za-z-]+)(?:[ \t]*=[ \t]*(\"(?:[^\"\\\\]|\\\\.)*\"?|[^ \t,]*))?")
	unquoted       = strings.NewReplacer(`\\`, `\`, `\`, ``)
)

// readBearer returns the parameters of the first challenge of the scheme Bearer in WWW-Authenticate,
// by names in lower case. nil: there is none. 2025-11-25
// basic/authorization#protected-resource-metadata-discovery-requirements: clients "MUST be able
// to parse WWW-Authenticate headers".
//
// A challenge is a scheme and its parameters: tokens, each with a token or a quoted string as
// its value. RFC 9110, sections 5.6 and 11.2:
//
//	Bearer resource_metadata="https://…", scope="a \"b\""
//	^word  ^word, with a value            ^word, with quoted pairs in its value
func readBearer(header http.Header) (params map[string]string) {
	const most = 1000 // words that are read: a header may be as long as 10 MB
	for _, word := range challengeWords.FindAllStringSubmatch(strings.Join(header.Values("Www-Authenticate"), ","), most) {
		name, value := strings.ToLower(word[1]), word[2]
		isParam := strings.Contains(word[0], "=")
		switch {
		case isParam && params != nil && params[name] == "": // the first of two counts
			if inner, isQuoted := strings.CutPrefix(value, `"`); isQuoted {
				value = unquoted.Replace(strings.TrimSuffix(inner, `"`))
			}
			params[name] = value
		case isParam: // of another challenge, or the second with this name
		case params != nil: // the next challenge begins
			return params
		case name == "bearer":
			params = map[string]string{}
		}
	}
	return params
}

// mayHelp reports whether a login may help a request that was refused. used is what the
// request was sent with. It bounds how often the user is asked:
//
//	the server refuses a token that the user just got    no login
//	403 for scopes that have been asked for              no login
//
// login has a third rule: after a failure there is a pause.
func (t *Transport) mayHelp(asked *challenge, used *grant) bool {
	if used == nil {
		return true
	}
	isNew := func(scope string) bool { return !slices.Contains(used.scopes, scope) }
	isRecent := time.Since(used.since) < t.pause
	switch {
	case isRecent && !used.accepted.Load() && !used.refreshed:
		return false
	case asked.status == http.StatusForbidden:
		return slices.ContainsFunc(asked.scopes, isNew)
	}
	return true
}

// login gets a token in place of the one that was used. There is one login at a time. It
// does not run on the context of a request: a request with a short deadline must not stop
// the login for which others wait.
func (t *Transport) login(asked *challenge, used *grant) error {
	before := t.grant.Load()
	switch {
	case before != used: // there was a login since the request was sent
		return nil
	case t.failure != nil && time.Since(t.failed) < t.pause:
		return t.failure
	case t.life.Err() != nil:
		return errClosed
	}
	limit := cmp.Or(t.Timeout, 5*time.Minute)
	ctx, cancel := context.WithTimeoutCause(t.life, limit, fmt.Errorf("no login within %v", limit))
	defer cancel()
	next, err := t.getGrant(context.WithValue(ctx, oauth2.HTTPClient, t.client()), asked, before)
	if err != nil && ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	t.failure, t.failed = err, time.Now()
	if err == nil {
		next.since = time.Now()
		t.grant.Store(next)
	}
	return err
}

// getGrant gets a token, for the user or with the refresh token of before. before may
// be nil. All metadata are read again each time, because a server may move to another
// authorization server. 2026-07-28 basic/authorization#authorization-flow-steps.
func (t *Transport) getGrant(ctx context.Context, asked *challenge, before *grant) (*grant, error) {
	if t.Authorize == nil {
		return nil, errors.New("the user has to log in, but Authorize is nil")
	}
	// 2026-07-28 basic/authorization/security-considerations#communication-security:
	// redirect URIs "MUST be either localhost or use HTTPS".
	redirect, err := checkURL("RedirectURL", t.RedirectURL, true)
	if err != nil {
		return nil, err
	}
	resource, err := t.readResource(ctx, asked.metadata)
	if err != nil {
		return nil, err
	}
	as, err := t.readIssuer(ctx, t.choose(resource.AuthorizationServers))
	if err != nil {
		return nil, err
	}
	client, err := t.register(ctx, as, isLoopback(redirect))
	if err != nil {
		return nil, err
	}
	config, err := t.config(as, client)
	if err != nil {
		return nil, err
	}
	if before == nil {
		before = &grant{token: &oauth2.Token{}}
	}
	next := &grant{issuer: as.Issuer, resource: resource.Resource, scopes: before.scopes}
	// A refresh token belongs to the issuer and the resource that it came from.
	isFromThere := before.issuer == next.issuer && before.resource == next.resource
	mayRefresh := asked.status == http.StatusUnauthorized && before.accepted.Load()
	if mayRefresh && isFromThere && before.token.RefreshToken != "" {
		next.refreshed = true
		next.token, err = refresh(ctx, config, before)
		fault, isAnswer := errors.AsType[*oauth2.RetrieveError](err)
		if !isAnswer || fault.Response.StatusCode >= 500 {
			return next, t.checkToken(as, next.token, err)
		}
		next.refreshed = false // the refresh token is refused: the user has to log in
	}
	next.scopes, err = addScopes(before.scopes, asked.scopes, resource.Scopes)
	if err != nil {
		return nil, err
	}
	config.Scopes = next.scopes
	// The scope for refresh tokens. 2026-07-28 basic/authorization#refresh-tokens. It stays out of
	// a request without scopes, where it would be the only one.
	if len(next.scopes) > 0 && slices.Contains(as.Scopes, "offline_access") {
		config.Scopes, err = addScopes(next.scopes, []string{"offline_access"}, nil)
		if err != nil {
			return nil, err
		}
	}
	next.token, err = t.askUser(ctx, as, config, resource.Resource)
	return next, err
}

// addScopes returns the scopes to ask for. before are those that were asked for
// already: a new token must not lose what the old one could. supported count if the
// server has never named any. 2026-07-28
// basic/authorization#scope-selection-strategy, and #step-up-authorization-flow: "the
// union of the client's previously requested scope set and the scopes from the current
// challenge".
func addScopes(before, asked, supported []string) ([]string, error) {
	if len(before) == 0 && len(asked) == 0 {
		asked = supported
	}
	all := slices.Clone(before)
	for _, scope := range asked {
		if !slices.Contains(all, scope) {
			all = append(all, scope)
		}
	}
	if len(strings.Join(all, " ")) > maxScopes {
		return nil, fmt.Errorf("the server wants scopes of more than %d bytes", maxScopes)
	}
	return all, nil
}

// ---- Metadata ----

// resourceMetadata is what a server says about itself. RFC 9728, section 2.
type resourceMetadata struct {
	Resource             string   `json:"resource"`
	AuthorizationServers []string `json:"authorization_servers"`
	Scopes               []string `json:"scopes_supported,omitempty"`
}

// issuerMetadata is what an authorization server says about itself. RFC 8414, section
// 2, and OpenID Connect Discovery 1.0, section 3.
type issuerMetadata struct {
	Issuer                string   `json:"issuer"`
	AuthorizationEndpoint string   `json:"authorization_endpoint"`
	TokenEndpoint         string   `json:"token_endpoint"`
	RegistrationEndpoint  string   `json:"registration_endpoint,omitempty"`
	Scopes                []string `json:"scopes_supported,omitempty"`
	ChallengeMethods      []string `json:"code_challenge_methods_supported,omitempty"`
	AuthMethods           []string `json:"token_endpoint_auth_methods_supported,omitempty"`
	ReadsClientMetadata   bool     `json:"client_id_metadata_document_supported,omitempty"`
	SendsIssuer           bool     `json:"authorization_response_iss_parameter_supported,omitempty"`
}

// readResource reads the metadata of the server. announced is where the challenge says
// that they are; "": the well-known places. They must be at the origin of the server.
// Otherwise another host could say which issuer the server trusts. 2026-07-28
// basic/authorization/authorization-server-discovery#protected-resource-metadata-discovery-requirements.
func (t *Transport) readResource(ctx context.Context, announced string) (*resourceMetadata, error) {
	if _, err := checkURL("Server", t.Server, t.local); err != nil {
		return nil, err
	}
	const name = "/.well-known/oauth-protected-resource"
	origin := originOf(t.server)
	places := []string{origin + name + pathOf(t.server), origin + name}
	if announced != "" {
		u, err := checkURL("resource_metadata", announced, t.local)
		if err != nil {
			return nil, err
		}
		if originOf(u) != origin {
			return nil, fmt.Errorf("resource_metadata %.200q is not at the origin of the server", announced)
		}
		places = []string{announced}
	}
	var found resourceMetadata
	err := readFirst(ctx, stayAtOrigin(&http.Client{Transport: t.base()}), places, &found)
	if err != nil {
		return nil, fmt.Errorf("the server: %w", err)
	}
	return &found, t.checkResource(&found)
}

// checkResource refuses metadata that are not about the server. RFC 9728, section 3.3,
// wants the URL of the server. A path above it counts as well, because the metadata at
// the root of a host are about the whole host.
func (t *Transport) checkResource(m *resourceMetadata) error {
	resource, err := checkURL("resource", m.Resource, t.local)
	switch {
	case err != nil:
		return err
	case !covers(resource, t.server):
		return fmt.Errorf("the metadata of the server are about another resource, %.200q", m.Resource)
	case len(m.AuthorizationServers) == 0:
		return errors.New("the metadata of the server name no authorization server")
	}
	return nil
}

// choose returns the issuer to use: one where this client is registered by hand, or
// else the first.
func (t *Transport) choose(issuers []string) string {
	for _, issuer := range issuers {
		if _, ok := t.Registered[issuer]; ok {
			return issuer
		}
	}
	return issuers[0]
}

// readIssuer reads the metadata of an authorization server. 2026-07-28
// basic/authorization/authorization-server-discovery#authorization-server-metadata-discovery:
// the order of the places, and issuer "MUST be identical to the issuer identifier used
// to construct the well-known URL".
func (t *Transport) readIssuer(ctx context.Context, issuer string) (*issuerMetadata, error) {
	u, err := checkURL("issuer", issuer, t.local)
	if err != nil {
		return nil, err
	}
	if u.RawQuery != "" {
		return nil, fmt.Errorf("the issuer %.200q has a query", issuer)
	}
	origin, tenant := originOf(u), pathOf(u)
	var found issuerMetadata
	err = readFirst(ctx, t.client(), []string{
		origin + "/.well-known/oauth-authorization-server" + tenant,
		origin + "/.well-known/openid-configuration" + tenant,
		origin + tenant + "/.well-known/openid-configuration",
	}, &found)
	if err != nil {
		return nil, fmt.Errorf("the issuer %.200q: %w", issuer, err)
	}
	return &found, t.checkIssuer(&found, issuer)
}

func (t *Transport) checkIssuer(m *issuerMetadata, issuer string) error {
	if m.Issuer != issuer {
		return fmt.Errorf("the metadata of the issuer %.200q are those of %.200q", issuer, m.Issuer)
	}
	// 2026-07-28 basic/authorization/security-considerations#authorization-code-protection:
	// without code_challenge_methods_supported clients "MUST refuse to proceed".
	if !slices.Contains(m.ChallengeMethods, "S256") {
		return fmt.Errorf("the issuer %.200q does not support PKCE with S256", issuer)
	}
	if m.RegistrationEndpoint != "" {
		if _, err := checkURL("registration_endpoint", m.RegistrationEndpoint, t.local); err != nil {
			return err
		}
	}
	if _, err := checkURL("token_endpoint", m.TokenEndpoint, t.local); err != nil {
		return err
	}
	u, err := checkURL("authorization_endpoint", m.AuthorizationEndpoint, t.local)
	if err != nil {
		return err
	}
	return checkParameters(u)
}

// readFirst reads a document of metadata at the first of some places that has one. Some
// servers answer with a page where they have none. A failure of the server is an error, or
// it would decide which place counts.
func readFirst(ctx context.Context, client *http.Client, places []string, target any) error {
	for _, place := range slices.Compact(places) {
		resp, text, err := ask(ctx, client, http.MethodGet, place, nil)
		if err != nil {
			return err
		}
		media, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
		switch {
		case resp.StatusCode >= 500:
			return fmt.Errorf("%.200q: status %d", place, resp.StatusCode)
		case resp.StatusCode == http.StatusOK && media == "application/json":
			return bind(text, target)
		}
	}
	return errors.New("there are no metadata")
}

// ask sends a request, and reads the answer: no more of it than bind needs to refuse it.
func ask(ctx context.Context, client *http.Client, method, place string, body []byte) (*http.Response, []byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, place, bytes.NewReader(body))
	if err != nil {
		return nil, nil, err
	}
	r.Header.Set("Accept", "application/json")
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	resp, err := client.Do(r)
	if err != nil {
		return nil, nil, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxDocument+1))
	return resp, text, err
}

// bind reads an object of at most maxDocument bytes.
func bind(text []byte, target any) error {
	switch {
	case len(text) > maxDocument:
		return fmt.Errorf("more than %d bytes", maxDocument)
	case !json.Valid(text):
		return errors.New("not JSON")
	}
	return wire.Bind(text, target)
}

// ---- The client id ----

// register returns the client id for an issuer. 2026-07-28
// basic/authorization/client-registration: the order; "MUST NOT reuse client
// credentials from a different authorization server".
func (t *Transport) register(ctx context.Context, as *issuerMetadata, isNative bool) (Registration, error) {
	if known, ok := t.Registered[as.Issuer]; ok {
		return known, nil
	}
	if as.ReadsClientMetadata && t.ClientMetadataURL != "" {
		return Registration{ID: t.ClientMetadataURL}, nil
	}
	if known, ok := t.registered[as.Issuer]; ok {
		return known, nil
	}
	if as.RegistrationEndpoint == "" {
		return Registration{}, fmt.Errorf("this client is not registered with the issuer %.200q, which lets no client register itself", as.Issuer)
	}
	known, err := t.registerAt(ctx, as, isNative)
	if err != nil {
		return known, fmt.Errorf("registration with the issuer %.200q: %w", as.Issuer, err)
	}
	t.registered[as.Issuer] = known
	return known, nil
}

// registerAt sends a registration. RFC 7591, sections 2 and 3. 2026-07-28
// basic/authorization/client-registration#application-type-and-redirect-uri-constraints.
func (t *Transport) registerAt(ctx context.Context, as *issuerMetadata, isNative bool) (known Registration, err error) {
	request := map[string]any{
		"client_name":                cmp.Or(t.ClientName, "MCP client"),
		"redirect_uris":              []string{t.RedirectURL},
		"grant_types":                []string{"authorization_code", "refresh_token"},
		"response_types":             []string{"code"},
		"token_endpoint_auth_method": authMethod(as.AuthMethods, "none", "client_secret_basic", "client_secret_post"),
		"application_type":           "web", // of OpenID Connect
	}
	if isNative {
		request["application_type"] = "native"
	}
	body, err := json.Marshal(request)
	if err != nil {
		return known, err
	}
	resp, text, err := ask(ctx, t.client(), http.MethodPost, as.RegistrationEndpoint, body)
	if err != nil {
		return known, err
	}
	if resp.StatusCode != http.StatusCreated && resp.StatusCode != http.StatusOK {
		var fault struct {
			Error string `json:"error"`
		}
		_ = bind(text, &fault)
		return known, fmt.Errorf("status %d %s", resp.StatusCode, errorCode(fault.Error))
	}
	err = bind(text, &known)
	switch {
	case err != nil:
		return known, err
	case known.ID == "":
		return known, errors.New("the client_id is empty")
	case len(known.ID)+len(known.Secret) > maxClientID:
		return known, fmt.Errorf("client_id and client_secret have more than %d bytes", maxClientID)
	}
	return known, nil
}

// authMethod returns the first of ours that the authorization server supports. If none
// is named, it supports client_secret_basic. RFC 8414, section 2.
func authMethod(supported []string, ours ...string) string {
	for _, method := range ours {
		if slices.Contains(supported, method) {
			return method
		}
	}
	return "client_secret_basic"
}

// config returns what package oauth2 has to know.
func (t *Transport) config(as *issuerMetadata, client Registration) (*oauth2.Config, error) {
	c := &oauth2.Config{
		ClientID:     client.ID,
		ClientSecret: client.Secret,
		RedirectURL:  t.RedirectURL,
		Endpoint:     oauth2.Endpoint{AuthURL: as.AuthorizationEndpoint, TokenURL: as.TokenEndpoint, AuthStyle: oauth2.AuthStyleInParams},
	}
	method := cmp.Or(client.Method, authMethod(as.AuthMethods, "client_secret_basic", "client_secret_post"))
	switch {
	case client.Secret == "" || method == "client_secret_post":
	case method == "client_secret_basic":
		c.Endpoint.AuthStyle = oauth2.AuthStyleInHeader
	case method == "none":
		c.ClientSecret = ""
	default:
		return nil, fmt.Errorf("the method %.100q of client authentication is not supported", method)
	}
	return c, nil
}

// ---- Tokens ----

// askUser sends the user to the authorization server, and exchanges the code with
// which the user comes back.
func (t *Transport) askUser(ctx context.Context, as *issuerMetadata, config *oauth2.Config, resource string) (*oauth2.Token, error) {
	state, verifier := rand.Text(), oauth2.GenerateVerifier()
	forResource := oauth2.SetAuthURLParam("resource", resource) // RFC 8707, in both requests
	target := config.AuthCodeURL(state, oauth2.S256ChallengeOption(verifier), forResource)
	answer, err := t.Authorize(ctx, target)
	if err != nil {
		return nil, err
	}
	code, err := checkAnswer(answer, state, as)
	if err != nil {
		return nil, err
	}
	token, err := config.Exchange(ctx, code, oauth2.VerifierOption(verifier), forResource)
	return token, t.checkToken(as, token, err)
}

// requestParameters are those that a request for a code has, and those with which it
// would mean something else. RFC 6749, section 4.1.1; RFC 7636, section 4.3; RFC 8707,
// section 2; RFC 9101, section 4; OAuth 2.0 Multiple Response Type Encoding Practices.
var requestParameters = []string{
	"response_type", "client_id", "redirect_uri", "scope", "state", "code_challenge", "code_challenge_method", "resource",
	"request", "request_uri", "response_mode",
}

// checkParameters refuses an authorization endpoint whose query sets a parameter of the
// request: an endpoint with its own challenge could switch PKCE off. A query that
// cannot be read is refused, too. Some servers take ; for &, and url.URL.Query drops
// what stands around it.
func checkParameters(endpoint *url.URL) error {
	query, err := url.ParseQuery(endpoint.RawQuery)
	if err != nil {
		return errors.New("the query of authorization_endpoint cannot be read")
	}
	for name, values := range query {
		if len(values) > 1 || slices.Contains(requestParameters, name) {
			return fmt.Errorf("authorization_endpoint sets the parameter %.100q", name)
		}
	}
	return nil
}

// checkAnswer returns the code of an answer, if the answer is one to our request, from
// the issuer that was asked. Nothing else of the answer is looked at, or shown, before
// that is known. 2026-07-28 basic/authorization#authorization-response-validation.
func checkAnswer(answer url.Values, state string, as *issuerMetadata) (code string, err error) {
	for _, name := range []string{"state", "iss", "code", "error"} {
		if len(answer[name]) > 1 {
			return "", fmt.Errorf("the answer of the authorization server has %q twice", name)
		}
	}
	switch {
	case answer.Get("state") != state:
		return "", errors.New("the answer of the authorization server has another state")
	case as.SendsIssuer && !answer.Has("iss"):
		return "", errors.New("the answer of the authorization server lacks iss")
	case answer.Has("iss") && answer.Get("iss") != as.Issuer:
		return "", errors.New("the answer comes from another authorization server: iss is another issuer")
	case answer.Has("error"):
		return "", fmt.Errorf("the authorization server refuses: %s", errorCode(answer.Get("error")))
	case answer.Get("code") == "":
		return "", errors.New("the answer of the authorization server lacks a code")
	}
	return answer.Get("code"), nil
}

// refresh gets a token with a refresh token. If the answer brings no other refresh
// token, the old one stays. The TokenSource of oauth2.Config would not send resource,
// which each token request needs; clientcredentials sends what it is told.
func refresh(ctx context.Context, config *oauth2.Config, before *grant) (*oauth2.Token, error) {
	request := clientcredentials.Config{
		ClientID:     config.ClientID,
		ClientSecret: config.ClientSecret,
		TokenURL:     config.Endpoint.TokenURL,
		AuthStyle:    config.Endpoint.AuthStyle,
		EndpointParams: url.Values{
			"grant_type":    {"refresh_token"},
			"refresh_token": {before.token.RefreshToken},
			"resource":      {before.resource},
		},
	}
	return request.Token(ctx)
}

// checkToken returns what is wrong with the answer to a token request. err is the
// error of package oauth2, which may show the answer, and so a token.
func (t *Transport) checkToken(as *issuerMetadata, token *oauth2.Token, err error) error {
	if fault, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		if fault.ErrorCode == "invalid_client" { // it may have been deleted; the next login registers again
			delete(t.registered, as.Issuer)
		}
		return fmt.Errorf("no token: status %d %s", fault.Response.StatusCode, errorCode(fault.ErrorCode))
	}
	if fault, ok := errors.AsType[*url.Error](err); ok {
		return fmt.Errorf("no token: %w", fault)
	}
	if err != nil {
		return errors.New("no token: the answer cannot be read")
	}
	isHidden := func(c rune) bool { return c <= ' ' || c > '~' }
	switch {
	case !strings.EqualFold(token.Type(), "Bearer"):
		return errors.New("the token is not a Bearer token")
	case strings.ContainsFunc(token.AccessToken, isHidden):
		return errors.New("the token cannot be sent in a header")
	}
	return nil
}

// errorCode returns a code of RFC 6749 as it may be shown. Other text may repeat a
// code or a verifier.
func errorCode(code string) string {
	if !regexp.MustCompile(`^[a-z_]{1,50}$`).MatchString(code) {
		return "(no error code)"
	}
	return code
}

// ---- Where requests may go ----

// checkURL returns a URL that was given or found. It must be https, or http at a loopback
// address where that is allowed. name is for the error. 2026-07-28
// basic/authorization/security-considerations#communication-security.
func checkURL(name, text string, mayBeLocal bool) (*url.URL, error) {
	u, err := url.Parse(text)
	isAllowed := err == nil && (u.Scheme == "https" || u.Scheme == "http" && mayBeLocal && isLoopback(u))
	switch {
	case !isAllowed || u.Hostname() == "":
		return nil, fmt.Errorf("%s must be an https URL: %.200q", name, text)
	case u.User != nil || strings.Contains(text, "#"):
		return nil, fmt.Errorf("%s must have neither a user nor a fragment", name)
	}
	return u, nil
}

// client returns the client for authorization servers.
func (t *Transport) client() *http.Client {
	switch {
	case t.Client != nil:
		return stayAtOrigin(t.Client)
	case t.local:
		return stayAtOrigin(http.DefaultClient)
	}
	return stayAtOrigin(publicOnly)
}

// publicOnly connects to addresses of the public internet only. Package ssrf looks at the
// address after the name was resolved, so no name can stand for another address later.
// A proxy would resolve names itself. 2026-07-28
// tutorials/security/security_best_practices#server-side-request-forgery-ssrf.
var publicOnly = &http.Client{Transport: &http.Transport{
	DialContext:       (&net.Dialer{Timeout: fetchTimeout, Control: ssrf.New(ssrf.WithAnyPort()).Safe}).DialContext,
	ForceAttemptHTTP2: true,
	IdleConnTimeout:   fetchTimeout,
}}

// stayAtOrigin returns a copy of a client with a limit of time. It follows the
// redirects of a GET within the origin, and no others: those would carry secrets on,
// or let one host speak for another.
func stayAtOrigin(client *http.Client) *http.Client {
	c := *client
	c.Timeout = cmp.Or(c.Timeout, fetchTimeout)
	c.CheckRedirect = func(r *http.Request, via []*http.Request) error {
		first := via[0]
		if first.Method != http.MethodGet || originOf(r.URL) != originOf(first.URL) || len(via) > maxRedirects {
			return http.ErrUseLastResponse
		}
		return nil
	}
	return &c
}

// covers reports whether a URL is a resource, or below its path. A resource may have a
// query, which may name a tenant. Then the URL must have the same one. RFC 8707,
// section 2.
func covers(resource, u *url.URL) bool {
	if resource.RawQuery != "" && resource.RawQuery != u.RawQuery {
		return false
	}
	above := strings.TrimSuffix(resource.Path, "/")
	below := path.Clean("/" + u.Path)
	return originOf(resource) == originOf(u) && (below == above || strings.HasPrefix(below, above+"/"))
}

// originOf returns scheme, host and port of a URL, in one spelling.
func originOf(u *url.URL) string {
	usual := map[string]string{"https": ":443", "http": ":80"}[u.Scheme]
	host := strings.TrimSuffix(strings.ToLower(u.Host), usual)
	return u.Scheme + "://" + strings.TrimSuffix(host, ":")
}

// pathOf returns the path of a URL, without a slash at its end.
func pathOf(u *url.URL) string { return strings.TrimSuffix(u.EscapedPath(), "/") }

// isLoopback reports whether a URL is at this machine.
func isLoopback(u *url.URL) bool {
	addr, err := netip.ParseAddr(u.Hostname())
	return err == nil && addr.IsLoopback() || strings.EqualFold(u.Hostname(), "localhost")
}
