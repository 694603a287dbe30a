package access_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// A session ends when it expires, and with its key. The number of sessions per principal is bounded, and
// expired ones are deleted.
func TestSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memstore.New(memstore.Config{})
		keys := access.NewKeys(store)
		login := access.NewLogin(store, access.LoginConfig{Keys: keys, Lasts: time.Hour})
		key := func(expires time.Duration) string {
			text, _, err := keys.Create(t.Context(), access.KeySpec{Tenant: "acme", Roles: []access.Role{access.Viewer}, ExpiresAt: state.At(time.Now().Add(expires))})
			if err != nil {
				t.Fatal(err)
			}
			return text
		}
		enter := func(text string) string {
			t.Helper()
			s, err := login.WithKey(t.Context(), text)
			if err != nil {
				t.Fatal(err)
			}
			return s.ID
		}
		valid := func(l *access.Login, id string) bool {
			t.Helper()
			_, _, err := l.Authenticate(t.Context(), id)
			if err != nil && !errors.Is(err, access.ErrUnauthenticated) {
				t.Fatal(err)
			}
			return err == nil
		}
		stored := func() int {
			t.Helper()
			all, err := store.Documents(t.Context(), state.SessionDocument)
			if err != nil {
				t.Fatal(err)
			}
			return len(all)
		}
		long, short := enter(key(24*time.Hour)), enter(key(30*time.Minute))
		if !valid(login, long) || !valid(login, short) || valid(access.NewLogin(store, access.LoginConfig{}), long) {
			t.Error("sessions are valid, and without keys they are not either")
		}
		time.Sleep(31 * time.Minute)
		if !valid(login, long) || valid(login, short) {
			t.Error("a session ends with its key, and no other does")
		}
		time.Sleep(30 * time.Minute)
		if valid(login, long) {
			t.Error("a session continues after its expiry")
		}
		again := key(24 * time.Hour)
		first := enter(again)
		for range 25 {
			time.Sleep(time.Second)
			enter(again)
		}
		other := enter(key(time.Hour))
		if n := stored(); n > 21 || valid(login, first) || !valid(login, other) {
			t.Errorf("%d sessions are stored; the oldest is valid: %t", n, valid(login, first))
		}
		if err := access.NewLogin(store, access.LoginConfig{Keys: keys}).End(t.Context(), other); err != nil { // at another gateway
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if valid(login, other) {
			t.Error("a session that was ended elsewhere is valid after five seconds")
		}
	})
}
