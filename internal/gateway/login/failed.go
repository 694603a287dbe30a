package login

import (
	"html/template"
	"net/http"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/ui"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// failedPage is shown to a person whose login failed, in the style of the page.
var failedPage = template.Must(template.New("failed").Parse(`<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>Not logged in · Turnpike</title>
<link rel="icon" href="/ui/favicon.svg">
<link rel="stylesheet" href="/ui/style.css">
</head>
<body>
<main>
<section class="login">
<h1>You are not logged in</h1>
<p class="error-text" role="alert">{{.Detail}}</p>
<p>{{.Next}} If that fails again, contact the operators of this deployment and give them the request id <code>{{.RequestID}}</code>.</p>
<p><a class="button" href="{{.Back}}">Back to the page</a></p>
</section>
</main>
</body>
</html>
`))

// failed responds with failedPage to a browser after a failed login, with a link to try again that returns to back. For
// other clients it returns err.
func (s *Sessions) failed(w http.ResponseWriter, r *http.Request, err error, back string) error {
	p := *service.ProblemOf(err)
	if p.Status < http.StatusInternalServerError { // package exchange logs the others
		s.log.Info("login refused", "error", err, "code", p.Code, "request_id", w.Header().Get(exchange.HeaderRequestID), "hint", "see docs/how-to/secure-a-deployment.md for what a login needs")
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") || r.Context().Err() != nil {
		return err
	}
	s.failures.Head(w, r, &p, err)
	next := "Log in again."
	if p.Status == http.StatusServiceUnavailable {
		next = "Retry in a moment."
	}
	if back, err = returnPath(back); err != nil { // the browser stored it
		back = ui.Path
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", ui.Policy)
	w.WriteHeader(p.Status)
	return failedPage.Execute(w, struct {
		api.Problem

		Next, Back string
	}{p, next, back})
}
