package soak

import (
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// ---- The proxy ----

// badProxy passes on what comes, until there is abuse: then it does so late, in pieces, or not at all.
type badProxy struct {
	net.Listener
	soak *soak
	all  sync.WaitGroup
}

func newBadProxy(s *soak) *badProxy {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.Fatal(err)
	}
	p := &badProxy{Listener: listener, soak: s}
	p.all.Go(func() {
		for {
			conn, err := p.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.pass(conn) })
		}
	})
	return p
}

// Close returns when all connections have ended, which those must bring about who use them.
func (p *badProxy) Close() error {
	err := p.Listener.Close()
	p.all.Wait()
	return err
}

// passage is one connection through the proxy.
type passage struct {
	soak     *soak
	fate     atomic.Int32
	left     atomic.Int64 // bytes before its fate
	from, to net.Conn
}

func (p *badProxy) pass(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", p.soak.addr)
	if err != nil {
		return
	}
	defer to.Close()
	lot := p.soak.draw()
	x := &passage{soak: p.soak, from: from, to: to}
	x.fate.Store(lot.Int32N(6))
	x.left.Store(lot.Int64N(64 << lot.IntN(10)))
	back := p.soak.draw()
	var both sync.WaitGroup
	both.Go(func() { x.pump(to, from, lot) })
	both.Go(func() { x.pump(from, to, back) })
	both.Wait()
}

// pump passes on one direction.
func (x *passage) pump(to, from net.Conn, lot *rand.Rand) {
	defer to.(*net.TCPConn).CloseWrite()
	buffer := make([]byte, 4096)
	for {
		n, err := from.Read(buffer)
		for b := buffer[:n]; len(b) > 0; {
			part := len(b)
			if x.soak.abused.Load() {
				part = min(part, 1+lot.IntN(1000))
				if lot.IntN(10) == 0 {
					part = min(part, 10)
					time.Sleep(time.Duration(lot.IntN(5)) * time.Millisecond)
				}
				if x.left.Add(int64(-part)) < 0 && !x.meet() {
					return
				}
			}
			if _, err := to.Write(b[:part]); err != nil {
				from.Close() // or who writes there would wait
				return
			}
			b = b[part:]
		}
		if err != nil {
			return
		}
	}
}

// meet tells whether the connection goes on, after what befalls it.
func (x *passage) meet() bool {
	switch x.fate.Swap(0) {
	case 1:
		x.soak.count("proxy: connections reset")
		_ = x.from.(*net.TCPConn).SetLinger(0)
		_ = x.to.(*net.TCPConn).SetLinger(0)
	case 2:
		x.soak.count("proxy: connections ended")
	case 3:
		x.soak.count("proxy: connections ended halfway") // the client is heard no more
		_ = x.to.(*net.TCPConn).CloseWrite()
		return true
	case 4:
		x.soak.count("proxy: connections stalled")
		time.Sleep(time.Second)
		return true
	default:
		return true
	}
	x.from.Close()
	x.to.Close()
	return false
}
