// Package admission decides which turns a worker starts: as many as it has slots, shared by
// lanes and tenants, and few at a time of those whose earlier workers were lost.
package admission
