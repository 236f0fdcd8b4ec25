package soak

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"interop/shared"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"interop/wire" // go run ./copywire
)

// ---- What is built ----

var mcpwire string // the program, with record.go.txt

// raceOptions have a program with the race detector end at the first race, and otherwise without a pause.
const raceOptions = "GORACE=halt_on_error=1 atexit_sleep_ms=0"

func TestMain(m *testing.M) { os.Exit(shared.Main(m, "..", buildAll)) }

// buildAll adds record.go.txt to the program, and to main.go a line that calls it.
func buildAll(dir string) error {
	root, err := filepath.Abs("../../..")
	record, err2 := filepath.Abs("record.go.txt")
	main, err3 := os.ReadFile(filepath.Join(root, "main.go"))
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	const lastOfDemo = "	d.storeNote(\"welcome\","
	if strings.Count(string(main), lastOfDemo) != 1 {
		return errors.New("newDemo in main.go does not end as expected")
	}
	recording := strings.Replace(string(main), lastOfDemo, "	recordCalls(d.Server)\n"+lastOfDemo, 1)
	mainPath, overlayPath := filepath.Join(dir, "main.go.txt"), filepath.Join(dir, "overlay.json")
	replaced := map[string]string{filepath.Join(root, "record.go"): record, filepath.Join(root, "main.go"): mainPath}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	err2 = os.WriteFile(mainPath, []byte(recording), 0o600)
	err3 = os.WriteFile(overlayPath, overlay, 0o600)
	if err := errors.Join(err, err2, err3); err != nil {
		return err
	}
	race := "-race=" + strconv.FormatBool(hasRaceDetector())
	mcpwire = filepath.Join(dir, "mcpwire")
	return shared.Go(root, "build", race, "-buildvcs=false", "-overlay", overlayPath, "-o", mcpwire, ".")
}

// hasRaceDetector tells whether these tests have been built with -race.
func hasRaceDetector() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

// ---- Messages ----

const maxMessage = 4 << 20

// ---- What clients do ----

// failure says what kind of error a call may end with, "" if it is none of those.
func failure(err error) string {
	var fault *wire.HTTPError
	var stopped *wire.Error
	switch {
	case err == nil:
		return "succeeded"
	case errors.As(err, new(*url.Error)) && errors.Is(err, context.Canceled):
		// net/http may give a call a connection on which the request before is just being cancelled.
		return "network"
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled): // the first of which is a net.Error, too
		return ""
	case errors.Is(err, wire.ErrSessionEnded):
		return "session ended"
	case errors.Is(err, wire.ErrInterrupted):
		return "interrupted"
	case errors.Is(err, wire.ErrClosed):
		return "closed"
	case errors.As(err, &fault):
		return fmt.Sprintf("HTTP %d", fault.Status)
	case errors.As(err, &stopped) && stopped.Code == wire.CodeInternalError: // of a server that was told to end, in a stream
		return "stopped"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.As(err, new(*url.Error)), errors.As(err, new(net.Error)):
		return "network"
	}
	return ""
}

// program returns the command for the program.
func program(args ...string) *exec.Cmd {
	cmd := exec.Command(mcpwire, args...)
	cmd.Env = append(os.Environ(), raceOptions)
	return cmd
}

// sleep waits, and tells whether ctx has not ended meanwhile.
func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// ---- Tests ----

// lengthOf is how long a test takes: as long as a variable says, or short.
func lengthOf(t *testing.T, variable string) time.Duration {
	length, err := time.ParseDuration(cmp.Or(os.Getenv(variable), "4s"))
	if err != nil {
		t.Fatal(err)
	}
	return length
}

// settled returns how many goroutines and open files there are, once that no longer changes.
func settled(transport *http.Transport) (n []int) {
	for same := 0; same < 25; same++ {
		time.Sleep(20 * time.Millisecond)
		transport.CloseIdleConnections()
		if now := []int{runtime.NumGoroutine(), shared.OpenFiles()}; !slices.Equal(now, n) {
			n, same = now, 0
		}
	}
	return n
}
