package interop

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

const headerMismatch = -32020

// ---- Both eras at once ----

// TestBothEras has clients of both eras use one server at the same time, all at the same URL.
func TestBothEras(t *testing.T) {
	t.Parallel()
	server := serve(t)
	stays := func(version, note string) *sdkClient { // for as long as the test takes
		g := newGuest(t, target{server.mcp}, 0)
		g.ctx, g.note = t.Context(), note
		c, err := connectSDK(t, g, version)
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	legacy, modern := stays("2025-11-25", "of-legacy"), stays("2026-07-28", "of-modern")
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
			typeScript1Session(t, target{server.mcp}, revisions[1], "of-typescript-1")
		})
		for name, client := range map[string]meetFunc{"Go": meetSDK, "mcp-go": meetMCPGo} {
			for _, rev := range revisions[:2] {
				t.Run(name+"/"+rev.version, func(t *testing.T) {
					t.Parallel()
					p := meet(t, client, target{server.mcp}, rev.version, rev)
					p.self().note = "of-" + name + "-" + rev.version + "-session"
					session(t, p, rev)
					leave(t, p, rev)
				})
			}
		}
	})

	// What one changes the other hears, in its own way.
	for _, pair := range [][2]*sdkClient{{legacy, modern}, {modern, legacy}} {
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
	leave(t, legacy, revisions[1])
	leave(t, modern, revisions[0])
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
			for start := time.Now(); time.Since(start) < limit/4 && !strings.Contains(server.output.String(), "still here"); {
				time.Sleep(10 * time.Millisecond)
			}
			took <- end(server)
		}()
		out := typeScript2(t, "2026-07-28", "cancel", target{server.mcp})
		soon(t, <-took)
		expect(t, out.stdout, `{"cancelled":"SdkError: enough","after":"still here","steps":1,"late":0,"notified":0,"closed":"graceful","errors":[]}`)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		server := launch(t, "127.0.0.1:0", "-versions", "2026-07-28")
		c := dialSDK(t, target{server.mcp}, "2026-07-28")
		peerCancellation(t, c, revisions[0])
		soon(t, end(server))
		c.sessionless(t)
	})
}

// ---- The compatibility matrix ----

// stranger is a client that others wrote, kept to one or both eras. It returns the revision that it came to speak, or what it said instead.
type stranger struct {
	era, name string
	meet      func(t *testing.T, to target) (version, failure string)
}

var strangers = []stranger{
	{"legacy", "Inspector", byInspector("legacy")},
	{"modern", "Inspector", byInspector("modern")},
	{"dual", "Inspector", byInspector("auto")},
	{"legacy", "TypeScript 1", func(t *testing.T, to target) (version, failure string) {
		node := script(t, "@modelcontextprotocol/sdk/dist/esm/client/index.js")[0]
		return printed(run(t, nil, "", slices.Concat([]string{node, "ts1.mjs", to.transport(), to[0], "1", "0"}, to[1:])...))
	}},
	{"legacy", "TypeScript 2", byTypeScript2("legacy")},
	{"modern", "TypeScript 2", byTypeScript2("2026-07-28")},
	{"dual", "TypeScript 2", byTypeScript2("auto")},
	{"legacy", "Go", byPeer(meetSDK, "2025-11-25")},
	{"dual", "Go", byPeer(meetSDK, "")},
	{"legacy", "mcp-go", byPeer(meetMCPGo, "2025-11-25")},
	{"dual", "mcp-go", byPeer(meetMCPGo, "")},
}

// matrix is 2026-07-28 basic/versioning#compatibility-matrix: which revision comes of a client and a server, in this order; "": it fails.
var matrix = map[[2]string]string{
	{"legacy", "legacy"}: "2025-11-25", {"legacy", "modern"}: "", {"legacy", "dual"}: "2025-11-25",
	{"modern", "legacy"}: "", {"modern", "modern"}: "2026-07-28", {"modern", "dual"}: "2026-07-28",
	{"dual", "legacy"}: "2025-11-25", {"dual", "modern"}: "2026-07-28", {"dual", "dual"}: "2026-07-28",
}

// clearly returns a pattern for what a failure has to say. To a legacy client the server "SHOULD name the protocol versions it supports",
// which stand in the data of the error: some clients show its message alone, and over HTTP mcp-go not even that. A modern client finds no
// server/discover, and learns no version.
func (s stranger) clearly(transport string) string {
	switch {
	case s.era == "modern":
		return "did not offer pinned protocol version 2026-07-28"
	case s.name == "mcp-go" && transport == "http":
		return "server returned 4xx for initialize POST"
	default:
		return "2026-07-28|Unsupported protocol version|MCP-Protocol-Version is missing"
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
					if want == "" && !regexp.MustCompile(client.clearly(transport)).MatchString(failure) {
						t.Errorf("it only says %q", failure)
					}
				})
			}
		}
	}
}

func byInspector(era string) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (version, failure string) {
		if to.transport() == "http" {
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

func byTypeScript2(era string) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (version, failure string) {
		return printed(typeScript2(t, era, "connect", to))
	}
}

// printed reads the version from what a script has printed.
func printed(out outcome) (version, failure string) {
	var seen struct{ Version string }
	json.Unmarshal([]byte(out.stdout), &seen) // nothing if it has failed
	return seen.Version, out.stderr
}

func byPeer(client meetFunc, wanted string) func(*testing.T, target) (version, failure string) {
	return func(t *testing.T, to target) (version, failure string) {
		p, err := client(t, to, wanted)
		if err != nil {
			t.Log(err)
			return "", err.Error()
		}
		if names, err := p.tools(); err != nil || len(names) != 5 {
			t.Errorf("%q, %v", names, err)
		}
		return p.version(), ""
	}
}
