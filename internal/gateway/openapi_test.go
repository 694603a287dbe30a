package gateway_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// A list refuses an unknown parameter by name, and accepts those in the document.
func TestParametersOfLists(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"hello","input":"x"}`)
	_, _, doc := s.call("GET", "/openapi.json", "")
	fill := strings.NewReplacer("{id}", run["id"].(string), "{name}", "hello")
	lists := 0
	for path, methods := range doc["paths"].(map[string]any) {
		get, _ := methods.(map[string]any)["get"].(map[string]any)
		parameters, _ := get["parameters"].([]any)
		var names []string
		for _, p := range parameters {
			if p := p.(map[string]any); p["in"] == "query" {
				names = append(names, p["name"].(string))
			}
		}
		if !slices.Contains(names, "cursor") {
			continue
		}
		lists++
		path = fill.Replace(path)
		for _, name := range append(names, "colour") {
			_, _, p := s.call("GET", path+"?"+name+"=", "", "Accept", "application/json")
			detail, _ := p["detail"].(string)
			if refused := strings.Contains(detail, `unknown parameter "`+name+`"`); refused != (name == "colour") {
				t.Errorf("GET %s?%s=: %v", path, name, p)
			}
		}
	}
	if lists < 15 {
		t.Errorf("the document has %d lists with a cursor", lists)
	}
}

// Responses have all fields that the document names. Every test also checks that they have no others, see
// traffic_test.go.
func TestAnswersAgreeWithOpenAPI(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	_, _, doc := s.call("GET", "/openapi.json", "")
	schemas := doc["components"].(map[string]any)["schemas"].(map[string]any)
	at := func(v any, path ...string) map[string]any {
		for _, p := range path {
			v = v.(map[string]any)[p]
		}
		return v.(map[string]any)
	}
	agree := func(what string, got, schema any, rare ...string) {
		t.Helper()
		want := slices.Sorted(maps.Keys(at(schema, "properties")))
		want = slices.DeleteFunc(want, func(name string) bool { return slices.Contains(rare, name) })
		if diff := cmp.Diff(want, slices.Sorted(maps.Keys(got.(map[string]any)))); diff != "" {
			t.Errorf("%s: documented (-) and returned (+):\n%s", what, diff)
		}
	}
	_, _, run := s.call("POST", "/v1/runs?wait=2m", `{"agent":"gated","input":"x"}`)
	schema := at(schemas, "Run")
	agree("run", run, schema)
	for _, f := range []string{"transition", "waiting", "budget"} {
		agree(f, run[f], at(schema, "properties", f))
	}
	agree("usage", run["usage"], schemas["Usage"], "estimated", "cache_write_1h_tokens", "cache_expired_cost_usd", "web_searches", "web_fetches", "code_executions")
	calls := at(schema, "properties", "waiting", "properties", "calls", "items")
	agree("call", run["waiting"].(map[string]any)["calls"].([]any)[0], calls)
	path := "/v1/runs/" + run["id"].(string)
	for name, sub := range map[string]string{"Message": "/messages", "Turn": "/turns"} {
		_, _, page := s.call("GET", path+sub, "")
		for _, item := range page["items"].([]any) {
			agree(name, item, schemas[name])
		}
	}
	_, _, accepted := s.call("POST", "/v1/runs:batch", `{"runs":[{"agent":"gated","input":"x"}]}`)
	agree("accepted batch", accepted, schemas["BatchAccepted"])
	_, _, batch := s.call("GET", "/v1/batches/"+accepted["batch_id"].(string), "")
	agree("batch", batch, schemas["Batch"])
	_, _, batches := s.call("GET", "/v1/batches", "")
	agree("batch in a list", batches["items"].([]any)[0], schemas["BatchSummary"])
	agree("run of a batch", batch["items"].([]any)[0], at(schemas, "Batch", "properties", "items", "items"))
	_, _, ready := s.call("GET", "/readyz", "")
	agree("readyz", ready, schemas["Readiness"])
	_, _, p := s.call("GET", "/v1/runs/42", "")
	agree("problem", p, schemas["Problem"], "errors")
	_, _, a := s.call("GET", "/v1/agents/gated", "")
	agree("agent", a, schemas["Agent"])
	_, _, versions := s.call("GET", "/v1/agents/gated/versions", "")
	agree("version of an agent", versions["items"].([]any)[0], schemas["AgentVersion"])
	eventually(t, "a worker's heartbeat arrives", func() bool {
		_, _, workers := s.call("GET", "/v1/workers", "")
		items := workers["items"].([]any)
		if len(items) > 0 {
			agree("worker", items[0], schemas["Worker"])
		}
		return len(items) > 0
	})
	_, _, queues := s.call("GET", "/v1/queues", "")
	agree("queue", queues["items"].([]any)[0], schemas["Queue"])
	_, _, cancelled := s.call("POST", "/v1/runs:cancel", `{"filter":{"agent":"gated"},"dry_run":true}`)
	agree("cancelled runs", cancelled, schemas["CanceledRuns"])
}
