//go:build unix

package main

// Programs are built here, and run as children, which a probe inside of them
// tells of.

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
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
func (p *program) build(root, out string) error {
	text, err := os.ReadFile(filepath.Join(root, "bench/probe/probe.go"))
	if err != nil {
		return err
	}
	if p.checkout != "" {
		root = filepath.Join(p.checkout, "testdata/interop")
		if err := goCommand(root, "run", "./copywire"); err != nil {
			return err
		}
	}
	folder := strings.ReplaceAll(p.name, "-", "")
	p.server, p.client = filepath.Join(out, folder), filepath.Join(out, folder+"-client")
	from := filepath.Join(root, "bench/servers", folder)
	if p.ours() {
		folder, from = "mcpwire", filepath.Join(root, "../..")
	}
	if from, err = filepath.Abs(from); err != nil {
		return err
	}
	probe, overlay := p.server+"-probe.go", p.server+"-overlay.json"
	replace := fmt.Sprintf(`{"Replace":{%q:%q}}`, filepath.Join(from, "bench_probe.go"), probe)
	return errors.Join(
		os.WriteFile(probe, bytes.Replace(text, []byte("\npackage probe\n"), []byte("\npackage main\n"), 1), 0o600),
		os.WriteFile(overlay, []byte(replace), 0o600),
		goCommand(from, "build", "-trimpath", "-ldflags=-s -w", "-overlay", overlay, "-o", p.server, "."),
		goCommand(root, "build", "-o", p.client, "./bench/clients/"+folder))
}

func goCommand(dir string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v in %s: %w\n%s", cmd, dir, err, out)
	}
	return nil
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
func (p *program) start(binary string, args ...string) (c *child, err error) {
	socket := filepath.Join(filepath.Dir(binary), rand.Text()[:8]+".sock")
	c = &child{program: p, cmd: exec.Command(binary, args...)}
	c.cmd.Env = append(os.Environ(), "BENCH_PROBE="+socket)
	stderr, err := os.Create(socket + ".stderr") // rather than a pipe, which somebody would have to read meanwhile
	if err != nil {
		return nil, err
	}
	defer stderr.Close()
	c.cmd.Stderr = stderr
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.stdout = bufio.NewReaderSize(stdout, 64<<10)
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	return c, c.await("listens to its probe", func() bool {
		c.probe, err = net.Dial("unix", socket)
		c.heard = bufio.NewReader(c.probe)
		return err == nil
	})
}

var listensAt = regexp.MustCompile(`listening on http://([0-9.:]+)/`)

// serve runs a program as a server over HTTP. Flags are mcpwire's.
func (p *program) serve(flags ...string) (*child, error) {
	if p.ours() {
		flags = append(flags, "-max-sessions", "1000000")
	}
	c, err := p.start(p.server, append([]string{"-http", "127.0.0.1:0"}, flags...)...)
	if err != nil {
		return nil, err
	}
	return c, c.await("says where it listens", func() bool {
		found := listensAt.FindStringSubmatch(c.said())
		if found != nil {
			c.addr = found[1]
		}
		return found != nil
	})
}

// await waits until something holds of a child, and stops the child if it never does.
func (c *child) await(what string, holds func() bool) error {
	for end := time.Now().Add(patience); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			c.stop()
			return fmt.Errorf("%s never %s: %q", c.name, what, c.said())
		}
	}
	return nil
}

// said is the beginning of what the child has written to stderr.
func (c *child) said() string {
	text, _ := os.ReadFile(c.cmd.Stderr.(*os.File).Name())
	return string(text[:min(len(text), 4<<10)])
}

// ask has the probe tell a number.
func (c *child) ask(what string) (n float64, err error) {
	c.probe.SetDeadline(time.Now().Add(2 * patience))
	fmt.Fprintln(c.probe, what)
	if _, err := fmt.Fscanln(c.heard, &n); err != nil {
		return 0, fmt.Errorf("%s does not tell %q: %w\n%s", c.name, what, err, c.said())
	}
	return n, nil
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
