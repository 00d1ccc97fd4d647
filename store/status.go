package store

// A Status says where an execution stands.
type Status string

// The statuses of an execution. The first four are unfinished, the others
// finished.
const (
	StatusRunning            Status = "running"             // steps run forward; backing off and snoozing too
	StatusWaiting            Status = "waiting"             // parked until a time or a signal
	StatusHalted             Status = "halted"              // parked until a person resumes it
	StatusCompensating       Status = "compensating"        // what was done is being undone
	StatusCompleted          Status = "completed"           // every step that was to run has run
	StatusCompensated        Status = "compensated"         // at least one undo ran, and nothing is left to undo
	StatusFailed             Status = "failed"              // could not go on, and nothing was there to undo
	StatusCompensationFailed Status = "compensation_failed" // an undo failed for good, or an effect came after it: needs a person
	StatusCancelled          Status = "cancelled"           // stopped by a person before anything had to be undone
)

// Statuses returns all statuses, unfinished ones first.
func Statuses() []Status {
	return []Status{
		StatusRunning, StatusWaiting, StatusHalted, StatusCompensating,
		StatusCompleted, StatusCompensated, StatusFailed, StatusCompensationFailed, StatusCancelled,
	}
}

// Valid reports whether s is one of the statuses.
func (s Status) Valid() bool {
	switch s {
	case StatusRunning, StatusWaiting, StatusHalted, StatusCompensating,
		StatusCompleted, StatusCompensated, StatusFailed, StatusCompensationFailed, StatusCancelled:
		return true
	}
	return false
}

// Finished reports whether an execution with this status has ended. A failed
// or compensation_failed one may be retried, and a late effect may reopen one
// (see saga); completed is final.
func (s Status) Finished() bool {
	switch s {
	case StatusCompleted, StatusCompensated, StatusFailed, StatusCompensationFailed, StatusCancelled:
		return true
	}
	return false
}

// HoldsKey reports whether an execution with this status keeps its start key
// from being held by another one of its saga: unfinished ones do, and
// compensation_failed ones, which still need a person. See [Execution.HoldsKey].
func (s Status) HoldsKey() bool { return !s.Finished() || s == StatusCompensationFailed }

// A Direction is the way an execution, or an attempt, goes.
type Direction string

// The directions.
const (
	DirectionExecute    Direction = "execute"
	DirectionCompensate Direction = "compensate"
)

// Valid reports whether d is one of the directions.
func (d Direction) Valid() bool { return d == DirectionExecute || d == DirectionCompensate }

// A StepStatus says, in the ledger, what is known of the effect of a step.
type StepStatus string

// The step statuses, in the order in which they rise.
const (
	StepPending StepStatus = "pending"  // no effect
	StepSkipped StepStatus = "skipped"  // the step said there was nothing to do
	StepInDoubt StepStatus = "in_doubt" // an attempt ended without anybody knowing whether the effect happened
	StepDone    StepStatus = "done"     // the effect happened
	StepUndone  StepStatus = "undone"   // the effect was undone
)

// Valid reports whether s is one of the step statuses.
func (s StepStatus) Valid() bool {
	switch s {
	case StepPending, StepSkipped, StepInDoubt, StepDone, StepUndone:
		return true
	}
	return false
}

// An InDoubt says what a compensation does about a step in doubt.
type InDoubt string

// The in-doubt policies.
const (
	InDoubtCompensate InDoubt = "compensate" // undo it: its compensation is safe when there was no effect
	InDoubtHalt       InDoubt = "halt"       // halt and let a person decide
	InDoubtIgnore     InDoubt = "ignore"     // pass it over
)

// Valid reports whether d is one of the policies.
func (d InDoubt) Valid() bool {
	return d == InDoubtCompensate || d == InDoubtHalt || d == InDoubtIgnore
}

// An AttemptStatus says how an attempt ended.
type AttemptStatus string

// The attempt statuses. A closed attempt's status is never rewritten.
const (
	AttemptRunning     AttemptStatus = "running"     // open
	AttemptSucceeded   AttemptStatus = "succeeded"   //
	AttemptFailed      AttemptStatus = "failed"      //
	AttemptSkipped     AttemptStatus = "skipped"     // the step had nothing to do
	AttemptAbandoned   AttemptStatus = "abandoned"   // its lease ran out, or an operator forced it away
	AttemptInterrupted AttemptStatus = "interrupted" // cut off by a shutdown or an operator's request
	AttemptSnoozed     AttemptStatus = "snoozed"     // the step asked to be run again later
)

// AttemptStatuses returns all of them.
func AttemptStatuses() []AttemptStatus {
	return []AttemptStatus{
		AttemptRunning, AttemptSucceeded, AttemptFailed, AttemptSkipped, AttemptAbandoned, AttemptInterrupted, AttemptSnoozed,
	}
}

// Valid reports whether s is one of the attempt statuses.
func (s AttemptStatus) Valid() bool {
	switch s {
	case AttemptRunning, AttemptSucceeded, AttemptFailed, AttemptSkipped,
		AttemptAbandoned, AttemptInterrupted, AttemptSnoozed:
		return true
	}
	return false
}

// A Turn is the change of direction that an operator asked for while an
// attempt was running.
type Turn string

// The turns. TurnNone is that of a request that only halts.
const (
	TurnNone       Turn = ""
	TurnCompensate Turn = "compensate"
	TurnCancel     Turn = "cancel"
)

// Valid reports whether t is one of the turns.
func (t Turn) Valid() bool { return t == TurnNone || t == TurnCompensate || t == TurnCancel }
