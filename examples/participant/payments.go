package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"path/filepath"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/leveret-go/leveret/fence"
)

// payments is the participant: one account, and the charges on it.
type payments struct{ db *sql.DB }

const tables = `
CREATE TABLE account (balance INTEGER NOT NULL);
INSERT INTO account VALUES (1000);
CREATE TABLE charges (id INTEGER PRIMARY KEY, amount INTEGER NOT NULL);
`

func openPayments(ctx context.Context, file string) (*payments, error) {
	db, err := sql.Open("sqlite", "file:"+filepath.ToSlash(file)+"?_txlock=immediate&_pragma=busy_timeout(5000)")
	if err != nil {
		return nil, err
	}
	_, err = db.ExecContext(ctx, tables)
	if err := errors.Join(err, fence.Migrate(ctx, db)); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return &payments{db}, nil
}

func (p *payments) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders/{order}/charge", p.once(charge))
	mux.HandleFunc("POST /orders/{order}/refund", p.once(refund))
	return fence.Middleware(mux)
}

// An action is what a request does, once. effect is, in an undo, what the
// effect's action returned.
type action func(r *http.Request, tx *sql.Tx, effect []byte) ([]byte, error)

// once makes a handler of an action.
func (p *payments) once(do action) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		key, executeKey, ok := fence.FromContext(r.Context())
		if !ok {
			http.Error(w, "Idempotency-Key: is missing", http.StatusBadRequest)
			return
		}
		result, err := p.transaction(r, key, executeKey, do)
		switch {
		case err == nil:
			_, _ = w.Write(result)
		case errors.Is(err, fence.ErrRefused):
			http.Error(w, "this has been undone", http.StatusConflict)
		case errors.Is(err, errNoMoney):
			http.Error(w, err.Error(), http.StatusPaymentRequired)
		case errors.Is(err, fence.ErrInvalid):
			http.Error(w, err.Error(), http.StatusBadRequest)
		default:
			http.Error(w, "try again", http.StatusInternalServerError)
		}
	}
}

func (p *payments) transaction(r *http.Request, key, executeKey string, do action) ([]byte, error) {
	ctx := r.Context()
	tx, err := p.db.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer func() { _ = tx.Rollback() }()
	_, result, err := fence.Do(ctx, tx, key, executeKey, func(effect []byte) ([]byte, error) {
		return do(r, tx, effect)
	})
	if err != nil {
		return nil, err
	}
	return result, tx.Commit() // when there was nothing to undo, too
}

var errNoMoney = errors.New("not enough money")

func charge(r *http.Request, tx *sql.Tx, _ []byte) ([]byte, error) {
	var order Order
	if err := json.NewDecoder(r.Body).Decode(&order); err != nil {
		return nil, err
	}
	taken, err := tx.ExecContext(r.Context(), "UPDATE account SET balance = balance - ?1 WHERE balance >= ?1", order.Amount)
	if err != nil {
		return nil, err
	}
	if n, err := taken.RowsAffected(); err != nil || n == 0 {
		return nil, errors.Join(errNoMoney, err)
	}
	var id int
	err = tx.QueryRowContext(r.Context(), "INSERT INTO charges (amount) VALUES (?) RETURNING id", order.Amount).Scan(&id)
	return fmt.Appendf(nil, "%d", id), err
}

func refund(r *http.Request, tx *sql.Tx, charge []byte) ([]byte, error) {
	_, err := tx.ExecContext(r.Context(), "UPDATE account SET balance = balance + (SELECT amount FROM charges WHERE id = ?)", string(charge))
	return nil, err
}

// report prints what happened, and how much money is left.
func (p *payments) report(ctx context.Context, out io.Writer, what string) error {
	var balance, charges int
	err := p.db.QueryRowContext(ctx, "SELECT balance, (SELECT count(*) FROM charges) FROM account").Scan(&balance, &charges)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "%s; balance %d after %d charges\n", what, balance, charges)
	return err
}
