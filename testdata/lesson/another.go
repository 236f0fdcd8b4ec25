// SPDX-License-Identifier: 0BSD

package lesson

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/iotest"
	"time"
)

// AnotherTool adds the tool that README.md of the current folder shows under "Another tool" to a copy of the server over HTTP, and
// calls it with the command that README.md shows.
func AnotherTool(t *testing.T) {
	server, readme := withAnotherTool(t, "echo", "setNote")
	command := regexp.MustCompile("(?s)`go run \\./testdata/fifth\\s+http://127.0.0.1:8080/mcp (\\S+)\\s+'([^']+)'`").FindStringSubmatch(readme)
	if command == nil {
		t.Fatal("README.md shows no command")
	}
	got := goCommand(t, ".", "run", "../fifth", "http://"+Serve(t, server)+"/mcp", command[1], command[2])
	if want := "1 of 2\n2 of 2\nha ha\n"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	for line := range strings.Lines(strings.TrimSpace(got)) {
		if line = strings.TrimSpace(line); !strings.Contains(readme, "`"+line+"`") {
			t.Errorf("README.md does not say that the command prints %s", line)
		}
	}
}

// AnotherToolOnStdio does the same for a server on stdio. There README.md shows a command of the shell, and below it what it prints.
func AnotherToolOnStdio(t *testing.T) {
	server, readme := withAnotherTool(t, "weather", "ask")
	shown := regexp.MustCompile(`(?m)^    \$ (printf .*)\n((?:    .*\n)+)`).FindStringSubmatch(readme)
	if shown == nil {
		t.Fatal("README.md shows no command")
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip(err)
	}
	got, err := exec.Command(bash, "-c", strings.Replace(shown[1], "go run .", server, 1)).Output()
	if want := strings.ReplaceAll(shown[2], "    ", ""); err != nil || string(got) != want || !strings.Contains(want, "ha ha") {
		t.Errorf("%v: got\n%s\nwant\n%s", err, got, want)
	}
}

// withAnotherTool copies main.go and tools.go of the current folder into a module of their own, as "Another tool" in README.md says. It
// adds the tool that README.md shows there above a function, and below the last line of the table of tools. It returns the program.
func withAnotherTool(t *testing.T, function, last string) (server, readme string) {
	if testing.Short() {
		t.Skip("starts the go command")
	}
	readme = readFile(t, "README.md")
	block := regexp.MustCompile("(?s)```go\n(.*?)```").FindStringSubmatch(readme)
	if block == nil {
		t.Fatal("README.md shows no tool")
	}
	mine := t.TempDir()
	tools := readFile(t, "tools.go")
	for place, text := range map[string]string{
		"\nfunc " + function + "(": "\n" + block[1] + "\nfunc " + function + "(",
		", " + last + "},\n}\n":    ", " + last + "},\n\trepeatTool,\n}\n",
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
	return filepath.Join(mine, "server"), readme
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

// Serve starts a program of the course as a server over HTTP. It returns the address when the server listens. The server ends with the test.
func Serve(t *testing.T, program string) (address string) {
	address = FreeAddress(t)
	server := exec.Command(program, "-http", address)
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	})
	for {
		if conn, err := net.Dial("tcp", address); err == nil {
			conn.Close()
			return address
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// FreeAddress returns an address on which nothing listens.
func FreeAddress(t *testing.T) string {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().String()
}

// CheckBodies checks that a body that is too large, or that is cut, gets 400, and that the text says which of the two it was.
func CheckBodies(t *testing.T, server http.Handler, maxSize int) {
	for reason, body := range map[string]io.Reader{
		"too large":      strings.NewReader(strings.Repeat("a", maxSize+1)),
		"unexpected EOF": iotest.ErrReader(io.ErrUnexpectedEOF),
	} {
		recorder := httptest.NewRecorder()
		server.ServeHTTP(recorder, httptest.NewRequest("POST", "/mcp", body))
		if recorder.Code != 400 || !strings.Contains(recorder.Body.String(), reason) {
			t.Errorf("%s: %d %s", reason, recorder.Code, recorder.Body)
		}
	}
}
