// Package doctor checks what a deployment depends on, and says what to do about what is
// wrong.
package doctor

import (
	"context"

	"github.com/rs/zerolog"

	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/check"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
	"github.com/turnpike-dev/turnpike/pkg/turnpike"
)

// Findings looks at everything that a deployment depends on.
func Findings(ctx context.Context, cfg turnpike.Config) []check.Finding {
	nc, err := natsbus.Connect(cfg.NATSURL, "turnpike doctor")
	if err != nil {
		return []check.Finding{{Name: "nats: server", Fatal: true, Detail: err.Error(), Remedy: "start nats-server with -js, or set TURNPIKE_NATS_URL"}}
	}
	defer nc.Close()
	var findings []check.Finding
	if b, err := natsbus.Open(ctx, nc, natsbus.Config{Prefix: cfg.Prefix, Replicas: cfg.Replicas, AckWait: cfg.AckWait(), Logger: zerolog.Nop()}); err != nil {
		findings = append(findings, check.Finding{Name: "nats: streams", Fatal: true, Detail: err.Error(), Remedy: "enable JetStream, or mend the setting named"})
	} else {
		findings = append(findings, b.Check(ctx)...)
		_ = b.Close()
	}
	if cfg.RedisURL == "" {
		if s, err := natsstore.Open(ctx, nc, natsstore.Config{Prefix: cfg.Prefix, Logger: zerolog.Nop()}); err != nil {
			findings = append(findings, check.Finding{Name: "store: JetStream", Fatal: true, Detail: err.Error(), Remedy: "mend the setting named"})
		} else {
			findings = append(findings, s.Check(ctx)...)
			findings = append(findings, toolFindings(ctx, nc, cfg.Prefix, s)...)
			_ = s.Close()
		}
		return findings
	}
	s, err := redisstore.Open(ctx, redisstore.Config{URL: cfg.RedisURL, Prefix: cfg.Prefix})
	if err != nil {
		return append(findings, check.Finding{Name: "redis: url", Fatal: true, Detail: err.Error(), Remedy: "mend TURNPIKE_REDIS_URL"})
	}
	defer s.Close()
	findings = append(findings, s.Check(ctx)...)
	return append(findings, toolFindings(ctx, nc, cfg.Prefix, s)...)
}
