package natsbus

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/bus"
)

// An object is a sequence of messages on a subject of its own, as in the object store of JetStream's
// clients. Theirs keeps hundreds of megabytes of one upload in flight, lets the server push a whole
// object into a reader's memory, and needs subjects outside the deployment's prefix.

const (
	kindFiles = "FILES"

	// objectChunk is the number of bytes of an object in one message, as the clients of JetStream have
	// it. objectsInFlight is the number of messages that a writer sends before the first is answered.
	objectChunk     = 128 << 10
	objectsInFlight = 2

	// headerSize is the size of the whole object, in its last message.
	headerSize = "Turnpike-Size"

	// maxBytesExceeded is a part of the server's error for a message to a stream that is full.
	maxBytesExceeded = "maximum bytes exceeded"
)

func (b *Bus) objectSubject(tenant, name string) string { return b.subjectOf(tenant, "file", name) }

// objectStream returns the configuration of the stream of a tenant's objects.
func (b *Bus) objectStream(tenant string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: b.streamOf(tenant, kindFiles), Subjects: []string{b.objectSubject(tenant, "*")},
		Storage: jetstream.FileStorage, Replicas: b.cfg.Replicas, Duplicates: remembered,
		Retention: jetstream.LimitsPolicy, Discard: jetstream.DiscardNew, MaxBytes: b.cfg.Limits.Files,
	}
}

// openObjects returns the stream of a tenant's objects. It creates the stream, or raises its limit, if
// create is true; else the error is bus.ErrNoObject if it does not exist.
func (b *Bus) openObjects(ctx context.Context, tenant string, create bool) (jetstream.Stream, error) {
	want := b.objectStream(tenant)
	s, err := b.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && create {
		noLess := func() int64 { return 0 } // PutObject keeps the limit without the server
		if err := b.createTenant(ctx, want, noLess); err != nil {
			return nil, err
		}
		s, err = b.js.Stream(ctx, want.Name)
	}
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, bus.ErrNoObject
	}
	if err != nil {
		return nil, openError("stream "+want.Name, err)
	}
	if create {
		if err := differs(want, s.CachedInfo().Config); err != nil {
			return nil, err
		}
		b.raise(ctx, want, s)
		b.limitTo(ctx, []jetstream.StreamConfig{want})
	}
	return s, nil
}

// PutObject implements bus.Objects. It repeats no message, because a repetition could change the order. It
// does not check that the name is free.
func (b *Bus) PutObject(ctx context.Context, tenant, name string, r io.Reader) (size int64, err error) {
	s, err := b.openObjects(ctx, tenant, true)
	if err != nil {
		return 0, err
	}
	subject, sent := b.objectSubject(tenant, name), []pending{}
	defer func() {
		if err != nil {
			b.discardObject(ctx, s, subject, sent)
		}
	}()
	// The server may have refused to reserve the limit.
	limit := b.cfg.Limits.Files
	left := limit - int64(s.CachedInfo().State.Bytes) //nolint:gosec // far below
	chunk := make([]byte, objectChunk)
	for last := false; !last; {
		got, err := fill(chunk, r)
		if last = errors.Is(err, io.EOF); err != nil && !last {
			return 0, err
		}
		if size += int64(got); limit > 0 && size > left {
			return 0, bus.ErrObjectsFull
		}
		m := newMsg(subject, chunk[:got], "")
		if last {
			m.Header.Set(headerSize, strconv.FormatInt(size, 10))
		}
		if sent, err = await(ctx, sent, objectsInFlight-1); err != nil {
			return 0, err
		}
		p, err := b.answers.send(m) // copies the chunk
		if err != nil {
			return 0, err
		}
		sent = append(sent, p)
	}
	sent, err = await(ctx, sent, 0)
	return size, err
}

// fill reads until p is full, or until r returns an error, which it returns. Unlike io.ReadFull it distinguishes
// a reader that has ended from one that has returned io.ErrUnexpectedEOF.
func fill(p []byte, r io.Reader) (n int, err error) {
	for n < len(p) && err == nil {
		var got int
		got, err = r.Read(p[n:])
		n += got
	}
	return n, err
}

// await waits until at most n of the messages are unanswered, and returns those. After an error about a message it
// returns the later ones. It waits for answers also after ctx has ended, and returns the error of ctx after that.
func await(ctx context.Context, sent []pending, n int) ([]pending, error) {
	for ; len(sent) > n; sent = sent[1:] {
		if err := sent[0].wait(context.WithoutCancel(ctx), publishTimeout); err != nil {
			return sent[1:], full(err)
		}
	}
	return sent, ctx.Err()
}

// full returns bus.ErrObjectsFull for the refusal of a stream that is full.
func full(err error) error {
	if api, ok := errors.AsType[*jetstream.APIError](err); ok && strings.Contains(api.Description, maxBytesExceeded) {
		return bus.ErrObjectsFull
	}
	return err
}

// discardObject tries to delete the messages of an object whose upload has failed. It first waits for the answers to
// the messages in flight: a message that the stream still has in its queue would survive a purge.
func (b *Bus) discardObject(ctx context.Context, s jetstream.Stream, subject string, sent []pending) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), publishTimeout)
	defer cancel()
	for _, p := range sent {
		_ = p.wait(ctx, publishTimeout) // refused or stored
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(subject)); err != nil {
		b.log.Warn("rest of an upload not deleted", "error", err, "subject", subject, "hint", "no action needed: a gateway deletes it later")
	}
}

// OpenObject implements bus.Objects.
func (b *Bus) OpenObject(ctx context.Context, tenant, name string) (io.ReadCloser, error) {
	s, err := b.openObjects(ctx, tenant, false)
	if err != nil {
		return nil, err
	}
	r := &objectReader{ctx: ctx, stream: s, subject: b.objectSubject(tenant, name), next: 1}
	if err := r.fetch(); err != nil {
		return nil, err
	}
	return r, nil
}

// objectReader reads an object message by message, so that it has one of them in memory.
type objectReader struct {
	ctx     context.Context //nolint:containedctx // of OpenObject
	stream  jetstream.Stream
	subject string
	next    uint64 // sequence from which the next message is searched
	rest    []byte // of the current message
	read    int64  // bytes of all messages so far
	last    bool   // the current message is the last
}

// fetch reads the next message from the leader of the stream.
func (r *objectReader) fetch() error {
	ctx, cancel := context.WithTimeout(r.ctx, publishTimeout)
	defer cancel()
	m, err := r.stream.GetMsg(ctx, r.next, jetstream.WithGetMsgSubject(r.subject))
	switch {
	case errors.Is(err, jetstream.ErrMsgNotFound) && r.read == 0, errors.Is(err, jetstream.ErrStreamNotFound):
		return bus.ErrNoObject
	case errors.Is(err, jetstream.ErrMsgNotFound):
		return io.ErrUnexpectedEOF
	case err != nil:
		return fmt.Errorf("read object: %w", err)
	}
	r.next, r.rest = m.Sequence+1, m.Data
	r.read += int64(len(m.Data))
	if text := m.Header.Get(headerSize); text != "" {
		r.last = true
		if text != strconv.FormatInt(r.read, 10) {
			return io.ErrUnexpectedEOF
		}
	}
	return nil
}

// Read implements io.Reader.
func (r *objectReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.last {
			return 0, io.EOF
		}
		if err := r.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *objectReader) Close() error {
	r.rest, r.last = nil, true
	return nil
}

// DeleteObject implements bus.Objects.
func (b *Bus) DeleteObject(ctx context.Context, tenant, name string) error {
	s, err := b.openObjects(ctx, tenant, false)
	if errors.Is(err, bus.ErrNoObject) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := s.Purge(ctx, jetstream.WithPurgeSubject(b.objectSubject(tenant, name))); err != nil {
		return fmt.Errorf("delete object: %w", err)
	}
	return nil
}

// ObjectNames implements bus.Objects.
func (b *Bus) ObjectNames(ctx context.Context, tenant string) ([]string, error) {
	s, err := b.openObjects(ctx, tenant, false)
	if errors.Is(err, bus.ErrNoObject) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	info, err := s.Info(ctx, jetstream.WithSubjectFilter(b.objectSubject(tenant, "*")))
	if err != nil {
		return nil, fmt.Errorf("list objects: %w", err)
	}
	names := make([]string, 0, len(info.State.Subjects))
	for subject := range info.State.Subjects {
		names = append(names, lastToken(subject))
	}
	return names, nil
}

// DropObjects implements bus.Objects.
func (b *Bus) DropObjects(ctx context.Context, tenant string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*publishTimeout)
	defer cancel()
	err := b.js.DeleteStream(ctx, b.streamOf(tenant, kindFiles))
	if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
		return fmt.Errorf("delete objects: %w", err)
	}
	return nil
}
