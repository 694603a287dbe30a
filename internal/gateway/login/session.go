package login

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/internal/gateway/ui"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Names of cookies. Browsers accept a cookie with this prefix only from its own host, over TLS or on localhost, and
// never from another host of its domain.
const (
	cookieSession = "__Host-turnpike"
	cookieLogin   = "__Host-turnpike-login" // a login at the OpenID provider that has begun
)

// loginTimeout bounds a login at the OpenID provider.
const loginTimeout = 10 * time.Minute

// pathCallback is the path to which the OpenID provider redirects a browser after a login.
const pathCallback = "/auth/callback"

// Sessions begins and ends the sessions of browsers. It is safe for concurrent use.
type Sessions struct {
	login     *access.Login // nil: there are no sessions
	publicURL string
	failures  *exchange.Failures
	log       *slog.Logger
}

// NewSessions returns the sessions of login. If login is nil, sessions are disabled. Browsers reach the gateway at
// publicURL; if that is empty, people can log in through an OpenID provider only at localhost or a loopback address.
// The error reports an invalid publicURL.
func NewSessions(login *access.Login, publicURL string, failures *exchange.Failures, log *slog.Logger) (*Sessions, error) {
	if err := checkPublicURL(publicURL); err != nil {
		return nil, err
	}
	return &Sessions{login: login, publicURL: publicURL, failures: failures, log: log}, nil
}

func checkPublicURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the public URL (TURNPIKE_PUBLIC_URL; in Go, GatewayOptions.PublicURL) is %q: set a URL without a user, a path and a query, such as https://turnpike.example.com", text)
	case u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Host)):
		return fmt.Errorf("the public URL (TURNPIKE_PUBLIC_URL; in Go, GatewayOptions.PublicURL) is %q, and browsers keep a session only over https or on localhost: set an https URL", text)
	}
	return nil
}

// thisMachine reports whether a host, with or without a port, is localhost, a name below it or a loopback address.
func thisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	host = strings.TrimSuffix(strings.ToLower(host), ".")
	return host == "localhost" || strings.HasSuffix(host, ".localhost") || err == nil && at.IsLoopback()
}

func cookie(name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

func dropped(name string) *http.Cookie { return cookie(name, "", -time.Second) }

// sessionOf returns the id of the session in the cookie of a request, or "".
func sessionOf(r *http.Request) string {
	c, err := r.Cookie(cookieSession)
	if err != nil {
		return ""
	}
	return c.Value
}

// Get responds with the ways to log in, and with the browser's session if it is valid. It needs no authentication.
func (s *Sessions) Get(w http.ResponseWriter, r *http.Request) error {
	answer := api.Session{Ways: []string{}, Tenants: []string{}}
	if s.login != nil {
		answer.Ways = append(answer.Ways, s.login.Ways()...)
	}
	if id := sessionOf(r); id != "" && len(answer.Ways) > 0 {
		who, expires, err := s.login.Authenticate(r.Context(), id)
		if err != nil && !errors.Is(err, access.ErrUnauthenticated) {
			return err
		}
		if err == nil {
			answer = sessionAnswer(answer, who, expires)
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	return exchange.Reply(w, http.StatusOK, answer)
}

func sessionAnswer(answer api.Session, who access.Principal, expires time.Time) api.Session {
	answer.Principal, answer.ExpiresAt = who.Name, state.At(expires)
	for _, grant := range who.Grants {
		answer.Tenants = append(answer.Tenants, grant.Tenant)
	}
	return answer
}

var errNoLogin = exchange.Problem(http.StatusNotFound, api.CodeNotFound, "this gateway has no login and keeps no sessions: send requests without a session; if the gateway requires authentication, ask its operator which kind")

// Post exchanges an API key for a session, which it returns in a cookie. The previous session of the browser ends.
func (s *Sessions) Post(w http.ResponseWriter, r *http.Request) error {
	if s.login == nil {
		return errNoLogin
	}
	var req api.SessionRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	if req.Key == "" {
		return exchange.Invalid("key is missing: send the API key to exchange for a session")
	}
	session, err := s.login.WithKey(r.Context(), strings.TrimSpace(req.Key))
	if err != nil {
		return refusal(err)
	}
	s.begin(w, r, session)
	return exchange.Reply(w, http.StatusCreated, sessionAnswer(api.Session{Ways: s.login.Ways(), Tenants: []string{}}, session.Principal, session.ExpiresAt))
}

// begin sets the cookie with a session. It ends the previous session of the browser.
func (s *Sessions) begin(w http.ResponseWriter, r *http.Request, session access.Session) {
	if previous := sessionOf(r); previous != "" {
		if err := s.login.End(r.Context(), previous); err != nil {
			s.log.Warn("previous session not ended", "error", err, "hint", "no action needed: the session ends when it expires")
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(w, cookie(cookieSession, session.ID, time.Until(session.ExpiresAt)))
	s.log.Info("logged in", "principal", session.Principal.Name, "request_id", w.Header().Get(exchange.HeaderRequestID))
}

// Delete ends the session of the browser, if there is one, and removes its cookie.
func (s *Sessions) Delete(w http.ResponseWriter, r *http.Request) error {
	if id := sessionOf(r); id != "" && s.login != nil {
		if err := s.login.End(r.Context(), id); err != nil {
			return err
		}
	}
	http.SetCookie(w, dropped(cookieSession))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// Redirect begins a login: it redirects a browser to the OpenID provider. ?return is the path of the page to return to.
func (s *Sessions) Redirect(w http.ResponseWriter, r *http.Request) error {
	if s.login == nil {
		return errNoLogin
	}
	back, err := returnPath(r.URL.Query().Get("return"))
	if err != nil {
		return s.failed(w, r, err, "")
	}
	redirect, err := s.redirectURI(r)
	if err != nil {
		return s.failed(w, r, err, back)
	}
	address, begun, err := s.login.Begin(r.Context(), redirect, back)
	if err != nil {
		return s.failed(w, r, refusal(err), back)
	}
	w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(w, cookie(cookieLogin, begun, loginTimeout))
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// Callback handles the redirect of the OpenID provider: it begins a session and redirects to the page if the provider
// confirms the login, else it responds with an error page.
func (s *Sessions) Callback(w http.ResponseWriter, r *http.Request) error {
	if s.login == nil {
		return errNoLogin
	}
	redirect, err := s.redirectURI(r)
	if err != nil {
		return s.failed(w, r, err, "")
	}
	begun := ""
	if c, err := r.Cookie(cookieLogin); err == nil {
		begun = c.Value
	}
	http.SetCookie(w, dropped(cookieLogin)) // also after a failure: an answer of the provider is used once
	session, back, err := s.login.Finish(r.Context(), redirect, begun, r.URL.Query())
	if err != nil {
		return s.failed(w, r, refusal(err), back)
	}
	// The path was stored in the browser since Redirect checked it, so it may have changed.
	if back, err = returnPath(back); err != nil {
		return s.failed(w, r, err, "")
	}
	s.begin(w, r, session)
	http.Redirect(w, r, back, http.StatusSeeOther)
	return nil
}

// redirectURI returns the URL of the callback, which must be registered at the OpenID provider. The error is a problem
// if the public URL is not set and the host of the request is not of this machine.
func (s *Sessions) redirectURI(r *http.Request) (string, error) {
	switch {
	case s.publicURL != "":
		return s.publicURL + pathCallback, nil
	case thisMachine(r.Host):
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		return scheme + r.Host + pathCallback, nil
	default:
		return "", exchange.Problem(http.StatusNotFound, api.CodeNotFound, "no one can log in through the OpenID provider at %q, because this gateway does not know its public address: ask the operator to set TURNPIKE_PUBLIC_URL (in Go, GatewayOptions.PublicURL) to the URL at which browsers reach this gateway", r.Host)
	}
}

// returnPath checks the path to which a browser returns after a login: it must be below ui.Path, which is the default.
func returnPath(text string) (string, error) {
	if text == "" {
		return ui.Path, nil
	}
	u, err := url.Parse(text)
	bad := err != nil || strings.ContainsFunc(text, func(c rune) bool { return c == '\\' || c <= ' ' || c == 0x7f })
	if bad || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || u.Path != ui.Path && !strings.HasPrefix(path.Clean(u.Path), ui.Path) || strings.Contains(u.Path, "//") || strings.Contains(u.Path, "\\") {
		return "", exchange.Invalid("return is %q: send a path that begins with /ui/, without a host, or omit return", text)
	}
	return text, nil
}
