package interop

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// set is what the conformance suite requires of one side in one revision.
type set struct {
	side, revision string
	scored         int      // so many scenarios are required
	others         []string // the suite runs them without scoring them; here they have to pass as well
}

var sets = []set{
	{"server", "2025-11-25", 30, []string{"server-session-lifecycle", "server-sse-polling", "json-schema-2020-12"}},
	{"server", "2026-07-28", 37, []string{"http-header-validation", "http-custom-header-server-validation", "json-schema-2020-12"}},
	{"client", "2025-11-25", 18, []string{"json-schema-2020-12-preservation"}},
	{"client", "2026-07-28", 32, []string{"json-schema-2020-12-preservation"}},
}

// skipped are the checks that cannot be made, by scenario: there is no handshake in 2026-07-28.
var skipped = map[string][]string{
	"http-standard-headers": {"ClientMcpMethodHeader_initialize", "ClientMcpMethodHeader_notifications_initialized"},
}

// TestConformance runs the suite against the program in fixtures, and its scenarios of authorization against the one in oauth/client,
// MCPWIRE_CONFORMANCE_RUNS times or until something fails: all sets in turn,
// the server's against the same process. What passes for the suite is not enough: it overlooks warnings, and scenarios that assert nothing.
func TestConformance(t *testing.T) {
	t.Parallel()
	runs, err := strconv.Atoi(cmp.Or(os.Getenv("MCPWIRE_CONFORMANCE_RUNS"), "1"))
	if err != nil || runs < 1 {
		t.Fatalf("MCPWIRE_CONFORMANCE_RUNS=%s", os.Getenv("MCPWIRE_CONFORMANCE_RUNS"))
	}
	suite := script(t, "@modelcontextprotocol/conformance/dist/index.js")
	url := start(t, func(addr, _ string) *exec.Cmd {
		cmd := exec.Command(fixtures)
		cmd.Env = append(os.Environ(), "MCPWIRE_FIXTURES="+addr)
		return cmd
	})
	target := map[string][]string{
		"server": {"--url", url + "/mcp"},
		"client": {"--command", "MCPWIRE_FIXTURES=client exec " + fixtures}, // the suite runs it itself, through a shell
	}
	for range runs {
		for _, set := range sets {
			t.Run(set.side+"/"+set.revision, func(t *testing.T) {
				names := set.scenarios(t)
				dir := t.TempDir()
				for _, which := range set.choices(names, target[set.side]) {
					out := run(t, nil, "", slices.Concat(suite, []string{set.side}, which,
						[]string{"--timeout", "15000", "-o", dir})...)
					if out.exit != 0 {
						t.Errorf("the suite ends with %d", out.exit)
					}
				}
				passed, checks := 0, 0
				for _, name := range names {
					good, bad := judge(filepath.Join(dir, strings.TrimPrefix(set.side+"-", "client-")+name), skipped[name])
					checks += good
					if bad == nil {
						passed++
					} else {
						t.Errorf("%s: %s", name, strings.Join(bad, "\n\t"))
					}
				}
				t.Logf("%d of %d scenarios (%d scored) passed, with %d checks", passed, len(names), set.scored, checks)
			})
		}
		if t.Failed() {
			break
		}
	}
}

// scenarios returns all that have to pass: those that the suite's list has for the side and the revision, and the others.
func (s set) scenarios(t *testing.T) (names []string) {
	t.Helper()
	text, err := os.ReadFile("node_modules/@modelcontextprotocol/conformance/requirements/" + s.revision + ".yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(text), "\n"+s.side+":\n  - ")
	list, _, _ = strings.Cut(list, "\n\n")
	names = strings.Split(list, "\n  - ")
	if len(names) != s.scored {
		t.Fatalf("%d scenarios are scored: %q", len(names), names)
	}
	return append(names, s.others...)
}

// choices returns the flags of one run of the suite each: a server's set as a whole, and a client's scenarios one by one. So the client's
// exit status counts, and no scenario takes another's time. target are the flags that name the fixtures; the scenarios of authorization
// get the client of a login.
func (s set) choices(names, target []string) (flags [][]string) {
	if s.side == "server" {
		return [][]string{slices.Concat(target, []string{"--requirements", s.revision})}
	}
	for _, name := range names {
		started := target
		if strings.HasPrefix(name, "auth/") {
			started = []string{"--command", "exec " + login}
		}
		flags = append(flags, slices.Concat(started, []string{"--scenario", name, "--spec-version", s.revision}))
	}
	return flags
}

// judge reads what the suite has left behind of a scenario: how many checks succeeded, and what is wrong. There has to be a success, other
// than wire-schema-valid, which the suite's own messages earn as well; and besides successes there may be information, nothing else. The
// checks that are to be skipped have to be.
func judge(prefix string, skipped []string) (good int, bad []string) {
	files, _ := filepath.Glob(prefix + "-20??-??-??T*Z/checks.json")
	if len(files) != 1 {
		return 0, []string{fmt.Sprintf("%d results", len(files))}
	}
	var checks []struct{ ID, Name, Status, Description, ErrorMessage string }
	text, _ := os.ReadFile(files[0])
	if err := json.Unmarshal(text, &checks); err != nil {
		return 0, []string{err.Error()}
	}
	asserted := false
	for _, c := range checks {
		switch i := slices.Index(skipped, c.Name); {
		case c.Status == "INFO":
		case c.Status == "SKIPPED" && i >= 0:
			skipped = slices.Concat(skipped[:i], skipped[i+1:])
		case c.Status == "SUCCESS":
			good++
			asserted = asserted || c.ID != "wire-schema-valid"
		default: // FAILURE, WARNING, SKIPPED
			bad = append(bad, fmt.Sprintf("%s %s: %s", c.Status, c.ID, cmp.Or(c.ErrorMessage, c.Description)))
		}
	}
	if len(skipped) > 0 {
		bad = append(bad, fmt.Sprintf("not skipped: %q", skipped))
	}
	if !asserted && bad == nil {
		bad = []string{fmt.Sprintf("nothing is asserted in %d checks", len(checks))}
	}
	return good, bad
}
