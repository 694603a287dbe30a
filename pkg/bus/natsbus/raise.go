package natsbus

import (
	"context"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// raise gives a stream that exists the replicas that want asks for, if it has fewer. A
// stream that cannot be raised serves as it is, and Check says so: the process may lack the
// right to change streams, or the cluster a server.
func (b *Bus) raise(ctx context.Context, want jetstream.StreamConfig, s jetstream.Stream) {
	cfg, differs := raised(want, s.CachedInfo().Config)
	if !differs {
		return
	}
	if _, err := b.js.UpdateStream(ctx, cfg); err != nil {
		// Another process may have done it at the same time.
		if info, infoErr := s.Info(ctx); infoErr == nil {
			if _, differs := raised(want, info.Config); !differs {
				return
			}
		}
		b.log.Warn().Err(err).Str("stream", want.Name).Int("replicas", cfg.Replicas).
			Str("hint", "are enough NATS servers up, and may this process change streams?").Msg("stream not raised")
		return
	}
	b.log.Info().Str("stream", want.Name).Int("replicas", cfg.Replicas).Msg("stream raised")
	awaitLeader(ctx, s)
}

// awaitLeader waits until a stream has a leader again, for some seconds: while the new replicas
// find each other, nobody answers for it.
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

// raised returns the settings of a stream with what want asks for beyond them, and
// whether that is anything.
func raised(want, have jetstream.StreamConfig) (_ jetstream.StreamConfig, differs bool) {
	if have.Replicas < want.Replicas {
		have.Replicas, differs = want.Replicas, true
	}
	return have, differs
}
