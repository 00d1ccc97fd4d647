package saga

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/leveret-go/leveret/store"
)

// A record of very many sagas is kept within its size: at first without their
// steps, then without them. Such a worker counts as one that knows what it may
// know.
func TestRecordIsBounded(t *testing.T) {
	long := strings.Repeat("s", 90)
	for _, c := range []struct {
		sagas, steps int
		cut          bool
		kept         int
		knows        bool // a step that there is not
	}{
		{10, 10, false, 10, false},
		{100, 100, true, 100, true},
		{6000, 1, true, 0, true},
	} {
		w := WorkerInfo{ID: "host:1/aa"}
		for i := range c.sagas {
			s := WorkerSaga{Saga: fmt.Sprintf("%s%d", long, i), Version: 1}
			for j := range c.steps {
				s.Steps = append(s.Steps, fmt.Sprintf("%s%d", long, j))
			}
			w.Sagas = append(w.Sagas, s)
		}
		b, err := w.encode()
		var back WorkerInfo
		if err == nil {
			err = json.Unmarshal(b, &back)
		}
		if err != nil || len(b) > workerSize || back.Cut != c.cut || len(back.Sagas) != c.kept {
			t.Errorf("%d sagas: %d bytes, cut %v, %d kept, %v", c.sagas, len(b), back.Cut, len(back.Sagas), err)
		}
		for step, want := range map[string]bool{long + "0": true, "": true, "other": c.knows} {
			if x := (&store.Execution{Saga: long + "7", Version: 1, Step: step}); back.knows(x) != want {
				t.Errorf("%d sagas: it knows step %q: %v", c.sagas, step, !want)
			}
		}
		if x := (&store.Execution{Saga: long + "7", Version: 2}); back.knows(x) != (c.kept == 0) {
			t.Errorf("%d sagas: it knows another version: %v", c.sagas, c.kept != 0)
		}
	}
}

// A worker's name of any length fits a cell's.
func TestCellNameOfAWorker(t *testing.T) {
	for _, name := range []string{"host:1/aa", strings.Repeat("w", 1000), "a\xffb"} {
		if err := store.ValidateCell(workerPrefix+cellName(name), json.RawMessage(`{}`)); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
