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
)

// Config says where tools are served.
type Config struct {
	// URL of the NATS server; empty is DefaultURL.
	URL string

	// Prefix of the deployment's subjects; empty is the variable TURNPIKE_PREFIX, and
	// without it turnpike.
	Prefix string

	// Tenant whose runs call the tools; empty is the variable TURNPIKE_TENANT, and without it
	// the default tenant.
	Tenant string

	// Options of the connection, such as nats.UserCredentials. They come after what the
	// variables TURNPIKE_NATS_CREDS, _NKEY, _USER, _PASSWORD, _CA, _CERT and _KEY say, each of
	// which may end in _FILE.
	Options []nats.Option
}

// Run connects and serves tools until ctx ends; then it takes no more calls, waits
// for those that it has, and returns nil. A server that is gone is waited for, as
// long as it takes, but must be there at the start.
func Run(ctx context.Context, cfg Config, tools ...Tool) error {
	if len(tools) == 0 {
		return errors.New("serve tools: there are none")
	}
	address := ServerURL(cmp.Or(cfg.URL, os.Getenv("TURNPIKE_NATS_URL")))
	prefix := cmp.Or(cfg.Prefix, os.Getenv("TURNPIKE_PREFIX"), "turnpike")
	tenant := cmp.Or(cfg.Tenant, os.Getenv("TURNPIKE_TENANT"))
	login, err := natslogin.Environment().Options()
	if err != nil {
		return err
	}
	options := append([]nats.Option{
		nats.Name("tool " + tools[0].Name), nats.MaxReconnects(-1), nats.ReconnectWait(time.Second),
		nats.IgnoreAuthErrorAbort(), // rotated credentials may need a while to be known everywhere
	}, append(login, cfg.Options...)...)
	nc, err := nats.Connect(address, options...)
	if _, ok := errors.AsType[*url.Error](err); ok {
		err = errors.New("the URL cannot be read") // its error repeats it, with the password in it
	}
	if err != nil {
		return fmt.Errorf("connect to NATS: %w: %s", err, cmp.Or(natslogin.Remedy(err), "TURNPIKE_NATS_URL sets the address"))
	}
	defer nc.Close()
	stop, err := ServeTenant(nc, prefix, tenant, tools...)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return stop()
}
