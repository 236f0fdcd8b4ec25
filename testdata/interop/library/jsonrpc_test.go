package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"interop/shared"
	"interop/wire"
	"log/slog"
	"math"
	"math/big"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A type with a method UnmarshalJSON reads itself wherever it stands, as in json.Unmarshal.
func TestBindTypesThatReadThemselves(t *testing.T) {
	type times struct {
		At    time.Time    `json:"at"`
		Maybe *time.Time   `json:"maybe"`
		All   []time.Time  `json:"all"`
		Some  []*time.Time `json:"some"`
		Big   *big.Int     `json:"big"`
		Most  uint64       `json:"most"`
	}
	const day = `"2026-11-22T00:00:00Z"`
	const object = `{"at":` + day + `,"maybe":` + day + `,"all":[` + day + `],"some":[` + day + `,null],"big":123456789012345678901234567890,"most":18446744073709551615}`
	var got times
	err := wire.Bind([]byte(object), &got)
	if again, _ := json.Marshal(got); err != nil || string(again) != object {
		t.Errorf("%s, %v", again, err)
	}
}

// lingeringConn is a Conn on which nothing ever comes, and whose Read ends a minute after Close.
type lingeringConn struct{ closed chan struct{} }

func (c lingeringConn) Read() (wire.Payload, error) {
	<-c.closed
	time.Sleep(time.Minute)
	return wire.Payload{}, errors.New("closed at last")
}

func (c lingeringConn) Write(context.Context, wire.Payload) error { return nil }

func (c lingeringConn) Close() error { close(c.closed); return nil }

// When the context of OpenConn ends, calls fail at once with its cause, although Read has not returned yet.
func TestOpenConnIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lunch := errors.New("lunch")
		ctx, stop := context.WithCancelCause(context.Background())
		peer := wire.Open(ctx, lingeringConn{make(chan struct{})}, nil, nil)
		began, waiting := time.Now(), make(chan error)
		go func() { waiting <- peer.Call(context.Background(), "m", nil, nil) }()
		synctest.Wait()
		stop(lunch)
		for _, err := range []error{<-waiting, peer.Call(context.Background(), "m", nil, nil)} {
			if !errors.Is(err, wire.ErrClosed) || !errors.Is(err, lunch) || time.Since(began) > time.Second {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		}
		time.Sleep(2 * time.Minute) // until Read has returned
	})
}

// A Pipe carries bytes: each end has a Message of its own, and what is wrong with a message shows.
func TestPipeCarriesBytes(t *testing.T) {
	a, b := wire.Pipe()
	sent := &wire.Message{ID: wire.NumberID(1), Method: "m", Params: json.RawMessage(`{"a":1}`)}
	if err := a.Write(t.Context(), wire.Payload{Messages: []*wire.Message{sent}}); err != nil {
		t.Fatal(err)
	}
	if in, err := b.Read(); err != nil || in.Messages[0] == sent || string(in.Messages[0].Params) != `{"a":1}` {
		t.Error(in, err)
	}
	if err := a.Write(t.Context(), wire.Payload{Messages: []*wire.Message{{ID: wire.NumberID(1), Method: "m", Params: json.RawMessage(`[]`)}}}); err != nil {
		t.Fatal(err)
	}
	if in, err := b.Read(); err != nil || in.Messages[0].Kind() != wire.Invalid {
		t.Error(in, err)
	}
}

// One line, no HTML escapes, valid UTF-8, whatever goes in; and it decodes to what it was.
func TestEncode(t *testing.T) {
	encode := func(m *wire.Message) string { return string(wire.Payload{Messages: []*wire.Message{m}}.Append(nil)) }
	for _, params := range []any{
		map[string]string{"text": "<a&b>\u2028\u2029\r\n\t\x00\"\\é😀"}, json.RawMessage("{\n \"text\" :\r\n \"x\" }"),
		map[string]string{"text": "\xff\xfe"}, json.RawMessage("{\"text\":\"\xff\"}"),
	} {
		m, err := wire.NewRequest(wire.StringID("<&>\n\xff"), "m<&>", params)
		if err != nil {
			t.Fatal(err)
		}
		line := encode(m)
		back := wire.Decode([]byte(line)).Messages[0]
		if strings.ContainsAny(line, "\r\n") || !strings.Contains(line, "<&>") || back.Kind() != wire.Request || back.Method != "m<&>" {
			t.Errorf("%q decodes to %+v", line, back)
		}
	}
	for _, noObject := range []any{[]int{1}, "x", 1, true, func() {}, math.NaN()} {
		if m, err := wire.NewRequest(wire.NumberID(1), "m", noObject); err == nil {
			t.Errorf("params %T: %s", noObject, encode(m))
		}
		if m := wire.NewResponse(wire.NumberID(1), noObject, nil); m.Error == nil || m.Error.Code != wire.CodeInternalError {
			t.Errorf("result %T: %s", noObject, encode(m))
		}
	}
	wrapped := fmt.Errorf("wrapped: %w", &wire.Error{Code: 7, Message: "seven", Data: json.RawMessage("{")})
	for _, row := range []struct {
		m    *wire.Message
		want string
	}{
		{&wire.Message{ID: wire.NumberID(-5), Result: json.RawMessage("{\r\n}")}, `{"jsonrpc":"2.0","id":-5,"result":{  }}`},
		{&wire.Message{ID: wire.NumberID(6), Result: json.RawMessage("{\n")}, `{"jsonrpc":"2.0","id":6,"result":{ }`}, // sent as it is, but on one line
		{wire.NewResponse(wire.StringID("é\n"), map[string]any(nil), nil), `{"jsonrpc":"2.0","id":"é\n","result":{}}`},
		{wire.NewResponse(wire.NumberID(1), nil, wrapped), `{"jsonrpc":"2.0","id":1,"error":{"code":7,"message":"seven"}}`},
	} {
		if got := encode(row.m); got != row.want {
			t.Errorf("got %s, want %s", got, row.want)
		}
	}
}

// Progress is a number that rises, and goes out only while the request runs.
func TestProgress(t *testing.T) {
	var left *wire.Exchange
	out := converse(t, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		left = x
		another := *x // as a handler that wraps another may pass on
		for i, row := range []struct {
			x               *wire.Exchange
			progress, total float64
			isNumber        bool
		}{
			{x, math.Inf(1), 0, false}, {x, math.NaN(), 0, false}, {x, 1, math.NaN(), false},
			{x, 1, 0, true}, {x, 1, 0, true}, {x, 0.5, 0, true}, {&another, 1, 0, true}, {&another, 1.5, 2, true}, {x, 1.5, 2, true},
		} {
			if err := row.x.Progress(ctx, row.progress, row.total); (err == nil) != row.isNumber {
				t.Errorf("row %d: %v", i, err)
			}
		}
		return nil, nil
	}), `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t"}}}`)
	if want := []string{`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1}}`,
		`{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.5,"total":2}}`,
		`{"jsonrpc":"2.0","id":1,"result":{}}`}; !slices.Equal(out, want) {
		t.Errorf("got %q, want %q", out, want)
	}
	if err := left.Progress(t.Context(), 200, 0); err != wire.ErrAnswered {
		t.Error("progress after the answer:", err)
	}
}

// A panic costs one request, and its stack goes to the log and nowhere else. So does a handler that ends its goroutine, as t.FailNow does. The
// requests of a batch have one goroutine: those behind such a one get the error, too.
func TestPanic(t *testing.T) {
	var logged shared.Output
	const failed = `{"jsonrpc":"2.0","id":%d,"error":{"code":-32603,"message":"Internal error"}}`
	for name, h := range map[string]wire.HandlerFunc{
		"handler": func(context.Context, *wire.Exchange) (any, error) { panic("secret") },
		"result":  func(context.Context, *wire.Exchange) (any, error) { return explosive{}, nil },
		"error":   func(context.Context, *wire.Exchange) (any, error) { return nil, (*explosive)(nil) },
		"nil":     func(context.Context, *wire.Exchange) (any, error) { var e *wire.Error; return nil, e },
		"exit":    func(context.Context, *wire.Exchange) (any, error) { runtime.Goexit(); return nil, nil },
	} {
		server := &wire.Server{Methods: map[string]wire.HandlerFunc{"m": h}}
		if name != "exit" {
			server.Methods["notifications/m"] = h
		}
		out, err := serveLines(t, server, slog.New(slog.NewTextHandler(&logged, nil)), shared.InitializeLine("2025-03-26"),
			`{"jsonrpc":"2.0","method":"notifications/m"}`, `{"jsonrpc":"2.0","id":1,"method":"m"}`, `[{"jsonrpc":"2.0","id":2,"method":"m"}]`,
			`[{"jsonrpc":"2.0","id":3,"method":"m"},{"jsonrpc":"2.0","id":4,"method":"ping"}]`, `{"jsonrpc":"2.0","id":5,"method":"ping"}`)
		text := strings.Join(out, "\n") + "\n"
		for id := range 3 {
			if want := fmt.Sprintf(failed, id+1); !strings.Contains(text, want) {
				t.Errorf("%s: %s in %s, %v", name, want, text, err)
			}
		}
		if !strings.Contains(text, "["+fmt.Sprintf(failed, 2)+"]\n") || !strings.Contains(text, `"id":5,"result":{}`) || strings.Contains(text, `"id":4,"error"`) != (name == "exit") {
			t.Errorf("%s: %s", name, text)
		}
	}
	if strings.Count(logged.String(), "secret") < 3 || !strings.Contains(logged.String(), "goroutine") {
		t.Error(logged.String())
	}
}

type explosive struct{ text string }

func (e explosive) MarshalJSON() ([]byte, error) { panic("boom") }
func (e *explosive) Error() string               { return e.text } // panics on nil
