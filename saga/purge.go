package saga

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// PurgeOptions says what [Engine.Purge] deletes, and how.
type PurgeOptions struct {
	// Retention says for how long executions are kept. One that keeps all
	// deletes nothing.
	Retention Retention
	// DryRun only counts, at most store.MaxCount of each status.
	DryRun bool
	// Limit is how many are deleted at most. 0: all.
	Limit int
	// BatchSize is how many are deleted in one transaction, and held in memory.
	// Defaults to 100, at most store.MaxPage.
	BatchSize int
	// Archive, if not nil, gets a line for each execution before it is deleted:
	// JSON, as [Archived] says. Where Archive has a method Flush() error or
	// Sync() error, as *bufio.Writer and *os.File do, these are called after
	// the lines of a batch and before its executions are deleted.
	//
	// Nothing is lost: what is deleted has its line, with everything that was
	// recorded of it. There may be lines of executions that are still there,
	// which the next purge writes again: after a crash or an error in between,
	// and when an execution changed after its line was written. Of lines with
	// the same id the one with the highest revision counts. After an error of
	// the writer the last line may be cut off: give each Purge a file of its
	// own.
	Archive io.Writer
}

// A PurgeReport says what Purge deleted.
type PurgeReport struct {
	DryRun bool `json:"dry_run,omitempty"`
	// Deleted counts by status what was deleted, or, in a dry run, what would
	// be.
	Deleted map[store.Status]int `json:"deleted"`
	// Kept counts what was due and was not deleted: it changed meanwhile, was
	// locked, or another process was faster.
	Kept int `json:"kept"`
	// More says that there may be more: Limit, or the most that a dry run
	// counts, was reached.
	More bool `json:"more"`
}

// Total is the sum of Deleted.
func (r *PurgeReport) Total() (n int) {
	for _, m := range r.Deleted {
		n += m
	}
	return n
}

// Purge deletes executions that finished longer ago than o.Retention says, with
// their attempts and audit trails, the oldest first. Never an unfinished one,
// and never one that has changed since it was looked at. An execution that
// repeats another, or is repeated by it ([Engine.Rerun]), goes like all others:
// the link of the other one then leads nowhere.
//
// It deletes in small batches, each a transaction, one at a time in a process.
// After a crash in the middle what was deleted is deleted, and the next purge
// goes on. With an execution goes what its id was good for: a Start that is
// repeated under the same id starts a new one, an act's By.Request is forgotten,
// and the late result of a step is dropped. So keep them longer than any of
// these may come.
//
// The report, which is never nil, says what was deleted until an error ended it:
// ctx's, [ErrInvalid], [ErrNotSupported] when the store lacks store.Querier or
// store.Deleter, the Archive's, or one of the store's, after which a batch that
// is not in the report may have been deleted too. Config.Retention lets Run do
// it.
func (e *Engine) Purge(ctx context.Context, o PurgeOptions) (*PurgeReport, error) {
	p := &purge{e: e, o: o, report: &PurgeReport{DryRun: o.DryRun, Deleted: map[store.Status]int{}}}
	err := p.run(ctx)
	if err != nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return p.report, err
}

// purgeWindow is how many batches are looked for at once: a list of what finished in a
// span costs the store a look at all of it.
const purgeWindow = 10

type purge struct {
	e      *Engine
	o      PurgeOptions
	q      store.Querier
	hide   *Redactor // of the archive; nil: not read yet
	d      store.Deleter
	report *PurgeReport
}

func (p *purge) run(ctx context.Context) (err error) {
	setDefault(&p.o.BatchSize, 100)
	if faults := p.o.Retention.faults(); len(faults) > 0 {
		return fmt.Errorf("%w: saga: purge: %s", ErrInvalid, faults[0])
	}
	switch {
	case p.o.Limit < 0:
		return fmt.Errorf("%w: saga: PurgeOptions.Limit is negative", ErrInvalid)
	case p.o.BatchSize < 0 || p.o.BatchSize > store.MaxPage:
		return fmt.Errorf("%w: saga: PurgeOptions.BatchSize is %d, want 0 to %d", ErrInvalid, p.o.BatchSize, store.MaxPage)
	}
	if p.q, p.d, err = canPurge(p.e.store); err != nil {
		return fmt.Errorf("saga: purge: %w", err)
	}
	if err := p.e.clock.ready(ctx); err != nil {
		return err
	}
	now := p.e.clock.now()
	for _, k := range p.o.Retention.kept() {
		if k.age == 0 {
			continue
		}
		purge := p.status
		if p.o.DryRun {
			purge = p.count
		}
		if err := purge(ctx, k.status, now.Add(-k.age)); err != nil || p.report.More && p.left() == 0 {
			return err
		}
	}
	return nil
}

// left is how many may still be deleted.
func (p *purge) left() int {
	if p.o.Limit == 0 {
		return store.MaxCount
	}
	return p.o.Limit - p.report.Total()
}

// count counts what status would delete.
func (p *purge) count(ctx context.Context, s store.Status, before time.Time) error {
	if p.left() == 0 {
		p.report.More = true
		return nil
	}
	n, more, err := p.finished(ctx, s, store.Range{To: before}, min(p.left(), store.MaxCount))
	p.report.More = p.report.More || more
	if n > 0 {
		p.report.Deleted[s] = n
	}
	return err
}

// finished counts the executions that ended so in a span, at most most.
func (p *purge) finished(ctx context.Context, s store.Status, in store.Range, most int) (n int, more bool, err error) {
	counts, err := p.q.Count(ctx, store.Filter{Statuses: []store.Status{s}, Finished: in}, nil, most)
	if err != nil {
		return 0, false, fmt.Errorf("saga: purge: count executions: %w", err)
	}
	for _, g := range counts.Groups {
		n += int(g.N)
	}
	return n, counts.Truncated, nil
}

// status deletes the executions that ended so before a time, the oldest first.
func (p *purge) status(ctx context.Context, s store.Status, before time.Time) error {
	for in := (store.Range{}); in.To.Before(before); in.From = in.To {
		var err error
		if in.To, err = p.window(ctx, s, in.From, before); err != nil {
			return err
		}
		if err := p.between(ctx, s, in); err != nil || p.report.More {
			return err
		}
	}
	return nil
}

// window returns the end of a span, from a time on and not beyond before, in
// which a few batches finished, or a single second.
func (p *purge) window(ctx context.Context, s store.Status, from, before time.Time) (time.Time, error) {
	most := purgeWindow * p.o.BatchSize
	if _, more, err := p.finished(ctx, s, store.Range{From: from, To: before}, most); err != nil || !more {
		return before, err
	}
	low, high := from, before
	if low.IsZero() {
		low = time.Unix(0, 0)
	}
	for high.Sub(low) > time.Second {
		mid := low.Add(high.Sub(low) / 2)
		n, more, err := p.finished(ctx, s, store.Range{From: from, To: mid}, most)
		switch {
		case err != nil:
			return mid, err
		case more:
			high = mid
		case n == 0:
			low = mid
		default:
			return mid, nil
		}
	}
	return high, nil
}

// between deletes the executions that ended so in a span.
func (p *purge) between(ctx context.Context, s store.Status, in store.Range) error {
	f := store.Filter{Statuses: []store.Status{s}, Finished: in}
	for after := uuid.Nil; ; {
		next, err := p.batch(ctx, f, after)
		if err != nil || next == nil {
			return err
		}
		if p.left() <= 0 {
			p.report.More = true
			return nil
		}
		after = *next
	}
}

// batch deletes a page of executions, and returns where the next one begins.
func (p *purge) batch(ctx context.Context, f store.Filter, after uuid.UUID) (next *uuid.UUID, err error) {
	if err := p.e.purging.Acquire(ctx); err != nil {
		return nil, err
	}
	defer p.e.purging.Release()
	page := store.Page{Limit: min(p.o.BatchSize, p.left()), After: after}
	if page.Limit <= 0 {
		p.report.More = true
		return nil, nil
	}
	list, err := p.q.List(ctx, f, page)
	if err != nil {
		return nil, fmt.Errorf("saga: purge: list executions: %w", err)
	}
	if len(list.Executions) == 0 {
		return nil, nil
	}
	if p.o.Archive != nil {
		if p.hide == nil { // once for all batches
			if p.hide, err = p.e.archiveRedactor(ctx); err != nil {
				return nil, err
			}
		}
		if err := p.e.archive(ctx, p.o.Archive, p.hide, list.Executions); err != nil {
			return nil, err
		}
	}
	versions := make([]store.Version, len(list.Executions))
	for i, x := range list.Executions {
		versions[i] = store.Version{ID: x.ID, Revision: x.Revision}
	}
	removed, err := p.d.Delete(ctx, versions)
	if err != nil {
		return nil, fmt.Errorf("saga: purge: delete executions: %w", err)
	}
	for i, ok := range removed {
		if ok {
			p.report.Deleted[list.Executions[i].Status]++
		} else {
			p.report.Kept++
		}
	}
	return list.Next, nil
}
