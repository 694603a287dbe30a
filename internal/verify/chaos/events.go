package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// The stream that a trigger reads, and the schedule that fires every minute.
const (
	ordersStream  = "ORDERS"
	ordersSubject = "orders.paid"
	ordersTrigger = "orders"
	everyMinute   = "every-minute"
)

// orderPatience is the time in which a message of the stream must become a run: a gateway that died with it
// holds it for half a minute.
const orderPatience = 2 * time.Minute

// longestOutage is the time in which the schedule must fire. After an outage only the latest instant counts.
const longestOutage = 3 * time.Minute

// Firing is a run that the schedule started by itself.
type Firing struct {
	Run string
	At  time.Time // the instant of the schedule
}

// startEvents creates the triggers and schedules that start runs of the kind leaf without a submission.
func (s *deployment) startEvents(ctx context.Context) error {
	return rig.Until(ctx, ready, "the trigger and the schedule are there", func(ctx context.Context) error {
		if _, err := s.js.CreateOrUpdateStream(ctx, jetstream.StreamConfig{Name: ordersStream, Subjects: []string{"orders.>"}, Replicas: len(s.nats)}); err != nil {
			return err
		}
		_, err := s.doors[0].client.PutTrigger(ctx, ordersTrigger, api.TriggerSettings{
			Stream: ordersStream, From: api.FromAll, MaxPerMinute: 6000,
			Run: &api.HookRun{Agent: "leaf", Input: `"go"`, Metadata: map[string]string{"key": "string(event.key)"}},
		})
		if err != nil {
			return err
		}
		_, err = s.doors[0].client.PutSchedule(ctx, everyMinute, api.ScheduleSettings{
			Cron: "* * * * *", Overlap: api.OverlapAllow, CatchUp: new(model.Duration(time.Hour)),
			Run: api.SubmitRequest{Agent: "leaf", Input: json.RawMessage(`"go"`)},
		})
		return err
	})
}

// order publishes a message to the stream. Once NATS has acknowledged it, it must become one run.
func (u *users) order(ctx, stop context.Context) {
	s := u.submission("leaf")
	if _, ok := insist(stop, u, func(ctx context.Context) (*jetstream.PubAck, error) {
		return u.deployment.js.Publish(ctx, ordersSubject, fmt.Appendf(nil, `{"key":%q}`, s.Key), jetstream.WithMsgID(s.Key))
	}); !ok {
		return
	}
	s.Message = true
	u.follow(ctx, s, orderPatience)
}

// follow finds the run that a message became, and follows it.
func (u *users) follow(ctx context.Context, s *Submitted, patience time.Duration) {
	look, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	_, _ = insist(look, u, func(ctx context.Context) (string, error) {
		err := u.recount(ctx, s)
		if err == nil && s.ID == "" {
			err = errors.New("not a run yet")
		}
		return "", err
	})
	u.accepted(s)
	if s.ID != "" {
		u.stay(ctx, s)
	}
}

// recount reads which runs a message became.
func (u *users) recount(ctx context.Context, s *Submitted) error {
	found, err := u.door().client.List(ctx, url.Values{"metadata.key": {s.Key}})
	if err != nil {
		return err
	}
	for _, run := range found.Items {
		if s.ID == "" {
			s.ID = run.ID
		}
		if !slices.Contains(s.Again, run.ID) {
			s.Again = append(s.Again, run.ID)
		}
	}
	return nil
}

// recountAll checks at the end whether a message became a second run.
func (u *users) recountAll(ctx context.Context) error {
	for _, s := range u.runs {
		if !s.Message {
			continue
		}
		if err := u.recount(ctx, s); err != nil {
			return fmt.Errorf("list the runs of message %s: %w", s.Key, err)
		}
	}
	return nil
}

// fire starts a run of the schedule, perhaps twice with one key.
func (u *users) fire(ctx, stop context.Context) {
	s := u.submission("leaf")
	run := func() string {
		run, _ := insist(stop, u, func(ctx context.Context) (api.Run, error) {
			return u.door().client.RunSchedule(ctx, everyMinute, s.Key)
		})
		return run.ID
	}
	if s.ID = run(); s.ID == "" {
		return
	}
	u.accepted(s)
	if u.dice(100) < 50 {
		if again := run(); again != "" {
			u.mu.Lock()
			s.Again = append(s.Again, again)
			u.mu.Unlock()
		}
	}
	u.stay(ctx, s)
	u.after(ctx, s)
}

// stopFiring pauses the schedule, and follows the runs that it started by itself like those of users.
func (u *users) stopFiring(ctx context.Context) ([]Firing, error) {
	if err := rig.Until(ctx, ready, "the schedule is paused", func(ctx context.Context) error {
		_, err := u.door().client.PauseSchedule(ctx, everyMinute)
		return err
	}); err != nil {
		return nil, err
	}
	all, err := firings(ctx, u.deployment, u.runs)
	for _, f := range all {
		u.runs = append(u.runs, &Submitted{ID: f.Run, Kind: "leaf", Accepted: Ack{Sent: f.At, At: f.At}})
	}
	return all, err
}

// firings returns the runs that the schedule started by itself: those that no user submitted.
func firings(ctx context.Context, s *deployment, submitted []*Submitted) ([]Firing, error) {
	var all []Firing
	users := map[string]bool{}
	for _, s := range submitted {
		users[s.ID] = true
	}
	for query := (url.Values{"metadata.schedule": {everyMinute}, "limit": {"100"}}); ; {
		page, err := s.doors[0].client.List(ctx, query)
		if err != nil {
			return nil, fmt.Errorf("list the runs of the schedule: %w", err)
		}
		for _, run := range page.Items {
			at, err := time.Parse(time.RFC3339, run.Metadata["scheduled_at"])
			if err != nil {
				return nil, fmt.Errorf("run %s of the schedule has no instant: %w", run.ID, err)
			}
			if !users[run.ID] && at.Second() == 0 {
				all = append(all, Firing{run.ID, at})
			}
		}
		if page.NextCursor == nil {
			slices.SortFunc(all, func(a, b Firing) int { return a.At.Compare(b.At) })
			return all, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

// checkFirings checks that each instant of the schedule started one run (I1).
func (c *checker) checkFirings() {
	for i := 1; i < len(c.Firings); i++ {
		before, f := c.Firings[i-1], c.Firings[i]
		if c.fellBack(before.At, f.At.Add(time.Minute)) {
			continue
		}
		switch apart := f.At.Sub(before.At); {
		case apart == 0:
			c.broken("I1", f.Run, "the schedule fired for %s with run %s, too", f.At.Format(time.TimeOnly), before.Run)
		case apart > longestOutage:
			c.broken("I1", f.Run, "the schedule did not fire between %s and %s", before.At.Format(time.TimeOnly), f.At.Format(time.TimeOnly))
		}
	}
}
