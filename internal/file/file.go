package file

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

const (
	// Prefix begins the id of a file.
	Prefix = "file_"

	// Keep is the retention time of a file without references.
	Keep = 24 * time.Hour

	// BindDelay is the lifetime of a reference whose run or schedule does not exist: longer than a
	// submission takes.
	BindDelay = 10 * time.Minute

	// UploadTimeout is the age at which an object without a document is deleted: longer than an upload takes.
	UploadTimeout = 2 * time.Hour

	// MaxFiles is the maximum number of files of a tenant.
	MaxFiles = 10_000

	// checkInterval is the time after which Sweep reads the references of a file again that had one.
	checkInterval = time.Hour

	// takeOverDelay is the age of an undecided deletion at which another process may continue it.
	takeOverDelay = time.Minute

	// maxTries is the maximum number of attempts at a change while others change the same file.
	maxTries = 40

	// pauseDelay is the time between two reads of a file that another process is deleting.
	pauseDelay = 50 * time.Millisecond
)

// ErrNotFound reports a file that does not exist, or whose deletion is decided.
var ErrNotFound = errors.New("the file does not exist")

// ErrTooMany reports that a tenant already has MaxFiles files.
var ErrTooMany = fmt.Errorf("the tenant already has %d files, the maximum: delete files that are not in use", MaxFiles)

// ErrEmpty reports an upload without content, which models cannot use.
var ErrEmpty = errors.New("the file has no content")

// ContentError reports a failure of the bus, which has the contents of files. Other failures are those of the store.
type ContentError struct{ Err error }

func (e *ContentError) Error() string { return e.Err.Error() }

// Unwrap returns the error of the bus.
func (e *ContentError) Unwrap() error { return e.Err }

// InUseError reports that a file was not deleted because By refers to it.
type InUseError struct {
	ID, By string

	// Run is a run of By that exists, if By is a batch and Until is zero. Further runs of the batch may exist.
	Run state.RunID

	// Until is zero if By exists. Otherwise By may be about to be stored, until that time.
	Until state.Time
}

func (e *InUseError) Error() string {
	if !e.Until.IsZero() {
		return fmt.Sprintf("file %s cannot be deleted before %s: %s names it and may not be stored yet", e.ID, e.Until.Format(time.RFC3339), e.By)
	}
	if e.Run != "" {
		return fmt.Sprintf("file %s is used by %s, whose run %s exists", e.ID, e.By, e.Run)
	}
	return fmt.Sprintf("file %s is used by %s", e.ID, e.By)
}

// MissingError reports an id that no file has. It matches ErrNotFound.
type MissingError struct{ ID string }

func (e *MissingError) Error() string { return fmt.Sprintf("there is no file %q", e.ID) }

// Is reports whether target is ErrNotFound.
func (e *MissingError) Is(target error) bool { return target == ErrNotFound } //nolint:errorlint // Is compares

// File describes an uploaded file.
type File struct {
	ID        string     `json:"id"`
	Name      string     `json:"name,omitempty"`
	MediaType string     `json:"media_type"`
	Bytes     int64      `json:"bytes"`
	SHA256    string     `json:"sha256"` // in hexadecimal digits
	CreatedAt state.Time `json:"created_at"`
	By        string     `json:"by,omitempty"` // the principal that uploaded it
}

// record is the document of a file.
type record struct {
	File

	UsedAt  state.Time `json:"used_at"`           // when a reference was found last; at first, the time of the upload
	Removal *removal   `json:"removal,omitempty"` // nil: no deletion is in progress
}

// removal is a deletion in progress.
type removal struct {
	Token   string     `json:"token"`
	At      state.Time `json:"at"`
	Decided bool       `json:"decided,omitempty"` // the deletion cannot be undone any more
}

// abandoned reports whether the process of an undecided deletion has probably ended.
func (r *removal) abandoned(now time.Time) bool {
	return now.Sub(r.At.Time) >= takeOverDelay
}

// User refers to files: a run, the runs of a batch, or a schedule.
type User struct {
	Run      state.RunID // a run, or the first run of a batch
	Runs     int         // the number of runs of a batch; else 0
	Schedule string      // the name of a schedule; Run is empty then
}

// Prefixes of the names of references. A batch has a name other than its first run, which may name more files later.
const (
	schedulePrefix = "schedule "
	batchPrefix    = "batch "
)

func (u User) name() string {
	switch {
	case u.Schedule != "":
		return schedulePrefix + u.Schedule
	case u.Runs > 0:
		return batchPrefix + string(u.Run)
	default:
		return string(u.Run)
	}
}

// reference is the document of a reference.
type reference struct {
	At   state.Time `json:"at"`
	Runs int        `json:"runs,omitempty"`
}

// Store has the methods of a store that files need.
type Store interface {
	Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error)
	DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error)
	Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error)
	PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error
	ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error
	DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error
	Load(ctx context.Context, id state.RunID) (state.State, error)
	Now(ctx context.Context) (time.Time, error)
}

// Files are the files of a deployment. Its methods are safe for concurrent use.
type Files struct {
	store   Store
	objects bus.Objects
}

// New returns the files whose documents are in a store and whose contents are on a bus.
func New(store Store, objects bus.Objects) *Files { return &Files{store, objects} }

// NewID returns the id of a new file with a time. It is random, so a caller cannot guess the ids of other files.
func NewID(now time.Time) string {
	return Prefix + ulid.MustNew(ulid.Timestamp(now), rand.Reader).String()
}

// madeAt returns the time in the id of a file.
func madeAt(id string) (time.Time, bool) {
	text, ok := strings.CutPrefix(id, Prefix)
	u, err := ulid.ParseStrict(text)
	return u.Timestamp(), ok && err == nil
}

// Put stores the bytes of r up to io.EOF as a file, and returns f with the id, size, hash and time of the file. The
// error wraps that of r, is ErrEmpty if r has no bytes, is ErrTooMany if the tenant has MaxFiles files or concurrent
// calls would exceed that, or is a *ContentError or one of the store. After an error other than ErrEmpty and ErrTooMany
// the file may exist or may have left an object; Sweep deletes both later.
func (s *Files) Put(ctx context.Context, tenant string, f File, r io.Reader) (File, error) {
	content := bufio.NewReader(r)
	if _, err := content.Peek(1); errors.Is(err, io.EOF) {
		return File{}, ErrEmpty
	} else if err != nil {
		return File{}, err
	}
	// This count, before the upload, refuses most files beyond MaxFiles; the one after the upload is exact.
	n, err := s.count(ctx, tenant)
	if err != nil {
		return File{}, err
	}
	if n >= MaxFiles {
		return File{}, ErrTooMany
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return File{}, err
	}
	sum := sha256.New()
	f.ID = NewID(now)
	if f.Bytes, err = s.objects.PutObject(ctx, tenant, f.ID, io.TeeReader(content, sum)); err != nil {
		return File{}, &ContentError{err}
	}
	f.SHA256 = hex.EncodeToString(sum.Sum(nil))
	if now, err = s.store.Now(ctx); err == nil {
		f.CreatedAt = state.At(now)
		err = s.replace(ctx, tenant, f.ID, nil, &record{File: f, UsedAt: f.CreatedAt})
	}
	if err == nil {
		n, err = s.count(ctx, tenant)
	}
	if err != nil {
		return f, err // if the outcome is unknown, Sweep deletes the object or the file
	}
	if n <= MaxFiles {
		return f, nil
	}
	// Concurrent uploads have exceeded the limit. Each of them counts after it has stored its document, so at most
	// MaxFiles files remain; more uploads than necessary may fail.
	err = s.Delete(context.WithoutCancel(ctx), tenant, f.ID)
	if _, used := errors.AsType[*InUseError](err); used {
		return f, nil // a request has found it in the list of files, and named it
	}
	if err == nil || errors.Is(err, ErrNotFound) {
		err = ErrTooMany
	}
	return f, err
}

// count returns the number of files of a tenant, including those that are being deleted.
func (s *Files) count(ctx context.Context, tenant string) (int, error) {
	names, err := s.store.DocumentNames(ctx, state.FilesOf(tenant))
	return len(names), err
}

// read returns a file, which may be being deleted, and its document. The error is a *MissingError if it does not exist.
func (s *Files) read(ctx context.Context, tenant, id string) (*record, json.RawMessage, error) {
	if _, ok := madeAt(id); !ok {
		return nil, nil, &MissingError{id}
	}
	raw, err := s.store.Document(ctx, state.FilesOf(tenant), id)
	if errors.Is(err, state.ErrNotFound) {
		return nil, nil, &MissingError{id}
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read file: %w", err)
	}
	r := &record{}
	if err := json.Unmarshal(raw, r); err != nil {
		return nil, nil, fmt.Errorf("decode file %s: %w", id, err)
	}
	return r, raw, nil
}

// replace stores a record in place of the document was; nil means that no document may exist. The error is
// state.ErrChanged if the document is not was.
func (s *Files) replace(ctx context.Context, tenant, id string, was json.RawMessage, now *record) error {
	data, err := encode(now)
	if err != nil {
		return err
	}
	return s.store.ReplaceDocument(ctx, state.FilesOf(tenant), id, was, data)
}

// encode encodes v with the escapes that stores use in JSON, so that documents can be compared.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	if err := e.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Get returns a file. The error is a *MissingError if it does not exist; a file exists until its deletion is decided.
func (s *Files) Get(ctx context.Context, tenant, id string) (File, error) {
	r, _, err := s.read(ctx, tenant, id)
	if err != nil {
		return File{}, err
	}
	if r.Removal != nil && r.Removal.Decided {
		return File{}, &MissingError{id}
	}
	return r.File, nil
}

// IDs returns the ids of the files of a tenant, oldest first. Some may be being deleted.
func (s *Files) IDs(ctx context.Context, tenant string) ([]string, error) {
	return s.store.DocumentNames(ctx, state.FilesOf(tenant))
}

// Open returns the content of a file, which the caller must close. The error is a *MissingError or a *ContentError.
// Open does not read the document of the file, so it may also return the content of a file that is being deleted, or
// whose upload has not been completed.
func (s *Files) Open(ctx context.Context, tenant, id string) (io.ReadCloser, error) {
	if _, ok := madeAt(id); !ok {
		return nil, &MissingError{id}
	}
	r, err := s.objects.OpenObject(ctx, tenant, id)
	if errors.Is(err, bus.ErrNoObject) {
		return nil, &MissingError{id}
	}
	if err != nil {
		return nil, &ContentError{err}
	}
	return r, nil
}

// Bind records that u refers to files, so that they are kept while u exists and, if it is a schedule, names them. The
// caller must create u, or make it name the files, only after Bind has returned nil, and within BindDelay. If a file is
// being deleted, Bind waits some seconds for the decision. The error is a *MissingError if one of the files does not
// exist, and wraps [state.ErrChanged] if a deletion stays undecided. After any error the caller must not make u name
// the files.
func (s *Files) Bind(ctx context.Context, tenant string, u User, ids ...string) error {
	if len(ids) == 0 {
		return nil
	}
	now, err := s.store.Now(ctx)
	if err != nil {
		return err
	}
	data, err := encode(reference{state.At(now), u.Runs})
	if err != nil {
		return err
	}
	for _, id := range ids {
		// Most missing files have been missing for long: do not write a reference to these.
		if _, err := s.Get(ctx, tenant, id); err != nil {
			return err
		}
		if err := s.store.PutDocument(ctx, state.FileUsersOf(id), u.name(), data); err != nil {
			return fmt.Errorf("record the use of file %s: %w", id, err)
		}
	}
	for _, id := range ids {
		if err := s.settle(ctx, tenant, id); err != nil {
			// The references stay: if u referred to the files before, a deletion must find them.
			return err
		}
	}
	return nil
}
