package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/storetest"
)

func Benchmark(b *testing.B) {
	storetest.Benchmark(b, func(b *testing.B) store.Store {
		return migrated(b, with(testenv.Postgres(b), "pool_max_conns", "8"), nil)
	})
}

// BenchmarkFloor is what the same machine does without us: one prepared UPDATE
// of one small row, committed, to compare the others with.
func BenchmarkFloor(b *testing.B) {
	pool := newPool(b, with(testenv.Postgres(b), "pool_max_conns", "8"))
	for _, sql := range []string{
		"CREATE TABLE floor (id int PRIMARY KEY, n int NOT NULL) WITH (fillfactor = 50)",
		"INSERT INTO floor SELECT n, 0 FROM generate_series(1, 64) AS n",
	} {
		if _, err := pool.Exec(b.Context(), sql); err != nil {
			b.Fatal(err)
		}
	}
	one := func(b *testing.B, id int) {
		if _, err := pool.Exec(b.Context(), "UPDATE floor SET n = n + 1 WHERE id = $1", id); err != nil {
			b.Error(err)
		}
	}
	b.Run("One", func(b *testing.B) {
		for b.Loop() {
			one(b, 1)
		}
	})
	b.Run("Parallel", func(b *testing.B) {
		b.SetParallelism(4)
		b.RunParallel(func(pb *testing.PB) {
			for n := 1; pb.Next(); n++ {
				one(b, n%64+1)
			}
		})
	})
	b.Run("Read", func(b *testing.B) {
		for b.Loop() {
			var n int
			if err := pool.QueryRow(b.Context(), "SELECT n FROM floor WHERE id = $1", 1).Scan(&n); err != nil && err != pgx.ErrNoRows {
				b.Fatal(err)
			}
		}
	})
}
