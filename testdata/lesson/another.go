// SPDX-License-Identifier: 0BSD

package lesson

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// AnotherTool copies main.go and tools.go of the current folder into a module of their own, as "Another tool" in README.md
// says, adds the tool that README.md shows there, and calls it with the command that README.md shows.
func AnotherTool(t *testing.T) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	readme := readFile(t, "README.md")
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(readme)
	command := regexp.MustCompile("(?s)`go run \\./testdata/fourth\\s+http://127.0.0.1:8080/mcp (\\S+)\\s+'([^']+)'`").FindStringSubmatch(readme)
	if block == nil || command == nil {
		t.Fatal("README.md shows no tool, or no command")
	}
	mine := t.TempDir()
	tools := readFile(t, "tools.go")
	for place, text := range map[string]string{
		"\nfunc echo(":     "\n" + block[1] + "\nfunc echo(",
		", setNote},\n}\n": ", setNote},\n\trepeatTool,\n}\n",
	} {
		if strings.Count(tools, place) != 1 {
			t.Errorf("tools.go has %d of %q", strings.Count(tools, place), place)
		}
		tools = strings.Replace(tools, place, text, 1)
	}
	for name, text := range map[string]string{"go.mod": "module example.com/mine\n\ngo 1.26\n", "main.go": readFile(t, "main.go"), "tools.go": tools} {
		if err := os.WriteFile(filepath.Join(mine, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	goCommand(t, mine, "vet", ".")
	goCommand(t, mine, "build", "-o", "server", ".")
	address := freeAddress(t)
	server := exec.Command(filepath.Join(mine, "server"), "-http", address)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	got := goCommand(t, ".", "run", "../fourth", "http://"+address+"/mcp", command[1], command[2])
	if want := "1 of 2\n2 of 2\nha ha\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for line := range strings.Lines(strings.TrimSpace(got)) {
		if line = strings.TrimSpace(line); !strings.Contains(readme, "`"+line+"`") {
			t.Errorf("README.md does not say that the command prints %s", line)
		}
	}
}

func readFile(t *testing.T, name string) string {
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func goCommand(t *testing.T, folder string, args ...string) (printed string) {
	command := exec.Command("go", args...)
	command.Dir, command.Env = folder, append(os.Environ(), "GOWORK=off")
	out, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("go %v: %v: %s", args, err, out)
	}
	return string(out)
}

func freeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}
