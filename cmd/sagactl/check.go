package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/leveret-go/leveret/saga"
)

// maxOutlines is how much is read of a file of outlines.
const maxOutlines = 64 << 20

// check says which executions a build could not carry. It fails when there are
// any, so that a deployment stops.
func check(ctx context.Context, c *call) error {
	var build []saga.Outline
	if c.IsSet("outlines") {
		var err error
		if build, err = c.readOutlines(c.String("outlines")); err != nil {
			return err
		}
	}
	return c.with(ctx, func(s *session) error {
		if !c.IsSet("outlines") {
			var err error
			if build, err = s.StoredOutlines(ctx); err != nil {
				return err
			}
		}
		r, err := saga.Check(ctx, s.store, build...)
		if err != nil {
			return err
		}
		if c.json() {
			if err := c.document(r); err != nil {
				return err
			}
		} else {
			c.showCheck(r)
		}
		if n := len(r.Problems); n > 0 {
			return fail(exitFailure, "the build cannot carry all executions: %d problems", n)
		}
		return nil
	})
}

func (c *call) showCheck(r *saga.CheckReport) {
	c.fields("executions", fmt.Sprint(r.Checked), "problems", fmt.Sprint(len(r.Problems)))
	if len(r.Problems) == 0 {
		return
	}
	fmt.Fprintln(c.stdout)
	t := &table{heads: []string{"CODE", "EXAMPLE", "PROBLEM"}, flex: 2}
	for _, p := range r.Problems {
		t.add(string(p.Code), p.Example.String(), p.Sentence)
	}
	c.table(t)
}

// readOutlines reads what a build has written of itself.
func (c *call) readOutlines(name string) ([]saga.Outline, error) {
	in := c.stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, fail(exitUsage, "-outlines: %w", err)
		}
		defer f.Close()
		in = f
	}
	b, err := io.ReadAll(io.LimitReader(in, maxOutlines+1))
	if err != nil {
		return nil, fail(exitFailure, "-outlines: %w", err)
	}
	var build []saga.Outline
	if len(b) > maxOutlines || json.Unmarshal(b, &build) != nil || len(build) == 0 {
		return nil, usage("-outlines: not a JSON list of outlines, as json.Marshal(engine.Outlines()) returns it")
	}
	return build, nil
}

// outlines prints what workers left in the store.
func outlines(ctx context.Context, c *call) error {
	return c.with(ctx, func(s *session) error {
		all, err := s.StoredOutlines(ctx)
		if err != nil {
			return err
		}
		if c.json() {
			return c.document(all)
		}
		t := &table{heads: []string{"SAGA", "VERSION", "PARTITION", "STEPS"}, flex: 3}
		for _, o := range all {
			steps := ""
			for i, step := range o.Steps {
				if i > 0 {
					steps += " "
				}
				steps += step.Name
			}
			t.add(o.Saga, fmt.Sprint(o.Version), o.Partition, steps)
		}
		c.table(t)
		return nil
	})
}
