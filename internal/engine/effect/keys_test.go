package effect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/internal/engine/definition"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/loop"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// elsewhere is a provider at p.example.
type elsewhere struct{ answering }

func (elsewhere) Spec() model.Spec { return model.Spec{Host: "p.example:443"} }

// A model without a key gets the worker's key, but only for its provider's own address: a definition with
// another address must name its key.
func TestDefaultKeys(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, key := range map[string]string{"USUAL_KEY": "usual\n", "OTHER_KEY": "other"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(key), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	providers := map[string]model.Provider{"p": elsewhere{}, "q": answering(nil)}
	agents := definition.New(nil, definition.Config{
		Secrets: definition.Secrets{Dir: dir}, Providers: providers, Patience: time.Second,
		Keys: map[string]string{"p": "secret://USUAL_KEY", "q": "secret://MISSING_KEY"},
	})
	ms := models{shared: &shared{agents: agents}, cfg: Models{Providers: providers}}
	for _, test := range []struct {
		model agent.Model
		want  string
	}{
		{agent.Model{Provider: "p"}, "usual"},
		{agent.Model{Provider: "p", APIKey: "secret://OTHER_KEY"}, "other"},
		{agent.Model{Provider: "p", BaseURL: "https://elsewhere.example"}, ""},
		{agent.Model{Provider: "p", BaseURL: "https://elsewhere.example", APIKey: "secret://USUAL_KEY"}, "usual"},
		{agent.Model{Provider: "q", BaseURL: "https://elsewhere.example"}, ""},
	} {
		provider, req, err := ms.request(t.Context(), "default", &test.model, &loop.CallModel{})
		if err != nil || req.APIKey != test.want {
			t.Errorf("%+v: key %q, %v; want %q", test.model, req.APIKey, err, test.want)
		}
		if _, hidden := provider.(redacting); hidden != (test.want != "") {
			t.Errorf("%+v: the key is redacted: %v", test.model, hidden)
		}
	}
	for _, m := range []agent.Model{{Provider: "p", APIKey: "secret://MISSING_KEY"}, {Provider: "q"}} {
		_, _, err := ms.request(t.Context(), "default", &m, &loop.CallModel{})
		if e := asModelError(err); err == nil || e.Class != model.Auth || !strings.Contains(e.Message, "MISSING_KEY") {
			t.Errorf("%+v: %v, want an error of class auth that names the key", m, err)
		}
	}
}
