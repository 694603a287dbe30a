package gemini_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
)

// Recorded streams are read as they are, and corrupted in every way (I3, A4).
func TestReplay(t *testing.T) {
	t.Parallel()
	w := modeltest.Gemini()
	for _, rec := range modeltest.Recordings(t, w, "streams", "google") {
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			modeltest.Replay(t, w, func(_ *testing.T, url string) (model.Provider, model.Request) {
				return gemini.New(gemini.Config{}), model.Request{Model: "gemini-test-1", BaseURL: url, APIKey: modeltest.Key}
			}, rec)
		})
	}
}
