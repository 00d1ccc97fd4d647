package saga

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

const defaultPartition = "default"

var (
	nameRule      = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{0,99}$`)
	partitionRule = regexp.MustCompile(`^[a-z0-9][a-z0-9_-]{0,63}$`)
)

// A Saga is a definition that an engine knows: what executions are started
// with. Safe for concurrent use.
type Saga[S any] struct {
	engine    *Engine
	name      Name[S]
	version   int
	partition string
	plan      *plan // nil: declared
	codec     *stateCodec[S]
	identity  identity[S]
}

// Name returns the saga's name.
func (s *Saga[S]) Name() Name[S] { return s.name }

// State returns the state of an execution of this saga.
func (s *Saga[S]) State(x *Execution) (S, error) {
	if x.Saga != string(s.name) {
		var zero S
		return zero, fmt.Errorf("%w: execution %s is of saga %q, not %q", ErrInvalid, x.ID, x.Saga, s.name)
	}
	return s.codec.decode(x.State)
}

// Register makes a definition known to an engine, which can then start and run
// it. Call it before [Engine.Run]: until it is known, executions of the saga are
// left to other processes. A
// wrong definition is refused with an error that wraps [ErrInvalid] and lists
// all its faults; so is a second one with the same Name and Version.
func Register[S any](e *Engine, d Definition[S]) (*Saga[S], error) {
	if err := checkDefinition(d); err != nil {
		return nil, err
	}
	p, codec := erase(d)
	if err := e.checkNeeds(p); err != nil {
		return nil, err
	}
	if err := e.register(p); err != nil {
		return nil, err
	}
	return &Saga[S]{
		engine: e, name: d.Name, version: p.version, partition: p.partition, plan: p, codec: codec,
		identity: identity[S]{key: d.Key, onConflict: d.OnConflict, deadline: d.Deadline},
	}, nil
}

// DeclareOptions says where the executions of a declared saga go.
type DeclareOptions struct {
	// Version of the definition to run. 0: the highest one that the first
	// worker has which looks at the execution.
	Version int
	// Partition defaults to "default".
	Partition string
}

// Declare makes a saga known to a process that only starts it: its steps are
// registered elsewhere. Until a worker has looked at such an execution its plan
// is empty. opts may be nil.
func Declare[S any](e *Engine, n Name[S], opts *DeclareOptions) (*Saga[S], error) {
	var o DeclareOptions
	if opts != nil {
		o = *opts
	}
	setDefault(&o.Partition, defaultPartition)
	var errs []error
	if !nameRule.MatchString(string(n)) {
		errs = append(errs, fmt.Errorf("%w: saga name %s", ErrInvalid, nameFault(string(n))))
	}
	if !partitionRule.MatchString(o.Partition) {
		errs = append(errs, fmt.Errorf("%w: partition %s", ErrInvalid, partitionFault(o.Partition)))
	}
	if o.Version < 0 {
		errs = append(errs, fmt.Errorf("%w: version is negative", ErrInvalid))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return &Saga[S]{engine: e, name: n, version: o.Version, partition: o.Partition, codec: &stateCodec[S]{}}, nil
}

func checkDefinition[S any](d Definition[S]) error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("%w: saga %q: "+format, append([]any{ErrInvalid, string(d.Name)}, args...)...))
	}
	if !nameRule.MatchString(string(d.Name)) {
		bad("name %s", nameFault(string(d.Name)))
	}
	if d.Version < 0 || d.Version > 1<<31-1 {
		bad("version %d is negative or too large", d.Version)
	}
	if d.Partition != "" && !partitionRule.MatchString(d.Partition) {
		bad("partition %s", partitionFault(d.Partition))
	}
	if len(d.Steps) == 0 {
		bad("has no steps")
	}
	if len(d.Steps) > 1000 {
		bad("has %d steps, at most 1000", len(d.Steps))
	}
	for _, f := range middlewareFaults(d.Middleware) {
		bad("%s", f)
	}
	if !d.OnConflict.valid() {
		bad("OnConflict %q is none of reject, existing and replace", d.OnConflict)
	}
	if d.MaxActive < 0 || d.MaxActive > maxActive || d.MaxActivePerGroup < 0 || d.MaxActivePerGroup > maxActive {
		bad("MaxActive and MaxActivePerGroup must be 0 to %d", maxActive)
	}
	if (d.MaxActivePerGroup > 0) != (d.Group != nil) {
		bad("MaxActivePerGroup and Group are given together or not at all")
	}
	if _, err := parsePointers(d.Redact); err != nil {
		return fmt.Errorf("%w: Redact: %w", ErrInvalid, err)
	}
	if _, err := d.schema(); err != nil {
		bad("Schema %v", err)
	}
	if d.Deadline < 0 || d.Deadline > maxWait {
		bad("Deadline is negative or longer than 100 years")
	}
	seen := map[string]bool{}
	check := func(what string, s Step[S], removed bool) {
		for _, n := range append([]string{s.Name}, s.Was...) {
			switch {
			case !nameRule.MatchString(n):
				bad("%s: name %s", what, nameFault(n))
			case seen[n]:
				bad("%s: the name %q is used twice", what, n)
			}
			seen[n] = true
		}
		for _, f := range workFaults(s, removed) {
			bad("%s %s", what, f)
		}
		if s.Timeout < 0 {
			bad("%s: Timeout is negative", what)
		}
		switch s.InDoubt {
		case InDoubtDefault, InDoubtHalt, InDoubtIgnore:
		case InDoubtCompensate:
			if s.Compensate == nil && s.CompensateTx.IsZero() && s.Children == nil {
				bad("%s: InDoubt is compensate, but there is no Compensate", what)
			}
		default:
			bad("%s: InDoubt %q is none of the policies", what, s.InDoubt)
		}
		for _, f := range waitFaults(s, removed) {
			bad("%s: %s", what, f)
		}
		for _, f := range append(s.Retry.faults("Retry"), s.CompensateRetry.faults("CompensateRetry")...) {
			bad("%s: %s", what, f)
		}
	}
	for i, s := range d.Steps {
		check(fmt.Sprintf("step %d (%q)", i+1, s.Name), s, false)
	}
	for _, f := range pivotFaults(d.Steps) {
		bad("%s", f)
	}
	for i, s := range d.Removed {
		check(fmt.Sprintf("removed step %d (%q)", i+1, s.Name), s, true)
	}
	return errors.Join(errs...)
}

// workFaults lists what is wrong with the functions of a step.
func workFaults[S any](s Step[S], removed bool) (faults []string) {
	bad := func(text string) { faults = append(faults, text) }
	tx, undoTx := !s.ExecuteTx.IsZero(), !s.CompensateTx.IsZero()
	switch {
	case s.Execute == nil && !tx && s.Children == nil && !removed:
		bad("has no Execute")
	case s.Execute != nil && tx:
		bad("has both Execute and ExecuteTx")
	case s.Children != nil && tx:
		bad("has both Children and ExecuteTx")
	}
	if s.Compensate != nil && undoTx {
		bad("has both Compensate and CompensateTx")
	}
	if c := s.Children; c != nil {
		if s.Compensate != nil || undoTx {
			bad("has Children, whose compensation is its own, and another compensation")
		}
		if c.Start == nil {
			bad("has Children without Start")
		}
		if s.Pivot || s.Await != nil {
			bad("has Children, and so is no pivot and awaits nothing else")
		}
		if !c.Join.valid() {
			bad(fmt.Sprintf("has Children with Join %q, which is neither all nor settled", c.Join))
		}
	}
	return faults
}

// pivotFaults lists what is wrong with the pivot of a line of steps.
func pivotFaults[S any](steps []Step[S]) (faults []string) {
	pivot := ""
	for _, s := range steps {
		undo := s.Compensate != nil || !s.CompensateTx.IsZero() || s.Children != nil
		switch {
		case s.Pivot && pivot != "":
			faults = append(faults, fmt.Sprintf("has two pivots, %q and %q", pivot, s.Name))
		case s.Pivot:
			pivot = s.Name
		case pivot != "" && undo && !s.AfterPivot:
			faults = append(faults, fmt.Sprintf("step %q can be compensated, but stands behind the pivot %q: remove the compensation, or set AfterPivot", s.Name, pivot))
		case pivot == "" && s.AfterPivot:
			faults = append(faults, fmt.Sprintf("step %q is AfterPivot, but there is no pivot before it", s.Name))
		}
	}
	return faults
}

// checkNeeds reports what a definition needs that the engine or its store does
// not have.
func (e *Engine) checkNeeds(p *plan) error {
	var errs []error
	if _, ok := store.As[store.Cells](e.store); !ok && p.limit.any() {
		errs = append(errs, fmt.Errorf("%w: saga %q: MaxActive needs a store with shared facts (store.Cells)", ErrInvalid, p.saga))
	}
	if _, ok := store.As[store.Outbox](e.store); !ok && p.events {
		errs = append(errs, fmt.Errorf("%w: saga %q: Events needs a store that records them (store.Outbox)", ErrInvalid, p.saga))
	}
	var kinds []string
	if t, ok := store.As[store.Transactor](e.store); ok {
		kinds = t.TxKinds()
	}
	for _, list := range [][]*planStep{p.steps, p.removed} {
		for _, s := range list {
			if _, ok := e.cfg.Budgets[s.budget]; !ok && s.budget != "" {
				errs = append(errs, fmt.Errorf("%w: saga %q: step %q: budget %q is not in Config.Budgets", ErrInvalid, p.saga, s.name, s.budget))
			}
			for _, t := range []*txBody{s.executeTx, s.compensateTx} {
				if t != nil && !slices.Contains(kinds, t.kind) {
					errs = append(errs, fmt.Errorf("%w: saga %q: step %q wants a transaction of kind %q, which the engine's store does not have", ErrInvalid, p.saga, s.name, t.kind))
				}
			}
		}
	}
	return errors.Join(errs...)
}

func (p RetryPolicy) faults(name string) (faults []string) {
	bad := func(format string, args ...any) { faults = append(faults, name+"."+fmt.Sprintf(format, args...)) }
	if p.Attempts < 0 || p.Attempts > Unlimited {
		bad("Attempts is %d, want 1 or more", p.Attempts)
	}
	span := func(field string, d time.Duration) {
		if d < 0 || d > year {
			bad("%s is %v, want 0 to %v", field, d, year)
		}
	}
	span("Initial", p.Initial)
	span("Max", p.Max)
	span("MaxElapsed", p.MaxElapsed)
	if p.Initial > 0 && p.Max > 0 && p.Max < p.Initial {
		bad("Max is smaller than Initial")
	}
	return faults
}

func nameFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > 100:
		return "is longer than 100 characters"
	}
	return fmt.Sprintf("%q must match %s", s, nameRule)
}

func partitionFault(s string) string {
	switch {
	case s == "":
		return "is empty"
	case len(s) > 64:
		return "is longer than 64 characters"
	}
	return fmt.Sprintf("%q must match %s", s, partitionRule)
}

func cleanText(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
