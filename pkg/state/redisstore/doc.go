// Package redisstore is a state.Store in Redis 7 or later: standalone, behind Sentinel, or in a cluster.
// Every change of a run is one script on one slot. Create and Delete also write an idempotency key or the
// record of a batch on other slots; a repetition after a crash completes them.
//
// Durability depends on the server: with appendonly and appendfsync always, every acknowledged
// change survives a power cut; with everysec, all but the last second or two. Replication is
// asynchronous, so a failover may roll runs back, unless Config.Confirm makes calls wait for
// replicas. Random claim tokens keep that safe, and the sweeper resumes the runs.
package redisstore
