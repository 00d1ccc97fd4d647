package saga

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// Resolve settles by a person's word whether a step that is in doubt had its
// effect: store.StepDone, or store.StepPending for no effect; one whose undo was
// begun becomes undone by that. A compensation under way goes by it; a failed, cancelled or compensated execution is reopened
// when a step that was done now has to be undone. A halted execution stays
// halted: Resume it. It returns [ErrNotInDoubt] when the step is not in doubt,
// [ErrNoStep] when the execution has no such step, [ErrAttemptRunning] (unless
// Force) while an attempt of this step runs. What holds for all acts: see
// [Engine.Act].
func (e *Engine) Resolve(ctx context.Context, id uuid.UUID, step string, is store.StepStatus, by By, opts *ActOptions) (*Execution, error) {
	if is != store.StepDone && is != store.StepPending {
		return nil, fmt.Errorf("%w: saga: resolve: is %q, want done or pending", ErrInvalid, is)
	}
	o := optionsOf(opts)
	return e.byHand(ctx, id, ActResolve, by, o, []string{step, string(is)}, map[string]any{"step": step, "is": is}, func(m *machine) error {
		return m.resolve(step, is, o.Force)
	})
}

// EditState replaces the state of a halted, failed or compensation_failed
// execution; nothing moves until it is resumed or retried. state is a JSON
// object of at most 1 MiB that fits the registered saga's state: [ErrInvalid]
// if not, and [ErrUnknownSaga] where the saga is not registered in this process,
// unless Force says to take it unseen. The audit entry holds what was changed.
// It returns [ErrNotEditable] or [ErrFinished] in another status, [ErrErased] for
// an execution without its state. What holds for all acts: see [Engine.Act].
func (e *Engine) EditState(ctx context.Context, id uuid.UUID, state json.RawMessage, by By, opts *ActOptions) (*Execution, error) {
	o := optionsOf(opts)
	compact, err := compactObject(state)
	if err != nil {
		return nil, fmt.Errorf("%w: saga: edit_state %s: %w", ErrInvalid, id, err)
	}
	return e.operate(ctx, id, operation{act: ActEditState, by: by, ifRevision: o.IfRevision, content: []string{strconv.FormatBool(o.Force), string(state)}},
		func(m *machine) error {
			switch {
			case m.plan != nil:
				if err := m.plan.checkState(compact); err != nil {
					return fmt.Errorf("%w: %w", ErrInvalid, err)
				}
			case !o.Force:
				return ErrUnknownSaga
			}
			detail := &auditDetail{json: m.plan.redactDetail(stateDiff(m.x.State, compact))}
			return m.operate(ActEditState, by, detail, func() error { return m.editState(compact) })
		})
}

// Move gives an unfinished execution to another partition, 1 to 64 characters,
// [a-z0-9][a-z0-9_-]*. It goes on there as it stood; to move it to where it is
// changes nothing. It returns [ErrFinished] for a finished execution and
// [ErrAttemptRunning] (unless Force) while an attempt runs. What holds for all
// acts: see [Engine.Act].
func (e *Engine) Move(ctx context.Context, id uuid.UUID, partition string, by By, opts *ActOptions) (*Execution, error) {
	if !partitionRule.MatchString(partition) {
		return nil, fmt.Errorf("%w: saga: move: partition %s", ErrInvalid, partitionFault(partition))
	}
	o := optionsOf(opts)
	x, err := e.operate(ctx, id, operation{act: ActMove, by: by, ifRevision: o.IfRevision, content: []string{strconv.FormatBool(o.Force), partition}},
		func(m *machine) error {
			detail := detailOf(map[string]any{"from": m.x.Partition, "to": partition})
			return m.operate(ActMove, by, detail, func() error { return m.move(partition, o.Force) })
		})
	return x, err
}

func optionsOf(opts *ActOptions) ActOptions {
	if opts == nil {
		return ActOptions{}
	}
	return *opts
}

// byHand does an act whose detail is known beforehand.
func (e *Engine) byHand(ctx context.Context, id uuid.UUID, act Act, by By, o ActOptions, content []string, detail map[string]any, f func(m *machine) error) (*Execution, error) {
	content = append(content, strconv.FormatBool(o.Force))
	return e.operate(ctx, id, operation{act: act, by: by, ifRevision: o.IfRevision, content: content}, func(m *machine) error {
		return m.operate(act, by, detailOf(detail), func() error { return f(m) })
	})
}

func detailOf(v map[string]any) *auditDetail {
	b, err := json.Marshal(v)
	if err != nil {
		return nil // names and ids: they can be encoded
	}
	return &auditDetail{json: b}
}
