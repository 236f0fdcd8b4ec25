package project

import (
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
