package service

import (
	"context"
	"fmt"
	"iter"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// RunLog reads the log of a run in pages, because a log may be larger than the memory of a gateway.
// Runs.Log reads the first page; each sequence reads the others again. It is not safe for concurrent use.
type RunLog struct {
	store state.Store
	id    state.RunID
	first state.LogPage
	err   error
}

// Err returns the error that has ended a sequence early, or nil.
func (l *RunLog) Err() error { return l.err }

// Entries returns the entries of the log, as far as it exists when they are read.
func (l *RunLog) Entries(ctx context.Context) iter.Seq[state.Entry] {
	return func(yield func(state.Entry) bool) {
		for page := l.first; ; {
			for i := range page.Entries {
				if !yield(page.Entries[i]) {
					return
				}
			}
			if !page.More || !l.read(ctx, &page, page.Entries[len(page.Entries)-1].Seq, mostPage) {
				return
			}
		}
	}
}

// read reads the page after the first entries, or sets l.err and returns false.
func (l *RunLog) read(ctx context.Context, page *state.LogPage, after int64, limit int) bool {
	if l.err != nil {
		return false
	}
	*page = state.LogPage{} // becomes free
	*page, l.err = l.store.LogPage(eachCall(ctx), l.id, after, limit, pageWeight)
	if l.err == nil && len(page.Entries) == 0 {
		l.err = fmt.Errorf("read log of run %s: entry %d is missing: retry; if the run was not deleted meanwhile, the stored data is damaged: restore the store from a backup", l.id, after+1)
	}
	return l.err == nil
}

// Refs returns references to the messages that the model sees, or to all if full is set. It reads all of
// the log: the order of the messages depends on it.
func (l *RunLog) Refs(ctx context.Context, full bool) ([]state.MessageRef, error) {
	var outline state.Outline
	for e := range l.Entries(ctx) {
		outline.Add(e)
	}
	return outline.Refs(full), l.err
}

// Messages returns the messages that Refs has returned.
func (l *RunLog) Messages(ctx context.Context, refs []state.MessageRef) iter.Seq[state.Message] {
	return func(yield func(state.Message) bool) {
		page, aside := l.first, state.LogPage{}
		for _, r := range refs {
			seq := int64(r.Entry) + 1
			from := &page
			switch {
			case has(page, seq):
			case has(aside, seq):
				from = &aside
			case r.Replacement || seq < page.Entries[0].Seq: // the next message is elsewhere again
				if from = &aside; !l.read(ctx, from, seq-1, 1) {
					return
				}
			case !l.read(ctx, from, seq-1, mostPage):
				return
			}
			if !yield(r.Message(&from.Entries[seq-from.Entries[0].Seq])) {
				return
			}
		}
	}
}

// has reports whether a page has the entry with a number.
func has(page state.LogPage, seq int64) bool {
	return len(page.Entries) > 0 && seq >= page.Entries[0].Seq && seq <= page.Entries[len(page.Entries)-1].Seq
}
