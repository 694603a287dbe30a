package natstool_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Discover finds the services of this deployment, written with any library, and nothing else.
func TestDiscover(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	got, err := natstool.Discover(t.Context(), nc, prefix, "")
	if err != nil || len(got) != 0 {
		t.Fatalf("Discover = %+v, %v, want none", got, err)
	}
	fails := func(context.Context, toolkit.Call) (toolkit.Result, error) { return toolkit.Result{}, errors.New("no") }
	serve(t, nc,
		toolkit.Tool{Name: "b", Version: "1.9.0", Description: "old", Handler: fails},
		toolkit.Tool{Name: "b", Version: "1.10.0", Description: "new", Schema: json.RawMessage(`{"type":"object","title":"b"}`), Handler: fails},
	)
	// One service of the NATS library, with two tools and something else.
	respond := micro.HandlerFunc(func(r micro.Request) { _ = r.Respond([]byte(`{"content":1}`)) })
	service, err := micro.AddService(nc, micro.Config{Name: "kit", Version: "2.0.0", Description: "a kit"})
	if err != nil {
		t.Fatal(err)
	}
	defer service.Stop() //nolint:errcheck // the connection is about to close
	for name, metadata := range map[string]map[string]string{
		"tp.tool.a": {"description": "endpoint", "schema": "not json"}, "tp.tool.c": nil, "other.tool.d": nil, "tp.tool.e.f": nil, "tp.tools": nil,
	} {
		if err := service.AddEndpoint("x", respond, micro.WithEndpointSubject(name), micro.WithEndpointMetadata(metadata)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{Name: "b"})
	wantError(t, r, err, "no")

	want := []natstool.Service{
		{Name: "a", Subject: "tp.tool.a", Description: "endpoint", Instances: []natstool.Instance{{Version: "2.0.0"}}},
		{Name: "b", Subject: "tp.tool.b", Description: "new", Schema: json.RawMessage(`{"type":"object","title":"b"}`), Instances: []natstool.Instance{{Version: "1.10.0"}, {Version: "1.9.0"}}},
		{Name: "c", Subject: "tp.tool.c", Description: "a kit", Instances: []natstool.Instance{{Version: "2.0.0"}}},
	}
	// A service counts a request after it has answered, and on a busy machine an answer may arrive later than
	// Discover waits.
	testbed.Eventually(t, "all services, and one request", func() error {
		if got, err = natstool.Discover(t.Context(), nc, prefix, ""); err != nil {
			t.Fatal(err)
		}
		requests := 0
		for _, s := range got {
			for _, i := range s.Instances {
				requests += i.Requests
			}
		}
		if requests != 1 {
			return fmt.Errorf("%d requests are counted", requests)
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(natstool.Instance{}, "ID", "Started", "Requests", "Errors", "LastError", "AverageMS")); diff != "" {
			return fmt.Errorf("Discover:\n%s", diff)
		}
		return nil
	})
	for _, s := range got {
		for _, i := range s.Instances {
			if i.ID == "" || i.Started.IsZero() {
				t.Errorf("instance of %s = %+v", s.Name, i)
			}
		}
	}
}
