package saga_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
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

// A sickly store answers late, not at all, or with a wrong time.
type sickly struct {
	store.Store
	mu   sync.Mutex
	slow time.Duration
	down bool
	off  time.Duration
}

func (s *sickly) set(f func(s *sickly)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s)
}

func (s *sickly) Unwrap() store.Store { return s.Store }

func (s *sickly) Now(ctx context.Context) (time.Time, error) {
	s.mu.Lock()
	slow, down, off := s.slow, s.down, s.off
	s.mu.Unlock()
	if down {
		return time.Time{}, errors.New("no route to host")
	}
	if slow > 0 {
		<-time.After(slow)
	}
	now, err := s.Store.Now(ctx)
	return now.Add(off), err
}

// putSchedules puts a set of schedules into the store, "" for none.
func putSchedules(t *testing.T, s store.Store, set string) {
	t.Helper()
	cells, _ := store.As[store.Cells](s)
	_, revision, err := cells.Cell(t.Context(), "schedules/n")
	if err == nil {
		var v json.RawMessage
		if set != "" {
			v = json.RawMessage(set)
		}
		_, err = cells.SetCell(t.Context(), "schedules/n", v, revision)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A loud publisher reports what becomes of pointers.
type loud struct {
	mu     sync.Mutex
	stand  stand
	report func(partition string, p saga.Pointer, kind saga.EventKind, err error)
}

func (l *loud) set(f func(s *stand)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f(&l.stand)
}

func (l *loud) now() *stand {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.stand
	return &s
}

func (l *loud) Publish(context.Context, string, saga.Pointer) error { return nil }
func (l *loud) Connected() bool                                     { return l.now().Connected() }
func (l *loud) Depth(ctx context.Context, p string) (ready, consumers int, err error) {
	return l.now().Depth(ctx, p)
}

func (l *loud) Report(report func(string, saga.Pointer, saga.EventKind, error)) { l.report = report }

// Each cause can be seen, and is gone when it is over.
func TestHealth(t *testing.T) {
	type world struct {
		t   *testing.T
		e   *saga.Engine
		s   *sickly
		pub *loud
		id  uuid.UUID
	}
	put := func(w *world, f func(x *store.Execution)) {
		now := time.Now()
		x := &store.Execution{
			ID: uuid.New(), Saga: "checkout", Version: 1, Partition: "default", Status: store.StatusRunning, Direction: store.DirectionExecute,
			Step: "a", State: json.RawMessage(`{}`), DueAt: &now, CreatedAt: now, UpdatedAt: now, ProgressAt: now,
			Ledger: []store.LedgerEntry{{Name: "a", InDoubt: store.InDoubtIgnore, Status: store.StepPending}},
		}
		f(x)
		if err := w.s.Create(w.t.Context(), x); err != nil {
			w.t.Fatal(err)
		}
		w.id = x.ID
	}
	ended := func(w *world) {
		_, err := w.s.WithLock(w.t.Context(), w.id, func(x *store.Execution) (store.Change, error) {
			now := time.Now()
			x.Status, x.FinishedAt, x.DueAt, x.Attempt = store.StatusCompleted, &now, nil, nil
			return store.Change{}, nil
		})
		if err != nil {
			w.t.Fatal(err)
		}
	}
	far := time.Now().Add(100 * 365 * 24 * time.Hour) // what the engine does not look at
	ago := func(d time.Duration) *time.Time { at := time.Now().Add(-d); return &at }
	cases := []struct {
		code  saga.HealthCode
		level saga.HealthLevel
		raise func(w *world)
		end   func(w *world)
	}{
		{saga.HealthStalled, saga.HealthDegraded, func(w *world) {
			put(w, func(x *store.Execution) { x.ProgressAt, x.DueAt = *ago(time.Hour), &far })
		}, ended},
		{saga.HealthCompensationFailed, saga.HealthDegraded, func(w *world) {
			put(w, func(x *store.Execution) {
				x.Status, x.FinishedAt, x.DueAt = store.StatusCompensationFailed, ago(0), nil
			})
		}, ended},
		{saga.HealthHalted, saga.HealthDegraded, func(w *world) {
			put(w, func(x *store.Execution) { x.Status, x.DueAt = store.StatusHalted, nil })
		}, ended},
		{saga.HealthOverdue, saga.HealthDown, func(w *world) { put(w, func(x *store.Execution) { x.DueAt = ago(time.Hour) }) }, ended},
		{saga.HealthBacklog, saga.HealthDegraded, func(w *world) {
			put(w, func(x *store.Execution) { x.DueAt = &far })
			w.pub.set(func(s *stand) { s.ready = 101 })
		}, func(w *world) { w.pub.set(func(s *stand) { s.ready = 100 }) }},
		{saga.HealthNoConsumer, saga.HealthDown, func(w *world) {
			put(w, func(x *store.Execution) { x.DueAt = &far })
			w.pub.set(func(s *stand) { s.consumers = 0 })
		}, func(w *world) { w.pub.set(func(s *stand) { s.consumers = 1 }) }},
		{saga.HealthUnroutable, saga.HealthDegraded, func(w *world) {
			w.pub.report("default", saga.Pointer{}, saga.EventPointerUnroutable, errors.New("no queue"))
		}, func(w *world) { <-time.After(7 * time.Minute) }},
		{saga.HealthForeignStore, saga.HealthDegraded, func(w *world) {
			if _, err := w.e.Handle(w.t.Context(), saga.Pointer{V: 1, Store: uuid.New(), Execution: uuid.New()}); err != nil {
				w.t.Error(err)
			}
		}, func(w *world) { <-time.After(7 * time.Minute) }},
		{saga.HealthBrokerDown, saga.HealthDegraded, func(w *world) { w.pub.set(func(s *stand) { s.away = true }) }, func(w *world) { w.pub.set(func(s *stand) { s.away = false }) }},
		{saga.HealthStoreDown, saga.HealthDown, func(w *world) { w.s.set(func(s *sickly) { s.down = true }) }, func(w *world) { w.s.set(func(s *sickly) { s.down = false }) }},
		{saga.HealthStoreSlow, saga.HealthDegraded, func(w *world) { w.s.set(func(s *sickly) { s.slow = 1500 * time.Millisecond }) }, func(w *world) { w.s.set(func(s *sickly) { s.slow = 0 }) }},
		{saga.HealthClockSkew, saga.HealthInfo, func(w *world) { w.s.set(func(s *sickly) { s.off = time.Minute }) }, func(w *world) { w.s.set(func(s *sickly) { s.off = 0 }) }},
		{saga.HealthPaused, saga.HealthInfo, func(w *world) {
			if err := w.e.Pause(w.t.Context(), saga.Scope{Saga: "other"}, anna); err != nil {
				w.t.Error(err)
			}
		}, func(w *world) {
			if err := w.e.Unpause(w.t.Context(), saga.Scope{Saga: "other"}, anna); err != nil {
				w.t.Error(err)
			}
		}},
		{
			code: saga.HealthScheduleLate, level: saga.HealthDegraded,
			raise: func(w *world) { // of a build whose last process has gone
				putSchedules(w.t, w.s, fmt.Sprintf(`{"schedules":[{"name":"q","saga":"report","every":900000000000,"catch_up":"latest","since":%q}]}`,
					time.Now().Add(-time.Hour).Format(time.RFC3339)))
			},
			end: func(w *world) { putSchedules(w.t, w.s, "") },
		},
		{saga.HealthEventsLate, saga.HealthDegraded, func(w *world) {
			put(w, func(x *store.Execution) {
				x.Events, x.Status, x.DueAt, x.UpdatedAt = true, store.StatusCompleted, nil, *ago(2 * time.Minute)
			})
		}, func(w *world) {
			o, _ := store.As[store.Outbox](w.s)
			list, err := o.ClaimEvents(w.t.Context(), store.EventQuery{Now: time.Now(), Limit: 9})
			if err != nil || len(list) != 1 {
				w.t.Errorf("%d events, %v", len(list), err)
				return
			}
			if err := o.RemoveEvents(w.t.Context(), []store.EventID{list[0].ID()}); err != nil {
				w.t.Error(err)
			}
		}},
	}
	tested := []saga.HealthCode{saga.HealthNoSweep} // see TestHealthWithoutAnybody
	for _, c := range cases {
		tested = append(tested, c.code)
		t.Run(string(c.code), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := &world{t: t, s: &sickly{Store: memory.New()}, pub: &loud{}}
				w.pub.set(func(s *stand) { s.consumers = 1 })
				var err error
				if w.e, err = saga.New(saga.Config{Store: w.s, Publisher: w.pub, Logger: quiet}); err != nil {
					t.Fatal(err)
				}
				if _, err := saga.Register(w.e, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{{Name: "a", Execute: ok}}}); err != nil {
					t.Fatal(err)
				}
				runEngine(t, w.e, func(ctx context.Context) {
					pass(5 * time.Second)
					if h := w.e.Health(ctx); h.Level != saga.HealthOK || len(h.Causes) > 0 {
						t.Errorf("at first: %+v", h)
					}
					c.raise(w)
					h := w.e.Health(ctx)
					i := slices.IndexFunc(h.Causes, func(x saga.Cause) bool { return x.Code == c.code })
					if i < 0 || h.Causes[i].Level != c.level || h.Causes[i].Detail == "" || h.Level == saga.HealthOK {
						t.Errorf("got %+v, want %s", h, c.code)
					}
					c.end(w)
					pass(5 * time.Second)
					if h := w.e.Health(ctx); slices.ContainsFunc(h.Causes, func(x saga.Cause) bool { return x.Code == c.code }) {
						t.Errorf("afterwards: %+v", h)
					}
				})
			})
		})
	}
	for _, code := range saga.HealthCodes() {
		if !slices.Contains(tested, code) {
			t.Errorf("code %s is not tested", code)
		}
	}
}

// Where no process runs, nobody sweeps; and a tool that looks from outside sees
// the workers that do.
func TestHealthWithoutAnybody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRig(t, saga.Config{}, saga.Step[order]{Name: "a", Execute: ok})
		tool, err := saga.New(saga.Config{Store: r.store, Logger: quiet})
		if err != nil {
			t.Fatal(err)
		}
		codes := func() (out []saga.HealthCode) {
			for _, c := range tool.Health(t.Context()).Causes {
				out = append(out, c.Code)
			}
			return out
		}
		id := r.start(t.Context())
		if got := codes(); !slices.Contains(got, saga.HealthNoSweep) || !slices.Contains(got, saga.HealthNoConsumer) {
			t.Errorf("without a worker: %v", got)
		}
		runEngine(t, r.e, func(ctx context.Context) {
			r.wait(ctx, id)
			pass(20 * time.Second)
			if got := codes(); len(got) > 0 {
				t.Errorf("with a worker: %v", got)
			}
			ws, err := tool.Workers(ctx)
			if err != nil || len(ws) != 1 || !ws[0].Alive || ws[0].ID != r.e.Worker() || ws[0].Partitions[""] != 10 ||
				len(ws[0].Sagas) != 1 || !slices.Equal(ws[0].Sagas[0].Steps, []string{"a"}) {
				t.Errorf("workers: %+v, %v", ws, err)
			}
		})
		if ws, err := tool.Workers(t.Context()); err != nil || len(ws) != 0 {
			t.Errorf("after its end: %+v, %v", ws, err)
		}
	})
}

// A record that nobody renews is of a dead worker, and is removed in time.
func TestWorkerThatDied(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		dead := saga.WorkerInfo{ID: "host:1/aa", Name: "host:1", SeenAt: time.Now(), Every: 5 * time.Second}
		b, err := json.Marshal(dead)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.SetCell(t.Context(), "worker/host:1/aa", b, 0); err != nil {
			t.Fatal(err)
		}
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		alive := func() (out []bool) {
			ws, err := r.e.Workers(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, w := range ws {
				if w.ID == dead.ID {
					out = append(out, w.Alive)
				}
			}
			return out
		}
		if got := alive(); !slices.Equal(got, []bool{true}) {
			t.Errorf("at first: %v", got)
		}
		pass(time.Minute)
		if got := alive(); !slices.Equal(got, []bool{false}) {
			t.Errorf("after a minute: %v", got)
		}
		pass(25 * time.Hour)
		runEngine(t, r.e, func(context.Context) { pass(10 * time.Second) })
		if got := alive(); len(got) != 0 {
			t.Errorf("after a day: %v", got)
		}
	})
}

// The probes tell a process that drains, or has no store, from one that works;
// an outage of the store is no reason to restart anything.
func TestProbes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &outage{Store: memory.New()}
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		get := func(h http.Handler, method string) int {
			w := httptest.NewRecorder()
			h.ServeHTTP(w, httptest.NewRequest(method, "/", nil))
			if method == http.MethodHead && w.Body.Len() > 0 {
				t.Error("HEAD has a body")
			}
			return w.Code
		}
		live, ready, health := saga.LiveHandler(r.e), saga.ReadyHandler(r.e), saga.HealthHandler(r.e)
		expect := func(when string, wantLive, wantReady int) {
			t.Helper()
			if l, r := get(live, "GET"), get(ready, "HEAD"); l != wantLive || r != wantReady {
				t.Errorf("%s: live %d, ready %d; want %d, %d", when, l, r, wantLive, wantReady)
			}
		}
		expect("before Run", 200, 503)
		runEngine(t, r.e, func(ctx context.Context) {
			pass(20 * time.Second)
			expect("running", 200, 200)
			if got := get(health, "GET"); got != 200 {
				t.Errorf("health: %d", got)
			}
			st.set(true)
			pass(5 * time.Minute)
			expect("without a store", 200, 503)
			if got := get(health, "GET"); got != 503 {
				t.Errorf("health without a store: %d", got)
			}
			st.set(false)
			pass(time.Minute)
			expect("with a store again", 200, 200)
			if got := get(live, "POST"); got != 405 {
				t.Errorf("POST: %d", got)
			}
		})
		expect("after Run", 200, 503)
	})
}

// What an earlier Run left says nothing of the next one, which has just begun.
func TestLiveWhileASecondRunWaitsForTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := &outage{Store: memory.New()}
		r := newRig(t, saga.Config{Store: st}, saga.Step[order]{Name: "a", Execute: ok})
		runEngine(t, r.e, func(context.Context) { pass(10 * time.Second) })
		pass(10 * time.Minute)
		runEngine(t, r.e, func(context.Context) {
			w := httptest.NewRecorder()
			saga.LiveHandler(r.e).ServeHTTP(w, httptest.NewRequest("GET", "/", nil))
			if w.Code != 200 {
				t.Errorf("live: %d", w.Code)
			}
		})
	})
}

// Nobody takes the work of a partition when there is some, not paused, and
// neither the broker knows a consumer nor the registry a worker that takes it.
func TestHealthNoConsumer(t *testing.T) {
	worker := func(f func(w *saga.WorkerInfo)) *saga.WorkerInfo {
		w := &saga.WorkerInfo{ID: "host:1/aa", Name: "host:1", Every: 5 * time.Second, Partitions: map[string]int{"default": 4}}
		f(w)
		return w
	}
	for name, c := range map[string]struct {
		consumers int
		unknown   bool // the broker does not say
		worker    *saga.WorkerInfo
		before    func(r *rig, id uuid.UUID)
		want      bool
	}{
		"nobody":                         {want: true},
		"a consumer":                     {consumers: 1},
		"a worker that lives":            {worker: worker(func(*saga.WorkerInfo) {})},
		"a worker, the broker is mute":   {unknown: true, worker: worker(func(*saga.WorkerInfo) {})},
		"nobody, and the broker is mute": {unknown: true, want: true},
		"a worker of all":                {worker: worker(func(w *saga.WorkerInfo) { w.Partitions = map[string]int{"": 1} })},
		"a worker of another":            {worker: worker(func(w *saga.WorkerInfo) { w.Partitions = map[string]int{"shop": 1} }), want: true},
		"a paused worker":                {worker: worker(func(w *saga.WorkerInfo) { w.Paused = true }), want: true},
		"a worker that ends":             {worker: worker(func(w *saga.WorkerInfo) { w.Draining = true }), want: true},
		"a dead worker":                  {worker: worker(func(w *saga.WorkerInfo) { w.SeenAt = time.Now().Add(-50 * 365 * 24 * time.Hour) }), want: true},
		"a paused partition":             {before: func(r *rig, _ uuid.UUID) { r.pause(saga.Scope{Partition: "default"}) }},
		"only what is halted": {before: func(r *rig, id uuid.UUID) {
			if _, err := r.e.Halt(r.t.Context(), id, anna, nil); err != nil {
				r.t.Fatal(err)
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				p := &loud{}
				p.set(func(s *stand) {
					s.consumers = c.consumers
					if c.unknown {
						s.err = errors.New("not now")
					}
				})
				r := newRig(t, saga.Config{Publisher: p}, saga.Step[order]{Name: "a", Execute: ok})
				id := r.start(t.Context())
				if c.before != nil {
					c.before(r, id)
				}
				if w := c.worker; w != nil {
					if w.SeenAt.IsZero() {
						w.SeenAt = time.Now()
					}
					setRecord(t, r.store, w)
				}
				h := r.e.Health(t.Context())
				if got := slices.ContainsFunc(h.Causes, func(x saga.Cause) bool { return x.Code == saga.HealthNoConsumer }); got != c.want {
					t.Errorf("%v, want %v: %+v", got, c.want, h)
				}
			})
		})
	}
}

// Who is called at night finds each code in the handbook, and no other.
func TestEveryHealthCodeIsDocumented(t *testing.T) {
	b, err := os.ReadFile("../docs/oncall.md")
	if err != nil {
		t.Fatal(err)
	}
	var documented []saga.HealthCode
	parts := regexp.MustCompile(`(?s)^\n\n[A-Z].*\n\nLook: .*\n\nDo: .*\n\nDo not: `)
	for _, section := range strings.Split(string(b), "\n### ")[1:] {
		code, text, _ := strings.Cut(strings.TrimPrefix(section, "`"), "`")
		documented = append(documented, saga.HealthCode(code))
		if !parts.MatchString(text) {
			t.Errorf("docs/oncall.md does not say in this order what %s means, what to look at, what to do and what not to", code)
		}
	}
	for _, code := range saga.HealthCodes() {
		if !slices.Contains(documented, code) {
			t.Errorf("docs/oncall.md has no section for %s", code)
		}
	}
	for _, code := range documented {
		if !slices.Contains(saga.HealthCodes(), code) {
			t.Errorf("docs/oncall.md has a section for %s, which is no code", code)
		}
	}
}

// An outage is a store that can be taken away.
type outage struct {
	*memory.Store
	mu   sync.Mutex
	down bool
}

func (o *outage) set(down bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.down = down
}

func (o *outage) err() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.down {
		return errors.New("no route to host")
	}
	return nil
}

func (o *outage) Now(ctx context.Context) (time.Time, error) {
	if err := o.err(); err != nil {
		return time.Time{}, err
	}
	return o.Store.Now(ctx)
}

func (o *outage) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	if err := o.err(); err != nil {
		return nil, err
	}
	return o.Store.ClaimDue(ctx, q)
}

func (o *outage) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if err := o.err(); err != nil {
		return nil, 0, err
	}
	return o.Store.Cell(ctx, name)
}

func (o *outage) SetCell(ctx context.Context, name string, v json.RawMessage, revision int64) (int64, error) {
	if err := o.err(); err != nil {
		return 0, err
	}
	return o.Store.SetCell(ctx, name, v, revision)
}
