package library

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"interop/wire"
	"io"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"
)

// The reader waits for the handler of a notification, so a call there would wait for ever. It fails at once.
func TestCallInANotification(t *testing.T) {
	ours, theirs := wire.Pipe()
	failed := make(chan error, 1)
	peer := wire.OpenConn(t.Context(), ours, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		failed <- x.Call(ctx, "m", nil, nil)
		return nil, nil
	}), nil)
	defer peer.Close()
	_ = theirs.Write(t.Context(), wire.Decode([]byte(`{"jsonrpc":"2.0","method":"n"}`)))
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "the handler of a notification cannot call") {
		t.Error(err)
	}
}

// A Server that is served in JSON-RPC alone says what the mistake is, in each answer. It does not panic.
func TestServerInPlainJSONRPC(t *testing.T) {
	ours, theirs := wire.Pipe()
	go wire.ServeConn(t.Context(), ours, &wire.Server{}, nil)
	peer := wire.OpenConn(t.Context(), theirs, nil, nil)
	defer peer.Close()
	params := json.RawMessage(`{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}`)
	for range 2 {
		err := peer.Call(t.Context(), "initialize", params, nil)
		fault, ok := errors.AsType[*wire.Error](err)
		if !ok || fault.Code != wire.CodeInternalError || !strings.Contains(fault.Message, "Serve, not ServeConn") {
			t.Error(err)
		}
	}
}

// Only changes of one list or one resource stand for each other. Notifications of another method are kept, up to a bound: then the oldest
// is dropped.
func TestPublishKeepsEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const method = "notifications/elicitation/complete"
		server := &wire.Server{Capabilities: everything}
		ours, theirs := wire.Pipe()
		go wire.Serve(t.Context(), ours, server, nil)
		for _, line := range []string{initializeLine("2025-11-25"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`} {
			_ = theirs.Write(t.Context(), wire.Decode([]byte(line)))
		}
		_, _ = theirs.Read()
		synctest.Wait()
		var want []string
		for n := range 20 {
			want = append(want, fmt.Sprintf(`{"elicitationId":"%d"}`, n))
			server.Publish(method, json.RawMessage(want[n]))
		}
		var got []string
		for range want {
			in, _ := theirs.Read()
			got = append(got, string(in.Messages[0].Params))
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q, want %q", got, want)
		}
		synctest.Wait()
		for n := range 5000 { // the Pipe holds 64, and one more is being written
			server.Publish(method, map[string]int{"n": n})
			if n < 100 {
				synctest.Wait() // until all that can be written is
			}
		}
		count, last := 0, ""
		for last != `{"n":4999}` {
			in, _ := theirs.Read()
			last = string(in.Messages[0].Params)
			count++
		}
		if count > 1500 || count < 1000 {
			t.Errorf("%d of 5000", count)
		}
		theirs.Close()
		synctest.Wait()
	})
}

// reportingConn is a Conn whose Read returns a report when it is told to.
type reportingConn struct {
	wire.Conn
	report chan error
}

func (c reportingConn) Read() (wire.Payload, error) {
	p, err := c.Conn.Read()
	select {
	case report := <-c.report:
		return wire.Payload{}, &wire.ReadError{Err: report}
	default:
		return p, err
	}
}

// A report of a Conn is logged. It ends Listen in the legacy era only if it says that nothing more can come.
func TestReportsAndListen(t *testing.T) {
	for _, row := range []struct {
		report error
		ends   bool
	}{{errors.New("a slow disk"), false}, {wire.ErrTooLarge, false}, {wire.ErrInterrupted, true}, {wire.ErrSessionEnded, true}} {
		synctest.Test(t, func(t *testing.T) {
			ours, theirs := wire.Pipe()
			server := newDemo()
			go wire.Serve(context.Background(), theirs, server, nil)
			conn := reportingConn{ours, make(chan error, 1)}
			c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, Versions: []string{"2025-11-25"}}
			if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return conn, nil })); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(t.Context())
			listening, listened := false, make(chan error, 1)
			go func() { listened <- c.Listen(ctx, wire.ListenFilter{ResourceSubscriptions: []string{"note:///a"}}) }()
			synctest.Wait()
			conn.report <- row.report
			_ = theirs.Write(ctx, wire.Decode([]byte(`{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}`))) // the report takes its place
			synctest.Wait()
			select {
			case <-listened:
			default:
				listening = true
			}
			if listening == row.ends {
				t.Errorf("%v: Listen goes on: %t", row.report, listening)
			}
			stop()
			_ = c.Close()
			time.Sleep(time.Minute) // until the server has ended, too
		})
	}
}

// A client that gets more responses at once than it reads does not know which calls they were for: all that wait fail.
func TestTooManyResponsesAtOnce(t *testing.T) {
	ours, theirs := wire.Pipe()
	peer := wire.Open(t.Context(), ours, nil, nil)
	defer peer.Close()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	called := make(chan error, 1)
	go func() { called <- peer.Call(ctx, "m", nil, nil) }()
	_, _ = theirs.Read()
	_ = theirs.Write(t.Context(), wire.Payload{Batch: true, Messages: slices.Repeat([]*wire.Message{{ID: wire.NumberID(1), Result: json.RawMessage("{}")}}, 1025)})
	if err := <-called; !errors.Is(err, wire.ErrTooLarge) {
		t.Error(err)
	}
}

// textConn is a Conn that reads the texts of a channel. Each Write waits until the test takes the payload.
type textConn struct {
	in     chan []byte
	out    chan wire.Payload
	closed chan struct{}
	close  func()
}

func newTextConn() *textConn {
	c := &textConn{in: make(chan []byte), out: make(chan wire.Payload), closed: make(chan struct{})}
	c.close = sync.OnceFunc(func() { close(c.closed) })
	return c
}

func (c *textConn) Read() (wire.Payload, error) {
	select {
	case text := <-c.in:
		return wire.Decode(text), nil
	case <-c.closed:
		return wire.Payload{}, io.EOF
	}
}

func (c *textConn) Write(_ context.Context, p wire.Payload) error {
	select {
	case c.out <- p:
		return nil
	case <-c.closed:
		return wire.ErrClosed
	}
}

func (c *textConn) Close() error {
	c.close()
	return nil
}

// When a handler has returned, what the peer has sent is let go, although the response is not taken.
func TestParamsAreLetGo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newTextConn()
		peer := wire.OpenConn(t.Context(), conn, wire.HandlerFunc(func(context.Context, *wire.Exchange) (any, error) { return nil, nil }), nil)
		var sent []weak.Pointer[byte]
		for n := range 40 {
			text := fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m","params":{"pad":"%s"}}`, n, strings.Repeat("p", 10_000))
			if n%2 == 1 {
				text = fmt.Appendf(nil, `[%s,{"jsonrpc":"2.0","id":"and %d","method":"m","params":{}}]`, text, n)
			}
			sent = append(sent, weak.Make(&text[0]))
			conn.in <- text
			time.Sleep(time.Second) // until another goroutine reads
		}
		runtime.GC()
		held := 0
		for _, text := range sent {
			if text.Value() != nil {
				held++
			}
		}
		if held > 1 { // the last one may be on a stack
			t.Errorf("%d payloads of 40 are held", held)
		}
		for range sent {
			<-conn.out
		}
		_ = peer.Close()
	})
}

// A client holds at most 128 MiB of requests that it serves, or one payload of any size. The payload counts until the last of its handlers
// has returned.
func TestRequestsAreBoundedInBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := newTextConn()
		done := map[string]chan struct{}{"1": make(chan struct{}), "2": make(chan struct{})}
		peer := wire.OpenConn(t.Context(), conn, wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
			if wait := done[x.Request.ID.String()]; wait != nil {
				<-wait
			}
			return nil, nil
		}), nil)
		answer := func(id int) string {
			conn.in <- fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, id)
			return string((<-conn.out).Append(nil))
		}
		const busy = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"Too many requests in flight"}}`
		large := `[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]`
		conn.in <- slices.Concat(bytes.Repeat([]byte(" "), 128<<20), []byte(large))
		time.Sleep(time.Second) // until both handlers run, and another goroutine reads
		if got := answer(3); got != fmt.Sprintf(busy, 3) {
			t.Error(got)
		}
		close(done["1"])
		synctest.Wait()
		if got := answer(4); got != fmt.Sprintf(busy, 4) {
			t.Error(got)
		}
		close(done["2"])
		if got := string((<-conn.out).Append(nil)); strings.Count(got, `"result":{}`) != 2 {
			t.Error(got)
		}
		if got := answer(5); got != `{"jsonrpc":"2.0","id":5,"result":{}}` {
			t.Error(got)
		}
		_ = peer.Close()
	})
}

// A name that a required map has twice is an error about something required, as it is in a struct.
func TestBindRequiredMap(t *testing.T) {
	var v struct {
		M map[string]json.RawMessage `json:"m"`
		N int                        `json:"n,omitempty"`
	}
	err := wire.Bind([]byte(`{"n":"x","m":{"a":1,"a":2}}`), &v)
	fault, _ := errors.AsType[*wire.BindError](err)
	if fault == nil || !fault.Required || !fault.Twice || fault.Name != "m.a" {
		t.Errorf("%+v", fault)
	}
}

// A handler of a request that ends its goroutine, as t.FailNow does, costs an internal error. The conversation goes on.
func TestGoexitIsAnswered(t *testing.T) {
	h := &wire.Server{Methods: map[string]wire.HandlerFunc{
		"exit": func(context.Context, *wire.Exchange) (any, error) { runtime.Goexit(); return nil, nil }}}
	const failed = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error"}}`
	single := `{"jsonrpc":"2.0","id":1,"method":"exit"}`
	out := converse(t, h, initializeLine("2025-03-26"), single, single, "["+single+`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`, "["+single+"]", ping)
	want := []string{failed, failed, "", "[" + failed + "]", saysOK}
	if len(out) != 6 {
		t.Fatal(out)
	}
	for i, want := range want {
		if got := out[i+1]; got != want && want != "" {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !strings.Contains(out[3], failed) || !strings.Contains(out[3], `"id":2,"result"`) {
		t.Error(out[3])
	}
}

// A maxLine of 0 is 4 MiB, and a grace of 0 is two seconds.
func TestZerosAreDefaults(t *testing.T) {
	line := strings.Repeat(" ", 4<<20-len(ping)) + ping
	for want, line := range map[string]bool{line: false, " " + line: true} {
		_, err := wire.NewLineConn(strings.NewReader(want), nil, 0, func() error { return nil }).Read()
		if errors.Is(err, wire.ErrTooLarge) != line {
			t.Errorf("%d bytes: %v", len(want), err)
		}
	}
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return exec.Command("sh", "-c", "cat >/dev/null; sleep 0.3; echo '"+ping+"'") }}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() { _, err := conn.Read(); read <- err }()
	go conn.Close()
	if err := <-read; err != nil {
		t.Error("the command had no time to end:", err)
	}
	_ = conn.Close()
}
