package library

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"interop/wire"
)

// Sampling with tools: a model's call of a tool, and the result that goes back to it, come through whole in either direction.
func TestContentOfSamplingWithTools(t *testing.T) {
	for _, text := range []string{
		`{"type":"tool_use","name":"get_weather","id":"call_1","input":{"city":"Oslo"}}`,
		`{"type":"tool_use","name":"now","id":"call_2","input":{}}`,
		`{"type":"tool_result","toolUseId":"call_1","content":[{"type":"text","text":"18"}],"structuredContent":{"t":18},"isError":true}`,
		`{"type":"tool_result","toolUseId":"call_2","content":[]}`,
	} {
		var result wire.SamplingResult
		if err := wire.Bind(json.RawMessage(`{"role":"assistant","model":"m","content":`+text+`}`), &result); err != nil {
			t.Fatal(err)
		}
		if got, err := json.Marshal(result.Content); err != nil || string(got) != text {
			t.Errorf("%s %v\nwant\n%s", got, err, text)
		}
	}
	use, _ := json.Marshal(wire.Content{Type: "tool_use", ID: "a", Name: "n"})
	answer, _ := json.Marshal(wire.Content{Type: "tool_result", ToolUseID: "a"})
	if !strings.Contains(string(use), `"input":{}`) || !strings.Contains(string(answer), `"content":[]`) {
		t.Errorf("a member that the type needs is missing: %s %s", use, answer)
	}
}

// Publish before the first request reaches nobody, and decides nothing: a tool that is added after it can be called.
func TestPublishBeforeOffers(t *testing.T) {
	server := &wire.Server{}
	server.Publish("notifications/resources/updated", map[string]string{"uri": "file:///x"})
	wire.AddTool(server, wire.Tool{Name: "hello"}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return "hi", nil })
	out := converseFor(t, 2, server, initializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"hello"}}`)
	if !strings.Contains(strings.Join(out, "\n"), `"text":"hi"`) {
		t.Error(out)
	}
}

// A resource that no client could read cannot be added.
func TestAddResourceWantsURI(t *testing.T) {
	defer func() {
		if reason, _ := recover().(string); !strings.Contains(reason, "a URI that is none") {
			t.Error(reason)
		}
	}()
	(&wire.Server{}).AddResource(wire.Resource{URI: "note:///müll", Name: "n"}, nil)
	t.Error("it is added")
}

// The id of a stream may have any characters but the end of a line.
func TestStreamWithSlash(t *testing.T) {
	s := wire.NewStream("a/b", 1<<20)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.Follow(w, r, r.Header.Get("Last-Event-ID")); err != nil {
			t.Error(err)
		}
	}))
	defer server.Close()
	first, err := http.Get(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	for _, data := range []string{"one", "two"} {
		if err := s.Send(t.Context(), []byte(data)); err != nil {
			t.Fatal(err)
		}
	}
	lines := bufio.NewScanner(first.Body)
	id := ""
	for id == "" && lines.Scan() {
		id, _ = strings.CutPrefix(lines.Text(), "id: ")
		if !strings.HasPrefix(lines.Text(), "id: ") {
			id = ""
		}
	}
	first.Body.Close()
	s.End()
	request, _ := http.NewRequest("GET", server.URL, nil)
	request.Header.Set("Last-Event-ID", id)
	rest, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer rest.Body.Close()
	for e, err := range wire.ReadEvents(rest.Body, 1000) {
		if err != nil || id != "a/b/1" || e.ID != "a/b/2" || string(e.Data) != "two" {
			t.Errorf("after %s: %s %q %v", id, e.ID, e.Data, err)
		}
	}
}

// What a program returns by mistake becomes a whole result, or an error: never a result that lacks what the protocol wants.
func TestResultsByMistake(t *testing.T) {
	server := &wire.Server{}
	for name, result := range map[string]any{
		"nothing": (*wire.ToolResult)(nil), "no-content": (*wire.Content)(nil), "no-questions": (*wire.InputRequired)(nil),
		"pointer": &wire.Content{Type: "text", Text: "x"},
	} {
		wire.AddTool(server, wire.Tool{Name: name}, func(context.Context, *wire.Exchange, struct{}) (any, error) { return result, nil })
	}
	server.AddPrompt(wire.Prompt{Name: "p"}, func(context.Context, *wire.Exchange, map[string]string) (any, error) { return nil, nil })
	said := []string{initializeLine("2025-11-25")}
	for _, name := range []string{"nothing", "no-content", "no-questions", "pointer"} {
		said = append(said, `{"jsonrpc":"2.0","id":"`+name+`","method":"tools/call","params":{"name":"`+name+`"}}`)
	}
	said = append(said, `{"jsonrpc":"2.0","id":"p","method":"prompts/get","params":{"name":"p"}}`)
	for _, line := range converseFor(t, len(said), server, said...) {
		m := wire.Decode([]byte(line)).Messages[0]
		switch id := m.ID.String(); {
		case strings.Contains(id, "pointer") && string(m.Result) != `{"content":[{"type":"text","text":"x"}]}`,
			strings.HasPrefix(id, `"no`) && string(m.Result) != `{"content":[]}`,
			id == `"p"` && m.Error == nil:
			t.Error(line)
		}
	}
}
