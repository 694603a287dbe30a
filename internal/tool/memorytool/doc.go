// Package memorytool is the kind of tools that let a model keep files for later runs. A call executes a command of
// package memory, on the memory that the scope in the definition selects for the run.
package memorytool
