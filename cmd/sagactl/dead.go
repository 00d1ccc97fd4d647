package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/amqp"
)

func deadFlags() []cli.Flag {
	return []cli.Flag{
		&cli.StringSliceFlag{Name: "id", Usage: "only these letters: `ID`,ID"},
		&cli.StringFlag{Name: "cause", Usage: "only those put aside for this `REASON`, such as foreign_store"},
		&cli.StringFlag{Name: "partition", Usage: "only from this `PARTITION`'s queue"},
		&cli.StringFlag{Name: "saga", Usage: "only those that point at this `SAGA`, or are commands for it"},
		&cli.StringFlag{Name: "before", Usage: "only those put aside before this `TIME`: RFC 3339, or how long ago"},
		&cli.IntFlag{Name: "scan", Usage: "look at `N` messages, from the head of the queue on", Value: 1000},
	}
}

func allLettersFlag() cli.Flag {
	return &cli.BoolFlag{Name: "all", Usage: "all letters: required where nothing selects some"}
}

func (c *call) deadQuery() (amqp.DeadQuery, error) {
	q := amqp.DeadQuery{
		IDs: words[string](c.StringSlice("id")), Reason: c.String("cause"), Partition: c.String("partition"), Saga: c.String("saga"),
		All: c.Bool("all"), Scan: c.Int("scan"),
	}
	var err error
	q.Before, err = c.time("before", c.wall())
	return q, err
}

func deadList(ctx context.Context, c *call) error {
	q, err := c.deadQuery()
	if err != nil {
		return err
	}
	a, err := c.openAdmin(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	r, err := a.Dead(ctx, q)
	return c.letters(r, err)
}

func deadReplay(ctx context.Context, c *call) error { return c.mendDead(ctx, "replay") }
func deadPurge(ctx context.Context, c *call) error  { return c.mendDead(ctx, "purge") }

// mendDead replays or purges letters. Those that were shown, when somebody was
// asked, and no others.
func (c *call) mendDead(ctx context.Context, what string) error {
	q, err := c.deadQuery()
	if err != nil {
		return err
	}
	if q.All == (len(q.IDs) > 0 || q.Reason != "" || q.Partition != "" || q.Saga != "" || !q.Before.IsZero()) {
		return usage("give either flags that select letters or -all")
	}
	if err := c.canConfirm(); err != nil {
		return err
	}
	a, err := c.openAdmin(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	if !c.Bool("yes") {
		r, err := a.Dead(ctx, q)
		if err != nil {
			return err
		}
		if len(r.Letters) == 0 {
			return c.letters(r, nil)
		}
		err = c.confirm(ctx, func(c *call) { c.showLetters(r) }, fmt.Sprintf("%s %d dead letters?", what, len(r.Letters)))
		if err != nil {
			return err
		}
		q.IDs = nil
		for _, l := range r.Letters {
			q.IDs = append(q.IDs, l.ID)
		}
	}
	do := a.Replay
	if what == "purge" {
		do = a.Purge
	}
	r, err := do(ctx, q)
	if err == nil && len(r.Kept) > 0 {
		err = fail(exitAmiss, "%d letters were kept", len(r.Kept))
	}
	return c.letters(r, err)
}

// letters prints a report together with the error that ended it.
func (c *call) letters(r *amqp.DeadReport, err error) error {
	if r == nil {
		return err
	}
	if c.json() {
		if r.Letters == nil {
			r.Letters = []amqp.DeadLetter{}
		}
		return errors.Join(c.document(r), err)
	}
	c.showLetters(r)
	return err
}

func (c *call) showLetters(r *amqp.DeadReport) {
	k := clock{c.wall()}
	t := &table{heads: []string{"ID", "REASON", "PARTITION", "SAGA", "EXECUTION", "PUT ASIDE", "NOTE"}, flex: 6}
	add := func(l amqp.DeadLetter, note string) {
		saga, execution := "", ""
		if p := l.Pointer; p != nil {
			saga, execution = p.Saga, p.Execution.String()
		} else if l.Command != "" {
			note = strings.Trim(note+", "+l.Command+", "+l.Error, ", ")
		} else {
			note = strings.Trim(note+", "+l.Error+", "+l.Body, ", ")
		}
		t.add(l.ID, l.Reason, l.Partition, saga, execution, k.at(l.DeadAt), note)
	}
	for _, l := range r.Letters {
		add(l, "")
	}
	for _, l := range r.Kept {
		add(l.DeadLetter, "kept: "+l.Why)
	}
	c.table(t)
	if r.Unseen > 0 {
		fmt.Fprintf(c.stdout, "\n%d more messages were not looked at: -scan\n", r.Unseen)
	}
}
