package library

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"interop/shared"
	"interop/wire"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// One handler asks, in either era: the modern client calls again, the legacy one gets real requests.
func TestInputBothEras(t *testing.T) {
	handler := func(_ context.Context, x *wire.Exchange) (any, error) {
		state := x.State()
		for _, key := range []string{"b", "a"} {
			if answer, ok := x.Inputs()[key]; ok {
				state = text(answer, "content", "name") + state
			}
		}
		switch {
		case len(state) == 0:
			form := map[string]any{"message": "?", "requestedSchema": map[string]any{"type": "object"}}
			return wire.InputRequired{Requests: map[string]wire.InputRequest{"a": {Method: "elicitation/create", Params: form}, "b": {Method: "elicitation/create", Params: form}}}, nil
		case len(state) == 2:
			return wire.InputRequired{State: state + "é"}, nil // a state alone: call again at once
		case len(state) == 4:
			return wire.InputRequired{State: state + "!", Requests: map[string]wire.InputRequest{"a": {Method: "roots/list", Params: nil}}}, nil
		}
		return map[string]any{"state": state, "roots": x.Inputs()["a"]}, nil
	}
	for _, version := range []string{"2025-06-18", "2025-11-25", "2026-07-28"} {
		server := &wire.Server{Capabilities: everything, Methods: map[string]wire.HandlerFunc{"tools/call": handler, "tools/list": handler}}
		asked := 0
		c := connect(t, server, &wire.Client{Versions: []string{version}, Capabilities: map[string]any{"elicitation": map[string]any{}, "roots": struct{}{}},
			Handler: wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
				if x.Request.Method == "roots/list" {
					return map[string]any{"roots": []any{}}, nil
				}
				asked++
				return map[string]any{"action": "accept", "content": map[string]any{"name": fmt.Sprint(asked)}}, nil
			})})
		var result json.RawMessage
		if err := c.Call(t.Context(), "tools/call", map[string]any{"name": "x"}, &result); err != nil ||
			text(result, "state") != "12é!" || string(value(result, "roots", "roots")) != "[]" {
			t.Errorf("%s: %s, %v", version, result, err)
		}
		if err := c.Call(t.Context(), "tools/list", nil, nil); version == "2026-07-28" && err == nil {
			t.Errorf("%s: tools/list must not ask", version)
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
	serve := func(t *testing.T, key string) http.Handler {
		handler := func(_ context.Context, x *wire.Exchange) (any, error) {
			if x.State() == "" {
				return wire.InputRequired{State: state}, nil
			}
			return map[string]any{"same": x.State() == state}, nil
		}
		h := &wire.StreamableHandler{Handler: &wire.Server{Capabilities: everything, StateKey: []byte(key), Methods: map[string]wire.HandlerFunc{"tools/call": handler, "prompts/get": handler}},
			Guard: wire.Guard{Authenticate: func(r *http.Request) (string, error) { return r.Header.Get("Authorization"), nil }}}
		t.Cleanup(h.Close)
		return h
	}
	post := func(h http.Handler, method, params, principal string) string {
		body := strings.Replace(modernRequest(method, params), `{}}`, `{},"b":`+strconv.Itoa(len(params))+`}`, 1) // each _meta is another
		r, w := httptest.NewRequest("POST", "http://127.0.0.1/mcp", strings.NewReader(body)), httptest.NewRecorder()
		for name, value := range map[string]string{"Accept": "application/json, text/event-stream", "Content-Type": "application/json", "Authorization": principal,
			"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": method, "Mcp-Name": regexp.MustCompile(`"name":"(.)"`).FindStringSubmatch(params)[1]} {
			r.Header.Set(name, value)
		}
		h.ServeHTTP(w, r)
		return w.Body.String()
	}
	synctest.Test(t, func(t *testing.T) {
		h := serve(t, "k")
		const arguments = `"arguments":{"n":9007199254740993,"m":[{"a:b":"c:d"}]}`
		const same = arguments + `,"name":"x"` // in another order
		first := func(principal string) string {
			out := post(h, "tools/call", `"name":"x",`+arguments, principal)
			return text([]byte(out), "result", "requestState")
		}
		good := func(h http.Handler, method, params, principal, sealed string) bool {
			out := post(h, method, `"requestState":"`+sealed+`","inputResponses":{},`+params, principal)
			if !strings.Contains(out, `"same":true`) && !strings.Contains(out, `"code":-32602`) {
				t.Error(out)
			}
			return strings.Contains(out, `"same":true`)
		}
		sealed, odd := first("ada"), first("\xff")
		const twice, swapped = `"name":"x","arguments":{"o":{"n":1,"n":2}}`, `"name":"x","arguments":{"o":{"n":2,"n":1}}` // the last one counts
		ofTwice := text([]byte(post(h, "tools/call", twice, "ada")), "result", "requestState")
		for name, refused := range map[string]bool{
			"the retry":                           !good(h, "tools/call", same, "ada", sealed),
			"the state":                           strings.Contains(sealed, "state"),
			"another replica":                     !good(serve(t, "k"), "tools/call", same, "ada", sealed),
			"another tool":                        good(h, "tools/call", strings.Replace(same, `"x"`, `"y"`, 1), "ada", sealed),
			"another method":                      good(h, "prompts/get", same, "ada", sealed),
			"other params":                        good(h, "tools/call", strings.Replace(same, "993", "992", 1), "ada", sealed),
			"another principal":                   good(h, "tools/call", same, "bob", sealed),
			"another server":                      good(serve(t, "other"), "tools/call", same, "ada", sealed),
			"a member that is there twice":        !good(h, "tools/call", twice, "ada", ofTwice) || good(h, "tools/call", swapped, "ada", ofTwice),
			"longer":                              good(h, "tools/call", same, "ada", sealed+"-TAMPERED"),
			"empty":                               good(h, "tools/call", same, "ada", ""),
			"another principal that is not UTF-8": good(h, "tools/call", same, "\xfe", odd) || !good(h, "tools/call", same, "\xff", odd),
		} {
			if refused {
				t.Errorf("%s: not as it should be", name)
			}
		}
		const refused = `"code":-32602`
		for name, row := range map[string][2]string{
			"answers that nobody asked for": {`"requestState":"` + sealed + `","inputResponses":{"unasked":{"a":1}}`, `"same":true`},
			"answers that are none":         {`"requestState":"` + sealed + `","inputResponses":[]`, refused},
			"an answer that is no object":   {`"requestState":"` + sealed + `","inputResponses":{"name":5}`, refused},
			"two answers":                   {`"requestState":"` + sealed + `","inputResponses":{"name":{"action":"decline"},"name":{"action":"accept"}}`, refused},
			"a state that is no string":     {`"requestState":5`, refused},
		} {
			if out := post(h, "tools/call", row[0]+","+same, "ada"); !strings.Contains(out, row[1]) {
				t.Errorf("%s: %s", name, out)
			}
		}
		time.Sleep(life - time.Second)
		if !good(h, "tools/call", same, "ada", sealed) {
			t.Error("it is not yet too late")
		}
		raw, _ := base64.RawURLEncoding.DecodeString(sealed)
		for _, wait := range []time.Duration{0, 2 * time.Second} { // then it has expired
			time.Sleep(wait)
			if wait > 0 && good(h, "tools/call", same, "ada", sealed) {
				t.Error("expired: it is good for ever")
			}
			for i := range raw {
				for _, by := range []byte{1, 0xff} {
					raw[i] += by
					if good(h, "tools/call", same, "ada", base64.RawURLEncoding.EncodeToString(raw)) {
						t.Errorf("changed: byte %d by %d", i, by)
					}
					raw[i] -= by
				}
			}
		}
		for n := range 80 {
			if good(h, "tools/call", same, "ada", base64.RawURLEncoding.EncodeToString(make([]byte, n))) {
				t.Error("forged:", n, "bytes of nothing are a state")
			}
		}
	})
}

// The end of input is the end of a subscription, even while there are more and more changes.
func TestListenEndsUnderLoad(t *testing.T) {
	shared.CheckLeaks(t)
	demo := newDemo()
	l := listenTo(t, demo, `{"resourcesListChanged":true}`)
	ctx, stop := context.WithCancel(t.Context())
	var publishing sync.WaitGroup
	publishing.Go(func() {
		for ctx.Err() == nil {
			demo.Publish("notifications/resources/list_changed", nil)
		}
	})
	l.next(t)
	l.ends(t)
	stop()
	publishing.Wait()
}

// A burst of changes ends no subscription: what waits is told once, the last word of each thing, and nothing is lost, even if the input ends
// just then. A list and a resource are never taken for each other, whatever they are called. Only what was asked for is told: not another
// notification that happens to name the same resource. What a notification says in _meta stays.
func TestListenBurst(t *testing.T) {
	shared.CheckLeaks(t)
	const list, updated = "notifications/resources/list_changed", "notifications/resources/updated"
	demo, uris := newDemo(), []string{list}
	for n := range 500 {
		uris = append(uris, fmt.Sprintf("note:///%d", n))
	}
	filter, _ := json.Marshal(map[string]any{"resourcesListChanged": true, "resourceSubscriptions": uris})
	l := listenTo(t, demo, string(filter))
	c := serveWeb(t, newHandler(t, demo)).modern()
	stream := c.events(c.send("POST", modernRequest("subscriptions/listen", `"notifications":`+string(filter)), "Mcp-Method: subscriptions/listen"))
	c.next(stream) // the acknowledgement
	for range 3 {
		for _, uri := range uris {
			demo.Publish(updated, map[string]string{"uri": uri})
			demo.Publish(list, map[string]string{"uri": "note:///7"})
			demo.Publish("notifications/message", map[string]string{"uri": uri})
		}
	}
	demo.Publish(updated, json.RawMessage(`{"uri":"note:///7","_meta":{"com.example/x":1,"io.modelcontextprotocol/subscriptionId":7}}`))
	const last = `{"_meta":{"io.modelcontextprotocol/subscriptionId":1,"com.example/x":1},"uri":"note:///7"}`
	for name, lines := range map[string][]string{"pipe": l.ends(t), "HTTP": nil} {
		heard, count := map[string]string{}, 0
		for next := ""; count < len(lines) || len(heard) < len(uris)+1 || heard[updated+" note:///7"] != last; count++ {
			if next = ""; name == "HTTP" {
				next = string(c.next(stream).Data)
			} else if count < len(lines) {
				next = lines[count]
			}
			m := wire.Decode([]byte(next)).Messages[0]
			heard[m.Method+" "+text(m.Params, "uri")] = string(m.Params)
			if m.Method != list && m.Method != updated || count > 7000 {
				t.Fatalf("%s: %d of %d, and %q", name, len(heard), len(uris)+1, next)
			}
		}
	}
}

// An attempt that hangs fails after half a minute, and the next call makes another.
func TestClientHungAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, ProbeTimeout: time.Hour}
		hung := make(chan error)
		go func() {
			hung <- c.Connect(t.Context(), dialled(played(func(r *http.Request, _ *wire.Message) (int, string) {
				if asked++; asked == 1 {
					<-r.Context().Done()
					return 0, ""
				}
				return 200, modernHello
			})))
		}()
		synctest.Wait()
		time.Sleep(31 * time.Second)
		if err := c.Call(t.Context(), "m", nil, nil); err != nil {
			t.Error(err)
		}
		c.Close()
		if err := <-hung; err == nil || !strings.Contains(err.Error(), "no connection within 30s") {
			t.Error(err)
		}
	})
}
