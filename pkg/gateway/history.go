package gateway

import (
	"context"
	"net/http"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// maxHistory is how much memory the log of a run may take that is forked or continued by
	// a message. A worker has all of it in a turn, and so has whoever reads the run.
	maxHistory = 32 << 20

	// historyPage is how many entries of it are read at a time.
	historyPage = 16
)

// history returns the log of a run, unless it is larger than maxHistory.
func (g *Gateway) history(ctx context.Context, id state.RunID) (log []state.Entry, err error) {
	err = g.inTurn(ctx, func() error {
		for size, after := int64(0), int64(0); ; after = log[len(log)-1].Seq {
			page, err := g.store.Log(ctx, id, after, historyPage)
			if err != nil {
				return err
			}
			for i := range page {
				size += page[i].Weight()
			}
			if size > maxHistory {
				return problem(http.StatusRequestEntityTooLarge, api.CodeHistoryFull, "run %s has more than %d MiB of history, which every turn reads: submit a new run with what matters of it", id, maxHistory>>20)
			}
			if log = append(log, page...); len(page) < historyPage {
				return nil
			}
		}
	})
	return log, err
}
