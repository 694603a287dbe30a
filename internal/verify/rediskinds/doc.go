// Package rediskinds holds the tests of the store on relatives of a single Redis: a cluster, Sentinels, and
// Valkey, as processes that require passwords. `make redis-kinds` runs them.
package rediskinds
