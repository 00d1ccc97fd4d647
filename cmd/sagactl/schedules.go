package main

import (
	"context"
	"time"

	"github.com/leveret-go/leveret/saga"
)

// schedules lists what starts sagas at given times.
func schedules(ctx context.Context, c *call) error {
	return c.with(ctx, func(s *session) error {
		all, err := s.ScheduleList(ctx)
		if err != nil {
			return err
		}
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"SCHEDULE", "SAGA", "TIMES", "NEXT", "LAST", "RESULT", "STATE"}, flex: 6}
		for i := range all {
			v := &all[i]
			if c.json() {
				if err := c.line(v); err != nil {
					return err
				}
			}
			last := "never"
			if !v.Last.IsZero() {
				last = k.at(v.Last)
			}
			t.add(v.Key(), v.Saga, timesText(v), k.at(v.Next), last, v.LastResult, scheduleState(v))
		}
		if !c.json() {
			c.table(t)
		}
		return nil
	})
}

func timesText(v *saga.ScheduleInfo) string {
	text := v.Cron
	if text == "" {
		text = "every " + span(v.Every.Round(time.Second))
	}
	if v.TimeZone != "" {
		text += " " + v.TimeZone
	}
	return text
}

func scheduleState(v *saga.ScheduleInfo) string {
	switch {
	case v.PausedBy != nil:
		return "paused by " + v.PausedBy.Actor + ": " + v.PausedBy.Reason
	case v.Paused:
		return "paused by its declaration"
	}
	return "catches up: " + string(v.CatchUp)
}
