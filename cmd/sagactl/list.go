package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// list prints executions, newest first; in JSON one a line.
func list(ctx context.Context, c *call) error {
	limit := c.Int("limit")
	if limit < 1 {
		return usage("-limit is less than 1")
	}
	after, err := c.after()
	if err != nil {
		return err
	}
	return c.with(ctx, func(s *session) error {
		f, _, err := c.filter(ctx, s.store)
		if err != nil {
			return err
		}
		k, err := c.clock(ctx, s.store)
		if err != nil {
			return err
		}
		t := &table{heads: []string{"ID", "SAGA", "STATUS", "STEP", "RESOURCE", "MOVED", "FAILURE"}, flex: 6}
		for n := 0; n < limit; {
			page, err := s.List(ctx, f, store.Page{Limit: min(store.MaxPage, limit-n), After: after})
			if err != nil {
				return err
			}
			for _, x := range page.Executions {
				if c.json() {
					if err := c.line(viewExecution(x)); err != nil {
						return err
					}
				}
				t.add(listRow(k, x)...)
			}
			n += len(page.Executions)
			if page.Next == nil {
				break
			}
			if after = *page.Next; n >= limit {
				defer c.note("there are more: -after %s", after)
			}
		}
		if !c.json() {
			c.table(t)
		}
		return nil
	})
}

func listRow(k clock, x *store.Execution) []string {
	failure := ""
	if x.Failure != nil {
		failure = x.Failure.Class + ": " + x.Failure.Message
	}
	return []string{
		x.ID.String(), x.Saga, string(x.Status), x.Step, strings.Trim(x.Resource.Type+"/"+x.Resource.ID, "/"),
		k.at(x.ProgressAt), failure,
	}
}

func (c *call) after() (uuid.UUID, error) {
	if c.String("after") == "" {
		return uuid.Nil, nil
	}
	id, err := uuid.Parse(c.String("after"))
	if err != nil {
		return id, usage("-after is not the id of an execution (a UUID)")
	}
	return id, nil
}

// A countView is what count prints in JSON.
type countView struct {
	Groups    []map[string]any `json:"groups"` // the values of the dimensions, and n
	Truncated bool             `json:"truncated,omitempty"`
}

func count(ctx context.Context, c *call) error {
	by := words[store.Dimension](c.StringSlice("by"))
	return c.with(ctx, func(s *session) error {
		f, _, err := c.filter(ctx, s.store)
		if err != nil {
			return err
		}
		counts, err := s.Count(ctx, f, by, c.Int("most"))
		if err != nil {
			return err
		}
		if c.json() {
			v := countView{Groups: []map[string]any{}, Truncated: counts.Truncated}
			for _, g := range counts.Groups {
				group := map[string]any{"n": g.N}
				for i, d := range by {
					group[string(d)] = g.Values[i]
				}
				v.Groups = append(v.Groups, group)
			}
			return c.document(v)
		}
		t := &table{heads: []string{"N"}}
		for _, d := range by {
			t.heads = append(t.heads, strings.ToUpper(string(d)))
		}
		t.flex = len(t.heads) - 1
		for _, g := range counts.Groups {
			t.add(append([]string{fmt.Sprint(g.N)}, g.Values...)...)
		}
		c.table(t)
		if counts.Truncated {
			c.note("not all were counted: -most is too low")
		}
		return nil
	})
}
