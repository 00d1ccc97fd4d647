package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// An sqlLedger keeps the ledger in SQLite or PostgreSQL: the statements are the
// same but for their parameters.
type sqlLedger struct {
	db     *sql.DB
	sqlite bool
	closer func() error
}

// newSQLLedger makes the tables if they are missing.
func newSQLLedger(ctx context.Context, db *sql.DB, sqlite bool, closer func() error) (*sqlLedger, error) {
	l := &sqlLedger{db: db, sqlite: sqlite, closer: closer}
	for _, stmt := range []string{
		`CREATE TABLE IF NOT EXISTS demo_sagas (
			run TEXT NOT NULL, execution TEXT PRIMARY KEY, "order" TEXT NOT NULL UNIQUE, saga TEXT NOT NULL)`,
		`CREATE INDEX IF NOT EXISTS demo_sagas_run ON demo_sagas (run)`,
		`CREATE TABLE IF NOT EXISTS demo_effects (
			key TEXT PRIMARY KEY, "order" TEXT NOT NULL, service TEXT NOT NULL, kind TEXT NOT NULL,
			state TEXT NOT NULL, calls INTEGER NOT NULL)`,
		`CREATE INDEX IF NOT EXISTS demo_effects_order ON demo_effects ("order")`,
	} {
		// In PostgreSQL two processes that create a table at the same moment
		// fail in spite of IF NOT EXISTS; the second try finds it.
		var err error
		for range 3 {
			if _, err = db.ExecContext(ctx, stmt); err == nil {
				break
			}
			if err := sleep(ctx, 50*time.Millisecond); err != nil {
				return nil, err
			}
		}
		if err != nil {
			return nil, fmt.Errorf("ledger: create tables: %w", err)
		}
	}
	return l, nil
}

// sql returns a statement with the parameters of the database.
func (l *sqlLedger) sql(stmt string) string {
	if l.sqlite {
		return strings.ReplaceAll(stmt, "$", "?")
	}
	return stmt
}

// put inserts a row, or, when its key is known, adds to its calls; it returns
// the state that is now stored. The row is locked until the transaction ends.
const put = `INSERT INTO demo_effects (key, "order", service, kind, state, calls) VALUES ($1, $2, $3, $4, $5, $6)
	ON CONFLICT (key) DO UPDATE SET calls = demo_effects.calls + excluded.calls RETURNING state`

func (l *sqlLedger) apply(ctx context.Context, r request) (ok bool, err error) {
	err = l.tx(ctx, func(tx *sql.Tx) error {
		state := stateDone
		if r.Kind == store.DirectionCompensate {
			var done string
			row := tx.QueryRowContext(ctx, l.sql(put), r.ExecuteKey, r.Order, r.Service, string(store.DirectionExecute), stateMarked, 0)
			if err := row.Scan(&done); err != nil {
				return err
			}
			if done != stateDone {
				state = stateNoop
			}
		}
		row := tx.QueryRowContext(ctx, l.sql(put), r.Key, r.Order, r.Service, string(r.Kind), state, 1)
		if err := row.Scan(&state); err != nil {
			return err
		}
		ok = state != stateMarked
		return nil
	})
	return ok, err
}

func (l *sqlLedger) tx(ctx context.Context, f func(tx *sql.Tx) error) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	if err = f(tx); err != nil {
		_ = tx.Rollback()
	} else {
		err = tx.Commit()
	}
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

func (l *sqlLedger) plan(ctx context.Context, run string, sagas []planned) error {
	return l.tx(ctx, func(tx *sql.Tx) error {
		stmt, err := tx.PrepareContext(ctx, l.sql(`INSERT INTO demo_sagas (run, execution, "order", saga) VALUES ($1, $2, $3, $4)
			ON CONFLICT DO NOTHING`))
		if err != nil {
			return err
		}
		defer stmt.Close()
		for _, p := range sagas {
			if _, err := stmt.ExecContext(ctx, run, p.Execution.String(), p.Order, p.Saga); err != nil {
				return err
			}
		}
		return nil
	})
}

func (l *sqlLedger) planned(ctx context.Context, run string) (out []planned, err error) {
	err = l.query(ctx, `SELECT execution, "order", saga FROM demo_sagas WHERE run = $1 ORDER BY "order"`, run, func(rows *sql.Rows) error {
		var p planned
		var id string
		if err := rows.Scan(&id, &p.Order, &p.Saga); err != nil {
			return err
		}
		p.Execution, err = uuid.Parse(id)
		out = append(out, p)
		return err
	})
	return out, err
}

func (l *sqlLedger) effects(ctx context.Context, run string) (out []effect, err error) {
	err = l.query(ctx, `SELECT e.key, e."order", e.service, e.kind, e.state, e.calls
		FROM demo_effects e JOIN demo_sagas s ON s."order" = e."order" WHERE s.run = $1`, run, func(rows *sql.Rows) error {
		var e effect
		err := rows.Scan(&e.Key, &e.Order, &e.Service, &e.Kind, &e.State, &e.Calls)
		out = append(out, e)
		return err
	})
	return out, err
}

func (l *sqlLedger) query(ctx context.Context, stmt, run string, scan func(*sql.Rows) error) error {
	rows, err := l.db.QueryContext(ctx, l.sql(stmt), run)
	if err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := scan(rows); err != nil {
			return fmt.Errorf("ledger: %w", err)
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("ledger: %w", err)
	}
	return nil
}

func (l *sqlLedger) close() error { return l.closer() }
