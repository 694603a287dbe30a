package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"path"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Actions that the audit names, of routes that change something.
const (
	actionSubmit       = "run.submit"
	actionBatch        = "batch.submit"
	actionFork         = "run.fork"
	actionSignal       = "run.signal"
	actionCancel       = "run.cancel"
	actionCancelRuns   = "run.cancel_many"
	actionDraft        = "run.draft"
	actionDelete       = "run.delete"
	actionPutAgent     = "agent.put"
	actionDeleteAgent  = "agent.delete"
	actionPublish      = "agent.publish"
	actionDeleteDraft  = "agent.discard"
	actionReplay       = "dead_letter.replay"
	actionAccept       = "restore.accept"
	actionAbandon      = "restore.abandon"
	actionCreateKey    = "key.create"
	actionRevokeKey    = "key.revoke"
	actionPutTenant    = "tenant.put"
	actionDeleteTenant = "tenant.delete"
)

// note adds what a caller did to the audit of the tenant. Where nobody has to say who they
// are there is none.
func (g *Gateway) note(r *http.Request, w http.ResponseWriter, c access.Caller, action, outcome string) {
	if action == "" {
		return
	}
	target := ""
	for _, name := range []string{"id", "name", "seq"} {
		if v := r.PathValue(name); v != "" {
			target = v
		}
	}
	if made := w.Header().Get("Location"); made != "" {
		target = path.Base(made)
	}
	g.appendEntry(r.Context(), c, api.AuditEntry{Action: action, Target: target, Outcome: outcome})
}

func (g *Gateway) appendAudit(ctx context.Context, c access.Caller, action, target string) {
	g.appendEntry(ctx, c, api.AuditEntry{Action: action, Target: target})
}

func (g *Gateway) appendEntry(ctx context.Context, c access.Caller, e api.AuditEntry) {
	if g.cfg.Auth == nil {
		return
	}
	e.At, e.By = state.At(time.Now()), *c.By()
	entry, err := json.Marshal(e)
	if err == nil {
		// A client that goes away must not go unnoted.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		err = g.store.AppendAudit(ctx, c.Tenant, entry)
	}
	if err != nil {
		g.log.Error("not noted in the audit", "error", err, "principal", c.Principal.Name, "tenant", c.Tenant, "action", e.Action, "target", e.Target, "outcome", e.Outcome, "hint", "check that the store is reachable, and keep this line: it replaces the missing audit entry")
	}
}

func (g *Gateway) getAudit(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	found, next, err := g.store.Audit(r.Context(), tenantOf(r), r.URL.Query().Get("cursor"), limit)
	if _, bad := errors.AsType[*state.InvalidCursorError](err); bad {
		return problem(http.StatusBadRequest, api.CodeInvalidCursor, "the cursor is not one that a list gave")
	}
	if err != nil {
		return err
	}
	return replyPage(w, api.NewPage(found, next))
}
