package scale

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/access"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// The maximum cost of an attack, in bytes and time.
const (
	gatewayGrows = 300 << 20
	workerGrows  = 600 << 20
	staysGrown   = 30 << 20
	quietLists   = 250 * time.Millisecond
)

// attack has one tenant, and callers without a key, take all memory that they can get of a
// gateway and of a worker, while another tenant reads lists.
func attack(ctx context.Context, s *scene) error {
	host, err := answering(ctx)
	if err != nil {
		return err
	}
	if err := s.deploy(ctx, rig.Config{Env: []string{"TURNPIKE_AUTH=keys", "TURNPIKE_HTTP_ALLOW=" + host}}); err != nil {
		return err
	}
	store, err := redisstore.Open(ctx, redisstore.Config{URL: "redis://" + s.Redis.Addr + "/0", Prefix: rig.Prefix})
	if err != nil {
		return err
	}
	defer store.Close()
	keys := access.NewKeys(store)
	evil, _, err := keys.Create(ctx, access.KeySpec{Tenant: "evil", Roles: access.Roles()})
	if err != nil {
		return err
	}
	quiet, _, err := keys.Create(ctx, access.KeySpec{Tenant: "quiet", Roles: access.Roles()})
	if err != nil {
		return err
	}
	hostile := api.New(s.URL, api.WithToken(evil))
	tool := fmt.Sprintf("{name: large, kind: http, url: 'http://%s/', idempotent: true, reuse: false, max_result: 4194304}", host)
	definition := fmt.Sprintf("model: {provider: scripted, responses: [{tool_calls: [%s]}, {text: done}]}\ntools: [%s]", strings.TrimSuffix(strings.Repeat("{name: large}, ", 32), ", "), tool)
	if _, err := hostile.PutAgent(ctx, "greedy", []byte(definition)); err != nil {
		return err
	}
	gateway, worker := s.Gateway.Resident(), s.Workers[0].Resident()
	reading, stop := context.WithCancel(ctx)
	took := make(chan []time.Duration, 1)
	go func() { took <- lists(reading, api.New(s.URL, api.WithToken(quiet))) }()

	flood := s.flood(ctx, evil)
	req := api.BatchRequest{}
	for range s.Greedy {
		req.Runs = append(req.Runs, api.SubmitRequest{Agent: "greedy", Input: json.RawMessage(`"go"`)})
	}
	var batch api.BatchAccepted
	err = rig.Until(ctx, patience, "the batch is taken", func(ctx context.Context) (err error) {
		batch, err = hostile.SubmitBatch(ctx, req, "attack") // 429 while the flood has the tenant's share
		return err
	})
	if err == nil {
		_, err = hostile.WaitBatch(ctx, batch.BatchID, nil)
	}
	flood()
	stop()
	if err != nil {
		return err
	}
	all := <-took
	s.figure("lists of another tenant: %s; want 250 ms at the 95th percentile", spread(all))
	slices.Sort(all)
	if len(all) == 0 || all[len(all)*95/100] > quietLists {
		s.fail("lists of another tenant are too slow, or none was read")
	}
	for _, of := range []struct {
		*rig.Process
		before, most int64
	}{{s.Gateway, gateway, gatewayGrows}, {s.Workers[0], worker, workerGrows}} {
		grown := of.Peak() - of.before
		s.figure("%s grows by %d MiB, from %d; want %d", of.Name, grown>>20, of.before>>20, of.most>>20)
		if grown > of.most || of.Exits() > 0 {
			s.fail("%s has grown by %d MiB and ended %d times", of.Name, grown>>20, of.Exits())
		}
	}
	if s.Afterwards == 0 {
		return nil
	}
	rig.Pause(ctx, s.Afterwards)
	for _, of := range []struct {
		*rig.Process
		before int64
	}{{s.Gateway, gateway}, {s.Workers[0], worker}} {
		more := of.Resident() - of.before
		s.figure("%s has %d MiB more than before, %s after the attack; want %d", of.Name, more>>20, s.Afterwards, staysGrown>>20)
		if more > staysGrown {
			s.fail("%s keeps %d MiB", of.Name, more>>20)
		}
	}
	return nil
}

// answering serves answers of 5 MiB.
func answering(ctx context.Context) (host string, err error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	body := strings.Repeat("x", 5<<20)
	server := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, body) })}
	go func() { _ = server.Serve(listener) }()
	context.AfterFunc(ctx, func() { _ = server.Close() })
	return listener.Addr().String(), nil
}

// lists reads lists until ctx ends, and returns what each took.
func lists(ctx context.Context, c *api.Client) (took []time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := c.List(ctx, url.Values{}); err == nil {
			took = append(took, time.Since(began))
		}
		rig.Pause(ctx, 20*time.Millisecond)
	}
	return took
}

// flood opens the connections of the attack, and keeps them until the function that it returns
// is called.
func (s *scene) flood(ctx context.Context, key string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	open := func(n int, head string, body int) {
		for range n {
			all.Go(func() { hold(ctx, strings.TrimPrefix(s.URL, "http://"), head, body) })
		}
	}
	signed := "Host: localhost\r\nAuthorization: Bearer " + key + "\r\n"
	open(s.Flood, "POST /v1/runs:batch HTTP/1.1\r\nContent-Length: 8388608\r\n"+signed+"\r\n", 8<<20-1)
	open(s.Flood, "POST /v1/runs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"+signed+"\r\n100000\r\n", 1<<20-1)
	open(2*s.Flood, "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n", 1<<20-1)
	open(10*s.Flood, "GET /v1/events HTTP/1.1\r\n"+signed+"\r\n", 0)
	open(5*s.Flood, "", 0)
	return func() {
		cancel()
		all.Wait()
	}
}

// hold sends a head and the start of a body, as far as the gateway takes it, and reads until the
// gateway closes the connection or ctx ends.
func hold(ctx context.Context, addr, head string, body int) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close() //nolint:errcheck // it was only flooded
	if _, err := io.WriteString(conn, head); err != nil {
		return
	}
	go func() { _, _ = io.Copy(conn, io.LimitReader(spaces{}, int64(body))) }() // ends with the connection
	_, _ = io.Copy(io.Discard, bufio.NewReaderSize(conn, 512))
}

// spaces is white space without an end.
type spaces struct{}

func (spaces) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
