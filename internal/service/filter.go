package service

import (
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// ParseFilter reads the parameters that select runs. It refuses unknown parameters: a misspelled one would select more
// than the caller means. The filter has no tenant.
func ParseFilter(query url.Values) (state.Filter, error) {
	var f state.Filter
	var before string
	page, err := ParsePage(query)
	if err != nil {
		return f, err
	}
	f.Limit = page.Limit
	for name, values := range query {
		value := values[0]
		if len(values) > 1 && name != "status" {
			return f, invalid("parameter %q is given %d times: give it once", name, len(values))
		}
		key, isMetadata := strings.CutPrefix(name, "metadata.")
		switch {
		case isMetadata:
			if f.Metadata == nil {
				f.Metadata = map[string]string{}
			}
			if key == "" {
				return f, invalid("parameter %q has no key: write metadata.KEY=VALUE", name)
			}
			f.Metadata[key] = value
		case name == "status":
			for text := range strings.SplitSeq(strings.Join(values, ","), ",") {
				if !slices.Contains(state.Statuses(), state.Status(text)) {
					return f, invalid("status is %q: use one of %s", text, words(state.Statuses()))
				}
				f.Status = append(f.Status, state.Status(text))
			}
		case name == "waiting_reason":
			if f.Waiting = state.Reason(value); !slices.Contains(state.WaitReasons(), f.Waiting) {
				return f, invalid("waiting_reason is %q: use one of %s", value, words(state.WaitReasons()))
			}
		case name == "agent" || name == "loop":
			if value == "" {
				return f, invalid("parameter %q is empty: give a value, or omit it", name)
			}
			if name == "agent" {
				f.Agent = value
			} else {
				f.Loop = value
			}
		case name == "parent":
			if f.Parent, err = state.ParseRunID(value); err != nil {
				return f, problem(badRequest, api.CodeInvalidID, "parent %q: %v", value, err)
			}
		case name == "batch":
			f.Batch = value
			if _, err = state.ParseBatchID(value); err != nil {
				return f, problem(badRequest, api.CodeInvalidID, "batch %q: %v", value, err)
			}
		case name == "created_after":
			// A plus that was not escaped arrives as a space.
			if f.CreatedAfter, err = time.Parse(time.RFC3339, strings.ReplaceAll(value, " ", "+")); err != nil {
				return f, invalid("created_after %q is not a time in RFC 3339: write one such as 2026-11-20T15:04:05Z", value)
			}
		case name == "created_before":
			at, err := time.Parse(time.RFC3339, strings.ReplaceAll(value, " ", "+"))
			if err != nil {
				return f, invalid("created_before %q is not a time in RFC 3339: write one such as 2026-11-20T15:04:05Z", value)
			}
			before = string(state.FirstIDAt(at))
		case name == "cursor":
			if _, err := state.ParseRunID(value); err != nil {
				return f, invalidCursor()
			}
			f.Cursor = value
		case name == "limit", name == "tenant":
		default:
			return f, invalid("unknown parameter %q: use status, waiting_reason, agent, loop, metadata.KEY, parent, batch, created_after, created_before, text, trouble, view, cursor, limit, tenant", name)
		}
	}
	// Ids begin with the time of their making, so a list from a time on begins behind one.
	if f.Cursor == "" || before != "" && before < f.Cursor {
		f.Cursor = before
	}
	return f, nil
}
