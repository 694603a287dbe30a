// Command gateway serves Turnpike's API and takes submissions from NATS.
package main

import "github.com/turnpike-dev/turnpike/internal/app"

func main() {
	app.Main("gateway", "Serves Turnpike's API and takes submissions from NATS.", app.ServeGateway)
}
