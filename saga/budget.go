package saga

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A Budget is a rate that steps of any sagas share, in all processes on the
// store, such as what a participant allows: Rate attempts per Per, and Burst of
// them at once after a quiet time. It goes by the store's clock, and counts
// attempts of Execute and of compensations alike. Who has to wait gets a place
// in the order of asking, and holds no worker meanwhile. An execution that is
// cancelled while it waits has used up its place.
type Budget struct {
	// Rate is how many attempts begin within Per: 1 to 1,000,000.
	Rate int
	// Per defaults to 1 second; at most 24 hours.
	Per time.Duration
	// Burst defaults to 1.
	Burst int
}

func (b Budget) faults() (faults []string) {
	if b.Rate < 1 || b.Rate > 1_000_000 {
		faults = append(faults, fmt.Sprintf("Rate is %d, want 1 to 1000000", b.Rate))
	}
	if b.Per < 0 || b.Per > 24*time.Hour {
		faults = append(faults, fmt.Sprintf("Per is %v, want 0 to 24h", b.Per))
	}
	if b.Burst < 0 || b.Burst > 1_000_000 {
		faults = append(faults, fmt.Sprintf("Burst is %d, want 0 to 1000000", b.Burst))
	}
	return faults
}

// interval is the time between two attempts.
func (b Budget) interval() time.Duration {
	setDefault(&b.Per, time.Second)
	return max(b.Per/time.Duration(b.Rate), time.Microsecond)
}

// spent is a budget's cell: when its next place would be without a burst.
type spent struct {
	Next time.Time `json:"next"`
}

// take gives away n places at now, and returns the first.
func (b Budget) take(s *spent, now time.Time, n int) (first time.Time) {
	burst := time.Duration(max(b.Burst, 1)-1) * b.interval()
	if s.Next.Before(now) {
		s.Next = now
	}
	first = s.Next.Add(-burst)
	s.Next = store.Micros(s.Next.Add(time.Duration(n) * b.interval()))
	return first
}

const budgetPrefix = "budget/"

// budgets reserves places. Those that are asked for while the store is written
// are reserved together by the next write.
type budgets struct {
	mu    sync.Mutex
	queue map[string]*placing
}

// A placing is one write that reserves places for all who wait for it.
type placing struct {
	n     int
	done  chan struct{}
	first time.Time
	err   error
}

// reserve returns when an attempt may begin within a budget.
func (e *Engine) reserve(ctx context.Context, name string) (time.Time, error) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return time.Time{}, ErrNotSupported
	}
	b := e.cfg.Budgets[name]
	e.budgets.mu.Lock()
	if e.budgets.queue == nil {
		e.budgets.queue = map[string]*placing{}
	}
	p := e.budgets.queue[name]
	leads := p == nil
	if leads {
		p = &placing{done: make(chan struct{})}
		e.budgets.queue[name] = p
	}
	mine := p.n
	p.n++
	e.budgets.mu.Unlock()
	if leads {
		e.place(ctx, cells, name, b, p)
	}
	<-p.done // the leader's calls of the store are bounded
	now := e.clock.now()
	at := p.first.Add(time.Duration(mine) * b.interval())
	if at.Before(now) {
		at = now
	}
	return store.Micros(at), p.err
}

// place reserves for all who have come until the write begins.
func (e *Engine) place(ctx context.Context, cells store.Cells, name string, b Budget, p *placing) {
	defer close(p.done)
	n := 0
	for try := 1; ; try++ {
		var s spent
		v, revision, err := cells.Cell(ctx, budgetPrefix+name)
		if err == nil && v != nil && json.Unmarshal(v, &s) != nil {
			s = spent{} // not ours: a budget begins anew
		}
		if n == 0 { // from here on the next one waits for another write
			e.budgets.mu.Lock()
			n = p.n
			delete(e.budgets.queue, name)
			e.budgets.mu.Unlock()
		}
		if err == nil {
			p.first = b.take(&s, e.clock.now(), n)
			if v, err = json.Marshal(s); err == nil {
				_, err = cells.SetCell(ctx, budgetPrefix+name, v, revision)
			}
		}
		if err == nil || !errors.Is(err, store.ErrConflict) || try >= 100 || ctx.Err() != nil {
			p.err = err
			return
		}
	}
}

// budget passes the rate of the step's budget; "" when an attempt may be opened.
func (m *machine) budget(s *planStep) string {
	if s.budget == "" {
		return ""
	}
	l := m.entry()
	if l.Token == nil {
		at := m.answers.token(m.x)
		if at == nil {
			m.wants = wantToken
			return dropAsk
		}
		l.Token = at
	}
	if l.Token.After(m.now.Add(earlyTolerance)) {
		m.wait(*l.Token)
		m.publish = false
		return DropEarly
	}
	l.Token = nil
	m.touch()
	return ""
}
