//go:build unix

// Bench compares what the same calls cost with mcpwire, mcp-go, the Go SDK and a bare program that does the least that can be done. All take
// turns within one run, so that only ratios have to be trusted, not times.
//
//	go run ./bench             everything, some minutes; the table is Markdown
//	go run ./bench -quick      whether it runs and all answers are right
//	go run ./bench -only echo  the rows whose names match
//	go run ./bench -before DIR with a column for mcpwire in another checkout
//
// What is compared is in this file, in the order of the table. What programs are put under is in load.go, and how they are built and started
// in process.go.
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
}

// measurement is one row. At most so many times what the bare program uses should mcpwire use.
type measurement struct {
	name string
	most float64
	run  func(b *bench) figures
}

// figures are those of a row: of the bare program, and in each round those of the others.
type figures struct {
	bare   string
	others [][]float64
	format func(float64) string
}

var measurements = []measurement{
	{"a call over HTTP, 2025-11-25, 1 connection", 1.5, compare(calls(inSession, 1))},
	{"a call over HTTP, 2025-11-25, 64 connections", 2.3, compare(calls(inSession, 64))},
	{"a call over HTTP, 2026-07-28, 1 connection", 1.5, compare(calls(modern, 1))},
	{"a call over HTTP, 2026-07-28, 64 connections", 2.3, compare(calls(modern, 64))},
	{"`initialize`", 2.4, compare(initialize)},
	{"echo of 1 MiB", 3.5, compare(echoOfMiB)},
	{"a progress event, one a millisecond", 1.4, compare(progress(50, 1))},
	{"a progress event, back to back", 2, compare(progress(500, 0))},
	{"a call over stdio, one after another", 1.6, compare(lines(1))},
	{"a call over stdio, 64 under way", 5, compare(lines(64))},
	{"a call, as a client", 1.3, compare(client)},
	{"a call with many sessions, against one with one session", 1.2, manySessions},
	{"memory of an idle session", 2400, idleSession},
	{"start-up and the first answer", 1.25, startUp},
}

func main() {
	log.SetFlags(0)
	b := &bench{programs: programs(), slice: 150 * time.Millisecond, sessions: 10_000}
	before := flag.String("before", "", "compare with mcpwire as it is in another checkout as well, a `directory`; go run ./copywire runs there")
	only := flag.String("only", ".", "measure what matches this `regexp`")
	flag.IntVar(&b.rounds, "rounds", 21, "how often each side takes its turn")
	quick := flag.Bool("quick", false, "only see that everything runs and answers are right")
	flag.Parse()
	if *before != "" {
		b.programs = slices.Insert(b.programs, 2, &program{name: "before", checkout: *before})
	}
	if *quick {
		b.rounds, b.slice, b.sessions = 1, 20*time.Millisecond, 100
	}
	b.run(regexp.MustCompile(*only))
}

func (b *bench) run(chosen *regexp.Regexp) {
	out := must(os.MkdirTemp("", "bench"))
	defer func() { // with the programs stopped that were under way
		failed := recover()
		os.RemoveAll(out)
		if failed != nil {
			log.Fatal(failed)
		}
	}()
	module := must(exec.Command("go", "env", "GOMOD").Output())
	for _, p := range b.programs {
		p.build(filepath.Dir(string(module)), out)
	}
	table := fmt.Sprintf("| %s, %s, %d cores |", time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU())
	for _, p := range b.programs {
		table += " " + p.name + " |"
	}
	table += "\n|" + strings.Repeat(" --- |", 1+len(b.programs))
	for _, m := range measurements {
		if chosen.MatchString(m.name) {
			log.SetPrefix(m.name + ": ")
			table += "\n| " + strings.Join(b.cells(m, m.run(b)), " | ") + " |"
		}
	}
	fmt.Println(table)
}

// must returns what is there. An error ends the run.
func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

// cells makes a row of figures. Of mcpwire's it also shows the quartiles, and what they should be.
func (b *bench) cells(m measurement, found figures) []string {
	cells := []string{m.name, found.bare}
	for i, p := range b.programs[1:] {
		all := found.others[i]
		cells = append(cells, found.format(quantile(all, 0.5)))
		if p.name == "mcpwire" {
			log.Printf("mcpwire %.3f (quartiles %.3f, %.3f), should be at most %g",
				quantile(all, 0.5), quantile(all, 0.25), quantile(all, 0.75), m.most)
		}
	}
	return cells
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
	turn func() (each float64) // processor time of an operation, in nanoseconds
	stop func()
}

// under puts a child under a load. run makes calls until then, and returns how many operations that were; settle undoes what is left over,
// outside of what is measured.
func (c *child) under(slice time.Duration, run func(until time.Time) (ops int, err error), settle func() error) side {
	before := c.ask("cpu")
	time.Sleep(slice)
	idle := (c.ask("cpu") - before) / float64(slice) // processor time per time, with nothing to do
	turn := func() float64 {
		before, begun := c.ask("cpu"), time.Now()
		ops, err := run(begun.Add(slice))
		elapsed := time.Since(begun)
		after := c.ask("cpu")
		if err := errors.Join(err, settle()); err != nil || ops == 0 {
			panic(fmt.Errorf("%s: %d operations, %v\n%s", c.name, ops, err, c.said()))
		}
		return (after - before - idle*float64(elapsed)) / float64(ops)
	}
	return side{turn, c.stop}
}

// nothing is left over.
func nothing() error { return nil }

// rounds are the figures of all sides, in each round.
type rounds [][]float64

// alternate has sides take turns, and ends them. The first round does not count.
func (b *bench) alternate(begin []func() side) (r rounds) {
	var sides []side
	defer func() {
		for _, s := range sides {
			s.stop()
		}
	}()
	for _, begin := range begin {
		sides = append(sides, begin())
	}
	for round := range b.rounds + 1 {
		turns := make([]float64, len(sides))
		for i := range sides {
			at := (i + round) % len(sides) // nobody always follows the same
			turns[at] = sides[at].turn()
		}
		if round > 0 {
			r = append(r, turns)
		}
	}
	return r
}

// column returns the figures of a side, as multiples of those of another; -1: as they are.
func (r rounds) column(at, of int) (all []float64) {
	for _, turns := range r {
		unit := 1.0
		if of >= 0 {
			unit = turns[of]
		}
		all = append(all, turns[at]/unit)
	}
	return all
}

// compare has all programs take turns.
func compare(begin func(b *bench, p *program) side) func(*bench) figures {
	return func(b *bench) figures {
		var sides []func() side
		for _, p := range b.programs {
			sides = append(sides, func() side { return begin(b, p) })
		}
		r := b.alternate(sides)
		found := figures{bare: duration(quantile(r.column(0, -1), 0.5)), format: times}
		for i := range b.programs[1:] {
			found.others = append(found.others, r.column(1+i, 0))
		}
		return found
	}
}

// ---- What is measured ----

func calls(k kind, connections int) func(*bench, *program) side {
	return func(b *bench, p *program) side {
		return b.web(p, k, connections, connections, toolCall(k, "echo", `"text":"hello"`), 1, saying("hello"))
	}
}

func echoOfMiB(b *bench, p *program) side {
	const line = `Any text will do as long as it has lines and a \"quotation\" now and then.\n`
	text := strings.Repeat(line, 1+1<<20/len(line))
	return b.web(p, inSession, 1, 1, toolCall(inSession, "echo", `"text":"`+text+`"`), 1, saying(text))
}

func progress(n, delay int) func(*bench, *program) side {
	return func(b *bench, p *program) side {
		mayLose := p.name == "mcp-go" // which is known to lose some
		return b.web(p, events, 1, 1, toolCall(events, "count", fmt.Sprintf(`"n":%d,"delayMs":%d`, n, delay)), n, counting(n, mayLose))
	}
}

// initialize begins sessions, which are ended between the slices.
func initialize(b *bench, p *program) side {
	c := p.serve()
	conn := c.dial()
	path := p.path(inSession)
	hello := newCall(post(path, "", initializeCall), 1, containing(`"serverInfo"`))
	var sessions []string
	begin := func(until time.Time) (ops int, err error) {
		for ; time.Now().Before(until); ops++ {
			session, err := conn.do(hello)
			if err != nil {
				return ops, err
			}
			sessions = append(sessions, session)
		}
		return ops, nil
	}
	end := func() error {
		for _, id := range sessions {
			if _, err := conn.exchange([]byte("DELETE " + path + " HTTP/1.1\r\nHost: 127.0.0.1\r\n" + headers(inSession, id) + "\r\n")); err != nil {
				return err
			}
		}
		sessions = nil
		return nil
	}
	return c.under(b.slice, begin, end)
}

// client measures the other end: each has a server of mcpwire, and calls by itself.
func client(b *bench, p *program) side {
	server := b.programs[1].serve("-versions", legacyVersion)
	c := p.start(p.client, "http://"+server.addr+"/mcp")
	s := c.under(b.slice, func(until time.Time) (ops int, err error) {
		fmt.Fprintln(c.stdin, time.Until(until))
		_, err = fmt.Fscanln(c.stdout, &ops)
		return ops, err
	}, nothing)
	s.stop = func() {
		c.stop()
		server.stop()
	}
	return s
}

// manySessions compares each program with itself. The bare one has no sessions.
func manySessions(b *bench) figures {
	var sides []func() side
	for _, p := range b.programs[1:] {
		for _, sessions := range []int{1, b.sessions} {
			sides = append(sides, func() side {
				return b.web(p, inSession, 16, sessions, toolCall(inSession, "echo", `"text":"hello"`), 1, saying("hello"))
			})
		}
	}
	r := b.alternate(sides)
	found := figures{bare: "–", format: times}
	for i := range b.programs[1:] {
		found.others = append(found.others, r.column(2*i+1, 2*i))
	}
	return found
}

// idleSession tells what sessions need of the heap while nothing happens. A few are begun before, as the first ones cost more.
func idleSession(b *bench) figures {
	found := figures{bare: "–", format: func(n float64) string { return fmt.Sprintf("%.0f B", n) }}
	for _, p := range b.programs[1:] {
		c := p.serve()
		defer c.stop()
		c.open(p.path(inSession), 10)
		before := c.ask("memory")
		c.open(p.path(inSession), b.sessions)
		found.others = append(found.others, []float64{(c.ask("memory") - before) / float64(b.sessions)})
	}
	return found
}

// startUp starts programs over stdio, which takes so short that there are more rounds.
func startUp(b *bench) figures {
	more := *b
	more.rounds *= 3
	return compare(func(_ *bench, p *program) side { return side{p.answerOnce, func() {}} })(&more)
}

// answerOnce returns the processor time that a program has used until its first answer.
func (p *program) answerOnce() float64 {
	cmd := exec.Command(p.server)
	stdin, stdout := must(cmd.StdinPipe()), must(cmd.StdoutPipe())
	check(cmd.Start())
	fmt.Fprintln(stdin, initializeCall)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	cmd.Process.Kill()
	cmd.Wait()
	if !strings.Contains(line, `"serverInfo"`) {
		panic(fmt.Errorf("%s: %q, %v", p.name, line, err))
	}
	return float64(cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime())
}
