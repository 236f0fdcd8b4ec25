// SPDX-License-Identifier: 0BSD

// Package examples tests the programs in its folders: each is copied, built and used as README.md says.
package examples

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
)

const root = "../.." // of mcpwire

// A module gets a copy of the library, by the commands of README.md that copy five files, and the examples as they stand.
// Their tests pass, and each program does its work. That they pass vet on three systems is a step of .ci/run.
func TestExamples(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands of README.md are for a shell")
	}
	mine := filepath.Join(t.TempDir(), "mine")
	if err := os.CopyFS(mine, os.DirFS(".")); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(mine, "examples_test.go")); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mine, "go.mod"), []byte("module example.com/mine\n\ngo 1.26\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	command(t, root, nil, "", "sh", "-ec", strings.ReplaceAll(copying(t), "../mine", mine))
	env := []string{"GOWORK=off", "GOFLAGS=-trimpath"} // so the cache of the go command knows the packages again in another folder
	command(t, mine, env, "", "go", "test", "./...")
	bin := t.TempDir() + string(filepath.Separator)
	command(t, mine, env, "", "go", "build", "-o", bin, "./...")
	command(t, root, nil, "", "go", "build", "-o", bin, ".")
	useExamples(t, bin)
}

// Somebody who does what README.md says has a server, and calls its tool.
func TestReadmeCommands(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("the commands of README.md are for a shell")
	}
	mine := filepath.Join(t.TempDir(), "mine")
	script := strings.ReplaceAll(copying(t)+commands(t)[1], "../mine", mine)
	if out := command(t, root, []string{"GOWORK=off", "GOFLAGS=-trimpath"}, "", "sh", "-ec", script); !strings.Contains(out, `"structuredContent":{"sum":3}`) {
		t.Error(out)
	}
}

// copying returns the commands of README.md that copy all five files.
func copying(t *testing.T) string {
	block := commands(t)[0]
	if !strings.Contains(block, "cp ") || !strings.Contains(block, "sed ") {
		t.Fatalf("these do not copy: %q", block)
	}
	return block
}

// commands returns the two blocks of commands of README.md: those that copy, and those that begin with an example.
func commands(t *testing.T) []string {
	blocks := regexp.MustCompile(`(?m)(?:^    .*\n)+`).FindAllString(copyIt(t), -1)
	if len(blocks) != 2 {
		t.Fatalf("README.md has %d blocks of commands", len(blocks))
	}
	return blocks
}

// copyIt returns the part of README.md for those who copy.
func copyIt(t *testing.T) string {
	text, err := os.ReadFile(filepath.Join(root, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(text), "\n## Copy it\n")
	part, _, ok := strings.Cut(part, "\n## ")
	if !ok {
		t.Fatal("README.md has no part Copy it")
	}
	return part
}

// README.md names each example, and the code that it shows stands in one.
func TestReadmeShowsExamples(t *testing.T) {
	text, all := copyIt(t), ""
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all += string(source)
		if link := "(testdata/examples/" + filepath.ToSlash(filepath.Dir(file)) + "/main.go)"; !strings.Contains(text, link) {
			t.Errorf("README.md has no link %s", link)
		}
	}
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(all, block[1]) {
			t.Errorf("this stands in no example:\n%s", block[1])
		}
	}
}

// useExamples uses each program in the folder bin, the servers by the client of mcpwire, in both eras.
func useExamples(t *testing.T, bin string) {
	demo := bin + "mcpwire"
	expect := func(got string, want ...string) {
		t.Helper()
		for _, part := range want {
			if !strings.Contains(got, part) {
				t.Errorf("there is no %s in\n%s", part, got)
			}
		}
	}
	for _, protocol := range []string{"2025-11-25", "2026-07-28"} {
		call := func(example string, args ...string) string {
			all := append([]string{demo, "call", "-protocol", protocol}, args...)
			return command(t, ".", nil, "", append(all, bin+example)...)
		}
		expect(call("tools", "-tool", "add", "-arg", "a=1", "-arg", "b=2"), `"structuredContent":{"sum":3}`)
		expect(call("tools", "-tool", "greet", "-arg", "name=Ada", "-arg", "times=2"), `Hello, Ada!\nHello, Ada!\nGreetings so far: 2`, `"progress":2,"total":2`)
		expect(call("schema", "-method", "tools/list"), `"days":{"maximum":14,"minimum":1,"type":"integer"}`,
			`"unit":{"enum":["celsius","fahrenheit"],"type":"string"}`, `"required":["city","days"]`)
		expect(call("schema", "-tool", "forecast", "-arg", "city=Oslo", "-arg", "days=2"), "Oslo, 2 days, in celsius")
		expect(call("schema", "-tool", "forecast", "-arg", "city=Oslo", "-arg", "days=2", "-arg", "unit=fahrenheit"), "in fahrenheit")
		arguments := `{"name":"forecast","arguments":{"city":"Oslo","days":2,"unit":"kelvin"}}`
		expect(call("schema", "-method", "tools/call", "-params", arguments), "'unit' must be one of celsius, fahrenheit", `"isError":true`)
		expect(call("ask", "-tool", "book", "-arg", "city=Oslo", "-answer", `{"hotel":"Grand","nights":2}`), "Booked in Oslo: Grand, nights: 2.")
	}
	url := start(t, bin+"users", "-listen", "127.0.0.1:0")
	for token, user := range map[string]string{"a-secret": "Ada", "b-secret": "Bob"} {
		expect(command(t, ".", nil, "", demo, "call", "-header", "Authorization: Bearer "+token, "-tool", "whoami", url), "You are "+user)
	}
	expect(command(t, ".", nil, "", bin+"client", "count", `{"n":2}`, demo), "progress: 1", "progress: 2", "counted to 2")
	expect(command(t, ".", nil, `{"name":"Ada"}`, bin+"client", "ask", "{}", start(t, demo, "-http", "127.0.0.1:0")), "the server asks: What", "Hello, Ada")
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

// start starts a server, and returns the URL in its first line of output. The server ends with the test.
func start(t *testing.T, args ...string) string {
	t.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Close() })
	cmd.Stdout, cmd.Stderr = w, w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = cmd.Process.Kill(), cmd.Wait() })
	line, err := bufio.NewReader(r).ReadString('\n')
	url := regexp.MustCompile(`http://\S+`).FindString(line)
	if err != nil || url == "" {
		t.Fatalf("%v: no URL in %q", err, line)
	}
	return url
}
