// Package rows holds what the two SQL adapters share: the columns of the
// tables, the conversion between rows and the records of package store, and
// the reads that are not hot, built with bun for both databases.
//
// An adapter writes its own SQL for the hot path and takes the columns and
// values from here, so that no column can be forgotten in one of them:
//
//	insert := fmt.Sprintf("INSERT INTO %s (%s) VALUES (%s)",
//		tables.Name(rows.Executions), rows.List(rows.Columns), rows.Marks(rows.Question, 1, len(rows.Columns)))
//	r, err := rows.FromExecution(x)
//	…
//	_, err = tx.Exec(insert, r.Values(rows.MicrosValue)...)
//
// and reads with Scan(r.Dest()...) into a [*Execution], whose Store method
// returns the record.
package rows

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// The tables, without schema and prefix.
const (
	Executions = "executions"
	Attempts   = "attempts"
	Audit      = "audit"
	Tags       = "tags"
	Events     = "events"
	Cells      = "cells"
	Meta       = "meta"
	Migrations = "migrations"
)

// HoldsKey, Unfinished and Unsuccessful are SQL conditions on executions; of
// those that have a key, HoldsKey. They are the predicates of partial indexes too, and a query uses
// such an index only when it repeats the predicate word for word.
const (
	HoldsKey     = "status IN ('running', 'waiting', 'halted', 'compensating', 'compensation_failed') AND follows IS NULL"
	Unfinished   = "status IN ('running', 'waiting', 'halted', 'compensating')"
	Unsuccessful = "status IN ('compensated', 'failed', 'compensation_failed', 'cancelled')"
)

// Tables says where the tables are: all of them in Schema, "" for none, with
// names that begin with Prefix.
type Tables struct {
	Schema string
	Prefix string
}

var identifier = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,30}$`)

// Validate reports whether Schema or Prefix is not a plain identifier of at
// most 31 lower-case letters, digits and underscores. Either may be empty.
func (t Tables) Validate() error {
	if t.Schema != "" && !identifier.MatchString(t.Schema) {
		return fmt.Errorf("schema %q is not of the form %s", t.Schema, identifier)
	}
	if t.Prefix != "" && !identifier.MatchString(t.Prefix) {
		return fmt.Errorf("table prefix %q is not of the form %s", t.Prefix, identifier)
	}
	return nil
}

// Name returns the quoted and qualified name of a table, to be put into SQL.
func (t Tables) Name(table string) string {
	if t.Schema == "" {
		return `"` + t.Prefix + table + `"`
	}
	return `"` + t.Schema + `"."` + t.Prefix + table + `"`
}

// Index returns the quoted name of an index, which carries the prefix but no
// schema: it always is in that of its table.
func (t Tables) Index(name string) string { return `"` + t.Prefix + name + `"` }

// List returns the columns, quoted and with commas between them.
func List(columns []string) string { return list(columns, "") }

// ListOf is List with each column qualified by a table's alias.
func ListOf(alias string, columns []string) string { return list(columns, alias+".") }

func list(columns []string, qualifier string) string {
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = qualifier + `"` + c + `"`
	}
	return strings.Join(quoted, ", ")
}

// A Mark writes the n-th placeholder of a statement, counted from 1.
type Mark func(n int) string

// Question writes placeholders as SQLite takes them, ?1.
func Question(n int) string { return "?" + strconv.Itoa(n) }

// Dollar writes placeholders as PostgreSQL takes them, $1.
func Dollar(n int) string { return "$" + strconv.Itoa(n) }

// Marks returns count placeholders from the n-th on, with commas between them.
func Marks(m Mark, n, count int) string {
	marks := make([]string, count)
	for i := range marks {
		marks[i] = m(n + i)
	}
	return strings.Join(marks, ", ")
}

// Sets returns the assignments of an UPDATE, the first column to the n-th
// placeholder.
func Sets(m Mark, n int, columns []string) string {
	sets := make([]string, len(columns))
	for i, c := range columns {
		sets[i] = `"` + c + `" = ` + m(n+i)
	}
	return strings.Join(sets, ", ")
}
