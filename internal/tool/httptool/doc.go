// Package httptool makes tools of HTTP requests: the arguments of a call are filled into a template.
package httptool
