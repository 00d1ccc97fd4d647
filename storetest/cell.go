package storetest

import (
	"encoding/json"
	"errors"
	"strconv"
	"strings"

	"github.com/leveret-go/leveret/store"
)

func cellsOf(e *env) store.Cells {
	e.Helper()
	return ability[store.Cells](e, "Cells")
}

// cell checks what a cell holds.
func (e *env) cell(c store.Cells, name, value string, revision int64) {
	e.Helper()
	got, r, err := c.Cell(e.Context(), name)
	e.ok(err)
	if string(got) != value || r != revision || (got == nil) != (value == "") {
		e.Errorf("the cell holds %q at revision %d, want %q at %d", cut(string(got)), r, cut(value), revision)
	}
}

func (e *env) setCell(c store.Cells, name, value string, revision, want int64) {
	e.Helper()
	var v json.RawMessage
	if value != "" {
		v = json.RawMessage(value)
	}
	got, err := c.SetCell(e.Context(), name, v, revision)
	e.ok(err)
	if got != want {
		e.Errorf("SetCell returned revision %d, want %d", got, want)
	}
}

var cellCases = []testCase{
	{
		name:    "CellIsWritten",
		promise: "Cell returns the value and revision of a cell; nil and 0 when there is none. Revisions of a name rise by one with each write.",
		run: func(e *env) {
			c := cellsOf(e)
			e.cell(c, e.tag, "", 0)
			e.setCell(c, e.tag, `"a"`, 0, 1)
			e.cell(c, e.tag, `"a"`, 1)
			e.setCell(c, e.tag, `null`, 1, 2)
			e.cell(c, e.tag, `null`, 2)
			e.setCell(c, e.tag, `null`, 2, 3)
			e.cell(c, e.tag, `null`, 3)
		},
	},
	{
		name:    "CellConflicts",
		promise: "SetCell writes the cell if its revision is still revision, 0 meaning that there is none; else ErrConflict.",
		run: func(e *env) {
			c := cellsOf(e)
			try := func(value json.RawMessage, revision int64) {
				_, err := c.SetCell(e.Context(), e.tag, value, revision)
				e.is(err, store.ErrConflict)
			}
			try([]byte(`1`), 1)
			try(nil, 1)
			e.cell(c, e.tag, "", 0)
			e.setCell(c, e.tag, `1`, 0, 1)
			e.setCell(c, e.tag, `2`, 1, 2)
			for _, revision := range []int64{0, 1, 3, -1} {
				try([]byte(`3`), revision)
				try(nil, revision)
			}
			e.cell(c, e.tag, `2`, 2)
		},
	},
	{
		name:    "CellIsDeleted",
		promise: "A nil value deletes the cell and returns 0. Revisions start at 1 again after a delete.",
		run: func(e *env) {
			c := cellsOf(e)
			e.setCell(c, e.tag, `1`, 0, 1)
			e.setCell(c, e.tag, `2`, 1, 2)
			e.setCell(c, e.tag, "", 2, 0)
			e.cell(c, e.tag, "", 0)
			list, err := c.ListCells(e.Context(), e.tag)
			e.ok(err)
			e.same("ListCells", list, []store.Cell(nil))
			e.setCell(c, e.tag, `3`, 0, 1)
			e.cell(c, e.tag, `3`, 1)
		},
	},
	{
		name:    "CellRace",
		promise: "Cells are changed by compare-and-set: of simultaneous writers at one revision exactly one succeeds.",
		run: func(e *env) {
			c := cellsOf(e)
			const each = 3
			e.one(race(func(int) error {
				_, err := c.SetCell(e.Context(), e.tag+"new", []byte(`0`), 0)
				return err
			}), func(err error) bool { return errors.Is(err, store.ErrConflict) })
			for _, err := range race(func(int) error {
				for done := 0; done < each; {
					value, revision, err := c.Cell(e.Context(), e.tag)
					if err != nil {
						return err
					}
					n := 0
					if value != nil {
						if n, err = strconv.Atoi(string(value)); err != nil {
							return err
						}
					}
					_, err = c.SetCell(e.Context(), e.tag, []byte(strconv.Itoa(n+1)), revision)
					if err == nil {
						done++
					} else if !errors.Is(err, store.ErrConflict) {
						return err
					}
				}
				return nil
			}) {
				e.ok(err)
			}
			e.cell(c, e.tag, strconv.Itoa(writers*each), writers*each)
		},
	},
	{
		name:    "CellValueIsKept",
		promise: "Values are JSON of at most 1 MiB, kept byte for byte: anything else is ErrInvalid.",
		run: func(e *env) {
			c := cellsOf(e)
			revision := int64(0)
			values := []string{`1.0`, `"\u0000 \ud83d"`, ` [1, 2 ] `, `false`, `"` + strings.Repeat("x", store.MaxState-2) + `"`}
			for _, state := range states {
				values = append(values, state)
			}
			for _, value := range values {
				e.setCell(c, e.tag, value, revision, revision+1)
				revision++
				e.cell(c, e.tag, value, revision)
			}
			for _, bad := range []string{" ", "{", "1 2", "\"\xff\"", "\"\x00\"", "nil", `"` + strings.Repeat("x", store.MaxState-1) + `"`} {
				_, err := c.SetCell(e.Context(), e.tag, []byte(bad), revision)
				e.is(err, store.ErrInvalid)
			}
			_, err := c.SetCell(e.Context(), e.tag, json.RawMessage{}, revision)
			e.is(err, store.ErrInvalid)
			e.cell(c, e.tag, values[len(values)-1], revision)
		},
	},
	{
		name:    "CellNames",
		promise: "Names are 1 to 200 bytes of valid UTF-8 without NUL: anything else is ErrInvalid.",
		run: func(e *env) {
			c := cellsOf(e)
			names := []string{e.tag, strings.ToUpper(e.tag), e.tag + " ", e.tag + awkward, e.tag + strings.Repeat("n", 200-len(e.tag))}
			for i, name := range names {
				e.setCell(c, name, strconv.Itoa(i), 0, 1)
			}
			for i, name := range names {
				e.cell(c, name, strconv.Itoa(i), 1)
			}
			for _, name := range []string{"", "a\x00b", "a\xffb", strings.Repeat("n", 201)} {
				_, err := c.SetCell(e.Context(), name, []byte(`1`), 0)
				e.is(err, store.ErrInvalid)
			}
		},
	},
	{
		name:    "ListCells",
		promise: "ListCells returns all cells whose name starts with prefix (taken literally), ordered by the bytes of their names.",
		run: func(e *env) {
			c := cellsOf(e)
			prefix := e.tag + `%_\[a*?.`
			var want []store.Cell
			for _, suffix := range []string{"", "!", "A", "B", "Z", "_", "a", "z", "é", "\U0001F98A"} {
				want = append(want, store.Cell{Name: prefix + suffix, Value: []byte(`{"a": 1}`), Revision: 1})
			}
			for _, i := range []int{5, 1, 9, 0, 7, 3, 8, 2, 6, 4} {
				e.setCell(c, want[i].Name, string(want[i].Value), 0, 1)
			}
			e.setCell(c, want[2].Name, `2`, 1, 2)
			want[2].Value, want[2].Revision = []byte(`2`), 2
			for _, other := range []string{e.tag, e.tag + `xx\[a*?.`, e.tag + `%_[a*?.`, e.tag + `%_\[A*?.`, e.tag + `%_\[a*?x`, "x" + prefix} {
				e.setCell(c, other, `1`, 0, 1)
			}
			list, err := c.ListCells(e.Context(), prefix)
			e.ok(err)
			e.same("ListCells", list, want)
		},
	},
	{
		name:    "CellsAreCopies",
		promise: "Neither side sees later changes of the other's value (the values of cells).",
		run: func(e *env) {
			c := cellsOf(e)
			value := []byte(`"a"`)
			_, err := c.SetCell(e.Context(), e.tag, value, 0)
			e.ok(err)
			value[1] = 'x'
			e.cell(c, e.tag, `"a"`, 1)
			got, _, err := c.Cell(e.Context(), e.tag)
			e.ok(err)
			got[1] = 'y'
			e.cell(c, e.tag, `"a"`, 1)
			list, err := c.ListCells(e.Context(), e.tag)
			e.ok(err)
			if len(list) != 1 {
				e.Fatalf("ListCells returned %d cells, want 1", len(list))
			}
			list[0].Value[1] = 'z'
			e.cell(c, e.tag, `"a"`, 1)
		},
	},
}

var exclusiveCases = []testCase{
	{
		name:    "ExclusiveIsExclusive",
		promise: "Exclusive takes the store's lock for this process, without waiting, or returns ErrInUse.",
		fresh:   true,
		run: func(e *env) {
			x := ability[store.Exclusiver](e, "Exclusiver")
			release, err := x.Exclusive(e.Context())
			e.ok(err)
			_, err = x.Exclusive(e.Context())
			e.is(err, store.ErrInUse)
			if e.reopen != nil {
				if other, ok := store.As[store.Exclusiver](e.reopen()); ok {
					_, err = other.Exclusive(e.Context())
					e.is(err, store.ErrInUse)
				}
			}
			e.create() // the holder goes on using the store
			e.ok(release())
			release, err = x.Exclusive(e.Context())
			e.ok(err)
			e.ok(release())
		},
	},
	{
		name:    "ExclusiveReleasedTwice",
		promise: "The lock ends when release is called. release may be called more than once.",
		fresh:   true,
		run: func(e *env) {
			x := ability[store.Exclusiver](e, "Exclusiver")
			first, err := x.Exclusive(e.Context())
			e.ok(err)
			e.ok(first())
			e.ok(first())
			second, err := x.Exclusive(e.Context())
			e.ok(err)
			e.ok(first())
			_, err = x.Exclusive(e.Context())
			e.is(err, store.ErrInUse)
			e.ok(second())
		},
	},
}
