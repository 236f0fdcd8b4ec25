// SPDX-License-Identifier: 0BSD

package main

// Tests that travel with a copy: take -test writes those of them that need nothing else
// than what is taken. Each one is a conversation in memory. They show that the copy is
// whole, and that it still works after somebody has changed it.

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// ---- What both ends say ----

// The requests of a client of 2025-11-25, and those of 2026-07-28, which need no handshake.
const (
	testInitialize  = `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"1"}}}`
	testInitialized = `{"jsonrpc":"2.0","method":"notifications/initialized"}`
	testPing        = `{"jsonrpc":"2.0","id":2,"method":"ping"}`
	testLegacyCall  = `{"jsonrpc":"2.0","id":3,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"}}}`
	testMeta        = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`
	testModernCall  = `{"jsonrpc":"2.0","id":4,"method":"tools/call","params":{"name":"echo","arguments":{"text":"hello"},` + testMeta + `}}`
	testEchoed      = `"content":[{"type":"text","text":"hello"}]`
)

// testWants fails the test if a reply does not have what is expected.
func testWants(t *testing.T, reply string, want ...string) {
	t.Helper()
	for _, part := range want {
		if !strings.Contains(reply, part) {
			t.Errorf("there is no %s in\n%s", part, reply)
		}
	}
}

// ---- A server on a stream of bytes ----

// testLines gives lines to a server, and returns what it writes.
func testLines(t *testing.T, server *Server, lines ...string) string {
	t.Helper()
	var out bytes.Buffer
	in := strings.NewReader(strings.Join(lines, "\n"))
	err := Serve(t.Context(), NewLineConn(in, &out, 0, func() error { return nil }), server, nil)
	if err != nil {
		t.Error(err)
	}
	return out.String()
}

func TestServerOnLines(t *testing.T) {
	server := &Server{Info: Implementation{Name: "test", Version: "1"}}
	reply := testLines(t, server, testInitialize, testInitialized, testPing, `{"jsonrpc":"2.0","id":5,"method":"unknown"}`, "no JSON")
	testWants(t, reply, `"protocolVersion":"2025-11-25"`, `{"jsonrpc":"2.0","id":2,"result":{}}`,
		`"id":5,"error":{"code":-32601`, `"error":{"code":-32700`)
}

// newTestServer returns a server with one tool.
func newTestServer() *Server {
	server := &Server{Info: Implementation{Name: "test", Version: "1"}}
	type arguments struct {
		Text string `json:"text"`
	}
	AddTool(server, Tool{
		Name:        "echo",
		InputSchema: json.RawMessage(`{"type":"object","required":["text"],"properties":{"text":{"type":"string"}}}`),
	}, func(ctx context.Context, x *Exchange, args arguments) (any, error) {
		if args.Text == "" {
			return nil, errors.New("there is no text")
		}
		return args.Text, nil
	})
	return server
}

func TestToolOnLines(t *testing.T) {
	server := newTestServer()
	testWants(t, testLines(t, server, testInitialize, testInitialized, testLegacyCall), `"id":3`, testEchoed)
	testWants(t, testLines(t, server, testModernCall), `"id":4`, `"resultType":"complete"`, testEchoed)
	empty := strings.Replace(testModernCall, "hello", "", 1)
	testWants(t, testLines(t, server, empty), "there is no text", `"isError":true`)
}

func TestProgressOnLines(t *testing.T) {
	server := &Server{Info: Implementation{Name: "test", Version: "1"}}
	AddTool(server, Tool{Name: "echo"}, func(ctx context.Context, x *Exchange, _ json.RawMessage) (any, error) {
		return "done", x.Progress(ctx, 1, 2)
	})
	call := strings.Replace(testModernCall, `"_meta":{`, `"_meta":{"progressToken":"p",`, 1)
	testWants(t, testLines(t, server, call), `"method":"notifications/progress"`, `"progressToken":"p"`, `"text":"done"`)
}

func TestResourceOnLines(t *testing.T) {
	server := &Server{Info: Implementation{Name: "test", Version: "1"}}
	server.AddResource(Resource{URI: "note:///a", Name: "a"}, func(context.Context, *Exchange, string) (any, error) { return "hello", nil })
	list := `{"jsonrpc":"2.0","id":5,"method":"resources/list","params":{` + testMeta + `}}`
	read := `{"jsonrpc":"2.0","id":6,"method":"resources/read","params":{"uri":"note:///a",` + testMeta + `}}`
	testWants(t, testLines(t, server, list, read), `"resources":[{"uri":"note:///a"`, `"text":"hello"`)
}

func TestPromptOnLines(t *testing.T) {
	server := &Server{Info: Implementation{Name: "test", Version: "1"}}
	server.AddPrompt(Prompt{Name: "greet"}, func(context.Context, *Exchange, map[string]string) (any, error) { return "hello", nil })
	get := `{"jsonrpc":"2.0","id":5,"method":"prompts/get","params":{"name":"greet",` + testMeta + `}}`
	testWants(t, testLines(t, server, get), `"role":"user"`, `"text":"hello"`)
}

// ---- A server over HTTP ----

// testPost sends a message to a handler, with a header of names and values, and returns the
// response.
func testPost(t *testing.T, h http.Handler, message string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "http://localhost/mcp", strings.NewReader(message))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestModernToolOverHTTP(t *testing.T) {
	h := &StreamableHandler{Handler: newTestServer()}
	w := testPost(t, h, testModernCall, "MCP-Protocol-Version", "2026-07-28", "Mcp-Method", "tools/call", "Mcp-Name", "echo")
	if w.Code != http.StatusOK {
		t.Error(w.Code)
	}
	testWants(t, w.Body.String(), `"id":4`, testEchoed)
	if w := testPost(t, h, testModernCall); w.Code != http.StatusBadRequest { // the header does not say the same as the body
		t.Error(w.Code, w.Body)
	}
	if w := testPost(t, h, testModernCall, "Origin", "https://evil.example.com"); w.Code != http.StatusForbidden {
		t.Error(w.Code, w.Body)
	}
}

func TestSessionOverHTTP(t *testing.T) {
	h := &StreamableHandler{Handler: newTestServer(), Sessions: &Sessions{}}
	w := testPost(t, h, testInitialize)
	id := w.Header().Get("Mcp-Session-Id")
	if w.Code != http.StatusOK || id == "" {
		t.Fatalf("%d, session %q: %s", w.Code, id, w.Body)
	}
	session := []string{"Mcp-Session-Id", id, "MCP-Protocol-Version", "2025-11-25"}
	if w := testPost(t, h, testInitialized, session...); w.Code != http.StatusAccepted {
		t.Error(w.Code, w.Body)
	}
	testWants(t, testPost(t, h, testLegacyCall, session...).Body.String(), `"id":3`, testEchoed)
	session[1] = "unknown"
	if w := testPost(t, h, testLegacyCall, session...); w.Code != http.StatusNotFound {
		t.Error(w.Code, w.Body)
	}
}

// ---- A client ----

// testAnswer returns what a server of 2026-07-28 answers to a message; "": nothing.
func testAnswer(message []byte) string {
	var request struct {
		ID     json.RawMessage
		Method string
	}
	if json.Unmarshal(message, &request) != nil || request.ID == nil {
		return ""
	}
	results := map[string]string{
		"server/discover": `{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"1"}}`,
		"tools/list":      `{"resultType":"complete","tools":[{"name":"echo","inputSchema":{"type":"object"}}]}`,
		"tools/call":      `{"resultType":"complete",` + testEchoed + `}`,
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, request.ID, cmp.Or(results[request.Method], "{}"))
}

// testClient connects a client by a Dialer, and calls a tool.
func testClient(t *testing.T, dialer Dialer) {
	t.Helper()
	client := &Client{Info: Implementation{Name: "test", Version: "1"}}
	defer client.Close()
	if err := client.Connect(t.Context(), dialer); err != nil {
		t.Fatal(err)
	}
	var result json.RawMessage
	params := map[string]any{"name": "echo", "arguments": map[string]string{"text": "hello"}}
	if err := client.Call(t.Context(), "tools/call", params, &result); err != nil {
		t.Fatal(err)
	}
	testWants(t, string(result), testEchoed)
}

// testRoundTripper is a RoundTripper that asks no network, but answers as a server.
type testRoundTripper struct{}

func (testRoundTripper) RoundTrip(r *http.Request) (*http.Response, error) {
	message, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	w := httptest.NewRecorder()
	w.Header().Set("Content-Type", "application/json")
	w.WriteString(testAnswer(message))
	response := w.Result()
	response.Request = r
	return response, nil
}

func TestClientOverHTTP(t *testing.T) {
	testClient(t, HTTPDialer{URL: "http://localhost/mcp", Client: &http.Client{Transport: testRoundTripper{}}})
}

// testLineDialer is a Dialer whose server is a goroutine.
type testLineDialer struct{}

func (testLineDialer) Dial(context.Context) (Conn, error) {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	go func() {
		defer toClient.Close()
		for in := json.NewDecoder(fromClient); ; {
			var message json.RawMessage
			if in.Decode(&message) != nil {
				return
			}
			if answer := testAnswer(message); answer != "" {
				fmt.Fprintln(toClient, answer)
			}
		}
	}()
	return NewLineConn(fromServer, toServer, 0, toServer.Close), nil
}

func TestClientOnLines(t *testing.T) { testClient(t, testLineDialer{}) }

// ---- JSON-RPC ----

func TestCalls(t *testing.T) {
	double := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		var params struct {
			N int `json:"n"`
		}
		err := x.Bind(&params)
		return map[string]int{"n": 2 * params.N}, err
	})
	ours, theirs := Pipe()
	ended := make(chan error, 1)
	go func() { ended <- ServeConn(context.Background(), theirs, double, nil) }()
	peer := OpenConn(t.Context(), ours, double, nil)
	var result struct{ N int }
	if err := peer.Call(t.Context(), "double", map[string]int{"n": 21}, &result); err != nil || result.N != 42 {
		t.Error(result.N, err)
	}
	var fault *Error
	if err := peer.Call(t.Context(), "double", nil, nil); !errors.As(err, &fault) || fault.Code != CodeInvalidParams {
		t.Error(err)
	}
	peer.Close()
	select {
	case err := <-ended:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(time.Minute):
		t.Error("the server does not end")
	}
}

func TestDecodeAndAppend(t *testing.T) {
	for text, want := range map[string]string{
		testPing:                testPing,
		`{"jsonrpc":"2.0","id`:  `{"jsonrpc":"2.0","error":{"code":-32700`,
		`{"id":2,"method":"m"}`: `{"jsonrpc":"2.0","id":2,"error":{"code":-32600`,
	} {
		testWants(t, string(Decode([]byte(text)).Append(nil)), want)
	}
}

func TestBind(t *testing.T) {
	var params struct {
		City string `json:"city"`
		Days int    `json:"days,omitempty"`
	}
	if err := Bind(json.RawMessage(`{"city":"Oslo","days":3}`), &params); err != nil || params.City != "Oslo" || params.Days != 3 {
		t.Errorf("%+v, %v", params, err)
	}
	for _, text := range []string{`{}`, `{"City":"Oslo"}`, `{"city":5}`, `{"city":"Oslo","city":"Rome"}`} {
		if Bind(json.RawMessage(text), &params) == nil {
			t.Error("no error:", text)
		}
	}
}

func TestReadEvents(t *testing.T) {
	got := ""
	for event, err := range ReadEvents(strings.NewReader("id: 7\ndata: one\ndata: two\n\ndata: cut off"), 1<<20) {
		got += fmt.Sprintf("%s %q %v", event.ID, event.Data, err)
	}
	if want := `7 "one\ntwo" <nil>`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
