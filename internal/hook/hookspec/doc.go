// Package hookspec has the kinds of hook that ship with Turnpike, as far as gateways
// must know them, and those that need nobody outside. natshook asks services.
package hookspec
