package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/internal/rows"
)

// A migration is a file NNN_name.sql. Its first line, "-- floor: N", is the
// oldest schema version whose library still works after it.
type migration struct {
	version int
	name    string
	floor   int
	text    string // names of tables and indexes stand in {{ }}
}

//go:embed migrations/*.sql
var files embed.FS

var floorLine = regexp.MustCompile(`^-- floor: ([0-9]+)\n`)

// migrations returns the embedded migrations in order, numbered from 1.
func migrations() ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql") // sorted
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, name := range names {
		b, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		base := strings.TrimSuffix(path.Base(name), ".sql")
		number, _, _ := strings.Cut(base, "_")
		version, err := strconv.Atoi(number)
		if err != nil || version != len(all)+1 {
			return nil, fmt.Errorf("migration %s is not number %d", base, len(all)+1)
		}
		m := floorLine.FindSubmatch(b)
		if m == nil {
			return nil, fmt.Errorf("migration %s does not begin with its floor", base)
		}
		floor, err := strconv.Atoi(string(m[1]))
		if err != nil {
			return nil, err
		}
		all = append(all, migration{version: version, name: base, floor: floor, text: string(b)})
	}
	return all, nil
}

var placeholder = regexp.MustCompile(`\{\{([a-z_]+)\}\}`)

// migrate brings the schema up to the last migration and returns the store's
// id. Everything happens under SQLite's write lock, taken before the version
// is read, so that of any number of processes one migrates, and in one
// transaction, so that a crash leaves the schema as it was.
func migrate(ctx context.Context, db *sql.DB, t rows.Tables, all []migration) (uuid.UUID, error) {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return uuid.Nil, err
	}
	defer tx.Rollback()

	table := t.Name(rows.Migrations)
	_, err = tx.ExecContext(ctx, `CREATE TABLE IF NOT EXISTS `+table+` (
	version    INTEGER NOT NULL PRIMARY KEY,
	name       TEXT    NOT NULL,
	floor      INTEGER NOT NULL,
	applied_at INTEGER NOT NULL
) STRICT`)
	if err != nil {
		return uuid.Nil, err
	}
	var have, floor int
	err = tx.QueryRowContext(ctx, `SELECT COALESCE(MAX(version), 0), COALESCE(MAX(floor), 0) FROM `+table).Scan(&have, &floor)
	if err != nil {
		return uuid.Nil, err
	}
	if floor > len(all) {
		return uuid.Nil, &store.SchemaError{Code: store.SchemaTooNew, Have: have, Want: floor}
	}
	for _, m := range all[min(have, len(all)):] {
		text := placeholder.ReplaceAllStringFunc(m.text, func(s string) string { return t.Index(s[2 : len(s)-2]) })
		if _, err := tx.ExecContext(ctx, text); err != nil {
			return uuid.Nil, fmt.Errorf("migration %s: %w", m.name, err)
		}
		_, err := tx.ExecContext(ctx, `INSERT INTO `+table+` (version, name, floor, applied_at) VALUES (?, ?, ?, ?)`,
			m.version, m.name, m.floor, time.Now().UnixMicro())
		if err != nil {
			return uuid.Nil, fmt.Errorf("migration %s: %w", m.name, err)
		}
	}

	meta := t.Name(rows.Meta)
	_, err = tx.ExecContext(ctx, `INSERT INTO `+meta+` (name, value) VALUES ('store_id', ?) ON CONFLICT DO NOTHING`, uuid.NewString())
	if err != nil {
		return uuid.Nil, err
	}
	var id uuid.UUID
	if err := tx.QueryRowContext(ctx, `SELECT value FROM `+meta+` WHERE name = 'store_id'`).Scan(&id); err != nil {
		return uuid.Nil, err
	}
	return id, tx.Commit()
}
