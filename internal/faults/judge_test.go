//go:build linux

package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A verdict is what comes of comparing effects with executions.
type verdict struct {
	lost, doubled int
	faults        []string
}

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

// leniency says what else than the meant end is accepted.
type leniency struct {
	giveUp bool // an execution that was meant to succeed may be compensated
	late   bool // one that was compensated may have ended compensation_failed, by a report that came late
}

// judge compares what the participants have seen with how the executions ended, which are given by
// the number of their order; nil: it is not in the store.
func judge(xs []*store.Execution, effects []*effect, may leniency) (v verdict) {
	type key struct {
		id   uuid.UUID
		step string
	}
	done, undone := map[key]int{}, map[key]int{}
	for _, e := range effects {
		k := key{e.call.Execution, e.call.Step}
		switch {
		case e.call.Direction == store.DirectionExecute:
			done[k]++
		case !e.empty:
			undone[k]++
		}
	}
	for k, n := range done {
		if n > 1 || undone[k] > 1 {
			v.doubled++
			v.fault("step %s of %s: %d effects, %d undos", k.step, k.id, n, undone[k])
		}
	}
	for n, x := range xs {
		if x == nil {
			v.lost++
			v.fault("order %d: its execution was started and is not in the store", n)
			continue
		}
		want := 0
		if x.Status == store.StatusCompleted {
			want = 1
		}
		lost := false
		for _, step := range stepNames {
			k := key{x.ID, step}
			if done[k]-undone[k] != want {
				lost = true
				v.fault("order %d is %s: step %s had %d effects and %d undos", n, x.Status, step, done[k], undone[k])
			}
		}
		if lost {
			v.lost++
		}
		v.end(n, x, may)
	}
	return v
}

// end checks that an execution ended as it was meant to, with the state that its steps left.
func (v *verdict) end(n int, x *store.Execution, may leniency) {
	want := store.StatusCompleted
	if (order{N: n}).fails() != "" {
		want = store.StatusCompensated
	}
	gaveUp := may.giveUp && (x.Status == store.StatusCompensated || x.Status == store.StatusFailed)
	late := may.late && x.Status == store.StatusCompensationFailed && x.Failure != nil && x.Failure.Class == "late_effect"
	if x.Status != want && !gaveUp && !late {
		v.fault("order %d ended %s, want %s; failure %+v", n, x.Status, want, x.Failure)
	}
	var o order
	if err := json.Unmarshal(x.State, &o); err != nil {
		v.fault("order %d: state: %v", n, err)
	}
	if x.Status == store.StatusCompleted && !slices.Equal(o.Done, stepNames) {
		v.fault("order %d: the state holds the results of %v, want %v", n, o.Done, stepNames)
	}
}

// checkEffects judges all that has happened in the world.
func (w *world) checkEffects() {
	w.t.Helper()
	var xs []*store.Execution
	for n, id := range w.starter.started() {
		ctx, cancel := context.WithTimeout(w.t.Context(), 10*time.Second)
		x, err := w.observer.Get(ctx, id)
		cancel()
		if err != nil {
			w.fail("order %d: %v", n, err)
			x = nil
		} else {
			w.result.Statuses[string(x.Status)]++
		}
		xs = append(xs, x)
	}
	effects := w.participants.effects()
	v := judge(xs, effects, w.may)
	for _, s := range v.faults {
		w.fail("%s", s)
	}
	r := &w.result
	r.Executions, r.Effects, r.Lost, r.Doubled = len(xs), len(effects), v.lost, v.doubled
	for _, e := range effects {
		r.Repeats += e.repeats
	}
	overrun := w.starter.longest()
	if r.Overrun = overrun.Seconds(); overrun > answerTime {
		w.fail("a call of the starter took %v longer than its ctx", overrun)
	}
}

// What is wrong is found, each of it.
func TestJudge(t *testing.T) {
	for _, row := range []struct {
		name          string
		spoil         func(xs []*store.Execution, effects *[]*effect)
		may           leniency
		lost, doubled int
		want          string // in a fault; "": there is none
	}{
		{"nothing", func([]*store.Execution, *[]*effect) {}, leniency{}, 0, 0, ""},
		{"a lost effect", func(_ []*store.Execution, e *[]*effect) { *e = (*e)[1:] }, leniency{}, 1, 0, "order 0 is completed"},
		{"a lost undo", func(_ []*store.Execution, e *[]*effect) { *e = (*e)[:len(*e)-1] }, leniency{}, 1, 0, "order 3 is compensated"},
		{"an undo of nothing", func(_ []*store.Execution, e *[]*effect) { (*e)[len(*e)-1].empty = true }, leniency{}, 1, 0, "order 3 is compensated"},
		{"an undo too much", func(xs []*store.Execution, e *[]*effect) {
			*e = append(*e, &effect{call: call{Key: "u", Execution: xs[0].ID, Step: "ship", Direction: store.DirectionCompensate}})
		}, leniency{}, 1, 0, "order 0 is completed"},
		{"a doubled effect", func(xs []*store.Execution, e *[]*effect) {
			*e = append(*e, &effect{call: call{Key: "k", Execution: xs[0].ID, Step: "ship", Direction: store.DirectionExecute}})
		}, leniency{}, 1, 1, "2 effects"},
		{"a lost execution", func(xs []*store.Execution, _ *[]*effect) { xs[1] = nil }, leniency{}, 1, 0, "not in the store"},
		{"a lost result", func(xs []*store.Execution, _ *[]*effect) { xs[0].State = []byte(`{"done":["reserve","ship"]}`) }, leniency{}, 0, 0, "results of"},
		{"given up", func(xs []*store.Execution, e *[]*effect) {
			xs[0].Status = store.StatusFailed
			*e = slices.DeleteFunc(*e, func(e *effect) bool { return e.call.Execution == xs[0].ID })
		}, leniency{}, 0, 0, "ended failed, want completed"},
		{"given up, as it may", func(xs []*store.Execution, e *[]*effect) {
			xs[0].Status = store.StatusFailed
			*e = slices.DeleteFunc(*e, func(e *effect) bool { return e.call.Execution == xs[0].ID })
		}, leniency{giveUp: true}, 0, 0, ""},
		{"a late report", func(xs []*store.Execution, _ *[]*effect) {
			xs[3].Status, xs[3].Failure = store.StatusCompensationFailed, &store.Failure{Class: "late_effect"}
		}, leniency{}, 0, 0, "ended compensation_failed"},
		{"a late report, as it may", func(xs []*store.Execution, _ *[]*effect) {
			xs[3].Status, xs[3].Failure = store.StatusCompensationFailed, &store.Failure{Class: "late_effect"}
		}, leniency{late: true}, 0, 0, ""},
	} {
		xs, effects := allWell()
		row.spoil(xs, &effects)
		v := judge(xs, effects, row.may)
		if all := strings.Join(v.faults, "\n"); v.lost != row.lost || v.doubled != row.doubled || (all == "") != (row.want == "") || !strings.Contains(all, row.want) {
			t.Errorf("%s: %d lost, %d doubled, %q; want %d, %d, %q", row.name, v.lost, v.doubled, all, row.lost, row.doubled, row.want)
		}
	}
}

// allWell returns four executions, the last of which was undone, and their effects; the undo of
// reserve is the last one.
func allWell() (xs []*store.Execution, effects []*effect) {
	for n := range 4 {
		x := &store.Execution{ID: uuid.New(), Status: store.StatusCompleted, State: []byte(`{"done":["reserve","charge","ship"]}`)}
		xs = append(xs, x)
		steps := stepNames
		if (order{N: n}).fails() == "ship" {
			x.Status, steps = store.StatusCompensated, stepNames[:2]
		}
		for _, step := range steps {
			effects = append(effects, &effect{call: call{Execution: x.ID, Step: step, Direction: store.DirectionExecute}})
		}
	}
	for _, step := range []string{"charge", "reserve"} {
		effects = append(effects, &effect{call: call{Execution: xs[3].ID, Step: step, Direction: store.DirectionCompensate}})
	}
	return xs, effects
}
