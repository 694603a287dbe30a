package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/turnpike-dev/turnpike/internal/lookup"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// folder is a directory whose files define agents of a tenant. With an empty dir, its methods do nothing.
type folder struct {
	dir    string
	tenant string
	store  state.Agents
	out    io.Writer // gets messages about files that are saved
	finder *lookup.Finder
}

// define stores the agents of all files. If one is invalid, it stores the others and returns an error that joins the
// mistakes.
func (f *folder) define(ctx context.Context) error {
	if f.dir == "" {
		return nil
	}
	files, err := agentFiles(f.dir)
	if err != nil {
		return usagef("--agents: %w", err)
	}
	var errs []error
	for _, file := range files {
		_, err := f.put(ctx, file)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// put stores the agent of a file. An unchanged definition makes no version, unless it pins the tools of a source.
func (f *folder) put(ctx context.Context, file string) (state.AgentVersion, error) {
	def, err := agent.Builtin().Load(file)
	if err != nil {
		return state.AgentVersion{}, err
	}
	if def.Name == "" {
		return state.AgentVersion{}, noName(file)
	}
	compiled, err := agent.Builtin().Compile(def, 0)
	if err != nil {
		if data, failed := os.ReadFile(file); failed == nil {
			err = agent.InFile(file, data, err)
		}
		return state.AgentVersion{}, err
	}
	b, err := json.Marshal(def)
	if err != nil {
		return state.AgentVersion{}, err
	}
	// A version pins what its sources of tools list, so each start lists them again.
	return f.store.PutAgent(ctx, f.tenant, def.Name, b, compiled.Pins())
}

// warn prints the resources that an agent from a file refers to and that the deployment lacks.
func (f *folder) warn(ctx context.Context, file string, v state.AgentVersion) {
	def, err := agent.Builtin().Parse(v.Definition)
	if err != nil {
		return // cannot happen: put has parsed it
	}
	a, err := agent.Builtin().Compile(def, v.Version)
	if err != nil {
		return
	}
	var warnings []api.Warning
	for _, m := range f.finder.Missing(ctx, f.tenant, a) {
		warnings = append(warnings, api.Warning{Fault: api.Fault{At: m.At, Detail: m.Why}})
	}
	warn(f.out, file, os.ReadFile, warnings)
}

// settled is the time without changes after which a saved file is read, because editors write in several steps.
const settled = 100 * time.Millisecond

// watch stores an agent when its file in the directory is saved, until ctx ends. If a file cannot be stored, for
// example because it is not valid, watch prints why, and the agent keeps its definition. Without a directory, or if it
// cannot watch the directory, which it prints, it returns at once. It always returns nil.
func (f *folder) watch(ctx context.Context) error {
	if f.dir == "" {
		return nil
	}
	w, err := fsnotify.NewWatcher()
	if err == nil {
		defer w.Close()
		err = w.Add(f.dir)
	}
	if err != nil {
		fmt.Fprintf(f.out, "the directory %s cannot be watched for changes (%v): save changed agents with turnpike agents put FILE\n", f.dir, err)
		return nil
	}
	versions := map[string]int{}
	saved := map[string]bool{}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case err := <-w.Errors:
			fmt.Fprintf(f.out, "some changes in %s may have been missed (%v): save the changed files again\n", f.dir, err)
		case e := <-w.Events:
			ext := filepath.Ext(e.Name)
			if e.Has(fsnotify.Write|fsnotify.Create) && (ext == ".yaml" || ext == ".yml" || ext == ".json") {
				saved[e.Name] = true
				pause.Reset(settled)
			}
		case <-pause.C:
			for file := range saved {
				delete(saved, file)
				if _, err := os.Stat(file); err != nil {
					continue // a temporary file of an editor
				}
				a, err := f.put(ctx, file)
				switch {
				case err != nil:
					fmt.Fprintf(f.out, "the agent in %s is not stored, and its previous version, if any, stays in use. Save the file again after this correction: %v\n", file, err)
				case versions[a.Name] != a.Version:
					versions[a.Name] = a.Version
					fmt.Fprintf(f.out, "%s version %d, from %s\n", a.Name, a.Version, file)
					f.warn(ctx, file, a)
				}
			}
		}
	}
}
