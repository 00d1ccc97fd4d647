package saga_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// personal puts a secret wherever people's data may be.
func personal(x *store.Execution) {
	x.State, x.Initial = []byte(`{"name":"secret"}`), []byte(`{"name":"secret"}`)
	x.Key, x.Resource.ID, x.Reason = "secret", "secret", "secret"
	x.Failure = &store.Failure{Class: "declined", Message: "secret", Step: "b"}
	x.Cause = &store.Failure{Class: "declined", Message: "secret", Step: "b"}
}

func TestEraseEmptiesWhatIsPersonal(t *testing.T) {
	s := memory.New()
	e := idleEngine(t, s)
	x := row(9, store.StatusFailed, personal)
	create(t, s, x)
	_, err := s.WithLock(t.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
		return store.Change{
			Attempts: []store.Attempt{{
				Execution: x.ID, Step: "b", Direction: store.DirectionExecute, Number: 1, Worker: "w", Status: store.AttemptFailed,
				StartedAt: bulkNow, FinishedAt: &bulkNow, LeaseUntil: bulkNow,
				Failure: &store.Failure{Class: "declined", Message: "secret", Step: "b"}, Stack: "secret", Reason: "secret",
			}},
			Audit: []store.AuditEntry{{Execution: x.ID, At: bulkNow, Act: "edit_state", Actor: "bo", Reason: "secret", Before: store.StatusFailed, After: store.StatusFailed, Detail: []byte(`{"diff":"secret"}`)}},
		}, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	create(t, s, row(8, store.StatusCompensationFailed, personal), row(7, store.StatusRunning), row(6, store.StatusCompleted, erased))
	by := anna
	by.Request = "r"
	want := []string{"done", "skipped compensation_failed", "skipped not_finished", "skipped erased"}
	for _, o := range []saga.EraseOptions{{KeepResource: true, DryRun: true}, {KeepResource: true}} {
		r, err := e.Erase(t.Context(), store.Filter{}, by, &o)
		if got := shows(r); err != nil || !slices.Equal(got, want) || r.Act != saga.ActErase {
			t.Errorf("%+v, %v:\n got %q\nwant %q", o, err, got, want)
		}
	}
	y := get(t, s, x.ID)
	if y.ErasedAt == nil || y.Resource.ID != "secret" || y.Failure.Class != "declined" || !slices.Equal(ledgerOf(y), ledgerOf(x)) {
		t.Errorf("%+v", y)
	}
	y.Resource.ID = ""
	trail := audit(t, s, x.ID)
	attempts, err := s.Attempts(t.Context(), x.ID)
	if err != nil || len(attempts) != 1 || len(trail) != 2 || trail[1].Act != "erase" || trail[1].Actor != "anna" || trail[1].Reason != "on call" {
		t.Errorf("%v, %v, %v", err, attempts, trail)
	}
	if all := text(t, []any{y, trail, attempts}) + string(y.State) + string(trail[0].Detail); strings.Contains(all, "secret") {
		t.Errorf("left: %s", all)
	}

	// Once for its request; the resource's id goes later, by another one.
	only := store.Filter{IDs: []uuid.UUID{x.ID}}
	for _, c := range []struct {
		request string
		keep    bool
		want    string
	}{{"r", true, "done repeated"}, {"r", false, "skipped request_used"}, {"", true, "skipped erased"}, {"", false, "done"}, {"", false, "skipped erased"}} {
		by.Request = c.request
		r, err := e.Erase(t.Context(), only, by, &saga.EraseOptions{KeepResource: c.keep})
		if got := shows(r); err != nil || !slices.Equal(got, []string{c.want}) {
			t.Errorf("%+v: got %q, %v", c, got, err)
		}
	}
	if y = get(t, s, x.ID); y.Resource.ID != "" || len(audit(t, s, x.ID)) != 3 {
		t.Errorf("%+v", y)
	}
	if _, err := e.Retry(t.Context(), x.ID, anna, nil); err == nil {
		t.Error("retried without its state")
	}
}
