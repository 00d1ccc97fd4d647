package saga

import (
	"context"
	"encoding/json"
	"time"

	"github.com/leveret-go/leveret/store"
)

// The records of package store that appear in this package's API.
type (
	// Execution is one run of a saga.
	Execution = store.Execution
	// Resource names what a saga is about, such as an order.
	Resource = store.Resource
	// Direction is the way a saga goes: execute or compensate.
	Direction = store.Direction
	// Failure says what went wrong, and in which step.
	Failure = store.Failure
)

// A Name is the name of a saga whose state is an S. It is stored with every
// execution: 1 to 100 characters, [a-z0-9][a-z0-9._-]*.
type Name[S any] string

// A Definition says what a saga does: an ordered line of steps.
//
// A definition is registered under its Name and Version. Executions keep the
// plan of the build that started them (their ledger): a later build of the same
// Version may rename steps ([Step.Was]), remove them (Removed) and change
// functions, policies and time-outs; steps it adds are not run for executions
// that were started without them. For anything else, raise Version and register
// both.
type Definition[S any] struct {
	// Name is required.
	Name Name[S]

	// Version tells incompatible definitions of one name apart. Defaults to 1.
	Version int

	// Partition is where executions go whose start does not name one.
	// Defaults to "default". 1 to 64 characters, [a-z0-9][a-z0-9_-]*.
	Partition string

	// Key, if not nil, gives every execution a start key: of those with one key
	// at most one is unfinished (or compensation_failed, which needs a person)
	// at any time. 1 to 200 bytes, not blank. It is quick and has no effects.
	Key func(Resource, S) string

	// OnConflict is what becomes of a start whose key is held by another
	// execution. Defaults to OnConflictReject.
	OnConflict OnConflict

	// Deadline, if not 0, is how long an execution may take from its start:
	// after that it is compensated, with reason "deadline". It ends the ctx of
	// a step that is running. A halted execution is left to its person until it
	// is resumed. At most 100 years.
	Deadline time.Duration

	// MaxActive, if not 0, is how many executions of the saga are active at a
	// time, in all processes: begun and not ended, halted ones included. Others
	// wait for their turn, in the order of their starts, without an attempt.
	// What is retried or reopened after its end does not wait. At most 10,000.
	MaxActive int

	// MaxActivePerGroup is the same within each group, which Group works out at
	// the start from the resource and the initial state: "" or at most 200
	// bytes. It is quick and has no effects.
	MaxActivePerGroup int
	Group             func(Resource, S) string

	// Steps are run in this order. At least one.
	Steps []Step[S]

	// Removed are steps of earlier builds that are not run any more. One that
	// the cursor of an old execution reaches is recorded as skipped; one that
	// has been done is still undone by its Compensate. Execute is not needed.
	Removed []Step[S]

	// Events says that other services are to be told of every change of an
	// execution's status: see [StatusEvent] and [Config.Events]. The change and
	// its event are one write; it is published right after that, and again until
	// that has succeeded once: at least once each, in order but for what has to be
	// sent again. Some process of those that register the saga has to run with an
	// [EventPublisher]; until then events are kept, and [Engine.Health] says
	// events_late. Executions that were started before it was set have none. The
	// store must be a store.Outbox, else Register refuses.
	Events bool

	// Schema is the JSON Schema (draft 2020-12) that the state of a start by a
	// [Command] has to fit, for one that Go types cannot say, at most 64 KiB. Nil:
	// it is made of S, with no property required and none allowed that S does not
	// have; a S that contains itself has none. It is part of the [Outline].
	Schema json.RawMessage

	// Redact are JSON pointers (RFC 6901) into the state, such as /card/number, at
	// most 100: values that people who look at sagas are not to see. Where a
	// pointer meets a list, a name stands for that name in each of its elements.
	// They are hidden in consoles and sagactl, in archives ([Engine.Purge]), in
	// the audit trail of an edited state, and, where they have 4 characters or
	// more, in the texts of failures, reasons and stacks. In the store the state
	// is as it is. What a step says by other means (logs, signals, a checkpoint)
	// is its own to keep. It is part of the [Outline].
	Redact []string

	// Classify, if not nil, says what an error of a step means, where the step
	// has no Classify of its own: see [Step.Classify].
	Classify func(err error) error

	// Middleware stands around every call of the functions of this saga's
	// steps, inside that of [Config.Middleware], the first one outermost.
	Middleware []Middleware
}

// A Step is one piece of work in a saga and its undo.
type Step[S any] struct {
	// Name is required, and unique in the saga among all Names and Was. It is
	// stored, and part of the idempotency keys: 1 to 100 characters,
	// [a-z0-9][a-z0-9._-]*.
	Name string

	// Was lists the names this step had in earlier builds.
	Was []string

	// If, if not nil, is asked when the cursor reaches the step, before anything
	// it waits for: false records it as skipped, without an attempt. It is not
	// undone then.
	//
	// If, and the other functions of a step that are asked about the state
	// (WaitFunc, WaitUntil, those of Await), are quick, without effects, and
	// called in any process that knows the saga, perhaps more than once. A panic
	// in one halts the execution.
	If func(S) bool

	// Wait parks the execution when it reaches the step, for a duration that is
	// counted once, from then; WaitFunc works it out from the state. Nothing is
	// held meanwhile: no message, no worker, no lease. What has passed already
	// does not wait. A step waits in one way at most.
	Wait     time.Duration
	WaitFunc func(S) time.Duration

	// WaitUntil parks it until a time. It is asked again when that has come: if
	// the time has moved, the execution parks again.
	WaitUntil func(S) time.Time

	// Await parks it until a signal comes, or its deadline. See [Await].
	Await *Await[S]

	// RetryOnSignal, if not nil, lets a step that has exhausted its attempts
	// wait for this signal, without a deadline, instead of being given up: then
	// it is tried again with fresh attempts. [Fail] still gives up at once.
	RetryOnSignal AnySignal

	// Children starts other sagas and waits for their ends. See [Children].
	// Execute is optional then, and runs when they have ended; the compensation
	// is to compensate them.
	Children *Children[S]

	// Execute does the work. Required, except in Removed, with ExecuteTx and
	// with Children.
	Execute Func[S]

	// Compensate undoes it; nil when there is nothing to undo. It must be safe
	// when Execute had no effect, and finds an effect by [Call.ExecuteKey]:
	// what a lost attempt wrote into the state is gone.
	Compensate Func[S]

	// ExecuteTx and CompensateTx do the same inside of a transaction of the
	// store's database, in which the engine then settles the attempt: what they write
	// there happens exactly once, if the step succeeds, and not at all
	// otherwise. postgres.InTx and sqlite.InTx make them; the store must be a
	// store.Transactor of that kind, else Register refuses the step.
	//
	// They hold a connection, and what they lock, while they run: keep them
	// short. The execution itself is not locked meanwhile. When the database
	// makes the transaction fail for another one's sake (a serialization
	// failure, a deadlock) the function is called again, up to three times in
	// one attempt. An error, [Snooze] and [Halt] roll back; so does a lost lease. The step
	// is never in doubt.
	ExecuteTx    store.TxFunc[*Run[S]]
	CompensateTx store.TxFunc[*Run[S]]

	// Pivot makes it the point of no return, at most one in a saga: when it has
	// succeeded the saga only goes forward. A step after it that is given up
	// halts the execution for a person, a deadline counts no more, and Cancel
	// and Compensate need Force. A pivot that fails without a doubt turns the
	// saga back; when it is not known whether it had its effect, it is tried
	// again, and then halted, never compensated.
	Pivot bool

	// AfterPivot allows a step behind the pivot to have a compensation, which
	// runs only when a person forces the saga back.
	AfterPivot bool

	// Classify, if not nil, says what an error of this step's functions means, by returning
	// an outcome ([Fail], [Halt], [RetryAfter], [NoEffect], [Unknown], [Class]) or the error itself. It is not asked
	// about an error that says an outcome already. nil counts as the error
	// itself, and so does a panic.
	Classify func(err error) error

	// Retry says how often Execute is tried and how long to wait in between.
	// Zero fields default to 3 attempts, 1 second doubling to 1 minute.
	Retry RetryPolicy

	// CompensateRetry is the same for Compensate, and never inherits Retry.
	// Zero fields default to 20 attempts, 1 second doubling to 10 minutes.
	CompensateRetry RetryPolicy

	// Timeout ends the ctx of one attempt, counted from the moment it was
	// opened. 0: [Config.StepTimeout]. [NoTimeout]: an attempt lives as long
	// as its worker.
	Timeout time.Duration

	// InDoubt says what a compensation does when it is not known whether this
	// step had its effect. The default is to halt for a pivot, to undo the step if it has a
	// Compensate, else to ignore it.
	InDoubt InDoubt

	// ErrorsInDoubt makes every error of Execute leave the step in doubt, for
	// participants whose errors say nothing about the effect. See [Func].
	ErrorsInDoubt bool

	// Budget, if not "", names the rate in [Config.Budgets] that attempts of this
	// step share with those of other steps.
	Budget string

	// Isolated steps always travel by a pointer of their own: they are never
	// run in one go with the step before or after.
	Isolated bool
}

// A Func is the work of a step or its undo. It may run more than once for one
// step (after a crash, a lost lease or an error), never twice at the same time
// unless a lease was lost while the worker lived, and not always in the same
// process. Pass [Call.Key] to the systems it calls, so that they can tell a
// repetition.
//
// It returns nil when the work is done. It may change run.State, which is saved
// when the saga moves on (nil, [Skip], [Complete], [Snooze]), and dropped with
// any other error; top-level keys of the stored state that S does not know are
// kept.
//
// An error other than the outcomes of this package is a failed attempt: tried
// again until the policy is exhausted, then what was done is undone. An ordinary
// error of Execute promises that NO effect is left: the step itself will not be
// undone. Say [Unknown] when that is not sure. Panics, time-outs of the attempt,
// errors of a ctx and network time-outs are taken as unknown.
//
// ctx ends at the step's time-out, and, with a cause ([context.Cause]), when
// the attempt is lost ([ErrAttemptLost]), an operator asked for a compensation
// ([ErrInterrupted]), or the process drains ([ErrShutdown]). Return then, soon.
// nil, Skip, Complete, Fail and Halt mean what they say even after that; any
// other error is an interruption, which costs no attempt but leaves the step in
// doubt. A function that ignores ctx keeps its worker.
type Func[S any] func(ctx context.Context, run *Run[S]) error

// A RetryPolicy says how often and how fast to try again. Zero fields have the
// defaults given where the policy is used.
type RetryPolicy struct {
	// Attempts is how many attempts count before it is given up, the first
	// one included; [Unlimited] for no bound. Interruptions and snoozes do
	// not count.
	Attempts int

	// Initial is the wait after the first failed attempt. It doubles with
	// each one, up to Max. Waits vary by up to a fifth either way.
	Initial time.Duration
	Max     time.Duration

	// MaxElapsed gives up when a failed attempt ends later than this after
	// the step was reached. 0: no bound.
	MaxElapsed time.Duration
}

const (
	// Unlimited, as RetryPolicy.Attempts, tries without bound.
	Unlimited = 1<<31 - 1
	// NoTimeout, as Step.Timeout or Config.StepTimeout, sets none.
	NoTimeout = time.Duration(1<<63 - 1)
)

// InDoubt is what a compensation does about a step of which nobody knows
// whether it had its effect.
type InDoubt = store.InDoubt

// The in-doubt policies.
const (
	// InDoubtDefault: InDoubtCompensate for a step with a Compensate, else
	// InDoubtIgnore.
	InDoubtDefault InDoubt = ""
	// InDoubtCompensate undoes the step. It needs a Compensate.
	InDoubtCompensate = store.InDoubtCompensate
	// InDoubtHalt parks the execution once for a person to decide; Resume then
	// means: take it as done.
	InDoubtHalt = store.InDoubtHalt
	// InDoubtIgnore passes the step over.
	InDoubtIgnore = store.InDoubtIgnore
)
