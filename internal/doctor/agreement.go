package doctor

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/turnpike-dev/turnpike/pkg/bus/natsbus"
	"github.com/turnpike-dev/turnpike/pkg/state"
)

// values are the processes with each value of each setting that must be the same in all of them, by the heartbeats.
type values map[string]map[string]map[string]bool

// add adds the settings of a process.
func (v values) add(worker string, settings map[string]string) {
	for name, value := range settings {
		if v[name] == nil {
			v[name] = map[string]map[string]bool{}
		}
		if v[name][value] == nil {
			v[name][value] = map[string]bool{}
		}
		v[name][value][worker] = true
	}
}

// findings returns the finding about settings that differ, if there are any.
func (v values) findings() []state.Finding {
	var differ []string
	for _, name := range slices.Sorted(maps.Keys(v)) {
		var text []string
		for _, value := range slices.Sorted(maps.Keys(v[name])) {
			processes := slices.Sorted(maps.Keys(v[name][value]))
			text = append(text, fmt.Sprintf("%s in %d, such as %s", value, len(processes), processes[0]))
		}
		if len(text) > 1 {
			differ = append(differ, name+" is "+strings.Join(text, "; "))
		}
	}
	if len(differ) == 0 {
		return nil
	}
	return []state.Finding{{Name: "settings of processes", Detail: strings.Join(differ, ". "), Remedy: "set these variables to the same value in every gateway and worker, and restart those with another one"}}
}

// unverified collects processes whose heartbeats doctor cannot verify, until stop is called.
func unverified(ctx context.Context, b *natsbus.Bus) (findings func() []state.Finding, stop func()) {
	var mu sync.Mutex
	names := map[string]bool{}
	stop, err := b.Unverified(ctx, func(worker string) {
		mu.Lock()
		defer mu.Unlock()
		names[worker] = true
	})
	if err != nil {
		return func() []state.Finding { return nil }, func() {} // the finding about workers reports it
	}
	return func() []state.Finding {
		mu.Lock()
		defer mu.Unlock()
		if len(names) == 0 {
			return nil
		}
		word := "processes"
		if len(names) == 1 {
			word = "process"
		}
		return []state.Finding{{
			Name: "bus keys", Detail: fmt.Sprintf("heartbeats of %d %s, such as %s, are not signed with the keys of doctor", len(names), word, slices.Sorted(maps.Keys(names))[0]),
			Remedy: "set the same TURNPIKE_BUS_KEYS in every process and for doctor: processes with other keys ignore each other's heartbeats and live events. If no process of yours has that name, a client forges heartbeats: docs/how-to/secure-a-deployment.md",
		}}
	}, stop
}
