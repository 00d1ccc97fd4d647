package rows

import (
	"database/sql"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"

	"github.com/leveret-go/leveret/store"
)

var zone = time.FixedZone("x", 3600)

func at(us int64) time.Time { return time.UnixMicro(us).UTC() }

// odd returns the same moment in another zone, with digits that are cut off.
func odd(us int64) time.Time { return time.UnixMicro(us).Add(999).In(zone) }

func full() *store.Execution {
	ptr := func(us int64) *time.Time { t := odd(us); return &t }
	of, as, follows, replaced, continues, continued := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	return &store.Execution{
		ID: uuid.MustParse("01940000-0000-7000-8000-00000000000a"), Saga: "order", Version: 3, Partition: "eu",
		Resource: store.Resource{Type: "order", ID: "47'11?"}, Key: "k", Status: store.StatusCompensating,
		Direction: store.DirectionCompensate, Step: "pay", Epoch: 2,
		Ledger: []store.LedgerEntry{
			{Name: "reserve", Compensable: true, InDoubt: store.InDoubtCompensate, Status: store.StepDone, Opens: 1, Token: ptr(22)},
			{Name: "pay", InDoubt: store.InDoubtHalt, Status: store.StepInDoubt, DoubtUntil: ptr(1_700_000_000_000_123), Round: 2, Stray: true},
		},
		State:   json.RawMessage("{ \"a\" : \"\\u0000 C:\\\\u0000\", \"n\":9007199254740993, \"a\":1.0 }\n"),
		Attempt: &store.OpenAttempt{Number: 4, Worker: "w", StartedAt: odd(1), LeaseUntil: odd(2), TimeoutAt: ptr(3), Progress: &store.Progress{Done: 1, Total: 1 << 60, Note: "<&>", At: odd(15)}},
		DueAt:   ptr(-4), WakeAt: ptr(5), OfferedAt: ptr(6), Tries: 7, Resumes: 8,
		Failure: &store.Failure{Message: "no", Step: "ship"}, Cause: &store.Failure{Class: "c", Message: "\u2028<no>", Step: "pay"},
		Turn: store.TurnCancel, Reason: "why", ReasonBy: "bob", RerunOf: &of, RerunAs: &as, ErasedAt: ptr(16),
		Initial: json.RawMessage("{ }"), Checkpoint: json.RawMessage(" 7 "),
		Gate: &store.Gate{
			Kind: store.GateSignal, Since: odd(17), Until: ptr(18), Signals: []string{"a", "b"}, All: true, Prompt: "<?>",
			Choices: []store.Choice{{Label: "<yes>", Signal: "a", Payload: json.RawMessage(" { } ")}, {Label: "no", Signal: "b"}},
			Open:    true, TimedOut: true, Moved: true,
		},
		Inbox: []store.Message{
			{Name: "a", Key: "k", Actor: "ann", Reason: "<&>", Payload: json.RawMessage(" \"\\u0000 \\ud800 <\u2028>\" "), At: odd(19), Step: "pay"},
			{Name: "b", At: odd(20), Spent: true},
			{Name: "c", Payload: json.RawMessage("null")},
		},
		Deadline: ptr(21), Parent: &store.Parent{Execution: uuid.New(), Step: "s", Key: "<k>"},
		Follows: &follows, ReplacedBy: &replaced, Continues: &continues, ContinuedAs: &continued,
		Tags:        map[string]string{"<b>": "", "a": "\u2028\"\\"},
		Request:     &store.Request{Turn: store.TurnCancel, Halt: true, Actor: "ann", Reason: "<&>", At: odd(9)},
		TraceParent: "00-1", CreatedAt: odd(10), UpdatedAt: odd(11), ProgressAt: odd(12), FinishedAt: ptr(13), Revision: 14,
	}
}

func TestExecutionGoesRoundTheRow(t *testing.T) {
	for name, x := range map[string]*store.Execution{
		"full": full(),
		"bare": {ID: uuid.New(), Saga: "s", State: json.RawMessage("{}")},
		"parts": {
			ID: uuid.New(), Saga: "s", State: json.RawMessage("{}"), Gate: &store.Gate{}, Parent: &store.Parent{Execution: uuid.Max},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := *x
			r, err := FromExecution(x)
			if err != nil {
				t.Fatal(err)
			}
			if !reflect.DeepEqual(before, *x) {
				t.Error("FromExecution changed its argument")
			}
			got, err := r.Store()
			if err != nil {
				t.Fatal(err)
			}
			if want := x.Clone(); !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v\nwant\n%+v", got, want)
			}
		})
	}
}

func TestAttemptGoesRoundTheRow(t *testing.T) {
	f := odd(3)
	a := store.Attempt{
		Execution: uuid.New(), Step: "pay", Direction: store.DirectionExecute, Epoch: 1, Number: 2, Worker: "w",
		Status: store.AttemptFailed, StartedAt: odd(1), FinishedAt: &f, LeaseUntil: odd(2),
		Failure: &store.Failure{Class: "", Message: "no", Step: "ship"}, Stack: "s", Reason: "r", Late: true, LateStatus: store.AttemptSucceeded,
	}
	if got, want := FromAttempt(&a).Store(), a.Clone(); !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestAuditEntryGoesRoundTheRow(t *testing.T) {
	for _, detail := range []json.RawMessage{nil, json.RawMessage("{ }")} {
		e := store.AuditEntry{
			Execution: uuid.New(), At: odd(1), Act: "retry", Actor: "ann", Reason: "r", Before: store.StatusHalted,
			After: store.StatusRunning, Request: "q", Digest: "d", Detail: detail,
		}
		if got, want := FromAudit(&e).Store(), e.Clone(); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
}

func TestColumnsNameTheFieldsInOrder(t *testing.T) {
	r, err := FromExecution(full())
	if err != nil {
		t.Fatal(err)
	}
	check := func(name string, model any, columns []string, values ...int) {
		t.Helper()
		var fields []string
		for _, f := range schema.NewTables(sqlitedialect.New()).Get(reflect.TypeOf(model)).Fields {
			if f.Name != "seq" {
				fields = append(fields, f.Name)
			}
		}
		if !slices.Equal(fields, columns) {
			t.Errorf("%s: model has %q, columns are %q", name, fields, columns)
		}
		for _, n := range values {
			if n != len(columns) {
				t.Errorf("%s: %d values for %d columns", name, n, len(columns))
			}
		}
	}
	check("executions", (*Execution)(nil), Columns, len(r.Dest()), len(r.Values(MicrosValue)))
	check("attempts", (*Attempt)(nil), AttemptColumns, len(new(Attempt).Values(MicrosValue)))
	check("audit", (*AuditEntry)(nil), AuditColumns, len(new(AuditEntry).Values(MicrosValue)))
	if got, want := len(r.StateValues()), len(StateColumns); got != want {
		t.Errorf("%d values for %d state columns", got, want)
	}
	if got, want := len(r.RareValues(MicrosValue)), len(RareColumns); got != want {
		t.Errorf("%d values for %d rare columns", got, want)
	}
	if got, want := len(r.UpdateValues(MicrosValue)), len(UpdateColumns); got != want {
		t.Errorf("%d values for %d update columns", got, want)
	}

	// Dest points at the fields in the order of the model.
	v := reflect.ValueOf(r).Elem()
	for i, p := range r.Dest() {
		if f := v.Field(i + 1); f.Addr().Interface() != p {
			t.Errorf("Dest()[%d] is not field %s", i, v.Type().Field(i+1).Name)
		}
	}
	same := func(columns []string, values []any) {
		for i, c := range columns {
			if got, want := values[i], r.Values(MicrosValue)[slices.Index(Columns, c)]; got != want {
				t.Errorf("the value of %s is %v, want %v", c, got, want)
			}
		}
	}
	same(UpdateColumns, r.UpdateValues(MicrosValue))
	same(RareColumns, r.RareValues(MicrosValue))
	same(StateColumns, r.StateValues())
	if n := 1 + len(UpdateColumns) + len(RareColumns) + len(FixedColumns) - 1 + len(StateColumns); n != len(Columns) {
		t.Errorf("%d columns are in a group, of %d", n, len(Columns))
	}
}

// Each rare column alone makes a row rare.
func TestRareRows(t *testing.T) {
	for i, c := range RareColumns {
		r := new(Execution)
		if r.Rare() {
			t.Fatal("an empty row is rare")
		}
		v := reflect.ValueOf(r.Dest()[slices.Index(Columns, c)]).Elem()
		v.Set(reflect.New(v.Type().Elem()))
		if !r.Rare() || r.RareValues(MicrosValue)[i] == nil {
			t.Errorf("a row with %s is not rare", c)
		}
	}
}

func TestTimeScansBothDatabases(t *testing.T) {
	for _, src := range []any{int64(1_700_000_000_123_456), odd(1_700_000_000_123_456)} {
		var got Time
		if err := got.Scan(src); err != nil {
			t.Fatal(err)
		}
		if want := at(1_700_000_000_123_456); got.Time != want {
			t.Errorf("Scan(%T) gives %v, want %v", src, got, want)
		}
	}
	if err := new(Time).Scan("2026-01-01"); err == nil {
		t.Error("text was scanned into a time")
	}
}

func TestReadsAreWrittenInEachDialect(t *testing.T) {
	tables := Tables{Schema: "sagas", Prefix: "p_"}
	q := store.StalledQuery{ProgressBefore: odd(-1), After: &store.StalledCursor{ProgressAt: odd(1), ID: uuid.Nil}, Limit: 5}
	for name, c := range map[string]struct {
		dialect schema.Dialect
		want    []string
	}{
		"sqlite":   {sqlitedialect.New(), []string{`"sagas"."p_executions" AS x`, `x.progress_at < -1`, `> (1, '00000000-`, "LIMIT 5"}},
		"postgres": {pgdialect.New(), []string{`"sagas"."p_executions" AS x`, `'1969-12-31 23:59:59.999999+00:00'`, `'1970-01-01 00:00:00.000001+00:00'`}},
	} {
		t.Run(name, func(t *testing.T) {
			db := bun.NewDB(new(sql.DB), c.dialect)
			got := StalledQuery(db.NewSelect().Model(new([]Execution)), tables, q).String()
			for _, w := range c.want {
				if !strings.Contains(got, w) {
					t.Errorf("%s\nlacks %s", got, w)
				}
			}
			got = ForResourceQuery(db.NewSelect().Model(new([]Execution)), tables, store.Resource{Type: "o", ID: "it's ?"}, 3).String()
			if want := `x.resource_id = 'it''s ?'`; !strings.Contains(got, want) {
				t.Errorf("%s\nlacks %s", got, want)
			}
		})
	}
}

func TestTablesAreValidated(t *testing.T) {
	for _, bad := range []Tables{{Schema: "A"}, {Prefix: `x"`}, {Prefix: "1"}, {Schema: strings.Repeat("a", 32)}} {
		if bad.Validate() == nil {
			t.Errorf("%+v is valid", bad)
		}
	}
	if err := (Tables{Prefix: "saga_"}).Validate(); err != nil {
		t.Error(err)
	}
}
