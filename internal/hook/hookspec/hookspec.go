package hookspec

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"cel.dev/cel-go/cel"

	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/hook"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Names of the kinds.
const (
	Go   = "go"   // a function registered with the worker
	NATS = "nats" // a service that answers on a subject
	CEL  = "cel"  // an expression in the definition
)

// Builtin returns a new map of the kinds that ship with Turnpike. A third party adds its own to the map; a
// gateway needs nothing else.
func Builtin() hook.Specs { return hook.Specs{Go: goSpec, NATS: NATSSpec, CEL: celSpec} }

// Kinds returns the kinds without external dependencies: functions in Go, by name, and
// expressions. A worker adds others to the map.
func Kinds(functions map[string]hook.Hook) hook.Kinds {
	return hook.Kinds{
		Go: hook.KindOf(goSpec, func(ctx context.Context, s *Function, r hook.Request) (hook.Answer, error) {
			h := functions[s.Name]
			if h == nil {
				return hook.Answer{}, fmt.Errorf("this worker has no hook of kind go with the name %q: register it with every worker, or correct the name", s.Name)
			}
			return h.Call(ctx, r)
		}),
		CEL: hook.KindOf(celSpec, func(ctx context.Context, e *Expression, r hook.Request) (hook.Answer, error) { return e.ask(ctx, r) }),
	}
}

// Function is the settings of the kind Go.
type Function struct {
	Name string `json:"name,omitempty"` // as it is registered with the worker
}

var goSpec = hook.SpecOf(func(_ hook.Point, s *Function) (string, error) {
	if s.Name == "" {
		return "", &hook.Mistake{Key: "name", Text: "it is missing: give the name under which the worker's program registers the hook"}
	}
	return s.Name, nil
})

// Service is the settings of the kind NATS.
type Service struct {
	Subject string `json:"subject,omitempty"`
}

// NATSSpec is the Spec of the kind NATS, with the settings Service.
var NATSSpec = hook.SpecOf(func(_ hook.Point, s *Service) (string, error) {
	if why := badSubject(s.Subject); why != "" {
		return "", &hook.Mistake{Key: "subject", Text: fmt.Sprintf("%q %s", s.Subject, why)}
	}
	return s.Subject, nil
})

// CheckTenant implements hook.Tenanted. Hooks of a tenant answer below <prefix>.t.<tenant>.hook.; those of the
// default tenant below <prefix>.hook., or on a subject without the prefix. On any other subject Turnpike could
// mistake a request for another message, or another tenant could receive it. The error is a *hook.Mistake.
func (s *Service) CheckTenant(prefix, tenant string) error {
	root := prefix
	if tenant != "" && tenant != state.DefaultTenant {
		root += ".t." + tenant
	}
	switch {
	case strings.HasPrefix(s.Subject, root+".hook."):
		return nil
	case root != prefix:
		return &hook.Mistake{Key: "subject", Text: fmt.Sprintf("%q does not begin with %s.hook.: begin it so, as hooks of tenant %s must", s.Subject, root, tenant)}
	case s.Subject == prefix || strings.HasPrefix(s.Subject, prefix+"."):
		return &hook.Mistake{Key: "subject", Text: fmt.Sprintf("%q is reserved, since Turnpike uses the subjects below %s itself: begin it with %s.hook., or choose a subject elsewhere", s.Subject, prefix, prefix)}
	default:
		return nil
	}
}

// maxSubject bounds a subject, in bytes. A NATS server drops the connection of a client that uses
// one beyond its max_control_line.
const maxSubject = 1024

// badSubject returns the reason why a subject cannot be that of a service, or "".
func badSubject(s string) string {
	switch {
	case s == "":
		return "is empty: name one subject, such as hooks.review"
	case len(s) > maxSubject:
		return fmt.Sprintf("has %d bytes, at most %d are allowed: use a shorter subject", len(s), maxSubject)
	case strings.ContainsAny(s, "*> \t\r\n"):
		return "has a wildcard or a space: name one subject, such as hooks.review"
	case strings.HasPrefix(s, "$") || strings.HasPrefix(s, "_INBOX."):
		return "is reserved by NATS: use one that does not begin with $ or _INBOX."
	case slices.Contains(strings.Split(s, "."), ""):
		return "has an empty token: write one word between two dots"
	default:
		return ""
	}
}

// Expression is the settings of the kind CEL. If When is true, Then takes effect: refuse (the run
// ends with Message) or replace (the model reads Message) at the input, approve (a person must
// approve) or deny before a tool, block (the run continues) or prevent (the run ends) at a stop. When
// is an expression over turn, metadata and, by point, input; tool, args, args_from_untrusted and
// untrusted_seen; or output.
type Expression struct {
	When    string `json:"when,omitempty"`
	Then    string `json:"then,omitempty"`
	Message string `json:"message,omitempty"`

	holds rule.Condition
}

var celSpec = hook.SpecOf(func(p hook.Point, e *Expression) (string, error) {
	return fmt.Sprintf("%q", e.When), e.compile(p)
})

func (e *Expression) compile(p hook.Point) (err error) {
	vars := []cel.EnvOption{cel.Variable("turn", cel.IntType), cel.Variable("metadata", cel.MapType(cel.StringType, cel.StringType))}
	var fits []string
	switch p {
	case hook.Input:
		fits = []string{"refuse", "replace"}
		vars = append(vars, cel.Variable("input", cel.StringType))
	case hook.PreTool:
		fits = []string{"approve", "deny"}
		vars = append(vars, cel.Variable("tool", cel.StringType), cel.Variable("args", cel.MapType(cel.StringType, cel.DynType)),
			cel.Variable("args_from_untrusted", cel.BoolType), cel.Variable("untrusted_seen", cel.BoolType))
	case hook.Stop:
		fits = []string{"block", "prevent"}
		vars = append(vars, cel.Variable("output", cel.StringType))
	default:
		return fmt.Errorf("a hook of kind cel decides, and a %s hook can decide nothing: use the kind nats or go, or move it to input, pre_tool or stop", p)
	}
	if !slices.Contains(fits, e.Then) {
		return fmt.Errorf("the field then is %q: write one of %s at the point %s", e.Then, strings.Join(fits, ", "), p)
	}
	if e.Then == "replace" && e.Message == "" {
		return errors.New("the field message is missing: give the text that replaces the user's message")
	}
	if e.When == "" {
		return errors.New("the field when is missing: give a condition in CEL")
	}
	if e.holds, err = rule.Compile(e.When, vars...); err != nil {
		return fmt.Errorf("when: %w", err)
	}
	return nil
}

func (e *Expression) ask(ctx context.Context, r hook.Request) (hook.Answer, error) {
	metadata := r.Metadata
	if metadata == nil {
		metadata = map[string]string{}
	}
	values := map[string]any{"turn": r.Turn, "metadata": metadata, "output": r.Output, "input": r.Input}
	if r.Call != nil {
		var args map[string]any
		if err := json.Unmarshal(r.Call.Arguments, &args); err != nil {
			return hook.Answer{}, err
		}
		values["tool"], values["args"] = r.Call.Tool, args
		// Functions are called where the expression asks for their value, and not otherwise.
		values["args_from_untrusted"] = func() any { return r.ArgsFromUntrusted() }
		values["untrusted_seen"] = func() any { return r.UntrustedSeen() }
	}
	yes, err := e.holds(rule.FromContext(ctx).Evaluation(values))
	if err != nil || !yes {
		return hook.Answer{}, err
	}
	return e.consequence(), nil
}

// consequence returns the answer of an expression that holds.
func (e *Expression) consequence() hook.Answer {
	text := e.Message
	switch {
	case text != "":
	case e.Then == "refuse": // the user reads it, who has nothing to do with the expression
		text = "A policy of this agent does not allow this message."
	default:
		text = "a policy of this agent applies: " + e.When
	}
	switch e.Then {
	case "refuse":
		return hook.Answer{Refuse: &text}
	case "replace":
		return hook.Answer{Replace: &text}
	case "approve":
		return hook.Answer{Approval: true}
	case "deny":
		return hook.Answer{Deny: &text}
	case "block":
		return hook.Answer{Block: &text}
	default:
		return hook.Answer{Prevent: &text}
	}
}
