package turnpike

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/agent"
	"github.com/turnpike-dev/turnpike/pkg/model"
)

// FromEnv sets unset fields of o from the commands' variables TURNPIKE_*: NATS and its limits, Redis, the logins and
// bus keys (or files named by NAME_FILE), prefix, tenant, lease, maximum result, model extras and retention. If Issuer
// and Audience of OIDC are unset, it also sets the unset fields of OIDC; otherwise it leaves OIDC as it is. It takes
// the API keys of the models of o and of the built-in providers from NAME_API_KEY, such as ANTHROPIC_API_KEY; workers
// use those that WorkerOptions.Keys lacks. Workers and hooks look for secret://NAME in TURNPIKE_SECRET_NAME. [Open]
// reports values that cannot be read. Set Models before the call. Without FromEnv, the package reads no variable
// TURNPIKE_* and no API key from the environment.
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
	parse(o, &o.NATS.Replicas, "NATS_REPLICAS", integer)
	parse(o, &o.NATS.TurnStreams, "TURN_STREAMS", integer)
	parse(o, &o.NATS.MaxAckPending, "MAX_ACK_PENDING", integer)
	parse(o, &o.NATS.EventFeed, "EVENT_FEED", onOff)
	parse(o, &o.NATS.Limits.Submit, "SUBMIT_MIB", mebibytes)
	parse(o, &o.NATS.Limits.Control, "CONTROL_MIB", mebibytes)
	parse(o, &o.NATS.Limits.Dead, "DEAD_MIB", mebibytes)
	parse(o, &o.NATS.Limits.Events, "EVENTS_MIB", mebibytes)
	parse(o, &o.NATS.Limits.Files, "FILES_MIB", mebibytes)
	parse(o, &o.MaxResult, "MAX_RESULT", integer)
	if extra := os.Getenv("TURNPIKE_MODEL_EXTRA"); extra != "" && o.ModelExtra == nil {
		o.ModelExtra = strings.Split(extra, ",")
	}
	parse(o, &o.LeaseDuration, "LEASE", duration)
	parse(o, &o.Retention, "RETENTION", agent.ParseRetention)

	n, r := &o.NATS.Login, &o.Redis.Login
	for name, into := range map[string]*Secret{
		"NATS_CREDS": &n.Creds, "NATS_NKEY": &n.NKey, "NATS_USER": &n.User, "NATS_PASSWORD": &n.Password,
		"NATS_CA": &n.TLS.CA, "NATS_CERT": &n.TLS.Cert, "NATS_KEY": &n.TLS.Key,
		"REDIS_USER": &r.User, "REDIS_PASSWORD": &r.Password, "REDIS_SENTINEL_USER": &r.SentinelUser, "REDIS_SENTINEL_PASSWORD": &r.SentinelPassword,
		"REDIS_CA": &r.TLS.CA, "REDIS_CERT": &r.TLS.Cert, "REDIS_KEY": &r.TLS.Key,
	} {
		if !into.given() {
			*into = variable(name)
		}
	}
	text(&n.Inbox, "NATS_INBOX")
	if !o.NATS.Keys.given() {
		o.NATS.Keys = variable("BUS_KEYS")
	}
	if p := &o.OIDC; p.Issuer == "" && p.Audience == "" {
		text(&p.Issuer, "OIDC_ISSUER")
		text(&p.Audience, "OIDC_AUDIENCE")
		text(&p.Claims, "OIDC_CLAIMS")
		text(&p.ClientID, "OIDC_CLIENT_ID")
		if !p.ClientSecret.given() {
			p.ClientSecret = variable("OIDC_CLIENT_SECRET")
		}
		if scopes := os.Getenv("TURNPIKE_OIDC_SCOPES"); scopes != "" && p.Scopes == nil {
			p.Scopes = strings.Split(scopes, ",")
		}
	}

	o.getenv = os.Getenv
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

// variable returns the value of the variable TURNPIKE_NAME, or of the file that TURNPIKE_NAME_FILE names.
func variable(name string) Secret {
	name = "TURNPIKE_" + name
	return Secret{Text: os.Getenv(name), File: os.Getenv(name + "_FILE"), variable: name}
}

// mebibytes reads a number of MiB and returns it in bytes. A negative number means unlimited.
func mebibytes(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0, errors.New("set a whole number of MiB")
	}
	return n << 20, nil
}

// integer reads a whole number.
func integer(text string) (int, error) {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0, errors.New("set a whole number")
	}
	return n, nil
}

// duration reads a duration.
func duration(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil {
		return 0, errors.New("set a duration such as 30s")
	}
	return d, nil
}

// onOff reads "on" or "off".
func onOff(text string) (bool, error) {
	if text != "on" && text != "off" {
		return false, errors.New("set on or off")
	}
	return text == "on", nil
}

// parse sets a zero field to the value of a variable. Open reports a value that read refuses.
func parse[T comparable](o *Options, into *T, name string, read func(string) (T, error)) {
	text := os.Getenv("TURNPIKE_" + name)
	if text == "" || *into != *new(T) {
		return
	}
	v, err := read(text)
	if err != nil {
		o.faults = append(o.faults, fmt.Errorf("TURNPIKE_%s is %q: %w", name, text, err))
		return
	}
	*into = v
}
