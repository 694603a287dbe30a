package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/span"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// intakeWorkers is how many messages of the intake are handled at once.
const intakeWorkers = 16

// Run takes submissions and aborts from the bus until ctx ends. A message is
// acknowledged once what it asks for is in the store; what cannot be understood
// ends as a dead letter with the cause.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.stop()
	submissions, err := g.bus.Submissions(ctx)
	if err != nil {
		return fmt.Errorf("open submissions: %w", err)
	}
	aborts, err := g.bus.AbortRequests(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("open abort requests: %w", err), submissions.Close())
	}
	var group errgroup.Group
	group.Go(func() error {
		g.drain(ctx, submissions, g.takeSubmission)
		return submissions.Close()
	})
	group.Go(func() error {
		g.drain(ctx, aborts, g.takeAbort)
		return aborts.Close()
	})
	return group.Wait()
}

// drain hands the messages of a queue to take.
func (g *Gateway) drain(ctx context.Context, q bus.Queue, take func(context.Context, bus.Message) error) {
	var group errgroup.Group
	group.SetLimit(intakeWorkers)
	defer func() { _ = group.Wait() }()
	for {
		m, err := q.Next(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
				return
			}
			g.log.Warn().Err(err).Msg("intake")
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			continue
		}
		group.Go(func() error {
			g.settle(ctx, m, take(ctx, m))
			return nil
		})
	}
}

// settle answers a message: done, refused for good, or again later.
func (g *Gateway) settle(ctx context.Context, m bus.Message, err error) {
	if err == nil {
		if err := m.Ack(); err != nil {
			g.log.Debug().Err(err).Msg("ack")
		}
		return
	}
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && p.Status != http.StatusNotImplemented {
		g.log.Warn().Err(err).Msg("intake; again later")
		_ = m.Nak(retryAfter * time.Second) // delivered again in any case
		return
	}
	letter := bus.DeadLetter{Lane: state.Normal, Cause: p.Error(), At: state.At(time.Now()), Data: string(m.Data())}
	if err := g.bus.DeadLetter(ctx, letter); err != nil {
		g.log.Warn().Err(err).Msg("dead letter")
		_ = m.Nak(retryAfter * time.Second) // as above
		return
	}
	if subject := m.Header(headerReply); subject != "" {
		g.reply(ctx, subject, p)
	}
	g.settle(ctx, m, nil)
}

// Headers of a submission over the bus.
const (
	headerReply = "Turnpike-Reply"
	headerMsgID = "Nats-Msg-Id"
)

func (g *Gateway) takeSubmission(ctx context.Context, m bus.Message) error {
	sub := submission{body: m.Data(), key: m.Header(headerMsgID), replyTo: m.Header(headerReply), trace: m.Header(span.Header)}
	if id := m.ID(); sub.key == "" && id != "" {
		// It may be delivered again although the run is stored.
		sub.key = "message/" + id
	}
	if int64(len(sub.body)) > g.cfg.MaxBody {
		return problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "the body is larger than %d bytes", g.cfg.MaxBody)
	}
	if err := api.Decode(sub.body, &sub.req); err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	if sub.req.Agent == "" {
		sub.req.Agent = m.Key()
	}
	if sub.req.Agent != m.Key() {
		return invalid("the body names agent %q, the subject %q", sub.req.Agent, m.Key())
	}
	if _, err := g.submit(ctx, sub); err != nil {
		return err
	}
	g.metrics.submitted.WithLabelValues("bus").Inc()
	return nil
}

func (g *Gateway) takeAbort(ctx context.Context, m bus.Message) error {
	if m.Header(bus.HeaderApplied) != "" {
		return nil
	}
	id, err := state.ParseRunID(m.Key())
	if err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidID, "%q: %v", m.Key(), err)
	}
	var a state.Abort
	if len(m.Data()) > 0 {
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			g.log.Warn().Err(err).Str("run_id", string(id)).Msg("abort without a readable reason")
		}
	}
	err = g.abort(ctx, id, a.Reason)
	if _, ended := errors.AsType[*state.TerminalError](err); ended {
		return nil // there is nothing left to abort
	}
	return err
}
