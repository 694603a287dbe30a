package gateway

import (
	"context"
	"embed"
	"net/http"
	"strconv"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

//go:embed ui
var uiFiles embed.FS

//go:embed openapi.json
var openAPIDocument []byte

// page serves the embedded page. It may load nothing from elsewhere.
func page() http.Handler {
	files := http.FileServerFS(uiFiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'")
		files.ServeHTTP(w, r)
	})
}

func openAPI(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(openAPIDocument) // the reader may be gone
	return nil
}

// healthz says that the process answers.
func (*Gateway) healthz(w http.ResponseWriter, _ *http.Request) error {
	return reply(w, http.StatusOK, map[string]string{"status": "ok"})
}

// readyTimeout bounds the look at a dependency.
const readyTimeout = 3 * time.Second

// readyz says whether bus and store can be reached now.
func (g *Gateway) readyz(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), readyTimeout)
	defer cancel()
	answer := map[string]string{"status": "ok", "bus": "ok", "store": "ok"}
	status := http.StatusOK
	down := func(what string, err error) {
		answer["status"], answer[what] = "unavailable", "does not answer"
		status = http.StatusServiceUnavailable
		g.log.Warn().Err(err).Str("dependency", what).Msg("not ready")
	}
	if err := g.bus.Ready(ctx); err != nil {
		down("bus", err)
	}
	if _, err := g.store.ListAgents(ctx); err != nil {
		down("store", err)
	}
	return reply(w, status, answer)
}

func (g *Gateway) listDead(w http.ResponseWriter, r *http.Request) error {
	limit, err := limitOf(r)
	if err != nil {
		return err
	}
	after, err := afterOf(r)
	if err != nil {
		return err
	}
	letters, err := g.bus.DeadLetters(r.Context(), uint64(after), limit+1) //nolint:gosec // not negative
	if err != nil {
		return &busError{err}
	}
	next := ""
	if len(letters) > limit {
		letters = letters[:limit]
		next = strconv.FormatUint(letters[limit-1].Seq, 10)
	}
	return reply(w, http.StatusOK, api.NewPage(letters, next))
}
