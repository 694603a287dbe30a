package rig

import (
	"net"
	"sync"
	"time"
)

// farAhead is the maximum number of chunks of a connection in flight.
const farAhead = 1024

// piece is bytes that were sent together, with their arrival time.
type piece struct {
	data []byte
	at   time.Time
}

// far is a connection that delays what is written to it.
type far struct {
	net.Conn

	latency time.Duration
	under   chan piece // way
	ended   chan struct{}
	end     func()
}

// far returns the connection with the proxy's latency.
func (p *Proxy) far(c net.Conn) net.Conn {
	if p.Latency == 0 {
		return c
	}
	f := &far{Conn: c, latency: p.Latency, under: make(chan piece, farAhead), ended: make(chan struct{})}
	f.end = sync.OnceFunc(func() { close(f.ended) })
	go f.deliver() // until Close
	return f
}

// Write implements net.Conn. An error comes with a later piece.
func (f *far) Write(data []byte) (int, error) {
	select {
	case f.under <- piece{append([]byte(nil), data...), time.Now().Add(f.latency)}:
		return len(data), nil
	case <-f.ended:
		return 0, net.ErrClosed
	}
}

// Close implements net.Conn. Data in flight is lost.
func (f *far) Close() error {
	f.end()
	return f.Conn.Close()
}

func (f *far) deliver() {
	t := time.NewTimer(0)
	defer t.Stop()
	for {
		select {
		case next := <-f.under:
			t.Reset(time.Until(next.at))
			select {
			case <-t.C:
			case <-f.ended:
				return
			}
			if _, err := f.Conn.Write(next.data); err != nil {
				_ = f.Close()
				return
			}
		case <-f.ended:
			return
		}
	}
}
