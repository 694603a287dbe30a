package service

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/memory"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Memory reads and changes the files that agents of a tenant keep for later runs.
type Memory struct {
	*core

	memories *memory.Memories
}

func newMemory(k *core) *Memory { return &Memory{k, memory.New(k.store)} }

// MemoryAt is the location of a file: the name of its memory, and its path below memory.Root.
type MemoryAt struct{ Scope, Path string }

func (at MemoryAt) String() string { return at.Scope + " " + at.Path }

// parse returns the memory in the caller's tenant, and the path as models use it, below memory.Root.
func (at MemoryAt) parse(c access.Caller) (memory.Scope, string, error) {
	scope, err := memoryScope(c, at.Scope)
	if err != nil {
		return scope, "", err
	}
	path := memory.Root + "/" + strings.TrimPrefix(at.Path, memory.Root+"/")
	if err := memory.CheckPath(path); err != nil {
		return scope, "", refused(err)
	}
	return scope, path, nil
}

func memoryScope(c access.Caller, name string) (memory.Scope, error) {
	if name == "" {
		return memory.Scope{}, invalid("scope is missing: set it to tenant, agent:NAME or metadata.KEY:VALUE")
	}
	scope, err := memory.ParseScope(c.Tenant, name)
	if err != nil {
		return scope, invalid("%v", err)
	}
	return scope, nil
}

// refused returns the problem of a memory.Refusal; it returns other errors unchanged.
func refused(err error) error {
	if refusal, ok := errors.AsType[memory.Refusal](err); ok {
		return invalid("%s", strings.TrimPrefix(string(refusal), "Error: "))
	}
	return err
}

func fileNotFound(at MemoryAt) error {
	return notFound(api.CodeMemoryNotFound, "the memory %.80q has no file %.80q: list its files with GET /v1/memory?scope=", at.Scope, at.Path)
}

func shownFile(path string, f memory.File) api.MemoryFile {
	return api.MemoryFile{
		Path: strings.TrimPrefix(path, memory.Root+"/"), Bytes: len(f.Content), Version: f.Version, RunID: string(f.Run), UpdatedBy: f.By, UpdatedAt: f.At, Origin: f.Origin,
	}
}

// Scopes returns a page of the names of the memories of the caller's tenant.
func (s *Memory) Scopes(ctx context.Context, c access.Caller, p Page) (api.Page[api.MemoryScope], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.MemoryScope]{}, err
	}
	names, err := s.memories.Scopes(ctx, c.Tenant)
	if err != nil {
		return api.Page[api.MemoryScope]{}, err
	}
	scopes := make([]api.MemoryScope, len(names))
	for i, name := range names {
		scopes[i].Scope = name
	}
	return Cut(p, scopes)
}

// List returns the files of a memory by path, without their contents. A memory that does not exist has no files.
func (s *Memory) List(ctx context.Context, c access.Caller, scope string, p Page) (api.Page[api.MemoryFile], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.MemoryFile]{}, err
	}
	of, err := memoryScope(c, scope)
	if err != nil {
		return api.Page[api.MemoryFile]{}, err
	}
	d, err := s.memories.Read(ctx, of)
	if err != nil {
		return api.Page[api.MemoryFile]{}, err
	}
	files := make([]api.MemoryFile, 0, len(d.Files))
	for path, f := range d.Files {
		files = append(files, shownFile(path, f))
	}
	slices.SortFunc(files, func(a, b api.MemoryFile) int { return strings.Compare(a.Path, b.Path) })
	return Cut(p, files)
}

// Get returns a file with its content. The problem is memory_not_found if it does not exist.
func (s *Memory) Get(ctx context.Context, c access.Caller, at MemoryAt) (api.MemoryFile, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.MemoryFile{}, err
	}
	scope, path, err := at.parse(c)
	if err != nil {
		return api.MemoryFile{}, err
	}
	d, err := s.memories.Read(ctx, scope)
	if err != nil {
		return api.MemoryFile{}, err
	}
	f, ok := d.Files[path]
	if !ok {
		return api.MemoryFile{}, fileNotFound(at)
	}
	shown := shownFile(path, f)
	shown.Content = &f.Content
	return shown, nil
}

// Put writes a file if its version satisfies ifMatch, the value of an If-Match header; empty allows any version. The
// problem is memory_changed if it does not. first reports whether the file is new.
func (s *Memory) Put(ctx context.Context, c access.Caller, at MemoryAt, content, ifMatch string) (f api.MemoryFile, first bool, err error) {
	if err := s.permit(ctx, c, PutMemory); err != nil {
		return api.MemoryFile{}, false, err
	}
	f, first, err = s.put(ctx, c, at, content, ifMatch)
	s.note(ctx, c, PutMemory, at.String(), err)
	return f, first, err
}

func (s *Memory) put(ctx context.Context, c access.Caller, at MemoryAt, content, ifMatch string) (shown api.MemoryFile, first bool, err error) {
	scope, path, err := at.parse(c)
	if err != nil {
		return shown, false, err
	}
	now, err := s.clock.now(ctx)
	if err != nil {
		return shown, false, err
	}
	err = s.memories.Change(ctx, scope, func(d *memory.Directory) error {
		if err := matches(d, path, ifMatch); err != nil {
			return err
		}
		_, exists := d.Files[path]
		first = !exists
		err := d.Put(path, memory.File{Content: content, By: c.Principal.Name, At: now}, memory.MaxBytes)
		shown = shownFile(path, d.Files[path])
		return err
	})
	shown.Content = &content
	return shown, first, refused(err)
}

// matches returns nil if ifMatch allows the current version of the file at path. ifMatch lists versions: a number, 0
// for no file, * for any existing file. An empty ifMatch allows all.
func matches(d *memory.Directory, path, ifMatch string) error {
	if ifMatch == "" {
		return nil
	}
	var failed error
	matched := false
	for tag := range strings.SplitSeq(ifMatch, ",") {
		if tag = strings.TrimSpace(tag); tag == "" {
			continue
		}
		err := matchesOne(d, path, tag)
		if err != nil && ProblemOf(err).Code != api.CodeMemoryChanged {
			return err
		}
		matched, failed = matched || err == nil, cmp.Or(failed, err)
	}
	switch {
	case matched:
		return nil
	case failed == nil:
		return invalid("header If-Match: %.40q is not a version of a file: send its version as a number in double quotes, such as \"3\"", ifMatch)
	default:
		return failed
	}
}

func matchesOne(d *memory.Directory, path, ifMatch string) error {
	have := d.Latest(path)
	text := strings.Trim(strings.TrimPrefix(ifMatch, "W/"), `"`)
	want, err := strconv.ParseInt(text, 10, 64)
	switch {
	case text == "*" && have > 0:
		return nil
	case text != "*" && (err != nil || want < 0):
		return invalid("header If-Match: %.40q is not a version of a file: send its version as a number in double quotes, such as \"3\"", ifMatch)
	case text == "*" || have == 0 && want > 0:
		return problem(changed, api.CodeMemoryChanged, "there is no file %.80q, but If-Match requires a version of it: omit If-Match to create the file; to delete it, nothing is left to do", path)
	case want != have:
		return problem(changed, api.CodeMemoryChanged, "file %.80q has version %d now, not %s: read the file again, and repeat the change", path, have, text)
	}
	return nil
}

// Delete deletes a file, or all files of a directory, if its version satisfies ifMatch: see Put.
func (s *Memory) Delete(ctx context.Context, c access.Caller, at MemoryAt, ifMatch string) error {
	if err := s.permit(ctx, c, DeleteMemory); err != nil {
		return err
	}
	scope, path, err := at.parse(c)
	if err == nil {
		err = s.memories.Change(ctx, scope, func(d *memory.Directory) error {
			if err := matches(d, path, ifMatch); err != nil {
				return err
			}
			if !d.Remove(path) {
				return fileNotFound(at)
			}
			return nil
		})
	}
	err = refused(err)
	s.note(ctx, c, DeleteMemory, at.String(), err)
	return err
}

// Erase deletes a memory with all its files. The problem is memory_not_found if it does not exist.
func (s *Memory) Erase(ctx context.Context, c access.Caller, name string) error {
	if err := s.permit(ctx, c, DeleteMemory); err != nil {
		return err
	}
	scope, err := memoryScope(c, name)
	if err == nil {
		var found bool
		if found, err = s.memories.Erase(ctx, scope); err == nil && !found {
			err = notFound(api.CodeMemoryNotFound, "there is no memory %.80q: list them with GET /v1/memory:scopes", name)
		}
	}
	s.note(ctx, c, DeleteMemory, name, err)
	return err
}

// removeAll deletes the memories of a tenant.
func (s *Memory) removeAll(ctx context.Context, tenant string) error {
	return s.eachDocument(ctx, state.MemoriesOf(tenant), func(ctx context.Context, name string) error {
		return s.store.DeleteDocument(ctx, state.MemoriesOf(tenant), name)
	})
}
