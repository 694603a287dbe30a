package doctor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/turnpike-dev/turnpike/internal/check"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/doctor"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// replicas returns the number of replicas of each existing stream.
func replicas(t *testing.T, url string) map[string]int {
	t.Helper()
	nc := connect(t, url)
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]int{}
	names := js.StreamNames(t.Context())
	for name := range names.Name() {
		all[name] = 0
	}
	if names.Err() != nil {
		t.Fatal(names.Err())
	}
	for name := range all {
		s, err := js.Stream(t.Context(), name)
		for errors.Is(err, context.DeadlineExceeded) && t.Context().Err() == nil {
			s, err = js.Stream(t.Context(), name) // it was raised a moment ago, and has no leader yet
		}
		if err != nil {
			t.Fatal(err)
		}
		all[name] = s.CachedInfo().Config.Replicas
	}
	return all
}

// found returns the finding of a name, which must exist.
func found(t *testing.T, cfg deploy.Config, name string) state.Finding {
	t.Helper()
	findings := doctor.Findings(t.Context(), cfg, "")
	i := slices.IndexFunc(findings, func(f state.Finding) bool { return f.Name == name })
	if i < 0 {
		t.Fatalf("doctor has no finding %q: %+v", name, findings)
	}
	return findings[i]
}

// start opens a deployment as gateways and workers do, and closes it.
func start(t *testing.T, cfg deploy.Config) {
	t.Helper()
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	d.Close()
}

// Doctor only reads and creates nothing: streams that it created would have its settings, not those of the
// deployment.
func TestDoctorCreatesNothing(t *testing.T) {
	t.Parallel()
	url := testbed.NATSServer(t).URL()
	for name, redis := range map[string]string{"JetStream": "", "Redis": testbed.Redis(t)} {
		cfg := deploy.Config{NATSURL: url, RedisURL: redis, Prefix: "looked-at", EventFeed: true}
		findings := doctor.Findings(t.Context(), cfg, "")
		if have := replicas(t, url); len(have) > 0 {
			t.Errorf("%s: doctor created %v", name, have)
		}
		for _, f := range findings {
			if !f.OK && (f.Fatal || !strings.Contains(f.Remedy, "start a gateway or a worker")) && strings.Contains(f.Name, "stream") {
				t.Errorf("%s: the finding about something missing is %+v", name, f)
			}
		}
	}
	start(t, deploy.Config{NATSURL: url, Prefix: "looked-at", EventFeed: true})
	before := replicas(t, url)
	if err := check.Err(doctor.Findings(t.Context(), deploy.Config{NATSURL: url, Prefix: "looked-at", EventFeed: true}, "")); err != nil {
		t.Errorf("doctor of an existing deployment: %v", err)
	}
	if after := replicas(t, url); len(after) != len(before) {
		t.Errorf("doctor changed %v to %v", before, after)
	}
}

// On a cluster of three servers with the default of one replica, doctor gives the remedy; applying it raises
// the existing streams, including those of checkpoints.
func TestReplicasOnACluster(t *testing.T) {
	t.Parallel()
	url := testbed.URLs(testbed.NATSCluster(t, 3))
	cfg := deploy.Config{NATSURL: url, Prefix: "three"}
	start(t, cfg)
	if f := found(t, cfg, "nats: replicas"); f.OK || f.Fatal || !strings.Contains(f.Remedy, "TURNPIKE_NATS_REPLICAS=3") {
		t.Errorf("one replica on three servers: %+v", f)
	}
	cfg.Replicas = 3
	for _, name := range []string{"store: stream THREE_STATE", "nats: stream THREE_TURNS"} {
		if f := found(t, cfg, name); f.OK || !strings.Contains(f.Detail, "1 replicas, want 3") {
			t.Errorf("%s before it is raised: %+v", name, f)
		}
	}
	start(t, cfg)
	have := replicas(t, url)
	if len(have) != 8 {
		t.Errorf("the deployment has the streams %v", have)
	}
	for name, n := range have {
		if n != 3 {
			t.Errorf("stream %s has %d replicas, want 3", name, n)
		}
	}
	testbed.Eventually(t, "doctor has no complaints", func() error { // some remain while replicas catch up
		var err error
		for _, f := range doctor.Findings(t.Context(), cfg, "") {
			if !f.OK && !slices.Contains([]string{"nats: version", "prices", "workers", "gateways"}, f.Name) { // none was started
				err = errors.Join(err, fmt.Errorf("%+v", f))
			}
		}
		return err
	})
	// The number of replicas is never reduced.
	cfg.Replicas = 1
	start(t, cfg)
	if n := replicas(t, url)["THREE_STATE"]; n != 3 {
		t.Errorf("a start with one replica left %d of three", n)
	}
	if f := found(t, cfg, "nats: replicas"); f.OK {
		t.Errorf("new streams would have one replica: %+v", f)
	}
}

// In a new deployment, the checkpoint streams are created with the configured replicas, whether or not doctor
// ran before.
func TestDoctorBeforeTheFirstStart(t *testing.T) {
	t.Parallel()
	url := testbed.URLs(testbed.NATSCluster(t, 3))
	cfg := deploy.Config{NATSURL: url, Prefix: "first", Replicas: 3}
	doctor.Findings(t.Context(), cfg, "")
	start(t, cfg)
	for name, n := range replicas(t, url) {
		if n != 3 {
			t.Errorf("stream %s has %d replicas, want 3", name, n)
		}
	}
}

func connect(t *testing.T, url string) *nats.Conn {
	t.Helper()
	nc, err := nats.Connect(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	return nc
}

// Doctor reports how many servers must confirm a write, and whether enough exist.
func TestDoctorConfirm(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), RedisURL: testbed.RedisProcess(t, "--appendonly", "yes").URL, Prefix: "confirm", RedisConfirm: "replicas:1"}
	f := found(t, cfg, "redis: confirm")
	if f.OK || f.Detail != "replicas:1, 0 replicas connected" || !strings.Contains(f.Remedy, "start replicas") {
		t.Errorf("%+v", f)
	}
	missing := filepath.Join(t.TempDir(), "password")
	cfg.RedisConfirm, cfg.RedisLogin.Password = "off", redisstore.Secret{Name: "TURNPIKE_REDIS_PASSWORD", File: missing}
	if f := found(t, cfg, "redis: settings"); !f.Fatal || !strings.Contains(f.Detail, missing) || !strings.HasPrefix(f.Remedy, "correct the setting that this finding names; ") {
		t.Errorf("%+v", f)
	}
	cfg.RedisLogin = redisstore.Login{}
	cfg.RedisConfirm = "two"
	if f := found(t, cfg, "redis: settings"); !f.Fatal || !strings.Contains(f.Remedy, "TURNPIKE_REDIS_CONFIRM") {
		t.Errorf("%+v", f)
	}
}

// Doctor reports settings with which no process starts.
func TestDoctorChecksSettings(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), Prefix: "settings", RedisConfirm: "aof", MaxResult: 100 << 30}
	f := found(t, cfg, "settings")
	for _, want := range []string{"TURNPIKE_REDIS_CONFIRM", "TURNPIKE_MAX_RESULT"} {
		if !f.Fatal || !strings.Contains(f.Detail, want) {
			t.Errorf("%+v, want a fatal finding with %s", f, want)
		}
	}
}

// Doctor reports the missing things to which agents refer, each once.
func TestDoctorLooksForWhatAgentsReferTo(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), Prefix: "refers"}
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const definition = `{"name":"NAME","model":{"provider":"openai","name":"m","api_key":"secret://NOBODYS"},
		"tools":[{"name":"t","kind":"agent","agent":"nobody"}],"hooks":{"stop":[{"kind":"nats","subject":"policy.nobody"}]}}`
	for _, name := range []string{"one", "two"} {
		if _, err := d.Store.PutAgent(t.Context(), "default", name, []byte(strings.ReplaceAll(definition, "NAME", name)), false); err != nil {
			t.Fatal(err)
		}
	}
	for name, provider := range map[string]string{"keyless": "gemini", "local": "openai"} {
		text := `{"name":"` + name + `","model":{"provider":"` + provider + `","name":"m"}}`
		if name == "local" { // which may not require a key
			text = strings.Replace(text, `"m"`, `"m","base_url":"http://127.0.0.1:1/v1"`, 1)
		}
		if _, err := d.Store.PutAgent(t.Context(), "default", name, []byte(text), false); err != nil {
			t.Fatal(err)
		}
	}
	if f := found(t, cfg, "secret: GEMINI_API_KEY"); os.Getenv("GEMINI_API_KEY") == "" && (f.OK || f.Fatal || !strings.Contains(f.Detail, "(keyless: model.provider)")) {
		t.Errorf("%+v", f)
	}
	for _, name := range []string{"agent: nobody", "secret: NOBODYS", "hook: policy.nobody"} {
		if f := found(t, cfg, name); f.OK || f.Fatal || f.Remedy == "" || !strings.Contains(f.Detail, "(one: ") || !strings.Contains(f.Detail, "(two: ") {
			t.Errorf("%+v", f)
		}
	}
}

// If there are more agents than doctor checks, it says so once, whatever tenants they belong to.
func TestDoctorChecksSomeOfManyAgents(t *testing.T) {
	t.Parallel()
	cfg := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), Prefix: "many"}
	d, err := deploy.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	const perTenant = 400
	for _, tenant := range []string{"a", "b", "c", "d"} {
		if err := d.Store.PutDocument(t.Context(), state.TenantDocument, tenant, []byte(`{"name":"`+tenant+`"}`)); err != nil {
			t.Fatal(err)
		}
		for i := range perTenant {
			name := fmt.Sprint("agent", i)
			if _, err := d.Store.PutAgent(t.Context(), tenant, name, []byte(`{"name":"`+name+`","model":{"provider":"scripted"}}`), false); err != nil {
				t.Fatal(err)
			}
		}
	}
	var about []state.Finding
	for _, f := range doctor.Findings(t.Context(), cfg, "") {
		if strings.HasPrefix(f.Name, "agents") {
			about = append(about, f)
		}
	}
	if len(about) != 1 || about[0].OK || about[0].Fatal || !strings.Contains(about[0].Detail, "1000 agents, and not those of 2 tenants") {
		t.Errorf("findings about agents: %+v", about)
	}
}

// Doctor reports processes of one prefix whose runs are in different stores, and settings that name another store
// than the processes have.
func TestDoctorFindsTwoStores(t *testing.T) {
	t.Parallel()
	inJetStream := deploy.Config{NATSURL: testbed.NATSServer(t).URL(), Prefix: "stores"}
	inRedis := inJetStream
	inRedis.RedisURL = testbed.RedisProcess(t).URL
	inOther := inJetStream
	inOther.RedisURL = testbed.RedisProcess(t).URL
	about := func(cfg deploy.Config) (all []state.Finding) {
		for _, f := range doctor.Findings(t.Context(), cfg, "") {
			if f.Name == "stores" || f.Name == "store: runs in JetStream" {
				all = append(all, f)
			}
		}
		return all
	}
	stopRedis := beats(t, inRedis, "red")
	if all := about(inRedis); len(all) > 0 {
		t.Errorf("all in Redis: %+v", all)
	}
	if all := about(inJetStream); len(all) != 1 || all[0].OK || all[0].Broken || !regexp.MustCompile(`^processes: 1 with runs in Redis \(id \w{26}\), such as red; the settings of doctor: JetStream$`).MatchString(all[0].Detail) {
		t.Errorf("all in Redis, doctor without it: %+v", all)
	}
	stopOther := beats(t, inOther, "other")
	all := about(inRedis)
	ids := regexp.MustCompile(`in Redis \(id \w+\)`).FindAllString(all[0].Detail, -1)
	if len(all) != 1 || !all[0].Broken || len(ids) != 2 || ids[0] == ids[1] || !strings.Contains(all[0].Detail, "the settings of doctor: Redis (id ") {
		t.Errorf("in two servers with Redis: %+v", all)
	}
	stopOther()
	stopJetStream := beats(t, inJetStream, "jet")
	for _, cfg := range []deploy.Config{inRedis, inJetStream} {
		all := about(cfg)
		if len(all) == 0 || all[0].OK || !all[0].Broken || !strings.HasPrefix(all[0].Detail, "processes: 1 with runs in JetStream, such as jet; 1 with runs in Redis (id ") {
			t.Errorf("in two stores: %+v", all)
		}
	}
	stopRedis()
	if all := about(inJetStream); len(all) > 0 {
		t.Errorf("all in JetStream: %+v", all)
	}
	stopJetStream()
	if all := about(inRedis); len(all) != 1 || all[0].OK || all[0].Broken || all[0].Name != "store: runs in JetStream" {
		t.Errorf("runs left in JetStream: %+v", all)
	}
}
