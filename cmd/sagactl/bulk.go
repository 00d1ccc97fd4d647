package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/urfave/cli/v3"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

func bulkFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "all", Usage: "all executions: required where nothing selects some"},
		&cli.BoolFlag{Name: "dry-run", Usage: "only say what would be done"},
		&cli.IntFlag{Name: "limit", Usage: "look at `N` executions at most", Value: 100},
		&cli.StringFlag{Name: "after", Usage: "begin after the execution with this `ID`: the next of an earlier report"},
		&cli.FloatFlag{Name: "rate", Usage: "act on `N` executions a second at most (default: no bound)", HideDefault: true},
	}
}

// A many is a bulk act: Engine.Bulk or Engine.Erase.
type many func(s *session, f store.Filter, by saga.By, o saga.BulkOptions) (*saga.BulkReport, error)

func bulk(ctx context.Context, c *call) error {
	a, err := actNamed(c.args[0])
	if err != nil {
		return err
	}
	return c.many(ctx, verb(a), func(s *session, f store.Filter, by saga.By, o saga.BulkOptions) (*saga.BulkReport, error) {
		return s.Bulk(ctx, f, a, by, &o)
	})
}

func erase(ctx context.Context, c *call) error {
	return c.many(ctx, "erase", func(s *session, f store.Filter, by saga.By, o saga.BulkOptions) (*saga.BulkReport, error) {
		return s.Erase(ctx, f, by, &saga.EraseOptions{
			KeepResource: c.Bool("keep-resource"), DryRun: o.DryRun, Limit: o.Limit, After: o.After, Rate: o.Rate,
		})
	})
}

func (c *call) many(ctx context.Context, name string, do many) error {
	by, err := c.by()
	if err != nil {
		return err
	}
	o := saga.BulkOptions{DryRun: c.Bool("dry-run"), Limit: c.Int("limit"), Rate: c.Float("rate")}
	if o.Limit < 1 {
		return usage("-limit is less than 1")
	}
	if o.After, err = c.after(); err != nil {
		return err
	}
	if !o.DryRun {
		if err := c.canConfirm(); err != nil {
			return err
		}
	}
	return c.with(ctx, func(s *session) error {
		f, selects, err := c.filter(ctx, s.store)
		if err != nil {
			return err
		}
		if selects == c.Bool("all") {
			return usage("give either flags that select executions or -all")
		}
		if !o.DryRun && !c.Bool("yes") {
			none, err := c.confirmMany(ctx, name, &f, &o, func(f store.Filter, o saga.BulkOptions) (*saga.BulkReport, error) { return do(s, f, by, o) })
			if none || err != nil {
				return err
			}
		}
		report, err := do(s, f, by, o)
		return errors.Join(c.reportMany(report), err, amiss(report))
	})
}

// confirmMany shows what a bulk act would do and asks. What is done then is
// done to those that were shown, where a filter can hold as many. none says
// that there is nothing to do.
func (c *call) confirmMany(ctx context.Context, name string, f *store.Filter, o *saga.BulkOptions, do func(store.Filter, saga.BulkOptions) (*saga.BulkReport, error)) (none bool, err error) {
	dry := *o
	dry.DryRun, dry.Rate = true, 0
	report, err := do(*f, dry)
	if err != nil {
		return false, err
	}
	n := report.Counts[saga.BulkDone] + report.Counts[saga.BulkRequested]
	if n == 0 {
		return true, c.reportMany(report)
	}
	err = c.confirm(ctx, func(c *call) { c.showMany(report) }, fmt.Sprintf("%s %d executions?", name, n))
	if err != nil || n > store.MaxFilter {
		return false, err
	}
	f.IDs = nil
	for _, i := range report.Items {
		if i.Result == saga.BulkDone || i.Result == saga.BulkRequested {
			f.IDs = append(f.IDs, i.Execution)
		}
	}
	// All of them, wherever they stood among the skipped ones.
	o.After = uuid.Nil
	return false, nil
}

// amiss is an error when some of the acts failed.
func amiss(r *saga.BulkReport) error {
	if n := r.Counts[saga.BulkFailed]; n > 0 {
		return fail(exitAmiss, "%d of the acts failed", n)
	}
	return nil
}

func (c *call) reportMany(r *saga.BulkReport) error {
	if c.json() {
		return c.document(r)
	}
	c.showMany(r)
	return nil
}

func (c *call) showMany(r *saga.BulkReport) {
	t := &table{heads: []string{"EXECUTION", "RESULT", "ENDS AS", "REASON"}, flex: 3}
	for _, i := range r.Items {
		t.add(i.Execution.String(), string(i.Result), string(i.EndsAs), i.Reason)
	}
	if len(t.rows) > 0 {
		c.table(t)
		fmt.Fprintln(c.stdout)
	}
	counts := []string{}
	for _, k := range slices.Sorted(maps.Keys(r.Counts)) {
		counts = append(counts, fmt.Sprintf("%d %s", r.Counts[k], k))
	}
	if len(counts) == 0 {
		counts = []string{"nothing is selected"}
	}
	dry := ""
	if r.DryRun {
		dry = " (dry run)"
	}
	fmt.Fprintf(c.stdout, "%s: %s%s\n", verb(r.Act), strings.Join(counts, ", "), dry)
	if r.Next != nil {
		fmt.Fprintf(c.stdout, "go on with -after %s\n", r.Next)
	}
}
