// Package mcptool makes tools of MCP servers: programs that communicate over their standard streams, and servers
// reached over HTTP.
package mcptool
