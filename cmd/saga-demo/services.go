package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A chance decides what goes wrong. The same one decides the same each time.
type chance struct {
	Seed uint64  `json:"seed"`
	Fail float64 `json:"fail"` // the rate of permanent failures
}

// The rates of what goes wrong besides permanent failures, for each call.
const (
	rateBusy  = 0.03 // the service answers that it is busy: no effect
	rateLost  = 0.02 // it does the work, but the answer is lost
	rateHang  = 0.008
	undoFails = 0.1 // of chance.Fail
)

// A request is what a service gets.
type request struct {
	Order      string
	Service    string
	Kind       saga.Direction
	Key        string // idempotency key
	ExecuteKey string // of the effect to undo

	attempt string
	chance  chance
}

func requestOf(c *saga.Call, service string, ch chance) request {
	return request{
		Order: c.Resource.ID, Service: service, Kind: c.Direction, Key: c.Key(), ExecuteKey: c.ExecuteKey(),
		attempt: fmt.Sprintf("%d.%d", c.Epoch, c.Attempt), chance: ch,
	}
}

// draw returns a source of randomness for a request: the same for the same one.
func (r request) draw(what string) *rand.Rand {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s/%s/%s", r.Service, r.Kind, what)
	return rand.New(rand.NewPCG(r.chance.Seed, h.Sum64()))
}

// declined reports whether the service will never do what is asked for,
// whichever attempt it is.
func (r request) declined() bool {
	rate := r.chance.Fail
	if r.Kind == store.DirectionCompensate {
		rate *= undoFails
	}
	return r.draw("declined").Float64() < rate
}

// Services are the simulated outside: they take a while, fail, hang, lose
// answers, and keep a ledger by idempotency key, as real ones do.
type services struct {
	ledger ledger
	// pace stretches and shrinks all latencies.
	pace float64

	late sync.WaitGroup // requests whose caller has given up
}

func newServices(l ledger) *services { return &services{ledger: l, pace: 1} }

// wait waits for the requests that go on although nobody waits for their answer.
func (s *services) wait() { s.late.Wait() }

// The errors of services.
var (
	errBusy     = errors.New("503 busy, nothing was done")
	errLost     = errors.New("connection reset while waiting for the answer")
	errDeclined = errors.New("422 declined")
	errRefused  = errors.New("409 refused: the request has been undone")
)

// call asks a service to do or undo something. What its errors say about the
// effect is in the outcomes they carry.
func (s *services) call(ctx context.Context, r request) (receipt string, err error) {
	dice := r.draw(r.attempt)
	if err := sleep(ctx, s.latency(dice)); err != nil {
		return "", err // as a request that was never sent: but nobody knows
	}
	if r.declined() {
		return "", saga.Fail(saga.Class("declined", fmt.Errorf("%s: %w", r.Service, errDeclined)))
	}
	switch p := dice.Float64(); {
	case p < rateBusy:
		return "", saga.Class("busy", fmt.Errorf("%s: %w", r.Service, errBusy))
	case p < rateBusy+rateLost:
		if _, err := s.do(ctx, r); err != nil {
			return "", err
		}
		return "", saga.Class("answer_lost", saga.Unknown(fmt.Errorf("%s: %w", r.Service, errLost)))
	case p < rateBusy+rateLost+rateHang:
		return "", s.hang(ctx, r, dice)
	}
	return s.do(ctx, r)
}

func (s *services) latency(dice *rand.Rand) time.Duration {
	ms := 45 * math.Exp(0.7*dice.NormFloat64()) // most between 20 and 100 ms, a few much longer
	return time.Duration(min(ms, 800) * s.pace * float64(time.Millisecond))
}

// hang answers nothing until the caller gives up. Some such requests are done
// all the same, long after that.
func (s *services) hang(ctx context.Context, r request, dice *rand.Rand) error {
	later := time.Duration(float64(callTimeout) * (0.5 + dice.Float64()))
	if dice.IntN(2) == 0 {
		s.late.Go(func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), later+5*time.Second)
			defer cancel()
			if sleep(ctx, later) == nil {
				_, _ = s.do(ctx, r)
			}
		})
	}
	<-ctx.Done()
	return fmt.Errorf("%s: no answer: %w", r.Service, ctx.Err())
}

// do has the effect, once for each key.
func (s *services) do(ctx context.Context, r request) (receipt string, err error) {
	ok, err := s.ledger.apply(ctx, r)
	switch {
	case err != nil:
		return "", saga.Unknown(fmt.Errorf("%s: %w", r.Service, err))
	case !ok:
		return "", saga.Fail(saga.NoEffect(saga.Class("refused", fmt.Errorf("%s: %w", r.Service, errRefused))))
	}
	h := fnv.New32a()
	h.Write([]byte(r.Key))
	return fmt.Sprintf("%s-%08x", r.Service, h.Sum32()), nil
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
