// Package onestore detects that processes of one deployment keep their runs in different stores, as after a start
// without TURNPIKE_REDIS_URL. All workers take turns from the same queues, so a worker receives messages of runs that
// only the other store has. Such a run is not lost.
//
//	watch := onestore.NewWatch("Redis", redis.ID, log)
//	go watch.Run(ctx)
//	store, bus := watch.Store(redis), watch.Bus(natsbus)
//
// Heartbeats name the store of their process. While a live process has another store, the wrapper of the store records
// no run as lost, and lets the messages of missing runs be delivered again.
package onestore
