package rows

import (
	"context"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/leveret-go/leveret/store"
)

// The reads below are single statements, so that each sees one moment, and
// read all rows before they return. Over pgx, db must use an exec mode that
// does not prepare: bun writes arguments into the text.

// ListAttempts answers [store.Store.Attempts].
func ListAttempts(ctx context.Context, db bun.IDB, t Tables, id uuid.UUID) ([]store.Attempt, error) {
	var rows []Attempt
	if err := attemptsQuery(db, t, id).Scan(ctx, &rows); err != nil {
		return nil, err
	}
	out := make([]store.Attempt, len(rows))
	for i := range rows {
		out[i] = rows[i].Store()
	}
	return out, nil
}

func attemptsQuery(db bun.IDB, t Tables, id uuid.UUID) *bun.RawQuery {
	columns := List(AttemptColumns)
	return db.NewRaw(`SELECT `+columns+`, seq FROM ? WHERE execution = ?
UNION ALL
SELECT id, step, direction, epoch, attempt_number, attempt_worker, 'running', attempt_started_at, NULL,
	attempt_lease_until, NULL, NULL, NULL, '', '', FALSE, '', ? FROM ? WHERE id = ? AND attempt_number IS NOT NULL
ORDER BY seq`,
		bun.Safe(t.Name(Attempts)), id, int64(math.MaxInt64), bun.Safe(t.Name(Executions)), id)
}

// ListAudit answers [store.Store.Audit].
func ListAudit(ctx context.Context, db bun.IDB, t Tables, id uuid.UUID) ([]store.AuditEntry, error) {
	var rows []AuditEntry
	err := db.NewSelect().Model(&rows).ModelTableExpr(t.Name(Audit)+" AS d").
		Where("d.execution = ?", id).OrderExpr("d.seq").Scan(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]store.AuditEntry, len(rows))
	for i := range rows {
		out[i] = rows[i].Store()
	}
	return out, nil
}

// ListStalled answers [store.Store.Stalled].
func ListStalled(ctx context.Context, db bun.IDB, t Tables, q store.StalledQuery) ([]*store.Execution, error) {
	if err := q.Validate(); err != nil {
		return nil, err
	}
	var rows []Execution
	if err := StalledQuery(db.NewSelect().Model(&rows), t, q).Scan(ctx); err != nil {
		return nil, err
	}
	return records(rows)
}

// StalledQuery builds the query of [ListStalled] on a select of executions.
func StalledQuery(s *bun.SelectQuery, t Tables, q store.StalledQuery) *bun.SelectQuery {
	s = s.ModelTableExpr(t.Name(Executions) + " AS x")
	progress := bun.Safe("x.progress_at")
	if q.Gate != "" {
		s = s.Where("x.waits_at = ?", string(q.Gate))
		progress = "x.waits_since" // the same, and in an index
	} else {
		s = s.Where(Unfinished)
	}
	if q.Saga != "" {
		s = s.Where("x.saga = ?", q.Saga)
	}
	s = s.Where("? < ?", progress, NewTime(q.ProgressBefore))
	if a := q.After; a != nil {
		s = s.Where("(?, x.id) > (?, ?)", progress, NewTime(a.ProgressAt), a.ID)
	}
	return s.OrderExpr("?, x.id", progress).Limit(int64(q.Limit))
}

// ListForResource answers [store.Store.ForResource].
func ListForResource(ctx context.Context, db bun.IDB, t Tables, r store.Resource, limit int) ([]*store.Execution, error) {
	if limit < 1 {
		return nil, fmt.Errorf("%w: limit is below 1", store.ErrInvalid)
	}
	// No store holds such texts. bun would replace or refuse what is wrong in
	// them, and the query then find another resource, or fail.
	if !storable(r.Type) || !storable(r.ID) {
		return nil, nil
	}
	var rows []Execution
	if err := ForResourceQuery(db.NewSelect().Model(&rows), t, r, limit).Scan(ctx); err != nil {
		return nil, err
	}
	return records(rows)
}

// ForResourceQuery builds the query of [ListForResource] on a select of
// executions.
func ForResourceQuery(s *bun.SelectQuery, t Tables, r store.Resource, limit int) *bun.SelectQuery {
	return s.ModelTableExpr(t.Name(Executions)+" AS x").
		Where("x.resource_type = ?", r.Type).Where("x.resource_id = ?", r.ID).
		OrderExpr("x.id DESC").Limit(int64(limit))
}

func records(rows []Execution) ([]*store.Execution, error) {
	out := make([]*store.Execution, len(rows))
	for i := range rows {
		x, err := rows[i].Store()
		if err != nil {
			return nil, err
		}
		out[i] = x
	}
	return out, nil
}

func storable(s string) bool { return utf8.ValidString(s) && !strings.ContainsRune(s, 0) }
