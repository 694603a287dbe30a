// Package natsbus is the bus on NATS JetStream.
//
// Streams, for the prefix turnpike:
//
//	TURNPIKE_TURNS    turnpike.turn.<lane>.<shard>  work queue, one durable consumer a lane
//	TURNPIKE_SUBMIT   turnpike.submit.<agent>       work queue
//	TURNPIKE_CONTROL  turnpike.abort.<run_id>       work queue, heard by core subscriptions too
//	TURNPIKE_EVENTS   turnpike.events.<run_id>      kept for three days
//	TURNPIKE_DEAD     turnpike.dead.<lane>          kept until the stream is full
//
// and without a stream: turnpike.live.<run_id>, turnpike.presence.<worker>.
package natsbus
