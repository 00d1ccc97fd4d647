package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/saga"
)

func scopeFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringFlag{Name: "partition", Usage: "the `PARTITION`"},
		&cli.StringFlag{Name: "saga", Usage: "the `SAGA`"},
		&cli.StringFlag{Name: "schedule", Usage: "the `SCHEDULE`, as NAMESPACE/NAME"},
		&cli.StringFlag{Name: "worker", Usage: "the `WORKER`; without what follows the slash also after its restarts"},
	}
}

func pause(ctx context.Context, c *call) error   { return c.changePause(ctx, saga.ActPause) }
func unpause(ctx context.Context, c *call) error { return c.changePause(ctx, saga.ActUnpause) }

// A pauseView is what pause and unpause print in JSON.
type pauseView struct {
	Act saga.Act `json:"act"`
	saga.Scope
}

func (c *call) changePause(ctx context.Context, a saga.Act) error {
	by, err := c.by()
	if err != nil {
		return err
	}
	scope := saga.Scope{Partition: c.String("partition"), Saga: c.String("saga"), Worker: c.String("worker"), Schedule: c.String("schedule")}
	set := 0
	for _, v := range []string{scope.Partition, scope.Saga, scope.Worker, scope.Schedule} {
		if v != "" {
			set++
		}
	}
	if set != 1 {
		return usage("give one of -partition, -saga, -worker and -schedule")
	}
	return c.with(ctx, func(s *session) error {
		do := s.Pause
		if a == saga.ActUnpause {
			do = s.Unpause
		}
		if err := do(ctx, scope, by); err != nil {
			return err
		}
		if c.json() {
			return c.document(pauseView{a, scope})
		}
		fmt.Fprintf(c.stdout, "%sd %s\n", a, clean(scope.String()))
		return nil
	})
}

// pauses lists what is paused, or, with -log, what was done about it.
func pauses(ctx context.Context, c *call) error {
	return c.with(ctx, func(s *session) error {
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		if c.Bool("log") {
			return c.pauseLog(ctx, k, s)
		}
		all, err := s.Pauses(ctx)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"PAUSED", "SINCE", "BY", "REASON"}, flex: 3}
		for _, p := range all {
			if c.json() {
				if err := c.line(p); err != nil {
					return err
				}
			}
			t.add(p.String(), k.at(p.At), p.Actor, p.Reason)
		}
		if !c.json() {
			c.table(t)
		}
		return nil
	})
}

// A pauseLogView is a line of the log of the pauses in JSON.
type pauseLogView struct {
	saga.Scope
	Act     saga.Act  `json:"act"`
	Actor   string    `json:"actor"`
	Reason  string    `json:"reason"`
	At      time.Time `json:"at"`
	Request string    `json:"request,omitempty"`
}

func (c *call) pauseLog(ctx context.Context, k clock, s *session) error {
	all, err := s.PauseLog(ctx)
	if err != nil {
		return err
	}
	t := &table{heads: []string{"TIME", "ACT", "WHAT", "BY", "REASON"}, flex: 4}
	for _, p := range all {
		if c.json() {
			if err := c.line(pauseLogView{p.Scope, p.Act, p.Actor, p.Reason, p.At, p.Request}); err != nil {
				return err
			}
		}
		t.add(k.at(p.At), string(p.Act), p.String(), p.Actor, p.Reason)
	}
	if !c.json() {
		c.table(t)
	}
	return nil
}
