package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// LoginConfig configures logins with a browser. The zero value of each field gives its default.
type LoginConfig struct {
	Keys *Keys // nil: keys are not exchanged for sessions
	OIDC *OIDC // nil: there is no login through an OpenID provider

	// ClientID and ClientSecret are those of this deployment at the OpenID provider. Default:
	// the audience of its tokens, and none, for a public client.
	ClientID     string
	ClientSecret string

	// Scopes to request from the provider; openid is added if it is missing. Default: openid, profile, email.
	Scopes []string

	// Lasts is the lifetime of a session. Default 8 h.
	Lasts time.Duration
}

// maxSessions is the maximum number of sessions of a principal. A new one ends the oldest.
const maxSessions = 20

// sessionBytes is the number of random bytes in a session id.
const sessionBytes = 32

// Login creates and checks the sessions of people who log in with a browser, which then has a session instead
// of a key or a token. It is safe for concurrent use.
type Login struct {
	cfg   LoginConfig
	store state.Documents
	now   func() time.Time

	mu    sync.Mutex
	fresh map[string]readSession // by name
}

// storedSession is a session as the store keeps it, by the hash of its id.
type storedSession struct {
	Key       string     `json:"key,omitempty"`    // id of the API key, which has the permissions
	Issuer    string     `json:"issuer,omitempty"` // of an OpenID provider
	Principal string     `json:"principal"`
	Grants    []Grant    `json:"grants,omitempty"` // of an OpenID provider: what its claims gave
	CreatedAt state.Time `json:"created_at"`
	ExpiresAt state.Time `json:"expires_at"`
}

type readSession struct {
	session storedSession
	found   bool
	at      time.Time
}

// NewLogin returns the login of a deployment.
func NewLogin(store state.Documents, cfg LoginConfig) *Login {
	if cfg.ClientID == "" && cfg.OIDC != nil {
		cfg.ClientID = cfg.OIDC.cfg.Audience
	}
	if len(cfg.Scopes) == 0 {
		cfg.Scopes = []string{oidc.ScopeOpenID, "profile", "email"}
	}
	if !slices.Contains(cfg.Scopes, oidc.ScopeOpenID) {
		cfg.Scopes = append([]string{oidc.ScopeOpenID}, cfg.Scopes...)
	}
	if cfg.Lasts == 0 {
		cfg.Lasts = 8 * time.Hour
	}
	return &Login{cfg: cfg, store: store, now: time.Now, fresh: map[string]readSession{}}
}

// Ways returns the ways to log in: key, oidc.
func (l *Login) Ways() []string {
	var ways []string
	if l.cfg.Keys != nil {
		ways = append(ways, viaKey)
	}
	if l.cfg.OIDC != nil {
		ways = append(ways, viaOIDC)
	}
	return ways
}

// Session is the session of a person who has logged in.
type Session struct {
	ID        string // only the browser has it
	Principal Principal
	ExpiresAt time.Time
}

// WithKey exchanges an API key for a session, which ends with the key at the latest. Errors are as for
// Authenticate.
func (l *Login) WithKey(ctx context.Context, text string) (Session, error) {
	if l.cfg.Keys == nil {
		return Session{}, unauthenticated("this gateway does not accept API keys: log in through the OpenID provider")
	}
	who, err := l.cfg.Keys.Authenticate(ctx, text)
	if err != nil {
		return Session{}, err
	}
	id, _, _ := parseKey(text)
	return l.create(ctx, who, storedSession{Key: id})
}

// create stores a session of a principal, always under a new id: others may know one that the browser had
// before.
func (l *Login) create(ctx context.Context, who Principal, s storedSession) (Session, error) {
	now := l.now()
	if err := l.prune(ctx, who.Name, now); err != nil {
		return Session{}, err
	}
	random := make([]byte, sessionBytes)
	_, _ = rand.Read(random) // never fails
	id := encoding.EncodeToString(random)
	s.Principal, s.CreatedAt, s.ExpiresAt = who.Name, state.At(now), state.At(now.Add(l.cfg.Lasts))
	data, err := json.Marshal(s)
	if err != nil {
		return Session{}, err
	}
	if err := l.store.PutDocument(ctx, state.SessionDocument, nameOf(id), data); err != nil {
		return Session{}, err
	}
	return Session{ID: id, Principal: who, ExpiresAt: s.ExpiresAt.Time}, nil
}

// prune deletes expired sessions, and the oldest ones of a principal that has too many.
func (l *Login) prune(ctx context.Context, principal string, now time.Time) error {
	all, err := l.store.Documents(ctx, state.SessionDocument)
	if err != nil {
		return err
	}
	type own struct {
		name string
		at   time.Time
	}
	var theirs []own
	var over []string
	for name, data := range all {
		var s storedSession
		switch err := json.Unmarshal(data, &s); {
		case err != nil || !now.Before(s.ExpiresAt.Time):
			over = append(over, name)
		case s.Principal == principal:
			theirs = append(theirs, own{name, s.CreatedAt.Time})
		}
	}
	slices.SortFunc(theirs, func(a, b own) int { return a.at.Compare(b.at) })
	for _, o := range theirs[:max(0, len(theirs)-maxSessions+1)] {
		over = append(over, o.name)
	}
	for _, name := range over {
		if err := l.remove(ctx, name); err != nil {
			return err
		}
	}
	return nil
}

func (l *Login) remove(ctx context.Context, name string) error {
	if err := l.store.DeleteDocument(ctx, state.SessionDocument, name); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.fresh, name)
	return nil
}

// nameOf returns the name of a session in the store. A reader of the store cannot take over the
// session with it.
func nameOf(id string) string {
	sum := sha256.Sum256([]byte(id))
	return hex.EncodeToString(sum[:])
}

var errNoSession = unauthenticated("the session is unknown or has ended: log in again")

func validID(id string) bool {
	_, err := encoding.DecodeString(id)
	return err == nil && len(id) == encoding.EncodedLen(sessionBytes)
}

// Authenticate returns the owner of a session, and the time at which the session ends. The session of a key has
// the key's current permissions. The error wraps ErrUnauthenticated if the session is invalid; any other error
// means that it could not be checked.
func (l *Login) Authenticate(ctx context.Context, id string) (Principal, time.Time, error) {
	if !validID(id) {
		return Principal{}, time.Time{}, errNoSession
	}
	s, found, err := l.lookUp(ctx, nameOf(id))
	if err != nil {
		return Principal{}, time.Time{}, fmt.Errorf("look up the session: %w", err)
	}
	if !found || !l.now().Before(s.ExpiresAt.Time) {
		return Principal{}, time.Time{}, errNoSession
	}
	who := Principal{Name: s.Principal, Via: viaOIDC, Grants: s.Grants}
	switch {
	case s.Key != "" && l.cfg.Keys != nil:
		if who, err = l.cfg.Keys.byID(ctx, s.Key); err != nil {
			return Principal{}, time.Time{}, err
		}
	case s.Key == "" && l.cfg.OIDC != nil && s.Issuer == l.cfg.OIDC.cfg.Issuer:
	default: // this way to log in is closed
		return Principal{}, time.Time{}, errNoSession
	}
	return who, s.ExpiresAt.Time, nil
}

// lookUp reads a session, with a cache, whose answers are at most keyFresh old.
func (l *Login) lookUp(ctx context.Context, name string) (storedSession, bool, error) {
	now := l.now()
	l.mu.Lock()
	r, known := l.fresh[name]
	l.mu.Unlock()
	if known && now.Sub(r.at) < keyFresh {
		return r.session, r.found, nil
	}
	data, err := l.store.Document(ctx, state.SessionDocument, name)
	r = readSession{found: err == nil, at: now}
	if err == nil {
		err = json.Unmarshal(data, &r.session)
	}
	if err != nil && !errors.Is(err, state.ErrNotFound) {
		return storedSession{}, false, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.fresh) >= maxFresh {
		clear(l.fresh)
	}
	l.fresh[name] = r
	return r.session, r.found, nil
}

// End deletes a session. Every process refuses it within five seconds, also on open streams. End returns nil if the
// session does not exist.
func (l *Login) End(ctx context.Context, id string) error {
	if !validID(id) {
		return nil
	}
	return l.remove(ctx, nameOf(id))
}

// attempt is a login at the OpenID provider in progress. The browser keeps it until it returns, in
// a cookie that no other origin can set.
type attempt struct {
	State    string `json:"state"`
	Nonce    string `json:"nonce"`
	Verifier string `json:"verifier"`
	Back     string `json:"back"`
}

// errNoAttempt reports an unsolicited answer of a provider.
var errNoAttempt = unauthenticated("this login began in another browser, or a later login replaced it: log in again")

// Begin returns the address at the OpenID provider at which the login continues, and the value that the browser must
// return together with the provider's answer at redirect. back is the page to show after the login, which Finish
// returns. The error wraps ErrUnauthenticated if there is no provider; otherwise it is that of OIDC.Provider.
func (l *Login) Begin(ctx context.Context, redirect, back string) (address, begun string, err error) {
	config, _, err := l.provider(ctx, redirect)
	if err != nil {
		return "", "", err
	}
	a := attempt{State: rand.Text(), Nonce: rand.Text(), Verifier: oauth2.GenerateVerifier(), Back: back}
	data, err := json.Marshal(a)
	if err != nil {
		return "", "", err
	}
	return config.AuthCodeURL(a.State, oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)), base64.RawURLEncoding.EncodeToString(data), nil
}

// Provider reads the settings of the OpenID provider, if one is set, unless this process has read them before. Its
// errors are those of OIDC.Provider.
func (l *Login) Provider(ctx context.Context) error {
	if l.cfg.OIDC == nil {
		return nil
	}
	_, err := l.cfg.OIDC.Provider(ctx)
	return err
}

func (l *Login) provider(ctx context.Context, redirect string) (*oauth2.Config, *oidc.Provider, error) {
	if l.cfg.OIDC == nil {
		return nil, nil, unauthenticated("this gateway has no login through an OpenID provider: log in with an API key")
	}
	p, err := l.cfg.OIDC.Provider(ctx)
	if err != nil {
		return nil, nil, err
	}
	return &oauth2.Config{ClientID: l.cfg.ClientID, ClientSecret: l.cfg.ClientSecret, Endpoint: p.Endpoint(), RedirectURL: redirect, Scopes: l.cfg.Scopes}, p, nil
}

// Finish completes a login that Begin has begun, with the answer of the OpenID provider. It returns the session and the
// page to show, which the caller must check: the browser can have changed it. With an error it returns the page only if
// begun has the state of the answer. The error wraps ErrUnauthenticated if the login is refused; any other error is
// that of the provider, of the store or of ctx.
func (l *Login) Finish(ctx context.Context, redirect, begun string, answer url.Values) (s Session, back string, err error) {
	config, provider, err := l.provider(ctx, redirect)
	if err != nil {
		return Session{}, "", err
	}
	var a attempt
	data, err := base64.RawURLEncoding.DecodeString(begun)
	if err != nil || json.Unmarshal(data, &a) != nil || a.State == "" || a.Nonce == "" || a.Verifier == "" || !equal(answer.Get("state"), a.State) {
		return Session{}, "", errNoAttempt
	}
	if iss := answer.Get("iss"); iss != "" && iss != l.cfg.OIDC.cfg.Issuer {
		return Session{}, a.Back, unauthenticated("the answer is from another OpenID provider, %.200q: log in again", iss)
	}
	if code := answer.Get("error"); code != "" {
		return Session{}, a.Back, unauthenticated("the OpenID provider refused the login with %.100q, %.300q: log in again, or ask an admin of the provider to permit the login", code, answer.Get("error_description"))
	}
	token, err := l.token(ctx, config, provider, answer.Get("code"), a)
	if err != nil {
		return Session{}, a.Back, err
	}
	who, err := l.cfg.OIDC.principal(token)
	if err != nil {
		return Session{}, a.Back, err
	}
	s, err = l.create(ctx, who, storedSession{Issuer: l.cfg.OIDC.cfg.Issuer, Grants: who.Grants})
	return s, a.Back, err
}

// token exchanges a code for the ID token of the person who has logged in.
func (l *Login) token(ctx context.Context, config *oauth2.Config, provider *oidc.Provider, code string, a attempt) (*oidc.IDToken, error) {
	ctx = oidc.ClientContext(ctx, l.cfg.OIDC.cfg.HTTP)
	tokens, err := config.Exchange(ctx, code, oauth2.VerifierOption(a.Verifier))
	refused, ok := errors.AsType[*oauth2.RetrieveError](err)
	if ok && slices.Contains([]string{"invalid_client", "unauthorized_client"}, refused.ErrorCode) {
		err = fmt.Errorf("%w: the provider does not accept the client: correct TURNPIKE_OIDC_CLIENT_ID and TURNPIKE_OIDC_CLIENT_SECRET (in Go, OIDC.ClientID and OIDC.ClientSecret), or permit the client, at the provider, to use authorization codes", err)
		return nil, &ProviderError{l.cfg.OIDC.cfg.Issuer, err}
	}
	if ok && refused.ErrorCode != "" {
		return nil, unauthenticated("the OpenID provider rejected its own code with %.100q: log in again; if this repeats, ask the operator to correct the provider's client", refused.ErrorCode)
	}
	if err != nil {
		return nil, &ProviderError{l.cfg.OIDC.cfg.Issuer, err}
	}
	text, _ := tokens.Extra("id_token").(string)
	switch {
	case text == "":
		return nil, unauthenticated("the OpenID provider returned no ID token: ask the operator to permit the scope openid for the client at the provider")
	case len(text) > maxToken:
		return nil, unauthenticated("the ID token of the OpenID provider has %d bytes, at most %d are allowed: ask the operator to configure smaller tokens at the provider", len(text), maxToken)
	}
	token, err := l.cfg.OIDC.verify(ctx, provider, l.cfg.ClientID, text)
	if err == nil && !equal(token.Nonce, a.Nonce) {
		err = unauthenticated("the ID token belongs to another login: log in again")
	}
	return token, err
}
