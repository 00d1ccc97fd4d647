package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/urfave/cli/v3"

	"github.com/leveret-go/leveret/store"
)

// filterFlags select executions: list, count, bulk and erase.
func filterFlags() []cli.Flag {
	list := func(name, usage string) cli.Flag {
		return &cli.StringSliceFlag{Name: name, Usage: usage}
	}
	text := func(name, usage string) cli.Flag { return &cli.StringFlag{Name: name, Usage: usage} }
	return []cli.Flag{
		list("id", "only these executions: `ID`,ID"),
		list("saga", "only of these `SAGA`s"),
		list("status", "only in these `STATUS`es: "+join(store.Statuses())),
		list("step", "only standing at these `STEP`s"),
		list("partition", "only in these `PARTITION`s"),
		list("key", "only with this start `KEY`; repeat it for several"),
		list("parent", "only started by these executions: `ID`,ID"),
		list("tag", "only with this tag, `NAME=VALUE`; repeat it for several, which all have to match"),
		list("error-class", "only with a failure of this `CLASS`; repeat it for several"),
		text("resource-type", "only about this `TYPE` of resource"),
		text("resource-id", "only about the resource with this `ID`"),
		list("attention", "only what needs a person, for these `REASON`s: "+join(store.Attentions)),
		&cli.BoolFlag{Name: "unfinished", Usage: "only unfinished ones"},
		text("erased", "only with (`true`) or without (false) erased data"),
		text("created-after", "only started at or after this `TIME`: RFC 3339, or how long ago (36h, 7d)"),
		text("created-before", "only started before this `TIME`"),
		text("moved-after", "only that moved last at or after this `TIME`"),
		text("moved-before", "only that moved last before this `TIME`"),
		text("finished-after", "only finished at or after this `TIME`"),
		text("finished-before", "only finished before this `TIME`"),
		&cli.DurationFlag{Name: "stalled-after", Usage: "`TIME` without a move that -attention stalled means (default: 15m)", HideDefault: true},
		&cli.DurationFlag{Name: "overdue-after", Usage: "`TIME` past due that -attention overdue means (default: by the engine)", HideDefault: true},
	}
}

func join[T ~string](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = string(v)
	}
	return strings.Join(texts, ", ")
}

// words splits values at commas. Names have none.
func words[T ~string](values []string) []T {
	var all []T
	for _, v := range values {
		for w := range strings.SplitSeq(v, ",") {
			all = append(all, T(strings.TrimSpace(w)))
		}
	}
	return all
}

// filter reads filterFlags, and whether any of them is given.
func (c *call) filter(ctx context.Context, st store.Store) (f store.Filter, any bool, err error) {
	for _, flag := range filterFlags() {
		name := flag.Names()[0]
		any = any || c.IsSet(name) && name != "stalled-after" && name != "overdue-after"
	}
	k, err := c.clock(ctx, st)
	if err != nil {
		return f, any, err
	}
	f = store.Filter{
		Sagas: words[string](c.StringSlice("saga")), Statuses: words[store.Status](c.StringSlice("status")),
		Steps: words[string](c.StringSlice("step")), Partitions: words[string](c.StringSlice("partition")),
		ErrorClasses: c.StringSlice("error-class"),
		Resource:     store.Resource{Type: c.String("resource-type"), ID: c.String("resource-id")},
		Attention:    words[store.Attention](c.StringSlice("attention")), Unfinished: c.Bool("unfinished"),
		At: k.now, StalledAfter: c.Duration("stalled-after"), OverdueAfter: c.Duration("overdue-after"),
	}
	for _, s := range words[string](c.StringSlice("id")) {
		id, err := uuid.Parse(s)
		if err != nil {
			return f, any, usage("-id: not the id of an execution (a UUID)")
		}
		f.IDs = append(f.IDs, id)
	}
	f.Keys = c.StringSlice("key")
	for _, s := range words[string](c.StringSlice("parent")) {
		id, err := uuid.Parse(s)
		if err != nil {
			return f, any, usage("-parent: not the id of an execution (a UUID)")
		}
		f.Parents = append(f.Parents, id)
	}
	for _, s := range c.StringSlice("tag") {
		name, value, ok := strings.Cut(s, "=")
		if !ok {
			return f, any, usage("-tag is not NAME=VALUE")
		}
		if f.Tags == nil {
			f.Tags = map[string]string{}
		}
		f.Tags[name] = value
	}
	for _, s := range f.Statuses {
		if !s.Valid() {
			return f, any, usage("-status is none of %s", join(store.Statuses()))
		}
	}
	for _, a := range f.Attention {
		if !slices.Contains(store.Attentions, a) {
			return f, any, usage("-attention is none of %s", join(store.Attentions))
		}
	}
	switch c.String("erased") {
	case "":
	case "true", "false":
		erased := c.String("erased") == "true"
		f.Erased = &erased
	default:
		return f, any, usage("-erased is neither true nor false")
	}
	for flag, t := range map[string]*time.Time{
		"created-after": &f.Created.From, "created-before": &f.Created.To, "moved-after": &f.Progress.From,
		"moved-before": &f.Progress.To, "finished-after": &f.Finished.From, "finished-before": &f.Finished.To,
	} {
		if *t, err = c.time(flag, k.now); err != nil {
			return f, any, err
		}
	}
	return f, any, nil
}

// time reads a flag that is a time, or how long before now that was; zero when
// it is not given.
func (c *call) time(flag string, now time.Time) (time.Time, error) {
	s := c.String(flag)
	if s == "" {
		return time.Time{}, nil
	}
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, nil
	}
	if d, err := duration(s); err == nil {
		return now.Add(-d), nil
	}
	return time.Time{}, usage("-%s is neither a time like 2026-01-31T12:00:00Z nor how long ago, like 36h or 7d", flag)
}

// duration is time.ParseDuration with days in front: 7d, 1d12h.
func duration(s string) (time.Duration, error) {
	bad := fmt.Errorf("%q is no duration", s)
	var days time.Duration
	if n, rest, ok := strings.Cut(s, "d"); ok {
		count, err := strconv.ParseUint(n, 10, 16)
		if err != nil {
			return 0, bad
		}
		days, s = 24*time.Hour*time.Duration(count), rest
		if s == "" {
			return days, nil
		}
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 {
		return 0, bad
	}
	return days + d, nil
}
