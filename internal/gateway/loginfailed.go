package gateway

import (
	"html/template"
	"net/http"
	"strings"

	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/service"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// failedPage is what somebody reads whose login came to nothing. Its style is the page's.
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
<p>{{.Next}} If it stays so, ask whoever runs this deployment, and name the request <code>{{.RequestID}}</code>.</p>
<p><a class="button" href="{{.Back}}">Back to the page</a></p>
</section>
</main>
</body>
</html>
`))

// loginFailed answers a browser whose login came to nothing with a page. Others get the
// problem.
func (g *Gateway) loginFailed(w http.ResponseWriter, r *http.Request, err error, back string) error {
	p := *service.ProblemOf(err)
	if p.Status < http.StatusInternalServerError { // those are logged as requests that failed
		g.log.Info("login refused", "error", err, "code", p.Code, "request_id", w.Header().Get(exchange.HeaderRequestID), "hint", "see docs/how-to/secure-a-deployment.md for what a login needs")
	}
	if !strings.Contains(r.Header.Get("Accept"), "text/html") || r.Context().Err() != nil {
		return err
	}
	g.failures.Head(w, r, &p, err)
	next := "Log in again."
	if p.Status == http.StatusServiceUnavailable {
		next = "Try again in a moment."
	}
	if back, err = returnPath(back); err != nil { // a browser has kept it
		back = pagePath
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Cache-Control", "no-store")
	h.Set("Content-Security-Policy", pagePolicy)
	w.WriteHeader(p.Status)
	return failedPage.Execute(w, struct {
		api.Problem

		Next, Back string
	}{p, next, back})
}
