package main

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

// Each visible command has a group in the help; without one it would come first.
func TestEachCommandHasAGroup(t *testing.T) {
	k, err := kong.New(&cli{}, kong.Vars{"version": ""})
	if err != nil {
		t.Fatal(err)
	}
	for _, command := range k.Model.Leaves(true) {
		group := command.ClosestGroup()
		if group == nil || !slices.ContainsFunc(groups, func(g kong.Group) bool { return g.Key == group.Key }) {
			t.Errorf("%s: want group:%q or another of those in main.go", command.Path(), groups[0].Key)
		}
	}
}

// Requests cannot name all tenants; a key of all tenants is made by a request that names none.
func TestTenantOfRequests(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ command, named, want string }{
		{"keys create", "*", ""}, {"keys ls", "*", ""}, {"keys revoke <id>", "*", ""}, {"keys create", "acme", "acme"}, {"keys create", "", ""}, {"ps", "*", "*"},
	} {
		if got := requestTenant(c.command, c.named); got != c.want {
			t.Errorf("turnpike %s --tenant %q names the tenant %q, want %q", c.command, c.named, got, c.want)
		}
	}
}
