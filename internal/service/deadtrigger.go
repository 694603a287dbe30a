package service

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/hookin"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// deadMessage is the data of a dead letter of a trigger.
type deadMessage struct {
	Subject string              `json:"subject"`
	Headers map[string][]string `json:"headers,omitempty"`
	Data    []byte              `json:"data"` // in JSON as base64
}

// bury stores a dead letter with a message that was refused. The letter omits a message that is too large, or that the
// stream has deleted.
func (r *runner) bury(ctx context.Context, m StreamMessage, p *api.Problem) error {
	letter := bus.DeadLetter{
		Kind: bus.DeadTrigger, Tenant: r.key.tenant, Lane: state.Normal, Cause: p.Error(), At: state.At(time.Now()), Key: r.key.name, Message: m.ID(),
	}
	if r.stored.Run != nil {
		letter.Agent = r.stored.Run.Agent
	}
	dead := deadMessage{Subject: m.Subject(), Headers: m.Headers()}
	if p.Code == api.CodeBodyTooLarge {
		letter.Cut = true // the stream may still have it
	} else if body, err := m.Body(ctx); err == nil {
		dead.Data = body
	} else if errors.Is(err, ErrNoMessage) {
		letter.Cut = true // a replay must not deliver an empty message
	} else {
		return err
	}
	data, err := json.Marshal(dead)
	if err != nil {
		return err
	}
	letter.Data = string(data)
	return r.s.bus.DeadLetter(ctx, letter)
}

// addLetter sets the status and the advice of a letter with a message that a trigger has refused.
func (s *Triggers) addLetter(ctx context.Context, d bus.DeadLetter, l *api.DeadLetter) error {
	if d.Cut {
		l.Advice = "the letter does not hold the message, which was too large or was deleted from its stream, so it cannot be replayed: publish the message again if you still need its run"
		return nil
	}
	first := submission{key: d.Message, delivered: string(sourceTrigger) + " " + d.Key}
	first.body = []byte(first.delivered + " " + first.key)
	st, err := s.store.LoadByKey(ctx, d.Tenant, first.storeKey(), fingerprint(first))
	switch {
	case err == nil:
		l.Status, l.Replay, l.Advice = api.DeadReplayed, &api.Replay{RunID: string(st.ID), At: st.CreatedAt}, "it was replayed: nothing to do"
	case errors.Is(err, state.ErrNotFound):
		l.Status = api.DeadOpen
		l.Advice = "fix what the cause names in trigger " + d.Key + " or its agent, then replay: the trigger processes the message once, with its current settings"
	default:
		return err
	}
	return nil
}

// again delivers the message of a dead letter with the current settings of its trigger, at the request of c, and returns
// the id of the run.
func (s *Triggers) again(ctx context.Context, c access.Caller, d bus.DeadLetter) (string, error) {
	stored, _, err := s.load(ctx, d.Tenant, d.Key)
	if errors.Is(err, state.ErrNotFound) || err == nil && stored.Deleted {
		return "", triggerNotFound(d.Key)
	}
	if err != nil {
		return "", err
	}
	again := delivery{tenant: d.Tenant, name: d.Key}
	if again.mapping, err = s.compile(stored.TriggerSettings); err != nil {
		return "", invalid("trigger %s is not valid for this build of Turnpike: save it again with this corrected, then replay: %v", d.Key, err)
	}
	var dead deadMessage
	if err := json.Unmarshal([]byte(d.Data), &dead); err != nil {
		return "", problem(conflict, api.CodeNotReplayable, "dead letter %d does not hold the message, so it cannot be replayed: publish the message again: %v", d.Seq, err)
	}
	again.Event = hookin.Message(d.Message, dead.Subject, dead.Headers, dead.Data)
	again.values = evaluationOf(again.Event)
	if wanted, err := again.wanted(); err != nil {
		return "", err
	} else if !wanted {
		return "", problem(conflict, api.CodeNotReplayable, "dead letter %d: the filter of trigger %s ignores the message: change the filter and replay again, or do nothing", d.Seq, d.Key)
	}
	st, err := s.deliver(ctx, access.ForTrigger(d.Tenant, d.Key).For(stored.UpdatedBy, c.Principal.Name), again)
	return string(st.ID), err
}
