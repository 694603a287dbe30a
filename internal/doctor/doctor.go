// Package doctor checks what a deployment depends on, and says what to do about what is
// wrong.
package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/internal/onestore"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/natsstore"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// Findings checks everything that a deployment depends on, without its gateways. It creates nothing permanent: it
// does not create missing streams, as gateways and workers do at their start, but reports them, and its test writes
// to Redis and NATS expire. It looks for secrets as a worker with secretsDir would.
func Findings(ctx context.Context, cfg deploy.Config, secretsDir string) []state.Finding {
	var skipped skips
	findings := allFindings(ctx, cfg, secretsDir, &skipped)
	return append(findings, skipped.findings()...)
}

func allFindings(ctx context.Context, cfg deploy.Config, secretsDir string, skipped *skips) []state.Finding {
	settings := settingsFindings(cfg, secretsDir)
	options, err := cfg.NATSLogin.Options()
	if err != nil {
		skipped.add("the login at NATS is not valid", slices.Concat(busChecks, []string{"redis", "store"}, agentChecks)...)
		return append(settings, state.Finding{Name: "nats: login", Fatal: true, Detail: err.Error(), Remedy: "correct the setting that this finding names: docs/how-to/secure-a-deployment.md"})
	}
	findings := settings
	var named namedRuns
	nc, err := natsbus.Connect(cfg.NATSURL, "turnpike doctor", options...)
	if err == nil {
		defer nc.Close()
		var found []state.Finding
		found, named = busFindings(ctx, nc, cfg, skipped)
		findings = append(findings, found...)
	} else {
		skipped.add("NATS does not answer or refuses the login", busChecks...)
		findings = append(findings, state.Finding{Name: "nats: server", Fatal: true, Detail: err.Error(), Remedy: cmp.Or(
			natslogin.Remedy(err), "start nats-server with -js, set TURNPIKE_NATS_URL, or run doctor in the directory in which `turnpike dev` was started",
		)})
	}
	findings = append(findings, keeping(cfg.Retention), prices(time.Now()))
	if cfg.RedisURL == "" {
		if nc == nil {
			skipped.add("NATS does not answer, and the store is in JetStream", append([]string{"store: JetStream", "store: stream", "store: writes", "store: runs", "store: lost runs"}, agentChecks...)...)
			return findings
		}
		return append(findings, jetStreamFindings(ctx, nc, cfg, secretsDir, named, skipped)...)
	}
	return append(findings, redisFindings(ctx, nc, cfg, secretsDir, named, skipped)...)
}

// readStreams is the remedy if the streams of the bus or of the store cannot be opened.
const readStreams = "do what this finding says; if it only has an error of NATS, check that NATS answers and has JetStream, that TURNPIKE_NATS_DOMAIN is right, and that this NATS user may read the streams (an observer may not)"

// redisFindings looks at a store in Redis; nc is nil if NATS does not answer.
func redisFindings(ctx context.Context, nc *nats.Conn, cfg deploy.Config, secretsDir string, named namedRuns, skipped *skips) []state.Finding {
	s, err := redisstore.Open(ctx, redisstore.Config{URL: cfg.RedisURL, Login: cfg.RedisLogin, Prefix: cfg.Prefix, Confirm: cfg.RedisConfirm})
	if err != nil {
		skipped.add("the settings of Redis are not valid", append([]string{"redis: server", "redis: maxmemory-policy", "redis: appendonly", "redis: confirm", "redis: clock", "redis: writes", "store: restore", "store: lost runs"}, agentChecks...)...)
		return []state.Finding{{Name: "redis: settings", Fatal: true, Detail: err.Error(), Remedy: "correct the setting that this finding names; if it names none, correct TURNPIKE_REDIS_URL or TURNPIKE_REDIS_CONFIRM"}}
	}
	defer s.Close()
	found := s.Check(ctx)
	if !check.Failed(found) {
		found = append(found, s.CheckWrites(ctx))
	} else {
		skipped.add("Redis does not answer, or fails a check above", "redis: test write")
	}
	usable := check.Err(found) == nil
	waiting := state.Finding{OK: true}
	switch {
	case !usable:
		skipped.add("Redis does not answer, or fails a check above", "store: restore", "store: lost runs")
	case nc == nil:
		skipped.add("NATS does not answer", "store: restore", "store: runs in JetStream")
	default:
		waiting = restoreFinding(ctx, nc, cfg, s)
		found = append(found, waiting)
	}
	if nc != nil {
		found = append(found, otherStore(ctx, nc, cfg)...)
	}
	if waiting.OK {
		found = withLostRuns(ctx, found, named, s)
	} else { // what the store lacks is lost only after the decision
		skipped.add("the check store: restore fails", "store: lost runs")
	}
	if nc == nil { // services with tools are found over NATS
		skipped.add("NATS does not answer", agentChecks...)
		return found
	}
	return append(found, agentFindings(ctx, nc, cfg, secretsDir, s)...)
}

// settingsFindings reports settings with which gateways and workers do not start.
func settingsFindings(cfg deploy.Config, secretsDir string) []state.Finding {
	if err := errors.Join(cfg.Validate(), definition.Secrets{Dir: secretsDir}.CheckDir()); err != nil {
		return []state.Finding{{Name: "settings", Fatal: true, Detail: err.Error(), Remedy: "correct the setting that this finding names: docs/reference/settings.md"}}
	}
	return nil
}

// busFindings looks at the streams of the deployment.
// It also returns the runs that turn messages name.
func busFindings(ctx context.Context, nc *nats.Conn, cfg deploy.Config, skipped *skips) (findings []state.Finding, named namedRuns) {
	keys, err := cfg.Keys()
	if err != nil {
		skipped.add("TURNPIKE_BUS_KEYS is not valid", busChecks...)
		return []state.Finding{{Name: "nats: signatures", Fatal: true, Detail: err.Error(), Remedy: "correct TURNPIKE_BUS_KEYS, or the file that TURNPIKE_BUS_KEYS_FILE names"}}, named
	}
	b, err := natsbus.Open(ctx, nc, natsbus.Config{
		Prefix: cfg.Prefix, Domain: cfg.NATSDomain, Replicas: cfg.Replicas, AckWait: cfg.AckWait(), EventFeed: cfg.EventFeed, Limits: cfg.StreamLimits,
		TurnStreams: cfg.TurnStreams, MaxAckPending: cfg.MaxAckPending, Keys: keys, ReadOnly: true,
	})
	if err != nil {
		skipped.add("the streams cannot be read", busChecks...)
		return []state.Finding{{Name: "nats: streams", Fatal: true, Detail: err.Error(), Remedy: readStreams}}, named
	}
	defer b.Close() //nolint:errcheck // nothing was written
	alive, stop := heardWorkers(ctx, b, ownStore(ctx, cfg))
	defer stop()
	others, stopOthers := unverified(ctx, b)
	defer stopOthers()
	findings = b.Check(ctx)
	if slices.ContainsFunc(findings, func(f state.Finding) bool { return f.Name == "nats: jetstream" && !f.OK }) {
		skipped.add("JetStream does not answer", streamChecks...)
	}
	findings = append(findings, b.CheckWrites(ctx))
	if named.runs, named.all, err = b.NamedRuns(ctx, maxNamed); err != nil {
		findings = append(findings, state.Finding{Name: "nats: turn messages", Detail: err.Error(), Remedy: "check that NATS answers, and permit this NATS user to read the streams of turns"})
	}
	findings = append(findings, alive()...) // waits for heartbeats
	return append(findings, others()...), named
}

// ownStore returns the store that the settings name, without its id if Redis does not answer or has none.
func ownStore(ctx context.Context, cfg deploy.Config) onestore.Identity {
	own := onestore.Identity{Kind: cfg.StoreKind()}
	if cfg.RedisURL == "" {
		return own
	}
	s, err := redisstore.Open(ctx, redisstore.Config{URL: cfg.RedisURL, Login: cfg.RedisLogin, Prefix: cfg.Prefix})
	if err != nil {
		return own // another finding reports it
	}
	defer s.Close() //nolint:errcheck // nothing was written
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	own.ID, _ = s.StoredID(ctx)
	return own
}

// otherStore is the finding that JetStream has runs under the prefix of a deployment in Redis.
func otherStore(ctx context.Context, nc *nats.Conn, cfg deploy.Config) []state.Finding {
	stream := deploy.StateStream(ctx, nc, cfg)
	if stream == "" {
		return nil
	}
	return []state.Finding{{
		Name: "store: runs in JetStream", Detail: "the settings name Redis, but JetStream has runs of this prefix, in the stream " + stream,
		Remedy: "set the same TURNPIKE_REDIS_URL in every process, or use another TURNPIKE_PREFIX or NATS server; delete the stream if it is unused",
	}}
}

// storeWrites writes to a store in JetStream, and reports whether it takes writes.
func storeWrites(ctx context.Context, s *natsstore.Store) state.Finding {
	f := state.Finding{Name: "store: writes", OK: true, Broken: true, Detail: "taken"}
	if err := s.Ready(ctx); err != nil {
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that this NATS user may write to the streams of the store, and in the log of nats-server whether its disk is full or max_file_store is reached. Restart nats-server after you have freed a full disk: it refuses further writes until then"
	}
	return f
}

// keeping reports the retention, and what is kept indefinitely.
func keeping(r agent.Retention) state.Finding {
	f := state.Finding{Name: "retention", OK: true, Detail: fmt.Sprintf("completed runs %s, failed runs %s", kept(r.Completed), kept(r.Failed))}
	f.Detail += ", by TURNPIKE_RETENTION in this environment; gateways use their own"
	return f
}

// oldPrices is the age at which doctor reports the built-in prices of models as old: providers
// change some within months.
const oldPrices = 180 * 24 * time.Hour

// prices says how old the built-in prices of models are.
func prices(now time.Time) state.Finding {
	age := now.Sub(model.PricesDate)
	f := state.Finding{Name: "prices", OK: age < oldPrices}
	f.Detail = fmt.Sprintf("built-in prices of models: %s of %s, %d days old", model.PricesSource, model.PricesDate.Format(time.DateOnly), int(age.Hours()/24))
	if !f.OK {
		f.Remedy = "update Turnpike, or set TURNPIKE_PRICES of the workers to a file with current prices"
	}
	return f
}

func kept(p agent.Period) string {
	if p == 0 {
		return "are kept indefinitely"
	}
	return "are kept for " + p.String()
}

// jetStreamFindings looks at a store in JetStream.
func jetStreamFindings(ctx context.Context, nc *nats.Conn, cfg deploy.Config, secretsDir string, named namedRuns, skipped *skips) []state.Finding {
	f := state.Finding{Name: "store: JetStream"}
	unread := append([]string{"store: stream", "store: writes", "store: runs", "store: lost runs"}, agentChecks...)
	s, err := natsstore.Open(ctx, nc, natsstore.Config{Prefix: cfg.Prefix, Domain: cfg.NATSDomain, Replicas: cfg.Replicas, ReadOnly: true})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		skipped.add("the store has no streams yet", unread...)
		f.Detail, f.Remedy = "no streams yet", "start a gateway or a worker: it creates the streams"
		return []state.Finding{f}
	}
	if err != nil {
		skipped.add("the store cannot be read", unread...)
		f.Fatal, f.Detail, f.Remedy = true, err.Error(), readStreams
		return []state.Finding{f}
	}
	defer s.Close()
	found := append(s.Check(ctx), storeWrites(ctx, s))
	return append(withLostRuns(ctx, found, named, s), agentFindings(ctx, nc, cfg, secretsDir, s)...)
}
