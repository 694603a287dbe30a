package bus

import (
	"context"
	"errors"
	"io"
)

var (
	// ErrNoObject reports an object that does not exist.
	ErrNoObject = errors.New("the content does not exist")

	// ErrObjectsFull reports that the objects of a tenant have reached their limit.
	ErrObjectsFull = errors.New("the files of the tenant have reached their limit in bytes: delete some, or raise TURNPIKE_FILES_MIB (in Go, NATS.Limits.Files)")
)

// ObjectBuffer is the maximum number of bytes of one object that PutObject and a reader of OpenObject keep
// in memory, on a bus that does not keep the objects themselves there.
const ObjectBuffer = 192 << 10

// DefaultObjectBytes is the default limit of all objects of one tenant.
const DefaultObjectBytes = 1 << 30

// Objects keeps contents that are too large for a message, by tenant and name. Each tenant has its own
// limit. A name has letters, digits, _ and -.
type Objects interface {
	// PutObject stores the bytes of r up to io.EOF under a name, and returns their number. The caller
	// must pass a name that no object and no PutObject in progress has: the bus need not check that.
	// PutObject returns an error of r unchanged, and ErrObjectsFull if the tenant's objects would exceed their limit.
	// After an error PutObject deletes what it stored. If the bus does not answer or refuses that, a part or even the
	// whole object may remain: ObjectNames then has the name, and DeleteObject deletes the rest.
	PutObject(ctx context.Context, tenant, name string, r io.Reader) (int64, error)

	// OpenObject returns a reader of an object, or ErrNoObject. ctx bounds the reader too. When the reader needs bytes
	// that it does not have in memory, it returns an error if ctx has ended, and ErrNoObject or io.ErrUnexpectedEOF if
	// the object was deleted. OpenObject or the reader returns io.ErrUnexpectedEOF for an object that was not stored
	// completely. The caller must close the reader, and must not use it concurrently.
	OpenObject(ctx context.Context, tenant, name string) (io.ReadCloser, error)

	// DeleteObject deletes an object, or what is left of one. It does nothing if the object does not exist.
	DeleteObject(ctx context.Context, tenant, name string) error

	// ObjectNames returns the names of all objects of a tenant, including those that PutObject is
	// storing, in any order.
	ObjectNames(ctx context.Context, tenant string) ([]string, error)

	// DropObjects deletes all objects of a tenant.
	DropObjects(ctx context.Context, tenant string) error
}
