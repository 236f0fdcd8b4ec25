package soak

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- Servers that a client starts: what main_test.go does not show of their end ----

// child returns the command for a child process that plays a role.
func child(role string, args ...string) *exec.Cmd {
	cmd := exec.Command(children, append([]string{role}, args...)...)
	cmd.Env = append(os.Environ(), raceOptions)
	return cmd
}

// Noise on stdout is skipped, and 1 MiB on stderr does not block the child; arguments arrive as they are.
func TestChildNoise(t *testing.T) {
	var logged log
	c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Log: slog.New(slog.NewTextHandler(&logged, nil))}
	if err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd { return child("is noisy", "a b", `"`, "$HOME", "") }, Grace: time.Second, MaxLine: maxMessage}); err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var result struct{ Args []string }
	if err := c.Call(t.Context(), "args", nil, &result); err != nil || !slices.Equal(result.Args, []string{"a b", `"`, "$HOME", ""}) {
		t.Errorf("%q, %v", result.Args, err)
	}
	if strings.Count(logged.String(), "dropped") != 1 {
		t.Error(logged.String())
	}
}

// Old servers that take the probe badly, as real processes: each is reached with initialize, one that dies is started again.
func TestClientProbesChildren(t *testing.T) {
	for role, starts := range map[string]int32{"dies of the probe": 2, "refuses the probe and exits": 2, "is silent at the probe": 1, "refuses the probe with -32600": 1, "answers the probe oddly": 1} {
		var started atomic.Int32
		c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, ProbeTimeout: 200 * time.Millisecond}
		if role == "dies of the probe" {
			c.ProbeTimeout = 10 * time.Second
		}
		err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd { started.Add(1); return child(role) }, Grace: time.Second, MaxLine: maxMessage})
		if err != nil || c.Server().Version != "2025-06-18" || started.Load() != starts {
			t.Errorf("%s: %v, %q after %d starts", role, err, c.Server().Version, started.Load())
		}
		if err := c.Call(t.Context(), "ping", nil, nil); err != nil {
			t.Errorf("%s: %v", role, err)
		}
		c.Close()
	}
}

// When the server is gone, the calls that wait fail, and the next one, or twenty at once, start it again, once.
func TestClientReconnects(t *testing.T) {
	for _, version := range []string{"2025-11-25", "2026-07-28"} {
		var started atomic.Int32
		var last atomic.Pointer[exec.Cmd]
		c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Versions: []string{version}}
		list := func() {
			if err := c.Call(t.Context(), "tools/list", nil, nil); err != nil {
				t.Error(err)
			}
		}
		err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd {
			started.Add(1)
			last.Store(program())
			return last.Load()
		}, Grace: time.Second, MaxLine: maxMessage})
		if err != nil {
			t.Fatal(err)
		}
		slow := make(chan error)
		go func() {
			slow <- c.Call(t.Context(), "tools/call", json.RawMessage(`{"name":"count","arguments":{"n":1,"delayMs":60000}}`), nil)
		}()
		list()
		_ = last.Load().Process.Kill()
		if err := <-slow; !errors.Is(err, wire.ErrClosed) || !strings.Contains(err.Error(), "killed") {
			t.Error(err)
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(list)
		}
		if wg.Wait(); started.Load() != 2 {
			t.Errorf("%s: started %d times", version, started.Load())
		}
		c.Close()
	}
}

// A child that no longer reads is given up, and the next call starts another.
func TestChildDoesNotRead(t *testing.T) {
	var started atomic.Int32
	c := &wire.Client{Info: wire.Implementation{Name: "t", Version: "0"}, Versions: []string{"2026-07-28"}}
	err := c.Connect(t.Context(), wire.CommandDialer{Command: func() *exec.Cmd {
		if started.Add(1) == 1 {
			return sh(`read request; exec <&-; echo '{"jsonrpc":"2.0","id":1,"result":{"supportedVersions":["2026-07-28"],"capabilities":{}}}'; exec sleep 60`)
		}
		return program()
	}, Grace: 300 * time.Millisecond, MaxLine: maxMessage})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	waitFor(t, func() bool { return c.Call(t.Context(), "tools/list", nil, nil) == nil })
	if started.Load() != 2 {
		t.Errorf("%d starts", started.Load())
	}
}

// sh is a child that runs a script, with a message as its first argument.
func sh(script string, args ...string) *exec.Cmd {
	return exec.Command("sh", append([]string{"-c", script, "sh", `{"jsonrpc":"2.0","method":"notifications/hello"}`}, args...)...)
}

// groupAlive reports whether a process of the group runs; one that is dead but not yet reaped by its new parent does not count.
func groupAlive(pgid int) bool {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat")
	alive := regexp.MustCompile(fmt.Sprintf(`\) [^Z] [0-9]+ %d `, pgid))
	return slices.ContainsFunc(stats, func(path string) bool {
		stat, _ := os.ReadFile(path)
		return alive.Match(stat)
	})
}
