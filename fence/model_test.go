package fence_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/fence"
)

// A kind of call: of the effect, of its undo, or of the undo of a raised round.
type kind string

const (
	effect kind = "E"
	undo   kind = "U"
	again  kind = "U2"
)

var kinds = []kind{effect, undo, again}

// keys are what a step hands over for a kind of call.
func (k kind) keys(execution, name string) (key, executeKey string) {
	executeKey = execution + "/charge/execute" + name
	switch k {
	case effect:
		return executeKey, executeKey
	case undo:
		return execution + "/charge/compensate" + name, executeKey
	default:
		return execution + "/charge/compensate/2" + name, executeKey
	}
}

func (k kind) delta() int {
	if k == effect {
		return 1
	}
	return -1
}

// A past is what has been committed of the calls of one effect, as far as it
// counts: the four lines of the table in the package comment.
type past string

const (
	nothing past = "nothing"
	done    past = "done"
	undone  past = "undone"
	void    past = "void" // the undo came first
)

// after says what a call gets, and what the past is when it has committed.
func (p past) after(k kind) (fence.Verdict, past) {
	switch {
	case k == effect && p == nothing:
		return fence.First, done
	case k == effect && p == done:
		return fence.Repeat, done
	case k == effect:
		return fence.Refuse, p
	case p == nothing, p == void:
		return fence.Noop, void
	case p == done:
		return fence.First, undone
	default:
		return fence.Repeat, undone
	}
}

// call passes, and does what the verdict says.
func call(ctx context.Context, tx transaction, k kind, execution string) (fence.Verdict, error) {
	key, executeKey := k.keys(execution, "")
	v, err := tx.pass(ctx, key, executeKey)
	if errors.Is(err, fence.ErrRefused) != (v == fence.Refuse) {
		return v, fmt.Errorf("verdict %q with the error %w", v, err)
	}
	if v == fence.First {
		return v, tx.exec(ctx, "INSERT INTO entries (effect, delta) VALUES ($1, $2)", execution, k.delta())
	}
	if v == fence.Refuse {
		err = nil
	}
	return v, err
}

// whole is one call in a transaction of its own, which commits, also when the
// effect is refused.
func whole(t *testing.T, p participant, k kind, execution string) fence.Verdict {
	t.Helper()
	tx, err := p.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v, err := call(t.Context(), tx, k, execution)
	if err != nil {
		_ = tx.rollback(t.Context())
		t.Fatal(err)
	}
	if err := tx.commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return v
}

// inForce says how often an effect has happened and not been undone.
func inForce(t *testing.T, p participant, execution string) int {
	t.Helper()
	n, err := p.number(t.Context(), "SELECT COALESCE(SUM(delta), 0) FROM entries WHERE effect = $1", execution)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func newExecution() string { return uuid.NewString() }

func join[S ~string](list []S) string {
	words := make([]string, len(list))
	for i, w := range list {
		words[i] = string(w)
	}
	return strings.Join(words, " ")
}
