//go:build unix

package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"time"
)

// stage is a set of tests. A mutation that one stage does not notice goes on to
// the next one.
type stage struct {
	name   string
	folder string   // of the copy of the module, where the commands run
	builds []string // commands that make the program of the tests
	run    string   // the program, with its flags
	limit  time.Duration
}

// stages are the stages, in order. The race detector is for locks alone: without
// it a missing lock is hardly ever noticed. .ci/run has it.
var stages = []stage{
	{"short", ".", []string{compile + "."}, "./tests -test.failfast -test.short", 90 * time.Second},
	{"full", ".", nil, "./tests -test.failfast", 240 * time.Second},
	{"library", "testdata/interop/library", []string{"cd .. && go run ./copywire", compile + "."}, "./tests -test.failfast", 240 * time.Second},
	{"race", ".", []string{compile + "-race ."}, "./tests -test.failfast -test.short", 300 * time.Second},
	{"race in library", "testdata/interop/library", []string{compile + "-race ."}, "./tests -test.failfast", 300 * time.Second},
}

// hasRace reports whether a stage runs with the race detector.
func (s stage) hasRace() bool { return strings.HasPrefix(s.name, "race") }

// compile makes the program of the tests. The compiler takes half as long if it
// writes nothing for a debugger and collects its garbage less often.
const compile = "GOGC=800 go test -c -o tests -vet=off -ldflags=-w -gcflags=-dwarf=false "

// maxMemory is how much address space the tests may have, in KiB: a mutation may
// allocate without end. The race detector needs more.
const maxMemory = 8 << 20

// slowness multiplies the limits of the stages. main sets it.
var slowness = 1

// runOne runs the stages with one mutation, until one notices it.
func runOne(lib *library, m *mutation) (result, error) {
	began := time.Now()
	r := result{ID: m.ID}
	dir, err := os.MkdirTemp("", "mutate")
	if err != nil {
		return r, err
	}
	defer os.RemoveAll(dir)
	if err := copyModule(dir, moduleRoot); err != nil {
		return r, err
	}
	if m != unchanged {
		source := m.apply(lib.sources[m.File])
		if err := os.WriteFile(filepath.Join(dir, m.File), source, 0o666); err != nil {
			return r, err
		}
	}
	for _, s := range stages {
		if s.hasRace() && m.Operator != dropLock && m != unchanged {
			continue
		}
		passed, output, err := s.try(dir)
		if err != nil {
			return r, fmt.Errorf("%s: %w", m.ID, err)
		}
		if !passed {
			r.Stage, r.Test = s.name, firstFailure(output)
			break
		}
	}
	r.Seconds = time.Since(began).Seconds()
	return r, nil
}

// copyModule copies the module, without what is not part of it.
func copyModule(to, from string) error {
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case entry.Name() == ".git" && entry.IsDir(), entry.Name() == "node_modules" && entry.IsDir():
			return filepath.SkipDir
		case entry.IsDir():
			return os.MkdirAll(filepath.Join(to, relative), 0o777)
		case !entry.Type().IsRegular() || entry.Name() == ".git":
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, relative), text, 0o666)
	})
}

// try runs a stage in the copy of the module, and reports whether its tests have
// passed. The error is for tests that do not compile.
func (s stage) try(dir string) (passed bool, output []byte, err error) {
	folder := filepath.Join(dir, s.folder)
	for _, command := range s.builds {
		output, err := shell(folder, command, time.Hour)
		if err != nil {
			return false, nil, fmt.Errorf("%s: %w\n%s", command, err, output)
		}
	}
	limit := s.limit * time.Duration(slowness)
	command := fmt.Sprintf("%s -test.timeout %v", s.run, limit)
	if !s.hasRace() {
		command = fmt.Sprintf("ulimit -v %d && %s", maxMemory, command)
	}
	output, err = shell(folder, command, limit+time.Minute)
	return err == nil, output, nil
}

// shell runs a command, and returns its output. Processes that it leaves behind
// are killed: a mutation may keep a child from its end.
func shell(folder, command string, limit time.Duration) ([]byte, error) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	sh := exec.CommandContext(ctx, "sh", "-c", command)
	sh.Dir = folder
	sh.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	sh.Cancel = func() error { return syscall.Kill(-sh.Process.Pid, syscall.SIGKILL) }
	sh.WaitDelay = 5 * time.Second
	output, err := sh.CombinedOutput()
	if sh.Process != nil {
		_ = syscall.Kill(-sh.Process.Pid, syscall.SIGKILL)
	}
	return output, err
}

var (
	failedTest   = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	timedOutTest = regexp.MustCompile(`(?m)^panic: test timed out after \S+\n\s+running tests:\n\s+(\S+)`)
	crash        = regexp.MustCompile(`(?m)^(panic|fatal error): .*`)
)

// firstFailure returns the name of the first test that has failed, or how the
// tests have ended otherwise.
func firstFailure(output []byte) string {
	if match := timedOutTest.FindSubmatch(output); match != nil {
		return "timeout in " + string(match[1])
	}
	first := ""
	for _, match := range failedTest.FindAllSubmatch(output, -1) {
		if first != "" && !strings.HasPrefix(string(match[1]), first+"/") {
			break
		}
		first = string(match[1]) // or the first part of it that has failed
	}
	if first != "" {
		return first
	}
	if match := crash.Find(output); match != nil {
		return string(match)
	}
	return string(bytes.TrimSpace(output[max(0, len(output)-200):]))
}
