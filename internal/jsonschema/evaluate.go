package jsonschema

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/keys"
)

// steps is the remaining budget of a check. The library that reads schemas can check values too, but its check cannot
// be stopped, and its error about a wrong value may be many times as long as the value. Therefore this package checks
// values itself, and counts steps for each part that it applies. The count for a schema and a value is the same on
// every machine, whereas a time limit would decide differently on a busy one.
type steps struct {
	left  int
	most  int
	quiet int  // number of enclosing parts that only need to know whether the value matches
	seen  bool // some part depends on what other parts have evaluated
}

// fault is the reason why a value does not match.
type fault struct {
	way   string // path to the part of the value; empty for the value as a whole
	text  string
	place string // path to the part of the schema
	spent bool   // no steps were left, so it is not known whether the value matches
}

func (f *fault) Error() string {
	return fmt.Sprintf("%s: %s (schema: #%s)", cmp.Or(f.way, "the value"), f.text, keys.Clip(f.place))
}

// InMember returns the name of the top-level member that err, an error of Validate, is about, and err as an error about
// the value of that member. It returns "" and err if err is about the value as a whole, or is not of Validate. The name
// of an element of a list is its index. The name may be wrong if it contains a slash, or if the path to the fault has
// more than maxWay bytes: compare it with the known names.
func InMember(err error) (name string, within error) {
	f, ok := errors.AsType[*fault](err)
	if !ok || f.way == "" {
		return "", err
	}
	inner := *f
	name, rest, deeper := strings.Cut(f.way[1:], "/")
	if inner.way = ""; deeper {
		inner.way = "/" + rest
	}
	return name, &inner
}

// mismatch is the fault for callers that only need to know that there is one.
var mismatch = &fault{}

const (
	maxWay     = 200 // bytes of a path to a part of a value that an error shows
	maxReasons = 3   // parts of an anyOf whose errors are shown
	faultSteps = 8   // steps for making an error with a text
	nameSteps  = 16  // member names that are looked up in one step
)

func (s *steps) fault(n *part, format string, args ...any) *fault {
	if s.quiet > 0 {
		return mismatch
	}
	s.left -= faultSteps
	return &fault{text: fmt.Sprintf(format, args...), place: n.place}
}

// in returns the fault of a part as a fault of the part that contains it under name.
func (f *fault) in(name string) *fault {
	if f != nil && f != mismatch && len(f.way) < maxWay {
		f.way = "/" + keys.Clip(name) + f.way
	}
	return f
}

// take subtracts n steps, and reports whether that many were left.
func (s *steps) take(n int) bool {
	s.left -= n
	return s.left >= 0
}

func (s *steps) spent(n *part) *fault {
	const remedy = "simplify the schema, so that fewer of its parts (allOf, anyOf, $ref, pattern) apply to one value"
	text := fmt.Sprintf("its check was stopped after %d steps, the maximum: send a smaller value, or %s", s.most, remedy)
	if s.most < maxSteps {
		text = fmt.Sprintf("its check was stopped after %d steps, which earlier checks had left of %d: send fewer or smaller values at once, or %s", s.most, maxTurnSteps, remedy)
	}
	return &fault{spent: true, place: n.place, text: text}
}

// noted records the members and elements that the parts applying to a value have evaluated.
type noted struct {
	all   bool // all members or elements
	end   int  // the elements before this index
	items map[int]bool
	names map[string]bool
}

func (n *noted) name(name string) {
	if n.names == nil {
		n.names = map[string]bool{}
	}
	n.names[name] = true
}

// merge adds to to what another part has evaluated.
func (s *steps) merge(to, from *noted) {
	if to == nil || !s.seen {
		return
	}
	to.all, to.end = to.all || from.all, max(to.end, from.end)
	s.left -= len(from.items) + len(from.names)
	if s.left < 0 {
		return // the next part reports it
	}
	if to.items == nil {
		to.items = from.items
	} else {
		maps.Copy(to.items, from.items)
	}
	if to.names == nil {
		to.names = from.names
	} else {
		maps.Copy(to.names, from.names)
	}
}

// matches reports whether a value matches a part, for callers that do not need the reason. The fault is not nil only if
// no steps are left.
func (s *steps) matches(n *part, v any, upper *noted) (bool, *fault) {
	s.quiet++
	f := s.apply(n, v, upper)
	s.quiet--
	if f != nil && f.spent {
		return false, f
	}
	return f == nil, nil
}

// apply returns the reason why a value does not match a part of a schema, or nil.
func (s *steps) apply(n *part, v any, upper *noted) *fault {
	if !s.take(1) {
		return s.spent(n)
	}
	var own noted
	if n.ref != nil {
		if f := s.apply(n.ref, v, &own); f != nil {
			return f
		}
		if n.only {
			return nil
		}
	}
	if !n.anyType && n.types&typeOf(v) == 0 {
		if n.wanted == "" {
			return s.fault(n, "it is %s, and the schema allows no value here: remove it", show(v))
		}
		return s.fault(n, "it is %s: send a value of type %s", show(v), n.wanted)
	}
	if f := s.constants(n, v); f != nil {
		return f
	}
	switch v := v.(type) {
	case float64:
		if f := s.number(n, v); f != nil {
			return f
		}
	case string:
		if f := s.text(n, v); f != nil {
			return f
		}
	}
	if n.logic {
		if f := s.logical(n, v, &own); f != nil {
			return f
		}
	}
	var f *fault
	switch v := v.(type) {
	case []any:
		f = s.list(n, v, &own)
	case map[string]any:
		f = s.object(n, v, &own)
	}
	if f == nil {
		s.merge(upper, &own)
	}
	return f
}

func (s *steps) constants(n *part, v any) *fault {
	if n.constant != nil && !s.equal(*n.constant, v) {
		if s.left < 0 {
			return s.spent(n)
		}
		return s.fault(n, "it is %s: send %s", show(v), show(*n.constant))
	}
	if !n.choice {
		return nil
	}
	switch v.(type) {
	case []any, map[string]any:
		for _, e := range n.enum {
			if s.equal(e, v) {
				return nil
			}
			if s.left < 0 {
				return s.spent(n)
			}
		}
	default:
		if n.scalars[v] {
			return nil
		}
	}
	var list string
	for i, e := range n.enum {
		if s.quiet > 0 || len(list) > keys.MaxClip {
			list += ", …"
			break
		}
		if i > 0 {
			list += ", "
		}
		list += show(e)
	}
	if list == "" {
		return s.fault(n, "it is %s, and the schema allows no value here: remove it", show(v))
	}
	return s.fault(n, "it is %s: send one of %s", show(v), list)
}

func (s *steps) number(n *part, v float64) *fault {
	switch {
	case n.multiple != nil && fraction(v / *n.multiple):
		return s.fault(n, "%v is not a multiple of %v: send a multiple of it", v, *n.multiple)
	case n.min != nil && v < *n.min:
		return s.fault(n, "%v is below the minimum of %v: send a larger number", v, *n.min)
	case n.max != nil && v > *n.max:
		return s.fault(n, "%v is above the maximum of %v: send a smaller number", v, *n.max)
	case n.above != nil && v <= *n.above:
		return s.fault(n, "%v is not more than %v: send a larger number", v, *n.above)
	case n.below != nil && v >= *n.below:
		return s.fault(n, "%v is not less than %v: send a smaller number", v, *n.below)
	}
	return nil
}

func fraction(v float64) bool {
	_, rest := math.Modf(v)
	return rest != 0
}

func (s *steps) text(n *part, v string) *fault {
	if n.minText == nil && n.maxText == nil && n.pattern == nil {
		return nil
	}
	if !s.take(len(v)/textSteps + n.patternSize*len(v)/patternSteps) {
		return s.spent(n)
	}
	count := utf8.RuneCountInString(v)
	switch {
	case n.minText != nil && count < *n.minText:
		return s.fault(n, "it has %d characters, at least %d are required: send a longer text", count, *n.minText)
	case n.maxText != nil && count > *n.maxText:
		return s.fault(n, "it has %d characters, at most %d are allowed: send a shorter text", count, *n.maxText)
	case n.pattern != nil && !n.pattern.MatchString(v):
		return s.fault(n, "%s does not match %q: send a text that matches", show(v), keys.Clip(n.pattern.String()))
	}
	return nil
}

// logical applies the keywords that combine schemas for the same value, such as anyOf.
func (s *steps) logical(n *part, v any, own *noted) *fault {
	for _, inner := range n.all {
		if f := s.apply(inner, v, own); f != nil {
			return f
		}
	}
	if n.anyOf != nil {
		if f := s.anyOf(n, v, own); f != nil {
			return f
		}
	}
	if n.oneOf != nil {
		which := -1
		for i, inner := range n.oneOf {
			is, f := s.matches(inner, v, own)
			switch {
			case f != nil:
				return f
			case is && which >= 0:
				return s.fault(n, "it matches both %d and %d of oneOf (counted from 0): send a value that matches only one", which, i)
			case is:
				which = i
			}
		}
		if which < 0 {
			return s.fault(n, "%s matches none of the %d schemas of oneOf: send a value that matches one", show(v), len(n.oneOf))
		}
	}
	if n.not != nil {
		switch is, f := s.matches(n.not, v, nil); {
		case f != nil:
			return f
		case is:
			return s.fault(n, "%s matches the schema of not: send a value that does not match it", show(v))
		}
	}
	if n.when == nil {
		return nil
	}
	is, f := s.matches(n.when, v, own)
	if f != nil {
		return f
	}
	inner := n.otherwise
	if is {
		inner = n.then
	}
	if inner == nil {
		return nil
	}
	return s.apply(inner, v, own)
}

func (s *steps) anyOf(n *part, v any, own *noted) *fault {
	matched := false
	var reasons string
	for i, inner := range n.anyOf {
		if i >= maxReasons {
			s.quiet++
		}
		f := s.apply(inner, v, own)
		if i >= maxReasons {
			s.quiet--
		}
		switch {
		case f == nil:
			matched = true
		case f.spent:
			return f
		case f != mismatch:
			reasons += "; " + keys.Clip(f.Error())
		}
		if matched && !s.seen {
			return nil
		}
	}
	if matched {
		return nil
	}
	return s.fault(n, "%s matches none of the %d schemas of anyOf: send a value that matches one%s", show(v), len(n.anyOf), reasons)
}

func (s *steps) list(n *part, v []any, own *noted) *fault {
	for i, inner := range n.prefix {
		if i >= len(v) {
			break
		}
		if f := s.apply(inner, v[i], nil); f != nil {
			return f.in(strconv.Itoa(i))
		}
	}
	own.end = max(own.end, min(len(n.prefix), len(v)))
	if n.items != nil {
		for i := len(n.prefix); i < len(v); i++ {
			if f := s.apply(n.items, v[i], nil); f != nil {
				return f.in(strconv.Itoa(i))
			}
		}
		own.all = true
	}
	if n.contains != nil {
		if f := s.contains(n, v, own); f != nil {
			return f
		}
	}
	switch {
	case n.minItems != nil && len(v) < *n.minItems:
		return s.fault(n, "it has %d items, at least %d are required: send more", len(v), *n.minItems)
	case n.maxItems != nil && len(v) > *n.maxItems:
		return s.fault(n, "it has %d items, at most %d are allowed: send fewer", len(v), *n.maxItems)
	}
	if n.unique {
		if f := s.unique(n, v); f != nil {
			return f
		}
	}
	if n.otherItems == nil || own.all {
		return nil
	}
	for i := own.end; i < len(v); i++ {
		if own.items[i] {
			continue
		}
		if f := s.apply(n.otherItems, v[i], nil); f != nil {
			return f.in(strconv.Itoa(i))
		}
	}
	own.all = true
	return nil
}

func (s *steps) contains(n *part, v []any, own *noted) *fault {
	count := 0
	for i, e := range v {
		is, f := s.matches(n.contains, e, nil)
		if f != nil {
			return f
		}
		if !is {
			continue
		}
		count++
		if s.seen {
			if own.items == nil {
				own.items = map[int]bool{}
			}
			own.items[i] = true
		}
	}
	least := 1
	if n.minContains != nil {
		least = *n.minContains
	}
	switch {
	case count < least:
		return s.fault(n, "%d of its items match the schema of contains, at least %d are required: send more of them", count, least)
	case n.maxContains != nil && count > *n.maxContains:
		return s.fault(n, "%d of its items match the schema of contains, at most %d are allowed: send fewer of them", count, *n.maxContains)
	}
	return nil
}

func (s *steps) object(n *part, v map[string]any, own *noted) *fault {
	if !s.take(len(n.names)/nameSteps + len(n.required)) {
		return s.spent(n)
	}
	var known map[string]bool // the members that this part has evaluated; nil if no keyword needs them
	if s.seen {
		known = map[string]bool{}
	}
	for _, name := range n.names {
		e, there := v[name]
		if !there {
			continue
		}
		if f := s.apply(n.properties[name], e, nil); f != nil {
			return f.in(name)
		}
		if known != nil {
			known[name] = true
		}
	}
	if n.everyName() {
		if f := s.members(n, v, known); f != nil {
			return f
		}
	}
	if known != nil && !s.take(len(known)) {
		return s.spent(n)
	}
	for name := range known {
		own.name(name)
	}
	if f := s.presence(n, v, own); f != nil {
		return f
	}
	if n.otherMembers == nil || own.all {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if own.names[name] {
			continue
		}
		if f := s.apply(n.otherMembers, v[name], nil); f != nil {
			return f.in(name)
		}
	}
	own.all = true
	return nil
}

// members applies the keywords for members whose names are not listed.
func (s *steps) members(n *part, v map[string]any, known map[string]bool) *fault {
	if !s.take(len(v)) {
		return s.spent(n)
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		_, listed := n.properties[name]
		for _, p := range n.patterns {
			if !s.take(1 + p.size*len(name)/patternSteps) {
				return s.spent(n)
			}
			if !p.name.MatchString(name) {
				continue
			}
			if f := s.apply(p.part, v[name], nil); f != nil {
				return f.in(name)
			}
			listed = true
		}
		if n.additional != nil && !listed {
			if n.closed {
				return s.fault(n, "it has a member %s, which is not among those of the schema: remove it", show(name))
			}
			if f := s.apply(n.additional, v[name], nil); f != nil {
				return f.in(name)
			}
			listed = true
		}
		if known != nil && listed {
			known[name] = true
		}
	}
	if n.name == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(v)) {
		if f := s.apply(n.name, name, nil); f != nil {
			return f.in(name)
		}
	}
	return nil
}

// presence checks the number of members, and which are required.
func (s *steps) presence(n *part, v map[string]any, own *noted) *fault {
	switch {
	case n.minMembers != nil && len(v) < *n.minMembers:
		return s.fault(n, "it has %d members, at least %d are required: send more", len(v), *n.minMembers)
	case n.maxMembers != nil && len(v) > *n.maxMembers:
		return s.fault(n, "it has %d members, at most %d are allowed: send fewer", len(v), *n.maxMembers)
	}
	for _, name := range n.required {
		if _, there := v[name]; !there {
			return s.fault(n, "the member %s is missing: send it", show(name))
		}
	}
	for _, d := range n.dependent {
		if _, there := v[d.name]; !there {
			continue
		}
		if !s.take(len(d.required)) {
			return s.spent(n)
		}
		for _, name := range d.required {
			if _, there := v[name]; !there {
				return s.fault(n, "the member %s is missing, which %s requires: send it", show(name), show(d.name))
			}
		}
		if d.part != nil {
			if f := s.apply(d.part, v, own); f != nil {
				return f
			}
		}
	}
	return nil
}
