// SPDX-License-Identifier: 0BSD

package main

// How messages travel. Each message of the client is the body of a POST. The answer to a
// request is the body of the response: one JSON object, or a stream of events, of which the
// last one has the answer. In a session, a stream that breaks is continued by a GET:
//
//	request   sends a request, by post
//	read      reads the response: JSON, or a stream, by follow
//	follow    takes the messages of a stream, up to the answer
//	resume    if the stream breaks before the answer: a GET, whose response follow reads

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"
)

const (
	maxSize  = 4 << 20 // the most bytes that one message may have
	maxTries = 6       // how often the client comes back to a stream that brings nothing new
)

var pause = time.Second / 4 // before the first try to continue a stream; twice as long before each further one

// ---- POST, and DELETE ----

// request sends a request, and reads its result.
func (c *client) request(method string, params object, result any) error {
	meta := object{}
	if method == "tools/call" {
		meta["progressToken"] = "t" // the client wants reports; one call at a time needs one token
	}
	if c.version == modern {
		meta["io.modelcontextprotocol/protocolVersion"] = modern
		meta["io.modelcontextprotocol/clientInfo"] = clientInfo
		meta["io.modelcontextprotocol/clientCapabilities"] = c.capabilities()
	}
	if len(meta) > 0 {
		params["_meta"] = meta
	}
	c.lastID++
	name, _ := params["name"].(string)
	response, err := c.post(object{"jsonrpc": "2.0", "id": c.lastID, "method": method, "params": params}, method, name)
	if err != nil {
		return err
	}
	if method == "initialize" {
		c.session = response.Header.Get("Mcp-Session-Id") // all further requests repeat it
	}
	answer, err := c.read(response, strconv.Itoa(c.lastID))
	switch {
	case err != nil:
		return err
	case answer.Error != nil:
		answer.Error.Status = response.StatusCode
		return answer.Error
	case json.Unmarshal(answer.Result, result) != nil:
		return &failure{Status: response.StatusCode, Message: "the response holds no result of " + method}
	}
	return nil
}

// tell sends a message that is not answered.
func (c *client) tell(m object) error {
	response, err := c.post(m, "", "")
	if err == nil {
		response.Body.Close()
	}
	return err
}

// post sends a message. In the modern era the header repeats the method, and the name of the
// tool: a proxy can read them there, and the server compares them with the body.
func (c *client) post(m object, method, name string) (*http.Response, error) {
	body, err := json.Marshal(m)
	if err != nil {
		return nil, err
	}
	header := map[string]string{"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
	if c.version == modern {
		header["Mcp-Method"], header["Mcp-Name"] = method, name
	}
	return c.do(http.MethodPost, header, body)
}

// end ends the session. A server may refuse that: then it ends old sessions by itself.
func (c *client) end() {
	if c.session == "" {
		return
	}
	c.http.Timeout = patience
	if response, err := c.do(http.MethodDelete, map[string]string{}, nil); err == nil {
		response.Body.Close()
	}
}

// do makes one request of HTTP. A status other than 2xx is a failure.
func (c *client) do(method string, header map[string]string, body []byte) (*http.Response, error) {
	r, err := http.NewRequest(method, c.url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	header["MCP-Protocol-Version"], header["Mcp-Session-Id"] = c.version, c.session
	for name, value := range header {
		if value != "" {
			r.Header.Set(name, value)
		}
	}
	response, err := c.http.Do(r)
	if err != nil || response.StatusCode/100 == 2 {
		return response, err
	}
	defer response.Body.Close()
	text, _ := readAll(response)
	var m message
	if json.Unmarshal(text, &m) != nil || m.Error == nil {
		m.Error = &failure{Message: strings.TrimSpace(string(text))}
	}
	m.Error.Status = response.StatusCode
	return nil, m.Error
}

func readAll(response *http.Response) ([]byte, error) {
	return io.ReadAll(http.MaxBytesReader(nil, response.Body, maxSize))
}

// read returns the answer to the request with an id.
func (c *client) read(response *http.Response, id string) (m message, err error) {
	if isStream(response) {
		return c.follow(response, id)
	}
	defer response.Body.Close()
	text, err := readAll(response)
	if err != nil {
		return m, err
	}
	if json.Unmarshal(text, &m) != nil || !m.isAnswerTo(id) {
		return m, &failure{Status: response.StatusCode, Message: "the response holds no answer"}
	}
	return m, nil
}

// isAnswerTo tells whether m answers the request with an id. An error may have no id.
func (m message) isAnswerTo(id string) bool {
	hasNoID := m.ID == nil || string(m.ID) == "null"
	return m.Method == "" && (string(m.ID) == id || m.Error != nil && hasNoID)
}

// ---- Streams of events ----

func isStream(response *http.Response) bool {
	kind, _, _ := mime.ParseMediaType(response.Header.Get("Content-Type"))
	return kind == "text/event-stream"
}

// A position is how far the client has read a stream, over all responses that carry it.
type position struct {
	lastID string        // of the last event that has one
	retry  time.Duration // how long the server wants the client to wait before it comes back
	tries  int           // how often the client has come back since the last message
}

// follow reads a stream up to the answer, and takes the messages before it.
func (c *client) follow(response *http.Response, id string) (m message, err error) {
	defer func() { response.Body.Close() }()
	lines, at := newLines(response), position{}
	for {
		e, cut := readEvent(lines)
		if cut != nil {
			rest, err := c.resume(&at, cut)
			if err != nil {
				return message{}, err
			}
			response.Body.Close()
			response, lines = rest, newLines(rest)
			continue
		}
		at.lastID, at.retry = cmp.Or(e.id, at.lastID), cmp.Or(e.retry, at.retry)
		if len(e.data) == 0 { // the event has brought its id, and no message
			continue
		}
		at.tries = 0
		m = message{}
		if err := json.Unmarshal(e.data, &m); err != nil {
			return m, fmt.Errorf("an event holds no message: %w", err)
		}
		if m.isAnswerTo(id) {
			return m, nil
		}
		if err := c.take(m); err != nil {
			return m, err
		}
	}
}

// resume asks for the rest of a stream that broke, with a GET that names the last event. If
// there is no connection, it tries again.
func (c *client) resume(at *position, cut error) (*http.Response, error) {
	isKept := c.session != "" && at.lastID != ""   // without a session the server keeps nothing; without an id the GET names nothing
	comesAgain := errors.Is(cut, bufio.ErrTooLong) // an event that is too long
	for isKept && !comesAgain && at.tries < maxTries {
		time.Sleep(max(at.retry, pause<<at.tries))
		at.tries++
		response, err := c.do(http.MethodGet, map[string]string{"Accept": "text/event-stream", "Last-Event-ID": at.lastID}, nil)
		if err == nil && isStream(response) {
			return response, nil
		}
		if err == nil {
			response.Body.Close()
			err = &failure{Status: response.StatusCode, Message: "the response is no stream"}
		}
		cut = err
		if f, isFailure := errors.AsType[*failure](err); isFailure && f.Status/100 != 5 && f.Status != 429 { // the server is there, and has no such stream
			break
		}
	}
	return nil, fmt.Errorf("the stream has ended before the answer: %w", cut)
}

// An event is one unit of a stream: lines up to an empty one. Each line is a field.
type event struct {
	id    string
	data  []byte // a message; empty: the event has none
	retry time.Duration
}

func newLines(response *http.Response) *bufio.Scanner {
	lines := bufio.NewScanner(response.Body)
	lines.Buffer(nil, maxSize+16) // with the name of the field, and the end of the line
	return lines
}

// readEvent reads an event. If the stream ends in the middle of one, that one does not count.
func readEvent(lines *bufio.Scanner) (e event, err error) {
	for lines.Scan() {
		if lines.Text() == "" {
			return e, nil
		}
		name, value, _ := strings.Cut(lines.Text(), ":") // a comment begins with the colon, so its name is empty
		value = strings.TrimPrefix(value, " ")
		switch name {
		case "id":
			e.id = value
		case "data":
			if len(e.data)+len(value) > maxSize {
				return e, bufio.ErrTooLong
			}
			if len(e.data) > 0 {
				e.data = append(e.data, '\n')
			}
			e.data = append(e.data, value...)
		case "retry":
			if ms, err := strconv.ParseUint(value, 10, 16); err == nil { // a pause of more than a minute is ignored
				e.retry = time.Duration(ms) * time.Millisecond
			}
		}
	}
	return e, cmp.Or(lines.Err(), io.ErrUnexpectedEOF)
}
