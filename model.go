package turnpike

import (
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Scripted returns a provider that calls no model: the n-th call of a run gets the n-th of model.responses in the
// agent's definition. It needs no key, so it suits examples, demos and tests.
func Scripted() model.Provider { return scripted.New() }
