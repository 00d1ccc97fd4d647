//go:build linux

package faults

import (
	"testing"
	"time"
)

// Without a fault there is nothing to find, on any store.
func TestWorlds(t *testing.T) {
	for name, run := range map[string]func(*world){
		"memory": func(w *world) {
			w.up(setup{Store: onMemory})
			w.local(2, nil, nil)
		},
		"sqlite": func(w *world) {
			w.up(setup{Store: onSQLite})
			w.work(2, nil)
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, fault{name: name})
			run(w)
			w.start(30, time.Millisecond)
			w.finish()
			if r := w.result; r.Executions != 30 || r.Statuses["completed"] != 24 || r.Statuses["compensated"] != 6 ||
				r.Effects != 90 || r.Repeats != 0 {
				t.Errorf("%s", r)
			}
		})
	}
}
