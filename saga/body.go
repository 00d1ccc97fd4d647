package saga

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/leveret-go/leveret/store"
)

// errGoexit is what a body that ends its goroutine is taken to have returned.
var errGoexit = errors.New("the step ended its goroutine (runtime.Goexit)")

// runBody runs the function of the open attempt's step once, without any lock,
// and works out what it came to.
//
// tx is the transaction for a step that wants one, else nil.
func (e *Engine) runBody(ctx context.Context, x *store.Execution, s *session, tx store.Tx) result {
	p := e.planFor(x)
	step, ok := p.step(x.Step)
	if !ok {
		// It was known a moment ago, under the lock.
		return result{kind: interrupted, doubt: true, reason: "saga or step is not known"}
	}
	ctx = e.sessions.begin(ctx, s, e.clock.now())
	call := newCall(x, e.clock.now, e.log)
	call.judged, call.ctx = step, ctx
	call.long = &longWork{engine: e, session: s, x: x, checkpoint: x.Checkpoint, inTx: tx != nil}
	var ret returned
	var sp spawning
	f := step.body(x.Direction)
	switch {
	case tx != nil:
		f = step.txBody(x.Direction).in(tx)
	case step.children != nil:
		f = e.childrenBody(x, step, &sp)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		callBody(ctx, e.through(p, f), call, x.State, &ret)
	}()
	<-done
	call.long.close()
	e.sessions.end(s)
	r := judgeSafely(step, x.Direction, ret)
	if r.err != nil || r.failure != nil || r.reason != "" {
		r.scrub(p.secrets(x.State, call.left))
	}
	switch {
	case sp.spawned && r.kind == succeeded:
		r.kind, r.children = spawned, sp.children
	case sp.joining && r.kind == succeeded:
		r.kind, r.looked = joining, x.Revision
	}
	if r.failure != nil {
		r.failure.Step = x.Step // the ledger's name
	}
	return r
}

// callBody fills ret however f ends.
func callBody(ctx context.Context, f body, call *Call, state []byte, ret *returned) {
	normal := false
	defer func() {
		if !normal {
			*ret = returned{panicked: true, panicVal: recover(), stack: string(debug.Stack())}
			if ret.panicVal == nil {
				ret.panicVal = errGoexit
			}
		}
		if ctx.Err() != nil {
			ret.cause = context.Cause(ctx)
		}
	}()
	ret.state, ret.stateErr, ret.err = f(ctx, call, state)
	normal = true
}

// judgeSafely is judge for errors whose own methods panic, as those of a nil
// pointer in an error do.
func judgeSafely(step *planStep, d Direction, ret returned) (r result) {
	defer func() {
		if v := recover(); v != nil {
			r = judge(step, d, returned{
				panicked: true, panicVal: fmt.Sprintf("the step's error panicked: %v", v),
				stack: string(debug.Stack()), cause: ret.cause,
			})
		}
	}()
	return judge(step, d, ret)
}

// A session is an attempt that this process runs.
type session struct {
	lease     store.Lease
	saga      string
	since     time.Time // when the attempt was opened
	until     time.Time // by the local, monotonic clock: when the lease ends
	timeoutAt *time.Time
	timer     context.CancelFunc
	cancel    context.CancelCauseFunc
	running   bool            // the body has not returned
	endedAt   time.Time       // when its ctx ended; zero: not yet
	progress  *store.Progress // what the step last said
	told      bool            // and whether a renewal has taken it along
	given     bool            // no longer renewed: the body ignores the end of its ctx
	stuck     bool            // reported
	lost      bool            // counted
}
