package natsbus_test

import (
	"bytes"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/bus"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// doctor reports a tenant whose files are close to their limit.
func TestCheckNamesFullFiles(t *testing.T) {
	t.Parallel()
	b := tenantBus(t, testbed.NATS(t), natsbus.Config{Limits: natsbus.Limits{Files: mib}}, "evil")
	finding := func() state.Finding {
		t.Helper()
		all := b.Check(t.Context())
		i := slices.IndexFunc(all, func(f state.Finding) bool { return f.Name == "nats: streams of files" })
		if i < 0 {
			t.Fatalf("no finding about files: %+v", all)
		}
		return all[i]
	}
	for _, tenant := range []string{"default", "evil"} {
		if _, err := b.PutObject(t.Context(), tenant, "small", bytes.NewReader(make([]byte, mib/4))); err != nil {
			t.Fatal(err)
		}
	}
	if f := finding(); !f.OK || !strings.HasPrefix(f.Detail, "2 with 0 MiB") {
		t.Errorf("%+v", f)
	}
	if _, err := b.PutObject(t.Context(), "evil", "large", bytes.NewReader(make([]byte, mib/10*7))); err != nil {
		t.Fatal(err)
	}
	if f := finding(); f.OK || !strings.HasPrefix(f.Detail, "the files of evil use 90 %") {
		t.Errorf("%+v", f)
	}
}

// A tenant whose objects have reached their limit can store no more; others can.
func TestObjectsHaveLimits(t *testing.T) {
	t.Parallel()
	b := tenantBus(t, testbed.NATS(t), natsbus.Config{Limits: natsbus.Limits{Files: mib}}, "evil", "acme")
	put := func(tenant, name string, size int) error {
		n, err := b.PutObject(t.Context(), tenant, name, bytes.NewReader(make([]byte, size)))
		if err == nil && n != int64(size) {
			t.Errorf("%s has %d bytes, want %d", name, n, size)
		}
		return err
	}
	if err := put("evil", "large", 2*mib); !errors.Is(err, bus.ErrObjectsFull) {
		t.Errorf("an object above the limit: %v", err)
	}
	if names, err := b.ObjectNames(t.Context(), "evil"); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	if err := put("evil", "one", 600<<10); err != nil {
		t.Error(err)
	}
	if err := put("evil", "two", 600<<10); !errors.Is(err, bus.ErrObjectsFull) {
		t.Errorf("objects above the limit together: %v", err)
	}
	if err := put("acme", "one", 600<<10); err != nil {
		t.Errorf("another tenant: %v", err)
	}
	if err := b.DeleteObject(t.Context(), "evil", "one"); err != nil {
		t.Error(err)
	}
	if err := put("evil", "two", 600<<10); err != nil {
		t.Errorf("after a deletion: %v", err)
	}
}

// The partial upload of a dead process is not an object, and another process finds and deletes it.
func TestObjectOfDeadUploader(t *testing.T) {
	t.Parallel()
	s := testbed.NATSServer(t)
	var conns [2]*nats.Conn
	for i := range conns {
		nc, err := s.Conn("test")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(nc.Close)
		conns[i] = nc
	}
	b, dying := tenantBus(t, conns[0], natsbus.Config{}), conns[1]
	doomed := tenantBus(t, dying, natsbus.Config{})
	sent := 0
	r := readerFunc(func(p []byte) (int, error) {
		if sent += len(p); sent > 1<<20 {
			dying.Close()
		}
		return len(p), nil
	})
	if _, err := doomed.PutObject(t.Context(), "acme", "half", io.LimitReader(r, 8<<20)); err == nil {
		t.Fatal("an uploader without a connection stored an object")
	}
	if names, err := b.ObjectNames(t.Context(), "acme"); err != nil || strings.Join(names, " ") != "half" {
		t.Fatalf("left behind: %v, %v", names, err)
	}
	half, err := b.OpenObject(t.Context(), "acme", "half")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, half); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a partial object could be read: %v", err)
	}
	if err := b.DeleteObject(t.Context(), "acme", "half"); err != nil {
		t.Fatal(err)
	}
	if names, err := b.ObjectNames(t.Context(), "acme"); err != nil || len(names) > 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// An object that has lost a message cannot be read as if it were whole.
func TestObjectWithoutAMessage(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	b := tenantBus(t, nc, natsbus.Config{}, "acme")
	if _, err := b.PutObject(t.Context(), "acme", "damaged", bytes.NewReader(make([]byte, mib))); err != nil {
		t.Fatal(err)
	}
	stream, err := jet(t, nc).Stream(t.Context(), "TURNPIKE_FILES_acme")
	if err == nil {
		err = stream.DeleteMsg(t.Context(), 3)
	}
	if err != nil {
		t.Fatal(err)
	}
	r, err := b.OpenObject(t.Context(), "acme", "damaged")
	if err != nil {
		t.Fatal(err)
	}
	if n, err := io.Copy(io.Discard, r); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d bytes were read, %v, want %v", n, err, io.ErrUnexpectedEOF)
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

// Objects keep their limit on a server that could not reserve it.
func TestObjectsKeepALimitThatIsNotReserved(t *testing.T) {
	t.Parallel()
	s := testbed.NATSWith(t, func(o *server.Options) { o.JetStreamMaxStore = 96 * mib })
	nc, err := natsbus.Connect(s.ClientURL(), "test")
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	b := tenantBus(t, nc, natsbus.Config{Limits: natsbus.Limits{Submit: 8 * mib, Control: 8 * mib, Dead: 8 * mib, Files: 16 * mib}})
	put := func(name string) error {
		_, err := b.PutObject(t.Context(), state.DefaultTenant, name, bytes.NewReader(make([]byte, 10*mib)))
		return err
	}
	if err := put("one"); err != nil {
		t.Fatal(err)
	}
	if limit := limitOf(t, jet(t, nc), "TURNPIKE_FILES"); limit > 0 {
		t.Fatalf("the server has reserved %d bytes", limit)
	}
	if err := put("two"); !errors.Is(err, bus.ErrObjectsFull) {
		t.Errorf("objects above the limit together: %v", err)
	}
}
