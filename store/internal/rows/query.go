package rows

import (
	"cmp"
	"context"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"

	"github.com/leveret-go/leveret/store"
)

// ListExecutions answers [store.Querier.List].
func ListExecutions(ctx context.Context, db bun.IDB, t Tables, f store.Filter, p store.Page) (*store.List, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	p, err := p.Filled()
	if err != nil {
		return nil, err
	}
	var rows []Execution
	if err := ListQuery(db, t, &f, p).Scan(ctx, &rows); err != nil {
		return nil, err
	}
	var next *uuid.UUID
	if len(rows) > p.Limit {
		rows = rows[:p.Limit]
		next = &rows[p.Limit-1].ID
	}
	list, err := records(rows)
	if err != nil {
		return nil, err
	}
	return &store.List{Executions: list, Next: next}, nil
}

// ListQuery builds the query of [ListExecutions], which asks for one execution
// more than the page has. The ids are found first, each part of the filter
// with its own index, so that whole rows are read for the page alone.
func ListQuery(db bun.IDB, t Tables, f *store.Filter, p store.Page) *bun.SelectQuery {
	page := func(q *bun.SelectQuery) *bun.SelectQuery {
		return q.OrderExpr("x.id DESC").Limit(int64(p.Limit) + 1)
	}
	ids := union(db, partsOf(f), func(part part) *bun.SelectQuery {
		q := part.where(f, t, db.NewSelect().TableExpr(t.Name(Executions)+" AS x").ColumnExpr("x.id"))
		if p.After != uuid.Nil {
			q = q.Where("x.id < ?", p.After)
		}
		if isNarrow(f) {
			q = db.NewSelect().TableExpr("(?) AS x", fenced(q)).ColumnExpr("x.id")
		}
		return page(q)
	})
	return page(db.NewSelect().Model((*Execution)(nil)).ModelTableExpr(t.Name(Executions)+" AS x").Where("x.id IN (?)", ids))
}

// CountExecutions answers [store.Querier.Count].
func CountExecutions(ctx context.Context, db bun.IDB, t Tables, f store.Filter, by []store.Dimension, most int) (*store.Counts, error) {
	if err := f.Validate(); err != nil {
		return nil, err
	}
	most, err := store.ValidateCount(by, most)
	if err != nil {
		return nil, err
	}
	found, err := CountQuery(db, t, &f, by, most).Rows(ctx)
	if err != nil {
		return nil, err
	}
	defer found.Close()
	counts := &store.Counts{Groups: []store.CountGroup{}}
	for found.Next() {
		g := store.CountGroup{Values: make([]string, len(by))}
		dest := make([]any, 0, len(by)+1)
		for i := range g.Values {
			dest = append(dest, &g.Values[i])
		}
		if err := found.Scan(append(dest, &g.N)...); err != nil {
			return nil, err
		}
		counts.Groups = append(counts.Groups, g)
	}
	if err := found.Err(); err != nil {
		return nil, err
	}
	cut(counts, int64(most))
	return counts, nil
}

// CountQuery builds the query of [CountExecutions], which counts one execution
// more than most. Its columns are the dimensions and the number.
func CountQuery(db bun.IDB, t Tables, f *store.Filter, by []store.Dimension, most int) *bun.SelectQuery {
	limit := int64(most) + 1
	counted := union(db, partsOf(f), func(part part) *bun.SelectQuery {
		q := db.NewSelect().TableExpr(t.Name(Executions) + " AS x")
		if len(by) == 0 {
			q = q.ColumnExpr("1 AS one")
		}
		for i, d := range by {
			q = q.ColumnExpr("? AS ?", bun.Safe(dimensions[d]), bun.Safe(group(i)))
		}
		q = part.where(f, t, q)
		if isNarrow(f) {
			q = db.NewSelect().TableExpr("(?) AS x", fenced(q)).ColumnExpr("*")
		}
		return q.Limit(limit)
	})
	q := db.NewSelect().TableExpr("(?) AS c", db.NewSelect().TableExpr("(?) AS u", counted).Limit(limit))
	for i := range by {
		q = q.ColumnExpr(group(i)).GroupExpr(group(i))
	}
	return q.ColumnExpr("count(*)")
}

var dimensions = map[store.Dimension]string{
	store.BySaga: `x.saga`, store.ByStatus: `x.status`, store.ByStep: `x.step`, store.ByPartition: `x."partition"`,
	store.ByDirection: `x.direction`, store.ByErrorClass: errorClass,
}

const errorClass = `coalesce(x.failure_class, '')`

func group(i int) string { return "g" + strconv.Itoa(i) }

// cut takes the execution that is one too many from the largest group, and
// orders the groups: here, because the databases have different orders of text.
func cut(c *store.Counts, most int64) {
	order := func(a, b store.CountGroup) int {
		return cmp.Or(cmp.Compare(b.N, a.N), slices.Compare(a.Values, b.Values))
	}
	slices.SortFunc(c.Groups, order)
	var total int64
	for _, g := range c.Groups {
		total += g.N
	}
	if total <= most {
		return
	}
	c.Truncated = true
	if c.Groups[0].N--; c.Groups[0].N == 0 {
		c.Groups = c.Groups[1:]
	}
	slices.SortFunc(c.Groups, order)
}

// union joins the parts' queries, each of which keeps its own order and limit.
func union(db bun.IDB, parts []part, query func(part) *bun.SelectQuery) *bun.RawQuery {
	var text strings.Builder
	args := make([]any, len(parts))
	for i, p := range parts {
		if i > 0 {
			text.WriteString(" UNION ALL ")
		}
		text.WriteString("SELECT * FROM (?) AS p" + strconv.Itoa(i))
		args[i] = query(p)
	}
	return db.NewRaw(text.String(), args...)
}

// isNarrow reports whether an index finds what f selects, so that it is
// gathered before it is put in order.
func isNarrow(f *store.Filter) bool {
	return f.Finished != (store.Range{}) || f.Failed != nil || f.ResourceLike != "" || !f.Created.From.IsZero() && !f.Created.To.IsZero()
}

// fenced hides the order and the limit around a query from PostgreSQL. It takes
// what a filter selects to be spread evenly over the ids, and so would look for
// what finished long ago among the newest first, and pass over all of them.
// SQLite needs an OFFSET to have a LIMIT, and does not mind.
func fenced(q *bun.SelectQuery) schema.QueryWithArgs {
	return bun.SafeQuery("? LIMIT ? OFFSET 0", q, int64(math.MaxInt64))
}

// A part is what a filter selects among the executions of some statuses. The
// parts of a filter have no execution in common.
type part struct {
	index    string         // the predicate of a partial index, "" for none
	statuses []store.Status // nil: all
}

// partsOf splits a filter by the indexes that find its executions. Where there
// are statuses without one, the rows are walked by id, newest first.
func partsOf(f *store.Filter) []part {
	wanted := statuses(f)
	if f.Finished != (store.Range{}) {
		return []part{{statuses: wanted}} // named all: the index begins with them
	}
	if len(wanted) == len(store.Statuses()) {
		return []part{{}}
	}
	if len(f.IDs) > 0 || f.Resource.ID != "" || len(f.Keys) > 0 || len(f.Parents) > 0 || len(f.Tags) > 0 || f.Failed != nil || len(wanted) == 0 {
		return []part{{statuses: wanted}}
	}
	var unfinished, unsuccessful, completed part
	for _, s := range wanted {
		p := &unsuccessful
		switch {
		case !s.Finished():
			p = &unfinished
		case s == store.StatusCompleted:
			p = &completed
		}
		p.statuses = append(p.statuses, s)
	}
	unfinished.index, unsuccessful.index = Unfinished, Unsuccessful
	parts := []part{unfinished, unsuccessful, completed}
	return slices.DeleteFunc(parts, func(p part) bool { return len(p.statuses) == 0 })
}

// statuses returns those that an execution selected by f may have; not nil.
func statuses(f *store.Filter) []store.Status {
	attention := make(map[store.Status]bool)
	for _, a := range f.Attention {
		for _, s := range attentionStatuses(a) {
			attention[s] = true
		}
	}
	return slices.DeleteFunc(store.Statuses(), func(s store.Status) bool {
		return len(f.Statuses) > 0 && !slices.Contains(f.Statuses, s) || (f.Unfinished || f.StuckFor > 0) && s.Finished() ||
			len(f.Attention) > 0 && !attention[s]
	})
}

func attentionStatuses(a store.Attention) []store.Status {
	switch a {
	case store.AttentionHalted:
		return []store.Status{store.StatusHalted}
	case store.AttentionFailed:
		return []store.Status{store.StatusFailed, store.StatusCompensationFailed}
	case store.AttentionCompensationFailed:
		return []store.Status{store.StatusCompensationFailed}
	case store.AttentionInDoubt:
		return slices.DeleteFunc(store.Statuses(), func(s store.Status) bool { return !s.Finished() && s != store.StatusHalted })
	case store.AttentionStalled:
		return []store.Status{store.StatusRunning, store.StatusCompensating}
	case store.AttentionOverdue:
		return slices.DeleteFunc(store.Statuses(), store.Status.Finished)
	}
	return nil
}

// where restricts a query of executions AS x to the part.
func (p part) where(f *store.Filter, t Tables, q *bun.SelectQuery) *bun.SelectQuery {
	if p.index != "" {
		q = q.Where(p.index)
	}
	if p.statuses != nil {
		q = among(q, "x.status", p.statuses, true)
	}
	q = among(q, "x.id", f.IDs, false)
	q = among(q, "x.saga", f.Sagas, false)
	q = among(q, "x.step", f.Steps, false)
	q = among(q, `x."partition"`, f.Partitions, false)
	q = among(q, errorClass, f.ErrorClasses, false)
	q = among(q, "x.key", f.Keys, false)
	if len(f.Keys) > 0 && !slices.Contains(f.Keys, "") {
		q = q.Where("x.key <> ''") // what the index has
	}
	q = among(q, "x.parent", f.Parents, false)
	for _, name := range slices.Sorted(maps.Keys(f.Tags)) {
		q = q.Where("x.id IN (SELECT execution FROM ? WHERE name = ? AND value = ?)", bun.Safe(t.Name(Tags)), name, f.Tags[name])
	}
	if f.Resource.Type != "" {
		q = q.Where("x.resource_type = ?", f.Resource.Type)
	}
	if f.Resource.ID != "" {
		q = q.Where("x.resource_id = ?", f.Resource.ID)
	}
	if f.ResourceLike != "" {
		q = like(q, f.ResourceLike)
	}
	if f.StuckFor > 0 {
		q = q.Where("x.progress_at < ?", before(NewTime(f.At), f.StuckFor))
	}
	if f.Failed != nil {
		q = q.Where("x.id IN (?)", failed(q.NewSelect(), f.Failed, t))
	}
	q = within(q, "x.created_at", f.Created)
	q = within(q, "x.progress_at", f.Progress)
	if f.Finished != (store.Range{}) {
		q = within(q.Where("x.finished_at IS NOT NULL"), "x.finished_at", f.Finished)
	}
	switch {
	case f.Erased == nil:
	case *f.Erased:
		q = q.Where("x.erased_at IS NOT NULL")
	default:
		q = q.Where("x.erased_at IS NULL")
	}
	if len(f.Attention) == 0 {
		return q
	}
	return q.WhereGroup(" AND ", func(q *bun.SelectQuery) *bun.SelectQuery {
		for _, a := range f.Attention {
			q = attention(q, f, a)
		}
		return q
	})
}

// among requires one of the values; with none it does nothing, unless it must.
func among[T any](q *bun.SelectQuery, column string, values []T, must bool) *bun.SelectQuery {
	switch {
	case len(values) > 0:
		return q.Where("? IN (?)", bun.Safe(column), bun.List(values))
	case must:
		return q.Where("FALSE")
	}
	return q
}

// like looks for a part of the resource, in which ASCII letters have no case.
func like(q *bun.SelectQuery, part string) *bun.SelectQuery {
	lower := `lower(x.resource_type || '/' || x.resource_id)`
	if q.Dialect().Name() == dialect.PG {
		lower = resourceText
	}
	part = strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(store.ASCIILower(part))
	return q.Where(`? LIKE ? ESCAPE '\'`, bun.Safe(lower), "%"+part+"%")
}

// resourceText is what PostgreSQL looks through for a part of a resource. In
// the locale C lower changes the letters of ASCII, as SQLite's does.
const resourceText = `lower((x.resource_type || '/' || x.resource_id) COLLATE "C")`

// failed selects the executions that have such an attempt.
func failed(q *bun.SelectQuery, f *store.FailedAttempt, t Tables) *bun.SelectQuery {
	q = q.TableExpr(t.Name(Attempts) + " AS a").ColumnExpr("a.execution").Where("a.failure_class IS NOT NULL").Where("a.finished_at IS NOT NULL")
	if f.Class != "" {
		q = q.Where("a.failure_class = ?", f.Class)
	}
	if f.Step != "" {
		q = q.Where("a.step = ?", f.Step)
	}
	if f.Direction != "" {
		q = q.Where("a.direction = ?", f.Direction)
	}
	return within(q, "a.finished_at", f.Finished)
}

func within(q *bun.SelectQuery, column string, r store.Range) *bun.SelectQuery {
	if !r.From.IsZero() {
		q = q.Where("? >= ?", bun.Safe(column), NewTime(r.From))
	}
	if !r.To.IsZero() {
		q = q.Where("? < ?", bun.Safe(column), NewTime(r.To))
	}
	return q
}

// attention is the rule of [store.Filter.Matches] once more. In the ledger's
// JSON a quote inside of a name has a backslash before it.
func attention(q *bun.SelectQuery, f *store.Filter, a store.Attention) *bun.SelectQuery {
	at := NewTime(f.At)
	switch a {
	case store.AttentionInDoubt:
		return q.WhereOr(`x.status IN (?) AND CAST(x.ledger AS text) LIKE '%"status":"in_doubt"%'`, bun.List(attentionStatuses(a)))
	case store.AttentionStalled:
		return q.WhereOr(`x.status IN (?) AND x.progress_at < ? AND (x.attempt_number IS NULL OR x.attempt_lease_until <= ?)
	AND (x.wake_at IS NULL OR x.wake_at <= ?)`, bun.List(attentionStatuses(a)), before(at, f.StalledAfter), at, at)
	case store.AttentionOverdue:
		return q.WhereOr(`x.status IN (?) AND x.due_at < ?`, bun.List(attentionStatuses(a)), before(at, f.OverdueAfter))
	}
	return q.WhereOr("x.status IN (?)", bun.List(attentionStatuses(a)))
}

// before returns the time that is d before t, or the first one that a store
// keeps: the databases have no earlier ones, and nothing is before either.
func before(t Time, d time.Duration) Time {
	if b := NewTime(t.Add(-d)); b.Year() >= 1 {
		return b
	}
	return Time{}
}
