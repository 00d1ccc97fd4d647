package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A rota is an engine with schedules of one saga, which notes what is run.
type rota struct {
	e *saga.Engine
	s *saga.Saga[order]
}

// runs notes the occurrences that were run, by their resource's id.
type runs struct {
	mu   sync.Mutex
	list []string
}

func (r *runs) add(s string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, s)
}

func (r *runs) sorted() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Sorted(slices.Values(r.list))
}

func newRota(t *testing.T, s store.Store, r *runs) *rota {
	t.Helper()
	e, err := saga.New(saga.Config{Store: s, SweepEvery: 10 * time.Second, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	reports, err := saga.Register(e, saga.Definition[order]{Name: "report", Steps: []saga.Step[order]{{
		Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error { r.add(run.Resource.ID); return nil },
	}}})
	if err != nil {
		t.Fatal(err)
	}
	return &rota{e, reports}
}

func occurrence(name string) func(time.Time) (saga.Resource, order) {
	return func(at time.Time) (saga.Resource, order) {
		return saga.Resource{Type: "report", ID: name + " " + at.Format("15:04")}, order{}
	}
}

func (r *rota) every(name string, d time.Duration, change ...func(*saga.Schedule[order])) saga.AnySchedule {
	sc := saga.Schedule[order]{Name: name, Every: d, Input: occurrence(name)}
	for _, f := range change {
		f(&sc)
	}
	return r.s.Schedule(sc)
}

func (r *rota) declare(t *testing.T, list ...saga.AnySchedule) {
	t.Helper()
	if err := r.e.Schedules("reports", list...); err != nil {
		t.Fatal(err)
	}
}

// Any number of processes start each occurrence once.
func TestManyProcessesOneOccurrence(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, ran := memory.New(), &runs{}
		ctx, cancel := context.WithCancel(t.Context())
		var engines sync.WaitGroup
		for range 10 {
			r := newRota(t, s, ran)
			r.declare(t, r.every("q", 15*time.Minute), r.s.Schedule(saga.Schedule[order]{Name: "h", Cron: "5 * * * *", Input: occurrence("h")}))
			engines.Go(func() {
				if err := r.e.Run(ctx); err != nil {
					t.Error(err)
				}
			})
		}
		pass(time.Hour + time.Second)
		cancel()
		engines.Wait()
		if got, want := ran.sorted(), []string{"h 00:05", "q 00:15", "q 00:30", "q 00:45", "q 01:00"}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
	})
}

// A process that dies between the start and the note of it starts nothing twice.
func TestScheduleAfterACrash(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, ran := &forgetful{Store: memory.New()}, &runs{}
		for range 3 {
			r := newRota(t, s, ran)
			r.declare(t, r.every("q", 15*time.Minute))
			runEngine(t, r.e, func(context.Context) { pass(19 * time.Minute) })
		}
		if got, want := ran.sorted(), []string{"q 00:15", "q 00:30", "q 00:45"}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
	})
}

// A forgetful store loses each second write of a set of schedules.
type forgetful struct {
	*memory.Store
	mu sync.Mutex
	n  int
}

func (s *forgetful) SetCell(ctx context.Context, name string, v json.RawMessage, revision int64) (int64, error) {
	if strings.HasPrefix(name, "schedules/") {
		s.mu.Lock()
		s.n++
		n := s.n
		s.mu.Unlock()
		if n%2 == 0 {
			return 0, errors.New("the connection was lost")
		}
	}
	return s.Store.SetCell(ctx, name, v, revision)
}

func TestCatchUp(t *testing.T) {
	for catchUp, want := range map[saga.CatchUp][]string{
		"":                   {"q 00:15", "q 01:15", "q 01:30"},
		saga.CatchUpLatest:   {"q 00:15", "q 01:15", "q 01:30"},
		saga.CatchUpSkip:     {"q 00:15", "q 01:30"},
		saga.CatchUpAll:      {"q 00:15", "q 00:30", "q 00:45", "q 01:00", "q 01:15", "q 01:30"},
		"latest, but paused": {"q 00:15", "q 01:30"},
	} {
		t.Run(string(catchUp), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				s, ran := memory.New(), &runs{}
				paused := catchUp == "latest, but paused"
				up := func(d time.Duration) {
					r := newRota(t, s, ran)
					r.declare(t, r.every("q", 15*time.Minute, func(sc *saga.Schedule[order]) {
						if sc.CatchUp = catchUp; paused {
							sc.CatchUp = ""
						}
					}))
					runEngine(t, r.e, func(ctx context.Context) {
						pass(d)
						if paused {
							scope := saga.Scope{Schedule: "reports/q"}
							if d > 16*time.Minute { // what occurred while it was paused is not caught up with
								if err := r.e.Unpause(ctx, scope, anna); err != nil {
									t.Error(err)
								}
								pass(10 * time.Minute)
							} else if err := r.e.Pause(ctx, scope, anna); err != nil {
								t.Error(err)
							}
						}
					})
				}
				up(16 * time.Minute)
				pass(64 * time.Minute) // until 01:20 nobody is there
				if paused {
					up(4*time.Minute + 16*time.Minute) // it is unpaused at 01:40
					want := []string{"q 00:15", "q 01:45"}
					if got := ran.sorted(); !slices.Equal(got, want) {
						t.Errorf("ran %q, want %q", got, want)
					}
					return
				}
				up(11 * time.Minute)
				if got := ran.sorted(); !slices.Equal(got, want) {
					t.Errorf("ran %q, want %q", got, want)
				}
			})
		})
	}
}

// What occurs while a schedule is paused is not caught up with, although no process
// was there until it was not paused any more.
func TestPausedWhileNobodyIsThere(t *testing.T) {
	for _, catchUp := range []saga.CatchUp{saga.CatchUpAll, saga.CatchUpLatest} {
		bubble(t, func(t *testing.T) {
			s, ran := memory.New(), &runs{}
			declared := func() *rota {
				r := newRota(t, s, ran)
				r.declare(t, r.every("q", 15*time.Minute, func(sc *saga.Schedule[order]) { sc.CatchUp = catchUp }))
				return r
			}
			scope := saga.Scope{Schedule: "reports/q"}
			first := declared()
			runEngine(t, first.e, func(ctx context.Context) {
				pass(16 * time.Minute)
				if err := first.e.Pause(ctx, scope, anna); err != nil {
					t.Error(err)
				}
			})
			pass(time.Hour) // 01:16
			if err := first.e.Unpause(t.Context(), scope, anna); err != nil {
				t.Error(err)
			}
			runEngine(t, declared().e, func(context.Context) { pass(15 * time.Minute) })
			if got, want := ran.sorted(), []string{"q 00:15", "q 01:30"}; !slices.Equal(got, want) {
				t.Errorf("%s: ran %q, want %q", catchUp, got, want)
			}
		})
	}
}

// A start that fails does not keep the schedules after it.
func TestAStartThatFailsKeepsNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, ran := &picky{Store: memory.New()}, &runs{}
		r := newRota(t, s, ran)
		r.declare(t, r.every("a", 15*time.Minute), r.every("b", 15*time.Minute))
		runEngine(t, r.e, func(context.Context) { pass(16 * time.Minute) })
		if got, want := ran.sorted(), []string{"b 00:15"}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
		if err := r.e.Schedules("late"); err != nil {
			t.Errorf("after Run: %v", err)
		}
		runEngine(t, r.e, func(context.Context) {
			if err := r.e.Schedules("later"); !errors.Is(err, saga.ErrRunning) {
				t.Errorf("during Run: %v", err)
			}
		})
	})
}

// A picky store creates nothing for schedule a.
type picky struct{ *memory.Store }

func (s *picky) Create(ctx context.Context, x *store.Execution) error {
	if strings.HasPrefix(x.Resource.ID, "a ") {
		return errors.New("no room")
	}
	return s.Store.Create(ctx, x)
}

// A set that is declared anew replaces the one before: what has changed begins
// from now, what is gone is gone, and what an operator paused stays paused.
func TestSchedulesAreReplaced(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, ran := memory.New(), &runs{}
		first := newRota(t, s, ran)
		first.declare(t, first.every("kept", 15*time.Minute), first.every("gone", 15*time.Minute), first.every("moved", 15*time.Minute), first.every("held", 15*time.Minute))
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- first.e.Run(ctx) }()
		pass(16 * time.Minute)
		if err := first.e.Pause(ctx, saga.Scope{Schedule: "reports/held"}, anna); err != nil {
			t.Fatal(err)
		}
		// The old process goes on beside the new one.
		second := newRota(t, s, ran)
		second.declare(t, second.every("kept", 15*time.Minute), second.every("moved", 20*time.Minute), second.every("held", 15*time.Minute), second.every("new", 10*time.Minute))
		runEngine(t, second.e, func(context.Context) { pass(25 * time.Minute) }) // until 00:41
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		want := []string{
			"gone 00:15", "held 00:15", "kept 00:15", "kept 00:30", "moved 00:15", "moved 00:20", "moved 00:40", "new 00:20", "new 00:30", "new 00:40",
		}
		if got := ran.sorted(); !slices.Equal(got, want) {
			t.Errorf("ran\n %q, want\n %q", got, want)
		}
		list, err := second.e.ScheduleList(t.Context())
		if err != nil || len(list) != 4 || list[0].Key() != "reports/held" || list[0].PausedBy == nil || list[0].PausedBy.Actor != anna.Actor || list[0].LastResult != "paused" {
			t.Errorf("%+v, %v", list, err)
		}
		if k := list[1]; k.Name != "kept" || k.LastResult != "started" || k.LastID == nil || !k.Next.Equal(time.Now().Truncate(15*time.Minute).Add(15*time.Minute)) {
			t.Errorf("%+v", k)
		} else if x, err := second.e.Get(t.Context(), *k.LastID); err != nil || x.Resource.ID != "kept 00:30" {
			t.Errorf("%+v, %v", x, err)
		}
		// Nobody is there any more.
		pass(time.Hour)
		h := second.e.Health(t.Context())
		var late []string
		for _, c := range h.Causes {
			if c.Code == saga.HealthScheduleLate {
				late = append(late, c.Subject)
			}
		}
		if want := []string{"reports/kept", "reports/moved", "reports/new"}; !slices.Equal(late, want) {
			t.Errorf("late are %q, want %q", late, want)
		}
	})
}

// What a saga refuses is passed over, and the next occurrence is started.
func TestRefusedOccurrences(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s, ran := memory.New(), &runs{}
		r := newRota(t, s, ran)
		n := 0
		r.declare(t,
			r.every("key", 15*time.Minute, func(sc *saga.Schedule[order]) { sc.Options = &saga.StartOptions{Key: "one"} }),
			r.every("bad", 15*time.Minute, func(sc *saga.Schedule[order]) {
				sc.Input = func(at time.Time) (saga.Resource, order) {
					if n++; n == 1 {
						panic("no")
					}
					return occurrence("bad")(at)
				}
			}))
		if _, err := r.s.Start(t.Context(), saga.Resource{ID: "x"}, order{}, &saga.StartOptions{Key: "one", StartAfter: time.Now().Add(20 * time.Minute)}); err != nil {
			t.Fatal(err)
		}
		runEngine(t, r.e, func(context.Context) { pass(31 * time.Minute) })
		if got, want := ran.sorted(), []string{"bad 00:30", "key 00:30", "x"}; !slices.Equal(got, want) {
			t.Errorf("ran %q, want %q", got, want)
		}
	})
}

func TestSchedulesAreChecked(t *testing.T) {
	s := memory.New()
	r, other := newRota(t, s, &runs{}), newRota(t, s, &runs{})
	ok := r.every("ok", time.Hour)
	for what, c := range map[string]struct {
		namespace string
		list      []saga.AnySchedule
		want      []string
	}{
		"all at once": {"Reports", []saga.AnySchedule{
			r.s.Schedule(saga.Schedule[order]{Name: "a b", Cron: "61 * * * *", CatchUp: "some"}), other.every("o", time.Hour), ok, ok, {},
			r.every("opts", time.Hour, func(sc *saga.Schedule[order]) { sc.Options = &saga.StartOptions{ID: uuid.New()} }),
		}, []string{"namespace", `"a b"`, "Input", "Cron", "CatchUp", "another engine", "twice", "not made by", "Options"}},
		"no times": {"n", []saga.AnySchedule{r.every("x", 0)}, []string{"one of Cron and Every"}},
		"no zone":  {"n", []saga.AnySchedule{r.every("x", time.Hour, func(sc *saga.Schedule[order]) { sc.TimeZone = "Mars/Olympus" })}, []string{"TimeZone"}},
	} {
		err := r.e.Schedules(c.namespace, c.list...)
		if !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
			continue
		}
		for _, w := range c.want {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("%s: %v lacks %s", what, err, w)
			}
		}
	}
	if err := r.e.Schedules("n", ok); err != nil {
		t.Error(err)
	}
	if err := r.e.Schedules("n", ok); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("a namespace twice: %v", err)
	}
	bare, err := saga.New(saga.Config{Store: struct{ store.Store }{memory.New()}, Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	if err := bare.Schedules("n"); !errors.Is(err, saga.ErrNotSupported) {
		t.Errorf("a store without cells: %v", err)
	}
	for _, scope := range []string{"n", "n/", "/x", "N/x", "n/x/y"} {
		if err := r.e.Pause(t.Context(), saga.Scope{Schedule: scope}, anna); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("pause of %q: %v", scope, err)
		}
	}
}
