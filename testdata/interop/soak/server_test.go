package soak

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"interop/shared"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// mortal is a server in a child process that is started again and again, at one address.
type mortal struct {
	*testing.T
	addr, record string
	flags        []string // beyond -http
	cmd          *exec.Cmd
	asks         io.Writer     // to be told of its usage
	tells        *bufio.Reader // of its usage
	lives        int           // started so far

	mu   sync.Mutex  // guards the fields below
	up   int         // the life in which it listens, from 1; 0: it has been told to end
	over []time.Time // when each life had ended
}

func newMortal(t *testing.T) *mortal {
	s := &mortal{T: t, record: filepath.Join(t.TempDir(), "record")}
	for s.addr == "" { // not a port that some connection may be given while nobody listens there
		addr := fmt.Sprintf("127.0.0.1:%d", 20000+rand.N(10000))
		if listener, err := net.Listen("tcp", addr); err == nil {
			s.addr = addr
			listener.Close()
		}
	}
	t.Cleanup(func() {
		if s.cmd != nil {
			_ = s.cmd.Process.Kill()
			_ = s.cmd.Wait()
		}
	})
	return s
}

// start returns when the server listens.
func (s *mortal) start() {
	stderr := new(shared.Output)
	cmd := recorded(s.record, append([]string{"-http", s.addr}, s.flags...)...)
	cmd.Stderr = stderr
	stdin, err := cmd.StdinPipe() // which ends with this process, and then so does the child
	if err != nil {
		s.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		s.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		s.Fatal(err)
	}
	s.cmd, s.asks, s.tells = cmd, stdin, bufio.NewReader(stdout)
	shared.WaitFor(s, func() bool { return strings.Contains(stderr.String(), "\n") })
	if !strings.Contains(stderr.String(), "listening") {
		s.Fatal(stderr)
	}
	s.lives++
	s.mu.Lock()
	defer s.mu.Unlock()
	s.up = s.lives
}

// stop returns when the server has ended.
func (s *mortal) stop(how os.Signal) {
	s.mu.Lock()
	s.up = 0
	s.mu.Unlock()
	if err := s.cmd.Process.Signal(how); err != nil {
		s.Error(err)
	}
	if err := s.cmd.Wait(); err != nil && how != os.Kill {
		s.Errorf("after %v: %v\n%v", how, err, s.cmd.Stderr)
	}
	s.cmd = nil
	s.mu.Lock()
	defer s.mu.Unlock()
	s.over = append(s.over, time.Now())
}

// state tells in which life the server listens, 0 if in none, and which lives are over.
func (s *mortal) state() (up int, over []time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.up, s.over
}

// compare fails the test for each call that ran twice.
func (s *mortal) compare() {
	file, err := os.Open(s.record)
	if err != nil {
		s.Fatal(err)
	}
	defer file.Close()
	runs := map[string]int{}
	for lines := bufio.NewScanner(file); lines.Scan(); {
		if runs[lines.Text()]++; runs[lines.Text()] == 2 {
			s.Errorf("%s ran twice", lines.Text())
		}
	}
	s.Logf("%d calls ran", len(runs))
}

// recorded returns the command that runs mcpwire so that it records its calls.
func recorded(record string, args ...string) *exec.Cmd {
	cmd := exec.Command(mcpwire, args...)
	cmd.Env = append(os.Environ(), "MCPWIRE_RECORD="+record, raceOptions)
	return cmd
}

// usage is what a process uses: bytes of heap, goroutines, and files.
type usage [3]int

// uses asks the server.
func (s *mortal) uses() (u usage) {
	_, err := fmt.Fprintln(s.asks)
	if err == nil {
		var line []byte
		line, err = s.tells.ReadBytes('\n')
		err = cmp.Or(err, json.Unmarshal(line, &u))
	}
	if err != nil {
		s.Error("the server does not tell what it uses:", err)
	}
	return u
}
