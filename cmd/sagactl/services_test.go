package main

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

// withBroker gives the tool a broker and a prefix of its own.
func withBroker(t *testing.T) (*tool, *amqp091.Channel) {
	t.Helper()
	url := testenv.AMQP(t)
	k := newTool(t)
	k.term.now = nil
	k.env["LEVERET_AMQP"], k.env["LEVERET_PREFIX"] = url, testenv.Prefix(t)
	conn, err := amqp091.Dial(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ch, err := conn.Channel()
	if err != nil {
		t.Fatal(err)
	}
	if err := ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return k, ch
}

// bury puts a body among the dead letters, as a consumer does.
func (k *tool) bury(ch *amqp091.Channel, reason string, body []byte) {
	k.t.Helper()
	confirm, err := ch.PublishWithDeferredConfirm(k.env["LEVERET_PREFIX"]+".dead", "", true, false, amqp091.Publishing{
		MessageId: uuid.NewString(), Timestamp: time.Now(), Body: body, Headers: amqp091.Table{
			"saga-reason": reason, "saga-partition": "shop", "saga-dead-at": time.Now().UTC().Format(time.RFC3339),
		},
	})
	if err != nil || !confirm.Wait() {
		k.t.Fatal("not published", err)
	}
}

func (k *tool) dead(t *testing.T) amqp.DeadReport {
	t.Helper()
	r := k.run("dead list -o json")
	r.want(t, exitOK, "", "")
	return decode[amqp.DeadReport](t, r.stdout)
}

func pointer() []byte {
	b, err := json.Marshal(saga.Pointer{
		V: 1, Store: uuid.New(), Execution: failed, Saga: "shop.order", Step: "charge", Direction: saga.Direction("execute"),
	})
	if err != nil {
		panic(err)
	}
	return b
}

func TestTopologyIsCreatedAndChecked(t *testing.T) {
	k, _ := withBroker(t)
	prefix := k.env["LEVERET_PREFIX"]
	k.run("topology -check shop").want(t, exitAmiss, "missing", "4 of 6 are missing or differ")
	k.run("topology -create shop").want(t, exitUnconfirmed, "", "no terminal")

	k.term.isTerminal = true
	k.answer("n\n", "topology -create shop").want(t, exitUnconfirmed, "", prefix+".execute.shop")
	k.run("topology -check shop").want(t, exitAmiss, "missing", "are missing")
	k.answer("y\n", "topology -create shop").want(t, exitOK, "Declared for shop", "[y/N]")
	k.run("topology -check shop").want(t, exitOK, "ok", "")
	k.run("topology -check -commands shop").want(t, exitAmiss, prefix+".commands", "1 of 8")
	k.answer("y\n", "topology -create -commands shop").want(t, exitOK, "Declared for shop", "[y/N]")
	k.run("topology -check -commands shop").want(t, exitOK, prefix+".commands", "")
	k.run("topology -check -queues quorum shop").want(t, exitAmiss, "differs", "differ")
	for line := range strings.Lines(k.run("topology -check -o json shop").stdout) {
		if f := decode[amqp.Finding](t, line); f.Found != amqp.FoundOK && f.Kind != amqp.KindBinding {
			t.Errorf("%s", line)
		}
	}
	k.run("topology -check -amqp amqp://nobody:nothing@"+k.env["LEVERET_AMQP"][strings.Index(k.env["LEVERET_AMQP"], "@")+1:]).
		want(t, exitFailure, "", "username or password not allowed")
}

func TestDeadLetters(t *testing.T) {
	k, ch := withBroker(t)
	k.run("topology -create -yes shop").want(t, exitOK, "", "")
	k.bury(ch, "malformed", []byte("\x1b[2Jnonsense"))
	k.bury(ch, saga.DeadForeignStore, pointer())

	r := k.run("dead list")
	r.want(t, exitOK, failed.String(), "")
	if !contains(r.stdout, "foreign_store") || !contains(r.stdout, "nonsense") || contains(r.stdout, "\x1b") {
		t.Errorf("%q", r.stdout)
	}
	report := k.dead(t)
	if len(report.Letters) != 2 || report.Seen != 2 {
		t.Fatalf("%+v", report)
	}

	k.run("dead replay -yes").want(t, exitUsage, "", "or -all")
	k.run("dead replay -all").want(t, exitUnconfirmed, "", "no terminal")
	k.term.isTerminal = true
	k.answer("n\n", "dead replay -all").want(t, exitUnconfirmed, "", "replay 2 dead letters? [y/N]")
	k.answer("y\n", "dead replay -all").want(t, exitAmiss, "kept", "1 letters were kept")
	d, ok, err := ch.Get(k.env["LEVERET_PREFIX"]+".execute.shop", true)
	if err != nil || !ok || !contains(string(d.Body), failed.String()) {
		t.Errorf("not replayed: %v %v %s", ok, err, d.Body)
	}
	k.answer("", "dead purge -cause foreign_store").want(t, exitOK, "", "")
	if left := k.dead(t); len(left.Letters) != 1 || left.Letters[0].Reason != "malformed" {
		t.Fatalf("%+v", left)
	}
	k.answer("y\n", "dead purge -id "+k.dead(t).Letters[0].ID).want(t, exitOK, "malformed", "purge 1 dead letters? [y/N]")
	if left := k.dead(t); len(left.Letters) != 0 {
		t.Errorf("%+v", left)
	}
}

func TestWhatIsStuckIsPublishedAgain(t *testing.T) {
	k, ch := withBroker(t)
	k.run("topology -create -yes shop").want(t, exitOK, "", "")
	k.run("diagnose "+atWork.String()).want(t, exitOK, "no_consumer", "")
	deliveries, err := ch.Consume(k.env["LEVERET_PREFIX"]+".execute.shop", "", true, false, false, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := k.run("resume-stuck -o json", "-reason", because)
	r.want(t, exitOK, atWork.String(), "")
	if d := <-deliveries; !contains(string(d.Body), atWork.String()) {
		t.Errorf("%s was published after %s", d.Body, r.stdout)
	}
}

func TestABrokerThatIsAwayIsSaid(t *testing.T) {
	k := newTool(t)
	k.env["LEVERET_AMQP"] = "amqp://ann:s3cr3t@127.0.0.1:1/"
	k.run("retry "+failed.String(), "-reason", because).want(t, exitOK, "running", "") // it needs none
	k.run("diagnose "+failed.String()).want(t, exitOK, "broker_down", "the broker cannot be reached")
}

func TestPostgresIsMigrated(t *testing.T) {
	dsn := testenv.Postgres(t)
	k := newTool(t)
	k.term.now = nil
	k.env["LEVERET_STORE"] = dsn
	k.run("list").want(t, exitFailure, "", "schema is missing")
	k.run("migrate").want(t, exitUnconfirmed, "", "no terminal")
	k.term.isTerminal = true
	k.answer("n\n", "migrate").want(t, exitUnconfirmed, "", "The schema has version 0")
	k.run("migrate -print").want(t, exitOK, "CREATE TABLE", "")
	k.answer("y\n", "migrate").want(t, exitOK, "The schema is that of this build", "migrate it? [y/N]")
	k.answer("", "migrate").want(t, exitOK, "The schema is that of this build", "") // nothing to ask about
	k.run("migrate -print").want(t, exitOK, "nothing to migrate", "")
	k.run("list").want(t, exitOK, "ID", "")
	k.run("list -schema other").want(t, exitFailure, "", "schema is missing")
	k.run("migrate -print -from 1").want(t, exitOK, "ALTER TABLE", "")
	k.run("show "+failed.String()).want(t, exitNotFound, "", "not found")
}

func TestAMigrationIsPrintedWithoutAStore(t *testing.T) {
	k := newTool(t)
	k.env["LEVERET_STORE"] = ""
	k.run("migrate -print").want(t, exitOK, "CREATE TABLE", "")
	k.run("migrate -from 1").want(t, exitUsage, "", "-print")
	k.env["LEVERET_STORE"] = k.store
	k.run("migrate -print").want(t, exitUsage, "", "is for PostgreSQL")
	k.run("migrate").want(t, exitOK, "The schema is that of this build", "")
}
