// Package examples_test runs the programs beside it.
package examples_test

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/leveret-go/leveret/internal/testenv"
)

func TestEmbeddedRunsTwiceAndStartsOnce(t *testing.T) {
	t.Parallel()
	program := build(t, "embedded")
	db := filepath.Join(t.TempDir(), "shop.db")
	want := `order 1: completed, charge "ch_1"
order 2: compensated, charge ""
order 3: completed, charge "ch_3"
`
	first, log := output(t, program, "-db", db)
	if first != want {
		t.Errorf("first run:\n%s\nwant:\n%s\nlog:\n%s", first, want, log)
	}
	second, log := output(t, program, "-db", db)
	if second != want {
		t.Errorf("second run:\n%s\nwant:\n%s", second, want)
	}
	if strings.Contains(log, "stock reserved") {
		t.Errorf("the second run ran steps again:\n%s", log)
	}
}

func TestAgentLoopRepeatsNoCallThatWasAnswered(t *testing.T) {
	t.Parallel()
	want := `user:  A weekend in Lisbon, please.
   model, call 1, sees 1 lines
   model, call 2, sees 2 lines
agent: How much may it cost?
user:  400
   model, call 3, sees 4 lines
   model, call 4, sees 5 lines
   model, call 5, sees 5 lines
agent: Hotel Tejo, for 380?
user:  Yes!
   model, call 6, sees 7 lines
agent: Booked: Hotel Tejo
completed
`
	if got, log := output(t, build(t, "agentloop")); got != want {
		t.Errorf("printed:\n%s\nwant:\n%s\nlog:\n%s", got, want, log)
	}
}

func TestRabbitMQStarterAndWorker(t *testing.T) {
	t.Parallel()
	if runtime.GOOS == "windows" {
		t.Skip("skipped: the worker is told to end by SIGTERM")
	}
	flags := []string{"-postgres", testenv.Postgres(t), "-amqp", testenv.AMQP(t), "-prefix", testenv.Prefix(t)}
	program := build(t, "rabbitmq")
	with := func(args ...string) []string { return append(flags[:len(flags):len(flags)], args...) }

	output(t, program, with("migrate")...)

	var log bytes.Buffer
	worker := exec.CommandContext(bounded(t), program, with("work")...)
	worker.Stdout, worker.Stderr = &log, &log
	if err := worker.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	defer func() {
		if !ended {
			_ = worker.Process.Kill()
			_ = worker.Wait()
		}
	}()

	got, _ := output(t, program, with("start")...)
	want := "order 1: completed\norder 2: compensated\norder 3: completed\n"
	if got != want {
		t.Errorf("starter printed:\n%s\nwant:\n%s", got, want)
	}

	if err := worker.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	err := worker.Wait()
	if ended = true; err != nil {
		t.Errorf("the worker did not drain: %v\n%s", err, &log)
	}
}

// build compiles a program of this folder, with the race detector if this test
// has it: what they have in common is then compiled once.
func build(t *testing.T, name string) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), name+".exe")
	args := []string{"build", "-buildvcs=false"}
	if info, ok := debug.ReadBuildInfo(); ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		args = append(args, "-race")
	}
	cmd := exec.CommandContext(bounded(t), "go", append(args, "-o", program, "./"+name)...)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build %s: %v\n%s", name, err, out)
	}
	return program
}

// output runs a program to its end and returns what it printed.
func output(t *testing.T, program string, args ...string) (stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	cmd := exec.CommandContext(bounded(t), program, args...)
	cmd.Stdout, cmd.Stderr = &out, &log
	if err := cmd.Run(); err != nil {
		t.Fatalf("%s: %v\n%s%s", filepath.Base(program), err, &out, &log)
	}
	return out.String(), log.String()
}

// bounded returns a context that ends before the test's patience does.
func bounded(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	t.Cleanup(cancel)
	return ctx
}
