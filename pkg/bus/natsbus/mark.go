package natsbus

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// markStream returns the configuration of the stream that keeps the mark, by which processes detect that the store is
// an older copy. It has no age limit: a deployment must find the mark even after a long stop.
func (conn *connection) markStream() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name: conn.stream("MARK"), Subjects: []string{conn.subject("mark")}, Storage: jetstream.FileStorage, Replicas: conn.cfg.Replicas,
		Duplicates: remembered, Discard: jetstream.DiscardOld, MaxMsgs: markMessages, MaxMsgSize: 64 << 10,
	}
}

// markMessages is the number of messages that the stream MARK keeps.
const markMessages = 64

// findMark returns the latest mark, and the sequence of the latest message in its stream. It skips messages that are
// not marks, as readLayout does.
func (b *Bus) findMark(ctx context.Context) (mark record, last uint64, err error) {
	stream := b.stream("MARK")
	mark, err = b.latest(ctx, stream, b.subject("mark"))
	last = mark.seq
	for seq := last; err == nil && seq > 0 && last-seq < markMessages; seq-- {
		if seq < last {
			mark, err = b.message(ctx, stream, map[string]any{"seq": seq})
		}
		if err == nil && isMark(mark.data) {
			return mark, last, nil
		}
	}
	if err == nil && last > 0 {
		err = fmt.Errorf("message %d of stream %s is not a counter, although only Turnpike may write there: remove it with `nats stream rmm %s %d`", last, stream, stream, last)
	}
	if err != nil {
		err = fmt.Errorf("read from NATS the counter that shows whether the store is an older copy: %w", err)
	}
	return record{}, last, err
}

// isMark reports whether a message is a mark: every mark has a count.
func isMark(data []byte) bool {
	var mark struct {
		Count int64 `json:"count"`
	}
	return json.Unmarshal(data, &mark) == nil && mark.Count > 0
}

// Mark returns the mark of the deployment, its revision, and the time at which it was written. A
// revision of 0 means that the mark does not exist.
func (b *Bus) Mark(ctx context.Context) (data []byte, revision uint64, at time.Time, err error) {
	r, _, err := b.findMark(ctx)
	return r.data, r.seq, r.at, err
}

// ReplaceMark replaces the mark that has the given revision, 0 for none. If the stream is missing, ReplaceMark creates
// it and writes the mark, whatever revision is. moved means that this call has written nothing, because the mark
// probably has another revision by now: read it again. After an error the mark may be replaced.
func (b *Bus) ReplaceMark(ctx context.Context, data []byte, revision uint64) (moved bool, err error) {
	err = b.replace(ctx, b.markStream(), b.subject("mark"), data, revision, revision > 0)
	if errors.Is(err, errMoved) {
		mark, last, findErr := b.findMark(ctx)
		if findErr == nil && mark.seq == revision && last > revision { // messages that are not marks follow
			err = b.replace(ctx, b.markStream(), b.subject("mark"), data, last, true)
		}
	}
	switch {
	case errors.Is(err, errMoved):
		return true, nil
	case err != nil:
		return false, fmt.Errorf("write to NATS the counter that shows whether the store is an older copy: %w", err)
	default:
		return false, nil
	}
}
