// SPDX-License-Identifier: 0BSD

package lesson

import (
	"bufio"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
)

// Player sends what the client of a lesson over HTTP sends, and compares what a server answers with what the lesson has.
type Player struct {
	Handler http.Handler           // the server
	Missing []string               // members of the lesson's messages that are not compared
	EventID func(id string) string // returns the id of an event as this server has it; nil: its events have no ids

	t         *testing.T
	url       string
	sessions  []string                  // ids; a lesson calls the first one session-1
	responses map[string]*http.Response // by the letter of the request
	bodies    map[string]*bufio.Reader
	cancels   map[string]context.CancelFunc
}

// Play plays a lesson. It returns how many sections of the server were compared.
func (p *Player) Play(t *testing.T, file string) (compared int) {
	host := httptest.NewServer(p.Handler)
	p.t, p.url, p.sessions = t, host.URL, nil
	p.responses, p.bodies, p.cancels = map[string]*http.Response{}, map[string]*bufio.Reader{}, map[string]context.CancelFunc{}
	defer func() {
		for _, cancel := range p.cancels {
			cancel()
		}
		host.Close()
	}()
	defer func() { // what has not been cut ends where the lesson ends
		for letter, body := range p.bodies {
			if more, err := io.ReadAll(body); err != nil || len(more) > 0 {
				t.Errorf("%s: %q behind its end, %v", letter, more, err)
			}
		}
	}()
	for _, s := range Sections(t, file) {
		switch s.Who {
		case "handshake":
			p.handshake(strings.TrimPrefix(s.Letter, "2025-11-25"))
		case "client", "by hand":
			p.send(s)
		case "server":
			p.check(s)
			compared++
		}
	}
	return compared
}

// handshake sends what lesson 05 shows as requests A and B.
func (p *Player) handshake(capabilities string) {
	if capabilities = strings.TrimSpace(capabilities); capabilities == "" {
		capabilities = "{}"
	}
	const begin = "POST /mcp\nContent-Type: application/json\n"
	p.send(Section{Letter: "A", Text: begin + "\n" + `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` +
		capabilities + `,"clientInfo":{"name":"student","version":"1.0"}}}`})
	p.send(Section{Letter: "B", Text: begin + "Mcp-Session-Id: session-1\n\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
	clear(p.bodies) // which no section shows
}

// send sends a request. A line in parentheses says that the client hangs up, or that its connection breaks.
func (p *Player) send(s Section) {
	if strings.HasPrefix(s.Text, "(") {
		p.cancels[s.Letter]()
		delete(p.bodies, s.Letter)
		return
	}
	first, header, body := s.HTTP()
	method, path, _ := strings.Cut(first, " ")
	ctx, cancel := context.WithCancel(context.Background())
	p.cancels[s.Letter] = cancel
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header = header
	if header.Get("Mcp-Session-Id") == "session-1" {
		r.Header.Set("Mcp-Session-Id", p.sessions[0])
	}
	if id := header.Get("Last-Event-Id"); id != "" {
		r.Header.Set("Last-Event-Id", p.EventID(id))
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		p.sessions = append(p.sessions, id)
	}
	p.responses[s.Letter], p.bodies[s.Letter] = response, bufio.NewReader(response.Body)
}

// check compares a section of the server: a whole response, or further events of one.
func (p *Player) check(s Section) {
	response, text := p.responses[s.Letter], s.Text
	if text[0] >= '1' && text[0] <= '9' { // a status
		status, header, body := s.HTTP()
		if response.Status[:3] != status || response.Header.Get("Content-Type") != header.Get("Content-Type") {
			p.t.Errorf("%s: %s, %s", s.Letter, response.Status, response.Header.Get("Content-Type"))
		}
		if (response.Header.Get("Mcp-Session-Id") != "") != (header.Get("Mcp-Session-Id") != "") {
			p.t.Errorf("%s: the id of a session, or none", s.Letter)
		}
		text = body
	}
	if response.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(p.bodies[s.Letter])
		p.compare(s.Letter, string(body), text)
		return
	}
	for want := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		got := ""
		for !strings.HasSuffix(got, "\n\n") {
			line, err := p.bodies[s.Letter].ReadString('\n')
			if err != nil {
				p.t.Fatalf("%s: %v instead of %s", s.Letter, err, want)
			}
			got += line
		}
		id := field(want, "id")
		if id != "" {
			id = p.EventID(id)
		}
		if field(got, "id") != id {
			p.t.Errorf("%s: id %q instead of %q", s.Letter, field(got, "id"), id)
		}
		p.compare(s.Letter, field(got, "data"), field(want, "data"))
	}
}

// field returns the value of a field of an event; "": there is none.
func field(event, name string) string {
	for line := range strings.SplitSeq(event, "\n") {
		if value, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// compare compares two texts, as JSON if the lesson's is that.
func (p *Player) compare(letter, got, want string) {
	if !strings.HasPrefix(want, "{") {
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			p.t.Errorf("%s: got %q, want %q", letter, got, want)
		}
		return
	}
	if a, b := Values(p.t, got, p.Missing), Values(p.t, want, p.Missing); !reflect.DeepEqual(a, b) {
		p.t.Errorf("%s: got\n%v\nwant\n%v", letter, a, b)
	}
}
