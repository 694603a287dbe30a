package service

import (
	"context"

	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// create stores a new run, with its entries in the index of the metadata keys that its tenant has chosen, and with
// the tenant's webhook if the run has none; child runs and runs of drafts do not get it. Before that it records
// that the run uses its files, except for a run of a batch: createBatch records those. The run must have its id
// already: an index is complete from a certain id on, so create must read the settings after the id was made.
func (k *core) create(ctx context.Context, n state.NewRun) (state.Created, error) {
	if n.State.Batch == nil { // the files of a batch are recorded together
		if err := k.bind(ctx, n.State.Tenant, file.User{Run: n.State.ID}, messagesOf(n.State)...); err != nil {
			return state.Created{}, err
		}
	}
	settings, err := k.tenants.Settings(ctx, n.State.Tenant)
	if err != nil {
		return state.Created{}, err
	}
	if len(n.State.Metadata) > 0 {
		n.Indexed = settings.IndexedMetadata
	}
	if n.State.Webhook == nil && n.State.Parent == nil && !isDraft(n.State.Agent) {
		n.State.Webhook = settings.Webhook
	}
	n.RedeliveryDelay = k.cfg.RedeliveryDelay
	return k.store.Create(ctx, n)
}

// byIndex sets f.Indexed, so that the store finds runs by the indexed metadata keys of the tenant without reading all
// runs. It does nothing if f has no metadata.
func (k *core) byIndex(ctx context.Context, f *state.Filter) (err error) {
	if len(f.Metadata) > 0 {
		f.Indexed, err = k.tenants.IndexedFrom(ctx, f.Tenant)
	}
	return err
}
