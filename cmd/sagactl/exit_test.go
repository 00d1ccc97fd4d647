package main

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

const because = "the bank answers again"

func TestExitCodes(t *testing.T) {
	reason := []string{"-reason", because}
	for _, row := range []struct {
		name   string
		line   string
		more   []string
		code   int
		stderr string
	}{
		{"success", "retry " + failed.String(), reason, exitOK, ""},
		{"no such command", "retire", nil, exitUsage, `no command "retire"`},
		{"no such command of a group", "dead letters", nil, exitUsage, `no command "letters"`},
		{"no such flag", "list -nope", nil, exitUsage, "-nope"},
		{"no such help", "help nope", nil, exitUsage, "nope"},
		{"no number", "list -limit x", nil, exitUsage, "limit"},
		{"no such format", "list -o yaml", nil, exitUsage, "-o is neither"},
		{"too few arguments", "show", nil, exitUsage, "takes 1 arguments"},
		{"too many arguments", "list x", nil, exitUsage, "takes 0 arguments"},
		{"no id", "show 17", nil, exitUsage, "not the id"},
		{"no reason", "retry " + failed.String(), nil, exitUsage, "-reason is required"},
		{"no such status", "list -status done", nil, exitUsage, "-status is none of"},
		{"no such attention", "list -attention x", nil, exitUsage, "-attention is none of"},
		{"no time", "list -created-after yesterday", nil, exitUsage, "-created-after is neither"},
		{"no such dimension", "count -by x", nil, exitUsage, "dimension"},
		{"no scope", "pause", reason, exitUsage, "give one of"},
		{"no such act", "bulk explode -all -yes", reason, exitUsage, "the act is none of"},
		{"no such act to plan", "plan explode " + failed.String(), nil, exitUsage, "the act is none of"},
		{"bulk on nothing", "bulk retry -yes", reason, exitUsage, "or -all"},
		{"erase on nothing", "erase -yes", reason, exitUsage, "or -all"},
		{"purge of nothing", "purge -yes", nil, exitUsage, "say what to delete"},
		{"resolve to nothing", "resolve -yes " + halted.String() + " charge maybe", reason, exitUsage, "either done"},
		{"no store", "list -store=", nil, exitUsage, "no store"},
		{"no broker", "dead list", nil, exitUsage, "no broker"},
		{"not found", "show " + nobody.String(), nil, exitNotFound, "not found"},
		{"act on what is not there", "retry " + nobody.String(), reason, exitNotFound, "not found"},
		{"no such file", "list -store nowhere.db", nil, exitFailure, "there is no file"},
		{"finished", "halt " + completed.String(), reason, exitRefused, "finished"},
		{"not halted", "resume " + atWork.String(), reason, exitRefused, "not halted"},
		{"attempt running", "retry " + atWork.String(), reason, exitRefused, "-force it"},
		{"plan refused", "plan retry " + completed.String(), nil, exitRefused, "finished"},
		{"unfinished rerun", "rerun -yes " + atWork.String(), reason, exitRefused, "not finished"},
		{"changed", "retry -if-revision 1 " + failed.String(), reason, exitChanged, "changed"},
		{"not confirmed", "compensate " + atWork.String(), reason, exitUnconfirmed, "no terminal"},
		{"force is confirmed", "retry -force " + atWork.String(), reason, exitUnconfirmed, "no terminal"},
		{"request", "compensate -yes " + atWork.String(), reason, exitOK, ""},
		{"wait runs out", "compensate -yes -wait -timeout 10ms " + atWork.String(), reason, exitTimeout, "did not show within 10ms"},
		{"edit without force", "edit-state -yes -file - " + halted.String(), reason, exitRefused, "-force takes the state unseen"},
	} {
		t.Run(row.name, func(t *testing.T) {
			k := newTool(t)
			k.answer(`{"order":"4712"}`, row.line, row.more...).want(t, row.code, "", row.stderr)
		})
	}
}

func TestCtrlCHasACodeOfItsOwn(t *testing.T) {
	k := newTool(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if r := k.with(ctx, "", "list"); r.code != exitInterrupted {
		t.Error(r)
	}
}

func TestActsAreInTheAuditTrail(t *testing.T) {
	k := newTool(t)
	for _, row := range []struct {
		act   saga.Act
		line  string
		actor string
	}{
		{saga.ActRetry, "retry " + failed.String(), "ann@desk"},
		{saga.ActHalt, "halt -actor eve " + failed.String(), "eve"},
		{saga.ActMove, "move " + failed.String() + " hotel", "ann@desk"},
		{saga.ActResume, "resume " + failed.String(), "ann@desk"},
		{saga.ActSkipStep, "skip -yes " + failed.String(), "ann@desk"},
		{saga.ActCancel, "cancel -yes " + failed.String(), "ann@desk"},
	} {
		r := k.run(row.line+" -o json", "-reason", because)
		r.want(t, exitOK, failed.String(), "")
		if got := decode[actView](t, r.stdout); got.Act != row.act {
			t.Errorf("%s says that it did %s", row.line, got.Act)
		}
		trail := decode[showView](t, k.run("show -o json "+failed.String()).stdout).Audit
		if last := trail[len(trail)-1]; last.Act != string(row.act) || last.Actor != row.actor || last.Reason != because || !last.At.Equal(noon) {
			t.Errorf("%s: the last entry is %+v", row.line, last)
		}
	}
}

func TestWaitSaysThatTheEffectShowed(t *testing.T) {
	k := newTool(t)
	k.run("retry "+failed.String(), "-reason", because).want(t, exitOK, "", "")
	r := k.run("halt -wait -o json "+failed.String(), "-reason", because)
	r.want(t, exitOK, "", "")
	if v := decode[actView](t, r.stdout); !v.Waited || v.TimedOut || v.Execution.Status != store.StatusHalted {
		t.Errorf("%+v", v)
	}
}

func TestARequestIsDoneOnce(t *testing.T) {
	k := newTool(t)
	k.term.isTerminal = true
	first := k.run("cancel -yes -request r1 "+halted.String(), "-reason", because)
	first.want(t, exitOK, "compensating", "")
	k.run("cancel -yes -request r1 "+halted.String(), "-reason", because).want(t, exitOK, "", "")
	k.run("cancel -yes -request r1 "+halted.String(), "-reason", "another").want(t, exitChanged, "", "request")
}

func TestResolveAndEditState(t *testing.T) {
	k := newTool(t)
	k.run("resolve -yes "+halted.String()+" charge done", "-reason", because).want(t, exitOK, "halted", "")
	k.run("resolve -yes "+halted.String()+" charge done", "-reason", because).want(t, exitRefused, "", "not in doubt")

	file := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(file, []byte(`{"order":"4712"}`), 0o600); err != nil {
		t.Fatal(err)
	}
	k.run("edit-state -yes -force -file "+file+" "+halted.String(), "-reason", because).want(t, exitOK, "halted", "")
	k.run("show -state "+halted.String()).want(t, exitOK, `"order": "4712"`, "")
	k.answer("[]", "edit-state -yes -force -file - "+halted.String(), "-reason", because).want(t, exitUsage, "", "object")
	if r := k.run("show " + halted.String()); len(r.stdout) == 0 || contains(r.stdout, "4712") && !contains(r.stdout, "edit_state") {
		t.Error("the state is shown without -state")
	}
}

func TestRerunLinksBoth(t *testing.T) {
	k := newTool(t)
	r := k.run("rerun -yes -o json -partition other "+completed.String(), "-reason", because)
	r.want(t, exitOK, "", "")
	x := decode[actView](t, r.stdout).Execution
	if x.RerunOf == nil || *x.RerunOf != completed || x.Partition != "other" {
		t.Errorf("%+v", x)
	}
	k.run("show "+completed.String()).want(t, exitOK, "rerun as", "")
}

func TestPauseAndUnpause(t *testing.T) {
	k := newTool(t)
	k.run("pause -saga shop.order -o json", "-reason", because).want(t, exitOK, `"saga": "shop.order"`, "")
	k.run("pauses").want(t, exitOK, "saga/shop.order", "")
	k.run("diagnose "+halted.String()).want(t, exitOK, "halted", "")
	k.run("unpause -saga shop.order", "-reason", because).want(t, exitOK, "unpaused saga/shop.order", "")
	if r := k.run("pauses -o json"); r.code != exitOK || r.stdout != "" {
		t.Error(r)
	}
}

func TestTimesAndSpans(t *testing.T) {
	for s, want := range map[string]time.Duration{"7d": 7 * 24 * time.Hour, "1d12h": 36 * time.Hour, "90m": 90 * time.Minute} {
		if d, err := duration(s); err != nil || d != want {
			t.Errorf("%s is %v, %v", s, d, err)
		}
	}
	for _, s := range []string{"", "d", "-1d", "-5m", "1hd", "x", "1d-2h"} {
		if d, err := duration(s); err == nil {
			t.Errorf("%q is %v", s, d)
		}
	}
	for d, want := range map[time.Duration]string{
		20 * time.Millisecond: "20ms", 3 * time.Second: "3s", 63 * time.Second: "1m3s", 2 * time.Hour: "2h", 50 * time.Hour: "2d2h",
	} {
		if got := span(d); got != want {
			t.Errorf("%v is %s, want %s", d, got, want)
		}
	}
}
