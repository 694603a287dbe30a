package memstore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// PutDocument implements state.Documents.
func (s *Store) PutDocument(_ context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setDocument(kind, name, data)
	return nil
}

// ReplaceDocument implements state.Documents.
func (s *Store) ReplaceDocument(_ context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !bytes.Equal(s.documents[kind][name], was) {
		return fmt.Errorf("%s %s: %w", kind, name, state.ErrChanged)
	}
	s.setDocument(kind, name, data)
	return nil
}

// setDocument stores a document, or deletes it if data is nil. The caller holds s.mu.
func (s *Store) setDocument(kind state.DocumentKind, name string, data json.RawMessage) {
	if data == nil {
		delete(s.documents[kind], name)
		return
	}
	if s.documents[kind] == nil {
		s.documents[kind] = map[string]json.RawMessage{}
	}
	s.documents[kind][name] = slices.Clone(data)
}

// Document implements state.Documents.
func (s *Store) Document(_ context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	data, ok := s.documents[kind][name]
	if !ok {
		return nil, fmt.Errorf("%s %s: %w", kind, name, state.ErrNotFound)
	}
	return data, nil
}

// DocumentNames implements state.Documents.
func (s *Store) DocumentNames(_ context.Context, kind state.DocumentKind) ([]string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.documents[kind])), nil
}

// Documents implements state.Documents.
func (s *Store) Documents(_ context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return maps.Clone(s.documents[kind]), nil
}

// ListDocuments implements state.Documents.
func (s *Store) ListDocuments(_ context.Context, kind state.DocumentKind, prefix, cursor string, limit int) (page state.DocumentPage, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	names, next := state.PageOfNames(slices.Collect(maps.Keys(s.documents[kind])), prefix, cursor, limit)
	page.Next = next
	for _, name := range names {
		page.Documents = append(page.Documents, state.Document{Name: name, Data: s.documents[kind][name]})
	}
	return page, nil
}

// DeleteDocument implements state.Documents.
func (s *Store) DeleteDocument(_ context.Context, kind state.DocumentKind, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.setDocument(kind, name, nil)
	return nil
}

// AppendAudit implements state.Audits.
func (s *Store) AppendAudit(_ context.Context, tenant string, entry json.RawMessage) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.audits[tenant] = append(s.audits[tenant], slices.Clone(entry))
	return nil
}

// Audit implements state.Audits. It keeps all entries: the cursor is a number of entries.
func (s *Store) Audit(_ context.Context, tenant, cursor string, limit int) ([]json.RawMessage, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.audits[tenant]
	if cursor != "" {
		n, err := strconv.Atoi(cursor)
		if err != nil || n < 0 || n > len(all) {
			return nil, "", &state.InvalidCursorError{Cursor: cursor}
		}
		all = all[:n]
	}
	rest := max(0, len(all)-limit)
	page := slices.Clone(all[rest:])
	slices.Reverse(page)
	if rest == 0 {
		return page, "", nil
	}
	return page, strconv.Itoa(rest), nil
}
