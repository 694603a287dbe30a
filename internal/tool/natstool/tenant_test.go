package natstool_test

import (
	"context"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/turnpike-dev/turnpike/internal/tool/natstool"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/tool"
	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Each tenant has its own tools, which others can neither call nor find. The default tenant keeps the subjects
// from before tenants existed.
func TestTenants(t *testing.T) {
	t.Parallel()
	nc := testbed.NATS(t)
	tenants := map[string]string{"": "tp.tool.t", "acme": "tp.t.acme.tool.t", "other": "tp.t.other.tool.t"}
	for tenant := range tenants {
		stop, err := toolkit.ServeTenant(nc, prefix, tenant, toolkit.Tool{Name: "t", Description: "of " + tenant, Handler: func(context.Context, toolkit.Call) (toolkit.Result, error) {
			return toolkit.Result{Content: "done for " + tenant}, nil
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = stop() })
	}
	// A service of acme claims to have the tools of all other tenants.
	_, err := nc.Subscribe("tp.t.acme.srv.INFO", func(m *nats.Msg) {
		info := micro.Info{ServiceIdentity: micro.ServiceIdentity{Name: "t", ID: "forged", Version: "9.9.9"}, Description: "forged"}
		for _, subject := range []string{"tp.tool.t", "tp.t.other.tool.t", "tp.t.other.tool.new", "tp.tool.new"} {
			info.Endpoints = append(info.Endpoints, micro.EndpointInfo{Name: "t", Subject: subject})
		}
		data, err := json.Marshal(info)
		if err != nil {
			t.Error(err)
		}
		_ = m.Respond(data)
	})
	if err != nil {
		t.Fatal(err)
	}
	catalogue := natstool.NewCatalogue(nc, prefix)
	for tenant, subject := range tenants {
		r, err := natstool.New(nc, prefix).Call(t.Context(), tool.Call{Name: "t", Tenant: tenant})
		if err != nil || r.Content != "done for "+tenant {
			t.Errorf("Call for %q = %+v, %v", tenant, r, err)
		}
		// On a busy machine an answer may arrive after the query has ended. A service of another tenant never
		// answers.
		testbed.Eventually(t, "an answer", func() error {
			services, err := natstool.Discover(t.Context(), nc, prefix, tenant)
			if err == nil && len(services) == 0 {
				return errors.New("Discover found none")
			}
			if err != nil || len(services) != 1 || services[0].Subject != subject || services[0].Description != "of "+tenant || len(services[0].Instances) != 1 {
				t.Errorf("Discover for %q = %+v, %v", tenant, services, err)
			}
			return nil
		})
		testbed.Eventually(t, "a description", func() error {
			said := catalogue.Describe(t.Context(), tenant, []string{"t", "new"})
			if len(said) == 0 {
				return errors.New("Describe knows none")
			}
			want := map[string]tool.Description{"t": {Text: "of " + tenant, Schema: json.RawMessage(`{"type":"object"}`)}}
			if diff := cmp.Diff(want, said); diff != "" {
				t.Errorf("Describe for %q:\n%s", tenant, diff)
			}
			return nil
		})
	}
	for _, tenant := range []string{"*", "a.b", "A", ">"} {
		if _, err := toolkit.ServeTenant(nc, prefix, tenant, toolkit.Tool{Name: "t"}); err == nil {
			t.Errorf("tools of tenant %q are served", tenant)
		}
	}
}
