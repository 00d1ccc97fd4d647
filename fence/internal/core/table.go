package core

import (
	"context"
	"fmt"
	"time"
)

// The statements of the schema. BYTEA is no type of SQLite, which keeps bytes in
// a column of any.
const (
	CreateTable = `CREATE TABLE IF NOT EXISTS leveret_fence (
	effect      TEXT    PRIMARY KEY,
	undo        TEXT,
	done        INTEGER NOT NULL,
	effects     INTEGER NOT NULL,
	undos       INTEGER NOT NULL,
	at          BIGINT  NOT NULL,
	result      BYTEA,
	undo_result BYTEA
)`
	CreateIndex = `CREATE INDEX IF NOT EXISTS leveret_fence_at ON leveret_fence (at)`
)

// An Exec runs a statement and says how many rows it hit.
type Exec func(ctx context.Context, query string, args ...any) (int64, error)

// Migrate is [fence.Migrate].
func Migrate(ctx context.Context, exec Exec) error {
	for _, statement := range []string{CreateTable, CreateIndex} {
		// Of two that make the same at once PostgreSQL fails one, in spite of
		// IF NOT EXISTS, and not before the other has committed.
		_, err := exec(ctx, statement)
		if err != nil {
			_, err = exec(ctx, statement)
		}
		if err != nil {
			return fmt.Errorf("fence: migrate: %w", err)
		}
	}
	return nil
}

const pruneBatch = 1000

// A row that a call touches meanwhile is looked at again by PostgreSQL, with
// the outer condition: it stays.
const prune = `DELETE FROM leveret_fence WHERE at < $1 AND effect IN (
	SELECT effect FROM leveret_fence WHERE at < $2 ORDER BY at LIMIT 1000)`

// Prune is [fence.Prune].
func Prune(ctx context.Context, exec Exec, before time.Time) (int64, error) {
	var all int64
	for {
		n, err := exec(ctx, prune, before.Unix(), before.Unix())
		all += n
		if err != nil {
			return all, fmt.Errorf("fence: prune: %w", err)
		}
		if n < pruneBatch {
			return all, nil
		}
	}
}
