package statetest

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/turnpike-dev/turnpike/pkg/state"
)

// A run is found only by the key under which it was created.
func testLoadByKey(t *testing.T, s *suite) {
	run := newRun(t)
	missing := func(when, tenant, key string) {
		t.Helper()
		if st, err := s.LoadByKey(t.Context(), tenant, key, "f"); !errors.Is(err, state.ErrNotFound) {
			t.Errorf("%s LoadByKey = run %q, %v, want ErrNotFound", when, st.ID, err)
		}
	}
	missing("before the run is created,", run.Tenant, "key")
	if _, err := s.Create(t.Context(), state.NewRun{State: run, Key: "key", Fingerprint: "f", RedeliveryDelay: long}); err != nil {
		t.Fatal(err)
	}
	s.mustClaim(t, run.ID, 1)
	want, err := s.Load(t.Context(), run.ID)
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.LoadByKey(t.Context(), run.Tenant, "key", "f")
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("LoadByKey = error %v, or another run than Load; want the same run, Load (-) and LoadByKey (+):\n%s", err, diff)
	}
	if _, err := s.LoadByKey(t.Context(), run.Tenant, "key", "other"); !errors.Is(err, state.ErrIdempotencyConflict) {
		t.Errorf("LoadByKey with another fingerprint = %v, want ErrIdempotencyConflict", err)
	}
	missing("for another tenant,", "other", "key")
	missing("for another key,", run.Tenant, "ke")
	keyless := newRun(t)
	if _, err := s.Create(t.Context(), state.NewRun{State: keyless, Fingerprint: "f", RedeliveryDelay: long}); err != nil {
		t.Fatal(err)
	}
	missing("without a key,", run.Tenant, "")
}
