package library

import (
	"errors"
	"interop/wire"
	"os/exec"
	"strings"
	"testing"
)

// A maxLine of 0 is 4 MiB, and a grace of 0 is two seconds.
func TestZerosAreDefaults(t *testing.T) {
	line := strings.Repeat(" ", 4<<20-len(ping)) + ping
	for want, line := range map[string]bool{line: false, " " + line: true} {
		in, err := wire.NewLineConn(strings.NewReader(want), nil, 0, func() error { return nil }).Read()
		if err != nil || errors.Is(in.Lost, wire.ErrTooLarge) != line {
			t.Errorf("%d bytes: %v", len(want), err)
		}
	}
	conn, err := wire.CommandDialer{Command: func() *exec.Cmd { return exec.Command("sh", "-c", "cat >/dev/null; sleep 0.3; echo '"+ping+"'") }}.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	read := make(chan error)
	go func() { _, err := conn.Read(); read <- err }()
	go conn.Close()
	if err := <-read; err != nil {
		t.Error("the command had no time to end:", err)
	}
	_ = conn.Close()
}
