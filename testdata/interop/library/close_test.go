package library

import (
	"context"
	"errors"
	"interop/shared"
	"io"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"interop/wire"
)

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
	var logged lockedBuffer
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
