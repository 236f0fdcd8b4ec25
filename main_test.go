package main

// Most of what is tested stands in golden files: testdata/cases/README.md lists them, and go test -run 'Transcripts|Cases' -v prints their titles.
// Here is the rest: what needs a handler, a clock, a crowd, or a look inside.
//
//	Examples      they document the package; whole programs are in testdata/examples
//	jsonrpc.go    decoding, encoding, ids; calls, cancellation, bounds; FuzzDecode
//	stdio.go      lines, the end of input; FuzzServe
//	sse.go        events in and out, streams that are resumed; FuzzReadEvents
//	session.go    the lifecycle, 2026-07-28, questions, subscriptions, the Client
//	http.go       guard, CORS, authentication; requests, sessions, streams, the transport of 2024-11-05; FuzzHTTP; the Client at URLs; FuzzClient
//	main.go       golden files; traces, the demo
//	Golden files  how they are replayed
//	Scripts       what the fuzzers of connections say, and when
//	Helpers       what all of these use
//	The library   as a program uses it: through exported names
//
// A child process is this test binary again, told by MCPWIRE_CHILD what to be. What needs many processes, long load, other implementations
// or the built program is in testdata/interop, and so are those of the project as a whole (project). testdata/requirements.tsv says which test
// shows what.
//
//	go test -run 'Transcripts|Cases' -update .   rewrites what the tested end says in the golden files
//	go test -run Transcripts -target URL .       compares a server there with the lessons
//	go test -run '^$' -fuzz '^FuzzHTTP$' -fuzztime 15m -fuzzminimizetime 20x .
//
// (Goroutines make coverage vary, so that a fuzzer would take most of its time to minimise what is new.) testdata/fuzz holds what was worth
// keeping.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"iter"
	"log"
	"log/slog"
	"maps"
	"math/big"
	"mime"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

func TestMain(m *testing.M) {
	if role := os.Getenv("MCPWIRE_CHILD"); role != "" {
		os.Exit(beChild(role))
	}
	flag.Parse()
	if parallel := flag.Lookup("test.parallel"); parallel.Value.String() == parallel.DefValue {
		_ = parallel.Value.Set("6") // the cases that start processes wait for most of the time
	}
	os.Exit(m.Run())
}

// ======== Examples that document the package ========

func Example() {
	server := &Server{Info: Implementation{Name: "hello", Version: "1"}}
	type arguments struct {
		Name string `json:"name"`
	}
	schema := json.RawMessage(`{"type":"object","required":["name"],"properties":{"name":{"type":"string"}}}`)
	AddTool(server, Tool{Name: "greet", InputSchema: schema}, func(_ context.Context, _ *Exchange, args arguments) (any, error) {
		return "Hello, " + args.Name, nil
	})
	ours, theirs := Pipe() // in place of StdioConn and CommandDialer
	go Serve(context.Background(), theirs, server, slog.Default())

	client := &Client{Info: Implementation{Name: "hello", Version: "1"}}
	if err := client.Connect(context.Background(), DialerFunc(func(context.Context) (Conn, error) { return ours, nil })); err != nil {
		panic(err)
	}
	defer client.Close()
	var result ToolResult
	err := client.Call(context.Background(), "tools/call", CallToolParams{Name: "greet", Arguments: arguments{"Ada"}}, &result)
	fmt.Println(client.Server().Version, result.Text(), err)
	// Output: 2026-07-28 Hello, Ada <nil>
}

// What is not a message decodes to the error that it deserves.
func ExampleDecode() {
	for _, line := range []string{`{"jsonrpc":"2.0","id":1,"method":"ping"}`, `{"jsonrpc":"2.0","id":2}`, `[]`, `Content-Length: 52`} {
		in := Decode([]byte(line))
		fmt.Println(in.Messages[0].Kind() == Request, string(in.Append(nil)))
	}
	// Output:
	// true {"jsonrpc":"2.0","id":1,"method":"ping"}
	// false {"jsonrpc":"2.0","id":2,"error":{"code":-32600,"message":"Invalid request: method must be a non-empty string"}}
	// false {"jsonrpc":"2.0","error":{"code":-32600,"message":"Invalid request: a batch has 1 to 1024 messages"}}
	// false {"jsonrpc":"2.0","error":{"code":-32700,"message":"Parse error: not JSON"}}
}

// Unlike json.Unmarshal, Bind accepts no other spelling of a name, no name that appears twice, and not that a required member is missing.
func ExampleBind() {
	for _, arguments := range []string{`{"city":"Oslo"}`, `{"city":"Oslo","days":3.0}`, `{"City":"Rome"}`, `{"city":"Bern","city":"Rome"}`, `{"city":"Bern","days":"3"}`} {
		args := struct {
			City string `json:"city"`
			Days int    `json:"days,omitempty"` // omitempty: it may be missing
		}{Days: 1}
		err := Bind(json.RawMessage(arguments), &args)
		fmt.Printf("%q %d %v\n", args.City, args.Days, err)
	}
	// Output:
	// "Oslo" 1 <nil>
	// "Oslo" 3 <nil>
	// "" 1 Missing required member: 'city'
	// "Bern" 1 'city' appears twice
	// "Bern" 1 'days' must be an integer
}

// JSON-RPC without MCP: both ends serve requests, a batch is answered with a batch, and whoever cancels a call sends $/cancelRequest.
func ExampleServeConn() {
	ours, theirs := Pipe()
	waiting, cancelled := make(chan struct{}), make(chan struct{})
	double := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		if x.Request.Method == "wait" {
			close(waiting)
			<-ctx.Done()
			close(cancelled)
			return nil, ctx.Err()
		}
		var p struct {
			N int `json:"n"`
		}
		if err := x.Bind(&p); err != nil {
			return nil, err
		}
		return map[string]int{"n": 2 * p.N}, nil
	})
	go ServeConn(context.Background(), theirs, double, nil)
	peer := OpenConn(context.Background(), ours, double, nil)
	defer peer.Close()
	var result struct{ N int }
	err := peer.Call(context.Background(), "double", map[string]int{"n": 21}, &result)
	fmt.Println(result.N, err, peer.Call(context.Background(), "double", nil, nil))
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		<-waiting
		cancel()
	}()
	err = peer.Call(ctx, "wait", nil, nil)
	<-cancelled
	fmt.Println(err)
	batch := `[{"jsonrpc":"2.0","id":1,"method":"double","params":{"n":1}},{"jsonrpc":"2.0","method":"double"}]`
	c := NewLineConn(strings.NewReader(batch), os.Stdout, 1000, func() error { return nil })
	_ = ServeConn(context.Background(), c, double, nil)
	// Output:
	// 42 <nil> Invalid params: Missing required param: 'n' (-32602)
	// context canceled
	// [{"jsonrpc":"2.0","id":1,"result":{"n":2}}]
}

// A comment, an event of two lines, an event that only gives an id, and one that the end cuts off.
func ExampleReadEvents() {
	stream := ": keep-alive\n\nid: 7\ndata: one\ndata: two\n\nid: 8\n\ndata: thr"
	for e, err := range ReadEvents(strings.NewReader(stream), 1<<20) {
		fmt.Printf("%s %s %q %v\n", e.Type, e.ID, e.Data, err)
	}
	// Output:
	// message 7 "one\ntwo" <nil>
	// message 8 "" <nil>
}

// ======== jsonrpc.go ========

// What a peer has sent makes no error text of its own length: neither for a log, nor for the answer that repeats it.
func TestErrorTextsAreCut(t *testing.T) {
	long := strings.Repeat("é", 10_000)
	for want, err := range map[int]error{
		4000 + len(": ") + 4000 + len(" (7)"):    &Error{Code: 7, Message: long, Data: json.RawMessage(`"x` + long + `"`)},
		len("Invalid params:  (-32602)") + 500:   InvalidParams("%s", long),
		len("Method not found:  (-32601)") + 200: MethodNotFound(long),
		4000 + len(" (8)"):                       &Error{Code: 8, Message: long, Data: json.RawMessage(`"é"`)}, // the message repeats the data
	} {
		if got := utf8.RuneCountInString(err.Error()); got != want {
			t.Errorf("%d characters, want %d: %.40s", got, want, err)
		}
	}
	if n := len(brief(strings.Repeat("x", 1<<20))); n > maxLogged+len("…") {
		t.Error(n, "bytes are logged")
	}
}

// A cancellation against an answer that is on its way: at most one answer, at any timing, and the next request works.
func TestCancelRaces(t *testing.T) {
	said := []string{initializeLine("2025-11-25")}
	for i := range 1000 {
		said = append(said, toolCall(i, "count", fmt.Sprintf(`{"n":%d}`, i%3)),
			fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`, i))
	}
	checkLines(t, []byte(strings.Join(said, "\n")), []byte(strings.Join(converse(t, newDemo(), said...), "\n")))
}

// 1,024 requests are served at once, and one more is refused. Their answers come at the same time, and each is a line of its own.
func TestInFlight(t *testing.T) {
	var said []string
	for i := range maxInFlight + 1 {
		said = append(said, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
	}
	result := `{"text":"` + strings.Repeat("x", 1<<10) + `"}`
	h := HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
		<-x.Ending // all have been read
		return json.RawMessage(result), nil
	})
	answered, refused := map[string]bool{}, 0
	for _, line := range converse(t, h, said...) {
		switch m := Decode([]byte(line)).Messages[0]; {
		case string(m.Result) == result:
			answered[m.ID.String()] = true
		case strings.HasPrefix(line, `{"jsonrpc":"2.0","id":1024,"error":{"code":-32603,`):
			refused++
		default:
			t.Errorf("%.200s", line)
		}
	}
	if len(answered) != maxInFlight || refused != 1 {
		t.Errorf("%d answered, %d refused", len(answered), refused)
	}
}

// The payloads that are being served have maxHeld bytes at most. A payload that is alone may have more, and small ones are not counted.
func TestHeld(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := Pipe()
		returns := make(chan struct{})
		h := HandlerFunc(func(context.Context, *Exchange) (any, error) { <-returns; return nil, nil })
		l := newLoop(t.Context(), ours, h, plainProtocol{}, nil, false)
		serve := func(id, size int) {
			in := Decode(fmt.Appendf(nil, `{"jsonrpc":"2.0","id":%d,"method":"m"}`, id))
			in.raw = make([]byte, size)
			l.peer.enterReader()
			go l.takeIn(in)
			synctest.Wait()
		}
		check := func(want string) {
			if in, err := theirs.Read(); err != nil || string(in.raw) != want {
				t.Errorf("%q %v, want %s", in.raw, err, want)
			}
			synctest.Wait()
		}
		const refused = `,"error":{"code":-32603,"message":"Too many requests in flight"}}`
		serve(1, maxHeld+1)
		serve(2, countFrom+1)
		check(`{"jsonrpc":"2.0","id":2` + refused)
		returns <- struct{}{}
		check(`{"jsonrpc":"2.0","id":1,"result":{}}`)
		serve(3, maxHeld-2*countFrom)
		serve(4, 2*countFrom)
		serve(6, countFrom)
		serve(5, countFrom+1)
		check(`{"jsonrpc":"2.0","id":5` + refused)
		close(returns)
		synctest.Wait()
		l.peer.Close()
	})
}

// The results that wait until the peer reads have maxHeld bytes at most, also those of batches that are not over. One that is alone may have more.
func TestUnread(t *testing.T) {
	for _, batched := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			large := append(append([]byte(`{"a":"`), make([]byte, maxHeld/2)...), `"}`...)
			writes, rest := make(chan Payload), make(chan struct{})
			l := newLoop(t.Context(), silentConn{writes, make(chan struct{})}, HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
				if x.Request.Method == "wait" {
					<-rest
					return nil, nil
				}
				return encoded(large), nil
			}), plainProtocol{}, nil, false)
			for id := range 3 {
				line := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, id)
				if batched {
					line = fmt.Sprintf(`[%s,{"jsonrpc":"2.0","id":%d,"method":"wait"}]`, line, 10+id)
				}
				l.peer.enterReader()
				go l.takeIn(Decode([]byte(line)))
				synctest.Wait()
			}
			close(rest)
			results := 0
			for range 3 {
				if m := (<-writes).Messages[0]; m.Result != nil {
					results++
				} else if m.Error != errNoMemory {
					t.Error(m.Error)
				}
			}
			synctest.Wait()
			if results != 1 || l.used.taken != 0 {
				t.Errorf("%d results were written, %d bytes are in use", results, l.used.taken)
			}
			l.peer.Close()
		})
	}
}

// silentConn is a Conn whose peer says nothing. What is written can be taken from a channel; nil: nothing is taken.
type silentConn struct {
	writes chan Payload
	closed chan struct{}
}

func (c silentConn) Read() (Payload, error) { <-c.closed; return Payload{}, io.EOF }
func (c silentConn) Close() error           { close(c.closed); return nil }
func (c silentConn) Write(ctx context.Context, p Payload) error {
	select {
	case c.writes <- p:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-c.closed:
		return ErrClosed
	}
}

// The contexts of all requests end with the conversation: one that has not had its turn is not handled, but answered. A request that comes
// after the end gets no response. Close does not hide why the conversation has ended before.
func TestReasonOfTheEnd(t *testing.T) {
	p := newPeer(t.Context(), nil, plainProtocol{}, nil)
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) {
		t.Error("the handler runs after the end")
		return nil, nil
	})
	a := p.dispatch(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)), Exchange{handler: h})
	p.endContexts(errors.New("killed"))
	var answers []*Error
	a.serve(func(m *Message) { answers = append(answers, m.Error) })
	a.release()
	if !slices.Equal(answers, []*Error{errStopping}) {
		t.Error(answers)
	}
	if p.dispatch(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","id":2,"method":"m"}`)), Exchange{handler: h}) != nil {
		t.Error("a request is registered after the end")
	}
	_ = p.Close()
	if err := p.Call(t.Context(), "m", nil, nil); !errors.Is(err, ErrClosed) || !strings.Contains(err.Error(), "killed") {
		t.Error(err)
	}
}

// When the results of a batch have more than maxHeld bytes, errors take the place of the others.
func TestAnswersOfABatch(t *testing.T) {
	large := append(append([]byte(`{"a":"`), make([]byte, maxHeld/5*2)...), `"}`...)
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) { return encoded(large), nil })
	writes := make(chan Payload, 1)
	l := newLoop(t.Context(), silentConn{writes, make(chan struct{})}, h, plainProtocol{}, nil, false)
	l.peer.enterReader()
	l.takeIn(Decode([]byte(`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","id":3,"method":"m"}]`)))
	var errs []*Error
	for _, m := range (<-writes).Messages {
		errs = append(errs, m.Error)
	}
	if !slices.Equal(errs, []*Error{nil, nil, errNoMemory}) || l.used.taken != 0 {
		t.Error(errs, l.used.taken)
	}
	l.peer.Close()
}

// The text of a batch counts until its last request has a result: a refusal in it is no result.
func TestTextOfABatchCounts(t *testing.T) {
	var l *loop
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) {
		if l.used.taken < 2*countFrom {
			t.Errorf("%d bytes are in use while the request runs", l.used.taken)
		}
		return nil, nil
	})
	l = newLoop(t.Context(), silentConn{make(chan Payload, 1), make(chan struct{})}, h, plainProtocol{}, nil, false)
	l.peer.enterReader()
	l.takeIn(Decode([]byte(`[1,{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"` + strings.Repeat("x", 2*countFrom) + `"}}]`)))
	l.peer.Close()
}

// On a pipe a result that is alone may have any size, also if its request is not small. What is written does not count any more, so several
// large results in turn are no mistake.
func TestLargeResultsInTurn(t *testing.T) {
	for text, size := range map[string]int{
		`{"jsonrpc":"2.0","id":1,"method":"m","params":{"a":"` + strings.Repeat("x", 2*countFrom) + `"}}`: maxHeld,
		// In a revision without batches, a client answers the elements of an array one by one.
		`[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"},{"jsonrpc":"2.0","id":3,"method":"m"}]`: maxHeld / 5 * 2,
	} {
		large := append(append([]byte(`{"a":"`), make([]byte, size)...), `"}`...)
		h := HandlerFunc(func(context.Context, *Exchange) (any, error) { return encoded(large), nil })
		writes := make(chan Payload, 3)
		l := newLoop(t.Context(), silentConn{writes, make(chan struct{})}, h, new(mcpProtocol), nil, true)
		l.peer.enterReader()
		l.takeIn(Decode([]byte(text)))
		close(writes)
		for out := range writes {
			if m := out.Messages[0]; m.Error != nil {
				t.Errorf("%.50s: %v", text, m.Error)
			}
		}
		if l.used.taken != 0 {
			t.Error(l.used.taken, "bytes are in use")
		}
		l.peer.Close()
	}
}

// If a handler of a question ends the goroutine of its caller, as t.FailNow does, the connection does not count that call any more.
func TestQuestionEndsItsCaller(t *testing.T) {
	server := &Server{Info: Implementation{Name: "s", Version: "1"}}
	AddTool(server, Tool{Name: "ask"}, func(context.Context, *Exchange, struct{}) (any, error) {
		return InputRequired{Requests: map[string]InputRequest{"r": {Method: "roots/list"}}}, nil
	})
	c := &Client{Info: Implementation{Name: "c", Version: "1"}, Handlers: map[string]HandlerFunc{
		"roots/list": func(context.Context, *Exchange) (any, error) { runtime.Goexit(); return nil, nil }}}
	err := c.Connect(t.Context(), DialerFunc(func(context.Context) (Conn, error) {
		ours, theirs := Pipe()
		go Serve(t.Context(), theirs, server, nil)
		return ours, nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var call sync.WaitGroup
	call.Go(func() { _ = c.Call(t.Context(), "tools/call", CallToolParams{Name: "ask"}, nil) })
	call.Wait()
	c.current.calls.Wait() // or the test hangs
}

// When a call of a client fails because the server has gone, the context of the Peer has ended before: the caller may look at it.
func TestContextEndsBeforeCalls(t *testing.T) {
	ours, theirs := Pipe()
	l := newLoop(t.Context(), ours, nil, plainProtocol{}, nil, true)
	var calling sync.WaitGroup
	calling.Go(func() { _ = l.peer.Call(t.Context(), "m", nil, nil) })
	_, _ = theirs.Read()
	l.peer.mu.Lock() // no call can fail
	go l.noteEnd(io.EOF)
	if !closedWithin(time.Minute, l.peer.Context().Done()) {
		t.Error("the call would fail first")
	}
	l.peer.mu.Unlock()
	calling.Wait()
}

// A server writes a refusal before it reads on. So a client that sends nonsense, and does not read, soon cannot send any more.
func TestRefusalsAreRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := Pipe()
		go ServeConn(t.Context(), ours, nil, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sent, nonsense := 0, Payload{Messages: []*Message{{Method: "m", Result: json.RawMessage("{}")}}}
		for sent < 1000 && theirs.Write(ctx, nonsense) == nil {
			sent++
		}
		if want := 64 + 1 + 64; sent != want { // 64 wait in each direction, and one waits to be written
			t.Errorf("%d were sent, want %d", sent, want)
		}
		theirs.Close()
	})
}

// When a conversation has ended, nothing is served and nothing is sent any more: Close may have waited for all goroutines already.
func TestNothingIsServedAfterTheEnd(t *testing.T) {
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) { t.Error("it is served"); return nil, nil })
	ours, theirs := Pipe()
	l := newLoop(t.Context(), ours, h, plainProtocol{}, nil, false)
	l.peer.refuseCalls(ErrClosed)
	_ = theirs.Write(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","method":"m"}`)))
	l.read()                                                           // returns, and does not read on
	request := Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`)) // over HTTP there is no reader
	if a := l.peer.dispatch(t.Context(), request, Exchange{handler: h}); a != nil {
		t.Error("a request is registered")
	}
	l.peer.goSend(func() { t.Error("something is sent") })
	l.peer.sends.Wait()
	l.peer.endContexts(ErrClosed)
	if l.peer.whenEnded(func() {}) {
		t.Error("the Peer would run a function at its end")
	}
}

// A batch that is too long is not decoded to its end: 4 MiB of it would take a hundred times as much.
func TestLongBatchIsNotDecoded(t *testing.T) {
	batch := []byte("[" + strings.Repeat("1,", 100*maxInFlight) + "1]")
	if n := testing.AllocsPerRun(1, func() { Decode(batch) }); n > 10*maxInFlight {
		t.Errorf("%v allocations", n)
	}
}

// The result of a notification is not sent, so it need not be JSON.
func TestNotificationHasNoResult(t *testing.T) {
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) { return make(chan int), nil })
	x := &Exchange{Request: &Message{Method: "m"}, handler: h}
	response := x.callHandler(t.Context())
	if response.Error != nil {
		t.Error(response.Error)
	}
}

// A program without a log still shows its panics.
func TestPanicIsShown(t *testing.T) {
	defer log.SetOutput(log.Writer()) // which SetDefault changes, too
	defer log.SetFlags(log.Flags())
	defer slog.SetDefault(slog.Default())
	var out lockedBuffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
	p := newPeer(t.Context(), nil, plainProtocol{}, nil)
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) { panic("oh") })
	x := &Exchange{Request: &Message{ID: NumberID(1), Method: "m"}, handler: h, owner: p}
	response := x.callHandler(t.Context())
	if response.Error != errInternal || !strings.Contains(out.String(), "panic=oh") {
		t.Error(response.Error, out.String())
	}
}

// While a response waits to be written, the text of its request is not held.
func TestRequestIsNotHeld(t *testing.T) {
	p := newPeer(t.Context(), nil, plainProtocol{}, nil)
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) { return nil, nil })
	in := Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
	collected := make(chan struct{})
	runtime.AddCleanup(in.Messages[0], func(done chan struct{}) { close(done) }, collected)
	p.dispatch(t.Context(), in, Exchange{handler: h}).serve(func(*Message) {
		waitFor(t, func() bool {
			runtime.GC()
			return closedWithin(time.Millisecond, collected)
		})
	})
}

// What the other side makes this one keep has a bound. Beyond it there is an error, or the rest is dropped.
func TestBounds(t *testing.T) {
	list := func(n int, format string) []byte {
		all := ""
		for i := range n {
			all += "," + fmt.Sprintf(format, i)
		}
		return []byte("{" + all[1:] + "}")
	}
	for name, row := range map[string]struct {
		most int
		err  string
		take func(n int) (int, error) // returns how many are taken
	}{
		"questions of one answer": {maxMembers, "at most 1024", func(n int) (int, error) {
			questions, err := readQuestions(list(n, `"%d":{"method":"roots/list"}`))
			return len(questions), err
		}},
		"marks of a schema": {128, "more than 128 times", func(n int) (int, error) {
			marked, err := ReadHeaderParams(list(1, `"properties":`+string(list(n, `"p%[1]d":{"type":"string","x-mcp-header":"H%[1]d"}`))+`,"x%d":0`))
			return len(marked), err
		}},
		"icons, as one of two bytes takes many in Go": {maxIcons, "", func(n int) (int, error) {
			var who Implementation
			err := json.Unmarshal([]byte(`{"name":"n","version":"1","icons":[`+strings.Repeat("{},", n-1)+`{}]}`), &who)
			return len(who.Icons), err
		}},
		"answers that a client holds for a server that does not read": {2 * maxInFlight, "", func(n int) (held int, err error) {
			p := newPeer(t.Context(), nil, plainProtocol{}, nil)
			p.weAreClient = true
			for i := range n {
				if p.dispatch(t.Context(), Decode(fmt.Appendf(nil, `{"id":%d}`, i)), Exchange{}) != nil {
					held++
				}
			}
			return held, nil
		}},
		"schemas of tools whose marks a client remembers, of a megabyte each": {maxMarked / 1_000_000, "", func(n int) (int, error) {
			marks := &ToolMarks{read: ReadHeaderParams}
			schema := json.RawMessage(`{"properties":{"a":{"type":"string","x-mcp-header":"A"}},"description":"` + strings.Repeat("x", 1_000_000) + `"}`)
			for i := range n {
				if err := marks.learnTool(strconv.Itoa(i), schema); err != nil {
					return 0, err
				}
			}
			return len(marks.marked), nil
		}},
		"bytes of the name of such a tool, with those of its schema": {maxMarked, "is not remembered", func(n int) (int, error) {
			marks, schema := &ToolMarks{read: ReadHeaderParams}, `{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`
			_ = marks.learnTool(strings.Repeat("n", n-len(schema)), json.RawMessage(schema))
			if len(marks.marked) == 0 {
				return 0, errors.New("it is not remembered")
			}
			return n, nil
		}},
	} {
		if n, err := row.take(row.most); n != row.most || err != nil {
			t.Errorf("%s: of %d there are %d, %v", name, row.most, n, err)
		}
		if n, err := row.take(row.most + 1); row.err == "" && (n != row.most || err != nil) || row.err != "" && (err == nil || !strings.Contains(err.Error(), row.err)) {
			t.Errorf("%s: of %d there are %d, %v", name, row.most+1, n, err)
		}
	}
}

// An id can be used again as soon as its response is written, and the response waits for a notification that is on its way.
func TestResponseIsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, read := make(chan struct{}), make(chan struct{})
		send := func(context.Context, *Message) error { close(begun); <-read; return nil }
		h := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
			if x.Request.Method == "notifies" {
				go x.Notify(ctx, "note", nil)
				<-begun
			}
			return nil, nil
		})
		p := newPeer(t.Context(), nil, plainProtocol{}, nil)
		dispatch := func(method string) *responder {
			return p.dispatch(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`)), Exchange{handler: h, send: send})
		}
		responses := 0
		a := dispatch("notifies")
		go a.serve(func(*Message) {
			responses++
			again := dispatch("m") // as the peer does that has read the response
			again.serve(func(m *Message) {
				if m.Error != nil {
					t.Error(m.Error)
				}
			})
		})
		synctest.Wait()
		if responses > 0 {
			t.Error("the response has overtaken a notification")
		}
		close(read)
		synctest.Wait()
		if responses != 1 {
			t.Error(responses, "responses")
		}
	})
}

// Whatever is decoded, it is what encoding/json makes of it, member by member; and what is encoded is decoded as the same.
func FuzzDecode(f *testing.F) {
	for _, line := range oddLines() {
		f.Add([]byte(line))
	}
	f.Add([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"é"}}}`))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"m\",\"params\":{\r\n\"a\":[\r1,\n2]}}")) // becomes one line
	f.Add([]byte(`[{"jsonrpc":"2.0","id":"\u0061\\","result":{"a":[1,{"]":"}"}]}},1,[],{}]`))
	f.Add([]byte(`{"jsonrpc":"2.0","error":{"code":-32700,"message":"\ud800","data":[]}}`))
	f.Add([]byte("{\"jsonrpc\":\"2.0\",\"id\":1,\"id\":2}\xff"))
	f.Add([]byte("{\"\x80\":\"\",\"id\":0,\"result\":{}}"))
	for object := `{"c\\":[1,{"\"":"]\\"}],"name":"x\"","n":-1.5e3,"arguments":null}`; object != ""; object = object[:len(object)-1] {
		f.Add([]byte(object))
		f.Add([]byte(object + "}"))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var bound struct {
			Name      string          `json:"name"`
			Arguments json.RawMessage `json:"arguments"`
			N         int             `json:"n,omitempty"`
			C         *struct {
				A []int `json:"a"`
			} `json:"c,omitempty"`
		}
		in := Decode(bytes.Clone(data))
		_ = Bind(data, &bound) // what is no JSON may bind to anything, but it is no reason to panic
		isText := json.Valid(data) && utf8.Valid(data)
		lost := len(in.Messages) == 1 && in.Messages[0].unusable != nil && !isText // a response that is not JSON, or not UTF-8, ends its call
		if want, got := slowly(data), outline(in); !lost && !slices.Equal(got, want) {
			t.Fatalf("%q: %q, want %q", data, got, want)
		}
		for _, m := range in.Messages {
			if (m.Kind() == Invalid) != (m.Error != nil && m.invalid) {
				t.Fatal("an invalid message holds its reply")
			}
			_, _ = m.Meta()
			_ = Bind(m.Params, &bound)
			if m.unusable != nil {
				continue
			}
			line := Payload{Messages: []*Message{m}}.Append(nil)
			if bytes.ContainsAny(line, "\r\n") || !json.Valid(line) || !bytes.Equal(line, bytes.ToValidUTF8(line, nil)) {
				t.Fatalf("not one line of JSON: %q", line)
			}
			back := Decode(line).Messages[0]
			if m.Kind() != Invalid && (back.Kind() != m.Kind() || back.Method != m.Method || back.ID != m.ID) {
				t.Fatalf("%q comes back as %v %q %q", line, back.Kind(), back.Method, back.ID)
			}
			if again := back.append(nil); !bytes.Equal(again, line) {
				t.Fatalf("%q is encoded again as %q", line, again)
			}
			// What encoding/json finds under the exact names is what we have found.
			if m.Kind() == Request {
				var all map[string]json.RawMessage
				if err := json.Unmarshal(line, &all); err != nil || string(all["id"]) != m.ID.text || !bytes.Equal(all["params"], appendLine(nil, m.Params)) {
					t.Fatalf("%q: %v", line, err)
				}
			}
		}
	})
}

// oddLines are the lines of the cases about decoding, for fuzzers to begin with; those that are very long are left out.
func oddLines() (lines []string) {
	for _, c := range goldenFiles("testdata/cases/decoding.txtar") {
		line, _, _ := strings.Cut(unescape(c.sections[0].text), "\n")
		if len(line) < 1000 {
			lines = append(lines, line)
		}
	}
	return lines
}

// outline says of each message what it is, and its id.
func outline(in Payload) (lines []string) {
	for _, m := range in.Messages {
		lines = append(lines, fmt.Sprint(m.Kind(), " ", m.ID))
	}
	return lines
}

// slowly outlines what Decode should find, in the slow and obvious way.
func slowly(data []byte) (lines []string) {
	data = bytes.Trim(data, " \t\r\n")
	elements := []json.RawMessage{data}
	switch {
	case !utf8.Valid(data) || !json.Valid(data):
		return []string{fmt.Sprint(Invalid, " ")}
	case data[0] == '[':
		_ = json.Unmarshal(data, &elements)
	}
	if len(elements) == 0 || len(elements) > maxInFlight {
		return []string{fmt.Sprint(Invalid, " ")}
	}
	for _, element := range elements {
		kind, id := slowMessage(element)
		lines = append(lines, fmt.Sprint(kind, " ", id))
	}
	return lines
}

var slowID = regexp.MustCompile(`^(".*"|-?[0-9]+)$`)

func slowMessage(element json.RawMessage) (kind Kind, id string) {
	seen := map[string][]json.RawMessage{}
	in := json.NewDecoder(bytes.NewReader(element))
	if first, _ := in.Token(); first != json.Delim('{') {
		return Invalid, ""
	}
	for in.More() {
		name, _ := in.Token()
		var value json.RawMessage
		_ = in.Decode(&value)
		seen[name.(string)] = append(seen[name.(string)], value)
	}
	text := func(name string) (s string) {
		if all := seen[name]; len(all) > 0 {
			_ = json.Unmarshal(all[len(all)-1], &s)
		}
		return s
	}
	if all := seen["id"]; len(all) == 1 && len(all[0]) <= maxID+2 && slowID.Match(all[0]) {
		id = string(all[0])
	}
	says := len(seen["result"])+len(seen["error"]) > 0
	if len(seen["method"]) == 0 && says {
		return Response, id
	}
	twice := slices.ContainsFunc([]string{"jsonrpc", "id", "method", "params", "result", "error"}, func(name string) bool { return len(seen[name]) > 1 })
	params := seen["params"]
	switch {
	case twice, says, text("jsonrpc") != "2.0", text("method") == "", id == "" && seen["id"] != nil, params != nil && params[0][0] != '{':
		return Invalid, id
	case id == "":
		return Notification, ""
	}
	return Request, id
}

// The id of a text that is too long is repeated only if it is UTF-8, as all that we write.
func TestIDOfLongTextIsUTF8(t *testing.T) {
	for id, isRepeated := range map[string]bool{`"a"`: true, "\"\xff\"": false} {
		in := unreadable([]byte(`{"jsonrpc":"2.0","id":`+id+`,"method":"m","params":{"x":"`), ErrTooLarge)
		if got := in.Messages[0].ID; (got != ID{}) != isRepeated {
			t.Errorf("%q: %q", id, got)
		}
	}
}

// ======== stdio.go ========

// Of a line that is too long, only the beginning is held.
func TestLongLineIsNotHeld(t *testing.T) {
	const size = 64 << 20
	zeros := readerFunc(func(b []byte) (int, error) { clear(b); return len(b), nil })
	c := NewLineConn(io.LimitReader(zeros, size), io.Discard, testLimit, nil)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	in, err := c.Read()
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; err != nil || !errors.Is(in.Lost, ErrTooLarge) || took > 10*testLimit {
		t.Error(in.Lost, err, took, "bytes")
	}
}

// When the client has gone, a server on stdio is not killed by SIGPIPE: it sees that it cannot write, and ends.
func TestClientOfStdioHasGone(t *testing.T) {
	cmd := process(t, "stdio")
	stdout, theirs, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdin, cmd.Stdout = strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"ping"}`), theirs
	stdout.Close()
	_ = cmd.Run()
	theirs.Close()
	if state := cmd.ProcessState; state == nil || !state.Success() {
		t.Error(state)
	}
}

// When nothing can be written any more, the stream is closed: so a client sees that its conversation is over.
func TestFailedWriteClosesTheStream(t *testing.T) {
	in, out := io.Pipe()
	closed := make(chan struct{})
	c := NewLineConn(strings.NewReader(""), out, testLimit, func() error { close(closed); return nil })
	in.Close()
	if err := c.Write(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","method":"m"}`))); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
	if !closedWithin(time.Minute, closed) {
		t.Error("the stream is still open")
	}
}

// A write that the other side does not read ends with its context, and the line it had begun goes on before the next.
func TestLinesInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		theirIn, out := io.Pipe()
		ours := NewLineConn(strings.NewReader(""), out, testLimit, out.Close)
		big, small := Decode([]byte(`{"jsonrpc":"2.0","method":"big"}`)), Decode([]byte(`{"jsonrpc":"2.0","method":"small"}`))
		givesUp := func(c Conn, p Payload) (err error) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			for err == nil {
				err = c.Write(ctx, p)
			}
			return err
		}
		first := givesUp(ours, big)
		begun := make([]byte, 5)
		_, _ = io.ReadFull(theirIn, begun)
		inMemory, _ := Pipe()                                                              // holds some messages that nobody has read
		for _, err := range []error{first, givesUp(ours, big), givesUp(inMemory, small)} { // the second does not even begin
			if !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
		}
		go ours.Write(t.Context(), small)
		theirs := NewLineConn(io.MultiReader(bytes.NewReader(begun), theirIn), io.Discard, testLimit, theirIn.Close)
		for _, want := range []string{"big", "small"} {
			if in, err := theirs.Read(); err != nil || in.Messages[0].Method != want {
				t.Error(want, in.Messages, err)
			}
		}
	})
}

// A line that was cut off by an error other than our own deadline is not continued with another, and the conversation is over.
func TestLinesTorn(t *testing.T) {
	var out bytes.Buffer
	in, theirOut := io.Pipe()
	go fmt.Fprintln(theirOut, `{"jsonrpc":"2.0","id":1,"method":"m"}`)
	c := NewLineConn(in, tornWriter{&out}, testLimit, in.Close)
	if err := Serve(t.Context(), c, newDemo(), nil); err == nil {
		t.Error("no error") // which one: that of writing, or that of reading the stream that was closed because of it
	}
	if err := c.Write(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","method":"m"}`))); err == nil || err.Error() != "cut" || out.Len() != 5 {
		t.Errorf("%v, %q", err, out.String())
	}
}

type tornWriter struct{ out *bytes.Buffer }

func (w tornWriter) Write(b []byte) (int, error) {
	n, _ := w.out.Write(b[:5])
	return n, errors.New("cut")
}

// Serve ends even if a handler does not look at its context, or holds up the reader: at the end of input after five seconds, when it is told
// to stop after three, and each time a second for the last word.
func TestServeWindsDown(t *testing.T) {
	for _, row := range []struct {
		line string
		told bool
		want time.Duration
	}{
		{`{"jsonrpc":"2.0","id":1,"method":"m"}`, false, handOverAfter + graceAfterHangup + graceAtEnd}, // until it counts as slow, nobody reads on to the end
		{`{"jsonrpc":"2.0","id":1,"method":"initialize"}`, true, time.Second + graceAfterStop + graceAtEnd},
		{`{"jsonrpc":"2.0","method":"notifications/m"}`, true, time.Second + graceAfterStop + graceAtEnd},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if row.told {
				time.AfterFunc(time.Second, cancel)
			}
			var out lockedBuffer
			began := time.Now()
			err := Serve(ctx, NewLineConn(strings.NewReader(row.line), &out, testLimit, func() error { return nil }), HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
				if <-x.Ending; x.Call(t.Context(), "m", nil, nil) == nil {
					t.Error("a call after the end")
				}
				time.Sleep(time.Hour)
				return nil, nil
			}), nil)
			if took := time.Since(began); took != row.want || err == nil || out.String() != "" {
				t.Errorf("%s: %v after %v, %s", row.line, err, took, out.String())
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// beChild is what a child process does instead of the tests.
func beChild(role string) int {
	switch role {
	case "mcpwire":
		if part := os.Getenv("MCPWIRE_PART"); part != "" && len(os.Args) == 1 {
			play(part)
			return 0
		}
		main()
	case "stdio":
		_ = Serve(context.Background(), StdioConn(testLimit), new(Server), nil)
	}
	return 0
}

// Whatever lines come, each gets what it deserves: a request one answer, unless it is cancelled, what is no message one error, the rest
// nothing; the last of them works as ever, and with the end of input all ends.
func FuzzServe(f *testing.F) {
	for _, tr := range goldenFiles("testdata/*.txtar") {
		var script []byte
		for _, s := range tr.unfolded().sections {
			if (s.who == "client" || s.who == "by hand") && s.letter == "" {
				script = append(append(script, s.text...), settles)
			}
		}
		if len(script) > 0 {
			f.Add(script)
			f.Add(bytes.ReplaceAll(script, []byte{settles}, nil))
		}
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("no end") }).Stop()
		synctest.Test(t, func(t *testing.T) { serveScript(t, script) })
	})
}

const lineLimit = 4 << 10 // of the lines of a script

func serveScript(t *testing.T, script []byte) {
	in, theirOut := io.Pipe()
	theirIn, out := io.Pipe()
	served := make(chan error, 1)
	demo, noise := newDemo(), new(lockedBuffer)
	go func() {
		served <- Serve(t.Context(), NewLineConn(in, out, lineLimit, in.Close), gentle(demo), errorsTo(noise))
		out.Close()
	}()
	var text []byte
	var reading sync.WaitGroup
	reading.Go(func() { text, _ = io.ReadAll(theirIn) })
	var said []byte
	for piece, mark := range scripted(script) {
		if said = append(said, piece...); len(piece) > 0 { // a hundred times nothing is an error to bufio
			_, _ = theirOut.Write(piece)
		}
		pass(mark)
	}
	probe := []byte("\n" + `{"jsonrpc":"2.0","id":"probe","method":"server/discover","params":{` + modernMeta + `}}`)
	said = append(said, probe...)
	_, _ = theirOut.Write(probe)
	theirOut.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
	reading.Wait()
	if noise.String() != "" {
		t.Error("in the log:", noise)
	}
	checkLines(t, said, text)
	if !bytes.Contains(text, []byte(`{"jsonrpc":"2.0","id":"probe","result":{"`)) && !bytes.Contains(said[:len(said)-len(probe)], []byte("pro")) {
		t.Errorf("the last request was answered with %s", text)
	}
	if n := demo.subscribed(); n != 0 {
		t.Errorf("left: %d subscriptions", n)
	}
}

// checkLines compares what was said on a pipe with what was answered.
func checkLines(t *testing.T, said, text []byte) {
	asked, answered := map[string]int{}, map[string]int{}
	open := map[string]bool{} // it cannot be told how often
	batches := 0
	for line := range bytes.SplitSeq(said, []byte("\n")) {
		switch line = bytes.Trim(line, " \t\r\n"); {
		case len(line) == 0:
			continue
		case len(line) > lineLimit-2: // it depends on the white space around it
			for _, id := range []ID{{}, Decode(line).Messages[0].ID, unreadable(line[:min(len(line), headOfLine)], ErrTooLarge).Messages[0].ID} {
				asked[id.String()]++
				open[id.String()] = true
			}
			continue
		}
		in := Decode(line)
		if in.Batch {
			batches++
		}
		for _, m := range in.Messages {
			switch kind := m.Kind(); {
			case kind == Notification && m.Method == "notifications/cancelled":
				id, _ := parseID(member(m.Params, "requestId"))
				open[id.String()] = true
			case in.Batch:
				open[m.ID.String()] = true
				asked[m.ID.String()]++
			case kind == Request, kind == Invalid:
				asked[m.ID.String()]++
			}
		}
	}
	for line := range bytes.Lines(text) {
		in := Decode(bytes.TrimSuffix(line, []byte("\n")))
		for _, m := range in.Messages {
			switch {
			case m.Kind() == Invalid, m.unusable != nil:
				t.Errorf("no message: %q", line)
			case m.Kind() == Response:
				answered[m.ID.String()]++
				asked[m.ID.String()] += 0
			}
		}
	}
	for key, n := range asked {
		most := n
		if key == "" { // a batch may be refused
			most += batches
		}
		if got := answered[key]; got > most || got < n && !open[key] {
			t.Errorf("%q: asked %d times, answered %d times:\n%s\n%s", key, n, got, said, text)
		}
	}
}

// ======== sse.go ========

// readEvents reads all events, and the error that ends them.
func readEvents(r io.Reader, limit int) (events []Event, err error) {
	for e, err := range ReadEvents(r, limit) {
		if err != nil {
			return events, err
		}
		events = append(events, e)
	}
	return events, nil
}

// Whatever bytes come, in whatever pieces, they are read as the standard says; and what is written is read again.
func FuzzReadEvents(f *testing.F) {
	f.Add([]byte("\xEF\xBB\xBFid: 1\r\ndata: a\rdata: b\n\nretry: 5\nevent: x\n\n: c\n"), uint8(3), "x", "1")
	f.Add([]byte("data\r\n\r\ndata:\r\r\n"), uint8(1), "", "a\n")
	f.Add([]byte("id: 1\x00\nid\nretry: 99999999999\ndata:  a\n\nid: 2\n\nretry: 0\nevent: a\n\ndata\ndata\n\n"), uint8(0), "é", " 1")
	f.Add([]byte("a\nb\r\nc\rd"), uint8(2), "a\ndata: evil", "b\rdata: evil") // what an event holds cannot end its line
	f.Add([]byte("id: 1\n\nevent: evil\n"), uint8(9), "endpoint", "nul\x00")
	f.Fuzz(func(t *testing.T, in []byte, size uint8, kind, id string) {
		for _, limit := range []int{50, len(in) + 1} {
			whole, err := readEvents(bytes.NewReader(in), limit)
			var parts []io.Reader
			for part := range slices.Chunk(in, int(size)+1) {
				parts = append(parts, bytes.NewReader(part))
			}
			split, err2 := readEvents(io.MultiReader(parts...), limit)
			if fmt.Sprint(whole, err) != fmt.Sprint(split, err2) {
				t.Fatalf("whole %v %v, in parts %v %v", whole, err, split, err2)
			}
			if want := slowEvents(in); err == nil && fmt.Sprintf("%q", whole) != fmt.Sprintf("%q", want) || err != nil && limit > len(in) {
				t.Fatalf("%q: %q, %v, want %q", in, whole, err, want)
			}
		}
		back, err := readEvents(bytes.NewReader(Event{Type: kind, ID: id, Data: append([]byte{}, in...)}.Append(nil)), len(in)+len(kind)+len(id)+100)
		lines := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(string(in))
		if err != nil || len(back) != 1 || string(back[0].Data) != lines {
			t.Fatalf("%q came back as %v, %v", in, back, err)
		}
		if kind == "" || strings.ContainsAny(kind, "\r\n") {
			kind = "message"
		}
		if strings.ContainsAny(id, "\r\n\x00") {
			id = ""
		}
		if back[0].Type != kind || back[0].ID != id {
			t.Fatalf("%q %q came back as %q", kind, id, back[0])
		}
	})
}

// slowEvents reads a stream that is all there as WHATWG HTML server-sent-events#event-stream-interpretation puts it. What is no event by
// that, but has a new id or says when to come again, is in it, too.
func slowEvents(in []byte) (events []Event) {
	text := strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(strings.TrimPrefix(string(in), "\xEF\xBB\xBF"))
	lines := strings.Split(text, "\n")
	var e Event
	lastID := ""
	for _, line := range lines[:len(lines)-1] { // the last one has no end
		name, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "":
			if e.Data != nil || e.Retry > 0 || e.ID != lastID {
				e.Type, e.Data = cmp.Or(e.Type, "message"), bytes.TrimSuffix(e.Data, []byte("\n"))
				events = append(events, e)
			}
			lastID = e.ID
			e = Event{ID: lastID}
		case name == "event":
			e.Type = value
		case name == "data":
			e.Data = append(append(e.Data, value...), '\n')
		case name == "id" && !strings.Contains(value, "\x00"):
			e.ID = value
		case name == "retry" && value != "" && strings.Trim(value, "0123456789") == "":
			ms, _ := new(big.Int).SetString(value, 10)
			if !ms.IsInt64() || ms.Int64() > 1<<31-1 {
				ms = big.NewInt(1<<31 - 1)
			}
			e.Retry = time.Duration(max(ms.Int64(), 1)) * time.Millisecond
		}
	}
	if e.Retry > 0 {
		events = append(events, Event{ID: lastID, Retry: e.Retry})
	}
	return events
}

// A client that does not read holds up only its own stream: Send waits, and goes on when there is room.
func TestStreamIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, keep := range []int{0, 1, 1 << 20} {
			s := newLoneStream("tag.1", keep)
			p, hangUp, _ := follow(t, s, "")
			p.stick()
			var sent atomic.Int32
			go func() {
				for n := range 1000 {
					if s.push(context.Background(), sentEvent{text: fmt.Appendf(nil, "%-1000d", n)}) == nil {
						sent.Add(1)
					}
				}
			}()
			time.Sleep(time.Minute)
			if n := sent.Load(); n < maxUnwritten/1050 || n > maxUnwritten/1000 { // those being written among them
				t.Errorf("keep %d: %d events wait for a client that does not read", keep, n)
			}
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			if err := s.push(ctx, sentEvent{text: make([]byte, 1000)}); err != context.DeadlineExceeded {
				t.Error(err)
			}
			cancel()
			p.release()
			if got, _, _ := p.data(); sent.Load() != 1000 || len(got) != 1000 || strings.TrimSpace(got[999]) != "999" {
				t.Errorf("keep %d: sent %d, got %d", keep, sent.Load(), len(got))
			}
			hangUp()
		}
	})
}

// Before its response has begun a stream is bounded, too. Only answers do not wait there: they may go out as JSON.
func TestFreshStreamIsBounded(t *testing.T) {
	s, text := &Stream{follower: new(follower), buffer: eventBuffer{eventBytes: eventBytes{usedByAll: &counter{limit: 1 << 20}}}}, make([]byte, maxUnwritten)
	for _, c := range []struct {
		method string
		want   error
	}{{"m", nil}, {"m", context.Canceled}, {"", nil}} {
		if err := s.push(canceled(), sentEvent{text: text, method: c.method}); err != c.want {
			t.Errorf("method %q: %v, want %v", c.method, err, c.want)
		}
	}
}

// A large notification is not copied, or each of many responses that displace each other would hold it.
func TestLargeEventIsNotCopied(t *testing.T) {
	s, w := newLoneStream("a", 1<<20), &sharing{paper: paper{header: http.Header{}}}
	e := newSentEvent(&Message{Method: "notifications/message", Params: json.RawMessage(`{"data":"` + strings.Repeat("x", maxCopied) + `"}`)})
	w.text = &e.text[0]
	ctx, hangUp := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- followStream(s, w, httptest.NewRequestWithContext(ctx, "GET", "/", nil), "") }()
	waitFor(t, func() bool { s.mu.Lock(); defer s.mu.Unlock(); return s.follower != nil })
	if err := s.push(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	waitFor(t, w.isShared.Load)
	hangUp()
	<-done
	if got, id, _ := w.data(); len(got) != 1 || got[0] != string(e.text) || id != "a/1" {
		t.Errorf("%d events, the last %s", len(got), id)
	}
}

// sharing is paper that notes whether the memory of a text is written.
type sharing struct {
	paper
	text     *byte
	isShared atomic.Bool
}

func (w *sharing) Write(b []byte) (int, error) {
	n, err := w.paper.Write(b)
	if &b[0] == w.text {
		w.isShared.Store(true)
	}
	return n, err
}

// Without ids, or cut before one was sent, a stream is lost with its connection: Send fails at once.
func TestStreamLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, s := range []*Stream{newLoneStream("", 0), newLoneStream("a", 1000)} {
			if err := s.push(t.Context(), sentEvent{text: nil}); !errors.Is(err, ErrClosed) {
				t.Error("before a response has followed:", err)
			}
			_, hangUp, _ := follow(t, s, "")
			hangUp()
			if err := s.push(t.Context(), sentEvent{text: nil}); !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// Disconnect ends the response that follows, and tells its client to come back, if only at once. While nobody follows it does nothing: the next
// response goes on.
func TestDisconnect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 1000)
		s.beginsWithID = true
		p, _, done := follow(t, s, "")
		s.disconnect(0)
		<-done
		if _, _, retry := p.data(); retry != time.Millisecond {
			t.Errorf("retry %v: %q", retry, p.read())
		}
		s.disconnect(time.Second)
		p, hangUp, done := follow(t, s, "")
		select {
		case <-done:
			t.Errorf("the next response ends, too: %q", p.read())
		default:
		}
		p.stick()
		s.tell(t, "x")
		s.disconnect(time.Second) // and before that response has ended, another one takes its place
		other, leave, _ := follow(t, s, "")
		if _, _, retry := other.data(); retry != 0 {
			t.Errorf("the response that has taken its place ends: %q", other.read())
		}
		p.release()
		hangUp()
		leave()
	})
}

// A client may continue after an event only if nothing after it is lost but progress, and not after an event that was never sent.
func TestWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 3000)
		_, hangUp, _ := follow(t, s, "")
		for n := range 10 { // four are kept; the first five are progress
			method := map[bool]string{true: "notifications/progress", false: "notifications/message"}[n < 5]
			_ = s.push(t.Context(), sentEvent{text: make([]byte, 400), method: method})
			synctest.Wait()
		}
		hangUp()
		for id, isKept := range map[string]bool{"a/-1": false, "a/-7": false, "a/07": false, "b/7": false, "7": false, "a/0": false, "a/5": false, "a/6": true, "a/10": true, "a/11": false} {
			if _, err := s.numberOf(id); (err == nil) != isKept {
				t.Error(id, err)
			}
		}
	})
}

// A response to a GET without an id begins with an id after which the client may continue, although older events that no response has written
// are lost.
func TestBeginsAtWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 600) // one event of those below
		s.beginsWithID = true
		_, hangUp, _ := follow(t, s, "")
		hangUp()
		for range 5 {
			s.tell(t, strings.Repeat("x", 200))
		}
		p, hangUp, _ := follow(t, s, "")
		events, _ := readEvents(strings.NewReader(p.read()), testLimit)
		if len(events) != 2 || events[0].ID != "a/4" || events[1].ID != "a/5" {
			t.Errorf("%q", p.read())
		} else if _, err := s.numberOf(events[0].ID); err != nil {
			t.Error(err)
		}
		hangUp()
	})
}

// A response that takes the place of one that still writes begins after what that one has taken: no event comes twice. And a sender that waits
// for a client that does not read goes on when that response has ended.
func TestDisplacedAndTorn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 1<<20)
		p, hangUp, _ := follow(t, s, "")
		p.stick()
		s.tell(t, "x")
		other, leave, _ := follow(t, s, "")
		s.tell(t, "y")
		if got, _, _ := other.data(); !slices.Equal(got, []string{"y"}) {
			t.Errorf("%q", got)
		}
		p.release()
		hangUp()
		leave()

		torn := newPaper()
		torn.timed = true
		go followStream(s, torn, httptest.NewRequest("GET", "/", nil), "")
		synctest.Wait()
		torn.stick()
		s.tell(t, strings.Repeat("x", 5000))
		sent := make(chan error, 1)
		go func() { sent <- s.push(t.Context(), sentEvent{text: make([]byte, 5000)}) }()
		synctest.Wait()
		if len(sent) > 0 {
			t.Error("the sender does not wait")
		}
		time.Sleep(2 * stall)
		select {
		case err := <-sent:
			if err != nil {
				t.Error(err)
			}
		default:
			t.Fatal("the sender waits for a client that has gone")
		}
	})
}

// A client that fetches what is kept gets all of it, although the stream is forgotten meanwhile.
func TestForgottenWhileItIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 1<<20)
		_, hangUp, _ := follow(t, s, "")
		for range 30 {
			s.tell(t, strings.Repeat("x", 1000))
		}
		hangUp()
		s.end()
		p := newPaper()
		p.stick()
		go followStream(s, p, httptest.NewRequest("GET", "/", nil), "a/1")
		synctest.Wait()
		s.forget()
		if len(s.buffer.events) != 29 { // also those that are being written: they take memory until then
			t.Error(len(s.buffer.events), "events are kept while they are read")
		}
		p.release()
		if got, id, _ := p.data(); len(got) != 29 || id != "a/30" {
			t.Error(len(got), "events, the last", id)
		}
		if len(s.buffer.events) != 0 || s.buffer.keptBytes != 0 {
			t.Error(len(s.buffer.events), "events are kept")
		}
	})
}

// A stream keeps its newest event, even if that alone is too much for it. Its id may have any characters but the end of a line.
func TestNewestIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a/b", 1000)
		_, hangUp, _ := follow(t, s, "")
		for _, text := range []string{"one", "two", strings.Repeat("x", 100_000)} {
			s.tell(t, text)
		}
		hangUp()
		s.end()
		p, _, done := follow(t, s, s.eventID(2))
		<-done
		if got, id, _ := p.data(); len(got) != 1 || len(got[0]) != 100_000 || id != s.eventID(3) {
			t.Error(len(got), id)
		}
	})
}

// What a response could not write is written by the next one.
func TestFailedWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 1000)
		p, hangUp, _ := follow(t, s, "")
		s.tell(t, "one")
		hangUp()
		s.tell(t, "two")
		p.torn = true
		_ = followStream(s, p, httptest.NewRequest("GET", "/", nil), "")
		s.end()
		p, _, done := follow(t, s, "")
		<-done
		if got, _, _ := p.data(); !slices.Equal(got, []string{"two"}) {
			t.Error(got)
		}
	})
}

// A response whose client does not read, and which another one displaces, has a second to end: nobody counts what it holds.
func TestDisplacedResponse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("a", 1<<20)
		s.beginsWithID = true // so that its beginning has an id
		first, _, done := follow(t, s, "")
		first.timed = true
		first.stick()
		s.tell(t, strings.Repeat("x", 100_000))
		began := time.Now()
		second, hangUp, _ := follow(t, s, "a/0")
		<-done
		if took := time.Since(began); took != time.Second {
			t.Errorf("the first response ends after %v", took)
		}
		hangUp()
		if n := len(second.read()); n < 100_000 {
			t.Errorf("the second one has %d bytes", n)
		}
	})
}

// All sessions together keep so many bytes, and never more. A stream that finds no room loses its own oldest events, or does not keep the new
// one. Other streams lose nothing, and no sender gets an error.
func TestKeptByAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1000 // of an event, about
		kept := counter{limit: 10 * size}
		a, b := newLoneStream("a", 1<<20), newLoneStream("b", 1<<20)
		for _, s := range []*Stream{a, b} {
			s.buffer.keptByAll = &kept
			_, hangUp, _ := follow(t, s, "")
			for n := range 20 {
				s.tell(t, strings.Repeat("x", size-eventOverhead-20))
				if kept.taken > kept.limit {
					t.Fatalf("%d bytes are kept, after event %d of stream %s", kept.taken, n, s.id)
				}
			}
			hangUp()
		}
		if n := len(a.buffer.events); n == 0 || n > 10 || a.buffer.lostThrough == 0 || a.buffer.lostThrough > 20-int64(n) {
			t.Errorf("the first stream keeps %d events, and has lost those up to %d", n, a.buffer.lostThrough)
		}
		if n := len(b.buffer.events); n > 10-len(a.buffer.events) || b.buffer.lostThrough < 20-int64(n) {
			t.Errorf("the second stream keeps %d events, and has lost those up to %d", n, b.buffer.lostThrough)
		}
		for _, s := range []*Stream{a, b} {
			s.end()
			s.forget()
		}
		if kept.taken != 0 {
			t.Error(kept.taken, "bytes are still counted")
		}
	})
}

// A GET whose session ends just then has a stream that ends.
func TestListensToTheEnd(t *testing.T) {
	h := newHandler(t, newDemo())
	openSession(h, "2025-11-25")
	s := h.Sessions.All()[0]
	_ = s.Close()
	if stream := h.standalone(s); stream.endTime.IsZero() || stream.buffer.keep != 0 {
		t.Error("the stream goes on")
	}
}

// So many streams that have ended are kept. Then the oldest goes.
func TestEndedStreamsAreBounded(t *testing.T) {
	h := newHandler(t, newDemo())
	h.once.Do(h.prepare)
	openSession(h, "2025-11-25")
	session := h.Sessions.All()[0]
	var first, last string
	for range maxEnded + 1 {
		s := h.newStream(session)
		s.attachAt(httptest.NewRecorder(), 0, true)
		session.addStream(s)
		s.end()
		first, last = cmp.Or(first, s.id), s.id
	}
	if n := len(session.streams); n != maxEnded || session.find(first) != nil || session.find(last) == nil {
		t.Error(n, "are kept")
	}
}

// A question that nobody can read any more fails, whether its response has begun or not.
func TestQuestionToNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		h.Sessions.Keep = 0
		openSession(h, "2025-11-25")
		session := h.Sessions.All()[0]
		for name, end := range map[string]func(*Stream){"its client has gone": func(s *Stream) { s.follower = new(follower); s.forget(); s.detach(s.follower) }, "its response breaks off": func(s *Stream) {
			_ = followStream(s, httptest.NewRecorder(), httptest.NewRequestWithContext(canceled(), "GET", "/", nil), "")
		}} {
			s, failed := h.newStream(session), make(chan error, 1)
			go func() { failed <- session.Peer.call(t.Context(), s.send, "roots/list", nil, nil) }()
			synctest.Wait()
			end(s)
			synctest.Wait()
			select {
			case err := <-failed:
				if !errors.Is(err, ErrClosed) {
					t.Errorf("%s: %v", name, err)
				}
			default:
				t.Errorf("%s: it waits for an answer", name)
				session.Peer.failAllCalls(ErrClosed)
			}
		}
	})
}

// A response that takes the place of another one leaves nothing in use that nobody is going to write. So the next sender finds room, whether the
// stream keeps events or not.
func TestRoomAfterATakeover(t *testing.T) {
	for _, keep := range []int{0, 1 << 20} {
		s := &Stream{id: "a", hasIDs: keep > 0, buffer: eventBuffer{keep: keep}}
		first, _ := s.attach(httptest.NewRecorder(), "")
		_ = s.push(t.Context(), sentEvent{text: make([]byte, maxUnwritten+1), method: "m"})
		s.nextEvents(first) // it takes the event, and writes for long
		changed, err := s.tryPush(sentEvent{text: []byte("x"), method: "m"})
		if changed == nil {
			t.Fatalf("keep %d: the sender does not wait: %v", keep, err)
		}
		_, _ = s.attach(httptest.NewRecorder(), "")
		<-changed
		if changed, err = s.tryPush(sentEvent{text: []byte("x"), method: "m"}); changed != nil || err != nil {
			t.Errorf("keep %d: the sender still waits: %v", keep, err)
		}
	}
}

// A large answer in a batch does not hold back the progress of the next request: the progress makes the response a stream.
func TestProgressAfterALargeAnswer(t *testing.T) {
	s := &Stream{follower: new(follower)}
	_ = s.push(t.Context(), sentEvent{text: make([]byte, maxUnwritten+1)})
	if changed, err := s.tryPush(sentEvent{text: []byte("x"), method: "m"}); changed != nil || err != nil {
		t.Errorf("the sender waits for a response that waits for it: %v", err)
	}
}

// The streams of a session end with it, whether they keep events or not, and whatever their handlers do.
func TestStreamsEndWithTheirSession(t *testing.T) {
	for _, keep := range []int{0, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			demo := newDemo()
			demo.Methods["talk"] = func(ctx context.Context, x *Exchange) (any, error) {
				err := x.Notify(ctx, "notifications/message", nil)
				time.Sleep(20 * time.Second) // it does not look at its context
				return nil, err
			}
			h := &StreamableHandler{Handler: demo, Sessions: &Sessions{Keep: keep}}
			defer h.Close()
			v := visit(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"talk"}`, openSession(h, "2025-11-25"))
			time.Sleep(time.Second)
			began := time.Now()
			h.Sessions.Delete(h.Sessions.All()[0], ErrSessionDeleted)
			v.answered()
			if d := time.Since(began); d > time.Second {
				t.Errorf("keep %d: the response ends %v after its session", keep, d)
			}
			time.Sleep(time.Minute)
		})
	}
}

// Without sessions, too, an initialize may name any version in its header, such as one that this server does not offer.
func TestInitializeNamesAModernVersion(t *testing.T) {
	demo := newDemo()
	demo.Versions = []string{"2025-11-25"}
	h := &StreamableHandler{Handler: demo}
	defer h.Close()
	initialize := `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"c","version":"1"}}}`
	if v := visit(h, "POST", initialize, "MCP-Protocol-Version: 2026-07-28").answered(); !strings.Contains(v.Body.String(), `"protocolVersion":"2025-11-25"`) {
		t.Error(v.Body)
	}
}

// A response writes something at once, also if the events after the one that its client names were dropped.
func TestBeginsAfterDroppedProgress(t *testing.T) {
	s := &Stream{id: "a", hasIDs: true, buffer: eventBuffer{keep: 1 << 20, last: 3, eventBytes: eventBytes{settled: 3}}} // three events of progress are gone
	f, err := s.attach(httptest.NewRecorder(), "a/1")
	if err != nil || string(f.text) != ":\n\n" {
		t.Errorf("%q, %v", f.text, err)
	}
}

// A session that has ended leaves none of its streams behind in the table.
func TestEndedSessionLeavesNoStream(t *testing.T) {
	h := newHandler(t, newDemo())
	session := openSession(h, "2025-11-25")
	visit(h, "POST", toolCall(1, "count", `{"n":1}`), session).answered()
	h.requests.Wait()
	before := h.Sessions.endedStreams.Len()
	h.Sessions.Delete(h.Sessions.All()[0], ErrSessionDeleted)
	if after := h.Sessions.endedStreams.Len(); before != 1 || after != 0 {
		t.Errorf("%d streams before, %d after", before, after)
	}
}

// An answer for which there is no room becomes an error. A sender that has given up has nothing in use.
func TestNoRoomOnAStream(t *testing.T) {
	s := &Stream{follower: new(follower), buffer: eventBuffer{eventBytes: eventBytes{usedByAll: &counter{limit: 3 * countFrom}}}}
	text := bytes.Repeat([]byte("x"), 2*countFrom)
	_ = s.push(t.Context(), sentEvent{text: text})
	before := s.buffer.usedByAll.taken
	answer := &Message{ID: NumberID(1), Result: json.RawMessage(`{"x":"` + string(text) + `"}`)}
	s.sendAnswer(answer)
	if fault := s.buffer.events[1].fault; fault != errNoMemory || len(s.buffer.events) != 2 || !bytes.Contains(s.buffer.events[1].text, []byte(errNoMemory.Message)) {
		t.Errorf("%v, %d events", fault, len(s.buffer.events))
	}
	s.follower.hasBegun, s.buffer.usedByAll.limit = true, 1<<20
	if err := s.push(canceled(), sentEvent{text: text}); err != context.Canceled || s.buffer.usedByAll.taken != before {
		t.Errorf("%v, %d bytes are in use, want %d", err, s.buffer.usedByAll.taken, before)
	}
}

// A response without a stream has time to be written, however long the request has taken.
func TestShortResponsesHaveTime(t *testing.T) {
	for name, answer := range map[string]func(http.ResponseWriter){"202": accepted, "JSON": func(w http.ResponseWriter) { writeParts(w, 200, nil) }} {
		p := newPaper()
		p.timed, p.until = true, time.Now()
		if answer(p); time.Until(p.until) < stall-time.Second {
			t.Errorf("%s: it must be written within %v", name, time.Until(p.until))
		}
	}
}

// Write deadlines: each write has one, between two there is none, because over HTTP/2 it would reset the stream, and in the end there is
// time for what net/http has to write.
func TestStreamDeadlines(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newLoneStream("s", 0)
		p := newPaper()
		p.timed = true
		done := make(chan struct{})
		go func() { defer close(done); _ = followStream(s, p, httptest.NewRequest("GET", "/", nil), "") }()
		synctest.Wait()
		for range 3 {
			s.tell(t, "x")
			if !p.until.IsZero() || p.left < stall {
				t.Error("there were", p.left, "to write, and afterwards", p.until)
			}
			time.Sleep(2 * stall)
		}
		s.end()
		<-done
		if left := time.Until(p.until); left < stall {
			t.Error("for the last chunk there are", left)
		}
	})
}

// A client that reads slowly gets its answer. One that reads hardly anything is cut off soon: many others may wait for the room of the answer.
func TestSlowReader(t *testing.T) {
	for pause, isServed := range map[time.Duration]bool{time.Second / 10: true, 20 * time.Second: false} {
		synctest.Test(t, func(t *testing.T) {
			h := &StreamableHandler{Handler: newDemo()}
			defer h.Close()
			call := toolCall(1, "echo", fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 1<<20)))
			r := httptest.NewRequest("POST", "/", strings.NewReader(call))
			r.Header = http.Header{"Content-Type": {"application/json"}}
			p := newPaper()
			p.timed, p.pause = true, pause
			began := time.Now()
			h.ServeHTTP(p, r)
			if took := time.Since(began); p.status != 200 || (p.text.Len() > 1<<20) != isServed || took > 2*time.Minute {
				t.Errorf("%v for 16 KiB: %d, %d bytes in %v", pause, p.status, p.text.Len(), took)
			}
		})
	}
}

// Of the body with which a server refuses a request, a client reads the beginning.
func TestRefusalIsBounded(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(403)
		_, _ = w.Write(bytes.Repeat([]byte("x"), 4<<20))
	}))
	defer server.Close()
	for name, dialer := range map[string]Dialer{"Streamable HTTP": HTTPDialer{URL: server.URL}, "HTTP+SSE": SSEDialer{URL: server.URL}} {
		c := &Client{Info: Implementation{Name: "t", Version: "0"}}
		err := c.Connect(t.Context(), dialer)
		refusal, ok := errors.AsType[*HTTPError](err)
		if !ok || refusal.Status != 403 || len(refusal.Body) != 64<<10 {
			t.Errorf("%s: %.200v", name, err)
		}
		c.Close()
	}
}

// ======== session.go ========

const modernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

// Only what the server has not read is sent again. A refusal to continue a response says nothing about the call, whatever status, mark or code it has.
func TestWhatAnErrorMeans(t *testing.T) {
	wrongVersion := versionError(nil, "x")
	for text, row := range map[string]struct {
		err               error
		notRead, outdated bool
	}{
		"not sent":                             {markedError{errSlow, ErrNotSent}, true, false},
		"the version is refused":               {fmt.Errorf("%w: %w", errRefused, wrongVersion), false, true},
		"another server":                       {fmt.Errorf("%w: %w", errRefused, ErrOtherServer), false, true},
		"a refused resume: the session":        {fmt.Errorf("%w: %w", ErrInterrupted, markedError{errSlow, ErrNotSent}), false, false},
		"a refused resume: the version":        {fmt.Errorf("%w: %w: %w", ErrInterrupted, errRefused, wrongVersion), false, false},
		"a refused resume: another server":     {fmt.Errorf("%w: %w: %w", ErrInterrupted, errRefused, ErrOtherServer), false, false},
		"a handler's answer with such a code":  {wrongVersion, false, false},
		"the end of the conversation":          {ErrClosed, false, false},
		"the text of an error before this one": {withEarlier(ErrClosed, markedError{errSlow, ErrNotSent}), false, false},
	} {
		conn := &connection{revision: revision("2026-07-28")}
		if notRead, outdated := conn.classify(row.err); notRead != row.notRead || outdated != row.outdated {
			t.Errorf("%s: not read %v, outdated %v", text, notRead, outdated)
		}
	}
}

// A Server that has not declared logging sends no log messages, whatever its handlers say and its clients ask for. What one sends that has declared
// it stands in testdata/cases/logging.txtar.
func TestLogging(t *testing.T) {
	server := &Server{Methods: map[string]HandlerFunc{"m": func(ctx context.Context, x *Exchange) (any, error) { return nil, x.Log(ctx, "emergency", "text") }}}
	modern := strings.Replace(modernRequest("m", ""), `{}}`, `{},"io.modelcontextprotocol/logLevel":"debug"}`, 1)
	for _, lines := range [][]string{{modern}, {initializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":1,"method":"m"}`}} {
		if out := converse(t, server, lines...); len(out) != len(lines) || !strings.Contains(strings.Join(out, ""), `"id":1,"result":{`) {
			t.Errorf("%q: %q", lines, out)
		}
	}
}

// A stalled client holds up nobody. What has changed in the meantime it hears once, the last word; of a list that was not offered it hears nothing.
func TestPublishNeverWaits(t *testing.T) {
	server := &Server{Capabilities: map[string]any{"tools": struct{}{}, "prompts": map[string]bool{"listChanged": true}, "resources": map[string]bool{"listChanged": true}}}
	server.AnnounceChanges()
	a, b := Pipe()
	go Serve(t.Context(), a, server, nil)
	for _, line := range []string{initializeLine("2025-11-25"), `{"jsonrpc":"2.0","method":"notifications/initialized"}`, `{"jsonrpc":"2.0","id":1,"method":"ping"}`} {
		_ = b.Write(t.Context(), Decode([]byte(line)))
		if strings.Contains(line, `"id"`) {
			_, _ = b.Read()
		}
	}
	for n := range 1000 {
		for _, list := range []string{"tools", "prompts", "resources"} {
			server.Publish("notifications/"+list+"/list_changed", map[string]int{"n": n})
		}
	}
	heard, last := 0, map[string]string{}
	for ; last["notifications/prompts/list_changed"] != "999" || last["notifications/resources/list_changed"] != "999"; heard++ {
		p, err := b.Read()
		if err != nil || heard > 100 {
			t.Fatal(last, err, heard)
		}
		last[p.Messages[0].Method] = string(member(p.Messages[0].Params, "n"))
	}
	if len(last) != 2 {
		t.Error(last)
	}
	b.Close()
	waitFor(t, func() bool { // the peer is forgotten
		c := server.changes.(*changes)
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.legacy) == 0
	})
}

// subscribed returns how many subscriptions there are, in either era.
func (s *Server) subscribed() (n int) {
	c := s.changes.(*changes)
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sub := range c.legacy {
		for change := range sub.wants {
			if change.uri != "" {
				n++
			}
		}
	}
	return n + len(c.listeners)
}

// watchedConn calls a function before it writes.
type watchedConn struct {
	Conn
	before func(text string) error
}

func (w watchedConn) Write(ctx context.Context, p Payload) error {
	if err := w.before(string(p.Append(nil))); err != nil {
		return err
	}
	return w.Conn.Write(ctx, p)
}

// A subscription that is on its way when Listen ends, is undone, and so are the others, also if the server is slow.
func TestListenLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, asked := newDemo(), new(atomic.Int32)
		slow := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
			result, err := server.Handle(ctx, x)
			if strings.HasPrefix(x.Request.Method, "resources/") {
				asked.Add(1)
				time.Sleep(100 * time.Millisecond)
			}
			return result, err
		})
		c := connect(t, slow, &Client{Versions: []string{"2025-11-25"}})
		var uris []string
		for i := range 50 {
			uris = append(uris, fmt.Sprint("note:///", i))
		}
		for _, limit := range []time.Duration{2050 * time.Millisecond, time.Minute} { // while it subscribes, and after that
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			err := c.Listen(ctx, ListenFilter{ResourceSubscriptions: uris})
			cancel()
			if n := asked.Swap(0); !errors.Is(err, context.DeadlineExceeded) || n < 2*20 || server.subscribed() != 0 {
				t.Errorf("%v: after %d requests %d resources are still watched", err, n, server.subscribed())
			}
		}
	})
}

// 2025-11-25 has no batches, so an array is refused. If it has the response to a call of ours, the call ends at once: it would wait in vain.
func TestResponseInARefusedBatch(t *testing.T) {
	checkLeaks(t)
	a, b := Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), a, newDemo(), nil) }()
	say := func(text string) {
		if err := b.Write(t.Context(), Decode([]byte(text))); err != nil {
			t.Fatal(err)
		}
	}
	hear := func() string {
		in, err := b.Read()
		if err != nil {
			t.Fatal(err)
		}
		return string(in.Append(nil))
	}
	say(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"elicitation":{}},"clientInfo":{"name":"c","version":"1"}}}`)
	hear()
	say(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
	say(`{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"ask"}}`)
	if question := hear(); !strings.Contains(question, `"id":1,"method":"elicitation/create"`) {
		t.Fatal(question)
	}
	say(`[{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"Ada"}}}]`)
	answers := []string{hear(), hear()} // two goroutines write them
	slices.Sort(answers)
	if !strings.Contains(answers[0], `"error":{"code":-32600,`) || !strings.Contains(answers[1], `"id":2,"result":{"content":[{"type":"text","text":"The user cannot be asked: invalid response: no batches`) {
		t.Errorf("%q", answers)
	}
	b.Close()
	if err := <-served; err != nil {
		t.Error(err)
	}
}

// When a later round of a call cannot be sent, the server has read the rounds before. So the call is not made again, and its error does not say that it
// may be.
func TestLaterRoundIsNotSent(t *testing.T) {
	server := &Server{Info: Implementation{Name: "t", Version: "0"}}
	AddTool(server, Tool{Name: "ask"}, func(context.Context, *Exchange, struct{}) (any, error) {
		return InputRequired{Requests: map[string]InputRequest{"r": {Method: "roots/list"}}, State: "s"}, nil
	})
	calls := 0
	refuse := func(text string) error {
		if strings.Contains(text, "tools/call") {
			calls++
		}
		if strings.Contains(text, "inputResponses") {
			return ErrNotSent
		}
		return nil
	}
	c := connectThrough(t, server, refuse, &Client{Handlers: map[string]HandlerFunc{
		"roots/list": func(context.Context, *Exchange) (any, error) { return RootsResult{}, nil }}})
	err := c.Call(t.Context(), "tools/call", CallToolParams{Name: "ask"}, nil)
	if calls != 2 || errors.Is(err, ErrNotSent) || !errors.Is(err, ErrInterrupted) {
		t.Errorf("%d requests: %v", calls, err)
	}
}

// An error of a handler that answers a question is not an error of the server.
func TestErrorOfAQuestion(t *testing.T) {
	server := &Server{Methods: map[string]HandlerFunc{"tools/call": func(context.Context, *Exchange) (any, error) {
		return InputRequired{Requests: map[string]InputRequest{"r": {Method: "roots/list"}}}, nil
	}}}
	c := connect(t, server, &Client{Handlers: map[string]HandlerFunc{"roots/list": func(context.Context, *Exchange) (any, error) {
		return nil, &Error{Code: CodeInvalidParams, Message: "no roots today"}
	}}})
	err := c.Call(t.Context(), "tools/call", nil, nil)
	if err == nil || codeOf(err) != 0 || !strings.Contains(err.Error(), "no roots today") {
		t.Error(err)
	}
}

// A tool that asks a legacy client again and again is stopped, and the model is told why.
func TestRoundsAreBounded(t *testing.T) {
	runs := 0
	server := &Server{Methods: map[string]HandlerFunc{"tools/call": func(context.Context, *Exchange) (any, error) {
		if runs++; runs > 2*maxRounds { // it must not go on for ever
			return nil, nil
		}
		return InputRequired{Requests: map[string]InputRequest{"r": {Method: "roots/list"}}}, nil
	}}}
	c := connect(t, server, &Client{Versions: []string{"2025-11-25"}, Handlers: map[string]HandlerFunc{"roots/list": func(context.Context, *Exchange) (any, error) {
		return RootsResult{}, nil
	}}})
	var result ToolResult
	err := c.Call(t.Context(), "tools/call", nil, &result)
	if err != nil || !result.IsError || !strings.Contains(result.Text(), "too many questions") || runs > maxRounds+2 {
		t.Errorf("%d runs: %v %v", runs, result, err)
	}
}

// A method of requests does not run for a notification.
func TestNotificationRunsNoMethod(t *testing.T) {
	server := &Server{Methods: map[string]HandlerFunc{"m": func(context.Context, *Exchange) (any, error) { t.Error("it runs"); return nil, nil }}}
	converse(t, server, initializeLine("2025-11-25"), `{"jsonrpc":"2.0","method":"m"}`)
}

// Progress that does not rise is not sent.
func TestProgressRises(t *testing.T) {
	server := &Server{Methods: map[string]HandlerFunc{"m": func(ctx context.Context, x *Exchange) (any, error) {
		for _, progress := range []float64{0, 0, 2, 1, 2, 3} {
			if err := x.Progress(ctx, progress, 0); err != nil {
				t.Error(err)
			}
		}
		return nil, nil
	}}}
	out := strings.Join(converse(t, server, initializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":1,"method":"m","params":{"_meta":{"progressToken":"t"}}}`), "\n")
	sent := regexp.MustCompile(`"progress":(\d)`).FindAllStringSubmatch(out, -1)
	if len(sent) != 3 || sent[0][1] != "0" || sent[1][1] != "2" || sent[2][1] != "3" {
		t.Error(out)
	}
}

// What a server says of itself is bounded: an empty version of three bytes takes 16 in Go.
func TestHandshakeIsBounded(t *testing.T) {
	for n, want := range map[int]error{1000: nil, maxHandshake: ErrTooLarge} {
		raw := `{"supportedVersions":["2026-07-28"` + strings.Repeat(`,""`, n) + `]}`
		if err := bindHandshake(json.RawMessage(raw), new(DiscoverResult)); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", len(raw), err)
		}
	}
}

// Of the schema that legacy clients see, only the marks of properties are taken out, at each level.
func TestWithoutMarks(t *testing.T) {
	got := withoutMarks(json.RawMessage(`{"type":"object","x-mcp-header":"A","properties":{` +
		`"x-mcp-header":{"type":"string","x-mcp-header":"B"},"o":{"properties":{"p":{"x-mcp-header":"C"}}}},"default":{"x-mcp-header":1}}`))
	const want = `{"type":"object","x-mcp-header":"A","properties":{"x-mcp-header":{"type":"string"},"o":{"properties":{"p":{}}}},"default":{"x-mcp-header":1}}`
	if string(got) != want {
		t.Errorf("%s", got)
	}
	tool := revision("2025-11-25").withoutUnknown("tools", json.RawMessage(`{"name":"t","inputSchema":{"type":"object","properties":{"a":{"x-mcp-he\u0061der":"A"}}}}`))
	if string(tool) != `{"name":"t","inputSchema":{"type":"object","properties":{"a":{}}}}` {
		t.Errorf("a mark with an escape: %s", tool)
	}
}

// What the clients watch is counted while they watch it: its bytes in either era, and the subscriptions of 2026-07-28. Beyond the bounds nothing
// more is watched.
func TestWhatIsWatchedIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		demo := newDemo()
		all := demo.changes.(*changes)
		remembered := func(add int) int {
			all.mu.Lock()
			defer all.mu.Unlock()
			all.remembered += add
			return all.remembered
		}
		legacy, uri := connect(t, demo, &Client{Versions: []string{"2025-11-25"}}), ResourceParams{"note:///a"}
		watch := func(method string) error { return legacy.Call(t.Context(), "resources/"+method, uri, nil) }
		if err := watch("subscribe"); err != nil || remembered(0) == 0 {
			t.Error(err, remembered(0))
		}
		if err := watch("unsubscribe"); err != nil || remembered(0) != 0 {
			t.Error(err, remembered(0))
		}
		modern := connect(t, demo, &Client{Versions: []string{"2026-07-28"}})
		listen := func(limit time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), limit)
			defer cancel()
			return modern.Listen(ctx, ListenFilter{ToolsListChanged: true})
		}
		if err := listen(time.Second); err != context.DeadlineExceeded {
			t.Error(err)
		}
		if synctest.Wait(); remembered(0) != 0 {
			t.Error(remembered(0), "bytes are left")
		}
		remembered(maxRemembered)
		if err := watch("subscribe"); err == nil || remembered(0) != maxRemembered {
			t.Error("beyond the bound:", err, remembered(-maxRemembered))
		}
		if err := listen(time.Minute); err == nil || err == context.DeadlineExceeded || remembered(0) != maxRemembered {
			t.Error("beyond the bound:", err, remembered(0))
		}
		remembered(-maxRemembered)
		var others []*subscriber
		for range maxListeners {
			_, sub := all.newListener(ListenFilter{})
			if others = append(others, sub); !all.addListener(sub) {
				t.Fatal(len(others))
			}
		}
		if err := listen(time.Minute); err == nil || err.Error() != errListeners.Error() {
			t.Error("beyond the bound:", err)
		}
		if err := modern.Call(t.Context(), "tools/list", nil, nil); err != nil {
			t.Error("another request:", err)
		}
		all.removeListener(others[0])
		if err := listen(time.Second); err != context.DeadlineExceeded {
			t.Error("there should be room again:", err)
		}
		for _, sub := range others {
			all.removeListener(sub)
		}
		if synctest.Wait(); demo.subscribed() != 0 {
			t.Error(demo.subscribed(), "subscriptions are left")
		}
	})
}

// What a revision does not know is not sent to its clients, nor to its servers.
func TestWhatARevisionKnows(t *testing.T) {
	const tool = `{"name":"t","title":"T","outputSchema":{},"annotations":{},"icons":[],"_meta":{}}`
	const prompt = `{"name":"p","arguments":[{"name":"a","title":"A"}]}`
	for version, want := range map[string][2]string{
		"2024-11-05": {`{"name":"t"}`, `{"name":"p","arguments":[{"name":"a"}]}`},
		"2025-03-26": {`{"name":"t","annotations":{}}`, `{"name":"p","arguments":[{"name":"a"}]}`},
		"2025-06-18": {`{"name":"t","title":"T","outputSchema":{},"annotations":{},"_meta":{}}`, prompt},
		"2025-11-25": {tool, prompt},
	} {
		rev := revision(version)
		if got := [2]string{string(rev.withoutUnknown("tools", []byte(tool))), string(rev.withoutUnknown("prompts", []byte(prompt)))}; got != want {
			t.Error(version, got)
		}
		if got := string(rev.withoutUnknown("resources", []byte(`{"annotations":{}}`))); got != `{"annotations":{}}` { // those of resources are older
			t.Error(version, got)
		}
		server, isNew := &Server{}, version >= "2025-06-18"
		AddTool(server, Tool{Name: "t"}, func(ctx context.Context, x *Exchange, _ struct{}) (any, error) {
			if icons := x.Meta().ClientInfo.Icons; icons != nil { // they are not remembered
				t.Error(icons)
			}
			return map[string]string{"x": "y"}, x.ProgressMessage(ctx, 1, 0, "hello")
		})
		hello := strings.Replace(initializeLine(version), `"version":"0"`, `"version":"0","icons":[{"src":"data:"}]`, 1)
		out := strings.Join(converse(t, server, hello, toolCall(1, "t", "{}")), "\n")
		if strings.Contains(out, `"structuredContent"`) != isNew || strings.Contains(out, "hello") != (version > "2024-11-05") || !strings.Contains(out, `"progress":1`) {
			t.Error(version, out)
		}
		said, c := "", &Client{Versions: []string{version}, Info: Implementation{Name: "c", Title: "C", Version: "1"}}
		err := c.Connect(t.Context(), DialerFunc(func(context.Context) (Conn, error) {
			_, b := Pipe()
			return watchedConn{b, func(text string) error { said = text; return ErrClosed }}, nil
		}))
		if err == nil || strings.Contains(said, `"title"`) != isNew {
			t.Error(version, said)
		}
		c.Close()
	}
}

// A requestState is good for the request that it was made for, and for a while. The order of the params does not matter, nor what a retry adds.
func TestRequestState(t *testing.T) {
	server := new(Server)
	server.once.Do(server.prepare)
	exchange := func(method, params, principal string) *Exchange {
		return &Exchange{Request: &Message{Method: method, Params: json.RawMessage(params)}, Principal: principal}
	}
	made, later := exchange("tools/call", `{"a1":2,"b":3}`, "ada"), time.Now().Add(time.Minute)
	sealed := server.seal(made, "state", later)
	for name, row := range map[string]struct {
		sealed string
		x      *Exchange
		isGood bool
	}{
		"as it was made":    {sealed, made, true},
		"a retry":           {sealed, exchange("tools/call", `{"b":3,"requestState":"x","inputResponses":{},"_meta":{},"a1":2}`, "ada"), true},
		"changed":           {sealed[:40] + string(sealed[40]^1) + sealed[41:], made, false},
		"nothing":           {"", made, false},
		"of another server": {(&Server{configuration: configuration{sealer: newSealer(nil)}}).seal(made, "state", later), made, false},
		"expired":           {server.seal(made, "state", time.Now().Add(-time.Minute)), made, false},
		"another method":    {sealed, exchange("prompts/get", `{"a1":2,"b":3}`, "ada"), false},
		"another principal": {sealed, exchange("tools/call", `{"a1":2,"b":3}`, "bob"), false},
		"other params":      {sealed, exchange("tools/call", `{"a1":2,"b":4}`, "ada"), false},
		"params alike":      {sealed, exchange("tools/call", `{"a":12,"b":3}`, "ada"), false},
	} {
		if err := server.unseal(row.x, row.sealed); (err == nil) != row.isGood || row.isGood && row.x.State() != "state" || !row.isGood && row.x != made && row.x.State() != "" {
			t.Errorf("%s: %v, %q", name, err, row.x.State())
		}
	}
}

// What is published while the acknowledgement is being sent comes after it.
func TestListenAcknowledgesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		demo := newDemo()
		publish := func(text string) error {
			if strings.Contains(text, "acknowledged") {
				demo.Publish("notifications/resources/list_changed", nil)
			}
			return nil
		}
		a, b := Pipe()
		go Serve(t.Context(), watchedConn{a, publish}, demo, nil)
		_ = b.Write(t.Context(), Decode([]byte(modernRequest("subscriptions/listen", `"notifications":{"resourcesListChanged":true}`))))
		for _, want := range []string{"notifications/subscriptions/acknowledged", "notifications/resources/list_changed"} {
			if p, err := b.Read(); err != nil || p.Messages[0].Method != want {
				t.Error(p, err)
			}
		}
		b.Close()
		time.Sleep(time.Minute)
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// ======== http.go ========

const ping = `{"jsonrpc":"2.0","id":1,"method":"ping"}`

const saysOK = `{"jsonrpc":"2.0","id":1,"result":{}}`
const saysGone = "Session not found\n" // no message, or the Go SDK takes it for the answer to its call, and never opens another session

// A Host that is more than a host and a port is no good one: those are here that a Go client does not send. And a refusal names what is
// refused, and where to list it, in the answer and in the log: as fields of Guard, or as the program calls them.
func TestGuard(t *testing.T) {
	local := context.WithValue(t.Context(), http.LocalAddrContextKey, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 80})
	for _, guard := range []Guard{{}, {OriginsName: "-origins", HostsName: "-hosts"}} {
		var logged lockedBuffer
		guard.Log = slog.New(slog.NewTextHandler(&logged, nil))
		for _, h := range []http.Handler{&StreamableHandler{Handler: newDemo(), Guard: guard}, &SSEHandler{Handler: newDemo(), Guard: guard}} {
			for _, host := range []string{"", "localhost/x", "[::1", "[::1%eth0]:80", "[::1%@evil.com]:80", "localhost"} {
				r := httptest.NewRequestWithContext(local, "POST", "/", strings.NewReader(ping))
				why := fmt.Sprintf("Host not allowed: %q; to allow it, use %s", host, cmp.Or(guard.HostsName, "Guard.Hosts"))
				if r.Host = host; host == "localhost" {
					why = `Origin not allowed: "http://evil.com"; to allow it, use ` + cmp.Or(guard.OriginsName, "Guard.Origins")
					r.Header.Set("Origin", "http://evil.com")
				}
				w := httptest.NewRecorder()
				if h.ServeHTTP(w, r); w.Code != 403 || unquote(lookup(w.Body.Bytes(), "error", "message")) != why || !strings.Contains(logged.String(), "reason="+strconv.Quote(why)) {
					t.Errorf("host %q: %d %s, want %s; the log is %s", host, w.Code, w.Body, why, &logged)
				}
			}
		}
	}
}

// A handler knows who asks, the header of its POST, and what middleware has put into the context of that.
// A session belongs to whoever has opened it: with another's credentials it is unknown. An AuthError says how a refusal
// is answered.
func TestAuthentication(t *testing.T) {
	type key struct{}
	demo, heard := newDemo(), make(chan string, 10)
	spy := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		heard <- fmt.Sprint(x.Request.Method, " ", x.Principal, " ", http.Header(x.Header).Get("X-Value"), " ", ctx.Value(key{}))
		if ctx.Err() != nil || context.Cause(ctx) != nil {
			t.Error(x.Request, ctx.Err(), context.Cause(ctx))
		}
		return demo.Handle(ctx, x)
	})
	guard := Guard{Authenticate: func(r *http.Request) (string, error) {
		user, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		if user == "weak" {
			return "", &AuthError{Status: 403, Challenge: `Bearer error="insufficient_scope", scope="mcp"`}
		}
		return user, map[bool]error{false: errors.New("who?")}[ok]
	}}
	mcp, sse, mux := newHandler(t, spy), &SSEHandler{Handler: spy, Guard: guard}, http.NewServeMux()
	mcp.Guard = guard
	t.Cleanup(sse.Close)
	mux.Handle("/mcp", mcp)
	mux.Handle("/stateless", &StreamableHandler{Handler: spy, Guard: guard})
	mux.Handle("/sse", sse)
	site := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mux.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), key{}, r.Header.Get("X-Value"))))
	})
	for _, path := range []string{"/mcp", "/sse", "/sse?session=x"} {
		for _, method := range []string{"GET", "POST", "DELETE", "PUT", "OPTIONS"} {
			for line, want := range map[string]string{"X: y": "401 Bearer", "Authorization: Bearer weak": `403 Bearer error="insufficient_scope", scope="mcp"`} {
				if v := visit(site, method+" "+path, ping, line).answered(); fmt.Sprint(v.Code, " ", v.Header().Get("WWW-Authenticate")) != want {
					t.Errorf("%s %s: %d %s, want %s", method, path, v.Code, v.Header(), want)
				}
			}
		}
	}
	const note, two = `{"jsonrpc":"2.0","method":"x"}`, `[` + ping + `,{"jsonrpc":"2.0","id":2,"method":"ping"}]`
	const ada, bob = "Authorization: Bearer ada; X-Value: a", "Authorization: Bearer bob"
	const session, event, modern = "; Mcp-Session-Id: session-1", "; Mcp-Session-Id: session-1; Last-Event-ID: 84097828.1/1", "; MCP-Protocol-Version: 2026-07-28"
	opened := newPaper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r := httptest.NewRequestWithContext(ctx, "GET", "/sse", nil)
	r.Header = http.Header{"Accept": {"text/event-stream"}, "Authorization": {"Bearer ada"}, "X-Value": {"b"}}
	go site.ServeHTTP(opened, r)
	waitFor(t, func() bool { data, _, _ := opened.data(); return len(data) > 0 })
	endpoint, _, _ := opened.data()
	for _, row := range []struct{ request, lines, body, want string }{
		{"POST /mcp", ada, initializeLine("2025-03-26"), "200 initialize ada a a"},
		{"POST /mcp", ada + session, note, "202 x ada a a"},
		{"POST /mcp", ada + session, two, "200 ping ada a a, ping ada a a"},
		{"POST /mcp", ada + session, toolCall(2, "count", `{"n":1}`), "200 tools/call ada a a"},
		{"POST /mcp", bob + session, ping, "404"}, {"POST /mcp", bob + session, saysOK, "404"}, {"GET /mcp", bob + session, "", "404"},
		{"GET /mcp", bob + event, "", "404"}, {"DELETE /mcp", bob + session, "", "404"}, {"GET /mcp", ada + event, "", "200"},
		{"POST /mcp", ada + session, ping, "200 ping ada a a"},
		{"POST /mcp", ada + modern + "; Mcp-Method: tools/call; Mcp-Name: echo", modernEcho, "200 tools/call ada a a"},
		{"POST /mcp", ada + modern, note, "202 x ada a a"},
		{"POST /stateless", ada, initializeLine("2025-11-25"), "200 initialize ada a a"},
		{"POST /stateless", ada, note, "202 x ada a a"}, {"POST /stateless", ada, ping, "200 ping ada a a"},
		{"POST " + endpoint[0], bob, ping, "404"}, {"POST " + endpoint[0], ada, ping, "202 ping ada a a"}, {"POST " + endpoint[0], ada, note, "202 x ada a a"},
	} {
		v := visit(site, row.request, row.body, strings.Split(row.lines, "; ")...)
		if !closedWithin(time.Minute, v.done) { // a stream that should not be there has no end
			t.Fatalf("%s with %s %s does not end, want %s", row.request, row.lines, row.body, row.want)
		}
		got := []string{}
		for range strings.Count(row.want, "ada") {
			got = append(got, <-heard)
		}
		isSessions := strings.HasSuffix(row.request, " /mcp")
		if got := strings.TrimSpace(fmt.Sprint(v.Code, " ", strings.Join(got, ", "))); got != row.want || v.Code == 404 && isSessions && v.Body.String() != saysGone || len(heard) > 0 {
			t.Errorf("%s with %s %s: %s %s, want %s", row.request, row.lines, row.body, got, v.Body, row.want)
		}
	}
}

// A body is bounded whether or not its length is told; if it is told, nothing of it is read. What is cut off is no message.
func TestHTTPLimits(t *testing.T) {
	h := newHandler(t, newDemo())
	h.MaxBody = 1000
	_, session, _ := strings.Cut(openSession(h, "2025-11-25"), ": ")
	for _, row := range []struct {
		length int64
		body   io.Reader
		want   int
	}{{-1, strings.NewReader(ping + strings.Repeat(" ", 1000)), 413}, {1001, iotest.ErrReader(errors.New("it is read")), 413},
		{99, io.MultiReader(strings.NewReader(ping), iotest.ErrReader(io.ErrUnexpectedEOF)), 400}, {-1, strings.NewReader(ping), 200}} {
		w, r := httptest.NewRecorder(), httptest.NewRequest("POST", "/mcp", row.body)
		r.Header, r.ContentLength = http.Header{"Content-Type": {"application/json"}, "Mcp-Session-Id": {session}}, row.length
		if h.ServeHTTP(w, r); w.Code != row.want {
			t.Errorf("length %d: %d %s, want %d", row.length, w.Code, w.Body, row.want)
		}
	}
}

// When all bytes are in use, small calls go on. A large body gets 503: nothing has run. A large answer becomes an error. Progress that is large is dropped,
// and any other message is an error for its handler. With the bytes given back all is well again.
func TestBytesInUse(t *testing.T) {
	demo, sent := newDemo(), make(chan []error, 1)
	demo.Methods["talk"] = func(ctx context.Context, x *Exchange) (any, error) {
		text := map[string]string{"text": strings.Repeat("x", 2*countFrom)}
		sent <- []error{x.Notify(ctx, "notifications/message", nil), x.Notify(ctx, "notifications/progress", text), x.Notify(ctx, "notifications/message", text)}
		return nil, nil
	}
	h := newHandler(t, demo)
	session := openSession(h, "2025-11-25")
	echo := func(length, repeat int) string {
		return toolCall(1, "echo", fmt.Sprintf(`{"text":%q,"repeat":%d}`, strings.Repeat("x", length), repeat))
	}
	for _, isFull := range []bool{true, false} {
		if isFull && !h.used.take(int(h.used.limit)) {
			t.Fatal("there is no room at the beginning")
		}
		for name, row := range map[string]struct {
			body   string
			status int // when it is full
		}{"small": {echo(100, 1), 200}, "4 KiB": {echo(countFrom-300, 1), 200}, "a large body": {echo(countFrom, 1), 503}, "a large answer": {echo(100, 100), 200}} {
			want := map[bool]int{true: row.status, false: 200}[isFull]
			isRefused := isFull && strings.Contains(name, "large")
			v := visit(h, "POST", row.body, session).answered()
			if v.Code != want || (v.Header().Get("Retry-After") != "") != (want == 503) || strings.Contains(v.Body.String(), errNoMemory.Message) != isRefused {
				t.Errorf("%s, full %v: %d %.200s", name, isFull, v.Code, v.Body)
			}
		}
		v := visit(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"talk"}`, session).answered()
		errs, events := <-sent, strings.Count(v.Body.String(), "data: {")
		if errs[0] != nil || errs[1] != nil || (errs[2] == error(errNoMemory)) != isFull || events != map[bool]int{true: 2, false: 4}[isFull] {
			t.Errorf("full %v: %v, %d events", isFull, errs, events)
		}
		if isFull {
			h.used.give(int(h.used.limit))
		}
	}
	if n := h.used.taken; n != 0 {
		t.Error(n, "bytes are still in use")
	}
}

// Where there is no room, neither an answer of the client nor a result is counted, whether its size is known or not.
func TestNoRoomForResults(t *testing.T) {
	h := newHandler(t, newDemo())
	h.once.Do(h.prepare)
	h.used.take(int(h.used.limit))
	text := strings.Repeat("x", 2*countFrom)
	for name, use := range map[string]func(x *Exchange) error{
		"an answer":          func(x *Exchange) error { return x.useBytes(len(text)) },
		"a result":           func(x *Exchange) error { _, err := x.encode(map[string]string{"x": text}); return err },
		"a result of a size": func(x *Exchange) error { _, err := x.encode(ToolError("%s", text)); return err },
	} {
		x := Exchange{used: &reservation{of: &h.used}}
		h.countResults(&x, Payload{used: x.used})
		if err := use(&x); err != error(errNoMemory) || x.used.results != 0 || h.used.taken != h.used.limit {
			t.Errorf("%s: %v, %d of %d", name, err, x.used.results, h.used.taken-h.used.limit)
		}
	}
}

// Large results are encoded a few at a time, because that needs several times their memory.
func TestFewAreEncoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		h.once.Do(h.prepare)
		var now, most atomic.Int32
		var all sync.WaitGroup
		slow := sizedResult{2 * countFrom, func() {
			most.Store(max(most.Load(), now.Add(1)))
			time.Sleep(time.Second)
			now.Add(-1)
		}}
		for range 4 * cap(h.encoders) {
			all.Go(func() { _, _ = h.encode(slow, &reservation{of: &h.used}) })
		}
		all.Wait()
		if n := int(most.Load()); n != cap(h.encoders) {
			t.Error(n, "at a time")
		}
	})
}

func takenOf(c *counter) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.taken
}

// A client may go at any moment: before its response begins, while it begins, and after the handler has ended. No sender is left behind, and
// nothing stays in use.
func TestClientsGo(t *testing.T) {
	demo := newDemo()
	demo.Methods["talk"] = func(ctx context.Context, x *Exchange) (any, error) {
		for range 20 {
			_ = x.Notify(ctx, "notifications/message", map[string]string{"text": strings.Repeat("x", 5000)})
		}
		return nil, nil
	}
	h := &StreamableHandler{Handler: demo, Sessions: &Sessions{Keep: 1 << 20}}
	session := openSession(h, "2025-11-25")
	var gone []visitor
	for n := range 100 {
		body := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"talk"}`, n)
		v := visit(h, "POST", body, session)
		other := visit(h, "POST", modernRequest("talk", ""), modernLines("talk")...)
		for range n % 10 {
			runtime.Gosched()
		}
		v.leave()
		other.leave()
		gone = append(gone, v, other)
	}
	for _, v := range gone {
		v.answered()
	}
	h.requests.Wait()
	if n := takenOf(&h.used) + takenOf(&h.running); n != 0 {
		t.Error(n, "are still in use")
	}
	h.Close()
	if n := takenOf(&h.kept); n != 0 {
		t.Error(n, "bytes are still kept")
	}
}

// A client that has gone before its GET is answered leaves no response behind for which senders would wait.
func TestGoneBeforeItListens(t *testing.T) {
	h := newHandler(t, newDemo())
	session := openSession(h, "2025-11-25")
	visit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(canceled()))
	}), "GET", "", session).answered()
	if s := h.Sessions.All()[0].standalone; s.follower != nil {
		t.Error("the stream is still followed")
	}
}

// A client may close only its half of the connection. What it gets then is no empty 200, which would be an answer.
func TestGoneGetsNoAnswer(t *testing.T) {
	h := newHandler(t, HandlerFunc(func(ctx context.Context, _ *Exchange) (any, error) { <-ctx.Done(); return nil, nil }))
	v := visit(h, "POST", modernRequest("m", ""), modernLines("m")...)
	v.leave()
	if v.answered(); v.Code != statusClientGone || v.Body.Len() > 0 {
		t.Error(v.Code, v.Body)
	}
}

// A client that accepts only JSON gets its answer however long that takes: the WriteTimeout of the server does not end the response.
func TestJSONTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		h := newHandler(t, HandlerFunc(func(context.Context, *Exchange) (any, error) { <-release; return nil, nil }))
		p := newPaper()
		p.timed, p.until = true, time.Now().Add(2*time.Second)
		v := visit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h.ServeHTTP(p, r) }), "POST", modernRequest("m", ""),
			append(modernLines("m"), "Accept: application/json")...)
		time.Sleep(1500 * time.Millisecond)
		synctest.Wait()
		if !p.until.IsZero() {
			t.Error("it must be written within", time.Until(p.until))
		}
		close(release)
		v.answered()
	})
}

// When the answer comes in the moment in which its response becomes a stream, it comes once.
func TestAnswerAfterASecond(t *testing.T) {
	for range 100 {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, HandlerFunc(func(context.Context, *Exchange) (any, error) { time.Sleep(decideAfter); return nil, nil }))
			defer h.Close()
			v := visit(h, "POST", modernRequest("m", ""), modernLines("m")...).answered()
			if n := strings.Count(v.Body.String(), `"result"`); n != 1 || v.Code != 200 {
				t.Error(v.Code, v.Body)
			}
		})
	}
}

// An answer that goes out as JSON is not kept, nor is anything of a stream without ids. The answers of a batch are one array, whatever their sizes.
func TestJSONIsNotKept(t *testing.T) {
	for _, keep := range []int{0, 1 << 20} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, newDemo())
			h.Sessions.Keep = keep
			session := openSession(h, "2025-03-26")
			large := fmt.Sprintf(`{"text":%q}`, strings.Repeat("x", 100<<10))
			v := visit(h, "POST", "["+toolCall(1, "echo", large)+","+toolCall(2, "echo", `{"text":"a"}`)+","+toolCall(3, "echo", large)+"]", session).answered()
			in := Decode(v.Body.Bytes())
			if len(in.Messages) != 3 || !in.Batch || v.Header().Get("Content-Length") != strconv.Itoa(v.Body.Len()) {
				t.Errorf("%d messages, %s bytes announced, %d sent", len(in.Messages), v.Header().Get("Content-Length"), v.Body.Len())
			}
			if n := takenOf(&h.kept); n != 0 {
				t.Error(n, "bytes are kept")
			}
			visit(h, "POST", toolCall(4, "count", `{"n":1}`), session).answered()
			synctest.Wait()
			if streams := len(h.Sessions.All()[0].streams); h.used.taken != 0 || h.kept.taken > 0 != (keep > 0) || streams > 0 != (keep > 0) {
				t.Errorf("of %d, %d bytes are kept, in %d streams, and %d in use", keep, h.kept.taken, streams, h.used.taken)
			}
		})
	}
}

// A session that is deleted while a response becomes a stream keeps nothing of it: nobody could give that back.
func TestNothingIsKeptAfterTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		demo := newDemo()
		demo.Methods["late"] = func(_ context.Context, x *Exchange) (any, error) {
			time.Sleep(300 * time.Millisecond)
			_ = x.Notify(context.Background(), "notifications/message", map[string]any{"level": "error", "data": "x"})
			return nil, nil
		}
		h := newHandler(t, demo)
		session := openSession(h, "2025-11-25")
		v := visit(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"late"}`, session)
		time.Sleep(100 * time.Millisecond)
		visit(h, "DELETE", "", session).answered()
		v.answered()
		h.Close()
		if h.kept.taken != 0 || h.used.taken != 0 || h.running.taken != 0 {
			t.Errorf("kept %d, used %d, running %d: %s", h.kept.taken, h.used.taken, h.running.taken, v.Body)
		}
	})
}

// The sweep stops the calls that were there when it looked, and not those of a client that has come back since.
func TestSweepStopsNoNewCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		demo, running := newDemo(), new(atomic.Int32)
		demo.Methods["wait"] = func(ctx context.Context, _ *Exchange) (any, error) {
			running.Add(1)
			defer running.Add(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}
		h := newHandler(t, demo)
		h.MaxRequests, h.Sessions.IdleTimeout = 2, -1
		h.Sessions.Ended = func(*Session) { time.Sleep(300 * time.Millisecond) }
		began := time.Now() // of the sweeps
		silent, other := openSession(h, "2025-11-25"), openSession(h, "2025-11-25")
		visit(h, "POST", ping, other).answered()
		for i := range 2 {
			v := visit(h, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"wait"}`, i), silent)
			time.Sleep(2 * time.Second)
			v.leave()
		}
		openSession(h, "2025-11-25") // which is not used, so the sweep ends it
		time.Sleep(3*sweepEvery - time.Since(began) - time.Second)
		if v := visit(h, "POST", ping, other).answered(); v.Code != 503 {
			t.Error(v.Code)
		}
		time.Sleep(time.Second + 100*time.Millisecond)
		v := visit(h, "POST", `{"jsonrpc":"2.0","id":20,"method":"wait"}`, silent)
		time.Sleep(time.Second)
		if n := running.Load(); n != 1 {
			t.Errorf("%d calls run", n)
		}
		v.leave()
	})
}

// A session whose Peer the program has closed is not found any more, and the next sweep removes it.
func TestClosedPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		session := openSession(h, "2025-11-25")
		_ = h.Sessions.All()[0].Peer.Close()
		if v := visit(h, "POST", ping, session).answered(); v.Code != 404 {
			t.Error(v.Code, v.Body)
		}
		time.Sleep(2 * sweepEvery)
		synctest.Wait()
		if n := h.Sessions.Len(); n != 0 {
			t.Errorf("%d sessions are left", n)
		}
	})
}

// sizedResult is a result that knows its size, and calls a function while it is encoded.
type sizedResult struct {
	size   int
	encode func()
}

func (r sizedResult) textSize() int { return r.size }

func (r sizedResult) MarshalJSON() ([]byte, error) {
	r.encode()
	return fmt.Appendf(nil, `{"x":%q}`, strings.Repeat("x", r.size)), nil
}

// The result of a request is counted before it is encoded, in a batch, too. There the body is counted as long as a request needs it.
func TestResultsAreCounted(t *testing.T) {
	var seen []int64
	demo := newDemo()
	h := newHandler(t, demo)
	demo.Methods["large"] = func(context.Context, *Exchange) (any, error) {
		return sizedResult{5000, func() { seen = append(seen, takenOf(&h.used)) }}, nil
	}
	session := openSession(h, "2025-03-26")
	call := fmt.Sprintf(`{"jsonrpc":"2.0","id":%%d,"method":"large","params":{"x":%q}}`, strings.Repeat("x", 3000))
	one, other := fmt.Sprintf(call, 1), fmt.Sprintf(call, 2)
	batch := "[" + one + "," + other + "]"
	if v := visit(h, "POST", batch, session, "Accept: application/json").answered(); v.Code != 200 {
		t.Error(v.Code, v.Body)
	}
	body, answer := int64(2*len(batch)), seen[1]-seen[0]
	if seen[0] != body+5000 || answer < 5000 || answer > 5200 {
		t.Errorf("%d bytes are in use, of a body of %d", seen, len(batch))
	}
	if v := visit(h, "POST", one, session, "Accept: application/json").answered(); v.Code != 200 || seen[2] != 5000 {
		t.Error(v.Code, seen)
	}
	// The small results of a batch are written together, so each of them counts.
	demo.Methods["small"] = func(context.Context, *Exchange) (any, error) {
		seen = append(seen, takenOf(&h.used))
		return map[string]string{"x": strings.Repeat("x", 1000)}, nil
	}
	_ = visit(h, "POST", `[{"jsonrpc":"2.0","id":1,"method":"small"},{"jsonrpc":"2.0","id":2,"method":"small"}]`, session, "Accept: application/json").answered()
	if first := seen[4] - seen[3]; first < 1000 || first > 1200 {
		t.Errorf("the first of two results counts %d bytes", first)
	}
	h.Close()
	if h.used.taken != 0 {
		t.Errorf("%d bytes are in use at the end", h.used.taken)
	}
}

// A panic in a function of the program, here for the marks of a tool, leaves no bytes in use.
func TestPanicLeavesNothing(t *testing.T) {
	h := newHandler(t, newDemo())
	h.HeaderParams = func(string) []HeaderParam { panic("unknown tool") }
	recovering := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() { _ = recover() }() // as net/http does
		h.ServeHTTP(w, r)
	})
	body := modernRequest("tools/call", `"name":"t","arguments":{"x":"`+strings.Repeat("x", 2*countFrom)+`"}`)
	visit(recovering, "POST", body, modernLines("tools/call", "t")...).answered()
	if n := takenOf(&h.used) + takenOf(&h.running); n != 0 {
		t.Error(n, "bytes and places are still in use")
	}
}

// A client must not take the path of a stream for another host.
func TestEndpointURI(t *testing.T) {
	r := httptest.NewRequest("GET", "/", nil)
	for requested, want := range map[string]string{
		"//evil.example/sse?key=1": "/evil.example/sse?key=1&session=s",
		"http://u:p@localhost/sse": "/sse?session=s",
	} {
		r.RequestURI = requested
		if got := endpointURI(r, "s"); got != want {
			t.Error(got)
		}
	}
}

// An error shows neither the query of a URL nor its password, even if that is none.
func TestURLWithoutQuery(t *testing.T) {
	c := &Client{Info: Implementation{Name: "t", Version: "0"}, Versions: []string{"2025-11-25"}}
	defer c.Close()
	for _, target := range []string{"http://127.0.0.1:1/mcp?key=s3cret", "http://127.0.0.1/mcp?key=s3cret\x7f", "http://u:s3cret@exa mple/mcp", "http://u:s3cret@127.0.0.1:1/mcp"} {
		err := c.Connect(t.Context(), HTTPDialer{URL: target})
		if err == nil || !strings.Contains(err.Error(), "initialize: ") || strings.Contains(err.Error(), "s3cret") {
			t.Error(err)
		}
	}
}

// A handler may return an Object, and an Object may be params. Its members keep their bytes.
func TestObjectIsEncoded(t *testing.T) {
	var o Object
	o.Add("a", []byte("[ 1]"))
	for _, v := range []any{o, &o} {
		if raw, err := marshalObject(v); err != nil || string(raw) != `{"a":[ 1]}` {
			t.Errorf("%T: %s %v", v, raw, err)
		}
	}
	before, _ := o.MarshalJSON()
	o.Add("b", []byte("2"))
	if after, _ := o.MarshalJSON(); string(before) != `{"a":[ 1]}` || string(after) != `{"a":[ 1],"b":2}` {
		t.Errorf("%s, and with one more member %s", before, after)
	}
}

// A Handler that embeds a Server has its marks, so the fields of the header are checked.
func TestEmbeddedServer(t *testing.T) {
	server := &Server{Info: Implementation{Name: "s", Version: "1"}}
	AddTool(server, Tool{Name: "t", InputSchema: json.RawMessage(`{"type":"object","properties":{"a":{"type":"string","x-mcp-header":"A"}}}`)},
		func(context.Context, *Exchange, json.RawMessage) (any, error) { return nil, nil })
	h := &StreamableHandler{Handler: struct{ *Server }{server}}
	for value, want := range map[string]int{"x": 200, "y": 400} {
		v := visit(h, "POST", modernRequest("tools/call", `"name":"t","arguments":{"a":"x"}`), "Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: tools/call", "Mcp-Name: t", "Mcp-Param-A: "+value).answered()
		if v.Code != want {
			t.Errorf("%s: %d %s", value, v.Code, v.Body)
		}
	}
}

// A handler offers what its Server offers: here a legacy client is told so, before it is asked for a session.
func TestVersionsOfTheServer(t *testing.T) {
	h := &StreamableHandler{Handler: &Server{Versions: []string{"2026-07-28"}}, Sessions: new(Sessions)}
	v := visit(h, "POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`).answered()
	if v.Code != 400 || !strings.Contains(v.Body.String(), `"supported":["2026-07-28"]`) {
		t.Errorf("%d %s", v.Code, v.Body)
	}
}

// A Server behind ServeConn says what is wrong.
func TestServeConnOfMCP(t *testing.T) {
	ours, theirs := Pipe()
	go ServeConn(t.Context(), theirs, newDemo(), nil)
	p := OpenConn(t.Context(), ours, nil, nil)
	defer p.Close()
	if err := p.Call(t.Context(), "initialize", nil, nil); err == nil || !strings.Contains(err.Error(), "use Serve") {
		t.Error(err)
	}
}

// What ended streams keep does not push out what a call needs that goes on: a client that was cut off gets all that it has missed.
func TestEndedStreamsMakeRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		if h.once.Do(h.prepare); h.kept.limit != 40<<20 {
			t.Errorf("all streams keep %d bytes", h.kept.limit)
		}
		h.kept.limit = 64 << 10 // each count to 20 keeps about 8 kB
		count := func(session string) visitor {
			return visit(h, "POST", toolCall(1, "count", `{"n":20,"delayMs":100}`), session)
		}
		for range 20 {
			count(openSession(h, "2025-11-25")).answered()
		}
		synctest.Wait()
		if n := h.Sessions.endedStreams.Len(); n == 0 || n == 20 {
			t.Errorf("%d of 20 ended streams are kept", n)
		}
		session := openSession(h, "2025-11-25")
		v := count(session)
		time.Sleep(450 * time.Millisecond)
		v.leave()
		v.answered()
		time.Sleep(time.Minute)
		synctest.Wait()
		ids := regexp.MustCompile(`(?m)^id: (.*)$`).FindAllStringSubmatch(v.Body.String(), -1)
		rest := visit(h, "GET", "", session, "Last-Event-ID: "+ids[len(ids)-1][1]).answered()
		if n := strings.Count(v.Body.String()+rest.Body.String(), "notifications/progress"); n != 20 || !strings.Contains(rest.Body.String(), "counted to 20") {
			t.Errorf("%d of 20 steps: %s%s", n, v.Body, rest.Body)
		}
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if h.kept.taken != 0 || h.Sessions.endedStreams.Len() != 0 {
			t.Errorf("later %d bytes of %d streams are kept", h.kept.taken, h.Sessions.endedStreams.Len())
		}
	})
}

// So many requests of one session run at most. Another session has places all the same. That of all is in testdata/cases/http-limits.txtar.
func TestHTTPBusy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var running atomic.Int32
		release, demo := make(chan struct{}), newDemo()
		demo.Methods["wait"] = func(context.Context, *Exchange) (any, error) { running.Add(1); <-release; return nil, nil }
		h := newHandler(t, demo)
		first, other := openSession(h, "2025-03-26"), openSession(h, "2025-03-26")
		for id := range 2 * maxInFlight {
			visit(h, "POST", fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"wait"}`, id), first)
			synctest.Wait()
		}
		if n := running.Load(); n != maxInFlight {
			t.Error(n, "run")
		}
		const batch = `[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"subscriptions/listen"}]` // a method of the modern era alone
		check := func(session, body string, want int) {
			if v := visit(h, "POST", body, session).answered(); v.Code != want || (v.Header().Get("Retry-After") != "") != (want == 503) {
				t.Errorf("%s in %s: %d %s %s, want %d", body, session, v.Code, v.Header(), v.Body, want)
			}
		}
		check(first, `{"jsonrpc":"2.0","id":"x","method":"ping"}`, 503)
		check(other, ping, 200)
		check(other, batch, 200)
		check(first, saysOK, 202)
		close(release)
		synctest.Wait()
		check(first, ping, 200)
	})
}

// middleware logs the status that is set through it. It hides all else that a ResponseWriter can do, as careless middleware does, but what
// flushing or unwrapping shows of it.
type middleware struct {
	http.ResponseWriter
	status *int
}
type withDeadlines struct{ http.ResponseWriter } // as net/http has them
type flushing struct{ middleware }
type unwrapping struct{ middleware }

func (w middleware) WriteHeader(status int)            { *w.status = status; w.ResponseWriter.WriteHeader(status) }
func (w withDeadlines) Unwrap() http.ResponseWriter    { return w.ResponseWriter }
func (withDeadlines) SetWriteDeadline(time.Time) error { return nil }
func (withDeadlines) SetReadDeadline(time.Time) error  { return nil }
func (w flushing) Flush()                              { _ = http.NewResponseController(w.ResponseWriter).Flush() }
func (w unwrapping) Unwrap() http.ResponseWriter       { return w.ResponseWriter }

// A stream reaches its client through middleware that can be unwrapped or flushed. Middleware through which nothing can be flushed costs the
// streams, but no answer. Middleware with Flush, but without Unwrap, lets no deadline through, so a stream ends with the WriteTimeout. Each
// handler warns of it once.
func TestHTTPThroughMiddleware(t *testing.T) {
	for name, wrap := range map[string]func(middleware) http.ResponseWriter{"neither": func(w middleware) http.ResponseWriter { return w },
		"Flush": func(w middleware) http.ResponseWriter { return flushing{w} }, "Unwrap": func(w middleware) http.ResponseWriter { return unwrapping{w} }} {
		synctest.Test(t, func(t *testing.T) {
			var logged lockedBuffer
			mcp := newHandler(t, newDemo())
			mcp.Log = slog.New(slog.NewTextHandler(&logged, nil))
			session := openSession(mcp, "2025-11-25")
			for _, row := range []struct {
				method, body, want string
				refused            int
			}{{"POST", toolCall(1, "count", `{"n":1}`), "counted to 1", 200}, {"GET", "", "id: ", 405}, {"GET", "", "id: ", 405}} {
				status, streams := 0, name != "neither"
				v := visit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					mcp.ServeHTTP(wrap(middleware{withDeadlines{w}, &status}), r)
				}), row.method, row.body, session)
				synctest.Wait()
				if v.Flushed != streams || (streams || row.refused == 200) && !strings.Contains(v.Body.String(), row.want) || status != map[bool]int{true: 200, false: row.refused}[streams] {
					t.Errorf("%s through %s: status %d, %s", row.method, name, status, v.Body)
				}
				v.leave()
			}
			mcp.Close()
			warned := []int{strings.Count(logged.String(), `level=WARN msg="no streams"`), strings.Count(logged.String(), "WriteTimeout")}
			if want := map[string][]int{"neither": {1, 0}, "Flush": {0, 1}, "Unwrap": {0, 0}}[name]; !slices.Equal(warned, want) {
				t.Errorf("%s: %d warnings, want %d: %s", name, warned, want, &logged)
			}
		})
	}
}

// ---- The modern era ----

const modernEcho = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":{"text":"a"},` + modernMeta + `}}`

func modernRequest(method, params string) string {
	return `{"jsonrpc":"2.0","id":1,"method":"` + method + `","params":{` + strings.TrimPrefix(params+","+modernMeta, ",") + `}}`
}

// Whatever a schema and a header hold, reading them ends well: marks are tokens, what is encoded comes out as it went in, what our client
// repeats our server takes, and no check of a header lets in what a slow and obvious one would not.
func FuzzHeaderParams(f *testing.F) {
	f.Add(`{"properties":{"a":{"type":"string","x-mcp-header":"A"}}}`, "é", `{"arguments":{"a":"é"}}`)
	f.Add(`{"properties":{"a":{"type":"object","properties":{"b":{"type":"integer","x-mcp-header":"B"}}}}}`, "42", `{"arguments":{"a":{"b":42.0}}}`)
	f.Add(`{"properties":{"a":{"type":"boolean","x-mcp-header":"A"},"b":{"type":"string","x-mcp-header":"b"}}}`, "=?base64?w6k=?=", `{"arguments":{"a":true,"b":null}}`)
	for _, value := range []string{"application/json; charset=utf-8", "Application/JSON ;x", "text/event-stream;q=0.5, */*", "application/*", "*/*, application/json; Q=0.0", "localhost:80", "[::1]:8080",
		"127.0.0.1", "localhost:1@evil.example", "evil.example@127.0.0.1", "127.0.0.1/evil", "127.0.0.1?evil", "127.0.0.1#evil", "[::1%25eth0]", "[::1%eth0]:1",
		"http://evil.example@127.0.0.1", "http://127.0.0.1/evil", "http://127.0.0.1?evil", "http://127.0.0.1#evil", "http://[::1%25eth0]", "http://[::1%eth0]:1", "http://localhost:3000", "https://[::1]", `Basic, Bearer a="b\"c", d = e, Digest f=g`} {
		f.Add(`{}`, value, `{}`)
	}
	f.Fuzz(func(t *testing.T, schema, value, params string) {
		checkMedia(t, value)
		checkHosts(t, value)
		checkChallenge(t, value)
		checkFields(t, value)
		marked, _ := ReadHeaderParams(json.RawMessage(schema))
		header := http.Header{}
		for _, p := range marked {
			if strings.ContainsFunc(p.Name, func(c rune) bool { return !isToken(c) }) || p.Name == "" || len(p.Path) == 0 {
				t.Fatalf("%q", p)
			}
			header.Set("Mcp-Param-"+p.Name, value)
		}
		m := Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"m","params":` + params + `}`)).Messages[0]
		if m.Kind() != Request {
			return
		}
		checkParams(header, m.Params, marked)
		arguments := member(m.Params, "arguments")
		header, odd := http.Header{}, false
		mirror(header, marked, arguments)
		for _, p := range marked {
			argument := lookup(arguments, p.Path...)
			_, whole := integerIn(string(argument))
			odd = odd || argument != nil && argument[0] != '"' && !whole && !slices.Contains([]string{"true", "false", "null"}, string(argument))
		}
		if fault := checkParams(header, m.Params, marked); fault != nil && !odd && !strings.Contains(fault.Message, "twice") {
			t.Fatalf("%s as %v: %v", params, header, fault)
		}
	})
}

// checkFields encodes a value, and decodes it as if it was encoded.
func checkFields(t *testing.T, value string) {
	text := headerValue(value)
	header := http.Header{"X": {text}, "Y": {value}}
	if strings.ContainsFunc(text, func(c rune) bool { return c < ' ' || c > '~' }) || strings.TrimSpace(text) != text {
		t.Fatalf("%q is written as %q", value, text)
	}
	if got, fault := decodedField(header, "X"); fault != nil || got != value {
		t.Fatalf("%q, %v, want %q", got, fault, value)
	}
	got, fault := decodedField(header, "Y")
	if inner, ok := strings.CutPrefix(strings.TrimSuffix(value, "?="), "=?base64?"); ok && strings.HasSuffix(value, "?=") && len(value) >= len("=?base64??=") {
		decoded, err := base64.StdEncoding.DecodeString(inner)
		if strict := err == nil && base64.StdEncoding.EncodeToString(decoded) == inner; strict != (fault == nil) || strict && got != string(decoded) {
			t.Fatalf("%q is read as %q, %v", value, got, fault)
		}
	} else if fault == nil && got != value {
		t.Fatalf("%q is read as %q", value, got)
	}
}

// checkMedia compares what is read in a Content-Type, or in Accept, with its words.
func checkMedia(t *testing.T, value string) {
	const kind = "application/json"
	word, _, _ := strings.Cut(value, ";")
	_, _, err := mime.ParseMediaType(value)
	if is, same := isMedia(value, kind), strings.EqualFold(strings.TrimSpace(word), kind); is && !same || same && err == nil && !is {
		t.Fatalf("Content-Type: %q: %v", value, is)
	}
	allowed, empty, refused := map[string]bool{}, true, regexp.MustCompile(`(?i)^\s*q=[0.]+\s*$`)
	for _, part := range strings.Split(value, ",") {
		words := strings.Split(part, ";")
		word := strings.ToLower(strings.TrimSpace(words[0]))
		allowed[word] = allowed[word] || !slices.ContainsFunc(words[1:], refused.MatchString)
		empty = empty && word == ""
	}
	want := empty
	for _, word := range []string{"*/*", "application/*", kind} {
		if is, there := allowed[word]; there {
			want = is
		}
	}
	if got := accepts([]string{value}, kind); got != want || got != accepts(strings.Split(value, ","), kind) {
		t.Fatalf("Accept: %q: %v", value, got)
	}
}

// checkHosts lets nothing in, as a Host or an Origin, that does not lead to this machine.
func checkHosts(t *testing.T, value string) {
	local := func(host string) bool {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		host, _, _ = strings.Cut(strings.Trim(host, "[]"), "%")
		return strings.EqualFold(host, "localhost") || net.ParseIP(host).IsLoopback()
	}
	if isAllowedHost(value, nil) && (!local(value) || strings.ContainsAny(value, "@/\\?# %")) {
		t.Fatalf("Host: %q is let in", value)
	}
	u, err := url.Parse(value)
	if isLoopbackOrigin(value) && (err != nil || !local(u.Host) || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Scheme != "http" && u.Scheme != "https") {
		t.Fatalf("Origin: %q is let in", value)
	}
}

// checkChallenge finds a value in a challenge among others, and reads one that it is.
func checkChallenge(t *testing.T, value string) {
	for name := range (&HTTPError{Header: http.Header{"Www-Authenticate": {value}}}).Challenge("Bearer") {
		if name != strings.ToLower(name) || strings.ContainsFunc(name, func(c rune) bool { return !isToken(c) }) {
			t.Fatalf("%q has a parameter %q", value, name)
		}
	}
	if strings.ContainsAny(value, "\r\n") {
		return
	}
	quoted := `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(value) + `"`
	e := &HTTPError{Header: http.Header{"Www-Authenticate": {"Basic realm=" + quoted, "bearer error=x, Scope=" + quoted + ", Digest scope=y"}}}
	if params := e.Challenge("Bearer"); len(params) != 2 || params["error"] != "x" || params["scope"] != value {
		t.Fatalf("%q is read as %q", value, params)
	}
}

// modernLines returns the lines that a modern request needs.
func modernLines(method string, name ...string) []string {
	lines := []string{"Mcp-Protocol-Version: 2026-07-28", "Mcp-Method: " + method}
	for _, name := range name {
		lines = append(lines, "Mcp-Name: "+name)
	}
	return lines
}

// A modern client that hangs up cancels its request, as a stream and before it is one, and no other with the same id. It cannot be asked.
func TestHTTPModernCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended []string
		h := newHandler(t, HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
			if x.Peer != nil || x.Call(ctx, "ping", nil, nil) != ErrNoServerRequests {
				t.Error("a modern client can be asked")
			}
			if x.Request.Method == "talk" {
				_ = x.Notify(ctx, "notifications/message", nil)
			}
			<-ctx.Done()
			ended = append(ended, x.Request.Method)
			_ = x.Notify(context.Background(), "notifications/late", nil)
			return nil, ctx.Err()
		}))
		begin := func(method string) (hangUp func()) {
			v := visit(h, "POST", modernRequest(method, ""), modernLines(method)...)
			synctest.Wait()
			if method == "talk" && v.Header().Get("X-Accel-Buffering") != "no" {
				t.Error(v.Header())
			}
			return func() {
				v.leave()
				synctest.Wait()
				if text := v.Body.String(); strings.Contains(text, "late") || strings.Contains(text, "error") {
					t.Error(text)
				}
			}
		}
		stay := begin("stay")
		begin("talk")()
		begin("quiet")()
		if !slices.Equal(ended, []string{"talk", "quiet"}) {
			t.Error("ended:", ended)
		}
		stay()
		h.Close()
	})
}

// The answer to a handshake is JSON, however long it takes: its header carries the id. If the result cannot be encoded, there is no session.
func TestHTTPHandshake(t *testing.T) {
	for good, capability := range map[bool]any{true: struct{}{}, false: make(chan int)} {
		synctest.Test(t, func(t *testing.T) {
			server := &Server{Capabilities: map[string]any{"x": capability}}
			h := newHandler(t, HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
				time.Sleep(time.Minute)
				return server.Handle(ctx, x)
			}))
			w := visit(h, "POST", initializeLine("2025-11-25")).answered()
			id := w.Header().Get("Mcp-Session-Id")
			if w.Code != 200 || w.Header().Get("Content-Type") != "application/json" || (id != "") != good || h.Sessions.Len() > 0 != good || strings.Contains(w.Body.String(), "-32603") == good {
				t.Error(good, w)
			}
		})
	}
}

// What is said of a request that was stopped: what its handler says, unless that is only that its context has ended.
func TestHTTPStopped(t *testing.T) {
	own := &Error{Code: 7, Message: "own"}
	for want, err := range map[string]func(ctx context.Context) error{
		errStopping.Message:       func(ctx context.Context) error { return fmt.Errorf("x: %w", ctx.Err()) },
		errStopping.Message + " ": context.Cause,
		"own":                     func(ctx context.Context) error { return fmt.Errorf("%w (%w)", own, ctx.Err()) },
		"disk full":               func(context.Context) error { return errors.New("disk full") },
		"":                        func(context.Context) error { return nil },
		"context canceled":        nil, // its own, while the request goes on
	} {
		synctest.Test(t, func(t *testing.T) {
			h := newHandler(t, HandlerFunc(func(ctx context.Context, _ *Exchange) (any, error) {
				if err == nil {
					return nil, context.Canceled
				}
				<-ctx.Done()
				return nil, err(ctx)
			}))
			time.AfterFunc(time.Second, h.Close)
			w := visit(h, "POST", modernRequest("m", ""), append(modernLines("m"), "Accept: application/json")...).answered()
			if m := Decode(w.Body.Bytes()).Messages[0]; w.Code != 200 || m.Error == nil && want != "" || m.Error != nil && m.Error.Message != strings.TrimSpace(want) {
				t.Errorf("%q: %v", want, w)
			}
		})
	}
}

// Close cancels the handler of an initialize, too, although its session is not in the table. The reason is that of all sessions.
func TestInitializeStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
			<-ctx.Done()
			return nil, &Error{Code: 7, Message: context.Cause(x.Peer.Context()).Error()}
		}))
		h.Sessions = &Sessions{}
		time.AfterFunc(time.Second, h.Close)
		w := visit(h, "POST", initializeLine("2025-11-25")).answered()
		if w.Code != 200 || !strings.Contains(w.Body.String(), ErrSessionClosed.Error()) || h.Sessions.Len() > 0 {
			t.Error(w)
		}
	})
}

// A client that takes the place of another one is told nothing of the calls to the old one: not that they are cancelled, either.
// They fail before replace waits for a message that is on its way.
func TestReplacedCallsAreNotCancelled(t *testing.T) {
	sent, release := make(chan string, 9), make(chan struct{})
	send := func(_ context.Context, m *Message) error {
		sent <- m.Method
		if m.Method == "slow" {
			<-release
		}
		return nil
	}
	p := newPeer(t.Context(), send, new(mcpProtocol), nil)
	p.note(func(h *handshake) { h.revision = revision("2025-11-25") })
	h := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		if x.Request.Method == "notifies" {
			return nil, x.Notify(ctx, "slow", nil)
		}
		return nil, x.Call(ctx, "roots/list", nil, nil)
	})
	serve := func(request string) {
		a := p.dispatch(t.Context(), Decode([]byte(request)), Exchange{handler: h, Peer: p, send: send})
		a.serve(func(m *Message) { t.Error(m) })
		a.release()
	}
	var notifies, calls, replaces sync.WaitGroup
	notifies.Go(func() { serve(`{"jsonrpc":"2.0","id":1,"method":"notifies"}`) })
	calls.Go(func() { serve(`{"jsonrpc":"2.0","id":2,"method":"calls"}`) })
	<-sent
	<-sent
	replaces.Go(func() { p.replace(func(*Exchange) bool { return false }, errReplaced) })
	calls.Wait()
	_ = p.Close() // waits for cancellations
	if len(sent) > 0 {
		t.Error("also sent:", <-sent)
	}
	close(release)
	notifies.Wait()
	replaces.Wait()
}

// An initialize cannot be cancelled: what follows it depends on it.
func TestInitializeIsNotCancelled(t *testing.T) {
	p := newPeer(t.Context(), nil, new(mcpProtocol), nil)
	base := Exchange{handler: HandlerFunc(func(context.Context, *Exchange) (any, error) { return nil, nil })}
	for method, want := range map[string]int{"initialize": 1, "ping": 0} {
		r := p.dispatch(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"`+method+`"}`)), base)
		p.dispatch(t.Context(), Decode([]byte(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`)), base)
		answers := 0
		r.serve(func(*Message) { answers++ })
		if answers != want {
			t.Errorf("%s: %d answers", method, answers)
		}
	}
}

// A request of the first client ends after the second client has sent one with the same id. That one stays in the table.
func TestReplacedRequestEnds(t *testing.T) {
	p := newPeer(t.Context(), nil, new(mcpProtocol), nil)
	h := HandlerFunc(func(context.Context, *Exchange) (any, error) { return nil, nil })
	request := Decode([]byte(`{"jsonrpc":"2.0","id":1,"method":"m"}`))
	first := p.dispatch(t.Context(), request, Exchange{handler: h})
	p.replace(func(*Exchange) bool { return false }, errReplaced)
	second := p.dispatch(t.Context(), request, Exchange{handler: h})
	first.serve(func(m *Message) { t.Error("the second client gets", m) })
	if s := second.requests[0]; p.serving[s.id] != s {
		t.Error("the request is not in the table any more")
	}
}

// A change goes to each subscription at once, with its own id, though one client does not read. For that one little waits, and in the end it
// gets what is newest.
func TestHTTPListenStalled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		demo := newDemo()
		h := newHandler(t, demo)
		uri := "note:///" + strings.Repeat("x", 7000)
		body := modernRequest("subscriptions/listen", fmt.Sprintf(`"notifications":{"resourceSubscriptions":["%s"]}`, uri))
		lines := modernLines("subscriptions/listen")
		stalled := newPaper()
		stalled.stick()
		visit(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h.ServeHTTP(stalled, r) }), "POST", body, lines...)
		reads := visit(h, "POST", strings.Replace(body, `"id":1`, `"id":"reads"`, 1), lines...)
		synctest.Wait()
		if n := demo.subscribed(); n != 2 {
			t.Fatal(n, "subscriptions")
		}
		for n := 1; n <= 1000; n++ { // more than its stream has room for
			reads.Body.Reset()
			demo.Publish("notifications/resources/updated", map[string]string{"uri": uri, "n": strconv.Itoa(n)})
			synctest.Wait()
			if got := reads.Body.String(); !strings.Contains(got, `"io.modelcontextprotocol/subscriptionId":"reads"`) || !strings.Contains(got, fmt.Sprintf(`"n":"%d"`, n)) {
				t.Fatalf("%d: %s", n, got)
			}
		}
		stalled.release()
		if data, _, _ := stalled.data(); len(data) > 300 || !strings.Contains(data[len(data)-1], `"n":"1000"`) {
			t.Errorf("%d notifications waited for it, the last %s", len(data), data[len(data)-1])
		}
		h.Close()
		synctest.Wait()
	})
}

// Opened and Ended hear of each session once, and why it ends. Nobody but its principal keeps a session alive.
func TestSessionsHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opened, ended []string
		h := newHandler(t, newDemo())
		h.Authenticate = func(r *http.Request) (string, error) { return cmp.Or(r.Header.Get("Authorization"), "ada"), nil }
		h.Sessions.IdleTimeout = time.Minute
		h.Sessions.Opened = func(s *Session) { opened = append(opened, s.ID) }
		h.Sessions.Ended = func(s *Session) { ended = append(ended, fmt.Sprint(s.ID, ": ", context.Cause(s.Context()))) }
		for range 3 {
			visit(h, "POST", initializeLine("2025-11-25")).answered()
		}
		all := h.Sessions.All()
		slices.SortFunc(all, func(a, b *Session) int { return strings.Compare(a.ID, b.ID) })
		visit(h, "POST", ping, "Mcp-Session-Id: session-2").answered() // one that was never used ends in a minute, whatever IdleTimeout is
		h.Sessions.Delete(all[0], ErrSessionDeleted)
		_ = all[0].Close() // it has ended already
		for range 3 {
			time.Sleep(50 * time.Second)
			visit(h, "POST", ping, "Mcp-Session-Id: session-3").answered()
			if w := visit(h, "POST", ping, "Mcp-Session-Id: session-2", "Authorization: bob").answered(); w.Code != 404 {
				t.Error(w)
			}
		}
		if h.Sessions.Len() != 1 {
			t.Error(h.Sessions.Len(), "sessions")
		}
		h.Sessions.Close()
		if w := visit(h, "POST", initializeLine("2025-11-25")).answered(); w.Code != 503 || h.Sessions.Len() != 0 {
			t.Error("closed, and open:", w)
		}
		if !slices.Equal(opened, []string{"session-1", "session-2", "session-3"}) ||
			!slices.Equal(ended, []string{"session-1: deleted by the client", "session-2: idle for too long", "session-3: closed by the server"}) {
			t.Error(opened, ended)
		}
	})
}

// A request whose body is complete only when the handler closes is told that, with a status after which clients try again. A 404 would say that its
// session is unknown.
func TestBodyAfterClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		session := openSession(h, "2025-11-25")
		body, client := io.Pipe()
		v := visit(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r.Body = body
			h.ServeHTTP(w, r)
		}), "POST", "", session)
		synctest.Wait()
		go h.Close()
		time.Sleep(time.Second)
		_, _ = io.WriteString(client, ping)
		client.Close()
		if v.answered(); v.Code != 503 || !strings.Contains(v.Body.String(), `"id":1`) {
			t.Error(v.Code, v.Body)
		}
	})
}

// Close returns when Ended has returned, also for a session that a sweep ends just then.
func TestCloseWaitsForEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHandler(t, newDemo())
		ended := false
		h.Sessions.IdleTimeout = time.Minute
		h.Sessions.Ended = func(*Session) { time.Sleep(500 * time.Millisecond); ended = true }
		openSession(h, "2025-11-25")
		time.Sleep(time.Minute + 100*time.Millisecond) // the sweep has begun
		if h.Close(); !ended {
			t.Error("Ended still runs")
		}
	})
}

// fuzzedServers are the flags of the servers that are fuzzed: those of the lessons among them.
var fuzzedServers = []string{"", "-http :8080 -stateless", "-http :8080 -versions 2025-06-18", "-http :8080 -token secret -auth-server https://auth.example.com",
	"-http :8080 -versions 2026-07-28 -allow-origin https://app.example.com -allow-host example.com", "-http :8080 -versions 2025-11-25,2025-06-18 -event-buffer 2 -session-ttl 30s -max-body 400 -keepalive 0"}

// Whatever bytes come to the program's server, on whatever connections, cut and ended wherever: no handler panics, no status is 5xx, what
// is answered is JSON-RPC, nothing is answered twice, the next request works, and in the end nothing is left. All of it happens in a
// bubble of synctest, which would not end if anything did not.
func FuzzHTTP(f *testing.F) {
	for _, tr := range goldenFiles("testdata/*.txtar") {
		if tr.overHTTP() {
			which, script := tr.unfolded().script()
			f.Add(which, script)
			f.Add(which, bytes.ReplaceAll(script, []byte{settles}, []byte{waits}))
		}
	}
	for lines := range slices.Chunk(oddLines(), 10) {
		f.Add(uint8(0), oddBodies("Mcp-Protocol-Version: 2026-07-28\nMcp-Method: ping", lines))
		f.Add(uint8(1), oddBodies("Mcp-Protocol-Version: 2025-06-18", lines))
		f.Add(uint8(0), oddBodies("Mcp-Session-Id: session-1", lines))
	}
	f.Fuzz(func(t *testing.T, which uint8, script []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("no end") }).Stop()
		synctest.Test(t, func(t *testing.T) {
			g := newRig(t, fuzzedServers[int(which)%len(fuzzedServers)])
			g.play(script)
			g.end()
		})
	})
}

// oddBodies is a script that opens a session, and POSTs what may be no message.
func oddBodies(fields string, lines []string) (script []byte) {
	const head = "POST /mcp HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: *\n"
	script = []byte(strings.ReplaceAll(head+"\n", "\n", "\r\n") + initializeLine("2025-03-26"))
	for _, line := range lines {
		script = append(append(append(script, settles), strings.ReplaceAll(head+fields+"\n\n", "\n", "\r\n")...), line...)
	}
	return script
}

// rig is the program's HTTP server on a network in memory, and what has been said to it.
type rig struct {
	*testing.T
	*program
	log     lockedBuffer // of what must not happen
	closing atomic.Bool
	wires   map[byte]*wire
	all     []*wire

	mu       sync.Mutex // guards requests
	requests []*asked   // that have come to the handlers

	answered map[string]int    // by key of the id
	asked    map[string]int    // likewise
	events   map[string]string // by id
}

func newRig(t *testing.T, args string) *rig {
	g := &rig{T: t, wires: map[byte]*wire{}, answered: map[string]int{}, asked: map[string]int{}, events: map[string]string{}}
	g.program = newProgram(t, strings.Fields(args), errorsTo(&g.log))
	g.mcp.Handler, g.sse.Handler = gentle(g.demo), gentle(g.demo)
	g.idle = 4 * stall // so that a script may use a connection again after a pause
	g.serve(g, &g.log)
	return g
}

// wire is a client's end of a connection: what it writes, and has read.
type wire struct {
	conn   halves
	pieces chan []byte
	over   bool // nothing more is written
	read   bytes.Buffer
	done   chan struct{} // closed when all has been read
}

// asked is a request that has come to the handlers, and their response as they write it.
type asked struct {
	http.ResponseWriter
	method, path string
	body         bytes.Buffer // as much as was read of it
	status       int
	text         bytes.Buffer // of the response
	cut          bool         // the text could not be written
	closing      bool         // it was answered when the server wound down
}

func (x *asked) Unwrap() http.ResponseWriter { return x.ResponseWriter }

func (x *asked) WriteHeader(status int) {
	x.status = status
	x.ResponseWriter.WriteHeader(status)
}

func (x *asked) Write(b []byte) (int, error) {
	n, err := x.ResponseWriter.Write(b)
	x.text.Write(b[:n])
	x.cut = x.cut || err != nil
	return n, err
}

// dial opens a connection.
func (g *rig) dial() *wire {
	conn, _ := g.network.dial(g.Context(), "", "")
	w := &wire{conn: conn.(halves), pieces: make(chan []byte, maxMarks+1), done: make(chan struct{})}
	go func() {
		for piece := range w.pieces {
			if _, err := w.conn.Write(piece); err != nil {
				return
			}
		}
		_ = w.conn.CloseWrite()
	}()
	go func() {
		defer close(w.done)
		_, _ = io.Copy(&w.read, w.conn)
	}()
	g.all = append(g.all, w)
	return w
}

// finish writes no more.
func (w *wire) finish() {
	if !w.over {
		w.over = true
		close(w.pieces)
	}
}

// write writes a piece.
func (w *wire) write(piece []byte) {
	if !w.over && len(piece) > 0 {
		w.pieces <- withLength(piece)
	}
}

// play plays a script. The byte after the mark that takes a connection names it.
func (g *rig) play(script []byte) {
	at, named := byte(0), false
	for piece, mark := range scripted(script) {
		if named && len(piece) > 0 {
			at, piece = piece[0]&15, piece[1:]
		}
		w := g.wires[at]
		if w == nil {
			w = g.dial()
			g.wires[at] = w
		}
		w.write(piece)
		switch named = mark == takes; mark {
		case falls:
			w.finish()
		case cuts:
			w.finish()
			w.conn.Close()
			delete(g.wires, at)
		}
		pass(mark)
	}
}

// ServeHTTP notes what is asked, and lets the program answer.
func (g *rig) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	x := &asked{ResponseWriter: w, method: r.Method, path: r.URL.Path}
	g.mu.Lock()
	g.requests = append(g.requests, x)
	g.mu.Unlock()
	r.Body = struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r.Body, &x.body), r.Body}
	defer func() { x.closing = g.closing.Load() }()
	g.mux.ServeHTTP(x, r)
}

// end half-closes what is open, asks once more, winds the server down, and looks at what has been said.
func (g *rig) end() {
	for _, w := range g.all {
		w.finish()
	}
	time.Sleep(2 * time.Second)
	g.probe()
	g.closing.Store(true)
	g.close()
	synctest.Wait()
	g.checkLeft()
	for _, x := range g.requests {
		for _, m := range Decode(x.body.Bytes()).Messages {
			if m.Kind() == Request || m.Kind() == Invalid {
				g.asked[m.ID.String()]++
			}
		}
		g.check(x)
	}
	for key, n := range g.answered {
		if n > g.asked[key] {
			g.Errorf("id %q was asked %d times, and answered %d times", key, g.asked[key], n)
		}
	}
}

// checkLeft looks at what there still is when all is over. What blocks for ever, the bubble finds.
func (g *rig) checkLeft() {
	for _, w := range g.all {
		select {
		case <-w.done:
		default:
			g.Errorf("a connection is still open: %.200q", w.read.Bytes())
		}
		w.conn.Close()
	}
	synctest.Wait()
	if text := strings.TrimSpace(strings.ReplaceAll(g.log.String(), semicolon, "")); text != "" {
		g.Errorf("in the log: %s", text)
	}
	left := []int64{g.mcp.running.taken, g.mcp.listening.taken, g.mcp.used.taken, g.sse.running.taken, g.sse.used.taken, int64(g.sse.table.Len()), g.mcp.kept.taken, g.sse.kept.taken}
	if slices.Max(left) != 0 || slices.Min(left) != 0 {
		g.Errorf("left: running, subscribed, bytes in use, running and bytes in use of SSE, conversations, kept, kept of SSE: %d", left)
	}
	if n := g.demo.subscribed(); n != 0 {
		g.Errorf("left: %d subscriptions", n)
	}
	if s := g.mcp.Sessions; s != nil && len(s.byID) != 0 {
		g.Errorf("left: %d sessions", len(s.byID))
	}
}

// semicolon is what net/http logs of a query that has one.
const semicolon = "http: URL query contains semicolon, which is no longer a supported separator; parts of the query may be stripped when parsed; see golang.org/issue/25192"

// probe asks once more, in each era that there is.
func (g *rig) probe() {
	const head = "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer secret\r\nContent-Type: application/json\r\nContent-Length: *\r\n"
	ask := func(fields, body string) {
		w := g.dial()
		w.write([]byte(head + fields + "\r\n" + body))
		synctest.Wait()
		if !strings.Contains(w.read.String(), `,"result":{`) {
			g.Errorf("the next request, %s: %q", body, w.read.Bytes())
		}
		w.finish()
	}
	if slices.Contains(versionsOrAll(g.options.versions), "2026-07-28") {
		ask("Mcp-Protocol-Version: 2026-07-28\r\nMcp-Method: server/discover\r\n", modernRequest("server/discover", ""))
	}
	if len(legacyOf(g.options.versions)) > 0 {
		ask("", initializeLine("2025-06-18"))
	}
}

// check looks at a response.
func (g *rig) check(x *asked) {
	status, text := cmp.Or(x.status, http.StatusOK), x.text.Bytes()
	if status >= 500 && !(status == http.StatusServiceUnavailable && (x.closing || bytes.Contains(text, []byte(errStopping.Message)))) {
		g.Errorf("%s %s: %d %s", x.method, x.path, status, text)
	}
	if length := x.Header().Get("Content-Length"); length != "" && !x.cut && x.method != "HEAD" && length != strconv.Itoa(len(text)) {
		g.Errorf("%s %s: %s bytes are announced, and %d sent", x.method, x.path, length, len(text))
	}
	var answers []*Message
	switch kind := x.Header().Get("Content-Type"); {
	case x.method == "HEAD":
	case x.cut && kind != "text/event-stream":
	case kind == "application/json" && strings.HasPrefix(x.path, metadataPath):
	case kind == "application/json":
		in := Decode(text)
		answers = in.Messages
		asked := Decode(x.body.Bytes())
		if m := asked.Messages[0]; status == 200 && !asked.Batch && m.Kind() == Request && !(len(answers) == 1 && answers[0].ID == m.ID) {
			g.Errorf("%s was answered with %s", x.body.Bytes(), text)
		}
		for _, m := range answers {
			if m.Kind() == Response && m.ID != (ID{}) && !slices.ContainsFunc(asked.Messages, func(a *Message) bool { return a.ID == m.ID }) {
				g.Errorf("%s was answered with %s", x.body.Bytes(), text)
			}
		}
	case kind == "text/event-stream":
		answers = g.checkEvents(x, text)
	case strings.HasPrefix(kind, "text/plain") && (status == 404 || status == 405), status/100 == 3, len(text) == 0 && (status < 300 || status == statusClientGone):
	case x.path == "*" && status == 400 && len(text) == 0: // so http.ServeMux answers that
	case strings.HasPrefix(kind, "text/html") && status == 200: // the page
	default:
		g.Errorf("%s %s: %d %s %q", x.method, x.path, status, kind, text)
	}
	for _, m := range answers {
		if m.Kind() == Invalid {
			g.Errorf("%s %s: %d, what is no message: %s", x.method, x.path, status, text)
		}
		if m.Kind() == Response && m.ID != (ID{}) {
			g.answered[m.ID.String()]++
		}
	}
}

// checkEvents returns what is in a stream and has not been seen.
func (g *rig) checkEvents(x *asked, text []byte) (fresh []*Message) {
	here := map[string]bool{}
	for e, err := range ReadEvents(bytes.NewReader(text), 16<<20) {
		switch {
		case err != nil:
			g.Errorf("%s: %v: %q", x.path, err, text)
		case e.Type == "endpoint" && x.path == "/sse", len(e.Data) == 0:
			continue
		case e.Type != "message":
			g.Errorf("%s: an event of type %q", x.path, e.Type)
		}
		known, again := g.events[e.ID]
		switch data := string(e.Data); {
		case e.ID == "":
		case here[e.ID]:
			g.Errorf("%s: %q twice in one response: %s", x.path, e.ID, text)
		case again && known != data:
			g.Errorf("%s: %q is %s, and %s", x.path, e.ID, known, data)
		case again:
			continue
		default:
			here[e.ID], g.events[e.ID] = true, data
		}
		fresh = append(fresh, Decode(e.Data).Messages...)
	}
	return fresh
}

// ---- The client over HTTP ----

// What a server says and how a Client reacts stands in testdata/cases/client-*.txtar.

// Whatever a server of HTTP answers, a Client survives it: its calls and its end come in time, no connection is left, and as soon as
// the server is in its right mind a call works.
func FuzzClient(f *testing.F) {
	for i, tr := range goldenFiles("testdata/cases/client-*.txtar") {
		if script := tr.answers(); !bytes.Contains(script, []byte("[{")) && tr.overHTTP() && len(script) < maxScript && (i%5 == 0 || !testing.Short()) {
			f.Add(script)
		}
	}
	for _, odd := range []string{"", "\xfc", "\xfd", "HTTP/1.1 503 Service Unavailable\r\nRetry-After: 5\r\nContent-Length: 0\r\n\r\n"} {
		f.Add([]byte(odd + "\xfa"))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		defer time.AfterFunc(time.Minute, func() { panic("no end") }).Stop()
		synctest.Test(t, func(t *testing.T) { callForger(t, script) })
	})
}

// answers returns a script of what the server of a case answers to a Client that asks for the era first.
func (tr transcript) answers() (script []byte) {
	const ask, json = `{"jsonrpc":"2.0","id":1,"method":"server/discover"}`, "200\nContent-Type: application/json\n\n"
	probe := []section{{who: "client", letter: "A", text: "POST /mcp\n\n" + ask}, {who: "server", letter: "A", text: "400\n"}}
	if version, _ := tr.handshake(); version == "" {
		probe[1].text = json + `{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{}}}`
	}
	if !tr.shows(asksFirst) {
		tr.sections = append(probe, tr.sections...)
	}
	begun := map[string]bool{}
	tr = tr.unfolded()
	for i, s := range tr.sections {
		if begun[s.letter] = begun[s.letter] && s.who != "client"; s.who != "server" {
			continue
		}
		text, more := strings.CutSuffix(laterLine.ReplaceAllString(s.text, ""), goesOn)
		if text = strings.TrimPrefix(text, hangsUp); text != "" && !begun[s.letter] && !strings.HasPrefix(text, "HTTP/") {
			head, body, _ := strings.Cut(text, "\n\n")
			text = strings.ReplaceAll("HTTP/1.1 "+strings.TrimSuffix(head, "\n")+"\n\n", "\n", "\r\n") + body
		}
		begun[s.letter] = true
		next := slices.IndexFunc(tr.sections[i+1:], func(other section) bool { return other.letter == s.letter })
		if script = append(script, text...); more || next >= 0 && tr.sections[i+1+next].who == "server" {
			script = append(script, waits)
		} else {
			script = append(script, cuts) // the body ends with the connection
		}
	}
	return script
}

// forger answers with what a script says, piece by piece, and once that is at its end as the program does.
type forger struct {
	http.Handler
	busy sync.WaitGroup
	next func() (piece []byte, mark byte, ok bool)
	stop func()
	mu   sync.Mutex // guards the iterator
}

// ServeHTTP answers the requests of a connection, from the first that gets a forged answer on.
func (s *forger) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	next := func() ([]byte, byte, bool) { s.mu.Lock(); defer s.mu.Unlock(); return s.next() }
	piece, mark, ok := next()
	if !ok {
		s.Handler.ServeHTTP(w, r)
		return
	}
	s.busy.Add(1)
	defer s.busy.Done()
	_, _ = io.Copy(io.Discard, r.Body)
	conn, in, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer conn.Close()
	for ok {
		_, _ = conn.Write(withLength(piece))
		switch mark {
		case cuts:
			return
		case waits, sleeps: // the response goes on
			pass(mark)
		default:
			r, err := http.ReadRequest(in.Reader)
			if err != nil {
				return
			}
			if _, err := io.Copy(io.Discard, r.Body); err != nil {
				return
			}
		}
		piece, mark, ok = next()
	}
}

// callForger calls a forger with a Client, and once more when it forges no more.
func callForger(t *testing.T, script []byte) {
	p := newProgram(t, nil, silent)
	s := &forger{Handler: p.mux}
	s.next, s.stop = iter.Pull2(scripted(script))
	p.serve(s, io.Discard)
	transport := &http.Transport{DialContext: p.network.dial}
	client, noise := &http.Client{Transport: transport}, new(lockedBuffer)
	answer := HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
		if x.Request.Method != "elicitation/create" {
			return nil, MethodNotFound(x.Request.Method)
		}
		return json.RawMessage(`{"action":"accept","content":{"name":"Ada"}}`), nil
	})
	c := &Client{Info: Implementation{Name: "t", Version: "0"}, Capabilities: map[string]any{"elicitation": struct{}{}}, Handler: answer, Log: errorsTo(noise)}
	inMinute := func(what string, f func(ctx context.Context) error) error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := f(ctx)
		if took := time.Since(began); took > time.Minute+2*time.Second {
			t.Errorf("%s took %v: %v", what, took, err)
		}
		return err
	}
	call := func(params string) error {
		method, given := "tools/list", any(nil)
		if params != "" {
			method, given = "tools/call", json.RawMessage(params)
		}
		return inMinute(method+params, func(ctx context.Context) error { return c.Call(ctx, method, given, nil) })
	}
	_ = inMinute("Connect", func(ctx context.Context) error {
		return c.Connect(ctx, durably(HTTPDialer{Client: client, URL: "http://127.0.0.1:8080/mcp", MaxMessage: 32 << 10}), durably(SSEDialer{Client: client, URL: "http://127.0.0.1:8080/sse", MaxMessage: 32 << 10}))
	})
	for _, params := range []string{"", `{"name":"get-weather","arguments":{"city":"Oslo","unit":"celsius"}}`, `{"name":"ask"}`} {
		_ = call(params)
	}
	s.mu.Lock()
	s.stop()
	s.mu.Unlock()
	err := call("")
	// An error that the server sends is an answer: to what it was taken for before.
	for range 4 {
		if err == nil || errors.As(err, new(*Error)) {
			break
		}
		time.Sleep(30 * time.Second)
		err = call("")
	}
	if err != nil && !errors.As(err, new(*Error)) {
		t.Errorf("a later call: %v", err)
	}
	_ = inMinute("Close", func(context.Context) error { return c.Close() })
	transport.CloseIdleConnections()
	time.Sleep(time.Second)
	if n := p.network.open.Load(); n != 0 || noise.String() != "" {
		t.Errorf("%d connections are open; in the log: %s", n, noise)
	}
	p.close()
	s.busy.Wait()
}

// ======== main.go ========

var (
	update = flag.Bool("update", false, "rewrite what the server says in testdata/*.txtar")
	target = flag.String("target", "", "replay the lessons at a `URL`, and report what a server there does otherwise")
	spell  = flag.String("spell", "", "`old=>new;…`: what is to be said otherwise at that URL, such as the names of its tools")
)

// lessonShape is the form of a lesson. The exercises are tested in testdata/interop.
var lessonShape = regexp.MustCompile(`(?s)^[A-Z0-9][^\n]+\nYou learn: .*\n-- .*\n-- note --\nTry it: .*\nNext: [^\n]+\n$`)

// Every lesson under testdata, replayed from both ends: what one side says goes in as it stands, and what the other side then says must be
// the same to the byte. A lesson that is by hand throughout has no client of ours in it.
func TestTranscripts(t *testing.T) {
	files, _ := filepath.Glob("testdata/*.txtar")
	if len(files) < 30 {
		t.Fatalf("%d transcripts", len(files))
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want := string(text)
			switch tr := parseTranscript(want); {
			case *target != "":
				tr.compare(t)
				return
			case *update:
				want = tr.fromServer(t).String()
				if err := os.WriteFile(file, []byte(want), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			parseTranscript(want).replays(t)
			if n := strings.Count(want, "\n"); n > 100 || !lessonShape.MatchString(want) {
				t.Errorf("a lesson has a title, what one learns, an exercise, what comes next, and at most 100 lines; this has %d", n)
			}
		})
	}
}

// The cases under testdata/cases: each is replayed at the end that it is about, and must come out the same to the byte. Titles are
// different in each file, and each case has a reason. testdata/cases/README.md lists the files, and explains the notation.
func TestCases(t *testing.T) {
	files, _ := filepath.Glob("testdata/cases/*.txtar")
	index, err := os.ReadFile("testdata/cases/README.md")
	if err != nil || len(files) == 0 {
		t.Fatal(err, files)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(index), "["+filepath.Base(file)+"]") {
				t.Error("testdata/cases/README.md does not list the file")
			}
			intro, cases := parseCases(string(text))
			rewritten, seen := make([]string, len(cases)), map[string]bool{}
			t.Cleanup(func() { // when those that run in parallel have ended
				if *update {
					if err := os.WriteFile(file, []byte(strings.Join(append([]string{intro}, rewritten...), "\n")), 0o644); err != nil {
						t.Error(err)
					}
				}
			})
			for i, c := range cases {
				if _, reason, _ := strings.Cut(c.title, "\n"); strings.TrimSpace(reason) == "" || seen[c.name()] {
					t.Errorf("%s: a case has a title of its own, and a reason", c.name())
				}
				seen[c.name()] = true
				rewritten[i] = c.String() // what is not replayed stays as it is
				t.Run(c.name(), func(t *testing.T) {
					if c.index("exit") >= 0 { // processes, which wait for most of the time
						t.Parallel()
					}
					if rewritten[i] = c.replayed(t).String(); !*update && rewritten[i] != c.String() {
						t.Errorf("got\n%s\nwant\n%s", rewritten[i], c)
					}
				})
			}
		})
	}
}

// A trace of the program is a lesson: kept, it replays, that of the client at both ends. testdata/cases/traces.txtar has the traces.
func TestTrace(t *testing.T) {
	played := 0
	for _, c := range goldenFiles("testdata/cases/traces.txtar") {
		for _, s := range c.sections {
			trace := "A trace.\n" + regexp.MustCompile("(?m)^ -- ").ReplaceAllString(unescape(s.text), "-- ")
			switch c.name() + ", " + s.who {
			case "a trace of a question, stderr", "a trace of calls over HTTP, stderr":
				parseTranscript(strings.NewReplacer("?key=…", "", "Authorization: …\n", "").Replace(trace)).replays(t)
			case "a trace of a session, log":
				trace = regexp.MustCompile("(?m)^:\n\n").ReplaceAllString(trace, "")
				if got := parseTranscript(trace).fromServer(t).String(); got != trace {
					t.Errorf("got\n%s\nwant\n%s", got, trace)
				}
			default:
				continue
			}
			played++
		}
	}
	if played != 3 {
		t.Error(played, "traces")
	}
}

// What is a secret in a session of the client is not in its trace: neither in the header, nor in the query, nor as the id of the session.
func TestTraceHTTP(t *testing.T) {
	base, _ := startHTTP(t, []string{"-http", "127.0.0.1:0", "-token", "s3cret", "-replica", "s3cret"})
	cmd := process(t, "mcpwire", "call", "-trace", "-protocol", "2025-11-25", "-header", "Authorization: Bearer s3cret", "-method", "ping", base+"/mcp?key=s3cret")
	trace, err := cmd.CombinedOutput()
	if err != nil || bytes.Contains(trace, []byte("s3cret")) || !bytes.Contains(trace, []byte("\nAuthorization: …\n")) ||
		!bytes.Contains(trace, []byte("\nDELETE /mcp?key=…\n")) || !bytes.Contains(trace, []byte("\nMcp-Session-Id: session-1\n")) {
		t.Errorf("%v\n%s", err, trace)
	}
}

// A trace hides the session in the endpoint that a foreign server of 2024-11-05 names, however it is written.
func TestTraceNames(t *testing.T) {
	x := &exchange{tap: newTap()}
	for in, want := range map[string]string{
		"data: /m?sessionId=s3cret":                         "data: /m?sessionId=…",
		"data:/m?sessionId=s3cret":                          "data:/m?sessionId=…",
		"data: http://h/m?session=s3cret&b=s3cret":          "data: http://h/m?session=session-1&b=…",
		"data:  m?sessionId=s3cret":                         "data:  m?sessionId=…",
		`data:  "text": "is it?"`:                           `data:  "text": "is it?"`,
		"data: {\"jsonrpc\":\"2.0\",\"method\":\"/a?b=c\"}": "data: {\"jsonrpc\":\"2.0\",\"method\":\"/a?b=c\"}",
	} {
		if got := x.hideInEvent(in); got != want {
			t.Errorf("%s: %s, want %s", in, got, want)
		}
	}
	if name := x.nameOf(strings.Repeat("x", maxNamed+1), true); name != noName {
		t.Error("an id of any length is kept:", name)
	}
}

// Progress extends the time-out of a call, but not for ever.
func TestCallIsLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &caller{stderr: io.Discard, timeout: time.Second}
		c.Handler = c
		connect(t, newDemo(), &c.Client)
		began := time.Now()
		err := c.callMethod(t.Context(), "tools/call", `{"name":"count","arguments":{"n":100,"delayMs":900}}`, nil)
		if took := time.Since(began); took != 10*time.Second || err == nil || err.Error() != "tools/call: no answer within 1s" {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// newAsked returns a caller whose user types this at a terminal, and what is shown to the user.
func newAsked(typed io.Reader) (*caller, *lockedBuffer) {
	var shown lockedBuffer
	c := &caller{input: bufio.NewScanner(typed), stderr: &shown, atTerminal: true, timeout: time.Minute, form: make(chan struct{}, 1)}
	c.idle.Store(time.NewTimer(c.timeout))
	return c, &shown
}

// newQuestion returns an elicitation with this schema.
func newQuestion(schema string) *Exchange {
	params := json.RawMessage(`{"message":"Who?","requestedSchema":` + schema + `}`)
	return &Exchange{Request: &Message{ID: NumberID(1), Method: "elicitation/create", Params: params}}
}

// At a terminal the user fills in the form, field by field. What does not fit is asked for again.
func TestCallAsksTheUser(t *testing.T) {
	form := newQuestion(`{"type":"object","required":["name"],` +
		`"properties":{"name":{"type":"string"},"age":{"type":"integer"},"ok":{"type":"boolean","default":true},` +
		`"c":{"type":"string","oneOf":[{"const":"r","title":"Red"},{"const":"g","title":"Green"}]},"l":{"type":"array","items":{"enum":["a","b"]}}}}`)
	for typed, want := range map[string]string{
		"Ada\n36\n\n\n\n":                                     `{"action":"accept","content":{"name":"Ada","age":36,"ok":true}}`,
		"\nAda\nx\n3.5\n3\nmaybe\nfalse\n":                    `{"action":"cancel"}`, // the input ends before c
		"Ada\n\nNo\nBlue\nGreen\na\n[\"c\"]\n[\"a\",\"b\"]\n": `{"action":"accept","content":{"name":"Ada","ok":false,"c":"g","l":["a","b"]}}`,
		"Ada\n":           `{"action":"cancel"}`,
		"Ada\n/cancel\n":  `{"action":"cancel"}`,
		"Ada\n/decline\n": `{"action":"decline"}`,
	} {
		c, shown := newAsked(strings.NewReader(typed))
		result, err := c.Handle(t.Context(), form)
		got, _ := json.Marshal(result)
		if err != nil || string(got) != want || !strings.Contains(shown.String(), "Who?\n"+formHelp+"\nname (string, required): ") {
			t.Errorf("%q: %s, %v, %q", typed, got, err, shown)
		}
		if c.idle.Load().Stop() == false {
			t.Errorf("%q: no time-out runs any more", typed)
		}
	}
	// An empty line agrees to nothing: the message may be "Delete everything?".
	question := newQuestion(`{"type":"object","properties":{}}`)
	for typed, action := range map[string]string{"\nYES\n": "accept", "true\n": "accept", "n\n": "decline", "/decline\n": "decline", "\n": "cancel", "": "cancel"} {
		c, shown := newAsked(strings.NewReader(typed))
		if result, err := c.Handle(t.Context(), question); err != nil || result.(ElicitResult).Action != action || !strings.Contains(shown.String(), "\naccept (y or n, required): ") {
			t.Errorf("%q to a question without fields: %v, %v, %q", typed, result, err, shown)
		}
	}
	silence, w := io.Pipe()
	defer w.Close()
	c, _ := newAsked(silence)
	if _, err := c.Handle(canceled(), form); !errors.Is(err, context.Canceled) {
		t.Error("a user who says nothing:", err)
	}
}

// A form shows what the schema says of a field: its types or its choices. It asks again for what does not fit. What cannot be checked here is only
// shown, and a schema that cannot be read is one for any value.
func TestCallChecksTheForm(t *testing.T) {
	many, ref := strings.TrimSuffix(strings.Repeat("1,", maxChoices+1), ","), `{"$ref":"#/properties/f/$defs/E"}`
	for _, row := range []struct{ schema, prompt, typed, says, value string }{
		{`{"type":"boolean"}`, "y or n", "perhaps\nY", `must be boolean, not "perhaps": write true or false, or y or n`, `true`},
		{`{"type":["boolean","string"]}`, "boolean|string", "yes", "", `"yes"`},
		{`{"type":"string","minLength":2,"maxLength":3}`, "string, minLength 2, maxLength 3", "é\néé", "must fit minLength 2", `"éé"`},
		{`{"type":"string","maxLength":3}`, "string, maxLength 3", "four\nfou", "must fit maxLength 3", `"fou"`},
		{`{"type":"integer","minimum":18,"maximum":1000000}`, "integer, minimum 18, maximum 1000000", "17\n1000001\n18", "must fit maximum 1000000", `18`},
		{`{"type":"number","minimum":null,"maximum":"1"}`, `number, minimum null, maximum "1"`, "7.5", "", `7.5`},
		{`{"type":"string","format":"date","pattern":"^2"}`, `string, format "date", pattern "^2"`, "x", "", `"x"`},
		{`{"type":"array","items":{"type":"string","maxLength":1},"minItems":1,"maxItems":2}`, "array of string, minItems 1, maxItems 2", "[]\n[\"a\",\"bc\"]\n[\"a\",\"b\",\"c\"]\n[\"a\"]",
			"has an item that must fit maxLength 1", `["a"]`},
		{`{"type":"array","items":{"anyOf":[{"const":"1","title":"One"},{"const":"2","title":"Two"}]}}`, `array of "1"=One|"2"=Two`, `["3"]` + "\n" + `["2"]`, `must be "1"|"2", not "3"`, `["2"]`},
		{`{"anyOf":[{"type":"array","items":{"enum":["x","y"]}},{"type":"null"}]}`, `null|array of "x"|"y"`, "x\nnull", `must be null|array of "x"|"y", not "x": write JSON, such as ["a"]`, `null`},
		{`{"type":"object"}`, "object", "x\n{}", `must be object, not "x": write JSON, such as {"a":1}`, `{}`},
		{`{"allOf":[{"type":"string"},{"minLength":1}]}`, "string", "5", "", `"5"`},
		{`{"allOf":[{"enum":["a","b"]},{"enum":["b","c"]}]}`, `one of "a"|"b"`, "c\nb", `must be "a"|"b", not "c"`, `"b"`},
		{`{"anyOf":[{"type":"integer"},{"type":"null"}]}`, `integer|null`, "5", "", `5`},
		{`{"type":["array","object"],"items":{"type":"string"}}`, "object|array of string", `{"a":1}`, "", `{"a":1}`},
		{`{"enum":[1,2]}`, "one of 1|2", "1.0", "", "1.0"},
		{`{"enum":[` + many + `]}`, "any", "7", "", "7"},
		{`{"anyOf":[` + ref + strings.Repeat(","+ref, 400) + `],"$defs":{"E":{"enum":[` + many + `]}}}`, "any", "7", "", "7"},
		{`{"$ref":"#/properties/f/$ref"}`, "any", "7", "", "7"},
		{`{"$ref":"#/properties/f/a","a":{"$ref":"#/properties/f/a"}}`, "any", "7", "", "7"},
		{`{"$ref":"#/properties/f/a` + strings.Repeat("/a", 9000) + `"}`, "any", "7", "", "7"},
	} {
		c, shown := newAsked(strings.NewReader(row.typed + "\n"))
		result, err := c.Handle(t.Context(), newQuestion(`{"properties":{"f":`+row.schema+`}}`))
		got, _ := json.Marshal(result)
		if want := `{"action":"accept","content":{"f":` + row.value + `}}`; err != nil || string(got) != want || !strings.Contains(shown.String(), "\nf ("+row.prompt+"): ") || !strings.Contains(shown.String(), row.says) {
			t.Errorf("%s: %s, %v, %q", row.schema, got, err, shown)
		}
	}
}

// What the user may try is said behind an error that has a remedy, and behind no other.
func TestCallAdvises(t *testing.T) {
	challenge := http.Header{"Www-Authenticate": {"Bearer", `Basic realm="x"`}}
	for _, row := range []struct {
		err  error
		want string
	}{
		{&HTTPError{Status: 401}, "; send a token with -header 'Authorization: Bearer TOKEN'"},
		{&HTTPError{Status: 401, Header: challenge}, `; send a token with -header 'Authorization: Bearer TOKEN'; the server says: Bearer, Basic realm="x"`},
		{fmt.Errorf("x: %w", &HTTPError{Status: 405}), "; no MCP server answers at this path: that of most ends in /mcp or /sse"},
		{fmt.Errorf("%w: %w", ErrSessionEnded, &HTTPError{Status: 404}), ""},
		{&HTTPError{Status: 500}, ""},
		{&Error{Code: CodeMissingCapability}, ""}, // it is no remedy for the client of a bridge
		{exec.Command("no-such-command").Start(), "; a URL begins with http:// or https://"},
		{exec.Command("localhost:3904/mcp").Start(), "; a URL begins with http:// or https://"},
		{(&exec.Cmd{Path: os.Args[0], Dir: "no-such-folder"}).Start(), ""},
		{io.EOF, ""},
	} {
		if got := advice(row.err); row.err == nil || got != row.want {
			t.Errorf("%v: %q", row.err, got)
		}
	}
}

// While the user fills in a form, the time-out stands still. Progress does not start it. Afterwards it runs again.
func TestCallWaitsForTheUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		typed, keyboard := io.Pipe()
		c, _ := newAsked(typed)
		began := time.Now()
		err := c.limited(t.Context(), "", func(ctx context.Context) error {
			time.AfterFunc(2*time.Minute, c.extendTimeout)
			time.AfterFunc(5*time.Minute, func() { fmt.Fprintln(keyboard, "Ada") })
			if _, err := c.Handle(ctx, newQuestion(`{"properties":{"name":{}}}`)); err != nil {
				t.Error(err)
			}
			<-ctx.Done()
			return ctx.Err()
		})
		if took := time.Since(began); took != 6*time.Minute || err == nil {
			t.Errorf("%v after %v", err, took)
		}
	})
}

// A choice of a schema that is not shown is not copied for what is shown.
func TestSchemaTextIsCut(t *testing.T) {
	choices := `{"$ref":"#/$defs/E"}` + strings.Repeat(`,{"$ref":"#/$defs/E"}`, 300)
	s := readSchema(json.RawMessage(`{"anyOf":[` + choices + `],"$defs":{"E":{"const":"` + strings.Repeat("v", 1e6) + `"}}}`))
	if n := testing.AllocsPerRun(1, func() { _ = s.String() }); n > 30 {
		t.Errorf("%v allocations", n)
	}
}

// A server that cancels its questions, and asks again and again, has one form at a time.
func TestOneForm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		silence, w := io.Pipe()
		c, shown := newAsked(silence)
		form := newQuestion("{}")
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if _, err := c.Handle(ctx, form); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			cancel()
		}
		if n := strings.Count(shown.String(), "Who?"); n != 1 {
			t.Errorf("%d forms were shown", n)
		}
		_ = w.Close()
	})
}

// A server that takes nothing ends the bridge. It does not hide that the client has hung up.
func TestBridgeToDeafServer(t *testing.T) {
	for _, row := range []struct {
		isURL bool
		takes int    // so many messages, and no more
		lines string // of the client, which then hangs up if hangs
		hangs bool
		want  time.Duration
	}{
		{false, 0, `{"jsonrpc":"2.0","id":1,"method":"ping"}`, false, writeTime},
		{true, 0, `{"jsonrpc":"2.0","method":"notifications/x"}|{"jsonrpc":"2.0","method":"notifications/y"}`, false, writeTime},
		{true, 0, `{"jsonrpc":"2.0","id":1,"method":"initialize"}`, true, drainTime},
		{true, 0, `{"jsonrpc":"2.0","id":1,"method":"initialize"}|{"jsonrpc":"2.0","id":2,"method":"ping"}`, false, writeTime},
		{true, 1, `{"jsonrpc":"2.0","id":1,"method":"initialize"}|{"jsonrpc":"2.0","id":2,"method":"ping"}`, false, writeTime}, // taken, and not answered
		{true, 0, `{"jsonrpc":"2.0","id":1,"method":"m"}|{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}`, false, cancelDelay + writeTime},
	} {
		synctest.Test(t, func(t *testing.T) {
			client, end := Pipe()
			go func() {
				for line := range strings.SplitSeq(strings.TrimSuffix(row.lines, "|"), "|") {
					_ = client.Write(context.Background(), Decode([]byte(line)))
				}
				if row.hangs {
					_ = client.Close()
				}
			}()
			began := time.Now()
			b := newBridged(end, silentConn{make(chan Payload, row.takes), make(chan struct{})}, slog.New(slog.DiscardHandler))
			b.isURL = row.isURL
			go func() {
				for {
					if _, err := client.Read(); err != nil {
						return
					}
				}
			}()
			err := b.run()
			if took := time.Since(began); took != row.want || row.hangs != (err == nil) {
				t.Errorf("%.60s: %v after %v, want %v", row.lines, err, took, row.want)
			}
			_, _ = end.Close(), client.Close()
		})
	}
}

// The requests that wait in the bridge are bounded in bytes, too. One alone may have more.
func TestBridgeIsBounded(t *testing.T) {
	b := newBridged(nil, nil, slog.New(slog.DiscardHandler))
	large := &Message{ID: NumberID(1), Method: "m", Params: make(json.RawMessage, maxWaitingBytes+1)}
	small := &Message{ID: NumberID(2), Method: "m", Params: json.RawMessage("{}")}
	if !b.add(large) || b.add(small) {
		t.Error("a large request is refused, or another one beside it is not")
	}
	if b.removeWaiting("1"); !b.add(small) {
		t.Error("a request is refused although nothing waits")
	}
}

// The demo keeps 200 notes. A list of them has pages of 50, and no more than 100 complete an argument: the client is told how many there are.
func TestDemoIsBounded(t *testing.T) {
	for notes, pages := range map[int]string{100: "[50 50]", 101: "[50 50 1]", maxNotes: "[50 50 50 50]"} {
		demo := newDemo()
		for i := range notes - 1 {
			demo.storeNote(fmt.Sprintf("w%03d", i), "x")
		}
		c := connect(t, demo, &Client{})
		ask := func(method, params string) (result json.RawMessage) {
			if err := c.Call(t.Context(), method, json.RawMessage(params), &result); err != nil {
				t.Fatal(err)
			}
			return result
		}
		completion := member(ask("completion/complete", `{"ref":{"type":"ref/prompt","name":"summarize-note"},"argument":{"name":"name","value":"w"}}`), "completion")
		var values []string
		_ = json.Unmarshal(member(completion, "values"), &values)
		if n := string(member(completion, "total")); len(values) != 100 || n != strconv.Itoa(notes) || string(member(completion, "hasMore")) != strconv.FormatBool(notes > 100) {
			t.Errorf("%d notes: %s", notes, completion)
		}
		var names []string
		var sizes []int
		for params := "{}"; params != ""; {
			page, before := ask("resources/list", params), len(names)
			for _, note := range Each(member(page, "resources")) {
				names = append(names, unquote(member(note, "name")))
			}
			sizes, params = append(sizes, len(names)-before), ""
			if next := member(page, "nextCursor"); next != nil {
				params = `{"cursor":` + string(next) + `}`
			}
		}
		if fmt.Sprint(sizes) != pages || !slices.Equal(names, demo.noteNames()) {
			t.Errorf("%d notes on pages of %v: %s", notes, sizes, names)
		}
		for name, refused := range map[string]bool{"one-more": notes == maxNotes, "welcome": false} {
			if result := ask("tools/call", `{"name":"set-note","arguments":{"name":"`+name+`","text":"new"}}`); (member(result, "isError") != nil) != refused {
				t.Errorf("%s beside %d notes: %s", name, notes, result)
			}
		}
	}
}

// ======== Golden files ========

// A golden file shows messages as they travel. testdata/cases/README.md explains the files and their notation. There are two kinds:
//
//	testdata/NN-*.txtar     a lesson: one conversation, replayed against the server and against the client
//	testdata/cases/*.txtar  the cases of one subject: each is a short conversation that shows one rule, at one end
//
// This is how a file is replayed:
//
//	text ──parse──> sections ──unfolded──> sections in full ──play──> sections as they were said ──String──> text
//
//	parse     The text is split at the lines that name sections: parseTranscript, parseCases.
//	unfolded  What a file abbreviates is written out: a handshake, and what stands between guillemets. In a lesson the sections are
//	          added that say what the application does: directed.
//	play      The sections are played in turn, in a bubble of testing/synctest, over connections in memory. So even time is as it was.
//	          One side is tested. A section of its side is replaced by what it says. The other side is taken from the file. There are
//	          three ways to play it: pipeSide plays either side over stdio, webClient a client over HTTP, webServer a server over HTTP.
//	          An application uses the Client that is tested.
//	String    A section that means the same as before is written as it stood in the file.
//
// Then the two texts are compared. With -update the new one becomes the file.
type transcript struct {
	title    string // and the reason, if it is a case
	sections []section
	isCase   bool
}

// section is a part of a golden file, under a line that names it.
type section struct {
	who    string // what it is: client, server, call, …
	letter string // which exchange over HTTP; or what else stands behind the name
	text   string
	source string // what stands for the text in the file, once it is unfolded
	folded bool   // it does not stand in the file: another section stands for it
	more   bool   // its exchange is not over at its end
}

// What a section may hold in place of a message, and in front of it.
const (
	hangsUp     = "(hangs up)\n"              // one side ends the exchange, or the pipe
	breaks      = "(the connection breaks)\n" // the network does
	goesOn      = "(goes on)\n"               // the response does not end
	startsAgain = "(starts it again)\n"       // the Client starts the command once more
)

var (
	sectionLine = regexp.MustCompile(`^-- (case: .*|client|server|by hand|note|handler|handshake|call|cancel|close|result|error|notification|log|stream|events|schema|marks|stdin|stdout|stderr|exit)(?: (.+))? --\n$`)
	laterLine   = regexp.MustCompile(`^\((\S+) later\)\n`)
)

// parseTranscript splits a lesson into its sections. Like txtar's, it knows no syntax errors.
func parseTranscript(text string) transcript {
	var tr transcript
	for line := range strings.Lines(text) {
		if m := sectionLine.FindStringSubmatch(line); m != nil {
			tr.sections = append(tr.sections, section{who: m[1], letter: m[2]})
		} else if len(tr.sections) == 0 {
			tr.title += line
		} else {
			tr.sections[len(tr.sections)-1].text += line
		}
	}
	return tr
}

// parseCases splits a file of cases: what stands before the first, and the cases. An empty line stands before each case.
func parseCases(text string) (intro string, cases []transcript) {
	const begins = "-- case: "
	parts := strings.Split(strings.TrimSuffix(text, "\n"), "\n\n"+begins)
	for _, part := range parts[1:] {
		all := parseTranscript(begins + part + "\n")
		title, _ := strings.CutPrefix(all.sections[0].who, "case: ")
		cases = append(cases, transcript{title: title + "\n" + all.sections[0].text, sections: all.sections[1:], isCase: true})
	}
	return parts[0] + "\n", cases
}

// goldenFiles returns the lessons or the cases in the files of a pattern.
func goldenFiles(pattern string) (all []transcript) {
	files, _ := filepath.Glob(pattern)
	for _, file := range files {
		text, _ := os.ReadFile(file)
		if _, cases := parseCases(string(text)); cases != nil {
			all = append(all, cases...)
		} else {
			all = append(all, parseTranscript(string(text)))
		}
	}
	return all
}

// String returns the text of a lesson, or of a case.
func (tr transcript) String() string {
	text := tr.title
	if tr.isCase {
		title, reason, _ := strings.Cut(tr.title, "\n")
		text = "-- case: " + title + " --\n" + reason
	}
	for _, s := range tr.sections {
		switch same := unescape(s.source) == s.text; {
		case s.folded && (same || s.who != "client"): // a handshake that is not what it stands for is shown
		case same:
			text += s.line() + s.source
		default:
			text += s.line() + s.text
		}
	}
	if tr.isCase {
		text = strings.NewReplacer(modernMembers, "«modern»", callMembers, "«mcpwire»").Replace(text)
	}
	return text
}

func (s section) line() string { return "-- " + strings.TrimSpace(s.who+" "+s.letter) + " --\n" }

// name returns the title of a case, without the reason.
func (tr transcript) name() string {
	name, _, _ := strings.Cut(tr.title, "\n")
	return name
}

// command returns the words after "$ mcpwire", on the last line of the title.
func (tr transcript) command() []string {
	lines := strings.Split(strings.TrimSpace(tr.title), "\n")
	args, ok := strings.CutPrefix(lines[len(lines)-1], "$ mcpwire ")
	if !ok {
		return nil
	}
	return strings.Fields(args)
}

// index returns where the first section of a kind stands, or -1.
func (tr transcript) index(who string) int {
	return slices.IndexFunc(tr.sections, func(s section) bool { return s.who == who })
}

// put gives the section of a kind its text. If there is no such section, one is inserted at a place, unless the text is empty.
func (tr *transcript) put(who, text string, at int) {
	if i := tr.index(who); i >= 0 {
		tr.sections[i].text = text
	} else if text != "" {
		tr.sections = slices.Insert(tr.sections, at, section{who: who, text: text})
	}
}

// said lists the messages in a section.
func (s section) said() (in []*Message) {
	for line := range strings.Lines(s.text) {
		line = strings.TrimSpace(strings.TrimPrefix(line, "data: "))
		if strings.HasPrefix(line, "{") || strings.HasPrefix(line, "[") {
			in = append(in, Decode([]byte(line)).Messages...)
		}
	}
	return in
}

// side returns what a side says, in one section: in an exchange over HTTP, or in all ("").
func (tr transcript) side(who, letter string) (all section) {
	for _, s := range tr.sections {
		if s.who == who && (letter == "" || s.letter == letter) {
			all.text += s.text
		}
	}
	return all
}

// shows reports whether the client is seen to say something that has this text in it.
func (tr transcript) shows(text string) bool {
	return slices.ContainsFunc(tr.sections, func(s section) bool { return s.who == "client" && strings.Contains(s.text, text) })
}

func (tr transcript) overHTTP() bool {
	return slices.ContainsFunc(tr.sections, func(s section) bool {
		return slices.Contains([]string{"client", "server", "by hand"}, s.who) && s.letter != ""
	})
}

// overSSE reports whether the URL is that of the transport of 2024-11-05.
func (tr transcript) overSSE() bool {
	handshake := tr.index("handshake")
	return tr.shows(" /sse") || slices.Contains(tr.command(), "/sse") || handshake >= 0 && strings.Contains(tr.sections[handshake].letter, "/sse")
}

// ---- What a golden file abbreviates ----

// modernMembers is what «modern» stands for: the _meta that makes a request one of 2026-07-28.
const modernMembers = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"student","version":"1.0"},"io.modelcontextprotocol/clientCapabilities":{}}`

// callMembers is what «mcpwire» stands for: what mcpwire call adds to _meta in 2026-07-28.
const callMembers = `"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{"name":"mcpwire","title":"mcpwire call","version":"0.3.0"},"io.modelcontextprotocol/clientCapabilities":{"elicitation":{}}`

// demoIcon is what «icon» stands for: the picture of the demo.
const demoIcon = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8BQDwAEhQGAhKmMIQAAAABJRU5ErkJggg=="

var escaped = regexp.MustCompile(`«(modern|mcpwire|icon|[0-9a-f ]+|[^«»]*×[0-9]+)»`)

// unescape writes out what a golden file has between guillemets, so that it can hold any byte: «modern», «icon», bytes as «0d 0a», and «TEXT×N», which
// is TEXT so many times. An empty pair takes away the end of the line it ends.
func unescape(text string) string {
	return escaped.ReplaceAllStringFunc(strings.ReplaceAll(text, "«»\n", ""), func(found string) string {
		inner := strings.TrimSuffix(strings.TrimPrefix(found, "«"), "»")
		switch inner {
		case "modern":
			return modernMembers
		case "mcpwire":
			return callMembers
		case "icon":
			return demoIcon
		}
		repeated, count, many := strings.Cut(inner, "×")
		if n, err := strconv.Atoi(count); many && err == nil {
			return strings.Repeat(repeated, n)
		}
		bytes, err := hex.DecodeString(strings.ReplaceAll(inner, " ", ""))
		if err != nil {
			return found
		}
		return string(bytes)
	})
}

// unfolded returns the transcript with its handshake written out, and with the bytes that the file has in another notation.
func (tr transcript) unfolded() transcript {
	var sections []section
	requests := 0 // of the client, before the handshake
	for _, s := range tr.sections {
		s.source, s.text = s.text, unescape(s.text)
		switch sections = append(sections, s); s.who {
		case "client":
			requests++
		case "handshake":
			sections = append(sections, tr.folded(requests)...)
		}
	}
	for i := range sections {
		s := &sections[i]
		s.more = s.more || strings.HasSuffix(s.text, goesOn) || slices.ContainsFunc(sections[i+1:], func(next section) bool {
			return next.letter == s.letter && (next.who == "server" || next.text == hangsUp || next.text == breaks)
		})
	}
	tr.sections = sections
	return tr
}

// handshake returns the version and the capabilities of the handshake that stands folded in the file, if there is one.
func (tr transcript) handshake() (version, capabilities string) {
	if i := tr.index("handshake"); i >= 0 {
		version, capabilities, _ = strings.Cut(tr.sections[i].letter, " ")
		capabilities = cmp.Or(strings.TrimSpace(strings.TrimPrefix(capabilities, "/sse")), "{}")
	}
	return version, capabilities
}

// folded writes out the handshake that comes after so many requests. What the server says there is only what the Client needs.
func (tr transcript) folded(requests int) (list []section) {
	version, capabilities := tr.handshake()
	request := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"initialize","params":{"protocolVersion":"%s","capabilities":%s,`+
		`"clientInfo":{"name":"student","version":"1.0"}}}`+"\n", requests+1, version, capabilities)
	result := fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{"protocolVersion":"%s","capabilities":{"completions":{},"logging":{},"prompts":{},`+
		`"resources":{"listChanged":true,"subscribe":true},"tools":{"listChanged":true}},"serverInfo":{"name":"teacher","version":"1.0"}}}`+"\n", requests+1, version)
	initialized := `{"jsonrpc":"2.0","method":"notifications/initialized"}` + "\n"
	say := func(who, letter, text string) {
		if letter != "" {
			letter = string(rune(int(letter[0]) + requests))
		}
		isStream := strings.HasPrefix(text, "event: message\n") // which stays open
		list = append(list, section{who: who, letter: letter, text: text, source: text, folded: true, more: isStream})
	}
	switch {
	case tr.overSSE():
		const post = "POST /sse?session=session-1\n\n"
		say("client", "A", "GET /sse\n")
		say("server", "A", "200\nContent-Type: text/event-stream\n\nevent: endpoint\ndata: /sse?session=session-1\n\n")
		say("client", "B", post+request)
		say("server", "B", "202\n")
		say("server", "A", "event: message\ndata: "+result+"\n")
		say("client", "C", post+initialized)
		say("server", "C", "202\n")
	case tr.overHTTP():
		post := func(body string) string { // a lesson shows the whole header
			if tr.isCase {
				return "POST /mcp\n\n" + body
			}
			usual := transcript{sections: tr.sections, isCase: true}.usual(http.MethodPost, "/mcp", body)
			return "POST /mcp\n" + strings.Join(usual, "") + "\n" + body
		}
		say("client", "A", post(request))
		say("server", "A", "200\nContent-Type: application/json\nMcp-Session-Id: session-1\n\n"+result)
		say("client", "B", post(initialized))
		say("server", "B", "202\n")
	default:
		say("client", "", request)
		say("server", "", result)
		say("client", "", initialized)
	}
	return list
}

// usual returns the lines of a header that a case leaves out of a request, since each client sends them.
func (tr transcript) usual(method, path, body string) (lines []string) {
	switch {
	case !tr.isCase:
		return nil
	case strings.HasPrefix(path, "/sse?") || tr.overSSE() && method == http.MethodPost && path != "/sse" && path != "/mcp":
		return []string{"Content-Type: application/json\n"}[:min(1, len(body))]
	case method == http.MethodPost:
		lines = append(lines, "Accept: application/json, text/event-stream\n", "Content-Type: application/json\n")
	case method == http.MethodGet:
		lines = append(lines, "Accept: text/event-stream\n")
	}
	version, _ := tr.handshake()
	m := Decode([]byte(body)).Messages[0]
	switch {
	case version != "" && !tr.overSSE() && m.Method != "initialize" && m.Method != "server/discover":
		if revision(version).VersionHeader {
			lines = append(lines, "Mcp-Protocol-Version: "+version+"\n")
		}
		lines = append(lines, "Mcp-Session-Id: session-1\n")
	case method == http.MethodPost && strings.Contains(body, metaVersion):
		meta, _ := m.Meta()
		lines = append(lines, "Mcp-Method: "+m.Method+"\n")
		if name := unquote(member(m.Params, nameParams[m.Method])); name != "" {
			lines = append(lines, "Mcp-Name: "+name+"\n")
		}
		lines = append(lines, "Mcp-Protocol-Version: "+meta.ProtocolVersion+"\n")
	}
	return lines
}

// hasField reports whether lines of a header have a field with the name of this line.
func hasField(lines []string, line string) bool {
	name, _, _ := strings.Cut(line, ":")
	return slices.ContainsFunc(lines, func(l string) bool { return strings.EqualFold(name, strings.SplitN(l, ":", 2)[0]) })
}

// inFull returns the header of a request with the lines that a case leaves out. "NAME:" alone leaves one out of the request as well.
func (tr transcript) inFull(method, path, fields, body string) []string {
	given := slices.Collect(strings.Lines(fields))
	missing := slices.DeleteFunc(tr.usual(method, path, body), func(line string) bool { return hasField(given, line) })
	return append(missing, slices.DeleteFunc(given, func(line string) bool { return tr.isCase && strings.HasSuffix(line, ":\n") })...)
}

// inShort is the opposite of inFull.
func (tr transcript) inShort(method, path, fields, body string) (short string) {
	given, usual := slices.Collect(strings.Lines(fields)), tr.usual(method, path, body)
	for _, line := range given {
		if !slices.Contains(usual, line) {
			short += line
		}
	}
	for _, line := range usual {
		if !hasField(given, line) {
			name, _, _ := strings.Cut(line, ":")
			short += name + ":\n"
		}
	}
	return short
}

// ---- Playing a golden file ----

// player plays what stands in the sections of a file: a side of the conversation, or the application that uses the Client.
type player interface {
	say(s section)                                // says or does what stands in a section
	hear(s section) (heard section, at time.Time) // returns what the tested side says where this section stands, and when it has come
}

// side is the side of a conversation that the test plays.
type side interface {
	player
	rest() []section // ends the conversation, and returns what the tested side has said beside the file
}

// stage is where a transcript is played: in a bubble of synctest, or in real time.
type stage struct {
	testing.TB
	tested   string                // the side that is tested: "server" or "client"
	settle   func()                // waits until all that has begun waits for something
	patience time.Duration         // for what must come
	size     func(text string) int // of what a server says: how much of it is waited for
	measures bool                  // how long things take
}

func bubble(t *testing.T, tested string) *stage {
	return &stage{t, tested, synctest.Wait, time.Hour, lineCount, true}
}

// elsewhere is a stage for servers that say the same with other lines.
func elsewhere(t *testing.T) *stage {
	return &stage{t, "server", func() { time.Sleep(50 * time.Millisecond) }, 6 * time.Second, dataCount, false}
}

func lineCount(text string) int { return strings.Count(laterLine.ReplaceAllString(text, ""), "\n") }

var dataLine = regexp.MustCompile(`(?m)^data: ?\S.*\n\n`)

// dataCount counts events that carry something. That the list of tools has changed is said in no lesson.
func dataCount(text string) int {
	return len(dataLine.FindAllString(text, -1)) - strings.Count(text, "notifications/tools/list_changed")
}

// play plays the sections of a transcript in turn, and returns it with what the tested side has said and what the application has got.
func (g *stage) play(tr transcript, played side, application player) transcript {
	tr.sections = slices.Clone(tr.sections)
	byHand := map[string]bool{} // exchanges that are not for our Client
	mark := time.Now()          // when the last section was over
	for i := range tr.sections {
		s := &tr.sections[i]
		byHand[s.letter] = g.tested == "client" && (s.who == "by hand" || s.who == "server" && byHand[s.letter])
		var p player = played
		isHeard := s.who == g.tested && !strings.HasSuffix(s.text, breaks)
		switch s.who {
		case "client", "server", "by hand":
		case "call", "cancel", "close":
			p = application
		case "result", "error", "notification", "log":
			p, isHeard = application, true
		default: // words for the reader, and what has been seen to before
			continue
		}
		switch {
		case byHand[s.letter]:
		case isHeard:
			heard, at := p.hear(*s)
			s.who, s.text, mark = heard.who, g.measured(s.text, heard.text, at.Sub(mark)), at
		default:
			said := *s
			wait, text := pause(s.text)
			time.Sleep(wait)
			said.text = text
			p.say(said)
			g.settle()
			mark = time.Now()
		}
	}
	return tr
}

// with adds sections that the file does not have, in front of the note at its end. What the last one says is continued there.
func (tr transcript) with(added []section) transcript {
	end := len(tr.sections)
	if len(added) > 0 && tr.sections[end-1].who == "note" {
		end--
	}
	notes := slices.Clone(tr.sections[end:])
	tr.sections = tr.sections[:end]
	for _, s := range added {
		if last := &tr.sections[len(tr.sections)-1]; last.who == s.who && last.letter == s.letter && s.letter == "" {
			last.text += s.text
		} else {
			tr.sections = append(tr.sections, s)
		}
	}
	tr.sections = append(tr.sections, notes...)
	return tr
}

// pause splits a section's text behind "(3s later)", if it begins so.
func pause(text string) (wait time.Duration, rest string) {
	if m := laterLine.FindStringSubmatch(text); m != nil {
		wait, _ = time.ParseDuration(m[1])
		text = text[len(m[0]):]
	}
	return wait, text
}

// measured puts "(3s later)" in front of what the tested side has said, if the file measures how long it takes. What is drawn at random, as
// the pauses of a Client are, may make it up to a quarter longer. What a Client's file does not measure takes less than a second.
func (g *stage) measured(want, got string, took time.Duration) string {
	wanted, rest := pause(want)
	switch {
	case !g.measures, wanted == 0 && (took < time.Second || g.tested == "server"):
		return got
	case wanted > 0 && took >= wanted && took <= wanted+wanted/4:
		return strings.TrimSuffix(want, rest) + got
	default:
		return fmt.Sprintf("(%v later)\n%s", cmp.Or(took.Truncate(firstPause), took), got)
	}
}

// linesOf reads lines in the background; closed at the end.
func linesOf(r io.Reader) <-chan string {
	feed := make(chan string, 4096)
	go func() {
		defer close(feed)
		for in := bufio.NewReader(r); ; {
			line, err := in.ReadString('\n')
			if line != "" {
				feed <- strings.TrimSuffix(line, "\n") + "\n"
			}
			if err != nil {
				return
			}
		}
	}()
	return feed
}

// take returns the next n lines or events, or all to the end. Comments that only fill are left out; something reports whether there was
// even that.
func (g *stage) take(feed <-chan string, n int, all bool) (text string, something bool) {
	for all || g.size(text) < n || strings.HasSuffix("\n"+text, "\n:\n") {
		select {
		case line, ok := <-feed:
			if !ok {
				return text, something
			}
			text, something = withoutFiller(text+line), true
		case <-time.After(g.patience):
			if all {
				text += goesOn
			}
			return text, something
		}
	}
	return text, something
}

// withoutFiller takes the comment away that a stream begins with if nothing else is there yet.
func withoutFiller(text string) string {
	if rest, ok := strings.CutSuffix(text, ":\n\n"); ok && (rest == "" || strings.HasSuffix(rest, "\n")) {
		return rest
	}
	return text
}

// pipeSide plays a side over stdio.
type pipeSide struct {
	*stage
	out    io.WriteCloser // what it writes
	in     <-chan string  // lines that the tested side has written
	starts chan *pipeSide // of a command, by the Client that is tested
	end    func()         // ends the tested side
}

func (p *pipeSide) say(s section) {
	if s.text == hangsUp {
		p.out.Close()
	} else {
		_, _ = io.WriteString(p.out, s.text)
	}
}

func (p *pipeSide) hear(s section) (heard section, at time.Time) {
	wanted, again := strings.CutPrefix(s.text, startsAgain)
	s.text = ""
	if again {
		select {
		case next := <-p.starts:
			p.out, p.in, s.text = next.out, next.in, startsAgain
		case <-time.After(p.patience): // then this will not be there
		}
	}
	lines, _ := p.take(p.in, lineCount(wanted), false)
	s.text += lines
	return s, time.Now()
}

func (p *pipeSide) rest() (list []section) {
	p.end()
	if text, _ := p.take(p.in, 0, true); text != "" { // what is owed at the end
		list = append(list, section{who: p.tested, text: text})
	}
	for p.out.Close(); len(p.starts) > 0; {
		(<-p.starts).out.Close()
		list = append(list, section{who: p.tested, text: startsAgain})
	}
	return list
}

// dial is the Dialer of a command that the file plays.
func (p *pipeSide) dial(context.Context) (Conn, error) {
	in, theirOut := io.Pipe()
	theirIn, out := io.Pipe()
	p.starts <- &pipeSide{out: theirOut, in: linesOf(theirIn)}
	return NewLineConn(in, out, testLimit, func() error { return errors.Join(in.Close(), out.Close()) }), nil
}

// play plays the server's part in a file, as a process. It notes there what the client says.
func play(file string) {
	text, _ := os.ReadFile(file)
	g := &stage{tested: "client", settle: func() {}, patience: time.Minute, size: lineCount}
	p := &pipeSide{stage: g, out: os.Stdout, in: linesOf(os.Stdin), end: func() {}}
	played := g.play(parseTranscript(string(text)), p, nil).with(p.rest())
	_ = os.WriteFile(file, []byte(played.String()), 0o600)
}

// ---- The server that is tested ----

// fromServer returns the transcript with what the demo server says.
func (tr transcript) fromServer(t *testing.T) (got transcript) {
	synctest.Test(t, func(t *testing.T) {
		tr := tr.unfolded()
		p := newProgram(t, tr.command(), nil)
		tr.setHandlers(t, p.demo)
		if g := bubble(t, "server"); tr.overHTTP() {
			got = tr.fromHandlers(g, p)
		} else {
			got = tr.fromServe(g, int(p.options.guard.MaxBody), p.demo)
		}
	})
	return got
}

// fromServe plays the client's part over a pipe.
func (tr transcript) fromServe(g *stage, limit int, h Handler) transcript {
	in, theirOut := io.Pipe()
	theirIn, out := io.Pipe()
	served := make(chan error, 1)
	go func() {
		served <- Serve(g.Context(), NewLineConn(in, out, limit, in.Close), h, nil)
		out.Close()
	}()
	p := &pipeSide{stage: g, out: theirOut, in: linesOf(theirIn), end: func() {
		g.settle()
		theirOut.Close()
		if err := <-served; err != nil {
			g.Error(err)
		}
	}}
	return g.play(tr, p, nil).with(p.rest())
}

// owner has started the server that is tested. It stops it, and reads what it has printed to stderr.
type owner struct {
	stop    func()
	printed *lockedBuffer
}

func (o owner) say(section) { o.stop() }

func (o owner) hear(s section) (section, time.Time) {
	synctest.Wait()
	s.text = indented(o.printed.take())
	return s, time.Now()
}

// indented puts a space in front of a line that looks like the beginning of a section.
func indented(text string) string { return strings.ReplaceAll("\n"+text, "\n-- ", "\n -- ")[1:] }

// fromHandlers plays the client's part over HTTP, with the handlers of the program.
func (tr transcript) fromHandlers(g *stage, p *program) transcript {
	if s := tr.sections[0]; s.who == "schema" { // of each tool
		marked, err := ReadHeaderParams(json.RawMessage(s.text))
		if err != nil {
			g.Fatal(err)
		}
		p.mcp.HeaderParams = func(string) []HeaderParam { return marked }
		p.demo.Methods["tools/call"] = func(context.Context, *Exchange) (any, error) { return ToolResult{Content: []Content{}}, nil }
	}
	o := owner{func() { go p.mcp.Close(); go p.sse.Close() }, new(lockedBuffer)}
	defer func(s *spool) { stderr = s }(stderr)
	stderr = &spool{w: o.printed}
	p.serve(p.mux, io.Discard)
	transport := &http.Transport{DialContext: p.network.dial, IdleConnTimeout: stall} // shorter than that of the server, which could close a connection that is just being used
	c := newWebClient(g, tr, transport, "http://127.0.0.1:8080")
	got := g.play(tr, c, o).with(c.rest())
	transport.CloseIdleConnections()
	p.close()
	return got
}

// setHandlers gives the server the handlers that a case has written down.
func (tr transcript) setHandlers(t *testing.T, demo *demo) {
	for _, s := range tr.sections {
		if s.who != "handler" {
			continue
		}
		kind, text, _ := strings.Cut(strings.TrimSpace(s.text), " ")
		var result any = json.RawMessage(text)
		var failure error
		switch fault := new(Error); kind {
		case "result":
		case "asks":
			var need InputRequired
			if err := json.Unmarshal([]byte(text), &need.Requests); err != nil {
				t.Fatal(err)
			}
			result = need
		case "error":
			if failure = errors.New(text); json.Unmarshal([]byte(text), fault) == nil {
				failure = fmt.Errorf("wrapped: %w", fault)
			}
		default:
			t.Fatalf("a handler cannot return %s", s.text)
		}
		demo.Methods[s.letter] = func(context.Context, *Exchange) (any, error) { return result, failure }
	}
}

// webClient plays a client over HTTP.
type webClient struct {
	*stage
	tr        transcript
	client    *http.Client
	base      string                 // the URL, without a path
	names     map[string]string      // what the server uses in place of names in the file
	exchanges map[string]*webRequest // by letter
}

// webRequest is a request that a webClient has made.
type webRequest struct {
	response chan *http.Response
	body     <-chan string // lines, once the response has begun
	hangUp   func()
}

func newWebClient(g *stage, tr transcript, network http.RoundTripper, base string) *webClient {
	return &webClient{g, tr, &http.Client{Transport: network}, base, map[string]string{}, map[string]*webRequest{}}
}

// say makes a request; or it ends one that has been made.
func (c *webClient) say(s section) {
	if x := c.exchanges[s.letter]; x != nil {
		x.hangUp()
		return
	}
	ctx, cancel := context.WithTimeout(c.Context(), 2*c.patience)
	x := &webRequest{response: make(chan *http.Response, 1), hangUp: cancel}
	c.exchanges[s.letter] = x
	r := c.request(s).WithContext(ctx)
	go func() {
		resp, err := c.client.Do(r)
		if err == nil {
			err = ctx.Err() // it has hung up, and does not read what the server answers to that
		}
		if err != nil {
			resp = &http.Response{Body: io.NopCloser(strings.NewReader(err.Error()))}
		}
		x.response <- resp
	}()
}

func (c *webClient) hear(s section) (heard section, at time.Time) {
	x, want, head := c.exchanges[s.letter], laterLine.ReplaceAllString(s.text, ""), ""
	if x.body == nil {
		resp := <-x.response
		x.body = linesOf(resp.Body)
		fields, body, _ := strings.Cut(want, "\n\n")
		head, want = fmt.Sprintf("%d\n%s", resp.StatusCode, shownHeader(resp.Header, fields)), body
	}
	body, something := c.take(x.body, c.size(want), !s.more)
	if head != "" && something {
		head += "\n"
	}
	if !strings.HasSuffix(s.text, head+body) { // long texts would take the expressions seconds
		learnNames(c.names, s.text, head+body)
	}
	s.text = head + body
	return s, time.Now()
}

// rest ends the requests, and returns the responses that no section shows. A response that is not over at the end of a file may say anything,
// so there is no more to show.
func (c *webClient) rest() (list []section) {
	c.settle()
	for _, letter := range slices.Sorted(maps.Keys(c.exchanges)) {
		x := c.exchanges[letter]
		if x.body == nil && len(x.response) > 0 {
			s, _ := c.hear(section{who: "server", letter: letter})
			if !strings.HasPrefix(s.text, "0\n") { // or the connection has broken
				list = append(list, s)
			}
		}
		x.hangUp()
	}
	return list
}

// request reads a client's section.
func (c *webClient) request(s section) *http.Request {
	head, body, _ := strings.Cut(s.text, "\n\n")
	line, fields, _ := strings.Cut(strings.TrimSuffix(head, "\n")+"\n", "\n")
	body = strings.TrimSuffix(body, "\n")
	method, path, _ := strings.Cut(line, " ")
	full := c.tr.inFull(method, path, fields, body)
	path = cmp.Or(c.names[path], path)
	if m := s.said(); len(m) == 1 && m[0].Kind() == Response { // to a request of the server's
		id := `"id":` + m[0].ID.String()
		body = strings.Replace(body, id, cmp.Or(c.names[id], id), 1)
	}
	r, err := http.NewRequest(method, c.base+path, strings.NewReader(body))
	if err != nil {
		c.Fatal(err)
	}
	r.Header["User-Agent"], r.Header["Accept-Encoding"] = []string{"transcript"}, []string{"identity"}
	for _, field := range full {
		name, value, _ := strings.Cut(strings.TrimSuffix(field, "\n"), ": ")
		value = cmp.Or(c.names[value], value)
		if r.Header[name] = append(r.Header[name], value); name == "Host" { // spelt as it is in the file
			r.Host = value
		}
	}
	return r
}

// shownHeader returns the header of a response as a trace shows it, with the fields that the file names beside. "NAME:" alone says that there
// is no such field.
func shownHeader(header http.Header, named string) string {
	lines := slices.Collect(strings.Lines(tappedHeader(header, func(_, value string) string { return value })))
	for line := range strings.Lines(named) {
		name, _, isField := strings.Cut(line, ":")
		if !isField || hasField(lines, line) {
			continue
		}
		for _, value := range header[name] {
			lines = append(lines, name+": "+value+"\n")
		}
		if len(header[name]) == 0 {
			lines = append(lines, name+":\n")
		}
	}
	slices.SortStableFunc(lines, func(a, b string) int {
		return strings.Compare(strings.SplitN(a, ":", 2)[0], strings.SplitN(b, ":", 2)[0])
	})
	return strings.Join(lines, "")
}

// givenNames are what a server calls a session, an event, an endpoint and a request.
var givenNames = []*regexp.Regexp{regexp.MustCompile(`(?m)^Mcp-Session-Id: (\S+)$`), regexp.MustCompile(`(?m)^id: (\S+)$`),
	regexp.MustCompile(`(?m)^data: ([^{\s]\S*)$`), regexp.MustCompile(`(?m)^data: .*("id":[^,}]+).*"method":|"method":.*("id":[^,}]+)`)}

// learnNames notes what a server uses in place of names that stand in the lesson. The last ones count, as some servers say more before.
func learnNames(names map[string]string, want, got string) {
	for _, name := range givenNames {
		ours, theirs := name.FindAllStringSubmatch(want, -1), name.FindAllStringSubmatch(got, -1)
		for i := 1; i <= min(len(ours), len(theirs)); i++ {
			names[strings.Join(ours[len(ours)-i][1:], "")] = strings.Join(theirs[len(theirs)-i][1:], "")
		}
	}
}

// ---- What is compared ----

// replays checks that server and Client say what stands in a lesson.
func (tr transcript) replays(t *testing.T) {
	t.Helper()
	want := tr.String()
	if got := tr.fromServer(t).String(); got != want {
		t.Errorf("the server: got\n%s\nwant\n%s", got, want)
	}
	if tr.shows("") {
		if got := tr.fromClient(t).String(); got != want {
			t.Errorf("the client: got\n%s\nwant\n%s", got, want)
		}
	}
}

// replayed returns the case with what the tested side says.
func (tr transcript) replayed(t *testing.T) transcript {
	args := tr.command()
	switch {
	case tr.index("stream") == 0:
		return tr.unfolded().withEvents()
	case tr.index("exit") >= 0:
		return tr.unfolded().fromProgram(t)
	case tr.index("schema") == 0 && !tr.overHTTP():
		return tr.unfolded().withMarks()
	case len(args) > 0 && args[0] == "call":
		return tr.fromClient(t)
	default:
		return tr.fromServer(t)
	}
}

// withEvents returns a case that has a stream with the events that ReadEvents finds in it, also when they come byte by byte.
func (tr transcript) withEvents() transcript {
	stream, end := tr.sections[0].text, io.EOF
	if cut, ok := strings.CutSuffix(stream, "\n"+breaks); ok {
		stream, end = cut, io.ErrUnexpectedEOF
	} else if cut, ok := strings.CutSuffix(stream, "\n"+hangsUp); ok {
		stream = cut
	}
	events := func(r io.Reader) (text string) {
		for e, err := range ReadEvents(io.MultiReader(r, iotest.ErrReader(end)), testLimit) {
			if err != nil {
				return text + fmt.Sprintf("error: %v\n", err)
			}
			if text += fmt.Sprintf("type %q id %q retry %v", e.Type, e.ID, e.Retry); e.Data != nil {
				text += fmt.Sprintf(" data %q", e.Data)
			}
			text += "\n"
		}
		return text
	}
	text := events(strings.NewReader(stream))
	if got := events(iotest.OneByteReader(strings.NewReader(stream))); got != text {
		text += "byte by byte:\n" + got
	}
	tr.put("events", text, 1)
	return tr
}

// withMarks returns a case that has a schema with what ReadHeaderParams finds in it.
func (tr transcript) withMarks() transcript {
	marked, err := ReadHeaderParams(json.RawMessage(tr.sections[0].text))
	text := ""
	for _, p := range marked {
		text += fmt.Sprintf("Mcp-Param-%s: /%s\n", p.Name, strings.Join(p.Path, "/"))
	}
	if err != nil {
		text += fmt.Sprintf("error: %v\n", err)
	}
	tr.put("marks", cmp.Or(text, "none\n"), 1)
	return tr
}

// compare plays a lesson at the target, and reports what matters of what is different there. A lesson with flags is played only if they
// are spelled otherwise, too.
func (tr transcript) compare(t *testing.T) {
	u, err := url.Parse(*target)
	if err != nil {
		t.Fatal(err)
	}
	pairs := strings.FieldsFunc(strings.ReplaceAll(*spell, "=>", ";"), func(r rune) bool { return r == ';' })
	spelling := strings.NewReplacer(append(pairs, " /mcp\n", " "+u.Path+"\n")...)
	tr = tr.unfolded()
	theirs := transcript{title: spelling.Replace(tr.title), sections: slices.Clone(tr.sections)}
	switch {
	case !tr.overHTTP():
		t.Skip("not over HTTP")
	case strings.Contains(theirs.title, "$ mcpwire"):
		t.Skip("for a server with flags")
	}
	for i := range theirs.sections {
		if s := &theirs.sections[i]; s.who != "server" {
			s.text = spelling.Replace(s.text)
		}
	}
	g := elsewhere(t)
	c := newWebClient(g, theirs, &http.Transport{}, u.Scheme+"://"+u.Host)
	have := g.play(theirs, c, nil).with(c.rest()).facts()
	for _, fact := range tr.facts() {
		if i := slices.Index(have, fact); i >= 0 {
			have = slices.Delete(have, i, i+1)
		} else {
			t.Errorf("not there: %s", fact)
		}
	}
	for _, fact := range have {
		t.Errorf("instead:   %s", fact)
	}
}

// facts lists what a server has said, as far as the protocol says what it should be: not what comes in words, nor whether a lone answer
// is a stream.
func (tr transcript) facts() (facts []string) {
	for _, s := range tr.sections {
		if s.who != "server" {
			continue
		}
		add := func(format string, args ...any) {
			facts = append(facts, s.letter+": "+fmt.Sprintf(format, args...))
		}
		head, body, _ := strings.Cut(s.text, "\n\n")
		if status, fields, _ := strings.Cut(head, "\n"); len(strings.TrimSpace(status)) == 3 {
			add("status %s", strings.TrimSpace(status))
			if strings.Contains(fields, "Mcp-Session-Id: ") && strings.Contains(body, `"serverInfo"`) {
				add("a session")
			}
			all := tr.side("server", s.letter)
			switch said := all.said(); {
			case !strings.Contains(fields, "text/event-stream"), len(said) == 1 && said[0].Kind() == Response:
			case strings.Contains(all.text, "\nid: "):
				add("a stream with event ids")
			default:
				add("a stream")
			}
		}
		for _, m := range s.said() {
			switch id := m.ID.String(); {
			case m.Method != "":
				add("%s", m.Method)
			case m.Error == nil:
				add("result for %s%s%s%s", id, fact(m, "resultType"), fact(m, "protocolVersion"), fact(m, "isError"))
			case id != "": // without one it says no more than the status
				add("error %d for %s", m.Error.Code, id)
			}
		}
		if strings.HasSuffix(s.text, goesOn) {
			add("goes on")
		}
	}
	return facts
}

func fact(m *Message, name string) string {
	if value := member(m.Result, name); value != nil {
		return fmt.Sprintf(", %s %s", name, value)
	}
	return ""
}

// ---- The Client that is tested ----

const asksFirst = `"method":"server/discover"`

// fromClient returns the transcript with what our Client says and returns when the server says what stands there. What the Client does
// beside, and the file leaves out, is answered: server/discover, the GET that listens, DELETE at the end, and an answer of the Client.
func (tr transcript) fromClient(t *testing.T) (got transcript) {
	synctest.Test(t, func(t *testing.T) {
		tr := tr.unfolded().directed()
		g := bubble(t, "client")
		g.measures = tr.isCase
		a := newApplication(g, tr)
		var server side
		if tr.overHTTP() {
			server = newWebServer(g, tr, a)
		} else {
			server = newCommand(g, tr, a)
		}
		got = g.play(tr, server, a)
		got = got.with(a.unshown(tr))
		a.work.Go(func() { a.client.Close() })
		got = got.with(server.rest())
		a.work.Wait()
	})
	return got
}

// directed adds to a lesson what the application does, which a case says itself. The Client is made to call what is called there, to cancel
// and to hang up. All else it does by itself.
func (tr transcript) directed() transcript {
	if tr.isCase {
		return tr
	}
	var sections []section
	do := func(who, letter string, text any) {
		sections = append(sections, section{who: who, letter: letter, text: fmt.Sprintf("%s", text), folded: true})
	}
	for _, s := range tr.sections {
		if s.who != "client" {
			sections = append(sections, s)
			continue
		}
		for _, m := range s.said() {
			again := member(m.Params, "inputResponses") != nil || member(m.Params, "requestState") != nil
			switch {
			case m.Method == "notifications/cancelled":
				do("cancel", "", unquote(member(m.Params, "reason")))
			case m.Kind() != Request, again, m.Method == "initialize", m.Method == "server/discover":
			case m.Method == "subscriptions/listen":
				do("call", m.Method, member(m.Params, "notifications"))
			default:
				do("call", m.Method, m.Params) // the Client leaves out of _meta what it adds itself
			}
		}
		switch {
		case strings.HasPrefix(s.text, "DELETE "), s.text == hangsUp && !strings.HasPrefix(tr.side("client", s.letter).text, "POST "):
			do("close", "", "")
		case s.text == hangsUp:
			do("cancel", "", "")
		}
		sections = append(sections, s)
	}
	tr.sections = sections
	return tr
}

// application uses the Client that is tested.
type application struct {
	*stage
	client Client
	log    lockedBuffer
	header http.Header    // that it adds to each request
	url    string         // or its path
	work   sync.WaitGroup // what is done in the background
	calls  []*appCall     // that no section has shown to return

	mu            sync.Mutex            // guards the fields below
	answers       map[string][]*Message // to what the server asks, by id or key
	notifications []string              // that no section has shown
}

// appCall is a call of the application; or Connect, or Close.
type appCall struct {
	cancel  context.CancelCauseFunc
	outcome chan section // a result or an error
}

// newApplication makes a Client like that of the file.
func newApplication(g *stage, tr transcript) *application {
	a := &application{stage: g, answers: map[string][]*Message{}}
	a.client.Info = Implementation{Name: "student", Version: "1.0"}
	a.client.Handler = HandlerFunc(a.handle)
	a.client.Log = slog.New(slog.NewTextHandler(&a.log, nil))
	for _, m := range tr.side("client", "").said() {
		a.study(tr, m)
	}
	if !tr.isCase {
		return a
	}
	var protocol []string
	flags := flag.NewFlagSet("call", flag.ContinueOnError)
	flags.Func("protocol", "", addVersions(&protocol))
	flags.Func("capabilities", "", func(text string) error { return json.Unmarshal([]byte(text), &a.client.Capabilities) })
	flags.Func("header", "", func(line string) error {
		name, value, _ := strings.Cut(line, ":")
		a.header = http.Header{http.CanonicalHeaderKey(name): {value}}
		return nil
	})
	if err := flags.Parse(tr.command()[1:]); err != nil {
		g.Fatal(err)
	}
	a.url = flags.Arg(0)
	if len(protocol) > 0 {
		a.client.Versions = protocol
	}
	return a
}

// study learns from a message what kind of client it is that says it, and how it answers.
func (a *application) study(tr transcript, m *Message) {
	meta, _ := m.Meta()
	if m.Method == "initialize" {
		if !tr.shows(asksFirst) { // or it is a client of both eras
			a.client.Versions = []string{unquote(member(m.Params, "protocolVersion"))}
		}
		var p InitializeParams
		_ = Bind(m.Params, &p)
		meta.ClientInfo, meta.ClientCapabilities = &p.ClientInfo, p.Capabilities
	}
	if meta.ClientInfo != nil {
		a.client.Info = *meta.ClientInfo
	}
	if meta.ClientCapabilities != nil {
		_ = json.Unmarshal(meta.ClientCapabilities, &a.client.Capabilities)
	}
	if m.Kind() == Response {
		a.answers[m.ID.String()] = append(a.answers[m.ID.String()], m)
	}
	if responses := member(m.Params, "inputResponses"); responses != nil {
		for key, answer := range Each(responses) {
			id := StringID(string(key)).String()
			a.answers[id] = append(a.answers[id], &Message{Result: answer})
		}
	}
}

// handle answers what the server asks. What the file does not answer is never answered.
func (a *application) handle(ctx context.Context, x *Exchange) (any, error) {
	a.mu.Lock()
	if x.Request.Kind() == Notification {
		a.notifications = append(a.notifications, strings.TrimSpace(x.Request.Method+" "+string(x.Request.Params))+"\n")
		a.mu.Unlock()
		return nil, nil
	}
	id := x.Request.ID.String()
	answers := a.answers[id]
	a.answers[id] = answers[min(1, len(answers)):]
	a.mu.Unlock()
	if len(answers) == 0 {
		<-ctx.Done()
		time.Sleep(time.Millisecond) // Close may close the connection before or after this answer is written; here it is before
		return nil, ctx.Err()
	}
	if answers[0].Error != nil {
		return nil, answers[0].Error
	}
	return answers[0].Result, nil
}

// connect begins with what a Client does first. That it has connected is shown by no section.
func (a *application) connect(dials ...Dialer) {
	a.begin("", func(ctx context.Context) (json.RawMessage, error) { return nil, a.client.Connect(ctx, dials...) })
	a.settle()
}

// begin runs what returns a result or an error. A section shows the result if it has a name.
func (a *application) begin(name string, run func(ctx context.Context) (json.RawMessage, error)) {
	ctx, cancel := context.WithCancelCause(context.Background())
	c := &appCall{cancel: cancel, outcome: make(chan section, 1)}
	a.calls = append(a.calls, c)
	a.work.Go(func() {
		defer cancel(nil)
		if result, err := run(ctx); err != nil {
			c.outcome <- section{who: "error", text: err.Error() + "\n"}
		} else {
			c.outcome <- section{who: name, text: strings.TrimPrefix(string(result)+"\n", "\n")}
		}
	})
}

// say calls, cancels or closes.
func (a *application) say(s section) {
	text := strings.TrimSuffix(s.text, "\n")
	switch {
	case s.who == "cancel":
		var why error
		if text != "" {
			why = errors.New(text)
		}
		i := slices.IndexFunc(a.calls, func(c *appCall) bool { return len(c.outcome) == 0 }) // the oldest that runs
		a.calls[max(0, i)].cancel(why)
	case s.who == "close":
		a.begin("result", func(context.Context) (json.RawMessage, error) { return nil, a.client.Close() })
	case s.letter == "subscriptions/listen":
		var filter ListenFilter
		_ = json.Unmarshal([]byte(text), &filter)
		a.begin("result", func(ctx context.Context) (json.RawMessage, error) { return nil, a.client.Listen(ctx, filter) })
	default:
		var params any
		if text != "" {
			params = json.RawMessage(text)
		}
		a.begin("result", func(ctx context.Context) (result json.RawMessage, err error) {
			err = a.client.Call(ctx, s.letter, params, &result)
			return result, err
		})
	}
}

// hear returns the outcome of the oldest call, the oldest notification, or what the Client has logged.
func (a *application) hear(s section) (heard section, at time.Time) {
	a.settle()
	switch s.who {
	case "log":
		s.text = cmp.Or(varying.ReplaceAllString(a.log.take(), ""), "none\n")
	case "notification":
		a.mu.Lock()
		defer a.mu.Unlock()
		if s.text = "none\n"; len(a.notifications) > 0 {
			s.text, a.notifications = a.notifications[0], a.notifications[1:]
		}
	default:
		s = a.outcome()
		a.settle()
	}
	return s, time.Now()
}

// outcome waits for what the oldest call returns. That Connect has failed is an outcome; that it has connected is not.
func (a *application) outcome() section {
	for timeout := time.After(a.patience); len(a.calls) > 0; {
		select {
		case s := <-a.calls[0].outcome:
			if a.calls = a.calls[1:]; s.who != "" {
				return s
			}
		case <-timeout:
			return section{who: "error", text: "the call does not return\n"}
		}
	}
	return section{who: "error", text: "there is no call\n"}
}

// unshown returns what calls have returned, and no section shows. In a lesson no section does. There it is enough if the server has said it,
// or if the application has ended the call.
func (a *application) unshown(tr transcript) (list []section) {
	known := []string{context.Canceled.Error(), ErrClosed.Error()}
	for _, m := range tr.side("server", "").said() {
		if m.Error != nil {
			known = append(known, m.Error.Error())
		} else if m.Kind() == Response {
			known = append(known, string(m.Result))
		}
	}
	for _, c := range a.calls {
		if len(c.outcome) == 0 {
			continue
		}
		s := <-c.outcome
		isKnown := func(end string) bool { return strings.HasSuffix(s.text, end+"\n") }
		if s.text != "" && (tr.isCase || !slices.ContainsFunc(known, isKnown)) {
			list = append(list, s)
		}
	}
	return list
}

// probes reports whether the Client begins with a server/discover that the file leaves out.
func (tr transcript) probes() bool { return !tr.shows(asksFirst) && !tr.shows(`"method":"initialize"`) }

// hello answers a server/discover that the file leaves out.
func (a *application) hello(discover []byte) string {
	id := Decode(discover).Messages[0].ID
	result := map[string]any{"resultType": "complete", "supportedVersions": versionsOrAll(a.client.Versions), "capabilities": map[string]any{}}
	return string(NewResponse(id, result, nil).append(nil))
}

// newCommand returns the server's side over stdio, with the Client connected.
func newCommand(g *stage, tr transcript, a *application) *pipeSide {
	p := &pipeSide{stage: g, starts: make(chan *pipeSide, 100), end: func() {}}
	a.connect(DialerFunc(p.dial))
	first := <-p.starts
	if p.out, p.in = first.out, first.in; tr.probes() {
		fmt.Fprintln(p.out, a.hello([]byte(<-p.in)))
		g.settle()
	}
	return p
}

// webServer plays a server over HTTP. It is the network of the Client.
type webServer struct {
	*stage
	tr        transcript // as the file has it
	app       *application
	base      *url.URL
	exchanges map[string]*arrival // by letter
	arrived   chan *arrival
	waiting   []*arrival // that have arrived, and that no section has shown
}

// arrival is a request of the Client. It travels to its end of a connection in memory, and so does the response.
type arrival struct {
	*http.Request
	text    string // as a section has it
	body    []byte
	at      time.Time
	parts   chan string   // of the response; closed: the connection is closed
	gone    chan struct{} // closed when the Client has hung up
	begun   bool          // the response has
	chunked bool          // or its body is all that comes
}

// newWebServer returns the server's side over HTTP, with the Client connected.
func newWebServer(g *stage, tr transcript, a *application) *webServer {
	w := &webServer{stage: g, tr: tr, app: a, exchanges: map[string]*arrival{}, arrived: make(chan *arrival, 1000)}
	client := &http.Client{Transport: w, Timeout: time.Second} // the Timeout is not heeded
	if a.header != nil {
		client = WithHeader(client, a.header)
	}
	address := cmp.Or(a.url, "/mcp")
	if tr.overSSE() {
		address = cmp.Or(a.url, "/sse")
	}
	if strings.HasPrefix(address, "/") {
		address = "http://127.0.0.1:8080" + address
	}
	w.base, _ = url.Parse(address)
	dials := []Dialer{durably(HTTPDialer{Client: client, URL: address, MaxMessage: testLimit}), durably(SSEDialer{Client: client, URL: address, MaxMessage: testLimit})}
	if tr.overSSE() && !tr.shows("POST /sse\n") {
		dials = dials[1:] // it knows
	}
	a.connect(dials...)
	return w
}

// newArrival reads a request.
func (w *webServer) newArrival(r *http.Request) *arrival {
	x := &arrival{Request: r, at: time.Now(), parts: make(chan string, 64), gone: make(chan struct{})}
	header, added := r.Header.Clone(), ""
	header.Set("Host", r.Host)
	for name := range w.app.header { // what the application adds is shown, too
		added += name + ":\n"
	}
	fields := shownHeader(header, added)
	if r.Body != nil {
		x.body, _ = io.ReadAll(r.Body)
	}
	target := r.URL.RequestURI()
	if !sameOrigin(w.base, r.URL) {
		target = r.URL.String()
	}
	x.text = r.Method + " " + target + "\n" + w.tr.inShort(r.Method, r.URL.RequestURI(), fields, string(x.body))
	if r.Body != nil {
		x.text += "\n" + string(x.body) + "\n"
	}
	return x
}

// RoundTrip carries a request to where it is found, and the response back.
func (w *webServer) RoundTrip(r *http.Request) (*http.Response, error) {
	x := w.newArrival(r)
	shown := slices.IndexFunc(w.tr.sections, func(s section) bool { return s.who == "client" && x.is(s) })
	if answer := w.beside(x, shown >= 0); answer != "" {
		x.say(answer, false)
	} else {
		if x.message().Kind() == Response && shown >= 0 && w.tr.side("server", w.tr.sections[shown].letter).text == "" {
			x.say("202\n", false) // at once: one answer of the Client may wait for the other
		}
		w.arrived <- x
	}
	here, there := net.Pipe()
	go x.travel(there)
	r = r.Clone(r.Context())
	if r.Body != nil {
		r.Body = io.NopCloser(bytes.NewReader(x.body))
	}
	dial := func(context.Context, string, string) (net.Conn, error) { return here, nil }
	return (&http.Transport{DisableKeepAlives: true, DialContext: dial, DialTLSContext: dial}).RoundTrip(r)
}

// travel takes the request from the connection and puts the response on it, byte by byte: a network may cut anywhere.
func (x *arrival) travel(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	if r, err := http.ReadRequest(in); err == nil {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	go func() {
		defer close(x.gone)
		_, _ = io.Copy(io.Discard, in)
	}()
	for {
		select {
		case part, ok := <-x.parts:
			if !ok {
				return
			}
			var bytes io.Reader = strings.NewReader(part)
			if len(part) < 64<<10 {
				bytes = iotest.OneByteReader(bytes)
			}
			_, _ = io.Copy(conn, bytes)
		case <-x.gone:
			return
		}
	}
}

// beside returns the answer to a request that the file leaves out.
func (w *webServer) beside(x *arrival, shown bool) string {
	const refusal = `,"error":{"code"`
	switch {
	case x.Method == http.MethodDelete && !shown:
		return "204\n"
	case x.Method == http.MethodGet && x.Header.Get("Last-Event-Id") == "" && !shown:
		return "405\n"
	case x.message().Method == "server/discover" && w.tr.probes():
		return "200\nContent-Type: application/json\n\n" + w.app.hello(x.body)
	case bytes.Contains(x.body, []byte(refusal)) && !w.tr.shows(refusal): // of a question that was still open when the Client closed
		return "202\n"
	}
	return ""
}

// message returns the message of a request, or the first of several.
func (x *arrival) message() *Message { return Decode(x.body).Messages[0] }

// is reports whether a request is the one that a section shows, whatever the details.
func (x *arrival) is(s section) bool {
	shown, _, _ := strings.Cut(laterLine.ReplaceAllString(s.text, ""), " ")
	if x.Method != shown || x.Method != http.MethodPost {
		return x.Method == shown && (x.Header.Get("Last-Event-Id") != "") == strings.Contains(s.text, "\nLast-Event-Id")
	}
	theirs, ours := s.said(), x.message()
	return len(theirs) > 0 && ours.Method == theirs[0].Method && ours.ID == theirs[0].ID
}

// hear waits for the request that a section shows, or for the end of one: the Client hangs up by itself, or since a section has said so.
func (w *webServer) hear(s section) (heard section, at time.Time) {
	if x := w.exchanges[s.letter]; x != nil && strings.HasSuffix(s.text, hangsUp) {
		s.text = hangsUp
		select {
		case <-x.gone:
		case <-time.After(w.patience):
			s.text = "(does not hang up)\n"
		}
		return s, time.Now()
	}
	for timeout := time.After(2 * w.patience); ; {
		if i := slices.IndexFunc(w.waiting, func(x *arrival) bool { return x.is(s) }); i >= 0 {
			x := w.waiting[i]
			w.waiting, w.exchanges[s.letter] = slices.Delete(w.waiting, i, i+1), x
			s.text = x.text
			return s, x.at
		}
		select {
		case x := <-w.arrived:
			w.waiting = append(w.waiting, x)
		case <-timeout:
			if len(w.waiting) == 0 {
				s.text = "(says nothing)\n"
				return s, time.Now()
			}
			s.text = w.waiting[0].text // it says this instead
		}
	}
}

// rest refuses what else the Client asks for.
func (w *webServer) rest() (list []section) {
	for w.settle(); len(w.arrived) > 0; {
		w.waiting = append(w.waiting, <-w.arrived)
	}
	for _, x := range w.waiting {
		if list = append(list, section{who: "client", letter: "?", text: x.text}); !x.begun {
			x.say("404\n", false)
		}
	}
	return list
}

// say answers a request, goes on with the answer, or ends it.
func (w *webServer) say(s section) {
	switch x := w.exchanges[s.letter]; {
	case x == nil:
		w.Errorf("no request of the Client waits for the response of server %s", s.letter)
	case s.text == hangsUp && x.begun:
		x.say("", false)
	case s.text == hangsUp, s.text == breaks:
		close(x.parts)
	default:
		x.say(strings.TrimSuffix(s.text, goesOn), s.more)
	}
}

// say puts a part of the response on its way. The first begins with the status and the header. If it does not, it stands there as it travels.
func (x *arrival) say(text string, more bool) {
	if !x.begun {
		head, body, whole := strings.Cut(text, "\n\n")
		status, err := strconv.Atoi(head[:min(3, len(head))])
		if x.begun, x.chunked = true, err == nil; x.chunked {
			head = fmt.Sprintf("HTTP/1.1 %d %s%s\nTransfer-Encoding: chunked", status, http.StatusText(status), strings.TrimSuffix(head[3:], "\n"))
		}
		if head = strings.ReplaceAll(head, "\n", "\r\n"); whole || x.chunked {
			head += "\r\n\r\n"
		}
		x.parts <- head
		text = body
	}
	if x.chunked && text != "" {
		text = fmt.Sprintf("%x\r\n%s\r\n", len(text), text)
	}
	if x.parts <- text; more {
		return
	}
	if x.chunked {
		x.parts <- "0\r\n\r\n"
	}
	close(x.parts)
}

// ---- The program that is tested, at a command line ----

// waiting is what the program says on a slow machine only.
var waiting = regexp.MustCompile(`(?m)^time=\S+ level=INFO msg="waiting for an answer to server/discover".*\n`)

var words = regexp.MustCompile(`'[^']*'|\S+`)

// fromProgram returns the case with what the program prints, and with its exit status. Each "$ mcpwire" of the reason is a process; one with
// "&" behind it serves HTTP, and the last is the program that is tested. It finds a server where TARGET stands: the demo, or what plays the
// part of the server in the file.
func (tr transcript) fromProgram(t *testing.T) transcript {
	if testing.Short() {
		t.Skip("starts processes")
	}
	file, stdin := tr.writePart(t), ""
	if i := tr.index("stdin"); i >= 0 {
		stdin = tr.sections[i].text
	}
	base, stop := "URL", func() string { return "" }
	var stdout, stderr lockedBuffer
	exit := -1
	for line := range strings.Lines(tr.title) {
		command, ok := strings.CutPrefix(line, "$ mcpwire")
		if !ok {
			continue
		}
		args := words.FindAllString(unescape(command), -1)
		for i, arg := range args {
			args[i] = strings.NewReplacer("'", "", "TARGET", os.Args[0], "URL", base).Replace(arg)
		}
		if len(args) > 0 && args[len(args)-1] == "&" {
			base, stop = startHTTP(t, args[:len(args)-1])
			continue
		}
		cmd := process(t, "mcpwire", args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &stdout, &stderr
		if i := tr.index("stdout"); args[0] == "bridge" && i >= 0 {
			cmd.Stdin = untilAnswered(stdin, &stdout, strings.Count(tr.sections[i].text, "\n"))
		}
		if file != "" {
			cmd.Env = append(cmd.Env, "MCPWIRE_PART="+file)
		}
		_ = cmd.Run()
		exit = cmd.ProcessState.ExitCode()
	}
	if file != "" {
		tr.readPart(t, file)
	}
	printed := func(text string) string {
		return indented(strings.NewReplacer(os.Args[0], "TARGET", base, "URL", strings.TrimPrefix(base, "http://"), "ADDR").Replace(text))
	}
	tr.put("stdout", printed(stdout.String()), tr.index("exit"))
	tr.put("stderr", printed(waiting.ReplaceAllString(stderr.String(), "")), tr.index("exit"))
	if tr.index("log") >= 0 {
		tr.put("log", printed(stop()), tr.index("exit"))
	}
	tr.sections[tr.index("exit")].letter = strconv.Itoa(exit)
	return tr
}

// untilAnswered returns a text that ends when so many lines were printed: a client of a bridge hangs up only then.
func untilAnswered(text string, printed fmt.Stringer, lines int) io.Reader {
	return io.MultiReader(strings.NewReader(text), readerFunc(func([]byte) (int, error) {
		for range 1000 {
			if strings.Count(printed.String(), "\n") >= lines {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		return 0, io.EOF
	}))
}

// part returns the sections for a process that plays the server.
func (tr transcript) part() (part []*section) {
	for i := range tr.sections {
		if s := &tr.sections[i]; s.who == "client" || s.who == "server" {
			part = append(part, s)
		}
	}
	return part
}

// writePart writes the part of the server into a file, if there is one.
func (tr transcript) writePart(t *testing.T) (file string) {
	text := ""
	for _, s := range tr.part() {
		text += s.line() + s.text
	}
	if text == "" {
		return ""
	}
	file = filepath.Join(t.TempDir(), "part")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// readPart puts what has been said there into the transcript.
func (tr *transcript) readPart(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	played := parseTranscript(string(text)).sections
	for _, s := range tr.part() {
		s.text, played = played[0].text, played[1:]
	}
	tr.sections = slices.Insert(tr.sections, tr.index("exit"), played...)
}

// ---- What other tests use, too ----

// varying is what is different in a log each time.
var varying = regexp.MustCompile(`(?m)^time=\S+ | from=\S+$`)

// startHTTP starts the program, and returns the URL where it listens, without a path, and what ends it and returns what it has printed since.
func startHTTP(t *testing.T, flags []string) (base string, stop func() string) {
	server := process(t, "mcpwire", flags...)
	var said lockedBuffer
	server.Stderr = &said
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = server.Process.Kill(), server.Wait() })
	waitFor(t, func() bool { return strings.Contains(said.String(), "\n") })
	if base = regexp.MustCompile(`https?://127\.0\.0\.1:\d+`).FindString(said.String()); base == "" {
		t.Fatal(said.String())
	}
	return base, func() string {
		_ = server.Process.Signal(syscall.SIGTERM)
		if err := server.Wait(); err != nil {
			t.Error(err)
		}
		_, rest, _ := strings.Cut(said.String(), "\n")
		return varying.ReplaceAllString(rest, "")
	}
}

// program is the program as a server of HTTP, on a network in memory. Its sessions have names as in golden files.
type program struct {
	options *options
	demo    *demo
	mcp     *StreamableHandler
	sse     *SSEHandler
	mux     *http.ServeMux
	network *memoryNet
	server  *http.Server
	idle    time.Duration // after which a connection is closed; 0: as ReadTimeout
}

// newProgram returns the program with these flags, and two more, for which it has no flag.
func newProgram(t *testing.T, args []string, log *slog.Logger) *program {
	p := &program{options: new(options), demo: newDemo(), network: newMemoryNet()}
	flags := flag.NewFlagSet("mcpwire", flag.ContinueOnError)
	p.options.define(flags)
	places := flags.Int("places", 0, "requests at once, and conversations of 2024-11-05")
	flags.Int64Var(&p.options.guard.MaxHeld, "held", 0, "bytes of requests at once")
	if err := flags.Parse(args); err != nil {
		t.Fatal(err)
	}
	p.demo.Versions, p.demo.StateKey = p.options.versions, []byte(p.options.stateKey)
	p.mcp, p.sse, p.mux = p.options.handlers(p.demo, log)
	p.mcp.MaxRequests, p.sse.MaxRequests, p.sse.Max = *places, *places, *places
	p.sse.NewID = sessionNames("session-")
	if p.options.trace {
		p.sse.NewID = sessionNames("secret-") // a trace shows other names
	}
	if p.mcp.Sessions != nil {
		p.mcp.Sessions.NewID = p.sse.NewID
	}
	return p
}

// serve begins to answer requests, with the time-outs that the program has.
func (p *program) serve(h http.Handler, errors io.Writer) {
	p.server = &http.Server{Handler: h, ReadTimeout: stall, WriteTimeout: stall, IdleTimeout: p.idle, ErrorLog: log.New(errors, "", 0)}
	go func() { _ = p.server.Serve(p.network) }()
}

// close winds the server down.
func (p *program) close() {
	var ends sync.WaitGroup
	ends.Go(p.mcp.Close)
	ends.Go(p.sse.Close)
	ends.Wait()
	_ = p.server.Close()
	time.Sleep(time.Second) // net/http closes a connection by halves, and waits
}

// sessionNames returns a function that names sessions: prefix, and 1, 2 and so on.
func sessionNames(prefix string) func() string {
	var n atomic.Int32
	return func() string { return fmt.Sprint(prefix, n.Add(1)) }
}

// durable is a Conn whose Close, when it is called again, waits on a channel: a bubble's time stands still while anybody waits for a
// sync.Once.
type durable struct {
	Conn
	closing atomic.Bool
	closed  chan struct{}
}

func durably(dial Dialer) Dialer {
	return DialerFunc(func(ctx context.Context) (Conn, error) {
		conn, err := dial.Dial(ctx)
		if err != nil {
			return nil, err
		}
		return &durable{Conn: conn, closed: make(chan struct{})}, nil
	})
}

func (c *durable) Close() error {
	if !c.closing.Swap(true) {
		defer close(c.closed)
		return c.Conn.Close()
	}
	<-c.closed
	return nil
}

// memoryNet is a network of one listener, in memory; its connections come to a loopback address.
type memoryNet struct {
	conns  chan net.Conn
	closed chan struct{}
	close  func()
	open   atomic.Int32 // connections that have not been closed at their client's end
}

func newMemoryNet() *memoryNet {
	n := &memoryNet{conns: make(chan net.Conn), closed: make(chan struct{})}
	n.close = sync.OnceFunc(func() { close(n.closed) })
	return n
}

func (n *memoryNet) Accept() (net.Conn, error) {
	select {
	case c := <-n.conns:
		return c, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

func (n *memoryNet) Close() error   { n.close(); return nil }
func (n *memoryNet) Addr() net.Addr { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 8080} }

func (n *memoryNet) dial(context.Context, string, string) (net.Conn, error) {
	theirIn, out := net.Pipe()
	in, theirOut := net.Pipe()
	select {
	case n.conns <- halves{Conn: theirOut, in: theirIn, addr: n.Addr(), closed: func() {}}:
		n.open.Add(1)
		return halves{Conn: out, in: in, addr: n.Addr(), closed: sync.OnceFunc(func() { n.open.Add(-1) })}, nil
	case <-n.closed:
		return nil, net.ErrClosed
	}
}

// halves is a connection in memory, each of whose directions is a pipe of its own: it can be closed by halves.
type halves struct {
	net.Conn // what is written
	in       net.Conn
	addr     net.Addr
	closed   func()
}

func (c halves) Read(b []byte) (int, error)        { return c.in.Read(b) }
func (c halves) SetReadDeadline(t time.Time) error { return c.in.SetReadDeadline(t) }
func (c halves) SetDeadline(t time.Time) error {
	return errors.Join(c.Conn.SetDeadline(t), c.in.SetDeadline(t))
}
func (c halves) CloseWrite() error    { return c.Conn.Close() }
func (c halves) Close() error         { c.closed(); return errors.Join(c.Conn.Close(), c.in.Close()) }
func (c halves) LocalAddr() net.Addr  { return c.addr }
func (c halves) RemoteAddr() net.Addr { return c.addr }

// ======== Scripts ========

// A script of connections: bytes to be written, each piece up to one of these, which are nowhere in UTF-8.
const (
	takes   = 0xff // what follows belongs to the connection that the next byte names; it is opened if it is not there
	settles = 0xfe // all that has been written is taken in
	waits   = 0xfd // that, and more than a second passes
	sleeps  = 0xfc // that, and most of a minute passes
	falls   = 0xfb // the connection's writing half is closed
	cuts    = 0xfa // the connection is closed

	maxScript = 8 << 10
	maxMarks  = 100
)

// scripted splits a script into pieces, each with the mark that ends it; 0: the end of the script.
func scripted(script []byte) iter.Seq2[[]byte, byte] {
	return func(yield func([]byte, byte) bool) {
		script = bytes.Clone(script[:min(len(script), maxScript)])
		for range maxMarks {
			end := 0
			for end < len(script) && script[end] < cuts {
				end++
			}
			if end == len(script) {
				yield(script, 0)
				return
			}
			piece, mark := script[:end:end], script[end]
			if script = script[end+1:]; !yield(piece, mark) {
				return
			}
		}
	}
}

// pass lets the time pass that a mark stands for.
func pass(mark byte) {
	switch mark {
	case settles:
		synctest.Wait()
	case waits:
		time.Sleep(decideAfter + time.Millisecond)
	case sleeps:
		time.Sleep(40 * time.Second)
	}
}

var (
	headEnd    = []byte("\r\n\r\n")
	starLength = []byte("\r\nContent-Length: *")
)

// withLength puts the length of the body in the place of "*", if the head has that.
func withLength(piece []byte) []byte {
	head, body, ok := bytes.Cut(piece, headEnd)
	if !ok || !bytes.Contains(head, starLength) {
		return piece
	}
	head = bytes.Replace(head, starLength, fmt.Appendf(nil, "\r\nContent-Length: %d", len(body)), 1)
	return slices.Concat(head, headEnd, body)
}

// errorsTo returns a log of nothing but what must not happen.
func errorsTo(w io.Writer) *slog.Logger {
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: slog.LevelError}))
}

// script returns what the clients of a lesson write; a "*" stands for the length of the rest of the piece.
func (tr transcript) script() (which uint8, script []byte) {
	for _, s := range tr.sections {
		switch {
		case s.who != "client" && s.who != "by hand":
			continue
		case s.text == hangsUp || s.text == breaks:
			script = append(script, takes, s.letter[0], cuts)
			continue
		}
		head, body, _ := strings.Cut(s.text, "\n\n")
		line, fields, _ := strings.Cut(strings.TrimSuffix(head, "\n"), "\n")
		if fields != "" {
			fields += "\n"
		}
		if !strings.Contains(fields, "Host: ") {
			fields = "Host: 127.0.0.1:8080\n" + fields
		}
		if body = strings.TrimSuffix(body, "\n"); body != "" {
			fields += "Content-Length: *\n"
		}
		text := line + " HTTP/1.1\n" + fields + "\n"
		script = append(script, takes, s.letter[0])
		script = append(script, strings.ReplaceAll(text, "\n", "\r\n")+body...)
		script = append(script, settles)
	}
	for i, flags := range fuzzedServers {
		if flags != "" && strings.Contains(tr.title, flags+"\n") {
			which = uint8(i)
		}
	}
	return which, script
}

// gentle keeps tools from doing more than a fuzzer has time for.
func gentle(h Handler) Handler {
	return HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		var call struct {
			Arguments struct {
				N      float64 `json:"n,omitempty"`
				Repeat float64 `json:"repeat,omitempty"`
			} `json:"arguments,omitempty"`
		}
		_ = x.Bind(&call)
		if call.Arguments.N > 100 || call.Arguments.Repeat > 1000 {
			return nil, InvalidParams("that is too much here")
		}
		return h.Handle(ctx, x)
	})
}

// ======== Helpers ========

const testLimit = 4 << 20

func initializeLine(version string) string {
	return `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
}

// converse gives lines to a handler, over a line Conn that ends after them, and returns the lines that it answers.
func converse(t *testing.T, h Handler, lines ...string) []string {
	t.Helper()
	checkLeaks(t)
	var out lockedBuffer
	in := strings.NewReader(strings.Join(lines, "\n"))
	if err := Serve(t.Context(), NewLineConn(in, &out, testLimit, func() error { return nil }), h, nil); err != nil {
		t.Error(err)
	}
	return strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
}

// connect connects a client to a server in memory.
func connect(t *testing.T, server Handler, c *Client) *Client {
	t.Helper()
	return connectThrough(t, server, func(string) error { return nil }, c)
}

// connectThrough lets a function see, and perhaps refuse, what the client writes.
func connectThrough(t *testing.T, server Handler, before func(text string) error, c *Client) *Client {
	t.Helper()
	checkLeaks(t)
	a, b := Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(context.Background(), a, server, nil) }()
	c.Info = Implementation{Name: "t", Version: "0"}
	if err := c.Connect(t.Context(), DialerFunc(func(context.Context) (Conn, error) { return watchedConn{b, before}, nil })); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return c
}

// process returns this test binary as a child process that plays a role.
func process(t testing.TB, role string, args ...string) *exec.Cmd {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "MCPWIRE_CHILD="+role, "GORACE=atexit_sleep_ms=0")
	return cmd
}

// checkLeaks fails the test if there are more goroutines at its end than now.
func checkLeaks(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 500 {
			if runtime.NumGoroutine() <= base {
				return
			}
			time.Sleep(10 * time.Millisecond)
			for range 1000 { // in a bubble that sleep takes no time
				runtime.Gosched()
			}
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d at first\n%s", runtime.NumGoroutine(), base, stacks[:runtime.Stack(stacks, true)])
	})
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

// take returns what has been written since it was last called.
func (b *lockedBuffer) take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.b.Reset()
	return b.b.String()
}

type readerFunc func([]byte) (int, error)

func (f readerFunc) Read(b []byte) (int, error) { return f(b) }

// waitFor waits for a condition that another goroutine brings about.
func waitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for range 12_000 { // a minute: the machine may be slow
		if condition() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not happen")
}

// paper is a response to write on.
type paper struct {
	header http.Header
	status int
	timed  bool          // it knows of write deadlines
	pause  time.Duration // which its client makes before it reads another 16 KiB
	torn   bool          // nothing can be written

	mu    sync.Mutex // guards the fields below
	text  bytes.Buffer
	stuck bool          // its client does not read
	until time.Time     // the write deadline; zero: there is none
	left  time.Duration // to that, at the last write
}

func newPaper() *paper { return &paper{header: http.Header{}} }

func (p *paper) Header() http.Header             { return p.header }
func (p *paper) WriteHeader(status int)          { p.status = status }
func (p *paper) FlushError() error               { return nil }
func (p *paper) SetReadDeadline(time.Time) error { return nil }
func (p *paper) SetWriteDeadline(until time.Time) error {
	if !p.timed {
		return errors.ErrUnsupported
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.until = until
	return nil
}

func (p *paper) Write(b []byte) (n int, err error) {
	if p.torn {
		return 0, io.ErrClosedPipe
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.left = time.Until(p.until)
	for part := range slices.Chunk(b, 16<<10) {
		for pause := p.pause; p.stuck || pause > 0; pause = 0 {
			p.mu.Unlock()
			time.Sleep(max(pause, 10*time.Millisecond))
			p.mu.Lock()
			if !p.until.IsZero() && !time.Now().Before(p.until) {
				return n, os.ErrDeadlineExceeded
			}
		}
		_, _ = p.text.Write(part)
		n += len(part)
	}
	return n, nil
}

// stick makes writing wait.
func (p *paper) stick() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stuck = true
}

// release lets writing go on, in a bubble, until all is written.
func (p *paper) release() {
	p.mu.Lock()
	p.stuck = false
	p.mu.Unlock()
	time.Sleep(time.Second)
	synctest.Wait()
}

func (p *paper) read() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.text.String()
}

// data returns what the events on the paper hold, the id of the last, and the time to wait that they name.
func (p *paper) data() (data []string, last string, retry time.Duration) {
	events, _ := readEvents(strings.NewReader(p.read()), 64<<20)
	for _, e := range events {
		if len(e.Data) > 0 {
			data = append(data, string(e.Data))
		}
		last, retry = e.ID, max(retry, e.Retry)
	}
	return data, last, retry
}

// follow follows a stream on a goroutine of a bubble. hangUp is the client's going away, and waits for the end; done is closed then.
func follow(t *testing.T, s *Stream, after string) (p *paper, hangUp func(), done chan struct{}) {
	t.Helper()
	p = newPaper()
	ctx, cancel := context.WithCancel(context.Background())
	done = make(chan struct{})
	go func() {
		defer close(done)
		if err := followStream(s, p, httptest.NewRequestWithContext(ctx, "GET", "/", nil), after); err != nil {
			t.Errorf("after %q: %v", after, err)
		}
	}()
	synctest.Wait()
	return p, func() { cancel(); <-done }, done
}

// tell sends an event in a bubble, and waits until the response has it, if its client reads.
func (s *Stream) tell(t *testing.T, text string) {
	t.Helper()
	if err := s.push(t.Context(), sentEvent{text: []byte(text)}); err != nil {
		t.Error(err)
	}
	synctest.Wait()
}

// newHandler returns a handler as the demo has it, with sessions named session-1 and so on.
func newHandler(t testing.TB, h Handler) *StreamableHandler {
	handler := &StreamableHandler{Handler: h, Sessions: &Sessions{Keep: 1 << 20, NewID: sessionNames("session-")}}
	t.Cleanup(handler.Close)
	return handler
}

// visitor is a request to a handler without a network, and what is answered.
type visitor struct {
	*httptest.ResponseRecorder
	leave func()
	done  chan struct{} // closed when it is answered
}

// visit begins a request: a method, and a path if it matters. Lines are fields of the header.
func visit(h http.Handler, request, body string, lines ...string) visitor {
	ctx, cancel := context.WithCancel(context.Background())
	v := visitor{httptest.NewRecorder(), cancel, make(chan struct{})}
	method, path, _ := strings.Cut(request, " ")
	r := httptest.NewRequestWithContext(ctx, method, cmp.Or(path, "/"), strings.NewReader(body))
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}}
	for _, line := range lines {
		if name, value, _ := strings.Cut(line, ": "); value != "" {
			r.Header.Set(name, value)
		}
	}
	go func() {
		defer close(v.done)
		h.ServeHTTP(v, r)
	}()
	return v
}

// answered waits for the end of the response.
func (v visitor) answered() visitor { <-v.done; return v }

// newLoneStream returns a stream of no session. Nothing can be sent before a response follows it.
func newLoneStream(id string, keep int) *Stream {
	return &Stream{id: id, hasIDs: keep > 0, buffer: eventBuffer{keep: keep}}
}

// followStream writes events to w, after the one with the id after, as a GET does.
func followStream(s *Stream, w http.ResponseWriter, r *http.Request, after string) error {
	f, err := s.attach(w, after)
	if err == nil {
		s.serveFollower(f, r)
	}
	return err
}

// openSession returns the line of the header that names a new session, if the handler has sessions.
func openSession(h http.Handler, version string) string {
	return "Mcp-Session-Id: " + visit(h, "POST", initializeLine(version)).answered().Header().Get("Mcp-Session-Id")
}

func toolCall(id int, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"t%d"}}}`, id, name, arguments, id)
}

// ======== The library as a program uses it: through exported names ========

// callInMemory opens a client of a version to a server in memory, and calls a tool.
func callInMemory(t *testing.T, server *Server, version, tool string) (result ToolResult) {
	t.Helper()
	c := connect(t, server, &Client{Versions: []string{version}})
	if err := c.Call(t.Context(), "tools/call", CallToolParams{Name: tool}, &result); err != nil {
		t.Errorf("%s: %v", version, err)
	}
	return result
}

// What a tool returns is what its caller gets, in both eras: binary data in Base64 with its type, a resource with its URI, and an object
// as text, too.
func TestContents(t *testing.T) {
	all := []Content{TextContent(""), ImageContent([]byte{1, 2, 3}, "image/png"), AudioContent([]byte{0}, "audio/wav"),
		ResourceLink(Resource{URI: "a:b", Name: "b"}), EmbeddedResource(ResourceContents{URI: "a:c", MimeType: "x/y", Blob: []byte{0}})}
	const wire = `[{"type":"text","text":""},{"type":"image","mimeType":"image/png","data":"AQID"},{"type":"audio","mimeType":"audio/wav","data":"AA=="},` +
		`{"type":"resource_link","uri":"a:b","name":"b"},{"type":"resource","resource":{"uri":"a:c","mimeType":"x/y","blob":"AA=="}}]`
	var text, want any
	if encoded, err := json.Marshal(all); err != nil || json.Unmarshal(encoded, &text) != nil || json.Unmarshal([]byte(wire), &want) != nil || !reflect.DeepEqual(text, want) {
		t.Errorf("%s, %v", encoded, err)
	}
	server := new(Server)
	AddTool(server, Tool{Name: "contents"}, func(context.Context, *Exchange, struct{}) (any, error) { return all, nil })
	AddTool(server, Tool{Name: "object"}, func(context.Context, *Exchange, struct{}) (any, error) { return map[string]int{"n": 1}, nil })
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		if got := callInMemory(t, server, version, "contents"); !reflect.DeepEqual(got.Content, all) {
			t.Errorf("%s: %+v", version, got.Content)
		}
		if got := callInMemory(t, server, version, "object"); got.Text() != `{"n":1}` || string(got.StructuredContent) != `{"n":1}` {
			t.Errorf("%s: %+v", version, got)
		}
	}
}

// What a model says is one content, or several: a tool that has asked it reads both.
func TestContentsOfAModel(t *testing.T) {
	for _, contents := range []Contents{{TextContent("a")}, {TextContent("a"), ImageContent([]byte{1}, "image/png")}} {
		server := new(Server)
		AddTool(server, Tool{Name: "t"}, func(_ context.Context, x *Exchange, _ struct{}) (any, error) {
			var answer SamplingResult
			if !x.Input("q", &answer) {
				return InputRequired{Requests: map[string]InputRequest{"q": {Method: "sampling/createMessage", Params: SamplingParams{MaxTokens: 9}}}}, nil
			}
			return answer.Content, nil
		})
		for _, version := range []string{"2025-11-25", "2026-07-28"} {
			c := connect(t, server, &Client{Versions: []string{version}, Handlers: map[string]HandlerFunc{
				"sampling/createMessage": func(context.Context, *Exchange) (any, error) {
					return SamplingResult{Role: "assistant", Content: contents, Model: "m"}, nil
				}}})
			var got ToolResult
			if err := c.Call(t.Context(), "tools/call", CallToolParams{Name: "t"}, &got); err != nil || !reflect.DeepEqual(Contents(got.Content), contents) {
				t.Errorf("%s: %+v, %v", version, got, err)
			}
		}
	}
}

// What is removed is gone from its list, and cannot be used. A client that listens is told of each change of a list.
func TestRemoved(t *testing.T) {
	server := new(Server)
	server.AnnounceChanges()
	AddTool(server, Tool{Name: "t"}, func(context.Context, *Exchange, struct{}) (any, error) { return "", nil })
	read := func(context.Context, *Exchange, string) (any, error) { return "", nil }
	server.AddResource(Resource{URI: "a:b", Name: "b"}, read)
	server.AddResourceTemplate(ResourceTemplate{URITemplate: "a:c/{x}", Name: "c"}, read)
	server.AddPrompt(Prompt{Name: "p"}, func(context.Context, *Exchange, map[string]string) (any, error) { return "", nil })
	told := make(chan string, 10)
	c := connect(t, server, &Client{Versions: []string{"2025-11-25"}, Handler: HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
		told <- x.Request.Method
		return nil, nil
	})})
	for _, row := range []struct {
		remove             func()
		told, list         string
		method             string
		params             any
		before, afterwards string
	}{
		{func() { server.RemoveTool("t") }, "notifications/tools/list_changed", "tools/list", "tools/call", CallToolParams{Name: "t"}, `"name":"t"`, `{"tools":[]}`},
		{func() { server.RemovePrompt("p") }, "notifications/prompts/list_changed", "prompts/list", "prompts/get", GetPromptParams{Name: "p"}, `"name":"p"`, `{"prompts":[]}`},
		{func() { server.RemoveResource("a:b") }, "notifications/resources/list_changed", "resources/list", "resources/read", map[string]string{"uri": "a:b"}, `"uri":"a:b"`, `{"resources":[]}`},
		{func() { server.RemoveResourceTemplate("a:c/{x}") }, "notifications/resources/list_changed", "resources/templates/list", "resources/read", map[string]string{"uri": "a:c/d"}, `"uriTemplate":"a:c/{x}"`, `{"resourceTemplates":[]}`},
	} {
		var before, after json.RawMessage
		err := errors.Join(c.Call(t.Context(), row.list, nil, &before), c.Call(t.Context(), row.method, row.params, nil))
		row.remove()
		if method := <-told; method != row.told {
			t.Errorf("%s: told of %s", row.list, method)
		}
		err = errors.Join(err, c.Call(t.Context(), row.list, nil, &after))
		if gone := c.Call(t.Context(), row.method, row.params, nil); err != nil || gone == nil || !strings.Contains(string(before), row.before) || string(after) != row.afterwards {
			t.Errorf("%s: %s, then %s; %v, %v", row.list, before, after, err, gone)
		}
	}
}

// What no client could use is a mistake of the program: adding it panics, and says why.
func TestMistakesInWhatIsAdded(t *testing.T) {
	server := new(Server)
	tool := func(tool Tool) func() {
		return func() {
			AddTool(server, tool, func(context.Context, *Exchange, struct{}) (any, error) { return nil, nil })
		}
	}
	for _, row := range []struct {
		want string
		add  func()
	}{
		{"an entry of tools has no name", tool(Tool{})},
		{`an entry of tools is not UTF-8: "t\xff", "t\xff"`, tool(Tool{Name: "t\xff"})},
		{`the InputSchema of the tool "t" lacks "type":"object"`, tool(Tool{Name: "t", InputSchema: json.RawMessage(`[]`)})},
		{`the InputSchema of the tool "t" lacks "type":"object"`, tool(Tool{Name: "t", InputSchema: json.RawMessage(`{"properties":{}}`)})},
		{"Bind: *string is not a pointer to a struct", func() {
			AddTool(server, Tool{Name: "t"}, func(context.Context, *Exchange, string) (any, error) { return nil, nil })
		}},
		{"an entry of resources has no name, or no URI", func() { server.AddResource(Resource{Name: "n"}, nil) }},
		{"an entry of resources has no name, or no URI", func() { server.AddResourceTemplate(ResourceTemplate{Name: "n"}, nil) }},
		{"an entry of prompts has no name", func() { server.AddPrompt(Prompt{}, nil) }},
	} {
		func() {
			defer func() {
				if reason := fmt.Sprint(recover()); !strings.Contains(reason, row.want) {
					t.Errorf("%s, want %s", reason, row.want)
				}
			}()
			row.add()
		}()
	}
}

// A subscription hears what it has asked for, and nothing else that is published, though it is about the same resource.
func TestListenHearsNothingElse(t *testing.T) {
	server := &Server{Capabilities: map[string]any{"resources": map[string]bool{"subscribe": true}}}
	server.AnnounceChanges()
	server.AddResource(Resource{URI: "a:b", Name: "b"}, func(context.Context, *Exchange, string) (any, error) { return "", nil })
	told := make(chan string, 10)
	c := connect(t, server, &Client{Versions: []string{"2026-07-28"}, Handler: HandlerFunc(func(_ context.Context, x *Exchange) (any, error) {
		told <- x.Request.Method
		return nil, nil
	})})
	ctx, cancel := context.WithCancel(t.Context())
	listened := make(chan error, 1)
	go func() { listened <- c.Listen(ctx, ListenFilter{ResourceSubscriptions: []string{"a:b"}}) }()
	if method := <-told; method != "notifications/subscriptions/acknowledged" {
		t.Error(method)
	}
	for _, method := range []string{"notifications/message", "notifications/progress", "notifications/resources/list_changed", "notifications/resources/updated"} {
		server.Publish(method, map[string]string{"uri": "a:b"})
	}
	if method := <-told; method != "notifications/resources/updated" {
		t.Error(method)
	}
	cancel()
	if err := <-listened; err != context.Canceled || len(told) > 0 {
		t.Error(err, len(told))
	}
}

// A cursor still fits when tools come and go: what is there all the time is shown once.
func TestCursorsAreStable(t *testing.T) {
	server, noop := new(Server), func(context.Context, *Exchange, struct{}) (any, error) { return nil, nil }
	var want, names []string
	for n := range 120 {
		want = append(want, fmt.Sprintf("tool-%03d", n))
		AddTool(server, Tool{Name: want[n]}, noop)
	}
	c := connect(t, server, &Client{})
	var params struct {
		Cursor string `json:"cursor,omitempty"`
	}
	for page := 0; page == 0 || params.Cursor != ""; page++ {
		var list ListToolsResult
		if err := c.Call(t.Context(), "tools/list", params, &list); err != nil {
			t.Fatal(err)
		}
		for _, tool := range list.Tools {
			names = append(names, tool.Name)
		}
		server.RemoveTool(names[len(names)-1])                              // to which the cursor refers
		AddTool(server, Tool{Name: fmt.Sprintf("tool-000-%d", page)}, noop) // before the cursor
		params.Cursor = list.NextCursor
	}
	if !slices.Equal(names, want) {
		t.Errorf("%q", names)
	}
}

// Progress reaches the call that wants it, and no other one that runs at the same time, in both eras. What a client tells reaches its handler.
func TestCallWithProgress(t *testing.T) {
	server, ready, told := &Server{Methods: map[string]HandlerFunc{}}, make(chan bool), make(chan string, 1)
	AddTool(server, Tool{Name: "count"}, func(ctx context.Context, x *Exchange, a struct {
		From int `json:"from"`
	}) (any, error) {
		select { // the two calls run at the same time
		case ready <- true:
		case <-ready:
		}
		for n := range 3 {
			if err := x.ProgressMessage(ctx, float64(a.From+n), 99, "step"); err != nil {
				return nil, err
			}
		}
		return "done", nil
	})
	handler := HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		if x.Request.Method == "notifications/roots/list_changed" {
			told <- x.Request.Method
			return nil, nil
		}
		return server.Handle(ctx, x)
	})
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := connect(t, handler, &Client{Versions: []string{version}})
		var calls sync.WaitGroup
		for _, from := range []int{10, 20} {
			calls.Go(func() {
				var steps []float64
				params := CallToolParams{Name: "count", Arguments: map[string]int{"from": from}}
				var result ToolResult
				err := c.CallWithProgress(t.Context(), "tools/call", params, &result, func(p ProgressParams) {
					if p.Message != "step" || p.Total != 99 {
						t.Errorf("%+v", p)
					}
					steps = append(steps, p.Progress)
				})
				if first := float64(from); err != nil || result.Text() != "done" || !slices.Equal(steps, []float64{first, first + 1, first + 2}) {
					t.Errorf("%s: %v, %v", version, steps, err)
				}
			})
		}
		calls.Wait()
		if version < "2026" {
			if err := c.Notify(t.Context(), "notifications/roots/list_changed", nil); err != nil || <-told == "" {
				t.Error(err)
			}
		}
	}
}

// Calls go both ways at once over one pipe, more of them than either end serves at a time, and each answer finds its call.
func TestCallsBothWays(t *testing.T) {
	checkLeaks(t)
	echo := HandlerFunc(func(_ context.Context, x *Exchange) (any, error) { return x.Request.Params, nil })
	a, b := Pipe()
	ours, theirs := Open(t.Context(), a, echo, nil), Open(t.Context(), b, echo, nil)
	var calls sync.WaitGroup
	for n := range 500 {
		for _, peer := range []*Peer{ours, theirs} {
			calls.Go(func() {
				var got struct {
					N int `json:"n"`
				}
				if err := peer.Call(t.Context(), "m", map[string]int{"n": n}, &got); err != nil || got.N != n {
					t.Error(n, got, err)
				}
			})
		}
	}
	calls.Wait()
	if err := errors.Join(ours.Close(), theirs.Close()); err != nil {
		t.Error(err)
	}
}

// The handler of a cancelled request can say nothing more, and why it was cancelled is in the log.
func TestCancellationIsLogged(t *testing.T) {
	var out, logged lockedBuffer
	log := slog.New(slog.NewTextHandler(&logged, &slog.HandlerOptions{Level: slog.LevelDebug}))
	in := strings.NewReader(`{"jsonrpc":"2.0","id":1,"method":"m"}` + "\n" +
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"lunch"}}`)
	err := Serve(t.Context(), NewLineConn(in, &out, 0, func() error { return nil }), HandlerFunc(func(ctx context.Context, x *Exchange) (any, error) {
		<-ctx.Done()
		if err := x.Notify(context.Background(), "notifications/message", nil); err != ErrAnswered {
			t.Error(err)
		}
		return nil, nil
	}), log)
	if err != nil || out.String() != "" || !strings.Contains(logged.String(), "reason=lunch") {
		t.Error(err, out.String(), logged.String())
	}
}

// A child, and what it has started, has ended when Close returns: first its input ends, then it gets SIGTERM, then it is killed. What it writes to
// stderr does not count as a failure, not even if nobody can keep it.
func TestCloseEndsChild(t *testing.T) {
	if runtime.GOOS == "windows" { // there is no sh
		return
	}
	const hello = `echo '{"jsonrpc":"2.0","method":"hello"}'; `
	for name, row := range map[string]struct{ script, state string }{ // state "": it may be slow, and then it gets a signal
		"exits at the end of input": {`head -c 100000 /dev/zero >&2; ` + hello + `cat`, ""},
		"ignores the end of input":  {hello + `exec sleep 600`, "terminated"},
		"ignores SIGTERM":           {`trap "" TERM; ` + hello + `sleep 600`, "killed"},
		"leaves a process":          {`trap "" TERM; sleep 600 & trap - TERM; ` + hello + `cat`, ""},
	} {
		alive, theirs, err := os.Pipe() // its end is read when no process of the group has it any more
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command("sh", "-c", row.script)
		cmd.ExtraFiles, cmd.Stderr = []*os.File{theirs}, failingWriter{}
		conn, err := CommandDialer{Command: func() *exec.Cmd { return cmd }, Grace: 300 * time.Millisecond}.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		theirs.Close()
		if in, err := conn.Read(); err != nil || in.Messages[0].Method != "hello" {
			t.Errorf("%s: %v", name, err)
		}
		began := time.Now()
		if err := conn.Close(); err != nil || time.Since(began) > time.Minute || !strings.Contains(cmd.ProcessState.String(), row.state) {
			t.Errorf("%s: %v, %v after %v", name, err, cmd.ProcessState, time.Since(began))
		}
		if text, err := io.ReadAll(alive); err != nil || len(text) > 0 {
			t.Errorf("%s: %q, %v", name, text, err)
		}
		alive.Close()
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errors.New("no space") }

// Ids of sessions are long, of visible ASCII, and tell nothing about each other.
func TestSessionIDs(t *testing.T) {
	h := &StreamableHandler{Handler: new(Server), Sessions: &Sessions{}}
	defer h.Close()
	seen := map[string]bool{}
	for range 100 {
		_, id, _ := strings.Cut(openSession(h, "2025-11-25"), ": ")
		if !regexp.MustCompile("^[!-~]{26,}$").MatchString(id) || seen[id[:10]] || seen[id[len(id)-10:]] {
			t.Fatal(id)
		}
		seen[id[:10]], seen[id[len(id)-10:]] = true, true
	}
}

// Over TLS and HTTP/2, where all is in one connection, in both eras: calls, a cancellation, a response that the server ends for a while, and the end.
func TestClientHTTP2(t *testing.T) {
	demo := new(Server)
	AddTool(demo, Tool{Name: "count"}, func(ctx context.Context, x *Exchange, a struct {
		N int `json:"n"`
	}) (any, error) {
		x.Disconnect(10 * time.Millisecond) // does nothing where nobody could come back
		for n := range a.N {
			if err := x.Progress(ctx, float64(n+1), float64(a.N)); err != nil {
				return nil, err
			}
		}
		return "done", nil
	})
	AddTool(demo, Tool{Name: "wait"}, func(ctx context.Context, _ *Exchange, _ struct{}) (any, error) { <-ctx.Done(); return nil, ctx.Err() })
	handler, running := newHandler(t, demo), atomic.Int32{} // POSTs
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor != 2 {
			t.Error(r.Proto)
		}
		if r.Method == "POST" {
			running.Add(1)
			defer running.Add(-1)
		}
		handler.ServeHTTP(w, r)
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		c := &Client{Info: Implementation{Name: "t", Version: "0"}, Versions: []string{version}}
		if err := c.Connect(t.Context(), HTTPDialer{Client: server.Client(), URL: server.URL}); err != nil {
			t.Fatal(err)
		}
		steps, result := 0, ToolResult{}
		params := CallToolParams{Name: "count", Arguments: map[string]int{"n": 10}}
		err := c.CallWithProgress(t.Context(), "tools/call", params, &result, func(ProgressParams) { steps++ })
		if err != nil || steps != 10 || result.Text() != "done" {
			t.Error(version, err, steps, result)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if err := c.Call(ctx, "tools/call", CallToolParams{Name: "wait"}, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(version, err)
		}
		cancel()
		waitFor(t, func() bool { return running.Load() == 0 })
		began := time.Now()
		if err := c.Close(); err != nil || time.Since(began) > 10*time.Second || handler.Sessions.Len() != 0 {
			t.Error(version, err, time.Since(began), handler.Sessions.Len())
		}
	}
}
