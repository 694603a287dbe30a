package limit

import (
	"errors"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/turnstile"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// listsAtOnce is the number of lists that a gateway answers at once for one tenant. The cost of these reads grows
	// with what a tenant has stored, so one tenant must not use all capacity for them.
	listsAtOnce = 4

	// listsWait bounds how long another list waits for its turn.
	listsWait = 5 * time.Second
)

// Lists returns a function that wraps handlers of responses that may be large. All handlers that this function has
// wrapped serve together at most four requests of a tenant (listsAtOnce) at the same time. Others wait up to 5 s
// (listsWait), and are then refused with status 429. The context of a request must contain its caller.
func Lists() func(exchange.Handler) exchange.Handler {
	lists := turnstile.New(listsAtOnce, listsWait)
	return func(h exchange.Handler) exchange.Handler {
		return func(w http.ResponseWriter, r *http.Request) error {
			leave, err := lists.Enter(r.Context(), access.FromContext(r.Context()).Tenant)
			if errors.Is(err, turnstile.ErrFull) {
				return exchange.Busy(http.StatusTooManyRequests, api.CodeTooManyReads, "%d lists are in progress for this tenant, the maximum: request fewer at once, or smaller pages", listsAtOnce)
			}
			if err != nil {
				return err
			}
			defer leave()
			return h(w, r)
		}
	}
}
