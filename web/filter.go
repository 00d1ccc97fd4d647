package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/store"
)

// values returns what a parameter of a query lists: given several times, or
// once with commas.
func values(q url.Values, name string) (list []string) {
	for _, v := range q[name] {
		for part := range strings.SplitSeq(v, ",") {
			if part != "" {
				list = append(list, part)
			}
		}
	}
	return list
}

func typed[T ~string](list []string) (out []T) {
	for _, s := range list {
		out = append(out, T(s))
	}
	return out
}

func invalid(name, rule string) error {
	return refuse(http.StatusBadRequest, "invalid", name+" "+rule)
}

func ids(q url.Values, name string) (out []uuid.UUID, err error) {
	for _, s := range values(q, name) {
		id, err := uuid.Parse(s)
		if err != nil {
			return nil, invalid(name, "is not an id (a UUID)")
		}
		out = append(out, id)
	}
	return out, nil
}

func moment(q url.Values, name string) (time.Time, error) {
	s := q.Get(name)
	if s == "" {
		return time.Time{}, nil
	}
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, invalid(name, "is not a time such as 2026-03-01T12:00:00Z")
	}
	return t.UTC(), nil
}

func span(q url.Values, name string) (time.Duration, error) {
	s := q.Get(name)
	if s == "" {
		return 0, nil
	}
	days, isDays := strings.CutSuffix(s, "d")
	if n, err := strconv.Atoi(days); isDays && err == nil && n > 0 && n <= 3650 {
		return time.Duration(n) * 24 * time.Hour, nil
	}
	d, err := time.ParseDuration(s)
	if err != nil || d <= 0 {
		return 0, invalid(name, "is not a duration such as 90s, 15m, 24h or 7d")
	}
	return d, nil
}

func rangeOf(q url.Values, name string) (r store.Range, err error) {
	if r.From, err = moment(q, name+"_from"); err == nil {
		r.To, err = moment(q, name+"_to")
	}
	return r, err
}

// filterParameters are those that filterOf knows.
var filterParameters = []string{
	"id", "saga", "status", "step", "partition", "error_class", "key", "parent", "resource_type", "resource_id", "resource", "tag", "attention",
	"created_from", "created_to", "progress_from", "progress_to", "finished_from", "finished_to", "unfinished", "stuck_for",
	"failed_class", "failed_step", "failed_direction", "failed_from", "failed_to",
}

// recent is how far a search for a part of a resource looks back, if nobody
// says otherwise.
const recent = 30 * 24 * time.Hour

// filterOf reads a filter from a query. others are parameters that are known
// besides.
func (c *console) filterOf(q url.Values, now time.Time, others ...string) (f store.Filter, err error) {
	for name := range q {
		if !slices.Contains(filterParameters, name) && !slices.Contains(others, name) {
			return f, invalid(strconv.Quote(name), "is no parameter of this")
		}
	}
	f = store.Filter{
		Sagas: values(q, "saga"), Statuses: typed[store.Status](values(q, "status")), Steps: values(q, "step"), Partitions: values(q, "partition"),
		ErrorClasses: q["error_class"], Keys: q["key"], Attention: typed[store.Attention](values(q, "attention")),
		Resource: store.Resource{Type: q.Get("resource_type"), ID: q.Get("resource_id")}, ResourceLike: q.Get("resource"),
		At: now, StalledAfter: c.cfg.StalledAfter,
	}
	if f.IDs, err = ids(q, "id"); err != nil {
		return f, err
	}
	if f.Parents, err = ids(q, "parent"); err != nil {
		return f, err
	}
	for _, tag := range q["tag"] {
		name, value, ok := strings.Cut(tag, "=")
		if !ok {
			return f, invalid("tag", "is not written name=value")
		}
		if f.Tags == nil {
			f.Tags = make(map[string]string)
		}
		f.Tags[name] = value
	}
	switch v := q.Get("unfinished"); v {
	case "", "false":
	case "true":
		f.Unfinished = true
	default:
		return f, invalid("unfinished", "is neither true nor false")
	}
	if f.StuckFor, err = span(q, "stuck_for"); err != nil {
		return f, err
	}
	for _, r := range []struct {
		name string
		to   *store.Range
	}{{"created", &f.Created}, {"progress", &f.Progress}, {"finished", &f.Finished}} {
		if *r.to, err = rangeOf(q, r.name); err != nil {
			return f, err
		}
	}
	failed := store.FailedAttempt{Class: q.Get("failed_class"), Step: q.Get("failed_step"), Direction: store.Direction(q.Get("failed_direction"))}
	if failed.Finished, err = rangeOf(q, "failed"); err != nil {
		return f, err
	}
	if failed != (store.FailedAttempt{}) {
		f.Failed = &failed
	}
	if f.ResourceLike != "" && f.Created.From.IsZero() {
		f.Created.From = now.Add(-recent)
	}
	return f, f.Validate()
}

// pageOf reads which page a query asks for.
func pageOf(q url.Values) (p store.Page, err error) {
	if s := q.Get("limit"); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil || n < 1 || n > store.MaxPage {
			return p, invalid("limit", "is not between 1 and 1000")
		}
		p.Limit = n
	}
	if s := q.Get("after"); s != "" {
		if p.After, err = uuid.Parse(s); err != nil {
			return p, invalid("after", "is not an id (a UUID)")
		}
	}
	return p, nil
}
