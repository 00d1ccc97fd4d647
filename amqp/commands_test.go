package amqp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
	"github.com/leveret-go/leveret/store/memory"
)

// A sender is a service that knows nothing but AMQP and JSON.
type sender struct {
	t      *testing.T
	ch     *amqp091.Channel
	prefix string
	reply  string
}

func newSender(r *rig) *sender {
	r.t.Helper()
	ch := raw(r.t, testenv.AMQP(r.t))
	q, err := ch.QueueDeclare("", false, true, true, false, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	return &sender{r.t, ch, r.prefix, q.Name}
}

func (s *sender) send(id, replyTo, body string) {
	s.t.Helper()
	err := s.ch.Publish(s.prefix, "command", true, false, amqp091.Publishing{
		MessageId: id, ReplyTo: replyTo, CorrelationId: "of " + id, DeliveryMode: amqp091.Persistent, Body: []byte(body),
		Headers: amqp091.Table{"traceparent": "tp"},
	})
	if err != nil {
		s.t.Fatal(err)
	}
}

// ask sends a command and returns its answer.
func (s *sender) ask(id, body string) (a saga.CommandAnswer) {
	s.t.Helper()
	s.send(id, s.reply, body)
	d := take(s.t, s.ch, s.reply)
	if d.CorrelationId != "of "+id || d.Type != "saga.answer" || d.ContentType != "application/json" {
		s.t.Errorf("%+v", d)
	}
	if err := json.Unmarshal(d.Body, &a); err != nil {
		s.t.Fatal(err)
	}
	return a
}

// commanding runs the rig with a consumer that takes commands, and waits for its
// queue.
func (r *rig) commanding() *sender {
	r.t.Helper()
	r.run(amqp.ConsumerConfig{Commands: 3})
	r.consuming("default")
	s := newSender(r)
	r.commanded()
	return s
}

// commanded waits until somebody takes commands.
func (r *rig) commanded() {
	r.t.Helper()
	eventually(r.t, "somebody takes commands", func() bool {
		ch, err := raw2(r.t)
		if err != nil {
			r.t.Fatal(err)
		}
		defer ch.Close()
		q, err := ch.QueueDeclarePassive(r.prefix+".commands", true, false, false, false, nil)
		return err == nil && q.Consumers > 0
	})
}

// raw2 is a channel that a refusal may end.
func raw2(t *testing.T) (*amqp091.Channel, error) {
	conn, err := amqp091.Dial(testenv.AMQP(t))
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { conn.Close() })
	return conn.Channel()
}

func (r *rig) admin() *amqp.Admin {
	r.t.Helper()
	a, err := amqp.OpenAdmin(within(r.t, patience), amqp.Config{URLs: []string{testenv.AMQP(r.t)}, Prefix: r.prefix, Commands: true})
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = a.Close() })
	return a
}

// dead waits until there is one dead letter, and returns it.
func (r *rig) dead() amqp.DeadLetter {
	r.t.Helper()
	a := r.admin()
	var report *amqp.DeadReport
	eventually(r.t, "there is a dead letter", func() bool {
		var err error
		if report, err = a.Dead(r.t.Context(), amqp.DeadQuery{}); err != nil {
			r.t.Fatal(err)
		}
		return len(report.Letters) > 0
	})
	if len(report.Letters) > 1 {
		r.t.Errorf("%+v", report.Letters)
	}
	return report.Letters[0]
}

func TestCommands(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{})
	s := r.commanding()
	body := `{"command": "start", "saga": "order", "resource": {"type": "order", "id": "7"}}`
	a := s.ask("m1", body)
	if a.Status != saga.CommandDone || a.Execution == nil {
		t.Fatalf("%+v", a)
	}
	x := r.completed(*a.Execution)
	if x.TraceParent != "tp" || x.Resource.ID != "7" {
		t.Errorf("%+v", x)
	}
	if b := s.ask("m1", body); !b.Repeated || *b.Execution != x.ID {
		t.Errorf("again: %+v", b)
	}
	if b := s.ask("m2", fmt.Sprintf(`{"command": "cancel", "execution": %q, "actor": "php", "reason": "test"}`, x.ID)); b.Code != saga.CommandFinished {
		t.Errorf("%+v", b)
	}
	if d := r.dead(); d.Command != "cancel" || d.Reason != "command_refused" || !strings.Contains(d.Error, "finished") || d.MessageID != "m2" {
		t.Errorf("%+v", d)
	}
}

// A command without reply_to is carried out as well; one to a queue that is not
// there is not held up by it, nor are those after it.
func TestCommandsWithoutAnAnswer(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{})
	s := r.commanding()
	for i, replyTo := range []string{"", "nowhere-" + uuid.NewString(), strings.Repeat("x", 255)} {
		id, err := uuid.NewV7()
		if err != nil {
			t.Fatal(err)
		}
		s.send(id.String(), replyTo, fmt.Sprintf(`{"command": "start", "saga": "order", "resource": {"id": "%d"}}`, i))
	}
	if a := s.ask("last", `{"command": "start", "saga": "order", "resource": {"id": "9"}}`); a.Status != saga.CommandDone {
		t.Errorf("%+v", a)
	}
	eventually(t, "all are started", func() bool {
		n := 0
		for i := range 3 {
			list, err := r.engine.Store().ForResource(t.Context(), saga.Resource{ID: fmt.Sprint(i)}, 9)
			if err != nil {
				t.Fatal(err)
			}
			n += len(list)
		}
		return n == 3
	})
}

// What is refused can be sent again, when what it was refused for is mended.
func TestRefusedCommandsAreReplayed(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{}, saga.Step[order]{Name: "a", Await: &saga.Await[order]{Signal: saga.Signal[string]("go")}, Execute: step("a").Execute})
	s := r.commanding()
	id := uuid.New()
	s.send("early", s.reply, fmt.Sprintf(`{"command": "signal", "execution": %q, "signal": "go", "payload": "now"}`, id))
	var a saga.CommandAnswer
	if err := json.Unmarshal(take(t, s.ch, s.reply).Body, &a); err != nil || a.Code != saga.CommandUnknownExecution {
		t.Fatalf("%+v, %v", a, err)
	}
	if d := r.dead(); d.Command != "signal" || d.Size == 0 {
		t.Errorf("%+v", d)
	}
	r.start(&saga.StartOptions{ID: id})
	report, err := r.admin().Replay(t.Context(), amqp.DeadQuery{Reason: "command_refused"})
	if err != nil || len(report.Letters) != 1 {
		t.Fatalf("%+v, %v", report, err)
	}
	if err := json.Unmarshal(take(t, s.ch, s.reply).Body, &a); err != nil || a.ID != "early" || a.Status != saga.CommandDone {
		t.Errorf("%+v, %v", a, err)
	}
	r.completed(id)
}

// halting is a store that fails for a while.
type halting struct {
	*memory.Store
	down  atomic.Bool
	tries atomic.Int64
}

func (s *halting) Create(ctx context.Context, x *store.Execution) error {
	if s.down.Load() {
		s.tries.Add(1)
		return errors.New("connection refused")
	}
	return s.Store.Create(ctx, x)
}

// While the store is away a command is neither refused nor lost: another process,
// or this one later, carries it out.
func TestCommandsWhileTheStoreIsAway(t *testing.T) {
	noLeaks(t)
	st := &halting{Store: memory.New()}
	st.down.Store(true)
	r := newRig(t, amqp.Config{}, saga.Config{Store: st})
	s := r.commanding()
	s.send("m1", s.reply, `{"command": "start", "saga": "order", "resource": {"id": "7"}}`)
	eventually(t, "it was tried", func() bool { return st.tries.Load() > 0 })
	r.end() // in the middle of it
	st.down.Store(false)
	next := newRig(t, amqp.Config{Prefix: r.prefix}, saga.Config{Store: st})
	next.commanding()
	var a saga.CommandAnswer
	if err := json.Unmarshal(take(t, s.ch, s.reply).Body, &a); err != nil || a.Status != saga.CommandDone {
		t.Fatalf("%+v, %v", a, err)
	}
	next.completed(*a.Execution)
}

// A command that crashes its reader, or is as large as can be, holds up nobody.
func TestPoisonousCommands(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{})
	s := r.commanding()
	large := `{"command": "start", "saga": "order", "state": {"done": ["` + strings.Repeat("x", 3<<20) + `"]}}`
	for i, body := range []string{"", "\xff\xfe", strings.Repeat("[", 100_000), large} {
		s.send(fmt.Sprint("m", i), "", body)
	}
	if a := s.ask("last", `{"command": "start", "saga": "order"}`); a.Status != saga.CommandDone {
		t.Errorf("%+v", a)
	}
	a := r.admin()
	var report *amqp.DeadReport
	eventually(t, "all others are put aside", func() bool {
		var err error
		if report, err = a.Dead(t.Context(), amqp.DeadQuery{}); err != nil {
			t.Fatal(err)
		}
		return len(report.Letters) == 4
	})
	i := slices.IndexFunc(report.Letters, func(d amqp.DeadLetter) bool { return d.MessageID == "m3" })
	if i < 0 || report.Letters[i].Size != int64(len(large)) {
		t.Errorf("%+v", report.Letters)
	}
	kept, err := a.Replay(t.Context(), amqp.DeadQuery{All: true})
	if err != nil || !slices.ContainsFunc(kept.Kept, func(k amqp.KeptLetter) bool { return k.MessageID == "m3" && strings.Contains(k.Why, "whole") }) {
		t.Errorf("%+v, %v", kept, err)
	}
}

func TestCommandsAreDeclared(t *testing.T) {
	all, err := amqp.Declarations(amqp.Config{Prefix: "shop", Commands: true})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, d := range all[len(all)-2:] {
		lines = append(lines, d.String())
	}
	want := []string{
		"queue shop.commands durable x-dead-letter-exchange=shop.dead x-queue-type=classic",
		`binding shop.commands to shop key="command"`,
	}
	if !slices.Equal(lines, want) {
		t.Errorf("%q", lines)
	}
	for _, n := range []int{-1, 1001} {
		if _, err := amqp.NewConsumer(nil, nil, amqp.ConsumerConfig{Commands: n}); !errors.Is(err, saga.ErrInvalid) || !strings.Contains(err.Error(), "Commands") {
			t.Error(err)
		}
	}
}

// A process may take commands and nothing else.
func TestCommandsAlone(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{})
	c, err := amqp.NewConsumer(r.broker, r.engine, amqp.ConsumerConfig{Commands: 1})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- r.engine.Run(ctx, c) }()
	ready(t, r.broker)
	s := newSender(r)
	r.commanded()
	if a := s.ask("m1", `{"command": "start", "saga": "order"}`); a.Status != saga.CommandDone {
		t.Errorf("%+v", a)
	}
	cancel()
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(patience):
		t.Error("Run does not end")
	}
}
