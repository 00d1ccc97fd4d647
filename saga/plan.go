package saga

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A plan is a definition without its type: what the machine decides by, and
// closures over JSON to run the steps. It does not change after it was built.
type plan struct {
	saga       string
	version    int
	partition  string
	steps      []*planStep
	removed    []*planStep
	middleware []Middleware
	byName     map[string]*planStep // by Name and Was, of steps and removed
	// checkState reports why a state does not fit the saga\'s type.
	checkState func(state json.RawMessage) error
	// signals are those whose type is known here, by name.
	signals map[string]AnySignal
	gated   bool // some step has to be asked before it is run
	limit   limit
	events  bool          // changes of status are recorded
	redact  []jsonPointer // what people are not to see of the state
	schema  *stateSchema
	starter starter
}

type planStep struct {
	name          string
	was           []string
	pivot         bool
	children      *childPlan // nil: it has none
	removed       bool
	compensable   bool
	isolated      bool
	errorsInDoubt bool
	inDoubt       store.InDoubt
	timeout       time.Duration // 0: the engine's
	retry         RetryPolicy
	undoRetry     RetryPolicy
	execute       body
	compensate    body
	executeTx     *txBody // nil: it wants no transaction
	compensateTx  *txBody
	// ask is what the step says, of a state, when the cursor reaches it; nil: it
	// is always run, at once. waits: it may say that it waits.
	ask     func(state json.RawMessage) entry
	waits   bool
	hasIf   bool
	awaits  []string // of Await, those that do not depend on the state
	await   bool
	retryOn string // the signal of RetryOnSignal
	budget  string // of Config.Budgets
}

// A body runs the function of a step once on a state, and returns the state it
// left. next is nil when err makes it not count, or it was refused: then
// stateErr says why.
type body func(ctx context.Context, call *Call, state json.RawMessage) (next json.RawMessage, stateErr, err error)

// step returns the step that a ledger's name stands for in this build.
func (p *plan) step(name string) (*planStep, bool) {
	if p == nil {
		return nil, false
	}
	s, ok := p.byName[name]
	return s, ok
}

// ledger returns the plan of an execution that starts with this build.
func (p *plan) ledger() []store.LedgerEntry {
	l := make([]store.LedgerEntry, len(p.steps))
	for i, s := range p.steps {
		l[i] = store.LedgerEntry{
			Name: s.name, Compensable: s.compensable, InDoubt: s.inDoubt, Pivot: s.pivot, Atomic: s.atomic(), Status: store.StepPending,
		}
	}
	return l
}

// equip makes x, which begins, one that this build runs.
func (p *plan) equip(x *store.Execution) {
	x.Version, x.Ledger, x.Events = p.version, p.ledger(), p.events
	x.Step = x.Ledger[0].Name
}

func (s *planStep) policy(d Direction) *RetryPolicy {
	if d == store.DirectionCompensate {
		return &s.undoRetry
	}
	return &s.retry
}

func (s *planStep) body(d Direction) body {
	if d == store.DirectionCompensate {
		return s.compensate
	}
	return s.execute
}

// txBody returns the function that wants a transaction, or nil.
func (s *planStep) txBody(d Direction) *txBody {
	if d == store.DirectionCompensate {
		return s.compensateTx
	}
	return s.executeTx
}

// atomic reports whether what Execute does, and the write that settles it, are
// one transaction.
func (s *planStep) atomic() bool { return s.executeTx != nil || s.children != nil }

// undoable reports whether this build has what undoes the step.
func (s *planStep) undoable() bool {
	return s.compensate != nil || s.compensateTx != nil || s.children != nil
}

// wait returns how long to wait after the failed attempt that was try number
// tries; jitter is in [-1, 1).
func (p *RetryPolicy) wait(tries int, jitter float64) time.Duration {
	d := p.Initial
	for i := 1; i < tries && d < p.Max; i++ {
		d *= 2
	}
	d = min(d, p.Max)
	return d + time.Duration(float64(d)*jitter/5)
}

// exhausted reports whether a step that was reached at reached, and whose try
// number tries has failed now, is given up.
func (p *RetryPolicy) exhausted(tries int, reached, now time.Time) bool {
	if p.Attempts != Unlimited && tries >= p.Attempts {
		return true
	}
	return p.MaxElapsed > 0 && now.Sub(reached) > p.MaxElapsed
}

// erase builds the plan of a definition that has been checked.
func erase[S any](d Definition[S]) (*plan, *stateCodec[S]) {
	codec := &stateCodec[S]{}
	p := &plan{
		saga: string(d.Name), version: d.Version, partition: d.Partition, middleware: slices.Clone(d.Middleware),
		byName: map[string]*planStep{}, events: d.Events,
	}
	p.checkState = func(state json.RawMessage) error {
		_, err := codec.decode(state)
		return err
	}
	p.signals = map[string]AnySignal{}
	p.limit = limitOf(codec, d)
	p.schema, _ = d.schema() // has been checked
	p.redact, _ = parsePointers(d.Redact)
	p.starter = starterOf(codec, d)
	setDefault(&p.version, 1)
	setDefault(&p.partition, defaultPartition)
	add := func(s Step[S], removed bool) *planStep {
		ps := &planStep{
			name: s.Name, was: s.Was, removed: removed, pivot: s.Pivot,
			compensable: s.Compensate != nil || !s.CompensateTx.IsZero() || s.Children != nil,
			budget:      s.Budget, isolated: s.Isolated, errorsInDoubt: s.ErrorsInDoubt, inDoubt: s.InDoubt, timeout: s.Timeout,
			retry:     s.Retry.filled(3, time.Second, time.Minute),
			undoRetry: s.CompensateRetry.filled(20, time.Second, 10*time.Minute),
		}
		classify := classifier(s.Classify, d.Classify)
		ps.execute, ps.compensate = bodyOf(codec, s.Execute, classify), bodyOf(codec, s.Compensate, classify)
		ps.executeTx, ps.compensateTx = txBodyOf(codec, s.ExecuteTx, classify), txBodyOf(codec, s.CompensateTx, classify)
		ps.children = childPlanOf(codec, s.Children, classify)
		if !removed {
			ps.ask, ps.waits = askOf(codec, s), waits(s)
			ps.hasIf, ps.await = s.If != nil, s.Await != nil
		}
		p.gated = p.gated || ps.ask != nil
		if s.RetryOnSignal != nil {
			ps.retryOn = s.RetryOnSignal.SignalName()
			p.signals[ps.retryOn] = s.RetryOnSignal
		}
		if s.Await != nil {
			for _, sig := range s.Await.fixed() {
				p.signals[sig.SignalName()] = sig
				ps.awaits = append(ps.awaits, sig.SignalName())
			}
		}
		if ps.inDoubt == InDoubtDefault {
			switch {
			case ps.pivot:
				ps.inDoubt = InDoubtHalt
			case ps.compensable:
				ps.inDoubt = InDoubtCompensate
			default:
				ps.inDoubt = InDoubtIgnore
			}
		}
		p.byName[s.Name] = ps
		for _, w := range s.Was {
			p.byName[w] = ps
		}
		return ps
	}
	for _, s := range d.Steps {
		p.steps = append(p.steps, add(s, false))
	}
	for _, s := range d.Removed {
		p.removed = append(p.removed, add(s, true))
	}
	return p, codec
}

func (p RetryPolicy) filled(attempts int, initial, max time.Duration) RetryPolicy {
	setDefault(&p.Attempts, attempts)
	if p.Initial == 0 && p.Max > 0 && p.Max < initial {
		p.Initial = p.Max
	}
	if p.Max == 0 && p.Initial > max {
		p.Max = p.Initial
	}
	setDefault(&p.Initial, initial)
	setDefault(&p.Max, max)
	return p
}

func bodyOf[S any](codec *stateCodec[S], f Func[S], classify func(error) error) body {
	if f == nil {
		return nil
	}
	return func(ctx context.Context, call *Call, state json.RawMessage) (json.RawMessage, error, error) {
		return callOn(ctx, codec, call, state, f, classify)
	}
}

// callOn calls f on a state, and returns the state that it left: see body.
func callOn[S any](ctx context.Context, codec *stateCodec[S], call *Call, state json.RawMessage, f Func[S], classify func(error) error) (json.RawMessage, error, error) {
	s, err := codec.decode(state)
	if err != nil {
		return nil, nil, Class("state_refused", err)
	}
	run := &Run[S]{State: s, Call: *call}
	defer func() { call.left = run.State }()
	err = f(context.WithValue(ctx, callKey{}, &run.Call), run)
	if err != nil && classify != nil {
		err = classify(err)
	}
	if err != nil && !savesState(err) {
		return nil, nil, err
	}
	next, stateErr := codec.encode(run.State, state)
	if stateErr != nil {
		return nil, stateErr, err
	}
	return next, nil, err
}

// A txBody is a body that wants a transaction.
type txBody struct {
	kind string
	in   func(tx store.Tx) body
}

func txBodyOf[S any](codec *stateCodec[S], f store.TxFunc[*Run[S]], classify func(error) error) *txBody {
	if f.IsZero() {
		return nil
	}
	return &txBody{kind: f.Kind(), in: func(tx store.Tx) body {
		return bodyOf(codec, func(ctx context.Context, run *Run[S]) error { return f.Call(ctx, run, tx) }, classify)
	}}
}

// classifier returns what maps errors to outcomes: the step's function, or else
// the definition's; nil when there is none.
func classifier(step, definition func(error) error) func(error) error {
	f := step
	if f == nil {
		f = definition
	}
	if f == nil {
		return nil
	}
	return func(err error) (out error) {
		if listen(err).kind != "" {
			return err
		}
		defer func() {
			if recover() != nil || out == nil {
				out = err
			}
		}()
		return f(err)
	}
}
