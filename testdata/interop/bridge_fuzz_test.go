package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// FuzzBridge: a client and a server say anything to each other through mcpwire bridge.
//
// A bridge that stands in every conversation must not be the part that breaks it. What is valid has to come out at the other side, in the same
// order, however the lines are cut into writes; each request has to get one answer; and one bad line must not cost more than itself. The tests
// with real clients show none of the bad lines, and no odd cuts.
//
// A script is bytes of the client and of the server, in turns. Some bytes, which are not in UTF-8, are marks:
//
//	0xff  it is the other side's turn, when all that was said so far has arrived
//	0xfe  the line is cut here: the rest is another write
//	0xfd  the client hangs up
//	0xfc  the server hangs up
//
// One bridge serves many scripts, until one of them has hung up.
func FuzzBridge(f *testing.F) {
	for _, script := range bridgeScripts {
		f.Add([]byte(script))
	}
	var b *pairOfEnds
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 32<<10 {
			return
		}
		if b == nil {
			b = startPair(t)
		}
		b.t = t
		defer func() {
			if t.Failed() {
				b.kill()
			}
			if b.over {
				b = nil
			}
		}()
		b.play(script)
	})
}

const (
	longestLine = 4096 // bytes: -max-body of the bridge
	mostWaiting = 1024 // requests of the client

	call1   = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"b": [1.0, "\u00e9\/"]}}}` + "\n"
	answer1 = `{"jsonrpc":"2.0","id":1,"result":{"content":[ ],"n":1e3}}` + "\n"
)

var bridgeScripts = []string{
	// A call and its answer, with spellings that must stay.
	call1 + "\xff" + answer1,
	// The same, cut within a line and within a character.
	call1[:30] + "\xfe" + call1[30:] + "\xff" + `{"jsonrpc":"2.0","method":"notifications/x","params":{"t":"` + "\xfe\xc3\xfe\xa9" + `"}}` + "\r\n\xfe" + answer1,
	// The server asks while a call waits, and the client answers with an error.
	call1 + "\xff" + `{"jsonrpc":"2.0","id":1,"method":"elicitation/create","params":{}}` + "\n\xff" + `{"jsonrpc":"2.0","id":1,"error":{"code":-1,"message":"no","data":[null]}}` + "\n\xff" + answer1,
	// Lines that are no messages, on both sides, cost nothing else: the client is answered, what the server says is dropped.
	"\n \n{\n[]\n7\n[1,{}]\n{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}\n\x80\n" + call1 + "\xffListening…\n{}\n[]\n\x80\n" + answer1,
	// A batch with what is no message in it: the rest stays a batch.
	"[" + strings.TrimSpace(call1) + `,1,{"jsonrpc":"2.0","method":"n"}]` + "\n\xff[" + strings.TrimSpace(answer1) + `,2]` + "\n",
	// Answers twice, to nothing, and to null: each call gets one.
	call1 + "\xff" + answer1 + answer1 + `{"jsonrpc":"2.0","id":"1","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}` + "\n",
	// A request of the server that breaks the rules is answered.
	"\xff" + `{"id":0} `,
	// Responses that break the rules: their callers must not wait for ever.
	call1 + "\xff" + `{"jsonrpc":"2.0","id":1,"result":7}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"m"}` + "\n\xff" + `{"jsonrpc":"2.0","id":2,"result":{},"error":{}}` + "\n",
	// A call that is cancelled has no answer any more.
	call1 + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n\xff" + answer1,
	// Lines that are too long: that of the client is answered, that of the server may be the answer to any call.
	strings.Repeat("x", longestLine+1) + "\n" + call1 + "\xff" + strings.Repeat("y", longestLine+1) + "\n" + `{"jsonrpc":"2.0","method":"n"}` + "\n",
	// The client hangs up in the middle of a line that is a message, and one call stays open.
	`{"jsonrpc":"2.0","id":"l","method":"subscriptions/listen"}` + "\n" + strings.TrimSpace(call1) + "\xfd",
	// The server hangs up, and calls wait.
	call1 + `{"jsonrpc":"2.0","id":"a","method":"m"}` + "\n\xff" + `{"jsonrpc":"2.0","method":"n"}` + "\xfc",
}

// bridgeEnd is one end of a bridge: its client, or its server.
type bridgeEnd struct {
	name    string
	out     io.WriteCloser // to the bridge
	in      chan []byte    // lines of the bridge; closed at the end of them
	partial []byte         // what was said of a line that has no end yet
}

// pairOfEnds is a bridge with both its ends, and what it should be about.
type pairOfEnds struct {
	t              *testing.T
	cmd            *exec.Cmd
	client, server *bridgeEnd
	waiting        map[string]waitingRequest // requests of the client without an answer, by their id
	toClient       []expected                // what has yet to come out, in order
	toServer       []expected
	probes         int
	over           bool // the bridge has ended
}

type waitingRequest struct {
	id     wire.ID
	method string
}

// startPair starts a bridge whose server is two pipes with names, which the test holds.
func startPair(t *testing.T) *pairOfEnds {
	dir, err := os.MkdirTemp("", "bridge")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir) // as soon as they are open
	says, hears := filepath.Join(dir, "says"), filepath.Join(dir, "hears")
	for _, path := range []string{says, hears} {
		if err := syscall.Mkfifo(path, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b := &pairOfEnds{t: t, waiting: map[string]waitingRequest{}}
	b.cmd = exec.Command(mcpwire, "bridge", "-max-body", fmt.Sprint(longestLine), "sh", "-c", `exec 3<&0; cat <&3 >"$1" & exec cat "$0"`, says, hears)
	in, err := b.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := b.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	saying, err := os.OpenFile(says, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	hearing, err := os.Open(hears)
	if err != nil {
		t.Fatal(err)
	}
	b.client = &bridgeEnd{name: "client", out: in, in: linesOf(out)}
	b.server = &bridgeEnd{name: "server", out: saying, in: linesOf(hearing)}
	return b
}

// linesOf reads lines to their end.
func linesOf(r io.ReadCloser) chan []byte {
	lines := make(chan []byte, 1<<15) // more than a script can bring about: the test writes, and reads afterwards
	go func() {
		defer r.Close()
		defer close(lines)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadBytes('\n')
			if len(line) > 0 {
				lines <- line
			}
			if err != nil {
				return
			}
		}
	}()
	return lines
}

// kill ends a bridge that has failed.
func (b *pairOfEnds) kill() {
	b.over = true
	b.cmd.Process.Kill()
	b.server.out.Close()
	for range b.client.in { // or the goroutine that reads would stay
	}
	for range b.server.in {
	}
	b.cmd.Wait()
}

// play plays a script to its end. If no side has hung up, all that waits is answered, so that the next script finds nothing.
func (b *pairOfEnds) play(script []byte) {
	side, other := b.client, b.server
	for len(script) > 0 {
		n := indexOfMark(script)
		b.say(side, script[:n])
		if n == len(script) {
			break
		}
		mark := script[n]
		script = script[n+1:]
		switch mark {
		case 0xff:
			b.arrive()
			side, other = other, side
		case 0xfe:
			time.Sleep(50 * time.Microsecond) // or the reader may get both in one read
		case 0xfd:
			b.arrive()
			b.clientHangsUp()
			return
		case 0xfc:
			b.arrive()
			b.serverHangsUp()
			return
		}
	}
	b.arrive()
	b.endLine(b.client)
	b.endLine(b.server)
	b.probes++
	b.say(b.client, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":"probe %d","method":"ping"}`+"\n", b.probes))
	b.answerAll(func(waitingRequest) bool { return true })
	b.arrive()
}

// endLine ends a line that was begun.
func (b *pairOfEnds) endLine(side *bridgeEnd) {
	if len(side.partial) > 0 {
		b.say(side, []byte("\n"))
		b.arrive()
	}
}

// indexOfMark returns the index of the first mark, or the length of the script.
func indexOfMark(script []byte) int {
	if i := slices.IndexFunc(script, func(c byte) bool { return c >= 0xfc }); i >= 0 {
		return i
	}
	return len(script)
}

// say writes bytes to the bridge in one write, and notes what has to come out for the lines that they end. Behind the lines of the server
// comes one more: when it comes out, the bridge has read the others, though nothing may come out for them.
func (b *pairOfEnds) say(side *bridgeEnd, text []byte) {
	if i := bytes.LastIndexByte(text, '\n') + 1; side == b.server && i > 0 {
		text = slices.Concat(text[:i], []byte(`{"jsonrpc":"2.0","method":"notifications/read"}`+"\n"), text[i:])
	}
	for line := range bytes.Lines(text) {
		side.partial = append(side.partial, line...)
		if bytes.HasSuffix(line, []byte("\n")) {
			b.expectLine(side)
		}
	}
	if _, err := side.out.Write(text); err != nil {
		b.t.Fatalf("the %s: %v", side.name, err)
	}
}

// answerAll lets the server answer requests that wait. Then they wait no more.
func (b *pairOfEnds) answerAll(isMeant func(waitingRequest) bool) {
	b.arrive() // the requests, before the answers
	for _, request := range b.inOrder() {
		if isMeant(request) {
			b.say(b.server, fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%s,"result":{"answered":true}}`+"\n", request.id))
		}
	}
}

// inOrder returns the requests that wait, by their ids.
func (b *pairOfEnds) inOrder() (all []waitingRequest) {
	for _, key := range slices.Sorted(maps.Keys(b.waiting)) {
		all = append(all, b.waiting[key])
	}
	return all
}

// ---- What has to come out ----

// expected is a line that has to come out, or several in any order.
type expected struct {
	anyOrder []string // each as outline has it
}

// outline returns what has to stay of a payload: ids, methods, params, results and errors. White space between values may change.
func outline(batch bool, messages ...*wire.Message) string {
	var b strings.Builder
	fmt.Fprintf(&b, "batch %v", batch)
	for _, m := range messages {
		fmt.Fprintf(&b, "\nid %s, method %q, params %s, result %s", m.ID, m.Method, compact(m.Params), compact(m.Result))
		if m.Error != nil {
			fmt.Fprintf(&b, ", error %d %q %s", m.Error.Code, m.Error.Message, compact(m.Error.Data))
		}
	}
	return b.String()
}

func compact(text json.RawMessage) string {
	var b bytes.Buffer
	if len(text) > 0 && json.Compact(&b, text) != nil {
		return "damaged: " + string(text)
	}
	return b.String()
}

// refusal is the outline of an error that the bridge makes itself. Its text is its own affair, but for the beginning.
func refusal(id wire.ID, code int) string { return fmt.Sprintf("refused %s %d", id, code) }

// outlineOf is the outline of a line that has come out. Errors of the bridge are refusals.
func (b *pairOfEnds) outlineOf(line []byte) string {
	in := wire.Decode(line)
	if m := in.Messages[0]; !in.Batch && m.Error != nil && strings.HasPrefix(m.Error.Message, "mcpwire bridge: ") {
		return refusal(m.ID, m.Error.Code)
	}
	for _, m := range in.Messages {
		if m.Kind() == wire.Invalid || isBroken(m) {
			b.t.Errorf("no valid message comes out: %s", line)
		}
	}
	return outline(in.Batch, in.Messages...)
}

// isBroken reports whether a response breaks the rules.
func isBroken(m *wire.Message) bool {
	return m.Kind() == wire.Response && m.Result == nil && m.Error == nil
}

// tooLarge is the answer to a line that is too long.
var tooLarge = wire.NewResponse(wire.ID{}, nil, &wire.Error{Code: wire.CodeInvalidRequest, Message: fmt.Sprintf("Invalid request: message too large: more than %d bytes", longestLine)})

// expectLine notes what has to come out for the line that one side has said.
func (b *pairOfEnds) expectLine(side *bridgeEnd) {
	line := side.partial
	side.partial = nil
	text := bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))
	switch {
	case len(text) > longestLine && side == b.client:
		b.toClient = append(b.toClient, expected{[]string{outline(false, tooLarge)}})
	case len(text) > longestLine:
		b.expectFailures()
	case len(bytes.Trim(line, " \t\r\n")) == 0:
	case side == b.client:
		b.expectAtServer(wire.Decode(line))
	default:
		b.expectAtClient(wire.Decode(line))
	}
}

// expectAtServer notes what has to become of what the client has said.
func (b *pairOfEnds) expectAtServer(in wire.Payload) {
	var passed []*wire.Message
	for _, m := range in.Messages {
		switch {
		case m.Kind() == wire.Invalid: // as any server would answer it
			b.toClient = append(b.toClient, expected{[]string{outline(false, m)}})
			continue
		case m.Kind() == wire.Request && (len(b.waiting) >= mostWaiting || b.waiting[m.ID.String()] != (waitingRequest{})):
			b.toClient = append(b.toClient, expected{[]string{refusal(m.ID, wire.CodeInternalError)}})
			continue
		case m.Kind() == wire.Request:
			b.waiting[m.ID.String()] = waitingRequest{m.ID, m.Method}
		case m.Method == "notifications/cancelled":
			var params wire.CancelledParams
			_ = wire.Bind(m.Params, &params)
			delete(b.waiting, string(params.RequestID))
		}
		passed = append(passed, m)
	}
	b.toServer = appendPassed(b.toServer, in.Batch, passed)
}

// expectAtClient notes what has to become of what the server has said.
func (b *pairOfEnds) expectAtClient(in wire.Payload) {
	var passed []*wire.Message
	for _, m := range in.Messages {
		if m.Kind() == wire.Invalid {
			continue
		}
		if m.Kind() == wire.Response && m.ID != (wire.ID{}) {
			id := m.ID.String()
			_, isWaiting := b.waiting[id]
			delete(b.waiting, id)
			if !isWaiting {
				continue
			}
		}
		passed = append(passed, m)
	}
	b.toClient = appendPassed(b.toClient, in.Batch, passed)
}

// appendPassed adds a payload that passes. A response that breaks the rules becomes an error.
func appendPassed(all []expected, batch bool, passed []*wire.Message) []expected {
	if len(passed) == 0 {
		return all
	}
	for i, m := range passed {
		if isBroken(m) {
			passed[i] = wire.NewResponse(m.ID, nil, errors.New("mcpwire bridge: the response is not valid JSON-RPC"))
		}
	}
	text := outline(batch, passed...)
	if m := passed[0]; !batch && m.Error != nil && strings.HasPrefix(m.Error.Message, "mcpwire bridge: ") {
		text = refusal(m.ID, m.Error.Code)
	}
	return append(all, expected{[]string{text}})
}

// expectFailures notes that each request that waits has to fail.
func (b *pairOfEnds) expectFailures() {
	var all []string
	for _, request := range b.inOrder() {
		all = append(all, refusal(request.id, wire.CodeInternalError))
	}
	clear(b.waiting)
	if len(all) > 0 {
		b.toClient = append(b.toClient, expected{all})
	}
}

// arrive waits until all has come out that should, and compares it.
func (b *pairOfEnds) arrive() {
	b.arriveAt(b.server, b.toServer)
	b.arriveAt(b.client, b.toClient)
	b.toServer, b.toClient = nil, nil
}

func (b *pairOfEnds) arriveAt(side *bridgeEnd, all []expected) {
	for _, next := range all {
		for wanted := next.anyOrder; len(wanted) > 0; {
			line, ok := b.next(side)
			if !ok {
				b.t.Fatalf("the %s gets nothing more, and not %q", side.name, wanted)
			}
			got := b.outlineOf(line)
			i := slices.Index(wanted, got)
			if i < 0 && side == b.server && isRefusal(line) {
				continue
			}
			if i < 0 {
				b.t.Fatalf("the %s gets\n%s\nwanted is one of\n%s", side.name, got, strings.Join(wanted, "\n"))
			}
			wanted = slices.Delete(wanted, i, i+1)
		}
	}
}

// isRefusal reports whether a line is what the bridge may answer to the server when that has sent an invalid request.
func isRefusal(line []byte) bool {
	m := wire.Decode(line).Messages[0]
	return m.Error != nil && m.Error.Code == wire.CodeInvalidRequest
}

// next returns the next line that comes out; false: there is none any more.
func (b *pairOfEnds) next(side *bridgeEnd) (line []byte, ok bool) {
	select {
	case line, ok = <-side.in:
	case <-time.After(limit / 3):
		b.t.Errorf("the %s waits", side.name)
	}
	return line, ok
}

// ---- The end ----

// clientHangsUp ends the bridge from the client's side. A line need not have an end then. What the server answers in time still comes out.
func (b *pairOfEnds) clientHangsUp() {
	b.endLine(b.server)
	b.client.out.Close()
	if len(b.client.partial) > 0 {
		b.expectLine(b.client)
	}
	b.answerAll(func(r waitingRequest) bool { return r.method != "subscriptions/listen" })
	b.expectFailures()
	b.ends(0)
}

// serverHangsUp ends the bridge from the server's side. What waits fails.
func (b *pairOfEnds) serverHangsUp() {
	b.endLine(b.client)
	b.server.out.Close()
	if len(b.server.partial) > 0 {
		b.expectLine(b.server)
	}
	b.expectFailures()
	b.ends(1)
}

// ends checks that the bridge ends in time, with a status, when all that should has come out, and that nothing else has.
func (b *pairOfEnds) ends(status int) {
	late := time.AfterFunc(limit/2, func() { b.cmd.Process.Kill() })
	defer late.Stop()
	b.over = true
	b.arriveAt(b.server, b.toServer)
	b.getsNoMore(b.server)
	b.server.out.Close() // as a server does when its input ends
	b.arriveAt(b.client, b.toClient)
	b.getsNoMore(b.client)
	b.client.out.Close()
	b.cmd.Wait()
	if got := b.cmd.ProcessState.ExitCode(); got != status {
		b.t.Errorf("exit status %d, want %d", got, status)
	}
}

// getsNoMore waits for the end of what comes out at one side.
func (b *pairOfEnds) getsNoMore(side *bridgeEnd) {
	for line := range side.in {
		if side != b.server || !isRefusal(line) {
			b.t.Errorf("the %s gets %s", side.name, line)
		}
	}
}
