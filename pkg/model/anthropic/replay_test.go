package anthropic_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
)

// Recorded streams are read as they are, and corrupted in every way (I3, A4).
func TestReplay(t *testing.T) {
	t.Parallel()
	w := modeltest.Anthropic()
	for _, rec := range modeltest.Recordings(t, w, "streams", "anthropic") {
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			modeltest.Replay(t, w, func(_ *testing.T, url string) (model.Provider, model.Request) {
				return anthropic.New(anthropic.Config{}), model.Request{Model: "claude-test-1", BaseURL: url, APIKey: modeltest.Key}
			}, rec)
		})
	}
}
