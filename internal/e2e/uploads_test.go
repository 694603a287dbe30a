package e2e_test

import (
	"bytes"
	"context"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	stored "github.com/turnpike-dev/turnpike/internal/file"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// tomorrow is a store whose clock is a few hours ahead.
type tomorrow struct{ state.Store }

func (s tomorrow) Now(ctx context.Context) (time.Time, error) {
	now, err := s.Store.Now(ctx)
	return now.Add(2 * stored.UploadTimeout), err
}

// A gateway that is killed in the middle of an upload leaves no file. A sweep deletes the partial object in
// NATS, the uploader's retry succeeds, and the sweep keeps that file.
func TestKilledUpload(t *testing.T) {
	t.Parallel()
	s := newDeployment(t, 0)
	redis := ""
	for _, e := range s.env {
		if v, ok := strings.CutPrefix(e, "TURNPIKE_REDIS_URL="); ok {
			redis = v
		}
	}
	store, err := redisstore.Open(t.Context(), redisstore.Config{URL: redis, Prefix: s.prefix()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	b, err := natsbus.Open(t.Context(), s.nats, natsbus.Config{Prefix: s.prefix()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = b.Close() })
	names := func() []string {
		t.Helper()
		names, err := b.ObjectNames(t.Context(), state.DefaultTenant)
		if err != nil {
			t.Fatal(err)
		}
		return names
	}

	start := bytes.Repeat([]byte("half "), 200_000)
	content, sender := io.Pipe()
	broken := make(chan error, 1)
	go func() {
		_, err := s.client.PutFile(t.Context(), api.FileUpload{Name: "a.txt", Content: content})
		_ = content.CloseWithError(io.ErrClosedPipe) // ends a sender that still writes
		broken <- err
	}()
	if _, err := sender.Write(start); err != nil {
		t.Fatal(err)
	}
	eventually(t, "NATS has a part of the upload", func() error {
		if len(names()) == 0 {
			return io.ErrNoProgress
		}
		return nil
	})
	s.gateway.kill()
	_ = sender.CloseWithError(io.ErrUnexpectedEOF)
	if err := <-broken; err == nil {
		t.Error("the upload through a killed gateway succeeded")
	}
	s.gateway.start()
	eventually(t, "the gateway answers again", func() error {
		page, err := s.client.Files(t.Context(), "", 0)
		if err == nil && len(page.Items) > 0 {
			t.Errorf("a partial upload left the file %+v", page.Items)
		}
		return err
	})
	rest := names()
	if len(rest) != 1 {
		t.Errorf("NATS has %v, want the rest of the upload", rest)
	}
	whole := bytes.Repeat([]byte("whole "), 200_000)
	f, err := s.client.PutFile(t.Context(), api.FileUpload{Name: "a.txt", Content: bytes.NewReader(whole)})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := stored.New(tomorrow{store}, b).Sweep(t.Context(), state.DefaultTenant); err != nil || n != 0 {
		t.Errorf("Sweep: %d files, %v", n, err)
	}
	if left := names(); !slices.Equal(left, []string{f.ID}) {
		t.Errorf("after the sweep NATS has %v, want only %s", left, f.ID)
	}
	r, err := s.client.FileContent(t.Context(), f.ID)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, whole) {
		t.Errorf("the file has %d bytes, %v", len(got), err)
	}
}
