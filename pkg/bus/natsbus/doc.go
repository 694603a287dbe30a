// Package natsbus is the bus on NATS JetStream.
//
// Streams, for the prefix turnpike:
//
//	TURNPIKE_TURNS    turnpike.turn.<lane>.<shard>  work queue, one durable consumer per queue
//	TURNPIKE_TURNS_2  turnpike.turns.2.<lane>.<shard>  the same, in a deployment with several
//	TURNPIKE_LAYOUT   turnpike.layout               the list of streams of turns
//	TURNPIKE_SUBMIT   turnpike.submit.<agent>       work queue
//	TURNPIKE_CONTROL  turnpike.abort.<run_id>       work queue, also read by core subscriptions
//	TURNPIKE_EVENTS   turnpike.events.<run_id>      kept for three days
//	TURNPIKE_DEAD     turnpike.dead.<lane>          kept until the stream is full
//
// and without a stream: turnpike.live.<run_id>, turnpike.presence.<worker>.
package natsbus
