package saga

import (
	"strings"
	"testing"
)

// TestExplorerFindsFaults checks the checker: with one rule of the protocol
// broken around the machine, a scenario must break the property that the rule is
// there for.
func TestExplorerFindsFaults(t *testing.T) {
	for _, c := range []struct {
		fault, scenario string
		want            []string // any of these
	}{
		{"doubt skipped", "F33", []string{"S2"}},
		{"doubt_until not kept", "F29", []string{"S2"}},
		{"token ignored", "F05", []string{"S1", "S2", "S3", "S6"}},
		{"request ignored by handle", "F02", []string{"S6"}},
		{"own history not read", "F02", []string{"S10"}},
		{"claims ignored", "F35", []string{"S1"}},
		{"backoff without due time", "F12", []string{"S7"}},
		{"due at the lease's end", "F12", []string{"S7b"}},
		{"renewed, still offered", "F26", []string{"S8"}},
		{"late results ignored", "F09", []string{"S2"}},
	} {
		t.Run(c.fault, func(t *testing.T) {
			t.Parallel()
			for _, s := range scenarios(true) {
				if !strings.HasPrefix(s.name, c.scenario) {
					continue
				}
				s.mutant, s.limit = c.fault, 40_000
				s.steps, s.compensable[2] = 2, false
				res := newExplorer(s).explore()
				if res.bad == nil {
					t.Fatalf("not found in %d states of %s", res.states, s.name)
				}
				t.Logf("%s after %d states: %s\n%s", res.bad.property, res.states, res.bad.why, strings.Join(res.trace, "\n"))
				for _, p := range c.want {
					if res.bad.property == p {
						return
					}
				}
				t.Errorf("breaks %s, want one of %v", res.bad.property, c.want)
			}
		})
	}
}
