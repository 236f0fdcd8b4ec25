//go:build unix

// Package probe is what a measured process says of itself. It is a package for
// the clients; to the servers, mcpwire among them, it is added when they are
// built: the same file, as one of theirs.
package probe

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"
)

// init listens where the environment says, and answers one line with another.
// A process that is not told where is as it would be without this.
func init() {
	path := os.Getenv("BENCH_PROBE")
	if path == "" {
		return
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	go func() { // for as long as the process lives
		conn, err := listener.Accept()
		if err != nil {
			panic(err)
		}
		for lines := bufio.NewScanner(conn); lines.Scan(); {
			fmt.Fprintln(conn, probed(lines.Text()))
		}
	}()
}

func probed(command string) string {
	switch command {
	case "cpu": // nanoseconds
		var usage syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
			panic(err)
		}
		return fmt.Sprint(usage.Utime.Nano() + usage.Stime.Nano())
	case "memory": // live bytes of heap
		runtime.GC()
		debug.FreeOSMemory() // collects once more: finalizers have run, pools are empty
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return fmt.Sprint(m.HeapAlloc)
	}
	return ""
}

// Calls is what a measured client does: for each line on stdin, which is a
// duration, it calls echo, one after another, for so long, and says how many
// calls that were.
func Calls(echo func(text string) (answer string, err error)) {
	total := 0
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		d, err := time.ParseDuration(lines.Text())
		if err != nil {
			log.Fatal(err)
		}
		before := total
		for end := time.Now().Add(d); time.Now().Before(end); total++ {
			text := fmt.Sprint("call ", total)
			if answer, err := echo(text); err != nil || answer != text {
				log.Fatalf("%q is answered with %q, %v", text, answer, err)
			}
		}
		fmt.Println(total - before)
	}
}
