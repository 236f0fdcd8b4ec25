// Bare is the floor of what a client costs: a request encoded, posted with
// net/http, and its answer decoded.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"os"

	"interop/bench/probe"
)

const version = "2025-11-25"

type request struct {
	Version string `json:"jsonrpc"`
	ID      int    `json:"id"`
	Method  string `json:"method"`
	Params  any    `json:"params"`
}

type response struct {
	ID     int
	Result struct{ Content []struct{ Text string } }
}

func main() {
	_, session, err := call("", request{"2.0", 0, "initialize", map[string]any{"protocolVersion": version, "capabilities": struct{}{},
		"clientInfo": map[string]any{"name": "bare", "version": "1.0.0"}}})
	if err != nil {
		log.Fatal(err)
	}
	id := 0
	probe.Calls(func(text string) (string, error) {
		id++
		params := map[string]any{"name": "echo", "arguments": map[string]any{"text": text}}
		answer, _, err := call(session, request{"2.0", id, "tools/call", params})
		if err != nil || answer.ID != id {
			return "", fmt.Errorf("the answer to %d is %+v, %w", id, answer, err)
		}
		return answer.Result.Content[0].Text, nil
	})
}

// call posts a request. It returns the answer, and the session that this has begun.
func call(session string, of request) (answer response, begun string, err error) {
	body, err := json.Marshal(of)
	if err != nil {
		return answer, "", err
	}
	r, err := http.NewRequest(http.MethodPost, os.Args[1], bytes.NewReader(body))
	if err != nil {
		return answer, "", err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Accept", "application/json, text/event-stream")
	if session != "" {
		r.Header.Set("Mcp-Session-Id", session)
		r.Header.Set("Mcp-Protocol-Version", version)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return answer, "", err
	}
	defer resp.Body.Close()
	if body, err = io.ReadAll(resp.Body); err == nil {
		err = json.Unmarshal(body, &answer)
	}
	return answer, resp.Header.Get("Mcp-Session-Id"), err
}
