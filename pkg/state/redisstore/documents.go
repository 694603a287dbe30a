package redisstore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// PutDocument implements state.Documents.
func (s *Store) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	if _, err := s.write(ctx, "hset", s.keys.documents(kind), name, []byte(data)); err != nil {
		return fmt.Errorf("put %s %s: %w", kind, name, err)
	}
	return nil
}

// ReplaceDocument implements state.Documents.
func (s *Store) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	r, err := replaceScript.call(ctx, s, []string{s.keys.documents(kind)}, name, []byte(was), []byte(data))
	if err != nil {
		return fmt.Errorf("replace %s %s: %w", kind, name, err)
	}
	if r.str(verdictWord) == "conflict" {
		return fmt.Errorf("%s %s: %w", kind, name, state.ErrChanged)
	}
	return nil
}

// Document implements state.Documents.
func (s *Store) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	data, err := s.rdb.HGet(ctx, s.keys.documents(kind), name).Bytes()
	if errors.Is(err, redis.Nil) {
		return nil, fmt.Errorf("%s %s: %w", kind, name, state.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", kind, err)
	}
	return data, nil
}

// DocumentNames implements state.Documents.
func (s *Store) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	names, err := s.rdb.HKeys(ctx, s.keys.documents(kind)).Result()
	if err != nil {
		return nil, fmt.Errorf("list the stored documents of kind %s in Redis: %w", kind, err)
	}
	slices.Sort(names)
	return names, nil
}

// Documents implements state.Documents.
func (s *Store) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	all, err := s.rdb.HGetAll(ctx, s.keys.documents(kind)).Result()
	if err != nil {
		return nil, fmt.Errorf("read the documents of kind %s: %w", kind, err)
	}
	documents := make(map[string]json.RawMessage, len(all))
	for name, data := range all {
		documents[name] = json.RawMessage(data)
	}
	return documents, nil
}

// ListDocuments implements state.Documents. It reads the names of the whole kind, but only the
// documents of the page.
func (s *Store) ListDocuments(ctx context.Context, kind state.DocumentKind, prefix, cursor string, limit int) (page state.DocumentPage, err error) {
	all, err := s.rdb.HKeys(ctx, s.keys.documents(kind)).Result()
	if err != nil {
		return page, fmt.Errorf("list the stored documents of kind %s in Redis: %w", kind, err)
	}
	names, next := state.PageOfNames(all, prefix, cursor, limit)
	page.Next = next
	if len(names) == 0 {
		return page, nil
	}
	texts, err := s.rdb.HMGet(ctx, s.keys.documents(kind), names...).Result()
	if err != nil {
		return state.DocumentPage{}, fmt.Errorf("read the documents of kind %s: %w", kind, err)
	}
	for i, text := range texts {
		if data, ok := text.(string); ok { // else it was deleted in the meantime
			page.Documents = append(page.Documents, state.Document{Name: names[i], Data: json.RawMessage(data)})
		}
	}
	return page, nil
}

// DeleteDocument implements state.Documents.
func (s *Store) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	if _, err := s.write(ctx, "hdel", s.keys.documents(kind), name); err != nil {
		return fmt.Errorf("delete %s: %w", kind, err)
	}
	return nil
}

// auditField is the one field of an entry.
const auditField = "e"

// AppendAudit implements state.Audits.
func (s *Store) AppendAudit(ctx context.Context, tenant string, entry json.RawMessage) error {
	_, err := s.write(ctx, "xadd", s.keys.audit(tenant), "maxlen", "~", state.AuditEntries, "*", auditField, []byte(entry))
	if err != nil {
		return fmt.Errorf("append to the audit log: %w", err)
	}
	return nil
}

var auditCursor = regexp.MustCompile(`^[1-9][0-9]{0,14}-[0-9]{1,15}$`)

// Audit implements state.Audits.
func (s *Store) Audit(ctx context.Context, tenant, cursor string, limit int) ([]json.RawMessage, string, error) {
	from := "+"
	if cursor != "" {
		if !auditCursor.MatchString(cursor) {
			return nil, "", &state.InvalidCursorError{Cursor: cursor}
		}
		from = "(" + cursor
	}
	found, err := s.rdb.XRevRangeN(ctx, s.keys.audit(tenant), from, "-", int64(limit)+1).Result()
	if err != nil {
		return nil, "", fmt.Errorf("read the audit log: %w", err)
	}
	next := ""
	if len(found) > limit {
		found = found[:limit]
		next = found[limit-1].ID
	}
	entries := make([]json.RawMessage, len(found))
	for i, m := range found {
		text, _ := m.Values[auditField].(string)
		entries[i] = json.RawMessage(text)
	}
	return entries, next, nil
}
