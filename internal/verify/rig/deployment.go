package rig

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/pkg/api"
)

// Config of a Deployment. The zero value of each field but the directories gives its
// default.
type Config struct {
	Bin string // where Build has put nats-server, gateway and worker
	Dir string // of data and logs

	// Self, instead of Bin, is a program and its arguments that is nats-server, gateway or worker if
	// that name is the next argument.
	Self []string

	JetStream bool     // checkpoints are in JetStream, and there is no Redis
	Workers   int      // default 1; negative: none
	Env       []string // of gateway and workers
	Storage   int64    // bytes that NATS stores at most; default 16 GiB

	// FromNATS is the latency between NATS and gateway or workers.
	FromNATS time.Duration
	// FromRedis is the latency between Redis and these.
	FromRedis time.Duration

	// Direct disables the proxies between the servers and the processes.
	Direct bool
	// Redis are further options of redis-server; without any, it syncs every write.
	Redis []string
}

// program returns the path and the arguments of a program of the deployment.
func (c Config) program(name string) (path string, args []string) {
	if len(c.Self) > 0 {
		return c.Self[0], append(slices.Clone(c.Self[1:]), name)
	}
	return filepath.Join(c.Bin, name), nil
}

// Prefix is that of a deployment's subjects and keys.
const Prefix = "rig"

// Deployment is a small deployment: NATS, Redis, a gateway and workers, which reach the servers through two
// proxies. A process that ends is restarted.
type Deployment struct {
	NATS            *NATSServer
	Redis           *RedisServer // nil: checkpoints are in JetStream
	ToNATS, ToRedis *Proxy       // nil without proxies

	Gateway *Process
	Workers []*Process
	URL     string
	Client  *api.Client
	Conn    *nats.Conn // past the proxies

	cfg   Config
	env   []string // of workers
	group errgroup.Group
}

// ready is the time in which a part of a deployment must come up.
const ready = time.Minute

// Deploy starts a deployment and returns when it is ready. It ends with ctx; then Wait.
// The deployment is returned even when a part of it has failed.
func Deploy(ctx context.Context, cfg Config) (*Deployment, error) {
	s := &Deployment{cfg: cfg}
	if cfg.Storage == 0 {
		cfg.Storage = 16 << 30
	}
	if err := os.MkdirAll(cfg.Dir, 0o700); err != nil {
		return s, err
	}
	if err := s.serve(ctx, cfg); err != nil {
		return s, err
	}
	port, err := devserver.FreePort()
	if err != nil {
		return s, err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	env := append([]string{
		"TURNPIKE_NATS_URL=nats://" + address(s.ToNATS, s.NATS.Addr), "TURNPIKE_REDIS_URL=", "TURNPIKE_PREFIX=" + Prefix, "TURNPIKE_LOG_LEVEL=info", "TURNPIKE_ADDR=" + addr,
	}, cfg.Env...)
	if s.Redis != nil {
		env = append(env, "TURNPIKE_REDIS_URL=redis://"+address(s.ToRedis, s.Redis.Addr)+"/0")
	}
	// One program with many concurrent requests needs as many connections. A gateway allows one client 2,000.
	s.URL, s.Client = "http://"+addr, api.NewWithHTTP("http://"+addr, &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 256, MaxConnsPerHost: 1000}})
	s.env = env
	s.Gateway = s.Start(ctx, "gateway", "gateway")
	if err := Until(ctx, ready, "the gateway is ready", s.Client.Ready); err != nil {
		return s, err
	}
	if cfg.Workers == 0 {
		cfg.Workers = 1
	}
	return s, s.StartWorkers(ctx, cfg.Workers)
}

// StartGateway starts another gateway, with extra variables, and returns its URL when it is ready.
func (s *Deployment) StartGateway(ctx context.Context, name string, env ...string) (url string, err error) {
	port, err := devserver.FreePort()
	if err != nil {
		return "", err
	}
	addr := fmt.Sprintf("127.0.0.1:%d", port)
	s.Start(ctx, name, "gateway", append([]string{"TURNPIKE_ADDR=" + addr}, env...)...)
	url = "http://" + addr
	return url, Until(ctx, ready, name+" is ready", api.New(url).Ready)
}

// StartWorkers starts n more workers, with extra variables, and returns when they send heartbeats.
func (s *Deployment) StartWorkers(ctx context.Context, n int, env ...string) error {
	// A worker sends heartbeats as soon as it takes turns. Gateways send some as well.
	heartbeats, err := s.Conn.SubscribeSync(Prefix + ".presence.*")
	if err != nil {
		return err
	}
	defer func() { _ = heartbeats.Unsubscribe() }()
	silent := map[string]bool{}
	for range n {
		name := fmt.Sprintf("worker%d", len(s.Workers)+1)
		silent[Prefix+".presence."+name] = true
		s.Workers = append(s.Workers, s.Start(ctx, name, "worker", append([]string{"TURNPIKE_WORKER_ID=" + name}, env...)...))
	}
	return Until(ctx, ready, "all workers send heartbeats", func(ctx context.Context) error {
		for len(silent) > 0 {
			m, err := heartbeats.NextMsgWithContext(ctx)
			if err != nil {
				return err
			}
			delete(silent, m.Subject)
		}
		return nil
	})
}

// Start starts a program of the deployment, such as another gateway, as a process of that name, with extra
// variables. It does not wait for it.
func (s *Deployment) Start(ctx context.Context, name, program string, env ...string) *Process {
	p := &Process{Name: name, Env: slices.Concat(s.env, env)}
	p.Path, p.Args = s.cfg.program(program)
	s.keep(ctx, p)
	return p
}

// keep keeps a process running.
func (s *Deployment) keep(ctx context.Context, p *Process) {
	s.group.Go(func() error { return p.Run(ctx, s.cfg.Dir) })
}

// serve starts the servers and the proxies.
func (s *Deployment) serve(ctx context.Context, cfg Config) error {
	servers, err := NewNATS(cfg.Bin, cfg.Dir, 1, cfg.Storage)
	if err != nil {
		return err
	}
	s.NATS = servers[0]
	path, args := cfg.program("nats-server")
	s.NATS.Path, s.NATS.Args = path, append(args, s.NATS.Args...)
	s.keep(ctx, &s.NATS.Process)
	if s.Conn, err = ConnectNATS(servers); err != nil {
		return err
	}
	if err := Until(ctx, ready, "NATS answers", func(ctx context.Context) error { return s.Conn.FlushWithContext(ctx) }); err != nil {
		return err
	}
	if !cfg.Direct {
		if s.ToNATS, err = s.proxy(ctx, s.NATS.Addr, cfg.FromNATS); err != nil {
			return err
		}
	}
	if cfg.JetStream {
		return nil
	}
	if s.Redis, err = NewRedis(cfg.Dir, "redis"); err != nil {
		return err
	}
	s.Redis.Args = append(s.Redis.Args, cfg.Redis...)
	s.keep(ctx, &s.Redis.Process)
	if err := Until(ctx, ready, "Redis answers", func(ctx context.Context) error { return s.Redis.Client.Ping(ctx).Err() }); err != nil {
		return err
	}
	if !cfg.Direct {
		s.ToRedis, err = s.proxy(ctx, s.Redis.Addr, cfg.FromRedis)
	}
	return err
}

func (s *Deployment) proxy(ctx context.Context, target string, latency time.Duration) (*Proxy, error) {
	p, err := NewProxy(target)
	if err != nil {
		return nil, err
	}
	p.Latency = latency
	s.group.Go(func() error { p.Run(ctx); return nil })
	return p, nil
}

// address returns the address of a proxy, or of the server if p is nil.
func address(p *Proxy, server string) string {
	if p == nil {
		return server
	}
	return p.Addr()
}

// Processes are the gateway and the workers.
func (s *Deployment) Processes() []*Process { return append([]*Process{s.Gateway}, s.Workers...) }

// Wait returns when all processes have ended, which they do with the context of Deploy.
func (s *Deployment) Wait() error {
	err := s.group.Wait()
	if s.Conn != nil {
		s.Conn.Close()
	}
	if s.Redis != nil {
		_ = s.Redis.Client.Close()
	}
	return err
}
