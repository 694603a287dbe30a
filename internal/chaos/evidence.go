package chaos

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Evidence is all that is known from outside of what a phase did.
type Evidence struct {
	Runs      []Witness
	Effects   []Effect
	Answers   []Answer
	Batches   []api.Batch // without a Total if the store does not know it
	Faults    []Fault
	Rollbacks []Rollback
	Refused   []string // answers of the gateway that no request deserved
	Left      int64    // turn messages that are left although every run rests
}

// Witness is what is known of one run.
type Witness struct {
	// Submitted has no key for a child run, which another run has started.
	Submitted

	// Found says whether the store has the run. The rest is set only if it does.
	Found    bool
	Run      api.Run
	Events   []json.RawMessage // as the store has them
	Log      []state.Entry     // the same, decoded
	Messages []api.Message
}

// gather reads everything about the runs, and about the runs below them.
func gather(ctx context.Context, s *site, runs []*Submitted) ([]Witness, error) {
	var mu sync.Mutex
	var all []Witness
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, r := range runs {
		group.Go(func() error {
			found, err := witness(ctx, s, *r)
			mu.Lock()
			defer mu.Unlock()
			all = append(all, found...)
			return err
		})
	}
	return all, group.Wait()
}

// gone reports whether the gateway says that there is no such thing.
func gone(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status == http.StatusNotFound
}

func witness(ctx context.Context, s *site, r Submitted) ([]Witness, error) {
	w := Witness{Submitted: r}
	var err error
	w.Run, err = s.doors[0].client.Get(ctx, r.ID)
	if r.ID == "" || gone(err) {
		return []Witness{w}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", r.ID, err)
	}
	w.Found = true
	if w.Messages, err = s.doors[0].client.Messages(ctx, r.ID); err != nil {
		return nil, fmt.Errorf("read messages of run %s: %w", r.ID, err)
	}
	if w.Events, err = events(ctx, s, r.ID); err != nil {
		return nil, err
	}
	for _, data := range w.Events {
		e, err := api.DecodeEvent(data)
		if err != nil {
			return nil, fmt.Errorf("read run %s: %w", r.ID, err)
		}
		w.Log = append(w.Log, e.Entry)
	}
	below, err := s.doors[0].client.List(ctx, url.Values{"parent": {r.ID}})
	if err != nil {
		return nil, fmt.Errorf("list runs below %s: %w", r.ID, err)
	}
	all := []Witness{w}
	for _, child := range below.Items {
		found, err := witness(ctx, s, Submitted{ID: child.ID, Kind: child.Agent, At: child.CreatedAt.Time})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// events reads the committed events of a run, page by page.
func events(ctx context.Context, s *site, id string) ([]json.RawMessage, error) {
	var all []json.RawMessage
	for cursor := "0"; ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.doors[0].url+"/v1/runs/"+id+"/events?after="+cursor, nil)
		if err != nil {
			return nil, err
		}
		req.Header.Set("Accept", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return nil, err
		}
		var page api.Page[json.RawMessage]
		err = json.NewDecoder(resp.Body).Decode(&page)
		_ = resp.Body.Close()
		if err != nil || resp.StatusCode != http.StatusOK {
			return nil, fmt.Errorf("read events of run %s: %s, %w", id, resp.Status, err)
		}
		all = append(all, page.Items...)
		if page.NextCursor == nil {
			return all, nil
		}
		cursor = *page.NextCursor
	}
}

// left waits until no turn message is left, and returns how many are in the end.
func left(ctx context.Context, s *site, limit time.Duration) int64 {
	n := int64(-1)
	_ = until(ctx, limit, "no turn message is left", func(ctx context.Context) error {
		stream, err := s.js.Stream(ctx, "CHAOS_TURNS")
		if err != nil {
			return err
		}
		info, err := stream.Info(ctx)
		if err != nil {
			return err
		}
		if n = int64(info.State.Msgs); n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	return n
}
