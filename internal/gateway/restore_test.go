package gateway_test

import (
	"errors"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Only operators and admins of the whole deployment may decide about its store, and only its viewers see the
// affected runs. Without a waiting decision there is nothing to decide.
func TestWhoDecidesAboutTheStore(t *testing.T) {
	t.Parallel()
	s := newGuarded(t)
	for _, c := range []struct {
		tenant         string
		role           access.Role
		looks, decides string
	}{
		{"acme", access.Operator, api.CodeForbidden, api.CodeForbidden},
		{"acme", access.Admin, api.CodeForbidden, api.CodeForbidden},
		{"*", access.Viewer, "", api.CodeForbidden},
		{"*", access.Operator, "", api.CodeNoRestore},
		{"*", access.Admin, "", api.CodeNoRestore},
	} {
		as := api.New(s.url, api.WithToken(s.key(c.tenant, c.role)))
		_, looked := as.Restore(t.Context())
		_, accepted := as.AcceptRestore(t.Context())
		_, abandoned := as.AbandonRestore(t.Context())
		for what, got := range map[string]struct {
			err  error
			want string
		}{"status": {looked, c.looks}, "accept": {accepted, c.decides}, "abandon": {abandoned, c.decides}} {
			code := ""
			if p, ok := errors.AsType[*api.Problem](got.err); ok {
				code = p.Code
			}
			if code != got.want || got.err != nil && code == "" {
				t.Errorf("%s by a %s of %s: %v, want %q", what, c.role, c.tenant, got.err, got.want)
			}
		}
	}
}
