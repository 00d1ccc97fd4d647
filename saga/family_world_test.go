package saga

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A kin is a random story of many executions on a real engine and a memory store:
// parents and their children, executions that replace each other under one key,
// and ones that continue as new; with workers that die or come late, pointers
// that are lost and doubled, a store whose writes fail before or after their
// commit, and operators. Nothing of it runs by itself: the story makes one move
// after the other, so that a seed tells all of it.
//
// trip is the saga of parents (a, legs, z), leg that of children and of those that
// continue as new (fly, land).
type kin struct {
	t    *testing.T
	r    *rand.Rand
	now  time.Time
	e    *Engine
	st   *kinStore
	trip *Saga[kinState]
	leg  *Saga[kinState]
	join Join

	queue  []Pointer
	bodies []*kinBody
	calm   bool // nothing fails any more
	wish   error

	rows    map[uuid.UUID]*store.Execution // as they were last seen
	names   map[uuid.UUID]string
	started []uuid.UUID // in the order in which they came up
	over    map[uuid.UUID]uuid.UUID
	spawned map[uuid.UUID]int // of each parent

	world  kinWorld
	log    []string
	faults []string

	starts                           int
	joins, replaced, renewed, undone int // how often
}

// kinState is the state of both sagas.
type kinState struct {
	Legs  int `json:"legs"`
	Round int `json:"round"`
}

// A kinWorld is what the steps have done outside: they are fenced, as they should
// be.
type kinWorld struct{ done, undone map[string]bool }

var errUndone = errors.New("it was undone before")

func (w *kinWorld) do(c *Call) error {
	key := c.ExecuteKey()
	if c.Direction == store.DirectionCompensate {
		w.undone[key] = true
		delete(w.done, key)
		return nil
	}
	if w.undone[key] {
		return Fail(NoEffect(errUndone))
	}
	w.done[key] = true
	return nil
}

// left lists the steps of an execution whose effects are there.
func (w *kinWorld) left(id uuid.UUID) (out []string) {
	for key := range w.done {
		if step, ok := strings.CutPrefix(key, id.String()+"/"); ok {
			out = append(out, strings.TrimSuffix(step, "/execute"))
		}
	}
	slices.Sort(out)
	return out
}

// A kinBody is an attempt that some worker has opened.
type kinBody struct {
	x   *store.Execution
	s   *session
	c   *claim
	ran bool
	r   result
}

// errKin is what a broken store answers.
var errKin = errors.New("the store is broken")

// A kinStore fails at times, and lies where a test wants it to.
type kinStore struct {
	*memory.Store
	k   *kin
	lie func(k *kin, x *store.Execution) *store.Execution // nil: of everything that is read, the truth
	cut func(k *kin, c *store.Change)                     // nil: of everything that is written, all
}

// breaks says whether a call fails, and whether only after it was carried out.
func (s *kinStore) breaks() (before, after bool) {
	if s.k.calm {
		return false, false
	}
	n := s.k.r.IntN(60)
	return n == 0, n == 1
}

func (s *kinStore) write(f func() error) error {
	before, after := s.breaks()
	if before {
		return errKin
	}
	if err := f(); err != nil {
		return err
	}
	if after {
		return errKin
	}
	return nil
}

func (s *kinStore) Create(ctx context.Context, x *store.Execution) error {
	return s.write(func() error { return s.Store.Create(ctx, x) })
}

func (s *kinStore) Advance(ctx context.Context, x *store.Execution, c store.Change) error {
	if s.cut != nil {
		s.cut(s.k, &c)
	}
	return s.write(func() error { return s.Store.Advance(ctx, x, c) })
}

func (s *kinStore) WithLock(ctx context.Context, id uuid.UUID, fn func(*store.Execution) (store.Change, error)) (x *store.Execution, err error) {
	err = s.write(func() (err error) {
		x, err = s.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
			c, err := fn(x)
			if err == nil && s.cut != nil {
				s.cut(s.k, &c)
			}
			return c, err
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return x, nil
}

func (s *kinStore) Get(ctx context.Context, id uuid.UUID) (*store.Execution, error) {
	if before, _ := s.breaks(); before {
		return nil, errKin
	}
	x, err := s.Store.Get(ctx, id)
	if err == nil && s.lie != nil {
		x = s.lie(s.k, x)
	}
	return x, err
}

func (s *kinStore) Children(ctx context.Context, q store.ChildQuery) ([]*store.Execution, error) {
	if before, _ := s.breaks(); before {
		return nil, errKin
	}
	list, err := s.Store.Children(ctx, q)
	if s.lie == nil {
		return list, err
	}
	var out []*store.Execution
	for _, x := range list {
		if x = s.lie(s.k, x); x != nil {
			out = append(out, x)
		}
	}
	return out, err
}

// Publish is the broker, which may lose and double.
func (k *kin) Publish(_ context.Context, _ string, p Pointer) error {
	times := 1
	if !k.calm {
		times = []int{1, 1, 1, 1, 0, 2}[k.r.IntN(6)]
	}
	for range times {
		k.queue = append(k.queue, p)
	}
	return nil
}

// kinRand gives the ids of a story their bits.
type kinRand struct{ r *rand.Rand }

func (k kinRand) Read(b []byte) (int, error) {
	for i := 0; i < len(b); i += 8 {
		var w [8]byte
		binary.LittleEndian.PutUint64(w[:], k.r.Uint64())
		copy(b[i:], w[:])
	}
	return len(b), nil
}

// newKin begins a story. The bits of new ids are the seed's from now on.
func newKin(t *testing.T, seed uint64) (*kin, error) {
	k := &kin{
		t: t, r: rand.New(rand.NewPCG(seed, 29)), now: worldNow,
		rows: map[uuid.UUID]*store.Execution{}, names: map[uuid.UUID]string{}, over: map[uuid.UUID]uuid.UUID{},
		spawned: map[uuid.UUID]int{}, world: kinWorld{map[string]bool{}, map[string]bool{}},
	}
	uuid.SetRand(kinRand{rand.New(rand.NewPCG(seed, 31))})
	k.st = &kinStore{Store: memory.New(), k: k}
	r := k.r
	cfg := Config{
		Store: k.st, Publisher: k, Now: func() time.Time { return k.now }, StepTimeout: NoTimeout, MaxResumes: 50,
		Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
	}
	if r.IntN(4) == 0 {
		cfg.Handover = HandoverPublish
	}
	var err error
	if k.e, err = New(cfg); err != nil {
		return nil, err
	}
	k.e.life.start()
	k.e.sessions.start()
	policy := func() RetryPolicy {
		return RetryPolicy{Attempts: 1 + r.IntN(3), Initial: time.Second, Max: 10 * time.Second}
	}
	step := func(name string) Step[kinState] {
		return Step[kinState]{Name: name, Execute: k.body, Compensate: k.body, Retry: policy(), CompensateRetry: policy(), Isolated: r.IntN(4) == 0}
	}
	k.join = []Join{JoinAll, JoinSettled}[r.IntN(2)]
	legs := step("legs")
	legs.Compensate, legs.Children = nil, &Children[kinState]{Join: k.join, Start: k.spawn}
	if r.IntN(2) == 0 {
		legs.Execute = nil
	}
	if legs.Execute != nil {
		legs.Execute = k.look
	}
	land := step("land")
	if r.IntN(3) == 0 {
		land.Wait = time.Duration(1+r.IntN(60)) * time.Second
	}
	if k.trip, err = Register(k.e, Definition[kinState]{Name: "trip", Steps: []Step[kinState]{step("a"), legs, step("z")}}); err != nil {
		return nil, err
	}
	k.leg, err = Register(k.e, Definition[kinState]{Name: "leg", Steps: []Step[kinState]{step("fly"), land}})
	return k, err
}

// body is what all steps do: their work, unless what is wished for says that they
// did nothing.
func (k *kin) body(_ context.Context, run *Run[kinState]) error {
	switch listen(k.wish).kind {
	case KindContinueAsNew:
		run.State.Round++
	case KindUnknown:
		if k.r.IntN(2) == 0 {
			return k.wish
		}
	default:
		if k.wish != nil && listen(k.wish).kind != KindComplete {
			return k.wish
		}
	}
	if err := k.world.do(&run.Call); err != nil {
		return err
	}
	return k.wish
}

// look is the Execute of the step that has children.
func (k *kin) look(context.Context, *Run[kinState]) error { return k.wish }

// spawn is the Start of the step that has children.
func (k *kin) spawn(_ context.Context, run *Run[kinState]) (list []Child, err error) {
	if err, k.wish = k.wish, nil; err != nil {
		return nil, err
	}
	for n := range run.State.Legs {
		list = append(list, Name[kinState]("leg").Child(fmt.Sprint(n), Resource{}, kinState{}))
	}
	k.spawned[run.Execution] = len(list)
	return list, nil
}

func (k *kin) fault(format string, args ...any) {
	k.faults = append(k.faults, fmt.Sprintf(format, args...))
}

func (k *kin) say(format string, args ...any) {
	k.log = append(k.log, fmt.Sprintf("%v ", k.now.Sub(worldNow))+fmt.Sprintf(format, args...))
}

// name returns what the log calls an execution.
func (k *kin) name(id uuid.UUID) string {
	if n, ok := k.names[id]; ok {
		return n
	}
	return id.String()
}

// all lists the executions as they are, in the order in which they came up.
func (k *kin) all() []*store.Execution {
	var list []*store.Execution
	page := store.Page{Limit: store.MaxPage}
	for {
		l, err := k.st.Store.List(context.Background(), store.Filter{}, page)
		if err != nil {
			panic(err)
		}
		list = append(list, l.Executions...)
		if l.Next == nil {
			break
		}
		page.After = *l.Next
	}
	slices.SortFunc(list, older)
	return list
}

// older sorts executions by when they came up, what came up in one moment by
// what does not change with the seed's ids.
func older(a, b *store.Execution) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.Saga, b.Saga), cmp.Compare(keyAsChild(a), keyAsChild(b)), cmp.Compare(a.ID.String(), b.ID.String()))
}

func keyAsChild(x *store.Execution) string {
	if x.Parent == nil {
		return ""
	}
	return x.Parent.Key
}
