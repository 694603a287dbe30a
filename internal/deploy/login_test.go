package deploy_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/jwt/v2"
	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nkeys"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/deploy"
	"github.com/turnpike-dev/turnpike/internal/devserver"
	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

func text(name, text string) credential.Value { return credential.Value{Name: name, Text: text} }

// inFile writes a value to a file, as an editor leaves it.
func inFile(t *testing.T, name, text string) credential.Value {
	t.Helper()
	path := filepath.Join(t.TempDir(), "value")
	if err := os.WriteFile(path, []byte(text+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return credential.Value{Name: name, File: path}
}

func file(name, path string) credential.Value { return credential.Value{Name: name, File: path} }

// opens checks whether a deployment opens with these settings; words are required parts of the error.
func opens(t *testing.T, what string, cfg deploy.Config, words ...string) {
	t.Helper()
	d, err := deploy.Open(t.Context(), cfg)
	if err == nil {
		d.Close()
	}
	if len(words) == 0 {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	if err == nil {
		t.Errorf("%s: it opens, want an error with %q", what, words)
		return
	}
	for _, w := range words {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%s: %v, want %q in it", what, err, w)
		}
	}
	if strings.Contains(err.Error(), "hunter2") {
		t.Errorf("%s: the error has the password: %v", what, err)
	}
}

// A deployment opens with a NATS that requires TLS, a client certificate, and a user with a password; all of
// them given in files, or directly.
func TestNATSWithTLS(t *testing.T) {
	t.Parallel()
	ca := testbed.NewAuthority(t)
	url := testbed.NATSWith(t, func(o *server.Options) {
		o.Users = []*server.User{{Username: "gateway", Password: "hunter2/:@"}}
		o.TLS, o.TLSVerify, o.TLSConfig, o.TLSTimeout = true, true, ca.ServerConfig(), 10
		o.JetStreamDomain = "hub"
	}).ClientURL()
	cert, key := ca.Issue("gateway")
	tls := credential.TLS{CA: file("CA", ca.File), Cert: file("CERT", cert), Key: file("KEY", key)}
	right := natslogin.Login{User: text("USER", "gateway"), Password: inFile(t, "PASSWORD", "hunter2/:@"), TLS: tls}
	opens(t, "all that is asked for", deploy.Config{NATSURL: url, NATSLogin: right})
	opens(t, "another domain", deploy.Config{NATSURL: url, NATSLogin: right, NATSDomain: "hub", Prefix: "other"})

	wrong := right
	wrong.Password = text("PASSWORD", "hunter2")
	opens(t, "a wrong password", deploy.Config{NATSURL: url, NATSLogin: wrong}, "Authorization Violation")
	wrong = right
	wrong.TLS.Cert, wrong.TLS.Key = credential.Value{}, credential.Value{}
	opens(t, "no certificate", deploy.Config{NATSURL: url, NATSLogin: wrong}, "connect to NATS")
	wrong = right
	wrong.TLS.CA = file("CA", testbed.NewAuthority(t).File)
	opens(t, "a foreign CA", deploy.Config{NATSURL: url, NATSLogin: wrong}, "certificate")
	for what, c := range map[string]struct {
		set  func(*natslogin.Login)
		want string
	}{
		"a certificate without its key":   {func(l *natslogin.Login) { l.TLS.Key = credential.Value{Name: "KEY"} }, "only one of CERT and KEY is set"},
		"a key that is no key":            {func(l *natslogin.Login) { l.TLS.Key = text("KEY", "hunter2") }, "of CERT_FILE and KEY are not a certificate and its private key"},
		"a CA that is none":               {func(l *natslogin.Login) { l.TLS.CA = text("CA", "hunter2") }, "CA has no certificate"},
		"a file that is not there":        {func(l *natslogin.Login) { l.Password = file("PASSWORD", "/nowhere/at-all") }, "PASSWORD_FILE names a file that cannot be read (open /nowhere/at-all: no such file or directory): name a file that this process may read"},
		"a field of Go without its file":  {func(l *natslogin.Login) { l.Password = file("NATS.Login.Password", "/nowhere/at-all") }, "NATS.Login.Password.File names a file that cannot be read (open /nowhere/at-all"},
		"a password twice":                {func(l *natslogin.Login) { l.Password.Text = "hunter2" }, "PASSWORD and PASSWORD_FILE are both set"},
		"a password without a user":       {func(l *natslogin.Login) { l.User = credential.Value{Name: "USER"} }, "PASSWORD is set without USER"},
		"two ways at once":                {func(l *natslogin.Login) { l.NKey = text("NKEY", "hunter2") }, "more than one of"},
		"creds that are none":             {func(l *natslogin.Login) { *l = natslogin.Login{Creds: text("CREDS", "hunter2")} }, "CREDS has no"},
		"a seed that is none":             {func(l *natslogin.Login) { *l = natslogin.Login{NKey: text("NKEY", "hunter2")} }, "NKEY has no seed"},
		"a file that has nothing but \\n": {func(l *natslogin.Login) { l.Password = inFile(t, "PASSWORD", "") }, "is empty"},
	} {
		login := right
		c.set(&login)
		opens(t, what, deploy.Config{NATSURL: url, NATSLogin: login}, c.want)
	}
}

// An nkey logs in, given in a file or directly; a different one does not.
func TestNATSWithNKey(t *testing.T) {
	t.Parallel()
	pair, public, seed := user(t)
	defer pair.Wipe()
	url := testbed.NATSWith(t, func(o *server.Options) { o.Nkeys = []*server.NkeyUser{{Nkey: public}} }).ClientURL()
	opens(t, "the seed", deploy.Config{NATSURL: url, NATSLogin: natslogin.Login{NKey: text("NKEY", seed)}})
	opens(t, "the seed in a file", deploy.Config{NATSURL: url, NATSLogin: natslogin.Login{NKey: inFile(t, "NKEY", seed)}})
	_, _, other := user(t)
	opens(t, "another seed", deploy.Config{NATSURL: url, NATSLogin: natslogin.Login{NKey: text("NKEY", other)}}, "Authorization Violation")
	opens(t, "nobody", deploy.Config{NATSURL: url}, "connect to NATS")
}

func user(t *testing.T) (pair nkeys.KeyPair, public, seed string) {
	t.Helper()
	pair, err := nkeys.CreateUser()
	if err != nil {
		t.Fatal(err)
	}
	public, err = pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	secret, err := pair.Seed()
	if err != nil {
		t.Fatal(err)
	}
	return pair, public, string(secret)
}

// Creds files written by nsc log in at a server that trusts their operator.
func TestNATSWithCreds(t *testing.T) {
	t.Parallel()
	operator, account, system := keyPair(t, nkeys.CreateOperator), keyPair(t, nkeys.CreateAccount), keyPair(t, nkeys.CreateAccount)
	operatorClaims := jwt.NewOperatorClaims(public(t, operator))
	operatorClaims.SystemAccount = public(t, system)
	resolver := &server.MemAccResolver{}
	for _, pair := range []nkeys.KeyPair{account, system} {
		claims := jwt.NewAccountClaims(public(t, pair))
		if pair == account {
			claims.Limits.JetStreamLimits = jwt.JetStreamLimits{MemoryStorage: -1, DiskStorage: -1, Streams: -1, Consumer: -1}
		}
		token, err := claims.Encode(operator)
		if err == nil {
			err = resolver.Store(public(t, pair), token)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	url := testbed.NATSWith(t, func(o *server.Options) {
		o.TrustedOperators, o.SystemAccount, o.AccountResolver = []*jwt.OperatorClaims{operatorClaims}, operatorClaims.SystemAccount, resolver
	}).ClientURL()
	creds := func(signer nkeys.KeyPair) string {
		_, key, seed := user(t)
		token, err := jwt.NewUserClaims(key).Encode(signer)
		if err != nil {
			t.Fatal(err)
		}
		text, err := jwt.FormatUserConfig(token, []byte(seed))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	right := creds(account)
	opens(t, "creds", deploy.Config{NATSURL: url, NATSLogin: natslogin.Login{Creds: text("CREDS", right)}})
	opens(t, "creds in a file", deploy.Config{NATSURL: url, NATSLogin: natslogin.Login{Creds: inFile(t, "CREDS", right)}})
	opens(t, "creds of another account", deploy.Config{NATSURL: url, NATSLogin: natslogin.Login{Creds: text("CREDS", creds(keyPair(t, nkeys.CreateAccount)))}}, "Authorization Violation")
}

func keyPair(t *testing.T, create func() (nkeys.KeyPair, error)) nkeys.KeyPair {
	t.Helper()
	pair, err := create()
	if err != nil {
		t.Fatal(err)
	}
	return pair
}

func public(t *testing.T, pair nkeys.KeyPair) string {
	t.Helper()
	key, err := pair.PublicKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// A deployment opens with a Redis that requires TLS, a client certificate, and a user with a password.
func TestRedisWithTLS(t *testing.T) {
	t.Parallel()
	nats := testbed.NATSServer(t).URL()
	ca := testbed.NewAuthority(t)
	serverCert, serverKey := ca.Issue("redis")
	port, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	testbed.RedisProcess(t, "--port", "0", "--tls-port", fmt.Sprint(port), "--tls-cert-file", serverCert, "--tls-key-file", serverKey,
		"--tls-ca-cert-file", ca.File, "--tls-auth-clients", "yes", "--appendonly", "yes",
		"--user", "turnpike", "on", ">hunter2", "~*", "&*", "+@all", "--user", "default", "off")
	url := fmt.Sprintf("rediss://127.0.0.1:%d/0", port)
	cert, key := ca.Issue("worker")
	right := redisstore.Login{
		User: redisstore.Secret(text("USER", "turnpike")), Password: redisstore.Secret(inFile(t, "PASSWORD", "hunter2")),
		TLS: redisstore.TLS{CA: redisstore.Secret(file("CA", ca.File)), Cert: redisstore.Secret(file("CERT", cert)), Key: redisstore.Secret(file("KEY", key))},
	}
	opens(t, "all that is asked for", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: right})
	opens(t, "user and password in the URL", deploy.Config{
		NATSURL: nats, RedisURL: strings.Replace(url, "//", "//turnpike:hunter2@", 1), RedisLogin: redisstore.Login{TLS: right.TLS},
	})
	wrong := right
	wrong.Password = redisstore.Secret(text("PASSWORD", "hunter3"))
	opens(t, "a wrong password", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: wrong}, "WRONGPASS")
	wrong = right
	wrong.TLS.Cert, wrong.TLS.Key = redisstore.Secret{}, redisstore.Secret{}
	opens(t, "no certificate", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: wrong}, "this process does not start")
	wrong = right
	wrong.TLS.CA = redisstore.Secret(file("CA", testbed.NewAuthority(t).File))
	opens(t, "a foreign CA", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: wrong}, "certificate")
	opens(t, "no TLS in the URL", deploy.Config{NATSURL: nats, RedisURL: strings.Replace(url, "rediss", "redis", 1), RedisLogin: right}, "begin it with rediss://")
	wrong = right
	wrong.SentinelPassword = redisstore.Secret(text("SENTINEL_PASSWORD", "hunter2"))
	opens(t, "a password for no Sentinel", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: wrong}, "master_name")
}

// Sentinels may have a different password from the servers that they monitor.
func TestSentinelPassword(t *testing.T) {
	t.Parallel()
	nats := testbed.NATSServer(t).URL()
	redis := testbed.RedisProcess(t, "--requirepass", "of-redis", "--appendonly", "yes")
	sentinel, err := devserver.FreePort()
	if err != nil {
		t.Fatal(err)
	}
	address := strings.TrimSuffix(strings.TrimPrefix(redis.URL, "redis://"), "/0")
	conf := filepath.Join(t.TempDir(), "sentinel.conf")
	lines := fmt.Sprintf("port %d\nbind 127.0.0.1\nrequirepass of-sentinels\nsentinel monitor main %s 1\nsentinel auth-pass main of-redis\n",
		sentinel, strings.Replace(address, ":", " ", 1))
	if err := os.WriteFile(conf, []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	process(t, "redis-server", conf, "--sentinel")
	url := fmt.Sprintf("redis://127.0.0.1:%d/0?master_name=main", sentinel)
	right := redisstore.Login{Password: redisstore.Secret(text("PASSWORD", "of-redis")), SentinelPassword: redisstore.Secret(inFile(t, "SENTINEL_PASSWORD", "of-sentinels"))}
	opens(t, "both passwords", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: right})
	wrong := right
	wrong.SentinelPassword = redisstore.Secret{}
	opens(t, "none for the Sentinels", deploy.Config{NATSURL: nats, RedisURL: url, RedisLogin: wrong}, "redis")
}

// process starts a server and returns when it reports that it is ready.
func process(t *testing.T, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	said := make([]byte, 0, 4096)
	for chunk := make([]byte, 512); !strings.Contains(string(said), "+monitor"); {
		n, err := out.Read(chunk)
		if err != nil {
			t.Fatalf("%s: %v: %s", name, err, said)
		}
		said = append(said, chunk[:n]...)
	}
}
