package jsonschema

import (
	"fmt"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/internal/rule"
)

// Limits of the cost of a schema.
const (
	MaxValues       = 10_000     // values in a schema; each takes about a kilobyte in the library
	maxSchemaWeight = 16_000_000 // sum over the bytes of a schema of the levels that each is below
	maxPattern      = 10_000     // instructions of one regular expression
	maxPatterns     = 50_000     // instructions of all regular expressions of a schema
	MaxAllPatterns  = 200_000    // instructions of all regular expressions of a definition or a batch; they compile in some 0.2 s
	maxSteps        = 500_000    // steps of one check of a value
	maxTurnSteps    = 1_000_000  // steps of all checks of the calls of one turn, or of the variables of one request
	patternSteps    = 16         // instructions of a regular expression that count as one step for each byte of the text
	textSteps       = 64         // bytes of a text that count as one step
)

// Values returns an upper bound of the number of values in JSON.
func Values(raw []byte) int {
	values, text, escaped := 1, false, false
	for _, b := range raw {
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case !text && (b == ',' || b == '{' || b == '['):
			values++
		}
	}
	return values
}

// weightOf returns the sum, over all bytes of a schema, of the number of objects and lists around each byte: the
// library reads a part again for each level that it is below.
func weightOf(raw []byte) int {
	weight, depth, text, escaped := 0, 0, false, false
	for _, b := range raw {
		weight += depth
		switch {
		case escaped:
			escaped = false
		case text && b == '\\':
			escaped = true
		case b == '"':
			text = !text
		case text:
		case b == '{' || b == '[':
			depth++
		case b == '}' || b == ']':
			depth--
		}
	}
	return weight
}

// boundSize returns an error if reading the schema raw would cost too much.
func boundSize(raw []byte) error {
	if n := Values(raw); n > MaxValues {
		return fmt.Errorf("the schema has %d values (objects, lists, texts and numbers together), at most %d are allowed: shorten lists such as enum, or split it", n, MaxValues)
	}
	if weight := weightOf(raw); weight > maxSchemaWeight {
		return fmt.Errorf("the schema is too large for its depth: %d bytes, each counted once for each level around it, at most %d are allowed: flatten or shorten it", weight, maxSchemaWeight)
	}
	return nil
}

var errAllPatterns = fmt.Errorf("the regular expressions of all schemas of the definition are too complex, more than %d instructions: use fewer expressions, or fewer repetitions in them", MaxAllPatterns)

// sizeOf returns the number of instructions of a regular expression, and subtracts it from left, the remaining
// instructions of the schema, and from all, those of its definition. It returns an error if one of them does not
// suffice, or if the expression alone has more than maxPattern.
func sizeOf(text string, left, all *int) (int, error) {
	if *all < 0 {
		return 0, errAllPatterns // do not even parse the pattern, which takes time too
	}
	size := rule.PatternSize(text)
	*left -= size
	*all -= size
	if size > maxPattern {
		return 0, fmt.Errorf("the regular expression %q is too complex, more than %d instructions: use fewer repetitions", keys.Clip(text), maxPattern)
	}
	if *left < 0 {
		return 0, fmt.Errorf("the regular expressions of the schema are too complex, more than %d instructions: use fewer expressions, or fewer repetitions in them", maxPatterns)
	}
	if *all < 0 {
		return 0, errAllPatterns
	}
	return size, nil
}
