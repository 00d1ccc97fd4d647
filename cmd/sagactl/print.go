package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/leveret-go/leveret/store"
)

// note tells people something beside the result.
func (c *call) note(format string, args ...any) {
	fmt.Fprintln(c.stderr, "sagactl:", redact(clean(fmt.Sprintf(format, args...)), c.storeAddress(), c.amqpURL()))
}

// document prints one JSON document.
func (c *call) document(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}

// line prints one line of NDJSON.
func (c *call) line(v any) error {
	e := json.NewEncoder(c.stdout)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// clean makes a text fit for one line of a terminal: what is not printable is
// escaped as in Go, so that nobody's data moves a cursor.
func clean(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if unicode.IsPrint(r) && !(r == utf8.RuneError && n == 1) {
			b.WriteString(s[:n])
		} else {
			q := strconv.QuoteToASCII(s[:n])
			b.WriteString(q[1 : len(q)-1])
		}
		s = s[n:]
	}
	return b.String()
}

// A table has its last column, or the one at flex, cut to fit a terminal.
type table struct {
	heads []string
	rows  [][]string
	flex  int // which column is cut first
}

func (t *table) add(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	t.rows = append(t.rows, cells)
}

// print writes the table, its lines no wider than width if that is not 0.
func (t *table) print(w io.Writer, width int) {
	widths := make([]int, len(t.heads))
	for _, row := range append([][]string{t.heads}, t.rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	if width > 0 {
		total := 2 * (len(widths) - 1)
		for _, n := range widths {
			total += n
		}
		if over := total - width; over > 0 {
			least := max(8, utf8.RuneCountInString(t.heads[t.flex]))
			widths[t.flex] = max(min(widths[t.flex], least), widths[t.flex]-over)
		}
	}
	for _, row := range append([][]string{t.heads}, t.rows...) {
		var line strings.Builder
		for i, cell := range row {
			if i > 0 {
				line.WriteString("  ")
			}
			cell = cut(cell, widths[i])
			line.WriteString(cell + strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell)))
		}
		fmt.Fprintln(w, cut(strings.TrimRight(line.String(), " "), width))
	}
}

// cut shortens s to n characters; 0 leaves it.
func cut(s string, n int) string {
	if n <= 0 || utf8.RuneCountInString(s) <= n {
		return s
	}
	return string([]rune(s)[:n-1]) + "…"
}

func (c *call) table(t *table) { t.print(c.stdout, c.width) }

// fields prints names and values, one a line; those without a value are left out.
func (c *call) fields(pairs ...string) {
	wide := 0
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			wide = max(wide, len(pairs[i]))
		}
	}
	for i := 0; i < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			fmt.Fprintf(c.stdout, "%-*s  %s\n", wide, pairs[i], clean(pairs[i+1]))
		}
	}
}

// A clock tells people how long ago something was.
type clock struct{ now time.Time }

func (c *call) clock(ctx context.Context, st store.Store) (clock, error) {
	if c.now != nil {
		return clock{c.now()}, nil
	}
	now, err := st.Now(ctx)
	return clock{now}, err
}

// wall is the time where there is no store to ask.
func (c *call) wall() time.Time {
	if c.now != nil {
		return c.now()
	}
	return time.Now()
}

// at returns a time, and how far it is from now: 2026-01-02T03:04:05Z (3m ago).
func (k clock) at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return stamp(t) + " (" + k.ago(t) + ")"
}

func (k clock) atPtr(t *time.Time) string {
	if t == nil {
		return ""
	}
	return k.at(*t)
}

func (k clock) ago(t time.Time) string {
	if d := k.now.Sub(t).Abs(); d < time.Millisecond {
		return "now"
	}
	if t.After(k.now) {
		return "in " + span(t.Sub(k.now))
	}
	return span(k.now.Sub(t)) + " ago"
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// span is a duration in one or two units.
func span(d time.Duration) string {
	const day = 24 * time.Hour
	two := func(big, small time.Duration, b, s string) string {
		text := strconv.Itoa(int(d/big)) + b
		if rest := d % big / small; rest > 0 {
			text += strconv.Itoa(int(rest)) + s
		}
		return text
	}
	switch {
	case d < time.Second:
		return strconv.FormatInt(d.Milliseconds(), 10) + "ms"
	case d < time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < time.Hour:
		return two(time.Minute, time.Second, "m", "s")
	case d < day:
		return two(time.Hour, time.Minute, "h", "m")
	}
	return two(day, time.Hour, "d", "h")
}
