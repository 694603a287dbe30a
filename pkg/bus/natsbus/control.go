package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// PublishAbort implements bus.Control.
func (b *Bus) PublishAbort(ctx context.Context, a bus.Abort) error {
	data, err := json.Marshal(a)
	if err != nil {
		return fmt.Errorf("encode abort: %w", err)
	}
	subject := b.subjectOf(a.Tenant, "abort", token(string(a.Run)))
	m := newMsg(subject, data, "", b.signer.Load().header(senderAborts, a.Version, subject, data, bus.HeaderApplied, "1")...)
	err = b.publish(ctx, m, "")
	b.intakeWrites.note(target{tenant: b.tenantOf(subject), kind: kindControl}, err)
	if err != nil {
		return fmt.Errorf("publish abort: %w", err)
	}
	return nil
}

// Aborts implements bus.Control.
func (b *Bus) Aborts(ctx context.Context, fn func(bus.Abort)) (func(), error) {
	return b.listen(ctx, []string{b.subject("abort", "*"), b.subjectOf("*", "abort", "*")}, func(m *nats.Msg) {
		if isProbe(m) {
			return
		}
		a, ok := bus.ParseAbort(m.Data, m.Header.Get(bus.HeaderStatus))
		if !ok {
			return // gateways store it as a dead letter
		}
		a.Run, a.Tenant = state.RunID(lastToken(m.Subject)), b.tenantOf(m.Subject)
		if !b.applied(m) {
			a.Version, a.Interrupt = 0, false
		}
		fn(a)
	})
}

// Reply implements bus.Intake. It drops and logs a reply that can never be sent: the subject came from
// outside, and must not block a run.
func (b *Bus) Reply(_ context.Context, tenant, subject string, data []byte) error {
	err := b.CheckReply(tenant, subject)
	if err == nil {
		err = b.nc.Publish(subject, data)
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, bus.ErrReplySubject), errors.Is(err, nats.ErrBadSubject), errors.Is(err, nats.ErrMaxPayload):
		b.log.Warn("the finished run was not sent to its reply subject", "error", err, "subject", subject[:min(len(subject), maxLogged)], "hint", "read the run over HTTP. If the error is about the payload, raise max_payload of NATS; if it is about the subject, submit with another reply subject")
		return nil
	default:
		return fmt.Errorf("reply: %w", err)
	}
}

// maxLogged bounds a subject from outside in the log, in bytes.
const maxLogged = 1024

// CheckReply implements bus.Intake.
func (b *Bus) CheckReply(tenant, subject string) error {
	return bus.CheckReply(b.cfg.Prefix, tenant, subject)
}

// DeadLetter implements bus.Intake. It remembers a letter for two minutes.
func (b *Bus) DeadLetter(ctx context.Context, d bus.DeadLetter) error {
	id := ""
	switch {
	case d.Kind.Unique():
		id = fmt.Sprintf("%s:%s:%d", d.Kind, d.Run, d.Version)
	case d.Kind == bus.DeadTrigger:
		id = fmt.Sprintf("%s:%s:%s", d.Kind, d.Key, d.Message)
	case d.Message != "":
		id = fmt.Sprintf("%s:%s", d.Kind, d.Message)
	}
	return b.bury(ctx, d, id)
}

func (b *Bus) bury(ctx context.Context, d bus.DeadLetter, id string) error {
	if d.Lane == "" {
		d.Lane = state.Normal
	}
	d.Seq = 0 // the stream assigns it
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("encode dead letter: %w", err)
	}
	if limit := int(b.nc.MaxPayload()) - headerBytes; len(data) > limit {
		// JSON may write one byte as six. A truncated dead letter is better than none.
		d.Cause = fmt.Sprintf("%.1000s (cut from %d bytes)", d.Cause, len(d.Data))
		d.Cut = true
		d.Data = strings.ToValidUTF8(d.Data[:min(len(d.Data), limit/8)], "")
		if data, err = json.Marshal(d); err != nil {
			return fmt.Errorf("encode dead letter: %w", err)
		}
	}
	if err := b.publish(ctx, newMsg(b.subjectOf(d.Tenant, "dead", token(string(d.Lane))), data, id), ""); err != nil {
		return fmt.Errorf("publish dead letter: %w", err)
	}
	return nil
}

// PurgeRun implements bus.Intake. It deletes events only if Config.EventFeed is set.
func (b *Bus) PurgeRun(ctx context.Context, tenant string, run state.RunID, letters bool) error {
	if b.cfg.EventFeed {
		s, err := b.js.Stream(ctx, b.streamOf(tenant, kindEvents))
		if errors.Is(err, jetstream.ErrStreamNotFound) {
			err = nil // the run had no events
		} else if err == nil {
			err = s.Purge(ctx, jetstream.WithPurgeSubject(b.subjectOf(tenant, "events", token(string(run)))))
		}
		if err != nil {
			return fmt.Errorf("remove events: %w", err)
		}
	}
	for after := uint64(0); letters; {
		page, err := b.DeadLetters(ctx, tenant, after, letterPage)
		if err != nil {
			return err
		}
		for _, d := range page {
			if after = d.Seq; d.Run == run {
				if err := b.removeLetter(ctx, tenant, d.Seq); err != nil {
					return err
				}
			}
		}
		letters = len(page) == letterPage
	}
	return nil
}

// letterPage is the number of dead letters read in one request.
const letterPage = 100

func (b *Bus) removeLetter(ctx context.Context, tenant string, seq uint64) error {
	s, err := b.js.Stream(ctx, b.streamOf(tenant, kindDead))
	if err == nil {
		err = s.DeleteMsg(ctx, seq)
	}
	if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
		return fmt.Errorf("remove dead letter %d: %w", seq, err)
	}
	return nil
}

// DeadLetters implements bus.Intake.
func (b *Bus) DeadLetters(ctx context.Context, tenant string, after uint64, limit int) ([]bus.DeadLetter, error) {
	s, err := b.js.Stream(ctx, b.streamOf(tenant, kindDead))
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return []bus.DeadLetter{}, nil // the first letter creates it
	}
	if err != nil {
		return nil, fmt.Errorf("read dead letters: %w", err)
	}
	letters := []bus.DeadLetter{}
	for len(letters) < limit {
		m, err := s.GetMsg(ctx, after+1, jetstream.WithGetMsgSubject(b.subjectOf(tenant, "dead", "*")))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("read dead letter after %d: %w", after, err)
		}
		d := decodeLetter(m.Subject, m.Data, m.Time)
		d.Seq, d.Tenant, after = m.Sequence, tenant, m.Sequence
		letters = append(letters, d)
	}
	return letters, nil
}

// decodeLetter decodes a dead letter. If another client has stored something else, decodeLetter
// returns a letter with all of it.
func decodeLetter(subject string, data []byte, at time.Time) bus.DeadLetter {
	var d bus.DeadLetter
	if err := json.Unmarshal(data, &d); err != nil {
		return bus.DeadLetter{Lane: state.Priority(lastToken(subject)), Cause: "this dead letter cannot be decoded", At: state.At(at), Data: string(data)}
	}
	return d
}
