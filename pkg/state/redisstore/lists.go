package redisstore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Lists are read from an index in each shard: a sorted set of "tenant\0name\0run" with a member for
// each name that a list may select. The scripts update it together with the run.

const (
	// listPage is the number of headers that List reads at once.
	listPage = 200

	// listExamined is the maximum number of runs that List examines for one page.
	listExamined = 1000
)

// The names that the index has runs under. lib.lua builds those of a status, and create.lua looks
// for those of metadata.
const (
	nameAll    = "all"
	nameMeta   = "meta:" // followed by a state.IndexName
	nameAgent  = "agent:"
	nameParent = "parent:"
	nameStatus = "status:" // followed by active, another status, or the reason for waiting
)

// listNames returns the names of a run that never change, in the form of the scripts' argument.
// indexed are those of its metadata.
func listNames(st state.State, indexed []string) string {
	names := nameAll + "\n" + nameAgent + st.Agent
	if st.Parent != nil {
		names += "\n" + nameParent + string(st.Parent.RunID)
	}
	for _, name := range indexed {
		names += "\n" + nameMeta + name
	}
	return names
}

// waitReason returns the reason why a run waits.
func waitReason(st state.State) string {
	if st.Waiting == nil {
		return ""
	}
	return string(st.Waiting.Reason)
}

// listNamesOf returns the names that together have all runs that a filter selects. For a filter by
// agent and status, either set does: each may have few runs, or nearly all.
func listNamesOf(f state.Filter) (names, orNames []string) {
	byAgent := []string{nameAgent + f.Agent}
	switch {
	case f.Parent != "":
		return []string{nameParent + string(f.Parent)}, nil
	case f.Batch != "": // its runs are adjacent
		return []string{nameAll}, nil
	case f.Waiting != "":
		names = []string{nameStatus + string(f.Waiting)}
	case len(f.Status) > 0:
		set := map[string]bool{}
		for _, status := range f.Status {
			if status == state.Queued || status == state.Running {
				status = "active"
			}
			set[nameStatus+string(status)] = true
		}
		names = slices.Sorted(maps.Keys(set))
	case f.Agent != "":
		return byAgent, nil
	default:
		return []string{nameAll}, nil
	}
	if f.Agent != "" {
		orNames = byAgent
	}
	return names, orNames
}

// list is a part of a sorted set: the members with a prefix, in the order of run ids, from a run up
// to another; "" means all.
type list struct{ key, prefix, from, to string }

// before returns the range from run bottom, which may be "", up to run top, or to the end if that
// is "".
func (l list) before(bottom, top string) *redis.ZRangeBy {
	bottom = max(bottom, l.from)
	if top == "" || l.to != "" && l.to < top {
		top = l.to
	}
	r := &redis.ZRangeBy{Min: "[" + l.prefix + bottom, Max: "(" + l.prefix + top}
	if top == "" {
		r.Max = "(" + strings.TrimSuffix(l.prefix, "\x00") + "\x01"
	}
	return r
}

// lists returns lists that together have all runs that a filter selects. A filter may have
// several such sets of lists: by status, by agent, and by each indexed metadata key. It
// chooses the set with the fewest runs. The set of a metadata key has the lists of its value
// and, for the runs older than the index, those that the filter would have without the key.
func (s *Store) lists(ctx context.Context, f state.Filter) ([]list, error) {
	var err error
	tenants := []string{f.Tenant}
	if f.Tenant == "" {
		if tenants, err = s.firsts(ctx, s.keys.lists); err != nil {
			return nil, err
		}
	}
	names, orNames := listNamesOf(f)
	sets := [][]list{s.named(tenants, names)}
	if orNames != nil {
		sets = append(sets, s.named(tenants, orNames))
	}
	indexed := s.indexed(f)
	if f.Agent == "" && len(f.Status) == 0 && f.Waiting == "" && len(indexed) > 0 {
		best, err := s.shortest(ctx, indexed) // all runs of the tenant are no fewer
		return older(sets[0], indexed[best]), err
	}
	best, err := s.shortest(ctx, append(sets, indexed...))
	if err != nil {
		return nil, err
	}
	if best < len(sets) {
		return sets[best], nil
	}
	byKey := indexed[best-len(sets)]
	if best, err = s.shortest(ctx, sets); err != nil {
		return nil, err
	}
	return older(sets[best], byKey), nil
}

// indexed returns the lists of each indexed metadata key of a filter, from the first run that is
// certain to be in them.
func (s *Store) indexed(f state.Filter) (sets [][]list) {
	for name, from := range f.IndexNames() {
		lists := s.named([]string{f.Tenant}, []string{nameMeta + name})
		for i := range lists {
			lists[i].from = string(from)
		}
		sets = append(sets, lists)
	}
	return sets
}

// older adds to the lists of a metadata key those of all runs before.
func older(all, byKey []list) []list {
	for _, l := range all {
		l.to = byKey[0].from
		byKey = append(byKey, l)
	}
	return byKey
}

// named returns the lists of some names in all shards.
func (s *Store) named(tenants, names []string) []list {
	lists := make([]list, 0, len(tenants)*len(names)*len(s.keys.lists))
	for _, tenant := range tenants {
		for _, name := range names {
			for _, key := range s.keys.lists {
				lists = append(lists, list{key: key, prefix: tenant + "\x00" + name + "\x00"})
			}
		}
	}
	return lists
}

// shortest returns the index of the set of lists that has the fewest runs, in one round trip.
func (s *Store) shortest(ctx context.Context, sets [][]list) (best int, err error) {
	if len(sets) == 1 {
		return 0, nil
	}
	pipe := s.rdb.Pipeline()
	counts := make([][]*redis.IntCmd, len(sets))
	for i, lists := range sets {
		for _, l := range lists {
			r := l.before("", "")
			counts[i] = append(counts[i], pipe.ZLexCount(ctx, l.key, r.Min, r.Max))
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return 0, err
	}
	fewest := int64(math.MaxInt64)
	for i, cmds := range counts {
		runs := int64(0)
		for _, c := range cmds {
			runs += c.Val()
		}
		if runs < fewest {
			best, fewest = i, runs
		}
	}
	return best, nil
}

// List implements state.Runs. It asks every shard for the newest few runs under the names that a filter has in the
// index, and reads those. The cost of a page depends on the number of shards, of names and of returned runs, plus at
// most a thousand examined runs that the rest of the filter rejects. A list of all tenants asks each shard for each
// tenant. For a filter by Parents see listBelow.
func (s *Store) List(ctx context.Context, f state.Filter) (state.RunPage, error) {
	limit := f.Limit
	if limit <= 0 {
		limit = defaultLimit
	}
	bottom, top := "", f.Cursor
	if first, err := state.ParseBatchID(f.Batch); err == nil {
		bottom = string(first)
		if after := string(first.Plus(state.MaxBatch)); top == "" || top > after {
			top = after
		}
	}
	if len(f.Parents) > 0 && f.Parent == "" {
		return s.listBelow(ctx, f, limit)
	}
	lists, err := s.lists(ctx, f)
	if err != nil {
		return state.RunPage{}, fmt.Errorf("list runs: %w", err)
	}
	var page state.RunPage
	looked, read := 0, 0
	want := limit + 1 // the number of runs to look at next
	for rest := max(listExamined, limit+1); ; {
		ids, more, err := s.newest(ctx, lists, bottom, top, min(want, rest))
		if err != nil {
			return state.RunPage{}, fmt.Errorf("list runs: %w", err)
		}
		ids = ids[:min(len(ids), rest)]
		rest -= len(ids)
		for len(ids) > 0 {
			part, runs, bytes, err := s.part(ctx, f, ids[:min(len(ids), listPage, want)], read)
			if err != nil {
				return state.RunPage{}, err
			}
			if len(part) == 0 {
				page.Next = top
				return page, nil
			}
			for _, st := range runs {
				if !f.Match(st) {
					continue
				}
				if len(page.Runs) == limit {
					page.Next = string(page.Runs[limit-1].ID)
					return page, nil
				}
				page.Runs = append(page.Runs, st)
			}
			top, ids = part[len(part)-1], ids[len(part):]
			read, looked = read+bytes, looked+len(part)
			if want = limit + 1 - len(page.Runs); looked > limit {
				want = max(want, looked) // the filter rejects runs: double what it looks at
			}
		}
		if rest == 0 {
			page.Next = top
			return page, nil
		}
		if !more {
			return page, nil
		}
	}
}

// newest returns about n of the newest runs of several lists, and whether there are more.
func (s *Store) newest(ctx context.Context, lists []list, bottom, top string, n int) (ids []string, more bool, err error) {
	if len(lists) == 0 { // the store has no tenant yet
		return nil, false, nil
	}
	// The runs are spread over the lists by chance: a list that has more of the newest n than part cuts the
	// page short, and costs another round trip.
	mean := float64(n) / float64(len(lists))
	part := int64(4 + 2*mean + 3*math.Sqrt(mean))
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.StringSliceCmd, len(lists))
	for i, l := range lists {
		r := l.before(bottom, top)
		r.Count = part
		cmds[i] = pipe.ZRevRangeByLex(ctx, l.key, r)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, false, err
	}
	// Below the last run of a list that may have more, another list's run need not be the next.
	known := ""
	for i, l := range lists {
		found := cmds[i].Val()
		for _, member := range found {
			ids = append(ids, member[len(l.prefix):])
		}
		if count := len(found); count > 0 && int64(count) == part {
			known, more = max(known, found[count-1][len(l.prefix):]), true
		}
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	first, _ := slices.BinarySearch(ids, known)
	ids = ids[first:]
	slices.Reverse(ids)
	return ids, more, nil
}

// part reads as many of the first ids as a page may still have after read bytes; at least one if nothing
// was read, and all if the filter has no limit of bytes. A header can have several MiB, because it contains the output
// of its run. Small runs cost one round trip, large ones two more. It returns the ids it has read, and those of their
// runs that exist and that this build can read.
func (s *Store) part(ctx context.Context, f state.Filter, ids []string, read int) (done []string, runs []state.State, bytes int, err error) {
	if f.Bytes <= 0 {
		runs, bytes, err = s.headers(ctx, ids)
		return ids, runs, bytes, err
	}
	small, runs, bytes, err := s.smallRuns(ctx, ids, (f.Bytes-read)/len(ids))
	if err != nil || small == len(ids) {
		return ids, runs, bytes, err
	}
	rest, err := s.fitting(ctx, ids[small:], f.Bytes, read+bytes)
	if err != nil {
		return nil, nil, 0, err
	}
	more, n, err := s.headers(ctx, rest)
	return ids[:small+len(rest)], append(runs, more...), bytes + n, err
}

// smallRuns reads the runs before the first that has more than most bytes, and returns the number of their ids.
func (s *Store) smallRuns(ctx context.Context, ids []string, most int) (n int, runs []state.State, bytes int, err error) {
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = s.keys.run(state.RunID(id)).header
	}
	replies, err := smallScript.onEach(ctx, s, keys, func(int) []any { return []any{most} })
	if err != nil {
		return 0, nil, 0, fmt.Errorf("read runs: %w", err)
	}
	if i := slices.IndexFunc(replies, func(r reply[storedPlace]) bool { return reply[verdictPlace](r).str(verdictWord) == "large" }); i >= 0 {
		replies = replies[:i]
	}
	runs, bytes, err = existing(ids, replies)
	return len(replies), runs, bytes, err
}

// fitting returns as many of the first ids as a page of some bytes may still have after read bytes; at least one if
// nothing was read.
func (s *Store) fitting(ctx context.Context, ids []string, most, read int) ([]string, error) {
	pipe := s.rdb.Pipeline()
	fixed, header := make([]*redis.IntCmd, len(ids)), make([]*redis.IntCmd, len(ids))
	for i, id := range ids {
		key := s.keys.run(state.RunID(id)).header
		fixed[i], header[i] = pipe.HStrLen(ctx, key, fieldFixed), pipe.HStrLen(ctx, key, fieldHeader)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, fmt.Errorf("read sizes of runs: %w", err)
	}
	for i := range ids {
		size := int(fixed[i].Val() + header[i].Val())
		if read > 0 && read+size > most {
			return ids[:i], nil
		}
		read += size
	}
	return ids, nil
}

// headers reads the existing runs among ids, and returns the number of bytes read.
func (s *Store) headers(ctx context.Context, ids []string) (runs []state.State, bytes int, err error) {
	if len(ids) == 0 {
		return nil, 0, nil
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]*redis.SliceCmd, len(ids))
	for i, id := range ids {
		cmds[i] = pipe.HMGet(ctx, s.keys.run(state.RunID(id)).header, storedFields...)
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return nil, 0, fmt.Errorf("read runs: %w", err)
	}
	replies := make([]reply[storedPlace], len(ids))
	for i, c := range cmds {
		replies[i] = c.Val()
	}
	return existing(ids, replies)
}

// existing decodes replies with the storedFields of the first ids, without runs that do not exist or that this build
// cannot read.
func existing(ids []string, replies []reply[storedPlace]) (runs []state.State, bytes int, err error) {
	runs = make([]state.State, 0, len(replies))
	for i, values := range replies {
		for _, field := range values {
			text, _ := field.(string)
			bytes += len(text)
		}
		st, err := read(state.RunID(ids[i]), values)
		if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrFormat) {
			continue
		}
		if err != nil {
			return nil, 0, err
		}
		runs = append(runs, st)
	}
	return runs, bytes, nil
}

// firstsPart is the number of texts that firsts requests from a set at once.
const firstsPart = 500

// firsts returns the texts before the first \0 of the members of some sorted sets, sorted, each once. Its round trips
// depend on the set with the most texts: one, and another for each firstsPart of them.
func (s *Store) firsts(ctx context.Context, keys []string) ([]string, error) {
	found, from := map[string]bool{}, make(map[string]string, len(keys))
	for _, key := range keys {
		from[key] = "-"
	}
	for len(keys) > 0 {
		replies, err := firstsScript.onEach(ctx, s, keys, func(i int) []any { return []any{from[keys[i]], firstsPart} })
		if err != nil {
			return nil, err
		}
		var more []string
		for i, key := range keys {
			texts, err := replies[i].list(firstsTexts)
			if err != nil {
				return nil, err
			}
			for _, text := range texts {
				found[text] = true
			}
			if len(texts) == firstsPart {
				from[key] = "(" + texts[len(texts)-1] + "\x01"
				more = append(more, key)
			}
		}
		keys = more
	}
	return slices.Sorted(maps.Keys(found)), nil
}
