// SPDX-License-Identifier: 0BSD

package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"example.com/mine/mcp"
)

// A transport of your own is a type with the three methods of mcp.Conn. This one sends each payload
// as one frame, as a WebSocket does. A transport that carries bytes, such as a TCP connection, needs
// none of this: mcp.NewLineConn makes a Conn of it.

// frames is what you have already.
type frames interface {
	ReadFrame(max int) ([]byte, error)                 // each time into new memory
	WriteFrame(ctx context.Context, text []byte) error // the whole frame or nothing, also if ctx ends meanwhile
	Close() error                                      // ReadFrame and WriteFrame return; may be called twice
}

type frameConn struct {
	frames  frames
	writing chan struct{} // has room for one value: the goroutine that has put it in may write
}

func newFrameConn(f frames) *frameConn { return &frameConn{f, make(chan struct{}, 1)} }

// Read returns the next payload. One goroutine at a time calls it, while others write. Each error ends
// the conversation, and io.EOF says that the other end has hung up. A frame that is no message is not
// an error: Decode makes a response of it, which says what is wrong.
func (c *frameConn) Read() (mcp.Payload, error) {
	text, err := c.frames.ReadFrame(4 << 20) // the Payload keeps the bytes: the next frame needs others
	if err != nil {
		return mcp.Payload{}, err
	}
	return mcp.Decode(text), nil
}

// Write sends a payload whole. Several goroutines call it at the same time. If ctx ends first, it
// returns ctx.Err(). If nothing can be written any more, its error wraps mcp.ErrClosed.
func (c *frameConn) Write(ctx context.Context, p mcp.Payload) error {
	select {
	case c.writing <- struct{}{}:
		defer func() { <-c.writing }()
	case <-ctx.Done(): // a sync.Mutex could not stop waiting
		return ctx.Err()
	}
	return c.frames.WriteFrame(ctx, p.Append(nil))
}

// Close makes Read return. Serve calls it at its end, and so does Close of a Client.
func (c *frameConn) Close() error { return c.frames.Close() }

func TestFrames(t *testing.T) {
	ours, theirs := newMemory()
	ended := make(chan error)
	go func() { ended <- mcp.Serve(t.Context(), newFrameConn(theirs), newServer(), nil) }()
	client := connect(t, func(context.Context) (mcp.Conn, error) { return newFrameConn(ours), nil })
	if result := callTool(t, client, "add", map[string]any{"a": 1, "b": 2}); result.IsError {
		t.Error(result.Text())
	}
	if err := client.Close(); err != nil {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// memory is one end of two queues of frames.
type memory struct {
	in, out    chan []byte
	ctx, other context.Context // each ends when its end is closed
	close      context.CancelFunc
}

func newMemory() (a, b *memory) {
	left, right := make(chan []byte), make(chan []byte)
	aOpen, closeA := context.WithCancel(context.Background())
	bOpen, closeB := context.WithCancel(context.Background())
	return &memory{left, right, aOpen, bOpen, closeA}, &memory{right, left, bOpen, aOpen, closeB}
}

func (m *memory) ReadFrame(max int) ([]byte, error) {
	select {
	case text := <-m.in:
		if len(text) > max {
			return nil, errors.New("the frame is too long")
		}
		return text, nil
	case <-m.ctx.Done():
	case <-m.other.Done():
	}
	return nil, io.EOF
}

func (m *memory) WriteFrame(ctx context.Context, text []byte) error {
	select {
	case m.out <- text:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-m.ctx.Done():
	case <-m.other.Done():
	}
	return mcp.ErrClosed
}

func (m *memory) Close() error {
	m.close()
	return nil
}
