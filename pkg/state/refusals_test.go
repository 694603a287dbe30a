package state_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// The error of a value names its mistake, not another one.
func TestRefusals(t *testing.T) {
	t.Parallel()
	var at state.Time
	var cost state.MicroUSD
	for text, c := range map[string]struct {
		err  error
		want string
	}{
		"no base64":      {state.Image{Data: "not base64", MediaType: "image/png"}.Check(), "not base64"},
		"no media type":  {state.Image{Data: "iVBORw0="}.Check(), "without media_type"},
		"no time":        {json.Unmarshal([]byte(`"tomorrow"`), &at), "not in the format of RFC 3339"},
		"a distant time": {json.Unmarshal([]byte(`"9999-12-31T23:59:59-01:00"`), &at), "not in the years 0 to 9999"},
		"a debt":         {json.Unmarshal([]byte("-1e30"), &cost), "out of range: write 0 to"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", text, c.err, c.want)
		}
	}
}
