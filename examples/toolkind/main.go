// Toolkind is a kind of tool of a third party's: tools of kind file read the files of
// a directory. Gateways know from package filespec how its definitions read, and workers
// from package filekind what its calls do; nothing else changes.
//
//	go run ./examples/toolkind
package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"

	"github.com/turnpike-dev/turnpike"
	"github.com/turnpike-dev/turnpike/examples/toolkind/filekind"
	"github.com/turnpike-dev/turnpike/examples/toolkind/filespec"
	"github.com/turnpike-dev/turnpike/pkg/bus/membus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
	"github.com/turnpike-dev/turnpike/pkg/tool"
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

// run is a whole deployment in memory: a worker, and one run.
func run(ctx context.Context, out io.Writer) error {
	dir, err := os.MkdirTemp("", "notes")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir) //nolint:errcheck // what is left is in the system's own place for it
	if err := os.WriteFile(filepath.Join(dir, "today.txt"), []byte("buy milk"), 0o600); err != nil {
		return err
	}

	d, err := turnpike.Open(ctx, turnpike.Options{
		Store: memstore.New(memstore.Config{}), Bus: membus.New(),
		Models: turnpike.Models{"scripted": turnpike.Scripted()},
		Kinds:  tool.Kinds{filespec.Kind: filekind.New(dir)},
	})
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // the process ends
	w, err := d.NewWorker(turnpike.WorkerOptions{})
	if err != nil {
		return err
	}
	go func() { _ = w.Run(ctx) }()
	defer func() { _ = w.Stop(context.Background()) }()

	if _, err := d.PutYAML(ctx, fmt.Appendf(nil, definition, dir)); err != nil {
		return err
	}
	started, err := d.Submit(ctx, turnpike.Submission{Agent: "librarian", Input: "What do I have to do today?"})
	if err != nil {
		return err
	}
	for e, err := range started.Events(ctx, 0) {
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
