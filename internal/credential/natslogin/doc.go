// Package natslogin says how a process logs in to NATS servers: with a creds file, an nkey, a
// user and a password, or a client certificate.
package natslogin
