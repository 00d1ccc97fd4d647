//go:build linux

package faults

import (
	"context"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/leveret-go/leveret/internal/faultproxy"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
	"github.com/leveret-go/leveret/store/postgres"
	"github.com/leveret-go/leveret/store/sqlite"
)

// patience bounds the waits for what must happen. Nothing is expected to take as long.
const patience = 2 * time.Minute

const (
	onPostgres = "postgres"
	onSQLite   = "sqlite"
	onMemory   = "memory" // with w.local only
)

// A setup says what a case needs.
type setup struct {
	Store      string // onPostgres, onSQLite or onMemory
	Rabbit     bool   // else workers work the store
	Private    bool   // servers of its own
	RabbitConf []string
	Postgres   *postgres.Config // of workers and starter, as settings.Postgres
	Worker     settings         // of all workers; zero fields have defaults
}

// A world is all that one case has: servers, workers, participants and load.
type world struct {
	t      *testing.T
	fault  fault
	began  time.Time
	result result

	set          setup
	settings     settings // of workers, with defaults
	postgres     *service // nil: none
	rabbit       *service // nil: none
	participants *participants
	observer     store.Store // sees the store past the proxy
	starter      *starter

	children []*child
	locals   []*local

	mu       sync.Mutex
	extra    time.Duration // that recovery may take
	may      leniency
	besides  bool // made by beside
	liftedAt time.Time
	finished bool
}

// A service is a server with a proxy in front of it.
type service struct {
	server *testenv.Server // nil: shared with other tests
	proxy  *faultproxy.Proxy
	direct string // URL
	url    string // URL through the proxy
}

func newWorld(t *testing.T, f fault) *world {
	return &world{t: t, fault: f, began: time.Now(), result: result{Fault: f.name, Group: f.group, Statuses: map[string]int{}}}
}

// up starts what the case needs. Without a service it skips the case, or fails it where services are
// required.
func (w *world) up(s setup) {
	w.t.Helper()
	w.set, w.settings = s, s.Worker.filled()
	if s.Store == onPostgres {
		if s.Private {
			w.postgres = w.serve(testenv.NewPostgres(w.t))
		} else {
			w.postgres = w.front(testenv.Postgres(w.t))
		}
		w.settings.Store, w.settings.Postgres = w.postgres.url, s.Postgres
	}
	if s.Store == onSQLite {
		w.settings.Store = "sqlite:" + filepath.Join(w.t.TempDir(), "sagas.db")
	}
	if s.Rabbit {
		if s.Private {
			w.rabbit = w.serve(testenv.NewRabbit(w.t, s.RabbitConf...))
		} else {
			w.rabbit = w.front(testenv.AMQP(w.t))
		}
		w.settings.AMQP, w.settings.Prefix = w.rabbit.url, testenv.Prefix(w.t)
		if !s.Private {
			w.t.Cleanup(w.removeQueues)
		}
	}
	w.begin()
}

// beside makes another world, with a store and participants of its own, on the broker and the prefix
// of this one. Both are finished.
func (w *world) beside(s setup) *world {
	w.t.Helper()
	v := newWorld(w.t, w.fault)
	v.besides = true
	s.Rabbit = false
	v.up(s)
	v.rabbit, v.set.Rabbit = w.rabbit, true
	v.settings.AMQP, v.settings.Prefix = w.settings.AMQP, w.settings.Prefix
	v.starter = v.newStarter()
	return v
}

// begin opens the observer and starts the participants.
func (w *world) begin() {
	w.t.Helper()
	switch w.set.Store {
	case onPostgres:
		st, err := postgres.Open(w.t.Context(), w.postgres.direct, w.set.Postgres)
		w.must(err)
		w.t.Cleanup(func() { w.check(st.Close()) })
		w.must(st.Migrate(w.t.Context()))
		w.observer = st
	case onSQLite:
		st, err := sqlite.Open(w.t.Context(), strings.TrimPrefix(w.settings.Store, "sqlite:"), nil)
		w.must(err)
		w.t.Cleanup(func() { w.check(st.Close()) })
		w.observer = st
	case onMemory:
		w.observer = memory.New()
	default:
		w.t.Fatalf("setup.Store is %q", w.set.Store)
	}
	w.participants = newParticipants(w)
	w.settings.Participants = w.participants.addr
	w.starter = w.newStarter()
}

func (w *world) serve(s *testenv.Server) *service {
	f := w.front(s.URL())
	f.server = s
	return f
}

// front puts a proxy in front of a server.
func (w *world) front(direct string) *service {
	w.t.Helper()
	u, err := url.Parse(direct)
	w.must(err)
	p, err := faultproxy.New(u.Host)
	w.must(err)
	w.t.Cleanup(p.Close)
	u.Host = p.Addr()
	return &service{proxy: p, direct: direct, url: u.String()}
}

// work starts n worker processes and returns when they run. change, which may be nil, is given the
// settings of each and its number from 0.
func (w *world) work(n int, change func(i int, s *settings)) []*child {
	w.t.Helper()
	var started []*child
	for i := range n {
		s := w.settings
		s.Name = fmt.Sprintf("worker-%d", len(w.children)+1)
		if change != nil {
			change(i, &s)
		}
		started = append(started, w.spawn(s))
	}
	for _, c := range started {
		w.until(c.name+" runs", func() bool {
			if c.over() && !c.deathWanted() {
				w.t.Fatalf("%s has ended: %v\n%s", c.name, c.cmd.ProcessState, c.tail())
			}
			return w.participants.greeted(c.pid()) || c.over()
		})
	}
	return started
}

// worker returns the process with that id.
func (w *world) worker(pid int) *child {
	w.t.Helper()
	for _, c := range w.children {
		if c.pid() == pid {
			return c
		}
	}
	w.t.Fatalf("no worker has the process id %d", pid)
	return nil
}

// start starts n executions in the background, one every so often.
func (w *world) start(n int, every time.Duration) { w.starter.start(n, every) }

// ended waits until so many executions have ended.
func (w *world) ended(n int) {
	w.t.Helper()
	w.until(fmt.Sprintf("%d executions have ended", n), func() bool {
		confirmed, open, err := w.unfinished()
		return err == nil && confirmed-len(open) >= n
	})
}

// lifted says that the fault is over now: from here on the world has to recover.
func (w *world) lifted() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.liftedAt = time.Now()
	w.starter.mark()
}

// allow adds to the time that recovery may take.
func (w *world) allow(d time.Duration, why string) {
	w.extra += d
	w.say("recovery may take %v longer: %s", d, why)
}

// mayGiveUp says that executions that are meant to succeed may end compensated.
func (w *world) mayGiveUp() { w.may.giveUp = true }

// mayReportLate says that workers may report the effect of a step that others have undone meanwhile:
// its execution then ends compensation_failed, class late_effect, for a person to look at. Nothing of
// it is left all the same, as the participants refuse what comes after its undo.
func (w *world) mayReportLate() { w.may.late = true }

// bound is how long recovery may take: an attempt of a dead worker, or a lost pointer, is looked at by
// the first sweep after one lease and the margin; then what is left has to be worked off, with the
// longest wait of a retry, and an undo of a step in doubt waits for the step's time-out. The rest is
// for a machine of two cores that others use as well; it is the same whatever the settings.
func (w *world) bound() time.Duration {
	const (
		margin = 2 * time.Second
		busy   = 20 * time.Second
	)
	s := w.settings
	return time.Duration(s.Lease) + margin + time.Duration(s.Sweep)*6/5 + retryMost + w.extra + busy
}

// pause lets time pass, for faults that have a length.
func (w *world) pause(d time.Duration) {
	w.t.Helper()
	select {
	case <-time.After(d):
	case <-w.t.Context().Done():
		w.t.Fatal("the test is over")
	}
}

// until waits for what can be seen.
func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for end := time.After(patience); !ok(); {
		select {
		case <-tick.C:
		case <-end:
			w.fail("not within %v: %s", patience, what)
			w.t.FailNow()
		}
	}
}

// unfinished returns how many executions have been started, and those of them that have not ended.
func (w *world) unfinished() (started int, open []*store.Execution, err error) {
	started = w.starter.confirmed() // before the look: one started meanwhile counts as open at most
	ctx, cancel := context.WithTimeout(w.t.Context(), 5*time.Second)
	defer cancel()
	q := store.StalledQuery{ProgressBefore: time.Now().Add(24 * time.Hour), Limit: 1000}
	for {
		xs, err := w.observer.Stalled(ctx, q)
		if err != nil {
			return started, nil, err
		}
		open = append(open, xs...)
		if len(xs) < q.Limit {
			return started, open, nil
		}
		last := xs[len(xs)-1]
		q.After = &store.StalledCursor{ProgressAt: last.ProgressAt, ID: last.ID}
	}
}

// say adds a line to the log of the test, with the time.
func (w *world) say(format string, args ...any) {
	w.t.Helper()
	w.t.Logf("%6.2f s  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// note adds a remark to the result.
func (w *world) note(format string, args ...any) {
	w.t.Helper()
	w.mu.Lock()
	w.result.Notes = append(w.result.Notes, fmt.Sprintf(format, args...))
	w.mu.Unlock()
	w.say(format, args...)
}

// fail fails the case, which goes on.
func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	w.mu.Lock()
	if w.result.Failure == "" {
		w.result.Failure = fmt.Sprintf(format, args...)
	}
	w.mu.Unlock()
	w.t.Errorf("%6.2f s  %s", time.Since(w.began).Seconds(), fmt.Sprintf(format, args...))
}

// must ends the case on an error.
func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.fail("%v", err)
		w.t.FailNow()
	}
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.fail("%v", err)
	}
}
