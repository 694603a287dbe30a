package redisstore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// belowPart is the number of children requested from a shard at once.
const belowPart = 64

// listBelow is List for the children of several runs. For each page it reads the ids of all these children from the
// index of every shard, belowPart at a time, and skips most children of other parents in between. Then it reads the
// runs of the page, and examines at most as many as List does.
func (s *Store) listBelow(ctx context.Context, f state.Filter, limit int) (state.RunPage, error) {
	ids, err := s.below(ctx, f)
	if err != nil {
		return state.RunPage{}, fmt.Errorf("list runs: %w", err)
	}
	var page state.RunPage
	if most := max(listExamined, limit+1); len(ids) > most {
		ids = ids[:most]
		page.Next = ids[most-1]
	}
	top, r := "", &reader{store: s, most: f.Bytes}
	for len(ids) > 0 {
		n, runs, err := r.read(ctx, ids[:min(len(ids), listPage)])
		if err != nil {
			return state.RunPage{}, err
		}
		if n == 0 {
			page.Next = top
			return page, nil
		}
		top, ids = ids[n-1], ids[n:]
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
	}
	return page, nil
}

// below returns the children of the parents in a filter, newest first.
func (s *Store) below(ctx context.Context, f state.Filter) (ids []string, err error) {
	parents := slices.Clone(f.Parents)
	slices.Sort(parents)
	tenants := []string{f.Tenant}
	if f.Tenant == "" {
		if tenants, err = s.firsts(ctx, s.keys.lists); err != nil {
			return nil, err
		}
	}
	for _, tenant := range tenants {
		found, err := s.belowOf(ctx, tenant, slices.Compact(parents))
		if err != nil {
			return nil, err
		}
		ids = append(ids, found...)
	}
	slices.Sort(ids)
	ids = slices.Compact(ids)
	if f.Cursor != "" {
		at, _ := slices.BinarySearch(ids, f.Cursor)
		ids = ids[:at]
	}
	slices.Reverse(ids)
	return ids, nil
}

// belowOf returns the children of some parents in a tenant, in no order; parents is sorted. In the
// index of a shard the children lie between those of the first parent and those of the last; belowOf
// skips the children of other parents there.
func (s *Store) belowOf(ctx context.Context, tenant string, parents []state.RunID) (ids []string, err error) {
	prefix := tenant + "\x00" + nameParent
	end := "(" + prefix + string(parents[len(parents)-1]) + "\x01"
	from := map[string]string{} // by shard that may have more
	for _, key := range s.keys.lists {
		from[key] = "[" + prefix + string(parents[0]) + "\x00"
	}
	for len(from) > 0 {
		pipe := s.rdb.Pipeline()
		cmds := map[string]*redis.StringSliceCmd{}
		for key, at := range from {
			cmds[key] = pipe.ZRangeByLex(ctx, key, &redis.ZRangeBy{Min: at, Max: end, Count: belowPart})
		}
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
		for key, c := range cmds {
			last, next, asked := "", 0, false
			for _, member := range c.Val() {
				parent, id, _ := strings.Cut(strings.TrimPrefix(member, prefix), "\x00")
				last = member
				if next, asked = slices.BinarySearch(parents, state.RunID(parent)); asked {
					ids = append(ids, id)
				}
			}
			switch {
			case len(c.Val()) < belowPart || next == len(parents):
				delete(from, key)
			case asked:
				from[key] = "(" + last
			default:
				from[key] = "[" + prefix + string(parents[next]) + "\x00"
			}
		}
	}
	return ids, nil
}
