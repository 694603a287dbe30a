package openai_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
)

// Recorded streams are read as they are, and corrupted in every way (I3, A4).
func TestReplay(t *testing.T) {
	t.Parallel()
	for api, w := range map[model.API]modeltest.Wire{model.APIChat: modeltest.Chat(), model.APIResponses: modeltest.Responses()} {
		folders := []string{"openai/" + string(api)}
		if api == model.APIChat {
			folders = append(folders, "openai/completion") // the older completions format is read as well
		}
		for _, rec := range modeltest.Recordings(t, w, string(api), folders...) {
			t.Run(string(api)+"/"+rec.Name, func(t *testing.T) {
				t.Parallel()
				modeltest.Replay(t, w, func(_ *testing.T, url string) (model.Provider, model.Request) {
					return openai.New(openai.Config{}), model.Request{Model: "gpt-test-1", API: api, BaseURL: url, APIKey: modeltest.Key}
				}, rec)
			})
		}
	}
}
