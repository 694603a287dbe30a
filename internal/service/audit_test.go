package service

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// fullStore takes no audit entries, and if full no agents either.
type fullStore struct {
	state.Store

	full bool
}

var errFull = errors.New("out of memory")

func (fullStore) AppendAudit(context.Context, string, json.RawMessage) error { return errFull }

func (s fullStore) PutAgent(ctx context.Context, tenant, name string, definition json.RawMessage, draft bool) (state.AgentVersion, error) {
	if s.full {
		return state.AgentVersion{}, errFull
	}
	return s.Store.PutAgent(ctx, tenant, name, definition, draft)
}

// A change that took effect without its audit entry is logged as an error, which the log always has. A change that
// failed as well is logged as a warning, of which the log leaves out repeats.
func TestAuditEntryNotStored(t *testing.T) {
	t.Parallel()
	for full, want := range map[bool]string{false: "ERROR", true: "WARN"} {
		var log bytes.Buffer
		s, err := New(fullStore{memstore.New(memstore.Config{}), full}, membus.New(), Config{
			Known: agent.Known{Providers: model.BuiltinSpecs()}, Prefix: "turnpike", Tenant: "default", MaxBody: 1 << 20, RedeliveryDelay: time.Minute,
			Random: rand.Reader, Logger: slog.New(slog.NewJSONHandler(&log, nil)), Registry: prometheus.NewRegistry(), Audited: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Close)
		by := access.Caller{Principal: access.Principal{Name: "ann", Via: "key"}, Tenant: "default", Roles: access.Roles()}
		_, err = s.Agents.Put(t.Context(), by, "a", []byte("name: a\nmodel: {provider: scripted, responses: [{text: done}]}\n"))
		if (err != nil) != full {
			t.Fatal(err)
		}
		if line := log.String(); !strings.Contains(line, `"level":"`+want+`","msg":"audit entry not stored"`) || !strings.Contains(line, `"target":"a"`) {
			t.Errorf("full %t: the log is %s, want a line at level %s", full, line, want)
		}
	}
}
