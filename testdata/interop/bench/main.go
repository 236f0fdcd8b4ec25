//go:build unix

// Bench compares what the same calls cost with mcpwire, mcp-go, the Go SDK and a bare program that does the least that can be done. All take
// turns within one run, so that only ratios have to be trusted, not times.
//
//	go run ./bench             everything, some minutes; the table is Markdown
//	go run ./bench -quick      whether it runs and all answers are right
//	go run ./bench -only echo  the rows whose names match
//	go run ./bench -before DIR with a column for mcpwire in another checkout
//
// What is compared is in this file, in the order of the table. What servers are put under is in load.go, and how programs are built and
// started in process.go.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

// bench is one run.
type bench struct {
	programs []*program
	rounds   int
	slice    time.Duration // how long a turn is
	sessions int           // many of them
	quick    bool
	rows     []string // of the table
}

// measurement is one row. At most so many times what the bare program uses should mcpwire use.
type measurement struct {
	name string
	most float64
	run  func(b *bench, m measurement) error
}

var measurements = []measurement{
	{"a call over HTTP, 2025-11-25, 1 connection", 1.5, calling(inSession, 1)},
	{"a call over HTTP, 2025-11-25, 64 connections", 1.9, calling(inSession, 64)},
	{"a call over HTTP, 2026-07-28, 1 connection", 1.6, calling(modern, 1)},
	{"a call over HTTP, 2026-07-28, 64 connections", 2.2, calling(modern, 64)},
	{"`initialize`", 1.7, initialize},
	{"echo of 1 MiB", 2.7, echoOfMiB},
	{"a progress event, one a millisecond", 1.4, progress(50, 1)},
	{"a progress event, back to back", 1, progress(500, 0)},
	{"a call over stdio, one after another", 1.6, lines(1)},
	{"a call over stdio, 64 under way", 2.5, lines(64)},
	{"a call, as a client", 1.3, client},
	{"a call with many sessions, against one with one session", 1.2, manySessions},
	{"memory of an idle session", 1100, idleSession},
	{"start-up and the first answer", 1.15, startUp},
}

func main() {
	log.SetFlags(0)
	b := &bench{programs: programs(), slice: 150 * time.Millisecond, sessions: 10_000}
	before := flag.String("before", "", "compare with mcpwire as it is in another checkout as well, a `directory`")
	only := flag.String("only", ".", "measure what matches this `regexp`")
	flag.IntVar(&b.rounds, "rounds", 21, "how often each side takes its turn")
	flag.BoolVar(&b.quick, "quick", false, "only see that everything runs and answers are right")
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
	for _, m := range measurements {
		if chosen.MatchString(m.name) {
			if err := m.run(b, m); err != nil {
				return fmt.Errorf("%s: %w", m.name, err)
			}
		}
	}
	fmt.Printf("| %s, %s, %d cores |", time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU())
	for _, p := range b.programs {
		fmt.Printf(" %s |", p.name)
	}
	fmt.Printf("\n|%s\n%s\n%s", strings.Repeat(" --- |", 1+len(b.programs)), strings.Join(b.rows, "\n"), notes)
	return nil
}

const notes = `
Processor time; the others as multiples of the bare program, which decodes once and writes once: medians of the same rounds. A call is a
tools/call of echo with a few bytes. go-sdk answers it in JSON, which is cheaper than its default, and has no sessions where it serves
2026-07-28; mcp-go has sessions for 2025-11-25. Tools are made as their manuals show. The events of mcpwire have ids and can be resumed,
those of the others not. All clients call mcpwire.
`

// add adds a row: the figure of the bare program, and those of the others. Of mcpwire's also the quartiles are shown, and whether it is more
// than it should be.
func (b *bench) add(m measurement, bare string, others [][]float64, format func(float64) string) {
	cells := []string{m.name, bare}
	for i, p := range b.programs[1:] {
		middle := quantile(others[i], 0.5)
		cells = append(cells, format(middle))
		if p.name == "mcpwire" && !b.quick {
			verdict := "holds"
			if middle > m.most {
				verdict = "MISSED"
			}
			defer fmt.Fprintf(os.Stderr, "    %.3f (quartiles %.3f, %.3f), at most %g: %s\n", middle,
				quantile(others[i], 0.25), quantile(others[i], 0.75), m.most, verdict)
		}
	}
	b.rows = append(b.rows, "| "+strings.Join(cells, " | ")+" |")
	fmt.Fprintln(os.Stderr, strings.Join(cells, ", "))
}

func times(x float64) string { return digits(x) + "×" }

// digits tells three of them.
func digits(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(x))))), 64)
}

func duration(ns float64) string {
	if ns >= 1e6 {
		return digits(ns/1e6) + " ms"
	}
	return digits(ns/1e3) + " µs"
}

// quantile of what may come in any order.
func quantile(all []float64, q float64) float64 {
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// ---- Turns ----

// Sides take turns in small slices, so that whatever else the machine does befalls all of them, and each round is compared with itself.
type side struct {
	*child
	load
	idle float64 // processor time per time, of the child with nothing to do
}

// results are the processor times of an operation, in nanoseconds: of each side, round by round.
type results [][]float64

// ratios compares two sides round by round.
func (r results) ratios(at, to int) (all []float64) {
	for _, round := range r {
		all = append(all, round[at]/round[to])
	}
	return all
}

// of returns the results of one side.
func (r results) of(at int) (all []float64) {
	for _, round := range r {
		all = append(all, round[at])
	}
	return all
}

// alternate has sides take turns, and ends them. The first round does not count.
func (b *bench) alternate(begin ...func() (*side, error)) (r results, err error) {
	var sides []*side
	defer func() {
		for _, s := range sides {
			s.close()
			s.child.stop()
		}
	}()
	for _, begin := range begin {
		s, err := begin()
		if err != nil {
			return nil, err
		}
		sides = append(sides, s)
		before, err := s.cpu()
		time.Sleep(b.slice)
		after, err2 := s.cpu()
		if err := errors.Join(err, err2); err != nil {
			return nil, err
		}
		s.idle = float64(after-before) / float64(b.slice)
	}
	for round := range b.rounds + 1 {
		turns := make([]float64, len(sides))
		for i := range sides {
			at := (i + round) % len(sides) // nobody always follows the same
			if turns[at], err = sides[at].turn(b.slice); err != nil {
				return nil, fmt.Errorf("%s: %w\n%s", sides[at].name, err, sides[at].said())
			}
		}
		if round > 0 {
			r = append(r, turns)
		}
	}
	return r, nil
}

// turn returns the processor time of an operation.
func (s *side) turn(d time.Duration) (float64, error) {
	before, err := s.cpu()
	if err != nil {
		return 0, err
	}
	begun := time.Now()
	ops, err := s.run(begun.Add(d))
	elapsed := time.Since(begun)
	after, err2 := s.cpu()
	if err := errors.Join(err, err2, s.settle()); err != nil || ops == 0 {
		return 0, errors.Join(err, errors.New("nothing done"))
	}
	return (float64(after-before) - s.idle*float64(elapsed)) / float64(ops), nil
}

// ---- What is measured ----

// compare has all programs take turns, and adds a row.
func (b *bench) compare(m measurement, begin func(p *program) (*side, error)) error {
	var all []func() (*side, error)
	for _, p := range b.programs {
		all = append(all, func() (*side, error) { return begin(p) })
	}
	r, err := b.alternate(all...)
	if err != nil {
		return err
	}
	var others [][]float64
	for i := range b.programs[1:] {
		others = append(others, r.ratios(1+i, 0))
	}
	b.add(m, duration(quantile(r.of(0), 0.5)), others, times)
	return nil
}

func calling(k kind, connections int) func(*bench, measurement) error {
	return func(b *bench, m measurement) error {
		return b.compare(m, func(p *program) (*side, error) {
			return p.web(k, connections, toolCall(k == modern, "echo", `"text":"hello"`, ""), 1, saying("hello"))
		})
	}
}

func echoOfMiB(b *bench, m measurement) error {
	const line = `Any text will do as long as it has lines and a \"quotation\" now and then.\n`
	text := strings.Repeat(line, 1+1<<20/len(line))
	return b.compare(m, func(p *program) (*side, error) {
		return p.web(inSession, 1, toolCall(false, "echo", `"text":"`+text+`"`, ""), 1, saying(text))
	})
}

func progress(n, delay int) func(*bench, measurement) error {
	return func(b *bench, m measurement) error {
		return b.compare(m, func(p *program) (*side, error) {
			body := toolCall(false, "count", fmt.Sprintf(`"n":%d,"delayMs":%d`, n, delay), `"progressToken":"token"`)
			return p.web(events, 1, body, n, counting(n, p.name == "mcp-go")) // which is known to lose some
		})
	}
}

func initialize(b *bench, m measurement) error {
	return b.compare(m, func(p *program) (*side, error) {
		c, err := p.serve()
		if err != nil {
			return nil, err
		}
		l, err := newInitializing(c.addr, p.path(inSession))
		return &side{child: c, load: l}, err
	})
}

func lines(ahead int) func(*bench, measurement) error {
	return func(b *bench, m measurement) error {
		return b.compare(m, func(p *program) (*side, error) {
			c, err := p.start(p.server)
			if err != nil {
				return nil, err
			}
			l, err := newLineLoad(c, ahead)
			return &side{child: c, load: l}, err
		})
	}
}

// client measures the other end: the server is the same for all.
func client(b *bench, m measurement) error {
	server, err := b.programs[1].serve("-versions", legacyVersion)
	if err != nil {
		return err
	}
	defer server.stop()
	return b.compare(m, func(p *program) (*side, error) {
		c, err := p.start(p.client, "http://"+server.addr+"/mcp")
		return &side{child: c, load: clientLoad{child: c}}, err
	})
}

// manySessions compares each program with itself. The bare one has no sessions.
func manySessions(b *bench, m measurement) error {
	var all []func() (*side, error)
	for _, p := range b.programs[1:] {
		all = append(all, func() (*side, error) { return p.many(1) }, func() (*side, error) { return p.many(b.sessions) })
	}
	r, err := b.alternate(all...)
	if err != nil {
		return err
	}
	var others [][]float64
	for i := range b.programs[1:] {
		others = append(others, r.ratios(2*i+1, 2*i))
	}
	b.add(m, "–", others, times)
	return nil
}

// idleSession tells what sessions need while nothing happens: live heap, and goroutines.
func idleSession(b *bench, m measurement) error {
	var heap [][]float64
	for _, p := range b.programs[1:] {
		c, err := p.serve()
		if err != nil {
			return err
		}
		each, err := c.growth(b.sessions)
		c.stop()
		if err != nil {
			return err
		}
		heap = append(heap, []float64{each.heap})
		fmt.Fprintf(os.Stderr, "%s: %.1f goroutines for an idle session\n", p.name, each.goroutines)
	}
	b.add(m, "–", heap, func(n float64) string { return fmt.Sprintf("%.0f B", n) })
	return nil
}

// startUp starts the programs as they are, over stdio.
func startUp(b *bench, m measurement) error {
	var r results
	for range 3 * b.rounds {
		var turns []float64
		for _, p := range b.programs {
			cpu, err := p.answerOnce()
			if err != nil {
				return err
			}
			turns = append(turns, float64(cpu))
		}
		r = append(r, turns)
	}
	var others [][]float64
	for i := range b.programs[1:] {
		others = append(others, r.ratios(1+i, 0))
	}
	b.add(m, duration(quantile(r.of(0), 0.5)), others, times)
	return nil
}

// answerOnce returns the processor time that a program has used until its first answer.
func (p *program) answerOnce() (time.Duration, error) {
	cmd := exec.Command(p.plain)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	fmt.Fprintf(stdin, "%s\n", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+legacyParams+`}}`)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if !strings.Contains(line, `"serverInfo"`) {
		return 0, fmt.Errorf("%s: %q, %w", p.name, line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}
