package saga

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A CheckReport says whether a build can carry the executions there are.
type CheckReport struct {
	Checked  int            `json:"checked"` // executions
	Problems []CheckProblem `json:"problems"`
}

// A CheckProblem is something that a build lacks, and how many executions would
// miss it.
type CheckProblem struct {
	Code    CheckCode `json:"code"`
	Saga    string    `json:"saga"`
	Version int       `json:"version"`
	Step    string    `json:"step,omitempty"` // by the ledger's name
	Count   int       `json:"count"`
	Example uuid.UUID `json:"example"`
	// Sentence says it in words.
	Sentence string `json:"sentence"`
}

// A CheckCode says what kind of problem it is.
type CheckCode string

// The codes of [Check].
const (
	// CheckUnknownSaga: the build does not have the saga. Its executions stand
	// still until a worker has it.
	CheckUnknownSaga CheckCode = "unknown_saga"
	// CheckUnknownVersion: the build has the saga, but not this version of it.
	CheckUnknownVersion CheckCode = "unknown_version"
	// CheckUnknownStep: executions stand at a step that is neither among the
	// build's Steps nor Removed, by no name it has or had: they stand still.
	CheckUnknownStep CheckCode = "unknown_step"
	// CheckStepAhead: executions that go forward will come to such a step.
	CheckStepAhead CheckCode = "step_ahead"
	// CheckNoCompensation: a step that was done, or may have been, and that can be
	// undone by its ledger, has no compensation in the build: on the way back
	// the execution would halt there.
	CheckNoCompensation CheckCode = "no_compensation"
	// CheckOtherWait: executions are parked for a signal that their step does
	// not await in the build, or that it does not read any more.
	CheckOtherWait CheckCode = "other_wait"
)

// Check says which executions that have not ended, or wait for a person as
// compensation_failed, a build could not carry, from their rows alone: build
// is what [Engine.Outlines] returns in it, or what it wrote down. It is for a
// deployment that asks before it goes on: none of the problems loses an
// execution, but some would stand still.
//
// It reads all of them in pages, without locks, newest first: what is started meanwhile is of a
// build that is running already. The store has to be a store.Querier: else
// [ErrNotSupported].
func Check(ctx context.Context, st store.Store, build ...Outline) (*CheckReport, error) {
	q, ok := store.As[store.Querier](st)
	if !ok {
		return nil, fmt.Errorf("saga: check: %w", ErrNotSupported)
	}
	c := &check{builds: map[string]map[int]*buildOutline{}, found: map[CheckProblem]*CheckProblem{}}
	for i := range build {
		if err := c.add(&build[i]); err != nil {
			return nil, err
		}
	}
	statuses := slices.DeleteFunc(store.Statuses(), func(s store.Status) bool {
		return s.Finished() && s != store.StatusCompensationFailed
	})
	page := store.Page{Limit: store.MaxPage}
	for {
		list, err := q.List(ctx, store.Filter{Statuses: statuses}, page)
		if err != nil {
			return nil, fmt.Errorf("saga: check: %w", err)
		}
		for _, x := range list.Executions {
			c.look(x)
		}
		if list.Next == nil {
			return c.report(), nil
		}
		page.After = *list.Next
	}
}

type check struct {
	builds  map[string]map[int]*buildOutline
	checked int
	found   map[CheckProblem]*CheckProblem // by what they have in common
}

// A buildOutline is an outline whose steps are found by any of their names.
type buildOutline struct {
	steps map[string]*OutlineStep
	gone  map[string]bool // Removed
}

func (c *check) add(o *Outline) error {
	if o.Saga == "" || o.Version < 1 || len(o.Steps) == 0 {
		return fmt.Errorf("%w: check: an outline has no saga, version or steps", ErrInvalid)
	}
	if c.builds[o.Saga] == nil {
		c.builds[o.Saga] = map[int]*buildOutline{}
	}
	b := &buildOutline{steps: map[string]*OutlineStep{}, gone: map[string]bool{}}
	for _, removed := range []bool{false, true} {
		steps := o.Steps
		if removed {
			steps = o.Removed
		}
		for i := range steps {
			for _, name := range append([]string{steps[i].Name}, steps[i].Was...) {
				b.steps[name], b.gone[name] = &steps[i], removed
			}
		}
	}
	c.builds[o.Saga][o.Version] = b
	return nil
}

func (c *check) look(x *store.Execution) {
	c.checked++
	versions := c.builds[x.Saga]
	if versions == nil {
		c.problem(x, CheckUnknownSaga, "")
		return
	}
	if x.Version == 0 { // nobody has taken over its start: any version may
		return
	}
	b := versions[x.Version]
	if b == nil {
		c.problem(x, CheckUnknownVersion, "")
		return
	}
	if b.steps[x.Step] == nil && x.Step != "" {
		c.problem(x, CheckUnknownStep, x.Step)
	} else if !b.gone[x.Step] && otherWait(x, b.steps[x.Step]) {
		c.problem(x, CheckOtherWait, x.Step)
	}
	ahead := false
	for i := range x.Ledger {
		e := &x.Ledger[i]
		if e.Name == x.Step {
			ahead = true
			continue
		}
		if ahead && x.Direction == store.DirectionExecute && e.Status == store.StepPending && b.steps[e.Name] == nil {
			c.problem(x, CheckStepAhead, e.Name)
		}
	}
	for i := range x.Ledger {
		e := &x.Ledger[i]
		needs := e.Status == store.StepDone || e.Status == store.StepInDoubt && e.InDoubt == store.InDoubtCompensate || e.Stray
		if step := b.steps[e.Name]; needs && e.Compensable && (step == nil || !step.Compensable) {
			c.problem(x, CheckNoCompensation, e.Name)
		}
	}
}

// otherWait reports whether x is parked for signals of which its step awaits none.
func otherWait(x *store.Execution, step *OutlineStep) bool {
	g := x.Gate
	if x.Status != store.StatusWaiting || g == nil || g.Open || step == nil {
		return false
	}
	switch g.Kind {
	case store.GateSignal:
		if step.Waits == waitsForSignal && len(step.Awaits) == 0 { // worked out from the state
			return false
		}
		return !slices.ContainsFunc(g.Signals, func(s string) bool { return slices.Contains(step.Awaits, s) })
	case store.GateRetry:
		return !slices.Contains(g.Signals, step.RetryOnSignal)
	case store.GateChildren:
		return !step.Children
	}
	return false
}

func (c *check) problem(x *store.Execution, code CheckCode, step string) {
	key := CheckProblem{Code: code, Saga: x.Saga, Version: x.Version, Step: step}
	p := c.found[key]
	if p == nil {
		p = &key
		p.Example = x.ID
		c.found[CheckProblem{Code: code, Saga: x.Saga, Version: x.Version, Step: step}] = p
	}
	p.Count++
}

func (c *check) report() *CheckReport {
	r := &CheckReport{Checked: c.checked, Problems: []CheckProblem{}}
	for _, p := range c.found {
		p.Sentence = p.sentence()
		r.Problems = append(r.Problems, *p)
	}
	slices.SortFunc(r.Problems, func(a, b CheckProblem) int {
		return cmp.Or(cmp.Compare(a.Saga, b.Saga), cmp.Compare(a.Version, b.Version), strings.Compare(a.Step, b.Step), strings.Compare(string(a.Code), string(b.Code)))
	})
	return r
}

func (p *CheckProblem) sentence() string {
	who := "1 execution"
	one := func(singular, plural string) string { return singular }
	if p.Count > 1 {
		who = fmt.Sprintf("%d executions", p.Count)
		one = func(singular, plural string) string { return plural }
	}
	of := fmt.Sprintf("%s of saga %q", who, p.Saga)
	if p.Version > 0 {
		of += fmt.Sprintf(" version %d", p.Version)
	}
	switch p.Code {
	case CheckUnknownSaga:
		return of + " " + one("is", "are") + " unfinished, and the build does not have the saga"
	case CheckUnknownVersion:
		return of + " " + one("is", "are") + " unfinished, and the build does not have that version"
	case CheckUnknownStep:
		return fmt.Sprintf("%s %s at step %q, which the build lacks", of, one("stands", "stand"), p.Step)
	case CheckStepAhead:
		return fmt.Sprintf("%s will come to step %q, which the build lacks", of, p.Step)
	case CheckNoCompensation:
		return fmt.Sprintf("%s may have to undo step %q, for which the build has no compensation", of, p.Step)
	}
	return fmt.Sprintf("%s %s at step %q for what that does not wait for in the build", of, one("waits", "wait"), p.Step)
}
