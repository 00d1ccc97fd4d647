package rows

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect"

	"github.com/leveret-go/leveret/store"
)

// ListLongest answers [store.Querier.Longest].
func ListLongest(ctx context.Context, db bun.IDB, t Tables, f store.Filter, limit int) ([]*store.Execution, error) {
	if err := store.ValidateLongest(&f, limit); err != nil {
		return nil, err
	}
	var list []Execution
	if err := LongestQuery(db, t, f, limit).Scan(ctx, &list); err != nil {
		return nil, err
	}
	return records(list)
}

// LongestQuery builds the query of [ListLongest]. As in [ListQuery] whole rows
// are read for those alone that are returned.
func LongestQuery(db bun.IDB, t Tables, f store.Filter, limit int) *bun.SelectQuery {
	f.Unfinished = true
	ids := union(db, partsOf(&f), func(part part) *bun.SelectQuery {
		q := db.NewSelect().TableExpr(t.Name(Executions) + " AS x").ColumnExpr("x.id").ColumnExpr("x.progress_at")
		return part.where(&f, t, q).OrderExpr("x.progress_at, x.id").Limit(int64(limit))
	})
	first := db.NewSelect().TableExpr("(?) AS u", ids).ColumnExpr("u.id").OrderExpr("u.progress_at, u.id").Limit(int64(limit))
	return db.NewSelect().Model((*Execution)(nil)).ModelTableExpr(t.Name(Executions)+" AS x").Where("x.id IN (?)", first).OrderExpr("x.progress_at, x.id")
}

// ListSagas answers [store.Querier.Sagas].
func ListSagas(ctx context.Context, db bun.IDB, t Tables) ([]string, error) {
	list := []string{}
	if err := SagasQuery(db, t).Scan(ctx, &list); err != nil {
		return nil, err
	}
	slices.Sort(list) // here, because the databases have different orders of text
	return list, nil
}

// SagasQuery builds the query of [ListSagas].
func SagasQuery(db bun.IDB, t Tables) *bun.SelectQuery {
	newest := db.NewSelect().TableExpr(t.Name(Executions) + " AS x").ColumnExpr("x.saga").OrderExpr("x.created_at DESC").Limit(store.MaxNamed)
	return db.NewSelect().Distinct().TableExpr("(?) AS s", newest).ColumnExpr("s.saga")
}

// CountSeries answers [store.Querier.Series].
func CountSeries(ctx context.Context, db bun.IDB, t Tables, q store.SeriesQuery) (*store.Series, error) {
	q, err := q.Filled()
	if err != nil {
		return nil, err
	}
	s := &store.Series{Buckets: q.Empty()}
	if len(s.Buckets) == 0 {
		return s, nil
	}
	// The one start or end too many is the oldest that was found.
	starts, err := readBuckets(ctx, StartsQuery(db, t, &q))
	if err != nil {
		return nil, err
	}
	if i, over := oldest(&q, starts); over {
		s.Cut(i)
		s.Buckets[i].Started--
	}
	for _, r := range starts {
		s.Buckets[r.index(&q)].Started += r.N
	}
	ends, err := readBuckets(ctx, EndsQuery(db, t, &q))
	if err != nil {
		return nil, err
	}
	i, over := oldest(&q, ends)
	for _, r := range ends {
		b := &s.Buckets[r.index(&q)]
		if over && r.index(&q) == i {
			r.N--
			over = false
			s.Cut(i)
		}
		if r.N > 0 {
			b.End(store.Status(r.Status), r.N)
		}
	}
	return s, nil
}

type bucketRow struct {
	At     Time
	Status string
	N      int64
}

func (r *bucketRow) index(q *store.SeriesQuery) int { return int(q.Index(r.At.Time)) }

func readBuckets(ctx context.Context, q *bun.SelectQuery) ([]bucketRow, error) {
	var list []bucketRow
	return list, q.Scan(ctx, &list)
}

// oldest returns the first bucket in which something was found, and whether
// more was found than is to be counted.
func oldest(q *store.SeriesQuery, list []bucketRow) (first int, over bool) {
	var total int64
	first = store.MaxBuckets
	for _, r := range list {
		total += r.N
		first = min(first, r.index(q))
	}
	return first, total > int64(q.Most)
}

// StartsQuery and [EndsQuery] build the queries of [CountSeries], which count
// one start or end more than Most, the newest ones. Their columns are those of
// a bucketRow.
func StartsQuery(db bun.IDB, t Tables, q *store.SeriesQuery) *bun.SelectQuery {
	starts := db.NewSelect().TableExpr(t.Name(Executions) + " AS x").ColumnExpr("x.created_at AS moment").ColumnExpr("'' AS status")
	starts = partOf(&q.Filter).where(&q.Filter, t, starts)
	starts = within(starts, "x.created_at", q.Range).OrderExpr("x.created_at DESC").Limit(int64(q.Most) + 1)
	return buckets(db, q, starts)
}

// EndsQuery: see [StartsQuery]. Each status is found by the index for itself.
func EndsQuery(db bun.IDB, t Tables, q *store.SeriesQuery) *bun.SelectQuery {
	parts := []part{{statuses: []store.Status{}}}
	for _, s := range statuses(&q.Filter) {
		if s.Finished() {
			parts = append(parts, part{statuses: []store.Status{s}})
		}
	}
	ends := union(db, parts, func(p part) *bun.SelectQuery {
		ends := db.NewSelect().TableExpr(t.Name(Executions) + " AS x").ColumnExpr("x.finished_at AS moment").ColumnExpr("x.status")
		ends = within(p.where(&q.Filter, t, ends).Where("x.finished_at IS NOT NULL"), "x.finished_at", q.Range)
		return ends.OrderExpr("x.finished_at DESC").Limit(int64(q.Most) + 1)
	})
	return buckets(db, q, db.NewSelect().TableExpr("(?) AS e", ends).ColumnExpr("e.*").OrderExpr("e.moment DESC").Limit(int64(q.Most)+1))
}

func buckets(db bun.IDB, q *store.SeriesQuery, moments *bun.SelectQuery) *bun.SelectQuery {
	start, width := NewTime(q.Start()), q.Bucket.Microseconds()
	out := db.NewSelect().TableExpr("(?) AS m", moments)
	if db.Dialect().Name() == dialect.PG {
		out = out.ColumnExpr("date_bin(?::interval, m.moment, ?::timestamptz) AS at", fmt.Sprintf("%d microseconds", width), start)
	} else {
		out = out.ColumnExpr("? + ((m.moment - ?) / ?) * ? AS at", start, start, width, width)
	}
	return out.ColumnExpr("m.status").ColumnExpr("count(*) AS n").GroupExpr("1, 2")
}

// partOf returns what f selects as one part.
func partOf(f *store.Filter) part {
	if wanted := statuses(f); len(wanted) < len(store.Statuses()) {
		return part{statuses: wanted}
	}
	return part{}
}

// newest selects the newest attempts of q and one more, with the saga of their
// executions. These are looked up one by one: PostgreSQL would rather join with
// the whole table.
func newest(db bun.IDB, t Tables, q *store.AttemptQuery, which string, args ...any) *bun.SelectQuery {
	name := db.NewSelect().TableExpr(t.Name(Executions) + " AS x").ColumnExpr("x.saga").Where("x.id = a.execution")
	name = partOf(&q.Filter).where(&q.Filter, t, name)
	a := db.NewSelect().TableExpr(t.Name(Attempts)+" AS a").ColumnExpr("a.*").ColumnExpr("(?) AS saga", name).Where(which, args...)
	a = within(a, "a.finished_at", q.Finished).OrderExpr("a.finished_at DESC")
	if !q.Filter.IsZero() {
		a = db.NewSelect().TableExpr("(?) AS a", fenced(a)).ColumnExpr("a.*").Where("a.saga IS NOT NULL").OrderExpr("a.finished_at DESC")
	}
	return a.Limit(int64(q.Most) + 1)
}

// MeasureLatency answers [store.Querier.Latency].
func MeasureLatency(ctx context.Context, db bun.IDB, t Tables, q store.AttemptQuery) (*store.Latencies, error) {
	q, err := q.Filled()
	if err != nil {
		return nil, err
	}
	var list []struct {
		Saga, Step, Direction          string
		N, P50, P95, P99, Worst, Total int64
	}
	if err := LatencyQuery(db, t, &q).Scan(ctx, &list); err != nil {
		return nil, err
	}
	out := &store.Latencies{Groups: []store.Latency{}}
	micros := func(n int64) time.Duration { return max(0, time.Duration(n)*time.Microsecond) }
	for _, r := range list {
		out.Truncated = r.Total > int64(q.Most)
		out.Groups = append(out.Groups, store.Latency{
			Saga: r.Saga, Step: r.Step, Direction: store.Direction(r.Direction), N: r.N,
			P50: micros(r.P50), P95: micros(r.P95), P99: micros(r.P99), Max: micros(r.Worst),
		})
	}
	out.Sort()
	return out, nil
}

// LatencyQuery builds the query of [MeasureLatency]. The ranks are those of
// [store.Rank].
func LatencyQuery(db bun.IDB, t Tables, q *store.AttemptQuery) *bun.SelectQuery {
	took := "a.finished_at - a.started_at"
	if db.Dialect().Name() == dialect.PG {
		took = "(extract(epoch FROM a.finished_at - a.started_at) * 1000000)::bigint"
	}
	results := slices.DeleteFunc(store.AttemptStatuses(), func(s store.AttemptStatus) bool { return !s.HasResult() })
	looked := newest(db, t, q, "a.status IN (?)", bun.List(results))
	counted := db.NewSelect().TableExpr("looked AS a").ColumnExpr("a.saga, a.step, a.direction").ColumnExpr("? AS took", bun.Safe(took)).
		OrderExpr("a.finished_at DESC").Limit(int64(q.Most))
	ranked := db.NewSelect().TableExpr("counted AS c").ColumnExpr("c.*").
		ColumnExpr("row_number() OVER (PARTITION BY c.saga, c.step, c.direction ORDER BY c.took) AS place").
		ColumnExpr("count(*) OVER (PARTITION BY c.saga, c.step, c.direction) AS size")
	out := db.NewSelect().With("looked", looked).With("counted", counted).TableExpr("(?) AS r", ranked).
		ColumnExpr("r.saga, r.step, r.direction").ColumnExpr("count(*) AS n")
	for _, p := range []int64{50, 95, 99} {
		out = out.ColumnExpr("min(CASE WHEN r.place >= (r.size * ? + 99) / 100 THEN r.took END) AS p?", p, p)
	}
	return out.ColumnExpr("max(r.took) AS worst").ColumnExpr("(SELECT count(*) FROM looked) AS total").GroupExpr("r.saga, r.step, r.direction")
}

// SumFailures answers [store.Querier.Failures].
func SumFailures(ctx context.Context, db bun.IDB, t Tables, q store.AttemptQuery) (*store.Failures, error) {
	q, err := q.Filled()
	if err != nil {
		return nil, err
	}
	var list []struct {
		Class, Saga, Step, Direction, Message string
		N, Executions, Total                  int64
		Last                                  Time
		Sample                                uuid.UUID
	}
	if err := FailuresQuery(db, t, &q).Scan(ctx, &list); err != nil {
		return nil, err
	}
	out := &store.Failures{Groups: []store.FailureGroup{}}
	for _, r := range list {
		out.Truncated = r.Total > int64(q.Most)
		out.Groups = append(out.Groups, store.FailureGroup{
			Class: r.Class, Saga: r.Saga, Step: r.Step, Direction: store.Direction(r.Direction),
			N: r.N, Executions: r.Executions, Last: r.Last.Time, Sample: r.Sample, Message: r.Message,
		})
	}
	out.Sort()
	return out, nil
}

// FailuresQuery builds the query of [SumFailures].
func FailuresQuery(db bun.IDB, t Tables, q *store.AttemptQuery) *bun.SelectQuery {
	const group = "c.failure_class, c.saga, c.step, c.direction"
	looked := newest(db, t, q, "a.failure_class IS NOT NULL")
	counted := db.NewSelect().TableExpr("looked AS a").ColumnExpr("a.*").OrderExpr("a.finished_at DESC").Limit(int64(q.Most))
	last := db.NewSelect().TableExpr("counted AS c").ColumnExpr(group).
		ColumnExpr("c.finished_at, c.execution, c.failure_message").
		ColumnExpr("row_number() OVER (PARTITION BY " + group + " ORDER BY c.finished_at DESC, c.execution DESC) AS place")
	sums := db.NewSelect().TableExpr("counted AS c").ColumnExpr(group).ColumnExpr("count(*) AS n").
		ColumnExpr("count(DISTINCT c.execution) AS executions").GroupExpr(group)
	return db.NewSelect().With("looked", looked).With("counted", counted).TableExpr("(?) AS r", last).
		Join("JOIN (?) AS s ON s.failure_class = r.failure_class AND s.saga = r.saga AND s.step = r.step AND s.direction = r.direction", sums).
		Where("r.place = 1").
		ColumnExpr("r.failure_class AS class, r.saga, r.step, r.direction, s.n, s.executions").
		ColumnExpr("r.finished_at AS last, r.execution AS sample, coalesce(r.failure_message, '') AS message").
		ColumnExpr("(SELECT count(*) FROM looked) AS total")
}
