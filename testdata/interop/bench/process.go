//go:build unix

package main

// Programs are built here, and run as children, which a probe inside of them
// tells of.

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"encoding/json"
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
	server, client string // with the probe
	plain          string // the server as it is
	before         string // directory of a checkout of mcpwire, if it is not this one
	paths          map[kind]string
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
		{name: "bare", paths: map[kind]string{}},
		{name: "mcpwire", paths: map[kind]string{}},
		{name: "mcp-go", paths: map[kind]string{modern: "/stateless"}},
		{name: "go-sdk", paths: map[kind]string{inSession: "/json", modern: "/stateless"}},
	}
}

// build makes the three binaries of a program. root is the directory of the
// interop module, above which mcpwire is.
func (p *program) build(root, out string) error {
	folder := strings.ReplaceAll(p.name, "-", "")
	server, client := filepath.Join(root, "bench/servers", folder), filepath.Join(root, "bench/clients", folder)
	if p.ours() {
		server, client = filepath.Join(root, "../.."), filepath.Join(root, "bench/clients/mcpwire")
	}
	library := map[string]string{}
	if p.before != "" {
		server = p.before
		var err error
		if library, err = libraryOf(p.before, root, out); err != nil {
			return err
		}
		// Names may have changed since, so that checkout has the client that fits.
		if own := filepath.Join(p.before, "testdata/interop/bench/clients/mcpwire/main.go"); exists(own) {
			library[filepath.Join(client, "main.go")] = own
		}
	}
	probe, err := probeFile(root, out)
	if err != nil {
		return err
	}
	p.server, p.client, p.plain = filepath.Join(out, folder), filepath.Join(out, folder+"-client"), filepath.Join(out, folder+"-plain")
	return errors.Join(
		build(server, p.plain, nil, "-trimpath", "-ldflags=-s -w"),
		build(server, p.server, map[string]string{filepath.Join(server, "bench_probe.go"): probe}),
		build(client, p.client, library))
}

// ours reports whether the program is mcpwire, of this or of another commit.
func (p *program) ours() bool { return p.name == "mcpwire" || p.before != "" }

// libraryOf returns the files that replace those of package wire, so that a
// client is made of the library in another checkout.
func libraryOf(checkout, root, out string) (map[string]string, error) {
	replace := map[string]string{}
	for _, name := range []string{"jsonrpc.go", "stdio.go", "sse.go", "session.go", "http.go"} {
		text, err := os.ReadFile(filepath.Join(checkout, name))
		if err != nil {
			return nil, err
		}
		path := filepath.Join(out, "before-"+name)
		if err := os.WriteFile(path, bytes.Replace(text, []byte("package main\n"), []byte("package wire\n"), 1), 0o600); err != nil {
			return nil, err
		}
		replace[filepath.Join(root, "wire", name)] = path
	}
	return replace, nil
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// probeFile writes the probe as a file of a program.
func probeFile(root, out string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "bench/probe/probe.go"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(out, "probe.go")
	return path, os.WriteFile(path, bytes.Replace(text, []byte("\npackage probe\n"), []byte("\npackage main\n"), 1), 0o600)
}

// build builds the program in a directory, with files added or replaced: replace
// has the path of the other file by the path that it is to have.
func build(dir, target string, replace map[string]string, flags ...string) error {
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(target+".overlay", overlay, 0o600)
	}
	if err != nil {
		return err
	}
	args := append([]string{"build", "-buildvcs=false", "-overlay", target + ".overlay", "-o", target}, flags...)
	cmd := exec.Command("go", append(args, ".")...)
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
	probe  net.Conn
	heard  *bufio.Scanner // what the probe says
	addr   string         // where it serves HTTP
}

const patience = 30 * time.Second // far longer than anything here takes

// start runs a binary of a program and waits until its probe answers.
func (p *program) start(binary string, args ...string) (c *child, err error) {
	socket := filepath.Join(filepath.Dir(p.server), rand.Text()[:8]+".sock")
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
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		if c.probe, err = net.Dial("unix", socket); err == nil {
			c.heard = bufio.NewScanner(c.probe)
			return c, nil
		}
		if time.Now().After(end) {
			c.stop()
			return nil, fmt.Errorf("%s: no probe: %w\n%s", p.name, err, c.said())
		}
	}
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
	var found []string
	for end := time.Now().Add(patience); found == nil && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		found = listensAt.FindStringSubmatch(c.said())
	}
	if found == nil {
		c.stop()
		return nil, fmt.Errorf("%s does not say where it listens: %q", p.name, c.said())
	}
	c.addr = found[1]
	return c, nil
}

// said is the beginning of what the child has written to stderr.
func (c *child) said() string {
	text, _ := os.ReadFile(c.cmd.Stderr.(*os.File).Name())
	return string(text[:min(len(text), 4<<10)])
}

// ask has the probe answer a command.
func (c *child) ask(command string) (string, error) {
	c.probe.SetDeadline(time.Now().Add(2 * patience))
	if _, err := fmt.Fprintln(c.probe, command); err != nil {
		return "", err
	}
	if !c.heard.Scan() {
		return "", fmt.Errorf("%s does not answer %q: %v\n%s", c.name, command, c.heard.Err(), c.said())
	}
	return c.heard.Text(), nil
}

// cpu is the processor time the child has used, in the system's calls, too.
func (c *child) cpu() (d time.Duration, err error) {
	text, err := c.ask("cpu")
	if err == nil {
		_, err = fmt.Sscan(text, &d)
	}
	return d, err
}

// memory is what a child uses when its garbage has been collected.
type memory struct{ heap, goroutines float64 }

func (c *child) memory() (m memory, err error) {
	text, err := c.ask("memory")
	if err == nil {
		_, err = fmt.Sscan(text, &m.heap, &m.goroutines)
	}
	return m, err
}

// growth is what each of n sessions uses. A few are begun before, as the first ones cost more.
func (c *child) growth(n int) (each memory, err error) {
	if _, err := c.open(10); err != nil {
		return each, err
	}
	before, err := c.memory()
	if err != nil {
		return each, err
	}
	if _, err := c.open(n); err != nil {
		return each, err
	}
	after, err := c.memory()
	return memory{(after.heap - before.heap) / float64(n), (after.goroutines - before.goroutines) / float64(n)}, err
}

// stop ends the child, which has nothing to lose.
func (c *child) stop() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
	if c.probe != nil {
		c.probe.Close()
	}
}
