package interop

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Here the program alone is looked at, as its users run it: what becomes of logs and traces that nobody reads, what a trace shows, and how
// mcpwire call behaves with signals and with servers that fill their answers.

// unread starts a command whose stderr is a pipe that nobody reads but the test. It is killed at the end, if it still runs.
func unread(t *testing.T, cmd *exec.Cmd) *bufio.Reader {
	t.Helper()
	stderr, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		stderr.Close()
	})
	return bufio.NewReaderSize(stderr, 16) // which takes little more than the test reads
}

// serveUnread starts a server over HTTP in that way. What it prints after the line with its URL is left for the test.
func serveUnread(t *testing.T, flags ...string) (server *exec.Cmd, url string, stderr *bufio.Reader) {
	t.Helper()
	server = exec.Command(mcpwire, append([]string{"-http", "127.0.0.1:0"}, flags...)...)
	stderr = unread(t, server)
	line, err := stderr.ReadString('\n')
	if url = regexp.MustCompile(`http://\S+`).FindString(line); url == "" {
		t.Fatal(line, err)
	}
	return server, url, stderr
}

// ends fails the test if a command does not end well, and soon.
func ends(t *testing.T, cmd *exec.Cmd) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	select {
	case err := <-ended:
		if err != nil {
			t.Error("it ends badly:", err)
		}
	case <-time.After(limit / 3):
		t.Error("it does not end")
		cmd.Process.Kill()
		<-ended
	}
}

func echoCall(id int, size int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}}}`, id, strings.Repeat("x", size))
}

const (
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	ping  = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	pong  = `{"jsonrpc":"2.0","id":1,"result":{}}`
)

// A log that nobody reads holds up no answer, nor the end. What a client has sent stands in it only in brief.
func TestUnreadLog(t *testing.T) {
	server, url, log := serveUnread(t)
	v := visit(t, url)
	for range 400 { // which fill a pipe several times
		if resp := v.do(t, strings.Repeat("A", 7000), nil, ""); resp.StatusCode != 405 {
			t.Fatal(resp.Status)
		}
	}
	if text := v.call(t, "ping", "{}"); !strings.Contains(text, `"result":{}`) {
		t.Error(text)
	}
	if resp := v.do(t, "DELETE", nil, ""); resp.StatusCode/100 != 2 {
		t.Error(resp.Status)
	}
	server.Process.Signal(syscall.SIGTERM)
	ends(t, server)
	for {
		line, err := log.ReadString('\n')
		if len(line) > 1000 {
			t.Errorf("%d bytes in a line: %.200s", len(line), line)
		}
		if err != nil {
			break
		}
	}
}

// A log whose reader has gone ends nothing.
func TestLogWithoutReader(t *testing.T) {
	server := exec.Command(mcpwire, "-http", "127.0.0.1:0")
	pipe, err := server.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	line, _ := bufio.NewReader(pipe).ReadString('\n')
	pipe.Close()
	v := &visitor{url: regexp.MustCompile(`http://\S+`).FindString(line), session: "x"}
	for range 3 {
		if resp := v.do(t, "POST", nil, ping); resp.StatusCode != 404 {
			t.Error(resp.Status)
		}
	}
	server.Process.Signal(syscall.SIGTERM)
	ends(t, server)
}

// A trace that nobody reads holds up nothing, at either end.
func TestUnreadTrace(t *testing.T) {
	for _, args := range [][]string{{"-trace"}, {"bridge", "-trace", mcpwire}} {
		cmd := exec.Command(mcpwire, args...)
		in, _ := cmd.StdinPipe()
		out, _ := cmd.StdoutPipe()
		log := unread(t, cmd)
		answers := bufio.NewReader(out)
		ask := func(line string) {
			t.Helper()
			io.WriteString(in, line+"\n")
			answered := time.AfterFunc(limit/3, func() { cmd.Process.Kill() })
			defer answered.Stop()
			if text, err := answers.ReadString('\n'); err != nil || len(text) < len(pong) {
				t.Fatalf("%q: %.100s: %.100q, %v", args, line, text, err)
			}
		}
		ask(hello)
		for i := range 400 {
			ask(echoCall(i+1, 500))
		}
		for i := range 20 {
			ask(echoCall(i+1, 1<<20))
		}
		ask(ping)
		in.Close()
		go io.Copy(io.Discard, log)
		ends(t, cmd)
	}

	client := exec.Command(mcpwire, "call", "-i", "-trace", mcpwire)
	client.Stdin = strings.NewReader(strings.Repeat(`tools/call {"name":"echo","arguments":{"text":"`+strings.Repeat("x", 500)+`"}}`+"\n", 400))
	var results bytes.Buffer
	client.Stdout = &results
	unread(t, client)
	ends(t, client)
	if got := strings.Count(results.String(), "\n"); got != 400 {
		t.Errorf("call: %d results", got)
	}
}

// A trace shows what the program itself takes in: of a request that is refused no body is read for it, and of a body no more than -max-body.
// Only a session that was given its id has a name.
func TestTraceAfterGuard(t *testing.T) {
	server, url, log := serveUnread(t, "-trace", "-token", "secret", "-max-body", "1000")
	conn, err := net.Dial("tcp", strings.TrimSuffix(strings.TrimPrefix(url, "http://"), "/mcp"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(limit))
	fmt.Fprint(conn, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 50000000\r\n\r\n{")
	if line, err := bufio.NewReader(conn).ReadString('\n'); err != nil || !strings.Contains(line, " 401 ") {
		t.Errorf("before its body came: %q, %v", line, err)
	}
	v := &visitor{url: url}
	for i := range 20 {
		if resp := v.do(t, "POST", map[string]string{"Mcp-Session-Id": fmt.Sprint("invented-", i)}, `{"invented":1}`); resp.StatusCode != 401 {
			t.Error(resp.Status)
		}
	}
	r, _ := http.NewRequest("POST", url, io.MultiReader(strings.NewReader(`"`), strings.NewReader(strings.Repeat("invented ", 1000)))) // of unknown size
	r.Header = http.Header{"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"}, "Authorization": {"Bearer secret"}}
	if resp, err := http.DefaultClient.Do(r); err != nil || resp.StatusCode != 413 {
		t.Error(resp, err)
	}
	token := map[string]string{"Authorization": "Bearer secret"}
	v.session = v.do(t, "POST", token, hello).Header.Get("Mcp-Session-Id")
	v.do(t, "DELETE", token, "")
	server.Process.Signal(syscall.SIGTERM)
	text, _ := io.ReadAll(log)
	trace := string(text)
	if strings.Contains(trace, "invented") || !strings.Contains(trace, "\n(not read to its end)\n-- server V --\n413\n") {
		t.Error("it shows what was not let in:", trace)
	}
	if !strings.Contains(trace, "\nMcp-Session-Id: session-1\n") || strings.Contains(trace, "session-2") {
		t.Error("names of sessions:", trace)
	}
}

// modernStub serves 2026-07-28, and returns its URL. A function answers what is not server/discover.
func modernStub(t *testing.T, answer func(w http.ResponseWriter, id string)) string {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var m struct {
			ID     json.RawMessage
			Method string
		}
		json.NewDecoder(r.Body).Decode(&m)
		if m.Method != "server/discover" {
			answer(w, string(m.ID))
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}}}}`, m.ID)
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return server.URL
}

// That no connection can be accepted is logged.
func TestAcceptFails(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("descriptors have no such limit")
	}
	server := exec.Command("sh", "-c", `ulimit -n 16 && exec "$0" "$@"`, mcpwire, "-http", "127.0.0.1:0")
	log := unread(t, server)
	line, _ := log.ReadString('\n')
	for range 20 {
		conn, err := net.Dial("tcp", regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
	}
	defer time.AfterFunc(limit, func() { server.Process.Kill() }).Stop()
	for !regexp.MustCompile(`level=WARN msg="http: Accept error: .*too many open files`).MatchString(line) {
		var err error
		if line, err = log.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
}

// A reader of standard output that has gone ends the command, whatever is still to be called.
func TestCallEndsWithItsReader(t *testing.T) {
	for _, args := range [][]string{{"call", "-i", mcpwire}, {"call", mcpwire}} {
		reader, writer, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		var stderr bytes.Buffer
		cmd := exec.Command(mcpwire, args...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = endless("tools/list\n"), writer, &stderr
		reader.Close()
		err = cmd.Start()
		writer.Close()
		if err == nil {
			err = cmd.Wait()
		}
		if cmd.ProcessState.ExitCode() != 1 || strings.Count(stderr.String(), "\n") != 1 || !strings.Contains(stderr.String(), "standard output") {
			t.Errorf("%v: %v\n%s", args, err, stderr.String())
		}
	}
}

// endless is a Reader that repeats a text.
type endless string

func (e endless) Read(b []byte) (int, error) { return copy(b, e), nil }

// Who reads a result and what is said beside it in one place reads them in order.
func TestCallInOrder(t *testing.T) {
	cmd := exec.Command(mcpwire, "call", "-i", mcpwire)
	cmd.Stdin = strings.NewReader(strings.Repeat(`tools/call {"name":"count","arguments":{"n":3}}`+"\n", 50) + "none\n")
	text, _ := cmd.CombinedOutput()
	if !regexp.MustCompile(`^((notifications/progress .*\n){3}\{.*counted to 3.*\n){50}mcpwire: none: .*\n`).Match(text) {
		t.Errorf("%s", text)
	}
}

// A command starts in the directory and with the environment that the flags say. The rest of the environment is the caller's.
func TestCallSetsUpItsCommand(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	command := []string{"sh", "-c", `echo "in $(pwd), A=$A, B=$B, C=$C" >&2; exec "$0"`, mcpwire}
	flags := []string{mcpwire, "call", "-cwd", dir, "-env", "A=1 2", "-env", "B=", "-method", "tools/list"}
	out := run(t, []string{"A=0", "B=0", "C=0"}, "", append(flags, command...)...)
	if want := fmt.Sprintf("in %s, A=1 2, B=, C=0\n", dir); out.exit != 0 || out.stderr != want {
		t.Errorf("exit %d, %q, want %q", out.exit, out.stderr, want)
	}
}

// KEY=@FILE reads a file: for a string as it is, for any other type as JSON. A file that is too large, or no text, is refused before a server
// is started.
func TestCallReadsArguments(t *testing.T) {
	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return "@" + path
	}
	text := "[1]\n\"two\" \u00e9\n"
	out := run(t, nil, "", mcpwire, "call", "-tool", "echo", "-arg", "text="+file("text", text), "-arg", "repeat="+file("number", " 2\n"), mcpwire)
	encoded, _ := json.Marshal(text + text)
	out.check(t, 0, `{"content":[{"type":"text","text":`+string(encoded)+`}]}`, "")
	for _, row := range []struct{ arg, want string }{
		{"repeat=" + file("word", "two"), `^mcpwire: the argument 'repeat' must be integer, not "two"; the tool is echo\(text string, repeat\? integer\)\n$`},
		{"text=" + file("binary", "\xff"), `^mcpwire: .*: "text" is not UTF-8 \(-h for help\)\n$`},
		{"text=@" + dir, `^mcpwire: .*is a directory \(-h for help\)\n$`},
	} {
		out := run(t, nil, "", mcpwire, "call", "-tool", "echo", "-arg", row.arg, mcpwire)
		if out.exit != 2 || !regexp.MustCompile(row.want).MatchString(out.stderr) {
			t.Errorf("%s: exit %d, %s", row.arg, out.exit, out.stderr)
		}
	}
}

// However a server fills its answers, call needs little more memory than they have bytes.
func TestCallIsBounded(t *testing.T) {
	many := func(size int, text string) string {
		return strings.TrimSuffix(strings.Repeat(text+",", size/(len(text)+1)), ",")
	}
	var marks []string
	for i := range 10000 {
		marks = append(marks, fmt.Sprintf(`"p%d":{"type":"string","x-mcp-header":"H%[1]d"}`, i))
	}
	marked := `{"name":"x","inputSchema":{"properties":{` + strings.Repeat(`"a":{"properties":{`, 60) + strings.Join(marks, ",") + strings.Repeat("}}", 60) + `}}}`
	long := `"` + strings.Repeat("x", 1<<20) + `"`
	for _, row := range []struct {
		name  string
		tools string // the members of the result of tools/list
		want  string // part of stderr
	}{
		{"tools without a name", `"tools":[` + many(10<<20, `{}`) + `]`, "tools/list: more than 16777216 bytes in the list"},
		{"a large schema", `"tools":[{"name":"x","inputSchema":{"x-mcp-header":"a","a":[` + many(10<<20, `[]`) + `]}}]`, "the schema has more than 1048576 bytes"},
		{"marks", `"tools":[` + many(3<<20, marked) + `]`, "is left out"},
		{"pages without an end", `"tools":[{"name":` + long + `}],"nextCursor":"x"`, "tools/list: more than 16777216 bytes in the list"},
	} {
		url := modernStub(t, func(w http.ResponseWriter, id string) {
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprintf(w, `{"jsonrpc":"2.0","id":%s,"result":{%s}}`, id, row.tools)
		})
		var stderr bytes.Buffer
		cmd := exec.Command(mcpwire, "call", url)
		cmd.Env = append(os.Environ(), "GODEBUG=gctrace=1") // a line for each collection, such as "…, 9->10->5 MB, 11 MB goal, …"
		cmd.Stderr = &stderr
		cmd.Run()
		peak := 0
		for _, heap := range regexp.MustCompile(`->(\d+)->\d+ MB`).FindAllStringSubmatch(stderr.String(), -1) {
			n, _ := strconv.Atoi(heap[1])
			peak = max(peak, n)
		}
		if !strings.Contains(stderr.String(), row.want) || peak == 0 || peak > 200 {
			t.Errorf("%s: %v, a heap of %d MB\n%.1000s", row.name, cmd.ProcessState, peak, stderr.String())
		}
	}
}

// A signal ends -i although it waits for a line. No help tells a key.
func TestCallIsSignalled(t *testing.T) {
	cmd := exec.Command(mcpwire, "call", "-i", mcpwire)
	in, _ := cmd.StdinPipe()
	out, _ := cmd.StdoutPipe()
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(in, "tools/list")
	bufio.NewReader(out).ReadString('\n')
	cmd.Process.Signal(syscall.SIGTERM)
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != 1 {
		t.Error(err)
	}
	if out := run(t, []string{"MCPWIRE_STATE_KEY=s3cret"}, "", mcpwire, "-h"); out.exit != 0 || strings.Contains(out.stdout, "s3cret") {
		t.Error(out)
	}
}

// groupAlive reports whether a process of a group still runs, where that can be seen.
func groupAlive(group int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	return slices.ContainsFunc(stats, func(path string) bool {
		stat, _ := os.ReadFile(path)
		var state string
		var parent, in int
		_, after, _ := strings.Cut(string(stat), ") ")
		_, err := fmt.Sscan(after, &state, &parent, &in)
		return err == nil && in == group && state != "Z"
	})
}

// A server that cannot be connected to is shut down as any other: call does not end before it.
func TestCallLeavesNoChild(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	out := run(t, nil, "", mcpwire, "call", "-timeout", "500ms", "sh", "-c", `echo $$ > "$0"; exec sleep 60`, file)
	text, err := os.ReadFile(file)
	pid, _ := strconv.Atoi(strings.TrimSpace(string(text)))
	if out.exit != 1 || err != nil || pid == 0 || groupAlive(pid) {
		t.Errorf("%v, process %d", err, pid)
	}
}

// When its terminal is closed, call shuts its server down before it ends, even one that takes no notice of the end of its input. Where
// SIGHUP is ignored, as nohup has it, call goes on.
func TestCallHangsUp(t *testing.T) {
	for _, nohup := range []bool{false, true} {
		file := filepath.Join(t.TempDir(), "pid")
		shell := `exec "$0" "$@"`
		if nohup {
			shell = `trap "" HUP; ` + shell
		}
		cmd := exec.Command("sh", "-c", shell, mcpwire, "call", "-timeout", "1m", "sh", "-c", `echo $$ > "$0"; exec sleep 60`, file)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pid int
		eventually(t, "the server has started", func() bool {
			text, _ := os.ReadFile(file)
			n, _ := fmt.Sscanln(string(text), &pid)
			return n == 1
		})
		cmd.Process.Signal(syscall.SIGHUP)
		cmd.Process.Signal(syscall.SIGHUP) // the shell sends one, and the system another
		if nohup {
			cmd.Process.Signal(syscall.SIGTERM)
		}
		cmd.Wait()
		if cmd.ProcessState.ExitCode() != 1 || groupAlive(pid) {
			t.Errorf("nohup %v: %v, and the server runs: %v", nohup, cmd.ProcessState, groupAlive(pid))
		}
	}
}
