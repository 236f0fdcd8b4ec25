package interop

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"interop/shared"
	"interop/wire" // go run ./copywire
)

// Here mcpwire bridge stands between a client on stdio and a server.

// bridged returns the command of a bridge to a server: flags, and then a URL or a command.
func bridged(server ...string) target { return append(target{mcpwire, "bridge"}, server...) }

// ---- Clients and servers that others wrote, and the demo ----

// TestBridge: each client has a whole session with each server: calls, progress, a question, a call that is cancelled, and a subscription. The
// client must find what it finds without the bridge.
func TestBridge(t *testing.T) {
	t.Parallel()
	type client func(t *testing.T, to target)
	typeScript1 := func(t *testing.T, to target) {
		expect(t, typeScript1Session(t, to, revisions[1], "today").stdout, `{"listChanged":1}`)
	}
	typeScript2 := func(era string) client {
		return func(t *testing.T, to target) {
			typeScript2(t, era, "session", to, "today").check(t, 0, typeScript2Sees[era], "")
		}
	}
	goSDK := func(rev revision) client {
		return func(t *testing.T, to target) {
			c := dialSDK(t, to, rev.version)
			session(t, c, rev)
			leave(t, c, rev)
		}
	}
	for version, clients := range map[string]map[string]client{
		"2025-11-25": {"Inspector": inspectWeather("legacy"), "TypeScript 1": typeScript1, "TypeScript 2": typeScript2("legacy"), "Go": goSDK(revisions[1])},
		"2026-07-28": {"Inspector": inspectWeather("modern"), "TypeScript 2": typeScript2("2026-07-28"), "Go": goSDK(revisions[0])},
	} {
		for name, client := range clients {
			for _, server := range []string{"stdio", "http", "sse", "a bridge to a URL with a token"} {
				if server == "sse" && version == "2026-07-28" {
					continue
				}
				t.Run(name+" "+version+"/"+server, func(t *testing.T) {
					t.Parallel()
					var to target
					if server == "a bridge to a URL with a token" {
						to = bridged("-header", "Authorization: Bearer s3cret", serve(t, "-versions", version, "-token", "s3cret").mcp)
					} else {
						to = ourServer(t, server, "-versions", version)
					}
					client(t, bridged(to...))
				})
			}
		}
	}
}

// TestBridgeToServerEverything: the same with a server that others wrote, over each of its transports.
func TestBridgeToServerEverything(t *testing.T) {
	t.Parallel()
	servers := []struct {
		name  string
		start func(t *testing.T) target
	}{
		{"stdio", func(t *testing.T) target { return append(script(t, everythingScript), "stdio") }},
		{"sse", func(t *testing.T) target { return target{startEverything(t, "sse") + "/sse"} }},
		{"http", func(t *testing.T) target { return target{startEverything(t, "streamableHttp") + "/mcp"} }},
	}
	clients := []struct {
		name string
		run  func(t *testing.T, to target)
	}{
		{"Inspector", func(t *testing.T, to target) {
			out := inspectTarget(t, to, []string{"--method", "tools/call", "--tool-name", "echo", "--tool-arg", "message=hello"})
			out.check(t, 0, `{"result":{"content":[{"type":"text","text":"Echo: hello"}]}}`, "")
		}},
		{"TypeScript 1", func(t *testing.T, to target) {
			node := script(t, "@modelcontextprotocol/sdk/dist/esm/client/index.js")[0]
			out := run(t, nil, "", append([]string{node, "everything.mjs"}, to...)...)
			out.check(t, 0, `{"server":"mcp-servers/everything","echo":"Echo: añ€😀","asked":"User inputs:\n- Name: Ada",
				"cancelled":"McpError: MCP error -32001: enough","went":"Echo: on","steps":[1,2,3],"updated":"demo://resource/dynamic/text/1","errors":[]}`, "")
		}},
		{"mcpwire call", func(t *testing.T, to target) { runCallTests(t, to, everythingCalls) }},
	}
	for _, server := range servers {
		t.Run(server.name, func(t *testing.T) {
			t.Parallel()
			to := bridged(server.start(t)...)
			for _, client := range clients {
				t.Run(client.name, func(t *testing.T) {
					t.Parallel()
					client.run(t, to)
				})
			}
		})
	}
}

// ---- Load ----

// startBridge starts a bridge to a server, and speaks 2025-11-25 there.
func startBridge(t *testing.T, server ...string) *lineClient {
	t.Helper()
	c := startLines(t, bridged(server...)...)
	capable := strings.Replace(hello, `"capabilities":{}`, `"capabilities":{"elicitation":{}}`, 1)
	c.send(t, capable)
	if answer := c.next(t); string(answer.ID) != "0" || answer.Error.Code != 0 {
		t.Fatalf("initialize: %+v", answer)
	}
	c.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	return c
}

// TestBridgeLosesNothing: 1,000 calls are under way at once, and each is answered once. Then there are 1,000 calls for which the server asks
// the client, and each question and each answer arrives once.
func TestBridgeLosesNothing(t *testing.T) {
	t.Parallel()
	const calls = 1000
	for _, transport := range []string{"stdio", "http", "sse"} {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			c := startBridge(t, ourServer(t, transport)...)
			for _, round := range []struct{ call, answer string }{
				{`{"jsonrpc":"2.0","id":"echo %d","method":"tools/call","params":{"name":"echo","arguments":{"text":"number %[1]d"}}}`, "number %d"},
				{`{"jsonrpc":"2.0","id":"ask %d","method":"tools/call","params":{"name":"ask"}}`, "Hello, person %d"},
			} {
				go func() {
					for i := range calls {
						c.send(t, fmt.Sprintf(round.call, i))
					}
				}()
				asked, ids, texts := 0, map[string]int{}, map[string]int{}
				for len(ids) < calls {
					m := c.next(t)
					switch {
					case m.Method == "elicitation/create":
						c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":{"action":"accept","content":{"name":"person %d"}}}`, m.ID, asked))
						asked++
					case m.Method == "" && len(m.Result.Content) == 1:
						ids[string(m.ID)]++
						texts[m.Result.Content[0].Text]++
					default:
						t.Fatalf("%+v", m)
					}
				}
				for i := range calls {
					if n := texts[fmt.Sprintf(round.answer, i)]; n != 1 {
						t.Errorf("%d times "+round.answer, n, i)
					}
				}
			}
			c.in.Close()
			rest, err := io.ReadAll(c.lines)
			if err != nil || len(rest) > 0 {
				t.Errorf("after the last answer: %q, %v", rest, err)
			}
			exits(t, c.Cmd, 0, time.Minute)
		})
	}
}

const modernMeta = `{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// TestBridgeCancels: no call runs on that is cancelled right after it was sent: its cancellation does not overtake it.
func TestBridgeCancels(t *testing.T) {
	const calls = 100 // beside no other test: the order of two requests is a matter of time
	for era, meta := range map[string]string{
		"legacy": `{}`,
		"modern": modernMeta,
	} {
		t.Run(era, func(t *testing.T) {
			var running atomic.Int32
			server := &wire.Server{Info: wire.Implementation{Name: "waits", Version: "1"}}
			wire.AddTool(server, wire.Tool{Name: "wait"}, func(ctx context.Context, _ *wire.Exchange, _ struct{}) (any, error) {
				running.Add(1)
				defer running.Add(-1)
				<-ctx.Done()
				return nil, ctx.Err()
			})
			h := &wire.StreamableHandler{Handler: server, Sessions: &wire.Sessions{}}
			web := httptest.NewServer(h)
			t.Cleanup(func() { web.CloseClientConnections(); h.Close(); web.Close() })
			var c *lineClient
			if era == "legacy" {
				c = startBridge(t, web.URL)
			} else {
				c = startLines(t, bridged(web.URL)...)
			}
			for i := range calls {
				c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"wait","_meta":%s}}`, i, meta)+"\n"+
					fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"_meta":%s}}`, i, meta))
			}
			c.send(t, fmt.Sprintf(`{"jsonrpc":"2.0","id":"last","method":"tools/list","params":{"_meta":%s}}`, meta))
			if m := c.next(t); string(m.ID) != `"last"` || m.Error.Code != 0 {
				t.Errorf("%+v", m)
			}
			eventually(t, "no call runs", func() bool { return running.Load() == 0 })
			time.Sleep(500 * time.Millisecond) // for a call that has not begun
			if n := running.Load(); n != 0 {
				t.Errorf("%d calls run on", n)
			}
		})
	}
}

// ---- The end ----

// TestSilentAfterSIGTERM: a client that has closed our input, and then sends SIGTERM, gets nothing more. Some fail otherwise.
func TestSilentAfterSIGTERM(t *testing.T) {
	t.Parallel()
	for name, to := range map[string]target{"serve": {mcpwire}, "bridge": bridged(mcpwire), "bridge to a URL": bridged(serve(t).mcp)} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := startLines(t, to...)
			c.send(t, hello)
			c.next(t)
			c.send(t, `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			c.send(t, `{"jsonrpc":"2.0","id":"endless","method":"tools/call","params":{"name":"count","arguments":{"n":1000,"delayMs":100}}}`)
			c.send(t, ping)
			c.next(t)
			c.in.Close()
			time.Sleep(200 * time.Millisecond) // until the end of its input is read
			c.Process.Signal(syscall.SIGTERM)
			if rest, err := io.ReadAll(c.lines); err != nil || len(rest) > 0 {
				t.Errorf("%s, %v", rest, err)
			}
			exits(t, c.Cmd, 0, 20*time.Second)
		})
	}
}

// TestBridgeEnds: when one side ends, the bridge ends the other one. No call waits for ever, and no process is left.
func TestBridgeEnds(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name   string
		script string // starts the server, which is $0
		end    func(t *testing.T, c *lineClient, server int)
		answer string // of the call that runs; "": it has none
		exit   int
		within time.Duration
	}{
		{"the client hangs up, and waits for the rest", `exec "$0"`, func(_ *testing.T, c *lineClient, _ int) { c.in.Close() },
			"The session has ended", 0, 20 * time.Second}, // the bridge ends within two seconds, unless the machine is slow
		{"the server takes nothing", `exec "$0"`, func(t *testing.T, c *lineClient, server int) {
			if err := syscall.Kill(server, syscall.SIGSTOP); err != nil {
				t.Error(err)
			}
			eventually(t, "it has stopped", func() bool {
				stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server))
				return err != nil || strings.Contains(string(stat), ") T ")
			})
			for i := range 3 { // more than a pipe holds
				c.send(t, echoCall(i, 50_000))
			}
			c.in.Close()
		}, "The session has ended", 1, time.Minute},
		{"the client is killed", `exec "$0"`, func(_ *testing.T, c *lineClient, _ int) {
			c.in.Close()
			c.out.Close()
		}, "", 0, 45 * time.Second},
		{"the client sends SIGTERM, and reads nothing any more", `exec "$0"`, func(t *testing.T, c *lineClient, _ int) {
			for i := range 8 { // more than pipes hold
				c.send(t, echoCall(i, 20_000))
			}
			c.Process.Signal(syscall.SIGTERM)
		}, "", 0, 45 * time.Second},
		{"the server does not end", `trap "" TERM; "$0"; sleep 60`, func(_ *testing.T, c *lineClient, _ int) { c.Process.Signal(syscall.SIGTERM) },
			"", 0, 45 * time.Second},
		{"the client sends SIGTERM", `exec "$0"`, func(_ *testing.T, c *lineClient, _ int) { c.Process.Signal(syscall.SIGTERM) },
			"", 0, 45 * time.Second},
		{"the server is killed", `exec "$0"`, func(_ *testing.T, _ *lineClient, server int) { syscall.Kill(server, syscall.SIGKILL) },
			"mcpwire bridge: the server process has ended: signal: killed", 1, 45 * time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			c := startBridge(t, "sh", "-c", `echo $$ >&2; `+test.script, mcpwire)
			server := c.group(t)
			c.send(t, endlessCall)
			if m := c.next(t); m.Method != "notifications/progress" {
				t.Fatalf("%+v", m)
			}
			test.end(t, c, server)
			if test.answer != "" {
				m := c.answerTo(t, `"endless"`) // the server's end and the bridge's own come at the same time
				if !strings.Contains(m.Error.Message, test.answer) && !strings.Contains(m.Error.Message, "The session has ended") && !serverStopped(m) {
					t.Errorf("the call: %+v", m)
				}
			}
			exits(t, c.Cmd, test.exit, test.within)
			if shared.GroupAlive(server) {
				t.Error("the server is left")
			}
		})
	}
}

// serverStopped reports whether the server itself has answered, when it was shut down.
func serverStopped(m line) bool { return strings.Contains(m.Error.Message, "Stopped") }

// TestBridgeMarks: a tool whose marks are invalid does not come to the client. That marked arguments are repeated in the header TestBridge
// shows: the demo refuses the call of get-weather otherwise.
func TestBridgeMarks(t *testing.T) {
	t.Parallel()
	url := modernStub(t, func(w http.ResponseWriter, id string) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","tools":[`+
			`{"name":"good","inputSchema":{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}},`+
			`{"name":"bad","inputSchema":{"properties":{"a":{"type":"number","x-mcp-header":"A"}}}}]}}`, id)
	})
	c := startLines(t, bridged(url)...)
	c.send(t, `{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":`+modernMeta+`}}`)
	if tools := c.next(t).Result.Tools; len(tools) != 1 || tools[0].Name != "good" {
		t.Errorf("%+v", tools)
	}
}

// TestBridgeLosesServer: a server at a URL ends in the middle of a conversation. Calls that run get an error, and the bridge goes on with a new
// session: of HTTP+SSE, when the server has been started again, and of Streamable HTTP.
func TestBridgeLosesServer(t *testing.T) {
	t.Parallel()
	goesOn := func(t *testing.T, c *lineClient) {
		c.send(t, ping)
		if m := c.answerTo(t, "1"); m.Error.Code != 0 {
			t.Errorf("the next call: %+v", m)
		}
		c.in.Close()
		exits(t, c.Cmd, 0, time.Minute)
	}
	t.Run("sse", func(t *testing.T) {
		t.Parallel()
		server := launch(t, "127.0.0.1:0")
		c := startBridge(t, server.sse)
		c.send(t, endlessCall)
		c.next(t)
		server.stop(os.Kill)
		if m := c.answerTo(t, `"endless"`); !strings.Contains(m.Error.Message, "mcpwire bridge: the stream has ended: ") {
			t.Errorf("the call: %+v", m)
		}
		launch(t, strings.TrimPrefix(server.base, "http://"))
		goesOn(t, c)
	})
	t.Run("http", func(t *testing.T) {
		t.Parallel()
		var once sync.Once
		p := newTap(t, serve(t).mcp, "", func(_ *tap, req *http.Request, what string) {
			if what == "ping" {
				once.Do(func() { end(t, req) }) // the session, as somebody else
			}
		})
		goesOn(t, startBridge(t, p.url))
	})
}
