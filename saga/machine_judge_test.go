package saga

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

type timeoutError struct{}

func (timeoutError) Error() string   { return "i/o timeout" }
func (timeoutError) Timeout() bool   { return true }
func (timeoutError) Temporary() bool { return false }

type codeError struct{ code int }

func (e *codeError) Error() string { return fmt.Sprintf("code %d", e.code) }

// show writes a result in words.
func show(r result) string {
	s := [...]string{"succeeded", "skipped", "completed", "failed", "gave up", "halted", "snoozed", "interrupted", "spawned", "joining"}[r.kind]
	if r.doubt {
		s += " doubt"
	}
	if r.noEffect {
		s += " no-effect"
	}
	if r.after != nil {
		s += fmt.Sprintf(" after %v", *r.after)
	}
	if r.state != nil {
		s += " state"
	}
	return s
}

func TestJudge(t *testing.T) {
	broken := errors.New("broken")
	var netTimeout net.Error = timeoutError{}
	// What a body returned, and what comes of it while ctx lives, after ctx
	// ended with a shutdown (or a request, or a lost lease), and after the
	// step's time-out. ~ is "the same".
	rows := []struct {
		name                 string
		err                  error
		alive, cut, timedOut string
	}{
		{"nil", nil, "succeeded state", "~", "~"},
		{"Skip", Skip("none"), "skipped state", "~", "~"},
		{"Skip, wrapped", fmt.Errorf("x: %w", Skip("none")), "skipped state", "~", "~"},
		{"Complete", Complete("enough"), "completed state", "~", "~"},
		{"Fail", Fail(broken), "gave up", "~", "~"},
		{"Fail, wrapped", fmt.Errorf("x: %w", Fail(broken)), "gave up", "~", "~"},
		{"Fail of an unknown outcome", Fail(Unknown(broken)), "gave up doubt", "~", "~"},
		{"Fail without effect", Fail(NoEffect(broken)), "gave up no-effect", "~", "~"},
		{"Fail of a ctx error", Fail(context.Canceled), "gave up doubt", "~", "~"},
		{"Halt", Halt("look"), "halted doubt", "~", "~"},
		{"Halt without effect", NoEffect(Halt("look")), "halted no-effect", "~", "~"},
		{"an error", broken, "failed", "interrupted doubt", "failed doubt"},
		{"Unknown", Unknown(broken), "failed doubt", "interrupted doubt", "failed doubt"},
		{"NoEffect", NoEffect(broken), "failed no-effect", "interrupted no-effect", "failed no-effect"},
		{"Unknown in NoEffect: unknown", NoEffect(Unknown(broken)), "failed doubt", "interrupted doubt", "failed doubt"},
		{"NoEffect in Unknown: unknown", Unknown(NoEffect(broken)), "failed doubt", "interrupted doubt", "failed doubt"},
		{"NoEffect around Skip", NoEffect(Skip("none")), "skipped no-effect state", "~", "~"},
		{"Unknown around Skip", Unknown(Skip("none")), "skipped doubt state", "~", "~"},
		{"Class", Class("mine", broken), "failed", "interrupted doubt", "failed doubt"},
		{"RetryAfter", RetryAfter(time.Hour, broken), "failed after 1h0m0s", "interrupted doubt", "failed doubt"},
		{"RetryAfter a ctx error", RetryAfter(time.Hour, context.DeadlineExceeded), "failed doubt after 1h0m0s", "interrupted doubt", "failed doubt"},
		{"Snooze", Snooze(time.Minute), "snoozed doubt after 1m0s state", "interrupted doubt", "failed doubt"},
		{"Snooze without effect", NoEffect(Snooze(time.Minute)), "snoozed no-effect after 1m0s state", "interrupted no-effect", "failed no-effect"},
		{"ctx cancelled", context.Canceled, "failed doubt", "interrupted doubt", "failed doubt"},
		{"ctx deadline, wrapped", fmt.Errorf("x: %w", context.DeadlineExceeded), "failed doubt", "interrupted doubt", "failed doubt"},
		{"network time-out", netTimeout, "failed doubt", "interrupted doubt", "failed doubt"},
		{"the outermost settles", wrapped(Fail(broken)), "gave up", "~", "~"},
		{"Fail around RetryAfter", Fail(RetryAfter(time.Hour, broken)), "gave up", "~", "~"},
		{"RetryAfter around Fail", RetryAfter(time.Hour, Fail(broken)), "failed after 1h0m0s", "interrupted doubt", "failed doubt"},
		{"joined", errors.Join(broken, Fail(broken)), "gave up", "~", "~"},
	}
	causes := map[string][]error{
		"alive": {nil}, "cut": {ErrShutdown, ErrInterrupted, ErrAttemptLost, fmt.Errorf("x: %w", ErrAttemptLost)}, "timed out": {context.DeadlineExceeded},
	}
	s := &planStep{name: "a"}
	for _, row := range rows {
		for when, list := range causes {
			want := map[string]string{"alive": row.alive, "cut": row.cut, "timed out": row.timedOut}[when]
			if strings.HasPrefix(want, "~") {
				want = row.alive
			}
			for _, cause := range list {
				for _, d := range []Direction{store.DirectionExecute, store.DirectionCompensate} {
					if listen(row.err).kind == KindComplete && d == store.DirectionCompensate {
						continue // see below
					}
					ret := returned{err: row.err, cause: cause, state: []byte("{}")}
					r := judge(s, d, ret)
					if got := show(r); got != want {
						t.Errorf("%s, %s, %s: %q, want %q", row.name, d, when, got, want)
					}
					if (r.failure != nil) != (r.kind == failed || r.kind == gaveUp) {
						t.Errorf("%s, %s: failure %+v", row.name, when, r.failure)
					}
				}
			}
		}
	}
	if got := show(judge(s, store.DirectionCompensate, returned{err: Complete("no"), state: []byte("{}")})); got != "failed" {
		t.Errorf("Complete in a compensation: %q", got)
	}

	eager := &planStep{name: "a", errorsInDoubt: true}
	for err, want := range map[error]string{
		broken: "failed doubt", NoEffect(broken): "failed no-effect", Fail(broken): "gave up doubt", Skip("none"): "skipped state",
	} {
		if got := show(judge(eager, store.DirectionExecute, returned{err: err, state: []byte("{}")})); got != want {
			t.Errorf("ErrorsInDoubt, %v: %q, want %q", err, got, want)
		}
	}

	for _, v := range []any{"oh no", broken, 42} {
		r := judge(s, store.DirectionExecute, returned{panicked: true, panicVal: v, stack: strings.Repeat("x", maxStack+1), cause: ErrShutdown})
		if r.kind != failed || !r.doubt || len(r.stack) > maxStack || !strings.HasPrefix(r.failure.Message, "panic: ") || r.state != nil {
			t.Errorf("panic of %v: %+v", v, r)
		}
	}
	refused := judge(s, store.DirectionExecute, returned{stateErr: errState})
	if refused.kind != succeeded || refused.stateErr == nil {
		t.Errorf("refused state: %+v", refused)
	}
	if r := judge(s, store.DirectionExecute, returned{err: broken, stateErr: errState}); r.stateErr != nil {
		t.Errorf("the state of an error counts: %+v", r)
	}
}

// wrapped hides nothing: it puts an error in a wrapper of the user's own.
func wrapped(err error) error { return &wrapper{err} }

type wrapper struct{ error }

func (w *wrapper) Unwrap() error { return w.error }

func TestErrorClass(t *testing.T) {
	_, missing := os.Open("/does/not/exist")
	for _, c := range []struct {
		err  error
		want string
	}{
		{errors.New("no courier"), "no courier"},
		{fmt.Errorf("order 4711 of 3.5 kg: %w", errors.New("no courier")), "order _ of _ kg: no courier"},
		{errors.New(`name "bob" is 'taken' by ` + "`eve`"), "name _ is _ by _"},
		{errors.New("id 0195524a-0000-7000-8000-000000000002 is gone"), "id _ is gone"},
		{&codeError{4}, "saga.codeError"},
		{fmt.Errorf("x: %w", &codeError{4}), "saga.codeError"},
		{Fail(&codeError{4}), "saga.codeError"},
		{fmt.Errorf("x: %w", Unknown(fmt.Errorf("y: %w", &codeError{4}))), "saga.codeError"},
		{errors.Join(&codeError{1}, errors.New("other")), "saga.codeError"},
		{missing, "syscall.Errno"},
		{&fs.PathError{Op: "open", Path: "/x", Err: errors.New("no")}, "fs.PathError"},
		{context.DeadlineExceeded, "context.deadlineExceededError"},
		{fmt.Errorf("%w and %w", errors.New("a"), errors.New("b")), "a and b"},
	} {
		if got := errorClass(c.err); got != c.want {
			t.Errorf("class of %q is %q, want %q", c.err, got, c.want)
		}
	}
	f := failureOf(Class("mine", &codeError{4}), listen(Class("mine", &codeError{4})).class, "a")
	if f.Class != "mine" || f.Message != "code 4" || f.Step != "a" {
		t.Errorf("%+v", f)
	}
	if got := listen(Class("outer", Class("inner", errors.New("x")))).class; got != "outer" {
		t.Errorf("class %q, want the outermost", got)
	}
	long := failureOf(errors.New(strings.Repeat("é\x00\xff", maxMessage)), strings.Repeat("é", maxClass), "a")
	if len(long.Message) > maxMessage || !utf8.ValidString(long.Message) || strings.ContainsRune(long.Message, 0) || !strings.HasSuffix(long.Message, cutMark) {
		t.Errorf("message of %d bytes", len(long.Message))
	}
	if len(long.Class) > maxClass || !utf8.ValidString(long.Class) {
		t.Errorf("class of %d bytes", len(long.Class))
	}
	if got := cutClass(" \x00 "); got == "" {
		t.Error("an empty class")
	}
}
