package agent_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/hook"
)

// points are all points of hooks, in the order in which mistakes are reported.
var points = []hook.Point{hook.Input, hook.Stop, hook.StopFailure, hook.PreTool, hook.PostSampling}

// Only a pre_tool hook must name its tools beside one that the model's provider runs, and each hook may take its maximum
// time.
func TestHooksThatAreAccepted(t *testing.T) {
	t.Parallel()
	for point, longest := range map[hook.Point]string{hook.Input: "1h", hook.Stop: "1h", hook.StopFailure: "1m", hook.PreTool: "1h, tools: [t]", hook.PostSampling: "1m"} {
		text := fmt.Sprintf("tools: [{name: t}, {name: web_search, kind: provider}]\nhooks: {%s: [{kind: go, name: f, timeout: %s}]}", point, longest)
		if _, err := parse(t, scripted+text); err != nil {
			t.Errorf("%s: %v", point, err)
		}
	}
}

// A tenant may have hooks on its own subjects only, at every point: otherwise the requests of a hook would go to another
// tenant, or Turnpike would take them for other messages.
func TestSubjectsOfTenants(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		tenant, subject, refused string
	}{
		{"acme", "tp.t.acme.hook.review", ""},
		{"acme", "tp.t.acme.hook", "does not begin with tp.t.acme.hook.: begin it so, as hooks of tenant acme must"},
		{"acme", "tp.t.acme2.hook.review", "does not begin with tp.t.acme.hook."},
		{"acme", "tp.t.other.hook.review", "does not begin with tp.t.acme.hook."},
		{"acme", "tp.t.acme.tool.review", "does not begin with tp.t.acme.hook."},
		{"acme", "tp.hook.review", "does not begin with tp.t.acme.hook."},
		{"acme", "reviews", "does not begin with tp.t.acme.hook."},
		{"default", "tp.hook.review", ""},
		{"default", "reviews", ""},
		{"default", "tpx.turn", ""},
		{"", "tp.hook.review", ""},
		{"default", "tp", "is reserved, since Turnpike uses the subjects below tp itself: begin it with tp.hook., or choose a subject elsewhere"},
		{"default", "tp.turn.run_1", "is reserved"},
		{"default", "tp.t.acme.hook.review", "is reserved"},
		{"", "tp.submit", "is reserved"},
	} {
		for _, p := range points {
			text := fmt.Sprintf("name: a\nmodel: {provider: scripted}\ntools: [{name: t, kind: nats}]\nhooks: {%s: [{kind: go, name: f}, {kind: nats, subject: %s}]}", p, c.subject)
			def, err := agent.Parse([]byte(text))
			if err != nil {
				t.Fatal(err)
			}
			a, err := agent.Builtin().Compile(def, 1)
			if err != nil {
				t.Fatal(err)
			}
			err = a.CheckTenant("tp", c.tenant)
			if c.refused == "" && err != nil {
				t.Errorf("tenant %q may not have %s hooks on %s: %v", c.tenant, p, c.subject, err)
			}
			if want := fmt.Sprintf("hooks.%s[1].subject: %q %s", p, c.subject, c.refused); c.refused != "" && (err == nil || !strings.HasPrefix(err.Error(), want)) {
				t.Errorf("tenant %q: the mistake is %v, want %s", c.tenant, err, want)
			}
		}
	}
}

// ofTenant are settings that only one tenant may use.
type ofTenant struct {
	Tenant string `json:"tenant"`
}

func (s *ofTenant) CheckTenant(_, tenant string) error {
	if tenant != s.Tenant {
		return errors.New("this hook is for tenant " + s.Tenant)
	}
	return nil
}

// The hooks of all points are checked, and each mistake has its place.
func TestHooksOfTenants(t *testing.T) {
	t.Parallel()
	known := agent.Builtin()
	known.Hooks["own"] = hook.SpecOf(func(_ hook.Point, s *ofTenant) (string, error) { return s.Tenant, nil })
	text := "name: a\nmodel: {provider: scripted}\ntools: [{name: t, kind: nats}]\nhooks:\n"
	var want []string
	for _, p := range points {
		text += fmt.Sprintf("  %s: [{kind: own, tenant: acme}, {kind: own, tenant: other}, {kind: nats, subject: reviews}, {kind: own, tenant: last}]\n", p)
		want = append(want,
			fmt.Sprintf("hooks.%s[1]: this hook is for tenant other", p),
			fmt.Sprintf("hooks.%s[2].subject: \"reviews\" does not begin with tp.t.acme.hook.: begin it so, as hooks of tenant acme must", p),
			fmt.Sprintf("hooks.%s[3]: this hook is for tenant last", p))
	}
	def, err := known.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a, err := known.Compile(def, 1)
	if err != nil {
		t.Fatal(err)
	}
	err = a.CheckTenant("tp", "acme")
	if err == nil {
		t.Fatal("the tenant may have the hooks")
	}
	if diff := cmp.Diff(want, strings.Split(err.Error(), "\n")); diff != "" {
		t.Errorf("the mistakes differ:\n%s", diff)
	}
}
