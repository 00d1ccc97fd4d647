package main

import (
	"strings"
	"testing"
)

func TestWhatIsPrinted(t *testing.T) {
	k := newTool(t)
	if r := k.run("pause -partition hotel", "-reason", "the hotel's API is down"); r.code != exitOK {
		t.Fatal(r)
	}
	for _, row := range []struct{ name, line string }{
		{"list", "list"},
		{"list-attention", "list -attention compensation_failed,in_doubt -limit 1"},
		{"count", "count -by saga,status"},
		{"show-failed", "show " + failed.String()},
		{"show-running", "show -state " + atWork.String()},
		{"diagnose", "diagnose " + halted.String()},
		{"plan-compensate", "plan compensate " + atWork.String()},
		{"plan-resume", "plan resume " + halted.String()},
		{"plan-refused", "plan retry " + completed.String()},
		{"workers", "workers"},
		{"health", "health"},
		{"pauses", "pauses"},
		{"pauses-log", "pauses -log"},
		{"bulk", "bulk -dry-run -reason x -all retry"},
		{"erase", "erase -dry-run -reason x -all"},
		{"purge", "purge -dry-run -completed 1d -failed 2h"},
		{"resume-stuck", "resume-stuck -reason x"},
		{"topology", "topology shop hotel"},
	} {
		for format, ext := range map[string]string{"table": ".txt", "json": ".json"} {
			t.Run(row.name+ext, func(t *testing.T) {
				r := k.run(row.line + " -o " + format)
				if want := map[string]int{"plan-refused": exitRefused, "health": exitAmiss}[row.name]; r.code != want {
					t.Errorf("exit code %d, want %d: %s", r.code, want, r.stderr)
				}
				golden(t, row.name+ext, r.stdout)
			})
		}
	}
}

func TestANarrowTerminalGetsNarrowLines(t *testing.T) {
	k := newTool(t)
	k.term.width = 100
	for _, line := range []string{"list", "show " + failed.String()} {
		r := k.run(line)
		r.want(t, exitOK, "…", "")
		table := r.stdout[strings.LastIndex(r.stdout, "\n\n")+1:]
		for l := range strings.Lines(table) {
			if n := len([]rune(strings.TrimSuffix(l, "\n"))); n > 100 {
				t.Errorf("%d characters: %s", n, l)
			}
		}
	}
}

func TestDataCannotMoveTheCursor(t *testing.T) {
	k := newTool(t)
	for _, line := range []string{"list", "show " + failed.String(), "list -o json"} {
		if r := k.run(line); strings.Contains(r.stdout, "\x1b") || !strings.Contains(r.stdout, "insufficient funds") {
			t.Errorf("%s: %q", line, r.stdout)
		}
	}
}

func TestListGoesOnAfterALimit(t *testing.T) {
	k := newTool(t)
	r := k.run("list -o json -limit 2")
	r.want(t, exitOK, failed.String(), "-after "+failed.String())
	r = k.run("list -o json -after " + failed.String())
	lines := strings.Split(strings.TrimSpace(r.stdout), "\n")
	if len(lines) != 3 || decode[executionView](t, lines[0]).ID != halted {
		t.Errorf("%q", lines)
	}
}
