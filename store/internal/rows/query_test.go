package rows

import (
	"database/sql"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/leveret-go/leveret/store"
)

func TestFiltersAreSplitByIndex(t *testing.T) {
	for name, c := range map[string]struct {
		filter store.Filter
		want   []part
	}{
		"all":                    {store.Filter{}, []part{{}}},
		"of a saga":              {store.Filter{Sagas: []string{"s"}}, []part{{}}},
		"unfinished":             {store.Filter{Unfinished: true}, []part{{Unfinished, store.Statuses()[:4]}}},
		"failed":                 {store.Filter{Statuses: []store.Status{store.StatusFailed}}, []part{{Unsuccessful, []store.Status{store.StatusFailed}}}},
		"completed":              {store.Filter{Statuses: []store.Status{store.StatusCompleted}}, []part{{"", []store.Status{store.StatusCompleted}}}},
		"none that there can be": {store.Filter{Statuses: []store.Status{store.StatusFailed}, Unfinished: true}, []part{{"", []store.Status{}}}},
		"halted and failed": {
			store.Filter{Attention: []store.Attention{store.AttentionFailed, store.AttentionHalted}},
			[]part{{Unfinished, []store.Status{store.StatusHalted}}, {Unsuccessful, []store.Status{store.StatusFailed, store.StatusCompensationFailed}}},
		},
		"a range of finished": {
			store.Filter{Unfinished: true, Finished: store.Range{To: at(1)}}, []part{{"", store.Statuses()[:4]}},
		},
		"ids": {store.Filter{IDs: []uuid.UUID{uuid.Max}, Unfinished: true}, []part{{"", store.Statuses()[:4]}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := partsOf(&c.filter); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// No execution of another status may be in need of attention.
func TestAttentionNamesAllStatuses(t *testing.T) {
	for _, a := range store.Attentions {
		for _, s := range store.Statuses() {
			long := at(1)
			x := &store.Execution{Status: s, DueAt: &long, Ledger: []store.LedgerEntry{{Status: store.StepInDoubt}}}
			f := store.Filter{Attention: []store.Attention{a}, At: at(10_000_000)}
			if got, want := len(statuses(&store.Filter{Attention: f.Attention, Statuses: []store.Status{s}})) == 1, f.Matches(x); got != want {
				t.Errorf("%s, %s: got %t, want %t", a, s, got, want)
			}
		}
	}
}

func TestQueriesAreWrittenInEachDialect(t *testing.T) {
	tables := Tables{Schema: "sagas", Prefix: "p_"}
	erased := true
	f := &store.Filter{
		IDs: []uuid.UUID{uuid.Max}, Sagas: []string{"it's ?0", "b"}, Partitions: []string{`\`}, ErrorClasses: []string{""},
		Resource: store.Resource{Type: "o"}, Finished: store.Range{From: odd(-1)}, Erased: &erased,
		Attention: []store.Attention{store.AttentionStalled, store.AttentionInDoubt}, StalledAfter: 10 * 365 * 24 * time.Hour,
	}
	f.At = time.Date(2, 1, 1, 0, 0, 0, 0, time.UTC)
	common := []string{
		`"sagas"."p_executions" AS x`, `x.id IN ('ffffffff-ffff-ffff-ffff-ffffffffffff')`, `x.saga IN ('it''s ?0', 'b')`,
		`x."partition" IN ('\')`, `coalesce(x.failure_class, '') IN ('')`, `x.resource_type = 'o'`, `x.erased_at IS NOT NULL`,
		`LIKE '%"status":"in_doubt"%'`,
	}
	for name, c := range map[string]struct {
		dialect schema.Dialect
		want    []string
	}{
		"sqlite":   {sqlitedialect.New(), []string{`x.finished_at >= -1`, `x.progress_at < -62135596800000000`}},
		"postgres": {pgdialect.New(), []string{`x.finished_at >= '1969-12-31 23:59:59.999999+00:00'`, `x.progress_at < '0001-01-01 00:00:00`}},
	} {
		t.Run(name, func(t *testing.T) {
			db := bun.NewDB(new(sql.DB), c.dialect)
			for _, q := range []string{
				ListQuery(db, tables, f, store.Page{Limit: 3, After: uuid.Max}).String(),
				CountQuery(db, tables, f, store.Dimensions, 3).String(),
			} {
				for _, w := range append(common, c.want...) {
					if !strings.Contains(q, w) {
						t.Errorf("%s\nlacks %s", q, w)
					}
				}
				if got := strings.Count(q, "LIMIT 4"); got != 2 {
					t.Errorf("%s\nhas the limit %d times", q, got)
				}
			}
		})
	}
}

func TestOneTooManyIsNotCounted(t *testing.T) {
	group := func(n int64, value string) store.CountGroup { return store.CountGroup{Values: []string{value}, N: n} }
	for name, c := range map[string]struct {
		most       int64
		have, want []store.CountGroup
		truncated  bool
	}{
		"not too many": {5, []store.CountGroup{group(1, "b"), group(3, "c"), group(1, "a")}, []store.CountGroup{group(3, "c"), group(1, "a"), group(1, "b")}, false},
		"too many":     {4, []store.CountGroup{group(2, "b"), group(3, "c")}, []store.CountGroup{group(2, "b"), group(2, "c")}, true},
		"a group less": {1, []store.CountGroup{group(1, "b"), group(1, "a")}, []store.CountGroup{group(1, "b")}, true},
		"none":         {1, nil, nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			got := store.Counts{Groups: c.have}
			cut(&got, c.most)
			if want := (store.Counts{Groups: c.want, Truncated: c.truncated}); !reflect.DeepEqual(got, want) {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}
