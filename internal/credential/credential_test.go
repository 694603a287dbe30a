package credential_test

import (
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/turnpike-dev/turnpike/internal/credential"
)

// A connection that TLS refused has a remedy, which names the settings of that connection.
func TestTLSRemedy(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err  error
		want string // the begin of the remedy; "" means none
	}{
		"unknown authority":    {x509.UnknownAuthorityError{}, "set the certificate authority that signed the server's certificate: X_CA_FILE"},
		"another name":         {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "h"}, "connect with a host name"},
		"expired":              {x509.CertificateInvalidError{Reason: x509.Expired}, "renew the server's certificate"},
		"invalid":              {x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, ""},
		"certificate required": {errors.New("remote error: tls: certificate required"), "the server requires a client certificate: set X_CERT_FILE and X_KEY_FILE"},
		"after the handshake":  {errors.New("EOF after TLS handshake"), "the server requires a client certificate"},
		"something else":       {errors.New("connection refused"), ""},
		"nothing":              {nil, ""},
	} {
		for _, err := range []error{c.err, fmt.Errorf("dial: %w", c.err)} {
			if c.err == nil && err != nil {
				continue
			}
			if got := credential.TLSRemedy(err, "X"); !strings.HasPrefix(got, c.want) || (got == "") != (c.want == "") {
				t.Errorf("%s: %q, want %q", name, got, c.want)
			}
		}
	}
}
