// Package natsbus is the bus on NATS JetStream.
//
// Streams, for the prefix turnpike:
//
//	TURNPIKE_TURNS    turnpike.turn.<queue>.<shard>  work queue, one durable consumer per queue
//	TURNPIKE_TURNS_2  turnpike.turns.2.<queue>.<shard>  the same, in a deployment with several
//	TURNPIKE_LAYOUT   turnpike.layout               the list of streams of turns, if there were several
//	TURNPIKE_MARK     turnpike.mark                 the mark that reveals an older copy of the store
//	TURNPIKE_SUBMIT   turnpike.submit.<agent>       work queue
//	TURNPIKE_CONTROL  turnpike.abort.<run_id>       work queue, also read by core subscriptions
//	TURNPIKE_EVENTS   turnpike.events.<run_id>      the event feed, if enabled; by default kept for three days
//	TURNPIKE_DEAD     turnpike.dead.<lane>          kept until the stream is full
//	TURNPIKE_FILES    turnpike.file.<name>          uploaded files, kept until they are deleted
//
// Each tenant but the default one has its own streams from SUBMIT on: TURNPIKE_SUBMIT_<tenant> with
// turnpike.t.<tenant>.submit.<agent>, and so on. Without a stream: turnpike.live.<run_id>,
// turnpike.grown.<run_id>, turnpike.deleted.<run_id>, turnpike.watch, turnpike.presence.<worker> and
// turnpike.layout.changed.
package natsbus
