// SPDX-License-Identifier: 0BSD
// stdio.go of mcpwire 0.2.0, which is made to be copied.

package main

// Conns that need no HTTP: lines over any byte stream, and stdio.
//
// To see it work, read lessons 01 and 14 of the course: testdata/README.md.
//
// In stdio the client launches the server as its child. It writes to the
// child's standard input and reads the child's standard output, one message on
// each line.
//
//	> {"jsonrpc":"2.0","id":1,"method":"tools/call","params":{…}}⏎        client to the server's stdin
//	< {"jsonrpc":"2.0","method":"notifications/progress","params":{…}}⏎   the server's stdout: messages and nothing else
//	< {"jsonrpc":"2.0","id":1,"result":{…}}⏎
//
// No message says that the conversation is over. The client closes the server's
// stdin, and this end of the input tells the server to shut down.
//
// Source: 2025-11-25 basic/transports#stdio and basic/lifecycle#shutdown;
// 2026-07-28 basic/transports/stdio. Copy this file with jsonrpc.go.

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
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// ---- Lines ----

// NewLineConn returns a Conn that reads and writes one payload on each line. It
// is for stdio, TCP, Unix sockets and other byte streams. 2026-07-28
// basic/transports/stdio: transports on byte streams "SHOULD reuse this
// framing".
//
// A line may have up to maxLine bytes; 0: 4 MiB. Its line end does not count. A longer line
// is skipped, and Read returns an Invalid message or a lost response for it. If the id stands within the first
// 4 KiB, that call fails with ErrTooLarge, or that request is answered with
// CodeInvalidRequest. Otherwise every waiting call fails.
//
// A Write whose context ends returns at once. If its line was begun, the rest
// is still written as soon as the other side reads again.
//
// closeStream is called once: by Close, or after w has failed. It must end a Read
// of r that waits. If it can, it also ends a Write to w that waits.
func NewLineConn(r io.Reader, w io.Writer, maxLine int, closeStream func() error) Conn {
	return newLineConn(r, w, maxLine, closeStream)
}

func newLineConn(r io.Reader, w io.Writer, maxLine int, closeStream func() error) *lineConn {
	return &lineConn{
		r:         bufio.NewReaderSize(r, 64<<10),
		w:         w,
		maxLine:   cmp.Or(maxLine, 4<<20),
		closeOnce: sync.OnceValue(closeStream),
		writeLock: make(chan struct{}, 1),
	}
}

// maxUnused is how much memory more than its bytes a line may have. A line is held as
// long as its request is served.
const maxUnused = 64 << 10

// keptOfLine is how many bytes are kept of a line that is too large. The id is
// looked for in them.
const keptOfLine = 4 << 10

// lineConn is a Conn with one payload on each line.
//
// Half a line would damage the line after it. So a line that was begun is
// finished before the next one begins:
//
//	          gets the lock            all bytes are written
//	waiting ------------------> writing --------------------> written: the next line gets the lock
//	   |                           |
//	   | ctx ends                  | w fails
//	   v                           v
//	dropped                     broken: the Conn closes, and no line follows
//
// If ctx ends in the state writing, Write returns and a goroutine writes the
// rest.
type lineConn struct {
	r         *bufio.Reader
	w         io.Writer
	maxLine   int
	closeOnce func() error // calls closeStream the first time; returns the same error each time
	// finishLines means that Write never returns before its line is written.
	finishLines bool
	// writeLock is a lock for writing, and has room for one value. To put a value in
	// is to lock: it waits while another value is in. To take the value out is
	// to unlock. A Mutex would not do, because a context cannot end the wait for
	// it.
	writeLock chan struct{}
	// writeErr is the error of w; nil: w has not failed. When w has failed, the
	// Conn closes, so Read fails, too, unless it reads standard input. Then Read
	// returns this error, which is the reason.
	writeErr atomic.Pointer[error]
}

// Read returns the payload of the next line that is not blank. The last line
// need not end with a newline.
func (c *lineConn) Read() (Payload, error) {
	for {
		line, tooLarge, err := c.readLine()
		isBlank := len(bytes.Trim(line, " \t\r\n")) == 0
		switch {
		case tooLarge:
			return oversized(line, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, c.maxLine)), nil
		case !isBlank && (err == nil || err == io.EOF):
			return Decode(line), nil
		case err != nil && c.writeErr.Load() != nil:
			return Payload{}, *c.writeErr.Load()
		case err != nil:
			return Payload{}, err
		}
	}
}

// readLine reads up to the next newline, and returns the line with it. If there
// is no newline, err is the reason. A line that is too large is read to its
// end, but only its beginning is kept. The memory of line is not used again,
// because a Payload refers to it.
func (c *lineConn) readLine() (line []byte, tooLarge bool, err error) {
	for {
		var part []byte
		part, err = c.r.ReadSlice('\n')
		if !tooLarge {
			line = append(line, part...)
			tooLarge = len(withoutLineEnd(line)) > c.maxLine
			if tooLarge {
				line = bytes.Clone(line[:min(len(line), keptOfLine)])
			}
		}
		if err != bufio.ErrBufferFull { // with this error, part is the full buffer, and the line continues
			if cap(line)-len(line) > maxUnused {
				line = bytes.Clone(line)
			}
			return line, tooLarge, err
		}
	}
}

// withoutLineEnd returns a line without the newline, or the carriage return and
// the newline, at its end.
func withoutLineEnd(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// Write writes a payload as one line.
func (c *lineConn) Write(ctx context.Context, p Payload) error {
	line := append(p.Append(nil), '\n')
	select {
	case c.writeLock <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	// Only a Write that may return before its line is written needs a
	// goroutine.
	if ctx.Done() == nil || c.finishLines {
		return c.writeLine(line)
	}
	written := make(chan error, 1)
	go func() { written <- c.writeLine(line) }() // ends when the other side has read the line, or with Close
	select {
	case err := <-written:
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// writeLine writes a line. The caller has locked writeLock, and writeLine
// unlocks it.
func (c *lineConn) writeLine(line []byte) error {
	defer func() { <-c.writeLock }()
	if failed := c.writeErr.Load(); failed != nil {
		return *failed
	}
	_, err := c.w.Write(line)
	if err == nil {
		return nil
	}
	err = closedBy{err}
	c.writeErr.Store(&err)
	go c.closeOnce() // ends Read; on a goroutine, because a child may take long to end
	return err
}

// Close calls closeStream. That ends reading, and writing if closeStream can do
// so.
func (c *lineConn) Close() error { return c.closeOnce() }

// ---- Standard input and output ----

// StdioConn returns the Conn of a server that a client has launched: it reads
// standard input and writes standard output. maxLine is as for NewLineConn. Write
// does not return before its line is written, even if its context ends.
//
// Close does nothing: the server can still write the responses to the requests it has
// read, and a Read that waits ends only with the input or the process. In Go, nothing
// else can end it, unless the input is set to nonblocking mode. That mode would cost
// as much as the rest of a small call. It also belongs to the pipe and not to the
// process, so it would stay on when the process has ended. For the same reason, no
// other process that has the pipe may set it to nonblocking mode meanwhile.
//
// StdioConn changes the whole process: SIGPIPE no longer ends it. If the client
// has gone, Write returns an error.
func StdioConn(maxLine int) Conn {
	// Go ends a program that writes to a standard output without a reader,
	// unless the program asks for SIGPIPE. No goroutine reads the channel:
	// Notify drops the signals that do not fit in.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	c := newLineConn(os.Stdin, os.Stdout, maxLine, func() error { return nil })
	c.finishLines = true // there is only one client: while it does not read, no other is kept waiting
	return c
}

// ---- Launching a server ----

// CommandDialer is a Dialer that launches a server and talks to it in lines, over its
// standard input and output.
//
// There is no shell in between. Stdin and Stdout of the command are
// replaced. What the child writes to stderr goes to the command's Stderr. When
// Close returns, all of it has been written there, unless that writer blocks. If
// SysProcAttr is nil, the child starts a new process group, on systems that have
// process groups.
//
// When the child ends, Read fails with its exit status. If the command has no
// Stderr, the error also has the last 2,048 bytes that the child wrote to
// stderr.
//
// Close shuts the child down as 2025-11-25 basic/lifecycle#shutdown asks: it
// closes the child's stdin, then sends SIGTERM, then kills the child. The signals go
// to the whole process group of the child. When Close returns, all processes of the
// group have ended or were killed. If the child does not end at all, Close returns an
// error.
type CommandDialer struct {
	// Command returns the command of one child: an exec.Cmd can be started only once.
	// Required.
	Command func() *exec.Cmd
	Grace   time.Duration // how long Close waits after each step for the child to end; 0: two seconds
	MaxLine int           // bytes of a line of the child, as for NewLineConn; 0: 64 MiB, as for HTTPDialer
}

// Dial launches a child, and returns its Conn. When ctx ends, the child goes on.
func (d CommandDialer) Dial(context.Context) (Conn, error) {
	c := &child{cmd: d.Command(), grace: cmp.Or(d.Grace, 2*time.Second), exited: make(chan struct{}), gone: make(chan struct{})}
	if err := c.start(cmp.Or(d.MaxLine, 64<<20)); err != nil {
		return nil, err
	}
	return c, nil
}

const (
	// outputTime is how long the stdout and stderr of a child stay open after its
	// exit, if other processes of its group still have them.
	outputTime = time.Second
	// outputPause ends them after that: nothing has come for this time.
	outputPause = 50 * time.Millisecond
	// exitTime is how long a Write that has failed waits for the child's exit. The
	// exit status says more than the error of the Write.
	exitTime = 100 * time.Millisecond

	// groupInterval is the time between two checks whether the group of a child is
	// empty. It is short, because most groups are empty soon.
	groupInterval = 10 * time.Millisecond
	// zombieInterval is the time between later checks, which begin this time after
	// SIGTERM. They also look for zombies: processes that have ended, but that no
	// process has reaped. That costs more, because they read the states of all
	// processes.
	zombieInterval = 50 * time.Millisecond

	maxStderr = 2048 // bytes of the child's stderr that are kept
)

// child is the Conn to a launched process.
//
//	          Close               grace             grace             grace
//	running --------> stdin closed -----> SIGTERM -------> SIGKILL -------> Close returns an error
//	   |                   |                 |                |
//	   +-------------------+-----------------+----------------+
//	   | the process ends
//	   v
//	exited      Read fails with the exit status; after outputTime at most, the processes left in the group get SIGTERM
//	   |
//	   | the group is empty, or it is killed after grace
//	   v
//	 gone       Close returns
//
// An arrow with grace means that the process has not ended in that time. So Close
// takes three times grace at most until the process has ended, and then outputTime
// and once more grace for the rest of its group.
//
// A goroutine runs the method reap. It takes the child from running to gone,
// whether Close was called or not. Windows has neither SIGTERM nor process
// groups. There the child is killed after the first grace, and it is gone as
// soon as it has exited.
type child struct {
	lines  Conn // its Close calls shutDown, and so does a failed write
	cmd    *exec.Cmd
	stdin  io.Closer // our end of the child's stdin
	stdout *os.File  // our end of the child's stdout
	stderr stderrPipe
	grace  time.Duration
	exited chan struct{} // closed when the process has ended and was reaped
	err    error         // what cmd.Wait has returned; set before exited is closed
	gone   chan struct{} // closed when the group is empty or was killed
}

// start launches the process.
func (c *child) start(maxLine int) error {
	// StdoutPipe would not do: cmd.Wait closes it, perhaps before all is read.
	stdout, childStdout, err := os.Pipe()
	if err != nil {
		return err
	}
	defer childStdout.Close() // the child has a copy
	c.stdout = stdout
	// A pipe of our own, because cmd.Wait would wait for a writer that blocks.
	stderr, childStderr, err := os.Pipe()
	if err != nil {
		return errors.Join(err, stdout.Close())
	}
	defer childStderr.Close()
	c.stderr = stderrPipe{pipe: stderr, next: c.cmd.Stderr, ended: make(chan struct{})}
	c.cmd.Stdin = nil
	c.cmd.Stdout = childStdout
	c.cmd.Stderr = childStderr
	if c.cmd.SysProcAttr == nil {
		c.cmd.SysProcAttr = ownGroup()
	}
	stdin, err := c.cmd.StdinPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		return errors.Join(err, stdout.Close(), stderr.Close())
	}
	c.stdin = stdin
	c.lines = NewLineConn(childOutput{stdout}, stdin, maxLine, c.shutDown)
	go c.stderr.copy() // ends when all have closed stderr, or shortly after the exit
	go c.reap()        // ends when the child is gone
	return nil
}

// ownGroup returns the attributes of a process that starts a new process group.
// The field Setpgid exists only on Unix. It is set by reflection, so that this
// file compiles on Linux, macOS and Windows.
func ownGroup() *syscall.SysProcAttr {
	attr := new(syscall.SysProcAttr)
	setpgid := reflect.ValueOf(attr).Elem().FieldByName("Setpgid")
	if setpgid.IsValid() {
		setpgid.SetBool(true)
	}
	return attr
}

// Read returns the next payload. When the output of the child has ended, the
// error says why.
func (c *child) Read() (Payload, error) {
	p, err := c.lines.Read()
	if err == nil {
		return p, nil
	}
	return Payload{}, c.explain(err, c.grace)
}

// Write writes a payload. If the child has ended, or does not read any more,
// the error wraps ErrClosed and says why.
func (c *child) Write(ctx context.Context, p Payload) error {
	err := c.lines.Write(ctx, p)
	if err == nil || ctx.Err() != nil {
		return err
	}
	return fmt.Errorf("%w: %w", ErrClosed, c.explain(err, exitTime))
}

// Close shuts the child down.
func (c *child) Close() error { return c.lines.Close() }

// explain returns the reason why reading or writing has failed with err. If the
// child exits within limit, its exit is the reason.
func (c *child) explain(err error, limit time.Duration) error {
	if !closedWithin(limit, c.exited) {
		return fmt.Errorf("server closed its stdin or stdout: %w", err)
	}
	exit := c.err
	if exit == nil {
		exit = errors.New(c.cmd.ProcessState.String()) // "exit status 0"
	}
	reason := fmt.Errorf("server ended: %w", exit)
	if c.stderr.next != nil { // the Stderr of the command has shown it already
		return reason
	}
	if !closedWithin(2*outputTime, c.stderr.ended) { // its deadline comes before that, where pipes have deadlines
		return reason
	}
	stderr := strings.ToValidUTF8(strings.TrimSpace(string(c.stderr.last)), "\uFFFD")
	if stderr == "" {
		return reason
	}
	return fmt.Errorf("%w; the last of its stderr:\n%s", reason, stderr)
}

// shutDown takes the steps of Close.
func (c *child) shutDown() error {
	_ = c.stdin.Close()
	exited := closedWithin(c.grace, c.exited)
	if !exited && c.signal(syscall.SIGTERM) == nil {
		exited = closedWithin(c.grace, c.exited)
	}
	if !exited {
		_ = c.signal(os.Kill)
		exited = closedWithin(c.grace, c.exited)
	}
	if !exited {
		return errors.Join(fmt.Errorf("process %d does not end", c.cmd.Process.Pid), c.stdout.Close())
	}
	<-c.gone // reap takes no longer than outputTime and grace
	return c.stdout.Close()
}

// signal sends a signal to the process group. If there is none, it sends the
// signal to the process. When the process has been reaped, its number may belong
// to another one, so signal sends nothing then. A process that is being reaped at
// this moment cannot be told from one that runs. The risk is small, because
// systems use a number again only after many others.
func (c *child) signal(s os.Signal) error {
	select {
	case <-c.exited:
		return os.ErrProcessDone
	default:
	}
	if c.signalGroup(s) == nil {
		return nil
	}
	return c.cmd.Process.Signal(s)
}

// signalGroup sends a signal to the process group. It returns an error if the
// group is empty, or if the system has no process groups.
func (c *child) signalGroup(s os.Signal) error {
	group, err := os.FindProcess(-c.cmd.Process.Pid) // on Unix, a negative number stands for a group
	if err != nil {
		return err
	}
	return group.Signal(s)
}

// noSignal never arrives. Sending it only checks whether the group has processes.
const noSignal = syscall.Signal(0)

// reap reaps the process when it ends, and then ends the rest of its group. As
// long as the group has a process, no other group gets its number. So a group that
// was empty when the process was reaped gets no signal. If it becomes empty later,
// the number may be used again before reap sends one, a second later at most. That
// is as unlikely as in signal.
func (c *child) reap() {
	c.err = c.cmd.Wait()
	othersLeft := c.signalGroup(noSignal) == nil
	deadline := time.Now().Add(outputTime)
	_ = c.stdout.SetReadDeadline(deadline) // see childOutput
	_ = c.stderr.pipe.SetReadDeadline(deadline)
	close(c.exited)
	closedWithin(outputTime, c.stderr.ended)
	if othersLeft {
		c.endGroup()
	}
	close(c.gone)
}

// endGroup sends SIGTERM to the group, and waits until it is empty, for at most
// grace. Then it kills the processes that are left. It does not wait for zombies.
func (c *child) endGroup() {
	if c.signalGroup(syscall.SIGTERM) != nil {
		return // the group is empty
	}
	began := time.Now()
	pause := groupInterval
	for time.Since(began) < c.grace {
		time.Sleep(pause)
		if c.signalGroup(noSignal) != nil {
			return // the group is empty
		}
		if time.Since(began) > zombieInterval {
			if onlyZombies(c.cmd.Process.Pid) {
				break
			}
			pause = zombieInterval
		}
	}
	// A group of zombies is killed, too: a process of the group may have
	// started another one while onlyZombies read the states.
	_ = c.signalGroup(os.Kill)
}

// onlyZombies reports whether a process group has members and all of them are
// zombies. A zombie still accepts signals. In a container whose first process
// reaps no others, a zombie stays for ever. On systems without the /proc of Linux,
// onlyZombies returns false.
func onlyZombies(group int) bool {
	entries, _ := os.ReadDir("/proc")
	zombies := 0
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue // this entry is not a process
		}
		state, itsGroup := processState(pid)
		switch {
		case itsGroup != group: // this process does not count
		case state == "Z":
			zombies++
		default:
			return false
		}
	}
	return zombies > 0
}

// processState returns the state of a process, such as "R" or "Z", and its
// process group. If the process does not exist any more, the group is 0.
func processState(pid int) (state string, group int) {
	// PID (NAME) STATE PARENT GROUP …; NAME may contain spaces and brackets
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0
	}
	afterName := bytes.LastIndexByte(stat, ')') + 1
	fields := strings.Fields(string(stat[afterName:]))
	if len(fields) < 3 {
		return "", 0
	}
	group, err = strconv.Atoi(fields[2])
	if err != nil {
		return "", 0
	}
	return fields[0], group
}

// childOutput is our end of the child's stdout or stderr. A pipe ends when all processes
// have closed their end of it. So a process that the child has left behind
// could keep us waiting for ever. Therefore reap sets a deadline when the child
// has exited. After the deadline, the pipe counts as ended when nothing is in
// it for outputPause. What the child has written before is still read, however
// slowly that is done.
type childOutput struct{ *os.File }

// Read waits for at most outputPause after the deadline.
func (out childOutput) Read(b []byte) (int, error) {
	n, err := out.File.Read(b)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		_ = out.SetReadDeadline(time.Now().Add(outputPause))
		n, err = out.File.Read(b)
	}
	return n, err
}

// stderrPipe is the pipe to which a child writes its stderr. A goroutine
// passes on what comes, and keeps the last bytes of it for the error that reports
// the end of the child.
type stderrPipe struct {
	pipe  *os.File      // our end
	next  io.Writer     // the Stderr of the command; nil: there is none
	last  []byte        // read it only when ended is closed
	ended chan struct{} // closed when nothing more is read
}

// copy reads the pipe until its end, or until nothing has come for outputPause after the
// deadline that reap sets.
func (s *stderrPipe) copy() {
	defer close(s.ended)
	defer s.pipe.Close()
	_, _ = io.Copy(s, struct{ io.Reader }{childOutput{s.pipe}}) // io.Copy would use WriteTo of the os.File, and not this Read
}

// Write never fails, even if next does: copy would end, and the child could die
// of its next message.
func (s *stderrPipe) Write(b []byte) (int, error) {
	s.last = append(s.last, b...)
	if len(s.last) > maxStderr {
		s.last = s.last[len(s.last)-maxStderr:]
	}
	if s.next != nil {
		_, _ = s.next.Write(b)
	}
	return len(b), nil
}
