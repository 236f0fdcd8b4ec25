package library

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"interop/shared"
	"interop/wire"
)

// One handler asks, in either era: the modern client calls again, the legacy one gets real requests. An answer of another shape is none. The
// progress that the handler reports again in each round is no mistake.
func TestInputBothEras(t *testing.T) {
	handler := func(ctx context.Context, x *wire.Exchange) (any, error) {
		if err := x.Progress(ctx, 1, 2); err != nil {
			return nil, err
		}
		state := x.State()
		var answer wire.ElicitResult
		var form struct {
			Name string `json:"name"`
		}
		for _, key := range []string{"b", "a"} {
			if x.Input(key, &answer) && wire.Bind(answer.Content, &form) == nil {
				state = form.Name + state
			}
		}
		var roots wire.RootsResult
		switch {
		case state == "":
			form := wire.ElicitParams{Message: "?", RequestedSchema: json.RawMessage(`{"type":"object"}`)}
			return &wire.InputRequired{Requests: map[string]wire.InputRequest{"a": {Method: "elicitation/create", Params: form}, "b": {Method: "elicitation/create", Params: form}}}, nil
		case len(state) == 2:
			return wire.InputRequired{State: state + "é"}, nil // a state alone: call again at once
		case !x.Input("c", &roots):
			return wire.InputRequired{State: state + "!", Requests: map[string]wire.InputRequest{"c": {Method: "roots/list"}}}, nil
		}
		return map[string]any{"state": state, "roots": len(roots.Roots)}, x.Progress(ctx, 2, 2)
	}
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"tools/call": handler, "tools/list": handler}}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		answers := []string{`{"action":7,"content":{"name":"x"}}`, `{"action":"accept","content":{"name":7}}`, `{"action":"accept","content":{"name":"1"}}`, `{"action":"accept","content":{"name":"2"}}`}
		c := connect(t, server, &wire.Client{Versions: []string{version}, Handlers: map[string]wire.HandlerFunc{
			"roots/list": func(context.Context, *wire.Exchange) (any, error) {
				return wire.RootsResult{Roots: []wire.Root{{URI: "file:///"}}}, nil
			},
			"elicitation/create": func(context.Context, *wire.Exchange) (any, error) {
				next := answers[0]
				answers = answers[1:]
				return json.RawMessage(next), nil
			}}})
		var last float64
		var result json.RawMessage
		err := c.CallWithProgress(t.Context(), "tools/call", map[string]any{"name": "x"}, &result, func(p wire.ProgressParams) { last = p.Progress })
		if err != nil || text(result, "state") != "12é!" || string(value(result, "roots")) != "1" || last != 2 {
			t.Errorf("%s: %s, %v, progress %v", version, result, err, last)
		}
		if version == "2026-07-28" && c.Call(t.Context(), "tools/list", nil, nil) == nil {
			t.Error("tools/list must not ask")
		}
	}
	// A client of 2026-07-28 is never sent a request, whatever was agreed on before on its pipe.
	asking := &wire.Server{Methods: map[string]wire.HandlerFunc{"m": func(ctx context.Context, x *wire.Exchange) (any, error) { return nil, x.Call(ctx, "ping", nil, nil) }}}
	if out := converse(t, asking, shared.InitializeLine("2025-11-25"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, modernRequest("m", "")); len(out) != 2 || !strings.Contains(out[1], `"id":1,"error":{"code":-32603`) {
		t.Error(out)
	}
}

// A requestState is good for the same request of the same principal, for a while, and for nothing else. No byte of it can be changed.
func TestInputState(t *testing.T) {
	const state, life = "state\x00é\xff", 15 * time.Minute
	handler := func(_ context.Context, x *wire.Exchange) (any, error) {
		if x.State() == "" {
			return wire.InputRequired{State: state}, nil
		}
		return map[string]any{"same": x.State() == state}, nil
	}
	serve := func(t *testing.T, key string) http.Handler {
		h := newHandler(t, &wire.Server{StateKey: []byte(key), Methods: map[string]wire.HandlerFunc{"tools/call": handler, "prompts/get": handler}})
		h.Authenticate = func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }
		return h
	}
	post := func(h http.Handler, method, params, principal string) string {
		body := strings.Replace(modernRequest(method, params), `{}}`, `{},"b":`+strconv.Itoa(len(params))+`}`, 1) // each _meta is another
		name := regexp.MustCompile(`"name":"(.)"`).FindStringSubmatch(params)[1]
		return visit(h, "POST", body, append(modernLines(method, name), "Authorization: "+principal)...).answered().Body.String()
	}
	synctest.Test(t, func(t *testing.T) {
		h := serve(t, "k")
		const arguments = `"arguments":{"n":9007199254740993,"m":[{"a:b":"c:d"}]}`
		const same = arguments + `,"name":"x"`                                                                            // in another order
		const twice, swapped = `"name":"x","arguments":{"o":{"n":1,"n":2}}`, `"name":"x","arguments":{"o":{"n":2,"n":1}}` // the last one counts
		first := func(params, principal string) (sealed string) {
			return text([]byte(post(h, "tools/call", params, principal)), "result", "requestState")
		}
		sealed, odd, ofTwice := first(`"name":"x",`+arguments, "ada"), first(`"name":"x",`+arguments, "\xff"), first(twice, "ada")
		if sealed == "" || strings.Contains(sealed, "state") {
			t.Error(sealed)
		}
		retry := func(sealed, params string) string {
			return `"requestState":"` + sealed + `","inputResponses":{},` + params
		}
		answers := func(answers string) string {
			return `"requestState":"` + sealed + `","inputResponses":` + answers + `,` + same
		}
		const good, refused = `"same":true`, `"code":-32602`
		for name, row := range map[string]struct {
			h                         http.Handler
			method, principal, params string
			want                      string
		}{
			"the retry":                     {h, "tools/call", "ada", retry(sealed, same), good},
			"another replica":               {serve(t, "k"), "tools/call", "ada", retry(sealed, same), good},
			"another tool":                  {h, "tools/call", "ada", retry(sealed, strings.Replace(same, `"x"`, `"y"`, 1)), refused},
			"another method":                {h, "prompts/get", "ada", retry(sealed, same), refused},
			"other params":                  {h, "tools/call", "ada", retry(sealed, strings.Replace(same, "993", "992", 1)), refused},
			"another principal":             {h, "tools/call", "bob", retry(sealed, same), refused},
			"another server":                {serve(t, "other"), "tools/call", "ada", retry(sealed, same), refused},
			"longer":                        {h, "tools/call", "ada", retry(sealed+"-TAMPERED", same), refused},
			"empty":                         {h, "tools/call", "ada", retry("", same), refused},
			"a member that is there twice":  {h, "tools/call", "ada", retry(ofTwice, twice), good},
			"the other one of it":           {h, "tools/call", "ada", retry(ofTwice, swapped), refused},
			"a principal that is not UTF-8": {h, "tools/call", "\xff", retry(odd, same), good},
			"another one":                   {h, "tools/call", "\xfe", retry(odd, same), refused},
			"answers that nobody asked for": {h, "tools/call", "ada", answers(`{"unasked":{"a":1}}`), good},
			"answers that are none":         {h, "tools/call", "ada", answers(`[]`), refused},
			"an answer that is no object":   {h, "tools/call", "ada", answers(`{"name":5}`), refused},
			"two answers":                   {h, "tools/call", "ada", answers(`{"name":{"action":"decline"},"name":{"action":"accept"}}`), refused},
			"a state that is no string":     {h, "tools/call", "ada", `"requestState":5,` + same, refused},
		} {
			if out := post(row.h, row.method, row.params, row.principal); !strings.Contains(out, row.want) {
				t.Errorf("%s: %s", name, out)
			}
		}
		check := func(name, sealed, want string) {
			t.Helper()
			if out := post(h, "tools/call", retry(sealed, same), "ada"); !strings.Contains(out, want) {
				t.Errorf("%s: %s: %s, want %s", name, sealed, out, want)
			}
		}
		raw, _ := base64.RawURLEncoding.DecodeString(sealed)
		changed := func() {
			for i := range raw {
				for _, by := range []byte{1, 0xff} {
					raw[i] += by
					check("changed", base64.RawURLEncoding.EncodeToString(raw), refused)
					raw[i] -= by
				}
			}
		}
		time.Sleep(life - time.Second)
		check("just in time", sealed, good)
		changed()
		time.Sleep(2 * time.Second)
		check("expired", sealed, refused)
		changed()
		for n := range 80 {
			check("forged", base64.RawURLEncoding.EncodeToString(make([]byte, n)), refused)
		}
	})
}

// A burst of changes ends no subscription: what waits is told once, the last word of each thing, and nothing is lost, even if the input ends
// just then, while there are more and more changes. The end of input is the end of the subscription. A list and a resource are never taken for each
// other, whatever they are called. Only what was asked for is told: not another notification that happens to name the same resource. What a
// notification says in _meta stays.
func TestListenBurst(t *testing.T) {
	shared.CheckLeaks(t)
	const method, list, updated = "subscriptions/listen", "notifications/resources/list_changed", "notifications/resources/updated"
	demo, uris := newDemo(), []string{list}
	for n := range 500 {
		uris = append(uris, fmt.Sprintf("note:///%d", n))
	}
	filter, _ := json.Marshal(map[string]any{"resourcesListChanged": true, "resourceSubscriptions": uris})
	request := modernRequest(method, `"notifications":`+string(filter))
	in, said := io.Pipe()
	told, out := io.Pipe() // it waits until we read
	served := make(chan error, 1)
	go func() { served <- wire.Serve(t.Context(), wire.NewLineConn(in, out, 0, in.Close), demo, nil) }()
	fmt.Fprintln(said, request)
	lines := bufio.NewReader(told)
	next := func() string {
		line, err := lines.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	c := serveWeb(t, newHandler(t, demo))
	nextOfWeb := c.events(c.send("POST", request, modernLines(method)...))
	if acknowledged := next() + string(nextOfWeb().Data); strings.Count(acknowledged, "acknowledged") != 2 {
		t.Fatal(acknowledged)
	}
	for range 3 {
		for _, uri := range uris {
			demo.Publish(updated, map[string]string{"uri": uri})
			demo.Publish(list, map[string]string{"uri": "note:///7"})
			demo.Publish("notifications/message", map[string]string{"uri": uri})
		}
	}
	demo.Publish(updated, json.RawMessage(`{"uri":"note:///7","_meta":{"com.example/x":1,"io.modelcontextprotocol/subscriptionId":7}}`))
	const last = `{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"com.example/x":1},"uri":"note:///7"}`
	heard := map[string]string{}
	hear := func(line string) {
		m := wire.Decode([]byte(line)).Messages[0]
		if m.Method != list && m.Method != updated {
			t.Fatal(line)
		}
		heard[m.Method+" "+text(m.Params, "uri")] = string(m.Params)
	}
	hasAll := func() bool { return len(heard) == len(uris)+1 && heard[updated+" note:///7"] == last }
	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for ctx.Err() == nil {
			demo.Publish(list, map[string]string{"uri": "note:///7"})
		}
	})
	said.Close()
	line := next()
	for ; !strings.Contains(line, `"id":1,"result"`); line = next() {
		hear(line)
	}
	stop()
	publishing.Wait()
	if cancelled := next(); !hasAll() || cancelled != `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":1},"requestId":1}}`+"\n" {
		t.Errorf("on the pipe %d of %d, and %s", len(heard), len(uris)+1, cancelled)
	}
	if err := <-served; err != nil {
		t.Error(err)
	}
	clear(heard)
	for !hasAll() {
		hear(string(nextOfWeb().Data))
	}
}

// streamsOf are both ends of a byte stream, as a server and a client would have them on stdio.
func streamsOf(serverLine, clientLine int) (server, client wire.Conn) {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	closeAll := func() error {
		return errors.Join(fromClient.Close(), toServer.Close(), fromServer.Close(), toClient.Close())
	}
	return wire.NewLineConn(fromClient, toClient, serverLine, closeAll), wire.NewLineConn(fromServer, toServer, clientLine, closeAll)
}

// A client's answer that is larger than the server allows ends the question at once: on stdio by its id, over HTTP by an error that the client
// sends in its place.
func TestAnswerTooLargeForServer(t *testing.T) {
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "ask"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		return nil, x.Call(ctx, "sampling/createMessage", map[string]any{"messages": []any{}, "maxTokens": 1}, nil)
	})
	large := func(context.Context, *wire.Exchange) (any, error) {
		return wire.SamplingResult{Role: "assistant", Model: "m", Content: wire.Contents{wire.TextContent(strings.Repeat("x", 2<<20))}}, nil
	}
	serverEnd, clientEnd := streamsOf(1<<20, 0)
	go func() { _ = wire.Serve(t.Context(), serverEnd, server, nil) }()
	handler := newHandler(t, server)
	handler.MaxBody = 1 << 20
	for reason, to := range map[string]wire.Dialer{
		"message too large":             wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil }),
		"the result could not be sent:": wire.HTTPDialer{URL: serveWeb(t, handler).url},
	} {
		c := dial(t, to, &wire.Client{Versions: []string{"2025-11-25"}, Handlers: map[string]wire.HandlerFunc{"sampling/createMessage": large}})
		if text, err := callTool(t, c, "ask"); !strings.Contains(fmt.Sprint(text, err), reason) {
			t.Errorf("%s, %v, want %s", text, err, reason)
		}
	}
}

// An answer that is too large costs its own call, and no other that waits.
func TestLargeAnswerCostsOneCall(t *testing.T) {
	serverEnd, clientEnd := streamsOf(0, 1<<20)
	server := newServer()
	largeIsRefused := make(chan struct{})
	wire.AddTool(server, wire.Tool{Name: "large"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return strings.Repeat("x", 2<<20), nil })
	wire.AddTool(server, wire.Tool{Name: "small"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { <-largeIsRefused; return "done", nil })
	go func() { _ = wire.Serve(t.Context(), serverEnd, server, nil) }()
	c := dial(t, wire.DialerFunc(func(context.Context) (wire.Conn, error) { return clientEnd, nil }), &wire.Client{})
	small := make(chan error, 1)
	go func() {
		_, err := callTool(t, c, "small")
		small <- err
	}()
	if _, err := callTool(t, c, "large"); !errors.Is(err, wire.ErrTooLarge) {
		t.Error(err)
	}
	close(largeIsRefused)
	if err := <-small; err != nil {
		t.Error(err)
	}
}

// A modern request has no Peer. A handler that uses it gets an error, and does not end the request with a panic.
func TestModernRequestHasNoPeer(t *testing.T) {
	server := newServer()
	wire.AddTool(server, wire.Tool{Name: "n"}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
		if x.Peer != nil {
			t.Error("a modern request has a Peer")
		}
		<-x.Peer.Context().Done()
		for _, err := range []error{
			x.Peer.Notify(ctx, "notifications/x", nil), x.Peer.Call(ctx, "ping", nil, nil), x.Call(ctx, "ping", nil, nil), context.Cause(x.Peer.Context()),
		} {
			if err != wire.ErrNoServerRequests {
				t.Error(err)
			}
		}
		return "done", nil
	})
	if out := answered(t, server, "2026-07-28", "tools/call", `"name":"n"`); !strings.Contains(out, "done") {
		t.Error(out)
	}
}
