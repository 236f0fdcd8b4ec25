// SPDX-License-Identifier: 0BSD

package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// loaded is the library of this checkout. It is loaded once: that takes seconds.
var loaded = sync.OnceValues(loadCheckout)

// take runs take on the library of this checkout.
func take(args ...string) (string, error) {
	var out strings.Builder
	err := run(args, &out, loaded)
	return out.String(), err
}

// command runs a program in dir, and returns its output.
func command(t *testing.T, dir string, env []string, input string, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdin = dir, append(os.Environ(), env...), strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// writeSmall writes a small library into a folder, and returns a function that runs
// take on it.
func writeSmall(t *testing.T) (root string, take func(args ...string) (string, error)) {
	root = t.TempDir()
	writeFile(t, filepath.Join(root, "go.mod"), "module small\n\ngo 1.26\n")
	writeFile(t, filepath.Join(root, "main.go"), "package main\n\nconst version = \"9.8.7\"\n")
	writeFile(t, filepath.Join(root, "small.go"), readFile(t, "testdata/small/small.go.txt"))
	return root, func(args ...string) (string, error) {
		var out strings.Builder
		err := run(args, &out, func() (*library, error) { return load(root) })
		return out.String(), err
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func readFile(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// What each exported name needs compiles.
func TestEveryName(t *testing.T) {
	l, err := loadCheckout()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range l.exported() {
		roots, err := l.roots([]string{name})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := l.reach(roots).texts("mcp"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Each file of the library has advice about reading and copying it as a whole, so the
// phrases that take knows are still those of the files. A copy has none.
func TestAdvice(t *testing.T) {
	l, err := loaded()
	if err != nil {
		t.Fatal(err)
	}
	roots, err := l.roots(strings.Fields("stdio-server http-server client jsonrpc"))
	if err != nil {
		t.Fatal(err)
	}
	texts, err := l.reach(roots).texts("mcp")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range l.files {
		if isTest(file.name) {
			continue
		}
		if !advice.Match(file.text) {
			t.Errorf("%s has no advice that take knows", file.name)
		}
		head, _, _ := strings.Cut(string(texts[file.name]), "\nimport ")
		for _, part := range []string{"Copy this file", "to the banner", "README.md"} {
			if strings.Contains(strings.ReplaceAll(head, "\n//", ""), part) {
				t.Errorf("the head of a copy of %s says %s:\n%s", file.name, part, head)
			}
		}
	}
}

// The life of a folder. What is taken of the small library shows each rule of
// reach.go and write.go once. The folder is written, written again, changed by its owner, and
// follows a library that changes.
func TestFolder(t *testing.T) {
	root, take := writeSmall(t)
	dir := filepath.Join(t.TempDir(), "mine")
	taken := filepath.Join(dir, "small.go")
	try := func(want string, args ...string) {
		t.Helper()
		out, err := take(append([]string{"-to", dir}, args...)...)
		if got := strings.ReplaceAll(strings.ReplaceAll(out+fmt.Sprintln(err), dir, "DIR"), `DIR\`, "DIR/"); got != want {
			t.Errorf("got:\n%s\nwant:\n%s", got, want)
		}
	}
	try("DIR, package mine:\nsmall.go: 57 lines, new\n<nil>\n", "Letter", "Measure", "Word")
	text, body := readFile(t, taken), readFile(t, "testdata/small/taken.go.txt")
	head := "// SPDX-License-Identifier: 0BSD\n// small.go of mcpwire 9.8.7, commit unknown: what is needed of it.\n" +
		"// To write it again, in a checkout of mcpwire: go run ./testdata/take -to DIR -package mine Letter Measure Word\n"
	if !strings.HasPrefix(text, head) || !strings.HasSuffix(text, "\n\n"+body) {
		t.Errorf("got:\n%s\nwant:\n%s\n\n%s", text, head, body)
	}
	try("DIR, package mine:\nsmall.go: 57 lines, as before\n<nil>\n")
	writeFile(t, taken, strings.ReplaceAll(text, "\n", "\r\n")) // as Git may check it out on Windows
	try("DIR, package mine:\nsmall.go: 57 lines, as before\n<nil>\n")

	// The library changes a method, and gains a const and a file.
	small := filepath.Join(root, "small.go")
	changes := strings.NewReplacer("// counts on first\n", "// counts on first\n\tthird\n", "w.Tag }", "w.Tag + 0 }")
	writeFile(t, small, changes.Replace(readFile(t, small)))
	writeFile(t, filepath.Join(root, "more.go"), "package main\n\nfunc More() {}\n")
	try("DIR, package mine:\nsmall.go: 58 lines, changed (+ new, - gone or not needed any more, ~ changed; and 1 that are not exported):\n  ~ Word.Len\n<nil>\n")
	try("DIR, package mine:\nmore.go: 8 lines, new\nsmall.go: 30 lines, changed (+ new, - gone or not needed any more, ~ changed; and 5 that are not exported):\n"+
		"  - Letter\n  - Measure\n  - Word.Len\n<nil>\n", "Word", "More")
	try("DIR, package mine:\nmore.go: 8 lines, as before\nsmall.go: removed, nothing of it is needed any more\n<nil>\n", "More")

	// The owner changes a file, and then the library changes both.
	more := filepath.Join(dir, "more.go")
	try("DIR, package mine:\nmore.go: 8 lines, as before\nsmall.go: 30 lines, new\n<nil>\n", "More", "Word")
	mine := readFile(t, more) + "\nfunc mine() {}\n"
	writeFile(t, more, mine)
	try("DIR, package mine:\nmore.go: kept with your changes, mcpwire has none\nsmall.go: 30 lines, as before\n<nil>\n")
	writeFile(t, filepath.Join(root, "more.go"), "package main\n\nfunc More() { println() }\n")
	writeFile(t, small, strings.Replace(readFile(t, small), "only left is read", "only left is changed", 1))
	try("DIR, package mine:\nmore.go: kept with your changes; the text of mcpwire is in more.go.new, changed (+ new, - gone or not needed any more, ~ changed; and 1 that are not exported):\n  ~ More\n" +
		"small.go: 30 lines, changed (+ new, - gone or not needed any more, ~ changed; and 0 that are not exported):\n  ~ Word\n" +
		"both you and mcpwire have changed more.go. The other files are new, so the package may not compile " +
		"until you have brought your changes into the .new file and renamed it; -force drops your changes instead\n")
	if readFile(t, more) != mine {
		t.Error("more.go was overwritten")
	}
	merged := readFile(t, more+".new") + "\nfunc mine() {}\n"
	if err := os.Rename(more+".new", more); err != nil {
		t.Fatal(err)
	}
	writeFile(t, more, merged)
	try("DIR, package mine:\nmore.go: kept with your changes, mcpwire has none\nsmall.go: 30 lines, as before\n<nil>\n")
	try("DIR, package mine:\nsmall.go: 30 lines, as before\nmore.go: kept with your changes, but nothing of it is needed any more\n<nil>\n", "Word")
	try("DIR, package mine:\nmore.go: 8 lines, changed (+ new, - gone or not needed any more, ~ changed; and 1 that are not exported):\nsmall.go: removed, nothing of it is needed any more\n<nil>\n", "-force", "More")

	writeFile(t, more, "// Copyright Me\n"+readFile(t, more)) // above the head, so the file is not ours any more
	inTheWay := "nothing was written, because these files are not from take: %s. " +
		"Move them away or delete them, take again, and then bring your changes into the new files\n"
	try(fmt.Sprintf(inTheWay, "DIR/more.go"), "-force", "More")
	writeFile(t, more, strings.TrimPrefix(readFile(t, more), "// Copyright Me\n"))
	writeFile(t, more, readFile(t, more)+"\nfunc () mine( {}\n") // it does not even parse
	try("DIR, package mine:\nmore.go: 8 lines, changed (+ new, - gone or not needed any more, ~ changed; and 0 that are not exported):\n  + More\n<nil>\n", "-force")

	// There is a file of the owner's with the name of one of ours.
	writeFile(t, taken, "package mine\n")
	try(fmt.Sprintf(inTheWay, "DIR/small.go"), "-force", "Word")
	writeFile(t, taken, "package other\n")
	try("DIR holds package other, in small.go: all files of a folder have one package, so it cannot be mine\n", "More")
}

// A test comes along if it needs nothing else than what is taken. The head repeats the
// flag, so an update writes the test again.
func TestTravel(t *testing.T) {
	root, take := writeSmall(t)
	folder := filepath.Join(root, filepath.FromSlash(travel))
	if err := os.MkdirAll(folder, 0o700); err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(folder, "small_test.go"), "package main\n\nimport \"testing\"\n\n"+
		"func TestWord(t *testing.T) { helper(t, new(Word).String()) }\n\nfunc TestMeasure(*testing.T) { Measure(new(Word)) }\n\n"+
		"func helper(t *testing.T, text string) { t.Log(text) }\n")
	dir := filepath.Join(t.TempDir(), "mine")
	tests := func(args ...string) string {
		t.Helper()
		if out, err := take(append([]string{"-to", dir}, args...)...); err != nil {
			t.Fatal(out, err)
		}
		text, err := os.ReadFile(filepath.Join(dir, "small_test.go"))
		if err != nil {
			return "none"
		}
		return strings.Join(regexp.MustCompile(`func \w+`).FindAllString(string(text), -1), ", ")
	}
	for _, step := range []struct{ args, want string }{
		{"-test Word", "func TestWord, func helper"},
		{"", "func TestWord, func helper"},
		{"-test Word Measure", "func TestWord, func TestMeasure, func helper"},
		{"Word", "none"},
		{"", "none"},
	} {
		if got := tests(strings.Fields(step.args)...); got != step.want {
			t.Errorf("%q: %s, want %s", step.args, got, step.want)
		}
	}
}

// What the command line says of the library of this checkout.
func TestCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	writeFile(t, file, "")
	empty := t.TempDir()
	for _, test := range []struct{ args, want string }{
		{"", "\n  stdio-server  Serve StdioConn"},
		{"", " Server.Handle "},
		{"-list Peer.Not", "there is no Peer.Not; is it one of these? Peer.Notify"},
		{"-list addtool", "is it one of these? AddTool"},
		{"-list resourcetemplate", "is it one of these? ListResourceTemplatesResult, "},
		{"-list stdio", "is it one of these? stdio-server, StdioConn"},
		{"-list Peer.call", "is not exported"},
		{"-list Server.Info", "Server.Info is a field: it comes with what uses it"},
		{"-list xyzzyx", "there is no xyzzyx; take without WHAT says what there is"},
		{"-list jsonrpc", "\njsonrpc.go: "},
		{"-list jsonrpc", "  Peer.Call\n"},
		{"-list jsonrpc", "\ntotal: "},
		{"-list -why", "flag needs an argument: -why"},
		{"jsonrpc -list", "there is no -list"}, // flags come first, as those of the go command
		{"-list", "-list and -why need WHAT"},
		{"-why Peer.Call jsonrpc", "Peer.Call (jsonrpc.go:"},
		{"-why Peer.Call jsonrpc", "\n    the command line asks for it\n"},
		{"-why Conn.Read jsonrpc", "there is no Conn.Read"},
		{"-why Pipe client", "Pipe is not taken"},
		{"-list -test Root", "there is no test that needs nothing else"},
		{"-list -test Bind", "  TestBind\n"},
		{"Serve", "where to?"},
		{"-to " + file + " Serve", file},
		{"-to " + filepath.Join(file, "mine") + " Serve", file},
		{"-to " + empty, "take has written nothing"},
		{"-to " + empty + " -package a-b Serve", `"a-b" cannot be the name of a package`},
		{"-to " + filepath.Join(empty, "a-b") + " Serve", `"a-b" cannot be the name of a package`},
		{"-unknown", "-unknown"},
	} {
		out, err := take(strings.Fields(test.args)...)
		if got := "\n" + out + fmt.Sprint(err); !strings.Contains(strings.ToLower(got), strings.ToLower(test.want)) {
			t.Errorf("take %s: %s\nwant: %s", test.args, got, test.want)
		}
	}
	if entries, err := os.ReadDir(empty); err != nil || len(entries) > 0 {
		t.Error("something was written: ", entries, err)
	}
}

// Nothing needs a C compiler.
func TestWithoutC(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("there is no /bin/false")
	}
	for _, enabled := range []string{"0", "1"} {
		out := command(t, ".", []string{"CGO_ENABLED=" + enabled, "CC=/bin/false"}, "", "go", "run", ".", "-list", "StreamableHandler")
		if !strings.Contains(out, "\ntotal: ") {
			t.Error(out)
		}
	}
}
