package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/leveret-go/leveret/saga"
)

// schema prints the JSON Schema of a saga's state, as the last worker that had the
// saga has left it.
func schema(ctx context.Context, c *call) error {
	name, version := c.args[0], c.Int("version")
	return c.with(ctx, func(s *session) error {
		all, err := s.StoredOutlines(ctx)
		if err != nil {
			return err
		}
		var found *saga.Outline
		for i := range all { // by version, rising
			if o := &all[i]; o.Saga == name && (version == 0 || o.Version == version) {
				found = o
			}
		}
		switch {
		case found == nil && version != 0:
			return fail(exitNotFound, "no worker has left version %d of saga %q in the store", version, name)
		case found == nil:
			return fail(exitNotFound, "no worker has left saga %q in the store", name)
		case found.Schema == nil:
			return fail(exitNotFound, "saga %q has no schema", name)
		}
		var b bytes.Buffer
		if err := json.Indent(&b, found.Schema, "", "  "); err != nil {
			return fail(exitFailure, "the schema of saga %q: %w", name, err)
		}
		for line := range strings.Lines(b.String() + "\n") {
			fmt.Fprintln(c.stdout, clean(strings.TrimSuffix(line, "\n")))
		}
		return nil
	})
}
