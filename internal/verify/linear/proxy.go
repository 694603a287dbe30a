package linear

import (
	"context"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// Proxy sits between clients and a server, and breaks their connections.
type Proxy struct {
	Addr string

	l      net.Listener
	target string
	faults atomic.Int64
	all    sync.WaitGroup

	mu    sync.Mutex
	links map[*link]bool
}

// link is one connection through the proxy.
type link struct {
	client, server net.Conn
	mute           atomic.Bool // replies are dropped
}

// NewProxy listens on loopback for connections to target.
func NewProxy(target string) (*Proxy, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	p := &Proxy{Addr: l.Addr().String(), l: l, target: target, links: map[*link]bool{}}
	p.all.Go(p.accept)
	return p, nil
}

// Close drops every connection.
func (p *Proxy) Close() {
	_ = p.l.Close()
	p.Strike(0, 0)
	p.all.Wait()
}

// Faults returns the number of faults so far, including the one in progress.
func (p *Proxy) Faults() int64 { return p.faults.Load() }

// Fault counts an external fault, such as a restart of the server.
func (p *Proxy) Fault() { p.faults.Add(1) }

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		s, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = c.Close()
			continue
		}
		k := &link{client: c, server: s}
		p.mu.Lock()
		p.links[k] = true
		p.mu.Unlock()
		p.all.Go(func() { p.carry(k) })
	}
}

func (p *Proxy) carry(k *link) {
	var both sync.WaitGroup
	both.Go(func() { _, _ = io.Copy(late{k.server}, k.client); k.cut() })
	both.Go(func() { _, _ = io.Copy(late{replies{k}}, k.server); k.cut() })
	both.Wait()
	p.mu.Lock()
	delete(p.links, k)
	p.mu.Unlock()
}

func (k *link) cut() {
	_ = k.client.Close()
	_ = k.server.Close()
}

// replies are a server's replies to the client of a link.
type replies struct{ k *link }

func (r replies) Write(b []byte) (int, error) {
	if r.k.mute.Load() {
		return len(b), nil
	}
	return r.k.client.Write(b)
}

// late delivers after a moment, so that operations overlap as on a network.
type late struct{ to io.Writer }

func (l late) Write(b []byte) (int, error) {
	<-time.After(rand.N(2 * time.Millisecond)) //nolint:gosec // not a secret
	return l.to.Write(b)
}

// Strike breaks each connection with a chance of one in oneIn, 0 for all: requests reach the
// server, and its replies get lost for a while before the client notices.
func (p *Proxy) Strike(oneIn int, silent time.Duration) {
	p.faults.Add(1)
	p.mu.Lock()
	var struck []*link
	for k := range p.links {
		if oneIn == 0 || rand.IntN(oneIn) == 0 { //nolint:gosec // not a secret
			struck = append(struck, k)
		}
	}
	p.mu.Unlock()
	for _, k := range struck {
		k.mute.Store(true)
	}
	if silent > 0 {
		<-time.After(silent)
	}
	for _, k := range struck {
		k.cut()
	}
	p.faults.Add(1) // operations that began in the meantime were affected as well
}

// Storm strikes after one operation in oneIn, until ctx ends. How many operations
// meet a fault does not depend on how fast the machine is.
func (p *Proxy) Storm(ctx context.Context, done <-chan struct{}, oneIn int) {
	for {
		select {
		case <-done:
		case <-ctx.Done():
			return
		}
		if rand.IntN(oneIn) == 0 { //nolint:gosec // not a secret
			p.Strike(3, 10*time.Millisecond)
		}
	}
}
