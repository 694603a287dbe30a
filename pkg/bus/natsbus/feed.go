package natsbus

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// errNoFeed is the error of a bus that was opened without Config.EventFeed.
var errNoFeed = errors.New("the deployment has no event feed: set TURNPIKE_EVENT_FEED=on (in Go, NATS.EventFeed) in all gateways and workers")

// sent is an event in flight.
type sent struct {
	msg    *nats.Msg // nil if it is stored
	answer pending   // zero if it was not sent
}

// PublishEvents implements bus.Feed. It sends the messages of one call without waiting in between,
// in order, and sends those that failed again under the same ids.
func (b *Bus) PublishEvents(ctx context.Context, tenant string, run state.RunID, events []bus.Event) error {
	if !b.cfg.EventFeed {
		return errNoFeed
	}
	batch := make([]sent, 0, len(events))
	subject := b.subjectOf(tenant, "events", token(string(run)))
	if err := b.prepare(ctx, subject); err != nil {
		return fmt.Errorf("publish events: %w", err)
	}
	ids := string(run) + ":"
	var trouble error // once one message fails, the remaining ones wait for it
	for _, e := range events {
		seq := strconv.FormatInt(e.Seq, 10)
		header := b.signer.Load().header(senderFeed, e.Seq, subject, e.Data, headerSeq, seq)
		s := sent{msg: newMsg(subject, e.Data, ids+seq, append(header, cloudEvent(tenant, run, ids+seq, e)...)...)}
		if int64(s.msg.Size()) > b.nc.MaxPayload()-headerBytes {
			// Left out: a run must not stop for it, and the log in the store has it.
			b.log.Warn("event omitted from the event feed, since it is too large", "run_id", run, "seq", e.Seq, "bytes", s.msg.Size(), "max_bytes", b.nc.MaxPayload()-headerBytes, "hint", "raise max_payload of the NATS server, or read this event over HTTP")
			continue
		}
		if trouble == nil {
			s.answer, trouble = b.answers.send(s.msg)
		}
		batch = append(batch, s)
	}
	return b.stored(ctx, batch)
}

// cloudEvent returns the headers that make the message of an event a CloudEvent in binary mode.
func cloudEvent(tenant string, run state.RunID, id string, e bus.Event) []string {
	return []string{
		"ce-specversion", "1.0", "ce-id", id, "ce-type", bus.CloudEventType(e.Type), "ce-source", bus.CloudEventSource(tenant), "ce-subject", string(run),
		"ce-time", e.At.UTC().Format(time.RFC3339Nano), "content-type", "application/json",
	}
}

func (b *Bus) stored(ctx context.Context, batch []sent) error {
	for i := range batch {
		s := &batch[i]
		if s.msg == nil {
			continue
		}
		if s.answer != (pending{}) {
			err := s.answer.wait(ctx, publishTimeout)
			if err != nil && ctx.Err() != nil {
				return fmt.Errorf("publish events: %w", ctx.Err())
			}
			s.answer = pending{}
			if err == nil {
				s.msg = nil
				continue
			}
		}
		if err := b.publish(ctx, s.msg, ""); err != nil {
			return fmt.Errorf("publish event: %w", err)
		}
		s.msg = nil
	}
	return nil
}

// headerBytes is the size that sending adds to a message: its id.
const headerBytes = 256

// LastEvent implements bus.Feed. It asks the stream itself, so no offset is stored.
func (b *Bus) LastEvent(ctx context.Context, tenant string, run state.RunID) (int64, error) {
	if !b.cfg.EventFeed {
		return 0, errNoFeed
	}
	stream := b.streamOf(tenant, kindEvents)
	s, err := b.js.Stream(ctx, stream)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return 0, nil // the first event creates it
	}
	if err != nil {
		return 0, openError("stream "+stream, err)
	}
	m, err := s.GetLastMsgForSubject(ctx, b.subjectOf(tenant, "events", token(string(run))))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("read last event of run %s: %w", run, err)
	}
	n, err := strconv.ParseInt(m.Header.Get(headerSeq), 10, 64)
	if !b.signer.Load().stored(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data}, senderFeed, n) {
		return 0, nil // a forged one: a duplicate event does no harm, a missing one does
	}
	if err != nil {
		return 0, fmt.Errorf("the last event of run %s in stream %s has no number (%w): remove it with `nats stream rmm %s %d`", run, stream, err, stream, m.Sequence)
	}
	return n, nil
}
