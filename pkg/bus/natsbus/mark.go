package natsbus

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// markStream keeps the mark that lets processes detect that the store is an older copy. It has no
// age limit: a deployment must find the mark even after a long stop.
func (conn *connection) markStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: conn.stream("MARK"), Subjects: []string{conn.subject("mark")}, Storage: jetstream.FileStorage, Replicas: conn.cfg.Replicas,
		Duplicates: remembered, Discard: jetstream.DiscardOld, MaxMsgs: 64, MaxMsgSize: 64 << 10,
	}
}

// Mark returns the mark of the deployment, its revision, and the time at which it was written. A
// revision of 0 means that the mark does not exist.
func (b *Bus) Mark(ctx context.Context) (data []byte, revision uint64, at time.Time, err error) {
	r, err := b.latest(ctx, b.stream("MARK"), b.subject("mark"))
	if err != nil {
		return nil, 0, time.Time{}, fmt.Errorf("read the mark that reveals an older copy of the store: %w", err)
	}
	return r.data, r.seq, r.at, nil
}

// ReplaceMark replaces the mark that has the given revision, 0 for none. moved means that another
// process has replaced that mark, and this call has written nothing. After an error the mark may be replaced.
func (b *Bus) ReplaceMark(ctx context.Context, data []byte, revision uint64) (moved bool, err error) {
	switch err := b.replace(ctx, b.markStream(), b.subject("mark"), data, revision, revision > 0); {
	case errors.Is(err, errMoved):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("write the mark that reveals an older copy of the store: %w", err)
	default:
		return false, nil
	}
}
