package library

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"interop/wire"
)

// When a call has its answer, nobody is told of its progress any more.
func TestProgressAfterAnswer(t *testing.T) {
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	conn := wire.NewLineConn(fromServer, toServer, 0, func() error { return errors.Join(fromServer.Close(), toServer.Close()) })
	go func() {
		lines := bufio.NewScanner(fromClient)
		for lines.Scan() {
			m := wire.Decode(lines.Bytes()).Messages[0]
			switch m.Method {
			case "initialize":
				fmt.Fprintln(toClient, strings.ReplaceAll(legacyHello, "ID", m.ID.String()))
			case "slow":
				progress := `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"progress-1","progress":%d}}` + "\n"
				fmt.Fprintf(toClient, progress, 1)
				fmt.Fprintln(toClient, strings.ReplaceAll(emptyResult, "ID", m.ID.String()))
			case "ping": // late
				fmt.Fprintln(toClient, `{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"progress-1","progress":2}}`)
				fmt.Fprintln(toClient, strings.ReplaceAll(emptyResult, "ID", m.ID.String()))
			}
		}
	}()
	c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}, Versions: []string{"2025-11-25"}}
	if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return conn, nil })); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var mu sync.Mutex
	var told []float64
	ended := false
	report := func(p wire.ProgressParams) {
		mu.Lock()
		defer mu.Unlock()
		if !ended {
			told = append(told, p.Progress)
		} else {
			t.Error("progress after the end:", p.Progress)
		}
	}
	if err := c.CallWithProgress(t.Context(), "slow", nil, nil, report); err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	seen := fmt.Sprint(told)
	ended = true
	mu.Unlock()
	for range 2 { // what comes before the answer is handled before it
		if err := c.Call(t.Context(), "ping", nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	if seen != "[1]" {
		t.Error(seen)
	}
}

// A tools/call whose header does not fit is sent again with what tools/list says. If that fails, so does the call, with its own error. No other
// method is sent again, and nothing that a handler has answered.
func TestMismatchWithoutRetry(t *testing.T) {
	for _, row := range []struct {
		method       string
		status, code int
		list         string // the answer to tools/list
	}{
		{"tools/call", 400, -32020, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32603,"message":"no list"}}`},
		{"tools/call", 200, -32020, `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","tools":[]}}`},
		{"tools/call", 400, -32602, `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","tools":[]}}`},
		{"prompts/get", 400, -32020, `{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","tools":[]}}`},
	} {
		calls := 0
		network := played(func(r *http.Request, m *wire.Message) (int, string) {
			switch {
			case m == nil:
				return 405, ""
			case m.Method == "server/discover":
				return 200, modernHello
			case m.Method == row.method:
				calls++
				return row.status, fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"error":{"code":%d,"message":"x"}}`, row.code)
			}
			return 200, row.list
		})
		c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}}
		if err := c.Connect(t.Context(), dialled(network)); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		err := c.Call(t.Context(), row.method, map[string]any{"name": "n"}, nil)
		fault := &wire.Error{}
		if !errors.As(err, &fault) || fault.Code != row.code || calls != 1 {
			t.Errorf("%s, %d: %d calls, %v", row.method, row.status, calls, err)
		}
	}
}

// A server whose list of tools has no end does not keep the client for ever: it reads a thousand pages.
func TestListWithoutEnd(t *testing.T) {
	pages := 0
	network := played(func(_ *http.Request, m *wire.Message) (int, string) {
		switch {
		case m == nil:
			return 405, ""
		case m.Method == "server/discover":
			return 200, modernHello
		case m.Method == "tools/list":
			pages++
			return 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","tools":[],"nextCursor":"%d"}}`, pages)
		}
		return 400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"x"}}`
	})
	c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}}
	if err := c.Connect(t.Context(), dialled(network)); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Call(ctx, "tools/call", map[string]any{"name": "n"}, nil); err == nil || ctx.Err() != nil || pages < 2 || pages > 1000 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

// What is remembered of one client is bounded: here the URIs that it watches.
func TestRememberedIsBounded(t *testing.T) {
	server := &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"}, Capabilities: map[string]any{"resources": map[string]bool{"subscribe": true}}}
	server.AnnounceChanges()
	h := newHandler(t, server)
	session, refused := openSession(h, "2025-11-25"), 0
	const size, calls, most = 1000, 100, 64 << 10
	for i := range calls {
		uri := fmt.Sprint("a:", i, strings.Repeat("b", size))
		v := visit(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"resources/subscribe","params":{"uri":"`+uri+`"}}`, session).answered()
		if strings.Contains(v.Body.String(), `"error"`) {
			refused++
		}
	}
	if refused == calls || (calls-refused)*size > most {
		t.Errorf("%d of %d subscriptions are refused", refused, calls)
	}
}
