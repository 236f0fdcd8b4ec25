//go:build unix

package main

// Sides take turns in small slices, so that whatever else the machine does
// befalls all of them, and each round is compared with itself.

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// side is one of those that take turns.
type side struct {
	*child
	load
	idle float64 // processor time per time, of the child with nothing to do
}

func (s *side) close() {
	s.load.close()
	s.child.stop()
}

// slice is what a side has done in one turn.
type slice struct {
	cpu, rate float64 // nanoseconds per operation, operations per second
	took      []time.Duration
}

// results are the slices of each side, round by round.
type results [][]slice

// alternate has the sides take turns. The first round does not count.
func (b *bench) alternate(name string, sides []*side) (results, error) {
	var r results
	if err := b.idle(sides); err != nil {
		return nil, err
	}
	stop, err := b.profile(name, sides)
	if err != nil {
		return nil, err
	}
	for round := range b.rounds + 1 {
		turns := make([]slice, len(sides))
		for i := range sides {
			at := (i + round) % len(sides) // nobody always follows the same
			s, err := sides[at].turn(b.slice)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %w\n%s", name, sides[at].name, err, sides[at].said())
			}
			turns[at] = s
		}
		if round > 0 {
			r = append(r, turns)
		}
	}
	return r, stop()
}

// idle finds out what the children use up with nothing to do.
func (b *bench) idle(sides []*side) error {
	var errs []error
	used := func(s *side) time.Duration {
		d, err := s.cpu()
		errs = append(errs, err)
		return d
	}
	before := make([]time.Duration, len(sides))
	for i, s := range sides {
		before[i] = used(s)
	}
	begun := time.Now()
	time.Sleep(b.slice)
	for i, s := range sides {
		s.idle = float64(used(s)-before[i]) / float64(time.Since(begun))
	}
	return errors.Join(errs...)
}

func (s *side) turn(d time.Duration) (done slice, err error) {
	before, err := s.cpu()
	if err != nil {
		return done, err
	}
	begun := time.Now()
	ops, took, err := s.run(begun.Add(d))
	elapsed := time.Since(begun)
	if err != nil {
		return done, err
	}
	after, err := s.cpu()
	if err != nil {
		return done, err
	}
	if ops == 0 {
		return done, errors.New("nothing done")
	}
	done = slice{took: took, rate: float64(ops) / elapsed.Seconds(),
		cpu: (float64(after-before) - s.idle*float64(elapsed)) / float64(ops)}
	return done, s.settle()
}

// profile has each child write a profile of its processor time, if that is
// wanted.
func (b *bench) profile(name string, sides []*side) (stop func() error, err error) {
	if b.profiles == "" {
		return func() error { return nil }, nil
	}
	for i, s := range sides {
		file := strings.Map(func(r rune) rune {
			if strings.ContainsRune(" ,/:", r) {
				return '-'
			}
			return r
		}, fmt.Sprintf("%s.%s.%d.pprof", name, s.name, i))
		if said, err := s.ask("profile " + filepath.Join(b.profiles, file)); err != nil || said != "<nil>" {
			return nil, fmt.Errorf("%s: %s, %v", s.name, said, err)
		}
	}
	return func() (err error) {
		for _, s := range sides {
			_, failed := s.ask("profiled")
			err = errors.Join(err, failed)
		}
		return err
	}, nil
}

// median of a value of one side.
func (r results) median(at int, of func(slice) float64) float64 {
	var all []float64
	for _, round := range r {
		all = append(all, of(round[at]))
	}
	return quantile(all, 0.5)
}

// ratios compares two sides round by round.
func (r results) ratios(at, to int) (all []float64) {
	for _, round := range r {
		all = append(all, round[at].cpu/round[to].cpu)
	}
	return all
}

// latency is a quantile of all calls of a side.
func (r results) latency(at int, q float64) float64 {
	var all []float64
	for _, round := range r {
		for _, took := range round[at].took {
			all = append(all, float64(took))
		}
	}
	return quantile(all, q)
}

// quantile of what may come in any order.
func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}

// ---- The table ----

// group is a part of the table.
type group int

const (
	cpu group = iota
	throughput
	latency
	held
	rest
)

var headings = []string{"processor time; the others as multiples", "calls per second", "latency, median and 99th percentile",
	"memory; the others over the bare program's", "besides"}

// row is a line of the table: a figure of each program, in their order.
type row struct {
	group
	name  string
	cells []string

	mcpwire, low, high float64 // the figure of mcpwire, and its quartiles
	bound              float64 // it should be at most so much; 0: no bound
}

func (r *row) add(format string, args ...any) {
	r.cells = append(r.cells, fmt.Sprintf(format, args...))
}

// addRatio adds the median of ratios.
func (r *row) addRatio(p *program, ratios []float64) {
	middle := quantile(ratios, 0.5)
	r.add("%s×", digits(middle))
	if p.name == "mcpwire" {
		r.mcpwire, r.low, r.high = middle, quantile(ratios, 0.25), quantile(ratios, 0.75)
	}
}

func (b *bench) add(r row) {
	b.rows = append(b.rows, r)
	fmt.Fprintf(os.Stderr, "%s: %s: %s\n", headings[r.group], r.name, strings.Join(r.cells, ", "))
	if r.bound > 0 && !b.quick {
		verdict := "holds"
		if r.mcpwire > r.bound {
			verdict = "MISSED"
		}
		fmt.Fprintf(os.Stderr, "    %.3f (quartiles %.3f, %.3f), at most %g: %s\n", r.mcpwire, r.low, r.high, r.bound, verdict)
	}
}

func (b *bench) table() {
	slices.SortStableFunc(b.rows, func(x, y row) int { return int(x.group - y.group) })
	fmt.Printf("| %s |", b.about)
	for _, p := range b.programs {
		fmt.Printf(" %s |", p.name)
	}
	fmt.Printf("\n|%s\n", strings.Repeat(" --- |", 1+len(b.programs)))
	for i, r := range b.rows {
		if i == 0 || r.group != b.rows[i-1].group {
			fmt.Printf("| **%s** |%s\n", headings[r.group], strings.Repeat(" |", len(b.programs)))
		}
		fmt.Printf("| %s | %s |\n", r.name, strings.Join(r.cells, " | "))
	}
}

// digits tells three of them.
func digits(x float64) string {
	return strconv.FormatFloat(x, 'f', max(0, 2-int(math.Floor(math.Log10(math.Abs(x))))), 64)
}

func duration(ns float64) string {
	switch {
	case ns >= 1e9:
		return digits(ns/1e9) + " s"
	case ns >= 1e6:
		return digits(ns/1e6) + " ms"
	}
	return digits(ns/1e3) + " µs"
}
