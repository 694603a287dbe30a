// Package credential reads what a process shows to servers to be let in: passwords, keys,
// certificates.
//
// A [Value] is given as it is or by the name of a file that has it. [TLS] makes the settings of a
// connection of such values:
//
//	tls := credential.TLS{CA: credential.Value{File: "/run/secrets/ca.pem"}}
//	config, err := tls.Config()
//
// # Guarantees
//
//   - A file is read again at each use, so whoever replaces it needs to restart nothing. Of
//     [TLS.CA] alone that is not so.
//   - Errors name settings and files, and repeat nothing of what is in them.
package credential
