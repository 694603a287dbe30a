package app

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/turnpike-dev/turnpike/pkg/state/memstore"
)

// process has the settings of all processes.
type process struct {
	Config
	GatewayConfig
	WorkerConfig
}

// check runs the checks of settings that need no server.
func (p process) check() error {
	if err := p.Config.Check(p.Heartbeat); err != nil {
		return err
	}
	if err := p.Deployment().Validate(); err != nil {
		return err
	}
	if _, err := p.Worker(); err != nil {
		return err
	}
	if _, err := p.Limits(); err != nil {
		return err
	}
	if err := p.checkFiles(p.Streams.Limits().Files); err != nil {
		return err
	}
	if _, err := HookSecrets(p.SecretsDir); err != nil {
		return err
	}
	_, _, err := p.Callers(memstore.New(memstore.Config{}))
	return err
}

// Settings that have no effect, or another one than they say, are refused at the start with their names.
func TestSettingsWithoutEffect(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                                     "",
		"--late-results=-1s":                   "TURNPIKE_LATE_RESULTS is -1s",
		"--late-results=0":                     "TURNPIKE_LATE_RESULTS is 0s",
		"--heartbeat=0":                        "TURNPIKE_HEARTBEAT is 0s",
		"--shutdown-grace=0":                   "TURNPIKE_SHUTDOWN_GRACE is 0s",
		"--answers-mib=0":                      "TURNPIKE_ANSWERS_MIB is 0",
		"--answers-mib=17592186044416":         "TURNPIKE_ANSWERS_MIB is 17592186044416 MiB: set at most",
		"--file-memory-mib=-1":                 "TURNPIKE_FILE_MEMORY_MIB is -1",
		"--views-mib=0":                        "TURNPIKE_VIEWS_MIB is 0",
		"--memory-mib=0":                       "TURNPIKE_MEMORY_MIB is 0",
		"--mcp-memory-mib=0":                   "TURNPIKE_MCP_MEMORY_MIB is 0",
		"--lease=0":                            "TURNPIKE_LEASE is 0s",
		"--lease=1s":                           "lease is 1s and must be more than 1.2s",
		"--lease=1s --heartbeat=100ms":         "",
		"--replicas=0":                         "TURNPIKE_NATS_REPLICAS is 0",
		"--max-result=0":                       "TURNPIKE_MAX_RESULT is 0",
		"--max-result=107374182400":            "(TURNPIKE_MAX_RESULT; in Go, MaxResult)",
		"--max-result=33554432":                "",
		"--submit-mib=0":                       "TURNPIKE_SUBMIT_MIB is 0: set more than 0, or unset it for the default, or set -1",
		"--files-mib=-2":                       "TURNPIKE_FILES_MIB is -2",
		"--events-mib=-1 --files-mib=-1":       "",
		"--max-file-mib=0":                     "TURNPIKE_MAX_FILE_MIB is 0",
		"--max-file-mib=33 --files-mib=32":     "lower TURNPIKE_MAX_FILE_MIB or raise TURNPIKE_FILES_MIB",
		"--max-file-mib=9000 --files-mib=-1":   "",
		"--tenant-bodies-mib=97":               "TURNPIKE_TENANT_BODIES_MIB is 97, more than TURNPIKE_BODIES_MIB, which is 96",
		"--tenant-bodies-mib=0":                "TURNPIKE_TENANT_BODIES_MIB is 0",
		"--bodies-mib=16":                      "",
		"--connections=3000":                   "",
		"--tenant-connections=10001":           "TURNPIKE_TENANT_CONNECTIONS is 10001, more than TURNPIKE_CONNECTIONS",
		"--principal-connections=10001":        "TURNPIKE_PRINCIPAL_CONNECTIONS is 10001, more than TURNPIKE_CONNECTIONS",
		"--tenant-streams=0":                   "TURNPIKE_TENANT_STREAMS is 0",
		"--secrets-dir=/nope":                  "/nope, cannot be used",
		"--secrets-dir=" + file:                "TURNPIKE_SECRETS_DIR",
		"--secrets-dir=" + filepath.Dir(file):  "",
		"--oidc-issuer=https://id.example.com": "TURNPIKE_AUTH is none, so TURNPIKE_OIDC_ISSUER would",
		"--auth=keys --oidc-scopes=a,b --oidc-client-secret-file=/nope": "TURNPIKE_AUTH is keys, so TURNPIKE_OIDC_CLIENT_SECRET_FILE and TURNPIKE_OIDC_SCOPES would",
		"--session=-1s":       "TURNPIKE_SESSION is -1s",
		"--redis-confirm=aof": "set TURNPIKE_REDIS_URL, or unset TURNPIKE_REDIS_CONFIRM (in Go, Redis.URL and Redis.Confirm)",
		"--redis-url=redis://a:1 --redis-confirm=aof":                     "",
		"--redis-sentinel-user=s":                                         "set TURNPIKE_REDIS_URL (in Go, Redis.URL), or unset TURNPIKE_REDIS_SENTINEL_USER",
		"--redis-sentinel-password-file=/run/s":                           "set TURNPIKE_REDIS_URL (in Go, Redis.URL), or unset TURNPIKE_REDIS_SENTINEL_PASSWORD",
		"--redis-ca-file=/run/ca --redis-cert-file=c":                     "set TURNPIKE_REDIS_URL (in Go, Redis.URL), or unset TURNPIKE_REDIS_CERT",
		"--redis-key=k":                                                   "set TURNPIKE_REDIS_URL (in Go, Redis.URL), or unset TURNPIKE_REDIS_KEY",
		"--redis-url=rediss://a:1 --redis-ca=pem --redis-sentinel-user=s": "",
		"--redis-user=worker --redis-password-file=/run/redis":            "", // turnpike secrets writes them
	} {
		var p process
		k, err := kong.New(&p)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := k.Parse(strings.Fields(args)); err != nil {
			t.Fatal(err)
		}
		if err := p.check(); (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", args, err, want)
		}
	}
}

// A limit of a tenant that has its default is lowered to that of the gateway.
func TestDefaultsFitTheirLimits(t *testing.T) {
	t.Parallel()
	limits, err := LimitsConfig{
		BodiesMiB: 16, TenantBodiesMiB: 24, Connections: 3000, TenantConnections: 4000, PrincipalConnections: 2000, TenantStreams: 1, PrincipalStreams: 1, TenantWaits: 1, PrincipalWaits: 1,
	}.Limits()
	if err != nil || limits.TenantBodyBytes != 16<<20 || limits.TenantConnections != 3000 || limits.PrincipalConnections != 2000 {
		t.Errorf("%+v, %v", limits, err)
	}
}

// A gateway refuses a lease that workers refuse before it connects: it would give the lease to the consumers of turns.
func TestGatewayChecksTheLease(t *testing.T) {
	t.Parallel()
	var cfg GatewayProcess
	k, err := kong.New(&cfg)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Parse([]string{"--lease=1s", "--nats-url=nats://127.0.0.1:1", "--addr=127.0.0.1:0"}); err != nil {
		t.Fatal(err)
	}
	if err := ServeGateway(t.Context(), cfg); err == nil || !strings.Contains(err.Error(), "lease is 1s and must be more than 1.2s") || !strings.Contains(err.Error(), "TURNPIKE_LEASE") {
		t.Errorf("ServeGateway = %v, want an error about the lease", err)
	}
}
