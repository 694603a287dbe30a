// Package httptool makes tools of HTTP requests: templates that a call's arguments
// fill in.
package httptool
