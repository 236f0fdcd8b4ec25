package soak

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"sync"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- Those who watch ----

// page is a page for browsers that watches the server, and reads all that it is shown.
type page struct {
	*soak
	transport *http.Transport
	close     context.CancelFunc
	closed    chan struct{}

	mine           sync.Mutex // guards the fields below
	shown, missing int        // lines
	awaited        string     // a text; "": it was seen
}

// sessionOf finds the session in the header of a request or response.
var sessionOf = regexp.MustCompile(`(?m)^Mcp-Session-Id: (.*)$`)

// openPage opens a page. It is to be shown what all say, until it is closed.
func (s *soak) openPage() *page {
	ctx, cancel := context.WithCancel(s.Context())
	p := &page{soak: s, transport: new(http.Transport), close: cancel, closed: make(chan struct{})}
	r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/watch", nil)
	r.Header.Set("Accept", "text/event-stream")
	resp, err := p.transport.RoundTrip(r)
	if err != nil {
		s.Fatal(err)
	}
	if resp.StatusCode != http.StatusOK {
		s.Fatal("GET /watch: ", resp.Status)
	}
	go func() {
		defer close(p.closed)
		defer resp.Body.Close()
		for e, err := range wire.ReadEvents(resp.Body, maxMessage) {
			switch {
			case err == nil && len(e.Data) > 0: // or it only keeps the stream alive
				p.take(e)
			case err == nil:
			case !errors.Is(err, context.Canceled):
				p.fault("page", "it is shown nothing any more: %v", err)
			}
		}
		if ctx.Err() == nil {
			p.fault("page", "its stream has ended")
		}
	}()
	return p
}

// take looks at what is shown. No id of a session is.
func (p *page) take(e wire.Event) {
	var part struct {
		Section, Text string
		Missing       int
	}
	if err := json.Unmarshal(e.Data, &part); err != nil {
		p.fault("page", "%v: %.200s", err, e.Data)
	}
	for _, found := range sessionOf.FindAllStringSubmatch(part.Text, -1) {
		if found[1] != "…" && !strings.HasPrefix(found[1], "session-") {
			p.fault("page", "%s is shown %s", part.Section, found[0])
		}
	}
	p.mine.Lock()
	defer p.mine.Unlock()
	p.shown += strings.Count(part.Text, "\n")
	p.missing += part.Missing
	if p.awaited != "" && strings.Contains(part.Text, p.awaited) {
		p.awaited = ""
	}
}

// leave closes the page. Up to then it is shown what happens.
func (p *page) leave() {
	p.mine.Lock()
	p.awaited = "is anybody there?"
	body := strings.Replace(toolCall(1, "echo", `{"text":"`+p.awaited+`"}`), `"_meta":{`, strings.TrimSuffix(modernMeta, "}")+",", 1)
	p.mine.Unlock()
	a := &abuser{soak: p.soak, kind: abuse{name: "to be seen on the page"}, web: p.web}
	if _, text := a.do("POST", "", strings.NewReader(body), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: echo"); !strings.Contains(text, `"result"`) {
		p.fault("page", "the last call: %s", text)
	}
	began := time.Now()
	waitFor(p, func() bool {
		p.mine.Lock()
		defer p.mine.Unlock()
		return p.awaited == ""
	})
	p.close()
	<-p.closed
	p.transport.CloseIdleConnections()
	p.Logf("the page was shown %d lines, and told of %d that are missing; the last call after %v", p.shown, p.missing, time.Since(began))
}
