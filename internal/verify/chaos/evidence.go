package chaos

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Evidence is everything observed from outside during a phase.
type Evidence struct {
	Runs      []Witness // including child runs
	Effects   []Effect
	Answers   []Answer
	Batches   []api.Batch // without a Total if the store does not have it
	Faults    []Fault
	Rollbacks []Rollback
	Refused   []string // unjustified error responses of the gateway
	Remaining []string // existing runs whose ancestors were deleted
	Letters   []string // runs that have dead letters
	Left      uint64   // messages that are left although every run rests

	// Remnants are the store's data about deleted runs except their markers, by run.
	Remnants map[string][]string

	// Recoveries are the times that interrupted runs took to resume, and Lease is the workers' lease duration.
	Recoveries []Recovery
	Lease      time.Duration

	// Cries are unexpected lines of the processes' logs: panics and data races.
	Cries []string

	// Notes are the files of the memory that runs of the kind noted share, by name.
	Notes map[string]string

	// Deliveries are the requests that the webhook receiver got, by run, and Firings the runs that the schedule
	// started, by instant.
	Deliveries map[string][]Delivery
	Firings    []Firing

	// Published are the events on the bus at PublishedAt, by run and number.
	Published   map[string]map[int64]json.RawMessage
	PublishedAt time.Time
}

// Witness is the evidence about one run.
type Witness struct {
	// Submitted has no key for a child run, which another run has started.
	Submitted

	// Found reports whether the store has the run. The rest is set only if it does.
	Found       bool
	Looked      time.Time // the time of that check
	Run         api.Run
	Events      []json.RawMessage // as the store has them
	Log         []state.Entry     // the same, decoded
	Messages    []api.Message
	FileMissing bool // the run's file is missing, or differs from the upload
}

// gather reads everything about the runs, and about the runs below them.
func gather(ctx context.Context, s *deployment, runs []*Submitted) ([]Witness, error) {
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

// notFound reports whether the gateway returned not found.
func notFound(err error) bool {
	p, ok := errors.AsType[*api.Problem](err)
	return ok && p.Status == http.StatusNotFound
}

func witness(ctx context.Context, s *deployment, r Submitted) ([]Witness, error) {
	w := Witness{Submitted: r, Looked: time.Now()}
	var err error
	w.Run, err = s.doors[0].client.Get(ctx, r.ID)
	if r.ID == "" || notFound(err) {
		return []Witness{w}, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read run %s: %w", r.ID, err)
	}
	if w.Run.Transition.Reason == state.EndLost {
		return []Witness{w}, nil // the record of a run that the store does not have
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
	if w.FileMissing, err = fileMissing(ctx, s, r); err != nil {
		return nil, err
	}
	below, err := s.doors[0].client.List(ctx, url.Values{"parent": {r.ID}})
	if err != nil {
		return nil, fmt.Errorf("list runs below %s: %w", r.ID, err)
	}
	all := []Witness{w}
	for _, child := range below.Items {
		created := Ack{Sent: child.CreatedAt.Time, At: child.CreatedAt.Time}
		found, err := witness(ctx, s, Submitted{ID: child.ID, Kind: child.Agent, Accepted: created})
		if err != nil {
			return nil, err
		}
		all = append(all, found...)
	}
	return all, nil
}

// remaining returns the runs below deleted ones that the store has, and the runs with dead
// letters.
func remaining(ctx context.Context, s *deployment, runs []*Submitted) (left, letters []string, err error) {
	for _, r := range runs {
		if r.Deleted.IsZero() {
			continue
		}
		for _, id := range r.Below {
			_, err := s.doors[0].client.Get(ctx, id)
			if err != nil && !notFound(err) {
				return nil, nil, fmt.Errorf("read run %s: %w", id, err)
			}
			if err == nil {
				left = append(left, id)
			}
		}
	}
	for after := uint64(0); ; {
		page, err := s.doors[0].client.Dead(ctx, after, 100)
		if err != nil {
			return nil, nil, fmt.Errorf("read dead letters: %w", err)
		}
		for _, l := range page.Items {
			if l.RunID != nil {
				letters = append(letters, *l.RunID)
			}
			after = l.Seq
		}
		if len(page.Items) < 100 {
			return left, letters, nil
		}
	}
}

// events reads the committed events of a run, page by page.
func events(ctx context.Context, s *deployment, id string) ([]json.RawMessage, error) {
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

// published reads the stream of events, by run and number. If an event was published twice, either
// copy may be the correct one: published keeps the first.
func published(ctx context.Context, s *deployment) (map[string]map[int64]json.RawMessage, error) {
	stream, err := s.js.Stream(ctx, streamEvents)
	if err != nil {
		return nil, fmt.Errorf("read published events: %w", err)
	}
	c, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		return nil, fmt.Errorf("read published events: %w", err)
	}
	messages, err := c.Messages()
	if err != nil {
		return nil, fmt.Errorf("read published events: %w", err)
	}
	defer messages.Stop()
	all := map[string]map[int64]json.RawMessage{}
	// The last events may be those of a deleted run, which are gone: the stream's last sequence
	// number says nothing.
	for pending := stream.CachedInfo().State.Msgs; pending > 0; {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return nil, fmt.Errorf("read published events: %w", err)
		}
		meta, err := m.Metadata()
		if err != nil {
			return nil, fmt.Errorf("read published events: %w", err)
		}
		pending = meta.NumPending
		e, err := api.DecodeEvent(m.Data())
		if err != nil {
			return nil, fmt.Errorf("read published events: %w", err)
		}
		run := strings.TrimPrefix(m.Subject(), prefix+".events.")
		if all[run] == nil {
			all[run] = map[int64]json.RawMessage{}
		}
		if _, known := all[run][e.Seq]; !known {
			all[run][e.Seq] = m.Data()
		}
	}
	return all, nil
}

// cries looks for panics and data races in the logs of gateways and workers.
func cries(s *deployment) ([]string, error) {
	var all []string
	for _, n := range s.processes() {
		name := n.Name + ".log"
		log, err := os.ReadFile(filepath.Join(s.dir, name))
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(log) {
			for _, cry := range []string{"panic: ", "fatal error: ", "DATA RACE", "work for a run panicked"} {
				if bytes.Contains(line, []byte(cry)) {
					all = append(all, name+": "+strings.TrimSpace(string(line)))
				}
			}
		}
	}
	return all, nil
}

// Streams of the campaign's bus.
const (
	streamTurns   = "CHAOS_TURNS"
	streamSubmit  = "CHAOS_SUBMIT"
	streamControl = "CHAOS_CONTROL"
	streamEvents  = "CHAOS_EVENTS"
)

// left waits until no turn, submission or abort is left as a message, and returns
// how many are in the end.
func left(ctx context.Context, s *deployment, limit time.Duration) uint64 {
	n := uint64(0)
	_ = rig.Until(ctx, limit, "no message is left", func(ctx context.Context) error {
		sum := uint64(0)
		streams := s.js.ListStreams(ctx)
		for info := range streams.Info() {
			if name := info.Config.Name; strings.HasPrefix(name, streamTurns) || name == streamSubmit || name == streamControl {
				sum += info.State.Msgs
			}
		}
		if err := streams.Err(); err != nil {
			return err
		}
		if n = sum; n > 0 {
			return fmt.Errorf("%d are left", n)
		}
		return nil
	})
	return n
}
