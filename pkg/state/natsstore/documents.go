package natsstore

import (
	"bytes"
	"cmp"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// document is the message of a document. It contains its name, which the subject has in hexadecimal
// digits.
type document struct {
	Name string          `json:"name"`
	Data json.RawMessage `json:"data"`
}

func (s *Store) documentSubject(kind state.DocumentKind, name string) string {
	return s.cfg.Prefix + ".state.document." + string(kind) + "." + hex.EncodeToString([]byte(name))
}

// PutDocument implements state.Documents.
func (s *Store) PutDocument(ctx context.Context, kind state.DocumentKind, name string, data json.RawMessage) error {
	subject := s.documentSubject(kind, name)
	for range maxConflicts {
		_, last, err := s.document(ctx, subject)
		if err != nil && !errors.Is(err, state.ErrNotFound) {
			return err
		}
		if err := s.putDocumentAfter(ctx, kind, document{name, data}, last); !conflict(err) {
			return err
		}
	}
	return fmt.Errorf("put %s %s: other processes changed it %d times in a row: retry", kind, name, maxConflicts)
}

// putDocumentAfter stores a document if the one with sequence last is the latest of its name, and
// deletes earlier ones, because the stream expires nothing.
func (s *Store) putDocumentAfter(ctx context.Context, kind state.DocumentKind, d document, last uint64) error {
	at, err := s.publish(ctx, s.documentSubject(kind, d.Name), d, last)
	if err != nil {
		return fmt.Errorf("put %s %s: %w", kind, d.Name, err)
	}
	return s.forgetDocument(ctx, kind, d.Name, at)
}

// forgetDocument purges the messages of a document before a sequence.
func (s *Store) forgetDocument(ctx context.Context, kind state.DocumentKind, name string, before uint64) error {
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.documentSubject(kind, name)), jetstream.WithPurgeSequence(before)); err != nil {
		return fmt.Errorf("delete the previous version of %s %s: %w", kind, name, err)
	}
	return nil
}

// ReplaceDocument implements state.Documents.
func (s *Store) ReplaceDocument(ctx context.Context, kind state.DocumentKind, name string, was, data json.RawMessage) error {
	subject := s.documentSubject(kind, name)
	d, last, err := s.document(ctx, subject)
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return err
	}
	changed := fmt.Errorf("%s %s: %w", kind, name, state.ErrChanged)
	switch {
	case !bytes.Equal(d.Data, was):
		return changed
	case data != nil:
		if err := s.putDocumentAfter(ctx, kind, document{name, data}, last); !conflict(err) {
			return err
		}
		return changed
	case was == nil:
		return nil
	default:
		// A document that was put in the meantime has a higher sequence, and stays.
		if err := s.forgetDocument(ctx, kind, name, last+1); err != nil {
			return err
		}
		if _, _, err := s.document(ctx, subject); !errors.Is(err, state.ErrNotFound) {
			return cmp.Or(err, changed)
		}
		return nil
	}
}

func (s *Store) document(ctx context.Context, subject string) (document, uint64, error) {
	m, err := s.stream.GetLastMsgForSubject(ctx, subject)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return document{}, 0, state.ErrNotFound
	}
	if err != nil {
		return document{}, 0, fmt.Errorf("read %s: %w", subject, err)
	}
	var d document
	if err := json.Unmarshal(m.Data, &d); err != nil {
		return document{}, 0, fmt.Errorf("decode %s: %w", subject, err)
	}
	return d, m.Sequence, nil
}

// Document implements state.Documents.
func (s *Store) Document(ctx context.Context, kind state.DocumentKind, name string) (json.RawMessage, error) {
	d, _, err := s.document(ctx, s.documentSubject(kind, name))
	if errors.Is(err, state.ErrNotFound) {
		return nil, fmt.Errorf("%s %s: %w", kind, name, err)
	}
	return d.Data, err
}

// documentSubjects returns the subjects of all documents of a kind.
func (s *Store) documentSubjects(ctx context.Context, kind state.DocumentKind) (map[string]uint64, error) {
	info, err := s.stream.Info(ctx, jetstream.WithSubjectFilter(s.documentSubject(kind, "")+"*"))
	if err != nil {
		return nil, fmt.Errorf("list the stored documents of kind %s in JetStream: %w", kind, err)
	}
	return info.State.Subjects, nil
}

// DocumentNames implements state.Documents.
func (s *Store) DocumentNames(ctx context.Context, kind state.DocumentKind) ([]string, error) {
	subjects, err := s.documentSubjects(ctx, kind)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(subjects))
	for subject := range subjects {
		name, err := hex.DecodeString(strings.TrimPrefix(subject, s.documentSubject(kind, "")))
		if err != nil {
			return nil, fmt.Errorf("name of %s: %w", subject, err)
		}
		names = append(names, string(name))
	}
	slices.Sort(names)
	return names, nil
}

// Documents implements state.Documents.
func (s *Store) Documents(ctx context.Context, kind state.DocumentKind) (map[string]json.RawMessage, error) {
	names, err := s.DocumentNames(ctx, kind)
	if err != nil {
		return nil, err
	}
	return s.documentsOf(ctx, kind, names)
}

// documentsOf reads the documents that have these names, several at once.
func (s *Store) documentsOf(ctx context.Context, kind state.DocumentKind, names []string) (map[string]json.RawMessage, error) {
	var mu sync.Mutex
	all := make(map[string]json.RawMessage, len(names))
	reads, ctx := errgroup.WithContext(ctx)
	reads.SetLimit(readsAtOnce)
	for _, name := range names {
		reads.Go(func() error {
			d, _, err := s.document(ctx, s.documentSubject(kind, name))
			if errors.Is(err, state.ErrNotFound) {
				return nil // deleted in the meantime
			}
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			all[name] = d.Data
			return nil
		})
	}
	if err := reads.Wait(); err != nil {
		return nil, err
	}
	return all, nil
}

// ListDocuments implements state.Documents. It reads the names of the whole kind, but only the
// documents of the page.
func (s *Store) ListDocuments(ctx context.Context, kind state.DocumentKind, prefix, cursor string, limit int) (page state.DocumentPage, err error) {
	all, err := s.DocumentNames(ctx, kind)
	if err != nil {
		return page, err
	}
	names, next := state.PageOfNames(all, prefix, cursor, limit)
	documents, err := s.documentsOf(ctx, kind, names)
	if err != nil {
		return page, err
	}
	page.Next = next
	for _, name := range names {
		if data, ok := documents[name]; ok {
			page.Documents = append(page.Documents, state.Document{Name: name, Data: data})
		}
	}
	return page, nil
}

// DeleteDocument implements state.Documents.
func (s *Store) DeleteDocument(ctx context.Context, kind state.DocumentKind, name string) error {
	if err := s.stream.Purge(ctx, jetstream.WithPurgeSubject(s.documentSubject(kind, name))); err != nil {
		return fmt.Errorf("delete %s %s: %w", kind, name, err)
	}
	return nil
}

// openAudit creates the stream of audits if it is missing. It is separate from the stream of runs,
// which never expires messages.
func (s *Store) openAudit(ctx context.Context) error {
	want := jetstream.StreamConfig{
		Name: streamName(s.cfg.Prefix, "AUDIT"), Subjects: []string{s.cfg.Prefix + ".audit.*"},
		Storage: jetstream.FileStorage, Replicas: s.cfg.Replicas, Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardOld,
		MaxMsgsPerSubject: state.AuditEntries, AllowDirect: false,
	}
	var err error
	s.audit, err = s.ensure(ctx, want)
	return err
}

func (s *Store) auditSubject(tenant string) string { return s.cfg.Prefix + ".audit." + tenant }

// AppendAudit implements state.Audits.
func (s *Store) AppendAudit(ctx context.Context, tenant string, entry json.RawMessage) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if _, err := s.js.Publish(ctx, s.auditSubject(tenant), entry); err != nil {
		return fmt.Errorf("append to the audit log: %w", err)
	}
	return nil
}

// Audit implements state.Audits. A cursor is the number of a message. The stream can only be read
// forwards, so Audit reads it in windows, from the latest to the earliest. Other tenants may have written any number of
// messages between two of this one, so windows grow until one has more messages than a page needs; then they shrink.
func (s *Store) Audit(ctx context.Context, tenant, cursor string, limit int) ([]json.RawMessage, string, error) {
	end := uint64(math.MaxUint64) // exclusive
	if cursor != "" {
		n, err := strconv.ParseUint(cursor, 10, 63)
		if err != nil || n == 0 {
			return nil, "", &state.InvalidCursorError{Cursor: cursor}
		}
		end = n
	}
	last, err := s.audit.GetLastMsgForSubject(ctx, s.auditSubject(tenant))
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("read the audit log: %w", err)
	}
	end = min(end, last.Sequence+1)
	most := 2 * (limit + 1)                  // messages of a window
	var newest []*jetstream.RawStreamMsg     // in descending order, at least one more than limit
	width, shrinks := uint64(limit)+1, false //nolint:gosec // a page
	for end > 1 && len(newest) <= limit {
		begin := max(end, width+1) - width
		window, whole, err := s.auditWindow(ctx, tenant, begin, end, most)
		switch {
		case err != nil:
			return nil, "", err
		case !whole:
			width, shrinks = (end-begin)/2, true
			continue
		case !shrinks:
			width *= 4
		}
		slices.Reverse(window)
		newest = append(newest, window...)
		end = begin
	}
	next := ""
	if len(newest) > limit {
		next = strconv.FormatUint(newest[limit-1].Sequence, 10)
		newest = newest[:limit]
	}
	entries := make([]json.RawMessage, len(newest))
	for i, m := range newest {
		entries[i] = m.Data
	}
	return entries, next, nil
}

// auditWindow reads a tenant's messages from begin up to, excluding, end. whole is false if there are more than most.
func (s *Store) auditWindow(ctx context.Context, tenant string, begin, end uint64, most int) (window []*jetstream.RawStreamMsg, whole bool, err error) {
	for begin < end {
		m, err := s.audit.GetMsg(ctx, begin, jetstream.WithGetMsgSubject(s.auditSubject(tenant)))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			break
		}
		if err != nil {
			return nil, false, fmt.Errorf("read the audit log: %w", err)
		}
		if m.Sequence >= end {
			break
		}
		if len(window) == most {
			return nil, false, nil
		}
		window = append(window, m)
		begin = m.Sequence + 1
	}
	return window, true, nil
}
