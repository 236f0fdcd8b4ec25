package library

import (
	"context"
	"errors"
	"interop/shared"
	"interop/wire"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// The reader waits for the handler of a notification, so a call there would wait for ever. It fails at once.
func TestCallInANotification(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := wire.Pipe()
		failed := make(chan error, 1)
		peer := wire.OpenConn(t.Context(), ours, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
			failed <- x.Call(ctx, "m", nil, nil)
			return nil, nil
		}), nil)
		defer peer.Close()
		began := time.Now()
		_ = theirs.Write(t.Context(), wire.Decode([]byte(`{"jsonrpc":"2.0","method":"n"}`)))
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "nothing is read before it returns") || time.Since(began) > 0 {
			t.Error(err, time.Since(began))
		}
	})
}

// A handler of a request that ends its goroutine, as t.FailNow does, costs an internal error. The conversation goes on.
func TestGoexitIsAnswered(t *testing.T) {
	h := &wire.Server{Methods: map[string]wire.HandlerFunc{
		"exit": func(context.Context, *wire.Exchange) (any, error) { runtime.Goexit(); return nil, nil }}}
	const failed = `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error"}}`
	single := `{"jsonrpc":"2.0","id":1,"method":"exit"}`
	out := converse(t, h, shared.InitializeLine("2025-03-26"), single, single, "["+single+`,{"jsonrpc":"2.0","id":2,"method":"ping"}]`, "["+single+"]", ping)
	want := []string{failed, failed, "", "[" + failed + "]", saysOK}
	if len(out) != 6 {
		t.Fatal(out)
	}
	for i, want := range want {
		if got := out[i+1]; got != want && want != "" {
			t.Errorf("%s, want %s", got, want)
		}
	}
	if !strings.Contains(out[3], failed) || !strings.Contains(out[3], `"id":2,"error"`) { // the goroutine that would serve the ping has ended
		t.Error(out[3])
	}
}

// A maxLine of 0 is 4 MiB, and a grace of 0 is two seconds.
func TestZerosAreDefaults(t *testing.T) {
	line := strings.Repeat(" ", 4<<20-len(ping)) + ping
	for want, line := range map[string]bool{line: false, " " + line: true} {
		in, err := wire.NewLineConn(strings.NewReader(want), nil, 0, func() error { return nil }).Read()
		if err != nil || errors.Is(in.Lost, wire.ErrTooLarge) != line {
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

// The last line may end without a newline, also where it ends with the buffer; and a line that is too long may be the last one.
func TestLastLine(t *testing.T) {
	const buffer, maxLine = 64 << 10, 128 << 10
	for _, size := range []int{len(ping), buffer - 1, buffer, buffer + 1, maxLine, maxLine + 1, maxLine + buffer} {
		line := ping + strings.Repeat(" ", size-len(ping))
		c := wire.NewLineConn(strings.NewReader(line), nil, maxLine, nil)
		in, err := c.Read()
		if tooLong := size > maxLine; err != nil || (in.Messages[0].Kind() == wire.Invalid) != tooLong || !tooLong && in.Messages[0].Method != "ping" {
			t.Errorf("%d bytes: %v", size, err)
		}
		if _, err := c.Read(); err != io.EOF {
			t.Errorf("after %d bytes: %v", size, err)
		}
	}
}
