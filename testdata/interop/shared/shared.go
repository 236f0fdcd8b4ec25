// Package shared has what the tests of several folders have in common.
package shared

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"slices"
	"sync"
	"testing"
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

// HasRaceDetector tells whether the tests have been built with -race, which needs much memory of its own.
func HasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
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

// GroupAlive reports whether a process of the group runs; one that is dead but not yet reaped by its new parent does not count.
func GroupAlive(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	alive := regexp.MustCompile(fmt.Sprintf(`\) [^Z] [0-9]+ %d `, pgid))
	return slices.ContainsFunc(stats, func(path string) bool {
		stat, _ := os.ReadFile(path)
		return alive.Match(stat)
	})
}
