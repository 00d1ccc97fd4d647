package amqp_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
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

// everyType is a header of every type that AMQP has.
func everyType() amqp091.Table {
	inner := amqp091.Table{"void": nil, "bytes": []byte{0, 0xff}, "deeper": amqp091.Table{"array": []any{int32(1), "two", nil, amqp091.Table{}}}}
	return amqp091.Table{
		"bool": true, "byte": byte(255), "int8": int8(-1), "int16": int16(-1), "int32": int32(-1), "int64": int64(-1),
		"uint16": uint16(65535), "uint32": uint32(1 << 31), "float32": float32(1.5), "float64": 1e300,
		"decimal": amqp091.Decimal{Scale: 2, Value: 12345}, "time": time.Unix(1<<33, 0), "epoch": time.Unix(0, 0),
		"string": "\x00\xff\u202e", "empty": "", "bytes": []byte("\x00\x01"), "void": nil,
		"array":                  []any{true, int64(1), 1.5, "x", []byte("y"), nil, time.Unix(1, 0), amqp091.Decimal{}, []any{[]any{}}, inner},
		"table":                  inner,
		"x-death":                "not an array",
		"saga-epoch":             amqp091.Decimal{Scale: 255, Value: -1},
		"saga-step":              time.Unix(1, 0),
		"saga-name":              []any{"a"},
		"traceparent":            amqp091.Table{"no": "string"},
		"saga-reason":            nil,
		"saga-size":              "big",
		"saga-dead-at":           int64(7),
		strings.Repeat("k", 128): strings.Repeat("v", 2000),
	}
}

// tooDeep is more than amqp091 reads.
func tooDeep() amqp091.Table {
	t := amqp091.Table{}
	for range 100 {
		t = amqp091.Table{"deeper": t}
	}
	return t
}

// TestPoison: whatever comes, it is acknowledged or put aside with a reason, and
// the consumer goes on over the same connection.
func TestPoison(t *testing.T) {
	for _, queues := range []amqp.Queues{amqp.Classic, amqp.Quorum} {
		t.Run(string(queues), func(t *testing.T) {
			noLeaks(t)
			block := make(chan struct{})
			var log logbook
			held := saga.Step[order]{Name: "a", Execute: func(context.Context, *saga.Run[order]) error { <-block; return nil }}
			r := newRig(t, amqp.Config{Queues: queues, Logger: log.logger()}, saga.Config{PickupWithin: time.Hour}, held)
			r.run(amqp.ConsumerConfig{})
			r.consuming("default")
			release := sync.OnceFunc(func() { close(block) })
			t.Cleanup(release)
			id := r.start(nil)
			storeID, err := r.engine.Store().ID(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			good := fmt.Sprintf(`{"v":1,"store":"%s","execution":"%s","saga":"order","step":"a","direction":"execute","epoch":0}`, storeID, id)
			edit := func(old, new string) string { return strings.Replace(good, old, new, 1) }
			ch := raw(t, testenv.AMQP(t))
			bodies := []struct{ name, body, reason string }{ // "": acknowledged
				{"nothing", "", "malformed"},
				{"half of one", good[:70], "malformed"},
				{"two", good + good, "malformed"},
				{"no object", `["` + id.String() + `"]`, "malformed"},
				{"nested deeply", strings.Repeat(`{"a":`, 3000), "malformed"},
				{"invalid UTF-8", "\xff\xfe\x00", "malformed"},
				{"1 MiB", strings.Repeat("x", 1<<20), "malformed"},
				{"1 MiB of JSON", edit(`"v":1`, `"v":1,"more":"`+strings.Repeat("y", 1<<20)+`"`), "malformed"},
				{"no execution", edit(id.String(), ""), "malformed"},
				{"a negative epoch", edit(`"epoch":0`, `"epoch":-1`), "malformed"},
				{"a future version", edit(`"v":1`, `"v":2`), saga.DeadVersion},
				{"a future version of another form", `{"v":99,"execution":{"of":"the future"}}`, saga.DeadVersion},
				{"a future epoch", edit(`"epoch":0`, `"epoch":7`), saga.DeadFutureEpoch},
				{"another store", edit(storeID.String(), uuid.NewString()), saga.DeadForeignStore},
				{"no such execution", edit(id.String(), uuid.NewString()), ""},
				{"a saga that it is not", edit(`"order"`, `"nobody-knows"`), ""},
				{"a step that it is not at", edit(`"a"`, `"nobody-knows"`), ""},
				{"another direction", edit(`"execute","epoch"`, `"compensate","epoch"`), ""},
			}
			for _, headers := range []amqp091.Table{nil, everyType(), tooDeep()} {
				for _, row := range bodies {
					m := amqp091.Publishing{
						Body: []byte(row.body), Headers: headers, MessageId: strings.Repeat("\xff", 255), Type: "\x00", ContentType: "image/png",
						ContentEncoding: "gzip", CorrelationId: strings.Repeat("c", 255), ReplyTo: "nobody", AppId: "\u202e", Priority: 255,
						Timestamp: time.Unix(1<<40, 0), DeliveryMode: 1,
					}
					if err := ch.Publish(r.prefix, "execute.default.order", true, false, m); err != nil {
						t.Fatal(err)
					}
					if row.reason == "" {
						continue
					}
					d := take(t, ch, r.prefix+".dead")
					if d.Headers["saga-reason"] != row.reason || d.Headers["saga-partition"] != "default" {
						t.Errorf("%s: headers %v, want reason %s", row.name, d.Headers, row.reason)
					}
				}
			}
			r.depth(0, 1)
			release()
			r.completed(id)
			r.completed(r.start(nil))
			if strings.Contains(log.String(), "interrupted") || strings.Count(log.String(), "amqp: connected") != 2 {
				t.Errorf("the connections did not live on: %s", log.String())
			}
			if q, err := ch.QueueDeclarePassive(r.prefix+".dead", true, false, false, false, nil); err != nil || q.Messages != 0 {
				t.Errorf("%d more dead letters, %v", q.Messages, err)
			}
		})
	}
}

// TestUnknownToThisBuild: pointers to executions whose saga, or whose step, only
// another build knows are acknowledged; the rows wait for that build.
func TestUnknownToThisBuild(t *testing.T) {
	noLeaks(t)
	prefix, st := testenv.Prefix(t), memory.New()
	r := newRig(t, amqp.Config{Prefix: prefix}, saga.Config{Store: st, PickupWithin: time.Hour})
	other := newRig(t, amqp.Config{Prefix: prefix}, saga.Config{Store: st, PickupWithin: time.Hour}, step("z"))
	mystery, err := saga.Register(other.engine, saga.Definition[order]{Name: "mystery", Steps: []saga.Step[order]{step("a")}})
	if err != nil {
		t.Fatal(err)
	}
	r.run(amqp.ConsumerConfig{})
	r.consuming("default")
	ready(t, other.broker)
	unknown := other.start(nil)
	x, err := mystery.Start(t.Context(), saga.Resource{Type: "order", ID: "1"}, order{}, nil)
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "both pointers are dropped", func() bool { return len(r.events.of(saga.EventPointerUnknown)) == 2 })
	r.depth(0, 1)
	r.completed(r.start(nil))
	for _, id := range []uuid.UUID{unknown, x.ID} {
		if x, err := r.engine.Get(t.Context(), id); err != nil || x.Status != store.StatusRunning || x.Resumes != 0 {
			t.Errorf("the execution: %+v, %v", x, err)
		}
	}
	if n := len(r.events.of(saga.EventPointerDead)); n > 0 {
		t.Errorf("%d pointers were put aside", n)
	}
}
