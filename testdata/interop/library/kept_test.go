package library

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"interop/shared"
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

// A server whose list of tools has no end does not keep the client for ever: it reads a thousand pages.
func TestListWithoutEnd(t *testing.T) {
	pages := 0
	network := played(func(_ *http.Request, m *wire.Message) (int, string) {
		switch m.Method {
		case "server/discover":
			return 200, modernHello
		case "tools/list":
			pages++
			return 200, fmt.Sprintf(`{"jsonrpc":"2.0","id":ID,"result":{"resultType":"complete","tools":[],"nextCursor":"%d"}}`, pages)
		}
		return 400, `{"jsonrpc":"2.0","id":ID,"error":{"code":-32020,"message":"x"}}`
	})
	c := dial(t, dialled(network), &wire.Client{})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := c.Call(ctx, "tools/call", map[string]any{"name": "n"}, nil); err == nil || ctx.Err() != nil || pages < 2 || pages > 1000 {
		t.Errorf("%d pages, %v", pages, err)
	}
}

// What is remembered of one client is bounded: here the URIs that it watches.
func TestRememberedIsBounded(t *testing.T) {
	const size, calls, most = 1000, 100, 64 << 10
	lines := []string{shared.InitializeLine("2025-11-25")}
	for i := range calls {
		lines = append(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"resources/subscribe","params":{"uri":"a:%d%s"}}`, i, i, strings.Repeat("b", size)))
	}
	refused := strings.Count(strings.Join(converse(t, newDemo(), lines...), ""), `"error"`)
	if refused == calls || (calls-refused)*size > most {
		t.Errorf("%d of %d subscriptions are refused", refused, calls)
	}
}
