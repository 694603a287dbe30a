package jsonschema

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"slices"
	"strconv"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

// unique returns a fault if two items are equal.
func (s *steps) unique(n *part, v []any) *fault {
	if len(v) < 2 {
		return nil
	}
	known := make(map[uint64]int, min(len(v), max(0, s.left)))
	seed := maphash.MakeSeed()
	for i, e := range v {
		var h maphash.Hash
		h.SetSeed(seed)
		if s.hash(&h, e); s.left < 0 {
			return s.spent(n)
		}
		if j, there := known[h.Sum64()]; there && s.equal(v[j], e) {
			return s.fault(n, "its items %d and %d are equal: send each item once", j, i)
		}
		known[h.Sum64()] = i
	}
	return nil
}

// hash writes a value to h so that different values write different bytes, and equal values the same.
func (s *steps) hash(h *maphash.Hash, v any) {
	number := func(kind byte, n uint64) {
		var b [9]byte
		b[0] = kind
		binary.BigEndian.PutUint64(b[1:], n)
		_, _ = h.Write(b[:])
	}
	if !s.take(1) {
		return
	}
	switch v := v.(type) {
	case nil:
		number('0', 0)
	case bool:
		number('b', map[bool]uint64{true: 1}[v])
	case float64:
		number('n', math.Float64bits(v+0)) // -0 is 0
	case string:
		s.left -= len(v) / textSteps
		number('s', uint64(len(v)))
		_, _ = h.WriteString(v)
	case []any:
		number('l', uint64(len(v)))
		for _, e := range v {
			s.hash(h, e)
		}
	case map[string]any:
		number('o', uint64(len(v)))
		s.left -= len(v)
		for _, name := range slices.Sorted(maps.Keys(v)) {
			s.hash(h, name)
			s.hash(h, v[name])
		}
	}
}

// equal reports whether two values are equal. The result is only valid if steps are left afterwards.
func (s *steps) equal(a, b any) bool {
	if !s.take(1) {
		return false
	}
	switch a := a.(type) {
	case []any:
		b, ok := b.([]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for i := range a {
			if !s.equal(a[i], b[i]) {
				return false
			}
		}
		return true
	case map[string]any:
		b, ok := b.(map[string]any)
		if !ok || len(a) != len(b) {
			return false
		}
		for name, e := range a {
			other, there := b[name]
			if !there || !s.equal(e, other) {
				return false
			}
		}
		return true
	case string:
		s.left -= len(a) / textSteps
		b, ok := b.(string)
		return ok && a == b
	}
	switch b.(type) {
	case []any, map[string]any:
		return false
	}
	return a == b
}

// show returns a short text of a value for errors, however large the value is.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		return strconv.Quote(keys.Clip(v))
	case []any:
		return fmt.Sprintf("a list of %d", len(v))
	case map[string]any:
		return fmt.Sprintf("an object of %d", len(v))
	}
	return fmt.Sprint(v)
}
