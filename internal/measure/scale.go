package measure

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// backlog queues runs for few slots. It checks that there are hardly more turn messages than runs that need one, and
// measures how long a sweep takes and how late an urgent run ends whose time has come.
func backlog(ctx context.Context, t *trial) error {
	slots, call, watch := 50, 500*time.Millisecond, 150*time.Second
	if t.cfg.Short {
		slots, call, watch = 10, 100*time.Millisecond, time.Minute
	}
	if err := t.deploy(ctx, rig.Config{Workers: 2, Env: []string{fmt.Sprintf("TURNPIKE_SLOTS=%d", slots/2)}}); err != nil {
		return err
	}
	q := &queue{trial: t, slots: slots}
	var err error
	if q.js, err = jetstream.New(t.Conn); err != nil {
		return err
	}
	if q.bus, err = natsbus.Open(ctx, t.Conn, natsbus.Config{Prefix: rig.Prefix, ReadOnly: true}); err != nil {
		return err
	}
	defer q.bus.Close()
	if err := errors.Join(t.define(ctx, "waits", noops(1, call)), t.define(ctx, "brief", answers)); err != nil {
		return err
	}
	watched, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	watching.Go(func() { q.every(watched, 200*time.Millisecond, q.count) })
	watching.Go(func() { q.every(watched, time.Second, q.sweep) })
	began := time.Now()
	batches, _, err := t.submitMany(ctx, request("waits"), t.n, 0)
	if err != nil {
		return err
	}
	t.figure(Figure{Name: "all are submitted", Value: time.Since(began).Seconds(), Unit: "s"})
	watching.Go(func() { q.every(watched, 2*time.Second, q.timer) })
	limited, over := context.WithTimeout(ctx, watch)
	defer over()
	if err := t.reach(limited, batches, state.Completed); err != nil && limited.Err() == nil {
		return err
	}
	cancel()
	watching.Wait()
	t.figure(Figure{Name: "messages of turns for a run, at most", Value: q.most, Most: 1.05})
	t.times("a sweep", q.sweeps, 0.9, 5)
	t.times("an urgent run, from its start_at to its end", q.late, 0.9, 0)
	return nil
}

// queue is the observation of a backlog.
type queue struct {
	*trial

	slots int
	js    jetstream.JetStream
	bus   *natsbus.Bus

	sweeps, late []time.Duration // each of one goroutine
	most         float64
}

// every repeats do until ctx ends.
func (q *queue) every(ctx context.Context, d time.Duration, do func(context.Context) error) {
	for ok := true; ok; ok = rig.Pause(ctx, d) {
		if err := do(ctx); err != nil && ctx.Err() == nil {
			q.fail("%v", err)
		}
	}
}

// live returns the number of runs that wait for a turn or execute one.
func (q *queue) live(ctx context.Context) (int64, error) {
	counts, err := q.store.Counts(ctx)
	return counts[state.Queued] + counts[state.Running], err
}

// count compares messages with runs.
func (q *queue) count(ctx context.Context) error {
	before, err := q.live(ctx)
	if err != nil {
		return err
	}
	messages := uint64(0)
	streams := q.js.ListStreams(ctx)
	for info := range streams.Info() {
		if strings.HasPrefix(info.Config.Name, strings.ToUpper(rig.Prefix)+"_TURNS") {
			messages += info.State.Msgs
		}
	}
	if err := streams.Err(); err != nil {
		return err
	}
	after, err := q.live(ctx)
	if err != nil {
		return err
	}
	runs := max(before, after)
	// A turn that has just ended leaves its message until the acknowledgement.
	if allowed := float64(runs)*1.05 + float64(2*q.slots); float64(messages) > allowed {
		q.fail("%d messages of turns for %d runs", messages, runs)
	}
	if runs >= int64(20*q.slots) {
		q.most = max(q.most, float64(messages)/float64(runs))
	}
	return nil
}

// sweep is another sweeper, which only measures its duration.
func (q *queue) sweep(ctx context.Context) error {
	backlog, err := q.bus.Backlog(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	_, err = q.store.Sweep(ctx, 512, 5*time.Second, backlog)
	q.sweeps = append(q.sweeps, time.Since(began))
	return err
}

// timer submits an urgent run with a start in the near future and waits for its end.
func (q *queue) timer(ctx context.Context) error {
	at := state.At(time.Now().Add(time.Second))
	r := request("brief")
	r.Priority, r.StartAt = string(state.High), &at
	run, err := q.Client.Submit(ctx, r, "")
	if err != nil {
		return err
	}
	if err := q.rests(ctx, run.ID); err != nil {
		return err
	}
	if run, err = q.Client.Get(ctx, run.ID); err != nil {
		return err
	}
	q.late = append(q.late, run.FinishedAt.Sub(at.Time))
	return nil
}

// lists requests first pages among very many runs.
func lists(ctx context.Context, t *trial) error {
	if t.cfg.Store == "jetstream" {
		t.n = min(t.n, 20_000) // each process holds the header of every run
	}
	if err := t.deploy(ctx, rig.Config{}); err != nil {
		return err
	}
	if err := errors.Join(t.define(ctx, "listed", answers), t.define(ctx, "other", answers), t.define(ctx, "fails", "model: {provider: scripted, responses: [{error: auth}]}")); err != nil {
		return err
	}
	// Most runs wait for a time; in each of a hundred parts one run has failed, and a few belong to another
	// agent.
	const parts = 100
	tomorrow := state.At(time.Now().Add(24 * time.Hour))
	began := time.Now()
	for range parts {
		for name, n := range map[string]int{"fails": 1, "other": min(10, t.n/parts/2), "listed": t.n / parts} {
			r := request(name)
			if name != "fails" {
				r.StartAt = &tomorrow
			}
			if _, _, err := t.submitMany(ctx, r, n, 0); err != nil {
				return err
			}
		}
	}
	t.figure(Figure{Name: "all are submitted", Value: time.Since(began).Seconds(), Unit: "s"})
	for _, list := range []struct {
		query url.Values
		want  int
	}{
		{url.Values{"status": {"failed"}}, 50},
		{url.Values{"status": {"waiting"}}, 50},
		{url.Values{"status": {"completed"}}, 0},
		{url.Values{"status": {"waiting"}, "agent": {"other"}}, 50},
		{url.Values{}, 50},
	} {
		// On JetStream the gateway learns of a run a moment after it is stored.
		if err := rig.Until(ctx, patience, "the page is full", func(ctx context.Context) error {
			page, err := t.Client.List(ctx, list.query)
			if err == nil && len(page.Items) != list.want {
				err = fmt.Errorf("the first page of %q has %d runs, want %d", list.query.Encode(), len(page.Items), list.want)
			}
			return err
		}); err != nil {
			return err
		}
		var took []time.Duration
		for range 50 {
			began := time.Now()
			if _, err := t.Client.List(ctx, list.query); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		t.times(fmt.Sprintf("the first page of %q", list.query.Encode()), took, 0.9, 20)
	}
	return nil
}

// bomb cancels the root of a tree in which each run delegates to itself as often as it may. No run of the tree
// stays active, and the tree stops growing.
func bomb(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{Workers: 2}); err != nil {
		return err
	}
	if err := t.define(ctx, "bomb", fmt.Sprintf("%slimits: {runs: %d}", selfDelegating("bomb", 200*time.Millisecond), t.n)); err != nil {
		return err
	}
	root, err := t.submit(ctx, "bomb")
	if err != nil {
		return err
	}
	grown, began := min(100, t.n/5), time.Now()
	if err := rig.Until(ctx, patience, "the tree has grown", func(ctx context.Context) error {
		// Counting all of it would take too long.
		page, err := t.Client.List(ctx, url.Values{"agent": {"bomb"}, "limit": {strconv.Itoa(grown)}})
		if err == nil && len(page.Items) < grown {
			err = fmt.Errorf("the list has %d runs", len(page.Items))
		}
		return err
	}); err != nil {
		return err
	}
	t.figure(Figure{Name: fmt.Sprintf("the tree has %d runs", grown), Value: time.Since(began).Seconds(), Unit: "s"})
	if _, err := t.Client.Cancel(ctx, root.ID, "enough"); err != nil {
		return err
	}
	cancelled := time.Now()
	var now tree
	if err := rig.Until(ctx, patience, "the tree is at rest", func(context.Context) (err error) {
		if now, err = t.tree(ctx, "bomb"); err == nil && now.live > 0 {
			err = fmt.Errorf("%d of %d runs have not ended", now.live, now.runs)
		}
		return err
	}); err != nil {
		return err
	}
	t.figure(Figure{Name: "cancellation to the creation of the last run", Value: max(0, now.created.Sub(cancelled).Seconds()), Unit: "s", Most: 0.5})
	t.figure(Figure{Name: "cancellation to the end of the last run", Value: now.ended.Sub(cancelled).Seconds(), Unit: "s", Most: 10, Note: fmt.Sprintf("of %d runs", now.runs)})
	if now.runs > t.n+1 {
		t.fail("the tree of runs has %d runs below its root, at most %d are allowed: report this bug in Turnpike", now.runs-1, t.n)
	}
	rig.Pause(ctx, t.steadyFor())
	later, err := t.tree(ctx, "bomb")
	if err == nil && (later.live > 0 || later.runs > now.runs) {
		t.fail("after its cancellation the tree of runs had %d runs, all ended, and later has %d, of which %d have not ended: report this bug in Turnpike", now.runs, later.runs, later.live)
	}
	return err
}

// tree is the state of an agent's runs.
type tree struct {
	runs, live     int
	created, ended time.Time // of the latest
}

func (t *trial) tree(ctx context.Context, name string) (all tree, err error) {
	query := url.Values{"agent": {name}, "limit": {"100"}}
	later := func(a, b time.Time) time.Time {
		if b.After(a) {
			return b
		}
		return a
	}
	for {
		page, err := t.Client.List(ctx, query)
		if err != nil {
			return all, err
		}
		for _, run := range page.Items {
			all.runs++
			if !run.Terminal() {
				all.live++
			}
			all.created, all.ended = later(all.created, run.CreatedAt.Time), later(all.ended, run.FinishedAt.Time)
		}
		if page.NextCursor == nil {
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// children lets a run start runs that each start runs. All complete.
func children(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{Workers: 2}); err != nil {
		return err
	}
	below := max(t.n/agent.MaxChildren, 2) // the size of the subtree of a child of the root
	for name, definition := range map[string]string{
		"leaf":   answers,
		"branch": fmt.Sprintf("model: {provider: scripted, responses: [%s, {text: done}]}\ntools: [{name: leaf, kind: agent, agent: leaf}]\nlimits: {runs: 1000}", delegating("leaf", 0, below-1, 0)),
		"trunk":  fmt.Sprintf("model: {provider: scripted, responses: [%s, {text: done}]}\ntools: [{name: branch, kind: agent, agent: branch}]\nlimits: {runs: 1000}", delegating("branch", 0, agent.MaxChildren, 0)),
	} {
		if err := t.define(ctx, name, definition); err != nil {
			return err
		}
	}
	root, _, err := t.Client.Do(ctx, request("trunk"), "", nil)
	if err != nil {
		return err
	}
	leaves, err := t.tree(ctx, "leaf")
	if err != nil {
		return err
	}
	branches, err := t.tree(ctx, "branch")
	if err != nil {
		return err
	}
	n, want := leaves.runs+branches.runs, agent.MaxChildren*below
	if live := leaves.live + branches.live; n != want || live > 0 || root.Status != string(state.Completed) {
		t.fail("the root of the tree is %s, want completed; it has %d runs below it, want %d; %d of them have not ended, want 0: find the cause in the logs of the workers", root.Status, n, want, live)
	}
	t.figure(Figure{Name: "the last run is created after the first", Value: leaves.created.Sub(root.CreatedAt.Time).Seconds(), Unit: "s", Most: 5})
	t.figure(Figure{Name: "all have ended", Value: root.FinishedAt.Sub(root.CreatedAt.Time).Seconds(), Unit: "s"})
	return nil
}

// retention lets runs end and expire, and measures how fast a gateway deletes them while other runs are
// submitted half as fast as the deployment can handle.
func retention(ctx context.Context, t *trial) error {
	const shortest = time.Minute // retention
	if err := t.deploy(ctx, rig.Config{Workers: 2}); err != nil {
		return err
	}
	if err := t.define(ctx, "old", noops(2, 0)); err != nil {
		return err
	}
	began := time.Now()
	batches, _, err := t.submitMany(ctx, request("old"), t.n, 0)
	if err != nil {
		return err
	}
	if err := t.reach(ctx, batches, state.Completed); err != nil {
		return err
	}
	capacity := float64(t.n) / time.Since(began).Seconds()
	rig.Pause(ctx, shortest)
	live, calm := context.WithCancel(ctx)
	defer calm()
	var load errgroup.Group
	var sent []string
	load.Go(func() error {
		const interval = 200 * time.Millisecond
		for rig.Pause(live, interval) {
			batches, _, err := t.submitMany(ctx, request("old"), max(1, int(capacity/2*interval.Seconds())), 0)
			if err != nil {
				return err
			}
			sent = append(sent, batches...)
		}
		return nil
	})
	gateway, err := t.StartGateway(ctx, "cleaner", "TURNPIKE_RETENTION=completed: 1m, failed: 1m")
	if err != nil {
		return err
	}
	first, deleted := time.Time{}, 0
	if err := rig.Until(ctx, patience, "the old runs are deleted", func(ctx context.Context) error {
		if deleted, err = counter(ctx, gateway, "turnpike_runs_deleted_total"); err != nil {
			return err
		}
		if first.IsZero() && deleted > 0 {
			first = time.Now().Add(-time.Second / 20)
		}
		if deleted < t.n {
			return fmt.Errorf("only %d of %d runs are deleted", deleted, t.n)
		}
		return nil
	}); err != nil {
		return err
	}
	least := 300.0
	if t.cfg.RedisLatency > 0 {
		least = 100 // each deletion waits for several answers
	}
	t.figure(Figure{Name: "runs deleted", Value: float64(deleted) / time.Since(first).Seconds(), Unit: "/s", Least: least, Note: fmt.Sprintf("next to %.0f runs a second", capacity/2)})
	calm()
	if err := load.Wait(); err != nil {
		t.fail("a live run is refused: %v", err)
	}
	for _, id := range sent { // some have been deleted as well
		b, err := t.Client.WaitBatch(ctx, id, nil)
		if err != nil {
			return err
		}
		if b.Counts[string(state.Completed)] < b.Total {
			t.fail("of batch %s only %v completed", id, b.Counts)
		}
	}
	return nil
}

// counter reads a counter without labels from the metrics of a gateway; 0 before it exists.
func counter(ctx context.Context, url, name string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/metrics", nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(text), "\n"+name+" ")
	if !found {
		return 0, nil
	}
	value, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.ParseFloat(value, 64)
	return int(n), err
}

// intake first makes many tenants, a tenth as many as the size, submit once each. Then it makes one tenant queue many
// submissions of 64 KiB on NATS, and measures the time in which those of another become runs.
func intake(ctx context.Context, t *trial) error {
	if err := t.deploy(ctx, rig.Config{Workers: 2, Env: []string{"TURNPIKE_AUTH=keys"}}); err != nil {
		return err
	}
	js, err := jetstream.New(t.Conn)
	if err != nil {
		return err
	}
	tenants := map[string]*api.Client{}
	names := []string{"loud", "quiet"}
	for i := range t.n / 10 {
		names = append(names, fmt.Sprint("tenant", i))
	}
	for _, name := range names {
		if tenants[name], _, err = t.tenant(ctx, name, "taken", answers); err != nil {
			return err
		}
	}
	subject := func(tenant string) string { return rig.Prefix + ".t." + tenant + ".submit.taken" }
	began, before := time.Now(), t.Gateway.Resident()
	for _, name := range names { // the streams are created with the first submission
		if err := rig.Until(ctx, patience, "the stream of "+name, func(ctx context.Context) error {
			_, err := js.Publish(ctx, subject(name), []byte(`{"input":"x"}`))
			return err
		}); err != nil {
			return err
		}
	}
	for _, name := range names {
		if err := rig.Until(ctx, patience, "the run of "+name, func(ctx context.Context) error {
			page, err := tenants[name].List(ctx, nil)
			if err == nil && (len(page.Items) == 0 || !page.Items[0].Terminal()) {
				err = errors.New("the tenant has no ended run")
			}
			return err
		}); err != nil {
			return err
		}
	}
	t.figure(Figure{Name: fmt.Sprintf("each of %d tenants has submitted once, and its run has ended", len(names)), Value: time.Since(began).Seconds(), Unit: "s", Note: fmt.Sprintf("the gateway grows by %.0f MiB", mib(t.Gateway.Resident()-before))})
	body := fmt.Appendf(nil, `{"input":"%s"}`, strings.Repeat("x", 64<<10))
	for range t.n {
		if _, err := js.PublishAsync(subject("loud"), body); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	var took []time.Duration
	for i := range 20 {
		key, began := fmt.Sprint("quiet-", i), time.Now()
		if _, err := js.Publish(ctx, subject("quiet"), fmt.Appendf(nil, `{"input":"x","metadata":{"key":%q}}`, key)); err != nil {
			return err
		}
		if err := rig.Until(ctx, patience, "the submission is a run", func(ctx context.Context) error {
			page, err := tenants["quiet"].List(ctx, url.Values{"metadata.key": {key}})
			if err == nil && len(page.Items) == 0 {
				err = errors.New("not yet")
			}
			return err
		}); err != nil {
			return err
		}
		took = append(took, time.Since(began))
	}
	t.times("a submission over NATS is a run", took, 0.95, 1000)
	return nil
}
