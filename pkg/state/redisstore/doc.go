// Package redisstore keeps runs in Redis 7 or later: standalone, behind Sentinel,
// or in a cluster. Every change of a run is one script on one slot.
//
// What is durable when a call returns depends on the server: with appendonly and
// appendfsync always, everything; with everysec, all but the last second or two
// of a power cut. Replication is asynchronous, so a failover may roll runs back, unless
// Config.Confirm has calls wait for replicas; random claim tokens keep that safe, and the
// sweeper drives them on.
package redisstore
