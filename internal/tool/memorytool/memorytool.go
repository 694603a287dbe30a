package memorytool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/internal/provenance"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// New returns the kind of tools whose memories are in a store.
func New(store memory.Documents) tool.Kind {
	k := &kind{memory.New(store)}
	return tool.KindOf(toolspec.MemorySpec, k.call)
}

type kind struct{ memories *memory.Memories }

func (k *kind) call(ctx context.Context, t tool.Bound, c tool.Call) (tool.Result, error) {
	settings, ok := t.Settings.(*toolspec.Files)
	if !ok {
		return tool.Result{}, fmt.Errorf("the settings of the tool have the unexpected type %T. Continue without the tool; the operator must report this bug in Turnpike", t.Settings)
	}
	text, err := k.run(ctx, *settings, c)
	if refusal, ok := errors.AsType[memory.Refusal](err); ok {
		return tool.Error(string(refusal)), nil
	}
	return tool.Result{Content: tool.Truncate(text, c.Limit())}, err
}

func (k *kind) run(ctx context.Context, settings toolspec.Files, c tool.Call) (string, error) {
	command, err := memory.ParseCommand(c.Arguments)
	if err != nil {
		return "", err
	}
	scope, err := memory.ScopeOf(settings.Scope, c.Tenant, c.Agent, c.Metadata)
	if err != nil {
		return "", err
	}
	if command.Views() {
		d, err := k.memories.Read(ctx, scope)
		if err != nil {
			return "", err
		}
		return command.View(d)
	}
	seen, from := memory.Seen(c.Log, c.Name)
	w := memory.Writer{
		Run: c.Run, Key: c.IdempotencyKey, At: state.At(time.Now()), Limit: settings.Limit(), Origin: provenance.Farthest(c.Log).Farther(from),
		Seen: seen,
	}
	change := memory.NewChange(command, w)
	err = k.memories.Change(ctx, scope, change.Apply)
	if _, refused := errors.AsType[memory.Refusal](err); err != nil && !refused && ctx.Err() == nil {
		// The store may have made the change although it returned an error: a repetition recognizes that by the
		// idempotency key.
		err = k.memories.Change(ctx, scope, change.Apply)
	}
	return change.Result(), err
}
