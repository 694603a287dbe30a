package natslogin

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nkeys"

	"github.com/turnpike-dev/turnpike/internal/credential"
)

// Login is how to log in. The zero value shows nothing but what is in the URL of the server. A user, password or token
// in the URL takes the place of NKey, User and Password. Creds, NKey and User exclude each other.
type Login struct {
	Creds    credential.Value // what `nsc` writes: a JWT and its seed
	NKey     credential.Value // the seed of an nkey
	User     credential.Value
	Password credential.Value
	TLS      credential.TLS

	// Inbox is the prefix of reply subjects, for users that may not subscribe to _INBOX.>;
	// empty means _INBOX.
	Inbox string
}

// Options returns the options of a connection with this login. They read files again at every reconnect, except the CA
// and which user an nkey names: nats.go asks for its public key only once.
func (l Login) Options() ([]nats.Option, error) {
	var options []nats.Option
	var ways int
	for _, v := range []credential.Value{l.Creds, l.NKey, l.User} {
		if v.Given() {
			ways++
		}
	}
	switch {
	case ways > 1:
		return nil, fmt.Errorf("more than one of %s, %s and %s is set, which are different ways to log in: keep one", l.Creds.Name, l.NKey.Name, l.User.Name)
	case l.Password.Given() && !l.User.Given():
		return nil, fmt.Errorf("%s is set without %s: set both, or none", l.Password.Name, l.User.Name)
	case l.Creds.Given():
		if err := l.checkCreds(); err != nil {
			return nil, err
		}
		options = append(options, nats.UserJWT(l.jwt, l.signWithCreds))
	case l.NKey.Given():
		pair, err := l.pair(l.NKey)
		if err != nil {
			return nil, err
		}
		public, err := pair.PublicKey()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", l.NKey.Name, err)
		}
		options = append(options, nats.Nkey(public, func(nonce []byte) ([]byte, error) { return l.sign(l.NKey, nonce) }))
	case l.User.Given():
		if err := errors.Join(l.User.Validate(), l.Password.Validate()); err != nil {
			return nil, err
		}
		options = append(options, nats.UserInfoHandler(func() (string, string) {
			user, _ := l.User.Read()
			password, _ := l.Password.Read() // a file that is gone is a wrong password, and is tried again
			return user, password
		}))
	}
	config, err := l.TLS.Config()
	if err != nil {
		return nil, err
	}
	if config != nil {
		options = append(options, nats.Secure(config))
	}
	if l.Inbox != "" {
		if !inboxes.MatchString(l.Inbox) {
			return nil, fmt.Errorf("the prefix of reply subjects (TURNPIKE_NATS_INBOX; in Go, Inbox of the login) is %q: use a subject without spaces and wildcards, such as _INBOX_acme", l.Inbox)
		}
		options = append(options, nats.CustomInboxPrefix(l.Inbox))
	}
	return options, nil
}

var inboxes = regexp.MustCompile(`^[^\s.*>]+(\.[^\s.*>]+)*$`)

// checkCreds sees that there is a JWT and a seed.
func (l Login) checkCreds() error {
	if _, err := l.jwt(); err != nil {
		return err
	}
	_, err := l.pair(l.Creds)
	return err
}

func (l Login) jwt() (string, error) {
	text, err := l.Creds.Read()
	if err != nil {
		return "", err
	}
	token, err := nkeys.ParseDecoratedJWT([]byte(text))
	if err != nil || token == "" {
		return "", fmt.Errorf("%s has no user JWT: give the output of `nsc generate creds`", l.Creds.Setting())
	}
	return token, nil
}

func (l Login) signWithCreds(nonce []byte) ([]byte, error) { return l.sign(l.Creds, nonce) }

func (l Login) sign(v credential.Value, nonce []byte) ([]byte, error) {
	pair, err := l.pair(v)
	if err != nil {
		return nil, err
	}
	defer pair.Wipe()
	return pair.Sign(nonce)
}

// pair returns the key of a seed, which stands alone or in a creds file.
func (l Login) pair(v credential.Value) (nkeys.KeyPair, error) {
	text, err := v.Read()
	if err != nil {
		return nil, err
	}
	pair, err := nkeys.ParseDecoratedUserNKey([]byte(text))
	if err != nil {
		remedy := "give one, which begins with SU"
		if v == l.Creds {
			remedy = "give the output of `nsc generate creds`, which has the JWT and the seed"
		}
		return nil, fmt.Errorf("%s has no seed of a NATS user: %s", v.Setting(), remedy)
	}
	return pair, nil
}

// Environment returns what the variables of the environment say: those of the settings of
// gateways and workers.
func Environment() Login {
	read := func(name string) credential.Value {
		return credential.Value{Name: name, Text: os.Getenv(name), File: os.Getenv(name + "_FILE")}
	}
	return Login{
		Creds: read("TURNPIKE_NATS_CREDS"), NKey: read("TURNPIKE_NATS_NKEY"),
		User: read("TURNPIKE_NATS_USER"), Password: read("TURNPIKE_NATS_PASSWORD"),
		TLS:   credential.TLS{CA: read("TURNPIKE_NATS_CA"), Cert: read("TURNPIKE_NATS_CERT"), Key: read("TURNPIKE_NATS_KEY")},
		Inbox: os.Getenv("TURNPIKE_NATS_INBOX"),
	}
}

// ErrURL reports a URL that cannot be parsed or is not one of NATS. The text does not repeat it, because it may contain a password.
var ErrURL = errors.New("the NATS URL is not valid: write one such as nats://user:password@127.0.0.1:4222, with %2F for a / in the password")

// CheckURLs returns ErrURL if one of the URLs in address, separated by commas, is one of HTTP: the client of NATS would
// speak NATS to that server.
func CheckURLs(address string) error {
	for server := range strings.SplitSeq(address, ",") {
		scheme, _, _ := strings.Cut(strings.TrimSpace(server), "://")
		if scheme = strings.ToLower(scheme); scheme == "http" || scheme == "https" {
			return ErrURL
		}
	}
	return nil
}

// Advise appends the remedy of an error of nats.Connect to it, or other if Remedy knows none. ErrURL contains its own.
func Advise(err error, other string) error {
	if errors.Is(err, ErrURL) {
		return err
	}
	return fmt.Errorf("%w: %s", err, cmp.Or(Remedy(err), other))
}

// Remedy says what to do about a server that did not let a connection in, or nothing if that
// is not what the error says.
func Remedy(err error) string {
	if errors.Is(err, ErrURL) {
		return "correct TURNPIKE_NATS_URL, or in Go the URL in the options"
	}
	if errors.Is(err, nats.ErrAuthorization) {
		return "log in as a user of the server: set or correct TURNPIKE_NATS_CREDS, TURNPIKE_NATS_NKEY, or TURNPIKE_NATS_USER and TURNPIKE_NATS_PASSWORD, each also as _FILE; in Go, the login in the options"
	}
	return credential.TLSRemedy(err, "TURNPIKE_NATS")
}
