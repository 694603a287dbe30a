package main

import (
	"slices"
	"testing"

	"github.com/alecthomas/kong"
)

// Each command that people see stands under a title of the help, or it would come first.
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
