package library

import (
	"bytes"
	"context"
	"errors"
	"interop/wire"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
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
	if err := <-failed; err == nil || !strings.Contains(err.Error(), "nothing is read before it returns") {
		t.Error(err)
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

// A server that sends requests without end, and reads nothing, does not keep the client from the response to its call:
// what is beyond the bound is dropped, because nobody would read the refusals.
func TestFloodOfRequestsToAClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := wire.Pipe()
		peer := wire.OpenConn(t.Context(), ours, nil, nil)
		called := make(chan error, 1)
		go func() { called <- peer.Call(t.Context(), "m", nil, nil) }()
		synctest.Wait()
		for i := range int64(5000) {
			m, _ := wire.NewRequest(wire.NumberID(i), "ping", nil)
			_ = theirs.Write(t.Context(), wire.Payload{Messages: []*wire.Message{m}})
		}
		_ = theirs.Write(t.Context(), wire.Payload{Messages: []*wire.Message{wire.NewResponse(wire.NumberID(1), nil, nil)}})
		if err := <-called; err != nil {
			t.Error(err)
		}
		_ = peer.Close()
	})
}

// JSON of several lines, as a body over HTTP may have it, is one line on a stream of bytes.
func TestLineBreaksInPayload(t *testing.T) {
	in := wire.Decode([]byte("[{\r\n\"jsonrpc\": \"2.0\",\n\"id\":\n1,\n\"result\":\n{\n\"a\":\n1\r}},\n{\"jsonrpc\":\"2.0\",\"method\":\"m\",\"params\":{\n}}]"))
	var out bytes.Buffer
	if err := wire.NewLineConn(nil, &out, 0, nil).Write(t.Context(), in); err != nil {
		t.Error(err)
	}
	const want = `[{"jsonrpc":"2.0","id":1,"result":{ "a": 1 }},{"jsonrpc":"2.0","method":"m","params":{ }}]` + "\n"
	if out.String() != want {
		t.Errorf("%q", out.String())
	}
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

// Of a line that is too long and has two ids, none counts: the answer might go to the wrong request.
func TestTwoIDsInALongLine(t *testing.T) {
	line := `{"jsonrpc":"2.0","id":1,"id":2,"method":"m","params":{"x":"` + strings.Repeat("x", 100) + `"}}`
	in, err := wire.NewLineConn(strings.NewReader(line), nil, 100, nil).Read()
	if err != nil || in.Messages[0].Kind() != wire.Invalid || in.Messages[0].ID != (wire.ID{}) {
		t.Error(in.Messages[0], err)
	}
}
