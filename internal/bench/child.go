package bench

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Child is a gateway or a worker of a measurement, as a process of its own.
type Child struct {
	NATSURL  string `arg:""`
	RedisURL string `arg:""`
	ID       string `help:"Of the worker; without it the process is a gateway."`
	Slots    int    `default:"1000" help:"Turns in flight at once."`
	Tenant   string `name:"gateway-tenant" default:"default" help:"Of the gateway."`
}

// Subjects on which a worker tells the measurement what it cannot see from outside.
const (
	subjectCancelled = "bench.cancelled."
	subjectCalls     = "bench.calls."
)

func (c Child) open(ctx context.Context) (*deploy.Deployment, error) {
	return app.Open(ctx, app.Config{NATSURL: c.NATSURL, RedisURL: c.RedisURL, Log: app.Log{LogLevel: "error"}}, nil, "bench "+c.ID, nil)
}

// Run is the whole life of the process. A gateway writes its URL to out when it listens.
func (c Child) Run(ctx context.Context, out io.Writer) error {
	d, err := c.open(ctx)
	if err != nil {
		return err
	}
	defer d.Close()
	if c.ID != "" {
		return c.work(ctx, d)
	}
	listener, err := app.Listen("127.0.0.1:0")
	if err != nil {
		return err
	}
	g, err := d.NewGateway(gateway.Config{Tenant: c.Tenant})
	if err != nil {
		return err
	}
	fmt.Fprintln(out, "http://"+listener.Addr().String())
	return g.Serve(ctx, listener)
}

// work is a worker whose model is the scripted one, in its process, so that nothing
// but Turnpike is measured.
func (c Child) work(ctx context.Context, d *deploy.Deployment) error {
	m := &watchedModel{Provider: scripted.New(), nc: d.NATS}
	w, err := d.NewWorker(worker.Config{
		ID: c.ID, Slots: c.Slots, Providers: map[string]model.Provider{"scripted": m}, ShutdownGrace: time.Second,
		Kinds: toolspec.Kinds(map[string]tool.Tool{"noop": noop}), Without: optimisations(),
	})
	if err != nil {
		return err
	}
	sub, err := d.NATS.Subscribe(subjectCalls+c.ID, func(r *nats.Msg) {
		_ = r.Respond([]byte(strconv.FormatInt(m.calls.Load(), 10)))
	})
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return w.Run(ctx) })
	group.Go(func() error {
		<-ctx.Done()
		return sub.Unsubscribe()
	})
	return group.Wait()
}

// noop is the tool of the measurements.
var noop = tool.Func(func(context.Context, tool.Call) (tool.Result, error) {
	return tool.Result{Content: strings.Repeat("x", 400)}, nil
})

// watchedModel counts calls, and tells when the context of one has ended.
type watchedModel struct {
	model.Provider

	nc    *nats.Conn
	calls atomic.Int64
}

// Self implements model.Cancelable, as the providers do that ship with Turnpike.
func (m *watchedModel) Self() model.Provider { return m }

func (m *watchedModel) Generate(ctx context.Context, r model.Request, onDelta func(model.Delta)) (resp model.Response, err error) {
	m.calls.Add(1)
	resp, err = m.Provider.Generate(ctx, r, onDelta)
	if ctx.Err() != nil {
		m.cancelled(r.Run)
	}
	return resp, err
}

func (m *watchedModel) cancelled(run state.RunID) {
	// The clock is the machine's, the same for both ends.
	at := strconv.FormatInt(time.Now().UnixNano(), 10)
	_ = m.nc.Publish(subjectCancelled+string(run), []byte(at))
}
