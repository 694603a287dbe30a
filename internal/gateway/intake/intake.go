// Package intake receives submissions and abort requests from the bus: it authenticates their senders, decodes them,
// and passes them to package service.
package intake

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/internal/span"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// concurrentMessages is the number of messages of one queue that are processed at once.
const concurrentMessages = 16

// Headers of a message.
const (
	headerReply = "Turnpike-Reply"
	headerMsgID = "Nats-Msg-Id"
	headerToken = "Turnpike-Token"
)

// Bus has the methods of bus.Bus that an Intake needs.
type Bus interface {
	Submissions(ctx context.Context) (bus.Queue, error)
	AbortRequests(ctx context.Context) (bus.Queue, error)
	DeadLetter(ctx context.Context, l bus.DeadLetter) error
	CheckReply(tenant, subject string) error
	Reply(ctx context.Context, tenant, subject string, data []byte) error
}

// Submissions stores runs. *service.Submissions implements it.
type Submissions interface {
	Decode(body []byte, agent string) (api.SubmitRequest, error)
	Submit(ctx context.Context, c access.Caller, in service.Submission) (state.State, error)
}

// Runs cancels runs. *service.Runs implements it.
type Runs interface {
	Cancel(ctx context.Context, c access.Caller, in service.Canceling) (state.State, error)
}

// Intake receives submissions and abort requests from the bus.
type Intake struct {
	bus         Bus
	submissions Submissions
	runs        Runs
	auth        access.Authenticator // nil: messages with a token are refused
	log         *slog.Logger
}

// New returns an intake that authenticates the tokens of messages by auth. If auth is nil, it refuses messages with a
// token.
func New(b Bus, submissions Submissions, runs Runs, auth access.Authenticator, log *slog.Logger) *Intake {
	return &Intake{bus: b, submissions: submissions, runs: runs, auth: auth, log: log}
}

// Run processes submissions and abort requests until ctx or the queues end. It acknowledges a message once its effect,
// if it has one, is in the store. A message that is refused becomes a dead letter, and one that may succeed later is
// redelivered. Run returns an error if it cannot open or close the queues.
func (i *Intake) Run(ctx context.Context) error {
	submissions, err := i.bus.Submissions(ctx)
	if err != nil {
		return fmt.Errorf("open the stream of submissions: %w", err)
	}
	aborts, err := i.bus.AbortRequests(ctx)
	if err != nil {
		return errors.Join(fmt.Errorf("open the stream of abort requests: %w", err), submissions.Close())
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error {
		i.drain(ctx, submissions, bus.DeadSubmission, i.takeSubmission)
		return submissions.Close()
	})
	group.Go(func() error {
		i.drain(ctx, aborts, bus.DeadAbort, i.takeAbort)
		return aborts.Close()
	})
	return group.Wait()
}

// drain passes the messages of a queue to take, several at once, until ctx or the queue ends. Dead letters of the queue
// have the given kind.
func (i *Intake) drain(ctx context.Context, q bus.Queue, kind bus.DeadKind, take func(context.Context, bus.Message) error) {
	var group errgroup.Group
	group.SetLimit(concurrentMessages)
	defer func() { _ = group.Wait() }()
	for {
		m, err := q.Next(ctx)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, bus.ErrClosed) {
				return
			}
			i.log.Warn("messages from NATS not received, the gateway retries", "error", err, "hint", "run `turnpike doctor`: NATS may be unreachable or refuse the operation", "queue", kind)
			select {
			case <-time.After(time.Second):
			case <-ctx.Done():
				return
			}
			continue
		}
		group.Go(func() error {
			i.answer(ctx, m, kind, service.Guarded(i.log, func() error { return take(ctx, m) })())
			return nil
		})
	}
}

// answer acknowledges a message if err is nil. Else it requests redelivery if the same message may succeed later, or
// makes a dead letter and replies with the problem.
func (i *Intake) answer(ctx context.Context, m bus.Message, kind bus.DeadKind, err error) {
	if err == nil {
		if err := m.Ack(); err != nil {
			i.log.Debug("ack", "error", err)
		}
		return
	}
	p := service.ProblemOf(err)
	if service.Unavailable(p) {
		i.log.Warn("a submission or an abort request from NATS was not processed, NATS redelivers it", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
		_ = m.Nak(service.RetryAfter * time.Second) // if this fails, the bus redelivers the message later
		return
	}
	letter := bus.DeadLetter{Kind: kind, Tenant: m.Tenant(), Lane: state.Normal, Cause: p.Error(), At: state.At(time.Now()), Data: string(m.Data())}
	if kind == bus.DeadSubmission {
		letter.Agent, letter.Key, letter.Message, letter.ReplyTo = m.Key(), m.Header(headerMsgID), m.ID(), m.Header(headerReply)
		if who, err := i.caller(ctx, m); err == nil {
			letter.By = who.By()
		}
	}
	if err := i.bus.DeadLetter(ctx, letter); err != nil {
		i.log.Warn("storing a dead letter failed, NATS redelivers the message", "error", err, "hint", "run `turnpike doctor`: NATS may be unreachable, have no storage left or refuse the operation")
		_ = m.Nak(service.RetryAfter * time.Second) // see above
		return
	}
	if subject := m.Header(headerReply); subject != "" && i.bus.CheckReply(m.Tenant(), subject) == nil {
		i.reply(ctx, m.Tenant(), subject, p)
	}
	i.answer(ctx, m, kind, nil)
}

// caller returns the sender of a message. It relies on permissions in NATS that let the clients of a tenant publish
// only on subjects of that tenant: a message without a token counts as one of a principal of the tenant with the roles
// submitter and operator. A token identifies another principal.
func (i *Intake) caller(ctx context.Context, m bus.Message) (access.Caller, error) {
	tenant := m.Tenant()
	by := state.OnBus(tenant)
	who := access.Principal{Name: by.Principal, Via: by.Via, Grants: []access.Grant{{Tenant: tenant, Roles: []access.Role{access.Submitter, access.Operator}}}}
	if token := m.Header(headerToken); token != "" {
		if i.auth == nil {
			return access.Caller{}, unauthenticated("this gateway has no authentication: omit the header " + headerToken)
		}
		var err error
		if who, err = i.auth.Authenticate(ctx, token); err != nil {
			if errors.Is(err, access.ErrUnauthenticated) {
				return access.Caller{}, unauthenticated(err.Error())
			}
			return access.Caller{}, err
		}
	}
	caller, err := who.In(tenant, tenant)
	if err != nil {
		return access.Caller{}, service.Problem(service.Kind{Status: 403, Title: "Forbidden"}, api.CodeForbidden, "%v in the subject of the message", err)
	}
	return caller, nil
}

func unauthenticated(detail string) error {
	return service.Problem(service.Kind{Status: 401, Title: "Unauthorized"}, api.CodeUnauthenticated, "%s", detail)
}

// takeSubmission submits the run in a message on the subject of an agent.
func (i *Intake) takeSubmission(ctx context.Context, m bus.Message) error {
	caller, err := i.caller(ctx, m)
	if err != nil {
		return err
	}
	in := service.Submission{Body: m.Data(), Key: m.Header(headerMsgID), Message: m.ID(), ReplyTo: m.Header(headerReply), Trace: m.Header(span.Header), Source: "bus"}
	if in.Request, err = i.submissions.Decode(in.Body, m.Key()); err != nil {
		return err
	}
	_, err = i.submissions.Submit(ctx, caller, in)
	return err
}

// takeAbort cancels the run that the subject names. A request for a run that has ended or was deleted has no effect and
// is not an error.
func (i *Intake) takeAbort(ctx context.Context, m bus.Message) error {
	if m.Header(bus.HeaderApplied) != "" {
		return nil
	}
	if _, ok := bus.ParseAbort(m.Data(), m.Header(bus.HeaderStatus)); !ok {
		return service.Problem(service.Kind{Status: 400, Title: "Bad Request"}, api.CodeInvalidRequest, `the message on this subject is not an abort request: send an empty body or {"reason": "…"}, and use another subject for replies`)
	}
	caller, err := i.caller(ctx, m)
	if err != nil {
		return err
	}
	var a struct{ Reason string }
	if len(m.Data()) > 0 {
		if err := json.Unmarshal(m.Data(), &a); err != nil {
			i.log.Warn("the body of an abort request cannot be read, so the abort has no reason", "error", err, "run_id", m.Key(), "hint", "have the client that sends it send an empty body or a reason, as in docs/reference/nats.md#abort")
		}
	}
	_, err = i.runs.Cancel(ctx, caller, service.Canceling{Run: m.Key(), Reason: a.Reason, Published: true})
	if _, ended := errors.AsType[*state.TerminalError](err); ended || errors.Is(err, state.ErrDeleted) {
		return nil
	}
	return err
}

// reply publishes v to the reply subject of a message. It ignores errors, because the submitter may have stopped
// listening.
func (i *Intake) reply(ctx context.Context, tenant, subject string, v any) {
	b, err := json.Marshal(v)
	if err == nil {
		err = i.bus.Reply(ctx, tenant, subject, b)
	}
	if err != nil {
		i.log.Debug("reply", "error", err)
	}
}
