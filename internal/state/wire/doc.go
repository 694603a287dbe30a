// Package wire reads and writes JSON by hand, for what a turn stores and reads: encoding/json
// takes several times as long (ADR 15). It knows no type of the project. Which fields there
// are, in which order, is said where the types are, in package state: with the types here,
// each package would have to import the other.
//
// What a Writer writes is, byte for byte, what encoding/json writes without escaping HTML.
// What a Reader takes it reads as encoding/json does; what it does not take is for that.
package wire
