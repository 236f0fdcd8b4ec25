// SPDX-License-Identifier: 0BSD

package main

// What reads a lesson of the course, and plays it to a server over HTTP.

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// section is what a side says in a lesson without a break.
type section struct {
	who    string // client, server or handshake
	letter string // of the exchange over HTTP; "": there is none. Behind handshake: the rest of the line
	text   string
}

// A line that is played is indented: "A> " begins what the client says in exchange A, "A< " what the server says. On stdio there is no letter.
var notation = regexp.MustCompile(`^    (?:([A-Z]?)([<>])(?: (.*))?|handshake (.*))$`)

// sections returns what a lesson plays. A line in parentheses is a section of its own.
func sections(t *testing.T, file string) (list []section) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	isMore := false // the line before belongs to the last section
	for line := range strings.Lines(string(text)) {
		m := notation.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if m == nil {
			isMore = false
			continue
		}
		s := section{map[string]string{">": "client", "<": "server", "": "handshake"}[m[2]], m[1] + m[4], m[3] + "\n"}
		if last := len(list) - 1; isMore && s.who == list[last].who && s.letter == list[last].letter && m[3] != "(ends)" {
			list[last].text += s.text
			continue
		}
		list, isMore = append(list, s), true
	}
	return list
}

// parts takes a section over HTTP apart: its first line, its header, and its body.
func (s section) parts() (first string, header http.Header, body string) {
	head, body, _ := strings.Cut(s.text, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	header = http.Header{}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ": ")
		header.Set(name, value)
	}
	return lines[0], header, body
}

// values reads one JSON value from each line, and leaves out the members with the names that are missing, on each level.
func values(t *testing.T, lines string, missing []string) (list []any) {
	for line := range strings.Lines(lines) {
		var value any
		if err := json.Unmarshal([]byte(line), &value); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		list = append(list, without(value, missing))
	}
	return list
}

func without(value any, missing []string) any {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			without(element, missing)
		}
	case map[string]any:
		for _, name := range missing {
			delete(value, name)
		}
		for _, member := range value {
			without(member, missing)
		}
	}
	return value
}

// ---- Playing ----

// player sends what the client of a lesson over HTTP sends, and compares what a server answers with what the lesson has.
type player struct {
	handler http.Handler // the server
	missing []string     // members of the lesson's messages that are not compared

	t         *testing.T
	url       string
	sessions  []string                  // ids; a lesson calls the first one session-1
	responses map[string]*http.Response // by the letter of the request
	bodies    map[string]*bufio.Reader
	cancels   map[string]context.CancelFunc
}

// play plays a lesson. It returns how many sections of the server were compared.
func (p *player) play(t *testing.T, file string) (compared int) {
	host := httptest.NewServer(p.handler)
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
	for _, s := range sections(t, file) {
		switch {
		case s.who == "handshake":
			p.handshake(strings.TrimPrefix(s.letter, "2025-11-25"))
		case s.text == "(ends)\n": // looked at in the end
		case strings.HasPrefix(s.text, "("): // the client hangs up, or its connection breaks
			p.cancels[s.letter]()
			delete(p.bodies, s.letter)
		case s.who == "client":
			p.send(s)
		default:
			p.check(s)
			compared++
		}
	}
	return compared
}

// handshake sends what lesson 05 shows as requests A and B.
func (p *player) handshake(capabilities string) {
	if capabilities = strings.TrimSpace(capabilities); capabilities == "" {
		capabilities = "{}"
	}
	const begin = "POST /mcp\nContent-Type: application/json\n"
	p.send(section{letter: "A", text: begin + "\n" + `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` +
		capabilities + `,"clientInfo":{"name":"student","version":"1.0"}}}`})
	p.send(section{letter: "B", text: begin + "Mcp-Session-Id: session-1\n\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}`})
	clear(p.bodies) // which no section shows
}

// send sends a request.
func (p *player) send(s section) {
	first, header, body := s.parts()
	method, path, _ := strings.Cut(first, " ")
	ctx, cancel := context.WithCancel(context.Background())
	p.cancels[s.letter] = cancel
	r, err := http.NewRequestWithContext(ctx, method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	r.Header = header
	if header.Get("Mcp-Session-Id") == "session-1" {
		r.Header.Set("Mcp-Session-Id", p.sessions[0])
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		p.t.Fatal(err)
	}
	if id := response.Header.Get("Mcp-Session-Id"); id != "" {
		p.sessions = append(p.sessions, id)
	}
	p.responses[s.letter], p.bodies[s.letter] = response, bufio.NewReader(response.Body)
}

// check compares a section of the server: a whole response, or further events of one.
func (p *player) check(s section) {
	response, text := p.responses[s.letter], s.text
	if text[0] >= '1' && text[0] <= '9' { // a status
		status, header, body := s.parts()
		if response.StatusCode == http.StatusNotFound { // our text is no JSON
			header.Set("Content-Type", "text/plain; charset=utf-8")
			body = "Session not found"
		}
		if response.Status[:3] != status || response.Header.Get("Content-Type") != header.Get("Content-Type") {
			p.t.Errorf("%s: %s, %s", s.letter, response.Status, response.Header.Get("Content-Type"))
		}
		if (response.Header.Get("Mcp-Session-Id") != "") != (header.Get("Mcp-Session-Id") != "") {
			p.t.Errorf("%s: the id of a session, or none", s.letter)
		}
		text = body
	}
	if response.Header.Get("Content-Type") != "text/event-stream" {
		body, _ := io.ReadAll(p.bodies[s.letter])
		p.compare(s.letter, string(body), text)
		return
	}
	for want := range strings.SplitSeq(strings.TrimSpace(text), "\n\n") {
		got := ""
		for !strings.HasSuffix(got, "\n\n") {
			line, err := p.bodies[s.letter].ReadString('\n')
			if err != nil {
				p.t.Fatalf("%s: %v instead of %s", s.letter, err, want)
			}
			got += line
		}
		if got, want := field(got, "id"), field(want, "id"); got != want {
			p.t.Errorf("%s: id %q instead of %q", s.letter, got, want)
		}
		p.compare(s.letter, field(got, "data"), field(want, "data"))
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
func (p *player) compare(letter, got, want string) {
	if !strings.HasPrefix(want, "{") {
		if strings.TrimSpace(got) != strings.TrimSpace(want) {
			p.t.Errorf("%s: got %q, want %q", letter, got, want)
		}
		return
	}
	if a, b := values(p.t, got, p.missing), values(p.t, want, p.missing); !reflect.DeepEqual(a, b) {
		p.t.Errorf("%s: got\n%v\nwant\n%v", letter, a, b)
	}
}
