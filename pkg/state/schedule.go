package state

import (
	"context"
	"time"
)

// NoisyAbove is the number of runs in flight (queued or running) that one tenant may have on one shard (RunID.Shard)
// before the tenant is noisy there. A store marks each run that it queues, or that a commit claims eagerly, while there
// are more, including that run; its turn goes to the queue that noisy tenants share. A tenant with a thousand runs in
// flight is noisy on about three quarters of the shards, one with ten on hardly any. The mark is a hint, not a promise.
const NoisyAbove = 2

// Schedule finds runs that need attention. A delay is the redelivery delay: the time that the
// message of a run's turn has before the run is due.
type Schedule interface {
	// Sweep examines due runs, in no defined order, and returns up to limit of those that need
	// something. It reschedules each in one step with its result: the run is due again after delay, and
	// after twice, four, up to 64 times delay when sweeps return it again. If several callers sweep at
	// once, one of them gets a run. After a lost reply or an error, sweeps return the runs again after
	// these times, except Covered ones. If a run cannot be examined, a store may return the others
	// without an error.
	//
	//   - A Running run whose lease lasts is not returned. It is due delay after the end of the lease.
	//   - A Running run whose lease is over is queued, and returned with NeedsTurn. The attempt
	//     counts, and the worker may only have been paused: see Turns.Record.
	//   - A Waiting run whose State.Due has passed is queued, and returned with NeedsTurn.
	//   - A Queued run that the backlog covers is returned with NeedsTurn and Covered, in case its
	//     message was never published. It is not returned if it has a pending abort, or if a sweep has
	//     returned it since it was queued, even with a reply that was lost. It is due again after
	//     BacklogLook delays, or after the time that it has been queued if that is longer.
	//   - Any other Queued run is returned with NeedsTurn. It counts as queued now, since the caller
	//     publishes its message.
	//   - A Waiting or ended run is returned with Finalize if its log is longer than what
	//     MarkFinalized has recorded, or if it waits for other runs (AwaitsRun of an open wait). It is
	//     due again at its State.Due if that is earlier.
	//   - Any other Waiting run is due at its State.Due. An ended run is not due any more.
	Sweep(ctx context.Context, limit int, delay time.Duration, backlog Backlog) ([]Due, error)

	// MarkFinalized records that a worker has done all that follows from the first seq entries of the run's log, such
	// as starting its children and answering its parent. A smaller seq than the recorded one has no effect on it,
	// and one above the number of log entries counts as that number. If the run is Waiting or has ended, its whole
	// log is finalized, and it waits for no other run, it is due at its State.Due, or never.
	MarkFinalized(ctx context.Context, id RunID, seq int64) error

	// Counts returns the number of runs by the status that Load returns. It may lag, see List.
	// Statuses without runs may be missing.
	Counts(ctx context.Context) (map[Status]int64, error)
}

// Workers finds the workers that hold leases, and ends the leases of dead ones.
type Workers interface {
	// Evict ends up to limit of the leases that worker holds, expired or not, and queues their runs.
	// It returns them with NeedsTurn and Sweeps 1, as a sweep would: the caller publishes their turns
	// now, and they are due after delay. The attempts count, and the worker may only have been
	// paused: see Turns.Record. If Evict returns fewer than limit and no error, the caller need not
	// call it again: sweeps end the leases that it may have left, such as those of runs in a newer
	// format. If several callers evict the same worker, no run is returned to two of them. With an
	// error Evict may also return runs; a sweep finds those whose reply was lost.
	Evict(ctx context.Context, worker string, limit int, delay time.Duration) ([]Due, error)

	// Owners returns the workers that hold leases, each once: also eager claims, and leases that
	// have expired but are still in force.
	Owners(ctx context.Context) ([]string, error)

	// Leases returns up to limit of the runs whose lease worker holds, as far as the index behind
	// Owners has them.
	Leases(ctx context.Context, worker string, limit int) ([]RunID, error)

	// Heartbeat records that a worker is alive from now for the duration lasts; the latest call counts, and
	// one with a duration of 0 ends the life. Alive reports whether that duration has not passed yet for a
	// worker. A store on the system that also carries the heartbeats between workers may record none; its
	// Alive returns false.
	Heartbeat(ctx context.Context, worker string, lasts time.Duration) error
	Alive(ctx context.Context, worker string) (bool, error)
}

// Backlog is, for each lane, the time at which its oldest unfetched message was queued, by the
// clock of the bus. It lacks lanes without unfetched messages. A run that was queued after that
// time, or at most MaxSkew before it, counts as one that waits behind that message.
type Backlog map[Priority]time.Time

// MaxSkew is the maximum difference between the clocks of a deployment.
const MaxSkew = 5 * time.Second

// BacklogLook is the minimum number of redelivery delays before Sweep checks a run
// again that the backlog covers. If the run has been queued for longer than that,
// Sweep waits for that time again, so that a long backlog costs sweeps less and less.
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
	Sweeps    int      // number of sweeps that have returned the run, including this one, since it was last committed or woken from a wait or an end, or Release or Evict last ended its lease; Evict counts as the first
	NeedsTurn bool     // publish the turn that follows Version
	Covered   bool     // the backlog covers the run: publish under the turn's own id, so that the bus drops the message if it has it
	Noisy     bool     // selects the queue: see NoisyAbove
	Tenant    string

	// Finalize is true if the run is waiting or has ended, and its log is longer than
	// FinalizedSeq or the run waits for other runs.
	Finalize     bool
	FinalizedSeq int64 // see Schedule.MarkFinalized
}
