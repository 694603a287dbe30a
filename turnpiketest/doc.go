// Package turnpiketest tests agents, tools and loops in memory: a deployment with scripted models and
// one worker, without servers.
//
//	func TestPaysOnce(t *testing.T) {
//		turnpiketest.EachCrash(t, func(t *testing.T, open turnpiketest.Open) {
//			k := open(turnpike.Options{Tools: []turnpike.Tool{pay}})
//			a := turnpike.Agent{Name: "clerk", Tools: turnpike.Use(pay)}
//			run := k.Start(a, "Order 7", turnpiketest.Calls("pay", Refund{"7", 500}), turnpiketest.Says("Done."))
//			if i := k.WaitIdle(run); i.Status != "completed" {
//				t.Error(i.Status)
//			}
//		})
//	}
//
// [New] starts one deployment. [EachCrash] starts one for each time that a worker passes a [Point] at which
// it can die, on a fake clock, so that the seconds until another worker takes over take no real time.
//
// # Guarantees
//
// The worker, the loops, the gateway's checks and the formats are those of a real deployment; only
// the store and the bus are in memory. The n-th model call of a run gets the n-th [Reply] of its
// script, also after a crash. A crashed worker changes nothing any more, but a goroutine of a tool that it
// has called may still run: use fakes that return when their context ends, or [CrashHere].
//
// # Suites
//
// [Store], [Bus], [Loop] and [Provider] test implementations of the contracts in pkg/state, pkg/bus, pkg/loop
// and pkg/model. The implementations that ship with Turnpike pass the same suites. A store that has only a part
// of the contract passes [RunStore], [AdminStore], [Quotas] or [Timers].
package turnpiketest
