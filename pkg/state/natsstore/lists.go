package natsstore

import (
	"context"
	"fmt"
	"slices"

	"github.com/turnpike-dev/turnpike/internal/state/record"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// manyRuns is the number of runs that the store is designed for: every process has an index of
	// all of them in memory, and reads it at startup.
	manyRuns = 20_000

	// listExamined is the maximum number of runs that List examines for one page.
	listExamined = 1000
)

// lists are the runs of the index in order, under each name that a filter may select. The cost of a
// page depends on the runs examined, not on the size of the index.
type lists map[listKey][]state.RunID // oldest first

// listKey names a list; the tenant "" means all tenants.
type listKey struct{ tenant, kind, name string }

// The kinds of lists. Queued and running share one status, so that no turn moves its run.
const (
	listAll    = "all"
	listAgent  = "agent"
	listParent = "parent"
	listStatus = "status"
	listReason = "reason" // the reason why a run waits
	listMeta   = "meta"   // a state.IndexName; of one tenant only
)

const listActive = "active"

func listStatusOf(s state.Status) string {
	if s == state.Queued || s == state.Running {
		return listActive
	}
	return string(s)
}

// place returns the position of a run in the lists that change with it.
func place(r record.Record) (status, reason string) {
	if r.Status == state.Waiting && r.Header.Waiting != nil {
		reason = string(r.Header.Waiting.Reason)
	}
	return listStatusOf(r.Status), reason
}

// move records that the record of a run was replaced. from is the zero Record for a new run, and to for a
// deleted one.
func (l lists) move(id state.RunID, from, to record.Record) {
	was, is := from.Status != "", to.Status != ""
	status, reason := place(from)
	newStatus, newReason := place(to)
	if was && is && status == newStatus && reason == newReason {
		return
	}
	if was {
		l.each(from, func(k listKey) { l.remove(k, id) }, !is, listKey{kind: listStatus, name: status}, listKey{kind: listReason, name: reason})
	}
	if is {
		l.each(to, func(k listKey) { l.add(k, id) }, !was, listKey{kind: listStatus, name: newStatus}, listKey{kind: listReason, name: newReason})
	}
}

// each calls fn for the keys, of the run's tenant and of all tenants, and also for the fixed ones
// if fixed is true.
func (l lists) each(r record.Record, fn func(listKey), fixed bool, keys ...listKey) {
	if fixed {
		keys = append(keys, listKey{kind: listAll}, listKey{kind: listAgent, name: r.Header.Agent})
		if r.Header.Parent != nil {
			keys = append(keys, listKey{kind: listParent, name: string(r.Header.Parent.RunID)})
		}
		for _, name := range r.Indexed {
			keys = append(keys, listKey{kind: listMeta, name: name})
		}
	}
	for _, k := range keys {
		if k.kind == listReason && k.name == "" {
			continue
		}
		if k.kind != listMeta {
			fn(k)
		}
		if k.tenant = r.Header.Tenant; k.tenant != "" {
			fn(k)
		}
	}
}

// add inserts a run into a list, usually at the end.
func (l lists) add(k listKey, id state.RunID) {
	list := l[k]
	if n := len(list); n == 0 || list[n-1] < id {
		l[k] = append(list, id)
		return
	}
	if at, there := slices.BinarySearch(list, id); !there {
		l[k] = slices.Insert(list, at, id)
	}
}

func (l lists) remove(k listKey, id state.RunID) {
	at, there := slices.BinarySearch(l[k], id)
	if !there {
		return
	}
	if l[k] = slices.Delete(l[k], at, at+1); len(l[k]) == 0 {
		delete(l, k)
	}
}

// keysOf returns lists that together have all runs that a filter selects, and perhaps others. If both those of a status
// or a wait and that of an agent would do, it returns the shorter ones. The caller holds s.mu.
func (l lists) keysOf(f state.Filter) []listKey {
	var keys []listKey
	add := func(kind, name string) {
		if k := (listKey{f.Tenant, kind, name}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	switch {
	case f.Parent != "":
		add(listParent, string(f.Parent))
		return keys
	case len(f.Parents) > 0:
		for _, p := range f.Parents {
			add(listParent, string(p))
		}
		return keys
	case f.Batch != "": // its runs are adjacent
		add(listAll, "")
		return keys
	case f.Waiting != "":
		add(listReason, string(f.Waiting))
	default:
		for _, s := range f.Status {
			add(listStatus, listStatusOf(s))
		}
	}
	byAgent := listKey{f.Tenant, listAgent, f.Agent}
	switch {
	case f.Agent != "" && (len(keys) == 0 || len(l[byAgent]) < l.length(keys)):
		return []listKey{byAgent}
	case len(keys) == 0:
		add(listAll, "")
	}
	return keys
}

// indexed returns the list of the indexed metadata key of a filter that has the fewest runs, with the
// first run that is certain to be in it. ok is false if the filter has no such key, or if keys, the
// lists that the filter would have without it, are shorter.
func (l lists) indexed(f state.Filter, keys []listKey) (best listKey, from state.RunID, ok bool) {
	fewest := l.length(keys)
	for name, first := range f.IndexNames() {
		k := listKey{f.Tenant, listMeta, name}
		if n := len(l[k]); n <= fewest {
			best, from, fewest, ok = k, first, n, true
		}
	}
	return best, from, ok
}

// within returns the part of a list from one run up to another; "" means all.
func within(list []state.RunID, from, to state.RunID) []state.RunID {
	if to != "" {
		at, _ := slices.BinarySearch(list, to)
		list = list[:at]
	}
	at, _ := slices.BinarySearch(list, from)
	return list[at:]
}

// length returns the number of runs in some lists.
func (l lists) length(keys []listKey) (n int) {
	for _, k := range keys {
		n += len(l[k])
	}
	return n
}

// List implements state.Runs, from the index. It examines at most a thousand runs, or one more than a higher limit.
func (s *Store) List(_ context.Context, f state.Filter) (state.RunPage, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = 50
	}
	bottom, top := state.RunID(""), state.RunID(f.Cursor)
	if first, err := state.ParseBatchID(f.Batch); err == nil {
		bottom = first
		if after := first.Plus(state.MaxBatch); top == "" || top > after {
			top = after
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var rests [][]state.RunID // the part of each list that the page may need
	keys, below := s.lists.keysOf(f), top
	if k, from, ok := s.lists.indexed(f, keys); ok {
		rests = append(rests, within(s.lists[k], from, top))
		if below == "" || from < below {
			below = from // the index need not have older runs
		}
	}
	for _, k := range keys {
		rests = append(rests, within(s.lists[k], "", below))
	}
	var page state.RunPage
	var last state.RunID
	bytes := 0
	for range max(listExamined, limit+1) {
		id := newest(rests)
		if id == "" || id < bottom {
			return page, nil
		}
		last = id
		st := s.index[id].rec.Read()
		if !f.Match(st) {
			continue
		}
		bytes += s.index[id].bytes
		if n := len(page.Runs); n == limit || n > 0 && f.Bytes > 0 && bytes > f.Bytes {
			page.Next = string(page.Runs[n-1].ID)
			return page, nil
		}
		page.Runs = append(page.Runs, st)
	}
	page.Next = string(last)
	return page, nil
}

// newest removes and returns the newest run of the lists, or returns "" if they are empty.
func newest(rests [][]state.RunID) state.RunID {
	from := -1
	for i, list := range rests {
		if n := len(list); n > 0 && (from < 0 || list[n-1] > rests[from][len(rests[from])-1]) {
			from = i
		}
	}
	if from < 0 {
		return ""
	}
	n := len(rests[from]) - 1
	id := rests[from][n]
	rests[from] = rests[from][:n]
	return id
}

// Counts implements state.Schedule, from the index.
func (s *Store) Counts(context.Context) (map[state.Status]int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[state.Status]int64{}
	for k, list := range s.lists {
		if k.kind == listStatus && k.tenant == "" && k.name != listActive {
			counts[state.Status(k.name)] = int64(len(list))
		}
	}
	for _, id := range s.lists[listKey{kind: listStatus, name: listActive}] {
		counts[s.index[id].rec.Status]++
	}
	return counts, nil
}

// tooMany logs, once, that the store has more runs than it is designed for; the caller holds s.mu.
func (s *Store) tooMany() {
	if len(s.index) <= manyRuns || s.warned {
		return
	}
	s.warned = true
	s.cfg.Logger.Warn("JetStream holds more runs than the limit of this store", "runs", len(s.index), "limit", manyRuns, "hint", remedyMany)
}

const remedyMany = "delete ended runs (TURNPIKE_RETENTION, in Go Options.Retention, or turnpike gc): every process holds the list of all runs in memory. A new deployment can keep more in Redis (TURNPIKE_REDIS_URL); the agents and runs of this one are not moved there"

// checkRuns reports the number of runs.
func (s *Store) checkRuns() state.Finding {
	s.mu.Lock()
	n := len(s.index)
	s.mu.Unlock()
	f := state.Finding{Name: "store: runs", OK: n <= manyRuns, Detail: fmt.Sprintf("%d runs; a store in JetStream supports up to %d", n, manyRuns)}
	if !f.OK {
		f.Remedy = remedyMany
	}
	return f
}
