package toolkit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/turnpike-dev/turnpike/internal/credential/natslogin"
	"github.com/turnpike-dev/turnpike/internal/devaddr"
)

// Config has the connection and the tenant of Run.
type Config struct {
	URL string // of the NATS server; default nats://127.0.0.1:4222

	Prefix string // of the deployment's subjects; default turnpike
	Tenant string // tenant whose runs call the tools; default the tenant default

	// Options are options of the connection, such as nats.UserCredentials. They take precedence over the login that
	// FromEnv finds.
	Options []nats.Option

	login natslogin.Login // from FromEnv
}

// FromEnv sets unset fields of cfg from TURNPIKE_NATS_URL, TURNPIKE_PREFIX and TURNPIKE_TENANT. It takes the login from
// TURNPIKE_NATS_INBOX and from TURNPIKE_NATS_CREDS, _NKEY, _USER, _PASSWORD, _CA, _CERT and _KEY, or from the files
// that TURNPIKE_NATS_CREDS_FILE and so on name. Without a URL it uses the NATS server of a `turnpike dev` that runs in
// the working directory, or nats://127.0.0.1:4222 if there is none. [Run] reports a login that it cannot use. No other
// function of this package reads the environment.
func FromEnv(cfg *Config) {
	cfg.URL = devaddr.Server(cmp.Or(cfg.URL, os.Getenv("TURNPIKE_NATS_URL")))
	cfg.Prefix = cmp.Or(cfg.Prefix, os.Getenv("TURNPIKE_PREFIX"))
	cfg.Tenant = cmp.Or(cfg.Tenant, os.Getenv("TURNPIKE_TENANT"))
	cfg.login = natslogin.Environment()
}

// Run connects and serves tools until ctx ends. Then it accepts no more calls, waits until those in flight are
// answered, and returns nil, or the error of the connection. The end of ctx does not end the context of a call. Run
// returns an error at once if tools is empty, or if cfg or a tool is invalid. Unless Options say otherwise, it also
// returns an error if the first connection fails, without a retry, and reconnects without a limit of time if the
// connection breaks later. Once it serves, it does not return before ctx ends, even if Options let the connection give
// up.
func Run(ctx context.Context, cfg Config, tools ...Tool) error {
	if len(tools) == 0 {
		return errors.New("serve tools: the list of tools is empty: pass at least one tool")
	}
	login, err := cfg.login.Options()
	if err != nil {
		return err
	}
	options := append([]nats.Option{
		nats.Name("tool " + tools[0].Name), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.IgnoreAuthErrorAbort(), // rotated credentials may take a while to reach all servers
	}, append(login, cfg.Options...)...)
	if err := natslogin.CheckURLs(cfg.URL); err != nil {
		return fmt.Errorf("connect to NATS: %w", err)
	}
	nc, err := nats.Connect(cmp.Or(cfg.URL, nats.DefaultURL), options...)
	if _, ok := errors.AsType[*url.Error](err); ok {
		err = natslogin.ErrURL // the parser's error repeats the URL, including the password
	}
	if err != nil {
		return fmt.Errorf("connect to NATS: %w", natslogin.Advise(err, "check that the server runs and accepts this connection; its address is Config.URL or, if the program calls toolkit.FromEnv and Config.URL is empty, TURNPIKE_NATS_URL"))
	}
	defer nc.Close()
	stop, err := ServeTenant(nc, cmp.Or(cfg.Prefix, "turnpike"), cfg.Tenant, tools...)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}
