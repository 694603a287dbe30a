// Package jsonschema compiles JSON Schemas of untrusted authors and checks values against them, at a
// bounded cost. It reads draft 7 and draft 2020-12.
//
//	left := jsonschema.MaxAllPatterns
//	s, err := jsonschema.Compile(raw, &left)
//	if err != nil {
//		return err
//	}
//	err = s.Validate(value, jsonschema.TurnSteps())
//
// # Guarantees
//
//   - A schema that may not terminate, or takes too much memory or time to compile, is refused
//     (TestSchemaBounds, TestHostileDefinitions of package agent).
//   - Checking a value takes a bounded number of steps and a bounded stack (TestHostileChecks and
//     TestHostileValues of package agent); the error reports when they do not suffice.
//   - It agrees with the test suite of JSON Schema (TestSchemaSuite). Nothing is loaded from a network.
package jsonschema
