// Command turnpike runs LLM agents as events on a queue: a whole deployment in one
// process for development, and the client of any other.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/turnpike-dev/turnpike/internal/app"
	"github.com/turnpike-dev/turnpike/pkg/client"
)

// cli is the command line.
type cli struct {
	Server string `env:"TURNPIKE_URL" default:"http://127.0.0.1:7070" help:"Address of the gateway."`
	Output string `short:"o" enum:"text,json" default:"text" help:"Output format: ${enum}."`

	Dev     devCmd     `cmd:"" help:"Run a whole deployment in one process, durable on disk."`
	Demo    demoCmd    `cmd:"" help:"See a run survive the death of its worker."`
	Run     runCmd     `cmd:"" help:"Submit a run and follow it; exits 0 only if it completes."`
	Submit  submitCmd  `cmd:"" help:"Submit a run and print its id."`
	Batch   batchCmd   `cmd:"" help:"Submit many runs at once, and see how they stand."`
	Ps      psCmd      `cmd:"" help:"List runs."`
	Show    showCmd    `cmd:"" help:"Show a run: where it stands, its turns and messages."`
	Watch   watchCmd   `cmd:"" help:"Follow a run's events."`
	Cancel  cancelCmd  `cmd:"" help:"Abort a run."`
	Approve approveCmd `cmd:"" help:"Approve a tool call that waits for it."`
	Deny    denyCmd    `cmd:"" help:"Deny a tool call that waits for approval."`
	Answer  answerCmd  `cmd:"" help:"Answer a question that a run asks."`
	Fork    forkCmd    `cmd:"" help:"Start a run that shares the history of another up to a turn."`
	Message messageCmd `cmd:"" help:"Say something to a run: steer it, or continue a finished one."`
	Agents  agentsCmd  `cmd:"" help:"Define, list and remove agents."`
	Tools   toolsCmd   `cmd:"" help:"Find and call the tools that NATS services offer."`
	MCP     mcpCmd     `cmd:"" name:"mcp" help:"Look at MCP servers."`
	Dead    deadCmd    `cmd:"" help:"See what was given up on, and take it up again."`
	Doctor  doctorCmd  `cmd:"" help:"Check every dependency and say what is wrong."`

	MockModel  mockModelCmd  `cmd:"" help:"Run a scriptable model server with the providers' wire formats."`
	Bench      benchCmd      `cmd:"" help:"Measure the real path, and the floor under it."`
	DemoWorker demoWorkerCmd `cmd:"" hidden:""`
	BenchChild benchChildCmd `cmd:"" hidden:""`
	NATSServer natsServerCmd `cmd:"" name:"nats-server" hidden:""`
}

// env is what commands work with.
type env struct {
	ctx      context.Context //nolint:containedctx // of this one invocation
	client   *client.Client
	server   string
	out      io.Writer
	json     bool
	terminal bool
}

// exitError ends the process with a code of its own and no further message.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit code %d", int(e)) }

func main() {
	var c cli
	k := app.Parse(&c, "turnpike", "Runs LLM agents as events on a queue.", kong.ConfigureHelp(kong.HelpOptions{Compact: true}))
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	e := &env{
		ctx: ctx, client: client.New(c.Server), server: c.Server, out: os.Stdout, json: c.Output == "json",
		terminal: term.IsTerminal(int(os.Stdout.Fd())),
	}
	err := k.Run(e)
	stop()
	if code, ok := errors.AsType[exitError](err); ok {
		os.Exit(int(code))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "turnpike:", explain(err, c.Server))
		os.Exit(1)
	}
}

// explain adds how to mend it to errors that need it.
func explain(err error, server string) string {
	if errors.Is(err, syscall.ECONNREFUSED) {
		return fmt.Sprintf("nothing listens at %s: start `turnpike dev`, or name a gateway with --server", server)
	}
	return err.Error()
}
