package openai_test

import (
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/modeltest"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
)

// I3, A4: streams as they come, and spoilt in every way.
func TestReplayChat(t *testing.T) {
	t.Parallel()
	w := modeltest.Chat()
	for _, rec := range modeltest.Recordings(t, w, "chat", "openai/chat") {
		t.Run(rec.Name, func(t *testing.T) {
			t.Parallel()
			modeltest.Replay(t, w, func(_ *testing.T, url string) (model.Provider, model.Request) {
				return openai.New(openai.Config{}), model.Request{Model: "gpt-test-1", BaseURL: url, APIKey: modeltest.Key}
			}, rec)
		})
	}
}
