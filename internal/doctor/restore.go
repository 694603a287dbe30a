package doctor

import (
	"context"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/restore"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// restoreFinding reports whether Redis is an older copy than NATS knows of.
func restoreFinding(ctx context.Context, nc *nats.Conn, cfg deploy.Config, s *redisstore.Store) state.Finding {
	f := state.Finding{Name: "store: restore", OK: true, Detail: "the store is not older than NATS"}
	b, err := natsbus.Open(ctx, nc, natsbus.Config{Prefix: cfg.Prefix, Domain: cfg.NATSDomain, ReadOnly: true})
	if err != nil {
		return state.Finding{Name: f.Name, Detail: err.Error(), Remedy: readStreams}
	}
	defer b.Close() //nolint:errcheck // nothing was written
	status, err := restore.Compare(ctx, s, b)
	switch {
	case err != nil:
		f.OK, f.Detail, f.Remedy = false, err.Error(), "check that the store and NATS answer, and permit this NATS user to read the stream MARK of the deployment"
	case status.Waiting:
		f.OK, f.Broken, f.Detail = false, true, status.String()
		f.Remedy = "decide with `turnpike restore accept` or `turnpike restore abandon`, or restore a newer copy: docs/how-to/restore-the-store.md"
	}
	return f
}
