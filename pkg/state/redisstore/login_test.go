package redisstore_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/verify/testbed"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// A certificate needs a URL with TLS, which neither redis: nor unix: has.
func TestTLSNeedsItsURL(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis://127.0.0.1/0", "unix:///run/redis.sock"} {
		_, err := redisstore.Open(t.Context(), redisstore.Config{URL: url, Login: redisstore.Login{TLS: redisstore.TLS{CA: redisstore.Secret{Name: "CA", Text: "x"}}}})
		if err == nil || !strings.Contains(err.Error(), "does not begin with rediss://") {
			t.Errorf("Open(%q) = %v", url, err)
		}
	}
}

// Each connection expects the certificate of its own host, from the given authority if there is one.
func TestCertificatesOfHosts(t *testing.T) {
	t.Parallel()
	ca := redisstore.Secret{Name: "CA", File: testbed.NewAuthority(t).File}
	for _, url := range []string{"rediss://a:1/0", "rediss://a:1,b:2/0?cluster=true", "rediss://a:1/0?master_name=main"} {
		for _, given := range []redisstore.TLS{{}, {CA: ca}} {
			o, err := redisstore.Options(url, redisstore.Login{TLS: given})
			if err != nil || o.TLSConfig == nil || o.TLSConfig.ServerName != "" || (o.TLSConfig.RootCAs != nil) != (given.CA == ca) {
				t.Errorf("%s with %+v: %+v, %v", url, given, o, err)
			}
		}
	}
}

// Each connection reads the files of user and password again. Those in the URL take their place.
func TestFilesAreReadAgain(t *testing.T) {
	t.Parallel()
	file := func(name string) redisstore.Secret {
		return redisstore.Secret{Name: name, File: filepath.Join(t.TempDir(), "value")}
	}
	login := redisstore.Login{User: file("USER"), Password: file("PASSWORD")}
	write := func(user, password string) {
		t.Helper()
		if err := errors.Join(os.WriteFile(login.User.File, []byte(user), 0o600), os.WriteFile(login.Password.File, []byte(password), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	write("gateway", "old")
	o, err := redisstore.Options("redis://127.0.0.1/0", login)
	if err != nil {
		t.Fatal(err)
	}
	write("worker", "new")
	if user, password := o.CredentialsProvider(); user != "worker" || password != "new" {
		t.Errorf("user %s, password %s", user, password)
	}
	o, err = redisstore.Options("redis://admin:url@127.0.0.1/0", login)
	if err != nil || o.CredentialsProvider != nil || o.Username != "admin" || o.Password != "url" {
		t.Errorf("with a login in the URL: user %s, password %s, %v", o.Username, o.Password, err)
	}
}

// A login that would not be used, or not as a whole, is refused. Those of Sentinels are apart from those of the servers.
func TestLoginsOfSentinels(t *testing.T) {
	t.Parallel()
	is := func(name string) redisstore.Secret { return redisstore.Secret{Name: name, Text: "of-" + name} }
	const servers, sentinels = "redis://a:1/0", "redis://a:1/0?master_name=main"
	for _, c := range []struct {
		url   string
		login redisstore.Login
		want  string
	}{
		{servers, redisstore.Login{User: is("USER")}, "USER is set without PASSWORD"},
		{servers, redisstore.Login{SentinelUser: is("S_USER"), SentinelPassword: redisstore.Secret{Name: "S_PASSWORD"}}, "S_USER or S_PASSWORD is set, but"},
		{servers, redisstore.Login{SentinelUser: redisstore.Secret{Name: "S_USER"}, SentinelPassword: is("S_PASSWORD")}, "S_USER or S_PASSWORD is set, but"},
		{servers + "?sentinel_username=u", redisstore.Login{}, "without master_name"},
		{servers + "?sentinel_password=p", redisstore.Login{}, "without master_name"},
		{sentinels, redisstore.Login{SentinelUser: is("S_USER"), SentinelPassword: is("S_PASSWORD")}, "of-S_USER of-S_PASSWORD"},
		{sentinels + "&sentinel_username=u&sentinel_password=p", redisstore.Login{SentinelUser: is("S_USER"), SentinelPassword: is("S_PASSWORD")}, "u p"},
	} {
		c.login.Password.Name = "PASSWORD"
		o, err := redisstore.Options(c.url, c.login)
		got := fmt.Sprint(err)
		if err == nil {
			got = o.SentinelUsername + " " + o.SentinelPassword
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.url, got, c.want)
		}
	}
}
