package turnpike_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/turnpike-dev/turnpike"
)

// choice decodes itself from more forms than its schema says.
type choice struct{ Name string }

func (c *choice) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &c.Name) == nil {
		return nil
	}
	return json.Unmarshal(data, &struct{ Name *string }{&c.Name})
}

type color string

// refusing returns a client whose server refuses each submission, after it has put the output schema into sent.
func refusing(t *testing.T, sent *string) *turnpike.Client {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body struct {
			Schema json.RawMessage `json:"output_schema"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			t.Error(err)
		}
		*sent = string(body.Schema)
		w.WriteHeader(http.StatusBadRequest)
	}))
	t.Cleanup(server.Close)
	c, err := turnpike.Dial(server.URL, turnpike.DialOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDoSendsASchemaOnlyIfItDescribesT(t *testing.T) {
	sent := ""
	c := refusing(t, &sent)
	s := turnpike.Submission{Agent: "clerk", Input: "x"}
	for name, test := range map[string]struct {
		do   func() error
		want bool
	}{
		"string":                  {func() error { _, err := turnpike.Do[string](t.Context(), c, s); return err }, false},
		"any":                     {func() error { _, err := turnpike.Do[any](t.Context(), c, s); return err }, false},
		"named string":            {func() error { _, err := turnpike.Do[color](t.Context(), c, s); return err }, false},
		"pointer to named string": {func() error { _, err := turnpike.Do[*color](t.Context(), c, s); return err }, false},
		"pointer to string":       {func() error { _, err := turnpike.Do[*string](t.Context(), c, s); return err }, true},
		"unmarshaler":             {func() error { _, err := turnpike.Do[choice](t.Context(), c, s); return err }, false},
		"pointer to unmarshaler":  {func() error { _, err := turnpike.Do[*choice](t.Context(), c, s); return err }, false},
		"struct":                  {func() error { _, err := turnpike.Do[struct{ Name string }](t.Context(), c, s); return err }, true},
		"pointer to struct":       {func() error { _, err := turnpike.Do[*struct{ Name string }](t.Context(), c, s); return err }, true},
	} {
		sent = "nothing"
		if err := test.do(); err == nil || sent == "nothing" {
			t.Errorf("%s: sent %s, %v", name, sent, err)
		}
		if (sent != "") != test.want {
			t.Errorf("%s: sent the schema %q, want one: %v", name, sent, test.want)
		}
	}
}

// A submission's own schema is sent as it is, also where Do would have sent that of T, or none.
func TestDoSendsTheSchemaOfTheSubmission(t *testing.T) {
	const own = `{"type":"object","required":["name","age"]}`
	sent := ""
	c := refusing(t, &sent)
	s := turnpike.Submission{Agent: "clerk", Input: "x", OutputSchema: json.RawMessage(own)}
	for name, do := range map[string]func() error{
		"struct": func() error { _, err := turnpike.Do[struct{ Name string }](t.Context(), c, s); return err },
		"string": func() error { _, err := turnpike.Do[string](t.Context(), c, s); return err },
		"any":    func() error { _, err := turnpike.Do[any](t.Context(), c, s); return err },
	} {
		sent = "nothing"
		if err := do(); err == nil || sent != own {
			t.Errorf("%s: sent the schema %s, %v; want %s", name, sent, err, own)
		}
	}
}
