package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	driver "modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"
)

// fail translates an error of the driver for the caller. Errors that package
// store names, and those of a caller's function, never come here.
func (s *Store) fail(ctx context.Context, operation string, err error) error {
	if err == nil {
		return nil
	}
	if c := s.cause(ctx, err); c != err {
		return c
	}
	return fmt.Errorf("sqlite: %s: %w", operation, err)
}

// cause returns ctx's error if that is why err came: the driver answers with
// it, or with an interrupt, and database/sql, when it has rolled the
// transaction back, with ErrTxDone. In all of these nothing was written.
func (s *Store) cause(ctx context.Context, err error) error {
	if ctx.Err() == nil {
		return err
	}
	if errors.Is(err, ctx.Err()) || errors.Is(err, sql.ErrTxDone) || code(err)&0xff == codes.SQLITE_INTERRUPT {
		return ctx.Err()
	}
	return err
}

func code(err error) int {
	if e, ok := errors.AsType[*driver.Error](err); ok {
		return e.Code()
	}
	return 0
}

func isBusy(err error) bool { return code(err)&0xff == codes.SQLITE_BUSY }

func isUnique(err error) bool { return code(err) == codes.SQLITE_CONSTRAINT_UNIQUE }
