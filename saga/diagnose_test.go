package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A stand is a publisher whose queues are as the test says.
type stand struct {
	ready, consumers int
	err              error
	away             bool
}

func (s *stand) Publish(context.Context, string, saga.Pointer) error { return nil }
func (s *stand) Connected() bool                                     { return !s.away }
func (s *stand) Depth(context.Context, string) (ready, consumers int, err error) {
	return s.ready, s.consumers, s.err
}

// Each reason why an execution is where it is has its code and a sentence that
// names what a person has to know.
func TestDiagnose(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) *time.Time { u := now.Add(d); return &u }
	open := func(until time.Duration) *store.OpenAttempt {
		return &store.OpenAttempt{Number: 2, Worker: "host:7/ab", StartedAt: now.Add(-time.Minute), LeaseUntil: now.Add(until), Progress: &store.Progress{Done: 3, Total: 9, At: now}}
	}
	lapsed := open(-10 * time.Second)
	failed := &store.Failure{Class: "refused", Message: "card 4711 was refused", Step: "b"}
	cases := []struct {
		name  string
		x     func(x *store.Execution)
		stand stand
		pause saga.Scope
		want  saga.DiagnosisCode
		says  []string
	}{
		{"finished", func(x *store.Execution) { x.Status, x.FinishedAt, x.DueAt = store.StatusCompleted, in(0), nil }, stand{}, saga.Scope{}, saga.DiagnosisFinished, []string{"completed"}},
		{"failed", func(x *store.Execution) {
			x.Status, x.FinishedAt, x.DueAt, x.Failure = store.StatusFailed, in(0), nil, failed
		}, stand{}, saga.Scope{}, saga.DiagnosisFinished, []string{"failed", `"b"`}},
		{"halted by a person", func(x *store.Execution) {
			x.Status, x.DueAt, x.Reason, x.ReasonBy = store.StatusHalted, nil, "wait for the bank", "anna"
		}, stand{}, saga.Scope{}, saga.DiagnosisHalted, []string{"anna", "wait for the bank"}},
		{"halted in doubt", func(x *store.Execution) { x.Status, x.DueAt, x.Reason = store.StatusHalted, nil, "in_doubt" }, stand{}, saga.Scope{}, saga.DiagnosisHalted, []string{"nobody knows"}},
		{"running", func(x *store.Execution) { x.Attempt = open(20 * time.Second) }, stand{}, saga.Scope{}, saga.DiagnosisRunning, []string{"host:7/ab", "attempt 2", "3 of 9", "12:00:20"}},
		{"requested", func(x *store.Execution) {
			x.Attempt = open(20 * time.Second)
			x.Request = &store.Request{Turn: store.TurnCancel, Halt: true, Actor: "anna", Reason: "wrong order", At: now}
		}, stand{}, saga.Scope{}, saga.DiagnosisRequested, []string{"anna", "cancel and a halt"}},
		{"lease lapsed", func(x *store.Execution) { x.Attempt = lapsed }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisLeaseLapsed, []string{"host:7/ab", "11:59:50"}},
		{"paused", nil, stand{}, saga.Scope{Partition: "default"}, saga.DiagnosisPaused, []string{"partition/default", "anna", "on call"}},
		{"paused saga", nil, stand{}, saga.Scope{Saga: "checkout"}, saga.DiagnosisPaused, []string{"saga/checkout"}},
		{"retry", func(x *store.Execution) {
			x.WakeAt, x.DueAt, x.Tries, x.Failure = in(time.Minute), in(time.Minute), 1, failed
		}, stand{}, saga.Scope{}, saga.DiagnosisRetry, []string{"refused", "12:01:00"}},
		{"snoozed", func(x *store.Execution) { x.WakeAt, x.DueAt = in(time.Minute), in(time.Minute) }, stand{}, saga.Scope{}, saga.DiagnosisWaiting, []string{"12:01:00"}},
		{"doubt", func(x *store.Execution) {
			x.Status, x.Direction, x.WakeAt, x.DueAt = store.StatusCompensating, store.DirectionCompensate, in(time.Minute), in(time.Minute)
			x.Ledger[1].Status, x.Ledger[1].DoubtUntil = store.StepInDoubt, in(time.Minute)
		}, stand{}, saga.Scope{}, saga.DiagnosisDoubt, []string{"12:01:00", "undo"}},
		{"unknown version", func(x *store.Execution) { x.Version = 7 }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisUnknown, []string{"version 7", "checkout"}},
		{"unknown step", func(x *store.Execution) { x.Step = "c"; x.Ledger[1].Name = "c" }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisUnknown, []string{`"c"`}},
		{"broker away", nil, stand{away: true}, saga.Scope{}, saga.DiagnosisBrokerDown, []string{"broker"}},
		{"no consumer", nil, stand{}, saga.Scope{}, saga.DiagnosisNoConsumer, []string{`"default"`}},
		{"queued", func(x *store.Execution) { x.OfferedAt = in(-time.Second) }, stand{ready: 5, consumers: 1}, saga.Scope{}, saga.DiagnosisQueued, []string{"5 are ready"}},
		{"backlog", func(x *store.Execution) { x.OfferedAt = in(-time.Second) }, stand{ready: 5000, consumers: 1}, saga.Scope{}, saga.DiagnosisBacklog, []string{"5000 are ready"}},
		{"on its way", func(x *store.Execution) { x.OfferedAt = in(-time.Second); x.DueAt = in(29 * time.Second) }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisPickup, []string{"12:00:29"}},
		{"due", func(x *store.Execution) { x.DueAt = in(-time.Second) }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisDue, []string{"11:59:59"}},
		{"overdue", func(x *store.Execution) { x.DueAt = in(-time.Hour) }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisOverdue, []string{"11:00:00"}},
		{"depth unknown", func(x *store.Execution) { x.DueAt = in(-time.Second) }, stand{err: errors.New("away")}, saga.Scope{}, saga.DiagnosisNoConsumer, nil},
		{"not adopted", func(x *store.Execution) { x.Step, x.Version, x.Ledger = "", 0, nil }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisNotAdopted, []string{"checkout"}},
		{"inconsistent", func(x *store.Execution) { x.DueAt = nil }, stand{consumers: 1}, saga.Scope{}, saga.DiagnosisInconsistent, nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			st := memory.New()
			e, err := saga.New(saga.Config{Store: st, Publisher: &c.stand, Now: func() time.Time { return now }, Logger: quiet})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := saga.Register(e, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{{Name: "a", Execute: ok}, {Name: "b", Execute: ok, Compensate: ok}}}); err != nil {
				t.Fatal(err)
			}
			x := &store.Execution{
				ID: uuid.New(), Saga: "checkout", Version: 1, Partition: "default", Status: store.StatusRunning, Direction: store.DirectionExecute,
				Step: "b", State: json.RawMessage(`{}`), DueAt: in(30 * time.Second), CreatedAt: now, UpdatedAt: now, ProgressAt: now.Add(-time.Minute),
				Ledger: []store.LedgerEntry{
					{Name: "a", InDoubt: store.InDoubtIgnore, Status: store.StepDone},
					{Name: "b", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepPending},
				},
			}
			if c.x != nil {
				c.x(x)
			}
			if err := st.Create(t.Context(), x); err != nil {
				t.Fatal(err)
			}
			if c.pause != (saga.Scope{}) {
				if err := e.Pause(t.Context(), c.pause, anna); err != nil {
					t.Fatal(err)
				}
			}
			d, err := e.Diagnose(t.Context(), x.ID)
			if err != nil {
				t.Fatal(err)
			}
			if d.Code != c.want {
				t.Errorf("got %s (%s), want %s", d.Code, d.Sentence, c.want)
			}
			for _, s := range c.says {
				if !strings.Contains(d.Sentence, s) {
					t.Errorf("%q does not say %q", d.Sentence, s)
				}
			}
			if strings.Contains(d.Sentence, "4711") {
				t.Errorf("%q quotes the error's text", d.Sentence)
			}
		})
	}
}
