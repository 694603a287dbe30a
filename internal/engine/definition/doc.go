// Package definition turns stored definitions into compiled agents for the rest of the engine.
//
// [Agents] caches each version with its loops, replaces its tool sources with the tools they list
// and pins the list, and asks the kinds of tool for the descriptions that a definition leaves open.
// It also decides what an agent of a tenant may use at this moment: hosts, models, programs and
// secrets.
package definition
