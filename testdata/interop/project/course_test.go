package project

import (
	"go/ast"
	"go/format"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var libraryFiles = []string{"jsonrpc.go", "stdio.go", "session.go", "sse.go", "http.go"}

// documents are README.md, the course and the pages beside them.
func documents(t *testing.T) map[string]string {
	names, _ := filepath.Glob("testdata/*.md")
	texts := map[string]string{}
	for _, name := range append(names, "README.md", "testdata/first/README.md", "testdata/second/README.md", "testdata/cases/README.md", "testdata/interop/README.md") {
		text := read(t, name)
		texts[name] = text
	}
	return texts
}

// The links between the documents lead to files, and to headings that are there.
func TestLinks(t *testing.T) {
	texts, seen := documents(t), 0
	anchors := map[string][]string{}
	for name, text := range texts {
		for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(text, -1) {
			anchors[name] = append(anchors[name], anchor(heading[1]))
		}
	}
	for name, text := range texts {
		for _, link := range regexp.MustCompile(`\]\(([^)\s]+)\)`).FindAllStringSubmatch(text, -1) {
			if strings.Contains(link[1], "://") {
				continue
			}
			path, heading, hasHeading := strings.Cut(link[1], "#")
			file := name
			if path != "" {
				file = filepath.Join(filepath.Dir(name), path)
			}
			if _, err := os.Stat(file); err != nil {
				t.Errorf("%s: %v", name, err)
			} else if hasHeading && !slices.Contains(anchors[file], heading) {
				t.Errorf("%s: %s has no heading #%s", name, file, heading)
			}
			seen++
		}
	}
	if seen < 100 {
		t.Errorf("%d links", seen)
	}
}

// anchor returns what a link to a heading ends with.
func anchor(heading string) string {
	kept := regexp.MustCompile(`[^\p{L}\p{N}\- _]`).ReplaceAllString(strings.ToLower(heading), "")
	return strings.ReplaceAll(kept, " ", "-")
}

// The Go code in the documents is as gofmt has it, whether it is a whole file or a part of one.
func TestDocumentsAreFormatted(t *testing.T) {
	for name, text := range documents(t) {
		for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
			if formatted, err := format.Source([]byte(block[1])); err != nil || string(formatted) != block[1] {
				t.Errorf("%s: %v\n%s", name, err, formatted)
			}
		}
	}
}

// testdata/cases/README.md lists the goroutines of the library, each under the function that starts it, and the mutexes, each as TYPE.FIELD.
// Nothing else is there, and nothing is missing. A function that starts two goroutines has two rows.
func TestGoroutinesAndLocksAreListed(t *testing.T) {
	text := documents(t)["testdata/cases/README.md"]
	var goroutines, locks []string
	mutexes := 0
	for _, name := range libraryFiles {
		for _, d := range parse(t, name).Decls {
			if d, ok := d.(*ast.FuncDecl); ok {
				for range starts(d) {
					goroutines = append(goroutines, name+": "+functionName(d))
				}
			}
		}
		mutexes += inFiles(t, name, `(?m)^[^/\n]*\bsync\.(RW)?Mutex\b`, func(string, string) {})
	}
	for name, d := range declaredTypes(t) {
		for field, kind := range d.fields {
			if kind == "sync.Mutex" || kind == "sync.RWMutex" {
				locks = append(locks, d.file+": "+name+"."+field)
			}
		}
	}
	if mutexes != len(locks) {
		t.Errorf("%d mutexes, %d of them are fields of types", mutexes, len(locks))
	}
	sameRows(t, "started in", text, goroutines)
	sameRows(t, "lock", text, locks)
}

// starts returns the places in a function that start a goroutine: go statements, and calls of the method Go of a sync.WaitGroup.
func starts(d *ast.FuncDecl) (found []ast.Node) {
	ast.Inspect(d, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			found = append(found, n)
		case *ast.CallExpr:
			if method, ok := n.Fun.(*ast.SelectorExpr); ok && method.Sel.Name == "Go" {
				found = append(found, n)
			}
		}
		return true
	})
	return found
}

func functionName(d *ast.FuncDecl) string {
	if d.Recv == nil {
		return d.Name.Name
	}
	return receiverOf(d) + "." + d.Name.Name
}

// sameRows compares what is in the sources with the table of a text whose first column has this name. A row begins with a file and a
// name: | `stdio.go`: `lineConn.Write` |
func sameRows(t *testing.T, column, text string, want []string) {
	_, table, ok := strings.Cut(text, "\n| "+column+" |")
	if !ok {
		t.Errorf("there is no table with the column %q", column)
		return
	}
	table, _, _ = strings.Cut(table, "\n\n")
	var have []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.go)`: `([A-Za-z.]+)` \\|").FindAllStringSubmatch(table, -1) {
		have = append(have, row[1]+": "+row[2])
	}
	slices.Sort(have)
	slices.Sort(want)
	if !slices.Equal(have, want) {
		t.Errorf("the table of %q has\n%q\nand the sources have\n%q", column, have, want)
	}
}

// The head of a file says how far a newcomer reads: to the banner "NAME", so many lines. The number is right to within 25 lines, and
// that of all files together is at most 3,000. A file whose head has no such sentence is not checked.
func TestReadingPaths(t *testing.T) {
	path := regexp.MustCompile(`to the banner "([^"]+)": ([\d,]+) lines`)
	total := map[string]int{}
	for _, name := range append(slices.Clone(libraryFiles), "main.go") {
		source := read(t, name)
		head, _, _ := strings.Cut(source, "\nimport (")
		said := path.FindStringSubmatch(strings.ReplaceAll(head, "\n// ", " "))
		if said == nil {
			t.Logf("%s: its head does not say how far to read", name)
			continue
		}
		parts := regexp.MustCompile(`(?m)^// (====|----) `+regexp.QuoteMeta(said[1])+` (====|----)$`).Split(source, 2)
		lines, _ := strconv.Atoi(strings.ReplaceAll(said[2], ",", ""))
		if n := strings.Count(parts[0], "\n"); len(parts) != 2 || max(n-lines, lines-n) > 25 {
			t.Errorf("%s: its head says %s, and it has %d lines before that banner (it is there: %v)", name, said[0], n, len(parts) == 2)
		}
		total[name] = lines
	}
	sum := 0
	for n := range maps.Values(total) {
		sum += n
	}
	if t.Logf("%d lines: %v", sum, total); sum > 3000 {
		t.Errorf("a newcomer reads %d lines", sum)
	}
}
