package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/leveret-go/leveret/amqp"
)

// topology prints what has to be in the broker for the partitions, checks it
// or makes it.
func topology(ctx context.Context, c *call) error {
	partitions := c.args
	if len(partitions) == 0 {
		partitions = []string{"default"}
	}
	create, check := c.Bool("create"), c.Bool("check")
	if create && check {
		return usage("give -create or -check")
	}
	cfg, err := c.amqpConfig(create || check)
	if err != nil {
		return err
	}
	cfg.Commands = c.Bool("commands")
	wanted, err := amqp.Declarations(cfg, partitions...)
	if err != nil {
		return err
	}
	switch {
	case check:
		return c.checkTopology(ctx, partitions)
	case create:
		return c.createTopology(ctx, partitions, wanted)
	}
	for _, d := range wanted {
		if c.json() {
			err = errors.Join(err, c.line(d))
		} else {
			fmt.Fprintln(c.stdout, clean(d.String()))
		}
	}
	return err
}

func (c *call) createTopology(ctx context.Context, partitions []string, wanted []amqp.Declaration) error {
	if err := c.canConfirm(); err != nil {
		return err
	}
	a, err := c.openAdmin(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	// Only those that are surely there need no declaring: bindings are unknown.
	err = c.confirm(ctx, func(c *call) {
		for _, d := range wanted {
			fmt.Fprintln(c.stdout, clean(d.String()))
		}
	}, "declare what of this is missing?")
	if err != nil {
		return err
	}
	if err := a.Declare(ctx, partitions...); err != nil {
		return err
	}
	if c.json() {
		for _, d := range wanted {
			if err := c.line(d); err != nil {
				return err
			}
		}
		return nil
	}
	fmt.Fprintf(c.stdout, "Declared for %s.\n", strings.Join(partitions, ", "))
	return nil
}

func (c *call) checkTopology(ctx context.Context, partitions []string) error {
	a, err := c.openAdmin(ctx)
	if err != nil {
		return err
	}
	defer a.Close()
	findings, err := a.Check(ctx, partitions...)
	bad := 0
	t := &table{heads: []string{"FOUND", "KIND", "NAME", "READY", "CONSUMERS", "DETAIL"}, flex: 5}
	for _, f := range findings {
		if c.json() {
			if err := c.line(f); err != nil {
				return err
			}
		}
		if f.Found == amqp.FoundMissing || f.Found == amqp.FoundDiffers {
			bad++
		}
		ready, consumers := "", ""
		if f.Kind == amqp.KindQueue && (f.Found == amqp.FoundOK || f.Found == amqp.FoundDiffers) {
			ready, consumers = fmt.Sprint(f.Ready), fmt.Sprint(f.Consumers)
		}
		name := f.Name
		if f.Kind == amqp.KindBinding {
			name += " to " + f.Exchange
		}
		t.add(string(f.Found), string(f.Kind), name, ready, consumers, f.Detail)
	}
	if !c.json() {
		c.table(t)
	}
	if err == nil && bad > 0 {
		err = fail(exitAmiss, "%d of %d are missing or differ", bad, len(findings))
	}
	return err
}
