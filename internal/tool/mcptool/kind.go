package mcptool

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

const (
	pinTries = 3
	pinPause = time.Second
)

var _ tool.Kind = (*Caller)(nil)

// one is a tool of a server, with the listing that the version of the agent has pinned.
type one struct {
	name    string // the tool's name at the server
	listing Listing
}

// Spec implements tool.Kind.
func (*Caller) Spec() tool.Spec { return toolspec.MCPSpec }

// Describe implements tool.Kind. It returns nothing, because pins have the descriptions.
func (*Caller) Describe(context.Context, []tool.Bound) map[string]tool.Description { return nil }

// Pin implements tool.Kind. It asks the server, which may be starting, for the tools that t allows. Later the pin
// suffices, so a run can continue while the server is down.
func (c *Caller) Pin(ctx context.Context, t tool.Bound) (json.RawMessage, error) {
	s, err := settings(t)
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		l, err := c.List(ctx, t.Tenant, s.Server, t.Secret)
		if err == nil {
			if l, err = l.Pick(s.Allow); err != nil {
				return nil, fmt.Errorf("the tools of MCP server %q could not be determined: %w", s.Server, err)
			}
			return json.Marshal(l)
		}
		if try == pinTries || !pause(ctx, pinPause) {
			advice := ""
			if _, ok := errors.AsType[unreachableError](err); ok {
				advice = ": check that the server works, and that its settings in the agent are right"
			}
			return nil, fmt.Errorf("the tools of MCP server %q could not be determined: %w%s", s.Server, err, advice)
		}
	}
}

// Expand implements tool.Kind.
func (*Caller) Expand(t tool.Bound, pinned json.RawMessage) ([]tool.Definition, error) {
	var l Listing
	if err := json.Unmarshal(pinned, &l); err != nil {
		return nil, fmt.Errorf("the stored tools of the MCP server cannot be decoded (%w): if other workers run a newer build, upgrade this one; otherwise save the agent again, and start a new run of its next version", err)
	}
	tools := make([]tool.Definition, len(l))
	for i, listed := range l {
		tools[i] = *t.Definition
		tools[i].Name, tools[i].Description, tools[i].Schema = givenName(t.Name, listed.Name), listed.Description, listed.Schema
		tools[i].Listed = one{listed.Name, l}
	}
	return tools, nil
}

// Call implements tool.Kind.
func (c *Caller) Call(ctx context.Context, t tool.Bound, call tool.Call) (tool.Result, error) {
	s, err := settings(t)
	if err != nil {
		return tool.Result{}, err
	}
	of, ok := t.Listed.(one)
	if !ok {
		return tool.Result{}, fmt.Errorf("the description that the server gave of tool %q has the unexpected type %T. Continue without the tool; the operator must report this bug in Turnpike", t.Name, t.Listed)
	}
	return c.Tool(s.Server, of.name, s.Allow, of.listing, t.Secret).Call(ctx, call)
}

func settings(t tool.Bound) (toolspec.Servers, error) {
	s, ok := t.Settings.(*toolspec.Servers)
	if !ok {
		return toolspec.Servers{}, fmt.Errorf("the settings of the tool have the unexpected type %T. Continue without the tool; the operator must report this bug in Turnpike", t.Settings)
	}
	return *s, nil
}

var unfit = regexp.MustCompile(`[^a-zA-Z0-9_-]`)

// givenName returns the name of a server's tool for models, which accept fewer names than servers use. A name that
// must be changed ends with four bytes of its hash, so that two names hardly ever become the same.
func givenName(prefix, name string) string {
	whole := name
	if prefix != "" {
		whole = prefix + "_" + name
	}
	if tool.CheckName(whole) == nil && whole != tool.AskUser {
		return whole
	}
	sum := sha256.Sum256([]byte(whole))
	fit := unfit.ReplaceAllString(whole, "_")
	return fit[:min(len(fit), 55)] + "_" + hex.EncodeToString(sum[:4])
}
