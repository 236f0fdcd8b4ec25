//go:build unix

// Bench compares what the same calls cost with mcpwire, mcp-go, the Go SDK and
// a bare program that does the least that can be done: the floor. All take
// turns within one run, so that only ratios have to be trusted, not times.
//
//	go run ./bench             everything, some minutes; the table is Markdown
//	go run ./bench -quick      whether it runs and all answers are right
//	go run ./bench -only echo  the rows whose names match
//	go run ./bench -before DIR with a column for mcpwire in another checkout
//
// What is compared is in this file, in the order of the table. How sides take
// turns is in measure.go, what they are put under in load.go, and how they are
// built and started in process.go.
package main

import (
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	programs []*program
	rounds   int
	slice    time.Duration
	sessions int    // many of them
	profiles string // directory
	quick    bool

	about string
	rows  []row
}

// measurement is a group of rows that come of the same turns.
type measurement struct {
	name string
	run  func(b *bench, name string) error
}

var measurements = []measurement{
	{"a call over HTTP, 2025-11-25, 1 connection", calling(inSession, 1, 1.3)},
	{"a call over HTTP, 2025-11-25, 64 connections", calling(inSession, 64, 1.3)},
	{"a call over HTTP, 2026-07-28, 1 connection", calling(modern, 1, 1.3)},
	{"a call over HTTP, 2026-07-28, 64 connections", calling(modern, 64, 1.3)},
	{"`initialize`", (*bench).initialize},
	{"echo of 64 KiB", echoing(64<<10, 1.6)},
	{"echo of 1 MiB", echoing(1<<20, 1.6)},
	{"a progress event, one a millisecond", progress(50, 1, 1.3)},
	{"a progress event, back to back", progress(500, 0, 1.3)},
	{"a call over stdio, one after another", lines(1, 2.5)},
	{"a call over stdio, 64 under way", lines(64, 4)},
	{"a call, as a client", (*bench).client},
	{"a call with many sessions", (*bench).manySessions},
	{"memory of a session", (*bench).sessionMemory},
	{"memory of a stream", (*bench).streamMemory},
	{"start-up", (*bench).startUp},
	{"binary, stripped", (*bench).size},
}

func main() {
	log.SetFlags(0)
	b := &bench{programs: programs()}
	before := flag.String("before", "", "compare with mcpwire as it is in another checkout as well, a `directory`")
	only := flag.String("only", ".", "measure what matches this `regexp`")
	flag.IntVar(&b.rounds, "rounds", 21, "how often each side takes its turn")
	flag.DurationVar(&b.slice, "slice", 150*time.Millisecond, "how long a turn is")
	flag.BoolVar(&b.quick, "quick", false, "only see that everything runs and answers are right")
	flag.StringVar(&b.profiles, "profiles", "", "write profiles of processor time to this `directory`")
	flag.Parse()
	if *before != "" {
		dir, err := filepath.Abs(*before)
		if err != nil {
			log.Fatal(err)
		}
		b.programs = slices.Insert(b.programs, 2, &program{name: "before", before: dir, paths: map[kind]string{}})
	}
	chosen, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal(err)
	}
	b.sessions = 10_000
	if b.quick {
		b.rounds, b.slice, b.sessions = 1, 20*time.Millisecond, 100
	}
	if err := b.run(chosen); err != nil {
		log.Fatal(err)
	}
}

func (b *bench) run(chosen *regexp.Regexp) error {
	out, err := os.MkdirTemp("", "bench")
	if err != nil {
		return err
	}
	defer os.RemoveAll(out)
	module, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return err
	}
	for _, p := range b.programs {
		if err := p.build(filepath.Dir(strings.TrimSpace(string(module))), out); err != nil {
			return err
		}
	}
	b.about = fmt.Sprintf("%s, %s, %d cores, %s", time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU(), installed())
	for _, m := range measurements {
		if chosen.MatchString(m.name) {
			if err := m.run(b, m.name); err != nil {
				return err
			}
		}
	}
	b.table()
	fmt.Print(notes)
	return nil
}

const notes = `
Multiples are of the bare program, which decodes once and writes once, and of the same round: medians. A call is a
tools/call of echo with a few bytes. go-sdk answers it in JSON, which is cheaper than its default, and has no sessions
where it serves 2026-07-28; mcp-go has sessions for 2025-11-25. Tools are made as their manuals show. The events of
mcpwire have ids and can be resumed, those of the others not. All clients call mcpwire.
`

// installed tells how much memory the machine has, where that can be read.
func installed() string {
	text, _ := os.ReadFile("/proc/meminfo")
	var kilobytes float64
	fmt.Sscanf(string(text), "MemTotal: %f kB", &kilobytes)
	return fmt.Sprintf("%.0f GB", kilobytes*1024/1e9)
}

// compare has all programs take turns and adds a row: of the floor the
// processor time of an operation, of the others how many times that.
func (b *bench) compare(name string, bound float64, begin func(p *program) (*side, error)) (results, error) {
	var sides []*side
	defer func() {
		for _, s := range sides {
			s.close()
		}
	}()
	for _, p := range b.programs {
		s, err := begin(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %s: %w", name, p.name, err)
		}
		sides = append(sides, s)
	}
	r, err := b.alternate(name, sides)
	if err != nil {
		return nil, err
	}
	line := row{group: cpu, name: name, bound: bound}
	line.add("%s", duration(r.median(0, func(s slice) float64 { return s.cpu })))
	for i, p := range b.programs[1:] {
		line.addRatio(p, r.ratios(1+i, 0))
	}
	b.add(line)
	return r, nil
}

// speed adds rows of what callers notice.
func (b *bench) speed(name string, r results) {
	rate, took := row{group: throughput, name: name}, row{group: latency, name: name}
	for i := range b.programs {
		rate.add("%.0f", r.median(i, func(s slice) float64 { return s.rate }))
		took.add("%s, %s", duration(r.latency(i, 0.5)), duration(r.latency(i, 0.99)))
	}
	b.add(rate)
	b.add(took)
}

// path returns where a program answers this kind of request.
func (p *program) path(k kind) string {
	if path := p.paths[k]; path != "" {
		return path
	}
	return "/mcp"
}

// web starts a server under connections that call a tool in turn.
func (p *program) web(k kind, connections int, tool, arguments, meta string, ops int, check func([]byte) error) (*side, error) {
	c, err := p.serve("-max-sessions", "1000000")
	if err != nil {
		return nil, err
	}
	l := &webLoad{}
	for range connections {
		conn, err := dial(c.addr)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, conn)
		headers := "Mcp-Protocol-Version: " + modernVersion + "\r\nMcp-Method: tools/call\r\nMcp-Name: " + tool + "\r\n"
		if k != modern {
			session, err := conn.initialize(p.path(k))
			if err != nil {
				return nil, err
			}
			headers = inSessionHeaders(session)
		}
		body := toolCall(k == modern, tool, arguments, meta)
		conn.calls = []*call{newCall(post(p.path(k), headers, body), ops, check)}
	}
	return &side{child: c, load: l}, nil
}

// open begins n sessions at a server.
func (c *child) open(n int) (sessions []string, err error) {
	conn, err := dial(c.addr)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	for range n {
		session, err := conn.initialize(c.path(inSession))
		if err != nil {
			return nil, err
		}
		sessions = append(sessions, session)
	}
	return sessions, nil
}

func calling(k kind, connections int, bound float64) func(*bench, string) error {
	return func(b *bench, name string) error {
		r, err := b.compare(name, bound, func(p *program) (*side, error) {
			return p.web(k, connections, "echo", `"text":"hello"`, "", 1, saying("hello"))
		})
		if err == nil {
			b.speed(name, r)
		}
		return err
	}
}

func echoing(size int, bound float64) func(*bench, string) error {
	return func(b *bench, name string) error {
		const line = `Any text will do as long as it has lines and a \"quotation\" now and then.\n`
		text := strings.Repeat(line, 1+size/len(line))
		_, err := b.compare(name, bound, func(p *program) (*side, error) {
			return p.web(inSession, 1, "echo", `"text":"`+text+`"`, "", 1, saying(text))
		})
		return err
	}
}

func progress(n, delay int, bound float64) func(*bench, string) error {
	return func(b *bench, name string) error {
		arguments := fmt.Sprintf(`"n":%d,"delayMs":%d`, n, delay)
		var conns []*webConn
		r, err := b.compare(name, bound, func(p *program) (*side, error) {
			s, err := p.web(events, 1, "count", arguments, `"progressToken":"token"`, n, counting(n))
			if err != nil {
				return nil, err
			}
			conn := s.load.(*webLoad).conns[0]
			conn.tolerant = p.name == "mcp-go" // which is known for it
			conns = append(conns, conn)
			return s, nil
		})
		if err != nil {
			return err
		}
		lost := row{group: rest, name: "lost of 100,000, " + name}
		for i, conn := range conns {
			var sent float64
			for _, round := range r {
				sent += float64(len(round[i].took) * n)
			}
			lost.add("%.0f", 100_000*float64(conn.missing)/sent)
		}
		b.add(lost)
		return nil
	}
}

func (b *bench) initialize(name string) error {
	_, err := b.compare(name, 1.8, func(p *program) (*side, error) {
		c, err := p.serve("-max-sessions", "1000000")
		if err != nil {
			return nil, err
		}
		l, err := newInitializing(c.addr, p.path(inSession))
		return &side{child: c, load: l}, err
	})
	return err
}

func lines(ahead int, bound float64) func(*bench, string) error {
	return func(b *bench, name string) error {
		r, err := b.compare(name, bound, func(p *program) (*side, error) {
			c, err := p.start(p.server)
			if err != nil {
				return nil, err
			}
			l, err := newLineLoad(c, ahead)
			return &side{child: c, load: l}, err
		})
		if err == nil && ahead == 1 {
			b.speed(name, r)
		}
		return err
	}
}

// client measures the other end: the server is the same for all.
func (b *bench) client(name string) error {
	var server *child
	for _, p := range b.programs {
		if p.name == "mcpwire" {
			var err error
			if server, err = p.serve("-versions", legacyVersion); err != nil {
				return err
			}
			defer server.stop()
		}
	}
	_, err := b.compare(name, 1.3, func(p *program) (*side, error) {
		url := "http://" + server.addr + "/mcp"
		c, err := p.start(p.client, url)
		return &side{child: c, load: clientLoad{c}}, err
	})
	return err
}

// many makes calls in so many sessions, in turn, over some connections.
func (p *program) many(sessions int) (*side, error) {
	c, err := p.serve("-max-sessions", "1000000")
	if err != nil {
		return nil, err
	}
	ids, err := c.open(sessions)
	if err != nil {
		return nil, err
	}
	const connections = 16
	l := &webLoad{}
	for i := range connections {
		conn, err := dial(c.addr)
		if err != nil {
			return nil, err
		}
		l.conns = append(l.conns, conn)
		for at := range max(sessions/connections, 1) {
			id := ids[(at*connections+i)%len(ids)]
			x := newCall(post(p.path(inSession), inSessionHeaders(id), toolCall(false, "echo", `"text":"hello"`, "")), 1, saying("hello"))
			x.apart(i)
			conn.calls = append(conn.calls, x)
		}
	}
	return &side{child: c, load: l}, nil
}

func (b *bench) manySessions(name string) error {
	line := row{group: cpu, name: fmt.Sprintf("a call with %d sessions, against one with one session", b.sessions), bound: 1.15}
	var sides []*side
	defer func() {
		for _, s := range sides {
			s.close()
		}
	}()
	for _, p := range b.programs[1:] {
		for _, n := range []int{1, b.sessions} {
			s, err := p.many(n)
			if err != nil {
				return fmt.Errorf("%s: %s: %w", name, p.name, err)
			}
			sides = append(sides, s)
		}
	}
	r, err := b.alternate(name, sides)
	if err != nil {
		return err
	}
	line.add("–")
	for i, p := range b.programs[1:] {
		line.addRatio(p, r.ratios(2*i+1, 2*i))
	}
	b.add(line)
	return nil
}
