package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// Cell returns a cell; see [store.Cells].
func (s *Store) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if err := store.ValidateCell(name, nil); err != nil {
		return nil, 0, err
	}
	var value string
	var revision int64
	err := s.readers.QueryRowContext(ctx, `SELECT value, revision FROM `+s.tables.Name(rows.Cells)+` WHERE name = ?`, name).
		Scan(&value, &revision)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, s.fail(ctx, "get cell", err)
	}
	return json.RawMessage(value), revision, nil
}

// SetCell writes a cell; see [store.Cells].
func (s *Store) SetCell(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
	if err := store.ValidateCell(name, value); err != nil {
		return 0, err
	}
	table := s.tables.Name(rows.Cells)
	next := revision + 1
	err := s.write(ctx, "set cell", func(t *txn) error {
		var have int64
		background := context.WithoutCancel(ctx)
		err := t.tx.QueryRowContext(background, `SELECT revision FROM `+table+` WHERE name = ?`, name).Scan(&have)
		if err != nil && !errors.Is(err, sql.ErrNoRows) {
			return t.fail(err)
		}
		if have != revision {
			return store.ErrConflict
		}
		if value == nil {
			next = 0
			_, err = t.tx.ExecContext(background, `DELETE FROM `+table+` WHERE name = ?`, name)
			return t.fail(err)
		}
		_, err = t.tx.ExecContext(background, `INSERT INTO `+table+` (name, value, revision) VALUES (?1, ?2, ?3)
ON CONFLICT (name) DO UPDATE SET value = ?2, revision = ?3`, name, string(value), next)
		return t.fail(err)
	})
	if err != nil {
		return 0, err
	}
	return next, nil
}

// ListCells returns the cells with a prefix; see [store.Cells].
func (s *Store) ListCells(ctx context.Context, prefix string) ([]store.Cell, error) {
	const operation = "list cells"
	found, err := s.readers.QueryContext(ctx, `SELECT name, value, revision FROM `+s.tables.Name(rows.Cells)+` WHERE name >= ? ORDER BY name`, prefix)
	if err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	defer found.Close()
	var list []store.Cell
	for found.Next() {
		var c store.Cell
		var value string
		if err := found.Scan(&c.Name, &value, &c.Revision); err != nil {
			return nil, s.fail(ctx, operation, err)
		}
		if !strings.HasPrefix(c.Name, prefix) {
			break // those with the prefix come first, side by side
		}
		c.Value = json.RawMessage(value)
		list = append(list, c)
	}
	if err := found.Err(); err != nil {
		return nil, s.fail(ctx, operation, err)
	}
	return list, nil
}
