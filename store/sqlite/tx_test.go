package sqlite_test

import (
	"context"
	"database/sql"
	"net/url"
	"path/filepath"
	"testing"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
	"github.com/leveret-go/leveret/storetest"
)

// A userTx is a transaction of somebody who has the file open, too.
type userTx struct{ tx *sql.Tx }

func (t userTx) Tx() store.Tx                   { return sqlite.Tx(t.tx) }
func (t userTx) Commit(context.Context) error   { return t.tx.Commit() }
func (t userTx) Rollback(context.Context) error { return ignoreDone(t.tx.Rollback()) }

func ignoreDone(err error) error {
	if err == sql.ErrTxDone {
		return nil
	}
	return err
}

// A file is a store with a database of the user's on the same file.
type file struct {
	*sqlite.Store
	user *sql.DB
}

func (f file) Unwrap() store.Store { return f.Store }

func openShared(t *testing.T) file {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sagas.db")
	s := open(t, path, &sqlite.Config{Synchronous: sqlite.Normal})
	user, err := sql.Open("sqlite", "file:"+(&url.URL{Path: path}).EscapedPath()+"?_txlock=immediate&_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { user.Close() })
	if _, err := user.ExecContext(t.Context(), "CREATE TABLE notes (text TEXT)"); err != nil {
		t.Fatal(err)
	}
	return file{s, user}
}

func TestTransactions(t *testing.T) {
	for name, kind := range txKinds() {
		t.Run(name, func(t *testing.T) {
			storetest.RunTx(t, func(t *testing.T) store.Store { return openShared(t) }, []storetest.TxKind{kind},
				&storetest.Options{SingleWriter: true, Require: append(abilities, "Binder", "Transactor")})
		})
	}
}

// A step's transaction happens once, whatever dies or gets lost.
func TestExecuteTxExactlyOnce(t *testing.T) {
	storetest.RunEngineTx(t, func(t *testing.T) store.Store { return openShared(t) },
		[]storetest.TxKind{txKinds()["of another database"]}, &storetest.Options{SingleWriter: true})
}

func txKinds() map[string]storetest.TxKind {
	note := func(ctx context.Context, tx store.Tx, text string) error {
		return sqlite.InTx(func(ctx context.Context, text string, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "INSERT INTO notes VALUES (?)", text)
			return err
		}).Call(ctx, text, tx)
	}
	notes := func(ctx context.Context, s store.Store) (list []string, err error) {
		found, err := s.(file).user.QueryContext(ctx, "SELECT text FROM notes")
		if err != nil {
			return nil, err
		}
		defer found.Close()
		for found.Next() {
			var text string
			if err := found.Scan(&text); err != nil {
				return nil, err
			}
			list = append(list, text)
		}
		return list, found.Err()
	}
	begin := func(db func(f file) *sql.DB) func(ctx context.Context, s store.Store) (storetest.UserTx, error) {
		return func(ctx context.Context, s store.Store) (storetest.UserTx, error) {
			tx, err := db(s.(file)).BeginTx(ctx, nil)
			return userTx{tx}, err
		}
	}
	kind := func(db func(f file) *sql.DB) storetest.TxKind {
		return storetest.TxKind{Kind: "sqlite", Begin: begin(db), Note: note, Notes: notes}
	}
	return map[string]storetest.TxKind{
		"of another database": kind(func(f file) *sql.DB { return f.user }),
		"of the store's":      kind(func(f file) *sql.DB { return f.DB() }),
	}
}
