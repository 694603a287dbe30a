package service

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/turnpike-dev/turnpike/pkg/api"
)

// A firing that a gateway has decided before it died starts its run soon, also if the schedule is changed before that.
func TestDecidedFiringSurvivesChanges(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(f *firings){
		"pause": func(f *firings) {
			if _, err := f.current.Schedules.Pause(f.Context(), f.author, "s", true); err != nil {
				f.Fatal(err)
			}
		},
		"settings": func(f *firings) { f.put(api.ScheduleSettings{Cron: "@yearly"}) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				f := newFirings(t)
				f.put(api.ScheduleSettings{Cron: "*/10 * * * *"})
				time.Sleep(10 * time.Minute)
				if _, err := f.gateway(&deadStore{Store: f.store, left: 2, effect: true}).Schedules.Fire(t.Context()); err == nil {
					t.Fatal("the gateway lives")
				}
				change(f)
				f.want()
				f.keep(time.Minute, f.current)
				f.want(10)
			})
		})
	}
}
