package rule

import (
	"context"
	"fmt"
	"sync"
)

// Budget is a limit on the total cost of several expressions, such as those of one delivery or one turn. Several
// goroutines may use it at the same time; their expressions then run one after another.
type Budget struct {
	mu   sync.Mutex
	left int
}

// NewBudget returns the budget of what one delivery or one turn evaluates.
func NewBudget() *Budget { return &Budget{left: maxCost} }

// Evaluation is the values of the variables of expressions.
type Evaluation struct {
	values map[string]any
	budget *Budget
}

// NewEvaluation returns an evaluation with a budget of its own.
func NewEvaluation(values map[string]any) *Evaluation { return NewBudget().Evaluation(values) }

// Evaluation returns an evaluation whose expressions spend the budget. A nil budget allows none.
func (b *Budget) Evaluation(values map[string]any) *Evaluation {
	if b == nil {
		b = &Budget{}
	}
	return &Evaluation{values, b}
}

type budgetKey struct{}

// NewContext returns a context with a new budget, which [FromContext] returns.
func NewContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, budgetKey{}, NewBudget())
}

// FromContext returns the budget of a context, or a new one if it has none.
func FromContext(ctx context.Context) *Budget {
	if b, ok := ctx.Value(budgetKey{}).(*Budget); ok {
		return b
	}
	return NewBudget()
}

var errCost = fmt.Errorf("the expressions of this delivery or turn would cost too much, more than %d steps of evaluation together: let them read fewer or smaller values", maxCost)
