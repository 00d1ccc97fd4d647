package storetest

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

// The queries are asked of a population: executions with values that are
// equal only to somebody careless, and times just before, at and just after
// what a filter asks for.
const (
	populationSize = 300
	populationSeed = 20260304
	anHour         = time.Hour
)

var (
	somePlaces = []string{"order", "Order", "order ", "order_", "orderX", "ord%", "o'r\"d`er", awkward, "é", "e\u0301", "\\", "null"}
	someSteps  = []string{"pay", "", "Pay", "pay%", "p_y", "ship", awkward}
	someIDs    = []string{"", "4711", "47%", "4_11", "'", "4711 "}
	someTypes  = []string{"order", "", "Order", "o%"}
	someKeys   = []string{"k-1", "", "K-1", "k_1", "k%", awkward}
	someTags   = []string{"7", "7 ", "%", awkward, ""}
	parents    = []uuid.UUID{{1}, {2}, {0xff}}
	classes    = []string{"timeout", "", "Timeout", "time%", "timeou_", "'"}
	moments    = []time.Duration{
		-2 * anHour, -anHour - time.Microsecond, -anHour, -anHour + time.Microsecond,
		-time.Microsecond, 0, time.Microsecond, anHour,
	}
)

// A once keeps the population of a store.
type once struct {
	mu   sync.Mutex
	list []*store.Execution
}

// population returns what is in the store, newest first, having put it there
// when this is the first time that a case asks.
func (e *env) population() []*store.Execution {
	e.Helper()
	e.people.mu.Lock()
	defer e.people.mu.Unlock()
	if e.people.list == nil {
		e.people.list = e.populate(populationSize)
	}
	return e.people.list
}

// populate puts executions into the store and returns them, newest first.
func (e *env) populate(n int) []*store.Execution {
	e.Helper()
	r := rand.New(rand.NewPCG(populationSeed, populationSeed))
	var list []*store.Execution
	for i := range n {
		x := generated(r)
		if i%2 == 0 {
			e.ok(e.s.Create(e.Context(), x))
		} else { // it was another one once
			was := generated(r)
			was.ID, was.CreatedAt = x.ID, x.CreatedAt
			was.Parent, was.Continues, was.Deadline, was.Tags = x.Parent, x.Continues, x.Deadline, x.Tags
			e.ok(e.s.Create(e.Context(), was))
			e.update(x.ID, func(y *store.Execution) store.Change {
				x.Revision = y.Revision
				*y = *x
				return store.Change{}
			})
		}
		list = append(list, e.get(x.ID))
	}
	slices.SortFunc(list, newestFirst)
	return list
}

func newestFirst(a, b *store.Execution) int { return bytes.Compare(b.ID[:], a.ID[:]) }

// pick takes the first values of a list more often than the last ones.
func pick[T any](r *rand.Rand, list []T) T { return list[min(r.IntN(len(list)), r.IntN(len(list)))] }

func pickTime(r *rand.Rand) *time.Time { return at(moments[r.IntN(len(moments))]) }

// perhaps returns a time, or nil.
func perhaps(r *rand.Rand) *time.Time {
	if r.IntN(3) == 0 {
		return nil
	}
	return pickTime(r)
}

// generated returns an execution that is not stored yet.
func generated(r *rand.Rand) *store.Execution {
	var id uuid.UUID
	binary.BigEndian.PutUint64(id[:8], r.Uint64())
	binary.BigEndian.PutUint64(id[8:], r.Uint64())
	x := &store.Execution{
		ID: id, Saga: pick(r, somePlaces), Version: 1, Partition: pick(r, somePlaces),
		Resource: store.Resource{Type: pick(r, someTypes), ID: pick(r, someIDs)},
		Status:   store.Statuses()[r.IntN(len(store.Statuses()))], Direction: store.DirectionExecute,
		Step: pick(r, someSteps),
		Ledger: []store.LedgerEntry{
			{Name: "pay", InDoubt: store.InDoubtHalt, Status: store.StepDone},
			{Name: "in_doubt", InDoubt: store.InDoubtHalt, Status: store.StepPending},
		},
		State: []byte(`{"status": "in_doubt"}`),
		DueAt: perhaps(r), WakeAt: perhaps(r),
		CreatedAt: *pickTime(r), UpdatedAt: base, ProgressAt: *pickTime(r),
	}
	if r.IntN(3) == 0 {
		x.Ledger[r.IntN(2)].Status = store.StepInDoubt
	}
	if r.IntN(3) == 0 {
		x.Attempt = &store.OpenAttempt{Number: 1, Worker: "w1", StartedAt: base, LeaseUntil: *pickTime(r)}
	}
	if r.IntN(2) == 0 {
		x.Failure = &store.Failure{Class: pick(r, classes), Message: "timeout", Step: "pay"}
	}
	if x.Key = pick(r, someKeys); x.HoldsKey() {
		x.Follows = &uuid.UUID{9} // so that it holds none
	}
	if r.IntN(3) == 0 {
		x.Parent = &store.Parent{Execution: pick(r, parents), Step: "pay", Key: "k"}
	}
	if r.IntN(2) == 0 {
		x.Tags = map[string]string{"customer": pick(r, someTags)}
	}
	if r.IntN(3) == 0 {
		x.Tags = map[string]string{"customer": pick(r, someTags), "Customer": pick(r, someTags), "region": pick(r, someTags)}
	}
	if x.Status.Finished() == (r.IntN(10) > 0) { // as it should be, mostly
		x.FinishedAt = pickTime(r)
	}
	if r.IntN(4) == 0 {
		x.ErasedAt = pickTime(r)
	}
	return x
}

// A fragment sets one field of a filter.
type fragment struct {
	what string
	set  func(f *store.Filter)
}

// fragments returns, per field of a filter, ways to set it.
func fragments(all []*store.Execution) [][]fragment {
	texts := func(field string, values, more []string, set func(*store.Filter, []string)) (list []fragment) {
		add := func(what string, values ...string) {
			list = append(list, fragment{field + what, func(f *store.Filter) { set(f, values) }})
		}
		for _, s := range values {
			add(" "+cut(s), s)
		}
		for _, s := range more {
			add(" that none has: "+s, s)
		}
		add(" of two", values[0], values[1])
		add(" of three, one twice, one unknown", values[2], "unknown", values[2])
		add(" of all", values...)
		return list
	}
	attention := func(what string, list ...store.Attention) fragment {
		return fragment{"attention " + what, func(f *store.Filter) {
			f.Attention, f.At, f.StalledAfter, f.OverdueAfter = list, base, anHour, anHour
		}}
	}
	ranges := func(field string, set func(*store.Filter, store.Range)) (list []fragment) {
		for what, r := range map[string]store.Range{
			" from": {From: base}, " to": {To: base}, " from the hour to": {From: *at(-anHour), To: base},
			" in one microsecond": {From: base, To: *at(time.Microsecond)}, " in no time": {From: base, To: base},
			" backwards": {From: base, To: *at(-anHour)}, " with fine digits": {From: base.Add(999), To: *at(time.Microsecond + 999)},
			" of all times": {From: time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC), To: time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)},
			" elsewhere":    {From: base.In(time.FixedZone("", 5*3600))},
		} {
			list = append(list, fragment{field + what, func(f *store.Filter) { set(f, r) }})
		}
		slices.SortFunc(list, func(a, b fragment) int { return bytes.Compare([]byte(a.what), []byte(b.what)) })
		return list
	}
	var allIDs []uuid.UUID
	for _, x := range all {
		allIDs = append(allIDs, x.ID)
	}
	someOf := func(what string, ids ...uuid.UUID) fragment {
		return fragment{"ids: " + what, func(f *store.Filter) { f.IDs = ids }}
	}
	var statuses []fragment
	for _, s := range store.Statuses() {
		statuses = append(statuses, fragment{"status " + string(s), func(f *store.Filter) { f.Statuses = []store.Status{s} }})
	}
	statuses = append(statuses, fragment{"one of two statuses", func(f *store.Filter) {
		f.Statuses = []store.Status{store.StatusWaiting, store.StatusFailed, store.StatusWaiting}
	}}, fragment{"one of all statuses", func(f *store.Filter) { f.Statuses = store.Statuses() }})
	var resources []fragment
	for _, r := range []store.Resource{
		{Type: "order"}, {ID: "4711"}, {Type: "order", ID: "4711"}, {Type: "Order"}, {Type: "o%"}, {ID: "47%"},
		{ID: "4_11"}, {Type: "o%", ID: "'"}, {ID: "4711 "}, {Type: "unknown"},
	} {
		resources = append(resources, fragment{"resource " + r.Type + "/" + r.ID, func(f *store.Filter) { f.Resource = r }})
	}
	attentions := []fragment{
		attention("of two", store.AttentionFailed, store.AttentionOverdue),
		attention("of any kind", store.Attentions...),
		attention("of what is stalled or in doubt", store.AttentionStalled, store.AttentionInDoubt),
		{"attention stalled at a time with fine digits", func(f *store.Filter) {
			f.Attention, f.At, f.StalledAfter = []store.Attention{store.AttentionStalled}, base.Add(999), anHour-500
		}},
		{"attention overdue for no time", func(f *store.Filter) {
			f.Attention, f.At = []store.Attention{store.AttentionOverdue}, base
		}},
		{"attention stalled or overdue for centuries", func(f *store.Filter) {
			f.Attention, f.At = []store.Attention{store.AttentionStalled, store.AttentionOverdue}, base
			f.StalledAfter, f.OverdueAfter = 1<<63-1, 1<<63-1
		}},
	}
	for _, a := range store.Attentions {
		attentions = append(attentions, attention(string(a), a))
	}
	var likes, stuck []fragment
	for _, part := range []string{"47", "er/4711", "ORDER/", "%/", "4_1", "R", "/", "unknown", "\\", "'"} {
		likes = append(likes, fragment{"a part of the resource " + part, func(f *store.Filter) {
			f.ResourceLike = part
			if f.Created.From.IsZero() {
				f.Created.From = time.Date(1, 1, 1, 0, 0, 0, 1000, time.UTC)
			}
		}})
	}
	for _, d := range []time.Duration{1, time.Microsecond, anHour, anHour + time.Microsecond, 1<<63 - 1} {
		stuck = append(stuck, fragment{"stuck for " + d.String(), func(f *store.Filter) { f.StuckFor, f.At = d, base }})
	}
	yes, no := true, false
	return [][]fragment{
		{
			someOf("one", all[3].ID), someOf("none there is", uuid.UUID{1}), someOf("all", allIDs...),
			someOf("three, one twice, one unknown", all[7].ID, all[0].ID, uuid.UUID{1}, all[7].ID),
			someOf("every other half", allIDs[len(allIDs)/2:]...),
		},
		texts("saga", somePlaces, []string{"ord", "%", "_rder", "ORDER", ""}, func(f *store.Filter, v []string) { f.Sagas = v }),
		statuses,
		texts("step", someSteps, []string{"pa", "%", "PAY"}, func(f *store.Filter, v []string) { f.Steps = v }),
		texts("partition", somePlaces, []string{"ord", "%", "_rder", "ORDER", ""}, func(f *store.Filter, v []string) { f.Partitions = v }),
		texts("error class", classes, []string{"time", "%", "TIMEOUT"}, func(f *store.Filter, v []string) { f.ErrorClasses = v }),
		texts("key", someKeys, []string{"k", "%", "k-2"}, func(f *store.Filter, v []string) { f.Keys = v }),
		{
			{"children of one", func(f *store.Filter) { f.Parents = parents[:1] }},
			{"children of some", func(f *store.Filter) { f.Parents = append([]uuid.UUID{{3}, {1}}, parents...) }},
			{"children of an unknown one", func(f *store.Filter) { f.Parents = []uuid.UUID{{3}} }},
		},
		{
			tagged("customer", "7"), tagged("customer", "7 "), tagged("customer", ""), tagged("customer", "8"), tagged("Customer", "7"),
			tagged("customer", awkward), tagged("region", "%"), tagged("customer", "7", "region", "7"), tagged("customer", "%", "Customer", "7"),
		},
		resources,
		attentions,
		ranges("created", func(f *store.Filter, r store.Range) { f.Created = r }),
		likes,
		stuck,
		ranges("progress", func(f *store.Filter, r store.Range) { f.Progress = r }),
		ranges("finished", func(f *store.Filter, r store.Range) { f.Finished = r }),
		{{"unfinished", func(f *store.Filter) { f.Unfinished = true }}},
		{{"erased", func(f *store.Filter) { f.Erased = &yes }}, {"not erased", func(f *store.Filter) { f.Erased = &no }}},
	}
}

func tagged(pairs ...string) fragment {
	tags := map[string]string{}
	what := "tagged"
	for i := 0; i < len(pairs); i += 2 {
		tags[pairs[i]] = pairs[i+1]
		what += " " + pairs[i] + "=" + cut(pairs[i+1])
	}
	return fragment{what, func(f *store.Filter) { f.Tags = tags }}
}

// combined returns a filter that has these fragments.
func combined(list ...fragment) (what string, f store.Filter) {
	for i, part := range list {
		if i > 0 {
			what += " and "
		}
		what += part.what
		part.set(&f)
	}
	return what, f
}

// matching returns what a filter selects: the rule itself.
func matching(f store.Filter, all []*store.Execution) (list []*store.Execution) {
	for _, x := range all {
		if f.Matches(x) {
			list = append(list, x)
		}
	}
	return list
}

// fieldsTogether calls try with filters in which each n of the fields are set,
// a few for each choice: where it can be ones that select something.
func fieldsTogether(all []*store.Execution, n, each int, try func(what string, f store.Filter)) {
	r := rand.New(rand.NewPCG(populationSeed, uint64(n)))
	by := fragments(all)
	var choose func(from int, fields []int)
	choose = func(from int, fields []int) {
		if len(fields) == n {
			for range each {
				var what string
				var f store.Filter
				for range 20 {
					var parts []fragment
					for _, i := range fields {
						parts = append(parts, by[i][r.IntN(len(by[i]))])
					}
					what, f = combined(parts...)
					if slices.ContainsFunc(all, f.Matches) {
						break
					}
				}
				try(what, f)
			}
			return
		}
		for i := from; i < len(by); i++ {
			choose(i+1, append(slices.Clip(fields), i))
		}
	}
	choose(0, nil)
}
