package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// site serves an empty page under any name, with the functions of browser.js in it.
type site struct {
	*httptest.Server
	mux *http.ServeMux
}

// newSite has to come before the server that is to know its origin.
func newSite(t *testing.T) *site {
	t.Helper()
	s := &site{mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /browser.js", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, "browser.js") })
	s.mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		io.WriteString(w, `<!doctype html><title>page</title><body><script src="browser.js"></script>`)
	})
	s.Server = httptest.NewServer(s.mux)
	t.Cleanup(s.Close)
	return s
}

// origin is what a browser takes it for under a name.
func (s *site) origin(name string) string {
	_, port, _ := strings.Cut(s.Listener.Addr().String(), ":")
	return "http://" + name + ":" + port
}

// browse opens the page under a name, and returns what a function did there.
func (s *site) browse(t *testing.T, name, function string, argument map[string]string) string {
	t.Helper()
	known, err := json.Marshal(argument)
	if err != nil {
		t.Fatal(err)
	}
	b := openTab(t)
	b.open(s.origin(name) + "/")
	seen := eval[[]byte](b, function+"("+string(known)+")")
	t.Logf("%s as %s: %s", function, s.origin(name), seen)
	return string(seen)
}

// TestBrowserAllowed: a page whose origin is listed is a client like any other, and can read the headers it needs.
func TestBrowserAllowed(t *testing.T) {
	t.Parallel()
	page := newSite(t)
	server := serve(t, "-versions", handshake, "-allow-origin", page.origin("app.example"))
	expect(t, page.browse(t, "app.example", "allowed", map[string]string{"mcp": server.mcp, "sse": server.sse}), `{
		"initialize":200,"session":true,"server":"mcpwire","initialized":202,
		"type":"text/event-stream","steps":[1,2,3,4,5],"live":true,"results":["counted to 5"],
		"listened":200,"listened heard":"notifications/resources/list_changed",
		"resumed":200,"resumed heard":"notifications/resources/list_changed",
		"deleted":200,"after":404,"posted":202,"HTTP+SSE":"mcpwire"}`)
}

// TestBrowserForeign: any other page learns nothing and changes nothing. It cannot be kept from sending requests, but they must not be
// carried out. A server without sessions is in more danger, as there every request stands alone. The Origin of a page from this machine is
// let in; but it cannot send JSON, nor read answers, unless it is listed, too.
func TestBrowserForeign(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"evil.example", "127.0.0.1"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			page := newSite(t)
			flags := []string{"-versions", handshake, "-allow-origin", page.origin("app.example")}
			server, stateless := serve(t, flags...), serve(t, append(flags, "-stateless")...)
			seen := map[string]any{}
			text := page.browse(t, name, "foreign", map[string]string{"mcp": server.mcp, "sse": server.sse, "stateless": stateless.mcp})
			if err := json.Unmarshal([]byte(text), &seen); err != nil || len(seen) != 20 {
				t.Fatalf("%v, %d attempts", err, len(seen))
			}
			for attempt, said := range seen {
				want := "TypeError" // which is all that fetch says
				switch {
				case strings.Contains(attempt, "blind"):
					want = "opaque" // there was an answer, and nothing of it is to be seen
				case attempt == "sse source":
					want = "error"
				}
				if said != want {
					t.Errorf("%s: got %v, want %s", attempt, said, want)
				}
			}
			for _, v := range []*visitor{visit(t, server.mcp), {url: stateless.mcp}} {
				expect(t, v.call(t, "resources/list", `{}`), `{"result":{"resources":[{"uri":"note:///welcome"}]}}`) // no notes of the page's
				v.setNote(t, "own")
				expect(t, v.call(t, "resources/list", `{}`), `{"result":{"resources":[{"uri":"note:///own"},{"uri":"note:///welcome"}]}}`)
			}
		})
	}
}

// TestBrowserRebound: a page may have its name lead to this machine, once it is loaded. The browser then sends no Origin with a GET, and
// lets the page read answers; but what it asks for has a Host that is not ours. Here a proxy takes the part of the name server.
func TestBrowserRebound(t *testing.T) {
	t.Parallel()
	page := newSite(t)
	server := serve(t, "-versions", handshake)
	base, err := url.Parse(server.base)
	if err != nil {
		t.Fatal(err)
	}
	way := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { // leaves Host and Origin as they are
		r.Out.URL.Scheme, r.Out.URL.Host = base.Scheme, base.Host
	}}
	page.mux.Handle("/mcp", way)
	page.mux.Handle("/sse", way)
	expect(t, page.browse(t, "rebind.example", "rebound", nil), `{"/mcp POST":403,"/mcp GET":403,"/mcp DELETE":403,"/mcp OPTIONS":403,
		"/sse POST":403,"/sse GET":403,"/sse DELETE":403,"/sse OPTIONS":403}`)
}
