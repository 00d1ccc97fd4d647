package saga

import (
	"maps"
	"math/rand/v2"
	"slices"
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

// TestExplorerForgetsNothing checks that what canon drops does not matter: a
// world and its canon lead to the same canons, or break the same property.
func TestExplorerForgetsNothing(t *testing.T) {
	for _, s := range scenarios(true) {
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			e := newExplorer(s)
			next := func(x world) (all map[world]bool, bad *violation) {
				all = map[world]bool{}
				bad = try(func() {
					e.check(&x)
					e.moves(&x, func(_ move, y world, _ bool) { all[e.canon(&y)] = true })
				})
				return all, bad
			}
			// Worlds as they are, walked through at random but the same in every run.
			n := 0
			rng := rand.New(rand.NewPCG(1, 2))
			for range 250 {
				x := e.start()
				for range 50 {
					n++
					c := e.canon(&x)
					if again := e.canon(&c); again != c {
						t.Fatalf("the canon of a canon is another one:\n%+v\n%+v", c, again)
					}
					a, bad := next(x)
					b, too := next(c)
					if (bad == nil) != (too == nil) || bad != nil && bad.property != too.property {
						t.Fatalf("%v, but of its canon %v:\n%+v", bad, too, x)
					}
					if bad != nil {
						break
					}
					a[c], b[c] = true, true // what made no difference
					for _, p := range [][2]map[world]bool{{a, b}, {b, a}} {
						for y := range p[0] {
							if !p[1][y] && !slices.ContainsFunc(slices.Collect(maps.Keys(p[1])), y.within) {
								t.Fatalf("only one of\n%+v\n%+v\nleads to\n%+v", x, c, y)
							}
						}
					}
					var ys []world
					e.moves(&x, func(_ move, y world, _ bool) { ys = append(ys, y) })
					if len(ys) == 0 {
						break
					}
					x = ys[rng.IntN(len(ys))]
				}
			}
			t.Logf("%d worlds", n)
		})
	}
}
