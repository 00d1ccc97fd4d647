package postgres

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/store"
)

// Cell returns a cell; see [store.Cells].
func (s *Store) Cell(ctx context.Context, name string) (json.RawMessage, int64, error) {
	if err := store.ValidateCell(name, nil); err != nil {
		return nil, 0, err
	}
	var value []byte
	var revision int64
	err := s.run(ctx, "cell", s.control, reading, func(ctx context.Context, c *pgx.Conn) error {
		err := c.QueryRow(ctx, s.sql.cell, name).Scan(&value, &revision)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	})
	return value, revision, err
}

// SetCell writes a cell if it is as the caller last saw it; see [store.Cells].
func (s *Store) SetCell(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
	if err := store.ValidateCell(name, value); err != nil {
		return 0, err
	}
	if value == nil && revision == 0 {
		if _, have, err := s.Cell(ctx, name); err != nil || have == 0 {
			return 0, err
		}
		return 0, store.ErrConflict
	}
	text, args, next := s.sql.setCell, []any{name, string(value), revision}, revision+1
	switch {
	case value == nil:
		text, args, next = s.sql.deleteCell, []any{name, revision}, 0
	case revision == 0:
		text, args = s.sql.addCell, []any{name, string(value)}
	}
	err := s.run(ctx, "set cell", s.control, writing, func(ctx context.Context, c *pgx.Conn) error {
		n, err := s.execLimited(ctx, c, text, args)
		if err == nil && n == 0 {
			return store.ErrConflict
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return next, nil
}

// ListCells returns the cells with a prefix; see [store.Cells].
func (s *Store) ListCells(ctx context.Context, prefix string) ([]store.Cell, error) {
	if !plainText(prefix) {
		return nil, nil // no name begins so
	}
	var list []store.Cell
	err := s.run(ctx, "list cells", s.control, reading, func(ctx context.Context, c *pgx.Conn) error {
		list = nil
		found, err := c.Query(ctx, s.sql.cells, prefix)
		if err != nil {
			return err
		}
		defer found.Close()
		for found.Next() {
			var cell store.Cell
			var value []byte
			if err := found.Scan(&cell.Name, &value, &cell.Revision); err != nil {
				return err
			}
			cell.Value = value
			list = append(list, cell)
		}
		return found.Err()
	})
	return list, err
}
