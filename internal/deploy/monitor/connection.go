package monitor

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// outageAfter is the time after which a lost connection is an outage, and an error.
	outageAfter = 5 * time.Second

	// lookInterval is the time between two checks of the store's operations.
	lookInterval = time.Second

	// idleAfter is the time without operations after which the store is probed.
	idleAfter = 5 * time.Second

	// probeTimeout bounds one probe.
	probeTimeout = 2 * time.Second
)

// Connection reports in metrics and in the log whether one dependency can be reached: a warning when the connection
// is lost, an error if it stays lost for five seconds, and a message when it is back. It is safe for concurrent use.
type Connection struct {
	dependency, hint string

	log   *slog.Logger
	meter *Meter

	mu     sync.Mutex
	lostAt time.Time // zero: it is there
	outage *time.Timer
	closed bool
}

// NewConnection returns a connection, which counts as reachable until Lost. hint is the remedy that the error
// of an outage names.
func NewConnection(dependency, hint string, m *Meter, log *slog.Logger) *Connection {
	m.connected.WithLabelValues(dependency).Set(1)
	return &Connection{dependency: dependency, hint: hint, log: log, meter: m}
}

// Lost records that the dependency cannot be reached, with the cause. While it is lost, further calls have no
// effect.
func (c *Connection) Lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || !c.lostAt.IsZero() {
		return
	}
	c.lostAt = time.Now()
	c.meter.connected.WithLabelValues(c.dependency).Set(0)
	c.log.Warn("connection lost", "error", err, "dependency", c.dependency, "hint", "find in the log of the dependency whether it stopped or refused the connection, and check the network; this process reconnects")
	since := c.lostAt
	c.outage = time.AfterFunc(outageAfter, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if !c.closed && c.lostAt.Equal(since) {
			c.log.Error("connection is still lost", "error", err, "dependency", c.dependency, "hint", c.hint, "lost_ms", outageAfter.Milliseconds())
		}
	})
}

// Regained records that the dependency can be reached again.
func (c *Connection) Regained() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.lostAt.IsZero() {
		return
	}
	c.outage.Stop()
	c.meter.connected.WithLabelValues(c.dependency).Set(1)
	c.log.Info("connection regained", "dependency", c.dependency, "lost_ms", time.Since(c.lostAt).Milliseconds())
	c.lostAt = time.Time{}
}

// Close ends the reports: a process that ends loses its connections.
func (c *Connection) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed = true; c.outage != nil {
		c.outage.Stop()
	}
}

func (c *Connection) isLost() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.lostAt.IsZero()
}

// WatchStore reports the store as c until ctx ends, and then closes c. It probes the store with ready if an operation
// has failed, after five seconds in which none has succeeded, and while the store is lost.
func (m *Meter) WatchStore(ctx context.Context, c *Connection, ready func(context.Context) error) {
	defer c.Close()
	tick := time.NewTicker(lookInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case now := <-tick.C:
			last := time.Unix(0, m.succeeded.Load())
			if failed := m.failed.Swap(false); !failed && !c.isLost() && now.Sub(last) < idleAfter {
				continue
			}
		}
		err := probe(ctx, ready)
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			c.Lost(err)
		default:
			m.succeeded.Store(time.Now().UnixNano())
			c.Regained()
		}
	}
}

func probe(ctx context.Context, ready func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	return ready(ctx)
}
