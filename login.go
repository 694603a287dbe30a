package turnpike

import (
	"cmp"

	"github.com/turnpike-dev/turnpike/internal/credential"
	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/pkg/state/redisstore"
)

// Secret is a password, a key or a certificate: either its text, or the name of a file that has it, but not both. The
// file is read at each connection, so that a program can replace it; a new file of NKey must have the same key. The
// files of TLS.CA, of the login at Sentinels, of NATS.Keys and of OIDC.ClientSecret are read only once. The zero value
// means that there is none.
type Secret struct {
	Text string
	File string

	variable string // that FromEnv read, for errors
}

// given reports whether the secret is set.
func (s Secret) given() bool { return s.Text != "" || s.File != "" }

// value returns the secret, named for errors by the variable it came from or by its field.
func (s Secret) value(field string) credential.Value {
	return credential.Value{Name: cmp.Or(s.variable, field), Text: s.Text, File: s.File}
}

// TLS holds PEM: CA has the certificates of the authorities that a connection trusts instead of the system's, and Cert
// and Key identify this process to the server. Cert and Key must be set together. CA is read once, when the connection
// opens.
type TLS struct {
	CA, Cert, Key Secret
}

func (t TLS) credential(field string) credential.TLS {
	return credential.TLS{CA: t.CA.value(field + ".CA"), Cert: t.Cert.value(field + ".Cert"), Key: t.Key.value(field + ".Key")}
}

// NATSLogin identifies this process to NATS. A user and a password in the URL take precedence over NKey, User and
// Password. At most one of Creds, NKey and User may be set.
type NATSLogin struct {
	Creds    Secret // a JWT and its seed, as nsc writes them
	NKey     Secret // the seed of an nkey
	User     Secret
	Password Secret
	TLS      TLS

	// Inbox is the prefix of reply subjects, for a user who may not subscribe to all of _INBOX.>. Default _INBOX.
	Inbox string
}

func (l NATSLogin) login() natslogin.Login {
	const field = "NATS.Login"
	return natslogin.Login{
		Creds: l.Creds.value(field + ".Creds"), NKey: l.NKey.value(field + ".NKey"),
		User: l.User.value(field + ".User"), Password: l.Password.value(field + ".Password"),
		TLS: l.TLS.credential(field + ".TLS"), Inbox: l.Inbox,
	}
}

// RedisLogin identifies this process to Redis and to its Sentinels. A password in the URL takes precedence over User
// and Password, and its sentinel_password over SentinelUser and SentinelPassword. TLS requires a URL that begins with
// rediss:.
type RedisLogin struct {
	User, Password                 Secret
	SentinelUser, SentinelPassword Secret
	TLS                            TLS
}

func (l RedisLogin) login() redisstore.Login {
	const field = "Redis.Login"
	secret := func(s Secret, name string) redisstore.Secret { return redisstore.Secret(s.value(field + name)) }
	return redisstore.Login{
		User: secret(l.User, ".User"), Password: secret(l.Password, ".Password"),
		SentinelUser: secret(l.SentinelUser, ".SentinelUser"), SentinelPassword: secret(l.SentinelPassword, ".SentinelPassword"),
		TLS: redisstore.TLS{CA: secret(l.TLS.CA, ".TLS.CA"), Cert: secret(l.TLS.Cert, ".TLS.Cert"), Key: secret(l.TLS.Key, ".TLS.Key")},
	}
}
