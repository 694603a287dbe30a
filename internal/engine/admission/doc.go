// Package admission decides which turns a worker starts: as many as it has slots, shared by lanes and tenants,
// and few at a time of those whose earlier workers were lost. It also bounds the memory for results, and the
// outcomes of calls that the store does not have yet.
package admission
