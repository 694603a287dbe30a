// Package wire writes and reads data by hand where encoding/json takes several times as long. It
// knows no type of the project. The fields are defined with the types, in package state: with the
// types here, each package would have to import the other.
//
// A Packer and an Unpacker write and read the stored form of runs. A Writer writes events: its
// output is, byte for byte, that of encoding/json without escaping HTML. See ADR 31.
package wire
