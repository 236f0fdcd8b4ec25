//go:build unix

package main

// Programs are built here, and run as children, which a probe inside of them
// tells of.

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"
)

// program is one of those that are compared.
type program struct {
	name           string
	paths          map[kind]string // where it serves HTTP, if not at /mcp
	checkout       string          // another one, that mcpwire is built from
	server, client string          // binaries
}

// kind is what is asked of a server over HTTP. Where one has several ways to
// answer, each kind is measured with the cheapest that can do it.
type kind int

const (
	inSession kind = iota
	modern
	events
)

// path returns where a program answers this kind of request.
func (p *program) path(k kind) string {
	if path := p.paths[k]; path != "" {
		return path
	}
	return "/mcp"
}

// programs are those that are compared, the floor first. go-sdk answers with
// events unless it is told to use JSON, which is cheaper, but leaves progress
// to the standalone stream; without sessions alone it knows 2026-07-28.
func programs() []*program {
	return []*program{
		{name: "bare"},
		{name: "mcpwire"},
		{name: "mcp-go", paths: map[kind]string{modern: "/stateless"}},
		{name: "go-sdk", paths: map[kind]string{inSession: "/json", modern: "/stateless"}},
	}
}

// ours reports whether the program is mcpwire, of this or of another checkout.
func (p *program) ours() bool { return p.name == "mcpwire" || p.checkout != "" }

// build makes the binaries of a program: the server with the probe as one more
// of its files, and the client. root is the directory of the interop module,
// above which mcpwire is.
func (p *program) build(root, out string) {
	text := must(os.ReadFile(filepath.Join(root, "bench/probe/probe.go")))
	if p.checkout != "" {
		root = must(filepath.Abs(filepath.Join(p.checkout, "testdata/interop")))
		goCommand(root, "run", "./copywire")
	}
	folder := strings.ReplaceAll(p.name, "-", "")
	p.server, p.client = filepath.Join(out, folder), filepath.Join(out, folder+"-client")
	from := filepath.Join(root, "bench/servers", folder)
	if p.ours() {
		folder, from = "mcpwire", filepath.Join(root, "../..")
	}
	probe, overlay := p.server+"-probe.go", p.server+"-overlay.json"
	check(os.WriteFile(probe, bytes.Replace(text, []byte("\npackage probe\n"), []byte("\npackage main\n"), 1), 0o600))
	check(os.WriteFile(overlay, fmt.Appendf(nil, `{"Replace":{%q:%q}}`, filepath.Join(from, "bench_probe.go"), probe), 0o600))
	goCommand(from, "build", "-trimpath", "-ldflags=-s -w", "-overlay", overlay, "-o", p.server, ".")
	goCommand(root, "build", "-o", p.client, "./bench/clients/"+folder)
}

func goCommand(dir string, args ...string) {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		panic(fmt.Errorf("%v in %s: %w\n%s", cmd, dir, err, out))
	}
}

// child is a program that runs.
type child struct {
	*program
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	heard  *bufio.Reader // what the probe says
	addr   string        // where it serves HTTP
	probe  net.Conn
	conns  []net.Conn // to addr
}

const patience = 30 * time.Second // far longer than anything here takes

// start runs a binary of a program and waits until its probe answers.
func (p *program) start(binary string, args ...string) *child {
	socket := filepath.Join(filepath.Dir(binary), rand.Text()[:8]+".sock")
	c := &child{program: p, cmd: exec.Command(binary, args...)}
	c.cmd.Env = append(os.Environ(), "BENCH_PROBE="+socket)
	stderr := must(os.Create(socket + ".stderr")) // rather than a pipe, which somebody would have to read meanwhile
	defer stderr.Close()
	c.cmd.Stderr = stderr
	c.stdin = must(c.cmd.StdinPipe())
	c.stdout = bufio.NewReaderSize(must(c.cmd.StdoutPipe()), 64<<10)
	check(c.cmd.Start())
	c.await("listens to its probe", func() (ready bool) {
		conn, err := net.Dial("unix", socket)
		c.probe = conn
		return err == nil
	})
	c.heard = bufio.NewReader(c.probe)
	return c
}

var listensAt = regexp.MustCompile(`listening on http://([0-9.:]+)/`)

// serve runs a program as a server over HTTP. Flags are mcpwire's.
func (p *program) serve(flags ...string) *child {
	if p.ours() {
		flags = append(flags, "-max-sessions", "1000000")
	}
	c := p.start(p.server, append([]string{"-http", "127.0.0.1:0"}, flags...)...)
	c.await("says where it listens", func() bool {
		found := listensAt.FindStringSubmatch(c.said())
		if found != nil {
			c.addr = found[1]
		}
		return found != nil
	})
	return c
}

// await waits until something holds of a child, and stops the child if it never does.
func (c *child) await(what string, holds func() bool) {
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.stop()
			panic(fmt.Errorf("%s never %s: %q", c.name, what, c.said()))
		}
	}
}

// said is the beginning of what the child has written to stderr.
func (c *child) said() string {
	text, _ := os.ReadFile(c.cmd.Stderr.(*os.File).Name())
	return string(text[:min(len(text), 4<<10)])
}

// ask has the probe tell a number.
func (c *child) ask(what string) (n float64) {
	c.probe.SetDeadline(time.Now().Add(2 * patience))
	fmt.Fprintln(c.probe, what)
	if _, err := fmt.Fscanln(c.heard, &n); err != nil {
		panic(fmt.Errorf("%s does not tell %q: %w\n%s", c.name, what, err, c.said()))
	}
	return n
}

// stop ends the child, which has nothing to lose.
func (c *child) stop() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
	for _, conn := range c.conns {
		conn.Close()
	}
	if c.probe != nil {
		c.probe.Close()
	}
}
