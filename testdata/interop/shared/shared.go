// Package shared has what the tests of several folders have in common.
package shared

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// Go runs the go command in a folder.
func Go(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v in %s: %w\n%s", cmd, dir, err, out)
	}
	return nil
}

// Main runs the tests of a package, after build has made what they need in a folder of theirs. interop is the path of testdata/interop, whose
// copy of the library must not be an old one.
func Main(m *testing.M, interop string, build func(dir string) error) (status int) {
	dir, err := os.MkdirTemp("", "interop")
	defer os.RemoveAll(dir)
	if err == nil {
		err = Go(interop, "run", "./copywire", "-check")
	}
	if err == nil {
		err = build(dir)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return m.Run()
}

// ModernMeta makes a request one of 2026-07-28.
const ModernMeta = `"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}`

func InitializeLine(version string) string {
	return `{"jsonrpc":"2.0","id":"init","method":"initialize","params":{"protocolVersion":"` + version + `","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
}

func ToolCall(id int, name, arguments string) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":%q,"arguments":%s,"_meta":{"progressToken":"t%d"}}}`, id, name, arguments, id)
}

// RoundTrip is a function as a network.
type RoundTrip func(r *http.Request) (*http.Response, error)

func (f RoundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// Counted counts the Conns of a Dialer that are open.
func Counted(dial wire.Dialer, open *atomic.Int32) wire.Dialer {
	return wire.DialerFunc(func(ctx context.Context) (wire.Conn, error) {
		conn, err := dial.Dial(ctx)
		if err != nil {
			return nil, err
		}
		open.Add(1)
		return &countedConn{conn, sync.OnceFunc(func() { open.Add(-1) })}, nil
	})
}

type countedConn struct {
	wire.Conn
	closed func()
}

func (c *countedConn) Close() error {
	defer c.closed()
	return c.Conn.Close()
}

// Output is a buffer to which a process may write while it is read.
type Output struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// WaitFor waits for a condition that another goroutine brings about.
func WaitFor(t testing.TB, condition func() bool) {
	t.Helper()
	for range 12_000 { // a minute
		if condition() {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
	t.Fatal("it does not happen")
}

// CheckLeaks fails the test if there are more goroutines at its end than now.
func CheckLeaks(t *testing.T) {
	base := runtime.NumGoroutine()
	t.Cleanup(func() {
		for range 500 {
			if runtime.NumGoroutine() <= base {
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
		stacks := make([]byte, 1<<20)
		t.Errorf("%d goroutines, %d at first\n%s", runtime.NumGoroutine(), base, stacks[:runtime.Stack(stacks, true)])
	})
}

// OpenFiles counts this process's descriptors, where that can be done.
func OpenFiles() int {
	entries, _ := os.ReadDir("/proc/self/fd")
	return len(entries)
}

// GroupAlive reports whether a process of the group runs; one that is dead but not yet reaped by its new parent does not count.
func GroupAlive(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	alive := regexp.MustCompile(fmt.Sprintf(`\) [^Z] [0-9]+ %d `, pgid))
	return slices.ContainsFunc(stats, func(path string) bool {
		stat, _ := os.ReadFile(path)
		return alive.Match(stat)
	})
}
