package natsstore

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// clockEvery is the interval at which the store asks the server for the time.
const clockEvery = 10 * time.Second

// clock estimates the server's clock, so that processes whose own clocks differ decide by the same one. The estimate
// is the local clock plus an offset that hear measures.
type clock struct {
	local func() time.Time

	mu     sync.Mutex
	ahead  time.Duration // of the local clock
	within time.Duration // the uncertainty of ahead
	known  bool
}

// now returns the server's time.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local().Add(c.ahead)
}

// hear updates the estimate with an answer of the server, which read its clock between the local times asked and
// answered. If the answer and the estimate agree within the sum of their uncertainties, hear keeps the more precise
// of the two, so that the clock does not follow the latency of answers. Otherwise the answer replaces the estimate.
// hear ignores a zero server time, and an answer that precedes its request because the local clock was set back.
func (c *clock) hear(server, asked, answered time.Time) {
	took := answered.Sub(asked)
	if server.IsZero() || took < 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	ahead, within := server.Sub(asked.Add(took/2)), took/2
	if c.known && (ahead-c.ahead).Abs() <= within+c.within {
		if within < c.within {
			c.ahead, c.within = ahead, within
		}
		return
	}
	c.ahead, c.within, c.known = ahead, within, true
}

// Now implements state.Store.
func (s *Store) Now(context.Context) (time.Time, error) { return s.clock.now(), nil }

// readClock asks the server for the time and for the state of the stream.
func (s *Store) readClock(ctx context.Context) (*jetstream.StreamInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	asked := s.clock.local()
	info, err := s.stream.Info(ctx)
	if err != nil {
		return nil, err
	}
	s.clock.hear(info.TimeStamp, asked, s.clock.local())
	return info, nil
}
