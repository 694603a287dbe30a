//go:build !race

package turnpike_test

import (
	"context"
	"fmt"
	"runtime"
	"runtime/metrics"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// gate is a model whose calls wait until it opens.
type gate struct {
	begun chan struct{} // one value for each call
	open  chan struct{}
}

// Self implements model.Cancelable: the call is made on the goroutine of the turn.
func (g *gate) Self() model.Provider { return g }

func (g *gate) Generate(ctx context.Context, _ model.Request, _ func(model.Delta)) (model.Response, error) {
	g.begun <- struct{}{}
	select {
	case <-g.open:
		return model.Response{Parts: []state.Part{{Type: state.PartText, Text: "done"}}, Stop: model.StopEnd}, nil
	case <-ctx.Done():
		return model.Response{}, ctx.Err()
	}
}

// stacks returns the memory of the stacks of all goroutines, without those that wait for reuse.
func stacks() uint64 {
	runtime.GC() // returns the free ones
	s := []metrics.Sample{{Name: "/memory/classes/heap/stacks:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// A turn that waits for a model has a stack of 8 KiB. The runtime doubles a stack that is too small, and a larger frame
// between the worker and the store or the loop, for example one with copies of a state or an entry, would double it.
func TestStackOfAWaitingTurn(t *testing.T) {
	const turns, kib = 400, 1 << 10
	g := &gate{begun: make(chan struct{}, turns), open: make(chan struct{})}
	d := open(t, func(o *turnpike.Options) {
		o.Redis = turnpike.Redis{URL: testbed.RedisProcess(t).URL}
		o.Models = turnpike.Models{"gate": g}
	})
	put(t, d.Client, turnpike.Agent{Name: "waits", Model: turnpike.Model{Provider: "gate", Name: "any"}})
	var runs []*turnpike.Run
	begin := func(n int) {
		for range n {
			r, err := d.Client.Submit(t.Context(), turnpike.Submission{Agent: "waits", Input: fmt.Sprint(len(runs))})
			if err != nil {
				t.Fatal(err)
			}
			runs = append(runs, r)
		}
		for range n {
			<-g.begun
		}
	}
	begin(turns / 4) // what the process needs once is there, and the runtime knows how large stacks become
	before := stacks()
	begin(turns - turns/4)
	each := int64(stacks()-before) / (turns - turns/4)
	close(g.open)
	for _, r := range runs {
		if _, err := r.Wait(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if each > 10*kib {
		t.Errorf("a waiting turn has %d KiB of stack, want 8: which frame has grown?", each/kib)
	}
}
