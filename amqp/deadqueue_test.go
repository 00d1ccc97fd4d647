package amqp_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/amqp"
	"github.com/leveret-go/leveret/internal/testenv"
	"github.com/leveret-go/leveret/saga"
)

// graveyard is a broker with a queue of dead letters.
type graveyard struct {
	t      *testing.T
	prefix string
	admin  *amqp.Admin
	ch     *amqp091.Channel
}

func newGraveyard(t *testing.T, queues amqp.Queues) *graveyard {
	t.Helper()
	g := &graveyard{t: t, prefix: testenv.Prefix(t), ch: raw(t, testenv.AMQP(t))}
	g.admin = openAdmin(t, amqp.Config{Prefix: g.prefix, Queues: queues})
	if err := g.admin.Declare(t.Context(), "default"); err != nil {
		t.Fatal(err)
	}
	if err := g.ch.Confirm(false); err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *graveyard) publish(exchange, key string, m amqp091.Publishing) {
	g.t.Helper()
	confirm, err := g.ch.PublishWithDeferredConfirm(exchange, key, true, false, m)
	if err != nil {
		g.t.Fatal(err)
	}
	if !confirm.Wait() {
		g.t.Fatal("the broker refused a message")
	}
}

// bury puts a body among the dead letters, as a consumer does.
func (g *graveyard) bury(reason, partition string, body []byte) {
	g.publish(g.prefix+".dead", "", amqp091.Publishing{
		MessageId: uuid.NewString(), Timestamp: time.Now(), AppId: "shop", Body: body,
		Headers: amqp091.Table{
			"saga-reason": reason, "saga-partition": partition, "saga-message": "m1",
			"saga-dead-at": time.Now().UTC().Format(time.RFC3339),
		},
	})
}

// reject has a body put among the dead letters by the broker itself.
func (g *graveyard) reject(body []byte) {
	g.t.Helper()
	g.publish(g.prefix, "execute.default.order", amqp091.Publishing{Body: body})
	var d amqp091.Delivery
	eventually(g.t, "the message comes", func() (ok bool) {
		var err error
		if d, ok, err = g.ch.Get(g.prefix+".execute.default", false); err != nil {
			g.t.Fatal(err)
		}
		return ok
	})
	if err := d.Nack(false, false); err != nil {
		g.t.Fatal(err)
	}
}

func (g *graveyard) ready(queue string, want int) {
	g.t.Helper()
	eventually(g.t, fmt.Sprintf("%d are ready in %s", want, queue), func() bool {
		q, err := g.ch.QueueDeclarePassive(g.prefix+queue, true, false, false, false, nil)
		if err != nil {
			g.t.Fatal(err)
		}
		return q.Messages == want
	})
}

func (g *graveyard) list(q amqp.DeadQuery) *amqp.DeadReport {
	g.t.Helper()
	r, err := g.admin.Dead(g.t.Context(), q)
	if err != nil {
		g.t.Fatal(err)
	}
	return r
}

func body(p saga.Pointer) []byte {
	b, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return b
}

func TestDeadLettersAreListed(t *testing.T) {
	for _, queues := range []amqp.Queues{amqp.Classic, amqp.Quorum} {
		t.Run(string(queues), func(t *testing.T) {
			noLeaks(t)
			g := newGraveyard(t, queues)
			began := time.Now().Add(-time.Second).Truncate(time.Second)
			p := pointer()
			g.bury("malformed", "default", []byte("\x1b[31m\xffred\u202e\n"+strings.Repeat("x", 5000)))
			g.bury(saga.DeadForeignStore, "eu", body(p))
			g.reject(body(p))
			g.ready(".dead", 3)
			g.publish(g.prefix+".dead", "", amqp091.Publishing{Body: []byte("{}"), Headers: amqp091.Table{"saga-reason": int64(3), "x-death": "odd"}})
			g.ready(".dead", 4)

			r := g.list(amqp.DeadQuery{})
			if len(r.Letters) != 4 || r.Seen != 4 || r.Unseen != 0 || len(r.Kept) != 0 {
				t.Fatalf("listed: %+v", r)
			}
			bad, foreign, rejected, odd := r.Letters[0], r.Letters[1], r.Letters[2], r.Letters[3]
			if bad.Reason != "malformed" || bad.Partition != "default" || bad.MessageID != "m1" || bad.App != "shop" || bad.Pointer != nil || bad.Size < 5000 ||
				len(bad.Body) > 1100 || !strings.HasPrefix(bad.Body, `\x1b[31m\xffred\u202e\nxxx`) {
				t.Errorf("the malformed one: %+v", bad)
			}
			if foreign.Reason != saga.DeadForeignStore || foreign.Partition != "eu" || foreign.Pointer == nil || foreign.Pointer.Execution != p.Execution ||
				foreign.DeadAt.Before(began) || foreign.SentAt.Before(began) || foreign.Body != string(body(p)) {
				t.Errorf("the foreign one: %+v, pointer %+v", foreign, foreign.Pointer)
			}
			if rejected.Reason != "rejected" || rejected.Partition != "default" || rejected.Pointer == nil || rejected.DeadAt.Before(began) || !rejected.SentAt.IsZero() {
				t.Errorf("the rejected one: %+v", rejected)
			}
			if odd.Reason != "" || odd.Partition != "" || odd.Pointer != nil || odd.ID == "" {
				t.Errorf("the odd one: %+v", odd)
			}

			for name, q := range map[string]amqp.DeadQuery{
				"id":        {IDs: []string{foreign.ID}},
				"reason":    {Reason: saga.DeadForeignStore},
				"partition": {Partition: "eu"},
				"both":      {Saga: "order", Partition: "eu", Before: time.Now().Add(time.Minute)},
			} {
				if r := g.list(q); len(r.Letters) != 1 || r.Letters[0].ID != foreign.ID {
					t.Errorf("by %s: %+v", name, r)
				}
			}
			if r := g.list(amqp.DeadQuery{Before: began}); len(r.Letters) != 0 || r.Seen != 4 {
				t.Errorf("before all: %+v", r)
			}
			if r := g.list(amqp.DeadQuery{Scan: 3}); len(r.Letters) != 3 || r.Unseen != 1 {
				t.Errorf("the first 3: %+v", r)
			}
			g.ready(".dead", 4)
		})
	}
}

// TestLookingLosesNothing: however often the letters are looked at. Where the
// queue counts that, they are put there anew before the count is dangerous.
func TestLookingLosesNothing(t *testing.T) {
	noLeaks(t)
	g := newGraveyard(t, amqp.Quorum)
	want := map[string]string{}
	for range 5 {
		g.bury(saga.DeadFutureEpoch, "default", body(pointer()))
	}
	g.reject(body(pointer()))
	g.ready(".dead", 6)
	for _, l := range g.list(amqp.DeadQuery{}).Letters {
		want[l.ID] = l.Reason + l.Partition + l.DeadAt.String() + l.Body
	}
	for range 25 {
		r := g.list(amqp.DeadQuery{})
		if len(r.Letters) != 6 {
			t.Fatalf("%d letters, want 6", len(r.Letters))
		}
		for _, l := range r.Letters {
			if got := l.Reason + l.Partition + l.DeadAt.String() + l.Body; got != want[l.ID] {
				t.Fatalf("letter %s is %q, was %q", l.ID, got, want[l.ID])
			}
		}
		g.ready(".dead", 6)
	}
	for range 6 {
		d := take(t, g.ch, g.prefix+".dead")
		if n, _ := d.Headers["x-delivery-count"].(int64); n > 6 {
			t.Errorf("a letter was returned %d times", n)
		}
	}
}

func TestReplay(t *testing.T) {
	noLeaks(t)
	g := newGraveyard(t, amqp.Classic)
	good, rejected, newer, lost := pointer(), pointer(), pointer(), pointer()
	newer.V = saga.PointerVersion + 1
	g.bury("malformed", "default", []byte("nonsense"))
	g.bury(saga.DeadFutureEpoch, "default", body(good))
	g.bury(saga.DeadVersion, "default", body(newer))
	g.bury(saga.DeadFutureEpoch, "nowhere", body(lost))
	g.bury(saga.DeadFutureEpoch, "a.b", body(lost))
	g.reject(body(rejected))
	g.ready(".dead", 6)

	for name, q := range map[string]amqp.DeadQuery{"nothing": {}, "scan": {All: true, Scan: -1}} {
		if _, err := g.admin.Replay(t.Context(), q); !errors.Is(err, saga.ErrInvalid) {
			t.Errorf("replay %s: %v, want ErrInvalid", name, err)
		}
	}
	r, err := g.admin.Replay(t.Context(), amqp.DeadQuery{All: true})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Letters) != 2 || r.Seen != 6 {
		t.Errorf("replayed: %+v", r)
	}
	var why []string
	for _, k := range r.Kept {
		why = append(why, k.Why)
	}
	for i, want := range []string{"no pointer", "newer build", "no queue takes", "which partition"} {
		if i >= len(why) || !strings.Contains(why[i], want) {
			t.Errorf("kept %d: %q, want %q in it", i, why, want)
		}
	}
	g.ready(".dead", 4)
	g.ready(".execute.default", 2)
	for _, want := range []saga.Pointer{good, rejected} {
		d := take(t, g.ch, g.prefix+".execute.default")
		want.TraceParent = ""
		if got, err := amqp.Decode(d.Body); err != nil || got != want || d.RoutingKey != "execute.default.order" {
			t.Errorf("replayed %+v, %v, want %+v", got, err, want)
		}
	}
}

// TestReplayOfWhatDiesAgain: it ends, with as many dead letters as before.
func TestReplayOfWhatDiesAgain(t *testing.T) {
	noLeaks(t)
	r := newRig(t, amqp.Config{}, saga.Config{PickupWithin: time.Hour})
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	for range 20 {
		if err := r.broker.Publish(t.Context(), "default", pointer()); err != nil { // of another store
			t.Fatal(err)
		}
	}
	a := openAdmin(t, amqp.Config{Prefix: r.prefix})
	dead := func() (n int) {
		q, err := a.Dead(t.Context(), amqp.DeadQuery{Reason: saga.DeadForeignStore})
		if err != nil {
			t.Fatal(err)
		}
		return len(q.Letters)
	}
	eventually(t, "all are dead", func() bool { return dead() == 20 })
	rep, err := a.Replay(t.Context(), amqp.DeadQuery{Reason: saga.DeadForeignStore})
	if err != nil || len(rep.Letters) != 20 || rep.Seen != 20 {
		t.Errorf("replayed %d of %d, %v, want 20 of 20", len(rep.Letters), rep.Seen, err)
	}
	eventually(t, "all are dead again", func() bool { return dead() == 20 })
}

func TestPurge(t *testing.T) {
	noLeaks(t)
	g := newGraveyard(t, amqp.Classic)
	for i := range 10 {
		g.bury([]string{"malformed", saga.DeadFutureEpoch}[i%2], "default", fmt.Appendf(nil, "%d", i))
	}
	g.ready(".dead", 10)
	if _, err := g.admin.Purge(t.Context(), amqp.DeadQuery{}); !errors.Is(err, saga.ErrInvalid) {
		t.Errorf("purge of what was not selected: %v", err)
	}
	first := g.list(amqp.DeadQuery{}).Letters[0]
	r, err := g.admin.Purge(t.Context(), amqp.DeadQuery{IDs: []string{first.ID}})
	if err != nil || len(r.Letters) != 1 || r.Letters[0].Body != "0" {
		t.Errorf("purge of one: %+v, %v", r, err)
	}
	g.ready(".dead", 9)
	if r, err = g.admin.Purge(t.Context(), amqp.DeadQuery{Reason: saga.DeadFutureEpoch}); err != nil || len(r.Letters) != 5 {
		t.Errorf("purge by reason: %+v, %v", r, err)
	}
	left := g.list(amqp.DeadQuery{})
	if len(left.Letters) != 4 {
		t.Errorf("left: %+v", left)
	}
	for _, l := range left.Letters {
		if l.Reason != "malformed" || l.ID == first.ID {
			t.Errorf("left: %+v", l)
		}
	}
	if r, err = g.admin.Purge(t.Context(), amqp.DeadQuery{All: true}); err != nil || len(r.Letters) != 4 {
		t.Errorf("purge of all: %+v, %v", r, err)
	}
	g.ready(".dead", 0)
}

// TestReplayCutInTheMiddle: each pointer is in a queue afterwards, in one or in
// both of them.
func TestReplayCutInTheMiddle(t *testing.T) {
	for _, how := range []string{"cut", "cancel"} {
		t.Run(how, func(t *testing.T) {
			noLeaks(t)
			g := newGraveyard(t, amqp.Quorum)
			want := map[uuid.UUID]bool{}
			for range 100 {
				p := pointer()
				want[p.Execution] = true
				g.bury(saga.DeadFutureEpoch, "default", body(p))
			}
			g.ready(".dead", 100)
			proxy := newProxy(t, hostOf(testenv.AMQP(t)))
			a := openAdmin(t, amqp.Config{URLs: []string{"amqp://guest:guest@" + proxy.addr() + "/"}, Prefix: g.prefix, Queues: amqp.Quorum})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			type answer struct {
				r   *amqp.DeadReport
				err error
			}
			done := make(chan answer, 1)
			go func() {
				r, err := a.Replay(ctx, amqp.DeadQuery{All: true})
				done <- answer{r, err}
			}()
			eventually(t, "some are replayed", func() bool {
				ready, _, err := g.admin.Depth(t.Context(), "default")
				return err == nil && ready > 10
			})
			if how == "cut" {
				proxy.cut()
			} else {
				cancel()
			}
			got := <-done
			if got.err == nil {
				t.Logf("all of it was through before the %s", how)
			}
			t.Logf("%d were replayed: %v", len(got.r.Letters), got.err)
			seen := map[uuid.UUID]bool{}
			for _, queue := range []string{".dead", ".execute.default"} {
				// What the lost connection held comes back.
				eventually(t, "everything is there", func() bool {
					d, ok, err := g.ch.Get(g.prefix+queue, true)
					if err != nil {
						t.Fatal(err)
					}
					if p, err := amqp.Decode(d.Body); ok && err == nil {
						seen[p.Execution] = true
					}
					return !ok && (queue == ".dead" || len(seen) == len(want))
				})
			}
		})
	}
}
