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
	in, client, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	log, err := os.CreateTemp(t.TempDir(), "stderr")
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	out, server, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(stdin, stdout *os.File) { os.Stdin, os.Stdout = stdin, stdout }(os.Stdin, os.Stdout)
	os.Stdin, os.Stdout = in, server
	conn := wire.StdioConn(0)
	os.Stdout = log
	fmt.Fprintln(client, modernRequest("tools/call", `"name":"t"`))
	client.Close()
	h := newServer()
	wire.AddTool(h, wire.Tool{Name: "t"}, func(context.Context, *wire.Exchange, struct{}) (any, error) {
		fmt.Println("printed")
		return "done", nil
	})
	if err := wire.Serve(t.Context(), conn, h, nil); err != nil {
		t.Error(err)
	}
	server.Close()
	got, err := io.ReadAll(out)
	if err != nil || !strings.HasPrefix(string(got), `{"jsonrpc"`) || strings.Contains(string(got), "printed") {
		t.Errorf("%v %s", err, got)
	}
	if text, err := os.ReadFile(log.Name()); err != nil || string(text) != "printed\n" {
		t.Errorf("%v %q", err, text)
	}
}
