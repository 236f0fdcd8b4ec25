package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// proxy starts an nginx before a server, and returns the server as it is seen from the other side.
func proxy(t *testing.T, server daemon) daemon {
	t.Helper()
	dir := t.TempDir()
	return nginx(t, dir, "nginx.conf", "127.0.0.1:PORT", "DIR", dir, "UPSTREAM", server.base)
}

// nginx starts one with a configuration of ours, in which something is replaced: the address where it is to listen, by a free one, and what
// else comes in pairs. dir is for what it writes.
func nginx(t *testing.T, dir, name, listen string, pairs ...string) daemon {
	t.Helper()
	program := find(t, "nginx", "/usr/sbin/nginx")
	template, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	base := start(t, func(addr, _ string) *exec.Cmd {
		conf := strings.NewReplacer(append([]string{listen, addr}, pairs...)...).Replace(string(template))
		if err := os.WriteFile(filepath.Join(dir, name), []byte(conf), 0o600); err != nil {
			t.Fatal(err)
		}
		return exec.Command(program, "-p", dir, "-c", filepath.Join(dir, name), "-e", "stderr")
	})
	return daemon{base, base + "/mcp", base + "/sse"}
}

// find returns one of some programs, as it is called by one or another. What only some machines have is not asked of all.
func find(t *testing.T, names ...string) string {
	t.Helper()
	for _, name := range names {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skipf("SKIPPED: there is no %s here (a package of most systems)", names[0])
	return ""
}

// TestNginx: behind a proxy that buffers, and hangs up after five silent seconds, everything takes as long as it takes, thanks to comments.
func TestNginx(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name string
		run  func(*testing.T, daemon)
	}{
		{"calls", nginxCalls},
		{"streams", nginxStreams},
		{"silent calls", nginxSilentCalls},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(t, proxy(t, serve(t, "-versions", handshake, "-keepalive", "2s")))
		})
	}
}

func nginxCalls(t *testing.T, server daemon) {
	v := visit(t, server.mcp)
	for i := range 20 {
		expect(t, v.call(t, "tools/call", fmt.Sprintf(`{"name":"echo","arguments":{"text":"%d"}}`, i)),
			fmt.Sprintf(`{"id":%d,"result":{"content":[{"type":"text","text":"%d"}]}}`, v.id.Load(), i))
	}
	long := strings.Repeat("añ€😀", 150_000) // 1.5 MB: nginx keeps a request of this size in a file
	expect(t, v.call(t, "tools/call", `{"name":"echo","arguments":{"text":"`+long+`"}}`), `{"result":{"content":[{"text":"`+long+`"}]}}`)
	expect(t, v.call(t, "tools/call", `{"name":"get-weather"}`), `{"error":{"code":-32602}}`)
	resp := v.do(t, "DELETE", nil, "")
	if resp.StatusCode != 200 {
		t.Errorf("DELETE: %s", resp.Status)
	}
	gone(t, server.mcp, v.session)
}

// nginxStreams has the two streams of a session at once: a call that tells of its progress for nine seconds, and an idle one.
func nginxStreams(t *testing.T, server daemon) {
	const n, delay = 9, time.Second
	v := visit(t, server.mcp)
	listening := v.listen(t, "")
	resp := v.do(t, "POST", nil, v.request("tools/call",
		fmt.Sprintf(`{"name":"count","arguments":{"n":%d,"delayMs":%d},"_meta":{"progressToken":"nine"}}`, n, delay.Milliseconds())))
	counting := read(t, resp)
	var last event
	crowded := 0 // events that came with the one before
	for i := range n {
		e := counting.next(t, "")
		for e.data == "" {
			e = counting.next(t, "")
		}
		if progress(e) != i+1 {
			t.Fatalf("got %q, want step %d", e.data, i+1)
		}
		if i > 0 && e.at.Sub(last.at) < delay/4 {
			crowded++
		}
		last = e
	}
	counting.next(t, `"counted to 9"`)
	if e, ok := <-counting.events; ok {
		t.Errorf("after the result: %q", e.data)
	}
	if crowded > 2 { // a slow machine may hold up one or the other
		t.Errorf("%d of %d events came together with the one before", crowded, n)
	}
	listening.silence(t, 3) // of the last nine seconds
	visit(t, server.mcp).setNote(t, "idle")
	listening.next(t, `"notifications/resources/list_changed"`)
}

// nginxSilentCalls have nothing to say for longer than nginx is patient.
func nginxSilentCalls(t *testing.T, server daemon) {
	const call = `{"name":"count","arguments":{"n":1,"delayMs":8500}}`
	old, conversation := converse(t, server)
	old.post(t, "tools/call", call)
	v := visit(t, server.mcp)
	for _, s := range []*stream{conversation, read(t, v.do(t, "POST", nil, v.request("tools/call", call)))} {
		s.silence(t, 2) // at least, on a slow machine
		s.next(t, `"counted to 1"`)
	}
}

// TestNginxCut: with the default of 15 s comments come too late for this nginx. It cuts the idle stream, and what is published while nobody
// listens has to be there once, and in order, for a client that resumes.
func TestNginxCut(t *testing.T) {
	t.Parallel()
	server := proxy(t, serve(t, "-versions", handshake))
	v, other := visit(t, server.mcp), visit(t, server.mcp)
	for _, name := range []string{"before", "between", "after"} {
		expect(t, v.call(t, "resources/subscribe", `{"uri":"note:///`+name+`"}`), `{"result":{}}`)
	}
	updated := func(name string) string { return `"uri":"note:///` + name + `"` }

	// The first cut is of a stream that had nothing but its priming event, the second of one with a message.
	stream := v.listen(t, "")
	primed := stream.next(t, "")
	if primed.id == "" || primed.data != "" {
		t.Fatalf("got %+v, want an event with nothing but an id", primed)
	}
	cut(t, stream)
	other.setNote(t, "between")
	stream = v.listen(t, primed.id)
	stream.next(t, "notifications/resources/list_changed")
	last := stream.next(t, updated("between"))
	if last.id == "" || last.id == primed.id {
		t.Errorf("got id %q after %q", last.id, primed.id)
	}
	cut(t, stream)
	other.setNote(t, "after")
	stream = v.listen(t, last.id)
	stream.next(t, "notifications/resources/list_changed")
	stream.next(t, updated("after"))
	other.setNote(t, "before") // the stream goes on; and as nothing has come between, nothing has come twice
	stream.next(t, "notifications/resources/list_changed")
	stream.next(t, updated("before"))
}

// cut waits until nginx has lost its patience with a silent stream.
func cut(t *testing.T, s *stream) {
	t.Helper()
	select {
	case e, ok := <-s.events:
		if ok {
			t.Fatalf("got %+v, want nothing and then the end", e)
		}
	case <-time.After(limit / 2):
		t.Fatal("nginx does not hang up")
	}
}

// TestNginxResume lets the clients of others be cut off by the same nginx, in the middle of a call: five seconds after its stream began,
// which is one second after the request. They resume by themselves, and miss nothing, though the result may be there before them. That of
// mcp-go gives up: it resumes only a stream that the server has ended.
func TestNginxResume(t *testing.T) {
	t.Parallel()
	server := proxy(t, serve(t, "-versions", handshake))
	t.Run("TypeScript", func(t *testing.T) {
		t.Parallel()
		out := typeScript1(t, target{server.mcp}, "1", "6500")
		expect(t, out.stdout, `{"counted":"counted to 1","steps":[1],"session":true,"listens":200,"resumed":true}`)
	})
	t.Run("Go", func(t *testing.T) {
		t.Parallel()
		c := dialSDK(t, target{server.mcp}, "")
		params := &mcp.CallToolParams{Meta: mcp.Meta{}, Name: "count", Arguments: map[string]any{"n": 1, "delayMs": 6500}}
		params.SetProgressToken("one step")
		if got := c.text(t, params); got != "counted to 1" {
			t.Errorf("got %q", got)
		}
		c.eventually(t, "one step", func() bool { return slices.Equal(c.progress, []float64{1}) })
		if !c.had("GET 200 OK, resumed") {
			t.Errorf("not resumed: %q", c.exchanges)
		}
	})
}
