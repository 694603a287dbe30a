// Package wire reads and writes JSON by hand, for the data that a turn stores and reads:
// encoding/json takes several times as long (ADR 15). It knows no type of the project. The fields
// and their order are defined with the types, in package state: with the types here, each package
// would have to import the other.
//
// A Writer's output is, byte for byte, that of encoding/json without escaping HTML. A Reader reads
// like encoding/json; input that it does not accept must be read with encoding/json.
package wire
