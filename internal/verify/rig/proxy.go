package rig

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"
)

// Proxy sits between one process and one kind of server. It passes bytes on, or delays them, blocks them, loses
// replies, or cuts connections.
type Proxy struct {
	// Latency is the delay of each chunk, in both directions, however many are in flight. It is set
	// before Run.
	Latency time.Duration

	listener net.Listener

	mu      sync.Mutex
	targets []string // tried in turn
	next    int
	conns   map[net.Conn]bool
	delay   time.Duration // of each piece, in both directions
	mute    bool          // replies are lost, and the connection with them
	gate    chan struct{} // not nil: nothing passes until it is closed
}

// NewProxy returns a proxy that leads to the first of its targets that answers; Run
// serves it.
func NewProxy(targets ...string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &Proxy{listener: l, targets: targets, conns: map[net.Conn]bool{}}, nil
}

// Addr returns the listening address.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// Run accepts connections until ctx ends.
func (p *Proxy) Run(ctx context.Context) {
	var all sync.WaitGroup
	defer all.Wait()
	stop := context.AfterFunc(ctx, func() {
		_ = p.listener.Close()
		p.Heal()
		p.Cut()
	})
	defer stop()
	for {
		down, err := p.listener.Accept()
		if err != nil {
			return
		}
		all.Go(func() { p.serve(ctx, down) })
	}
}

func (p *Proxy) serve(ctx context.Context, down net.Conn) {
	defer down.Close()
	up, err := p.dial(ctx)
	if err != nil {
		return
	}
	defer up.Close()
	p.mu.Lock()
	p.conns[down], p.conns[up] = true, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, down)
		delete(p.conns, up)
	}()
	if ctx.Err() != nil {
		return
	}
	var both sync.WaitGroup
	both.Go(func() { p.copy(p.far(up), down, false) })
	both.Go(func() { p.copy(p.far(down), up, true) })
	both.Wait()
}

// dial tries each target once, starting with the next.
func (p *Proxy) dial(ctx context.Context) (conn net.Conn, err error) {
	p.mu.Lock()
	targets, first := p.targets, p.next
	p.next++
	p.mu.Unlock()
	err = errors.New("the proxy leads nowhere")
	dialer := net.Dialer{Timeout: time.Second}
	for i := range targets {
		if conn, err = dialer.DialContext(ctx, "tcp", targets[(first+i)%len(targets)]); err == nil {
			return conn, nil
		}
	}
	return nil, err
}

// copy copies data from one side to the other until either closes, and closes both.
func (p *Proxy) copy(to, from net.Conn, replies bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 && !p.pass(to, buf[:n], replies) {
			return
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) pass(to net.Conn, data []byte, reply bool) bool {
	p.mu.Lock()
	delay, mute, gate := p.delay, p.mute, p.gate
	p.mu.Unlock()
	if gate != nil {
		<-gate
	}
	if mute && reply {
		return false
	}
	if delay > 0 {
		Pause(context.Background(), delay)
	}
	_, err := to.Write(data)
	return err == nil
}

// Slow delays every chunk by d and blocks those behind it; 0 ends it.
func (p *Proxy) Slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// LoseReplies breaks connections instead of passing on the server's answers: the requests take effect without
// an answer to the client.
func (p *Proxy) LoseReplies(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mute = on
}

// Hold blocks all traffic until Heal.
func (p *Proxy) Hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.gate == nil {
		p.gate = make(chan struct{})
	}
}

// Heal lets all traffic pass again.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay, p.mute = 0, false
	if p.gate != nil {
		close(p.gate)
		p.gate = nil
	}
}

// Cut closes every connection.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		_ = c.Close()
	}
}

// Point sends new connections to other targets and cuts the existing ones.
func (p *Proxy) Point(targets ...string) {
	p.mu.Lock()
	p.targets = targets
	p.mu.Unlock()
	p.Cut()
}
