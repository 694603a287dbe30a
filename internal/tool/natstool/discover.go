package natstool

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/pkg/toolkit"
)

// Service is a tool and the processes that serve it.
type Service struct {
	Name        string          `json:"name"` // the name of the tool
	Subject     string          `json:"subject"`
	Description string          `json:"description,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"` // JSON Schema of the arguments; nil if the service gives none
	Instances   []Instance      `json:"instances"`        // those with the newest version first
}

// Versions returns the versions of the instances, each once, the newest first.
func (s Service) Versions() []string {
	var versions []string
	for _, i := range s.Instances {
		if !slices.Contains(versions, i.Version) {
			versions = append(versions, i.Version)
		}
	}
	return versions
}

// Instance is one process that serves a tool.
type Instance struct {
	ID        string    `json:"id"`
	Version   string    `json:"version"`
	Started   time.Time `json:"started,omitzero"`
	Requests  int       `json:"requests"`
	Errors    int       `json:"errors"`
	LastError string    `json:"last_error,omitempty"`
	AverageMS float64   `json:"average_ms"` // average duration of a call in milliseconds
}

// Discover returns the NATS micro services that serve tools of a tenant of the deployment with this prefix; an empty
// tenant is the default one. It queries services of other tenants below the tenant's root, so that no other client can
// pretend to serve them, and those of the default tenant with $SRV, to which any client with that permission can
// answer. The result is sorted by name; description and schema are those of the newest version. Discover does not find
// a service without the discovery protocol, although such a service can be called. It takes half a second, or more if
// many services answer.
func Discover(ctx context.Context, nc *nats.Conn, prefix, tenant string) ([]Service, error) {
	root := toolkit.Root(prefix, tenant)
	var infos []micro.Info
	var stats []micro.Stats
	group, groupCtx := errgroup.WithContext(ctx)
	group.Go(func() (err error) {
		infos, err = toolkit.AskServices[micro.Info](groupCtx, nc, prefix, tenant, micro.InfoVerb)
		return err
	})
	group.Go(func() (err error) {
		stats, err = toolkit.AskServices[micro.Stats](groupCtx, nc, prefix, tenant, micro.StatsVerb)
		return err
	})
	if err := group.Wait(); err != nil {
		return nil, err
	}
	byID := map[string]micro.Stats{}
	for _, s := range stats {
		byID[s.ID] = s
	}
	// The newest version comes first, so its description is used.
	slices.SortFunc(infos, func(a, b micro.Info) int {
		return cmp.Or(compareVersions(b.Version, a.Version), cmp.Compare(a.ID, b.ID))
	})
	var services []Service
	for _, info := range infos {
		for _, e := range info.Endpoints {
			name, ours := strings.CutPrefix(e.Subject, toolkit.Subject(root, ""))
			if !ours || name == "" || strings.ContainsAny(name, ".*>") {
				continue
			}
			i := slices.IndexFunc(services, func(s Service) bool { return s.Name == name })
			if i < 0 {
				i = len(services)
				services = append(services, described(name, info, e))
			}
			services[i].Instances = append(services[i].Instances, instance(info, e, byID[info.ID]))
		}
	}
	slices.SortFunc(services, func(a, b Service) int { return cmp.Compare(a.Name, b.Name) })
	return services, nil
}

// described returns the service of an endpoint. The endpoint's description takes precedence over
// the service's.
func described(name string, info micro.Info, e micro.EndpointInfo) Service {
	s := Service{Name: name, Subject: e.Subject}
	s.Description = cmp.Or(e.Metadata[toolkit.MetaDescription], info.Metadata[toolkit.MetaDescription], info.Description)
	schema := cmp.Or(e.Metadata[toolkit.MetaSchema], info.Metadata[toolkit.MetaSchema])
	if strings.HasPrefix(strings.TrimSpace(schema), "{") && json.Valid([]byte(schema)) {
		s.Schema = json.RawMessage(schema)
	}
	return s
}

func instance(info micro.Info, e micro.EndpointInfo, stats micro.Stats) Instance {
	i := Instance{ID: info.ID, Version: info.Version, Started: stats.Started}
	for _, s := range stats.Endpoints {
		if s != nil && s.Subject == e.Subject {
			i.Requests, i.Errors, i.LastError = s.NumRequests, s.NumErrors, s.LastError
			i.AverageMS = float64(s.AverageProcessingTime.Microseconds()) / 1000
		}
	}
	return i
}

// compareVersions compares semantic versions by their numbers.
func compareVersions(a, b string) int {
	var x, y [3]int
	_, _ = fmt.Sscanf(a, "%d.%d.%d", &x[0], &x[1], &x[2])
	_, _ = fmt.Sscanf(b, "%d.%d.%d", &y[0], &y[1], &y[2])
	return slices.Compare(x[:], y[:])
}
