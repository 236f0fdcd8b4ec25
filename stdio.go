package main

// Newline framing over any byte stream, and the stdio transport built on it: a
// server that reads its standard input and writes its standard output, and a
// client that launches one. EOF on stdin is the shutdown signal.
//
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{…}}⏎        client to the server's stdin
//	< {"jsonrpc":"2.0","method":"notifications/progress","params":{…}}⏎   the server's stdout: messages and nothing else
//	< {"jsonrpc":"2.0","id":1,"result":{…}}⏎
//
// Implements 2025-11-25 basic/transports#stdio and basic/lifecycle#shutdown,
// 2026-07-28 basic/transports/stdio. Goroutines: a launched child has one that
// waits for its end and that of its group; standard input has one that reads it
// for the life of the process, unless it is a pipe (not on Windows); a line
// whose writer may give up has one that writes it. A line is written by whoever
// has the turn, a lock for which nobody waits longer than their context lasts.
// Copy with jsonrpc.go.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ---- Lines ----

// lineConn is a Conn with one payload on each line.
type lineConn struct {
	r     *bufio.Reader
	w     io.Writer
	max   int
	close func() error
	turn  chan struct{} // held while a line is written
	// Why writing has failed: nothing can follow, and at its end reading fails
	// with this, too.
	broken atomic.Pointer[error]
}

// NewLineConn returns a Conn that reads and writes one payload on each line:
// for stdio, and, as the specification asks of custom transports, for TCP and
// Unix sockets. max is the most bytes that a line may have without its end; a
// longer one is skipped, and read as one Invalid message: a server answers it
// with -32600, on a client every waiting Call fails with ErrTooLarge. close
// must unblock reading, and writing if it can. A Write that the other side does
// not read ends with its context, unless w is os.Stdout; the line is still
// written when it can be. 2026-07-28 basic/transports/stdio: transports on byte
// streams "SHOULD reuse this framing".
func NewLineConn(r io.Reader, w io.Writer, max int, close func() error) Conn {
	return &lineConn{r: bufio.NewReaderSize(r, 64<<10), w: w, max: max, close: sync.OnceValue(close), turn: make(chan struct{}, 1)}
}

// Read returns the next line that is not blank, in memory of its own. Past the
// cap it reads on to the newline and keeps nothing.
func (c *lineConn) Read() (Payload, error) {
	var line []byte
	for tooLarge := false; ; {
		part, err := c.r.ReadSlice('\n')
		if tooLarge = tooLarge || len(line)+len(bytes.TrimRight(part, "\r\n")) > c.max; tooLarge {
			line = nil
		} else {
			line = append(line, part...)
		}
		switch {
		case err == bufio.ErrBufferFull:
		case tooLarge:
			return Payload{}, &ReadError{Skipped: true, Err: fmt.Errorf("%w: more than %d bytes", ErrTooLarge, c.max)}
		case (err == nil || err == io.EOF) && len(bytes.Trim(line, " \t\r\n")) > 0:
			// the last line may lack its newline
			return Decode(line), nil
		case err != nil && c.broken.Load() != nil:
			return Payload{}, *c.broken.Load()
		case err != nil:
			return Payload{}, err
		default:
			line = nil
		}
	}
}

// Write writes the payload's line, whole. When ctx ends in the middle of it, it
// goes on by itself, and whoever writes next waits for that.
func (c *lineConn) Write(ctx context.Context, p Payload) error {
	line := append(p.Append(nil), '\n')
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Nobody gives up; or it is a server's one client, and there is nobody else
	// to talk to.
	if ctx.Done() == nil || c.w == os.Stdout {
		return c.write(line)
	}
	written := make(chan error, 1)
	go func() { written <- c.write(line) }() // ends when the other side has read it, or with Close
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// write is for whoever has the turn.
func (c *lineConn) write(line []byte) error {
	defer func() { <-c.turn }()
	if why := c.broken.Load(); why != nil {
		return *why
	}
	_, err := c.w.Write(line)
	if err != nil {
		c.broken.Store(&err)
		go c.close() // nothing more can be said
	}
	return err
}

// Close ends reading, and as much of writing as what it was built on.
func (c *lineConn) Close() error { return c.close() }

// StdioConn returns the Conn of a server that was launched by its client:
// standard input and output, lines up to max bytes. Close ends reading only, so
// that what is still owed can be written. It catches SIGPIPE: a client that is
// gone is an error, not our death.
func StdioConn(max int) Conn {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	in := stdin()
	return NewLineConn(in, os.Stdout, max, in.Close)
}

// stdin returns standard input with a Close that wakes who reads it. A pipe or
// socket can do that itself, once it does not block; for all else a goroutine
// reads until the process ends.
func stdin() io.ReadCloser {
	info, err := os.Stdin.Stat()
	pipe := err == nil && info.Mode()&(os.ModeNamedPipe|os.ModeSocket) != 0 && runtime.GOOS != "windows"
	if out, err := os.Stdout.Stat(); err == nil && pipe {
		// one socket for both: os.Stdout cannot write to what does not block
		pipe = !os.SameFile(info, out)
	}
	if os.Stdin.SetReadDeadline(time.Time{}) == nil {
		return os.Stdin // whoever started us has set it so that it does not block
	}
	if pipe && syscall.SetNonblock(syscall.Stdin, true) == nil {
		return &sharedInput{file: os.NewFile(uintptr(syscall.Stdin), "stdin")}
	}
	r, w := io.Pipe()
	go func() {
		_, err := io.Copy(w, os.Stdin)
		w.CloseWithError(err)
	}()
	return r
}

// sharedInput is a standard input that does not block. Whoever else has it, such
// as the shell's next command, shares that with us, and does not expect it:
// Close restores what was.
type sharedInput struct {
	file *os.File
	mu   sync.Mutex // held by who reads
}

// Read fails with os.ErrClosed from Close on.
func (in *sharedInput) Read(b []byte) (int, error) {
	in.mu.Lock()
	defer in.mu.Unlock()
	n, err := in.file.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = os.ErrClosed
	}
	return n, err
}

// Close wakes who reads, and waits for that: a Read that begins later would
// block for ever.
func (in *sharedInput) Close() error {
	_ = in.file.SetReadDeadline(time.Now())
	in.mu.Lock()
	defer in.mu.Unlock()
	return errors.Join(syscall.SetNonblock(syscall.Stdin, false), in.file.Close())
}

// ---- Launching a server ----

// DialCommand returns a Dialer that starts command() and speaks lines over its
// standard input and output (max as for NewLineConn). There is no shell in
// between. What the child writes to stderr goes to the command's Stderr. When
// the child ends, Read fails with its exit status, and with the last of its
// stderr if the command has no Stderr. Close shuts it down, each step bounded by
// grace: it closes the child's stdin, then sends SIGTERM, then kills it
// (2025-11-25 basic/lifecycle#shutdown), its process group included where there
// are such: of that nothing is left when Close returns.
func DialCommand(command func() *exec.Cmd, grace time.Duration, max int) Dialer {
	return func(context.Context) (Conn, error) {
		c := &child{cmd: command(), grace: grace, exited: make(chan struct{}), gone: make(chan struct{})}
		if err := c.start(max); err != nil {
			return nil, err
		}
		return c, nil
	}
}

// child is the Conn to a launched process.
type child struct {
	Conn
	cmd    *exec.Cmd
	in     io.Closer // our end of its stdin
	out    *os.File  // and of its stdout
	grace  time.Duration
	stderr tail
	exited chan struct{} // closed when it has been reaped
	err    error         // set by then: how it ended
	gone   chan struct{} // closed when nothing is left of its group, or all was killed
}

func (c *child) start(max int) error {
	// not StdoutPipe, which the end of the process closes before all is read
	out, theirOut, err := os.Pipe()
	if err != nil {
		return err
	}
	defer theirOut.Close()
	c.out, c.stderr.next = out, c.cmd.Stderr
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = nil, theirOut, &c.stderr
	c.cmd.WaitDelay = lastWord // a grandchild may keep stderr open
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = ownGroup()
	}
	in, err := c.cmd.StdinPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return errors.Join(err, out.Close())
	}
	c.in, c.Conn = in, NewLineConn(childOutput{out}, in, max, c.shutDown)
	go c.wait() // ends with the process and its group
	return nil
}

// ownGroup asks for a process group of the child's own. The field exists only
// on Unix, and this file is for all systems.
func ownGroup() *syscall.SysProcAttr {
	attr := new(syscall.SysProcAttr)
	if field := reflect.ValueOf(attr).Elem().FieldByName("Setpgid"); field.IsValid() {
		field.SetBool(true)
	}
	return attr
}

// wait reaps the process. What it has left behind in its group is told to end,
// too, and is killed if it has not after the grace.
func (c *child) wait() {
	c.err = c.cmd.Wait()
	left := c.signalGroup(syscall.SIGTERM) == nil
	_ = c.out.SetReadDeadline(time.Now().Add(lastWord))
	close(c.exited)
	pause := 10 * time.Millisecond
	for began := time.Now(); left && time.Since(began) < c.grace; {
		time.Sleep(pause)
		left = c.signalGroup(syscall.Signal(0)) == nil // which reaches nobody, and says whether there is somebody
		if patience := 50 * time.Millisecond; left && time.Since(began) > patience {
			if onlyZombies(c.cmd.Process.Pid) {
				break
			}
			pause = patience // reading the states of all processes is not cheap
		}
	}
	if left {
		_ = c.signalGroup(os.Kill) // zombies, too: one that was born while they were read is among them
	}
	close(c.gone)
}

// onlyZombies reports whether a process group has members, and all of them are
// dead and not yet reaped by their parents. Such a group still takes signals,
// and in a container whose first process reaps nobody it stays for ever. Where
// there is no /proc of Linux it returns false.
func onlyZombies(group int) (found bool) {
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		if _, err := strconv.Atoi(entry.Name()); err != nil {
			continue
		}
		stat, _ := os.ReadFile("/proc/" + entry.Name() + "/stat") // empty if it is gone by now
		// PID (NAME) STATE PARENT GROUP …, and NAME may have spaces and brackets
		fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if len(fields) < 3 || fields[2] != strconv.Itoa(group) {
			continue
		}
		if found = fields[0] == "Z"; !found {
			return false
		}
	}
	return found
}

// childOutput is what a child writes. What it wrote before its end is still to
// be read, however slowly we do, but a grandchild that keeps the pipe open and
// says nothing is not waited for.
type childOutput struct{ *os.File }

func (out childOutput) Read(b []byte) (int, error) {
	n, err := out.File.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = out.SetReadDeadline(time.Now().Add(lastWord / 20))
		n, err = out.File.Read(b)
	}
	return n, err
}

// Read returns the next message; at the end, why the process has ended.
func (c *child) Read() (Payload, error) {
	p, err := c.Conn.Read()
	if err != nil {
		err = c.why(err, c.grace)
	}
	return p, err
}

// Write fails with ErrClosed, and says why, when the process has ended or no
// longer reads.
func (c *child) Write(ctx context.Context, p Payload) error {
	err := c.Conn.Write(ctx, p)
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("%w: %w", ErrClosed, c.why(err, lastWord/10))
	}
	return err
}

// why explains an end of input or of output by the end of the process, if that
// comes soon.
func (c *child) why(err error, wait time.Duration) error {
	if !closedWithin(wait, c.exited) {
		return fmt.Errorf("server closed its stdin or stdout: %w", err)
	}
	why := fmt.Errorf("server ended: %w", cmp.Or(c.err, errors.New(c.cmd.ProcessState.String())))
	last := strings.ToValidUTF8(strings.TrimSpace(string(c.stderr.text)), "\uFFFD")
	if last != "" && c.stderr.next == nil { // which would have shown it
		why = fmt.Errorf("%w; the last of its stderr:\n%s", why, last)
	}
	return why
}

// shutDown goes down the ladder until the process is gone.
func (c *child) shutDown() error {
	_ = c.in.Close()
	wait := c.grace
	for _, signal := range []os.Signal{syscall.SIGTERM, os.Kill} {
		if closedWithin(wait, c.exited) {
			break
		}
		if wait = c.grace; c.signal(signal) != nil { // Windows has no SIGTERM
			wait = 0
		}
	}
	if !closedWithin(c.grace, c.exited) {
		return errors.Join(fmt.Errorf("process %d does not end", c.cmd.Process.Pid), c.out.Close())
	}
	<-c.gone // within grace
	return c.out.Close()
}

// signal reaches the process group, or where there is none the process.
func (c *child) signal(signal os.Signal) error {
	if c.signalGroup(signal) == nil {
		return nil
	}
	return c.cmd.Process.Signal(signal)
}

// signalGroup fails if there is no process group, or nobody in it.
func (c *child) signalGroup(signal os.Signal) error {
	group, err := os.FindProcess(-c.cmd.Process.Pid)
	if err != nil {
		return err
	}
	return group.Signal(signal)
}

// tail hands on what is written to it and remembers the end, for when nothing
// is written any more.
type tail struct {
	next io.Writer // nil: nowhere
	text []byte
}

const tailSize = 2048

func (t *tail) Write(b []byte) (int, error) {
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	if t.next != nil {
		_, _ = t.next.Write(b) // a stderr that cannot be shown is still to be drained
	}
	return len(b), nil
}

// ---- In memory ----

// Pipe returns two Conns that are each other's peer, in memory: for tests, and
// as the shortest example of a custom transport.
func Pipe() (a, b Conn) {
	there, back, closed := make(chan Payload, 64), make(chan Payload, 64), make(chan struct{})
	hangUp := sync.OnceFunc(func() { close(closed) })
	return &memConn{there, back, closed, hangUp}, &memConn{back, there, closed, hangUp}
}

type memConn struct {
	in, out chan Payload
	closed  chan struct{}
	hangUp  func()
}

func (c *memConn) Read() (Payload, error) {
	select {
	case p := <-c.in:
		return p, nil
	case <-c.closed:
	}
	select {
	case p := <-c.in: // sent before it was closed
		return p, nil
	default:
		return Payload{}, io.EOF
	}
}

func (c *memConn) Write(ctx context.Context, p Payload) error {
	select {
	case c.out <- p:
		return nil
	case <-c.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *memConn) Close() error {
	c.hangUp()
	return nil
}
