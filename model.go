package turnpike

import (
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Scripted returns a provider that calls no model: it answers with model.responses of the agent's definition, the
// n-th call of a run with the n-th response. It needs no key, so it suits examples, demos and tests.
func Scripted() model.Provider { return scripted.New() }
