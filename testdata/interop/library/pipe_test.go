package library

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"interop/shared"
	"interop/wire"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
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
