// SPDX-License-Identifier: 0BSD
// stdio.go of mcpwire 0.3.0, which is made to be copied.

package main

// Stdio, and other streams of bytes: one message on each line.
//
// A client starts the server as its child. It writes to the child's standard input, and reads
// the child's standard output.
//
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{…}}⏎        client to the server's stdin
//	< {"jsonrpc":"2.0","method":"notifications/progress","params":{…}}⏎   the server's stdout: messages and nothing else
//	< {"jsonrpc":"2.0","id":1,"result":{…}}⏎
//
// No message says that the conversation is over. The client closes the server's stdin. The
// server reads to the end of its input, and exits.
//
//	the client's process: not on a first reading  the server's process
//	CommandDialer.Dial   starts it  ────────────► StdioConn
//	child.Write          ─────────── stdin ─────► lineConn.Read
//	child.Read           ◄────────── stdout ───── lineConn.Write
//	child.copyStderr     ◄────────── stderr ───── its log, which is no part of MCP
//	child.awaitExit      ◄────────── exit status  exits when stdin has ended
//	child.shutDown       closes stdin; if that is not enough, SIGTERM, then SIGKILL
//
// To see it work, read lessons 01 and 14 of the course: testdata/README.md. On a first reading,
// read to the banner "The client": 178 lines. The last part of this file is about lines that
// are too long, about signals, and about processes that do not end as they should.
//
// Source: 2025-11-25 basic/transports#stdio and basic/lifecycle#shutdown; 2026-07-28
// basic/transports/stdio. Copy this file with jsonrpc.go.

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
	"strings"
	"sync"
	"syscall"
	"time"
)

// ==== The wire ====

// NewLineConn returns a Conn that reads and writes one payload on each line. It is for stdio,
// TCP, Unix sockets and other streams of bytes. 2026-07-28 basic/transports/stdio: transports
// on byte streams "SHOULD reuse this framing".
//
// A line may have up to maxLine bytes without its line end; 0: 4 MiB. A longer line is read to
// its end, and thrown away. If it was a request, the response is an error. If it was the
// response to a call of ours, the call fails: see tooLong. closeStream, which is required, is
// called once: by the first Close, or after the first failed write to w. It should make a
// waiting Read or Write return. For standard input that is impossible.
func NewLineConn(r io.Reader, w io.Writer, maxLine int, closeStream func() error) Conn {
	return &lineConn{
		r:         bufio.NewReaderSize(r, 64<<10),
		w:         w,
		maxLine:   cmp.Or(maxLine, 4<<20),
		closeOnce: sync.OnceValue(closeStream),
		writeLock: make(chan struct{}, 1),
	}
}

// lineConn is a Conn with one payload on each line.
type lineConn struct {
	r         *bufio.Reader
	w         io.Writer
	maxLine   int
	closeOnce func() error // calls closeStream the first time, and returns its error each time
	// writeLock is a lock for writing: sending to the channel locks, and receiving from it
	// unlocks. Unlike with a sync.Mutex, a context can end the wait for it.
	writeLock chan struct{}
	writeErr  error // why nothing more is written: w has failed; writeLock guards this field
}

// Read returns the payload of the next line that is not blank. The last line need not end with
// a newline.
func (c *lineConn) Read() (Payload, error) {
	for {
		line, err := c.readLine()
		switch {
		case err != nil:
			return Payload{}, err
		case len(line) > c.maxLine:
			return c.tooLong(line), nil // a Payload that says so
		case len(bytes.Trim(line, blanks)) > 0: // blanks: the white space of JSON
			return Decode(line), nil
		}
	}
}

// readLine returns the next line, without its line end. Of a line that is too long it keeps the
// beginning, which is longer than maxLine, so that Read sees it. A last line without a line end
// counts. Each line has memory of its own, because a Payload refers to it.
func (c *lineConn) readLine() ([]byte, error) {
	var line []byte
	for {
		part, more, err := c.r.ReadLine() // a part of a line, or an error; more: the line goes on
		if err != nil && len(line) == 0 {
			return nil, err
		}
		if len(line) <= c.maxLine {
			line = append(line, part...)
		}
		if err != nil || !more {
			return line, nil // after an error, this is the last line: the next call returns the error
		}
	}
}

// Write writes a payload as one line. If ctx ends, it returns at once. A line that was begun is
// still finished, as soon as the other end reads again: half a line would damage the line after
// it.
func (c *lineConn) Write(ctx context.Context, p Payload) error {
	select {
	case c.writeLock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// The line is made after the lock: a Write that waits for the lock needs no memory for it.
	line := append(p.Append(nil), '\n')
	if ctx.Done() == nil { // ctx never ends, as when a response is written: no goroutine is needed
		return c.writeLine(line)
	}
	written := make(chan error, 1)
	go func() { written <- c.writeLine(line) }() // ends when the line is written, or when w is closed
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeLine writes a line. The caller has locked writeLock, and writeLine unlocks it.
func (c *lineConn) writeLine(line []byte) error {
	defer func() { <-c.writeLock }()
	if c.writeErr != nil {
		return c.writeErr
	}
	if _, err := c.w.Write(line); err != nil {
		c.writeErr = markedError{err, ErrClosed}
		go c.closeOnce() // ends when the stream is closed, which may take long for a child
		return c.writeErr
	}
	return nil
}

// Close calls closeStream.
func (c *lineConn) Close() error { return c.closeOnce() }

// ==== The server ====

// StdioConn returns the Conn of a server that a client has started: it reads standard input and
// writes standard output. maxLine is as for NewLineConn.
//
// ServeConn calls Close while handlers may still run. This Close does nothing, so their
// responses are still written. A Read that waits ends only with the input or the process.
//
// A fmt.Println would spoil the messages on standard output. So set os.Stdout = os.Stderr after
// StdioConn, which has kept the real standard output. Then such text goes to the log of the
// client. A command that a tool runs does no harm: what an exec.Cmd prints is thrown away,
// unless you set its Stdout.
//
// If the client has gone, Write returns an error: see catchSIGPIPE.
func StdioConn(maxLine int) Conn {
	catchSIGPIPE() // if the client has gone, a write must not end the process
	return NewLineConn(os.Stdin, os.Stdout, maxLine, func() error { return nil })
}

// ==== The client ====
//
// The type child is two things: a lineConn over stdin and stdout, and a process that must end.

// CommandDialer is a Dialer that starts a server as a child process, without a shell. It
// exchanges lines with the child, over the child's standard input and output.
//
// What the child writes to stderr goes to the command's Stderr. When Close returns, all of it
// has been written there, unless that writer blocks for more than a second. If the command's
// SysProcAttr is nil, the child starts a new process group, on systems that have process
// groups.
//
// When the child ends, Read fails with its exit status. If the command has no Stderr, the error
// also has the last 2,048 bytes that the child wrote to stderr.
//
// Close shuts the child down as 2025-11-25 basic/lifecycle#shutdown asks: it closes the child's
// stdin, then sends SIGTERM, then kills the child. The signals go to the whole process group of
// the child. When Close returns, all processes of the group have ended or were killed. If the
// child does not end at all, Close returns an error. If the child ends by itself, the rest of
// its group is shut down in the same steps.
//
// A process that has left the group lives on. If it has the child's stdout, Read does not see
// the end of the child, and waits until Close. Write sees it.
type CommandDialer struct {
	// Command returns the command of one child, a new one each time: an exec.Cmd can be started
	// only once. Required. Its Stdin and Stdout are replaced. Use exec.Command: a goroutine of
	// exec.CommandContext would never end. The child gets the environment of this process,
	// unless Env of the command is set.
	Command func() *exec.Cmd
	Grace   time.Duration // how long Close waits after each step for the child to end; 0: two seconds
	MaxLine int           // bytes of a line of the child, as for NewLineConn; 0: 64 MiB, as for HTTPDialer
}

// Dial starts a child, and returns its Conn. The child lives on when ctx ends.
func (d CommandDialer) Dial(ctx context.Context) (Conn, error) {
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	c := &child{
		cmd:         d.Command(),
		grace:       cmp.Or(d.Grace, 2*time.Second),
		exited:      make(chan struct{}),
		stderrEnded: make(chan struct{}),
	}
	stderrTo := c.cmd.Stderr // start sets it to nil
	if err := c.start(); err != nil {
		return nil, err
	}
	c.lines = NewLineConn(c.stdout, c.stdin, cmp.Or(d.MaxLine, 64<<20), c.shutDown)
	go c.copyStderr(stderrTo) // ends when no process has stderr any more, or with Close
	go c.awaitExit()          // ends when the child and its group have ended or were killed
	return c, nil
}

// child is the Conn to a process that Dial has started.
type child struct {
	cmd         *exec.Cmd
	grace       time.Duration
	lines       Conn           // over stdin and stdout; its Close calls shutDown
	stdin       io.WriteCloser // the fields stdin, stdout and stderr are our ends of the pipes
	stdout      io.ReadCloser
	stderr      io.ReadCloser
	stderrEnded chan struct{} // closed when nothing more is read from stderr
	lastStderr  []byte        // if the command has no Stderr; read it only when stderrEnded is closed
	exited      chan struct{} // closed when the process has ended
	exitErr     error         // how it has ended; read it only when exited is closed
}

// start starts the process, with a pipe for each of its three streams.
func (c *child) start() error {
	c.cmd.Stdin, c.cmd.Stdout, c.cmd.Stderr = nil, nil, nil
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = ownGroup()
	}
	var errs [3]error
	c.stdin, errs[0] = c.cmd.StdinPipe()
	c.stdout, errs[1] = c.cmd.StdoutPipe()
	c.stderr, errs[2] = c.cmd.StderrPipe()
	if err := errors.Join(errs[:]...); err != nil {
		return err
	}
	return c.cmd.Start()
}

// Read returns the next payload. When the output of the child has ended, the error says why.
func (c *child) Read() (Payload, error) {
	in, err := c.lines.Read()
	if err == nil {
		return in, nil
	}
	return Payload{}, c.explain(err)
}

// Write writes a payload. If the child has ended, or does not read any more, the error wraps
// ErrClosed and says why.
func (c *child) Write(ctx context.Context, p Payload) error {
	err := c.lines.Write(ctx, p)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, c.explain(err))
}

// explain returns why reading or writing has failed with err: most often, the child has ended.
func (c *child) explain(err error) error {
	if !closedWithin(exitTime, c.exited) {
		return fmt.Errorf("server closed its stdin or stdout: %w", err)
	}
	if !closedWithin(exitTime, c.stderrEnded) || len(c.lastStderr) == 0 {
		return fmt.Errorf("server ended: %w", c.exitErr)
	}
	last := strings.ToValidUTF8(strings.TrimSpace(string(c.lastStderr)), "\uFFFD")
	return fmt.Errorf("server ended: %w; the last of its stderr:\n%s", c.exitErr, last)
}

// Close shuts the child down, and waits until its stderr has been passed on.
func (c *child) Close() error {
	err := c.lines.Close()
	closedWithin(exitTime, c.stderrEnded)
	_, _ = c.stdout.Close(), c.stderr.Close() // only a second Close fails
	return err
}

// shutDown ends the child and its group, in steps. It is the closeStream of lines, so it runs
// once: by Close, when nothing can be written any more, or when the child has ended by itself.
// It takes three times grace at most.
//
//	stdin is closed ── grace ──► SIGTERM ── grace ──► SIGKILL ── grace ──► an error
//
// The next step is taken only if a process of the group still runs. After SIGKILL, shutDown
// waits for the child alone. Windows has neither SIGTERM nor process groups: there the child
// alone is killed, after twice grace.
func (c *child) shutDown() error {
	_ = c.stdin.Close()
	for _, s := range []os.Signal{syscall.SIGTERM, os.Kill} {
		if c.endsWithin(c.grace) {
			return nil
		}
		_ = c.signal(s)
	}
	if !closedWithin(c.grace, c.exited) {
		return fmt.Errorf("process %d does not end", c.cmd.Process.Pid)
	}
	return nil
}

// awaitExit waits for the end of the process. Then it shuts down what is left of the process
// group. It does not call cmd.Wait, which closes the pipes of stdout and stderr, perhaps before
// all is read.
func (c *child) awaitExit() {
	state, err := c.cmd.Process.Wait()
	c.cmd.ProcessState = state
	if err == nil {
		err = &exec.ExitError{ProcessState: state} // also for exit status 0: a server must not end by itself
	}
	c.exitErr = err
	close(c.exited)
	_ = c.lines.Close() // exited is closed, so shutDown waits only for the rest of the group
}

// ==== Bounds and protection ====

const (
	// headOfLine is how many bytes of a line that is too long are searched for its id. Most
	// peers write the id first, or after the name of the method.
	headOfLine = 4 << 10
	// exitTime is how long we wait until the process and its stderr end, when its stdin or
	// stdout has ended. Normally both end at once. But a process may close its stdout and live
	// on, a process outside of the group may keep stderr open for ever, and the writer that
	// takes in stderr may block.
	exitTime  = time.Second
	maxStderr = 2048 // bytes of stderr that an error shows
	// groupInterval is the time between two checks whether a process group is empty. It is
	// short, because most groups are empty soon.
	groupInterval = 10 * time.Millisecond
)

// tooLong returns what Read returns for a line that is too long. The function unreadable, in
// jsonrpc.go, looks for an id in the first 4 KiB of the line. What it finds decides:
//
//	a response with an id    our call with this id fails with ErrTooLarge
//	a request with an id     the request is answered with CodeInvalidRequest
//	a method without an id   a server sends a CodeInvalidRequest without an id
//	anything else            the same answer as in the line above; and all our calls fail,
//	                         because it may be the response to any of them
func (c *lineConn) tooLong(line []byte) Payload {
	head := line[:min(len(line), headOfLine)]
	return unreadable(head, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, c.maxLine))
}

// catchSIGPIPE asks for SIGPIPE, so that it no longer ends the process. Otherwise Go ends a
// program that writes to a standard output without a reader. No goroutine reads the channel: a
// signal that does not fit into it is dropped.
//
// Also for the process: nobody may set the pipes of a StdioConn to nonblocking mode, because
// Read would fail.
func catchSIGPIPE() { signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) }

// copyStderr passes on what comes from stderr. If to is nil, it remembers the last of it. It
// reads on even if to fails: otherwise the child would block when the pipe is full.
func (c *child) copyStderr(to io.Writer) {
	defer close(c.stderrEnded)
	part := make([]byte, 4<<10)
	for {
		n, err := c.stderr.Read(part)
		if err != nil {
			return
		}
		if to != nil {
			_, _ = to.Write(part[:n])
			continue
		}
		c.lastStderr = append(c.lastStderr, part[:n]...)
		c.lastStderr = c.lastStderr[max(0, len(c.lastStderr)-maxStderr):]
	}
}

// ownGroup returns the attributes of a process that starts a new process group. The field
// Setpgid exists only on Unix. It is set by reflection, so that this file compiles on Linux,
// macOS and Windows.
func ownGroup() *syscall.SysProcAttr {
	attr := new(syscall.SysProcAttr)
	setpgid := reflect.ValueOf(attr).Elem().FieldByName("Setpgid")
	if setpgid.IsValid() {
		setpgid.SetBool(true)
	}
	return attr
}

// endsWithin waits until the child has ended and its group is empty, for at most d. It reports
// whether that is so.
//
// A process that has ended stays in the group, as a zombie, until its parent has waited for it.
// In a container whose first process does not wait for others, a zombie stays for ever. Then
// Close takes all its steps, which does no harm.
func (c *child) endsWithin(d time.Duration) bool {
	deadline := time.Now().Add(d)
	if !closedWithin(d, c.exited) {
		return false
	}
	for c.signalGroup(noSignal) == nil {
		if time.Now().After(deadline) {
			return false
		}
		time.Sleep(groupInterval)
	}
	return true
}

// signal sends a signal to the process group. If there is none, it sends the signal to the
// process.
//
// As long as the group has a process, no other group gets its number. endsWithin has just seen
// a process in it. If that has ended since, another group could have the number, but systems
// use a number again only after many others.
func (c *child) signal(s os.Signal) error {
	if c.signalGroup(s) == nil {
		return nil
	}
	return c.cmd.Process.Signal(s)
}

// noSignal never arrives. Sending it only checks whether the group has processes.
const noSignal = syscall.Signal(0)

// signalGroup sends a signal to the process group. It returns an error if the group is empty,
// or if the system has no process groups.
func (c *child) signalGroup(s os.Signal) error {
	group, err := os.FindProcess(-c.cmd.Process.Pid) // on Unix, a negative number stands for a group
	if err != nil {
		return err
	}
	return group.Signal(s)
}
