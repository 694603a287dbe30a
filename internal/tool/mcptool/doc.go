// Package mcptool makes tools of MCP servers: programs that speak over their standard
// streams, and servers reached over HTTP.
package mcptool
