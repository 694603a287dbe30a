package app

import (
	"net/http"
	"net/http/httptest"
	"testing"
)

// A profile takes a minute at most.
func TestProfilesAreShort(t *testing.T) {
	t.Parallel()
	h := ofThisMachine(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for seconds, want := range map[string]int{"": 200, "0": 200, "0.5": 200, "60": 200, "60.1": 400, "61": 400, "-0.1": 400, "NaN": 400, "Inf": 400, "x": 400} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/profile?seconds="+seconds, nil)
		r.RemoteAddr = "127.0.0.1:5"
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("a profile of %q seconds = %d, want %d", seconds, w.Code, want)
		}
	}
}

// Remote clients of the listener may read metrics, but get no profiles.
func TestProfilesAreForThisMachine(t *testing.T) {
	t.Parallel()
	h := ofThisMachine(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	for from, want := range map[string]int{
		"127.0.0.1:5": 200, "127.1.2.3:5": 200, "[::1]:5": 200, "[::ffff:127.0.0.1]:5": 200,
		"10.0.0.1:5": 403, "[fe80::1%eth0]:5": 403, "[::ffff:10.0.0.1]:5": 403, "": 403, "localhost:5": 403,
	} {
		w := httptest.NewRecorder()
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/heap", nil)
		r.RemoteAddr = from
		if h.ServeHTTP(w, r); w.Code != want {
			t.Errorf("a profile for %q = %d, want %d", from, w.Code, want)
		}
	}
}
