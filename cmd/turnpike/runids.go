package main

import (
	"fmt"
	"net/url"
	"reflect"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// shortestSuffix is the minimum number of characters in an argument that names a run by the end of its id.
const shortestSuffix = 4

// completeIDs replaces each argument that can be the end of a run's id with the whole id. It reads the newest runs
// (mostListed) only if there is such an argument, and returns an error unless exactly one of these runs matches it.
func completeIDs(e *env, k *kong.Context) error {
	var runs []api.Run
	whole := func(v reflect.Value) error {
		suffix := strings.ToUpper(v.String())
		if len(suffix) < shortestSuffix || strings.Trim(suffix, "0123456789ABCDEFGHJKMNPQRSTVWXYZ") != "" {
			return nil
		}
		if runs == nil {
			page, err := listRuns(e, url.Values{"view": {"summary"}}, mostListed)
			if err != nil {
				return err
			}
			runs = page.Items
		}
		id, err := endsIn(runs, suffix)
		if err == nil {
			v.SetString(id)
		}
		return err
	}
	for _, p := range k.Selected().Positional {
		if p.Tag.Get("complete") != "run" {
			continue
		}
		if p.Target.Kind() == reflect.String {
			if err := whole(p.Target); err != nil {
				return err
			}
			continue
		}
		for i := range p.Target.Len() {
			if err := whole(p.Target.Index(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

// endsIn returns the id of the run whose id ends in suffix. It fails unless exactly one run matches.
func endsIn(runs []api.Run, suffix string) (string, error) {
	var found []api.Run
	for _, r := range runs {
		if strings.HasSuffix(strings.TrimPrefix(r.ID, state.RunPrefix), suffix) {
			found = append(found, r)
		}
	}
	switch len(found) {
	case 0:
		return "", fmt.Errorf("no id of the newest %d runs ends in %s: correct this ending, or give the whole id; `turnpike ps` with --agent, --batch or -m finds older runs", len(runs), suffix)
	case 1:
		return found[0].ID, nil
	default:
		return "", fmt.Errorf("the ids of %d runs end in %s: give more characters of one of them:\n%s", len(found), suffix, table("RUN\tAGENT\tSTATUS", found, func(r api.Run) string {
			return r.ID + "\t" + agentOf(r) + "\t" + r.Status
		}))
	}
}
