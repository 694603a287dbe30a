package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"net/url"
	"slices"
	"sync"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// pair is two gateways of one deployment, each with its own connections, and a worker.
type pair struct {
	one, other *api.Client
	called     <-chan struct{} // receives when a model call begins
}

// onEachStore runs a test with checkpoints in Redis and in JetStream, on real servers.
func onEachStore(t *testing.T, test func(t *testing.T, p pair)) {
	t.Helper()
	for _, kind := range []string{"redis", "nats"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at, prefix := testbed.NATSServer(t).URL(), "p"+ulid.Make().String()
			one, store, b := gatewayOn(t, kind, at, prefix)
			other, _, _ := gatewayOn(t, kind, at, prefix)
			provider := &noticed{scripted.New(), make(chan struct{}, 16)}
			w, err := worker.New(store, b, worker.Config{ID: "w", Slots: 4, Providers: map[string]model.Provider{"scripted": provider}})
			if err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			var working sync.WaitGroup
			working.Go(func() {
				if err := w.Run(ctx); err != nil {
					t.Errorf("Run: %v", err)
				}
			})
			t.Cleanup(func() { stop(); working.Wait() })
			test(t, pair{one, other, provider.began})
		})
	}
}

// noticed is a provider that reports the start of each call.
type noticed struct {
	model.Provider

	began chan struct{}
}

// Self implements model.Cancelable.
func (n *noticed) Self() model.Provider { return n }

func (n *noticed) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (model.Response, error) {
	select {
	case n.began <- struct{}{}:
	default:
	}
	return n.Provider.Generate(ctx, r, onDelta)
}

func gatewayOn(t *testing.T, kind, at, prefix string) (*api.Client, state.Store, *natsbus.Bus) {
	t.Helper()
	nc, err := nats.Connect(at)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	b, store := openOn(t, kind, nc, prefix)
	g, err := gateway.New(store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(g.Handler())
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return api.New(server.URL), store, b
}

// openOn opens a bus and a store with checkpoints in Redis or in JetStream.
func openOn(t *testing.T, kind string, nc *nats.Conn, prefix string) (*natsbus.Bus, state.Store) {
	t.Helper()
	b, err := natsbus.Open(t.Context(), nc, natsbus.Config{Prefix: prefix})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	var store interface {
		state.Store
		Close() error
	}
	if kind == "redis" {
		store, err = redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: prefix})
	} else {
		store, err = natsstore.Open(t.Context(), nc, natsstore.Config{Prefix: prefix})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	return b, store
}

// put saves an agent with a scripted model.
func (p pair) put(t *testing.T, name, responses string) {
	t.Helper()
	if _, err := p.one.PutAgent(t.Context(), name, []byte(`{"model":{"provider":"scripted","responses":[`+responses+`]}}`)); err != nil {
		t.Fatal(err)
	}
}

// ended submits a run and waits for its end.
func (p pair) ended(t *testing.T, agent, input string) api.Run {
	t.Helper()
	run, err := p.one.Submit(t.Context(), api.SubmitRequest{Agent: agent, Input: []byte(input)}, "")
	if err == nil {
		run, err = p.one.Wait(t.Context(), run.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	return run
}

// A client that follows a tenant's runs at one gateway receives each deletion made at another gateway once,
// including runs older than the client.
func TestDeletedRunsAreTold(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p pair) {
		p.put(t, "hello", `{"text":"hi"}`)
		before := p.ended(t, "hello", `"x"`)
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		deleted := map[string]int{}
		last := ""
		for change, err := range p.other.Changes(ctx, nil) {
			if err != nil {
				if !errors.Is(err, context.Canceled) {
					t.Fatal(err)
				}
				break
			}
			switch {
			case change.Type == api.ChangesOpen && last == "":
				if err := p.one.Delete(ctx, before.ID); err != nil {
					t.Fatal(err)
				}
				last = p.ended(t, "hello", `"y"`).ID
			case change.Type == api.RunChanged && change.Run.ID == last && change.Run.Terminal() && deleted[last] == 0:
				if err := p.one.Delete(ctx, last); err != nil {
					var gone *api.Problem
					if !errors.As(err, &gone) || gone.Code != api.CodeRunNotFound {
						t.Fatal(err)
					}
				}
			case change.Type == api.RunDeleted:
				deleted[change.RunID]++
			}
			if deleted[last] > 0 {
				stop()
			}
		}
		if len(deleted) != 2 || deleted[before.ID] != 1 || deleted[last] != 1 {
			t.Errorf("deleted: %v, want %s and %s once", deleted, before.ID, last)
		}
	})
}

// Text in the input and output of runs is found at any gateway, page by page.
func TestTextIsFound(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p pair) {
		p.put(t, "hello", `{"text":"Done, Captain"}`)
		var want []string
		for i := range 5 {
			want = append(want, p.ended(t, "hello", fmt.Sprintf(`"order no. %d"`, i)).ID)
		}
		slices.Reverse(want)
		eventually(t, "the other gateway lists all", func() error {
			page, err := p.other.List(t.Context(), url.Values{"status": {"completed"}})
			if err == nil && len(page.Items) != len(want) {
				err = fmt.Errorf("it has %d runs", len(page.Items))
			}
			return err
		})
		for text, ids := range map[string][]string{"ORDER": want, "no. 3": want[1:2], "captain": want, "nobody": nil} {
			var found []string
			for q := (url.Values{"text": {text}, "limit": {"2"}}); ; {
				page, err := p.other.List(t.Context(), q)
				if err != nil {
					t.Fatal(err)
				}
				for _, r := range page.Items {
					found = append(found, r.ID)
				}
				if page.NextCursor == nil {
					if *page.Examined != 5 || !*page.Complete {
						t.Errorf("%q: %d examined, complete %v", text, *page.Examined, *page.Complete)
					}
					break
				}
				q.Set("cursor", *page.NextCursor)
			}
			if !slices.Equal(found, ids) {
				t.Errorf("%q was found in %v, want %v", text, found, ids)
			}
		}
	})
}

// Any gateway lists a tenant's batches, newest first, page by page.
func TestBatchesAreListed(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p pair) {
		p.put(t, "hello", `{"text":"hi"}`)
		var want []string
		for n := range 3 {
			runs := make([]api.SubmitRequest, n+1)
			for i := range runs {
				runs[i] = api.SubmitRequest{Agent: "hello", Input: api.Text("x")}
			}
			made, err := p.one.SubmitBatch(t.Context(), api.BatchRequest{Runs: runs}, "")
			if err != nil {
				t.Fatal(err)
			}
			want = slices.Insert(want, 0, fmt.Sprintf("%s has %d", made.BatchID, len(runs)))
			for _, id := range made.RunIDs {
				if _, err := p.one.Wait(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
		}
		// A list may lag behind the writes of another process.
		eventually(t, "the other process lists the batches", func() error {
			var got []string
			for cursor := ""; ; {
				page, err := p.other.Batches(t.Context(), cursor, 2)
				if err != nil {
					return err
				}
				for _, b := range page.Items {
					got = append(got, fmt.Sprintf("%s has %d", b.ID, b.Total))
					if !b.Done {
						return fmt.Errorf("%s is not done: %v", b.ID, b.Counts)
					}
				}
				if page.NextCursor == nil {
					break
				}
				cursor = *page.NextCursor
			}
			if !slices.Equal(got, want) {
				return fmt.Errorf("got %v, want %v", got, want)
			}
			return nil
		})
	})
}

// A fork changes what it names, on each store. If the first gateway dies before it answers, a retry at another
// gateway under the same key returns the same run.
func TestForkIsMadeOnce(t *testing.T) {
	t.Parallel()
	onEachStore(t, func(t *testing.T, p pair) {
		p.put(t, "hello", `{"text":"hi"},{"text":"again"}`)
		source := p.ended(t, "hello", `"one"`)
		messages, err := p.other.Messages(t.Context(), source.ID)
		if err != nil {
			t.Fatal(err)
		}
		turn, instructions := 0, "Be kind."
		req := api.ForkRequest{
			Turn: &turn, Instructions: &instructions, Input: api.Text("three"),
			Messages: []api.ForkMessage{{ID: messages[0].ID, Parts: []json.RawMessage{[]byte(`{"type":"text","text":"two"}`)}}},
		}
		first, err := p.one.ForkWithKey(t.Context(), source.ID, req, "key")
		if err != nil {
			t.Fatal(err)
		}
		second, err := p.other.ForkWithKey(t.Context(), source.ID, req, "key")
		if err != nil || second.ID != first.ID {
			t.Fatalf("got %s and %s, %v", first.ID, second.ID, err)
		}
		instructions = "Be rude."
		if again, err := p.other.ForkWithKey(t.Context(), source.ID, req, "key"); err == nil {
			t.Errorf("a second fork under the same key is %s", again.ID)
		}
		if run, err := p.other.Wait(t.Context(), first.ID); err != nil || run.Status != "completed" {
			t.Fatalf("%+v, %v", run, err)
		}
		if messages, err = p.other.Messages(t.Context(), first.ID); err != nil {
			t.Fatal(err)
		}
		var said []string
		for _, m := range messages {
			for _, part := range m.Parts {
				said = append(said, part.Text)
			}
		}
		if want := []string{"Be kind.", "two", "three", "hi"}; !slices.Equal(said, want) {
			t.Errorf("the fork has the detail %q, want %q", said, want)
		}
	})
}
