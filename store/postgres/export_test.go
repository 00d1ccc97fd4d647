package postgres

import (
	"fmt"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// What the tests of plans and migrations look at.

func (s *Store) ClaimSQL(limit int, partition bool) string {
	if partition {
		return fmt.Sprintf(s.sql.claimIn, limit)
	}
	return fmt.Sprintf(s.sql.claim, limit)
}

func (s *Store) HolderSQL() string   { return s.sql.holder }
func (s *Store) ConflictSQL() string { return s.sql.conflict }

func (s *Store) StalledSQL(q store.StalledQuery) string {
	return rows.StalledQuery(s.lists.NewSelect().Model(new([]rows.Execution)), s.tables, q).String()
}

func (s *Store) ForResourceSQL(r store.Resource, limit int) string {
	return rows.ForResourceQuery(s.lists.NewSelect().Model(new([]rows.Execution)), s.tables, r, limit).String()
}

func (s *Store) Connections() (pool, control, lists int32) {
	return s.pool.Stat().AcquiredConns(), s.control.Stat().AcquiredConns(), s.listing.Stat().AcquiredConns()
}

var Fits = fits
