package turnpike

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/credential"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// FromEnv sets fields of o that are unset from the variables TURNPIKE_* that the commands have: NATS and
// its login, Redis and its login, prefix, tenant, lease and retention. It also takes the API keys of
// the models of o and of the built-in providers from NAME_API_KEY, such as ANTHROPIC_API_KEY; workers
// use them if WorkerOptions.Keys has none. [Open] reports values that cannot be read. Set Models
// before the call. No other function of this package reads the environment.
func FromEnv(o *Options) {
	text := func(into *string, name string) {
		if *into == "" {
			*into = os.Getenv("TURNPIKE_" + name)
		}
	}
	text(&o.NATS.URL, "NATS_URL")
	text(&o.NATS.Domain, "NATS_DOMAIN")
	text(&o.Redis.URL, "REDIS_URL")
	text(&o.Redis.Confirm, "REDIS_CONFIRM")
	text(&o.Prefix, "PREFIX")
	text(&o.Tenant, "TENANT")
	number, lease, retention := "", "", ""
	text(&number, "NATS_REPLICAS")
	text(&lease, "LEASE")
	text(&retention, "RETENTION")
	parse(o, &o.NATS.Replicas, "NATS_REPLICAS", number, strconv.Atoi)
	parse(o, &o.LeaseDuration, "LEASE", lease, time.ParseDuration)
	parse(o, &o.Retention, "RETENTION", retention, agent.ParseRetention)

	n, r := &o.NATS.Login, &o.Redis.Login
	for name, into := range map[string]*credential.Value{
		"NATS_CREDS": &n.Creds, "NATS_NKEY": &n.NKey, "NATS_USER": &n.User, "NATS_PASSWORD": &n.Password,
		"NATS_CA": &n.TLS.CA, "NATS_CERT": &n.TLS.Cert, "NATS_KEY": &n.TLS.Key,
		"REDIS_USER": &r.User, "REDIS_PASSWORD": &r.Password, "REDIS_SENTINEL_USER": &r.SentinelUser, "REDIS_SENTINEL_PASSWORD": &r.SentinelPassword,
		"REDIS_CA": &r.TLS.CA, "REDIS_CERT": &r.TLS.Cert, "REDIS_KEY": &r.TLS.Key,
	} {
		if into.Text == "" && into.File == "" {
			name = "TURNPIKE_" + name
			*into = credential.Value{Name: name, Text: os.Getenv(name), File: os.Getenv(name + "_FILE")}
		}
	}
	text(&n.Inbox, "NATS_INBOX")

	o.keys = maps.Clone(o.keys)
	if o.keys == nil {
		o.keys = map[string]string{}
	}
	for _, name := range slices.Concat(model.BuiltinSpecs().Names(), slices.Collect(maps.Keys(o.Models))) {
		if key := os.Getenv(strings.ToUpper(strings.ReplaceAll(name, "-", "_")) + "_API_KEY"); key != "" {
			o.keys[name] = key
		}
	}
}

// parse sets a field that is unset to the value of a variable.
func parse[T any](o *Options, into *T, name, text string, read func(string) (T, error)) {
	if text == "" || any(*into) != any(*new(T)) {
		return
	}
	v, err := read(text)
	if err != nil {
		o.faults = append(o.faults, fmt.Errorf("TURNPIKE_%s is %q: %w", name, text, err))
		return
	}
	*into = v
}
