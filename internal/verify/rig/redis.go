package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"golang.org/x/sync/errgroup"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// The passwords of a Redis with authentication. They contain characters that are special in a URL.
const (
	redisPassword    = "data:word/1?"
	sentinelPassword = "watch&word+2%"
)

// masterName is the Sentinels' name of their primary.
const masterName = "turnpike"

// Redis is several servers that a client finds by one URL.
type Redis struct {
	URL     string
	Servers []*RedisServer

	sentinels []*Process
	join      func(ctx context.Context) error
}

// Run keeps all servers running until ctx ends; the group has the processes.
func (r *Redis) Run(ctx context.Context, group *errgroup.Group, dir string) error {
	start := func(p *Process) { group.Go(func() error { return p.Run(ctx, dir) }) }
	for _, s := range r.Servers {
		start(&s.Process)
	}
	for _, s := range r.Servers {
		if err := Until(ctx, ready, s.Name+" answers", func(ctx context.Context) error { return s.Client.Ping(ctx).Err() }); err != nil {
			return err
		}
	}
	for _, p := range r.sentinels {
		start(p)
	}
	return r.join(ctx)
}

// Close closes the clients of the servers.
func (r *Redis) Close() {
	for _, s := range r.Servers {
		_ = s.Client.Close()
	}
}

// NewRedisCluster prepares a cluster of three masters that require a password.
func NewRedisCluster(dir string) (*Redis, error) {
	const masters, slots = 3, 16384
	r := &Redis{}
	var hosts []string
	for i := range masters {
		port, err := devserver.FreePort()
		if err != nil {
			return nil, err
		}
		s, err := newRedis(dir, fmt.Sprintf("redis%d", i+1), "redis-server", redisPassword, "--cluster-enabled", "yes", "--cluster-port", fmt.Sprint(port),
			"--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no")
		if err != nil {
			return nil, err
		}
		r.Servers, hosts = append(r.Servers, s), append(hosts, s.Addr)
	}
	r.URL = fmt.Sprintf("redis://:%s@%s", url.QueryEscape(redisPassword), strings.Join(hosts, ","))
	r.join = func(ctx context.Context) error {
		for i, s := range r.Servers {
			host, port, err := net.SplitHostPort(r.Servers[0].Addr)
			if err != nil {
				return err
			}
			info, err := r.Servers[0].Client.ConfigGet(ctx, "cluster-port").Result()
			if err != nil {
				return err
			}
			if err := errors.Join(
				s.Client.Do(ctx, "cluster", "set-config-epoch", i+1).Err(),
				s.Client.ClusterAddSlotsRange(ctx, i*slots/masters, (i+1)*slots/masters-1).Err(),
				s.Client.Do(ctx, "cluster", "meet", host, port, info["cluster-port"]).Err(),
			); err != nil {
				return fmt.Errorf("join %s to the cluster: %w", s.Name, err)
			}
		}
		for _, s := range r.Servers {
			if err := Until(ctx, ready, s.Name+" knows the cluster", func(ctx context.Context) error {
				info, err := s.Client.ClusterInfo(ctx).Result()
				if err == nil && (!strings.Contains(info, "cluster_state:ok") || !strings.Contains(info, fmt.Sprintf("cluster_slots_ok:%d\r", slots)) || !strings.Contains(info, fmt.Sprintf("cluster_known_nodes:%d\r", masters))) {
					err = errors.New(info)
				}
				return err
			}); err != nil {
				return err
			}
		}
		return nil
	}
	return r, nil
}

// NewSentinels prepares a primary and a replica with three Sentinels. All require a password.
func NewSentinels(dir string) (*Redis, error) {
	r := &Redis{}
	for i := range 2 {
		// Sentinels make each server persist, in its file, the primary that it replicates.
		name := fmt.Sprintf("redis%d", i+1)
		conf := filepath.Join(dir, name+".conf")
		s, err := newRedis(dir, name, "redis-server", redisPassword, "--masterauth", redisPassword)
		if err != nil {
			return nil, err
		}
		text := ""
		if i > 0 {
			text = "replicaof " + strings.Replace(r.Servers[0].Addr, ":", " ", 1) + "\n"
		}
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return nil, err
		}
		s.Args = append(s.Args[:3:3], append([]string{conf}, s.Args[3:]...)...)
		r.Servers = append(r.Servers, s)
	}
	path, err := exec.LookPath("redis-server")
	if err != nil {
		return nil, err
	}
	var hosts []string
	for i := range 3 {
		port, err := devserver.FreePort()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("sentinel%d", i+1)
		conf := filepath.Join(dir, name+".conf")
		text := fmt.Sprintf("port %d\nbind 127.0.0.1\ndir %s\nrequirepass %[3]q\nsentinel sentinel-pass %[3]q\nsentinel monitor %[4]s %[5]s 2\nsentinel auth-pass %[4]s %[6]q\n"+
			"sentinel down-after-milliseconds %[4]s 1000\nsentinel failover-timeout %[4]s 3000\n",
			port, dir, sentinelPassword, masterName, strings.Replace(r.Servers[0].Addr, ":", " ", 1), redisPassword)
		if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
			return nil, err
		}
		r.sentinels = append(r.sentinels, &Process{Name: name, Path: path, Args: []string{conf, "--sentinel"}})
		hosts = append(hosts, fmt.Sprintf("127.0.0.1:%d", port))
	}
	r.URL = fmt.Sprintf("redis://:%s@%s/0?master_name=%s&sentinel_password=%s",
		url.QueryEscape(redisPassword), strings.Join(hosts, ","), masterName, url.QueryEscape(sentinelPassword))
	r.join = func(ctx context.Context) error {
		if err := r.replicated(ctx); err != nil {
			return err
		}
		for _, addr := range hosts {
			if err := watched(ctx, addr, len(hosts)-1); err != nil {
				return err
			}
		}
		return nil
	}
	return r, nil
}

// watched waits until a Sentinel has found the replica and that many other Sentinels: if it loses the primary
// earlier, it never promotes another.
func watched(ctx context.Context, addr string, others int) error {
	c := redis.NewSentinelClient(&redis.Options{Addr: addr, Password: sentinelPassword})
	defer c.Close()
	return Until(ctx, ready, "the Sentinels know each other", func(ctx context.Context) error {
		known, err := c.Master(ctx, masterName).Result()
		if err == nil && (known["num-other-sentinels"] != strconv.Itoa(others) || known["num-slaves"] != "1") {
			err = fmt.Errorf("%s knows %s others and %s replicas", addr, known["num-other-sentinels"], known["num-slaves"])
		}
		return err
	})
}

// replicated waits until the replica follows the primary.
func (r *Redis) replicated(ctx context.Context) error {
	return Until(ctx, ready, "the replica is in step", func(ctx context.Context) error {
		info, err := r.Servers[0].Client.InfoMap(ctx, "replication").Result()
		if err == nil && !strings.Contains(info["Replication"]["slave0"], "state=online") {
			err = errors.New("it is not there yet")
		}
		return err
	})
}

// NewValkey prepares a Valkey.
func NewValkey(dir string) (*Redis, error) {
	s, err := newRedis(dir, "valkey", "valkey-server", redisPassword)
	if err != nil {
		return nil, err
	}
	return &Redis{
		URL: fmt.Sprintf("redis://:%s@%s/0", url.QueryEscape(redisPassword), s.Addr), Servers: []*RedisServer{s},
		join: func(context.Context) error { return nil },
	}, nil
}

// NewValkeyPair prepares a Valkey and a replica of it; the URL is that of the first.
func NewValkeyPair(dir string) (*Redis, error) {
	r, err := NewValkey(dir)
	if err != nil {
		return nil, err
	}
	s, err := newRedis(dir, "replica", "valkey-server", redisPassword, "--masterauth", redisPassword, "--replicaof", strings.Replace(r.Servers[0].Addr, ":", " ", 1))
	if err != nil {
		return nil, err
	}
	r.Servers = append(r.Servers, s)
	r.join = r.replicated
	return r, nil
}

// Primary returns the server that accepts writes, according to the servers: the one that is not a
// replica, or any server of a cluster.
func (r *Redis) Primary(ctx context.Context) (*RedisServer, error) {
	for _, s := range r.Servers {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		info, err := s.Client.InfoMap(ctx, "replication").Result()
		cancel()
		if err == nil && info["Replication"]["role"] == "master" {
			return s, nil
		}
	}
	return nil, errors.New("no Redis takes writes")
}
