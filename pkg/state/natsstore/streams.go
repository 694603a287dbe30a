package natsstore

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ensure opens a stream, creates it if it is missing, raises its replicas if it has fewer than want, and
// enables message TTLs if want does; with Config.ReadOnly it only opens the stream. It uses a stream that
// it cannot change as it is; Check reports missing replicas of the streams of runs and of rate limits.
func (s *Store) ensure(ctx context.Context, want jetstream.StreamConfig) (jetstream.Stream, error) {
	stream, err := s.js.Stream(ctx, want.Name)
	if errors.Is(err, jetstream.ErrStreamNotFound) && !s.cfg.ReadOnly {
		stream, err = s.js.CreateStream(ctx, want)
		if errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			stream, err = s.js.Stream(ctx, want.Name) // another process was faster, with other settings
		}
	}
	if err != nil {
		return nil, fmt.Errorf("stream %s cannot be opened (%w): check that NATS answers with JetStream on, has storage left and at least as many servers as replicas (%d), and permits this process to read, create and change the stream", want.Name, err, want.Replicas)
	}
	have := stream.CachedInfo().Config
	wanted := have
	wanted.Replicas, wanted.AllowMsgTTL = max(have.Replicas, want.Replicas), have.AllowMsgTTL || want.AllowMsgTTL
	changes := changed(have, wanted)
	if s.cfg.ReadOnly || len(changes) == 0 {
		return stream, nil
	}
	if _, err := s.js.UpdateStream(ctx, wanted); err != nil {
		if info, infoErr := stream.Info(ctx); infoErr == nil {
			changes = changed(info.Config, wanted)
		}
		if len(changes) > 0 { // else another process did it
			s.cfg.Logger.With(changes...).Warn("settings of the stream not changed", "error", err, "stream", want.Name, "hint", "check that at least as many NATS servers are running as the stream needs replicas, and that this process has the permission to change streams; then restart it")
		}
		return stream, nil
	}
	s.cfg.Logger.With(changes...).Info("settings of the stream changed", "stream", want.Name)
	for range 10 { // while the new replicas find each other, nobody answers for the stream
		once, cancel := context.WithTimeout(ctx, time.Second)
		_, err = stream.Info(once)
		cancel()
		if err == nil || ctx.Err() != nil {
			break
		}
	}
	return stream, nil
}

// changed returns, as attributes of a log, those settings of ensure that differ, with both values.
func changed(from, to jetstream.StreamConfig) (attributes []any) {
	if from.Replicas != to.Replicas {
		attributes = append(attributes, "replicas", fmt.Sprintf("%d to %d", from.Replicas, to.Replicas))
	}
	if from.AllowMsgTTL != to.AllowMsgTTL {
		attributes = append(attributes, "allow_msg_ttl", fmt.Sprintf("%t to %t", from.AllowMsgTTL, to.AllowMsgTTL))
	}
	return attributes
}

// Check inspects the streams, for doctor and at startup.
func (s *Store) Check(ctx context.Context) []state.Finding {
	f := state.Finding{Name: "store: JetStream", OK: true, Fatal: true}
	info, err := s.stream.Info(ctx)
	if err != nil {
		f.OK, f.Detail = false, err.Error()
		f.Remedy = fmt.Sprintf("check that nats-server runs with -js and answers, that the stream %s exists and has a leader, and that the NATS user of this process may read it", s.stream.CachedInfo().Config.Name)
		return []state.Finding{f}
	}
	f.Detail = fmt.Sprintf("stream %s, %d messages, %d bytes", info.Config.Name, info.State.Msgs, info.State.Bytes)
	findings := []state.Finding{f, s.checkRuns()}
	quota, err := s.quotas.stream.Info(ctx)
	if err != nil {
		return append(findings, state.Finding{Name: "store: rate limits", Detail: err.Error(), Remedy: fmt.Sprintf("check that NATS answers and permits this process to read the stream %s; a gateway or a worker creates a missing stream when it starts", s.quotas.stream.CachedInfo().Config.Name)})
	}
	for _, have := range []jetstream.StreamConfig{info.Config, quota.Config} {
		if have.Replicas < s.cfg.Replicas {
			findings = append(findings, state.Finding{
				Name: "store: stream " + have.Name, Detail: fmt.Sprintf("%d replicas, want %d", have.Replicas, s.cfg.Replicas),
				Remedy: fmt.Sprintf("restart a gateway or a worker with TURNPIKE_NATS_REPLICAS=%[2]d, which adds replicas, or run: nats stream edit %[1]s --replicas %[2]d", have.Name, s.cfg.Replicas),
			})
		}
	}
	return findings
}
