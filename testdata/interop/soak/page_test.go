package soak

import (
	"bytes"
	"context"
	"net/http"
	"regexp"

	"interop/wire" // go run ./copywire
)

// sessionOf finds the session in the header of a request or response, as JSON has it.
var sessionOf = regexp.MustCompile(`Mcp-Session-Id: (.*?)\\n`)

// openPage opens a page for browsers that watches the server, and reads all that it is shown until leave is called: something all the time,
// and no id of a session. A page that falls behind is dropped, and opened again.
func (s *soak) openPage() (leave func()) {
	ctx, cancel := context.WithCancel(s.Context())
	transport, closed := new(http.Transport), make(chan struct{})
	open := func() *http.Response {
		r, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.addr+"/watch", nil)
		r.Header.Set("Accept", "text/event-stream")
		resp, err := transport.RoundTrip(r)
		if err != nil || resp.StatusCode != http.StatusOK {
			if ctx.Err() == nil {
				s.fault("page", "GET /watch: %v %v", resp, err)
			}
			return nil
		}
		return resp
	}
	first := open()
	go func() {
		defer close(closed)
		for resp := first; resp != nil && ctx.Err() == nil; resp = open() {
			s.readPage(resp)
			s.count("pages that fell behind, or left")
		}
	}()
	return func() {
		cancel()
		<-closed
		transport.CloseIdleConnections()
	}
}

// readPage reads what a page is shown, until its stream ends.
func (s *soak) readPage(resp *http.Response) {
	defer resp.Body.Close()
	for e, err := range wire.ReadEvents(resp.Body, maxMessage) {
		if err != nil {
			return
		}
		s.count("parts shown on the page")
		for _, found := range sessionOf.FindAllSubmatch(e.Data, -1) {
			s.count("sessions shown on the page")
			if string(found[1]) != "…" && !bytes.HasPrefix(found[1], []byte("session-")) {
				s.fault("page", "it is shown %s", found[0])
			}
		}
	}
}
