package worker_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/tool/toolspec"
	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// A worker that was not given a kind of tool ends the runs that need it, and says what
// it lacks: no other order of its turns would mend that.
func TestUnknownKindOfTool(t *testing.T) {
	t.Parallel()
	s := newDeployment(t)
	s.work(s.config())
	page := agent.Tool{Name: "page", Kind: toolspec.HTTP, Own: tool.EncodeSettings(toolspec.Request{URL: "https://example.org/"})}
	id := s.submit(state.Limits{}, []agent.Tool{page}, model.Scripted{Text: "done"})
	st := s.awaitReason(id, state.EndInvalidAgent)
	if st.Error == nil || !strings.Contains(st.Error.Message, `does not know tools of kind "http": use one of agent, client, go, handoff, human`) {
		t.Errorf("error = %+v", st.Error)
	}
}
