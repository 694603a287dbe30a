package jsonschema

import (
	"encoding/json"
	"errors"
	"fmt"
)

// Limits of the cost of the output schemas of a batch together. Those of values and weight take about a second each.
const (
	MaxBatchValues = 5 * MaxValues
	MaxBatchWeight = 2 * maxSchemaWeight
)

// Batch checks the output schemas of the runs of one batch. Their cost together is bounded; equal schemas are checked
// and count once. It is not safe for concurrent use.
type Batch struct {
	patterns, values, weight int // what further schemas may have
	good                     map[string]bool
}

// NewBatch returns a Batch without schemas.
func NewBatch() *Batch {
	return &Batch{patterns: MaxAllPatterns, values: MaxBatchValues, weight: MaxBatchWeight, good: map[string]bool{}}
}

// Check returns an error if raw is not a usable JSON Schema (see Compile), or if the batch would have too many.
func (b *Batch) Check(raw json.RawMessage) error {
	if b.good[string(raw)] {
		return nil
	}
	if boundSize(raw) == nil { // otherwise Compile says why
		b.values -= Values(raw)
		b.weight -= weightOf(raw)
	}
	const remedy = "equal schemas count once: use fewer different ones, or split the batch"
	switch {
	case b.values < 0:
		return fmt.Errorf("the output schemas of the batch have together more than %d values (objects, lists, texts and numbers); %s", MaxBatchValues, remedy)
	case b.weight < 0:
		return fmt.Errorf("the output schemas of the batch are together too large for their depth: %d bytes or more, each counted once for each level around it, at most %d are allowed; %s", MaxBatchWeight-b.weight, MaxBatchWeight, remedy)
	}
	_, err := Compile(raw, &b.patterns)
	if errors.Is(err, errAllPatterns) {
		return fmt.Errorf("the regular expressions of the output schemas of the batch are together too complex, more than %d instructions; %s", MaxAllPatterns, remedy)
	}
	if err == nil {
		b.good[string(raw)] = true
	}
	return err
}
