package app

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"github.com/redis/go-redis/v9"

	"github.com/turnpike-dev/turnpike/internal/keys"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// elsewhere are the variables of commands that are not services, by name. A test of
// cmd/turnpike checks that the list is complete.
var elsewhere = []string{
	"TURNPIKE_CONFIG", "TURNPIKE_URL", "TURNPIKE_TOKEN", "TURNPIKE_CA_FILE", "TURNPIKE_DATA_DIR", "TURNPIKE_NATS_LISTEN", "TURNPIKE_AGENTS",
	"TURNPIKE_REAL_DATA", "TURNPIKE_PORT", "TURNPIKE_REDIS_IMAGE", "TURNPIKE_NATS_IMAGE", "TURNPIKE_MCP_NODE_MODULES", "TURNPIKE_CHAOS_LEDGER",
}

// foreign matches variables that begin like settings but are not: secrets, variables of
// tests, and those that Kubernetes sets for a service whose name begins with turnpike.
var foreign = regexp.MustCompile(`^TURNPIKE_(?:SECRET_.*|TEST_.*|(?:.*_)?SERVICE_(?:HOST|PORT.*)|(?:.*_)?PORT(?:_\d+_(?:TCP|UDP).*)?)$`)

// UnknownVariables returns the TURNPIKE_ variables of an environment that no process of a
// deployment reads, each with the name that is nearest to it, or "".
func UnknownVariables(environ []string) (map[string]string, error) {
	services, err := kong.New(&struct {
		Config
		GatewayConfig
		TenantConfig
		DrainConfig
		AdminConfig
		WorkerConfig
	}{})
	if err != nil {
		return nil, err
	}
	known := slices.Clone(elsewhere)
	for _, f := range services.Model.Flags {
		known = append(known, f.Envs...)
	}
	unknown := map[string]string{}
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if strings.HasPrefix(name, "TURNPIKE_") && !slices.Contains(known, name) && !foreign.MatchString(name) {
			unknown[name] = keys.Nearest(name, known)
		}
	}
	return unknown, nil
}

// warnOfVariables logs misspelt settings, which have no effect.
func warnOfVariables(log *slog.Logger) error {
	unknown, err := UnknownVariables(os.Environ())
	for name, near := range unknown {
		log.Warn("an environment variable begins with TURNPIKE_ but is not a setting, it is ignored", "variable", name, "hint", meant(near))
	}
	return err
}

// VariableFindings returns a finding for each misspelt setting of an environment.
func VariableFindings(environ []string) (findings []state.Finding) {
	unknown, err := UnknownVariables(environ)
	if err != nil {
		return []state.Finding{{Name: "settings", Detail: err.Error()}}
	}
	for _, name := range slices.Sorted(maps.Keys(unknown)) {
		findings = append(findings, state.Finding{Name: "variable: " + name, Detail: "begins with TURNPIKE_ but is not a setting, it is ignored", Remedy: meant(unknown[name])})
	}
	return findings
}

// meant returns the remedy for a misspelt setting; near is the name nearest to it, or "".
func meant(near string) string {
	const find = "find the variables in docs/reference/settings.md"
	if near == "" {
		return find
	}
	return fmt.Sprintf("did you mean %s? %s", near, find)
}

// redisLog receives the Redis client's messages about its connections: calls report their
// errors themselves.
type redisLog struct{ log *slog.Logger }

func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	if l.log.Enabled(ctx, slog.LevelDebug) {
		l.log.Debug("redis client: " + fmt.Sprintf(format, args...))
	}
}

// QuietRedis has the client of Redis log at level debug, in the whole process. It is called
// before the first client is made.
func QuietRedis(log *slog.Logger) { redis.SetLogger(redisLog{log}) }
