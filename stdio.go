// SPDX-License-Identifier: 0BSD
// stdio.go of mcpwire 0.3.0, an implementation of the Model Context Protocol that you copy.

package main

// Messages as lines: on standard input and output, or on any other stream of bytes.
//
//	> {"jsonrpc":"2.0","id":1,"method":"ping"}
//	< {"jsonrpc":"2.0","id":1,"result":{}}
//
// One message is one line of UTF-8, and nothing else is written there (2025-11-25
// basic/transports#stdio). The end of standard input is how a client ends a server that it has
// started: a child process, the second section.
//
// A Conn has no goroutine here. A child has one, which waits for the end of the process.

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"reflect"
	"sync"
	"syscall"
	"time"
)

// defaultMaxMessage is the most bytes of a message, unless a program says otherwise;
// clientMaxMessage is the same for what a server sends to our client.
const defaultMaxMessage, clientMaxMessage = 4 << 20, 16 << 20

// ---- Lines ----

type lineConn struct {
	reader  *bufio.Reader
	writer  io.Writer
	maxLine int
	close   func() error

	writing chan struct{} // a lock that a Write stops waiting for when its ctx ends
	buffer  []byte        // the line that is being written
	broken  error         // why nothing can be written any more
}

// NewLineConn returns a Conn that reads and writes lines of at most maxLine bytes; 0: 4 MiB.
// Close calls closeStream; nil: it does nothing.
func NewLineConn(r io.Reader, w io.Writer, maxLine int, closeStream func() error) Conn {
	if closeStream == nil {
		closeStream = func() error { return nil }
	}
	maxLine = cmp.Or(max(maxLine, 0), defaultMaxMessage)
	c := &lineConn{writer: w, maxLine: maxLine, close: closeStream, writing: make(chan struct{}, 1)}
	c.reader = bufio.NewReaderSize(r, 64<<10)
	return c
}

// StdioConn returns the Conn of a server on standard input and output. A write to a client that
// has gone is an error, and not the end of the process.
func StdioConn(maxLine int) Conn {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE) // signal.Ignore would be inherited by child processes
	return NewLineConn(os.Stdin, os.Stdout, maxLine, nil)
}

// Pipe returns the two ends of a Conn in memory, for tests.
func Pipe() (a, b Conn) {
	one, other := net.Pipe()
	return NewLineConn(one, one, 0, one.Close), NewLineConn(other, other, 0, other.Close)
}

// Read returns the next line that is not blank. At a server, a line that is too long becomes an
// Invalid message, and the next line works.
func (c *lineConn) Read() (Payload, error) {
	for {
		line, err := c.readLine()
		switch {
		case errors.Is(err, bufio.ErrTooLong):
			fault := invalidRequest(fmt.Sprintf("a line of more than %d bytes", c.maxLine))
			fault.cause = err
			return payload(invalidMessage(ID{}, fault)), nil
		case err != nil:
			return Payload{}, err
		case len(bytes.TrimSpace(line)) > 0:
			return Decode(line), nil
		}
	}
}

// readLine returns a line without its end. Nobody else uses these bytes. Of a line that is too long it
// keeps only the beginning, while it reads on to the end.
func (c *lineConn) readLine() (line []byte, err error) {
	for isPart := true; isPart && err == nil; {
		var part []byte
		part, isPart, err = c.reader.ReadLine() // a part is what its buffer holds
		if len(line) <= c.maxLine {
			line = append(line, part...)
		}
	}
	switch {
	case len(line) > c.maxLine:
		return nil, bufio.ErrTooLong
	case len(line) > 0:
		return line, nil // an err comes again at the next call
	}
	return nil, err
}

// Write writes a line at once, so that no two lines mix. If ctx ends when only a part is written,
// nothing more can be written.
func (c *lineConn) Write(ctx context.Context, p Payload) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done():
	}
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errUnread, context.Cause(ctx))
	case c.broken != nil:
		return c.broken
	}
	c.buffer = append(p.Append(c.buffer[:0]), '\n')
	n, err := c.writeUntil(ctx, c.buffer)
	if cap(c.buffer) > 64<<10 {
		c.buffer = nil
	}
	switch {
	case err == nil:
		return nil
	case n == 0 && ctx.Err() != nil:
		return fmt.Errorf("%w: %w", errUnread, context.Cause(ctx))
	}
	c.broken = fmt.Errorf("%w: a line was not written: %w", ErrClosed, err)
	return c.broken
}

// writeUntil writes until ctx ends. Only a stream with deadlines, such as a pipe or a socket, can
// be interrupted.
func (c *lineConn) writeUntil(ctx context.Context, line []byte) (n int, err error) {
	stream, ok := c.writer.(interface{ SetWriteDeadline(time.Time) error })
	if !ok || ctx.Done() == nil {
		return c.writer.Write(line)
	}
	interrupted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = stream.SetWriteDeadline(time.Now()) // some files have none
		close(interrupted)
	})
	n, err = c.writer.Write(line)
	if !stop() { // the deadline must not meet the next line
		<-interrupted
		_ = stream.SetWriteDeadline(time.Time{})
	}
	return n, err
}

// Close closes the stream.
func (c *lineConn) Close() error { return c.close() }

// ---- A child process ----

// CommandDialer starts a server as a child process, in a process group of its own. When the child
// ends, what it leaves behind in its group is killed. Its standard error goes to the Stderr of
// Command, or nowhere.
type CommandDialer struct {
	Command    func() *exec.Cmd // a new one for each Dial
	Grace      time.Duration    // how long the child may take to end, before each signal; 0: 2 s
	MaxMessage int              // bytes; 0: 16 MiB
}

// child is the Conn of a process.
type child struct {
	Conn
	command *exec.Cmd
	in, out io.Closer
	grace   time.Duration
	once    sync.Once
	ended   chan struct{} // closed when the process has ended
	err     error         // how it has ended
}

// Dial starts the process.
func (d CommandDialer) Dial(context.Context) (Conn, error) {
	command := d.Command()
	command.SysProcAttr = ownGroup(command.SysProcAttr)
	in, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, childsOut, err := os.Pipe() // not StdoutPipe: Wait closes that before all is read
	if err != nil {
		return nil, err
	}
	command.Stdout = childsOut
	c := &child{command: command, in: in, out: out, ended: make(chan struct{})}
	c.grace = cmp.Or(max(d.Grace, 0), 2*time.Second)
	command.WaitDelay = c.grace // a grandchild may hold standard error
	err = command.Start()
	childsOut.Close()
	if err != nil {
		out.Close()
		return nil, err
	}
	c.Conn = NewLineConn(out, in, cmp.Or(d.MaxMessage, clientMaxMessage), nil)
	go func() { // ends with the process
		c.err = command.Wait()
		signalGroup(command.Process, os.Kill) // what it has left behind; later, the number may be that of others
		close(c.ended)
	}()
	return c, nil
}

// Read returns a payload. Its error says how the process has ended, if it has.
func (c *child) Read() (Payload, error) {
	p, err := c.Conn.Read()
	if err == nil {
		return p, nil
	}
	select {
	case <-c.ended:
		if c.err != nil {
			return p, fmt.Errorf("the server process has ended: %w", c.err)
		}
	case <-time.After(time.Second / 5):
	}
	return p, fmt.Errorf("the server process has closed its output: %w", err)
}

// Close ends the process as 2025-11-25 basic/lifecycle#shutdown says: its input ends, then come two
// signals, each after a while, to the whole group.
func (c *child) Close() error {
	c.once.Do(func() {
		c.in.Close()
		for _, s := range []os.Signal{syscall.SIGTERM, os.Kill} {
			select {
			case <-c.ended:
			case <-time.After(c.grace):
				signalGroup(c.command.Process, s)
			}
		}
		<-c.ended
		c.out.Close()
	})
	return nil
}

// ownGroup adds a process group of its own to the attributes of a process; nil: it has none yet.
// The field exists only on Unix; reflection lets this file compile on Windows, too.
func ownGroup(attributes *syscall.SysProcAttr) *syscall.SysProcAttr {
	attributes = cmp.Or(attributes, &syscall.SysProcAttr{})
	if field := reflect.ValueOf(attributes).Elem().FieldByName("Setpgid"); field.IsValid() {
		field.SetBool(true)
	}
	return attributes
}

// signalGroup sends a signal to the group of a process, if it is still there. Windows has no
// groups: there the process itself gets it, and only Kill has an effect.
func signalGroup(process *os.Process, s os.Signal) {
	if group, err := os.FindProcess(-process.Pid); err == nil && group.Signal(s) == nil { // by its group
		return
	}
	_ = process.Signal(s) // perhaps it has left its group
}
