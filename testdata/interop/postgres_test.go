package interop

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"regexp"
	"sync"
	"testing"
)

// database stands in for PostgreSQL until the test is over, and returns its URL. It lets everybody in, and answers each query with one row,
// the name of a table.
func database(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() {
				defer context.AfterFunc(t.Context(), func() { conn.Close() })()
				defer conn.Close()
				serveDatabase(conn)
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		running.Wait()
	})
	return "postgresql://reader@" + listener.Addr().String() + "/demo"
}

// serveDatabase speaks version 3.0 of PostgreSQL's protocol. A message is its kind, its length without the kind, and its content; the first
// that a client sends has no kind.
func serveDatabase(conn io.ReadWriter) {
	number := func(n int32) string { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }
	message := func(kind, content string) string { return kind + number(int32(4+len(content))) + content }
	const table = "weather"
	ready := message("Z", "I")
	welcome := message("R", number(0)) + ready
	// A description of the one column: its name, table and place there, type (text) and size, modifier and format.
	answer := message("T", "\x00\x01"+"table_name\x00"+number(0)+"\x00\x00"+number(25)+"\xff\xff"+number(-1)+"\x00\x00") +
		message("D", "\x00\x01"+number(int32(len(table)))+table) + message("C", "SELECT 1\x00") + ready

	in := bufio.NewReader(conn)
	skip := func() error {
		var length uint32
		if err := binary.Read(in, binary.BigEndian, &length); err != nil {
			return err
		}
		_, err := io.CopyN(io.Discard, in, int64(length)-4)
		return err
	}
	err := skip()
	for reply := welcome; err == nil; reply = answer {
		if _, err = io.WriteString(conn, reply); err != nil {
			return
		}
		if kind, _ := in.ReadByte(); kind != 'Q' { // the end, or what we do not speak
			return
		}
		err = skip()
	}
}

// TestServerPostgres: the server declares resources, and has no templates of them: it does not know the method. That is no failure.
func TestServerPostgres(t *testing.T) {
	t.Parallel()
	command := optional(t, "@modelcontextprotocol/server-postgres", "dist/index.js")
	out := summary(t, nil, append(command, database(t)), map[string]string{
		"revision":     `^2024-11-05$`,
		"server":       `^example-servers/postgres 0\.1\.0$`,
		"capabilities": `^resources, tools$`,
		"tools":        `^query$`,
		"resources":    `^postgres://reader@127\.0\.0\.1:\d+/weather/schema$`,
		"templates":    `^none$`,
	})
	if shown := regexp.MustCompile(`(?m)^mcpwire: .*$`).FindAllString(out.stderr, -1); shown != nil {
		t.Errorf("stderr has %q", shown)
	}
}
