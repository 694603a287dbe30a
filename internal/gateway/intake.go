package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// intakeWorkers is how many messages of the intake are handled at once.
const intakeWorkers = 16

// Run takes submissions and aborts from the bus until ctx ends. A message is
// acknowledged once what it asks for is in the store; what cannot be understood
// ends as a dead letter with the cause.
func (g *Gateway) Run(ctx context.Context) error {
	defer g.stop()
	defer context.AfterFunc(ctx, g.stop)() // streams end before the intake has
	submissions, err := g.bus.Submissions(ctx)
	if err != nil {
		return fmt.Errorf("open submissions: %w", err)
	}
	aborts, err := g.bus.AbortRequests(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("open abort requests: %w", err), submissions.Close())
	}
	group, ctx := errgroup.WithContext(ctx) // one that cannot go on ends the others, and Run
	group.Go(func() error { return g.sendHeartbeats(ctx) })
	group.Go(func() error {
		g.service.Runs.Clean(ctx)
		return nil
	})
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	group.Go(func() error {
		g.watchUnpulled(ctx)
		return nil
	})
	group.Go(func() error {
		g.drain(ctx, submissions, bus.DeadSubmission, g.takeSubmission)
		return submissions.Close()
	})
	group.Go(func() error {
		g.drain(ctx, aborts, bus.DeadAbort, g.takeAbort)
		return aborts.Close()
	})
	return group.Wait()
}

// Attend does the part of Run that every process needs that reads stored runs, until ctx ends: it
// sends heartbeats, so that no other process writes a format that this one cannot read, and opens
// the streams of tenants. Do not call it together with Run. It returns an error if it cannot
// subscribe.
func (g *Gateway) Attend(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return g.sendHeartbeats(ctx) })
	group.Go(func() error {
		g.service.Tenants.Keep(ctx)
		return nil
	})
	return group.Wait()
}

// drain hands the messages of a queue to take. Kind is what a refused one is called.
func (g *Gateway) drain(ctx context.Context, q bus.Queue, kind bus.DeadKind, take func(context.Context, bus.Message) error) {
	var group errgroup.Group
	group.SetLimit(intakeWorkers)
	defer func() { _ = group.Wait() }()
	for {
		m, err := q.Next(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
				return
			}
			g.log.Warn("no messages from the bus", "error", err, "hint", "check that NATS is reachable; the gateway retries", "queue", kind)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			continue
		}
		group.Go(func() error {
			g.answer(ctx, m, kind, service.Guarded(g.log, func() error { return take(ctx, m) })())
			return nil
		})
	}
}

// answer answers a message: done, refused for good, or again later.
func (g *Gateway) answer(ctx context.Context, m bus.Message, kind bus.DeadKind, err error) {
	if err == nil {
		if err := m.Ack(); err != nil {
			g.log.Debug("ack", "error", err)
		}
		return
	}
	p := service.ProblemOf(err)
	if service.Unavailable(p) {
		g.log.Warn("message not taken", "error", err, "hint", "check that NATS and the store are reachable; NATS redelivers the message")
		_ = m.Nak(service.RetryAfter * time.Second) // delivered again in any case
		return
	}
	letter := bus.DeadLetter{Kind: kind, Tenant: m.Tenant(), Lane: state.Normal, Cause: p.Error(), At: state.At(time.Now()), Data: string(m.Data())}
	if kind == bus.DeadSubmission {
		letter.Agent, letter.Key, letter.Message, letter.ReplyTo = m.Key(), m.Header(headerMsgID), m.ID(), m.Header(headerReply)
		if who, err := g.callerOnBus(ctx, m); err == nil {
			letter.By = who.By()
		}
	}
	if err := g.bus.DeadLetter(ctx, letter); err != nil {
		g.log.Warn("dead letter failed", "error", err, "hint", "check that NATS is reachable; NATS redelivers the message")
		_ = m.Nak(service.RetryAfter * time.Second) // as above
		return
	}
	if subject := m.Header(headerReply); subject != "" && g.bus.CheckReply(m.Tenant(), subject) == nil {
		g.reply(ctx, m.Tenant(), subject, p)
	}
	g.answer(ctx, m, kind, nil)
}

// Headers of a submission over the bus.
const (
	headerReply = "Turnpike-Reply"
	headerMsgID = "Nats-Msg-Id"
	headerToken = "Turnpike-Token"
)

// callerOnBus finds out who has sent a message. The server lets a tenant's clients publish on
// subjects of that tenant only, so whoever sends there speaks for it; a token proves more.
func (g *Gateway) callerOnBus(ctx context.Context, m bus.Message) (access.Caller, error) {
	tenant := m.Tenant()
	by := state.OnBus(tenant)
	who := access.Principal{Name: by.Principal, Via: by.Via, Grants: []access.Grant{{Tenant: tenant, Roles: []access.Role{access.Submitter, access.Operator}}}}
	if token := m.Header(headerToken); token != "" {
		if g.cfg.Auth == nil {
			return access.Caller{}, exchange.Unauthenticated("this gateway knows no keys and no provider of tokens: leave the header " + headerToken + " out")
		}
		var err error
		if who, err = g.cfg.Auth.Authenticate(ctx, token); err != nil {
			if errors.Is(err, access.ErrUnauthenticated) {
				return access.Caller{}, exchange.Unauthenticated(err.Error())
			}
			return access.Caller{}, err
		}
	}
	caller, err := who.In(tenant, tenant)
	if err != nil {
		return access.Caller{}, exchange.Problem(http.StatusForbidden, api.CodeForbidden, "%v", err)
	}
	return caller, nil
}

// takeSubmission submits what came on the subject of an agent.
func (g *Gateway) takeSubmission(ctx context.Context, m bus.Message) error {
	caller, err := g.callerOnBus(ctx, m)
	if err != nil {
		return err
	}
	in := service.Submission{Body: m.Data(), Key: m.Header(headerMsgID), Message: m.ID(), ReplyTo: m.Header(headerReply), Trace: m.Header(span.Header), Source: "bus"}
	if in.Request, err = g.service.Submissions.Decode(in.Body, m.Key()); err != nil {
		return err
	}
	_, err = g.service.Submissions.Submit(ctx, caller, in)
	return err
}

// takeAbort cancels the run of the subject. A run that has ended or was deleted has nothing left to
// abort: the message is late.
func (g *Gateway) takeAbort(ctx context.Context, m bus.Message) error {
	if m.Header(bus.HeaderApplied) != "" {
		return nil
	}
	if _, ok := bus.ParseAbort(m.Data(), m.Header(bus.HeaderStatus)); !ok {
		return exchange.Invalid(`this is no abort: its body is empty or {"reason": "…"}. The answer of a server is none either: somebody has named this subject for a reply`)
	}
	caller, err := g.callerOnBus(ctx, m)
	if err != nil {
		return err
	}
	var a state.Abort
	if len(m.Data()) > 0 {
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			g.log.Warn("abort without a readable reason", "error", err, "run_id", m.Key(), "hint", "send the body of docs/reference/nats.md#abort; the run is aborted without a reason")
		}
	}
	_, err = g.service.Runs.Cancel(ctx, caller, service.Canceling{Run: m.Key(), Reason: a.Reason, Published: true})
	if _, ended := errors.AsType[*state.TerminalError](err); ended || errors.Is(err, state.ErrDeleted) {
		return nil
	}
	return err
}

// reply tells a submitter who named a subject; nobody waits there for sure.
func (g *Gateway) reply(ctx context.Context, tenant, subject string, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = g.bus.Reply(ctx, tenant, subject, b)
	}
	if err != nil {
		g.log.Debug("reply", "error", err)
	}
}
