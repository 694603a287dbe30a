package natsstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// feedBytes is the number of bytes that the feed requests at a time, unless max_payload is larger. A server may have
// twice as many pending for the connection: it counts those of a write until all of them are sent. It disconnects a
// client with more than max_pending, by default 64 MiB.
const feedBytes = 16 << 20

// catchUpBytes is the number of bytes that catchUp requests at a time, which a server has pending only once.
const catchUpBytes = 2 * feedBytes

// subjectBytes is the capacity of a request, in addition to max_payload, for the subjects of a message.
const subjectBytes = 4 << 10

// fetchTimeout is the maximum that catchUp waits for messages that the server has announced.
const fetchTimeout = 5 * time.Second

// follow keeps the index up to date, and returns when it has first caught up.
func (s *Store) follow(ctx context.Context) error {
	subjects := []string{s.runSubject("*"), s.timerPrefix() + ">"}
	for {
		err := s.catchUp(ctx, subjects)
		if err == nil {
			break
		}
		if !errors.Is(err, errIncomplete) || !pause(ctx, suspectPause) {
			return fmt.Errorf("read the stream of runs: %w", err)
		}
		s.cfg.Logger.Warn(notRead, "error", err, "hint", hintNotRead)
	}
	s.mu.Lock()
	next := s.last.seq + 1
	s.mu.Unlock()
	c, err := s.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: next})
	if err == nil {
		s.feed, err = c.Consume(s.note, jetstream.PullMaxBytes(max(feedBytes, int(s.nc.MaxPayload())+subjectBytes)),
			jetstream.ConsumeErrHandler(func(jetstream.ConsumeContext, error) { s.suspect() }))
	}
	if err != nil {
		return fmt.Errorf("subscribe to the stream of runs: %w", err)
	}
	return nil
}

// errIncomplete is the error of catchUp if it has not received all messages, as after a reconnection.
var errIncomplete = errors.New("NATS has not delivered all messages that it announced")

// catchUp applies the last message of each of some subjects to the index. It limits its requests by messages, so that
// their bytes cannot exceed catchUpBytes: at a limit in bytes a server skips the next of these messages (NATS 2.15).
func (s *Store) catchUp(ctx context.Context, subjects []string) error {
	c, err := s.stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
		FilterSubjects: subjects, DeliverPolicy: jetstream.DeliverLastPerSubjectPolicy,
		AckPolicy: jetstream.AckNonePolicy, MemoryStorage: true, Replicas: 1, InactiveThreshold: foldTimeout,
	})
	if err != nil {
		return err
	}
	defer s.deleteConsumer(ctx, c)
	most := max(1, catchUpBytes/int(s.nc.MaxPayload()))
	delivered := uint64(0)
	for missing := c.CachedInfo().NumPending; missing > 0; {
		batch, err := c.Fetch(int(min(missing, uint64(most))), jetstream.FetchMaxWait(fetchTimeout)) //nolint:gosec // above 0
		if err != nil {
			return err
		}
		before := delivered
		for m := range batch.Messages() {
			meta, err := m.Metadata()
			if err != nil {
				return err
			}
			if delivered++; meta.Sequence.Consumer != delivered {
				return errIncomplete
			}
			missing = meta.NumPending
			s.note(m)
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if delivered > before {
			continue
		}
		info, err := c.Info(ctx)
		if err != nil {
			return fmt.Errorf("%w: %w", errIncomplete, err)
		}
		if missing = info.NumPending; missing > 0 { // otherwise they were deleted since they were counted
			return errIncomplete
		}
	}
	return nil
}

// deleteConsumer deletes a consumer of the stream of runs, because at every purge the server counts what each consumer
// has left to read. If the request fails, the server deletes the consumer once it was unused for foldTimeout.
func (s *Store) deleteConsumer(ctx context.Context, c jetstream.Consumer) {
	deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), foldTimeout)
	defer cancel()
	_ = s.stream.DeleteConsumer(deleting, c.CachedInfo().Name)
}
