package saga

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/leveret-go/leveret/store"
)

// A Scope is what can be paused: exactly one of its fields is set. A Worker is
// the name of an engine ([Engine.Worker]), with or without the part behind the
// slash that each start of the process makes anew: without it the pause holds
// over restarts.
type Scope struct {
	Partition string `json:"partition,omitempty"`
	Saga      string `json:"saga,omitempty"`
	Worker    string `json:"worker,omitempty"`
	Schedule  string `json:"schedule,omitempty"` // namespace/name
}

// String returns the scope as people write it: partition/shop.
func (s Scope) String() string {
	switch {
	case s.Partition != "":
		return "partition/" + s.Partition
	case s.Saga != "":
		return "saga/" + s.Saga
	case s.Schedule != "":
		return "schedule/" + s.Schedule
	}
	return "worker/" + s.Worker
}

func (s Scope) check() error {
	set := 0
	for _, v := range []string{s.Partition, s.Saga, s.Worker, s.Schedule} {
		if v != "" {
			set++
		}
	}
	switch {
	case set != 1:
		return fmt.Errorf("%w: Scope wants exactly one of Partition, Saga, Worker and Schedule", ErrInvalid)
	case s.Partition != "" && !partitionRule.MatchString(s.Partition):
		return fmt.Errorf("%w: Scope.Partition %s", ErrInvalid, partitionFault(s.Partition))
	case s.Saga != "" && !nameRule.MatchString(s.Saga):
		return fmt.Errorf("%w: Scope.Saga %s", ErrInvalid, nameFault(s.Saga))
	case s.Schedule != "" && !scheduleRule(s.Schedule):
		return fmt.Errorf("%w: Scope.Schedule is not of the form namespace/name", ErrInvalid)
	case len(s.Worker) > store.MaxText || !cleanText(s.Worker):
		return fmt.Errorf("%w: Scope.Worker must be valid UTF-8 without NUL of at most %d bytes", ErrInvalid, store.MaxText)
	}
	return nil
}

func scheduleRule(s string) bool {
	namespace, name, _ := strings.Cut(s, "/")
	return nameRule.MatchString(namespace) && nameRule.MatchString(name)
}

// A Pause is a scope that is paused, by whom and since when.
type Pause struct {
	Scope
	Actor  string    `json:"actor"`
	Reason string    `json:"reason"`
	At     time.Time `json:"at"`
}

// A PauseEntry says that something was paused or unpaused.
type PauseEntry struct {
	Pause
	Act Act `json:"act"` // ActPause or ActUnpause
	// Request is By.Request, and Digest tells whether a repetition asks for
	// the same.
	Request string `json:"request,omitempty"`
	Digest  string `json:"digest,omitempty"`
}

// pausesCell is the cell that holds what is paused and what was done about it:
// one cell, so that an act and its entry in the log are one write.
const pausesCell = "pauses"

type pauses struct {
	Now []Pause      `json:"now"`
	Log []PauseEntry `json:"log"` // newest last
}

// maxPauses is how many scopes of a kind are paused at once: a claim has to name
// them all, and takes no more than store.MaxFilter names.
const maxPauses = 500

// maxPauseLog bounds the log, in bytes: the oldest entries go.
const maxPauseLog = 512 * 1024

// Pause keeps new attempts from being opened in a partition, of a saga or by a
// worker, or a schedule from starting anything, until [Engine.Unpause]. Attempts that run go on to their end. What is
// paused keeps its place: it stays due, is not published, counts no resume, and
// is taken up in the order in which it came due. Starts, signals and acts are
// taken as ever. A paused worker takes no new work at all; its queues go to the
// others.
//
// It holds in every process, within a second or Config.SweepEvery, and over
// restarts, until it is taken back. To pause what is paused replaces its reason.
// The pause and its entry in the log ([Engine.PauseLog]) are one write; ErrNotSupported
// when the store has no store.Cells, and [ErrInvalid] when 500 partitions, sagas or
// workers are paused already.
func (e *Engine) Pause(ctx context.Context, s Scope, by By) error {
	return e.changePauses(ctx, s, by, ActPause)
}

// Unpause takes a Pause back. To unpause what is not paused does nothing but
// leave an entry in the log.
func (e *Engine) Unpause(ctx context.Context, s Scope, by By) error {
	return e.changePauses(ctx, s, by, ActUnpause)
}

// Pauses lists what is paused, by scope.
func (e *Engine) Pauses(ctx context.Context) ([]Pause, error) {
	p, _, err := e.readPauses(ctx)
	return p.Now, err
}

// PauseLog lists who paused and unpaused what, the newest last; it reaches back
// some hundreds of entries.
func (e *Engine) PauseLog(ctx context.Context) ([]PauseEntry, error) {
	p, _, err := e.readPauses(ctx)
	return p.Log, err
}

// Taking reports whether this worker takes new work, and returns a channel that
// is closed when that changes: consumers stop asking their broker for messages
// while it does not.
func (e *Engine) Taking() (taking bool, changed <-chan struct{}) { return e.gate.taking() }

func (e *Engine) changePauses(ctx context.Context, s Scope, by By, act Act) error {
	if err := errors.Join(s.check(), by.check()); err != nil {
		return err
	}
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return fmt.Errorf("saga: %s %s: %w: it has no store.Cells", act, s, ErrNotSupported)
	}
	if err := e.clock.ready(ctx); err != nil {
		return err
	}
	release, err := e.gate.alone(ctx)
	if err != nil {
		return err
	}
	defer release()
	for {
		p, revision, err := e.readPauses(ctx)
		if err != nil {
			return err
		}
		entry := PauseEntry{
			Pause: Pause{Scope: s, Actor: by.Actor, Reason: by.Reason, At: e.clock.now()},
			Act:   act, Request: by.Request, Digest: by.digest(act, s.String()),
		}
		if by.Request != "" {
			i := slices.IndexFunc(p.Log, func(l PauseEntry) bool { return l.Request == by.Request })
			if i >= 0 && p.Log[i].Digest != entry.Digest {
				return fmt.Errorf("saga: %s %s: %w", act, s, ErrRequestUsed)
			}
			if i >= 0 {
				return nil
			}
		}
		if act == ActUnpause && s.Schedule != "" && slices.ContainsFunc(p.Now, func(q Pause) bool { return q.Scope == s }) {
			if err := passOver(ctx, cells, s.Schedule, entry.At); err != nil {
				return fmt.Errorf("saga: %s %s: %w", act, s, err)
			}
		}
		p.Now = slices.DeleteFunc(p.Now, func(q Pause) bool { return q.Scope == s })
		if act == ActPause {
			if n := p.like(s); n >= maxPauses {
				return fmt.Errorf("%w: saga: %s %s: %d of its kind are paused already", ErrInvalid, act, s, n)
			}
			p.Now = append(p.Now, entry.Pause)
			slices.SortFunc(p.Now, func(a, b Pause) int { return cmp.Compare(a.String(), b.String()) })
		}
		p.Log = append(p.Log, entry)
		b, err := p.encode()
		if err != nil {
			return err
		}
		_, err = cells.SetCell(ctx, pausesCell, b, revision)
		if errors.Is(err, store.ErrConflict) {
			continue
		}
		if err != nil {
			return fmt.Errorf("saga: %s %s: %w", act, s, err)
		}
		e.emit(ctx, Event{Kind: EventActDone, At: entry.At, Saga: s.Saga, Partition: s.Partition, Reason: string(act) + " " + s.String()})
		e.paused(&p)
		return nil
	}
}

// like counts what is paused of the same kind.
func (p *pauses) like(s Scope) (n int) {
	for _, q := range p.Now {
		if (q.Partition == "") == (s.Partition == "") && (q.Saga == "") == (s.Saga == "") && (q.Schedule == "") == (s.Schedule == "") {
			n++
		}
	}
	return n
}

// encode returns p as JSON, with as much of its log as there is room for.
func (p *pauses) encode() (json.RawMessage, error) {
	for {
		b, err := json.Marshal(p)
		if err != nil {
			return nil, fmt.Errorf("saga: encode pauses: %w", err)
		}
		if len(b) <= maxPauseLog || len(p.Log) <= 1 {
			return b, nil
		}
		p.Log = p.Log[(len(p.Log)+1)/2:]
	}
}

func (e *Engine) readPauses(ctx context.Context) (p pauses, revision int64, err error) {
	cells, ok := store.As[store.Cells](e.store)
	if !ok {
		return p, 0, nil
	}
	b, revision, err := cells.Cell(ctx, pausesCell)
	if err == nil && b != nil {
		err = json.Unmarshal(b, &p)
	}
	if err != nil {
		return p, 0, fmt.Errorf("saga: read pauses: %w", err)
	}
	return p, revision, nil
}

// paused takes over what was read, and looks for work if some was let go.
func (e *Engine) paused(p *pauses) {
	if e.gate.put(newPauseSet(p.Now, e.worker)) {
		e.alarms.set(e.clock.now())
	}
}

// pauseLoop keeps what this process knows of the pauses up to date until ctx is
// done.
func (e *Engine) pauseLoop(ctx context.Context) {
	if _, ok := store.As[store.Cells](e.store); !ok {
		return
	}
	for sleep(ctx, min(e.sweepPause(), time.Second)) {
		e.lookAtPauses(ctx)
	}
}

func (e *Engine) lookAtPauses(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, storeTimeout)
	defer cancel()
	release, err := e.gate.alone(ctx)
	if err != nil {
		return // the next look is soon
	}
	defer release()
	p, _, err := e.readPauses(ctx)
	if errors.Is(ctx.Err(), context.Canceled) {
		return // a shutdown does not wait for what it needs no more
	}
	if err != nil {
		e.warn("saga: pauses", "error", err)
		return
	}
	e.heard.Store(time.Now().UnixNano())
	e.paused(&p)
}

// pausedNames lists the paused partitions and sagas, for a claim.
func (p *pauseSet) names() (partitions, sagas []string) {
	if p == nil {
		return nil, nil
	}
	for name := range p.partitions {
		partitions = append(partitions, name)
	}
	for name := range p.sagas {
		sagas = append(sagas, name)
	}
	return partitions, sagas
}
