package amqp_test

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

func openAdmin(t *testing.T, cfg amqp.Config) *amqp.Admin {
	t.Helper()
	if cfg.URLs == nil {
		cfg.URLs = []string{testenv.AMQP(t)}
	}
	a, err := amqp.OpenAdmin(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	})
	return a
}

func TestDeclarationsAsJSON(t *testing.T) {
	all, err := amqp.Declarations(amqp.Config{Prefix: "shop"}, "eu")
	if err != nil {
		t.Fatal(err)
	}
	got, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	const want = `[{"kind":"exchange","name":"shop.dead","type":"fanout"},` +
		`{"kind":"queue","name":"shop.dead","arguments":{"x-queue-type":"classic"}},` +
		`{"kind":"binding","name":"shop.dead","exchange":"shop.dead"},` +
		`{"kind":"exchange","name":"shop","type":"topic"},` +
		`{"kind":"queue","name":"shop.execute.eu","arguments":{"x-dead-letter-exchange":"shop.dead","x-queue-type":"classic"}},` +
		`{"kind":"binding","name":"shop.execute.eu","exchange":"shop","key":"execute.eu.#"}]`
	if string(got) != want {
		t.Errorf("declarations %s, want %s", got, want)
	}
	if _, err := amqp.Declarations(amqp.Config{}, "a.b"); !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "a.b") {
		t.Errorf("a partition with a dot: %v", err)
	}
	if _, err := amqp.Declarations(amqp.Config{Prefix: "A b"}); !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "Prefix") {
		t.Errorf("a bad prefix: %v", err)
	}
}

func TestAdminChecksAndDeclares(t *testing.T) {
	noLeaks(t)
	prefix := testenv.Prefix(t)
	a := openAdmin(t, amqp.Config{Prefix: prefix})
	check := func(a *amqp.Admin, want ...amqp.Found) []amqp.Finding {
		t.Helper()
		findings, err := a.Check(t.Context(), "eu")
		if err != nil {
			t.Fatal(err)
		}
		var got []amqp.Found
		for _, f := range findings {
			got = append(got, f.Found)
		}
		if !slices.Equal(got, want) {
			t.Errorf("found %v, want %v", findings, want)
		}
		return findings
	}
	const ok, missing, differs, unknown = amqp.FoundOK, amqp.FoundMissing, amqp.FoundDiffers, amqp.FoundUnknown
	check(a, missing, missing, unknown, missing, missing, unknown)
	check(a, missing, missing, unknown, missing, missing, unknown) // it made nothing
	if _, _, err := a.Depth(t.Context(), "eu"); !errors.Is(err, amqp.ErrMisconfigured) {
		t.Errorf("Depth of no queue: %v, want ErrMisconfigured", err)
	}
	if _, err := a.Dead(t.Context(), amqp.DeadQuery{}); !errors.Is(err, amqp.ErrMisconfigured) {
		t.Errorf("Dead of no queue: %v, want ErrMisconfigured", err)
	}
	for range 2 {
		if err := a.Declare(t.Context(), "eu"); err != nil {
			t.Fatal(err)
		}
	}
	check(a, ok, ok, unknown, ok, ok, unknown)

	// Pointers find their way.
	b := open(t, amqp.Config{Prefix: prefix, Topology: amqp.Verify})
	ready(t, b)
	if err := b.Publish(t.Context(), "eu", pointer()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "a pointer is ready", func() bool {
		ready, consumers, err := a.Depth(t.Context(), "eu")
		return err == nil && ready == 1 && consumers == 0
	})
	if f := check(a, ok, ok, unknown, ok, ok, unknown)[4]; f.Ready != 1 || f.Consumers != 0 {
		t.Errorf("found %+v, want 1 ready", f)
	}

	other := openAdmin(t, amqp.Config{Prefix: prefix, Queues: amqp.Quorum})
	for _, f := range check(other, ok, differs, unknown, ok, differs, unknown) {
		if f.Found == differs && !strings.Contains(f.Detail, "inequivalent arg") {
			t.Errorf("found %+v, want what differs", f)
		}
	}
	err := other.Declare(t.Context(), "eu")
	if !errors.Is(err, amqp.ErrMisconfigured) || !strings.Contains(err.Error(), prefix+".dead") || !strings.Contains(err.Error(), prefix+".execute.eu") {
		t.Errorf("Declare with other arguments: %v, want both queues named", err)
	}

	if err := raw(t, testenv.AMQP(t)).ExchangeDeclare(prefix+"x", "direct", true, false, false, false, nil); err != nil {
		t.Fatal(err)
	}
	findings, err := openAdmin(t, amqp.Config{Prefix: prefix + "x"}).Check(t.Context())
	if err != nil || findings[3].Found != differs || !strings.Contains(findings[3].Detail, "topic") {
		t.Errorf("an exchange of another type: %+v, %v", findings, err)
	}
}

func TestAdminOfNoBroker(t *testing.T) {
	noLeaks(t)
	if _, err := amqp.OpenAdmin(t.Context(), amqp.Config{}); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("without URLs: %v, want ErrInvalid", err)
	}
	if _, err := amqp.OpenAdmin(t.Context(), amqp.Config{URLs: []string{"amqp://u:s3cr3t@127.0.0.1:1/"}}); err == nil || strings.Contains(err.Error(), "s3cr3t") {
		t.Errorf("nobody there: %v", err)
	}
	proxy := newProxy(t, hostOf(testenv.AMQP(t)))
	a := openAdmin(t, amqp.Config{URLs: []string{"amqp://guest:guest@" + proxy.addr() + "/"}, Prefix: testenv.Prefix(t)})
	proxy.cut()
	if err := a.Declare(t.Context(), "eu"); err == nil {
		t.Error("Declare over a lost connection: no error")
	}
	if f, err := a.Check(t.Context()); err == nil {
		t.Errorf("Check over a lost connection: %v", f)
	}
	if _, err := a.Dead(t.Context(), amqp.DeadQuery{}); err == nil {
		t.Error("Dead over a lost connection: no error")
	}
}
