package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
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
// order, however the lines are cut into writes; each request has to get one answer; and one bad line must not cost more than itself.
//
// A script is bytes of the client and of the server, in turns. Some bytes, which are not in UTF-8, are marks:
//
//	0xff  it is the other side's turn, when all that was said so far has arrived
//	0xfe  the line is cut here: the rest is another write
//	0xfd  the server answers what it was asked, and the client hangs up
//	0xfc  the server hangs up
//
// One bridge serves many scripts, until one of them has hung up.
func FuzzBridge(f *testing.F) {
	for _, script := range bridgeScripts {
		f.Add([]byte(script))
	}
	var b *pairOfEnds
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 32<<10 { // more requests than may wait
			return
		}
		if b == nil || b.over {
			b = startPair(t)
		}
		b.T = t
		b.over = true // unless it comes to its end
		defer func() {
			if b.over {
				b.cmd.Process.Kill()
				b.cmd.Wait()
			}
		}()
		b.play(script)
	})
}

const (
	longestLine = 4096 // bytes: -max-body of the bridge

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
	"\n \n\v\n{\n[]\n7\n[1,{}]\n{\"jsonrpc\":\"2.0\",\"id\":null,\"method\":\"m\"}\n\x80\n" + call1 + "\xffListening…\n{}\n[]\n\x80\n" + answer1,
	// A batch with what is no message in it: the rest stays a batch.
	"[" + strings.TrimSpace(call1) + `,1,{"jsonrpc":"2.0","method":"n"}]` + "\n\xff[" + strings.TrimSpace(answer1) + `,2]` + "\n",
	// Answers twice, to nothing, and to null: each call gets one.
	call1 + "\xff" + answer1 + answer1 + `{"jsonrpc":"2.0","id":"1","result":{}}` + "\n" + `{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}` + "\n",
	// An error without an id that breaks the rules, too, is dropped.
	"\xff" + `{"jsonrpc0":"2.0","id":null,"error":{"code":-32700,"message":"?"}}` + "\n",
	// A request of the server that breaks the rules is answered.
	"\xff" + `{"id":0} `,
	// Responses that break the rules: their callers must not wait for ever.
	call1 + "\xff" + `{"jsonrpc":"2.0","id":1,"result":7}` + "\n" + `{"jsonrpc":"2.0","id":2,"method":"m"}` + "\n\xff" + `{"jsonrpc":"2.0","id":2,"result":{},"error":{}}` + "\n",
	// A call that is cancelled has no answer any more.
	call1 + `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}` + "\n\xff" + answer1,
	// A line of the server that is too long may be the answer to any call.
	call1 + "\xff" + strings.Repeat("y", longestLine+1) + "\n" + `{"jsonrpc":"2.0","method":"n"}` + "\n",
	// The client hangs up, and a call waits.
	call1 + "\xfd",
	// The server hangs up, and calls wait.
	call1 + `{"jsonrpc":"2.0","id":"a","method":"m"}` + "\n\xff" + `{"jsonrpc":"2.0","method":"n"}` + "\xfc",
}

// bridgeEnd is one end of a bridge: its client, or its server.
type bridgeEnd struct {
	name string
	out  io.WriteCloser // to the bridge
	in   chan []byte    // lines of the bridge; closed at the end of them
	said []*wire.Message
	got  []*wire.Message
}

// pairOfEnds is a bridge with both its ends.
type pairOfEnds struct {
	*testing.T
	cmd            *exec.Cmd
	client, server *bridgeEnd
	turns          int
	over           bool // the bridge has ended, or failed
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
	to := bridged("-max-body", fmt.Sprint(longestLine), "sh", "-c", `exec 3<&0; cat <&3 >"$1" & exec cat "$0"`, says, hears)
	c := newLines(t, to...)
	if err := c.Start(); err != nil {
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
	client := &bridgeEnd{name: "client", out: c.in, in: linesOf(c.out)}
	server := &bridgeEnd{name: "server", out: saying, in: linesOf(hearing)}
	return &pairOfEnds{cmd: c.Cmd, client: client, server: server}
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

// play plays a script to its end, and checks what has become of it.
func (b *pairOfEnds) play(script []byte) {
	b.client.said, b.client.got, b.server.said, b.server.got = nil, nil, nil, nil
	end := byte(0)
	if i := slices.IndexFunc(script, func(c byte) bool { return c == 0xfc || c == 0xfd }); i >= 0 {
		script, end = script[:i], script[i]
	}
	side, other := b.client, b.server
	for turn := range bytes.SplitSeq(script, []byte{0xff}) {
		b.say(side, other, turn)
		side, other = other, side
	}
	if end == 0xfc {
		b.server.out.Close()
		b.toTheEnd(b.client)
		b.client.out.Close()
		b.toTheEnd(b.server)
		exits(b.T, b.cmd, 1, limit/3)
	} else {
		var answers []byte
		for _, m := range b.server.got {
			if m.Kind() == wire.Request {
				answers = fmt.Appendf(answers, `{"jsonrpc":"2.0","id":%s,"result":{"answered":true}}`+"\n", m.ID)
			}
		}
		b.say(b.server, b.client, answers)
	}
	if end == 0xfd {
		b.client.out.Close()
		b.toTheEnd(b.server)
		b.server.out.Close() // as a server does when its input ends
		b.toTheEnd(b.client)
		exits(b.T, b.cmd, 0, limit/3)
	}
	b.checkRequests()
	b.checkServer()
	b.checkAnswers()
	b.over = end != 0 || b.Failed()
}

// say writes bytes to the bridge, and waits until they have arrived: one more line comes out behind them.
func (b *pairOfEnds) say(side, other *bridgeEnd, text []byte) {
	b.turns++
	last := fmt.Sprintf("notifications/turn %d", b.turns)
	text = fmt.Appendf(text, "\n"+`{"jsonrpc":"2.0","method":%q}`+"\n", last)
	for part := range bytes.SplitSeq(text, []byte{0xfe}) {
		if _, err := side.out.Write(part); err != nil {
			b.Fatalf("the %s: %v", side.name, err)
		}
		time.Sleep(50 * time.Microsecond) // or the reader may get two parts in one read
	}
	for line := range bytes.Lines(bytes.ReplaceAll(text, []byte{0xfe}, nil)) {
		isTooLong := len(bytes.TrimRight(line, "\r\n")) > longestLine
		if isTooLong && side == b.client {
			b.Skip("the case \"what is no message\" has the answer to it")
		}
		if !isTooLong && len(bytes.Trim(line, " \t\r\n")) > 0 {
			side.said = append(side.said, wire.Decode(line).Messages...)
		}
	}
	for {
		if m := b.next(other); m == nil {
			b.Fatalf("the %s waits for %s", other.name, last)
		} else if m.Method == last {
			return
		}
	}
}

// next takes what comes out in the next line, and returns the first message of it; nil: there is nothing any more.
func (b *pairOfEnds) next(side *bridgeEnd) *wire.Message {
	select {
	case line, ok := <-side.in:
		if !ok {
			return nil
		}
		messages := wire.Decode(line).Messages
		for _, m := range messages {
			if m.Kind() == wire.Invalid || isBroken(m) {
				b.Errorf("the %s gets no valid message: %s", side.name, line)
			}
		}
		side.got = append(side.got, messages...)
		return messages[0]
	case <-time.After(limit / 3):
		b.Fatalf("the %s waits", side.name)
		return nil
	}
}

func (b *pairOfEnds) toTheEnd(side *bridgeEnd) {
	for b.next(side) != nil {
	}
}

// ---- What has to come out ----

// outline returns what has to stay of a message. White space between values may change.
func outline(m *wire.Message) string {
	text := fmt.Sprintf("id %s, method %q, params %s, result %s", m.ID, m.Method, compact(m.Params), compact(m.Result))
	if m.Error != nil {
		text += fmt.Sprintf(", error %d %q %s", m.Error.Code, m.Error.Message, compact(m.Error.Data))
	}
	return text
}

func compact(text json.RawMessage) string {
	var b bytes.Buffer
	if len(text) > 0 && json.Compact(&b, text) != nil {
		return "damaged: " + string(text)
	}
	return b.String()
}

// outlines returns those of the messages that are meant, in their order.
func outlines(messages []*wire.Message, isMeant func(*wire.Message) bool) (all []string) {
	for _, m := range messages {
		if isMeant(m) {
			all = append(all, outline(m))
		}
	}
	return all
}

// isBroken reports whether a response breaks the rules.
func isBroken(m *wire.Message) bool {
	return m.Kind() == wire.Response && m.Result == nil && m.Error == nil
}

// isOfBridge reports whether the bridge itself has made an error.
func isOfBridge(m *wire.Message) bool {
	return m.Error != nil && strings.HasPrefix(m.Error.Message, "mcpwire bridge: ")
}

// checkRequests: what the client says comes to the server, but for what is not valid, and for requests that are refused.
func (b *pairOfEnds) checkRequests() {
	refused := map[string]int{}
	for _, m := range b.client.got {
		if isOfBridge(m) && strings.Contains(m.Error.Message, "the id is that of another request") {
			refused[m.ID.String()]++
		}
	}
	got := outlines(b.server.got, func(m *wire.Message) bool {
		return !isOfBridge(m) && (m.Error == nil || m.Error.Code != wire.CodeInvalidRequest) // which a response that is not valid becomes
	})
	for _, m := range b.client.said {
		switch {
		case m.Kind() == wire.Invalid || isBroken(m) || m.Error != nil && m.Error.Code == wire.CodeInvalidRequest:
		case len(got) > 0 && got[0] == outline(m):
			got = got[1:]
		case m.Kind() == wire.Request && refused[m.ID.String()] > 0:
			refused[m.ID.String()]--
		default:
			b.Fatalf("the server does not get %s; next is %.1q", outline(m), got)
		}
	}
	if len(got) > 0 {
		b.Errorf("the server gets %q", got)
	}
}

// checkServer: what the server says comes to the client. Answers are for checkAnswers.
func (b *pairOfEnds) checkServer() {
	isMeant := func(m *wire.Message) bool { return m.Kind() == wire.Request || m.Kind() == wire.Notification }
	if got, want := outlines(b.client.got, isMeant), outlines(b.server.said, isMeant); !slices.Equal(got, want) {
		b.Errorf("the client gets\n%q\nwant\n%q", got, want)
	}
}

// checkAnswers: each request has one answer, that of the server or an error of the bridge, and so has what is not valid. One that is
// cancelled may have none.
func (b *pairOfEnds) checkAnswers() {
	said := outlines(b.server.said, func(m *wire.Message) bool { return m.Kind() == wire.Response })
	want, cancelled := map[string]int{}, map[string]int{}
	for _, m := range b.client.said {
		if m.Kind() == wire.Request || m.Kind() == wire.Invalid {
			want[m.ID.String()]++
		}
		if m.Method == "notifications/cancelled" {
			var params wire.CancelledParams
			_ = wire.Bind(m.Params, &params)
			cancelled[string(params.RequestID)]++
		}
	}
	for _, m := range b.server.said {
		if m.Kind() == wire.Response && m.ID == (wire.ID{}) && !isBroken(m) {
			want[m.ID.String()]++ // it answers nothing, and may tell the client why
		}
	}
	for _, m := range b.client.got {
		if m.Kind() != wire.Response {
			continue
		}
		want[m.ID.String()]--
		isRefusal := m.Error != nil && (m.Error.Code == wire.CodeParseError || m.Error.Code == wire.CodeInvalidRequest)
		if !isOfBridge(m) && !isRefusal && !slices.Contains(said, outline(m)) {
			b.Errorf("nobody has said %s", outline(m))
		}
	}
	for id, missing := range want {
		if missing < 0 || missing > cancelled[id] {
			b.Errorf("the id %s has %d answers too few", id, missing)
		}
	}
}
