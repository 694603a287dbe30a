package load

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/turnpike-dev/turnpike/internal/mockmodel"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// patience bounds how long a load may take to come to its end.
const patience = 30 * time.Minute

// modelKey names the secret with the key for the model server, which takes any.
const modelKey = "LOAD_MODEL_KEY"

// gate is a model server that can hold back its answers until a given number of requests is open.
type gate struct {
	url     string
	mock    http.Handler
	largest atomic.Int64 // bytes of a request

	mu   sync.Mutex
	open int
	want int
	full chan struct{} // closed when as many are open as are wanted
}

// The models of the server: once answers at once, pages calls the tool page until it
// has n results and ends then, steps does so with echo, as often as it is answered.
func scripts(pages, steps int) mockmodel.Config {
	done := mockmodel.Response{Scripted: model.Scripted{Text: "done"}}
	calls := func(tool string, n int) (list []mockmodel.Response) {
		for i := range n {
			call := model.ScriptedCall{Name: tool, Arguments: fmt.Appendf(nil, `{"n": %d}`, i)}
			list = append(list, mockmodel.Response{Scripted: model.Scripted{ToolCalls: []model.ScriptedCall{call}}})
		}
		return append(list, done)
	}
	return mockmodel.Config{Scripts: []mockmodel.Script{
		{Model: "^once$", Responses: []mockmodel.Response{done}},
		{Model: "^pages$", Responses: calls("page", pages)},
		{Model: "^steps$", Responses: calls("echo", steps-1), Repeat: true},
	}}
}

// stepsPerAnswer is the number of turns that the long run takes for each message: at least two, and
// an agent takes at most 200 turns.
func (z Sizes) stepsPerAnswer() int { return min(200, (z.Long+1)/2) }

func startModel(ctx context.Context, z Sizes) (*gate, error) {
	mock, err := mockmodel.New(scripts(max(1, z.History/pageSize), max(1, z.stepsPerAnswer())))
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	g := &gate{url: "http://" + l.Addr().String() + "/v1", mock: mock}
	server := &http.Server{Handler: g, ReadHeaderTimeout: time.Minute}
	context.AfterFunc(ctx, func() { _ = server.Close() })
	go func() { _ = server.Serve(l) }() // ends with ctx
	return g, nil
}

// hold makes answers wait until n requests are open, and returns a channel that then closes.
func (g *gate) hold(n int) (full <-chan struct{}) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.want, g.full = n, make(chan struct{})
	return g.full
}

func (g *gate) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if size := r.ContentLength; size > g.largest.Load() {
		g.largest.Store(size)
	}
	g.mu.Lock()
	g.open++
	full := g.full
	if full != nil && g.open == g.want {
		close(full)
		g.full = nil // from now on nobody is held
	}
	g.mu.Unlock()
	defer func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.open--
	}()
	if full != nil {
		select {
		case <-full:
		case <-r.Context().Done():
			return
		}
	}
	g.mock.ServeHTTP(w, r)
}

// pageSize is the size of the tool page's answer, in bytes.
const pageSize = 100_000

func (s *deployment) serveTools() (stop func() error, err error) {
	page := strings.Repeat("All work and no play makes a dull run. ", pageSize/39)
	return toolkit.Serve(s.Conn, rig.Prefix,
		toolkit.Tool{Name: "echo", Handler: func(_ context.Context, c toolkit.Call) (toolkit.Result, error) {
			return toolkit.Result{Content: string(c.Arguments)}, nil
		}},
		toolkit.Tool{Name: "page", Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
			return toolkit.Result{Content: page}, nil
		}},
	)
}

// define stores an agent.
func (s *deployment) define(ctx context.Context, name, definition string) error {
	_, err := s.Client.PutAgent(ctx, name, []byte(definition))
	return err
}

// submit submits one run.
func (s *deployment) submit(ctx context.Context, agent string) (api.Run, error) {
	return s.Client.Submit(ctx, api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}, "")
}

// submitMany submits n runs in batches, as fast as the gateway takes them.
func (s *deployment) submitMany(ctx context.Context, agent string, n int) (batches, runs []string, err error) {
	for n > 0 {
		size := min(n, state.MaxBatch)
		n -= size
		req := api.BatchRequest{Runs: make([]api.SubmitRequest, size)}
		for i := range req.Runs {
			req.Runs[i] = api.SubmitRequest{Agent: agent, Input: json.RawMessage(`"go"`)}
		}
		accepted, err := s.Client.SubmitBatch(ctx, req, "")
		if err != nil {
			return nil, nil, err
		}
		batches, runs = append(batches, accepted.BatchID), append(runs, accepted.RunIDs...)
	}
	return batches, runs, nil
}

// reach waits until all runs of the batches have a status, or have ended otherwise,
// which is a failure.
func (s *deployment) reach(ctx context.Context, batches []string, want state.Status) error {
	for _, id := range batches {
		err := rig.Until(ctx, patience, "batch "+id+" is "+string(want), func(context.Context) error {
			b, err := s.Client.Batch(ctx, id)
			if err != nil {
				return err
			}
			if left := b.Counts[string(state.Queued)] + b.Counts[string(state.Running)]; left > 0 {
				return fmt.Errorf("%v", b.Counts)
			}
			for status, n := range b.Counts {
				if status != string(want) && n > 0 {
					s.fail("%d runs of batch %s are %s", n, id, status)
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// end waits until a run has ended or waits, and records a failure unless it completed.
func (s *deployment) end(ctx context.Context, id string) (api.Run, error) {
	run, err := s.Client.Wait(ctx, id)
	if err == nil && run.Status != string(state.Completed) {
		s.fail("run %s is %s: %v", id, run.Status, run.Error)
	}
	return run, err
}

// restarts returns the number of times that a load itself has ended a process.
func (s *deployment) restarts(p *rig.Process) int {
	if p == s.restarted {
		return 1
	}
	return 0
}
