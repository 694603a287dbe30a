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
	// listPage is the maximum number of headers that List reads at once.
	listPage = 200

	// listExamined is the maximum number of runs that List examines for one page.
	listExamined = 1000

	// scriptLists is the maximum number of lists in each shard that one call of a script reads, and scriptBytes that of
	// bytes of headers: the server does nothing else during the call.
	scriptLists = 16
	scriptBytes = 1 << 20

	// A header with more bytes is read by itself: Lua copies what it reads several times.
	largeHeader = 128 << 10

	// countedShards is the distance of the shards that show which set of lists has the fewest runs; list.lua has it too.
	countedShards = 8
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
func listNames(st *state.State, indexed []string) string {
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
func waitReason(st *state.State) string {
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

// list is a part of the index of every shard: the members with a prefix, in the order of run ids, from a run up to
// another; "" means all.
type list struct{ prefix, from, to string }

// within returns the range from run bottom, which may be "", up to run top, or to the end if that is "".
func (l list) within(bottom, top string) (from, to string) {
	bottom = max(bottom, l.from)
	if top == "" || l.to != "" && l.to < top {
		top = l.to
	}
	if top == "" {
		return "[" + l.prefix + bottom, "(" + strings.TrimSuffix(l.prefix, "\x00") + "\x01"
	}
	return "[" + l.prefix + bottom, "(" + l.prefix + top
}

// lists returns sets of lists, each with all runs that a filter selects: by status, by agent, and by each
// indexed metadata key. The set of a metadata key has the list of its value and, for the runs older than the index,
// those of a set without the key.
func (s *Store) lists(ctx context.Context, f state.Filter) (sets [][]list, err error) {
	tenants := []string{f.Tenant}
	if f.Tenant == "" {
		if tenants, err = s.firsts(ctx, s.keys.lists); err != nil {
			return nil, err
		}
	}
	names, orNames := listNamesOf(f)
	for _, names := range [][]string{names, orNames} {
		var set []list
		for _, tenant := range tenants {
			for _, name := range names {
				set = append(set, list{prefix: tenant + "\x00" + name + "\x00"})
			}
		}
		if len(set) > 0 {
			sets = append(sets, set)
		}
	}
	for _, set := range sets {
		for name, from := range f.IndexNames() {
			byKey := []list{{prefix: f.Tenant + "\x00" + nameMeta + name + "\x00", from: string(from)}}
			for _, l := range set {
				byKey = append(byKey, list{prefix: l.prefix, to: string(from)})
			}
			sets = append(sets, byKey)
		}
	}
	return sets, nil
}

// List implements state.Runs. It asks every shard for the newest few runs under the names that a filter has in the
// index, and reads those: in one round trip, or in two on a cluster, or in more if the page is large or the rest of
// the filter rejects runs. The cost of a page depends on the number of shards, of names and of examined runs, which are
// at most a thousand (listExamined), or one more than a higher limit of the page. A list of all tenants first reads
// their names, and asks each shard for each tenant. For a filter by Parents see listBelow.
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
	sets, err := s.lists(ctx, f)
	if err != nil {
		return state.RunPage{}, fmt.Errorf("list runs: %w", err)
	}
	if len(sets) == 0 { // the store has no tenant yet
		return state.RunPage{}, nil
	}
	var page state.RunPage
	r, looked := &reader{store: s, most: f.Bytes}, 0
	want := limit + 1 // the number of runs to look at next
	for rest := max(listExamined, limit+1); ; {
		found, err := s.newest(ctx, sets, bottom, top, min(want, rest), r)
		if err != nil {
			return state.RunPage{}, fmt.Errorf("list runs: %w", err)
		}
		ids := found.ids[:min(len(found.ids), rest)]
		sets, rest = sets[found.set:found.set+1], rest-len(ids)
		for len(ids) > 0 {
			n, runs, err := r.read(ctx, ids[:min(len(ids), listPage, want)])
			if err != nil {
				return state.RunPage{}, err
			}
			if n == 0 {
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
			top, ids, looked = ids[n-1], ids[n:], looked+n
			if want = limit + 1 - len(page.Runs); looked > limit {
				want = max(want, looked) // the filter rejects runs: double what it looks at
			}
		}
		if rest == 0 {
			page.Next = top
			return page, nil
		}
		if !found.more {
			return page, nil
		}
	}
}

// found are some of the newest runs of a set of lists.
type found struct {
	set  int
	ids  []string
	more bool // the set has more
}

// newest returns about n of the newest runs of the set of lists that has the fewest runs, in one round trip. Some
// shards show which set that is: a wrong choice costs little if sets differ little.
func (s *Store) newest(ctx context.Context, sets [][]list, bottom, top string, n int, r *reader) (found, error) {
	if s.oneNode && len(sets[0]) <= scriptLists {
		return s.newestByScript(ctx, sets, bottom, top, min(n, listPage), r)
	}
	pipe := s.rdb.Pipeline()
	counts, cmds := make([][]*redis.IntCmd, len(sets)), make([][]*redis.StringSliceCmd, len(sets))
	// The runs are spread over the lists by chance: a list that has more of the newest n than part cuts the
	// page short, and costs another round trip.
	part := func(set []list) int64 {
		mean := float64(n) / float64(len(set)*len(s.keys.lists))
		return int64(4 + 2*mean + 3*math.Sqrt(mean))
	}
	for i, set := range sets {
		for _, l := range set {
			from, to := l.within(bottom, top)
			for k, key := range s.keys.lists {
				if len(sets) > 1 && k%countedShards == 0 {
					counts[i] = append(counts[i], pipe.ZLexCount(ctx, key, from, to))
				}
				cmds[i] = append(cmds[i], pipe.ZRevRangeByLex(ctx, key, &redis.ZRangeBy{Min: from, Max: to, Count: part(set)}))
			}
		}
	}
	if _, err := pipe.Exec(ctx); err != nil {
		return found{}, err
	}
	f, fewest := found{}, int64(math.MaxInt64)
	for i, counted := range counts {
		runs := int64(0)
		for _, c := range counted {
			runs += c.Val()
		}
		if runs < fewest {
			f.set, fewest = i, runs
		}
	}
	// Below the last run of a list that may have more, another list's run need not be the next.
	known, set := "", sets[f.set]
	for i, c := range cmds[f.set] {
		members, prefix := c.Val(), set[i/len(s.keys.lists)].prefix
		for _, member := range members {
			f.ids = append(f.ids, member[len(prefix):])
		}
		if n := len(members); n > 0 && int64(n) == part(set) {
			known, f.more = max(known, members[n-1][len(prefix):]), true
		}
	}
	slices.Sort(f.ids)
	f.ids = slices.Compact(f.ids)
	first, _ := slices.BinarySearch(f.ids, known)
	f.ids = f.ids[first:]
	slices.Reverse(f.ids)
	return f, nil
}

// newestByScript is newest on one server. It also reads the headers, as far as one call of a script may.
func (s *Store) newestByScript(ctx context.Context, sets [][]list, bottom, top string, n int, r *reader) (f found, err error) {
	args := []any{n, scriptBytes, r.share(n)}
	for i, set := range sets {
		for _, l := range set {
			from, to := l.within(bottom, top)
			args = append(args, i+1, l.prefix, from, to)
		}
	}
	answer, err := listScript.call(ctx, s, s.keys.lists, args...)
	if err != nil {
		return found{}, err
	}
	if f.ids, err = answer.list(listRuns); err != nil {
		return found{}, err
	}
	headers, _ := answer[listHeaders].([]any)
	for _, h := range headers {
		values, err := listOf[storedPlace](h, nil)
		if err != nil {
			return found{}, err
		}
		r.ready = append(r.ready, values)
	}
	f.set, f.more = int(answer.num(listSet))-1, len(f.ids) == n
	return f, nil
}

// reader reads the headers of a page. A header can have several MiB, because it contains the output of its run.
type reader struct {
	store *Store
	most  int                  // bytes of the page; 0 means no bound
	bytes int                  // that it has read
	ready []reply[storedPlace] // of the next runs, without large headers
	full  bool                 // the next header does not fit
}

// share returns the size above which a header is large if n are to be read.
func (r *reader) share(n int) int {
	if r.most <= 0 {
		return largeHeader
	}
	return min(largeHeader, (r.most-r.bytes)/n)
}

// read reads as many of the first ids as the page may still have; at least one if nothing was read, and all if the page
// has no bound. Large headers cost another round trip. read returns the number of these ids, and those of their runs
// that exist and that this build can read.
func (r *reader) read(ctx context.Context, ids []string) (n int, runs []state.State, err error) {
	if r.full {
		return 0, nil, nil
	}
	keys := make([]string, len(ids))
	for i, id := range ids {
		keys[i] = r.store.keys.run(state.RunID(id)).header
	}
	headers := r.ready
	if r.ready = nil; len(headers) == 0 {
		headers, err = smallScript.onEach(ctx, r.store, keys, func(int) []any { return []any{r.share(len(ids))} })
		if err != nil {
			return 0, nil, fmt.Errorf("read runs: %w", err)
		}
	}
	large, pipe := map[int]*redis.SliceCmd{}, r.store.rdb.Pipeline()
	for i, h := range headers {
		size := len(h.str(storedHeader)) + len(h.str(storedFixed))
		v := reply[verdictPlace](h)
		isLarge := v.str(verdictWord) == "large"
		if isLarge {
			size = int(v.num(verdictLength))
		}
		if r.full = r.most > 0 && r.bytes > 0 && r.bytes+size > r.most; r.full {
			break
		}
		if isLarge {
			large[i] = pipe.HMGet(ctx, keys[i], storedFields...)
		}
		n, r.bytes = n+1, r.bytes+size
	}
	if len(large) > 0 {
		if _, err := pipe.Exec(ctx); err != nil {
			return 0, nil, fmt.Errorf("read runs: %w", err)
		}
	}
	for i, c := range large {
		headers[i] = c.Val()
	}
	runs, err = existing(ids[:n], headers[:n])
	return n, runs, err
}

// existing decodes replies with the storedFields of the first ids, without runs that do not exist or that this build
// cannot read.
func existing(ids []string, replies []reply[storedPlace]) (runs []state.State, err error) {
	runs = make([]state.State, 0, len(replies))
	for i, values := range replies {
		st, err := read(state.RunID(ids[i]), values)
		if errors.Is(err, state.ErrNotFound) || errors.Is(err, state.ErrFormat) {
			continue
		}
		if err != nil {
			return nil, err
		}
		runs = append(runs, st)
	}
	return runs, nil
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
