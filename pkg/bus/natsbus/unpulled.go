package natsbus

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// unpulledAge is the minimum age of the oldest message of an intake stream before Unpulled counts the stream:
// a busy gateway requests the messages of each tenant in turn.
const unpulledAge = 10 * time.Second

// Unpulled implements bus.Bus.
func (b *Bus) Unpulled(ctx context.Context) (map[string]bus.Unpulled, error) {
	all := map[string]bus.Unpulled{bus.UnpulledTurns: {}, bus.UnpulledSubmissions: {}, bus.UnpulledAborts: {}}
	var turns bus.Unpulled
	requests := 0
	infos := make(chan *jetstream.ConsumerInfo)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for info := range infos {
			turns.Waiting += int64(info.NumPending) //nolint:gosec // as in LagByLane
			turns.Unacknowledged += int64(info.NumAckPending)
			requests += info.NumWaiting
		}
	}()
	err := b.eachQueue(ctx, func(_ context.Context, _ bus.QueueKey, info *jetstream.ConsumerInfo) error {
		infos <- info
		return nil
	})
	close(infos)
	<-done
	if err != nil {
		return nil, err
	}
	if requests == 0 { // a worker takes urgent messages first, so the queues count together
		all[bus.UnpulledTurns] = turns
	}
	streams := b.js.ListStreams(ctx)
	for info := range streams.Info() {
		kind, ok := b.intakeKind(info.Config.Name)
		if !ok || info.State.Msgs == 0 || time.Since(info.State.FirstTime) < unpulledAge {
			continue
		}
		c, err := b.js.Consumer(ctx, info.Config.Name, "gateway")
		if isMissing(err) {
			continue // its gateway creates it
		}
		if err != nil {
			return nil, fmt.Errorf("read consumer gateway of %s: %w", info.Config.Name, err)
		}
		if i := c.CachedInfo(); i.NumWaiting == 0 && i.NumAckPending == 0 {
			queue := map[string]string{kindSubmit: bus.UnpulledSubmissions, kindControl: bus.UnpulledAborts}[kind]
			all[queue] = bus.Unpulled{Waiting: all[queue].Waiting + int64(i.NumPending)} //nolint:gosec // as above
		}
	}
	if err := streams.Err(); err != nil {
		return nil, fmt.Errorf("list streams: %w", err)
	}
	return all, nil
}

// checkUnpulled reports messages of queues of which no process requests or holds messages.
func (b *Bus) checkUnpulled(ctx context.Context) state.Finding {
	f := state.Finding{Name: "nats: messages that no process pulls", OK: true, Detail: "none"}
	all, err := b.Unpulled(ctx)
	if err != nil {
		if isMissing(err) {
			return f // there are no queues yet
		}
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that NATS answers, and permit the NATS user of this process to list streams and to read consumers, in the configuration of the NATS server"
		return f
	}
	var found, remedies []string
	for _, of := range []struct{ queue, remedy string }{
		{bus.UnpulledTurns, "start a worker"}, {bus.UnpulledSubmissions, "start a gateway"}, {bus.UnpulledAborts, "start a gateway"},
	} {
		if u := all[of.queue]; u.Waiting > 0 && u.Unacknowledged == 0 {
			found, remedies = append(found, fmt.Sprintf("%s: %d", of.queue, u.Waiting)), append(remedies, of.remedy)
		}
	}
	if len(found) > 0 {
		f.OK, f.Detail = false, "waiting "+strings.Join(found, ", ")
		f.Remedy = strings.Join(slices.Compact(remedies), " and ") + "; if one is running, find in its log why it requests no messages from NATS"
	}
	return f
}

// checkTenants reports streams of tenants whose settings differ from the configured ones.
func (ts *tenantStreams) checkTenants(ctx context.Context) state.Finding {
	f := state.Finding{Name: "nats: streams of tenants", OK: true}
	streams := ts.js.ListStreams(ctx)
	n, unlimited, first := 0, 0, error(nil)
	for info := range streams.Info() {
		kind, ok := ts.intakeKind(info.Config.Name)
		tenant := strings.TrimPrefix(info.Config.Name, ts.stream(kind+"_"))
		if !ok || tenant == info.Config.Name {
			continue
		}
		n++
		want := ts.tenantStream(tenant, kind)
		if want.MaxBytes > 0 && info.Config.MaxBytes <= 0 {
			unlimited++
		}
		if closed := ts.closedTenant(tenant, kind); len(info.Config.Subjects) == 1 && info.Config.Subjects[0] == closed[0] {
			continue
		}
		if err := differs(want, info.Config); err != nil && first == nil {
			first = err
		}
	}
	f.Detail = fmt.Sprintf("%d, settings are right", n)
	switch err := streams.Err(); {
	case err != nil:
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that NATS answers, and permit the NATS user of this process to list streams, in the configuration of the NATS server"
	case first != nil:
		f.OK = false
		f.Detail, f.Remedy = explained(first, "")
	case unlimited > 0:
		f.OK, f.Detail = false, fmt.Sprintf("%d of %d have no limit: a tenant may fill the disk on which the turns are", unlimited, n)
		f.Remedy = "raise max_file_store of NATS, or lower the limits with TURNPIKE_SUBMIT_MIB and TURNPIKE_CONTROL_MIB, and restart a gateway"
	}
	return f
}
