package main

import (
	"fmt"
	"io"
	"os"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type hooksCmd struct {
	Put  hooksPutCmd  `cmd:"" help:"Store a hook from a file: each webhook that another system delivers to it starts a run or sends a signal."`
	Ls   hooksLsCmd   `cmd:"" help:"List hooks."`
	Show hooksShowCmd `cmd:"" help:"Show a hook."`
	Rm   hooksRmCmd   `cmd:"" help:"Remove a hook. Its runs continue."`
}

type hooksPutCmd struct {
	Name string `arg:"" help:"Name of the hook, which ends its address."`
	File string `arg:"" help:"File with the settings in YAML or JSON; - is standard input."`
}

func (c *hooksPutCmd) Run(e *env) error {
	var read api.Hook
	if err := e.decodeNamed(c.File, c.Name, &read, &read.Name); err != nil {
		return err
	}
	h, err := e.client.PutHook(e.ctx, c.Name, read.HookSettings)
	if err != nil {
		return err
	}
	e.warn(c.File, h.Warnings)
	return e.print(h, fmt.Sprintf("hook %s takes deliveries at %s%s", h.Name, strings.TrimSuffix(e.server, "/"), h.Path))
}

// decodeNamed reads a file into out, which has the type that show -o json prints. in is the field of out with the name,
// which must be empty or name.
func (e *env) decodeNamed(file, name string, out any, in *string) error {
	if err := e.decodeFile(file, out); err != nil {
		return err
	}
	if *in != "" && *in != name {
		return usagef("%s has the name %q, but the command names %q: omit name in the file, or write the same name", file, *in, name)
	}
	return nil
}

// decodeFile reads a file of YAML or JSON into out; - is standard input.
func (e *env) decodeFile(name string, out any) error {
	text, err := e.readFile(name)
	if err != nil {
		return err
	}
	data, err := yaml.YAMLToJSONStrict(text)
	if err == nil {
		err = api.Decode(data, out)
	}
	if err != nil {
		return usagef("%s: %w", name, err)
	}
	return nil
}

// stdin is the name of a file that stands for standard input.
const stdin = "-"

// readFile reads a file, or standard input, which it returns each time.
func (e *env) readFile(name string) ([]byte, error) {
	if name != stdin {
		data, err := os.ReadFile(name)
		return data, named(err)
	}
	if e.stdin == nil {
		data, err := io.ReadAll(e.in)
		if err != nil {
			return nil, err
		}
		e.stdin = data
	}
	return e.stdin, nil
}

type hooksLsCmd struct {
	Limit int `default:"200" help:"Maximum number of hooks."`
}

func (c *hooksLsCmd) Run(e *env) error {
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.Hook], error) {
		return e.client.Hooks(e.ctx, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("NAME\tVERIFY\tAGENT\tPATH", page.Items, func(h api.Hook) string {
		agent := "-"
		if h.Run != nil {
			agent = h.Run.Agent
		}
		return strings.Join([]string{h.Name, h.Verify, agent, h.Path}, "\t")
	}))
}

type hooksShowCmd struct {
	Name string `arg:"" help:"Name of the hook."`
}

func (c *hooksShowCmd) Run(e *env) error {
	h, err := e.client.Hook(e.ctx, c.Name)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(h)
	if err != nil {
		return err
	}
	return e.print(h, strings.TrimSuffix(string(text), "\n"))
}

type hooksRmCmd struct {
	Name string `arg:"" help:"Name of the hook."`
}

func (c *hooksRmCmd) Run(e *env) error {
	if err := e.client.DeleteHook(e.ctx, c.Name); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": c.Name}, "removed hook "+c.Name)
}
