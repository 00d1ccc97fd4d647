package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// byFlags say who acts and why.
func byFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "reason", Usage: "`WHY` it is done: required, kept in the audit trail"},
		&cli.StringFlag{Name: "actor", Usage: "`WHO` does it (default: user@host)"},
		&cli.StringFlag{Name: "request", Usage: "`NAME` of this one act: repeated with it, the act is done once"},
	}
}

func revisionFlag() cli.Flag {
	return &cli.Int64Flag{Name: "if-revision", Usage: "only if the execution is at this `REVISION`", HideDefault: true}
}

func forceFlag(usage string) cli.Flag { return &cli.BoolFlag{Name: "force", Usage: usage} }

const forceUsage = "act although an attempt is running: its step is left in doubt"

func waitFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "wait", Usage: "wait until the act has shown its effect"},
		&cli.DurationFlag{Name: "timeout", Usage: "with -wait: for how long (`TIME`)", Value: time.Minute},
	}
}

func (c *call) by() (saga.By, error) {
	by := saga.By{Actor: c.String("actor"), Reason: c.String("reason"), Request: c.String("request")}
	if by.Actor == "" {
		by.Actor = c.actor
	}
	if by.Reason == "" {
		return by, usage("-reason is required: say why, it is kept in the audit trail")
	}
	return by, nil
}

func (c *call) actOptions() *saga.ActOptions {
	return &saga.ActOptions{Force: c.Bool("force"), IfRevision: c.Int64("if-revision")}
}

// An actView is what an act prints in JSON.
type actView struct {
	Act       saga.Act      `json:"act"`
	Requested bool          `json:"requested,omitempty"` // an attempt runs, the act is left as a request
	Waited    bool          `json:"waited,omitempty"`    // it has shown its effect
	TimedOut  bool          `json:"timed_out,omitempty"` // it has not, within -timeout
	Execution executionView `json:"execution"`
}

// subject reads what every act on one execution needs.
func (c *call) subject() (uuid.UUID, saga.By, error) {
	by, err := c.by()
	if err != nil {
		return uuid.Nil, by, err
	}
	id, err := c.id()
	return id, by, err
}

// act does one of the acts of Engine.Act. With ask somebody has to confirm
// what it would do.
func act(a saga.Act, ask bool) action {
	return func(ctx context.Context, c *call) error {
		id, by, err := c.subject()
		if err != nil {
			return err
		}
		ask := ask || c.Bool("force")
		if ask {
			if err := c.canConfirm(); err != nil {
				return err
			}
		}
		return c.with(ctx, func(s *session) error {
			o := c.actOptions()
			if ask {
				if err := c.confirmPlan(ctx, s, id, a, o, by.Request != ""); err != nil {
					return err
				}
			}
			x, err := s.Act(ctx, id, a, by, o)
			if err != nil {
				return hint(err)
			}
			return c.acted(ctx, s, a, x)
		})
	}
}

// confirmPlan shows what an act would do and asks. What was planned is then
// what is done: at another revision the act fails. A refused act is not asked
// about, unless it may be a repetition, which the act itself knows.
func (c *call) confirmPlan(ctx context.Context, s *session, id uuid.UUID, a saga.Act, o *saga.ActOptions, named bool) error {
	if c.Bool("yes") {
		return nil
	}
	p, err := s.Plan(ctx, id, a, o)
	if err != nil {
		return err
	}
	if p.Refused != nil && !named {
		return hint(p.Refused)
	}
	if o.IfRevision != 0 && o.IfRevision != p.Revision {
		return saga.ErrChanged
	}
	o.IfRevision = p.Revision
	if p.Refused != nil {
		return nil
	}
	k, err := c.clock(ctx, s.store)
	if err != nil {
		return err
	}
	return c.confirm(ctx, func(c *call) { c.showPlan(k, p) }, fmt.Sprintf("%s %s?", verb(a), id))
}

// verb is the name of an act as a command.
func verb(a saga.Act) string {
	switch a {
	case saga.ActSkipStep:
		return "skip"
	case saga.ActEditState:
		return "edit-state"
	}
	return string(a)
}

// actNamed is the act of a command.
func actNamed(name string) (saga.Act, error) {
	for _, a := range saga.Acts() {
		if name == verb(a) {
			return a, nil
		}
	}
	return "", usage("the act is none of retry, compensate, cancel, halt, resume and skip")
}

// hint says what helps against a refusal.
func hint(err error) error {
	switch {
	case errors.Is(err, saga.ErrAttemptRunning):
		return fmt.Errorf("%w; try later, or -force it", err)
	case errors.Is(err, saga.ErrNotRetryable):
		return fmt.Errorf("%w; sagactl resume is for what is halted", err)
	case errors.Is(err, saga.ErrUnknownSaga):
		return fmt.Errorf("%w: sagactl does not know the service's types; -force takes the state unseen", err)
	}
	return err
}

// acted prints what came of an act, after waiting for its effect if asked to.
func (c *call) acted(ctx context.Context, s *session, a saga.Act, x *saga.Execution) error {
	v := actView{Act: a, Requested: x.Request != nil && a != saga.ActResume}
	var timeout error
	if c.Bool("wait") {
		wait, cancel := context.WithTimeout(ctx, c.Duration("timeout"))
		last, err := s.WaitAct(wait, x.ID, a)
		cancel()
		switch {
		case err == nil:
			v.Waited, v.Requested = true, false
		case ctx.Err() == nil && errors.Is(err, context.DeadlineExceeded):
			v.TimedOut = true
			timeout = fail(exitTimeout, "the act is done, but its effect did not show within %s", span(c.Duration("timeout")))
		default:
			return err
		}
		if last != nil {
			x = last
		}
	}
	v.Execution = viewExecution(x)
	if c.json() {
		return errors.Join(c.document(v), timeout)
	}
	c.fields("act", verb(a), "execution", x.ID.String(), "status", string(x.Status), "step", x.Step, "revision", fmt.Sprint(x.Revision))
	if v.Requested {
		fmt.Fprintln(c.stdout, "An attempt is running: the act is left as a request, and done when that ends.")
	}
	return timeout
}

func plan(ctx context.Context, c *call) error {
	a, err := actNamed(c.args[0])
	if err != nil {
		return err
	}
	id, err := parseID(c.args[1])
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		p, err := s.Plan(ctx, id, a, c.actOptions())
		if err != nil {
			return err
		}
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		if c.json() {
			err = c.document(p)
		} else {
			c.showPlan(k, p)
		}
		if p.Refused != nil {
			return errors.Join(err, &codeError{exitRefused, hint(p.Refused)})
		}
		return err
	})
}

// resolve settles a step in doubt.
func resolve(ctx context.Context, c *call) error {
	id, by, err := c.subject()
	if err != nil {
		return err
	}
	step, word := c.args[1], store.StepStatus(c.args[2])
	if word != store.StepDone && word != store.StepPending {
		return usage("the step is either done (it had its effect) or pending (it had none)")
	}
	if err := c.canConfirm(); err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		o := c.actOptions()
		if err := c.confirmExecution(ctx, s, id, o, fmt.Sprintf("resolve step %s as %s?", step, word)); err != nil {
			return err
		}
		x, err := s.Resolve(ctx, id, step, word, by, o)
		if err != nil {
			return hint(err)
		}
		return c.acted(ctx, s, saga.ActResolve, x)
	})
}

// confirmExecution shows an execution and asks about it. An act on it then
// fails at another revision.
func (c *call) confirmExecution(ctx context.Context, s *session, id uuid.UUID, o *saga.ActOptions, question string) error {
	if c.Bool("yes") {
		return nil
	}
	x, err := s.Get(ctx, id)
	if err != nil {
		return err
	}
	k, err := c.clock(ctx, s.store)
	if err != nil {
		return err
	}
	if o.IfRevision == 0 {
		o.IfRevision = x.Revision
	}
	return c.confirm(ctx, func(c *call) {
		c.showExecution(k, x)
		c.showLedger(x)
	}, question)
}

// editState replaces the state by that of a file or of stdin.
func editState(ctx context.Context, c *call) error {
	id, by, err := c.subject()
	if err != nil {
		return err
	}
	file := c.String("file")
	if file == "" {
		return usage("-file is required: the new state, a JSON object; - for stdin")
	}
	if err := c.canConfirm(); err != nil {
		return err
	}
	if file == "-" && !c.Bool("yes") {
		return fail(exitUnconfirmed, "not confirmed: with -file - there is nothing to ask on; -yes does it without asking")
	}
	state, err := c.readState(file)
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		o := c.actOptions()
		if err := c.confirmExecution(ctx, s, id, o, "replace its state by that of "+file+"?"); err != nil {
			return err
		}
		r, err := s.redactor(ctx)
		if err != nil {
			return err
		}
		was, err := s.Get(ctx, id)
		if err != nil {
			return err
		}
		restored, err := r.Restore(was.Saga, state, was.State)
		if err != nil {
			return hint(err)
		}
		x, err := s.EditState(ctx, id, restored, by, o)
		if err != nil {
			return hint(err)
		}
		return c.acted(ctx, s, saga.ActEditState, x)
	})
}

func (c *call) readState(file string) (json.RawMessage, error) {
	var r io.Reader = c.stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	b, err := io.ReadAll(io.LimitReader(r, store.MaxState+1))
	switch {
	case err != nil:
		return nil, err
	case len(b) > store.MaxState:
		return nil, usage("the state is larger than 1 MiB")
	case !json.Valid(b):
		return nil, usage("the state is not JSON")
	}
	return b, nil
}

func move(ctx context.Context, c *call) error {
	id, by, err := c.subject()
	if err != nil {
		return err
	}
	if c.Bool("force") {
		if err := c.canConfirm(); err != nil {
			return err
		}
	}
	return c.with(ctx, func(s *session) error {
		o := c.actOptions()
		if o.Force {
			if err := c.confirmExecution(ctx, s, id, o, "move it although an attempt may be running?"); err != nil {
				return err
			}
		}
		x, err := s.Move(ctx, id, c.args[1], by, o)
		if err != nil {
			return hint(err)
		}
		return c.acted(ctx, s, saga.ActMove, x)
	})
}

// rerun starts a new execution, whose effects are new ones: it asks.
func rerun(ctx context.Context, c *call) error {
	id, by, err := c.subject()
	if err != nil {
		return err
	}
	if err := c.canConfirm(); err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		o := c.actOptions()
		if err := c.confirmExecution(ctx, s, id, o, "start a new execution with what this one was started with?"); err != nil {
			return err
		}
		started, err := s.Rerun(ctx, id, by, &saga.RerunOptions{Partition: c.String("partition"), IfRevision: o.IfRevision})
		if err != nil {
			return err
		}
		return c.acted(ctx, s, saga.ActRerun, started.Execution)
	})
}
