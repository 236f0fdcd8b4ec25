package library

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"interop/wire"
)

// These tests are for what comments promise to those who copy.

// answers returns what a handler writes when it is given lines.
func answers(ctx context.Context, t *testing.T, h wire.Handler, lines ...string) string {
	t.Helper()
	var out bytes.Buffer
	conn := wire.NewLineConn(strings.NewReader(strings.Join(lines, "\n")), &out, 0, func() error { return nil })
	if err := wire.Serve(ctx, conn, h, nil); err != nil {
		t.Error(err)
	}
	return out.String()
}

// modernTool is a call of the tool named t.
func modernTool(arguments string) string {
	return `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t","arguments":` + arguments +
		`,"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}`
}

// serverOf returns a server with one tool, named t.
func serverOf[A any](run func(context.Context, *wire.Exchange, A) (any, error)) *wire.Server {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}}
	wire.AddTool(server, wire.Tool{Name: "t"}, run)
	return server
}

// The comment of AddTool: an argument that is null counts as missing, unless its field is a json.RawMessage.
func TestNullArgument(t *testing.T) {
	server := serverOf(func(_ context.Context, _ *wire.Exchange, args struct {
		Name string          `json:"name"`
		Days int             `json:"days,omitempty"`
		Any  json.RawMessage `json:"any,omitempty"`
	}) (any, error) {
		return fmt.Sprintf("%s %d %s", args.Name, args.Days, args.Any), nil
	})
	for arguments, want := range map[string]string{
		`{"name":"Ada","days":null,"any":null}`: `"text":"Ada 0 null"`,
		`{"name":null}`:                         `Missing required argument: 'name'`,
	} {
		if got := answers(t.Context(), t, server, modernTool(arguments)); !strings.Contains(got, want) {
			t.Errorf("%s: %s", arguments, got)
		}
	}
}

// The comment of AddTool: clients before 2025-06-18 get the text of an object, and no structuredContent.
func TestStructuredContentByRevision(t *testing.T) {
	server := serverOf(func(context.Context, *wire.Exchange, struct{}) (any, error) { return map[string]int{"n": 1}, nil })
	for version, structured := range map[string]bool{"2024-11-05": false, "2025-03-26": false, "2025-06-18": true, "2025-11-25": true} {
		got := answers(t.Context(), t, server,
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"`+version+`","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`,
			`{"jsonrpc":"2.0","method":"notifications/initialized"}`,
			`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"t"}}`)
		if !strings.Contains(got, `"text":"{\"n\":1}"`) || strings.Contains(got, "structuredContent") != structured {
			t.Errorf("%s: %s", version, got)
		}
	}
}

// The comments of Serve and of Exchange.Principal: the values of the context reach each handler, and a Handler that calls
// another one may set the principal.
func TestWrapperAndContext(t *testing.T) {
	type key struct{}
	server := serverOf(func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		return fmt.Sprint(x.Principal, " ", ctx.Value(key{})), nil
	})
	wrapper := wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		x.Principal = "Ada"
		return server.Handle(ctx, x)
	})
	ctx := context.WithValue(t.Context(), key{}, 7)
	if got := answers(ctx, t, wrapper, modernTool("{}")); !strings.Contains(got, `"text":"Ada 7"`) {
		t.Error(got)
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
	fmt.Fprintln(client, modernTool("{}"))
	client.Close()
	h := serverOf(func(context.Context, *wire.Exchange, struct{}) (any, error) {
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
