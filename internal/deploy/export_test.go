package deploy

import "github.com/turnpike-dev/turnpike/internal/restore"

// Watch is what notices an older copy of the store.
func (d *Deployment) Watch() *restore.Watch { return d.watch }
