package service

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Letters are the dead letters of a tenant.
type Letters struct {
	*core

	submissions *Submissions
	triggers    *Triggers
}

// List returns the dead letters with numbers above after, in ascending order. It reads some letters at a time, and ends
// the page early when they have pageWeight bytes.
func (s *Letters) List(ctx context.Context, c access.Caller, after int64, p Page) (api.Page[api.DeadLetter], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.DeadLetter]{}, err
	}
	items, seq, size := []api.DeadLetter{}, uint64(max(0, after)), 0 //nolint:gosec // not negative
	for {
		some := min(p.Limit-len(items), readsAtOnce)
		letters, err := s.bus.DeadLetters(ctx, c.Tenant, seq, some+1)
		if err != nil {
			return api.Page[api.DeadLetter]{}, &BusError{err}
		}
		more := len(letters) > some
		letters = letters[:min(len(letters), some)]
		read := make([]api.DeadLetter, len(letters))
		err = s.readEach(ctx, len(letters), func(ctx context.Context, i int) (err error) {
			read[i], err = s.letter(ctx, letters[i])
			return err
		})
		if err != nil {
			return api.Page[api.DeadLetter]{}, err
		}
		for _, l := range read {
			items, seq = append(items, l), l.Seq
			size += bytesOf(l)
		}
		if !more {
			return api.NewPage(items, ""), nil
		}
		if len(items) == p.Limit || size >= pageWeight {
			return api.NewPage(items, strconv.FormatUint(seq, 10)), nil
		}
	}
}

// bytesOf returns the bytes of the long parts of a letter.
func bytesOf(l api.DeadLetter) int {
	n := len(l.Data) + len(l.Cause)
	for _, c := range l.Calls {
		n += len(c.Arguments)
	}
	return n
}

// Get returns a dead letter with its status. number is the decimal text of its Seq. The problem is letter_not_found if
// it does not exist.
func (s *Letters) Get(ctx context.Context, c access.Caller, number string) (api.DeadLetter, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.DeadLetter{}, err
	}
	d, err := s.dead(ctx, c, number)
	if err != nil {
		return api.DeadLetter{}, err
	}
	return s.letter(ctx, d)
}

// dead reads the letter with a number from the bus.
func (s *Letters) dead(ctx context.Context, c access.Caller, number string) (bus.DeadLetter, error) {
	seq, err := strconv.ParseUint(number, 10, 63)
	if err != nil || seq == 0 {
		return bus.DeadLetter{}, problem(badRequest, api.CodeInvalidID, "%q is not the number of a dead letter: use a seq from GET /v1/dead", number)
	}
	letters, err := s.bus.DeadLetters(ctx, c.Tenant, seq-1, 1)
	if err != nil {
		return bus.DeadLetter{}, &BusError{err}
	}
	if len(letters) == 0 || letters[0].Seq != seq {
		return bus.DeadLetter{}, problem(missing, api.CodeLetterNotFound, "there is no dead letter %d: use a seq from GET /v1/dead", seq)
	}
	return letters[0], nil
}

// letter returns a dead letter as clients see it. It reads the status and the advice from the store.
func (s *Letters) letter(ctx context.Context, d bus.DeadLetter) (api.DeadLetter, error) {
	l := api.DeadLetter{
		Seq: d.Seq, Kind: string(d.Kind), Status: api.DeadClosed, RunID: text(string(d.Run)), Agent: text(d.Agent), Lane: string(d.Lane),
		Cause: d.Cause, At: d.At, Version: d.Version, Attempts: d.Attempts, Calls: []api.DeadCall{}, Data: d.Data,
	}
	var err error
	switch {
	case d.Kind.Replays():
		err = s.poisoned(ctx, d, &l)
	case d.Kind == bus.DeadSubmission && d.Cut:
		l.Advice = "the submission was too large to be stored whole, so it cannot be replayed: submit it again"
	case d.Kind == bus.DeadSubmission:
		err = s.refused(ctx, d, &l)
	case d.Kind == bus.DeadLost:
		l.Advice = "the store has lost the checkpoint of this run, which has failed with the reason lost and cannot be replayed: submit its input again as a new run"
	case d.Kind == bus.DeadWebhook:
		err = s.undelivered(ctx, d, &l)
	case d.Kind == bus.DeadTrigger:
		err = s.triggers.addLetter(ctx, d, &l)
	case d.Kind == bus.DeadAbort:
		l.Advice = "the abort names a run that does not exist: cancel the intended run"
	default:
		l.Advice = "nothing to do: a worker's sweeper publishes the turn again without this message"
	}
	return l, err
}

func text(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// poisoned sets the status and the advice of a letter whose run has failed and can be replayed.
func (s *Letters) poisoned(ctx context.Context, d bus.DeadLetter, l *api.DeadLetter) error {
	st, err := s.store.Load(ctx, d.Run)
	if errors.Is(err, state.ErrNotFound) {
		l.Advice = "the run was deleted, so it cannot be replayed: submit its input again if you still need its result"
		return nil
	}
	if err != nil {
		return err
	}
	l.Agent = &st.Agent
	if st.Version < d.Version {
		l.Advice = "the store was restored to a state before this dead letter, so the run continues by itself: nothing to do"
		return nil
	}
	if st.Version == d.Version {
		if st.Poison != nil {
			for _, o := range st.Poison.Calls {
				l.Calls = append(l.Calls, api.DeadCall{ID: o.ID, Tool: o.Name, Arguments: o.Arguments})
			}
		}
		if st.Status.Terminal() {
			l.Status = api.DeadOpen
			l.Advice = poisonedAdvice(d)
			return nil
		}
		l.Status, l.Replay, l.Advice = api.DeadReplaying, &api.Replay{RunID: string(d.Run)}, "the replay has started and the run continues: nothing to do"
		return nil
	}
	const near = 16 // what a turn adds before its transition, when it begins from an ended run
	l.Advice = "a message has continued the run since: nothing to do"
	return s.eachPage(ctx, d.Run, d.Events, func(page []state.Entry, _ int64) (bool, error) {
		for _, e := range page {
			if e.Seq > d.Events+near {
				return true, nil
			}
			if e.Version == d.Version+1 && e.Reason == state.Replayed {
				l.Status, l.Replay, l.Advice = api.DeadReplayed, &api.Replay{RunID: string(d.Run), At: e.At}, "it was replayed: nothing to do"
				return true, nil
			}
		}
		return false, nil
	})
}

// poisonedAdvice returns what an operator should do about a run that can be replayed.
func poisonedAdvice(d bus.DeadLetter) string {
	if d.Kind == bus.DeadInputHook {
		return "start or repair the input hook named in the cause, then replay: the hooks check the same message again. If you send the run a message instead, the hooks check both"
	}
	if d.Kind == bus.DeadStopHook {
		return "start or repair the stop hook named in the cause, then replay: the hooks check the same answer again. If you send the run a message instead, it continues without that answer as its output"
	}
	return fmt.Sprintf("find in `turnpike show %s` and in the workers' logs why the turn crashes or stalls them, fix the cause, and replay: "+
		"the run continues where it stopped. If you send the run a message instead, it continues without the calls", d.Run)
}

// refused sets the status and the advice of a letter with a refused submission.
func (s *Letters) refused(ctx context.Context, d bus.DeadLetter, l *api.DeadLetter) error {
	id := state.ReplayID(d.Tenant, d.Seq, d.At)
	st, err := s.store.Load(ctx, id)
	switch {
	case err == nil:
		l.Status, l.Replay, l.Advice = api.DeadReplayed, &api.Replay{RunID: string(id), At: st.CreatedAt}, "it was replayed: nothing to do"
	case errors.Is(err, state.ErrDeleted):
		l.Advice = "it was replayed, and the run of the replay was deleted, so it cannot be replayed again: submit its data as a new run if you still need the result"
	case errors.Is(err, state.ErrNotFound):
		l.Status = api.DeadOpen
		l.Advice = "fix what the cause names (an agent, a limit, the build), then replay: the submission is sent again unchanged. If the submission itself is wrong, submit a corrected one instead"
	default:
		return err
	}
	return nil
}

// Replay continues the run of a dead letter, submits a refused submission again, or delivers an event or a message of a
// trigger again. It returns the letter with its new status. If the letter already has the status replayed, Replay
// changes nothing, except that it starts a new series of attempts for an event of a webhook. The problem is
// not_replayable for a letter whose status is closed, and for a message of a trigger that the letter does not hold or
// the trigger's filter ignores now.
func (s *Letters) Replay(ctx context.Context, c access.Caller, number string) (api.DeadLetter, error) {
	if err := s.permit(ctx, c, Replay); err != nil {
		return api.DeadLetter{}, err
	}
	l, err := s.replay(ctx, c, number)
	s.note(ctx, c, Replay, number, err)
	return l, err
}

func (s *Letters) replay(ctx context.Context, c access.Caller, number string) (api.DeadLetter, error) {
	d, err := s.dead(ctx, c, number)
	if err != nil {
		return api.DeadLetter{}, err
	}
	l, err := s.letter(ctx, d)
	if err != nil {
		return api.DeadLetter{}, err
	}
	switch {
	case l.Status == api.DeadClosed:
		return api.DeadLetter{}, problem(conflict, api.CodeNotReplayable, "dead letter %d: %s", d.Seq, l.Advice)
	case l.Status == api.DeadReplayed && d.Kind != bus.DeadWebhook:
		return l, nil
	case d.Kind.Replays():
		err = s.takeUp(ctx, c, d)
	case d.Kind == bus.DeadWebhook:
		l.Replay = &api.Replay{RunID: string(d.Run)}
		err = s.deliverAgain(ctx, d)
	case d.Kind == bus.DeadTrigger:
		l.Replay = &api.Replay{}
		l.Replay.RunID, err = s.triggers.again(ctx, c, d)
	default:
		l.Replay = &api.Replay{}
		l.Replay.RunID, err = s.resubmit(ctx, c, d)
	}
	if err != nil {
		return api.DeadLetter{}, err
	}
	again, err := s.letter(ctx, d)
	if err != nil {
		return api.DeadLetter{}, err
	}
	if again.Replay == nil {
		again.Replay = l.Replay // the run that its key names
	}
	return again, nil
}

// undelivered sets the status and the advice of a letter with an event that its webhook has not accepted.
func (s *Letters) undelivered(ctx context.Context, d bus.DeadLetter, l *api.DeadLetter) error {
	st, err := s.store.Load(ctx, d.Run)
	if errors.Is(err, state.ErrNotFound) {
		l.Advice = "the run was deleted, so its event cannot be delivered: nothing to do"
		return nil
	}
	if err != nil {
		return err
	}
	replays, err := webhook.ReplaysOf(ctx, s.store, d.Tenant, d.Run, d.Events)
	if err != nil {
		return err
	}
	l.Agent = &st.Agent
	switch {
	case d.At.Before(replays.DeadAt.Time):
		l.Advice = "a replay has failed too, and a later letter has the event: find it in `turnpike webhooks ls` by its run"
	case replays.Pending:
		l.Status, l.Replay = api.DeadReplaying, &api.Replay{RunID: string(d.Run)}
		l.Advice = "the replay has started: find the next attempt in `turnpike webhooks pending`"
	case !replays.DeliveredAt.IsZero():
		l.Status, l.Replay = api.DeadReplayed, &api.Replay{RunID: string(d.Run), At: replays.DeliveredAt}
		l.Advice = "the receiver has accepted the event: nothing to do"
	default:
		l.Status = api.DeadOpen
		l.Advice = "repair the receiver, then replay: Turnpike tries to deliver the event for three more days, with the same id"
	}
	return nil
}

// deliverAgain starts a new series of attempts to deliver an event.
func (s *Letters) deliverAgain(ctx context.Context, d bus.DeadLetter) error {
	now, err := s.clock.now(ctx)
	if err != nil {
		return err
	}
	return webhook.Replay(ctx, s.store, d.Tenant, d.Run, d.Events, now.Time)
}

// takeUp resumes the failed run of a letter.
func (s *Letters) takeUp(ctx context.Context, c access.Caller, d bus.DeadLetter) error {
	st, err := s.store.Load(ctx, d.Run)
	if err != nil {
		return err
	}
	if err := s.submissions.defs.checkGoesOn(ctx, st); err != nil {
		return err
	}
	replay := state.ReplaySignal(d.Version, state.At(time.Now()))
	replay.By = c.By()
	wake, err := s.store.Signal(ctx, d.Run, replay, s.cfg.RedeliveryDelay)
	if _, closed := errors.AsType[*state.NotWaitingError](err); closed {
		// Another caller replayed it first. The letter says which.
		l, err := s.letter(ctx, d)
		if err == nil && l.Status == api.DeadClosed {
			err = problem(conflict, api.CodeNotReplayable, "dead letter %d: %s", d.Seq, l.Advice)
		}
		return err
	}
	if err != nil {
		return err
	}
	run := d.Run
	s.publish(ctx, func(ctx context.Context) error { return s.dispatch.Wake(ctx, run, wake, "") })
	return nil
}

// resubmit resubmits a refused submission with a run id derived from its letter, and returns that
// id.
func (s *Letters) resubmit(ctx context.Context, c access.Caller, d bus.DeadLetter) (string, error) {
	if d.By != nil {
		c = c.For(d.By.Principal)
	}
	sub := submission{caller: c, body: []byte(d.Data), key: d.Key, message: d.Message, replyTo: d.ReplyTo}
	var err error
	if sub.req, err = s.submissions.Decode(sub.body, d.Agent); err != nil {
		return "", err
	}
	sub.id = state.ReplayID(d.Tenant, d.Seq, d.At)
	st, err := s.submissions.submit(ctx, sub)
	if err != nil {
		return "", err
	}
	s.submitted.WithLabelValues("replay").Inc()
	return string(st.ID), nil
}
