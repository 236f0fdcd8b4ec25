package soak

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- One pipe under load, and the program at its end ----

// hello are the params of initialize. After it a server may ask.
const hello = `{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}`

// connect connects a client to a server in memory.
func connect(t *testing.T, server wire.Handler, client wire.HandlerFunc) *wire.Client {
	t.Helper()
	checkLeaks(t)
	a, b := wire.Pipe()
	served := make(chan error, 1)
	go func() { served <- wire.Serve(context.Background(), a, server, nil) }()
	c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Versions: []string{"2025-11-25"}, Handler: client}
	if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return b, nil })); err != nil {
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

// Calls go both ways at once over one pipe, more of them than either end serves at a time, and some are cancelled. Each answer finds its
// call, and the two ends, each waiting for answers of the other, do not lock each other out.
func TestCallsBothWays(t *testing.T) {
	type number struct{ N int }
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"quadruple": func(ctx context.Context, x *wire.Exchange) (any, error) {
		var half number
		err := x.Call(ctx, "double", x.Request.Params, &half)
		return map[string]int{"n": 2 * half.N}, err
	}}}
	c := connect(t, server, func(_ context.Context, x *wire.Exchange) (any, error) {
		time.Sleep(time.Millisecond)
		var p struct {
			N int `json:"n"`
		}
		err := x.Bind(&p)
		return map[string]int{"n": 2 * p.N}, err
	})
	var calls sync.WaitGroup
	var answered atomic.Int32
	for i := range 3000 {
		calls.Go(func() {
			patience := 30 * time.Second
			if i%7 == 0 {
				patience = time.Duration(i%500) * time.Millisecond
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			var result number
			err := error(new(wire.Error))
			for errors.As(err, new(*wire.Error)) { // too many at once
				err = c.Call(ctx, "quadruple", map[string]int{"n": i}, &result)
				time.Sleep(time.Duration(i%10) * time.Millisecond)
			}
			switch {
			case err == nil && result.N == 4*i:
				answered.Add(1)
			case err == nil, i%7 != 0:
				t.Errorf("4·%d = %d, %v", i, result.N, err)
			}
		})
	}
	calls.Wait()
	if answered.Load() < 2500 {
		t.Errorf("%d of 3000 answered", answered.Load())
	}
}

// Notifications from both ends at once, from within handlers of notifications, do not lock each other out of a Pipe.
func TestNotifyBothWays(t *testing.T) {
	a, b := wire.Pipe()
	done := make(chan struct{})
	var heard atomic.Int32
	echo := wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
		switch n := heard.Add(1); {
		case n < 1000:
			return nil, x.Peer.Notify(t.Context(), "notifications/m", nil)
		case n == 1000:
			close(done)
		}
		return nil, nil
	})
	p, q := wire.Open(t.Context(), a, echo, nil), wire.Open(t.Context(), b, echo, nil)
	for range 20 {
		_, _ = p.Notify(t.Context(), "notifications/m", nil), q.Notify(t.Context(), "notifications/m", nil)
	}
	<-done
	p.Close()
	q.Close()
}

// When a handler gives up on its question and answers, the question is cancelled, too.
func TestQuestionIsGivenUp(t *testing.T) {
	server := &wire.Server{Methods: map[string]wire.HandlerFunc{"m": func(ctx context.Context, x *wire.Exchange) (any, error) {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		if err := x.Call(ctx, "elicitation/create", nil, nil); !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		return nil, nil
	}}}
	cancelled := make(chan struct{})
	c := connect(t, server, func(ctx context.Context, _ *wire.Exchange) (any, error) {
		<-ctx.Done()
		close(cancelled)
		return nil, nil
	})
	if err := c.Call(t.Context(), "m", nil, nil); err != nil {
		t.Error(err)
	}
	<-cancelled
}

// A server may say anything as soon as there is a connection, also what only the transport would say.
func TestServerSpeaksFirst(t *testing.T) {
	for range 200 {
		ours, theirs := wire.Pipe()
		for range 3 {
			if err := theirs.Write(t.Context(), wire.Decode([]byte(`{"jsonrpc":"2.0","result":5}`))); err != nil {
				t.Fatal(err)
			}
		}
		theirs.Close()
		c := &wire.Client{Info: wire.Implementation{Name: "c", Version: "1"}}
		if err := c.Connect(t.Context(), wire.DialerFunc(func(context.Context) (wire.Conn, error) { return ours, nil })); err == nil {
			t.Error("connected to nobody")
		}
		c.Close()
	}
}

// A peer that does not read is not read for ever: neither when it asks, nor when it makes noise while we wait for an answer of its own.
// When it reads at last, no answer is missing.
func TestPeerDoesNotRead(t *testing.T) {
	const owed, all = 4096, 2 * 4096 // owed is what a peer may leave unread
	for name, line := range map[string]string{"asks": `{"jsonrpc":"2.0","id":%d,"method":"m"}`, "makes noise": `noise %d`} {
		synctest.Test(t, func(t *testing.T) {
			in, theirOut := io.Pipe()
			theirIn, out := io.Pipe()
			go func() {
				err := wire.Serve(t.Context(), wire.NewLineConn(in, out, maxMessage, in.Close), wire.HandlerFunc(func(ctx context.Context, x *wire.Exchange) (any, error) {
					switch x.Request.Method {
					case "initialize":
						return new(wire.Server).Handle(ctx, x)
					case "ask":
						return nil, x.Call(ctx, "roots/list", nil, nil)
					}
					return nil, nil
				}), nil)
				out.CloseWithError(err)
			}()
			answers := bufio.NewReader(theirIn)
			if name == "makes noise" {
				fmt.Fprintln(theirOut, `{"jsonrpc":"2.0","id":"init","method":"initialize","params":`+hello+`}`)
				if line, err := answers.ReadString('\n'); err != nil || !strings.Contains(line, `"result"`) {
					t.Error(line, err)
				}
			}
			var sent atomic.Int32
			go func() {
				defer theirOut.Close()
				if name == "makes noise" {
					fmt.Fprintln(theirOut, `{"jsonrpc":"2.0","id":"ask","method":"ask"}`)
				}
				for i := range all {
					fmt.Fprintf(theirOut, line+"\n", i)
					sent.Add(1)
				}
			}()
			time.Sleep(time.Minute)
			if n := runtime.NumGoroutine(); n > owed+100 || sent.Load() > owed+100 {
				t.Errorf("%s: %d goroutines after %d lines", name, n, sent.Load())
			}
			text, err := io.ReadAll(answers)
			if n := bytes.Count(text, []byte(`"error"`)) + bytes.Count(text, []byte(`"result"`)); n < all || err != nil {
				t.Errorf("%s: %d answers to %d lines, %v", name, n, all, err)
			}
		})
	}
}

// The answer is the last word: a goroutine that goes on notifying gets errors, and nothing follows the answer.
func TestNothingAfterTheAnswer(t *testing.T) {
	var after sync.WaitGroup
	var said []string
	for i := range 20 {
		said = append(said, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"m"}`, i))
	}
	var written bytes.Buffer // by one at a time
	err := wire.Serve(t.Context(), wire.NewLineConn(strings.NewReader(strings.Join(said, "\n")), &written, maxMessage, func() error { return nil }),
		wire.HandlerFunc(func(_ context.Context, x *wire.Exchange) (any, error) {
			after.Go(func() {
				for x.Notify(context.Background(), "notifications/of/"+x.Request.ID.String(), nil) == nil {
				}
			})
			time.Sleep(time.Millisecond)
			return nil, nil
		}), nil)
	after.Wait()
	lines := strings.Split(written.String(), "\n")
	for i := range 20 {
		answer := slices.Index(lines, fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"result":{}}`, i))
		if answer < 0 || err != nil || slices.Contains(lines[answer:], fmt.Sprintf(`{"jsonrpc":"2.0","method":"notifications/of/%d"}`, i)) {
			t.Errorf("%d: answered in line %d of %d, %v", i, answer, len(lines), err)
		}
	}
}

// One socket as stdin and stdout, as inetd has it: answers larger than its buffer arrive whole.
func TestServeOnOneSocket(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("unix", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	file, err := accepted.(*net.UnixConn).File()
	accepted.Close()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(mcpwire)
	cmd.Stdin, cmd.Stdout = file, file
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	file.Close()
	fmt.Fprintf(client, "%s\n%s\n", initializeLine("2025-11-25"), `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"echo","arguments":{"text":"x","repeat":4000000}}}`)
	time.Sleep(50 * time.Millisecond) // let it fill the buffer
	r := bufio.NewReader(client)
	_, _ = r.ReadString('\n')
	if line, err := r.ReadString('\n'); len(line) < 4_000_000 || err != nil {
		t.Errorf("%d bytes, %v", len(line), err)
	}
	_ = client.(*net.UnixConn).CloseWrite()
	if err := cmd.Wait(); err != nil {
		t.Error(err)
	}
}

// SIGTERM, SIGINT and a closed stdout end the server quickly, with exit 0, even while it is busy.
func TestServeStops(t *testing.T) {
	for _, how := range []string{"terminated", "interrupt", "stdout"} {
		for _, busy := range []bool{false, true} {
			cmd := exec.Command(mcpwire)
			cmd.Env = append(os.Environ(), raceOptions)
			in, _ := cmd.StdinPipe()
			out, _ := cmd.StdoutPipe()
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(out)
			fmt.Fprintln(in, initializeLine("2025-11-25"))
			if _, err := r.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			if busy {
				fmt.Fprintln(in, toolCall(2, "count", `{"n":100,"delayMs":50}`))
				_, _ = r.ReadString('\n')
			}
			began := time.Now()
			switch how {
			case "terminated":
				_ = cmd.Process.Signal(syscall.SIGTERM)
			case "interrupt":
				_ = cmd.Process.Signal(os.Interrupt)
			case "stdout":
				out.Close()
				fmt.Fprintln(in, `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
			}
			if how != "stdout" {
				_, _ = io.Copy(io.Discard, r)
			}
			if err := cmd.Wait(); err != nil || time.Since(began) > 4*time.Second {
				t.Errorf("%s, busy %v: %v after %v", how, busy, err, time.Since(began))
			}
			in.Close()
		}
	}
}
