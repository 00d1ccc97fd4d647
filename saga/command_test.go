package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

func command(t *testing.T, e *saga.Engine, id, body string) *saga.CommandAnswer {
	t.Helper()
	a, err := e.Command(t.Context(), saga.CommandMessage{ID: id, Body: []byte(body), TraceParent: "tp"})
	if err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return a
}

// commanded is a saga that waits for a payment, under a key of its resource.
func commanded(t *testing.T, st store.Store) *rig {
	return newRigFor(t, saga.Config{Store: st, SweepEvery: time.Minute}, saga.Definition[order]{
		Name: "checkout", Key: func(r saga.Resource, _ order) string { return "order-" + r.ID },
		Steps: []saga.Step[order]{
			{Name: "a", Execute: ok, Compensate: ok},
			{Name: "b", Await: &saga.Await[order]{Signal: paidSignal}, Execute: ok},
		},
	})
}

func TestStartByCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := commanded(t, nil)
		runEngine(t, r.e, func(ctx context.Context) {
			body := `{"v": 1, "command": "start", "saga": "checkout", "resource": {"type": "order", "id": "7"}, "state": {"reserved": true},
				"tags": {"from": "php"}, "partition": "eu", "start_after": "2000-01-01T00:00:05Z"}`
			a := command(t, r.e, "c1", body)
			if a.Status != saga.CommandDone || a.Execution == nil || a.Command != "start" || a.ID != "c1" || a.Repeated {
				t.Fatalf("%+v", a)
			}
			x := r.get(*a.Execution)
			if x.Key != "order-7" || x.Resource.ID != "7" || x.Tags["from"] != "php" || x.Partition != "eu" || x.TraceParent != "tp" ||
				string(x.State) != `{"reserved":true}` || x.Version != 1 || x.Status != store.StatusWaiting {
				t.Errorf("%+v", x)
			}
			again := command(t, r.e, "c1", body)
			if again.Status != saga.CommandDone || *again.Execution != x.ID || !again.Repeated {
				t.Errorf("again: %+v", again)
			}
			if a := command(t, r.e, "c1", strings.Replace(body, "true", "false", 1)); a.Code != saga.CommandIDUsed || a.Execution != nil {
				t.Errorf("another one under the same id: %+v", a)
			}
			if a := command(t, r.e, "c2", body); a.Status != saga.CommandRefused || a.Code != saga.CommandKeyTaken || *a.Execution != x.ID {
				t.Errorf("a taken key: %+v", a)
			}
			existing := strings.Replace(body, `"partition"`, `"on_conflict": "existing", "partition"`, 1)
			if a := command(t, r.e, "c3", existing); !a.Existing || a.Differs || *a.Execution != x.ID {
				t.Errorf("an existing one: %+v", a)
			}
			replace := strings.Replace(body, `"partition"`, `"on_conflict": "replace", "partition"`, 1)
			a = command(t, r.e, "c4", replace)
			if a.Status != saga.CommandDone || *a.Replaces != x.ID {
				t.Errorf("a replacing one: %+v", a)
			}
			if b := command(t, r.e, "c4", replace); !b.Repeated || *b.Execution != *a.Execution {
				t.Errorf("again: %+v", b)
			}
		})
	})
}

// What is started by a command can be listed by its time, if the command's id has
// one.
func TestCommandIDsAreOrdered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := commanded(t, nil)
		var last string
		for i := range 3 {
			id, err := uuid.NewV7()
			if err != nil {
				t.Fatal(err)
			}
			pass(time.Millisecond)
			a := command(t, r.e, id.String(), fmt.Sprintf(`{"command": "start", "saga": "checkout", "resource": {"id": "%d"}}`, i))
			if s := a.Execution.String(); s < last || a.Execution.Version() != 7 || s == id.String() {
				t.Errorf("%s after %s", s, last)
			} else {
				last = s
			}
		}
	})
}

func TestSignalByCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := commanded(t, nil)
		runEngine(t, r.e, func(ctx context.Context) {
			start := func(n string) uuid.UUID {
				return *command(t, r.e, "s"+n, `{"command": "start", "saga": "checkout", "resource": {"id": "`+n+`"}}`).Execution
			}
			id := start("1")
			pass(time.Second)
			byID := fmt.Sprintf(`{"command": "signal", "execution": %q, "signal": "paid", "payload": {"amount": 5}}`, id)
			if a := command(t, r.e, "p1", byID); a.Status != saga.CommandDone || a.Signal != saga.SignalDelivered || *a.Execution != id {
				t.Errorf("%+v", a)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
			if a := command(t, r.e, "p1", byID); a.Code != saga.CommandFinished {
				t.Errorf("after the end: %+v", a)
			}
			id = start("2")
			byKey := `{"command": "signal", "saga": "checkout", "key": "order-2", "signal": "other", "actor": "php", "reason": "webhook"}`
			if a := command(t, r.e, "p2", byKey); a.Signal != saga.SignalBuffered || *a.Execution != id {
				t.Errorf("%+v", a)
			}
			if a := command(t, r.e, "p2", byKey); a.Status != saga.CommandDone || a.Signal != saga.SignalDuplicate {
				t.Errorf("again: %+v", a)
			}
			if in := r.get(id).Inbox; len(in) != 1 || in[0].Actor != "php" || in[0].Key != "p2" {
				t.Errorf("%+v", in)
			}
			for body, code := range map[string]string{
				`{"command": "signal", "saga": "checkout", "key": "none", "signal": "paid"}`:                      saga.CommandUnknownExecution,
				`{"command": "signal", "execution": "` + uuid.NewString() + `", "signal": "paid"}`:                saga.CommandUnknownExecution,
				`{"command": "signal", "saga": "checkout", "key": "order-2", "signal": "paid", "payload": "abc"}`: saga.CommandInvalid,
				`{"command": "signal", "saga": "checkout", "key": "order-2", "signal": "PAID"}`:                   saga.CommandInvalid,
			} {
				if a := command(t, r.e, "p3", body); a.Status != saga.CommandRefused || a.Code != code {
					t.Errorf("%s: %+v", body, a)
				}
			}
		})
	})
}

func TestCancelByCommand(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := commanded(t, nil)
		runEngine(t, r.e, func(ctx context.Context) {
			id := *command(t, r.e, "s1", `{"command": "start", "saga": "checkout", "resource": {"id": "1"}}`).Execution
			pass(time.Second)
			body := fmt.Sprintf(`{"command": "cancel", "execution": %q, "actor": "php", "reason": "the customer left"}`, id)
			if a := command(t, r.e, "x1", body); a.Status != saga.CommandDone || a.ExecutionStatus != store.StatusCompensating {
				t.Errorf("%+v", a)
			}
			if x := r.wait(ctx, id); x.Status != store.StatusCompensated || x.ReasonBy != "php" {
				t.Errorf("%s, %q by %q", x.Status, x.Reason, x.ReasonBy)
			}
			if a := command(t, r.e, "x1", body); a.Status != saga.CommandDone {
				t.Errorf("again: %+v", a)
			}
			if a := command(t, r.e, "x2", body); a.Code != saga.CommandFinished || *a.Execution != id {
				t.Errorf("after the end: %+v", a)
			}
			if a := command(t, r.e, "x1", strings.Replace(body, "customer", "cook", 1)); a.Code != saga.CommandIDUsed {
				t.Errorf("another one under the same id: %+v", a)
			}
		})
	})
}

// A process that has not registered the saga starts what a worker has left an
// outline of.
func TestStartByCommandElsewhere(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		r := commanded(t, st)
		if _, err := saga.Register(r.e, saga.Definition[order]{Name: "plain", Partition: "eu", Steps: []saga.Step[order]{{Name: "a", Execute: ok}}}); err != nil {
			t.Fatal(err)
		}
		door, err := saga.New(saga.Config{Store: st, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		if a := command(t, door, "1", `{"command": "start", "saga": "plain"}`); a.Code != saga.CommandUnknownSaga {
			t.Errorf("before a worker was there: %+v", a)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			pass(time.Minute)
			a := command(t, door, "2", `{"command": "start", "saga": "plain", "state": {"charged":  true}}`)
			if a.Status != saga.CommandDone {
				t.Fatalf("%+v", a)
			}
			if x := r.wait(ctx, *a.Execution); x.Status != store.StatusCompleted || x.Partition != "eu" || string(x.State) != `{"charged":true}` {
				t.Errorf("%s in %s: %s", x.Status, x.Partition, x.State)
			}
			if a := command(t, door, "3", `{"command": "start", "saga": "plain", "state": {"chargd": true}}`); a.Code != saga.CommandInvalid {
				t.Errorf("a state that does not fit: %+v", a)
			}
			if a := command(t, door, "4", `{"command": "start", "saga": "checkout"}`); a.Code != saga.CommandUnknownSaga || !strings.Contains(a.Message, "key") {
				t.Errorf("a key that only the definition knows: %+v", a)
			}
			if a := command(t, door, "5", `{"command": "start", "saga": "checkout", "key": "order-9"}`); a.Status != saga.CommandDone {
				t.Errorf("%+v", a)
			}
			if a := command(t, door, "6", `{"command": "start", "saga": "nobody"}`); a.Code != saga.CommandUnknownSaga {
				t.Errorf("%+v", a)
			}
		})
	})
}

func TestBadCommands(t *testing.T) {
	r := commanded(t, nil)
	for body, word := range map[string]string{
		``:                         "JSON",
		`[]`:                       "JSON",
		`{"command": 5}`:           "JSON",
		`{}`:                       "none of",
		`{"command": "stop"}`:      "none of",
		`{"command": "start"}`:     "saga",
		`{"v": 2, "command": "x"}`: "version",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}} {}`:                                                 "JSON",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "stat": {}}`:                                        "stat",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "state": {"reserved": "5551234"}}`:                  "/properties/reserved",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "state": "5551234"}`:                                "state",
		`{"command": "start", "saga": "checkout", "resource": {"id": 1}}`:                                                      "resource",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "deadline": "1999-01-01T00:00:00Z"}`:                "Deadline",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "deadline": "soon"}`:                                "fit",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "on_conflict": "shout"}`:                            "OnConflict",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "partition": "A"}`:                                  "partition",
		`{"command": "start", "saga": "checkout", "key": " "}`:                                                                 "key",
		`{"command": "start", "saga": "Checkout"}`:                                                                             "saga",
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}, "signals": [{"name": "paid", "payload": 5551234}]}`: "signal",
		`{"command": "signal", "signal": "paid"}`:                                                                              "names no execution",
		`{"command": "signal", "signal": "paid", "saga": "checkout"}`:                                                          "names no execution",
		`{"command": "signal", "signal": "paid", "saga": "checkout", "key": "k", "execution": "` + uuid.NewString() + `"}`:     "both",
		`{"command": "signal", "signal": "paid", "execution": "5551234"}`:                                                      "fit",
		`{"command": "cancel", "execution": "` + uuid.NewString() + `", "signal": "paid"}`:                                     "signal",
	} {
		a := command(t, r.e, "1", body)
		if a.Status != saga.CommandRefused || a.Code != saga.CommandInvalid || !strings.Contains(a.Message, word) {
			t.Errorf("%s: %+v", body, a)
		}
		if strings.Contains(a.Message, "5551234") {
			t.Errorf("the message quotes a value: %s", a.Message)
		}
	}
	id := *command(t, r.e, "ok", `{"command": "start", "saga": "checkout", "resource": {"id": "1"}}`).Execution
	if a := command(t, r.e, "1", fmt.Sprintf(`{"command": "cancel", "execution": %q}`, id)); a.Code != saga.CommandInvalid || !strings.Contains(a.Message, "Actor") {
		t.Errorf("%+v", a)
	}
	for _, bad := range []string{"", strings.Repeat("x", 201), "\x00", "\xff"} {
		if a := command(t, r.e, bad, `{"command": "start", "saga": "checkout"}`); a.Code != saga.CommandInvalid || a.ID != "" {
			t.Errorf("%q: %+v", bad, a)
		}
	}
	if a := command(t, r.e, "1", `{"command": "`+strings.Repeat("x", 2<<20)+`"}`); a.Code != saga.CommandInvalid {
		t.Errorf("%+v", a)
	}
}

// gone is a store that cannot be reached.
type gone struct{ store.Store }

var errGone = errors.New("connection refused")

func (gone) Create(context.Context, *store.Execution) error                 { return errGone }
func (gone) Get(context.Context, uuid.UUID) (*store.Execution, error)       { return nil, errGone }
func (gone) Live(context.Context, string, string) (*store.Execution, error) { return nil, errGone }

// While the store is away nobody knows what became of a command.
func TestCommandWithoutAStore(t *testing.T) {
	r := commanded(t, gone{memory.New()})
	for _, body := range []string{
		`{"command": "start", "saga": "checkout", "resource": {"id": "1"}}`,
		`{"command": "signal", "saga": "checkout", "key": "1", "signal": "paid"}`,
		`{"command": "cancel", "execution": "` + uuid.NewString() + `", "actor": "a", "reason": "b"}`,
	} {
		a, err := r.e.Command(t.Context(), saga.CommandMessage{ID: "1", Body: []byte(body)})
		if !errors.Is(err, errGone) {
			t.Errorf("%s: %+v, %v", body, a, err)
		}
	}
}

// Whatever comes is answered, and a refusal quotes nothing of it but names.
func FuzzCommand(f *testing.F) {
	for _, s := range []string{
		`{"v": 1, "command": "start", "saga": "checkout", "resource": {"type": "order", "id": "7"}, "state": {"reserved": true}, "tags": {"a": "b"}}`,
		`{"command": "signal", "saga": "checkout", "key": "order-1", "signal": "paid", "payload": {"amount": 5}}`,
		`{"command": "cancel", "execution": "0199c0de-7a3b-7cc1-9d52-8f0e6f1b2a3c", "actor": "a", "reason": "b"}`,
		`{"command": "start", "saga": "checkout", "start_after": "2027-01-01T00:00:00Z", "signals": [{"name": "paid"}]}`,
		`{"command":`, `[1]`, `{"command": "start", "state": [[[[]]]]}`,
	} {
		f.Add("id", []byte(s))
	}
	f.Fuzz(func(t *testing.T, id string, body []byte) {
		r := commanded(t, nil)
		a, err := r.e.Command(t.Context(), saga.CommandMessage{ID: id, Body: body})
		if err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if (a.Status == saga.CommandRefused) != (a.Code != "") || a.Status == saga.CommandDone && a.Execution == nil {
			t.Errorf("%q: %+v", body, a)
		}
		if _, err := json.Marshal(a); err != nil {
			t.Error(err)
		}
	})
}
