package oauth

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"interop/wire"
)

// Where there are metadata.
const (
	aboutServer = "server /.well-known/oauth-protected-resource/mcp"
	aboutIssuer = "issuer /.well-known/oauth-authorization-server"
)

// world is an MCP server, an authorization server and a user, as a test wants them.
// Each goes by the rules unless the test changes it.
type world struct {
	*testing.T
	server, issuer *httptest.Server

	mu        sync.Mutex // guards the fields below
	challenge string     // of the server's 401
	resource  map[string]any
	as        map[string]any
	pages     map[string]http.HandlerFunc                 // by HOST PATH; HOST is server or issuer
	needs     []string                                    // scopes that the server wants: 403 without them
	answer    func(url.Values)                            // changes what the user comes back with
	token     func(form url.Values, token map[string]any) // changes what the token endpoint says
	codes     map[string]url.Values                       // the authorization request of each code
	valid     map[string][]string                         // the scopes of each token
	refreshes map[string]bool                             // the refresh tokens that are good
	log       []string                                    // what happened: HOST METHOD PATH, or: user
	forms     []url.Values                                // of token requests
	logins    []url.Values                                // of authorization requests
	bodies    []string                                    // of registrations
	headers   []string                                    // Authorization at the token endpoint
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, codes: map[string]url.Values{}, valid: map[string][]string{}, refreshes: map[string]bool{}}
	w.server = httptest.NewServer(w.handler("server"))
	w.issuer = httptest.NewServer(w.handler("issuer"))
	t.Cleanup(w.server.Close)
	t.Cleanup(w.issuer.Close)
	w.challenge = w.fill(`Bearer resource_metadata="SERVER/.well-known/oauth-protected-resource/mcp", scope="read"`)
	w.resource = map[string]any{"resource": w.server.URL + "/mcp", "authorization_servers": []string{w.issuer.URL}}
	w.as = map[string]any{
		"issuer": w.issuer.URL, "authorization_endpoint": w.issuer.URL + "/authorize", "token_endpoint": w.issuer.URL + "/token",
		"registration_endpoint": w.issuer.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"}, "authorization_response_iss_parameter_supported": true,
	}
	w.pages = map[string]http.HandlerFunc{
		"server /mcp": w.serve, aboutServer: w.describeServer,
		aboutIssuer: w.describeIssuer, "issuer /register": w.register, "issuer /token": w.exchange,
	}
	return w
}

// fill puts URLs into a text, for SERVER and ISSUER, and an address for HOST.
func (w *world) fill(text string) string {
	return strings.NewReplacer("SERVER", w.server.URL, "HOST", w.server.Listener.Addr().String(), "ISSUER", w.issuer.URL).Replace(text)
}

func (w *world) fillJSON(value any) json.RawMessage {
	text, err := json.Marshal(value)
	if err != nil {
		w.Fatal(err)
	}
	return json.RawMessage(w.fill(string(text)))
}

// transport returns a Transport for the server. Its user is the world.
func (w *world) transport() *Transport {
	t := &Transport{Server: w.server.URL + "/mcp", Authorize: w.browse, RedirectURL: "http://127.0.0.1:1/callback"}
	w.Cleanup(t.Close)
	return t
}

// get sends a request with a body, as a RoundTripper gets it.
func (w *world) get(t *Transport) (string, error) {
	r, err := http.NewRequestWithContext(w.Context(), http.MethodPost, t.Server, strings.NewReader("hello"))
	if err != nil {
		w.Fatal(err)
	}
	resp, err := (&http.Client{Transport: t}).Do(r)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", string(text)), err
}

func (w *world) want(t *Transport, want string) {
	w.Helper()
	got, err := w.get(t)
	if got != want {
		w.Errorf("got %q, %v; want %q; %q", got, err, want, w.happened())
	}
}

func (w *world) wantRefused(t *Transport, want string) {
	w.Helper()
	_, err := w.get(t)
	w.wantError(want, err)
}

func (w *world) wantError(want string, err error) {
	w.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		w.Errorf("got %v; want %q; %q", err, want, w.happened())
	}
}

// wantCount checks how often something happened.
func (w *world) wantCount(what string, want int) {
	w.Helper()
	if got := w.count(what); got != want {
		w.Errorf("%d times %s, not %d: %q", got, what, want, w.happened())
	}
}

func (w *world) count(what string) (n int) {
	for _, line := range w.happened() {
		if line == what {
			n++
		}
	}
	return n
}

func (w *world) happened() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

func (w *world) handler(host string) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		w.mu.Lock()
		w.log = append(w.log, host+" "+r.Method+" "+r.URL.Path)
		page := w.pages[host+" "+r.URL.Path]
		w.mu.Unlock()
		if page == nil {
			page = http.NotFound
		}
		page(rw, r)
	})
}

// says answers with a text as it is.
func says(media, text string) http.HandlerFunc {
	return func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", media)
		_, _ = io.WriteString(rw, text)
	}
}

func reply(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body)
}

func (w *world) describeServer(rw http.ResponseWriter, _ *http.Request) { reply(rw, 200, w.resource) }
func (w *world) describeIssuer(rw http.ResponseWriter, _ *http.Request) { reply(rw, 200, w.as) }

// serve is the MCP server.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	scopes, isValid := w.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	lacks := func(scope string) bool { return !slices.Contains(scopes, scope) }
	switch {
	case !isValid:
		rw.Header().Set("WWW-Authenticate", w.challenge)
		rw.WriteHeader(401)
	case slices.ContainsFunc(w.needs, lacks):
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="%s"`, strings.Join(w.needs, " ")))
		rw.WriteHeader(403)
	default:
		_, _ = io.Copy(rw, r.Body)
	}
}

// browse is the user with a browser.
func (w *world) browse(_ context.Context, authorizationURL string) (url.Values, error) {
	u, err := url.Parse(authorizationURL)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	q := u.Query()
	w.log = append(w.log, "user")
	w.logins = append(w.logins, q)
	code := fmt.Sprintf("code-%d-SECRET", len(w.logins))
	w.codes[code] = q
	back := url.Values{"code": {code}, "state": q["state"], "iss": {w.issuer.URL}}
	if w.answer != nil {
		w.answer(back)
	}
	return back, nil
}

func (w *world) register(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	body, _ := io.ReadAll(r.Body)
	w.bodies = append(w.bodies, string(body))
	reply(rw, 201, map[string]any{"client_id": "self-registered", "token_endpoint_auth_method": "none"})
}

// exchange is the token endpoint.
func (w *world) exchange(rw http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.headers = append(w.headers, r.Header.Get("Authorization"))
	w.forms = append(w.forms, r.PostForm)
	status, body := 400, map[string]any{"error": "invalid_grant"}
	if scopes, ok := w.granted(r.PostForm); ok {
		access, refresh := fmt.Sprintf("access-%d-SECRET", len(w.forms)), fmt.Sprintf("refresh-%d-SECRET", len(w.forms))
		w.valid[access], w.refreshes[refresh] = scopes, true
		status, body = 200, map[string]any{"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "expires_in": 3600}
	}
	if w.token != nil {
		w.token(r.PostForm, body)
	}
	reply(rw, status, body)
}

// granted returns what a code or a refresh token is good for, once.
func (w *world) granted(form url.Values) (scopes []string, ok bool) {
	switch form.Get("grant_type") {
	case "authorization_code":
		login := w.codes[form.Get("code")]
		delete(w.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		return strings.Fields(login.Get("scope")), login != nil && login.Get("code_challenge_method") == "S256" &&
			login.Get("code_challenge") == base64.RawURLEncoding.EncodeToString(sum[:]) &&
			login.Get("resource") == form.Get("resource") && login.Get("redirect_uri") == form.Get("redirect_uri")
	case "refresh_token":
		ok := w.refreshes[form.Get("refresh_token")] && form.Get("resource") != ""
		delete(w.refreshes, form.Get("refresh_token"))
		return []string{"read"}, ok
	}
	return nil, false
}

// expire makes all access tokens invalid.
func (w *world) expire() {
	w.mu.Lock()
	defer w.mu.Unlock()
	clear(w.valid)
}

// One request logs in, the next one needs no login. Both token and authorization request name the resource.
func TestLogin(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	w.want(tr, "200 hello")
	w.want(tr, "200 hello")
	want := []string{"server POST /mcp", "server GET /.well-known/oauth-protected-resource/mcp", "issuer GET /.well-known/oauth-authorization-server",
		"issuer POST /register", "user", "issuer POST /token", "server POST /mcp", "server POST /mcp"}
	if got := w.happened(); !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	login := w.logins[0]
	for name, want := range map[string]string{"client_id": "self-registered", "response_type": "code", "scope": "read", "resource": w.server.URL + "/mcp",
		"redirect_uri": tr.RedirectURL, "code_challenge_method": "S256"} {
		if login.Get(name) != want {
			t.Errorf("%s=%q", name, login.Get(name))
		}
	}
	if len(login.Get("state")) < 20 || w.forms[0].Get("resource") != w.server.URL+"/mcp" || w.forms[0].Has("client_secret") {
		t.Error(login, w.forms)
	}
	if !strings.Contains(w.bodies[0], `"application_type":"native"`) || !strings.Contains(w.bodies[0], `"refresh_token"`) {
		t.Error(w.bodies)
	}
}

// The library is used as it is, at both ends. Its log holds no token.
func TestWithLibrary(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		w := newWorld(t)
		var log strings.Builder
		server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "0"}, Methods: map[string]wire.HandlerFunc{
			"test/who": func(_ context.Context, x *wire.Exchange) (any, error) {
				return map[string]any{"who": x.Principal}, nil
			}}}
		handler := &wire.StreamableHandler{Handler: server, Sessions: &wire.Sessions{}, Guard: wire.Guard{Authenticate: func(r *http.Request) (string, error) {
			w.mu.Lock()
			defer w.mu.Unlock()
			token, _ := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
			if w.valid[token] == nil {
				return "", &wire.AuthError{Challenge: w.challenge}
			}
			return "user", nil
		}}}
		w.pages["server /mcp"] = handler.ServeHTTP
		login := w.transport()
		client := &wire.Client{Info: wire.Implementation{Name: "c", Version: "0"}, Versions: []string{version}, Log: slog.New(slog.NewTextHandler(&log, nil))}
		err := client.Connect(t.Context(), &wire.HTTPDialer{URL: login.Server, Client: &http.Client{Transport: login}})
		for range 2 {
			var result struct{ Who string }
			err = cmp.Or(err, client.Call(t.Context(), "test/who", nil, &result))
			if err != nil || result.Who != "user" {
				t.Error(version, err, result)
			}
			w.expire() // the next call refreshes the token
		}
		if w.count("user") != 1 || w.count("issuer POST /token") != 2 || strings.Contains(log.String(), "SECRET") {
			t.Error(version, w.happened(), log.String())
		}
		client.Close()
		handler.Close()
	}
}

// change is what is wrong in a world.
type change func(*world, *Transport)

// What several attacks change. In a text, SERVER and ISSUER stand for URLs.

func demand(text string) change { return func(w *world, _ *Transport) { w.challenge = w.fill(text) } }

// server and issuer change a member of the metadata of either; nil: it is missing.
func server(name string, value any) change {
	return func(w *world, _ *Transport) { w.resource[name] = w.fillJSON(value) }
}

func issuer(name string, value any) change {
	return func(w *world, _ *Transport) { w.as[name] = w.fillJSON(value) }
}

// answer changes a parameter with which the user comes back.
func answer(name string, values ...string) change {
	return func(w *world, _ *Transport) {
		for i := range values {
			values[i] = w.fill(values[i])
		}
		w.answer = func(v url.Values) {
			v[name] = values
			if len(values) == 0 {
				delete(v, name)
			}
		}
	}
}

func token(name, text string) change {
	return func(w *world, _ *Transport) { w.token = func(_ url.Values, body map[string]any) { body[name] = text } }
}

func redirect(page string, status int, to string) change {
	return func(w *world, _ *Transport) { w.pages[page] = http.RedirectHandler(w.fill(to), status).ServeHTTP }
}

func replies(page string, status int, text string) change {
	return func(w *world, _ *Transport) {
		w.pages[page] = func(rw http.ResponseWriter, _ *http.Request) { reply(rw, status, json.RawMessage(w.fill(text))) }
	}
}

func both(first, second change) change {
	return func(w *world, tr *Transport) {
		first(w, tr)
		second(w, tr)
	}
}

// Each of these attacks, or faults, ends the login with an error that says why. never must not have happened.
func TestRefusals(t *testing.T) {
	const register, user, exchange = "issuer POST /register", "user", "issuer POST /token"
	const elsewhere = "https://evil.example.com"
	for name, test := range map[string]struct {
		change change
		want   string
		never  string
	}{
		"resource: another host":  {server("resource", elsewhere+"/mcp"), "another resource", register},
		"resource: another port":  {server("resource", "ISSUER/mcp"), "another resource", register},
		"resource: beside":        {server("resource", "SERVER/mc"), "another resource", register},
		"resource: below":         {server("resource", "SERVER/mcp/a"), "another resource", register},
		"resource: a query":       {server("resource", "SERVER/mcp?tenant=b"), "another resource", register},
		"resource: another query": {both(server("resource", "SERVER/mcp?tenant=b"), func(_ *world, tr *Transport) { tr.Server += "?tenant=a" }), "another resource", register},
		"resource: fragment":      {server("resource", "SERVER/mcp#"), "fragment", register},
		"resource: none":          {server("resource", nil), "'resource'", register},

		"metadata: another origin":            {demand(`Bearer resource_metadata="ISSUER/x"`), "not at the origin", "issuer GET /x"},
		"metadata: a file":                    {demand(`Bearer resource_metadata="file:///etc/passwd"`), "must be an https URL", register},
		"metadata: http":                      {demand(`Bearer resource_metadata="http://evil.example.com/x"`), "must be an https URL", register},
		"metadata: a user":                    {demand(`Bearer resource_metadata="http://u:p@HOST/x"`), "neither a user", "server GET /x"},
		"metadata redirect to another origin": {redirect(aboutServer, 302, "ISSUER/x"), "no metadata", "issuer GET /x"},
		"metadata redirect without end":       {redirect(aboutServer, 302, "SERVER/.well-known/oauth-protected-resource/mcp"), "no metadata", register},
		"metadata fail":                       {replies(aboutServer, 503, "{}"), "status 503", register},
		"metadata too large":                  {server("x", strings.Repeat("x", maxDocument)), "more than", register},
		"metadata no JSON":                    {func(w *world, _ *Transport) { w.pages[aboutServer] = says("application/json", "{") }, "not JSON", register},
		"no issuer":                           {server("authorization_servers", []string{}), "no authorization server", register},

		"issuer twice in metadata": {replies(aboutIssuer, 200, `{"issuer":"`+elsewhere+`","issuer":"ISSUER","authorization_endpoint":"ISSUER/authorize",
			"token_endpoint":"ISSUER/token","registration_endpoint":"ISSUER/register","code_challenge_methods_supported":["S256"]}`), "'issuer'", register},
		"issuer: other metadata": {issuer("issuer", elsewhere), "are those of", register},
		"issuer: a slash more":   {issuer("issuer", "ISSUER/"), "are those of", register},
		"issuer: not https":      {server("authorization_servers", []string{"http://10.0.0.1"}), "must be an https URL", register},
		"issuer: a query":        {server("authorization_servers", []string{"ISSUER?a=b"}), "has a query", register},

		"endpoint: not https":               {issuer("token_endpoint", "http://10.0.0.1/token"), "token_endpoint must be", register},
		"endpoint: of registration":         {issuer("registration_endpoint", "http://10.0.0.1/"), "registration_endpoint must be", register},
		"endpoint: a script":                {issuer("authorization_endpoint", "javascript:alert(1)"), "authorization_endpoint must be", user},
		"endpoint: own parameters":          {issuer("authorization_endpoint", "ISSUER/authorize?code_challenge_method=plain"), `sets the parameter "code_challenge_method"`, user},
		"endpoint: own parameters, after ;": {issuer("authorization_endpoint", "ISSUER/authorize?a=b;code_challenge_method=plain"), "cannot be read", user},
		"endpoint: a request of its own":    {issuer("authorization_endpoint", "ISSUER/authorize?request=e30."), `sets the parameter "request"`, user},
		"endpoint: a request elsewhere":     {issuer("authorization_endpoint", "ISSUER/authorize?request%5Furi="+elsewhere), `sets the parameter "request_uri"`, user},
		"endpoint: a response elsewhere":    {issuer("authorization_endpoint", "ISSUER/authorize?response_mode=fragment"), `sets the parameter "response_mode"`, user},
		"endpoint: scopes":                  {both(demand("Bearer"), issuer("authorization_endpoint", "ISSUER/authorize?scope=admin")), `sets the parameter "scope"`, user},

		"PKCE: none":  {issuer("code_challenge_methods_supported", nil), "PKCE", user},
		"PKCE: plain": {issuer("code_challenge_methods_supported", []string{"plain"}), "PKCE", user},

		"state: another":              {answer("state", "x"), "another state", exchange},
		"state: none":                 {answer("state"), "another state", exchange},
		"code: twice":                 {answer("code", "x", "y"), `"code" twice`, exchange},
		"code: none":                  {answer("code"), "lacks a code", exchange},
		"iss: another":                {answer("iss", elsewhere), "another authorization server", exchange},
		"iss: another, not announced": {both(issuer("authorization_response_iss_parameter_supported", nil), answer("iss", elsewhere)), "another authorization server", exchange},
		"iss: another, with an error": {func(w *world, _ *Transport) {
			w.answer = func(v url.Values) { v.Set("iss", elsewhere); v.Set("error", "access_denied") }
		}, "another authorization server", exchange},
		"iss: a slash more": {answer("iss", "ISSUER/"), "another authorization server", exchange},
		"iss: twice":        {answer("iss", "ISSUER", elsewhere), `"iss" twice`, exchange},
		"iss: none":         {answer("iss"), "lacks iss", exchange},
		"the user refuses":  {answer("error", "access_denied"), "access_denied", exchange},

		"token: another type":                        {token("token_type", "DPoP"), "not a Bearer token", "none"},
		"token: a line end":                          {token("access_token", "a\r\nX: SECRET"), "cannot be sent", "none"},
		"token endpoint redirects":                   {redirect("issuer /token", 307, "SERVER/steal"), "status 307", "server POST /steal"},
		"token endpoint redirects within its origin": {redirect("issuer /token", 307, "/steal"), "status 307", "issuer POST /steal"},

		"registration redirects":        {redirect("issuer /register", 307, "SERVER/steal"), "status 307", "server POST /steal"},
		"registration refused":          {replies("issuer /register", 400, `{"error":"invalid_redirect_uri"}`), "status 400 invalid_redirect_uri", user},
		"registration without an id":    {replies("issuer /register", 201, "{}"), "client_id", user},
		"registration with an empty id": {replies("issuer /register", 201, `{"client_id":""}`), "client_id is empty", user},
		"registration with a long id":   {replies("issuer /register", 201, `{"client_id":"`+strings.Repeat("x", maxClientID+1)+`"}`), "more than 8192 bytes", user},
		"no registration": {both(issuer("registration_endpoint", nil), func(_ *world, tr *Transport) {
			tr.Registered = map[string]Registration{elsewhere: {ID: "x"}}
		}), "not registered", user},
		"an unknown method": {func(w *world, tr *Transport) {
			tr.Registered = map[string]Registration{w.issuer.URL: {ID: "x", Secret: "s", Method: "private_key_jwt"}}
		}, "private_key_jwt", user},

		"redirect URL":       {func(_ *world, tr *Transport) { tr.RedirectURL = "http://example.com/callback" }, "RedirectURL must be", user},
		"no way to the user": {func(_ *world, tr *Transport) { tr.Authorize = nil }, "Authorize is nil", user},
		"scopes without end": {demand(`Bearer scope="` + strings.Repeat("s", maxScopes+1) + `"`), "scopes of more than", user},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tr := w.transport()
			test.change(w, tr)
			_, err := w.get(tr)
			w.wantError(test.want, err)
			w.wantCount(test.never, 0)
			if err != nil && (strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "\n")) {
				t.Error(err)
			}
		})
	}
}

// The token endpoint repeats code and verifier in all parts of the error. No error of the Transport shows them.
func TestErrorsHideSecrets(t *testing.T) {
	for status, texts := range map[int][]string{
		400: {`{"error":"SECRETS","error_description":"SECRETS","error_uri":"SECRETS"}`, "SECRETS"},
		200: {`{"access_token":"a","expires_in":"SECRETS"}`, `{"x":"SECRETS"}`},
	} {
		for _, text := range texts {
			w := newWorld(t)
			var secrets []string
			w.pages["issuer /token"] = func(rw http.ResponseWriter, r *http.Request) {
				secrets = []string{r.PostFormValue("code"), r.PostFormValue("code_verifier")}
				rw.Header().Set("Content-Type", "application/json")
				rw.WriteHeader(status)
				_, _ = io.WriteString(rw, strings.ReplaceAll(text, "SECRETS", strings.Join(secrets, " ")))
			}
			_, err := w.get(w.transport())
			if err == nil || len(secrets) != 2 || len(secrets[1]) < 43 {
				t.Fatal(text, err, secrets)
			}
			for e := err; e != nil; e = errors.Unwrap(e) { // the whole chain
				shown := fmt.Sprintf("%v %+v", e, e)
				if strings.Contains(shown, secrets[0]) || strings.Contains(shown, secrets[1]) {
					t.Errorf("%s: %s", text, shown)
				}
			}
		}
	}
}

// The token goes to Server and below its path, and nowhere else.
func TestTokenStaysAtServer(t *testing.T) {
	w := newWorld(t)
	var got []string
	tr := w.transport()
	w.want(tr, "200 hello")
	tr.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
		got = append(got, cmp.Or(r.Header.Get("Authorization"), "-"))
		return &http.Response{StatusCode: 401, Header: http.Header{}, Body: http.NoBody, Request: r}, nil
	})
	host := strings.TrimPrefix(w.server.URL, "http://")
	for _, target := range []string{w.issuer.URL + "/mcp", "https://" + host + "/mcp", "http://evil.example.com/mcp", w.server.URL, w.server.URL + "/mcpx",
		w.server.URL + "/mcp/../admin", w.server.URL + "/mcp/%2e%2e/admin", "http://" + host + "@evil.example.com/mcp"} {
		r, err := http.NewRequest(http.MethodGet, target, nil)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := tr.RoundTrip(r)
		if err != nil || resp.StatusCode != 401 || len(got) != 1 || got[0] != "-" || r.Header.Get("Authorization") != "" {
			t.Error(target, err, got)
		}
		got = nil
	}
	tr.Base = nil
	r, _ := http.NewRequest(http.MethodGet, w.server.URL+"/mcp", nil)
	r.Header.Set("Authorization", "Basic own") // the caller's own counts, and the user is not asked
	if resp, err := tr.RoundTrip(r); err != nil || resp.StatusCode != 401 || w.count("user") != 1 {
		t.Error(err, w.happened())
	}
}

// A query may name a tenant. The token goes to the tenant that Server names, whether the metadata are about it or about all.
func TestTokenStaysAtTenant(t *testing.T) {
	for _, query := range []string{"", "?tenant=a"} {
		w := newWorld(t)
		w.resource["resource"] = w.server.URL + "/mcp" + query
		tr := w.transport()
		tr.Server += "?tenant=a"
		w.want(tr, "200 hello")
		if got := w.logins[0].Get("resource"); got != w.server.URL+"/mcp"+query {
			t.Error(got)
		}
		for _, other := range []string{"?tenant=b", "?tenant=a&tenant=b", ""} {
			resp, err := (&http.Client{Transport: tr}).Get(w.server.URL + "/mcp" + other)
			if err != nil || resp.StatusCode != 401 || w.count("user") != 1 {
				t.Errorf("%q: %v, %v", other, resp, err)
			}
			resp.Body.Close()
		}
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// However many requests are refused at once, the user is asked once, and the token is refreshed once.
func TestConcurrentRequests(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	for round, want := range [][2]int{{1, 1}, {1, 2}} {
		var all sync.WaitGroup
		for range 20 {
			all.Go(func() { w.want(tr, "200 hello") })
		}
		all.Wait()
		if w.count("user") != want[0] || w.count("issuer POST /token") != want[1] {
			t.Errorf("round %d: %q", round, w.happened())
		}
		w.expire()
	}
}

// A request that was sent before a login, and is refused after it, begins no other.
func TestLateRefusal(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	sent, proceed := make(chan bool), make(chan bool)
	var posts atomic.Int32
	tr.Base = roundTrip(func(r *http.Request) (*http.Response, error) {
		resp, err := http.DefaultTransport.RoundTrip(r)
		if r.Method == http.MethodPost && posts.Add(1) == 1 {
			sent <- true
			<-proceed
		}
		return resp, err
	})
	var late sync.WaitGroup
	late.Go(func() { w.want(tr, "200 hello") })
	<-sent
	w.want(tr, "200 hello")
	close(proceed)
	late.Wait()
	w.wantCount("issuer POST /token", 1)
}

// A request whose body cannot be read twice, or that ends a session, gets the 401, and begins no login.
func TestNoLogin(t *testing.T) {
	for method, body := range map[string]io.Reader{http.MethodPost: io.MultiReader(strings.NewReader("once")), http.MethodDelete: nil} {
		w := newWorld(t)
		tr := w.transport()
		r, _ := http.NewRequest(method, tr.Server, body)
		resp, err := tr.RoundTrip(r)
		if err != nil || resp.StatusCode != 401 || w.count("user") != 0 {
			t.Error(method, err, w.happened())
		}
	}
}

// A login goes on when the request that began it gives up. It ends with Close, and when its time is over.
func TestLoginOutlivesRequest(t *testing.T) {
	w := newWorld(t)
	asked, proceed := make(chan bool, 1), make(chan bool)
	waits := func(proceed <-chan bool) *Transport { // for its user
		tr := w.transport()
		tr.Authorize = func(ctx context.Context, target string) (url.Values, error) {
			asked <- true
			select {
			case <-proceed:
				return w.browse(ctx, target)
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}
		return tr
	}
	login := func(ctx context.Context, tr *Transport) <-chan error {
		ended := make(chan error, 1)
		go func() { ended <- tr.Login(ctx) }()
		<-asked
		return ended
	}
	patient := waits(proceed)
	ctx, cancel := context.WithCancel(t.Context())
	ended := login(ctx, patient)
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(proceed)
	w.want(patient, "200 hello")
	w.wantCount("user", 1)

	closed := waits(nil)
	ended = login(t.Context(), closed)
	closed.Close()
	if err := <-ended; !errors.Is(err, errClosed) {
		t.Error(err)
	}
	before := len(w.happened())
	if err := closed.Login(t.Context()); !errors.Is(err, errClosed) || len(w.happened()) != before+1 { // the ping
		t.Error(err, w.happened())
	}

	late := waits(nil)
	late.Timeout = 50 * time.Millisecond
	w.wantError("no login within 50ms", late.Login(t.Context()))
}

// After 401 the token is refreshed; the user is asked if the refresh token is refused, not if the endpoint fails.
func TestRefresh(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	w.want(tr, "200 hello")
	w.token = func(form url.Values, body map[string]any) { // no other refresh token: the old one stays
		if form.Get("grant_type") == "refresh_token" {
			delete(body, "refresh_token")
			w.refreshes[form.Get("refresh_token")] = true
		}
	}
	for range 2 {
		w.expire()
		w.want(tr, "200 hello")
	}
	if w.count("user") != 1 || w.forms[2].Get("refresh_token") != "refresh-1-SECRET" || w.forms[2].Get("resource") != w.server.URL+"/mcp" {
		t.Error(w.happened(), w.forms)
	}
	w.token = nil
	w.expire()
	clear(w.refreshes)
	w.want(tr, "200 hello")
	w.wantCount("user", 2)
	w.expire()
	w.resource["resource"] = w.server.URL // a refresh token for another resource stays where it is
	w.want(tr, "200 hello")
	w.wantCount("user", 3)
	w.expire()
	w.pages["issuer /token"] = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }
	w.wantRefused(tr, "status 503")
	w.wantCount("user", 3)
}

// A refreshed token that the server refuses sends the user to the authorization server; a fresh one that it refuses does not.
func TestRefusedTokens(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	w.want(tr, "200 hello")
	w.token = func(form url.Values, body map[string]any) {
		if form.Get("grant_type") == "refresh_token" {
			body["access_token"] = "not-valid"
		}
	}
	w.expire()
	w.want(tr, "200 hello")
	w.wantCount("user", 2)
	w.token = func(_ url.Values, body map[string]any) { body["access_token"] = "not-valid" }
	w.expire()
	for range 5 {
		w.want(tr, "401 ")
	}
	w.wantCount("user", 3)
	w.wantError("does not accept", tr.Login(t.Context()))
}

// After 403 the user is asked for the union of the scopes, once.
func TestStepUp(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	w.want(tr, "200 hello")
	w.needs = []string{"write"}
	w.want(tr, "200 hello")
	if w.count("user") != 2 || w.logins[1].Get("scope") != "read write" {
		t.Error(w.logins)
	}
	for token := range w.valid {
		w.valid[token] = []string{"read"} // the user has granted less
	}
	for range 5 {
		w.want(tr, "403 ")
	}
	w.wantCount("user", 2)
	wanted := 0
	w.pages["server /mcp"] = func(rw http.ResponseWriter, _ *http.Request) { // ever more
		wanted++
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="more%d"`, wanted))
		rw.WriteHeader(403)
	}
	w.want(tr, "403 ")
	if w.count("user") != 2+maxLogins || !strings.HasPrefix(w.logins[3].Get("scope"), "read write more1 more2") {
		t.Error(w.logins)
	}
	w.pages["server /mcp"] = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) } // about no scope
	w.want(tr, "403 ")
	w.wantCount("user", 2+maxLogins)
}

// After a failure the user is left alone for a while.
func TestPauseAfterFailure(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	tr.once.Do(tr.prepare)
	tr.pause = time.Hour
	w.answer = func(v url.Values) { v.Set("error", "access_denied") }
	for range 3 {
		w.wantRefused(tr, "access_denied")
	}
	w.wantCount("user", 1)
	tr.pause, w.answer = 0, nil
	w.want(tr, "200 hello")
}

// Metadata are looked for where the specification says, in its order.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	w.challenge = "Bearer"
	maps.Copy(w.resource, map[string]any{"resource": w.server.URL, "scopes_supported": []string{"a", "b"},
		"authorization_servers": []string{w.issuer.URL + "/tenant"}})
	maps.Copy(w.as, map[string]any{"issuer": w.issuer.URL + "/tenant", "scopes_supported": []string{"offline_access", "a"}})
	answer("iss", "ISSUER/tenant")(w, nil)
	w.pages["server /.well-known/oauth-protected-resource"] = w.describeServer
	w.pages["issuer /tenant/.well-known/openid-configuration"] = w.describeIssuer
	w.pages["issuer /.well-known/oauth-authorization-server/tenant"] = says("text/html", "<!DOCTYPE html>") // some servers answer anything
	delete(w.pages, aboutServer)
	w.want(w.transport(), "200 hello")
	want := []string{"server POST /mcp", "server GET /.well-known/oauth-protected-resource/mcp", "server GET /.well-known/oauth-protected-resource",
		"issuer GET /.well-known/oauth-authorization-server/tenant", "issuer GET /.well-known/openid-configuration/tenant",
		"issuer GET /tenant/.well-known/openid-configuration"}
	if got := w.happened(); !slices.Equal(got[:len(want)], want) {
		t.Errorf("%q", got)
	}
	if w.logins[0].Get("scope") != "a b offline_access" || w.logins[0].Get("resource") != w.server.URL {
		t.Error(w.logins)
	}
}

// The ways to a client id that the conformance suite does not go: it has those with a secret, and a URL that is read.
func TestRegistration(t *testing.T) {
	for want, change := range map[string]change{
		"at the second issuer": func(w *world, tr *Transport) {
			w.resource["authorization_servers"] = []string{w.server.URL, w.issuer.URL}
			tr.Registered = map[string]Registration{w.issuer.URL: {ID: "at the second issuer"}}
		},
		"without a secret": func(w *world, tr *Transport) {
			tr.Registered = map[string]Registration{w.issuer.URL: {ID: "without a secret", Method: "client_secret_basic"}}
		},
		"self-registered": func(_ *world, tr *Transport) { tr.ClientMetadataURL = "https://client.example/x" }, // which is not read there
	} {
		w := newWorld(t)
		tr := w.transport()
		change(w, tr)
		w.want(tr, "200 hello")
		if w.logins[0].Get("client_id") != want || w.headers[0] != "" || w.forms[0].Has("client_secret") {
			t.Errorf("%s: %v %v %v", want, w.logins, w.headers, w.forms)
		}
	}
}

// When a server moves to another issuer, the first issuer's refresh token and client id stay behind.
func TestMigration(t *testing.T) {
	w, second := newWorld(t), newWorld(t)
	tr := w.transport()
	w.want(tr, "200 hello")
	w.expire()
	w.resource["authorization_servers"] = []string{second.issuer.URL}
	replies("issuer /register", 201, `{"client_id":"second"}`)(second, nil)
	tr.Authorize = second.browse
	second.token = func(_ url.Values, body map[string]any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.valid[body["access_token"].(string)] = []string{"read"}
	}
	w.want(tr, "200 hello")
	if len(second.forms) != 1 || second.forms[0].Has("refresh_token") || second.logins[0].Get("client_id") != "second" || len(w.forms) != 1 {
		t.Error(second.forms, second.logins, w.forms)
	}
	// Back again: the first registration is still known. A client that was deleted registers once more.
	w.expire()
	w.resource["authorization_servers"] = []string{w.issuer.URL}
	tr.Authorize = w.browse
	w.want(tr, "200 hello")
	w.expire()
	exchange := w.pages["issuer /token"]
	replies("issuer /token", 400, `{"error":"invalid_client"}`)(w, nil)
	w.wantRefused(tr, "invalid_client")
	w.wantCount("issuer POST /register", 1)
	w.pages["issuer /token"], tr.pause = exchange, 0
	w.want(tr, "200 hello")
	w.wantCount("issuer POST /register", 2)
}

// If Client is nil, only public addresses are reached, however they are spelt.
func TestPublicOnly(t *testing.T) {
	w := newWorld(t)
	tr := &Transport{Server: "https://mcp.example.com/mcp"}
	tr.once.Do(tr.prepare)
	port := w.issuer.URL[strings.LastIndex(w.issuer.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::ffff:127.0.0.1]", "0.0.0.0", "10.0.0.1", "192.168.0.1", "169.254.169.254", "100.100.100.200", "[fd00::1]", "[fe80::1]", "[64:ff9b::a00:1]",
		"0.1.2.3", "192.0.0.192", "198.19.0.1", "240.0.0.1", "255.255.255.255", "[fec0::1]", "[64:ff9b:1::a00:1]", "[2002:a00:1::1]", "[::10.0.0.1]"} {
		resp, err := tr.client().Get("http://" + host + port)
		if err == nil {
			resp.Body.Close()
		}
		if err == nil || host != "localhost" && !strings.Contains(err.Error(), "prohibited IP address") {
			t.Error(host, err)
		}
	}
	if got := w.happened(); len(got) != 0 || tr.client().Timeout != fetchTimeout {
		t.Error(got)
	}
	for _, text := range []string{w.issuer.URL, "http://localhost/", "ftp://example.com", "https:///x", "https://u@example.com", "https://example.com#x", "//example.com"} {
		if _, err := checkURL("x", text, tr.local); err == nil {
			t.Errorf("%q is allowed", text)
		}
	}
}

// The redirect URL at loopback takes the answer of the login that waits, and no other.
func TestLoopback(t *testing.T) {
	w := newWorld(t)
	var replies []string
	var back *Loopback
	back, err := NewLoopback(func(target string) error {
		answer, err := w.browse(t.Context(), target)
		if err != nil {
			return err
		}
		wrong := url.Values{"state": {"x"}, "code": {"x"}}
		for _, query := range []url.Values{wrong, {}, answer, answer} {
			resp, err := http.Get(back.URL + "?" + query.Encode())
			if err != nil {
				return err
			}
			text, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			replies = append(replies, fmt.Sprint(resp.StatusCode, " ", strings.TrimSpace(string(text))))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	defer back.Close()
	tr := w.transport()
	tr.RedirectURL, tr.Authorize = back.URL, back.Authorize
	if err := tr.Login(t.Context()); err != nil {
		t.Error(err)
	}
	w.want(tr, "200 hello")
	const none = "404 No login waits for this."
	if want := []string{none, none, "200 You may close this page.", none}; !slices.Equal(replies, want) || w.count("user") != 1 {
		t.Errorf("%q", replies)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	back.show = func(string) error { return nil }
	if _, err := back.Authorize(ctx, "https://example.com/?state=x"); err != context.Canceled {
		t.Error(err)
	}
	if _, err := back.Authorize(ctx, "https://example.com/"); err == nil || err == context.Canceled {
		t.Error(err)
	}
}

// A value is found in a challenge among others, whatever it is, and no header makes readBearer return a name that is none.
func FuzzChallenge(f *testing.F) {
	for _, seed := range []string{``, `a "b" \c`, `Bearer`, `Bearer a=1, a=2 , b="`, `Basic x==, Bearer scope="a, Bearer b=c"`, `bearer  error = "x" Digest realm=y`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, value string) {
		for name := range readBearer(http.Header{"Www-Authenticate": {value}}) {
			if name == "" || name != strings.ToLower(name) || strings.ContainsAny(name, " ,=\"\t") {
				t.Fatalf("%q has a parameter %q", value, name)
			}
		}
		if strings.ContainsAny(value, "\r\n") {
			return
		}
		quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
		params := readBearer(http.Header{"Www-Authenticate": {"Basic realm=" + quoted, "bearer error=x, Scope=" + quoted + ", Digest scope=y"}})
		if len(params) != 2 || params["error"] != "x" || params["scope"] != value {
			t.Fatalf("%q is read as %q", value, params)
		}
	})
}
