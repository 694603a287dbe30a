package state

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
)

// DocumentKind is the kind of a document: letters, digits, hyphens and underscores.
type DocumentKind string

// The kinds of documents.
const (
	DeletedTenantDocument DocumentKind = "tenant-deleted" // the last settings of a deleted tenant, by its name
	DeletionDocument      DocumentKind = "deletion"       // a deletion in progress, by its own name
	DeletionsDocument     DocumentKind = "deletions"      // the time of a tenant's latest deletion of runs, by its name
	KeyDocument           DocumentKind = "key"            // an API key, by its id
	SessionDocument       DocumentKind = "session"        // a login to the page
	TenantDocument        DocumentKind = "tenant"         // the settings of a tenant, by its name
	TokenKeyDocument      DocumentKind = "tokenkey"       // the keys that sign tokens of users, by tenant
	TriggersDocument      DocumentKind = "triggers"       // a mark that changes with the triggers of a tenant, by its name
)

// DraftsOf returns the kind of a tenant's agent definitions that wait for review, by name. Each
// tenant has its own kind because a draft has up to a megabyte, which other tenants need not read.
func DraftsOf(tenant string) DocumentKind { return DocumentKind("draft-" + tenant) }

// EvaluationsOf returns the kind of the reports of a tenant's evaluations, by id.
func EvaluationsOf(tenant string) DocumentKind { return DocumentKind("evaluation-" + tenant) }

// EvaluationSummariesOf returns the kind of the same reports without their results, by id. The summaries are
// separate documents because a list reads all of them.
func EvaluationSummariesOf(tenant string) DocumentKind {
	return DocumentKind("evaluationsummary-" + tenant)
}

// FilesOf returns the kind of a tenant's uploaded files, by id.
func FilesOf(tenant string) DocumentKind { return DocumentKind("file-" + tenant) }

// FileUsersOf returns the kind of the documents that record the use of the file with an id: one for each run, batch
// or schedule that refers to the file, which the document's name identifies. Each file has its own kind because many
// runs may refer to one file.
func FileUsersOf(file string) DocumentKind { return DocumentKind("fileuser-" + file) }

// HooksOf returns the kind of a tenant's hooks, which receive deliveries from other systems, by
// name.
func HooksOf(tenant string) DocumentKind { return DocumentKind("hook-" + tenant) }

// MemoriesOf returns the kind of the memories that a tenant's agents keep, by scope.
func MemoriesOf(tenant string) DocumentKind { return DocumentKind("memory-" + tenant) }

// SchedulesOf returns the kind of a tenant's schedules, by name.
func SchedulesOf(tenant string) DocumentKind { return DocumentKind("schedule-" + tenant) }

// TriggersOf returns the kind of a tenant's triggers, which read streams of users, by name.
func TriggersOf(tenant string) DocumentKind { return DocumentKind("trigger-" + tenant) }

// WebhookTestsOf returns the kind of a tenant's tests of webhooks, by id.
func WebhookTestsOf(tenant string) DocumentKind { return DocumentKind("webhooktest-" + tenant) }

// Documents keeps documents about a deployment, of up to about 1 MiB, usually at most 10,000 of a kind. Names are
// any text that is not empty. A document is a JSON value; a store may return it with other white
// space and other escapes in strings.
type Documents interface {
	// PutDocument stores a document in place of the one with the same name. data must not be nil.
	PutDocument(ctx context.Context, kind DocumentKind, name string, data json.RawMessage) error

	// ReplaceDocument replaces was, the document as the caller read it, with data. If was is nil, the
	// document must not exist; if data is nil, ReplaceDocument deletes it. If the store would return
	// other bytes than was, ReplaceDocument changes nothing and returns ErrChanged. If several callers
	// have read the same document, at most one of them replaces it; concurrent deletions may all return nil.
	// A repetition after an unknown outcome may find its own change, and then returns ErrChanged.
	ReplaceDocument(ctx context.Context, kind DocumentKind, name string, was, data json.RawMessage) error

	// Document returns the current document, or ErrNotFound.
	Document(ctx context.Context, kind DocumentKind, name string) (json.RawMessage, error)

	// DocumentNames returns the names of all documents of a kind, sorted.
	DocumentNames(ctx context.Context, kind DocumentKind) ([]string, error)

	// Documents returns all documents of a kind by their names.
	Documents(ctx context.Context, kind DocumentKind) (map[string]json.RawMessage, error)

	// ListDocuments returns up to limit documents of a kind whose names begin with prefix, sorted by
	// the bytes of their names. An empty prefix selects all. Cursor is the Next of the previous page,
	// or empty for the first page. Limit is more than 0. A page may have fewer documents than limit,
	// even if it has a Next. Pages are not a snapshot: a document that is stored or deleted while a
	// caller reads pages may be missing, and the others appear once.
	ListDocuments(ctx context.Context, kind DocumentKind, prefix, cursor string, limit int) (DocumentPage, error)

	// DeleteDocument deletes a document, if it exists.
	DeleteDocument(ctx context.Context, kind DocumentKind, name string) error
}

// DocumentPage is one page of documents.
type DocumentPage struct {
	Documents []Document
	Next      string // a cursor; empty at the end
}

// Document is a document with its name.
type Document struct {
	Name string
	Data json.RawMessage
}

// PageOfNames returns the names of one page of ListDocuments, and its Next. It is for stores that
// read the names of a kind at once, in any order.
func PageOfNames(names []string, prefix, cursor string, limit int) (page []string, next string) {
	for _, name := range names {
		if strings.HasPrefix(name, prefix) && (cursor == "" || name > cursor) {
			page = append(page, name)
		}
	}
	slices.Sort(page)
	if len(page) > limit {
		page = page[:limit]
		next = page[limit-1]
	}
	return page, next
}

// AuditEntries is the minimum number of audit entries that a store keeps per tenant.
const AuditEntries = 100_000

// Audits keeps an audit trail of actions, for each tenant.
type Audits interface {
	// AppendAudit adds an entry, after those of all calls that have returned. If repeated after an
	// unknown outcome, the entry may appear twice.
	AppendAudit(ctx context.Context, tenant string, entry json.RawMessage) error

	// Audit returns up to limit entries of a tenant, newest first, and the cursor of the next page, which
	// is empty at the end. An empty cursor starts with the newest. The error is an *InvalidCursorError
	// for a text that cannot be a cursor; the store need not detect a cursor that it has not returned.
	// Limit is more than 0. Entries that are added while a caller reads pages are not on the next ones.
	Audit(ctx context.Context, tenant, cursor string, limit int) (entries []json.RawMessage, next string, err error)
}

// InvalidCursorError reports a cursor that no store has returned.
type InvalidCursorError struct{ Cursor string }

func (e *InvalidCursorError) Error() string {
	return "invalid cursor: pass next_cursor from a response of the same list"
}
