package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A report is the result of a run, in the shape of -json.
type report struct {
	Run            string         `json:"run"`
	Seed           uint64         `json:"seed"`
	Sagas          int            `json:"sagas"`
	ByStatus       map[string]int `json:"by_status"`
	Steps          int            `json:"steps"`   // done
	Retries        int            `json:"retries"` // attempts after the first of a step or an undo
	Undos          int            `json:"undos"`   // done
	Calls          int            `json:"calls"`   // of services, that reached their ledger
	Effects        int            `json:"effects"` // of those
	Seconds        float64        `json:"seconds"` // from the first start to the last end
	SagasPerSecond float64        `json:"sagas_per_second"`
	P50            float64        `json:"p50_ms"` // of a saga, from its start to its end
	P99            float64        `json:"p99_ms"`
	Ledger         string         `json:"ledger"` // consistent or inconsistent
	Violations     []string       `json:"violations"`
	NeedsPerson    []string       `json:"needs_person"`

	table map[string]map[store.Status]int // by saga
	first time.Time
	last  time.Time
	took  []time.Duration
}

func newReport(o options) *report {
	return &report{
		Run: o.run, Seed: o.seed, ByStatus: map[string]int{}, Violations: []string{}, NeedsPerson: []string{},
		table: map[string]map[store.Status]int{},
	}
}

// add counts one saga.
func (r *report) add(p planned, x *saga.Execution, attempts []store.Attempt) {
	r.Sagas++
	status := store.Status("never started")
	if x != nil {
		status = x.Status
	}
	r.ByStatus[string(status)]++
	if r.table[p.Saga] == nil {
		r.table[p.Saga] = map[store.Status]int{}
	}
	r.table[p.Saga][status]++
	if x == nil {
		return
	}
	if r.first.IsZero() || x.CreatedAt.Before(r.first) {
		r.first = x.CreatedAt
	}
	if x.FinishedAt != nil {
		r.took = append(r.took, x.FinishedAt.Sub(x.CreatedAt))
		if x.FinishedAt.After(r.last) {
			r.last = *x.FinishedAt
		}
	}
	type work struct {
		step      string
		direction store.Direction
	}
	begun := map[work]bool{}
	for _, a := range attempts {
		w := work{a.Step, a.Direction}
		if begun[w] {
			r.Retries++
		}
		begun[w] = true
		if a.Status == store.AttemptSucceeded || a.Status == store.AttemptSkipped {
			if a.Direction == store.DirectionCompensate {
				r.Undos++
			} else {
				r.Steps++
			}
		}
	}
}

// conclude works out the totals.
func (r *report) conclude(v verdict, effects []effect) {
	for _, e := range effects {
		r.Calls += e.Calls
		if e.State == stateDone {
			r.Effects++
		}
	}
	if span := r.last.Sub(r.first); len(r.took) > 0 && span > 0 {
		r.Seconds = span.Seconds()
		r.SagasPerSecond = float64(len(r.took)) / r.Seconds
	}
	slices.Sort(r.took)
	r.P50, r.P99 = millis(percentile(r.took, 50)), millis(percentile(r.took, 99))
	r.Violations = append(r.Violations, v.violations...)
	r.NeedsPerson = append(r.NeedsPerson, v.needsPerson...)
	r.Ledger = "consistent"
	if len(r.Violations) > 0 {
		r.Ledger = "inconsistent"
	}
}

// percentile returns the smallest of the sorted values that p percent of them
// do not exceed.
func percentile(sorted []time.Duration, p int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	return sorted[(len(sorted)*p+99)/100-1]
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func (r *report) writeJSON(w io.Writer) error {
	return json.NewEncoder(w).Encode(r)
}

// statusOrder is the order of the columns.
var statusOrder = append(store.Statuses(), "never started")

// A paint colors text for a terminal, or does not.
type paint bool

func (p paint) in(code, s string) string {
	if !p {
		return s
	}
	return "\x1b[" + code + "m" + s + "\x1b[0m"
}

func (p paint) bold(s string) string  { return p.in("1", s) }
func (p paint) dim(s string) string   { return p.in("2", s) }
func (p paint) red(s string) string   { return p.in("31;1", s) }
func (p paint) green(s string) string { return p.in("32;1", s) }

func (r *report) write(w io.Writer, p paint) {
	var b strings.Builder
	r.writeTable(&b)
	table := strings.Split(strings.TrimRight(b.String(), "\n"), "\n")
	fmt.Fprintf(w, "\n  %s\n", p.bold(table[0]))
	for _, row := range table[1:] {
		fmt.Fprintf(w, "  %s\n", row)
	}
	fmt.Fprintf(w, "\n  %-11s %d done, %d retries, %d undos\n", "steps", r.Steps, r.Retries, r.Undos)
	fmt.Fprintf(w, "  %-11s %d calls, %d effects\n", "services", r.Calls, r.Effects)
	fmt.Fprintf(w, "  %-11s %.1f sagas/s, %d sagas in %.1f s\n", "throughput", r.SagasPerSecond, len(r.took), r.Seconds)
	fmt.Fprintf(w, "  %-11s p50 %s, p99 %s\n", "per saga", short(r.P50), short(r.P99))
	if r.Ledger == "consistent" {
		fmt.Fprintf(w, "  %-11s %s\n", "ledger:", p.green(r.Ledger))
	} else {
		fmt.Fprintf(w, "  %-11s %s\n", "ledger:", p.red(r.Ledger))
	}
	list(w, "violations", r.Violations)
	list(w, "needs a person", r.NeedsPerson)
	fmt.Fprintf(w, "\n  %s\n", p.dim(fmt.Sprintf("run %s, seed %d", r.Run, r.Seed)))
}

// writeTable writes one row for each saga, one column for each status that
// occurs.
func (r *report) writeTable(w io.Writer) {
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', tabwriter.AlignRight)
	defer t.Flush()
	var columns []store.Status
	for _, s := range statusOrder {
		if r.ByStatus[string(s)] > 0 {
			columns = append(columns, s)
		}
	}
	row := func(first string, total int, cell func(store.Status) string) {
		fmt.Fprintf(t, "%-12s\t", first)
		if total < 0 {
			fmt.Fprint(t, "sagas\t")
		} else {
			fmt.Fprintf(t, "%d\t", total)
		}
		for _, s := range columns {
			fmt.Fprintf(t, "%s\t", cell(s))
		}
		fmt.Fprintln(t)
	}
	row("", -1, func(s store.Status) string { return strings.ReplaceAll(string(s), "_", " ") })
	for _, l := range lines() {
		counts := r.table[string(l.name)]
		total := 0
		for _, n := range counts {
			total += n
		}
		if total == 0 {
			continue
		}
		row(string(l.name), total, func(s store.Status) string {
			if counts[s] == 0 {
				return "–"
			}
			return fmt.Sprint(counts[s])
		})
	}
	row("all", r.Sagas, func(s store.Status) string { return fmt.Sprint(r.ByStatus[string(s)]) })
}

const mostListed = 20

func list(w io.Writer, title string, items []string) {
	if len(items) == 0 {
		return
	}
	fmt.Fprintf(w, "\n  %s: %d\n", title, len(items))
	items = slices.SortedFunc(slices.Values(items), cmp.Compare[string])
	for i, item := range items {
		if i == mostListed {
			fmt.Fprintf(w, "    … and %d more\n", len(items)-mostListed)
			return
		}
		fmt.Fprintf(w, "    %s\n", item)
	}
}

// short prints milliseconds in three digits or so.
func short(ms float64) string {
	if ms < 1000 {
		return fmt.Sprintf("%.0f ms", ms)
	}
	return fmt.Sprintf("%.1f s", ms/1000)
}
