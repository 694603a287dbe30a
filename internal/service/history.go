package service

import (
	"context"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxHistory is the maximum memory of a run's log, in bytes, if a request forks or continues the run. A worker
	// holds all of the log during a turn, and so does a reader of the run.
	maxHistory = 32 << 20

	// leastPage and mostPage bound the number of log entries in one read, and pageWeight is
	// the approximate memory limit of one. With a distant store, a log of many small entries
	// thus takes few reads.
	leastPage  = 16
	mostPage   = 256
	pageWeight = 4 << 20
)

// eachPage calls visit with the log of a run page by page, and the approximate memory of each page in bytes, until
// visit returns true or an error.
func (k *core) eachPage(ctx context.Context, id state.RunID, visit func(page []state.Entry, weight int64) (enough bool, err error)) error {
	for after, limit := int64(0), leastPage; ; {
		page, err := k.store.Log(ctx, id, after, limit)
		if err != nil {
			return err
		}
		weight := int64(1)
		for i := range page {
			weight += page[i].Weight()
		}
		if enough, err := visit(page, weight); err != nil || enough || len(page) < limit {
			return err
		}
		after = page[len(page)-1].Seq
		limit = max(leastPage, min(4*limit, int(int64(limit)*pageWeight/weight), mostPage))
	}
}

// history returns the log of a run, or a problem if the log takes more memory than maxHistory. It waits for its turn:
// see InTurn.
func (k *core) history(ctx context.Context, id state.RunID) (log []state.Entry, err error) {
	err = k.InTurn(ctx, func() error {
		size := int64(0)
		return k.eachPage(ctx, id, func(page []state.Entry, weight int64) (bool, error) {
			if size += weight; size > maxHistory {
				return false, problem(tooLarge, api.CodeHistoryFull, "the history of run %s is larger than %d MiB, the maximum: submit a new run with the parts that matter", id, maxHistory>>20)
			}
			log = append(log, page...)
			return false, nil
		})
	})
	return log, err
}
