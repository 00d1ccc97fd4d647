package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
)

// A stuckView is what resume-stuck prints in JSON.
type stuckView struct {
	Items []stuckItem `json:"items"`
}

type stuckItem struct {
	Execution uuid.UUID         `json:"execution"`
	Result    saga.ResumeResult `json:"result"`
	Reason    string            `json:"reason,omitempty"`
}

func resumeStuck(ctx context.Context, c *call) error {
	by, err := c.by()
	if err != nil {
		return err
	}
	return c.withBroker(ctx, func(s *session) error {
		report, err := s.ResumeStuck(ctx, by, &saga.ResumeOptions{
			OlderThan: c.Duration("older-than"), Limit: c.Int("limit"), MaxResumes: c.Int("max-resumes"),
		})
		if report == nil {
			return err
		}
		v := stuckView{Items: []stuckItem{}}
		t := &table{heads: []string{"EXECUTION", "RESULT", "REASON"}, flex: 2}
		var failed error
		for _, i := range report.Items {
			v.Items = append(v.Items, stuckItem(i))
			t.add(i.Execution.String(), string(i.Result), i.Reason)
			if i.Result == saga.ResumeFailed {
				failed = fail(exitAmiss, "some of them could not be resumed")
			}
		}
		if c.json() {
			return errors.Join(c.document(v), err, failed)
		}
		if len(t.rows) > 0 {
			c.table(t)
		} else {
			fmt.Fprintln(c.stdout, "Nothing is stuck.")
		}
		return errors.Join(err, failed)
	})
}
