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

// world is an MCP server, an authorization server and a user, as a test wants them.
// Each goes by the rules unless the test changes it.
type world struct {
	*testing.T
	server, issuer *httptest.Server

	mu        sync.Mutex // guards the fields below
	challenge string     // of the server's 401
	resource  map[string]any
	as        map[string]any
	places    []string                                            // where there are metadata, as HOST PATH; HOST is server or issuer
	needs     []string                                            // scopes that the server wants: 403 without them
	answer    func(url.Values)                                    // changes what the user comes back with
	token     func(form url.Values, token map[string]any)         // changes what the token endpoint says
	override  map[string]func(http.ResponseWriter, *http.Request) // by HOST PATH
	codes     map[string]url.Values                               // the authorization request of each code
	valid     map[string][]string                                 // the scopes of each token
	refreshes map[string]bool                                     // the refresh tokens that are good
	log       []string                                            // what happened: HOST METHOD PATH, or: user
	forms     []url.Values                                        // of token requests
	logins    []url.Values                                        // of authorization requests
	bodies    []string                                            // of registrations
	headers   []string                                            // Authorization at the token endpoint
}

func newWorld(t *testing.T) *world {
	w := &world{T: t, codes: map[string]url.Values{}, valid: map[string][]string{}, refreshes: map[string]bool{},
		override: map[string]func(http.ResponseWriter, *http.Request){}}
	w.server = httptest.NewServer(w.handler("server", w.serve))
	w.issuer = httptest.NewServer(w.handler("issuer", w.authorize))
	t.Cleanup(w.server.Close)
	t.Cleanup(w.issuer.Close)
	w.challenge = fmt.Sprintf(`Bearer resource_metadata="%s/.well-known/oauth-protected-resource/mcp", scope="read"`, w.server.URL)
	w.resource = map[string]any{"resource": w.server.URL + "/mcp", "authorization_servers": []string{w.issuer.URL}}
	w.as = map[string]any{
		"issuer": w.issuer.URL, "authorization_endpoint": w.issuer.URL + "/authorize", "token_endpoint": w.issuer.URL + "/token",
		"registration_endpoint": w.issuer.URL + "/register", "code_challenge_methods_supported": []string{"S256"},
		"token_endpoint_auth_methods_supported": []string{"none"}, "authorization_response_iss_parameter_supported": true,
	}
	w.places = []string{"server /.well-known/oauth-protected-resource/mcp", "issuer /.well-known/oauth-authorization-server"}
	return w
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

func (w *world) happened() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.log)
}

// count returns how often something happened.
func (w *world) count(what string) (n int) {
	for _, line := range w.happened() {
		if line == what {
			n++
		}
	}
	return n
}

func (w *world) handler(host string, next func(http.ResponseWriter, *http.Request)) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		_ = r.ParseForm()
		w.mu.Lock()
		w.log = append(w.log, host+" "+r.Method+" "+r.URL.Path)
		place := host + " " + r.URL.Path
		override := w.override[place]
		isMetadata := slices.Contains(w.places, place)
		body := w.as
		if host == "server" {
			body = w.resource
		}
		w.mu.Unlock()
		switch {
		case override != nil:
			override(rw, r)
		case isMetadata:
			reply(rw, 200, body)
		default:
			next(rw, r)
		}
	})
}

func reply(rw http.ResponseWriter, status int, body any) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_ = json.NewEncoder(rw).Encode(body)
}

// serve is the MCP server.
func (w *world) serve(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	scopes, isValid := w.valid[strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")]
	lacks := func(scope string) bool { return !slices.Contains(scopes, scope) }
	body, _ := io.ReadAll(r.Body)
	switch {
	case r.URL.Path != "/mcp":
		http.NotFound(rw, r)
	case !isValid:
		rw.Header().Set("WWW-Authenticate", w.challenge)
		rw.WriteHeader(401)
	case slices.ContainsFunc(w.needs, lacks):
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="%s"`, strings.Join(w.needs, " ")))
		rw.WriteHeader(403)
	default:
		fmt.Fprintf(rw, "%s", body)
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

// authorize is the authorization server.
func (w *world) authorize(rw http.ResponseWriter, r *http.Request) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch r.URL.Path {
	case "/register":
		body, _ := io.ReadAll(r.Body)
		w.bodies = append(w.bodies, string(body))
		reply(rw, 201, map[string]any{"client_id": "self-registered", "token_endpoint_auth_method": "none"})
	case "/token":
		w.headers = append(w.headers, r.Header.Get("Authorization"))
		w.forms = append(w.forms, r.PostForm)
		status, body := w.exchange(r.PostForm)
		if w.token != nil {
			w.token(r.PostForm, body)
		}
		reply(rw, status, body)
	default:
		http.NotFound(rw, r)
	}
}

// exchange is the token endpoint. A code and a refresh token are good for once.
func (w *world) exchange(form url.Values) (status int, body map[string]any) {
	n := len(w.forms)
	var scopes []string
	switch form.Get("grant_type") {
	case "authorization_code":
		login := w.codes[form.Get("code")]
		delete(w.codes, form.Get("code"))
		sum := sha256.Sum256([]byte(form.Get("code_verifier")))
		challenge := base64.RawURLEncoding.EncodeToString(sum[:])
		if login == nil || login.Get("code_challenge_method") != "S256" || login.Get("code_challenge") != challenge ||
			login.Get("resource") != form.Get("resource") || login.Get("redirect_uri") != form.Get("redirect_uri") {
			return 400, map[string]any{"error": "invalid_grant"}
		}
		scopes = strings.Fields(login.Get("scope"))
	case "refresh_token":
		if !w.refreshes[form.Get("refresh_token")] || form.Get("resource") == "" {
			return 400, map[string]any{"error": "invalid_grant"}
		}
		delete(w.refreshes, form.Get("refresh_token"))
		scopes = []string{"read"}
	default:
		return 400, map[string]any{"error": "unsupported_grant_type"}
	}
	access, refresh := fmt.Sprintf("access-%d-SECRET", n), fmt.Sprintf("refresh-%d-SECRET", n)
	w.valid[access], w.refreshes[refresh] = scopes, true
	return 200, map[string]any{"access_token": access, "token_type": "Bearer", "refresh_token": refresh, "expires_in": 3600}
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
		w.override["server /mcp"] = handler.ServeHTTP
		login := w.transport()
		client := &wire.Client{Info: wire.Implementation{Name: "c", Version: "0"}, Versions: []string{version}, Log: slog.New(slog.NewTextHandler(&log, nil))}
		err := client.Connect(t.Context(), wire.HTTPDialer{URL: login.Server, Client: &http.Client{Transport: login}})
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

// Each of these attacks, or faults, ends the login with an error that says why. never must not have happened.
func TestRefusals(t *testing.T) {
	const register, user, token = "issuer POST /register", "user", "issuer POST /token"
	elsewhere := "https://evil.example.com"
	redirect := func(to func(w *world) string, status int) func(*world, string) {
		return func(w *world, place string) {
			w.override[place] = func(rw http.ResponseWriter, r *http.Request) { http.Redirect(rw, r, to(w), status) }
		}
	}
	for name, test := range map[string]struct {
		change func(*world, *Transport)
		want   string
		never  string
	}{
		"resource: another host": {func(w *world, _ *Transport) { w.resource["resource"] = elsewhere + "/mcp" }, "another resource", register},
		"resource: another port": {func(w *world, _ *Transport) { w.resource["resource"] = w.issuer.URL + "/mcp" }, "another resource", register},
		"resource: beside":       {func(w *world, _ *Transport) { w.resource["resource"] = w.server.URL + "/mc" }, "another resource", register},
		"resource: below":        {func(w *world, _ *Transport) { w.resource["resource"] = w.server.URL + "/mcp/a" }, "another resource", register},
		"resource: a query":      {func(w *world, _ *Transport) { w.resource["resource"] = w.server.URL + "/mcp?tenant=b" }, "another resource", register},
		"resource: another query": {func(w *world, tr *Transport) {
			tr.Server += "?tenant=a"
			w.resource["resource"] = w.server.URL + "/mcp?tenant=b"
		}, "another resource", register},
		"resource: fragment": {func(w *world, _ *Transport) { w.resource["resource"] = w.server.URL + "/mcp#" }, "fragment", register},
		"resource: none":     {func(w *world, _ *Transport) { delete(w.resource, "resource") }, "'resource'", register},
		"no issuer":          {func(w *world, _ *Transport) { w.resource["authorization_servers"] = []string{} }, "no authorization server", register},
		"metadata: another origin": {func(w *world, _ *Transport) {
			w.challenge = fmt.Sprintf(`Bearer resource_metadata="%s/x"`, w.issuer.URL)
		}, "not at the origin", "issuer GET /x"},
		"metadata: a file": {func(w *world, _ *Transport) { w.challenge = `Bearer resource_metadata="file:///etc/passwd"` }, "must be an https URL", register},
		"metadata: http":   {func(w *world, _ *Transport) { w.challenge = `Bearer resource_metadata="http://evil.example.com/x"` }, "must be an https URL", register},
		"metadata: a user": {func(w *world, _ *Transport) {
			w.challenge = fmt.Sprintf(`Bearer resource_metadata="http://u:p@%s/x"`, strings.TrimPrefix(w.server.URL, "http://"))
		}, "neither a user", "server GET /x"},
		"metadata redirect to another origin": {func(w *world, _ *Transport) {
			redirect(func(w *world) string { return w.issuer.URL + "/x" }, 302)(w, w.places[0])
		}, "no metadata", "issuer GET /x"},
		"metadata redirect without end": {func(w *world, _ *Transport) {
			redirect(func(*world) string { return "/.well-known/oauth-protected-resource/mcp" }, 302)(w, w.places[0])
		}, "no metadata", register},
		"metadata fail": {func(w *world, _ *Transport) {
			w.override[w.places[0]] = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }
		}, "status 503", register},
		"metadata too large": {func(w *world, _ *Transport) { w.resource["x"] = strings.Repeat("x", maxDocument) }, "more than", register},
		"metadata no JSON": {func(w *world, _ *Transport) {
			w.override[w.places[0]] = func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				_, _ = rw.Write([]byte("{"))
			}
		}, "not JSON", register},
		"issuer twice in metadata": {func(w *world, _ *Transport) {
			w.override[w.places[1]] = func(rw http.ResponseWriter, _ *http.Request) {
				rw.Header().Set("Content-Type", "application/json")
				text, _ := json.Marshal(w.as)
				fmt.Fprintf(rw, `{"issuer":"%s",%s`, elsewhere, text[1:])
			}
		}, "issuer", register},
		"issuer: other metadata":    {func(w *world, _ *Transport) { w.as["issuer"] = elsewhere }, "are those of", register},
		"issuer: a slash more":      {func(w *world, _ *Transport) { w.as["issuer"] = w.issuer.URL + "/" }, "are those of", register},
		"issuer: not https":         {func(w *world, _ *Transport) { w.resource["authorization_servers"] = []string{"http://10.0.0.1"} }, "must be an https URL", register},
		"issuer: a query":           {func(w *world, _ *Transport) { w.resource["authorization_servers"] = []string{w.issuer.URL + "?a=b"} }, "has a query", register},
		"endpoint: not https":       {func(w *world, _ *Transport) { w.as["token_endpoint"] = "http://10.0.0.1/token" }, "token_endpoint must be", register},
		"endpoint: of registration": {func(w *world, _ *Transport) { w.as["registration_endpoint"] = "http://10.0.0.1/" }, "registration_endpoint must be", register},
		"endpoint: a script":        {func(w *world, _ *Transport) { w.as["authorization_endpoint"] = "javascript:alert(1)" }, "authorization_endpoint must be", user},
		"endpoint: own parameters": {func(w *world, _ *Transport) {
			w.as["authorization_endpoint"] = w.issuer.URL + "/authorize?code_challenge_method=plain"
		}, "sets the parameter \"code_challenge_method\"", user},
		"endpoint: own parameters, after ;": {func(w *world, _ *Transport) {
			w.as["authorization_endpoint"] = w.issuer.URL + "/authorize?a=b;code_challenge_method=plain"
		}, "cannot be read", user},
		"endpoint: a request of its own": {func(w *world, _ *Transport) {
			w.as["authorization_endpoint"] = w.issuer.URL + "/authorize?request=e30."
		}, "sets the parameter \"request\"", user},
		"endpoint: a request elsewhere": {func(w *world, _ *Transport) {
			w.as["authorization_endpoint"] = w.issuer.URL + "/authorize?request%5Furi=https://evil.example.com"
		}, "sets the parameter \"request_uri\"", user},
		"endpoint: a response elsewhere": {func(w *world, _ *Transport) {
			w.as["authorization_endpoint"] = w.issuer.URL + "/authorize?response_mode=fragment"
		}, "sets the parameter \"response_mode\"", user},
		"endpoint: scopes": {func(w *world, _ *Transport) {
			delete(w.resource, "scopes_supported")
			w.challenge = "Bearer"
			w.as["authorization_endpoint"] = w.issuer.URL + "/authorize?scope=admin"
		}, "sets the parameter \"scope\"", user},
		"PKCE: none":     {func(w *world, _ *Transport) { delete(w.as, "code_challenge_methods_supported") }, "PKCE", user},
		"PKCE: plain":    {func(w *world, _ *Transport) { w.as["code_challenge_methods_supported"] = []string{"plain"} }, "PKCE", user},
		"state: another": {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Set("state", "x") } }, "another state", token},
		"state: none":    {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Del("state") } }, "another state", token},
		"code: twice":    {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Add("code", "x") } }, `"code" twice`, token},
		"code: none":     {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Del("code") } }, "lacks a code", token},
		"iss: another":   {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Set("iss", elsewhere) } }, "another authorization server", token},
		"iss: another, not announced": {func(w *world, _ *Transport) {
			delete(w.as, "authorization_response_iss_parameter_supported")
			w.answer = func(v url.Values) { v.Set("iss", elsewhere) }
		}, "another authorization server", token},
		"iss: a slash more": {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Set("iss", w.issuer.URL+"/") } }, "another authorization server", token},
		"iss: twice":        {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Add("iss", elsewhere) } }, `"iss" twice`, token},
		"iss: none":         {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Del("iss") } }, "lacks iss", token},
		"iss: another, with an error": {func(w *world, _ *Transport) {
			w.answer = func(v url.Values) { v.Set("iss", elsewhere); v.Set("error", "access_denied") }
		}, "another authorization server", token},
		"the user refuses": {func(w *world, _ *Transport) { w.answer = func(v url.Values) { v.Set("error", "access_denied") } }, "access_denied", token},
		"token: another type": {func(w *world, _ *Transport) {
			w.token = func(_ url.Values, body map[string]any) { body["token_type"] = "DPoP" }
		}, "not a Bearer token", "none"},
		"token: a line end": {func(w *world, _ *Transport) {
			w.token = func(_ url.Values, body map[string]any) { body["access_token"] = "a\r\nX: SECRET" }
		}, "cannot be sent", "none"},
		"token endpoint redirects": {func(w *world, _ *Transport) {
			redirect(func(w *world) string { return w.server.URL + "/steal" }, 307)(w, "issuer /token")
		}, "status 307", "server POST /steal"},
		"token endpoint redirects within its origin": {func(w *world, _ *Transport) {
			redirect(func(*world) string { return "/steal" }, 307)(w, "issuer /token")
		}, "status 307", "issuer POST /steal"},
		"registration redirects": {func(w *world, _ *Transport) {
			redirect(func(w *world) string { return w.server.URL + "/steal" }, 307)(w, "issuer /register")
		}, "status 307", "server POST /steal"},
		"registration refused": {func(w *world, _ *Transport) {
			w.override["issuer /register"] = func(rw http.ResponseWriter, _ *http.Request) {
				reply(rw, 400, map[string]any{"error": "invalid_redirect_uri"})
			}
		}, "status 400 invalid_redirect_uri", user},
		"registration without an id": {func(w *world, _ *Transport) {
			w.override["issuer /register"] = func(rw http.ResponseWriter, _ *http.Request) { reply(rw, 201, map[string]any{}) }
		}, "client_id", user},
		"registration with an empty id": {func(w *world, _ *Transport) {
			w.override["issuer /register"] = func(rw http.ResponseWriter, _ *http.Request) {
				reply(rw, 201, map[string]any{"client_id": ""})
			}
		}, "client_id is empty", user},
		"no registration": {func(w *world, tr *Transport) {
			delete(w.as, "registration_endpoint")
			tr.Registered = map[string]Registration{elsewhere: {ID: "x"}}
		}, "not registered", user},
		"an unknown method": {func(w *world, tr *Transport) {
			tr.Registered = map[string]Registration{w.issuer.URL: {ID: "x", Secret: "s", Method: "private_key_jwt"}}
		}, "private_key_jwt", user},
		"redirect URL": {func(w *world, tr *Transport) { tr.RedirectURL = "http://example.com/callback" }, "RedirectURL must be", user},
		"scopes without end": {func(w *world, tr *Transport) {
			w.challenge = `Bearer scope="` + manyScopes(maxScopes/4) + `"`
		}, "scopes of more than", user},
		"no way to the user": {func(_ *world, tr *Transport) { tr.Authorize = nil }, "Authorize is nil", user},
		"registration with a long id": {func(w *world, _ *Transport) {
			w.override["issuer /register"] = func(rw http.ResponseWriter, _ *http.Request) {
				reply(rw, 201, map[string]any{"client_id": strings.Repeat("x", maxClientID+1)})
			}
		}, "more than 8192 bytes", user},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tr := w.transport()
			test.change(w, tr)
			got, err := w.get(tr)
			if err == nil || !strings.Contains(err.Error(), test.want) || w.count(test.never) != 0 {
				t.Errorf("%q, %v; %q", got, err, w.happened())
			}
			if err != nil && (strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "\n")) {
				t.Error(err)
			}
		})
	}
}

func manyScopes(n int) string {
	var all []string
	for i := range n {
		all = append(all, fmt.Sprint("s", i))
	}
	return strings.Join(all, " ")
}

// The token endpoint repeats code and verifier in all parts of the error. No error of the Transport shows them.
func TestErrorsHideSecrets(t *testing.T) {
	for name, answer := range map[string]func(rw http.ResponseWriter, secret string){
		"code and description": func(rw http.ResponseWriter, secret string) {
			reply(rw, 400, map[string]any{"error": secret, "error_description": secret, "error_uri": secret})
		},
		"text": func(rw http.ResponseWriter, secret string) {
			rw.WriteHeader(400)
			_, _ = rw.Write([]byte(secret))
		},
		"JSON of another kind": func(rw http.ResponseWriter, secret string) {
			reply(rw, 200, map[string]any{"access_token": "a", "expires_in": secret})
		},
		"success without a token": func(rw http.ResponseWriter, secret string) { reply(rw, 200, map[string]any{"x": secret}) },
	} {
		w := newWorld(t)
		var secrets []string
		w.override["issuer /token"] = func(rw http.ResponseWriter, r *http.Request) {
			secrets = []string{r.PostForm.Get("code"), r.PostForm.Get("code_verifier")}
			answer(rw, strings.Join(secrets, " "))
		}
		_, err := w.get(w.transport())
		if err == nil || len(secrets) != 2 || len(secrets[1]) < 43 {
			t.Fatal(name, err, secrets)
		}
		for e := err; e != nil; e = errors.Unwrap(e) { // the whole chain
			text := fmt.Sprintf("%v %+v", e, e)
			if strings.Contains(text, secrets[0]) || strings.Contains(text, secrets[1]) {
				t.Errorf("%s: %s", name, text)
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
	if w.count("issuer POST /token") != 1 {
		t.Error(w.happened())
	}
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

// A login goes on when the request that began it gives up, and ends with Close.
func TestLoginOutlivesRequest(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	asked, proceed := make(chan bool), make(chan bool)
	var cancelled atomic.Bool
	tr.Authorize = func(ctx context.Context, target string) (url.Values, error) {
		asked <- true
		select {
		case <-proceed:
			return w.browse(ctx, target)
		case <-ctx.Done():
			cancelled.Store(true)
			return nil, ctx.Err()
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, tr.Server, nil)
	ended := make(chan error)
	go func() {
		_, err := tr.RoundTrip(r)
		ended <- err
	}()
	<-asked
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(proceed)
	w.want(tr, "200 hello")
	if w.count("user") != 1 {
		t.Error(w.happened())
	}

	other := w.transport() // its user never answers
	other.Authorize = func(ctx context.Context, target string) (url.Values, error) {
		asked <- true
		<-ctx.Done()
		cancelled.Store(true)
		return nil, ctx.Err()
	}
	go func() { ended <- other.Login(t.Context()) }()
	<-asked
	other.Close()
	if err := <-ended; !errors.Is(err, errClosed) || !cancelled.Load() {
		t.Error(err)
	}
	metadata := w.count("server GET /.well-known/oauth-protected-resource/mcp")
	if err := other.Login(t.Context()); !errors.Is(err, errClosed) || w.count("server GET /.well-known/oauth-protected-resource/mcp") != metadata {
		t.Error(err, w.happened())
	}

	slow := w.transport()
	slow.Timeout = 50 * time.Millisecond
	slow.Authorize = func(ctx context.Context, _ string) (url.Values, error) { <-ctx.Done(); return nil, ctx.Err() }
	if err := slow.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "no login within 50ms") {
		t.Error(err)
	}
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
	w.mu.Lock()
	clear(w.refreshes)
	w.mu.Unlock()
	w.want(tr, "200 hello")
	if w.count("user") != 2 {
		t.Error(w.happened())
	}
	w.expire()
	w.resource["resource"] = w.server.URL // a refresh token for another resource stays where it is
	w.want(tr, "200 hello")
	if w.count("user") != 3 {
		t.Error(w.happened())
	}
	w.expire()
	w.override["issuer /token"] = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) }
	if _, err := w.get(tr); err == nil || !strings.Contains(err.Error(), "status 503") || w.count("user") != 3 {
		t.Error(err, w.happened())
	}
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
	if w.count("user") != 2 {
		t.Error(w.happened())
	}
	w.token = func(_ url.Values, body map[string]any) { body["access_token"] = "not-valid" }
	w.expire()
	for range 5 {
		w.want(tr, "401 ")
	}
	if w.count("user") != 3 {
		t.Error(w.happened())
	}
	if err := tr.Login(t.Context()); err == nil || !strings.Contains(err.Error(), "does not accept") {
		t.Error(err)
	}
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
	w.mu.Lock()
	for token := range w.valid {
		w.valid[token] = []string{"read"} // the user has granted less
	}
	w.mu.Unlock()
	for range 5 {
		w.want(tr, "403 ")
	}
	if w.count("user") != 2 {
		t.Error(w.happened())
	}
	wanted := 0
	w.override["server /mcp"] = func(rw http.ResponseWriter, _ *http.Request) { // ever more
		wanted++
		rw.Header().Set("WWW-Authenticate", fmt.Sprintf(`Bearer error="insufficient_scope", scope="more%d"`, wanted))
		rw.WriteHeader(403)
	}
	w.want(tr, "403 ")
	if w.count("user") != 2+maxLogins || !strings.HasPrefix(w.logins[3].Get("scope"), "read write more1 more2") {
		t.Error(w.logins)
	}
	delete(w.override, "server /mcp")
	w.override["server /mcp"] = func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(403) } // about no scope
	w.want(tr, "403 ")
	if w.count("user") != 2+maxLogins {
		t.Error(w.logins)
	}
}

// After a failure the user is left alone for a while.
func TestPauseAfterFailure(t *testing.T) {
	w := newWorld(t)
	tr := w.transport()
	tr.once.Do(tr.prepare)
	tr.pause = time.Hour
	w.answer = func(v url.Values) { v.Set("error", "access_denied") }
	for range 3 {
		if _, err := w.get(tr); err == nil || !strings.Contains(err.Error(), "access_denied") {
			t.Error(err)
		}
	}
	if w.count("user") != 1 {
		t.Error(w.happened())
	}
	tr.pause, w.answer = 0, nil
	w.want(tr, "200 hello")
}

// Metadata are looked for where the specification says, in its order.
func TestPlaces(t *testing.T) {
	w := newWorld(t)
	w.challenge = "Bearer"
	w.resource["resource"] = w.server.URL
	w.resource["scopes_supported"] = []string{"a", "b"}
	w.resource["authorization_servers"] = []string{w.issuer.URL + "/tenant"}
	w.as["issuer"] = w.issuer.URL + "/tenant"
	w.as["scopes_supported"] = []string{"offline_access", "a"}
	w.answer = func(v url.Values) { v.Set("iss", w.issuer.URL+"/tenant") }
	w.places = []string{"server /.well-known/oauth-protected-resource", "issuer /tenant/.well-known/openid-configuration"}
	w.override["issuer /.well-known/oauth-authorization-server/tenant"] = func(rw http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(rw, "<!DOCTYPE html>") // some servers answer anything
	}
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
	for want, change := range map[string]func(*world, *Transport){
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
	second.override["issuer /register"] = func(rw http.ResponseWriter, _ *http.Request) {
		reply(rw, 201, map[string]any{"client_id": "second"})
	}
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
	w.token = func(_ url.Values, body map[string]any) {
		clear(body)
		maps.Copy(body, map[string]any{"error": "invalid_client"})
	}
	if _, err := w.get(tr); err == nil || !strings.Contains(err.Error(), "invalid_client") || len(w.bodies) != 1 {
		t.Error(err, w.bodies)
	}
	w.token, tr.pause = nil, 0
	w.want(tr, "200 hello")
	if len(w.bodies) != 2 {
		t.Error(w.bodies)
	}
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
		if err == nil || host != "localhost" && !strings.Contains(err.Error(), "not a public address") {
			t.Error(host, err)
		}
	}
	if got := w.happened(); len(got) != 0 || tr.client().Timeout != fetchTimeout {
		t.Error(got)
	}
	for _, text := range []string{w.issuer.URL, "http://localhost/", "ftp://example.com", "https:///x", "https://u@example.com", "https://example.com#x", "//example.com"} {
		if _, err := tr.checkURL("x", text); err == nil {
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
