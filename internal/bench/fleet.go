package bench

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// fleet is a gateway and workers, each a process of its own, on servers of their own.
type fleet struct {
	*servers

	url     string
	client  *api.Client
	nc      *nats.Conn
	js      jetstream.JetStream
	store   *redisstore.Store // to look at, past the gateway
	gateway *exec.Cmd
	others  []*exec.Cmd // gateways of other tenants
	workers []*exec.Cmd
	slots   int
}

// patience bounds how long a part of a measurement may take.
const patience = 2 * time.Minute

// spawn starts this program with other arguments and returns the first line that it
// prints, if one is wanted.
func spawn(ctx context.Context, wantLine bool, args ...string) (*exec.Cmd, string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, "", err
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Stderr = os.Stderr
	if !wantLine {
		return cmd, "", cmd.Start()
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, "", err
	}
	if err := cmd.Start(); err != nil {
		return nil, "", err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		_ = cmd.Wait()
		return nil, "", fmt.Errorf("%s says nothing: %w", args[0], err)
	}
	return cmd, strings.TrimSpace(line), nil
}

// startFleet starts servers, a gateway and workers with so many slots each.
func startFleet(ctx context.Context, profile string, workers, slots int) (f *fleet, err error) {
	f = &fleet{slots: slots}
	defer func() {
		if err != nil {
			f.stop()
		}
	}()
	if f.servers, err = startServers(ctx, profile); err != nil {
		return nil, err
	}
	if f.nc, err = nats.Connect(f.natsURL); err != nil {
		return nil, err
	}
	if f.js, err = jetstream.New(f.nc); err != nil {
		return nil, err
	}
	if f.store, err = redisstore.Open(ctx, redisstore.Config{URL: f.redisURL}); err != nil {
		return nil, err
	}
	if f.gateway, f.url, err = spawn(ctx, true, "bench-child", f.natsURL, f.redisURL); err != nil {
		return nil, fmt.Errorf("start gateway: %w", err)
	}
	f.client = clientOf(f.url)
	for range workers {
		if _, err := f.hire(ctx); err != nil {
			return nil, err
		}
	}
	return f, nil
}

func clientOf(url string) *api.Client {
	return api.NewWithHTTP(url, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256}})
}

// admit starts a gateway of another tenant and returns a client of it.
func (f *fleet) admit(ctx context.Context, tenant string) (*api.Client, error) {
	g, url, err := spawn(ctx, true, "bench-child", f.natsURL, f.redisURL, "--gateway-tenant", tenant)
	if err != nil {
		return nil, fmt.Errorf("start gateway of %s: %w", tenant, err)
	}
	f.others = append(f.others, g)
	c := clientOf(url)
	return c, until(ctx, "the gateway of "+tenant+" is ready", func() (bool, error) { return c.Ready(ctx) == nil, nil })
}

// hire starts one more worker and returns when it takes turns.
func (f *fleet) hire(ctx context.Context) (*exec.Cmd, error) {
	id := fmt.Sprintf("w%d", len(f.workers))
	// A worker sends heartbeats as soon as it takes turns.
	heartbeats, err := f.nc.SubscribeSync("turnpike.presence." + id)
	if err != nil {
		return nil, err
	}
	defer func() { _ = heartbeats.Unsubscribe() }()
	w, _, err := spawn(ctx, false, "bench-child", f.natsURL, f.redisURL, "--id", id, "--slots", strconv.Itoa(f.slots))
	if err != nil {
		return nil, fmt.Errorf("start worker: %w", err)
	}
	f.workers = append(f.workers, w)
	if _, err := heartbeats.NextMsg(30 * time.Second); err != nil {
		return nil, fmt.Errorf("worker %s does not come up: %w", id, err)
	}
	return w, nil
}

// calls returns how many model calls each worker has made.
func (f *fleet) calls(ctx context.Context) ([]int, error) {
	counts := make([]int, len(f.workers))
	for i := range f.workers {
		var err error
		if counts[i], err = f.callsOf(ctx, i); err != nil {
			return nil, err
		}
	}
	return counts, nil
}

func (f *fleet) callsOf(ctx context.Context, worker int) (int, error) {
	m, err := f.nc.RequestWithContext(ctx, fmt.Sprintf("%sw%d", subjectCalls, worker), nil)
	if err != nil {
		return 0, fmt.Errorf("ask worker w%d: %w", worker, err)
	}
	return strconv.Atoi(string(m.Data))
}

// stop ends everything.
func (f *fleet) stop() {
	if f.nc != nil {
		f.nc.Close()
	}
	if f.store != nil {
		_ = f.store.Close()
	}
	for _, p := range slices.Concat(f.workers, f.others, []*exec.Cmd{f.gateway}) {
		if p != nil {
			kill(p)
		}
	}
	if f.servers != nil {
		f.servers.stop()
	}
}

func kill(p *exec.Cmd) {
	_ = p.Process.Kill()
	_ = p.Wait() // how it ended plays no part
}

// define stores the agent of a measurement: its model and whatever else it needs.
func (f *fleet) define(ctx context.Context, name, definition string) error {
	if err := until(ctx, "the gateway is ready", func() (bool, error) { return f.client.Ready(ctx) == nil, nil }); err != nil {
		return err
	}
	_, err := f.client.PutAgent(ctx, name, []byte(definition))
	return err
}

// turns is an agent that asks for a tool at once, and answers at the last turn.
// Its model takes delay for each call.
func turns(n int, delay time.Duration) string {
	call := fmt.Sprintf(`{tool_calls: [{name: noop, arguments: {q: %q}}], delay: %s}`, strings.Repeat("z", 300), delay)
	return fmt.Sprintf("model: {provider: scripted, responses: [%s{text: %q, delay: %s}]}\n", strings.Repeat(call+", ", n-1), strings.Repeat("y", 400), delay) +
		"loop: {max_turns: 200, tool_loop_threshold: 1000}\ntools: [{name: noop, idempotent: true, reuse: false}]\n"
}

// request is the submission of a run of an agent.
func request(agent string) api.SubmitRequest {
	return api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}
}

// batch is how many runs are submitted together where the submission is not what is
// measured.
const batch = 500

// submitMany submits n runs in batches and returns their ids. Of each batch so many run
// at a time; 0 is all.
func (f *fleet) submitMany(ctx context.Context, r api.SubmitRequest, n, parallel int) ([]string, error) {
	var mu sync.Mutex
	var ids []string
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(4)
	for ; n > 0; n -= batch {
		req := api.BatchRequest{Runs: make([]api.SubmitRequest, min(n, batch)), MaxParallel: parallel}
		group.Go(func() error {
			for i := range req.Runs {
				req.Runs[i] = r
			}
			accepted, err := f.client.SubmitBatch(ctx, req, "")
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, accepted.RunIDs...)
			return err
		})
	}
	return ids, group.Wait()
}

// until polls ok until it is true, not so often that it is what is measured.
func until(ctx context.Context, what string, ok func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		if done, err := ok(); done || err != nil {
			return err
		}
		if err := pause(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
}

// pause waits for d, or returns the error with which ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// reach waits until n runs have a status.
func (f *fleet) reach(ctx context.Context, status state.Status, n int) error {
	return until(ctx, fmt.Sprintf("%d runs are %s", n, status), func() (bool, error) {
		counts, err := f.store.Counts(ctx)
		return counts[status] >= int64(n), err
	})
}
