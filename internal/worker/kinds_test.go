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

// A worker without a required kind of tool fails the run with an error that names the kind: a retry would not
// help.
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
