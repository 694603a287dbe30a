// Package toolspec has what gateways need of the kinds of tool that ship with Turnpike: the parsing of their
// definitions, and the needs of their calls. The code that makes the calls is in other packages (httptool, mcptool,
// a2atool, natstool, memorytool), which only workers link.
package toolspec
