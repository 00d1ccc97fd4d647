package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
)

// The tests below need processes of their own: this test binary, started again
// with one of these tasks.
var tasks = map[string]func(s *sqlite.Store, args []string) error{
	"id": func(s *sqlite.Store, _ []string) error {
		id, err := s.ID(context.Background())
		fmt.Println(id)
		return err
	},
	// create writes until it is killed, and says what has been acknowledged.
	"create": func(s *sqlite.Store, _ []string) error {
		for {
			x := execution()
			if err := s.Create(context.Background(), x); err != nil {
				return err
			}
			y, err := s.WithLock(context.Background(), x.ID, func(x *store.Execution) (store.Change, error) {
				x.State = json.RawMessage(`{"pad":"` + strings.Repeat("x", 3000) + `"}`)
				return store.Change{Audit: []store.AuditEntry{{Execution: x.ID, At: x.CreatedAt, Act: "pad", Before: x.Status, After: x.Status}}}, nil
			})
			if err != nil {
				return err
			}
			fmt.Println(y.ID)
		}
	},
	"count": func(s *sqlite.Store, args []string) error {
		id := uuid.MustParse(args[0])
		for range increments {
			if _, err := s.WithLock(context.Background(), id, increment); err != nil {
				return err
			}
		}
		return nil
	},
	"exclusive": func(s *sqlite.Store, _ []string) error {
		if _, err := s.Exclusive(context.Background()); err != nil {
			return err
		}
		fmt.Println("locked")
		_, err := bufio.NewReader(os.Stdin).ReadString('\n') // until it is killed
		return err
	},
}

const increments = 200

func increment(x *store.Execution) (store.Change, error) {
	x.Tries++
	return store.Change{SameState: true}, nil
}

func TestMain(m *testing.M) {
	task := os.Getenv("LEVERET_TEST_TASK")
	if task == "" {
		os.Exit(m.Run())
	}
	s, err := sqlite.Open(context.Background(), os.Args[1], &sqlite.Config{Synchronous: sqlite.Synchronous(os.Args[2])})
	if err == nil {
		err = errors.Join(tasks[task](s, os.Args[3:]), s.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// process returns a process that is to do a task on the store at path.
func process(t *testing.T, task, path string, mode sqlite.Synchronous, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], append([]string{path, string(mode)}, args...)...)
	cmd.Env = append(os.Environ(), "LEVERET_TEST_TASK="+task)
	cmd.Stderr = os.Stderr
	return cmd
}

func execution() *store.Execution {
	now := time.Now()
	return &store.Execution{
		ID: uuid.Must(uuid.NewV7()), Saga: "order", Version: 1, Partition: "default", Status: store.StatusRunning,
		Direction: store.DirectionExecute, Step: "pay", State: json.RawMessage("{}"), DueAt: &now,
		Ledger:    []store.LedgerEntry{{Name: "pay", InDoubt: store.InDoubtCompensate, Status: store.StepPending}},
		CreatedAt: now, UpdatedAt: now, ProgressAt: now,
	}
}

func create(t testing.TB, s store.Store) *store.Execution {
	t.Helper()
	x := execution()
	if err := s.Create(t.Context(), x); err != nil {
		t.Fatal(err)
	}
	return x
}

func TestKilledProcessLosesNothingAcknowledged(t *testing.T) {
	for _, mode := range []sqlite.Synchronous{sqlite.Full, sqlite.Normal} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "sagas.db")
			cmd := process(t, "create", path, mode)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			var ids []uuid.UUID
			for lines := bufio.NewScanner(out); lines.Scan(); {
				if id, err := uuid.Parse(lines.Text()); err == nil { // the last line may be cut
					ids = append(ids, id)
				}
				if len(ids) == 300 {
					if err := cmd.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
			_ = cmd.Wait()
			if len(ids) < 300 {
				t.Fatalf("the process wrote only %d", len(ids))
			}

			s := open(t, path, &sqlite.Config{Synchronous: mode})
			for _, id := range ids {
				x, err := s.Get(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				audit, err := s.Audit(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if x.Revision != 2 || len(x.State) < 3000 || len(audit) != 1 {
					t.Fatalf("execution %s has revision %d, %d bytes of state and %d audit entries", id, x.Revision, len(x.State), len(audit))
				}
			}
			var check string
			if err := s.DB().QueryRowContext(t.Context(), "PRAGMA integrity_check").Scan(&check); err != nil || check != "ok" {
				t.Errorf("integrity check says %q, %v", check, err)
			}
		})
	}
}

func TestTwoProcessesLockEachOtherOut(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sagas.db")
	s := open(t, path, nil)
	x := create(t, s)
	var wait sync.WaitGroup
	for range 2 {
		cmd := process(t, "count", path, sqlite.Full, x.ID.String())
		wait.Go(func() {
			if err := cmd.Run(); err != nil {
				t.Error(err)
			}
		})
	}
	wait.Wait()
	got, err := s.Get(t.Context(), x.ID)
	if err != nil {
		t.Fatal(err)
	}
	if got.Tries != 2*increments {
		t.Errorf("got %d increments, want %d", got.Tries, 2*increments)
	}
}

func TestProcessesOpenANewFileAtOnce(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sagas.db")
	ids := make([]string, 8)
	var wait sync.WaitGroup
	for i := range ids {
		cmd := process(t, "id", path, sqlite.Full)
		wait.Go(func() {
			out, err := cmd.Output()
			if err != nil {
				t.Error(err)
			}
			ids[i] = string(out)
		})
	}
	wait.Wait()
	for _, id := range ids {
		if id == "" || id != ids[0] {
			t.Fatalf("the processes saw different stores: %q", ids)
		}
	}
}

func TestExclusiveEndsWithTheProcess(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "sagas.db")
	s := open(t, path, nil)
	cmd := process(t, "exclusive", path, sqlite.Full)
	if _, err := cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "locked\n" {
		t.Fatalf("the process says %q, %v", line, err)
	}
	if _, err := s.Exclusive(t.Context()); !errors.Is(err, store.ErrInUse) {
		t.Errorf("while another process has the lock: got %v, want ErrInUse", err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	release, err := s.Exclusive(t.Context())
	if err != nil {
		t.Fatalf("after the process was killed: %v", err)
	}
	if err := release(); err != nil {
		t.Error(err)
	}
}

func TestExclusiveKeepsOutASecondStoreOfTheProcess(t *testing.T) {
	dir := t.TempDir()
	path, link := filepath.Join(dir, "sagas.db"), filepath.Join(dir, "link.db")
	a := open(t, path, nil)
	if err := os.Symlink(path, link); err != nil {
		if runtime.GOOS != "windows" {
			t.Fatal(err)
		}
		t.Skipf("skipped: one lock for a file and its symbolic links; this user may not make links: %v", err)
	}
	b := open(t, link, nil)
	if _, err := a.Exclusive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exclusive(t.Context()); !errors.Is(err, store.ErrInUse) {
		t.Errorf("got %v, want ErrInUse", err)
	}
	if err := a.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Exclusive(t.Context()); err != nil {
		t.Errorf("after Close: %v", err)
	}
}

// hold keeps the write lock of s until the returned function is called.
func hold(t *testing.T, s *sqlite.Store) (release func()) {
	t.Helper()
	held, free := make(chan struct{}), make(chan struct{})
	x := create(t, s)
	var wait sync.WaitGroup
	wait.Go(func() {
		_, err := s.WithLock(context.Background(), x.ID, func(*store.Execution) (store.Change, error) {
			close(held)
			<-free
			return store.Change{}, store.ErrUnchanged
		})
		if err != nil {
			t.Error(err)
		}
	})
	<-held
	return sync.OnceFunc(func() { close(free); wait.Wait() })
}

func TestWaitForAnotherWriterEndsWithCtx(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sagas.db")
	a, b := open(t, path, nil), open(t, path, nil)
	x := create(t, a)
	release := hold(t, a)
	defer release()

	for name, s := range map[string]*sqlite.Store{"in this store": a, "in the file": b} {
		t.Run(name, func(t *testing.T) {
			for name, write := range map[string]func(ctx context.Context) error{
				"Create":   func(ctx context.Context) error { return s.Create(ctx, execution()) },
				"WithLock": func(ctx context.Context) error { _, err := s.WithLock(ctx, x.ID, increment); return err },
				"Advance":  func(ctx context.Context) error { return s.Advance(ctx, x, store.Change{}) },
				"ClaimDue": func(ctx context.Context) error {
					_, err := s.ClaimDue(ctx, store.DueQuery{Now: time.Now(), Limit: 1})
					return err
				},
				"Renew": func(ctx context.Context) error {
					_, err := s.Renew(ctx, []store.Lease{{Execution: x.ID}}, store.Renewal{})
					return err
				},
				"SetCell": func(ctx context.Context) error {
					_, err := s.SetCell(ctx, "c", json.RawMessage("1"), 0)
					return err
				},
				"Open": func(ctx context.Context) error {
					_, err := sqlite.Open(ctx, path, nil)
					return err
				},
			} {
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
				start := time.Now()
				if err := write(ctx); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: got %v, want the ctx's error", name, err)
				}
				if d := time.Since(start); d > 5*time.Second {
					t.Errorf("%s: waited %s", name, d)
				}
				cancel()
			}
			if _, err := s.Get(t.Context(), x.ID); err != nil {
				t.Errorf("Get while the writer is busy: %v", err)
			}
		})
	}
	release()
	for _, s := range []*sqlite.Store{a, b} {
		if _, err := s.WithLock(t.Context(), x.ID, increment); err != nil {
			t.Errorf("after the waits: %v", err)
		}
	}
}

func TestBusyTimeoutEndsTheWaitForAnotherProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sagas.db")
	a, b := open(t, path, nil), open(t, path, &sqlite.Config{BusyTimeout: 20 * time.Millisecond})
	release := hold(t, a)
	err := b.Create(t.Context(), execution())
	if err == nil || !strings.HasPrefix(err.Error(), "sqlite: create execution: ") {
		t.Errorf("got %v, want a wrapped error of the driver", err)
	}
	release()
	create(t, b)
}

func TestUserTransactionSharesTheWriter(t *testing.T) {
	s := open(t, filepath.Join(t.TempDir(), "sagas.db"), nil)
	if _, err := s.DB().ExecContext(t.Context(), "CREATE TABLE orders (id TEXT)"); err != nil {
		t.Fatal(err)
	}
	tx, err := s.DB().BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO orders VALUES ('1')"); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if err := s.Create(ctx, execution()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a write during the transaction: got %v, want the ctx's error", err)
	}
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
	create(t, s)
}

func TestPathsAreTakenLiterally(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "a b?c#d%41&_txlock=x.db")
	open(t, path, nil)
	if _, err := os.Stat(path); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"", ":memory:", "file::memory:?mode=memory", "file:x.db", "a\x00b", filepath.Join(dir, "none", "x.db")} {
		if s, err := sqlite.Open(t.Context(), bad, nil); err == nil {
			s.Close()
			t.Errorf("%q was opened", bad)
		} else if bad == ":memory:" && !strings.Contains(err.Error(), "store/memory") {
			t.Errorf("%q does not say what to use instead", err)
		}
	}
}

func TestConfigNamesAllFaults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sagas.db")
	_, err := sqlite.Open(t.Context(), path, &sqlite.Config{TablePrefix: "X", Synchronous: "off", BusyTimeout: -1, Readers: -1})
	for _, want := range []string{"prefix", "synchronous", "busy timeout", "readers"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not mention %s", err, want)
		}
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("a file was created")
	}
}

func TestPrefixesAreStoresOfTheirOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sagas.db")
	a, b := open(t, path, nil), open(t, path, &sqlite.Config{TablePrefix: "other_"})
	x := create(t, a)
	if _, err := b.Get(t.Context(), x.ID); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("got %v, want ErrNotFound", err)
	}
	ai, _ := a.ID(t.Context())
	if bi, _ := b.ID(t.Context()); ai == bi {
		t.Error("two stores have one id")
	}
}

func TestClosedStoreFails(t *testing.T) {
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "sagas.db"), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Error(err)
	}
	if err := s.Create(t.Context(), execution()); err == nil {
		t.Error("Create succeeded")
	}
	if _, err := s.Get(t.Context(), uuid.New()); err == nil || errors.Is(err, store.ErrNotFound) || errors.Is(err, sql.ErrNoRows) {
		t.Errorf("Get: got %v", err)
	}
}
