package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"interop/wire"
)

// When a call has its answer, nobody is told of its progress any more.
func TestProgressAfterAnswer(t *testing.T) {
	var token json.RawMessage
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{
		"slow": func(ctx context.Context, x *wire.Exchange) (any, error) {
			token = value(x.Request.Params, "_meta", "progressToken")
			return nil, x.Progress(ctx, 1, 0)
		},
		"late": func(ctx context.Context, x *wire.Exchange) (any, error) {
			return nil, x.Notify(ctx, "notifications/progress", map[string]any{"progressToken": token, "progress": 2})
		},
	}}
	c := connect(t, server, &wire.Client{Versions: []string{"2025-11-25"}})
	var told []float64
	err := c.CallWithProgress(t.Context(), "slow", nil, nil, func(p wire.ProgressParams) { told = append(told, p.Progress) })
	for range 2 { // what comes before the answer is handled before it
		err = errors.Join(err, c.Call(t.Context(), "late", nil, nil))
	}
	if err != nil || fmt.Sprint(told) != "[1]" {
		t.Error(told, err)
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
