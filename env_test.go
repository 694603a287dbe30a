package turnpike_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike"
)

// Each variable sets its own field, and none that is set already.
func TestFromEnvSetsEachField(t *testing.T) {
	secret := func(of func(o *turnpike.Options) *turnpike.Secret) func(o *turnpike.Options) string {
		return func(o *turnpike.Options) string { return of(o).Text }
	}
	fields := []struct {
		name, value, want string
		field             func(o *turnpike.Options) string
	}{
		{"NATS_URL", "nats://n", "nats://n", func(o *turnpike.Options) string { return o.NATS.URL }},
		{"NATS_DOMAIN", "d", "d", func(o *turnpike.Options) string { return o.NATS.Domain }},
		{"NATS_INBOX", "i", "i", func(o *turnpike.Options) string { return o.NATS.Login.Inbox }},
		{"NATS_REPLICAS", "3", "3", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.Replicas) }},
		{"TURN_STREAMS", "4", "4", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.TurnStreams) }},
		{"MAX_ACK_PENDING", "5", "5", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.MaxAckPending) }},
		{"EVENT_FEED", "on", "true", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.EventFeed) }},
		{"SUBMIT_MIB", "6", "6291456", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.Limits.Submit) }},
		{"CONTROL_MIB", "7", "7340032", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.Limits.Control) }},
		{"DEAD_MIB", "8", "8388608", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.Limits.Dead) }},
		{"EVENTS_MIB", "9", "9437184", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.Limits.Events) }},
		{"FILES_MIB", "-1", "-1048576", func(o *turnpike.Options) string { return fmt.Sprint(o.NATS.Limits.Files) }},
		{"REDIS_URL", "redis://r", "redis://r", func(o *turnpike.Options) string { return o.Redis.URL }},
		{"REDIS_CONFIRM", "aof", "aof", func(o *turnpike.Options) string { return o.Redis.Confirm }},
		{"PREFIX", "p", "p", func(o *turnpike.Options) string { return o.Prefix }},
		{"TENANT", "t", "t", func(o *turnpike.Options) string { return o.Tenant }},
		{"MAX_RESULT", "10", "10", func(o *turnpike.Options) string { return fmt.Sprint(o.MaxResult) }},
		{"MODEL_EXTRA", "a:b,c:d", "a:b c:d", func(o *turnpike.Options) string { return strings.Join(o.ModelExtra, " ") }},
		{"LEASE", "30s", "30s", func(o *turnpike.Options) string { return o.LeaseDuration.String() }},
		{"RETENTION", "completed: 30d", "30d", func(o *turnpike.Options) string { return fmt.Sprint(o.Retention.Completed) }},
		{"NATS_CREDS", "s1", "s1", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.Creds })},
		{"NATS_NKEY", "s2", "s2", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.NKey })},
		{"NATS_USER", "s3", "s3", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.User })},
		{"NATS_PASSWORD", "s4", "s4", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.Password })},
		{"NATS_CA", "s5", "s5", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.TLS.CA })},
		{"NATS_CERT", "s6", "s6", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.TLS.Cert })},
		{"NATS_KEY", "s7", "s7", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Login.TLS.Key })},
		{"REDIS_USER", "s8", "s8", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.User })},
		{"REDIS_PASSWORD", "s9", "s9", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.Password })},
		{"REDIS_SENTINEL_USER", "s10", "s10", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.SentinelUser })},
		{"REDIS_SENTINEL_PASSWORD", "s11", "s11", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.SentinelPassword })},
		{"REDIS_CA", "s12", "s12", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.TLS.CA })},
		{"REDIS_CERT", "s13", "s13", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.TLS.Cert })},
		{"REDIS_KEY", "s14", "s14", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.Redis.Login.TLS.Key })},
		{"BUS_KEYS", "s15", "s15", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.NATS.Keys })},
		{"OIDC_ISSUER", "o1", "o1", func(o *turnpike.Options) string { return o.OIDC.Issuer }},
		{"OIDC_AUDIENCE", "o2", "o2", func(o *turnpike.Options) string { return o.OIDC.Audience }},
		{"OIDC_CLAIMS", "o3", "o3", func(o *turnpike.Options) string { return o.OIDC.Claims }},
		{"OIDC_CLIENT_ID", "o4", "o4", func(o *turnpike.Options) string { return o.OIDC.ClientID }},
		{"OIDC_CLIENT_SECRET", "o5", "o5", secret(func(o *turnpike.Options) *turnpike.Secret { return &o.OIDC.ClientSecret })},
		{"OIDC_SCOPES", "openid,groups", "openid groups", func(o *turnpike.Options) string { return strings.Join(o.OIDC.Scopes, " ") }},
	}
	var o turnpike.Options
	set := func(value func(i int) string) {
		for i, f := range fields {
			t.Setenv("TURNPIKE_"+f.name, value(i))
		}
		turnpike.FromEnv(&o)
	}
	set(func(int) string { return "" })
	for _, f := range fields {
		if got := f.field(&o); got == f.want {
			t.Errorf("without TURNPIKE_%s its field is %s", f.name, got)
		}
	}
	set(func(i int) string { return fields[i].value })
	for _, f := range fields {
		if got := f.field(&o); got != f.want {
			t.Errorf("TURNPIKE_%s=%s gives %s, want %s", f.name, f.value, got, f.want)
		}
	}
	set(func(int) string { return "1" })
	for _, f := range fields {
		if got := f.field(&o); got != f.want {
			t.Errorf("TURNPIKE_%s=1 changes %s to %s", f.name, f.want, got)
		}
	}
}
