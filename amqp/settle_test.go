package amqp

import (
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	amqp091 "github.com/rabbitmq/amqp091-go"

	"github.com/leveret-go/leveret/saga"
)

// An acknowledger counts.
type acknowledger struct{ n atomic.Int32 }

func (a *acknowledger) Ack(uint64, bool) error        { a.n.Add(1); return nil }
func (a *acknowledger) Nack(uint64, bool, bool) error { a.n.Add(1); return nil }
func (a *acknowledger) Reject(uint64, bool) error     { a.n.Add(1); return nil }

func TestADeliveryIsSettledOnce(t *testing.T) {
	for range 100 {
		a := &acknowledger{}
		in := &intake{p: &partition{slots: saga.NewSlots(1)}, round: 3}
		d := &delivery{in: in, d: amqp091.Delivery{Acknowledger: a}, round: 3}
		in.p.slots.TryAcquire()
		var wg sync.WaitGroup
		wg.Go(func() { d.settle(d.ack) })
		wg.Go(func() { d.settle(d.drop) })
		wg.Go(func() { d.leave(true, d.ack) })
		wg.Wait()
		if n := a.n.Load(); n != 1 {
			t.Fatalf("settled %d times", n)
		}
		if in.p.slots.Free() != 1 || in.credit > 1 {
			t.Fatalf("%d slots are free, credit is %d", in.p.slots.Free(), in.credit)
		}
	}
}

func TestADeliveryThatIsLeftAloneIsNotSettled(t *testing.T) {
	a := &acknowledger{}
	in := &intake{p: &partition{slots: saga.NewSlots(1)}}
	d := &delivery{in: in, d: amqp091.Delivery{Acknowledger: a}}
	in.p.slots.TryAcquire()
	d.leave(true, nil)
	if a.n.Load() != 0 || in.credit != 0 {
		t.Errorf("settled %d times, credit %d", a.n.Load(), in.credit)
	}
}

// What a paused engine did not look at is kept for the intake, which puts it back
// when there is no consumer any more that it could come to.
func TestARefusedDeliveryIsKept(t *testing.T) {
	a := &acknowledger{}
	in := &intake{p: &partition{slots: saga.NewSlots(1)}, round: 3}
	d := &delivery{in: in, d: amqp091.Delivery{Acknowledger: a}, round: 3, refused: true}
	in.p.slots.TryAcquire()
	d.leave(true, nil)
	if a.n.Load() != 0 || in.credit != 0 || len(in.back) != 1 || in.back[0].round != 3 {
		t.Errorf("settled %d times, credit %d, kept %v", a.n.Load(), in.credit, in.back)
	}
	in.putBack()
	if a.n.Load() != 1 || len(in.back)+len(in.held) != 0 {
		t.Errorf("settled %d times, %v is left", a.n.Load(), in.back)
	}

	d = &delivery{in: in, d: amqp091.Delivery{Acknowledger: a}, round: 3, refused: true}
	in.p.slots.TryAcquire()
	d.settle(d.ack) // early
	d.leave(true, nil)
	if a.n.Load() != 2 || len(in.back) != 0 {
		t.Errorf("a delivery that was acknowledged early is kept: settled %d times, %v", a.n.Load(), in.back)
	}
}

// TestAlarmComesAndGoes: what the broker says of an alarm is the state, until
// the session has ended.
func TestAlarmComesAndGoes(t *testing.T) {
	b := &Broker{}
	c, other := net.Pipe()
	defer c.Close()
	defer other.Close()
	s := &session{dead: make(chan struct{}), sock: &socket{Conn: c}}
	out := &outlet{b: b, s: s}
	told := make(chan struct{})
	update := func() { out.update(); told <- struct{}{} }
	s.changed.Store(&update)
	closes, blocks := make(chan *amqp091.Error), make(chan amqp091.Blocking)
	go s.watch(closes, blocks)
	say := func(active bool) {
		blocks <- amqp091.Blocking{Active: active}
		<-told
	}
	say(true)
	if b.Connected() {
		t.Error("connected under an alarm")
	}
	if _, err := b.outlet(); err != ErrAway {
		t.Errorf("publish without a session: %v", err)
	}
	b.live.Store(out)
	if _, err := b.outlet(); err != ErrBlocked {
		t.Errorf("publish under an alarm: %v", err)
	}
	say(false)
	if !b.Connected() {
		t.Error("not connected after the alarm")
	}
	out.shut(ErrAway)
	say(true)
	say(false)
	if b.Connected() {
		t.Error("connected after the session has ended")
	}
	close(closes)
	<-s.dead
}

func TestBackoffGrowsToItsMost(t *testing.T) {
	b := backoff{first: 100 * time.Millisecond, most: 30 * time.Second}
	for want := b.first; want < b.most; want *= 2 {
		if got := b.wait(0); got < want/2 || got > want {
			t.Errorf("waits %v, want %v to %v", got, want/2, want)
		}
	}
	for range 3 {
		if got := b.wait(time.Second); got < b.most/2 || got > b.most {
			t.Errorf("waits %v, want %v to %v", got, b.most/2, b.most)
		}
	}
	if got := b.wait(time.Minute); got > b.first {
		t.Errorf("waits %v after a long life, want at most %v", got, b.first)
	}
}

func TestThePauseGrowsOncePerOutage(t *testing.T) {
	p := &partition{slots: saga.NewSlots(4)}
	p.failed()
	p.failed()
	p.failed()
	if p.failures != 1 || p.room() != 0 || p.pause() > pauseFirst {
		t.Errorf("after several failures at a time: %d counted, room %d, pause %v", p.failures, p.room(), p.pause())
	}
	p.until = time.Now()
	if p.room() != 1 {
		t.Errorf("after the pause there is room for %d, want 1", p.room())
	}
	p.running = 1
	if p.room() != 0 {
		t.Errorf("while it is tried there is room for %d, want 0", p.room())
	}
	p.failed()
	if pause := p.pause(); pause <= pauseFirst || pause > 2*pauseFirst {
		t.Errorf("the second pause is %v", pause)
	}
	p.worked()
	if p.room() != 4 {
		t.Errorf("afterwards there is room for %d, want 4", p.room())
	}
}
