//go:build unix

package main

// What a server holds while nothing happens, and what it takes to begin.

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// growth is what each of n things holds that open opens. A few come before, as
// the first ones cost more.
func (c *child) growth(n int, open func(n int) error) (each memory, err error) {
	if err := open(10); err != nil {
		return each, err
	}
	before, err := c.memory()
	if err != nil {
		return each, err
	}
	if err := open(n); err != nil {
		return each, err
	}
	after, err := c.memory()
	of := float64(n)
	return memory{(after.heap - before.heap) / of, (after.stacks - before.stacks) / of, (after.goroutines - before.goroutines) / of}, err
}

// sessionMemory tells what sessions hold. The floor has none.
func (b *bench) sessionMemory(name string) error {
	heap, goroutines := row{group: held, name: "an idle session, live heap", bound: 1024}, row{group: held, name: "an idle session, goroutines"}
	for _, p := range b.programs {
		if p.bare {
			heap.add("–")
			goroutines.add("–")
			continue
		}
		c, err := p.serve("-max-sessions", "1000000")
		if err != nil {
			return err
		}
		each, err := c.growth(b.sessions, func(n int) error {
			_, err := c.open(n)
			return err
		})
		c.stop()
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, p.name, err)
		}
		heap.add("%.0f B", each.heap)
		goroutines.add("%.1f", each.goroutines)
		if p.name == "mcpwire" {
			heap.mcpwire = each.heap
		}
	}
	b.add(heap)
	b.add(goroutines)
	return nil
}

// streamMemory tells what standalone streams hold, each of a session of its
// own, over what net/http holds for them.
func (b *bench) streamMemory(name string) error {
	bytes, goroutines := row{group: held, name: "an idle stream, heap and stacks"}, row{group: held, name: "an idle stream, goroutines"}
	var floor memory
	for _, p := range b.programs {
		each, err := p.streams(b.sessions / 10)
		if err != nil {
			return fmt.Errorf("%s: %s: %w", name, p.name, err)
		}
		sum := each.heap + each.stacks
		if p.bare {
			floor = each
			bytes.add("%.1f kB", sum/1e3)
			goroutines.add("%.1f", each.goroutines)
			continue
		}
		bytes.add("%+.1f kB", (sum-floor.heap-floor.stacks)/1e3)
		goroutines.add("%+.1f", each.goroutines-floor.goroutines)
	}
	b.add(bytes)
	b.add(goroutines)
	return nil
}

func (p *program) streams(n int) (each memory, err error) {
	c, err := p.serve("-max-sessions", "1000000")
	if err != nil {
		return each, err
	}
	defer c.stop()
	sessions, err := c.open(n + 10)
	if err != nil {
		return each, err
	}
	var opened []*webConn
	defer func() {
		for _, conn := range opened {
			conn.Close()
		}
	}()
	return c.growth(n, func(n int) error {
		for range n {
			conn, err := openStream(c.addr, p.path(inSession), sessions[len(opened)])
			if err != nil {
				return err
			}
			opened = append(opened, conn)
		}
		return nil
	})
}

// startUp starts the programs as they are, over stdio, and takes the time from
// there to the first answer.
func (b *bench) startUp(string) error {
	turns := make([][2][]float64, len(b.programs)) // time, processor time
	for range 3 * b.rounds {
		for i, p := range b.programs {
			elapsed, cpu, err := p.answerOnce()
			if err != nil {
				return err
			}
			turns[i][0], turns[i][1] = append(turns[i][0], float64(elapsed)), append(turns[i][1], float64(cpu))
		}
	}
	for at, line := range []row{
		{group: rest, name: "start-up, to the first answer", bound: 1.1},
		{group: cpu, name: "start-up and the first answer", bound: 1.1},
	} {
		line.add("%s", duration(quantile(turns[0][at], 0.5)))
		for i, p := range b.programs[1:] {
			var ratios []float64
			for turn, value := range turns[1+i][at] {
				ratios = append(ratios, value/turns[0][at][turn])
			}
			line.addRatio(p, ratios)
		}
		b.add(line)
	}
	return nil
}

func (p *program) answerOnce() (elapsed, cpu time.Duration, err error) {
	cmd := exec.Command(p.plain)
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return 0, 0, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return 0, 0, err
	}
	begun := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, 0, err
	}
	fmt.Fprintf(stdin, "%s\n", `{"jsonrpc":"2.0","id":1,"method":"initialize","params":{`+legacyParams+`}}`)
	line, err := bufio.NewReader(stdout).ReadString('\n')
	elapsed = time.Since(begun)
	if !strings.Contains(line, `"serverInfo"`) {
		return 0, 0, fmt.Errorf("%s: %q, %w", p.name, line, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	return elapsed, cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

func (b *bench) size(name string) error {
	line := row{group: rest, name: name, bound: 1.1}
	var floor float64
	for _, p := range b.programs {
		info, err := os.Stat(p.plain)
		if err != nil {
			return err
		}
		if size := float64(info.Size()); p.bare {
			floor = size
			line.add("%.1f MB", size/1e6)
		} else {
			line.addRatio(p, []float64{size / floor})
		}
	}
	b.add(line)
	return nil
}
