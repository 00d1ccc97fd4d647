package postgres_test

import (
	"context"
	"database/sql"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store/postgres"
)

// An Order is the state of a saga.
type Order struct{ Seat string }

var (
	pool   *pgxpool.Pool
	bundb  *bun.DB
	engine *saga.Engine
	orders *saga.Saga[Order]
)

// A start in a transaction of pgx's.
func ExampleTx() {
	place := func(ctx context.Context, id string) error {
		tx, err := pool.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx)
		if _, err := tx.Exec(ctx, "INSERT INTO orders (id) VALUES ($1)", id); err != nil {
			return err
		}
		unit := engine.InTx(postgres.Tx(tx))
		if _, err := orders.StartTx(ctx, unit, saga.Resource{Type: "order", ID: id}, Order{}, nil); err != nil {
			return err
		}
		if err := tx.Commit(ctx); err != nil {
			return err
		}
		return unit.Publish(ctx)
	}
	_ = place
}

// A start in a transaction of bun's.
func ExampleSQLTx() {
	place := func(ctx context.Context, id string) error {
		return bundb.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
			if _, err := tx.NewInsert().Model(&struct{ ID string }{id}).ModelTableExpr("orders").Exec(ctx); err != nil {
				return err
			}
			unit := engine.InTx(postgres.SQLTx(tx.Tx))
			_, err := orders.StartTx(ctx, unit, saga.Resource{Type: "order", ID: id}, Order{}, nil)
			return err
		})
	}
	_ = place
}

// A step that writes into the store's own database.
func ExampleInTx() {
	book := postgres.InTx(func(ctx context.Context, run *saga.Run[Order], tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "INSERT INTO seats (seat, key) VALUES ($1, $2)", run.State.Seat, run.Key())
		return err
	})
	release := postgres.InTx(func(ctx context.Context, run *saga.Run[Order], tx pgx.Tx) error {
		_, err := tx.Exec(ctx, "DELETE FROM seats WHERE key = $1", run.ExecuteKey())
		return err
	})
	_ = saga.Step[Order]{Name: "book", ExecuteTx: book, CompensateTx: release}
}

// The same with bun.
func ExampleInSQLTx() {
	book := postgres.InSQLTx(func(ctx context.Context, run *saga.Run[Order], tx *sql.Tx) error {
		db := bun.NewDB(nil, pgdialect.New()) // only writes queries here
		_, err := db.NewRaw("INSERT INTO seats (seat) VALUES (?)", run.State.Seat).Conn(tx).Exec(ctx)
		return err
	})
	_ = saga.Step[Order]{Name: "book", ExecuteTx: book}
}
