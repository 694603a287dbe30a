package tool_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/tool"
)

// payments are the executed payments, by the idempotency keys of their calls.
type payments interface {
	// Receipt returns the receipt of a payment. If there is none, it refuses the key from now on, in the same
	// transaction.
	Receipt(ctx context.Context, key string) (receipt string, found bool, err error)
}

// payProbe is the probe of the tool pay.
func payProbe(p payments) tool.Tool {
	return tool.Func(func(ctx context.Context, c tool.Call) (tool.Result, error) {
		receipt, found, err := p.Receipt(ctx, c.IdempotencyKey)
		switch {
		case err != nil:
			return tool.Result{}, err // the worker retries
		case found:
			return tool.ProbeDone(tool.Result{Content: receipt}), nil
		default:
			return tool.ProbeNotDone(true), nil
		}
	})
}

type receipts map[string]string

func (r receipts) Receipt(_ context.Context, key string) (string, bool, error) {
	receipt, ok := r[key]
	return receipt, ok, nil
}

func TestProbeInGo(t *testing.T) {
	t.Parallel()
	probe := payProbe(receipts{"k1": "receipt 1"})
	for key, want := range map[string]tool.ProbeAnswer{
		"k1": {Outcome: tool.Done, Result: tool.Result{Content: "receipt 1"}}, "k2": {Outcome: tool.NotDone, Refused: true},
	} {
		r, err := probe.Call(t.Context(), tool.Call{IdempotencyKey: key})
		if err != nil {
			t.Fatal(err)
		}
		got, err := tool.ReadProbe(r)
		if diff := cmp.Diff(want, got); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", key, err, diff)
		}
	}
}

func TestReadProbe(t *testing.T) {
	t.Parallel()
	unknown := tool.ProbeAnswer{Outcome: tool.Unknown}
	image := []state.Image{{URL: "https://example.com/receipt.png"}}
	for _, test := range []struct {
		answer tool.Result
		want   tool.ProbeAnswer
		err    string
	}{
		{tool.ProbeUnknown(), unknown, ""},
		{tool.ProbeNotDone(false), tool.ProbeAnswer{Outcome: tool.NotDone}, ""},
		{tool.ProbeDone(tool.Error("declined")), tool.ProbeAnswer{Outcome: tool.Done, Result: tool.Error("declined")}, ""},
		{tool.ProbeDone(tool.Result{Images: image}), tool.ProbeAnswer{Outcome: tool.Done, Result: tool.Result{Images: image}}, ""},
		{tool.Result{Content: ` {"outcome": "done", "result": {"id": 12345678901234567890}, "more": 1} `}, tool.ProbeAnswer{Outcome: tool.Done, Result: tool.Result{Content: `{"id":12345678901234567890}`}}, ""},
		{tool.Result{Content: `{"outcome":"done"}`}, unknown, "done without a result"},
		{tool.Result{Content: `{"outcome":"Done","result":""}`}, unknown, `outcome is "Done": answer done, not_done or unknown`},
		{tool.Result{Content: `{"outcome":"not_done","refused":"yes"}`}, unknown, "is not JSON such as"},
		{tool.Result{Content: `[]`}, unknown, "is not JSON such as"},
		{tool.Result{}, unknown, "is not JSON such as"},
		{tool.Error(strings.Repeat("x", 1000)), unknown, "the probe failed: xxx"},
		{tool.Result{Pending: true}, unknown, "deferred its answer"},
		{tool.Result{Ask: &tool.Ask{}}, unknown, "asked a person"},
	} {
		got, err := tool.ReadProbe(test.answer)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("ReadProbe(%+v):\n%s", test.answer, diff)
		}
		if (err != nil) != (test.err != "") || err != nil && (!strings.Contains(err.Error(), test.err) || len(err.Error()) > 300) {
			t.Errorf("ReadProbe(%.80v): %v, want %q", test.answer, err, test.err)
		}
	}
}

// A probe keeps settings that only its kind knows.
func TestProbeStoredForm(t *testing.T) {
	t.Parallel()
	const text = `{"name":"pay","probe":{"name":"ask","kind":"http","url":"https://example.com/"}}`
	var d tool.Definition
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	if got := d.Probe.Definition(d.Name); got.Name != "ask" || got.Kind != "http" || string(got.Own) != `{"url":"https://example.com/"}` {
		t.Errorf("Definition = %+v", got)
	}
	if b, err := json.Marshal(d); err != nil || string(b) != text {
		t.Errorf("Marshal = %s, %v", b, err)
	}
	if got := (tool.Probe{}).Definition("pay"); got.Name != "pay_probe" || got.Kind != tool.DefaultKind {
		t.Errorf("Definition = %+v", got)
	}
}
