package explore

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// patience is the time that a run may take after the last fault.
const patience = 10 * time.Minute

// longest is the maximum number of steps of an execution.
const longest = 2000

// Bound is the maximum number of faults and of departures from the default order in an execution. Actions of
// people at their own time cost nothing.
type Bound struct{ Faults, Switches int }

func (b Bound) within(o Bound) bool { return b.Faults <= o.Faults && b.Switches <= o.Switches }

func (b Bound) less(o Bound) (Bound, bool) {
	left := Bound{b.Faults - o.Faults, b.Switches - o.Switches}
	return left, left.Faults >= 0 && left.Switches >= 0
}

// option is one way to continue.
type option struct {
	name  string
	cost  Bound
	fault outcome
	do    func()
}

// node is one choice of an execution and those before it.
type node struct {
	before *node
	option int
	depth  int
	saw    uint64 // hash of the options and the calls at that point
}

// list returns the choices up to a node, in order.
func (n *node) list() []*node {
	if n == nil {
		return nil
	}
	list := make([]*node, n.depth)
	for ; n != nil; n = n.before {
		list[n.depth-1] = n
	}
	return list
}

// execution is a deployment in progress.
type execution struct {
	*deployment

	prefix []*node
	at     *node // the last choice
	left   Bound
	decide func(x *execution, options []option) int // beyond the prefix; -1: stop

	current *process
	idle    bool // no process had anything to do since the last step
	quiet   bool // no choice is made
	last    time.Time
	copies  []*memstore.Snapshot
	sums    []uint64
	trace   []string
	saw     uint64 // hash at the choice that comes next
	cut     bool
	steps   int
}

var errMoved = errors.New("the same choices lead to something else")

// run executes to the end, in a bubble.
func (x *execution) run() error {
	defer x.close()
	x.quiet = true
	if err := x.start(); err != nil {
		return err
	}
	for end := time.Now().Add(warm); time.Now().Before(end); {
		if err := x.next(end); err != nil {
			return err
		}
	}
	x.quiet = false
	submit, cancel := (*person).submit, (*person).cancel
	if x.sc.Bus {
		submit, cancel = (*person).submitOverBus, (*person).cancelOverBus
	}
	x.wants("user", submit)
	for _, p := range []struct {
		some bool
		name string
		do   func(*person)
	}{{x.sc.Pick, "picker", (*person).pick}, {x.sc.Cancel, "canceller", cancel}, {x.sc.Remark, "speaker", (*person).remarks}, {x.sc.Interrupt, "interrupter", (*person).interrupts}, {x.sc.Withdraw, "withdrawer", (*person).withdraws}, {x.sc.Delete, "remover", (*person).remove}, {x.sc.Fork, "forker", (*person).forks}, {x.sc.Twice, "second remover", (*person).remove}} {
		if p.some {
			x.wants(p.name, p.do)
		}
	}
	x.last = time.Now()
	for !x.cut && len(x.violations) == 0 {
		if ended, err := x.ended(); ended || err != nil {
			return err
		}
		if err := x.next(x.last.Add(patience)); err != nil {
			return err
		}
	}
	if x.cut {
		return nil
	}
	return x.check()
}

// ended reports whether nothing more can happen.
func (x *execution) ended() (bool, error) {
	synctest.Wait()
	x.mu.Lock()
	defer x.mu.Unlock()
	if time.Since(x.last) >= patience {
		return true, fmt.Errorf("I2: it has not ended %s after the last choice; %d messages are left", patience, x.unread())
	}
	if x.users > x.undecided() || !x.idle || x.unread() > 0 || len(x.intake) > 0 || !x.restart.IsZero() || !x.store.Snapshot().Due().IsZero() {
		return false, nil
	}
	for _, c := range x.pending {
		if !c.will && c.ready == nil {
			return false, nil
		}
	}
	return true, x.check()
}

// undecided counts the people who wait for their moment.
func (x *execution) undecided() (n int) {
	for _, c := range x.pending {
		n += count(c.person && (c.will || !c.ready()))
	}
	return n
}

// next makes one step, or lets time pass until a process can make one, at the latest until end.
func (x *execution) next(end time.Time) error {
	synctest.Wait()
	x.mu.Lock()
	select {
	case <-x.news:
	default:
	}
	if !x.restart.IsZero() && !time.Now().Before(x.restart) {
		x.restart = time.Time{}
		x.mu.Unlock()
		return x.comeBack()
	}
	x.checkReturned()
	free, waits := x.enabled()
	for _, c := range free {
		if c.quiet != nil && c.quiet() || x.quiet {
			x.proceed(c, done)
			x.mu.Unlock()
			return nil
		}
	}
	options := x.options(free)
	forced := len(free) > 0 && !free[0].will
	if len(options) == 0 || x.idle && !forced {
		idle := x.idle
		x.idle = true
		x.mu.Unlock()
		if !idle {
			return nil // it may have ended
		}
		return x.pass(end, waits)
	}
	if !forced { // people may act before time passes
		options = append([]option{{name: "time passes", do: func() { x.idle = true }}}, options...)
	}
	chosen := 0
	if len(options) > 1 {
		var err error
		if chosen, err = x.choose(options); err != nil || chosen < 0 {
			x.mu.Unlock()
			return err
		}
	}
	o := options[chosen]
	x.switches += o.cost.Switches
	if x.step++; o.fault != "" {
		x.faults[o.fault]++
	}
	x.steps++
	x.trace = append(x.trace, fmt.Sprintf("%8s %s", time.Since(x.last).Round(time.Millisecond), o.name))
	x.idle = false
	o.do()
	x.mu.Unlock()
	if x.steps > longest {
		return fmt.Errorf("I2: %d steps, and no end", longest)
	}
	return nil
}

// pass lets time pass until there is an event, or a call may continue.
func (x *execution) pass(end time.Time, waits time.Time) error {
	if !waits.IsZero() && waits.Before(end) {
		end = waits
	}
	t := time.NewTimer(time.Until(end))
	defer t.Stop()
	select {
	case <-x.news:
	case <-t.C:
	}
	return nil
}

// enabled returns the calls that may continue, in the default order, and the time at which another
// may.
func (x *execution) enabled() (free []*call, waits time.Time) {
	now := time.Now()
	later := func(t time.Time) {
		if t.After(now) && (waits.IsZero() || t.Before(waits)) {
			waits = t
		}
	}
	for _, c := range x.pending {
		if c.p.dead {
			continue
		}
		later(c.p.sleeps)
		later(c.not)
		if c.p.awake() && !now.Before(c.not) && (c.ready == nil || c.ready()) {
			free = append(free, c)
		}
	}
	for _, m := range x.queue.messages {
		later(m.from)
	}
	for _, m := range x.intake {
		later(m.from)
	}
	later(x.restart)
	slices.SortStableFunc(free, x.order)
	return free, waits
}

// order is the default: the process that continued last continues, with its latest call; people
// come after processes.
func (x *execution) order(a, b *call) int {
	rank := func(c *call) int {
		switch {
		case c.will:
			return 2
		case c.p == x.current:
			return 0
		default:
			return 1
		}
	}
	if d := rank(a) - rank(b); d != 0 {
		return d
	}
	if a.p != b.p {
		return a.p.index - b.p.index
	}
	if a.since != b.since {
		return b.since - a.since
	}
	return strings.Compare(a.name, b.name)
}

// options returns every way to continue, the default first.
func (x *execution) options(free []*call) []option {
	var all []option
	forced := len(free) > 0 && !free[0].will
	for i, c := range free {
		cost := Bound{}
		if i > 0 && !c.will {
			cost.Switches = 1
		}
		if cost.Switches > x.left.Switches {
			continue
		}
		all = append(all, option{name: c.name, cost: cost, do: func() { x.proceed(c, done) }})
		if x.left.Faults == 0 {
			continue
		}
		for _, o := range c.can {
			if slices.Contains(x.sc.Without, o) || !x.sc.mayFail(c.name) || o == asleep && !c.p.worker || o == stopped && c.p.leaves {
				continue
			}
			all = append(all, option{name: c.name + ": " + string(o), cost: Bound{1, cost.Switches}, fault: o, do: func() { x.fail(c, o) }})
		}
	}
	if forced && x.left.Switches > 0 {
		for _, p := range x.processes {
			if !p.dead && !p.awake() && free[0].p != p {
				all = append(all, option{name: p.name + ": wakes up", cost: Bound{0, 1}, do: func() {
					p.sleeps = time.Time{}
					close(p.woken)
				}})
			}
		}
	}
	if forced && x.sc.Unheard && x.left.Faults > 0 && free[0].p.worker {
		for _, p := range x.processes {
			if p.worker && p.awake() && p.unheard.IsZero() {
				all = append(all, option{name: p.name + ": is not heard", cost: Bound{1, 0}, fault: unheardOf, do: func() { p.unheard = time.Now().Add(nap) }})
			}
		}
	}
	if forced && x.sc.Rollback && x.left.Faults > 0 && !x.rolledBack && free[0].p.worker {
		for i, c := range x.copies[:max(0, len(x.copies)-1)] {
			all = append(all, option{name: fmt.Sprintf("store: fall back to copy %d", i), cost: Bound{1, 0}, fault: "rollback", do: func() {
				x.store.Restore(c)
				x.changed()
				x.rolledBack, x.interrupted = true, true
			}})
		}
	}
	return all
}

// fail lets a call end with a fault; the caller holds x.mu.
func (x *execution) fail(c *call, o outcome) {
	x.interrupted = x.interrupted || o != slow && o != stopped && (o != unheard || !c.again)
	x.proceed(c, o)
}

// proceed lets a call continue; the caller holds x.mu.
func (x *execution) proceed(c *call, o outcome) {
	x.current = c.p
	if x.outcome = o; o == vanished && c.answer != nil && slices.Equal(c.can, hearings) {
		x.remove(c)
		return
	}
	switch o {
	case crashBefore:
		x.die(c.p)
		return
	case asleep:
		c.p.sleeps, c.p.woken = time.Now().Add(nap), make(chan struct{})
		return
	case slow:
		c.not = time.Now().Add(nap)
		return
	case stopped:
		c.not, c.p.leaves = time.Now().Add(far), true
		c.p.end()
		x.replace()
		return
	default:
	}
	x.remove(c)
	var a answer
	if o == refused {
		a.err = errCut
	} else {
		a.value, a.err = c.effect()
		x.changed()
		x.copyStore()
	}
	switch o {
	case unheard:
		a = answer{err: errCut}
	case crashAfter:
		x.die(c.p)
		return
	default:
	}
	c.p.hears(c.name, a.value, a.err)
	c.answer <- a
}

// copyStore saves a copy of the store.
func (x *execution) copyStore() {
	if !x.sc.Rollback || x.rolledBack {
		return
	}
	c := x.store.Snapshot()
	s := sum(c)
	if len(x.sums) == 0 || x.sums[len(x.sums)-1] != s {
		x.copies, x.sums = append(x.copies, c), append(x.sums, s)
	}
}

// choose takes the option of the prefix, or lets decide choose beyond it.
func (x *execution) choose(options []option) (int, error) {
	saw := x.sumOf(options)
	x.saw = saw
	var chosen int
	if depth := depthOf(x.at); depth < len(x.prefix) {
		n := x.prefix[depth]
		if n.saw != saw {
			names := make([]string, len(options))
			for i, o := range options {
				names[i] = o.name
			}
			return 0, fmt.Errorf("%w: choice %d is among %q", errMoved, depth, names)
		}
		chosen = n.option
		x.at = n
	} else {
		if chosen = x.decide(x, options); chosen < 0 {
			x.cut = true
			return -1, nil
		}
		x.at = &node{before: x.at, option: chosen, depth: depth + 1, saw: saw}
	}
	left, ok := x.left.less(options[chosen].cost)
	if !ok {
		return 0, fmt.Errorf("%w: there is no room for %s", errMoved, options[chosen].name)
	}
	x.left = left
	if x.at.option != 0 {
		x.last = time.Now()
	}
	return chosen, nil
}

// sumOf returns a hash of options and of the state next to them: all calls, and the time.
func (x *execution) sumOf(options []option) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	for _, o := range options {
		fmt.Fprintln(&h, o.name, o.cost)
	}
	calls := uint64(0)
	for _, c := range x.pending {
		calls += maphash.String(seed, c.name)
	}
	fmt.Fprint(&h, calls, time.Now().UnixNano())
	return h.Sum64()
}

func depthOf(n *node) int {
	if n == nil {
		return 0
	}
	return n.depth
}

// key identifies where an execution stands.
func (x *execution) key() uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	_ = x.store.Snapshot().Encode(&h)
	now := time.Now()
	fmt.Fprint(&h, now.UnixNano(), x.idle, x.restart)
	if x.current != nil {
		fmt.Fprint(&h, x.current.index)
	}
	for _, p := range x.processes {
		if p.dead {
			fmt.Fprint(&h, "dead")
			continue
		}
		_ = binary.Write(&h, binary.LittleEndian, [2]uint64{p.told, p.overheard})
		fmt.Fprint(&h, p.sleeps.After(now), p.sleeps, p.leaves)
		if p.unheard.After(now) {
			fmt.Fprint(&h, p.unheard)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(x.alive)) {
		fmt.Fprint(&h, x.alive[name])
	}
	list := slices.Clone(x.pending)
	slices.SortFunc(list, func(a, b *call) int { return cmp.Or(a.since-b.since, strings.Compare(a.name, b.name)) })
	for _, c := range list {
		fmt.Fprint(&h, c.name, c.not)
	}
	for _, m := range x.queue.messages {
		fmt.Fprint(&h, m.n, m.turn, m.delivered, m.from)
	}
	for _, m := range x.intake {
		fmt.Fprint(&h, m.n, m.abort, m.delivered, m.from)
	}
	ids := uint64(0)
	for id := range x.queue.published {
		ids += maphash.String(seed, id)
	}
	_ = binary.Write(&h, binary.LittleEndian, ids)
	x.outside.key(&h)
	if x.sc.Rollback && !x.rolledBack {
		fmt.Fprint(&h, x.sums)
	}
	return h.Sum64()
}
