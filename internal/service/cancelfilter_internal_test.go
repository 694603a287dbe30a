package service

import (
	"reflect"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// Each field of a request to cancel many runs narrows the filter: one that is ignored would cancel other runs too.
func TestCancelFilterUsesEachField(t *testing.T) {
	t.Parallel()
	id := string(state.RunPrefix) + "01J8ZQ4X7N2V5T6W9Y0A1B2C3D"
	values := map[string]any{
		"Status": api.Statuses{"waiting"}, "WaitingReason": "waiting_approval", "Agent": "a", "Loop": "react", "Parent": id, "Batch": "batch_" + id[len(state.RunPrefix):],
		"Metadata": map[string]string{"k": "v"}, "CreatedAfter": "2026-01-01T00:00:00Z", "CreatedBefore": "2026-01-02T00:00:00Z",
	}
	filter := func(f api.RunFilter) state.Filter {
		t.Helper()
		got, err := cancelFilter(api.CancelRunsRequest{Filter: &f})
		if err != nil {
			t.Fatalf("%+v: %v", f, err)
		}
		return got
	}
	all := filter(api.RunFilter{Status: api.Statuses{"queued", "running", "waiting"}})
	fields := reflect.TypeFor[api.RunFilter]()
	for i := range fields.NumField() {
		name := fields.Field(i).Name
		value, ok := values[name]
		if !ok {
			t.Errorf("the test has no value for the field %s", name)
			continue
		}
		var f api.RunFilter
		reflect.ValueOf(&f).Elem().Field(i).Set(reflect.ValueOf(value))
		one := filter(f)
		if reflect.DeepEqual(one, all) {
			t.Errorf("%s = %v selects all runs", name, value)
		}
		f.Agent = "other"
		if name != "Agent" && reflect.DeepEqual(filter(f), filter(api.RunFilter{Agent: "other"})) {
			t.Errorf("%s = %v has no effect beside another field", name, value)
		}
	}
}

// A cursor selects no runs: a request with only a cursor would otherwise cancel all runs from there on.
func TestCancelFilterIsEmptyBesideACursor(t *testing.T) {
	t.Parallel()
	req := api.CancelRunsRequest{Filter: &api.RunFilter{}, Cursor: string(state.RunPrefix) + "01J8ZQ4X7N2V5T6W9Y0A1B2C3D"}
	if f, err := cancelFilter(req); err == nil || !strings.Contains(err.Error(), "filter is empty") {
		t.Errorf("a request with only a cursor has the filter %+v, %v; want a refusal of the empty filter", f, err)
	}
	req.Filter.Agent = "a"
	if f, err := cancelFilter(req); err != nil || f.Cursor != req.Cursor {
		t.Errorf("with an agent too, the filter is %+v, %v; want one from the cursor on", f, err)
	}
}
