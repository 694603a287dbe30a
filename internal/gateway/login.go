package gateway

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/gateway/exchange"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Cookies of the page. The prefix has browsers take them from this host only, over TLS or on
// localhost, and from no other host of its domain.
const (
	cookieSession = "__Host-turnpike"
	cookieLogin   = "__Host-turnpike-login" // a login at the OpenID provider that has begun
)

// loginTime is how long somebody may take to log in at the OpenID provider.
const loginTime = 10 * time.Minute

// pathCallback is where the OpenID provider sends whoever has logged in.
const pathCallback = "/auth/callback"

// pagePath is below what the page has its addresses.
const pagePath = "/ui/"

func checkPublicURL(text string) error {
	if text == "" {
		return nil
	}
	u, err := url.Parse(text)
	switch {
	case err != nil || u.Host == "" || u.User != nil || u.Path != "" || u.RawQuery != "" || u.Fragment != "":
		return fmt.Errorf("the public URL is %q: write it like https://turnpike.example.com, without a path", text)
	case u.Scheme != "https" && (u.Scheme != "http" || !thisMachine(u.Host)):
		return fmt.Errorf("the public URL is %q: browsers keep a session over https only, or on localhost", text)
	}
	return nil
}

// thisMachine reports whether a host, with or without a port, is that of the browser.
func thisMachine(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return strings.EqualFold(host, "localhost") || err == nil && at.IsLoopback()
}

func cookie(name, value string, lasts time.Duration) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: int(lasts.Seconds()), Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

func dropped(name string) *http.Cookie { return cookie(name, "", -time.Second) }

// sessionOf is the id of the session that a request claims to be of, or empty.
func sessionOf(r *http.Request) string {
	c, err := r.Cookie(cookieSession)
	if err != nil {
		return ""
	}
	return c.Value
}

// getSession says how to log in, and who has. It is for everybody.
func (g *Gateway) getSession(w http.ResponseWriter, r *http.Request) error {
	answer := api.Session{Ways: []string{}, Tenants: []string{}}
	if g.cfg.Auth != nil && g.cfg.Login != nil {
		answer.Ways = append(answer.Ways, g.cfg.Login.Ways()...)
	}
	if id := sessionOf(r); id != "" && len(answer.Ways) > 0 {
		who, expires, err := g.cfg.Login.Authenticate(r.Context(), id)
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

var errNoLogin = exchange.Problem(http.StatusNotFound, api.CodeNotFound, "nobody logs in here: callers of this gateway do not say who they are")

// postSession exchanges an API key for a session.
func (g *Gateway) postSession(w http.ResponseWriter, r *http.Request) error {
	if g.cfg.Auth == nil || g.cfg.Login == nil {
		return errNoLogin
	}
	var req api.SessionRequest
	if _, err := exchange.Decode(r, &req); err != nil {
		return err
	}
	if req.Key == "" {
		return exchange.Invalid("key is missing: the API key that is to be exchanged for a session")
	}
	s, err := g.cfg.Login.WithKey(r.Context(), strings.TrimSpace(req.Key))
	if err != nil {
		return refusal(err)
	}
	g.loggedIn(w, r, s)
	return exchange.Reply(w, http.StatusCreated, sessionAnswer(api.Session{Ways: g.cfg.Login.Ways(), Tenants: []string{}}, s.Principal, s.ExpiresAt))
}

// loggedIn gives the browser its session in the place of the one that it had.
func (g *Gateway) loggedIn(w http.ResponseWriter, r *http.Request, s access.Session) {
	if before := sessionOf(r); before != "" {
		if err := g.cfg.Login.End(r.Context(), before); err != nil {
			g.log.Warn("the session before this login goes on", "error", err, "hint", "no action needed: the session ends when it expires")
		}
	}
	w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(w, cookie(cookieSession, s.ID, time.Until(s.ExpiresAt)))
	g.log.Info("logged in", "principal", s.Principal.Name, "request_id", w.Header().Get(exchange.HeaderRequestID))
}

// deleteSession logs out.
func (g *Gateway) deleteSession(w http.ResponseWriter, r *http.Request) error {
	if id := sessionOf(r); id != "" && g.cfg.Login != nil {
		if err := g.cfg.Login.End(r.Context(), id); err != nil {
			return err
		}
	}
	http.SetCookie(w, dropped(cookieSession))
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// getLogin sends a browser to the OpenID provider.
func (g *Gateway) getLogin(w http.ResponseWriter, r *http.Request) error {
	if g.cfg.Auth == nil || g.cfg.Login == nil {
		return errNoLogin
	}
	back, err := returnPath(r.URL.Query().Get("return"))
	if err != nil {
		return g.loginFailed(w, r, err, "")
	}
	redirect, err := g.redirectURI(r)
	if err != nil {
		return g.loginFailed(w, r, err, back)
	}
	address, begun, err := g.cfg.Login.Begin(r.Context(), redirect, back)
	if err != nil {
		return g.loginFailed(w, r, refusal(err), back)
	}
	w.Header().Set("Cache-Control", "no-store")
	http.SetCookie(w, cookie(cookieLogin, begun, loginTime))
	http.Redirect(w, r, address, http.StatusSeeOther)
	return nil
}

// getCallback takes the answer of the OpenID provider.
func (g *Gateway) getCallback(w http.ResponseWriter, r *http.Request) error {
	if g.cfg.Auth == nil || g.cfg.Login == nil {
		return errNoLogin
	}
	redirect, err := g.redirectURI(r)
	if err != nil {
		return g.loginFailed(w, r, err, "")
	}
	begun := ""
	if c, err := r.Cookie(cookieLogin); err == nil {
		begun = c.Value
	}
	http.SetCookie(w, dropped(cookieLogin)) // whatever comes of it: no answer counts twice
	s, back, err := g.cfg.Login.Finish(r.Context(), redirect, begun, r.URL.Query())
	if err != nil {
		return g.loginFailed(w, r, refusal(err), back)
	}
	// The browser has kept it meanwhile.
	if back, err = returnPath(back); err != nil {
		return g.loginFailed(w, r, err, "")
	}
	g.loggedIn(w, r, s)
	http.Redirect(w, r, back, http.StatusSeeOther)
	return nil
}

// redirectURI is the address of the callback, as the OpenID provider must know it.
func (g *Gateway) redirectURI(r *http.Request) (string, error) {
	switch {
	case g.cfg.PublicURL != "":
		return g.cfg.PublicURL + pathCallback, nil
	case thisMachine(r.Host):
		scheme := "http://"
		if r.TLS != nil {
			scheme = "https://"
		}
		return scheme + r.Host + pathCallback, nil
	default:
		return "", exchange.Problem(http.StatusNotFound, api.CodeNotFound, "nobody can log in by the name %q: TURNPIKE_PUBLIC_URL says by which address browsers know this gateway", r.Host)
	}
}

// returnPath is where somebody goes who has logged in: to the page, whatever else they were
// made to ask for.
func returnPath(text string) (string, error) {
	if text == "" {
		return pagePath, nil
	}
	u, err := url.Parse(text)
	bad := err != nil || strings.ContainsFunc(text, func(c rune) bool { return c == '\\' || c <= ' ' || c == 0x7f })
	if bad || u.Scheme != "" || u.Host != "" || u.User != nil || u.Opaque != "" || u.Path != pagePath && !strings.HasPrefix(path.Clean(u.Path), pagePath) || strings.Contains(u.Path, "//") || strings.Contains(u.Path, "\\") {
		return "", exchange.Invalid("return is %q: it must be an address of the page, as in /ui/#run_01…", text)
	}
	return text, nil
}
