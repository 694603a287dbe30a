// Package degraded takes the dependencies of a deployment away, fills them or slows them down, and
// checks from outside what users see meanwhile and afterwards. It consists of tests.
package degraded
