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

// build makes the two binaries of a program. root is the directory of the
// interop module, above which mcpwire is.
func (p *program) build(root, out string) error {
	folder := strings.ReplaceAll(p.name, "-", "")
	server, client := filepath.Join(root, "bench/servers", folder), filepath.Join(root, "bench/clients", folder)
	if p.ours() {
		server, client = filepath.Join(root, "../.."), filepath.Join(root, "bench/clients/mcpwire")
	}
	probe, err := probeFile(root, out)
	if err != nil {
		return err
	}
	p.server, p.client = filepath.Join(out, folder), filepath.Join(out, folder+"-client")
	return errors.Join(build(server, p.server, map[string]string{filepath.Join(server, "bench_probe.go"): probe}), build(client, p.client, nil))
}

func (p *program) ours() bool { return p.name == "mcpwire" }

// probeFile writes the probe as a file of a program.
func probeFile(root, out string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, "bench/probe/probe.go"))
	if err != nil {
		return "", err
	}
	path := filepath.Join(out, "probe.go")
	return path, os.WriteFile(path, bytes.Replace(text, []byte("\npackage probe\n"), []byte("\npackage main\n"), 1), 0o600)
}

// build builds the program in a directory, with files added: added has the path
// of a file by the path that it is to have.
func build(dir, target string, added map[string]string) error {
	overlay, err := json.Marshal(map[string]any{"Replace": added})
	if err == nil {
		err = os.WriteFile(target+".overlay", overlay, 0o600)
	}
	if err != nil {
		return err
	}
	cmd := exec.Command("go", "build", "-buildvcs=false", "-overlay", target+".overlay", "-o", target, ".")
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

// memory is what a child uses when its garbage has been collected: bytes of live heap.
func (c *child) memory() (bytes float64, err error) {
	text, err := c.ask("memory")
	if err == nil {
		_, err = fmt.Sscan(text, &bytes)
	}
	return bytes, err
}

// growth is what each of n sessions uses. A few are begun before, as the first ones cost more.
func (c *child) growth(n int) (each float64, err error) {
	if err := c.open(10); err != nil {
		return 0, err
	}
	before, err := c.memory()
	if err != nil {
		return 0, err
	}
	if err := c.open(n); err != nil {
		return 0, err
	}
	after, err := c.memory()
	return (after - before) / float64(n), err
}

// stop ends the child, which has nothing to lose.
func (c *child) stop() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
	if c.probe != nil {
		c.probe.Close()
	}
}
