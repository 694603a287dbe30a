package gateway_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// deaf is a reader that stops reading after the first bytes, until it is released.
type deaf struct {
	*httptest.ResponseRecorder

	begun, release chan struct{}
	writes         atomic.Int64
}

func (d *deaf) Write(b []byte) (int, error) {
	if d.writes.Add(1) == 1 {
		close(d.begun)
	} else {
		<-d.release
	}
	return len(b), nil
}

// Pending output for a reader that does not read is bounded in bytes, not only in number: 256 events of 64 KiB
// would be 16 MiB per reader.
func TestSlowReaderIsBoundedInBytes(t *testing.T) { //nolint:paralleltest // it measures memory
	s := newDeployment(t)
	b := muted{s.bus, make(chan func(bus.Notice), 8)}
	g, err := gateway.New(s.store, b, gateway.Config{})
	if err != nil {
		t.Fatal(err)
	}
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	id := run["id"].(string)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	slow := make([]*deaf, 4)
	var all sync.WaitGroup
	for i := range slow {
		slow[i] = &deaf{httptest.NewRecorder(), make(chan struct{}), make(chan struct{}), atomic.Int64{}}
		req := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v1/runs/"+id+"/events", nil)
		all.Go(func() { g.Handler().ServeHTTP(slow[i], req) })
		<-slow[i].begun
	}
	tell := <-b.watched
	before := inUse()
	for range 256 {
		tell(bus.Notice{Live: api.EncodeLive(state.RunID(id), api.Live{Type: state.LiveToolProgress, Turn: 99, Progress: strings.Repeat("x", 64<<10)})})
	}
	if held := inUse() - before; held > 1<<20 {
		t.Errorf("%d readers that do not read hold %d KiB", len(slow), held>>10)
	}
	leave()
	for _, d := range slow {
		close(d.release)
	}
	all.Wait()
}

// inUse returns the size of reachable memory.
func inUse() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // less than the machine's memory
}
