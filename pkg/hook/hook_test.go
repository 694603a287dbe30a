package hook_test

import (
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/hook"
)

var points = []hook.Point{hook.Input, hook.PreTool, hook.PostSampling, hook.Stop, hook.StopFailure}

// Each field of an answer is for one point. At any other the answer is refused: the worker would otherwise ignore an
// objection.
func TestFieldsHavePoints(t *testing.T) {
	t.Parallel()
	for answer, at := range map[string]hook.Point{
		`{"refuse":"no"}`:          hook.Input,
		`{"replace":"x"}`:          hook.Input,
		`{"deny":"no"}`:            hook.PreTool,
		`{"approval":true}`:        hook.PreTool,
		`{"arguments":{"a":1}}`:    hook.PreTool,
		`{"block":"go on"}`:        hook.Stop,
		`{"prevent":"no"}`:         hook.Stop,
		`{"notes":["look again"]}`: hook.PostSampling,
	} {
		for _, p := range points {
			_, err := hook.Decode([]byte(answer), p)
			if (err == nil) != (p == at) || err != nil && !strings.Contains(err.Error(), "only for the point "+string(at)) {
				t.Errorf("Decode(%s) at %s = %v, want it allowed at %s only", answer, p, err, at)
			}
		}
	}
}

// An answer is one JSON document without unknown fields. Without fields, or with null in their place, it is no
// objection at any point.
func TestDecode(t *testing.T) {
	t.Parallel()
	for _, p := range points {
		for _, answer := range []string{`{}`, ` { } `, `{"arguments":null}`, `{"deny":null,"refuse":null,"block":null,"notes":null,"approval":false}`} {
			a, err := hook.Decode([]byte(answer), p)
			if err != nil || a.Arguments != nil || a.Deny != nil || a.Approval {
				t.Errorf("Decode(%s) at %s = %+v, %v; want no objection", answer, p, a, err)
			}
		}
	}
	for _, answer := range []string{
		``, `no`, `[]`, `{"denied":"no"}`, `{"failed":"x"}`, `{"failures":1}`, `{}{}`, `{}}`, `{} x`, `{"arguments":[1]}`, `{"arguments":"x"}`, `{"arguments":1}`,
	} {
		if a, err := hook.Decode([]byte(answer), hook.PreTool); err == nil {
			t.Errorf("Decode(%s) = %+v, want an error", answer, a)
		}
	}
}
