// Package demo shows in a few seconds what Turnpike is for: a run whose worker is
// killed in the middle of a turn, and finishes without a step done twice.
package demo

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/term"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/gateway"
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/internal/watch"
	"github.com/turnpike-dev/turnpike/internal/worker"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const definition = `
name: traveller
instructions: You plan trips.
model:
  provider: scripted
  responses:
    - {text: "I look at the weather first.", tool_calls: [{name: weather, id: call_weather, arguments: {city: Lisbon}}]}
    - {text: "Sunny. I book the train.", tool_calls: [{name: book, id: call_book, arguments: {to: Lisbon}}]}
    - {text: "You are booked to Lisbon; it will be sunny."}
tools:
  - {name: weather, idempotent: true, schema: {type: object, required: [city], properties: {city: {type: string}}}}
  - {name: book, idempotent: true, schema: {type: object, required: [to], properties: {to: {type: string}}}}
`

// size is the number of the demo's workers; bookTime is how long its booking takes: long enough to be killed in.
const (
	size     = 3
	bookTime = 2 * time.Second
)

// Main is a program that is the demo and nothing else: it plays it on out, and is its
// worker processes.
func Main(ctx context.Context, args []string, out *os.File) error {
	if len(args) == 4 && args[0] == workerCommand {
		return Worker(ctx, args[1], args[2], args[3])
	}
	return Run(ctx, &watch.Printer{Out: out, Terminal: term.IsTerminal(int(out.Fd()))})
}

// workerCommand is the argument that makes the demo's program start as a worker. Its
// other arguments are those of Worker.
const workerCommand = "demo-worker"

// Run plays the demo on p.
func Run(ctx context.Context, p *watch.Printer) (err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	dir, err := os.MkdirTemp("", "turnpike-demo-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	server, err := devserver.Start(devserver.Options{Dir: filepath.Join(dir, "data"), Listen: "127.0.0.1:0"})
	if err != nil {
		return err
	}
	defer server.Close()
	nc, err := server.Conn("demo")
	if err != nil {
		return err
	}
	defer nc.Close()
	d, err := deploy.Open(ctx, deploy.Config{NATS: nc})
	if err != nil {
		return err
	}
	defer d.Close()
	g, err := d.NewGateway(gateway.Config{})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	defer func() {
		cancel()
		if waitErr := group.Wait(); err == nil {
			err = waitErr
		}
	}()
	group.Go(func() error { return g.Serve(ctx, listener) })

	ledger := filepath.Join(dir, "ledger")
	workers := staff{}
	defer workers.dismiss()
	hire := func() error { return workers.hire(ctx, d.Bus, server.URL(), ledger) }
	fmt.Fprintf(p.Out, "%d workers, each a process of its own; NATS and the store are embedded.\n\n", size)
	return play(ctx, p, api.New("http://"+listener.Addr().String()), workers, hire, ledger)
}

// play submits the run, starts the workers with hire, kills the one that books, and checks the outcome. The workers
// start once the run's events arrive, because live events, such as that of a started tool, are not repeated.
func play(ctx context.Context, p *watch.Printer, c *api.Client, staff staff, hire func() error, ledger string) error {
	if _, err := c.PutAgent(ctx, "traveller", []byte(definition)); err != nil {
		return err
	}
	run, err := c.Submit(ctx, api.SubmitRequest{Agent: "traveller", Input: json.RawMessage(`"Get me to Lisbon."`)}, "")
	if err != nil {
		return err
	}
	fmt.Fprintf(p.Out, "run %s\n", run.ID)
	var killed string
	var killedAt time.Time
	var gap time.Duration
	for e, err := range c.Events(ctx, run.ID, 0) {
		if err != nil {
			return err
		}
		p.Show(e)
		if len(staff) == 0 {
			if err := hire(); err != nil {
				return err
			}
		}
		if e.Type == state.LiveToolStarted && e.Name == "book" {
			if killed == "" {
				killed, killedAt = e.Worker, time.Now()
				staff.kill(killed)
				fmt.Fprintf(p.Out, "  ☠ kill -9 %s, in the middle of turn %d\n", killed, e.Turn)
			} else if gap == 0 {
				gap = time.Since(killedAt)
			}
		}
	}
	done, err := c.Get(ctx, run.ID)
	if err != nil {
		return err
	}
	return verify(p.Out, done, killed, gap, ledger)
}

// verify checks that nothing was lost and nothing done twice.
func verify(out io.Writer, done api.Run, killed string, gap time.Duration, ledger string) error {
	booked, err := os.ReadFile(ledger)
	if err != nil {
		return fmt.Errorf("read ledger: %w", err)
	}
	lines := bytes.Count(booked, []byte("\n"))
	switch {
	case killed == "":
		return fmt.Errorf("no worker was killed, so the demo shows nothing: start it again")
	case done.Status != string(state.Completed):
		return fmt.Errorf("the run ended with the status %s, not completed: report this bug in Turnpike with the output of the demo", done.Status)
	case done.Usage.ModelCalls != 3:
		return fmt.Errorf("the model was called %d times, not 3: start the demo again, and if this repeats, report this bug in Turnpike with the output of the demo", done.Usage.ModelCalls)
	case lines != 2:
		return fmt.Errorf("the tools had %d effects, not 2: start the demo again, and if this repeats, report this bug in Turnpike with the output of the demo and this ledger:\n%s", lines, booked)
	}
	fmt.Fprintf(out, "\n%s died; another worker resumed the turn %s later, from its journal.\n", killed, gap.Round(10*time.Millisecond))
	fmt.Fprintf(out, "3 model calls, 2 tool effects, 0 repeated. The run's log says it all: %d versions, %d turns.\n", done.Version, done.TurnCount)
	return nil
}

// staff is the worker processes, by name.
type staff map[string]*exec.Cmd

// hire starts the workers, and returns when all of them have sent a heartbeat. From then on, another worker can continue
// the turn of the one that the demo kills.
func (s staff) hire(ctx context.Context, b bus.Membership, url, ledger string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	heard := make(chan string, 64)
	stop, err := b.Heartbeats(ctx, func(h bus.Heartbeat) {
		select {
		case heard <- h.Worker:
		default: // the next one does
		}
	})
	if err != nil {
		return err
	}
	defer stop()
	for i := range size {
		id := fmt.Sprintf("worker-%d", i+1)
		cmd := exec.CommandContext(ctx, self, workerCommand, url, id, ledger)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			return fmt.Errorf("start %s: %w", id, err)
		}
		s[id] = cmd
	}
	patience := time.NewTimer(30 * time.Second)
	defer patience.Stop()
	for ready := map[string]bool{}; len(ready) < size; {
		select {
		case id := <-heard:
			ready[id] = true
		case <-patience.C:
			return fmt.Errorf("only %d of %d workers have sent a heartbeat after 30 s: correct what the others report above, if anything; otherwise start the demo again when this machine has less load", len(ready), size)
		case <-ctx.Done():
			return fmt.Errorf("wait for the workers: %w", ctx.Err())
		}
	}
	return nil
}

// kill ends a worker as kill -9 does.
func (s staff) kill(id string) {
	if cmd := s[id]; cmd != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		delete(s, id)
	}
}

func (s staff) dismiss() {
	for id := range s {
		s.kill(id)
	}
}

// Worker is one worker process of the demo. Its tools write what they do into the
// ledger.
func Worker(ctx context.Context, url, id, ledger string) error {
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	d, err := deploy.Open(ctx, deploy.Config{NATSURL: url, Name: id, Logger: log})
	if err != nil {
		return err
	}
	defer d.Close()
	note := func(c tool.Call, d time.Duration) error {
		select {
		case <-time.After(d):
		case <-ctx.Done():
			return ctx.Err()
		}
		f, err := os.OpenFile(ledger, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(f, "%s %s by %s\n", c.Name, c.Arguments, id)
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		return err
	}
	tools := map[string]tool.Tool{
		"weather": tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			return tool.Result{Content: "sunny, 24 °C"}, note(c, 0)
		}),
		"book": tool.Func(func(_ context.Context, c tool.Call) (tool.Result, error) {
			return tool.Result{Content: "booked, seat 12A"}, note(c, bookTime)
		}),
	}
	w, err := d.NewWorker(worker.Config{
		ID: id, Slots: 10, ShutdownGrace: time.Second, Kinds: toolspec.Kinds(tools), Providers: map[string]model.Provider{"scripted": scripted.New()},
	})
	if err != nil {
		return err
	}
	return w.Run(ctx)
}
