package saga_test

import (
	"context"
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

// A lostPost is a publisher that keeps what it is given, tells of a queue
// whatever the test wants, and delivers nothing by itself.
type lostPost struct {
	mu        sync.Mutex
	sent      []saga.Pointer
	at        []time.Time
	away      bool
	fail      error
	ready     int
	consumers int
	unknown   bool
}

func (p *lostPost) Publish(_ context.Context, _ string, ptr saga.Pointer) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return p.fail
	}
	p.sent, p.at = append(p.sent, ptr), append(p.at, time.Now())
	return nil
}

func (p *lostPost) Depth(context.Context, string) (int, int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unknown {
		return 0, 0, errors.New("no idea")
	}
	return p.ready, p.consumers, nil
}

func (p *lostPost) Connected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.away
}

func (p *lostPost) set(f func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	f()
}

// published returns after how many seconds pointers were sent, from a start.
func (p *lostPost) published(from time.Time) (out []int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, at := range p.at {
		out = append(out, int(at.Sub(from).Round(time.Second).Seconds()))
	}
	return out
}

// idle is a consumer that consumes nothing.
type idle struct{}

func (idle) Run(ctx context.Context) error { <-ctx.Done(); return nil }

func TestSweepByQueue(t *testing.T) {
	tests := []struct {
		name  string
		post  *lostPost
		after time.Duration
		want  func(sent []int) bool
		says  string
		x     func(x *store.Execution) bool
	}{
		{"lost pointers are counted, and more than MaxResumes give up", &lostPost{consumers: 1}, 5 * time.Minute,
			func(s []int) bool { return len(s) == 7 && s[6] < 200 }, "the first, one that may have gone to nobody, and five again",
			func(x *store.Execution) bool {
				return x.Status == store.StatusFailed && x.Failure.Class == "stalled"
			}},
		{"without consumers it is sent again in growing intervals, not counted", &lostPost{}, 20 * time.Minute,
			func(s []int) bool {
				return len(s) >= 9 && len(s) <= 14 && s[len(s)-1]-s[len(s)-2] <= 125 && s[len(s)-1]-s[len(s)-2] >= 115
			}, "up to every two minutes",
			func(x *store.Execution) bool { return x.Status == store.StatusRunning && x.Resumes == 0 }},
		{"with an unknown depth the same", &lostPost{unknown: true, consumers: 1}, 20 * time.Minute,
			func(s []int) bool { return len(s) >= 9 && len(s) <= 14 }, "up to every two minutes",
			func(x *store.Execution) bool { return x.Status == store.StatusRunning && x.Resumes == 0 }},
		{"probably still queued: sent again, at last every hour", &lostPost{ready: 3, consumers: 1}, 10 * time.Hour,
			func(s []int) bool {
				return len(s) >= 12 && len(s) <= 20 && s[len(s)-1]-s[len(s)-2] >= 3500 && s[len(s)-1]-s[len(s)-2] <= 3700
			}, "up to every hour",
			func(x *store.Execution) bool { return x.Status == store.StatusRunning && x.Resumes == 0 }},
		{"a backlog is left alone for two hours", &lostPost{ready: 101, consumers: 1}, 119 * time.Minute,
			func(s []int) bool { return len(s) == 1 }, "once",
			func(x *store.Execution) bool { return x.Status == store.StatusRunning && x.Resumes == 0 }},
		{"and then sent once more", &lostPost{ready: 101, consumers: 1}, 3*time.Hour + 5*time.Minute,
			func(s []int) bool { return len(s) == 2 && s[1] >= 7200 }, "once, and again after two hours",
			func(x *store.Execution) bool { return x.Status == store.StatusRunning && x.Resumes == 0 }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				post := tt.post
				r := newRig(t, saga.Config{Publisher: post}, saga.Step[order]{Name: "a", Execute: ok})
				runEngineWith(t, r.e, func(ctx context.Context) {
					begun := time.Now()
					id := r.start(ctx)
					pass(tt.after)
					if s := post.published(begun); !tt.want(s) {
						t.Errorf("published after %v s, want it %s", s, tt.says)
					}
					if x := r.get(id); !tt.x(x) {
						t.Errorf("%s, %d resumes, %+v", x.Status, x.Resumes, x.Failure)
					}
				}, idle{})
			})
		})
	}
}

// runEngineWith is runEngine with consumers.
func runEngineWith(t *testing.T, e *saga.Engine, f func(ctx context.Context), consumers ...saga.Runner) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- e.Run(ctx, consumers...) }()
	pass(0)
	f(ctx)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("Run: %v", err)
	}
}

func TestRetryIsPublishedToTheMillisecond(t *testing.T) {
	bubble(t, func(t *testing.T) {
		post := &lostPost{consumers: 1}
		r := newRig(t, saga.Config{Publisher: post}, saga.Step[order]{Name: "a", Execute: results(saga.RetryAfter(1234*time.Millisecond, errors.New("busy")))})
		runEngineWith(t, r.e, func(ctx context.Context) {
			begun := time.Now()
			r.start(ctx)
			if _, err := r.e.Handle(ctx, post.sent[0]); err != nil {
				t.Fatal(err)
			}
			pass(time.Minute)
			if len(post.at) < 2 || post.at[1].Sub(begun) < 1234*time.Millisecond || post.at[1].Sub(begun) > 1236*time.Millisecond {
				t.Errorf("published at %v, want it 1.234 s after %v", post.at, begun)
			}
		}, idle{})
	})
}

func TestWhileTheBrokerIsAwayNothingIsPublishedAndConsumersWorkTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		post := &lostPost{away: true, consumers: 1}
		r := newRig(t, saga.Config{Publisher: post}, saga.Step[order]{Name: "a", Execute: results(errors.New("busy"))})
		slots := saga.NewSlots(2)
		runEngineWith(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			if x := r.get(id); x.DueAt.After(time.Now()) || x.OfferedAt != nil {
				t.Errorf("due %v, offered %v: want it due at once", x.DueAt, x.OfferedAt)
			}
			pass(time.Minute)
			if x := r.get(id); x.Status != store.StatusRunning || x.Attempt != nil || len(post.sent) != 0 {
				t.Errorf("%s, %d pointers: nobody works yet", x.Status, len(post.sent))
			}
			away, back := context.WithCancel(ctx)
			done := make(chan error, 1)
			go func() { done <- r.e.WorkStore(away, "default", slots) }()
			r.wait(ctx, id)
			back()
			if err := <-done; err != nil || slots.Free() != 2 {
				t.Errorf("WorkStore: %v, %d slots free", err, slots.Free())
			}
			if len(post.sent) != 0 {
				t.Errorf("%d pointers were published", len(post.sent))
			}
		}, idle{})
	})
}

func TestPublishThatFailsIsReportedAndHealed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		post := &lostPost{consumers: 1, fail: errors.New("channel closed")}
		var kinds []saga.EventKind
		r := newRig(t, saga.Config{Publisher: post, Observe: func(_ context.Context, e saga.Event) { kinds = append(kinds, e.Kind) }}, saga.Step[order]{Name: "a", Execute: ok})
		runEngineWith(t, r.e, func(ctx context.Context) {
			begun := time.Now()
			r.start(ctx)
			if !slices.Contains(kinds, saga.EventPointerUnpublished) {
				t.Errorf("events %v", kinds)
			}
			post.set(func() { post.fail = nil })
			pass(32 * time.Second)
			if s := post.published(begun); len(s) != 1 || s[0] < 30 || s[0] > 31 {
				t.Errorf("published after %v s, want it after the pick-up time", s)
			}
		}, idle{})
	})
}

func TestPointersThatAreRefusedAreNotCountedAsLost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		post := &lostPost{consumers: 1, fail: errors.New("queue is full")}
		r := newRig(t, saga.Config{Publisher: post}, saga.Step[order]{Name: "a", Execute: ok})
		runEngineWith(t, r.e, func(ctx context.Context) {
			id := r.start(ctx)
			pass(time.Hour)
			if x := r.get(id); x.Status != store.StatusRunning || x.Resumes != 0 {
				t.Errorf("%s, %d resumes, %+v", x.Status, x.Resumes, x.Failure)
			}
		}, idle{})
	})
}

func TestResumeStuckSaysWhatItDidAndWhy(t *testing.T) {
	bubble(t, func(t *testing.T) {
		st := memory.New()
		post := &lostPost{consumers: 1}
		long := func(ctx context.Context, _ *saga.Run[order]) error { <-ctx.Done(); return ctx.Err() }
		r := newRigFor(t, saga.Config{Store: st, Publisher: post, PickupWithin: 24 * time.Hour}, saga.Definition[order]{Name: "checkout", Steps: []saga.Step[order]{
			{Name: "a", Timeout: saga.NoTimeout, Execute: func(ctx context.Context, run *saga.Run[order]) error {
				switch run.Resource.ID {
				case "long":
					return long(ctx, run)
				case "halted":
					return saga.Halt("stop")
				case "later":
					return saga.RetryAfter(24*time.Hour, errors.New("later"))
				}
				return nil
			}},
		}})
		start := func(ctx context.Context, what string) uuid.UUID {
			x, err := r.s.Start(ctx, saga.Resource{Type: "case", ID: what}, order{}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return x.ID
		}
		runEngineWith(t, r.e, func(ctx context.Context) {
			ids := map[uuid.UUID]string{}
			for _, what := range []string{"lost", "long", "halted", "later"} {
				id := start(ctx, what)
				ids[id] = what
				if what != "lost" {
					p := post.sent[len(post.sent)-1]
					go func() { _, _ = r.e.Handle(ctx, p) }()
					pass(time.Millisecond)
				}
			}
			pass(16 * time.Minute)
			ids[start(ctx, "young")] = "young"
			before := len(post.sent)
			report, err := r.e.ResumeStuck(ctx, anna, nil)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, i := range report.Items {
				got = append(got, ids[i.Execution]+": "+strings.TrimSuffix(string(i.Result)+" "+i.Reason, " "))
			}
			slices.Sort(got)
			wantEqual(t, "report", got, []string{"halted: skipped halted", "later: skipped retry", "long: skipped running", "lost: resumed"})
			if len(post.sent) != before+1 {
				t.Errorf("%d pointers published, want one", len(post.sent)-before)
			}
			for range 5 {
				report, err = r.e.ResumeStuck(ctx, anna, &saga.ResumeOptions{Limit: 1})
				if err != nil {
					t.Fatal(err)
				}
			}
			gaveUp := slices.ContainsFunc(report.Items, func(i saga.ResumeItem) bool { return i.Result == saga.ResumeGaveUp })
			if !gaveUp {
				t.Errorf("sixth time: %+v, want it given up", report.Items)
			}
			audit, _ := r.e.Audit(ctx, report.Items[slices.IndexFunc(report.Items, func(i saga.ResumeItem) bool { return i.Result == saga.ResumeGaveUp })].Execution)
			if len(audit) != 6 || audit[5].Act != string(saga.ActGiveUp) || audit[0].Act != string(saga.ActResumeStuck) || audit[0].Actor != "anna" {
				t.Errorf("audit %+v", audit)
			}
			if _, err := r.e.ResumeStuck(ctx, saga.By{}, nil); !errors.Is(err, saga.ErrInvalid) {
				t.Errorf("by nobody: %v", err)
			}
		}, idle{})
	})
}

// While a consumer here works its partition from the store, although the broker
// is there (it refuses the consumer), the sweep leaves that partition to it: it
// would put off what the consumer is about to take.
func TestSweepLeavesWhatAConsumerWorksFromTheStore(t *testing.T) {
	bubble(t, func(t *testing.T) {
		pub := &loud{} // connected, no consumers
		r := newRig(t, saga.Config{Publisher: pub}, saga.Step[order]{Name: "a", Execute: results(errors.New("once"), errors.New("twice")), Retry: quick})
		runEngine(t, r.e, func(ctx context.Context) {
			work, stop := context.WithCancel(ctx)
			done := make(chan error)
			go func() { done <- r.e.WorkStore(work, "default", saga.NewSlots(1)) }()
			<-time.After(time.Minute)
			id := r.start(ctx)
			began := time.Now()
			x := r.wait(ctx, id)
			// Its pointer was published to a queue without consumers; it comes
			// due once, after PickupWithin, and then goes straight on.
			if took := time.Since(began); x.Status != store.StatusCompleted || took > 40*time.Second {
				t.Errorf("%s after %v", x.Status, took)
			}
			stop()
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	})
}

// slowClaims take 2 seconds each: a sweep over very many due rows takes long.
type slowClaims struct{ *memory.Store }

func (s slowClaims) ClaimDue(ctx context.Context, q store.DueQuery) ([]*store.Execution, error) {
	<-time.After(2 * time.Second)
	return s.Store.ClaimDue(ctx, q)
}

// A sweep that takes long is one, as long as it gets on.
func TestALongSweepIsASweep(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := &loud{}
		p.set(func(s *stand) { s.consumers = 1 })
		r := newRig(t, saga.Config{Store: slowClaims{memory.New()}, Publisher: p}, saga.Step[order]{Name: "a", Execute: ok})
		p.set(func(s *stand) { s.away = true })
		for range 5000 {
			r.start(t.Context())
		}
		p.set(func(s *stand) { s.away = false })
		runEngine(t, r.e, func(ctx context.Context) {
			pass(60 * time.Second)
			if s := r.e.Stats().Sweep; s.Sweeps > 0 {
				t.Fatalf("a sweep has ended: %+v", s)
			}
			for _, c := range r.e.Health(ctx).Causes {
				if c.Code == saga.HealthNoSweep {
					t.Errorf("%+v", c)
				}
			}
		})
	})
}
