package measure

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// The maximum memory cost of an attack, in bytes.
const (
	gatewayGrows = 300 << 20
	workerGrows  = 600 << 20
	staysGrown   = 30 << 20
)

// attack makes one tenant, and callers without a key, take as much memory as they can of a gateway and of a
// worker, while another tenant reads lists.
func attack(ctx context.Context, t *trial) error {
	greedy, afterwards := 10, 5*time.Minute
	if t.cfg.Short {
		greedy, afterwards = 3, 0
	}
	if err := t.deploy(ctx, rig.Config{Env: []string{"TURNPIKE_AUTH=keys", "TURNPIKE_MEMORY_MIB=1024"}}); err != nil {
		return err
	}
	large := fmt.Sprintf("{name: large, kind: http, url: '%slarge', idempotent: true, reuse: false, max_result: 4194304}", t.model.url)
	definition := fmt.Sprintf("model: {provider: scripted, responses: [{tool_calls: [%s]}, {text: done}]}\ntools: [%s]", strings.TrimSuffix(strings.Repeat("{name: large}, ", 32), ", "), large)
	hostile, key, err := t.tenant(ctx, "evil", "greedy", definition)
	if err != nil {
		return err
	}
	quiet, _, err := t.tenant(ctx, "quiet", "taken", answers)
	if err != nil {
		return err
	}
	processes := []struct {
		*rig.Process
		before, most int64
	}{{t.Gateway, t.Gateway.Resident(), gatewayGrows}, {t.Workers[0], t.Workers[0].Resident(), workerGrows}}
	reading, stop := context.WithCancel(ctx)
	defer stop()
	took := make(chan []time.Duration, 1)
	go func() { took <- readLists(reading, quiet) }()
	flood := t.flood(ctx, key)
	req := api.BatchRequest{Runs: slices.Repeat([]api.SubmitRequest{request("greedy")}, greedy)}
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
	t.times("a list of another tenant", <-took, 0.95, 250)
	for _, p := range processes {
		grown := p.Peak() - p.before
		t.figure(Figure{Name: p.Name + " grows by at most", Value: mib(grown), Unit: "MiB", Most: mib(p.most)})
		if grown > p.most || p.Exits() > 0 {
			t.fail("the process %s has grown by %d MiB (at most %d are allowed) and has ended %d times (0 are allowed): find the cause in its log", p.Name, grown>>20, p.most>>20, p.Exits())
		}
	}
	if afterwards == 0 {
		return nil
	}
	rig.Pause(ctx, afterwards)
	for _, p := range processes {
		more := p.Resident() - p.before
		t.figure(Figure{Name: fmt.Sprintf("%s holds more than before, %s after the attack", p.Name, afterwards), Value: mib(more), Unit: "MiB", Most: mib(staysGrown)})
		if more > staysGrown {
			t.fail("%s keeps %d MiB", p.Name, more>>20)
		}
	}
	return nil
}

// readLists reads lists until ctx ends, and returns the duration of each read.
func readLists(ctx context.Context, c *api.Client) (took []time.Duration) {
	for ctx.Err() == nil {
		began := time.Now()
		if _, err := c.List(ctx, url.Values{}); err == nil {
			took = append(took, time.Since(began))
		}
		rig.Pause(ctx, 20*time.Millisecond)
	}
	return took
}

// flood opens the connections of the attack, and keeps them until the returned function is called.
func (t *trial) flood(ctx context.Context, key string) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var all sync.WaitGroup
	spaces := bytes.Repeat([]byte(" "), 8<<20) // of all connections
	open := func(n int, head string, body int) {
		for range n {
			all.Go(func() { hold(ctx, strings.TrimPrefix(t.URL, "http://"), head, spaces[:body]) })
		}
	}
	signed := "Host: localhost\r\nAuthorization: Bearer " + key + "\r\n"
	open(t.n, "POST /v1/runs:batch HTTP/1.1\r\nContent-Length: 8388608\r\n"+signed+"\r\n", 8<<20-1)
	open(t.n, "POST /v1/runs HTTP/1.1\r\nTransfer-Encoding: chunked\r\n"+signed+"\r\n100000\r\n", 1<<20-1)
	open(2*t.n, "POST /v1/session HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n", 1<<20-1)
	open(10*t.n, "GET /v1/events HTTP/1.1\r\n"+signed+"\r\n", 0)
	open(5*t.n, "", 0)
	return func() {
		cancel()
		all.Wait()
	}
}

// hold sends a head and the start of a body, as far as the gateway accepts it, and reads until the gateway
// closes the connection or ctx ends.
func hold(ctx context.Context, addr, head string, body []byte) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	defer conn.Close() //nolint:errcheck // it was only flooded
	if _, err := io.WriteString(conn, head); err != nil {
		return
	}
	go func() { _, _ = conn.Write(body) }() // ends with the connection
	_, _ = io.Copy(io.Discard, bufio.NewReaderSize(conn, 512))
}
