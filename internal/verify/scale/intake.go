package scale

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// quietIntake is the time in which a quiet tenant's submission over NATS must become a run.
const quietIntake = time.Second

// intake makes one tenant queue many bytes of submissions on NATS, and measures the time in which
// those of another become runs. Then as many tenants as Tenants submit once each.
func intake(ctx context.Context, s *scene) error {
	if err := s.deploy(ctx, rig.Config{Workers: 2, Env: []string{"TURNPIKE_AUTH=keys"}}); err != nil {
		return err
	}
	js, err := jetstream.New(s.Conn)
	if err != nil {
		return err
	}
	store, err := redisstore.Open(ctx, redisstore.Config{URL: "redis://" + s.Redis.Addr + "/0", Prefix: rig.Prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	keys := access.NewKeys(store)
	of := func(tenant string) (*api.Client, error) {
		key, _, err := keys.Create(ctx, access.KeySpec{Tenant: tenant, Roles: access.Roles()})
		if err != nil {
			return nil, err
		}
		c := api.New(s.URL, api.WithToken(key))
		_, err = c.PutAgent(ctx, "taken", []byte("model: {provider: scripted, responses: [{text: done}]}"))
		return c, err
	}
	if _, err := of("loud"); err != nil {
		return err
	}
	quiet, err := of("quiet")
	if err != nil {
		return err
	}
	// One submission first, so that the streams are there.
	for _, tenant := range []string{"loud", "quiet"} {
		if err := rig.Until(ctx, patience, tenant+"'s stream", func(ctx context.Context) error {
			_, err := js.Publish(ctx, rig.Prefix+".t."+tenant+".submit.taken", []byte(`{"input":"first"}`))
			return err
		}); err != nil {
			return err
		}
	}
	const size = 64 << 10
	body := []byte(fmt.Sprintf(`{"input":"%s"}`, strings.Repeat("x", size)))
	var sent int
	for ; sent*size < s.Queue; sent++ {
		if _, err := js.PublishAsync(rig.Prefix+".t.loud.submit.taken", body); err != nil {
			return err
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-ctx.Done():
		return ctx.Err()
	}
	var took []time.Duration
	slow := 0
	for i := range 20 {
		key := fmt.Sprintf("quiet-%d", i)
		began := time.Now()
		if _, err := js.Publish(ctx, rig.Prefix+".t.quiet.submit.taken", fmt.Appendf(nil, `{"input":"x","metadata":{"key":%q}}`, key)); err != nil {
			return err
		}
		if err := rig.Until(ctx, patience, "the submission is a run", func(ctx context.Context) error {
			page, err := quiet.List(ctx, url.Values{"metadata.key": {key}})
			if err == nil && len(page.Items) == 0 {
				err = errors.New("not yet")
			}
			return err
		}); err != nil {
			return err
		}
		if d := time.Since(began); d > quietIntake {
			slow++
		}
		took = append(took, time.Since(began))
	}
	left, err := pending(ctx, js, "loud")
	if err != nil {
		return err
	}
	s.figure("beside %d MB of another tenant's submissions on NATS, of which %d of %d were left at the end, a submission is a run after %s; want 1 s", s.Queue>>20, left, sent, spread(took))
	if slow > 0 {
		s.fail("%d of %d submissions of the quiet tenant took more than %s", slow, len(took), quietIntake)
	}
	return s.manyTenants(ctx, js, of)
}

// pending returns the number of submissions of a tenant that wait on NATS.
func pending(ctx context.Context, js jetstream.JetStream, tenant string) (uint64, error) {
	name, err := js.StreamNameBySubject(ctx, rig.Prefix+".t."+tenant+".submit.taken")
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, name)
	if err != nil {
		return 0, err
	}
	return stream.CachedInfo().State.Msgs, nil
}

// manyTenants has each of many tenants submit once over NATS, and waits for all their runs.
func (s *scene) manyTenants(ctx context.Context, js jetstream.JetStream, of func(tenant string) (*api.Client, error)) error {
	clients := make([]*api.Client, s.Tenants)
	before := s.Gateway.Resident()
	for i := range clients {
		var err error
		if clients[i], err = of(fmt.Sprintf("tenant%d", i)); err != nil {
			return err
		}
	}
	began := time.Now()
	for i := range clients {
		subject := fmt.Sprintf("%s.t.tenant%d.submit.taken", rig.Prefix, i)
		if err := rig.Until(ctx, patience, "the stream of a tenant", func(ctx context.Context) error {
			_, err := js.Publish(ctx, subject, []byte(`{"input":"x"}`))
			return err
		}); err != nil {
			return err
		}
	}
	published := time.Since(began)
	for i, c := range clients {
		if err := rig.Until(ctx, patience, fmt.Sprintf("the run of tenant %d", i), func(ctx context.Context) error {
			page, err := c.List(ctx, nil)
			if err == nil && (len(page.Items) == 0 || !page.Items[0].Terminal()) {
				err = errors.New("it has none that has ended")
			}
			return err
		}); err != nil {
			return err
		}
	}
	s.figure("each of %d tenants submits once over NATS in %.1f s, and the last run has ended after %.1f s; the gateway grows by %d MB", s.Tenants, published.Seconds(), time.Since(began).Seconds(), (s.Gateway.Resident()-before)>>20)
	return nil
}
