package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// agentName returns the name of an agent that is given by name, or by a file that
// defines it. No agent has a / in its name.
func agentName(e *env, name string) (string, error) {
	if ext := filepath.Ext(name); ext != ".yaml" && ext != ".yml" && ext != ".json" && !strings.ContainsRune(name, '/') {
		return name, nil
	}
	put, err := putFile(e, name)
	return put.Name, named(err)
}

// noName returns the error for a definition without a name.
func noName(path string) error {
	return fmt.Errorf("%s: the field name is missing: set it to a name for the agent", path)
}

// putFile saves the agent that a file defines, and prints the warnings of the gateway.
func putFile(e *env, path string) (api.SavedAgent, error) {
	stored, err := saveFile(e, path)
	if err == nil {
		e.warn(path, stored.Warnings)
	}
	return stored, err
}

// loadAgent reads a definition from a file, or from standard input.
func (e *env) loadAgent(path string) (agent.Definition, error) {
	if path != stdin {
		return agent.Load(path)
	}
	data, err := e.readFile(path)
	if err != nil {
		return agent.Definition{}, err
	}
	def, err := agent.Parse(data)
	if err != nil {
		return def, agent.InFile(path, data, err)
	}
	return def, nil
}

func saveFile(e *env, path string) (api.SavedAgent, error) {
	def, err := e.loadAgent(path)
	if err != nil {
		return putUnread(e, path, err)
	}
	if def.Name == "" {
		return api.SavedAgent{}, noName(path)
	}
	if def.Model.ResponsesFile != "" { // Load would have read it
		return api.SavedAgent{}, fmt.Errorf("%s: model.responses_file is a path relative to the agent's file, but the agent comes from standard input: set model.responses instead, or name the agent's file", path)
	}
	b, err := json.Marshal(def)
	if err != nil {
		return api.SavedAgent{}, err
	}
	stored, err := e.client.PutAgent(e.ctx, def.Name, b)
	if p, ok := errors.AsType[*api.Problem](err); ok && len(p.Errors) > 0 {
		return stored, e.inFile(path, p)
	}
	return stored, err
}

// putUnread sends a file that Load refused with err to the gateway unchanged. The gateway has more providers and kinds
// of tool, so it may accept the file or find other mistakes, and a newer gateway may accept keys that this program
// considers mistakes. Every gateway refuses a responses_file.
func putUnread(e *env, path string, err error) (api.SavedAgent, error) {
	var named struct {
		Name  string
		Model struct {
			File string `json:"responses_file"`
		}
	}
	data, failed := e.readFile(path)
	if failed != nil || len(data) > agent.MaxDefinition || yaml.Unmarshal(data, &named) != nil || named.Name == "" || named.Model.File != "" {
		return api.SavedAgent{}, err
	}
	stored, failed := e.client.PutAgent(e.ctx, named.Name, data)
	if p, ok := errors.AsType[*api.Problem](failed); ok && len(p.Errors) > 0 {
		return stored, e.inFile(path, p)
	}
	if failed != nil {
		return stored, err
	}
	return stored, nil
}

// warn prints the resources that the definition in a file refers to and that the deployment lacks.
func (e *env) warn(path string, warnings []api.Warning) { warn(e.errs, path, e.readFile, warnings) }

func warn(out io.Writer, path string, read func(string) ([]byte, error), warnings []api.Warning) {
	if len(warnings) == 0 {
		return
	}
	faults := make([]*agent.Fault, len(warnings))
	for i, w := range warnings {
		faults[i] = &agent.Fault{At: w.At, Text: w.Detail}
	}
	data, err := read(path)
	if err != nil {
		data = nil // the file has just been deleted: print no line numbers
	}
	for _, f := range agent.Locate(data, faults) {
		fmt.Fprintln(out, agent.InFileAt(path, &agent.Fault{At: "warning", Text: f.Error(), Line: f.Line, Column: f.Column}))
	}
}

// inFile adds positions in the file to the mistakes in it that the gateway has found.
func (e *env) inFile(path string, p *api.Problem) error {
	data, err := e.readFile(path)
	if err != nil {
		return p
	}
	faults := make([]error, len(p.Errors))
	for i, f := range p.Errors {
		faults[i] = &agent.Fault{At: f.At, Text: f.Detail, Line: f.Line, Column: f.Column}
	}
	return agent.InFile(path, data, errors.Join(faults...))
}

// agentFiles returns the paths of the definitions in a directory.
func agentFiles(dir string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if info, err := os.Stat(dir); err != nil {
		return nil, fmt.Errorf("the directory of agent files cannot be read: %w: name a directory that this user can read", err)
	} else if !info.IsDir() {
		return nil, fmt.Errorf("%s is not a directory: name the directory that has the agent files", dir)
	}
	return files, nil
}
