package interop

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// sets are what the conformance suite requires of one side in one revision.
var sets = []struct {
	side, revision string
	scored         int      // so many scenarios are required
	others         []string // the suite runs them without scoring them; here they have to pass as well
}{
	{"server", "2025-11-25", 30, []string{"server-session-lifecycle", "server-sse-polling", "json-schema-2020-12"}},
	{"server", "2026-07-28", 37, []string{"http-header-validation", "http-custom-header-server-validation", "json-schema-2020-12"}},
}

// targets start what the suite is to try, once for all sets of a side, and return the flags that name it.
var targets = map[string]func(t *testing.T, fixtures string) (flags []string){"server": serveFixtures}

// TestConformance runs the suite against the fixtures in mcpwire's compiled test binary, MCPWIRE_CONFORMANCE_RUNS times or until something
// fails: all sets in turn, against the same process. What passes for the suite is not enough: it overlooks warnings, and scenarios that
// assert nothing.
func TestConformance(t *testing.T) {
	runs, err := strconv.Atoi(cmp.Or(os.Getenv("MCPWIRE_CONFORMANCE_RUNS"), "1"))
	if err != nil || runs < 1 {
		t.Fatalf("MCPWIRE_CONFORMANCE_RUNS=%s", os.Getenv("MCPWIRE_CONFORMANCE_RUNS"))
	}
	suite := script(t, "@modelcontextprotocol/conformance/dist/index.js")
	fixtures := filepath.Join(t.TempDir(), "fixtures.test")
	if run(t, nil, "", "go", "test", "-C", "../..", "-c", "-o", fixtures, ".").exit != 0 {
		t.Fatal("the fixtures do not build")
	}
	target := map[string][]string{}
	for side, start := range targets {
		target[side] = start(t, fixtures)
	}
	type total struct {
		runs, scenarios, checks int
		took                    time.Duration
	}
	totals := make([]total, len(sets))
	for range runs {
		for i, set := range sets {
			t.Run(set.side+"/"+set.revision, func(t *testing.T) {
				names := scored(t, set.side, set.revision)
				if len(names) != set.scored {
					t.Fatalf("%d scenarios are scored, not %d: %q", len(names), set.scored, names)
				}
				dir := t.TempDir()
				out := run(t, nil, "", slices.Concat(suite, []string{set.side}, target[set.side],
					[]string{"--requirements", set.revision, "--timeout", "15000", "-o", dir})...)
				if out.exit != 0 {
					t.Errorf("the suite ends with %d", out.exit)
				}
				sum := &totals[i]
				sum.runs++
				sum.took += out.took
				for _, name := range slices.Concat(names, set.others) {
					good, bad := judge(filepath.Join(dir, strings.TrimPrefix(set.side+"-", "client-")+name))
					sum.checks += good
					if bad == nil {
						sum.scenarios++
					} else {
						t.Errorf("%s: %s", name, strings.Join(bad, "\n\t"))
					}
				}
			})
		}
		if t.Failed() {
			break
		}
	}
	for i, set := range sets {
		sum := totals[i]
		t.Logf("%s %s: %d of %d scenarios (%d scored) passed, with %d checks, in %d of %d runs and %v", set.side, set.revision,
			sum.scenarios, sum.runs*(set.scored+len(set.others)), sum.runs*set.scored, sum.checks, sum.runs, runs,
			sum.took.Round(time.Millisecond))
	}
}

// scored returns the scenarios that the suite's list for a revision has for one side.
func scored(t *testing.T, side, revision string) []string {
	t.Helper()
	text, err := os.ReadFile("node_modules/@modelcontextprotocol/conformance/requirements/" + revision + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\n"+side+":\n  - ")
	list, _, _ = strings.Cut(list, "\n\n")
	return strings.Split(list, "\n  - ")
}

// judge reads what the suite has left behind of a scenario: how many checks succeeded, and what is wrong. There has to be a success, other
// than wire-schema-valid, which the suite's own messages earn as well; and besides successes there may be information, nothing else.
func judge(prefix string) (good int, bad []string) {
	files, _ := filepath.Glob(prefix + "-20??-??-??T*Z/checks.json")
	if len(files) != 1 {
		return 0, []string{fmt.Sprintf("%d results", len(files))}
	}
	var checks []struct{ ID, Status, Description, ErrorMessage string }
	text, _ := os.ReadFile(files[0])
	if err := json.Unmarshal(text, &checks); err != nil {
		return 0, []string{err.Error()}
	}
	asserted := false
	for _, c := range checks {
		switch c.Status {
		case "INFO":
		case "SUCCESS":
			good++
			asserted = asserted || c.ID != "wire-schema-valid"
		default: // FAILURE, WARNING, SKIPPED
			bad = append(bad, fmt.Sprintf("%s %s: %s", c.Status, c.ID, cmp.Or(c.ErrorMessage, c.Description)))
		}
	}
	if !asserted && bad == nil {
		bad = []string{fmt.Sprintf("nothing is asserted in %d checks", len(checks))}
	}
	return good, bad
}

// serveFixtures starts the fixtures on a port that was free just now. In the end they get SIGTERM, and have to exit with 0.
func serveFixtures(t *testing.T, fixtures string) (flags []string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := listener.Addr().String()
	listener.Close()
	var output bytes.Buffer
	cmd := exec.CommandContext(t.Context(), fixtures) // a context that ends before the cleanup
	cmd.Env = append(os.Environ(), "MCPWIRE_FIXTURES="+addr)
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second // then it is killed
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	t.Cleanup(func() {
		err := <-ended
		if !cmd.ProcessState.Success() {
			t.Errorf("the end of the fixtures: %v, %v\n%s", cmd.ProcessState, err, &output)
		}
	})
	eventually(t, "the fixtures listen on "+addr, func() bool {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			conn.Close()
		}
		return err == nil
	})
	return []string{"--url", "http://" + addr + "/mcp"}
}
