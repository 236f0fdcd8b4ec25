// SPDX-License-Identifier: 0BSD

package main

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

const examples = "../examples"

// needs finds in an example what take is told to write: the name of the package, and WHAT.
var needs = regexp.MustCompile(`(?m)^//	go run \./testdata/take -to \.\./mine/(\S+) (.+)$`)

// Each example is built in an empty module, with the packages that the command in its
// head writes. It passes vet on three systems, and so do the tests that travel.
// Then it does its work.
func TestExamples(t *testing.T) {
	module := t.TempDir()
	writeFile(t, filepath.Join(module, "go.mod"), "module example.com/mine\n\ngo 1.26\n")
	mains, err := filepath.Glob(filepath.Join(examples, "*", "main.go"))
	if err != nil || len(mains) == 0 {
		t.Fatal(err, mains)
	}
	for _, path := range mains {
		copyExample(t, filepath.Dir(path), module)
	}
	env := []string{"GOWORK=off", "GOFLAGS=-trimpath"} // so the cache of the go command knows the packages again in another folder
	for _, system := range []string{"linux", "windows", "darwin"} {
		command(t, module, append(env, "GOOS="+system), "", "go", "vet", "./...")
	}
	command(t, module, env, "", "go", "test", "./...")
	bin := t.TempDir() + string(filepath.Separator)
	command(t, module, env, "", "go", "build", "-o", bin, "./...")
	command(t, "../..", nil, "", "go", "build", "-o", bin, ".")
	useExamples(t, func(name string) string { return executable(t, bin, name) })
}

// copyExample copies an example into a folder of the module, with its own copy of
// mcpwire beside it. Only the path of the import changes.
func copyExample(t *testing.T, example, module string) {
	t.Helper()
	name := filepath.Base(example)
	command := needs.FindStringSubmatch(readFile(t, filepath.Join(example, "main.go")))
	if command == nil {
		t.Fatalf("the head of %s does not say what it needs", example)
	}
	pkg, what := command[1], strings.Fields(command[2])
	args := append([]string{"-test", "-to", filepath.Join(module, name, pkg)}, what...)
	if out, err := take(args...); err != nil {
		t.Fatal(name, out, err)
	}
	files, err := filepath.Glob(filepath.Join(example, "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		text := strings.Replace(readFile(t, file), `"example.com/mine/`, `"example.com/mine/`+name+"/", 1)
		writeFile(t, filepath.Join(module, name, filepath.Base(file)), text)
	}
}

// executable returns the path of a program, which ends with .exe on Windows.
func executable(t *testing.T, folder, name string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(folder, name+"*"))
	if err != nil || len(found) != 1 {
		t.Fatal(name, found, err)
	}
	return found[0]
}

// useExamples uses each program, the servers by the client of the demo, in both eras.
func useExamples(t *testing.T, program func(name string) string) {
	demo := program("mcpwire")
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
			return command(t, ".", nil, "", append(all, program(example))...)
		}
		expect(call("tools", "-tool", "add", "-arg", "a=1", "-arg", "b=2"), `"structuredContent":{"sum":3}`)
		expect(call("tools", "-tool", "greet", "-arg", "name=Ada", "-arg", "times=2"), `Hello, Ada!\nHello, Ada!\nGreetings so far: 2`, `"progress":2,"total":2`)
		expect(call("schema", "-method", "tools/list"), `"days":{"maximum":14,"minimum":1,"type":"integer"}`,
			`"unit":{"enum":["celsius","fahrenheit"],"type":"string"}`, `"required":["city","days"]`)
		expect(call("schema", "-tool", "forecast", "-arg", "city=Oslo", "-arg", "days=2"), "Oslo, 2 days, in celsius")
		expect(call("schema", "-tool", "forecast", "-arg", "city=Oslo", "-arg", "days=2", "-arg", "unit=fahrenheit"), "in fahrenheit")
		arguments := `{"name":"forecast","arguments":{"city":"Oslo","days":2,"unit":"kelvin"}}`
		expect(call("schema", "-method", "tools/call", "-params", arguments), "'unit' must be one of celsius, fahrenheit", `"isError":true`)
		expect(call("resources", "-method", "resources/read", "-params", `{"uri":"note:///todo"}`), `"mimeType":"text/plain","text":"Sleep."`)
		expect(call("resources", "-method", "prompts/get", "-params", `{"name":"summarize","arguments":{"note":"todo"}}`), "Summarize this note: Sleep.")
		answer := `{"hotel":"Grand","nights":2}`
		expect(call("ask", "-tool", "book", "-arg", "city=Oslo", "-answer", answer), "Booked in Oslo: Grand, nights: 2.")
	}
	url := start(t, program("users"), "-listen", "127.0.0.1:0")
	for token, user := range map[string]string{"a-secret": "Ada", "b-secret": "Bob"} {
		expect(command(t, ".", nil, "", demo, "call", "-header", "Authorization: Bearer "+token, "-tool", "whoami", url), "You are "+user)
	}
	expect(command(t, ".", nil, "", program("client"), "count", `{"n":2}`, demo), "progress: 1", "progress: 2", "counted to 2")
	expect(command(t, ".", nil, `{"name":"Ada"}`, program("client"), "ask", "{}", start(t, demo, "-http", "127.0.0.1:0")), "the server asks: What", "Hello, Ada")
	expect(command(t, ".", nil, "", program("socket")), "noon\n")
	expect(command(t, ".", nil, "", program("jsonrpc")), "42 <nil>\n", "21 is more than 20 (-32602)", `{"n":42}} 7`)
}

// start starts a server, and returns the URL in its first line of output. The
// server ends with the test.
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

// copyIt returns what is for those who copy: a part of the README, and a page beside the course.
func copyIt(t *testing.T) string {
	t.Helper()
	_, text, _ := strings.Cut(readFile(t, "../../README.md"), "\n## Copy it\n")
	text, _, ok := strings.Cut(text, "\n## ")
	if !ok {
		t.Fatal("the README has no part Copy it")
	}
	return text + readFile(t, "../copy.md")
}

// The figures of the README are within a tenth of what take says today.
func TestReadmeFigures(t *testing.T) {
	shown := regexp.MustCompile(`(?m)^    go run \./testdata/take .* ([a-z-]+) +# .*: ([0-9,]+) lines, ([0-9,]+) of code$`).FindAllStringSubmatch(copyIt(t), -1)
	if len(shown) != len(sets) {
		t.Fatalf("%d sets in the README, %d in take", len(shown), len(sets))
	}
	for _, set := range shown {
		out, err := take("-list", set[1])
		var lines, code int
		_, total, _ := strings.Cut(out, "\ntotal: ")
		if _, scanned := fmt.Sscanf(total, "%d lines, %d of code", &lines, &code); err != nil || scanned != nil {
			t.Fatal(out, err, scanned)
		}
		if !near(set[2], lines) || !near(set[3], code) {
			t.Errorf("the README says of %s: %s lines, %s of code. Today it has %s lines, %s of code", set[1], set[2], set[3], rounded(lines), rounded(code))
		}
	}
}

// near tells whether a figure of the README is within a tenth of another one.
func near(figure string, now int) bool {
	n, err := strconv.Atoi(strings.ReplaceAll(figure, ",", ""))
	return err == nil && n*10 >= now*9 && n*10 <= now*11
}

// rounded returns a number of thousands as the README writes it, such as 3,600.
func rounded(n int) string {
	n = (n + 50) / 100
	return fmt.Sprintf("%d,%d00", n/10, n%10)
}

// The two lines for whole files make a package that compiles.
func TestReadmeWholeFiles(t *testing.T) {
	lines := regexp.MustCompile(`(?m)^    ((?:mkdir|sed) .*)$`).FindAllStringSubmatch(copyIt(t), -1)
	if len(lines) != 2 {
		t.Fatal(lines)
	}
	if _, err := exec.LookPath("sed"); err != nil {
		t.Skip(err)
	}
	mine := t.TempDir()
	writeFile(t, filepath.Join(mine, "go.mod"), "module example.com/mine\n\ngo 1.26\n")
	for _, line := range lines {
		command(t, "../..", nil, "", "sh", "-c", strings.ReplaceAll(line[1], "../mine", mine))
	}
	command(t, mine, []string{"GOWORK=off", "GOFLAGS=-trimpath"}, "", "go", "vet", "./mcp")
}

// The code in the README and in copy.md stands in the examples, so that it is tested. Each
// example is named there.
func TestReadmeShowsExamples(t *testing.T) {
	text := copyIt(t)
	all := ""
	files, err := filepath.Glob(filepath.Join(examples, "*", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		all += readFile(t, file)
		if link := "(examples/" + filepath.Base(filepath.Dir(file)) + "/"; !strings.Contains(text, link) {
			t.Errorf("copy.md does not name %s", file)
		}
	}
	for _, block := range regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(all, block[1]) {
			t.Errorf("this stands in no example:\n%s", block[1])
		}
	}
}
