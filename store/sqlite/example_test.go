package sqlite_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
)

func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "sagas")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	s, err := sqlite.Open(ctx, filepath.Join(dir, "sagas.db"), &sqlite.Config{Synchronous: sqlite.Normal})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()

	// What follows is the engine's work; a service gives s to the engine.
	now := time.Now()
	x := &store.Execution{
		ID: uuid.Must(uuid.NewV7()), Saga: "order", Version: 1, Partition: "default",
		Status: store.StatusRunning, Direction: store.DirectionExecute, Step: "reserve",
		State: json.RawMessage(`{"sku":"hare"}`), CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
	if err := s.Create(ctx, x); err != nil {
		log.Fatal(err)
	}
	x, err = s.WithLock(ctx, x.ID, func(x *store.Execution) (store.Change, error) {
		x.Step = "pay"
		return store.Change{SameState: true}, nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(x.Step, x.Revision, string(x.State))
	// Output: pay 2 {"sku":"hare"}
}
