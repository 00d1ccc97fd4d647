package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// workers lists the processes that work on the store.
func workers(ctx context.Context, c *call) error {
	return c.with(ctx, func(s *session) error {
		all, err := s.Workers(ctx)
		if err != nil {
			return err
		}
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"WORKER", "STATE", "RUNNING", "PARTITIONS", "SEEN", "SWEPT", "SAGAS"}, flex: 6}
		for _, w := range all {
			if c.json() {
				if err := c.line(w); err != nil {
					return err
				}
			}
			t.add(w.ID, workerState(&w), fmt.Sprint(w.Running), partitionsText(w.Partitions), k.ago(w.SeenAt), swept(k, w.SweptAt), sagasText(w.Sagas))
		}
		if !c.json() {
			c.table(t)
		}
		return nil
	})
}

func workerState(w *saga.WorkerInfo) string {
	state := "works"
	switch {
	case !w.Alive:
		return "not heard of"
	case w.Draining:
		state = "draining"
	}
	if w.Paused {
		state += ", paused"
	}
	return strings.TrimPrefix(state, "works, ")
}

func partitionsText(p map[string]int) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(p)) {
		shown := name
		if name == "" {
			shown = "all"
		}
		texts = append(texts, fmt.Sprintf("%s:%d", shown, p[name]))
	}
	return strings.Join(texts, " ")
}

func swept(k clock, t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return k.ago(t)
}

func sagasText(sagas []saga.WorkerSaga) string {
	var texts []string
	for _, s := range sagas {
		texts = append(texts, fmt.Sprintf("%s:%d", s.Saga, s.Version))
	}
	return strings.Join(texts, " ")
}

// health says what a person should know; degraded and down are a failure.
func health(ctx context.Context, c *call) error {
	return c.withBroker(ctx, func(s *session) error {
		h := s.Health(ctx)
		if err := ctx.Err(); err != nil {
			return err
		}
		if c.json() {
			if err := c.document(h); err != nil {
				return err
			}
		} else {
			c.showHealth(h)
		}
		if h.Level == saga.HealthDegraded || h.Level == saga.HealthDown {
			return fail(exitAmiss, "%s: docs/oncall.md says what to do about each code", h.Level)
		}
		return nil
	})
}

func (c *call) showHealth(h *saga.Health) {
	unasked := make([]string, len(h.Unasked))
	for i, code := range h.Unasked {
		unasked[i] = string(code)
	}
	c.fields("level", string(h.Level), "not known", strings.Join(unasked, ", "))
	if len(h.Causes) == 0 {
		return
	}
	fmt.Fprintln(c.stdout)
	t := &table{heads: []string{"LEVEL", "CODE", "DETAIL"}, flex: 2}
	for _, cause := range h.Causes {
		t.add(string(cause.Level), string(cause.Code), cause.Detail)
	}
	c.table(t)
}
