// Package hookspec has the kinds of hook that ship with Turnpike, as far as gateways
// need them, and the complete kinds without external dependencies. Package natshook
// calls services.
package hookspec
