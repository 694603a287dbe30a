package memory

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Scope names one memory.
type Scope struct {
	Tenant string
	Name   string // as in ScopeOf and ParseScope
}

// The scopes that a definition can name. metadata.KEY stands for one memory per value of the key.
const (
	ScopeTenant    = "tenant"
	ScopeAgent     = "agent"
	metadataPrefix = "metadata."
)

var (
	agentName   = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
	metadataKey = regexp.MustCompile(`^[^\x00-\x1f:]{1,128}$`)
)

// MaxValue bounds the value of a metadata key that names a memory, in bytes: stores put the name into a key
// or, in hexadecimal, into a subject.
const MaxValue = 256

// MetadataKey returns KEY of the scope metadata.KEY in a definition. ok is false for other scopes, and
// for a key that no scope can have.
func MetadataKey(scope string) (key string, ok bool) {
	if key, ok = strings.CutPrefix(scope, metadataPrefix); !ok || !metadataKey.MatchString(key) {
		return "", false
	}
	return key, true
}

// ScopeOf returns the memory that a definition's scope names for a run of an agent. The error says, for
// the model, which metadata the run lacks.
func ScopeOf(scope, tenant, agent string, metadata map[string]string) (Scope, error) {
	key, ok := MetadataKey(scope)
	switch {
	case scope == ScopeTenant:
		return Scope{tenant, ScopeTenant}, nil
	case scope == ScopeAgent:
		return Scope{tenant, ScopeAgent + ":" + agent}, nil
	case !ok:
		return Scope{}, refuse("scope is %.80q: use tenant, agent or metadata.KEY", scope)
	case metadata[key] == "":
		return Scope{}, refuse("Error: this run has no memory, since it was submitted without the metadata %q, which selects the memory. Continue without it", key)
	case len(metadata[key]) > MaxValue:
		return Scope{}, refuse("Error: this run has no memory, since the metadata %q, which selects the memory, has %d bytes, and at most %d are allowed. Continue without it", key, len(metadata[key]), MaxValue)
	}
	return Scope{tenant, scope + ":" + metadata[key]}, nil
}

// ParseScope returns the memory with a name as the API has it: tenant, agent:NAME or
// metadata.KEY:VALUE.
func ParseScope(tenant, name string) (Scope, error) {
	kind, value, named := strings.Cut(name, ":")
	key, metadata := strings.CutPrefix(kind, metadataPrefix)
	switch {
	case !utf8.ValidString(name):
		return Scope{}, refuse("scope is %.80q, which is not UTF-8: encode it in UTF-8", name)
	case name == ScopeTenant:
	case !named || value == "" || kind != ScopeAgent && !metadata:
		return Scope{}, refuse("scope is %.80q: use tenant, agent:NAME or metadata.KEY:VALUE", name)
	case metadata && !metadataKey.MatchString(key):
		return Scope{}, refuse("scope has the metadata key %.80q: use a key of 1 to 128 characters without control characters", key)
	case metadata && len(value) > MaxValue:
		return Scope{}, refuse("scope has a metadata value of %d bytes, and no memory has a value of more than %d: use a shorter value", len(value), MaxValue)
	case kind == ScopeAgent && !agentName.MatchString(value):
		return Scope{}, refuse("scope has the agent name %.80q: use 1 to 64 lowercase letters, digits, - and _, of which the first is a letter or a digit", value)
	}
	return Scope{tenant, name}, nil
}

// File is one file of a memory, in its latest version.
type File struct {
	Content string       `json:"content"`
	Version int64        `json:"version"`          // of the change that wrote it
	Run     state.RunID  `json:"run_id,omitempty"` // whose call wrote it; empty if a person did
	By      string       `json:"by,omitempty"`     // the person
	At      state.Time   `json:"at"`
	Origin  state.Origin `json:"origin,omitempty"` // the least trusted source of what led to the content
}

// Directory is the files of one memory.
type Directory struct {
	// Version is the number of the latest change. It grows by one with each change, and restarts at 1
	// after the memory was erased.
	Version int64           `json:"version"`
	Files   map[string]File `json:"files"` // by path

	// Changes are the latest changes of calls, oldest first.
	Changes []change `json:"changes,omitempty"`
}

// change is one change of a call, by the start of its idempotency key.
type change struct {
	Key     string `json:"key"`
	Version int64  `json:"version"`
}

const (
	// maxChanges is the number of changes whose idempotency keys a memory keeps.
	maxChanges = 512

	// keyBytes is the length of the prefix that it keeps of each key.
	keyBytes = 24

	// maxTries bounds how often a change is tried while others change the same memory.
	maxTries = 50
)

// Changed returns the version of the change that a call with this key has made, if it has.
func (d *Directory) Changed(key string) (version int64, ok bool) {
	for _, c := range d.Changes {
		if c.Key == shortened(key) {
			return c.Version, true
		}
	}
	return 0, false
}

// note keeps the key of the latest change.
func (d *Directory) note(key string) {
	if len(d.Changes) >= maxChanges {
		d.Changes = d.Changes[len(d.Changes)-maxChanges+1:]
	}
	d.Changes = append(d.Changes, change{shortened(key), d.Version})
}

func shortened(key string) string { return key[:min(len(key), keyBytes)] }

// Documents is the part of a store that memories need.
type Documents interface {
	Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error)
	DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error)
	ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error
	DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error
}

// Memories are the memories of a deployment. Its methods may be called from any goroutine.
type Memories struct{ docs Documents }

// New returns the memories in a store.
func New(docs Documents) *Memories { return &Memories{docs} }

// Scopes returns the names of a tenant's memories, sorted.
func (m *Memories) Scopes(ctx context.Context, tenant string) ([]string, error) {
	return m.docs.DocumentNames(ctx, state.MemoriesOf(tenant))
}

// Read returns a memory. One that has no files yet is empty.
func (m *Memories) Read(ctx context.Context, s Scope) (*Directory, error) {
	d, _, err := m.read(ctx, s)
	return d, err
}

func (m *Memories) read(ctx context.Context, s Scope) (*Directory, json.RawMessage, error) {
	d := &Directory{Files: map[string]File{}}
	raw, err := m.docs.Document(ctx, state.MemoriesOf(s.Tenant), s.Name)
	if errors.Is(err, state.ErrNotFound) {
		return d, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read memory: %w", err)
	}
	if err := json.Unmarshal(raw, d); err != nil {
		return nil, nil, fmt.Errorf("decode memory %s: %w", s.Name, err)
	}
	return d, raw, nil
}

// Change applies fn to a memory and stores the result. If another request changes the memory in between, Change calls
// fn again with the new contents, so fn must change nothing else. If fn returns an error, or does not raise the
// version, Change stores nothing. The error is a Refusal, and nothing is stored, if other requests keep changing the
// memory or its stored form is too large. After an error of the store the change may have taken place.
func (m *Memories) Change(ctx context.Context, s Scope, fn func(*Directory) error) error {
	for try := range maxTries {
		d, raw, err := m.read(ctx, s)
		if err != nil {
			return err
		}
		was := d.Version
		if err := fn(d); err != nil || d.Version == was {
			return err
		}
		data, err := encode(d)
		if err != nil {
			return err
		}
		err = m.docs.ReplaceDocument(ctx, state.MemoriesOf(s.Tenant), s.Name, raw, data)
		if err == nil {
			return nil
		}
		if !errors.Is(err, state.ErrChanged) {
			return fmt.Errorf("store memory: %w", err)
		}
		// In each round one of the writers that collide succeeds; the others wait a moment.
		select {
		case <-time.After(rand.N(time.Duration(min(try+1, 10)) * time.Millisecond)): //nolint:gosec // no secret
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return refuse("Error: other requests keep changing the memory: retry")
}

// maxDocument bounds the stored form of a memory: NATS takes messages of up to 1 MiB.
const maxDocument = 768 << 10

func encode(d *Directory) (json.RawMessage, error) {
	var b bytes.Buffer
	if err := json.NewEncoder(&b).Encode(d); err != nil {
		return nil, err
	}
	if b.Len() > maxDocument {
		return nil, refuse("Error: the memory would need %d bytes in the store, at most %d are allowed; versions count, and some characters need more bytes there: delete or shorten files", b.Len(), maxDocument)
	}
	return bytes.TrimSpace(b.Bytes()), nil
}

// Erase deletes a memory with all that it has, also its name. It reports whether there was one.
func (m *Memories) Erase(ctx context.Context, s Scope) (bool, error) {
	_, err := m.docs.Document(ctx, state.MemoriesOf(s.Tenant), s.Name)
	if errors.Is(err, state.ErrNotFound) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return true, m.docs.DeleteDocument(ctx, state.MemoriesOf(s.Tenant), s.Name)
}
