package fence_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/leveret-go/leveret/fence"
)

// do is one call in a transaction of its own, which ends as a participant's
// should.
func do(t *testing.T, p participant, k kind, execution string, fn func([]byte) ([]byte, error)) (fence.Verdict, []byte, error) {
	t.Helper()
	tx, err := p.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	key, executeKey := k.keys(execution, "")
	v, result, err := tx.do(t.Context(), key, executeKey, fn)
	if err != nil {
		if err := tx.rollback(t.Context()); err != nil {
			t.Fatal(err)
		}
		return v, result, err
	}
	if err := tx.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v, result, nil
}

func answers(result string, given *[]byte) func([]byte) ([]byte, error) {
	return func(effect []byte) ([]byte, error) {
		*given = effect
		return []byte(result), nil
	}
}

func TestRepeatAnswersWhatTheFirstDid(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		execution := newExecution()
		var given []byte
		for _, c := range []struct {
			kind    kind
			result  string // of fn, if it is called
			verdict fence.Verdict
			want    string
			err     error
			given   string
		}{
			{effect, "charge\x00\xff1", fence.First, "charge\x00\xff1", nil, ""},
			{effect, "charge 2", fence.Repeat, "charge\x00\xff1", nil, ""},
			{undo, "refund 1", fence.First, "refund 1", nil, "charge\x00\xff1"},
			{undo, "refund 2", fence.Repeat, "refund 1", nil, ""},
			{again, "refund 3", fence.Repeat, "refund 1", nil, ""},
			{effect, "charge 3", fence.Refuse, "", fence.ErrRefused, ""},
		} {
			given = nil
			v, got, err := do(t, p, c.kind, execution, answers(c.result, &given))
			if v != c.verdict || string(got) != c.want || !errors.Is(err, c.err) || string(given) != c.given {
				t.Errorf("%s: got %s %q %v, fn was given %q; want %s %q %v, %q", c.kind, v, got, err, given, c.verdict, c.want, c.err, c.given)
			}
		}

		early := newExecution()
		v, got, err := do(t, p, undo, early, answers("refund", &given))
		if v != fence.Noop || got != nil || err != nil {
			t.Errorf("an undo of nothing: got %s %q %v, want noop", v, got, err)
		}
		v, got, err = do(t, p, effect, early, answers("charge", &given))
		if v != fence.Refuse || got != nil || !errors.Is(err, fence.ErrRefused) {
			t.Errorf("its effect, late: got %s %q %v, want refuse", v, got, err)
		}
	})
}

func TestNothingHappenedWhenFnFails(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		execution := newExecution()
		broke := errors.New("no money")
		v, _, err := do(t, p, effect, execution, func([]byte) ([]byte, error) { return nil, broke })
		if v != fence.First || err != broke {
			t.Errorf("got %s, %v, want first and fn's own error", v, err)
		}
		if v := whole(t, p, effect, execution); v != fence.First {
			t.Errorf("after fn failed: got %s, want first", v)
		}
	})
}

func TestResultIsLimited(t *testing.T) {
	p := openSQLite(t, "deferred")
	if err := p.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	for size, want := range map[int]error{0: nil, 64 << 10: nil, 64<<10 + 1: fence.ErrInvalid} {
		long := bytes.Repeat([]byte{'x'}, size)
		execution := newExecution()
		_, _, err := do(t, p, effect, execution, func([]byte) ([]byte, error) { return long, nil })
		if !errors.Is(err, want) {
			t.Errorf("%d bytes: got %v, want %v", size, err, want)
		}
		if err != nil {
			continue
		}
		_, got, err := do(t, p, effect, execution, func([]byte) ([]byte, error) { t.Error("called again"); return nil, nil })
		if err != nil || !bytes.Equal(got, long) {
			t.Errorf("%d bytes: the repetition got %d bytes, %v", size, len(got), err)
		}
	}
}
