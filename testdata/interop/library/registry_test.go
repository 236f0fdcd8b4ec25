package library

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"interop/wire"
)

// FuzzRegistry: tools, resources, templates and prompts come and go while two clients, one of each era, list and use them.
//
// A registry that changes while it is read is where lists go wrong: an item is shown twice or never, a page leads back to itself, an item that
// was removed still answers, a change is not announced or is announced twice. No table of cases has all the orders in which that may happen.
//
// A script has one step in each line. The first byte says what happens, the second to which list, and the rest is a name or a URI:
//
//	# ...       nothing: a title, and the reason for the script
//	+tNAME      the server adds a tool; +r a resource, +i a template (items alike), +p a prompt. *t adds sixty
//	-tNAME      the server removes it
//	>t          both clients read the next page of the list, or the first one again
//	.tNAME      both clients call the tool, read the resource, or get the prompt
func FuzzRegistry(f *testing.F) {
	for _, script := range registryScripts {
		f.Add([]byte(script))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		if len(script) > 16<<10 {
			return
		}
		defer time.AfterFunc(time.Minute, func() { panic("no end") }).Stop()
		synctest.Test(t, func(t *testing.T) { playRegistry(t, script) })
	})
}

// registryScripts are the seeds. The first line of each says why it is there.
var registryScripts = []string{
	"# all of it once: a script of a mutation begins from something that works\n+techo\n+rnote:///a\n+inote:///{name}\n+pask\n>t\n>r\n>i\n>p\n.techo\n.rnote:///a\n.rnote:///b\n.pask\n-techo\n.techo\n>t\n",
	"# what is removed is unknown: a client may hold an old list\n+ta\n.ta\n-ta\n.ta\n+ta\n.ta\n",
	"# one is replaced: the new one answers, though the name is the same\n+ta\n.ta\n+ta\n.ta\n",
	"# items come and go between two pages: a cursor must still fit\n*ta\n*tb\n>t\n+taa\n-ta00\n-ta49\n-ta50\n>t\n+tz\n>t\n>t\n",
	"# the cursor's own item is gone: a page must not begin again\n*ta\n>t\n-ta49\n>t\n",
	"# odd names: what JSON escapes is one name on the wire and in the list\n+t\"\\\n+t é\U0001F600 \n+t\x00\x7f\n.t\"\\\n.t\x00\x7f\n>t\n",
	"# names that are not UTF-8: no client can say them, and a cursor of them would lead back\n*t\xff\n+t\xff\n-t\xff\n+t\ufffd\n>t\n>t\n>t\n.t\xff\n",
	"# a name that comes out as another one: what the client says is looked for, not what it meant\n+t\ufffd\n+t\ufffd\ufffd\n.t\xff\n.t\xff\xff\n.r\xff:\n",
	"# URIs: with a template, without, and what is none\n+ifile:///{+path}\n.rfile:///x\n.rfile:///%\n.r\n+rfile:///%\n.rfile:///%\n-ifile:///{+path}\n.rfile:///x\n",
}

// registry is a Server, what it should offer, and its clients.
type registry struct {
	*testing.T
	server  *wire.Server
	log     lockedBuffer
	offered map[byte]map[string]int // numbers of items, which their answers begin with: by the letter of a list, and the key
	made    int
	sixties int
	changes map[byte]int // since the clients were looked at
	clients []*registryClient
	serving sync.WaitGroup
}

// registryClient is one of the clients. It writes lines, and keeps those that it reads.
type registryClient struct {
	*registry
	era      string
	out      *io.PipeWriter
	walks    map[byte]*listWalk
	told     map[string]int // notifications since the last look, by method
	requests int

	mine  sync.Mutex // guards the field below
	lines [][]byte   // not yet looked at
}

// listWalk is how far a client has read a list.
type listWalk struct {
	cursor *string // of the next page; nil: the first one
	last   string  // key that was shown
	owed   map[string]bool
}

// listMethods are the methods of each list, what its items are called, and their key.
var listMethods = map[byte]struct{ list, use, items, key, announced string }{
	't': {"tools/list", "tools/call", "tools", "name", "tools"},
	'r': {"resources/list", "resources/read", "resources", "uri", "resources"},
	'i': {"resources/templates/list", "resources/read", "resourceTemplates", "uriTemplate", "resources"},
	'p': {"prompts/list", "prompts/get", "prompts", "name", "prompts"},
}

func playRegistry(t *testing.T, script []byte) {
	r := &registry{T: t, offered: map[byte]map[string]int{}, changes: map[byte]int{}}
	for letter := range listMethods {
		r.offered[letter] = map[string]int{}
	}
	announced := map[string]bool{"listChanged": true}
	r.server = &wire.Server{Info: wire.Implementation{Name: "s", Version: "1"},
		Capabilities: map[string]any{"tools": announced, "resources": announced, "prompts": announced}}
	r.server.AnnounceChanges()
	defer r.close()
	steps := 0
	for line := range bytes.SplitSeq(script, []byte("\n")) {
		if len(line) > 0 && line[0] != '#' && steps < 100 {
			steps++
			r.step(line[0], line[1:])
		}
	}
	r.serve() // if the script has only added
	r.look()
}

// close ends both conversations.
func (r *registry) close() {
	for _, c := range r.clients {
		c.out.Close()
	}
	r.serving.Wait()
	if r.log.String() != "" {
		r.Error("in the log:", r.log.String())
	}
}

// step takes one step of a script. What means nothing is left out.
func (r *registry) step(what byte, rest []byte) {
	if len(rest) == 0 || listMethods[rest[0]].list == "" {
		return
	}
	letter, key := rest[0], string(rest[1:])
	switch what {
	case '+':
		r.add(letter, key)
	case '*':
		for i := 0; i < 60 && r.sixties < 5; i++ {
			r.add(letter, fmt.Sprintf("%s%02d", key, i))
		}
		r.sixties++
	case '-':
		r.remove(letter, key)
	case '>', '.':
		r.serve()
		for _, c := range r.clients {
			if what == '>' {
				c.readPage(letter)
			} else {
				c.use(letter, key)
			}
		}
	}
	r.look()
}

// ---- What the server does ----

// add adds an item. A key that no client could say is refused with a panic.
func (r *registry) add(letter byte, key string) {
	r.made++
	answer := fmt.Sprintf("#%d ", r.made)
	refused := r.panics(func() {
		switch letter {
		case 't':
			wire.AddTool(r.server, wire.Tool{Name: key}, func(ctx context.Context, x *wire.Exchange, _ struct{}) (any, error) {
				return answer, x.Progress(ctx, 1, 1)
			})
		case 'r':
			r.server.AddResource(wire.Resource{URI: key, Name: "n"}, func(context.Context, *wire.Exchange, string) (any, error) { return answer, nil })
		case 'i':
			r.server.AddResourceTemplate(wire.ResourceTemplate{URITemplate: key, Name: "n"}, func(context.Context, *wire.Exchange, string) (any, error) { return answer, nil })
		case 'p':
			r.server.AddPrompt(wire.Prompt{Name: key, Arguments: []wire.PromptArgument{{Name: "a"}}},
				func(context.Context, *wire.Exchange, map[string]string) (any, error) { return answer, nil })
		}
	})
	if wrong := key == "" || !utf8.ValidString(key); (refused != "") != wrong {
		r.Fatalf("adding %q: refused with %q", key, refused)
	} else if !wrong {
		r.offered[letter][key] = r.made
		r.changes[letter]++
	}
}

// panics returns the text of a panic; "": there was none. Only a text is one of the library on purpose.
func (r *registry) panics(f func()) (text string) {
	defer func() {
		if reason := recover(); reason != nil {
			text = reason.(string)
		}
	}()
	f()
	return ""
}

func (r *registry) remove(letter byte, key string) {
	map[byte]func(string){'t': r.server.RemoveTool, 'r': r.server.RemoveResource, 'p': r.server.RemovePrompt, 'i': r.server.RemoveResourceTemplate}[letter](key)
	if _, isThere := r.offered[letter][key]; !isThere {
		return
	}
	delete(r.offered[letter], key)
	r.changes[letter]++
	for _, c := range r.clients {
		if walk := c.walks[letter]; walk != nil {
			delete(walk.owed, key)
		}
	}
}

// ---- What the clients do ----

// serve connects both clients, unless they are connected. What was added before is not announced.
func (r *registry) serve() {
	if r.clients != nil {
		return
	}
	clear(r.changes)
	for _, era := range []string{"legacy", "modern"} {
		in, out := io.Pipe()
		theirIn, theirOut := io.Pipe()
		c := &registryClient{registry: r, era: era, out: out, walks: map[byte]*listWalk{}, told: map[string]int{}}
		r.clients = append(r.clients, c)
		r.serving.Go(func() {
			log := slog.New(slog.NewTextHandler(&r.log, &slog.HandlerOptions{Level: slog.LevelWarn}))
			if err := wire.Serve(context.Background(), wire.NewLineConn(in, theirOut, 1<<20, in.Close), r.server, log); err != nil {
				r.Error(err)
			}
			theirOut.Close()
		})
		r.serving.Go(func() {
			for lines := bufio.NewReader(theirIn); ; {
				line, err := lines.ReadBytes('\n')
				if err != nil {
					return
				}
				c.mine.Lock()
				c.lines = append(c.lines, line)
				c.mine.Unlock()
			}
		})
		if era == "legacy" {
			c.say(initializeLine("2025-11-25") + "\n" + `{"jsonrpc":"2.0","method":"notifications/initialized"}`)
			c.read("init")
		} else {
			c.say(modernRequest("subscriptions/listen", `"notifications":{"toolsListChanged":true,"resourcesListChanged":true,"promptsListChanged":true}`))
			c.read("")
			clear(c.told) // of the acknowledgement
		}
	}
}

// say writes a line, and returns when the server has nothing more to do.
func (c *registryClient) say(line string) {
	_, _ = io.WriteString(c.out, line+"\n")
	synctest.Wait()
}

// read looks at what has come: notifications, which it counts, and one answer to the request id; "": none.
func (c *registryClient) read(id string) (answer *wire.Message) {
	c.mine.Lock()
	lines := c.lines
	c.lines = nil
	c.mine.Unlock()
	for _, line := range lines {
		if !json.Valid(line) || !utf8.Valid(line) {
			c.Fatalf("not JSON in UTF-8: %q", line)
		}
		in := wire.Decode(line)
		m := in.Messages[0]
		switch {
		case in.Batch || m.Kind() == wire.Invalid || m.Kind() == wire.Request:
			c.Fatalf("%s is sent %s", c.era, line)
		case m.Kind() == wire.Notification:
			c.told[m.Method]++
		case m.Result == nil && m.Error == nil, m.ID.String() != `"`+id+`"`, answer != nil:
			c.Fatalf("%s is sent %s, and waits for one answer to %q", c.era, line, id)
		case m.Error != nil && m.Error.Code == wire.CodeInternalError:
			c.Fatalf("%s: %s", c.era, line)
		default:
			answer = m
		}
	}
	if answer == nil && id != "" {
		c.Fatalf("%s: no answer to %s", c.era, id)
	}
	return answer
}

// ask makes a request, and returns the answer.
func (c *registryClient) ask(method, params string) *wire.Message {
	if c.era == "modern" {
		params = strings.Replace("{"+modernMeta+","+params[1:], ",}", "}", 1)
	}
	c.requests++
	id := fmt.Sprint("request ", c.requests)
	c.say(`{"jsonrpc":"2.0","id":"` + id + `","method":"` + method + `","params":` + params + `}`)
	return c.read(id)
}

// asObject returns an object with one string.
func asObject(name, value string) string {
	text, _ := json.Marshal(map[string]string{name: value})
	return string(text)
}

// readPage reads the next page of a list. Its keys follow those of the page before, and no key that has been there all the time is left out.
func (c *registryClient) readPage(letter byte) {
	walk := c.walks[letter]
	params := "{}"
	if walk == nil {
		walk = &listWalk{owed: map[string]bool{}}
		for key := range c.offered[letter] {
			walk.owed[key] = true
		}
		c.walks[letter] = walk
	} else {
		params = asObject("cursor", *walk.cursor)
	}
	m := listMethods[letter]
	answer := c.ask(m.list, params)
	if answer.Error != nil {
		c.Fatalf("%s, %s: %v", m.list, params, answer.Error)
	}
	var items []map[string]any
	if err := json.Unmarshal(value(answer.Result, m.items), &items); err != nil {
		c.Fatalf("%s: %v", answer.Result, err)
	}
	for _, item := range items {
		key, _ := item[m.key].(string)
		if _, isThere := c.offered[letter][key]; !isThere || key <= walk.last {
			c.Fatalf("%s, %s: %q is shown after %q, and offered is %q", m.list, params, key, walk.last, slices.Sorted(maps.Keys(c.offered[letter])))
		}
		walk.last = key
		delete(walk.owed, key)
	}
	if value(answer.Result, "nextCursor") != nil {
		next := text(answer.Result, "nextCursor")
		walk.cursor = &next
		if len(items) == 0 || next == "" {
			c.Fatalf("%s, %s: a page leads nowhere: %s", m.list, params, answer.Result)
		}
		return
	}
	if len(walk.owed) > 0 {
		c.Fatalf("%s: never shown: %q", m.list, slices.Sorted(maps.Keys(walk.owed)))
	}
	delete(c.walks, letter)
}

// use calls a tool, reads a resource, or gets a prompt. The newest item with that key answers, or none. What is not UTF-8 is said with U+FFFD.
func (c *registryClient) use(letter byte, key string) {
	m := listMethods[letter]
	name := strings.Replace(m.key, "uriTemplate", "uri", 1)
	params := asObject(name, key)
	said := text([]byte(params), name)
	item, isThere := c.offered[letter][said]
	answer := c.ask(m.use, params)
	found := answer.Error == nil && bytes.Contains(answer.Result, fmt.Appendf(nil, `"#%d `, item))
	switch {
	case letter == 'i', letter == 'r' && !isThere: // a template may answer, if that is a URI
	case letter == 'r' && answer.Error != nil && strings.Contains(answer.Error.Message, "must"): // it is none
	case isThere != found:
		c.Fatalf("%s of %q, which is offered: %v: %s %v", m.use, said, isThere, answer.Result, answer.Error)
	case !isThere && answer.Error.Code != wire.CodeInvalidParams:
		c.Fatalf("%s of %q: %v", m.use, said, answer.Error)
	}
}

// look checks what the clients were told since the last look: of each change of a list once at most, and at all.
func (r *registry) look() {
	if r.clients == nil {
		return
	}
	synctest.Wait()
	changed := map[string]int{}
	for letter, n := range r.changes {
		changed["notifications/"+listMethods[letter].announced+"/list_changed"] += n
	}
	clear(r.changes)
	for _, c := range r.clients {
		c.read("")
		delete(c.told, "notifications/progress")
		for method, n := range changed {
			if c.told[method] > n || n > 0 && c.told[method] == 0 {
				r.Fatalf("%s was told %d times of %d changes: %s", c.era, c.told[method], n, method)
			}
			delete(c.told, method)
		}
		if len(c.told) > 0 {
			r.Fatalf("%s was told of what has not changed: %v", c.era, c.told)
		}
	}
}
