// Package admission decides which turns a worker begins: as many as it has slots, shared by
// lanes and tenants, and few at a time of those with which workers were lost.
package admission
