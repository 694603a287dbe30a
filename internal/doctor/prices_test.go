package doctor

import (
	"strings"
	"testing"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/model"
)

// Doctor reports the age of the built-in prices, and warns when they are half a year old.
func TestPrices(t *testing.T) {
	t.Parallel()
	for days, ok := range map[int]bool{3: true, 179: true, 181: false} {
		f := prices(model.PricesDate.Add(time.Duration(days) * 24 * time.Hour))
		if f.OK != ok || f.Fatal || f.Broken || (f.Remedy == "") != ok || !strings.Contains(f.Detail, model.PricesSource) {
			t.Errorf("after %d days: %+v", days, f)
		}
	}
}
