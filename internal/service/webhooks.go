package service

import (
	"context"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/engine/webhook"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Webhooks are the events of a tenant that its webhooks have not accepted yet.
type Webhooks struct{ *core }

// Pending returns a page of pending events, those of the oldest run first. Events of deleted runs are left
// out.
func (s *Webhooks) Pending(ctx context.Context, c access.Caller, p Page) (api.Page[api.PendingEvent], error) {
	if err := s.permit(ctx, c, Read); err != nil {
		return api.Page[api.PendingEvent]{}, err
	}
	after := ""
	if p.Cursor != "" {
		var ok bool
		if after, ok = webhook.TimerAt(p.Cursor); !ok {
			return api.Page[api.PendingEvent]{}, invalidCursor()
		}
	}
	timers, err := s.store.ListTimers(ctx, c.Tenant, webhook.Kind, after, p.Limit+1)
	if err != nil {
		return api.Page[api.PendingEvent]{}, err
	}
	next := ""
	if len(timers) > p.Limit {
		timers = timers[:p.Limit]
		next = webhook.Cursor(timers[p.Limit-1].Name)
	}
	found, exist := make([]api.PendingEvent, len(timers)), make([]bool, len(timers))
	err = s.readEach(ctx, len(timers), func(ctx context.Context, i int) (err error) {
		found[i], exist[i], err = webhook.Pending(ctx, s.store, c.Tenant, timers[i])
		return err
	})
	if err != nil {
		return api.Page[api.PendingEvent]{}, err
	}
	items := make([]api.PendingEvent, 0, len(found))
	for i, e := range found {
		if exist[i] {
			items = append(items, e)
		}
	}
	return api.NewPage(items, next), nil
}
