// Package credential reads the credentials that a process presents to servers: passwords, keys,
// certificates.
//
// A [Value] is literal or names a file. [TLS] makes the settings of a connection from such
// values:
//
//	tls := credential.TLS{CA: credential.Value{File: "/run/secrets/ca.pem"}}
//	config, err := tls.Config()
//
// # Guarantees
//
//   - A file is read again at each use, so replacing it needs no restart. [TLS.CA] is the exception.
//   - Errors name settings and files, and never repeat their contents.
package credential
