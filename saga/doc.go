// Package saga defines sagas and runs them.
//
// A saga is an ordered line of steps. Each step does one piece of work in some
// system and knows how to undo it. An execution runs the steps in order, tries
// them again when they fail, and, when one of them gives up, undoes what was
// done, last step first. Where it stands is kept in a store (package store), so
// that it survives the death of any process at any line.
//
//	engine, err := saga.New(saga.Config{Store: memory.New()})
//	...
//	checkout, err := saga.Register(engine, saga.Definition[Order]{
//		Name: "checkout",
//		Steps: []saga.Step[Order]{
//			{Name: "reserve", Execute: reserve, Compensate: release},
//			{Name: "charge", Execute: charge, Compensate: refund},
//			{Name: "ship", Execute: ship},
//		},
//	})
//	...
//	go engine.Run(ctx)
//	x, err := checkout.Start(ctx, saga.Resource{Type: "order", ID: "4711"}, Order{}, nil)
//
// # What a step must know
//
// A step may run more than once: its process may die after the work and before
// the result is written. [Call.Key] is the same each time; pass it on, so that
// the other system recognises a repetition. A step is never run twice at the same
// time, unless a worker lost its lease and did not notice.
//
// A step is in doubt when an attempt ended without anybody knowing whether it
// had its effect: its process died, it timed out, panicked, was interrupted, or
// said so ([Unknown], [Step.ErrorsInDoubt]). A compensation then undoes it, or
// does what [Step.InDoubt] says. Any other error is a promise that no effect is
// left.
//
// # Effects that come after their undo
//
// An undo finds nothing when the effect it is to undo has not happened yet, and
// happens afterwards. That can be when a lease was lost while the step went on,
// an operator used Force, a step ignored the end of its ctx, or the other system
// worked on a request after the attempt had ended. The undo of a step that nobody
// saw return waits until the step's time-out is over, which makes this rare; it
// cannot make it impossible. Systems that remember an undo they have seen, and
// refuse the effect that comes after it, close the hole; [Call.ExecuteKey] tells
// them which effect that is.
//
// Where a late effect is reported, the step is marked stray and the execution
// ends, or is moved to, compensation_failed with the failure class late_effect:
// the engine does not undo twice by itself, as a second refund is worse. Retry
// undoes it again, under a new key. A worker that had its effect late and died
// without a word is not noticed.
//
// # Errors
//
//	situation                                        error
//	------------------------------------------------ --------------------------------
//	a wrong Config, Definition, option or By         wraps ErrInvalid, lists all faults
//	a state that cannot be kept, at Start            wraps ErrInvalid
//	the same, after a step                           fails the saga: class state_refused
//	Start with a used StartOptions.ID                wraps store.ErrExists
//	an unknown execution                             wraps store.ErrNotFound
//	an act on an execution that has ended            wraps ErrFinished
//	Retry of a waiting or halted one                 wraps ErrNotRetryable
//	Resume of one that is not halted                 wraps ErrNotHalted
//	Retry while an attempt runs, without Force       wraps ErrAttemptRunning
//	the same of SkipStep                             wraps ErrAttemptRunning
//	an act at another revision than IfRevision       wraps ErrChanged
//	By.Request that was used for something else      wraps ErrRequestUsed
//	SkipStep with nothing to skip                    wraps ErrNoStep
//	Resolve of a step that is not in doubt           wraps ErrNotInDoubt
//	EditState where it must not be edited            wraps ErrNotEditable
//	EditState of a saga that is not registered here  wraps ErrUnknownSaga
//	Rerun or Erase of an unfinished execution        wraps ErrNotFinished
//	an act on an execution whose state was erased    wraps ErrErased
//	too many failures in Bulk                        wraps ErrTooManyErrors
//	a call that needs an ability the store lacks     wraps ErrNotSupported
//	Checkpoint of an attempt that was taken away     wraps ErrAttemptLost
//	Handle while the worker is paused                ErrPaused
//	Handle while Run is not running, or draining     ErrNotRunning
//	Run while it is running                          ErrRunning
//	Run ends with steps that ignore their ctx        *ShutdownIncompleteError
//	a store of another schema, at Run                *store.SchemaError
//	Exclusive while another engine has the store     wraps store.ErrInUse
//	the store does not answer                        the store's error; nothing is lost
package saga
