package storetest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/leveret-go/leveret/store"
)

var cellFaults = map[string]func(f *faulty){
	"CellIsWritten": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			if string(value) == "null" {
				value = nil
			}
			return f.Store.SetCell(ctx, name, value, revision)
		}
	},
	"CellConflicts": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			got, err := f.Store.SetCell(ctx, name, value, revision)
			if errors.Is(err, store.ErrConflict) && value == nil {
				return 0, nil // there is nothing to delete
			}
			return got, err
		}
	},
	"CellIsDeleted": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			if value == nil {
				value = []byte("null")
			}
			return f.Store.SetCell(ctx, name, value, revision)
		}
	},
	"CellRace": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			got, err := f.Store.SetCell(ctx, name, value, revision)
			if errors.Is(err, store.ErrConflict) {
				err = nil
			}
			return got, err
		}
	},
	"CellValueIsKept": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			var b bytes.Buffer
			if json.Compact(&b, value) == nil {
				value = b.Bytes()
			}
			return f.Store.SetCell(ctx, name, value, revision)
		}
	},
	"CellNames": func(f *faulty) {
		f.setCell = func(ctx context.Context, name string, value json.RawMessage, revision int64) (int64, error) {
			return f.Store.SetCell(ctx, strings.ToLower(name), value, revision)
		}
	},
	"ListCells": func(f *faulty) {
		f.listCells = func(ctx context.Context, prefix string) ([]store.Cell, error) {
			list, err := f.Store.ListCells(ctx, prefix)
			slices.SortFunc(list, func(a, b store.Cell) int {
				return strings.Compare(strings.ToLower(a.Name), strings.ToLower(b.Name)) // as a collation does
			})
			return list, err
		}
	},
	"CellsAreCopies": func(f *faulty) {
		cached := map[string]json.RawMessage{}
		f.cell = func(ctx context.Context, name string) (json.RawMessage, int64, error) {
			value, revision, err := f.Store.Cell(ctx, name)
			if cached[name] == nil {
				cached[name] = value
			}
			return cached[name], revision, err
		}
	},

	"ExclusiveIsExclusive": func(f *faulty) {
		f.exclusive = func(context.Context) (func() error, error) { return func() error { return nil }, nil }
	},
	"ExclusiveReleasedTwice": func(f *faulty) {
		held := false
		f.exclusive = func(context.Context) (func() error, error) {
			if held {
				return nil, store.ErrInUse
			}
			held = true
			return func() error { held = false; return nil }, nil // whoever holds it now
		}
	},
}
