package interop

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"interop/shared"
)

// The lessons of ../*.txtar, which both ends of mcpwire keep to, are played here at the servers of
// others. What one of them does otherwise stands in a file of lessons/, with the reason: a
// difference that is not explained, or one that has gone, is an error.
func TestLessons(t *testing.T) {
	t.Parallel()
	player := filepath.Join(t.TempDir(), "player.exe")
	if err := shared.Go("../..", "test", "-c", "-o", player, "."); err != nil {
		t.Fatal(err)
	}
	const ( // a lesson for a server with flags is played only if the flags are spelled otherwise
		guarded     = `$ mcpwire -http :8080 -token=>#`
		legacy      = `$ mcpwire -http :8080 -versions=>#`
		sessionless = `$ mcpwire -http :8080 -stateless=>#`
		quicker     = `"delayMs":5000=>"delayMs":200`
	)
	ours := serve(t).base
	sdk := startGo(t, goSDKServer, "", "lessons")
	stateless := startGo(t, goSDKServer, "", "lessons")
	everything, everythingSSE := startEverything(t, "streamableHttp"), startEverything(t, "sse")
	for _, test := range []struct {
		name     string
		url, sse string // for Streamable HTTP, for HTTP+SSE
		spell    []string
	}{
		{"mcpwire", ours + "/mcp", ours, []string{quicker}},
		{"gosdk", sdk + "/mcp", sdk, []string{guarded, legacy, quicker}},
		{"gosdk-stateless", stateless + "/stateless", stateless, []string{sessionless}},
		{"everything", everything + "/mcp", everythingSSE, []string{guarded, legacy,
			`"text":"hello=>"message":"hello`,
			`"name":"count","arguments":{"n":2}=>` +
				`"name":"trigger-long-running-operation","arguments":{"duration":2,"steps":2}`,
			`"name":"ask"=>"name":"trigger-elicitation-request"`}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			told, unplayed := explained(t, "lessons/"+test.name+".txt")
			spell := strings.Join(test.spell, ";")
			found := play(t, player, "-target", test.url, "-spell", spell,
				"-test.run", "TestTranscripts", "-test.skip", lessons(slices.Concat(unplayed, overSSE)))
			found = append(found, play(t, player, "-target", test.sse, "-spell", spell,
				"-test.run", lessons(overSSE), "-test.skip", lessons(unplayed))...)
			for _, difference := range found {
				if !slices.Contains(told, difference) && !slices.Contains(told, difference+sometimes) {
					t.Errorf("unexplained: %s", difference)
				}
			}
			for _, difference := range told {
				if !slices.Contains(found, difference) && !strings.HasSuffix(difference, sometimes) {
					t.Errorf("gone: %s", difference)
				}
			}
		})
	}
}

// sometimes ends a difference that a race in the server decides.
const sometimes = " (sometimes)"

// overSSE are the lessons for the transport of 2024-11-05, which server-everything serves as
// another process.
var overSSE = []string{"29-http-oldest-transport", "38-http-find-oldest-transport"}

// lessons returns the pattern for those with these names.
func lessons(names []string) string { return "TestTranscripts/^(" + strings.Join(names, "|") + ")$" }

var (
	lessonLine     = regexp.MustCompile(`^=== RUN   TestTranscripts/(.*)$`)
	reportLine     = regexp.MustCompile(`^ +main_test\.go:\d+: (.*)$`)
	differenceLine = regexp.MustCompile(`^(not there:|instead:  ) [A-Z]+: .`)
)

// play plays lessons, and returns the differences: the name of the lesson, and the line.
func play(t *testing.T, player string, args ...string) (found []string) {
	cmd := exec.Command(player, append(args, "-test.v", "-test.timeout", limit.String())...)
	cmd.Dir = "../.."
	out, err := cmd.CombinedOutput()
	t.Logf("%v: %v\n%s", cmd, err, out)
	if !regexp.MustCompile(`(?m)^--- (PASS|FAIL): TestTranscripts `).Match(out) {
		t.Fatal("not played")
	}
	lesson := ""
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSuffix(line, "\n")
		if m := lessonLine.FindStringSubmatch(line); m != nil {
			lesson = m[1]
		} else if m := reportLine.FindStringSubmatch(line); m != nil && differenceLine.MatchString(m[1]) {
			found = append(found, lesson+": "+m[1])
		} else if m != nil && m[1] != "not over HTTP" {
			t.Errorf("%s: %s", lesson, m[1])
		}
	}
	return found
}

// explained reads a file of lessons/: under "## LESSON" the differences, as they are reported, each
// followed by its reason, which is indented; one reason may do for several. Under
// "## LESSON: not played" there is the reason for that.
func explained(t *testing.T, file string) (differences, unplayed []string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for _, part := range strings.Split(string(text), "\n## ")[1:] {
		name, body, _ := strings.Cut(part, "\n")
		lesson, left := strings.CutSuffix(name, ": not played")
		if left {
			unplayed = append(unplayed, lesson)
		}
		if _, err := os.Stat("../" + lesson + ".txtar"); err != nil {
			t.Errorf("%s: %v", file, err)
		}
		reason := false
		for line := range strings.Lines(body) {
			line = strings.TrimSuffix(line, "\n")
			if line == "" {
				continue
			}
			reason = strings.HasPrefix(line, "  ")
			if differenceLine.MatchString(line) && !left {
				differences = append(differences, lesson+": "+line)
			} else if !reason {
				t.Errorf("%s: %s: what is %q?", file, name, line)
			}
		}
		if !reason {
			t.Errorf("%s: %s: no reason at the end", file, name)
		}
	}
	return differences, unplayed
}
