package permission_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/permission"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
)

// The secrets of a deployment are accepted by its servers, and existing ones are kept.
func TestSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "secrets")
	secrets := permission.Secrets{Dir: dir, Scope: permission.Scope{Prefix: "turnpike"}, Users: []permission.User{
		{Name: "gateway", Role: permission.Gateway}, {Name: "w", Role: permission.Worker}, {Name: "crm", Role: permission.Tool, Tenant: "acme"},
	}}
	made := func() map[string]string {
		t.Helper()
		if err := secrets.Make(); err != nil {
			t.Fatal(err)
		}
		files := map[string]string{}
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			if info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			if d.IsDir() {
				return nil
			}
			data, err := os.ReadFile(path)
			files[strings.TrimPrefix(path, dir+"/")] = string(data)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return files
	}
	first := made()
	if len(first) != 13 || first["gateway/bus.keys"] != first["w/bus.keys"] || first["gateway/redis.password"] == first["w/redis.password"] || first["crm/redis.password"] != "" {
		t.Fatalf("the files are %v", first)
	}
	for name, text := range first {
		for _, server := range []string{"nats/users.conf", "nats/users.json", "redis/users.acl"} {
			if name != server && strings.Contains(first[server], strings.TrimSpace(text)) {
				t.Errorf("%s has the content of %s", server, name)
			}
		}
	}
	secrets.Users = append(secrets.Users, permission.User{Name: "w2", Role: permission.Worker})
	second := made()
	for name, text := range first {
		if !strings.Contains(name, "/users.") && second[name] != text {
			t.Errorf("%s is another one", name)
		}
	}
	if second["w2/bus.keys"] != first["w/bus.keys"] {
		t.Error("a worker that was added later has other keys")
	}

	// A call that names only a new user, under another scope, leaves the others unchanged.
	secrets.Users, secrets.Scope.Also = []permission.User{{Name: "w3", Role: permission.Worker}}, []string{"elsewhere"}
	third := made()
	if third["w3/bus.keys"] != first["w/bus.keys"] {
		t.Error("a worker that was added alone has other bus keys")
	}
	for _, file := range []string{"nats/users.conf", "redis/users.acl"} {
		for line := range strings.Lines(second[file]) {
			if !strings.Contains(third[file], line) {
				t.Errorf("%s lost %q", file, line)
			}
		}
	}
	secrets.Users, secrets.Remove = nil, []string{"w3"}
	if fourth := made(); fourth["nats/users.conf"] != second["nats/users.conf"] || fourth["redis/users.acl"] != second["redis/users.acl"] {
		t.Error("removing a user changed the others")
	}
	if err := secrets.Make(); err == nil || !strings.Contains(err.Error(), `"w3"`) {
		t.Errorf("removing an unknown user: %v", err)
	}
	empty := permission.Secrets{Dir: t.TempDir(), Remove: []string{"w3"}}
	if err := empty.Make(); err == nil || !strings.HasSuffix(err.Error(), ": omit it") {
		t.Errorf("removing a user from no users: %v", err)
	}

	opts, err := server.ProcessConfigFile(filepath.Join(dir, "nats", "users.conf"))
	if err != nil {
		t.Fatal(err)
	}
	url := testbed.NATSWith(t, func(o *server.Options) { o.Nkeys = opts.Nkeys }).ClientURL()
	for _, user := range []string{"gateway", "w", "w2", "crm"} {
		options, err := natslogin.Login{NKey: credential.Value{Name: "NKEY", File: filepath.Join(dir, user, permission.SeedFile)}}.Options()
		if err != nil {
			t.Fatal(err)
		}
		nc, err := nats.Connect(url, options...)
		if err != nil {
			t.Errorf("%s: %v", user, err)
			continue
		}
		nc.Close()
	}
	if _, err := nats.Connect(url); !errors.Is(err, nats.ErrAuthorization) {
		t.Errorf("a stranger: %v", err)
	}
}

// The users have the scope of the deployment: its prefix, its JetStream domain, and, if they are processes, its other
// subjects.
func TestScopeOfSecrets(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	scope := permission.Scope{Prefix: "house", Domain: "hub", Also: []string{"orders.>"}}
	secrets := permission.Secrets{Dir: dir, Scope: scope, Users: []permission.User{
		{Name: "gateway", Role: permission.Gateway}, {Name: "w", Role: permission.Worker}, {Name: "watch", Role: permission.Observer},
		{Name: "crm", Role: permission.Tool, Tenant: "acme", Tools: []string{"refund"}}, {Name: "app", Role: permission.Client, Tenant: "acme"},
	}}
	if err := secrets.Make(); err != nil {
		t.Fatal(err)
	}
	conf, err := os.ReadFile(filepath.Join(dir, "nats", "users.conf"))
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range secrets.Users {
		want := permission.Scope{Prefix: "house", Domain: "hub", Tenant: u.Tenant, Tools: u.Tools}
		if u.Role == permission.Gateway || u.Role == permission.Worker {
			want.Also = scope.Also
		}
		n, err := permission.ForNATS(u.Role, want)
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(conf), "# "+u.Name+"\n")
		text, _, _ := strings.Cut(rest, "\n# ")
		if !strings.Contains(text, n.String()) {
			t.Errorf("user %s has\n%s\nwant\n%s", u.Name, text, n)
		}
	}
	if strings.Contains(string(conf), "$JS.API.") || !strings.Contains(string(conf), "$JS.hub.API.") {
		t.Errorf("the users use the API of another domain:\n%s", conf)
	}
}

// A transaction of a user survives a Redis restart, although Redis replays its log as a user without a login.
func TestRedisKeepsItsLog(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	line, err := permission.ForRedis(permission.Worker, "turnpike", "worker", "p")
	if err != nil {
		t.Fatal(err)
	}
	acl := filepath.Join(dir, "users.acl")
	if err := os.WriteFile(acl, []byte(permission.RedisDefaultUser+line), 0o600); err != nil {
		t.Fatal(err)
	}
	s := testbed.RedisProcess(t, "--aclfile", acl, "--appendonly", "yes", "--appendfsync", "always")
	o, err := redis.ParseURL(s.URL)
	if err != nil {
		t.Fatal(err)
	}
	stranger := redis.NewClient(o)
	defer stranger.Close() //nolint:errcheck // the test is over
	if err := stranger.Get(t.Context(), "turnpike:a").Err(); err == nil || !strings.Contains(err.Error(), "NOAUTH") {
		t.Errorf("a stranger: %v", err)
	}
	as := *o
	as.Username, as.Password = "worker", "p"
	rdb := redis.NewClient(&as)
	defer rdb.Close() //nolint:errcheck // the test is over
	if err := rdb.Eval(t.Context(), `redis.call('set', KEYS[1], '1') return redis.call('set', KEYS[2], '2')`, []string{"turnpike:a", "turnpike:b"}).Err(); err != nil {
		t.Fatal(err)
	}
	s.Kill()
	if err := s.Start(); err != nil {
		t.Fatal(err)
	}
	if v, err := rdb.MGet(t.Context(), "turnpike:a", "turnpike:b").Result(); err != nil || v[0] != "1" || v[1] != "2" {
		t.Errorf("after the restart: %v, %v", v, err)
	}
}
