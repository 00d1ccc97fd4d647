package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/saga"
)

func purgeFlags() []cli.Flag {
	flags := []cli.Flag{
		&cli.BoolFlag{Name: "dry-run", Usage: "only count"},
		&cli.IntFlag{Name: "limit", Usage: "delete `N` executions at most (default: all)", HideDefault: true},
		&cli.StringFlag{Name: "archive", Usage: "write a line of JSON for each to this new `FILE` before it is deleted"},
	}
	for _, status := range []string{"completed", "compensated", "cancelled", "failed", "compensation-failed"} {
		flags = append(flags, &cli.StringFlag{
			Name: status, Usage: "delete those that ended " + status + " longer than this `TIME` ago, such as 90d (default: keep them)",
		})
	}
	return flags
}

func (c *call) retention() (r saga.Retention, err error) {
	for flag, d := range map[string]*time.Duration{
		"completed": &r.Completed, "compensated": &r.Compensated, "cancelled": &r.Cancelled, "failed": &r.Failed,
		"compensation-failed": &r.CompensationFailed,
	} {
		s := c.String(flag)
		if s == "" {
			continue
		}
		if *d, err = duration(s); err != nil || *d == 0 {
			return r, usage("-%s is no time like 90d or 36h", flag)
		}
	}
	if r == (saga.Retention{}) {
		return r, usage("say what to delete: -completed, -compensated, -cancelled, -failed or -compensation-failed")
	}
	return r, nil
}

// purge deletes what finished long ago.
func purge(ctx context.Context, c *call) error {
	retention, err := c.retention()
	if err != nil {
		return err
	}
	o := saga.PurgeOptions{Retention: retention, DryRun: c.Bool("dry-run"), Limit: c.Int("limit")}
	if !o.DryRun {
		if err := c.canConfirm(); err != nil {
			return err
		}
	}
	return c.with(ctx, func(s *session) (err error) {
		if !o.DryRun && !c.Bool("yes") {
			dry := o
			dry.DryRun = true
			r, err := s.Purge(ctx, dry)
			if err != nil || r.Total() == 0 {
				return errors.Join(err, c.purged(r))
			}
			if err := c.confirm(ctx, func(c *call) { c.showPurged(r) }, fmt.Sprintf("delete %d executions for good?", r.Total())); err != nil {
				return err
			}
		}
		if file := c.String("archive"); file != "" && !o.DryRun {
			f, err := newFile(file)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			o.Archive = f
		}
		r, err := s.Purge(ctx, o)
		return errors.Join(c.purged(r), err)
	})
}

// newFile makes a file that only its owner reads: an archive has the states.
func newFile(name string) (*os.File, error) {
	return os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
}

func (c *call) purged(r *saga.PurgeReport) error {
	if c.json() {
		return c.document(r)
	}
	c.showPurged(r)
	return nil
}

func (c *call) showPurged(r *saga.PurgeReport) {
	t := &table{heads: []string{"STATUS", "DELETED"}, flex: 1}
	if r.DryRun {
		t.heads[1] = "TO DELETE"
	}
	for _, status := range slices.Sorted(maps.Keys(r.Deleted)) {
		t.add(string(status), fmt.Sprint(r.Deleted[status]))
	}
	if len(t.rows) == 0 {
		fmt.Fprintln(c.stdout, "Nothing is that old.")
		return
	}
	c.table(t)
	if r.Kept > 0 {
		fmt.Fprintf(c.stdout, "%d were kept: they changed meanwhile\n", r.Kept)
	}
	if r.More {
		fmt.Fprintln(c.stdout, "there may be more")
	}
}
