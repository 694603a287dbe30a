// Package mcptool makes tools of MCP servers: programs that speak over their standard
// streams, and servers that are asked over HTTP.
package mcptool
