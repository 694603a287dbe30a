package worker

// ClaimEagerly lets a worker claim eagerly from its start, as if all other workers could take over its claims.
func (w *Worker) ClaimEagerly() { w.leases.AllowEager(true) }

// UseExecutor makes every step that needs a deep stack run on the executor, however few turns are in flight.
func UseExecutor() { fewTurns = -1 }
