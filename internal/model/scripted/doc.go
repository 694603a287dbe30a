// Package scripted is a model whose answers are written down in advance: the
// n-th call of a run gets the n-th answer. It makes runs deterministic, on any
// number of workers, because the count is kept in the run.
package scripted
