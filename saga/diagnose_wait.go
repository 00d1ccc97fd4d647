package saga

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// waits is the diagnosis of an execution that is parked at a gate.
func (s *surroundings) waits(x *store.Execution, d Diagnosis, at string) Diagnosis {
	g := x.Gate
	d.Code, d.Since, d.Until = DiagnosisWaiting, g.Since, g.Until
	until := ""
	if g.Until != nil {
		until = " until " + clock3339(*g.Until)
	}
	say := func(format string, args ...any) Diagnosis {
		d.Sentence = fmt.Sprintf(format, args...)
		return d
	}
	switch g.Kind {
	case store.GateStart:
		return say("it does not start before %s.", clock3339(*g.Until))
	case store.GateSignal:
		if g.Prompt != "" {
			return say("%s asks%s: %s", at, until, g.Prompt)
		}
		return say("%s waits for %s%s.", at, signalText(g), until)
	case store.GateRetry:
		d.Act = ActRetry
		if x.Failure != nil {
			d.Because = x.Failure.Class
		}
		return say("%s has failed with %s in all its attempts; it is tried again when signal %q comes.", at, d.Because, g.Signals[0])
	case store.GateTurn:
		if g.Group != "" {
			return say("it waits for its turn: only so many executions of saga %q in group %q are active at a time.", x.Saga, g.Group)
		}
		return say("it waits for its turn: only so many executions of saga %q are active at a time.", x.Saga)
	case store.GateChildren:
		return say("%s waits for the executions that it has started.", at)
	case store.GatePredecessor:
		d.Behind = x.Follows
		if x.Follows == nil {
			break
		}
		p, ok := s.predecessors[*x.Follows]
		if !ok {
			return say("it takes the place of execution %s when that has ended.", *x.Follows)
		}
		if p.Status == store.StatusCompensationFailed {
			return say("it takes the place of execution %s, which is %s: a person must see to that one first.", p.ID, p.Status)
		}
		return say("it takes the place of execution %s, which is %s, when that has ended.", p.ID, p.Status)
	}
	return say("%s waits%s.", at, until)
}

func signalText(g *store.Gate) string {
	switch {
	case len(g.Signals) == 1:
		return fmt.Sprintf("signal %q", g.Signals[0])
	case g.All:
		return fmt.Sprintf("all of the signals %s", strings.Join(g.Signals, ", "))
	}
	return fmt.Sprintf("one of the signals %s", strings.Join(g.Signals, ", "))
}

// predecessorsOf reads the executions that others wait for.
func (e *Engine) predecessorsOf(ctx context.Context, xs []*store.Execution) (map[uuid.UUID]*store.Execution, error) {
	out := map[uuid.UUID]*store.Execution{}
	for _, x := range xs {
		if x.Follows == nil || out[*x.Follows] != nil {
			continue
		}
		p, err := e.store.Get(ctx, *x.Follows)
		if errors.Is(err, store.ErrNotFound) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("saga: diagnose: %w", err)
		}
		out[p.ID] = p
	}
	return out, nil
}
