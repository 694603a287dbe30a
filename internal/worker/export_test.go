package worker

// ClaimEagerly lets a worker claim eagerly from its start: it knows that all others take over
// what it has claimed.
func (w *Worker) ClaimEagerly() { w.leases.AllowEager(true) }

// UseExecutor has every step that needs a deep stack run on the executor, however few turns
// are in flight.
func UseExecutor() { fewTurns = -1 }
