package turnpike

import "github.com/turnpike-dev/turnpike/pkg/restore"

// Watch is what notices an older copy of the store.
func (d *Deployment) Watch() *restore.Watch { return d.watch }
