package library

import (
	"context"
	"encoding/json"
	"errors"
	"interop/shared"
	"interop/wire"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// Capabilities that cannot be encoded are a mistake of the program. The client does not connect, and the server says so in each answer.
func TestCapabilitiesThatCannotBeEncoded(t *testing.T) {
	bad := map[string]any{"roots": make(chan int)}
	ours, theirs := wire.Pipe()
	c := &wire.Client{Capabilities: bad}
	for _, err := range []error{c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return ours, nil })), c.Call(t.Context(), "m", nil, nil)} {
		if err == nil || !strings.Contains(err.Error(), "Client.Capabilities: json: unsupported type: chan int") {
			t.Error(err)
		}
	}
	_ = c.Close()
	_ = theirs.Close()
	server := &wire.Server{Capabilities: bad, Methods: map[string]wire.HandlerFunc{"m": func(context.Context, *wire.Exchange) (any, error) { return nil, nil }}}
	const says = `"error":{"code":-32603,"message":"Server.Capabilities: json: unsupported type: chan int"}}`
	for _, line := range []string{shared.InitializeLine("2025-11-25"), modernRequest("server/discover", ""), modernRequest("m", "")} {
		if out := converse(t, server, line); len(out) != 1 || !strings.HasSuffix(out[0], says) { // all have the same id
			t.Error(out)
		}
	}
}

// A subscription that ends while another one is being made stays at the server if that takes too long: the next one of the same resource uses it.
func TestListenForgetsWhatEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var sent []string
		server := newDemo()
		ours, theirs := wire.Pipe()
		go wire.Serve(context.Background(), theirs, wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
			if method, ok := strings.CutPrefix(x.Request.Method, "resources/"); ok {
				uri := text(x.Request.Params, "uri")
				mu.Lock()
				sent = append(sent, method+" "+uri)
				mu.Unlock()
				if uri == "note:///slow" {
					time.Sleep(time.Minute)
				}
			}
			return server.Handle(ctx, x)
		}), nil)
		c := dial(t, wire.DialerFunc(func(context.Context) (wire.Conn, error) { return ours, nil }), &wire.Client{Versions: []string{"2025-11-25"}})
		listen := func(uri string) (stop func()) {
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- c.Listen(ctx, wire.ListenFilter{ResourceSubscriptions: []string{uri}}) }()
			synctest.Wait()
			return func() { cancel(); <-ended }
		}
		first := listen("note:///a")
		slow := listen("note:///slow")
		first() // the slow one has the turn
		time.Sleep(2 * time.Minute)
		again := listen("note:///a")
		again()
		slow()
		c.Close()
		time.Sleep(time.Minute) // until the last one is handled, although the server has ended
		mu.Lock()
		defer mu.Unlock()
		want := []string{"subscribe note:///a", "subscribe note:///slow", "unsubscribe note:///slow"}
		if !slices.Equal(sent, want) {
			t.Errorf("%q, want %q", sent, want)
		}
	})
}

// What a caller does wrong is an error that says so, or a panic where only the program can be wrong.
func TestMistakesOfCallers(t *testing.T) {
	ours, theirs := wire.Pipe()
	served := wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		if x.Request.Kind() == wire.Notification {
			return nil, errors.Join(x.Progress(ctx, 1, 0), x.Notify(ctx, "m", nil))
		}
		return &wire.InputRequired{State: "s"}, nil
	})
	go wire.Serve(context.Background(), theirs, &wire.Server{Capabilities: map[string]any{"tools": struct{}{}}, Methods: map[string]wire.HandlerFunc{"tools/call": served, "notifications/x": served}}, nil)
	peer := wire.OpenConn(t.Context(), ours, nil, nil)
	defer peer.Close()
	bad, never := make(chan int), canceled()
	late := wire.DialerFunc(func(context.Context) (wire.Conn, error) { time.Sleep(100 * time.Millisecond); return ours, nil })
	a, b := wire.Pipe()
	deaf, asker := wire.OpenConn(t.Context(), a, nil, nil), wire.OpenConn(t.Context(), b, nil, nil)
	defer deaf.Close()
	web, _ := wire.HTTPDialer{URL: "http://127.0.0.1:1"}.Dial(t.Context())
	closed, connected := new(wire.Client), &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, ConnectTimeout: time.Millisecond}
	_ = closed.Close()
	for want, err := range map[string]error{
		"params of m":                   peer.Notify(t.Context(), "m", bad),
		"params of n":                   peer.Call(t.Context(), "n", bad, nil),
		"context canceled":              peer.Call(never, "m", nil, nil),
		"no connection within 1ms":      connected.Connect(t.Context(), late),
		"Method not found":              asker.Call(t.Context(), "m", nil, nil),
		"only answers are sent":         web.Write(t.Context(), wire.Payload{Batch: true, Messages: []*wire.Message{{Method: "m"}}}),
		"connection closed":             closed.Connect(t.Context(), late),
		"there is nothing to dial":      new(wire.Client).Connect(t.Context()),
		"no protocol version in common": (&wire.Client{Info: connected.Info, Versions: []string{"2099-01-01"}}).Connect(t.Context(), late),
		"needs a Name and a Version":    (&wire.Client{Info: wire.Implementation{Name: "c"}}).Connect(t.Context(), late),
		"not authorized: x":             &wire.AuthError{Challenge: "x"},
		"NewID has repeated an id":      secondSession(&wire.Sessions{NewID: func() string { return "x" }}),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	if info := new(wire.Client).Server(); info.Version != "" {
		t.Error(info)
	}
	time.Sleep(200 * time.Millisecond) // until the late wire.Conn is closed
}

// The Client against a server that asks without end, and a Handler that does not know the answer.
func TestMistakesInAModernCall(t *testing.T) {
	ctx, related := t.Context(), make(chan error, 100)
	asks := func(ctx context.Context, x *wire.Exchange) (any, error) {
		_ = x.Notify(ctx, "notifications/subscriptions/acknowledged", map[string]any{})
		_ = x.Notify(ctx, "notifications/subscriptions/acknowledged", json.RawMessage(`{"_meta":{"io.modelcontextprotocol/subscriptionId":999}}`))
		need := &wire.InputRequired{State: "again"}
		if x.Request.Method == "prompts/get" {
			need.Requests = map[string]wire.InputRequest{"k": {Method: "roots/list"}}
		}
		if x.Request.Method == "resources/read" {
			need.Requests = map[string]wire.InputRequest{"k": {Method: "roots/list", Params: 7}}
		}
		return need, nil
	}
	server := &wire.Server{Capabilities: map[string]any{"tools": struct{}{}, "prompts": struct{}{}, "resources": struct{}{}}, Methods: map[string]wire.HandlerFunc{"tools/call": asks, "prompts/get": asks, "resources/read": asks}}
	c := connect(t, server, &wire.Client{Capabilities: map[string]any{"roots": struct{}{}}, Handler: wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
		if x.Request.Method == "roots/list" {
			related <- x.Notify(ctx, "m", nil)
			return nil, errors.New("no roots today")
		}
		return nil, nil
	})})
	for want, err := range map[string]error{
		"asked 16 times for input":      c.Call(ctx, "tools/call", map[string]any{"name": "a"}, nil),
		"roots/list: no roots today":    c.Call(ctx, "prompts/get", map[string]any{"name": "a"}, nil),
		"int is not a JSON object":      c.Call(ctx, "resources/read", map[string]any{"uri": "a:b"}, nil),
		"cannot unmarshal array":        c.Call(ctx, "tools/list", nil, &struct{ Tools int }{}),
		"params of tools/call":          c.Call(ctx, "tools/call", make(chan int), nil),
		"context canceled":              c.Call(canceled(), "tools/call", nil, nil),
		"request answered or cancelled": <-related,
		"params of notifications/x":     c.Notify(ctx, "notifications/x", make(chan int)),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// secondSession opens two sessions, and returns what is logged about the second one.
func secondSession(sessions *wire.Sessions) error {
	var logged shared.Output
	mcp := &wire.StreamableHandler{Handler: &wire.Server{}, Sessions: sessions, Guard: wire.Guard{Log: slog.New(slog.NewTextHandler(&logged, nil))}}
	defer mcp.Close()
	openSession(mcp, "2025-11-25")
	openSession(mcp, "2025-11-25")
	return errors.New(logged.String())
}

// A handler without a Handler panics at each request, with the name of the field.
func TestHandlerIsRequired(t *testing.T) {
	for want, h := range map[string]http.Handler{
		"StreamableHandler.Handler is nil": &wire.StreamableHandler{},
		"SSEHandler.Handler is nil":        &wire.SSEHandler{},
	} {
		for range 2 {
			panics(t, want, func() { h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest("POST", "/", strings.NewReader(ping))) })
		}
	}
}

// A test may call a tool with an Exchange of its own: what needs a request does nothing, or returns an error.
func TestExchangeOfATest(t *testing.T) {
	var optional struct {
		Name string `json:"name,omitempty"`
	}
	var required struct {
		Name string `json:"name"`
	}
	x := &wire.Exchange{Principal: "u"}
	ctx := t.Context()
	if err := errors.Join(x.Progress(ctx, 1, 2), x.Log(ctx, "error", "x"), x.Bind(&optional)); err != nil || x.Input("a", &required) {
		t.Error(err)
	}
	for want, err := range map[string]error{
		"Invalid params: Missing required param: 'name' (-32602)": x.Bind(&required),
		wire.ErrNoServerRequests.Error():                          x.Call(ctx, "roots/list", nil, nil),
		wire.ErrAnswered.Error():                                  x.Notify(ctx, "m", nil),
		"The client lacks sampling (-32021)":                      x.Require("sampling"),
	} {
		if err == nil || err.Error() != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
