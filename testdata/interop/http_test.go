package interop

//lint:file-ignore SA1019 logging is deprecated in 2026-07-28, and what tells whether it is there

import (
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// handshake are the versions with sessions, newest first. Most tests here are about these alone; eras_test.go has what is newer.
const handshake = "2025-11-25,2025-06-18,2025-03-26,2024-11-05"

// transports are those over HTTP, as the Inspector calls them.
var transports = []string{"http", "sse"}

func (d daemon) url(transport string) string {
	if transport == "sse" {
		return d.sse
	}
	return d.mcp
}

// recorder is a client's way to the server.
type recorder struct {
	sink io.Writer // takes what comes back

	mu                sync.Mutex // guards the fields below
	exchanges         []string   // method and status, and whether it resumes a stream
	headers           []http.Header
	session, endpoint string // the last that was sent; the last that was posted to
}

func (r *recorder) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	exchange := req.Method + " " + resp.Status
	if req.Header.Get("Last-Event-ID") != "" {
		exchange += ", resumed"
	}
	r.exchanges = append(r.exchanges, exchange)
	r.headers = append(r.headers, req.Header.Clone())
	if req.Method == "POST" {
		r.endpoint = req.URL.String()
	}
	if session := req.Header.Get("Mcp-Session-Id"); session != "" {
		r.session = session
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(resp.Body, r.sink), resp.Body}
	return resp, nil
}

func (r *recorder) had(exchange string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.exchanges, exchange)
}

// sent reports whether a field has been sent with a value.
func (r *recorder) sent(name, value string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.headers, func(h http.Header) bool { return slices.Contains(h.Values(name), value) })
}

// ended checks that closing a client was the end of its session. Over HTTP+SSE the stream is the session.
func (r *recorder) ended(t *testing.T, transport string) {
	t.Helper()
	if transport == "http" && !r.had("DELETE 200 OK") {
		t.Errorf("no DELETE, or not answered: %q", r.exchanges)
	}
	gone(t, r.endpoint, r.session)
}

// ---- TypeScript SDK ----

func typeScript(t *testing.T, args ...string) outcome {
	t.Helper()
	node := script(t, "@modelcontextprotocol/sdk/dist/esm/client/index.js")[0]
	out := run(t, nil, "", append([]string{node, "ts1.mjs"}, args...)...)
	if out.exit != 0 {
		t.Fatalf("exit %d", out.exit)
	}
	return out
}

// typeScript1Sees is what it finds in each session.
const typeScript1Sees = `{"server":"mcpwire","errors":[],"tools":["ask","count","echo","get-weather","set-note"],
	"weather":"Current temperature in Oslo is 18°C","missing":[-32602,"Missing required argument: 'city'"],
	"echo":true,"counted":"counted to 50","inOrder":true}`

func TestTypeScript(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions[1:] {
		for _, transport := range transports {
			t.Run(rev.version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				server := serve(t, "-versions", rev.version)
				out := typeScript(t, transport, server.url(transport))
				asked := `"Hello, Ada"`
				if !rev.asks {
					asked = `"an error"`
				}
				deleted := "null"
				if transport == "http" {
					deleted = "200"
				}
				expect(t, out.stdout, typeScript1Sees)
				expect(t, out.stdout, `{"version":"`+rev.version+`","note":"This note is served by mcpwire.","prompt":2,"asked":`+asked+`,
					"cancelled":"McpError: MCP error -32001: enough","went":"on","late":0,
					"listChanged":1,"updated":["note:///today"],"deleted":`+deleted+`,"after":404}`)
			})
		}
	}
}

// ---- Go SDK ----

// TestSDKClientHTTP is a whole session over each transport in each revision.
func TestSDKClientHTTP(t *testing.T) {
	t.Parallel()
	for _, rev := range revisions[1:] {
		for _, transport := range transports {
			t.Run(rev.version+"/"+transport, func(t *testing.T) {
				t.Parallel()
				server := serve(t, "-versions", rev.version)
				c := newSDKClient(t)
				way := &recorder{sink: c}
				if transport == "http" {
					c.connect(t, &mcp.StreamableClientTransport{Endpoint: server.mcp, HTTPClient: &http.Client{Transport: way}}, "")
				} else {
					c.connect(t, &mcp.SSEClientTransport{Endpoint: server.sse, HTTPClient: &http.Client{Transport: way}}, "")
				}
				if !way.had("GET 200 OK") { // before anything is published
					t.Fatal("no stream")
				}
				c.session(t, rev)
				t.Run("close", func(t *testing.T) {
					if err := c.Close(); err != nil {
						t.Error(err)
					}
					way.ended(t, transport)
				})
			})
		}
	}
}

// ---- Without sessions ----

// TestStateless: clients that expect a session do without. They are told that there is no stream to listen on, and have nothing to end.
func TestStateless(t *testing.T) {
	t.Parallel()
	server := serve(t, "-versions", handshake, "-stateless")
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		c := newSDKClient(t)
		way := &recorder{sink: c}
		c.connect(t, &mcp.StreamableClientTransport{Endpoint: server.mcp, HTTPClient: &http.Client{Transport: way}}, "")
		has := c.InitializeResult().Capabilities
		if has.Tools == nil || has.Logging != nil || has.Resources.Subscribe || has.Resources.ListChanged {
			t.Errorf("capabilities %+v, %+v", has, has.Resources)
		}
		rev := revision{version: "2025-11-25", titles: true} // in which nobody can be asked
		for _, step := range peerSteps[:5] {                 // without a subscription, and what cannot be cancelled
			step.run(t, c, rev)
		}
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if way.session != "" || !way.had("GET 405 Method Not Allowed") || way.had("DELETE 405 Method Not Allowed") {
			t.Errorf("session %q, exchanges %q", way.session, way.exchanges)
		}
	})
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		out := typeScript(t, "http", server.mcp, "5", "10")
		expect(t, out.stdout, `{"counted":"counted to 5","steps":[1,2,3,4,5],"session":false,"listens":405,"resumed":false}`)
	})
}
