package redisstore

import (
	"errors"
	"fmt"
	neturl "net/url"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/turnpike-dev/turnpike/internal/credential"
)

// Login has the credentials for Redis. A password in the URL takes precedence over User and Password, and
// one for Sentinel over SentinelUser and SentinelPassword. TLS needs a URL that begins with rediss:.
type Login struct {
	User, Password                 Secret
	SentinelUser, SentinelPassword Secret
	TLS                            TLS
}

// Secret is a user name, a password, a key or a certificate: its text, or the name of its file. The store
// reads the file for each connection; Open alone reads the files of TLS.CA and of the Sentinel login. The
// zero value means no secret.
type Secret struct {
	Name string // of the setting, for errors
	Text string
	File string
}

// TLS holds PEM: the certificates that a connection trusts instead of the system's, and its own
// certificate and key.
type TLS struct {
	CA, Cert, Key Secret
}

// login is a Login with the readers of its secrets.
type login struct {
	User, Password, SentinelUser, SentinelPassword credential.Value
	TLS                                            credential.TLS
}

func (l Login) login() login {
	value := func(s Secret) credential.Value { return credential.Value(s) }
	return login{
		User: value(l.User), Password: value(l.Password), SentinelUser: value(l.SentinelUser), SentinelPassword: value(l.SentinelPassword),
		TLS: credential.TLS{CA: value(l.TLS.CA), Cert: value(l.TLS.Cert), Key: value(l.TLS.Key)},
	}
}

// apply adds the login to options from a URL.
func (l login) apply(o *redis.UniversalOptions) error {
	switch {
	case l.TLS.Given() && o.TLSConfig == nil:
		return fmt.Errorf("%s, %s or %s is set, but the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) does not begin with rediss://, so Redis is reached without TLS: begin it with rediss://, or unset these settings", l.TLS.CA.Name, l.TLS.Cert.Name, l.TLS.Key.Name)
	case (l.SentinelUser.Given() || l.SentinelPassword.Given()) && o.MasterName == "":
		return fmt.Errorf("%s or %s is set, but the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) has no master_name, so its hosts are not Sentinels: add the option master_name=NAME after the ?, or unset both settings", l.SentinelUser.Name, l.SentinelPassword.Name)
	case l.User.Given() && !l.Password.Given():
		return fmt.Errorf("%s is set without %s: set both, or none", l.User.Name, l.Password.Name)
	}
	config, err := l.TLS.Config()
	if err != nil {
		return err
	}
	if config != nil {
		o.TLSConfig = config
	}
	for _, v := range []credential.Value{l.User, l.Password, l.SentinelUser, l.SentinelPassword} {
		if err := v.Validate(); err != nil {
			return err
		}
	}
	if o.MasterName != "" && o.SentinelPassword == "" {
		o.SentinelUsername, _ = l.SentinelUser.Read() // they are valid, see above
		o.SentinelPassword, _ = l.SentinelPassword.Read()
	}
	if l.Password.Given() && o.Password == "" {
		o.CredentialsProvider = func() (string, string) {
			user, _ := l.User.Read()
			password, _ := l.Password.Read() // a missing file is a wrong password
			return user, password
		}
	}
	return nil
}

func options(url string) (*redis.UniversalOptions, error) {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		return nil, errors.New("the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) is not valid: write one such as redis://user:password@127.0.0.1:6379/0, with numbers as port and database, and percent-encode special characters of the password, such as %2F for /")
	}
	rest, query, _ := strings.Cut(rest, "?")
	user := ""
	if i := strings.LastIndexByte(rest, '@'); i >= 0 {
		user, rest = rest[:i+1], rest[i+1:]
	}
	hosts, db, _ := strings.Cut(rest, "/")
	addrs := strings.Split(hosts, ",")
	one, err := redis.ParseURL(scheme + "://" + user + addrs[0] + "/" + db)
	if err != nil {
		// The parser's error repeats the URL, which may contain a password.
		return nil, errors.New("the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) is not valid: write one such as redis://user:password@127.0.0.1:6379/0, with numbers as port and database, and percent-encode special characters of the password, such as %2F for /")
	}
	o := &redis.UniversalOptions{
		Addrs: addrs, Username: one.Username, Password: one.Password, DB: one.DB, TLSConfig: one.TLSConfig,
		Protocol: 2, // with version 3 the client checks each reply for notices, which the store does not use
		PoolSize: 64, MinIdleConns: 4, MaxActiveConns: 256, PoolTimeout: 3 * time.Second,
		DialTimeout: 2 * time.Second, ReadTimeout: readTimeout, WriteTimeout: 3 * time.Second, ContextTimeoutEnabled: true,
		MaxRetries: 2, MinRetryBackoff: 20 * time.Millisecond, MaxRetryBackoff: 500 * time.Millisecond, ConnMaxIdleTime: 5 * time.Minute,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	if len(addrs) == 1 {
		o.Addrs = []string{one.Addr}
	}
	for pair := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(pair, "=")
		if value, err = neturl.PathUnescape(value); err != nil {
			return nil, errors.New("the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) has an option after the ? with an invalid value: percent-encode special characters, such as %25 for %")
		}
		switch name {
		case "":
		case "master_name":
			o.MasterName = value
		case "sentinel_username":
			o.SentinelUsername = value
		case "sentinel_password":
			o.SentinelPassword = value
		case "cluster":
			o.IsClusterMode = value == "true"
		default:
			// Without the name: it is a part of the password, if that has a ? in it.
			return nil, errors.New("the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) has an unknown option after the ?: use master_name, sentinel_username, sentinel_password or cluster; if the ? is part of a password, write it as %3F")
		}
	}
	if o.MasterName == "" && o.SentinelUsername+o.SentinelPassword != "" {
		return nil, errors.New("the Redis URL (TURNPIKE_REDIS_URL; in Go, Redis.URL) has sentinel_username or sentinel_password without master_name: add master_name, or remove these options")
	}
	if o.TLSConfig != nil {
		// The parser names the first host; each connection expects the certificate of its own.
		o.TLSConfig.ServerName = ""
	}
	return o, nil
}
