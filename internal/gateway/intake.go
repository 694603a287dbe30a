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
		g.cleaner.Run(ctx)
		return nil
	})
	group.Go(func() error {
		g.keepTenants(ctx)
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
		g.keepTenants(ctx)
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
			g.answer(ctx, m, kind, g.guarded(func() error { return take(ctx, m) })())
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
	p := problemOf(err)
	if p.Status >= http.StatusInternalServerError && p.Status != http.StatusNotImplemented {
		g.log.Warn("message not taken", "error", err, "hint", "check that NATS and the store are reachable; NATS redelivers the message")
		_ = m.Nak(retryAfter * time.Second) // delivered again in any case
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
		_ = m.Nak(retryAfter * time.Second) // as above
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
			return access.Caller{}, unauthenticated("this gateway knows no keys and no provider of tokens: leave the header " + headerToken + " out")
		}
		var err error
		if who, err = g.cfg.Auth.Authenticate(ctx, token); err != nil {
			if errors.Is(err, access.ErrUnauthenticated) {
				return access.Caller{}, unauthenticated(err.Error())
			}
			return access.Caller{}, err
		}
	}
	caller, err := who.In(tenant, tenant)
	if err != nil {
		return access.Caller{}, problem(http.StatusForbidden, api.CodeForbidden, "%v", err)
	}
	return caller, nil
}

func (g *Gateway) takeSubmission(ctx context.Context, m bus.Message) error {
	caller, err := g.callerOnBus(ctx, m)
	if err != nil {
		return err
	}
	if !caller.May(access.Submitter) {
		return forbidden(caller, access.Submitter)
	}
	if err := g.checkSuspended(ctx, caller, actionSubmit); err != nil {
		return err
	}
	sub := submission{caller: caller, body: m.Data(), key: m.Header(headerMsgID), message: m.ID(), replyTo: m.Header(headerReply), trace: m.Header(span.Header)}
	if err := g.read(&sub, m.Key()); err != nil {
		return err
	}
	st, err := g.submit(ctx, sub)
	if err != nil {
		return err
	}
	g.metrics.submitted.WithLabelValues("bus").Inc()
	g.appendAudit(ctx, caller, actionSubmit, string(st.ID))
	return nil
}

// read decodes the body of a submission that came on the subject of an agent, and refuses a
// subject for its replies that would get none.
func (g *Gateway) read(sub *submission, agent string) error {
	if sub.replyTo != "" {
		if err := g.bus.CheckReply(sub.caller.Tenant, sub.replyTo); err != nil {
			return invalid("header %s: %v", headerReply, err)
		}
	}
	if int64(len(sub.body)) > g.cfg.MaxBody {
		return problem(http.StatusRequestEntityTooLarge, api.CodeBodyTooLarge, "the body is larger than %d bytes", g.cfg.MaxBody)
	}
	if err := api.Decode(sub.body, &sub.req); err != nil {
		return problem(http.StatusBadRequest, api.CodeInvalidJSON, "%v", err)
	}
	if sub.req.Agent == "" {
		sub.req.Agent = agent
	}
	if sub.req.Agent != agent {
		return invalid("the body names agent %q, the subject %q", sub.req.Agent, agent)
	}
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
	if _, ok := bus.ParseAbort(m.Data(), m.Header(bus.HeaderStatus)); !ok {
		return invalid(`this is no abort: its body is empty or {"reason": "…"}. The answer of a server is none either: somebody has named this subject for a reply`)
	}
	caller, err := g.callerOnBus(ctx, m)
	if err != nil {
		return err
	}
	st, err := g.store.Load(ctx, id)
	if errors.Is(err, state.ErrDeleted) {
		return nil // the message is late: there is nothing left to abort
	}
	if err == nil && st.Tenant != caller.Tenant {
		err = runNotFound(id)
	}
	if err != nil {
		return err
	}
	if err := g.ownOrOperator(ctx, caller, id); err != nil {
		return err
	}
	var a state.Abort
	if len(m.Data()) > 0 {
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			g.log.Warn("abort without a readable reason", "error", err, "run_id", id, "hint", "send the body of docs/reference/nats.md#abort; the run is aborted without a reason")
		}
	}
	a.By = caller.By()
	wake, err := g.store.Abort(ctx, id, a, g.cfg.RedeliveryDelay)
	if errors.Is(err, state.ErrDeleted) {
		return nil
	}
	if _, ended := errors.AsType[*state.TerminalError](err); ended {
		// The worker that held it has heard of it before, or there was nothing left to abort.
		g.appendAudit(ctx, caller, actionCancel, string(id))
		return nil
	}
	if err != nil {
		return err
	}
	g.appendAudit(ctx, caller, actionCancel, string(id))
	// Workers have heard the message itself.
	trace := span.Parent(ctx)
	g.publish(ctx, func(ctx context.Context) error { return g.dispatch.WakeAborted(ctx, id, wake, trace) })
	return nil
}
