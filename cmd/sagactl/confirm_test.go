package main

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func contains(s, sub string) bool { return strings.Contains(s, sub) }

// status is that of an execution as the tool shows it.
func (k *tool) status(t *testing.T, id string) store.Status {
	t.Helper()
	r := k.run("show -o json " + id)
	r.want(t, exitOK, "", "")
	return decode[showView](t, r.stdout).Status
}

func TestOnATerminalAPersonIsAsked(t *testing.T) {
	for _, row := range []struct {
		answer string
		code   int
		status store.Status
	}{
		{"y\n", exitOK, store.StatusCompensating},
		{"YES\n", exitOK, store.StatusCompensating},
		{"n\n", exitUnconfirmed, store.StatusHalted},
		{"\n", exitUnconfirmed, store.StatusHalted},
		{"", exitUnconfirmed, store.StatusHalted},
	} {
		k := newTool(t)
		k.term.isTerminal = true
		r := k.answer(row.answer, "compensate "+halted.String(), "-reason", because)
		r.want(t, row.code, "", "compensate "+halted.String()+"? [y/N]")
		if !contains(r.stderr, "reserve") {
			t.Errorf("the plan is not shown: %s", r.stderr)
		}
		if got := k.status(t, halted.String()); got != row.status {
			t.Errorf("%q: it is %s then, want %s", row.answer, got, row.status)
		}
	}
}

func TestWhatIsRefusedIsNotAsked(t *testing.T) {
	k := newTool(t)
	k.term.isTerminal = true
	r := k.answer("y\n", "cancel "+completed.String(), "-reason", because)
	r.want(t, exitRefused, "", "finished")
	if contains(r.stderr, "[y/N]") {
		t.Error(r.stderr)
	}
}

// A changer changes an execution while a person thinks about the answer.
type changer struct{ change func() }

func (c changer) Read(p []byte) (int, error) {
	c.change()
	return copy(p, "y\n"), nil
}

func TestWhatWasPlannedIsWhatIsDone(t *testing.T) {
	k := newTool(t)
	var out, errs strings.Builder
	term := k.term
	term.isTerminal, term.stdout, term.stderr = true, &out, &errs
	term.getenv = func(name string) string { return k.env[name] }
	term.stdin = changer{func() {
		k.run("move "+halted.String()+" hotel", "-reason", because).want(t, exitOK, "", "")
	}}
	if code := run(t.Context(), []string{"compensate", halted.String(), "-reason", because}, &term); code != exitChanged {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if got := k.status(t, halted.String()); got != store.StatusHalted {
		t.Errorf("it is %s", got)
	}
}

func TestCtrlCEndsAQuestion(t *testing.T) {
	k := newTool(t)
	ctx, cancel := context.WithCancel(t.Context())
	in, never := io.Pipe()
	defer never.Close()
	var out, errs strings.Builder
	term := k.term
	term.isTerminal, term.stdin, term.stdout = true, in, &out
	term.stderr = writerFunc(func(p []byte) (int, error) {
		if contains(string(p), "[y/N]") {
			cancel()
		}
		return errs.Write(p)
	})
	term.getenv = func(name string) string { return k.env[name] }
	if code := run(ctx, []string{"cancel", halted.String(), "-reason", because}, &term); code != exitInterrupted {
		t.Errorf("exit code %d: %s", code, errs.String())
	}
	if got := k.status(t, halted.String()); got != store.StatusHalted {
		t.Errorf("it is %s", got)
	}
}

type writerFunc func(p []byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestBulkDoesWhatItHasShown(t *testing.T) {
	k := newTool(t)
	k.term.isTerminal = true
	r := k.answer("y\n", "bulk retry -saga shop.order -o json", "-reason", because)
	r.want(t, exitOK, "", "retry 1 executions? [y/N]")
	report := decode[saga.BulkReport](t, r.stdout)
	if len(report.Items) != 1 || report.Items[0].Execution != failed || report.Counts[saga.BulkDone] != 1 {
		t.Errorf("%+v", report)
	}
	if got := k.status(t, failed.String()); got != store.StatusRunning {
		t.Errorf("it is %s", got)
	}
	r = k.answer("n\n", "bulk cancel -unfinished", "-reason", because)
	r.want(t, exitUnconfirmed, "", "nothing was done")
	if got := k.status(t, halted.String()); got != store.StatusHalted {
		t.Errorf("it is %s", got)
	}
}

func TestNothingToDoIsNotAsked(t *testing.T) {
	k := newTool(t)
	k.term.isTerminal = true
	r := k.answer("", "bulk resume -status failed", "-reason", because)
	r.want(t, exitOK, "1 skipped", "")
}

func TestErase(t *testing.T) {
	k := newTool(t)
	k.run("erase -finished-before 1d", "-reason", because).want(t, exitUnconfirmed, "", "-yes")
	k.run("erase -yes -saga shop.order -finished-before 1d", "-reason", because).want(t, exitOK, "1 done", "")
	k.run("show -state "+completed.String()).want(t, exitOK, "erased", "")
	k.run("rerun -yes "+completed.String(), "-reason", because).want(t, exitRefused, "", "erased")
}

func TestPurgeArchives(t *testing.T) {
	k := newTool(t)
	file := filepath.Join(t.TempDir(), "archive.ndjson")
	k.run("purge -completed 1d").want(t, exitUnconfirmed, "", "-yes")
	k.run("purge -yes -completed 1d -archive "+file).want(t, exitOK, "completed  1", "")
	b, err := os.ReadFile(file)
	if err != nil || !contains(string(b), completed.String()) {
		t.Errorf("%s, %v", b, err)
	}
	k.run("show "+completed.String()).want(t, exitNotFound, "", "not found")
	k.run("purge -yes -failed 1h -archive "+file).want(t, exitFailure, "", "exists") // it is never written over
	if got := k.status(t, failed.String()); got != store.StatusFailed {
		t.Errorf("it is %s", got)
	}
}
