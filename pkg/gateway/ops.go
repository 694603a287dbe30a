package gateway

import (
	"context"
	"embed"
	"net/http"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/check"
)

//go:embed ui
var uiFiles embed.FS

//go:embed openapi.json
var openAPIDocument []byte

// page serves the embedded page. It may load nothing from elsewhere, and no other
// page may frame it: its buttons approve calls.
func page() http.Handler {
	files := http.FileServerFS(uiFiles)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'")
		w.Header().Set("Referrer-Policy", "no-referrer")
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
	answer := readiness{Status: "ok", Bus: "ok", Store: "ok", Findings: []check.Finding{}}
	down := func(what string, field *string, err error) {
		answer.Status, *field = "unavailable", "does not answer"
		g.log.Warn().Err(err).Str("dependency", what).Str("hint", "turnpike doctor finds out why").Msg("not ready")
	}
	if err := g.bus.Ready(ctx); err != nil {
		down("bus", &answer.Bus, err)
	}
	if err := g.store.Ready(ctx); err != nil {
		down("store", &answer.Store, err)
	}
	if g.cfg.Checks != nil {
		answer.Findings = append(answer.Findings, g.cfg.Checks(ctx)...)
		if check.Err(answer.Findings) != nil {
			answer.Status = "unavailable"
		}
	}
	status := http.StatusOK
	if answer.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	return reply(w, status, answer)
}

// readiness is the answer of /readyz.
type readiness struct {
	Status   string          `json:"status"`
	Bus      string          `json:"bus"`
	Store    string          `json:"store"`
	Findings []check.Finding `json:"findings"`
}
