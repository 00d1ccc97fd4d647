package main

import (
	"bytes"
	"testing"
)

func TestLateChargeIsRefused(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), t.TempDir(), &out); err != nil {
		t.Fatalf("%v\n%s", err, &out)
	}
	const want = `order 1: completed; balance 900 after 1 charges
order 2: compensated; balance 900 after 2 charges
order 3: compensated; balance 900 after 2 charges
the charge of order 3, late: 409 Conflict; balance 900 after 2 charges
`
	if got := out.String(); got != want {
		t.Errorf("got:\n%swant:\n%s", got, want)
	}
}
