package simulation

import (
	"context"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/hook"
)

// watcher is a hook as one process reaches it. It is slow, sometimes objects, and adds notes to some responses.
type watcher struct {
	p    *process
	dice *dice
}

// Call implements hook.Hook.
func (w watcher) Call(ctx context.Context, r hook.Request) (hook.Answer, error) {
	o := w.p.deployment.outside
	o.mu.Lock()
	o.asked = append(o.asked, r)
	o.mu.Unlock()
	w.p.deployment.note("", "%s: %s: asks the hook of %s", w.p.name, r.Run, r.Point)
	if err := wait(ctx, w.p, w.dice.between(0, 15*time.Second)); err != nil {
		return hook.Answer{}, err
	}
	no := "not like this"
	switch r.Point {
	case hook.Input:
		if w.dice.chance(0.1) {
			return hook.Answer{Replace: &no}, nil
		}
	case hook.PreTool:
		if w.dice.chance(0.05) {
			return hook.Answer{Deny: &no}, nil
		}
	case hook.PostSampling:
		if w.dice.chance(0.2) {
			return hook.Answer{Notes: []string{"take care"}}, nil
		}
	case hook.Stop:
		if w.dice.chance(0.2) {
			return hook.Answer{Block: &no}, nil
		}
	case hook.StopFailure:
	}
	return hook.Answer{}, nil
}
