package saga

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"

	"github.com/leveret-go/leveret/store"
)

const outlinePrefix = "outline/"

// StoredOutlines lists the sagas that workers have had registered, by name and
// version, as the last of them had it: for tools that do not have the service's
// code. It needs a store with store.Cells, else it is ErrNotSupported.
func (e *Engine) StoredOutlines(ctx context.Context) ([]Outline, error) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return nil, fmt.Errorf("saga: outlines: %w", ErrNotSupported)
	}
	list, err := cells.ListCells(ctx, outlinePrefix)
	if err != nil {
		return nil, fmt.Errorf("saga: outlines: %w", err)
	}
	var out []Outline
	for _, c := range list {
		var o Outline
		if err := json.Unmarshal(c.Value, &o); err != nil {
			return nil, fmt.Errorf("saga: outlines: %s: %w", c.Name, err)
		}
		out = append(out, o)
	}
	sortOutlines(out)
	return out, nil
}

// storeOutlines leaves what is registered here for tools, where that is not what
// the store has. It writes once for a build, not for each of its processes.
func (e *Engine) storeOutlines(ctx context.Context) error {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return nil
	}
	var errs []error
	for _, o := range e.Outlines() {
		errs = append(errs, storeOutline(ctx, cells, o))
	}
	return errors.Join(errs...)
}

func storeOutline(ctx context.Context, cells store.Cells, o Outline) error {
	ctx, cancel := storeCtx(ctx)
	defer cancel()
	b, err := json.Marshal(o)
	if err != nil {
		return err
	}
	name := outlinePrefix + o.Saga + "/" + strconv.Itoa(o.Version)
	for try := 1; ; try++ {
		was, revision, err := cells.Cell(ctx, name)
		if err != nil || bytes.Equal(was, b) {
			return err
		}
		if _, err = cells.SetCell(ctx, name, b, revision); !errors.Is(err, store.ErrConflict) || try == 10 {
			return err
		}
	}
}
