//go:build linux

package load

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"interop/shared"
)

// What an attack may do to the server and to its other clients.
const (
	maxMemory = 300 << 20        // bytes that the server needs more than when it is idle
	maxWait   = time.Second      // for the median answer to somebody else; the slowest says more about the machine
	maxFiles  = 50               // descriptors of a server that may have 256, two seconds after its clients have gone
	patience  = 20 * time.Second // of somebody else: what takes longer has failed
	rest      = 20 * time.Second // for one step of an attacker
	stands    = 4 * time.Second  // for which most attacks last
)

// TestAttack attacks a server that is a process of its own, in one way in each test. It measures the memory of the server, its descriptors,
// and how long others wait. Each mostly waits, so as many run at once as there are cores (-parallel):
//
//	go test -run 'TestAttack/LargeUnread' -v ./load
//
// The debug listener of the server has net/http/pprof, to look at while an attack stands.
func TestAttack(t *testing.T) {
	program := buildAttacked(t)
	largeHeader, largeBody := modernCall("large", "{}", "")
	icons := `{"name":"icons","version":"1","icons":[{}` + strings.Repeat(",{}", 4_000_000/len(",{}")) + "]}"
	iconsHeader, iconsBody := modernCall("count", fmt.Sprintf(`{"n":%d,"delayMs":1000}`, endless), icons)
	var junk strings.Builder // members that nobody knows
	for i := 0; junk.Len() < 4_000_000; i++ {
		fmt.Fprintf(&junk, `"%x":1,`, i)
	}
	listHeader, listBody := modernCall("count", `{"n":1}`, "")
	with := func(member, text string) string { return strings.Replace(listBody, member, member+text, 1) }
	for _, test := range []struct {
		name  string
		run   func(*target)
		files int // descriptors that the server may have; 0: as many as this process
	}{
		{name: "LargeUnread/Session", run: flood{in: legacy, sessions: 1, calls: 200, accept: onlyEvents, body: largeCall}.run},
		{name: "LargeUnread/Modern", run: flood{header: largeHeader, calls: 200, accept: onlyJSON, body: largeBody}.run},
		{name: "LargeUnread/SSE", run: (*target).attackWithUnreadSSE},
		{name: "Batches", run: flood{in: "2025-03-26", sessions: 4, calls: 8, body: batchOf(slices.Repeat([]string{largeCall}, 256))}.run},
		{name: "BatchReadLate", run: (*target).attackWithBatch},
		// Each of a response that is large and one that does not come.
		{name: "BatchesHeld", run: flood{in: "2025-03-26", sessions: 20, calls: 20, body: batchOf([]string{largeCall, countCall("2", endless, 1000, "")})}.run},
		// It measures before the server has lost its patience, which takes 30 seconds.
		{name: "UnreadProgress", run: flood{in: legacy, sessions: 2, calls: 2000, stands: 12 * time.Second,
			body: countCall("%d", 100_000, 10, strings.Repeat("x", 1000))}.run},
		{name: "Departed", run: (*target).attackWithDepartedCalls},
		{name: "DepartedMany", run: (*target).attackWithManyDepartedCalls},
		{name: "EchoesUnread", run: (*target).attackWithUnreadEchoes},
		{name: "AnnouncedBodies", run: (*target).attackWithAnnouncedBodies},
		{name: "CutOff", run: (*target).attackWithCutStreams},
		{name: "ManyConversations", run: (*target).attackWithConversations},
		// 4 MB of the shortest icons there are, in requests that run on.
		{name: "Icons", run: flood{header: iconsHeader, calls: 5, body: iconsBody}.run},
		// 4 MB of the shortest members there are, in different places.
		{name: "Members/Message", run: flood{header: listHeader, calls: 8, body: with(`{`, junk.String())}.run},
		{name: "Members/Params", run: flood{header: listHeader, calls: 8, body: with(`"params":{`, `"requestState":"x",`+junk.String())}.run},
		{name: "Members/Answers", run: flood{header: listHeader, calls: 8,
			body: with(`"params":{`, `"inputResponses":{`+junk.String()+`"x":1},`)}.run},
		// A refusal repeats the id.
		{name: "RefusedUnread", run: flood{header: strings.Replace(listHeader, "2026", "1999", 1), calls: 60,
			body: strings.Replace(listBody, `"id":1`, `"id":"`+strings.Repeat("x", 4_000_000)+`"`, 1)}.run},
		{name: "FewDescriptors/Events", run: func(s *target) { s.attackDescriptors(both) }, files: 256},
		{name: "FewDescriptors/JSON", run: func(s *target) { s.attackDescriptors(onlyJSON) }, files: 256},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			test.run(start(t, program, test.files))
		})
	}
}

// flood is an attack with many calls whose clients read nothing.
type flood struct {
	in       string // the version of the sessions, which take turns
	sessions int    // 0: the calls are modern
	header   string // of modern calls
	calls    int
	body     string        // %d is the id
	accept   string        // "": both
	stands   time.Duration // 0: stands
}

func (f flood) run(s *target) {
	headers := []string{f.header}
	for i := range f.sessions {
		headers = append(headers[:i], inSession(s.open(f.in)))
	}
	w := s.watch()
	for i := range f.calls {
		s.post(cmp.Or(f.accept, both), headers[i%len(headers)], strings.Replace(f.body, "%d", fmt.Sprint(i+1), 1))
	}
	time.Sleep(cmp.Or(f.stands, stands))
	w.end()
}

// buildAttacked builds the server.
func buildAttacked(t *testing.T) (program string) {
	program = filepath.Join(t.TempDir(), "attacked")
	err := shared.Go("..", "run", "./copywire", "-check")
	if err == nil {
		err = shared.Go(".", "build", "-race=false", "-o", program, "./attacked") // the race detector would need memory of its own
	}
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// ---- The attacks ----

const (
	endless   = 1_000_000_000
	largeCall = `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":{"name":"large","arguments":{}}}`
)

// countCall returns a call of count in a session. token may be "".
func countCall(id string, n, delayMs int, token string) string {
	meta := ""
	if token != "" {
		meta = fmt.Sprintf(`,"_meta":{"progressToken":%q}`, token)
	}
	return fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"tools/call","params":{"name":"count","arguments":{"n":%d,"delayMs":%d}%s}}`, id, n, delayMs, meta)
}

// modernCall returns a modern call of a tool. info is an object, or "".
func modernCall(tool, arguments, info string) (header, body string) {
	header = fmt.Sprintf("Mcp-Protocol-Version: %s\r\nMcp-Method: tools/call\r\nMcp-Name: %s\r\n", modern, tool)
	if info != "" {
		info = `,"io.modelcontextprotocol/clientInfo":` + info
	}
	body = fmt.Sprintf(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":%q,"arguments":%s,`+
		`"_meta":{"io.modelcontextprotocol/protocolVersion":"%s","io.modelcontextprotocol/clientCapabilities":{}%s}}}`, tool, arguments, modern, info)
	return header, body
}

func batchOf(calls []string) string {
	numbered := make([]string, len(calls))
	for i, call := range calls {
		numbered[i] = strings.Replace(call, "%d", fmt.Sprint(i+1), 1)
	}
	return "[" + strings.Join(numbered, ",") + "]"
}

// One batch, whose client reads nothing for some seconds. Then it reads all, and finds a response to each call: an error, where there was no room.
func (s *target) attackWithBatch() {
	calls := slices.Repeat([]string{largeCall}, 256)
	session := s.open("2025-03-26")
	w := s.watch()
	conn := s.post(both, inSession(session), batchOf(calls))
	time.Sleep(stands)
	w.end()
	_ = conn.SetDeadline(time.Now().Add(3 * rest)) // all that there is, through a small buffer
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		s.Error(err)
		return
	}
	defer resp.Body.Close()
	const name = `jsonrpc"`
	size, responses := 0, 0
	for chunk, kept := make([]byte, 1<<20), 0; responses < len(calls); {
		n, err := resp.Body.Read(chunk[kept:])
		size += n
		text := chunk[:kept+n]
		responses += bytes.Count(text, []byte(name))
		kept = copy(chunk, text[max(0, len(text)-len(name)+1):]) // a name may be cut in two
		if err != nil && responses < len(calls) {
			s.Errorf("%d bytes with %d of %d responses, then %v", size, responses, len(calls), err)
			return
		}
	}
	s.Logf("%d bytes with the last of %d responses", size, responses)
}

// 200 echoes of nearly 4 MiB, whose clients read nothing.
func (s *target) attackWithUnreadEchoes() {
	session := s.open(legacy)
	text := strings.Repeat("x", 4_000_000)
	w := s.watch()
	var all sync.WaitGroup
	for i := range 200 {
		conn := s.dial()
		body := fmt.Sprintf(callOfEcho, i+1, `{"text":"`+text+`"}`)
		all.Go(func() {
			_, _ = io.WriteString(conn, s.head(both, inSession(session), len(body))+body) // the server may hang up
		})
	}
	all.Wait()
	time.Sleep(stands)
	w.end()
}

// 100 clients that announce 4 MiB, and send one byte. The others have calls of 64 KiB meanwhile.
func (s *target) attackWithAnnouncedBodies() {
	session := s.open(legacy)
	w := s.watch()
	for range 100 {
		_, _ = io.WriteString(s.dial(), s.head(both, inSession(session), 4<<20)+" ")
	}
	body := fmt.Sprintf(callOfEcho, 1, `{"text":"`+strings.Repeat("x", 64<<10)+`"}`)
	for range 20 {
		if _, _, err := s.ask("POST", body, s.session, both); err != nil {
			s.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	w.end()
}

// 120 sessions with small calls whose answers are 4 MB, and are kept: all connections are cut off before the answer comes.
func (s *target) attackWithCutStreams() {
	const body = `{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"late","arguments":{}}}`
	w := s.watch()
	for range 10 {
		var conns []net.Conn
		for range 12 {
			conns = append(conns, s.post(both, inSession(s.open(legacy)), body))
		}
		for _, conn := range conns {
			readHeader(conn)
			conn.Close()
		}
	}
	time.Sleep(stands)
	w.end()
}

const callOfEcho = `{"jsonrpc":"2.0","id":%v,"method":"tools/call","params":{"name":"echo","arguments":%s}}`

// 2,000 calls that report their progress, and whose clients have gone.
func (s *target) attackWithDepartedCalls() {
	headers := []string{inSession(s.open(legacy)), inSession(s.open(legacy))}
	w := s.watch()
	for i := range 2000 {
		conn := s.post(both, headers[i%2], countCall(fmt.Sprint(i+1), endless, 20, "t"))
		if i%20 == 0 { // the others go before their response has begun
			readHeader(conn)
		}
		conn.Close()
	}
	time.Sleep(stands)
	w.end()
}

// 16,384 calls whose clients have gone: more than may run at once. Sessions can be opened meanwhile. When those of the attacker have been idle for
// too long, there are places again.
func (s *target) attackWithManyDepartedCalls() {
	for range 32 {
		header := inSession(s.open(legacy))
		var all sync.WaitGroup
		for worker := range 8 {
			all.Go(func() {
				for i := range 64 {
					s.post(both, header, countCall(fmt.Sprint(worker*64+i+1), endless, 1000, "")).Close()
				}
			})
		}
		all.Wait()
	}
	others := s.others()
	for range 10 {
		began := time.Now()
		if err := others["initialize"](); err != nil || time.Since(began) > maxWait {
			s.Errorf("initialize: %v after %v", err, time.Since(began))
		}
	}
	begun, running := s.calls()
	s.Logf("%d calls have begun, %d are running", begun, running)
	if running < 1000 {
		s.Error("this is no attack")
	}
	for began := time.Now(); ; time.Sleep(100 * time.Millisecond) {
		err := others["echo"]()
		if took := time.Since(began); err == nil || took > 3*idleTimeout {
			s.Logf("a call was answered after %v, with error %v", took, err)
			if err != nil {
				s.Error("no place has become free")
			}
			return
		}
	}
}

const idleTimeout = 5 * time.Second // of sessions, in this one attack

// 200 calls whose answers are 4 MB, in a conversation of HTTP+SSE whose client does not read the stream.
func (s *target) attackWithUnreadSSE() {
	post := s.converse()
	mustPost := func(body string) {
		if status := post(body); status != http.StatusAccepted {
			s.Fatal(status)
		}
	}
	w := s.watch()
	mustPost(strings.Replace(hello, legacy, "2024-11-05", 1))
	for i := range 200 {
		mustPost(fmt.Sprintf(largeCall, i+1))
	}
	time.Sleep(3 * time.Second)
	w.end()
}

// 20 conversations of HTTP+SSE, each with as many small calls that run on as one client may have.
func (s *target) attackWithConversations() {
	call := strings.Replace(countCall("%d", endless, 1000, ""), `"id":%d`, `"id":%d,"pad":"`+strings.Repeat("x", 3800)+`"`, 1)
	w := s.watch()
	accepted := 0
	for range 20 {
		post := s.converse()
		post(hello)
		for id := range 1023 {
			if post(fmt.Sprintf(call, id+1)) != http.StatusAccepted {
				break
			}
			accepted++
		}
	}
	time.Sleep(time.Second)
	w.end()
	if begun, _ := s.calls(); begun < 1000 {
		s.Errorf("this is no attack: %d calls have begun", begun)
	}
	s.Logf("%d calls were accepted", accepted)
}

// converse begins a conversation of HTTP+SSE whose stream is not read. post sends a POST, and returns its status.
func (s *target) converse() (post func(body string) (status int)) {
	get := s.dial()
	_, _ = io.WriteString(get, "GET /sse HTTP/1.1\r\nHost: "+s.addr+"\r\nAccept: text/event-stream\r\n\r\n")
	path := ""
	for lines := bufio.NewScanner(get); path == "" && lines.Scan(); {
		path, _ = strings.CutPrefix(lines.Text(), "data: ")
		if path == lines.Text() {
			path = ""
		}
	}
	return func(body string) int {
		resp, err := s.web.Post("http://"+s.addr+path, onlyJSON, strings.NewReader(body))
		if err != nil {
			s.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
}

// A server that may have 256 descriptors runs 300 calls whose clients have gone: after their response has begun, or before that if they wait
// for JSON.
func (s *target) attackDescriptors(accept string) {
	session := s.open(legacy)
	for i := range 300 {
		conn := s.post(accept, inSession(session), countCall(fmt.Sprint(i+1), endless, 20, "t"))
		if accept == both {
			readHeader(conn)
		}
		conn.Close()
	}
	time.Sleep(2 * time.Second)
	files := s.use().files
	w := s.watch()
	time.Sleep(3 * time.Second)
	w.end()
	s.Logf("%d descriptors two seconds after the last client has gone, and then %d", files, s.use().files)
	if files >= maxFiles {
		s.Errorf("%d descriptors, and there may be less than %d", files, maxFiles)
	}
}

// ---- The server ----

// target is a server in a process of its own.
type target struct {
	client             // of the others: each request has a connection of its own
	addr, debug string // of its two listeners
	pid         int
	session     string // in which somebody else pings
	idle        usage
}

// usage is what a process uses.
type usage struct{ memory, files int } // bytes in memory, and descriptors

func start(t *testing.T, program string, files int) *target {
	cmd := exec.Command(program)
	if files > 0 {
		cmd = exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d && exec "$0"`, files), program)
	}
	cmd.Stderr = os.Stderr
	if strings.HasSuffix(t.Name(), "/DepartedMany") {
		cmd.Env = append(os.Environ(), "ATTACKED_IDLE="+idleTimeout.String())
	}
	stdin, err := cmd.StdinPipe() // which ends with this process, and then so does the server
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		stdin.Close()
		_ = cmd.Wait()
	})
	s := &target{client: client{T: t, web: &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}}, pid: cmd.Process.Pid}
	if _, err := fmt.Fscan(stdout, &s.addr, &s.debug); err != nil {
		t.Fatal(err)
	}
	s.url = "http://" + s.addr
	s.session = s.open(legacy)
	for name, asks := range s.others() {
		if err := asks(); err != nil {
			t.Fatal(name, err)
		}
	}
	s.idle = s.use()
	return s
}

// use returns what the server uses now.
func (s *target) use() (u usage) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.pid))
	if err != nil {
		s.Error("the server has ended:", err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			_, _ = fmt.Sscan(value, &u.memory)
			u.memory <<= 10
		}
	}
	files, _ := os.ReadDir(fmt.Sprintf("/proc/%d/fd", s.pid))
	u.files = len(files)
	return u
}

// calls returns how many calls of count have begun, and how many are running.
func (s *target) calls() (begun, running int) {
	resp, err := http.Get("http://" + s.debug + "/calls")
	if err != nil {
		s.Error(err)
		return 0, 0
	}
	defer resp.Body.Close()
	_, _ = fmt.Fscan(resp.Body, &begun, &running)
	return begun, running
}

// ---- The attacker ----

// post sends a POST on a connection of its own, with a small buffer, and reads nothing.
func (s *target) post(accept, header, body string) net.Conn {
	s.Helper()
	conn := s.dial()
	if _, err := io.WriteString(conn, s.head(accept, header, len(body))+body); err != nil {
		s.Logf("the server does not take a request: %v", err) // it may defend itself so
	}
	return conn
}

// head returns the head of a POST.
func (s *target) head(accept, header string, length int) string {
	return fmt.Sprintf("POST / HTTP/1.1\r\nHost: %s\r\nAccept: %s\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n",
		s.addr, accept, header, length)
}

// dial opens a connection with a small buffer.
func (s *target) dial() net.Conn {
	s.Helper()
	small := func(_, _ string, raw syscall.RawConn) error { // so that little waits in the kernel
		return raw.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4<<10) })
	}
	conn, err := (&net.Dialer{Timeout: rest, Control: small}).Dial("tcp", s.addr)
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() { conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(rest))
	return conn
}

func inSession(id string) (header string) { return "Mcp-Session-Id: " + id + "\r\n" }

// readHeader waits for the first byte of the response, or for as long as an attacker waits.
func readHeader(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(2 * time.Second))
	_, _ = conn.Read(make([]byte, 1))
}

// ---- The others ----

// others are the requests of clients that attack nobody.
func (s *target) others() map[string]func() error {
	return map[string]func() error{
		"initialize": func() error {
			header, _, err := s.ask("POST", hello, "", both)
			if id := header.Get("Mcp-Session-Id"); err == nil && id != "" {
				go func() { _, _, _ = s.ask("DELETE", "", id, both) }() // so that these are no attack of their own
			}
			return err
		},
		"ping": func() error {
			_, text, err := s.ask("POST", ping, s.session, both)
			return cmp.Or(err, mustHold(text, `"result":{}`))
		},
		"echo": func() error {
			header, body := modernCall("echo", `{"text":"a small call"}`, "")
			_, text, err := s.ask("POST", body, "", both, header)
			return cmp.Or(err, mustHold(text, `"text":"a small call"`))
		},
	}
}

func mustHold(text, part string) error {
	if !strings.Contains(text, part) {
		return fmt.Errorf("an odd answer: %.200q", text)
	}
	return nil
}

// ---- What is measured ----

// watch measures while an attack stands.
type watch struct {
	*target
	stop  chan struct{} // closed when nothing more is measured
	group sync.WaitGroup
	halt  func() // closes stop, and waits for the group; it may be called twice

	mu     sync.Mutex // guards the fields below
	most   usage
	waits  map[string][]time.Duration
	failed map[string][]error
}

// watch begins to measure what the server uses, and how long others wait.
func (s *target) watch() *watch {
	w := &watch{target: s, stop: make(chan struct{}), waits: map[string][]time.Duration{}, failed: map[string][]error{}}
	w.halt = sync.OnceFunc(func() {
		close(w.stop)
		w.group.Wait()
	})
	s.Cleanup(w.halt)
	w.every(100*time.Millisecond, func() {
		now := s.use()
		w.mu.Lock()
		defer w.mu.Unlock()
		w.most.memory = max(w.most.memory, now.memory)
		w.most.files = max(w.most.files, now.files)
	})
	for name, asks := range s.others() {
		w.every(100*time.Millisecond, func() {
			began := time.Now()
			err := asks()
			w.mu.Lock()
			defer w.mu.Unlock()
			w.waits[name] = append(w.waits[name], time.Since(began))
			if err != nil {
				w.failed[name] = append(w.failed[name], err)
			}
		})
	}
	return w
}

// every does something again and again, until the end.
func (w *watch) every(pause time.Duration, do func()) {
	w.group.Go(func() {
		for {
			do()
			select {
			case <-w.stop:
				return
			case <-time.After(pause):
			}
		}
	})
}

// end logs what was measured, and fails the test if that is above a bound.
func (w *watch) end() {
	w.Helper()
	begun, running := w.calls()
	w.halt()
	grown := w.most.memory - w.idle.memory
	w.Logf("memory %+d MB (idle %d MB); %d descriptors (idle %d); of %d calls of count %d are running",
		grown>>20, w.idle.memory>>20, w.most.files, w.idle.files, begun, running)
	if grown > maxMemory {
		w.Errorf("memory has grown by %d MB, and may by %d", grown>>20, maxMemory>>20)
	}
	for _, name := range slices.Sorted(maps.Keys(w.waits)) {
		waits := slices.Sorted(slices.Values(w.waits[name]))
		median, slowest := waits[len(waits)/2], waits[len(waits)-1]
		w.Logf("%-10s %3d times, median %v, slowest %v", name, len(waits), median.Round(time.Millisecond), slowest.Round(time.Millisecond))
		if failed := w.failed[name]; len(failed) > 0 {
			w.Errorf("%s has failed %d times: %v", name, len(failed), failed[0])
		} else if median > maxWait {
			w.Errorf("%s took %v", name, median)
		}
	}
}
