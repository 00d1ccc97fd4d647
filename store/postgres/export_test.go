package postgres

import (
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// What the tests of plans and migrations look at.

func (s *Store) ClaimSQL(q store.DueQuery) (string, []any) { return s.sql.claimDue(&q) }
func (s *Store) RenewSQL() string                          { return s.sql.renew }
func (s *Store) DeleteSQL() string                         { return s.sql.delete }

func (s *Store) LiveSQL() string     { return s.sql.live }
func (s *Store) ChildrenSQL() string { return s.sql.children }
func (s *Store) HolderSQL() string   { return s.sql.holder }
func (s *Store) ConflictSQL() string { return s.sql.conflict }

func (s *Store) StalledSQL(q store.StalledQuery) string {
	return rows.StalledQuery(s.lists.NewSelect().Model(new([]rows.Execution)), s.tables, q).String()
}

func (s *Store) ForResourceSQL(r store.Resource, limit int) string {
	return rows.ForResourceQuery(s.lists.NewSelect().Model(new([]rows.Execution)), s.tables, r, limit).String()
}

// Version1SQL makes the schema of the first version.
func (s *Store) Version1SQL() string { return s.schemaSQL() + ";" + s.tableSQL() + ";" + s.render(1) }

func (s *Store) ListSQL(f store.Filter, p store.Page) string {
	return rows.ListQuery(s.lists, s.tables, &f, p).String()
}

func (s *Store) CountSQL(f store.Filter, by []store.Dimension, most int) string {
	return rows.CountQuery(s.lists, s.tables, &f, by, most).String()
}

func (s *Store) Connections() (pool, control, lists int32) {
	return s.pool.Stat().AcquiredConns(), s.control.Stat().AcquiredConns(), s.listing.Stat().AcquiredConns()
}

// Newest is the version of the schema that this library has.
var Newest = len(migrations)

var Fits = fits

// Pool returns the store's own connections.
func (s *Store) Pool() *pgxpool.Pool { return s.pool }

// StatisticsSQL returns what Sagas, Longest, Series, Latency and Failures ask.
func (s *Store) StatisticsSQL(f store.Filter, series store.SeriesQuery, attempts store.AttemptQuery) map[string]string {
	series.Filter, attempts.Filter = f, f
	return map[string]string{
		"sagas":    rows.SagasQuery(s.lists, s.tables).String(),
		"longest":  rows.LongestQuery(s.lists, s.tables, f, 10).String(),
		"starts":   rows.StartsQuery(s.lists, s.tables, &series).String(),
		"ends":     rows.EndsQuery(s.lists, s.tables, &series).String(),
		"latency":  rows.LatencyQuery(s.lists, s.tables, &attempts).String(),
		"failures": rows.FailuresQuery(s.lists, s.tables, &attempts).String(),
	}
}
