package state

import (
	"context"
	"time"
)

// NoisyAbove is the number of runs in flight (queued or running) that one tenant may have on one
// shard before the tenant is noisy there. A store marks each run that it queues while there are
// more, including that run; its turn goes to the queue that noisy tenants share. A tenant with a
// thousand runs in flight is noisy on nearly every shard, one with ten on none. The mark is a hint,
// not a promise.
const NoisyAbove = 2

// Schedule finds runs that need attention. A delay is the redelivery delay: the time that the
// message of a run's turn has before the run is due.
type Schedule interface {
	// Sweep returns up to limit due runs, each at most once per delay (backing off up to 64 times
	// that), and reschedules them: runs whose turn message or worker was lost, runs whose wait has
	// expired (Sweep queues them), and waiting or ended runs that are not finalized. It returns a
	// queued run that the backlog covers once, with Covered, in case its message was never
	// published; after that, Sweep checks it again much later.
	Sweep(ctx context.Context, limit int, delay time.Duration, backlog Backlog) ([]Due, error)

	// MarkFinalized records that a worker finalized the run at seq log entries: it started
	// the children, notified the parent, sent the reply and started the next run of the
	// batch. A smaller seq than the recorded one changes nothing. A run whose whole log is
	// finalized is no longer due, unless it waits for other runs or has continued.
	MarkFinalized(ctx context.Context, id RunID, seq int64) error

	// Counts returns the number of runs by status.
	Counts(ctx context.Context) (map[Status]int64, error)
}

// Workers finds the workers that hold leases, and ends the leases of dead ones.
type Workers interface {
	// Evict ends up to limit of the leases that worker holds, counts the attempts, and returns the
	// runs, due at once. If it returns fewer than limit, no more leases remain. If several callers
	// evict the same worker, each gets a part.
	Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]Due, error)

	// Owners returns the workers that hold leases.
	Owners(ctx context.Context) ([]string, error)

	// Leases returns up to limit of the runs whose lease worker holds, as far as the index behind
	// Owners has them.
	Leases(ctx context.Context, worker string, limit int) ([]RunID, error)

	// Heartbeat records that a worker is alive, for the duration lasts. Alive reports whether a
	// worker is, as far as the store knows. A store on the system that also carries the heartbeats
	// between workers may record none; its Alive returns false.
	Heartbeat(ctx context.Context, worker string, lasts time.Duration) error
	Alive(ctx context.Context, worker string) (bool, error)
}

// Backlog is, for each lane, the time at which its oldest unfetched message was queued, by the
// clock of the bus. A lane without one is empty. A run that was queued after that time, or at most
// MaxSkew before it, waits behind that message.
type Backlog map[Priority]time.Time

// MaxSkew is the maximum difference between the clocks of a deployment.
const MaxSkew = 5 * time.Second

// BacklogLook is the minimum number of redelivery delays before Sweep checks a run again that the
// backlog covers. If the run has waited longer than that, Sweep waits as long again, so that a long
// backlog costs sweeps less and less.
const BacklogLook = 16

// Covers reports whether the message of a run that was queued in lane at the given time is
// still in the backlog.
func (b Backlog) Covers(lane Priority, queued time.Time) bool {
	oldest, ok := b[lane]
	return ok && !queued.IsZero() && !queued.Before(oldest.Add(-MaxSkew))
}

// Due is a run that needs attention.
type Due struct {
	Run       RunID
	Version   int64
	Priority  Priority // High if the run has a pending abort
	Sweeps    int      // number of sweeps of this version, including this one
	NeedsTurn bool     // publish the turn that follows Version
	Covered   bool     // the backlog covers the run: publish under the turn's own id, so that the bus drops the message if it has it
	Noisy     bool     // selects the queue: see NoisyAbove
	Tenant    string

	// Finalize is true if the run is waiting or has ended, and its log is longer than
	// FinalizedSeq or the run waits for other runs.
	Finalize     bool
	FinalizedSeq int64 // see Schedule.MarkFinalized
}
