package rows

import (
	"github.com/google/uuid"
	"github.com/uptrace/bun"

	"github.com/leveret-go/leveret/store"
)

// Found are the rows of a query, of whatever driver.
type Found interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}

// AttemptsText is the query of [ListAttempts] for a transaction of the caller's,
// with its values written into it; read it with [ReadAttempts].
func AttemptsText(db bun.IDB, t Tables, id uuid.UUID) string {
	return attemptsQuery(db, t, id).String()
}

// ReadAttempts reads the rows of [AttemptsText], and closes them.
func ReadAttempts(found Found) ([]store.Attempt, error) {
	return readAll(found, func(r *Attempt) (store.Attempt, error) { return r.Store(), nil })
}

// AuditText is the query of [ListAudit] for a transaction of the caller's; read
// it with [ReadAudit].
func AuditText(db bun.IDB, t Tables, id uuid.UUID) string {
	return db.NewRaw(`SELECT `+List(AuditColumns)+` FROM ? WHERE execution = ? ORDER BY seq`, bun.Safe(t.Name(Audit)), id).String()
}

// ReadAudit reads the rows of [AuditText], and closes them.
func ReadAudit(found Found) ([]store.AuditEntry, error) {
	return readAll(found, func(r *AuditEntry) (store.AuditEntry, error) { return r.Store(), nil })
}

// ReadExecutions reads rows of [Columns], and closes them.
func ReadExecutions(found Found) ([]*store.Execution, error) {
	return readAll(found, (*Execution).Store)
}

// readAll reads rows of one kind R, as what the store hands out of them.
func readAll[R, T any, P interface {
	*R
	Dest() []any
}](found Found, record func(P) (T, error)) (list []T, err error) {
	defer func() {
		if end := found.Close(); err == nil {
			err = end
		}
	}()
	for found.Next() {
		r := P(new(R))
		if err := found.Scan(r.Dest()...); err != nil {
			return nil, err
		}
		v, err := record(r)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	return list, found.Err()
}
