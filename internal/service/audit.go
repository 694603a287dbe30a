package service

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// note appends an operation to the tenant's audit, unless it failed without an effect: with a problem whose status is
// below 500, while the caller was connected. An operation that failed in another way may have taken effect in part, so
// its entry has the outcome unknown. Without authentication there is no audit.
func (k *core) note(ctx context.Context, c access.Caller, o Operation, target string, err error) {
	e := api.AuditEntry{Action: string(o), Target: target}
	if err != nil {
		if ctx.Err() == nil && ProblemOf(err).Status < internal.Status {
			return
		}
		e.Outcome = api.OutcomeUnknown
	}
	k.appendEntry(ctx, c, e)
}

// appendEntry stores an entry, if there is an audit. If that fails, it logs the entry: as an error, or as a warning if
// the outcome of the operation is unknown. While the store refuses all writes, every request logs such a warning. The
// logger of the programs (internal/app) limits repeated warnings, but no errors.
func (k *core) appendEntry(ctx context.Context, c access.Caller, e api.AuditEntry) {
	if !k.cfg.Audited {
		return
	}
	e.At, e.By = state.At(time.Now()), *c.By()
	entry, err := json.Marshal(e)
	if err == nil {
		// A client that goes away must not go unnoted.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		err = k.store.AppendAudit(ctx, c.Tenant, entry)
	}
	if err != nil {
		level := slog.LevelError
		if e.Outcome == api.OutcomeUnknown {
			level = slog.LevelWarn
		}
		k.log.Log(ctx, level, "audit entry not stored", "error", err, "principal", c.Principal.Name, "tenant", c.Tenant, "action", e.Action, "target", e.Target, "outcome", e.Outcome, "hint", "run `turnpike doctor`: the store may be unreachable or refuse the operation. Keep this log line in place of the missing audit entry")
	}
}

// Audit reads what callers did.
type Audit struct{ *core }

// List returns a page of the audit of the caller's tenant, the newest entry first.
func (a *Audit) List(ctx context.Context, c access.Caller, p Page) (api.Page[json.RawMessage], error) {
	if err := a.permit(ctx, c, ReadAudit); err != nil {
		return api.Page[json.RawMessage]{}, err
	}
	found, next, err := a.store.Audit(ctx, c.Tenant, p.Cursor, p.Limit)
	if _, bad := errors.AsType[*state.InvalidCursorError](err); bad {
		return api.Page[json.RawMessage]{}, invalidCursor()
	}
	return api.NewPage(found, next), err
}
