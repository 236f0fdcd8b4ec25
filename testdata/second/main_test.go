// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mcpwire/testdata/lesson"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// missing are the members of the lessons' messages that this server does not send, and serverInfo, which is its own. README.md
// names each of them.
var missing = []string{"completions", "logging", "prompts", "resources", "serverInfo", "instructions", "_meta"}

// client is the other end of a server, in a bubble of package synctest.
type client struct {
	t     *testing.T
	in    *io.PipeWriter
	out   *bufio.Reader
	ended chan error // what serveLines returns
}

// inBubble runs f with a client that has done the handshake, and then ends the conversation. If a goroutine of the server is left,
// synctest fails the test.
func inBubble(t *testing.T, capabilities string, f func(c *client)) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t)
		c.handshake(capabilities)
		f(c)
		c.hangUp()
		if rest := c.rest(); rest != "" {
			t.Errorf("behind the end: %s", rest)
		}
	})
}

func newClient(t *testing.T) *client {
	in, toServer := io.Pipe()
	fromServer, out := io.Pipe()
	c := &client{t, toServer, bufio.NewReader(fromServer), make(chan error, 1)}
	go func() {
		c.ended <- serveLines(in, out)
		out.Close()
	}()
	return c
}

func (c *client) handshake(capabilities string) {
	c.send(`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":` + capabilities + `}}`)
	c.want(`"protocolVersion":"2025-11-25"`)
	c.send(`{"jsonrpc":"2.0","method":"notifications/initialized"}`)
}

// send sends lines, and waits until the server has done what it does at once.
func (c *client) send(lines ...string) {
	for _, line := range lines {
		if _, err := io.WriteString(c.in, line+"\n"); err != nil {
			c.t.Fatal(err)
		}
	}
	synctest.Wait()
}

func (c *client) read() (line string) {
	line, err := c.out.ReadString('\n')
	if err != nil {
		c.t.Fatalf("%v behind %q", err, line)
	}
	return line
}

// want reads a line, which must contain each of the texts.
func (c *client) want(texts ...string) {
	c.t.Helper()
	line := c.read()
	for _, text := range texts {
		if !strings.Contains(line, text) {
			c.t.Errorf("%q is not in %s", text, line)
		}
	}
}

func (c *client) hangUp() { c.in.Close() }

// rest returns what the server writes until it ends.
func (c *client) rest() string {
	text, _ := io.ReadAll(c.out)
	if err := <-c.ended; err != nil {
		c.t.Error(err)
	}
	return string(text)
}

// callOf returns the request for a call.
func callOf(id, tool, arguments string) string {
	return `{"jsonrpc":"2.0","id":` + id + `,"method":"tools/call","params":{"name":"` + tool + `","arguments":` + arguments + `}}`
}

// withProgress returns the request for a call that asks for reports.
func withProgress(id, tool, arguments, token string) string {
	return strings.TrimSuffix(callOf(id, tool, arguments), "}}") + `,"_meta":{"progressToken":` + token + `}}}`
}

func cancellationOf(id string) string {
	return `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":` + id + `}}`
}

const slow = `{"n":1,"delayMs":600000}` // arguments of count, which then takes ten minutes

// What the clients of these lessons send goes in, and what comes out is what the lessons have. Of lesson 02 it is the part before the
// tool echo, which this server does not have.
func TestLessons(t *testing.T) {
	for name, want := range map[string]int{"01-stdio-handshake": 2, "02-error-codes": 2, "03-progress": 5, "04-question-to-the-user": 4, "17-cancellation": 2} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClient(t)
				if n := c.play("../" + name + ".txtar"); n != want {
					t.Errorf("%d lines of the server", n)
				}
				c.hangUp()
				if rest := c.rest(); rest != "" {
					t.Errorf("behind the end: %s", rest)
				}
			})
		})
	}
}

// play plays a lesson, and returns how many lines of the server were compared.
func (c *client) play(file string) (compared int) {
	for _, s := range lesson.Sections(c.t, file) {
		switch s.Who {
		case "handshake":
			capabilities := strings.TrimSpace(strings.TrimPrefix(s.Letter, "2025-11-25"))
			if capabilities == "" {
				capabilities = "{}"
			}
			c.handshake(capabilities)
		case "client", "by hand":
			if strings.Contains(s.Text, `"name":"echo"`) {
				return compared
			}
			c.send(strings.Split(strings.TrimSpace(s.Text), "\n")...)
		case "server":
			for _, want := range lesson.Values(c.t, s.Text, missing) {
				if got := lesson.Values(c.t, c.read(), missing); !reflect.DeepEqual(got[0], want) {
					c.t.Errorf("got\n%v\nwant\n%v", got[0], want)
				}
				compared++
			}
		}
	}
	return compared
}

// What is no request gets an error without an id, or nothing. The next line works.
func TestLines(t *testing.T) {
	for line, want := range map[string]string{
		`not json`: `{"error":{"code":-32700,`,
		``:         `{"error":{"code":-32700,`,
		`[]`:       `{"error":{"code":-32600,`,
		`{}`:       `{"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":null,"method":"ping"}`:                             `{"error":{"code":-32600,`,
		`{"id":2,"method":"ping"}`:                                                `{"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":2,"method":5}`:                                     ``, // it could be a response
		`{"jsonrpc":"2.0","id":2,"method":"ping","params":[]}`:                    `{"error":{"code":-32600,`,
		`{"jsonrpc":"2.0","id":2,"method":"notifications/cancelled"}`:             `"code":-32601,`,
		`{"jsonrpc":"2.0","id":"b","error":"nobody answers an error"}`:            ``,
		`{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"?"}}`:       ``,
		`{"jsonrpc":"2.0","id":7,"result":{}}`:                                    ``, // to nothing
		`{"jsonrpc":"2.0","method":"notifications/cancelled","params":[]}`:        ``,
		`{"jsonrpc":"2.0","method":"no/such","params":5}`:                         ``,
		`{"jsonrpc":"2.0","id":"a","method":"no/such"}`:                           `"code":-32601,`,
		`{"jsonrpc":"2.0","id":9007199254740993,"method":"ping"}`:                 `{"id":9007199254740993,"jsonrpc":"2.0","result":{}}`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`:                          `"name":"get-weather"`,
		`{"jsonrpc":"2.0","id":2,"method":"tools/call"}`:                          `"code":-32602,`,
		callOf("2", "get-weather", `{"city":5}`):                                  `"isError":true`,
		callOf("2", "get-weather", `{}`):                                          `"isError":true`,
		callOf("2", "count", `{"n":"three"}`):                                     `"isError":true`,
		callOf("2", "ask", `{}`):                                                  `the client cannot ask its user`,
		`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"_meta":{}}}`:    `"protocolVersion":"2025-11-25"`,
		`{"jsonrpc":"2.0","id":2,"method":"initialize","params":{"_meta":false}}`: `{"error":{"code":-32600,`,
	} {
		inBubble(t, "{}", func(c *client) {
			c.send(line)
			if want != "" {
				if got := c.read(); !strings.Contains(got, want) || strings.HasPrefix(want, `{"error"`) && strings.Contains(got, `"id"`) {
					t.Errorf("%s: %s", line, got)
				}
			}
			c.send(`{"jsonrpc":"2.0","id":"next","method":"ping"}`)
			c.want(`{"id":"next",`)
		})
	}
}

// A request that is cancelled gets no response, and its goroutine ends at once. Its id is free again. A cancellation of what has ended
// has no effect.
func TestCancel(t *testing.T) {
	inBubble(t, "{}", func(c *client) {
		began := time.Now()
		c.send(callOf("2", "count", slow), cancellationOf("2"), cancellationOf("2"), cancellationOf(`"2"`))
		c.send(callOf("2", "get-weather", `{"city":"Oslo"}`))
		c.want(`{"id":2,`, "Oslo is 18°C")
		c.send(callOf(`"2"`, "count", slow), cancellationOf("2"), `{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		c.want(`{"id":3,`)
		c.send(cancellationOf(`"2"`)) // another id than 2
		c.hangUp()
		if rest := c.rest(); rest != "" || time.Since(began) != 0 {
			t.Errorf("%q after %v", rest, time.Since(began))
		}
		c.ended <- nil // for inBubble
	})
}

// A client that does not read holds up what is written, and not the cancellation.
func TestCancelUnread(t *testing.T) {
	inBubble(t, "{}", func(c *client) {
		c.send(withProgress("2", "count", `{"n":3,"delayMs":1}`, `"t"`))
		time.Sleep(time.Millisecond)
		c.send(cancellationOf("2")) // while the first report waits to be read
		c.want(`"progress":1,`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`)
		c.want(`{"id":3,`)
	})
}

// A slow request holds up no other one, and each has its reports.
func TestAtOnce(t *testing.T) {
	inBubble(t, "{}", func(c *client) {
		began := time.Now()
		c.send(withProgress("2", "count", `{"n":2,"delayMs":1000}`, `"slow"`), withProgress(`"two"`, "count", `{"n":1,"delayMs":1500}`, "7"))
		c.send(callOf("4", "count", `{"n":3}`))
		c.want(`{"id":4,`, "counted to 3")
		if time.Since(began) != 0 {
			t.Errorf("it has taken %v", time.Since(began))
		}
		c.want(`"progress":1,`, `"progressToken":"slow"`)
		c.want(`"progress":1,`, `"progressToken":7`)
		c.want(`{"id":"two",`)
		c.want(`"progress":2,`, `"progressToken":"slow"`)
		c.want(`{"id":2,`)
	})
}

// The answer to a question reaches the call that has asked, while others run and ask. Only the first one counts.
func TestQuestions(t *testing.T) {
	inBubble(t, `{"elicitation":{}}`, func(c *client) {
		c.send(callOf("2", "count", `{"n":1,"delayMs":1000}`), callOf("3", "ask", "{}"))
		c.want(`{"id":1,`, `"method":"elicitation/create"`)
		c.send(callOf("4", "ask", "{}"))
		c.want(`{"id":2,`, `"method":"elicitation/create"`)
		for _, name := range []string{"Ada", "Bob"} {
			c.send(`{"jsonrpc":"2.0","id":2,"result":{"action":"accept","content":{"name":"` + name + `"}}}`)
		}
		c.want(`{"id":4,`, "Hello, Ada")
		c.send(`{"jsonrpc":"2.0","id":1,"error":{"code":-32603,"message":"The form is broken"}}`)
		c.want(`{"id":3,`, `"isError":true`, "the client has not asked")
		c.want(`{"id":2,`, "counted to 1")
	})
}

// If a call is cancelled while it asks, the client is told that its answer is not needed any more. An answer that comes nevertheless
// is dropped.
func TestCancelQuestion(t *testing.T) {
	inBubble(t, `{"elicitation":{}}`, func(c *client) {
		c.send(callOf("2", "ask", "{}"))
		c.want(`{"id":1,`, `"method":"elicitation/create"`)
		c.send(cancellationOf("2"))
		c.want(`"method":"notifications/cancelled"`, `{"requestId":1}`)
		c.send(`{"jsonrpc":"2.0","id":1,"result":{"action":"accept","content":{"name":"Ada"}}}`)
	})
}

// Nothing remains in the tables of what has ended, in whatever way.
func TestTables(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &peer{encoder: json.NewEncoder(io.Discard), serving: map[string]*exchange{}, calls: map[string]chan message{}}
		for _, line := range []string{
			`{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"capabilities":{"elicitation":{}}}}`,
			callOf("2", "ask", "{}"), callOf("3", "ask", "{}"), callOf("4", "count", slow), callOf("5", "get-weather", `{"city":"Oslo"}`),
			`{"jsonrpc":"2.0","id":1,"result":{"action":"decline"}}`, cancellationOf("2"), cancellationOf("3"), cancellationOf("4"),
		} {
			p.dispatch(t.Context(), []byte(line))
			synctest.Wait()
		}
		p.working.Wait()
		if len(p.serving)+len(p.calls) != 0 {
			t.Errorf("serving: %v, calls: %v", p.serving, p.calls)
		}
	})
}

// When the client has hung up, requests have five seconds to finish. Then they end without a response.
func TestEndOfInput(t *testing.T) {
	for _, row := range []struct {
		line, want string
		after      time.Duration
	}{
		{``, ``, 0},
		{callOf("2", "count", `{"n":1,"delayMs":4900}`), `counted to 1`, 4900 * time.Millisecond},
		{callOf("2", "count", slow), ``, 5 * time.Second},
		{callOf("2", "ask", "{}"), `"method":"notifications/cancelled"`, 5 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			c := newClient(t)
			c.handshake(`{"elicitation":{}}`)
			if row.line != "" {
				c.send(row.line)
			}
			began := time.Now()
			c.hangUp()
			rest := c.rest()
			if !strings.Contains(rest, row.want) || row.want == "" && rest != "" || time.Since(began) != row.after {
				t.Errorf("%s: %q after %v", row.line, rest, time.Since(began))
			}
		})
	}
}

// A line that is too long ends the server, which says why.
func TestLongLine(t *testing.T) {
	err := serveLines(strings.NewReader(strings.Repeat(" ", 4<<20)+"\n"), io.Discard)
	if !errors.Is(err, bufio.ErrTooLong) {
		t.Error(err)
	}
}

// Many requests at once, of which every second one is cancelled at any time, for the race detector: the others get one response each.
func TestMany(t *testing.T) {
	const many = 200
	in, out := io.Pipe()
	var text strings.Builder
	ended := make(chan error)
	go func() { ended <- serveLines(in, &text) }()
	for i := range many {
		fmt.Fprintln(out, withProgress(fmt.Sprint(2*i), "count", `{"n":2,"delayMs":1}`, fmt.Sprint(2*i)))
		fmt.Fprintln(out, callOf(fmt.Sprint(2*i+1), "count", `{"n":1,"delayMs":1}`))
		fmt.Fprintln(out, cancellationOf(fmt.Sprint(2*i+1)))
	}
	out.Close()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	for i := range many {
		if n := strings.Count(text.String(), fmt.Sprintf(`{"id":%d,`, 2*i)); n != 1 {
			t.Errorf("%d responses to %d", n, 2*i)
		}
		if n := strings.Count(text.String(), fmt.Sprintf(`"progressToken":%d,`, 2*i)); n != 2 {
			t.Errorf("%d reports about %d", n, 2*i)
		}
	}
	for line := range strings.Lines(text.String()) {
		lesson.Values(t, line, nil) // lines do not mix
	}
}

// A server with the tool of README.md, put where README.md says, has that tool, with its progress.
func TestAnotherTool(t *testing.T) { lesson.AnotherToolOnStdio(t) }

// The files are not longer than README.md says. README.md names what it leaves out of the lessons' messages, and the names of the code
// in it are there.
func TestReadme(t *testing.T) {
	code := ""
	for name, most := range map[string]int{"main.go": 230, "tools.go": 90} {
		source, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(source), "\n"); n > most {
			t.Errorf("%s has %d lines", name, n)
		}
		code += string(source)
	}
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range missing {
		if !slices.Contains(regexp.MustCompile("`[^`\n]+`").FindAllString(string(readme), -1), "`"+name+"`") {
			t.Errorf("README.md does not name %s", name)
		}
	}
	for _, named := range regexp.MustCompile("`(?:peer|exchange)\\.([a-zA-Z]+)`").FindAllStringSubmatch(string(readme), -1) {
		if !regexp.MustCompile(`(?m)^(func \([px] \*(peer|exchange)\) |\t)` + named[1] + `\b`).MatchString(code) {
			t.Errorf("README.md names %s, which is not there", named[0])
		}
	}
}
