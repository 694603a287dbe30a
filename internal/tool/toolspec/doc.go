// Package toolspec has the kinds of tool that ship with Turnpike, as far as gateways
// must know them: how their definitions are read and what their calls need. What
// makes the calls is in packages of its own (httptool, mcptool, a2atool, natstool),
// which only workers link.
package toolspec
