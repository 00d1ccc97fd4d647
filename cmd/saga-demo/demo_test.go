package main

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/internal/testenv"
)

// demoJSON runs the program and returns what it printed on stdout.
func demoJSON(t *testing.T, args ...string) report {
	t.Helper()
	var stdout, stderr strings.Builder
	if code := run(t.Context(), append(args, "-json"), &stdout, &stderr); code != exitOK {
		t.Errorf("exit code %d, stderr:\n%s", code, stderr.String())
	}
	var r report
	d := json.NewDecoder(strings.NewReader(stdout.String()))
	d.DisallowUnknownFields()
	if err := d.Decode(&r); err != nil {
		t.Fatalf("stdout is no report: %v\n%s", err, stdout.String())
	}
	if _, err := d.Token(); err != io.EOF {
		t.Errorf("more than one object on stdout:\n%s", stdout.String())
	}
	if strings.Contains(stderr.String(), "level=") {
		t.Errorf("trouble:\n%s", stderr.String())
	}
	ended := 0
	for _, n := range r.ByStatus {
		ended += n
	}
	if ended != r.Sagas || r.Ledger != "consistent" || len(r.Violations) != 0 || r.Steps == 0 ||
		r.SagasPerSecond <= 0 || r.P50 <= 0 || r.P99 < r.P50 || r.Calls < r.Effects || r.Effects < r.Steps {
		t.Errorf("report %+v", r)
	}
	return r
}

func TestDemoIsConsistent(t *testing.T) {
	for _, backend := range []string{"", "memory", "sqlite", "postgres"} {
		t.Run("store="+backend, func(t *testing.T) {
			t.Parallel()
			args := []string{"-n", "40", "-fail", "0.1", "-seed", "7", "-once"}
			switch backend {
			case "memory":
				args = append(args, "-store", "memory")
			case "sqlite":
				args = append(args, "-store", "sqlite:"+filepath.Join(t.TempDir(), "demo.db"))
			case "postgres":
				args = append(args, "-store", testenv.Postgres(t))
			}
			r := demoJSON(t, args...)
			if r.Sagas != 40 || r.Seed != 7 || r.Undos == 0 {
				t.Errorf("report %+v", r)
			}
		})
	}
}

// The seed decides what goes wrong for good, whatever the store and the order
// in which things happen.
func TestSameSeedFailsTheSame(t *testing.T) {
	a := demoJSON(t, "-n", "30", "-fail", "0.2", "-seed", "3", "-store", "memory")
	b := demoJSON(t, "-n", "30", "-fail", "0.2", "-seed", "3", "-store", "memory", "-workers", "3")
	for status, n := range a.ByStatus {
		if b.ByStatus[status] != n {
			t.Errorf("by status %v and %v", a.ByStatus, b.ByStatus)
		}
	}
}

// A starter and a worker are different processes that share a file; a second
// starter of the same run finds everything done.
func TestRoles(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "demo.db")
	worked := make(chan int)
	var out, err strings.Builder
	go func() { worked <- run(t.Context(), []string{"-role", "work", "-store", db, "-drain"}, &out, &err) }()
	first := demoJSON(t, "-role", "start", "-store", db, "-n", "20", "-run", "r1", "-seed", "1")
	again := demoJSON(t, "-role", "start", "-store", db, "-n", "20", "-run", "r1", "-seed", "1")
	if first.Steps != again.Steps || first.Calls != again.Calls {
		t.Errorf("reports differ: %+v and %+v", first, again)
	}
	if code := <-worked; code != exitOK || out.Len() > 0 {
		t.Errorf("worker: code %d, stdout %q, stderr %q", code, out.String(), err.String())
	}
}

func TestInterruptedDemoSaysHowToGoOn(t *testing.T) {
	db := "sqlite:" + filepath.Join(t.TempDir(), "demo.db")
	ctx, cancel := context.WithCancelCause(t.Context())
	var stdout, stderr strings.Builder
	cancel(errSignal)
	if code := run(ctx, []string{"-store", db, "-n", "20", "-run", "r1", "-json"}, &stdout, &stderr); code != exitInterrupted && code != exitFailed {
		t.Errorf("code %d", code)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	code := make(chan int)
	go func() {
		code <- run(ctx, []string{"-store", db, "-n", "20", "-run", "r1", "-seed", "5"}, &stdout, &stderr)
	}()
	b, err := openBackend(t.Context(), options{store: db})
	if err != nil {
		t.Fatal(err)
	}
	defer b.close(false)
	for { // until something is under way
		if effects, err := b.ledger.effects(t.Context(), "r1"); err == nil && len(effects) > 0 {
			break
		}
		if err := sleep(t.Context(), 20*time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	cancel(errSignal)
	if c := <-code; c != exitInterrupted || stdout.Len() > 0 || !strings.Contains(stderr.String(), "-run r1 -seed 5 goes on") {
		t.Errorf("code %d, stdout %q, stderr %q", c, stdout.String(), stderr.String())
	}
	demoJSON(t, "-store", db, "-n", "20", "-run", "r1", "-seed", "5")
}
