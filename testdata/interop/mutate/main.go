//go:build unix

// Mutate takes protections and rules out of the five files of the library, one
// at a time, and sees whether the tests notice. It runs in testdata/interop:
//
//	go run ./mutate                 draw 150 mutations and run the tests with each
//	go run ./mutate -list           print the draw, and run nothing
//	go run ./mutate -only REGEXP    run again what matches, such as http.go/readEvents
//	go run ./mutate -summary        print the summary of what has run so far
//
// A mutation runs in a copy of the module, so the checkout stays as it is. Each
// result is added to a file of JSON lines. What has a result there is not run
// again, so a run can be stopped and continued.
//
// operators.go has the operators: what is taken out, and where. tests.go has the
// stages: the tests that a mutation must get past. survivors.md has the
// mutations that no test can notice, each with the reason.
package main

import (
	"bufio"
	"cmp"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// libraryFiles are the files that are mutated, in the order of the enumeration.
var libraryFiles = []string{"jsonrpc.go", "stdio.go", "http.go", "sse.go", "session.go"}

// moduleRoot is the folder of the library, as seen from testdata/interop.
var moduleRoot = filepath.Join("..", "..")

func main() {
	log.SetFlags(0)
	log.SetPrefix("mutate: ")
	seed := flag.Uint64("seed", 1, "draw with this seed")
	n := flag.Int("n", 150, "how many mutations to draw")
	workers := flag.Int("p", 1, "how many mutations to run at a time")
	flag.IntVar(&slowness, "slow", 1, "how many times as long as usual the tests may take, on a machine with much to do")
	path := flag.String("results", "mutations.jsonl", "the `file` of results")
	list := flag.Bool("list", false, "print the draw, and run nothing")
	summary := flag.Bool("summary", false, "print the summary of the results, and run nothing")
	only := flag.String("only", "", "run the mutations of the draw whose id matches this `regexp`, even if they have a result")
	flag.Parse()
	again, err := regexp.Compile(*only)
	if err != nil {
		log.Fatal(err)
	}
	lib, err := loadLibrary(moduleRoot)
	if err != nil {
		log.Fatal(err)
	}
	drawn := draw(lib, *seed, *n)
	results, err := readResults(*path)
	if err != nil {
		log.Fatal(err)
	}
	if *list {
		for _, m := range drawn {
			fmt.Printf("%s:%d\t%s\n\t- %s\n\t+ %s\n", m.File, m.Line, m.ID, m.Before, m.After)
		}
		return
	}
	if !*summary {
		waiting := slices.DeleteFunc(slices.Clone(drawn), func(m *mutation) bool {
			_, hasRun := results[m.ID]
			return *only == "" && hasRun || *only != "" && !again.MatchString(m.ID)
		})
		// In any order, so that a run that is stopped is a sample of all files.
		random := rand.New(rand.NewPCG(*seed, 0))
		random.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
		if err := runAll(lib, waiting, *workers, *path, results); err != nil {
			log.Fatal(err)
		}
	}
	explained, err := readExplained(filepath.Join("mutate", "survivors.md"))
	if err != nil {
		log.Fatal(err)
	}
	printSummary(drawn, results, explained)
}

// draw returns n mutations that compile. Each file gets a share in proportion to
// the number of its candidates. Within a file the order is random: a candidate
// that does not compile is replaced by the next one in this order.
func draw(lib *library, seed uint64, n int) []*mutation {
	candidates := make(map[string][]*mutation)
	total := 0
	for _, name := range libraryFiles {
		candidates[name] = lib.candidates(name)
		total += len(candidates[name])
	}
	var drawn []*mutation
	before := 0 // candidates of the files before this one
	for i, name := range libraryFiles {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		share := (before+len(candidates[name]))*n/total - before*n/total
		before += len(candidates[name])
		for _, k := range random.Perm(len(candidates[name])) {
			if share == 0 {
				break
			}
			if m := candidates[name][k]; lib.compiles(m) {
				drawn = append(drawn, m)
				share--
			}
		}
	}
	return drawn
}

// result is what came of one mutation. It is one line of the file of results.
type result struct {
	ID      string  `json:"id"`
	Stage   string  `json:"stage,omitempty"` // that noticed the mutation; empty: it has survived
	Test    string  `json:"test,omitempty"`  // the first that failed
	Seconds float64 `json:"seconds"`
}

// readResults reads the file of results, which need not exist. If a mutation has
// several results, the last one counts.
func readResults(path string) (map[string]result, error) {
	results := make(map[string]result)
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return results, nil
	}
	if err != nil {
		return nil, err
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		results[r.ID] = r
	}
	return results, lines.Err()
}

// runAll runs the tests with each mutation, several at a time, and adds the
// results to the file and to the map. It begins with the mutation that changes
// nothing, if that has no result: no test may fail with it.
func runAll(lib *library, waiting []*mutation, workers int, path string, results map[string]result) error {
	if len(waiting) == 0 {
		return nil
	}
	file, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o666)
	if err != nil {
		return err
	}
	defer file.Close()
	var mu sync.Mutex // guards file, results and failed
	var failed error
	note := func(m *mutation, r result, err error) {
		mu.Lock()
		defer mu.Unlock()
		if err == nil {
			results[r.ID] = r
			err = json.NewEncoder(file).Encode(r)
		}
		failed = cmp.Or(failed, err)
		fmt.Printf("%-8s %4.0f s  %s  %s\n", cmp.Or(r.Stage, "SURVIVED"), r.Seconds, r.ID, r.Test)
	}
	if _, hasRun := results[unchanged.ID]; !hasRun {
		r, err := runOne(lib, unchanged)
		note(unchanged, r, err)
		if r.Stage != "" {
			return fmt.Errorf("%s fails without a mutation", r.Test)
		}
	}
	queue := make(chan *mutation)
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for m := range queue {
				r, err := runOne(lib, m)
				note(m, r, err)
			}
		})
	}
	for _, m := range waiting {
		queue <- m
	}
	close(queue)
	group.Wait()
	return failed
}

// readExplained returns the ids in survivors.md: of the mutations that no test
// can notice. Each begins a line of its own, as - `id`.
func readExplained(path string) (map[string]bool, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	explained := make(map[string]bool)
	for _, match := range regexp.MustCompile("(?m)^- `([^`]+)`").FindAllStringSubmatch(string(text), -1) {
		explained[match[1]] = true
	}
	return explained, nil
}

// tally counts the mutations of one operator, or of one file.
type tally struct{ run, noticed, explained int }

func (t tally) String() string {
	return fmt.Sprintf("%3d run, %3d noticed, %2d survived with a reason, %2d survived", t.run, t.noticed, t.explained, t.run-t.noticed-t.explained)
}

// printSummary prints how many mutations were noticed, and the survivors.
func printSummary(drawn []*mutation, results map[string]result, explained map[string]bool) {
	counts := make(map[string]*tally)
	noticedBy := make(map[string]int)
	count := func(name string, r result) {
		if counts[name] == nil {
			counts[name] = new(tally)
		}
		counts[name].run++
		if r.Stage != "" {
			counts[name].noticed++
		} else if explained[r.ID] {
			counts[name].explained++
		}
	}
	var survivors strings.Builder
	for _, m := range drawn {
		r, hasRun := results[m.ID]
		if !hasRun {
			continue
		}
		count("all", r)
		count(m.File, r)
		count(m.Operator, r)
		noticedBy[r.Stage]++
		if r.Stage == "" && !explained[m.ID] {
			fmt.Fprintf(&survivors, "%s:%d\t%s\n\t- %s\n\t+ %s\n", m.File, m.Line, m.ID, m.Before, m.After)
		}
	}
	fmt.Println()
	names := slices.Concat([]string{"all"}, libraryFiles, operatorNames)
	for _, name := range names {
		if counts[name] != nil {
			fmt.Printf("%-12s %v\n", name, *counts[name])
		}
	}
	for _, s := range stages {
		fmt.Printf("noticed by %-8s %3d\n", s.name, noticedBy[s.name])
	}
	if all := counts["all"]; all != nil {
		fmt.Printf("share noticed: %.1f %%\n", 100*float64(all.noticed)/float64(all.run))
	}
	if survivors.Len() > 0 {
		fmt.Printf("\nSurvivors:\n%s", survivors.String())
	}
}
