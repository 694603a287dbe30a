package gateway_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The body of a GET can be changed and sent back with PUT. A name in it must match the path.
func TestPutOfWhatGetReturned(t *testing.T) {
	t.Parallel()
	s := newTriggered(t, 1)
	s.stream("ORDERS")
	s.tenant("acme", api.TenantStream{Name: "ORDERS"})
	admin, author := s.key("*", access.Admin), s.key("acme", access.Author)
	for path, c := range map[string]struct {
		token, settings, field string
		value                  any
	}{
		"/v1/tenants/acme":    {admin, `{"hosts": ["a.example"], "streams": [{"name": "ORDERS"}]}`, "four_eyes", true},
		"/v1/schedules/one":   {author, nightly, "paused", true},
		"/v1/hooks/one":       {author, `{"verify": "github", "secret": "secret://K", "run": {"agent": "a"}}`, "max_per_minute", 7.0},
		"/v1/triggers/orders": {author, `{"stream": "ORDERS", "subjects": ["orders.acme.>"], "run": {"agent": "a"}}`, "paused", true},
	} {
		t.Run(path, func(t *testing.T) {
			do := func(method, body string, want int) map[string]any {
				t.Helper()
				req, err := http.NewRequestWithContext(t.Context(), method, s.url+path, strings.NewReader(body))
				if err != nil {
					t.Fatal(err)
				}
				req.Header.Set("Authorization", "Bearer "+c.token)
				resp, err := http.DefaultClient.Do(req)
				if err != nil {
					t.Fatal(err)
				}
				defer resp.Body.Close()
				var v map[string]any
				if err := json.NewDecoder(resp.Body).Decode(&v); err != nil || resp.StatusCode != want {
					t.Fatalf("%s: %s %v, %v; want %d", method, resp.Status, v, err, want)
				}
				return v
			}
			made := http.StatusCreated
			if path == "/v1/tenants/acme" {
				made = http.StatusOK
			}
			do(http.MethodPut, c.settings, made)
			read := do(http.MethodGet, "", http.StatusOK)
			read[c.field] = c.value
			body, err := json.Marshal(read)
			if err != nil {
				t.Fatal(err)
			}
			if v := do(http.MethodPut, string(body), http.StatusOK); v[c.field] != c.value {
				t.Errorf("%s is %v, want %v", c.field, v[c.field], c.value)
			}
			name, _ := read["name"].(string)
			p := do(http.MethodPut, strings.Replace(string(body), `"name":"`+name+`"`, `"name":"elsewhere"`, 1), http.StatusBadRequest)
			if detail, _ := p["detail"].(string); !strings.Contains(detail, `"elsewhere"`) || !strings.Contains(detail, `"`+name+`"`) {
				t.Errorf("another name: %s, want both names", detail)
			}
		})
	}
}
