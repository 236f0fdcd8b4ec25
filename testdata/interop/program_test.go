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
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"interop/shared"
)

// Here the program alone is looked at, as its users run it: what becomes of logs and traces that nobody reads, what a trace shows, and how
// mcpwire call behaves with signals and with servers that fill their answers.

// ---- A client made of lines ----

// lineClient is a command to which a test writes lines, and whose lines it reads.
type lineClient struct {
	*exec.Cmd
	in     io.WriteCloser
	out    io.ReadCloser
	lines  *bufio.Reader
	stderr shared.Output
	mu     sync.Mutex // held while a line is written
}

// line is a message as it is read.
type line struct {
	ID     json.RawMessage
	Method string
	Result struct {
		Content []struct{ Text string }
		Tools   []struct{ Name string }
	}
	Error struct {
		Code    int
		Message string
	}
}

// newLines returns a command that has not been started.
func newLines(t *testing.T, to ...string) *lineClient {
	t.Helper()
	c := &lineClient{Cmd: exec.Command(to[0], to[1:]...)}
	in, err := c.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.in, c.out, c.lines, c.Stderr = in, out, bufio.NewReader(out), &c.stderr
	return c
}

// start starts it. It is killed when the test is over, if it still runs.
func (c *lineClient) start(t *testing.T) {
	t.Helper()
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Process.Kill()
		c.Wait()
		t.Logf("%v\n%.10000s", c.Cmd, c.stderr.String())
	})
}

func startLines(t *testing.T, to ...string) *lineClient {
	t.Helper()
	c := newLines(t, to...)
	c.start(t)
	return c
}

func (c *lineClient) send(t *testing.T, line string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, err := io.WriteString(c.in, line+"\n"); err != nil {
		t.Error(err)
	}
}

// next returns the next message.
func (c *lineClient) next(t *testing.T) (m line) {
	t.Helper()
	late := time.AfterFunc(limit/2, func() { c.Process.Kill() })
	defer late.Stop()
	text, err := c.lines.ReadString('\n')
	if err == nil {
		err = json.Unmarshal([]byte(text), &m)
	}
	if err != nil {
		t.Fatalf("%v: %q", err, text)
	}
	return m
}

// answerTo reads up to the answer to a call.
func (c *lineClient) answerTo(t *testing.T, id string) line {
	t.Helper()
	for {
		m := c.next(t)
		if string(m.ID) == id && m.Method == "" {
			return m
		}
	}
}

// group returns the process group of a server that has said its id first.
func (c *lineClient) group(t *testing.T) (id int) {
	t.Helper()
	eventually(t, "a server that says its id", func() bool {
		n, _ := fmt.Sscanln(c.stderr.String(), &id)
		return n == 1
	})
	return id
}

// exits waits for the end of a command, which has to come so soon, and with this status.
func exits(t *testing.T, cmd *exec.Cmd, status int, within time.Duration) {
	t.Helper()
	began := time.Now()
	late := time.AfterFunc(limit/2, func() { cmd.Process.Kill() })
	defer late.Stop()
	cmd.Wait()
	took := time.Since(began)
	if got := cmd.ProcessState.ExitCode(); got != status || took > within {
		t.Errorf("exit status %d after %v, want %d within %v", got, took, status, within)
	}
}

// ---- Logs and traces ----

// unread starts a command whose stderr is a pipe that nobody reads but the test. It is killed at the end, if it still runs.
func unread(t *testing.T, cmd *exec.Cmd) (stderr *os.File) {
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
	return stderr
}

func echoCall(id int, size int) string {
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"echo","arguments":{"text":"%s"}}}`, id, strings.Repeat("x", size))
}

const (
	hello = `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"t","version":"0"}}}`
	ping  = `{"jsonrpc":"2.0","id":1,"method":"ping"}`
	pong  = `{"jsonrpc":"2.0","id":1,"result":{}}`

	endlessCall = `{"jsonrpc":"2.0","id":"endless","method":"tools/call","params":{"name":"count","arguments":{"n":1000,"delayMs":100},"_meta":{"progressToken":1}}}`
)

// A trace that nobody reads holds up nothing, at either end.
func TestUnreadTrace(t *testing.T) {
	for _, args := range [][]string{{"-trace"}, {"bridge", "-trace", mcpwire}} {
		c := newLines(t, append([]string{mcpwire}, args...)...)
		log := unread(t, c.Cmd)
		ask := func(line string) {
			t.Helper()
			c.send(t, line)
			if m := c.next(t); m.Error.Code != 0 {
				t.Fatalf("%q: %.100s: %+v", args, line, m)
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
		c.in.Close()
		go io.Copy(io.Discard, log)
		exits(t, c.Cmd, 0, limit/3)
	}

	const calls = 200 // call waits 50 ms for its trace before it prints a result
	client := exec.Command(mcpwire, "call", "-i", "-trace", mcpwire)
	client.Stdin = strings.NewReader(strings.Repeat(`tools/call {"name":"echo","arguments":{"text":"`+strings.Repeat("x", 500)+`"}}`+"\n", calls))
	var results bytes.Buffer
	client.Stdout = &results
	unread(t, client)
	exits(t, client, 0, limit/3)
	if got := strings.Count(results.String(), "\n"); got != calls {
		t.Errorf("call: %d results", got)
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
	log := bufio.NewReader(unread(t, server))
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
		c := newLines(t, append([]string{mcpwire}, args...)...)
		c.Stdin = endless("tools/list\n")
		c.out.Close()
		c.start(t)
		exits(t, c.Cmd, 1, limit/3)
		if stderr := c.stderr.String(); strings.Count(stderr, "\n") > 2 || !strings.HasPrefix(stderr, "mcpwire: write /dev/stdout: broken pipe\n") {
			t.Errorf("%v: %s", args, stderr)
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

// ---- Signals, and the end ----

// A signal ends -i although it waits for a line. No help tells a key.
func TestCallIsSignalled(t *testing.T) {
	c := startLines(t, mcpwire, "call", "-i", mcpwire)
	c.send(t, "tools/list")
	c.next(t)
	c.Process.Signal(syscall.SIGTERM)
	exits(t, c.Cmd, 1, limit/3)
	if out := run(t, []string{"MCPWIRE_STATE_KEY=s3cret"}, "", mcpwire, "-h"); out.exit != 0 || strings.Contains(out.stdout, "s3cret") {
		t.Error(out)
	}
}

// A server that cannot be connected to is shut down as any other: call does not end before it.
func TestCallLeavesNoChild(t *testing.T) {
	out := run(t, nil, "", mcpwire, "call", "-timeout", "500ms", "sh", "-c", `echo $$ >&2; exec sleep 60`)
	var pid int
	if fmt.Sscanln(out.stderr, &pid); out.exit != 1 || pid == 0 || shared.GroupAlive(pid) {
		t.Errorf("exit %d, process %d", out.exit, pid)
	}
}

// At a signal, as when its terminal is closed, call shuts its server down before it ends, even one that takes no notice of the end of its
// input. A second signal does not keep it from that, unless it is the interrupt of a user who does not want to wait. Where SIGHUP is
// ignored, as nohup has it, call goes on.
func TestCallShutsDownThoughSignalled(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here")
	}
	for _, row := range []struct {
		first, second os.Signal
		left, nohup   bool
	}{
		{first: syscall.SIGHUP, second: syscall.SIGTERM}, // the end of a login session
		{first: syscall.SIGHUP, second: syscall.SIGHUP},  // the shell sends one, and the system another
		{first: syscall.SIGTERM, second: syscall.SIGHUP},
		{first: syscall.SIGTERM, second: syscall.SIGTERM},
		{first: os.Interrupt, second: syscall.SIGTERM},
		{first: syscall.SIGHUP, second: os.Interrupt, left: true},
		{first: os.Interrupt, second: os.Interrupt, left: true},
		{first: syscall.SIGTERM, second: syscall.SIGHUP, nohup: true},
	} {
		t.Run(fmt.Sprintf("%v, %v, nohup %v", row.first, row.second, row.nohup), func(t *testing.T) {
			t.Parallel() // each takes the grace
			shell := `exec "$0" "$@"`
			if row.nohup {
				shell = `trap "" HUP; ` + shell
			}
			c := startLines(t, "sh", "-c", shell, mcpwire, "call", "sh", "-c", `echo $$ >&2; cat >/dev/null; echo end of input >&2; exec sleep 60`)
			group := c.group(t)
			if row.nohup {
				c.Process.Signal(syscall.SIGHUP)
				if time.Sleep(300 * time.Millisecond); strings.Contains(c.stderr.String(), "end of input") {
					t.Error("call does not go on")
				}
			}
			c.Process.Signal(row.first)
			eventually(t, "the end of its input", func() bool { return strings.Contains(c.stderr.String(), "end of input\n") })
			c.Process.Signal(row.second)
			c.Wait()
			if alive := shared.GroupAlive(group); alive != row.left || !alive && c.ProcessState.ExitCode() != 1 {
				t.Errorf("call: %v; the server is alive: %v", c.ProcessState, alive)
			}
			syscall.Kill(-group, syscall.SIGKILL)
		})
	}
}

// SIGTERM, SIGINT and a closed stdout end the server quickly, with exit 0, even while it is busy.
func TestServeStops(t *testing.T) {
	for how, stop := range map[string]func(c *lineClient){
		"SIGTERM": func(c *lineClient) { c.Process.Signal(syscall.SIGTERM) },
		"SIGINT":  func(c *lineClient) { c.Process.Signal(os.Interrupt) },
		"a closed stdout": func(c *lineClient) {
			c.out.Close()
			c.send(t, ping)
		},
	} {
		for _, call := range []string{"", endlessCall} {
			t.Run(fmt.Sprintf("%s, busy %v", how, call != ""), func(t *testing.T) {
				c := startLines(t, mcpwire)
				c.send(t, hello)
				c.next(t)
				if call != "" {
					c.send(t, call)
					c.next(t)
				}
				stop(c)
				io.Copy(io.Discard, c.lines)
				exits(t, c.Cmd, 0, 4*time.Second)
			})
		}
	}
}

// ---- Standard input ----

// A standard input that others have after us is as it was when we are gone, however we end: it blocks, or does not block.
func TestStandardInputIsRestored(t *testing.T) {
	if _, err := os.Stat("/proc/self/fdinfo/0"); err != nil {
		t.Skip("the flags of a descriptor cannot be read here:", err)
	}
	flags := func(pid int) (n int) {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/fdinfo/0", pid))
		_, after, _ := strings.Cut(string(text), "flags:")
		fmt.Sscanf(after, "%o", &n)
		return n & syscall.O_NONBLOCK
	}
	for _, how := range []string{"end of input", "signal"} {
		for _, before := range []int{0, syscall.O_NONBLOCK} {
			r, w, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			other := exec.Command("sleep", "60") // shares the input with the server, as the shell does
			other.Stdin = r
			if err := other.Start(); err != nil {
				t.Fatal(err)
			}
			c := newLines(t, mcpwire)
			if before != 0 { // by another program, before it
				c = newLines(t, "sh", "-c", unblocks+`=1 "$0"; exec "$1"`, os.Args[0], mcpwire)
			}
			c.Stdin, c.in = r, w
			c.start(t)
			c.send(t, hello)
			c.next(t)
			if how == "signal" {
				c.Process.Signal(syscall.SIGTERM)
			} else {
				w.Close()
			}
			exits(t, c.Cmd, 0, limit/3)
			if after := flags(other.Process.Pid); after != before {
				t.Errorf("%s: the flag was %o, and is %o", how, before, after)
			}
			other.Process.Kill()
			other.Wait()
			r.Close()
			w.Close()
		}
	}
}

// One socket as stdin and stdout, as inetd has it: answers larger than its buffer arrive whole.
func TestServeOnOneSocket(t *testing.T) {
	ends, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	client, server := os.NewFile(uintptr(ends[0]), "client"), os.NewFile(uintptr(ends[1]), "server")
	defer client.Close()
	cmd := exec.Command(mcpwire)
	cmd.Stdin, cmd.Stdout = server, server
	err = cmd.Start()
	server.Close()
	if err != nil {
		t.Fatal(err)
	}
	const lists = 300 // whose answers are larger than all buffers
	fmt.Fprintf(client, "%s\n%s", hello, strings.Repeat(`{"jsonrpc":"2.0","id":2,"method":"tools/list"}`+"\n", lists))
	time.Sleep(50 * time.Millisecond) // let it fill the buffer
	r := bufio.NewReader(client)
	for i := range 1 + lists {
		if line, err := r.ReadString('\n'); !json.Valid([]byte(line)) || err != nil {
			t.Fatalf("answer %d: %.200q, %v", i, line, err)
		}
	}
	syscall.Shutdown(ends[0], syscall.SHUT_WR)
	exits(t, cmd, 0, limit/3)
}
