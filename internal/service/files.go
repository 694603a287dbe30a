package service

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	// DefaultMaxFile is the default maximum of a file, in bytes.
	DefaultMaxFile = 32 << 20

	// maxFileParts is the maximum number of uploaded files that one request names, and maxForkFiles that of
	// the history of a fork.
	maxFileParts = 50
	maxForkFiles = 1000

	// sweepInterval is the time between two looks for files that nothing refers to.
	sweepInterval = 10 * time.Minute
)

// Files are the files that callers upload for models.
type Files struct {
	*core

	files *file.Files
}

func newFiles(k *core) *Files { return &Files{k, k.files} }

// Upload is a file that a caller sends.
type Upload struct {
	Name      string // may be empty
	MediaType string // as the caller sent it, with or without parameters
	Content   io.Reader
	Bytes     int64 // the size of Content if it is known, else 0
}

func storedFileNotFound(id string) error {
	return notFound(api.CodeFileNotFound, "there is no file %.80q: list them with GET /v1/files", id)
}

// fileError returns the problem of an error about the file with an id; it returns other errors unchanged.
func fileError(id string, err error) error {
	if used, ok := errors.AsType[*file.InUseError](err); ok {
		if !used.Until.IsZero() {
			return problem(conflict, api.CodeFileInUse, "%v: retry after that time", used)
		}
		return problem(conflict, api.CodeFileInUse, "%v: %s", used, releaseOf(used))
	}
	switch {
	case errors.Is(err, file.ErrNotFound):
		return storedFileNotFound(id)
	case errors.Is(err, state.ErrChanged):
		return problem(conflict, api.CodeFileInUse, "another request is deleting file %s: retry", id)
	default:
		return err
	}
}

// releaseOf returns the remedy for a file in use: how a caller ends that use.
func releaseOf(used *file.InUseError) string {
	switch batch, is := strings.CutPrefix(used.By, "batch "); {
	case is:
		return fmt.Sprintf("delete all runs of the batch first, which GET /v1/runs?batch=%s lists; a run can be deleted once it and its descendants have ended", batch)
	case strings.HasPrefix(used.By, "schedule "):
		return "delete the schedule first, or save it without the file"
	default:
		return "delete the run first, once it and its descendants have ended; a child run is deleted with the run at the top of its tree"
	}
}

func shownStoredFile(f file.File) api.File {
	return api.File{ID: f.ID, Name: f.Name, MediaType: f.MediaType, Bytes: f.Bytes, SHA256: f.SHA256, CreatedAt: f.CreatedAt, CreatedBy: f.By}
}

// Put stores a file while it reads in.Content. If in.Content fails with an *api.Problem, Put returns that problem; it
// reports any other error of in.Content as an invalid request. The problem is files_full if the tenant has reached
// its limit of bytes or of files.
func (s *Files) Put(ctx context.Context, c access.Caller, in Upload) (api.File, error) {
	if err := s.permit(ctx, c, PutFile); err != nil {
		return api.File{}, err
	}
	made, err := s.put(ctx, c, in)
	s.note(ctx, c, PutFile, cmp.Or(made.ID, Clip(in.Name, MaxEcho)), err)
	return made, err
}

func (s *Files) put(ctx context.Context, c access.Caller, in Upload) (api.File, error) {
	mediaType, err := mediaTypeOf(in.MediaType)
	if err != nil {
		return api.File{}, err
	}
	if err := checkFileName(in.Name); err != nil {
		return api.File{}, err
	}
	content := &upload{r: in.Content, left: s.cfg.MaxFile, limit: s.cfg.MaxFile}
	if in.Bytes > s.cfg.MaxFile {
		return api.File{}, content.tooLarge()
	}
	made, err := s.files.Put(ctx, c.Tenant, file.File{Name: in.Name, MediaType: mediaType, By: c.Principal.Name}, content)
	if _, given := errors.AsType[*api.Problem](err); given {
		return api.File{}, err
	}
	switch {
	case errors.Is(err, file.ErrEmpty):
		return api.File{}, invalid("%v: send at least one byte", err)
	case errors.Is(err, bus.ErrObjectsFull):
		return api.File{}, problem(conflict, api.CodeFilesFull, "the files of tenant %s have reached their limit in bytes: delete some, or ask the operator to raise TURNPIKE_FILES_MIB (in Go, Options.NATS.Limits.Files)", c.Tenant)
	case errors.Is(err, file.ErrTooMany):
		return api.File{}, problem(conflict, api.CodeFilesFull, "%v", err)
	case content.failed != nil && errors.Is(err, content.failed):
		return api.File{}, invalid("the file could not be read to its end: send it again: %v", err)
	case err != nil:
		return api.File{}, err
	}
	return shownStoredFile(made), nil
}

// upload reads at most limit bytes from r, then fails with a problem. failed is the error of r.
type upload struct {
	r           io.Reader
	left, limit int64
	failed      error
}

// Read implements io.Reader.
func (b *upload) Read(p []byte) (int, error) {
	p = p[:min(int64(len(p)), b.left+1)] // one byte more shows that there are more
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return 0, b.tooLarge()
	}
	if err != nil && !errors.Is(err, io.EOF) {
		b.failed = err
	}
	return n, err
}

func (b *upload) tooLarge() error {
	return problem(tooLarge, api.CodeBodyTooLarge, "the file is larger than %d bytes, the maximum: upload a smaller one", b.limit)
}

// mediaTypeOf returns a media type without parameters, in the form in histories.
func mediaTypeOf(given string) (string, error) {
	name, _, err := mime.ParseMediaType(given)
	if err != nil || strings.Count(name, "/") != 1 || len(name) > 127 {
		return "", invalid("media type %.80q is not valid: send one such as application/pdf", given)
	}
	return model.MediaType(name), nil
}

func checkFileName(name string) error {
	if len(name) > tool.MaxFileName || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) {
		return invalid("name %.80q is not valid: use at most %d bytes of UTF-8 without control characters", name, tool.MaxFileName)
	}
	return nil
}

// Get returns a file without its content. The problem is file_not_found if it does not exist.
func (s *Files) Get(ctx context.Context, c access.Caller, id string) (api.File, error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.File{}, err
	}
	f, err := s.files.Get(ctx, c.Tenant, id)
	if err != nil {
		return api.File{}, fileError(id, err)
	}
	return shownStoredFile(f), nil
}

// Open returns a file and its content, which the caller must close. The problem is file_not_found if it does not exist.
func (s *Files) Open(ctx context.Context, c access.Caller, id string) (api.File, io.ReadCloser, error) {
	shown, err := s.Get(ctx, c, id)
	if err != nil {
		return api.File{}, nil, err
	}
	content, err := s.files.Open(ctx, c.Tenant, id)
	if err != nil {
		return api.File{}, nil, fileError(id, err)
	}
	return shown, content, nil
}

// List returns the files of the caller's tenant, the oldest first.
func (s *Files) List(ctx context.Context, c access.Caller, p Page) (api.Page[api.File], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.File]{}, err
	}
	ids, err := s.files.IDs(ctx, c.Tenant)
	if err != nil {
		return api.Page[api.File]{}, err
	}
	return readPage(ctx, s.core, p, ids, func(ctx context.Context, id string) (api.File, int, error) {
		f, err := s.files.Get(ctx, c.Tenant, id)
		if errors.Is(err, file.ErrNotFound) {
			err = state.ErrNotFound // deleted in the meantime
		}
		return shownStoredFile(f), 1 << 10, err
	})
}

// Delete deletes a file. The problem is file_in_use if a run or a schedule refers to it, if a request that names it is
// in progress, or if another request is deleting it.
func (s *Files) Delete(ctx context.Context, c access.Caller, id string) error {
	if err := s.permit(ctx, c, DeleteFile); err != nil {
		return err
	}
	err := fileError(id, s.files.Delete(ctx, c.Tenant, id))
	s.note(ctx, c, DeleteFile, id, err)
	return err
}

// Keep deletes the files that nothing has referred to for a day, until ctx ends. It includes deleted tenants, whose
// runs may still store files.
func (s *Files) Keep(ctx context.Context) {
	tick := time.NewTicker(sweepInterval)
	defer tick.Stop()
	for {
		tenants, err := s.tenants.Names(ctx)
		deletedTenants, deletedErr := s.store.DocumentNames(ctx, state.DeletedTenantDocument)
		err = errors.Join(err, deletedErr)
		for _, tenant := range withDefaults(append(tenants, deletedTenants...), s.cfg.Tenant) {
			deleted, sweepErr := s.files.Sweep(ctx, tenant)
			if err = errors.Join(err, sweepErr); deleted > 0 {
				s.log.Info("unused files deleted", "files", deleted, "tenant", tenant)
			}
		}
		if err != nil && ctx.Err() == nil {
			s.log.Warn("unused files not deleted, the gateway retries", "error", err, "hint", "run `turnpike doctor`: the store or NATS may be unreachable or refuse the operation")
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

// withDefaults returns tenants and the tenants that exist without settings, each once.
func withDefaults(tenants []string, own string) []string {
	all := map[string]bool{}
	var out []string
	for _, name := range append([]string{state.DefaultTenant, own}, tenants...) {
		if name != "" && !all[name] {
			all[name] = true
			out = append(out, name)
		}
	}
	return out
}

// describe sets the media type, size and name of each uploaded file that messages refer to. It refuses files that do
// not exist, and files that the model of the agent is known not to accept. It does not refuse the latter if they are
// nested in a tool result (Part.Files): the model gets a remark instead of such a file. known has the files that
// earlier calls have read, and describe adds to it; it refuses messages that would bring known above limit files.
func (k *core) describe(ctx context.Context, tenant string, a *agent.Agent, messages []state.Message, known map[string]file.File, limit int) error {
	var files []state.Part
	for _, m := range messages {
		for i := range m.Parts {
			p := &m.Parts[i]
			for n := range p.Files {
				if err := k.describeFile(ctx, tenant, &p.Files[n], known, limit); err != nil {
					return err
				}
			}
			if p.Type != state.PartFile {
				continue
			}
			if err := k.describeFile(ctx, tenant, p, known, limit); err != nil {
				return err
			}
			files = append(files, *p)
		}
	}
	return k.taken(a, "input", files)
}

// describeFile sets the media type, size and name of a part that names an uploaded file.
func (k *core) describeFile(ctx context.Context, tenant string, p *state.Part, known map[string]file.File, limit int) error {
	if p.FileID == "" {
		return nil
	}
	f, read := known[p.FileID]
	if !read {
		if len(known) >= limit {
			return invalid("the request names more than %d files: name fewer", limit)
		}
		var err error
		if f, err = k.files.Get(ctx, tenant, p.FileID); err != nil {
			return missingFile(err)
		}
		known[p.FileID] = f
	}
	p.MediaType, p.Bytes, p.Name = f.MediaType, f.Bytes, f.Name
	return nil
}

// taken refuses files that the model of an agent is known not to accept. The error names the field place of the
// request.
func (k *core) taken(a *agent.Agent, place string, files []state.Part) error {
	if len(files) == 0 {
		return nil
	}
	m := a.Model
	choice := model.Choice{Provider: m.Provider, Model: m.Name, API: m.API, BaseURL: m.BaseURL}
	if text := k.cfg.Known.Providers[m.Provider].CheckFiles(choice, files...); text != "" {
		return invalid("%s: %s", place, text)
	}
	return nil
}

// mistakes returns the mistakes in a remark of tool.CheckImages or tool.CheckFiles. The remark tells a model what was left
// out of a result, but the gateway refuses the whole request.
func mistakes(remark string) string {
	return strings.NewReplacer("]\n[", "; ", "[", "", "]", "", " left out: ", ": ").Replace(strings.TrimSpace(remark))
}

// resultFiles checks the files of a tool result that a caller sends, and returns them in the form in histories.
func resultFiles(files []state.Part) ([]state.Part, error) {
	kept, omitted := tool.CheckFiles(files)
	if omitted != "" {
		return nil, errors.New(mistakes(omitted))
	}
	for i := range kept {
		kept[i].MediaType = model.MediaType(kept[i].MediaType)
	}
	return kept, nil
}

// missingFile returns the problem of a reference to a file that does not exist, or that a request is deleting; it
// returns other errors unchanged.
func missingFile(err error) error {
	if errors.Is(err, state.ErrChanged) {
		return problem(conflict, api.CodeFileInUse, "a file of this request cannot be used now (%s): retry; upload the file again if it was deleted", strings.TrimSuffix(err.Error(), ": "+state.ErrChanged.Error()))
	}
	if gone, ok := errors.AsType[*file.MissingError](err); ok {
		return invalid("file_id: there is no file %q in this tenant: upload it, or name another file", gone.ID)
	}
	return err
}

// bind records that u uses the files that messages name, so that they cannot be deleted.
func (k *core) bind(ctx context.Context, tenant string, u file.User, messages ...state.Message) error {
	ids := state.FileIDs(messages...)
	if len(ids) == 0 {
		return nil
	}
	return missingFile(k.files.Bind(ctx, tenant, u, ids...))
}

// messagesOf returns the messages of a run that is about to be created.
func messagesOf(s state.State) []state.Message {
	var all []state.Message
	for _, e := range s.Log {
		all = append(all, e.Messages...)
	}
	return all
}
