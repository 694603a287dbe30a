package app

import (
	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// NATSLogin is how a process logs in to NATS. Each value may stand in a file instead, which
// other users of the machine cannot read, as they can flags.
type NATSLogin struct {
	NATSCreds        string `name:"nats-creds" env:"TURNPIKE_NATS_CREDS" help:"Credentials of a user: its JWT and seed, as nsc writes them."`
	NATSCredsFile    string `name:"nats-creds-file" env:"TURNPIKE_NATS_CREDS_FILE" type:"path" help:"File with it."`
	NATSNKey         string `name:"nats-nkey" env:"TURNPIKE_NATS_NKEY" help:"Seed of an nkey."`
	NATSNKeyFile     string `name:"nats-nkey-file" env:"TURNPIKE_NATS_NKEY_FILE" type:"path" help:"File with it."`
	NATSUser         string `name:"nats-user" env:"TURNPIKE_NATS_USER" help:"User."`
	NATSUserFile     string `name:"nats-user-file" env:"TURNPIKE_NATS_USER_FILE" type:"path" help:"File with it."`
	NATSPassword     string `name:"nats-password" env:"TURNPIKE_NATS_PASSWORD" help:"Password of the user."`
	NATSPasswordFile string `name:"nats-password-file" env:"TURNPIKE_NATS_PASSWORD_FILE" type:"path" help:"File with it."`
	NATSCA           string `name:"nats-ca" env:"TURNPIKE_NATS_CA" help:"PEM certificates of the authorities that sign server certificates."`
	NATSCAFile       string `name:"nats-ca-file" env:"TURNPIKE_NATS_CA_FILE" type:"path" help:"File with it."`
	NATSCert         string `name:"nats-cert" env:"TURNPIKE_NATS_CERT" help:"Certificate of this client, PEM."`
	NATSCertFile     string `name:"nats-cert-file" env:"TURNPIKE_NATS_CERT_FILE" type:"path" help:"File with it."`
	NATSKey          string `name:"nats-key" env:"TURNPIKE_NATS_KEY" help:"Key of the certificate, PEM."`
	NATSKeyFile      string `name:"nats-key-file" env:"TURNPIKE_NATS_KEY_FILE" type:"path" help:"File with it."`

	NATSInbox string `name:"nats-inbox" env:"TURNPIKE_NATS_INBOX" help:"Inbox prefix for replies, for users that may not subscribe to _INBOX.>."`
}

// Login returns it with the files not read yet.
func (l NATSLogin) Login() natslogin.Login {
	return natslogin.Login{
		Creds: value("NATS_CREDS", l.NATSCreds, l.NATSCredsFile), NKey: value("NATS_NKEY", l.NATSNKey, l.NATSNKeyFile),
		User: value("NATS_USER", l.NATSUser, l.NATSUserFile), Password: value("NATS_PASSWORD", l.NATSPassword, l.NATSPasswordFile),
		TLS: credential.TLS{
			CA: value("NATS_CA", l.NATSCA, l.NATSCAFile), Cert: value("NATS_CERT", l.NATSCert, l.NATSCertFile), Key: value("NATS_KEY", l.NATSKey, l.NATSKeyFile),
		},
		Inbox: l.NATSInbox,
	}
}

// RedisLogin is how a process logs in to Redis.
type RedisLogin struct {
	RedisUser                 string `name:"redis-user" env:"TURNPIKE_REDIS_USER" help:"User."`
	RedisUserFile             string `name:"redis-user-file" env:"TURNPIKE_REDIS_USER_FILE" type:"path" help:"File with it."`
	RedisPassword             string `name:"redis-password" env:"TURNPIKE_REDIS_PASSWORD" help:"Password of the user."`
	RedisPasswordFile         string `name:"redis-password-file" env:"TURNPIKE_REDIS_PASSWORD_FILE" type:"path" help:"File with it."`
	RedisSentinelUser         string `name:"redis-sentinel-user" env:"TURNPIKE_REDIS_SENTINEL_USER" help:"User of the Sentinels."`
	RedisSentinelUserFile     string `name:"redis-sentinel-user-file" env:"TURNPIKE_REDIS_SENTINEL_USER_FILE" type:"path" help:"File with it."`
	RedisSentinelPassword     string `name:"redis-sentinel-password" env:"TURNPIKE_REDIS_SENTINEL_PASSWORD" help:"Password of the Sentinels."`
	RedisSentinelPasswordFile string `name:"redis-sentinel-password-file" env:"TURNPIKE_REDIS_SENTINEL_PASSWORD_FILE" type:"path" help:"File with it."`
	RedisCA                   string `name:"redis-ca" env:"TURNPIKE_REDIS_CA" help:"PEM certificates of the authorities that sign server certificates; the URL begins with rediss:."`
	RedisCAFile               string `name:"redis-ca-file" env:"TURNPIKE_REDIS_CA_FILE" type:"path" help:"File with it."`
	RedisCert                 string `name:"redis-cert" env:"TURNPIKE_REDIS_CERT" help:"Certificate of this client, PEM."`
	RedisCertFile             string `name:"redis-cert-file" env:"TURNPIKE_REDIS_CERT_FILE" type:"path" help:"File with it."`
	RedisKey                  string `name:"redis-key" env:"TURNPIKE_REDIS_KEY" help:"Key of the certificate, PEM."`
	RedisKeyFile              string `name:"redis-key-file" env:"TURNPIKE_REDIS_KEY_FILE" type:"path" help:"File with it."`
}

// Login returns it with the files not read yet.
func (l RedisLogin) Login() redisstore.Login {
	return redisstore.Login{
		User: redisstore.Secret(value("REDIS_USER", l.RedisUser, l.RedisUserFile)), Password: redisstore.Secret(value("REDIS_PASSWORD", l.RedisPassword, l.RedisPasswordFile)),
		SentinelUser: redisstore.Secret(value("REDIS_SENTINEL_USER", l.RedisSentinelUser, l.RedisSentinelUserFile)), SentinelPassword: redisstore.Secret(value("REDIS_SENTINEL_PASSWORD", l.RedisSentinelPassword, l.RedisSentinelPasswordFile)),
		TLS: redisstore.TLS{
			CA: redisstore.Secret(value("REDIS_CA", l.RedisCA, l.RedisCAFile)), Cert: redisstore.Secret(value("REDIS_CERT", l.RedisCert, l.RedisCertFile)), Key: redisstore.Secret(value("REDIS_KEY", l.RedisKey, l.RedisKeyFile)),
		},
	}
}

func value(name, text, file string) credential.Value {
	return credential.Value{Name: "TURNPIKE_" + name, Text: text, File: file}
}
