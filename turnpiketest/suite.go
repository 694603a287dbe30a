package turnpiketest

import (
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/bus/bustest"
	"github.com/turnpike-dev/turnpike/internal/loop/looptest"
	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/internal/state/statetest"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Store tests that a store keeps the contract of state.Store: it runs the suites of all parts. open returns an empty
// store that shares nothing with the stores of other calls; this also holds for the suites of the parts. Tests run in
// parallel.
func Store(t *testing.T, open func(t *testing.T) state.Store) {
	t.Helper()
	RunStore(t, func(t *testing.T) state.RunStore { t.Helper(); return open(t) })
	AdminStore(t, func(t *testing.T) state.AdminStore { t.Helper(); return open(t) })
	Quotas(t, func(t *testing.T) state.Quotas { t.Helper(); return open(t) })
	Timers(t, func(t *testing.T) state.Timers { t.Helper(); return open(t) })
}

// RunStore tests that a store keeps the contract of state.RunStore. In addition to a test of each promise, it makes
// the same random calls on the store and on memstore, and compares the answers, as often as -rapid.checks says; it
// closes these stores if they are io.Closers. A store that records no heartbeats passes.
func RunStore(t *testing.T, open func(t *testing.T) state.RunStore) {
	t.Helper()
	statetest.Runs(t, open)
	t.Run("Heartbeats", func(t *testing.T) {
		t.Parallel()
		s := open(t)
		if err := s.Heartbeat(t.Context(), "any", time.Hour); err != nil {
			t.Fatal(err)
		}
		if alive, err := s.Alive(t.Context(), "any"); err == nil && !alive {
			t.Skip("the store records no heartbeats")
		}
		statetest.Heartbeats(t, s)
	})
	t.Run("SignalKeysAreBounded", func(t *testing.T) {
		t.Parallel()
		statetest.ManySignals(t, open(t))
	})
	t.Run("Agree", func(t *testing.T) {
		t.Parallel()
		statetest.Agree(t, open, func(*testing.T) *memstore.Store { return memstore.New(memstore.Config{}) })
	})
}

// AdminStore tests that a store keeps the contract of state.AdminStore.
func AdminStore(t *testing.T, open func(t *testing.T) state.AdminStore) {
	t.Helper()
	statetest.Admin(t, open)
}

// Quotas tests that a store keeps the contract of state.Quotas.
func Quotas(t *testing.T, open func(t *testing.T) state.Quotas) {
	t.Helper()
	statetest.Quotas(t, open)
}

// Timers tests that a store keeps the contract of state.Timers. One test puts ten thousand timers, or a thousand with
// -short.
func Timers(t *testing.T, open func(t *testing.T) state.Timers) {
	t.Helper()
	statetest.Timers(t, open)
}

// BusAckWait is the time after which the buses of the suite [Bus] must deliver an unacknowledged message again.
const BusAckWait = bustest.AckWait

// TestBus is a bus under test. Submit puts a submission into its intake, as a service that publishes one does.
type TestBus interface {
	bus.Bus

	Submit(tenant, agent string, data []byte, headers map[string]string)
}

// Bus tests that a bus keeps the contract of bus.Bus. open returns a bus with the ack wait [BusAckWait] that shares
// nothing with the buses of other calls. Tests run in parallel.
func Bus(t *testing.T, open func(t *testing.T) TestBus) {
	t.Helper()
	bustest.Exercise(t, func(t *testing.T) bus.Bus {
		t.Helper()
		return open(t)
	})
}

// Loop takes the loops of agents through random histories, with difficult models, tools, hooks, people, aborts and
// crashes, and checks after each step the rules of [loop.Loop]. Each definition names one of the loops. It takes as
// many histories as -rapid.checks says for each definition.
func Loop(t *testing.T, loops loop.Registry, definitions ...agent.Definition) {
	t.Helper()
	looptest.Exercise(t, loops, definitions...)
}

// ProviderKey is the API key of the requests of the suite [Provider]. No error may repeat it.
const ProviderKey = modeltest.Key

// ProviderFeatures describes a provider for the suite [Provider].
type ProviderFeatures struct {
	Name string // Response.Provider

	Wire       bool // responses arrive over a connection that can break
	Signed     bool // thinking has a signature, which must be sent back
	WholeCalls bool // a tool call arrives in one piece

	CacheRead, CacheWrite bool // usage counts cached tokens separately
}

// ProviderScript describes the API behind a provider: the n-th call of a run gets the n-th response.
type ProviderScript struct {
	Responses []model.Scripted
	Pace      time.Duration // between the pieces of a stream
	CutAfter  int64         // bytes after which the connection breaks; 0 means never
}

// Provider tests that a provider keeps the contract of model.Provider. open returns a provider whose API follows a
// script, and the request that reaches it, with [ProviderKey] as API key. Tests run in parallel.
func Provider(t *testing.T, f ProviderFeatures, open func(t *testing.T, s ProviderScript) (model.Provider, model.Request)) {
	t.Helper()
	features := modeltest.Features{Name: f.Name, Wire: f.Wire, Signed: f.Signed, WholeCalls: f.WholeCalls, CacheRead: f.CacheRead, CacheWrite: f.CacheWrite}
	modeltest.Exercise(t, features, func(t *testing.T, s modeltest.Script) (model.Provider, model.Request) {
		t.Helper()
		return open(t, ProviderScript(s))
	})
}
