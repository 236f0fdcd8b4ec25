package project

import (
	"go/ast"
	"go/format"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	if seen < 80 {
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

// The course names declarations with their files, such as `sse.go`: `stream.resume`, and sections of files, such as "Lines". Each is where the
// course says.
func TestCourseNamesPlaces(t *testing.T) {
	course := read(t, "testdata/README.md")
	declared := map[string][]string{}
	for _, file := range append(libraryFiles, "main.go") {
		for _, decl := range parse(t, file).Decls {
			switch decl := decl.(type) {
			case *ast.FuncDecl:
				name := decl.Name.Name
				if decl.Recv != nil {
					name = receiverOf(decl) + "." + name
				}
				declared[file] = append(declared[file], name)
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if spec, ok := spec.(*ast.TypeSpec); ok {
						declared[file] = append(declared[file], spec.Name.Name)
					}
				}
			}
		}
	}
	places := regexp.MustCompile("`([a-z]+\\.go)`: `([A-Za-z.]+)`").FindAllStringSubmatch(course, -1)
	for _, place := range places {
		if !slices.Contains(declared[place[1]], place[2]) {
			t.Errorf("%s has no %s", place[1], place[2])
		}
	}
	if len(places) != 38 {
		t.Errorf("%d places, and 38 lessons", len(places))
	}
	sections := 0
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z]+\\.go)` \\| (.*)$").FindAllStringSubmatch(course, -1) {
		for _, section := range regexp.MustCompile(`"([^"]+)"`).FindAllStringSubmatch(row[2], -1) {
			if text := read(t, row[1]); !strings.Contains(text, "\n// ---- "+section[1]+" ----\n") && !strings.Contains(text, "\n// "+section[1]+"\n") {
				t.Errorf("%s has no section %q", row[1], section[1])
			}
			sections++
		}
	}
	if sections < 12 {
		t.Errorf("%d sections", sections)
	}
}
