package gateway_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The expressions of a hook share a limit of cost.
func TestDeliveryCost(t *testing.T) {
	t.Parallel()
	s := newHooked(t)
	var metadata []string
	for i := range 20 {
		metadata = append(metadata, fmt.Sprintf(`"k%d": "event.list.all(x, x != %d) ? 'a' : 'b'"`, i, -i-1))
	}
	made := s.hook("acme", "costly", `{"verify": "github", "secret": "secret://HOOK", "run": {"agent": "a", "input": "'x'", "metadata": {`+strings.Join(metadata, ", ")+`}}}`)
	body := func(n int) string { return `{"list": [` + strings.Repeat("1,", n-1) + `1]}` }
	status, _, p := s.github(made.Path, "a secret", "d-1", body(15_000))
	if status != http.StatusUnprocessableEntity || p.Code != api.CodeInvalidDelivery || !strings.Contains(p.Detail, "too much") {
		t.Errorf("20 expressions over a list of 15,000 values: %d %s %s", status, p.Code, p.Detail)
	}
	if status, _, p := s.github(made.Path, "a secret", "d-2", body(500)); status != http.StatusAccepted {
		t.Errorf("20 expressions over a list of 500 values: %d %s", status, p.Detail)
	}
}
