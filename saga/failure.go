package saga

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

const (
	maxMessage = 4 << 10
	maxStack   = 16 << 10
	maxClass   = 100
	cutMark    = " … (cut)"
)

// What a body came to.
type returned struct {
	state    []byte
	stateErr error
	err      error
	panicked bool
	panicVal any
	stack    string
	// cause is why the ctx of the body had ended when it returned; nil if it
	// had not.
	cause error
}

// What an error says, besides its text.
type said struct {
	kind     OutcomeKind // of the outermost settling outcome; "" for none
	outcome  *Outcome
	class    string
	noEffect bool
	unknown  bool
}

func listen(err error) (s said) {
	for err != nil {
		var o *Outcome
		if !errors.As(err, &o) {
			break
		}
		switch o.Kind {
		case KindNoEffect:
			s.noEffect = true
		case KindUnknown:
			s.unknown = true
		case KindClass:
			if s.class == "" {
				s.class = o.Reason
			}
		default:
			if s.kind == "" {
				s.kind, s.outcome = o.Kind, o
			}
		}
		err = o.Err
	}
	return s
}

// savesState reports whether what a step did to the state is kept although it
// returned this error.
func savesState(err error) bool {
	switch listen(err).kind {
	case KindSkip, KindComplete, KindContinueAsNew, KindSnooze:
		return true
	}
	return false
}

// judge works out what an attempt came to.
func judge(s *planStep, d Direction, ret returned) result {
	if ret.panicked {
		msg := fmt.Sprintf("panic: %v", ret.panicVal)
		class := "panic"
		if err, ok := ret.panicVal.(error); ok {
			class = errorClass(err)
		}
		r := result{kind: failed, doubt: true, stack: cut(ret.stack, maxStack), failure: &store.Failure{Class: cutClass(class), Message: cut(msg, maxMessage), Step: s.name}}
		r.err = &FailureError{*r.failure}
		return r
	}
	if ret.err == nil {
		return result{kind: succeeded, state: ret.state, stateErr: ret.stateErr}
	}

	say := listen(ret.err)
	r := result{err: ret.err, state: ret.state, stateErr: ret.stateErr, noEffect: say.noEffect}
	if say.outcome != nil {
		r.reason = cut(say.outcome.Reason, maxMessage)
	}
	r.doubt = say.unknown || !say.noEffect && (s.errorsInDoubt || unknownOutcome(ret.err))
	r.noEffect = say.noEffect && !say.unknown
	fail := func(kind resultKind) result {
		r.kind, r.state, r.stateErr = kind, nil, nil
		r.failure = failureOf(ret.err, say.class, s.name)
		return r
	}
	switch say.kind {
	case KindSkip:
		r.kind, r.doubt, r.err = skipped, say.unknown, nil
		return r
	case KindComplete, KindContinueAsNew:
		if d == store.DirectionCompensate {
			r.reason = ""
			return fail(failed)
		}
		r.kind, r.doubt, r.err = completed, false, nil
		r.again = say.kind == KindContinueAsNew
		return r
	case KindFail:
		return fail(gaveUp)
	case KindHalt:
		r.kind, r.doubt, r.state, r.stateErr, r.err = halted, !r.noEffect, nil, nil, nil
		return r
	}
	switch {
	case errors.Is(ret.cause, ErrShutdown), errors.Is(ret.cause, ErrInterrupted), errors.Is(ret.cause, ErrAttemptLost):
		r.kind, r.doubt, r.state, r.stateErr = interrupted, !r.noEffect, nil, nil
		r.reason = cut(ret.cause.Error(), maxMessage)
		return r
	case ret.cause != nil:
		r.doubt = !r.noEffect
		return fail(failed)
	case say.kind == KindSnooze:
		r.kind, r.doubt, r.after, r.err = snoozed, !r.noEffect, &say.outcome.After, nil
		return r
	case say.kind == KindRetryAfter:
		r.after = &say.outcome.After
	}
	return fail(failed)
}

// unknownOutcome reports whether an error leaves it open what the other side
// did.
func unknownOutcome(err error) bool {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func failureOf(err error, class, step string) *store.Failure {
	if class == "" {
		class = errorClass(err)
	}
	return &store.Failure{Class: cutClass(class), Message: cut(err.Error(), maxMessage), Step: step}
}

var (
	quotedText = regexp.MustCompile(`"[^"]*"|'[^']*'|` + "`[^`]*`")
	idText     = regexp.MustCompile(`(?i)\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b|\b[0-9a-f]*[0-9][0-9a-f]{7,}\b|[0-9]+([.,:][0-9]+)*`)
)

// errorClass is the innermost error type with a name of its own, else the
// message without what differs from one occurrence to the next.
func errorClass(err error) string {
	class := ""
	visit := func(err error) {
		for err != nil {
			if _, ok := err.(*Outcome); !ok {
				t := strings.TrimPrefix(fmt.Sprintf("%T", err), "*")
				if !strings.HasPrefix(t, "errors.") && !strings.HasPrefix(t, "fmt.") && !strings.HasPrefix(t, "struct ") {
					class = t
				}
			}
			switch u := err.(type) {
			case interface{ Unwrap() error }:
				err = u.Unwrap()
			case interface{ Unwrap() []error }:
				if l := u.Unwrap(); len(l) > 0 {
					err = l[0]
					continue
				}
				return
			default:
				return
			}
		}
	}
	visit(err)
	if class != "" {
		return class
	}
	return idText.ReplaceAllString(quotedText.ReplaceAllString(err.Error(), "_"), "_")
}

func cutClass(class string) string {
	class = clean(strings.TrimSpace(class))
	if class == "" {
		class = "error"
	}
	return truncate(class, maxClass)
}

// cut makes a text fit for a store: valid UTF-8 without NUL, at most limit
// bytes, marked when it was longer.
func cut(s string, limit int) string {
	s = clean(s)
	if len(s) <= limit {
		return s
	}
	return truncate(s, limit-len(cutMark)) + cutMark
}

func clean(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}

func truncate(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}
