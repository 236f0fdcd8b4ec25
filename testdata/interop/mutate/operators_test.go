//go:build unix

package main

import (
	"slices"
	"strings"
	"testing"
)

// oneFile returns a library of one file.
func oneFile(t *testing.T, source string) *library {
	t.Helper()
	lib, err := newLibrary(map[string][]byte{"jsonrpc.go": []byte(source)})
	if err != nil {
		t.Fatal(err)
	}
	return lib
}

// TestOperators applies each operator to a small source, and compares what it
// makes of each line. A line is empty if it is left out.
func TestOperators(t *testing.T) {
	for _, test := range []struct {
		operator, source string
		want             []string // the line that changes, in each mutation
	}{
		{negate, "func f(a int) { if a == 1 { return }; for a < 2 { a++ } }\nfunc (T) String() string { if true { return `` }; return `` }",
			[]string{"func f(a int) { if !(a == 1) { return }; for a < 2 { a++ } }", "func f(a int) { if a == 1 { return }; for !(a < 2) { a++ } }"}},
		{negate, "func f(a int) {\nswitch {\ncase a == 1:\n}\nswitch a {\ncase 2:\n}\n}", []string{"case !(a == 1):"}},
		{negate, "func f(a bool, l *slog.Logger) {\nif a {\nl.Info(`seen`)\n}\n}", nil},
		{dropSide, "func f(a, b bool) bool {\nreturn a && b\n}", []string{"return a", "return b"}},
		{dropSide, "func f(a, b, c bool) bool {\nreturn a ||\nb && c\n}", []string{"return a", "return b && c", "b", "c"}},
		{dropReturn, "func f(a bool) int {\nif a {\nreturn 1\n}\nif !a { return 2 }\nif a { f(a); return 3 }\nreturn 4\n}", []string{"", "if !a {  }"}},
		{double, "const maxA = 1 << 4\nconst code, zero = -7, 0\nconst name = `a`\n", []string{"const maxA = 2*(1 << 4)"}},
		{double, "var maxB int\nfunc f(a int, s string) bool {\nreturn a > 8 || 3 <= a || a < 0 || s < `b`\n}\nfunc g(a int) bool { return a >= maxB || a == 5 }",
			[]string{"return a > 2*(8) || 3 <= a || a < 0 || s < `b`", "return a > 8 || 2*(3) <= a || a < 0 || s < `b`", "func g(a int) bool { return a >= 2*(maxB) || a == 5 }"}},
		{shift, "func f(a, b int) bool {\nreturn a < b || a > b || a <= b || a >= b || a == b\n}",
			[]string{"return a <= b || a > b || a <= b || a >= b || a == b", "return a < b || a >= b || a <= b || a >= b || a == b"}},
		{dropDefer, "func f(m *sync.Mutex) {\nm.Lock()\ndefer m.Unlock()\ndefer f(m)\n}", []string{""}},
		{dropCall, "func f(b *strings.Builder, g *sync.WaitGroup, l *slog.Logger) {\ng.Wait()\nb.WriteString(`a`)\nl.Info(`seen`)\nf(b, g, l)\n}", []string{""}},
		{dropCase, "func f(a any, b int) {\nswitch a.(type) {\ncase int:\n}\nswitch b {\ncase 1:\nf(a, b)\ndefault:\n}\n}", []string{"", "", ""}},
		{dropError, "func f() (int, error) {\nif true { return 1, io.EOF }\nif true { return 2, fmt.Errorf(`a`) }\nif true { return f() }\nreturn 3, nil\n}",
			[]string{"if true { return 1, nil }", "if true { return 2, nil }"}},
	} {
		source := "package main\nimport (\"fmt\"; \"io\"; \"log/slog\"; \"strings\"; \"sync\")\n" +
			"var (_ = fmt.Sprint; _ = io.EOF; _ *slog.Logger; _ strings.Builder; _ sync.Mutex)\ntype T struct{}\n" + test.source
		var got []string
		for _, m := range oneFile(t, source).candidates("jsonrpc.go") {
			if m.Operator == test.operator {
				got = append(got, m.After)
			}
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%s of\n%s\nmakes %q\nnot   %q", test.operator, test.source, got, test.want)
		}
	}
}

// TestDropLock sees that a Lock takes its Unlocks along, and no others.
func TestDropLock(t *testing.T) {
	source := "package main\nimport \"sync\"\nfunc f(a, b *sync.Mutex) {\n" +
		"a.Lock()\nif true {\na.Unlock()\nreturn\n}\nb.Lock()\na.Unlock()\na.Lock()\ndefer a.Unlock()\nfunc() { b.Lock(); b.Unlock() }()\nb.Unlock()\n}\n"
	lib := oneFile(t, source)
	var got []string
	for _, m := range lib.candidates("jsonrpc.go") {
		if m.Operator == dropLock {
			_, body, _ := strings.Cut(string(m.apply([]byte(source))), "\n"+"func f(a, b *sync.Mutex) {\n")
			got = append(got, strings.ReplaceAll(body, "\n", " "))
		}
	}
	want := []string{
		"a.Lock() if true { a.Unlock() return } b.Lock() a.Unlock() a.Lock() defer a.Unlock() func() { ;  }() b.Unlock() } ",
		" if true {  return } b.Lock()  a.Lock() defer a.Unlock() func() { b.Lock(); b.Unlock() }() b.Unlock() } ",
		"a.Lock() if true { a.Unlock() return }  a.Unlock() a.Lock() defer a.Unlock() func() { b.Lock(); b.Unlock() }()  } ",
		"a.Lock() if true { a.Unlock() return } b.Lock() a.Unlock()   func() { b.Lock(); b.Unlock() }() b.Unlock() } ",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestDraw sees that a draw compiles, does not depend on chance, and is another
// one for another seed.
func TestDraw(t *testing.T) {
	source := "package main\nfunc f(a, b int) int {\nunused := 1\nif unused == a && a < b {\nreturn 1\n}\nif a > b {\nreturn 2\n}\nswitch {\ncase a == b:\nreturn 3\ndefault:\nreturn 4\n}\n}\n"
	lib := oneFile(t, source)
	ids := func(seed uint64, n int) (ids []string) {
		for _, m := range draw(lib, seed, n) {
			if !lib.compiles(m) {
				t.Errorf("%s does not compile", m.ID)
			}
			ids = append(ids, m.ID)
		}
		return ids
	}
	first := ids(1, 5)
	if len(first) != 5 || !slices.Equal(first, ids(1, 5)) {
		t.Errorf("two draws of 5 are %q and %q", first, ids(1, 5))
	}
	if slices.Equal(first, ids(2, 5)) {
		t.Errorf("the seeds 1 and 2 draw the same: %q", first)
	}
	all := ids(1, len(lib.candidates("jsonrpc.go")))
	if !slices.Contains(all, "jsonrpc.go/f/drop-case/1") || slices.Contains(all, "jsonrpc.go/f/drop-case/2") {
		t.Errorf("without the default a return is missing, so only the other case can be taken out: %q", all)
	}
}

// TestFirstFailure reads the output of go test.
func TestFirstFailure(t *testing.T) {
	for output, want := range map[string]string{
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\n        --- FAIL: TestA/b/c (0.1s)\n            x.go:1: no\n    --- FAIL: TestA/d (0s)\n--- FAIL: TestE (0s)\nFAIL\n": "TestA/b/c",
		"panic: test timed out after 1m30s\n\trunning tests:\n\t\tTestA (5s)\n\ngoroutine 1\n":                                                                                       "timeout in TestA",
		"fatal error: sync: unlock of unlocked mutex\n\ngoroutine 7":                                                                                                                 "fatal error: sync: unlock of unlocked mutex",
		"cannot run\n": "cannot run",
	} {
		if got := firstFailure([]byte(output)); got != want {
			t.Errorf("%q: the first failure is %q, not %q", output, got, want)
		}
	}
}
