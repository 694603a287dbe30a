package service

import (
	"context"
	"reflect"
	"slices"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// unasked is a store that must not be called.
type unasked struct{ state.Store }

// A request whose budget is used up does not reach the store through any method, except those that requests do
// not call and those with their own limit.
func TestBudgetOfEachMethod(t *testing.T) {
	t.Parallel()
	others := []string{
		"Claim", "Renew", "Record", "Commit", "Release", "Admit", "MarkFinalized", "FoldFigures", "Alive", "Pin", "Sweep", "Evict", "Heartbeat", "Take", "Correct", "Pause", "Paused", "SetFormat",
		"ClaimTimers", "AckTimer", "AppendAudit",
	}
	ctx := context.WithValue(t.Context(), budgetKey{}, &budget{})
	store := reflect.ValueOf(Budgeted(unasked{}))
	contract := reflect.TypeFor[state.Store]()
	for i := range contract.NumMethod() {
		m := contract.Method(i)
		if slices.Contains(others, m.Name) {
			continue
		}
		t.Run(m.Name, func(t *testing.T) {
			defer func() {
				if recover() != nil {
					t.Error("the store is called without a bound: budgetStore lacks the method")
				}
			}()
			args := []reflect.Value{reflect.ValueOf(ctx)}
			for n := 1; n < m.Type.NumIn(); n++ {
				args = append(args, reflect.Zero(m.Type.In(n)))
			}
			results := store.MethodByName(m.Name).Call(args)
			if err, _ := results[len(results)-1].Interface().(error); err == nil {
				t.Error("no error")
			}
		})
	}
	for _, name := range others {
		if _, ok := contract.MethodByName(name); !ok {
			t.Errorf("the store has no %s", name)
		}
	}
}
