package fence_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/fence"
)

const longest = 4

func TestEverySequenceGetsItsVerdicts(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		var walk func(sofar []kind)
		walk = func(sofar []kind) {
			if len(sofar) > 0 {
				sequence(t, p, sofar)
			}
			if len(sofar) < longest {
				for _, k := range kinds {
					walk(append(sofar[:len(sofar):len(sofar)], k))
				}
			}
		}
		walk(nil)
	})
}

// sequence makes calls one after the other, and compares them with the model.
func sequence(t *testing.T, p participant, calls []kind) (verdicts []fence.Verdict, left int) {
	t.Helper()
	execution := newExecution()
	was := nothing
	for i, k := range calls {
		want, then := was.after(k)
		got := whole(t, p, k, execution)
		if got != want {
			t.Errorf("%s: call %d: got %s, want %s", join(calls), i+1, got, want)
		}
		verdicts, was = append(verdicts, got), then
	}
	left = inForce(t, p, execution)
	if want := map[past]int{done: 1}[was]; left != want {
		t.Errorf("%s: in force %d times, want %d", join(calls), left, want)
	}
	return verdicts, left
}

// The table of sequences in the package comment is what happens.
func TestPackageCommentTellsTheTruth(t *testing.T) {
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	line := regexp.MustCompile(`(?m)^//\t((?:[EU]2? )*[EU]2?) {2,}([A-Z][A-Za-z ]*\S) {2,}(yes|no)\b`)
	lines := line.FindAllStringSubmatch(string(text), -1)
	if len(lines) != 16 {
		t.Fatalf("the package comment has %d sequences, want 16", len(lines))
	}
	p := openSQLite(t, "deferred")
	if err := p.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := p.exec(t.Context(), entries); err != nil {
		t.Fatal(err)
	}
	for _, l := range lines {
		var calls []kind
		for word := range strings.FieldsSeq(l[1]) {
			calls = append(calls, kind(word))
		}
		verdicts, left := sequence(t, p, calls)
		if got, want := join(verdicts), strings.ToLower(l[2]); got != want {
			t.Errorf("%s: got %s, the package comment says %s", l[1], got, want)
		}
		if (left == 1) != (l[3] == "yes") {
			t.Errorf("%s: in force %d times, the package comment says %s", l[1], left, l[3])
		}
	}
}

// A transaction that was rolled back has not been, whatever it did.
func TestRolledBackCallLeavesNoTrace(t *testing.T) {
	onEach(t, func(t *testing.T, p participant) {
		for _, before := range [][]kind{{}, {effect}, {effect, undo}, {undo}} {
			for _, lost := range kinds {
				for _, next := range kinds {
					execution := newExecution()
					was := nothing
					for _, k := range before {
						_, was = was.after(k)
						whole(t, p, k, execution)
					}
					tx, err := p.begin(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					if _, err := call(t.Context(), tx, lost, execution); err != nil {
						t.Error(err)
					}
					if err := tx.rollback(t.Context()); err != nil {
						t.Fatal(err)
					}
					want, then := was.after(next)
					if got := whole(t, p, next, execution); got != want {
						t.Errorf("%s, then %s rolled back, then %s: got %s, want %s", join(before), lost, next, got, want)
					}
					if got, want := inForce(t, p, execution), (map[past]int{done: 1}[then]); got != want {
						t.Errorf("%s, then %s rolled back, then %s: in force %d times, want %d", join(before), lost, next, got, want)
					}
				}
			}
		}
	})
}
