package deploy

import "github.com/turnpike-dev/turnpike/internal/restore"

// Watch returns the detector of restored older copies of the store.
func (d *Deployment) Watch() *restore.Watch { return d.watch }
