// Package filekind is what workers do with tools of kind file: they read files, and
// list directories, below the root that the definition names, and nowhere else.
package filekind

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/turnpike-dev/turnpike/examples/toolkind/filespec"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const maxBytes = 64 << 10

// New returns the kind. The root of a tool must be below one of roots: authors of
// agents must not be able to expose other directories of a worker.
func New(roots ...string) tool.Kind {
	return tool.KindOf(filespec.Spec, func(_ context.Context, t tool.Bound, c tool.Call) (tool.Result, error) {
		s, ok := t.Settings.(*filespec.Settings)
		if !ok {
			return tool.Result{}, fmt.Errorf("the settings of the tool have the unexpected type %T: return *filespec.Settings in its Spec", t.Settings)
		}
		var args struct{ Path string }
		if err := json.Unmarshal(c.Arguments, &args); err != nil {
			return tool.Error("the arguments are not an object with the text path: send one"), nil
		}
		text, err := read(roots, *s, args.Path)
		if err != nil {
			return tool.Error(err.Error()), nil // for the model to read
		}
		return tool.Result{Content: text}, nil
	})
}

func read(allowed []string, s filespec.Settings, name string) (string, error) {
	if !permitted(allowed, s.Root) {
		return "", fmt.Errorf("this worker shows no files below %s: add the directory to those of the worker, or correct root", s.Root)
	}
	root, err := os.OpenRoot(s.Root) // neither .. nor a link leads out of it
	if err != nil {
		return "", err
	}
	defer root.Close() //nolint:errcheck // nothing is written
	f, err := root.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close() //nolint:errcheck // it was only read
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	switch {
	case info.IsDir():
		return list(f)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s is neither a file nor a directory: name another path", name)
	}
	limit := s.MaxBytes
	if limit == 0 {
		limit = maxBytes
	}
	text, err := io.ReadAll(io.LimitReader(f, limit))
	return string(text), err
}

func list(dir fs.File) (string, error) {
	d, ok := dir.(fs.ReadDirFile)
	if !ok {
		return "", fs.ErrInvalid
	}
	entries, err := d.ReadDir(-1)
	var names []string
	for _, e := range entries {
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		names = append(names, name)
	}
	return strings.Join(names, "\n"), err
}

func permitted(allowed []string, root string) bool {
	for _, a := range allowed {
		if inside, err := filepath.Rel(a, root); err == nil && filepath.IsLocal(inside) {
			return true
		}
	}
	return false
}
