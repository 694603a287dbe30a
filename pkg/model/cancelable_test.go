package model_test

import (
	"context"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/model/anthropic"
	"github.com/turnpike-dev/turnpike/pkg/model/gemini"
	"github.com/turnpike-dev/turnpike/pkg/model/openai"
)

// deaf embeds a cancelable provider, but is not cancelable.
type deaf struct{ *scripted.Provider }

func (deaf) Generate(context.Context, model.Request, func(model.Delta)) (model.Response, error) {
	select {}
}

func TestCancelable(t *testing.T) {
	t.Parallel()
	for _, p := range []model.Provider{scripted.New(), anthropic.New(anthropic.Config{}), openai.New(openai.Config{}), gemini.New(gemini.Config{})} {
		if !model.IsCancelable(p) {
			t.Errorf("%T is not cancelable", p)
		}
	}
	for _, p := range []model.Provider{deaf{scripted.New()}, &deaf{scripted.New()}} {
		if model.IsCancelable(p) {
			t.Errorf("%T counts as cancelable because it embeds such a provider", p)
		}
	}
}
