// Package toolspec has the kinds of tool that ship with Turnpike, as far as gateways
// need them: parsing of their definitions, and the needs of their calls. The code
// that makes the calls is in packages of its own (httptool, mcptool, a2atool,
// natstool), which only workers link.
package toolspec
