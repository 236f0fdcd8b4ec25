package library

import (
	"context"
	"errors"
	"interop/shared"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"interop/wire"
)

// dyingConn ends as soon as the handshake is over.
type dyingConn struct{ wire.Conn }

func (c dyingConn) Write(ctx context.Context, p wire.Payload) error {
	err := c.Conn.Write(ctx, p)
	if p.Messages[0].Method == "notifications/initialized" {
		c.Conn.Close()
		time.Sleep(time.Second) // until our end has seen it
	}
	return err
}

// A server that ends after each handshake is started four times for a call, and not for ever. The last one of these serves the call if it stays.
func TestServerThatDiesAfterTheHandshake(t *testing.T) {
	for _, stays := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			dials := 0
			c := &wire.Client{Info: shared.Me, Versions: []string{"2025-11-25"}}
			server := pipeTo(t, &wire.Server{})
			dying := wire.DialerFunc(func(context.Context) (wire.Conn, error) {
				dials++
				conn, err := server.Dial(t.Context())
				if stays && dials == 4 {
					return conn, err
				}
				return dyingConn{conn}, err
			})
			if err := c.Connect(t.Context(), dying); dials != 4 || errors.Is(err, wire.ErrClosed) == stays {
				t.Errorf("Connect: %v after %d connections", err, dials)
			}
			if err := c.Call(t.Context(), "ping", nil, nil); errors.Is(err, wire.ErrClosed) == stays || !stays && dials != 8 {
				t.Errorf("Call: %v after %d connections", err, dials)
			}
			c.Close()
		})
	}
}

// unsent is a Conn that cannot send what contains a text.
type unsent struct {
	wire.Conn
	text string
}

func (c unsent) Write(ctx context.Context, p wire.Payload) error {
	if strings.Contains(string(p.Append(nil)), c.text) {
		return wire.ErrNotSent
	}
	return c.Conn.Write(ctx, p)
}

// Close waits until each connection is closed, also one that a call still uses while other calls have another one: what it started has ended.
func TestCloseWaitsForAllConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var open atomic.Int32
		server := pipeTo(t, &wire.Server{Methods: map[string]wire.HandlerFunc{"wait": func(ctx context.Context, _ *wire.Exchange) (any, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}}})
		c := dial(t, shared.Counted(wire.DialerFunc(func(context.Context) (wire.Conn, error) {
			conn, err := server.Dial(t.Context())
			return slowConn{unsent{conn, `"ping"`}}, err
		}), &open), &wire.Client{Versions: []string{"2025-11-25"}})
		waiting := make(chan error)
		go func() { waiting <- c.Call(t.Context(), "wait", nil, nil) }()
		synctest.Wait()
		if err := c.Call(t.Context(), "ping", nil, nil); !errors.Is(err, wire.ErrNotSent) { // on both connections
			t.Error(err)
		}
		if n := open.Load(); n != 2 {
			t.Errorf("%d connections", n)
		}
		_ = c.Close()
		if n := open.Load(); n != 0 {
			t.Errorf("%d connections are open", n)
		}
		if err := <-waiting; !errors.Is(err, wire.ErrClosed) {
			t.Error("the call on the old connection:", err)
		}
	})
}

// An attempt to connect belongs to nobody: it goes on when the call that has started it gives up, and serves all that wait.
func TestAttemptOutlivesItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dials := 0
		c := &wire.Client{Info: shared.Me, Versions: []string{"2025-11-25"}}
		server := pipeTo(t, &wire.Server{})
		err := c.Connect(t.Context(), wire.DialerFunc(func(ctx context.Context) (wire.Conn, error) {
			dials++
			if time.Sleep(10 * time.Second); dials == 1 {
				return nil, errors.New("not yet")
			}
			return server.Dial(ctx)
		}))
		if err == nil {
			t.Fatal("it is connected")
		}
		var calls sync.WaitGroup
		for i := range 64 {
			calls.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i+1)*time.Second)
				defer cancel()
				if err := c.Call(ctx, "ping", nil, nil); (err == nil) != (i >= 10) && i != 9 {
					t.Errorf("a call with %d s: %v", i+1, err)
				}
			})
		}
		calls.Wait()
		if dials != 2 {
			t.Errorf("%d connections", dials)
		}
		c.Close()
	})
}

// The reader waits for the handler of a notification, so a call there would wait for ever. It fails, and says what to do: a goroutine that
// the handler starts may call with its context.
func TestCallInANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls func(ctx context.Context, method string, params, result any) error
		direct, later := make(chan error, 1), make(chan error, 1)
		handler := wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
			call := calls
			if call == nil {
				call = x.Call
			}
			direct <- call(ctx, "ping", nil, nil)
			go func() { later <- call(ctx, "ping", nil, nil) }()
			return nil, nil
		})
		ours, theirs := wire.Pipe()
		peer, other := wire.OpenConn(t.Context(), ours, handler, nil), wire.OpenConn(t.Context(), theirs, nil, nil)
		defer peer.Close()
		defer other.Close()
		began := time.Now()
		_ = other.Notify(t.Context(), "n", nil)
		if err := <-direct; err == nil || !strings.Contains(err.Error(), "nothing is read before it returns") || time.Since(began) > 0 {
			t.Error(err, time.Since(began))
		}
		<-later
		server := newServer()
		wire.AddTool(server, wire.Tool{Name: "t"}, noTool)
		c := connect(t, server, &wire.Client{Versions: []string{"2025-11-25"}, Handler: handler})
		calls = c.Call
		synctest.Wait()
		server.RemoveTool("t")
		if err := <-direct; err == nil || !strings.Contains(err.Error(), "start a goroutine") {
			t.Error(err)
		}
		if err := <-later; err != nil {
			t.Error(err)
		}
	})
}

// grown returns by how many bytes the heap has grown at most while f runs.
func grown(f func()) uint64 {
	defer debug.SetGCPercent(debug.SetGCPercent(5))
	debug.FreeOSMemory()
	var before, now runtime.MemStats
	runtime.ReadMemStats(&before)
	most, done := before.HeapAlloc, make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	for {
		runtime.ReadMemStats(&now)
		most = max(most, now.HeapAlloc)
		select {
		case <-done:
			return most - before.HeapAlloc
		case <-time.After(time.Millisecond):
		}
	}
}

// What a client says about itself, and what it calls with, takes about as much memory as its text: icons, and the params that a requestState
// is bound to.
func TestMemoryOfOddRequests(t *testing.T) {
	asks := func(context.Context, *wire.Exchange) (any, error) { return wire.InputRequired{State: "s"}, nil }
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"tools/call": asks}}
	icons := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1","icons":[` +
		strings.Repeat("{},", 1<<20) + `{}]}}}`
	numbers := modernRequest("tools/call", `"name":"t","arguments":{"a":[`+strings.Repeat("1,", 1<<20)+`1]}`)
	for name, line := range map[string]string{"icons": icons, "numbers": numbers} {
		var out []string
		n := grown(func() { out = converse(t, server, line) })
		if text := strings.Join(out, ""); n > 40<<20 || !strings.Contains(text, `"result"`) {
			t.Errorf("%s: %d MB for %d MB of text, %.200s", name, n>>20, len(line)>>20, text)
		}
	}
}

// When the answers to questions cannot be sent, the call is not unsent: the server has read its first round. It is not repeated, and the user is asked once.
func TestLaterRoundIsNotUnsent(t *testing.T) {
	server, asked, calls := &wire.Server{}, 0, 0
	wire.AddTool(server, wire.Tool{Name: "ask"}, func(context.Context, *wire.Exchange, struct{}) (any, error) {
		calls++
		return wire.InputRequired{Requests: map[string]wire.InputRequest{"r": {Method: "roots/list"}}}, nil
	})
	pipe := pipeTo(t, server)
	c := dial(t, wire.DialerFunc(func(context.Context) (wire.Conn, error) {
		conn, err := pipe.Dial(t.Context())
		return unsent{conn, "inputResponses"}, err
	}), &wire.Client{Handlers: map[string]wire.HandlerFunc{
		"roots/list": func(context.Context, *wire.Exchange) (any, error) { asked++; return wire.RootsResult{}, nil }}})
	_, err := callTool(t, c, "ask")
	if err == nil || errors.Is(err, wire.ErrNotSent) || asked != 1 || calls != 1 {
		t.Errorf("%v; asked %d times, called %d times", err, asked, calls)
	}
}
