package service

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"math"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Arrival is a request of another system to the URL of a hook.
type Arrival struct {
	Tenant   string // empty: the default tenant
	Hook     string
	Delivery hookin.Delivery
	Trace    string // a W3C traceparent; may be empty
}

// Delivered is the result of an arrival.
type Delivered struct {
	Result    api.HookResult
	Challenge string // if not empty, the response must have it as its body
	NoBody    bool   // the response must have no body, because the sender shows it to people
}

var (
	unauthorized = Kind{401, "Unauthorized"}
	tooMany      = Kind{429, "Too Many Requests"}

	// decoy is the secret that deliveries to unknown hooks are compared with, so that they take as
	// long as others.
	decoy = rand.Text()
)

// errUnsigned refuses deliveries to unknown hooks and those without a valid signature alike: senders
// must not learn which hooks there are.
func errUnsigned() error {
	return problem(unauthorized, api.CodeUnauthenticated, "the hook does not exist, or the signature of the delivery is wrong: check the tenant and the hook's name in the URL, the secret, and the sender's clock")
}

// Known returns the address of a hook, such as /acme/triage, or "" if there is no such hook. An empty tenant is the
// default tenant.
func (s *Hooks) Known(ctx context.Context, tenant, name string) (string, error) {
	key := hookKey{cmp.Or(tenant, s.cfg.Tenant), name}
	r, err := s.lookUp(ctx, key)
	if err != nil || r.mapping == nil {
		return "", err
	}
	return "/" + key.tenant + "/" + key.name, nil
}

// Deliver starts one run or sends one signal for a delivery; the effect is durable when Deliver returns nil. A repeated
// delivery usually has no second effect (see deliver). Result.Ignored is set, and there is no effect, if the filter
// ignores the event, or if the delivery only tests the URL. The problem is unauthenticated for a wrong signature, and
// also for an unknown hook or one whose secret cannot be read, so that senders do not learn which hooks exist.
func (s *Hooks) Deliver(ctx context.Context, a Arrival) (Delivered, error) {
	a.Tenant = cmp.Or(a.Tenant, s.cfg.Tenant)
	key := hookKey{a.Tenant, a.Hook}
	r, err := s.lookUp(ctx, key)
	if err != nil {
		return Delivered{}, err
	}
	if r.mapping == nil {
		_ = hookin.GitHub.Verify(a.Delivery, []string{decoy})
		return Delivered{}, errUnsigned()
	}
	scheme := hookin.Scheme(r.stored.Verify)
	secrets, err := s.secrets(ctx, a.Tenant, r.stored.HookSettings)
	if err != nil {
		if _, refused := errors.AsType[*api.Problem](err); !refused {
			return Delivered{}, err
		}
		s.log.Warn("delivery to a hook refused: its secret cannot be read", "error", err, "tenant", a.Tenant, "hook", a.Hook, "hint", "correct what the error names: the gateways read the secrets of hooks")
		return Delivered{}, errUnsigned()
	}
	if scheme.Verify(a.Delivery, secrets) != nil {
		return Delivered{}, errUnsigned()
	}
	limit := rateOf(r.stored.MaxPerMinute)
	if after := r.limiter.allow(limit); after > 0 {
		p := problem(tooMany, api.CodeTooManyDeliveries, "hook %s has accepted %d deliveries within a minute, its maximum: deliver this one again after the seconds in Retry-After, or raise max_per_minute", a.Hook, limit)
		p.RetryAfter = int(math.Ceil(after.Seconds()))
		return Delivered{}, p
	}
	e, err := scheme.Parse(a.Delivery)
	if err != nil {
		return Delivered{}, invalid("%v", err)
	}
	out := Delivered{Challenge: e.Challenge, NoBody: e.NoBody}
	if e.Challenge != "" || e.Ping {
		out.Result.Ignored = true
		return out, nil
	}
	c := access.ForHook(a.Tenant, a.Hook).For(r.stored.UpdatedBy)
	if err := s.permit(ctx, c, DeliverHook); err != nil {
		return Delivered{}, err
	}
	d := delivery{tenant: a.Tenant, name: a.Hook, trace: a.Trace, Event: e, mapping: r.mapping, values: evaluationOf(e)}
	wanted, err := d.wanted()
	if err != nil {
		return Delivered{}, err
	}
	if !wanted {
		out.Result.Ignored = true
		return out, nil
	}
	st, err := s.deliver(ctx, c, d)
	s.note(ctx, c, DeliverHook, string(st.ID), err)
	out.Result.RunID = string(st.ID)
	return out, err
}

// delivery is an event that a hook or a trigger has received.
type delivery struct {
	hookin.Event

	tenant, name string // of the hook or the trigger
	trace        string
	mapping      *mapping
	values       *rule.Evaluation // of the mapping's expressions
}

// source returns the kind and the name of the receiver, such as "hook triage". Names have no spaces.
func (d delivery) source() string { return string(d.mapping.source) + " " + d.name }

// warnings returns a warning if the runs of a hook or a trigger name an agent that does not exist: each delivery fails
// until it does.
func (s *deliveries) warnings(ctx context.Context, tenant string, run *api.HookRun) ([]api.Warning, error) {
	if run == nil {
		return nil, nil
	}
	_, err := s.submissions.defs.definition(ctx, tenant, run.Agent, 0)
	if errors.Is(err, state.ErrNotFound) {
		return []api.Warning{{
			Fault: api.Fault{At: "run.agent", Detail: fmt.Sprintf("there is no agent %q: correct the name, or create it with PUT /v1/agents/%s", run.Agent, run.Agent)},
			Kind:  string(lookup.Agent), Name: run.Agent,
		}}, nil
	}
	return nil, err
}

// wanted reports whether the filter accepts the delivery.
func (d delivery) wanted() (bool, error) {
	if d.mapping.filter == nil {
		return true, nil
	}
	wanted, err := d.mapping.filter(d.values)
	if err != nil {
		return false, d.unmapped("filter", err)
	}
	return wanted, nil
}

// again returns what to do once the mapping is corrected.
func (d delivery) again() string {
	if d.mapping.source == sourceTrigger {
		return "replay the dead letter"
	}
	return "deliver again from the sender"
}

// unmapped returns the problem of a delivery to which the expression at place cannot be applied, or the problem in err.
func (d delivery) unmapped(place string, err error) error {
	if p, ok := errors.AsType[*api.Problem](err); ok {
		return p
	}
	return problem(unprocessable, api.CodeInvalidDelivery, "%s: an expression of %s failed (%v): correct it, then %s", d.source(), place, err, d.again())
}

// deliveries start runs and send signals for deliveries.
type deliveries struct {
	*core

	submissions *Submissions
	signals     *Signals
}

// deliver starts one run or sends one signal for a delivery; the effect is durable when deliver returns nil. A repeated
// delivery has no second effect, unless the mapping was changed or the run of the first one was deleted in between, or
// the store has forgotten the delivery: it keeps the key of a run for at least a week, and the keys of a run's last
// 1,000 signals. If the mapping has a signal and a key, deliver sends the signal to the run with that key, if there is
// one, and otherwise starts that run.
func (s *deliveries) deliver(ctx context.Context, c access.Caller, d delivery) (state.State, error) {
	m := d.mapping
	if m.run == nil {
		run, err := m.to(d.values)
		if err != nil {
			return state.State{}, d.unmapped("signal.run", err)
		}
		return s.signal(ctx, c, d, run)
	}
	key := d.ID
	if m.key != nil {
		var err error
		if key, err = m.key(d.values); err != nil {
			return state.State{}, d.unmapped("run.key", err)
		}
		if key == "" {
			return state.State{}, d.unmapped("run.key", errors.New("it returned an empty string"))
		}
	}
	// The content of a delivery may change between two attempts, for example with the mapping: the key alone decides
	// whether two deliveries are the same.
	sub := submission{caller: c, key: key, delivered: d.source(), body: []byte(d.source() + " " + key), trace: d.trace}
	st, err := s.start(ctx, c, d, sub)
	if err == nil && m.text != nil && st.Metadata[metadataDelivery] != d.ID {
		return s.signal(ctx, c, d, string(st.ID))
	}
	return st, err
}

// start returns the run with the key of a submission, or starts one.
func (s *deliveries) start(ctx context.Context, c access.Caller, d delivery, sub submission) (state.State, error) {
	if d.mapping.text != nil {
		st, err := s.store.LoadByKey(ctx, c.Tenant, sub.storeKey(), fingerprint(sub))
		if !errors.Is(err, state.ErrNotFound) {
			return st, err
		}
	}
	var err error
	if sub.req, err = d.mapping.request(d); err != nil {
		return s.submissions.earlier(ctx, sub, d.unmapped("run", err))
	}
	if err := checkMappedBody(sub.req, s.cfg.MaxBody); err != nil {
		return s.submissions.earlier(ctx, sub, err)
	}
	st, err := s.submissions.submit(ctx, sub)
	if err == nil {
		s.submitted.WithLabelValues(string(d.mapping.source)).Inc()
	}
	return st, err
}

// checkMappedBody refuses an input that an expression made larger than a submission may be.
func checkMappedBody(req api.SubmitRequest, limit int64) error {
	if size := int64(len(req.Input) + len(req.Variables)); size > limit {
		return problem(tooLarge, api.CodeBodyTooLarge, "run.input and run.variables return %d bytes, at most %d are allowed: select the fields of event that the agent needs", size, limit)
	}
	var messages []json.RawMessage
	_ = json.Unmarshal(req.Input, &messages) // a text gives none
	if len(messages) > maxMessages {
		return invalid("run.input returns %d messages, at most %d are allowed: return fewer", len(messages), maxMessages)
	}
	return nil
}

// signal sends the signal of a delivery to a run.
func (s *deliveries) signal(ctx context.Context, c access.Caller, d delivery, run string) (state.State, error) {
	req, err := d.mapping.signalOf(d)
	if err != nil {
		return state.State{}, d.unmapped("signal", err)
	}
	st, err := s.signals.send(ctx, c, Sending{Run: run, Request: req, Body: []byte(d.ID), Key: d.ID, delivered: d.source()})
	if err != nil {
		return state.State{}, err
	}
	return st, nil
}
