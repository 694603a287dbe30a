// Toolkind is a kind of tool of a third party's: tools of kind file read the files of
// a directory. The gateway is given what it must know of the kind (filespec), the
// worker what it does (filekind); nothing else changes.
//
//	go run ./examples/toolkind
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/examples/toolkind/filekind"
	"github.com/turnpike-dev/turnpike/examples/toolkind/filespec"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/client"
	"github.com/turnpike-dev/turnpike/pkg/gateway"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/worker"
)

// definition is an agent with a tool of kind file, and a model that plays a script.
const definition = `
name: librarian
model:
  provider: scripted
  responses:
    - {tool_calls: [{name: notes, arguments: {path: .}}]}
    - {tool_calls: [{name: notes, arguments: {path: today.txt}}]}
    - {tool_calls: [{name: notes, arguments: {path: ../../etc/passwd}}]}
    - {text: "Your notes say: buy milk."}
tools:
  - {name: notes, kind: file, root: %q, description: Reads notes., idempotent: true}
`

// run is a whole deployment in memory: a gateway, a worker, and one run.
func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "notes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the system's own place for it
	if err := os.WriteFile(filepath.Join(dir, "today.txt"), []byte("buy milk"), 0o600); err != nil {
		return err
	}

	store, bus := memstore.New(memstore.Config{}), membus.New()
	ctx, stop := context.WithCancel(ctx)
	var deployment sync.WaitGroup
	defer deployment.Wait()
	defer stop()
	w, err := worker.New(store, bus, worker.Config{
		ID: "worker", Logger: zerolog.Nop(),
		Providers: map[string]model.Provider{"scripted": scripted.New()},
		Kinds:     toolspec.Kinds(nil).With(tool.Kinds{filespec.Kind: filekind.New(dir)}),
	})
	if err != nil {
		return err
	}
	deployment.Go(func() { _ = w.Run(ctx) })

	kinds := toolspec.Builtin()
	kinds[filespec.Kind] = filespec.Spec
	g, err := gateway.New(store, bus, gateway.Config{Kinds: kinds})
	if err != nil {
		return err
	}
	deployment.Go(func() { _ = g.Run(ctx) })
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: g.Handler(), ReadHeaderTimeout: time.Second}
	deployment.Go(func() { _ = server.Serve(listener) })
	defer server.Close() //nolint:errcheck // the process ends

	c := client.New("http://" + listener.Addr().String())
	if _, err := c.PutAgent(ctx, "librarian", fmt.Appendf(nil, definition, dir)); err != nil {
		return err
	}
	started, err := c.Submit(ctx, api.SubmitRequest{Agent: "librarian", Input: json.RawMessage(`"What do I have to do today?"`)}, "")
	if err != nil {
		return err
	}
	for e, err := range c.Events(ctx, started.ID, 0) {
		if err != nil {
			return err
		}
		switch {
		case e.Type == state.EntryTool:
			fmt.Fprintf(out, "%-14s error=%-5t %s\n", e.Type, e.IsError, e.Message.Parts[0].Content)
		case e.Type == state.EntryModel && e.Message != nil && e.Message.Text() != "":
			fmt.Fprintf(out, "%-14s %s\n", e.Type, e.Message.Text())
		case e.Type == state.EntryFinished:
			fmt.Fprintf(out, "%-14s %s\n", e.Type, e.Reason)
		}
	}
	return nil
}

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}
