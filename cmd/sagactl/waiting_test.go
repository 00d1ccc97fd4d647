package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/sqlite"
)

type delivery struct{ Address string }

const landed saga.Signal[delivery] = "landed"

func deliveries() saga.Definition[delivery] {
	nothing := func(context.Context, *saga.Run[delivery]) error { return nil }
	return saga.Definition[delivery]{Name: "shop.delivery", Steps: []saga.Step[delivery]{
		{Name: "pack", Execute: nothing, Compensate: nothing},
		{Name: "land", Execute: nothing, Await: &saga.Await[delivery]{
			Signal: landed, Timeout: 240 * time.Hour, Prompt: "Has it landed?", Choices: []saga.Choice{landed.Choice("Yes", delivery{})},
		}},
	}}
}

// waiting puts an execution that awaits a signal into the tool's store.
func waiting(t *testing.T, k *tool) uuid.UUID {
	t.Helper()
	st, err := sqlite.Open(t.Context(), k.store, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	e, err := saga.New(saga.Config{Store: st, Now: func() time.Time { return noon }, SweepEvery: time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	s, err := saga.Register(e, deliveries())
	if err != nil {
		t.Fatal(err)
	}
	parked := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	x, err := s.Start(ctx, saga.Resource{Type: "order", ID: "7"}, delivery{}, &saga.StartOptions{
		ID: id(8), Key: "order-7", Tags: map[string]string{"region": "north"},
		Signals: []saga.StartSignal{{Name: "note", Key: "n1", Payload: "secret"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	ran := make(chan error, 1)
	go func() { ran <- e.Run(ctx) }()
	go func() {
		defer close(parked)
		for ctx.Err() == nil {
			got, err := e.Get(ctx, x.ID)
			if err != nil || got.Status == store.StatusWaiting {
				return
			}
		}
	}()
	<-parked
	for list, err := e.StoredOutlines(ctx); len(list) == 0; list, err = e.StoredOutlines(ctx) {
		if err != nil {
			t.Fatal(err)
		}
	}
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}
	return x.ID
}

func TestWhatWaitsIsShown(t *testing.T) {
	k := newTool(t)
	id := waiting(t, k)
	for _, line := range []string{"show " + id.String(), "live shop.delivery order-7"} {
		r := k.run(line)
		for _, want := range []string{"signal landed since", "until 2026-03-11T12:00:00", "Has it landed? (Yes)", "region=north", "note", "n1"} {
			r.want(t, exitOK, want, "")
		}
		if strings.Contains(r.stdout, "secret") {
			t.Errorf("%s shows what a signal carries", line)
		}
	}
	v := decode[showView](t, k.run("show -state -o json "+id.String()).stdout)
	if v.Gate == nil || v.Gate.Kind != store.GateSignal || len(v.Inbox) != 1 || string(v.Inbox[0].Payload) != `"secret"` || v.Tags["region"] != "north" {
		t.Errorf("%+v", v)
	}
	for _, line := range []string{"list -tag region=north", "list -key order-7", "list -status waiting", "list -key none,order-7 -key order-7"} {
		k.run(line).want(t, exitOK, id.String(), "")
	}
	if r := k.run("list -tag region=south"); strings.Contains(r.stdout, id.String()) {
		t.Error(r.stdout)
	}
	k.run("list -tag region").want(t, exitUsage, "", "NAME=VALUE")
	k.run("list -parent x").want(t, exitUsage, "", "-parent")
	k.run("live shop.delivery nobodys").want(t, exitNotFound, "", "not found")
}

func TestSignalsAndNewTimes(t *testing.T) {
	k := newTool(t)
	id := waiting(t, k)
	reason := []string{"-reason", because}
	k.run("signal "+id.String()+" note -key n1", reason...).want(t, exitOK, "duplicate", "")
	k.answer(`{"x":1}`, "signal "+id.String()+" other -payload -", reason...).want(t, exitOK, "buffered", "")
	k.run("reschedule "+id.String()+" +7d", reason...).want(t, exitOK, "", "")
	k.run("show "+id.String()).want(t, exitOK, "until 2026-03-08T12:00:00", "")
	k.run("reschedule "+id.String()+" 2026-04-01T00:00:00Z", reason...).want(t, exitOK, "", "")
	k.run("show "+id.String()).want(t, exitOK, "until 2026-04-01T00:00:00", "")
	k.run("reschedule "+id.String()+" tomorrow", reason...).want(t, exitUsage, "", "neither")
	k.run("reschedule "+completed.String()+" now", reason...).want(t, exitRefused, "", "finished")
	k.run("reschedule "+halted.String()+" now", reason...).want(t, exitRefused, "", "does not wait")
	k.run("signal-key shop.delivery order-7 landed -payload {}", reason...).want(t, exitOK, "delivered", "")
	k.run("signal-key shop.delivery nobodys landed", reason...).want(t, exitNotFound, "unknown", "no such execution")
	k.run("signal "+completed.String()+" landed", reason...).want(t, exitRefused, "finished", "has ended")
	k.run("signal "+id.String()+" landed").want(t, exitUsage, "", "-reason")
	k.run("signal "+id.String()+" landed -payload {", reason...).want(t, exitUsage, "", "-payload")
	k.run("signal "+id.String()+" LANDED", reason...).want(t, exitUsage, "", "signal name")
	k.run("signal 17 landed", reason...).want(t, exitUsage, "", "not the id")
	k.run("show "+id.String()).want(t, exitOK, because, "")
}

func TestCheckStopsADeployment(t *testing.T) {
	k := newTool(t)
	id := waiting(t, k)
	write := func(list ...saga.Outline) string {
		t.Helper()
		b, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "build.json")
		if err := os.WriteFile(file, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	// The population has executions of sagas that no worker has left an outline of.
	r := k.run("check")
	r.want(t, exitFailure, "unknown_saga", "cannot carry")
	if strings.Contains(r.stdout, id.String()) {
		t.Errorf("what the store's outlines can carry is a problem: %s", r.stdout)
	}
	k.run("outlines").want(t, exitOK, "shop.delivery", "")
	shown := decode[map[string]any](t, k.run("schema shop.delivery").stdout)
	if shown["title"] != "shop.delivery" || shown["type"] != "object" {
		t.Errorf("%v", shown)
	}
	k.run("schema shop.delivery -version 1").want(t, exitOK, "{\n  \"type\"", "")
	k.run("schema shop.delivery -version 7").want(t, exitNotFound, "", "version 7")
	k.run("schema nobody").want(t, exitNotFound, "", "nobody")
	k.run("schema").want(t, exitUsage, "", "takes 1 arguments")

	ledger := func(name string, version int) saga.Outline {
		step := func(name string, undo bool) saga.OutlineStep { return saga.OutlineStep{Name: name, Compensable: undo} }
		return saga.Outline{Saga: name, Version: version, Partition: "shop", Steps: []saga.OutlineStep{step("reserve", true), step("charge", true), step("ship", false)}}
	}
	others := []saga.Outline{ledger("shop.order", 2), ledger("hotel.booking", 2)}
	fine := write(append(others, deliveries().Outline())...)
	k.run("check -outlines "+fine).want(t, exitOK, "problems", "")

	d := deliveries()
	d.Steps = d.Steps[:1]
	bad := write(append(others, d.Outline())...)
	r = k.run("check -outlines " + bad)
	r.want(t, exitFailure, "1 execution of saga \"shop.delivery\" version 1 stands at step \"land\", which the build lacks", "1 problems")
	report := decode[saga.CheckReport](t, k.run("check -o json -outlines "+bad).stdout)
	if len(report.Problems) != 1 || report.Problems[0].Code != saga.CheckUnknownStep || report.Problems[0].Example != id || report.Checked != 4 {
		t.Errorf("%+v", report)
	}
	k.run("check -outlines nowhere.json").want(t, exitUsage, "", "nowhere.json")
	k.answer("{}", "check -outlines -").want(t, exitUsage, "", "list of outlines")
	k.run("check x").want(t, exitUsage, "", "takes 0 arguments")
}
