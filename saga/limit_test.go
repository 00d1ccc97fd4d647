package saga_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A crowd counts who is at work, by group.
type crowd struct {
	mu    sync.Mutex
	now   map[string]int
	most  map[string]int
	begun []string // resources, in the order of their first steps
}

func newCrowd() *crowd { return &crowd{now: map[string]int{}, most: map[string]int{}} }

func (c *crowd) enter(group, resource string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, g := range []string{"", group} {
		c.now[g]++
		c.most[g] = max(c.most[g], c.now[g])
	}
	c.begun = append(c.begun, resource)
}

func (c *crowd) leave(group string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now[""]--
	c.now[group]--
}

// crowded is a saga of two steps of ten seconds each.
func crowded(c *crowd) saga.Definition[order] {
	group := func(r saga.Resource) string { return r.Type }
	return saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{
		{Name: "a", Execute: func(_ context.Context, run *saga.Run[order]) error {
			c.enter(group(run.Resource), run.Resource.ID)
			<-time.After(10 * time.Second)
			return nil
		}},
		{Name: "b", Isolated: true, Wait: 10 * time.Second, Execute: func(_ context.Context, run *saga.Run[order]) error {
			c.leave(group(run.Resource))
			return nil
		}},
	}}
}

func TestMaxActive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCrowd()
		d := crowded(c)
		d.MaxActive = 3
		st := memory.New()
		rigs := []*rig{newRigFor(t, saga.Config{Store: st, Workers: 50}, d), newRigFor(t, saga.Config{Store: st, Workers: 50}, d)}
		var ids []uuid.UUID
		var want []string
		for n := range 20 {
			want = append(want, fmt.Sprint(n))
			ids = append(ids, rigs[n%2].mustStartFor(fmt.Sprint(n), nil).ID)
			<-time.After(time.Millisecond)
		}
		runEngine(t, rigs[0].e, func(ctx context.Context) {
			runEngine(t, rigs[1].e, func(ctx context.Context) {
				pass(5 * time.Second)
				x := rigs[0].get(ids[19])
				if x.Status != store.StatusWaiting || x.Gate.Kind != store.GateTurn || len(rigs[0].attempts(x.ID)) != 0 {
					t.Errorf("%s, %+v", x.Status, x.Gate)
				}
				if _, err := rigs[0].e.Cancel(ctx, ids[10], anna, nil); err != nil { // it leaves the queue
					t.Error(err)
				}
				for _, id := range ids {
					rigs[0].wait(ctx, id)
				}
				if d := time.Since(x.CreatedAt); d > 3*time.Minute {
					t.Errorf("it took %v", d)
				}
			})
		})
		if c.most[""] != 3 {
			t.Errorf("%d at once", c.most[""])
		}
		want = slices.Delete(want, 10, 11)
		for _, list := range [][]string{c.begun, want} { // three begin together
			for three := range slices.Chunk(list, 3) {
				slices.Sort(three)
			}
		}
		if !slices.Equal(c.begun, want) {
			t.Errorf("they began as %v, want %v", c.begun, want)
		}
	})
}

func TestMaxActivePerGroup(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCrowd()
		d := crowded(c)
		d.MaxActive, d.MaxActivePerGroup = 4, 1
		d.Group = func(r saga.Resource, _ order) string { return r.Type }
		r := newRigFor(t, saga.Config{Workers: 50}, d)
		runEngine(t, r.e, func(ctx context.Context) {
			var ids []uuid.UUID
			for n := range 12 {
				x, err := r.s.Start(ctx, saga.Resource{Type: []string{"a", "a", "a", "b"}[n%4], ID: fmt.Sprint(n)}, order{}, nil)
				if err != nil {
					t.Fatal(err)
				}
				ids = append(ids, x.ID)
			}
			for _, id := range ids {
				r.wait(ctx, id)
			}
		})
		if c.most["a"] != 1 || c.most["b"] != 1 || c.most[""] != 2 {
			t.Errorf("%v", c.most)
		}
	})
}

// A process that only starts lets in whose turn it is: workers need not find out.
func TestALimitOfAStarter(t *testing.T) {
	d := crowded(newCrowd())
	d.MaxActive = 1
	r := newRigFor(t, saga.Config{}, d)
	a, b := r.mustStartFor("a", nil), r.mustStartFor("b", nil)
	if x := r.get(a.ID); x.Status != store.StatusRunning || x.Gate != nil {
		t.Errorf("the first one is %s, gate %+v", x.Status, x.Gate)
	}
	if x := r.get(b.ID); x.Status != store.StatusWaiting || x.Gate == nil || x.Gate.Kind != store.GateTurn {
		t.Errorf("the second one is %s, gate %+v", x.Status, x.Gate)
	}
	if _, err := r.e.Cancel(t.Context(), a.ID, anna, nil); err != nil {
		t.Fatal(err)
	}
	if x := r.get(b.ID); x.Status != store.StatusRunning {
		t.Errorf("when that has ended the second one is %s", x.Status)
	}
}

// A process that dies after it has given somebody a place has given it.
func TestALimitOutlivesItsProcess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := newCrowd()
		d := crowded(c)
		d.MaxActive = 1
		st := memory.New()
		first := newRigFor(t, saga.Config{Store: st}, d)
		a := first.mustStartFor("a", nil)
		b := first.mustStartFor("b", nil)
		cell := fmt.Sprintf(`{"active":[{"id":%q},{"id":%q}]}`, uuid.New(), a.ID) // one that is gone, and one that was not let in
		if _, revision, err := st.Cell(t.Context(), "limit/checkout"); err != nil {
			t.Fatal(err)
		} else if _, err := st.SetCell(t.Context(), "limit/checkout", []byte(cell), revision); err != nil {
			t.Fatal(err)
		}
		second := newRigFor(t, saga.Config{Store: st}, d)
		runEngine(t, second.e, func(ctx context.Context) {
			second.wait(ctx, a.ID)
			if x := second.wait(ctx, b.ID); x.Status != store.StatusCompleted {
				t.Errorf("%s", x.Status)
			}
		})
		if c.most[""] != 1 {
			t.Errorf("%d at once", c.most[""])
		}
	})
}

func TestBudget(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		var mu sync.Mutex
		var begun []time.Time
		note := func(context.Context, *saga.Run[order]) error {
			mu.Lock()
			defer mu.Unlock()
			begun = append(begun, time.Now())
			return nil
		}
		cfg := saga.Config{Store: st, Workers: 20, Budgets: map[string]saga.Budget{"bank": {Rate: 2, Burst: 3}}}
		both := func() (*rig, *saga.Saga[order]) {
			r := newRig(t, cfg, saga.Step[order]{Name: "a", Budget: "bank", Execute: note}, saga.Step[order]{Name: "b", Budget: "bank", Execute: note})
			other, err := saga.Register(r.e, saga.Definition[order]{Name: "other", Steps: []saga.Step[order]{{Name: "a", Budget: "bank", Execute: note}}})
			if err != nil {
				t.Fatal(err)
			}
			return r, other
		}
		r1, other := both()
		r2, _ := both()
		runEngine(t, r1.e, func(ctx context.Context) {
			runEngine(t, r2.e, func(ctx context.Context) {
				pass(10 * time.Second)
				var ids []uuid.UUID
				for range 10 {
					x, err := other.Start(ctx, saga.Resource{}, order{}, nil)
					if err != nil {
						t.Fatal(err)
					}
					ids = append(ids, r1.start(ctx), x.ID)
				}
				for _, id := range ids {
					if x := r1.wait(ctx, id); x.Status != store.StatusCompleted {
						t.Errorf("%s", x.Status)
					}
				}
			})
		})
		if len(begun) != 30 {
			t.Fatalf("%d attempts", len(begun))
		}
		slices.SortFunc(begun, time.Time.Compare)
		for i := range begun { // in no span more than the burst and the rate allow
			for j := i; j < len(begun); j++ {
				span := begun[j].Sub(begun[i]) + 150*time.Millisecond
				if n := j - i + 1; float64(n) > 3+2*span.Seconds() {
					t.Fatalf("%d attempts in %v", n, span)
				}
			}
		}
		if took := begun[29].Sub(begun[0]); took > 20*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

func TestLimitsAreChecked(t *testing.T) {
	for name, d := range map[string]saga.Definition[order]{
		"negative":     {MaxActive: -1},
		"too many":     {MaxActive: 10_001},
		"no group":     {MaxActivePerGroup: 1},
		"group alone":  {Group: func(saga.Resource, order) string { return "" }},
		"no such rate": {Steps: []saga.Step[order]{{Name: "a", Execute: ok, Budget: "bank"}}},
	} {
		e, err := saga.New(saga.Config{Store: memory.New()})
		if err != nil {
			t.Fatal(err)
		}
		d.Name = "x"
		if d.Steps == nil {
			d.Steps = []saga.Step[order]{{Name: "a", Execute: ok}}
		}
		if _, err := saga.Register(e, d); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, b := range map[string]saga.Budget{"": {Rate: 1}, "a": {}, "b": {Rate: -1}, "c": {Rate: 1, Per: -1}, "d": {Rate: 1, Burst: -1}, "E": {Rate: 1}} {
		if _, err := saga.New(saga.Config{Store: memory.New(), Budgets: map[string]saga.Budget{name: b}}); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestStartMany(t *testing.T) {
	bubble(t, func(t *testing.T) {
		r := newRigFor(t, saga.Config{}, byResource("", saga.Step[order]{Name: "a", Wait: time.Hour, Execute: ok}))
		var items []saga.StartItem[order]
		for n := range 100 {
			items = append(items, saga.StartItem[order]{Resource: saga.Resource{ID: fmt.Sprint(n % 60)}})
		}
		items[5].Resource.ID = ""
		taken, bad := 0, 0
		for i, res := range r.s.StartMany(t.Context(), items) {
			var held *store.KeyTakenError
			switch {
			case errors.As(res.Err, &held):
				taken++
			case errors.Is(res.Err, saga.ErrInvalid):
				bad++
			case res.Err != nil || res.Started.Resource != items[i].Resource:
				t.Errorf("%d: %+v", i, res)
			}
		}
		if taken != 39 || bad != 1 {
			t.Errorf("%d taken, %d bad", taken, bad)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, res := range r.s.StartMany(ctx, items[:3]) {
			if !errors.Is(res.Err, context.Canceled) {
				t.Error(res.Err)
			}
		}
	})
}
