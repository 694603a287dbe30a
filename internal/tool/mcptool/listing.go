package mcptool

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/turnpike-dev/turnpike/internal/secret"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// Limits of a server's listing.
const (
	maxTools   = 1000
	maxPages   = 100
	maxListing = 512 << 10 // bytes, so that it fits into a NATS message
)

// Listed is a tool as a server lists it.
type Listed struct {
	Name        string          `json:"name"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema"`
	Output      json.RawMessage `json:"output,omitempty"` // schema of structured results; nil if there is none
}

// Listing is the tools of a server, sorted by name, whatever order the server uses.
type Listing []Listed

// Hash returns a hash of the names, descriptions and schemas of a listing.
func (l Listing) Hash() string {
	h := sha256.New()
	for _, t := range l {
		for _, part := range []string{t.Name, t.Description, string(t.Schema), string(t.Output)} {
			fmt.Fprintf(h, "%d:%s,", len(part), part)
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Pick returns the tools with the names in allow, or all if that is empty. The error names a tool that the server does
// not list.
func (l Listing) Pick(allow []string) (Listing, error) {
	if len(allow) == 0 {
		return l, nil
	}
	var picked Listing
	var have []string
	for _, t := range l {
		have = append(have, t.Name)
		if slices.Contains(allow, t.Name) {
			picked = append(picked, t)
		}
	}
	for _, name := range allow {
		if !slices.Contains(have, name) {
			return nil, fmt.Errorf("the server has no tool %q (it has %s): correct the name in allow", name, cmp.Or(strings.Join(have, ", "), "no tools"))
		}
	}
	return picked, nil
}

// verify returns nil if the tools that the server lists now, restricted to allow, are those of the pinned listing l,
// and else an error that names the differences.
func (l Listing) verify(s Server, allow []string, now Listing) error {
	picked, err := now.Pick(allow)
	if err == nil && l.Hash() == picked.Hash() {
		return nil
	}
	if err != nil {
		picked = now
		picked = slices.DeleteFunc(slices.Clone(picked), func(t Listed) bool { return !slices.Contains(allow, t.Name) })
	}
	return fmt.Errorf("The tools of MCP server %q have changed since this version of the agent pinned them (%s): %s. The call was not made: continue without it. "+ //nolint:staticcheck // sentences for the model
		"If the agent's author wants the change: remove tools that are gone from allow, save the agent again and start a new run; its next version pins what the server lists now (%s). "+
		"If not: restore the earlier version of the server",
		s, l.Hash()[:12], l.changes(picked), picked.Hash()[:12])
}

// changes returns the differences between l and now.
func (l Listing) changes(now Listing) string {
	var parts []string
	was := map[string]Listed{}
	for _, t := range l {
		was[t.Name] = t
	}
	for _, t := range now {
		old, known := was[t.Name]
		delete(was, t.Name)
		switch {
		case !known:
			parts = append(parts, fmt.Sprintf("%q is new", t.Name))
		case old.Description != t.Description:
			parts = append(parts, fmt.Sprintf("the description of %q has changed", t.Name))
		case !bytes.Equal(old.Schema, t.Schema) || !bytes.Equal(old.Output, t.Output):
			parts = append(parts, fmt.Sprintf("the schema of %q has changed", t.Name))
		}
	}
	for _, t := range l {
		if _, gone := was[t.Name]; gone {
			parts = append(parts, fmt.Sprintf("%q was removed", t.Name))
		}
	}
	return strings.Join(parts, ", ")
}

// list asks a server for its tools. Models read the listing, and the store keeps it with the agent, so list removes the
// secrets that the server has received.
func list(ctx context.Context, cs *mcp.ClientSession, secrets *secret.Redactor) (Listing, error) {
	var l Listing
	size := 0
	for t, err := range pages(ctx, cs) {
		if err != nil {
			return nil, fmt.Errorf("list tools: %w", err)
		}
		listed := Listed{Name: secrets.Redact(t.Name), Description: secrets.Redact(t.Description)}
		if listed.Schema, err = canonical(t.InputSchema); err != nil {
			return nil, fmt.Errorf("list tools: the schema of %q cannot be used: %w", t.Name, err)
		}
		if t.OutputSchema != nil {
			if listed.Output, err = canonical(t.OutputSchema); err != nil {
				return nil, fmt.Errorf("list tools: the output schema of %q cannot be used: %w", t.Name, err)
			}
		}
		listed.Schema = json.RawMessage(secrets.Redact(string(listed.Schema)))
		if listed.Output != nil {
			listed.Output = json.RawMessage(secrets.Redact(string(listed.Output)))
		}
		size += len(listed.Name) + len(listed.Description) + len(listed.Schema) + len(listed.Output) + 64
		switch {
		case len(l) == maxTools:
			return nil, fault("the server lists more than %d tools, the maximum: configure it to offer fewer (allow does not help, since it is applied afterwards)", maxTools)
		case size > maxListing:
			return nil, fault("the server lists tools with more than %d bytes, the maximum: configure it to offer fewer, or shorten their descriptions and schemas (allow does not help, since it is applied afterwards)", maxListing)
		}
		if slices.ContainsFunc(l, func(o Listed) bool { return o.Name == listed.Name }) {
			return nil, fault("the server lists the tool %q twice: correct the server", t.Name)
		}
		l = append(l, listed)
	}
	slices.SortFunc(l, func(a, b Listed) int { return strings.Compare(a.Name, b.Name) })
	return l, nil
}

// pages yields the tools on the pages of a server's list, or an error. A server decides how many pages there are.
func pages(ctx context.Context, cs *mcp.ClientSession) iter.Seq2[*mcp.Tool, error] {
	return func(yield func(*mcp.Tool, error) bool) {
		var params mcp.ListToolsParams
		for range maxPages {
			r, err := cs.ListTools(ctx, &params)
			if err != nil {
				yield(nil, err)
				return
			}
			for _, t := range r.Tools {
				if !yield(t, nil) {
					return
				}
			}
			if params.Cursor = r.NextCursor; params.Cursor == "" {
				return
			}
		}
		yield(nil, fault("the server has more than %d pages of tools, the maximum: configure it to put more tools on a page", maxPages))
	}
}

func canonical(v any) (json.RawMessage, error) {
	b, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	return tool.Canonical(b), nil
}

// faultError is an error about a server whose text ends with a remedy.
type faultError struct{ error }

func fault(format string, args ...any) error { return faultError{fmt.Errorf(format, args...)} }
