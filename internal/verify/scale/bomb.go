package scale

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// bomb cancels the root of a tree in which each run delegates to itself as often as it may.
// Nothing of the tree is left, and it does not grow any more.
func bomb(ctx context.Context, s *scene) error {
	return s.bomb(ctx, rig.Config{Workers: 2})
}

func bombOnJetStream(ctx context.Context, s *scene) error {
	return s.bomb(ctx, rig.Config{Workers: 2, JetStream: true})
}

func (s *scene) bomb(ctx context.Context, cfg rig.Config) error {
	if err := s.deploy(ctx, cfg); err != nil {
		return err
	}
	definition := fmt.Sprintf("%s\nlimits: {runs: %d}", selfDelegating("bomb", 200*time.Millisecond), s.Tree)
	if _, err := s.Client.PutAgent(ctx, "bomb", []byte(definition)); err != nil {
		return err
	}
	root, err := s.Client.Submit(ctx, api.SubmitRequest{Agent: "bomb", Input: json.RawMessage(`"go"`)}, "")
	if err != nil {
		return err
	}
	began := time.Now()
	if err := rig.Until(ctx, patience, "the tree has grown", func(ctx context.Context) error {
		// Counting all of it would take too long.
		page, err := s.Client.List(ctx, url.Values{"agent": {"bomb"}, "limit": {strconv.Itoa(s.Grow)}})
		if err == nil && len(page.Items) < s.Grow {
			err = fmt.Errorf("it has %d runs", len(page.Items))
		}
		return err
	}); err != nil {
		return err
	}
	s.figure("the tree grows to %d runs in %.1f s", s.Grow, time.Since(began).Seconds())
	if _, err := s.Client.Cancel(ctx, root.ID, "enough"); err != nil {
		return err
	}
	cancelled := time.Now()
	var t tree
	if err := rig.Until(ctx, patience, "the tree is at rest", func(ctx context.Context) (err error) {
		if t, err = s.tree(ctx, "bomb"); err == nil && t.going > 0 {
			err = fmt.Errorf("%d of %d runs go on", t.going, t.runs)
		}
		return err
	}); err != nil {
		return err
	}
	s.figure("after the answer to the cancellation the last of %d runs is created at %.2f s, want 0.5, and the last ends at %.2f s, want 10", t.runs, t.created.Sub(cancelled).Seconds(), t.ended.Sub(cancelled).Seconds())
	if t.runs > s.Tree+1 {
		s.fail("the tree has %d runs, and may have %d", t.runs-1, s.Tree)
	}
	rig.Pause(ctx, s.Steady)
	later, err := s.tree(ctx, "bomb")
	if err == nil && (later.going > 0 || later.runs > t.runs) {
		s.fail("the tree goes on: it has %d runs and %d that have not ended, after %d", later.runs, later.going, t.runs)
	}
	return err
}

// tree is what there is of the runs of an agent.
type tree struct {
	runs, going    int
	created, ended time.Time // of the latest
}

func (s *scene) tree(ctx context.Context, agent string) (t tree, err error) {
	query := url.Values{"agent": {agent}, "limit": {"100"}}
	for {
		page, err := s.Client.List(context.WithoutCancel(ctx), query)
		if err != nil {
			return t, err
		}
		for _, run := range page.Items {
			t.runs++
			if !run.Terminal() {
				t.going++
			}
			t.created, t.ended = later(t.created, run.CreatedAt.Time), later(t.ended, run.FinishedAt.Time)
		}
		if page.NextCursor == nil {
			return t, nil
		}
		query.Set("cursor", *page.NextCursor)
	}
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
