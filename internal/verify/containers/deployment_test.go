//go:build containers

package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moby/moby/api/types/container"
	dockernet "github.com/moby/moby/api/types/network"
	docker "github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
	tclog "github.com/testcontainers/testcontainers-go/log"
	"github.com/testcontainers/testcontainers-go/network"

	"github.com/turnpike-dev/turnpike/internal/devserver"
)

// stopGracePeriod is compose.yaml's stop_grace_period.
const stopGracePeriod = 30 * time.Second

// ready is the time in which a container must start to serve.
const ready = time.Minute

// logs is the directory for the containers' logs of a failed test.
const logs = "../../../dist/containers"

// deployment is made of containers on their own network.
type deployment struct {
	t       *testing.T
	engine  *testcontainers.DockerClient
	network *testcontainers.DockerNetwork

	nats, gateways, workers []*service
	redis                   *service
}

// service is a container of the deployment.
type service struct {
	*testcontainers.DockerContainer
	name string

	// ports maps ports of the container to those on this machine's loopback. They stay the same over a restart.
	ports map[int]int

	// health is the URL that returns 200 once the container serves. Redis has none: the gateways are not ready
	// without it.
	health string
}

func (s *service) at(port int) string { return "127.0.0.1:" + strconv.Itoa(s.ports[port]) }

// deploy starts a deployment, which ends with the test.
func deploy(ctx context.Context, t *testing.T) *deployment {
	t.Helper()
	tclog.SetDefault(tclog.NewNoopLogger())
	engine, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Close() })
	s := &deployment{t: t, engine: engine}
	if s.network, err = network.New(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.network.Remove(context.Background()) })

	var urls, routes []string
	for n := range 3 {
		name := fmt.Sprintf("nats%d", n+1)
		urls, routes = append(urls, "nats://"+name+":4222"), append(routes, "nats://"+name+":6222")
	}
	for n := range 3 {
		name := fmt.Sprintf("nats%d", n+1)
		server := s.start(ctx, name, "turnpike-nats", []int{4222, 8222}, "/healthz",
			testcontainers.WithFiles(file("nats.conf")),
			testcontainers.WithCmd("nats-server", "-c", "/etc/turnpike/nats.conf", "--name", name,
				"--cluster_name", "turnpike", "--cluster", "nats://0.0.0.0:6222", "--routes", strings.Join(routes, ",")))
		s.nats = append(s.nats, server)
	}
	s.redis = s.start(ctx, "redis", "turnpike-redis", nil, "", testcontainers.WithFiles(file("redis.conf")),
		testcontainers.WithCmd("redis-server", "/etc/turnpike/redis.conf"))
	s.allReady(ctx)

	env := map[string]string{
		"TURNPIKE_NATS_URL": strings.Join(urls, ","), "TURNPIKE_NATS_REPLICAS": "3", "TURNPIKE_REDIS_URL": "redis://redis:6379/0",
		"TURNPIKE_ADDR": "0.0.0.0:7070", "TURNPIKE_INSECURE": "1", "TURNPIKE_METRICS_ADDR": "0.0.0.0:9090",
	}
	for n := range 2 {
		s.gateways = append(s.gateways, s.start(ctx, fmt.Sprintf("gateway%d", n+1), "turnpike-gateway", []int{7070}, "/readyz", testcontainers.WithEnv(env)))
	}
	s.allReady(ctx)
	for n := range 3 {
		s.workers = append(s.workers, s.start(ctx, fmt.Sprintf("worker%d", n+1), "turnpike-worker", []int{9090}, "/healthz", testcontainers.WithEnv(env)))
	}
	s.allReady(ctx)
	return s
}

// file places a file of deployments where compose.yaml does.
func file(name string) testcontainers.ContainerFile {
	return testcontainers.ContainerFile{HostFilePath: "../../../deployments/" + name, ContainerFilePath: "/etc/turnpike/" + name, FileMode: 0o644}
}

// start starts a container. Its last port answers health requests.
func (s *deployment) start(ctx context.Context, name, image string, ports []int, health string, opts ...testcontainers.ContainerCustomizer) *service {
	s.t.Helper()
	v := &service{name: name, ports: map[int]int{}}
	bindings := dockernet.PortMap{}
	for _, p := range ports {
		free, err := devserver.FreePort()
		if err != nil {
			s.t.Fatal(err)
		}
		v.ports[p] = free
		port := dockernet.MustParsePort(fmt.Sprintf("%d/tcp", p))
		bindings[port] = []dockernet.PortBinding{{HostIP: netip.MustParseAddr("127.0.0.1"), HostPort: strconv.Itoa(free)}}
		opts = append(opts, testcontainers.WithExposedPorts(port.String()))
		v.health = "http://" + v.at(p) + health
	}
	opts = append(opts, network.WithNetwork([]string{name}, s.network),
		testcontainers.WithHostConfigModifier(func(c *container.HostConfig) {
			c.PortBindings, c.RestartPolicy = bindings, container.RestartPolicy{Name: container.RestartPolicyUnlessStopped}
		}))
	var err error
	v.DockerContainer, err = testcontainers.Run(ctx, image, opts...)
	if v.DockerContainer != nil {
		s.t.Cleanup(func() { s.end(v) })
	}
	if err != nil {
		s.t.Fatalf("start %s: %v", name, err)
	}
	return v
}

// end removes a container. If the test has failed, it stores the container's log in a file, so that the failure
// comes last in the test's output.
func (s *deployment) end(v *service) {
	if s.t.Failed() {
		if err := v.keepLog(); err != nil {
			s.t.Logf("log of %s: %v", v.name, err)
		}
	}
	if err := testcontainers.TerminateContainer(v.DockerContainer, testcontainers.StopTimeout(0)); err != nil {
		s.t.Logf("remove %s: %v", v.name, err)
	}
}

// keepLog writes a container's log to a file in logs.
func (v *service) keepLog() error {
	said, err := v.Logs(context.Background())
	if err != nil {
		return err
	}
	defer said.Close()
	if err := os.MkdirAll(logs, 0o755); err != nil {
		return err
	}
	f, err := os.Create(filepath.Join(logs, v.name+".log"))
	if err != nil {
		return err
	}
	_, err = io.Copy(f, said)
	return errors.Join(err, f.Close())
}

// services returns all containers, in the order in which they are restarted.
func (s *deployment) services() []*service {
	return slices.Concat(s.nats, []*service{s.redis}, s.gateways, s.workers)
}

// allReady waits until every container serves.
func (s *deployment) allReady(ctx context.Context) {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, ready)
	defer cancel()
	for _, v := range slices.Concat(s.nats, s.gateways, s.workers) {
		for {
			err := healthy(ctx, v.health)
			if err == nil {
				break
			}
			if !pause(ctx, 100*time.Millisecond) {
				s.t.Fatalf("%s does not serve: %v", v.name, err)
			}
		}
	}
}

func healthy(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", resp.Status, said)
	}
	return nil
}

// cut takes a container off the network, and join reconnects it: under its name, but perhaps at another
// address.
func (s *deployment) cut(ctx context.Context, v *service) {
	s.t.Helper()
	if _, err := s.engine.NetworkDisconnect(ctx, s.network.ID, docker.NetworkDisconnectOptions{Container: v.GetContainerID()}); err != nil {
		s.t.Fatalf("cut %s off: %v", v.name, err)
	}
}

func (s *deployment) join(ctx context.Context, v *service) {
	s.t.Helper()
	if _, err := s.engine.NetworkConnect(ctx, s.network.ID, docker.NetworkConnectOptions{
		Container: v.GetContainerID(), EndpointConfig: &dockernet.EndpointSettings{Aliases: []string{v.name}},
	}); err != nil {
		s.t.Fatalf("put %s back: %v", v.name, err)
	}
}

// restart stops a container as an upgrade does, and starts it again.
func (s *deployment) restart(ctx context.Context, v *service) {
	s.t.Helper()
	within := stopGracePeriod
	if err := v.Stop(ctx, &within); err != nil {
		s.t.Fatalf("stop %s: %v", v.name, err)
	}
	if err := v.Start(ctx); err != nil {
		s.t.Fatalf("start %s: %v", v.name, err)
	}
}

// pause waits, and reports whether ctx is still alive.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
