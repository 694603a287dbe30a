package worker

// ClaimEagerly lets a worker claim eagerly from its start, as if all other workers could take over its claims.
func (w *Worker) ClaimEagerly() { w.leases.AllowEager(true) }
