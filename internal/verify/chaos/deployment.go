package chaos

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/rig"
	"github.com/turnpike-dev/turnpike/pkg/api"
	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// shape is the size of the deployment that a phase of a campaign breaks.
type shape struct {
	name  string
	nats  int // number of servers
	redis int // number of servers: 0 means checkpoints in JetStream; a second one is a replica that takes over

	// kind prepares a Redis of another kind instead, without proxies, and settings are those of gateways and
	// workers for it.
	kind     func(dir string) (*rig.Redis, error)
	settings []string
}

func shapes() []shape {
	return []shape{
		{name: "cluster", nats: 3, redis: 2}, {name: "single", nats: 1, redis: 1}, {name: "failover", nats: 1, redis: 2},
		{name: "jetstream", nats: 1}, {name: "jetstream-cluster", nats: 3},
		{name: "long-lease", nats: 1, redis: 1, settings: []string{"TURNPIKE_LEASE=" + longLease.String()}},
	}
}

// redisKinds are deployments on relatives of a single Redis. Sentinels fail over at their own discretion, and
// that may lose nothing: writes wait for the replica.
func redisKinds() []shape {
	return []shape{
		{name: "redis-cluster", nats: 1, kind: rig.NewRedisCluster},
		{name: "redis-sentinel", nats: 1, kind: rig.NewSentinels, settings: []string{"TURNPIKE_REDIS_CONFIRM=replicas:1"}},
		{name: "valkey", nats: 1, kind: rig.NewValkey, settings: []string{"TURNPIKE_REDIS_CONFIRM=aof"}},
	}
}

const (
	prefix = "chaos"
	// lease is short, so that the pauses of a campaign exceed it.
	lease = 3 * time.Second

	// longLease is the default: heartbeats must detect deaths that otherwise the end of a lease detects.
	longLease = 25 * time.Second

	// natsStorage is small, so that it can be filled.
	natsStorage = 256 << 20
)

// deployment is a running deployment. Each process of Turnpike has its own proxies.
type deployment struct {
	shape
	dir string

	nats     []*rig.NATSServer
	redis    []*rig.RedisServer // the first is the primary, unless there is a kind
	kind     *rig.Redis
	replica  *rig.Proxy // the proxy through which the second follows it
	doors    []door
	workers  []*node
	receiver *receiver // of webhooks
	tools    *node     // it has no process: this one serves the remote tool and the MCP server

	conn  *nats.Conn
	js    jetstream.JetStream
	group *errgroup.Group
}

// door is a gateway and its clients.
type door struct {
	*node
	url    string
	client *api.Client
}

// node is a process of Turnpike behind its proxies.
type node struct {
	rig.Process
	toNATS, toRedis *rig.Proxy // toRedis is nil without a Redis that a proxy can hide
	toMCP           *rig.Proxy // of the tools, through which workers reach the MCP server; else nil
}

func (n *node) proxies() []*rig.Proxy {
	return slices.DeleteFunc([]*rig.Proxy{n.toNATS, n.toRedis, n.toMCP}, func(p *rig.Proxy) bool { return p == nil })
}

// ready is the time in which a deployment must come up.
const ready = time.Minute

// deploy starts a deployment, which ends with ctx; then wait. It returns the deployment even
// when a part of it has failed.
func deploy(ctx context.Context, d shape, bin, dir string, workers int, modelURL string) (*deployment, error) {
	s := &deployment{shape: d, dir: dir, group: &errgroup.Group{}}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return s, err
	}
	if err := s.startServers(ctx, bin); err != nil {
		return s, err
	}
	var err error
	if s.receiver, err = startReceiver(ctx); err != nil {
		return s, err
	}
	for i := range 2 {
		port, err := devserver.FreePort()
		if err != nil {
			return s, err
		}
		addr := fmt.Sprintf("127.0.0.1:%d", port)
		n, err := s.node(ctx, fmt.Sprintf("gateway%d", i+1), filepath.Join(bin, "gateway"), "TURNPIKE_ADDR="+addr)
		if err != nil {
			return s, err
		}
		s.doors = append(s.doors, door{n, "http://" + addr, api.New("http://" + addr)})
		if err := rig.Until(ctx, ready, n.Name+" is ready", s.doors[i].client.Ready); err != nil {
			return s, err
		}
	}
	if err := s.serveTools(ctx); err != nil {
		return s, err
	}
	for i := range workers {
		name := fmt.Sprintf("w%d", i+1)
		w, err := s.node(ctx, name, filepath.Join(bin, "worker"), "TURNPIKE_WORKER_ID="+name, "TURNPIKE_SLOTS=200",
			"TURNPIKE_CHAOS_LEDGER="+s.ledger(), "TURNPIKE_SECRET_"+modelKey+"=any", "TURNPIKE_SECRET_"+eventsSecret+"="+eventsKey,
			"TURNPIKE_MODEL_ALLOW=127.0.0.0/8", "TURNPIKE_HTTP_ALLOW=127.0.0.0/8")
		if err != nil {
			return s, err
		}
		s.workers = append(s.workers, w)
	}
	for _, k := range kinds() {
		if err := rig.Until(ctx, ready, "the agents are defined", func(ctx context.Context) error {
			_, err := s.doors[0].client.PutAgent(ctx, k.name, k.definition(modelURL, "http://"+s.tools.toMCP.Addr()))
			return err
		}); err != nil {
			return s, err
		}
	}
	if err := s.startNotes(ctx); err != nil {
		return s, err
	}
	if err := s.startEvents(ctx); err != nil {
		return s, err
	}
	return s, s.pinTools(ctx)
}

// pinTools makes a worker pin the tools of the MCP server. Before that, a run fails if the server does not
// answer.
func (s *deployment) pinTools(ctx context.Context) error {
	c := s.doors[0].client
	return rig.Until(ctx, ready, "the tools of the MCP server are pinned", func(ctx context.Context) error {
		run, err := c.Submit(ctx, api.SubmitRequest{Agent: "served", Input: json.RawMessage(`"go"`)}, "")
		if err == nil {
			run, err = c.Wait(ctx, run.ID)
		}
		if err == nil && run.Status != string(state.Completed) {
			err = fmt.Errorf("run %s is %s: %s", run.ID, run.Status, run.Transition.Detail)
		}
		return err
	})
}

// serveTools answers the calls of the remote tool and those of the MCP server until ctx ends, behind
// proxies as any process.
func (s *deployment) serveTools(ctx context.Context) error {
	var err error
	if s.tools, err = s.node(ctx, "tools", ""); err != nil {
		return err
	}
	ledger, err := OpenLedger(s.ledger())
	if err != nil {
		return err
	}
	nc, err := natsbus.Connect("nats://"+s.tools.toNATS.Addr(), "tools")
	if err != nil {
		return err
	}
	if _, err := serveRemote(nc, prefix, "tools-1", ledger); err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: mcpServer("tools-1", ledger), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(l) }() // ends with ctx
	if s.tools.toMCP, err = rig.NewProxy(l.Addr().String()); err != nil {
		return err
	}
	s.group.Go(func() error { s.tools.toMCP.Run(ctx); return nil })
	context.AfterFunc(ctx, func() {
		_ = server.Close()
		nc.Close()
		_ = ledger.Close()
	})
	return nil
}

func (s *deployment) ledger() string { return filepath.Join(s.dir, "ledger.jsonl") }

func (s *deployment) startServers(ctx context.Context, bin string) (err error) {
	if s.nats, err = rig.NewNATS(bin, s.dir, s.shape.nats, natsStorage); err != nil {
		return err
	}
	for _, n := range s.nats {
		s.group.Go(func() error { return n.Run(ctx, s.dir) })
	}
	if s.conn, err = rig.ConnectNATS(s.nats); err != nil {
		return err
	}
	if s.js, err = jetstream.New(s.conn); err != nil {
		return err
	}
	if err := rig.Until(ctx, ready, "JetStream answers", func(ctx context.Context) error {
		_, err := s.js.AccountInfo(ctx)
		return err
	}); err != nil {
		return err
	}
	if s.shape.kind != nil {
		if s.kind, err = s.shape.kind(s.dir); err != nil {
			return err
		}
		s.redis = s.kind.Servers
		return s.kind.Run(ctx, s.group, s.dir)
	}
	for i := range s.shape.redis {
		r, err := rig.NewRedis(s.dir, fmt.Sprintf("redis%d", i+1))
		if err != nil {
			return err
		}
		s.redis = append(s.redis, r)
		s.group.Go(func() error { return r.Run(ctx, s.dir) })
		if err := rig.Until(ctx, ready, "Redis answers", func(ctx context.Context) error { return r.Client.Ping(ctx).Err() }); err != nil {
			return err
		}
	}
	if !s.fails() {
		return nil
	}
	if s.replica, err = rig.NewProxy(s.redis[0].Addr); err != nil {
		return err
	}
	s.group.Go(func() error { s.replica.Run(ctx); return nil })
	return s.follow(ctx)
}

// lease returns the workers' lease duration.
func (s shape) lease() time.Duration {
	if s.name == "long-lease" {
		return longLease
	}
	return lease
}

// drain is the time in which messages must leave the streams after the runs have ended: NATS
// redelivers a message of a dead worker after a lease and five seconds.
func (s shape) drain() time.Duration { return deliveries * (s.lease() + 5*time.Second) }

// fails reports whether there is a Redis to fail over to.
func (s *deployment) fails() bool { return s.kind == nil && len(s.redis) > 1 }

// node starts a process of Turnpike behind proxies of its own. Without a path it is
// the proxies only.
func (s *deployment) node(ctx context.Context, name, path string, env ...string) (*node, error) {
	n := &node{}
	targets := make([]string, len(s.nats))
	for i, server := range s.nats {
		targets[i] = server.Addr
	}
	var err error
	if n.toNATS, err = rig.NewProxy(targets...); err != nil {
		return nil, err
	}
	env = append(env, "TURNPIKE_NATS_URL=nats://"+n.toNATS.Addr(), "TURNPIKE_PREFIX="+prefix, "TURNPIKE_LEASE="+lease.String(),
		fmt.Sprintf("TURNPIKE_NATS_REPLICAS=%d", len(s.nats)), "TURNPIKE_LOG_LEVEL=debug", "TURNPIKE_EVENT_FEED=on", "TURNPIKE_TURN_STREAMS=2", "TURNPIKE_REDIS_URL=")
	env = append(env, s.shape.settings...)
	if s.kind != nil {
		env = append(env, "TURNPIKE_REDIS_URL="+s.kind.URL)
	} else if len(s.redis) > 0 {
		if n.toRedis, err = rig.NewProxy(s.redis[0].Addr); err != nil {
			return nil, err
		}
		env = append(env, "TURNPIKE_REDIS_URL=redis://"+n.toRedis.Addr()+"/0")
	}
	for _, p := range n.proxies() {
		s.group.Go(func() error { p.Run(ctx); return nil })
	}
	n.Process = rig.Process{Name: name, Path: path, Env: env}
	if path != "" {
		s.group.Go(func() error { return n.Run(ctx, s.dir) })
	}
	return n, nil
}

// processes returns the gateways and the workers.
func (s *deployment) processes() []*node {
	all := slices.Clone(s.workers)
	for _, d := range s.doors {
		all = append(all, d.node)
	}
	return all
}

// nodes returns everything that has proxies.
func (s *deployment) nodes() []*node { return append(s.processes(), s.tools) }

// describe describes the processes, for the report.
func (s *deployment) describe() string {
	store := "checkpoints in JetStream"
	if n := len(s.redis); n > 0 {
		store = fmt.Sprintf("%d Redis, appendfsync always", n)
	}
	if s.kind != nil {
		store += " (" + strings.Join(append([]string{s.shape.name}, s.shape.settings...), " ") + ")"
	}
	return fmt.Sprintf("%d NATS, %s, %d gateways, %d workers", s.shape.nats, store, len(s.doors), len(s.workers))
}

// wait returns when all processes have ended.
func (s *deployment) wait() error {
	err := s.group.Wait()
	if s.conn != nil {
		s.conn.Close()
	}
	for _, r := range s.redis {
		_ = r.Client.Close()
	}
	return err
}
