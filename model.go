package turnpike

import (
	"github.com/turnpike-dev/turnpike/internal/model/scripted"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Scripted returns a provider that calls no model: the n-th call of a run, failed ones included, gets the n-th of
// model.responses in the agent's definition, counted from the first again after a fallback. A call after the last
// response fails. The provider needs no key, so it suits examples, demos and tests.
func Scripted() model.Provider { return scripted.New() }
