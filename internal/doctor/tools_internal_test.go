package doctor

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// Doctor looks for the services of tools and of probes over NATS, whatever the kind of the probed tool is, and names
// the agents of the tenant that need each. It does so also for agents that it does not check otherwise.
func TestDoctorLooksForServices(t *testing.T) {
	t.Parallel()
	store := memstore.New(memstore.Config{})
	for _, a := range []struct{ tenant, name, tools string }{
		{"acme", "one", `{"name":"pay","kind":"nats","probe":{"kind":"nats"}},{"name":"send","kind":"http","url":"https://a.example","probe":{"name":"sent","kind":"nats"}}`},
		{"acme", "two", `{"name":"pay","kind":"nats","probe":{"kind":"http","url":"https://a.example"}},{"name":"look"}`},
		{"other", "three", `{"name":"theirs","kind":"nats"}`},
	} {
		definition := `{"name":"` + a.name + `","model":{"provider":"scripted"},"tools":[` + a.tools + `]}`
		if _, err := store.PutAgent(t.Context(), a.tenant, a.name, []byte(definition), false); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for _, f := range tenantFindings(t.Context(), testbed.NATS(t), "services", nil, "acme", store, 0) {
		if _, users, _ := strings.Cut(f.Detail, "agents with this tool: "); f.OK || f.Fatal || !strings.HasPrefix(f.Remedy, "start its service") {
			t.Errorf("%+v", f)
		} else {
			got = append(got, f.Name+": "+users)
		}
	}
	want := []string{"tool: pay of tenant acme: one, two", "tool: pay_probe of tenant acme: one", "tool: sent of tenant acme: one"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("missing services:\n%s", diff)
	}
}
