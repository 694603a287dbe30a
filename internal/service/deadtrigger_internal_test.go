package service

import (
	"context"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// gone is a message that its stream has deleted.
type gone struct{ StreamMessage }

func (gone) ID() string                           { return "ORDERS:7:1" }
func (gone) Subject() string                      { return "orders.new" }
func (gone) Headers() map[string][]string         { return nil }
func (gone) Body(context.Context) ([]byte, error) { return nil, ErrNoMessage }

// letters keeps the latest dead letter.
type letters struct {
	bus.Bus

	latest bus.DeadLetter
}

func (l *letters) DeadLetter(_ context.Context, d bus.DeadLetter) error {
	l.latest = d
	return nil
}

// A dead letter of a message that the stream has deleted cannot be replayed: that would deliver an empty message.
func TestDeadLetterOfDeletedMessage(t *testing.T) {
	t.Parallel()
	kept := &letters{}
	triggers := &Triggers{deliveries: &deliveries{core: &core{bus: kept}}}
	r := &runner{s: triggers, key: triggerKey{"acme", "orders"}}
	if err := r.bury(t.Context(), gone{}, problem(unprocessable, api.CodeInvalidDelivery, "no")); err != nil {
		t.Fatal(err)
	}
	if !kept.latest.Cut {
		t.Errorf("the letter %+v counts as complete", kept.latest)
	}
	shown := api.DeadLetter{Status: api.DeadClosed}
	if err := triggers.addLetter(t.Context(), kept.latest, &shown); err != nil || shown.Status != api.DeadClosed || shown.Advice == "" {
		t.Errorf("the letter has the status %s and the advice %q, %v", shown.Status, shown.Advice, err)
	}
}
