package gateway_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// elsewhere is a store whose agents are kept in another one than its runs.
type elsewhere struct {
	state.RunStore
	state.AdminStore
	state.Quotas
	state.Timers
}

// A gateway that knows an agent notices at once what another gateway changes of it.
func TestAgentChangedElsewhere(t *testing.T) {
	t.Parallel()
	redis := func(t *testing.T) state.Store {
		t.Helper()
		s, err := redisstore.Open(t.Context(), redisstore.Config{URL: testbed.Redis(t), Prefix: "t-" + strings.ToLower(ulid.Make().String())})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		return s
	}
	memory := func(*testing.T) state.Store { return memstore.New(memstore.Config{}) }
	for name, open := range map[string]func(t *testing.T) state.Store{
		"redis": redis, "memory": memory,
		"parts": func(t *testing.T) state.Store {
			t.Helper()
			s := memory(t)
			return elsewhere{redis(t), s, s, s}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := open(t)
			var clients [2]*api.Client
			for i := range clients {
				g, err := gateway.New(store, membus.New(), gateway.Config{})
				if err != nil {
					t.Fatal(err)
				}
				server := httptest.NewServer(g.Handler())
				t.Cleanup(server.Close)
				clients[i] = api.New(server.URL)
			}
			put := func(text string) {
				t.Helper()
				if _, err := clients[0].PutAgent(t.Context(), "a", fmt.Appendf(nil, `{"model":{"provider":"scripted","responses":[{"text":%q}]}}`, text)); err != nil {
					t.Fatal(err)
				}
			}
			submit := func(version int, key string) (string, error) {
				run, err := clients[1].Submit(t.Context(), api.SubmitRequest{Agent: "a", AgentVersion: version, Input: json.RawMessage(`"go"`)}, key)
				return run.ID, err
			}
			uses := func(version int, key string) string {
				t.Helper()
				id, err := submit(0, key)
				if err != nil {
					t.Fatal(err)
				}
				if run, err := store.Load(t.Context(), state.RunID(id)); err != nil || run.AgentVersion != version {
					t.Errorf("the run has version %d, %v, want %d", run.AgentVersion, err, version)
				}
				return id
			}
			put("one")
			first := uses(1, "key")
			uses(1, "")
			for version := 2; version < 5; version++ {
				put(fmt.Sprint(version))
				uses(version, "")
			}
			put("five")
			uses(5, "new key")
			if id := uses(1, "key"); id != first {
				t.Errorf("a known key returns run %s, want %s", id, first)
			}
			if err := clients[0].DeleteAgent(t.Context(), "a"); err != nil {
				t.Fatal(err)
			}
			for _, key := range []string{"", "another key"} {
				if p, ok := errors.AsType[*api.Problem](second(submit(0, key))); !ok || p.Status != 404 {
					t.Errorf("after the deletion, with key %q: %v, want status 404", key, p)
				}
			}
			if id := uses(1, "key"); id != first {
				t.Errorf("after the deletion a known key returns run %s, want %s", id, first)
			}
			if _, err := submit(5, ""); err != nil {
				t.Errorf("a version of a deleted agent: %v", err)
			}
			put("six")
			uses(6, "")

			// The version that the gateway knows refuses the submission.
			define := func(instructions string) {
				t.Helper()
				if _, err := clients[0].PutAgent(t.Context(), "a", fmt.Appendf(nil, `{%s"model":{"provider":"scripted","responses":[{"text":"x"}]}}`, instructions)); err != nil {
					t.Fatal(err)
				}
			}
			define(`"instructions":"Help {{who}}.","variables":{"type":"object","required":["who"],"properties":{"who":{"type":"string"}}},`)
			if p, ok := errors.AsType[*api.Problem](second(submit(0, ""))); !ok || p.Status != 400 {
				t.Errorf("without a variable: %v, want status 400", p)
			}
			define("")
			uses(8, "")

			// The files of a run that is stored at the second attempt are recorded once.
			file, err := clients[1].PutFile(t.Context(), api.FileUpload{Name: "a.txt", Content: strings.NewReader("text")})
			if err != nil {
				t.Fatal(err)
			}
			define(`"instructions":"Read.",`)
			run, err := clients[1].Submit(t.Context(), api.SubmitRequest{Agent: "a", Input: json.RawMessage(`[{"role":"user","parts":[{"type":"file","file_id":"` + file.ID + `"}]}]`)}, "")
			if err != nil {
				t.Fatal(err)
			}
			if names, err := store.DocumentNames(t.Context(), state.FileUsersOf(file.ID)); err != nil || len(names) != 1 || !strings.HasSuffix(names[0], run.ID) {
				t.Errorf("the file is used by %q, %v, want run %s", names, err, run.ID)
			}
		})
	}
}

func second[T any](_ T, err error) error { return err }
