package simulation

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/invariant"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Report is the result of a simulation.
type Report struct {
	Seed     uint64
	Took     time.Duration // of simulated time
	Runs     int           // including children
	Turns    int64
	Effects  int
	Faults   map[string]int
	Statuses map[state.Status]int
	Reasons  map[state.Reason]int
	Trace    []string

	// Violations are the violations found.
	Violations []string
}

// String returns the report as text.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "seed %d: %s, %d runs, %d turns, %d effects", r.Seed, r.Took.Round(time.Second), r.Runs, r.Turns, r.Effects)
	for _, k := range slices.Sorted(maps.Keys(r.Faults)) {
		fmt.Fprintf(&b, ", %s %d", k, r.Faults[k])
	}
	return b.String()
}

// About returns the lines of the trace about the runs that the violations name, and those about all
// runs.
func (r Report) About() []string {
	named := regexp.MustCompile(`run_[0-9A-Z]{26}`)
	guilty := map[string]bool{}
	for _, v := range r.Violations {
		for _, id := range named.FindAllString(v, -1) {
			guilty[id] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(r.Trace), func(line string) bool {
		ids := named.FindAllString(line, -1)
		return len(ids) > 0 && !slices.ContainsFunc(ids, func(id string) bool { return guilty[id] })
	})
}

// Run simulates a deployment until all users are done or out of patience. It must be called in a bubble of
// testing/synctest.
func Run(cfg Config) (Report, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 3
	}
	if cfg.Users == 0 {
		cfg.Users = 40
	}
	if cfg.Batches == 0 {
		cfg.Batches = 4
	}
	if cfg.Strike == 0 {
		cfg.Strike = 30 * time.Minute
	}
	s := &Deployment{
		cfg: cfg, outside: newOutside(), began: time.Now(), workers: make([]*process, cfg.Workers),
		counts: map[fault]int{}, events: map[state.RunID]int64{}, world: newWorld(), unwanted: map[state.RunID]bool{}, clients: map[string]*api.Client{}, batched: map[string][]string{},
	}
	s.http = &http.Client{Transport: &http.Transport{DialContext: s.dial, DisableKeepAlives: true}}
	for _, tenant := range tenants {
		s.clients[tenant] = api.NewWithHTTP("http://gateway", s.http, api.WithTenant(tenant))
	}
	err := s.start()
	if err == nil {
		s.live()
	}
	s.close()
	if err != nil {
		return Report{}, err
	}
	b, err := s.cfg.Connect()
	if err != nil {
		return Report{}, err
	}
	defer b.Close()
	return s.report(b), nil
}

func (s *Deployment) start() error {
	if err := s.startGateway(); err != nil {
		return err
	}
	for _, tenant := range tenants {
		if err := s.insist(func(ctx context.Context) error {
			_, err := s.clients[tenant].PutTenant(ctx, tenant, api.TenantSettings{})
			return err
		}); err != nil {
			return fmt.Errorf("put tenant %s: %w", tenant, err)
		}
		for _, name := range slices.Sorted(maps.Keys(agents)) {
			if err := s.insist(func(ctx context.Context) error {
				_, err := s.clients[tenant].PutAgent(ctx, name, []byte(agents[name]))
				return err
			}); err != nil {
				return fmt.Errorf("put agent %s: %w", name, err)
			}
		}
	}
	for i := range s.workers {
		if err := s.startWorker(i); err != nil {
			return err
		}
	}
	// The duration of a start depends on which goroutine drew a delay first. Later events are at the same
	// moments for the same seed.
	time.Sleep(started - time.Since(s.began)%started)
	return nil
}

// insist repeats a request until it is accepted or refused.
func (s *Deployment) insist(do func(context.Context) error) error {
	for try := 0; ; try++ {
		err := do(context.Background())
		if err == nil || refused(err) || try == 100 {
			return err
		}
		time.Sleep(time.Second)
	}
}

// tenants have the same agents. Users belong to one of them.
var tenants = []string{state.DefaultTenant, "acme"}

// evaluators is the number of evaluations. Each polls a few times a second.
const evaluators = 1

// started is the round time at which users and faults begin.
const started = time.Minute

// live runs users and faults, and returns when all are done.
func (s *Deployment) live() {
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.Strike+patience)
	defer cancel()
	names := slices.Sorted(maps.Keys(agents))
	done := make(chan error)
	for i := range s.cfg.Users {
		name := fmt.Sprintf("user-%d", i)
		d := newDice(s.cfg.Seed, name)
		u := &user{s: s, name: name, dice: d, agent: names[d.n(len(names))], tenant: tenants[d.n(len(tenants))]}
		switch n := d.n(10); {
		case n < 4:
			u.agent = "errand"
		case n < 6:
			u.agent = "watched"
		}
		s.users = append(s.users, u)
		go func() { done <- u.see(ctx) }()
	}
	for i := range s.cfg.Batches {
		name := fmt.Sprintf("batch-%d", i)
		b := &batch{s: s, name: name, dice: newDice(s.cfg.Seed, name)}
		b.agent, b.tenant, b.parallel = "quick", tenants[0], 2
		switch {
		case i%4 == 3: // all at once, so that several runs want the memory of a worker
			b.agent, b.tenant, b.parallel = wordy, tenants[b.dice.n(len(tenants))], batchSize
		case i%4 > 0: // all at once, so that several runs use a breaker
			b.agent, b.tenant, b.parallel = []string{"backed", frail}[b.dice.n(2)], tenants[b.dice.n(len(tenants))], batchSize
		}
		go func() { done <- b.see(ctx) }()
	}
	for i := range evaluators {
		name := fmt.Sprintf("evaluation-%d", i)
		d := newDice(s.cfg.Seed, name)
		e := &evaluator{s: s, name: name, dice: d, agent: []string{"quick", "errand"}[d.n(2)], tenant: tenants[d.n(len(tenants))]}
		go func() { done <- e.see(ctx) }()
	}
	s.strike()
	for range len(s.users) + s.cfg.Batches + evaluators {
		if err := <-done; err != nil {
			s.violate("%v", err)
		}
	}
	time.Sleep(5 * time.Minute) // what is left to finalize
}

// see runs a user from start to end.
func (u *user) see(ctx context.Context) error {
	if err := u.live(ctx); err != nil {
		return err
	}
	// A run that a message continued has more events than the stream at its first
	// end showed.
	for ctx.Err() == nil {
		if err := u.watch(ctx); err == nil || u.s.deleted(u.run) {
			break
		} else if strings.HasPrefix(err.Error(), "I9") {
			return err
		}
		time.Sleep(time.Second)
	}
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("the events of %s do not end: %w", u.run, err)
	}
	for reads := u.dice.chance(0.3); reads && ctx.Err() == nil && !u.s.deleted(u.run); time.Sleep(time.Second) {
		reads = u.reader().read(ctx, u.seen) != nil
	}
	if u.s.deleted(u.run) {
		return nil
	}
	if u.dice.chance(0.2) {
		if err := u.fork(ctx); err != nil {
			return err
		}
	}
	if u.dice.chance(0.4) {
		return u.delete(ctx)
	}
	return nil
}

func (s *Deployment) violate(format string, args ...any) {
	s.note("", "VIOLATION "+format, args...)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gaps = append(s.gaps, fmt.Sprintf(format, args...))
}

func (s *Deployment) fellBack() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rolled
}

// close ends all processes.
func (s *Deployment) close() {
	s.mu.Lock()
	s.over, s.closed = true, true
	s.mu.Unlock()
	time.Sleep(30 * time.Second) // every restart is complete
	s.mu.Lock()
	lives := append(slices.Clone(s.workers), s.gateway)
	s.mu.Unlock()
	for _, p := range lives {
		if p != nil {
			p.crash("at the end")
		}
	}
	s.wg.Wait()
}

// report examines the final state.
func (s *Deployment) report(b Backend) Report {
	in := b.Store
	r := Report{
		Seed: s.cfg.Seed, Took: time.Since(s.began), Effects: len(s.outside.effects), Faults: map[string]int{},
		Statuses: map[state.Status]int{}, Reasons: map[state.Reason]int{}, Trace: s.trace, Violations: s.gaps,
	}
	for k, n := range s.counts {
		r.Faults[string(k)] = n
	}
	bad := func(format string, args ...any) { r.Violations = append(r.Violations, fmt.Sprintf(format, args...)) }
	ctx := context.Background()
	var all []state.State
	for cursor := ""; ; {
		page, err := in.List(ctx, state.Filter{Cursor: cursor, Limit: 100})
		if err != nil {
			bad("list runs: %v", err)
			return r
		}
		all = append(all, page.Runs...)
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	logs := map[state.RunID][]state.Entry{}
	roots := 0
	for _, run := range all {
		log, err := in.Log(ctx, run.ID, 0, 0)
		if err != nil {
			bad("read log of %s: %v", run.ID, err)
			continue
		}
		logs[run.ID] = log
		r.Runs++
		r.Turns += run.Version
		r.Statuses[run.Status]++
		r.Reasons[run.Transition.Reason]++
		if run.Parent == nil {
			roots++
		}
		for _, err := range s.checkRun(run, log) {
			bad("%s (%s, %s): %v", run.ID, run.Status, run.Transition.Reason, err)
		}
	}
	if want := s.wanted(); roots != want && !s.rolled {
		bad("I1: there should be %d runs, and there are %d", want, roots)
	}
	for _, err := range s.checkWorld(b, all, logs) {
		bad("%v", err)
	}
	for _, err := range s.checkEffects(logs) {
		bad("%v", err)
	}
	for _, err := range s.outside.checkBreakers() {
		bad("%v", err)
	}
	r.Violations = append(r.Violations, s.outside.odd...)
	for _, what := range s.outside.late {
		if !s.rolled {
			bad("I7: begun after the abort was heard of: %s", what)
		}
	}
	for _, u := range s.users {
		if u.aborted.IsZero() || u.status == string(state.Cancelled) || s.rolled {
			continue
		}
		// The turn that was about to be committed may have ended the run.
		if after := s.world.defied[state.RunID(u.run)]; after > 1 {
			bad("I7: %s was aborted, made %d more transitions and is %s", u.run, after, u.status)
		}
	}
	return r
}

// wanted returns the number of runs that were submitted and not deleted.
func (s *Deployment) wanted() int {
	roots := slices.Concat(slices.Collect(maps.Values(s.batched))...)
	for _, u := range s.users {
		roots = append(roots, u.run)
		roots = append(roots, u.forks...)
	}
	return len(slices.DeleteFunc(roots, func(id string) bool { _, deleted := s.world.deleted[state.RunID(id)]; return deleted }))
}

// checkRun returns the violations of one run.
func (s *Deployment) checkRun(run state.State, log []state.Entry) []error {
	var errs []error
	if !run.Status.Terminal() {
		errs = append(errs, errors.New("I2: it has not ended"))
	}
	if err := invariant.Log(log, run.Version); err != nil {
		errs = append(errs, err)
	}
	if err := invariant.Paired(state.View(log)); err != nil && run.Status.Terminal() {
		errs = append(errs, err)
	}
	if n := s.events[run.ID]; n != int64(len(log)) && !s.rolled {
		errs = append(errs, fmt.Errorf("I9: the log has %d entries, and %d were published", len(log), n))
	}
	return errs
}

// checkEffects compares the effects of tools with the logs of the runs. After a rollback the store
// lacks later entries.
func (s *Deployment) checkEffects(logs map[state.RunID][]state.Entry) []error {
	if s.rolled {
		return nil
	}
	asked := map[string]string{}
	for id, log := range logs {
		for _, e := range log {
			if e.Message == nil {
				continue
			}
			for _, c := range e.Message.Calls() {
				asked[string(id)+c.ID] = c.Arguments
			}
		}
	}
	var errs []error
	times := map[string]int{}
	for _, e := range s.outside.effects {
		times[e.Key]++
		if _, deleted := s.world.deleted[e.Run]; deleted {
			asked[string(e.Run)+e.Call] = e.Arguments
		}
		if arguments, ok := asked[string(e.Run)+e.Call]; !ok || arguments != e.Arguments {
			errs = append(errs, fmt.Errorf("I3: %s of %s ran with %s, which no response says", e.Tool, e.Run, e.Arguments))
		}
		if times[e.Key] == 2 && e.Tool != "look" && e.Tool != "cook" {
			errs = append(errs, fmt.Errorf("I4: %s of %s ran twice", e.Tool, e.Run))
		}
	}
	return errs
}
