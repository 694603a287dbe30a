package main

import (
	"cmp"
	"fmt"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

type workersCmd struct{}

func (*workersCmd) Run(e *env) error {
	list, err := e.client.Workers(e.ctx)
	if err != nil {
		return err
	}
	return e.print(api.NewPage(list, ""), table("WORKER\tSTATUS\tBUILD\tSLOTS\tHOLDS\tHEARD", list, func(w api.Worker) string {
		heard := "-"
		if !w.HeardAt.IsZero() {
			heard = w.HeardAt.Local().Format(time.DateTime)
		}
		return fmt.Sprintf("%s\t%s\t%s\t%d\t%d\t%s", w.ID, w.Status, cmp.Or(w.Version, "-"), w.Slots, w.Holds, heard)
	}))
}
