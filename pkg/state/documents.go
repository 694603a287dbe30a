package state

import (
	"context"
	"encoding/json"
)

// DocumentKind is what documents of one sort share, and a word fit for a key or a subject.
type DocumentKind string

// The kinds of documents.
const (
	DeletionDocument  DocumentKind = "deletion"  // a deletion that is in progress, by a name of its own
	DeletionsDocument DocumentKind = "deletions" // when runs of a tenant were deleted last, by its name
	KeyDocument       DocumentKind = "key"       // an API key, by its id
	SessionDocument   DocumentKind = "session"   // of somebody who has logged in to the page
	TenantDocument    DocumentKind = "tenant"    // the settings of a tenant, by its name
)

// DraftsOf is the kind of the definitions of a tenant's agents that wait for review, by name.
// It is of one tenant as each has up to a megabyte, which nobody else is to read.
func DraftsOf(tenant string) DocumentKind { return DocumentKind("draft-" + tenant) }

// Documents keeps small documents about a deployment, some thousands at most of a kind.
type Documents interface {
	// PutDocument stores a document in the place of the one that had its name.
	PutDocument(ctx context.Context, kind DocumentKind, name string, data json.RawMessage) error

	// ReplaceDocument puts data in the place of was, which is the document as it was read. Nil
	// is no document, for either. ErrChanged, and nothing is changed, if the document is
	// another by now; a repetition after an unknown outcome may find its own.
	ReplaceDocument(ctx context.Context, kind DocumentKind, name string, was, data json.RawMessage) error

	// Document returns a document as it stands, or ErrNotFound.
	Document(ctx context.Context, kind DocumentKind, name string) (json.RawMessage, error)

	// DocumentNames returns the names of all documents of a kind, sorted.
	DocumentNames(ctx context.Context, kind DocumentKind) ([]string, error)

	// Documents returns all documents of a kind by their names.
	Documents(ctx context.Context, kind DocumentKind) (map[string]json.RawMessage, error)

	// DeleteDocument removes a document, if there is one.
	DeleteDocument(ctx context.Context, kind DocumentKind, name string) error
}

// AuditEntries is how many entries of the audit of a tenant are kept at least.
const AuditEntries = 100_000

// Audits keeps who did what, for each tenant.
type Audits interface {
	// AppendAudit adds an entry. Repeated after an unknown outcome it may be there twice.
	AppendAudit(ctx context.Context, tenant string, entry json.RawMessage) error

	// Audit returns up to limit entries of a tenant, the newest first, and the cursor of
	// the rest, which is empty at the end. An empty cursor begins with the newest.
	Audit(ctx context.Context, tenant, cursor string, limit int) (entries []json.RawMessage, next string, err error)
}

// InvalidCursorError reports a cursor that no store has given out.
type InvalidCursorError struct{ Cursor string }

func (e *InvalidCursorError) Error() string { return "no page of a list has that cursor" }
