package interop

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"interop/wire"
)

// The lessons over HTTP of ../*.md, which both ends of mcpwire keep to, are played here at the servers
// of others. What one of them does otherwise stands in a file of lessons/, with the reason: a
// difference that is not explained, or one that has gone, is an error.
func TestLessons(t *testing.T) {
	t.Parallel()
	const quicker = `"delayMs":5000`
	ours := serve(t).base
	sdk := startGo(t, goSDKServer, "", "lessons")
	stateless := startGo(t, goSDKServer, "", "lessons")
	everything, everythingSSE := startEverything(t, "streamableHttp"), startEverything(t, "sse")
	for _, test := range []struct {
		name      string
		base, sse string   // of the URLs for Streamable HTTP and for HTTP+SSE
		spell     []string // what is said otherwise there, such as the names of its tools
	}{
		{"mcpwire", ours, ours, []string{quicker, `"delayMs":200`}},
		{"gosdk", sdk, sdk, []string{quicker, `"delayMs":200`}},
		{"gosdk-stateless", stateless, stateless, []string{" /mcp\n", " /stateless\n"}},
		{"everything", everything, everythingSSE, []string{`"text":"hello`, `"message":"hello`,
			`"name":"count","arguments":{"n":2}`, `"name":"trigger-long-running-operation","arguments":{"duration":2,"steps":2}`,
			`"name":"ask"`, `"name":"trigger-elicitation-request"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			told, unplayed := explained(t, "lessons/"+test.name+".txt")
			var found []string
			for _, name := range lessonNames(t) {
				steps := readLesson(t, name)
				if len(steps) == 0 || slices.Contains(unplayed, name) {
					continue
				}
				p := &player{T: t, base: test.base, spell: strings.NewReplacer(test.spell...), names: map[string]string{}}
				if strings.Contains(steps[0].text, " /sse\n") {
					p.base = test.sse
				}
				for _, difference := range p.play(steps) {
					found = append(found, name+": "+difference)
				}
			}
			for _, difference := range found {
				if !slices.Contains(told, difference) && !slices.Contains(told, difference+sometimes) {
					t.Errorf("unexplained: %s", difference)
				}
			}
			for _, difference := range told {
				if !slices.Contains(found, difference) && !strings.HasSuffix(difference, sometimes) {
					t.Errorf("gone: %s", difference)
				}
			}
		})
	}
}

// sometimes ends a difference that a race in the server decides.
const sometimes = " (sometimes)"

// ---- The files ----

func lessonNames(t *testing.T) (names []string) {
	t.Helper()
	files, _ := filepath.Glob("../[0-9]*.md") // the pattern is good
	if len(files) < 30 {
		t.Fatalf("%d lessons", len(files))
	}
	for _, file := range files {
		names = append(names, strings.TrimSuffix(filepath.Base(file), ".md"))
	}
	return names
}

// A turn is what one side says in one exchange over HTTP.
type turn struct{ letter, side, text string }

var saidLine = regexp.MustCompile(`(?m)^    (?:([A-Z])([<>])(?: (.*))?|handshake (\S+) ?(.*))$`)

// readLesson returns the steps of a lesson over HTTP. ../cases/README.md has the notation. A handshake is that of lesson 05.
func readLesson(t *testing.T, name string) (steps []turn) {
	t.Helper()
	text, err := os.ReadFile("../" + name + ".md")
	if err != nil {
		t.Fatal(err)
	}
	if !regexp.MustCompile(`(?m)^    [AC]> `).Match(text) {
		return nil // it is not over HTTP
	}
	for _, m := range saidLine.FindAllStringSubmatch(string(text), -1) {
		letter, side, said, version, capabilities := m[1], m[2], m[3], m[4], m[5]
		if version != "" {
			for _, s := range readLesson(t, "05-http-session")[:4] {
				s.text = strings.ReplaceAll(s.text, "2025-11-25", version)
				if capabilities != "" {
					s.text = strings.Replace(s.text, `"capabilities":{},"client`, `"capabilities":`+capabilities+`,"client`, 1)
				}
				steps = append(steps, s)
			}
			continue
		}
		if last := len(steps) - 1; last >= 0 && steps[last].letter == letter && steps[last].side == side && !strings.HasPrefix(said, "(") {
			steps[last].text += said + "\n"
		} else {
			steps = append(steps, turn{letter, side, said + "\n"})
		}
	}
	return steps
}

// ---- The player ----

// player is the client of a lesson.
type player struct {
	*testing.T
	base      string
	spell     *strings.Replacer
	names     map[string]string // what the server calls what has a name in the lesson
	exchanges []*httpExchange
}

type httpExchange struct {
	letter, want string // what the lesson has the server say
	hangUp       func()

	mu     sync.Mutex // guards the fields below
	got    string     // what it says
	isOver bool
	goesOn bool // though it should be over
}

// play returns what the server does otherwise, as far as the protocol says what it should do.
func (p *player) play(steps []turn) (differences []string) {
	for _, s := range steps {
		i := slices.IndexFunc(p.exchanges, func(x *httpExchange) bool { return x.letter == s.letter })
		switch {
		case s.text == "(hangs up)\n", s.text == "(breaks)\n":
			p.exchanges[i].end()
		case s.side == ">":
			time.Sleep(50 * time.Millisecond) // what comes unexpectedly has come by then
			p.say(s)
		default:
			p.exchanges[i].hear(s.text)
			p.learn(p.exchanges[i])
		}
	}
	time.Sleep(50 * time.Millisecond)
	for _, x := range p.exchanges {
		x.hangUp()
		x.mu.Lock()
		defer x.mu.Unlock()
		have := facts(x.got)
		for _, fact := range facts(x.want) {
			if i := slices.Index(have, fact); i >= 0 {
				have = slices.Delete(have, i, i+1)
			} else {
				differences = append(differences, "not there: "+x.letter+": "+fact)
			}
		}
		if x.goesOn {
			have = append(have, "goes on")
		}
		for _, fact := range have {
			differences = append(differences, "instead:   "+x.letter+": "+fact)
		}
	}
	return differences
}

// say makes a request.
func (p *player) say(s turn) {
	head, body, _ := strings.Cut(p.spell.Replace(s.text), "\n\n")
	first, fields, _ := strings.Cut(strings.TrimSuffix(head, "\n"), "\n")
	method, path, _ := strings.Cut(first, " ")
	if id := regexp.MustCompile(`"id":[^,}]+`).FindString(body); !strings.Contains(body, `"method":`) { // an answer to a question
		body = strings.Replace(body, id, cmp.Or(p.names[id], id), 1)
	}
	ctx, cancel := context.WithTimeout(p.Context(), 2*patience)
	r, err := http.NewRequestWithContext(ctx, method, p.base+cmp.Or(p.names[path], path), strings.NewReader(body))
	if err != nil {
		p.Fatal(err)
	}
	for line := range strings.Lines(fields) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
		if r.Header.Set(name, cmp.Or(p.names[value], value)); name == "Host" {
			r.Host = value
		}
	}
	x := &httpExchange{letter: s.letter, hangUp: cancel}
	p.exchanges = append(p.exchanges, x)
	go func() {
		defer x.note(ctx, "", true)
		response, err := http.DefaultClient.Do(r)
		if err != nil {
			x.note(ctx, err.Error(), true)
			return
		}
		defer response.Body.Close()
		head := fmt.Sprintf("%d\nContent-Type: %s\n", response.StatusCode, response.Header.Get("Content-Type"))
		if id := response.Header.Get("Mcp-Session-Id"); id != "" {
			head += "Mcp-Session-Id: " + id + "\n"
		}
		x.note(ctx, head+"\n", false)
		for buffer := make([]byte, 32<<10); err == nil; {
			var n int
			n, err = response.Body.Read(buffer)
			x.note(ctx, string(buffer[:n]), err == io.EOF)
		}
	}()
}

// note notes what the server says, unless the player has hung up.
func (x *httpExchange) note(ctx context.Context, said string, isOver bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if ctx.Err() == nil {
		x.got, x.isOver = x.got+said, x.isOver || isOver
	}
}

// end hangs up, or breaks the connection where the lesson does: what has come since was not read.
func (x *httpExchange) end() {
	x.hangUp()
	x.mu.Lock()
	defer x.mu.Unlock()
	x.got = firstEvents(x.got, countEvents(x.want))
}

// patience is how long the player waits for what stands in the lesson.
const patience = 6 * time.Second

// hear waits for what the server says in the lesson.
func (x *httpExchange) hear(text string) {
	said, isEnd := strings.CutSuffix(text, "(ends)\n")
	x.want += said
	isEnd = isEnd || !strings.Contains(x.want, "text/event-stream")
	for began, isHeard := time.Now(), false; !isHeard && time.Since(began) < patience; time.Sleep(5 * time.Millisecond) {
		x.mu.Lock()
		isHeard = x.isOver || !isEnd && countEvents(x.got) >= countEvents(x.want)
		x.goesOn = isEnd && !x.isOver && x.got != ""
		x.mu.Unlock()
	}
}

var dataLine = regexp.MustCompile(`(?m)^data: ?\S.*\n\n`)

// countEvents counts events that carry something. That the list of tools has changed is said in no lesson.
func countEvents(text string) int {
	return len(dataLine.FindAllString(text, -1)) - strings.Count(text, "notifications/tools/list_changed")
}

// firstEvents returns a stream up to the end of an event.
func firstEvents(text string, n int) string {
	for _, at := range dataLine.FindAllStringIndex(text, -1) {
		if countEvents(text[:at[1]]) == n {
			return text[:at[1]]
		}
	}
	return text
}

// givenNames are what a server calls a session, an event, an endpoint and a request.
var givenNames = []*regexp.Regexp{regexp.MustCompile(`(?m)^Mcp-Session-Id: (\S+)$`), regexp.MustCompile(`(?m)^id: (\S+)$`),
	regexp.MustCompile(`(?m)^data: ([^{\s]\S*)$`), regexp.MustCompile(`(?m)^data: .*("id":[^,}]+).*"method":|"method":.*("id":[^,}]+)`)}

// learn notes the names. The last ones count, as some servers say more before.
func (p *player) learn(x *httpExchange) {
	x.mu.Lock()
	defer x.mu.Unlock()
	got := firstEvents(x.got, countEvents(x.want))
	for _, name := range givenNames {
		ours, theirs := name.FindAllStringSubmatch(x.want, -1), name.FindAllStringSubmatch(got, -1)
		for i := 1; i <= min(len(ours), len(theirs)); i++ {
			p.names[strings.Join(ours[len(ours)-i][1:], "")] = strings.Join(theirs[len(theirs)-i][1:], "")
		}
	}
}

// facts lists what a server has said: not what comes in words, nor whether a lone answer is a stream.
func facts(said string) (facts []string) {
	head, body, _ := strings.Cut(said, "\n\n")
	status, fields, _ := strings.Cut(strings.TrimSuffix(head, "\n"), "\n")
	facts = append(facts, "status "+status)
	if strings.Contains(fields, "Mcp-Session-Id: ") && strings.Contains(body, `"serverInfo"`) {
		facts = append(facts, "a session")
	}
	messages := wire.Decode([]byte(body)).Messages
	if strings.Contains(fields, "text/event-stream") {
		messages = nil
		for e, err := range wire.ReadEvents(strings.NewReader(body), 1<<20) {
			if err == nil && len(e.Data) > 0 && e.Type != "endpoint" {
				messages = append(messages, wire.Decode(e.Data).Messages...)
			}
		}
		switch {
		case len(messages) == 1 && messages[0].Kind() == wire.KindResponse:
		case strings.Contains("\n"+body, "\nid: "):
			facts = append(facts, "a stream with event ids")
		default:
			facts = append(facts, "a stream")
		}
	}
	for _, m := range messages {
		switch id := m.ID.String(); {
		case m.Kind() == wire.KindInvalid:
		case m.Method != "":
			facts = append(facts, m.Method)
		case m.Error == nil:
			fact := []string{"result for " + id}
			for name, value := range wire.Each(m.Result) {
				if slices.Contains([]string{"resultType", "protocolVersion", "isError"}, name) {
					fact = append(fact, name+" "+string(value))
				}
			}
			slices.Sort(fact[1:])
			facts = append(facts, strings.Join(fact, ", "))
		case id != "": // without one it says no more than the status
			facts = append(facts, fmt.Sprintf("error %d for %s", m.Error.Code, id))
		}
	}
	return facts
}

var differenceLine = regexp.MustCompile(`^(not there:|instead:  ) [A-Z]+: .`)

// explained reads a file of lessons/: under "## LESSON" the differences, as they are reported, each
// followed by its reason, which is indented; one reason may do for several. Under
// "## LESSON: not played" there is the reason for that.
func explained(t *testing.T, file string) (differences, unplayed []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		lesson, left := strings.CutSuffix(name, ": not played")
		if left {
			unplayed = append(unplayed, lesson)
		}
		if _, err := os.Stat("../" + lesson + ".md"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		reason := false
		for line := range strings.Lines(body) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" {
				continue
			}
			reason = strings.HasPrefix(line, "  ")
			if differenceLine.MatchString(line) && !left {
				differences = append(differences, lesson+": "+line)
			} else if !reason {
				t.Errorf("%s: %s: what is %q?", file, name, line)
			}
		}
		if !reason {
			t.Errorf("%s: %s: no reason at the end", file, name)
		}
	}
	return differences, unplayed
}
