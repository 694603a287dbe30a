package natsstore

import (
	"context"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// clockEvery is how often the server is asked for the time.
const clockEvery = 10 * time.Second

// clock is the server's clock, as far as this process knows it: processes whose own clocks
// differ decide by the same one. What the server said last counts, and from then on the time
// that has passed here.
type clock struct {
	local func() time.Time

	mu     sync.Mutex
	ahead  time.Duration // of the local clock
	within time.Duration // how sure that is
	known  bool
}

// now returns the server's time.
func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.local().Add(c.ahead)
}

// hear notes that the server had a time when it was asked, some time between two of the
// local clock. Of what lies within the uncertainty nothing is new: the clock does not jump
// back and forth with the time that an answer takes.
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

// readClock asks the server for the time, with what it says of the stream.
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
