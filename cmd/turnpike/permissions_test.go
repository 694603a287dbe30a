package main

import (
	"strings"
	"testing"
)

// The commands print the permissions for a server's configuration, or those of a tenant if one is named.
func TestPermissions(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	e := &env{ctx: t.Context(), out: &out, tenant: "acme"}
	if err := (&natsPermissionsCmd{Role: "client", Prefix: "turnpike"}).Run(e); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# Subjects of answers begin with _INBOX_acme:", "permissions {\n", `"turnpike.t.acme.submit.*"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, out.String())
		}
	}
	out.Reset()
	if err := (&redisPermissionsCmd{Role: "worker", Prefix: "turnpike", User: "w"}).Run(e); err != nil || !strings.HasPrefix(out.String(), "user w on resetkeys ~turnpike:* ") {
		t.Errorf("%q, %v", out.String(), err)
	}
	if err := (&redisPermissionsCmd{Role: "worker", Prefix: "turnpike", PasswordFile: "/nowhere"}).Run(e); err == nil {
		t.Error("a missing password file is ignored")
	}
}
