package credential

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
)

// Value is a credential: literal, or in a file. The zero value means that none is set.
type Value struct {
	Name string // of the setting, for errors
	Text string
	File string
}

// Given reports whether there is one.
func (v Value) Given() bool { return v.Text != "" || v.File != "" }

// textName returns the name of the setting that has the value itself: an option of package turnpike, which contains a
// dot, has the field Text, and a variable is its own name.
func (v Value) textName() string {
	if strings.Contains(v.Name, ".") {
		return v.Name + ".Text"
	}
	return v.Name
}

// fileName returns the name of the setting that names the file.
func (v Value) fileName() string {
	if strings.Contains(v.Name, ".") {
		return v.Name + ".File"
	}
	return v.Name + "_FILE"
}

// Setting returns the name of the setting that gives the value, with the path of its file.
func (v Value) Setting() string {
	if v.File == "" {
		return v.textName()
	}
	return fmt.Sprintf("the file %s of %s", v.File, v.fileName())
}

// Validate refuses a value that is given twice, or whose file cannot be read or is empty.
func (v Value) Validate() error {
	_, err := v.Read()
	return err
}

// Read returns the value, without white space at the end of its file. It is empty if none is
// given.
func (v Value) Read() (string, error) {
	switch {
	case v.Text != "" && v.File != "":
		return "", fmt.Errorf("%s and %s are both set: unset one of them", v.textName(), v.fileName())
	case v.File == "":
		return v.Text, nil
	}
	data, err := os.ReadFile(v.File)
	if err != nil {
		return "", fmt.Errorf("%s names a file that cannot be read (%w): name a file that this process may read", v.fileName(), err)
	}
	text := strings.TrimRight(string(data), " \t\r\n")
	if text == "" {
		return "", fmt.Errorf("%s: the file %s is empty: write the value into the file", v.fileName(), v.File)
	}
	return text, nil
}

// TLS says whom a connection trusts and with what it shows who it is. Each value is PEM.
type TLS struct {
	CA   Value // certificates of who signs those of servers; without, those that the system trusts
	Cert Value // the certificate of this client, and those between it and its CA
	Key  Value // of Cert
}

// Given reports whether any value is set.
func (t TLS) Given() bool { return t.CA.Given() || t.Cert.Given() || t.Key.Given() }

// Config returns the settings of a connection, or nil if no value is set.
func (t TLS) Config() (*tls.Config, error) {
	if !t.Given() {
		return nil, nil //nolint:nilnil // that is what nothing is
	}
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if t.CA.Given() {
		text, err := t.CA.Read()
		if err != nil {
			return nil, err
		}
		config.RootCAs = x509.NewCertPool()
		if !config.RootCAs.AppendCertsFromPEM([]byte(text)) {
			return nil, fmt.Errorf("%s has no certificate: give it in PEM, which begins with -----BEGIN CERTIFICATE-----", t.CA.Setting())
		}
	}
	if t.Cert.Given() != t.Key.Given() {
		return nil, fmt.Errorf("only one of %s and %s is set: set both or none", t.Cert.Name, t.Key.Name)
	}
	if t.Cert.Given() {
		if _, err := t.certificate(); err != nil {
			return nil, err
		}
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return t.certificate() }
	}
	return config, nil
}

func (t TLS) certificate() (*tls.Certificate, error) {
	cert, err := t.Cert.Read()
	key, keyErr := t.Key.Read()
	if err := errors.Join(err, keyErr); err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair([]byte(cert), []byte(key))
	if err != nil {
		return nil, fmt.Errorf("%s and %s are not a certificate and its private key (%w): give a certificate and the key that belongs to it, both in PEM", t.Cert.Setting(), t.Key.Setting(), err)
	}
	return &pair, nil
}

// TLSRemedy says what to do about a connection that TLS refused, or nothing if it is not that.
// Names of settings about it begin with prefix.
func TLSRemedy(err error, prefix string) string {
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok {
		return "set the certificate authority that signed the server's certificate: " + prefix + "_CA_FILE, or in Go TLS.CA of the login"
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return "connect with a host name that the server's certificate has, or give the server a certificate with this name"
	}
	if e, ok := errors.AsType[x509.CertificateInvalidError](err); ok && e.Reason == x509.Expired {
		return "renew the server's certificate, and check the clocks of both machines"
	}
	// With TLS 1.3 a server that requires a certificate reports this after the handshake, or not
	// at all.
	if err != nil && (strings.Contains(err.Error(), "certificate required") || strings.Contains(err.Error(), "after TLS handshake")) {
		return "the server requires a client certificate: set " + prefix + "_CERT_FILE and " + prefix + "_KEY_FILE, or in Go TLS.Cert and TLS.Key of the login"
	}
	return ""
}
