package rows

import (
	"fmt"
	"time"

	"github.com/uptrace/bun/dialect"
	"github.com/uptrace/bun/schema"

	"github.com/leveret-go/leveret/store"
)

// A Time is a time as the databases keep it: whole microseconds, an INTEGER
// since 1970 in SQLite and a timestamptz in PostgreSQL.
type Time struct{ time.Time }

// NewTime returns t as a store keeps it.
func NewTime(t time.Time) Time { return Time{store.Micros(t)} }

func newTimePtr(t *time.Time) *Time {
	if t == nil {
		return nil
	}
	u := NewTime(*t)
	return &u
}

func timePtr(t *Time) *time.Time {
	if t == nil {
		return nil
	}
	u := t.Time
	return &u
}

// Scan takes what either database gives for a column that is not NULL; one
// that may be is scanned into a *Time.
func (t *Time) Scan(src any) error {
	switch v := src.(type) {
	case int64:
		t.Time = time.UnixMicro(v).UTC()
	case time.Time:
		t.Time = store.Micros(v)
	default:
		return fmt.Errorf("rows: cannot scan %T into a time", src)
	}
	return nil
}

// AppendQuery writes t as a literal of bun's dialect.
func (t Time) AppendQuery(gen schema.QueryGen, b []byte) ([]byte, error) {
	if gen.Dialect().Name() == dialect.SQLite {
		return fmt.Appendf(b, "%d", t.UnixMicro()), nil
	}
	b = append(b, '\'')
	b = store.Micros(t.Time).AppendFormat(b, "2006-01-02 15:04:05.000000+00:00")
	return append(b, '\''), nil
}

// A TimeValue turns a time, cut to microseconds, into what a driver is given.
type TimeValue func(time.Time) any

// MicrosValue is the TimeValue of SQLite: microseconds since 1970.
func MicrosValue(t time.Time) any { return t.UnixMicro() }

// PlainValue is the TimeValue of PostgreSQL: the time itself.
func PlainValue(t time.Time) any { return t }

func (v TimeValue) of(t Time) any { return v(t.Time) }

func (v TimeValue) ptr(t *Time) any {
	if t == nil {
		return nil
	}
	return v(t.Time)
}
