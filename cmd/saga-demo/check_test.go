package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/leveret-go/leveret/saga"
	"github.com/leveret-go/leveret/store"
)

// A case of check is one checkout with the effects on its order.
type checkCase struct {
	status  store.Status // "": not in the store
	ledger  []store.LedgerEntry
	effects string // service, + done, - undone, ! marked, ~ nothing to undo
	want    string // part of the violation; "": none
}

func (c checkCase) run() verdict {
	p := planned{Execution: uuid.New(), Order: "r-00001", Saga: "checkout"}
	xs := map[uuid.UUID]*saga.Execution{}
	if c.status != "" {
		xs[p.Execution] = &saga.Execution{
			ID: p.Execution, Status: c.status, Step: "courier", Ledger: c.ledger,
			Failure: &store.Failure{Message: "declined", Step: "courier"},
		}
	}
	var effects []effect
	for i, s := range strings.Fields(c.effects) {
		e := effect{Key: string(rune('a' + i)), Order: p.Order, Service: s[:len(s)-1], Kind: "execute", State: stateDone, Calls: 1}
		switch s[len(s)-1] {
		case '-':
			e.Kind = "compensate"
		case '!':
			e.State = stateMarked
		case '~':
			e.Kind, e.State = "compensate", stateNoop
		}
		effects = append(effects, e)
	}
	return check(lines(), []planned{p}, xs, effects)
}

func TestCheckFindsPlantedViolations(t *testing.T) {
	entry := func(name string, s store.StepStatus) store.LedgerEntry {
		return store.LedgerEntry{Name: name, Status: s, Compensable: true}
	}
	stuck := []store.LedgerEntry{entry("stock", store.StepDone), entry("payment", store.StepDone), entry("courier", store.StepUndone), entry("receipt", store.StepPending)}
	doubt := []store.LedgerEntry{entry("stock", store.StepDone), entry("payment", store.StepInDoubt), entry("courier", store.StepPending), entry("receipt", store.StepPending)}
	tried := []store.LedgerEntry{{Name: "stock", Status: store.StepDone, Round: 1}, entry("payment", store.StepUndone), entry("courier", store.StepPending), entry("receipt", store.StepPending)}
	stray := []store.LedgerEntry{entry("stock", store.StepUndone), {Name: "payment", Status: store.StepDone, Stray: true}, entry("courier", store.StepPending), entry("receipt", store.StepPending)}
	const all = "stock+ payment+ courier+ receipt+"
	for name, c := range map[string]checkCase{
		"completed":                      {status: "completed", effects: all},
		"completed, one lost":            {status: "completed", effects: "stock+ payment+ receipt+", want: "courier did nothing"},
		"completed, one doubled":         {status: "completed", effects: all + " payment+", want: "payment did its work 2 times"},
		"completed, one undone":          {status: "completed", effects: all + " stock-", want: "stock undid its work"},
		"completed, one marked only":     {status: "completed", effects: "stock! payment+ courier+ receipt+", want: "stock did nothing"},
		"compensated":                    {status: "compensated", effects: "stock+ stock- payment! payment~"},
		"compensated, one left":          {status: "compensated", effects: "stock+ stock- payment+", want: "payment was not undone"},
		"compensated, undone twice":      {status: "compensated", effects: "stock+ stock- stock-", want: "stock undid 2 times"},
		"compensated, undone but never":  {status: "compensated", effects: "stock-", want: "stock undid 1 times"},
		"compensated, doubled and back":  {status: "compensated", effects: "stock+ stock+ stock- stock-", want: "stock did its work 2 times"},
		"failed":                         {status: "failed", effects: ""},
		"failed, one left":               {status: "failed", effects: "stock+", want: "is failed, but the work of stock"},
		"cancelled, one left":            {status: "cancelled", effects: "receipt+", want: "is cancelled, but the work of receipt"},
		"still running":                  {status: "running", effects: "stock+", want: "has not ended: running at step courier"},
		"halted":                         {status: "halted", effects: "", want: "has not ended: halted"},
		"never started":                  {want: "was never started"},
		"never started, with effects":    {effects: "stock+", want: "has effects all the same"},
		"somebody else's service":        {status: "completed", effects: all + " voucher+", want: "voucher was called"},
		"compensation failed":            {status: "compensation_failed", ledger: stuck, effects: "stock+ payment+ courier+ courier-"},
		"compensation failed, lost":      {status: "compensation_failed", ledger: stuck, effects: "stock+ courier+ courier-", want: "wrong about payment: the step is done, what is left of it is 0"},
		"compensation failed, left":      {status: "compensation_failed", ledger: stuck, effects: "stock+ payment+ courier+", want: "wrong about courier: the step is undone, what is left of it is 1"},
		"compensation failed, pending":   {status: "compensation_failed", ledger: stuck, effects: "stock+ payment+ receipt+", want: "wrong about receipt"},
		"compensation failed, in doubt":  {status: "compensation_failed", ledger: doubt, effects: "stock+ payment+"},
		"compensation failed, no doubt":  {status: "compensation_failed", ledger: doubt, effects: "stock+"},
		"compensation failed, undo lost": {status: "compensation_failed", ledger: tried, effects: "stock+ stock- payment+ payment-"},
		"compensation failed, stray":     {status: "compensation_failed", ledger: stray, effects: "stock+ stock- payment+"},
		"compensation failed, no step":   {status: "compensation_failed", ledger: stuck[:3], effects: "stock+ payment+", want: "has no step receipt"},
	} {
		v := c.run()
		got := strings.Join(v.violations, "\n")
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s: violations %q, want %q", name, got, c.want)
		}
		if needs := len(v.needsPerson) > 0; needs != (c.status == store.StatusCompensationFailed) {
			t.Errorf("%s: needs a person: %v", name, v.needsPerson)
		}
	}
}

func TestPercentile(t *testing.T) {
	var d []time.Duration
	if got := percentile(d, 50); got != 0 {
		t.Errorf("percentile of nothing is %v", got)
	}
	for i := range 200 {
		d = append(d, time.Duration(i+1))
	}
	for p, want := range map[int]time.Duration{50: 100, 99: 198, 100: 200, 1: 2} {
		if got := percentile(d, p); got != want {
			t.Errorf("percentile %d is %d, want %d", p, got, want)
		}
	}
	if got := percentile(d[:1], 1); got != 1 {
		t.Errorf("percentile 1 of one value is %d", got)
	}
}
