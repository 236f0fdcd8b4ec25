package library

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"interop/shared"
	"interop/wire"
)

// ---- One pipe under load ----

// Calls go both ways at once over one pipe, more of them than either end serves at a time, and some are cancelled. Each answer finds its
// call, and the two ends, each waiting for answers of the other, do not lock each other out.
func TestCallsBothWays(t *testing.T) {
	type number struct{ N int }
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"quadruple": func(ctx context.Context, x *wire.Exchange) (any, error) {
		var half number
		err := x.Call(ctx, "double", x.Request.Params, &half)
		return map[string]int{"n": 2 * half.N}, err
	}}}
	c := connect(t, server, &wire.Client{Versions: []string{"2025-11-25"}, Handler: wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
		time.Sleep(time.Millisecond)
		var p struct {
			N int `json:"n"`
		}
		err := x.Bind(&p)
		return map[string]int{"n": 2 * p.N}, err
	})})
	var calls sync.WaitGroup
	var answered atomic.Int32
	for i := range 3000 {
		calls.Go(func() {
			patience := 30 * time.Second
			if i%7 == 0 {
				patience = time.Duration(i%500) * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var result number
			err := error(new(wire.Error))
			for errors.As(err, new(*wire.Error)) { // too many at once
				err = c.Call(ctx, "quadruple", map[string]int{"n": i}, &result)
				time.Sleep(time.Duration(i%10) * time.Millisecond)
			}
			switch {
			case err == nil && result.N == 4*i:
				answered.Add(1)
			case err == nil, i%7 != 0:
				t.Errorf("4·%d = %d, %v", i, result.N, err)
			}
		})
	}
	calls.Wait()
	if answered.Load() < 2500 {
		t.Errorf("%d of 3000 answered", answered.Load())
	}
}

// Notifications from both ends at once, from within handlers of notifications, do not lock each other out of a Pipe.
func TestNotifyBothWays(t *testing.T) {
	a, b := wire.Pipe()
	done := make(chan struct{})
	var heard atomic.Int32
	echo := wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
		switch n := heard.Add(1); {
		case n < 1000:
			return nil, x.Peer.Notify(t.Context(), "notifications/m", nil)
		case n == 1000:
			close(done)
		}
		return nil, nil
	})
	p, q := wire.Open(t.Context(), a, echo, nil), wire.Open(t.Context(), b, echo, nil)
	for range 20 {
		_, _ = p.Notify(t.Context(), "notifications/m", nil), q.Notify(t.Context(), "notifications/m", nil)
	}
	<-done
	p.Close()
	q.Close()
}

// A peer that does not read is not read for ever: neither when it asks, nor when it makes noise while we wait for an answer of its own.
// When it reads at last, no answer is missing.
func TestPeerDoesNotRead(t *testing.T) {
	const owed, all = 4096, 2 * 4096 // owed is what a peer may leave unread
	for name, line := range map[string]string{"asks": `{"jsonrpc":"2.0","id":%d,"method":"m"}`, "makes noise": `noise %d`} {
		synctest.Test(t, func(t *testing.T) {
			in, theirOut := io.Pipe()
			theirIn, out := io.Pipe()
			go func() {
				err := wire.Serve(t.Context(), wire.NewLineConn(in, out, testLimit, in.Close), wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
					switch x.Request.Method {
					case "initialize":
						return new(wire.Server).Handle(ctx, x)
					case "ask":
						return nil, x.Call(ctx, "roots/list", nil, nil)
					}
					return nil, nil
				}), nil)
				out.CloseWithError(err)
			}()
			answers := bufio.NewReader(theirIn)
			if name == "makes noise" {
				fmt.Fprintln(theirOut, shared.InitializeLine("2025-11-25"))
				if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, `"result"`) {
					t.Error(line, err)
				}
			}
			var sent atomic.Int32
			go func() {
				defer theirOut.Close()
				if name == "makes noise" {
					fmt.Fprintln(theirOut, `{"jsonrpc":"2.0","id":"ask","method":"ask"}`)
				}
				for i := range all {
					fmt.Fprintf(theirOut, line+"\n", i)
					sent.Add(1)
				}
			}()
			time.Sleep(time.Minute)
			if n := runtime.NumGoroutine(); n > owed+100 || sent.Load() > owed+100 {
				t.Errorf("%s: %d goroutines after %d lines", name, n, sent.Load())
			}
			text, err := io.ReadAll(answers)
			if n := bytes.Count(text, []byte(`"error"`)) + bytes.Count(text, []byte(`"result"`)); n < all || err != nil {
				t.Errorf("%s: %d answers to %d lines, %v", name, n, all, err)
			}
		})
	}
}

// The goroutine that the handler of a notification starts may log, even while the next notification of the same batch is handled. This is for
// -race.
func TestNotificationsOfABatch(t *testing.T) {
	server := newDemo()
	done := make(chan struct{}, 2)
	server.Methods["notifications/x"] = func(ctx context.Context, x *wire.Exchange) (any, error) {
		go func() {
			_ = x.Log(context.Background(), "error", "text")
			done <- struct{}{}
		}()
		return nil, nil
	}
	converse(t, server, shared.InitializeLine("2025-03-26"), `[{"jsonrpc":"2.0","method":"notifications/x"},{"jsonrpc":"2.0","method":"notifications/x"}]`)
	<-done
	<-done
}

// What has broken a line Conn is also ErrClosed, for each Write and each Call.
func TestBrokenLineIsClosed(t *testing.T) {
	in, silent := io.Pipe()
	defer silent.Close()
	peer := wire.Open(t.Context(), wire.NewLineConn(in, failingWriter{}, 0, in.Close), nil, nil)
	defer peer.Close()
	for range 3 {
		for _, err := range []error{peer.Call(t.Context(), "m", nil, nil), peer.Notify(t.Context(), "m", nil)} {
			if !errors.Is(err, wire.ErrClosed) {
				t.Error(err)
			}
		}
	}
}

// Who cancels and hangs up at once is still heard, and a handler that ignores its context does not keep Close for ever.
func TestCancelThenClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a, b := wire.Pipe()
		p := wire.Open(t.Context(), a, wire.HandlerFunc(func(context.Context, *wire.Exchange) (any, error) { time.Sleep(time.Hour); return nil, nil }), nil)
		_ = b.Write(t.Context(), wire.Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := p.Call(ctx, "m", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		if began, err := time.Now(), p.Close(); err == nil || time.Since(began) > time.Second {
			t.Error(err, time.Since(began))
		}
		_, _ = b.Read()
		if in, err := b.Read(); err != nil || in.Messages[0].Method != "notifications/cancelled" {
			t.Error(in, err)
		}
		time.Sleep(2 * time.Hour)
	})
}

// The handler of a cancelled request can say nothing more, and why it was cancelled is in the log.
func TestCancelServed(t *testing.T) {
	var logged shared.Output
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	out, err := serveLines(t, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		<-ctx.Done()
		if err := x.Notify(context.Background(), "notifications/message", nil); err != wire.ErrAnswered {
			t.Error(err)
		}
		return nil, nil
	}), log, `{"jsonrpc":"2.0","id":1,"method":"m"}`, `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"lunch"}}`)
	if len(out) > 0 || err != nil || !strings.Contains(logged.String(), "reason=lunch") {
		t.Error(out, err, logged.String())
	}
}
