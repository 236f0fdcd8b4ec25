package library

import (
	"context"
	"errors"
	"fmt"
	"interop/shared"
	"interop/wire"
	"io"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode"
)

// What the other side sends gets into a log only in brief, and without what moves a cursor.
func TestLogsAreBrief(t *testing.T) {
	long := strings.Repeat("x", 7000)
	const esc = `\u001b[2J`
	var logged shared.Output
	logger := slog.New(slog.NewJSONHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if text := a.Value.String(); a.Key != "stack" && (len(text) > 600 || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) })) {
			t.Errorf("%s has %d bytes: %.300q", a.Key, len(text), text)
		}
		return a
	}}))
	fails := wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
		switch {
		case strings.HasPrefix(x.Request.Method, "panic"):
			panic(x.Request.Method)
		case x.Request.Method != "ping":
			return nil, errors.New(x.Request.Method)
		}
		return nil, nil
	})
	lines := []string{`{"jsonrpc":"2.0","method":"notifications/` + esc + long + `"}`, `{"jsonrpc":"2.0","method":"panic` + esc + long + `"}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"` + esc + long + `"}}`,
		`{"jsonrpc":"2.0","id":"` + esc + long + `","result":{}}`, `{"jsonrpc":"2.0","error":{"code":1,"message":"` + esc + long + `"}}`}
	_, _ = serveLines(t, fails, logger, lines...)
	in, said := io.Pipe()
	peer := wire.Open(t.Context(), wire.NewLineConn(in, io.Discard, 0, in.Close), fails, logger)
	fmt.Fprintln(said, strings.Join(append(lines, ping), "\n")) // returns when all is read
	peer.Close()
	h := newHandler(t, newDemo())
	h.Log = logger
	visit(h, "M"+long, "").answered()
	visit(h, "POST", ping, "Origin: http://evil.example").answered()
	c := serveWeb(t, h)
	c.url += "/%1b" + long
	c.do("POST", ping, "Origin: http://evil.example")
	for _, msg := range []string{"notification not handled", "panic in a handler", "progress of nothing that we wait for", "dropped a response",
		"an error for no call of ours", "refused"} {
		if !strings.Contains(logged.String(), `"msg":"`+msg+`"`) {
			t.Errorf("%q was not logged", msg)
		}
	}
}

// What a notification's handler does is no response: it cannot let go of one. What it starts ends with the session. DELETE closes the stream
// of a call whose handler does not listen. A handler that ends its goroutine costs its request only, and so does a panic: it is logged, and
// its text not told. The log holds no session's id.
func TestHTTPOddHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var logged shared.Output
		release, ended, demo := make(chan struct{}), false, newDemo()
		demo.Methods["notifications/disconnect"] = func(_ context.Context, x *wire.Exchange) (any, error) { x.Disconnect(time.Second); return nil, nil }
		demo.Methods["notifications/wait"] = func(ctx context.Context, _ *wire.Exchange) (any, error) { <-ctx.Done(); ended = true; return nil, nil }
		demo.Methods["exit"] = func(context.Context, *wire.Exchange) (any, error) { runtime.Goexit(); return nil, nil }
		demo.Methods["panic"] = func(context.Context, *wire.Exchange) (any, error) { panic("secret") }
		demo.Methods["stubborn"] = func(ctx context.Context, x *wire.Exchange) (any, error) {
			_ = x.Notify(ctx, "notifications/message", nil)
			<-release
			return nil, nil
		}
		h := &wire.StreamableHandler{Handler: demo, Sessions: &wire.Sessions{Keep: 1 << 20}, Guard: wire.Guard{Log: slog.New(slog.NewTextHandler(&logged, nil))}}
		defer h.Close()
		session := openSession(h, "2025-11-25")
		for _, row := range []struct{ body, want string }{
			{`{"jsonrpc":"2.0","method":"notifications/disconnect"}`, ""},
			{`{"jsonrpc":"2.0","id":1,"method":"exit"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error"}}`},
			{ping, saysOK}, // its id is free again
			{`{"jsonrpc":"2.0","id":1,"method":"panic"}`, `{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"Internal error"}}`},
			{ping, saysOK},
		} {
			if v := visit(h, "POST", row.body, session).answered(); v.Body.String() != row.want {
				t.Errorf("%s: %d %s, want %s", row.body, v.Code, v.Body, row.want)
			}
		}
		visit(h, "POST", `{"jsonrpc":"2.0","method":"notifications/wait"}`, session)
		stream := visit(h, "POST", `{"jsonrpc":"2.0","id":2,"method":"stubborn"}`, session)
		if synctest.Wait(); ended || !strings.Contains(stream.Body.String(), ".1/1\ndata: ") {
			t.Error("not the first stream of the session, or ended:", stream.Body, ended)
		}
		visit(h, "DELETE", "", session).answered()
		if synctest.Wait(); !ended {
			t.Error("a notification's handler goes on after its session")
		}
		close(release)
		<-stream.done
		visit(h, "POST", ping, session, "Content-Type: text/plain").answered()
		visit(h, "POST", ping, session).answered()
		for _, want := range []string{`reason="session not found" method=POST path=/`, "secret", "session ended", "deleted by the client", "refused", "status=415"} {
			if !strings.Contains(logged.String(), want) || strings.Contains(logged.String(), strings.TrimPrefix(session, "Mcp-Session-Id: ")) {
				t.Errorf("%s is not logged, or the session's id is: %s", want, &logged)
			}
		}
	})
}
