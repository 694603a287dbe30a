package main

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type memoryCmd struct {
	Ls  memoryLsCmd  `cmd:"" help:"List the files of a memory, or the memories."`
	Cat memoryCatCmd `cmd:"" help:"Print a file of a memory."`
	Put memoryPutCmd `cmd:"" help:"Write a file of a memory."`
	Rm  memoryRmCmd  `cmd:"" help:"Delete a file or directory of a memory, or all of a memory."`
}

type memoryLsCmd struct {
	Scope string `help:"The memory: tenant, agent:NAME or metadata.KEY:VALUE. Without it, list the memories."`
	Limit int    `default:"1000" help:"Maximum number of lines."`
}

func (c *memoryLsCmd) Run(e *env) error {
	if c.Scope == "" {
		page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.MemoryScope], error) {
			return e.client.MemoryScopes(e.ctx, cursor, limit)
		})
		if err != nil {
			return err
		}
		return e.print(page, table("SCOPE", page.Items, func(m api.MemoryScope) string { return m.Scope }))
	}
	page, err := upTo(c.Limit, func(cursor string, limit int) (api.Page[api.MemoryFile], error) {
		return e.client.MemoryFiles(e.ctx, c.Scope, cursor, limit)
	})
	if err != nil {
		return err
	}
	return e.print(page, table("PATH\tBYTES\tVERSION\tUPDATED\tBY\tORIGIN", page.Items, func(f api.MemoryFile) string {
		origin := string(f.Origin)
		if origin == "" {
			origin = "-"
		}
		return strings.Join([]string{f.Path, strconv.Itoa(f.Bytes), strconv.FormatInt(f.Version, 10), f.UpdatedAt.UTC().Format(time.RFC3339), f.RunID + f.UpdatedBy, origin}, "\t")
	}))
}

type memoryCatCmd struct {
	Scope string `required:"" help:"The memory: tenant, agent:NAME or metadata.KEY:VALUE."`
	Path  string `arg:"" help:"Path of the file, as ls shows it."`
}

func (c *memoryCatCmd) Run(e *env) error {
	f, err := e.client.MemoryFile(e.ctx, c.Scope, c.Path)
	if err != nil {
		return err
	}
	content := ""
	if f.Content != nil {
		content = *f.Content
	}
	return e.print(f, strings.TrimSuffix(content, "\n"))
}

type memoryPutCmd struct {
	Scope   string `required:"" help:"The memory: tenant, agent:NAME or metadata.KEY:VALUE."`
	Path    string `arg:"" help:"Path of the file."`
	File    string `arg:"" help:"File with the content; - is standard input."`
	Version *int64 `name:"if-version" help:"Write only if the file has this version; 0 means that there is none."`
}

func (c *memoryPutCmd) Run(e *env) error {
	content, err := e.readFile(c.File)
	if err != nil {
		return err
	}
	if !utf8.Valid(content) {
		return usagef("%s is not UTF-8: convert it", c.File)
	}
	f, err := e.client.PutMemoryFile(e.ctx, c.Scope, c.Path, string(content), versionOf(c.Version))
	if err != nil {
		return err
	}
	return e.print(f, fmt.Sprintf("%s has version %d", f.Path, f.Version))
}

// versionOf returns the version that a change requires: the given one, or api.AnyVersion for nil.
func versionOf(given *int64) int64 {
	if given == nil {
		return api.AnyVersion
	}
	return *given
}

type memoryRmCmd struct {
	Scope   string `required:"" help:"The memory: tenant, agent:NAME or metadata.KEY:VALUE."`
	Path    string `arg:"" optional:"" help:"Path of a file or directory."`
	All     bool   `help:"Erase the memory, instead of a path."`
	Version *int64 `name:"if-version" help:"Delete only if the file has this version."`
}

func (c *memoryRmCmd) Run(e *env) error {
	switch {
	case c.All && c.Path != "":
		return usagef("the path %s and --all are both given: remove one of them; --all deletes the whole memory", c.Path)
	case !c.All && c.Path == "":
		return usagef("no file is selected: give a path, or --all to delete the whole memory")
	case c.All && c.Version != nil:
		return usagef("--if-version cannot be combined with --all, which deletes every version: remove one of them")
	}
	what := c.Path
	remove := func() error { return e.client.DeleteMemoryFile(e.ctx, c.Scope, c.Path, versionOf(c.Version)) }
	if c.All {
		what = "memory " + c.Scope
		remove = func() error { return e.client.EraseMemory(e.ctx, c.Scope) }
	}
	if err := remove(); err != nil {
		return err
	}
	return e.print(map[string]string{"removed": what}, "removed "+what)
}
