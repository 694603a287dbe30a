// Package memorytool is the kind of tools with which a model keeps files for later runs: the commands of
// package memory, on the memory that the definition's scope names for the run.
package memorytool
