package natsbus

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// raise gives an existing stream the replicas that want asks for, if it has fewer, and the maximum age of its
// messages. It logs a stream that it cannot change, and the bus uses the stream as it is: the process may lack
// the permission to change streams, or the cluster a server. Check reports missing replicas, but no other age.
func (conn *connection) raise(ctx context.Context, want jetstream.StreamConfig, s jetstream.Stream) {
	have := s.CachedInfo().Config
	wanted := have
	wanted.Replicas = max(have.Replicas, want.Replicas)
	if want.MaxAge != 0 && have.MaxAge != want.MaxAge {
		wanted.MaxAge, wanted.Duplicates = want.MaxAge, want.Duplicates
	}
	changes := changed(have, wanted)
	if len(changes) == 0 {
		return
	}
	if _, err := conn.js.UpdateStream(ctx, wanted); err != nil {
		if info, infoErr := s.Info(ctx); infoErr == nil {
			changes = changed(info.Config, wanted)
		}
		if len(changes) > 0 { // else another process did it
			conn.log.With(changes...).Warn("settings of the stream not changed", "error", err, "stream", want.Name, "hint", "run at least as many NATS servers as the stream needs replicas, and permit this process to change streams, then restart it; or change the stream with `nats stream edit`")
		}
		return
	}
	conn.log.With(changes...).Info("settings of the stream changed", "stream", want.Name)
	awaitLeader(ctx, s)
}

// changed returns, as attributes of a log, those settings of raise that differ, with both values.
func changed(from, to jetstream.StreamConfig) (attributes []any) {
	if from.Replicas != to.Replicas {
		attributes = append(attributes, "replicas", fmt.Sprintf("%d to %d", from.Replicas, to.Replicas))
	}
	if from.MaxAge != to.MaxAge {
		attributes = append(attributes, "max_age", fmt.Sprintf("%s to %s", from.MaxAge, to.MaxAge))
	}
	return attributes
}

// awaitLeader waits some seconds until a stream has a leader again: while the new replicas connect
// to each other, no server answers for it.
func awaitLeader(ctx context.Context, s jetstream.Stream) {
	for range 10 {
		once, cancel := context.WithTimeout(ctx, time.Second)
		_, err := s.Info(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			return
		}
	}
}

// reserve is the space that must be free in addition to the limits.
const reserve = 64 << 20

// limit sets the limits of streams that have none or lower ones, except where that would delete dead letters. A server
// reserves the maximum size of every stream, and refuses to create any stream once everything is reserved. So limit
// first asks for the space of all limits, with some to spare. If the server refuses that, limit sets none, and Check
// reports that.
func (b *Bus) limit(ctx context.Context) { b.limitTo(ctx, b.streams()) }

func (conn *connection) limitTo(ctx context.Context, streams []jetstream.StreamConfig) {
	type lacking struct{ want, have jetstream.StreamConfig }
	var all []lacking
	total := int64(reserve)
	for _, want := range streams {
		s, err := conn.js.Stream(ctx, want.Name)
		if err != nil || !lacksLimit(want, s.CachedInfo().Config) || cuts(want, s.CachedInfo()) {
			continue
		}
		have := s.CachedInfo().Config
		all = append(all, lacking{want, have})
		total += want.MaxBytes - max(have.MaxBytes, 0)
	}
	slices.SortFunc(all, func(a, b lacking) int { return cmp.Compare(b.want.MaxBytes, a.want.MaxBytes) })
	for i, l := range all {
		cfg := l.have
		if i == 0 {
			// This requests all of the space at once, to see if the server grants it.
			cfg.MaxBytes = max(cfg.MaxBytes, 0) + total
			if !conn.update(ctx, cfg) {
				return
			}
		}
		if cfg.MaxBytes = l.want.MaxBytes; !conn.update(ctx, cfg) {
			return
		}
	}
}

func (conn *connection) update(ctx context.Context, cfg jetstream.StreamConfig) bool {
	_, err := conn.js.UpdateStream(ctx, cfg)
	if err != nil {
		conn.log.Warn("size limit of the stream not set", "error", err, "stream", cfg.Name, "max_bytes", cfg.MaxBytes, "hint", "raise max_file_store of NATS above the sum of all limits, and check that this process may change streams")
	}
	return err == nil
}

// lacksLimit reports whether a stream has no limit, or a lower one than want asks for.
func lacksLimit(want, have jetstream.StreamConfig) bool {
	return want.MaxBytes > 0 && have.MaxBytes < want.MaxBytes
}

// cuts reports whether the limit of want would delete messages that are kept until a person has
// read them.
func cuts(want jetstream.StreamConfig, is *jetstream.StreamInfo) bool {
	return want.Discard == jetstream.DiscardOld && want.MaxAge == 0 && is.State.Bytes > uint64(want.MaxBytes) //nolint:gosec // above 0
}
