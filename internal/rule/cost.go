package rule

import (
	"math"
	"strings"

	"cel.dev/cel-go/common/operators"
	"cel.dev/cel-go/common/overloads"
	"cel.dev/cel-go/common/types"
	"cel.dev/cel-go/common/types/ref"
	"cel.dev/cel-go/common/types/traits"
)

const (
	// maxText is the maximum length of an expression in bytes.
	maxText = 4 << 10

	// maxCost is the cost that a Budget allows: a unit for each step and each value that a
	// step reads. Most units take less than 200 ns.
	maxCost = 200_000

	// textCost is the number of bytes of a text that cost one unit.
	textCost = 100

	// patternCost is the cost of an instruction of a regular expression that each call compiles.
	patternCost = 8

	// conversionCost is the number of bytes that cost one unit if they are parsed.
	conversionCost = 10

	// zoneCost is the cost of a time zone, which is read from a file.
	zoneCost = 100
)

// charge spends the cost of an operation whose operands have values, before it runs.
func (m *meter) charge(op *operation) {
	operands := make([]ref.Val, len(op.operands))
	for i, id := range op.operands {
		operands[i] = m.values[id]
	}
	last := operands[len(operands)-1]
	switch op.function {
	case operators.Equals, operators.NotEquals, operators.Less, operators.LessEquals, operators.Greater, operators.GreaterEquals:
		m.spend(lighter(operands[0], last, m.left))
	case operators.In:
		m.spend(weight(operands[0], m.left))
		if _, is := last.(traits.Lister); is {
			m.spend(weight(last, m.left))
		}
	case operators.Index, mapKey:
		m.spend(weight(last, m.left))
	case loopRange: // CEL copies the keys of a map
		if all, is := last.(traits.Mapper); is {
			m.spend(sizeOf(all) / 2)
		}
	case operators.Add:
		if _, is := operands[0].(traits.MutableLister); is { // the result of a macro, which grows in place
			m.spend(sizeOf(last))
			return
		}
		for _, v := range operands {
			m.spend(sizeOf(v))
		}
	case overloads.Matches:
		pattern, ok := last.(types.String)
		if !ok {
			return
		}
		if op.pattern == 0 { // compiled by each call
			m.spend(patternCost * (readingSize(string(pattern)) + foldSize(string(pattern))))
			size := PatternSize(string(pattern))
			m.spend(patternCost*min(size, maxPattern) + matchCost(size, lengthOf(operands[0])))
			return
		}
		m.spend(matchCost(op.pattern, lengthOf(operands[0])))
	case overloads.TypeConvertInt, overloads.TypeConvertUint, overloads.TypeConvertDouble, overloads.TypeConvertTimestamp, overloads.TypeConvertDuration, overloads.TypeConvertBool:
		m.spend(lengthOf(last) / conversionCost)
	default: // such as size, which counts characters, contains, and conversions that copy
		for _, v := range operands {
			m.spend(lengthOf(v) / textCost)
		}
		if len(operands) > 1 && strings.HasPrefix(op.function, "get") {
			m.spend(zoneCost)
		}
	}
}

// lengthOf returns the number of bytes of a text, or 0 for any other value.
func lengthOf(v ref.Val) int {
	switch v := v.(type) {
	case types.String:
		return len(v)
	case types.Bytes:
		return len(v)
	}
	return 0
}

// sizeOf returns the cost of a copy of a value without the values in it.
func sizeOf(v ref.Val) int {
	if n := lengthOf(v); n > 0 {
		return n / textCost
	}
	if v, ok := v.(traits.Sizer); ok {
		if n, ok := v.Size().(types.Int); ok {
			return int(n)
		}
	}
	return 0
}

// lighter returns the weight of the lighter one of two values, or more than most. It reads no more of the heavier one
// than a small multiple of that.
func lighter(a, b ref.Val, most int) int {
	for limit := 16; ; limit *= 4 {
		limit = min(limit, most)
		if w := min(weight(a, limit), weight(b, limit)); w <= limit || limit == most {
			return w
		}
	}
}

// weight is the cost of reading the whole of a value. It stops, and returns more than most, when it exceeds most.
func weight(v ref.Val, most int) int {
	sum := 0
	switch v := v.(type) {
	case types.String, types.Bytes:
		sum = sizeOf(v)
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True && sum <= most; {
			sum += 1 + weight(it.Next(), most-sum)
		}
	case traits.Mapper:
		if sum = sizeOf(v); sum > most {
			break
		}
		for it := v.Iterator(); it.HasNext() == types.True && sum <= most; {
			key := it.Next()
			sum += weight(key, most-sum)
			if sum <= most {
				sum += 1 + weight(v.Get(key), most-sum)
			}
		}
	}
	return min(sum, math.MaxInt32)
}
