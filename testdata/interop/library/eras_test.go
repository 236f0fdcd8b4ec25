package library

import (
	"encoding/json"
	"interop/shared"
	"interop/wire"
	"strings"
	"testing"
)

// The compatibility matrix of 2026-07-28 basic/versioning, with our own two ends.
func TestEras(t *testing.T) {
	eras := map[string][]string{"modern": {"2026-07-28"}, "legacy": {"2025-11-25", "2025-06-18", "2025-03-26", "2024-11-05"}, "dual": {}} // an empty list stands for all, as nil does
	want := map[string]string{
		"modern modern": "2026-07-28", "modern legacy": "", "modern dual": "2026-07-28",
		"legacy modern": "", "legacy legacy": "2025-11-25", "legacy dual": "2025-11-25",
		"dual modern": "2026-07-28", "dual legacy": "2025-11-25", "dual dual": "2026-07-28",
	}
	for transport, dialer := range map[string]func(*wire.Server) wire.Dialer{"stdio": func(d *wire.Server) wire.Dialer {
		return pipeTo(t, d)
	}, "HTTP": func(d *wire.Server) wire.Dialer {
		h := newHandler(t, d)
		h.Versions = d.Versions
		return wire.HTTPDialer{Client: wire.WithHeader(nil, nil), URL: serveWeb(t, h).url} // no Client is that of net/http
	}} {
		for pair, version := range want {
			client, server, _ := strings.Cut(pair, " ")
			demo := newDemo()
			demo.Versions = eras[server]
			c := &wire.Client{Info: shared.Me, Versions: eras[client]}
			err := c.Connect(t.Context(), dialer(demo))
			if got := c.Server().Version; got != version || (err == nil) != (got != "") {
				t.Errorf("%s, %s: %q, %v", transport, pair, got, err)
			}
			if err == nil {
				err = c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"echo","arguments":{"text":"x"}}`), nil)
			} else if server != "modern" || strings.Contains(err.Error(), "2026-07-28") { // which says what it speaks
				err = nil
			}
			if err != nil {
				t.Errorf("%s, %s: %v", transport, pair, err)
			}
			c.Close()
		}
	}
}
