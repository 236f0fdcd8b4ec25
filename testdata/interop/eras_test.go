package interop

//lint:file-ignore SA1019 mcp-go marks what keeps it to the handshake as deprecated

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/mark3labs/mcp-go/client"
	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const headerMismatch = -32020

// ---- Both eras at once ----

// TestBothEras has clients of both eras use one server at the same time, all at the same URL.
func TestBothEras(t *testing.T) {
	t.Parallel()
	server := serve(t)
	legacy, modern := dialEra(t, server, "2025-11-25"), dialEra(t, server, "2026-07-28")
	t.Run("clients", func(t *testing.T) {
		for _, era := range []string{"legacy", "auto", "modern"} {
			t.Run("Inspector/"+era, func(t *testing.T) {
				t.Parallel()
				inspectWeather(era)(t, target{server.mcp, "--transport", "http"})
			})
		}
		for _, era := range []string{"auto", "2026-07-28"} {
			t.Run("TypeScript 2/"+era, func(t *testing.T) { typeScript2Era(t, server, era) })
		}
		t.Run("TypeScript 1", func(t *testing.T) {
			t.Parallel()
			out := typeScript(t, "http", server.mcp, "of-typescript-1")
			expect(t, out.stdout, typeScript1Sees)
			expect(t, out.stdout, `{"version":"2025-11-25","asked":"Hello, Ada","updated":["note:///of-typescript-1"],"deleted":200,"after":404}`)
		})
		for _, rev := range revisions[:2] {
			t.Run("Go/"+rev.version, func(t *testing.T) { sdkEra(t, server, rev) })
		}
		t.Run("mcp-go", func(t *testing.T) {
			t.Parallel()
			mcpGoSession(t, mcpGoWay{kind: "http", rev: revisions[0]}, target{server.mcp}, "of-mcp-go")
		})
	})

	// What one changes the other hears, in its own way.
	for _, pair := range [][2]*eraClient{{legacy, modern}, {modern, legacy}} {
		from, to := pair[0], pair[1]
		if err := to.Subscribe(to.ctx, &mcp.SubscribeParams{URI: "note:///" + from.note}); err != nil {
			t.Fatal(err)
		}
		if to == modern {
			to.acknowledged(t, `"note:///`+from.note+`"`)
		}
		from.text(t, &mcp.CallToolParams{Name: "set-note", Arguments: map[string]any{"name": from.note, "text": "rain"}})
		to.eventually(t, "an update of "+from.note, func() bool { return slices.Equal(to.updated, []string{"note:///" + from.note}) })
	}
	for _, c := range []*eraClient{legacy, modern} {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	legacy.way.ended(t, "http")
	modern.way.sessionless(t)
}

// eraClient is the Go SDK's client over HTTP, kept to one revision.
type eraClient struct {
	*sdkClient
	way *recorder
}

func dialEra(t *testing.T, server daemon, version string) *eraClient {
	t.Helper()
	c := &eraClient{sdkClient: newSDKClient(t)}
	c.ctx, c.way = t.Context(), &recorder{sink: c} // it may stay for as long as the test takes
	c.note = "of-go-" + version
	c.connect(t, &mcp.StreamableClientTransport{Endpoint: server.mcp, HTTPClient: &http.Client{Transport: c.way}}, version)
	if got := c.InitializeResult().ProtocolVersion; got != version {
		t.Fatalf("got %s, want %s", got, version)
	}
	return c
}

// sessionless checks that a client has only posted, and that nobody has given it a session.
func (r *recorder) sessionless(t *testing.T) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, exchange := range r.exchanges {
		if !strings.HasPrefix(exchange, "POST ") {
			t.Errorf("a modern client: %s", exchange)
		}
	}
	if r.session != "" {
		t.Errorf("session %q", r.session)
	}
}

func typeScript2(t *testing.T, args ...string) outcome {
	t.Helper()
	node := script(t, "@modelcontextprotocol/client/dist/index.mjs")[0]
	return run(t, nil, "", append([]string{node, "ts2.mjs"}, args...)...)
}

// typeScript2Era: the SDK calls a tool that it has not seen yet; it is refused, as it does not know what belongs in the header, lists
// the tools, and calls again. What no header can hold as it is, it encodes; there is nothing of such a name, and the server says so, rather
// than that the header is wrong.
func typeScript2Era(t *testing.T, server daemon, era string) {
	t.Parallel()
	out := typeScript2(t, era, "session", "http", server.mcp, "of-typescript-2-"+era)
	note := `"note:///of-typescript-2-` + era + `"`
	out.check(t, 0, `{"era":"modern","version":"2026-07-28","server":"mcpwire","errors":[],
		"early":"Current temperature in Oslo is 64°F","earlyExchanges":["tools/call 400","tools/list 200","tools/call 200"],
		"tools":["ask","count","echo","get-weather","set-note"],"weather":"Current temperature in Oslo is 64°F",
		"said":{"mcp-protocol-version":"2026-07-28","mcp-method":"tools/call","mcp-name":"get-weather","mcp-param-unit":"fahrenheit"},
		"unit":["an error","=?base64?csOpYXVtdXI=?="],
		"missing":[-32602,"Missing required argument: 'city'"],"unknown":-32602,"echo":true,
		"note":"This note is served by mcpwire.","prompt":2,"completion":["welcome"],
		"names":[
			["naïve","=?base64?bmHDr3Zl?=",-32602,-32602,-32602],
			[" padded ","=?base64?IHBhZGRlZCA=?=",-32602,-32602,-32602],
			["=?base64?bm90ZQ==?=","=?base64?PT9iYXNlNjQ/Ym05MFpRPT0/PQ==?=",-32602,-32602,-32602],
			["","=?base64??=",-32602,-32602,-32602],
			["a\tb","a\tb",-32602,-32602,-32602]],
		"counted":"counted to 50","inOrder":true,"asked":"Hello, Ada","rounds":["input_required","complete"],
		"honoured":{"resourcesListChanged":true,"resourceSubscriptions":[`+note+`]},"heard":["list changed",`+note+`],
		"closed":"local","after":"still here","updates":1,"http":["POST"],"session":false}`, "")
}

// sdkEra is a whole session of the Go SDK, and in the modern era what its header has to say.
func sdkEra(t *testing.T, server daemon, rev revision) {
	t.Parallel()
	c := dialEra(t, server, rev.version)
	c.note += "-session"
	c.session(t, rev)
	if rev.modern {
		t.Run("header", func(t *testing.T) { sdkHeader(t, c) })
	}
	t.Run("close", func(t *testing.T) {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		if rev.modern {
			c.way.sessionless(t)
		} else {
			c.way.ended(t, "http")
		}
	})
}

// sdkHeader: the SDK has listed the tools before, and knows which argument belongs in the header. It encodes that where it has to, but not
// the name of what is called, and is refused. For an argument that is refused as such its field was right.
func sdkHeader(t *testing.T, c *eraClient) {
	weather := func(unit string) *mcp.CallToolParams {
		return &mcp.CallToolParams{Name: "get-weather", Arguments: map[string]any{"city": "Oslo", "unit": unit}}
	}
	if got, want := c.text(t, weather("fahrenheit")), "Current temperature in Oslo is 64°F"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if result, err := c.CallTool(c.ctx, weather("réaumur")); err != nil || !result.IsError {
		t.Errorf("a unit that is none: %+v, %v", result, err)
	}
	for _, unit := range []string{"fahrenheit", "=?base64?csOpYXVtdXI=?="} {
		if !c.way.sent("Mcp-Param-Unit", unit) {
			t.Errorf("no Mcp-Param-Unit: %s", unit)
		}
	}
	for _, name := range []string{"naïve", " padded ", "=?base64?bm90ZQ==?="} {
		_, err := c.ReadResource(c.ctx, &mcp.ReadResourceParams{URI: name})
		failed(t, err, headerMismatch, "")
		_, err = c.CallTool(c.ctx, &mcp.CallToolParams{Name: name})
		failed(t, err, headerMismatch, "")
		_, err = c.GetPrompt(c.ctx, &mcp.GetPromptParams{Name: name})
		failed(t, err, headerMismatch, "")
	}
}

// ---- Cancellation ----

// TestModernCancellation: a modern client cancels by hanging up. No notification is expected, but the Go SDK sends one, too. That the
// server has stopped shows in its own end, as calls that are being answered have three seconds then; of a subscription it takes its leave.
func TestModernCancellation(t *testing.T) {
	t.Parallel()
	end := func(server *process) time.Duration {
		start := time.Now()
		server.stop(syscall.SIGTERM)
		return time.Since(start)
	}
	soon := func(t *testing.T, took time.Duration) {
		t.Logf("the server ended after %v", took)
		if took > 2*time.Second {
			t.Error("the cancelled call has kept it from ending")
		}
	}
	t.Run("TypeScript 2", func(t *testing.T) {
		t.Parallel()
		server := launch(t, "127.0.0.1:0", "-versions", "2026-07-28")
		took := make(chan time.Duration, 1)
		go func() { // the client cancels, makes another call, and stays until the server is gone
			for start := time.Now(); time.Since(start) < limit/4 && !strings.Contains(server.stderr.String(), "still here"); {
				time.Sleep(10 * time.Millisecond)
			}
			took <- end(server)
		}()
		out := typeScript2(t, "2026-07-28", "cancel", server.mcp)
		soon(t, <-took)
		expect(t, out.stdout, `{"cancelled":"SdkError: enough","after":"still here","steps":1,"late":0,"notified":0,"closed":"graceful","errors":[]}`)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		server := launch(t, "127.0.0.1:0", "-versions", "2026-07-28")
		c := dialEra(t, server.daemon, "2026-07-28")
		peerCancellation(t, c.sdkClient, revisions[0])
		soon(t, end(server))
		c.way.sessionless(t)
	})
}

// ---- The compatibility matrix ----

// target is a server: at a URL, or a command to be started.
type target []string

func (to target) isURL() bool { return strings.HasPrefix(to[0], "http") }

// stranger is a client that others wrote, kept to one or both eras. It returns the revision that it came to speak, or what it said instead.
type stranger struct {
	era, name string
	meet      func(t *testing.T, to target) (version, failure string)
}

var strangers = []stranger{
	{"legacy", "Inspector", byInspector("legacy")},
	{"modern", "Inspector", byInspector("modern")},
	{"dual", "Inspector", byInspector("auto")},
	{"legacy", "TypeScript 1", byTypeScript},
	{"legacy", "TypeScript 2", byTypeScript2("legacy")},
	{"modern", "TypeScript 2", byTypeScript2("2026-07-28")},
	{"dual", "TypeScript 2", byTypeScript2("auto")},
	{"legacy", "Go", byGo("2025-11-25")},
	{"dual", "Go", byGo("")},
	{"legacy", "mcp-go", byMCPGo(client.WithLegacyProtocolOnly())},
	{"dual", "mcp-go", byMCPGo()},
}

// matrix is 2026-07-28 basic/versioning#compatibility-matrix: which revision comes of a client and a server, in this order; "": it fails.
var matrix = map[[2]string]string{
	{"legacy", "legacy"}: "2025-11-25", {"legacy", "modern"}: "", {"legacy", "dual"}: "2025-11-25",
	{"modern", "legacy"}: "", {"modern", "modern"}: "2026-07-28", {"modern", "dual"}: "2026-07-28",
	{"dual", "legacy"}: "2025-11-25", {"dual", "modern"}: "2026-07-28", {"dual", "dual"}: "2026-07-28",
}

// clearly returns what a failure has to say. To a legacy client the server "SHOULD name the protocol versions it supports", as that may be
// all that its user gets to see; over HTTP mcp-go does not pass it on. A modern client finds no server/discover, and learns no version.
func (s stranger) clearly(transport string) string {
	switch {
	case s.era == "modern":
		return "did not offer pinned protocol version 2026-07-28"
	case s.name == "mcp-go" && transport == "http":
		return "server returned 4xx for initialize POST"
	default:
		return "2026-07-28"
	}
}

// TestMatrix goes through the whole matrix, over HTTP and over stdio. Those that speak both eras find out through a bridge, too.
func TestMatrix(t *testing.T) {
	t.Parallel()
	for _, server := range []struct{ era, versions string }{
		{"legacy", handshake}, {"modern", "2026-07-28"}, {"dual", "2026-07-28," + handshake},
	} {
		flags := []string{"-versions", server.versions}
		to := map[string]target{"http": {serve(t, flags...).mcp}, "stdio": append(target{mcpwire}, flags...)}
		to["bridge"] = bridged(to["http"]...)
		for _, client := range strangers {
			for transport := range to {
				if transport == "bridge" && client.era != "dual" {
					continue
				}
				t.Run(fmt.Sprintf("%s/%s %s/%s server", transport, client.era, client.name, server.era), func(t *testing.T) {
					t.Parallel()
					version, failure := client.meet(t, to[transport])
					want := matrix[[2]string{client.era, server.era}]
					if version != want {
						t.Errorf("came to %q, want %q: %s", version, want, failure)
					}
					if want == "" && !strings.Contains(failure, client.clearly(transport)) {
						t.Errorf("it only says %q", failure)
					}
				})
			}
		}
	}
}

func byInspector(era string) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (version, failure string) {
		if to.isURL() {
			to = append(to, "--transport", "http")
		}
		out := inspectTarget(t, to, []string{"--protocol-era", era, "--method", "initialize"})
		var seen struct {
			Result struct{ ProtocolVersion string }
		}
		json.Unmarshal([]byte(out.stdout), &seen) // nothing if it has failed
		return seen.Result.ProtocolVersion, out.stderr
	}
}

func byTypeScript(t *testing.T, to target) (version, failure string) {
	node := script(t, "@modelcontextprotocol/sdk/dist/esm/client/index.js")[0]
	kind := "stdio"
	if to.isURL() {
		kind = "http"
	}
	return printed(run(t, nil, "", append([]string{node, "ts1.mjs", kind, to[0], "1", "0"}, to[1:]...)...))
}

func byTypeScript2(era string) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (version, failure string) {
		kind := "stdio"
		if to.isURL() {
			kind = "http"
		}
		return printed(typeScript2(t, append([]string{era, "connect", kind}, to...)...))
	}
}

// printed reads the version from what a script has printed.
func printed(out outcome) (version, failure string) {
	var seen struct{ Version string }
	json.Unmarshal([]byte(out.stdout), &seen) // nothing if it has failed
	return seen.Version, out.stderr
}

func byGo(version string) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (string, string) {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		var way mcp.Transport = &mcp.StreamableClientTransport{Endpoint: to[0]}
		if !to.isURL() {
			way = &mcp.CommandTransport{Command: exec.Command(to[0], to[1:]...)}
		}
		session, err := mcp.NewClient(&mcp.Implementation{Name: "interop", Version: "1"}, nil).
			Connect(ctx, way, &mcp.ClientSessionOptions{ProtocolVersion: version})
		if err != nil {
			t.Log(err)
			return "", err.Error()
		}
		defer session.Close()
		if list, err := session.ListTools(ctx, nil); err != nil || len(list.Tools) != 5 {
			t.Errorf("%+v, %v", list, err)
		}
		return session.InitializeResult().ProtocolVersion, ""
	}
}
