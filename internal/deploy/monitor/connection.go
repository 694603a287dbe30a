package monitor

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/check"
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

// Connection reports in metrics and in the log whether one dependency can be reached and takes writes: a warning when
// the connection is lost or writes are refused, an error if that lasts for five seconds, and a message when it is over.
// It is safe for concurrent use.
type Connection struct {
	dependency, hint string

	log   *slog.Logger
	meter *Meter

	mu     sync.Mutex
	lostAt time.Time // zero: it is there
	err    error     // the latest cause
	outage *time.Timer
	closed bool
}

// NewConnection returns a connection, which counts as reachable until Lost. hint is the remedy that the error
// of an outage names.
func NewConnection(dependency, hint string, m *Meter, log *slog.Logger) *Connection {
	m.connected.WithLabelValues(dependency).Set(1)
	return &Connection{dependency: dependency, hint: hint, log: log, meter: m}
}

// Lost records that the dependency cannot be reached, or refuses writes if err wraps check.ErrNoWrites. While that
// lasts, further calls with an error of the same sort have no effect.
func (c *Connection) Lost(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	first := c.lostAt.IsZero()
	if c.closed || !first && refused(err) == refused(c.err) {
		return
	}
	c.err = err
	if refused(err) {
		c.log.Warn("writes refused", "error", err, "dependency", c.dependency, "hint", c.hint+": the dependency answers, so it may be full or a replica, or this user may not write; this process retries")
	} else {
		c.log.Warn("connection lost", "error", err, "dependency", c.dependency, "hint", "find in the log of the dependency whether it stopped or refused the connection, and check the network; this process reconnects")
	}
	if !first {
		return
	}
	c.lostAt = time.Now()
	c.meter.connected.WithLabelValues(c.dependency).Set(0)
	since := c.lostAt
	c.outage = time.AfterFunc(outageAfter, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.closed || !c.lostAt.Equal(since) {
			return
		}
		message := "connection is still lost"
		if refused(c.err) {
			message = "writes are still refused"
		}
		c.log.Error(message, "error", c.err, "dependency", c.dependency, "hint", c.hint, "lost_ms", outageAfter.Milliseconds())
	})
}

// refused reports whether a server has answered and refused a write.
func refused(err error) bool { return errors.Is(err, check.ErrNoWrites) }

// Regained records that the dependency can be reached again, and takes writes.
func (c *Connection) Regained() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed || c.lostAt.IsZero() {
		return
	}
	c.outage.Stop()
	c.meter.connected.WithLabelValues(c.dependency).Set(1)
	message := "connection regained"
	if refused(c.err) {
		message = "writes are accepted again"
	}
	c.log.Info(message, "dependency", c.dependency, "lost_ms", time.Since(c.lostAt).Milliseconds())
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
