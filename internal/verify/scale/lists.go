package scale

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/oklog/ulid/v2"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// rare is the number of failed runs among all the others.
const rare = 100

func listsOnRedis(ctx context.Context, s *scene) error {
	if err := s.deploy(ctx, rig.Config{Workers: -1}); err != nil {
		return err
	}
	// The data loaded here need not survive.
	if err := s.Redis.Client.ConfigSet(ctx, "appendonly", "no").Err(); err != nil {
		return err
	}
	store, err := redisstore.Open(ctx, redisstore.Config{URL: "redis://" + s.Redis.Addr + "/0", Prefix: rig.Prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	return s.lists(ctx, store, s.Listed)
}

func listsOnJetStream(ctx context.Context, s *scene) error {
	if err := s.deploy(ctx, rig.Config{Workers: -1, JetStream: true}); err != nil {
		return err
	}
	store, err := natsstore.Open(ctx, s.Conn, natsstore.Config{Prefix: rig.Prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	return s.lists(ctx, store, s.ListedJetStream)
}

// lists fills a store with n runs and asks the gateway for first pages.
func (s *scene) lists(ctx context.Context, store state.Store, n int) error {
	store.SetFormat(state.Format)
	began := time.Now()
	if err := load(ctx, store, n); err != nil {
		return err
	}
	s.figure("%d runs are stored in %.0f s", n, time.Since(began).Seconds())
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
			page, err := s.Client.List(ctx, list.query)
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
			if _, err := s.Client.List(ctx, list.query); err != nil {
				return err
			}
			took = append(took, time.Since(began))
		}
		s.figure("the first page of %q: %s; want 20 ms", list.query.Encode(), spread(took))
	}
	return nil
}

// load stores n runs: most wait for a time, a few have failed long ago, and every thousandth
// belongs to another agent.
func load(ctx context.Context, store state.Store, n int) error {
	var loading errgroup.Group
	loading.SetLimit(256)
	for i := range n {
		loading.Go(func() error {
			agent := "listed"
			if i%max(1, n/1000) == 0 {
				agent = "other"
			}
			return create(ctx, store, agent, i%max(1, n/rare) == 0)
		})
	}
	return loading.Wait()
}

func create(ctx context.Context, store state.Store, agent string, fails bool) error {
	now := state.At(time.Now())
	run := state.State{
		ID: state.RunID(state.RunPrefix + ulid.Make().String()), Agent: agent, AgentVersion: 1, Loop: "react", Tenant: state.DefaultTenant,
		Priority: state.Normal, Limits: state.Limits{MaxTurns: 20}, CreatedAt: now,
	}
	input := state.UserText("What has become of the order that I placed a week ago, please?")
	input.ID = "msg_1_0"
	run, err := run.Move(state.Submitted, state.Entry{At: now, Messages: []state.Message{input}})
	if err == nil && !fails {
		at := state.At(now.Add(24 * time.Hour))
		run.ResumeAt = at
		run, err = run.Move(state.WaitingSchedule, state.Entry{At: now, Detail: "start_at", Waiting: &state.Wait{Reason: state.WaitingSchedule, Since: now, ExpiresAt: at, Calls: []state.WaitCall{}}})
	}
	if err != nil {
		return err
	}
	if _, err := store.Create(ctx, state.NewRun{State: run, RedeliveryDelay: time.Hour}); err != nil || !fails {
		return err
	}
	c, err := store.Claim(ctx, state.ClaimRequest{Run: run.ID, Version: run.Version, Token: "loads", Worker: "loads", Lease: time.Minute})
	if err == nil && c.Outcome != state.Claimed {
		err = errors.New("the run is not to be had: " + string(c.Outcome))
	}
	if err != nil {
		return err
	}
	failed, err := c.State.Move(state.EndModelError, state.Entry{At: now})
	if err != nil {
		return err
	}
	_, err = store.Commit(ctx, c.Lease, state.Commit{ID: "fails", State: failed, From: c.State.LogLen(), RedeliveryDelay: time.Hour})
	return err
}
