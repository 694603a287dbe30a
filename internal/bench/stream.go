package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// stream measures what one stream of NATS takes, with nothing else to do: messages that
// are stored, handed out and acknowledged, as turns are, and messages that are only
// stored, as events are.
func stream(ctx context.Context, cfg Config, add func(Row)) error {
	span := 3 * time.Second
	if cfg.Short {
		span = 300 * time.Millisecond
	}
	servers, err := startServers(ctx, cfg.Profile)
	if err != nil {
		return err
	}
	defer servers.stop()
	f, err := newFloor(ctx, servers)
	if err != nil {
		return err
	}
	defer f.close()
	turns, err := f.flood(ctx, "floor.turn.", 100, span, true)
	if err != nil {
		return err
	}
	events, err := f.flood(ctx, "floor.events.", len(floorEntry), span, false)
	if err != nil {
		return err
	}
	const eventsOfTurn = 4
	add(Row{What: "one stream: turns stored, handed out and acknowledged", Value: turns, Unit: "/s"})
	add(Row{What: "one stream: events stored", Value: events, Unit: "/s", Note: fmt.Sprintf("%.0f turns/s with %d events each", events/eventsOfTurn, eventsOfTurn)})
	return nil
}

// flood publishes as much as is taken for a while and returns how many messages a
// second were stored, and, if they are taken, acknowledged.
func (f *floor) flood(ctx context.Context, subject string, size int, span time.Duration, taken bool) (float64, error) {
	const publishers, ahead = 4, 64
	var stored, acked atomic.Int64
	body := make([]byte, size)
	flooding, stop := context.WithTimeout(ctx, span)
	defer stop()
	group, groupCtx := errgroup.WithContext(ctx)
	began := time.Now()
	for p := range publishers {
		group.Go(func() error {
			js, err := jetstream.New(f.nc, jetstream.WithPublishAsyncMaxPending(ahead))
			if err != nil {
				return err
			}
			var futures []jetstream.PubAckFuture
			wait := func(n int) error {
				for len(futures) > n {
					select {
					case <-futures[0].Ok():
					case err := <-futures[0].Err():
						return err
					case <-groupCtx.Done():
						return groupCtx.Err()
					}
					stored.Add(1)
					futures = futures[1:]
				}
				return nil
			}
			for i := 0; flooding.Err() == nil; i++ {
				future, err := js.PublishAsync(fmt.Sprintf("%s%d-%d", subject, p, i%1000), body)
				if err != nil {
					return err
				}
				futures = append(futures, future)
				if err := wait(ahead - 1); err != nil {
					return err
				}
			}
			return wait(0)
		})
	}
	if taken {
		group.Go(func() error {
			for flooding.Err() == nil {
				m, err := f.queue.Next(jetstream.NextContext(flooding))
				if err != nil {
					break // the time is over
				}
				if err := m.Ack(); err != nil {
					return err
				}
				acked.Add(1)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return 0, err
	}
	n := stored.Load()
	if taken {
		n = min(n, acked.Load())
	}
	return float64(n) / time.Since(began).Seconds(), nil
}
