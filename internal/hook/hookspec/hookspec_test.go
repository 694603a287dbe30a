package hookspec_test

import (
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/hook/hookspec"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// An expression that holds has the consequence that it names, with its message or else a text of ours.
func TestConsequencesOfAnExpression(t *testing.T) {
	t.Parallel()
	kind := hookspec.Kinds(nil)[hookspec.CEL]
	say := func(s string) *string { return &s }
	for name, tt := range map[string]struct {
		at    hook.Point
		e     hookspec.Expression
		asked hook.Request
		want  hook.Answer
	}{
		"refuse":            {hook.Input, hookspec.Expression{When: `input == "x"`, Then: "refuse", Message: "no"}, hook.Request{Input: "x"}, hook.Answer{Refuse: say("no")}},
		"refuse, no text":   {hook.Input, hookspec.Expression{When: `input == "x"`, Then: "refuse"}, hook.Request{Input: "x"}, hook.Answer{Refuse: say("A policy of this agent does not allow this message.")}},
		"replace":           {hook.Input, hookspec.Expression{When: `turn == 2 && input == "x"`, Then: "replace", Message: "y"}, hook.Request{Turn: 2, Input: "x"}, hook.Answer{Replace: say("y")}},
		"does not hold":     {hook.Input, hookspec.Expression{When: `input == "x"`, Then: "refuse", Message: "no"}, hook.Request{Input: "z"}, hook.Answer{}},
		"approve":           {hook.PreTool, hookspec.Expression{When: `tool == "pay" && args.n > 1`, Then: "approve"}, hook.Request{Call: &hook.Call{Tool: "pay", Arguments: []byte(`{"n":2}`)}}, hook.Answer{Approval: true}},
		"deny":              {hook.PreTool, hookspec.Expression{When: `metadata.plan == "free"`, Then: "deny"}, hook.Request{Metadata: map[string]string{"plan": "free"}, Call: &hook.Call{Arguments: []byte("{}")}}, hook.Answer{Deny: say(`a policy of this agent applies: metadata.plan == "free"`)}},
		"nothing untrusted": {hook.PreTool, hookspec.Expression{When: `untrusted_seen || args_from_untrusted`, Then: "deny"}, hook.Request{Call: &hook.Call{Arguments: []byte("{}")}}, hook.Answer{}},
		"block":             {hook.Stop, hookspec.Expression{When: `output == "o"`, Then: "block", Message: "more"}, hook.Request{Output: "o"}, hook.Answer{Block: say("more")}},
		"prevent":           {hook.Stop, hookspec.Expression{When: `!("a" in metadata)`, Then: "prevent", Message: "end"}, hook.Request{}, hook.Answer{Prevent: say("end")}},
	} {
		if title, err := kind.Spec().Check(tt.at, &tt.e); err != nil || title != strconv.Quote(tt.e.When) {
			t.Errorf("%s: %q, %v", name, title, err)
			continue
		}
		got, err := kind.Call(t.Context(), &tt.e, tt.asked)
		if diff := cmp.Diff(tt.want, got); diff != "" || err != nil {
			t.Errorf("%s: %v %s", name, err, diff)
		}
	}
}

func TestExpressionsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		at   hook.Point
		e    hookspec.Expression
		want string
	}{
		"replace by nothing":          {hook.Input, hookspec.Expression{When: "true", Then: "replace"}, "the field message is missing"},
		"no condition":                {hook.Input, hookspec.Expression{Then: "refuse"}, "the field when is missing"},
		"not CEL":                     {hook.Input, hookspec.Expression{When: "1 +", Then: "refuse"}, "when: "},
		"a variable of another point": {hook.Input, hookspec.Expression{When: `output == ""`, Then: "refuse"}, "when: "},
		"refuse a tool":               {hook.PreTool, hookspec.Expression{When: "true", Then: "refuse"}, "write one of approve, deny at the point pre_tool"},
		"deny an input":               {hook.Input, hookspec.Expression{When: "true", Then: "deny"}, "write one of refuse, replace at the point input"},
		"approve a stop":              {hook.Stop, hookspec.Expression{When: "true", Then: "approve"}, "write one of block, prevent at the point stop"},
		"no consequence":              {hook.Stop, hookspec.Expression{When: "true"}, `the field then is ""`},
		"after a response":            {hook.PostSampling, hookspec.Expression{When: "true", Then: "block"}, "can decide nothing"},
		"after a failure":             {hook.StopFailure, hookspec.Expression{When: "true", Then: "block"}, "can decide nothing"},
	} {
		if _, err := hookspec.Builtin()[hookspec.CEL].Check(tt.at, &tt.e); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// Hooks of a tenant answer below its own subjects only.
func TestSubjectsOfATenant(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		tenant, subject string
		fits            bool
	}{
		{"acme", "tp.t.acme.hook.a", true},
		{"acme", "tp.t.acme.hookx.a", false},
		{"acme", "tp.t.acmes.hook.a", false},
		{"acme", "tp.t.other.hook.a", false},
		{"acme", "tp.hook.a", false},
		{"acme", "elsewhere.a", false},
		{state.DefaultTenant, "tp.hook.a", true},
		{"", "tp.hook.a", true},
		{state.DefaultTenant, "elsewhere.a", true},
		{state.DefaultTenant, "tpx.a", true},
		{state.DefaultTenant, "tp", false},
		{state.DefaultTenant, "tp.turns.a", false},
		{state.DefaultTenant, "tp.t.acme.hook.a", false},
	} {
		if err := (&hookspec.Service{Subject: tt.subject}).CheckTenant("tp", tt.tenant); (err == nil) != tt.fits {
			t.Errorf("%s of tenant %q: %v, want it to fit: %t", tt.subject, tt.tenant, err, tt.fits)
		}
	}
}
