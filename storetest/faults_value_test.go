package storetest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/leveret-go/leveret/store"
)

var valueFaults = map[string]func(f *faulty){
	"ExecutionIsKept": stores(func(x *store.Execution) { x.TraceParent = "" }),
	"ExecutionIsReplaced": func(f *faulty) {
		f.withLock = func(ctx context.Context, id uuid.UUID, fn lockFunc) (*store.Execution, error) {
			return f.Store.WithLock(ctx, id, func(x *store.Execution) (store.Change, error) {
				failure := x.Failure
				c, err := fn(x)
				x.Failure = cmp.Or(x.Failure, failure) // never taken away again
				return c, err
			})
		}
	},
	"TimesAreMicroseconds": stores(func(x *store.Execution) { x.CreatedAt = x.CreatedAt.Round(time.Microsecond) }),
	"TimesAreKept": stores(func(x *store.Execution) {
		if x.ProgressAt.IsZero() {
			x.ProgressAt = time.Unix(0, 0)
		}
	}),
	"StateIsKept": stores(func(x *store.Execution) {
		var b bytes.Buffer
		if json.Compact(&b, x.State) == nil {
			x.State = b.Bytes()
		}
	}),
	"StateIsRefused": stores(func(x *store.Execution) { x.State = bytes.ToValidUTF8(x.State, nil) }),
	"TextsAreKept":   stores(func(x *store.Execution) { x.Reason = strings.ReplaceAll(x.Reason, "?", "$1") }),
	"LongTextsAreKept": changes(func(c *store.Change) {
		for i := range c.Attempts {
			c.Attempts[i].Stack = c.Attempts[i].Stack[:min(len(c.Attempts[i].Stack), 4096)]
		}
	}),
	"TextsAreRefused": stores(func(x *store.Execution) {
		if x.Failure != nil {
			x.Failure.Message = fix(x.Failure.Message)
		}
	}),
	"TextsOfChangesAreRefused": changes(func(c *store.Change) {
		for i := range c.Audit {
			c.Audit[i].Actor = fix(c.Audit[i].Actor)
		}
	}),
	"NumbersAreKept": stores(func(x *store.Execution) { x.Resumes = min(x.Resumes, 1<<15-1) }),
	"RequiredFields": stores(func(x *store.Execution) { x.Partition = cmp.Or(x.Partition, "default") }),

	"InitialIsKept": stores(func(x *store.Execution) {
		var b bytes.Buffer
		if json.Compact(&b, x.Initial) == nil {
			x.Initial = b.Bytes()
		}
	}),
	"CheckpointIsKept": stores(func(x *store.Execution) {
		if string(x.Checkpoint) == "null" {
			x.Checkpoint = nil
		}
	}),
	"DetailIsKept": changes(func(c *store.Change) {
		for i := range c.Audit {
			if c.Audit[i].Detail == nil {
				c.Audit[i].Detail = []byte(`{}`)
			}
		}
	}),
}
