package main

import (
	"context"
	"slices"
	"sync"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// A memoryLedger goes with the store in memory.
type memoryLedger struct {
	mu    sync.Mutex
	rows  map[string]*effect
	runs  map[string][]planned
	known map[uuid.UUID]bool
}

func newMemoryLedger() *memoryLedger {
	return &memoryLedger{rows: map[string]*effect{}, runs: map[string][]planned{}, known: map[uuid.UUID]bool{}}
}

func (l *memoryLedger) apply(_ context.Context, r request) (bool, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	row, known := l.rows[r.Key]
	if !known {
		row = &effect{Key: r.Key, Order: r.Order, Service: r.Service, Kind: string(r.Kind), State: stateDone}
		l.rows[r.Key] = row
		if r.Kind == store.DirectionCompensate {
			done, ok := l.rows[r.ExecuteKey]
			if !ok {
				done = &effect{Key: r.ExecuteKey, Order: r.Order, Service: r.Service, Kind: string(store.DirectionExecute), State: stateMarked}
				l.rows[r.ExecuteKey] = done
			}
			if done.State != stateDone {
				row.State = stateNoop
			}
		}
	}
	row.Calls++
	return row.State != stateMarked, nil
}

func (l *memoryLedger) plan(_ context.Context, run string, sagas []planned) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, p := range sagas {
		if !l.known[p.Execution] {
			l.known[p.Execution] = true
			l.runs[run] = append(l.runs[run], p)
		}
	}
	return nil
}

func (l *memoryLedger) planned(_ context.Context, run string) ([]planned, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.runs[run]), nil
}

func (l *memoryLedger) effects(_ context.Context, run string) ([]effect, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	orders := map[string]bool{}
	for _, p := range l.runs[run] {
		orders[p.Order] = true
	}
	var out []effect
	for _, row := range l.rows {
		if orders[row.Order] {
			out = append(out, *row)
		}
	}
	return out, nil
}

func (l *memoryLedger) close() error { return nil }
