package interop

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// The exercises of the lessons, as a reader runs them. Each lesson ends with "Try it:", lines of a shell that are indented, and "You
// see:". What stands there between back quotes must be in what the lines print, in this order or in another. A first line that starts a
// server over HTTP runs in the background. The program is built already, and the server takes a free port. The exercises run before the
// tests that are parallel, which measure time.
func TestExercises(t *testing.T) {
	for _, name := range lessonNames(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile("../" + name + ".md")
			if err != nil {
				t.Fatal(err)
			}
			script, seen := exercise(t, string(text))
			out := run(t, nil, "", "sh", "-c", "cd '"+t.TempDir()+"'\n"+script)
			if out.exit == 2 {
				t.Error("a command line is wrong")
			}
			for _, want := range seen {
				if !strings.Contains(out.stdout+out.stderr, want) {
					t.Errorf("it does not print %s", want)
				}
			}
		})
	}
}

var (
	indented = regexp.MustCompile(`(?m)^    (.*\n)`)
	quoted   = regexp.MustCompile("`([^`]+)`")
)

// exercise returns the script of a lesson, and what it prints.
func exercise(t *testing.T, lesson string) (script string, seen []string) {
	_, last, _ := strings.Cut(lesson, "\nTry it: ")
	for _, m := range indented.FindAllStringSubmatch(last, -1) {
		script += m[1]
	}
	if flags, rest, ok := strings.Cut(strings.TrimPrefix(script, "go run . -http :8080"), "\n"); ok && len(flags)+len(rest)+1 < len(script) {
		script = strings.ReplaceAll(rest, "http://localhost:8080", serve(t, strings.Fields(flags)...).base)
	}
	script = strings.ReplaceAll(script, "go run .", mcpwire)
	_, see, _ := strings.Cut(last, "\nYou see: ")
	for _, m := range quoted.FindAllStringSubmatch(strings.ReplaceAll(see, "\n", " "), -1) {
		seen = append(seen, m[1])
	}
	if script == "" || len(seen) == 0 {
		t.Fatal("a lesson has an exercise, and says what one sees")
	}
	return script, seen
}

// The index of the course, ../README.md, has the lessons in the order of their numbers, each with its title. A lesson says below its title what one
// learns there, and at its end which one is next.
func TestCourse(t *testing.T) {
	index, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile(`(?m)^\| \[(\d\d)\]\((\d\d)(-[a-z0-9-]+)\.md\) \| (.*?) \|`).FindAllStringSubmatch(string(index), -1)
	lessons := lessonNames(t)
	if len(rows) != len(lessons) {
		t.Fatalf("%d rows, and %d lessons", len(rows), len(lessons))
	}
	for i, row := range rows {
		number, name, title := row[1], row[2]+row[3], row[4]
		text, err := os.ReadFile("../" + name + ".md")
		if err != nil || name != lessons[i] || number != row[2] || number != fmt.Sprintf("%02d", i+1) {
			t.Errorf("row %d has %s as %s, and the files have %s: %v", i+1, name, number, lessons[i], err)
			continue
		}
		if want := "# " + title + "\n\nYou learn: "; !strings.HasPrefix(string(text), want) {
			t.Errorf("%s does not begin with %s", name, want)
		}
		if i+1 < len(rows) {
			if next := "\nNext: " + rows[i+1][1] + ", " + rows[i+1][4] + "\n"; !strings.HasSuffix(string(text), next) {
				t.Errorf("%s does not end with%s", name, next)
			}
		}
	}
}

// The pictures of the README are mermaid, which the pages of hosts draw. What mermaid cannot parse, they show as an error.
func TestDiagrams(t *testing.T) {
	node := script(t, "mermaid/dist/mermaid.core.mjs")[0]
	out := run(t, nil, "", node, "mermaid.mjs", "../../README.md")
	if out.exit != 0 || strings.TrimSpace(out.stdout) != "5" {
		t.Errorf("%s%s", out.stdout, out.stderr)
	}
}
