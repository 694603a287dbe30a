package turnpike_test

import (
	"context"
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// batchReads is a store that tells of each read of a batch.
type batchReads struct {
	*memstore.Store

	read chan struct{}
}

func (s batchReads) DeletedOfBatch(ctx context.Context, first state.RunID) (state.DeletedBatch, error) {
	select {
	case s.read <- struct{}{}:
	default:
	}
	return s.Store.DeletedOfBatch(ctx, first)
}

// A wait for a batch ends with the error of its own context, or with ErrClosed when the deployment is closed.
func TestWaitForABatchEnds(t *testing.T) {
	t.Parallel()
	store := batchReads{memstore.New(memstore.Config{}), make(chan struct{}, 1)}
	d, err := turnpike.Open(t.Context(), turnpike.Options{
		Store: store, NATS: turnpike.NATS{URL: testbed.NATSServer(t).URL()}, Models: turnpike.Models{"scripted": scriptedModel()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	put(t, d.Client, agentOf("plain", says("x")...))
	b, err := d.SubmitBatch(t.Context(), turnpike.Batch{Runs: []turnpike.Submission{{Agent: "plain", Input: "x"}}}) // no worker runs it
	if err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		end  func(cancel func())
		want error
	}{
		{func(cancel func()) { cancel() }, context.Canceled},
		{func(func()) { _ = d.Close() }, turnpike.ErrClosed},
	} {
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := b.Wait(ctx)
			ended <- err
		}()
		<-store.read
		test.end(cancel)
		if err := <-ended; !errors.Is(err, test.want) {
			t.Errorf("the wait ended with %v, want %v", err, test.want)
		}
		cancel()
	}
}
