package eval

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"cel.dev/cel-go/cel"
	"sigs.k8s.io/yaml"

	"github.com/turnpike-dev/turnpike/internal/jsonschema"
	"github.com/turnpike-dev/turnpike/internal/rule"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

const (
	// maxFile is the maximum size of a file of cases, in bytes.
	maxFile = 8 << 20

	// maxCases is the maximum number of cases in a file.
	maxCases = 10_000
)

// File is a file of cases.
type File struct {
	// Agent is the agent that the cases run against if the command names none: NAME or NAME@VERSION.
	Agent string `json:"agent,omitempty"`

	// Judge is the model that applies the criteria of judges. It is required if a case has one.
	Judge *agent.Model `json:"judge,omitempty"`

	Cases []Case `json:"cases"`
}

// Case is a task and the expectations about its run. It has either Input or Run.
type Case struct {
	Name   string          `json:"name"`
	Input  json.RawMessage `json:"input,omitempty"` // the input, as in a submission
	Run    json.RawMessage `json:"run,omitempty"`   // a whole submission instead of Input, without its agent
	Expect []Expectation   `json:"expect,omitempty"`

	// Variables are the values of the agent's variables, as in a submission. A case with Run has them in Run instead.
	Variables json.RawMessage `json:"variables,omitempty"`

	submission api.SubmitRequest
	checks     []check
	anyStatus  bool // an expectation checks how the run ended, so it need not complete
	wantsTools bool // an expectation checks the calls of tools
}

// Expectation is a condition of a case. Exactly one of its fields is set.
type Expectation struct {
	// CEL is an expression that must be true. Its variables are output, json, status, reason, turns, tokens, cost_usd,
	// seconds and tools.
	CEL string `json:"cel,omitempty"`

	// Schema is a JSON Schema that the structured output, or the output as JSON, must match.
	Schema json.RawMessage `json:"schema,omitempty"`

	// Matches is a regular expression that must match a part of the output.
	Matches string `json:"matches,omitempty"`

	// Judge is a criterion that a model applies to the answer.
	Judge string `json:"judge,omitempty"`
}

// Parse parses a file of cases in YAML or JSON, and checks it. The error joins the mistakes, each with its place: the
// first of each case.
func Parse(data []byte) (*File, error) {
	if len(data) > maxFile {
		return nil, fmt.Errorf("the file has %d bytes, at most %d are allowed: split it", len(data), maxFile)
	}
	text, err := yaml.YAMLToJSONStrict(data)
	if err != nil {
		return nil, fmt.Errorf("the file is not valid YAML or JSON, correct it: %w", err)
	}
	var f File
	if err := api.Decode(text, &f); err != nil {
		return nil, err
	}
	switch n := len(f.Cases); {
	case n == 0:
		return nil, errors.New("cases is empty: add at least one case")
	case n > maxCases:
		return nil, fmt.Errorf("cases has %d entries, at most %d are allowed: split the file", n, maxCases)
	}
	var errs []error
	if f.Judge != nil {
		if _, err := agent.Builtin().Compile(judgeDefinition(*f.Judge), 1); err != nil {
			errs = append(errs, fmt.Errorf("judge: %w", err))
		}
	}
	names := map[string]int{}
	for i := range f.Cases {
		c := &f.Cases[i]
		if first, twice := names[c.Name]; twice && c.Name != "" {
			errs = append(errs, fmt.Errorf("cases[%d].name: cases[%d] also has the name %q: rename one", i, first, c.Name))
		}
		names[c.Name] = i
		if err := c.compile(f.Judge != nil); err != nil {
			errs = append(errs, fmt.Errorf("cases[%d]%w", i, err))
		}
	}
	return &f, errors.Join(errs...)
}

// placeError is a mistake at a place relative to the place that the caller adds.
func placeError(place, format string, args ...any) error {
	return fmt.Errorf("%s: %w", place, fmt.Errorf(format, args...))
}

// ending matches the variables that an expression uses to check how a run ended.
var ending = regexp.MustCompile(`\b(status|reason)\b`)

// calling matches the variable with the tools that were called.
var calling = regexp.MustCompile(`\btools\b`)

func (c *Case) compile(judged bool) error {
	switch {
	case c.Name == "":
		return placeError(".name", "it is empty: give each case a name")
	case len(c.Input) == 0 && len(c.Run) == 0:
		return placeError("", "%s has neither input nor run: give one of them", c.Name)
	case len(c.Input) > 0 && len(c.Run) > 0:
		return placeError("", "%s has both input and run: remove one of them", c.Name)
	case len(c.Run) > 0 && len(c.Variables) > 0:
		return placeError(".variables", "%s has run, so its variables belong into run: move them there", c.Name)
	case len(c.Run) > 0:
		if err := api.Decode(c.Run, &c.submission); err != nil {
			return placeError(".run", "%w", err)
		}
		if c.submission.Agent != "" || c.submission.AgentVersion != 0 {
			return placeError(".run", "it names an agent, but cases run against the agent of the file or of --agent: remove agent and agent_version")
		}
	default:
		c.submission.Input, c.submission.Variables = c.Input, c.Variables
	}
	for i, e := range c.Expect {
		place := fmt.Sprintf(".expect[%d]", i)
		check, err := e.compile(judged)
		if err != nil {
			return placeError(place, "%w", err)
		}
		c.checks = append(c.checks, check)
		c.anyStatus = c.anyStatus || ending.MatchString(e.CEL)
		c.wantsTools = c.wantsTools || calling.MatchString(e.CEL)
	}
	return nil
}

// variables are the variables of CEL expectations.
var variables = []cel.EnvOption{
	cel.Variable("output", cel.StringType), cel.Variable("json", cel.DynType), cel.Variable("status", cel.StringType), cel.Variable("reason", cel.StringType),
	cel.Variable("turns", cel.IntType), cel.Variable("tokens", cel.IntType), cel.Variable("cost_usd", cel.DoubleType), cel.Variable("seconds", cel.DoubleType),
	cel.Variable("tools", cel.ListType(cel.StringType)),
}

func (e Expectation) compile(judged bool) (check, error) {
	given := 0
	for _, yes := range []bool{e.CEL != "", len(e.Schema) > 0, e.Matches != "", e.Judge != ""} {
		if yes {
			given++
		}
	}
	if given != 1 {
		return nil, fmt.Errorf("the expectation has %d of cel, schema, matches and judge: give exactly one", given)
	}
	switch {
	case e.CEL != "":
		holds, err := rule.Compile(e.CEL, variables...)
		if err != nil {
			return nil, fmt.Errorf("cel: %w", err)
		}
		return condition{e.CEL, holds}, nil
	case len(e.Schema) > 0:
		if err := jsonschema.Check(e.Schema); err != nil {
			return nil, fmt.Errorf("schema: %w", err)
		}
		return shape(e.Schema), nil
	case e.Matches != "":
		re, err := regexp.Compile(e.Matches)
		if err != nil {
			return nil, fmt.Errorf("matches: %w: correct the pattern", err)
		}
		return pattern{re}, nil
	default:
		if !judged {
			return nil, errors.New("judge: the file has no model for judges: add judge: {provider, name} at the top level")
		}
		return criterion(strings.TrimSpace(e.Judge)), nil
	}
}
