package library

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"interop/wire"
)

// These tests are for what comments promise to those who copy.

// The comments of Serve and of Exchange.Principal: the values of the context reach each handler, and a Handler that calls
// another one may set the principal.
func TestWrapperAndContext(t *testing.T) {
	type key struct{}
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "t"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		return fmt.Sprint(x.Principal, " ", ctx.Value(key{})), nil
	})
	wrapper := wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		x.Principal = "Ada"
		return server.Handle(ctx, x)
	})
	var out bytes.Buffer
	conn := wire.NewLineConn(strings.NewReader(modernRequest("tools/call", `"name":"t"`)), &out, 0, func() error { return nil })
	err := wire.Serve(context.WithValue(t.Context(), key{}, 7), conn, wrapper, nil)
	if err != nil || !strings.Contains(out.String(), `"text":"Ada 7"`) {
		t.Error(out.String(), err)
	}
}

// The comment of StdioConn: what a tool prints goes to stderr, if that was put in the place of stdout after StdioConn.
func TestPrintlnOnStdio(t *testing.T) {
	file := func(text string) *os.File {
		f, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		fmt.Fprint(f, text)
		_, _ = f.Seek(0, io.SeekStart)
		return f
	}
	defer func(stdin, stdout *os.File) { os.Stdin, os.Stdout = stdin, stdout }(os.Stdin, os.Stdout)
	in, out, stderr := file(modernRequest("tools/call", `"name":"t"`)), file(""), file("")
	os.Stdin, os.Stdout = in, out
	conn := wire.StdioConn(0)
	os.Stdout = stderr
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{}) (any, error) {
		fmt.Println("printed")
		return "done", nil
	})
	if err := wire.Serve(t.Context(), conn, server, nil); err != nil {
		t.Error(err)
	}
	got, _ := os.ReadFile(out.Name())
	printed, _ := os.ReadFile(stderr.Name())
	if !strings.HasPrefix(string(got), `{"jsonrpc"`) || strings.Contains(string(got), "printed") || string(printed) != "printed\n" {
		t.Errorf("%s, and on stderr %q", got, printed)
	}
}
