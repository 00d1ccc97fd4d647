package storetest

import (
	"bytes"
	"context"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// held gives an execution a start key.
func held(x *store.Execution) { x.Key = "key" }

// live checks who holds the key "key" of the case's saga; the nil UUID: nobody.
func (e *env) live(what string, want uuid.UUID) {
	e.Helper()
	x, err := e.s.Live(e.Context(), e.tag+"-saga", "key")
	if want == uuid.Nil {
		if x != nil {
			e.Errorf("%s: Live returned %s", what, x.ID)
		}
		e.is(err, store.ErrNotFound)
		return
	}
	e.ok(err)
	if err == nil {
		e.same(what+", Live", x, e.get(want))
	}
}

// waitingCases are of what executions wait for, and of whom they are related to.
var waitingCases = []testCase{
	{
		name:    "LiveFindsTheHolder",
		promise: "Live returns the execution that holds this key of this saga, as last committed, or ErrNotFound; it takes no lock. An empty key is held by none.",
		run: func(e *env) {
			e.live("of no executions", uuid.Nil)
			e.create() // has no key
			e.create(held, func(x *store.Execution) { x.Saga = e.tag + "-other" })
			e.create(func(x *store.Execution) { x.Key = "KEY" })
			for _, status := range store.Statuses() {
				x := e.create(held, func(x *store.Execution) { x.Status = status })
				want := uuid.Nil
				if status.HoldsKey() {
					want = x.ID
				}
				e.live("a "+string(status)+" one", want)
				e.create(held, func(y *store.Execution) { y.Follows = &x.ID })
				e.live("one follows a "+string(status)+" one", want)
				e.update(x.ID, func(x *store.Execution) store.Change {
					x.Status = store.StatusCompleted
					return store.Change{}
				})
				e.live("after that has completed", uuid.Nil)
			}
			full := e.full()
			full.Key, full.Follows = "key", nil
			e.ok(e.s.Create(e.Context(), full))
			e.live("one with all fields", full.ID)
			release := e.hold(full.ID, func(x *store.Execution) (store.Change, error) {
				x.Status = store.StatusCancelled
				return store.Change{}, nil
			})
			e.soon("Live while the holder is locked", func(ctx context.Context) error {
				_, err := e.s.Live(ctx, full.Saga, "key")
				return err
			})
			release()
			for _, key := range []string{"", "unknown", "'", awkward, "\xff", "a\x00b"} {
				_, err := e.s.Live(e.Context(), e.tag+"-saga", key)
				e.is(err, store.ErrNotFound)
			}
		},
	},
	{
		name:    "ChildrenInPages",
		promise: "Children returns executions that q.Parent has started, ordered by id, at most q.Limit, beginning after q.After; of q.Step, or of all steps. It takes no lock.",
		run: func(e *env) {
			parent := e.create()
			var all, ofPay []*store.Execution
			for i := range 17 {
				x := e.full()
				x.ID, x.Key = uuid.New(), "" // not in order
				x.Status = store.Statuses()[i%len(store.Statuses())]
				x.Parent = &store.Parent{Execution: parent.ID, Step: "pay", Key: "k"}
				if i%3 == 0 {
					x.Parent.Step = "Pay"
				}
				e.ok(e.s.Create(e.Context(), x))
				all = append(all, x)
			}
			e.create(func(x *store.Execution) { x.Parent = &store.Parent{Execution: uuid.New(), Step: "pay", Key: "k"} })
			slices.SortFunc(all, func(a, b *store.Execution) int { return bytes.Compare(a.ID[:], b.ID[:]) })
			for _, x := range all {
				if x.Parent.Step == "pay" {
					ofPay = append(ofPay, x)
				}
			}
			release := e.hold(all[0].ID, func(x *store.Execution) (store.Change, error) { return store.Change{}, store.ErrUnchanged })
			for step, want := range map[string][]*store.Execution{"": all, "pay": ofPay, "unknown": nil} {
				for _, limit := range []int{1, 2, 5, 17, 100} {
					var got []*store.Execution
					q := store.ChildQuery{Parent: parent.ID, Step: step, Limit: limit}
					for {
						e.soon("Children", func(ctx context.Context) error {
							page, err := e.s.Children(ctx, q)
							if len(page) > limit {
								e.Errorf("a page of %d has %d", limit, len(page))
							}
							q.After = uuid.Max
							if len(page) > 0 {
								q.After = page[len(page)-1].ID
							}
							got = append(got, page...)
							return err
						})
						if q.After == uuid.Max || len(got) > len(want) {
							break
						}
					}
					e.same("children of step "+step, got, want)
				}
			}
			release()
			_, err := e.s.Children(e.Context(), store.ChildQuery{Parent: parent.ID})
			e.is(err, store.ErrInvalid)
			none, err := e.s.Children(e.Context(), store.ChildQuery{Parent: uuid.New(), Limit: 1})
			e.ok(err)
			e.same("children of an unknown one", none, []*store.Execution(nil))
		},
	},
	{
		name:    "WakeReleases",
		promise: "Release sets its Follows to nil, also if it is halted (but not finished), so that it holds its key from now on, in the transaction that lets another one go of it.",
		run: func(e *env) {
			for name, write := range e.ends() {
				x := e.create(held)
				y := e.create(held, func(y *store.Execution) {
					y.Follows, y.DueAt, y.OfferedAt = &x.ID, at(time.Hour), at(0)
				})
				e.live(name+": before", x.ID)
				e.ok(write(x.ID, store.Change{Wake: []store.Wake{{ID: y.ID, At: base, Release: true}}}))
				y.Follows, y.DueAt, y.OfferedAt = nil, at(0), nil
				y.Revision++
				e.same(name+": who was released", e.get(y.ID), y)
				e.live(name+": after", y.ID)
				e.ok(write(y.ID, store.Change{}))

				halted := e.create(held, func(y *store.Execution) { y.Follows, y.Status, y.DueAt = &x.ID, store.StatusHalted, nil })
				finished := e.create(held, func(y *store.Execution) { y.Follows, y.Status, y.DueAt = &x.ID, store.StatusCancelled, nil })
				z := e.create()
				e.ok(write(z.ID, store.Change{Wake: []store.Wake{
					{ID: halted.ID, At: base, Release: true}, {ID: finished.ID, At: base, Release: true}, {ID: uuid.New(), At: base, Release: true},
				}}))
				halted.Follows = nil
				halted.Revision++
				e.same(name+": a halted one", e.get(halted.ID), halted)
				e.same(name+": a finished one", e.get(finished.ID), finished)
				e.live(name+": a halted one", halted.ID)
				e.ok(write(halted.ID, store.Change{}))
			}
		},
	},
	{
		name:    "ReleaseOfATakenKey",
		promise: "It is *KeyTakenError, and nothing is written, when somebody else holds that key when all is written.",
		run: func(e *env) {
			for _, write := range e.ends() {
				holder := e.create(held)
				y := e.create(held, func(y *store.Execution) { y.Follows = &holder.ID })
				x := e.create()
				was, wasY := e.stored(x.ID), e.stored(y.ID)
				created := e.execution()
				e.keyTaken(write(x.ID, store.Change{
					Audit: []store.AuditEntry{entry(x.ID, "act")}, Create: []*store.Execution{created},
					Wake: []store.Wake{{ID: y.ID, At: base, Release: true}},
				}), holder.Saga, "key", holder.ID)
				e.untouched("a write that releases in vain", x.ID, was)
				e.untouched("a write that releases in vain", y.ID, wasY)
				e.absent(created.ID)
				e.ok(write(holder.ID, store.Change{}))
			}
		},
	},
	{
		name:    "KeyChangesHands",
		promise: "Keys are looked at when all is written: an execution may end and its successor take over its key in one Change.",
		run: func(e *env) {
			for name, write := range e.ends() {
				x := e.create(held)
				y := e.execution(held, func(y *store.Execution) { y.Continues = &x.ID })
				e.ok(write(x.ID, store.Change{Create: []*store.Execution{y}}))
				e.live(name, y.ID)
				again := e.execution(held)
				was := e.stored(y.ID)
				_, err := e.s.WithLock(e.Context(), y.ID, func(y *store.Execution) (store.Change, error) {
					y.Tries++ // and does not end
					return store.Change{Create: []*store.Execution{again}}, nil
				})
				e.keyTaken(err, y.Saga, "key", y.ID)
				e.untouched("a write with a successor of who goes on", y.ID, was)
				e.absent(again.ID)
				e.ok(write(y.ID, store.Change{}))
			}
		},
	},
	{
		name:    "FixedFields",
		promise: "fn must not change Parent, Continues, Deadline or (but for an erasure) Tags: ErrInvalid.",
		run: func(e *env) {
			for _, x := range []*store.Execution{e.full(), e.empty()} {
				e.ok(e.s.Create(e.Context(), x))
				was := e.stored(x.ID)
				for name, change := range map[string]func(x, other *store.Execution){
					"Parent":    func(x, other *store.Execution) { x.Parent = other.Parent },
					"Continues": func(x, other *store.Execution) { x.Continues = other.Continues },
					"Deadline":  func(x, other *store.Execution) { x.Deadline = other.Deadline },
					"Tags":      func(x, other *store.Execution) { x.Tags = other.Tags },
				} {
					for _, other := range []*store.Execution{e.full(), e.empty()} {
						if diff(x.Parent, other.Parent) == "" && x.Parent == nil {
							continue // there is nothing to change
						}
						_, err := e.s.WithLock(e.Context(), x.ID, func(x *store.Execution) (store.Change, error) {
							change(x, other)
							return store.Change{}, nil
						})
						e.is(err, store.ErrInvalid)
						e.untouched("WithLock that changed "+name, x.ID, was)
					}
				}
			}
		},
	},
	{
		name:    "EraseEmptiesTags",
		promise: "Tags do not change, but an erasure empties them; nothing is found by them then.",
		run: func(e *env) {
			for name, write := range e.ways() {
				tags := map[string]string{"customer": e.tag, "b": awkward}
				x := e.create(func(x *store.Execution) { x.Tags = tags; x.Status = store.StatusCompleted; x.DueAt = nil })
				y := e.create(func(x *store.Execution) { x.Tags = tags })
				e.ok(write(x.ID, store.Change{Erase: true}))
				if got := e.get(x.ID).Tags; len(got) > 0 {
					e.Errorf("%s: %v is left", name, got)
				}
				e.same(name+": tags of another one", e.get(y.ID).Tags, tags)
				if q, ok := store.As[store.Querier](e.s); ok {
					for key, value := range tags {
						l := e.list(q, store.Filter{Tags: map[string]string{key: value}, IDs: []uuid.UUID{x.ID, y.ID}}, store.Page{})
						e.same(name+": found by tag "+key, ids(l.Executions), []uuid.UUID{y.ID})
					}
				}
			}
		},
	},
	{
		name:    "ClaimDueOfSagas",
		promise: "Sagas, if not nil, are those whose executions are wanted: others are passed over and stay due.",
		fresh:   true,
		run: func(e *env) {
			names := []string{e.tag + awkward, "it's", "a", "A"}
			of := map[string][]uuid.UUID{}
			was := map[uuid.UUID]record{}
			for i := range 3 {
				for j, saga := range names {
					x := e.create(func(x *store.Execution) { x.Saga, x.DueAt = saga, at(time.Duration(10*i+j)*time.Microsecond) })
					of[saga] = append(of[saga], x.ID)
					was[x.ID] = e.stored(x.ID)
				}
			}
			claim := func(what string, q store.DueQuery, want ...uuid.UUID) {
				e.Helper()
				q.Now, q.Hold = base.Add(time.Second), time.Hour
				list, err := e.s.ClaimDue(e.Context(), q)
				e.ok(err)
				e.same(what, ids(list), want)
			}
			claim("of no saga", store.DueQuery{Limit: 10, Sagas: []string{}})
			claim("of unknown sagas", store.DueQuery{Limit: 10, Sagas: []string{"", "unknown"}})
			claim("of one, in another partition", store.DueQuery{Limit: 10, Sagas: names, Partition: "elsewhere"})
			claim("of one, which is paused", store.DueQuery{Limit: 10, Sagas: names[:1], NotSagas: names[:1]})
			claim("of one", store.DueQuery{Limit: 10, Sagas: names[2:3], Partition: e.tag}, of["a"]...)
			claim("of two, at most three", store.DueQuery{Limit: 3, Sagas: names[:2]}, of[names[0]][0], of[names[1]][0], of[names[0]][1])
			claim("of one but paused", store.DueQuery{Limit: 10, Sagas: names[:2], NotSagas: names[1:2]}, of[names[0]][2])
			for _, id := range of["A"] {
				e.untouched("ClaimDue of other sagas", id, was[id])
			}
			claim("the rest", store.DueQuery{Limit: 10}, of[names[3]][0], of[names[1]][1], of[names[3]][1], of[names[1]][2], of[names[3]][2])
		},
	},
	{
		name:    "StalledAtAGate",
		promise: "Saga and Gate, if not empty, are what executions have to be of, and at what they have to wait: at a gate of this kind that is not open, with status waiting.",
		fresh:   true,
		run: func(e *env) {
			var all []*store.Execution
			kinds := []store.GateKind{store.GateTurn, store.GateSignal, store.GateTime}
			for i := range 48 {
				x := e.execution(func(x *store.Execution) {
					x.ID = uuid.New()
					x.Saga = []string{e.tag + awkward, "a", "A"}[i%3]
					x.ProgressAt = *at(time.Duration(i%4) * time.Microsecond)
					if i%7 > 0 {
						x.Status = store.StatusWaiting
						x.Gate = &store.Gate{Kind: kinds[i/3%3], Since: base, Open: i%5 == 0}
					}
				})
				if i%11 == 1 {
					x.Status = store.StatusHalted
				}
				e.ok(e.s.Create(e.Context(), x))
				all = append(all, x)
			}
			slices.SortFunc(all, func(a, b *store.Execution) int {
				if c := a.ProgressAt.Compare(b.ProgressAt); c != 0 {
					return c
				}
				return bytes.Compare(a.ID[:], b.ID[:])
			})
			check := func(what string) {
				e.Helper()
				for _, saga := range []string{"", "a", e.tag + awkward, "unknown"} {
					for _, kind := range []store.GateKind{"", store.GateTurn, store.GateSignal, store.GateChildren} {
						for _, limit := range []int{2, 100} {
							q := store.StalledQuery{ProgressBefore: base.Add(3 * time.Microsecond), Saga: saga, Gate: kind, Limit: limit}
							var want, got []*store.Execution
							for _, x := range all {
								if q.Selects(x) {
									want = append(want, x)
								}
							}
							for len(got) <= len(want) {
								page := e.stalled(q)
								got = append(got, page...)
								if len(page) < limit {
									break
								}
								last := page[limit-1]
								q.After = &store.StalledCursor{ProgressAt: last.ProgressAt, ID: last.ID}
							}
							e.same(what+", of "+saga+" at "+string(kind), got, want)
						}
					}
				}
			}
			check("as created")
			for i := range all[:20] {
				all[i] = e.update(all[i].ID, func(x *store.Execution) store.Change {
					switch {
					case x.Gate == nil:
						x.Status, x.Gate = store.StatusWaiting, &store.Gate{Kind: store.GateTurn, Since: base}
					case i%2 == 0:
						x.Gate.Open = !x.Gate.Open
					default:
						x.Status = store.StatusRunning
					}
					return store.Change{}
				})
			}
			check("after changes")
		},
	},
}

// ends returns the ways to write a Change with an execution that ends in it.
func (e *env) ends() map[string]func(id uuid.UUID, c store.Change) error {
	end := func(x *store.Execution) { x.Status, x.DueAt = store.StatusCancelled, nil }
	ways := map[string]func(id uuid.UUID, c store.Change) error{
		"WithLock": func(id uuid.UUID, c store.Change) error {
			_, err := e.s.WithLock(e.Context(), id, func(x *store.Execution) (store.Change, error) {
				end(x)
				return c, nil
			})
			return err
		},
	}
	if a, ok := store.As[store.Advancer](e.s); ok {
		ways["Advance"] = func(id uuid.UUID, c store.Change) error {
			x := e.get(id)
			end(x)
			return a.Advance(e.Context(), x, c)
		}
	}
	return ways
}
