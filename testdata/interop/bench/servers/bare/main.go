// Bare is the floor: what a server has to do whatever it is made with. It
// decodes each message once and writes once, over HTTP and over stdio, and
// knows nothing of sessions, versions or errors.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"

	"interop/bench/servers/web"
)

func main() {
	mux := http.NewServeMux()
	mux.HandleFunc("/mcp", serveHTTP)
	web.Serve("bare", mux, func(context.Context) error { return serveLines(os.Stdin, os.Stdout) })
}

type message struct {
	ID     json.RawMessage
	Method string
	Params struct {
		Name      string
		Arguments struct {
			Text       json.RawMessage // as it came is how it goes
			N, DelayMs int
		}
		Meta struct{ ProgressToken json.RawMessage } `json:"_meta"`
	}
}

func (m *message) answer() []byte {
	b := make([]byte, 0, 512+len(m.Params.Arguments.Text))
	if m.Method == "initialize" {
		return fmt.Appendf(b, `{"jsonrpc":"2.0","id":%s,"result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"logging":{}},`+
			`"serverInfo":{"name":"bare","title":"A bare server","version":"1.0.0"},"instructions":"The least that a server does."}}`, m.ID)
	}
	return fmt.Appendf(b, `{"jsonrpc":"2.0","id":%s,"result":{"content":[{"type":"text","text":%s}]}}`, m.ID, m.Params.Arguments.Text)
}

func serveLines(r io.Reader, w io.Writer) error {
	in := bufio.NewReaderSize(r, 64<<10)
	for {
		line, err := in.ReadBytes('\n')
		if err != nil {
			return nil
		}
		var m message
		if err := json.Unmarshal(line, &m); err != nil {
			return err
		}
		if m.ID == nil {
			continue
		}
		if _, err := w.Write(append(m.answer(), '\n')); err != nil {
			return err
		}
	}
}

func serveHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	var m message
	if err == nil {
		err = json.Unmarshal(body, &m)
	}
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusBadRequest)
	case m.ID == nil:
		w.WriteHeader(http.StatusAccepted)
	case m.Params.Arguments.N > 0:
		m.count(w)
	default:
		if m.Method == "initialize" {
			w.Header().Set("Mcp-Session-Id", rand.Text())
		}
		w.Header().Set("Content-Type", "application/json")
		w.Write(m.answer())
	}
}

// count writes events as the others do, and flushes each.
func (m *message) count(w http.ResponseWriter) {
	w.Header().Set("Content-Type", "text/event-stream")
	flush := http.NewResponseController(w).Flush
	args := m.Params.Arguments
	for i := range args.N {
		time.Sleep(time.Duration(args.DelayMs) * time.Millisecond)
		fmt.Fprintf(w, "id: 0123456789.1/%d\ndata: {\"jsonrpc\":\"2.0\",\"method\":\"notifications/progress\","+
			"\"params\":{\"progressToken\":%s,\"progress\":%d,\"total\":%d}}\n\n", i+1, m.Params.Meta.ProgressToken, i+1, args.N)
		flush()
	}
	m.Params.Arguments.Text = fmt.Appendf(nil, `"counted to %d"`, args.N)
	fmt.Fprintf(w, "id: 0123456789.1/%d\ndata: %s\n\n", args.N+1, m.answer())
}
