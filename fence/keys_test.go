package fence_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/fence"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// passes makes calls one after the other in one transaction, and returns the
// verdicts, or what the last one failed with.
func passes(t *testing.T, keys ...[2]string) ([]fence.Verdict, error) {
	t.Helper()
	p := openSQLite(t, "immediate")
	if err := p.migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	tx, err := p.begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.rollback(t.Context()) }()
	var all []fence.Verdict
	for _, k := range keys {
		v, err := tx.pass(t.Context(), k[0], k[1])
		if err != nil {
			return all, err
		}
		all = append(all, v)
	}
	return all, nil
}

const step = "018f6f0e-3b1c-7cc1-8d2e-0123456789ab/charge"

func TestKeysThatMakeOneEffect(t *testing.T) {
	for _, row := range []struct {
		story string
		keys  [][2]string
		want  string
	}{
		{"every round is the same undo", [][2]string{
			{step + "/execute", step + "/execute"}, {step + "/compensate/2", step + "/execute"},
			{step + "/compensate/13", step + "/execute"}, {step + "/compensate", step + "/execute"},
		}, "first first repeat repeat"},
		{"with effects, too", [][2]string{
			{step + "/execute:a%3A", step + "/execute:a%3A"}, {step + "/compensate/2:a%3A", step + "/execute:a%3A"},
			{step + "/compensate:a%3A", step + "/execute:a%3A"},
		}, "first first repeat"},
		{"effects are apart", [][2]string{
			{step + "/execute:a", step + "/execute:a"}, {step + "/execute:b", step + "/execute:b"},
			{step + "/compensate:b", step + "/execute:b"}, {step + "/execute:a", step + "/execute:a"},
			{step + "/compensate", step + "/execute"},
		}, "first first first repeat noop"},
		{"the undo may be named otherwise than its effect", [][2]string{
			{step + "/execute", step + "/execute"}, {step + "/compensate:refund", step + "/execute"},
			{step + "/compensate/2:refund", step + "/execute"},
		}, "first first repeat"},
		{"two undos of nothing", [][2]string{
			{step + "/compensate:a", step + "/execute"}, {step + "/compensate:b", step + "/execute"},
		}, "noop noop"},
		{"keys of another form", [][2]string{
			{"order 1", "order 1"}, {"undo of order 1", "order 1"}, {"undo of order 1", "order 1"}, {"order 1", "order 1 "},
		}, "first first repeat noop"},
		{"a step named compensate", [][2]string{
			{"x/compensate/execute", "x/compensate/execute"}, {"x/compensate/compensate", "x/compensate/execute"},
		}, "first first"},
		{"the longest", [][2]string{{strings.Repeat("k", 1024), strings.Repeat("k", 1024)}}, "first"},
	} {
		got, err := passes(t, row.keys...)
		if err != nil || join(got) != row.want {
			t.Errorf("%s: got %s, %v, want %s", row.story, join(got), err, row.want)
		}
	}
}

func TestWrongKeysAreRefused(t *testing.T) {
	const e, u = step + "/execute", step + "/compensate"
	for _, row := range []struct {
		keys [][2]string // of which the last is wrong
		want string
	}{
		{[][2]string{{"", e}}, "key: is empty"},
		{[][2]string{{u, ""}}, "executeKey: is empty"},
		{[][2]string{{strings.Repeat("k", 1025), e}}, "key: has 1025 bytes"},
		{[][2]string{{u, strings.Repeat("k", 1025)}}, "executeKey: has 1025 bytes"},
		{[][2]string{{"a\x00", "a\x00"}}, "key: must be printable ASCII"},
		{[][2]string{{u, "ä"}}, "executeKey: must be printable ASCII"},
		{[][2]string{{u, u}}, "executeKey: is the key of a compensation"},
		{[][2]string{{e, u}}, "executeKey: is the key of a compensation"},
		{[][2]string{{u + "/2", u}}, "executeKey: is the key of a compensation"},
		{[][2]string{{u, u + "/2:a"}}, "executeKey: is the key of a compensation"},
		{[][2]string{{e + ":a", e}}, "executeKey: differs from key"},
		{[][2]string{{e, e}, {u + ":a", e}, {u + ":b", e}}, "undone under another key"},
	} {
		_, err := passes(t, row.keys...)
		if !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), row.want) {
			t.Errorf("%q: got %v, want an ErrInvalid with %q", row.keys, err, row.want)
		}
		if err != nil && strings.Contains(err.Error(), step) {
			t.Errorf("%q: the error tells the key: %v", row.keys, err)
		}
	}
}

// The keys of the saga package are those that the fence knows.
func TestKeysOfACall(t *testing.T) {
	id := uuid.New()
	execute := &saga.Call{Execution: id, Step: "charge.card", Direction: store.DirectionExecute}
	compensate := &saga.Call{Execution: id, Step: "charge.card", Direction: store.DirectionCompensate}
	for _, effects := range [][]string{nil, {"hotel"}, {"ho/tel:1", "ü"}} {
		undo := [2]string{compensate.Key(effects...), compensate.ExecuteKey(effects...)}
		raised := undo
		raised[0] = strings.Replace(undo[0], "/compensate", "/compensate/2", 1)
		got, err := passes(t, [2]string{execute.Key(effects...), execute.ExecuteKey(effects...)}, undo, raised)
		if err != nil || join(got) != "first first repeat" {
			t.Errorf("%q: got %s, %v", effects, join(got), err)
		}
	}
}

func TestPoolIsNoTransaction(t *testing.T) {
	db := openSQLite(t, "deferred").db
	if _, err := fence.Pass(t.Context(), db, "a", "a"); !errors.Is(err, fence.ErrInvalid) || !strings.Contains(err.Error(), "tx:") {
		t.Errorf("Pass on a pool: got %v, want an ErrInvalid that names tx", err)
	}
	_, _, err := fence.Do(t.Context(), db, "a", "a", func([]byte) ([]byte, error) { t.Error("called"); return nil, nil })
	if !errors.Is(err, fence.ErrInvalid) {
		t.Errorf("Do on a pool: got %v, want an ErrInvalid", err)
	}
}
